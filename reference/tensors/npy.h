// NumPy's .npy files, format versions 1.0, 2.0 and 3.0.
#pragma once

#include <filesystem>
#include <optional>

#include "reference/tensors/tensor.h"

namespace arlab {

/// Reads a C-order, little-endian array; its shape becomes the tensor's shape, its bits stay as
/// they are. The element type must fit the dtype that the caller names, nothing is cast:
///   fp16: float16, or uint16 with raw patterns    bf16: uint16 with raw patterns
///   fp32: float32
/// Without a dtype, float16 is fp16 and float32 is fp32; uint16 patterns need one.
/// Throws InvalidInput (one line, with the file's name) for anything else, for a file that is not
/// .npy, and for a size that is not exactly what the header says. Memory is only asked for once the
/// file is known to hold that many bytes.
Tensor read_npy(const std::filesystem::path& path, std::optional<DType> dtype);

/// Writes the bytes that numpy.save writes: fp16 as float16, fp32 as float32, bf16 as uint16.
/// The file appears whole or not at all. Throws InvalidInput when it cannot be written.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace arlab
