/* The protocol of sentinel slots (transport/sentinel_slots.h, one_shot_sentinel.hip, two_shot_sentinel.hip), for Spin.
 *
 *   spin -a sentinel.pml && cc -DSAFETY -O2 -o pan pan.c && ./pan -m100000
 *
 * Two ranks that run one_shot or, with -DTWO_SHOT, ranks that run two_shot. The blocks of each begin a call
 * with an item each, and take others from a counter. A wire is one word. A slot remembers which item was
 * written to it, so that a rank can assert that it reads what was sent for this item, and that it writes to
 * nothing that is not read. Items are numbered across calls; a call starts on a rank when all its blocks have
 * ended the one before, and its first block then says so to the other ranks, for whose first blocks it waits
 * before it reads anything, and before it waits for a slot. A deadlock is an invalid end state.
 *
 * one_shot: in a turn, a block, which holds the item after already, sends an item if its slot is known to be
 * free, then reads what the other rank has sent for the item before and empties the slot, then counts that;
 * and if the slot was not free, waits for it, and sends then.
 *
 * two_shot: of an item, a block sends contributions, reads those of the others, sends its sum, reads those of
 * the others, and counts the item: in five turns, with another item in each of these steps. While an item's
 * slot is not free, those before it go on; when there are none left, it is waited for.
 *
 * Sizes: -DRANKS (of two_shot), -DBLOCKS, -DBLOCKS_OF_LAST (rank), -DWINDOW (two of them are the slots),
 * -DITEMS (of a call), -DCALLS. -DLIKE_EMPTY: every item but the first looks as if it were empty.
 * Variants that must be rejected:
 *   -DNO_WAIT_FOR_SLOT      items are sent whether or not their slot is free
 *   -DOWN_NOT_WAITED_FOR    only the other rank must have read what was at an item's slot (one_shot)
 *   -DONE_WINDOW_ASKED      items are sent when their own slot is free, though one of an item before is not:
 *                           a deadlock (two_shot)
 *   -DNOT_EMPTIED           a slot that was read is not made empty
 *   -DCREDIT_BEFORE_READ    a window is said to be free before its last items are read
 *   -DWAIT_BEFORE_READING   a block waits for a slot before it reads the items before: a deadlock
 *   -DCREDIT_KEPT           a block says what it has counted when it ends only: a deadlock
 *   -DNOT_SAID_AT_START     a call does not say what the calls before have read: a deadlock (three calls)
 *   -DVALID_KEPT            `valid` stays when the item is read (with -DLIKE_EMPTY)
 *   -DVALID_SAID_LATE       a block says so at the end of its turn only: a deadlock (two_shot, with
 *                           -DLIKE_EMPTY)
 */
#ifndef RANKS
#define RANKS 2
#endif
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
#define SLOTS (2 * WINDOW)
#define ALL ((ITEMS + WINDOW - 1) / WINDOW * WINDOW) /* numbers that a call uses up */
#define NONE 255
#define BEFORE (2 * WINDOW) /* numbers before the first call's, so that none is negative */

/* Parts of an item that are sent: contributions, which are all that one_shot has, and sums. */
#define CONTRIBUTION 0
#define SUM 1
#ifdef TWO_SHOT
#define KINDS 2
#else
#define KINDS 1
#endif
#define WIRES (RANKS * SLOTS * KINDS * RANKS)

byte slot[WIRES];            /* [at][slot][kind][from]: 0 when empty */
byte written[WIRES];          /* likewise: 1 + the item that was written; 0 when it is read */
bit valid[WIRES];          /* likewise */
byte credit[RANKS * RANKS * 2] = BEFORE; /* [at][rank][window modulo 2]: first item behind what it has read */
byte read[RANKS * 2];         /* [rank][window modulo 2]: items of a window that this call uses again */
byte taken[RANKS];            /* this call's items    */
byte ended[RANKS];            /* blocks that have ended this call */
byte calls[RANKS];            /* calls that have ended */
byte begun[RANKS];            /* calls that have begun */

#define AT(rank, item, kind, from) ((((rank) * SLOTS + (item) % SLOTS) * KINDS + (kind)) * RANKS + (from))
#define CREDIT(at, by, item) credit[((at) * RANKS + (by)) * 2 + (item) / WINDOW % 2]
#define READ(item) read[me * 2 + (item) / WINDOW % 2]
#define BLOCKS_OF(rank) (rank == RANKS - 1 -> BLOCKS_OF_LAST : BLOCKS)
#define FIRST (BEFORE + call * ALL)
#define WINDOW_OF(number) ((number) / WINDOW * WINDOW)
#ifdef NO_WAIT_FOR_SLOT
#define IS_FREE true
#else
#define IS_FREE_AT(by) (CREDIT(me, by, FIRST + now) + WINDOW >= FIRST + WINDOW_OF(now))
#define IS_FREE_BEFORE(by) (CREDIT(me, by, FIRST + now + WINDOW) + 2 * WINDOW >= FIRST + WINDOW_OF(now))
#ifdef ONE_WINDOW_ASKED
#define RANK_IS_READY(by) IS_FREE_AT(by)
#else
#define RANK_IS_READY(by) (IS_FREE_AT(by) && IS_FREE_BEFORE(by))
#endif
#ifdef OWN_NOT_WAITED_FOR
#define ASKED(by) (by == me || RANK_IS_READY(by))
#else
#define ASKED(by) RANK_IS_READY(by)
#endif
#if RANKS == 2
#define IS_FREE (ASKED(0) && ASKED(1))
#else
#define IS_FREE (ASKED(0) && ASKED(1) && ASKED(2))
#endif
#endif
#if RANKS == 2
#define ALL_HAVE_BEGUN (begun[0] > call && begun[1] > call)
#else
#define ALL_HAVE_BEGUN (begun[0] > call && begun[1] > call && begun[2] > call)
#endif
#define HAS_MET (self != 0 || ALL_HAVE_BEGUN)
#ifdef LIKE_EMPTY
#define LOOKS_EMPTY(number) ((number) != 0)
#else
#define LOOKS_EMPTY(number) false
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

inline say_valid(number, kind) {
  if
  :: LOOKS_EMPTY(number) ->
     for (other : 0 .. RANKS - 1) {
       if
       :: other != me -> valid[AT(other, FIRST + number, kind, me)] = 1
       :: else
       fi
     }
  :: else
  fi
}

inline send(number, kind) {
  for (other : 0 .. RANKS - 1) {
    if
    :: other != me ->
       atomic {
         assert(slot[AT(other, FIRST + number, kind, me)] == 0 && written[AT(other, FIRST + number, kind, me)] == 0);
         slot[AT(other, FIRST + number, kind, me)] = (LOOKS_EMPTY(number) -> 0 : 1);
         written[AT(other, FIRST + number, kind, me)] = FIRST + number + 1
       }
    :: else
    fi
  }
#ifndef VALID_SAID_LATE
  say_valid(number, kind)
#endif
}

inline receive(number, kind) {
  for (other : 0 .. RANKS - 1) {
    if
    :: other != me ->
       atomic {
         HAS_MET && (slot[AT(me, FIRST + number, kind, other)] != 0 || valid[AT(me, FIRST + number, kind, other)] == 1);
         assert(written[AT(me, FIRST + number, kind, other)] == FIRST + number + 1);
         written[AT(me, FIRST + number, kind, other)] = 0;
#ifndef NOT_EMPTIED
         slot[AT(me, FIRST + number, kind, other)] = 0
#endif
       };
#ifndef VALID_KEPT
       valid[AT(me, FIRST + number, kind, other)] = 0
#endif
    :: else
    fi
  }
}

inline say_credit(item, upto) {
  for (other : 0 .. RANKS - 1) { CREDIT(other, me, item) = upto }
}

inline say_counted(number) {
  atomic {
    READ(FIRST + number) = READ(FIRST + number) + counted;
    counted = 0;
    if
    :: READ(FIRST + number) == WINDOW -> READ(FIRST + number) = 0; says = true
    :: else
    fi
  };
  if
  :: says -> say_credit(FIRST + number, FIRST + WINDOW_OF(number) + WINDOW); says = false
  :: else
  fi
}

#ifdef CREDIT_KEPT
#define IS_LAST_OF_WINDOW(number, after) (after == NONE)
#else
#define IS_LAST_OF_WINDOW(number, after) (after == NONE || WINDOW_OF(after) != WINDOW_OF(number))
#endif
/* `after`: what this block reads next. */
inline count(number, after) {
  if
  :: WINDOW_OF(number) + SLOTS < ITEMS ->
     counted++;
     if
     :: IS_LAST_OF_WINDOW(number, after) -> say_counted(number)
     :: else
     fi
  :: else
  fi
}

#ifdef TWO_SHOT
#define NOTHING_SENT (sent == NONE && reduced == NONE && told == NONE)

/* Looks at the items behind `told`, which is read next. */
inline find_coming() {
  atomic {
    coming = now;
    if
    :: sent != NONE -> coming = sent
    :: else
    fi;
    if
    :: reduced != NONE -> coming = reduced
    :: else
    fi
  }
}

inline turns() {
  sent = NONE; reduced = NONE; told = NONE; gathered = NONE;
  now = NONE;
  do
  :: now != NONE || next != NONE || !NOTHING_SENT ->
     if
     :: now == NONE && next != NONE -> now = next; take(next)
     :: else
     fi;
#ifdef WAIT_BEFORE_READING
     if
     :: now != NONE -> IS_FREE
     :: else
     fi;
#endif
     sends = (now != NONE -> IS_FREE : false);
#ifndef CREDIT_BEFORE_READ
     if
     :: gathered != NONE ->
        find_coming();
        if
        :: told != NONE -> coming = told
        :: else
        fi;
        count(gathered, coming)
     :: else
     fi;
#endif
     if
     :: reduced != NONE -> send(reduced, SUM)
     :: else
     fi;
     if
     :: sends -> send(now, CONTRIBUTION)
     :: else
     fi;
#ifdef CREDIT_BEFORE_READ
     if
     :: told != NONE -> find_coming(); count(told, coming)
     :: else
     fi;
#endif
     if
     :: told != NONE -> receive(told, SUM)
     :: else
     fi;
     if
     :: sent != NONE -> receive(sent, CONTRIBUTION)
     :: else
     fi;
#ifdef VALID_SAID_LATE
     if
     :: reduced != NONE -> say_valid(reduced, SUM)
     :: else
     fi;
     if
     :: sends -> say_valid(now, CONTRIBUTION)
     :: else
     fi;
#endif
     atomic {
       gathered = told; told = reduced; reduced = sent; sent = NONE;
       if
       :: sends -> sent = now; now = NONE
       :: else
       fi
     };
     if
     :: NOTHING_SENT && now != NONE ->
#ifndef CREDIT_BEFORE_READ
        if
        :: gathered != NONE -> count(gathered, now); gathered = NONE
        :: else
        fi;
#endif
        IS_FREE && HAS_MET
     :: else
     fi
  :: else -> break
  od;
#ifndef CREDIT_BEFORE_READ
  if
  :: gathered != NONE -> count(gathered, NONE); gathered = NONE
  :: else
  fi
#endif
}
#else
inline read_before() {
  if
  :: before != NONE ->
#ifdef CREDIT_BEFORE_READ
     count(before, now); receive(before, CONTRIBUTION)
#else
     receive(before, CONTRIBUTION); count(before, now)
#endif
  :: else
  fi
}

inline turns() {
  before = NONE;
  now = next;
  if
  :: now != NONE -> take(next)
  :: else
  fi;
  do
  :: now != NONE || before != NONE ->
     sends = false;
#ifdef WAIT_BEFORE_READING
     if
     :: now != NONE -> IS_FREE; send(now, CONTRIBUTION); sends = true
     :: else
     fi;
#else
     if
     :: now != NONE && IS_FREE -> send(now, CONTRIBUTION); sends = true
     :: else
     fi;
#endif
     read_before();
     if
     :: now != NONE && !sends -> IS_FREE && HAS_MET; send(now, CONTRIBUTION)
     :: else
     fi;
     before = now;
     now = next;
     if
     :: now != NONE -> take(next)
     :: else
     fi
  :: else -> break
  od
}
#endif

proctype block(byte me, self) {
  byte call, now, next, counted, other;
  bool sends, says;
#ifdef TWO_SHOT
  byte sent, reduced, told, gathered, coming;
#else
  byte before;
#endif
  do
  :: call < CALLS ->
     next = (self < ITEMS -> self : NONE);
     if
     :: self == 0 -> begun[me]++
     :: else
     fi;
     if
     :: self == 0 && call > 0 ->
#ifndef NOT_SAID_AT_START
        say_credit(FIRST - 1, FIRST);
        say_credit(FIRST - WINDOW - 1, FIRST - WINDOW)
#else
        skip
#endif
     :: else
     fi;
     turns();
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
    for (i : 0 .. RANKS - 1) {
      for (j : 0 .. BLOCKS_OF(i) - 1) { run block(i, j) }
    }
  }
}
