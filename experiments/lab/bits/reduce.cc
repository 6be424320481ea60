// What does a collective make of data? The reference runs on it; output of every rank, error, wire volume, counts. Other
// collectives have the same.

#include <nlohmann/json.hpp>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/bits/tailed.h"
#include "experiments/lab/bits/tensor_source.h"
#include "experiments/lab/files.h"
#include "experiments/lab/questions.h"
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
  LikeOptions like;
  TailOptions tail;
  std::string out;

  void settle() { codec = split_codecs(codec, schedule.options); }

  /// With what a named all-reduce stands for, of these inputs.
  Result answer() const {
    if (!like.is_set()) {
      if (codec.empty()) fail("--codec is needed (see arlab list codecs), or --like");
      const auto of_any_row = [](const std::string& name) -> CodecPtr {
        return name.empty() ? nullptr : find_codec(with_row_length(name, kAnyRow));
      };
      const DType otherwise =
          default_dtype(*of_any_row(codec), {of_any_row(schedule.inner_codec()).get()});
      return answer_of(source.load(otherwise, named_collective()), false);
    }
    ReduceRequest known = *this;
    const Tensor inputs =
        source.load(find_named_all_reduce(like.like).dtype, Collective::all_reduce);
    const std::size_t channels = channels_of(inputs.shape);
    const NamedParts parts = like.apply({.ranks = static_cast<Rank>(inputs.ranks()),
                                         .elements = inputs.elements_per_rank(),
                                         .dtype = inputs.dtype,
                                         .row = std::max<std::size_t>(channels, 1)},
                                        known.schedule, known.codec, known.execution);
    return known.answer_of(inputs, parts.has_nvidia_nan);
  }

 private:
  Result answer_of(const Tensor& inputs, bool has_nvidia_nan) const {
    const ExecuteOptions options = execution.make();
    const std::vector<std::string> read = {source.file, tail.residual, tail.norm_weight,
                                           schedule.schedule_file};
    if (!out.empty()) require_npy_output("--out", out, read);
    if (!tail.tail_out.empty()) {
      require_output_name("--tail-out", tail.tail_out, {".safetensors"}, read);
    }
    CollectiveSpec spec = schedule;
    give_own(options.sum, spec);
    const CodecPtr c = codec_for(codec, inputs);
    const CodecPtr inner =
        schedule.inner_codec().empty() ? c : codec_for(schedule.inner_codec(), inputs);
    require_takes(*c, inputs.dtype, source.name());
    require_takes(*inner, inputs.dtype, source.name());
    const std::optional<Tail> t = tail.parse(channels_of(inputs.shape));
    const CodecPtr out_codec = t ? find_output_codec(*t) : nullptr;
    const Codecs codecs(*c, *inner, out_codec ? *out_codec : *c);
    if (inputs.elements_per_rank() == 0) fail("{}: there are no elements to reduce", source.name());
    const auto world_size = static_cast<Rank>(inputs.ranks());
    const Schedule s =
        spec.make(world_size, inputs.elements_per_rank(), codecs.alignment(t ? t->hidden : 1));
    const bool sums = adds(s.collective);
    require_sums(s, options.sum);
    require_memory(
        reduction_bytes(inputs.dtype, world_size, inputs.elements_per_rank(), s.collective),
        "this reduce");
    const ExactResult exact = exact_result(s.collective, inputs, options.threads);
    Reduction reduction =
        run_reduction(s, codecs, inputs, channels_of(inputs.shape), exact, options);
    if (has_nvidia_nan) set_nvidia_nan(inputs.dtype, reduction.outputs);
    std::vector<Figure> of_tail;
    if (t) of_tail = tail.apply(*t, s, codecs, inputs, exact, options);
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
    };
    std::vector<Figure> more = execution.figures();
    if (!sums) more.front() = {"accumulate", nullptr, "not applicable: nothing is summed"};
    std::ranges::move(option_figures(spec.options), std::back_inserter(more));
    std::ranges::move(more, std::back_inserter(report.figures));
    if (like.is_set()) {
      report.figures.insert(report.figures.begin(), {"like", like.like});
      report.shown_figures.emplace_back("like");
    }
    if (!schedule.inner_codec().empty()) {
      report.figures.insert(report.figures.begin() + 2,
                            {"inner_codec", words_of(schedule.options.get("inner_codec"))});
    }
    for (const char* figure : {"algorithm", "codec", "inner_codec", "provenance"}) {
      report.shown_figures.emplace_back(figure);
    }
    const std::vector<Figure> figures = reduction_fields(reduction, exact);
    for (const std::string& figure : main_figures(reduction))
      report.shown_figures.push_back(figure);
    report.figures.insert(report.figures.end(), figures.begin(), figures.end());
    if (reduction.difference && s.collective == Collective::all_reduce) {
      report.figures.push_back(
          {"error_figures_of_rank", 0, "ranks differ; the figures are those of rank 0"});
      report.shown_figures.emplace_back("error_figures_of_rank");
    }
    for (const Figure& each : of_tail) report.shown_figures.push_back(each.name);
    report.figures.insert(report.figures.end(), of_tail.begin(), of_tail.end());
    report.figures.push_back({"volume_total", volume.total, "payloads of one rank, all links"});
    report.figures.push_back(
        {"provenance", "exact", "every figure is computed from the bits, none is a model's"});
    return report;
  }

  /// Returns the collective of --algorithm; a schedule's is in its file.
  Collective named_collective() const {
    if (schedule.algorithm.empty()) return Collective::all_reduce;
    return find_algorithm(schedule.algorithm).collective;
  }
};

std::vector<BoundField> fields(ReduceRequest& r) {
  return together(
      fields(r.schedule), {field("codec", &r.codec, "Use this codec (see arlab list codecs)")},
      fields(r.source), together(fields(r.execution), fields(r.like), fields(r.tail)),
      {field("out", &r.out, "Write every rank's output, in the input's shape, as .npy")});
}

}  // namespace

Question reduce_question() {
  return question<ReduceRequest>(
      "reduce", "Run an all-reduce (or other collective) in the bit-exact reference",
      &ReduceRequest::answer);
}

}  // namespace arlab::lab
