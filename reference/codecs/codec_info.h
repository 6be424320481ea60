// Facts of a codec that need no run of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/formats/dtypes.h"

namespace arlab {

/// Arithmetic per element, counted by hand from the codec's definition as scalar operations
/// (multiply, add, compare, shift, convert); the scale of a block is spread over its elements.
struct CodecCost {
  double encode_ops_per_element = 0;
  double decode_ops_per_element = 0;
  /// Share of the bytes stored that is wire; the rest fills up stores that are too short.
  double store_efficiency = 1;
  /// Whether it calculates in 16 bits.
  bool packed = false;
  /// Elements that an encoder looks through for a scale before it encodes the first of them; 0 where the codec does not say.
  std::size_t scale_elements = 0;
  /// Elements that an encoder rotates together, or among which it looks for spikes; 0: none.
  std::size_t exchange_elements = 0;
};

/// The value of a wire's element before it is rounded to the payload's dtype: a sum with decode=fp32 adds it.
enum class Fp32Values {
  unknown,    ///< not available: a codec of another language, say
  carried,    ///< the wire carries numbers of the dtype, and nothing is rounded
  of_dtype,   ///< the codec calculates in the dtype, so that there is nothing before
  unrounded,  ///< an fp32 number, which decode_fp32() gives
};

/// Facts of a codec that need no run of it.
struct CodecInfo {
  std::string name;     ///< exact spelling: SPEC.md, "Names"
  std::string summary;  ///< one line for `arlab list codecs`
  std::string source;   ///< paper, repository or standard that defines it
  std::vector<DType> dtypes;

  /// Elements that share a scale; 1 where nothing is shared, kWholeTensor where the whole message
  /// does.
  std::size_t block = 1;

  /// Chunk boundaries of every schedule are multiples of this many elements, so that no block is
  /// ever cut. Counted from the start of the tensor; in an all-to-all from the start of the slot
  /// for one rank (Schedule::slot_elements). kWholeTensor: neither may be cut at all.
  std::size_t alignment = 1;

  /// True when cutting a message at a multiple of `alignment` changes no decoded bit. False for a
  /// codec that derives something from the whole message (a tensor scale): the executor then keeps
  /// messages whole, and bits depend on how an algorithm chunks.
  bool splits_at_alignment = true;

  /// Accumulating in fp16, a finite sum that overflows becomes +-65504 instead of an infinity
  /// (QuickReduce sets the hardware's FP16 overflow clamp): SPEC.md, "Accumulation".
  bool clamps_fp16_sums = false;

  /// Whether the wire depends on where the message stands (EncodeContext), not on its elements alone.
  bool uses_context = false;

  /// Whether it carries something from call to call (EncodeContext::state).
  bool has_state = false;
  bool needs_context() const { return uses_context || has_state; }

  /// Whether the data decide how long a wire is. It begins with its own length (kWireLengthBytes), wire_bytes() is a bound, and
  /// what lies behind the length is 0.
  bool has_variable_wire = false;

  /// Whether all ranks encode a chunk by the same numbers, of which each has measured its own: before a sum is made, they agree on
  /// the largest (agreement_of()). There is one per block, or per message where that is the block.
  bool shares_scales = false;
  /// Whether wires that were encoded by the same numbers can be added without decoding them.
  bool adds_codes = false;

  /// Whether only the reference has it: kernels carry nothing from call to call, and have slots of one length.
  bool is_of_reference_only() const { return has_state || has_variable_wire; }

  /// The wire can be made of fp32 numbers in place of the payload's, and decode(fp32) is decode_fp32().
  bool is_dtype_independent = false;
  Fp32Values fp32_values = Fp32Values::unknown;

  /// Dtypes in which no finite tensor decodes to an infinity: SPEC.md, "Saturation".
  std::vector<DType> saturating = {};

  CodecCost cost = {};

  /// Elements that a call should have, if a message may be cut: a call of a codec that is written
  /// in another language costs as much as thousands of elements.
  std::size_t least_call_elements = 0;
};

inline constexpr std::size_t kWholeTensor = SIZE_MAX;

}  // namespace arlab
