#include "kernels/compile/codec_text.h"

#include <fmt/ranges.h>

#include <vector>

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

// ---- values of parameters

std::string number(float value) { return fmt::format("{:a}f", value); }
template <class Enum>
  requires std::is_enum_v<Enum>
int number(Enum value) {
  return static_cast<int>(value);
}

std::string value_of(const AnyBitParameters& p) {
  return fmt::format("AnyBitParameters{{{}, {{{}}}, {}, {}, Spikes({}), {}, {}}}", p.bits,
                     p.group.log2, p.symmetric, p.hadamard, number(p.spikes),
                     number(p.hadamard_scale), p.stochastic);
}
std::string value_of(const TwoPassAnyBitParameters& p) {
  return fmt::format("TwoPassAnyBitParameters{{{}, {}u, {}, {}, {}}}", value_of(p.format), p.block,
                     p.given, number(p.given_scale), number(p.given_zero));
}
std::string value_of(const TwoPassHadamardParameters& p) {
  return fmt::format("TwoPassHadamardParameters{{{}, {}}}", value_of(p.integers), number(p.scale));
}
std::string value_of(const NvFp4Blocks& p) {
  return fmt::format("NvFp4Blocks{{{}, NvFp4Rounding({})}}", number(p.number), number(p.rounding));
}

// ---- types

bool has_16_bits(DType dtype) { return size_of(dtype) == 2; }

CodecText text(PlainChoice, DType) { return {"Plain<Element>", "{}"}; }

CodecText text(const NarrowFormat& format, DType) {
  return {fmt::format("{}Narrow<Element>", format.stochastic ? "Stochastic" : ""),
          fmt::format("(NarrowFormat{{DType({}), {}}})", number(format.wire), format.stochastic)};
}

CodecText text(QuickReduceChoice choice, DType) {
  constexpr std::string_view kNames[] = {"QFp8", "Q8", "Q6", "Q4", "Q3", "QFp4"};
  return {fmt::format("QuickReduce<{}, Element>", kNames[number(choice)]), "{}"};
}

CodecText text(const AnyBitParameters& p, DType dtype) {
  const std::string value = fmt::format("({})", value_of(p));
  const std::string_view rounding = p.stochastic ? "Stochastic" : "";
  if (!has_16_bits(dtype)) return {fmt::format("{}AnyBit<Element>", rounding), value};
  const bool is_fixed =
      p.group.log2 >= 5 && p.group.log2 <= 8 && !p.symmetric && !p.hadamard && !p.stochastic;
  if (is_fixed && p.spikes != Spikes::integer_scale) {
    return {fmt::format("AnyBit<Element, FixedAnyBit<{}, {}, Spikes({})>>", p.bits, p.group.log2,
                        number(p.spikes)),
            "{}"};
  }
  return {fmt::format("{}AnyBit<Element, AnyBitOf<AnyBitKind({}), {}>>", rounding,
                      number(kind_of(p)), p.bits),
          value};
}

CodecText text(const Mx& format, DType) {
  const std::string type =
      fmt::format("MxOf<FixedMinifloat<{}, {}>>", format.element().exponent_bits,
                  format.element().mantissa_bits);
  return {fmt::format("Scaled<{}, Element>", type),
          fmt::format("({}{{{{}}, ExponentRule({})}})", type, number(format.rule))};
}
/// A format without parameters.
template <class Format>
  requires requires { Format::kStruct; }
CodecText text(const Format&, DType) {
  return {fmt::format("Scaled<{}, Element>", Format::kStruct),
          fmt::format("({}{{}})", Format::kStruct)};
}
template <std::size_t kGroup>
CodecText text(const Fp8Blocks<kGroup>& format, DType) {
  const std::string type = fmt::format("Fp8Blocks<{}>", kGroup);
  return {fmt::format("{}Scaled<{}, Element>", format.stochastic ? "Stochastic" : "", type),
          fmt::format("({}{{{}, {}}})", type, format.torch, format.stochastic)};
}
CodecText text(const FastNvFp4Blocks& format, DType) {
  return {"Scaled<FastNvFp4Blocks, Element>",
          fmt::format("(FastNvFp4Blocks{{{}}})", value_of(NvFp4Blocks(format)))};
}

template <std::size_t kGroup>
CodecText text(const Codebook<kGroup>& format, DType) {
  const CodebookLevels& levels = format.levels;
  std::vector<std::string> numbers;
  for (unsigned i = 0; i < levels.count; ++i) numbers.push_back(number(levels.level[i]));
  const std::string type = fmt::format("CodebookInMemory<{}, {}>", kGroup, levels.bits);
  return {fmt::format("Scaled<{}, Element>", type),
          fmt::format("({}(Codebook<{}>{{{{{}, {}, {}, {{{}}}}}}}))", type, kGroup, levels.count,
                      levels.bits, number(levels.largest), fmt::join(numbers, ", ")),
          true};
}

CodecText text(const LogFmtParameters& p, DType dtype) {
  return {has_16_bits(dtype) ? fmt::format("LogFmtOf<Element, {}>", p.bits) : "LogFmt<Element>",
          fmt::format("(LogFmtParameters{{{{{}}}, {{{}}}}})", p.bits, p.group.log2)};
}

CodecText text(const CodecOfHeader& codec, DType) {
  const std::string structure = "::" + codec.header->structure;
  const std::vector<std::uint8_t> bytes(codec.object.begin(), codec.object.end());
  const std::string format =
      fmt::format("FormatOfHeader<{}, {}, {}>", structure, codec.bits, codec.clamps_fp16_sums);
  return {fmt::format("{}Scaled<{}, Element>", codec.stochastic ? "Stochastic" : "", format),
          fmt::format("({}{{struct_of<{}, {}>()}})", format, structure, fmt::join(bytes, ", ")),
          false, codec.header};
}

/// Formats launch their own kernels.
CodecText text(const FormatChoice&, DType) { return {}; }

CodecText text(const TwoPassAnyBitParameters& p, DType) {
  return {"TwoPassAnyBit<Element>", fmt::format("({})", value_of(p))};
}
CodecText text(const TwoPassHadamardParameters& p, DType) {
  return {"TwoPassHadamard<Element>", fmt::format("({})", value_of(p))};
}
CodecText text(const TwoPassLogFmtParameters& p, DType) {
  return {"TwoPassLogFmt<Element>",
          fmt::format("(TwoPassLogFmtParameters{{{}, {}u}})", p.bits, p.block)};
}
CodecText text(const NvFp4Blocks& p, DType) {
  return {"NvFp4<Element>", fmt::format("({})", value_of(p))};
}

}  // namespace

CodecText text_of(const CodecChoice& codec, DType dtype) {
  return std::visit([&](const auto& chosen) { return text(chosen, dtype); }, codec);
}

CodecText text_of_message_scale(const CodecChoice& codec) {
  if (const auto* blocks = std::get_if<NvFp4Blocks>(&codec)) {
    return {"NvFp4OfMessage<Element>", fmt::format("({})", value_of(*blocks))};
  }
  const auto& integers = std::get<TwoPassAnyBitParameters>(codec);
  const AnyBitParameters& p = integers.format;
  if (integers.given) {
    return {fmt::format("GivenAnyBit<Element, {}>", p.bits),
            fmt::format("({}, {}, {})", value_of(p), number(integers.given_scale),
                        number(integers.given_zero))};
  }
  return {fmt::format("AnyBitOfMessage<Element, AnyBitKind::{}, {}>",
                      p.symmetric ? "symmetric" : "plain", p.bits),
          fmt::format("({})", value_of(p))};
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
