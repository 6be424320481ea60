// Names of the formats that scale blocks, and their texts for `arlab list codecs`. Kernels need neither.

#include <fmt/ranges.h>

#include <utility>

#include "reference/codecs/formats/formats.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/name_parts.h"

namespace arlab {

// ---------------------------------------------------------------- mx*

template <class Element, std::size_t kElements>
CodecInfo MxOf<Element, kElements>::info(const std::string& name) {
  return {
      .name = name,
      .summary = fmt::format("OCP microscaling, {}-bit elements, E8M0 scale", parse(name)->bits()),
      .source = "OCP Microscaling Formats v1.0",
      .dtypes = {},
      .cost = {.encode_ops_per_element = 9, .decode_ops_per_element = 5}};
}

template <class Element, std::size_t kElements>
std::vector<std::string> MxOf<Element, kElements>::listed() {
  return {"mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp4"};
}

template <class Element, std::size_t kElements>
std::string MxOf<Element, kElements>::pattern() {
  return fmt::format("{} (each also -ceil, -even, -rceil)", fmt::join(listed(), ", "));
}

template <class Element, std::size_t kElements>
std::optional<MxOf<Element, kElements>> MxOf<Element, kElements>::parse(std::string_view name)
  requires std::same_as<Element, AnyMinifloat>
{
  constexpr Minifloat kFormats[] = {kE4m3fn, kE5m2, kE2m3, kE3m2, kE2m1};  // as listed
  constexpr std::pair<std::string_view, ExponentRule> kRules[] = {{"", ExponentRule::floor},
                                                                  {"-floor", ExponentRule::floor},
                                                                  {"-ceil", ExponentRule::ceil},
                                                                  {"-even", ExponentRule::even},
                                                                  {"-rceil", ExponentRule::rceil}};
  const std::vector<std::string> names = listed();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!name.starts_with(names[i])) continue;
    for (const auto& [suffix, rule] : kRules) {
      if (name.substr(names[i].size()) == suffix) return MxOf{{kFormats[i]}, rule};
    }
  }
  return std::nullopt;
}

template struct MxOf<AnyMinifloat>;

// ---------------------------------------------------------------- mxint8

CodecInfo MxInt8::info(const std::string& name) {
  return {.name = name,
          .summary = "OCP microscaling, 8-bit integers, E8M0 scale",
          .source = "OCP Microscaling Formats v1.0",
          .dtypes = {},
          .cost = {.encode_ops_per_element = 7, .decode_ops_per_element = 4}};
}

std::vector<std::string> MxInt8::listed() { return {"mxint8"}; }

std::optional<MxInt8> MxInt8::parse(std::string_view name) {
  return name == "mxint8" ? std::optional(MxInt8()) : std::nullopt;
}

// ---------------------------------------------------------------- fp8-e4m3-g<G>

namespace {

std::string fp8_name(std::size_t group) { return fmt::format("fp8-e4m3-g{}", group); }

}  // namespace

template <std::size_t kElements>
CodecInfo Fp8Blocks<kElements>::info(const std::string& name) {
  const Fp8Blocks format = *parse(name);
  return {.name = name,
          .summary = fmt::format("e4m3 elements, fp32 scale per {}{}{}", kElements,
                                 format.torch ? ", rounded as in torch" : "",
                                 format.stochastic ? ", stochastic rounding" : ""),
          .source = format.torch ? "DeepGEMM, torch" : "DeepEP",
          .dtypes = {},
          .cost = {.encode_ops_per_element = format.stochastic ? 7 + kPhiloxOps : 7,
                   .decode_ops_per_element = 5}};
}

template <std::size_t kElements>
std::string Fp8Blocks<kElements>::pattern() {
  return fp8_name(kElements) + "[-torch][-stoch]";
}

template <std::size_t kElements>
std::vector<std::string> Fp8Blocks<kElements>::listed() {
  if (kElements != 128) return {};
  return {fp8_name(kElements)};
}

template <std::size_t kElements>
std::optional<Fp8Blocks<kElements>> Fp8Blocks<kElements>::parse(std::string_view name) {
  Fp8Blocks format;
  const std::string own = fp8_name(kElements);
  if (!take(name, own)) return std::nullopt;
  format.torch = take(name, "-torch");
  format.stochastic = take(name, "-stoch");
  if (!name.empty()) return std::nullopt;
  return format;
}

template struct Fp8Blocks<64>;
template struct Fp8Blocks<128>;
template struct Fp8Blocks<256>;

// ---------------------------------------------------------------- fp8-e4m3-g128-ue8m0

CodecInfo Fp8PowerBlocks::info(const std::string& name) {
  return {.name = name,
          .summary = "e4m3 elements, E8M0 scale per 128",
          .source = "DeepGEMM, vLLM (UE8M0)",
          .dtypes = {},
          .cost = {.encode_ops_per_element = 9, .decode_ops_per_element = 5}};
}

std::vector<std::string> Fp8PowerBlocks::listed() { return {}; }

std::string Fp8PowerBlocks::pattern() { return "fp8-e4m3-g128-ue8m0 (E8M0 scales)"; }

std::optional<Fp8PowerBlocks> Fp8PowerBlocks::parse(std::string_view name) {
  return name == "fp8-e4m3-g128-ue8m0" ? std::optional(Fp8PowerBlocks()) : std::nullopt;
}

// ---------------------------------------------------------------- nvfp4[-vllm]-ts<tensor scale>

CodecInfo NvFp4Blocks::info(const std::string& name) {
  const NvFp4Rounding rounding = parse(name).value_or(NvFp4Blocks()).rounding;
  return {
      .name = name,
      .summary = fmt::format("e2m1 elements, blocks of 16, e4m3 block scale, given tensor scale{}",
                             words_of(rounding)),
      .source = source_of(rounding),
      .dtypes = {},
      .cost = {.encode_ops_per_element = 10, .decode_ops_per_element = 6}};
}

std::string NvFp4Blocks::pattern() { return "nvfp4[-vllm]-ts<tensor scale>"; }

std::vector<std::string> NvFp4Blocks::listed() { return {}; }

std::optional<NvFp4Blocks> NvFp4Blocks::parse(std::string_view name) {
  const std::optional<NvFp4Format> format = parse_nvfp4(name);
  if (!format || !format->tensor_scale) return std::nullopt;
  return NvFp4Blocks{*format->tensor_scale, format->rounding};
}

// ---------------------------------------------------------------- <codebook>-g<G>

template <std::size_t kElements>
CodecInfo Codebook<kElements>::info(const std::string& name) {
  const CodebookLevels levels = parse(name)->levels;
  return {
      .name = name,
      .summary = fmt::format("codebook of {} levels, fp32 scale per {}", levels.count, kElements),
      .source = name.starts_with("nf4-")       ? "QLoRA (Dettmers et al. 2023)"
                : name.starts_with("e4m3b15-") ? "Triton"
                                               : "registered",
      .dtypes = {},
      // The largest magnitude (2), the product; a comparison and an addition per bit of the code.
      .cost = {.encode_ops_per_element = 3.0 + 3 * levels.bits, .decode_ops_per_element = 3}};
}

template <std::size_t kElements>
std::vector<std::string> Codebook<kElements>::listed() {
  return {};
}

/// Returns the pattern of all groups together.
template <std::size_t kElements>
std::string Codebook<kElements>::pattern() {
  if (kElements != 64) return "";
  return "<codebook>-g<G> (nf4, e4m3b15 or a registered one; G: 32, 64, 128)";
}

template <std::size_t kElements>
std::optional<Codebook<kElements>> Codebook<kElements>::parse(std::string_view name) {
  if (!name.ends_with(fmt::format("-g{}", kElements))) return std::nullopt;
  const std::optional<CodebookLevels> levels = find_codebook(name);
  return levels ? std::optional(Codebook{*levels}) : std::nullopt;
}

template struct Codebook<32>;
template struct Codebook<64>;
template struct Codebook<128>;

}  // namespace arlab
