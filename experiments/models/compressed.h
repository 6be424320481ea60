// The all-reduces of a network, compressed: through the reference executor, or kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/models/llama.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/schedule.h"

namespace arlab::models {

/// Runs one collective on the tensors of all ranks, which lie one after the other.
using RunCollective = std::function<void(std::uint64_t elements, std::span<const std::byte> inputs,
                                         std::span<std::byte> outputs)>;

/// A schedule for so many elements of each rank.
using MakeSchedule = std::function<Schedule(std::uint64_t elements)>;

/// Bytes of all sends so far: as long as wires have become, and as they can be at most.
struct SentBytes {
  WideCount sent = 0;
  WideCount most = 0;
};

/// The reference executor. Schedules are made once for every size. `bytes`: is added to, if it is given.
RunCollective in_reference(MakeSchedule make, CodecPtr outer, CodecPtr inner, DType dtype,
                           const ExecuteOptions& options, std::shared_ptr<SentBytes> bytes = {});

/// Figures of the sums of one projection of one layer, over all tokens so far: against the exact sum of what the ranks held in
/// the dtype.
struct SumFigures {
  double signal = 0;  ///< sum of squares
  double error = 0;
  std::vector<float> token_sqnr_db;  ///< one for each token with any error; +-infinity otherwise
  bool ranks_identical = true;
};

/// The lower median, in dB: +infinity without error, nothing of no tokens. A token that has become infinite or NaN is worse than
/// any other.
std::optional<double> median_token_sqnr_db(std::vector<float> of_tokens);

/// Partial sums are rounded to the dtype and reduced; the network goes on with what rank 0 ends with.
class CompressedAllReduce : public TensorParallel {
 public:
  /// `of_layer`: how each layer's sums travel; null: its projections are not split at all. `rounded_to`: another dtype that partial
  /// sums are rounded to, where sums stay fp32.
  CompressedAllReduce(std::size_t ranks, std::size_t hidden, DType dtype,
                      std::vector<std::shared_ptr<const RunCollective>> of_layer, unsigned threads,
                      std::optional<DType> rounded_to = std::nullopt);

  std::size_t ranks() const override { return ranks_; }
  bool splits(std::size_t layer) const override { return of_layer_.at(layer) != nullptr; }
  void all_reduce(std::size_t layer, Projection projection, std::span<const float> partial_sums,
                  std::span<float> sum) override;

  const SumFigures& figures(std::size_t layer, Projection projection) const {
    return figures_.at(2 * layer + static_cast<std::size_t>(projection));
  }
  /// The median over all tokens of all sums, in dB: +infinity without error, nothing without a sum.
  std::optional<double> median_token_sqnr_db() const;
  bool ranks_identical() const;

 private:
  std::size_t ranks_;
  std::size_t hidden_;  ///< elements of a token
  DType dtype_;
  DType rounded_to_;
  std::vector<std::shared_ptr<const RunCollective>> of_layer_;
  unsigned threads_;
  std::vector<SumFigures> figures_;
  std::vector<std::byte> inputs_;
  std::vector<std::byte> outputs_;
};

}  // namespace arlab::models
