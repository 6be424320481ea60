// Properties of every listed codec, now and later, in every dtype that it takes.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "reference/codecs/native_sum.h"
#include "reference/codecs/properties.h"
#include "tests/codecs/mistaken_codec.h"
#include "tests/codecs/round_trip.h"

namespace arlab::testing {
namespace {

class EveryCodec : public ::testing::TestWithParam<CodecAndDType> {
 protected:
  const Codec& codec() const { return *GetParam().codec; }
  DType dtype() const { return GetParam().dtype; }
};

TEST_P(EveryCodec, HasEveryProperty) {
  for (const CodecProperty& property : codec_properties()) {
    const PropertyResult result = check_property(property.name, codec(), dtype());
    EXPECT_NE(result.verdict, Verdict::violated) << property.name << ": " << result.detail;
    EXPECT_EQ(result.cases == 0, result.verdict == Verdict::not_promised) << property.name;
    EXPECT_EQ(result.detail.empty(), result.verdict == Verdict::holds) << property.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Listed, EveryCodec,
                         ::testing::ValuesIn(with_their_dtypes(listed_codecs())), test_name);
INSTANTIATE_TEST_SUITE_P(Others, EveryCodec,
                         ::testing::ValuesIn(with_their_dtypes(
                             {"int3-g24", "int7-g96-sym", "int2-g40-sr", "int3-g1000-sym-sr",
                              "int4-g200-sr-is", "int5-gtensor-sym", "int8-gtensor-static0.02:-2.5",
                              "int4-gtensor-sym-static0.3", "int4-g4104", "had-int6-g2048-sym",
                              "logfmt4-g56", "mxfp4-ceil", "mxfp8-e4m3-even", "nvfp4-vllm",
                              "nvfp4-te", "nvfp4-te-4over6", "nvfp4-ts448", "nvfp4-vllm-ts0.75"})),
                         test_name);

/// Codecs promise the right properties: unpromised ones are not checked.
TEST(Promises, AreThoseOfTheDefinitions) {
  for (const auto& [codec, dtype] : with_their_dtypes(listed_codecs())) {
    const std::string& name = codec->name();
    const bool finds_something_of_all =
        name.starts_with("nvfp4") || name.find("tensor") != name.npos;
    EXPECT_EQ(check_property("splits", *codec, dtype).verdict == Verdict::not_promised,
              finds_something_of_all)
        << name;
    const bool saturates = name.starts_with("int") || name.starts_with("had-") ||
                           name.starts_with("logfmt") || name == name_of(dtype) ||
                           (name.starts_with("qr-") && dtype == DType::fp16);
    EXPECT_EQ(check_property("saturation", *codec, dtype).verdict == Verdict::holds, saturates)
        << name;
  }
}

class EveryCodecThatSaturates : public EveryCodec {};

TEST_P(EveryCodecThatSaturates, NoFiniteTensorDecodesToAnInfinity) {
  const PropertyResult result = check_property("saturation", codec(), dtype());
  EXPECT_EQ(result.verdict, Verdict::holds) << result.detail;
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodecThatSaturates,
                         ::testing::ValuesIn(with_their_dtypes(
                             {"int2-g8", "int3-g1000", "int7-g64", "int8-g32", "int8-g8192",
                              "int5-g32-sym", "int8-g32-sym", "int4-g64-sym-sr", "int8-g128-sr",
                              "int6-g256-sr-is", "int8-g32-sr-is", "had-int2-g8", "had-int8-g32",
                              "had-int4-g32-sym", "had-int6-g8192", "int8-gtensor-static513:-65504",
                              "int4-gtensor-sym-static1e38", "logfmt8-g128", "logfmt6-g40"})),
                         test_name);

/// Returns the values of a tensor after a trip over the wire.
std::vector<float> round_trip_floats(const Codec& codec, const Tensor& x) {
  const std::size_t elements = x.element_count();
  return to_floats({x.dtype,
                    {elements},
                    decode_bytes(codec, x.dtype, encode(codec, x.dtype, x.data), elements)});
}

class EveryCodecOfBf16 : public EveryCodec {};

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
    for (const float v : round_trip_floats(codec(), make_synthetic(spec, dtype(), 1, elements))) {
      ASSERT_TRUE(std::isfinite(v) || (std::isnan(v) && range_may_overflow(spec))) << spec;
    }
  }
}

std::vector<CodecAndDType> of_bf16() {
  std::vector<CodecAndDType> all = with_their_dtypes(listed_codecs());
  std::erase_if(all, [](const CodecAndDType& one) { return one.dtype != DType::bf16; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Listed, EveryCodecOfBf16, ::testing::ValuesIn(of_bf16()), test_name);

// ---- mistakes, each of which a property has to report

struct Mistake {
  const char* property;
  const char* text;
  MistakenCodec::Mistakes mistakes;
  const char* codec;
};

void PrintTo(const Mistake& m, std::ostream* out) { *out << m.text; }

/// After decoding, each element's value changed.
MistakenCodec::Decode decoding_to(float (*change)(float)) {
  return [change](const Codec& right, DType dtype, std::span<const std::byte> wire,
                  std::span<std::byte> x) {
    right.decode(dtype, wire, x);
    for (std::size_t i = 0; i < x.size() / size_of(dtype); ++i) {
      store_value(dtype, change(load_value(dtype, x, i)), x, i);
    }
  };
}

using Wire = std::span<std::byte>;
using Payload = std::span<const std::byte>;

/// After encoding, the wire changed.
MistakenCodec::Mistakes of_wire(std::function<void(Payload x, Wire wire)> change) {
  return {.encode = [change](const Codec& right, DType dtype, Payload x, Wire wire,
                             EncodeCounts& counts) {
    right.encode(dtype, x, wire, &counts);
    change(x, wire);
  }};
}

/// Before encoding, a copy of the payload changed.
MistakenCodec::Mistakes of_payload(std::function<void(DType, Payload x, Bytes& changed)> change) {
  return {.encode = [change](const Codec& right, DType dtype, Payload x, Wire wire,
                             EncodeCounts& counts) {
    Bytes changed(x.begin(), x.end());
    change(dtype, x, changed);
    right.encode(dtype, changed, wire, &counts);
  }};
}

/// After decoding, the elements changed.
MistakenCodec::Mistakes of_elements(std::function<void(Payload wire, Wire x)> change) {
  return {.decode = [change](const Codec& right, DType dtype, Payload wire, Wire x) {
    right.decode(dtype, wire, x);
    change(wire, x);
  }};
}

/// Writes only some of the decoded values.
MistakenCodec::Mistakes of_decoded(std::function<void(DType, const Bytes& all, Wire x)> write) {
  return {.decode = [write](const Codec& right, DType dtype, Payload wire, Wire x) {
    Bytes all(x.size());
    right.decode(dtype, wire, all);
    write(dtype, all, x);
  }};
}

/// Gives the wire of so many elements the size of others'.
MistakenCodec::Mistakes of_size(std::size_t of, std::size_t others) {
  return {.wire_bytes = [of, others](const Codec& right, DType dtype, std::size_t elements) {
    return right.wire_bytes(dtype, elements == of ? others : elements);
  }};
}

bool is_at(const void* address, std::uintptr_t multiple) {
  return reinterpret_cast<std::uintptr_t>(address) % multiple == 0;
}

std::vector<Mistake> mistakes() {
  std::vector<Mistake> list;
  const auto add = [&list](const char* property, const char* text, MistakenCodec::Mistakes made,
                           const char* codec = "int4-g32") {
    list.push_back({property, text, std::move(made), codec});
  };
  add("sizes", "a wire of 33 elements is shorter than that of 32", of_size(33, 16));
  add("sizes", "a wire of nothing", of_size(1, 0));
  add("writes-all", "the last byte of the wire is not written",
      {.encode = [](const Codec& right, DType dtype, Payload x, Wire wire, EncodeCounts& counts) {
        const std::byte before = wire.back();
        right.encode(dtype, x, wire, &counts);
        wire.back() = before;
      }});
  add("writes-all", "the last element is not decoded",
      of_decoded([](DType dtype, const Bytes& all, Wire x) {
        std::copy_n(all.begin(), all.size() - size_of(dtype), x.begin());
      }));
  const auto calls = std::make_shared<std::atomic<int>>(0);
  add("writes-all", "every second call flips a bit", of_wire([calls](Payload, Wire wire) {
        if (++*calls % 2 == 0) wire[0] ^= std::byte{1};
      }));
  add("context", "every second call draws other numbers",
      {.behind_encode_in =
           [calls](const EncodeContext&, Wire wire) {
             if (++*calls % 2 == 0) wire[0] ^= std::byte{1};
           }},
      "int4-g32-stoch");
  add("context", "a state depends on how often it was called",
      {.behind_encode_in = [calls](const EncodeContext& context,
                                   Wire) { context.state[0] = static_cast<float>(++*calls); }},
      "ef-int4-g32");
  add("context", "a state that is no number",
      {.behind_encode_in =
           [](const EncodeContext& context, Wire) {
             context.state.back() = std::numeric_limits<float>::quiet_NaN();
           }},
      "ef-int4-g32");
  add("bounds", "a byte behind the wire",
      of_wire([](Payload, Wire wire) { wire.data()[wire.size()] = std::byte{1}; }));
  add("bounds", "a byte in front of the payload",
      of_elements([](Payload, Wire x) { x.data()[-1] = std::byte{1}; }));
  add("bounds", "a byte behind the sum",
      {.decode_add = [](const Codec& right, DType dtype, Payload wire, Wire sum) {
        right.decode_add(dtype, wire, sum);
        sum.data()[sum.size()] = std::byte{1};
      }});
  add("addresses", "an address that is not even loses its last bit",
      of_wire([](Payload, Wire wire) {
        if (!is_at(wire.data(), 2)) wire[0] ^= std::byte{1};
      }));
  add("addresses", "a decoder that wants words", of_elements([](Payload wire, Wire x) {
        if (!is_at(wire.data(), 4)) x[0] ^= std::byte{1};
      }));
  add("tails", "the last of an odd number is forgotten",
      of_payload([](DType dtype, Payload, Bytes& changed) {
        const std::size_t elements = changed.size() / size_of(dtype);
        if (elements % 2 == 1) store_value(dtype, 0, changed, elements - 1);
      }));
  add("tails", "a short block takes its scale from what lies behind",
      of_payload([](DType dtype, Payload x, Bytes& changed) {
        if (x.size() / size_of(dtype) % 32 != 7) return;
        std::memcpy(changed.data(), x.data() + x.size(), size_of(dtype));
      }));
  add("values", "everything decodes to zero",
      {.decode = decoding_to([](float v) { return std::isnan(v) ? v : 0.0f; })});
  add("splits", "whatever is behind 40 elements takes the last scale",
      of_wire([](Payload x, Wire wire) {
        if (x.size() > 80) wire[wire.size() - 1] = wire[wire.size() - 3];
      }));
  add("non-finite", "NaN is laundered",
      {.decode = decoding_to([](float v) { return std::isnan(v) ? 0.0f : v; })});
  add("non-finite", "a NaN at the end of a short block is laundered",
      of_payload([](DType dtype, Payload, Bytes& changed) {
        const std::size_t last = changed.size() / size_of(dtype) - 1;
        if (last % 32 == 6 && std::isnan(load_value(dtype, changed, last)))
          store_value(dtype, 0, changed, last);
      }));
  add("non-finite", "a lone infinity is taken for the largest number",
      of_payload([](DType dtype, Payload x, Bytes& changed) {
        for (std::size_t i = 0; i < x.size() / size_of(dtype); ++i) {
          const float v = load_value(dtype, x, i);
          if (std::isinf(v)) store_value(dtype, limited(v, largest_finite(dtype)), changed, i);
        }
      }),
      "fp16");
  add("saturation", "the largest number becomes an infinity",
      {.decode = decoding_to(
           [](float v) { return v >= 65504.0f ? std::numeric_limits<float>::infinity() : v; })});
  add("foreign-wires", "a scale that is not finite is not written",
      of_decoded([](DType dtype, const Bytes& all, Wire x) {
        for (std::size_t i = 0; i < x.size() / size_of(dtype); ++i) {
          if (std::isnan(load_value(dtype, all, i))) continue;
          std::memcpy(&x[i * size_of(dtype)], &all[i * size_of(dtype)], size_of(dtype));
        }
      }));
  add("foreign-wires", "a wire of 0xFF is taken for a length",
      of_elements([](Payload wire, Wire x) {
        if (wire[0] != std::byte{0xFF} || wire.back() != std::byte{0xFF}) return;
        x.data()[x.size() + 3] = std::byte{1};
      }));
  // Where a right wire is damaged, a little behind its beginning.
  add("foreign-wires", "what is damaged decodes to other numbers each time",
      {.decode =
           [calls](const Codec& right, DType dtype, Payload wire, Wire x) {
             try {
               right.decode(dtype, wire, x);
             } catch (const InvalidInput&) {
               store_value(dtype, static_cast<float>(++*calls % 100), x, 0);
             }
           }},
      "rans-int4-g32");
  add("foreign-wires", "a wire that is cut takes what lies behind it",
      {.decode =
           [](const Codec& right, DType dtype, Payload wire, Wire x) {
             right.decode(dtype, wire, x);
             std::uint64_t used = 0;
             std::memcpy(&used, wire.data(), sizeof(used));
             if (used < wire.size()) x[0] ^= wire[used];
           }},
      "rans-int4-g32");
  add("foreign-wires", "a length is believed",
      {.decode =
           [](const Codec& right, DType dtype, Payload wire, Wire x) {
             std::uint64_t used = 0;
             std::memcpy(&used, wire.data(), sizeof(used));
             if (used == wire.size() + 8) {
               store_value(dtype, static_cast<float>(wire.data()[used - 1]), x, 0);
             } else {
               right.decode(dtype, wire, x);
             }
           }},
      "rans-int4-g32");
  add("decode-add", "sums are clamped",
      {.decode_add = [](const Codec& right, DType dtype, Payload wire, Wire sum) {
        Bytes values(sum.size());
        right.decode(dtype, wire, values);
        add_native(dtype, true, sum, values);
      }});
  const std::thread::id here = std::this_thread::get_id();
  add("threads", "other threads than the first get other bits", of_wire([here](Payload, Wire wire) {
        if (std::this_thread::get_id() != here) wire[0] ^= std::byte{1};
      }));
  add("counts", "the count is set, not added to",
      {.encode = [](const Codec& right, DType dtype, Payload x, Wire wire, EncodeCounts& counts) {
        counts = {};
        right.encode(dtype, x, wire, &counts);
      }});
  add("counts", "with no count another wire",
      {.encode_uncounted = [](const Codec& right, DType dtype, Payload x, Wire wire) {
        right.encode(dtype, x, wire);
        wire[0] ^= std::byte{1};
      }});
  add("cost", "no operations to decode",
      {.info = [](CodecInfo& info) { info.cost.decode_ops_per_element = 0; }});
  add("cost", "more than all of a packet",
      {.info = [](CodecInfo& info) { info.cost.store_efficiency = 1.25; }});
  return list;
}

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreReported) {
  const Mistake& m = GetParam();
  const MistakenCodec mutant(find_codec(m.codec), m.mistakes);
  const PropertyResult result = check_property(m.property, mutant, DType::fp16);
  EXPECT_EQ(result.verdict, Verdict::violated) << m.property;
  EXPECT_FALSE(result.detail.empty());
  // Without the mistake it holds.
  const MistakenCodec right(find_codec(m.codec), {});
  EXPECT_EQ(check_property(m.property, right, DType::fp16).verdict, Verdict::holds);
}

std::string name_of_mistake(const ::testing::TestParamInfo<Mistake>& info) {
  std::string name = info.param.text;
  std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Mistakes, ::testing::ValuesIn(mistakes()), name_of_mistake);

TEST(Mistakes, AreThereForEveryProperty) {
  for (const CodecProperty& property : codec_properties()) {
    EXPECT_TRUE(std::ranges::any_of(mistakes(), [&](const Mistake& m) {
      return m.property == property.name;
    })) << property.name;
  }
}

TEST(Properties, ThereAreNoOthers) {
  EXPECT_THROW(check_property("tail", *find_codec("fp16"), DType::fp16), InvalidInput);
}

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
