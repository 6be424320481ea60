// A codec that makes mistakes, for tests that must see them.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "reference/codecs/codec.h"

namespace arlab::testing {

/// A codec with what it reads and writes changed.
class AlteredCodec final : public Codec {
 public:
  using Change = std::function<void(DType, std::span<std::byte>)>;
  struct Changes {
    Change payload = {};   // before encoding
    Change wire = {};      // after encoding
    Change received = {};  // the wire before decoding
    Change decoded = {};   // after decoding
  };

  AlteredCodec(CodecPtr codec, Changes changes)
      : Codec(codec->info()), codec_(std::move(codec)), changes_(std::move(changes)) {}

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    return codec_->wire_bytes(dtype, elements);
  }
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    std::vector<std::byte> changed(payload.begin(), payload.end());
    if (changes_.payload) changes_.payload(dtype, changed);
    codec_->encode(dtype, changed, wire, &counts);
    if (changes_.wire) changes_.wire(dtype, wire);
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    std::vector<std::byte> changed(wire.begin(), wire.end());
    if (changes_.received) changes_.received(dtype, changed);
    codec_->decode(dtype, changed, payload);
    if (changes_.decoded) changes_.decoded(dtype, payload);
  }

  CodecPtr codec_;
  Changes changes_;
};

}  // namespace arlab::testing
