// Questions of the lab that Python asks directly.

#include <nanobind/stl/pair.h>

#include "experiments/lab/progress.h"
#include "experiments/lab/question.h"
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

/// The figures of the answer, what a verdict "no" says, and the data of a picture; the latter two or nothing. `progress` gets
/// what is said on the way, or is None.
nb::tuple ask(const std::string& name, const nb::dict& given, const nb::object& progress) {
  const lab::Asked asked = lab::question_named(name).ask();
  set_fields(asked.fields, given);
  require_relations(asked.fields);
  lab::Result result;
  {
    const nb::gil_scoped_release others_may_run;
    const lab::Listener listener(listener_of(progress));
    result = asked.answer(lab::Format::json);
    if (result.at_last) result.at_last();
  }
  return nb::make_tuple(
      to_python(result),
      result.verdict.empty() ? nb::none() : nb::object(nb::str(result.verdict.c_str())),
      result.picture ? to_python(result.picture->data) : nb::none());
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
  module.def("fields", [](const std::string& question) {
    nb::list all;
    for (const BoundField& each : lab::question_named(question).ask().fields) {
      nb::dict about = description(each.field, each.get());
      about["required"] = each.relations.required;
      about["of_algorithm"] = std::holds_alternative<FieldValues*>(each.member);
      all.append(about);
    }
    return all;
  });
  module.def("ask", ask, nb::arg("question"), nb::arg("given"), nb::arg("progress").none());
  module.def("simulate", simulate, nb::arg("algorithm").none(), nb::arg("asked"));
}

}  // namespace arlab::python
