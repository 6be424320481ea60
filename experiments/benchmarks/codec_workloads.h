// What the benchmarks of codecs run: payloads, and a codec at work on one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "reference/codecs/codec.h"
#include "reference/tensors/synthetic.h"

namespace arlab {

inline constexpr std::size_t kInCache = std::size_t{256} << 10;
inline constexpr std::size_t kInMemory = std::size_t{256} << 20;

/// Bytes from the beginning of a page on.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : bytes_((bytes + kPage - 1) / kPage * kPage),
        data_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes_)), &std::free) {
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 1, bytes_);
  }
  std::byte* data() const { return data_.get(); }
  std::span<std::byte> first(std::size_t bytes) const { return {data(), bytes}; }

 private:
  static constexpr std::size_t kPage = 4096;

  std::size_t bytes_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

/// Gaussian values; a large payload repeats them.
inline Buffer gaussian_payload(DType dtype, std::size_t bytes) {
  const auto pattern =
      make_synthetic("gaussian", dtype, 1, std::min(bytes, kInCache) / size_of(dtype)).data;
  Buffer result(bytes);
  for (std::size_t i = 0; i < bytes; i += pattern.size()) {
    std::memcpy(result.data() + i, pattern.data(), std::min(pattern.size(), bytes - i));
  }
  return result;
}

enum class CodecWork { encode, decode, decode_add };

/// A codec at work on one message.
class CodecWorker {
 public:
  CodecWorker(CodecPtr codec, DType dtype, CodecWork work, std::span<std::byte> x)
      : codec_(std::move(codec)),
        dtype_(dtype),
        work_(work),
        x_(x),
        wire_bytes_(codec_->wire_bytes(dtype, x.size() / size_of(dtype))),
        wire_(wire_bytes_) {
    codec_->encode(dtype_, x_, wire());
    if (work == CodecWork::decode_add) std::memset(x_.data(), 0, x_.size());
  }

  void run() const {
    switch (work_) {
      case CodecWork::encode:
        return codec_->encode(dtype_, x_, wire());
      case CodecWork::decode:
        return codec_->decode(dtype_, wire(), x_);
      case CodecWork::decode_add:
        return codec_->decode_add(dtype_, wire(), x_);
    }
  }

 private:
  std::span<std::byte> wire() const { return wire_.first(wire_bytes_); }

  CodecPtr codec_;
  DType dtype_;
  CodecWork work_;
  std::span<std::byte> x_;
  std::size_t wire_bytes_;
  Buffer wire_;
};

}  // namespace arlab
