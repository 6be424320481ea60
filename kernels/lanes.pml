/* The protocol of README.md where work is not bound to blocks (two_shot_large.hip), for Spin.
 *
 *   spin -a lanes.pml && cc -DSAFETY -O2 -o pan pan.c && ./pan -m100000
 *
 * A lane has slots and flags on every rank, as a block has in protocol.pml. Its exchanges are run
 * in steps, k = 0 .. ROUNDS + 1 in each call: step k waits for exchange k and reads its slots, then
 * fills and signals those of exchange k + 1. Step s of a call is step s / LANES of lane s % LANES.
 * The workers of a rank take steps from one counter, and each takes its next step before it works
 * the one that it has. So a lane goes from worker to worker, and only the own rank's flag says that
 * its last step is over. Workers may start late, and a rank may have fewer than another.
 * A step waits for steps with lower numbers only, and workers keep to the order of theirs: the
 * first step that is not done is always at work.
 *
 * A rank asserts that it reads what was written for its own exchange: not older, not newer.
 * Exchanges are counted across calls; a call starts on a rank when all its workers have ended the
 * one before. Release and acquire are taken for granted, as in protocol.pml, also from worker to
 * worker by the own flag. A deadlock is an invalid end state.
 *
 * What differs from protocol.pml:
 *   - A flag is two words, which exchanges use in turn: another worker may signal the next exchange
 *     before the signal of this one has come to all ranks, and in one word the older colour would
 *     then replace the newer one.
 *   - Slots are written after the wait. A worker may hold a step while its lane is several
 *     exchanges behind, so before the wait nothing is known about who still reads.
 *   - For the same reason a flag may be several exchanges behind the colour that is waited for. It
 *     is one ahead at most, as there.
 * Two buffers are enough: nobody signals an exchange before it has read the one before.
 *
 * Sizes: -DRANKS, -DWORKERS, -DWORKERS_OF_LAST (rank), -DLANES, -DROUNDS, -DCALLS, -DBUFFERS.
 * Variants that must be rejected (with -DLANES=1 -DROUNDS=4):
 *   -DONE_BUFFER            slots are there once only
 *   -DNO_OWN_FLAG           a rank does not wait for itself (with -DBUFFERS=3: four hide it)
 *   -DONE_WORD              all exchanges use the same word as flag (a deadlock)
 *   -DWRITE_BEFORE_WAITING  slots are filled before the wait for the exchange before
 *   -DSIGNAL_BEFORE_READING the next exchange is signalled before the slots of this one are read
 *   -DEARLY_FLAG            flags are stored before the slots
 *   -DSTALE_FLAG            a rank waits for the colour before
 *   -DWORK_OUT_OF_ORDER     of two steps a worker works the later one first (a deadlock)
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef WORKERS_OF_LAST
#define WORKERS_OF_LAST WORKERS
#endif
#ifndef LANES
#define LANES 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifdef ONE_BUFFER
#define BUFFERS 1
#endif
#ifndef BUFFERS
#define BUFFERS 4
#endif
#ifdef ONE_WORD
#define WORDS 1
#else
#define WORDS 2
#endif
#define STEPS (LANES * (ROUNDS + 2))
#define COLOURS (2 * (ROUNDS + 1)) /* as few as tell a flag that is a whole call behind */

byte flags[WORDS * LANES * RANKS * RANKS];   /* [word][lane][at][from]: colour */
byte slots[BUFFERS * LANES * RANKS * RANKS]; /* the same for each buffer: exchange */
byte taken[RANKS];                           /* steps of this call */
byte ended[RANKS];                           /* workers that have ended this call */
byte calls[RANKS];                           /* calls that have ended */

#define PLACE(part, lane, at, from) ((((part) * LANES + (lane)) * RANKS + (at)) * RANKS + (from))
#define FLAG(exchange, lane, at, from) flags[PLACE((exchange) % WORDS, lane, at, from)]
#define SLOT(exchange, lane, at, from) slots[PLACE((exchange) % BUFFERS, lane, at, from)]

#define WORKERS_OF(rank) (rank == RANKS - 1 -> WORKERS_OF_LAST : WORKERS)

#ifdef STALE_FLAG
#define BEHIND 1
#else
#define BEHIND 0
#endif
/* The signed difference of colours modulo COLOURS is not negative. */
#define ARRIVED(lane, at, from, exchange)                                              \
  ((FLAG(exchange, lane, at, from) + COLOURS - (exchange) % COLOURS + BEHIND) % COLOURS < \
   COLOURS / 2)

#define LANE (current % LANES)
#define K (current / LANES)
#define EXCHANGE (call * (ROUNDS + 1) + K)

#ifdef NO_OWN_FLAG
#define WAITED_FOR(rank) (rank == me || ARRIVED(LANE, me, rank, EXCHANGE))
#else
#define WAITED_FOR(rank) ARRIVED(LANE, me, rank, EXCHANGE)
#endif

/* Below, what is atomic touches shared memory once: the rest would only cost states. */
inline take(step) {
  atomic { step = taken[me]; taken[me]++ }
}

inline next_of(peers) {
  peer++;
  if
  :: peer == peers -> peer = 0; break
  :: else
  fi
}

#define OTHER ((me + 1 + peer) % RANKS)

inline wait() {
  if
  :: K > 0 ->
     do
     :: atomic { WAITED_FOR(peer) -> next_of(RANKS) }
     od
  :: else
  fi
}

inline read_slots() {
  if
  :: K > 0 ->
     do
     :: atomic { assert(SLOT(EXCHANGE, LANE, me, OTHER) == EXCHANGE); next_of(RANKS - 1) }
     od
  :: else
  fi
}

inline write_slots() {
  if
  :: K <= ROUNDS ->
     do
     :: atomic { SLOT(EXCHANGE + 1, LANE, OTHER, me) = EXCHANGE + 1; next_of(RANKS - 1) }
     od
  :: else
  fi
}

/* In any order; with the own flag first, another worker can go on earliest. */
inline signal() {
  if
  :: K <= ROUNDS ->
     FLAG(EXCHANGE + 1, LANE, me, me) = (EXCHANGE + 1) % COLOURS;
     do
     :: atomic {
          FLAG(EXCHANGE + 1, LANE, OTHER, me) = (EXCHANGE + 1) % COLOURS; next_of(RANKS - 1)
        }
     od
  :: else
  fi
}

inline work() {
#if defined(WRITE_BEFORE_WAITING)
  write_slots(); wait(); read_slots(); signal()
#elif defined(SIGNAL_BEFORE_READING)
  wait(); write_slots(); signal(); read_slots()
#elif defined(EARLY_FLAG)
  wait(); read_slots(); signal(); write_slots()
#else
  wait(); read_slots(); write_slots(); signal()
#endif
}

proctype worker(byte me, number) {
  byte call, peer, current, next;
  do
  :: call < CALLS ->
     taken[me] >= number; /* which of a rank's workers is the first does not matter */
     take(current);
     do
     :: current < STEPS ->
        take(next);
#ifdef WORK_OUT_OF_ORDER
        if
        :: atomic { next < STEPS -> peer = current; current = next; next = peer; peer = 0 }
        :: next >= STEPS
        fi;
#endif
        work();
        current = next
     :: else -> break
     od;
     atomic {
       call++;
       ended[me]++;
       if
       :: ended[me] == WORKERS_OF(me) -> ended[me] = 0; taken[me] = 0; calls[me]++
       :: else
       fi
     };
     calls[me] >= call
  :: else -> break
  od
}

init {
  byte i, j;
  atomic {
    for (i : 0 .. RANKS - 1) {
      for (j : 0 .. WORKERS_OF(i) - 1) { run worker(i, j) }
    }
  }
}
