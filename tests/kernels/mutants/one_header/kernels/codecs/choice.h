// Instead of kernels/codecs/choice.h: the codecs of two users' headers on fp16, as kernels on demand have them, and nothing else.
#pragma once

#include <string>

#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/of_header.h"
#include "kernels/codecs/shared_scale_kernels.h"
#include "kernels/codecs/two_pass.h"
#include "kernels/runtime/status.h"
#include "tests/contributing/mini_codec.h"
#include "tests/contributing/wide_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct CodecChoice {
  std::optional<tests::WideCodec> wide;
  std::optional<tests::MiniCodec> mini;
};

inline const FormatKernels* format_kernels(const CodecChoice&) { return nullptr; }
inline Result<CodecChoice> choose_codec(const std::string& name) {
  return CodecChoice{tests::WideCodec::parse(name), tests::MiniCodec::parse(name)};
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
  using Wide = FormatOfHeader<tests::WideCodec, 5, true>;
  using Mini = FormatOfHeader<tests::MiniCodec, 4, false>;
  if (choice.wide) {
    f(Scaled<Wide, Fp16>(Wide{*choice.wide}), Fp16());
  } else if (choice.mini->stochastic) {
    f(StochasticScaled<Mini, Fp16>(Mini{*choice.mini}), Fp16());
  } else {
    f(Scaled<Mini, Fp16>(Mini{*choice.mini}), Fp16());
  }
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
