// What does a collective make of data? The reference runs on it; output of every rank, error, wire volume, counts. Of
// other collectives too.

#include <nlohmann/json.hpp>

#include "experiments/lab/collective.h"
#include "experiments/lab/files.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/reduction.h"
#include "experiments/lab/tensor_source.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/memory.h"
#include "reference/tensors/npy.h"

namespace arlab::lab {
namespace {

struct ReduceRequest {
  CollectiveSpec schedule;
  ExecutionOptions execution;
  TensorSource source;
  std::string codec;
  std::string out;

  void settle() { codec = split_codecs(codec, schedule.options); }

  Result answer() const {
    const DType otherwise = default_dtype(*find_codec(with_row_length(codec, kAnyRow)));
    const ExecuteOptions options = execution.make();
    if (!out.empty()) require_output_file(out);
    const Tensor inputs = source.load(otherwise, named_collective());
    const CodecPtr c = codec_for(codec, inputs);
    const CodecPtr inner =
        schedule.inner_codec().empty() ? c : codec_for(schedule.inner_codec(), inputs);
    require_takes(*c, inputs.dtype, source.name());
    require_takes(*inner, inputs.dtype, source.name());
    const Codecs codecs(*c, *inner);
    if (inputs.elements_per_rank() == 0) fail("{}: there are no elements to reduce", source.name());
    const auto world_size = static_cast<Rank>(inputs.ranks());
    const Schedule s = schedule.make(world_size, inputs.elements_per_rank(), codecs.alignment());
    const bool sums = adds(s.collective);
    if (!sums && options.accumulate != Accumulate::native) {
      fail("--accumulate {}: {} sums nothing; leave it out", execution.accumulate, s.algorithm);
    }
    require_memory(
        reduction_bytes(inputs.dtype, world_size, inputs.elements_per_rank(), s.collective),
        "this reduce");
    const ExactResult exact = exact_result(s.collective, inputs, options.threads);
    Reduction reduction =
        run_reduction(s, codecs, inputs, channels_of(inputs.shape), exact, options);
    if (!out.empty()) {
      write_npy(out, {inputs.dtype, inputs.shape, std::move(reduction.outputs)});
    }

    const Volume volume = volume_of(s, schedule.volume_group_size(world_size));
    Result report{"arlab.reduce/1"};
    report.figures = {
        {"algorithm", s.algorithm},
        {"codec", c->name()},
        {"ranks", world_size},
        {"dtype", name_of(inputs.dtype)},
        {"elements", inputs.elements_per_rank(), "per rank"},
        {"input", source.name()},
        {"accumulate", sums ? Json(execution.accumulate) : Json(nullptr),
         sums ? "" : "not applicable: nothing is summed"},
    };
    if (!schedule.inner_codec().empty()) {
      report.figures.insert(report.figures.begin() + 2,
                            {"inner_codec", words_of(schedule.options.get("inner_codec"))});
    }
    report.shown_figures = {"algorithm", "codec", "inner_codec", "provenance"};
    const std::vector<Figure> figures = reduction_fields(reduction, exact);
    for (const std::string& figure : main_figures(reduction))
      report.shown_figures.push_back(figure);
    report.figures.insert(report.figures.end(), figures.begin(), figures.end());
    if (reduction.difference && s.collective == Collective::all_reduce) {
      report.figures.push_back(
          {"error_figures_of_rank", 0, "ranks differ; the figures are those of rank 0"});
      report.shown_figures.emplace_back("error_figures_of_rank");
    }
    report.figures.push_back({"volume_total", volume.total, "payloads of one rank, all links"});
    report.figures.push_back(
        {"provenance", "exact", "every figure is computed from the bits, none is a model's"});
    return report;
  }

  /// What --algorithm does; what a schedule does is in its file.
  Collective named_collective() const {
    if (schedule.algorithm.empty()) return Collective::all_reduce;
    return find_algorithm(schedule.algorithm).collective;
  }
};

std::vector<BoundField> fields(ReduceRequest& r) {
  return together(
      fields(r.schedule), {field("codec", &r.codec, "Codec (see arlab list codecs)").required()},
      fields(r.source), fields(r.execution),
      {field("out", &r.out, "Write the output of every rank, the input's shape, as .npy")});
}

}  // namespace

Question reduce_question() {
  return question<ReduceRequest>(
      "reduce", "Run an all-reduce (or other collective) in the bit-exact reference",
      &ReduceRequest::answer);
}

}  // namespace arlab::lab
