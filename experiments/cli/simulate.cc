// arlab simulate: how long a schedule takes on a topology.

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/registry.h"
#include "sim/simulator.h"

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
    const SimulationResult result = simulated(world_size, elements, *c, type, t);
    Report figures = report(result, *c);
    if (format == Format::csv) figures.rows_name.clear();  // one row of figures, not the links
    print(figures, format);
  }

  SimulationResult simulated(Rank world_size, std::uint64_t elements, const Codec& c, DType type,
                             const Topology& t) const {
    const std::uint64_t alignment = c.info().alignment;
    if (!schedule.file.empty()) {
      return simulate(schedule.make(world_size, elements, alignment), c, type, t);
    }
    const ScheduleRequest request = schedule.request(world_size, elements, alignment);
    return simulate(find_algorithm(schedule.algorithm), request, c, type, t);
  }

  static Report report(const SimulationResult& r, const Codec& c) {
    const std::size_t elements = r.payload_bytes / size_of(r.dtype);
    const double bits =
        r.wire_elements > 0
            ? 8 * static_cast<double>(r.wire_bytes) / static_cast<double>(r.wire_elements)
            : 8 * static_cast<double>(c.wire_bytes(r.dtype, elements)) /
                  static_cast<double>(elements);
    const bool all_to_all = r.busbw_gb_per_s <= r.algbw_gb_per_s;
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
              all_to_all ? "as nccl-tests: algbw x (n - 1) / n"
                         : "as nccl-tests: algbw x 2 (n - 1) / n"},
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
             {"wire_bytes", r.wire_bytes, "all sends of all ranks"},
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
      table.rows.push_back({use.link_class, use.links, use.bytes, use.utilisation, use.busiest});
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
  sub->add_option("--codec", command->codec, "Codec (see arlab list codecs)")->required();
  sub->add_option("--bytes", command->bytes, "Payload of one rank (32K, 64M)");
  sub->add_option("--dtype", command->dtype, "fp16, bf16 or fp32 [fp16 if the codec takes it]");
  add_integer(*sub, "--ranks", command->ranks, 1, kMaxWorldSize,
              "World size [all ranks of the topology]");
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
