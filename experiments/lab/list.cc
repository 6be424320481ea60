// Lists the available things.

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>

#include "experiments/lab/questions.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"
#include "reference/collectives/named.h"
#include "reference/tensors/synthetic.h"
#include "reference/words.h"
#include "sim/topology/topology.h"

namespace arlab::lab {
namespace {

template <class Items, class TextOf>
std::string join(const Items& items, TextOf text_of) {
  return fmt::format("{}", fmt::join(items | std::views::transform(text_of), ", "));
}

// ---------------------------------------------------------------- what there is

/// Whether an element has the same bits wherever in a tensor its block stands, and however long that is.
bool is_position_invariant(const CodecInfo& info) {
  return info.splits_at_alignment && info.alignment != kWholeTensor && !info.needs_context();
}

/// The same of an algorithm as it is by default; of eight ranks, as of any number of them.
bool is_position_invariant(const Algorithm& algorithm) {
  constexpr Rank kRanks = 8;
  return sums_are_alike(algorithm.write({.world_size = kRanks, .elements = kRanks * kRanks * 64}));
}

Result list_codecs() {
  Result report{"arlab.list.codecs/1", {{"families", codec_patterns()}}, "codecs"};
  report.shown = {"name", "wire_bits_per_element", "dtypes", "summary"};
  report.rows.columns = words_in(
      "name wire_bits_per_element block alignment dtypes encode_ops_per_element "
      "decode_ops_per_element summary source position_invariant");
  for (const std::string& name : listed_codecs()) {
    const CodecPtr codec = find_codec(name);
    const CodecInfo& info = codec->info();
    constexpr std::size_t kMany = std::size_t{1} << 20;  // a whole number of every alignment
    const double bits =
        8.0 * static_cast<double>(codec->wire_bytes(info.dtypes.front(), kMany)) / kMany;
    report.rows.rows.push_back(
        {name, bits, info.block == kWholeTensor ? Json("whole message") : Json(info.block),
         info.alignment == kWholeTensor ? Json("whole tensor") : Json(info.alignment),
         join(info.dtypes, [](DType dtype) { return name_of(dtype); }),
         info.cost.encode_ops_per_element, info.cost.decode_ops_per_element, info.summary,
         info.source, is_position_invariant(info)});
  }
  return report;
}

Result list_algorithms() {
  Result report{"arlab.list.algorithms/1", {}, "algorithms"};
  report.rows.columns =
      words_in("name collective summary options_and_defaults source position_invariant");
  report.shown = {"name", "collective", "summary", "options_and_defaults"};
  for (const Algorithm& algorithm : all_algorithms()) {
    report.rows.rows.push_back(
        {algorithm.name, std::string(name_of(algorithm.collective)), algorithm.summary,
         join(algorithm.options,
              [](const Field& o) { return fmt::format("--{} {}", o.option(), o.default_words()); }),
         algorithm.source, is_position_invariant(algorithm)});
  }
  return report;
}

Result list_all_reduces() {
  Result report{"arlab.list.all-reduces/1", {}, "all_reduces"};
  report.rows.columns = {"name", "summary", "source", "dtype", "options"};
  for (const NamedAllReduce& each : named_all_reduces()) {
    std::vector<std::string> options;
    if (each.has_block) options.emplace_back("--block");
    if (each.has_codecs) options.emplace_back("--codec");
    if (each.has_stripe) options.emplace_back("--stripe");
    report.rows.rows.push_back({each.name, each.summary, each.source,
                                std::string(name_of(each.dtype)),
                                fmt::format("{}", fmt::join(options, ", "))});
  }
  return report;
}

Result list_topologies() {
  Result report{"arlab.list.topologies/1", {}, "topologies"};
  report.rows.columns = {"name", "ranks", "kind", "summary", "caveat"};
  for (const std::string& name : listed_topologies()) {
    const Topology topology = find_topology(name);
    report.rows.rows.push_back(
        {name, topology.ranks.value, std::string(name_of(topology.kind)), topology.summary,
         topology.caveat.empty() ? "" : "not to be trusted: " + topology.caveat});
  }
  for (const GeneratedTopology& g : kGeneratedTopologies) {
    report.rows.rows.push_back({std::string(g.pattern), "any", std::string(g.name),
                                fmt::format("generated: {}", g.summary), ""});
  }
  report.rows.rows.push_back(
      {"PATH.toml", "any", "any", "your own machine; see sim/topology/machines", ""});
  return report;
}

Result list_inputs() {
  Result report{"arlab.list.inputs/1", {}, "inputs"};
  report.rows.columns = {"name", "parameters_and_defaults", "summary"};
  for (const SyntheticDistribution& distribution : list_synthetic()) {
    report.rows.rows.push_back({std::string(distribution.name),
                                join(distribution.parameters,
                                     [](const SyntheticParameter& p) {
                                       return fmt::format("{}={}", p.name, p.default_value);
                                     }),
                                std::string(distribution.description)});
  }
  report.rows.rows.push_back(
      {"FILE.npy", "", "[ranks, ...] float16, float32, or uint16 patterns of --dtype"});
  report.rows.rows.push_back(
      {"FILE.safetensors", "", "[ranks, ...] F16, BF16 or F32, or quantized; --tensor NAME"});
  report.rows.rows.push_back({"FILE.gguf", "", "[ranks, ...] as fp32; --tensor NAME"});
  return report;
}

struct ListRequest {
  std::string what;
};

std::vector<BoundField> fields(ListRequest& r) {
  return {field("what", &r.what, "List codecs, algorithms, all-reduces, topologies or inputs")
              .by_place("WHAT")};
}

Result what_there_is(const ListRequest& request) {
  const std::pair<std::string, Result (*)()> all[] = {{"codecs", list_codecs},
                                                      {"algorithms", list_algorithms},
                                                      {"all-reduces", list_all_reduces},
                                                      {"topologies", list_topologies},
                                                      {"inputs", list_inputs}};
  std::vector<std::string> names;
  for (const auto& [name, list] : all) {
    if (name == request.what) return list();
    names.push_back(name);
  }
  fail("cannot list '{}': {}", request.what, instead_of(request.what, {names, "allowed are"}));
}

}  // namespace

Question list_question() {
  return question<ListRequest>(
      "list", "List codecs, algorithms, other projects' all-reduces, topologies or inputs",
      what_there_is);
}

}  // namespace arlab::lab
