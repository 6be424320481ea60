// Promises of every codec to its callers: exact sizes, checked arguments, lookup by name.
#include <array>
#include <thread>

#include "reference/codecs/payload_values.h"
#include "tests/codecs/round_trip.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

// Sizes: the table in reference/codecs/SPEC.md, "QuickReduce (qr-*)". Those of wires, of every length, are the oracles'.

struct AtomSize {
  const char* codec;
  std::size_t bytes;
};
constexpr AtomSize kAtomSizes[] = {{"qr-q4", 1152},  {"qr-q6", 1664}, {"qr-q8", 2176},
                                   {"qr-fp8", 2176}, {"qr-q3", 896},  {"qr-fp4", 1152}};

TEST(WireBytes, RefusesACountThatCannotBe) {
  EXPECT_NE(refusal_of([] { (void)find_codec("fp32")->wire_bytes(DType::fp32, SIZE_MAX); }),
            "accepted");
}

TEST(ElementsOfWire, IsTheLargestCountThatFits) {
  for (const auto& [name, bytes] : kAtomSizes) {
    const CodecPtr codec = find_codec(name);
    EXPECT_EQ(codec->elements_of_wire(DType::fp16, 0), 0u);
    EXPECT_EQ(codec->elements_of_wire(DType::fp16, bytes), 2048u);
    EXPECT_EQ(codec->elements_of_wire(DType::bf16, 12345 * bytes), 12345u * 2048);
  }
  EXPECT_EQ(find_codec("fp32")->elements_of_wire(DType::fp32, 400), 100u);
}

TEST(ElementsOfWire, RefusesASizeThatNoCountHas) {
  EXPECT_EQ(
      refusal_of([] { (void)find_codec("qr-q4")->elements_of_wire(DType::fp16, 1153); }),
      "codec qr-q4: no number of fp16 elements has a wire of 1153 bytes (the nearest are 1152 "
      "and 2304)");
  EXPECT_EQ(refusal_of([] { (void)find_codec("qr-q4")->elements_of_wire(DType::fp16, 1); }),
            "codec qr-q4: no number of fp16 elements has a wire of 1 bytes (the nearest are 0 and "
            "1152)");
  EXPECT_NE(refusal_of([] { (void)find_codec("fp32")->elements_of_wire(DType::fp32, 6); }),
            "accepted");
  EXPECT_NE(refusal_of([] { (void)find_codec("fp16")->elements_of_wire(DType::fp16, SIZE_MAX); }),
            "accepted");
}

// Arguments.

/// Calls encode and decode with the same spans; both must refuse with the same words.
std::string both_refuse(const Codec& codec, DType dtype, std::span<std::byte> payload,
                        std::span<std::byte> wire) {
  const std::string encoding = refusal_of([&] { codec.encode(dtype, payload, wire); });
  const std::string decoding = refusal_of([&] { codec.decode(dtype, wire, payload); });
  EXPECT_EQ(encoding, decoding);
  return encoding;
}

TEST(Arguments, ADtypeThatTheCodecDoesNotTakeIsRefused) {
  std::array<std::byte, 8> payload{};
  Bytes wire(8);
  EXPECT_EQ(both_refuse(*find_codec("fp16"), DType::bf16, payload, wire),
            "codec fp16 takes fp16, not bf16");
  EXPECT_EQ(both_refuse(*find_codec("bf16"), DType::fp16, payload, wire),
            "codec bf16 takes bf16, not fp16");
  EXPECT_EQ(both_refuse(*find_codec("qr-q4"), DType::fp32, payload, wire),
            "codec qr-q4 takes fp16 or bf16, not fp32");
  EXPECT_EQ(refusal_of([] { (void)find_codec("fp16")->wire_bytes(DType::bf16, 1); }),
            "codec fp16 takes fp16, not bf16");
  EXPECT_EQ(refusal_of([] { (void)find_codec("fp16")->elements_of_wire(DType::bf16, 2); }),
            "codec fp16 takes fp16, not bf16");
}

TEST(Arguments, AWireOfAnotherSizeIsRefused) {
  const CodecPtr codec = find_codec("qr-q4");
  Patterns payload(2048);
  const auto bytes = std::as_writable_bytes(std::span(payload));
  for (const std::size_t size : {0u, 1u, 1151u, 1153u, 2304u}) {
    Bytes wire(size);
    EXPECT_EQ(
        both_refuse(*codec, DType::fp16, bytes, wire),
        fmt::format("codec qr-q4: the wire of 2048 fp16 elements is 1152 bytes, not {}", size));
  }
}

TEST(Arguments, HalfAnElementIsRefused) {
  Patterns payload(2048);
  const auto bytes = std::as_writable_bytes(std::span(payload));
  Bytes wire(1152);
  EXPECT_EQ(both_refuse(*find_codec("qr-q4"), DType::fp16, bytes.first(4095), wire),
            "codec qr-q4: a payload of 4095 bytes is not a whole number of fp16 elements");
}

TEST(Arguments, AMisalignedPayloadIsRefused) {
  alignas(4) std::array<std::byte, 12> memory{};
  Bytes wire(1152);
  EXPECT_EQ(both_refuse(*find_codec("qr-q4"), DType::fp16, std::span(memory).subspan(1, 8), wire),
            "codec qr-q4: the payload is not aligned to the 2 bytes of an fp16 element");
  wire.resize(8);
  EXPECT_EQ(both_refuse(*find_codec("fp32"), DType::fp32, std::span(memory).subspan(2, 8), wire),
            "codec fp32: the payload is not aligned to the 4 bytes of an fp32 element");
}

TEST(Arguments, NoElementsHaveAnEmptyWire) {
  for (const auto& [codec, dtype] : with_their_dtypes(listed_codecs())) {
    EncodeCounts counts;
    codec->encode(dtype, {}, {}, &counts);
    codec->decode(dtype, {}, {});
    EXPECT_EQ(counts.clamped, 0u);
    Bytes wire(1);
    EXPECT_NE(both_refuse(*codec, dtype, {}, wire), "accepted") << codec->name();
  }
}

TEST(Arguments, CountsAreAddedTo) {
  const CodecPtr codec = find_codec("qr-q4");
  Patterns tie(64);
  tie[0] = pattern(DType::fp16, 3.0f);
  tie[2] = pattern(DType::fp16, -3.0f);
  EncodeCounts counts{.clamped = 100};
  encode(*codec, DType::fp16, tie, &counts);
  encode(*codec, DType::fp16, tie, &counts);
  EXPECT_EQ(counts.clamped, 102u);
}

// Codecs of one's own.

/// Passes values on, under any name.
class Echo final : public Codec {
 public:
  explicit Echo(std::string name)
      : Codec({.name = std::move(name),
               .summary = "values as they are",
               .source = "this test",
               .dtypes = {DType::fp16}}) {}
  explicit Echo(CodecInfo info) : Codec(std::move(info)) {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override { return 2 * elements; }
  void do_encode(DType, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts&) const override {
    std::ranges::copy(payload, wire.begin());
  }
  void do_decode(DType, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    std::ranges::copy(wire, payload.begin());
  }
};

TEST(CodecInfo, IsChecked) {
  const auto refused = [](std::string name, std::vector<DType> dtypes, std::size_t block,
                          std::size_t alignment) {
    CodecInfo info;
    info.name = std::move(name);
    info.dtypes = std::move(dtypes);
    info.block = block;
    info.alignment = alignment;
    return refusal_of([&] { const Echo codec(info); }) != "accepted";
  };
  EXPECT_FALSE(refused("x", {DType::fp16}, 32, 2048));
  EXPECT_FALSE(refused("x", {DType::fp16}, 32, kWholeTensor));
  EXPECT_TRUE(refused("", {DType::fp16}, 32, 2048));
  EXPECT_TRUE(refused("x", {}, 32, 2048));
  EXPECT_TRUE(refused("x", {DType::fp16}, 0, 2048));
  EXPECT_TRUE(refused("x", {DType::fp16}, 32, 0));
  EXPECT_TRUE(refused("x", {DType::fp16}, 32, 48));
}

TEST(Registry, FindsEveryListedCodec) {
  const std::vector<std::string> names = listed_codecs();
  for (const std::string& name : names) {
    EXPECT_EQ(find_codec(name)->name(), name);
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
    EXPECT_FALSE(find_codec(name)->info().summary.empty()) << name;
    EXPECT_FALSE(find_codec(name)->info().source.empty()) << name;
  }
  for (const std::string name :
       {"fp32", "fp16", "bf16", "qr-fp8", "qr-q8", "qr-q6", "qr-q4", "qr-q3", "qr-fp4"}) {
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  }
}

TEST(Registry, AnUnknownNameIsAnsweredWithNearOnesOrFamilies) {
  for (const std::string name : {"", "qr-q5", "QR-Q4", "qr-q4 ", "qr", "fp8", "mine"}) {
    const std::string text = refusal_of([&] { (void)find_codec(name); });
    const std::string refused = fmt::format("unknown codec '{}': ", name);
    const bool is_near = name.starts_with("qr-q") || name.starts_with("QR-") || name == "fp8";
    EXPECT_TRUE(text.starts_with(refused + (is_near ? "did you mean '" : "known are "))) << text;
    EXPECT_EQ(text.find(", int*, ") == std::string::npos, is_near) << text;
    EXPECT_EQ(text.find(", qr*") == std::string::npos, is_near) << text;
    EXPECT_NE(text.find(" `arlab list codecs` has all"), std::string::npos) << text;
    EXPECT_LT(text.size(), 260u) << text;
  }
}

TEST(Registry, NumbersInNamesHaveOneSpellingAndARange) {
  for (const char* name : {"nvfp4-ts1", "nvfp4-ts0.75", "nvfp4-ts827.0769", "nvfp4-vllm-ts1e-05",
                           "nvfp4-ts1e+20", "nvfp4-vllm-ts3.323e+35", "nvfp4-ts3.01e-36"}) {
    EXPECT_EQ(find_codec(name)->name(), name);
  }
  const std::pair<const char*, const char*> refused[] = {
      {"nvfp4-ts", "no tensor scale"},       {"nvfp4-tsx", "no tensor scale"},
      {"nvfp4-ts-1", "no tensor scale"},     {"nvfp4-ts0", "no tensor scale"},
      {"nvfp4-tsnan", "no tensor scale"},    {"nvfp4-tsinf", "no tensor scale"},
      {"nvfp4-ts1e99", "no tensor scale"},   {"nvfp4-ts3.5e+35", "from 2^-118 to 2^118"},
      {"nvfp4-vllm-ts3e-36", "2^-118"},      {"nvfp4-ts1 ", "no tensor scale"},
      {"nvfp4-ts1.0", "the shortest: -ts1"}, {"nvfp4-ts01", "the shortest: -ts1"},
      {"nvfp4-ts1e0", "the shortest: -ts1"}, {"nvfp4-ts0.00001", "the shortest: -ts1e-05"},
      {"nvfp4-ts827.07690", "-ts827.0769"},  {"nvfp4-ts0.750000001", "-ts0.75"},
      {"nvfp4-ts1-vllm", "no tensor scale"}, {"nvfp4-vllm-", "unknown codec"},
      {"fp8-e4m3-static0", "above 2^-128"},  {"fp8-e4m3-staticq", "no finite decimal number"},
      {"fp8-e4m3-token", "how long a row"},  {"fp8-e4m3-token12x", "are no number from 1"},
      {"nvfp4-g24-flashinfer", "of 16"},     {"nvfp4-gx-flashinfer", "unknown codec"},
      {"nvfp4-vllm-vllm", "unknown codec"},  {"nvfp4-te-ts1", "unknown codec"},
      {"nvfp4-4over6", "unknown codec"},     {"nvfp4ts1", "unknown codec"},
  };
  for (const auto& [name, message] : refused) {
    expect_contains(message_of([name = name] { find_codec(name); }), message);
  }
}

TEST(Registry, NamesThatAreNotThere) {
  for (const char* name :
       {"mxfp4-round", "mxfp8", "mxfp6", "mxfp8-e4m3-", "nvfp4-ceil", "mxfp4-e2m1", "logfmt1-g32",
        "logfmt9-g32", "logfmt4-g33", "logfmt4-g0", "logfmt4-g65544"}) {
    EXPECT_THROW(find_codec(name), InvalidInput) << name;
  }
}

TEST(Registry, ACodecRegisteredAtRunTimeIsLikeAnyOther) {
  const auto codec = std::make_shared<Echo>("echo-registered");
  register_codec_family(family_of({codec}));
  EXPECT_EQ(find_codec("echo-registered"), codec);
  EXPECT_EQ(std::ranges::count(listed_codecs(), "echo-registered"), 1);
  const std::string text = refusal_of([] { (void)find_codec("echo"); });
  EXPECT_NE(text.find("echo-registered"), std::string::npos) << text;
}

TEST(Registry, ANameIsTakenOnlyOnce) {
  const auto taken = [](const char* name) {
    return refusal_of([&] { register_codec_family(family_of({std::make_shared<Echo>(name)})); });
  };
  const std::size_t before = listed_codecs().size();
  EXPECT_EQ(taken("qr-q4"), "codec 'qr-q4' is already registered");
  EXPECT_EQ(taken("fp16"), "codec 'fp16' is already registered");
  EXPECT_EQ(listed_codecs().size(), before);
  EXPECT_EQ(taken("echo-once"), "accepted");
  EXPECT_EQ(taken("echo-once"), "codec 'echo-once' is already registered");

  // None of a family is registered when one of its names is taken.
  EXPECT_NE(refusal_of([] {
              register_codec_family(family_of(
                  {std::make_shared<Echo>("echo-new"), std::make_shared<Echo>("echo-once")}));
            }),
            "accepted");
  EXPECT_NE(refusal_of([] { (void)find_codec("echo-new"); }), "accepted");
}

TEST(Registry, AFamilyMustHoldWhatItLists) {
  const auto nothing = [](std::string_view) -> CodecPtr { return nullptr; };
  EXPECT_NE(refusal_of([&] { register_codec_family({"empty", {}, nothing}); }), "accepted");
  EXPECT_NE(refusal_of([&] { register_codec_family({"no find", {"x"}, nullptr}); }), "accepted");
  EXPECT_NE(refusal_of([&] { register_codec_family({"liar", {"x"}, nothing}); }), "accepted");
}

TEST(Registry, AFamilyListsANameOnce) {
  EXPECT_EQ(refusal_of([] {
              register_codec_family(family_of(
                  {std::make_shared<Echo>("echo-twin"), std::make_shared<Echo>("echo-twin")}));
            }),
            "codec family 'echo-twin, echo-twin' lists 'echo-twin' twice");
  EXPECT_NE(refusal_of([] { (void)find_codec("echo-twin"); }), "accepted");
}

TEST(Registry, AListedNameFindsTheCodecOfThatName) {
  const auto other = [](std::string_view) { return std::make_shared<Echo>("echo-other"); };
  EXPECT_EQ(refusal_of([&] { register_codec_family({"alias", {"echo-alias"}, other}); }),
            "codec family 'alias' finds 'echo-other' under the name 'echo-alias'");
  EXPECT_NE(refusal_of([] { (void)find_codec("echo-alias"); }), "accepted");
}

TEST(Registry, AFamilyHoldsNoNullPointer) {
  EXPECT_EQ(refusal_of([] { (void)family_of({nullptr}); }),
            "a codec family cannot hold a null pointer");
  EXPECT_EQ(refusal_of([] { (void)family_of({std::make_shared<Echo>("echo-beside"), nullptr}); }),
            "a codec family cannot hold a null pointer");
}

TEST(Registry, AFamilyCanHoldMoreThanItLists) {
  register_codec_family({"echo<n>", {"echo1"}, [](std::string_view name) -> CodecPtr {
                           if (!name.starts_with("echo") || name.size() != 5) return nullptr;
                           if (name[4] == '0') fail("codec {}: n must not be 0", name);
                           return std::make_shared<Echo>(std::string(name));
                         }});
  EXPECT_EQ(find_codec("echo7")->name(), "echo7");
  EXPECT_EQ(std::ranges::count(listed_codecs(), "echo7"), 0);
  EXPECT_EQ(refusal_of([] { (void)find_codec("echo0"); }), "codec echo0: n must not be 0");
}

TEST(Registry, CanBeUsedFromManyThreads) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 20; ++i) {
        const std::string name = fmt::format("echo-{}-{}", t, i);
        register_codec_family(family_of({std::make_shared<Echo>(name)}));
        EXPECT_EQ(find_codec(name)->name(), name);
        EXPECT_EQ(find_codec("qr-q4")->name(), "qr-q4");
        EXPECT_GE(listed_codecs().size(), 9u);
      }
    });
  }
}

// Wires of variable length: what is refused, by what it says of itself.

Bytes encoded(const Codec& codec, DType dtype, const Tensor& x) {
  return encode(codec, dtype, x.data);
}
std::uint64_t length_of(const Bytes& wire) {
  std::uint64_t length = 0;
  std::memcpy(&length, wire.data(), sizeof(length));
  return length;
}
void set_length(Bytes& wire, std::uint64_t length) {
  std::memcpy(wire.data(), &length, sizeof(length));
}
std::string refusal_to_decode(const Codec& codec, DType dtype, const Bytes& wire,
                              std::size_t elements) {
  // With room behind it, so that a check that is missing reads what is there, and shows.
  Bytes memory = wire;
  memory.resize(wire.size() + 64, std::byte{1});
  Bytes payload(elements * size_of(dtype));
  return refusal_of([&] { codec.decode(dtype, std::span(memory).first(wire.size()), payload); });
}

constexpr std::size_t kElements = 1000;

TEST(VariableWires, LengthsAreThoseOfTheWire) {
  for (const char* name : {"lossless-e3-g64", "rans-bf16", "rans-int4-g32"}) {
    const CodecPtr codec = find_codec(name);
    Bytes wire =
        encoded(*codec, DType::bf16, make_synthetic("gaussian", DType::bf16, 1, kElements));
    EXPECT_EQ(refusal_to_decode(*codec, DType::bf16, wire, kElements), "accepted") << name;
    for (const std::uint64_t length :
         {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{wire.size() + 1},
          std::uint64_t{wire.size() + 8}, UINT64_MAX}) {
      set_length(wire, length);
      EXPECT_EQ(refusal_to_decode(*codec, DType::bf16, wire, kElements),
                fmt::format("codec {}: a wire that says it has {} bytes; allowed are 8 to {}", name,
                            length, wire.size()));
    }
  }
}

TEST(VariableWires, ExponentsThatEndEarlyAreRefused) {
  const CodecPtr codec = find_codec("lossless-e2-g64");
  // Every element of a block but its largest is an escape.
  Tensor x = make_synthetic("constant:value=0", DType::bf16, 1, kElements);
  for (std::size_t i = 0; i < kElements; i += 64) store_value(DType::bf16, 1.0F, x.bytes(), i);
  const Bytes right = encoded(*codec, DType::bf16, x);
  const std::uint64_t used = length_of(right);
  const std::uint64_t escapes = kElements - (kElements + 63) / 64;
  EXPECT_EQ(refusal_to_decode(*codec, DType::bf16, right, kElements), "accepted");
  // One escape is missing; all are; a base is; nearly all is.
  for (const std::uint64_t length :
       {used - 1, used - escapes, used - escapes - 1, std::uint64_t{8}}) {
    Bytes wire = right;
    set_length(wire, length);
    EXPECT_EQ(refusal_to_decode(*codec, DType::bf16, wire, kElements),
              fmt::format("codec lossless-e2-g64: a wire of {} bytes ends early, or late", length));
  }
}

TEST(VariableWires, EntropyCodedOnesSayWhatIsInThem) {
  constexpr std::size_t kMode = 8;
  constexpr std::size_t kBody = 9;
  const CodecPtr codec = find_codec("rans-bf16");
  const auto refusal = [&](const Bytes& wire) {
    return refusal_to_decode(*codec, DType::bf16, wire, kElements);
  };
  const Bytes plain =
      encoded(*codec, DType::bf16, make_synthetic("uniform", DType::bf16, 1, kElements));
  const Bytes coded =
      encoded(*codec, DType::bf16, make_synthetic("constant:value=1", DType::bf16, 1, kElements));
  Bytes as_it_is =
      coded;  // random bits have hardly a shorter wire, but this one is not left to chance
  as_it_is[kMode] = std::byte{0};
  set_length(as_it_is, as_it_is.size());
  EXPECT_EQ(coded[kMode], std::byte{1});
  for (const Bytes& right : {plain, coded, as_it_is}) EXPECT_EQ(refusal(right), "accepted");
  for (const unsigned mode : {2U, 7U, 255U}) {
    for (Bytes wire : {coded, as_it_is}) {
      wire[kMode] = static_cast<std::byte>(mode);
      EXPECT_EQ(refusal(wire),
                fmt::format("codec rans-bf16: mode {} in a wire; allowed are 0 and 1", mode));
    }
  }
  const auto ends_at = [&](Bytes wire, std::uint64_t length) {
    set_length(wire, length);
    EXPECT_EQ(refusal(wire),
              fmt::format("codec rans-bf16: a wire of {} bytes ends early, or late", length));
  };
  ends_at(as_it_is, as_it_is.size() - 1);
  ends_at(as_it_is, kBody);
  ends_at(as_it_is, kMode);
  ends_at(coded, kBody + 512 + 3);  // in the state
  ends_at(coded, kBody);
  // Codes that have to be taken in turn are not all there.
  const Bytes long_one =
      encoded(*codec, DType::bf16, make_synthetic("gaussian", DType::bf16, 1, kElements));
  if (long_one[kMode] == std::byte{1}) ends_at(long_one, length_of(long_one) - 16);
  for (const unsigned more :
       {1U, 0xFFFFU}) {  // too many, and, as all together, too few or far too many
    Bytes wire = coded;
    std::uint16_t frequency = 0;
    std::memcpy(&frequency, &wire[kBody], sizeof(frequency));
    frequency = static_cast<std::uint16_t>(frequency + more);
    std::memcpy(&wire[kBody], &frequency, sizeof(frequency));
    EXPECT_EQ(refusal(wire), "codec rans-bf16: frequencies in a wire do not add up to 4096");
  }
}

// Scales that all ranks share.

TEST(SharedScales, SumsOfCodesAreOfTheSameScalesAndClampedAlike) {
  const CodecPtr codec = find_codec("shared-int4-g8");
  constexpr std::size_t kFew = 16;
  const auto wire_of = [&](float value) {
    return encoded(*codec, DType::fp16,
                   make_synthetic(fmt::format("constant:value={}", value), DType::fp16, 1, kFew));
  };
  for (const float value : {1.0F, -1.0F}) {
    const Bytes one = wire_of(value);
    Bytes sum = one;
    codec->add_codes(DType::fp16, kFew, one, sum);
    // The largest code of both signs is the same, 7, which the value has alone.
    EXPECT_EQ(sum, one) << value;
  }
  const Bytes ones = wire_of(1);
  const Bytes twos = wire_of(2);
  Bytes sum = ones;
  EXPECT_EQ(refusal_of([&] { codec->add_codes(DType::fp16, kFew, twos, sum); }),
            "codec shared-int4-g8: wires whose scales differ cannot be added");
  EXPECT_EQ(sum, ones);
  sum.back() ^= std::byte{1};  // in the last block alone
  EXPECT_EQ(refusal_of([&] { codec->add_codes(DType::fp16, kFew, ones, sum); }),
            "codec shared-int4-g8: wires whose scales differ cannot be added");
}

}  // namespace
}  // namespace arlab::testing
