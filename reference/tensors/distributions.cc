#include "reference/tensors/distributions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "reference/tensors/normals.h"
#include "reference/tensors/portable_math.h"

namespace arlab {

namespace {

using Parameters = SyntheticParameters;
using Kind = SyntheticParameter::Kind;

/// Values that are each a function of (stream of the rank, index of the element).
template <typename Value>
Fill each_value(const Parameters& parameters, Value value) {
  return ValueFill([seed = parameters.integer("seed"), value = std::move(value)](
                       std::size_t rank, std::size_t first, std::span<double> out) {
    const RandomStream random(seed, rank);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(random, first + i);
  });
}

Fill gaussian(const Parameters& parameters, const Payload&) {
  return ValueFill([seed = parameters.integer("seed"), sigma = parameters.number("sigma")](
                       std::size_t rank, std::size_t first, std::span<double> out) {
    standard_normals(RandomStream(seed, rank), first, out);
    for (double& value : out) value *= sigma;
  });
}

Fill laplace(const Parameters& parameters, const Payload&) {
  return each_value(parameters,
                    [b = parameters.number("b")](const RandomStream& random, std::size_t i) {
                      const double q = centred_interval(random.word(i));
                      return std::copysign(b * -portable_log(1 - 2 * std::abs(q)), q);
                    });
}

/// normal / sqrt(chi2 / nu), where chi2 is a sum of nu squared normals, taken two at a time:
/// the sum of two is -2 ln(uniform).
Fill student_t(const Parameters& parameters, const Payload&) {
  const std::uint64_t nu = parameters.integer("nu");
  const double scale = parameters.number("scale");
  return each_value(parameters, [nu, scale](const RandomStream& random, std::size_t i) {
    std::uint64_t next = i * (nu / 2 + nu % 2 + 1);
    const double numerator = standard_normal(random.word(next++));
    double chi2 = 0;
    for (std::uint64_t pair = 0; pair < nu / 2; ++pair) {
      chi2 -= 2 * portable_log(unit_interval(random.word(next++)));
    }
    if (nu % 2 != 0) {
      const double last = standard_normal(random.word(next++));
      chi2 += last * last;
    }
    return scale * (numerator / std::sqrt(chi2 / static_cast<double>(nu)));
  });
}

Fill uniform(const Parameters& parameters, const Payload&) {
  const double low = parameters.number("low");
  const double high = parameters.number("high");
  if (low > high) fail("uniform: low={} must not be above high={}", low, high);
  return each_value(parameters, [low, high](const RandomStream& random, std::size_t i) {
    return low + (high - low) * unit_interval(random.word(i));
  });
}

/// For each of `row` channels what is added to a gaussian: +-magnitude in `count` channels, else 0.
/// The channels are a random subset by Floyd's algorithm, the same for every rank.
std::vector<double> channel_offsets(std::uint64_t seed, std::uint64_t row, std::uint64_t count,
                                    double magnitude) {
  constexpr std::uint64_t kNoRank = std::numeric_limits<std::uint64_t>::max();
  const RandomStream random(seed, kNoRank);
  std::vector<double> offsets(row, 0.0);
  std::vector<bool> chosen(row, false);
  for (std::uint64_t last = row - count; last < row; ++last) {
    const std::uint64_t word = random.word(last);
    const std::uint64_t candidate = (word >> 1) % (last + 1);
    const std::uint64_t channel = chosen[candidate] ? last : candidate;
    chosen[channel] = true;
    offsets[channel] = random_sign(word) * magnitude;
  }
  return offsets;
}

Fill outliers(const Parameters& parameters, const Payload&) {
  const std::uint64_t seed = parameters.integer("seed");
  const std::uint64_t row = parameters.integer("row");
  const std::uint64_t count = parameters.integer("count");
  if (count > row) fail("outliers: count={} must not be above row={}", count, row);
  return ValueFill([seed, sigma = parameters.number("sigma"),
                    offsets = channel_offsets(seed, row, count, parameters.number("magnitude"))](
                       std::size_t rank, std::size_t first, std::span<double> out) {
    standard_normals(RandomStream(seed, rank), first, out);
    std::size_t channel = first % offsets.size();
    for (double& value : out) {
      value = sigma * value + offsets[channel];
      if (++channel == offsets.size()) channel = 0;
    }
  });
}

constexpr std::size_t kSweepBlock = 64;

/// One amplitude per block of the payload, in geometric steps from exactly low to exactly high.
std::vector<double> sweep_amplitudes(double low, double high, std::size_t elements) {
  std::vector<double> amplitudes((elements + kSweepBlock - 1) / kSweepBlock, low);
  const double octaves = portable_log(high / low) / portable_log(2.0);
  const double last = static_cast<double>(amplitudes.size() - 1);
  for (std::size_t block = 1; block < amplitudes.size(); ++block) {
    const double exponent = octaves * (static_cast<double>(block) / last);
    amplitudes[block] = std::min(low * portable_exp2(exponent), high);
  }
  if (amplitudes.size() > 1) amplitudes.back() = high;
  return amplitudes;
}

Fill sweep(const Parameters& parameters, const Payload& payload) {
  const double low = parameters.number("low");
  const double high = parameters.number("high");
  if (low > high) fail("sweep: low={} must not be above high={}", low, high);
  return each_value(parameters, [amplitudes = sweep_amplitudes(low, high, payload.elements)](
                                    const RandomStream& random, std::size_t i) {
    return amplitudes[i / kSweepBlock] * (2 * unit_interval(random.word(i)) - 1);
  });
}

Fill constant(const Parameters& parameters, const Payload&) {
  return each_value(parameters, [value = parameters.number("value")](
                                    const RandomStream&, std::size_t) { return value; });
}

Fill patterns(const Parameters& parameters, const Payload& payload) {
  constexpr std::size_t kRankStep = 8191;  // odd, so that 65536 ranks start at different patterns
  const std::size_t start = parameters.integer("seed") - 1;
  const int shift = payload.dtype == DType::fp32 ? 16 : 0;
  return PatternFill(
      [start, shift](std::size_t rank, std::size_t first, std::span<std::uint32_t> out) {
        const std::size_t offset = start + rank * kRankStep + first;
        for (std::size_t i = 0; i < out.size(); ++i) {
          out[i] = static_cast<std::uint32_t>((offset + i) & 0xffff) << shift;
        }
      });
}

constexpr double kAny = std::numeric_limits<double>::infinity();  // limited by the dtype
constexpr double kTiny = 0x1p-149;                                // the smallest fp32 subnormal
constexpr SyntheticParameter kSeed = {"seed", "1",          Kind::integer,
                                      0,      4294967295.0, "which random numbers"};

}  // namespace

std::span<const Distribution> distributions() {
  static const std::vector<Distribution> all = {
      {{"gaussian",
        "normal distribution with mean 0",
        {{"sigma", "1", Kind::amplitude, 0, kAny, "standard deviation"}, kSeed}},
       gaussian},
      {{"laplace",
        "Laplace distribution with mean 0: heavier tails, as activations have them",
        {{"b", "1", Kind::amplitude, 0, kAny, "scale; the variance is 2 b^2"}, kSeed}},
       laplace},
      {{"student-t",
        "Student's t distribution: power-law tails",
        {{"nu", "3", Kind::integer, 1, 100, "degrees of freedom"},
         {"scale", "1", Kind::amplitude, 0, kAny, "factor on the values"},
         kSeed}},
       student_t},
      {{"uniform",
        "uniform between low and high",
        {{"low", "-1", Kind::amplitude, -kAny, kAny, "lower end"},
         {"high", "1", Kind::amplitude, -kAny, kAny, "upper end"},
         kSeed}},
       uniform},
      {{"outliers",
        "gaussian, with a large offset in a few channels: the same on every rank and in every row, "
        "as in transformer activations",
        {{"sigma", "1", Kind::amplitude, 0, kAny, "standard deviation"},
         {"row", "4096", Kind::integer, 1, 16777216, "elements per row (channels)"},
         {"count", "4", Kind::integer, 0, 16777216, "channels with an offset"},
         {"magnitude", "100", Kind::amplitude, 0, kAny, "offset, + or - by channel"},
         kSeed}},
       outliers},
      {{"sweep",
        "uniform in [-a, a], where a grows geometrically over the payload in blocks of 64 elements",
        {{"low", "1e-8", Kind::amplitude, kTiny, kAny, "a of the first block"},
         {"high", "65504", Kind::amplitude, kTiny, kAny, "a of the last block"},
         kSeed}},
       sweep},
      {{"constant",
        "one value everywhere, on every rank",
        {{"value", "0", Kind::amplitude, -kAny, kAny, "the value"}, kSeed}},
       constant},
      {{"adversarial",
        "blocks of 64 elements, each one kind of edge case: zeros, subnormals, ties, huge values, "
        "NaNs, infinities, ...",
        {{"non_finite", "0.05", Kind::number, 0, 1, "share of blocks with a NaN or an infinity"},
         kSeed}},
       adversarial},
      {{"patterns",
        "all 65536 16-bit patterns in order, again and again (fp32: as the upper half); rank r "
        "starts at pattern seed - 1 + 8191 r",
        {kSeed}},
       patterns},
  };
  return all;
}

}  // namespace arlab
