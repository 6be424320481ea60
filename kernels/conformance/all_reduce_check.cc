#include "kernels/conformance/all_reduce_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "kernels/conformance/all_reduce_models.h"
#include "kernels/conformance/element_bits.h"
#include "reference/formats/with_arithmetic.h"
#include "reference/metrics/error.h"
#include "reference/parallel.h"
#include "reference/tensors/counter_random.h"
#include "reference/tensors/synthetic.h"

namespace arlab::kernels {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kGuardBytes = 256;
constexpr int kMostRanks = 64;

// ---------------------------------------------------------------- elements as bits

bool is_nan(DType dtype, std::uint32_t bits) {
  if (dtype == DType::fp16) return (bits & 0x7FFF) > 0x7C00;
  if (dtype == DType::bf16) return (bits & 0x7FFF) > 0x7F80;
  return (bits & 0x7FFFFFFF) > 0x7F800000;
}

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
    weights_.resize(ranks_);
    weight_norms_.resize(ranks_);
  }

  Result<AllReduceCheckReport> run() {
    make_cases();
    for (int run = 0; run < report_.request.runs; ++run) {
      // All cases, then all again: what a call leaves behind is not what its repetition expects.
      for (std::size_t c = 0; c < cases_.size(); ++c) {
        ARLAB_RETURN_IF_ERROR(call(c, run));
      }
    }
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
    kept_.resize(cases_.size());
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
    ++report_.calls;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      check_region(c, call, rank, before[rank]);
    }
    return keep_or_compare(index, call, before, run);
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
        find("outside", fmt::format("writes outside of the output: rank {}, {} bytes before it, {}",
                                    rank, call.output_at - at, c.where()));
      }
      return;
    }
  }

  Status keep_or_compare(std::size_t index, const AllReduceCall& call,
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
        find("nondeterministic",
             fmt::format("not deterministic: run {} of rank {}, index {}, gives {:0{}x}, the first "
                         "gave {:0{}x}, {}",
                         run + 1, rank, i, bits, 2 * size_of(dtype()), before_bits,
                         2 * size_of(dtype()), c.where()));
      }
    }
    return {};
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
    std::vector<Bytes> allowed;
    model.run(c, allowed);
    const std::size_t all = ranks_ * c.elements;
    const std::uint64_t before = candidate.mismatches;
    if (allowed.empty()) {
      if (candidate.mismatches == 0) {
        candidate.first_mismatch = fmt::format("it does not take {} elements", c.elements);
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
    candidate.mismatches_of_length.resize(request().lengths.size());
    candidate.mismatches_of_length[length_of(c)] += candidate.mismatches - before;
    if (c.kind == &kInputs[0]) candidate.gaussian_mismatches += candidate.mismatches - before;
  }

  std::size_t length_of(const AllReduceCase& c) const {
    return static_cast<std::size_t>(&c - cases_.data()) / std::size(kInputs);
  }

  void compare_elements(const AllReduceCase& c, const std::vector<Bytes>& allowed,
                        std::size_t begin, std::size_t count, AllReduceCandidate& candidate) const {
    for (std::size_t at = begin; at < begin + count; ++at) {
      if (is_allowed(c, allowed, at) || candidate.mismatches++ != 0) continue;
      candidate.first_mismatch =
          fmt::format("rank {}, index {}: expected {}, got {}, of {}, {}", at / c.elements,
                      at % c.elements, element_text(dtype(), bits_at(dtype(), allowed[0], at)),
                      element_text(dtype(), bits_at(dtype(), c.outputs, at)),
                      addends_of(c, at % c.elements), c.where());
    }
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
      // What most ranks have is taken to be right, and the rank with the rarest bits is named.
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
      find("ranks", fmt::format("ranks differ: index {} is {:0{}x} on rank {}, and something else "
                                "on {} of {} ranks, {}",
                                i, bits_at(dtype(), c.outputs, odd * c.elements + i),
                                2 * size_of(dtype()), odd, ranks_ - fewest, ranks_, c.where()));
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

  /// error = sum over ranks of (weight - 1) * input, by least squares; Gaussian inputs of different
  /// ranks are all but orthogonal.
  void add_weights(const AllReduceCase& c, const ExactSum& sum) {
    const std::vector<double> x = to_double(dtype(), c.inputs.bytes());
    const std::vector<double> results = to_double(dtype(), c.outputs);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      for (std::size_t i = 0; i < c.elements; ++i) {
        double error = 0;
        for (std::size_t at = 0; at < ranks_; ++at) {
          const double result = results[at * c.elements + i];
          if (std::isfinite(result)) error += result - sum.values[i];
        }
        const double value = x[rank * c.elements + i];
        weights_[rank] += error / static_cast<double>(ranks_) * value;
        weight_norms_[rank] += value * value;
      }
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
                              *gaussian.sqnr_db));
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
      find("overflowed",
           fmt::format("{} results are NaN or infinite on Gaussian inputs", gaussian.overflowed));
    }
    if (report_.errors[2].made_finite * 2 > report_.errors[2].non_finite) {
      find("nan", fmt::format("NaN and infinities are lost: {} of {} such sums come out finite",
                              report_.errors[2].made_finite, report_.errors[2].non_finite));
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      report_.contributions.push_back(1 + weights_[rank] / weight_norms_[rank]);
    }
    // All the same, and not 1: one factor, and no matter of ranks.
    const double first = report_.contributions[0];
    const bool is_scaled = std::abs(first - 1) > 0.25 && std::abs(first) > 0.05 &&
                           std::ranges::all_of(report_.contributions, [&](double weight) {
                             return std::abs(weight - first) < 0.25 * std::abs(first);
                           });
    const bool is_average = std::abs(first * static_cast<double>(ranks_) - 1) < 0.2;
    if (is_scaled) {
      find("scaled", is_average ? "the result is the average of the ranks, not their sum"
                                : fmt::format("the result is {:.2f} times the sum", first));
    }
    for (std::size_t rank = 0; rank < ranks_ && !is_scaled; ++rank) {
      const double weight = report_.contributions[rank];
      // A few elements say nothing for sure.
      constexpr double kEnough = 1000;
      if (weight_norms_[rank] > kEnough && std::abs(weight - 1) > 0.25) {
        find(fmt::format("contribution {}", rank),
             fmt::format("rank {}'s contribution counts {:.2f} times", rank,
                         std::round(weight * 100) / 100 + 0.0));
      }
    }
  }

  // ---- what it is

  void find_what_it_is() {
    // What fits one length may fail in another, which is then looked at, too.
    std::optional<std::size_t> nearest;
    std::vector<std::size_t> lengths;
    while (!is_of_no_sum() && find_exact(false) == nullptr && !find_ranges()) {
      const std::size_t more = length_to_search_on();
      if (std::ranges::find(lengths, more) != lengths.end()) break;
      lengths.push_back(more);
      auto model = nearest_model(
          request(), models_, cases_[more * std::size(kInputs)],
          [&](const auto& tried, std::uint64_t) { return rough(tried, more); },
          [&](const auto& tried, std::uint64_t limit) { return distance(tried, lengths, limit); });
      if (!model) break;
      nearest = add_nearest(std::move(*model));
    }
    for (const AllReduceModel& model : models_) report_.candidates.push_back(model.candidate);
    if (!request().claim.empty()) find_claim(nearest);
    if (nearest && request().claim.empty() && find_exact() == nullptr) {
      find_nearest(models_[*nearest]);
    }
    // An owner that keeps its sum is no mistake of who says so, or of what is known to be made so. An order of summation does not
    // say what each rank ends with.
    const AllReduceModel* fits = request().claim.empty() ? find_exact() : &claimed();
    if (fits != nullptr && fits->way != nullptr && fits->candidate.mismatches == 0) forget("ranks");
  }

  /// What is found says that it is none, or another one in every call: then there is nothing that it could be. What is far off may
  /// still be what is claimed, with a mistake.
  bool is_of_no_sum() const {
    return std::ranges::any_of(found_kinds_, [&](const std::string& kind) {
      return kind == "zero" || kind == "untouched" || kind == "nondeterministic" ||
             (kind == "far" && request().claim.empty()) || kind == "scaled" ||
             kind.starts_with("contribution");
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
      words += fmt::format("{}{} to {} elements {}", words.empty() ? "" : ", ", range.from,
                           range.to, range.exact_as.front());
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
    for (const AllReduceCase& c : cases_) {
      const bool counts = std::ranges::find(lengths, length_of(c)) != lengths.end();
      if (counts && sum < limit) compare_with(c, model);
      sum = candidate.mismatches + (kUsual - 1) * candidate.gaussian_mismatches;
    }
    return sum;
  }

  /// Shares of Gaussian elements that differ, of a length and of the longest that has few blocks: there a mistake in scales may not
  /// show.
  std::uint64_t rough(const AllReduceModel& model, std::size_t length) const {
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
    std::string text =
        fmt::format("not {} as claimed: {} of {} elements differ; {}{}", claim.candidate.name,
                    claim.candidate.mismatches, report_.compared_elements,
                    claim.candidate.first_mismatch, where_it_differs(claim));
    const AllReduceModel* other = nearest ? &models_[*nearest] : find_exact();
    if (other != nullptr && other != &claim && fits(other->candidate)) {
      text += fmt::format("; it is {}", other->candidate.name);
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
    // What else has so few elements that differ is not made of other parts, but of the same with a mistake.
    constexpr std::uint64_t kAlmost = 10;
    if (!c.mistake.empty() && fits(c)) {
      find("mistake", fmt::format("{}: it is {} with this mistake{}{}", c.mistake, c.name,
                                  c.mismatches == 0 ? "" : rest_of(c), sqnr_beside(nearest)));
    } else if (c.mistake.empty() && c.mismatches != 0 &&
               c.mismatches * kAlmost <= report_.compared_elements) {
      find("almost",
           fmt::format("almost {}, but {} of {} elements differ; {}{}", c.name, c.mismatches,
                       report_.compared_elements, c.first_mismatch, where_it_differs(nearest)));
    }
  }

  /// So few elements are left that the rest is a matter of first blocks and last bits; of a mistake, with usual values at least.
  bool fits(const AllReduceCandidate& candidate) const {
    constexpr std::uint64_t kNearly = 50;
    const std::uint64_t gaussian = report_.compared_elements / std::size(kInputs);
    return candidate.mismatches * kNearly <= report_.compared_elements ||
           (!candidate.mistake.empty() && candidate.gaussian_mismatches * kNearly <= gaussian);
  }
  std::string rest_of(const AllReduceCandidate& candidate) const {
    return fmt::format(" ({} of {} elements differ still)", candidate.mismatches,
                       report_.compared_elements);
  }

  /// On which rank and in which elements, where these are few.
  std::string where_it_differs(const AllReduceModel& model) const {
    for (const AllReduceCase& c : cases_) {
      std::vector<Bytes> allowed;
      model.run(c, allowed);
      if (allowed.empty()) continue;
      std::set<std::size_t> on;
      std::size_t first = c.elements;
      std::size_t last = 0;
      for (std::size_t at = 0; at < ranks_ * c.elements; ++at) {
        if (is_allowed(c, allowed, at)) continue;
        on.insert(at / c.elements);
        first = std::min(first, at % c.elements);
        last = std::max(last, at % c.elements);
      }
      if (on.empty() || c.elements < 64) continue;
      std::string text;
      if (on.size() == 1) text += fmt::format(", only on rank {}", *on.begin());
      if ((last - first) * 2 < c.elements) {
        text += fmt::format(", only in elements {} to {}", first, last);
      }
      return text.empty() ? text : fmt::format("{} ({})", text, c.where());
    }
    return {};
  }

  /// What is lost by it: its SQNR, and that of the candidate without a mistake.
  std::string sqnr_beside(const AllReduceModel& model) const {
    const auto found = report_.errors[0].sqnr_db;
    AllReduceModel right = model;
    if (!model.candidate.mistake.empty()) {
      AllReduceWay way = *model.way;
      way.codec = find_codec(way.parts.codec);
      way.mistake.clear();
      right.run = [way, type = dtype()](const AllReduceCase& c, std::vector<Bytes>& allowed) {
        run_way(way, type, c, allowed);
      };
    }
    double error2 = 0;
    double signal2 = 0;
    for (const AllReduceCase& c : cases_) {
      if (c.kind != &kInputs[0]) continue;
      std::vector<Bytes> allowed;
      right.run(c, allowed);
      if (allowed.empty()) continue;
      const ExactSum sum = exact_sum(dtype(), ranks_, c.inputs.bytes());
      const std::vector<double> values = to_double(dtype(), allowed[0]);
      for (std::size_t at = 0; at < values.size(); ++at) {
        const double exact = sum.values[at % c.elements];
        error2 += (values[at] - exact) * (values[at] - exact);
        signal2 += exact * exact;
      }
    }
    if (!found || !(error2 > 0) || !(signal2 > 0)) return {};
    return fmt::format("; SQNR {:.2f} dB, of {} {:.2f} dB", *found, right.candidate.name,
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
  std::vector<double> weights_, weight_norms_;
  std::vector<std::string> found_kinds_;
};

void require_valid(const AllReduceCheckRequest& request) {
  if (request.ranks < 2 || request.ranks > kMostRanks) {
    fail("{} ranks: allowed are 2 to {}", request.ranks, kMostRanks);
  }
  if (request.runs < 2 || request.runs > 100) {
    fail("{} runs: allowed are 2 to 100, for one says nothing about determinism", request.runs);
  }
  for (const std::size_t length : request.lengths) {
    if (length == 0) fail("a length is 0: allowed are positive element counts");
  }
}

}  // namespace

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
               {"compared_elements", report.compared_elements},
               {"passed", report.findings.empty()},
               {"findings", report.findings},
               {"deterministic", report.deterministic},
               {"ranks_identical", report.ranks_identical},
               {"claim", report.request.claim.empty() ? Json() : Json(report.request.claim)},
               {"exact_as", report.exact_as()},
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
    text += fmt::format("nearest          {}{}: {} elements differ; {}\n", nearest->name,
                        nearest->mistake.empty() ? "" : ", but " + nearest->mistake,
                        nearest->mismatches, nearest->first_mismatch);
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
  text += report.findings.empty() ? "passed\n" : "failed\n";
  return text;
}

}  // namespace arlab::kernels
