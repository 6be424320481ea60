// arlab simulate: how long a schedule takes on a topology.

#include "experiments/lab/simulate.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/cli/commands.h"
#include "experiments/cli/nccl_tests.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"

namespace arlab::cli {
namespace {

struct SimulateCommand {
  SimulateRequest request;
  bool no_plots = false;
  Format format = Format::table;

  void run() const {
    const bool as_nccl = format == Format::nccl || format == Format::nccl_json;
    if (as_nccl && !request.workload.empty()) {
      fail("--format {} is of one collective; allowed with --workload are table, json, csv",
           name_of(format));
    }
    if (as_nccl) return print_as_nccl(lab::simulate_sizes(request));
    Result result = lab::simulate(request);
    if (!lab::is_single(request)) return print(result, format);
    const bool draws = !request.trace.empty() && !request.trace.ends_with(".chakra.json");
    // The timeline beside the trace: t.json and t.png.
    const std::string picture = request.trace.substr(0, request.trace.rfind('.') + 1) + "png";
    if (draws && !no_plots) {
      const auto trace = std::ranges::find(result.figures, "trace", &Figure::name);
      result.figures.insert(trace + 1, {"timeline", picture, "picture of the trace"});
    }
    // One row of figures, not the links; or the rows that were asked for.
    if (format == Format::csv && !request.sensitivity) result.rows_name.clear();
    if (format == Format::csv && request.sensitivity) result.figures.clear();
    print_last(
        [&] {
          if (!draws || no_plots) return;
          draw(
              "timeline", {request.trace, picture},
              fmt::format("the trace is in {} (--no-plots leaves out the picture)", request.trace));
        },
        [&] { print(result, format); });
  }

  /// A line per size as nccl-tests prints it.
  void print_as_nccl(const std::vector<lab::Simulation>& all) const {
    const SimulationResult& last = all.back().times();
    NcclRun run{.experiment = fmt::format("{} {} on {}", last.algorithm, last.codec, last.topology),
                .collective = last.collective,
                .lines = {}};
    for (const lab::Simulation& each : all) {
      const SimulationResult& r = each.times();
      // The model does not tell an output that is the input from another one.
      run.lines.push_back({r.payload_bytes, 1, {r.latency_us}, NcclTime{r.latency_us}});
    }
    NcclReport nccl;
    nccl.ranks = last.world_size;
    nccl.dtype = last.dtype;
    nccl.device = all.back().topology().device.name;
    nccl.provenance = fmt::format("simulated: model {}, topology {}", last.model, last.topology);
    nccl.runs = {std::move(run)};
    write_stdout(format == Format::nccl ? nccl.text() : nccl.json().dump(2) + '\n');
  }
};

}  // namespace

void add_simulate(CLI::App& app) {
  auto command = std::make_shared<SimulateCommand>();
  CLI::App* sub =
      app.add_subcommand("simulate", "Simulate how long a collective takes on a topology");
  add_fields(
      *sub,
      together(fields(command->request),
               {field("no_plots", &command->no_plots, "No .png beside the trace").needs("trace")}));
  add_format(*sub, command->format, Format::table, {Format::nccl, Format::nccl_json});
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
