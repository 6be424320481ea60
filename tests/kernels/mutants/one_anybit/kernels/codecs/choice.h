// Instead of kernels/codecs/choice.h: int8-g128-sr, codebooks in groups of 64, int4-g32-stoch and shared-int8-g32 on fp16, and nothing else.
#pragma once

#include <optional>
#include <string>

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/codebooks.h"
#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/shared_scale_kernels.h"
#include "kernels/codecs/two_pass.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct CodecChoice {
  FormatChoice kernels;  ///< of shared-int8-g32; else null
  std::optional<Codebook<64>> codebook;
  bool stochastic = false;
};

inline const FormatKernels* format_kernels(const CodecChoice& choice) {
  return choice.kernels.get();
}

inline Result<CodecChoice> choose_codec(const std::string& name) {
  if (name == "int8-g128-sr") return CodecChoice();
  if (name == "int4-g32-stoch") return CodecChoice{nullptr, {}, true};
  if (const auto codebook = Codebook<64>::parse(name)) return CodecChoice{nullptr, codebook};
  if (FormatChoice kernels = shared_scale_kernels(name)) return CodecChoice{kernels, {}};
  return Status::error(name);
}

inline bool needs_statistics(const CodecChoice&) { return false; }
template <class F>
void with_two_pass(const CodecChoice&, DType, F&&) {}
template <class F>
bool with_message_scale(const CodecChoice&, DType, F&&) {
  return false;
}

template <class F>
hipError_t with_codec_or_message_scale(const CodecChoice& choice, DType dtype, F&& f) {
  return with_codec(choice, dtype, f);
}
template <class F>
hipError_t with_codec(const CodecChoice& choice, DType, F&& f) {
  using Codes = CodebookInMemory<64, 0>;
  if (choice.codebook) {
    f(Scaled<Codes, Fp16>(Codes(*choice.codebook)), Fp16());
    return hipGetLastError();
  }
  if (choice.stochastic) {
    const AnyBitParameters parameters = {.bits = 4, .group = {5}, .stochastic = true};
    f(StochasticAnyBit<Fp16, AnyBitOf<AnyBitKind::plain, 4>>(parameters), Fp16());
    return hipGetLastError();
  }
  f(AnyBit<Fp16, FixedAnyBit<8, 7, Spikes::exact>>(), Fp16());
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
