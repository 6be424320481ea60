// NVIDIA's 4-bit format with two scales: SPEC.md, "NVFP4 (nvfp4)".
//
//   nvfp4         blocks of 16 e2m1 elements, an e4m3 scale, an fp32 tensor scale g of the message
//   nvfp4-vllm    the same with the roundings of vLLM's kernel
//   ...-ts<g>     the tensor scale is given
//
// Wire: g (fp32), unless it is given; then per chunk of 4096 elements (the last may be shorter) the
// codes as a plane of 4 bits and one byte of scale per block.

#include "reference/codecs/nvfp4.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp8.h"

namespace arlab {
namespace {

constexpr std::size_t kBlock = 16;
constexpr unsigned kBits = 4;
constexpr std::uint8_t kNan = 0x7F;

/// Largest magnitude of a block, or NaN when it holds a NaN or an infinity.
float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) {
    if (!std::isfinite(v)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(v));
  }
  return largest;
}

float tensor_scale_of(std::span<const float> message) {
  float amax = 0;
  for (const float v : message) {
    if (std::isfinite(v)) amax = std::max(amax, std::abs(v));
  }
  return amax > 0 ? std::min(448.0f * 6.0f / amax, NvFp4Format::kMostTensorScale) : 1.0f;
}

class NvFp4Codec final : public Codec {
 public:
  NvFp4Codec(std::string name, NvFp4Format format)
      : Codec({.name = std::move(name),
               .summary = summary_of(format),
               .source = format.vllm ? "vLLM csrc/quantization/fp4" : "NVIDIA NVFP4",
               .dtypes = {DType::fp16, DType::bf16, DType::fp32},
               .block = kBlock,
               .alignment = kBlock,
               .splits_at_alignment = format.tensor_scale.has_value(),
               .cost = {.encode_ops_per_element = format.tensor_scale ? 10.0 : 12.0,
                        .decode_ops_per_element = 6}}),
        format_(format) {}

 private:
  static std::string summary_of(const NvFp4Format& format) {
    return fmt::format("e2m1 elements, blocks of 16, e4m3 block scale, {}{}",
                       format.tensor_scale ? "given tensor scale" : "fp32 scale per message",
                       format.vllm ? ", rounded as in vLLM" : "");
  }

  static std::size_t chunk_bytes(std::size_t elements) {
    return planes_bytes(elements, kBits) + blocks_of(elements, kBlock);
  }

  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    const std::size_t header = format_.tensor_scale ? 0 : sizeof(float);
    const std::size_t rest = elements % kWireChunk;
    return header + elements / kWireChunk * chunk_bytes(kWireChunk) +
           (rest == 0 ? 0 : chunk_bytes(rest));
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    std::vector<float> message(payload.size() / size_of(dtype));
    for (std::size_t i = 0; i < message.size(); ++i) message[i] = load_value(dtype, payload, i);
    std::byte* out = wire.data();
    const float g = format_.tensor_scale ? *format_.tensor_scale : tensor_scale_of(message);
    if (!format_.tensor_scale) put(out, g);
    std::array<std::uint8_t, kWireChunk> codes;
    for (std::size_t begin = 0; begin < message.size(); begin += kWireChunk) {
      const auto chunk =
          std::span(message).subspan(begin, std::min(kWireChunk, message.size() - begin));
      std::byte* scales = out + planes_bytes(chunk.size(), kBits);
      for (std::size_t first = 0; first < chunk.size(); first += kBlock) {
        const auto block = chunk.subspan(first, std::min(kBlock, chunk.size() - first));
        *scales++ = std::byte{encode_block(block, g, &codes[first], counts.clamped)};
      }
      pack_planes({codes.data(), chunk.size()}, kBits, out);
      out = scales;
    }
  }

  std::uint8_t encode_block(std::span<const float> x, float g, std::uint8_t* codes,
                            std::uint64_t& clamped) const {
    const float amax = largest_magnitude(x);
    std::fill_n(codes, x.size(), std::uint8_t{0});
    if (std::isnan(amax)) return kNan;
    const float wanted = format_.vllm ? g * (amax * (1.0f / 6.0f)) : g * amax / 6.0f;
    const std::uint8_t scale = e4m3fn_from_float(wanted, Overflow::saturate);
    const float s = e4m3fn_to_float(scale);
    if (s == 0) return 0;
    const float multiplier = format_.vllm ? 1.0f / (s * (1.0f / g)) : g / s;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float v = x[i] * multiplier;
      codes[i] = e2m1_from_float(v);
      clamped += std::abs(v) >= 7.0f ? 1 : 0;  // halfway from 6 to 8
    }
    return scale;
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const std::byte* in = wire.data();
    const float g = format_.tensor_scale ? *format_.tensor_scale : take<float>(in);
    std::array<std::uint8_t, kWireChunk> codes;
    for (std::size_t begin = 0; begin < elements; begin += kWireChunk) {
      const std::size_t count = std::min(kWireChunk, elements - begin);
      const std::byte* scales = unpack_planes(in, kBits, {codes.data(), count});
      float multiplier = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (i % kBlock == 0) {
          multiplier = e4m3fn_to_float(std::to_integer<std::uint8_t>(scales[i / kBlock])) / g;
        }
        store_value(dtype, e2m1_to_float(codes[i]) * multiplier, payload, begin + i);
      }
      in = scales + blocks_of(count, kBlock);
    }
  }

  NvFp4Format format_;
};

/// The shortest decimal number that is read back as this one.
std::string shortest_text(float value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

float parse_tensor_scale(std::string_view name, std::string_view text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !(value >= NvFp4Format::kLeastTensorScale) ||
      !(value <= NvFp4Format::kMostTensorScale)) {
    fail("codec {}: {} is no tensor scale; allowed is a decimal number from 2^-118 to 2^118",
         quote(name), quote(text));
  }
  if (text != shortest_text(value)) {
    fail("codec {}: a tensor scale has one spelling, the shortest: -ts{}", quote(name),
         shortest_text(value));
  }
  return value;
}

CodecPtr find_nvfp4(std::string_view name) {
  const std::optional<NvFp4Format> format = parse_nvfp4(name);
  if (!format) return nullptr;
  return std::make_shared<NvFp4Codec>(std::string(name), *format);
}

}  // namespace

std::optional<NvFp4Format> parse_nvfp4(std::string_view name) {
  std::string_view rest = name;
  const auto take_prefix = [&rest](std::string_view prefix) {
    const bool found = rest.starts_with(prefix);
    if (found) rest.remove_prefix(prefix.size());
    return found;
  };
  if (!take_prefix("nvfp4")) return std::nullopt;
  NvFp4Format format;
  format.vllm = take_prefix("-vllm");
  if (take_prefix("-ts")) {
    format.tensor_scale = parse_tensor_scale(name, rest);
  } else if (!rest.empty()) {
    return std::nullopt;
  }
  return format;
}

CodecFamily nvfp4_codecs() {
  return {.pattern = "nvfp4[-vllm][-ts<tensor scale>]", .listed = {"nvfp4"}, .find = find_nvfp4};
}

}  // namespace arlab
