// How long a model takes for a prompt or a token: a roofline of the operations of its layers on the
// device's [compute] figures, and simulated collectives between them.
//
//   gemm          kernels * kernel_us + max(flop / (bf16_tflops * gemm_efficiency), memory)
//   attention     the same with attention_efficiency
//   elementwise   kernels * kernel_us + memory
//   memory        bytes / (hbm_gb_per_s * memory_efficiency)
//   communication simulate() of the collective, and of a tail what it adds (device/kernel_model.h)
//
// Without overlap one follows the other. With two batches each operation of a half goes through the
// device, or through the links, one at a time and in the order in which it can begin; one half
// calculates while the other communicates. Without a number of multiprocessors, collectives take nothing from the device, so
// that this is a bound. Else a product that is not bound by memory has only the others beside them (tiled_product.h); attention
// and all that is bound by memory are not affected.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "reference/collectives/codecs.h"
#include "sim/topology/topology.h"
#include "sim/workload/layer.h"

namespace arlab {

enum class Overlap : std::uint8_t { none, batches };
inline constexpr Overlap kOverlaps[] = {Overlap::none, Overlap::batches};
std::string_view name_of(Overlap overlap);

/// How values travel.
struct Communication {
  /// The all-reduces between layers run it; empty: the library chooses by size.
  std::string algorithm = "two_shot";
  CodecPtr codec = nullptr;
  bool library = false;  ///< as NCCL or RCCL do it; the codec sends values as they are
  /// multiprocessors of its kernels, which products beside them cannot use; 0: all that they want, and nothing is taken. A
  /// library's time with fewer is not known: it stays as fast.
  std::uint32_t multiprocessors = 0;
};

struct TimedOperation {
  Operation operation;
  std::uint32_t first_layer = 0;  ///< the number of layers for operations after the last one
  std::uint32_t count = 1;        ///< how many layers, from that one on
  std::uint32_t batch = 0;        ///< which of two that overlap: 0 or 1
  double us = 0;                  ///< once
  std::string bound = {};         ///< its bottleneck: compute, memory, links
};

/// One operation on the timeline, in us from the beginning.
struct OperationSpan {
  std::size_t operation = 0;  ///< index into ModelTime::operations
  std::uint32_t layer = 0;
  double begin = 0;
  double end = 0;
};

struct ModelTime {
  double total_us = 0;          ///< compute_us + communication_us
  double compute_us = 0;        ///< in which the device calculates
  double communication_us = 0;  ///< in which it waits for communication
  double hidden_us = 0;         ///< time of communication while it calculates
  double taken_us = 0;  ///< part of compute_us by which products are longer beside communication
  std::vector<TimedOperation> operations;
  std::vector<OperationSpan> spans;  ///< operations of all layers, by resource in the order of time
};

/// A model on a machine, which is asked for steps one after the other: a collective that several of
/// them have is simulated once. All must outlive it.
/// Returns the algorithm of one of its collectives. Throws InvalidInput for one that is no all-reduce.
const Algorithm& algorithm_of(const Operation& operation, DType dtype,
                              const Communication& communication, const Topology& topology);

class ModelClock {
 public:
  /// Throws InvalidInput when the device has not so many multiprocessors.
  ModelClock(const ModelShape& model, const Communication& communication, const Topology& topology);

  /// As model_time().
  ModelTime time(const InferenceStep& step, Overlap overlap = Overlap::none);

 private:
  using Key = std::tuple<Collective, std::uint64_t, bool, bool, Rank, DType>;

  double collective_us(const Operation& operation, const InferenceStep& step);

  const ModelShape& model_;
  const Communication& communication_;
  const Topology& topology_;
  Topology of_collectives_;  ///< as their kernels see it
  std::map<Key, double> known_us_;
};

/// Throws InvalidInput when the topology has no [compute] or too few ranks, the dtype has not 16
/// bits, or there is nothing to overlap; and as simulate() does.
ModelTime model_time(const ModelShape& model, const InferenceStep& step,
                     const Communication& communication, const Topology& topology,
                     Overlap overlap = Overlap::none);

/// Returns the time of one operation on a device that calculates, and its bottleneck.
TimedOperation roofline(const Operation& operation, const Device& device);

/// The first layer (with two batches: the first three) as a timeline in Chrome's trace format, see
/// trace/perfetto.h: process "rank" has a track for the device and one for the links.
std::string layer_trace(const ModelTime& time, const std::string& title);

}  // namespace arlab
