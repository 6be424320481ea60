// The scalar reference of a format that scales blocks (scaled_format.h), as functions. This header travels: a program compiles a
// user's format with it (compiled_codec.h), so it includes nothing but the standard library and headers that travel, too.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/scaled_format.h"
#include "reference/codecs/wire_chunks.h"

namespace arlab {

/// A format that says the names of its codecs.
template <class Format>
concept NamedFormat = ScaledFormat<Format> && requires {
  { Format::info(std::string()) } -> std::same_as<CodecInfo>;
  { Format::listed() } -> std::same_as<std::vector<std::string>>;
  { Format::parse(std::string_view()) } -> std::same_as<std::optional<Format>>;
};

/// Returns a format's facts of a codec, with those common to all that scale blocks.
template <NamedFormat Format>
CodecInfo scaled_info(const Format& format, const std::string& name) {
  CodecInfo info = Format::info(name);
  info.uses_context = false;
  if constexpr (StochasticFormat<Format>) info.uses_context = format.stochastic;
  info.dtypes = {DType::fp16, DType::bf16, DType::fp32};
  info.block = Format::kBlock;
  info.alignment = Format::kBlock;
  info.is_dtype_independent = true;
  info.fp32_values = Fp32Values::unrounded;
  return info;
}

template <ScaledFormat Format>
std::size_t scaled_wire_bytes(const Format& format, std::size_t elements) {
  const auto chunk_bytes = [&](std::size_t count) {
    return planes_bytes(count, format.bits()) +
           blocks_of(count, Format::kBlock) * sizeof(typename Format::Scale);
  };
  const std::size_t rest = elements % kWireChunk;
  return elements / kWireChunk * chunk_bytes(kWireChunk) + (rest == 0 ? 0 : chunk_bytes(rest));
}

/// How many elements were clamped.
template <ScaledFormat Format>
std::uint64_t encode_scaled(const Format& format, DType dtype, std::span<const std::byte> payload,
                            std::span<std::byte> wire, const EncodeContext& context = {}) {
  using Scale = typename Format::Scale;
  const std::size_t elements = payload.size() / size_of(dtype);
  std::byte* out = wire.data();
  std::uint64_t clamped = 0;
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
        clamped += code.clamped ? 1 : 0;
      }
      put(scales, block.scale);
    }
    pack_planes({codes.data(), count}, format.bits(), out);
    out = scales;
  }
  return clamped;
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

/// Whether decode_scaled_fma() is for it.
template <class Format>
concept HasProducts = MinifloatFormat<Format> || ProductFormat<Format>;

template <HasProducts Format>
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

}  // namespace arlab
