// Codecs whose wire is as long as the data make it: exponents with escapes, which lose nothing, and an entropy coder around another
// codec. SPEC.md, "Wires whose length depends on the data".
// Sources: exponents of bf16 weights and activations are few (ZipNN, Hershcovitch et al. 2024; DFloat11, Zhang et al. 2025);
// rANS is Duda's (2013), in the form of Giesen's ryg_rans.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "reference/codecs/bit_planes.h"
#include "reference/codecs/name_parts.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/codecs/wire_chunks.h"

namespace arlab {
namespace {

/// Writes the header of a wire whose bytes in use end at `end`, and zeros behind them.
void finish(std::span<std::byte> wire, const std::byte* end) {
  const auto used = static_cast<std::uint64_t>(end - wire.data());
  std::memcpy(wire.data(), &used, sizeof(used));
  std::fill(wire.begin() + static_cast<std::ptrdiff_t>(used), wire.end(), std::byte{0});
}

// ---------------------------------------------------------------- exponents with escapes

struct ExponentFormat {
  unsigned bits = 0;
  std::size_t group = 0;

  unsigned escape() const { return (1U << bits) - 1; }
};

/// A number without its exponent: sign and mantissa, of bf16 one byte, of fp32 three.
constexpr std::size_t rest_bytes(DType dtype) { return size_of(dtype) - 1; }

class LosslessExponents final : public Codec {
 public:
  LosslessExponents(std::string name, ExponentFormat format)
      : Codec({.name = std::move(name),
               .summary = fmt::format(
                   "lossless: exponents as {} bits below the largest of {}, with escapes",
                   format.bits, format.group),
               .source = "after ZipNN, DFloat11",
               .dtypes = {DType::bf16, DType::fp32},
               .block = format.group,
               .alignment = format.group,
               .has_variable_wire = true,
               .fp32_values = Fp32Values::carried,
               .saturating = {DType::bf16, DType::fp32},
               .cost = {.encode_ops_per_element = 8, .decode_ops_per_element = 6}}),
        format_(format) {}

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    return kWireLengthBytes + elements * (rest_bytes(dtype) + 1) +
           planes_bytes(elements, format_.bits) + blocks_of(elements, format_.group);
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& /*nothing is clamped*/) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    std::byte* out = wire.data() + kWireLengthBytes;
    std::vector<std::uint8_t> exponents(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      const std::uint32_t bits = bits_of(dtype, payload, i);
      exponents[i] = static_cast<std::uint8_t>(bits >> 23);
      const std::uint32_t rest = (bits >> 31) << 23 | (bits & 0x7FFFFF);
      for (std::size_t byte = 0; byte < rest_bytes(dtype); ++byte) {
        *out++ = static_cast<std::byte>(rest >> (8 * (byte + 3 - rest_bytes(dtype))));
      }
    }
    std::vector<std::uint8_t> codes(elements);
    std::vector<std::uint8_t> bases;
    std::vector<std::uint8_t> escapes;
    for (std::size_t first = 0; first < elements; first += format_.group) {
      const std::size_t end = std::min(elements, first + format_.group);
      bases.push_back(*std::max_element(&exponents[first], exponents.data() + end));
      for (std::size_t i = first; i < end; ++i) {
        const unsigned below = bases.back() - exponents[i];
        codes[i] = static_cast<std::uint8_t>(std::min(below, format_.escape()));
        if (below >= format_.escape()) escapes.push_back(exponents[i]);
      }
    }
    out = pack_planes(codes, format_.bits, out);
    for (const auto* bytes : {&bases, &escapes}) {
      out = std::ranges::copy(std::as_bytes(std::span(*bytes)), out).out;
    }
    finish(wire, out);
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const std::span<const std::byte> sent = sent_of(wire);
    const std::size_t before_escapes = do_wire_bytes(dtype, elements) - elements;
    if (sent.size() < before_escapes) fail_early(sent.size());
    const std::byte* rests = sent.data() + kWireLengthBytes;
    std::vector<std::uint8_t> codes(elements);
    const std::byte* bases =
        unpack_planes(rests + elements * rest_bytes(dtype), format_.bits, codes);
    const std::span<const std::byte> escapes = sent.subspan(before_escapes);
    std::size_t escape = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      unsigned exponent = std::to_integer<unsigned>(bases[i / format_.group]) - codes[i];
      if (codes[i] == format_.escape()) {
        if (escape == escapes.size()) fail_early(sent.size());
        exponent = std::to_integer<unsigned>(escapes[escape++]);
      }
      std::uint32_t rest = 0;
      for (std::size_t byte = 0; byte < rest_bytes(dtype); ++byte) {
        rest |= std::to_integer<std::uint32_t>(*rests++) << (8 * (byte + 3 - rest_bytes(dtype)));
      }
      const std::uint32_t bits = (rest >> 23) << 31 | (exponent & 0xFF) << 23 | (rest & 0x7FFFFF);
      if (dtype == DType::fp32) {
        as_f32(payload)[i] = std::bit_cast<float>(bits);
      } else {
        as_u16(payload)[i] = static_cast<std::uint16_t>(bits >> 16);
      }
    }
  }

  /// As fp32, whose exponent bf16 has.
  static std::uint32_t bits_of(DType dtype, std::span<const std::byte> payload, std::size_t i) {
    if (dtype == DType::fp32) return std::bit_cast<std::uint32_t>(as_f32(payload)[i]);
    return std::uint32_t{as_u16(payload)[i]} << 16;
  }

  ExponentFormat format_;
};

CodecPtr find_lossless(std::string_view name) {
  std::string_view rest = name;
  if (!take(rest, "lossless-e")) return nullptr;
  const std::string_view bits = take_digits(rest);
  if (!take(rest, "-g")) return nullptr;
  const std::string_view digits = take_digits(rest);
  if (!rest.empty()) return nullptr;
  const auto group = number_of_digits(digits);
  if (bits.size() != 1 || bits < "2" || bits > "4") {
    fail("codec '{}': {} bits; allowed is 2 to 4", name, bits);
  }
  if (!group || *group < 8 || *group % 8 != 0 || *group > 4096) {
    fail("codec '{}': group of {}; allowed is a multiple of 8 from 8 to 4096", name, digits);
  }
  return std::make_shared<LosslessExponents>(
      std::string(name), ExponentFormat{static_cast<unsigned>(bits.front() - '0'), *group});
}

// ---------------------------------------------------------------- rANS of another codec's wire

constexpr unsigned kTotalBits = 12;
constexpr std::uint32_t kTotal = 1U << kTotalBits;
/// States are from this number on, and below 256 times as many.
constexpr std::uint32_t kLowState = 1U << 23;
constexpr std::size_t kTableBytes = 256 * sizeof(std::uint16_t);

using Frequencies = std::array<std::uint32_t, 256>;

/// Returns frequencies of the bytes that add up to kTotal; none that occurs has 0.
Frequencies frequencies_of(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, 256> counts = {};
  for (const std::byte byte : bytes) ++counts[std::to_integer<std::size_t>(byte)];
  Frequencies frequencies;
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint64_t share = counts[i] * kTotal / bytes.size();
    frequencies[i] =
        static_cast<std::uint32_t>(counts[i] == 0 ? 0 : std::max<std::uint64_t>(1, share));
  }
  std::uint32_t sum = std::accumulate(frequencies.begin(), frequencies.end(), 0U);
  for (; sum > kTotal; --sum) --*std::ranges::max_element(frequencies);
  for (; sum < kTotal; ++sum) ++*std::ranges::max_element(frequencies);
  return frequencies;
}

std::array<std::uint32_t, 256> starts_of(const Frequencies& frequencies) {
  std::array<std::uint32_t, 256> starts;
  std::exclusive_scan(frequencies.begin(), frequencies.end(), starts.begin(), 0U);
  return starts;
}

class RansCodec final : public CodecInContext {
 public:
  explicit RansCodec(CodecPtr inner)
      : CodecInContext(info_of(*inner)), inner_(accelerated(inner)) {}

 private:
  enum class Mode : std::uint8_t { as_it_is, coded };
  static constexpr std::size_t kHeader = kWireLengthBytes + 1;

  static CodecInfo info_of(const Codec& inner) {
    CodecInfo info = inner.info();
    info.name.insert(0, "rans-");
    info.summary += ", its wire entropy-coded";
    info.has_variable_wire = true;
    info.shares_scales = info.adds_codes = false;
    // Per byte of the inner wire: a table, a division, a product, an addition, what leaves the state.
    info.cost.encode_ops_per_element += 12;
    info.cost.decode_ops_per_element += 10;
    return info;
  }

  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    return kHeader + inner_->wire_bytes(dtype, elements);
  }
  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override {
    std::vector<std::byte> bytes(wire.size() - kHeader);
    inner_->encode(dtype, payload, bytes, &counts, context);
    const std::vector<std::byte> coded = coded_of(bytes);
    const bool is_shorter = coded.size() < bytes.size();
    wire[kWireLengthBytes] = static_cast<std::byte>(is_shorter ? Mode::coded : Mode::as_it_is);
    finish(wire, std::ranges::copy(is_shorter ? coded : bytes, wire.data() + kHeader).out);
  }

  /// The table, the state that the decoder begins with, and the bytes that it takes in turn.
  static std::vector<std::byte> coded_of(std::span<const std::byte> bytes) {
    const Frequencies frequencies = frequencies_of(bytes);
    const auto starts = starts_of(frequencies);
    std::vector<std::byte> backwards;
    std::uint32_t state = kLowState;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      const auto symbol = std::to_integer<std::size_t>(bytes[i]);
      const std::uint32_t frequency = frequencies[symbol];
      // A state at this limit or above would leave the range.
      const std::uint64_t limit = std::uint64_t{kLowState >> kTotalBits << 8} * frequency;
      for (; state >= limit; state >>= 8) backwards.push_back(static_cast<std::byte>(state));
      state = (state / frequency << kTotalBits) + state % frequency + starts[symbol];
    }
    std::vector<std::byte> coded(kTableBytes + sizeof(state) + backwards.size());
    std::byte* out = coded.data();
    for (const std::uint32_t frequency : frequencies)
      put(out, static_cast<std::uint16_t>(frequency));
    put(out, state);
    std::ranges::reverse_copy(backwards, out);
    return coded;
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    inner_->decode(dtype, inner_wire(wire), payload);
  }
  void do_decode_fp32(DType dtype, std::span<const std::byte> wire,
                      std::span<float> values) const override {
    inner_->decode_fp32(dtype, inner_wire(wire), values);
  }
  void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                     std::span<float> sum) const override {
    inner_->decode_fma(dtype, inner_wire(wire), sum);
  }

  std::vector<std::byte> inner_wire(std::span<const std::byte> wire) const {
    const std::span<const std::byte> sent = sent_of(wire);
    std::vector<std::byte> bytes(wire.size() - kHeader);
    if (sent.size() < kHeader) fail_early(sent.size());
    const auto mode = std::to_integer<unsigned>(sent[kWireLengthBytes]);
    const std::span<const std::byte> body = sent.subspan(kHeader);
    if (mode > 1) fail("codec {}: mode {} in a wire; allowed are 0 and 1", name(), mode);
    if (mode == static_cast<unsigned>(Mode::coded)) {
      decode_bytes(body, bytes, sent.size());
    } else {
      if (body.size() != bytes.size()) fail_early(sent.size());
      std::ranges::copy(body, bytes.begin());
    }
    return bytes;
  }

  void decode_bytes(std::span<const std::byte> body, std::span<std::byte> bytes,
                    std::size_t sent) const {
    if (body.size() < kTableBytes + sizeof(std::uint32_t)) fail_early(sent);
    const std::byte* in = body.data();
    Frequencies frequencies;
    for (std::uint32_t& frequency : frequencies) frequency = take<std::uint16_t>(in);
    if (std::accumulate(frequencies.begin(), frequencies.end(), 0U) != kTotal) {
      fail("codec {}: frequencies in a wire do not add up to {}", name(), kTotal);
    }
    const auto starts = starts_of(frequencies);
    std::vector<std::uint8_t> symbol_at(kTotal);
    for (std::size_t i = 0; i < 256; ++i) {
      std::fill_n(symbol_at.begin() + starts[i], frequencies[i], static_cast<std::uint8_t>(i));
    }
    auto state = take<std::uint32_t>(in);
    const std::byte* const end = body.data() + body.size();
    for (std::byte& byte : bytes) {
      const std::uint32_t slot = state & (kTotal - 1);
      const std::uint8_t symbol = symbol_at[slot];
      byte = std::byte{symbol};
      state = frequencies[symbol] * (state >> kTotalBits) + slot - starts[symbol];
      for (; state < kLowState; state = state << 8 | std::to_integer<std::uint32_t>(*in++)) {
        if (in == end) fail_early(sent);
      }
    }
  }

  CodecPtr inner_;
};

CodecPtr find_rans(std::string_view name) {
  std::string_view rest = name;
  if (!take(rest, "rans-")) return nullptr;
  CodecPtr inner = find_codec(rest);
  if (inner->info().has_variable_wire) {
    fail("codec '{}': the wire of '{}' is of variable length already", name, rest);
  }
  return std::make_shared<RansCodec>(std::move(inner));
}

}  // namespace

CodecFamily lossless_codecs() {
  return {.pattern = "lossless-e<b>-g<G> (b: 2 to 4, G: multiples of 8)",
          .listed = {},
          .find = find_lossless};
}

CodecFamily rans_codecs() { return {.pattern = "rans-<codec>", .listed = {}, .find = find_rans}; }

}  // namespace arlab
