// Any-bit integers with bit splitting, asymmetric and symmetric, with their variants: spike
// reserving, integer scales, a Hadamard transform first, per-tensor and static scales.
//
// SPEC.md, "Any-bit integers (int*)" and "Hadamard (had-*)"; arithmetic: formats/anybit.h.
// Source: Flash Communication V2 (figures 3 and 5, tables 3 and 4); symmetric, per-tensor, per-row
// and static scales as inference engines quantize activations.

#include "reference/codecs/anybit.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/bit_planes.h"
#include "reference/codecs/formats/anybit.h"
#include "reference/codecs/hadamard.h"
#include "reference/codecs/name_parts.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"

namespace arlab {
namespace {

constexpr std::size_t kMaxGroup = std::size_t{1} << 24;
constexpr std::size_t kMaxGroupSpikes = 65536;       // indices have 16 bits,
constexpr std::size_t kMaxGroupIntegerSpikes = 256;  // or 8 with -is
constexpr std::size_t kMaxGroupHadamard = 65536;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Metadata = AnyBitFormat::Metadata;

/// Metadata of one block: its wire without the codes.
struct BlockMetadata {
  AnyBitScale scale = {};
  bool non_finite = false;
  float minimum = 0;  // spikes: dtype values
  float maximum = 0;
  std::uint16_t minimum_index = 0;
  std::uint16_t maximum_index = 0;

  bool is_finite() const {
    return std::isfinite(scale.value) && std::isfinite(scale.zero) && std::isfinite(minimum) &&
           std::isfinite(maximum);
  }
};

bool is_finite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
}

/// Index of the first of the smallest, or of the largest; -0 equals +0.
std::size_t first_minimum(std::span<const float> x) {
  return static_cast<std::size_t>(std::min_element(x.begin(), x.end()) - x.begin());
}
std::size_t first_maximum(std::span<const float> x) {
  return static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

class AnyBitCodec final : public CodecInContext {
 public:
  AnyBitCodec(std::string name, AnyBitFormat format)
      : CodecInContext({.name = std::move(name),
                        .summary = summary_of(format),
                        .source = "Flash Communication V2",
                        .dtypes = {DType::fp16, DType::bf16, DType::fp32},
                        .block = anybit_block(format),
                        .alignment = alignment_of(format),
                        .splits_at_alignment = anybit_block(format) != kWholeTensor,
                        .uses_context = format.stochastic,
                        .is_dtype_independent = format.metadata == Metadata::scales,
                        .fp32_values = Fp32Values::unrounded,
                        .saturating = {DType::fp16, DType::bf16, DType::fp32},
                        .cost = cost_of(format)}),
        format_(format),
        arithmetic_{format.bits, format.symmetric, format.metadata == Metadata::integer_spikes} {}

 private:
  static std::size_t alignment_of(const AnyBitFormat& f) {
    return anybit_block(f) == kWholeTensor ? 8 : anybit_block(f);
  }

  static std::string summary_of(const AnyBitFormat& f) {
    std::string text = f.hadamard ? "Hadamard transform, then " : "";
    text += fmt::format("{}-bit {} integers, ", f.bits, f.symmetric ? "symmetric" : "asymmetric");
    if (f.given) {
      text += "given scale";
    } else if (f.group == 0) {
      text += "one scale per message";
    } else {
      text += fmt::format("blocks of {}", f.group);
    }
    if (f.metadata != Metadata::scales) text += ", spikes reserved";
    if (f.metadata == Metadata::integer_spikes) text += ", integer scales";
    if (f.stochastic) text += ", stochastic rounding";
    return text;
  }

  /// Encode: minimum, maximum (2), subtract, multiply, round, clamp (2), pack per plane; decode:
  /// unpack per plane, convert, multiply, add. Spikes: argmin and argmax, replace, put back.
  /// Hadamard: log2 G additions and one multiplication each way.
  static CodecCost cost_of(const AnyBitFormat& f) {
    int planes = 0;
    for_each_plane(f.bits, [&](unsigned, unsigned) { ++planes; });
    CodecCost cost{8.0 + planes, 3.0 + planes};
    if (f.given) cost.encode_ops_per_element -= 2;
    if (f.stochastic) cost.encode_ops_per_element += kPhiloxOps;
    if (f.metadata != Metadata::scales) {
      cost.encode_ops_per_element += 5;
      cost.decode_ops_per_element += 1;
    }
    if (f.hadamard) {
      const double butterflies = static_cast<double>(std::countr_zero(f.group)) + 1;
      cost.encode_ops_per_element += butterflies;
      cost.decode_ops_per_element += butterflies;
    }
    const std::size_t group = f.group == 0 ? kWholeTensor : f.group;
    if (!f.given || f.stochastic) cost.scale_elements = group;
    if (f.hadamard || f.metadata != AnyBitFormat::Metadata::scales) cost.exchange_elements = group;
    return cost;
  }

  // ---- the wire: chunks of planes and metadata

  AnyBitLayout layout_of(std::size_t elements) const { return anybit_layout(format_, elements); }
  std::size_t codes_of(std::size_t elements) const { return anybit_codes(format_, elements); }
  std::size_t chunk_bytes(DType dtype, std::size_t elements, std::size_t block) const {
    return anybit_chunk_bytes(format_, dtype, elements, block);
  }

  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    const auto [block, chunk] = layout_of(elements);
    const std::size_t rest = elements % chunk;
    return elements / chunk * chunk_bytes(dtype, chunk, block) +
           (rest == 0 ? 0 : chunk_bytes(dtype, rest, block));
  }

  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const auto [block, chunk] = layout_of(elements);
    std::byte* out = wire.data();
    for (std::size_t begin = 0; begin < elements; begin += chunk) {
      const std::size_t count = std::min(chunk, elements - begin);
      const auto part = payload.subspan(begin * size_of(dtype), count * size_of(dtype));
      out = encode_chunk(context.at(begin), dtype, part, block, out, counts);
    }
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    decode_to(dtype, dtype, wire, payload);
  }
  // Spikes have the payload's dtype on the wire, where all else has its own.
  void do_decode_fp32(DType dtype, std::span<const std::byte> wire,
                      std::span<float> values) const override {
    decode_to(DType::fp32, dtype, wire, std::as_writable_bytes(values));
  }
  void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                     std::span<float> sum) const override {
    const bool has_products = format_.symmetric && !format_.hadamard;
    if (!has_products || format_.metadata != Metadata::scales) {
      return Codec::do_decode_fma(dtype, wire, sum);
    }
    for_each_block(dtype, wire, sum.size(),
                   [&](std::size_t first, std::size_t count, const BlockMetadata& meta,
                       std::span<const std::uint8_t> codes) {
                     for (std::size_t i = 0; i < count; ++i) {
                       const float value = static_cast<float>(codes[i]) - arithmetic_.bias();
                       float& total = sum[first + i];
                       total = meta.non_finite ? kNaN : std::fma(value, meta.scale.value, total);
                     }
                   });
  }

  void decode_to(DType to, DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const {
    std::vector<float> x;
    for_each_block(dtype, wire, payload.size() / size_of(to),
                   [&](std::size_t first, std::size_t count, const BlockMetadata& meta,
                       std::span<const std::uint8_t> codes) {
                     x.resize(codes.size());
                     decode_block(meta, codes, x);
                     // The last rounding saturates, so that no finite tensor becomes infinite (SPEC.md, "Saturation").
                     const float limit = meta.is_finite() ? largest_finite(to) : kInfinity;
                     for (std::size_t i = 0; i < count; ++i) {
                       store_value(to, limited(x[i], limit), payload, first + i);
                     }
                   });
  }

  /// Calls f(first element, elements, metadata, codes) of every block; a padded block has more codes than elements.
  template <class F>
  void for_each_block(DType dtype, std::span<const std::byte> wire, std::size_t elements,
                      F&& f) const {
    const auto [block, chunk] = layout_of(elements);
    const std::byte* in = wire.data();
    for (std::size_t begin = 0; begin < elements; begin += chunk) {
      const std::size_t count = std::min(chunk, elements - begin);
      std::vector<std::uint8_t> codes(codes_of(count));
      std::vector<BlockMetadata> meta(blocks_of(count, block));
      read_metadata(dtype, unpack_planes(in, format_.bits, codes), meta);
      for (std::size_t b = 0; b < meta.size(); ++b) {
        const std::size_t first = b * block;
        f(begin + first, std::min(block, count - first), meta[b],
          std::span(codes).subspan(first, std::min(codes.size() - first, block)));
      }
      in += chunk_bytes(dtype, count, block);
    }
  }

  std::byte* encode_chunk(const EncodeContext& context, DType dtype,
                          std::span<const std::byte> payload, std::size_t block, std::byte* out,
                          EncodeCounts& counts) const {
    const std::size_t elements = payload.size() / size_of(dtype);
    std::vector<std::uint8_t> codes(codes_of(elements));
    std::vector<BlockMetadata> meta(blocks_of(elements, block));
    std::vector<float> x;
    for (std::size_t b = 0; b < meta.size(); ++b) {
      const std::size_t first = b * block;
      const std::size_t real = std::min(elements - first, block);
      x.resize(real);
      for (std::size_t i = 0; i < real; ++i) x[i] = load_value(dtype, payload, first + i);
      if (format_.hadamard) x.resize(format_.group, 0.0f);
      encode_block(context.at(first), x, real, meta[b], std::span(codes).subspan(first, x.size()),
                   counts.clamped);
    }
    out = pack_planes(codes, format_.bits, out);
    return write_metadata(dtype, meta, out);
  }

  // ---- one block

  void encode_block(const EncodeContext& context, std::span<float> x, std::size_t real,
                    BlockMetadata& meta, std::span<std::uint8_t> codes,
                    std::uint64_t& clamped) const {
    if (format_.hadamard) hadamard(x);
    meta = given_metadata();
    bool finite = is_finite(x);
    if (finite && format_.metadata != Metadata::scales) {
      const std::size_t lowest = first_minimum(x);
      const std::size_t highest = first_maximum(x);
      meta.minimum = x[lowest];
      meta.maximum = x[highest];
      meta.minimum_index = static_cast<std::uint16_t>(lowest);
      meta.maximum_index = static_cast<std::uint16_t>(highest);
      x[lowest] = 0;
      x[highest] = 0;
    }
    if (finite) {
      if (!format_.given) {
        meta.scale = arithmetic_.scale_of(x[first_minimum(x)], x[first_maximum(x)]);
      }
      finite = std::isfinite(meta.scale.value) && std::isfinite(meta.scale.zero);
    }
    if (finite) {
      const float factor = arithmetic_.factor_of(meta.scale);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const ScaledCode code = format_.stochastic ? arithmetic_.quantize(x[i], meta.scale, factor,
                                                                          random_bits(context, i))
                                                   : arithmetic_.quantize(x[i], meta.scale, factor);
        codes[i] = static_cast<std::uint8_t>(code.bits);
        clamped += i < real && code.clamped ? 1 : 0;
      }
    } else {
      meta = given_metadata();
      meta.non_finite = true;
      std::fill(codes.begin(), codes.end(), std::uint8_t{0});
    }
  }

  BlockMetadata given_metadata() const {
    if (!format_.given) return {};
    return {.scale = {format_.given->scale, format_.given->zero}};
  }

  void decode_block(const BlockMetadata& meta, std::span<const std::uint8_t> codes,
                    std::span<float> x) const {
    if (meta.non_finite) {
      std::fill(x.begin(), x.end(), kNaN);
      return;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = arithmetic_.dequantize(codes[i], meta.scale);
    }
    if (format_.metadata != Metadata::scales) {
      // Foreign bytes may hold an index behind a short last block; it stands for no element.
      if (meta.minimum_index < x.size()) x[meta.minimum_index] = meta.minimum;
      if (meta.maximum_index < x.size()) x[meta.maximum_index] = meta.maximum;
    }
    if (format_.hadamard) hadamard(x);
  }

  // ---- metadata: one array after the other

  static void put_value(DType dtype, float value, std::byte*& out) {
    switch (dtype) {
      case DType::fp16:
        return put(out, Fp16Arithmetic::from_float(value));
      case DType::bf16:
        return put(out, Bf16Arithmetic::from_float(value));
      case DType::fp32:
        return put(out, Fp32Arithmetic::from_float(value));
    }
  }
  static float take_value(DType dtype, const std::byte*& in) {
    switch (dtype) {
      case DType::fp16:
        return half_to_float(take<std::uint16_t>(in));
      case DType::bf16:
        return bfloat16_to_float(take<std::uint16_t>(in));
      case DType::fp32:
        break;
    }
    return take<float>(in);
  }

  std::byte* write_metadata(DType dtype, const std::vector<BlockMetadata>& meta,
                            std::byte* out) const {
    if (format_.given) {
      for (const auto& m : meta) put(out, static_cast<std::uint8_t>(m.non_finite ? 0xFF : 0));
      return out;
    }
    const bool integer = format_.metadata == Metadata::integer_spikes;
    for (const auto& m : meta) {
      integer ? put(out, static_cast<std::int8_t>(m.scale.code))
              : put(out, Bf16Arithmetic::from_float(m.non_finite ? kNaN : m.scale.value));
    }
    if (!format_.symmetric) {
      for (const auto& m : meta) {
        integer ? put(out, static_cast<std::int8_t>(m.scale.zero))
                : put(out, Bf16Arithmetic::from_float(m.scale.zero));
      }
    }
    if (format_.metadata == Metadata::scales) return out;
    for (const auto& m : meta) put_value(dtype, integer && m.non_finite ? kNaN : m.minimum, out);
    for (const auto& m : meta) put_value(dtype, m.maximum, out);
    for (const auto& m : meta) put_index(m.minimum_index, out);
    for (const auto& m : meta) put_index(m.maximum_index, out);
    return out;
  }

  void read_metadata(DType dtype, const std::byte* in, std::vector<BlockMetadata>& meta) const {
    for (auto& m : meta) m = given_metadata();
    if (format_.given) {
      for (auto& m : meta) m.non_finite = take<std::uint8_t>(in) == 0xFF;
      return;
    }
    const bool integer = format_.metadata == Metadata::integer_spikes;
    for (auto& m : meta) {
      m.scale.value =
          integer ? scale_of(take<std::int8_t>(in)) : bfloat16_to_float(take<std::uint16_t>(in));
      m.non_finite = std::isnan(m.scale.value);
    }
    if (!format_.symmetric) {
      for (auto& m : meta) {
        m.scale.zero = integer ? static_cast<float>(take<std::int8_t>(in))
                               : bfloat16_to_float(take<std::uint16_t>(in));
      }
    }
    if (format_.metadata == Metadata::scales) return;
    for (auto& m : meta) m.minimum = take_value(dtype, in);
    for (auto& m : meta) m.maximum = take_value(dtype, in);
    for (auto& m : meta) m.minimum_index = take_index(in);
    for (auto& m : meta) m.maximum_index = take_index(in);
    if (!integer) return;
    for (auto& m : meta) m.non_finite = std::isnan(m.minimum);
  }

  void put_index(std::uint16_t index, std::byte*& out) const {
    format_.metadata == Metadata::integer_spikes ? put(out, static_cast<std::uint8_t>(index))
                                                 : put(out, index);
  }
  std::uint16_t take_index(const std::byte*& in) const {
    return format_.metadata == Metadata::integer_spikes ? take<std::uint8_t>(in)
                                                        : take<std::uint16_t>(in);
  }

  AnyBitFormat format_;
  AnyBitCodes arithmetic_;
};

// ---------------------------------------------------------------- names

std::size_t parse_group(std::string_view name, std::string_view digits, std::size_t most) {
  std::size_t group = 0;  // also of so many digits that they are no std::size_t
  std::from_chars(digits.data(), digits.data() + digits.size(), group);
  if (group < 8 || group % 8 != 0 || group > most || digits.front() == '0') {
    fail("codec '{}': group of {}; allowed is a multiple of 8 from 8 to {}, or tensor, or row",
         name, digits, most);
  }
  return group;
}

/// `<scale>`, or `<scale>:<zero>`, behind -static.
AnyBitFormat::Static parse_static(std::string_view name, std::string_view text, bool symmetric) {
  const std::size_t colon = text.find(':');
  const bool has_zero = colon != std::string_view::npos;
  if (symmetric && has_zero) {
    fail("codec '{}': a symmetric codec has no zero: write -static<scale>", name);
  }
  if (!symmetric && !has_zero) {
    fail("codec '{}': a scale and a zero are needed: write -static<scale>:<zero>", name);
  }
  AnyBitFormat::Static given{.scale = parse_scale(name, text.substr(0, colon))};
  if (!symmetric) given.zero = parse_number(name, text.substr(colon + 1)) + 0.0f;
  return given;
}

/// Parts of a name, allowed or not: [had-]int<bits>-g<group>[-sym][-sr][-is][-stoch][-static<numbers>].
struct NameParts {
  bool hadamard = false;
  std::string_view bits;
  std::string_view group;
  bool symmetric = false;
  bool spikes = false;
  bool integer = false;
  bool stochastic = false;
  std::optional<std::string_view> given;
};

std::optional<NameParts> parts_of(std::string_view name) {
  NameParts parts;
  parts.hadamard = take(name, "had-");
  if (!take(name, "int")) return std::nullopt;
  parts.bits = take_digits(name);
  if (parts.bits.empty() || !take(name, "-g")) return std::nullopt;
  parts.group = name;
  if (take_digits(name).empty() && !take(name, "tensor") && !take(name, "row")) return std::nullopt;
  parts.group.remove_suffix(name.size());
  parts.symmetric = take(name, "-sym");
  parts.spikes = take(name, "-sr");
  parts.integer = take(name, "-is");
  parts.stochastic = take(name, "-stoch");
  if (take(name, "-static")) {
    parts.given = name;
  } else if (!name.empty()) {
    return std::nullopt;
  }
  return parts;
}

CodecPtr find_anybit(std::string_view name) {
  const std::optional<AnyBitFormat> format = parse_anybit(name);
  if (!format) return nullptr;
  return std::make_shared<AnyBitCodec>(std::string(name), *format);
}

}  // namespace

std::optional<AnyBitFormat> parse_anybit(std::string_view name) {
  const std::optional<NameParts> parts = parts_of(name);
  if (!parts) return std::nullopt;
  const auto& [hadamard, bits, group, symmetric, spikes, integer, stochastic, given] = *parts;
  AnyBitFormat f;
  f.stochastic = stochastic;
  f.hadamard = hadamard;
  f.symmetric = symmetric;
  if (bits.size() != 1 || bits < "2" || bits > "8") {
    fail("codec '{}': {} bits; allowed is 2 to 8", name, bits);
  }
  f.bits = static_cast<unsigned>(bits.front() - '0');
  if (integer && !spikes) fail("codec '{}': -is goes with -sr: write -sr-is", name);
  if (integer && f.symmetric)
    fail("codec '{}': -is has a zero point; it does not go with -sym", name);
  if (f.hadamard && (spikes || given))
    fail("codec '{}': had- does not go with -sr or -static", name);
  if (given && spikes) fail("codec '{}': -static does not go with -sr", name);
  if (spikes) f.metadata = integer ? Metadata::integer_spikes : Metadata::spikes;

  if (group == "row") {
    fail("codec '{}': how long is a row? Write int<b>-g<row length>, or give a tensor with rows",
         name);
  }
  if (group == "tensor") {
    if (spikes || f.hadamard) fail("codec '{}': gtensor does not go with -sr or had-", name);
  } else {
    if (given)
      fail("codec '{}': a given scale is for the whole tensor: write int<b>-gtensor", name);
    f.group = parse_group(name, group,
                          integer      ? kMaxGroupIntegerSpikes
                          : spikes     ? kMaxGroupSpikes
                          : f.hadamard ? kMaxGroupHadamard
                                       : kMaxGroup);
    if (f.hadamard && !std::has_single_bit(f.group)) {
      fail("codec '{}': group of {}; a Hadamard transform needs a power of two", name, group);
    }
  }
  if (given) f.given = parse_static(name, *given, f.symmetric);
  return f;
}

std::string with_row_length(std::string_view name, std::size_t row_elements) {
  constexpr std::string_view kGroup = "-grow";
  std::string resolved(name);
  if (name == "fp8-e4m3-token") return resolved + std::to_string(row_elements);
  const std::size_t at = name.find(kGroup);
  if (at == std::string_view::npos) return resolved;
  const std::size_t end = at + kGroup.size();
  if (end != name.size() && name[end] != '-') return resolved;
  resolved.replace(at, kGroup.size(), fmt::format("-g{}", row_elements));
  parse_anybit(resolved);  // throws for a row that is no group
  return resolved;
}

CodecFamily anybit_codecs() {
  return {.pattern =
              "[had-]int<b>-g<G|tensor|row>[-sym][-sr[-is]][-stoch] (b: 2 to 8, G: multiples of 8)",
          .listed = {"int8-g128", "int6-g128", "int5-g128", "int4-g32", "int3-g32", "int2-g32",
                     "int4-g32-sr", "int3-g32-sr", "int2-g32-sr", "int2-g32-sr-is", "had-int4-g32",
                     "had-int3-g32", "had-int2-g32", "int8-gtensor", "int8-gtensor-sym"},
          .find = find_anybit};
}

}  // namespace arlab
