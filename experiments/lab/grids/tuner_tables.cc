#include "experiments/lab/grids/tuner_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reference/error.h"

namespace arlab::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;

/// As QuickReduce's variables name a codec; empty for one that it does not have.
std::string regime_of(const TableOf& of, const TableRange& range) {
  if (range.library || range.algorithm != "two_shot") return "";
  if (range.codec == name_of(of.dtype)) return "FP";
  const bool has_int3 = of.format == "vllm" && of.ranks == 2;
  for (const char* bits : {"8", "6", "4", "3"}) {
    if (range.codec == std::string("qr-q") + bits && (*bits != '3' || has_int3))
      return std::string("INT") + bits;
  }
  return "";
}

/// As NCCL names it; empty for programs that only RCCL runs.
std::string algorithm_of(const TableOf& of, const TableRange& range) {
  if (range.algorithm == "nvls") return of.nodes > 1 ? "nvls_tree" : "nvls";
  if (range.algorithm == "tree") return "tree";
  return range.algorithm == "ring" || of.collective != Collective::all_reduce ? "ring" : "";
}

/// Lines of a comment, short: NCCL's plug-in cuts lines after 255 characters, and reads the rest as another one.
std::string commented(const std::string& text) {
  constexpr std::size_t kLongest = 120;
  std::istringstream lines(text);
  std::string comment;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty()) {
      std::size_t end = line.size();
      if (end > kLongest) end = std::min(line.rfind(' ', kLongest), kLongest);
      comment += "# " + line.substr(0, end) + '\n';
      line.erase(0, line.find_first_not_of(' ', end));
    }
  }
  return comment;
}

// ---------------------------------------------------------------- tables of libraries

/// As the format's columns have them.
Json rule_of(const TableOf& of, const TableRange& range) {
  std::string collective(name_of(of.collective));
  std::erase(collective, '_');
  const bool is_comms = of.format.starts_with("torchcomms");
  // bytesPerRank is payload / ranks, rounded down.
  const auto bytes = [&](std::uint64_t all) {
    return std::to_string(is_comms ? (all + of.ranks - 1) / of.ranks : all);
  };
  Json rule = {{"collective", collective}};
  if (is_comms) {
    rule["bytesPerRank"] =
        fmt::format("[{},{})", bytes(range.from), range.to == 0 ? "" : bytes(range.to));
  } else {
    rule["minBytes"] = bytes(range.from);
    rule["maxBytes"] = bytes(range.to - 1);  // 2^64 - 1 where there is no end
  }
  const std::string any = is_comms ? "*" : "-1";
  rule["algorithm"] = algorithm_of(of, range);
  rule["protocol"] = range.protocol;
  rule["channels"] = "-1";
  rule["nNodes"] = of.nodes == 0 ? any : std::to_string(of.nodes);
  if (is_comms)
    rule["nLocalRanks"] = of.nodes == 0 ? any : std::to_string(of.ranks / of.nodes);
  else
    rule.update({{"nRanks", std::to_string(of.ranks)}, {"numPipeOps", any}, {"regBuff", any}});
  if (of.format == "rccl") rule.update({{"partitionMode", "any"}, {"localGroup", any}});
  return rule;
}

std::string csv_of(const TableOf& of, const std::vector<TableRange>& ranges) {
  std::string names;
  std::string rows;
  for (const TableRange& range : ranges) {
    names.clear();
    const Json rule = rule_of(of, range);
    for (const auto& [name, cell] : rule.items()) {
      rows += (names.empty() ? "" : ",") + cell.get<std::string>();
      names += (names.empty() ? "# " : ",") + name;
    }
    rows += '\n';
  }
  return names + '\n' + rows;
}

std::string json_of(const TableOf& of, const std::vector<TableRange>& ranges) {
  Json rules = Json::array();
  for (const TableRange& range : ranges) {
    Json filter = rule_of(of, range);
    Json config = {{"algorithm", filter["algorithm"]}, {"protocol", filter["protocol"]}};
    for (const char* name : {"algorithm", "protocol", "channels"}) filter.erase(name);
    rules.push_back({{"filter", std::move(filter)}, {"config", std::move(config)}});
  }
  return Json{{"rules", std::move(rules)}}.dump(2) + '\n';
}

// ---------------------------------------------------------------- QuickReduce in vLLM and SGLang

/// One regime from one size on, up to one size.
struct Thresholds {
  std::string regime = "NONE";
  std::uint64_t from = 0;       ///< QuickReduce begins
  std::uint64_t quantized = 0;  ///< the regime begins; below it FP
  std::uint64_t to = 0;         ///< 0: no end
};

/// The regime of the largest sizes that have one; in vLLM, values of fewer bytes may stay as they are.
Thresholds thresholds_of(const TableOf& of, const std::vector<TableRange>& ranges) {
  for (std::size_t i = ranges.size(); i-- > 0;) {
    const std::string regime = regime_of(of, ranges[i]);
    if (regime.empty()) continue;
    const bool is_plain_below =
        of.format == "vllm" && i > 0 && regime_of(of, ranges[i - 1]) == "FP";
    return {regime, ranges[i - (is_plain_below ? 1 : 0)].from, ranges[i].from, ranges[i].to};
  }
  return {};
}

std::string variables_of(const TableOf& of, const std::vector<TableRange>& ranges,
                         std::vector<std::string>& unsaid) {
  if (!of.is_amd)
    unsaid.emplace_back("the machine has no GPU of AMD, for which alone QuickReduce is there");
  const Thresholds limits = thresholds_of(of, ranges);
  for (const TableRange& range : ranges) {
    const bool is_taken = !regime_of(of, range).empty() && range.from >= limits.from &&
                          (limits.to == 0 || range.from < limits.to);
    if (!is_taken && !range.library)
      unsaid.push_back(in_words(range) + ": not QuickReduce's to say");
  }
  std::string text;
  const auto set = [&](std::string_view name, const auto& value) {
    text +=
        fmt::format("{}ROCM_QUICK_REDUCE_{}={}\n", of.format == "vllm" ? "VLLM_" : "", name, value);
  };
  set("QUANTIZATION", limits.regime);
  if (limits.regime == "NONE") return text;
  if (of.dtype == DType::bf16) set("CAST_BF16_TO_FP16", 0);  // as the kernels were timed
  const std::uint64_t most = std::max<std::uint64_t>(limits.to / kMiB, 1);
  if (limits.to != 0) set("MAX_SIZE_BYTES_MB", most);
  if (of.format == "sglang") {
    unsaid.push_back(
        fmt::format("QuickReduce from {} bytes on: SGLang has limits of its own", limits.from));
    return text;
  }
  const std::uint64_t least = (limits.from + kMiB - 1) / kMiB;
  set("MIN_SIZE_BYTES_MB", least);
  if (limits.quantized > limits.from)
    set("QUANTIZATION_MIN_SIZE_KB", (limits.quantized + kKiB - 1) / kKiB);
  if (least * kMiB != limits.from || (limits.to != 0 && most * kMiB != limits.to))
    unsaid.push_back(fmt::format("from {} bytes {}, other than in whole MiB", limits.from,
                                 limits.to == 0 ? "on" : fmt::format("to {}", limits.to)));
  return text;
}

}  // namespace

bool TableOf::is_of_library() const {
  return format != "toml" && format != "vllm" && format != "sglang";
}

bool TableOf::can_say(const TableRange& what) const {
  if (is_of_library()) return what.library && !algorithm_of(*this, what).empty();
  const bool has_kernels = (ranks == 2 || ranks == 4 || ranks == 8) && dtype != DType::fp32;
  return what.library || what.codec == name_of(dtype) ||
         (has_kernels && !regime_of(*this, what).empty());
}

std::vector<std::string> endings_of(const std::string& format) {
  if (format == "toml") return {".toml"};
  if (format == "torchcomms-json") return {".json"};
  if (TableOf{.format = format, .provenance = {}}.is_of_library()) return {".csv", ".conf"};
  return {".env", ".sh"};
}

std::vector<TableRange> by_protocol(
    const std::vector<TableRange>& ranges,
    const std::function<std::string(const std::string&, std::uint64_t)>& protocol_of) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
  std::vector<TableRange> cut;
  for (const TableRange& range : ranges) {
    const std::uint64_t last = range.to == 0 ? kLargest : range.to - 1;
    std::uint64_t low = std::max<std::uint64_t>(range.from, 1);
    cut.push_back(range);
    while (true) {
      const std::string protocol = cut.back().protocol = protocol_of(range.algorithm, low);
      const auto is_same = [&](std::uint64_t bytes) {
        return protocol_of(range.algorithm, bytes) == protocol;
      };
      std::uint64_t high = low;
      while (high < last && is_same(high)) {
        low = high;
        high = std::min(2 * high, last);
      }
      if (is_same(high)) break;
      while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        (is_same(middle) ? low : high) = middle;
      }
      cut.back().to = low = high;
      cut.push_back(range);
      cut.back().from = high;
    }
  }
  return cut;
}

std::string write_tuner_table(const TableOf& of, const std::vector<TableRange>& sayable,
                              std::vector<std::string>& unsaid) {
  const bool is_named = of.collective == Collective::all_reduce ||
                        (of.is_of_library() && of.collective != Collective::all_to_all &&
                         of.collective != Collective::dispatch_combine);
  if (!is_named) {
    fail("--table-format {}: it has no name for {}{}", of.format, words_for(of.collective),
         of.is_of_library() ? "" : "; QuickReduce has all-reduces only");
  }
  if ((of.format == "nccl" && of.is_amd) || (of.format == "rccl" && !of.is_amd))
    unsaid.push_back(of.is_amd ? "the machine's GPUs are AMD's, whose library is RCCL"
                               : "the machine has no GPU of AMD, for which RCCL is");
  if (of.format == "torchcomms-json") return json_of(of, sayable);  // which has no comments
  const std::string body =
      of.is_of_library() ? csv_of(of, sayable) : variables_of(of, sayable, unsaid);
  std::string text = commented(of.provenance);
  for (const std::string& each : unsaid) text += commented("not said here: " + each);
  return text + body;
}

std::string in_words(const TableRange& range) {
  const std::string bytes = range.to == 0 ? fmt::format("from {} bytes on", range.from)
                                          : fmt::format("{} to {} bytes", range.from, range.to - 1);
  return fmt::format("{} {}{} {}", bytes, range.library ? "library " : "", range.algorithm,
                     range.codec);
}

}  // namespace arlab::lab
