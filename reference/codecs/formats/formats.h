// The scaled formats that are built in: a line here gives a format its reference and its kernels.
#pragma once

#include "reference/codecs/formats/codebook.h"
#include "reference/codecs/formats/fp8_blocks.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/formats/mxint8.h"
#include "reference/codecs/formats/nvfp4.h"

namespace arlab {

/// GPU compilers, which take this header too, have no std::tuple.
template <class... Formats>
struct FormatList {};

using ScaledFormats =
    FormatList<MxInt8, Fp8Blocks<64>, Fp8Blocks<128>, Fp8Blocks<256>, Fp8PowerBlocks, NvFp4Blocks,
               Codebook<32>, Codebook<64>, Codebook<128>>;

/// Kernels of algorithms encode these; a format that is not here has programs alone.
using TunedFormats = FormatList<Mx, MxInt8, Fp8Blocks<64>, Fp8Blocks<128>, Fp8Blocks<256>,
                                Fp8PowerBlocks, Codebook<32>, Codebook<64>, Codebook<128>>;

/// Calls f.operator()<Format>() for each.
template <class F, class... Formats>
void for_each_format(FormatList<Formats...>, F f) {
  (f.template operator()<Formats>(), ...);
}

}  // namespace arlab
