// A codec in which anything can be wrong, for tests of the properties that codecs have.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "reference/codecs/codec.h"
#include "reference/codecs/payload_values.h"

namespace arlab::testing {

/// Another codec, but for the functions that are given; they get the right codec first.
class MistakenCodec final : public Codec {
 public:
  using WireBytes = std::function<std::size_t(const Codec&, DType, std::size_t elements)>;
  using Encode = std::function<void(const Codec&, DType, std::span<const std::byte> payload,
                                    std::span<std::byte> wire, EncodeCounts&)>;
  using EncodeUncounted = std::function<void(
      const Codec&, DType, std::span<const std::byte> payload, std::span<std::byte> wire)>;
  /// Replaces decode and decode_add.
  using Decode = std::function<void(const Codec&, DType, std::span<const std::byte> wire,
                                    std::span<std::byte> payload)>;
  struct Mistakes {
    std::function<void(CodecInfo&)> info = {};
    WireBytes wire_bytes = {};
    Encode encode = {};
    EncodeUncounted encode_uncounted = {};
    std::function<void(const EncodeContext&, std::span<std::byte>)> behind_encode_in = {};
    Decode decode = {};
    Decode decode_add = {};
  };

  MistakenCodec(CodecPtr right, Mistakes mistakes)
      : Codec(info_of(*right, mistakes)),
        right_(std::move(right)),
        mistakes_(std::move(mistakes)) {}

 private:
  static CodecInfo info_of(const Codec& right, const Mistakes& mistakes) {
    CodecInfo info = right.info();
    if (mistakes.info) mistakes.info(info);
    return info;
  }

  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    if (mistakes_.wire_bytes) return mistakes_.wire_bytes(*right_, dtype, elements);
    return right_->wire_bytes(dtype, elements);
  }
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    if (mistakes_.encode) return mistakes_.encode(*right_, dtype, payload, wire, counts);
    right_->encode(dtype, payload, wire, &counts);
  }
  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override {
    right_->encode(dtype, payload, wire, &counts, context);
    if (mistakes_.behind_encode_in) mistakes_.behind_encode_in(context, wire);
  }
  void do_encode_uncounted(DType dtype, std::span<const std::byte> payload,
                           std::span<std::byte> wire) const override {
    if (mistakes_.encode_uncounted) {
      return mistakes_.encode_uncounted(*right_, dtype, payload, wire);
    }
    Codec::do_encode_uncounted(dtype, payload, wire);
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    if (mistakes_.decode) return mistakes_.decode(*right_, dtype, wire, payload);
    right_->decode(dtype, wire, payload);
  }
  void do_decode_add(DType dtype, std::span<const std::byte> wire,
                     std::span<std::byte> sum) const override {
    if (mistakes_.decode_add) return mistakes_.decode_add(*right_, dtype, wire, sum);
    Codec::do_decode_add(dtype, wire, sum);
  }

  CodecPtr right_;
  Mistakes mistakes_;
};

}  // namespace arlab::testing
