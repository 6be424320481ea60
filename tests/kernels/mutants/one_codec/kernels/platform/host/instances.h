// Instead of kernels/platform/host/instances.h: fp16 as it is, as qr-q4, int8-g3000 and int8-gtensor, and nothing else, so that a
// mutant is compiled in seconds.
#pragma once

#include "kernels/codecs/choice.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class F>
void with_instance(const CodecChoice& codec, DType, F&& f) {
  if (std::holds_alternative<PlainChoice>(codec)) return f(Plain<Fp16>(), Fp16());
  f(QuickReduce<Q4, Fp16>(), Fp16());
}
template <class F>
void with_instance_of_message_scale(const CodecChoice& codec, DType, F&& f) {
  const AnyBitParameters& p = std::get<TwoPassAnyBitParameters>(codec).format;
  f(AnyBitOfMessage<Fp16, AnyBitKind::plain, 0>(p), Fp16());
}
template <class F>
void with_two_pass_instance(const CodecChoice& codec, DType, F&& f) {
  f(TwoPassAnyBit<Fp16>(std::get<TwoPassAnyBitParameters>(codec)), Fp16());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
