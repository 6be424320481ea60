// What holds for every codec that is listed, now and later, in every dtype that it takes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "reference/tensors/counter_random.h"
#include "tests/codecs/round_trip.h"

namespace arlab::testing {
namespace {

class EveryCodec : public ::testing::TestWithParam<CodecAndDType> {
 protected:
  const Codec& codec() const { return *GetParam().codec; }
  DType dtype() const { return GetParam().dtype; }
  std::size_t size() const { return size_of(dtype()); }

  Bytes payload(std::size_t elements, std::string_view spec = "adversarial") const {
    return make_synthetic(spec, dtype(), 1, elements).data;
  }
  Bytes encoded(std::span<const std::byte> payload) const {
    return encode(codec(), dtype(), payload);
  }
  std::vector<float> decoded(const Bytes& wire, std::size_t elements) const {
    return to_floats({dtype(), {elements}, decode_bytes(codec(), dtype(), wire, elements)});
  }
};

class EveryCodecThatIsCut : public EveryCodec {};
class EveryCodecOfBf16 : public EveryCodec {};

constexpr std::size_t kLengths[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 1000, 4095, 4096, 4097};

TEST_P(EveryCodec, WireSizesNeverShrinkAndAreInverted) {
  std::size_t last = 0;
  for (std::size_t elements = 1; elements <= 5000; ++elements) {
    const std::size_t bytes = codec().wire_bytes(dtype(), elements);
    EXPECT_GE(bytes, last);
    last = bytes;
    const std::size_t largest = codec().elements_of_wire(dtype(), bytes);
    EXPECT_GE(largest, elements);
    EXPECT_EQ(codec().wire_bytes(dtype(), largest), bytes);
    EXPECT_GT(codec().wire_bytes(dtype(), largest + 1), bytes);
  }
}

TEST_P(EveryCodec, EveryByteOfTheWireIsWrittenTheSameEachTime) {
  for (const std::size_t elements : kLengths) {
    const Bytes x = payload(elements);
    const std::size_t bytes = codec().wire_bytes(dtype(), elements);
    Bytes first(bytes, std::byte{0x00});
    Bytes second(bytes, std::byte{0xFF});
    codec().encode(dtype(), x, first);
    codec().encode(dtype(), x, second);
    EXPECT_EQ(first, second) << elements;
  }
}

TEST_P(EveryCodec, EveryDecodedElementIsWrittenTheSameEachTime) {
  for (const std::size_t elements : kLengths) {
    const Bytes wire = encoded(payload(elements));
    Bytes first(elements * size(), std::byte{0x00});
    Bytes second(elements * size(), std::byte{0xFF});
    codec().decode(dtype(), wire, first);
    codec().decode(dtype(), wire, second);
    EXPECT_EQ(first, second) << elements;
  }
}

TEST_P(EveryCodec, NothingOutsideOfTheSpansIsTouched) {
  for (const std::size_t elements : kLengths) {
    const Bytes x = payload(elements);
    const std::size_t bytes = codec().wire_bytes(dtype(), elements);
    Bytes wire(bytes + 128, std::byte{0x77});
    codec().encode(dtype(), x, std::span(wire).subspan(64, bytes));
    Bytes back(x.size() + 128, std::byte{0x77});
    codec().decode(dtype(), std::span(wire).subspan(64, bytes),
                   std::span(back).subspan(64, x.size()));
    const auto untouched = [](std::byte byte) { return byte == std::byte{0x77}; };
    for (const Bytes* memory : {&wire, &back}) {
      EXPECT_TRUE(std::all_of(memory->begin(), memory->begin() + 64, untouched)) << elements;
      EXPECT_TRUE(std::all_of(memory->end() - 64, memory->end(), untouched)) << elements;
    }
  }
}

TEST_P(EveryCodec, TheWireMayLieAtAnyAddress) {
  const std::size_t elements = 4097;
  const Bytes x = payload(elements);
  const Bytes expected = encoded(x);
  Bytes memory(expected.size() + 8);
  for (std::size_t offset = 1; offset < 8; ++offset) {
    const auto wire = std::span(memory).subspan(offset, expected.size());
    codec().encode(dtype(), x, wire);
    EXPECT_TRUE(std::ranges::equal(wire, expected)) << offset;
    Bytes back(x.size());
    codec().decode(dtype(), wire, back);
    EXPECT_EQ(back, decode_bytes(codec(), dtype(), expected, elements)) << offset;
  }
}

TEST_P(EveryCodecThatIsCut, AtItsAlignmentChangesNoDecodedBit) {
  const CodecInfo& info = codec().info();
  const std::size_t elements = 4 * info.alignment + info.alignment / 2 + 1;
  const Bytes x = payload(elements);
  const Bytes whole = decode_bytes(codec(), dtype(), encoded(x), elements);
  for (std::size_t units = 1; units <= 4; ++units) {
    const std::size_t cut = units * info.alignment;
    const auto head = std::span(x).first(cut * size());
    const auto tail = std::span(x).subspan(cut * size());
    Bytes parts = decode_bytes(codec(), dtype(), encoded(head), cut);
    const Bytes rest = decode_bytes(codec(), dtype(), encoded(tail), elements - cut);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole) << "cut at " << cut;
  }
}

TEST_P(EveryCodec, ANaNStaysANaNAndAnInfinityIsNeverFinite) {
  const std::size_t elements = 5000;
  const Bytes x = payload(elements, "adversarial:non_finite=0.3");
  const std::vector<float> before = to_floats({dtype(), {elements}, x});
  const std::vector<float> after = decoded(encoded(x), elements);
  std::size_t seen = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    if (std::isfinite(before[i])) continue;
    ++seen;
    EXPECT_FALSE(std::isfinite(after[i])) << "element " << i;
    if (std::isnan(before[i])) {
      EXPECT_TRUE(std::isnan(after[i])) << "element " << i;
    }
  }
  EXPECT_GT(seen, 100u);
}

TEST_P(EveryCodecOfBf16, LargeValuesStayFinite) {
  const std::size_t elements = 4096;
  // An asymmetric scale is a difference and a Hadamard coefficient is a sum: near the end of fp32's
  // range they may not exist. Then the block is NaN, an error that is seen, and never an infinity
  // or a wrong number.
  const bool takes_differences =
      codec().name().starts_with("int") && !codec().name().ends_with("-sym");
  const bool takes_sums = codec().name().starts_with("had-");
  const auto range_may_overflow = [&](std::string_view spec) {
    return (takes_differences && spec == "uniform:low=-3.3e38,high=3.3e38") ||
           (takes_sums && spec.find("e38") != std::string_view::npos);
  };
  for (const char* spec : {"constant:value=65536", "constant:value=-3.3e38", "gaussian:sigma=1e6",
                           "gaussian:sigma=1e30", "uniform:low=-1.6e38,high=1.6e38",
                           "uniform:low=-3.3e38,high=3.3e38"}) {
    for (const float v : decoded(encoded(payload(elements, spec)), elements)) {
      ASSERT_TRUE(std::isfinite(v) || (std::isnan(v) && range_may_overflow(spec))) << spec;
    }
  }
}

/// Whose decoders saturate: formats of our own (SPEC.md, "Saturation"), and QuickReduce in fp16.
bool saturates(const Codec& codec, DType dtype) {
  const std::string& name = codec.name();
  return name.starts_with("int") || name.starts_with("had-") || name.starts_with("logfmt") ||
         (name.starts_with("qr-") && dtype == DType::fp16);
}

class EveryCodecThatSaturates : public EveryCodec {};

TEST_P(EveryCodecThatSaturates, NoFiniteTensorDecodesToAnInfinity) {
  constexpr std::size_t kElements = 3 * 4096 + 37;
  const double largest = dtype() == DType::fp16   ? 65504
                         : dtype() == DType::bf16 ? 0x1.FEp127
                                                  : 0x1.FFFFFEp127;
  const RandomStream random(1, 0);
  std::vector<Bytes> payloads = {payload(kElements, "adversarial:non_finite=0"),
                                 payload(kElements, "adversarial:seed=2,non_finite=0"),
                                 payload(kElements, fmt::format("constant:value={}", largest)),
                                 payload(kElements, fmt::format("constant:value={}", -largest))};
  // Magnitudes from some share of the largest on; of one sign, or of both.
  for (const double least : {0.0, 0.4, 0.9, 0.999}) {
    for (const int signs : {1, -1, 2}) {
      std::vector<float> x(kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        const std::uint64_t word = random.word(i);
        const double magnitude = largest * (least + (1 - least) * unit_interval(word));
        const double sign = signs == 2 ? random_sign(mix_bits(word)) : signs;
        x[i] = static_cast<float>(sign * (word % 31 == 0 ? largest : magnitude));
      }
      // What rounding would make infinite is the largest number.
      for (float& v : x)
        v = std::clamp(v, static_cast<float>(-largest), static_cast<float>(largest));
      payloads.push_back(tensor_from_floats(dtype(), {kElements}, x).data);
    }
  }
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    for (const float v : to_floats({dtype(), {kElements}, payloads[p]}))
      ASSERT_TRUE(std::isfinite(v));
    const std::vector<float> back = decoded(encoded(payloads[p]), kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_FALSE(std::isinf(back[i])) << "element " << i << " of payload " << p;
      // In fp16 nothing overflows on the way, so nothing is a NaN.
      if (dtype() == DType::fp16) {
        ASSERT_FALSE(std::isnan(back[i])) << "element " << i << " of payload " << p;
      }
    }
  }
}

TEST_P(EveryCodec, ManyThreadsGetTheSameBits) {
  const std::size_t elements = 3 * 4096 + 17;
  const Bytes x = payload(elements);
  const Bytes wire = encoded(x);
  const Bytes back = decode_bytes(codec(), dtype(), wire, elements);
  EncodeCounts counts;
  encode(codec(), dtype(), x, &counts);

  std::vector<std::jthread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) {
        EncodeCounts own;
        EXPECT_EQ(encode(codec(), dtype(), x, &own), wire);
        EXPECT_EQ(own.clamped, counts.clamped);
        EXPECT_EQ(decode_bytes(codec(), dtype(), wire, elements), back);
      }
    });
  }
}

std::vector<CodecAndDType> listed(bool (*is_meant)(const Codec&, DType)) {
  std::vector<CodecAndDType> all = with_their_dtypes(listed_codecs());
  std::erase_if(all, [=](const CodecAndDType& one) { return !is_meant(*one.codec, one.dtype); });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Listed, EveryCodec,
                         ::testing::ValuesIn(with_their_dtypes(listed_codecs())), test_name);
INSTANTIATE_TEST_SUITE_P(Listed, EveryCodecThatIsCut,
                         ::testing::ValuesIn(listed([](const Codec& codec, DType) {
                           return codec.info().splits_at_alignment &&
                                  codec.info().alignment != kWholeTensor;
                         })),
                         test_name);
std::vector<CodecAndDType> saturating() {
  std::vector<std::string> names = listed_codecs();
  for (const char* name : {"int2-g8", "int3-g1000", "int7-g64", "int8-g32", "int8-g8192",
                           "int5-g32-sym", "int8-g32-sym", "int4-g64-sym-sr", "int8-g128-sr",
                           "int6-g256-sr-is", "int8-g32-sr-is", "had-int2-g8", "had-int8-g32",
                           "had-int4-g32-sym", "had-int6-g8192", "int8-gtensor-static513:-65504",
                           "int4-gtensor-sym-static1e38", "logfmt8-g128", "logfmt6-g40"}) {
    names.emplace_back(name);
  }
  std::vector<CodecAndDType> all = with_their_dtypes(names);
  std::erase_if(all, [](const CodecAndDType& one) { return !saturates(*one.codec, one.dtype); });
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodecThatSaturates, ::testing::ValuesIn(saturating()),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Listed, EveryCodecOfBf16,
                         ::testing::ValuesIn(listed([](const Codec&, DType dtype) {
                           return dtype == DType::bf16;
                         })),
                         test_name);

class PlainCodec : public ::testing::TestWithParam<CodecAndDType> {};

TEST_P(PlainCodec, PassesEveryPatternOn) {
  const auto& [codec, dtype] = GetParam();
  const Bytes x = make_synthetic("patterns", dtype, 1, 65536).data;
  EXPECT_EQ(encode(*codec, dtype, x), x);
  EXPECT_EQ(decode_bytes(*codec, dtype, x, 65536), x);
}

INSTANTIATE_TEST_SUITE_P(All, PlainCodec,
                         ::testing::ValuesIn(with_their_dtypes({"fp32", "fp16", "bf16"})),
                         test_name);

}  // namespace
}  // namespace arlab::testing
