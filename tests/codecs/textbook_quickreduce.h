// The QuickReduce codecs a second time, as a textbook would have them: exact numbers, every
// rounding and every bit by itself, slow. It can make mistakes on purpose, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference/codecs/codec.h"

namespace arlab::testing {

enum class Mistake {
  none,
  // The scale of a block.
  consecutive_blocks,
  one_block_per_group,
  tie_takes_max,
  plus_zero_is_smallest,
  unsigned_scale,
  constant_rounded_once,
  scale_truncated,
  // Arithmetic.
  no_epsilon,
  epsilon_away_from_zero,
  reciprocal_truncated,
  reciprocal_not_rounded,
  reciprocal_overflows_to_infinity,
  division_instead_of_reciprocal,
  product_not_rounded,
  subnormals_flushed,
  // Codes.
  codes_truncated,
  ties_away_from_zero,
  halves_rounded_up,
  codes_wrap,
  symmetric_code_range,
  nan_clamps_to_upper_bound,
  bias_too_large,
  // The wire.
  scales_swapped,
  reciprocal_on_the_wire,
  bytes_in_element_order,
  threads_reversed,
  stale_padding,
  // Non-finite elements.
  nan_is_zero,
  infinity_is_largest,
  codes_beside_nan_kept,
  nan_spoils_group,
  // Decoding.
  decoded_values_truncated,
  decoded_zeros_unsigned,
  decoded_values_overflow,
  // Counting.
  clamped_not_counted,
  clamped_before_rounding,
  padding_counted,
};

/// What tells the six formats apart.
struct TextbookFormat {
  std::string_view name;
  std::size_t code_bits;
  double largest;  // L of the integers, the largest value of the floats
  bool integers;
  std::size_t scales_at;  // bytes

  /// Where in an atom a bit of the code of a thread's element lies, in bits.
  std::size_t (*place)(std::size_t thread, std::size_t element, std::size_t bit);
};

class TextbookQuickReduce final : public Codec {
 public:
  /// `name`: qr-fp8, qr-q8, qr-q6, qr-q4, qr-q3 or qr-fp4.
  explicit TextbookQuickReduce(std::string_view name, Mistake mistake = Mistake::none);

 private:
  struct EncodedBlock;

  TextbookQuickReduce(const TextbookFormat& format, Mistake mistake);

  bool makes(Mistake mistake) const { return mistake_ == mistake; }
  std::size_t atom_bytes() const { return format_.scales_at + 128; }
  std::size_t element_of(std::size_t block, std::size_t place) const;
  std::size_t place_of(std::size_t element, std::size_t bit) const;
  std::size_t place_of_scale(std::size_t block) const;

  double extreme(std::span<const double> block) const;
  EncodedBlock encode_block(DType dtype, std::vector<double> x, std::vector<double> sharing) const;
  unsigned code_of(double w) const;
  unsigned integer_code_of(double w) const;
  unsigned float_code_of(double w) const;
  bool is_outside(double w) const;
  double value_of(unsigned code) const;

  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override;
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override;
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override;

  TextbookFormat format_;
  Mistake mistake_;
  std::vector<double> values_;  // of every code; NaN where it is one
};

}  // namespace arlab::testing
