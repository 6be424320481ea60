// A codec that is compiled by itself from a user's header, as a library with a C interface: another compiler than the program's may
// have made it. This header travels: it is compiled with the user's, and includes nothing but headers that travel, too.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "reference/codecs/scaled_reference.h"

namespace arlab {

/// The part of an EncodeContext that decides random bits.
struct CompiledContext {
  std::uint64_t seed;
  std::uint64_t position;
  std::uint32_t call;
  std::uint32_t rank;
  std::uint32_t step;
};

/// A value of something, as text. Some names have several values.
using SayText = void (*)(void* to, const char* name, const char* value);

/// The functions of such a library. A codec is an object that find() has made; dtypes are numbers of DType.
struct CompiledCodecs {
  /// Names of codecs, as "codec".
  void (*listed)(SayText say, void* to);
  /// The codec of that name; null where the format has none. forget() ends it.
  void* (*find)(const char* name);
  void (*forget)(void* codec);
  /// Says its CodecInfo; as "mistake", invalid facts.
  void (*about)(const void* codec, SayText say, void* to);
  std::size_t (*wire_bytes)(const void* codec, std::size_t elements);
  /// How many elements were clamped.
  std::uint64_t (*encode)(const void* codec, int dtype, const void* payload, std::size_t elements,
                          void* wire, std::size_t wire_bytes, const CompiledContext* context);
  void (*decode)(const void* codec, int dtype, const void* wire, std::size_t wire_bytes,
                 void* payload, std::size_t elements);
  /// Null where values are no products.
  void (*decode_fma)(const void* codec, const void* wire, std::size_t wire_bytes, float* sum,
                     std::size_t elements);
  /// The bytes of the format's object, which say what parse() found in the name.
  const void* (*object)(const void* codec);
  std::size_t object_bytes;
};

// ---------------------------------------------------------------- what a format needs, part by part, for messages that name it

template <class Format>
concept HasBlock = requires {
  requires std::has_single_bit(Format::kBlock) && Format::kBlock >= 8 && Format::kBlock <= 256;
};
template <class Format>
concept HasScale = std::same_as<typename Format::Scale, float> ||
                   std::same_as<typename Format::Scale, std::uint8_t>;
template <class Format>
concept HasBits = requires(const Format& format) {
  { format.bits() } -> std::same_as<unsigned>;
};
template <class Format>
concept HasScaleOf = requires(const Format& format, float x) {
  { format.scale_of(x) } -> std::same_as<ScaledBlock<typename Format::Scale>>;
};
template <class Format>
concept HasNanScale = requires(const Format& format) {
  { format.nan_scale() } -> std::same_as<typename Format::Scale>;
};
template <class Format>
concept HasQuantize = requires(const Format& format, float x) {
  { format.quantize(x, x) } -> std::same_as<ScaledCode>;
};
template <class Format>
concept HasDequantize =
    requires(const Format& format, std::uint32_t code, typename Format::Scale scale) {
      { format.dequantize(code, scale) } -> std::same_as<float>;
    };
template <class Format>
concept HasInfo = requires {
  { Format::info(std::string()) } -> std::same_as<CodecInfo>;
};
template <class Format>
concept HasListed = requires {
  { Format::listed() } -> std::same_as<std::vector<std::string>>;
};
template <class Format>
concept HasParse = requires {
  { Format::parse(std::string_view()) } -> std::same_as<std::optional<Format>>;
};

/// GPUs get a copy of the object's bytes.
template <class Format>
concept HasPlainMembers = std::is_trivially_copyable_v<Format> && requires {
  typename std::bool_constant<((void)std::bit_cast<Format>(std::array<std::byte, sizeof(Format)>{}),
                               true)>;
};

// ---------------------------------------------------------------- the interface of a format

namespace compiled {

/// The shortest text that means the number, whatever the locale.
inline std::string text_of(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

inline void say_info(const CodecInfo& info, SayText say, void* to) {
  const auto number = [&](const char* name, double value) {
    say(to, name, text_of(value).c_str());
  };
  say(to, "name", info.name.c_str());
  say(to, "summary", info.summary.c_str());
  say(to, "source", info.source.c_str());
  for (const DType dtype : info.saturating) number("saturating", static_cast<int>(dtype));
  number("block", static_cast<double>(info.block));
  number("uses_context", info.uses_context ? 1 : 0);
  number("clamps_fp16_sums", info.clamps_fp16_sums ? 1 : 0);
  number("encode_ops_per_element", info.cost.encode_ops_per_element);
  number("decode_ops_per_element", info.cost.decode_ops_per_element);
  number("store_efficiency", info.cost.store_efficiency);
  number("packed", info.cost.packed ? 1 : 0);
}

/// The first code of an ordinary element that has more bits than bits() says; nothing where none has.
template <ScaledFormat Format>
std::optional<std::uint32_t> code_beyond(const Format& format) {
  for (const float largest : {1e-40F, 1e-3F, 1.0F, 127.0F, 65504.0F, 3e38F}) {
    const float factor = format.scale_of(largest).factor;
    for (int k = -64; factor != 0 && k <= 64; ++k) {
      const std::uint32_t bits =
          format.quantize(largest * (static_cast<float>(k) / 64), factor).bits;
      if (bits >> format.bits() != 0) return bits;
    }
  }
  return std::nullopt;
}

/// Says why wires of the format would not be as long as wire_bytes() says, if they would not.
template <ScaledFormat Format>
void say_mistakes(const Format& format, SayText say, void* to) {
  const unsigned bits = format.bits();
  const auto mistake = [&](const std::string& text) { say(to, "mistake", text.c_str()); };
  if (bits < 1 || bits > 8) {
    return mistake("bits() is " + std::to_string(bits) + ": allowed are 1 to 8");
  }
  for (int turn = 0; turn < 100; ++turn) {
    if (const unsigned again = format.bits(); again != bits) {
      return mistake("bits() is " + std::to_string(bits) + " and then " + std::to_string(again) +
                     ": needed is the same number always");
    }
  }
  if (const auto beyond = code_beyond(format)) {
    mistake("quantize() gives the code " + std::to_string(*beyond) + ": allowed are 0 to " +
            std::to_string((1U << bits) - 1) + ", as bits() says");
  }
}

}  // namespace compiled

/// The interface of a format: CompiledFormat<Format>::kCodecs.
template <NamedFormat Format>
class CompiledFormat {
  struct Named {
    Format format;
    std::string name;
  };
  static const Named& named(const void* codec) { return *static_cast<const Named*>(codec); }
  static const Format& format_of(const void* codec) { return named(codec).format; }

  static std::span<const std::byte> bytes(const void* data, std::size_t size) {
    return {static_cast<const std::byte*>(data), size};
  }
  static std::span<std::byte> bytes(void* data, std::size_t size) {
    return {static_cast<std::byte*>(data), size};
  }

  static void listed(SayText say, void* to) {
    for (const std::string& name : Format::listed()) say(to, "codec", name.c_str());
  }
  static void* find(const char* name) {
    const std::optional<Format> format = Format::parse(name);
    if (!format) return nullptr;
    auto* const named = new Named{*format, name};
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&named->format);  // its bytes are part of a kernel's text
#endif
    return named;
  }
  static void forget(void* codec) { delete static_cast<Named*>(codec); }
  static void about(const void* codec, SayText say, void* to) {
    compiled::say_info(scaled_info(format_of(codec), named(codec).name), say, to);
    say(to, "bits", std::to_string(format_of(codec).bits()).c_str());
    say(to, "scale_bytes", std::to_string(sizeof(typename Format::Scale)).c_str());
    compiled::say_mistakes(format_of(codec), say, to);
  }
  static std::size_t wire_bytes(const void* codec, std::size_t elements) {
    return scaled_wire_bytes(format_of(codec), elements);
  }
  static std::uint64_t encode(const void* codec, int number_of_dtype, const void* payload,
                              std::size_t elements, void* wire, std::size_t wire_size,
                              const CompiledContext* context) {
    const auto dtype = static_cast<DType>(number_of_dtype);
    EncodeContext whole;
    whole.seed = context->seed;
    whole.call = context->call;
    whole.rank = context->rank;
    whole.step = context->step;
    whole.position = context->position;
    return encode_scaled(format_of(codec), dtype, bytes(payload, elements * size_of(dtype)),
                         bytes(wire, wire_size), whole);
  }
  static void decode(const void* codec, int number_of_dtype, const void* wire,
                     std::size_t wire_size, void* payload, std::size_t elements) {
    const auto dtype = static_cast<DType>(number_of_dtype);
    decode_scaled(format_of(codec), dtype, bytes(wire, wire_size),
                  bytes(payload, elements * size_of(dtype)));
  }
  static void decode_fma(const void* codec, const void* wire, std::size_t wire_size, float* sum,
                         std::size_t elements)
    requires HasProducts<Format>
  {
    decode_scaled_fma(format_of(codec), bytes(wire, wire_size), std::span(sum, elements));
  }
  static constexpr auto decode_fma_or_null() {
    decltype(CompiledCodecs::decode_fma) function = nullptr;
    if constexpr (HasProducts<Format>) function = decode_fma;
    return function;
  }
  static const void* object(const void* codec) { return &format_of(codec); }

 public:
  static constexpr CompiledCodecs kCodecs = {
      listed, find,          forget, about, wire_bytes, encode, decode, decode_fma_or_null(),
      object, sizeof(Format)};
};

}  // namespace arlab
