// fp8-e4m3-g<G>-flashinfer and -torchft: e4m3fn codes with an fp32 scale per G elements, as FlashInfer's and torchft's kernels
// make them on NVIDIA GPUs. SPEC.md, "Scaled FP8 blocks as other kernels make them".
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
#include "reference/formats/fp8.h"
#include "reference/formats/gpu_reciprocal.h"

namespace arlab {
namespace {

constexpr std::size_t kMostElements = std::size_t{1} << 24;
constexpr float kLargest = 448;

class ForeignFp8Codec final : public Codec {
 public:
  ForeignFp8Codec(std::string name, std::size_t group, bool torchft)
      : Codec({.name = std::move(name),
               .summary = fmt::format("e4m3 elements, fp32 scale per {}, as {} makes them", group,
                                      torchft ? "torchft" : "FlashInfer"),
               .source = torchft ? "torchft quantization.py" : "FlashInfer quantized_allreduce.py",
               .dtypes = {DType::fp16, DType::bf16, DType::fp32},
               .block = group,
               .alignment = group,
               .is_same_in_fp32 = true,
               .cost = {.encode_ops_per_element = 7, .decode_ops_per_element = 5}}),
        group_(group),
        torchft_(torchft) {}

 private:
  // FlashInfer: codes, then scales. torchft: of each row its scale, then codes, filled up to four bytes; a last row that is
  // shorter is as long as the others.
  std::size_t row_bytes() const { return 4 + (group_ + 3) / 4 * 4; }
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    const std::size_t groups = blocks_of(elements, group_);
    return torchft_ ? groups * row_bytes() : elements + groups * sizeof(float);
  }

  /// Where in a wire a group's codes and its scale begin.
  std::size_t codes_at(std::size_t g) const { return torchft_ ? g * row_bytes() + 4 : g * group_; }
  std::size_t scale_at(std::size_t g, std::size_t elements) const {
    return torchft_ ? g * row_bytes() : elements + g * sizeof(float);
  }

  static std::uint8_t code_of(float value, EncodeCounts& counts) {
    const ScaledCode code = minifloat_code(kE4m3fn, value);
    counts.clamped += code.clamped ? 1 : 0;
    return static_cast<std::uint8_t>(code.bits);
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    if (torchft_) std::ranges::fill(wire, std::byte{0});
    for (std::size_t g = 0; g < blocks_of(elements, group_); ++g) {
      const std::size_t begin = g * group_;
      const std::size_t size = std::min(group_, elements - begin);
      float largest = torchft_ ? 0.0F : 1e-12F;
      for (std::size_t i = 0; i < size; ++i) {
        // A NaN is no larger than anything.
        const float magnitude = std::abs(load_value(dtype, payload, begin + i));
        if (magnitude > largest) largest = magnitude;
      }
      const float quotient = gpu_divide(kLargest, largest);
      const float factor = torchft_ && std::isinf(quotient) ? 1.0F : quotient;
      const float scale = torchft_ ? factor : largest * (1.0F / kLargest);
      for (std::size_t i = 0; i < size; ++i) {
        const float x = load_value(dtype, payload, begin + i) * factor;
        // A conversion makes NaN of NaN. FlashInfer limits values first, which makes the largest of it.
        const std::uint8_t code = !std::isnan(x) ? code_of(x, counts)
                                  : torchft_     ? std::uint8_t{0x7F}
                                                 : std::uint8_t{0x7E};
        wire[codes_at(g) + i] = std::byte{code};
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
        f(g * group_ + i, minifloat_to_float(kE4m3fn, code), scale);
      }
    }
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    for_each_code(payload.size() / size_of(dtype), wire,
                  [&](std::size_t i, float value, float scale) {
                    const float decoded = torchft_ ? gpu_divide(value, scale) : value * scale;
                    store_value(dtype, decoded, payload, i);
                  });
  }

  void do_decode_fma(std::span<const std::byte> wire, std::span<float> sum) const override {
    for_each_code(sum.size(), wire, [&](std::size_t i, float value, float scale) {
      if (!torchft_) {
        sum[i] = std::fma(value, scale, sum[i]);
        return;
      }
      // GPUs scale both sides of a division, so that the reciprocal of a large number is no subnormal one. A row of a scale of 0
      // is one that nobody has filled.
      const float shift = scale > 0x1p126F ? 0.25F : 1.0F;
      const auto reciprocal = static_cast<float>(gpu_reciprocal(scale == 0 ? 1.0F : scale * shift));
      sum[i] = std::fma(value * shift, reciprocal, sum[i]);
    });
  }

  std::size_t group_;
  bool torchft_;
};

}  // namespace

CodecFamily foreign_fp8_codecs() {
  CodecFamily family;
  family.pattern = "fp8-e4m3-g<G>-flashinfer, fp8-e4m3-g<G>-torchft";
  family.find = [](std::string_view name) -> CodecPtr {
    std::string_view rest = name;
    if (!take(rest, "fp8-e4m3-g")) return nullptr;
    const std::optional<std::size_t> group = number_of_digits(take_digits(rest));
    const bool torchft = rest == "-torchft";
    if (!group || (!torchft && rest != "-flashinfer")) return nullptr;
    if (*group == 0 || *group > kMostElements) {
      fail("codec '{}': groups have {} elements: allowed is 1 to {}", name, *group, kMostElements);
    }
    return std::make_shared<ForeignFp8Codec>(std::string(name), *group, torchft);
  };
  return family;
}

}  // namespace arlab
