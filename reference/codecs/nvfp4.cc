// NVFP4 with a tensor scale of the message, nvfp4[-vllm] and nvfp4-te[-4over6]: SPEC.md, "NVFP4 (nvfp4)"; and the names of the
// family. The blocks are those of formats/nvfp4.h.
//
// Wire: the number of the message (fp32), then the blocks.

#include "reference/codecs/nvfp4.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "reference/codecs/formats/nvfp4.h"
#include "reference/codecs/name_parts.h"
#include "reference/codecs/scaled_codec.h"

namespace arlab {
namespace {

/// Roundings, by what is behind "nvfp4", the longest first.
struct Named {
  NvFp4Rounding rounding;
  std::string_view suffix;
  std::string_view words;
  std::string_view source;
};
constexpr Named kRoundings[] = {
    {NvFp4Rounding::te_4over6, "-te-4over6", ", the better of two scales, as in TransformerEngine",
     "TransformerEngine quantize_4over6_nvfp4.cuh"},
    {NvFp4Rounding::te, "-te", ", rounded as in TransformerEngine",
     "TransformerEngine reference_nvfp4.py"},
    {NvFp4Rounding::vllm, "-vllm", ", rounded as in vLLM", "vLLM csrc/quantization/fp4"},
    {NvFp4Rounding::nvidia, "", "", "NVIDIA NVFP4"},
};
const Named& named(NvFp4Rounding rounding) {
  return *std::ranges::find(kRoundings, rounding, &Named::rounding);
}

/// A codec with a number for the whole message.
class NvFp4Codec final : public Codec {
 public:
  NvFp4Codec(std::string name, NvFp4Rounding rounding)
      : Codec(
            {.name = std::move(name),
             .summary = fmt::format("e2m1 elements, blocks of 16, e4m3 block scale, fp32 scale per "
                                    "message{}",
                                    words_of(rounding)),
             .source = source_of(rounding),
             .dtypes = {DType::fp16, DType::bf16, DType::fp32},
             .block = NvFp4Blocks::kBlock,
             .alignment = NvFp4Blocks::kBlock,
             .splits_at_alignment = false,
             .is_dtype_independent = true,
             .fp32_values = Fp32Values::unrounded,
             .cost = {.encode_ops_per_element = rounding == NvFp4Rounding::te_4over6 ? 40.0 : 12.0,
                      .decode_ops_per_element = 6,
                      .scale_elements = kWholeTensor}}),
        blocks_{.rounding = rounding} {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return sizeof(float) + scaled_wire_bytes(NvFp4Blocks(), elements);
  }
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    float largest = 0;
    for (std::size_t i = 0; i < payload.size() / size_of(dtype); ++i) {
      const float magnitude = std::abs(load_value(dtype, payload, i));
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
    const float number = blocks_.number_of(largest);
    std::byte* out = wire.data();
    put(out, number);
    counts.clamped += encode_scaled(of(number), dtype, payload, wire.subspan(sizeof(float)));
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::byte* in = wire.data();
    const auto number = take<float>(in);
    decode_scaled(of(number), dtype, wire.subspan(sizeof(float)), payload);
  }
  void do_decode_fma(DType, std::span<const std::byte> wire, std::span<float> sum) const override {
    const std::byte* in = wire.data();
    const auto number = take<float>(in);
    decode_scaled_fma(of(number), wire.subspan(sizeof(float)), sum);
  }

  NvFp4Blocks of(float number) const { return {number, blocks_.rounding}; }

  NvFp4Blocks blocks_;
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
  if (!format || format->tensor_scale) return nullptr;
  return std::make_shared<NvFp4Codec>(std::string(name), format->rounding);
}

}  // namespace

std::string_view words_of(NvFp4Rounding rounding) { return named(rounding).words; }
std::string source_of(NvFp4Rounding rounding) { return std::string(named(rounding).source); }

std::optional<NvFp4Format> parse_nvfp4(std::string_view name) {
  std::string_view rest = name;
  if (!take(rest, "nvfp4")) return std::nullopt;
  NvFp4Format format;
  format.rounding = std::ranges::find_if(kRoundings, [&](const Named& each) {
                      return take(rest, each.suffix);
                    })->rounding;
  const bool has_tensor_scale =
      format.rounding == NvFp4Rounding::nvidia || format.rounding == NvFp4Rounding::vllm;
  if (has_tensor_scale && take(rest, "-ts")) {
    format.tensor_scale = parse_tensor_scale(name, rest);
  } else if (!rest.empty()) {
    return std::nullopt;
  }
  return format;
}

CodecFamily nvfp4_codecs() {
  return {.pattern = "nvfp4[-vllm], nvfp4-te[-4over6]", .listed = {"nvfp4"}, .find = find_nvfp4};
}

}  // namespace arlab
