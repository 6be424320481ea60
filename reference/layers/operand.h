// In which form the two operands of a linear layer are multiplied, by name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace arlab {

enum class Operand { activations, weights };

/// reference/layers/SPEC.md, "Names".
struct OperandFormat {
  enum class Kind { none, fp16, bf16, int8, fp8, int4 };

  Kind kind = Kind::none;
  bool per_tensor = false;  ///< one scale; otherwise one for each row, a token or an output
  bool asymmetric = false;  ///< zero points
  bool given = false;       ///< scale and zero point are known before
  std::size_t group = 0;    ///< int4: inputs that share a scale

  std::string name() const;
  bool operator==(const OperandFormat&) const = default;
};

/// Throws InvalidInput, naming what is allowed.
OperandFormat parse_operand(Operand operand, std::string_view name);

}  // namespace arlab
