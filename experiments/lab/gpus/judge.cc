// Is an all-reduce of another process, in any language, exact, deterministic, and how far is it off? Where does a fused tail round?
//
// What is said over pipes, or stands in files, is in kProtocol, which --help prints; regions are those
// of kernels/conformance/all_reduce_check.h.

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "experiments/lab/questions.h"
#include "experiments/lab/sizes.h"
#include "kernels/conformance/all_reduce_check.h"
#include "kernels/conformance/tail_check.h"
#include "kernels/runtime/bootstrap.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"

namespace arlab::lab {
namespace {

using kernels::AllReduceCall;
using kernels::Status;
using kernels::TailCall;

constexpr std::string_view kAnswersIn = "--answers-in";

/// An end of a named pipe, or a file. Every wait for the other process has a bound, from the last byte
/// that it took or gave.
class Stream {
 public:
  enum class End { reading, writing };

  /// Does not wait for the other process.
  Stream(std::string path, End end, std::string_view option, std::chrono::seconds most)
      : path_(std::move(path)), end_(end), most_(most) {
    struct ::stat status = {};
    const char* pipes = option == kAnswersIn ? "" : "; mkfifo makes a pipe";
    if (::stat(path_.c_str(), &status) != 0) fail_to_open(option, pipes);
    is_pipe_ = S_ISFIFO(status.st_mode);
    if (!is_pipe_ && !S_ISREG(status.st_mode)) {
      fail("{}: {} cannot be opened: it is neither a pipe nor a file{}", option, quote(path_),
           pipes);
    }
    // A pipe can be opened for writing once it has a reader.
    if (is_pipe_ && end == End::writing) return;
    open();
    if (!descriptor_.is_open()) fail_to_open(option);
  }

  Status write(std::span<const std::byte> bytes) {
    ARLAB_RETURN_IF_ERROR(wait_for_reader());
    while (!bytes.empty()) {
      ARLAB_RETURN_IF_ERROR(wait_for(POLLOUT, "read nothing from"));
      const ssize_t written = ::write(descriptor_.number(), bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR && errno != EAGAIN) {
        return closed(" cannot be written: " + std::generic_category().message(errno));
      }
      if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }

  Status read(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      if (buffer_.empty()) ARLAB_RETURN_IF_ERROR(fill());
      const std::size_t some = std::min(bytes.size(), buffer_.size());
      std::memcpy(bytes.data(), buffer_.data(), some);
      buffer_.erase(0, some);
      bytes = bytes.subspan(some);
    }
    return {};
  }

  kernels::Result<std::string> read_line() {
    constexpr std::size_t kMost = 4096;
    for (std::size_t end = buffer_.find('\n');; end = buffer_.find('\n')) {
      if (end == std::string::npos ? buffer_.size() > kMost : end > kMost) {
        return Status::error("an answer's first line is too long");
      }
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      ARLAB_RETURN_IF_ERROR(fill());
    }
  }

  /// A file has to end here; another process may keep its pipe.
  Status require_end() {
    if (is_pipe_ || (buffer_.empty() && !fill().ok())) return {};
    return Status::error(quote(path_) + " goes on behind the last answer");
  }

 private:
  void open() {
    const int mode = end_ == End::reading ? O_RDONLY : O_WRONLY | O_TRUNC;
    descriptor_ = kernels::FileDescriptor(::open(path_.c_str(), mode | O_NONBLOCK | O_CLOEXEC));
  }

  [[noreturn]] void fail_to_open(std::string_view option, const char* hint = "") const {
    fail("{}: {} cannot be opened: {}{}", option, quote(path_),
         std::generic_category().message(errno), hint);
  }

  Status wait_for_reader() {
    const auto deadline = std::chrono::steady_clock::now() + most_;
    while (!descriptor_.is_open()) {
      open();
      if (descriptor_.is_open()) break;
      if (errno != ENXIO && errno != EINTR) return closed();
      if (std::chrono::steady_clock::now() > deadline) {
        return late(fmt::format("nobody has opened {} for reading within", quote(path_)));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return {};
  }

  Status wait_for(short event, const char* what) {
    const auto deadline = std::chrono::steady_clock::now() + most_;
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (left.count() < 0) {
        return late(fmt::format("the other process has {} {} for", what, quote(path_)));
      }
      struct ::pollfd watched = {descriptor_.number(), event, 0};
      const int ready = ::poll(&watched, 1, static_cast<int>(left.count()) + 1);
      if (ready > 0) return {};
      if (ready < 0 && errno != EINTR) return closed();
    }
  }

  /// Waits for more bytes and takes what there is.
  Status fill() {
    ARLAB_RETURN_IF_ERROR(wait_for(POLLIN, "written nothing to"));
    std::array<char, 65536> part;
    const ssize_t got = ::read(descriptor_.number(), part.data(), part.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return {};
    if (got <= 0) return closed();
    buffer_.append(part.data(), static_cast<std::size_t>(got));
    return {};
  }

  Status closed(const std::string& of_a_file = " ends, and calls are left") const {
    return Status::error(is_pipe_ ? "the other process has closed " + quote(path_)
                                  : quote(path_) + of_a_file);
  }
  Status late(const std::string& what) const {
    return Status::error(fmt::format("{} {} s (--timeout)", what, most_.count()));
  }

  std::string path_;
  End end_;
  bool is_pipe_ = true;
  std::chrono::seconds most_;
  kernels::FileDescriptor descriptor_;
  std::string buffer_;  // read, and not asked for yet
};

using Regions = std::span<const std::span<std::byte>>;

Json header_of(const AllReduceCall& call) {
  return {{"schema", "arlab.judge.call/1"},
          {"dtype", name_of(call.dtype)},
          {"ranks", call.regions.size()},
          {"elements", call.elements},
          {"region_bytes", call.regions[0].size()},
          {"input_at", call.input_at},
          {"output_at", call.output_at}};
}
Json header_of(const TailCall& call) {
  return {{"schema", "arlab.judge.tail_call/1"},
          {"dtype", name_of(call.dtype)},
          {"ranks", call.regions.size()},
          {"rows", call.rows},
          {"hidden", call.hidden},
          {"eps", call.eps},
          {"region_bytes", call.regions[0].size()},
          {"input_at", call.input_at},
          {"residual_at", call.has_residual ? Json(call.residual_at) : Json()},
          {"weight_at", call.weight_at},
          {"normalized_at", call.normalized_at},
          {"residual_out_at", call.residual_out_at}};
}

std::string text_of(const Json& header, Regions regions) {
  std::string text = json_line(header) + "\n";
  for (const auto region : regions) {
    text.append(reinterpret_cast<const char*>(region.data()), region.size());
  }
  return text;
}

/// Answers to other calls would be judged as wrong ones.
Status require_same_call(Stream& calls, const std::string& call) {
  std::string written(call.size(), '\0');
  ARLAB_RETURN_IF_ERROR(calls.read(std::as_writable_bytes(std::span(written))));
  if (written == call) return {};
  return Status::error(
      "calls were written with other options: give the same as with --write-calls");
}

Status read_answer(Stream& answers, Regions regions) {
  ARLAB_ASSIGN_OR_RETURN(const std::string answer, answers.read_line());
  if (answer.starts_with("error ")) return Status::error(answer.substr(6));
  if (answer != "done") {
    return Status::error(
        fmt::format("an answer begins with {}: allowed are done and error WHY", quote(answer)));
  }
  for (const auto region : regions) ARLAB_RETURN_IF_ERROR(answers.read(region));
  return {};
}

constexpr std::uint32_t kDefaultTimeout = 60;

constexpr const char* kProtocol = R"(
Protocol
  mkfifo CALLS ANSWERS makes the pipes. The other process opens both, then answers calls until it
  reads the end of CALLS. Where it cannot run at the same time, --write-calls DIR writes all calls to
  the file DIR/calls; it writes its answers to DIR/answers, and --answers-in DIR judges these, with the
  same options besides. A call is a line of JSON
    {"schema": "arlab.judge.call/1", "dtype": "bf16", "ranks": 4, "elements": 2049,
     "region_bytes": 8960, "input_at": 256, "output_at": 4608}
  (in one line) and then, rank after rank, region_bytes bytes: the rank's region. Its input, elements
  in dtype (little-endian), begins input_at bytes from the region's start; its output belongs at
  output_at, which with --in-place is the same; nothing else may change. The answer is the line
  "done" and then all regions with the outputs in them, or a line "error WHY", which ends the check.
  With --tail a call's line is
    {"schema": "arlab.judge.tail_call/1", "dtype": "bf16", "ranks": 4, "rows": 8, "hidden": 4096,
     "eps": 1e-05, "region_bytes": 297728, "input_at": 256, "residual_at": 66048,
     "weight_at": 139776, "normalized_at": 164608, "residual_out_at": 230400}
  The weight is [hidden], the other tensors are [rows, hidden]: a row is a token. residual_at is null
  where no residual is added. normalized and residual_out (the sum with the residual) are outputs.)";

struct JudgeRequest {
  std::string calls;
  std::string answers;
  std::string write_calls;
  std::string answers_in;
  std::optional<std::uint32_t> ranks;
  std::string dtype;
  std::vector<std::string> lengths;
  std::optional<std::uint32_t> runs;
  std::optional<std::uint32_t> seed;
  std::optional<std::uint32_t> timeout;
  bool in_place = false;
  std::string codec;
  std::string claim;
  std::string tail;
  std::vector<std::string> hidden;
  std::optional<std::uint32_t> rows;
  bool only_normalized = false;

  kernels::TailCheckRequest tail_request() const {
    if (in_place || !codec.empty() || !lengths.empty()) {
      fail("--in-place, --codec and --lengths: not allowed with --tail; leave them out");
    }
    kernels::TailCheckRequest request{.ranks = static_cast<int>(*ranks),
                                      .dtype = parse_dtype(dtype),
                                      .tail = parse_tail(tail),
                                      .rows = rows.value_or(8),
                                      .runs = static_cast<int>(runs.value_or(3)),
                                      .has_residual_out = !only_normalized,
                                      .seed = seed.value_or(1),
                                      .claim = claim};
    for (const std::string& each : hidden) {
      request.hidden.push_back(parse_count(each, "--hidden"));
    }
    return request;
  }

  kernels::AllReduceCheckRequest request() const {
    if (!hidden.empty() || rows || only_normalized) {
      fail("--hidden, --rows and --only-normalized: allowed only with --tail");
    }
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

  /// Requires memory for the inputs and outputs of three kinds at every length, and one call's regions, with a copy; for all
  /// calls, where these are written.
  void require_memory_of(const kernels::AllReduceCheckRequest& asked) const {
    if (asked.lengths.empty()) return;
    const std::uint64_t longest = *std::max_element(asked.lengths.begin(), asked.lengths.end());
    const double written =
        write_calls.empty() ? 0 : 6 * asked.runs * static_cast<double>(asked.lengths.size());
    const double bytes = (12 + written) * asked.ranks * static_cast<double>(size_of(asked.dtype));
    require_memory_for(
        longest, "--lengths", 0, bytes,
        fmt::format("judge of {} ranks with {} elements each", asked.ranks, longest));
  }

  Result answer(Format format) const {
    if (!tail.empty()) return answer_of_tail(format);
    const kernels::AllReduceCheckRequest asked = request();
    kernels::list_candidates(asked);  // refuses what is wrong before pipes are opened, which waits
    require_memory_of(asked);
    require_one_way();
    if (!write_calls.empty()) return written(kernels::check_all_reduce, asked);
    return judged<AllReduceCall>(kernels::check_all_reduce, asked, format);
  }

  Result answer_of_tail(Format format) const {
    const kernels::TailCheckRequest asked = kernels::checked(tail_request());
    require_one_way();
    if (!write_calls.empty()) return written(kernels::check_tail, asked);
    return judged<TailCall>(kernels::check_tail, asked, format);
  }

 private:
  using StreamPtr = std::shared_ptr<Stream>;

  StreamPtr open(const std::string& path, Stream::End end, std::string_view option) const {
    return std::make_shared<Stream>(path, end, option,
                                    std::chrono::seconds(timeout.value_or(kDefaultTimeout)));
  }

  void require_one_way() const {
    std::signal(SIGPIPE, SIG_IGN);
    const int ways =
        (!calls.empty() || !answers.empty()) + !write_calls.empty() + !answers_in.empty();
    if (ways == 1 && calls.empty() == answers.empty()) return;
    fail("one of these is required: --calls and --answers, --write-calls, or --answers-in");
  }

  /// Checks answers to calls, by pipes or files.
  template <class Call, class Check, class Request>
  Result judged(Check check, const Request& asked, Format format) const {
    const bool known = !answers_in.empty();
    const std::string_view option = known ? kAnswersIn : "--answers";
    const StreamPtr from =
        open(known ? answers_in + "/answers" : answers, Stream::End::reading, option);
    const StreamPtr to = known ? open(answers_in + "/calls", Stream::End::reading, option)
                               : open(calls, Stream::End::writing, "--calls");
    const auto answer = [&](const Call& call) {
      const std::string text = text_of(header_of(call), call.regions);
      ARLAB_RETURN_IF_ERROR(known ? require_same_call(*to, text)
                                  : to->write(std::as_bytes(std::span(text))));
      return read_answer(*from, call.regions);
    };
    const auto report = check(answer, asked);
    // A check that has found something may end before the last answer.
    if (report.ok() && report.value().findings.empty()) {
      if (const Status end = from->require_end(); !end.ok()) fail("{}: {}", option, end.message());
    }
    return result_of(report, format);
  }

  template <class Check, class Request>
  Result written(Check check, const Request& asked) const {
    std::string all;
    std::uint64_t calls = 0;
    const auto keep = [&](const auto& call) {
      all += text_of(header_of(call), call.regions);
      ++calls;
      return Status();
    };
    const auto report = check(keep, asked);
    if (!report.ok()) fail("{}", report.status().message());
    const std::filesystem::path folder = write_calls;
    std::error_code error;
    std::filesystem::create_directories(folder, error);  // write_file() says what is wrong
    if (std::filesystem::exists(folder / "answers", error)) {
      fail("--write-calls: {} has answers to older calls; remove it",
           (folder / "answers").string());
    }
    write_file(folder / "calls", all);
    return {.schema = "arlab.judge.calls/1",
            .figures = {{"calls", calls, "in the order of answers"},
                        {"file", (folder / "calls").string()},
                        {"answers", (folder / "answers").string(), "for --answers-in"}}};
  }

  static void add_rows(const kernels::AllReduceCheckReport& report, Result& result) {
    result.rows_name = "candidates";
    result.rows.columns = {"candidate", "mismatches", "first_mismatch"};
    for (const auto& c : report.candidates) {
      result.rows.rows.push_back({c.name, c.mismatches, c.first_mismatch});
    }
  }
  static void add_rows(const kernels::TailCheckReport& report, Result& result) {
    result.rows_name = "exact_as";
    result.rows.columns = {"name", "orders_of_squares", "widest"};
    for (const auto& match : report.exact_as) {
      result.rows.rows.push_back({match.name, match.threads.size(), match.widest});
    }
  }

  template <class Report>
  static Result result_of(const kernels::Result<Report>& judged, Format format) {
    if (!judged.ok()) fail("{}", judged.status().message());
    const Report& report = judged.value();
    const Json all = to_json(report);
    Result result{all.at("schema").template get<std::string>()};
    if (format == Format::csv) add_rows(report, result);
    for (const auto& [name, value] : all.items()) {
      if (name != "schema") result.figures.push_back({name, value});
    }
    result.text = to_text(report);
    result.is_text = true;
    add_findings(result, "", report.findings,
                 std::is_same_v<Report, kernels::TailCheckReport> ? "the tail is wrong: "
                                                                  : "the all-reduce is wrong: ");
    return result;
  }
};

std::vector<BoundField> fields(JudgeRequest& c) {
  return {
      field("calls", &c.calls, "Write calls to this pipe, from which the other process reads them"),
      field("answers", &c.answers,
            "Read answers from this pipe of the other process, or from a file"),
      field("write_calls", &c.write_calls,
            "Write all calls to a file in this folder, for a process that runs later, and check "
            "nothing"),
      field("answers_in", &c.answers_in,
            "Check this folder of --write-calls, to which answers have been added"),
      field("ranks", &c.ranks, "Set the world size").from(2, 64).required(),
      field("dtype", &c.dtype, "Set the element type: fp16, bf16 or fp32").required(),
      field("lengths", &c.lengths, "Check these elements per rank, separated by commas",
            "1 to 65541"),
      field("runs", &c.runs, "Run every case N times", "3").from(2, 100),
      field("seed", &c.seed, "Seed the inputs", "1").from(0, UINT32_MAX),
      field("timeout", &c.timeout, "Give up after N seconds without a byte of the other process",
            "60")
          .from(1, 86400)
          .excludes("write_calls answers_in"),
      field("in_place", &c.in_place, "Ask for outputs in place of inputs"),
      field("codec", &c.codec, "Compare with algorithms that use this codec, too"),
      field("claim", &c.claim,
            "Check that it is what it claims: ALGORITHM/CODEC/SUM, such as two_shot/qr-q4/native, "
            "or flashinfer-fp8/block=128; for a tail its rounding, such as vllm,root=rsqrt"),
      field("tail", &c.tail,
            "Check an all-reduce with a residual and an RMSNorm behind it: "
            "residual=add,norm=rms,eps=1e-5"),
      field("hidden", &c.hidden,
            "Check rows of these lengths with --tail, in elements, separated by commas",
            "576,4096"),
      field("rows", &c.rows, "Check N rows (tokens) with --tail", "8").from(1, 256),
      field("only_normalized", &c.only_normalized,
            "Expect no sum with the residual among the outputs of --tail")};
}

}  // namespace

Question judge_question() {
  return question<JudgeRequest>(
      "judge", "Check an all-reduce of another process: exact, deterministic, how far off?",
      &JudgeRequest::answer, kProtocol);
}

}  // namespace arlab::lab
