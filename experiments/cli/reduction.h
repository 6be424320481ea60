// One measured all-reduce: inputs through the reference, and how far off the result is. What
// `arlab reduce` prints and what a study repeats.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/cli/report.h"
#include "reference/codecs/codec.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/schedule.h"
#include "reference/metrics/error.h"
#include "reference/tensors/tensor.h"

namespace arlab::cli {

struct Reduction {
  Tensor outputs;                    ///< of all ranks
  ErrorMetrics error;                ///< of rank 0 against the exact sum
  ErrorMetrics versus_uncompressed;  ///< of rank 0 against the same algorithm with plain values
  ExecuteCounts counts;
  WireVolume wire;
  std::optional<RankDifference> difference;  ///< between ranks; none when bits are identical
};

/// `exact` is exact_sum of the same inputs.
Reduction run_reduction(const Schedule& schedule, const Codec& codec, const Tensor& inputs,
                        const ExactSum& exact, const ExecuteOptions& options);

/// The figures of a reduction, in the order and with the names of the command line's contract.
std::vector<Field> reduction_fields(const Reduction& reduction, const ExactSum& exact);

}  // namespace arlab::cli
