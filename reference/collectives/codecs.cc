#include "reference/collectives/codecs.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "reference/codecs/name_parts.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/words.h"

namespace arlab {

std::uint64_t Codecs::alignment(std::uint64_t row) const {
  std::uint64_t common = std::max<std::uint64_t>(row, 1);
  for (const CodecRole role : kCodecRoles) {
    const std::uint64_t own = of(role).info().alignment;
    if (common == kWholeTensor || own == kWholeTensor) return kWholeTensor;
    const std::uint64_t factor = common / std::gcd(common, own);
    common = factor > kWholeTensor / own ? kWholeTensor : factor * own;
  }
  return common;
}

CodecPtr find_inner_codec(const AlgorithmOptions& options, const CodecPtr& outer) {
  const std::optional<std::string> inner = options.inner_codec();
  return inner ? find_codec(*inner) : outer;
}

void require_inner_codec(const Schedule& schedule) {
  const bool uses = std::any_of(schedule.ops.begin(), schedule.ops.end(),
                                [](const Op& op) { return op.codec == CodecRole::inner; });
  if (!uses) fail("schedule '{}' encodes nothing with an inner codec", schedule.algorithm);
}

std::optional<Schedule> agreement_of(const Schedule& schedule, const Codecs& codecs) {
  std::uint64_t numbers = 0;
  for (const Codec* codec : {&codecs.outer(), codecs.differ() ? &codecs.inner() : nullptr}) {
    if (codec == nullptr || !codec->info().shares_scales || !adds(schedule.collective)) continue;
    for (const Chunk& chunk : schedule.chunks) numbers += codec->statistics_of(chunk.size());
  }
  if (numbers == 0) return std::nullopt;
  const std::string algorithm = schedule.agreement.empty() ? "one_shot" : schedule.agreement;
  Schedule agreement =
      make_schedule(algorithm, {.world_size = schedule.world_size, .elements = numbers});
  if (agreement.collective != Collective::all_reduce || !check(agreement).ranks_identical) {
    fail(
        "schedule '{}': after {} ranks do not agree: needed is an all-reduce that leaves all with "
        "the same",
        schedule.algorithm, quote(algorithm));
  }
  return agreement;
}

std::vector<std::optional<CodecRole>> sums_of_codes(const Schedule& schedule,
                                                    const Codecs& codecs) {
  std::vector<std::optional<CodecRole>> sums(schedule.ops.size());
  const bool any = codecs.outer().info().adds_codes || codecs.inner().info().adds_codes;
  if (!any || !adds(schedule.collective)) return sums;
  const auto role_of = [&](ValueId id) -> std::optional<CodecRole> {
    if (id == kElsewhere) return CodecRole::outer;
    const Op& op = schedule.ops[id];
    if (op.kind == OpKind::reduce) return sums[id];
    return codecs.differ() ? op.codec : CodecRole::outer;
  };
  for (ValueId id = 0; id < schedule.ops.size(); ++id) {
    const Op& op = schedule.ops[id];
    if (op.kind != OpKind::reduce) continue;
    std::optional<CodecRole> of_all;
    bool alike = true;
    for (const ValueId addend : schedule.operands(op)) {
      if (addend == kOwnInput) continue;
      const std::optional<CodecRole> role = role_of(addend);
      alike = alike && role && of_all.value_or(*role) == *role;
      of_all = role;
    }
    if (alike && of_all && codecs.of(*of_all).info().adds_codes) sums[id] = of_all;
  }
  return sums;
}

namespace {

/// Returns for every op whether a sum is made of its value, on the way or in the end.
std::vector<bool> is_added_up(const Schedule& s) {
  std::vector<bool> added(s.ops.size());
  for (ValueId id = static_cast<ValueId>(s.ops.size()); id-- > 0;) {
    const Op& op = s.ops[id];
    for (const ValueId operand : s.operands(op)) {
      if (operand < id && (op.kind == OpKind::reduce || added[id])) added[operand] = true;
    }
  }
  return added;
}

/// The number behind the word, all digits; nothing if there is another text.
std::optional<std::uint64_t> number_behind(std::string_view word, std::string_view text) {
  if (!take(text, word) || text.empty()) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct StepRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};
std::optional<StepRange> steps_of(std::string_view place) {
  const std::size_t hyphen = place.find('-');
  const auto first = number_behind("step", place.substr(0, hyphen));
  if (!first) return std::nullopt;
  if (hyphen == std::string_view::npos) return StepRange{*first, *first};
  const auto last = number_behind("-", place.substr(hyphen));
  return last && *last >= *first ? std::optional(StepRange{*first, *last}) : std::nullopt;
}

constexpr const char* kPlaces = "rs, ag, step<N>, step<N>-<M>, below<elements>";

}  // namespace

bool is_place_of_messages(std::string_view place) {
  return place == "rs" || place == "ag" || steps_of(place) || number_behind("below", place);
}

void place_inner_codec(Schedule& schedule, std::string_view place) {
  if (!is_place_of_messages(place)) {
    fail("inner codec of {}: allowed are {}", quote(place), kPlaces);
  }
  const std::vector<bool> added = is_added_up(schedule);
  const std::vector<std::uint32_t> encodings = encodings_of(schedule);
  const std::optional<StepRange> steps = steps_of(place);
  const std::optional<std::uint64_t> below = number_behind("below", place);
  bool any[2] = {};
  for (ValueId id = 0; id < schedule.ops.size(); ++id) {
    Op& op = schedule.ops[id];
    if (op.kind == OpKind::reduce) continue;
    const bool is_inner = steps   ? steps->first < encodings[id] && encodings[id] <= steps->last + 1
                          : below ? schedule.chunks[op.chunk].size() < *below
                                  : added[id] == (place == "rs");
    op.codec = is_inner ? CodecRole::inner : CodecRole::outer;
    any[is_inner ? 1 : 0] = true;
  }
  if (!any[0] || !any[1]) {
    fail("{}: {} of its messages are those of {}, so that it has one codec", schedule.algorithm,
         any[1] ? "all" : "none", quote(place));
  }
}

void place_codecs(Schedule& schedule, const AlgorithmOptions& options) {
  if (const auto place = options.inner_place()) {
    place_inner_codec(schedule, *place);
  } else if (options.inner_codec()) {
    require_inner_codec(schedule);
  }
}

std::string split_codecs(const std::string& codecs, AlgorithmOptions& options) {
  std::map<std::string, std::string, std::less<>> by_place;
  for (std::size_t begin = 0; begin <= codecs.size();) {
    const std::size_t end = std::min(codecs.find(',', begin), codecs.size());
    const std::string item = codecs.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos || item.starts_with("bits=")) {
      if (by_place.empty()) return codecs;
      fail("codec {}: {} is for no place", quote(codecs), quote(item));
    }
    const auto [known, is_new] = by_place.emplace(item.substr(0, equals), item.substr(equals + 1));
    if (!is_new) fail("codec {}: {} stands twice", quote(codecs), known->first);
    begin = end + 1;
  }
  if (options.inner_codec()) {
    fail("codec {}: an inner codec is named, too: allowed is one of the two", quote(codecs));
  }
  const auto pair = [&](std::string_view outer, std::string_view inner, const std::string& place) {
    const auto of_outer = by_place.find(outer);
    const auto of_inner = by_place.find(inner);
    if (by_place.size() != 2 || of_outer == by_place.end() || of_inner == by_place.end())
      return false;
    options.set("inner_codec", place + of_inner->second);
    return true;
  };
  if (pair("rs", "ag", "ag:")) return by_place.at("rs");
  if (pair("outer", "inner", "")) return by_place.at("outer");
  for (const auto& [place, codec] : by_place) {
    if (place != "rs" && place != "ag" && is_place_of_messages(place) &&
        pair("else", place, place + ":")) {
      return by_place.at("else");
    }
  }
  fail(
      "codec {}: allowed are two codecs, rs=...,ag=... or outer=...,inner=... or one of step<N>=, "
      "step<N>-<M>=, "
      "below<elements>= with else=",
      quote(codecs));
}

}  // namespace arlab
