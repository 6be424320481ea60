// Codecs that are not there: what they say of themselves, and what is refused.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reference/codecs/abstract.h"
#include "reference/codecs/registry.h"
#include "reference/device_facts/two_passes.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

std::string refusal(const std::string& name) {
  return refusal_of([&] { find_codec(name); });
}

TEST(AbstractCodec, HasASizeAndACost) {
  const CodecPtr codec =
      find_codec("bits=4.5,encode_ops=9,decode_ops=4,store_efficiency=0.9,packed=1,measures=1");
  EXPECT_EQ(codec->wire_bytes(DType::fp16, 16), 9u);
  EXPECT_EQ(codec->wire_bytes(DType::fp32, 17), 10u);
  const CodecCost& cost = codec->info().cost;
  EXPECT_EQ(cost.encode_ops_per_element, 9);
  EXPECT_EQ(cost.decode_ops_per_element, 4);
  EXPECT_EQ(cost.store_efficiency, 0.9);
  EXPECT_TRUE(cost.packed);
  EXPECT_TRUE(measures_first(cost));
  EXPECT_FALSE(measures_first(find_codec("bits=8")->info().cost));
}

TEST(AbstractCodec, HasNoValues) {
  const CodecPtr codec = find_codec("bits=8");
  const std::vector<std::byte> payload(4);
  std::vector<std::byte> wire(2);
  EXPECT_THROW(codec->encode(DType::fp16, payload, wire), InvalidInput);
}

TEST(AbstractCodec, SaysWhatIsWrong) {
  EXPECT_EQ(refusal("bits=33"),
            "codec 'bits=33': bits is '33'; allowed is a number from 0.01 to 32");
  EXPECT_EQ(
      refusal("bits=4,encode_ops=x"),
      "codec 'bits=4,encode_ops=x': encode_ops is 'x'; allowed is a number from 0 to 1000000");
  EXPECT_EQ(refusal("bits=4,bits=5"), "codec 'bits=4,bits=5': bits is given twice");
  EXPECT_EQ(refusal("bits=4,packed=2"),
            "codec 'bits=4,packed=2': packed is '2'; allowed is 0 or 1");
  EXPECT_EQ(refusal("bits=4,speed=1"), fmt::format("codec 'bits=4,speed=1': 'speed' is not known; "
                                                   "allowed is {}",
                                                   kAbstractCodecPattern));
}

TEST(AbstractCodec, IsPutTogetherAfterCommas) {
  std::vector<std::string> names = {"fp16",   "bits=4",       "encode_ops=9",
                                    "bits=5", "decode_ops=1", "qr-q4"};
  join_codecs(names);
  EXPECT_EQ(names, (std::vector<std::string>{"fp16", "bits=4,encode_ops=9", "bits=5,decode_ops=1",
                                             "qr-q4"}));
}

TEST(AbstractCodec, WiresAreAsLongAsWasMeasured) {
  const CodecPtr codec = find_codec("lossless-e3-g64");
  const CodecPtr measured = with_measured_wires(codec, 11.5);
  EXPECT_EQ(measured->wire_bytes(DType::bf16, 4096), 4096 * 115 / 80);
  EXPECT_EQ(measured->info().cost.encode_ops_per_element,
            codec->info().cost.encode_ops_per_element);
  // Short messages have a bound that is below.
  const CodecPtr long_ones = with_measured_wires(codec, 19.1);
  EXPECT_LE(long_ones->wire_bytes(DType::bf16, 4096), codec->wire_bytes(DType::bf16, 4096));
  for (const double bits : {0.0, -1.0, 99.0, std::nan("")}) {
    EXPECT_THROW(with_measured_wires(codec, bits), InvalidInput) << bits;
  }
}

TEST(CodecsByPlace, ArePutTogetherAfterCommas) {
  std::vector<std::string> names = {"rs=bf16", "ag=qr-q4", "rs=fp16", "ag=qr-q8", "qr-q4"};
  join_codecs(names);
  EXPECT_EQ(names, (std::vector<std::string>{"rs=bf16,ag=qr-q4", "rs=fp16,ag=qr-q8", "qr-q4"}));
}

/// Checks kernels/README.md on codecs that measure first.
TEST(TwoPasses, AreOfScalesOverMoreThanATile) {
  for (const char* name : {"nvfp4", "nvfp4-vllm", "nvfp4-te", "int8-gtensor", "had-int4-g512",
                           "int4-g512-sr", "int4-g24", "logfmt4-g4096"}) {
    EXPECT_TRUE(measures_first(find_codec(name)->info().cost)) << name;
  }
  for (const char* name : {"fp16", "qr-q4", "int4-g32", "int8-g128", "mxfp4", "logfmt4-g128",
                           "int4-g512", "logfmt4-g2048", "int8-gtensor-sym-static0.05"}) {
    EXPECT_FALSE(measures_first(find_codec(name)->info().cost)) << name;
  }
}

}  // namespace
}  // namespace arlab
