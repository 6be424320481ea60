// Packed causes come out as they went in; rarely used fields take the memory of their few uses.

#include "sim/run/causes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "sim/network/paged_array.h"

namespace arlab {
namespace {

bool is_same(const Cause& a, const Cause& b) {
  return a.time == b.time && a.network == b.network && a.before == b.before &&
         a.subject == b.subject && a.limit == b.limit && a.span == b.span && a.latency == b.latency;
}

TEST(Causes, ComeOutAsTheyWentIn) {
  Causes causes(1);
  std::vector<Cause> all = {Cause()};
  std::mt19937_64 random(3);
  const auto up_to_bits = [&](unsigned bits) { return random() >> (64 - 1 - random() % bits); };
  for (int i = 0; i < 3000; ++i) {
    Cause cause = all.back();
    if (i % 7 != 0) ++cause.subject;  // most go on as before
    if (i % 3 == 0) {
      cause.time = static_cast<Picoseconds>(up_to_bits(62));
      cause.network = static_cast<Picoseconds>(up_to_bits(62));
      cause.before = static_cast<CauseId>(up_to_bits(32));
      cause.limit = static_cast<std::uint32_t>(-up_to_bits(32));
      cause.span = static_cast<Span>(random() % 7);
      cause.latency = up_to_bits(24) & 0xFFFFFF;
    }
    EXPECT_EQ(causes.add(0, cause), all.size());
    all.push_back(cause);
  }
  for (CauseId id = 0; id < all.size(); ++id) EXPECT_TRUE(is_same(causes[id], all[id])) << id;
}

TEST(PagedArray, BeginsAnewWhereAllHasBeenReleased) {
  constexpr std::size_t kMany = std::size_t{1} << 24;
  constexpr std::size_t kAtATime = 3000;
  PagedArray<std::uint64_t> array(kMany);
  for (std::size_t i = 0; i < 100 * kAtATime; ++i) {
    EXPECT_EQ(array[i], 0u);
    array[i] = i;
    if (i < kAtATime) continue;
    EXPECT_EQ(array[i - kAtATime], i - kAtATime);
    array.release(i - kAtATime);
  }
}

}  // namespace
}  // namespace arlab
