// A codec written once: blocks that are scaled by their largest magnitude, element by element.
//
// A format says what its parameters are, what a block's scale is, and what becomes of an element:
// plain functions that C++ and GPU compilers take alike. ScaledCodec makes the scalar reference of
// it, kernels/codecs/scaled.h the device code of all platforms. It looks so:
//
//   struct MyFormat {
//     static constexpr std::size_t kBlock = 64;   // a power of two, 8 to 256
//     using Scale = float;                        // of a block, on the wire: float or std::uint8_t
//     constexpr unsigned bits() const;            // of an element's code, 1 to 8
//
//     // Of a block whose elements are all finite: what travels, and the factor that quantize() is
//     // to know. A block with others has nan_scale() and codes of 0, so that all of it decodes to
//     // NaN.
//     constexpr ScaledBlock<Scale> scale_of(float largest_magnitude) const;
//     constexpr Scale nan_scale() const;
//     constexpr ScaledCode quantize(float x, float factor) const;
//     // Of any code and any scale: wires may be foreign.
//     constexpr float dequantize(std::uint32_t code, Scale scale) const;
//
//     static CodecInfo info(const std::string& name);  // name, summary, source, cost
//     static std::vector<std::string> listed();
//     static std::optional<MyFormat> parse(std::string_view name);
//     static std::string pattern();  // of names, if they are not those that are listed
//   };
//
// A format that may round stochastically says so by `bool stochastic`, and has quantize(x, factor, random) with 24 random bits.
//
// A format whose codes are those of a Minifloat says so by element() and value_of(), and GPUs convert with the
// instructions that they have: quantize(x, factor) is then minifloat_code(element(), x * factor), and dequantize(code,
// scale) is minifloat_to_float(element(), code) * value_of(scale).
//
// A format of other products of an element and a scale says which by product_of(code, scale), for sums with add=fma; dequantize()
// is then the product of the two.
//
// Each operation in these functions is in fp32 and rounded once. The value that dequantize() gives
// is rounded once more, to the payload's dtype.
//
// Wire, per chunk of 4096 elements (the last may be shorter): codes as planes (bit_planes.h), then
// one scale per block.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/minifloat.h"

namespace arlab {

template <class Scale>
struct ScaledBlock {
  Scale scale = {};
  float factor = 0;  ///< 0: every code is 0
};

struct ScaledCode {
  std::uint32_t bits = 0;
  bool clamped = false;  ///< the rounded code lay outside the code range
};

/// What dequantize() multiplies.
struct ScaledProduct {
  float element = 0;
  float scale = 0;
};

/// RN to an integer, ties to even, for |x| < 2^22; larger values stay as they are.
constexpr float round_to_even(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return x > -0x1p22f && x < 0x1p22f ? (x + kMagic) - kMagic : x;
}

/// The nearest code of a small floating-point format; beyond its end, the largest finite one.
constexpr ScaledCode minifloat_code(const Minifloat& format, float value) {
  const std::uint32_t magnitude = minifloat_magnitude(format, value);
  const bool clamped = magnitude > format.max_finite();
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31 != 0 ? format.sign_bit() : 0;
  return {sign | (clamped ? format.max_finite() : magnitude), clamped};
}

/// The neighbour below |x| < 2^22, or above it: up if and only if the 24 random bits are below the fraction.
constexpr float round_stochastically(float x, std::uint32_t random) {
  if (!(x > -0x1p22f && x < 0x1p22f)) return x;
  const float nearest = round_to_even(x);
  const float below = nearest > x ? nearest - 1 : nearest;
  return static_cast<float>(random) < (x - below) * 0x1p24f ? below + 1 : below;
}

/// As minifloat_code(), but rounded stochastically between the two neighbours by magnitude.
constexpr ScaledCode minifloat_code(const Minifloat& format, float value, std::uint32_t random) {
  const std::uint32_t magnitude = minifloat_magnitude(format, value, random);
  const bool clamped = magnitude > format.max_finite();
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31 != 0 ? format.sign_bit() : 0;
  return {sign | (clamped ? format.max_finite() : magnitude), clamped};
}

template <class Format>
concept ScaledFormat =
    std::has_single_bit(Format::kBlock) && Format::kBlock >= 8 && Format::kBlock <= 256 &&
    (std::same_as<typename Format::Scale, float> ||
     std::same_as<typename Format::Scale, std::uint8_t>) &&
    requires(const Format& format, float x, std::uint32_t code, typename Format::Scale scale) {
      { format.bits() } -> std::same_as<unsigned>;
      { format.scale_of(x) } -> std::same_as<ScaledBlock<typename Format::Scale>>;
      { format.nan_scale() } -> std::same_as<typename Format::Scale>;
      { format.quantize(x, x) } -> std::same_as<ScaledCode>;
      { format.dequantize(code, scale) } -> std::same_as<float>;
      { Format::info(std::string()) } -> std::same_as<CodecInfo>;
      { Format::listed() } -> std::same_as<std::vector<std::string>>;
      { Format::parse(std::string_view()) } -> std::same_as<std::optional<Format>>;
    };

template <class Format>
concept StochasticFormat = requires(const Format& format, float x, std::uint32_t random) {
  { format.stochastic } -> std::convertible_to<bool>;
  { format.quantize(x, x, random) } -> std::same_as<ScaledCode>;
};

template <class Format>
concept MinifloatFormat = requires(const Format& format, typename Format::Scale scale) {
  { format.element() } -> std::same_as<Minifloat>;
  { format.value_of(scale) } -> std::same_as<float>;
};

template <class Format>
concept ProductFormat =
    requires(const Format& format, std::uint32_t code, typename Format::Scale scale) {
      { format.product_of(code, scale) } -> std::same_as<ScaledProduct>;
    };

// ---------------------------------------------------------------- the scalar reference

template <ScaledFormat Format>
std::size_t scaled_wire_bytes(const Format& format, std::size_t elements) {
  const auto chunk_bytes = [&](std::size_t count) {
    return planes_bytes(count, format.bits()) +
           blocks_of(count, Format::kBlock) * sizeof(typename Format::Scale);
  };
  const std::size_t rest = elements % kWireChunk;
  return elements / kWireChunk * chunk_bytes(kWireChunk) + (rest == 0 ? 0 : chunk_bytes(rest));
}

template <ScaledFormat Format>
void encode_scaled(const Format& format, DType dtype, std::span<const std::byte> payload,
                   std::span<std::byte> wire, EncodeCounts& counts,
                   const EncodeContext& context = {}) {
  using Scale = typename Format::Scale;
  const std::size_t elements = payload.size() / size_of(dtype);
  std::byte* out = wire.data();
  std::array<float, Format::kBlock> x;
  std::array<std::uint8_t, kWireChunk> codes;
  for (std::size_t begin = 0; begin < elements; begin += kWireChunk) {
    const std::size_t count = std::min(kWireChunk, elements - begin);
    std::byte* scales = out + planes_bytes(count, format.bits());
    for (std::size_t first = 0; first < count; first += Format::kBlock) {
      const std::size_t size = std::min(Format::kBlock, count - first);
      float largest = 0;
      bool finite = true;
      for (std::size_t i = 0; i < size; ++i) {
        x[i] = load_value(dtype, payload, begin + first + i);
        finite = finite && std::isfinite(x[i]);
        largest = std::max(largest, std::abs(x[i]));
      }
      ScaledBlock<Scale> block = {format.nan_scale(), 0};
      if (finite) {
        if constexpr (requires { format.scale_of_block(largest, std::span<const float>(x)); }) {
          block = format.scale_of_block(largest, {x.data(), size});
        } else {
          block = format.scale_of(largest);
        }
      }
      for (std::size_t i = 0; i < size; ++i) {
        ScaledCode code = {};
        if (block.factor != 0) {
          code = format.quantize(x[i], block.factor);
          if constexpr (StochasticFormat<Format>) {
            if (format.stochastic) {
              code = format.quantize(x[i], block.factor, random_bits(context, begin + first + i));
            }
          }
        }
        codes[first + i] = static_cast<std::uint8_t>(code.bits);
        counts.clamped += code.clamped ? 1 : 0;
      }
      put(scales, block.scale);
    }
    pack_planes({codes.data(), count}, format.bits(), out);
    out = scales;
  }
}

/// Calls f(index, code, scale) for every element.
template <ScaledFormat Format, class F>
void for_each_code(const Format& format, std::size_t elements, std::span<const std::byte> wire,
                   F&& f) {
  using Scale = typename Format::Scale;
  const std::byte* in = wire.data();
  std::array<std::uint8_t, kWireChunk> codes;
  for (std::size_t begin = 0; begin < elements; begin += kWireChunk) {
    const std::size_t count = std::min(kWireChunk, elements - begin);
    const std::byte* scales = unpack_planes(in, format.bits(), {codes.data(), count});
    Scale scale = {};
    for (std::size_t i = 0; i < count; ++i) {
      if (i % Format::kBlock == 0) scale = take<Scale>(scales);
      f(begin + i, codes[i], scale);
    }
    in = scales;
  }
}

template <ScaledFormat Format>
void decode_scaled(const Format& format, DType dtype, std::span<const std::byte> wire,
                   std::span<std::byte> payload) {
  for_each_code(format, payload.size() / size_of(dtype), wire,
                [&](std::size_t i, std::uint32_t code, typename Format::Scale scale) {
                  store_value(dtype, format.dequantize(code, scale), payload, i);
                });
}

template <ScaledFormat Format>
void decode_scaled_fma(const Format& format, std::span<const std::byte> wire,
                       std::span<float> sum) {
  for_each_code(format, sum.size(), wire,
                [&](std::size_t i, std::uint32_t code, typename Format::Scale scale) {
                  ScaledProduct product;
                  if constexpr (ProductFormat<Format>) {
                    product = format.product_of(code, scale);
                  } else {
                    product = {minifloat_to_float(format.element(), code), format.value_of(scale)};
                  }
                  sum[i] = std::fma(product.element, product.scale, sum[i]);
                });
}

template <ScaledFormat Format>
class ScaledCodec final : public CodecInContext {
 public:
  ScaledCodec(const std::string& name, const Format& format)
      : CodecInContext(whole(Format::info(name), format)), format_(format) {}

 private:
  static CodecInfo whole(CodecInfo info, const Format& format) {
    if constexpr (StochasticFormat<Format>) info.uses_context = format.stochastic;
    info.dtypes = {DType::fp16, DType::bf16, DType::fp32};
    info.block = Format::kBlock;
    info.alignment = Format::kBlock;
    info.is_same_in_fp32 = true;
    info.fp32_values = Fp32Values::unrounded;
    return info;
  }

  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return scaled_wire_bytes(format_, elements);
  }
  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override {
    encode_scaled(format_, dtype, payload, wire, counts, context);
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    decode_scaled(format_, dtype, wire, payload);
  }
  void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                     std::span<float> sum) const override {
    if constexpr (MinifloatFormat<Format> || ProductFormat<Format>) {
      decode_scaled_fma(format_, wire, sum);
    } else {
      Codec::do_decode_fma(dtype, wire, sum);
    }
  }

  Format format_;
};

/// The family of a format.
template <ScaledFormat Format>
CodecFamily scaled_codecs() {
  CodecFamily family;
  family.listed = Format::listed();
  if constexpr (requires { Format::pattern(); }) {
    family.pattern = Format::pattern();
  } else {
    family.pattern = fmt::format("{}", fmt::join(family.listed, ", "));
  }
  family.find = [](std::string_view name) -> CodecPtr {
    const std::optional<Format> format = Format::parse(name);
    if (!format) return nullptr;
    return std::make_shared<ScaledCodec<Format>>(std::string(name), *format);
  };
  return family;
}

}  // namespace arlab
