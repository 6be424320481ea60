#include "reference/tensors/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <utility>

#include "reference/codecs/simd/halves.h"
#include "reference/formats/bfloat16.h"
#include "reference/formats/half.h"

namespace arlab {

static_assert(std::endian::native == std::endian::little, "tensors are stored little endian");

namespace {

/// The bytes of `tensor` as elements of type T, const as the tensor is.
template <typename T>
auto elements_as(auto& tensor, bool allowed, std::string_view what) {
  if (!allowed) fail("a tensor of dtype {} has no {}", name_of(tensor.dtype), what);
  // The storage comes from operator new, so it is aligned for every element type.
  return std::span(reinterpret_cast<T*>(tensor.data.data()), tensor.element_count());
}

auto bytes_of_rank(auto& tensor, std::size_t rank) {
  if (rank >= tensor.ranks()) fail("rank {} of a tensor of {} ranks", rank, tensor.ranks());
  const std::size_t bytes = tensor.elements_per_rank() * size_of(tensor.dtype);
  return tensor.bytes().subspan(rank * bytes, bytes);
}

}  // namespace

std::span<std::uint16_t> Tensor::bits16() {
  return elements_as<std::uint16_t>(*this, dtype != DType::fp32, "16-bit patterns");
}

std::span<const std::uint16_t> Tensor::bits16() const {
  return elements_as<const std::uint16_t>(*this, dtype != DType::fp32, "16-bit patterns");
}

std::span<float> Tensor::floats() {
  return elements_as<float>(*this, dtype == DType::fp32, "fp32 elements");
}

std::span<const float> Tensor::floats() const {
  return elements_as<const float>(*this, dtype == DType::fp32, "fp32 elements");
}

std::size_t Tensor::ranks() const {
  if (shape.empty()) fail("a tensor of shape () has no axis of ranks: allowed is [ranks, ...]");
  return shape[0];
}

std::size_t Tensor::elements_per_rank() const {
  return ranks() == 0 ? 0 : element_count() / ranks();
}

std::span<std::byte> Tensor::rank_bytes(std::size_t rank) { return bytes_of_rank(*this, rank); }

std::span<const std::byte> Tensor::rank_bytes(std::size_t rank) const {
  return bytes_of_rank(*this, rank);
}

RankPayloads::RankPayloads(const Tensor& tensor) : dtype(tensor.dtype) {
  for (std::size_t rank = 0; rank < tensor.ranks(); ++rank)
    ranks.push_back(tensor.rank_bytes(rank));
  if (ranks.empty()) fail("a tensor of 0 ranks: allowed is 1 or more");
}

RankPayloads::RankPayloads(DType type, std::vector<std::span<const std::byte>> payloads)
    : dtype(type), ranks(std::move(payloads)) {
  if (ranks.empty()) fail("payloads of 0 ranks: allowed is 1 or more");
  for (const auto& payload : ranks) {
    if (payload.size() != ranks.front().size() || payload.size() % size_of(dtype) != 0) {
      fail("payloads of {} and {} bytes: allowed are equal numbers of {} elements", payload.size(),
           ranks.front().size(), name_of(dtype));
    }
  }
}

std::optional<std::size_t> byte_count(DType dtype, std::span<const std::size_t> shape) {
  constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
  std::size_t bytes = size_of(dtype);
  bool empty = false;
  for (const std::size_t length : shape) {
    if (length == 0) {
      empty = true;  // yet the other axes must still be countable
    } else if (bytes > kMost / length) {
      return std::nullopt;
    } else {
      bytes *= length;
    }
  }
  return empty ? 0 : bytes;
}

Tensor make_tensor(DType dtype, std::vector<std::size_t> shape) {
  const std::optional<std::size_t> bytes = byte_count(dtype, shape);
  if (!bytes) fail("a tensor of shape {} is too large to address", shape_text(shape));
  try {
    return {dtype, std::move(shape), std::vector<std::byte>(*bytes)};
  } catch (const std::bad_alloc&) {
    fail("not enough memory for a tensor of {} bytes", *bytes);
  }
}

Tensor tensor_from_floats(DType dtype, std::vector<std::size_t> shape,
                          std::span<const float> values) {
  if (byte_count(dtype, shape) != values.size() * size_of(dtype)) {
    fail("{} values do not fill the shape {}", values.size(), shape_text(shape));
  }
  Tensor tensor = make_tensor(dtype, std::move(shape));
  switch (dtype) {
    case DType::fp16:
      std::ranges::transform(values, tensor.bits16().begin(),
                             [](float value) { return half_from_float(value); });
      break;
    case DType::bf16:
      std::ranges::transform(values, tensor.bits16().begin(),
                             [](float value) { return bfloat16_from_float(value); });
      break;
    case DType::fp32:
      std::ranges::copy(values, tensor.floats().begin());
      break;
  }
  return tensor;
}

float to_float(const Tensor& tensor, std::size_t element) {
  switch (tensor.dtype) {
    case DType::fp16:
      return half_to_float(tensor.bits16()[element]);
    case DType::bf16:
      return bfloat16_to_float(tensor.bits16()[element]);
    case DType::fp32:
      return tensor.floats()[element];
  }
  return 0;
}

std::vector<float> to_floats(const Tensor& tensor) {
  std::vector<float> values(tensor.element_count());
  switch (tensor.dtype) {
    case DType::fp16:
      floats_of_halves(tensor.bits16(), values.data());
      break;
    case DType::bf16:
      std::ranges::transform(tensor.bits16(), values.begin(), bfloat16_to_float);
      break;
    case DType::fp32:
      std::ranges::copy(tensor.floats(), values.begin());
      break;
  }
  return values;
}

std::string shape_text(std::span<const std::size_t> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

}  // namespace arlab
