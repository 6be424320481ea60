/* Sums of squares that blocks of a rank tell each other (transport/row_sums.h, collectives/fused_tail.h), for Spin.
 *
 *   spin -a row_sums.pml && cc -DSAFETY -O2 -o pan pan.c && ./pan -m100000
 *
 * Of one rank up to BLOCKS blocks, each with a word of its own in every call; how many blocks a call has is any
 * number. In a call, a block reads how many calls there were, tells its word, empties words of the call before, sets
 * the count of calls, and then takes the words of all. What is stored arrives at any time, in any order, but before
 * the kernel ends that stored it; the next call begins behind that. A word says which call it is of, so that a block
 * can assert that it takes none of another call, and that no word is overwritten. A deadlock is an invalid end state.
 *
 * Sizes: -DBLOCKS, -DCALLS. Variants that must be rejected:
 *   -DONE_BUFFER     calls with odd and with even numbers share words
 *   -DNOT_EMPTIED    words are not emptied: the call after the next takes them again
 *   -DNOT_FINISHED   a kernel may begin before what the one before has stored has arrived
 *   -DOWN_EMPTIED    a call empties as many words as it has itself, not as the call before had
 *   -DOWN_COUNTED    a call sets the counts of its own blocks only, and a later one has more
 */
#ifndef BLOCKS
#define BLOCKS 3
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifdef ONE_BUFFER
#define BUFFER(call) 0
#else
#define BUFFER(call) ((call) % 2)
#endif
#ifdef OWN_COUNTED
#define COUNTED blocks[call]
#else
#define COUNTED BLOCKS
#endif
#define WORDS (2 * BLOCKS)
#define AT(call, block) (BUFFER(call) * BLOCKS + (block))

byte blocks[CALLS];            /* a call has                         */
byte word[WORDS];              /* 0: empty                           */
byte told[WORDS];              /* on its way there; 0: nothing       */
bit emptied[WORDS];            /* whether 0 is                       */
byte calls[BLOCKS];            /* so many there were                 */
byte before[BLOCKS];           /* words of the last one              */
byte kernel;                   /* the call that runs                 */
byte done;                     /* blocks that have ended it          */
byte unsent;                   /* stores that are on their way       */

/* A word on its way arrives. */
active proctype memory() {
  byte at;
end:
  do
  :: atomic {
       select(at : 0 .. WORDS - 1);
       if
       :: told[at] != 0 -> assert(word[at] == 0); word[at] = told[at]; told[at] = 0; unsent--
       :: emptied[at] -> assert(word[at] != 0); word[at] = 0; emptied[at] = 0; unsent--
       :: else
       fi;
       at = 0 /* or states would differ in nothing else */
     }
  od
}

proctype block(byte own) {
  byte call = 0;
  byte number;
  byte last;
  byte other;
  do
  :: call == CALLS -> break
  :: else ->
     (kernel == call);
     if
     :: own >= blocks[call]
     :: else ->
        atomic {
          number = calls[own];
#ifdef OWN_EMPTIED
          last = blocks[call];
#else
          last = before[own];
#endif
          assert(told[AT(number, own)] == 0);
          told[AT(number, own)] = 1 + call;
          unsent++;
          other = own
        };
#ifndef NOT_EMPTIED
        do
        :: other >= last -> break
        :: else ->
           atomic {
             emptied[AT(number + 1, other)] = 1;
             unsent++;
             other = other + blocks[call]
           }
        od;
#endif
        other = own;
        do
        :: other >= COUNTED -> break
        :: else ->
           atomic {
             calls[other] = number + 1;
             before[other] = blocks[call];
             other = other + blocks[call]
           }
        od;
        other = 0;
        do
        :: other == blocks[call] -> break
        :: else ->
           atomic {
             (word[AT(number, other)] != 0);
             assert(word[AT(number, other)] == 1 + call);
             other++
           }
        od
     fi;
     other = 0;
     done++;
     /* The kernel ends: all blocks have, and all that they have stored is there. */
     if
     :: own == 0 ->
        atomic {
#ifdef NOT_FINISHED
          (done == BLOCKS);
#else
          (done == BLOCKS && unsent == 0);
#endif
          done = 0;
          kernel++
        }
     :: else
     fi;
     call++
  od
}

init {
  byte i;
  byte count;
  atomic {
    for (i : 0 .. CALLS - 1) {
      select(count : 1 .. BLOCKS);
      blocks[i] = count
    }
    for (i : 0 .. BLOCKS - 1) {
      run block(i)
    }
  }
}
