// logfmt<n>-g<G>, a logarithmic format, n bits with sign: SPEC.md, "LogFMT (logfmt*)".
//
// Per block hi = log2(max|x|), lo = max(log2(min nonzero |x|), hi - 32), step = (hi - lo) /
// (2^(n-1) - 2); code 0 is zero, code K = 1 .. 2^(n-1) - 1 is 2^(lo + (K - 1) * step). Rounding is
// to the nearest value in linear space.
//
// Wire, per chunk as for int<b>-g<G>: planes of codes (K in the low n - 1 bits, the sign above),
// then the arrays lo and step, both fp16.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <regex>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/formats/portable_log.h"

namespace arlab {
namespace {

constexpr std::size_t kMaxGroup = 65536;
constexpr unsigned kMaxBits = 8;

struct BlockMetadata {
  std::uint16_t lo = 0;  // fp16 patterns
  std::uint16_t step = 0;
};

/// Values of the codes 0 .. 2^(n-1) - 1 of a block; the decoder's and the encoder's.
using Values = std::array<float, 1U << (kMaxBits - 1)>;
Values values_of(const BlockMetadata& meta, unsigned bits) {
  Values values = {};
  const float lo = half_to_float(meta.lo);
  const float step = half_to_float(meta.step);
  for (unsigned k = 1; k < 1U << (bits - 1); ++k) {
    values[k] = exp2_fp32(lo + static_cast<float>(k - 1) * step);
  }
  return values;
}

class LogFmtCodec final : public Codec {
 public:
  LogFmtCodec(std::string name, unsigned bits, std::size_t group)
      : Codec({.name = std::move(name),
               .summary = fmt::format("{}-bit logarithmic values, blocks of {}", bits, group),
               .source = "DeepSeek LogFMT (Insights into DeepSeek-V3)",
               .dtypes = {DType::fp16, DType::bf16, DType::fp32},
               .block = group,
               .alignment = group,
               .saturating = {DType::fp16, DType::bf16, DType::fp32},
               .cost = {.encode_ops_per_element = 22, .decode_ops_per_element = 12}}),
        bits_(bits),
        group_(group) {}

 private:
  std::size_t chunk_elements() const { return arlab::chunk_elements(group_); }
  std::size_t blocks_of(std::size_t elements) const { return arlab::blocks_of(elements, group_); }
  std::size_t chunk_bytes(std::size_t elements) const {
    return planes_bytes(elements, bits_) + blocks_of(elements) * 4;
  }

  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    const std::size_t rest = elements % chunk_elements();
    return elements / chunk_elements() * chunk_bytes(chunk_elements()) +
           (rest == 0 ? 0 : chunk_bytes(rest));
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts&) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    std::byte* out = wire.data();
    std::vector<float> x;
    std::vector<std::uint8_t> codes;
    std::vector<BlockMetadata> meta;
    for (std::size_t begin = 0; begin < elements; begin += chunk_elements()) {
      const std::size_t count = std::min(chunk_elements(), elements - begin);
      x.resize(count);
      for (std::size_t i = 0; i < count; ++i) x[i] = load_value(dtype, payload, begin + i);
      codes.assign(count, 0);
      meta.assign(blocks_of(count), {});
      for (std::size_t b = 0; b < meta.size(); ++b) {
        const std::size_t first = b * group_;
        const std::size_t size = std::min(group_, count - first);
        meta[b] =
            encode_block(std::span(x).subspan(first, size), std::span(codes).subspan(first, size));
      }
      out = pack_planes(codes, bits_, out);
      for (const BlockMetadata& m : meta) put(out, m.lo);
      for (const BlockMetadata& m : meta) put(out, m.step);
    }
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const std::byte* in = wire.data();
    std::vector<std::uint8_t> codes;
    std::vector<BlockMetadata> meta;
    const unsigned sign = 1U << (bits_ - 1);
    for (std::size_t begin = 0; begin < elements; begin += chunk_elements()) {
      const std::size_t count = std::min(chunk_elements(), elements - begin);
      codes.resize(count);
      meta.resize(blocks_of(count));
      in = unpack_planes(in, bits_, codes);
      for (BlockMetadata& m : meta) m.lo = take<std::uint16_t>(in);
      for (BlockMetadata& m : meta) m.step = take<std::uint16_t>(in);
      for (std::size_t b = 0; b < meta.size(); ++b) {
        const bool is_nan = is_non_finite<Fp16Arithmetic>(meta[b].lo) ||
                            is_non_finite<Fp16Arithmetic>(meta[b].step);
        const Values values = values_of(meta[b], bits_);
        for (std::size_t i = b * group_; i < std::min(count, (b + 1) * group_); ++i) {
          // The last rounding saturates: no finite tensor becomes infinite (SPEC.md, "Saturation").
          const float magnitude = limited(values[codes[i] & (sign - 1)], largest_finite(dtype));
          const float value = (codes[i] & sign) != 0 ? -magnitude : magnitude;
          store_value(dtype, is_nan ? std::numeric_limits<float>::quiet_NaN() : value, payload,
                      begin + i);
        }
      }
    }
  }

  BlockMetadata encode_block(std::span<const float> x, std::span<std::uint8_t> codes) const {
    float largest = 0;
    float smallest = std::numeric_limits<float>::infinity();
    for (const float v : x) {
      if (!std::isfinite(v)) return {.lo = Fp16Arithmetic::kNaN};
      largest = std::max(largest, std::abs(v));
      if (v != 0) smallest = std::min(smallest, std::abs(v));
    }
    if (largest == 0) return {};
    const float hi = log2_fp32(largest);
    float lo = std::max(log2_fp32(smallest), hi - 32.0f);
    float step = 0;
    if (bits_ == 2) {
      lo = hi;
    } else {
      step = (hi - lo) / static_cast<float>((1U << (bits_ - 1)) - 2);
    }
    const BlockMetadata meta{half_from_float(lo), half_from_float(step)};
    const Values values = values_of(meta, bits_);
    const auto end = values.begin() + (1 << (bits_ - 1));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float magnitude = std::abs(x[i]);
      // Values ascend (or are equal, when step is 0: then the first of them is meant).
      const auto above = std::lower_bound(values.begin() + 1, end, magnitude);
      auto k = static_cast<unsigned>(above - values.begin());
      if (above == end) {
        k = static_cast<unsigned>(std::lower_bound(values.begin() + 1, end, *(end - 1)) -
                                  values.begin());
      } else if (magnitude - values[k - 1] < values[k] - magnitude) {
        --k;
      }
      const unsigned sign = k != 0 && std::signbit(x[i]) ? 1U << (bits_ - 1) : 0;
      codes[i] = static_cast<std::uint8_t>(sign | k);
    }
    return meta;
  }

  unsigned bits_;
  std::size_t group_;
};

CodecPtr find_logfmt(std::string_view name) {
  static const std::regex pattern("logfmt([0-9]+)-g([0-9]+)");
  std::cmatch part;
  if (!std::regex_match(name.begin(), name.end(), part, pattern)) return nullptr;
  if (part[1].length() > 1 || part[1].str() < "2" || part[1].str() > "8") {
    fail("codec '{}': {} bits; allowed is 2 to {}", name, part[1].str(), kMaxBits);
  }
  const std::size_t group = part[2].length() > 6 ? 0 : std::stoul(part[2].str());
  if (group < 8 || group % 8 != 0 || group > kMaxGroup || part[2].str().front() == '0') {
    fail("codec '{}': group of {}; allowed is a multiple of 8 from 8 to {}", name, part[2].str(),
         kMaxGroup);
  }
  return std::make_shared<LogFmtCodec>(std::string(name),
                                       static_cast<unsigned>(std::stoul(part[1].str())), group);
}

}  // namespace

CodecFamily logfmt_codecs() {
  return {.pattern = "logfmt<n>-g<G>",
          .listed = {"logfmt4-g32", "logfmt3-g32", "logfmt2-g32"},
          .find = find_logfmt};
}

}  // namespace arlab
