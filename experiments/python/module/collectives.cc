// Collectives in the reference, and the program in this process.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/cli/program.h"
#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/files.h"
#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"
#include "reference/codecs/registry.h"
#include "reference/memory.h"
#include "reference/signals.h"
#include "reference/tails/tail.h"

namespace arlab::python {
namespace {

/// The outputs of all ranks as bytes, and all figures.
nb::tuple run(const nb::object& algorithm, const nb::dict& options, const std::string& codec,
              const std::string& dtype, std::size_t elements,
              const std::vector<std::uintptr_t>& inputs, std::size_t channels,
              const nb::dict& execution_options, bool count, std::uint64_t rounding_seed,
              CodecState* state) {
  lab::LikeOptions like;
  lab::ExecutionOptions execution;
  set_fields(together(fields(execution), fields(like)), execution_options);
  lab::CollectiveSpec spec = collective_spec(algorithm, options);
  if (like.block && !like.is_set()) fail("block requires like");
  if (like.is_set()) spec.algorithm.clear();
  std::string codec_name = codec;
  NamedParts named;
  if (like.is_set()) {
    named = like.apply({.ranks = static_cast<Rank>(inputs.size()),
                        .elements = elements,
                        .dtype = parse_dtype(dtype),
                        .row = std::max<std::size_t>(channels, 1)},
                       spec, codec_name, execution);
  }
  ExecuteOptions execute_options = execution.make();
  lab::give_own(execute_options.sum, spec);
  const CodecPtr outer = find_codec(split_codecs(codec_name, spec.options));
  const CodecPtr inner = spec.inner(outer);
  const Codecs codecs(*outer, *inner);
  const DType type = parse_dtype(dtype);
  for (const Codec* each : {outer.get(), inner.get()}) each->wire_bytes(type, 1);
  std::vector<std::span<const std::byte>> ranks;
  ranks.reserve(inputs.size());
  for (const std::uintptr_t input : inputs) {
    ranks.push_back(bytes_at(input, elements * size_of(type)));
  }
  const RankPayloads payloads(type, std::move(ranks));
  if (elements == 0) fail("the tensors have no elements: allowed is 1 or more");
  const auto world_size = static_cast<Rank>(inputs.size());
  lab::Reduction reduction;
  std::vector<lab::Figure> figures;
  {
    const nb::gil_scoped_release others_may_run;
    Schedule schedule =
        spec.given ? *spec.given : spec.make(world_size, elements, codecs.alignment());
    if (spec.given) place_codecs(schedule, spec.options);
    if (schedule.world_size != world_size || schedule.elements != elements) {
      fail("the schedule is for {} ranks with {} elements, not {} with {}", schedule.world_size,
           schedule.elements, world_size, elements);
    }
    require_memory(lab::reduction_bytes(type, world_size, elements, schedule.collective),
                   fmt::format("{} of {} elements on {} ranks", name_of(schedule.collective),
                               elements, world_size));
    execute_options.count = count;
    execute_options.seed = rounding_seed;
    execute_options.state = state;
    const lab::ExactResult exact =
        lab::exact_result(schedule.collective, payloads, execute_options.threads);
    reduction = lab::run_reduction(schedule, codecs, payloads, channels, exact, execute_options);
    if (named.has_nvidia_nan) set_nvidia_nan(type, reduction.outputs);
    figures = {{"collective", name_of(schedule.collective)},
               {"algorithm", schedule.algorithm},
               {"codec", outer->name()},
               {"inner_codec", spec.inner_codec().empty()
                                   ? lab::Cell()
                                   : lab::Cell(words_of(spec.options.get("inner_codec")))},
               {"ranks", world_size},
               {"dtype", name_of(type)},
               {"elements", elements},
               {"accumulate", name_of(execute_options.sum)}};
    if (like.is_set()) figures.insert(figures.begin() + 1, {"like", like.like});
    for (lab::Figure& figure : lab::reduction_fields(reduction, exact)) {
      if (!count && (figure.name == "clamped" || figure.name == "flushed")) figure.value = nullptr;
      figures.push_back(std::move(figure));
    }
  }
  return nb::make_tuple(array_of(std::move(reduction.outputs)), to_python(figures));
}

/// Returns the names of run()'s `execution_options`.
std::vector<std::string> names_of_execution() {
  lab::LikeOptions like;
  lab::ExecutionOptions execution;
  std::vector<std::string> names;
  for (const BoundField& each : together(fields(execution), fields(like))) {
    names.push_back(each.field.name);
  }
  return names;
}

float largest_of(const CodecState& state) {
  float largest = 0;
  for (const std::vector<float>& of_op : state.numbers) {
    for (const float number : of_op) largest = std::max(largest, std::abs(number));
  }
  return largest;
}

/// Applies a tail to sums: bytes by name, empty where there is no such thing. A row is the last axis of the shape, unless the text
/// says so itself. An address of 0 stands for none.
nb::dict run_tail_on(const std::string& text, const std::string& dtype,
                     const std::string& dtype_of_sums, std::uintptr_t sums,
                     const std::vector<std::size_t>& shape, std::uintptr_t residual,
                     std::uintptr_t weight, unsigned threads) {
  Tail tail = parse_tail(text);
  const DType type = parse_dtype(dtype);
  const DType of_sums = parse_dtype(dtype_of_sums);
  if (tail.hidden == 0) tail.hidden = static_cast<std::uint32_t>(shape.back());
  if (tail.rounding.keeps_sum && (type == DType::fp32 || of_sums != DType::fp32)) {
    fail("tail {}: sum=fp32 needs sums of float32 and a dtype of fp16 or bf16", quote(text));
  }
  std::size_t elements = 1;
  for (const std::size_t extent : shape) elements *= extent;
  const auto given = bytes_at(sums, elements * size_of(of_sums));
  const auto bytes_of = [&](std::uintptr_t at, std::size_t count) {
    return at == 0 ? std::span<const std::byte>{} : bytes_at(at, count * size_of(type));
  };
  TailResult result = without_python([&] {
    const std::vector<float> values =
        to_floats({of_sums, shape, std::vector<std::byte>(given.begin(), given.end())});
    return run_tail(tail, type, values, bytes_of(residual, elements), bytes_of(weight, tail.hidden),
                    threads);
  });
  nb::dict made;
  made["residual"] = array_of(std::move(result.residual));
  made["normalized"] = array_of(std::move(result.normalized));
  made["wire"] = array_of(std::move(result.wire));
  made["quantized"] = array_of(std::move(result.quantized));
  return made;
}

/// The program, with this process's stdout, stderr and signals; returns its exit code.
int program(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"arlab"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const nb::gil_scoped_release others_may_run;
  let_signals_wait();
  return cli::program_main(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

void define_collectives(nb::module_& module) {
  module.def("run_collective", run, nb::arg("algorithm"), nb::arg("options"), nb::arg("codec"),
             nb::arg("dtype"), nb::arg("elements"), nb::arg("inputs"), nb::arg("channels"),
             nb::arg("execution"), nb::arg("count") = true, nb::arg("rounding_seed") = 0,
             nb::arg("state") = nb::none());
  module.def("run_tail", run_tail_on, nb::arg("tail"), nb::arg("dtype"), nb::arg("dtype_of_sums"),
             nb::arg("sums"), nb::arg("shape"), nb::arg("residual"), nb::arg("weight"),
             nb::arg("threads"));
  module.def("execution_options", names_of_execution);
  nb::class_<CodecState>(module, "CodecState",
                         "What codecs carry from one call of a collective to the next, of all "
                         "ranks; new ones are all zeros.")
      .def(nb::init<>())
      .def_prop_ro(
          "of", [](const CodecState& state) { return state.of; },
          "The collective that it belongs to; empty before the first call.")
      .def_prop_ro("largest", &largest_of, "The largest magnitude in it; 0 before the first call.")
      .def("__getstate__",
           [](const CodecState& state) { return nb::make_tuple(state.of, state.numbers); })
      .def("__setstate__",
           [](CodecState& state,
              const std::pair<std::string, std::vector<std::vector<float>>>& from) {
             new (&state) CodecState{from.first, from.second};
           })
      .def("__copy__", [](const CodecState& state) { return state; })
      .def("__deepcopy__", [](const CodecState& state, const nb::dict&) { return state; });
  module.def("program", program, nb::arg("arguments"));
  module.def("set_setup", [](const std::string& file, const std::string& hash) {
    lab::set_setup({file, hash});
  });
  module.def("definitions_made", [] { return definitions_made(); });
  module.def("set_data_folder", [](const std::string& folder) { lab::set_data_folder(folder); });
}

}  // namespace arlab::python
