#include "sim/calibration/nccl_log.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <tuple>
#include <utility>

#include "reference/csv.h"
#include "reference/error.h"
#include "reference/field.h"
#include "reference/json.h"

namespace arlab {
namespace {

using Json = nlohmann::json;

/// It is not simulated; that of two ranks has the columns of an all-reduce.
constexpr CollectiveFacts kSendRecv{.name = "sendrecv",
                                    .words = "a send",
                                    .proved = "",
                                    .nccl_program = "sendrecv_perf",
                                    .adds = true};
constexpr const CollectiveFacts* kPrograms[] = {
    &facts_of(Collective::all_reduce), &facts_of(Collective::all_gather),
    &facts_of(Collective::reduce_scatter), &facts_of(Collective::all_to_all), &kSendRecv};
constexpr std::string_view kSimulated = "all_reduce, all_gather, reduce_scatter, alltoall";

/// In place such programs check nothing.
bool needs_two_buffers(const CollectiveFacts& program) {
  return &program == &kSendRecv || program.nccl_program == "alltoall_perf";
}

std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) letters += static_cast<char>(std::tolower(letter));
  }
  return letters;
}

/// The program that a name holds: of nccl-tests, of a file, or as --collective has it.
const CollectiveFacts* program_in(std::string_view text) {
  const std::string letters = letters_of(text);
  if (letters.find("alltoallv") != std::string::npos) return nullptr;
  for (const CollectiveFacts* each : kPrograms) {
    const std::string_view name = each->nccl_program.substr(0, each->nccl_program.find("_perf"));
    if (letters.find(letters_of(name)) != std::string::npos) return each;
  }
  return nullptr;
}

constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"half", DType::fp16}, {"bfloat16", DType::bf16}, {"float", DType::fp32},
    {"fp16", DType::fp16}, {"bf16", DType::bf16},     {"fp32", DType::fp32}};
constexpr std::string_view kOtherTypes[] = {"int8",   "uint8",    "char",    "int32",  "uint32",
                                            "int",    "int64",    "uint64",  "double", "f8e4m3",
                                            "f8e5m2", "fp8_e4m3", "fp8_e5m2"};

std::optional<DType> dtype_of(std::string_view name) {
  for (const auto& [type, dtype] : kTypes) {
    if (type == name) return dtype;
  }
  return {};
}
bool is_type(std::string_view name) {
  return dtype_of(name) || std::ranges::count(kOtherTypes, name) > 0;
}

/// Numbers are known to within half of their last digit, and some are rounded twice: 0.1 us, 0.01 GB/s, a few per mille.
struct Place {
  double us = std::nan("");
  double algbw = std::nan("");
  double busbw = std::nan("");
  double wrong = std::nan("");  ///< elements, or a deviation; no number where nothing was checked
  bool checked() const { return wrong >= 0; }
  std::optional<double> time() const {
    return us > 0 && us < 1e15 ? std::optional(us) : std::nullopt;
  }
  bool has_bandwidths() const { return algbw > kHalfGb && busbw > kHalfGb; }
  /// Whether busbw is so many times algbw.
  bool has_ratio(double factor) const {
    return !has_bandwidths() ||
           std::abs(busbw - factor * algbw) <= kHalfGb * (1 + factor) + 0.002 * factor * algbw;
  }
  bool has_moved(std::uint64_t bytes) const {
    const double kilobytes = static_cast<double>(bytes) * 1e-3;
    return !time() || !has_bandwidths() ||
           std::abs(kilobytes - us * algbw) <=
               kHalfGb * us + kHalfUs * (algbw + kHalfGb) + 0.005 * us * algbw;
  }
  static constexpr double kHalfGb = 0.005;
  static constexpr double kHalfUs = 0.05;
};

struct Row {
  std::size_t line = 0;
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;  ///< 0: not said
  std::string type = {};
  std::string redop = {};  ///< empty: the column is blank
  bool has_root = false;
  Place out_of_place = {};
  Place in_place = {};

  bool fits(const CollectiveFacts& program, Rank ranks) const {
    const double n = ranks;
    const double factor = program.bus_passes == 0 ? 1 : program.bus_passes * (n - 1) / n;
    return out_of_place.has_ratio(factor) && in_place.has_ratio(factor);
  }
  /// Compares a log that does not name its program by its other columns.
  bool may_be_of(const CollectiveFacts& program, Rank ranks) const {
    const bool is_sum = !redop.empty() && redop != "none";
    const bool is_half_checked = out_of_place.checked() && in_place.time() && !in_place.checked();
    const auto dtype = dtype_of(type);
    const bool has_all =
        count == 0 || !dtype || count * size_of(*dtype) * (program.has_slots ? ranks : 1) == bytes;
    return is_sum == program.adds && !has_root && has_all &&
           !(needs_two_buffers(program) ? in_place.checked() : is_half_checked) &&
           fits(program, ranks);
  }
};

/// Facts of one run as the text has them, before its collective is known.
struct RawRun {
  std::string name;               ///< the program's
  std::set<std::uint64_t> ranks;  ///< listed ones
  std::set<std::string> hosts;
  std::uint64_t ranks_said = 0;  ///< by one process, or by all
  bool has_groups = false;
  LoggedRun known;
  std::vector<Row> rows;
};

struct Word {
  std::string text;
  std::size_t end = 0;  ///< place in the line
};

std::vector<Word> words_of(const std::string& line) {
  std::vector<Word> words;
  std::size_t end = 0;
  for (std::string& text : words_in(line)) {
    end = line.find(text, end) + text.size();
    words.push_back({std::move(text), end});
  }
  return words;
}

/// A launcher's prefix may stand before it: [1,0]<stdout>:1048576
std::optional<std::uint64_t> whole(std::string_view text) {
  text.remove_prefix(text.find_last_of(":>]|") + 1);  // npos + 1 is 0
  if (text.find_first_not_of("0123456789") != std::string_view::npos) return {};
  const double value = number_of(std::string(text));
  return value < 1e15 ? std::optional(static_cast<std::uint64_t>(value)) : std::nullopt;
}

bool is_measure(const std::string& word) {
  return !std::isnan(number_of(word)) || word == "N/A" || word == "nan" || word == "-nan";
}

std::string without_colours(std::string line) {
  for (std::size_t at; (at = line.find("\x1b[")) != std::string::npos;) {
    const std::size_t end = line.find_first_not_of("0123456789;", at + 2);
    line.erase(at, end == std::string::npos ? end : end + 1 - at);
  }
  return line;
}

class LogReader {
 public:
  /// A `unit` has a number: a line, or a result in JSON.
  LogReader(const std::string& origin, const LogHints& hints, std::string_view unit)
      : origin_(origin), hints_(hints), unit_(unit) {}

  bool is_log() const { return is_log_; }

  void read(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      constexpr std::size_t kLongestLine = 4096;  // others are of something else
      if (unit_ == "line" || !line.starts_with('#')) ++line_;
      if (line.ends_with('\r')) line.pop_back();
      if (line.size() < kLongestLine) read_line(without_colours(std::move(line)));
    }
  }

  NcclLog settled() {
    for (RawRun& run : runs_) {
      if (!run.rows.empty()) settle(run);
    }
    if (cut_short_ > 0)
      log_.left_out[fmt::format("cut short, the first in {} {}", unit_, first_cut_short_)] =
          cut_short_;
    if (log_.runs.empty() && log_.left_out.empty())
      fail("{}: the log has no row of times", origin_);
    if (log_.runs.empty()) {
      fail("{}: the log has no row that is simulated ({}); those of fp16, bf16 and fp32 of {} are",
           origin_, in_words(log_.left_out), kSimulated);
    }
    return std::move(log_);
  }

 private:
  RawRun& run() {
    if (runs_.empty()) runs_.emplace_back();
    return runs_.back();
  }
  /// A header says that a run begins.
  RawRun& fresh_run() {
    if (!run().rows.empty()) runs_.emplace_back();
    return run();
  }

  void read_line(const std::string& line) {
    const std::vector<Word> words = words_of(line);
    if (words.empty() || read_row(words)) return;
    if (unit_ != "line" && !line.starts_with('#'))
      fail("{}: {} {} has no size and type as of nccl-tests: {}", origin_, unit_, line_,
           quote(line));
    const bool is_heading = std::ranges::count(words, "algbw", &Word::text) > 0;
    if (is_heading) read_heading(words);
    if (line.find("concluded") != std::string::npos) return;
    for (std::size_t i = 0; i < words.size(); ++i)
      read_word(line, words[i], i + 1 < words.size() ? words[i + 1] : Word{});
    if (line.find("agg iters: ") != std::string::npos &&
        line.find("agg iters: 1 ") == std::string::npos)
      log_.remarks.insert("several calls at once (agg iters)");
    if (line.find(" graph: ") != std::string::npos && line.find(" graph: 0") == std::string::npos)
      log_.remarks.insert("in CUDA graphs (-G)");
    if (line.find("# Blocking Enabled") != std::string::npos)
      log_.remarks.insert("a wait after each call (-z)");
    if (line.find("in-place") != std::string::npos)
      in_place_only_ = line.find("out-of-place") == std::string::npos;
  }

  void read_word(const std::string& line, const Word& word, const Word& next) {
    const auto rest_from = [&](std::size_t at) {
      return line.substr(std::min(line.find_first_not_of(' ', at), line.size()));
    };
    const std::string& text = word.text;
    const bool is_before_number = whole(next.text).has_value();
    const std::uint64_t number = whole(next.text).value_or(0);
    if (text == "nThread" && is_before_number) {
      is_log_ = true;
      fresh_run().ranks_said = number;
    } else if (text == "nGpus" && is_before_number) {
      run().ranks_said *= number;
    } else if (text == "Rank" && is_before_number && line.find(" device ") != std::string::npos) {
      fresh_run().ranks.insert(number);
    } else if (text == "Group" && number > 0) {
      run().has_groups = true;
    } else if (text == "on" && line.find(" Rank ") != std::string::npos) {
      run().hosts.insert(next.text);
    } else if (text == "device" && line.find(" Rank ") != std::string::npos) {
      const std::size_t bus = line.find("] ", next.end);
      if (run().known.device.empty())
        run().known.device = rest_from(bus == std::string::npos ? next.end : bus + 1);
    } else if (text.ends_with("_perf")) {
      const std::string name = text.substr(text.rfind('/') + 1);
      const bool goes_on = name == run().name && line.find("starting") == std::string::npos;
      if (!goes_on) fresh_run().name = name;
    } else if (text.starts_with("nccl-library=")) {
      const std::uint64_t code = whole(text.substr(13)).value_or(0);  // 23007 is 2.30.7
      fresh_run().known.library =
          fmt::format("NCCL {}.{}.{}", code / 10000, code / 100 % 100, code % 100);
    } else if (text.ends_with("CCL") && next.text == "version") {
      const std::size_t at = std::min(line.find_first_not_of(" :", next.end), line.size());
      run().known.library = text + ' ' + line.substr(at, line.find_first_of(" \t", at) - at);
    } else if (text == "arlab:" && line.starts_with('#')) {
      log_.remarks.insert("times that arlab has simulated, not measured");
      fresh_run().known.experiment = rest_from(word.end).substr(0, rest_from(word.end).find(';'));
    }
  }

  void read_heading(const std::vector<Word>& words) {
    is_log_ = true;
    root_column_.reset();
    times_.clear();
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i].text == "cputime")
        fail("{}: {} {}: its times are the CPU's (-C 1)", origin_, unit_, line_);
      if (words[i].text != "time") continue;
      at.push_back(i);
      times_.push_back(words[i].end);
    }
    const bool has_stamps = words.back().text == "timestamp";
    if (at.empty()) return;
    const std::size_t end = at.size() > 1 ? at[1] : words.size() - (has_stamps ? 1 : 0);
    width_ = std::max<std::size_t>(4, end - at[0]);
  }

  /// Whether the line is a row of the table: size, count, type, operation, maybe the root, and a block of measures for each place.
  bool read_row(const std::vector<Word>& words) {
    std::size_t i = 2;
    while (i < words.size() && !is_type(words[i].text)) ++i;
    if (i >= words.size() || !whole(words[i - 1].text) || !whole(words[i - 2].text)) return false;
    is_log_ = true;
    Row row{.line = line_,
            .bytes = *whole(words[i - 2].text),
            .count = *whole(words[i - 1].text),
            .type = words[i].text};
    ++i;
    if (i < words.size() && !is_measure(words[i].text)) row.redop = words[i++].text;
    std::size_t end = i;
    while (end < words.size() && is_measure(words[end].text)) ++end;
    // A row that is cut short may have as many words as one without a root.
    const bool has_root_column = (end - i) % width_ == 1;
    const bool is_as_others = root_column_.value_or(has_root_column) == has_root_column;
    if (has_root_column) row.has_root = number_of(words[i++].text) >= 0;
    if (!is_as_others || (end - i) % width_ != 0 || end == i || end - i > 2 * width_) {
      if (cut_short_++ == 0) first_cut_short_ = line_;
      return true;
    }
    root_column_ = has_root_column;
    const bool has_both = end - i == 2 * width_;
    (!has_both && is_in_place(words[i]) ? row.in_place : row.out_of_place) = place_of(words, i);
    if (has_both) row.in_place = place_of(words, i + width_);
    run().rows.push_back(std::move(row));
    return true;
  }

  /// Returns whether a block of measures is in place: where the heading has two, the other one is blank.
  bool is_in_place(const Word& time) const {
    if (times_.size() < 2) return in_place_only_;
    return 2 * time.end > times_[0] + times_[1];
  }

  static Place place_of(const std::vector<Word>& words, std::size_t at) {
    const auto number = [&](std::size_t i) { return number_of(words[at + i].text); };
    // Versions before 2.11 have the largest deviation, such as 1e-07, of which this much is allowed for 16 bits.
    constexpr double kAllowed = 1e-2;
    const bool is_deviation = words[at + 3].text.find_first_of("e.") != std::string::npos;
    const double wrong = is_deviation && number(3) <= kAllowed ? 0 : number(3);
    return {number(0), number(1), number(2), wrong};
  }

  // ---- of what collective and how many ranks

  void settle(RawRun& run) {
    if (run.has_groups)
      fail("{}: several groups of ranks at once (NCCL_TESTS_SPLIT) are not simulated", origin_);
    const bool is_named = hints_.collective.empty() && !run.name.empty();
    const CollectiveFacts* program = program_in(is_named ? run.name : hints_.collective);
    if (program == nullptr && !is_named)
      program = program_in(origin_.substr(origin_.rfind('/') + 1));
    Rank ranks = static_cast<Rank>(
        std::min<std::uint64_t>(std::max(run.ranks.size(), run.ranks_said), kMaxWorldSize));
    if (ranks == 1 && run.ranks.empty()) ranks = 0;  // a process of many, maybe
    ranks = hints_.ranks.value_or(ranks);
    if (ranks == 1) fail("{}: the log is of one GPU, which sends nothing to another", origin_);
    if (program == nullptr && is_named) {
      log_.left_out[run.name] += run.rows.size();
      return;
    }
    if (program == nullptr || (ranks == 0 && program != &kSendRecv)) deduce(run, program, ranks);
    if (program == &kSendRecv) {
      log_.left_out[std::string(program->nccl_program)] += run.rows.size();
      return;
    }
    LoggedRun result = std::move(run.known);
    result.collective = static_cast<Collective>(program - kCollectiveFacts);
    result.ranks = ranks;
    result.hosts = run.hosts.size();
    for (const Row& row : run.rows) {
      require_consistent(row, *program, ranks);
      add_time(row, result);
    }
    if (!result.times.empty()) log_.runs.push_back(std::move(result));
  }

  /// The one program and number of ranks that all rows allow.
  void deduce(const RawRun& run, const CollectiveFacts*& program, Rank& ranks) const {
    std::vector<std::pair<const CollectiveFacts*, Rank>> fitting;
    std::set<std::string_view> names;
    constexpr Rank kMostDeduced = 1024;
    for (const CollectiveFacts* each : kPrograms) {
      if (program != nullptr && program != each) continue;
      for (Rank n = std::max(ranks, 2U); n <= (ranks > 0 ? ranks : kMostDeduced); ++n) {
        if (!std::ranges::all_of(run.rows, [&](const Row& row) { return row.may_be_of(*each, n); }))
          continue;
        fitting.emplace_back(each, n);
        names.insert(each->nccl_program);
      }
    }
    if (names.size() != 1 || (fitting.size() != 1 && fitting[0].first != &kSendRecv)) {
      fail(
          "{}: the log leaves open of which collective and how many ranks it is: its columns may "
          "be of {}; --collective ({}) and --ranks say it",
          origin_, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), kSimulated);
    }
    std::tie(program, ranks) = fitting.front();
  }

  void require_consistent(const Row& row, const CollectiveFacts& program, Rank ranks) const {
    for (const Place& place : {row.out_of_place, row.in_place}) {
      if (place.has_moved(row.bytes)) continue;
      fail(
          "{}: {} {}: {} bytes in a time of {} us are not algbw {} GB/s: these are no columns of "
          "nccl-tests",
          origin_, unit_, row.line, row.bytes, place.us, place.algbw);
    }
    if (row.fits(program, ranks)) return;
    fail(
        "{}: {} {}: busbw / algbw is not that of {} on {} ranks; --collective and --ranks correct "
        "the log",
        origin_, unit_, row.line, program.nccl_program, ranks);
  }

  void add_time(const Row& row, LoggedRun& result) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;
    const auto dtype = dtype_of(row.type);
    const Rank slots = has_slots(result.collective) ? result.ranks : 1;
    if (row.out_of_place.wrong > 0 || row.in_place.wrong > 0) {
      ++log_.left_out["with wrong results (#wrong)"];
    } else if (!row.out_of_place.time() && !row.in_place.time()) {
      ++log_.left_out["without a time"];
    } else if (!dtype) {
      ++log_.left_out["of type " + row.type];
    } else if (row.bytes == 0 || row.bytes > kMostBytes) {
      ++log_.left_out["of 0 bytes or more than 64 GiB"];
    } else if (row.bytes % (size_of(*dtype) * slots) != 0) {
      ++log_.left_out["that do not divide equally"];
    } else {
      result.times.push_back({*dtype, row.bytes, row.out_of_place.time(), row.in_place.time()});
    }
  }

  const std::string& origin_;
  const LogHints& hints_;
  std::string_view unit_;
  NcclLog log_;
  std::vector<RawRun> runs_;
  std::size_t line_ = 0;
  std::vector<std::size_t> times_;  ///< where the heading's columns "time" end
  std::size_t width_ = 4;           ///< measures of a place
  bool in_place_only_ = false;
  std::size_t cut_short_ = 0;  ///< rows
  std::size_t first_cut_short_ = 0;
  std::optional<bool> root_column_;  ///< as in earlier rows
  bool is_log_ = false;
};

// ---------------------------------------------------------------- JSON and CSV, as text

std::string text_in(const Json& json, const char* key, const std::string& otherwise = "") {
  const auto found = json.find(key);
  if (found == json.end()) return otherwise;
  if (found->is_string()) return found->get<std::string>();
  return found->is_number() ? found->dump() : otherwise;
}
std::uint64_t whole_in(const Json& json, const char* key) {
  return whole(text_in(json, key)).value_or(0);
}

/// The columns before the measures.
std::string row_start(const Json& row) {
  return fmt::format("{} {} {} {} {}", text_in(row, "size", "0"), text_in(row, "count", "0"),
                     text_in(row, "type"), text_in(row, "redop"), text_in(row, "root"));
}
std::string measures(const Json& row, std::initializer_list<const char*> keys) {
  std::string text;
  for (const char* key : keys) text += ' ' + text_in(row, key, "N/A");
  return text;
}
constexpr std::string_view kNoMeasures = " N/A N/A N/A N/A";

/// The text of a report by nccl-tests with -J; arlab's names in each result what it is of.
std::string text_of_report(const Json& json, const std::string& origin) {
  if (!json.is_object() || !json.contains("config") || !json["config"].is_object() ||
      !json.contains("results") || !json["results"].is_array()) {
    fail("{}: the JSON has no 'config' and 'results', which nccl-tests writes with -J", origin);
  }
  const Json& config = json["config"];
  std::uint64_t ranks = whole_in(config, "nthreads") * whole_in(config, "ngpus");
  // Listed are all ranks, or the first rank of each process: the last one has as many as the others.
  const Json devices = config.value("devices", Json::array());
  std::string head;
  for (const Json& each : devices) {
    const std::uint64_t rank = whole_in(each, "rank");
    if (rank > 0 && devices.size() > 1)
      ranks = std::max(ranks, rank + std::max<std::uint64_t>(1, rank / (devices.size() - 1)));
    head += fmt::format("# Rank {} Group {} {} device 0 [0] {}\n", rank, whole_in(each, "group"),
                        each.contains("hostname") ? "on " + text_in(each, "hostname") : "",
                        text_in(each, "device_info"));
  }
  for (const Json& each : json.value("args", Json::array()))
    head += each.is_string() ? "# " + each.get<std::string>() + '\n' : "";
  if (json.contains("nccl_version"))
    head += fmt::format("# nccl-library={}\n", text_in(json, "nccl_version"));
  head += fmt::format("# nThread {} nGpus 1 agg iters: {} graph: {} \n", ranks,
                      text_in(config, "aggregated_iterations", "1"), text_in(config, "graph", "0"));
  std::string text = head;
  std::string experiment;
  for (const Json& each : json["results"]) {
    const std::string name = text_in(each, "experiment_name");
    if (name != experiment) text += fmt::format("{}# arlab: {}\n", head, name);
    experiment = name;
    text += row_start(each);
    for (const char* key : {"out_of_place", "in_place"}) {
      const Json place = each.is_object() ? each.value(key, Json()) : Json();
      if (place.contains("cpu_time")) fail("{}: its times are the CPU's (-C 1)", origin);
      text += measures(place, {"time", "alg_bw", "bus_bw", "nwrong"});
    }
    text += '\n';
  }
  return text;
}

/// The text of records by rccl-tests with -Z json: one for each place, the one in place behind the other.
std::string text_of_records(const Json& records, const std::string& origin) {
  std::string text;
  std::string run;
  std::string half_row;
  for (const Json& each : records) {
    if (each.is_null()) {  // a line of CSV that is cut short
      text += "0 0 half\n";
      continue;
    }
    if (!each.contains("algBw") || !each.contains("inPlace"))
      fail("{}: a record has no 'algBw' and 'inPlace', which rccl-tests writes with -Z", origin);
    const std::string its_run =
        fmt::format("# {}_perf starting\n# nThread {} nGpus {}\n", text_in(each, "name"),
                    text_in(each, "ranks"), text_in(each, "gpusPerRank", "1"));
    if (its_run != run) text += its_run;
    const std::string start = its_run + row_start(each);
    const std::string times = measures(each, {"time", "algBw", "busBw", "wrong"});
    const bool is_in_place = whole_in(each, "inPlace") > 0;
    if (is_in_place && start == half_row) {
      text.erase(text.size() - kNoMeasures.size() - 1);
      text += times + '\n';
    } else {
      text += fmt::format("{}{}{}\n", row_start(each), is_in_place ? kNoMeasures : times,
                          is_in_place ? times : kNoMeasures);
    }
    half_row = is_in_place ? "" : start;
    run = its_run;
  }
  return text;
}

/// The same as comma-separated values, names in the first line.
Json records_of_csv(const std::string& text) {
  Json records = Json::array();
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    const std::vector<std::string> cells = cut_csv_line(line);
    if (names.empty()) {
      names = cells;
    } else if (!line.empty()) {
      records.emplace_back();
      for (std::size_t i = 0; cells.size() == names.size() && i < cells.size(); ++i)
        records.back()[names[i]] = cells[i];
    }
  }
  return records;
}

/// An object, or a list of some: not the prefix [1,0] of a launcher.
bool is_json(std::string_view text) {
  const std::string_view start =
      text.substr(std::min(text.find_first_not_of(" \t\r\n["), text.size()));
  return start.starts_with('{');
}

bool is_rccl_csv(std::string_view text) {
  const std::string_view names = text.substr(0, text.find('\n'));
  return !is_json(text) && names.find("algBw,") != std::string_view::npos;
}

std::string text_of(const std::string& text, const std::string& origin) {
  if (is_rccl_csv(text)) return text_of_records(records_of_csv(text), origin);
  const Json json = parse_json(text);
  if (json.is_discarded()) fail("{}: the JSON is not whole: was the run stopped?", origin);
  return json.is_array() ? text_of_records(json, origin) : text_of_report(json, origin);
}

}  // namespace

std::string in_words(const LeftOut& left_out) {
  std::vector<std::string> words;
  for (const auto& [reason, rows] : left_out) words.push_back(fmt::format("{} {}", rows, reason));
  return fmt::format("{}", fmt::join(words, "; "));
}

bool is_nccl_log(std::string_view text) {
  if (is_json(text) || is_rccl_csv(text)) return true;
  const LogHints none;
  const std::string nowhere;
  LogReader reader(nowhere, none, "line");
  try {
    reader.read(std::string(text));
  } catch (const InvalidInput&) {
    return true;  // a log of what cannot be read
  }
  return reader.is_log();
}

NcclLog parse_nccl_log(std::string_view text, const std::string& origin, const LogHints& hints) {
  const bool is_text = !is_json(text) && !is_rccl_csv(text);
  LogReader reader(origin, hints, is_text ? "line" : "row");
  reader.read(is_text ? std::string(text) : text_of(std::string(text), origin));
  return reader.settled();
}

}  // namespace arlab
