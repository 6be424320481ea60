// A dense tensor: what goes into a collective and what comes out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/dtype.h"

namespace arlab {

/// Elements in C order, little endian. A collective's tensor has one axis of ranks first:
/// shape = [ranks, ...], and `shape[1:]` is the payload of one rank.
struct Tensor {
  DType dtype = DType::fp32;
  std::vector<std::size_t> shape = {0};  // outermost axis first; {} is a single element
  std::vector<std::byte> data;           // element_count() * size_of(dtype) bytes

  std::size_t element_count() const { return data.size() / size_of(dtype); }

  std::span<std::byte> bytes() { return data; }
  std::span<const std::byte> bytes() const { return data; }

  /// The 16-bit patterns of an fp16 or bf16 tensor. Throws InvalidInput for fp32.
  std::span<std::uint16_t> bits16();
  std::span<const std::uint16_t> bits16() const;

  /// The elements of an fp32 tensor. Throws InvalidInput for fp16 and bf16.
  std::span<float> floats();
  std::span<const float> floats() const;

  /// shape[0]. Throws InvalidInput when there is no axis of ranks (shape {}).
  std::size_t ranks() const;

  /// Elements in the payload of one rank; 0 without ranks.
  std::size_t elements_per_rank() const;

  /// The payload of one rank. Throws InvalidInput for a rank that is not there.
  std::span<std::byte> rank_bytes(std::size_t rank);
  std::span<const std::byte> rank_bytes(std::size_t rank) const;
};

/// The payloads of all ranks, equally long, wherever each of them lies. They must outlive it.
struct RankPayloads {
  DType dtype;
  std::vector<std::span<const std::byte>> ranks;

  /// Implicit: a Tensor has all of them one after the other.
  RankPayloads(const Tensor& tensor);
  /// Throws InvalidInput unless they are one or more of the same whole number of elements.
  RankPayloads(DType dtype, std::vector<std::span<const std::byte>> ranks);

  std::size_t elements_per_rank() const { return ranks.front().size() / size_of(dtype); }
};

/// Bytes of a tensor of this shape; nothing when they cannot be counted in 63 bits.
std::optional<std::size_t> byte_count(DType dtype, std::span<const std::size_t> shape);

/// A tensor of zeros. Throws InvalidInput when it is larger than memory can be.
Tensor make_tensor(DType dtype, std::vector<std::size_t> shape);

/// values.size() elements, each RN to dtype (overflow becomes an infinity).
/// Throws InvalidInput when the shape has another element count.
Tensor tensor_from_floats(DType dtype, std::vector<std::size_t> shape,
                          std::span<const float> values);

/// One element (index in C order, below element_count()) as fp32; exact.
float to_float(const Tensor& tensor, std::size_t element);

/// All elements as fp32; exact.
std::vector<float> to_floats(const Tensor& tensor);

/// A shape as Python writes it: "(8, 4096)".
std::string shape_text(std::span<const std::size_t> shape);

}  // namespace arlab
