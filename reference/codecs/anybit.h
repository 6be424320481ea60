// The parameters of an any-bit integer codec, and its names.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace arlab {

/// The format that a name like `int4-g32-sr` means: SPEC.md, "Names".
struct AnyBitFormat {
  enum class Metadata {
    scales,         ///< bf16 scale, and bf16 zero unless symmetric
    spikes,         ///< and the block's minimum and maximum in dtype, with 16-bit indices
    integer_spikes  ///< int8 scale, int8 zero point, minimum and maximum with 8-bit indices
  };
  struct Static {
    float scale = 0;
    float zero = 0;  ///< the value of code 0; unused when symmetric
  };

  unsigned bits = 0;      ///< 2 .. 8
  std::size_t group = 0;  ///< elements per block; 0: the whole message is one block
  bool symmetric = false;
  bool hadamard = false;
  bool stochastic = false;  ///< codes are rounded stochastically
  Metadata metadata = Metadata::scales;
  std::optional<Static> given = {};  ///< a scale that is not measured and does not travel
};

/// The format of a codec name; nothing when the name is not of this family. Throws InvalidInput
/// when it is, but a parameter is out of range.
std::optional<AnyBitFormat> parse_anybit(std::string_view name);

/// `int8-grow`, `fp8-e4m3-grow-vllm` and others with the row length in place of `row`: `int8-g4096`. Any
/// other name is returned as it is. Throws InvalidInput when the row length is no group size.
std::string with_row_length(std::string_view name, std::size_t row_elements);

}  // namespace arlab
