// The two halves of a study or a sweep (experiments/lab/grids/grid.h), for arlab/distributed.py.

#include "experiments/cli/program.h"
#include "experiments/lab/files.h"
#include "experiments/lab/grids/grid.h"
#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"

namespace arlab::python {
namespace {

using Outcomes = std::vector<std::pair<std::string, std::string>>;

/// The grid of a question; what it says goes to `progress`, unless that is None.
struct PythonGrid {
  nb::object progress;
  std::unique_ptr<lab::Grid> grid = nullptr;

  /// `called`: the command, for files.
  PythonGrid(const std::string& question, const nb::dict& given, nb::object hears,
             const std::string& called)
      : progress(std::move(hears)) {
    const lab::BoundRequest asked = lab::question_named(question).ask();
    set_fields(asked.fields, given);
    require_relations(asked.fields);
    lab::set_command_line(called);
    heard([&] { grid = asked.grid(); });
  }

  /// Others may run meanwhile.
  template <class Call>
  void heard(Call call) {
    const nb::gil_scoped_release others_may_run;
    const lab::Listener listener(listener_of(progress));
    call();
  }

  void append(const std::vector<std::size_t>& points, Outcomes given) {
    if (given.size() != points.size()) {
      fail("{} rows of {} points: allowed is one each", given.size(), points.size());
    }
    std::vector<lab::Outcome> outcomes;
    for (auto& [values, error] : given) outcomes.push_back({std::move(values), std::move(error)});
    heard([&] { grid->append(points, outcomes); });
  }

  /// The result as text of a format, and the arguments of arlab.figures with what is there without these pictures, if they
  /// are to be drawn. Throws CallFailed, when the others are in order, where points were lost.
  nb::tuple finish(const std::string& format, bool all) {
    lab::Result result;
    lab::Page page = cli::page();
    page.all = all;
    heard([&] {
      if (const std::string losses = grid->losses(); !losses.empty()) {
        grid->finish_others();
        throw CallFailed(losses);
      }
      result = grid->finish();
    });
    const auto shown = format == "json"  ? lab::Format::json
                       : format == "csv" ? lab::Format::csv
                                         : lab::Format::table;
    nb::object figures = nb::none();
    if (result.picture) {
      std::vector<std::string> words = {result.picture->kind};
      for (const std::string& word : result.picture->arguments) words.push_back(word);
      figures = nb::make_tuple(words, result.picture->kept);
    }
    return nb::make_tuple(lab::render(result, shown, page), figures, to_python(result));
  }
};

Outcomes values_of(const std::string& task) {
  Outcomes outcomes;
  const nb::gil_scoped_release others_may_run;
  for (lab::Outcome& outcome : lab::values_of(task)) {
    outcomes.emplace_back(std::move(outcome.values), std::move(outcome.error));
  }
  return outcomes;
}

}  // namespace

void define_distributed(nb::module_& module) {
  using Points = std::vector<std::size_t>;
  nb::class_<PythonGrid>(module, "Grid")
      .def(nb::init<const std::string&, const nb::dict&, nb::object, const std::string&>(),
           nb::arg("question"), nb::arg("given"), nb::arg("progress").none(),
           nb::arg("called") = "arlab")
      .def("close", [](PythonGrid& g) { g.grid.reset(); })  // its folder is free for others
      .def("open", [](PythonGrid& g) { g.heard([&] { g.grid->open(); }); })
      .def_prop_ro("points", [](const PythonGrid& g) { return g.grid->points(); })
      .def_prop_ro("rows", [](const PythonGrid& g) { return g.grid->rows(); })
      .def("missing", [](const PythonGrid& g) { return g.grid->missing(); })
      .def("task",
           [](const PythonGrid& g, const Points& points) {
             const nb::gil_scoped_release others_may_run;
             return g.grid->task(points);
           })
      .def("append", &PythonGrid::append)
      .def("lose", [](PythonGrid& g, std::size_t point,
                      const std::string& why) { g.heard([&] { g.grid->lose(point, why); }); })
      .def("finish", &PythonGrid::finish, nb::arg("format"), nb::arg("all") = false);
  module.def("values_of", values_of);
}

}  // namespace arlab::python
