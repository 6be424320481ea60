// Instead of kernels/codecs/choice.h: fp16 as it is, as qr-q4, int8-g3000 and int8-gtensor, and nothing else, so that a
// mutant is compiled in seconds.
#pragma once

#include <string>

#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/plain.h"
#include "kernels/codecs/quickreduce.h"
#include "kernels/codecs/two_pass.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

enum class CodecChoice { plain, q4, groups, message };

inline const FormatKernels* format_kernels(CodecChoice) { return nullptr; }
inline bool needs_statistics(CodecChoice choice) { return choice >= CodecChoice::groups; }

inline Result<CodecChoice> choose_codec(const CodecPtr& codec) {
  const std::string& name = codec->name();
  if (name == "fp16") return CodecChoice::plain;
  if (name == "qr-q4") return CodecChoice::q4;
  return name == "int8-gtensor" ? CodecChoice::message : CodecChoice::groups;
}

template <class F>
hipError_t with_codec(CodecChoice choice, DType, F&& f) {
  if (choice == CodecChoice::plain) f(Plain<Fp16>(), Fp16());
  if (choice == CodecChoice::q4) f(QuickReduce<Q4, Fp16>(), Fp16());
  return hipGetLastError();
}
template <class F>
void with_two_pass(CodecChoice choice, DType, F&& f) {
  if (!needs_statistics(choice)) return;
  TwoPassAnyBitParameters p;
  p.format.bits = 8;
  p.block = choice == CodecChoice::message ? kWholeMessage : 3000;
  f(TwoPassAnyBit<Fp16>(p), Fp16());
}
template <class F>
bool with_message_scale(CodecChoice choice, DType, F&& f) {
  if (choice != CodecChoice::message) return false;
  AnyBitParameters p;
  p.bits = 8;
  f(AnyBitOfMessage<Fp16, AnyBitKind::plain, 0>(p), Fp16());
  return true;
}
template <class F>
hipError_t with_codec_or_message_scale(CodecChoice choice, DType dtype, F&& f) {
  (void)with_message_scale(choice, dtype, f);
  return with_codec(choice, dtype, f);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
