// Block-scaled floating point: SPEC.md, "Microscaling (mx*)" and "NVFP4 (nvfp4)".
//
//   mxfp8-e4m3, mxfp8-e5m2,      OCP Microscaling v1.0: blocks of 32, an E8M0 scale
//   mxfp6-e2m3, mxfp6-e3m2, mxfp4
//   ... -floor, -ceil, -even,    how the scale is found; -floor is the default
//       -rceil
//   nvfp4                        blocks of 16, an e4m3 scale, an fp32 tensor scale
//
// Wire, per chunk of 4096 elements (the last may be shorter): the codes as planes (bit_planes.h:
// 6 = 4 + 2), then one byte of scale per block. nvfp4: the tensor scale g (fp32) stands once before
// everything.
//
// Scale rules, with emax the exponent of the element format's largest value:
//   floor   floor(log2(amax)) - emax   (OCP v1.0, 6.3)
//   ceil    ceil(log2(amax)) - emax: no element saturates
//   even    floor(log2(amax rounded to the element's mantissa bits, half away)) - emax
//           (Quark, torchao)
//   rceil   ceil(log2(RN(amax / the largest value))): no element saturates
//           (TransformerEngine, torchao, vLLM)

#include "reference/codecs/microscaling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp8.h"

namespace arlab {
namespace {

/// Largest magnitude of a block, or NaN when it holds a NaN or an infinity.
float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) {
    if (!std::isfinite(v)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(v));
  }
  return largest;
}

/// The layout around a block of a header, codes and scales.
class BlockScaledCodec : public Codec {
 protected:
  BlockScaledCodec(CodecInfo info, unsigned bits, std::size_t header_bytes)
      : Codec(std::move(info)), bits_(bits), header_bytes_(header_bytes) {}

  /// Reads the whole message, writes header_bytes, and returns what encode_block is to know of it.
  virtual float write_header(std::span<const float> message, std::byte* out) const = 0;
  virtual float read_header(const std::byte* in) const = 0;
  virtual std::uint8_t encode_block(std::span<const float> x, float header, std::uint8_t* codes,
                                    std::uint64_t& clamped) const = 0;
  virtual void decode_block(std::uint8_t scale, float header, const std::uint8_t* codes,
                            std::span<float> x) const = 0;

 private:
  std::size_t blocks_of(std::size_t elements) const {
    return arlab::blocks_of(elements, info().block);
  }
  std::size_t chunk_bytes(std::size_t elements) const {
    return planes_bytes(elements, bits_) + blocks_of(elements);
  }

  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    const std::size_t rest = elements % kWireChunk;
    return header_bytes_ + elements / kWireChunk * chunk_bytes(kWireChunk) +
           (rest == 0 ? 0 : chunk_bytes(rest));
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    std::vector<float> message(payload.size() / size_of(dtype));
    for (std::size_t i = 0; i < message.size(); ++i) message[i] = load_value(dtype, payload, i);
    std::byte* out = wire.data();
    const float header = write_header(message, out);
    out += header_bytes_;
    std::array<std::uint8_t, kWireChunk> codes;
    for (std::size_t begin = 0; begin < message.size(); begin += kWireChunk) {
      const auto chunk =
          std::span(message).subspan(begin, std::min(kWireChunk, message.size() - begin));
      std::byte* scales = out + planes_bytes(chunk.size(), bits_);
      for (std::size_t first = 0; first < chunk.size(); first += info().block) {
        const auto block = chunk.subspan(first, std::min(info().block, chunk.size() - first));
        *scales++ = std::byte{encode_block(block, header, &codes[first], counts.clamped)};
      }
      pack_planes({codes.data(), chunk.size()}, bits_, out);
      out = scales;
    }
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const std::byte* in = wire.data();
    const float header = read_header(in);
    in += header_bytes_;
    std::array<std::uint8_t, kWireChunk> codes;
    std::array<float, kWireChunk> x;
    for (std::size_t begin = 0; begin < elements; begin += kWireChunk) {
      const std::size_t count = std::min(kWireChunk, elements - begin);
      const std::byte* scales = unpack_planes(in, bits_, {codes.data(), count});
      for (std::size_t first = 0; first < count; first += info().block) {
        decode_block(std::to_integer<std::uint8_t>(*scales++), header, &codes[first],
                     {&x[first], std::min(info().block, count - first)});
      }
      for (std::size_t i = 0; i < count; ++i) store_value(dtype, x[i], payload, begin + i);
      in = scales;
    }
  }

  unsigned bits_;
  std::size_t header_bytes_;
};

// ---------------------------------------------------------------- NVFP4

class NvFp4Codec final : public BlockScaledCodec {
 public:
  NvFp4Codec()
      : BlockScaledCodec(
            {.name = "nvfp4",
             .summary = "e2m1 elements, blocks of 16, e4m3 block scale, fp32 scale per message",
             .source = "NVIDIA NVFP4",
             .dtypes = {DType::fp16, DType::bf16, DType::fp32},
             .block = 16,
             .alignment = 16,
             .splits_at_alignment = false,
             .cost = {.encode_ops_per_element = 12, .decode_ops_per_element = 6}},
            4, sizeof(float)) {}

 private:
  float write_header(std::span<const float> message, std::byte* out) const override {
    float amax = 0;
    for (const float v : message) {
      if (std::isfinite(v)) amax = std::max(amax, std::abs(v));
    }
    // The bound keeps g / s finite for the smallest e4m3 scale.
    const float g = amax > 0 ? std::min(448.0f * 6.0f / amax, 0x1p118f) : 1.0f;
    put(out, g);
    return g;
  }
  float read_header(const std::byte* in) const override { return take<float>(in); }

  std::uint8_t encode_block(std::span<const float> x, float g, std::uint8_t* codes,
                            std::uint64_t& clamped) const override {
    const float amax = largest_magnitude(x);
    std::fill_n(codes, x.size(), std::uint8_t{0});
    if (std::isnan(amax)) return kNan;
    const std::uint8_t scale = e4m3fn_from_float(g * amax / 6.0f, Overflow::saturate);
    const float s = e4m3fn_to_float(scale);
    if (s == 0) return 0;
    const float multiplier = g / s;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float v = x[i] * multiplier;
      codes[i] = e2m1_from_float(v);
      clamped += std::abs(v) >= 7.0f ? 1 : 0;  // halfway from 6 to 8
    }
    return scale;
  }

  void decode_block(std::uint8_t scale, float g, const std::uint8_t* codes,
                    std::span<float> x) const override {
    const float multiplier = e4m3fn_to_float(scale) / g;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = e2m1_to_float(codes[i]) * multiplier;
  }

  static constexpr std::uint8_t kNan = 0x7F;
};

CodecPtr find_block_scaled(std::string_view name) {
  if (name == "nvfp4") return std::make_shared<NvFp4Codec>();
  return scaled_codecs<Mx>().find(name);
}

}  // namespace

std::optional<MicroscalingKind> parse_microscaling(std::string_view name) {
  if (name == "nvfp4") return MicroscalingKind{BlockFormat::nvfp4, ExponentRule::floor};
  constexpr std::pair<std::string_view, BlockFormat> kFormats[] = {
      {"mxfp8-e4m3", BlockFormat::mx_e4m3},
      {"mxfp8-e5m2", BlockFormat::mx_e5m2},
      {"mxfp6-e2m3", BlockFormat::mx_e2m3},
      {"mxfp6-e3m2", BlockFormat::mx_e3m2},
      {"mxfp4", BlockFormat::mx_e2m1}};
  constexpr std::pair<std::string_view, ExponentRule> kRules[] = {{"", ExponentRule::floor},
                                                                  {"-floor", ExponentRule::floor},
                                                                  {"-ceil", ExponentRule::ceil},
                                                                  {"-even", ExponentRule::even},
                                                                  {"-rceil", ExponentRule::rceil}};
  for (const auto& [base, format] : kFormats) {
    if (!name.starts_with(base)) continue;
    for (const auto& [suffix, rule] : kRules) {
      if (name.substr(base.size()) == suffix) return MicroscalingKind{format, rule};
    }
  }
  return std::nullopt;
}

CodecFamily microscaling_codecs() {
  return {.pattern =
              "mxfp8-e4m3, mxfp8-e5m2, mxfp6-e2m3, mxfp6-e3m2, mxfp4 (each also -ceil, -even, "
              "-rceil), nvfp4",
          .listed = {"mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp4", "nvfp4"},
          .find = find_block_scaled};
}

}  // namespace arlab
