// Instead of kernels/platform/host/instances.h: the codecs of two users' headers on fp16, as kernels on demand have them, and nothing else.
#pragma once

#include "kernels/codecs/choice.h"
#include "kernels/codecs/of_header.h"
#include "tests/contributing/mini_codec.h"
#include "tests/contributing/wide_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class F>
void with_instance(const CodecChoice& codec, DType, F&& f) {
  using Wide = FormatOfHeader<tests::WideCodec, 5, true>;
  using Mini = FormatOfHeader<tests::MiniCodec, 4, false>;
  const std::string& name = std::get<CodecOfHeader>(codec).object;
  if (const auto wide = tests::WideCodec::parse(name)) {
    return f(Scaled<Wide, Fp16>(Wide{*wide}), Fp16());
  }
  const auto mini = tests::MiniCodec::parse(name);
  if (mini->stochastic) return f(StochasticScaled<Mini, Fp16>(Mini{*mini}), Fp16());
  f(Scaled<Mini, Fp16>(Mini{*mini}), Fp16());
}
template <class F>
void with_instance_of_message_scale(const CodecChoice&, DType, F&&) {}
template <class F>
void with_two_pass_instance(const CodecChoice&, DType, F&&) {}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
