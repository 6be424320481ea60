// How long do tokens take to the experts of other ranks and back, and which rank is slowest?

#include <fmt/format.h>

#include <cmath>
#include <tuple>

#include "experiments/lab/questions.h"
#include "experiments/lab/time/simulate.h"
#include "reference/codecs/registry.h"
#include "reference/csv.h"
#include "reference/words.h"
#include "sim/topology/topology.h"
#include "sim/workload/expert_exchange.h"

namespace arlab::lab {
namespace {

constexpr double kMostSkew = 4;

struct ExpertsRequest {
  std::string topology;
  std::string routing = "uniform";
  std::string codec;
  std::string combine_codec;
  std::string dtype = "bf16";
  std::string library = "tensorrt-llm";
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint32_t> tokens;
  std::optional<std::uint32_t> hidden;
  std::optional<std::uint32_t> experts;
  std::optional<std::uint32_t> top_k;

  Result answer() {
    const std::uint32_t of_rank = tokens.value_or(64);
    const Topology t = find_topology(topology);
    const ExchangeLibrary& kernels = kTensorRtLlm;
    if (t.device.name != kernels.device || t.kind != TopologyKind::switched) {
      fail("topology {}: no time of {}'s kernels was found there; allowed is one switch of {}",
           quote(t.name), kernels.name, kernels.device);
    }
    const Rank world = ranks.value_or(t.ranks.value);
    if (world > t.ranks.value) {
      fail("{} ranks are more than the {} of topology {}", world, t.ranks.value, quote(t.name));
    }
    const ExpertLoad load = load_of({.ranks = world,
                                     .tokens = of_rank,
                                     .experts = experts_of(),
                                     .top_k = top_k_of(),
                                     .chosen = chosen()});
    const auto us_of = [&](const ExchangeKernel& kernel, const std::string& name) {
      const DType type = parse_dtype(dtype);
      const CodecPtr found = find_codec(name.empty() ? std::string(name_of(type)) : name);
      const auto bytes = static_cast<double>(found->wire_bytes(type, hidden.value_or(7168)));
      return exchange_us(kernel, load, bytes);
    };
    const double dispatch_us = us_of(kernels.dispatch, codec);
    const double combine_us = us_of(kernels.combine, combine_codec);
    std::vector<std::string> beyond;
    if (world != kernels.ranks)
      beyond.push_back(fmt::format("measured were {} ranks", kernels.ranks));
    const double variance = variance_beyond(beyond);
    const auto factor_of = [&](const std::string& name, bool is_measured, const char* step) {
      if (!is_measured) beyond.push_back(fmt::format("no {} with {} was measured", step, name));
      const double factor = std::log(exchange_factor(kernels, world));
      return std::exp(std::sqrt(factor * factor + variance + (is_measured ? 0 : kOtherCodec)));
    };
    const auto is_plain = [](const std::string& name) {
      return name.empty() || name == "bf16" || name == "fp16";
    };
    const double dispatch_factor =
        factor_of(codec, is_plain(codec) || codec.starts_with("nvfp4"), "dispatch");
    const double combine_factor = factor_of(combine_codec, is_plain(combine_codec), "combine");
    return {"arlab.model.experts/1",
            {{"topology", t.name},
             {"ranks", world},
             {"library", kernels.name, std::string(kernels.source)},
             {"routing", routing},
             {"tokens", of_rank, "of each rank"},
             {"dispatch_us", dispatch_us, "us: to the experts"},
             {"dispatch_us_low", dispatch_us / dispatch_factor, "us: 90 % interval"},
             {"dispatch_us_high", dispatch_us * dispatch_factor},
             {"combine_us", combine_us, "us: sums back"},
             {"combine_us_low", combine_us / combine_factor, "us: 90 % interval"},
             {"combine_us_high", combine_us * combine_factor},
             extrapolated_figure(beyond),
             {"mean_copies", load.mean, "copies of tokens that a rank receives"},
             {"slowest_copies", load.slowest, "copies that the slowest rank sends or receives"},
             {"slowest_rank", load.slowest_rank},
             {"provenance",
              fmt::format("simulated: blocks per peer of {}, topology {}", kernels.name, t.name)}}};
  }

  /// A square of a logarithm, a guess: the kernels' times have no encoder in them.
  static constexpr double kOtherCodec = 0.16;

  /// Returns how much wider times lie that differ from the measured ones by more than ranks, and adds in what; guesses.
  double variance_beyond(std::vector<std::string>& beyond) const {
    constexpr double kOther = 0.03;
    const std::tuple<bool, double, std::string> all[] = {
        {hidden.value_or(7168) != 7168, kOther, "tokens have 7168 elements in all measured steps"},
        {experts_of() != 256 || top_k_of() != 8, kOther, "measured were 8 of 256 experts"},
        {tokens.value_or(64) > 65536, kOther, "more than the 65536 tokens that were measured"},
        {routing != "uniform", 2 * kOther, "measured was uniform routing"}};
    double variance = 0;
    for (const auto& [is_so, added, reason] : all) {
      if (!is_so) continue;
      variance += added;
      beyond.push_back(reason);
    }
    return variance;
  }

  std::uint32_t experts_of() const { return experts.value_or(256); }
  std::uint32_t top_k_of() const { return top_k.value_or(8); }

  std::vector<double> chosen() const {
    if (routing == "uniform") return {};
    if (routing.ends_with(".csv")) return read_choices(routing, experts_of(), top_k_of());
    constexpr std::string_view kZipf = "zipf:";
    if (routing.starts_with(kZipf)) {
      const double s = number_of(routing.substr(kZipf.size()));
      if (s >= 0 && s <= kMostSkew) return zipf_choices(experts_of(), top_k_of(), s);
    }
    fail("--routing {}: allowed are uniform, zipf:s with s from 0 to {}, and a .csv file",
         quote(routing), kMostSkew);
  }
};

std::vector<BoundField> fields(ExpertsRequest& r) {
  return {
      field("topology", &r.topology,
            "Simulate this topology (see arlab list topologies), or a .toml file")
          .required(),
      field("ranks", &r.ranks, "Spread the experts over N ranks, in blocks", "all of the topology")
          .from(2, kMaxWorldSize),
      field("tokens", &r.tokens, "Send N tokens from each rank", "64").from(1, 1 << 24),
      field("hidden", &r.hidden, "Set the elements of a token", "7168").from(1, 1 << 20),
      field("experts", &r.experts, "Set the experts of a layer", "256").from(2, 1 << 16),
      field("top_k", &r.top_k, "Send each token to N experts", "8").from(1, 1 << 10),
      field("routing", &r.routing,
            "Route tokens: uniform, over as many ranks as possible; zipf:s, to expert e in "
            "proportion to (e + 1)^-s; FILE.csv, with the columns expert and tokens",
            "uniform"),
      field("codec", &r.codec, "Encode tokens on the way to experts (dispatch) with this codec",
            "the dtype"),
      field("combine_codec", &r.combine_codec,
            "Encode sums on the way back (combine) with this codec", "the dtype"),
      field("dtype", &r.dtype, "Set the element type").among({"fp16", "bf16"}),
      field("library", &r.library, "Simulate this library's kernels; others were not timed")
          .among({"tensorrt-llm"})};
}

}  // namespace

Question model_experts_question() {
  return question<ExpertsRequest>(
      "model experts",
      "Simulate how tokens reach experts on other ranks and come back (dispatch, combine)",
      &ExpertsRequest::answer);
}

}  // namespace arlab::lab
