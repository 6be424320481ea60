#include "kernels/codecs/choice.h"

#include <array>

#include "reference/dtype.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

Result<CodecChoice> choose_codec(const std::string& name) {
  constexpr std::array<std::pair<const char*, CodecKind>, 6> kQuickReduce = {{
      {"qr-fp8", CodecKind::qr_fp8},
      {"qr-q8", CodecKind::qr_q8},
      {"qr-q6", CodecKind::qr_q6},
      {"qr-q4", CodecKind::qr_q4},
      {"qr-q3", CodecKind::qr_q3},
      {"qr-fp4", CodecKind::qr_fp4},
  }};
  for (const auto& [known, kind] : kQuickReduce) {
    if (name == known) return CodecChoice{kind};
  }
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    if (name == name_of(dtype)) return CodecChoice{CodecKind::plain};
  }
  return Status::error("codec " + name +
                       " has no kernels; there are kernels for fp16, bf16, fp32, qr-*");
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
