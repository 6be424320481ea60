// One measured collective: inputs through the reference, and how far off the result is. `arlab reduce` prints it, and a study
// repeats it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/result.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/named.h"
#include "reference/collectives/schedule.h"
#include "reference/field.h"
#include "reference/metrics/error.h"
#include "reference/tensors/tensor.h"

namespace arlab::lab {

/// An SQNR in JSON, which has no infinities: "inf" without any error, "-inf" where finite values were
/// lost, null where there is nothing to compare.
Json decibels(const std::optional<double>& value);

/// An SQNR of a whole tensor likewise, where ErrorMetrics has none: infinite without error; as low as can be when finite values were
/// lost, or when there is an error and nothing that it is relative to.
Json sqnr_of(const ErrorMetrics& error);

/// The exact result of a collective, in float64.
struct ExactResult {
  Collective collective = Collective::all_reduce;
  /// all_reduce: the sum, that every rank should end with. reduce_scatter: the sum, of which every
  /// rank should end with one slot. Else: what all ranks should end with, one after the other.
  std::vector<double> values;
  std::uint64_t inexact = 0;  ///< values that float64 has rounded
};

/// Bytes of memory that a reduction needs: inputs, outputs, the exact and the uncompressed result
/// as long as one tensor, or as all where nothing is summed. UINT64_MAX when they are more.
std::uint64_t reduction_bytes(DType dtype, std::uint64_t ranks, std::uint64_t elements_per_rank,
                              Collective collective);

/// Where the collective has slots, the inputs make equal ones.
ExactResult exact_result(Collective collective, const RankPayloads& inputs, unsigned threads = 0);

/// The part of all ranks' outputs that error figures are about; in `room`, if it does not lie together.
std::span<const std::byte> compared(Collective collective, std::span<const std::byte> outputs,
                                    std::size_t ranks, std::vector<std::byte>& room);

/// Whether what is compared has whole tokens of so many channels: slots may cut them.
bool has_tokens(Collective collective, std::size_t ranks, std::size_t elements,
                std::size_t channels);

/// Error figures are of rank 0 for all_reduce, of all ranks together for other collectives: of the
/// sums for reduce_scatter, not of what ranks leave as it was.
struct Reduction {
  std::vector<std::byte> outputs;    ///< all ranks' tensors
  ErrorMetrics error;                ///< against the exact result
  ErrorMetrics versus_uncompressed;  ///< against the same algorithm with plain values
  MatrixMetrics tokens;              ///< by token (row) and channel, where inputs have them
  ExecuteCounts counts;
  WireVolume wire;           ///< the most, for wires of variable length
  bool adds_codes = false;   ///< whether sums are sums of codes, which may be clamped
  bool wire_varies = false;  ///< whether data decide how long they are: counts.sent_bytes has it
  /// Between ranks; none when bits are identical, and none where they are not meant to be.
  std::optional<RankDifference> difference;
  /// Why most of what was encoded is clamped or has become zero, and most of the result lost by it; empty where it is not so.
  std::string out_of_range;
};

/// Channels of a tensor of all ranks, [ranks, tokens, ..., channels]; 0 where a rank's payload has no
/// axis of tokens.
std::size_t channels_of(std::span<const std::size_t> shape);

/// `exact` is exact_result of the same inputs and the schedule's collective. `channels`: elements of
/// a token, or 0 where there are none. Without the uncompressed run, and without the difference between ranks.
Reduction run_compressed(const Schedule& schedule, const Codecs& codecs, const RankPayloads& inputs,
                         std::size_t channels, const ExactResult& exact,
                         const ExecuteOptions& options);
/// The same with both.
Reduction run_reduction(const Schedule& schedule, const Codecs& codecs, const RankPayloads& inputs,
                        std::size_t channels, const ExactResult& exact,
                        const ExecuteOptions& options);

/// The figures of a reduction, in the order and with the names of the command line's contract.
std::vector<Figure> reduction_fields(const Reduction& reduction, const ExactResult& exact);

/// Whether half of the power came back, or all: of fewer bits than three, many values rightly are 0.
bool is_half_there(const ErrorMetrics& error);

/// Names of those that most people ask for, and of those that say that something is wrong.
std::vector<std::string> main_figures(const Reduction& reduction);

/// How sums are made.
struct SumOptions {
  std::string accumulate = "native";
  std::string sum;

  /// Returns its named part for messages: sum add=fma, or accumulate fp32.
  std::string option_text() const {
    return sum.empty() ? "accumulate " + accumulate : "sum " + sum;
  }
  /// Returns the sum; the algorithm decides about `own`: see give_own(). Throws InvalidInput.
  Sum parse() const;
};
std::vector<BoundField> fields(SumOptions& options);

/// How the reference is run.
struct ExecutionOptions : SumOptions {
  std::optional<std::uint32_t> threads;
  std::optional<std::uint32_t> rounding_seed;
  std::optional<std::uint32_t> call;

  ExecuteOptions make() const;
  /// The sum, and the random numbers where an option says which.
  std::vector<Figure> figures() const;
};
std::vector<BoundField> fields(ExecutionOptions& options);

/// Gives the algorithm what the sum says of the owner's contribution. Throws InvalidInput where both say it, and differ, and
/// for a schedule, which says itself what is encoded.
void give_own(const Sum& sum, CollectiveSpec& spec);

/// An all-reduce of other people, by name, in place of algorithm, codec and sum.
struct LikeOptions {
  std::string like;
  std::optional<std::uint32_t> block;

  bool is_set() const { return !like.empty(); }
  /// Sets what it stands for. Throws InvalidInput for what its kernels refuse, and where algorithm or sum are named, too.
  NamedParts apply(NamedRequest request, CollectiveSpec& spec, std::string& codec,
                   ExecutionOptions& execution) const;
};
std::vector<BoundField> fields(LikeOptions& options);

}  // namespace arlab::lab
