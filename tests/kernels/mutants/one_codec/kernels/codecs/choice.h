// Instead of kernels/codecs/choice.h: fp16 as it is and as qr-q4, and nothing else, so that a mutant is compiled
// in seconds.
#pragma once

#include <string>

#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/plain.h"
#include "kernels/codecs/quickreduce.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct CodecChoice {
  bool is_plain;
};

inline const FormatKernels* format_kernels(const CodecChoice&) { return nullptr; }

inline Result<CodecChoice> choose_codec(const std::string& name) {
  if (name == "qr-q4" || name == "fp16") return CodecChoice{name == "fp16"};
  return Status::error(name);
}

template <class F>
hipError_t with_codec(const CodecChoice& choice, DType, F&& f) {
  if (choice.is_plain) {
    f(Plain<Fp16>(), Fp16());
  } else {
    f(QuickReduce<Q4, Fp16>(), Fp16());
  }
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
