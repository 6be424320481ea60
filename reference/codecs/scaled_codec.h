// The scalar reference of a format that scales blocks (scaled_reference.h), as a Codec and a family of names.
#pragma once

#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reference/codecs/registry.h"
#include "reference/codecs/scaled_reference.h"

namespace arlab {

template <NamedFormat Format>
class ScaledCodec final : public CodecInContext {
 public:
  ScaledCodec(const std::string& name, const Format& format)
      : CodecInContext(scaled_info(format, name)), format_(format) {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return scaled_wire_bytes(format_, elements);
  }
  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override {
    counts.clamped += encode_scaled(format_, dtype, payload, wire, context);
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    decode_scaled(format_, dtype, wire, payload);
  }
  void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                     std::span<float> sum) const override {
    if constexpr (HasProducts<Format>) {
      decode_scaled_fma(format_, wire, sum);
    } else {
      Codec::do_decode_fma(dtype, wire, sum);
    }
  }

  Format format_;
};

/// The family of a format.
template <NamedFormat Format>
CodecFamily scaled_codecs() {
  CodecFamily family;
  family.listed = Format::listed();
  if constexpr (requires { Format::pattern(); }) {
    family.pattern = Format::pattern();
  } else {
    family.pattern = fmt::format("{}", fmt::join(family.listed, ", "));
  }
  family.find = [](std::string_view name) -> CodecPtr {
    const std::optional<Format> format = Format::parse(name);
    if (!format) return nullptr;
    return std::make_shared<ScaledCodec<Format>>(std::string(name), *format);
  };
  return family;
}

}  // namespace arlab
