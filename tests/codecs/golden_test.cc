// The wire formats never change silently: golden/ holds fixed inputs, their wires and what these
// decode to, written by the NumPy oracle (golden/README.md).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/codecs/round_trip.h"
#include "tests/words.h"

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
    if (!name.ends_with(".wire.bin")) continue;
    const std::size_t dtype = name.rfind('.', name.size() - std::string(".wire.bin").size() - 1);
    names.push_back(name.substr(0, dtype));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

class Golden : public ::testing::TestWithParam<CodecAndDType> {
 protected:
  const Codec& codec() const { return *GetParam().codec; }
  DType dtype() const { return GetParam().dtype; }
  /// One NaN spoils all of a codec whose block is the tensor: it gets the first group only.
  std::size_t elements() const {
    return codec().name().find("gtensor") != std::string::npos ? 64 : 2048 + 37;
  }
  Bytes input() const {
    Bytes all = golden(fmt::format("{}.input.bin", name_of(dtype())));
    EXPECT_EQ(all.size(), (2048 + 37) * size_of(dtype()));
    all.resize(elements() * size_of(dtype()));
    return all;
  }
  Bytes part(const char* name) const {
    return golden(fmt::format("{}.{}.{}.bin", codec().name(), name_of(dtype()), name));
  }
};

TEST_P(Golden, Encode) { EXPECT_EQ(encode(codec(), dtype(), input()), part("wire")); }

TEST_P(Golden, Decode) {
  EXPECT_EQ(decode_bytes(codec(), dtype(), part("wire"), elements()), part("decoded"));
}

INSTANTIATE_TEST_SUITE_P(All, Golden, ::testing::ValuesIn(with_their_dtypes(golden_codecs())),
                         test_name);

TEST(GoldenFiles, CoverEveryFamily) {
  const std::vector<std::string> names = golden_codecs();
  for (const std::string& name :
       words("fp32 fp16 bf16 qr-fp8 qr-q8 qr-q6 qr-q4 qr-q3 qr-fp4 int8-g128 int5-g128 int4-g32 "
             "int4-g32-sym int2-g32-sr "
             "int2-g32-sr-is had-int4-g32 int8-gtensor int8-gtensor-sym-static0.05 logfmt4-g32 "
             "mxfp8-e4m3 mxfp6-e2m3 mxfp4 "
             "mxfp4-ceil mxfp4-even mxfp4-rceil mxint8 fp8-e4m3-g128 fp8-e4m3-g64-torch "
             "fp8-e4m3-g256 nvfp4 nvfp4-vllm nvfp4-te nvfp4-te-4over6 "
             "nvfp4-ts0.75 nvfp4-vllm-ts0.75")) {
    EXPECT_TRUE(std::ranges::binary_search(names, name)) << name;
  }
}

}  // namespace
}  // namespace arlab::testing
