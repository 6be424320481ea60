// int8 layers on a device: reference/layers/SPEC.md, "Scales and codes of int8" and "Products of
// int8".
#pragma once

#include "kernels/layers/int8_kernels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// An Int8Matrix in a device's memory.
struct DeviceInt8 {
  std::int8_t* codes;  ///< [rows, int8_row_bytes(columns)], aligned to 16 bytes
  Int8Scale* scales;   ///< one for each row
  std::int32_t* sums;  ///< for each row, the sum of its codes
};

/// `values` [rows, columns] of the dtype; `extremes` is memory for one of each row.
hipError_t launch_quantize_int8(DType dtype, const void* values, std::size_t rows,
                                std::size_t columns, const Int8Rule& rule, Extremes* extremes,
                                const DeviceInt8& to, hipStream_t stream);

/// y [tokens, outputs] of the dtype.
hipError_t launch_linear_int8(const DeviceInt8& x, std::size_t tokens, const DeviceInt8& w,
                              std::size_t outputs, std::size_t inputs, DType dtype, void* y,
                              hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
