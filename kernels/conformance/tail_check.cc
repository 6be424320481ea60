#include "kernels/conformance/tail_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/conformance/all_reduce_check.h"
#include "kernels/conformance/element_bits.h"
#include "reference/codecs/payload_values.h"
#include "reference/error.h"
#include "reference/memory.h"
#include "reference/tensors/counter_random.h"
#include "reference/words.h"

namespace arlab::kernels {
namespace {

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;
using Root = TailRounding::Root;
using Weight = TailRounding::Weight;

constexpr std::size_t kGuard = 256;
constexpr std::size_t kWeightRows = 4;  // in memory, of which one is given
constexpr std::size_t kGivenRow = 1;
constexpr std::uint32_t kWarp = 32;
constexpr std::uint32_t kMostThreads = 1024;

std::size_t padded(std::size_t bytes) { return (bytes + kGuard - 1) / kGuard * kGuard; }

/// RN(value, dtype), as bits.
std::uint32_t bits_of(DType dtype, float value) {
  alignas(float) std::array<std::byte, sizeof(float)> room{};
  store_value(dtype, value, room, 0);
  return bits_at(dtype, room, 0);
}
float rounded(DType dtype, float value) {
  alignas(float) std::array<std::byte, sizeof(float)> room{};
  store_value(dtype, value, room, 0);
  return load_value(dtype, room, 0);
}

Floats floats_of(DType dtype, std::span<const std::byte> tensor) {
  Floats values(tensor.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_value(dtype, tensor, i);
  return values;
}

/// Whether the bits are those of a number; NaN is NaN.
bool is_element(DType dtype, std::uint32_t got, float value) {
  if (bits_of(dtype, value) == got) return true;
  alignas(float) std::array<std::byte, sizeof(float)> room{};
  std::memcpy(room.data(), &got, sizeof(got));
  return std::isnan(value) && std::isnan(load_value(dtype, room, 0));
}

// ---------------------------------------------------------------- what goes in

/// Tensors of a hidden size, the same for every run.
struct TailCase {
  std::size_t hidden = 0;
  std::vector<Bytes> inputs = {};  ///< every rank's
  Bytes residual = {};
  Bytes weights = {};                  ///< rows in memory, of which kGivenRow is given
  Floats residuals = {};               ///< empty where there is none
  Floats weight = {};                  ///< the given row, with its offset
  Floats sums = {};                    ///< fp32
  std::vector<Bytes> normalized = {};  ///< every rank's output in the first run
  std::vector<Bytes> residual_out = {};
  std::vector<Bytes> unwritten = {};  ///< contents of residual_out before that run
};

/// A row of a tensor; of one that is not there, nothing.
std::span<const float> row_of(const Floats& tensor, std::size_t row, std::size_t hidden) {
  return tensor.empty() ? std::span<const float>()
                        : std::span(tensor).subspan(row * hidden, hidden);
}

/// Scales of rows: one as eps, first, as no other shows where that is added; one of zeros.
double scale_of_row(std::size_t row, float eps) {
  const std::array<double, 5> scales = {eps > 0 ? std::sqrt(double{eps}) : 0.5, 0.05, 1, 20, 0};
  return scales.at(row % scales.size());
}

/// How far a number is from the middle of two numbers of a 16-bit dtype, in units in their last place.
double from_tie(DType dtype, double value) {
  int exponent = 0;
  const double in_units = std::ldexp(std::frexp(value, &exponent), dtype == DType::bf16 ? 8 : 11);
  return std::abs(in_units - std::floor(in_units) - 0.5);
}

/// Roundings that differ in the last bit of fp32 are seen where a result lies between two numbers of the dtype: of many elements, those
/// are taken that have such results.
class Generator {
 public:
  Generator(const TailCheckRequest& request, std::size_t hidden)
      : request_(request), made_{.hidden = hidden} {}

  TailCase make() {
    const std::size_t elements = request_.rows * made_.hidden;
    const std::size_t bytes = elements * size_of(request_.dtype);
    made_.inputs.assign(static_cast<std::size_t>(request_.ranks), Bytes(bytes));
    made_.residual.resize(bytes);
    made_.weights.resize(kWeightRows * made_.hidden * size_of(request_.dtype));
    made_.sums.resize(elements);
    for (std::size_t i = 0; i < elements; ++i) make_element(i, 0);
    for (std::size_t i = 0; i < kWeightRows * made_.hidden; ++i) {
      const double value = 1 + centred_interval(word(4, i, 0)) - (request_.tail.has_offset ? 1 : 0);
      store_value(request_.dtype, static_cast<float>(value), made_.weights, i);
    }
    for (std::size_t row = 0; row < request_.rows; ++row) {
      if (request_.dtype == DType::fp32 || scale_at(row * made_.hidden) == 0) continue;
      tune_row(row);
      tune_columns(row);
    }
    if (request_.tail.adds_residual) made_.residuals = floats_of(request_.dtype, made_.residual);
    for (std::size_t i = 0; i < made_.hidden; ++i) made_.weight.push_back(weight(i));
    return std::move(made_);
  }

 private:
  std::uint64_t word(std::uint64_t purpose, std::size_t i, std::size_t salt) const {
    return RandomStream(request_.seed + salt, made_.hidden, purpose).word(i);
  }
  double scale_at(std::size_t i) const { return scale_of_row(i / made_.hidden, request_.tail.eps); }

  /// Two ranks contribute, one of them less; what the others have is 0.
  void make_element(std::size_t i, std::size_t salt) {
    const DType dtype = request_.dtype;
    const auto value = [&](std::uint64_t purpose, double of) {
      const double normal = standard_normal(word(purpose, i, salt));
      // + 0: what a sum of zeros with and without a sign is depends on the order.
      return rounded(dtype, static_cast<float>(of * scale_at(i) * normal)) + 0;
    };
    const std::size_t ranks = made_.inputs.size();
    const std::size_t one = word(5, i, 0) % ranks;
    const std::size_t other =
        (one + 1 + word(6, i, 0) % std::max<std::size_t>(ranks - 1, 1)) % ranks;
    const float small = other == one ? 0 : value(1, 0.3);
    if (other != one) store_value(dtype, small, made_.inputs[other], i);
    store_value(dtype, value(0, 1), made_.inputs[one], i);
    made_.sums[i] = load_value(dtype, made_.inputs[one], i) + small;
    store_value(dtype, value(2, 2), made_.residual, i);
  }

  /// The norm's input: in fp32, and rounded before and after the residual.
  float kept(std::size_t i) const { return rounded(request_.dtype, made_.sums[i]) + residual(i); }
  float normalized(std::size_t i) const { return rounded(request_.dtype, kept(i)); }
  float residual(std::size_t i) const {
    return request_.tail.adds_residual ? load_value(request_.dtype, made_.residual, i) : 0;
  }

  double squares(std::size_t row, bool keeps) const {
    double sum = 0;
    for (std::size_t i = row * made_.hidden; i < (row + 1) * made_.hidden; ++i) {
      const double z{keeps ? kept(i) : normalized(i)};
      sum += z * z;
    }
    return sum;
  }
  /// With eps.
  double mean_of(double squares) const {
    return squares / static_cast<double>(made_.hidden) + double{request_.tail.eps};
  }

  /// 0 where two roundings give an element other bits; else how far it is from the next number that they do with.
  double from_difference(const TailRounding& one, const TailRounding& other, float z,
                         const float* weight, double mean) const {
    constexpr double kNear = 0x1p-12;
    const double away = from_tie(
        request_.dtype, double{z} / std::sqrt(mean) * (weight == nullptr ? 1 : double{*weight}));
    if (away > kNear) return away;
    const auto bits = [&](const TailRounding& rounding) {
      const float root = root_of(rounding, static_cast<float>(mean));
      return bits_of(request_.dtype, normalized_of(rounding, request_.dtype, z, weight, root));
    };
    return bits(one) != bits(other) ? 0 : away;
  }

  /// The first element is such that another one shows how it is multiplied with the root, before a weight is.
  void tune_row(std::size_t row) {
    constexpr std::size_t kTries = 1024;
    constexpr std::size_t kOthers = 128;
    const std::size_t first = row * made_.hidden;
    const double rest = squares(row, false) - std::pow(double{normalized(first)}, 2);
    std::pair<double, std::size_t> best = {1, 0};
    for (std::size_t salt = 0; salt < kTries && best.first > 0; ++salt) {
      make_element(first, salt);
      const double mean = mean_of(rest + std::pow(double{normalized(first)}, 2));
      for (std::size_t i = 1; i < std::min(kOthers, made_.hidden); ++i) {
        const TailRounding other{.root = row % 2 == 0 ? Root::divide : Root::rsqrt};
        best = std::min(best, {from_difference({.root = Root::reciprocal}, other,
                                               normalized(first + i), nullptr, mean),
                               salt});
      }
    }
    make_element(first, best.second);
  }

  /// Elements of a row change places, which leaves its squares as they are, so that their products with the weights of their columns show
  /// where these are rounded: of what is normalized in fp32, and of what is rounded, in turns.
  void tune_columns(std::size_t row) {
    constexpr std::size_t kTries = 256;
    constexpr TailRounding kUsual{.root = Root::reciprocal, .weight = Weight::once};
    constexpr std::array<TailRounding, 3> kOthers = {
        {{.root = Root::divide, .weight = Weight::once},
         {.root = Root::reciprocal, .weight = Weight::first},
         {.root = Root::rsqrt, .weight = Weight::once}}};
    const std::size_t first = row * made_.hidden;
    const std::array<double, 2> means = {mean_of(squares(row, false)), mean_of(squares(row, true))};
    for (std::size_t column = 0; column < made_.hidden; ++column) {
      const bool keeps = column % 2 == 1;
      const float of_column = weight(column);
      std::pair<double, std::size_t> best = {1, column};
      for (std::size_t i = column; i < std::min(column + kTries, made_.hidden) && best.first > 0;
           ++i) {
        const float z = keeps ? kept(first + i) : normalized(first + i);
        best = std::min(best, {from_difference(kUsual, kOthers.at(column / 2 % 3), z, &of_column,
                                               means.at(keeps ? 1 : 0)),
                               i});
      }
      swap_elements(first + column, first + best.second);
    }
  }

  float weight(std::size_t column) const {
    const float stored =
        load_value(request_.dtype, made_.weights, kGivenRow * made_.hidden + column);
    return request_.tail.has_offset ? stored + 1.0F : stored;  // + 0 would change -0
  }
  void swap_elements(std::size_t a, std::size_t b) {
    const std::size_t unit = size_of(request_.dtype);
    const auto swap = [&](Bytes& tensor) {
      std::swap_ranges(&tensor[a * unit], &tensor[a * unit] + unit, &tensor[b * unit]);
    };
    if (a == b) return;
    for (Bytes& input : made_.inputs) swap(input);
    swap(made_.residual);
    std::swap(made_.sums[a], made_.sums[b]);
  }

  const TailCheckRequest& request_;
  TailCase made_;
};

// ---------------------------------------------------------------- roundings, bit for bit

/// A rounding of a request in which some places are the same: without a residual, a sum that is not rounded is what is normalized.
TailRounding as_told(const TailCheckRequest& request, TailRounding rounding) {
  if (request.ranks == 1) rounding.keeps_sum = false;
  if (!request.tail.adds_residual) rounding.keeps_residual = rounding.keeps_sum;
  if (request.dtype == DType::fp32) rounding.keeps_sum = rounding.keeps_residual = false;
  rounding.rounds_scaled = rounding.rounds_scaled && rounding.keeps_residual;
  rounding.threads = TailRounding{}.threads;
  return rounding;
}

/// Where the sum and what is normalized may be rounded.
std::vector<TailRounding> places_of_sums() {
  std::vector<TailRounding> all;
  for (const bool keeps_sum : {false, true}) {
    all.push_back({.keeps_sum = keeps_sum});
    for (const bool rounds_scaled : {false, true}) {
      all.push_back(
          {.keeps_sum = keeps_sum, .keeps_residual = true, .rounds_scaled = rounds_scaled});
    }
  }
  return all;
}

std::vector<std::string> names_of(const TailCheckRequest& request, const TailRounding& rounding) {
  const TailRounding told = as_told(request, rounding);
  std::vector<std::string> names;
  for (const NamedRounding& each : named_roundings()) {
    TailRounding named = each.rounding;
    if (as_told(request, named) == told) names.push_back(each.name);
    if (named.root != Root::reciprocal) continue;
    named.root = Root::rsqrt;
    if (as_told(request, named) == told) names.push_back(each.name + ",root=rsqrt");
  }
  if (names.empty()) {
    const std::string text = name_of(Tail{.normalizes = true, .rounding = told});
    names.push_back(text.substr(text.find(',') + 1));
  }
  return names;
}

/// The norm's input from a row.
Floats normalized_from(const TailRounding& rounding, DType dtype, std::span<const float> sums,
                       std::span<const float> residual) {
  Floats z(sums.begin(), sums.end());
  for (std::size_t i = 0; i < z.size(); ++i) {
    if (!rounding.keeps_sum) z[i] = rounded(dtype, z[i]);
    if (!residual.empty()) z[i] += residual[i];
    if (!rounding.keeps_residual) z[i] = rounded(dtype, z[i]);
  }
  return z;
}

double mean_of_squares(std::span<const float> row) {
  double sum = 0;
  for (const float each : row) sum += double{each} * each;
  return sum / static_cast<double>(row.size());
}

/// The bits of a row that came out, and what they are made of.
struct SeenRow {
  DType dtype;
  float eps;
  std::span<const float> z;
  double mean;  ///< mean of squares
  std::span<const float> weight;
  std::span<const std::byte> normalized;
  double reach = 0;  ///< how far from the mean is searched; 0: what orders of additions make
};

/// The means of squares with which a rounding has all bits of a row: fp32 numbers that follow each other.
struct Means {
  std::uint32_t first = 0;  ///< as bits
  std::uint32_t count = 0;

  bool has(float mean) const { return std::bit_cast<std::uint32_t>(mean) - first < count; }
  double middle() const { return double{std::bit_cast<float>(first + count / 2)}; }
  double width() const {
    const double value{std::bit_cast<float>(first)};
    return value == 0 ? 0 : (double{std::bit_cast<float>(first + count - 1)} - value) / value;
  }
};

Means means_of(const SeenRow& row, const TailRounding& rounding) {
  const double exact = row.mean;
  const double reach = std::max(row.reach, exact * static_cast<double>(row.z.size()) * 0x1p-24);
  const auto from = std::bit_cast<std::uint32_t>(static_cast<float>(std::max(exact - reach, 0.0)));
  const auto to = std::bit_cast<std::uint32_t>(static_cast<float>(exact + reach));
  std::size_t suspect = 0;  // the last wrong one is soon wrong again
  const auto fits = [&](float mean) {
    const float root = root_of(rounding, mean + row.eps);
    for (std::size_t k = 0; k < row.z.size(); ++k) {
      const std::size_t i = (suspect + k) % row.z.size();
      const float y = normalized_of(rounding, row.dtype, row.z[i], &row.weight[i], root);
      if (is_element(row.dtype, bits_at(row.dtype, row.normalized, i), y)) continue;
      suspect = i;
      return false;
    }
    return true;
  };
  Means found;
  for (std::uint32_t bits = from; bits <= to; ++bits) {
    const bool does = fits(std::bit_cast<float>(bits));
    if (!does && found.count != 0) break;
    if (!does) continue;
    if (found.count == 0) found.first = bits;
    found.count = bits - found.first + 1;
  }
  return found;
}

/// A combination of roundings, and how it has fared in the rows before.
struct RoundingTrial {
  TailRounding rounding;
  std::size_t places;  ///< which of places_of_sums() it has
  bool fits = true;
  std::set<std::uint32_t> threads = {};  ///< those that have had every bit
  std::uint64_t widest = 0;
  double widest_relative = 0;
  std::vector<bool> rows = {};  ///< which have fitted, of all cases
  auto fitting() const { return std::ranges::count(rows, true); }
};

/// Every combination that can be told from the others.
std::vector<RoundingTrial> all_tried(const TailCheckRequest& request) {
  std::set<std::uint32_t> threads;
  for (std::uint32_t n = kWarp; n <= kMostThreads; n += kWarp) threads.insert(n);
  std::vector<RoundingTrial> all;
  const std::vector<TailRounding> places = places_of_sums();
  for (std::size_t p = 0; p < places.size(); ++p) {
    for (const Root root : {Root::divide, Root::reciprocal, Root::rsqrt}) {
      for (const Weight weight : {Weight::twice, Weight::once, Weight::first}) {
        TailRounding rounding = places[p];
        rounding.root = root;
        rounding.weight = weight;
        if (as_told(request, rounding) != rounding) continue;
        all.push_back({.rounding = rounding, .places = p, .threads = threads});
      }
    }
  }
  return all;
}

/// A row's numbers before scaling, and the means of its squares: exact, and by threads.
struct Normalized {
  Floats z;
  double mean;
  std::map<std::uint32_t, float> means = {};
};

/// With each of places_of_sums().
std::vector<Normalized> all_normalized(DType dtype, std::span<const float> sums,
                                       std::span<const float> residual) {
  std::vector<Normalized> all;
  for (const TailRounding& places : places_of_sums()) {
    Floats z = normalized_from(places, dtype, sums, residual);
    all.push_back({.z = z, .mean = mean_of_squares(z)});
    for (std::uint32_t threads = kWarp; threads <= kMostThreads; threads += kWarp) {
      all.back().means[threads] = sum_of_squares(z, threads) / static_cast<float>(z.size());
    }
    if (!places.rounds_scaled) continue;
    for (float& each : all.back().z) each = rounded(dtype, each);
  }
  return all;
}

void try_row(const SeenRow& row, const std::map<std::uint32_t, float>& means_by_threads,
             RoundingTrial& tried) {
  const Means means = means_of(row, tried.rounding);
  tried.rows.push_back(means.count != 0);
  if (means.count == 0) tried.fits = false;
  if (means.count == 0) return;
  tried.widest = std::max<std::uint64_t>(tried.widest, means.count);
  tried.widest_relative = std::max(tried.widest_relative, means.width());
  std::erase_if(tried.threads,
                [&](std::uint32_t threads) { return !means.has(means_by_threads.at(threads)); });
}

// ---------------------------------------------------------------- mistakes, by numbers

/// y = v (of_sum s + of_residual r), by least squares.
struct Fit {
  double of_sum = 0, of_residual = 0;
  double error = std::numeric_limits<double>::infinity();  ///< remainder of the squares of y
};

Fit fit(std::span<const float> y, std::span<const float> v, std::span<const float> s,
        std::span<const float> r) {
  double ss = 0, sr = 0, rr = 0, sy = 0, ry = 0, yy = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double a = double{v[i]} * s[i];
    const double b = r.empty() ? 0 : double{v[i]} * r[i];
    ss += a * a, sr += a * b, rr += b * b, sy += a * y[i], ry += b * y[i];
    yy += double{y[i]} * y[i];
  }
  const double determinant = ss * rr - sr * sr;
  Fit found;
  found.of_sum = rr == 0 ? sy / ss : (sy * rr - ry * sr) / determinant;
  found.of_residual = rr == 0 ? 0 : (ry * ss - sy * sr) / determinant;
  found.error = 1 - (found.of_sum * sy + found.of_residual * ry) / yy;
  if (!std::isfinite(found.error)) found.error = std::numeric_limits<double>::infinity();
  return found;
}

constexpr double kFits = 1e-4;  // a fit's error: roundings of bf16 make 1e-6
constexpr double kPad = 8;      // elements: what rows are padded to whole ones of
bool near(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * std::abs(b);
}

/// A weight or a residual that a tail may have taken, and what is wrong about it; empty: nothing.
template <class Values>
struct TestedOperand {
  std::string mistake;
  Values values;
};

/// Why rows of a rank are not what they should be, in words.
class Diagnosis {
 public:
  Diagnosis(const TailCheckRequest& request, const std::vector<RoundingTrial>& tried,
            const TailCase& c, std::size_t rank)
      : request_(request),
        tried_(tried),
        case_(c),
        bits_(c.normalized[rank]),
        normalized_(floats_of(request.dtype, c.normalized[rank])),
        unwritten_(floats_of(request.dtype, c.unwritten[rank])) {
    if (request.has_residual_out) residual_out_ = floats_of(request.dtype, c.residual_out[rank]);
    for (const float each : c.sums) sums_.push_back(rounded(request.dtype, each));
    find_weights();
  }

  /// Empty where nothing is found.
  std::string of_row(std::size_t row) const {
    const auto y = at(normalized_, row);
    Fit best;
    const TestedOperand<Floats>* weight = nullptr;
    TestedOperand<std::span<const float>> residual;
    for (const auto& r : residuals(row)) {
      for (const auto& w : weights_) {
        const Fit tried = fit(y, w.values, at(sums_, row), r.values);
        // A right model, or the first found, yields only to a much better one.
        if (weight != nullptr && !(tried.error < best.error / 4 && best.error > kFits)) continue;
        best = tried, weight = &w, residual = r;
      }
    }
    if (best.error > kFits) return unexplained(row);
    if (!weight->mistake.empty()) return weight->mistake;
    if (!residual.mistake.empty()) return residual.mistake;
    const std::string said = said_of_count(best);
    return said.empty() ? said_of_root(row) : said;
  }

 private:
  std::span<const float> at(const Floats& tensor, std::size_t row) const {
    return row_of(tensor, row, case_.hidden);
  }

  void find_weights() {
    const bool has_offset = request_.tail.has_offset;
    const Floats all = floats_of(request_.dtype, case_.weights);
    const auto add = [&](std::string mistake, std::size_t row, bool adds) {
      const auto values = at(all, row);
      weights_.push_back({std::move(mistake), {values.begin(), values.end()}});
      for (float& each : weights_.back().values) each += adds ? 1.0F : 0.0F;
    };
    add("", kGivenRow, has_offset);
    add(has_offset ? "the weight's offset of 1 is missing"
                   : "1 is added to the weight, which has no offset",
        kGivenRow, !has_offset);
    add("the weight is that before the given one in memory", kGivenRow - 1, has_offset);
    for (std::size_t row = kGivenRow + 1; row < kWeightRows; ++row) {
      add(fmt::format("the weight is that {} behind the given one in memory", row - kGivenRow), row,
          has_offset);
    }
    weights_.push_back({"no weight is multiplied with", Floats(case_.hidden, 1)});
  }

  std::vector<TestedOperand<std::span<const float>>> residuals(std::size_t row) const {
    std::vector<TestedOperand<std::span<const float>>> all = {{"", at(case_.residuals, row)}};
    for (std::size_t other = 0; other < request_.rows && !case_.residuals.empty(); ++other) {
      if (other == row) continue;
      all.push_back(
          {fmt::format("the residual is that of another token: row {} has row {}'s", row, other),
           at(case_.residuals, other)});
    }
    all.push_back(
        {"the residual is what its output's memory held before: it is not initialised "
         "(vllm#41972)",
         at(unwritten_, row)});
    return all;
  }

  std::string said_of_count(const Fit& found) const {
    if (!request_.tail.adds_residual) return "";
    const double times = found.of_residual / found.of_sum;
    if (std::abs(times - 1) < 0.01) return "";
    if (std::abs(times) < 0.01) return "the residual is not added";
    if (std::abs(times - 2) < 0.02) return "the residual is added twice";
    return fmt::format("the residual is added {:.3g} times", times);
  }

  /// Describes the root of a row whose other parts are right.
  std::string said_of_root(std::size_t row) const {
    const Floats z =
        normalized_from({}, request_.dtype, at(case_.sums, row), at(case_.residuals, row));
    const double factor = fit(at(normalized_, row), case_.weight, z, {}).of_sum;
    const double mean = mean_of_squares(z);
    const double eps{request_.tail.eps};
    double found = 1 / (factor * factor);
    // Errors that roundings of as many elements leave, and more: many results are near ties.
    double tolerance = (request_.dtype == DType::bf16 ? 0x1p-4 : 0x1p-7) /
                       std::sqrt(static_cast<double>(z.size()));
    if (const Means exact = exact_means(row, found, tolerance * found); exact.count != 0) {
      found = exact.middle();
      tolerance = static_cast<double>(z.size()) * 0x1p-24 + exact.width() + 0x1p-20;
    }
    if (near(found, mean + eps, tolerance)) return "";
    const double outside = std::pow(std::sqrt(mean) + eps, 2);
    if (near(found, outside, tolerance) || near(found, mean, tolerance)) {
      const bool is_outside = std::abs(found - outside) < std::abs(found - mean);
      return is_outside ? "eps is added outside of the root" : "eps is not added";
    }
    const double over = mean * static_cast<double>(case_.hidden) / (found - eps);
    const double whole = std::round(over / kPad) * kPad;
    if (whole > static_cast<double>(case_.hidden) && near(over, whole, tolerance)) {
      return fmt::format(
          "the mean of squares is over {} elements, not the row's {}: of a padded row", whole,
          case_.hidden);
    }
    return fmt::format("the row is {:.4g} times what it should be", factor * std::sqrt(mean + eps));
  }

  /// Numbers under the root with which a rounding has all bits of a row.
  Means exact_means(std::size_t row, double near, double reach) const {
    const auto all = all_normalized(request_.dtype, at(case_.sums, row), at(case_.residuals, row));
    const std::size_t bytes = case_.hidden * size_of(request_.dtype);
    for (const RoundingTrial& each : tried_) {
      const Means means = means_of({request_.dtype, 0, all[each.places].z, near, case_.weight,
                                    bits_.subspan(row * bytes, bytes), reach},
                                   each.rounding);
      if (means.count != 0) return means;
    }
    return {};
  }

  std::string unexplained(std::size_t row) const {
    const bool is_norm_of_output =
        !residual_out_.empty() &&
        fit(at(normalized_, row), case_.weight, at(residual_out_, row), {}).error < kFits;
    return is_norm_of_output
               ? "the residual is none of the inputs, memory that is not initialised (vllm#41972)?"
               : "what comes out is no norm of the sum and a residual that are inputs";
  }

  const TailCheckRequest& request_;
  const std::vector<RoundingTrial>& tried_;
  const TailCase& case_;
  std::span<const std::byte> bits_;
  Floats normalized_, unwritten_, residual_out_, sums_;
  std::vector<TestedOperand<Floats>> weights_;
};

// ---------------------------------------------------------------- the check

TailRounding claimed(const TailCheckRequest& request) {
  const std::string& claim = request.claim;
  for (const char* key : {"hidden", "residual", "norm", "eps", "offset", "out"}) {
    if (("," + claim).find(fmt::format(",{}=", key)) == std::string::npos) continue;
    fail("claim {}: {} is no rounding: allowed are a name, sum=, add=, root=, weight= and threads=",
         quote(claim), key);
  }
  const bool is_name = claim.substr(0, claim.find(',')).find('=') == std::string::npos;
  return parse_tail((is_name ? "residual=add,norm=rms,rounding=" : "residual=add,norm=rms,") +
                    claim)
      .rounding;
}

class TailCheck {
 public:
  TailCheck(const FusedTail& tail, const TailCheckRequest& request)
      : tail_(tail), report_{.request = request} {
    if (!request.claim.empty()) claimed_ = claimed(request);
  }

  Result<TailCheckReport> run() {
    for (const std::size_t hidden : request().hidden) {
      cases_.push_back(Generator(request(), hidden).make());
    }
    for (int run = 0; run < request().runs; ++run) {
      for (TailCase& c : cases_) ARLAB_RETURN_IF_ERROR(call(c, run));
    }
    const std::size_t judged =
        report_.ranks_identical ? 1 : static_cast<std::size_t>(request().ranks);
    for (std::size_t rank = 0; rank < judged; ++rank) judge(rank, judged > 1);
    compare_with_claim();
    return std::move(report_);
  }

 private:
  const TailCheckRequest& request() const { return report_.request; }
  DType dtype() const { return request().dtype; }
  bool adds() const { return request().tail.adds_residual; }

  /// Says a mistake once, not again for every row.
  void find(const std::string& finding) {
    if (std::ranges::find(report_.findings, finding) == report_.findings.end())
      report_.findings.push_back(finding);
  }

  TailCall call_of(const TailCase& c) const {
    TailCall call{.dtype = dtype(),
                  .rows = request().rows,
                  .hidden = c.hidden,
                  .eps = request().tail.eps,
                  .has_residual = adds()};
    const std::size_t tensor = padded(call.tensor_bytes()) + kGuard;
    call.input_at = kGuard;
    call.residual_at = call.input_at + tensor;
    // The rows before it end where it begins.
    call.weight_at = call.residual_at + tensor + padded(kGivenRow * call.row_bytes());
    call.normalized_at =
        call.weight_at + padded((kWeightRows - kGivenRow) * call.row_bytes()) + kGuard;
    call.residual_out_at = call.normalized_at + tensor;
    return call;
  }

  /// A rank's region: noise that differs from run to run, numbers where outputs are to be, and the inputs.
  Bytes region_of(const TailCase& c, const TailCall& call, std::size_t rank, int run) const {
    Bytes memory(call.residual_out_at + padded(call.tensor_bytes()) + kGuard);
    const RandomStream noise(request().seed + c.hidden, rank, static_cast<std::uint64_t>(run) + 10);
    for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = noise.word(at);
      std::memcpy(&memory[at], &word, std::min(sizeof(word), memory.size() - at));
    }
    for (const std::size_t at : {call.normalized_at, call.residual_out_at}) {
      const std::span output(&memory[at], call.tensor_bytes());
      for (std::size_t i = 0; i < call.rows * call.hidden; ++i) {
        store_value(dtype(), static_cast<float>(standard_normal(noise.word(at + i))), output, i);
      }
    }
    std::ranges::copy(c.inputs[rank], &memory[call.input_at]);
    std::ranges::copy(c.residual, &memory[call.residual_at]);
    std::ranges::copy(c.weights, &memory[call.weight_at - kGivenRow * call.row_bytes()]);
    return memory;
  }

  static std::string rows_text(const TailCall& call) {
    return counted(call.rows, "row") + " of " + counted(call.hidden, "element");
  }

  Status call(TailCase& c, int run) {
    TailCall call = call_of(c);
    std::vector<Bytes> memory;
    for (std::size_t rank = 0; rank < c.inputs.size(); ++rank)
      memory.push_back(region_of(c, call, rank, run));
    const std::vector<Bytes> before = memory;
    for (Bytes& region : memory) call.regions.emplace_back(region);
    const Status status = tail_(call);
    if (!status.ok()) {
      return Status::error(
          fmt::format("the tail failed ({}): {}", rows_text(call), status.message()));
    }
    ++report_.calls;
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      check_region(call, rank, before[rank], memory[rank]);
      keep_or_compare(c, call, rank, before[rank], memory[rank], run);
    }
    return {};
  }

  /// All but outputs holds what it held.
  void check_region(const TailCall& call, std::size_t rank, const Bytes& before,
                    const Bytes& after) {
    const std::size_t tensor = call.tensor_bytes();
    for (std::size_t at = 0; at < before.size(); ++at) {
      const bool is_output = at - call.normalized_at < tensor || at - call.residual_out_at < tensor;
      if (after[at] == before[at] || is_output) continue;
      const char* what = at - call.input_at < tensor              ? "its input"
                         : at - call.residual_at < tensor         ? "the residual"
                         : at - call.weight_at < call.row_bytes() ? "the weight"
                                                                  : "memory outside of its tensors";
      find(fmt::format("writes to {}: rank {}, {}", what, rank, rows_text(call)));
      return;
    }
  }

  void keep_or_compare(TailCase& c, const TailCall& call, std::size_t rank, const Bytes& before,
                       const Bytes& after, int run) {
    const auto tensor = [&](const Bytes& memory, std::size_t at) {
      return Bytes(&memory[at], &memory[at] + call.tensor_bytes());
    };
    const auto compare = [&](const char* name, std::vector<Bytes>& kept, std::size_t at) {
      const Bytes now = tensor(after, at);
      if (run == 0) {
        if (now == tensor(before, at))
          find(fmt::format("the {} output is not written: rank {}", name, rank));
        if (rank > 0 && now != kept[0]) {
          report_.ranks_identical = false;
          find(fmt::format("ranks differ: the {} output of rank {} is not rank 0's, {}", name, rank,
                           rows_text(call)));
        }
        kept.push_back(now);
      } else if (now != kept[rank]) {
        report_.deterministic = false;
        find(fmt::format("not deterministic: the {} output of rank {} differs from run to run",
                         name, rank));
      }
    };
    if (run == 0) c.unwritten.push_back(tensor(before, call.residual_out_at));
    compare("normalized", c.normalized, call.normalized_at);
    if (request().has_residual_out) compare("residual", c.residual_out, call.residual_out_at);
  }

  /// Tells as what a rank's rows are exact; if as nothing, why.
  void judge(std::size_t rank, bool says_rank) {
    const std::string where = says_rank ? fmt::format("rank {}: ", rank) : "";
    std::vector<RoundingTrial> tried = all_tried(request());
    bool has_residual = true;
    for (const TailCase& c : cases_) {
      for (std::size_t row = 0; row < request().rows; ++row) {
        judge_row(c, rank, row, tried);
        if (rank == 0) ++report_.compared_rows;
      }
      if (request().has_residual_out) has_residual = judge_residual(c, rank, tried) && has_residual;
    }
    if (rank == 0) keep_matches(tried);
    if (std::ranges::any_of(tried, &RoundingTrial::fits)) {
      say_sum(tried, where);
    } else {
      find_mistakes(rank, where, tried);
    }
    if (!has_residual)
      find(where + "the residual output is not the sum with the residual, rounded");
  }

  /// Looks at rows that the nearest rounding does not have.
  void find_mistakes(std::size_t rank, const std::string& where,
                     const std::vector<RoundingTrial>& tried) {
    const std::size_t known = report_.findings.size();
    auto fits = std::ranges::max_element(tried, {}, &RoundingTrial::fitting)->rows.begin();
    for (const TailCase& c : cases_) {
      const Diagnosis diagnosis(request(), tried, c, rank);
      for (std::size_t row = 0; row < request().rows; ++row) {
        if (*fits++ || scale_of_row(row, request().tail.eps) == 0) continue;
        const std::string said = diagnosis.of_row(row);
        if (!said.empty()) find(where + said);
      }
    }
    if (report_.findings.size() == known) find(where + nearest_of(tried));
  }

  void judge_row(const TailCase& c, std::size_t rank, std::size_t row,
                 std::vector<RoundingTrial>& tried) const {
    const std::size_t bytes = c.hidden * size_of(dtype());
    const auto seen = std::span(c.normalized[rank]).subspan(row * bytes, bytes);
    const auto normalized =
        all_normalized(dtype(), row_of(c.sums, row, c.hidden), row_of(c.residuals, row, c.hidden));
    for (RoundingTrial& each : tried) {
      const Normalized& of = normalized[each.places];
      try_row({dtype(), request().tail.eps, of.z, of.mean, c.weight, seen}, of.means, each);
    }
  }

  /// Whether the other output is the sum with the residual, rounded: of all roundings with which it is not, only where it is with none.
  bool judge_residual(const TailCase& c, std::size_t rank,
                      std::vector<RoundingTrial>& tried) const {
    std::vector<bool> fits;
    for (const RoundingTrial& each : tried) {
      TailRounding rounding = each.rounding;
      rounding.keeps_residual = true;  // it is rounded below
      const Floats z = normalized_from(rounding, dtype(), c.sums, c.residuals);
      std::size_t i = 0;
      while (i < z.size() && is_element(dtype(), bits_at(dtype(), c.residual_out[rank], i), z[i]))
        ++i;
      fits.push_back(i == z.size());
    }
    if (std::ranges::count(fits, true) == 0) return false;
    for (std::size_t i = 0; i < tried.size(); ++i) tried[i].fits = tried[i].fits && fits[i];
    return true;
  }

  /// Known orders first. Where the claim is met with one, an unknown mean is nothing to say of others.
  void keep_matches(const std::vector<RoundingTrial>& tried) {
    for (const bool is_known : {true, false}) {
      if (!is_known && is_claim_met()) return;
      for (const RoundingTrial& each : tried) {
        if (!each.fits || each.threads.empty() == is_known) continue;
        for (const std::string& name : names_of(request(), each.rounding)) {
          report_.exact_as.push_back({name,
                                      {each.threads.begin(), each.threads.end()},
                                      each.widest,
                                      each.widest_relative});
        }
      }
    }
  }

  /// Reports the sum that lost accuracy in aiter, unless it is claimed.
  void say_sum(const std::vector<RoundingTrial>& tried, const std::string& where) {
    const bool keeps = std::ranges::all_of(
        tried, [](const RoundingTrial& t) { return !t.fits || t.rounding.keeps_sum; });
    if (!keeps || !adds() || (claimed_ && claimed_->keeps_sum)) return;
    find(where +
         fmt::format("the sum is not rounded to {} before the residual is added (aiter#2586)",
                     name_of(dtype())));
  }

  std::string nearest_of(const std::vector<RoundingTrial>& tried) const {
    const auto best = std::ranges::max_element(tried, {}, &RoundingTrial::fitting);
    return fmt::format(
        "no combination of roundings has every bit, with any mean of squares; the nearest, {}, has "
        "{} of {} rows",
        names_of(request(), best->rounding)[0], best->fitting(), report_.compared_rows);
  }

  bool is_claim_met() const {
    if (!claimed_) return false;
    const std::vector<std::string> names = names_of(request(), *claimed_);
    const bool says_threads = request().claim.find("threads=") != std::string::npos;
    return std::ranges::any_of(report_.exact_as, [&](const TailMatch& match) {
      return std::ranges::find(names, match.name) != names.end() &&
             (!says_threads ||
              std::ranges::find(match.threads, claimed_->threads) != match.threads.end());
    });
  }

  void compare_with_claim() {
    if (!claimed_ || report_.exact_as.empty() || is_claim_met()) return;
    find(
        fmt::format("it is not {}, as claimed, but {}", request().claim, report_.exact_as[0].name));
  }

  const FusedTail& tail_;
  std::optional<TailRounding> claimed_;
  TailCheckReport report_;
  std::vector<TailCase> cases_ = {};
};

std::string threads_text(const std::vector<std::uint32_t>& threads) {
  return threads.size() > 4 ? fmt::format("{} orders, of {} to {} threads", threads.size(),
                                          threads.front(), threads.back())
                            : fmt::format("{} threads", fmt::join(threads, ", "));
}

}  // namespace

std::uint64_t TailCheckReport::rows_by_unknown() const {
  return exact_as.empty() || !exact_as[0].threads.empty() ? 0 : compared_rows;
}

TailCheckRequest checked(TailCheckRequest r) {
  if (r.hidden.empty() && r.tail.hidden != 0) r.hidden = {r.tail.hidden};
  if (r.hidden.empty()) r.hidden = {576, 4096};
  if (!r.tail.normalizes) fail("tail {}: a check needs norm=rms", quote(name_of(r.tail)));
  if (!r.tail.output.empty() || r.tail.rounding != TailRounding{}) {
    fail(
        "tail: out= is not checked, and where it is rounded is found out: allowed is a rounding as "
        "a claim");
  }
  const auto require = [](const char* what, std::uint64_t value, std::uint64_t least,
                          std::uint64_t most) {
    if (value < least || value > most)
      fail("{}: {}: allowed are {} to {}", what, value, least, most);
  };
  require("ranks", static_cast<std::uint64_t>(r.ranks), 1, 64);
  require("runs", static_cast<std::uint64_t>(r.runs), 2, 100);
  require("rows", r.rows, 1, 256);
  require("hidden: how many", r.hidden.size(), 1, 64);
  if (r.tail.hidden != 0 && r.hidden != std::vector<std::size_t>{r.tail.hidden})
    fail("hidden: {}: the tail has hidden={}", fmt::join(r.hidden, ", "), r.tail.hidden);
  for (const std::size_t hidden : r.hidden) {
    require("hidden", hidden, 2, 1U << 20);
    require_memory(20 * static_cast<std::uint64_t>(r.ranks) * r.rows * hidden * size_of(r.dtype),
                   fmt::format("check of a tail of {} elements", hidden));
  }
  if (!r.claim.empty()) claimed(r);
  return r;
}

Result<TailCheckReport> check_tail(const FusedTail& tail, const TailCheckRequest& request) {
  return TailCheck(tail, checked(request)).run();
}

nlohmann::ordered_json to_json(const TailCheckReport& report) {
  using Json = nlohmann::ordered_json;
  const TailCheckRequest& request = report.request;
  Json json = {{"schema", "arlab.judge.tail/1"},
               {"ranks", request.ranks},
               {"dtype", name_of(request.dtype)},
               {"tail", name_of(request.tail)},
               {"hidden", request.hidden},
               {"rows", request.rows},
               {"runs", request.runs},
               {"seed", request.seed},
               {"calls", report.calls},
               {"compared_rows", report.compared_rows},
               {"passed", report.findings.empty()},
               {"verdict", verdict_of(report)},
               {"findings", report.findings},
               {"deterministic", report.deterministic},
               {"ranks_identical", report.ranks_identical},
               {"claim", request.claim.empty() ? Json() : Json(request.claim)},
               {"rows_by_unknown", report.rows_by_unknown()},
               {"exact_as", Json::array()}};
  for (const TailMatch& match : report.exact_as) {
    json["exact_as"].push_back({{"name", match.name},
                                {"threads", match.threads},
                                {"widest", match.widest},
                                {"widest_relative", match.widest_relative}});
  }
  return json;
}

std::string to_text(const TailCheckReport& report) {
  const TailCheckRequest& request = report.request;
  std::string text = fmt::format(
      "{}, {}, {}: {} calls, {} compared\n", counted(request.ranks, "rank"), name_of(request.dtype),
      name_of(request.tail), report.calls, counted(report.compared_rows, "row"));
  text += fmt::format("deterministic    {}\n", report.deterministic ? "yes" : "no");
  text += fmt::format("ranks identical  {}\n", report.ranks_identical ? "yes" : "no");
  if (report.exact_as.empty()) text += "exact as         none of the roundings\n";
  for (const TailMatch& match : report.exact_as) {
    text += fmt::format("exact as         {}; squares {}\n", match.name,
                        match.threads.empty()
                            ? fmt::format("in an order that is not known, which leaves at most {} "
                                          "of a row, {:.2g} of it wide",
                                          counted(match.widest, "mean"), match.widest_relative)
                            : "in the order of " + threads_text(match.threads));
  }
  for (const std::string& finding : report.findings) text += "WRONG: " + finding + "\n";
  return text + verdict_of(report) + "\n";
}

}  // namespace arlab::kernels
