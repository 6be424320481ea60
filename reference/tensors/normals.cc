#include "reference/tensors/normals.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/tensors/portable_math.h"
#include "reference/wide.h"

namespace arlab {
namespace {

constexpr std::size_t kBlock =
    512;  // elements; all buffers of a block stay in the first-level cache

/// centred_interval(word), by operations that processors have for vectors: none but the newest
/// convert a 64-bit integer. Its halves become the low bits of 2^84 and of 2^52, exactly.
double centred(std::uint64_t word) {
  constexpr std::uint64_t kHighExponent = 0x4530000000000000;  // for 2^84, whose unit is 2^32
  constexpr std::uint64_t kLowExponent = 0x4330000000000000;   // for 2^52, whose unit is 1
  const std::uint64_t above = (word >> 11) ^ (std::uint64_t{1} << 52);  // by 2^52 too large
  const double high = std::bit_cast<double>((above >> 32) | kHighExponent);
  const double low = std::bit_cast<double>((above & 0xffffffff) | kLowExponent);
  return ((high - (0x1p84 + 0x1p53)) + low + 0.5) * 0x1p-53;
}

/// portable_log(x) of x <= 1, with the exponent found likewise.
double log_below_one(double x) {
  constexpr std::uint64_t kBias = 2048;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t from_root =
      bits - std::bit_cast<std::uint64_t>(0x1.6a09e667f3bcdp-1) + (kBias << 52);
  const std::uint64_t k = from_root >> 52;  // 0 <= k <= kBias
  const double m = std::bit_cast<double>(bits - (k << 52) + (kBias << 52));
  const double exponent =
      std::bit_cast<double>(k | 0x4330000000000000) - (0x1p52 + static_cast<double>(kBias));
  return portable_log_of(m, exponent);
}

// By itself, since GCC does not vectorize reads of an array that it knows as another type's bits.
ARLAB_WIDE void find_roots(const double* p, std::size_t count, double* root) {
  for (std::size_t i = 0; i < count; ++i) root[i] = std::sqrt(-log_below_one(p[i]));
}

ARLAB_WIDE void fill_block(std::uint64_t start, std::uint64_t step, std::size_t count,
                           double* out) {
  double q[kBlock];
  double tail[kBlock] = {};
  std::uint32_t where[kBlock];
  for (std::size_t i = 0; i < count; ++i) q[i] = centred(mix_bits(start + i * step));
  for (std::size_t i = 0; i < count; ++i) out[i] = normal_quantile_centre(q[i]);
  std::size_t tails = 0;
  for (std::size_t i = 0; i < count; ++i) {
    where[tails] = static_cast<std::uint32_t>(i);
    tail[tails] = 0.5 - std::abs(q[i]);
    tails += std::abs(q[i]) > kNormalCentre ? 1 : 0;
  }
  double root[kBlock];
  find_roots(tail, tails, root);
  for (std::size_t i = 0; i < tails; ++i) tail[i] = normal_quantile_near_tail(root[i]);
  for (std::size_t i = 0; i < tails; ++i) {
    if (root[i] > kNormalNearTail) tail[i] = normal_quantile_far_tail(root[i]);
    out[where[i]] = std::copysign(tail[i], q[where[i]]);
  }
}

}  // namespace

void standard_normals(const RandomStream& random, std::uint64_t first, std::span<double> out) {
  while (!out.empty()) {
    const std::size_t count = std::min(kBlock, out.size());
    fill_block(random.before_mixing(first), RandomStream::kStep, count, out.data());
    first += count;
    out = out.subspan(count);
  }
}

}  // namespace arlab
