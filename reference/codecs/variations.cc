#include "reference/codecs/variations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "reference/codecs/anybit.h"
#include "reference/codecs/anybit_layout.h"
#include "reference/codecs/bit_planes.h"
#include "reference/codecs/formats/anybit.h"
#include "reference/codecs/formats/formats.h"
#include "reference/codecs/formats/logfmt.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/formats/quickreduce.h"
#include "reference/codecs/hadamard.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"

namespace arlab {
namespace {

using Bytes = std::vector<std::byte>;
using Values = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMostFloat = std::numeric_limits<float>::max();
/// The largest element of nvfp4 with the largest scale of a block.
constexpr float kNvFp4Range = 6.0f * 448;

// ---------------------------------------------------------------- the rows

/// The elements that a block's scale covers.
enum class ScaleScope {
  own,
  without_first,
  without_last,
  one_on,    // from the second element of the block to the first of the next
  one_back,  // likewise from the last of the block before
  first_half,
  last_half,
  next_block,
  every_second,
  whole_message,
  before_if_partial,  // the block before, for a block that is not full
  clamped             // to a number of standard deviations
};
enum class Stored {
  own,
  fp16,
  bf16,
  fp32,
  cut_off,  // towards 0, in the format that it has
  up,       // away from 0, likewise
  power_below,
  power_nearest,
  power_above
};
enum class Quotient {
  own,
  divided,
  by_reciprocal,
  reciprocal_above,  // by one unit in the last place
  reciprocal_below,
  reciprocal_fp16,
  reciprocal_bf16,
  rounded_fp16,  // the quotient, before it is rounded to a code
  rounded_bf16,
  unrounded  // where it would be rounded to the payload's dtype
};
enum class Rounded { even, toward_zero, away, down, up, half_away, half_up, half_toward_zero };
enum class Spikes {
  own,
  index_above,
  index_below,
  minimum_index_above,
  minimum_index_below,
  maximum_index_above,
  maximum_index_below,
  exchanged,
  in_scale,  // they are not replaced by 0, so that the scale is also theirs
  minimum_in_scale,
  maximum_in_scale,
  mean_instead,  // replacement value
  last_found,    // the last among equals
  not_put_back,  // decoded as any other element
  minimum_not_put_back,
  maximum_not_put_back,
  minimum_last,  // where both are one element
};
/// Where an index that the mistake leads out of its block points to.
enum class Outside { nowhere, end, around };
/// The number that a message has.
enum class Number { own, one, of_256, of_1, of_6 };
enum class Unencoded { nothing, first_block, last_block, partial_block, first_chunk, last_chunk };

struct Variation {
  std::string name;
  ScaleScope window = ScaleScope::own;
  float sigmas = 0;          ///< for `clamped`
  float levels = 0;          ///< by how many the range's divisor is larger
  float top = 0;             ///< another largest small floating-point element; 0: own
  int exponent = 0;          ///< by how much a shared exponent is larger
  float least = -1;          ///< bound of the magnitude that a scale is of (fp8); negative: own
  bool epsilon = true;       ///< the term of qr-* in a scale
  bool positive = false;     ///< the scale has no sign where it would (qr-*)
  bool negative = false;     ///< likewise, but for that of its multiple
  bool tie_is_high = false;  ///< between extremes as large as each other the maximum counts (qr-*)
  bool consecutive = false;  ///< blocks are not interleaved where they would be (qr-*)
  Stored scale = Stored::own;
  Stored zero = Stored::own;
  bool exact_scale = false;  ///< codes know the scale before it is rounded for the wire
  bool exact_zero = false;
  bool wire_scale = false;  ///< codes know the rounded scale where the unrounded one would be meant
  Quotient quotient = Quotient::own;
  Rounded rounded = Rounded::even;
  bool wraps = false;        ///< codes beyond the last one begin again
  bool log_nearest = false;  ///< rounds logarithms, not values
  Spikes spikes = Spikes::own;
  Outside outside = Outside::nowhere;
  Number number = Number::own;
  bool loses_zero_sign = false;
  bool through_fp16 = false;  ///< elements before they are encoded
  bool through_bf16 = false;
  bool cuts_off_values = false;  ///< decoded ones
  bool other_overflow = false;   ///< clamped where they would become infinite, and the reverse
  bool integer_zero = false;     ///< a multiple of the scale
  bool top_unused = false;       ///< the highest code
  bool bottom_unused = false;    ///< the lowest code
  float scale_epsilon = 0;       ///< added to the scale
  float least_scale = 0;
  bool fused = false;           ///< code times scale plus zero is rounded once
  bool rounds_product = false;  ///< to the payload's dtype, before the zero is added
  bool last_unwritten = false;  ///< in a block that is not full
  Unencoded unencoded = Unencoded::nothing;
};

/// Traits of families, as far as rows need them.
struct FamilyTraits {
  bool has_zero = false;
  bool has_levels = false;  ///< a divisor that counts them
  bool has_float_scale = false;
  Stored own_scale = Stored::fp32;
  bool has_exponent = false;
  bool has_quotient = false;  ///< which rounds
  bool has_spikes = false;
  bool has_integers = false;       ///< which are rounded by round_to_even()
  bool has_floats = false;         ///< as codes
  bool has_small_scale = false;    ///< in e4m3
  bool has_number = false;         ///< one for the message
  bool has_integer_scale = false;  ///< a step of logarithms
  bool has_signed_zero = false;
  bool is_quickreduce = false;
  bool is_logarithmic = false;
  bool is_transformed = false;  ///< so that mistakes.cc sees no element's code
  std::vector<float> tops = {};
  std::vector<float> leasts = {};
};

std::vector<Variation> rows_of(const FamilyTraits& t) {
  std::vector<Variation> rows = {
      {.name = "scales do not know the block's last element", .window = ScaleScope::without_last},
      {.name = "scales do not know the block's first element", .window = ScaleScope::without_first},
      {.name = "scales are of a window that begins one element late", .window = ScaleScope::one_on},
      {.name = "scales are of a window that begins one element early",
       .window = ScaleScope::one_back},
      {.name = "scales are of the block's first half", .window = ScaleScope::first_half},
      {.name = "scales are of the block's second half", .window = ScaleScope::last_half},
      {.name = "scales are of every second element", .window = ScaleScope::every_second},
      {.name = "scales are of the block behind", .window = ScaleScope::next_block},
      {.name = "all blocks have the scale of the whole message",
       .window = ScaleScope::whole_message},
      {.name = "a block that is not full has the scale of the block before",
       .window = ScaleScope::before_if_partial},
      {.name = "decoded values that overflow are treated another way (clamped, or infinite)",
       .other_overflow = true},
      {.name = "the last element of a block that is not full is not written",
       .last_unwritten = true},
      {.name = "values are rounded to bf16 before they are encoded", .through_bf16 = true},
      {.name = "values are rounded to fp16 before they are encoded", .through_fp16 = true},
      {.name = "decoded values are cut off to the payload's dtype (truncation)",
       .cuts_off_values = true},
      {.name = "the first block is not encoded", .unencoded = Unencoded::first_block},
      {.name = "the last block is not encoded", .unencoded = Unencoded::last_block},
      {.name = "the block that is not full is not encoded", .unencoded = Unencoded::partial_block},
      {.name = "the first wire chunk is not encoded", .unencoded = Unencoded::first_chunk},
      {.name = "the last wire chunk is not encoded", .unencoded = Unencoded::last_chunk},
  };
  for (const float sigmas : {2.0f, 2.5f, 3.0f, 3.5f, 4.0f}) {
    rows.push_back({.name = fmt::format("scales are of values that were clamped before (to {} "
                                        "standard deviations)",
                                        sigmas),
                    .window = ScaleScope::clamped,
                    .sigmas = sigmas});
  }
  const auto stored = [](Stored how) -> std::string {
    switch (how) {
      case Stored::fp16:
        return "stored in fp16";
      case Stored::bf16:
        return "stored in bf16";
      case Stored::fp32:
        return "stored in fp32, unrounded";
      case Stored::cut_off:
        return "cut off for the wire, not rounded (truncation)";
      case Stored::up:
        return "rounded up for the wire";
      case Stored::power_below:
        return "powers of two, rounded down";
      case Stored::power_nearest:
        return "powers of two, rounded to the nearest";
      case Stored::power_above:
        return "powers of two, rounded up";
      case Stored::own:
        break;
    }
    return {};
  };
  rows.push_back({.name = "codes are made with the unrounded scale", .exact_scale = true});
  rows.push_back(
      {.name = "codes are made with the scale of the wire, which is rounded", .wire_scale = true});
  if (t.has_zero) {
    rows.push_back(
        {.name = "zeros are multiples of the scale (an integer zero point)", .integer_zero = true});
    rows.push_back({.name = "codes are made with the unrounded zero", .exact_zero = true});
    rows.push_back({.name = "codes are made with the unrounded scale and zero",
                    .exact_scale = true,
                    .exact_zero = true});
    rows.push_back(
        {.name = "code times scale plus zero is rounded once (fused multiply-add)", .fused = true});
    rows.push_back({.name = "code times scale is rounded to the payload's dtype before the zero is "
                            "added",
                    .rounds_product = true});
  }
  if (t.has_float_scale) {
    for (const Stored how : {Stored::fp16, Stored::bf16, Stored::fp32, Stored::cut_off, Stored::up,
                             Stored::power_below, Stored::power_nearest, Stored::power_above}) {
      if (how == t.own_scale) continue;
      rows.push_back({.name = "scales are " + stored(how), .scale = how});
      if (t.has_zero && how < Stored::power_below) {
        rows.push_back({.name = "zeros are " + stored(how), .zero = how});
        rows.push_back({.name = "scales and zeros are " + stored(how), .scale = how, .zero = how});
      }
      if (how != Stored::fp32) {
        rows.push_back(
            {.name = fmt::format("scales are {}, and codes know the unrounded ones", stored(how)),
             .scale = how,
             .exact_scale = true});
      }
    }
  }
  if (t.has_levels) {
    rows.push_back({.name = "the range is divided by one level more (as 16 for 15, or 2^(b-1) for "
                            "2^(b-1)-1)",
                    .levels = 1});
    rows.push_back({.name = "the range is divided by one level less", .levels = -1});
    rows.push_back({.name = "codes beyond the last one wrap around", .wraps = true});
    if (!t.is_logarithmic) {
      rows.push_back({.name = "the highest code is not used", .top_unused = true});
      rows.push_back({.name = "the lowest code is not used", .bottom_unused = true});
    }
    if (!t.is_quickreduce && !t.is_logarithmic) {
      for (const float epsilon : {1e-12f, 1e-10f, 1e-8f, 1e-7f, 1e-6f, 1e-5f}) {
        rows.push_back(
            {.name = fmt::format("{:g} is added to scales", epsilon), .scale_epsilon = epsilon});
        rows.push_back(
            {.name = fmt::format("scales are at least {:g}", epsilon), .least_scale = epsilon});
      }
    }
  }
  for (const float top : t.tops) {
    rows.push_back({.name = fmt::format("the largest element becomes {}", top), .top = top});
  }
  for (const float least : t.leasts) {
    rows.push_back({.name = least == 0
                                ? "the least magnitude of a scale is not kept"
                                : fmt::format("the least magnitude of a scale is {:g}", least),
                    .least = least});
  }
  if (t.has_exponent) {
    for (const auto& [how, name] :
         {std::pair(Stored::fp32, "fp32"), std::pair(Stored::bf16, "bf16"),
          std::pair(Stored::fp16, "fp16")}) {
      rows.push_back(
          {.name = fmt::format("scales are {} numbers, not powers of two", name), .scale = how});
    }
    rows.push_back({.name = "shared exponents are one too large", .exponent = 1});
    rows.push_back({.name = "shared exponents are one too small", .exponent = -1});
  }
  if (t.has_quotient) {
    for (const auto& [quotient, name] :
         {std::pair(Quotient::divided,
                    "values are divided by the scale, not multiplied by its "
                    "reciprocal"),
          std::pair(Quotient::by_reciprocal,
                    "values are multiplied by the scale's reciprocal, not divided"),
          std::pair(Quotient::reciprocal_above,
                    "the scale's reciprocal is one unit in the last "
                    "place too large"),
          std::pair(Quotient::reciprocal_below,
                    "the scale's reciprocal is one unit in the last "
                    "place too small"),
          std::pair(Quotient::reciprocal_fp16, "the scale's reciprocal is rounded to fp16"),
          std::pair(Quotient::reciprocal_bf16, "the scale's reciprocal is rounded to bf16"),
          std::pair(Quotient::rounded_fp16,
                    "quotients are rounded to fp16 before they become codes"),
          std::pair(Quotient::rounded_bf16,
                    "quotients are rounded to bf16 before they become codes")}) {
      rows.push_back({.name = name, .quotient = quotient});
    }
  }
  if (t.has_signed_zero) {
    rows.push_back(
        {.name = "the sign of what is coded as 0 is lost (-0 becomes 0)", .loses_zero_sign = true});
  }
  if (t.has_spikes) {
    for (const auto& [spikes, name] :
         {std::pair(Spikes::index_above, "indices are one too high"),
          std::pair(Spikes::index_below, "indices are one too low"),
          std::pair(Spikes::minimum_index_above, "the minimum's index is one too high"),
          std::pair(Spikes::minimum_index_below, "the minimum's index is one too low"),
          std::pair(Spikes::maximum_index_above, "the maximum's index is one too high"),
          std::pair(Spikes::maximum_index_below, "the maximum's index is one too low")}) {
      for (const Outside outside : {Outside::nowhere, Outside::end, Outside::around}) {
        rows.push_back({.name = name, .spikes = spikes, .outside = outside});
      }
    }
    for (const auto& [spikes, name] :
         {std::pair(Spikes::exchanged, "minimum and maximum stand in each other's place"),
          std::pair(Spikes::in_scale, "the scale knows the minimum and maximum that are reserved"),
          std::pair(Spikes::minimum_in_scale, "the scale knows the minimum that is reserved"),
          std::pair(Spikes::maximum_in_scale, "the scale knows the maximum that is reserved"),
          std::pair(Spikes::mean_instead,
                    "minimum and maximum are replaced by the mean of the block, not by 0"),
          std::pair(Spikes::last_found, "of equal extremes the last is reserved, not the first"),
          std::pair(Spikes::not_put_back, "minimum and maximum are not put back"),
          std::pair(Spikes::minimum_not_put_back, "the minimum is not put back"),
          std::pair(Spikes::maximum_not_put_back, "the maximum is not put back"),
          std::pair(Spikes::minimum_last, "the minimum is put back after the maximum")}) {
      rows.push_back({.name = name, .spikes = spikes});
    }
  }
  if (t.has_integer_scale) {
    rows.push_back({.name = "integer scales are one too large", .exponent = 1});
    rows.push_back({.name = "integer scales are one too small", .exponent = -1});
    rows.push_back({.name = "integer scales are rounded to the nearest, not down",
                    .scale = Stored::power_nearest});
    rows.push_back({.name = "integer scales are rounded up", .scale = Stored::power_above});
    rows.push_back({.name = "integer scales are of a scale that was not rounded to bf16 before",
                    .exact_scale = true});
    rows.push_back({.name = "the range is divided by one level more (as 16 for 15, or 2^(b-1) for "
                            "2^(b-1)-1)",
                    .levels = 1});
  }
  if (t.has_number) {
    for (const auto& [number, name] :
         {std::pair(Number::one, "the message's scale is 1"),
          std::pair(Number::of_256, "the message's scale is made for block scales up to 256"),
          std::pair(Number::of_1, "the message's scale is made for block scales up to 1"),
          std::pair(Number::of_6, "the message's scale does not know the largest element, 6")}) {
      rows.push_back({.name = name, .number = number});
    }
  }
  if (t.has_small_scale) {
    for (const Stored how : {Stored::cut_off, Stored::up, Stored::fp32, Stored::power_below,
                             Stored::power_nearest, Stored::power_above}) {
      rows.push_back({.name = "scales are " + stored(how), .scale = how});
      if (how == Stored::fp32) continue;
      rows.push_back(
          {.name = fmt::format("scales are {}, and codes know the unrounded ones", stored(how)),
           .scale = how,
           .exact_scale = true});
    }
  }
  if (t.has_integers || t.has_floats) {
    for (const auto& [rounded, name] :
         {std::pair(Rounded::down, "codes are rounded down (floor)"),
          std::pair(Rounded::away, "codes are rounded away from zero"),
          std::pair(Rounded::half_toward_zero, "ties are rounded half toward zero"),
          std::pair(Rounded::toward_zero, "codes are cut off toward zero (truncation)"),
          std::pair(Rounded::up, "codes are rounded up"),
          std::pair(Rounded::half_up,
                    "ties are rounded up (as half away from zero does with codes from 0 on)"),
          std::pair(Rounded::half_away, "ties are rounded half away from zero")}) {
      rows.push_back({.name = name, .rounded = rounded});
    }
  }
  if (t.is_quickreduce) {
    rows.push_back({.name = "no epsilon is added to the scale", .epsilon = false});
    rows.push_back({.name = "scales have no sign", .positive = true});
    rows.push_back({.name = "scales have no sign", .negative = true});
    rows.push_back({.name = "of extremes as large as each other the positive one gives the scale",
                    .tie_is_high = true});
    rows.push_back(
        {.name = "blocks are consecutive elements, not interleaved", .consecutive = true});
    rows.push_back({.name = "quotients are not rounded to the payload's dtype",
                    .quotient = Quotient::unrounded});
  }
  if (t.is_logarithmic) {
    rows.push_back(
        {.name = "codes are the nearest by logarithm, not by value", .log_nearest = true});
  }
  return rows;
}

// ---------------------------------------------------------------- numbers

float power_of_two(float x, Stored how) {
  if (!(x > 0) || !std::isfinite(x)) return x;
  int exponent = 0;
  const float mantissa = std::frexp(x, &exponent);  // from 0.5 to below 1
  if (mantissa == 0.5f) return x;
  const bool above =
      how == Stored::power_above || (how == Stored::power_nearest && mantissa >= 0.70710678f);
  return std::ldexp(1.0f, above ? exponent : exponent - 1);
}

/// `rounded` is x to the nearest of a 16-bit dtype; the neighbour toward zero, or away from it, if it lies on the other side.
float beside(float x, float rounded, bool up, bool is_bf16) {
  if (rounded == x || !std::isfinite(rounded)) return rounded;
  if ((std::abs(rounded) > std::abs(x)) == up) return rounded;
  if (is_bf16) {
    const std::uint16_t bits = Bf16Arithmetic::from_float(rounded);
    return bfloat16_to_float(static_cast<std::uint16_t>(up ? bits + 1 : bits - 1));
  }
  const std::uint16_t bits = Fp16Arithmetic::from_float(rounded);
  return half_to_float(static_cast<std::uint16_t>(up ? bits + 1 : bits - 1));
}
float to_bf16(float x) { return bfloat16_to_float(Bf16Arithmetic::from_float(x)); }
float to_fp16(float x) { return half_to_float(Fp16Arithmetic::from_float(x)); }

/// As it would be stored; `own` is the codec's own rounding, of which 16-bit formats have neighbours.
float stored_as(Stored how, float x, float own, bool is_bf16) {
  switch (how) {
    case Stored::own:
      return own;
    case Stored::fp16:
      return to_fp16(x);
    case Stored::bf16:
      return to_bf16(x);
    case Stored::fp32:
      return x;
    case Stored::cut_off:
    case Stored::up:
      return beside(x, own, how == Stored::up, is_bf16);
    default:
      return power_of_two(x, how);
  }
}

float rounded_as(Rounded how, float q) {
  switch (how) {
    case Rounded::even:
      break;
    case Rounded::toward_zero:
      return std::trunc(q);
    case Rounded::away:
      return q < 0 ? std::floor(q) : std::ceil(q);
    case Rounded::half_toward_zero:
      return q < 0 ? std::floor(q + 0.5f) : std::ceil(q - 0.5f);
    case Rounded::down:
      return std::floor(q);
    case Rounded::up:
      return std::ceil(q);
    case Rounded::half_up:
      return std::floor(q + 0.5f);
    case Rounded::half_away:
      return std::round(q);
  }
  return round_to_even(q);
}

/// The code of a small floating-point format for x, which is not rounded to the nearest even one.
std::uint32_t code_as(Rounded how, const Minifloat& format, float x) {
  const std::uint32_t nearest = minifloat_code(format, x).bits;
  const std::uint32_t sign = nearest & format.sign_bit();
  const std::uint32_t magnitude = nearest ^ sign;
  const float size = std::abs(x);
  const float value = minifloat_to_float(format, magnitude);
  if (how == Rounded::even || value == size || !std::isfinite(x)) return nearest;
  const std::uint32_t below = value > size ? magnitude - 1 : magnitude;
  const std::uint32_t above = std::min(below + 1, format.max_finite());
  const float under = size - minifloat_to_float(format, below);
  const float over = minifloat_to_float(format, above) - size;
  const bool is_negative = std::signbit(x);
  switch (how) {
    case Rounded::even:
      break;
    case Rounded::toward_zero:
      return sign | below;
    case Rounded::away:
      return sign | above;
    case Rounded::down:
      return sign | (is_negative ? above : below);
    case Rounded::up:
      return sign | (is_negative ? below : above);
    case Rounded::half_away:
      return sign | (under < over ? below : above);
    case Rounded::half_up:
      return sign | (under < over || (under == over && is_negative) ? below : above);
    case Rounded::half_toward_zero:
      return sign | (over < under ? above : below);
  }
  return nearest;
}

/// x >= 0 as a scale in e4m3.
float small_scale(Stored how, float x) {
  const float nearest =
      minifloat_to_float(kE4m3fn, minifloat_from_float(kE4m3fn, x, Overflow::saturate));
  switch (how) {
    case Stored::fp32:
      return x;
    case Stored::cut_off:
      return minifloat_to_float(kE4m3fn, code_as(Rounded::toward_zero, kE4m3fn, x));
    case Stored::up:
      return minifloat_to_float(kE4m3fn, code_as(Rounded::away, kE4m3fn, x));
    case Stored::power_below:
    case Stored::power_nearest:
    case Stored::power_above:
      return std::min(power_of_two(x, how), 256.0f);
    default:
      return nearest;
  }
}

/// x by the scale, whose reciprocal the codec would multiply with (`factor`).
float quotient_of(Quotient how, float x, float scale, float factor) {
  switch (how) {
    case Quotient::divided:
      return x / scale;
    case Quotient::by_reciprocal:
      return x * (1.0f / scale);
    case Quotient::reciprocal_above:
      return x * std::nextafter(factor, std::copysign(kMostFloat, factor));
    case Quotient::reciprocal_below:
      return x * std::nextafter(factor, 0.0f);
    case Quotient::reciprocal_fp16:
      return x * to_fp16(factor);
    case Quotient::reciprocal_bf16:
      return x * to_bf16(factor);
    case Quotient::rounded_fp16:
      return to_fp16(x * factor);
    case Quotient::rounded_bf16:
      return to_bf16(x * factor);
    case Quotient::own:
    case Quotient::unrounded:
      break;
  }
  return x * factor;
}

// ---------------------------------------------------------------- families

/// Metadata of one block beside its codes.
struct Fields {
  float scale = 0;  ///< as the decoder uses it
  float zero = 0;
  float used_scale = 0;  ///< by codes
  float used_zero = 0;
  float factor = 0;  ///< 0: every code is 0
  float number = 0;  ///< the message's
  float minimum = 0;
  float maximum = 0;
  std::uint32_t minimum_index = 0;
  std::uint32_t maximum_index = 0;
  bool broken = false;  ///< decoded to NaN
};

class Steps {
 public:
  virtual ~Steps() = default;
  virtual FamilyTraits traits() const = 0;
  virtual std::size_t block_of(std::size_t elements) const = 0;
  /// Elements that a block is filled up to with zeros, of which codes are made; 0: none.
  virtual std::size_t filled() const { return 0; }
  virtual std::size_t index_of(const Variation&, std::size_t block, std::size_t size,
                               std::size_t i) const {
    return block * size + i;
  }
  virtual void transform(std::span<float> /*block*/) const {}
  virtual float number_of(const Variation& /*v*/, const Values& /*all*/) const { return 0; }
  /// Returns the metadata for a block's elements, which may be changed, and for those that its scale covers.
  virtual Fields fields_of(const Variation& v, DType dtype, Values& x, const Values& statistics,
                           float number) const = 0;
  virtual std::uint32_t code_of(const Variation& v, DType dtype, float x,
                                const Fields& f) const = 0;
  virtual float value_of(const Variation& v, DType dtype, std::uint32_t code,
                         const Fields& f) const = 0;
  virtual bool saturates(DType, const Fields&) const { return false; }
};

bool all_finite(const Values& x) {
  return std::ranges::all_of(x, [](float v) { return std::isfinite(v); });
}
float largest_of(const Values& x) {
  float largest = 0;
  for (const float v : x) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  return largest;
}

class AnyBitSteps final : public Steps {
 public:
  explicit AnyBitSteps(AnyBitFormat format)
      : format_(std::move(format)),
        codes_{format_.bits, format_.symmetric,
               format_.metadata == AnyBitFormat::Metadata::integer_spikes} {}

  FamilyTraits traits() const override {
    const bool is_measured = !format_.given && !codes_.integer_scales;
    return {.has_zero = is_measured && !format_.symmetric,
            .has_levels = is_measured,
            .has_float_scale = is_measured,
            .own_scale = Stored::bf16,
            .has_quotient = !codes_.integer_scales,
            .has_spikes = has_spikes(),
            .has_integers = true,
            .has_integer_scale = codes_.integer_scales,
            .is_transformed = format_.hadamard};
  }
  std::size_t block_of(std::size_t elements) const override {
    const std::size_t block = anybit_block(format_);
    return block == kWholeTensor ? elements : block;
  }
  std::size_t filled() const override { return format_.hadamard ? format_.group : 0; }
  void transform(std::span<float> block) const override {
    if (format_.hadamard) hadamard(block);
  }
  bool saturates(DType, const Fields&) const override { return true; }

  Fields fields_of(const Variation& v, DType, Values& x, const Values& statistics,
                   float) const override {
    Fields f;
    f.broken = !all_finite(x);
    if (f.broken) return f;
    Values of = statistics;
    if (has_spikes()) {
      const auto index = [&](auto found) { return static_cast<std::uint32_t>(found - x.begin()); };
      f.minimum_index = index(std::ranges::min_element(x));
      f.maximum_index = index(std::ranges::max_element(x));
      if (v.spikes == Spikes::last_found) {
        const auto last = [&](float value) {
          return static_cast<std::uint32_t>(x.rend() - std::find(x.rbegin(), x.rend(), value) - 1);
        };
        f.minimum_index = last(x[f.minimum_index]);
        f.maximum_index = last(x[f.maximum_index]);
      }
      f.minimum = x[f.minimum_index];
      f.maximum = x[f.maximum_index];
      Values without = x;
      float instead = 0;
      if (v.spikes == Spikes::mean_instead) {
        instead = std::accumulate(x.begin(), x.end(), 0.0f) / static_cast<float>(x.size());
      }
      without[f.minimum_index] = without[f.maximum_index] = instead;
      if (v.window == ScaleScope::own) {
        of = v.spikes == Spikes::in_scale ? x : without;
        if (v.spikes == Spikes::minimum_in_scale) of[f.minimum_index] = f.minimum;
        if (v.spikes == Spikes::maximum_in_scale) of[f.maximum_index] = f.maximum;
      }
      x = without;
      if (v.spikes == Spikes::exchanged) std::swap(f.minimum, f.maximum);
      move_index(v, f.minimum_index, x.size(),
                 (v.spikes == Spikes::index_above || v.spikes == Spikes::minimum_index_above) -
                     (v.spikes == Spikes::index_below || v.spikes == Spikes::minimum_index_below));
      move_index(v, f.maximum_index, x.size(),
                 (v.spikes == Spikes::index_above || v.spikes == Spikes::maximum_index_above) -
                     (v.spikes == Spikes::index_below || v.spikes == Spikes::maximum_index_below));
    }
    const auto [low, high] = std::ranges::minmax_element(of);
    if (of.empty() || !std::isfinite(*low) || !std::isfinite(*high)) {
      f.broken = true;
      return f;
    }
    set_scale(v, *low, *high, f);
    f.broken = !std::isfinite(f.scale) || !std::isfinite(f.zero);
    return f;
  }

  std::uint32_t code_of(const Variation& v, DType, float x, const Fields& f) const override {
    float q = 0;
    if (codes_.integer_scales) {
      q = rounded_as(v.rounded, x / f.used_scale) + f.used_zero;
    } else if (v.integer_zero) {
      if (f.factor <= kMostFloat) q = round_to_even(x * f.factor) + f.used_zero;
    } else if (f.factor <= kMostFloat) {
      q = rounded_as(v.rounded, quotient_of(v.quotient, x - f.used_zero, f.used_scale, f.factor));
    }
    const float code = q + codes_.bias();
    if (v.wraps && std::abs(code) < 0x1p22f) {
      return static_cast<std::uint32_t>(static_cast<int>(code)) &
             static_cast<std::uint32_t>(codes_.top());
    }
    const float top = codes_.top() - (v.top_unused ? 1.0f : 0.0f);
    const float bottom = v.bottom_unused ? 1.0f : 0.0f;
    return static_cast<std::uint32_t>(std::clamp(std::isnan(code) ? bottom : code, bottom, top));
  }

  float value_of(const Variation& v, DType dtype, std::uint32_t code,
                 const Fields& f) const override {
    if (v.integer_zero) return (static_cast<float>(code) - f.zero) * f.scale;
    if (v.fused) return std::fma(static_cast<float>(code), f.scale, f.zero);
    if (v.rounds_product) {
      const float product = static_cast<float>(code) * f.scale;
      return f.zero + (dtype == DType::bf16   ? to_bf16(product)
                       : dtype == DType::fp16 ? to_fp16(product)
                                              : product);
    }
    return codes_.dequantize(code, {.value = f.scale, .zero = f.zero});
  }
  bool has_spikes() const { return format_.metadata != AnyBitFormat::Metadata::scales; }

 private:
  static void move_index(const Variation& v, std::uint32_t& index, std::size_t size, int by) {
    const auto last = static_cast<std::uint32_t>(size - 1);
    const bool leaves = (by > 0 && index == last) || (by < 0 && index == 0);
    if (!leaves || v.outside == Outside::nowhere) {
      index += static_cast<std::uint32_t>(by);
    } else if (v.outside == Outside::around) {
      index = last - index;
    }
  }

  void set_scale(const Variation& v, float low, float high, Fields& f) const {
    if (format_.given) {
      f.scale = format_.given->scale;
      f.zero = format_.given->zero;
    } else if (codes_.integer_scales) {
      set_integer_scale(v, low, high, f);
    } else {
      const float largest = std::max(std::abs(low), std::abs(high));
      const float middle = static_cast<float>(1U << (format_.bits - 1)) - 1;
      float exact = format_.symmetric ? largest / (middle + v.levels)
                                      : (high - low) / (codes_.top() + v.levels);
      exact = std::max(exact + v.scale_epsilon, v.least_scale);
      f.scale = stored_as(v.scale, exact, to_bf16(exact), true) + 0.0f;
      if (!format_.symmetric) f.zero = stored_as(v.zero, low, to_bf16(low), true) + 0.0f;
      f.used_scale = v.exact_scale ? exact : f.scale;
      f.used_zero = format_.symmetric ? 0.0f : v.exact_zero ? low : f.zero;
      f.factor = 1.0f / f.used_scale;
      if (v.integer_zero && f.factor <= kMostFloat) {
        f.zero = round_to_even(-low * f.factor);
        f.used_zero = f.zero;
      } else if (v.integer_zero) {
        f.zero = f.used_zero = 0;
      }
      return;
    }
    f.used_scale = f.scale;
    f.used_zero = format_.symmetric ? 0.0f : f.zero;
    f.factor = 1.0f / f.scale;
  }

  void set_integer_scale(const Variation& v, float low, float high, Fields& f) const {
    const float range = (high - low) / (codes_.top() + v.levels);
    const float wanted = v.exact_scale ? range : to_bf16(range);
    if (!(wanted <= kMostFloat)) {
      f.scale = wanted;
      return;
    }
    int step = integer_scale(wanted) + v.exponent;
    if (v.scale == Stored::power_nearest && wanted > 0) {
      step = static_cast<int>(std::lround(10 * std::log2(static_cast<double>(wanted))));
    } else if (v.scale == Stored::power_above &&
               scale_of(static_cast<std::int8_t>(step)) < wanted) {
      ++step;
    }
    f.scale = scale_of(static_cast<std::int8_t>(std::clamp(step, -128, 127)));
    f.zero = std::clamp(round_to_even(-low / f.scale), -128.0f, 127.0f);
  }

  AnyBitFormat format_;
  AnyBitCodes codes_;
};

template <class Format>
constexpr bool kIsFp8 = false;
template <std::size_t n>
constexpr bool kIsFp8<Fp8Blocks<n>> = true;
template <class Format>
constexpr bool kIsCodebook = false;
template <std::size_t n>
constexpr bool kIsCodebook<Codebook<n>> = true;

template <class Format>
class ScaledSteps final : public Steps {
 public:
  /// NVFP4's number may be the message's.
  explicit ScaledSteps(Format format, bool has_number = false)
      : format_(format), has_number_(has_number) {}

  FamilyTraits traits() const override {
    FamilyTraits t;
    t.has_float_scale = std::same_as<typename Format::Scale, float>;
    t.has_exponent = kHasExponent;
    t.has_signed_zero = !kIsCodebook<Format> && !std::same_as<Format, MxInt8>;
    t.has_quotient = !kHasExponent;
    t.has_integers = std::same_as<Format, MxInt8>;
    t.has_floats = !kIsCodebook<Format> && !std::same_as<Format, MxInt8>;
    t.has_small_scale = std::same_as<Format, NvFp4Blocks>;
    t.has_number = has_number_;
    if constexpr (kIsFp8<Format>) {
      t.tops = {240, 256, 447, 480};
      t.leasts = {0, 1e-12f, 1e-10f, 1e-8f, 1e-6f, 1e-5f};
    }
    if constexpr (std::same_as<Format, NvFp4Blocks>) t.tops = {4, 7, 8};
    return t;
  }
  std::size_t block_of(std::size_t) const override { return Format::kBlock; }
  float number_of(const Values& all) const {
    if constexpr (std::same_as<Format, NvFp4Blocks>) {
      return has_number_ ? format_.number_of(largest_of(all)) : format_.number;
    }
    return 0;
  }
  float number_of(const Variation& v, const Values& all) const override {
    const float number = number_of(all);
    // In -te formats it is the largest magnitude, and g is its reciprocal.
    const bool is_largest = number != 1 && number == largest_of(all);
    const auto times = [&](float factor) { return is_largest ? number / factor : number * factor; };
    switch (v.number) {
      case Number::own:
        break;
      case Number::one:
        return is_largest ? kNvFp4Range : 1.0f;
      case Number::of_256:
        return times(256.0f / 448);
      case Number::of_1:
        return times(1.0f / 448);
      case Number::of_6:
        return times(1.0f / 6);
    }
    return number;
  }

  Fields fields_of(const Variation& v, DType, Values& x, const Values& statistics,
                   float number) const override {
    Fields f;
    f.number = number;
    f.broken = !all_finite(x);
    if (f.broken) return f;
    const float largest = largest_of(statistics);
    const Format format = of(number);
    ScaledBlock<typename Format::Scale> block;
    if constexpr (kIsFp8<Format>) {
      const float least = v.least < 0 ? 1e-4f : v.least;
      const float bounded = largest > least ? largest : least;
      const float top = v.top == 0 ? 448.0f : v.top;
      block = format.torch ? ScaledBlock<float>{bounded / top, 1.0f / bounded * top}
                           : ScaledBlock<float>{bounded * (1.0f / top), top / bounded};
    } else {
      const float as_large = v.top == 0 ? largest : largest * (6.0f / v.top);
      if constexpr (requires { format.scale_of_block(as_large, std::span<const float>(x)); }) {
        block = format.scale_of_block(as_large, x);
      } else {
        block = format.scale_of(as_large);
      }
    }
    if constexpr (kHasExponent) {
      if (v.exponent != 0 && block.factor != 0) {
        block.scale = static_cast<std::uint8_t>(std::clamp(block.scale + v.exponent, 0, 254));
        block.factor = e8m0_reciprocal(block.scale);
      }
    }
    if constexpr (std::same_as<typename Format::Scale, float>) {
      if (v.scale != Stored::own && block.factor != 0) {
        // An fp32 number has no neighbours that a cut would leave: those of bf16 are meant.
        block.scale = stored_as(v.scale, block.scale, to_bf16(block.scale), true);
        if (!v.exact_scale) block.factor = 1.0f / block.scale;
        if (!(std::abs(block.factor) <= kMostFloat)) block.factor = 0;
      }
      if (v.wire_scale && block.factor != 0) block.factor = 1.0f / block.scale;
    }
    if constexpr (std::same_as<Format, NvFp4Blocks>) {
      if (v.exact_scale && block.scale != 0 && format.rounding == NvFp4Rounding::nvidia) {
        block.factor = number / (number * largest / 6.0f);
      }
    }
    f.scale = static_cast<float>(block.scale);
    f.factor = block.factor;
    if (takes_small_scale(v)) {
      if constexpr (std::same_as<Format, NvFp4Blocks>) set_small_scale(v, largest, number, f);
      return f;
    }
    if (takes_float_scale(v) && block.factor != 0) {
      f.scale = stored_as(v.scale, largest / largest_value(), 0, true);
      f.factor = 1.0f / f.scale;
      if (!(f.factor <= kMostFloat)) f.factor = 0;
      return f;
    }
    f.used_scale = 1.0f / block.factor;
    if constexpr (std::same_as<typename Format::Scale, float>) f.used_scale = block.scale;
    return f;
  }

  std::uint32_t code_of(const Variation& v, DType, float x, const Fields& f) const override {
    if (f.factor == 0) return 0;
    const Format format = of(f.number);
    if (takes_float_scale(v) || takes_small_scale(v)) return format.quantize(x, f.factor).bits;
    if (v.rounded != Rounded::even) return rounded_code(v.rounded, x * f.factor);
    std::uint32_t code =
        v.quotient == Quotient::own
            ? format.quantize(x, f.factor).bits
            : format.quantize(quotient_of(v.quotient, x, f.used_scale, f.factor), 1.0f).bits;
    const auto scale = static_cast<typename Format::Scale>(f.scale);
    if (v.loses_zero_sign && format.dequantize(code, scale) == 0) code = 0;
    return code;
  }
  float value_of(const Variation& v, DType, std::uint32_t code, const Fields& f) const override {
    if (takes_float_scale(v)) {
      if (f.factor == 0) return 0;
      return of(f.number).dequantize(code, static_cast<typename Format::Scale>(kE8m0One)) * f.scale;
    }
    if constexpr (std::same_as<Format, NvFp4Blocks>) {
      if (takes_small_scale(v)) {
        return minifloat_to_float(kE2m1, code) * of(f.number).whole_scale(f.scale);
      }
    }
    return of(f.number).dequantize(code, static_cast<typename Format::Scale>(f.scale));
  }

 private:
  std::uint32_t rounded_code(Rounded how, float x) const {
    if constexpr (std::same_as<Format, NvFp4Blocks>) {
      return code_as(how, kE2m1, x);
    } else if constexpr (std::same_as<Format, MxInt8>) {
      const float most = MxInt8::kLargestInteger;
      const float q = rounded_as(how, x * MxInt8::kIntegersPerUnit);
      return static_cast<std::uint32_t>(static_cast<int>(std::clamp(q, -most, most))) & 0xFF;
    } else if constexpr (kIsCodebook<Format>) {
      return format_.quantize(x, 1.0f).bits;
    } else {
      return code_as(how, format_.element(), x);
    }
  }

  /// Where a block's scale is in e4m3, rounded another way. `scale` is its value then, not its code.
  static bool takes_small_scale(const Variation& v) {
    return std::same_as<Format, NvFp4Blocks> && v.scale != Stored::own;
  }
  void set_small_scale(const Variation& v, float largest, float number, Fields& f) const {
    // As nvidia does it; other roundings differ in last bits, which a scale in e4m3 seldom knows.
    const float g =
        format_.rounding == NvFp4Rounding::nvidia || format_.rounding == NvFp4Rounding::vllm
            ? number
            : kNvFp4Range / number;
    const float exact = g * largest / 6.0f;
    f.scale = small_scale(v.scale, exact);
    const float used = v.exact_scale ? exact : f.scale;
    f.factor = used == 0 ? 0 : g / used;
  }

  static constexpr bool kHasExponent =
      std::same_as<typename Format::Scale, std::uint8_t> && !std::same_as<Format, NvFp4Blocks>;
  static constexpr int kE8m0One = 127;

  /// Where a shared exponent would stand.
  static bool takes_float_scale(const Variation& v) {
    return kHasExponent && v.scale != Stored::own;
  }
  float largest_value() const {
    if constexpr (MinifloatFormat<Format>) {
      return minifloat_to_float(format_.element(), format_.element().max_finite());
    }
    return 127.0f / 64;
  }

  Format of(float number) const {
    Format format = format_;
    if constexpr (std::same_as<Format, NvFp4Blocks>) format.number = number;
    return format;
  }

  Format format_;
  bool has_number_;
};

class LogSteps final : public Steps {
 public:
  explicit LogSteps(LogFmtName name) : codes_{name.bits}, group_(name.group) {}

  FamilyTraits traits() const override {
    return {.has_zero = false,
            .has_levels = codes_.bits > 2,
            .has_float_scale = true,
            .own_scale = Stored::fp16,
            .is_logarithmic = true};
  }
  std::size_t block_of(std::size_t) const override { return group_; }

  /// `zero` is lo, `scale` the step.
  Fields fields_of(const Variation& v, DType, Values& x, const Values& statistics,
                   float) const override {
    Fields f;
    f.broken = !all_finite(x);
    if (f.broken) return f;
    const float largest = largest_of(statistics);
    float smallest = std::numeric_limits<float>::infinity();
    for (const float each : statistics) {
      if (each != 0) smallest = std::min(smallest, std::abs(each));
    }
    if (largest == 0) return f;
    const float hi = log2_fp32(largest);
    float lo = hi;
    float step = 0;
    if (codes_.bits > 2) {
      const float least = log2_fp32(smallest);
      lo = least < hi - 32.0f ? hi - 32.0f : least;
      step = (hi - lo) / (static_cast<float>(codes_.sign_bit() - 2) + v.levels);
    }
    f.zero = stored_as(v.scale, lo, to_fp16(lo), false);
    f.scale = stored_as(v.scale, step, to_fp16(step), false);
    f.used_zero = v.exact_scale ? lo : f.zero;
    f.used_scale = v.exact_scale ? step : f.scale;
    f.factor = 1;
    return f;
  }
  std::uint32_t code_of(const Variation& v, DType, float x, const Fields& f) const override {
    if (f.factor == 0) return 0;
    LogValues values;
    values.lo = f.used_zero;
    values.step = f.used_scale;
    if (v.log_nearest && x != 0 && f.used_scale != 0) {
      const float k = round_to_even((log2_fp32(std::abs(x)) - values.lo) / values.step) + 1;
      const auto most = static_cast<float>(codes_.sign_bit() - 1);
      const auto code = static_cast<std::uint32_t>(std::clamp(k, 0.0f, most));
      return code != 0 && x < 0 ? code | codes_.sign_bit() : code;
    }
    return codes_.quantize(x, values);
  }
  float value_of(const Variation&, DType dtype, std::uint32_t code,
                 const Fields& f) const override {
    if (f.factor == 0 && code == 0) return 0;
    LogValues values;
    values.lo = f.zero;
    values.step = f.scale;
    return codes_.dequantize(code, values, largest_finite(dtype));
  }

 private:
  LogCodes codes_;
  std::size_t group_;
};

template <class Code>
class QuickReduceSteps final : public Steps {
 public:
  /// Takes half as many as there are codes, for integers.
  explicit QuickReduceSteps(int integers) : integers_(integers) {}

  FamilyTraits traits() const override {
    return {.has_levels = integers_ != 0,
            .has_float_scale = true,
            .has_quotient = true,
            .is_quickreduce = true};
  }
  std::size_t block_of(std::size_t) const override { return kBlock; }
  std::size_t filled() const override { return kBlock; }
  std::size_t index_of(const Variation& v, std::size_t block, std::size_t size,
                       std::size_t i) const override {
    return v.consecutive ? block * size + i : block / 2 * 2 * size + block % 2 + 2 * i;
  }

  Fields fields_of(const Variation& v, DType dtype, Values& x, const Values& statistics,
                   float) const override {
    Fields f;
    f.broken = !all_finite(x);
    if (f.broken || statistics.empty()) return f;
    const auto [low, high] = std::ranges::minmax_element(statistics);
    const bool is_high =
        v.tie_is_high ? std::abs(*high) >= std::abs(*low) : std::abs(*high) > std::abs(*low);
    float extreme = is_high ? *high : *low;
    if (!Code::kSignedScale || v.positive || v.negative) extreme = std::abs(extreme);
    float multiple = Code::kScale;
    if (integers_ != 0) multiple = -1.0f / (static_cast<float>(integers_) + v.levels);
    if (v.positive) multiple = std::abs(multiple);
    const float exact = extreme * rounded(dtype, multiple);
    f.scale = stored_as(v.scale, exact, rounded(dtype, exact), dtype == DType::bf16);
    f.used_scale = v.exact_scale ? exact : f.scale;
    const float epsilon = dtype == DType::bf16 ? bfloat16_to_float(kQuickReduceEpsilonBf16)
                                               : half_to_float(kQuickReduceEpsilonFp16);
    if (v.epsilon) f.used_scale = rounded(dtype, f.used_scale + epsilon);
    f.factor = reciprocal(dtype, f.used_scale);
    return f;
  }
  std::uint32_t code_of(const Variation& v, DType dtype, float x, const Fields& f) const override {
    float w = 0;
    if (v.quotient == Quotient::reciprocal_above || v.quotient == Quotient::reciprocal_below) {
      // Units of the payload's dtype.
      const bool above = v.quotient == Quotient::reciprocal_above;
      w = x * beside(std::nextafter(f.factor, above ? 2 * f.factor : 0.0f), f.factor, above,
                     dtype == DType::bf16);
    } else {
      w = quotient_of(v.quotient, x, f.used_scale, f.factor);
    }
    const std::uint32_t code =
        Code::encode(v.quotient == Quotient::unrounded ? w : rounded(dtype, w)).bits;
    if (v.bottom_unused) return std::max(code, 1U);
    if (v.top_unused) return std::min(code, 2 * static_cast<std::uint32_t>(integers_) - 2);
    return code;
  }
  float value_of(const Variation&, DType, std::uint32_t code, const Fields& f) const override {
    return Code::decode(code) * f.scale;
  }
  bool saturates(DType dtype, const Fields&) const override { return dtype == DType::fp16; }

 private:
  static constexpr std::size_t kBlock = 32;
  static float rounded(DType dtype, float x) {
    return dtype == DType::bf16 ? to_bf16(x) : half_to_float(Fp16Arithmetic::from_float_clamped(x));
  }
  static float reciprocal(DType dtype, float x) {
    if (x != 0) return rounded(dtype, 1.0f / x);
    return std::copysign(dtype == DType::bf16 ? std::numeric_limits<float>::infinity() : 65504.0f,
                         x);
  }
  int integers_;
};

std::unique_ptr<Steps> steps_of(const std::string& name) {
  if (const auto format = parse_anybit(name)) {
    if (format->stochastic) return nullptr;
    return std::make_unique<AnyBitSteps>(*format);
  }
  if (const auto format = Mx::parse(name)) return std::make_unique<ScaledSteps<Mx>>(*format);
  if (const auto format = parse_nvfp4(name); format && !format->tensor_scale) {
    return std::make_unique<ScaledSteps<NvFp4Blocks>>(NvFp4Blocks{.rounding = format->rounding},
                                                      true);
  }
  if (const auto format = parse_logfmt(name)) return std::make_unique<LogSteps>(*format);
  if (name == "qr-q3") return std::make_unique<QuickReduceSteps<QuickReduceIntegers<4>>>(4);
  if (name == "qr-q4") return std::make_unique<QuickReduceSteps<QuickReduceIntegers<8>>>(8);
  if (name == "qr-q6") return std::make_unique<QuickReduceSteps<QuickReduceIntegers<32>>>(32);
  if (name == "qr-q8") return std::make_unique<QuickReduceSteps<QuickReduceIntegers<128>>>(128);
  if (name == "qr-fp8") return std::make_unique<QuickReduceSteps<QuickReduceFp8>>(0);
  if (name == "qr-fp4") return std::make_unique<QuickReduceSteps<QuickReduceFp4>>(0);
  std::unique_ptr<Steps> steps;
  for_each_format(ScaledFormats(), [&]<class Format>() {
    const std::optional<Format> format = Format::parse(name);
    if (!format) return;
    if constexpr (requires { format->stochastic; }) {
      if (format->stochastic) return;
    }
    steps = std::make_unique<ScaledSteps<Format>>(*format);
  });
  return steps;
}

// ---------------------------------------------------------------- a codec of them

/// Its wire: fields of every block, a byte per code, and what is not encoded.
class VariedCodec final : public Codec {
 public:
  VariedCodec(const CodecPtr& codec, Variation variation, std::shared_ptr<const Steps> steps)
      : Codec(info_with(*codec, variation.name)),
        variation_(std::move(variation)),
        steps_(std::move(steps)) {}

 private:
  struct Shape {
    std::size_t block, blocks, coded;
  };
  Shape shape_of(std::size_t elements) const {
    Shape shape{steps_->block_of(elements), 0, elements};
    shape.blocks = (elements + shape.block - 1) / shape.block;
    if (steps_->filled() != 0) {
      // Interleaved blocks come in pairs.
      shape.blocks = (shape.blocks + 1) / 2 * 2;
      shape.coded = shape.blocks * shape.block;
    }
    return shape;
  }
  bool keeps() const { return variation_.unencoded != Unencoded::nothing; }

  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    const Shape shape = shape_of(elements);
    return shape.blocks * sizeof(Fields) + shape.coded + (keeps() ? elements * sizeof(float) : 0);
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts&) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const Shape shape = shape_of(elements);
    Values all(shape.coded);
    for (std::size_t i = 0; i < elements; ++i) {
      all[i] = load_value(dtype, payload, i);
      if (variation_.through_bf16) all[i] = to_bf16(all[i]);
      if (variation_.through_fp16) all[i] = to_fp16(all[i]);
    }
    if (keeps()) {
      std::memcpy(&wire[shape.blocks * sizeof(Fields) + shape.coded], all.data(),
                  elements * sizeof(float));
    }
    for (std::size_t b = 0; b < shape.blocks && steps_->filled() != 0; ++b) {
      steps_->transform(std::span(all).subspan(b * shape.block, shape.block));
    }
    const float number = steps_->number_of(variation_, all);
    for (std::size_t b = 0; b < shape.blocks; ++b) {
      Values x;
      std::vector<std::size_t> places;
      std::size_t real = 0;
      for (std::size_t i = 0; i < shape.block; ++i) {
        const std::size_t at = steps_->index_of(variation_, b, shape.block, i);
        if (at >= shape.coded) break;
        places.push_back(at);
        x.push_back(all[at]);
        real += at < elements ? 1 : 0;
      }
      if (x.empty()) continue;
      const Values statistics = statistics_of(all, places, shape);
      const Fields fields = steps_->fields_of(variation_, dtype, x, statistics, number);
      std::memcpy(&wire[b * sizeof(Fields)], &fields, sizeof(Fields));
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool unwritten = variation_.last_unwritten && real < shape.block && i + 1 == real;
        const std::uint32_t code =
            fields.broken || unwritten ? 0 : steps_->code_of(variation_, dtype, x[i], fields);
        wire[shape.blocks * sizeof(Fields) + places[i]] = static_cast<std::byte>(code);
      }
    }
  }

  /// The elements that the scale is of.
  Values statistics_of(const Values& all, const std::vector<std::size_t>& places,
                       const Shape& shape) const {
    Values own;
    own.reserve(places.size());
    for (const std::size_t at : places) own.push_back(all[at]);
    const std::size_t step = places.size() > 1 ? places[1] - places[0] : 1;
    const auto window = [&](std::ptrdiff_t by) {
      Values values;
      for (const std::size_t at : places) {
        const auto from = static_cast<std::ptrdiff_t>(at) + by * static_cast<std::ptrdiff_t>(step);
        if (from >= 0 && from < static_cast<std::ptrdiff_t>(all.size())) {
          values.push_back(all[static_cast<std::size_t>(from)]);
        }
      }
      return values.empty() ? own : values;
    };
    const auto half = static_cast<std::ptrdiff_t>((own.size() + 1) / 2);
    switch (variation_.window) {
      case ScaleScope::own:
        break;
      case ScaleScope::without_first:
        if (own.size() > 1) own.erase(own.begin());
        break;
      case ScaleScope::without_last:
        if (own.size() > 1) own.pop_back();
        break;
      case ScaleScope::one_on:
        return window(1);
      case ScaleScope::one_back:
        return window(-1);
      case ScaleScope::next_block:
        return window(static_cast<std::ptrdiff_t>(shape.block));
      case ScaleScope::first_half:
        own.resize(static_cast<std::size_t>(half));
        break;
      case ScaleScope::last_half:
        if (own.size() > 1) own.erase(own.begin(), own.begin() + half);
        break;
      case ScaleScope::every_second: {
        Values values;
        for (std::size_t i = 0; i < own.size(); i += 2) values.push_back(own[i]);
        return values;
      }
      case ScaleScope::whole_message:
        return all;
      case ScaleScope::before_if_partial:
        if (own.size() < shape.block) return window(-static_cast<std::ptrdiff_t>(shape.block));
        break;
      case ScaleScope::clamped: {
        double sum = 0;
        double squares = 0;
        for (const float each : own) {
          sum += each;
          squares += static_cast<double>(each) * each;
        }
        const auto count = static_cast<double>(own.size());
        const double mean = sum / count;
        const auto limit = static_cast<float>(
            variation_.sigmas * std::sqrt(std::max(0.0, squares / count - mean * mean)));
        for (float& each : own) {
          if (std::isfinite(each)) each = limited(each, limit);
        }
        break;
      }
    }
    return own;
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::size_t elements = payload.size() / size_of(dtype);
    const Shape shape = shape_of(elements);
    Values block;
    for (std::size_t b = 0; b < shape.blocks; ++b) {
      Fields f;
      std::memcpy(&f, &wire[b * sizeof(Fields)], sizeof(Fields));
      block.clear();
      for (std::size_t i = 0; i < shape.block; ++i) {
        const std::size_t at = steps_->index_of(variation_, b, shape.block, i);
        if (at >= shape.coded) break;
        const auto code = std::to_integer<std::uint32_t>(wire[shape.blocks * sizeof(Fields) + at]);
        block.push_back(f.broken ? kNaN : steps_->value_of(variation_, dtype, code, f));
      }
      if (steps_->traits().has_spikes && !f.broken) put_back(f, block);
      if (steps_->traits().is_transformed) steps_->transform(block);
      const float limit = !f.broken && steps_->saturates(dtype, f) != variation_.other_overflow
                              ? largest_finite(dtype)
                              : std::numeric_limits<float>::infinity();
      for (std::size_t i = 0; i < block.size(); ++i) {
        const std::size_t at = steps_->index_of(variation_, b, shape.block, i);
        if (at >= elements) continue;
        float value = block[i];
        if (is_kept(b, at, elements, shape)) {
          std::memcpy(&value,
                      &wire[shape.blocks * sizeof(Fields) + shape.coded + at * sizeof(float)],
                      sizeof(float));
        }
        value = limited(value, limit);
        if (variation_.loses_zero_sign && value == 0) value = 0;
        store_value(dtype, value, payload, at);
        if (variation_.cuts_off_values && dtype != DType::fp32) {
          const float stored = load_value(dtype, payload, at);
          store_value(dtype, beside(value, stored, false, dtype == DType::bf16), payload, at);
        }
      }
    }
  }

  void put_back(const Fields& f, Values& block) const {
    const Spikes how = variation_.spikes;
    if (how == Spikes::not_put_back) return;
    const auto minimum = [&] {
      if (how != Spikes::minimum_not_put_back && f.minimum_index < block.size())
        block[f.minimum_index] = f.minimum;
    };
    if (how != Spikes::minimum_last) minimum();
    if (how != Spikes::maximum_not_put_back && f.maximum_index < block.size())
      block[f.maximum_index] = f.maximum;
    if (how == Spikes::minimum_last) minimum();
  }

  bool is_kept(std::size_t b, std::size_t at, std::size_t elements, const Shape& shape) const {
    const std::size_t last = (elements - 1) / shape.block;
    switch (variation_.unencoded) {
      case Unencoded::nothing:
        return false;
      case Unencoded::first_block:
        return b == 0;
      case Unencoded::last_block:
        return b == last;
      case Unencoded::partial_block:
        return b == last && elements % shape.block != 0;
      case Unencoded::first_chunk:
        return at < kWireChunk;
      case Unencoded::last_chunk:
        return at / kWireChunk == (elements - 1) / kWireChunk;
    }
    return false;
  }

  Variation variation_;
  std::shared_ptr<const Steps> steps_;
};

}  // namespace

std::vector<MistakenCodec> variations(const CodecPtr& codec) {
  std::vector<MistakenCodec> all;
  if (codec->info().needs_context()) return all;
  const std::shared_ptr<const Steps> steps = steps_of(codec->name());
  if (!steps) return all;
  for (Variation& row : rows_of(steps->traits())) {
    const std::string name = row.name;
    all.push_back({name, std::make_shared<VariedCodec>(codec, std::move(row), steps)});
  }
  return all;
}

// ---------------------------------------------------------------- layouts

namespace {

/// A wire of planes and arrays behind them, per chunk.
struct PlaneLayout {
  unsigned bits = 0;
  std::size_t block = 0;
  std::size_t chunk = 0;
  std::vector<std::size_t> arrays = {};  ///< bytes per block
  std::size_t head = 0;                  ///< bytes before the first chunk
};

std::optional<PlaneLayout> layout_of(const Codec& codec, DType dtype, std::size_t elements) {
  const std::string& name = codec.name();
  if (const auto format = parse_anybit(name)) {
    if (format->hadamard && elements % format->group != 0) return std::nullopt;
    const AnyBitLayout layout = anybit_layout(*format, elements);
    const AnyBitMetadata metadata(*format, size_of(dtype));
    const auto arrays = metadata.arrays();
    return PlaneLayout{format->bits, layout.block, layout.chunk, {arrays.begin(), arrays.end()}};
  }
  if (const auto format = parse_logfmt(name)) {
    return PlaneLayout{format->bits, format->group, chunk_elements(format->group), {2, 2}};
  }
  if (const auto format = Mx::parse(name)) {
    return PlaneLayout{format->bits(), Mx::kBlock, kWireChunk, {1}};
  }
  if (const auto format = parse_nvfp4(name)) {
    const std::size_t head = format->tensor_scale ? 0 : sizeof(float);
    return PlaneLayout{4, NvFp4Blocks::kBlock, kWireChunk, {1}, head};
  }
  std::optional<PlaneLayout> found;
  for_each_format(ScaledFormats(), [&]<class Format>() {
    const std::optional<Format> format = Format::parse(name);
    if (!format) return;
    found =
        PlaneLayout{format->bits(), Format::kBlock, kWireChunk, {sizeof(typename Format::Scale)}};
  });
  return found;
}

/// A chunk's codes and arrays.
struct ChunkParts {
  std::vector<std::uint8_t> codes;
  std::vector<Bytes> planes;
  std::vector<Bytes> arrays;
};

/// In every whole word of so many bytes.
void reverse_words(std::span<std::byte> bytes, std::size_t size) {
  for (std::size_t at = 0; at + size <= bytes.size(); at += size) {
    std::ranges::reverse(bytes.subspan(at, size));
  }
}

void append(Bytes& wire, std::span<const std::byte> part) {
  wire.insert(wire.end(), part.begin(), part.end());
}
void append_all(Bytes& wire, const std::vector<Bytes>& parts) {
  for (const Bytes& part : parts) append(wire, part);
}
Bytes packed(const std::vector<std::uint8_t>& codes, unsigned bits) {
  Bytes planes(planes_bytes(codes.size(), bits));
  pack_planes(codes, bits, planes.data());
  return planes;
}
/// b bits after b bits, across bytes.
Bytes packed_in_order(const std::vector<std::uint8_t>& codes, unsigned bits, bool high_first) {
  Bytes bytes((codes.size() * bits + 7) / 8);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (unsigned k = 0; k < bits; ++k) {
      const bool is_set = (codes[i] >> (high_first ? bits - 1 - k : k) & 1) != 0;
      const std::size_t at = i * bits + k;
      if (is_set) bytes[at / 8] |= std::byte(1U << (high_first ? 7 - at % 8 : at % 8));
    }
  }
  return bytes;
}

}  // namespace

std::vector<WireLayout> other_layouts(const CodecPtr& codec, DType dtype, std::size_t elements,
                                      std::span<const std::byte> wire) {
  std::vector<WireLayout> all;
  const std::optional<PlaneLayout> found = layout_of(*codec, dtype, elements);
  if (!found) {
    // Other wires have bytes of 16-bit words, and nibbles.
    if (!codec->name().starts_with("qr-")) return all;
    constexpr std::size_t kAtom = 2048;
    constexpr std::size_t kScales = 128;
    const std::size_t atoms = (elements + kAtom - 1) / kAtom;
    const std::size_t bytes = wire.size() / atoms;
    const auto add = [&](const char* name, auto change) {
      Bytes made(wire.begin(), wire.end());
      for (std::size_t a = 0; a < atoms; ++a) {
        const auto atom = std::span(made).subspan(a * bytes, bytes);
        change(atom.first(bytes - kScales), atom.last(kScales));
      }
      all.push_back({name, std::move(made)});
    };
    using Span = std::span<std::byte>;
    add("the nibbles of every byte are exchanged", [](Span codes, Span) {
      for (std::byte& each : codes) each = (each << 4) | (each >> 4);
    });
    const auto reversed_by = [](std::size_t size) {
      return [size](Span codes, Span) { reverse_words(codes, size); };
    };
    add("the bytes of a 16-bit word of codes stand in the reverse order", reversed_by(2));
    add("the bytes of a 32-bit word of codes stand in the reverse order", reversed_by(4));
    add("the halves of a 32-bit word of codes stand in each other's place (even and odd elements)",
        [](Span codes, Span) {
          for (std::size_t at = 0; at + 4 <= codes.size(); at += 4) {
            const Span word = codes.subspan(at, 4);
            std::ranges::rotate(word, word.begin() + 2);
          }
        });
    add("the scales of even and of odd elements stand in each other's place",
        [](Span, Span scales) {
          for (std::size_t at = 0; at < scales.size(); at += 4) {
            const Span pair = scales.subspan(at, 4);
            std::ranges::rotate(pair, pair.begin() + 2);
          }
        });
    add("the scales of all even elements stand before those of all odd ones",
        [](Span, Span scales) {
          const Bytes own(scales.begin(), scales.end());
          for (std::size_t k = 0; k < scales.size() / 2; ++k) {
            scales[k] = own[k / 2 * 4 + k % 2];
            scales[scales.size() / 2 + k] = own[k / 2 * 4 + 2 + k % 2];
          }
        });
    add("scales have the other sign", [](Span, Span scales) {
      for (std::size_t at = 1; at < scales.size(); at += 2) scales[at] ^= std::byte{0x80};
    });
    add("scales have their bytes in the reverse order (big-endian)",
        [](Span, Span scales) { reverse_words(scales, 2); });
    Bytes first, behind_all, scales;
    for (std::size_t a = 0; a < atoms; ++a) {
      const auto atom = wire.subspan(a * bytes, bytes);
      append(first, atom.last(kScales));
      append(first, atom.first(bytes - kScales));
      append(behind_all, atom.first(bytes - kScales));
      append(scales, atom.last(kScales));
    }
    append(behind_all, scales);
    all.push_back({"scales stand before codes", std::move(first)});
    all.push_back({"scales stand behind the codes of the whole message", std::move(behind_all)});
    return all;
  }
  const PlaneLayout& layout = *found;
  std::vector<ChunkParts> chunks;
  const std::byte* in = wire.data() + layout.head;
  for (std::size_t begin = 0; begin < elements; begin += layout.chunk) {
    const std::size_t count = std::min(layout.chunk, elements - begin);
    ChunkParts parts;
    parts.codes.resize(count);
    const std::byte* const start = in;
    in = unpack_planes(start, layout.bits, parts.codes);
    const std::byte* plane = start;
    for_each_plane(layout.bits, [&](unsigned width, unsigned) {
      parts.planes.emplace_back(plane, plane + plane_bytes(count, width));
      plane += plane_bytes(count, width);
    });
    const std::size_t blocks = blocks_of(count, layout.block);
    for (const std::size_t bytes : layout.arrays) {
      parts.arrays.emplace_back(in, in + blocks * bytes);
      in += blocks * bytes;
    }
    chunks.push_back(std::move(parts));
  }
  const auto head = wire.first(layout.head);
  const auto add = [&](const char* name, auto write) {
    Bytes made(head.begin(), head.end());
    for (const ChunkParts& chunk : chunks) write(chunk, made);
    all.push_back({name, std::move(made)});
  };
  const auto reversed = [](std::vector<Bytes> parts) {
    std::ranges::reverse(parts);
    return parts;
  };
  const auto add_codes = [&](const char* name, auto change) {
    add(name, [&](const ChunkParts& chunk, Bytes& made) {
      append(made, change(chunk.codes));
      append_all(made, chunk.arrays);
    });
  };
  const auto changed = [&](auto of_code) {
    return [&, of_code](std::vector<std::uint8_t> codes) {
      for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(of_code(code));
      return packed(codes, layout.bits);
    };
  };
  if (chunks.front().planes.size() > 1) {
    add("planes stand in the reverse order", [&](const ChunkParts& chunk, Bytes& made) {
      append_all(made, reversed(chunk.planes));
      append_all(made, chunk.arrays);
    });
    // The widest plane holds the high bits.
    add("planes are of the high bits first", [&](const ChunkParts& chunk, Bytes& made) {
      for_each_plane(layout.bits, [&](unsigned width, unsigned shift) {
        std::vector<std::uint8_t> part = chunk.codes;
        for (std::uint8_t& code : part) {
          code = static_cast<std::uint8_t>(code >> (layout.bits - shift - width) &
                                           ((1U << width) - 1));
        }
        append(made, packed_in_order(part, width, false));
      });
      append_all(made, chunk.arrays);
    });
    add_codes("codes are packed one after the other, not split into planes",
              [&](const auto& codes) { return packed_in_order(codes, layout.bits, false); });
    add_codes("codes are packed one after the other from the highest bit on, not split into planes",
              [&](const auto& codes) { return packed_in_order(codes, layout.bits, true); });
  }
  if (layout.bits < 8) {
    add(layout.bits == 4
            ? "the codes of neighbours stand in each other's place (the first of a byte in its "
              "high bits)"
            : "the codes of a byte stand in the reverse order (the first in its high bits)",
        [&](const ChunkParts& chunk, Bytes& made) {
          for_each_plane(layout.bits, [&](unsigned width, unsigned shift) {
            std::vector<std::uint8_t> part = chunk.codes;
            for (std::uint8_t& code : part) {
              code = static_cast<std::uint8_t>(code >> shift & ((1U << width) - 1));
            }
            append(made, packed_in_order(part, width, true));
          });
          append_all(made, chunk.arrays);
        });
    add_codes("codes of even elements stand before those of odd ones",
              [&](const std::vector<std::uint8_t>& codes) {
                std::vector<std::uint8_t> order;
                for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
                  for (std::size_t i = first; i < codes.size(); i += 2) order.push_back(codes[i]);
                }
                return packed(order, layout.bits);
              });
    add_codes(
        "elements of the first half stand in the low bits, those of the second in the high ones",
        [&](const std::vector<std::uint8_t>& codes) {
          std::vector<std::uint8_t> order;
          const std::size_t half = (codes.size() + 1) / 2;
          for (std::size_t i = 0; i < half; ++i) {
            order.push_back(codes[i]);
            if (half + i < codes.size()) order.push_back(codes[half + i]);
          }
          return packed(order, layout.bits);
        });
  }
  const unsigned high = 1U << (layout.bits - 1);
  add_codes("codes are two's complement, not counted from the lowest on (or the reverse)",
            changed([=](unsigned code) { return code ^ high; }));
  add_codes("all bits of codes are the other way round",
            changed([=](unsigned code) { return ~code & (2 * high - 1); }));
  add_codes("codes are one too high",
            changed([=](unsigned code) { return std::min(code + 1, 2 * high - 1); }));
  add_codes("codes are one element late", [&](std::vector<std::uint8_t> codes) {
    std::rotate(codes.begin(), codes.end() - 1, codes.end());
    return packed(codes, layout.bits);
  });
  add_codes("codes are one element early", [&](std::vector<std::uint8_t> codes) {
    std::rotate(codes.begin(), codes.begin() + 1, codes.end());
    return packed(codes, layout.bits);
  });
  add("scales stand before codes", [&](const ChunkParts& chunk, Bytes& made) {
    append_all(made, chunk.arrays);
    append_all(made, chunk.planes);
  });
  if (layout.arrays.size() > 1) {
    add("the arrays behind the codes stand in the reverse order",
        [&](const ChunkParts& chunk, Bytes& made) {
          append_all(made, chunk.planes);
          append_all(made, reversed(chunk.arrays));
        });
    add("the arrays behind the codes stand in the reverse order, and before them",
        [&](const ChunkParts& chunk, Bytes& made) {
          append_all(made, reversed(chunk.arrays));
          append_all(made, chunk.planes);
        });
    for (std::size_t k = 0; k + 1 < layout.arrays.size(); ++k) {
      if (layout.arrays[k] != layout.arrays[k + 1]) continue;
      add(k == 0 ? "scales and zeros stand in each other's place"
                 : "two arrays of minima, maxima or indices stand in each other's place",
          [&](const ChunkParts& chunk, Bytes& made) {
            append_all(made, chunk.planes);
            std::vector<Bytes> arrays = chunk.arrays;
            std::swap(arrays[k], arrays[k + 1]);
            append_all(made, arrays);
          });
    }
    add("the scale, zero and what else a block has stand together, block by block",
        [&](const ChunkParts& chunk, Bytes& made) {
          append_all(made, chunk.planes);
          for (std::size_t b = 0; b < blocks_of(chunk.codes.size(), layout.block); ++b) {
            for (std::size_t k = 0; k < layout.arrays.size(); ++k) {
              append(made,
                     std::span(chunk.arrays[k]).subspan(b * layout.arrays[k], layout.arrays[k]));
            }
          }
        });
  }
  if (layout.arrays.size() > 2) {
    for (std::size_t first = 1; first < layout.arrays.size(); ++first) {
      add("the arrays behind the codes stand in another order",
          [&](const ChunkParts& chunk, Bytes& made) {
            append_all(made, chunk.planes);
            std::vector<Bytes> arrays = chunk.arrays;
            std::ranges::rotate(arrays, arrays.begin() + static_cast<std::ptrdiff_t>(first));
            append_all(made, arrays);
          });
    }
    add("indices count from the beginning of the wire chunk, not of the block",
        [&](const ChunkParts& chunk, Bytes& made) {
          append_all(made, chunk.planes);
          for (std::size_t k = 0; k < chunk.arrays.size(); ++k) {
            Bytes array = chunk.arrays[k];
            const std::size_t size = layout.arrays[k];
            for (std::size_t b = 0; k + 2 >= chunk.arrays.size() && (b + 1) * size <= array.size();
                 ++b) {
              std::uint16_t index = 0;
              std::memcpy(&index, &array[b * size], size);
              index = static_cast<std::uint16_t>(index + b * layout.block);
              std::memcpy(&array[b * size], &index, size);
            }
            append(made, array);
          }
        });
  }
  // A format's own NaN stays one.
  const bool has_fp32 = std::ranges::find(layout.arrays, sizeof(float)) != layout.arrays.end();
  if (has_fp32) {
    add("scales are the reciprocals of what they should be",
        [&](const ChunkParts& chunk, Bytes& made) {
          append_all(made, chunk.planes);
          for (const Bytes& array : chunk.arrays) {
            for (std::size_t at = 0; at + sizeof(float) <= array.size(); at += sizeof(float)) {
              float scale = 0;
              std::memcpy(&scale, &array[at], sizeof(scale));
              scale = 1.0f / scale;
              const auto bytes = std::as_bytes(std::span(&scale, 1));
              made.insert(made.end(), bytes.begin(), bytes.end());
            }
          }
        });
  }
  if (std::ranges::any_of(layout.arrays, [](std::size_t bytes) { return bytes > 1; })) {
    add("scales have their bytes in the reverse order (big-endian)",
        [&](const ChunkParts& chunk, Bytes& made) {
          append_all(made, chunk.planes);
          for (std::size_t k = 0; k < layout.arrays.size(); ++k) {
            Bytes array = chunk.arrays[k];
            reverse_words(array, layout.arrays[k]);
            append(made, array);
          }
        });
  }
  for (const bool before : {true, false}) {
    add(before ? "a block's scale stands before its codes, block by block"
               : "a block's scale stands behind its codes, block by block",
        [&](const ChunkParts& chunk, Bytes& made) {
          for (std::size_t b = 0; b < blocks_of(chunk.codes.size(), layout.block); ++b) {
            const std::size_t first = b * layout.block;
            const std::size_t count = std::min(layout.block, chunk.codes.size() - first);
            const std::vector<std::uint8_t> codes(
                chunk.codes.begin() + static_cast<std::ptrdiff_t>(first),
                chunk.codes.begin() + static_cast<std::ptrdiff_t>(first + count));
            if (!before) append(made, packed(codes, layout.bits));
            for (std::size_t k = 0; k < layout.arrays.size(); ++k) {
              append(made,
                     std::span(chunk.arrays[k]).subspan(b * layout.arrays[k], layout.arrays[k]));
            }
            if (before) append(made, packed(codes, layout.bits));
          }
        });
  }
  if (chunks.size() > 1) {
    Bytes made(head.begin(), head.end());
    std::vector<std::uint8_t> codes;
    for (const ChunkParts& chunk : chunks) {
      codes.insert(codes.end(), chunk.codes.begin(), chunk.codes.end());
    }
    append(made, packed(codes, layout.bits));
    for (std::size_t k = 0; k < layout.arrays.size(); ++k) {
      for (const ChunkParts& chunk : chunks) append(made, chunk.arrays[k]);
    }
    all.push_back(
        {"the message is not cut into chunks: all codes, then all scales", std::move(made)});
  }
  if (layout.head != 0) {
    Bytes made(wire.begin() + static_cast<std::ptrdiff_t>(layout.head), wire.end());
    append(made, head);
    all.push_back({"the message's number stands behind all else", std::move(made)});
  }
  return all;
}

std::vector<std::byte> with_scales_of(const CodecPtr& codec, DType dtype, std::size_t elements,
                                      std::span<const std::byte> wire, DType of) {
  Bytes read(wire.begin(), wire.end());
  // The codec's own words.
  DType own = DType::bf16;
  std::vector<std::pair<std::size_t, std::size_t>> words;  // where they begin and end
  if (codec->name().starts_with("qr-")) {
    own = dtype;
    constexpr std::size_t kAtom = 2048;
    constexpr std::size_t kScales = 128;
    const std::size_t bytes = wire.size() / ((elements + kAtom - 1) / kAtom);
    for (std::size_t at = bytes; at <= wire.size(); at += bytes)
      words.emplace_back(at - kScales, at);
  } else {
    if (codec->name().starts_with("logfmt")) own = DType::fp16;
    const std::optional<PlaneLayout> layout = layout_of(*codec, dtype, elements);
    if (!layout) return {};
    std::size_t at = layout->head;
    for (std::size_t begin = 0; begin < elements; begin += layout->chunk) {
      const std::size_t count = std::min(layout->chunk, elements - begin);
      at += planes_bytes(count, layout->bits);
      for (std::size_t k = 0; k < layout->arrays.size(); ++k) {
        const std::size_t size = blocks_of(count, layout->block) * layout->arrays[k];
        // Behind scale and zero stand extremes in the payload's dtype, and indices.
        if (layout->arrays[k] == 2 && k < 2) words.emplace_back(at, at + size);
        at += size;
      }
    }
  }
  if (words.empty() || own == of || own == DType::fp32) return {};
  for (const auto& [begin, end] : words) {
    for (std::size_t at = begin; at < end; at += 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, &read[at], sizeof(bits));
      bits = own == DType::bf16 ? Bf16Arithmetic::from_float(half_to_float(bits))
                                : Fp16Arithmetic::from_float(bfloat16_to_float(bits));
      std::memcpy(&read[at], &bits, sizeof(bits));
    }
  }
  return read;
}

}  // namespace arlab
