// Whether the accelerated codecs of a processor have the bits of the scalar ones and of the golden
// vectors: a program of its own, without GoogleTest, that is built for another processor than this
// machine's and run by an emulator. accelerated_test asks more, of this machine's.
//
//   same_bits GOLDEN_DIRECTORY [CODEC ...]      exit code 0: the same; 3: not, and a line for each
#include "tests/codecs/simd/same_bits.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"

namespace arlab::testing {
namespace {

Bytes content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Whether the accelerated codec writes and reads the golden vectors; false where there are none.
bool has_golden_bits(const std::filesystem::path& golden, const Codec& fast, DType dtype) {
  const std::string of = fast.name() + "." + std::string(name_of(dtype));
  const Bytes wire = content(golden / (of + ".wire.bin"));
  const Bytes decoded = content(golden / (of + ".decoded.bin"));
  Bytes input = content(golden / (std::string(name_of(dtype)) + ".input.bin"));
  input.resize(decoded.size());
  Bytes actual(wire.size());
  fast.encode(dtype, input, actual);
  if (wire.empty() || actual != wire) return false;
  actual.assign(decoded.size(), std::byte{});
  fast.decode(dtype, wire, actual);
  return actual == decoded;
}

/// Without names: all that have golden vectors.
int same_bits(const std::filesystem::path& golden, std::set<std::string> names) {
  const bool only = !names.empty();
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    const std::string file = entry.path().filename().string();
    const std::size_t dtype = file.rfind('.', file.size() - std::string(".wire.bin").size() - 1);
    if (!only && file.ends_with(".wire.bin")) names.insert(file.substr(0, dtype));
  }
  int with_vectors = 0;
  int wrong = 0;
  const auto report = [&](const Codec& codec, DType dtype, const std::string& what) {
    if (++wrong > 20) return;
    std::printf("%s %s: %s\n", codec.name().c_str(), std::string(name_of(dtype)).c_str(),
                what.c_str());
  };
  for (const std::string& name : names) {
    const CodecPtr scalar = find_codec(name);
    const CodecPtr fast = accelerated(scalar);
    with_vectors += fast != scalar ? 1 : 0;  // a codec that is as it was would prove nothing
    for (const DType dtype : scalar->info().dtypes) {
      if (!has_golden_bits(golden, *fast, dtype)) report(*scalar, dtype, "the golden vectors");
      for (const std::string& what : SameBits(*fast, *scalar, dtype, false).differences())
        report(*scalar, dtype, what);
    }
  }
  std::printf("%zu codecs, %d of them with vectors; %d wrong\n", names.size(), with_vectors, wrong);
  return wrong == 0 && with_vectors > 0 ? 0 : 3;
}

}  // namespace
}  // namespace arlab::testing

int main(int argc, char** argv) {
  if (argc >= 2) return arlab::testing::same_bits(argv[1], {argv + 2, argv + argc});
  std::fprintf(stderr, "usage: same_bits GOLDEN_DIRECTORY [CODEC ...]\n");
  return 2;
}
