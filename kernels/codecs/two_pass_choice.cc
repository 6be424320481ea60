#include "kernels/codecs/two_pass_choice.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/formats/logfmt.h"
#include "reference/codecs/nvfp4.h"
#include "reference/codecs/registry.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

TwoPassChoice choose_anybit(const AnyBitFormat& format) {
  TwoPassAnyBitParameters p;
  p.format.bits = format.bits;
  p.format.symmetric = format.symmetric;
  if (format.metadata == AnyBitFormat::Metadata::spikes) p.format.spikes = Spikes::exact;
  if (format.metadata == AnyBitFormat::Metadata::integer_spikes) {
    p.format.spikes = Spikes::integer_scale;
  }
  p.block = anybit_block(format) == kWholeTensor ? kWholeMessage : anybit_block(format);
  if (format.given) {
    p.given = true;
    p.given_scale = format.given->scale;
    p.given_zero = format.given->zero;
  }
  if (format.hadamard) {
    const double size = static_cast<double>(format.group);
    return TwoPassHadamardParameters{p, static_cast<float>(1.0 / std::sqrt(size))};
  }
  return p;
}

std::optional<TwoPassChoice> choose(const Codec& codec) {
  if (codec.info().is_of_reference_only() || codec.info().uses_context) return std::nullopt;
  const std::string& name = codec.name();
  if (const auto format = parse_anybit(name)) return choose_anybit(*format);
  if (const auto format = parse_nvfp4(name)) return NvFp4Blocks{.vllm = format->vllm};
  if (const auto format = parse_logfmt(name)) {
    return TwoPassLogFmtParameters{format->bits, format->group};
  }
  return std::nullopt;
}

}  // namespace

Result<TwoPassChoice> choose_two_pass(const std::string& name) {
  try {
    if (const std::optional<TwoPassChoice> choice = choose(*find_codec(name))) return *choice;
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
  return Status::error(fmt::format("codec {} has no kernels", name));
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
