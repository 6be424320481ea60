#include "reference/tensors/safetensors.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/refusal.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab {
namespace {

/// A file with this JSON and this many bytes of data (0, 1, 2, ...).
std::string safetensors(const std::string& json, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(json.size() >> (8 * i));
  file += json;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

const std::string kTwo = R"({"__metadata__":{"format":"pt"},)"
                         R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
                         R"("a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}})";

std::string refusal(const std::string& bytes, std::string_view name = "") {
  const TemporaryDirectory directory;
  const auto path = directory.write("in.safetensors", bytes);
  const std::string message = message_of([&] { read_safetensors(path, name); });
  EXPECT_TRUE(message.starts_with(path.string() + ": ")) << message;
  return message.substr(std::min(message.size(), path.string().size() + 2));
}

TEST(Safetensors, ListsInTheOrderOfTheBytes) {
  const TemporaryDirectory directory;
  const auto entries = list_safetensors(directory.write("f", safetensors(kTwo, 16)));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].dtype, "BF16");
  EXPECT_EQ(entries[0].shape, (std::vector<std::size_t>{2, 2}));
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].begin, 8u);
  EXPECT_EQ(entries[1].end, 16u);
}

TEST(Safetensors, WithoutANameTheNamesAreListed) {
  EXPECT_EQ(refusal(safetensors(kTwo, 16)), "name one of its 2 tensors: a, b");
  EXPECT_EQ(refusal(safetensors(kTwo, 16), "c"), "no tensor 'c': there are a, b");
  EXPECT_EQ(refusal(safetensors("{}", 0)), "name one of its 0 tensors: none");
  std::string many = "{";
  for (int i = 0; i < 300; ++i) {
    many += fmt::format(R"({}"layer.{:03}":{{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
                        i == 0 ? "" : ",", i);
  }
  EXPECT_EQ(refusal(safetensors(many + "}", 0)),
            "name one of its 300 tensors: layer.000, layer.001, layer.002, layer.003, layer.004, "
            "layer.005, layer.006, layer.007, layer.008, layer.009, layer.010, layer.011, "
            "layer.012, layer.013, ... (300 in all)");
  EXPECT_EQ(refusal(safetensors(many + "}", 0), "layers.007"),
            "no tensor 'layers.007': did you mean 'layer.007'?");
}

TEST(Safetensors, OtherDTypesAreListedButNotRead) {
  const std::string json = R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  const TemporaryDirectory directory;
  EXPECT_EQ(list_safetensors(directory.write("f", safetensors(json, 8)))[0].dtype, "I64");
  EXPECT_EQ(refusal(safetensors(json, 8)),
            "tensor 'ids' is of dtype 'I64': allowed are F16, BF16 and F32");
}

TEST(Safetensors, ByteRangesMustFit) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return R"({"x":{"dtype":"F16","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(refusal(safetensors(one("[2]", "[0,4]"), 3)),
            "tensor 'x': its bytes are 0 to 4: allowed is from 0, and at most to 3");
  EXPECT_EQ(refusal(safetensors(one("[2]", "[0,4]"), 5)),
            "the tensors end at byte 4 of 5 bytes of data");
  EXPECT_EQ(refusal(safetensors(one("[2]", "[1,5]"), 5)),
            "tensor 'x': its bytes are 1 to 5: allowed is from 0, and at most to 5");
  EXPECT_EQ(
      refusal(safetensors(one("[2]", "[0,18446744073709551615]"), 4)),
      "tensor 'x': its bytes are 0 to 18446744073709551615: allowed is from 0, and at most to "
      "4");
  EXPECT_EQ(refusal(safetensors(one("[3]", "[0,4]"), 4)),
            "tensor 'x': 4 bytes are not what F16 '(3,)' needs");
  EXPECT_EQ(refusal(safetensors(one("[4611686018427387904,4]", "[0,0]"), 0)),
            "tensor 'x': 0 bytes are not what F16 '(4611686018427387904, 4)' needs");
  EXPECT_EQ(refusal(safetensors(R"({"x":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
                                R"("y":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
                                3)),
            "tensor 'y': its bytes are 1 to 3: allowed is from 2, and at most to 3");
}

TEST(Safetensors, MalformedEntriesAreRefused) {
  const std::string shape =
      "tensor 'x': 'shape' is missing or not an array of non-negative integers";
  const std::string offsets = "tensor 'x': 'data_offsets' is missing or not two integers";
  const auto entry = [](const std::string& json) {
    return refusal(safetensors(R"({"x":)" + json + "}", 0));
  };
  EXPECT_EQ(entry("1"), "tensor 'x': its entry is not a JSON object");
  EXPECT_EQ(entry("{}"), "tensor 'x': 'dtype' is missing or not a string");
  EXPECT_EQ(entry(R"({"dtype":1})"), "tensor 'x': 'dtype' is missing or not a string");
  EXPECT_EQ(entry(R"({"dtype":"F16"})"), shape);
  EXPECT_EQ(entry(R"({"dtype":"F16","shape":[-1]})"), shape);
  EXPECT_EQ(entry(R"({"dtype":"F16","shape":[1.5]})"), shape);
  EXPECT_EQ(entry(R"({"dtype":"F16","shape":[18446744073709551616]})"), shape);
  EXPECT_EQ(entry(R"({"dtype":"F16","shape":[0]})"), offsets);
  EXPECT_EQ(entry(R"({"dtype":"F16","shape":[0],"data_offsets":[0]})"), offsets);
  EXPECT_EQ(entry(R"({"dtype":"F16","shape":[0],"data_offsets":[0,-1]})"), offsets);
}

TEST(Safetensors, MalformedHeadersAreRefused) {
  EXPECT_EQ(refusal("1234567"), "not a .safetensors file: shorter than 8 bytes");
  EXPECT_EQ(refusal("12345678 a file of text"),
            "the .safetensors header claims 4050765991979987505 bytes: allowed are at most "
            "100000000, and 15 follow");
  EXPECT_EQ(refusal(safetensors("", 0)), "the .safetensors header is not a JSON object");
  EXPECT_EQ(refusal(safetensors("[]", 0)), "the .safetensors header is not a JSON object");
  EXPECT_EQ(refusal(safetensors(R"({"x":)", 0)), "the .safetensors header is not a JSON object");
  EXPECT_EQ(refusal(safetensors(R"({"x":1,"x":1})", 0)), "the .safetensors header names 'x' twice");
  EXPECT_EQ(refusal(safetensors(R"({"x":{"shape":[[1]]}})", 0)),
            "the .safetensors header nests too deep");
  EXPECT_EQ(refusal(safetensors(std::string(1000000, '['), 0)),
            "the .safetensors header nests too deep");
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = safetensors(kTwo, 16);
  for (std::size_t size = 0; size < whole.size(); ++size) refusal(whole.substr(0, size), "a");
}

}  // namespace
}  // namespace arlab
