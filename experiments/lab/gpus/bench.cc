// How long do collectives take on GPUs, by size, beside the vendor's library?

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <set>

#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/bits/tailed.h"
#include "experiments/lab/files.h"
#include "experiments/lab/gpus/conform.h"
#include "experiments/lab/gpus/nccl_tests.h"
#include "experiments/lab/points.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/sizes.h"
#include "kernels/runtime/platforms.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"
#include "reference/tensors/synthetic.h"

namespace arlab::lab {
namespace {

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double rest = at - std::floor(at);
  return values[below] + rest * (values[above] - values[below]);
}

/// One measurement.
struct Timing {
  std::string library;
  std::string algorithm;
  std::string codec;
  std::uint64_t bytes = 0;  // payload per rank
  kernels::CallTimes times;

  double median() const { return percentile(times.device, 0.5); }
};

/// The timed groups, and their calls.
struct Team {
  const kernels::Platform& on;
  int world_size = 0;
  DType type = DType::fp16;
  std::vector<std::string> codecs;
  std::vector<std::uint64_t> sizes;
  std::unique_ptr<kernels::Group> group = nullptr;
  std::unique_ptr<kernels::Group> vendor = nullptr;  ///< its library, if that is timed, too
};

struct BenchRequest {
  std::string platform;
  std::string kernel_folder;
  std::vector<std::string> algorithms = {"one_shot", "two_shot"};
  std::vector<std::string> codecs;
  std::string dtype = "bf16";
  std::string protocol;
  std::string between;
  bool cold = false;
  Sizes sizes;
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint32_t> calls;
  std::optional<std::uint32_t> replays;
  std::optional<std::uint32_t> blocks;
  std::optional<std::uint32_t> sms;
  std::string slot_bytes;
  bool vendor = false;
  std::string machine;
  std::string out;
  bool explain = false;
  bool check = false;
  bool processes = false;
  std::shared_ptr<kernels::Bootstrap> team_ = nullptr;
  std::string inner_codec;
  SumOptions sums;
  std::string tail;
  std::string tail_place;
  bool separate_tail = false;

  Result answer(Format format) const;

 private:
  /// Few calls in a graph where one takes long, so that a measurement takes well under a second.
  kernels::TimingRequest timing_request(std::uint64_t payload_bytes) const {
    kernels::TimingRequest request;
    const std::uint64_t fitting =
        (std::uint64_t{256} << 20) / std::max<std::uint64_t>(payload_bytes, 1);
    request.calls = static_cast<int>(
        calls.value_or(static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fitting, 5, 50))));
    request.replays = static_cast<int>(replays.value_or(20));
    request.gemm = between == "gemm";
    request.cold = cold;
    return request;
  }

  kernels::CollectiveRequest collective(const std::string& algorithm, const std::string& codec,
                                        DType type, std::uint64_t payload_bytes) const {
    kernels::CollectiveRequest request{algorithm, codec, type, payload_bytes / size_of(type)};
    if (!inner_codec.empty()) request.options.set("inner_codec", inner_codec);
    request.sum = sums.parse();
    if (!request.sum.own.empty()) request.options.set("own", request.sum.own);
    if (!tail.empty()) {
      request.tail = *TailPlaceOptions{tail, "", ""}.parse();
      request.tail_at_owners = tail_place == "owner";
      kernels::require_tail(request, find_algorithm(algorithm).collective);
    }
    return request;
  }

  Timing time(kernels::Group& group, const std::string& algorithm, const std::string& codec,
              DType type, std::uint64_t payload_bytes, std::span<const std::byte> pattern,
              bool in_place = false) const {
    const kernels::GroupCall call{collective(algorithm, codec, type, payload_bytes), in_place};
    auto times = group.time(call, pattern, timing_request(payload_bytes));
    if (!times.ok()) {
      fail("platform {}: {} {} of {} bytes: {}", platform, algorithm, codec, payload_bytes,
           times.status().message());
    }
    return {group.name(), algorithm, codec, payload_bytes, std::move(times.value())};
  }

  /// Throws InvalidInput when --inner-codec cannot be had with the other options.
  void require_inner_codec(const kernels::Platform& on, DType type) const {
    const AlgorithmOptions options = {{"inner_codec", inner_codec}};
    const std::string name = find_inner_codec(options, nullptr)->name();
    if (!on.has_codec(name)) fail("--inner-codec: codec {} has no kernels", name);
    if (!find_codec(name)->takes(type)) fail("codec {} does not take {}", name, dtype);
    for (const std::string& algorithm : algorithms) {
      const bool has_it =
          options.inner_place() || find_algorithm(algorithm).option("inner_codec") != nullptr;
      if (!has_it) fail("--inner-codec: algorithm {} has no option inner-codec", algorithm);
    }
    if (vendor) fail("--inner-codec: --vendor has no codecs; leave one of them out");
    if (!out.empty()) fail("--inner-codec: a file of times has one codec per row; leave out --out");
  }

  /// Compiles what all calls take, where that is done on demand.
  void prepare(const Team& team) const {
    std::vector<kernels::CollectiveRequest> calls;
    for (const auto& [size, algorithm, codec] : points_of(team.sizes, algorithms, team.codecs)) {
      calls.push_back(collective(algorithm, codec, team.type, size));
    }
    const kernels::Status status = team.group->prepare(calls, compile_progress());
    if (!status.ok()) fail("platform {}: {}", platform, status.message());
  }

  /// The options checked, ranks and devices found.
  Team team(Format format) const;

  Result times(const Team& team) const;
  std::string file_of(const std::vector<Timing>& timings, const Team& team) const;

  /// Returns bench's measurements in nccl-tests' form.
  NcclReport as_nccl(const Team& team) const;

  /// Returns the kernel that each call would take, and the measurement that says so.
  Result choices(const Team& team) const;
};

/// A MiB of values as a network has them.
std::vector<std::byte> make_pattern(DType dtype) {
  const Tensor tensor =
      make_synthetic("gaussian", dtype, 1, (std::size_t{1} << 20) / size_of(dtype));
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

Result BenchRequest::answer(Format format) const {
  if (processes && team_ == nullptr) {
    if (vendor) fail("--vendor: it times ranks of one process; leave out --processes");
    BenchRequest of_this_process = *this;
    of_this_process.team_ = team_of_processes();
    if (of_this_process.team_->rank() != 0) of_this_process.out.clear();
    return of_rank_0(*of_this_process.team_, of_this_process.answer(format));
  }
  if (explain && format > Format::csv) fail("--explain: allowed is --format table, json or csv");
  const Team team = this->team(format);
  if (explain) return choices(team);
  prepare(team);
  return format > Format::csv ? as_nccl(team).answer(format) : times(team);
}

Team BenchRequest::team(Format format) const {
  const kernels::Platform& on = platform_of(platform, kernel_folder);
  const int world_size = team_ != nullptr ? team_->ranks()
                         : ranks          ? static_cast<int>(*ranks)
                                          : std::min(on.devices().value(), 8);
  if (world_size < 2) fail("--ranks: {} device; a collective needs 2 ranks or more", world_size);
  const DType type = parse_dtype(dtype);
  std::vector<std::string> chosen = codecs;
  if (chosen.empty())
    chosen = {dtype, "qr-fp8", "qr-q8", "qr-q6", "qr-q4", "int5-g128", "int2-g32-sr"};
  for (std::string& codec : chosen) {
    const CodecPtr found = find_codec(codec);
    if (!on.has_codec(found->name())) fail("codec {} has no kernels", codec);
    if (!found->takes(type)) fail("codec {} does not take {}", codec, dtype);
    codec = found->name();
  }
  for (const std::string& algorithm : algorithms) (void)find_algorithm(algorithm);
  if (!inner_codec.empty()) require_inner_codec(on, type);
  Sizes named = sizes;
  if (!named.given()) named.bytes = {"32K", "128K", "512K", "1M", "4M", "16M", "64M", "256M"};
  const std::vector<std::uint64_t> all_sizes = named.list(size_of(type));
  if (check && format <= Format::csv)
    fail("--check is for --format nccl and nccl-json; others: arlab conform");
  if (!out.empty()) require_output_file(out);
  if (one_line(machine) != machine) {
    fail("--machine {}: allowed is a name of one line", quote(machine));
  }

  if (!between.empty() && between != "gemm") {
    fail("--between {}: allowed is gemm", quote(between));
  }
  if (!out.empty() && (!between.empty() || cold)) {
    fail(
        "--out: files of times hold calls one after the other only; leave out --between and "
        "--cold, or take --format csv");
  }

  const Sum sum = sums.parse();
  if (!out.empty() && sum != Sum{}) {
    fail("--out: files of times hold native sums only; leave out --{}, or take --format csv",
         sums.option_text());
  }

  if (separate_tail && tail.empty()) fail("--separate-tail: allowed only with --tail");
  if (!tail.empty() && (vendor || check || !out.empty())) {
    fail(
        "--tail: times with tails are not written to files, nor compared with a vendor's; leave "
        "out --out, --check and --vendor");
  }

  kernels::CommunicatorOptions options;
  options.fuses_tails = !separate_tail;
  options.blocks = static_cast<int>(blocks.value_or(0));
  options.multiprocessors = static_cast<int>(sms.value_or(0));
  options.protocol = parse_protocol(protocol);
  if (!slot_bytes.empty()) options.slot_bytes = parse_count(slot_bytes, "--slot-bytes");
  const std::size_t bytes = on.team_bytes(on.devices_of_group(world_size), options);
  if (bytes != 0) {  // devices are emulated: their inputs and outputs are memory of this machine
    const std::uint64_t largest = all_sizes.back();
    require_memory_for(largest, "--bytes", static_cast<double>(bytes), 2.0 * world_size,
                       fmt::format("bench of {} ranks with {} bytes each", world_size, largest));
  }
  Team team{on, world_size, type, std::move(chosen), all_sizes};
  const auto made = [&](kernels::Result<std::unique_ptr<kernels::Group>> group) {
    if (!group.ok()) fail("platform {}: {}", platform, group.status().message());
    return std::move(group.value());
  };
  team.group = made(on.make_group(world_size, options, team_));
  if (vendor) team.vendor = made(on.make_vendor_group(world_size));
  return team;
}

Result BenchRequest::times(const Team& team) const {
  const std::vector<std::byte> pattern = make_pattern(team.type);
  std::vector<Timing> timings;
  Result report{"arlab.bench/1"};
  report.figures = {{"platform", platform},
                    {"device", team.on.device_name().value()},
                    {"ranks", team.world_size},
                    {"dtype", dtype, platform == "host" ? "emulated time: not a measurement" : ""}};
  if (const auto compiler = team.on.compiler(); compiler.ok() && !compiler.value().empty()) {
    report.figures.push_back({"compiler", compiler.value()});
  }
  if (!inner_codec.empty()) report.figures.push_back({"inner_codec", inner_codec});
  if (const Sum sum = sums.parse(); sum != Sum{}) report.figures.push_back({"sum", name_of(sum)});
  if (!tail.empty()) {
    report.figures.push_back(
        {"tail", name_of(parse_tail(tail)), separate_tail ? "in a kernel of its own" : ""});
  }
  if (!between.empty()) report.figures.push_back({"between", between});
  if (cold) report.figures.push_back({"cold", true});
  report.rows_name = "times";
  report.rows.columns = {"bytes",   "library",    "algorithm", "codec",
                         "time_us", "fastest_us", "host_us",   "algbw_gb_per_s"};
  if (vendor) report.rows.columns.push_back("speedup");
  for (const std::uint64_t size : team.sizes) {
    std::optional<double> vendor_us;
    const auto add = [&](kernels::Group& group, const std::string& algorithm,
                         const std::string& codec) {
      Timing timing = time(group, algorithm, codec, team.type, size, pattern);
      const double us = timing.median();
      if (&group == team.vendor.get()) vendor_us = us;
      std::vector<Cell> row = {size,
                               timing.library,
                               timing.algorithm,
                               timing.codec,
                               us,
                               percentile(timing.times.device, 0),
                               percentile(timing.times.host, 0.5),
                               static_cast<double>(size) * 1e-3 / us};
      if (vendor) row.push_back(*vendor_us / us);
      report.rows.rows.push_back(std::move(row));
      timings.push_back(std::move(timing));
    };
    if (team.vendor) add(*team.vendor, "all_reduce", dtype);
    for (const auto& [algorithm, codec] : points_of(algorithms, team.codecs)) {
      add(*team.group, algorithm, codec);
    }
  }
  // Behind the table: times that have been taken are not lost because of a file.
  if (!out.empty()) {
    report.at_last = [path = out, text = file_of(timings, team)] { write_file(path, text); };
  }
  return report;
}

Result BenchRequest::choices(const Team& team) const {
  Result report{"arlab.bench.choices/1"};
  report.figures = {{"platform", platform}, {"dtype", dtype}};
  if (!inner_codec.empty()) report.figures.push_back({"inner_codec", inner_codec});
  report.rows_name = "choices";
  report.rows.columns = {"bytes", "algorithm", "codec", "kernel"};
  for (const auto& [size, algorithm, codec] : points_of(team.sizes, algorithms, team.codecs)) {
    const auto why = team.group->explain(collective(algorithm, codec, team.type, size));
    if (!why.ok()) fail("{} {} of {} bytes: {}", algorithm, codec, size, why.status().message());
    report.rows.rows.push_back({size, algorithm, codec, why.value()});
  }
  return report;
}

/// Elements of all ranks whose bits are not those of the reference.
std::uint64_t wrong_elements(kernels::Group& group, const kernels::GroupCall& call,
                             int world_size) {
  const kernels::CollectiveRequest& collective = call.collective;
  const auto ranks = static_cast<Rank>(world_size);
  const Tensor inputs = make_synthetic("gaussian", collective.dtype, ranks, collective.elements);
  Tensor outputs = make_tensor(collective.dtype, inputs.shape);
  const kernels::Status status = group.run(call, inputs.bytes(), outputs.bytes());
  if (!status.ok()) fail("{} {}: {}", collective.algorithm, collective.codec, status.message());
  const ResolvedCollective resolved = resolve(collective, ranks);
  Tensor expected = make_tensor(collective.dtype, inputs.shape);
  execute(resolved.schedule, resolved.codecs(), collective.dtype, inputs.bytes(), expected.bytes(),
          {.sum = collective.sum});
  std::uint64_t wrong = 0;
  const std::size_t size = size_of(collective.dtype);
  for (std::size_t at = 0; at < expected.bytes().size(); at += size) {
    wrong += std::memcmp(&expected.bytes()[at], &outputs.bytes()[at], size) != 0 ? 1 : 0;
  }
  return wrong;
}

NcclReport BenchRequest::as_nccl(const Team& team) const {
  const std::vector<std::byte> pattern = make_pattern(team.type);
  NcclReport report;
  report.ranks = static_cast<Rank>(team.world_size);
  report.dtype = team.type;
  report.graph_launches = timing_request(1).replays;
  report.checked = check;
  report.device = team.on.device_name().value();
  report.provenance = platform == "host" ? "emulated time, not a measurement"
                                         : fmt::format("measured, calls in a graph; {:%F}",
                                                       fmt::gmtime(std::time(nullptr)));
  const auto add = [&](kernels::Group& group, const std::string& algorithm,
                       const std::string& codec, const std::string& experiment) {
    const bool ours = &group == team.group.get();
    NcclRun run{
        experiment, ours ? find_algorithm(algorithm).collective : Collective::all_reduce, {}};
    for (const std::uint64_t size : team.sizes) {
      const auto timed = [&](bool in_place) {
        NcclTime result{time(group, algorithm, codec, team.type, size, pattern, in_place).median()};
        if (check && ours) {
          const auto call = collective(algorithm, codec, team.type, size);
          result.wrong = wrong_elements(group, {call, in_place}, team.world_size);
        }
        return result;
      };
      NcclLine line{size, timing_request(size).calls, timed(false)};
      try {
        line.in_place = timed(true);
      } catch (const InvalidInput& error) {  // a schedule may need an output of its own
        write_progress(fmt::format("not in place: {}\n", error.what()));
      }
      run.lines.push_back(line);
    }
    report.runs.push_back(std::move(run));
  };
  if (team.vendor) add(*team.vendor, "all_reduce", dtype, team.vendor->name());
  for (const auto& [algorithm, codec] : points_of(algorithms, team.codecs)) {
    add(*team.group, algorithm, codec, fmt::format("{} {}", algorithm, codec));
  }
  return report;
}

std::string BenchRequest::file_of(const std::vector<Timing>& timings, const Team& team) const {
  std::set<std::string> libraries;
  for (const Timing& t : timings) libraries.insert(t.library);
  std::string text = fmt::format("# device: {}\n# date: {:%F}\n# command: {}\n",
                                 one_line(team.on.device_name().value()),
                                 fmt::gmtime(std::time(nullptr)), command_line());
  for (const std::string& library : libraries) text += "# library: " + one_line(library) + "\n";
  Table table;
  table.columns = {"platform", "machine", "ranks",   "algorithm", "codec",
                   "dtype",    "bytes",   "time_us", "library"};
  for (const Timing& t : timings) {
    table.rows.push_back({platform, machine, team.world_size, t.algorithm, t.codec, dtype, t.bytes,
                          t.median(), t.library.substr(0, t.library.find(' '))});
  }
  return text + render_csv(table);
}

std::vector<BoundField> fields(BenchRequest& c) {
  return together(
      {field("platform", &c.platform,
             "Run on cuda or rocm if built, or on host: emulated GPUs, to try the command")
           .required(),
       kernel_folder_field(c.kernel_folder),
       field("algorithm", &c.algorithms, "Time these algorithms, separated by commas",
             "one_shot, two_shot"),
       field("codec", &c.codecs, "Time these codecs, separated by commas",
             "the dtype, qr-fp8, qr-q8, qr-q6, qr-q4, int5-g128, int2-g32-sr"),
       field("inner_codec", &c.inner_codec,
             "Use this codec inside groups, for hierarchical algorithms", "--codec"),
       field("dtype", &c.dtype, "Set the element type: bf16, fp16 or fp32", "bf16")},
      fields(c.sums),
      fields(c.sizes, "Time these sizes of a rank's tensor, in bytes", "32K to 256M"),
      {field("ranks", &c.ranks, "Set the world size", "all devices").from(2, 8),
       processes_field(c.processes),
       field("calls", &c.calls, "Put N calls into a graph", "5 to 50, by size").from(1, 10000),
       field("replays", &c.replays, "Launch the graph N times and take the median time", "20")
           .from(1, 10000),
       field("blocks", &c.blocks, "Limit kernels to N blocks", "all that fit").from(1, 1024),
       field("sms", &c.sms,
             "Limit kernels to N multiprocessors, each full of blocks; a matrix product can use "
             "the others",
             "all")
           .from(1, 1024),
       field("slot_bytes", &c.slot_bytes, "Send N bytes at once from a block to a rank",
             fmt::format("{}K", kernels::CommunicatorOptions{}.slot_bytes / 1024)),
       protocol_field(c.protocol),
       field("explain", &c.explain,
             "Say which kernel each call would take, and why, instead of timing it")
           .excludes("calls replays between cold vendor machine out check"),
       field("tail", &c.tail,
             "Run a tail after all-reduces, as reduce --tail does; hidden is required: "
             "hidden=8192,residual=add,norm=rms",
             "none"),
       tail_place_field(c.tail_place),
       field("separate_tail", &c.separate_tail,
             "Run --tail in a kernel of its own, even where the collective's kernel can hold it"),
       field("between", &c.between,
             "Time what calls add to a graph with a matrix product behind each (gemm)",
             "nothing: calls one after the other"),
       field("cold", &c.cold,
             "Time what calls add to a graph that overwrites memory behind each, so that caches "
             "hold no tensor"),
       field("vendor", &c.vendor, "Time NCCL or RCCL in the same run, too"),
       field("machine", &c.machine, "Name the machine in --out, as arlab list topologies does",
             "none")
           .needs("out"),
       field("out", &c.out, "Write the times to this CSV file, too"),
       field("check", &c.check,
             "Compare every bit with the reference's, with --format nccl (#wrong)")});
}

}  // namespace

Question bench_question() {
  return question<BenchRequest>("bench",
                                "Time collectives on GPUs by size, beside the vendor's library",
                                &BenchRequest::answer, {}, {Format::nccl, Format::nccl_json});
}

}  // namespace arlab::lab
