// The events of a simulation, in the order of time, then of the push.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "sim/network/time.h"

namespace arlab {

struct Event {
  Picoseconds time = 0;
  std::uint32_t kind = 0;     ///< has a meaning for its owner
  std::uint32_t subject = 0;  ///< likewise
};

/// A monotone priority queue: time only moves forwards, and nothing is pushed into the past. That
/// is what a comparison heap cannot use and a radix queue can.
///
/// A time is a number of digits to the base 64. An event lies at the level of the highest digit in
/// which its time differs from now, in the bucket of its own digit there; events of now are ready.
/// The earliest events are hence in the first bucket of the lowest level that has any. If they are
/// few, they are sorted into a run and used up one by one; else the first of them becomes now and
/// the rest are spread over lower levels. An event moves down at most once per level: pushing and
/// popping n events costs O(n), whatever their times, and walks memory in order. Buckets are lists
/// of chunks that keep the order of pushes, so events of equal time stay in it and need no sequence
/// number.
class EventQueue {
 public:
  EventQueue() = default;
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  Picoseconds now() const { return now_; }
  std::size_t size() const { return pushed_ - taken_; }
  /// How many events have ever been pushed.
  std::size_t pushed() const { return pushed_; }
  bool any_ready() const { return run_is_ready() || ready_.size > 0; }

  /// event.time must be at or after now() and before kNever.
  void push(const Event& event) {
    ++pushed_;
    if (event.time < run_end_ && event.time > now_) {
      insert_into_run(event);
    } else {
      append(bucket_of(event.time), event);
    }
  }

  /// The next event of now; any_ready() must hold.
  Event take_ready() {
    ++taken_;
    // Ready events of the run were pushed before now became now, the others after that.
    if (run_is_ready()) return run_[run_first_++];
    const Event event = ready_.first->events[ready_read_++];
    --ready_.size;
    if (ready_.size == 0 || ready_read_ == kEventsPerChunk) {
      release(std::exchange(ready_.first, ready_.first->next));
      ready_read_ = 0;
      if (ready_.size == 0) ready_ = {};
    }
    return event;
  }

  /// Moves now to the time of the earliest event if that is at or before `limit`; says whether.
  /// There must be no ready ones. Calls prepare(events) with events whose turn comes soon.
  template <class Prepare>
  bool advance(Picoseconds limit, Prepare prepare) {
    if (run_first_ == run_last_) {
      if (occupied_levels_ == 0) return false;
      const auto level = static_cast<std::size_t>(std::countr_zero(occupied_levels_));
      const auto digit = static_cast<std::size_t>(std::countr_zero(occupied_[level]));
      const Bucket bucket = buckets_[level][digit];
      // Events of level 0 differ from now in the last digit only: all of a bucket are equal.
      const bool is_run = level > 0 && bucket.size <= kShortRun;
      bool all_equal = level == 0;
      if (!is_run) {
        Picoseconds earliest = bucket.first->events[0].time;
        if (!all_equal) {
          const auto [first, last] = range_of(bucket);
          earliest = first;
          all_equal = first == last;
        }
        if (earliest > limit) return false;
        now_ = earliest;
      }
      buckets_[level][digit] = {};
      occupied_[level] &= occupied_[level] - 1;
      if (occupied_[level] == 0) occupied_levels_ &= occupied_levels_ - 1;
      if (all_equal) {
        ready_ = bucket;
        return true;
      }
      if (!is_run) {
        if (level == 1) prepare_for(bucket, prepare);
        spread(bucket);
        return true;
      }
      // Until run_end_ there is nothing else in the queue.
      const std::size_t shift = level * kBitsPerDigit;
      run_end_ = ((bucket.first->events[0].time >> shift) + 1) << shift;
      prepare_for(bucket, prepare);
      load_run(bucket);
    }
    if (run_[run_first_].time > limit) return false;
    now_ = run_[run_first_].time;
    return true;
  }

 private:
  static constexpr std::size_t kBitsPerDigit = 6;
  static constexpr std::size_t kDigits = 1 << kBitsPerDigit;
  static constexpr std::size_t kLevels = 11;  // 66 bits >= the 62 of kNever
  static constexpr std::size_t kEventsPerChunk = 63;
  static constexpr std::size_t kDoublings = 6;      ///< a slab's size doubles so often
  static constexpr std::size_t kShortRun = 64;      ///< at most that many are sorted
  static constexpr std::size_t kRunCapacity = 192;  ///< with those that are pushed in between

  struct Chunk {  // 1 KiB
    std::array<Event, kEventsPerChunk> events;
    Chunk* next;
  };
  struct Bucket {
    Chunk* first = nullptr;
    Chunk* last = nullptr;
    std::size_t size = 0;       ///< events; all chunks but the last are full
    std::size_t last_size = 0;  ///< how many of them are in the last chunk
  };

  Bucket& bucket_of(Picoseconds time) {
    const auto difference = static_cast<std::uint64_t>(time) ^ static_cast<std::uint64_t>(now_);
    if (difference == 0) return ready_;
    const std::size_t level =
        (static_cast<std::size_t>(std::bit_width(difference)) - 1) / kBitsPerDigit;
    const std::size_t digit = static_cast<std::size_t>(time >> (level * kBitsPerDigit)) % kDigits;
    occupied_[level] |= std::uint64_t{1} << digit;
    occupied_levels_ |= 1U << level;
    return buckets_[level][digit];
  }

  void append(Bucket& bucket, const Event& event) {
    if (bucket.last_size == kEventsPerChunk || bucket.last == nullptr) {
      Chunk* fresh = acquire();
      fresh->next = nullptr;
      (bucket.last == nullptr ? bucket.first : bucket.last->next) = fresh;
      bucket.last = fresh;
      bucket.last_size = 0;
    }
    bucket.last->events[bucket.last_size++] = event;
    ++bucket.size;
  }

  template <class Visit>
  static void for_each_chunk(const Bucket& bucket, Visit visit) {
    std::size_t left = bucket.size;
    for (Chunk* chunk = bucket.first; chunk != nullptr;) {
      const std::size_t here = std::min(left, kEventsPerChunk);
      left -= here;
      Chunk* next = chunk->next;  // visit may release the chunk
      visit(chunk, std::span<const Event>(chunk->events.data(), here));
      chunk = next;
    }
  }

  static std::pair<Picoseconds, Picoseconds> range_of(const Bucket& bucket) {
    Picoseconds first = kNever;
    Picoseconds last = 0;
    for_each_chunk(bucket, [&](Chunk*, std::span<const Event> events) {
      for (const Event& event : events) {
        first = std::min(first, event.time);
        last = std::max(last, event.time);
      }
    });
    return {first, last};
  }

  template <class Prepare>
  static void prepare_for(const Bucket& bucket, Prepare prepare) {
    for_each_chunk(bucket, [&](Chunk*, std::span<const Event> events) { prepare(events); });
  }

  /// Moves the events of a bucket to where they belong now.
  void spread(const Bucket& bucket) {
    for_each_chunk(bucket, [this](Chunk* chunk, std::span<const Event> events) {
      for (const Event& event : events) append(bucket_of(event.time), event);
      release(chunk);
    });
  }

  bool run_is_ready() const { return run_first_ < run_last_ && run_[run_first_].time == now_; }

  void load_run(const Bucket& bucket) {
    run_first_ = 0;
    run_last_ = 0;
    for_each_chunk(bucket, [this](Chunk* chunk, std::span<const Event> events) {
      for (const Event& event : events) place_in_run(event);
      release(chunk);
    });
  }

  /// Puts the event behind all that are not later; there must be room.
  void place_in_run(const Event& event) {
    std::size_t place = run_last_++;
    for (; place > run_first_ && run_[place - 1].time > event.time; --place) {
      run_[place] = run_[place - 1];
    }
    run_[place] = event;
  }

  /// For a time after now and before run_end_.
  void insert_into_run(const Event& event) {
    if (run_last_ == kRunCapacity && run_first_ > 0) {
      std::copy(run_.begin() + run_first_, run_.begin() + run_last_, run_.begin());
      run_last_ -= run_first_;
      run_first_ = 0;
    }
    if (run_last_ < kRunCapacity) {
      place_in_run(event);
      return;
    }
    // Too many for a run: all but those of now go back to the buckets, before this one.
    std::size_t kept = run_first_;
    while (kept < run_last_ && run_[kept].time == now_) ++kept;
    for (std::size_t i = kept; i < run_last_; ++i) append(bucket_of(run_[i].time), run_[i]);
    append(bucket_of(event.time), event);
    run_last_ = kept;
    run_end_ = now_;
  }

  Chunk* acquire() {
    if (free_ == nullptr) {
      // From one chunk on, since most simulations are small: zeroing 64 KiB took a fifth of theirs.
      const std::size_t chunks = std::size_t{1} << std::min(slabs_.size(), kDoublings);
      slabs_.push_back(std::make_unique<Chunk[]>(chunks));
      for (std::size_t i = 0; i < chunks; ++i) release(&slabs_.back()[i]);
    }
    Chunk* chunk = free_;
    free_ = chunk->next;
    return chunk;
  }
  void release(Chunk* chunk) {
    chunk->next = free_;
    free_ = chunk;
  }

  Picoseconds now_ = 0;
  std::size_t pushed_ = 0;
  std::size_t taken_ = 0;
  Bucket ready_;
  std::size_t ready_read_ = 0;  ///< events of ready_.first that have been taken
  /// All events after now and before run_end_, sorted, and those of now that were among them:
  /// [run_first_, run_last_).
  std::array<Event, kRunCapacity> run_;
  std::size_t run_first_ = 0;
  std::size_t run_last_ = 0;
  Picoseconds run_end_ = 0;
  std::array<std::array<Bucket, kDigits>, kLevels> buckets_;
  std::array<std::uint64_t, kLevels> occupied_{};  ///< a bit per bucket
  std::uint32_t occupied_levels_ = 0;              ///< a bit per level
  std::vector<std::unique_ptr<Chunk[]>> slabs_;
  Chunk* free_ = nullptr;
};

}  // namespace arlab
