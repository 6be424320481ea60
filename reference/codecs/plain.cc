// The values themselves on the wire: SPEC.md, "Plain values (fp32, fp16, bf16)". And rounded to 16 bits: "16 bits for fp32 (wire-)".
//
// Each takes its own dtype only. A silent cast from bf16 to fp16 turns values above 65504 into
// infinities, which has bitten users: SPEC.md, "What must not happen".

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "reference/codecs/formats/narrow.h"
#include "reference/codecs/name_parts.h"
#include "reference/codecs/native_sum.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/halves.h"

namespace arlab {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

namespace {

class PlainCodec final : public Codec {
 public:
  explicit PlainCodec(DType dtype)
      : Codec({.name = std::string(name_of(dtype)),
               .summary = fmt::format("{} values as they are", name_of(dtype)),
               .source = dtype == DType::bf16 ? "bfloat16" : "IEEE 754-2019",
               .dtypes = {dtype},
               .fp32_values = Fp32Values::carried,
               .saturating = {dtype}}) {}

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    return elements * size_of(dtype);
  }
  void do_encode(DType, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts&) const override {
    std::memcpy(wire.data(), payload.data(), wire.size());
  }
  void do_decode(DType, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    std::memcpy(payload.data(), wire.data(), wire.size());
  }
  void do_decode_add(DType dtype, std::span<const std::byte> wire,
                     std::span<std::byte> sum) const override {
    // Straight from the wire, which may lie at any address.
    const bool aligned = reinterpret_cast<std::uintptr_t>(wire.data()) % size_of(dtype) == 0;
    aligned ? add_native(dtype, false, sum, wire) : Codec::do_decode_add(dtype, wire, sum);
  }
};

/// fp32 values rounded to 16 bits.
class NarrowCodec final : public CodecInContext {
 public:
  NarrowCodec(const std::string& name, NarrowFormat format)
      : CodecInContext(info_of(name, format)), format_(format) {}

 private:
  static CodecInfo info_of(const std::string& name, const NarrowFormat& format) {
    return {.name = name,
            .summary = fmt::format("fp32 values as {}{}", name_of(format.wire),
                                   format.stochastic ? ", stochastic rounding" : ""),
            .source = fmt::format("PyTorch's {}_compress_hook; torchcomms", name_of(format.wire)),
            .dtypes = {DType::fp32},
            .uses_context = format.stochastic,
            .is_dtype_independent = true,
            .fp32_values = Fp32Values::unrounded,
            .cost = {.encode_ops_per_element = format.stochastic ? 2 + kPhiloxOps : 2,
                     .decode_ops_per_element = 1}};
  }
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return NarrowFormat::kBytes * elements;
  }

  void do_encode_in(const EncodeContext& context, DType, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts&) const override {
    for_each_part(as_f32(payload), [&](std::size_t first, std::span<const float> x, Part& part) {
      encode(context.at(first), x, part);
      std::memcpy(wire.data() + NarrowFormat::kBytes * first, part.data(),
                  NarrowFormat::kBytes * x.size());
    });
  }
  void do_decode(DType, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    for_each_part(as_f32(payload), [&](std::size_t first, std::span<float> x, Part& part) {
      std::memcpy(part.data(), wire.data() + NarrowFormat::kBytes * first,
                  NarrowFormat::kBytes * x.size());
      if (format_.wire == DType::fp16) return floats_of_halves({part.data(), x.size()}, x.data());
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = bfloat16_to_float(part[i]);
    });
    for (float& x : as_f32(payload)) x = Fp32Arithmetic::from_float(x);
  }

  /// The wire may lie at any address, codes here do not.
  using Part = std::array<std::uint16_t, 2048>;
  template <class Float, class F>
  static void for_each_part(std::span<Float> x, F f) {
    Part part;
    for (std::size_t first = 0; first < x.size(); first += part.size()) {
      f(first, x.subspan(first, std::min(part.size(), x.size() - first)), part);
    }
  }
  void encode(const EncodeContext& context, std::span<const float> x, Part& part) const {
    if (format_.stochastic) {
      return format_.wire == DType::fp16 ? draw<Fp16Arithmetic>(context, x, part)
                                         : draw<Bf16Arithmetic>(context, x, part);
    }
    if (format_.wire == DType::fp16) return halves_of_floats(x, false, part.data());
    for (std::size_t i = 0; i < x.size(); ++i) part[i] = Bf16Arithmetic::from_float(x[i]);
  }
  template <class Arithmetic>
  static void draw(const EncodeContext& context, std::span<const float> x, Part& part) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      part[i] = narrow_stochastically<Arithmetic>(x[i], random_bits(context, i));
    }
  }

  NarrowFormat format_;
};

}  // namespace

std::optional<NarrowFormat> parse_narrow(std::string_view name) {
  if (!take(name, "wire-")) return std::nullopt;
  NarrowFormat format;
  if (take(name, "fp16")) {
    format.wire = DType::fp16;
  } else if (!take(name, "bf16")) {
    return std::nullopt;
  }
  format.stochastic = take(name, "-stoch");
  return name.empty() ? std::optional(format) : std::nullopt;
}

CodecFamily narrow_codecs() {
  return {.pattern = "wire-bf16[-stoch], wire-fp16[-stoch]",
          .listed = {"wire-bf16", "wire-fp16"},
          .find = [](std::string_view name) -> CodecPtr {
            const auto format = parse_narrow(name);
            return format ? std::make_shared<NarrowCodec>(std::string(name), *format) : nullptr;
          }};
}

CodecFamily plain_codecs() {
  return family_of({std::make_shared<PlainCodec>(DType::fp32),
                    std::make_shared<PlainCodec>(DType::fp16),
                    std::make_shared<PlainCodec>(DType::bf16)});
}

}  // namespace arlab
