// An array of zeros takes the memory of what is used, however long it is.

#include "sim/network/zeroed_array.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <new>

namespace arlab {
namespace {

// More than calloc promises on any machine.
TEST(ZeroedArray, MayBeLongerThanThereIsMemory) {
  constexpr std::size_t kSize = std::size_t{1} << 40;
  ZeroedArray<std::uint64_t> array(kSize);
  array[0] = 1;
  array[kSize - 1] = 2;
  EXPECT_EQ(array[0], 1U);
  EXPECT_EQ(array[kSize / 2], 0U);
  EXPECT_EQ(array[kSize - 1], 2U);
}

TEST(ZeroedArray, WhatNoAddressSpaceHoldsIsBadAlloc) {
  EXPECT_THROW(ZeroedArray<std::uint64_t>(SIZE_MAX / 4), std::bad_alloc);
  EXPECT_THROW(ZeroedArray<std::uint64_t>(SIZE_MAX / 8), std::bad_alloc);
}

TEST(ZeroedArray, MayBeEmpty) { EXPECT_NO_THROW(ZeroedArray<std::uint64_t>(0)); }

}  // namespace
}  // namespace arlab
