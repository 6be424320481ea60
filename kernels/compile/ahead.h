// Kernels that are compiled before they are called for: for calls that somebody will make, and for GPUs that need not be here.
#pragma once

#include <span>
#include <vector>

#include "kernels/compile/store.h"
#include "kernels/runtime/platforms.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Those of encode(), decode() and decode_add().
std::vector<WantedKernel> kernels_of_codecs(std::span<const CodecAndDType> codecs);
/// Kernels of quantized linear layers.
std::vector<WantedKernel> kernels_of_layers();

/// As Platform::compile_ahead.
Result<CompiledAhead> compile_kernels_ahead(const AheadRequest& request,
                                            const CompileProgress& progress);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
