// The two halves of a study or a sweep (experiments/lab/distributed.h), for arlab/distributed.py.

#include "experiments/lab/distributed.h"

#include "experiments/cli/program.h"
#include "experiments/lab/files.h"
#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"

namespace arlab::python {
namespace {

using Outcomes = std::vector<std::pair<std::string, std::string>>;

/// The work of a question; what it says goes to `progress`, unless that is None. `called`: the command, for files.
class PythonRun {
 public:
  PythonRun(const std::string& question, const nb::dict& given, const nb::object& progress,
            const std::string& called)
      : progress_(progress) {
    const lab::Asked asked = lab::question_named(question).ask();
    set_fields(asked.fields, given);
    require_relations(asked.fields);
    lab::set_command_line(called);
    heard([&] { run_ = asked.run(); });
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
    for (lab::Run::Part& part : run_->missing()) {
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
    std::vector<lab::Outcome> outcomes;
    for (auto& [values, error] : given) outcomes.push_back({std::move(values), std::move(error)});
    heard([&] { run_->append(points, outcomes); });
  }
  void lose(std::size_t point, const std::string& why) {
    heard([&] { run_->lose(point, why); });
  }

  /// The result as text of a format, and the arguments of arlab.figures with what is there without these pictures, if they
  /// are to be drawn. Throws CallFailed, when the others are in order, where points were lost.
  nb::tuple finish(const std::string& format, bool all) {
    lab::Result result;
    lab::Page page = cli::page();
    page.all = all;
    heard([&] {
      if (const std::string losses = run_->losses(); !losses.empty()) {
        run_->finish_others();
        throw CallFailed(losses);
      }
      result = run_->finish();
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

 private:
  template <class Call>
  void heard(Call call) {
    const nb::gil_scoped_release others_may_run;
    const lab::Listener listener(listener_of(progress_));
    call();
  }

  nb::object progress_;
  std::unique_ptr<lab::Run> run_;
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
  nb::class_<PythonRun>(module, "Run")
      .def(nb::init<const std::string&, const nb::dict&, const nb::object&, const std::string&>(),
           nb::arg("question"), nb::arg("given"), nb::arg("progress").none(),
           nb::arg("called") = "arlab")
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
  module.def("values_of", values_of);
}

}  // namespace arlab::python
