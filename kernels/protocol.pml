/* The protocol of README.md for one block of each rank, for Spin.
 *
 *   spin -a protocol.pml && cc -DSAFETY -O2 -o pan pan.c && ./pan
 *
 * Every rank runs EXCHANGES exchanges with a colour modulo 4, so that it wraps. A slot holds the
 * number of the exchange that it was written for; a rank asserts that it reads what was written
 * for its own exchange: not older (a flag that came too early), not newer (overwritten while read).
 * Release and acquire are taken for granted: what is stored before a flag is seen after it (a flag
 * without release is -DEARLY_FLAG). A deadlock is an invalid end state.
 *
 * -DRANKS=2 or 3. Variants that must be rejected:
 *   -DONE_HALF        slots are not doubled
 *   -DSTALE_FLAG      a rank waits for the colour before
 *   -DEARLY_FLAG      the flag is stored before the slots
 *   -DNO_WAIT         a rank does not wait for the last of the others
 */
#ifndef RANKS
#define RANKS 2
#endif
#define EXCHANGES 6
#define COLOURS 4

byte flags[RANKS * RANKS];     /* [at * RANKS + from]: colour */
byte slots[2 * RANKS * RANKS]; /* [(half * RANKS + at) * RANKS + from]: exchange written for */

#ifdef ONE_HALF
#define HALF(exchange) 0
#else
#define HALF(exchange) ((exchange) % 2)
#endif
#define SLOT(exchange, at, from) slots[(HALF(exchange) * RANKS + (at)) * RANKS + (from)]
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

proctype rank(byte me) {
  byte exchange = 0;
  byte peer;
  do
  :: exchange < EXCHANGES ->
     exchange++;
#ifndef EARLY_FLAG
     for (peer : 0 .. RANKS - 1) { SLOT(exchange, peer, me) = exchange }
#endif
     for (peer : 0 .. RANKS - 1) { FLAG(peer, me) = exchange % COLOURS }
#ifdef EARLY_FLAG
     for (peer : 0 .. RANKS - 1) { SLOT(exchange, peer, me) = exchange }
#endif
     for (peer : 0 .. WAITED_FOR - 1) { ARRIVED(me, peer, exchange % COLOURS) }
     for (peer : 0 .. RANKS - 1) { assert(SLOT(exchange, me, peer) == exchange) }
  :: else -> break
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. RANKS - 1) { run rank(i) }
  }
}
