// The kernel model: what a stage of a kernel costs a device, and how that overlaps with the wire.
// One interface, and a model for every kind of kernel:
//
//   fused_kernel.h    a fused kernel of which little is known, with or without [stores]
//   own_kernels.h     arlab's own ([blocks]): with flags, as a program or not; [small], one tile per block
//   sentinel_kernel.h   [sentinels]: wires that announce themselves, all stages side by side
//   library_kernel.h  [library]: NCCL or RCCL inside a server; across_kernel.h: across servers
//
// kernel_choice.h says which of its own arlab runs. All have in common, with the operations of a
// stage (CodecCost times elements, and sums):
//
//   work      max(ops / codec_gops_per_s, memory traffic / hbm_gb_per_s)          all tiles
//   measure   before the stage, where its codec takes two passes: a kernel that reads all that is
//             encoded; of sums another one that has written them, and they are read once more
//
// Of two codecs, each counts for the elements that it works on.
#pragma once

#include <memory>

#include "sim/device/device.h"
#include "sim/network/max_min.h"
#include "sim/plan.h"

namespace arlab {

/// Parts of a stage's time that do not depend on the network; us.
struct StageCost {
  double flags_us = 0;
  double first_tile_us = 0;
  double work_us = 0;
  double release_us = 0;
  double measure_us = 0;  ///< before all of these
  double hidden_us = 0;   ///< work, of any stage of the rank, that its messages hide

  double latency_us() const { return flags_us + first_tile_us; }
};

/// Where the time of a stage or message goes; us. They add up to it.
struct TimeParts {
  double synchronisation_us = 0;
  double wire_us = 0;
  double contention_us = 0;
  double codec_us = 0;
  double release_us = 0;

  double total_us() const {
    return synchronisation_us + wire_us + contention_us + codec_us + release_us;
  }
};

class KernelModel {
 public:
  virtual ~KernelModel() = default;
  KernelModel(const KernelModel&) = delete;
  KernelModel& operator=(const KernelModel&) = delete;

  virtual double launch_us() const { return device_.launch_us.value; }
  /// Share of a link's bandwidth that is wire bytes, for what the outer codec packs them into.
  virtual double link_efficiency() const { return collective_efficiency(); }
  /// Bytes that a message is for a link of that efficiency: its own, but where the inner codec
  /// packs differently.
  virtual std::uint64_t link_bytes(const PlannedMessage& message) const { return message.bytes; }

  /// Returns the rate at which the sender's blocks can send to each peer of the stage, in GB/s of wire bytes.
  virtual double rate_cap_gb_per_s(const Stage&) const { return kNoRateCap; }

  /// Steps whose messages travel side by side, from when the kernel starts: that blocks wait for
  /// what another step sends, tile by tile, is in the times of the messages. 0: a step begins when
  /// what it waits for has come.
  virtual std::uint32_t steps_side_by_side() const { return 0; }
  /// Whether a rank waits after each step for all that comes in it (in_lock_step()).
  virtual bool waits_in_each_step() const { return false; }

  StageCost cost_of(const Stage& stage) const;
  /// Whether the memory of the device makes the work of the stage as long as it is, not its
  /// arithmetic.
  bool is_memory_bound(const Stage& stage) const;
  /// The stage that decoding into the output would be.
  static Stage output_stage(std::uint64_t elements, std::uint64_t inner = 0) {
    return {.decoded = elements, .written = elements, .inner = {.decoded = inner}};
  }
  /// Decoding into the output what arrives at a rank that is not busy with a stage; `inner` of the
  /// elements with the inner codec.
  double output_us(std::uint64_t elements, std::uint64_t inner = 0) const {
    return work_us(output_stage(elements, inner));
  }

  /// How long it takes from the last arrival in exchange for the stage's messages until the output
  /// that they make up is written; 0 where that is hidden.
  virtual double gather_us(const Stage&) const { return 0; }

  /// Whether the time of a message depends on the bandwidth of its link beyond what the network
  /// says.
  virtual bool knows_contention() const { return false; }
  /// The time from the begin of the stage until a message of it has left, given how long the
  /// network took for it, on a link of this bandwidth. Not before the network is done.
  TimeParts message_time(const Stage& stage, const StageCost& cost, const PlannedMessage& message,
                         double network_us, double link_gb_per_s) const;
  /// The time from the begin of the stage until its own work is done.
  virtual TimeParts stage_time(const StageCost& cost) const = 0;

 protected:
  KernelModel(const Device& device, const Plan& plan) : device_(device), plan_(plan) {}

  virtual StageCost cost_without_measuring(const Stage& stage) const = 0;
  virtual TimeParts time_without_measuring(const Stage& stage, const StageCost& cost,
                                           const PlannedMessage& message, double network_us,
                                           double link_gb_per_s) const = 0;
  /// Operations of what one codec does in a stage.
  virtual double operations(const CodecCost& cost, const CodecWork& work) const;
  /// The library sends values as they are.
  virtual bool measures() const { return true; }
  /// Returns the time of measuring beside its passes over memory: kernels of its own.
  virtual double fixed_measure_us(bool of_sums) const {
    return (of_sums ? 2 : 1) * device_.launch_us.value;
  }

  /// Passes over memory of what is measured. Sums are complete when a kernel ends: written, measured, read.
  virtual double passes_to_measure(bool of_sums) const { return of_sums ? 3 : 1; }

  /// Returns the cost of an operation, in units of counted operations.
  double operation_cost() const { return plan_.dtype == DType::bf16 ? device_.bf16_cost.value : 1; }
  double operations(const Stage& stage) const;
  double arithmetic_us(const Stage& stage) const;
  double memory_us(const Stage& stage) const;
  double work_us(const Stage& stage) const;
  double collective_efficiency() const;

  const Device& device_;
  const Plan& plan_;

 private:
  /// Read and written in the device's own memory.
  double memory_bytes(const Stage& stage) const;
  double measure_us(const Stage& stage) const;
};

/// Work on rows of a sum, in place of which they are written. `output`: the codec that writes them; null: as they are.
TailWork tail_work(std::uint64_t elements, DType dtype, bool adds_residual, const Codec* output);
/// Time that a tail adds to the all-reduce's kernel; and that of a kernel of its own, which reads the sum; us:
///   fused     fused_us + max(bytes / (hbm_gb_per_s * efficiency), ops / codec_gops_per_s)   [tails]
///   separate  (kernel_us^4 + max(...)^4)^(1/4): few rows hide behind the launch
double fused_tail_us(const Device& device, DType dtype, const TailWork& work);
double separate_tail_us(const Device& device, DType dtype, const TailWork& work);

/// The model of what runs the plan on the device, which has the library of a library's plan; both
/// must outlive it.
std::unique_ptr<const KernelModel> make_kernel_model(const Device& device, const Plan& plan);

}  // namespace arlab
