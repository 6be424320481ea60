#include "reference/collectives/msccl_xml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace arlab {
namespace {

/// Most pieces of a rank's buffer; chunks are fractions of a tensor with such a denominator.
constexpr std::uint32_t kMostPieces = 1 << 16;
/// Pieces that move, over all steps: each is at most three ops.
constexpr std::size_t kMostMoves = std::size_t{1} << 18;

// ---------------------------------------------------------------- what the file says

enum class Buffer : std::uint8_t { input, output, scratch };

struct Place {
  Buffer buffer = Buffer::input;
  std::uint32_t offset = 0;
};

struct Step {
  bool receives = false;
  bool reduces = false;
  bool stores = false;
  bool sends = false;
  bool is_local = false;  ///< cpy, re
  Place from = {};
  Place to = {};
  std::uint32_t count = 0;
  std::optional<std::pair<std::uint32_t, std::uint32_t>> after = {};  ///< block, step
};

struct Block {
  Rank rank = 0;
  std::uint32_t id = 0;
  std::optional<Rank> send;
  std::optional<Rank> receive;
  std::uint32_t channel = 0;
  std::vector<Step> steps;
  std::size_t next = 0;  ///< the first that has not run

  std::string describe() const { return fmt::format("gpu {}, tb {}, step {}", rank, id, next); }
};

struct Program {
  std::string name;
  Collective collective = Collective::all_reduce;
  bool in_place = false;
  Rank ranks = 0;
  std::uint32_t inputs = 0;  ///< pieces of the input of a rank
  std::vector<std::uint32_t> scratch;
  std::vector<Block> blocks;
};

std::string text_of(const pugi::xml_node& node, const char* key, const std::string& where) {
  const pugi::xml_attribute attribute = node.attribute(key);
  if (!attribute) fail("MSCCL: {}: attribute {} is missing", where, key);
  return attribute.value();
}

/// From `least` to `most`.
std::int64_t integer_of(const pugi::xml_node& node, const char* key, const std::string& where,
                        std::int64_t least, std::int64_t most) {
  const std::string text = text_of(node, key, where);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    fail("MSCCL: {}: {} is {}; allowed is an integer from {} to {}", where, key, quote(text), least,
         most);
  }
  return value;
}

std::uint32_t count_of(const pugi::xml_node& node, const char* key, const std::string& where,
                       std::uint32_t most) {
  return static_cast<std::uint32_t>(integer_of(node, key, where, 0, most));
}

/// -1 stands for none.
std::optional<std::uint32_t> optional_of(const pugi::xml_node& node, const char* key,
                                         const std::string& where, std::uint32_t most) {
  const std::int64_t value = integer_of(node, key, where, -1, most);
  if (value < 0) return std::nullopt;
  return static_cast<std::uint32_t>(value);
}

Place place_of(const pugi::xml_node& node, const char* buffer, const char* offset,
               const std::string& where) {
  const std::string name = text_of(node, buffer, where);
  for (const auto& [known, which] : {std::pair("i", Buffer::input), std::pair("o", Buffer::output),
                                     std::pair("s", Buffer::scratch)}) {
    if (name == known) return {which, count_of(node, offset, where, kMostPieces)};
  }
  fail("MSCCL: {}: {} is {}; allowed are i (input), o (output), s (scratch)", where, buffer,
       quote(name));
}

Step step_of(const pugi::xml_node& node, const std::string& where) {
  const std::string type = text_of(node, "type", where);
  struct Known {
    const char* name;
    Step step;
  };
  static const Known kKnown[] = {
      {"s", {.sends = true}},
      {"r", {.receives = true, .stores = true}},
      {"rcs", {.receives = true, .stores = true, .sends = true}},
      {"rrs", {.receives = true, .reduces = true, .sends = true}},
      {"rrc", {.receives = true, .reduces = true, .stores = true}},
      {"rrcs", {.receives = true, .reduces = true, .stores = true, .sends = true}},
      {"cpy", {.stores = true, .is_local = true}},
      {"re", {.reduces = true, .stores = true, .is_local = true}},
      {"nop", {}}};
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const Known& k) { return type == k.name; });
  if (known == std::end(kKnown)) {
    fail("MSCCL: {}: type is {}; allowed are s, r, rcs, rrs, rrc, rrcs, cpy, re, nop", where,
         quote(type));
  }
  Step step = known->step;
  const std::optional<std::uint32_t> block = optional_of(node, "depid", where, kMostPieces);
  if (block) step.after.emplace(*block, count_of(node, "deps", where, kMostPieces));
  if (type == "nop") return step;
  step.from = place_of(node, "srcbuf", "srcoff", where);
  step.to = place_of(node, "dstbuf", "dstoff", where);
  step.count = static_cast<std::uint32_t>(integer_of(node, "cnt", where, 1, kMostPieces));
  return step;
}

Program program_of(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed =
      document.load_buffer(xml.data(), xml.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!parsed) fail("MSCCL: not XML, at byte {}: {}", parsed.offset, parsed.description());
  const pugi::xml_node algo = document.child("algo");
  if (!algo) fail("MSCCL: there is no <algo>");
  Program program;
  program.name = algo.attribute("name").as_string("msccl");
  const std::pair<const char*, Collective> collectives[] = {
      {"allreduce", Collective::all_reduce},         {"alltoall", Collective::all_to_all},
      {"allgather", Collective::all_gather},         {"reduce_scatter", Collective::reduce_scatter},
      {"reducescatter", Collective::reduce_scatter}, {"broadcast", Collective::broadcast}};
  const std::string collective = text_of(algo, "coll", "algo");
  const auto* found = std::find_if(std::begin(collectives), std::end(collectives),
                                   [&](const auto& known) { return collective == known.first; });
  if (found == std::end(collectives)) {
    fail(
        "MSCCL: algo: coll is {}; allowed are allreduce, alltoall, allgather, reduce_scatter, "
        "broadcast",
        quote(collective));
  }
  program.collective = found->second;
  program.in_place = algo.attribute("inplace").as_int(0) != 0;
  std::set<Rank> seen;
  for (const pugi::xml_node& gpu : algo.children("gpu")) {
    const Rank rank = count_of(gpu, "id", "gpu", kMaxWorldSize - 1);
    const std::string where = fmt::format("gpu {}", rank);
    if (!seen.insert(rank).second) fail("MSCCL: {} stands twice", where);
    const std::uint32_t inputs = count_of(gpu, "i_chunks", where, kMostPieces);
    if (seen.size() > 1 && inputs != program.inputs) {
      fail("MSCCL: {}: i_chunks is {}, that of others is {}; they must be the same", where, inputs,
           program.inputs);
    }
    program.inputs = inputs;
    program.scratch.resize(std::max<std::size_t>(program.scratch.size(), rank + 1));
    program.scratch[rank] =
        gpu.attribute("s_chunks") ? count_of(gpu, "s_chunks", where, kMostPieces) : 0;
    for (const pugi::xml_node& tb : gpu.children("tb")) {
      Block block;
      block.rank = rank;
      block.id = count_of(tb, "id", where, kMostPieces);
      const std::string of_block = fmt::format("{}, tb {}", where, block.id);
      block.send = optional_of(tb, "send", of_block, kMaxWorldSize - 1);
      block.receive = optional_of(tb, "recv", of_block, kMaxWorldSize - 1);
      block.channel = tb.attribute("chan") ? count_of(tb, "chan", of_block, kMostPieces) : 0;
      for (const pugi::xml_node& step : tb.children("step")) {
        block.steps.push_back(
            step_of(step, fmt::format("{}, step {}", of_block, block.steps.size())));
      }
      program.blocks.push_back(std::move(block));
    }
  }
  program.ranks = static_cast<Rank>(seen.size());
  if (seen.empty() || *seen.rbegin() + 1 != program.ranks) {
    fail("MSCCL: there are {} <gpu>; their ids must be 0, 1, 2, ...", seen.size());
  }
  if (algo.attribute("ngpus") && algo.attribute("ngpus").as_uint() != program.ranks) {
    fail("MSCCL: algo: ngpus is {}, but there are {} <gpu>", algo.attribute("ngpus").as_uint(),
         program.ranks);
  }
  const bool by_slot = program.collective == Collective::all_to_all ||
                       program.collective == Collective::reduce_scatter;
  if (program.inputs == 0 || (by_slot && program.inputs % program.ranks != 0)) {
    fail("MSCCL: i_chunks is {}; allowed are multiples of {}", program.inputs,
         by_slot ? program.ranks : 1);
  }
  return program;
}

// ---------------------------------------------------------------- running it on names

/// What a piece of a buffer holds.
struct Held {
  ValueId value = kOwnInput;
  ChunkId chunk = 0;
  bool encoded = false;
  std::uint32_t ready = 0;  ///< the first step in which it can be used
};

struct NamedOp {
  OpKind kind = OpKind::encode;
  std::uint32_t step = 0;
  Rank rank = 0;
  Rank peer = 0;
  ChunkId chunk = 0;
  ValueId from = kOwnInput;
  ValueId more = kOwnInput;  ///< reduce: the other addend
};

class Machine {
 public:
  explicit Machine(Program program) : p_(std::move(program)) {
    const bool gathers = p_.collective == Collective::all_gather;
    const bool scatters = p_.collective == Collective::reduce_scatter;
    chunks_ = gathers ? p_.inputs * p_.ranks : p_.inputs;
    outputs_ = gathers ? chunks_ : scatters ? p_.inputs / p_.ranks : p_.inputs;
    if (std::uint64_t{p_.inputs} * p_.ranks > kMostPieces && gathers) {
      fail("MSCCL: {} ranks of {} i_chunks each are too many; allowed are {} in all", p_.ranks,
           p_.inputs, kMostPieces);
    }
    if (std::uint64_t{p_.ranks} * (p_.inputs + outputs_) > kMostMoves) {
      fail("MSCCL: {} ranks of {} i_chunks each are too many", p_.ranks, p_.inputs);
    }
    if (std::accumulate(p_.scratch.begin(), p_.scratch.end(), std::size_t{0}) > kMostMoves) {
      fail("MSCCL: s_chunks of all gpus are more than {}", kMostMoves);
    }
    for (std::size_t i = 0; i < p_.blocks.size(); ++i) {
      const Block& block = p_.blocks[i];
      if (!by_id_.emplace(std::pair(block.rank, block.id), i).second) {
        fail("MSCCL: gpu {}, tb {} stands twice", block.rank, block.id);
      }
    }
    held_.resize(p_.ranks);
    for (Rank rank = 0; rank < p_.ranks; ++rank) {
      // In place, input and output are parts of one another.
      held_[rank][0].resize(p_.inputs);
      held_[rank][1].resize(outputs_);
      held_[rank][2].resize(p_.scratch[rank]);
      for (std::uint32_t i = 0; i < p_.inputs; ++i) {
        const ChunkId chunk = gathers ? rank * p_.inputs + i : i;
        at(rank, {Buffer::input, i}, "") = Held{.chunk = chunk};
      }
    }
  }

  WrittenSchedule run() {
    for (const Block& block : p_.blocks) require_block(block);
    for (std::size_t done = 0; done < p_.blocks.size();) {
      done = 0;
      bool moved = false;
      for (Block& block : p_.blocks) {
        while (block.next < block.steps.size() && can_run(block)) {
          execute(block);
          ++block.next;
          moved = true;
        }
        if (block.next == block.steps.size()) ++done;
      }
      if (moved || done == p_.blocks.size()) continue;
      const auto stuck = std::find_if(p_.blocks.begin(), p_.blocks.end(),
                                      [](const Block& b) { return b.next < b.steps.size(); });
      fail("MSCCL: {} waits for ever: for what nobody sends, or a step that waits itself",
           stuck->describe());
    }
    return written();
  }

 private:
  using Key = std::tuple<std::uint32_t, Rank, Rank>;  ///< channel, from, to

  void require_block(const Block& block) const {
    for (const std::optional<Rank>& peer : {block.send, block.receive}) {
      if (!peer || (*peer < p_.ranks && *peer != block.rank)) continue;
      fail("MSCCL: gpu {}, tb {}: its peer is {}; allowed are other gpus of 0 to {}", block.rank,
           block.id, *peer, p_.ranks - 1);
    }
  }

  /// Where a place really is.
  std::optional<Held>& at(Rank rank, Place place, const std::string& where) {
    if (p_.in_place && place.buffer == Buffer::output) {
      place.buffer = Buffer::input;
      if (p_.collective == Collective::reduce_scatter) place.offset += rank * outputs_;
      if (p_.collective == Collective::all_gather) {
        const bool own = place.offset / p_.inputs == rank;
        if (own) place.offset %= p_.inputs;
        if (!own) place.buffer = Buffer::output;
      }
    }
    auto& buffer = held_[rank][static_cast<std::size_t>(place.buffer)];
    if (place.offset < buffer.size()) return buffer[place.offset];
    constexpr const char* kNames[] = {"i", "o", "s"};
    fail("MSCCL: {}: there is no piece {} of buffer {}, which has {}", where, place.offset,
         kNames[static_cast<std::size_t>(place.buffer)], buffer.size());
  }

  bool can_run(const Block& block) const {
    const Step& step = block.steps[block.next];
    if (step.after) {
      const auto other = by_id_.find({block.rank, step.after->first});
      if (other == by_id_.end() || p_.blocks[other->second].steps.size() <= step.after->second) {
        fail("MSCCL: {}: it depends on step {} of tb {}, which is not there", block.describe(),
             step.after->second, step.after->first);
      }
      if (p_.blocks[other->second].next <= step.after->second) return false;
    }
    if (!step.receives) return true;
    if (!block.receive) fail("MSCCL: {}: it receives, but its tb has recv = -1", block.describe());
    const auto way = ways_.find({block.channel, *block.receive, block.rank});
    return way != ways_.end() && !way->second.empty();
  }

  void execute(const Block& block) {
    const Step& step = block.steps[block.next];
    const std::string where = block.describe();
    if (step.sends && !block.send) fail("MSCCL: {}: it sends, but its tb has send = -1", where);
    std::vector<Held> arrived;
    if (step.receives) {
      auto& way = ways_[{block.channel, *block.receive, block.rank}];
      arrived = std::move(way.front());
      way.pop_front();
      if (arrived.size() != step.count) {
        fail("MSCCL: {}: it receives {} pieces, but {} were sent", where, step.count,
             arrived.size());
      }
    }
    if ((moves_ += step.count) > kMostMoves) {
      fail("MSCCL: more than {} pieces move", kMostMoves);
    }
    std::vector<Held> leaving;
    for (std::uint32_t i = 0; i < step.count; ++i) {
      const Place from = {step.from.buffer, step.from.offset + i};
      const Place to = {step.to.buffer, step.to.offset + i};
      Held value = step.receives ? arrived[i] : holding(block.rank, from, where);
      if (step.reduces) {
        const Held there = holding(block.rank, step.is_local ? to : from, where);
        value = sum(block.rank, there, value, where);
      }
      if (step.stores) at(block.rank, to, where) = value;
      if (step.sends) leaving.push_back(sent(block.rank, *block.send, value));
    }
    if (step.sends) ways_[{block.channel, block.rank, *block.send}].push_back(std::move(leaving));
  }

  Held holding(Rank rank, Place place, const std::string& where) {
    const std::optional<Held>& held = at(rank, place, where);
    if (!held) fail("MSCCL: {}: piece {} has nothing in it yet", where, place.offset);
    return *held;
  }

  Held append(NamedOp op, bool encoded, std::uint32_t ready) {
    const Held made{static_cast<ValueId>(ops_.size()), op.chunk, encoded, ready};
    ops_.push_back(std::move(op));
    return made;
  }

  Held sum(Rank rank, const Held& a, const Held& b, const std::string& where) {
    if (a.chunk != b.chunk) {
      fail("MSCCL: {}: it adds piece {} of the tensor to piece {}", where, b.chunk, a.chunk);
    }
    const std::uint32_t step = std::max(a.ready, b.ready);
    return append({OpKind::reduce, step, rank, 0, a.chunk, a.value, b.value}, false, step);
  }

  Held sent(Rank rank, Rank to, const Held& value) {
    Held bytes = value;
    if (!value.encoded) {
      const auto key = std::tuple(rank, value.value, value.chunk);
      const auto known = encoded_.find(key);
      bytes = known != encoded_.end()
                  ? known->second
                  : append({OpKind::encode, value.ready, rank, 0, value.chunk, value.value}, true,
                           value.ready);
      encoded_.emplace(key, bytes);
    }
    return append({OpKind::send, bytes.ready, rank, to, bytes.chunk, bytes.value}, true,
                  bytes.ready + 1);
  }

  // ---- the result

  WrittenSchedule written() {
    Schedule schedule;
    schedule.collective = p_.collective;
    schedule.algorithm = p_.name;
    schedule.world_size = p_.ranks;
    schedule.chunks.resize(chunks_);
    std::vector<WrittenSchedule::Fraction> begins;
    const bool scatters = p_.collective == Collective::reduce_scatter;
    for (Rank rank = 0; rank < p_.ranks; ++rank) {
      const std::uint32_t first = scatters ? rank * outputs_ : 0;
      for (std::uint32_t i = 0; i < chunks_; ++i) {
        std::optional<Held> held = Held{.chunk = i};  // reduce_scatter: its own tensor
        if (i >= first && i < first + outputs_) held = at(rank, {Buffer::output, i - first}, "");
        if (!held) continue;
        schedule.outputs.push_back({rank, held->chunk, as_others_see(rank, *held).value});
        begins.push_back({i, chunks_});
      }
    }
    write_ops(schedule);
    std::vector<std::pair<WrittenSchedule::Fraction, WrittenSchedule::Fraction>> chunks;
    for (std::uint32_t i = 0; i < chunks_; ++i) {
      chunks.push_back({{i, chunks_}, {std::uint64_t{i} + 1, chunks_}});
    }
    return {std::move(schedule), std::move(chunks), std::move(begins)};
  }

  /// In the order of steps. A sum that only another one begins with is a part of that.
  void write_ops(Schedule& schedule) const {
    std::vector<std::uint32_t> uses(ops_.size());
    const auto count = [&uses](ValueId id) {
      if (id != kOwnInput) ++uses[id];
    };
    for (const NamedOp& op : ops_) {
      count(op.from);
      count(op.more);
    }
    for (const Output& output : schedule.outputs) count(output.value);
    std::vector<std::vector<ValueId>> sums(ops_.size());
    std::vector<bool> is_part(ops_.size());
    std::vector<ValueId> order;
    for (ValueId id = 0; id < ops_.size(); ++id) {
      const NamedOp& op = ops_[id];
      if (op.kind != OpKind::reduce) continue;
      const bool goes_on = op.from != kOwnInput && !sums[op.from].empty() && uses[op.from] == 1;
      if (goes_on) {
        sums[id] = std::move(sums[op.from]);
        is_part[op.from] = true;
      } else {
        sums[id] = {op.from};
      }
      sums[id].push_back(op.more);
    }
    for (ValueId id = 0; id < ops_.size(); ++id) {
      if (!is_part[id]) order.push_back(id);
    }
    std::stable_sort(order.begin(), order.end(),
                     [this](ValueId a, ValueId b) { return ops_[a].step < ops_[b].step; });
    std::vector<ValueId> renamed(ops_.size());
    for (ValueId i = 0; i < order.size(); ++i) renamed[order[i]] = i;
    const auto name = [&](ValueId id) { return id == kOwnInput ? id : renamed[id]; };
    for (const ValueId id : order) {
      const NamedOp& named = ops_[id];
      Op& op = schedule.ops.emplace_back();
      op.kind = named.kind;
      op.start = Start::first;
      op.step = named.step;
      op.rank = named.rank;
      op.peer = named.peer;
      op.chunk = named.chunk;
      if (op.kind != OpKind::reduce) {
        op.source = name(named.from);
        continue;
      }
      op.first_addend = static_cast<std::uint32_t>(schedule.addends.size());
      op.addend_count = static_cast<std::uint32_t>(sums[id].size());
      for (const ValueId addend : sums[id]) schedule.addends.push_back(name(addend));
    }
    for (Output& output : schedule.outputs) output.value = name(output.value);
  }

  /// What has been sent is kept as it was sent.
  Held as_others_see(Rank rank, const Held& held) const {
    if (held.encoded || !ends_alike(p_.collective)) return held;
    const auto known = encoded_.find({rank, held.value, held.chunk});
    return known == encoded_.end() ? held : known->second;
  }

  Program p_;
  std::map<std::pair<Rank, std::uint32_t>, std::size_t> by_id_;  ///< of p_.blocks
  std::uint32_t chunks_ = 0;                                     ///< of the tensor
  std::uint32_t outputs_ = 0;                                    ///< pieces of the output of a rank
  std::vector<std::array<std::vector<std::optional<Held>>, 3>> held_;  ///< by rank, buffer, offset
  std::map<Key, std::deque<std::vector<Held>>> ways_;                  ///< on their way
  std::map<std::tuple<Rank, ValueId, ChunkId>, Held> encoded_;
  std::vector<NamedOp> ops_;
  std::size_t moves_ = 0;
};

}  // namespace

WrittenSchedule schedule_from_msccl(std::string_view xml) { return Machine(program_of(xml)).run(); }

}  // namespace arlab
