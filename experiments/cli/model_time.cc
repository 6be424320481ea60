// arlab model time: how long a model takes for a prompt or a token, and which part of it is
// communication.

#include "sim/workload/model_time.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/cli/model.h"
#include "experiments/cli/options.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/file.h"
#include "sim/simulator.h"

namespace arlab::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kMostTokens = 1 << 24;
constexpr std::uint32_t kMostBatch = 1 << 16;

/// The member of a list that has this name.
template <class Enum, std::size_t N>
Enum one_of(const char* option, const std::string& name, const Enum (&allowed)[N]) {
  std::string names;
  for (const Enum each : allowed) {
    if (name_of(each) == name) return each;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(each));
  }
  fail("{} is {}: allowed are {}", option, quote(name), names);
}

struct ModelTimeCommand {
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
  Format format = Format::table;

  void run() {
    if (algorithm.empty()) algorithm = library ? "ring" : "two_shot";
    if (!trace.empty()) require_output_file(trace);
    const Topology t = find_topology(topology);
    const ModelShape shape = find_model(model);
    const InferenceStep step = make_step(t);
    const Overlap overlaps = one_of("--overlap", overlap, kOverlaps);
    Communication communication{.algorithm = algorithm, .library = library};
    communication.codec = find_codec(codec.empty() ? std::string(name_of(step.dtype)) : codec);
    communication.codec->wire_bytes(step.dtype, 1);  // throws when it does not take the dtype
    const ModelTime time = model_time(shape, step, communication, t, overlaps);
    if (!trace.empty()) {
      const std::string text =
          layer_trace(time, fmt::format("{} {} on {} x {}, {} {}", shape.name, phase, step.ranks,
                                        t.device.name, algorithm, communication.codec->name()));
      write_file(trace, {std::as_bytes(std::span(text))});
    }
    Result figures = report(shape, step, communication, t, overlaps, time);
    if (format == Format::csv) figures.rows_name.clear();  // one row of figures, as of simulate
    print(figures, format);
  }

  InferenceStep make_step(const Topology& t) const {
    if (combine != "none" && combine != "quantized") {
      fail("--combine is {}: allowed are none, quantized", quote(combine));
    }
    return {.phase = one_of("--phase", phase, kPhases),
            .batch = batch.value_or(1),
            .tokens = tokens.value_or(1024),
            .ranks = ranks.value_or(t.ranks.value),
            .dtype = parse_dtype(dtype),
            .kernels = one_of("--kernels", kernels, kKernels),
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
         {"ttft_us", prefill ? Json(time.total_us) : Json(nullptr), "us: time to first token"},
         {"tpot_us", prefill ? Json(nullptr) : Json(time.total_us), "us: time per output token"},
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
      report.rows.rows.push_back(
          {op.name, std::string(name_of(op.kind)), each.batch, each.count, op.kernels,
           sent ? Json(nullptr) : Json(op.flop), sent ? Json(nullptr) : Json(op.bytes),
           sent ? Json(op.elements) : Json(nullptr), each.us, each.count * each.us,
           each.count * each.us / time.total_us, each.bound});
    }
    report.shown = {"operation", "count", "us", "share", "bound"};
    return report;
  }
};

}  // namespace

void add_model_time(CLI::App& model) {
  auto command = std::make_shared<ModelTimeCommand>();
  CLI::App* sub = model.add_subcommand(
      "time", "Time to first token or per output token, and which part of it is communication");
  sub->add_option("--model", command->model,
                  fmt::format("{}, or a config.json of Hugging Face, or a .toml with its keys",
                              fmt::join(listed_models(), ", ")))
      ->required();
  sub->add_option("--topology", command->topology,
                  "Topology (see arlab list topologies) or a .toml file, with a section [compute]")
      ->required();
  add_integer(*sub, "--ranks", command->ranks, 1, kMaxWorldSize,
              "Devices that share each layer [all of the topology]");
  add_integer(*sub, "--tokens", command->tokens, 1, kMostTokens,
              "Of each prompt; in decode those that are there already [1024]");
  add_integer(*sub, "--batch", command->batch, 1, kMostBatch, "Sequences [1]");
  sub->add_option("--phase", command->phase, "prefill or decode [prefill]");
  sub->add_option("--algorithm", command->algorithm,
                  "Of all-reduces [two_shot; with --library ring]");
  sub->add_option("--codec", command->codec, "Codec (see arlab list codecs) [the dtype]");
  sub->add_option("--dtype", command->dtype, "fp16 or bf16 [bf16]");
  sub->add_flag("--library", command->library,
                "As NCCL or RCCL run the collectives; codecs fp16 and bf16 only");
  sub->add_option("--overlap", command->overlap,
                  "none, or batches: half of the batch calculates while the other communicates "
                  "[none]");
  sub->add_option("--combine", command->combine,
                  "Mixture of experts: quantized uses the codec on the way back, too [none]");
  sub->add_option("--kernels", command->kernels,
                  "fused as in engines for inference, or separate as in PyTorch [fused]");
  sub->add_flag("--no-attention", command->no_attention,
                "Leave attention out, as experiments/gpu/bench_torch_layers.py does");
  sub->add_option("--trace", command->trace,
                  "Write the timeline of a layer to this .json, for ui.perfetto.dev");
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
