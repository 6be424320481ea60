// Models that an all-reduce of unknown make is compared with: arlab's algorithms with a codec and a record of their sum, other
// people's by name, orders of summation that libraries use, and all of these with a mistake.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/conformance/all_reduce_check.h"
#include "kernels/conformance/conform.h"
#include "reference/codecs/codec.h"
#include "reference/collectives/named.h"
#include "reference/tensors/tensor.h"

namespace arlab::kernels {

/// The inputs of a case and what came out, rank after rank.
struct AllReduceCase {
  const InputKind* kind;
  std::size_t elements;
  Tensor inputs;
  std::vector<std::byte> outputs = {};    ///< the first run's
  const AllReduceCase* before = nullptr;  ///< the call's before, if there was one

  std::string where() const { return inputs_text(*kind, elements); }
};

/// The float that rounds to the dtype as the double does.
float rounded_for(DType dtype, double value);

/// How an all-reduce is made, as data.
struct AllReduceWay {
  NamedParts parts = {};
  CodecPtr codec = {};
  const NamedAllReduce* named = nullptr;  ///< says the parts of every length, of `request`
  NamedRequest request = {};
  std::string uncompressed = {};  ///< a place (place_inner_codec) whose messages are not encoded
  bool reversed = false;          ///< from the last rank to the first
  std::string mistake = {};       ///< the codec's

  std::string name() const;
  /// In words, what is different from another one; empty: nothing that could be said.
  std::string difference_from(const AllReduceWay& other, DType dtype) const;
};

/// Outputs of all ranks; nothing where this way does not take such a tensor.
void run_way(const AllReduceWay& given, DType dtype, const AllReduceCase& c,
             std::vector<std::vector<std::byte>>& allowed);

/// A model gives the bits that an element may have: one, or some; none where it does not take the case.
struct AllReduceModel {
  AllReduceCandidate candidate;
  std::function<void(const AllReduceCase& c, std::vector<std::vector<std::byte>>& allowed)> run;
  std::shared_ptr<const AllReduceWay> way = nullptr;  ///< null for orders of summation
  bool is_loose = false;  ///< many orders at once, so that what is made in another way may fit, too
  /// It explains what was seen only if it has every bit: what differs in last bits or in a part of the elements fits too much.
  bool must_be_exact = false;
};

/// The same way with each mistake that a sum may have, over one_shot and two_shot: orders and roundings of additions, whose data are
/// added and how often, data of calls before, what is not encoded, where parts begin. `only_in_a_part`: those that stand out, if
/// other elements are right. None for other ways.
std::vector<AllReduceModel> mistaken_sums(const AllReduceWay& way, DType dtype, std::size_t ranks,
                                          bool only_in_a_part);
/// Only the orders of these, which are right but for the last bits.
std::vector<AllReduceModel> other_orders(const AllReduceWay& way, DType dtype, std::size_t ranks);
/// Every order at once, of up to 5 ranks.
std::optional<AllReduceModel> any_order(const AllReduceWay& way, DType dtype, std::size_t ranks);

/// Models that every all-reduce is compared with. Throws InvalidInput for a claim that is none.
std::vector<AllReduceModel> models_of(const AllReduceCheckRequest& request);

/// How far a model is from what came out; may stop counting at a limit.
using Distance = std::function<std::uint64_t(const AllReduceModel& model, std::uint64_t limit)>;

/// Other models, where none of those fits: other codecs and records of sums, then the usual mistakes in those that are nearest.
/// Returns the nearest by `distance`. Codecs are found by `coarse_distance`, for their mistakes may hide them in long messages, and
/// by numbers of the example's results that they do not change.
std::optional<AllReduceModel> nearest_model(const AllReduceCheckRequest& request,
                                            const std::vector<AllReduceModel>& models,
                                            const AllReduceCase& example,
                                            const Distance& coarse_distance,
                                            const Distance& distance);

/// Models of every listed codec in every algorithm, and the request's.
std::vector<AllReduceModel> listed_models(const AllReduceCheckRequest& request);
/// Sums of plain values, on every rank by itself and on owners.
std::vector<AllReduceModel> plain_models(const AllReduceCheckRequest& request);

/// The nearest of these with a mistake.
std::optional<AllReduceModel> nearest_mistaken_sum(const AllReduceCheckRequest& request,
                                                   const Distance& distance);

}  // namespace arlab::kernels
