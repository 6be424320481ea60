#include "reference/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace arlab {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const std::size_t count : {0u, 1u, 2u, 7u, 10000u}) {
    for (const unsigned threads : {0u, 1u, 2u, 3u, 8u, 50u}) {
      std::vector<std::atomic<int>> calls(count);
      parallel_for(count, threads, [&](unsigned, std::size_t index) { ++calls.at(index); });
      for (const std::atomic<int>& times : calls) ASSERT_EQ(times, 1) << count << ", " << threads;
    }
  }
}

TEST(ParallelFor, OneThreadRunsInOrderOnTheCallersThread) {
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::size_t> order;
  parallel_for(100, 1, [&](unsigned worker, std::size_t index) {
    EXPECT_EQ(worker, 0u);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(index);
  });
  std::vector<std::size_t> expected(100);
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_EQ(order, expected);
}

// `worker` selects scratch memory, so it is in range and never in two calls at once.
TEST(ParallelFor, AWorkerIsOneThreadAtATime) {
  for (const unsigned threads : {1u, 2u, 5u, 8u}) {
    std::vector<std::atomic<bool>> busy(threads);
    std::atomic<bool> shared = false;
    parallel_for(5000, threads, [&](unsigned worker, std::size_t) {
      if (busy.at(worker).exchange(true)) shared = true;
      std::this_thread::yield();
      busy[worker] = false;
    });
    EXPECT_FALSE(shared);
  }
}

TEST(ParallelFor, ThrowsTheExceptionOfTheBody) {
  for (const unsigned threads : {1u, 2u, 8u}) {
    for (const std::size_t bad : {0u, 1u, 57u, 99u}) {
      try {
        parallel_for(100, threads, [&](unsigned, std::size_t index) {
          if (index == bad) throw std::domain_error("index " + std::to_string(index));
        });
        ADD_FAILURE() << "nothing thrown";
      } catch (const std::domain_error& error) {
        EXPECT_EQ(error.what(), "index " + std::to_string(bad));
      }
    }
  }
}

TEST(ParallelFor, ThrowsOneExceptionWhenAllThrow) {
  EXPECT_THROW(parallel_for(1000, 8, [](unsigned, std::size_t) { throw std::bad_alloc(); }),
               std::bad_alloc);
}

TEST(ParallelFor, StopsAfterAnException) {
  std::size_t calls = 0;
  EXPECT_THROW(parallel_for(1000, 1,
                            [&](unsigned, std::size_t index) {
                              ++calls;
                              if (index == 10) throw std::bad_alloc();
                            }),
               std::bad_alloc);
  EXPECT_EQ(calls, 11u);

  // With other threads at work, those finish the call that they are in.
  std::atomic<std::size_t> parallel_calls = 0;
  EXPECT_THROW(parallel_for(1'000'000, 4,
                            [&](unsigned, std::size_t index) {
                              ++parallel_calls;
                              if (index == 0) throw std::bad_alloc();
                              std::this_thread::sleep_for(std::chrono::milliseconds(1));
                            }),
               std::bad_alloc);
  EXPECT_LT(parallel_calls, 100'000u);
}

TEST(ParallelFor, CanBeNested) {
  std::atomic<int> calls = 0;
  parallel_for(8, 4, [&](unsigned, std::size_t) {
    parallel_for(9, 3, [&](unsigned, std::size_t) { ++calls; });
  });
  EXPECT_EQ(calls, 72);
}

TEST(HardwareThreads, IsAtLeastOne) { EXPECT_GE(hardware_threads(), 1u); }

}  // namespace
}  // namespace arlab
