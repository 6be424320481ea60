// Any all-reduce, ours or not: is it exact, deterministic and the same on all ranks, and how far is
// it from the sum?
//
// The all-reduce is a function that this calls many times: every length, Gaussian and adversarial
// values that differ on every rank, each several times. What it does is then compared with
//
//   itself            the same bits again; on all ranks
//   the exact sum     in float64
//   candidates        algorithms of the reference, with a codec and a record of the sum, other
//                     people's by name, and orders of summation that libraries use; bit for bit
//
// and with what it must leave alone: guards around every tensor, and inputs. Where no candidate has every
// bit, other codecs, records of sums and the usual mistakes are tried, and the nearest is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/runtime/status.h"
#include "reference/dtype.h"

namespace arlab::kernels {

/// One call. Every rank has a region of memory of the host:
///
///   guard | input | guard | output | guard        or, in place,        guard | tensor | guard
///
/// Tensors begin at multiples of 256 bytes of the region. An all-reduce on devices copies whole
/// regions to them, works there, and copies whole regions back; so writes behind the end are seen.
struct AllReduceCall {
  DType dtype = DType::fp16;
  std::size_t elements = 0;                        ///< per rank
  std::size_t input_at = 0;                        ///< bytes from the start of a region
  std::size_t output_at = 0;                       ///< likewise; the input's when in place
  std::vector<std::span<std::byte>> regions = {};  ///< a region of every rank

  bool in_place() const { return input_at == output_at; }
  std::size_t tensor_bytes() const { return elements * size_of(dtype); }
  std::span<const std::byte> input(std::size_t rank) const {
    return regions[rank].subspan(input_at, tensor_bytes());
  }
  std::span<std::byte> output(std::size_t rank) const {
    return regions[rank].subspan(output_at, tensor_bytes());
  }
};

/// The all-reduce under test: returns when all ranks' outputs are in their regions. An error ends
/// the check.
using AllReduce = std::function<Status(const AllReduceCall&)>;

struct AllReduceCheckRequest {
  int ranks = 2;
  DType dtype = DType::fp16;
  std::vector<std::size_t> lengths = {};  ///< elements per rank; empty: lengths_up_to(65541)
  int runs = 3;                           ///< how often every case runs, 2 to 100
  bool in_place = false;
  std::uint64_t seed = 1;
  /// Candidates with this codec are compared, beside those that add plain values.
  std::string codec = {};
  /// The candidate that the all-reduce claims to be, by name (two_shot/qr-q4/native, flashinfer-fp8/block=128); empty: none.
  std::string claim = {};
};

/// A way to compute the sum, and how far the all-reduce is from it.
struct AllReduceCandidate {
  std::string name;  ///< for example two_shot/qr-q4/native, or ring_order/fp32
  std::string summary;
  std::uint64_t mismatches = 0;  ///< elements, over all ranks, whose bits differ; NaN is NaN
  std::uint64_t gaussian_mismatches = 0;    ///< those with Gaussian inputs
  std::uint64_t zero_mismatches = 0;        ///< those that are zeros of another sign
  std::uint64_t not_finite_mismatches = 0;  ///< those with NaN or infinity
  std::string first_mismatch = {};          ///< with the tensor that it is in
  std::string mistake = {};                 ///< its mistake, in words; empty: none
  /// By the lengths of the request: elements that differ.
  std::vector<std::uint64_t> mismatches_of_length = {};

  bool differs_only_in_special() const {  ///< zeros of another sign, NaN, infinities
    return mismatches != 0 && mismatches == zero_mismatches + not_finite_mismatches;
  }
  /// "2 of 100 elements differ, only in the sign of zero".
  std::string count_text(std::uint64_t compared) const;
};

/// Lengths that follow each other, of which one candidate has every bit.
struct AllReduceRange {
  std::size_t from = 0, to = 0;  ///< elements per rank, both included
  std::vector<std::string> exact_as = {};
};

/// Distance to the exact sum, over all cases with one kind of inputs.
struct AllReduceError {
  std::string inputs;
  std::uint64_t elements = 0;  ///< over all ranks, whose sum is finite in the dtype
  double max_abs_error = 0;    ///< largest among elements whose result is finite
  double rmse = 0;
  std::optional<double> sqnr_db = {};  ///< empty when there is no error, or no signal
  std::uint64_t overflowed = 0;        ///< result not finite where the sum is finite in the dtype
  std::uint64_t non_finite = 0;        ///< elements whose sum is not finite in the dtype
  std::uint64_t made_finite = 0;       ///< how many of these have a finite result
};

struct AllReduceCheckReport {
  AllReduceCheckRequest request = {};
  std::uint64_t calls = 0;           ///< every case, as often as runs say
  std::uint64_t repeated_calls = 0;  ///< calls of one length in turn: rare mistakes are seen, too
  std::uint64_t compared_elements = 0;  ///< elements of one run, over all ranks
  bool deterministic = true;
  bool ranks_identical = true;
  std::vector<AllReduceCandidate> candidates = {};
  std::vector<AllReduceError> errors = {};
  /// How often the result holds each rank's contribution, by least squares over Gaussian inputs: 1.
  std::vector<double> contributions = {};
  /// Candidates, then orders of additions, that give the bits of the claim (or of exact_as().front()) for these inputs, or all but
  /// those of zeros, NaN and infinities: one line each.
  std::vector<std::string> not_told_apart = {};
  /// Faults of the all-reduce, one line each: empty means that all is well.
  std::vector<std::string> findings = {};

  /// Names of the candidates that have every bit, and no mistake.
  std::vector<std::string> exact_as() const;
  /// The same by ranges of lengths, as few as there can be; one range where a candidate is exact for all. None of a range: empty.
  std::vector<AllReduceRange> ranges() const;
};

/// The error says why the check could not be done. What the all-reduce does wrong is in the report.
Result<AllReduceCheckReport> check_all_reduce(const AllReduce& all_reduce,
                                              const AllReduceCheckRequest& request);

/// Names of candidates for a request, with a line on each.
std::vector<AllReduceCandidate> list_candidates(const AllReduceCheckRequest& request);

/// The last line of a report: "passed: 4 ranks, fp16, claim two_shot/qr-q4/native (algorithm/codec/sum)".
std::string verdict_text(bool passed, const std::string& claim, int ranks, DType dtype);
inline std::string verdict_of(const auto& report) {
  const auto& request = report.request;
  return verdict_text(report.findings.empty(), request.claim, request.ranks, request.dtype);
}

/// The report as one object, schema arlab.judge/1.
nlohmann::ordered_json to_json(const AllReduceCheckReport& report);
/// For people, several lines.
std::string to_text(const AllReduceCheckReport& report);

}  // namespace arlab::kernels
