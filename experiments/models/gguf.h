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

  /// An object. Of arrays those of texts are kept; others are empty.
  const nlohmann::json& values() const { return *values_; }

  /// All elements in fp32. Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Throws InvalidInput
  /// for others.
  std::vector<float> read(std::string_view name) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const nlohmann::json> values_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace arlab::models
