/* The protocol of places (collectives/places.h, one_shot_pair.hip), for Spin.
 *
 *   spin -a places.pml && cc -DSAFETY -O2 -o pan pan.c && ./pan -m100000
 *
 * Two ranks. The blocks of each begin a call with an item each, and take others from a counter. In a
 * turn, a block, which holds the item after already, sends an item if its place is known to be free,
 * then reads what the other rank has sent for the item before and empties the place, then counts
 * that; and if the place was not free, waits for it, and sends then. A wire is one word. A place
 * remembers which item was written to it, so that a rank can assert that it reads what was sent for
 * this item, and that it writes to nothing that is not read. Items are numbered across calls; a call
 * starts on a rank when all its blocks have ended the one before. A deadlock is an invalid end state.
 *
 * Sizes: -DBLOCKS, -DBLOCKS_OF_LAST (rank), -DWINDOW (two of them are the places), -DITEMS (of a
 * call), -DCALLS. -DLIKE_ABSENT: every item but the first looks as if it were absent.
 * Variants that must be rejected (some with -DBLOCKS=1 or more calls):
 *   -DNO_WAIT_FOR_PLACE     items are sent whether or not their place is free
 *   -DOWN_NOT_WAITED_FOR    only the other rank must have read what was at an item's place
 *   -DNOT_EMPTIED           a place that was read is not made absent
 *   -DCOUNTED_BEFORE_READ   a window is said to be free before its last items are read
 *   -DWAIT_BEFORE_READING   a block waits for a place before it reads the item before (a deadlock)
 *   -DCOUNT_KEPT            a block says what it has counted when it ends only (a deadlock)
 *   -DNOT_SAID_AT_START     a call does not say what the calls before have read (a deadlock)
 *   -DCOMPLETE_KEPT         `complete` stays when the item is read (with -DLIKE_ABSENT)
 */
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef BLOCKS_OF_LAST
#define BLOCKS_OF_LAST BLOCKS
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef ITEMS
#define ITEMS 7
#endif
#ifndef CALLS
#define CALLS 1
#endif
#define PLACES (2 * WINDOW)
#define ALL ((ITEMS + WINDOW - 1) / WINDOW * WINDOW) /* numbers that a call uses up */
#define NONE 255

byte place[2 * PLACES];    /* [at][place]: 0 when absent */
byte written[2 * PLACES];  /* [at][place]: 1 + the item that was written; 0 when it is read */
bit complete[2 * PLACES];  /* [at][place] */
byte freed[8];             /* [at][rank][window modulo 2]: the first item behind what it has read */
byte read[4];              /* [rank][window modulo 2]: items of a window that this call uses again */
byte taken[2];             /* of this call's items */
byte ended[2];             /* blocks that have ended this call */
byte calls[2];             /* calls that have ended */

#define OTHER (1 - me)
#define AT(rank, item) ((rank) * PLACES + (item) % PLACES)
#define FREED(at, by, item) freed[((at) * 2 + (by)) * 2 + (item) / WINDOW % 2]
#define READ(item) read[me * 2 + (item) / WINDOW % 2]
#define BLOCKS_OF(rank) (rank == 1 -> BLOCKS_OF_LAST : BLOCKS)
#define FIRST (call * ALL)
#define WINDOW_OF(number) ((number) / WINDOW * WINDOW)
#ifdef NO_WAIT_FOR_PLACE
#define IS_FREE true
#else
#define IS_FREE_AT(by) (FREED(me, by, FIRST + now) + WINDOW >= FIRST + WINDOW_OF(now))
#ifdef OWN_NOT_WAITED_FOR
#define IS_FREE IS_FREE_AT(OTHER)
#else
#define IS_FREE (IS_FREE_AT(OTHER) && IS_FREE_AT(me))
#endif
#endif
#ifdef LIKE_ABSENT
#define LOOKS_ABSENT(number) ((number) != 0)
#else
#define LOOKS_ABSENT(number) false
#endif

/* Below, what is atomic touches shared memory once: the rest would only cost states. */
inline take(item) {
  atomic {
    item = BLOCKS_OF(me) + taken[me];
    if
    :: item < ITEMS -> taken[me]++
    :: else -> item = NONE
    fi
  }
}

inline send() {
  atomic {
    assert(place[AT(OTHER, FIRST + now)] == 0 && written[AT(OTHER, FIRST + now)] == 0);
    place[AT(OTHER, FIRST + now)] = (LOOKS_ABSENT(now) -> 0 : 1);
    written[AT(OTHER, FIRST + now)] = FIRST + now + 1
  };
  if
  :: LOOKS_ABSENT(now) -> complete[AT(OTHER, FIRST + now)] = 1
  :: else
  fi
}

inline receive() {
  atomic {
    place[AT(me, FIRST + before)] != 0 || complete[AT(me, FIRST + before)] == 1;
    assert(written[AT(me, FIRST + before)] == FIRST + before + 1);
    written[AT(me, FIRST + before)] = 0;
#ifndef NOT_EMPTIED
    place[AT(me, FIRST + before)] = 0
#endif
  };
#ifndef COMPLETE_KEPT
  complete[AT(me, FIRST + before)] = 0
#endif
}

inline say_freed(item, upto) {
  FREED(me, me, item) = upto;
  FREED(OTHER, me, item) = upto
}

inline say_counted() {
  atomic {
    READ(FIRST + before) = READ(FIRST + before) + counted;
    counted = 0;
    if
    :: READ(FIRST + before) == WINDOW -> READ(FIRST + before) = 0; says = true
    :: else
    fi
  };
  if
  :: says -> say_freed(FIRST + before, FIRST + WINDOW_OF(before) + WINDOW); says = false
  :: else
  fi
}

#ifdef COUNT_KEPT
#define IS_LAST_OF_WINDOW(next) (next == NONE)
#else
#define IS_LAST_OF_WINDOW(next) (next == NONE || WINDOW_OF(next) != WINDOW_OF(before))
#endif
inline count(to_read) {
  if
  :: WINDOW_OF(before) + PLACES < ITEMS ->
     counted++;
     if
     :: IS_LAST_OF_WINDOW(to_read) -> say_counted()
     :: else
     fi
  :: else
  fi
}

inline read_before() {
  if
  :: before != NONE ->
#ifdef COUNTED_BEFORE_READ
     count(now); receive()
#else
     receive(); count(now)
#endif
  :: else
  fi
}

proctype block(byte me, number) {
  byte call, now, next, before, counted;
  bool sent, says;
  do
  :: call < CALLS ->
     before = NONE;
     now = (number < ITEMS -> number : NONE);
     take(next);
     if
     :: number == 0 && call > 0 ->
#ifndef NOT_SAID_AT_START
        say_freed(FIRST - 1, FIRST);
        if
        :: FIRST > WINDOW -> say_freed(FIRST - WINDOW - 1, FIRST - WINDOW)
        :: else
        fi
#else
        skip
#endif
     :: else
     fi;
     do
     :: now != NONE || before != NONE ->
        sent = false;
#ifdef WAIT_BEFORE_READING
        if
        :: now != NONE -> IS_FREE; send(); sent = true
        :: else
        fi;
#else
        if
        :: now != NONE && IS_FREE -> send(); sent = true
        :: else
        fi;
#endif
        read_before();
        if
        :: now != NONE && !sent -> IS_FREE; send()
        :: else
        fi;
        before = now;
        now = next;
        if
        :: now != NONE -> take(next)
        :: else
        fi
     :: else -> break
     od;
     atomic {
       call++;
       ended[me]++;
       if
       :: ended[me] == BLOCKS_OF(me) -> ended[me] = 0; taken[me] = 0; calls[me]++
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
    for (i : 0 .. 1) {
      for (j : 0 .. BLOCKS_OF(i) - 1) { run block(i, j) }
    }
  }
}
