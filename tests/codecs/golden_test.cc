// The wire formats never change silently: golden/ holds fixed inputs, their wires and what these
// decode to, written by the NumPy oracle (golden/README.md).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/codecs/round_trip.h"

namespace arlab::testing {
namespace {

Bytes golden(const std::string& name) {
  std::ifstream file(std::filesystem::path(ARLAB_GOLDEN_DIRECTORY) / name, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(content));
  return {bytes.begin(), bytes.end()};
}

/// The codecs that have golden files.
std::vector<std::string> golden_codecs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ARLAB_GOLDEN_DIRECTORY)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".wire.bin")) names.push_back(name.substr(0, name.find('.')));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

class Golden : public ::testing::TestWithParam<CodecAndDType> {
 protected:
  const Codec& codec() const { return *GetParam().codec; }
  DType dtype() const { return GetParam().dtype; }
  Bytes input() const { return golden(fmt::format("{}.input.bin", name_of(dtype()))); }
  Bytes part(const char* name) const {
    return golden(fmt::format("{}.{}.{}.bin", codec().name(), name_of(dtype()), name));
  }
};

TEST_P(Golden, Encode) {
  ASSERT_EQ(input().size(), (2048 + 37) * size_of(dtype()));
  EXPECT_EQ(encode(codec(), dtype(), input()), part("wire"));
}

TEST_P(Golden, Decode) {
  EXPECT_EQ(decode_bytes(codec(), dtype(), part("wire"), 2048 + 37), part("decoded"));
}

INSTANTIATE_TEST_SUITE_P(All, Golden, ::testing::ValuesIn(with_their_dtypes(golden_codecs())),
                         test_name);

TEST(GoldenFiles, CoverThePlainAndTheQuickReduceCodecs) {
  const std::vector<std::string> names = golden_codecs();
  for (const std::string name :
       {"fp32", "fp16", "bf16", "qr-fp8", "qr-q8", "qr-q6", "qr-q4", "qr-q3", "qr-fp4"}) {
    EXPECT_TRUE(std::ranges::binary_search(names, name)) << name;
  }
}

}  // namespace
}  // namespace arlab::testing
