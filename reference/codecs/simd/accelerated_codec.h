// Common parts of the accelerated codecs: how a codec calls the vector code of its family.
#pragma once

#include <type_traits>
#include <utility>

#include "reference/codecs/codec.h"

namespace arlab {

/// A family's code for one target; null where that has no vectors. `Format` has a family's facts of one of its codecs; rare
/// cases are left to `scalar`. Without `counts` nothing is counted.
template <class Format>
struct CodecFunctions {
  using Decode = void (*)(const Format&, const Codec& scalar, DType,
                          std::span<const std::byte> wire, std::span<std::byte> payload);

  void (*encode)(const Format&, const Codec& scalar, DType, std::span<const std::byte> payload,
                 std::span<std::byte> wire, EncodeCounts* counts) = nullptr;
  Decode decode = nullptr;
  Decode decode_add = nullptr;
  const char* target = "";
};

/// A codec that may run with vectors.
class VectorCodec : public Codec {
 public:
  using Codec::Codec;
  /// Highway's name of the instructions that it runs on this processor; empty if scalar.
  virtual const char* target() const = 0;
};

/// A codec that runs what `functions` gives: the family's code for the processor it runs on.
template <class Format>
class AcceleratedCodec final : public VectorCodec {
 public:
  AcceleratedCodec(CodecPtr scalar, Format format, CodecFunctions<Format> (*functions)())
      : VectorCodec(scalar->info()),
        scalar_(std::move(scalar)),
        format_(std::move(format)),
        functions_(functions) {}

  const char* target() const override { return functions_().target; }

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    return scalar_->wire_bytes(dtype, elements);
  }
  void encode_any(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                  EncodeCounts* counts) const {
    const auto function = functions_().encode;
    function == nullptr ? scalar_->encode(dtype, payload, wire, counts)
                        : function(format_, *scalar_, dtype, payload, wire, counts);
  }
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    encode_any(dtype, payload, wire, &counts);
  }
  void do_encode_uncounted(DType dtype, std::span<const std::byte> payload,
                           std::span<std::byte> wire) const override {
    encode_any(dtype, payload, wire, nullptr);
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const auto function = functions_().decode;
    function == nullptr ? scalar_->decode(dtype, wire, payload)
                        : function(format_, *scalar_, dtype, wire, payload);
  }
  void do_decode_add(DType dtype, std::span<const std::byte> wire,
                     std::span<std::byte> sum) const override {
    const auto function = functions_().decode_add;
    function == nullptr ? scalar_->decode_add(dtype, wire, sum)
                        : function(format_, *scalar_, dtype, wire, sum);
  }

  // Vectors decode to fp32 where that is a payload like others.
  void do_decode_fp32(DType dtype, std::span<const std::byte> wire,
                      std::span<float> values) const override {
    info().is_dtype_independent ? Codec::do_decode_fp32(dtype, wire, values)
                                : scalar_->decode_fp32(dtype, wire, values);
  }
  void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                     std::span<float> sum) const override {
    scalar_->decode_fma(dtype, wire, sum);
  }

  CodecPtr scalar_;
  Format format_;
  CodecFunctions<Format> (*functions_)();  // asked at each call: tests change the target
};

template <class Format>
CodecPtr accelerated_as(const CodecPtr& scalar, const Format& format,
                        std::type_identity_t<CodecFunctions<Format> (*)()> functions) {
  return std::make_shared<AcceleratedCodec<Format>>(scalar, format, functions);
}

}  // namespace arlab
