// A codec of a header in blocks whose scales end inside a word, with a parameter that changes its width, and with names that kernels
// use for something else.
#pragma once

#include <charconv>
#include <limits>
#include <string>
#include <string_view>

#include "reference/codecs/scaled_format.h"
#include "reference/formats/e8m0.h"

namespace arlab::tests {

struct WideCodec final {
  static constexpr std::size_t kBlock = 256;
  using Scale = std::uint8_t;
  static constexpr unsigned kBits = 3;
  static constexpr int kLargestInteger = 1;
  static constexpr float kIntegersPerUnit = 64;
  constexpr void begin() const {}

  bool away = false;
  unsigned width = 5;

  constexpr unsigned bits() const { return width; }
  constexpr float most() const { return static_cast<float>((1U << (width - 1)) - 1); }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    if (largest == 0) return {};
    const Scale scale = e8m0_from_exponent(floor_log2(largest) + 2 - static_cast<int>(width));
    return {scale, e8m0_reciprocal(scale)};
  }
  constexpr Scale nan_scale() const { return kE8m0Nan; }

  constexpr ScaledCode quantize(float x, float factor) const {
    const float v = x * factor;
    const float q = away ? round_to_even(v < 0 ? v - 0.25F : v + 0.25F) : round_to_even(v);
    const float code = q > most() ? most() : q < -most() ? -most() : q;
    const std::uint32_t mask = (1U << width) - 1;
    return {static_cast<std::uint32_t>(static_cast<int>(code)) & mask, code != q};
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    const int range = 1 << width;
    const int number = static_cast<int>(code);
    return static_cast<float>(2 * number < range ? number : number - range) * e8m0_to_float(scale);
  }

  static CodecInfo info(const std::string& name) {
    return {.name = name,
            .summary = "integers, E8M0 scale per 256",
            .source = "tests",
            .dtypes = {},
            .clamps_fp16_sums = true,
            .cost = {.encode_ops_per_element = 6, .decode_ops_per_element = 3}};
  }
  static std::vector<std::string> listed() {
    std::vector<std::string> names;
    for (const int width : {5, 8}) names.push_back("wide" + std::to_string(width) + "-g256");
    names.emplace_back("wide5-g256-away");
    return names;
  }
  static std::optional<WideCodec> parse(std::string_view name) {
    if (!name.starts_with("wide")) return std::nullopt;
    name.remove_prefix(4);
    WideCodec codec;
    codec.width = 0;
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data(), end, codec.width);
    const std::string_view rest(at, static_cast<std::size_t>(end - at));
    codec.away = rest == "-g256-away";
    const bool is_known = codec.away || rest == "-g256";
    const bool is_number = error == std::errc() && codec.width >= 2 && codec.width <= 8;
    return is_known && is_number ? std::optional(codec) : std::nullopt;
  }
};

}  // namespace arlab::tests
