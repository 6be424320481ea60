// Codecs of a header that the system's compiler has made a library of: the same bits as the same struct in a program, in the
// reference and on emulated GPUs.

#include <gtest/gtest.h>

#include <algorithm>

#include "experiments/lab/codecs/codec_header.h"
#include "experiments/lab/codecs/struct_in_header.h"
#include "kernels/conformance/conform.h"
#include "mini_codec.h"
#include "reference/codecs/formats/absmax8_g32.h"
#include "reference/codecs/properties.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/scaled_codec.h"
#include "reference/definitions.h"
#include "reference/tensors/synthetic.h"
#include "tests/refusal.h"
#include "wide_codec.h"

namespace arlab {
namespace {

constexpr DType kDTypes[] = {DType::fp16, DType::bf16, DType::fp32};
constexpr std::size_t kLengths[] = {1, 7, 31, 32, 64, 2047, 2048, 2049, 4095, 4096, 4097, 8209};
constexpr const char* kDistributions[] = {"gaussian", "gaussian:sigma=60000", "student-t:nu=2",
                                          "adversarial", "patterns"};

/// All headers, compiled.
const lab::CompiledHeader& absmax() {
  static const lab::CompiledHeader& compiled =
      *new auto(lab::compiled_header(ARLAB_ABSMAX8_HEADER));
  return compiled;
}
const lab::CompiledHeader& mini() {
  static const lab::CompiledHeader& compiled = *new auto(lab::compiled_header(ARLAB_MINI_HEADER));
  return compiled;
}

const lab::CompiledHeader& wide() {
  static const lab::CompiledHeader& compiled = *new auto(lab::compiled_header(ARLAB_WIDE_HEADER));
  return compiled;
}

class HeaderCodecs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::register_compiled_header(absmax());
    lab::register_compiled_header(mini());
    lab::register_compiled_header(wide());
  }
};

template <class Format>
CodecPtr in_program(const std::string& name) {
  return std::make_shared<ScaledCodec<Format>>(name, *Format::parse(name));
}
std::vector<CodecPtr> codecs_in_program() {
  return {in_program<Absmax8G32>("absmax8-g32"), in_program<tests::MiniCodec>("mini-g16"),
          in_program<tests::MiniCodec>("mini-g16-stoch"),
          in_program<tests::WideCodec>("wide5-g256-away")};
}

using Bytes = std::vector<std::byte>;

struct Coded {
  Bytes wire;
  Bytes values;
  Bytes sum;  ///< by decode_fma, where there is one
  std::uint64_t clamped = 0;
  bool operator==(const Coded&) const = default;
};

Coded coded(const Codec& codec, const Tensor& payload) {
  const std::size_t elements = payload.element_count();
  Coded coded;
  coded.wire.resize(codec.wire_bytes(payload.dtype, elements));
  EncodeCounts counts;
  codec.encode(payload.dtype, payload.bytes(), coded.wire, &counts,
               {.seed = 9, .call = 2, .rank = 3, .world_size = 4, .step = 1, .position = 640});
  coded.clamped = counts.clamped;
  coded.values.resize(payload.bytes().size());
  codec.decode(payload.dtype, coded.wire, coded.values);
  if (codec.name().starts_with("mini")) {
    std::vector<float> sum(elements, 0.1F);
    codec.decode_fma(payload.dtype, coded.wire, sum);
    const auto bytes = std::as_bytes(std::span(sum));
    coded.sum.assign(bytes.begin(), bytes.end());
  }
  return coded;
}

TEST_F(HeaderCodecs, HaveTheBitsOfTheSameStructInAProgram) {
  std::uint64_t compared = 0;
  for (const CodecPtr& expected : codecs_in_program()) {
    const CodecPtr codec = find_codec(expected->name());
    for (const DType dtype : kDTypes) {
      for (const char* input : kDistributions) {
        for (const std::size_t elements : kLengths) {
          const Tensor payload = make_synthetic(input, dtype, 1, elements);
          EXPECT_EQ(coded(*codec, payload), coded(*expected, payload))
              << codec->name() << ' ' << name_of(dtype) << ' ' << input << ' ' << elements;
          compared += elements;
        }
      }
    }
  }
  EXPECT_GT(compared, 1'000'000U);
}

TEST_F(HeaderCodecs, SayOfThemselvesWhatTheStructSays) {
  for (const CodecPtr& expected : codecs_in_program()) {
    const CodecInfo& e = expected->info();
    const CodecInfo info = find_codec(e.name)->info();
    EXPECT_EQ(info.summary, e.summary);
    EXPECT_EQ(info.source, e.source);
    EXPECT_EQ(info.dtypes, e.dtypes);
    EXPECT_EQ(info.block, e.block);
    EXPECT_EQ(info.alignment, e.alignment);
    EXPECT_EQ(info.uses_context, e.uses_context);
    EXPECT_EQ(info.clamps_fp16_sums, e.clamps_fp16_sums);
    EXPECT_EQ(info.is_dtype_independent, e.is_dtype_independent);
    EXPECT_EQ(info.fp32_values, e.fp32_values);
    EXPECT_EQ(info.saturating, e.saturating);
    EXPECT_EQ(info.cost.encode_ops_per_element, e.cost.encode_ops_per_element);
    EXPECT_EQ(info.cost.decode_ops_per_element, e.cost.decode_ops_per_element);
    EXPECT_EQ(info.cost.store_efficiency, e.cost.store_efficiency);
    EXPECT_EQ(info.cost.packed, e.cost.packed);
  }
}

TEST_F(HeaderCodecs, HaveEveryProperty) {
  for (const char* name : {"absmax8-g32", "mini-g16", "mini-g16-stoch", "wide8-g256"}) {
    for (const CodecProperty& property : codec_properties()) {
      for (const DType dtype : kDTypes) {
        const PropertyResult result = check_property(property.name, *find_codec(name), dtype);
        EXPECT_NE(result.verdict, Verdict::violated)
            << name << ' ' << property.name << ": " << result.detail;
      }
    }
  }
}

TEST_F(HeaderCodecs, RunOnEmulatedGpus) {
  std::uint64_t compared = 0;
  const kernels::ConformanceRequest request = {
      .codecs = {"absmax8-g32", "mini-g16", "mini-g16-stoch"},
      .algorithms = {"two_shot", "ring", "tree", "all_to_all"},
      .ranks = {3},
      .lengths = {1, 4096 + 17}};
  const kernels::Status status = kernels::run_conformance(
      *kernels::find_platform("host").value(), request, [&](const kernels::ConformanceRow& row) {
        EXPECT_EQ(row.mismatches, 0U) << mismatches_text(row);
        compared += row.compared_elements;
      });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GT(compared, 100'000U);
}

TEST_F(HeaderCodecs, TellTheirHeader) {
  const CodecOfHeader stochastic = codec_header_of("mini-g16-stoch").value();
  EXPECT_EQ(stochastic.header->structure, "arlab::tests::MiniCodec");
  EXPECT_EQ(stochastic.header->file, ARLAB_MINI_HEADER);
  EXPECT_EQ(stochastic.header->files.front().first, "mini_codec.h");
  EXPECT_EQ(stochastic.header->files.at(1).first, "mini_element.h");
  EXPECT_EQ(stochastic.object, std::string(1, '\1'));
  EXPECT_EQ(stochastic.bits, 4U);
  EXPECT_EQ(stochastic.block, 16U);
  EXPECT_EQ(stochastic.scale_bytes, 1U);
  EXPECT_TRUE(stochastic.stochastic);
  EXPECT_FALSE(stochastic.clamps_fp16_sums);
  EXPECT_EQ(codec_header_of("mini-g16")->object, std::string(1, '\0'));
  EXPECT_FALSE(codec_header_of("mini-g16")->stochastic);
  // Bytes between members, or in place of none, are the same each time: they are part of a kernel's text.
  EXPECT_EQ(codec_header_of("wide5-g256-away")->object, std::string("\1\0\0\0\5\0\0\0", 8));
  EXPECT_TRUE(codec_header_of("wide5-g256-away")->clamps_fp16_sums);
  EXPECT_EQ(codec_header_of("absmax8-g32")->object, std::string(1, '\0'));
  EXPECT_FALSE(codec_header_of("qr-q4"));
  EXPECT_FALSE(codec_header_of("nothing"));
}

TEST_F(HeaderCodecs, AreToldFromOthersByTheirHeaders) {
  EXPECT_EQ(fingerprints_of({"ef-mini-g16"}).at("codec mini-g16")(), mini().header.hash);
  EXPECT_NE(mini().header.hash, absmax().header.hash);
}

TEST_F(HeaderCodecs, TakeThePlaceOfTheirFormerSelves) {
  const CodecPtr before = find_codec("mini-g16");
  EXPECT_EQ(lab::register_compiled_header(mini()),
            (std::vector<std::string>{"mini-g16", "mini-g16-stoch"}));
  EXPECT_NE(find_codec("mini-g16"), before);
  const std::vector<std::string> listed = listed_codecs();
  EXPECT_EQ(std::ranges::count(listed, "mini-g16"), 1);
  const std::vector<std::string> built_in = listed_codecs(false);
  EXPECT_EQ(std::ranges::count(built_in, "mini-g16"), 0);
  const Tensor payload = make_synthetic("gaussian", DType::fp16, 1, 4097);
  EXPECT_EQ(coded(*before, payload), coded(*find_codec("mini-g16"), payload));
}

TEST(StructInHeader, IsFoundBesideEverythingElse) {
  constexpr const char* kText = R"(#define STRUCT struct Macro { int kBlock; \
  int quantize; }
/* struct Comment { kBlock } */
struct Plain { int x = 1'000; const char* s = "} struct Text { kBlock"; };  // quantize
template <class T> struct Template { static constexpr int kBlock = 8; };
enum class kBlocks { a };
namespace a::b { namespace {
  inline int quantize(int x) { return x; }
  const char* raw = R"x(struct Raw { kBlock };)x";
  struct Codec
      final : Plain {
    struct Inner { int quantize = '}'; };
  };
}})";
  const lab::FoundStruct found = lab::struct_in_header(kText, "my.h");
  EXPECT_EQ(found.name, "a::b::Codec");
  EXPECT_EQ(found.line, 10U);
}

TEST(StructInHeader, IsOne) {
  expect_contains(message_of([] { lab::struct_in_header("struct A {};", "my.h"); }),
                  "my.h: there is no struct of a codec in it");
  EXPECT_EQ(
      message_of(
          [] { lab::struct_in_header("struct A { kBlock };\nstruct B { quantize };", "my.h"); }),
      "my.h:2: struct B is a second codec beside struct A (line 1): allowed is one in a header");
}

}  // namespace
}  // namespace arlab
