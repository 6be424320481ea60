// logfmt<n>-g<G>, a logarithmic format, n bits with sign: SPEC.md, "LogFMT (logfmt*)". Its arithmetic
// is in formats/logfmt.h.
//
// Wire, per chunk as for int<b>-g<G>: planes of codes (K in the low n - 1 bits, the sign above),
// then the arrays lo and step, both fp16.

#include "reference/codecs/formats/logfmt.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/name_parts.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"

namespace arlab {
namespace {

constexpr std::size_t kLargestGroup = 65536;
constexpr unsigned kMaxBits = 8;
constexpr float kQuietNaN = std::numeric_limits<float>::quiet_NaN();

/// LogValues of all codes.
std::array<float, 1U << (kMaxBits - 1)> table_of(const LogRange& range, unsigned bits) {
  std::array<float, 1U << (kMaxBits - 1)> values = {};
  for (unsigned k = 1; k < 1U << (bits - 1); ++k) values[k] = LogValues(range)[k];
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
               .is_dtype_independent = true,
               .fp32_values = Fp32Values::unrounded,
               .saturating = {DType::fp16, DType::bf16, DType::fp32},
               .cost = {.encode_ops_per_element = 22,
                        .decode_ops_per_element = 12,
                        .scale_elements = group}}),
        format_{bits},
        group_(group) {}

 private:
  std::size_t chunk_elements() const { return arlab::chunk_elements(group_); }
  std::size_t blocks_of(std::size_t elements) const { return arlab::blocks_of(elements, group_); }
  std::size_t chunk_bytes(std::size_t elements) const {
    return planes_bytes(elements, format_.bits) + blocks_of(elements) * 4;
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
    std::vector<LogRange> meta;
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
      out = pack_planes(codes, format_.bits, out);
      for (const LogRange& m : meta) put(out, m.lo);
      for (const LogRange& m : meta) put(out, m.step);
    }
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const std::byte* in = wire.data();
    std::vector<std::uint8_t> codes;
    std::vector<LogRange> meta;
    for (std::size_t begin = 0; begin < elements; begin += chunk_elements()) {
      const std::size_t count = std::min(chunk_elements(), elements - begin);
      codes.resize(count);
      meta.resize(blocks_of(count));
      in = unpack_planes(in, format_.bits, codes);
      for (LogRange& m : meta) m.lo = take<std::uint16_t>(in);
      for (LogRange& m : meta) m.step = take<std::uint16_t>(in);
      for (std::size_t b = 0; b < meta.size(); ++b) {
        const auto values = table_of(meta[b], format_.bits);
        for (std::size_t i = b * group_; i < std::min(count, (b + 1) * group_); ++i) {
          const float value = format_.dequantize(codes[i], values, largest_finite(dtype));
          store_value(dtype, meta[b].is_finite() ? value : kQuietNaN, payload, begin + i);
        }
      }
    }
  }

  LogRange encode_block(std::span<const float> x, std::span<std::uint8_t> codes) const {
    float largest = 0;
    float smallest = std::numeric_limits<float>::infinity();
    for (const float v : x) {
      if (!std::isfinite(v)) return LogRange::nan();
      largest = std::max(largest, std::abs(v));
      if (v != 0) smallest = std::min(smallest, std::abs(v));
    }
    if (largest == 0) return {};
    const LogRange range = format_.range_of(smallest, largest);
    const auto values = table_of(range, format_.bits);
    for (std::size_t i = 0; i < x.size(); ++i) {
      codes[i] = static_cast<std::uint8_t>(format_.quantize(x[i], values));
    }
    return range;
  }

  LogCodes format_;
  std::size_t group_;
};

CodecPtr find_logfmt(std::string_view name) {
  const std::optional<LogFmtName> format = parse_logfmt(name);
  if (!format) return nullptr;
  return std::make_shared<LogFmtCodec>(std::string(name), format->bits, format->group);
}

}  // namespace

std::optional<LogFmtName> parse_logfmt(std::string_view name) {
  std::string_view rest = name;
  if (!take(rest, "logfmt")) return std::nullopt;
  const std::string_view bits = take_digits(rest);
  if (bits.empty() || !take(rest, "-g")) return std::nullopt;
  const std::string_view digits = take_digits(rest);
  if (digits.empty() || !rest.empty()) return std::nullopt;
  if (bits.size() > 1 || bits < "2" || bits > "8") {
    fail("codec '{}': {} bits; allowed is 2 to {}", name, bits, kMaxBits);
  }
  std::size_t group = 0;  // also of so many digits that they are no std::size_t
  std::from_chars(digits.data(), digits.data() + digits.size(), group);
  if (group < 8 || group % 8 != 0 || group > kLargestGroup || digits.front() == '0') {
    fail("codec '{}': group of {}; allowed is a multiple of 8 from 8 to {}", name, digits,
         kLargestGroup);
  }
  return LogFmtName{static_cast<unsigned>(bits.front() - '0'), group};
}

CodecFamily logfmt_codecs() {
  return {.pattern = "logfmt<n>-g<G> (n: 2 to 8, G: multiples of 8)",
          .listed = {"logfmt4-g32", "logfmt3-g32", "logfmt2-g32"},
          .find = find_logfmt};
}

}  // namespace arlab
