#include "sim/workload/model_time.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/error.h"
#include "sim/device/kernel_model.h"
#include "sim/library/library.h"
#include "sim/library/library_plan.h"
#include "sim/simulator.h"
#include "sim/workload/tiled_product.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kTracedLayers = 3;  ///< for overlapping batches, which need some to settle

double memory_us(double bytes, const Device& device) {
  const double gb_per_s = device.hbm_gb_per_s.value * device.compute->memory_efficiency.value;
  return bytes / (gb_per_s * 1e9) * kUsPerSecond;
}

double compute_us(double flop, double efficiency, const Device& device) {
  const double tflops = device.compute->bf16_tflops.value * efficiency;
  return flop / (tflops * 1e12) * kUsPerSecond;
}

ScheduleRequest request_of(const Operation& operation, const Codec& codec,
                           const Topology& topology) {
  return {.world_size = operation.ranks,
          .elements = operation.elements,
          .alignment = codec.info().alignment,
          .options = {{"group_size", default_group_size(topology, operation.ranks)}}};
}

double simulated_us(const Operation& operation, const InferenceStep& step,
                    const Communication& communication, const Topology& topology) {
  const CodecPtr codec = operation.encoded ? communication.codec : find_codec(name_of(step.dtype));
  const double us = simulate({algorithm_of(operation, step.dtype, communication, topology),
                              request_of(operation, *codec, topology),
                              *codec,
                              step.dtype,
                              topology,
                              {.library = communication.library}})
                        .latency_us;
  if (!operation.has_tail) return us;
  const TailWork work = tail_work(operation.elements, step.dtype, true, nullptr);
  return us + fused_tail_us(topology.device, step.dtype, work);
}

void require_possible(const InferenceStep& step, const Topology& topology, Overlap overlap) {
  if (!topology.device.compute) {
    fail("topology {} has no section [compute], which says how fast its devices calculate",
         quote(topology.name));
  }
  if (size_of(step.dtype) != 2) {
    fail("dtype {}: the rates of [compute] are of 16-bit values; allowed are fp16, bf16",
         name_of(step.dtype));
  }
  if (step.world() > topology.ranks.value) {
    fail("{} ranks are more than the {} of topology {}", step.world(), topology.ranks.value,
         quote(topology.name));
  }
  if (step.kernels == Kernels::tails && (step.ranks < 2 || overlap == Overlap::batches)) {
    fail("kernels tails: {}; allowed are fused and separate",
         step.ranks < 2 ? "one rank has no all-reduce"
                        : "batches that overlap calculate while others communicate");
  }
  if (overlap == Overlap::batches && step.batch < 2) {
    fail("one sequence is not enough to overlap two batches: allowed is a batch of at least 2");
  }
}

/// The halves that take turns, or all of it.
std::vector<InferenceStep> parts_of(const InferenceStep& step, Overlap overlap) {
  if (overlap == Overlap::none) return {step};
  std::vector<InferenceStep> halves(2, step);
  halves[0].batch = (step.batch + 1) / 2;
  halves[1].batch = step.batch / 2;
  if (step.lengths.empty()) return halves;
  halves[0].lengths.resize(halves[0].batch);
  halves[1].lengths.erase(halves[1].lengths.begin(),
                          halves[1].lengths.end() - static_cast<std::ptrdiff_t>(halves[1].batch));
  return halves;
}

/// The rest of a batch's work, in order.
struct Queue {
  std::vector<OperationSpan> work;  ///< without times
  std::size_t next = 0;
  bool is_busy = false;
};

/// Operations of each layer, then those of the head.
Queue queue_of(const std::vector<TimedOperation>& operations, std::uint32_t batch,
               std::uint32_t layers) {
  Queue queue;
  for (std::uint32_t layer = 0; layer <= layers; ++layer) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const std::uint32_t first = operations[i].first_layer;
      if (operations[i].batch == batch && layer >= first && layer - first < operations[i].count) {
        queue.work.push_back({.operation = i, .layer = layer});
      }
    }
  }
  return queue;
}

bool communicates(const TimedOperation& timed) {
  return timed.operation.kind == OperationKind::communication;
}

/// The device, or the links: it serves one operation at a time.
struct Server {
  Queue* queue = nullptr;  ///< the served one; nullptr: none
  OperationSpan span = {};
  std::optional<TiledProduct> product = {};
  double free_us = 0;  ///< when the last one has ended

  double end_us() const {
    if (queue == nullptr) return std::numeric_limits<double>::infinity();
    return product ? product->end_us() : span.end;
  }
};

/// Begins each of the batches' next operations when the one before it is done and its resources are free. A collective has so
/// many of all multiprocessors.
void put_in_order(ModelTime& time, std::vector<Queue> queues, double kernel_us, std::uint32_t taken,
                  std::uint32_t all) {
  Server device;
  Server links;
  double waited = 0;
  const auto begin = [&](Queue& queue, double now_us) {
    const OperationSpan& next = queue.work[queue.next];
    const TimedOperation& timed = time.operations[next.operation];
    const bool sends = communicates(timed);
    Server& server = sends ? links : device;
    if (server.queue != nullptr) return;
    server = {.queue = &queue, .span = next, .free_us = server.free_us};
    ++queue.next;
    queue.is_busy = true;
    const double begin_us =
        sends && taken > 0 && device.product ? device.product->take(taken, now_us) : now_us;
    server.span.begin = begin_us;
    server.span.end = begin_us + timed.us;
    if (sends) return;
    waited += now_us - server.free_us;
    if (taken == 0 || timed.operation.tiles == 0 || timed.bound != "compute") return;
    const double start_us = timed.operation.kernels * kernel_us;
    server.product.emplace(now_us + start_us, timed.us - start_us, timed.operation.tiles, all,
                           links.queue == nullptr ? 0 : taken);
  };
  const auto end = [&](Server& server, double now_us) {
    const double alone_us = time.operations[server.span.operation].us;
    if (server.product) time.taken_us += now_us - server.span.begin - alone_us;
    server.span.end = server.free_us = now_us;
    server.queue->is_busy = false;
    server.queue = nullptr;
    server.product.reset();
    time.spans.push_back(server.span);
  };
  for (double now_us = 0;;) {
    for (Queue& queue : queues) {
      if (!queue.is_busy && queue.next < queue.work.size()) begin(queue, now_us);
    }
    if (device.queue == nullptr && links.queue == nullptr) break;
    const double device_end_us = device.end_us();
    const double links_end_us = links.end_us();
    now_us = std::min(device_end_us, links_end_us);
    if (links_end_us == now_us) {
      end(links, now_us);
      if (device.product) device.product->give(taken, now_us);
    }
    if (device_end_us == now_us) end(device, now_us);
  }
  // The device also waits for what comes last, if that is communication.
  time.communication_us = waited + std::max(0.0, links.free_us - device.free_us);
}

}  // namespace

std::string_view name_of(Overlap overlap) { return overlap == Overlap::none ? "none" : "batches"; }

TimedOperation roofline(const Operation& operation, const Device& device) {
  const Compute& compute = *device.compute;
  const double memory = memory_us(operation.bytes, device);
  double arithmetic = 0;
  if (operation.kind == OperationKind::gemm) {
    arithmetic = compute_us(operation.flop, compute.gemm_efficiency.value, device);
  } else if (operation.kind == OperationKind::attention) {
    arithmetic = compute_us(operation.flop, compute.attention_efficiency.value, device);
  }
  TimedOperation timed{.operation = operation};
  timed.us = operation.kernels * compute.kernel_us.value + std::max(memory, arithmetic);
  timed.bound = arithmetic > memory ? "compute" : "memory";
  return timed;
}

const Algorithm& algorithm_of(const Operation& operation, DType dtype,
                              const Communication& communication, const Topology& topology) {
  const bool reduces = operation.collective == Collective::all_reduce;
  if (reduces && communication.library && communication.algorithm.empty()) {
    const CodecPtr plain = find_codec(name_of(dtype));
    return library_algorithm(request_of(operation, *plain, topology), *plain, dtype, topology);
  }
  const std::string name =
      reduces ? communication.algorithm : std::string(name_of(operation.collective));
  const Algorithm& algorithm = find_simulated_algorithm(name);
  if (algorithm.collective != operation.collective) {
    fail("algorithm {} does no all-reduce", quote(name));
  }
  return algorithm;
}

ModelClock::ModelClock(const ModelShape& model, const Communication& communication,
                       const Topology& topology)
    : model_(model), communication_(communication), topology_(topology), of_collectives_(topology) {
  if (communication.multiprocessors == 0 || communication.library) return;
  of_collectives_.device = with_multiprocessors(topology.device, communication.multiprocessors);
}

double ModelClock::collective_us(const Operation& operation, const InferenceStep& step) {
  const Key key = {operation.collective, operation.elements, operation.encoded,
                   operation.has_tail,   operation.ranks,    step.dtype};
  const auto [entry, is_new] = known_us_.try_emplace(key, 0.0);
  if (is_new) entry->second = simulated_us(operation, step, communication_, of_collectives_);
  return entry->second;
}

ModelTime model_time(const ModelShape& model, const InferenceStep& step,
                     const Communication& communication, const Topology& topology,
                     Overlap overlap) {
  return ModelClock(model, communication, topology).time(step, overlap);
}

ModelTime ModelClock::time(const InferenceStep& step, Overlap overlap) {
  require_possible(step, topology_, overlap);
  ModelTime time;
  double communicated = 0;
  const auto add = [&](const Operation& operation, std::uint32_t batch, std::uint32_t first_layer,
                       std::uint32_t count) {
    TimedOperation timed = roofline(operation, topology_.device);
    if (communicates(timed)) {
      timed.us = collective_us(operation, step);
      timed.bound = "links";
    }
    timed.first_layer = first_layer;
    timed.count = count;
    timed.batch = batch;
    (communicates(timed) ? communicated : time.compute_us) += timed.count * timed.us;
    time.operations.push_back(std::move(timed));
  };
  std::vector<Queue> queues;
  const std::vector<InferenceStep> parts = parts_of(step, overlap);
  for (std::uint32_t batch = 0; batch < parts.size(); ++batch) {
    std::uint32_t layer = 0;
    for (const LayerKind& kind : model_.kinds()) {
      for (const Operation& each : operations_of_layer(model_, kind, parts[batch])) {
        add(each, batch, layer, kind.count);
      }
      layer += kind.count;
    }
    for (const Operation& each : operations_of_head(model_, parts[batch])) {
      add(each, batch, layer, 1);
    }
    queues.push_back(queue_of(time.operations, batch, layer));
  }
  const std::uint32_t taken = overlap == Overlap::none ? 0 : communication_.multiprocessors;
  put_in_order(time, std::move(queues), topology_.device.compute->kernel_us.value, taken,
               taken == 0 ? 0 : multiprocessors_of(topology_.device));
  time.compute_us += time.taken_us;
  // Nothing is hidden without overlap; the difference of two sums would leave their rounding.
  if (overlap != Overlap::none) time.hidden_us = communicated - time.communication_us;
  time.total_us = time.compute_us + time.communication_us;
  return time;
}

std::string layer_trace(const ModelTime& time, const std::string& title) {
  const bool overlaps = time.operations.back().batch > 0;
  const std::uint32_t layers = time.operations.back().first_layer;
  Json events = Json::array();
  const auto name_track = [&events](int track, const char* name) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 1},
                      {"tid", track},
                      {"args", {{"name", name}}}});
  };
  events.push_back(
      {{"ph", "M"}, {"name", "process_name"}, {"pid", 1}, {"args", {{"name", "rank"}}}});
  name_track(1, "device");
  name_track(2, "links");
  for (const OperationSpan& span : time.spans) {
    const TimedOperation& timed = time.operations[span.operation];
    if (span.layer == layers || span.layer >= (overlaps ? kTracedLayers : 1)) continue;
    const Operation& operation = timed.operation;
    events.push_back({{"ph", "X"},
                      {"cat", std::string(name_of(operation.kind))},
                      {"name", operation.name},
                      {"pid", 1},
                      {"tid", communicates(timed) ? 2 : 1},
                      {"ts", span.begin},
                      {"dur", span.end - span.begin},
                      {"args",
                       {{"layer", span.layer},
                        {"batch", timed.batch},
                        {"flop", operation.flop},
                        {"bytes", operation.bytes},
                        {"elements", operation.elements},
                        {"bound", timed.bound}}}});
  }
  const Json about = {{"schema", "arlab.model.trace/1"}, {"title", title}};
  return Json({{"displayTimeUnit", "ns"}, {"otherData", about}, {"traceEvents", events}})
             .dump(1, ' ', false, Json::error_handler_t::replace) +
         '\n';
}

}  // namespace arlab
