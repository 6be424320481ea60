#include "sim/trace/perfetto.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "reference/tensors/file.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail_too_large(std::string_view what) {
  fail("a trace of {} is too large: allowed are at most {} ranks and {} million events", what,
       kMostTracedRanks, kMostTraceEvents / 1'000'000);
}

/// The nearest double, so that whole picoseconds print as such.
double us(Picoseconds ps) { return static_cast<double>(ps) / 1e6; }

/// To a millionth of a percent: what is full says 100.
double rounded_percent(double share) { return std::round(share * 1e8) / 1e6; }

/// The first lane in which a span that begins then overlaps no earlier one.
std::size_t free_lane(std::vector<Picoseconds>& ends, Picoseconds begin, Picoseconds end) {
  std::size_t lane = 0;
  while (lane < ends.size() && ends[lane] > begin) ++lane;
  if (lane == ends.size()) ends.push_back(0);
  ends[lane] = end;
  return lane;
}

template <class Spans>
void sort_by_time(Spans& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return std::pair(a.time.begin, -a.time.end) < std::pair(b.time.begin, -b.time.end);
  });
}

}  // namespace

void require_traceable(const Algorithm& algorithm, const ScheduleRequest& request) {
  if (request.world_size > kMostTracedRanks) {
    fail_too_large(fmt::format("{} ranks", request.world_size));
  }
  ScheduleRequest part = request;
  part.only_rank = 0;
  const Schedule schedule = algorithm.write(part);
  std::set<std::pair<std::uint32_t, Rank>> messages;  // by step and receiver
  for (const Op& op : schedule.ops) {
    if (op.kind == OpKind::send && op.rank == 0) messages.emplace(op.step, op.peer);
  }
  const std::uint64_t all = std::uint64_t{messages.size()} * request.world_size;
  if (all > kMostTraceEvents) fail_too_large(fmt::format("about {} messages", all));
}

// ---------------------------------------------------------------- recording

void PerfettoTrace::on_fabric(const Fabric& fabric) { fabric_ = &fabric; }

PerfettoTrace::RankSpans& PerfettoTrace::of(Rank rank) {
  if (rank >= kMostTracedRanks) fail_too_large(fmt::format("rank {}", rank));
  if (rank >= ranks_.size()) ranks_.resize(rank + 1);
  return ranks_[rank];
}

void PerfettoTrace::count() {
  if (++events_ > kMostTraceEvents) fail_too_large(fmt::format("{} or more events", events_));
}

void PerfettoTrace::on_launched(Rank rank, Picoseconds ready) {
  count();
  of(rank).work.push_back({{0, ready}, 0, Kind::launch});
}

void PerfettoTrace::on_work(Rank rank, Work work, std::uint32_t step, Picoseconds begin,
                            Picoseconds end) {
  if (end <= begin) return;
  count();
  constexpr std::array kKinds = {Kind::flags, Kind::encode, Kind::decode, Kind::reduce,
                                 Kind::forward};
  RankSpans& spans = of(rank);
  spans.work.push_back({{begin, end}, step, kKinds[static_cast<std::size_t>(work)]});
  spans.last = std::max(spans.last, end);
}

void PerfettoTrace::on_message(const PlannedMessage& message, std::uint32_t /*step*/,
                               std::span<const LinkId> /*route*/, Picoseconds begin,
                               Picoseconds delivered) {
  RankSpans& sender = of(message.from);
  sender.sending.push_back({begin, delivered});
  sender.last = std::max(sender.last, delivered);
  RankSpans& receiver = of(message.to);
  receiver.last = std::max(receiver.last, delivered);
}

void PerfettoTrace::on_link(const PlannedMessage& message, std::uint32_t step, LinkId link,
                            Picoseconds begin, Picoseconds end) {
  count();
  LinkSpans& of_link = links_[link];
  if (of_link.spans.empty()) {
    of_link.name = fabric_->describe(link);
    of_link.link_class = fabric_->class_of(link);
  }
  of_link.spans.push_back({{begin, end}, message.from, message.to, step, message.bytes});
}

void PerfettoTrace::on_share(MessageId message, LinkId link, double share, Picoseconds now) {
  LinkLoad& load = loads_[link];
  double& of_message = load.shares[message];
  load.share += share - of_message;
  of_message = share;
  if (share == 0) load.shares.erase(message);
  if (load.shares.empty()) load.share = 0;  // rounding must not leave anything
  if (!load.history.empty() && load.history.back().from == now) {
    load.history.back().share = load.share;
    return;
  }
  count();
  load.history.push_back({now, load.share});
}

// ---------------------------------------------------------------- writing

const char* PerfettoTrace::name_of(Kind kind) {
  constexpr std::array kNames = {"launch", "flags",   "encode", "decode",
                                 "reduce", "forward", "send",   "wait"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// Makes them disjoint, in the order of time.
void PerfettoTrace::merge(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const Interval& next : intervals) {
    if (kept > 0 && next.begin <= intervals[kept - 1].end) {
      intervals[kept - 1].end = std::max(intervals[kept - 1].end, next.end);
    } else {
      intervals[kept++] = next;
    }
  }
  intervals.resize(kept);
}

/// Fills the time in which the rank does nothing itself.
void PerfettoTrace::add_idle(std::vector<WorkSpan>& spans, const RankSpans& rank) {
  std::vector<Interval> busy;
  busy.reserve(spans.size() + 1);
  for (const WorkSpan& span : spans) busy.push_back(span.time);
  busy.push_back({rank.last, rank.last});
  merge(busy);
  std::vector<Interval> sending = rank.sending;
  merge(sending);
  auto sent = sending.begin();
  Picoseconds now = 0;
  const auto until = [&](Picoseconds end, Kind kind) {
    if (end > now) spans.push_back({{now, end}, 0, kind});
    now = std::max(now, end);
  };
  for (const Interval& work : busy) {
    while (now < work.begin) {
      while (sent != sending.end() && sent->end <= now) ++sent;
      if (sent == sending.end() || sent->begin >= work.begin) {
        until(work.begin, Kind::wait);
        break;
      }
      until(sent->begin, Kind::wait);
      until(std::min(sent->end, work.begin), Kind::send);
    }
    now = std::max(now, work.end);
  }
}

/// Adds events to the text, one per line.
class PerfettoTrace::Writer {
 public:
  static constexpr int kRanks = 1;  // processes
  static constexpr int kLinks = 2;

  void process(int process, const char* name) {
    metadata({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
    metadata({{"ph", "M"},
              {"name", "process_sort_index"},
              {"pid", process},
              {"args", {{"sort_index", process}}}});
  }

  /// The spans that follow are on this track; its further lanes are made as they are needed.
  void begin_track(int process, std::string name) {
    process_ = process;
    track_ = std::move(name);
    lanes_.clear();
    ends_.clear();
  }

  void span(const char* category, const std::string& name, Interval time, const Json& arguments) {
    const std::size_t lane = free_lane(ends_, time.begin, time.end);
    if (lane == lanes_.size()) add_lane();
    event({{"ph", "X"},
           {"cat", category},
           {"name", name},
           {"pid", process_},
           {"tid", lanes_[lane]},
           {"ts", us(time.begin)},
           {"dur", us(time.end - time.begin)},
           {"args", arguments}});
  }

  void event(const Json& json) {
    if (!events_.empty()) events_ += ",\n";
    events_ += json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const std::string& events() const { return events_; }

 private:
  void metadata(const Json& json) { event(json); }

  void add_lane() {
    const int id = ++tracks_;
    const std::string name =
        lanes_.empty() ? track_ : fmt::format("{} ({})", track_, lanes_.size() + 1);
    lanes_.push_back(id);
    metadata({{"ph", "M"},
              {"name", "thread_name"},
              {"pid", process_},
              {"tid", id},
              {"args", {{"name", name}}}});
    metadata({{"ph", "M"},
              {"name", "thread_sort_index"},
              {"pid", process_},
              {"tid", id},
              {"args", {{"sort_index", id}}}});
  }

  std::string events_;
  int process_ = 0;
  int tracks_ = 0;
  std::string track_;
  std::vector<int> lanes_;         ///< ids of the current track
  std::vector<Picoseconds> ends_;  ///< by lane
};

std::string PerfettoTrace::json(const SimulationResult& r) const {
  Writer writer;
  writer.process(Writer::kRanks, "ranks");
  writer.process(Writer::kLinks, "links");
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<WorkSpan> spans = ranks_[rank].work;
    add_idle(spans, ranks_[rank]);
    sort_by_time(spans);
    writer.begin_track(Writer::kRanks, fmt::format("rank {}", rank));
    for (const WorkSpan& span : spans) {
      const bool own = span.kind == Kind::launch || span.kind >= Kind::send;
      const Json arguments = own ? Json::object() : Json{{"step", span.step}};
      writer.span("rank", name_of(span.kind), span.time, arguments);
    }
  }
  for (const auto& [link, recorded] : links_) {
    std::vector<LinkSpan> spans = recorded.spans;
    sort_by_time(spans);
    writer.begin_track(Writer::kLinks, recorded.name);
    for (const LinkSpan& span : spans) {
      writer.span("link", fmt::format("{}->{}", span.from, span.to), span.time,
                  {{"bytes", span.bytes},
                   {"from", span.from},
                   {"to", span.to},
                   {"step", span.step},
                   {"link_class", recorded.link_class}});
    }
    const auto load = loads_.find(link);
    if (load == loads_.end()) continue;
    for (const Load& now : load->second.history) {
      writer.event({{"ph", "C"},
                    {"name", "load of " + recorded.name},
                    {"pid", Writer::kLinks},
                    {"ts", us(now.from)},
                    {"args", {{"percent", rounded_percent(now.share)}}}});
    }
  }
  const Json about = {
      {"schema", "arlab.trace/1"},
      {"topology", r.topology},
      {"algorithm", r.algorithm},
      {"codec", r.codec},
      {"dtype", arlab::name_of(r.dtype)},
      {"ranks", r.world_size},
      {"bytes", r.payload_bytes},
      {"latency_us", us(r.latency)},
      {"bottleneck", r.bottleneck},
      {"provenance", fmt::format("simulated: model {}, topology {}", r.model, r.topology)}};
  return "{\"displayTimeUnit\": \"ns\",\n\"otherData\": " +
         about.dump(-1, ' ', false, Json::error_handler_t::replace) + ",\n\"traceEvents\": [\n" +
         writer.events() + "\n]}\n";
}

void PerfettoTrace::write(const std::filesystem::path& path, const SimulationResult& result) const {
  const std::string text = json(result);
  write_file(path, {std::as_bytes(std::span(text))});
}

}  // namespace arlab
