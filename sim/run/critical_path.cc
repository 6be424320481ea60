#include "sim/run/critical_path.h"

#include <algorithm>

namespace arlab {

void CriticalPath::explain(SimulationResult& result, std::uint32_t job) {
  Picoseconds quanta = 0;
  const Shares shares = walk_back(causes_.end_of(job).last, quanta);
  result.quantum_error_us = us_from_picoseconds(quanta);
  std::map<Part, double> parts;
  for (const auto& [what, us] : shares) parts[what.first] += us;
  result.breakdown = {parts[Part::launch],     parts[Part::synchronisation], parts[Part::wire],
                      parts[Part::contention], parts[Part::codec],           parts[Part::release]};
  const auto worst = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  result.bottleneck =
      fmt::format("{} ({:.0f} % of the latency)", bottleneck(shares, worst->first, worst->second),
                  100 * worst->second / result.latency_us);
}

CriticalPath::Shares CriticalPath::walk_back(CauseId last, Picoseconds& quanta) {
  Shares shares;
  Cause before = causes_[last];
  for (CauseId id = last; id != 0;) {
    const Cause cause = std::exchange(before, causes_[before.before]);
    id = cause.before;
    const Picoseconds all = cause.time - before.time;
    const double us = us_from_picoseconds(all - cause.latency);
    switch (cause.span) {
      case Span::nothing:
        break;
      case Span::launch:
        shares[{Part::launch, 3 * cause.subject}] += us;
        break;
      case Span::latency:
        shares[{Part::synchronisation, 0}] += us;
        break;
      case Span::queue:
        shares[{Part::wire, cause.limit}] += us;
        break;
      case Span::work:
        shares[{Part::codec, 3 * cause.subject + cause.limit}] += us;
        break;
      case Span::message: {
        // One for its own start, one since those that it shares links with are as late as it.
        quanta += 2 * quantum_.length_at(cause.time - cause.latency);
        const PlannedMessage message = copies_.message(cause.subject);
        shares[{Part::synchronisation, 0}] += us_from_picoseconds(cause.latency);
        add(shares, costs_.message_parts(message, cause.network), us, message.stage, cause.limit);
        break;
      }
      case Span::stage:
        add(shares, costs_.stage_parts(cause.subject), us, cause.subject, kNoLimit);
        break;
    }
  }
  return shares;
}

void CriticalPath::add(Shares& shares, const TimeParts& parts, double us, StageId id,
                       ResourceId limit) const {
  const Rank rank = copies_.rank_of(id);
  const double total = parts.total_us();
  const double factor = total > 0 ? us / total : 0;
  shares[{Part::synchronisation, 0}] += parts.synchronisation_us * factor;
  shares[{Part::wire, limit}] += parts.wire_us * factor;
  shares[{Part::contention, 3 * rank}] += parts.contention_us * factor;
  shares[{Part::codec, 3 * rank + codec_limit(id)}] += parts.codec_us * factor;
  shares[{Part::release, 3 * rank}] += parts.release_us * factor;
}

std::uint32_t CriticalPath::codec_limit(StageId id) const {
  CodecLimit limit = costs_.is_memory_bound(id) ? CodecLimit::memory : CodecLimit::throughput;
  const StageCost& cost = costs_.of(id);
  if (cost.first_tile_us > cost.work_us + cost.hidden_us) limit = CodecLimit::first_tile;
  return static_cast<std::uint32_t>(limit);
}

// ---------------------------------------------------------------- in words

std::string CriticalPath::bottleneck(const Shares& shares, Part worst, double worst_us) const {
  // Parts smaller than this are not mentioned; nor are the others beside one that makes nearly all of the time.
  constexpr double kNegligible = 0.01;
  constexpr double kNearlyAll = 0.9;
  std::uint32_t limit = 0;
  double most = -1;
  std::size_t limits = 0;
  for (const auto& [what, us] : shares) {
    if (what.first != worst || us < kNegligible * worst_us) continue;
    ++limits;
    if (us <= most) continue;
    most = us;
    limit = what.second;
  }
  if (most > kNearlyAll * worst_us) limits = 1;
  return name_of(worst, limit, limits);
}

std::string_view CriticalPath::name_of(CodecLimit codec) {
  switch (codec) {
    case CodecLimit::throughput:
      return "codec and sums";
    case CodecLimit::memory:
      return "memory bandwidth";
    case CodecLimit::first_tile:
      break;
  }
  return "latency of the codec's first tile";
}

std::string CriticalPath::name_of_launch(Rank rank) const {
  for (const Straggler& straggler : topology_.stragglers) {
    if (straggler.rank == rank && straggler.delay_us.value > jobs_[0].kernel().launch_us()) {
      return fmt::format("late start of rank {}", straggler.rank);
    }
  }
  return "launch overhead";
}

std::string CriticalPath::name_of(Part part, std::uint32_t limit, std::size_t limits) const {
  const bool folded = copies_.plan().folded();
  const std::string others =
      folded ? " and those like it"
             : (limits > 1 ? fmt::format(" and {} more", limits - 1) : std::string());
  const std::string rank = folded ? "every rank" : fmt::format("rank {}{}", limit / 3, others);
  switch (part) {
    case Part::launch:
      return name_of_launch(limit / 3);
    case Part::synchronisation:
      return "synchronisation: flags and latency of links";
    case Part::wire:
      if (limit == kNoLimit) return "blocks of the library's channels";
      return fmt::format("bandwidth of {}{}", routes_.describe(limit), others);
    case Part::contention:
      return fmt::format("contention of stores of {}", rank);
    case Part::codec:
      return fmt::format("{} of {}", name_of(static_cast<CodecLimit>(limit % 3)), rank);
    case Part::release:
      return fmt::format("releases of tiles of {}", rank);
  }
  return {};
}

}  // namespace arlab
