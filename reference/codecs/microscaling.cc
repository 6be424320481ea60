// Block-scaled floating point: SPEC.md, "Microscaling (mx*)".
//
//   mxfp8-e4m3, mxfp8-e5m2,      OCP Microscaling v1.0: blocks of 32, an E8M0 scale
//   mxfp6-e2m3, mxfp6-e3m2, mxfp4
//   ... -floor, -ceil, -even     how the scale is found; -floor is the default
//
// Wire, per chunk of 4096 elements (the last may be shorter): the codes as planes (bit_planes.h:
// 6 = 4 + 2), then one byte of scale per block.
//
// Scale rules, with emax the exponent of the element format's largest value:
//   floor   floor(log2(amax)) - emax   (OCP v1.0, 6.3)
//   ceil    ceil(log2(amax)) - emax: no element saturates
//   even    floor(log2(amax rounded to the element's mantissa bits, half away)) - emax
//           (Quark, torchao)

#include "reference/codecs/microscaling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/e8m0.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
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

/// What differs between the two standards; the layout around it is one.
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

// ---------------------------------------------------------------- OCP microscaling

/// An element format as MX uses it. `overflows`: a magnitude that rounds above the largest value.
struct E4M3 {
  static constexpr unsigned kBits = 8;
  static constexpr int kMantissaBits = 3;
  static constexpr int kEmax = 8;
  // 480 does not exist; the tie goes to the even 448.
  static bool overflows(float m) { return m > 464.0f; }
  static std::uint8_t encode(float v) { return e4m3fn_from_float(v, Overflow::saturate); }
  static float decode(std::uint8_t code) { return e4m3fn_to_float(code); }
};
struct E5M2 {
  static constexpr unsigned kBits = 8;
  static constexpr int kMantissaBits = 2;
  static constexpr int kEmax = 15;
  static bool overflows(float m) { return m >= 61440.0f; }
  static std::uint8_t encode(float v) { return e5m2_from_float(v, Overflow::saturate); }
  static float decode(std::uint8_t code) { return e5m2_to_float(code); }
};
struct E2M3 {
  static constexpr unsigned kBits = 6;
  static constexpr int kMantissaBits = 3;
  static constexpr int kEmax = 2;
  static bool overflows(float m) { return m >= 7.75f; }
  static std::uint8_t encode(float v) { return e2m3_from_float(v); }
  static float decode(std::uint8_t code) { return e2m3_to_float(code); }
};
struct E3M2 {
  static constexpr unsigned kBits = 6;
  static constexpr int kMantissaBits = 2;
  static constexpr int kEmax = 4;
  static bool overflows(float m) { return m >= 30.0f; }
  static std::uint8_t encode(float v) { return e3m2_from_float(v); }
  static float decode(std::uint8_t code) { return e3m2_to_float(code); }
};
struct E2M1 {
  static constexpr unsigned kBits = 4;
  static constexpr int kMantissaBits = 1;
  static constexpr int kEmax = 2;
  static bool overflows(float m) { return m >= 7.0f; }
  static std::uint8_t encode(float v) { return e2m1_from_float(v); }
  static float decode(std::uint8_t code) { return e2m1_to_float(code); }
};

/// Exponent of the shared scale for a largest magnitude above 0.
template <class Element>
int shared_exponent(float amax, ExponentRule rule) {
  switch (rule) {
    case ExponentRule::floor:
      break;
    case ExponentRule::ceil: {
      const int exponent = floor_log2(amax);
      const bool power_of_two = std::ldexp(1.0f, exponent) == amax;
      return exponent + (power_of_two ? 0 : 1) - Element::kEmax;
    }
    case ExponentRule::even: {
      // Adding half a unit of the last kept mantissa bit carries into the exponent when amax rounds
      // up to the next power of two; an exponent field beyond fp32's is still right as a number.
      const std::uint32_t half = 1U << (23 - Element::kMantissaBits - 1);
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(amax);
      if (bits >> 23 == 0) break;  // subnormal: far below what rounding could matter for
      return static_cast<int>((bits + half) >> 23) - 127 - Element::kEmax;
    }
  }
  return floor_log2(amax) - Element::kEmax;
}

template <class Element>
class MxCodec final : public BlockScaledCodec {
 public:
  MxCodec(std::string name, ExponentRule rule)
      : BlockScaledCodec({.name = std::move(name),
                          .summary = fmt::format("OCP microscaling, {}-bit elements, E8M0 scale",
                                                 Element::kBits),
                          .source = "OCP Microscaling Formats v1.0",
                          .dtypes = {DType::fp16, DType::bf16, DType::fp32},
                          .block = 32,
                          .alignment = 32,
                          .cost = {.encode_ops_per_element = 9, .decode_ops_per_element = 5}},
                         Element::kBits, 0),
        rule_(rule) {}

 private:
  float write_header(std::span<const float>, std::byte*) const override { return 0; }
  float read_header(const std::byte*) const override { return 0; }

  std::uint8_t encode_block(std::span<const float> x, float, std::uint8_t* codes,
                            std::uint64_t& clamped) const override {
    const float amax = largest_magnitude(x);
    if (!(amax > 0)) {
      std::fill_n(codes, x.size(), std::uint8_t{0});
      return std::isnan(amax) ? kE8m0Nan : std::uint8_t{0};
    }
    const std::uint8_t scale = e8m0_from_exponent(shared_exponent<Element>(amax, rule_));
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Exact but for what underflows far below every code.
      const float v = x[i] / e8m0_to_float(scale);
      codes[i] = Element::encode(v);
      clamped += Element::overflows(std::abs(v)) ? 1 : 0;
    }
    return scale;
  }

  void decode_block(std::uint8_t scale, float, const std::uint8_t* codes,
                    std::span<float> x) const override {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = Element::decode(codes[i]) * e8m0_to_float(scale);
  }

  ExponentRule rule_;
};

CodecPtr find_block_scaled(std::string_view name) {
  const std::optional<MicroscalingKind> kind = parse_microscaling(name);
  if (!kind) return nullptr;
  switch (kind->format) {
    case BlockFormat::mx_e4m3:
      return std::make_shared<MxCodec<E4M3>>(std::string(name), kind->rule);
    case BlockFormat::mx_e5m2:
      return std::make_shared<MxCodec<E5M2>>(std::string(name), kind->rule);
    case BlockFormat::mx_e2m3:
      return std::make_shared<MxCodec<E2M3>>(std::string(name), kind->rule);
    case BlockFormat::mx_e3m2:
      return std::make_shared<MxCodec<E3M2>>(std::string(name), kind->rule);
    case BlockFormat::mx_e2m1:
      return std::make_shared<MxCodec<E2M1>>(std::string(name), kind->rule);
    case BlockFormat::nvfp4:  // nvfp4.cc
      break;
  }
  return nullptr;
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
                                                                  {"-even", ExponentRule::even}};
  for (const auto& [base, format] : kFormats) {
    if (!name.starts_with(base)) continue;
    for (const auto& [suffix, rule] : kRules) {
      if (name.substr(base.size()) == suffix) return MicroscalingKind{format, rule};
    }
  }
  return std::nullopt;
}

CodecFamily microscaling_codecs() {
  return {
      .pattern = "mxfp8-e4m3, mxfp8-e5m2, mxfp6-e2m3, mxfp6-e3m2, mxfp4 (each also -ceil, -even)",
      .listed = {"mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp4"},
      .find = find_block_scaled};
}

}  // namespace arlab
