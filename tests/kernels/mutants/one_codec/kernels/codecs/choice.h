// Instead of kernels/codecs/choice.h: qr-q4 on fp16 and nothing else, so that a mutant is compiled
// in seconds.
#pragma once

#include <string>

#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/quickreduce.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct CodecChoice {};

inline const FormatKernels* format_kernels(const CodecChoice&) { return nullptr; }

inline Result<CodecChoice> choose_codec(const std::string& name) {
  if (name == "qr-q4") return CodecChoice{};
  return Status::error(name);
}

template <class F>
hipError_t with_codec(const CodecChoice&, DType, F&& f) {
  f(QuickReduce<Q4, Fp16>(), Fp16());
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
