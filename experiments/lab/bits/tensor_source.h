// Where the tensor of all ranks comes from: a file or a distribution.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference/codecs/codec.h"
#include "reference/collectives/schedule.h"
#include "reference/field.h"
#include "reference/tensors/tensor.h"

namespace arlab::lab {

/// --input F.npy|F.safetensors [--tensor NAME], or --synthetic SPEC --elements E; --ranks, --dtype.
struct TensorSource {
  std::string file;
  std::string tensor;
  std::string synthetic;
  std::string elements;
  std::optional<std::uint32_t> ranks;
  std::string dtype;

  /// The tensor, [ranks, ...]. Where neither --dtype nor a file says it, the dtype is `otherwise`.
  /// Throws InvalidInput for everything that is missing, contradictory or not to be had, and before
  /// data is made whose reduction by this collective has no place in memory.
  Tensor load(DType otherwise, Collective collective = Collective::all_reduce) const;

  /// In words, for reports: the file (and tensor) or the distribution.
  std::string name() const;

 private:
  Tensor load_file() const;
};

std::vector<BoundField> fields(TensorSource& source);

/// The codec of that name; a group of `row` (int8-grow) is as long as the tensor's last dimension.
CodecPtr codec_for(const std::string& name, const Tensor& tensor);

/// A row length that every codec takes, for asking what does not depend on it.
inline constexpr std::size_t kAnyRow = 8;

/// Throws InvalidInput, with the name of the data, unless the codec takes its dtype.
void require_takes(const Codec& codec, DType dtype, const std::string& data);

/// Throws InvalidInput where a .npy cannot be written, or the name would be read as one of another format.
void require_npy_output(const std::string& what, const std::string& path,
                        const std::vector<std::string>& read = {});

/// A .npy, .safetensors or .gguf file by its ending; without a dtype, what the file says: fp32 for
/// quantized tensors (experiments/models/checkpoint.h, gguf_types.h).
Tensor read_tensor(const std::string& path, const std::string& tensor, std::optional<DType> dtype);

}  // namespace arlab::lab
