// Models in .gguf files, the format of llama.cpp: what a file says about a model, and its tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace arlab::models {

/// Integers and booleans are std::int64_t (an unsigned one above its range is not kept), floating
/// point is double. Of arrays those of texts are kept; of others, the count of the elements alone.
struct GgufOtherArray {
  std::uint64_t elements;
};
using GgufValue =
    std::variant<std::int64_t, double, std::string, std::vector<std::string>, GgufOtherArray>;

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

  /// Throws InvalidInput where the key is missing or of another type.
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::vector<std::string>& texts(std::string_view key) const;
  bool has(std::string_view key) const { return values_.contains(key); }

  /// All elements in fp32. Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Throws InvalidInput
  /// for others.
  std::vector<float> read(std::string_view name) const;

 private:
  template <class T>
  const T& value(std::string_view key, std::string_view kind) const;

  std::filesystem::path path_;
  std::map<std::string, GgufValue, std::less<>> values_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace arlab::models
