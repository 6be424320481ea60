// Questions of the lab that Python asks directly.

#include <nanobind/stl/pair.h>

#include "experiments/lab/files.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/question.h"
#include "experiments/lab/time/simulate.h"
#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"
#include "reference/words.h"

namespace arlab::python {
namespace {

/// A Simulation of one collective, or the answer of several as a dict.
nb::object simulate(const nb::object& algorithm, const nb::dict& asked) {
  lab::SimulateRequest request;
  if (!algorithm.is_none()) request.collective = collective_spec(algorithm, {});
  const std::vector<BoundField> known = fields(request);
  set_fields(known, asked);
  require_relations(known);
  if (!lab::is_single(request)) {
    return to_python(without_python([&] { return lab::simulate(request); }));
  }
  return nb::cast(without_python([&] { return lab::Simulation(request); }));
}

/// The figures of the answer, what a verdict "no" says, and the data of a picture; the latter two or nothing. `progress` gets
/// what is said on the way, or is None. `called`: how it was asked, for files.
nb::tuple ask(const std::string& name, const nb::dict& given, const nb::object& progress,
              const std::string& called) {
  lab::set_command_line(called);
  const lab::BoundRequest asked = lab::question_named(name).ask();
  set_fields(asked.fields, given);
  require_relations(asked.fields);
  const lab::Result result = without_python([&] {
    const lab::Listener listener(listener_of(progress));
    lab::Result answer = asked.answer(lab::Format::json);
    if (answer.at_last) answer.at_last();
    return answer;
  });
  return nb::make_tuple(
      to_python(result),
      result.verdict.empty() ? nb::none() : nb::object(nb::str(result.verdict.c_str())),
      result.picture ? to_python(result.picture->data) : nb::none());
}

}  // namespace

void define_questions(nb::module_& module) {
  nb::class_<lab::Simulation>(module, "Simulation")
      .def_prop_ro("latency_us", [](const lab::Simulation& s) { return s.times().latency_us; })
      .def(
          "figures",
          [](const lab::Simulation& s, bool with_interval) {
            return to_python(without_python([&] { return s.result(with_interval); }));
          },
          nb::arg("with_interval"))
      .def("interval",
           [](const lab::Simulation& s) -> std::optional<std::pair<double, double>> {
             const LatencyInterval interval = without_python([&] { return s.interval(); });
             return std::pair(interval.low_us, interval.high_us);
           })
      .def("sensitivity",
           [](const lab::Simulation& s) {
             return rows_of(without_python([&] { return s.sensitivity(); }));
           })
      .def("timeline",
           [](const lab::Simulation& s) { return without_python([&] { return s.timeline(); }); });
  module.def("instead_of", [](const std::string& word, std::vector<std::string> names) {
    return instead_of(word, {std::move(names), "there are"});
  });
  module.def("fields", [](const std::string& question) {
    nb::list all;
    for (const BoundField& each : lab::question_named(question).ask().fields) {
      nb::dict about = description(each.field, each.get());
      about["required"] = each.relations.required;
      about["changes_no_result"] = each.relations.changes_no_result;
      about["of_algorithm"] = std::holds_alternative<FieldValues*>(each.member);
      all.append(about);
    }
    return all;
  });
  module.def("ask", ask, nb::arg("question"), nb::arg("given"), nb::arg("progress").none(),
             nb::arg("called") = "arlab");
  module.def("simulate", simulate, nb::arg("algorithm").none(), nb::arg("asked"));
}

}  // namespace arlab::python
