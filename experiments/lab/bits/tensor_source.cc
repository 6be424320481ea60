#include "experiments/lab/bits/tensor_source.h"

#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/files.h"
#include "experiments/lab/sizes.h"
#include "experiments/models/checkpoint.h"
#include "experiments/models/gguf.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/registry.h"
#include "reference/memory.h"
#include "reference/tensors/npy.h"
#include "reference/tensors/synthetic.h"

namespace arlab::lab {

std::vector<BoundField> fields(TensorSource& s) {
  return {
      field("input", &s.file,
            "Read the tensor [ranks, ...] from this .npy, .safetensors or .gguf file")
          .excludes("synthetic"),
      field("tensor", &s.tensor, "Select a tensor of a .safetensors or .gguf file").needs("input"),
      field("synthetic", &s.synthetic,
            "Draw the tensor from this distribution, such as gaussian:sigma=1,seed=1 (see arlab "
            "list inputs)"),
      field("elements", &s.elements, "Draw N elements per rank, with --synthetic (64K, 1M)")
          .excludes("input"),
      field("ranks", &s.ranks, "Set the world size", "a file's first dimension")
          .from(1, kMaxWorldSize),
      field("dtype", &s.dtype, "Set the element type: fp16, bf16 or fp32",
            "the file's, else fp16 if the codec takes it")};
}

std::string TensorSource::name() const {
  if (file.empty()) return synthetic;
  return tensor.empty() ? file : file + ":" + tensor;
}

CodecPtr codec_for(const std::string& name, const Tensor& tensor) {
  return find_codec(with_row_length(name, tensor.shape.empty() ? 1 : tensor.shape.back()));
}

void require_takes(const Codec& codec, DType dtype, const std::string& data) {
  try {
    codec.wire_bytes(dtype, 1);
  } catch (const InvalidInput& error) {
    fail("{}: {}", data, error.what());
  }
}

Tensor TensorSource::load(DType otherwise, Collective collective) const {
  if (!file.empty()) return load_file();
  if (synthetic.empty())
    fail("name the data: --input F.npy|F.safetensors|F.gguf or --synthetic SPEC --elements E");
  if (elements.empty()) fail("--synthetic needs --elements, the count per rank");
  if (!ranks) fail("--synthetic needs --ranks, the world size");
  const DType type = dtype.empty() ? otherwise : parse_dtype(dtype);
  const std::uint64_t count = parse_count(elements, "--elements");
  require_memory(reduction_bytes(type, *ranks, count, collective), "this reduce");
  return make_synthetic(synthetic, type, *ranks, count);
}

Tensor TensorSource::load_file() const {
  std::optional<DType> type;
  if (!dtype.empty()) type = parse_dtype(dtype);
  Tensor loaded = read_tensor(file, tensor, type);
  if (loaded.shape.size() < 2) {
    fail("{}: the shape is {}; needed is [ranks, ...], the tensors of all ranks", name(),
         shape_text(loaded.shape));
  }
  if (loaded.ranks() == 0 || loaded.ranks() > kMaxWorldSize) {
    fail("{}: the shape {} has {} ranks in its first dimension; allowed is 1 to {}", name(),
         shape_text(loaded.shape), loaded.ranks(), kMaxWorldSize);
  }
  if (ranks && loaded.ranks() != *ranks) {
    fail("{}: the first dimension of shape {} is the ranks, but --ranks is {}", name(),
         shape_text(loaded.shape), *ranks);
  }
  return loaded;
}

void require_npy_output(const std::string& what, const std::string& path,
                        const std::vector<std::string>& read) {
  const bool is_other = path.ends_with(".safetensors") || path.ends_with(".gguf");
  if (is_other) require_output_name(what, path, {".npy"}, read);
  require_output_file(path, read);
}

Tensor read_tensor(const std::string& path, const std::string& tensor, std::optional<DType> dtype) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error) require_memory(bytes, path);
  if (path.ends_with(".npy")) {
    if (!tensor.empty()) fail("{}: a .npy file holds one tensor without a name", path);
    return read_npy(path, dtype);
  }
  const bool is_checkpoint =
      path.ends_with(".safetensors") || std::filesystem::is_directory(path, error);
  if (is_checkpoint || path.ends_with(".gguf")) {
    Tensor loaded = is_checkpoint ? models::Checkpoint(path).read(tensor)
                                  : models::GgufFile(path).tensor(tensor);
    if (dtype && loaded.dtype != *dtype) {
      fail("{}: the tensor is {}, not {}; nothing is cast", path, name_of(loaded.dtype),
           name_of(*dtype));
    }
    return loaded;
  }
  const bool is_torch = path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".bin");
  fail("{}: {}; allowed are .npy, .safetensors and .gguf", path,
       is_torch ? "PyTorch's file, which arlab.read_tensor() in Python reads"
                : "unknown kind of file");
}

}  // namespace arlab::lab
