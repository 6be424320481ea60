// Questions of the lab that Python asks directly.

#include <nanobind/stl/pair.h>

#include "experiments/lab/simulate.h"
#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"

namespace arlab::python {
namespace {

/// A Simulation of one collective, or the answer of several as a dict.
nb::object simulate(const nb::object& algorithm, const nb::dict& asked) {
  lab::SimulateRequest request;
  const Schedule* given = nullptr;
  if (nb::try_cast(algorithm, given) && given != nullptr) {
    request.collective.given = std::make_shared<const Schedule>(*given);
  } else if (!algorithm.is_none()) {
    request.collective.algorithm = nb::cast<std::string>(algorithm);
  }
  const std::vector<BoundField> known = fields(request);
  set_fields(known, asked);
  require_relations(known);
  if (!lab::is_single(request)) {
    lab::Result result;
    {
      const nb::gil_scoped_release others_may_run;
      result = lab::simulate(request);
    }
    return to_python(result);
  }
  std::optional<lab::Simulation> simulation;
  {
    const nb::gil_scoped_release others_may_run;
    simulation.emplace(request);
  }
  return nb::cast(std::move(*simulation));
}

nb::dict figures_of(const lab::Simulation& simulation, bool with_interval) {
  lab::Result result;
  {
    const nb::gil_scoped_release others_may_run;
    result = simulation.result(with_interval);
  }
  return to_python(result);
}

}  // namespace

void define_questions(nb::module_& module) {
  nb::class_<lab::Simulation>(module, "Simulation")
      .def_prop_ro("latency_us", [](const lab::Simulation& s) { return s.times().latency_us; })
      .def("figures", figures_of, nb::arg("with_interval"))
      .def("interval",
           [](const lab::Simulation& s) -> std::optional<std::pair<double, double>> {
             const nb::gil_scoped_release others_may_run;
             const auto interval = s.interval();
             if (!interval) return std::nullopt;
             return std::pair(interval->low_us, interval->high_us);
           })
      .def("sensitivity",
           [](const lab::Simulation& s) {
             lab::Table table;
             {
               const nb::gil_scoped_release others_may_run;
               table = s.sensitivity();
             }
             return rows_of(table);
           })
      .def("timeline", [](const lab::Simulation& s) {
        const nb::gil_scoped_release others_may_run;
        return s.timeline();
      });
  module.def("simulate", simulate, nb::arg("algorithm").none(), nb::arg("asked"));
}

}  // namespace arlab::python
