/* The protocol of README.md for one block of each rank, for Spin.
 *
 *   spin -a protocol.pml && cc -DSAFETY -O2 -o pan pan.c && ./pan
 *
 * Every rank runs EXCHANGES exchanges with a colour modulo 4, so that it wraps. A slot holds the
 * number of the exchange that it was written for. It is written as early as kernels may: before
 * the wait for the exchange before; and read twice: after the wait, and as late as kernels may:
 * before the wait for the exchange after. A rank asserts that it reads what was written for its
 * own exchange: not older (a flag that came too early), not newer (overwritten while read).
 * Release and acquire are taken for granted: what is stored before a flag is seen after it (a flag
 * without release is -DEARLY_FLAG). A deadlock is an invalid end state.
 *
 * -DRANKS=2 or 3. Variants that must be rejected:
 *   -DTHREE_BUFFERS   slots are there three times only
 *   -DSTALE_FLAG      a rank waits for the colour before
 *   -DEARLY_FLAG      the flag is stored before the slots
 *   -DNO_WAIT         a rank does not wait for the last of the others
 */
#ifndef RANKS
#define RANKS 2
#endif
#define EXCHANGES 6
#define COLOURS 4

#ifdef THREE_BUFFERS
#define BUFFERS 3
#else
#define BUFFERS 4
#endif

byte flags[RANKS * RANKS];           /* [at * RANKS + from]: colour */
byte slots[BUFFERS * RANKS * RANKS]; /* [(buffer * RANKS + at) * RANKS + from]: exchange */

#define SLOT(exchange, at, from) slots[(((exchange) % BUFFERS) * RANKS + (at)) * RANKS + (from)]
#define FLAG(at, from) flags[(at) * RANKS + (from)]

#ifdef STALE_FLAG
#define BEHIND 1
#else
#define BEHIND 0
#endif
/* The signed difference of colours modulo COLOURS is not negative: 0 or 1, not 3 (-1) or 2. */
#define ARRIVED(at, from, colour) \
  ((FLAG(at, from) + COLOURS - (colour) + BEHIND) % COLOURS < 2)

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
  byte peer;
#ifndef EARLY_FLAG
  write_slots(1);
#endif
  do
  :: last < EXCHANGES ->
     last++;
     for (peer : 0 .. RANKS - 1) { FLAG(peer, me) = last % COLOURS } /* signal */
#ifdef EARLY_FLAG
     write_slots(last);
#else
     write_slots(last + 1);
#endif
     if
     :: last > 1 -> read_slots(last - 1)
     :: else
     fi;
     for (peer : 0 .. WAITED_FOR - 1) { ARRIVED(me, peer, last % COLOURS) } /* wait */
     read_slots(last)
  :: else -> break
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. RANKS - 1) { run rank(i) }
  }
}
