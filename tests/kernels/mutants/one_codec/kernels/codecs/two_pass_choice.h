// Instead of kernels/codecs/two_pass_choice.h: int8-g3000 and int8-gtensor on fp16 and nothing else.
#pragma once

#include <string>

#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/two_pass.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct TwoPassChoice {
  bool of_message = false;
};

inline Result<TwoPassChoice> choose_two_pass(const std::string& name) {
  return TwoPassChoice{name == "int8-gtensor"};
}

template <class F>
void with_two_pass(const TwoPassChoice& choice, DType, F&& f) {
  TwoPassAnyBitParameters p;
  p.format.bits = 8;
  p.block = choice.of_message ? kWholeMessage : 3000;
  f(TwoPassAnyBit<Fp16>(p), Fp16());
}
template <class F>
bool with_message_scale(const TwoPassChoice& choice, DType, F&& f) {
  if (!choice.of_message) return false;
  AnyBitParameters p;
  p.bits = 8;
  f(AnyBitOfMessage<Fp16, AnyBitKind::plain, 0>(p), Fp16());
  return true;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
