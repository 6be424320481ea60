// What a rank does in one layer of a tensor-parallel transformer: its operations, with what each
// calculates and moves. How long that takes is model_time.h.
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

/// How a layer is cut into kernels: `fused` as engines for inference do it (residual and norm are
/// one, so are SiLU and product), `separate` as PyTorch executes the formula.
enum class Kernels : std::uint8_t { fused, separate };
inline constexpr Kernels kKernels[] = {Kernels::fused, Kernels::separate};
std::string_view name_of(Kernels kernels);

/// What the ranks are to do together: a prefill of prompts, or one decode step.
struct InferenceStep {
  Phase phase = Phase::prefill;
  std::uint64_t batch = 1;   ///< sequences
  std::uint64_t tokens = 1;  ///< tokens of each prompt; in decode those that are there already
  Rank ranks = 1;            ///< that share each layer
  DType dtype = DType::bf16;
  Kernels kernels = Kernels::fused;
  bool attention = true;           ///< false: as the benchmark of layers, a copy of q in its place
  bool quantized_combine = false;  ///< experts: the codec on the way back, too
  /// Where sequences differ: the tokens of each, in place of `tokens`.
  std::vector<std::uint64_t> lengths = {};

  /// That go through a layer together.
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
  double flop = 0;            ///< a multiplication and an addition are two
  double bytes = 0;           ///< read from and written to the device's memory, each operand once
  std::uint32_t kernels = 1;  ///< that it takes
  double tiles = 0;           ///< of a matrix product (tiled_product.h)
  /// Communication: what, of how many elements of a rank, and whether the codec encodes them or
  /// they go as they are.
  Collective collective = Collective::all_reduce;
  std::uint64_t elements = 0;
  bool encoded = true;
};

/// The operations of a layer of that kind, in order. With one rank nothing is communicated. Experts
/// are spread over the ranks; each rank sends its share of the tokens to them and back, and all
/// gather the sums. Tokens choose experts evenly. With latent attention each rank makes the small
/// vectors of all tokens; keys and values are made of those of a prompt, while a new token's heads
/// look at the vectors themselves. Throws InvalidInput when the ranks do not divide a width.
std::vector<Operation> operations_of_layer(const ModelShape& model, const LayerKind& kind,
                                           const InferenceStep& step);

/// Bytes that a rank has to keep: of the weights, with their bits, and of the keys and values of all
/// sequences at the end of the step, 16 bits each.
struct MemoryNeed {
  double weights = 0;
  double kept = 0;
};
MemoryNeed memory_of(const ModelShape& model, const InferenceStep& step);

/// What follows the last layer: the norm and the logits of one token per sequence.
std::vector<Operation> operations_of_head(const ModelShape& model, const InferenceStep& step);

}  // namespace arlab
