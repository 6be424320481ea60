// Registers the codec that `arlab new codec` has written, before anything runs.

#include "kernels/codecs/kernels_of_format.h"
#include "reference/codecs/formats/absmax8_g32.h"

namespace {
[[maybe_unused]] const bool kRegistered = [] {
  arlab::kernels::register_format<arlab::Absmax8G32>();
  return true;
}();
}  // namespace
