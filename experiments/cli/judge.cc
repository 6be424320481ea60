// arlab judge: any all-reduce of another process, in any language, checked against the reference.
//
// The other process reads calls from one pipe and writes answers to another. A call is a line
//
//   {"schema": "arlab.judge.call/1", "dtype": "bf16", "ranks": 4, "elements": 2049,
//    "region_bytes": 8960, "input_at": 256, "output_at": 4608}
//
// and then, rank after rank, the bytes of every rank's region (kernels/conformance/
// all_reduce_check.h): the input tensor begins `input_at` bytes from its start, the output belongs
// at `output_at`, and nothing else may change. The answer is the line "done" and then all regions
// with the outputs in them, or a line "error WHY", which ends the check.

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <memory>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "kernels/conformance/all_reduce_check.h"
#include "reference/tensors/file.h"

namespace arlab::cli {
namespace {

using kernels::AllReduceCall;
using kernels::Result;
using kernels::Status;

class Pipe {
 public:
  Pipe(const std::string& path, const char* mode, const char* option)
      : path_(path), file_(std::fopen(path.c_str(), mode)) {
    if (file_ == nullptr) fail("{}: {} cannot be opened", option, quote(path));
  }

  Status write(std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return {};
    return closed();
  }
  Status flush() {
    if (std::fflush(file_.get()) == 0) return {};
    return closed();
  }
  Status read(std::span<std::byte> bytes) {
    if (std::fread(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return {};
    return closed();
  }
  Result<std::string> read_line() {
    constexpr std::size_t kMost = 4096;
    std::string line;
    for (int c = std::fgetc(file_.get()); c != '\n'; c = std::fgetc(file_.get())) {
      if (c == EOF) return closed();
      if (line.size() == kMost) return Status::error("an answer's first line is too long");
      line += static_cast<char>(c);
    }
    return line;
  }

 private:
  Status closed() const {
    return Status::error(fmt::format("the other process has closed {}", quote(path_)));
  }

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
};

/// One call, over the pipes.
Status call_over(Pipe& calls, Pipe& answers, const AllReduceCall& call) {
  const nlohmann::ordered_json header = {{"schema", "arlab.judge.call/1"},
                                         {"dtype", name_of(call.dtype)},
                                         {"ranks", call.regions.size()},
                                         {"elements", call.elements},
                                         {"region_bytes", call.regions[0].size()},
                                         {"input_at", call.input_at},
                                         {"output_at", call.output_at}};
  const std::string line = json_line(header) + "\n";
  Status status = calls.write(std::as_bytes(std::span(line)));
  for (const auto region : call.regions) {
    if (status.ok()) status = calls.write(region);
  }
  if (status.ok()) status = calls.flush();
  if (!status.ok()) return status;

  const auto answer = answers.read_line();
  if (!answer.ok()) return answer.status();
  if (answer.value().starts_with("error ")) return Status::error(answer.value().substr(6));
  if (answer.value() != "done") {
    return Status::error(fmt::format("an answer begins with {}: allowed are done and error WHY",
                                     quote(answer.value())));
  }
  for (const auto region : call.regions) {
    status = answers.read(region);
    if (!status.ok()) return status;
  }
  return {};
}

struct JudgeCommand {
  std::string calls;
  std::string answers;
  std::optional<std::uint32_t> ranks;
  std::string dtype;
  std::vector<std::string> lengths;
  std::optional<std::uint32_t> runs;
  std::optional<std::uint32_t> seed;
  bool in_place = false;
  std::string codec;
  std::string claim;
  Format format = Format::table;

  kernels::AllReduceCheckRequest request() const {
    kernels::AllReduceCheckRequest request{.ranks = static_cast<int>(*ranks),
                                           .dtype = parse_dtype(dtype),
                                           .runs = static_cast<int>(runs.value_or(3)),
                                           .in_place = in_place,
                                           .seed = seed.value_or(1),
                                           .codec = codec,
                                           .claim = claim};
    for (const std::string& length : lengths) {
      request.lengths.push_back(parse_count(length, "--lengths"));
    }
    return request;
  }

  /// Of every length the inputs and outputs of three kinds, and one call's regions, with a copy.
  static void require_memory_of(const kernels::AllReduceCheckRequest& asked) {
    if (asked.lengths.empty()) return;
    const std::uint64_t longest = *std::max_element(asked.lengths.begin(), asked.lengths.end());
    const double bytes = 12.0 * asked.ranks * static_cast<double>(size_of(asked.dtype));
    require_memory_for(
        longest, "--lengths", 0, bytes,
        fmt::format("judge of {} ranks with {} elements each", asked.ranks, longest));
  }

  void run() const {
    const kernels::AllReduceCheckRequest asked = request();
    kernels::list_candidates(asked);  // refuses what is wrong before pipes are opened, which waits
    require_memory_of(asked);
    std::signal(SIGPIPE, SIG_IGN);
    Pipe to(calls, "wb", "--calls");
    Pipe from(answers, "rb", "--answers");
    const auto report = kernels::check_all_reduce(
        [&](const AllReduceCall& call) { return call_over(to, from, call); }, asked);
    if (!report.ok()) fail("{}", report.status().message());
    print_report(report.value());
    const auto& findings = report.value().findings;
    if (!findings.empty()) throw CheckFailed("the all-reduce is wrong: " + findings.front());
  }

  void print_report(const kernels::AllReduceCheckReport& report) const {
    if (format == Format::json) return write_stdout(json_line(to_json(report)) + "\n");
    if (format == Format::table) return write_stdout(to_text(report));
    Table rows{{"candidate", "mismatches", "first_mismatch"}, {}};
    for (const auto& c : report.candidates) {
      rows.rows.push_back({c.name, c.mismatches, c.first_mismatch});
    }
    write_stdout(render_csv(rows));
  }
};

}  // namespace

void add_judge(CLI::App& app) {
  auto command = std::make_shared<JudgeCommand>();
  CLI::App* sub = app.add_subcommand(
      "judge", "Check an all-reduce of another process: exact, deterministic, how far off?");
  sub->add_option("--calls", command->calls, "Pipe that the other process reads calls from")
      ->required();
  sub->add_option("--answers", command->answers, "Pipe that it writes answers to")->required();
  add_integer(*sub, "--ranks", command->ranks, 2, 64, "World size")->required();
  sub->add_option("--dtype", command->dtype, "fp16, bf16 or fp32")->required();
  sub->add_option("--lengths", command->lengths,
                  "Elements per rank, separated by commas [1 to 65541]")
      ->delimiter(',');
  add_integer(*sub, "--runs", command->runs, 2, 100, "Runs of every case [3]");
  add_integer(*sub, "--seed", command->seed, 0, UINT32_MAX, "Seed of the inputs [1]");
  sub->add_flag("--in-place", command->in_place, "Outputs take the place of inputs");
  sub->add_option("--codec", command->codec, "Compare with algorithms that use this codec, too");
  sub->add_option("--claim", command->claim,
                  "What it says it is, for example two_shot/qr-q4/native: must have every bit");
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
