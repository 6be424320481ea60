#include "reference/codecs/codec.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "reference/codecs/native_sum.h"
#include "reference/codecs/payload_values.h"

namespace arlab {
namespace {

std::string list_dtypes(const std::vector<DType>& dtypes) {
  std::string text;
  for (const DType dtype : dtypes) {
    if (!text.empty()) text += " or ";
    text += name_of(dtype);
  }
  return text;
}

}  // namespace

Codec::Codec(CodecInfo info) : info_(std::move(info)) {
  if (info_.name.empty()) fail("a codec needs a name");
  if (info_.dtypes.empty()) fail("codec {}: it takes no dtype", info_.name);
  if (info_.block == 0) fail("codec {}: block must be at least 1", info_.name);
  if (info_.block == kWholeTensor) {
    if (info_.alignment == 0 || info_.splits_at_alignment) {
      fail("codec {}: a block that is the whole message needs an alignment, and cannot be split",
           info_.name);
    }
    return;
  }
  if (info_.alignment == 0 ||
      (info_.alignment != kWholeTensor && info_.alignment % info_.block != 0)) {
    fail("codec {}: alignment {} is not a positive multiple of the block of {}", info_.name,
         info_.alignment, info_.block);
  }
}

bool Codec::takes(DType dtype) const {
  return std::find(info_.dtypes.begin(), info_.dtypes.end(), dtype) != info_.dtypes.end();
}

void Codec::check_dtype(DType dtype) const {
  if (!takes(dtype)) {
    const bool is_narrower = dtype == DType::fp32 && (info_.name == "fp16" || info_.name == "bf16");
    fail("codec {} takes {}, not {}{}", info_.name, list_dtypes(info_.dtypes), name_of(dtype),
         is_narrower ? fmt::format(": wire-{} sends it as {}", info_.name, info_.name) : "");
  }
}

std::size_t Codec::check_spans(DType dtype, std::span<const std::byte> payload,
                               std::size_t wire_size) const {
  check_dtype(dtype);
  const std::size_t element_bytes = size_of(dtype);
  if (payload.size() % element_bytes != 0) {
    fail("codec {}: a payload of {} bytes is not a whole number of {} elements", info_.name,
         payload.size(), name_of(dtype));
  }
  if (reinterpret_cast<std::uintptr_t>(payload.data()) % element_bytes != 0) {
    fail("codec {}: the payload is not aligned to the {} bytes of an {} element", info_.name,
         element_bytes, name_of(dtype));
  }
  const std::size_t elements = payload.size() / element_bytes;
  check_wire(dtype, wire_size, elements);
  return elements;
}

void Codec::check_wire(DType dtype, std::size_t wire_size, std::size_t elements) const {
  const std::size_t expected = wire_bytes(dtype, elements);
  if (wire_size != expected) {
    fail("codec {}: the wire of {} {} elements is {} bytes, not {}", info_.name, elements,
         name_of(dtype), expected, wire_size);
  }
}

std::size_t Codec::wire_bytes(DType dtype, std::size_t elements) const {
  check_dtype(dtype);
  // No wire format is larger than 64 bytes per element; far below, the sizes cannot overflow.
  if (elements > (SIZE_MAX >> 8)) fail("codec {}: {} elements are too many", info_.name, elements);
  return elements == 0 ? 0 : do_wire_bytes(dtype, elements);
}

std::span<const std::byte> Codec::sent_of(std::span<const std::byte> wire) const {
  if (!info_.has_variable_wire || wire.empty()) return wire;
  std::uint64_t used = 0;
  if (wire.size() >= kWireLengthBytes) std::memcpy(&used, wire.data(), sizeof(used));
  if (used < kWireLengthBytes || used > wire.size()) {
    fail("codec {}: a wire that says it has {} bytes; allowed are {} to {}", info_.name, used,
         kWireLengthBytes, wire.size());
  }
  return wire.first(used);
}

void Codec::fail_early(std::size_t bytes) const {
  fail("codec {}: a wire of {} bytes ends early, or late", info_.name, bytes);
}

std::size_t Codec::elements_of_wire(DType dtype, std::size_t bytes) const {
  check_dtype(dtype);
  if (info_.has_variable_wire) {
    fail("codec {}: the length of a wire does not say how many elements it holds: name them",
         info_.name);
  }
  if (bytes == 0) return 0;
  // wire_bytes never shrinks with the element count: find the last count that does not exceed.
  std::size_t high = 1;
  while (wire_bytes(dtype, high) <= bytes) {
    if (high > (SIZE_MAX >> 10))
      fail("codec {}: a wire of {} bytes is too long", info_.name, bytes);
    high *= 2;
  }
  std::size_t low = high / 2;  // fits, or is 0
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (wire_bytes(dtype, middle) <= bytes ? low : high) = middle;
  }
  if (low == 0 || wire_bytes(dtype, low) != bytes) {
    fail("codec {}: no number of {} elements has a wire of {} bytes (the nearest are {} and {})",
         info_.name, name_of(dtype), bytes, low == 0 ? 0 : wire_bytes(dtype, low),
         wire_bytes(dtype, high));
  }
  return low;
}

void Codec::encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                   EncodeCounts* counts, const EncodeContext& context) const {
  const std::size_t elements = check_spans(dtype, payload, wire.size());
  if (elements == 0) return;
  if (info_.needs_context()) {
    if (!context.state.empty() && context.state.size() != elements) {
      fail("codec {}: a state of {} numbers does not fit a message of {} elements", info_.name,
           context.state.size(), elements);
    }
    EncodeCounts ignored;
    do_encode_in(context, dtype, payload, wire, counts != nullptr ? *counts : ignored);
  } else if (counts != nullptr) {
    do_encode(dtype, payload, wire, *counts);
  } else {
    do_encode_uncounted(dtype, payload, wire);
  }
}

void Codec::decode_fp32(DType dtype, std::span<const std::byte> wire,
                        std::span<float> values) const {
  check_wire(dtype, wire.size(), values.size());
  if (values.empty()) return;
  if (dtype == DType::fp32) {
    return do_decode(dtype, wire, std::as_writable_bytes(values));
  }
  do_decode_fp32(dtype, wire, values);
}

void Codec::do_decode_fp32(DType dtype, std::span<const std::byte> wire,
                           std::span<float> values) const {
  if (info_.fp32_values == Fp32Values::unknown) {
    fail(
        "codec {}: it decodes to {} and says nothing of values before that rounding, so "
        "decode=fp32 "
        "is not possible; allowed is decode=native",
        info_.name, name_of(dtype));
  }
  if (info_.fp32_values == Fp32Values::unrounded) {
    if (!info_.is_dtype_independent) {
      throw std::logic_error("codec " + info_.name + " says that it has fp32 values, and has not");
    }
    return do_decode(DType::fp32, wire, std::as_writable_bytes(values));
  }
  std::vector<std::uint16_t> payload(values.size());
  const std::span bytes = std::as_writable_bytes(std::span(payload));
  do_decode(dtype, wire, bytes);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_value(dtype, bytes, i);
}

void Codec::decode_fma(DType dtype, std::span<const std::byte> wire, std::span<float> sum) const {
  check_wire(dtype, wire.size(), sum.size());
  if (!sum.empty()) do_decode_fma(dtype, wire, sum);
}

void Codec::do_decode_fma(DType, std::span<const std::byte>, std::span<float>) const {
  fail(
      "codec {}: add=fma needs values that are a code times a scale; allowed are "
      "add=exact, add=fp32, add=native",
      info_.name);
}

void Codec::encode_fp32(DType dtype, std::span<const float> values, std::span<std::byte> wire,
                        EncodeCounts* counts, const EncodeContext& context) const {
  if (!info_.is_dtype_independent && dtype != DType::fp32) {
    const char* const why = info_.fp32_values == Fp32Values::of_dtype ? "it calculates in"
                            : info_.fp32_values == Fp32Values::unknown
                                ? "it says only what a wire is of"
                                : "its wire holds numbers of";
    fail("codec {}: {} {}, so round=none is not possible; allowed is round=native", info_.name, why,
         name_of(dtype));
  }
  encode(DType::fp32, std::as_bytes(values), wire, counts, context);
}

std::size_t Codec::statistics_of(std::size_t elements) const {
  if (!info_.shares_scales || elements == 0) return 0;
  return info_.block == kWholeTensor ? 1 : (elements - 1) / info_.block + 1;
}

void Codec::measure(DType dtype, std::span<const std::byte> payload,
                    std::span<float> statistics) const {
  const std::size_t elements =
      check_spans(dtype, payload, wire_bytes(dtype, payload.size() / size_of(dtype)));
  if (statistics.size() != statistics_of(elements)) {
    fail("codec {}: {} numbers are measured of {} elements, not {}", info_.name,
         statistics_of(elements), elements, statistics.size());
  }
  if (!statistics.empty()) do_measure(dtype, payload, statistics);
}

void Codec::add_codes(DType dtype, std::size_t elements, std::span<const std::byte> wire,
                      std::span<std::byte> sum) const {
  const std::size_t expected = wire_bytes(dtype, elements);
  if (!info_.adds_codes || wire.size() != expected || sum.size() != expected) {
    fail("codec {}: wires of {} and {} bytes of {} elements cannot be added", info_.name,
         wire.size(), sum.size(), elements);
  }
  do_add_codes(dtype, elements, wire, sum);
}

void Codec::decode(DType dtype, std::span<const std::byte> wire,
                   std::span<std::byte> payload) const {
  if (check_spans(dtype, payload, wire.size()) == 0) return;
  do_decode(dtype, wire, payload);
}

void Codec::decode_add(DType dtype, std::span<const std::byte> wire,
                       std::span<std::byte> sum) const {
  if (check_spans(dtype, sum, wire.size()) == 0) return;
  do_decode_add(dtype, wire, sum);
}

void Codec::do_encode_in(const EncodeContext& /*context*/, DType dtype,
                         std::span<const std::byte> payload, std::span<std::byte> wire,
                         EncodeCounts& counts) const {
  do_encode(dtype, payload, wire, counts);
}

void Codec::do_measure(DType /*dtype*/, std::span<const std::byte> /*payload*/,
                       std::span<float> /*statistics*/) const {
  throw std::logic_error("codec " + info_.name + " says that it shares scales, and measures none");
}

void Codec::do_add_codes(DType /*dtype*/, std::size_t /*elements*/,
                         std::span<const std::byte> /*wire*/, std::span<std::byte> /*sum*/) const {
  throw std::logic_error("codec " + info_.name + " says that it adds codes, and does not");
}

void Codec::do_encode_uncounted(DType dtype, std::span<const std::byte> payload,
                                std::span<std::byte> wire) const {
  EncodeCounts ignored;
  do_encode(dtype, payload, wire, ignored);
}

void Codec::do_decode_add(DType dtype, std::span<const std::byte> wire,
                          std::span<std::byte> sum) const {
  // Whole, not in tiles: the wire of a tensor need not be the wires of its parts.
  std::vector<std::byte> decoded(sum.size());
  do_decode(dtype, wire, decoded);
  add_native(dtype, info_.clamps_fp16_sums, sum, decoded);
}

}  // namespace arlab
