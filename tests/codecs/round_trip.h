// Encoding and decoding whole payloads, for tests.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/formats/bfloat16.h"
#include "reference/formats/half.h"
#include "reference/tensors/synthetic.h"

namespace arlab::testing {

using Bytes = std::vector<std::byte>;
using Patterns = std::vector<std::uint16_t>;

inline std::span<const std::byte> bytes_of(const Patterns& payload) {
  return std::as_bytes(std::span(payload));
}

/// The wire of a payload; `counts` as in Codec::encode.
inline Bytes encode(const Codec& codec, DType dtype, std::span<const std::byte> payload,
                    EncodeCounts* counts = nullptr) {
  Bytes wire(codec.wire_bytes(dtype, payload.size() / size_of(dtype)), std::byte{0xA5});
  codec.encode(dtype, payload, wire, counts);
  return wire;
}
inline Bytes encode(const Codec& codec, DType dtype, const Patterns& payload,
                    EncodeCounts* counts = nullptr) {
  return encode(codec, dtype, bytes_of(payload), counts);
}

inline Bytes decode_bytes(const Codec& codec, DType dtype, const Bytes& wire,
                          std::size_t elements) {
  Bytes payload(elements * size_of(dtype), std::byte{0x5A});
  codec.decode(dtype, wire, payload);
  return payload;
}
inline Patterns decode(const Codec& codec, DType dtype, const Bytes& wire, std::size_t elements) {
  Patterns payload(elements, 0x5A5A);
  codec.decode(dtype, wire, std::as_writable_bytes(std::span(payload)));
  return payload;
}

/// Returns a payload after a trip over the wire.
inline Patterns round_trip(const Codec& codec, DType dtype, const Patterns& payload) {
  return decode(codec, dtype, encode(codec, dtype, payload), payload.size());
}

/// The wire of fp32 values by a codec of the registry, and what the values are after the trip.
inline Bytes wire_of(const std::string& codec, const std::vector<float>& x,
                     EncodeCounts* counts = nullptr) {
  return encode(*find_codec(codec), DType::fp32, std::as_bytes(std::span(x)), counts);
}
inline std::vector<float> values_of(const std::string& codec, const Bytes& wire,
                                    std::size_t elements) {
  std::vector<float> x(elements, -1.25f);
  find_codec(codec)->decode(DType::fp32, wire, std::as_writable_bytes(std::span(x)));
  return x;
}
inline std::vector<float> round_trip(const std::string& codec, const std::vector<float>& x) {
  return values_of(codec, wire_of(codec, x), x.size());
}

/// 16-bit patterns and their values.
inline float value(DType dtype, std::uint16_t bits) {
  return dtype == DType::fp16 ? half_to_float(bits) : bfloat16_to_float(bits);
}
inline std::uint16_t pattern(DType dtype, float value) {
  return dtype == DType::fp16 ? half_from_float(value) : bfloat16_from_float(value);
}
inline Patterns patterns(DType dtype, const std::vector<float>& values) {
  Patterns result;
  for (const float v : values) result.push_back(pattern(dtype, v));
  return result;
}
inline std::vector<float> values(DType dtype, const Patterns& payload) {
  std::vector<float> result;
  for (const std::uint16_t bits : payload) result.push_back(value(dtype, bits));
  return result;
}
inline Patterns synthetic(std::string_view spec, DType dtype, std::size_t elements) {
  const Tensor tensor = make_synthetic(spec, dtype, 1, elements);
  return {tensor.bits16().begin(), tensor.bits16().end()};
}

inline std::uint16_t canonical_nan(DType dtype) { return dtype == DType::fp16 ? 0x7E00 : 0x7FC0; }

/// A codec with one of the dtypes that it takes: what most tests are run on.
struct CodecAndDType {
  CodecPtr codec;
  DType dtype;
};

inline std::vector<CodecAndDType> with_their_dtypes(const std::vector<std::string>& names) {
  std::vector<CodecAndDType> result;
  for (const std::string& name : names) {
    const CodecPtr codec = find_codec(name);
    for (const DType dtype : codec->info().dtypes) result.push_back({codec, dtype});
  }
  return result;
}

/// "qr_q4_fp16", as GoogleTest wants it.
inline std::string test_name(const ::testing::TestParamInfo<CodecAndDType>& info) {
  std::string name = info.param.codec->name() + "_" + std::string(name_of(info.param.dtype));
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

inline void PrintTo(const CodecAndDType& param, std::ostream* out) {
  *out << param.codec->name() << " " << name_of(param.dtype);
}

}  // namespace arlab::testing
