// The kernels on emulated GPUs hold the reference's bits.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/conformance/conform.h"
#include "kernels/platform/host/emulator.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/formats/bfloat16.h"
#include "tests/collectives/variants.h"
#include "tests/kernels/mistaken_platform.h"

namespace arlab::kernels {
namespace {

using Names = std::vector<std::string>;
using Ranks = std::vector<int>;
using Lengths = std::vector<std::size_t>;

template <typename T>
T if_short(T brief, T full) {
  return ARLAB_SHORT_TESTS ? std::move(brief) : std::move(full);
}

const Platform& host() { return *find_platform("host").value(); }

/// Every block works on several tiles, in several rounds.
constexpr CommunicatorOptions kSmallGroup = {.blocks = 2, .slot_bytes = 2 * 8192 + 64};

Names every_algorithm() {
  Names names;
  for (const Algorithm& algorithm : all_algorithms()) names.push_back(algorithm.name);
  return names;
}

/// Runs the request and expects comparisons, all of them equal.
void expect_conformance(const ConformanceRequest& request) {
  std::uint64_t compared = 0;
  const Status status = run_conformance(host(), request, [&](const ConformanceRow& row) {
    compared += row.compared_elements;
    EXPECT_GT(row.compared_elements, 0U);
    EXPECT_EQ(row.mismatches, 0U) << mismatches_text(row);
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GT(compared, 0U);
}

std::string refusal(const ConformanceRequest& request) {
  return run_conformance(host(), request, [](const ConformanceRow&) {}).message();
}

TEST(Conformance, EveryListedCodecHasKernels) {
  for (const std::string& name : listed_codecs()) EXPECT_TRUE(host().has_codec(name)) << name;
}

TEST(Conformance, WireBytesAndDecoding) {
  Names codecs = listed_codecs();
  for (const char* name :
       {"int7-g64", "int8-g8", "int3-g16-sr", "int6-g256-sr-is", "int2-g8-sr-is", "int5-g32-sym",
        "int4-g64-sym-sr", "had-int7-g256", "had-int2-g8-sym", "logfmt8-g128", "logfmt5-g8",
        "shared-int4-g8", "shared-int8-g32", "shared-int11-g64", "shared-int16-g256", "mxfp4-ceil",
        "mxfp8-e4m3-even", "mxfp6-e2m3-ceil", "mxfp8-e5m2-even"}) {
    codecs.push_back(name);
  }
  for (const std::string& name : unusual_codecs()) codecs.push_back(name);
  for (const int wave : if_short<std::vector<int>>({64}, {32, 64})) {
    emulator::configure({.wave_size = wave});
    expect_conformance({.codecs = codecs,
                        .lengths = if_short<Lengths>({1, 4201}, lengths_up_to(12301)),
                        .seed = static_cast<std::uint64_t>(wave)});
  }
}

TEST(Conformance, QuantizedLayers) {
  for (const int wave : {32, 64}) {
    emulator::configure({.wave_size = wave});
    std::uint64_t compared = 0;
    const Status status = run_layer_conformance(host(), 200, 3, [&](const ConformanceRow& row) {
      compared += row.compared_elements;
      EXPECT_EQ(row.mismatches, 0U) << mismatches_text(row);
    });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_GT(compared, 100000U);
  }
  const testing::MistakenPlatform wrong(host());
  const Status status = run_layer_conformance(wrong, 70, 3, [&](const ConformanceRow& row) {
    EXPECT_GE(row.mismatches, 3U) << row.subject;
  });
  ASSERT_TRUE(status.ok()) << status.message();
}

TEST(Conformance, EveryAlgorithmOnEveryWorldSize) {
  emulator::configure({});
  expect_conformance({.codecs = {"fp16", "qr-q4", "int2-g32-sr"},
                      .algorithms = every_algorithm(),
                      .ranks = if_short<Ranks>({3, 4}, {2, 3, 4, 5, 6, 7, 8}),
                      .lengths = if_short<Lengths>({2049}, {1, 2049, 8203}),
                      .group = kSmallGroup});
}

TEST(Conformance, EveryOptionOfEveryAlgorithm) {
  emulator::configure({});
  for (const Rank ranks : if_short<std::vector<Rank>>({4}, {2, 3, 4, 6})) {
    std::vector<testing::Variant> variants = testing::all_variants(ranks, {1, 3});
    const std::vector<testing::Variant> moving = testing::moving_variants(ranks);
    variants.insert(variants.end(), moving.begin(), moving.end());
    for (const testing::Variant& variant : variants) {
      SCOPED_TRACE(label(variant));
      expect_conformance({.codecs = {"qr-q6", "int4-g24"},
                          .algorithms = {variant.algorithm},
                          .options = variant.options,
                          .ranks = {static_cast<int>(ranks)},
                          .lengths = {ranks == 3 ? std::size_t{5003} : std::size_t{2400}},
                          .group = kSmallGroup});
    }
  }
}

/// Codecs that encode at once, that measure, and that clamp fp16 sums, in both roles.
TEST(Conformance, ACodecPerOp) {
  emulator::configure({});
  const Names codecs = {"fp16", "qr-q4", "int8-gtensor", "int3-g24"};
  std::vector<testing::Variant> variants = {
      {"hierarchical", {{"group_size", 2}}},
      {"hierarchical_pipelined", {{"own", "exact"}, {"micro_chunks", 3}}},
      {"all_to_all", {{"combine", "quantized"}}}};
  for (testing::Variant& variant : variants) {
    for (const std::string& inner : codecs) {
      SCOPED_TRACE(label(variant) + " with " + inner);
      variant.options.set("inner_codec", inner);
      expect_conformance({.codecs = codecs,
                          .algorithms = {variant.algorithm},
                          .options = variant.options,
                          .ranks = if_short<Ranks>({4}, {4, 6}),
                          .lengths = if_short<Lengths>({2049}, {1, 12301}),
                          .group = kSmallGroup});
    }
  }
}

/// Chunks of more groups than can be measured at once are worked through in parts, which suit both.
TEST(Conformance, ACodecPerOpInParts) {
  emulator::configure({});
  CommunicatorOptions few = kSmallGroup;
  few.two_pass_groups = 8 * 40;
  expect_conformance({.codecs = {"int3-g24", "int4-g32"},
                      .algorithms = {"hierarchical"},
                      .options = {{"inner_codec", "int5-g40"}},
                      .ranks = {4},
                      .lengths = {9001},
                      .group = few});
}

TEST(Conformance, SaysWhichSchedulesOfTwoCodecsHaveNoKernels) {
  emulator::configure({});
  auto schedule = std::make_shared<Schedule>(
      make_schedule("one_shot", {.world_size = 2, .elements = 64, .alignment = 32}));
  for (Op& op : schedule->ops) {
    if (op.rank == 1 && op.kind != OpKind::reduce) op.codec = CodecRole::inner;
  }
  const auto with_inner = [&](const char* inner) {
    return refusal(
        {.codecs = {"int4-g32"}, .options = {{"inner_codec", inner}}, .schedule = schedule});
  };
  EXPECT_EQ(with_inner("fp16"),
            "schedule one_shot has no kernels with two codecs, int4-g32 and fp16: what is sent in "
            "a step must all be of one, and be read before anything else is encoded");
  EXPECT_EQ(with_inner("int4-g32"), "");
  schedule->ops[0].codec = CodecRole::outer;
  *schedule = make_schedule("one_shot", {.world_size = 2, .elements = 64, .alignment = 32});
  EXPECT_EQ(with_inner("fp16"), "schedule 'one_shot' encodes nothing with an inner codec");
}

TEST(Conformance, AScheduleOfOnesOwn) {
  emulator::configure({});
  for (const char* algorithm : {"two_shot", "tree"}) {
    auto schedule = std::make_shared<Schedule>(
        make_schedule(algorithm, {.world_size = 3, .elements = 9000, .alignment = 2048}));
    for (Op& op : schedule->ops) {
      if (op.kind == OpKind::reduce) op.start = Start::first;  // no longer what algorithms write
    }
    schedule->algorithm = "mine";
    expect_conformance({.codecs = {"qr-q4", "int8-g128", "int8-gtensor"}, .schedule = schedule});
  }
}

TEST(Conformance, EveryCodecInEveryAlgorithm) {
  emulator::configure({.wave_size = 32});
  expect_conformance({.codecs = listed_codecs(),
                      .algorithms = every_algorithm(),
                      .ranks = {3},
                      .lengths = if_short<Lengths>({100}, {9, 6151}),
                      .group = kSmallGroup});
}

// Short: ThreadSanitizer takes three mappings for a thread, and Linux lets a process have 65,530.
TEST(Conformance, UnusualCodecsInEveryAlgorithm) {
  emulator::configure({});
  Names codecs = unusual_codecs();
  codecs.push_back("nvfp4");
  if (ARLAB_SHORT_TESTS) codecs = {"nvfp4", "int5-g3000-sr", "had-int3-g4096"};
  expect_conformance({.codecs = codecs,
                      .algorithms = every_algorithm(),
                      .ranks = {ARLAB_SHORT_TESTS ? 2 : 4},
                      .lengths = if_short<Lengths>({100}, {9, 6151}),
                      .group = kSmallGroup});
}

/// Ranks agree on scales first; other collectives take those of each message. Sums of 8 ranks have no room in 4 bits.
TEST(Conformance, SumsOfCodes) {
  emulator::configure({.wave_size = 32, .seed = 1});
  Names algorithms;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == Collective::all_reduce || !adds(algorithm.collective)) {
      algorithms.push_back(algorithm.name);
    }
  }
  ConformanceRequest request{.codecs = {"shared-int8-g32", "shared-int14-g128"},
                             .algorithms = algorithms,
                             .ranks = if_short<Ranks>({3}, {2, 3, 5, 8}),
                             .lengths = if_short<Lengths>({2100}, {1, 40, 2100, 9001}),
                             .group = kSmallGroup};
  expect_conformance(request);
  request.codecs = {"shared-int4-g8"};
  request.algorithms = {"ring", "one_shot"};
  request.ranks = {7};
  request.lengths = {3001};
  expect_conformance(request);

  request.ranks = {8};
  EXPECT_EQ(refusal(request),
            "codec shared-int4-g8: sums of 8 ranks may be beyond its largest code, 7: allowed are "
            "fewer (--ranks)");
  request.ranks = {2};
  request.algorithms = {"reduce_scatter"};
  EXPECT_EQ(refusal(request),
            "codec shared-int4-g8: kernels add its codes in all-reduces, and with no other codec "
            "in these");
  request.algorithms = {"two_shot"};
  request.group.two_pass_groups = 4;
  EXPECT_EQ(refusal(request), "4 two-pass groups are too few: codec shared-int4-g8 takes 47");
  request.group = kSmallGroup;
  request.codecs = {"shared-int8-g512"};
  EXPECT_EQ(refusal(request), "codec shared-int8-g512 has no kernels");
}

TEST(Conformance, DoesNotDependOnTheScheduleOfLanes) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    emulator::configure(
        {.wave_size = seed == 2 ? 32 : 64, .seed = seed, .resident_blocks = seed == 3 ? 1 : 0});
    expect_conformance({.codecs = {"qr-q6"},
                        .algorithms = {"one_shot", "two_shot", "ring"},
                        .ranks = {2, 3},
                        .lengths = {5000},
                        .seed = seed});
  }
}

/// A tile of each chunk for every block, at most: one_shot_lamport.h and two_shot_lamport.h, or
/// one_shot.h and two_shot.h in one round.
TEST(Conformance, SmallTensorsWithBothProtocols) {
  emulator::configure({.wave_size = 32, .seed = 1});
  for (const Protocol protocol : {Protocol::sentinels, Protocol::flags}) {
    expect_conformance({.codecs = if_short<Names>(
                            {"qr-q4"}, {"fp16", "qr-fp8", "qr-q8", "qr-q6", "qr-q4", "int8-g128",
                                        "int5-g128", "int4-g32", "int2-g32-sr"}),
                        .algorithms = {"one_shot", "two_shot"},
                        .ranks = if_short<Ranks>({3}, {2, 8}),
                        .lengths = {7, 4100},
                        .group = {.blocks = 3, .protocol = protocol}});
  }
}

constexpr std::size_t kTile = 2048;

/// One block, in several rounds.
void expect_short_rounds(const char* algorithm, int ranks, std::size_t tiles) {
  emulator::configure({.seed = 1, .resident_blocks = 1});
  expect_conformance({.codecs = {"qr-q4"},
                      .algorithms = {algorithm},
                      .ranks = {ranks},
                      .lengths = {kTile * tiles + 1000},
                      .group = {.blocks = 1}});
}

/// two_shot_sentinel.h, with 16 slots per block.
TEST(Conformance, LargeTensorsWithSentinels) {
  if (ARLAB_SHORT_TESTS) return expect_short_rounds("two_shot", 3, 100);
  for (const bool random : {true, false}) {
    const std::uint64_t seed = random ? 1 : 0;
    const int blocks = random ? 2 : 1;
    emulator::configure({.wave_size = random ? 32 : 64, .seed = seed, .resident_blocks = 2});
    const Names few = {"qr-q4", "int5-g128"};
    expect_conformance({.codecs = random ? few : Names{"qr-q8", "qr-fp8", "int2-g32-sr"},
                        .algorithms = {"two_shot"},
                        .ranks = random ? Ranks{2, 3, 4} : Ranks{3},
                        // As many for each block; the second in place.
                        .lengths = {kTile * 108 * blocks - 1048, kTile * 120 * blocks},
                        .seed = seed,
                        .group = {.blocks = blocks}});
  }
}

/// Two ranks, which have 32 slots per block for one tile or two: one_shot_sentinel.h.
TEST(Conformance, TwoRanksWithSentinels) {
  if (ARLAB_SHORT_TESTS) return expect_short_rounds("one_shot", 2, 70);
  for (const bool random : {true, false}) {
    const std::uint64_t seed = random ? 1 : 0;
    emulator::configure({.wave_size = random ? 32 : 64, .seed = seed, .resident_blocks = 2});
    expect_conformance({.codecs = random ? Names{"fp16", "int2-g32-sr"} : Names{"qr-q4", "qr-fp8"},
                        .algorithms = {"one_shot"},
                        .ranks = {2},
                        .lengths = {kTile * 131 + 1000, kTile * 150},  // the second in place
                        .seed = seed,
                        .group = {.blocks = 2}});
  }
}

constexpr Sum kFp32Sums = {.add = Accumulate::fp32};

TEST(Fp32Sums, EveryAlgorithmOnEveryWorldSize) {
  emulator::configure({});
  Names that_add = every_algorithm();
  std::erase_if(that_add, [](const auto& name) { return !adds(find_algorithm(name).collective); });
  expect_conformance({.codecs = {"bf16", "qr-q4", "int4-g32"},
                      .algorithms = that_add,
                      .sum = kFp32Sums,
                      .ranks = if_short<Ranks>({4}, {2, 3, 4, 5, 6, 7, 8}),
                      .lengths = if_short<Lengths>({2049}, {1, 8203}),
                      .group = kSmallGroup});
}

/// Codecs in programs of every kind, those whose messages are measured and those that add codes among them.
TEST(Fp32Sums, EveryCodec) {
  emulator::configure({.wave_size = 32, .seed = 2});
  Names codecs = listed_codecs();
  for (const std::string& name : unusual_codecs()) codecs.push_back(name);
  if (ARLAB_SHORT_TESTS) codecs = {"nvfp4", "int5-g3000-sr", "shared-int8-g32"};
  expect_conformance({.codecs = codecs,
                      .algorithms = {"one_shot", "two_shot"},
                      .sum = kFp32Sums,
                      .ranks = {5},
                      .lengths = {ARLAB_SHORT_TESTS ? std::size_t{100} : std::size_t{6151}},
                      .group = kSmallGroup});
}

TEST(Fp32Sums, ACodecPerOp) {
  emulator::configure({});
  for (const char* inner : {"fp16", "qr-q4", "int8-gtensor"}) {
    expect_conformance({.codecs = {"fp16", "qr-q4", "int3-g24"},
                        .algorithms = {"hierarchical"},
                        .options = {{"inner_codec", inner}, {"group_size", 3}},
                        .sum = kFp32Sums,
                        .ranks = {6},
                        .lengths = {5003},
                        .group = kSmallGroup});
  }
}

/// one_shot_lamport.h and two_shot_lamport.h, or one_shot.h and two_shot.h in one round.
TEST(Fp32Sums, SmallTensorsWithBothProtocols) {
  emulator::configure({.wave_size = 32, .seed = 1});
  for (const Protocol protocol : {Protocol::sentinels, Protocol::flags}) {
    expect_conformance({.codecs = {"fp16", "bf16", "qr-fp8", "qr-q4", "int4-g32", "int8-gtensor"},
                        .algorithms = {"one_shot", "two_shot"},
                        .sum = kFp32Sums,
                        .ranks = if_short<Ranks>({3}, {3, 8}),
                        .lengths = {7, 4096, 4100},
                        .group = {.blocks = 3, .protocol = protocol}});
  }
}

/// two_shot_sentinel.h, and one_shot.h with batches, in several rounds.
TEST(Fp32Sums, LargeTensors) {
  emulator::configure({.seed = 1, .resident_blocks = 1});
  expect_conformance({.codecs = {"bf16", "qr-q4"},
                      .algorithms = {"one_shot", "two_shot"},
                      .sum = kFp32Sums,
                      .ranks = if_short<Ranks>({3}, {3, 4}),
                      .lengths = {kTile * 100 + 1000},
                      .group = {.blocks = 1}});
}

/// Where decoded values are of the dtype before anything is rounded, decode=fp32 is nothing else; elsewhere kernels do not decode so.
TEST(Fp32Sums, AndWhatElseKernelsCanAndCannot) {
  emulator::configure({});
  const auto request = [](const char* codec, const char* sum) {
    return ConformanceRequest{.codecs = {codec},
                              .algorithms = {"two_shot"},
                              .sum = parse_sum(sum),
                              .ranks = {3},
                              .lengths = {3001}};
  };
  for (const char* codec : {"fp16", "bf16", "qr-q4"}) {
    expect_conformance(request(codec, "decode=fp32,add=fp32"));
  }
  expect_conformance(request("qr-q4", "decode=fp32"));
  for (const char* codec : {"int4-g32", "int2-g32-sr", "int2-g32-sr-is", "logfmt4-g32", "nvfp4",
                            "nvfp4-te", "mxfp4", "nf4-g64"}) {
    EXPECT_EQ(refusal(request(codec, "decode=fp32,add=fp32")),
              fmt::format("sum decode=fp32,add=fp32: kernels make no such sums with codec {}: "
                          "allowed are native and fp32",
                          codec));
  }
  EXPECT_EQ(refusal(request("shared-int8-g32", "fp32")),
            "codec shared-int8-g32 adds codes, not numbers: allowed is the sum "
            "native, not fp32");
  for (const char* sum : {"add=fma", "add=fp32,order=own", "add=fp32,round=none", "result=sum"}) {
    EXPECT_EQ(refusal(request("mxfp8-e4m3", sum)),
              fmt::format("sum {}: kernels make no such sums with codec mxfp8-e4m3: allowed are "
                          "native and fp32",
                          sum));
  }
}

/// All mismatches of the request on a platform with mistakes, row after row.
std::vector<ConformanceRow> rows_with_mistakes(const ConformanceRequest& request) {
  emulator::configure({});
  std::vector<ConformanceRow> rows;
  const Status status = run_conformance(testing::MistakenPlatform(host()), request,
                                        [&](const ConformanceRow& row) { rows.push_back(row); });
  EXPECT_TRUE(status.ok()) << status.message();
  return rows;
}

TEST(Conformance, ShowsWireBytesThatDiffer) {
  const std::vector<ConformanceRow> rows =
      rows_with_mistakes({.codecs = {"fp16"}, .lengths = {100}});
  ASSERT_EQ(rows.size(), 3U);
  for (const ConformanceRow& row : rows) {
    EXPECT_EQ(row.mismatches, row.subject == "encode" ? 3U : row.subject == "decode" ? 0U : 4U);
    EXPECT_EQ(row.first_mismatches.size(), row.mismatches);
  }
  EXPECT_EQ(inputs_text(kInputs[2], 1), "1 adversarial element per rank with NaN and infinities");
  const Mismatch& first = rows[0].first_mismatches[0];
  EXPECT_EQ(first.index, 100U);
  EXPECT_EQ(first.got, first.expected ^ 1);
  const std::string text = mismatches_text(rows[0]);
  EXPECT_TRUE(
      text.starts_with(fmt::format("encode of fp16 fp16, 100 gaussian elements: wire byte 100: "
                                   "expected 0x{:02x}, got 0x{:02x}\n",
                                   first.expected, first.got)))
      << text;
  const nlohmann::ordered_json json = mismatches_json(rows[0]);
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[0]["wire_byte"], 100);
  EXPECT_EQ(json[0]["got"], fmt::format("0x{:02x}", first.got));
}

TEST(Conformance, ShowsValuesThatDifferAndWhatTheyAreMadeOf) {
  const std::size_t elements = 102;
  for (const char* algorithm : {"one_shot", "all_to_all"}) {
    const std::vector<ConformanceRow> rows = rows_with_mistakes(
        {.codecs = {"fp32"}, .algorithms = {algorithm}, .ranks = {3}, .lengths = {elements, 300}});
    const ConformanceRow& row = rows.back();
    EXPECT_EQ(row.mismatches, 6U) << "lengths times kinds of inputs";
    ASSERT_EQ(row.first_mismatches.size(), ConformanceRow::kShownMismatches);
    const Mismatch& first = row.first_mismatches[0];
    EXPECT_EQ(first.rank, 2);
    EXPECT_EQ(first.index, elements / 2);
    EXPECT_EQ(first.got, first.expected ^ 1);
    ASSERT_EQ(first.inputs.size(), 3U);
    const auto value = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
    // The values shown explain the expected one: the sum of the inputs; slot 1 from rank 1.
    EXPECT_EQ(value(first.expected),
              row.subject == "one_shot"
                  ? value(first.inputs[0]) + value(first.inputs[1]) + value(first.inputs[2])
                  : value(first.inputs[1]));
    EXPECT_EQ(
        mismatches_text(row).substr(0, mismatches_text(row).find('\n')),
        fmt::format("{} of fp32 fp32 on 3 ranks, 102 gaussian elements per rank: rank 2, index 51: "
                    "expected {:.9g} (0x{:08x}), got {:.9g} (0x{:08x}); inputs of ranks {:.9g} "
                    "(0x{:08x}), {:.9g} (0x{:08x}), {:.9g} (0x{:08x})",
                    algorithm, value(first.expected), first.expected, value(first.got), first.got,
                    value(first.inputs[0]), first.inputs[0], value(first.inputs[1]),
                    first.inputs[1], value(first.inputs[2]), first.inputs[2]));
    const nlohmann::ordered_json json = mismatches_json(row)[0];
    EXPECT_EQ(json["rank"], 2);
    EXPECT_EQ(json["index"], elements / 2);
    EXPECT_EQ(json["ranks"], 3);
    EXPECT_EQ(json["expected"]["bits"], fmt::format("0x{:08x}", first.expected));
    EXPECT_EQ(json["got"]["value"], fmt::format("{:.9g}", value(first.got)));
    EXPECT_EQ(json["inputs"].size(), 3U);
  }
}

/// int3-g24 whose differences from a rounded zero may not overflow: the codes of elements where they do are 0.
TEST(Conformance, SeesDifferencesThatOverflow) {
  class WithoutInfinities final : public testing::MistakenPlatform {
   public:
    using MistakenPlatform::MistakenPlatform;
    Status encode(const std::string& codec, DType dtype, std::span<const std::byte> payload,
                  std::span<std::byte> wire, const EncodeContext& context) const override {
      std::vector<std::byte> changed(payload.begin(), payload.end());
      for (std::size_t i = 1; i < payload.size() / size_of(dtype); ++i) {
        const std::size_t first = i / 24 * 24;
        const float zero = load_value(dtype, payload, first);
        const float x = load_value(dtype, payload, i);
        const float rounded = bfloat16_to_float(bfloat16_from_float(zero));
        if (std::isfinite(x - zero) && std::isinf(x - rounded)) {
          store_value(dtype, zero, changed, i);
        }
      }
      return host().encode(codec, dtype, changed, wire, context);
    }
  };
  emulator::configure({});
  std::uint64_t mismatches = 0;
  const auto add = [&](const ConformanceRow& row) {
    if (row.subject != "encode") return;
    EXPECT_TRUE(row.mismatches == 0 || row.dtype == DType::fp32);
    mismatches += row.mismatches;
  };
  const ConformanceRequest request = {.codecs = {"int3-g24"}, .lengths = {20003}};
  ASSERT_TRUE(run_conformance(WithoutInfinities(host()), request, add).ok());
  EXPECT_GT(mismatches, 0U);
}

/// nvfp4 whose tensor scale, where nothing is finite, is 2688 / -inf and not 1.
TEST(Conformance, SeesAScaleMadeOfNothing) {
  class WithoutDefault final : public testing::MistakenPlatform {
   public:
    using MistakenPlatform::MistakenPlatform;
    Status encode(const std::string& codec, DType dtype, std::span<const std::byte> payload,
                  std::span<std::byte> wire, const EncodeContext& context) const override {
      bool has_finite = false;
      for (std::size_t i = 0; i < payload.size() / size_of(dtype); ++i) {
        has_finite = has_finite || std::isfinite(load_value(dtype, payload, i));
      }
      const Status status = host().encode(codec, dtype, payload, wire, context);
      if (!has_finite) store_value(DType::fp32, -0.0F, wire, 0);
      return status;
    }
  };
  emulator::configure({});
  const auto check = [](const ConformanceRow& row) {
    if (row.subject == "encode") {
      EXPECT_GT(row.mismatches, 0U);
    }
  };
  const ConformanceRequest request = {.codecs = {"nvfp4"}, .lengths = {9}};
  ASSERT_TRUE(run_conformance(WithoutDefault(host()), request, check).ok());
}

TEST(Conformance, SaysWhatCannotBeRun) {
  class WithoutGroups final : public testing::MistakenPlatform {
   public:
    using MistakenPlatform::MistakenPlatform;
    Result<std::unique_ptr<Group>> make_group(int, const CommunicatorOptions&,
                                              const std::shared_ptr<Bootstrap>&) const override {
      return Status::error("there is none");
    }
  };
  const Status status = run_conformance(
      WithoutGroups(host()),
      {.codecs = {"fp16"}, .algorithms = {"one_shot"}, .ranks = {2}, .lengths = {100}},
      [](const ConformanceRow&) {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "there is none");
}

}  // namespace
}  // namespace arlab::kernels
