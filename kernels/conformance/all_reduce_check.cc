#include "kernels/conformance/all_reduce_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/conformance/conform.h"
#include "kernels/conformance/element_bits.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
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

/// The float that rounds to every shorter format as the double does: cut off, and its last bit set
/// when something was lost.
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
  const bool too_large = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const float below = too_large ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(below) | 1u);
}

// ---------------------------------------------------------------- candidates

/// The inputs of a case and what came out, rank after rank.
struct Case {
  const InputKind* kind;
  std::size_t elements;
  Tensor inputs;
  Bytes outputs = {};  ///< of the first run

  std::string where() const { return fmt::format("{} {} elements", elements, kind->name); }
};

/// A candidate gives the bits that an element may have: one, or some.
struct Model {
  AllReduceCandidate candidate;
  std::function<void(const Case& c, std::vector<Bytes>& allowed)> run;
};

Model schedule_model(const std::string& algorithm, const CodecPtr& codec, Accumulate accumulate,
                     const AllReduceCheckRequest& request) {
  const bool native = accumulate == Accumulate::native;
  Model model;
  model.candidate = {
      .name = fmt::format("{}/{}/{}", algorithm, codec->name(), native ? "native" : "fp32"),
      .summary = fmt::format("arlab's {}, codec {}, sums {}", algorithm, codec->name(),
                             native ? "rounded after every addition" : "kept in fp32")};
  model.run = [=, &request](const Case& c, std::vector<Bytes>& allowed) {
    const Schedule schedule =
        make_schedule(algorithm, {.world_size = static_cast<Rank>(request.ranks),
                                  .elements = c.elements,
                                  .alignment = codec->info().alignment});
    allowed.resize(1);
    allowed[0].resize(c.outputs.size());
    execute(schedule, *codec, request.dtype, c.inputs.bytes(), allowed[0],
            {.sum = {.add = accumulate}});
  };
  return model;
}

/// Orders of addition, the same on every rank and for every element.
using Orders = std::vector<std::vector<std::size_t>>;

/// Around a ring of ranks 0, 1, ..., from every rank and in both directions: libraries cut tensors
/// for it in ways of their own.
Orders ring_orders(std::size_t ranks) {
  Orders orders;
  for (std::size_t first = 0; first < ranks; ++first) {
    for (const std::size_t step : {std::size_t{1}, ranks - 1}) {
      std::vector<std::size_t> order(ranks);
      for (std::size_t i = 0; i < ranks; ++i) order[i] = (first + i * step) % ranks;
      orders.push_back(order);
    }
  }
  return orders;
}

template <class Arithmetic>
void sum_in_order(const Case& c, const std::vector<std::size_t>& order, bool native, Bytes& sums) {
  using Bits = typename Arithmetic::Bits;
  const auto out = elements_of<Bits>(std::span(sums));
  for (std::size_t i = 0; i < c.elements; ++i) {
    float sum = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const float x = Arithmetic::to_float(elements_of<Bits>(c.inputs.rank_bytes(order[k]))[i]);
      sum = k == 0 ? x : sum + x;
      if (native) sum = Arithmetic::to_float(Arithmetic::from_float(sum));
    }
    out[i] = Arithmetic::from_float(sum);
  }
}

/// Neighbours first, then pairs of pairs.
template <class Arithmetic>
void sum_as_tree(const Case& c, std::size_t ranks, bool native, Bytes& sums) {
  using Bits = typename Arithmetic::Bits;
  const auto out = elements_of<Bits>(std::span(sums));
  std::vector<float> part(ranks);
  for (std::size_t i = 0; i < c.elements; ++i) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      part[rank] = Arithmetic::to_float(elements_of<Bits>(c.inputs.rank_bytes(rank))[i]);
    }
    for (std::size_t gap = 1; gap < ranks; gap *= 2) {
      for (std::size_t rank = 0; rank + gap < ranks; rank += 2 * gap) {
        part[rank] += part[rank + gap];
        if (native) part[rank] = Arithmetic::to_float(Arithmetic::from_float(part[rank]));
      }
    }
    out[i] = Arithmetic::from_float(part[0]);
  }
}

/// The tensor of one rank, for all of them.
void repeat_for_ranks(Bytes& tensor, std::size_t ranks) {
  const std::size_t bytes = tensor.size();
  tensor.resize(bytes * ranks);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    std::copy_n(tensor.begin(), bytes, tensor.begin() + static_cast<std::ptrdiff_t>(rank * bytes));
  }
}

void add_orders_of_summation(const AllReduceCheckRequest& request, std::vector<Model>& models) {
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const DType dtype = request.dtype;
  for (const bool native : {true, false}) {
    const char* const how = native ? "rounded after every addition" : "kept in fp32";
    const char* const suffix = native ? "native" : "fp32";
    models.push_back(
        {{.name = fmt::format("ring_order/{}", suffix),
          .summary =
              fmt::format("every element summed around the ring of ranks from some rank, {}", how)},
         [=](const Case& c, std::vector<Bytes>& allowed) {
           const Orders orders = ring_orders(ranks);
           allowed.resize(orders.size());
           for (std::size_t k = 0; k < orders.size(); ++k) {
             allowed[k].resize(c.elements * size_of(dtype));
             with_arithmetic(dtype, false, [&]<class A>(A) {
               sum_in_order<A>(c, orders[k], native, allowed[k]);
             });
             repeat_for_ranks(allowed[k], ranks);
           }
         }});
    models.push_back({{.name = fmt::format("tree_order/{}", suffix),
                       .summary = fmt::format("neighbours first, then pairs of pairs, {}", how)},
                      [=](const Case& c, std::vector<Bytes>& allowed) {
                        allowed.assign(1, Bytes(c.elements * size_of(dtype)));
                        with_arithmetic(dtype, false, [&]<class A>(A) {
                          sum_as_tree<A>(c, ranks, native, allowed[0]);
                        });
                        repeat_for_ranks(allowed[0], ranks);
                      }});
  }
  models.push_back(
      {{.name = "exact_sum", .summary = "the sum in float64, rounded once; zeros of any sign"},
       [=](const Case& c, std::vector<Bytes>& allowed) {
         const ExactSum sum = exact_sum(dtype, ranks, c.inputs.bytes());
         allowed.assign(1, Bytes(c.elements * size_of(dtype)));
         with_arithmetic(dtype, false, [&]<class A>(A) {
           const auto out = elements_of<typename A::Bits>(std::span(allowed[0]));
           for (std::size_t i = 0; i < c.elements; ++i) {
             out[i] = A::from_float(dtype == DType::fp32 ? static_cast<float>(sum.values[i])
                                                         : round_to_odd(sum.values[i]));
           }
         });
         repeat_for_ranks(allowed[0], ranks);
         allowed.push_back(allowed[0]);
         const std::size_t unit = size_of(dtype);
         for (std::size_t at = 0; at < allowed[1].size(); at += unit) {
           std::byte* const element = &allowed[1][at];
           if (std::all_of(element, element + unit,
                           [](std::byte b) { return b == std::byte{0}; })) {
             element[unit - 1] = std::byte{0x80};
           }
         }
       }});
}

/// The codec that a claim names: qr-q4 of two_shot/qr-q4/native; nothing where there is none.
std::string codec_of_claim(const std::string& claim) {
  const std::size_t begin = claim.find('/') + 1;
  const std::size_t end = claim.find('/', begin);
  if (begin == 0 || end == std::string::npos) return {};
  try {
    return find_codec(claim.substr(begin, end - begin))->name();
  } catch (const InvalidInput&) {
    return {};
  }
}

std::vector<Model> models_of(const AllReduceCheckRequest& request) {
  std::vector<std::string> codecs = {std::string(name_of(request.dtype))};
  for (const std::string& codec : {request.codec, codec_of_claim(request.claim)}) {
    if (!codec.empty() && std::find(codecs.begin(), codecs.end(), codec) == codecs.end()) {
      codecs.push_back(codec);
    }
  }
  std::vector<Model> models;
  for (const std::string& name : codecs) {
    const CodecPtr codec = find_codec(name);
    if (!codec->takes(request.dtype)) {
      fail("codec {} does not take {}", name, name_of(request.dtype));
    }
    for (const Algorithm& algorithm : all_algorithms()) {
      if (algorithm.collective != Collective::all_reduce) continue;
      try {  // not every algorithm has every world size
        (void)make_schedule(algorithm.name, {.world_size = static_cast<Rank>(request.ranks),
                                             .elements = 4096,
                                             .alignment = codec->info().alignment});
      } catch (const InvalidInput&) {
        continue;
      }
      for (const Accumulate accumulate : {Accumulate::native, Accumulate::fp32}) {
        models.push_back(schedule_model(algorithm.name, codec, accumulate, request));
      }
    }
  }
  add_orders_of_summation(request, models);
  return models;
}

// ---------------------------------------------------------------- the check

/// Sums over elements that become an AllReduceError.
struct ErrorSums {
  std::uint64_t elements = 0, overflowed = 0, non_finite = 0, made_finite = 0;
  double max = 0, error2 = 0, signal2 = 0;
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
    for (const Case& c : cases_) judge(c);
    find_general_mistakes();
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

  /// Says a mistake once, not again for every case.
  void find(const std::string& kind, const std::string& finding) {
    if (std::find(found_kinds_.begin(), found_kinds_.end(), kind) != found_kinds_.end()) return;
    found_kinds_.push_back(kind);
    report_.findings.push_back(finding);
  }

  Status call(std::size_t index, int run) {
    Case& c = cases_[index];
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
  void check_region(const Case& c, const AllReduceCall& call, std::size_t rank,
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
    Case& c = cases_[index];
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

  void judge(const Case& c) {
    report_.compared_elements += c.elements * ranks_;
    const std::vector<std::vector<bool>>& held = kept_[static_cast<std::size_t>(&c - &cases_[0])];
    const ExactSum sum = exact_sum(dtype(), ranks_, c.inputs.bytes());
    compare_ranks(c);
    find_untouched(c, held, sum);
    add_errors(c, sum);
    if (c.kind == &kInputs[0]) add_weights(c, sum);
    parallel_for(models_.size(), 0, [&](unsigned, std::size_t m) {
      std::vector<Bytes> allowed;
      models_[m].run(c, allowed);
      compare_with(c, allowed, models_[m].candidate);
    });
  }

  void compare_with(const Case& c, const std::vector<Bytes>& allowed,
                    AllReduceCandidate& candidate) const {
    const std::size_t unit = size_of(dtype());
    std::size_t at = 0;
    while (at < ranks_ * c.elements) {
      // Most of most outputs is right: stretches that are equal to one tensor cost little.
      const std::size_t stretch = std::min<std::size_t>(256, ranks_ * c.elements - at);
      const bool equal = std::any_of(allowed.begin(), allowed.end(), [&](const Bytes& tensor) {
        return std::memcmp(&tensor[at * unit], &c.outputs[at * unit], stretch * unit) == 0;
      });
      if (!equal) compare_elements(c, allowed, at, stretch, candidate);
      at += stretch;
    }
  }

  void compare_elements(const Case& c, const std::vector<Bytes>& allowed, std::size_t begin,
                        std::size_t count, AllReduceCandidate& candidate) const {
    for (std::size_t at = begin; at < begin + count; ++at) {
      const std::uint32_t bits = bits_at(dtype(), c.outputs, at);
      const bool fits = std::any_of(allowed.begin(), allowed.end(), [&](const Bytes& tensor) {
        return same(dtype(), bits, bits_at(dtype(), tensor, at));
      });
      if (fits || candidate.mismatches++ != 0) continue;
      candidate.first_mismatch =
          fmt::format("rank {}, index {}: expected {}, got {}, {}", at / c.elements,
                      at % c.elements, element_text(dtype(), bits_at(dtype(), allowed[0], at)),
                      element_text(dtype(), bits), c.where());
    }
  }

  void compare_ranks(const Case& c) {
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

  void find_untouched(const Case& c, const std::vector<std::vector<bool>>& held,
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
      result = static_cast<double>(A::to_float(
          A::from_float(dtype() == DType::fp32 ? static_cast<float>(value) : round_to_odd(value))));
    });
    return result;
  }

  void add_errors(const Case& c, const ExactSum& sum) {
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
        sums.error2 += error * error;
        sums.signal2 += sum.values[i] * sum.values[i];
      }
    }
  }

  /// error = sum over ranks of (weight - 1) * input, by least squares; Gaussian inputs of different
  /// ranks are all but orthogonal.
  void add_weights(const Case& c, const ExactSum& sum) {
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
    if (gaussian.overflowed != 0) {
      find("overflowed",
           fmt::format("{} results are NaN or infinite on Gaussian inputs", gaussian.overflowed));
    }
    if (report_.errors[2].made_finite * 2 > report_.errors[2].non_finite) {
      find("nan", fmt::format("NaN and infinities are lost: {} of {} such sums come out finite",
                              report_.errors[2].made_finite, report_.errors[2].non_finite));
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const double weight = 1 + weights_[rank] / weight_norms_[rank];
      report_.contributions.push_back(weight);
      // A few elements say nothing for sure.
      constexpr double kEnough = 1000;
      if (weight_norms_[rank] > kEnough && std::abs(weight - 1) > 0.25) {
        find(fmt::format("contribution {}", rank),
             fmt::format("rank {}'s contribution counts {:.2f} times", rank, weight));
      }
    }
    for (const Model& model : models_) report_.candidates.push_back(model.candidate);
    if (request().claim.empty()) return;
    const auto claimed = std::find_if(
        report_.candidates.begin(), report_.candidates.end(),
        [&](const AllReduceCandidate& candidate) { return candidate.name == request().claim; });
    if (claimed->mismatches != 0) {
      find("claim",
           fmt::format("not {} as claimed: {} of {} elements differ; {}", claimed->name,
                       claimed->mismatches, report_.compared_elements, claimed->first_mismatch));
    }
  }

  const AllReduce& all_reduce_;
  std::size_t ranks_;
  AllReduceCheckReport report_;
  std::vector<Model> models_;
  std::vector<Case> cases_;
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
    if (candidate.mismatches == 0) names.push_back(candidate.name);
  }
  return names;
}

std::vector<AllReduceCandidate> list_candidates(const AllReduceCheckRequest& request) {
  require_valid(request);
  std::vector<AllReduceCandidate> candidates;
  for (const Model& model : models_of(request)) candidates.push_back(model.candidate);
  return candidates;
}

Result<AllReduceCheckReport> check_all_reduce(const AllReduce& all_reduce,
                                              const AllReduceCheckRequest& request) {
  try {
    std::string known;
    bool claim_is_known = request.claim.empty();
    for (const AllReduceCandidate& candidate : list_candidates(request)) {
      claim_is_known |= candidate.name == request.claim;
      known += (known.empty() ? "" : ", ") + candidate.name;
    }
    if (!claim_is_known) {
      return Status::error(
          fmt::format("unknown claim {}: allowed are {}", quote(request.claim), known));
    }
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
                                  {"mismatches", candidate.mismatches},
                                  {"first_mismatch", candidate.first_mismatch}});
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
    text += fmt::format("nearest          {}: {} elements differ; {}\n", nearest->name,
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
