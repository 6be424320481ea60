// Codecs of two users' headers, made known to the reference by a program that compiles them.
#include "reference/codecs/registry.h"
#include "reference/codecs/scaled_codec.h"
#include "tests/contributing/mini_codec.h"
#include "tests/contributing/wide_codec.h"

namespace arlab {
namespace {

[[maybe_unused]] const bool kKnown = [] {
  register_codec_family(scaled_codecs<tests::WideCodec>());
  register_codec_family(scaled_codecs<tests::MiniCodec>());
  return true;
}();

}  // namespace
}  // namespace arlab
