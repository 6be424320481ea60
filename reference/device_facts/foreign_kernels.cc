// fp8-e4m3-g<G>-flashinfer, -torchft and -vllm, int8-g<G>-vllm: codes of 8 bits with an fp32 scale per G elements, as the kernels
// of other people's all-reduces make them on NVIDIA GPUs. SPEC.md, "Scaled blocks as other kernels make them (-flashinfer, -torchft, -vllm)".
//
// What differs from fp8-e4m3-g<G> is the arithmetic of the scale, the division, and what becomes of NaN and infinities: other
// kernels look for the largest magnitude among what is not NaN, and say nothing of a block that holds one.

#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/codecs/name_parts.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/scaled_format.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/device_facts/gpu_reciprocal.h"
#include "reference/formats/fp8.h"

namespace arlab {
namespace {

constexpr std::size_t kMostElements = std::size_t{1} << 24;

/// The maker of kernels, and its peculiarities.
struct Maker {
  std::string_view suffix;
  std::string_view name;
  std::string_view source;
  bool integers = false;  ///< codes are integers, truncated; else e4m3
  bool divides = false;   ///< the factor travels, and values are divided by it
  bool rows = false;      ///< a block's scale is before its codes; else all scales are behind
  float least = 1e-12F;   ///< magnitudes count as at least that
  bool limits = true;     ///< values are limited before they are converted, NaN with them
};
constexpr Maker kMakers[] = {
    {"-flashinfer", "FlashInfer", "FlashInfer quantized_allreduce.py"},
    {"-torchft", "torchft", "torchft quantization.py", false, true, true, 0, false},
    {"-vllm", "vLLM's pull request 39783", "vLLM#39783", false, true},
    {"-vllm", "vLLM's pull request 39783", "vLLM#39783", true, true},
};

class ForeignCodec final : public Codec {
 public:
  ForeignCodec(std::string name, std::size_t group, const Maker& maker)
      : Codec({.name = std::move(name),
               .summary = fmt::format("{} elements, fp32 scale per {}, as {} makes them",
                                      maker.integers ? "8-bit" : "e4m3", group, maker.name),
               .source = std::string(maker.source),
               .dtypes = {DType::fp16, DType::bf16, DType::fp32},
               .block = group,
               .alignment = group,
               .is_dtype_independent = true,
               .fp32_values = Fp32Values::unrounded,
               .cost = {.encode_ops_per_element = 7, .decode_ops_per_element = 5}}),
        group_(group),
        maker_(maker) {}

 private:
  // A row has its scale, then codes, filled up to four bytes; a last row that is shorter is as long as the others.
  std::size_t row_bytes() const { return 4 + (group_ + 3) / 4 * 4; }
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    const std::size_t groups = blocks_of(elements, group_);
    return maker_.rows ? groups * row_bytes() : elements + groups * sizeof(float);
  }

  /// Where in a wire a group's codes and its scale begin.
  std::size_t codes_at(std::size_t g) const {
    return maker_.rows ? g * row_bytes() + 4 : g * group_;
  }
  std::size_t scale_at(std::size_t g, std::size_t elements) const {
    return maker_.rows ? g * row_bytes() : elements + g * sizeof(float);
  }

  /// The largest value of a code.
  float largest() const { return maker_.integers ? 127 : 448; }

  std::uint8_t code_of(float value, EncodeCounts& counts) const {
    // A conversion makes NaN of NaN; a limit makes the largest of it.
    if (std::isnan(value) && !maker_.limits) return 0x7F;
    const float x = std::isnan(value) ? largest() : value;
    if (!maker_.integers) {
      const ScaledCode code = minifloat_code(kE4m3fn, x);
      counts.clamped += code.clamped ? 1 : 0;
      return static_cast<std::uint8_t>(code.bits);
    }
    counts.clamped += std::abs(x) > largest() ? 1 : 0;
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(limited(x, largest())));
  }
  float value_of(std::uint32_t code) const {
    return maker_.integers ? static_cast<float>(static_cast<std::int8_t>(code))
                           : minifloat_to_float(kE4m3fn, code);
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    if (maker_.rows) std::ranges::fill(wire, std::byte{0});
    for (std::size_t g = 0; g < blocks_of(elements, group_); ++g) {
      const std::size_t begin = g * group_;
      const std::size_t size = std::min(group_, elements - begin);
      float amax = maker_.least;
      for (std::size_t i = 0; i < size; ++i) {
        // A NaN is no larger than anything.
        const float magnitude = std::abs(load_value(dtype, payload, begin + i));
        if (magnitude > amax) amax = magnitude;
      }
      const float quotient = gpu_divide(largest(), amax);
      const float factor = maker_.least == 0 && std::isinf(quotient) ? 1.0F : quotient;
      const float scale = maker_.divides ? factor : amax * (1.0F / largest());
      for (std::size_t i = 0; i < size; ++i) {
        const float x = load_value(dtype, payload, begin + i) * factor;
        wire[codes_at(g) + i] = std::byte{code_of(x, counts)};
      }
      std::byte* out = &wire[scale_at(g, elements)];
      put(out, scale);
    }
  }

  /// Calls f(index, value of the code, scale) for every element.
  template <class F>
  void for_each_code(std::size_t elements, std::span<const std::byte> wire, F&& f) const {
    for (std::size_t g = 0; g < blocks_of(elements, group_); ++g) {
      const std::byte* in = &wire[scale_at(g, elements)];
      const auto scale = take<float>(in);
      for (std::size_t i = 0; i < std::min(group_, elements - g * group_); ++i) {
        const auto code = std::to_integer<std::uint32_t>(wire[codes_at(g) + i]);
        f(g * group_ + i, value_of(code), scale);
      }
    }
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    for_each_code(payload.size() / size_of(dtype), wire,
                  [&](std::size_t i, float value, float scale) {
                    const float decoded = maker_.divides ? gpu_divide(value, scale) : value * scale;
                    store_value(dtype, decoded, payload, i);
                  });
  }

  void do_decode_fma(DType, std::span<const std::byte> wire, std::span<float> sum) const override {
    for_each_code(sum.size(), wire, [&](std::size_t i, float value, float scale) {
      if (!maker_.divides) {
        sum[i] = std::fma(value, scale, sum[i]);
        return;
      }
      // GPUs scale both sides of a division, so that the reciprocal of a large number is no subnormal one. A row with scale 0
      // was never filled.
      const float shift = scale > 0x1p126F ? 0.25F : 1.0F;
      const float divisor = maker_.rows && scale == 0 ? 1.0F : scale * shift;
      const auto reciprocal = static_cast<float>(gpu_reciprocal(divisor));
      sum[i] = std::fma(value * shift, reciprocal, sum[i]);
    });
  }

  std::size_t group_;
  Maker maker_;
};

}  // namespace

CodecFamily foreign_codecs() {
  CodecFamily family;
  family.pattern =
      "fp8-e4m3-g<G>-flashinfer, fp8-e4m3-g<G>-torchft, fp8-e4m3-g<G>-vllm, int8-g<G>-vllm";
  family.find = [](std::string_view name) -> CodecPtr {
    std::string_view rest = name;
    const bool integers = take(rest, "int8-g");
    if (!integers && !take(rest, "fp8-e4m3-g")) return nullptr;
    const std::optional<std::size_t> group = number_of_digits(take_digits(rest));
    const auto* const maker = std::ranges::find_if(kMakers, [&](const Maker& each) {
      return each.suffix == rest && each.integers == integers;
    });
    if (!group || maker == std::end(kMakers)) return nullptr;
    if (*group == 0 || *group > kMostElements) {
      fail("codec '{}': groups have {} elements: allowed is 1 to {}", name, *group, kMostElements);
    }
    return std::make_shared<ForeignCodec>(std::string(name), *group, *maker);
  };
  return family;
}

}  // namespace arlab
