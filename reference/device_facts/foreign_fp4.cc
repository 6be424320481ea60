// nvfp4-g<R>-flashinfer: rows of R elements as FlashInfer's cake_fp4_allreduce sends them: e2m1 with an e4m3 scale per 16 and an
// fp32 scale per row. reference/codecs/SPEC.md, "Records of rows (nvfp4-g-flashinfer)".

#include <algorithm>
#include <cmath>

#include "reference/codecs/name_parts.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/scaled_format.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp8.h"

namespace arlab {
namespace {

constexpr std::size_t kBlock = 16;
constexpr std::size_t kMostElements = std::size_t{1} << 24;
constexpr float kLargest = 6 * 448;  // the largest element times the largest scale of a block

/// The largest magnitude of what is not NaN.
float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float each : x) largest = std::max(largest, std::abs(each));
  return largest;
}

class Fp4Records final : public Codec {
 public:
  Fp4Records(const std::string& name, std::size_t row)
      : Codec({.name = name,
               .summary = fmt::format("e2m1 elements, e4m3 scale per 16, fp32 scale per {}", row),
               .source = "FlashInfer 0.7.4 cake_fp4_allreduce",
               .dtypes = {DType::fp16, DType::bf16, DType::fp32},
               .block = row,
               .alignment = row,
               .is_dtype_independent = true,
               .fp32_values = Fp32Values::unrounded,
               .cost = {.encode_ops_per_element = 10, .decode_ops_per_element = 6}}),
        row_(row) {}

 private:
  /// Codes, scales of blocks, the scale of the row. A last row that is shorter is filled up with zeros.
  std::size_t row_bytes() const { return row_ / 2 + row_ / kBlock + sizeof(float); }
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return blocks_of(elements, row_) * row_bytes();
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    std::vector<float> row(row_);
    for (std::size_t begin = 0; begin < elements; begin += row_) {
      std::ranges::fill(row, 0.0F);
      for (std::size_t i = 0; i < std::min(row_, elements - begin); ++i) {
        row[i] = load_value(dtype, payload, begin + i);
      }
      encode_row(row, wire.subspan(begin / row_ * row_bytes(), row_bytes()), counts);
    }
  }
  void encode_row(std::span<const float> row, std::span<std::byte> wire,
                  EncodeCounts& counts) const {
    const float amax = largest_of(row);
    const float inverse = amax > 0 ? kLargest / amax : 0;
    for (std::size_t begin = 0; begin < row_; begin += kBlock) {
      const std::span<const float> block = row.subspan(begin, kBlock);
      const float wanted = largest_of(block) * inverse / 6;
      const auto scale = std::isnan(wanted) ? std::uint8_t{0x7F} : e4m3fn_from_float(wanted);
      const float value = e4m3fn_to_float(scale);
      const float factor = value > 0 ? inverse / value : 0;
      wire[row_ / 2 + begin / kBlock] = std::byte{scale};
      for (std::size_t i = 0; i < kBlock; i += 2) {
        const std::uint32_t low = code_of(block[i] * factor, counts);
        const std::uint32_t high = code_of(block[i + 1] * factor, counts);
        wire[(begin + i) / 2] = static_cast<std::byte>(low | high << 4);
      }
    }
    std::byte* out = &wire[row_bytes() - sizeof(float)];
    put(out, amax / kLargest);
  }
  /// A NaN becomes the largest number, and a zero has no sign.
  static std::uint32_t code_of(float value, EncodeCounts& counts) {
    const ScaledCode code = minifloat_code(kE2m1, std::isnan(value) ? 6.0F : value);
    counts.clamped += code.clamped ? 1 : 0;
    return (code.bits & 7) == 0 ? 0 : code.bits;
  }

  /// Calls f(index, value of the code, scale) for every element.
  template <class F>
  void for_each_code(std::size_t elements, std::span<const std::byte> wire, F&& f) const {
    for (std::size_t i = 0; i < elements; ++i) {
      const std::byte* const row = &wire[i / row_ * row_bytes()];
      const std::size_t at = i % row_;
      const std::byte* in = row + row_bytes() - sizeof(float);
      const auto block = std::to_integer<std::uint8_t>(row[row_ / 2 + at / kBlock]);
      const auto codes = std::to_integer<std::uint32_t>(row[at / 2]);
      f(i, minifloat_to_float(kE2m1, codes >> at % 2 * 4 & 15),
        e4m3fn_to_float(block) * take<float>(in));
    }
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    for_each_code(payload.size() / size_of(dtype), wire,
                  [&](std::size_t i, float code, float scale) {
                    store_value(dtype, code * scale, payload, i);
                  });
  }
  void do_decode_fma(DType, std::span<const std::byte> wire, std::span<float> sum) const override {
    for_each_code(sum.size(), wire, [&](std::size_t i, float code, float scale) {
      sum[i] = std::fma(code, scale, sum[i]);
    });
  }

  std::size_t row_;
};

}  // namespace

CodecFamily foreign_fp4_codecs() {
  return {.pattern = "nvfp4-g<R>-flashinfer",
          .listed = {},
          .find = [](std::string_view name) -> CodecPtr {
            std::string_view rest = name;
            if (!take(rest, "nvfp4-g")) return nullptr;
            const std::optional<std::size_t> row = number_of_digits(take_digits(rest));
            if (rest != "-flashinfer") return nullptr;
            if (!row || *row % kBlock != 0 || *row > kMostElements) {
              fail("codec '{}': rows are multiples of {} elements, up to {}", name, kBlock,
                   kMostElements);
            }
            return std::make_shared<Fp4Records>(std::string(name), *row);
          }};
}

}  // namespace arlab
