// fp8-e4m3-token and fp8-e4m3-static<s>, for the CPU. The arithmetic stands in formats/fp8_rows.h.

#include "reference/codecs/formats/fp8_rows.h"

#include <algorithm>
#include <cmath>

#include "reference/codecs/name_parts.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/scaled_format.h"
#include "reference/codecs/wire_chunks.h"

namespace arlab {
namespace {

constexpr std::size_t kMostElements = std::size_t{1} << 24;

class Fp8RowsCodec final : public Codec {
 public:
  Fp8RowsCodec(const std::string& name, const Fp8RowsFormat& format)
      : Codec(info_of(name, format)), format_(format) {}

 private:
  static CodecInfo info_of(const std::string& name, const Fp8RowsFormat& format) {
    const std::size_t block = std::max<std::size_t>(format.row, 1);
    return {.name = name,
            .summary = format.row == 0 ? "e4m3 elements, given scale"
                                       : fmt::format("e4m3 elements, fp32 scale per {}", block),
            .source = "vLLM, csrc/quantization/w8a8/fp8/common.cu",
            .dtypes = {DType::fp16, DType::bf16, DType::fp32},
            .block = block,
            .alignment = block,
            .is_dtype_independent = true,
            .fp32_values = Fp32Values::unrounded,
            .cost = {.encode_ops_per_element = format.row == 0 ? 4.0 : 6.0,
                     .decode_ops_per_element = 2}};
  }

  std::size_t rows_of(std::size_t elements) const {
    return format_.row == 0 ? 0 : blocks_of(elements, format_.row);
  }
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return elements + rows_of(elements) * sizeof(float);
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const auto encode = [&](std::size_t i, float quotient) {
      const float value = std::isnan(quotient) ? Fp8RowsFormat::kLargest : quotient;
      const ScaledCode code = minifloat_code(kE4m3fn, value);
      counts.clamped += code.clamped ? 1 : 0;
      wire[i] = static_cast<std::byte>(code.bits);
    };
    if (format_.row == 0) {
      const float inverse = 1 / format_.given;
      for (std::size_t i = 0; i < elements; ++i) encode(i, load_value(dtype, payload, i) * inverse);
      return;
    }
    std::byte* scales = &wire[elements];
    for (std::size_t begin = 0; begin < elements; begin += format_.row) {
      const std::size_t end = std::min(begin + format_.row, elements);
      float largest = 0;
      for (std::size_t i = begin; i < end; ++i) {  // a NaN is no larger than anything
        largest = std::max(largest, std::abs(load_value(dtype, payload, i)));
      }
      const float scale = Fp8RowsFormat::scale_of(largest);
      for (std::size_t i = begin; i < end; ++i) encode(i, load_value(dtype, payload, i) / scale);
      put(scales, scale);
    }
  }

  /// Calls f(index, value of the code, scale) for every element.
  template <class F>
  void for_each_code(std::size_t elements, std::span<const std::byte> wire, F&& f) const {
    const std::byte* scales = wire.data() + elements;
    float scale = format_.given;
    for (std::size_t i = 0; i < elements; ++i) {
      if (format_.row != 0 && i % format_.row == 0) scale = take<float>(scales);
      f(i, minifloat_to_float(kE4m3fn, std::to_integer<std::uint32_t>(wire[i])), scale);
    }
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    for_each_code(payload.size() / size_of(dtype), wire, [&](std::size_t i, float code, float s) {
      store_value(dtype, code * s, payload, i);
    });
  }
  void do_decode_fma(DType, std::span<const std::byte> wire, std::span<float> sum) const override {
    for_each_code(sum.size(), wire,
                  [&](std::size_t i, float code, float s) { sum[i] = std::fma(code, s, sum[i]); });
  }

  Fp8RowsFormat format_;
};

}  // namespace

std::optional<Fp8RowsFormat> parse_fp8_rows(std::string_view name) {
  std::string_view rest = name;
  if (take(rest, "fp8-e4m3-static")) return Fp8RowsFormat{0, parse_scale(name, rest)};
  if (!take(rest, "fp8-e4m3-token")) return std::nullopt;
  if (rest.empty()) {
    fail("codec '{}': nothing says how long a row is: write {}<elements>", name, name);
  }
  const std::optional<std::size_t> row = number_of_digits(take_digits(rest));
  if (!row || !rest.empty() || *row > kMostElements) {
    fail("codec '{}': the elements of a row are no number from 1 to {}", name, kMostElements);
  }
  return Fp8RowsFormat{*row, 0};
}

CodecFamily fp8_rows_codecs() {
  return {.pattern = "fp8-e4m3-token[<elements of a row>], fp8-e4m3-static<scale>",
          .listed = {},
          .find = [](std::string_view name) -> CodecPtr {
            const std::optional<Fp8RowsFormat> format = parse_fp8_rows(name);
            return format ? std::make_shared<Fp8RowsCodec>(std::string(name), *format) : nullptr;
          }};
}

}  // namespace arlab
