// arlab simulate: how long a schedule takes on a topology.

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/registry.h"
#include "sim/closed_form.h"

namespace arlab::cli {
namespace {

struct SimulateCommand {
  ScheduleOptions schedule;
  std::string topology;
  std::string codec;
  std::string bytes;
  std::string dtype;
  std::optional<std::uint32_t> ranks;
  Format format = Format::table;

  void run() const {
    const CodecPtr c = find_codec(codec);
    const DType type = dtype.empty() ? default_dtype(*c) : parse_dtype(dtype);
    c->wire_bytes(type, 1);  // throws when the codec does not take the dtype
    const Topology t = find_topology(topology);
    std::uint64_t elements = 0;
    if (schedule.file.empty() || !bytes.empty()) {
      if (bytes.empty()) fail("--algorithm needs --bytes, the payload of one rank (64M)");
      const std::uint64_t payload = parse_count(bytes, "--bytes");
      if (payload % size_of(type) != 0) {
        fail("--bytes is {}: not a whole number of {} elements of {} bytes", payload, name_of(type),
             size_of(type));
      }
      elements = payload / size_of(type);
    }
    const Rank world_size = ranks.value_or(schedule.file.empty() ? t.ranks.value : 0);
    const Schedule s = schedule.make(world_size, elements, c->info().alignment);
    const SimulationResult result = simulate_closed_form(s, *c, type, t);
    Report figures = report(s, *c, type, t, result);
    if (format == Format::csv) figures.rows_name.clear();  // one row of figures, not the links
    print(figures, format);
  }

  Report report(const Schedule& s, const Codec& c, DType type, const Topology& t,
                const SimulationResult& r) const {
    const std::uint64_t payload = s.elements * size_of(type);
    const std::string provenance =
        fmt::format("simulated: model {}, topology {}", kClosedFormModel, t.name);
    const double bits = wire_volume(s, c, type).bits_per_element;
    return {"arlab.simulate/1",
            {{"topology", t.name},
             {"algorithm", s.algorithm},
             {"codec", c.name()},
             {"ranks", s.world_size},
             {"dtype", std::string(name_of(type))},
             {"bytes", payload, "payload of one rank"},
             {"latency_us", r.latency_us, "us"},
             {"algbw_gb_per_s", r.algbw_gb_per_s, "10^9 bytes/s: payload / latency"},
             {"busbw_gb_per_s", r.busbw_gb_per_s,
              s.collective == Collective::all_to_all ? "as nccl-tests: algbw x (n - 1) / n"
                                                     : "as nccl-tests: algbw x 2 (n - 1) / n"},
             {"launch_us", r.breakdown.launch_us, "of the latency: kernel launch"},
             {"synchronisation_us", r.breakdown.synchronisation_us,
              "of the latency: flags and link latency"},
             {"wire_us", r.breakdown.wire_us, "of the latency: steps that the busiest link bounds"},
             {"codec_us", r.breakdown.codec_us,
              "of the latency: encode, decode and sums in steps that they bound"},
             {"wire_bytes", r.wire_bytes, "all sends of all ranks"},
             {"wire_bits_per_element", bits, "average over all sends"},
             {"bottleneck", r.bottleneck},
             {"model", std::string(kClosedFormModel),
              "closed-form latency + bandwidth; a first estimate, not validated"},
             {"provenance", provenance}},
            "links",
            links(r)};
  }

  static Table links(const SimulationResult& r) {
    Table table{{"link_class", "links", "bytes", "utilisation"}, {}};
    for (const LinkClassUse& use : r.links) {
      table.rows.push_back(
          {std::string(name_of(use.link_class)), use.links, use.bytes, use.utilisation});
    }
    return table;
  }
};

}  // namespace

void add_simulate(CLI::App& app) {
  auto command = std::make_shared<SimulateCommand>();
  CLI::App* sub =
      app.add_subcommand("simulate", "Estimate the latency on a topology (closed-form model)");
  sub->add_option("--topology", command->topology,
                  "Topology (see arlab list topologies) or a .toml file")
      ->required();
  command->schedule.add_to(*sub);
  sub->add_option("--codec", command->codec, "Codec (see arlab list codecs)")->required();
  sub->add_option("--bytes", command->bytes, "Payload of one rank (32K, 64M)");
  sub->add_option("--dtype", command->dtype, "fp16, bf16 or fp32 [fp16 if the codec takes it]");
  add_integer(*sub, "--ranks", command->ranks, 1, kMaxWorldSize,
              "World size [all ranks of the topology]");
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
