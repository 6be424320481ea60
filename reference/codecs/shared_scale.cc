// shared-int<w>-g<G>, shared-int<w>-gtensor: integers whose scales all ranks have agreed on, so that sums of values are sums of codes.
// SPEC.md, "Shared scales (shared-int)". Sources: SwitchML (Sapio et al. 2021), THC (Li et al. 2024).

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/formats/shared_integers.h"
#include "reference/codecs/name_parts.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/bfloat16.h"

namespace arlab {
namespace {

std::size_t block_of(const SharedIntegers& format) {
  return format.group == 0 ? kWholeTensor : format.group;
}

class SharedCodec final : public CodecInContext {
 public:
  SharedCodec(std::string name, SharedIntegers format)
      : CodecInContext(
            {.name = std::move(name),
             .summary = fmt::format(
                 "{}-bit integers, a scale per {} that all ranks share: sums are sums of codes",
                 format.bits,
                 format.group == 0 ? "message" : fmt::format("{} elements", format.group)),
             .source = "after SwitchML, THC",
             .dtypes = {DType::fp16, DType::bf16, DType::fp32},
             .block = block_of(format),
             .alignment = format.group == 0 ? 1 : format.group,
             .splits_at_alignment = format.group != 0,
             .uses_context = true,
             .shares_scales = true,
             .adds_codes = true,
             .is_dtype_independent = true,
             .fp32_values = Fp32Values::unrounded,
             .cost = {.encode_ops_per_element = 6, .decode_ops_per_element = 3}}),
        format_(format) {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return code_bytes(elements) + 2 * statistics_of(elements);
  }

  void do_measure(DType dtype, std::span<const std::byte> payload,
                  std::span<float> statistics) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    for (std::size_t b = 0; b < statistics.size(); ++b) {
      float largest = 0;
      for (std::size_t i = first(b); i < std::min(elements, first(b + 1)); ++i) {
        const float magnitude = std::abs(load_value(dtype, payload, i));
        if (!(magnitude <= largest)) largest = std::isnan(magnitude) ? kInfinity : magnitude;
      }
      statistics[b] = largest;
    }
  }

  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    std::vector<float> own;
    std::span<const float> largest = context.shared;
    if (largest.empty()) {
      own.resize(statistics_of(elements));
      do_measure(dtype, payload, own);
      largest = own;
    }
    const std::int32_t most = format_.largest_code();
    const std::int32_t limit = format_.limit(context.world_size);
    std::vector<std::int32_t> codes(elements);
    std::byte* scales = wire.data() + code_bytes(elements);
    for (std::size_t b = 0; b < largest.size(); ++b) {
      const std::uint16_t bits = SharedIntegers::scale_bits(largest[b], limit);
      const float scale = bfloat16_to_float(bits);
      put(scales, bits);
      for (std::size_t i = first(b); i < std::min(elements, first(b + 1)); ++i) {
        if (!(scale > 0)) continue;  // all zeros, or not finite
        const float code = std::nearbyint(load_value(dtype, payload, i) / scale);
        const float clamped = std::clamp(code, static_cast<float>(-most), static_cast<float>(most));
        codes[i] = static_cast<std::int32_t>(clamped);
        counts.clamped += clamped != code ? 1 : 0;
      }
    }
    pack(codes, wire);
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    std::vector<std::int32_t> codes(elements);
    unpack(wire, codes);
    const std::byte* scales = wire.data() + code_bytes(elements);
    for (std::size_t b = 0; b < statistics_of(elements); ++b) {
      const float scale = bfloat16_to_float(take<std::uint16_t>(scales));
      for (std::size_t i = first(b); i < std::min(elements, first(b + 1)); ++i) {
        store_value(dtype, static_cast<float>(codes[i]) * scale, payload, i);
      }
    }
  }

  void do_add_codes(DType, std::size_t elements, std::span<const std::byte> wire,
                    std::span<std::byte> sum) const override {
    if (!std::ranges::equal(wire.subspan(code_bytes(elements)),
                            sum.subspan(code_bytes(elements)))) {
      fail("codec {}: wires whose scales differ cannot be added", name());
    }
    const std::int32_t most = format_.largest_code();
    std::vector<std::int32_t> codes(elements);
    std::vector<std::int32_t> sums(elements);
    unpack(wire, codes);
    unpack(sum, sums);
    for (std::size_t i = 0; i < elements; ++i) {
      sums[i] = std::clamp(sums[i] + codes[i], -most, most);
    }
    pack(sums, sum);
  }

  /// Returns a block's first element; the whole message is block 0.
  std::size_t first(std::size_t block) const {
    if (format_.group == 0) return block == 0 ? 0 : SIZE_MAX;
    return block * format_.group;
  }

  std::size_t code_bytes(std::size_t elements) const {
    return planes_bytes(elements, format_.low_bits()) + planes_bytes(elements, format_.high_bits());
  }
  void pack(std::span<const std::int32_t> codes, std::span<std::byte> wire) const {
    std::vector<std::uint8_t> part(codes.size());
    const auto bits_from = [&](unsigned shift, unsigned bits, std::byte* out) {
      for (std::size_t i = 0; i < codes.size(); ++i) {
        part[i] = static_cast<std::uint8_t>(codes[i] >> shift & ((1 << bits) - 1));
      }
      return pack_planes(part, bits, out);
    };
    std::byte* const out = bits_from(0, format_.low_bits(), wire.data());
    if (format_.high_bits() != 0) bits_from(8, format_.high_bits(), out);
  }
  void unpack(std::span<const std::byte> wire, std::span<std::int32_t> codes) const {
    std::vector<std::uint8_t> part(codes.size());
    const std::byte* in = unpack_planes(wire.data(), format_.low_bits(), part);
    std::ranges::copy(part, codes.begin());
    if (format_.high_bits() != 0) {
      unpack_planes(in, format_.high_bits(), part);
      for (std::size_t i = 0; i < codes.size(); ++i) codes[i] |= part[i] << 8;
    }
    const std::int32_t sign = 1 << (format_.bits - 1);
    for (std::int32_t& code : codes) code = (code ^ sign) - sign;
  }

  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  SharedIntegers format_;
};

}  // namespace

std::optional<SharedIntegers> parse_shared_integers(std::string_view name) {
  std::string_view rest = name;
  if (!take(rest, "shared-int")) return std::nullopt;
  const auto fail_in = [&] {
    fail(
        "codec '{}': allowed is shared-int<w>-g<G> with w from 4 to 16, and G a power of two from "
        "8 to 4096, or tensor",
        name);
  };
  SharedIntegers format;
  const auto bits = number_of_digits(take_digits(rest));
  if (!bits || *bits < 4 || *bits > 16 || !take(rest, "-g")) fail_in();
  format.bits = static_cast<unsigned>(*bits);
  if (rest == "tensor") return format;
  const auto group = number_of_digits(take_digits(rest));
  if (!rest.empty() || !group || *group < 8 || *group > 4096 || !std::has_single_bit(*group)) {
    fail_in();
  }
  format.group = *group;
  return format;
}

CodecFamily shared_scale_codecs() {
  return {.pattern = "shared-int<w>-g<G|tensor> (w: 4 to 16, G: powers of two from 8 to 4096)",
          .listed = {},
          .find = [](std::string_view name) -> CodecPtr {
            const std::optional<SharedIntegers> format = parse_shared_integers(name);
            if (!format) return nullptr;
            return std::make_shared<SharedCodec>(std::string(name), *format);
          }};
}

}  // namespace arlab
