// Tensors out of .safetensors files and into them, the format of published model weights and activations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reference/tensors/tensor.h"

namespace arlab {

/// One tensor of a file, as the header describes it.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;               // as the file spells it: F16, BF16, F32, I64, ...
  std::vector<std::size_t> shape;  // outermost axis first
  std::uint64_t begin = 0;         // first byte, counted from the end of the header
  std::uint64_t end = 0;           // one past the last byte
};

/// Returns the tensors of a file in the order of their bytes. Throws InvalidInput (one line, with the file's name): for a
/// malformed header; for byte ranges that do not cover the file exactly once; for F16, BF16 and F32 tensors with a byte range
/// unlike their shape's.
std::vector<SafetensorsEntry> list_safetensors(const std::filesystem::path& path);

/// Reads one tensor (F16, BF16 or F32; dtype and shape come from the file). An empty name means the
/// only tensor of the file. Throws InvalidInput as list_safetensors does, for a name that is not
/// there or not given (the message lists the names), and for any other dtype.
Tensor read_safetensors(const std::filesystem::path& path, std::string_view name);

/// The bytes of an entry that list_safetensors() has found in this file, whatever its dtype. Throws
/// InvalidInput where they are not there any more.
std::vector<std::byte> read_safetensors_bytes(const std::filesystem::path& path,
                                              const SafetensorsEntry& entry);

/// Writes tensors by name, and what is said about them. The file appears whole or not at all. Throws
/// InvalidInput when it cannot be written.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace arlab
