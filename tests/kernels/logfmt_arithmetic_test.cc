// The logarithmic kernels take the processor's logarithms where those are sure to give the specification's bits: whole tiles beside
// the specification's own arithmetic, on groups of eight elements, which need no other lane.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/codecs/logfmt.h"
#include "reference/tensors/synthetic.h"

namespace arlab::kernels {
namespace {

template <class Element>
Pack8<Element> random_pack(std::mt19937_64& random) {
  const auto kind = static_cast<int>(random() % 5);
  const int exponent = static_cast<int>(random() % 28) - 14;
  std::normal_distribution<float> normal;
  Pack8<Element> x;
  for (std::size_t i = 0; i < kPerThread; ++i) {
    auto bits = static_cast<std::uint32_t>(random() & 0xFFFF);  // infinities and NaNs, too
    if (kind == 1) bits = Element::from_float(normal(random));
    if (kind == 2) bits = Element::from_float(std::ldexp(normal(random), exponent));
    if (kind == 3) bits = Element::from_float(std::ldexp(1.0f, exponent + static_cast<int>(i % 3)));
    if (kind == 4)
      bits = Element::from_float(std::ldexp(1 + 0x1p-6f * static_cast<float>(i % 4), exponent));
    if (random() % 16 == 0) bits &= 0x8000;  // zeros of both signs
    x.word[i / 2] |= bits << (i % 2 * 16);
  }
  return x;
}

template <class Element>
class LogFmtArithmetic : public testing::Test {};
using Elements = testing::Types<Fp16, Bf16>;
TYPED_TEST_SUITE(LogFmtArithmetic, Elements);

/// The largest values, small steps and small numbers are where the two could part.
template <class Element>
void expect_same(const LogFmt<Element>& codec, const Pack8<Element>& x) {
  const Position whole{kTile, 0};
  const auto fast = codec.encode(x, whole);
  const auto slow = codec.encode(x, {kPerThread, 0});  // the end of a message
  ASSERT_EQ(fast.range.lo, slow.range.lo);
  ASSERT_EQ(fast.range.step, slow.range.step);
  ASSERT_EQ(fast.codes.even, slow.codes.even);
  ASSERT_EQ(fast.codes.odd, slow.codes.odd);
  const Pack8<Element> decoded = codec.decode(fast, whole);
  const LogValues values(fast.range);
  for (std::size_t i = 0; i < kPerThread; ++i) {
    const float value = fast.range.is_finite()
                            ? codec.dequantize(fast.codes[i], values, largest_finite<Element>())
                            : float_of(kNanBits);
    ASSERT_EQ(element_bits(decoded, i), Element::from_float(value));
  }
}

TYPED_TEST(LogFmtArithmetic, IsTheSpecifications) {
  for (unsigned bits = 2; bits <= 8; ++bits) {
    SCOPED_TRACE(bits);
    LogFmtParameters parameters;
    parameters.bits = bits;
    parameters.group = {3};
    const LogFmt<TypeParam> codec(parameters);
    std::mt19937_64 random(bits);
    for (int i = 0; i < 50'000; ++i) {
      expect_same(codec, random_pack<TypeParam>(random));
      if (this->HasFatalFailure()) return;
    }
    const Tensor tensor = make_synthetic("adversarial:seed=7", TypeParam::kDType, 1, 1 << 17);
    for (std::size_t at = 0; at < tensor.bytes().size(); at += 16) {
      Pack8<TypeParam> x;
      std::memcpy(x.word, tensor.bytes().data() + at, 16);
      expect_same(codec, x);
      if (this->HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace arlab::kernels
