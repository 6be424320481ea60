#include "reference/layers/operand.h"

#include <charconv>

#include "reference/codecs/name_parts.h"
#include "reference/error.h"

namespace arlab {
namespace {

constexpr const char* kNames[] = {"none", "fp16", "bf16", "int8", "fp8", "int4"};

/// Reads the format of a name, whether or not that operand may have it.
bool read(std::string_view name, OperandFormat& format) {
  const std::string_view kind = name.substr(0, name.find('-'));
  std::size_t at = 0;
  while (at < std::size(kNames) && kind != kNames[at]) ++at;
  if (at == std::size(kNames)) return false;
  format.kind = static_cast<OperandFormat::Kind>(at);
  name.remove_prefix(kind.size());
  if (format.kind == OperandFormat::Kind::int4) {
    if (!take(name, "-g")) return false;
    const std::string_view digits = name.substr(0, name.find('-'));
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), format.group);
    if (error != std::errc() || digits.starts_with('0')) return false;
    name.remove_prefix(static_cast<std::size_t>(end - digits.data()));
    if (format.group % 8 != 0 || format.group > 65536) return false;
  } else {
    format.per_tensor = take(name, "-tensor");
  }
  format.asymmetric = take(name, "-asym");
  format.given = take(name, "-static");
  return name.empty();
}

bool allowed(Operand operand, const OperandFormat& f) {
  using Kind = OperandFormat::Kind;
  const bool integers = f.kind == Kind::int8 || f.kind == Kind::int4;
  const bool scaled = integers || f.kind == Kind::fp8;
  if ((f.asymmetric && !integers) || ((f.per_tensor || f.given) && !scaled)) return false;
  if (operand == Operand::weights) {
    return !f.given && f.kind != Kind::fp16 && f.kind != Kind::bf16;
  }
  // Nothing is known of a token in advance, so no scales of its own can be given.
  return f.kind != Kind::int4 && (!f.given || f.per_tensor);
}

}  // namespace

std::string OperandFormat::name() const {
  std::string name = kNames[static_cast<std::size_t>(kind)];
  if (group != 0) name += "-g" + std::to_string(group);
  if (per_tensor) name += "-tensor";
  if (asymmetric) name += "-asym";
  if (given) name += "-static";
  return name;
}

OperandFormat parse_operand(Operand operand, std::string_view name) {
  OperandFormat format;
  if (read(name, format) && allowed(operand, format)) return format;
  if (operand == Operand::weights) {
    fail(
        "weights {}: allowed are none, int8[-tensor][-asym], fp8[-tensor], and int4-g<G>[-asym] "
        "with G a multiple of 8 up to 65536",
        quote(name));
  }
  fail(
      "activations {}: allowed are none, fp16, bf16, int8[-asym], int8-tensor[-asym][-static], fp8 "
      "and fp8-tensor[-static]",
      quote(name));
}

}  // namespace arlab
