// arlab simulate: how long a schedule takes on a topology.

#include <fmt/ranges.h>

#include "experiments/cli/commands.h"
#include "experiments/cli/nccl_tests.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/codecs.h"
#include "sim/device/kernel_model.h"
#include "sim/device/nccl.h"
#include "sim/library.h"
#include "sim/nccl.h"
#include "sim/simulator.h"
#include "sim/trace/chakra.h"
#include "sim/trace/perfetto.h"

namespace arlab::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateCommand {
  ScheduleOptions schedule;
  std::string topology;
  std::string codec;
  SizeOptions sizes;
  std::string dtype;
  std::optional<std::uint32_t> ranks;
  bool library = false;
  bool multicast = false;
  std::string sharing = "max_min";
  std::string trace;
  bool no_plots = false;
  Format format = Format::table;

  void run() const {
    SimulateOptions options = make_options();
    if (!trace.empty()) require_picture_name("--trace", trace, {".json"});
    const CodecPtr c = find_codec(codec);
    const DType type = dtype.empty() ? default_dtype(*c) : parse_dtype(dtype);
    const CodecPtr inner = schedule.inner(c);
    for (const Codec* each : {c.get(), inner.get()}) {
      each->wire_bytes(type, 1);  // throws when the codec does not take the dtype
    }
    const Topology t = find_topology(topology);
    std::vector<std::uint64_t> payloads = {0};  // as a schedule file says
    if (sizes.given()) payloads = sizes.sizes(size_of(type));
    if (schedule.file.empty() && !sizes.given()) {
      fail("{} needs --bytes, the payload of one rank (64M)",
           schedule.algorithm.empty() && library ? "--library" : "--algorithm");
    }
    const bool as_nccl = format == Format::nccl || format == Format::nccl_json;
    if (payloads.size() > 1 || as_nccl) {
      if (!trace.empty()) fail("--trace is of one size, in another --format than nccl");
      return run_sizes(payloads, {*c, *inner}, type, t, options);
    }
    const std::uint64_t elements = payloads.front() / size_of(type);
    const Rank world_size = world_size_on(t);
    std::optional<PerfettoTrace> timeline;
    std::optional<ChakraTrace> chakra;
    if (is_chakra()) options.trace = &chakra.emplace();
    if (!trace.empty() && !is_chakra()) options.trace = &timeline.emplace();
    const SimulationResult result = simulated(world_size, elements, {*c, *inner}, type, t, options);
    if (timeline) timeline->write(trace, result);
    if (chakra) chakra->write(trace, result);
    Report figures = report(result, *c);
    if (!schedule.inner_codec.empty()) {
      const auto after_codec = std::find_if(figures.fields.begin(), figures.fields.end(),
                                            [](const Field& f) { return f.name == "ranks"; });
      figures.fields.insert(after_codec, {"inner_codec", inner->name()});
    }
    add_options(figures, result, t);
    if (format == Format::csv) figures.rows_name.clear();  // one row of figures, not the links
    print(figures, format);
    if (timeline && !no_plots) {
      draw("timeline", {trace, picture()},
           fmt::format("the trace is in {} (--no-plots leaves out the picture)", trace));
    }
  }

  /// 0: as a schedule file says.
  Rank world_size_on(const Topology& t) const {
    return ranks.value_or(schedule.file.empty() ? t.ranks.value : 0);
  }

  /// A row per size, or a line as nccl-tests prints it.
  void run_sizes(const std::vector<std::uint64_t>& payloads, const Codecs& c, DType type,
                 const Topology& t, const SimulateOptions& options) const {
    Report rows{"arlab.simulate.sizes/1"};
    rows.rows_name = "sizes";
    rows.rows.columns = {"bytes",          "latency_us", "algbw_gb_per_s",
                         "busbw_gb_per_s", "wire_bytes", "bottleneck"};
    if (library_chooses()) rows.rows.columns.emplace_back("algorithm");
    NcclReport nccl;
    NcclRun run;
    for (const std::uint64_t payload : payloads) {
      const SimulationResult r =
          simulated(world_size_on(t), payload / size_of(type), c, type, t, options);
      rows.rows.rows.push_back({r.payload_bytes, r.latency_us, r.algbw_gb_per_s, r.busbw_gb_per_s,
                                count_json(r.wire_bytes), r.bottleneck});
      if (library_chooses()) rows.rows.rows.back().emplace_back(r.algorithm);
      // The model does not tell an output that is the input from another one.
      run.lines.push_back({r.payload_bytes, 1, {r.latency_us}, NcclTime{r.latency_us}});
      if (payload != payloads.back()) continue;
      rows.fields = {
          {"topology", r.topology},
          {"algorithm", r.algorithm,
           library_chooses() ? "the library's choice for the largest" : library_note(r, t)},
          {"codec", r.codec},
          {"ranks", r.world_size},
          {"dtype", std::string(name_of(r.dtype))},
          {"model", r.model, "sim/README.md says how far it is from measured times"},
          {"provenance", fmt::format("simulated: model {}, topology {}", r.model, r.topology)}};
      nccl.ranks = r.world_size;
      nccl.dtype = r.dtype;
      nccl.device = t.device.name;
      nccl.provenance = rows.fields.back().value;
      run.experiment = fmt::format("{} {} on {}", r.algorithm, r.codec, r.topology);
      run.collective = r.collective;
    }
    nccl.runs = {std::move(run)};
    if (format == Format::nccl) return write_stdout(nccl.text());
    if (format == Format::nccl_json) return write_stdout(nccl.json().dump(2) + '\n');
    print(rows, format);
  }

  SimulateOptions make_options() const {
    SimulateOptions options{.library = library, .multicast = multicast};
    if (library && multicast) {
      fail("--multicast with --library: NCCL spreads by --algorithm nvls; allowed is one of both");
    }
    if (sharing == "fifo") {
      options.sharing = Sharing::fifo;
    } else if (sharing != "max_min") {
      fail("--sharing is {}: allowed are max_min, fifo", quote(sharing));
    }
    return options;
  }

  bool is_chakra() const { return trace.ends_with(".chakra.json"); }

  /// The timeline beside the trace: t.json and t.png.
  std::string picture() const { return trace.substr(0, trace.size() - 4) + "png"; }

  /// What the options have made of the run, after the figures that say what was run.
  void add_options(Report& figures, const SimulationResult& result, const Topology& t) const {
    std::string implementation = "kernel";
    if (library && result.runs_nccl) {
      const auto algorithm = result.algorithm == nvls_algorithm().name
                                 ? std::optional(NcclAlgorithm::nvls)
                                 : std::optional(NcclAlgorithm::ring);
      implementation = describe(nccl_choice(t.device, result.collective, result.world_size,
                                            result.payload_bytes, algorithm));
    } else if (library) {
      const Implementation protocol =
          library_protocol(t.device, result.payload_bytes, result.world_size);
      implementation =
          fmt::format("library, {} protocol, {} channels",
                      protocol == Implementation::low_latency ? "low-latency" : "simple",
                      library_channels(t.device, result.payload_bytes));
    }
    std::vector<Field>& fields = figures.fields;
    const auto after = std::find_if(fields.begin(), fields.end(),
                                    [](const Field& f) { return f.name == "latency_us"; });
    fields.insert(after, {{"group_size", group_size_json(t, result),
                           "ranks per group of hierarchical algorithms"},
                          {"implementation", implementation, library_note(result, t)},
                          {"sharing", sharing,
                           sharing == "fifo" ? "of links: one message after the other"
                                             : "of links: all messages at once, max-min fair"}});
    if (trace.empty()) return;
    fields.push_back(
        {"trace", trace, is_chakra() ? "Chakra execution trace" : "open it at ui.perfetto.dev"});
    if (!no_plots && !is_chakra())
      fields.push_back({"timeline", picture(), "picture of the trace"});
  }

  SimulationResult simulated(Rank world_size, std::uint64_t elements, const Codecs& c, DType type,
                             const Topology& t, const SimulateOptions& options) const {
    const std::uint64_t alignment = c.alignment();
    if (!schedule.file.empty()) {
      return simulate(schedule.make(world_size, elements, alignment), c, type, t, options);
    }
    ScheduleOptions named = schedule;
    if (library_chooses()) named.algorithm = library_algorithms(t).front();
    ScheduleRequest request = named.request(world_size, elements, alignment);
    request.options.group_size = group_size(t, world_size);
    const Algorithm& algorithm = library_chooses() ? library_algorithm(request, c, type, t, options)
                                                   : find_simulated_algorithm(named.algorithm);
    if (options.trace != nullptr && &algorithm != &nvls_algorithm()) {
      require_traceable(algorithm, request);
    }
    return simulate(algorithm, request, c, type, t, options);
  }

  Rank group_size(const Topology& t, Rank world_size) const {
    return schedule.group_size.value_or(default_group_size(t, world_size));
  }

  bool library_chooses() const {
    return library && schedule.algorithm.empty() && schedule.file.empty();
  }

  /// Who has chosen the algorithm, or what is to be said about a choice.
  std::string library_note(const SimulationResult& result, const Topology& t) const {
    if (!library) return "";
    const std::string of = fmt::format("{}", fmt::join(library_algorithms(t), ", "));
    if (library_chooses()) return fmt::format("its own choice of algorithm, out of {}", of);
    if (library_has(t, result.algorithm)) return "";
    return fmt::format("its numbers are of {}, and say little about {}", of, result.algorithm);
  }

  /// Nothing where the algorithm has no groups, or a file says what they are.
  Json group_size_json(const Topology& t, const SimulationResult& result) const {
    if (!schedule.file.empty()) return nullptr;
    const auto& has =
        find_simulated_algorithm(library_chooses() ? result.algorithm : schedule.algorithm).options;
    const bool groups = std::any_of(has.begin(), has.end(), [](const AlgorithmOption& option) {
      return option.name == "group-size";
    });
    return groups ? Json(group_size(t, result.world_size)) : Json(nullptr);
  }

  static const char* bus_factor_words(Collective collective) {
    if (collective == Collective::broadcast) return "1";
    const bool twice =
        collective == Collective::all_reduce || collective == Collective::dispatch_combine;
    return twice ? "2 (n - 1) / n" : "(n - 1) / n";
  }

  static Report report(const SimulationResult& r, const Codec& c) {
    const std::size_t elements = r.payload_bytes / size_of(r.dtype);
    const double bits =
        r.wire_elements > 0
            ? 8 * static_cast<double>(r.wire_bytes) / static_cast<double>(r.wire_elements)
            : 8 * static_cast<double>(c.wire_bytes(r.dtype, elements)) /
                  static_cast<double>(elements);
    return {"arlab.simulate/2",
            {{"topology", r.topology},
             {"algorithm", r.algorithm},
             {"codec", r.codec},
             {"ranks", r.world_size},
             {"dtype", std::string(name_of(r.dtype))},
             {"bytes", r.payload_bytes, "payload of one rank"},
             {"latency_us", r.latency_us, "us"},
             {"algbw_gb_per_s", r.algbw_gb_per_s, "10^9 bytes/s: payload / latency"},
             {"busbw_gb_per_s", r.busbw_gb_per_s,
              fmt::format("as nccl-tests: algbw x {}", bus_factor_words(r.collective))},
             {"launch_us", r.breakdown.launch_us,
              "of the latency: kernel launch, delay of a straggler"},
             {"synchronisation_us", r.breakdown.synchronisation_us,
              "of the latency: flags and link latency"},
             {"wire_us", r.breakdown.wire_us, "of the latency: links at their bandwidth"},
             {"contention_us", r.breakdown.contention_us,
              "of the latency: stores that get in each other's way"},
             {"codec_us", r.breakdown.codec_us,
              "of the latency: encode, decode and sums that the wire does not hide"},
             {"release_us", r.breakdown.release_us,
              "of the latency: releases of tiles that nothing hides"},
             {"wire_bytes", count_json(r.wire_bytes), "all sends of all ranks"},
             {"wire_bits_per_element", bits, "average over all sends"},
             {"bottleneck", r.bottleneck},
             {"simulated_ranks", r.simulated_ranks,
              r.simulated_ranks == r.world_size ? "all" : "one stands for all, exactly"},
             {"model", r.model, "sim/README.md says how far it is from measured times"},
             {"provenance", fmt::format("simulated: model {}, topology {}", r.model, r.topology)}},
            "links",
            links(r)};
  }

  static Table links(const SimulationResult& r) {
    Table table{{"link_class", "links", "bytes", "utilisation", "busiest"}, {}};
    for (const LinkClassUse& use : r.links) {
      table.rows.push_back(
          {use.link_class, use.links, count_json(use.bytes), use.utilisation, use.busiest});
    }
    return table;
  }
};

}  // namespace

void add_simulate(CLI::App& app) {
  auto command = std::make_shared<SimulateCommand>();
  CLI::App* sub =
      app.add_subcommand("simulate", "Simulate how long a collective takes on a topology");
  sub->add_option("--topology", command->topology,
                  "Topology (see arlab list topologies) or a .toml file")
      ->required();
  command->schedule.add_to(*sub);
  sub->add_option("--codec", command->codec,
                  "Codec (see arlab list codecs), or bits=4.5,encode_ops=9,decode_ops=4 for one "
                  "that is not there")
      ->required();
  command->sizes.add_to(*sub, "Payload of one rank (32K, 64M)", "as --schedule has it");
  sub->add_option("--dtype", command->dtype, "fp16, bf16 or fp32 [fp16 if the codec takes it]");
  add_integer(*sub, "--ranks", command->ranks, 1, kMaxWorldSize,
              "World size [all ranks of the topology]");
  sub->add_flag("--library", command->library,
                "As NCCL or RCCL run the schedule; codecs fp16, bf16 and fp32 only. Without "
                "--algorithm, by the fastest of the algorithms that the library has");
  sub->add_flag(
      "--multicast", command->multicast,
      "What a rank sends alike to all others leaves it once, where the switch spreads it");
  sub->add_option("--sharing", command->sharing,
                  "Messages share links max-min fairly (max_min) or take turns (fifo) [max_min]");
  auto* traced = sub->add_option(
      "--trace", command->trace,
      "Write the timeline to this .json, for ui.perfetto.dev, and as a .png beside it; to a "
      ".chakra.json: as a Chakra execution trace");
  sub->add_flag("--no-plots", command->no_plots, "No .png beside the trace")->needs(traced);
  add_format(*sub, command->format, Format::table, {Format::nccl, Format::nccl_json});
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
