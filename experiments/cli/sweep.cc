// arlab sweep: simulated times of many machines, sizes, algorithms and codecs; a row each, and the
// figures that one draws of them.

#include <algorithm>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/abstract.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "sim/simulator.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::vector<std::string> kSweepColumns = {
    "topology",   "ranks",          "group_size",     "algorithm",
    "codec",      "dtype",          "bytes",          "implementation",
    "latency_us", "algbw_gb_per_s", "busbw_gb_per_s", "wire_bits_per_element",
    "bottleneck"};

/// A point of the sweep.
struct SweepPoint {
  const Topology* topology;
  Rank ranks;
  Rank group_size;
  std::string algorithm;
  CodecPtr codec;
  CodecPtr inner;
  std::uint64_t bytes;
  bool library;
};

/// "32K", or "32K..1G": that and its doubles up to the second. Throws InvalidInput.
std::vector<std::uint64_t> sizes_of(const std::vector<std::string>& texts) {
  std::vector<std::uint64_t> sizes;
  for (const std::string& text : texts) {
    const auto dots = text.find("..");
    const std::uint64_t first = parse_count(text.substr(0, dots), "--bytes");
    const std::uint64_t last =
        dots == std::string::npos ? first : parse_count(text.substr(dots + 2), "--bytes");
    if (last < first) fail("--bytes is {}: allowed is FIRST..LAST with FIRST <= LAST", quote(text));
    for (std::uint64_t size = first;; size *= 2) {
      sizes.push_back(size);
      if (size > last / 2) break;
    }
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

struct SweepCommand {
  std::vector<std::string> topologies;
  std::vector<std::string> algorithms = {"one_shot", "two_shot", "ring"};
  std::vector<std::string> codecs = {"fp16", "qr-q8", "qr-q6", "qr-q4"};
  std::vector<std::string> bytes = {"32K..1G"};
  std::vector<std::string> ranks;
  std::vector<std::string> group_sizes;
  std::string inner_codec;
  std::string dtype = "fp16";
  bool library = false;
  std::string out;
  std::string highlight;
  bool no_plots = false;
  Format format = Format::table;

  void run() const {
    if (!highlight.empty() && (out.empty() || no_plots)) {
      fail("--highlight is for figures: name a folder with --out, and leave out --no-plots");
    }
    const DType type = parse_dtype(dtype);
    const std::vector<std::uint64_t> sizes = sizes_of(bytes);
    for (const std::uint64_t size : sizes) {
      if (size % size_of(type) != 0) {
        fail("--bytes {}: must be whole elements of {} bytes", size, size_of(type));
      }
    }
    std::vector<Topology> machines;
    machines.reserve(topologies.size());
    for (const std::string& name : topologies) machines.push_back(find_topology(name));
    const std::vector<SweepPoint> points = points_of(machines, sizes, type);
    if (!out.empty()) {
      std::error_code error;
      fs::create_directories(out, error);
      if (error) fail("--out {}: {}", quote(out), error.message());
      require_output_file(file().string());
    }

    Table table{kSweepColumns, std::vector<std::vector<Json>>(points.size())};
    std::vector<std::string> refused(points.size());
    parallel_for(points.size(), 0, [&](unsigned, std::size_t i) {
      try {
        table.rows[i] = row_of(points[i], type);
      } catch (const InvalidInput& error) {
        refused[i] = error.what();
      }
    });
    // A group size, say, need not divide all world sizes: the others are compared without it.
    std::erase_if(table.rows, [](const auto& row) { return row.empty(); });
    if (table.rows.empty()) fail("no point of the sweep can be simulated: {}", refused.front());
    std::string last;
    for (const std::string& why : refused) {
      if (!why.empty() && why != last) write_progress(fmt::format("left out: {}\n", why));
      if (!why.empty()) last = why;
    }

    Report report{"arlab.sweep/1"};
    report.fields = {{"points", table.rows.size()},
                     {"provenance", fmt::format("simulated: model {}", kSimulatorModel)}};
    report.rows_name = "times";
    report.rows = table;
    if (!out.empty()) {
      const std::string text = fmt::format("# {}\n# provenance: simulated: model {}\n",
                                           command_line(), kSimulatorModel) +
                               render_csv(table);
      write_file(file().string(), {std::as_bytes(std::span(text))});
      report.fields.push_back({"out", file().string()});
    }
    print(report, format);
    if (!out.empty() && !no_plots) {
      std::vector<std::string> arguments = {file().string(), "--out", out};
      if (!highlight.empty()) arguments.insert(arguments.end(), {"--highlight", highlight});
      draw("sweep", arguments,
           fmt::format("the times are in {} (--no-plots leaves out figures)", file().string()));
    }
  }

  fs::path file() const { return fs::path(out) / "sweep.csv"; }

  std::vector<SweepPoint> points_of(const std::vector<Topology>& machines,
                                    const std::vector<std::uint64_t>& sizes, DType type) const {
    std::vector<SweepPoint> points;
    for (const Topology& machine : machines) {
      for (const Rank count : counts(ranks, "--ranks", machine.ranks.value)) {
        if (count > machine.ranks.value) {
          fail("--ranks is {}, but topology '{}' has only {}", count, machine.name,
               machine.ranks.value);
        }
        for (const Rank group :
             counts(group_sizes, "--group-size", default_group_size(machine, count))) {
          add_points(points, machine, count, group, sizes, type);
        }
      }
    }
    return points;
  }

  void add_points(std::vector<SweepPoint>& points, const Topology& machine, Rank count, Rank group,
                  const std::vector<std::uint64_t>& sizes, DType type) const {
    const CodecPtr inner = inner_codec.empty() ? nullptr : find_codec(inner_codec);
    std::vector<std::string> names = codecs;
    join_abstract_codecs(names);
    const CodecPtr plain = find_codec(name_of(type));
    for (const std::uint64_t size : sizes) {
      // As in the published tables: two_shot is what its constants were fitted with.
      if (library && machine.device.library) {
        points.push_back({&machine, count, group, "two_shot", plain, nullptr, size, true});
      }
      for (const std::string& algorithm : algorithms) {
        const auto& options = find_algorithm(algorithm).options;
        const bool has_inner = std::any_of(options.begin(), options.end(), [](const auto& option) {
          return option.name == "inner-codec";
        });
        for (const std::string& name : names) {
          const CodecPtr codec = find_codec(name);
          codec->wire_bytes(type, 1);  // throws when it does not take the dtype
          points.push_back(
              {&machine, count, group, algorithm, codec, has_inner ? inner : nullptr, size, false});
        }
      }
    }
  }

  static std::vector<Rank> counts(const std::vector<std::string>& texts, const std::string& what,
                                  Rank otherwise) {
    std::vector<Rank> values;
    for (const std::string& text : texts) {
      const std::uint64_t value = parse_count(text, what);
      if (value > kMaxWorldSize) fail("{} is {}: allowed are 1 to {}", what, value, kMaxWorldSize);
      values.push_back(static_cast<Rank>(value));
    }
    if (values.empty()) values.push_back(otherwise);
    return values;
  }

  static std::vector<Json> row_of(const SweepPoint& p, DType type) {
    const Codecs codecs(*p.codec, p.inner ? *p.inner : *p.codec);
    ScheduleRequest request{.world_size = p.ranks,
                            .elements = p.bytes / size_of(type),
                            .alignment = codecs.alignment(),
                            .options = {.group_size = p.group_size}};
    if (p.inner) request.options.inner_codec = p.inner->name();
    const SimulationResult r = simulate(find_algorithm(p.algorithm), request, codecs, type,
                                        *p.topology, {.library = p.library});
    const WideCount elements = r.wire_elements > 0 ? r.wire_elements : WideCount{1};
    return {r.topology,
            r.world_size,
            p.group_size,
            r.algorithm,
            p.inner ? r.codec + "+" + p.inner->name() : r.codec,
            std::string(name_of(type)),
            p.bytes,
            p.library ? "library" : "fused kernel",
            r.latency_us,
            r.algbw_gb_per_s,
            r.busbw_gb_per_s,
            8 * static_cast<double>(r.wire_bytes) / static_cast<double>(elements),
            r.bottleneck};
  }
};

}  // namespace

void add_sweep(CLI::App& app) {
  auto command = std::make_shared<SweepCommand>();
  CLI::App* sub = app.add_subcommand(
      "sweep", "Simulate many machines, sizes, algorithms and codecs: a table, CSV and figures");
  const auto list = [sub](const std::string& name, std::vector<std::string>& values,
                          const std::string& description) {
    return sub->add_option(name, values, description + ", separated by commas")->delimiter(',');
  };
  list("--topology", command->topologies, "Topologies or .toml files")->required();
  list("--algorithm", command->algorithms,
       "Algorithms or schedules of any size (.json) [one_shot, two_shot, ring]");
  list("--codec", command->codecs,
       "Codecs, or bits=4.5,encode_ops=9,decode_ops=4 for one that is not there [fp16, qr-q8, "
       "qr-q6, qr-q4]");
  list("--bytes", command->bytes,
       "Payloads of one rank; FIRST..LAST is FIRST and its doubles [32K..1G]");
  list("--ranks", command->ranks, "World sizes [all ranks of each topology]");
  list("--group-size", command->group_sizes,
       "Ranks per group of hierarchical algorithms [as each topology has it]");
  sub->add_option("--inner-codec", command->inner_codec,
                  "Codec of messages inside a group, for algorithms that have one [--codec]");
  sub->add_option("--dtype", command->dtype, "fp16, bf16 or fp32 [fp16]");
  sub->add_flag("--library", command->library,
                "Also as NCCL or RCCL do it, where the topology knows them");
  sub->add_option("--out", command->out, "Folder for sweep.csv and the figures [none]");
  sub->add_option("--highlight", command->highlight,
                  "Codecs or algorithms that stand out in figures, separated by commas [none]");
  sub->add_flag("--no-plots", command->no_plots, "The table only");
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
