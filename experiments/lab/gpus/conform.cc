// Do the kernels of a platform have the bits of the reference?

#include "experiments/lab/gpus/conform.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/bits/tailed.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/sizes.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/memory.h"

namespace arlab::lab {

using kernels::ConformanceRow;

void ConformanceSummary::run(const kernels::Platform& on,
                             const kernels::ConformanceRequest& request) {
  const auto status =
      kernels::run_conformance(on, request, [this](const ConformanceRow& row) { add(row); });
  if (!status.ok()) fail("platform {}: {}", on.name(), status.message());
}

void ConformanceSummary::run_layers(const kernels::Platform& on, std::uint64_t seed) {
  const std::size_t longest = on.name() == "host" ? 200 : 4096;
  kernels::Status status = on.prepare_layers(compile_progress());
  if (status.ok()) {
    status = kernels::run_layer_conformance(on, longest, seed,
                                            [this](const ConformanceRow& row) { add(row); });
  }
  if (!status.ok()) fail("platform {}: {}", on.name(), status.message());
}

void ConformanceSummary::add(const ConformanceRow& row) {
  compared_ += row.compared_elements;
  mismatches_ += row.mismatches;
  auto same = std::find_if(checks_.begin(), checks_.end(), [&](const Check& c) {
    return c.total.subject == row.subject && c.total.codec == row.codec &&
           c.total.dtype == row.dtype;
  });
  if (same == checks_.end()) {
    checks_.push_back({row, std::to_string(row.ranks)});
    return;
  }
  const std::string ranks = std::to_string(row.ranks);
  if (!(" " + same->ranks).ends_with(" " + ranks)) same->ranks += " " + ranks;
  same->total.compared_elements += row.compared_elements;
  same->total.mismatches += row.mismatches;
  std::vector<kernels::Mismatch>& shown = same->total.first_mismatches;
  shown.insert(shown.end(), row.first_mismatches.begin(), row.first_mismatches.end());
  shown.resize(std::min(shown.size(), ConformanceRow::kShownMismatches));
}

void ConformanceSummary::add_mismatches_to(Result& result, std::string_view what) const {
  Json all = Json::array();
  std::vector<std::string> lines;
  for (const Check& check : checks_) {
    std::istringstream text(mismatches_text(check.total));
    for (std::string line; std::getline(text, line);) lines.push_back(std::move(line));
    for (auto& one : mismatches_json(check.total)) all.push_back(std::move(one));
  }
  result.details.push_back({"first_mismatches", std::move(all)});
  add_findings(result, "", lines, what);
}

const kernels::Platform& platform_of(const std::string& name, const std::string& kernel_folder) {
  const auto found = kernels::find_platform(name);
  if (!found.ok()) fail("--platform: {}", found.status().message());
  if (!kernel_folder.empty()) {
    const auto added = found.value()->add_kernel_folder(kernel_folder);
    if (!added.ok()) fail("--kernel-folder: platform {}: {}", name, added.message());
  }
  const auto devices = found.value()->devices();
  if (!devices.ok()) fail("platform {}: {}", name, devices.status().message());
  return *found.value();
}

BoundField kernel_folder_field(std::string& folder) {
  return field("kernel_folder", &folder,
               "Look for compiled kernels (of arlab kernels build --out) in this folder before "
               "compiling any",
               "the folders of ARLAB_KERNEL_FOLDER")
      .needs("platform");
}

kernels::CompileProgress compile_progress() {
  return [progress = std::shared_ptr<Progress>()](std::size_t done, std::size_t all) mutable {
    constexpr std::size_t kFew = 8;  // which take seconds
    if (all <= kFew) return;
    if (progress == nullptr) progress = std::make_shared<Progress>(all, "kernels");
    progress->show(done);
    if (done == all) progress = nullptr;
  };
}

BoundField protocol_field(std::string& protocol) {
  return field("protocol", &protocol,
               "Synchronize ranks by flags or sentinels, in kernels that there are for both",
               "sentinels; on AMD GPUs once conform has passed with them there");
}

BoundField processes_field(bool& processes) {
  return field("processes", &processes,
               "Run as one of the ranks that mpirun or torchrun has started; rank 0 prints the "
               "answer")
      .excludes("ranks");
}

std::shared_ptr<kernels::Bootstrap> team_of_processes() {
  auto team = kernels::bootstrap_from_environment();
  if (!team.ok()) fail("--processes: {}", team.status().message());
  if (team.value()->ranks() < 2 || team.value()->ranks() > 8) {
    fail("--processes: {} ranks; allowed are 2 to 8", team.value()->ranks());
  }
  return std::move(team.value());
}

Result of_rank_0(const kernels::Bootstrap& team, Result answer) {
  return team.rank() == 0 ? std::move(answer) : Result{};
}

kernels::Protocol parse_protocol(const std::string& protocol) {
  if (protocol.empty()) return kernels::Protocol::automatic;
  if (protocol == "flags") return kernels::Protocol::flags;
  if (protocol == "sentinels") return kernels::Protocol::sentinels;
  fail("--protocol {}: allowed are flags and sentinels", quote(protocol));
}

namespace {

struct ConformRequest {
  std::string platform;
  std::string kernel_folder;
  std::string codec;
  std::string protocol;
  bool linear = false;
  SumOptions sums;
  CollectiveSpec schedule;
  std::optional<std::uint32_t> ranks;
  bool processes = false;
  std::string elements;
  std::string tail;
  std::string tail_place;
  std::optional<std::uint32_t> seed;
  std::shared_ptr<kernels::Bootstrap> team_ = nullptr;

  void settle() {
    codec = split_codecs(codec, schedule.options);
    const Sum sum = sums.parse();
    if (!sum.own.empty() && !schedule.is_named()) {
      fail("--{}: own is an option of an algorithm; name the --algorithm", sums.option_text());
    }
    give_own(sum, schedule);
  }

  /// All that is asked for: the codec, or all that are listed, and unusual ones on short tensors.
  std::vector<kernels::ConformanceRequest> requests(const kernels::Platform& on) const {
    const std::string inner = schedule.inner_codec();
    for (const auto& [name, value] : schedule.options) {
      if (schedule.is_named()) break;
      fail("--{} {}: name the --algorithm that has it, or a --schedule", Field{name}.option(),
           words_of(value));
    }
    if (!tail.empty()) return requests_of_tails(on);
    std::vector<std::string> listed = listed_codecs();
    std::erase_if(listed, [&](const std::string& name) { return !on.has_codec(name); });
    if (!codec.empty()) listed = {find_codec(codec)->name()};
    if (!inner.empty()) require_common_dtype(listed, *find_codec(inner));
    std::vector<kernels::ConformanceRequest> all = {request(listed, SIZE_MAX)};
    if (!schedule.schedule_file.empty()) return all;
    if (codec.empty()) all.push_back(request(kernels::unusual_codecs(), 20003));
    kernels::ConformanceRequest large = large_request(listed);
    if (platform != "host" && elements.empty() && !large.algorithms.empty()) {
      all.push_back(std::move(large));
    }
    return all;
  }

  /// All-reduces with one tail, or with those that differ, by codecs that kernels have it with in every way.
  std::vector<kernels::ConformanceRequest> requests_of_tails(const kernels::Platform& on) const {
    const auto make = [&](std::vector<std::string> codecs, std::vector<Tail> tails) {
      kernels::ConformanceRequest made = request(codecs, 20003);
      if (!codec.empty()) made.codecs = {find_codec(codec)->name()};
      made.tails = std::move(tails);
      made.tails_at_owners = tail_place == "owner";
      if (schedule.algorithm.empty()) made.algorithms = {"one_shot", "two_shot"};
      if (made.tails_at_owners && schedule.algorithm.empty()) made.algorithms = {"two_shot"};
      if (!ranks && team_ == nullptr) made.ranks = {2, 3, 8};
      if (elements.empty()) made.lengths = {1, 20003};
      return made;
    };
    const std::vector<std::string> with_bits = {"fp16", "bf16", "fp32", "qr-q4"};
    if (tail != "all") {
      return {make(with_bits, {*TailPlaceOptions{tail, "", ""}.parse()})};
    }
    std::vector<std::string> outputs = listed_codecs();
    std::erase_if(outputs, [&](const std::string& name) { return !on.has_codec(name); });
    std::vector<std::string> plain = {"fp16", "bf16", "fp32"};
    if (tail_place == "owner") plain.pop_back();  // no kernels measure fp32 rows there
    return {make(with_bits, kernels::tails_of_roundings()),
            make(plain, kernels::tails_of_outputs(outputs))};
  }

  /// Returns what --tail all leaves out: named roundings that kernels do not have, and outputs of which nothing was compared.
  static std::string left_out(const std::vector<kernels::ConformanceRequest>& all,
                              const ConformanceSummary& summary) {
    std::vector<std::string> names;
    for (const NamedRounding& each : named_roundings()) {
      if (each.rounding.keeps_sum) names.push_back("rounding=" + each.name);
    }
    for (const kernels::ConformanceRequest& request : all) {
      for (const Tail& each : request.tails) {
        const auto is_of_it = [&](const ConformanceSummary::Check& check) {
          return check.total.codec.ends_with(", tail " + name_of(each));
        };
        if (std::ranges::none_of(summary.checks(), is_of_it)) names.push_back(name_of(each));
      }
    }
    return fmt::format("{}", fmt::join(names, "; "));
  }

  static void require_common_dtype(const std::vector<std::string>& codecs, const Codec& inner) {
    const auto takes_one = [&](const std::string& name) {
      const CodecPtr codec = find_codec(name);
      return std::any_of(codec->info().dtypes.begin(), codec->info().dtypes.end(),
                         [&](DType dtype) { return inner.takes(dtype); });
    };
    if (std::any_of(codecs.begin(), codecs.end(), takes_one)) return;
    fail("--inner-codec {} takes no dtype that --codec {} takes", inner.name(), codecs.front());
  }

  /// So few blocks that these tensors are large for them: kernels with sentinel slots use each many times.
  kernels::ConformanceRequest large_request(const std::vector<std::string>& codecs) const {
    constexpr std::size_t kTile = 2048;
    kernels::ConformanceRequest large = request(codecs, SIZE_MAX);
    std::erase_if(large.algorithms,
                  [](const std::string& name) { return name != "one_shot" && name != "two_shot"; });
    large.lengths = {773 * kTile, 776 * kTile};
    large.group.blocks = 4;
    return large;
  }

  kernels::ConformanceRequest request(const std::vector<std::string>& codecs,
                                      std::size_t longest) const {
    kernels::ConformanceRequest request{
        .codecs = codecs, .sum = sums.parse(), .seed = seed.value_or(1)};
    request.compiles = compile_progress();
    request.group.protocol = parse_protocol(protocol);
    request.ranks = {2, 3, 4, 5, 6, 7, 8};
    if (ranks) request.ranks = {static_cast<int>(*ranks)};
    if (team_ != nullptr) request.ranks = {team_->ranks()};
    request.processes = team_;
    if (!schedule.schedule_file.empty()) {
      const std::uint64_t length = elements.empty() ? 0 : parse_count(elements, "--elements");
      request.schedule =
          std::make_shared<const Schedule>(schedule.make(ranks.value_or(0), length, 1));
      request.ranks = {static_cast<int>(request.schedule->world_size)};
      request.options.set("inner_codec", schedule.options.get("inner_codec"));
      return request;  // its length is the only one
    } else if (!schedule.algorithm.empty()) {
      request.algorithms = {find_algorithm(schedule.algorithm).name};
      for (const int world_size : request.ranks) {
        request.options = schedule.request(static_cast<Rank>(world_size), 1, 1).options;
      }
    } else {
      for (const Algorithm& known : all_algorithms()) {
        if (adds(known.collective) || request.sum == Sum{})
          request.algorithms.push_back(known.name);
      }
    }
    const std::size_t otherwise = platform == "host" ? 5003 : (std::size_t{1} << 20) + 1;
    request.lengths = kernels::lengths_up_to(
        std::min(longest, elements.empty() ? otherwise : parse_count(elements, "--elements")));
    return request;
  }

  /// Inputs, what is expected and what comes back, and on emulated devices what they read and write.
  static void require_memory_of(const kernels::Platform& on,
                                const kernels::ConformanceRequest& request) {
    const int world_size = *std::max_element(request.ranks.begin(), request.ranks.end());
    const std::size_t team = on.team_bytes(on.devices_of_group(world_size), request.group);
    const int copies = team != 0 ? 5 : 3;
    std::size_t element = 0;
    for (const std::string& name : request.codecs) {
      const CodecPtr of_name = find_codec(name);
      for (const DType dtype : of_name->info().dtypes) {
        element = std::max(element, size_of(dtype));
      }
    }
    const std::size_t longest =
        request.schedule ? request.schedule->elements
                         : *std::max_element(request.lengths.begin(), request.lengths.end());
    require_memory_for(
        longest, "--elements", static_cast<double>(team),
        static_cast<double>(copies * world_size) * static_cast<double>(element),
        fmt::format("conform of {} ranks with {} elements each", world_size, longest));
  }

  /// Where that is asked for: that sentinels have passed, or that they have not. The file, if it says
  /// so of all that was run.
  std::string record(const kernels::Platform& on, bool passed) const {
    const auto file = on.record();
    const bool is_about_all = codec.empty() && tail.empty() && sums.parse() == Sum{} &&
                              schedule.schedule_file.empty() &&
                              (elements.empty() || platform == "host");
    if (linear || !file || parse_protocol(protocol) != kernels::Protocol::sentinels) return "";
    if (passed && !is_about_all) return "";
    std::set<std::string> algorithms;
    std::set<int> counts;
    for (const kernels::ConformanceRequest& request : requests(on)) {
      algorithms.insert(request.algorithms.begin(), request.algorithms.end());
      counts.insert(request.ranks.begin(), request.ranks.end());
    }
    std::erase_if(algorithms,
                  [](const std::string& name) { return name != "one_shot" && name != "two_shot"; });
    if (algorithms.empty()) return "";
    const kernels::Status status = file->set(algorithms, counts, passed);
    if (!status.ok()) fail("the record of what has passed: {}", status.message());
    return passed ? file->file().value().string() : "";
  }

  Result answer() const {
    if (processes && team_ == nullptr) {
      ConformRequest of_this_process = *this;
      of_this_process.team_ = team_of_processes();
      return of_rank_0(*of_this_process.team_, of_this_process.answer());
    }
    const kernels::Platform& on = platform_of(platform, kernel_folder);
    ConformanceSummary summary;
    std::vector<kernels::ConformanceRequest> all;
    if (!linear) {
      all = requests(on);
      for (const kernels::ConformanceRequest& request : all) require_memory_of(on, request);
      try {
        for (const kernels::ConformanceRequest& request : all) summary.run(on, request);
      } catch (...) {
        (void)record(on, false);
        throw;
      }
    }
    if (codec.empty() && schedule.algorithm.empty() && schedule.schedule_file.empty() &&
        tail.empty()) {
      summary.run_layers(on, seed.value_or(1));
    }
    const std::string recorded = record(on, summary.mismatches() == 0);

    Result report{"arlab.conform/1"};
    report.figures = {
        {"platform", platform},
        {"devices", on.devices().value()},
        {"compared_elements", summary.compared(), "over all rows"},
        {"mismatches", summary.mismatches(), "elements or wire bytes whose bits differ"}};
    if (sums.parse() != Sum{}) report.figures.push_back({"sum", name_of(sums.parse())});
    if (tail == "all") {
      report.figures.push_back(
          {"left_out", left_out(all, summary),
           "kernels round sums (sum=native); outputs take no dtype of the codecs"});
    }
    if (!recorded.empty()) {
      report.figures.push_back(
          {"sentinels_recorded_in", recorded, "calls on this machine take them from now on"});
    }
    report.rows_name = "checks";
    report.rows.columns = {"subject", "codec", "dtype", "ranks", "compared_elements", "mismatches"};
    for (const ConformanceSummary::Check& check : summary.checks()) {
      const ConformanceRow& row = check.total;
      report.rows.rows.push_back({row.subject, row.codec, name_of(row.dtype), check.ranks,
                                  row.compared_elements, row.mismatches});
    }
    summary.add_mismatches_to(report, "kernels and reference differ: ");
    return report;
  }
};

std::vector<BoundField> fields(ConformRequest& r) {
  std::string of_collectives = "codec algorithm schedule accumulate sum ranks elements protocol";
  for (const Field& option : all_options()) of_collectives += " " + option.name;
  return together(
      {field("platform", &r.platform,
             "Check the kernels of host (emulated GPUs), or of cuda or rocm if built")
           .required(),
       kernel_folder_field(r.kernel_folder),
       field("codec", &r.codec, "Check this codec only", "all that have kernels")},
      fields(r.schedule), fields(r.sums),
      {field("ranks", &r.ranks, "Check this world size only", "2 to 8, each").from(2, 8),
       processes_field(r.processes),
       field("elements", &r.elements, "Check tensors of up to N elements per rank",
             "host: 5003, GPUs: 1M + 1"),
       field("tail", &r.tail,
             "Check only all-reduces with this tail, as of reduce --tail: "
             "hidden=8192,residual=add,norm=rms; or all: every named rounding with sum=native, and "
             "every codec with kernels as output",
             "none")
           .excludes("schedule linear"),
       tail_place_field(r.tail_place), protocol_field(r.protocol),
       field("seed", &r.seed, "Seed the inputs", "1").from(0, UINT32_MAX),
       field("linear", &r.linear, "Check only the kernels of quantized linear layers")
           .excludes(of_collectives)});
}

}  // namespace

Question conform_question() {
  return question<ConformRequest>(
      "conform", "Compare the kernels of a platform with the reference, bit for bit",
      &ConformRequest::answer);
}

}  // namespace arlab::lab
