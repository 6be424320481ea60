// Two codecs of a call, by half, by level, by step, by size of message.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/synthetic.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

using Bytes = std::vector<std::byte>;

Bytes reduced(const Schedule& schedule, const Codecs& codecs, const Tensor& inputs) {
  Bytes outputs(inputs.bytes().size());
  execute(schedule, codecs, inputs, outputs, {.threads = 2});
  return outputs;
}

/// Returns the result of an all-reduce with codecs that a text names.
Bytes reduced_by(const std::string& algorithm, const std::string& text, const Tensor& inputs) {
  AlgorithmOptions options;
  const CodecPtr outer = find_codec(split_codecs(text, options));
  const CodecPtr inner = find_inner_codec(options, outer);
  const Codecs codecs(*outer, *inner);
  const Schedule schedule =
      make_schedule(algorithm, {.world_size = static_cast<Rank>(inputs.ranks()),
                                .elements = inputs.elements_per_rank(),
                                .alignment = codecs.alignment(),
                                .options = options});
  return reduced(schedule, codecs, inputs);
}

Bytes all_of(const std::string& codec, const std::string& algorithm, const Tensor& inputs,
             std::uint64_t alignment) {
  const CodecPtr only = find_codec(codec);
  return reduced(make_schedule(algorithm, {.world_size = static_cast<Rank>(inputs.ranks()),
                                           .elements = inputs.elements_per_rank(),
                                           .alignment = alignment}),
                 *only, inputs);
}

/// Returns every rank's tensor, encoded and decoded as one message.
Bytes passed_through(const std::string& name, const Tensor& tensor) {
  const CodecPtr codec = find_codec(name);
  Bytes result;
  for (std::size_t rank = 0; rank < tensor.ranks(); ++rank) {
    const auto payload = tensor.bytes().subspan(rank * tensor.bytes().size() / tensor.ranks(),
                                                tensor.bytes().size() / tensor.ranks());
    Bytes wire(codec->wire_bytes(tensor.dtype, tensor.elements_per_rank()));
    codec->encode(tensor.dtype, payload, wire);
    Bytes back(payload.size());
    codec->decode(tensor.dtype, wire, back);
    result.insert(result.end(), back.begin(), back.end());
  }
  return result;
}

class PlacedCodecs : public testing::Test {
 protected:
  Tensor inputs_ = make_synthetic("adversarial", DType::bf16, 4, 4 * 4096);
};

TEST_F(PlacedCodecs, AHalfIsWhatTheCodecMakesBeforeOrBehindTheSum) {
  // A reduce-scatter as it is, and what all end with through the codec: the uncompressed result, encoded once.
  const Tensor sums{DType::bf16, inputs_.shape, all_of("bf16", "two_shot", inputs_, 256)};
  EXPECT_EQ(reduced_by("two_shot", "rs=bf16,ag=fp8-e4m3-g256", inputs_),
            passed_through("fp8-e4m3-g256", sums));
  // The inputs through the codec, and the rest as it is.
  const Tensor coded{DType::bf16, inputs_.shape, passed_through("fp8-e4m3-g256", inputs_)};
  EXPECT_EQ(reduced_by("two_shot", "rs=fp8-e4m3-g256,ag=bf16", inputs_),
            all_of("bf16", "two_shot", coded, 256));
}

TEST_F(PlacedCodecs, EveryAlgorithmWithTwoHalvesHasThem) {
  for (const char* algorithm :
       {"two_shot", "ring", "hierarchical", "hierarchical_pipelined", "halving_doubling", "tree"}) {
    const Bytes result = reduced_by(algorithm, "rs=bf16,ag=qr-q4", inputs_);
    EXPECT_NE(result, all_of("bf16", algorithm, inputs_, 2048)) << algorithm;
    EXPECT_NE(result, all_of("qr-q4", algorithm, inputs_, 2048)) << algorithm;
    EXPECT_EQ(reduced_by(algorithm, "rs=qr-q4,ag=qr-q4", inputs_),
              all_of("qr-q4", algorithm, inputs_, 2048))
        << algorithm;
  }
}

TEST_F(PlacedCodecs, StepsAreEncodingsBehindAMessage) {
  EXPECT_EQ(reduced_by("two_shot", "step0=bf16,else=qr-q4", inputs_),
            reduced_by("two_shot", "rs=bf16,ag=qr-q4", inputs_));
  EXPECT_EQ(reduced_by("ring", "step0-2=bf16,else=qr-q4", inputs_),
            reduced_by("ring", "rs=bf16,ag=qr-q4", inputs_));
}

TEST_F(PlacedCodecs, SmallMessagesAreThoseOfFewerElements) {
  const Tensor odd =
      make_synthetic("gaussian", DType::bf16, 2, 2048 * 3);  // chunks of 4096 and 2048
  const Bytes result = reduced_by("two_shot", "below4096=bf16,else=qr-q4", odd);
  const Bytes coded = all_of("qr-q4", "two_shot", odd, 2048);
  const Bytes plain = all_of("bf16", "two_shot", odd, 2048);
  const std::size_t cut = std::size_t{4096} * 2;
  EXPECT_TRUE(std::equal(result.begin(), result.begin() + cut, coded.begin()));
  EXPECT_TRUE(std::equal(result.begin() + cut, result.begin() + 3 * 4096, plain.begin() + cut));
}

TEST_F(PlacedCodecs, LevelsAreTheInnerCodec) {
  AlgorithmOptions options;
  EXPECT_EQ(split_codecs("outer=qr-q4,inner=fp16", options), "qr-q4");
  EXPECT_EQ(options, (AlgorithmOptions{{"inner_codec", "fp16"}}));
  EXPECT_FALSE(options.inner_place());
}

TEST_F(PlacedCodecs, BitsAreTheMeanOfWhatIsSent) {
  AlgorithmOptions options;
  const CodecPtr outer = find_codec(split_codecs("rs=bf16,ag=fp8-e4m3-g128", options));
  const CodecPtr inner = find_inner_codec(options, outer);
  const Schedule schedule = make_schedule(
      "two_shot", {.world_size = 4, .elements = 16384, .alignment = 128, .options = options});
  const WireVolume volume = wire_volume(schedule, Codecs(*outer, *inner), DType::bf16);
  EXPECT_EQ(volume.bits_of_step, (std::vector<double>{16, 8.25}));
  EXPECT_EQ(volume.bits_per_element, (16 + 8.25) / 2);
}

TEST_F(PlacedCodecs, ChunksAreCutWhereBothMayBe) {
  const auto alignment = [](const char* outer, const char* inner) {
    return Codecs(*find_codec(outer), *find_codec(inner)).alignment();
  };
  EXPECT_EQ(alignment("int8-g24", "int8-g32"), 96U);
  EXPECT_EQ(alignment("int8-g32", "int4-g40"), 160U);
  EXPECT_EQ(alignment("qr-q4", "int8-g128"), 2048U);
  EXPECT_EQ(alignment("fp16", "int8-gtensor"), alignment("int8-gtensor", "fp16"));
}

TEST_F(PlacedCodecs, BothAgreeOnTheScalesThatTheyShare) {
  const auto numbers = [](const char* outer, const char* inner) -> std::uint64_t {
    const CodecPtr first = find_codec(outer);
    const CodecPtr second = find_codec(inner);
    const Codecs codecs(*first, *second);
    const Schedule schedule = make_schedule(
        "two_shot", {.world_size = 4, .elements = 4096, .alignment = codecs.alignment()});
    const auto agreement = agreement_of(schedule, codecs);
    return agreement ? agreement->elements : 0;
  };
  EXPECT_EQ(numbers("bf16", "bf16"), 0U);
  EXPECT_EQ(numbers("shared-int8-g32", "shared-int8-g32"), 4096U / 32);
  EXPECT_EQ(numbers("shared-int8-g32", "bf16"), 4096U / 32);
  EXPECT_EQ(numbers("bf16", "shared-int8-g64"), 4096U / 64);
  EXPECT_EQ(numbers("shared-int8-g32", "shared-int8-g64"), 4096U / 32 + 4096U / 64);
}

TEST_F(PlacedCodecs, NamesWithAColonAreNoPlaces) {
  const AlgorithmOptions options = {{"inner_codec", "int8-gtensor-static0.05:-1.25"}};
  EXPECT_FALSE(options.inner_place());
  EXPECT_EQ(options.inner_codec(), "int8-gtensor-static0.05:-1.25");
  const AlgorithmOptions placed = {{"inner_codec", "step2-5:int8-gtensor-static0.05:-1.25"}};
  EXPECT_EQ(placed.inner_place(), "step2-5");
  EXPECT_EQ(placed.inner_codec(), "int8-gtensor-static0.05:-1.25");
}

TEST_F(PlacedCodecs, OtherTextsStay) {
  AlgorithmOptions options = {{"inner_codec", "fp16"}};
  for (const char* text : {"qr-q4", "bits=4.5,encode_ops=9", "anything"}) {
    EXPECT_EQ(split_codecs(text, options), text);
  }
}

std::string refused(const std::string& text, AlgorithmOptions options = {}) {
  return refusal_of([&] { (void)split_codecs(text, options); });
}

TEST_F(PlacedCodecs, WhatCannotBeIsSaid) {
  EXPECT_EQ(refused("rs=bf16,rs=fp16"), "codec 'rs=bf16,rs=fp16': rs stands twice");
  EXPECT_EQ(refused("rs=bf16,fp16"), "codec 'rs=bf16,fp16': 'fp16' is for no place");
  EXPECT_EQ(refused("rs=bf16,ag=fp16", {{"inner_codec", "fp16"}}),
            "codec 'rs=bf16,ag=fp16': an inner codec is named, too: allowed is one of the two");
  for (const char* text : {"rs=bf16", "rs=bf16,inner=fp16", "rs=bf16,ag=fp16,else=fp32", "=",
                           "step=bf16,else=fp16", "step2-1=bf16,else=fp16", "below=bf16,else=fp16",
                           "step0=bf16,step1=fp16", "middle=bf16,else=fp16"}) {
    EXPECT_EQ(refused(text).find("codec '" + std::string(text) +
                                 "': allowed are two codecs, rs=...,ag=... or"),
              0)
        << text << ": " << refused(text);
  }
  const auto placed = [](const char* algorithm, const char* inner) {
    return refusal_of([&] {
      make_schedule(algorithm,
                    {.world_size = 4, .elements = 1024, .options = {{"inner_codec", inner}}});
    });
  };
  EXPECT_EQ(placed("one_shot", "ag:fp16"),
            "one_shot: none of its messages are those of 'ag', so that it has one codec");
  EXPECT_EQ(placed("all_gather", "ag:fp16"),
            "all_gather: all of its messages are those of 'ag', so that it has one codec");
  EXPECT_EQ(placed("two_shot", "step2:fp16"),
            "two_shot: none of its messages are those of 'step2', so that it has one codec");
}

}  // namespace
}  // namespace arlab
