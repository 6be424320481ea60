// Instead of kernels/codecs/choice.h: int8-g128-sr on fp16 and nothing else.
#pragma once

#include <string>

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/format_kernels.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct CodecChoice {};

inline const FormatKernels* format_kernels(const CodecChoice&) { return nullptr; }

inline Result<CodecChoice> choose_codec(const std::string& name) {
  if (name == "int8-g128-sr") return CodecChoice{};
  return Status::error(name);
}

template <class F>
hipError_t with_codec(const CodecChoice&, DType, F&& f) {
  f(AnyBit<Fp16, FixedAnyBit<8, 7, Spikes::exact>>(), Fp16());
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
