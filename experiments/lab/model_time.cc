// How long does a model take for a prompt or a token, and which part of it is communication?

#include "sim/workload/model_time.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/lab/files.h"
#include "experiments/lab/questions.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/file.h"
#include "reference/words.h"
#include "sim/simulator.h"

namespace arlab::lab {
namespace {

constexpr std::uint32_t kMostTokens = 1 << 24;
constexpr std::uint32_t kMostBatch = 1 << 16;

struct ModelTimeRequest {
  std::string model;
  std::string topology;
  std::string phase = "prefill";
  std::string algorithm;
  std::string codec;
  std::string dtype = "bf16";
  std::string overlap = "none";
  std::string kernels = "fused";
  std::string combine = "none";
  std::string trace;
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint32_t> tokens;
  std::optional<std::uint32_t> batch;
  bool library = false;
  bool no_attention = false;

  Result answer() {
    if (algorithm.empty()) algorithm = library ? "ring" : "two_shot";
    if (!trace.empty()) require_output_file(trace);
    const Topology t = find_topology(topology);
    const ModelShape shape = find_model(model);
    const InferenceStep step = make_step(t);
    const Overlap overlaps =
        member_named(overlap, "--overlap", std::span<const Overlap>(kOverlaps));
    Communication communication{.algorithm = algorithm, .library = library};
    communication.codec = find_codec(codec.empty() ? std::string(name_of(step.dtype)) : codec);
    communication.codec->wire_bytes(step.dtype, 1);  // throws when it does not take the dtype
    const ModelTime time = model_time(shape, step, communication, t, overlaps);
    if (!trace.empty()) {
      const std::string text =
          layer_trace(time, fmt::format("{} {} on {} x {}, {} {}", shape.name, phase, step.ranks,
                                        t.device.name, algorithm, communication.codec->name()));
      write_file(trace, text);
    }
    Result figures = report(shape, step, communication, t, overlaps, time);
    figures.figures_in_csv = true;
    return figures;
  }

  InferenceStep make_step(const Topology& t) const {
    return {.phase = member_named(phase, "--phase", std::span<const Phase>(kPhases)),
            .batch = batch.value_or(1),
            .tokens = tokens.value_or(1024),
            .ranks = ranks.value_or(t.ranks.value),
            .dtype = parse_dtype(dtype),
            .kernels = member_named(kernels, "--kernels", std::span<const Kernels>(kKernels)),
            .attention = !no_attention,
            .quantized_combine = combine == "quantized"};
  }

  /// The same with the vendor's library, uncompressed; null where the topology does not know it.
  static Json library_us(const ModelShape& shape, const InferenceStep& step, const Topology& t,
                         Overlap overlaps) {
    if ((!t.device.library && !t.device.nccl) || step.ranks == 1) return nullptr;
    const Communication plain{
        .algorithm = "ring", .codec = find_codec(name_of(step.dtype)), .library = true};
    return model_time(shape, step, plain, t, overlaps).total_us;
  }

  Result report(const ModelShape& shape, const InferenceStep& step,
                const Communication& communication, const Topology& t, Overlap overlaps,
                const ModelTime& time) const {
    const bool prefill = step.phase == Phase::prefill;
    const Json plain = library_us(shape, step, t, overlaps);
    Result report{
        "arlab.model.time/1",
        {{"model", shape.name},
         {"parameters", shape.parameters(), "weights of the shapes that are modelled"},
         {"active_parameters", shape.active_parameters(), "of them, that a token is multiplied with"},
         {"topology", t.name},
         {"ranks", step.ranks, "tensor-parallel"},
         {"phase", phase},
         {"batch", step.batch, "sequences"},
         {"tokens", step.tokens,
          prefill ? "of each prompt" : "of each sequence that are there already"},
         {"dtype", dtype},
         {"algorithm", library ? algorithm + ", library" : algorithm, "of all-reduces"},
         {"codec", communication.codec->name()},
         {"overlap", overlap},
         {"kernels", kernels},
         {"ttft_us", prefill ? Cell(time.total_us) : Cell(), "us: time to first token"},
         {"tpot_us", prefill ? Cell() : Cell(time.total_us), "us: time per output token"},
         {"compute_us", time.compute_us, "us in which the device calculates"},
         {"communication_us", time.communication_us, "us in which it waits for communication"},
         {"communication_share", time.communication_us / time.total_us, "of the time"},
         {"hidden_communication_us", time.hidden_us, "us of communication while it calculates"},
         {"library_us", plain, "us: the same with the vendor's library, uncompressed"},
         {"speedup_over_library",
          plain.is_null() ? Json(nullptr) : Json(plain.get<double>() / time.total_us)},
         {"provenance", fmt::format("simulated: roofline of [compute], model {}, topology {}",
                                    kSimulatorModel, t.name)}},
        "operations",
        {{"operation", "kind", "batch", "count", "kernels", "flop", "bytes", "elements", "us",
          "total_us", "share", "bound"},
         {}}};
    for (const TimedOperation& each : time.operations) {
      const Operation& op = each.operation;
      const bool sent = op.kind == OperationKind::communication;
      report.rows.rows.push_back({op.name, name_of(op.kind), each.batch, each.count, op.kernels,
                                  sent ? Cell() : Cell(op.flop), sent ? Cell() : Cell(op.bytes),
                                  sent ? Cell(op.elements) : Cell(), each.us, each.count * each.us,
                                  each.count * each.us / time.total_us, each.bound});
    }
    report.shown = {"operation", "count", "us", "share", "bound"};
    return report;
  }
};

std::vector<BoundField> fields(ModelTimeRequest& r) {
  return {
      field("model", &r.model,
            fmt::format("{}, or a config.json of Hugging Face, or a .toml with its keys",
                        fmt::join(listed_models(), ", ")))
          .required(),
      field("topology", &r.topology,
            "Topology (see arlab list topologies) or a .toml file, with a section [compute]")
          .required(),
      field("ranks", &r.ranks, "Devices that share each layer", "all of the topology")
          .from(1, kMaxWorldSize),
      field("tokens", &r.tokens, "Of each prompt; in decode those that are there already", "1024")
          .from(1, kMostTokens),
      field("batch", &r.batch, "Sequences", "1").from(1, kMostBatch),
      field("phase", &r.phase, "What is timed").among({"prefill", "decode"}),
      field("algorithm", &r.algorithm, "Of all-reduces", "two_shot; with --library ring"),
      field("codec", &r.codec, "Codec (see arlab list codecs)", "the dtype"),
      field("dtype", &r.dtype, "fp16 or bf16", "bf16"),
      field("library", &r.library,
            "As NCCL or RCCL run the collectives; codecs fp16 and bf16 only"),
      field("overlap", &r.overlap,
            "With batches, half of the batch calculates while the other communicates")
          .among({"none", "batches"}),
      field("combine", &r.combine,
            "Mixture of experts, where quantized uses the codec on the way back, too")
          .among({"none", "quantized"}),
      field("kernels", &r.kernels, "As in engines for inference, or in PyTorch")
          .among({"fused", "separate"}),
      field("no_attention", &r.no_attention,
            "Leave attention out, as experiments/gpu/bench_torch_layers.py does"),
      field("trace", &r.trace, "Write the timeline of a layer to this .json, for ui.perfetto.dev")};
}

}  // namespace

Question model_time_question() {
  return question<ModelTimeRequest>(
      "model time",
      "Time to first token or per output token, and which part of it is communication",
      &ModelTimeRequest::answer);
}

}  // namespace arlab::lab
