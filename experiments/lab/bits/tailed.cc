#include "experiments/lab/bits/tailed.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/lab/bits/tensor_source.h"
#include "experiments/lab/files.h"
#include "reference/codecs/registry.h"
#include "reference/error.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/synthetic.h"

namespace arlab::lab {
namespace {

/// Elements out of a file, or of a distribution.
std::vector<std::byte> elements_of(const std::string& from, const char* option, DType dtype,
                                   std::uint64_t count) {
  const bool is_file = from.ends_with(".npy") || from.ends_with(".safetensors");
  Tensor tensor = is_file ? read_tensor(from, "", dtype) : make_synthetic(from, dtype, 1, count);
  if (tensor.element_count() != count) {
    fail("--{} {}: the shape is {}, {} elements: needed are {}", option, from,
         shape_text(tensor.shape), tensor.element_count(), count);
  }
  return std::move(tensor.data);
}

/// Results of the ranks: tensors of all ranks, one after the other.
struct RankOutputs {
  Schedule schedule;
  std::vector<std::byte> tensors[std::size(kOutputKindNames)];

  std::vector<std::byte>& of(OutputKind kind) { return tensors[static_cast<std::size_t>(kind)]; }
  bool is_of_all_ranks(OutputKind kind) const {
    return elements_of(kind) == schedule.world_size * schedule.elements;
  }
  std::uint64_t elements_of(OutputKind kind) const {
    std::uint64_t elements = 0;
    for (const Output& each : schedule.outputs) {
      if (each.kind == kind) elements += schedule.chunks[each.chunk].size();
    }
    return elements;
  }
  /// A tensor of one rank: that of rank 0, and what only others end with.
  std::vector<std::byte> rows_of(OutputKind kind) {
    const std::size_t bytes = of(kind).size() / schedule.world_size;
    const std::size_t size = bytes / schedule.elements;
    std::vector<std::byte> rows(bytes);
    std::vector<Output> outputs = schedule.outputs;
    std::ranges::stable_sort(outputs, std::ranges::greater(), &Output::rank);
    for (const Output& each : outputs) {
      if (each.kind != kind) continue;
      std::copy_n(&of(kind)[each.rank * bytes + each.begin * size],
                  schedule.chunks[each.chunk].size() * size, &rows[each.begin * size]);
    }
    return rows;
  }
};

/// `residual` and `weight`: empty where the tail has none.
RankOutputs run_with_tail(const Schedule& schedule, const Tail& tail, TailPlacement placement,
                          const Codecs& codecs, const Tensor& inputs,
                          std::span<const std::byte> residual, std::span<const std::byte> weight,
                          const ExecuteOptions& given) {
  const Codec& output = codecs.output();
  if (!tail.output.empty() && !placement.at_owner && !output.info().splits_at_alignment) {
    // A scale of the message is one of all rows, however the sum is cut.
    Tail raw = tail;
    raw.output.clear();
    RankOutputs made =
        run_with_tail(schedule, raw, placement, codecs, inputs, residual, weight, given);
    const std::vector<std::byte>& rows = made.of(OutputKind::normalized);
    std::vector<std::byte> wire(output.wire_bytes(inputs.dtype, inputs.element_count()));
    output.encode(inputs.dtype, rows, wire);
    made.of(OutputKind::quantized).resize(rows.size());
    output.decode(inputs.dtype, wire, made.of(OutputKind::quantized));
    for (Output each : std::vector(made.schedule.outputs)) {
      if (each.kind != OutputKind::normalized) continue;
      each.kind = OutputKind::quantized;
      made.schedule.outputs.push_back(each);
    }
    return made;
  }
  placement.keeps_normalized = true;  // errors are also of what is not quantized yet
  RankOutputs made{.schedule = with_tail(schedule, tail, placement), .tensors = {}};
  const OutputKind last = final_kind(made.schedule);
  for (const OutputKind kind : {OutputKind::residual, OutputKind::normalized, last}) {
    if (made.elements_of(kind) != 0) made.of(kind).resize(inputs.data.size());
  }
  TailOperands tensors{.tail = tail,
                       .dtype = inputs.dtype,
                       .residuals = {},
                       .weight = weight,
                       .next_residual = made.of(OutputKind::residual),
                       .normalized = {}};
  if (tail.adds_residual) tensors.residuals = {residual};
  if (last == OutputKind::quantized) tensors.normalized = made.of(OutputKind::normalized);
  ExecuteOptions options = given;
  options.tails = &tensors;
  options.count = false;
  if (!tail.rounding.keeps_sum) {
    execute(made.schedule, codecs, inputs, made.of(last), options);
    return made;
  }
  const std::string_view plain = name_of(inputs.dtype);
  if (inputs.dtype == DType::fp32 || codecs.outer().name() != plain ||
      codecs.inner().name() != plain || given.sum != Sum{} || placement.at_owner) {
    fail(
        "--tail sum=fp32: allowed after the all-reduce, for bf16 and fp16 tensors without a codec "
        "and with native sums; others round the sum before the tail");
  }
  const Tensor wide = tensor_from_floats(DType::fp32, inputs.shape, to_floats(inputs));
  const CodecPtr fp32 = find_codec("fp32");
  execute(made.schedule, Codecs(*fp32, *fp32, codecs.output()), wide, made.of(last), options);
  return made;
}

std::size_t different(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::size_t size = size_of(dtype);
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); i += size) {
    count += std::equal(&a[i], &a[i] + size, &b[i]) ? 0 : 1;
  }
  return count;
}

}  // namespace

std::optional<Tail> TailPlaceOptions::parse(std::size_t hidden) const {
  if (tail.empty()) return std::nullopt;
  Tail parsed = parse_tail(tail);
  if (parsed.hidden == 0) parsed.hidden = static_cast<std::uint32_t>(hidden);
  if (parsed.hidden == 0)
    fail("--tail {}: hidden= is needed: nothing else says what a row is", tail);
  return parsed;
}

TailPlacement TailPlaceOptions::placement() const {
  return {.at_owner = tail_place == "owner", .sends_residual = tail_residual == "travels"};
}

std::vector<Figure> TailOptions::apply(const Tail& t, const Schedule& schedule,
                                       const Codecs& codecs, const Tensor& inputs,
                                       const ExactResult& exact,
                                       const ExecuteOptions& options) const {
  const std::size_t elements = inputs.elements_per_rank();
  if (t.adds_residual && residual.empty()) fail("--tail residual=add: --residual is missing");
  if (!t.adds_residual && !residual.empty())
    fail("--residual: allowed only with residual=add in --tail");
  if (!norm_weight.empty() && !t.normalizes)
    fail("--norm-weight: allowed only with norm=rms in --tail");
  if (norm_weight.empty() && tail.find("weight=") != std::string::npos)
    fail("--tail weight=: --norm-weight is missing");
  const DType dtype = inputs.dtype;
  const auto of_residual = residual.empty() ? std::vector<std::byte>{}
                                            : elements_of(residual, "residual", dtype, elements);
  const auto weight = norm_weight.empty()
                          ? std::vector<std::byte>{}
                          : elements_of(norm_weight, "norm-weight", dtype, t.hidden);

  const auto run = [&](const Tail& each) {
    return run_with_tail(schedule, each, placement(), codecs, inputs, of_residual, weight, options);
  };
  RankOutputs made = run(t);
  const ExactTail target = exact_tail(t, dtype, exact.values, of_residual, weight);
  std::vector<Figure> figures = {{"tail", name_of(t)}};
  const auto add = [&](OutputKind kind, const std::vector<double>& of, const char* words) {
    if (made.of(kind).empty()) return;
    const ErrorMetrics error = compare(of, dtype, made.rows_of(kind), options.threads);
    const std::string name(name_of(kind));
    figures.push_back(
        {name + "_sqnr_db", sqnr_of(error), fmt::format("dB, {}, against the exact one", words)});
    figures.push_back({name + "_max_abs_error", error.max_abs_error, ""});
  };
  add(OutputKind::residual, target.residual, "the sum with the residual");
  add(OutputKind::normalized, target.normalized, "what comes out, before it is quantized");
  add(OutputKind::quantized, target.normalized, "what its wire stands for");
  if (!t.output.empty()) {
    const auto count = static_cast<double>(inputs.element_count());
    const double bytes =
        static_cast<double>(codecs.output().wire_bytes(dtype, inputs.element_count()));
    figures.push_back({"output_bits_per_element", 8 * bytes / count});
  }
  if (placement().at_owner) {
    figures.push_back({"tail_wire_bytes", Cell(wire_volume(made.schedule, codecs, dtype).bytes),
                       "all sends of all ranks, where owners of rows send what comes out"});
  }
  if (t.rounding != TailRounding{}) {
    Tail unfused = t;
    unfused.rounding = {};
    figures.push_back(
        {"differs_from_unfused",
         different(dtype, made.of(OutputKind::normalized), run(unfused).of(OutputKind::normalized)),
         fmt::format("of {} elements before quantization: other bits than with rounding=unfused",
                     made.elements_of(OutputKind::normalized))});
  }
  if (!tail_out.empty()) {
    std::map<std::string, Tensor> tensors;
    for (const OutputKind kind :
         {OutputKind::residual, OutputKind::normalized, OutputKind::quantized}) {
      if (made.of(kind).empty()) continue;
      const bool is_of_all = made.is_of_all_ranks(kind);
      std::vector<std::size_t> shape = inputs.shape;
      if (!is_of_all) shape.erase(shape.begin());
      tensors[std::string(name_of(kind))] = {dtype, shape,
                                             is_of_all ? made.of(kind) : made.rows_of(kind)};
    }
    write_safetensors(tail_out, tensors, {{"tail", name_of(t)}});
  }
  return figures;
}

BoundField tail_place_field(std::string& place) {
  return field("tail_place", &place,
               "Run the tail on every rank after the all-reduce, or on each row's owner, which "
               "sends the result",
               "after")
      .among({"after", "owner"})
      .needs("tail");
}

BoundField tail_field(std::string& tail) {
  return field("tail", &tail,
               "Run a tail after the all-reduce: hidden=N, the elements of a row, and any of "
               "residual=add,norm=rms,eps=1e-6,out=CODEC,rounding=NAME (see the specification of "
               "tails)");
}

std::vector<BoundField> fields(TailPlaceOptions& o) {
  return {tail_field(o.tail), tail_place_field(o.tail_place),
          field("tail_residual", &o.tail_residual,
                "Keep the next residual with its owner, or send it to all by the inner codec "
                "(unchanged: --inner-codec ag:bf16), with --tail-place owner",
                "stays")
              .among({"stays", "travels"})
              .needs("tail")};
}

std::vector<BoundField> fields(TailOptions& o) {
  return together(fields(static_cast<TailPlaceOptions&>(o)),
                  {field("residual", &o.residual,
                         "Add this tensor, the same on all ranks, with --tail residual=add: .npy, "
                         ".safetensors or a distribution")
                       .needs("tail"),
                   field("norm_weight", &o.norm_weight,
                         "Multiply by this row of weights, with --tail norm=rms: .npy, "
                         ".safetensors or a distribution",
                         "none: 1")
                       .needs("tail"),
                   field("tail_out", &o.tail_out,
                         "Write the tail's results (residual, normalized, quantized; [ranks, ...], "
                         "without ranks where owners keep theirs) as .safetensors")
                       .needs("tail")});
}

}  // namespace arlab::lab
