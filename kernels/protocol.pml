/* The protocol of PROTOCOL.md for one block of each rank, for Spin.
 *
 *   spin -a protocol.pml && cc -DSAFETY -O2 -o pan pan.c && ./pan
 *
 * Every rank runs EXCHANGES exchanges with an epoch modulo 4, so that it wraps. A slot holds the
 * number of the exchange that it was written for. It is written as early as kernels may: before
 * the wait for the exchange before; and read twice: after the wait, and as late as kernels may:
 * before the wait for the exchange after. A rank asserts that it reads what was written for its
 * own exchange: not older (a flag that came too early), not newer (overwritten while read).
 *
 * Two exchanges are a call, and a flag holds both, epoch and call. With -DCALLS_DIFFER, the last rank is in
 * another call from the second on: no rank may pass that call's first exchange, and all must end. A rank gives
 * up when it sees another call at its own epoch, or that another rank has given up.
 *
 * Release and acquire are taken for granted: what is stored before a flag is seen after it (a flag
 * without release is -DEARLY_FLAG). A deadlock is an invalid end state.
 *
 * -DRANKS=2 or 3. Variants that must be rejected:
 *   -DTHREE_BUFFERS   slots are there three times only
 *   -DSTALE_FLAG      a rank waits for the epoch before
 *   -DEARLY_FLAG      the flag is stored before the slots
 *   -DNO_WAIT         a rank does not wait for the last of the others
 *   -DCALL_NOT_COMPARED   calls are not compared (with -DCALLS_DIFFER)
 *   -DCALL_COMPARED_ALWAYS  calls are compared where epochs are not equal, too: a rank that has gone on is
 *                           taken for one in another call
 */
#ifndef RANKS
#define RANKS 2
#endif
#define EXCHANGES 6
#define EPOCHS 4

#ifdef THREE_BUFFERS
#define BUFFERS 3
#else
#define BUFFERS 4
#endif

byte flags[RANKS * RANKS];           /* [at * RANKS + from]: epoch + EPOCHS * call */
bit aborted;
byte slots[BUFFERS * RANKS * RANKS]; /* [(buffer * RANKS + at) * RANKS + from]: exchange */

#define SLOT(exchange, at, from) slots[(((exchange) % BUFFERS) * RANKS + (at)) * RANKS + (from)]
#define FLAG(at, from) flags[(at) * RANKS + (from)]

#define CALLS_OF_ALL 4 /* the last rank's numbers are others from there on */
#ifdef CALLS_DIFFER
#define DIFFERS(exchange) ((exchange) > 2)
#else
#define DIFFERS(exchange) false
#endif
#define CALL(exchange) (((exchange) - 1) / 2 + (me == RANKS - 1 && DIFFERS(exchange) -> CALLS_OF_ALL : 0))
#define FLAG_OF(exchange) ((exchange) % EPOCHS + EPOCHS * CALL(exchange))

#ifdef STALE_FLAG
#define BEHIND 1
#else
#define BEHIND 0
#endif
/* The signed difference of epochs modulo EPOCHS is not negative: 0 or 1, not 3 (-1) or 2. */
#define ARRIVED(at, from, epoch) \
  ((FLAG(at, from) + EPOCHS - (epoch) + BEHIND) % EPOCHS < 2)
#ifdef CALL_COMPARED_ALWAYS
#define SEES_ANOTHER_CALL (seen != FLAG_OF(last))
#else
#ifdef CALL_NOT_COMPARED
#define SEES_ANOTHER_CALL false
#else
#define SEES_ANOTHER_CALL (seen % EPOCHS == last % EPOCHS && seen != FLAG_OF(last))
#endif
#endif

#ifdef NO_WAIT
#define WAITED_FOR (RANKS - 1)
#else
#define WAITED_FOR RANKS
#endif

inline write_slots(exchange) {
  for (peer : 0 .. RANKS - 1) { SLOT(exchange, peer, me) = exchange }
}
inline read_slots(exchange) {
  for (peer : 0 .. RANKS - 1) { assert(SLOT(exchange, me, peer) == exchange) }
}

proctype rank(byte me) {
  byte last = 0; /* exchange */
  byte peer, seen;
#ifndef EARLY_FLAG
  write_slots(1);
#endif
  do
  :: last < EXCHANGES ->
     last++;
     for (peer : 0 .. RANKS - 1) { FLAG(peer, me) = FLAG_OF(last) } /* signal */
#ifdef EARLY_FLAG
     write_slots(last);
#else
     write_slots(last + 1);
#endif
     if
     :: last > 1 -> read_slots(last - 1)
     :: else
     fi;
     for (peer : 0 .. WAITED_FOR - 1) { /* wait */
       if
       :: atomic { ARRIVED(me, peer, last % EPOCHS) -> seen = FLAG(me, peer) }
       :: aborted -> goto given_up
       fi;
       if
       :: SEES_ANOTHER_CALL -> aborted = 1; goto given_up
       :: else
       fi
     }
     assert(DIFFERS(last) == false);
     read_slots(last)
  :: else -> break
  od;
given_up:
#ifndef CALLS_DIFFER
  assert(last == EXCHANGES && !aborted)
#else
  skip
#endif
}

init {
  byte i;
  atomic {
    for (i : 0 .. RANKS - 1) { run rank(i) }
  }
}
