#include "kernels/codecs/choice.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/codecs/shared_scale_kernels.h"
#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/formats/logfmt.h"
#include "reference/codecs/nvfp4.h"
#include "reference/codecs/registry.h"
#include "reference/device_facts/kernel_rules.h"
#include "reference/device_facts/two_passes.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

constexpr std::array<std::pair<std::string_view, QuickReduceChoice>, 6> kQuickReduce = {
    {{"qr-fp8", QuickReduceChoice::fp8},
     {"qr-q8", QuickReduceChoice::q8},
     {"qr-q6", QuickReduceChoice::q6},
     {"qr-q4", QuickReduceChoice::q4},
     {"qr-q3", QuickReduceChoice::q3},
     {"qr-fp4", QuickReduceChoice::fp4}}};

LaneGroup lane_group(std::size_t group) { return {static_cast<unsigned>(std::countr_zero(group))}; }

std::optional<CodecChoice> choose_anybit(const AnyBitFormat& format) {
  const bool of_lanes = !format.given && is_group_of_a_kernel(format);
  if (format.stochastic && !of_lanes) return std::nullopt;
  AnyBitParameters p;
  p.bits = format.bits;
  p.symmetric = format.symmetric;
  if (format.metadata == AnyBitFormat::Metadata::spikes) p.spikes = Spikes::exact;
  if (format.metadata == AnyBitFormat::Metadata::integer_spikes) p.spikes = Spikes::integer_scale;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(format.group)));
  if (of_lanes) {
    p.group = lane_group(format.group);
    p.hadamard = format.hadamard;
    p.hadamard_scale = scale;
    p.stochastic = format.stochastic;
    return p;
  }
  TwoPassAnyBitParameters two_pass{p};
  const std::size_t block = anybit_block(format);
  two_pass.block = block == kWholeTensor ? kWholeMessage : block;
  if (format.given) {
    two_pass.given = true;
    two_pass.given_scale = format.given->scale;
    two_pass.given_zero = format.given->zero;
  }
  if (format.hadamard) return TwoPassHadamardParameters{two_pass, scale};
  return two_pass;
}

/// `codec` is known to be a codec of the reference.
std::optional<CodecChoice> choose(const Codec& codec) {
  if (codec.info().is_of_reference_only()) return std::nullopt;
  const std::string& name = codec.name();
  for (const auto& [known, choice] : kQuickReduce) {
    if (name == known) return choice;
  }
  if (const auto format = parse_anybit(name)) return choose_anybit(*format);
  std::optional<CodecChoice> tuned;
  for_each_format(TunedFormats(), [&]<class Format>() {
    if (const auto format = Format::parse(name)) tuned = *format;
  });
  if (tuned) return tuned;
  if (const auto format = NvFp4Blocks::parse(name)) return FastNvFp4Blocks{*format};
#if defined(ARLAB_KERNELS_ON_DEMAND)
  if (auto format = codec_header_of(name)) return *std::move(format);
#endif
  if (FormatChoice kernels = find_format_kernels(name)) return kernels;
  if (FormatChoice kernels = shared_scale_kernels(name)) return kernels;
  if (const auto format = parse_logfmt(name)) {
    if (!is_group_of_a_tile(format->group)) {
      return TwoPassLogFmtParameters{format->bits, format->group};
    }
    return LogFmtParameters{{format->bits}, lane_group(format->group)};
  }
  if (const auto format = parse_nvfp4(name);
      format && format->rounding != NvFp4Rounding::te_4over6) {
    return NvFp4Blocks{.rounding = format->rounding};
  }
  if (const auto format = parse_narrow(name)) return *format;
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    if (name == name_of(dtype)) return PlainChoice{};
  }
  return std::nullopt;
}

}  // namespace

Result<CodecChoice> choose_codec(const CodecPtr& codec) {
  if (const std::optional<CodecChoice> choice = choose(*codec)) return *choice;
  if (FormatChoice kernels = kernels_on_host(codec)) return CodecChoice(std::move(kernels));
  return Status::refusal(fmt::format("codec {} has no kernels", codec->name()));
}

Result<CodecChoice> choose_codec(const std::string& name) {
  try {
    return choose_codec(find_codec(name));
  } catch (const InvalidInput& error) {
    return Status::refusal(error.what());
  }
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
