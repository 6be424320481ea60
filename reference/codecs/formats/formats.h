// The scaled formats that are built in: a line here gives a format its reference and its kernels.
#pragma once

#include <tuple>

#include "reference/codecs/formats/codebook.h"
#include "reference/codecs/formats/fp8_blocks.h"
#include "reference/codecs/formats/mxint8.h"
#include "reference/codecs/formats/nvfp4.h"

namespace arlab {

using ScaledFormats = std::tuple<MxInt8, Fp8Blocks<64>, Fp8Blocks<128>, Fp8Blocks<256>, NvFp4Blocks,
                                 Codebook<32>, Codebook<64>, Codebook<128>>;

/// Calls f.operator()<Format>() for each.
template <class F>
void for_each_scaled_format(F f) {
  [&]<class... Formats>(std::type_identity<std::tuple<Formats...>>) {
    (f.template operator()<Formats>(), ...);
  }(std::type_identity<ScaledFormats>());
}

}  // namespace arlab
