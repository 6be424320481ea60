// Codecs of a few lines, for fp32, that make visible what an executor does with a codec.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "reference/codecs/codec.h"

namespace arlab::testing {

/// Every pass multiplies by a factor, 3/4 if nothing else is said, so that no two different ways of values through encodes, sends and
/// sums give the same bits.
class FadingCodec : public Codec {
 public:
  explicit FadingCodec(std::size_t alignment = 1, const char* name = "fading", float factor = 0.75F)
      : Codec({.name = name,
               .summary = "multiplies by a factor",
               .source = "test",
               .dtypes = {DType::fp32},
               .block = 1,
               .alignment = alignment}),
        factor_(factor) {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override { return elements * 4; }
  void do_encode(DType, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts&) const override {
    for (std::size_t i = 0; i < payload.size(); i += 4) {
      float value = 0;
      std::memcpy(&value, &payload[i], 4);
      value *= factor_;
      std::memcpy(&wire[i], &value, 4);
    }
  }
  void do_decode(DType, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    std::memcpy(payload.data(), wire.data(), wire.size());
  }

  float factor_;
};

/// Signed bytes with one scale for the whole message: 4 bytes of scale, then the elements.
/// Remembers how long the messages were that it encoded.
class MessageScaleCodec final : public Codec {
 public:
  MessageScaleCodec(std::size_t alignment, bool splits_at_alignment)
      : Codec({.name = "message-scale",
               .summary = "int8 with one scale per message",
               .source = "test",
               .dtypes = {DType::fp32},
               .block = 1,
               .alignment = alignment,
               .splits_at_alignment = splits_at_alignment}) {}

  /// Elements per encode since the last call, in ascending order.
  std::vector<std::size_t> take_message_sizes() const {
    const std::scoped_lock lock(mutex_);
    std::ranges::sort(sizes_);
    return std::exchange(sizes_, {});
  }

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override { return 4 + elements; }
  void do_encode(DType, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts&) const override {
    const std::span<const float> x = as_f32(payload);
    float scale = 0;
    for (const float value : x) scale = std::max(scale, std::abs(value) / 127);
    std::memcpy(wire.data(), &scale, 4);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float code = scale == 0 ? 0 : std::nearbyint(x[i] / scale);
      wire[4 + i] = static_cast<std::byte>(static_cast<std::int8_t>(code));
    }
    const std::scoped_lock lock(mutex_);
    sizes_.push_back(x.size());
  }
  void do_decode(DType, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    float scale = 0;
    std::memcpy(&scale, wire.data(), 4);
    const std::span<float> x = as_f32(payload);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = scale * static_cast<float>(static_cast<std::int8_t>(wire[4 + i]));
    }
  }

  mutable std::mutex mutex_;
  mutable std::vector<std::size_t> sizes_;
};

/// Refuses to encode a negative element.
class RefusingCodec final : public FadingCodec {
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    for (std::size_t i = 0; i < payload.size(); i += 4) {
      float value = 0;
      std::memcpy(&value, &payload[i], 4);
      if (value < 0) throw std::domain_error("refusing: negative element");
    }
    std::memcpy(wire.data(), payload.data(), wire.size());
    (void)dtype, (void)counts;
  }
};

}  // namespace arlab::testing
