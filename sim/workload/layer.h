// A rank's operations in one layer of a tensor-parallel transformer, with what each calculates and moves. How long that takes
// is model_time.h.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "reference/codecs/codec.h"
#include "reference/collectives/schedule.h"
#include "sim/workload/model_shape.h"

namespace arlab {

inline constexpr double kUsPerSecond = 1e6;

/// A prompt, all tokens at once, or one more token per sequence.
enum class Phase : std::uint8_t { prefill, decode };
inline constexpr Phase kPhases[] = {Phase::prefill, Phase::decode};
std::string_view name_of(Phase phase);

/// How a layer is cut into kernels: `fused` as engines for inference do it (residual and norm are one, so are SiLU and product);
/// `separate` as PyTorch executes the formula; `tails` as `fused`, with residual and norm in the kernel of the all-reduce
/// before them.
enum class Kernels : std::uint8_t { fused, separate, tails };
inline constexpr Kernels kKernels[] = {Kernels::fused, Kernels::separate, Kernels::tails};
std::string_view name_of(Kernels kernels);

/// Joint work of the ranks: a prefill of prompts, or one decode step.
struct InferenceStep {
  Phase phase = Phase::prefill;
  std::uint64_t batch = 1;   ///< sequences
  std::uint64_t tokens = 1;  ///< tokens of each prompt; in decode those that are there already
  Rank ranks = 1;            ///< ranks that share each layer (tensor parallel)
  DType dtype = DType::bf16;
  Kernels kernels = Kernels::fused;
  bool attention = true;           ///< false: as the benchmark of layers, a copy of q in its place
  bool quantized_combine = false;  ///< experts: the codec on the way back, too
  /// Where sequences differ: the tokens of each, in place of `tokens`.
  std::vector<std::uint64_t> lengths = {};
  /// Groups of ranks with sequences of their own that share the experts (data parallel): `batch` is one group's, and all do the
  /// same.
  Rank groups = 1;
  /// Ranks over which the experts are spread; each is cut over as many as there are for one. 0: all.
  Rank experts_over = 0;

  Rank world() const { return ranks * groups; }
  Rank expert_ranks() const { return experts_over == 0 ? world() : experts_over; }

  /// Returns the rows that go through a layer together.
  std::uint64_t rows() const {
    if (phase == Phase::decode) return batch;
    if (lengths.empty()) return batch * tokens;
    return std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
  }
};

enum class OperationKind : std::uint8_t { gemm, attention, elementwise, communication };
std::string_view name_of(OperationKind kind);

/// An operation between collectives, as one rank does it.
struct Operation {
  std::string name;
  OperationKind kind = OperationKind::elementwise;
  double flop = 0;              ///< a multiplication and an addition are two
  double bytes = 0;             ///< read from and written to the device's memory, each operand once
  std::uint32_t kernels = 1;    ///< launched by it
  double tiles = 0;             ///< tiles of a matrix product (tiled_product.h)
  double activation_bytes = 0;  ///< bytes of a matrix product beside the weights
  /// Communication: what, of how many elements of a rank, and whether the codec encodes them or
  /// they go as they are.
  Collective collective = Collective::all_reduce;
  std::uint64_t elements = 0;
  bool encoded = true;
  Rank ranks = 1;         ///< participants
  bool has_tail = false;  ///< adds its sum to the residual and normalizes that
};

/// The operations of a layer of that kind, in order. With one rank nothing is communicated. Where all
/// ranks have experts, each sends its share of the tokens to them and back, and all of a group gather
/// the sums; where experts are cut over ranks, all have all tokens and add up. Tokens choose experts
/// evenly. With latent attention each rank makes the small vectors of all tokens; keys and values are
/// made of those of a prompt, while a new token's heads look at the vectors themselves. Of a scan of
/// states the bytes are counted, not the arithmetic. Throws InvalidInput when the ranks do not divide
/// a width.
std::vector<Operation> operations_of_layer(const ModelShape& model, const LayerKind& kind,
                                           const InferenceStep& step);

/// Bytes of a state's element: fp32, as most models say.
inline constexpr double kStateBytes = 4;

/// Bytes that a rank has to keep: of the weights, with their bits; of the keys and values of all
/// sequences at the end of the step, 16 bits each, with states in fp32 and an index in 8 bits; and
/// of buffers: a layer's input and output, the operands of its largest product, and what its largest
/// collective sends and receives.
struct MemoryNeed {
  double weights = 0;
  double kept = 0;
  double buffers = 0;
};
MemoryNeed memory_of(const ModelShape& model, const InferenceStep& step);

/// Returns the operations after the last layer: the norm and the logits of one token per sequence.
std::vector<Operation> operations_of_head(const ModelShape& model, const InferenceStep& step);

}  // namespace arlab
