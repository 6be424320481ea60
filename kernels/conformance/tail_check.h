// Any fused tail, ours or not (reference/tails/SPEC.md, "Other people's kernels"): where does it round, and what does it do wrong?
//
// A fused tail is a function that this calls: an all-reduce, a residual, an RMSNorm. Of every element two ranks have a contribution that is
// not 0, so that all orders of additions give the same sum, in fp32 and in the dtype. What comes out is compared, bit for bit, with
// every combination of roundings; by numbers, where it is another function.
//
// Where the order in which a kernel adds squares is not known, a row has one unknown, the mean of its squares: the check looks, within
// hidden 2^-24 of the exact mean, for an fp32 number that gives the bits of all elements of the row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "kernels/runtime/status.h"
#include "reference/dtype.h"
#include "reference/tails/tail.h"

namespace arlab::kernels {

/// One call. Every rank has a region of memory of the host, in which guards are around every tensor. Tensors begin at multiples of 256 bytes.
struct TailCall {
  DType dtype = DType::fp16;
  std::size_t rows = 0, hidden = 0;
  float eps = 0;
  bool has_residual = true;
  std::size_t input_at = 0;         ///< [rows, hidden], bytes from the start of a region
  std::size_t residual_at = 0;      ///< likewise; the same on all ranks
  std::size_t weight_at = 0;        ///< [hidden]; other rows of weights lie around it
  std::size_t normalized_at = 0;    ///< [rows, hidden], to be written
  std::size_t residual_out_at = 0;  ///< likewise
  std::vector<std::span<std::byte>> regions = {};  ///< a region of every rank

  std::size_t row_bytes() const { return hidden * size_of(dtype); }
  std::size_t tensor_bytes() const { return rows * row_bytes(); }
};

/// The tail under test: returns when all ranks' outputs are in their regions. An error ends the check.
using FusedTail = std::function<Status(const TailCall&)>;

struct TailCheckRequest {
  int ranks = 2;  ///< 1 to 64; of one rank the inputs are the sums
  DType dtype = DType::fp16;
  Tail tail = {};  ///< the requested one: residual, norm, eps, offset; hidden, if any, is the only
  std::vector<std::size_t> hidden = {};  ///< sizes; empty: the tail's, else 576 and 4096
  std::size_t rows = 8;
  int runs = 3;
  bool has_residual_out = true;  ///< whether the sum with the residual is an output, too
  std::uint64_t seed = 1;
  std::string claim =
      {};  ///< a rounding: vllm, "vllm,root=rsqrt", "add=fp32,weight=first"; empty: none
};

/// A combination of roundings that has every bit.
struct TailMatch {
  std::string name;  ///< as Tail has it, without threads
  std::vector<std::uint32_t>
      threads;                 ///< those whose order of squares has every bit; empty: none known
  std::uint64_t widest = 0;    ///< means of squares of one row that give its bits, at most
  double widest_relative = 0;  ///< their span, relative to the mean
};

struct TailCheckReport {
  TailCheckRequest request = {};
  std::uint64_t calls = 0;
  std::uint64_t compared_rows = 0;  ///< rows of one run and one rank
  bool deterministic = true;
  bool ranks_identical = true;
  /// Matches of a known order, then those that one unknown mean of each row explains; these not where the claim has a known order.
  std::vector<TailMatch> exact_as = {};
  /// Faults of the tail, one line each.
  std::vector<std::string> findings = {};

  /// Rows whose bits only an unknown mean explains.
  std::uint64_t rows_by_unknown() const;
};

/// The request with its hidden sizes. Throws InvalidInput for what cannot be asked.
TailCheckRequest checked(TailCheckRequest request);

/// The error says why the check could not be done. What the tail does wrong is in the report. Throws InvalidInput for what cannot be asked.
Result<TailCheckReport> check_tail(const FusedTail& tail, const TailCheckRequest& request);

/// The report as one object, schema arlab.judge.tail/1.
nlohmann::ordered_json to_json(const TailCheckReport& report);
/// For people, several lines.
std::string to_text(const TailCheckReport& report);

}  // namespace arlab::kernels
