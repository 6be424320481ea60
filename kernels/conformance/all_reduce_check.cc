#include "kernels/conformance/all_reduce_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "kernels/conformance/all_reduce_models.h"
#include "kernels/conformance/element_bits.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/formats/with_arithmetic.h"
#include "reference/metrics/error.h"
#include "reference/parallel.h"
#include "reference/tensors/counter_random.h"
#include "reference/tensors/synthetic.h"
#include "reference/words.h"

namespace arlab::kernels {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kGuardBytes = 256;
constexpr int kMostRanks = 64;

// ---------------------------------------------------------------- elements as bits

std::uint32_t magnitude(DType dtype, std::uint32_t bits) {
  return bits & (dtype == DType::fp32 ? 0x7FFFFFFF : 0x7FFF);
}
std::uint32_t infinity(DType dtype) {
  return dtype == DType::fp16 ? 0x7C00 : dtype == DType::bf16 ? 0x7F80 : 0x7F800000;
}
bool is_nan(DType dtype, std::uint32_t bits) { return magnitude(dtype, bits) > infinity(dtype); }

/// Equal bits. Which NaN a sum ends with differs between processors and is no mistake.
bool same(DType dtype, std::uint32_t a, std::uint32_t b) {
  return a == b || (is_nan(dtype, a) && is_nan(dtype, b));
}

// ---------------------------------------------------------------- the check

/// Sums over elements that become an AllReduceError.
struct ErrorSums {
  std::uint64_t elements = 0, overflowed = 0, non_finite = 0, made_finite = 0;
  double max = 0, error = 0, error2 = 0, signal2 = 0;
};

class Check {
 public:
  Check(const AllReduce& all_reduce, const AllReduceCheckRequest& request)
      : all_reduce_(all_reduce), ranks_(static_cast<std::size_t>(request.ranks)) {
    report_.request = request;
    if (report_.request.lengths.empty()) report_.request.lengths = lengths_up_to(65541);
    models_ = models_of(report_.request);
    result_products_.resize(ranks_);
    products_.resize(ranks_ * ranks_);
  }

  Result<AllReduceCheckReport> run() {
    make_cases();
    for (int run = 0; run < report_.request.runs; ++run) {
      // All cases, then all again: what a call leaves behind is not what its repetition expects.
      for (std::size_t c = 0; c < cases_.size(); ++c) {
        ARLAB_RETURN_IF_ERROR(call(c, run));
        ++report_.calls;
      }
    }
    ARLAB_RETURN_IF_ERROR(repeat());
    for (const AllReduceCase& c : cases_) judge(c);
    find_general_mistakes();
    find_what_it_is();
    return std::move(report_);
  }

 private:
  const AllReduceCheckRequest& request() const { return report_.request; }
  DType dtype() const { return request().dtype; }

  void make_cases() {
    std::uint64_t seed = request().seed;
    for (const std::size_t elements : request().lengths) {
      for (const InputKind& kind : kInputs) {
        cases_.push_back({&kind, elements,
                          make_synthetic(fmt::format(fmt::runtime(kind.spec), seed++), dtype(),
                                         ranks_, elements)});
      }
    }
    for (std::size_t c = 1; c < cases_.size(); ++c) cases_[c].before = &cases_[c - 1];
    kept_.resize(cases_.size());
  }

  /// A mistake of one call in forty needs more calls than a few lengths make: those of a short length, again and again.
  Status repeat() {
    constexpr std::uint64_t kCalls = 128;
    constexpr std::size_t kEnough = 64;
    std::size_t chosen = 0;
    const auto& lengths = request().lengths;
    for (std::size_t k = 1; k < lengths.size(); ++k) {
      const bool is_better = lengths[chosen] < kEnough
                                 ? lengths[k] > lengths[chosen]
                                 : lengths[k] < lengths[chosen] && lengths[k] >= kEnough;
      if (is_better) chosen = k;
    }
    for (int k = 0; report_.calls + report_.repeated_calls < kCalls; ++k) {
      const std::size_t kind = static_cast<std::size_t>(k) % std::size(kInputs);
      ARLAB_RETURN_IF_ERROR(call(chosen * std::size(kInputs) + kind, request().runs + k));
      ++report_.repeated_calls;
    }
    return {};
  }

  void forget(const std::string& kind) {
    const auto found = std::ranges::find(found_kinds_, kind);
    if (found == found_kinds_.end()) return;
    report_.findings.erase(report_.findings.begin() + (found - found_kinds_.begin()));
    found_kinds_.erase(found);
  }

  /// Says a mistake once, not again for every case.
  void find(const std::string& kind, const std::string& finding) {
    if (std::find(found_kinds_.begin(), found_kinds_.end(), kind) != found_kinds_.end()) return;
    found_kinds_.push_back(kind);
    report_.findings.push_back(finding);
  }

  Status call(std::size_t index, int run) {
    AllReduceCase& c = cases_[index];
    const std::size_t bytes = c.elements * size_of(dtype());
    const std::size_t padded = (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
    AllReduceCall call{.dtype = dtype(),
                       .elements = c.elements,
                       .input_at = kGuardBytes,
                       .output_at = request().in_place ? kGuardBytes : 2 * kGuardBytes + padded};
    // Guards, and what outputs hold before: noise that differs from run to run.
    std::vector<Bytes> memory(ranks_, Bytes(call.output_at + padded + kGuardBytes));
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const RandomStream noise(request().seed + index, rank, static_cast<std::uint64_t>(run) + 1);
      for (std::size_t at = 0; at < memory[rank].size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = noise.word(at);
        std::memcpy(&memory[rank][at], &word, std::min(sizeof(word), memory[rank].size() - at));
      }
      const auto input = c.inputs.rank_bytes(rank);
      std::copy(input.begin(), input.end(), &memory[rank][call.input_at]);
    }
    const std::vector<Bytes> before = memory;
    for (Bytes& region : memory) call.regions.push_back(region);
    const Status status = all_reduce_(call);
    if (!status.ok()) {
      return Status::error(fmt::format("the all-reduce failed ({}{}): {}", c.where(),
                                       call.in_place() ? ", in place" : "", status.message()));
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      check_region(c, call, rank, before[rank]);
    }
    keep_or_compare(index, call, before, run);
    last_called_ = index;
    return {};
  }

  /// Guards and inputs hold what they held.
  void check_region(const AllReduceCase& c, const AllReduceCall& call, std::size_t rank,
                    const Bytes& before) {
    const auto after = call.regions[rank];
    const std::size_t output_end = call.output_at + call.tensor_bytes();
    for (std::size_t at = 0; at < before.size(); ++at) {
      if (at == call.output_at) at = output_end;
      if (after[at] == before[at]) continue;
      const bool in_input = at >= call.input_at && at < call.input_at + call.tensor_bytes();
      if (in_input) {
        find("input", fmt::format("writes to its input: rank {}, byte {}, {}", rank,
                                  at - call.input_at, c.where()));
      } else if (at >= output_end) {
        find("behind", fmt::format("writes behind the end of the output: rank {}, byte {} of a "
                                   "tensor of {} bytes, {}",
                                   rank, at - call.output_at, call.tensor_bytes(), c.where()));
      } else {
        find("outside", fmt::format("writes outside of the output: rank {}, {} before it, {}", rank,
                                    counted(call.output_at - at, "byte"), c.where()));
      }
      return;
    }
  }

  void keep_or_compare(std::size_t index, const AllReduceCall& call,
                       const std::vector<Bytes>& before, int run) {
    AllReduceCase& c = cases_[index];
    std::vector<std::vector<bool>>& held = kept_[index];
    if (run == 0) {
      held.resize(ranks_);
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const auto out = call.output(rank);
        c.outputs.insert(c.outputs.end(), out.begin(), out.end());
        held[rank].assign(c.elements, true);
      }
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const auto out = call.output(rank);
      const auto old = std::span(before[rank]).subspan(call.output_at, call.tensor_bytes());
      const auto first = std::span(c.outputs).subspan(rank * call.tensor_bytes(), out.size());
      for (std::size_t i = 0; i < c.elements; ++i) {
        const std::uint32_t bits = bits_at(dtype(), out, i);
        if (bits != bits_at(dtype(), old, i)) held[rank][i] = false;
        const std::uint32_t before_bits = bits_at(dtype(), first, i);
        if (same(dtype(), bits, before_bits) || held[rank][i]) continue;
        report_.deterministic = false;
        keep_odd(index, call, run);
        find("nondeterministic",
             fmt::format(
                 "not deterministic: run {} of rank {}, index {}, gives {}, the first gave {}, {}",
                 run + 1, rank, i, element_text(dtype(), bits), element_text(dtype(), before_bits),
                 c.where()));
      }
    }
  }

  /// Keeps the first few results that differ from those of the first call.
  void keep_odd(std::size_t index, const AllReduceCall& call, int run) {
    constexpr std::size_t kFew = 4;
    const bool is_known = !odd_.empty() && odd_.back().index == index && odd_.back().run == run;
    if (is_known || odd_.size() == kFew) return;
    odd_.push_back({.index = index, .run = run, .before = last_called_, .outputs = {}});
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const auto out = call.output(rank);
      odd_.back().outputs.insert(odd_.back().outputs.end(), out.begin(), out.end());
    }
  }

  void judge(const AllReduceCase& c) {
    report_.compared_elements += c.elements * ranks_;
    const std::vector<std::vector<bool>>& held = kept_[static_cast<std::size_t>(&c - &cases_[0])];
    const ExactSum sum = exact_sum(dtype(), ranks_, c.inputs.bytes());
    compare_ranks(c);
    find_untouched(c, held, sum);
    add_errors(c, sum);
    if (c.kind == &kInputs[0]) add_weights(c, sum);
    parallel_for(models_.size(), 0, [&](unsigned, std::size_t m) { compare_with(c, models_[m]); });
  }

  void compare_with(const AllReduceCase& c, AllReduceModel& model) const {
    AllReduceCandidate& candidate = model.candidate;
    const std::uint64_t before = candidate.mismatches;
    compare_bits(c, model);
    candidate.mismatches_of_length.resize(request().lengths.size());
    candidate.mismatches_of_length[length_of(c)] += candidate.mismatches - before;
    if (c.kind == &kInputs[0]) candidate.gaussian_mismatches += candidate.mismatches - before;
  }

  void compare_bits(const AllReduceCase& c, AllReduceModel& model) const {
    AllReduceCandidate& candidate = model.candidate;
    std::vector<Bytes> allowed;
    model.run(c, allowed);
    const std::size_t all = ranks_ * c.elements;
    if (allowed.empty()) {
      if (candidate.mismatches == 0) {
        candidate.first_mismatch = "it does not take " + counted(c.elements, "element");
      }
      candidate.mismatches += all;
    }
    const std::size_t unit = size_of(dtype());
    // Most of most outputs is right: stretches that are equal to one tensor cost little.
    constexpr std::size_t kStretch = 256;
    for (std::size_t at = 0; at < all && !allowed.empty(); at += kStretch) {
      const std::size_t stretch = std::min(kStretch, all - at);
      const bool equal = std::any_of(allowed.begin(), allowed.end(), [&](const Bytes& tensor) {
        return std::memcmp(&tensor[at * unit], &c.outputs[at * unit], stretch * unit) == 0;
      });
      if (!equal) compare_elements(c, allowed, at, stretch, candidate);
    }
  }

  std::size_t length_of(const AllReduceCase& c) const {
    return static_cast<std::size_t>(&c - cases_.data()) / std::size(kInputs);
  }

  void compare_elements(const AllReduceCase& c, const std::vector<Bytes>& allowed,
                        std::size_t begin, std::size_t count, AllReduceCandidate& candidate) const {
    for (std::size_t at = begin; at < begin + count; ++at) {
      if (is_allowed(c, allowed, at)) continue;
      const std::uint32_t expected = magnitude(dtype(), bits_at(dtype(), allowed[0], at));
      const std::uint32_t got = magnitude(dtype(), bits_at(dtype(), c.outputs, at));
      candidate.zero_mismatches += expected == 0 && got == 0;
      candidate.not_finite_mismatches += std::max(expected, got) >= infinity(dtype());
      if (candidate.mismatches++ != 0) continue;
      candidate.first_mismatch = mismatch_text(c, allowed[0], at) + ", " + c.where();
    }
  }

  std::string mismatch_text(const AllReduceCase& c, const Bytes& right, std::size_t at) const {
    return fmt::format("rank {}, index {}: expected {}, got {}, of {}", at / c.elements,
                       at % c.elements, element_text(dtype(), bits_at(dtype(), right, at)),
                       element_text(dtype(), bits_at(dtype(), c.outputs, at)),
                       addends_of(c, at % c.elements));
  }

  bool is_allowed(const AllReduceCase& c, const std::vector<Bytes>& allowed, std::size_t at) const {
    const std::uint32_t bits = bits_at(dtype(), c.outputs, at);
    return std::ranges::any_of(allowed, [&](const Bytes& tensor) {
      return same(dtype(), bits, bits_at(dtype(), tensor, at));
    });
  }

  /// The values that an element is the sum of: "0.5 + -0.25".
  std::string addends_of(const AllReduceCase& c, std::size_t index) const {
    constexpr std::size_t kMost = 8;
    std::string text;
    for (std::size_t rank = 0; rank < std::min(ranks_, kMost); ++rank) {
      text += rank == 0 ? "" : " + ";
      text += value_text(dtype(), bits_at(dtype(), c.inputs.rank_bytes(rank), index));
    }
    return ranks_ > kMost ? text + " + ..." : text;
  }

  void compare_ranks(const AllReduceCase& c) {
    const std::size_t bytes = c.elements * size_of(dtype());
    if (std::memcmp(c.outputs.data(), &c.outputs[bytes], (ranks_ - 1) * bytes) == 0) return;
    for (std::size_t i = 0; i < c.elements; ++i) {
      // Most ranks are taken to be right, and the rank with the rarest bits is named.
      std::size_t odd = 0;
      std::size_t fewest = ranks_ + 1;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        std::size_t equal = 0;
        for (std::size_t other = 0; other < ranks_; ++other) {
          if (same(dtype(), bits_at(dtype(), c.outputs, rank * c.elements + i),
                   bits_at(dtype(), c.outputs, other * c.elements + i))) {
            ++equal;
          }
        }
        if (equal < fewest) {
          fewest = equal;
          odd = rank;
        }
      }
      if (fewest == ranks_) continue;
      report_.ranks_identical = false;
      const std::uint32_t bits = bits_at(dtype(), c.outputs, odd * c.elements + i);
      find("ranks",
           fmt::format(
               "ranks differ: index {} is {} on rank {}, and something else on {} of {} ranks, {}",
               i, element_text(dtype(), bits), odd, ranks_ - fewest, ranks_, c.where()));
      return;
    }
  }

  void find_untouched(const AllReduceCase& c, const std::vector<std::vector<bool>>& held,
                      const ExactSum& sum) {
    const std::vector<double> results = to_double(dtype(), c.outputs);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      // In place, an element may rightly stay as it was: the others added nothing.
      std::size_t untouched = 0;
      bool should_change = false;
      std::size_t first = c.elements;
      bool all_zero = true;
      bool sum_is_zero = true;
      for (std::size_t i = 0; i < c.elements; ++i) {
        const std::uint32_t bits = bits_at(dtype(), c.outputs, rank * c.elements + i);
        all_zero &= bits == 0;
        sum_is_zero &= sum.values[i] == 0 || !std::isfinite(sum.values[i]);  // NaN has a finding
        if (!held[rank][i]) continue;
        ++untouched;
        first = std::min(first, i);
        const double expected = rounded(sum.values[i]);
        should_change |= std::isfinite(expected) && expected != results[rank * c.elements + i];
      }
      // One value may be coded as zero.
      if (all_zero && !sum_is_zero && c.elements > 1) {
        find("zero", fmt::format("the output is all zero: rank {}, {}", rank, c.where()));
      }
      if (untouched == 0) continue;
      if (request().in_place) {
        if (untouched == c.elements && c.elements > 8 && should_change) {
          find("untouched",
               fmt::format("the tensor is left as it was: rank {}, {}", rank, c.where()));
        }
      } else {
        find("untouched",
             fmt::format("the output is not written: rank {}, {} of {} elements, from index {}, {}",
                         rank, untouched, c.elements, first, c.where()));
      }
    }
  }

  double rounded(double value) const {
    double result = 0;
    with_arithmetic(dtype(), false, [&]<class A>(A) {
      result = static_cast<double>(A::to_float(A::from_float(rounded_for(dtype(), value))));
    });
    return result;
  }

  void add_errors(const AllReduceCase& c, const ExactSum& sum) {
    ErrorSums& sums = errors_[c.kind - kInputs];
    const std::vector<double> results = to_double(dtype(), c.outputs);
    for (std::size_t i = 0; i < c.elements; ++i) {
      const bool finite = std::isfinite(rounded(sum.values[i]));
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const double result = results[rank * c.elements + i];
        if (!finite) {
          ++sums.non_finite;
          sums.made_finite += std::isfinite(result);
          continue;
        }
        ++sums.elements;
        if (!std::isfinite(result)) {
          ++sums.overflowed;
          continue;
        }
        const double error = result - sum.values[i];
        sums.max = std::max(sums.max, std::abs(error));
        sums.error += error;
        sums.error2 += error * error;
        sums.signal2 += sum.values[i] * sum.values[i];
      }
    }
  }

  /// Adds a case to the least squares of result = sum over ranks of weight * input.
  void add_weights(const AllReduceCase& c, const ExactSum& sum) {
    const std::size_t n = c.elements;
    const std::vector<double> x = to_double(dtype(), c.inputs.bytes());
    const std::vector<double> results = to_double(dtype(), c.outputs);
    std::vector<double> mean(n);
    for (std::size_t at = 0; at < results.size(); ++at) {
      const double result = std::isfinite(results[at]) ? results[at] : sum.values[at % n];
      mean[at % n] += result / static_cast<double>(ranks_);
    }
    const auto product = [n](const double* u, const double* v) {
      return std::inner_product(u, u + n, v, 0.0);
    };
    result_square_ += product(mean.data(), mean.data());
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      result_products_[rank] += product(&x[rank * n], mean.data());
      for (std::size_t other = 0; other <= rank; ++other) {
        products_[rank * ranks_ + other] += product(&x[rank * n], &x[other * n]);
      }
    }
  }

  double product_of(std::size_t a, std::size_t b) const {
    return products_[std::max(a, b) * ranks_ + std::min(a, b)];
  }

  /// The weights, by Gauss's elimination; those that few elements do not determine stay near 1.
  std::vector<double> weights() const {
    constexpr double kTowardsOne = 1e-9;
    std::vector<double> left(ranks_ * ranks_);
    std::vector<double> right = result_products_;
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t k = 0; k < ranks_; ++k) {
        left[r * ranks_ + k] = product_of(r, k);
        right[r] -= product_of(r, k);  // for weights - 1
      }
      left[r * ranks_ + r] +=
          std::max(kTowardsOne * product_of(r, r), std::numeric_limits<double>::min());
    }
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t below = r + 1; below < ranks_; ++below) {
        const double factor = left[below * ranks_ + r] / left[r * ranks_ + r];
        for (std::size_t k = r; k < ranks_; ++k) {
          left[below * ranks_ + k] -= factor * left[r * ranks_ + k];
        }
        right[below] -= factor * right[r];
      }
    }
    for (std::size_t r = ranks_; r-- > 0;) {
      for (std::size_t k = r + 1; k < ranks_; ++k) right[r] -= left[r * ranks_ + k] * right[k];
      right[r] /= left[r * ranks_ + r];
    }
    for (double& weight : right) weight += 1;
    return right;
  }

  /// The factor by which the result is the sum, if it is one: also of a result that is next to nothing beside the sum.
  std::optional<double> factor_of_sum() const {
    double of_result = 0;
    double of_sum = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      of_result += result_products_[r];
      for (std::size_t k = 0; k < ranks_; ++k) of_sum += product_of(r, k);
    }
    const double factor = of_result / of_sum;
    const bool is_explained = factor * of_result > 0.5 * result_square_;
    if (!(std::abs(factor - 1) > 0.25) || (std::abs(factor) <= 0.05 && !is_explained)) return {};
    for (const double weight : report_.contributions) {
      if (!(std::abs(weight - factor) < std::max(0.25 * std::abs(factor), 1e-6))) return {};
    }
    return factor;
  }

  // ---- weights of ranks in the parts that ranks own

  /// The rank that has an element in its part, if ranks own it so.
  struct PartLayout {
    std::string words;
    std::size_t tile = 0;    ///< ranks own tiles of so many elements in turn; 0: an N-th each
    bool by_reader = false;  ///< every rank makes its own result
  };

  std::vector<PartLayout> part_layouts() const {
    std::vector<PartLayout> all = {
        {fmt::format("rank r owns the r-th of {} parts of the tensor", ranks_)},
        {.words = "every rank makes its own result", .by_reader = true}};
    for (std::size_t tile = 1; tile <= 8192; tile *= 2) {
      all.push_back({tile == 1 ? std::string("ranks own elements in turn")
                               : fmt::format("ranks own tiles of {} elements in turn", tile),
                     tile});
    }
    return all;
  }

  /// [part][rank]: how often a contribution counts, and how sure that is.
  struct PartWeights {
    std::vector<std::vector<double>> weight, deviation;
    double explained = 0;  ///< part of the squared error
    bool is_flagged = false;
  };

  /// Gaussian inputs of different ranks are all but orthogonal, also those of a part.
  std::optional<PartWeights> weights_in(const PartLayout& layout, const AllReduceCase& c,
                                        const std::vector<double>& x,
                                        const std::vector<double>& errors) const {
    constexpr std::size_t kLeast = 48;  // elements of a part
    const std::size_t n = c.elements;
    std::vector<std::vector<double>> products(ranks_, std::vector<double>(ranks_));
    auto norms = products;
    std::vector<double> squares(ranks_), counts(ranks_);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t part = 0; part < ranks_; ++part) {
        const bool is_here = layout.by_reader ||
                             part == (layout.tile == 0 ? i * ranks_ / n : i / layout.tile % ranks_);
        if (!is_here) continue;
        double error = 0;
        if (layout.by_reader) {
          error = errors[part * n + i];
        } else {
          for (std::size_t r = 0; r < ranks_; ++r) error += errors[r * n + i];
          error /= static_cast<double>(ranks_);
        }
        squares[part] += error * error;
        counts[part] += 1;
        for (std::size_t r = 0; r < ranks_; ++r) {
          const double value = x[r * n + i];
          products[part][r] += error * value;
          norms[part][r] += value * value;
        }
      }
    }
    PartWeights weights;
    std::vector<double> sorted;
    for (std::size_t part = 0; part < ranks_; ++part) {
      if (counts[part] < kLeast) return std::nullopt;
      std::vector<double>& weight = weights.weight.emplace_back();
      std::vector<double>& deviation = weights.deviation.emplace_back();
      for (std::size_t r = 0; r < ranks_; ++r) {
        const double by = products[part][r] / norms[part][r];
        weight.push_back(1 + by);
        deviation.push_back(std::sqrt(squares[part] / counts[part] / norms[part][r]));
        weights.explained += by * products[part][r];
        sorted.push_back(1 + by);
      }
    }
    std::ranges::sort(sorted);
    const double median = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
    for (std::size_t part = 0; part < ranks_; ++part) {
      for (std::size_t r = 0; r < ranks_; ++r) {
        constexpr double kSure = 6;
        const double weight = weights.weight[part][r];
        const double least = std::max(0.25, kSure * weights.deviation[part][r]);
        weights.is_flagged |=
            std::abs(weight - 1) > least && (std::abs(weight - median) > 0.25 || ranks_ == 2);
      }
    }
    return weights;
  }

  static std::string counting(double weight) {
    if (std::abs(weight) < 0.15) return "is missing";
    if (std::abs(weight - 2) < 0.2) return "counts twice";
    return fmt::format("counts {} times", times(weight));
  }
  /// Two digits behind the point, or three that say something.
  static std::string times(double factor) {
    return fmt::format(fmt::runtime(std::abs(factor) < 0.05 ? "{:.3g}" : "{:.2f}"), factor);
  }

  /// An owner's use of contributions, where it is the same for all: by how many ranks they are behind its own.
  std::string by_distance(const PartWeights& weights) const {
    std::vector<double> means(ranks_);
    for (std::size_t by = 0; by < ranks_; ++by) {
      for (std::size_t part = 0; part < ranks_; ++part) {
        means[by] += weights.weight[part][(part + by) % ranks_] / static_cast<double>(ranks_);
      }
      for (std::size_t part = 0; part < ranks_; ++part) {
        const std::size_t r = (part + by) % ranks_;
        const double far = std::abs(weights.weight[part][r] - means[by]);
        if (far > std::max(0.25, 4 * weights.deviation[part][r])) return {};
      }
    }
    std::vector<std::string> words;
    const auto is_off = [&](std::size_t by) { return std::abs(means[by] - 1) > 0.25; };
    if (is_off(0)) words.push_back("its own contribution " + counting(means[0]));
    double of_others = 0;
    for (std::size_t by = 1; by < ranks_; ++by) {
      of_others += means[by] / static_cast<double>(ranks_ - 1);
    }
    bool others_are_off = ranks_ > 2 && std::abs(of_others - 1) > 0.25;
    for (std::size_t by = 1; by < ranks_; ++by) {
      others_are_off &= std::abs(means[by] - of_others) < 0.4;
    }
    if (others_are_off) {
      words.push_back("each of the others' contributions " + counting(of_others));
    }
    for (std::size_t by = 1; by < ranks_ && !others_are_off; ++by) {
      if (!is_off(by)) continue;
      const std::string whose = ranks_ == 2 ? "the other rank's"
                                : by == 1   ? "that of the rank behind it"
                                : by == ranks_ - 1
                                    ? "that of the rank before it"
                                    : fmt::format("that of the rank {} behind it", by);
      words.push_back(fmt::format("{} {}", whose, counting(means[by])));
    }
    return fmt::format("{}{}", words.empty() ? "" : "in what each rank adds, ",
                       fmt::join(words, ", and "));
  }

  /// One factor for a rank in all parts is a matter of the whole tensor.
  bool is_the_same_in_all_parts(const PartWeights& weights) const {
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t part = 1; part < ranks_; ++part) {
        const double far = std::abs(weights.weight[part][r] - weights.weight[0][r]);
        const double deviation = std::hypot(weights.deviation[part][r], weights.deviation[0][r]);
        if (far > std::max(0.25, 4 * deviation)) return false;
      }
    }
    return true;
  }

  /// Uses the longest Gaussian tensor: a contribution that counts too often, or not, in its owner's part only is nearly right on an
  /// average over the tensor.
  bool find_weights_of_parts() {
    const AllReduceCase* longest = nullptr;
    for (const AllReduceCase& c : cases_) {
      if (c.kind == &kInputs[0] && (longest == nullptr || c.elements > longest->elements))
        longest = &c;
    }
    const std::vector<double> x = to_double(dtype(), longest->inputs.bytes());
    std::vector<double> errors = to_double(dtype(), longest->outputs);
    const ExactSum sum = exact_sum(dtype(), ranks_, longest->inputs.bytes());
    for (std::size_t at = 0; at < errors.size(); ++at) {
      errors[at] -= sum.values[at % longest->elements];
      if (!std::isfinite(errors[at]) || std::abs(errors[at]) > 1e6) return false;
    }
    std::optional<PartWeights> best;
    std::string where;
    for (const PartLayout& layout : part_layouts()) {
      auto weights = weights_in(layout, *longest, x, errors);
      if (!weights || !weights->is_flagged || is_the_same_in_all_parts(*weights)) continue;
      // A reader's error is that of one output, others' are means: what is the same on all ranks is of parts.
      if (layout.by_reader) weights->explained /= static_cast<double>(ranks_);
      if (best && weights->explained <= best->explained * 1.05) continue;
      best = std::move(weights);
      where = layout.words;
    }
    if (!best) return false;
    std::string words = by_distance(*best);
    if (words.empty()) {
      constexpr std::size_t kMost = 4;
      std::vector<std::string> single;
      for (std::size_t part = 0; part < ranks_; ++part) {
        std::vector<std::size_t> off;
        std::set<std::string> how;
        for (std::size_t r = 0; r < ranks_; ++r) {
          const double weight = best->weight[part][r];
          how.insert(counting(weight));
          if (std::abs(weight - 1) > std::max(0.25, 6 * best->deviation[part][r])) off.push_back(r);
        }
        if (off.size() == ranks_ && how.size() == 1) {
          single.push_back(
              fmt::format("every contribution {} in what rank {} adds", *how.begin(), part));
          continue;
        }
        for (const std::size_t r : off) {
          single.push_back(fmt::format("rank {}'s contribution {} in what rank {} adds", r,
                                       counting(best->weight[part][r]), part));
        }
      }
      const bool are_more = single.size() > kMost;
      if (are_more) single.resize(kMost);
      words = fmt::format("{}{}", fmt::join(single, ", "), are_more ? ", ..." : "");
    }
    find("contribution in parts", fmt::format("{}, if {} ({})", words, where, longest->where()));
    return true;
  }

  /// Whether a codec leaves most of a tensor as it is, as the one does by which it was encoded last.
  bool leaves(const Codec& codec, std::span<const std::byte> tensor) const {
    const std::size_t elements = tensor.size() / size_of(dtype());
    Bytes wire(codec.wire_bytes(dtype(), elements));
    if (wire.size() >= tensor.size()) return false;
    Bytes again(tensor.size());
    codec.encode(dtype(), tensor, wire);
    codec.decode(dtype(), wire, again);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      changed += bits_at(dtype(), again, i) != bits_at(dtype(), tensor, i) ? 1 : 0;
    }
    return changed * 8 <= elements;
  }

  /// Without a claim any codec may be in it, but none that loses more than all that are listed: of those that encode sums again if
  /// these were, and else of those that do not.
  void find_below() {
    const AllReduceError& gaussian = report_.errors[0];
    if (!gaussian.sqnr_db || *gaussian.sqnr_db > kAlways || *gaussian.sqnr_db <= 0) return;
    std::vector<const AllReduceCase*> some;
    constexpr std::size_t kMost = 32768;  // elements of all ranks
    std::size_t elements = 0;
    for (const AllReduceCase& c : cases_) {
      if (c.kind != &kInputs[0] || (!some.empty() && elements + c.elements * ranks_ > kMost))
        continue;
      some.push_back(&c);
      elements += c.elements * ranks_;
    }
    std::ranges::sort(some, std::greater(), &AllReduceCase::elements);
    std::vector<AllReduceModel> models = listed_models(request());
    std::vector<double> sqnr(models.size(), INFINITY);
    const auto of_one_rank = [&](const Bytes& outputs) {
      return std::span(outputs).first(some[0]->elements * size_of(dtype()));
    };
    const bool is_encoded = std::ranges::any_of(models, [&](const AllReduceModel& model) {
      return leaves(*model.way->codec, of_one_rank(some[0]->outputs));
    });
    parallel_for(models.size(), 0, [&](unsigned, std::size_t m) {
      double error2 = 0;
      double signal2 = 0;
      for (const AllReduceCase* c : some) {
        std::vector<Bytes> allowed;
        models[m].run(*c, allowed);
        if (allowed.empty()) return;
        if (c == some[0] && leaves(*models[m].way->codec, of_one_rank(allowed[0])) != is_encoded) {
          return;
        }
        add_squares(*c, allowed[0], error2, signal2);
      }
      if (error2 > 0) sqnr[m] = 10 * std::log10(signal2 / error2);
    });
    double error2 = 0;
    double signal2 = 0;
    for (const AllReduceCase* c : some) add_squares(*c, c->outputs, error2, signal2);
    const double own = 10 * std::log10(signal2 / error2);
    const auto lowest = static_cast<std::size_t>(std::ranges::min_element(sqnr) - sqnr.begin());
    constexpr double kMargin = 0.5;  // for another order of summation
    if (own > sqnr[lowest] - kMargin) return;
    find("below",
         fmt::format(
             "the result is not the sum: an SQNR of {:.2f} dB on Gaussian inputs is below that of "
             "every listed codec on {} ranks whose sums are {}encoded again (the lowest is {:.2f} "
             "dB, {})",
             own, ranks_, is_encoded ? "" : "not ", sqnr[lowest], models[lowest].candidate.name));
  }
  void add_squares(const AllReduceCase& c, std::span<const std::byte> outputs, double& error2,
                   double& signal2) const {
    const ExactSum sum = exact_sum(dtype(), ranks_, c.inputs.bytes(), 1);
    const std::vector<double> values = to_double(dtype(), outputs);
    for (std::size_t at = 0; at < values.size(); ++at) {
      const double exact = sum.values[at % c.elements];
      error2 += (values[at] - exact) * (values[at] - exact);
      signal2 += exact * exact;
    }
  }

  void find_general_mistakes() {
    for (std::size_t k = 0; k < std::size(kInputs); ++k) {
      const ErrorSums& sums = errors_[k];
      AllReduceError error{.inputs = kInputs[k].name,
                           .elements = sums.elements,
                           .max_abs_error = sums.max,
                           .overflowed = sums.overflowed,
                           .non_finite = sums.non_finite,
                           .made_finite = sums.made_finite};
      if (sums.elements != 0) {
        error.rmse = std::sqrt(sums.error2 / static_cast<double>(sums.elements));
      }
      if (sums.error2 > 0 && sums.signal2 > 0) {
        error.sqnr_db = 10 * std::log10(sums.signal2 / sums.error2);
      }
      report_.errors.push_back(error);
    }
    const AllReduceError& gaussian = report_.errors[0];
    if (gaussian.sqnr_db && *gaussian.sqnr_db <= 0) {
      find("far", fmt::format("the result is not the sum: its error is as large as the sum itself "
                              "(SQNR {:.1f} dB on Gaussian inputs)",
                              std::round(*gaussian.sqnr_db * 10) / 10 + 0.0));
    }
    // Roundings are as often up as down; of so many elements a mean of this size is none of theirs.
    constexpr double kEnoughForAMean = 1000;
    const double mean =
        errors_[0].error / std::max<double>(1, static_cast<double>(gaussian.elements));
    if (static_cast<double>(gaussian.elements) > kEnoughForAMean * static_cast<double>(ranks_) &&
        std::abs(mean) > 0.25 * gaussian.rmse) {
      find("bias",
           fmt::format("results are too {} in the mean, by {:.3g}, where errors are {:.3g} (RMS)",
                       mean > 0 ? "high" : "low", std::abs(mean), gaussian.rmse));
    }
    if (gaussian.overflowed != 0) {
      find("overflowed", fmt::format("NaN or infinite on Gaussian inputs: {}",
                                     counted(gaussian.overflowed, "result")));
    }
    if (report_.errors[2].made_finite * 2 > report_.errors[2].non_finite) {
      find("nan", fmt::format("NaN and infinities are lost: finite results for {} of {} such sums",
                              report_.errors[2].made_finite, report_.errors[2].non_finite));
    }
    report_.contributions = weights();
    const std::optional<double> factor = factor_of_sum();
    if (factor) {
      const bool is_average = std::abs(*factor * static_cast<double>(ranks_) - 1) < 0.2;
      find("scaled", is_average ? "the result is the average of the ranks, not their sum"
                                : fmt::format("the result is {} times the sum", times(*factor)));
    }
    if (find_weights_of_parts()) {
      forget("scaled");  // which it is on an average
      return;
    }
    for (std::size_t rank = 0; rank < ranks_ && !factor; ++rank) {
      const double weight = report_.contributions[rank];
      // A few elements say nothing for sure; a weight that is no small number is of other errors, as of data that are none.
      constexpr double kEnough = 1000;
      constexpr double kMost = 64;
      if (product_of(rank, rank) > kEnough && std::abs(weight - 1) > 0.25 &&
          std::abs(weight) < kMost) {
        find(fmt::format("contribution {}", rank),
             fmt::format("rank {}'s contribution {}", rank, counting(weight)));
      }
    }
  }

  // ---- what it is

  void find_what_it_is() {
    // A model that fits one length may fail in another, which is then looked at, too.
    std::optional<std::size_t> nearest;
    std::vector<std::size_t> lengths;
    if (request().claim.empty() && find_exact() == nullptr) {
      if (is_far_off()) add_listed();
      if (find_exact() == nullptr) find_below();
    }
    while (!is_of_no_sum() && find_exact(false) == nullptr && !find_ranges()) {
      const std::size_t more = length_to_search_on();
      if (std::ranges::find(lengths, more) != lengths.end()) break;
      lengths.push_back(more);
      auto model = nearest_model(
          request(), models_, cases_[more * std::size(kInputs)],
          [&](const auto& tried, std::uint64_t) { return coarse_distance(tried, more); },
          [&](const auto& tried, std::uint64_t limit) { return distance(tried, lengths, limit); });
      if (!model) break;
      nearest = add_nearest(std::move(*model));
    }
    if (!nearest && request().claim.empty() && find_exact() == nullptr) nearest = mistaken_sum();
    for (const AllReduceModel& model : models_) report_.candidates.push_back(model.candidate);
    if (!request().claim.empty()) find_claim(nearest);
    if (nearest && request().claim.empty() && find_exact() == nullptr) {
      find_nearest(models_[*nearest]);
    }
    if (!odd_.empty()) find_why_calls_differ();
    // An owner that keeps its sum is no mistake of who says so, or of what is known to be made so. An order of summation does not
    // say what each rank ends with.
    const AllReduceModel* fits = request().claim.empty() ? find_exact() : &claimed();
    if (fits == nullptr || fits->candidate.mismatches != 0) return;
    find_candidates_like(*fits);
    if (fits->way != nullptr) {
      forget("ranks");
      // Codecs that are far off by their nature, as those of two bits on many ranks, are no mistake.
      const std::vector<std::string> kinds = found_kinds_;
      for (const std::string& kind : kinds) {
        const bool is_of_errors = kind == "far" || kind == "nan" || kind == "below" ||
                                  kind == "scaled" || kind == "bias" ||
                                  kind.starts_with("contribution");
        if (is_of_errors) forget(kind);
      }
      find_orders_like(*fits);
    }
  }

  static constexpr double kAlways = 15;  // dB: some codec is below that at every world size

  bool is_far_off() const {
    const auto sqnr = report_.errors[0].sqnr_db;
    return (sqnr && *sqnr <= kAlways) || is_of_no_sum();
  }

  /// Adds those of all listed codecs that have every bit of a short tensor, to be compared with all.
  void add_listed() {
    constexpr std::size_t kEnough = 64;
    const AllReduceCase* chosen = nullptr;
    for (const AllReduceCase& c : cases_) {
      if (c.kind != &kInputs[0]) continue;
      const bool is_better =
          chosen == nullptr ||
          (chosen->elements < kEnough ? c.elements > chosen->elements
                                      : c.elements >= kEnough && c.elements < chosen->elements);
      if (is_better) chosen = &c;
    }
    std::vector<AllReduceModel> models = listed_models(request());
    std::vector<unsigned char> equal(models.size());
    parallel_for(models.size(), 0, [&](unsigned, std::size_t m) {
      equal[m] = has_every_bit(*chosen, models[m]) ? 1 : 0;
    });
    for (std::size_t m = 0; m < models.size(); ++m) {
      if (equal[m] != 0) add_nearest(std::move(models[m]));
    }
  }

  /// Other candidates with the same bits, after those that only zeros and what is not finite tell apart.
  void find_candidates_like(const AllReduceModel& exact) {
    std::vector<std::string>& found = report_.not_told_apart;
    for (const AllReduceCandidate& c : report_.candidates) {
      if (!c.mistake.empty() || !c.differs_only_in_special()) continue;
      found.push_back(
          fmt::format("it is {} (but {})", c.name, c.count_text(report_.compared_elements)));
    }
    for (const std::string& name : report_.exact_as()) {
      if (name != exact.candidate.name) found.push_back("it is " + name);
    }
  }

  /// Which other orders of additions would have given the same bits.
  void find_orders_like(const AllReduceModel& exact) {
    std::vector<AllReduceModel> models = other_orders(*exact.way, dtype(), ranks_);
    std::vector<unsigned char> equal(models.size());
    parallel_for(models.size(), 0, [&](unsigned, std::size_t m) {
      equal[m] = std::ranges::all_of(cases_, [&](const AllReduceCase& c) {
        compare_with(c, models[m]);
        return models[m].candidate.mismatches == 0;
      });
    });
    for (std::size_t m = 0; m < models.size(); ++m) {
      if (equal[m] != 0) report_.not_told_apart.push_back(models[m].candidate.mistake);
    }
  }

  /// A result that is no sum of plain values may be one with a mistake.
  std::optional<std::size_t> mistaken_sum() {
    if (found_kinds_.empty() || is_found("zero") || is_found("untouched")) return std::nullopt;
    const std::vector<std::size_t> lengths = {length_to_search_on()};
    auto model = nearest_mistaken_sum(request(), [&](const auto& tried, std::uint64_t limit) {
      return distance(tried, lengths, limit);
    });
    if (!model) return std::nullopt;
    const std::size_t at = add_nearest(std::move(*model));
    if (models_[at].candidate.mismatches == 0) return at;
    models_.pop_back();  // it is far from what was seen
    return std::nullopt;
  }

  bool is_found(const std::string& kind) const {
    return std::ranges::find(found_kinds_, kind) != found_kinds_.end();
  }

  // ---- why a call gives what another did not

  struct OddCall {
    std::size_t index = 0;  ///< its case's
    int run = 0;
    std::optional<std::size_t> before = {};  ///< the case of the call before
    Bytes outputs = {};
  };

  bool has_every_bit(const AllReduceCase& c, AllReduceModel model) const {
    model.candidate.mismatches = 0;
    compare_bits(c, model);
    return model.candidate.mismatches == 0;
  }

  /// Models that were right in the first call, or would have been.
  std::vector<AllReduceModel> bases_of_calls() const {
    if (!request().claim.empty()) return {claimed()};
    std::vector<AllReduceModel> bases;
    if (const AllReduceModel* exact = find_exact(); exact != nullptr && exact->way)
      bases.push_back(*exact);
    for (AllReduceModel& plain : plain_models(request())) bases.push_back(std::move(plain));
    return bases;
  }

  /// The mistakes that give every bit of a call: of the whole, else of a part of the elements.
  std::vector<std::string> mistakes_of(const AllReduceCase& wrong_one,
                                       const AllReduceModel& base) const {
    std::vector<std::string> names;
    for (const bool only_in_a_part : {false, true}) {
      for (const AllReduceModel& wrong :
           mistaken_sums(*base.way, dtype(), ranks_, only_in_a_part)) {
        // One of several orders is an order of arrival, which is told below.
        const bool is_of_last_bits = wrong.must_be_exact && !only_in_a_part;
        if (is_of_last_bits || !has_every_bit(wrong_one, wrong)) continue;
        if (std::ranges::find(names, wrong.candidate.mistake) == names.end())
          names.push_back(wrong.candidate.mistake);
      }
      if (!names.empty()) break;
    }
    return names;
  }

  void find_why_calls_differ() {
    // Values that a NaN hides fit many mistakes: the call that the fewest fit says which.
    std::size_t fewest = SIZE_MAX;
    std::string found;
    for (const OddCall& odd : odd_) {
      const AllReduceCase& first = cases_[odd.index];
      AllReduceCase c = first;
      c.outputs = odd.outputs;
      c.before = odd.before ? &cases_[*odd.before] : nullptr;
      for (const AllReduceModel& base : bases_of_calls()) {
        if (base.way == nullptr) continue;
        // The mistake may be in this call, or in the first one.
        const bool is_right = has_every_bit(c, base);
        if (is_right && has_every_bit(first, base)) continue;
        const AllReduceCase& wrong_one = is_right ? first : c;
        const std::vector<std::string> names = mistakes_of(wrong_one, base);
        if (names.empty() || names.size() >= fewest) continue;
        fewest = names.size();
        constexpr std::size_t kMostNames = 3;
        const std::size_t said = std::min(fewest, kMostNames);
        found = fmt::format(
            "{}{}: so it is in run {} with {}; without that it is {}",
            fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(said), "; or "),
            said < fewest ? fmt::format("; or one of {} others", fewest - said) : "",
            is_right ? 1 : odd.run + 1, c.where(), base.candidate.name);
      }
      if (fewest == 1) break;
    }
    if (!found.empty()) return find("odd call", found);
    for (const OddCall& odd : odd_) {
      AllReduceCase c = cases_[odd.index];
      c.outputs = odd.outputs;
      for (const AllReduceModel& base : bases_of_calls()) {
        if (base.way == nullptr || !is_in_any_order(base, c) ||
            !is_in_any_order(base, cases_[odd.index])) {
          continue;
        }
        find("odd call",
             fmt::format(
                 "the order of arrival decides: results that differ from call to call are sums "
                 "of the same contributions in different orders ({})",
                 base.candidate.name));
        return;
      }
    }
  }

  /// Whether every element is the sum in some order.
  bool is_in_any_order(const AllReduceModel& base, const AllReduceCase& c) const {
    if (const auto any = any_order(*base.way, dtype(), ranks_)) return has_every_bit(c, *any);
    constexpr std::size_t kMostOfRanks = 9;
    const bool is_plain = base.way->codec->name() == name_of(dtype());
    // Decoded contributions; what is encoded again is no sum of them.
    const bool is_decoded =
        base.way->parts.algorithm == "one_shot" && !base.way->codec->info().needs_context() &&
        !base.way->codec->info().has_variable_wire && !base.way->codec->info().shares_scales &&
        base.way->parts.sum.own != "exact" && !base.way->parts.sum.decodes_to_fp32;
    if (base.way->named != nullptr || ranks_ > kMostOfRanks || !(is_plain || is_decoded) ||
        base.way->parts.sum.add >= Accumulate::fma) {
      return false;
    }
    std::vector<std::vector<std::byte>> contributions;
    for (std::size_t r = 0; r < ranks_; ++r) {
      const auto tensor = c.inputs.rank_bytes(r);
      contributions.emplace_back(tensor.begin(), tensor.end());
      if (is_plain) continue;
      std::vector<std::byte> wire(base.way->codec->wire_bytes(dtype(), c.elements));
      base.way->codec->encode(dtype(), tensor, wire);
      base.way->codec->decode(dtype(), wire, contributions.back());
    }
    const bool native = base.way->parts.sum.add == Accumulate::native;
    constexpr std::size_t kElements = 256;
    for (std::size_t i = 0; i < std::min(c.elements, kElements); ++i) {
      std::vector<float> x;
      for (std::size_t r = 0; r < ranks_; ++r) {
        x.push_back(load_value(dtype(), contributions[r], i));
      }
      const std::set<float> sums = sums_in_all_orders(x, native);
      for (std::size_t r = 0; r < ranks_; ++r) {
        const float got = load_value(dtype(), c.outputs, r * c.elements + i);
        if (std::isfinite(got) && !sums.contains(got)) return false;
      }
    }
    return true;
  }

  /// All possible sums of each subset of the contributions, then those of all, rounded.
  std::set<float> sums_in_all_orders(const std::vector<float>& x, bool native) const {
    std::vector<std::set<float>> sums(std::size_t{1} << x.size());
    sums[0] = {0.0f};
    for (std::size_t subset = 0; subset + 1 < sums.size(); ++subset) {
      for (std::size_t r = 0; r < x.size(); ++r) {
        if ((subset >> r & 1) != 0) continue;
        for (const float sum : sums[subset]) {
          const float more = native ? static_cast<float>(rounded(sum + x[r])) : sum + x[r];
          if (!std::isnan(more)) sums[subset | std::size_t{1} << r].insert(more);
        }
      }
    }
    std::set<float> all;
    for (const float sum : sums.back()) all.insert(static_cast<float>(rounded(sum)));
    return all;
  }

  /// Findings say that it is no sum, or another one in every call: then there is nothing that it could be. A result far off may
  /// still be what is claimed, with a mistake.
  bool is_of_no_sum() const {
    if (!request().claim.empty()) return is_found("zero") || is_found("untouched");
    return std::ranges::any_of(found_kinds_, [&](const std::string& kind) {
      return kind == "zero" || kind == "untouched" || kind == "nondeterministic" || kind == "far" ||
             kind == "below" || kind == "scaled" || kind.starts_with("contribution");
    });
  }

  /// A candidate that has every bit, and no mistake.
  const AllReduceModel* find_exact(bool loose = true) const {
    const auto found = std::ranges::find_if(models_, [&](const AllReduceModel& model) {
      return model.candidate.mismatches == 0 && model.candidate.mistake.empty() &&
             (loose || !model.is_loose);
    });
    return found == models_.end() ? nullptr : &*found;
  }

  const AllReduceModel& claimed() const {
    return *std::ranges::find_if(models_, [&](const AllReduceModel& model) {
      return model.candidate.name == request().claim;
    });
  }

  /// Whether every length has a candidate that is exact for it, while none is for all.
  bool find_ranges() {
    AllReduceCheckReport so_far{.request = request()};
    for (const AllReduceModel& model : models_) {
      if (!model.is_loose) so_far.candidates.push_back(model.candidate);
    }
    std::string words;
    for (const AllReduceRange& range : so_far.ranges()) {
      if (range.exact_as.empty()) return false;
      words += fmt::format("{}from {} on {}", words.empty() ? "" : ", ",
                           counted(range.from, "element"), range.exact_as.front());
    }
    find("ranges", "the order of ranks changes with the size: " + words);
    return true;
  }

  /// For which no candidate is exact, neither so short that much fits nor long.
  std::size_t length_to_search_on() const {
    constexpr std::size_t kEnough = 500;
    std::optional<std::size_t> best;
    const auto& lengths = request().lengths;
    for (std::size_t k = 0; k < lengths.size(); ++k) {
      if (std::ranges::any_of(models_, [&](const AllReduceModel& model) {
            return !model.is_loose && model.candidate.mistake.empty() &&
                   model.candidate.mismatches_of_length[k] == 0;
          })) {
        continue;
      }
      const auto rank_of = [&](std::size_t at) {
        return lengths[at] >= kEnough ? lengths[at] : SIZE_MAX - lengths[at];
      };
      if (!best || rank_of(k) < rank_of(*best)) best = k;
    }
    return best.value_or(0);
  }

  /// Elements that differ; those of usual values count most, for a mistake may be another with NaN and infinities.
  std::uint64_t distance(AllReduceModel model, const std::vector<std::size_t>& lengths,
                         std::uint64_t limit) const {
    constexpr std::uint64_t kUsual = 64;
    AllReduceCandidate& candidate = model.candidate;
    candidate.mismatches = 0;
    candidate.gaussian_mismatches = 0;
    std::uint64_t sum = 0;
    if (model.must_be_exact) limit = 1;
    for (const AllReduceCase& c : cases_) {
      const bool counts =
          model.must_be_exact || std::ranges::find(lengths, length_of(c)) != lengths.end();
      if (counts && sum < limit) compare_with(c, model);
      sum = candidate.mismatches + (kUsual - 1) * candidate.gaussian_mismatches;
    }
    return sum;
  }

  /// Shares of Gaussian elements that differ, of a length and of the longest that has few blocks: there a mistake in scales may not
  /// show.
  std::uint64_t coarse_distance(const AllReduceModel& model, std::size_t length) const {
    constexpr std::size_t kFewBlocks = 256;
    const AllReduceCase* few = nullptr;
    for (const AllReduceCase& c : cases_) {
      const bool is_longer = few == nullptr || c.elements > few->elements;
      if (c.kind == &kInputs[0] && c.elements <= kFewBlocks && is_longer) few = &c;
    }
    constexpr std::uint64_t kShares = 1 << 20;
    std::uint64_t sum = 0;
    for (const AllReduceCase& c : cases_) {
      if (c.kind != &kInputs[0] || (length_of(c) != length && &c != few)) continue;
      AllReduceModel copy = model;
      copy.candidate.mismatches = 0;
      compare_with(c, copy);
      sum += copy.candidate.mismatches * kShares / (ranks_ * c.elements);
    }
    return sum;
  }

  /// The same model may be among them: it is compared with all cases only if it is not.
  std::size_t add_nearest(AllReduceModel model) {
    const auto known = std::ranges::find_if(models_, [&](const AllReduceModel& other) {
      return other.candidate.name == model.candidate.name &&
             other.candidate.mistake == model.candidate.mistake;
    });
    if (known != models_.end()) return static_cast<std::size_t>(known - models_.begin());
    for (const AllReduceCase& c : cases_) compare_with(c, model);
    models_.push_back(std::move(model));
    return models_.size() - 1;
  }

  void find_claim(const std::optional<std::size_t>& nearest) {
    const AllReduceModel& claim = claimed();
    if (claim.candidate.mismatches == 0) return;
    std::string text = fmt::format("not {} as claimed: {}; {}", claim.candidate.name,
                                   claim.candidate.count_text(report_.compared_elements),
                                   differences_in_one(claim));
    const AllReduceModel* other = nearest ? &models_[*nearest] : find_exact();
    if (other != nullptr && other != &claim && fits(other->candidate) &&
        explains(other->candidate, claim.candidate)) {
      text += fmt::format("; {} {}", other->candidate.mismatches == 0 ? "it is" : "consistent with",
                          other->candidate.name);
      const std::string why = claim.way && other->way
                                  ? other->way->difference_from(*claim.way, dtype())
                                  : other->candidate.mistake;
      if (!why.empty()) text += ": " + why;
      if (other->candidate.mismatches != 0) text += rest_of(other->candidate);
    }
    text += sqnr_beside(claim);
    find("claim", text);
  }

  void find_nearest(const AllReduceModel& nearest) {
    const AllReduceCandidate& c = nearest.candidate;
    // Another result with so few elements that differ is not made of other parts, but of the same with a mistake.
    constexpr std::uint64_t kAlmost = 10;
    if (!c.mistake.empty() && fits(c)) {
      find("mistake",
           fmt::format("{}: {} {} with this mistake{}{}{}", c.mistake,
                       c.mismatches == 0 ? "it is" : "consistent with", c.name,
                       c.mismatches == 0 ? "" : rest_of(c),
                       nearest.must_be_exact ? "; " + differences_in_one(right_of(nearest)) : "",
                       sqnr_beside(nearest)));
    } else if (c.mistake.empty() && c.mismatches != 0 &&
               c.mismatches * kAlmost <= report_.compared_elements) {
      find("almost",
           fmt::format("almost {}, but {}; {}", c.name, c.count_text(report_.compared_elements),
                       differences_in_one(nearest)));
    }
  }

  /// So few elements are left that the rest is a matter of first blocks and last bits; of a mistake, with usual values at least.
  bool fits(const AllReduceCandidate& candidate) const {
    constexpr std::uint64_t kNearly = 50;
    const std::uint64_t gaussian = report_.compared_elements / std::size(kInputs);
    return candidate.mismatches * kNearly <= report_.compared_elements ||
           (!candidate.mistake.empty() && candidate.gaussian_mismatches * kNearly <= gaussian);
  }
  /// A mistake is one if it explains nearly all that differs from what is claimed.
  static bool explains(const AllReduceCandidate& candidate, const AllReduceCandidate& claim) {
    constexpr std::uint64_t kNearly = 5;
    return candidate.mistake.empty() || candidate.mismatches * kNearly <= claim.mismatches ||
           (claim.gaussian_mismatches != 0 &&
            candidate.gaussian_mismatches * kNearly <= claim.gaussian_mismatches);
  }
  std::string rest_of(const AllReduceCandidate& candidate) const {
    return fmt::format(" ({}, still)", candidate.count_text(report_.compared_elements));
  }

  /// Count, example and place of one call's tensors: the first of 64 elements and more in which a model differs, else the first.
  std::string differences_in_one(const AllReduceModel& model) const {
    constexpr std::size_t kEnough = 64;
    std::string text;
    for (const AllReduceCase& c : cases_) {
      if (!text.empty() && c.elements < kEnough) continue;
      std::vector<Bytes> allowed;
      model.run(c, allowed);
      std::vector<std::size_t> at;
      for (std::size_t i = 0; !allowed.empty() && i < ranks_ * c.elements; ++i) {
        if (!is_allowed(c, allowed, i)) at.push_back(i);
      }
      if (at.empty()) continue;
      text = fmt::format("with {}: {} of {}, first at {}", c.where(), at.size(),
                         ranks_ * c.elements, mismatch_text(c, allowed[0], at[0]));
      if (c.elements < kEnough) continue;
      if (at.front() / c.elements == at.back() / c.elements) {
        text += fmt::format(", only on rank {}", at[0] / c.elements);
      }
      for (std::size_t& each : at) each %= c.elements;
      const auto [first, last] = std::ranges::minmax(at);
      if ((last - first) * 2 >= c.elements) return text;
      return text + (first == last ? fmt::format(", only in element {}", first)
                                   : fmt::format(", only in elements {} to {}", first, last));
    }
    return text.empty() ? model.candidate.first_mismatch : text;
  }

  /// The same without its mistake.
  AllReduceModel right_of(const AllReduceModel& model) const {
    AllReduceModel right = model;
    if (!model.candidate.mistake.empty()) {
      AllReduceWay way = *model.way;
      way.codec = find_codec(way.parts.codec);
      way.mistake.clear();
      right.run = [way, type = dtype()](const AllReduceCase& c, std::vector<Bytes>& allowed) {
        run_way(way, type, c, allowed);
      };
    }
    return right;
  }

  /// Loss by it: its SQNR, and that of the candidate without a mistake.
  std::string sqnr_beside(const AllReduceModel& model) const {
    const AllReduceModel right = right_of(model);
    double error2 = 0, signal2 = 0, own_error2 = 0, own_signal2 = 0;
    for (const AllReduceCase& c : cases_) {
      if (c.kind != &kInputs[0]) continue;
      std::vector<Bytes> allowed;
      right.run(c, allowed);
      if (allowed.empty()) continue;
      add_squares(c, allowed[0], error2, signal2);
      add_squares(c, c.outputs, own_error2, own_signal2);
    }
    const double found = 10 * std::log10(own_signal2 / own_error2);
    if (!std::isfinite(found) || !(error2 > 0) || !(signal2 > 0)) return {};
    return fmt::format("; SQNR {:.2f} dB, of {} {:.2f} dB", found, right.candidate.name,
                       10 * std::log10(signal2 / error2));
  }

  const AllReduce& all_reduce_;
  std::size_t ranks_;
  AllReduceCheckReport report_;
  std::vector<AllReduceModel> models_;
  std::vector<AllReduceCase> cases_;
  /// [case][rank][element]: in every run the output held what was there before.
  std::vector<std::vector<std::vector<bool>>> kept_;
  ErrorSums errors_[std::size(kInputs)];
  double result_square_ = 0;
  std::vector<double> result_products_;  ///< Gaussian results' with each rank's inputs
  std::vector<double> products_;         ///< inputs': [rank][rank or a lower one]
  std::vector<std::string> found_kinds_;
  std::vector<OddCall> odd_;
  std::optional<std::size_t> last_called_;
};

void require_valid(const AllReduceCheckRequest& request) {
  if (request.ranks < 2 || request.ranks > kMostRanks) {
    fail("{}: allowed are 2 to {}", counted(request.ranks, "rank"), kMostRanks);
  }
  if (request.runs < 2 || request.runs > 100) {
    fail("{}: allowed are 2 to 100, for one says nothing about determinism",
         counted(request.runs, "run"));
  }
  for (const std::size_t length : request.lengths) {
    if (length == 0) fail("a length is 0: allowed are positive element counts");
  }
}

}  // namespace

std::string AllReduceCandidate::count_text(std::uint64_t compared) const {
  return fmt::format("{} of {} elements differ{}", mismatches, compared,
                     !differs_only_in_special()   ? ""
                     : not_finite_mismatches == 0 ? ", only in the sign of zero"
                     : zero_mismatches == 0       ? ", only in NaN and infinities"
                                            : ", only in the sign of zero, NaN and infinities");
}

std::vector<std::string> AllReduceCheckReport::exact_as() const {
  std::vector<std::string> names;
  for (const AllReduceCandidate& candidate : candidates) {
    if (candidate.mismatches == 0 && candidate.mistake.empty()) names.push_back(candidate.name);
  }
  return names;
}

std::vector<AllReduceRange> AllReduceCheckReport::ranges() const {
  std::vector<std::size_t> order(request.lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t k) { return request.lengths[k]; });
  std::vector<AllReduceRange> all;
  for (const std::size_t k : order) {
    const std::size_t length = request.lengths[k];
    std::vector<std::string> exact;
    for (const AllReduceCandidate& candidate : candidates) {
      if (candidate.mistake.empty() && candidate.mismatches_of_length[k] == 0) {
        exact.push_back(candidate.name);
      }
    }
    // A range goes on as long as one candidate has every bit, or none has.
    if (!all.empty()) {
      std::vector<std::string> both;
      for (const std::string& name : all.back().exact_as) {
        if (std::ranges::find(exact, name) != exact.end()) both.push_back(name);
      }
      if (!both.empty() || (exact.empty() && all.back().exact_as.empty())) {
        all.back().to = length;
        all.back().exact_as = both;
        continue;
      }
    }
    all.push_back({length, length, exact});
  }
  return all;
}

std::vector<AllReduceCandidate> list_candidates(const AllReduceCheckRequest& request) {
  require_valid(request);
  std::vector<AllReduceCandidate> candidates;
  for (const AllReduceModel& model : models_of(request)) candidates.push_back(model.candidate);
  return candidates;
}

Result<AllReduceCheckReport> check_all_reduce(const AllReduce& all_reduce,
                                              const AllReduceCheckRequest& request) {
  try {
    require_valid(request);
    return Check(all_reduce, request).run();
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
}

// ---------------------------------------------------------------- reports

std::string verdict_text(bool passed, const std::string& claim, int ranks, DType dtype) {
  const bool has_name = std::ranges::count(claim, '/') != 2;
  return fmt::format("{}: {}, {}, {}{}", passed ? "passed" : "failed", counted(ranks, "rank"),
                     name_of(dtype), claim.empty() ? "no claim" : "claim " + claim,
                     has_name ? "" : " (algorithm/codec/sum)");
}

nlohmann::ordered_json to_json(const AllReduceCheckReport& report) {
  using Json = nlohmann::ordered_json;
  Json json = {{"schema", "arlab.judge/1"},
               {"ranks", report.request.ranks},
               {"dtype", name_of(report.request.dtype)},
               {"lengths", report.request.lengths},
               {"runs", report.request.runs},
               {"in_place", report.request.in_place},
               {"seed", report.request.seed},
               {"calls", report.calls},
               {"repeated_calls", report.repeated_calls},
               {"compared_elements", report.compared_elements},
               {"passed", report.findings.empty()},
               {"verdict", verdict_of(report)},
               {"findings", report.findings},
               {"deterministic", report.deterministic},
               {"ranks_identical", report.ranks_identical},
               {"claim", report.request.claim.empty() ? Json() : Json(report.request.claim)},
               {"exact_as", report.exact_as()},
               {"not_told_apart", report.not_told_apart},
               {"contributions", report.contributions}};
  json["errors"] = Json::array();
  for (const AllReduceError& error : report.errors) {
    json["errors"].push_back({{"inputs", error.inputs},
                              {"elements", error.elements},
                              {"max_abs_error", error.max_abs_error},
                              {"rmse", error.rmse},
                              {"sqnr_db", error.sqnr_db ? Json(*error.sqnr_db) : Json()},
                              {"overflowed", error.overflowed},
                              {"non_finite", error.non_finite},
                              {"made_finite", error.made_finite}});
  }
  json["candidates"] = Json::array();
  for (const AllReduceCandidate& candidate : report.candidates) {
    json["candidates"].push_back({{"name", candidate.name},
                                  {"mistake", candidate.mistake},
                                  {"mismatches", candidate.mismatches},
                                  {"gaussian_mismatches", candidate.gaussian_mismatches},
                                  {"first_mismatch", candidate.first_mismatch}});
  }
  json["ranges"] = Json::array();
  for (const AllReduceRange& range : report.ranges()) {
    json["ranges"].push_back(
        {{"from", range.from}, {"to", range.to}, {"exact_as", range.exact_as}});
  }
  return json;
}

std::string to_text(const AllReduceCheckReport& report) {
  std::string text = fmt::format("{} ranks, {}, {}: {} calls, {} elements compared\n",
                                 report.request.ranks, name_of(report.request.dtype),
                                 report.request.in_place ? "in place" : "out of place",
                                 report.calls, report.compared_elements);
  text += fmt::format("deterministic    {}\n", report.deterministic ? "yes" : "no");
  text += fmt::format("ranks identical  {}\n", report.ranks_identical ? "yes" : "no");
  const std::vector<std::string> exact = report.exact_as();
  text += fmt::format("exact as         {}\n", exact.empty()
                                                   ? "none of the candidates"
                                                   : fmt::format("{}", fmt::join(exact, ", ")));
  if (exact.empty()) {
    const auto nearest =
        std::min_element(report.candidates.begin(), report.candidates.end(),
                         [](const auto& a, const auto& b) { return a.mismatches < b.mismatches; });
    text += fmt::format("nearest          {}{}: {}, the first: {}\n", nearest->name,
                        nearest->mistake.empty() ? "" : ", but " + nearest->mistake,
                        nearest->count_text(report.compared_elements), nearest->first_mismatch);
  }
  if (!report.not_told_apart.empty()) {
    constexpr std::size_t kShown = 2;
    const std::size_t count = report.not_told_apart.size();
    const std::size_t shown = std::min(count, kShown);
    text += fmt::format("not told apart   these inputs give the same bits, if {}{}\n",
                        fmt::join(std::span(report.not_told_apart).first(shown), "; if "),
                        count == shown ? "" : "; or in " + counted(count - shown, "other way"));
  }
  for (const AllReduceError& error : report.errors) {
    text += fmt::format("error, {}: max {:.6g}, rmse {:.6g}, SQNR {} dB", error.inputs,
                        error.max_abs_error, error.rmse,
                        error.sqnr_db ? fmt::format("{:.2f}", *error.sqnr_db) : "-");
    if (error.overflowed != 0) text += fmt::format(", {} not finite", error.overflowed);
    if (error.made_finite != 0) {
      text += fmt::format(", {} of {} NaN or infinite sums made finite", error.made_finite,
                          error.non_finite);
    }
    text += "\n";
  }
  for (const std::string& finding : report.findings) text += "WRONG: " + finding + "\n";
  return text + verdict_of(report) + "\n";
}

}  // namespace arlab::kernels
