// Models in .gguf files, the format of llama.cpp: what a file says about a model, and its tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "reference/tensors/tensor.h"

namespace arlab::models {

struct GgufTensor {
  std::vector<std::size_t> shape;  ///< outermost axis first
  std::uint32_t type = 0;          ///< as the file has it
  std::uint64_t offset = 0;        ///< where its first byte is, from the start of the file
};

/// Reads version 2 and 3, little endian. Throws InvalidInput (one line, with the file's name) for
/// what is malformed, and for tensors that do not lie in the file.
class GgufFile {
 public:
  explicit GgufFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }

  /// An object. It keeps arrays of texts; others are empty.
  const nlohmann::json& values() const { return *values_; }

  /// All elements in fp32. Throws InvalidInput for types that gguf_types.h does not decode.
  std::vector<float> read(std::string_view name) const;
  /// The same with its shape. An empty name means the only tensor.
  Tensor tensor(std::string_view name) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const nlohmann::json> values_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace arlab::models
