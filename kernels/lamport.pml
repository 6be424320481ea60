/* The protocol of Lamport slots (transport/lamport_slots.h, one_shot_lamport.hip, two_shot_lamport.hip), for Spin.
 *
 *   spin -a lamport.pml && cc -DSAFETY -O2 -o pan pan.c && ./pan -m100000
 *
 * Of each rank one block, whose threads have a word each of every wire. In a call, a thread sends its words, then
 * takes those of the other ranks and empties their slots; of two stages, a block begins the second when all its
 * threads have ended the first. What is stored arrives at any time, in any order, but before the kernel ends that
 * stored it; the next call begins behind that. A slot remembers which call and stage its word is of, so that a rank
 * can assert that it reads what was sent for this call, that it overwrites nothing, and that what it empties is
 * what it has read. A deadlock is an invalid end state.
 *
 * Sizes: -DRANKS, -DTHREADS, -DCALLS, -DSTAGES. Variants that must be rejected:
 *   -DONE_BUFFER     calls with odd and with even numbers share slots
 *   -DNOT_EMPTIED    a slot that was read is not made empty: the call after the next takes its word again
 *   -DNOT_FINISHED   a kernel may begin before what the one before has stored to its own slots has arrived
 *   -DONE_STAGE      both stages share slots (with -DSTAGES=2)
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef THREADS
#define THREADS 2
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifndef STAGES
#define STAGES 1
#endif
#ifdef ONE_BUFFER
#define BUFFER(call) 0
#else
#define BUFFER(call) ((call) % 2)
#endif
#ifdef ONE_STAGE
#define SLOT_STAGE(stage) 0
#else
#define SLOT_STAGE(stage) (stage)
#endif
#define SLOTS (RANKS * 2 * STAGES * RANKS * THREADS)
#define SLOT(at, call, stage, from, word) \
  (((((at) * 2 + BUFFER(call)) * STAGES + SLOT_STAGE(stage)) * RANKS + (from)) * THREADS + (word))
#define WORD(call, stage) (1 + (call) * STAGES + (stage))

byte slot[SLOTS];              /* 0: empty */
byte sent[SLOTS];              /* on its way there; 0: nothing */
byte emptied[SLOTS];           /* a word read, while the store that empties the slot is on its way   */
byte done[RANKS];              /* threads that have ended this call's stage */
byte stages[RANKS];            /* stages begun, through all calls    */
byte unsent[RANKS];            /* stores of a rank that are on their way */

/* A word on its way arrives. */
active proctype memory() {
  byte at;
end:
  do
  :: atomic {
       select(at : 0 .. SLOTS - 1);
       if
       :: sent[at] != 0 ->
          assert(slot[at] == 0);
          slot[at] = sent[at];
          sent[at] = 0;
          unsent[at / THREADS % RANKS]--
       :: emptied[at] != 0 ->
          assert(slot[at] == emptied[at]);
          slot[at] = 0;
          emptied[at] = 0;
#ifndef NOT_FINISHED
          unsent[at / (THREADS * RANKS * STAGES * 2)]--
#endif
       :: else
       fi;
       at = 0 /* or states would differ in nothing else */
     }
  od
}

proctype thread(byte rank; byte word) {
  byte call = 0;
  byte stage = 0;
  byte other;
  do
  :: call == CALLS -> break
  :: else ->
     stage = 0;
     do
     :: stage == STAGES -> break
     :: else ->
        /* Behind the barrier, or the kernel before. */
        (stages[rank] == call * STAGES + stage);
        other = 0;
        do
        :: other == RANKS -> break
        :: other == rank -> other++
        :: else ->
           atomic {
             assert(sent[SLOT(other, call, stage, rank, word)] == 0);
             sent[SLOT(other, call, stage, rank, word)] = WORD(call, stage);
             unsent[rank]++;
             other++
           }
        od;
        other = 0;
        do
        :: other == RANKS -> break
        :: other == rank -> other++
        :: else ->
           atomic {
             (slot[SLOT(rank, call, stage, other, word)] != 0 && emptied[SLOT(rank, call, stage, other, word)] == 0);
             assert(slot[SLOT(rank, call, stage, other, word)] == WORD(call, stage));
#ifndef NOT_EMPTIED
             emptied[SLOT(rank, call, stage, other, word)] = WORD(call, stage);
#ifndef NOT_FINISHED
             unsent[rank]++;
#endif
#endif
             other++
           }
        od;
        atomic {
          done[rank]++;
          stage++;
          if
          :: done[rank] == THREADS && stage < STAGES -> done[rank] = 0; stages[rank]++
          :: else
          fi
        }
     od;
     /* The kernel ends: all threads have, and all that they have stored is there. */
     if
     :: word == 0 ->
        atomic {
          (done[rank] == THREADS && unsent[rank] == 0);
          done[rank] = 0;
          stages[rank]++
        }
     :: else
     fi;
     call++
  od
}

init {
  byte rank;
  byte word;
  atomic {
    for (rank : 0 .. RANKS - 1) {
      for (word : 0 .. THREADS - 1) {
        run thread(rank, word)
      }
    }
  }
}
