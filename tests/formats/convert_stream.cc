// convert_stream FORMAT to|from [ieee|saturate]: converts raw little-endian arrays from stdin to
// stdout, codes to fp32 or fp32 to codes, for a test that has other implementations to compare.
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/formats/conversions.h"

static_assert(std::endian::native == std::endian::little, "the streams are little-endian");

namespace {

using arlab::Overflow;

template <typename In, typename Out, typename Convert>
int convert_stdin(Convert convert) {
  static std::array<In, 65536> input;
  static std::array<Out, 65536> output;
  for (;;) {
    const std::size_t count = std::fread(input.data(), sizeof(In), input.size(), stdin);
    if (count == 0) break;
    for (std::size_t i = 0; i < count; ++i) output[i] = convert(input[i]);
    if (std::fwrite(output.data(), sizeof(Out), count, stdout) != count) return EXIT_FAILURE;
  }
  return std::ferror(stdin) != 0 || std::fflush(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view format = argc > 1 ? argv[1] : "";
  const std::string_view direction = argc > 2 ? argv[2] : "";
  const std::string_view variant = argc > 3 ? argv[3] : "ieee";
  const bool to_fp32 = direction == "to";
  const Overflow overflow = variant == "ieee" ? Overflow::ieee : Overflow::saturate;
  int result = -1;
  if ((to_fp32 || direction == "from") && (variant == "ieee" || variant == "saturate")) {
    arlab::testing::for_each_format([&](std::string_view name, auto to_float, auto from_float) {
      using Code = decltype(from_float(0.0f, overflow));
      if (name != format) return;
      result = to_fp32 ? convert_stdin<Code, float>(to_float)
                       : convert_stdin<float, Code>(
                             [=](float value) { return from_float(value, overflow); });
    });
  }
  if (result >= 0) return result;
  std::fputs(
      "usage: convert_stream half|bfloat16|e4m3fn|e4m3fnuz|e5m2|e2m3|e3m2|e2m1|e8m0 to|from "
      "[ieee|saturate]\n",
      stderr);
  return 2;
}
