// The event queue against a sorted list.

#include "sim/network/event_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace arlab {
namespace {

/// Events by time, in the order of pushes.
using Expected = std::map<Picoseconds, std::vector<std::uint32_t>>;

/// Takes everything up to `limit`, and pushes more while it does as `push_more` says.
template <class PushMore>
void drain(EventQueue& queue, Expected& expected, Picoseconds limit, PushMore push_more) {
  while (queue.any_ready() || queue.advance(limit, [](auto) {})) {
    ASSERT_FALSE(expected.empty());
    ASSERT_EQ(queue.now(), expected.begin()->first);
    std::size_t taken = 0;
    while (queue.any_ready()) {
      const Event event = queue.take_ready();
      ASSERT_EQ(event.time, queue.now());
      const auto& now = expected.begin()->second;
      ASSERT_LT(taken, now.size());
      ASSERT_EQ(event.subject, now[taken++]);
      push_more();
    }
    ASSERT_EQ(taken, expected.begin()->second.size());
    expected.erase(expected.begin());
  }
  ASSERT_TRUE(expected.empty() || expected.begin()->first > limit);
}

TEST(EventQueue, KeepsTheOrderOfTimeThenOfPush) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    EventQueue queue;
    Expected expected;
    std::uint32_t next = 0;
    // From crowded, with many equal times, to sparse.
    const Picoseconds span = Picoseconds{1} << (random() % 50);
    const std::size_t budget = 1 + random() % 3000;
    const auto push = [&] {
      if (next == budget) return;
      const Picoseconds scale = Picoseconds{1} << (random() % 50);
      const auto delay = static_cast<Picoseconds>(random()) & (std::min(span, scale) - 1);
      queue.push({queue.now() + delay, 0, next});
      expected[queue.now() + delay].push_back(next++);
    };
    for (std::size_t i = 0; i < budget / 2; ++i) push();
    // Stop here and there: what is pushed then may come before all that the queue has prepared.
    const std::size_t more = 1 + random() % 3;
    for (int stop = 0; stop < 5; ++stop) {
      const Picoseconds limit =
          queue.now() + static_cast<Picoseconds>(random() % 1000) * span / 999;
      // Events pushed for now come up without advance().
      drain(queue, expected, limit, [&] {
        for (std::size_t i = 0; i < random() % (more + 1); ++i) push();
      });
      if (HasFatalFailure()) return;
      for (std::size_t i = 0; i < 20; ++i) {
        const Picoseconds before = queue.now();
        if (next == budget) break;
        const Picoseconds delay = 1 + static_cast<Picoseconds>(random() % 100);
        queue.push({before + delay, 0, next});
        expected[before + delay].push_back(next++);
      }
    }
    drain(queue, expected, kNever, push);
    if (HasFatalFailure()) return;
    EXPECT_EQ(queue.size(), 0u);
  }
}

TEST(EventQueue, ReachesTheLastInstant) {
  EventQueue queue;
  queue.push({kNever - 1, 0, 2});
  queue.push({1, 0, 1});
  EXPECT_FALSE(queue.advance(0, [](auto) {}));
  ASSERT_TRUE(queue.advance(kNever, [](auto) {}));
  EXPECT_EQ(queue.take_ready().subject, 1u);
  ASSERT_TRUE(queue.advance(kNever, [](auto) {}));
  EXPECT_EQ(queue.take_ready().subject, 2u);
  EXPECT_EQ(queue.now(), kNever - 1);
  EXPECT_FALSE(queue.advance(kNever, [](auto) {}));
}

TEST(EventQueue, HoldsWhatFillsMoreThan64Slabs) {
  EventQueue queue;
  constexpr std::uint32_t kEvents = 300'000;
  for (std::uint32_t i = 0; i < kEvents; ++i) queue.push({1000 + i / 3, 0, i});
  for (std::uint32_t i = 0; i < kEvents; ++i) {
    if (!queue.any_ready()) {
      ASSERT_TRUE(queue.advance(kNever, [](auto) {}));
    }
    ASSERT_EQ(queue.take_ready().subject, i);
  }
  EXPECT_EQ(queue.size(), 0u);
}

TEST(EventQueue, PreparesForWhatComesNext) {
  EventQueue queue;
  for (std::uint32_t i = 0; i < 10; ++i) queue.push({1000 + i, 0, i});
  std::vector<std::uint32_t> prepared;
  ASSERT_TRUE(queue.advance(kNever, [&](auto events) {
    for (const Event& event : events) prepared.push_back(event.subject);
  }));
  EXPECT_EQ(prepared.size(), 10u);
}

}  // namespace
}  // namespace arlab
