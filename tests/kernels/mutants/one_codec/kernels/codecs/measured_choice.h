// Instead of kernels/codecs/measured_choice.h: int8-gtensor on fp16 and nothing else.
#pragma once

#include <string>

#include "kernels/codecs/measured.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct MeasuredChoice {};

inline Result<MeasuredChoice> choose_measured(const std::string&) { return MeasuredChoice{}; }

template <class F>
void with_measured(const MeasuredChoice&, DType, F&& f) {
  MeasuredAnyBitParameters p;
  p.format.bits = 8;
  p.block = kWholeMessage;
  f(MeasuredAnyBit<Fp16>(p), Fp16());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
