// convert_stream FORMAT to|from [ieee|saturate]: converts raw little-endian arrays from stdin to
// stdout, codes to fp32 or fp32 to codes, for a test that has other implementations to compare.
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "reference/formats/bfloat16.h"
#include "reference/formats/e8m0.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"
#include "reference/formats/half.h"

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

template <typename Code, typename ToFloat, typename FromFloat>
int convert(bool to_fp32, ToFloat to_float, FromFloat from_float) {
  return to_fp32 ? convert_stdin<Code, float>(to_float) : convert_stdin<float, Code>(from_float);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view format = argc > 1 ? argv[1] : "";
  const std::string_view direction = argc > 2 ? argv[2] : "";
  const std::string_view variant = argc > 3 ? argv[3] : "ieee";
  const bool to_fp32 = direction == "to";
  const Overflow overflow = variant == "ieee" ? Overflow::ieee : Overflow::saturate;
  const bool known =
      (to_fp32 || direction == "from") && (variant == "ieee" || variant == "saturate");

  using Code8 = std::uint8_t;
  using Code16 = std::uint16_t;
  if (known && format == "half") {
    return convert<Code16>(to_fp32, arlab::half_to_float,
                           [=](float value) { return arlab::half_from_float(value, overflow); });
  }
  if (known && format == "bfloat16") {
    return convert<Code16>(to_fp32, arlab::bfloat16_to_float, [=](float value) {
      return arlab::bfloat16_from_float(value, overflow);
    });
  }
  if (known && format == "e4m3fn") {
    return convert<Code8>(to_fp32, arlab::e4m3fn_to_float,
                          [=](float value) { return arlab::e4m3fn_from_float(value, overflow); });
  }
  if (known && format == "e4m3fnuz") {
    return convert<Code8>(to_fp32, arlab::e4m3fnuz_to_float,
                          [=](float value) { return arlab::e4m3fnuz_from_float(value, overflow); });
  }
  if (known && format == "e5m2") {
    return convert<Code8>(to_fp32, arlab::e5m2_to_float,
                          [=](float value) { return arlab::e5m2_from_float(value, overflow); });
  }
  if (known && format == "e2m3") {
    return convert<Code8>(to_fp32, arlab::e2m3_to_float, arlab::e2m3_from_float);
  }
  if (known && format == "e3m2") {
    return convert<Code8>(to_fp32, arlab::e3m2_to_float, arlab::e3m2_from_float);
  }
  if (known && format == "e2m1") {
    return convert<Code8>(to_fp32, arlab::e2m1_to_float, arlab::e2m1_from_float);
  }
  if (known && format == "e8m0") {
    return convert<Code8>(to_fp32, arlab::e8m0_to_float, arlab::e8m0_from_float);
  }
  std::fputs(
      "usage: convert_stream half|bfloat16|e4m3fn|e4m3fnuz|e5m2|e2m3|e3m2|e2m1|e8m0 to|from "
      "[ieee|saturate]\n",
      stderr);
  return 2;
}
