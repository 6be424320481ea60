// Collectives in the reference, and the program in this process.

#include <nlohmann/json.hpp>

#include "experiments/cli/program.h"
#include "experiments/lab/files.h"
#include "experiments/lab/reduction.h"
#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"
#include "reference/codecs/registry.h"
#include "reference/memory.h"
#include "reference/signals.h"

namespace arlab::python {
namespace {

/// The outputs of all ranks as bytes, and all figures.
nb::tuple run(const nb::object& algorithm, const nb::dict& options, const std::string& codec,
              const std::string& dtype, std::size_t elements,
              const std::vector<std::uintptr_t>& inputs, std::size_t channels,
              const std::string& accumulate, std::uint32_t threads, bool count) {
  const lab::CollectiveSpec spec = collective_spec(algorithm, options);
  const CodecPtr outer = find_codec(codec);
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
    const Schedule schedule =
        spec.given ? *spec.given : spec.make(world_size, elements, codecs.alignment());
    if (spec.given && !spec.inner_codec().empty()) require_inner_codec(schedule);
    if (schedule.world_size != world_size || schedule.elements != elements) {
      fail("the schedule is for {} ranks with {} elements, not {} with {}", schedule.world_size,
           schedule.elements, world_size, elements);
    }
    require_memory(lab::reduction_bytes(type, world_size, elements, schedule.collective),
                   fmt::format("{} of {} elements on {} ranks", name_of(schedule.collective),
                               elements, world_size));
    lab::ExecutionOptions execution;
    execution.accumulate = accumulate;
    execution.threads = threads;
    ExecuteOptions execute_options = execution.make();
    execute_options.count = count;
    const lab::ExactResult exact = lab::exact_result(schedule.collective, payloads, threads);
    reduction = lab::run_reduction(schedule, codecs, payloads, channels, exact, execute_options);
    figures = {{"collective", name_of(schedule.collective)},
               {"algorithm", schedule.algorithm},
               {"codec", outer->name()},
               {"inner_codec", spec.inner_codec().empty() ? lab::Cell() : lab::Cell(inner->name())},
               {"ranks", world_size},
               {"dtype", name_of(type)},
               {"elements", elements},
               {"accumulate", accumulate}};
    for (lab::Figure& figure : lab::reduction_fields(reduction, exact)) {
      if (!count && (figure.name == "clamped" || figure.name == "flushed")) figure.value = nullptr;
      figures.push_back(std::move(figure));
    }
  }
  return nb::make_tuple(array_of(std::move(reduction.outputs)), to_python(figures));
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
             nb::arg("accumulate"), nb::arg("threads"), nb::arg("count"));
  module.def("program", program, nb::arg("arguments"));
  module.def("set_data_folder", [](const std::string& folder) { lab::set_data_folder(folder); });
}

}  // namespace arlab::python
