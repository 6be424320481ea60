// Tests on every instruction set that this machine has, not only the best.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/codecs/simd/targets.h"
//
#include "hwy/highway.h"

namespace arlab::testing {

/// The targets that the codecs are compiled for and this machine can run.
inline std::vector<std::int64_t> supported_targets() {
  hwy::SetSupportedTargetsForTest(0);
  return hwy::SupportedAndGeneratedTargets();
}

/// Those that have vectors (ARLAB_HAS_LANES), not those that pass on to the scalar codec.
inline std::vector<std::int64_t> vector_targets() {
  std::vector<std::int64_t> targets = supported_targets();
  std::erase_if(targets, [](std::int64_t target) {
    return target == HWY_SCALAR || target == HWY_EMU128 || (HWY_ARCH_X86 && target != HWY_AVX2);
  });
  return targets;
}

/// While it lives, accelerated codecs run on this target.
class OnTarget {
 public:
  explicit OnTarget(std::int64_t target) { choose(target); }
  ~OnTarget() { choose(0); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;

 private:
  static void choose(std::int64_t target) {  // 0: the best
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace arlab::testing
