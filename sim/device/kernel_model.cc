#include "sim/device/kernel_model.h"

#include <algorithm>

#include "reference/device_facts/two_passes.h"
#include "sim/device/across_kernel.h"
#include "sim/device/fused_kernel.h"
#include "sim/device/kernel_choice.h"
#include "sim/device/library_kernel.h"
#include "sim/device/own_kernels.h"
#include "sim/device/sentinel_kernel.h"
#include "sim/device/times.h"

namespace arlab {

std::unique_ptr<const KernelModel> make_kernel_model(const Device& device, const Plan& plan) {
  if (plan.library) {
    if (plan.longest_way) return std::make_unique<AcrossKernel>(device, plan);
    return std::make_unique<LibraryKernel>(device, plan);
  }
  if (!device.blocks) return std::make_unique<FusedKernel>(device, plan);
  switch (own_kernel_of(device, plan)) {
    case OwnKernel::sentinels:
      return std::make_unique<SentinelKernel>(device, plan);
    case OwnKernel::small:
      return std::make_unique<SmallKernel>(device, plan);
    case OwnKernel::flags:
      return std::make_unique<FlagsKernel>(device, plan, false);
    case OwnKernel::program:
      break;
  }
  return std::make_unique<FlagsKernel>(device, plan, true);
}

double KernelModel::collective_efficiency() const {
  const bool exchanges = plan_.collective == Collective::all_to_all ||
                         plan_.collective == Collective::dispatch_combine;
  return exchanges ? device_.all_to_all_efficiency.value : 1;
}

double KernelModel::memory_bytes(const Stage& stage) const {
  const auto element = static_cast<double>(size_of(plan_.dtype));
  // Messages go to the memory of others; their links are slower.
  return static_cast<double>(stage.encoded + stage.written) * element +
         static_cast<double>(stage.outer().decoded) * plan_.wire_bytes_per_element +
         static_cast<double>(stage.inner.decoded) * plan_.inner_wire_bytes_per_element;
}

double KernelModel::operations(const CodecCost& cost, const CodecWork& work) const {
  return cost.encode_ops_per_element * static_cast<double>(work.encoded) +
         device_.decode_cost.value * cost.decode_ops_per_element *
             static_cast<double>(work.decoded);
}

double KernelModel::operations(const Stage& stage) const {
  return operations(plan_.cost, stage.outer()) + operations(plan_.inner_cost, stage.inner);
}

double KernelModel::arithmetic_us(const Stage& stage) const {
  const double ops = operations(stage) + static_cast<double>(stage.added);
  return time_us(ops * operation_cost(), device_.codec_gops_per_s.value);
}

double KernelModel::memory_us(const Stage& stage) const {
  return time_us(memory_bytes(stage), device_.hbm_gb_per_s.value);
}

bool KernelModel::is_memory_bound(const Stage& stage) const {
  return memory_us(stage) > arithmetic_us(stage);
}

double KernelModel::work_us(const Stage& stage) const {
  // Channels share the device evenly.
  return plan_.channels * std::max(arithmetic_us(stage), memory_us(stage));
}

double KernelModel::measure_us(const Stage& stage) const {
  if (!measures()) return 0;
  const double measured =
      static_cast<double>((measures_first(plan_.cost) ? stage.outer().encoded : 0) +
                          (measures_first(plan_.inner_cost) ? stage.inner.encoded : 0));
  if (measured == 0) return 0;
  return fixed_measure_us(stage.added > 0) + time_us(passes_to_measure(stage.added > 0) * measured *
                                                         static_cast<double>(size_of(plan_.dtype)),
                                                     device_.hbm_gb_per_s.value);
}

StageCost KernelModel::cost_of(const Stage& stage) const {
  StageCost cost = cost_without_measuring(stage);
  cost.measure_us = measure_us(stage);
  return cost;
}

TailWork tail_work(std::uint64_t elements, DType dtype, bool adds_residual, const Codec* output) {
  constexpr double kOps = 8;  // on an element: add, square and add, two products, roundings
  const auto count = static_cast<double>(elements);
  const auto size = static_cast<double>(size_of(dtype));
  TailWork work{elements, adds_residual ? 2 * size * count : 0, count * kOps};
  if (output != nullptr) {
    work.bytes += static_cast<double>(output->wire_bytes(dtype, elements)) - size * count;
    work.ops += count * output->info().cost.encode_ops_per_element;
  }
  return work;
}

namespace {

double rows_us(const Device& device, DType dtype, double bytes, double ops) {
  const double op = dtype == DType::bf16 ? device.bf16_cost.value : 1;
  const double gb_per_s = device.hbm_gb_per_s.value * device.tails.efficiency.value;
  return std::max(time_us(std::max(bytes, 0.0), gb_per_s),
                  time_us(op * ops, device.codec_gops_per_s.value));
}

}  // namespace

double fused_tail_us(const Device& device, DType dtype, const TailWork& work) {
  return device.tails.fused_us.value + rows_us(device, dtype, work.bytes, work.ops);
}

double separate_tail_us(const Device& device, DType dtype, const TailWork& work) {
  constexpr double kOverlap = 4;
  const double bytes = work.bytes + 2 * static_cast<double>(size_of(dtype) * work.elements);
  return overlapped(device.tails.kernel_us.value, rows_us(device, dtype, bytes, work.ops),
                    kOverlap);
}

TimeParts KernelModel::message_time(const Stage& stage, const StageCost& cost,
                                    const PlannedMessage& message, double network_us,
                                    double link_gb_per_s) const {
  TimeParts parts = time_without_measuring(stage, cost, message, network_us, link_gb_per_s);
  parts.codec_us += cost.measure_us;
  return parts;
}

}  // namespace arlab
