// The two halves of a study or a sweep (experiments/cli/distributed.h), for arlab/distributed.py.

#include "experiments/cli/distributed.h"

#include <nlohmann/json.hpp>

#include "experiments/cli/program.h"
#include "experiments/python/module/binding.h"

namespace arlab::python {
namespace {

using Outcomes = std::vector<std::pair<std::string, std::string>>;

/// A run as Python has it; what it says goes to `progress`, unless that is None.
class PythonRun {
 public:
  PythonRun(const nb::object& progress, const std::function<std::unique_ptr<cli::Run>()>& make)
      : progress_(progress) {
    heard([&] { run_ = make(); });
  }

  /// Its folder is free for others from here on.
  void close() { run_.reset(); }

  void open() {
    heard([&] { run_->open(); });
  }
  std::size_t points() const { return run_->points(); }
  std::size_t rows() const { return run_->rows(); }
  std::string name(std::size_t point) const { return run_->name(point); }

  std::vector<std::pair<std::vector<std::size_t>, std::size_t>> missing() const {
    std::vector<std::pair<std::vector<std::size_t>, std::size_t>> parts;
    for (cli::Run::Part& part : run_->missing()) {
      parts.emplace_back(std::move(part.points), part.most);
    }
    return parts;
  }

  std::string task(const std::vector<std::size_t>& points) const {
    const nb::gil_scoped_release others_may_run;
    return run_->task(points);
  }

  void append(const std::vector<std::size_t>& points, Outcomes given) {
    if (given.size() != points.size()) {
      fail("{} rows of {} points: allowed is one each", given.size(), points.size());
    }
    std::vector<cli::Outcome> outcomes;
    for (auto& [values, error] : given) outcomes.push_back({std::move(values), std::move(error)});
    heard([&] { run_->append(points, outcomes); });
  }
  void lose(std::size_t point, const std::string& why) {
    heard([&] { run_->lose(point, why); });
  }

  /// Throws CallFailed, when the others are in order, where points were lost.
  std::string finish(const std::string& format, bool all) {
    std::string text;
    lab::Page page = cli::page();
    page.all = all;
    heard([&] {
      if (const std::string losses = run_->losses(); !losses.empty()) {
        run_->finish_others();
        throw CallFailed(losses);
      }
      const auto shown = format == "json"  ? lab::Format::json
                         : format == "csv" ? lab::Format::csv
                                           : lab::Format::table;
      text = lab::render(run_->finish(), shown, page);
    });
    return text;
  }

 private:
  template <class Call>
  void heard(Call call) {
    const nb::gil_scoped_release others_may_run;
    const cli::OutputTo output({[](std::string_view) {},
                                [this](std::string_view text) {
                                  const nb::gil_scoped_acquire python;
                                  if (!progress_.is_none())
                                    progress_(nb::str(text.data(), text.size()));
                                },
                                [](std::string_view) {}});
    call();
  }

  nb::object progress_;
  std::unique_ptr<cli::Run> run_;
};

Outcomes values_of(const std::string& task) {
  Outcomes outcomes;
  const nb::gil_scoped_release others_may_run;
  for (cli::Outcome& outcome : cli::values_of(task)) {
    outcomes.emplace_back(std::move(outcome.values), std::move(outcome.error));
  }
  return outcomes;
}

}  // namespace

void define_distributed(nb::module_& module) {
  nb::class_<PythonRun>(module, "Run")
      .def("close", &PythonRun::close)
      .def("open", &PythonRun::open)
      .def_prop_ro("points", &PythonRun::points)
      .def_prop_ro("rows", &PythonRun::rows)
      .def("name", &PythonRun::name)
      .def("missing", &PythonRun::missing)
      .def("task", &PythonRun::task)
      .def("append", &PythonRun::append)
      .def("lose", &PythonRun::lose)
      .def("finish", &PythonRun::finish, nb::arg("format"), nb::arg("all") = false);
  module.def(
      "study_run",
      [](const std::string& file, const std::string& out, bool resume, const nb::object& progress) {
        return std::make_unique<PythonRun>(
            progress, [&] { return cli::make_study_run({file, out, resume}); });
      },
      nb::arg("file"), nb::arg("out"), nb::arg("resume"), nb::arg("progress").none());
  module.def(
      "sweep_run",
      [](const std::string& options, const nb::object& progress) {
        return std::make_unique<PythonRun>(
            progress, [&] { return cli::make_sweep_run(nlohmann::ordered_json::parse(options)); });
      },
      nb::arg("options"), nb::arg("progress").none());
  module.def("values_of", values_of);
}

}  // namespace arlab::python
