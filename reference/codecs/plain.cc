// The values themselves on the wire: SPEC.md, "Plain values (fp32, fp16, bf16)".
//
// Each takes its own dtype only. A silent cast from bf16 to fp16 turns values above 65504 into
// infinities, which has bitten users: SPEC.md, "What must not happen".

#include <bit>
#include <cstring>

#include "reference/codecs/native_sum.h"
#include "reference/codecs/registry.h"

namespace arlab {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

namespace {

class PlainCodec final : public Codec {
 public:
  explicit PlainCodec(DType dtype)
      : Codec({.name = std::string(name_of(dtype)),
               .summary = fmt::format("{} values as they are", name_of(dtype)),
               .source = dtype == DType::bf16 ? "bfloat16" : "IEEE 754-2019",
               .dtypes = {dtype},
               .fp32_values = Fp32Values::carried,
               .saturating = {dtype}}) {}

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    return elements * size_of(dtype);
  }
  void do_encode(DType, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts&) const override {
    std::memcpy(wire.data(), payload.data(), wire.size());
  }
  void do_decode(DType, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    std::memcpy(payload.data(), wire.data(), wire.size());
  }
  void do_decode_add(DType dtype, std::span<const std::byte> wire,
                     std::span<std::byte> sum) const override {
    // Straight from the wire, which may lie at any address.
    const bool aligned = reinterpret_cast<std::uintptr_t>(wire.data()) % size_of(dtype) == 0;
    aligned ? add_native(dtype, false, sum, wire) : Codec::do_decode_add(dtype, wire, sum);
  }
};

}  // namespace

CodecFamily plain_codecs() {
  return family_of({std::make_shared<PlainCodec>(DType::fp32),
                    std::make_shared<PlainCodec>(DType::fp16),
                    std::make_shared<PlainCodec>(DType::bf16)});
}

}  // namespace arlab
