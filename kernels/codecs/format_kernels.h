// The kernels of a format (reference/codecs/scaled_format.h), which no collective knows by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/codecs/device_codec.h"
#include "reference/codecs/codec.h"
#include "reference/dtype.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct ProgramCall;
class SumsOfCodes;

/// Launches them; as codec_kernels.h and schedule/run.h say.
class FormatKernels {
 public:
  virtual ~FormatKernels() = default;
  virtual Tuning tuning() const = 0;
  virtual hipError_t encode(DType dtype, const void* payload, std::size_t elements,
                            std::uint8_t* wire, const EncodeContext& context,
                            hipStream_t stream) const = 0;
  virtual hipError_t decode(DType dtype, const std::uint8_t* wire, std::size_t elements,
                            void* payload, hipStream_t stream) const = 0;
  virtual hipError_t decode_add(DType dtype, const std::uint8_t* wire, std::size_t elements,
                                void* sum, hipStream_t stream) const = 0;
  virtual hipError_t run(const ProgramCall& call, DType dtype, hipStream_t stream) const = 0;
  /// Once kernels have ended: what a codec that works on the host has thrown since this was asked last; else empty.
  virtual std::string failure() const { return {}; }
  /// Kernels that make sums of codes (shared_scale_kernels.h), for codecs with such sums; else null.
  virtual const SumsOfCodes* sums_of_codes() const { return nullptr; }
};
using FormatChoice = std::shared_ptr<const FormatKernels>;

/// The kernels of the format that has a codec of this name; null when none has.
FormatChoice find_format_kernels(std::string_view name);

/// Kernels of emulated GPUs that have a codec itself encode their tiles; null for one that does not work on tiles, and on
/// GPUs.
FormatChoice kernels_on_host(const CodecPtr& codec);

/// Makes kernels known at run time, to find_format_kernels(). kernels_of_format.h has what finds
/// them for a format of one's own. Thread-safe.
void register_format_kernels(std::function<FormatChoice(std::string_view name)> find);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
