// The codec interface: payload elements in, wire bytes out, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reference/codecs/codec_info.h"
#include "reference/codecs/context.h"
#include "reference/codecs/payload_views.h"
#include "reference/dtype.h"

namespace arlab {

/// Bytes of the length at the head of a wire of variable length: a number of 64 bits that counts itself.
inline constexpr std::size_t kWireLengthBytes = 8;

/// Events of one encode call that a reader of an error figure wants to know about.
struct EncodeCounts {
  /// Elements whose rounded code lay outside the code range: SPEC.md, "Clamped elements".
  std::uint64_t clamped = 0;
};

/// A codec is an immutable value shared by pointer. Every function is const, has no hidden state (what is carried from call to
/// call is in the context), and may be called from many threads at once.
///
/// `payload` spans hold elements of `dtype` in native order, aligned to the element size; `wire`
/// spans hold exactly wire_bytes(dtype, elements) bytes. Everything that breaks these rules, and a
/// dtype that the codec does not take, throws InvalidInput.
class Codec {
 public:
  explicit Codec(CodecInfo info);
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;

  const CodecInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  bool takes(DType dtype) const;

  /// Size in bytes of the wire of `elements` consecutive elements whose first is aligned; of wires of variable length, the most.
  std::size_t wire_bytes(DType dtype, std::size_t elements) const;

  /// Returns the sent part of a wire: all of it, or as much as its length says. Throws InvalidInput for a length that cannot
  /// be.
  std::span<const std::byte> sent_of(std::span<const std::byte> wire) const;

  /// How many numbers measure() finds in a message; 0 for codecs that share nothing.
  std::size_t statistics_of(std::size_t elements) const;
  /// Measures this message for the statistics that ranks agree on (EncodeContext::shared).
  void measure(DType dtype, std::span<const std::byte> payload, std::span<float> statistics) const;
  /// For codecs that add codes: sum becomes the wire of the sum of both wires' values. Both were encoded by the same numbers;
  /// else throws InvalidInput.
  void add_codes(DType dtype, std::size_t elements, std::span<const std::byte> wire,
                 std::span<std::byte> sum) const;

  /// The largest element count whose wire is exactly `bytes` long; throws if there is none, or any may have it.
  std::size_t elements_of_wire(DType dtype, std::size_t bytes) const;

  /// Writes the wire of the payload. When `counts` is given, adds to it. A state in the context has a number per element.
  void encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
              EncodeCounts* counts = nullptr, const EncodeContext& context = {}) const;

  /// Writes the payload that the wire stands for.
  void decode(DType dtype, std::span<const std::byte> wire, std::span<std::byte> payload) const;

  /// sum += what the wire stands for, by native accumulation: one addition and one rounding to
  /// dtype per element; a finite fp16 sum that overflows becomes +-65504 where
  /// info().clamps_fp16_sums says so.
  void decode_add(DType dtype, std::span<const std::byte> wire, std::span<std::byte> sum) const;

  // Parts of sums of another kind than decode_add's (reference/collectives/sum.h). `dtype` is that of the payload, to which the
  // wire belongs.

  /// The values of a wire in fp32, before they are rounded to the payload's dtype, as info().fp32_values says. Throws
  /// InvalidInput where they are unknown, but for a payload of fp32 numbers.
  void decode_fp32(DType dtype, std::span<const std::byte> wire, std::span<float> values) const;
  /// sum = code * scale + sum, rounded once. Throws InvalidInput for codecs whose values are no such products.
  void decode_fma(DType dtype, std::span<const std::byte> wire, std::span<float> sum) const;
  /// The wire of fp32 values that were not rounded to the payload's dtype. Throws InvalidInput for codecs that calculate in it.
  void encode_fp32(DType dtype, std::span<const float> values, std::span<std::byte> wire,
                   EncodeCounts* counts = nullptr, const EncodeContext& context = {}) const;

 protected:
  // Called with checked arguments only.
  virtual std::size_t do_wire_bytes(DType dtype, std::size_t elements) const = 0;
  virtual void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                         EncodeCounts& counts) const = 0;
  virtual void do_decode(DType dtype, std::span<const std::byte> wire,
                         std::span<std::byte> payload) const = 0;

  // Called in place of do_encode() for codecs that say uses_context or has_state.
  virtual void do_encode_in(const EncodeContext& context, DType dtype,
                            std::span<const std::byte> payload, std::span<std::byte> wire,
                            EncodeCounts& counts) const;

  // Accelerations. They change no bit, and the defaults make do with the functions above.
  virtual void do_encode_uncounted(DType dtype, std::span<const std::byte> payload,
                                   std::span<std::byte> wire) const;
  virtual void do_decode_add(DType dtype, std::span<const std::byte> wire,
                             std::span<std::byte> sum) const;

  // For codecs with unrounded values whose wire is not the same in all dtypes, or is another codec's.
  virtual void do_decode_fp32(DType dtype, std::span<const std::byte> wire,
                              std::span<float> values) const;

  // For codecs with values that are products of a code and a scale.
  virtual void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                             std::span<float> sum) const;

  // For codecs that share scales, and that add codes.
  virtual void do_measure(DType dtype, std::span<const std::byte> payload,
                          std::span<float> statistics) const;
  virtual void do_add_codes(DType dtype, std::size_t elements, std::span<const std::byte> wire,
                            std::span<std::byte> sum) const;

  /// Throws InvalidInput for a wire of variable length that says less than is needed.
  [[noreturn]] void fail_early(std::size_t bytes) const;

 private:
  void check_dtype(DType dtype) const;
  std::size_t check_spans(DType dtype, std::span<const std::byte> payload,
                          std::size_t wire_size) const;
  void check_wire(DType dtype, std::size_t wire_size, std::size_t elements) const;

  CodecInfo info_;
};

/// A codec with one encoder, which takes a context whether or not the codec needs one: without it, that of a message by itself.
class CodecInContext : public Codec {
 public:
  using Codec::Codec;

 private:
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const final {
    do_encode_in({}, dtype, payload, wire, counts);
  }
  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override = 0;
};

using CodecPtr = std::shared_ptr<const Codec>;

}  // namespace arlab
