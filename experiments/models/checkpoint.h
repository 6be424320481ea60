// Tensors of published weights: .safetensors with plain elements, and quantized ones in fp32, as the
// quantization_config of the config.json beside them says.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reference/tensors/safetensors.h"
#include "reference/tensors/tensor.h"

namespace arlab::models {

/// The .safetensors of a folder, or one of them. Elements may be fp8 (E4M3, E5M2) or int8
/// with a scale for the matrix, a row or a block; or pairs of e2m1 with scales of e4m3 (nvfp4) or
/// e8m0 (mxfp4). Methods: fp8, fbgemm_fp8, compressed-tensors, modelopt (a hf_quant_config.json
/// counts) and mxfp4. Products are in fp32: element x (scale x scale of the matrix).
class Checkpoint {
 public:
  using Shape = std::vector<std::size_t>;

  /// Throws InvalidInput (one line, with the file's name) for what is malformed, and for a tensor
  /// that is in two files.
  explicit Checkpoint(const std::filesystem::path& path);

  /// Shapes of all tensors, under the names that they have before they are quantized.
  const std::map<std::string, Shape>& shapes() const { return shapes_; }

  /// A tensor: in fp32 where it is quantized, else as it is. An empty name means the only tensor.
  /// Throws InvalidInput for a name that is not there, and for what is quantized in a way that is
  /// not known.
  Tensor read(const std::string& name) const;

 private:
  struct Place {
    std::filesystem::path file;
    SafetensorsEntry entry;
  };

  void read_config(const std::filesystem::path& folder);
  /// The first of NAME and a suffix that is there; null where none is.
  const Place* find(const std::string& name, std::span<const char* const> suffixes) const;
  Tensor dequantize(const std::string& name, const Place& data) const;

  std::string source_;
  std::string method_;                   ///< quantization's; empty: there is none
  std::vector<std::size_t> block_size_;  ///< rows and columns, as it says; empty: not said
  std::map<std::string, Place> places_;
  std::map<std::string, Shape> shapes_;
};

}  // namespace arlab::models
