#include "reference/collectives/msccl_xml.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/collectives/block_program.h"

namespace arlab {
namespace {

// ---------------------------------------------------------------- what the file says

struct Place {
  Buffer buffer = Buffer::input;
  std::uint32_t offset = 0;

  Place moved_by(std::uint32_t pieces) const { return {buffer, offset + pieces}; }
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
  bool tells = true;  ///< hasdep: that it is done is told to blocks that wait for it
};

struct Block {
  Rank rank = 0;
  std::uint32_t id = 0;
  std::optional<Rank> send;
  std::optional<Rank> receive;
  std::uint32_t channel = 0;
  std::vector<Step> steps;

  std::string describe(std::size_t step) const {
    return fmt::format("gpu {}, tb {}, step {}", rank, id, step);
  }
};

struct Program {
  std::string name;
  BlockMemory memory;
  std::vector<Block> blocks;

  /// Where a place is in the memory of a rank. Throws InvalidInput when there is no such piece;
  /// `where` names the step.
  MemoryPiece at(Rank rank, Place place, const std::string& where) const;
};

MemoryPiece Program::at(Rank rank, Place place, const std::string& where) const {
  const std::uint32_t size = memory.size(place.buffer, rank);
  if (place.offset >= size) {
    fail("MSCCL: {}: there is no piece {} of buffer {}, which has {}", where, place.offset,
         kBufferNames[static_cast<std::size_t>(place.buffer)][0], size);
  }
  return {rank, memory.begin(place.buffer, rank) + place.offset};
}

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
  return {value_named<Buffer>(kBuffers, text_of(node, buffer, where),
                              fmt::format("MSCCL: {}: {}", where, buffer)),
          count_of(node, offset, where, kMostPieces)};
}

Step step_of(const pugi::xml_node& node, const std::string& where) {
  const std::string type = text_of(node, "type", where);
  static const std::pair<const char*, Step> kKnown[] = {
      {"s", {.sends = true}},
      {"r", {.receives = true, .stores = true}},
      {"rcs", {.receives = true, .stores = true, .sends = true}},
      {"rrs", {.receives = true, .reduces = true, .sends = true}},
      {"rrc", {.receives = true, .reduces = true, .stores = true}},
      {"rrcs", {.receives = true, .reduces = true, .stores = true, .sends = true}},
      {"cpy", {.stores = true, .is_local = true}},
      {"re", {.reduces = true, .stores = true, .is_local = true}},
      {"nop", {}}};
  Step step = value_named<Step>(kKnown, type, fmt::format("MSCCL: {}: type", where));
  const std::optional<std::uint32_t> block = optional_of(node, "depid", where, kMostPieces);
  if (block) step.after.emplace(*block, count_of(node, "deps", where, kMostPieces));
  step.tells = !node.attribute("hasdep") || integer_of(node, "hasdep", where, 0, 1) == 1;
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
  BlockMemory& memory = program.memory;
  memory.collective = value_named<Collective>(kCollectivesOfPrograms, text_of(algo, "coll", "algo"),
                                              "MSCCL: algo: coll");
  memory.in_place = algo.attribute("inplace").as_int(0) != 0;
  std::set<Rank> seen;
  std::optional<std::uint32_t> written_outputs;
  for (const pugi::xml_node& gpu : algo.children("gpu")) {
    const Rank rank = count_of(gpu, "id", "gpu", kMaxWorldSize - 1);
    const std::string where = fmt::format("gpu {}", rank);
    if (!seen.insert(rank).second) fail("MSCCL: {} stands twice", where);
    const std::uint32_t inputs = count_of(gpu, "i_chunks", where, kMostPieces);
    if (seen.size() > 1 && inputs != memory.inputs) {
      fail("MSCCL: {}: i_chunks is {}, that of others is {}; they must be the same", where, inputs,
           memory.inputs);
    }
    memory.inputs = inputs;
    if (inputs == 0 && memory.in_place) {
      const std::uint32_t outputs = count_of(gpu, "o_chunks", where, kMostPieces);
      if (written_outputs.value_or(outputs) != outputs) {
        fail("MSCCL: {}: o_chunks is {}, that of others is {}; they must be the same", where,
             outputs, *written_outputs);
      }
      written_outputs = outputs;
    }
    memory.scratch.resize(std::max<std::size_t>(memory.scratch.size(), rank + 1));
    memory.scratch[rank] =
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
        const std::string of_step = fmt::format("{}, step {}", of_block, block.steps.size());
        if (step.attribute("s") &&
            step.attribute("s").as_string() != fmt::to_string(block.steps.size())) {
          fail("MSCCL: {}: its s is {}; steps must stand in their order", of_step,
               quote(step.attribute("s").as_string()));
        }
        block.steps.push_back(step_of(step, of_step));
      }
      program.blocks.push_back(std::move(block));
    }
  }
  memory.ranks = static_cast<Rank>(seen.size());
  if (seen.empty() || *seen.rbegin() + 1 != memory.ranks) {
    fail("MSCCL: there are {} <gpu>; their ids must be 0, 1, 2, ...", seen.size());
  }
  if (algo.attribute("ngpus") && algo.attribute("ngpus").as_uint() != memory.ranks) {
    fail("MSCCL: algo: ngpus is {}, but there are {} <gpu>", algo.attribute("ngpus").as_uint(),
         memory.ranks);
  }
  // In place, an input may be told by the output that it is a part of.
  if (written_outputs.value_or(0) > 0 && memory.collective != Collective::reduce_scatter) {
    const Rank parts = memory.collective == Collective::all_gather ? memory.ranks : 1;
    if (*written_outputs % parts != 0) {
      fail("MSCCL: o_chunks is {}; allowed are multiples of {} where i_chunks is 0",
           *written_outputs, parts);
    }
    memory.inputs = *written_outputs / parts;
  }
  memory.settle_outputs("MSCCL", "i_chunks");
  return program;
}

// ---------------------------------------------------------------- what the steps do

class Writer {
 public:
  explicit Writer(Program program) : p_(std::move(program)) {
    std::size_t moves = 0;
    for (std::uint32_t i = 0; i < p_.blocks.size(); ++i) {
      const Block& block = p_.blocks[i];
      if (!by_id_.emplace(std::pair(block.rank, block.id), i).second) {
        fail("MSCCL: gpu {}, tb {} stands twice", block.rank, block.id);
      }
      require_peers(block);
      for (const Step& step : block.steps) moves += step.count;
    }
    if (moves > kMostMoves) fail("MSCCL: more than {} pieces move", kMostMoves);
  }

  BlockProgram program() {
    written_.format = "MSCCL";
    written_.what_orders = "depid, deps";
    written_.name = p_.name;
    written_.memory = p_.memory;
    for (const Block& block : p_.blocks) {
      written_.rank_of_block.push_back(block.rank);
      auto& actions = written_.blocks.emplace_back();
      for (std::uint32_t i = 0; i < block.steps.size(); ++i) {
        actions.push_back(action_of(block, i));
      }
    }
    return std::move(written_);
  }

 private:
  void require_peers(const Block& block) const {
    for (const std::optional<Rank>& peer : {block.send, block.receive}) {
      if (!peer || (*peer < p_.memory.ranks && *peer != block.rank)) continue;
      fail("MSCCL: gpu {}, tb {}: its peer is {}; allowed are other gpus of 0 to {}", block.rank,
           block.id, *peer, p_.memory.ranks - 1);
    }
  }

  /// The block, and how many of its steps, that a step of `block` waits for: if the last of them
  /// tells nobody, up to the first behind it that does, as each tells of all before it.
  std::pair<std::uint32_t, std::uint32_t> awaited(const Block& block, std::uint32_t number) const {
    const Step& step = block.steps[number];
    const auto other = by_id_.find({block.rank, step.after->first});
    if (other == by_id_.end() || p_.blocks[other->second].steps.size() <= step.after->second) {
      fail("MSCCL: {}: it depends on step {} of tb {}, which is not there", block.describe(number),
           step.after->second, step.after->first);
    }
    const std::vector<Step>& steps = p_.blocks[other->second].steps;
    const auto told = std::find_if(steps.begin() + step.after->second, steps.end(),
                                   [](const Step& each) { return each.tells; });
    if (told == steps.end()) {
      fail("MSCCL: {} waits for ever: for step {} of tb {}, whose hasdep is 0",
           block.describe(number), step.after->second, step.after->first);
    }
    return {other->second, static_cast<std::uint32_t>(told - steps.begin() + 1)};
  }

  BlockAction action_of(const Block& block, std::uint32_t number) {
    const Step& step = block.steps[number];
    const std::string where = block.describe(number);
    BlockAction action{.knows_at_once = true};
    action.step.block = static_cast<std::uint32_t>(written_.blocks.size() - 1);
    action.step.phase = number;
    action.step.over = number + 1;
    action.step.label = static_cast<std::uint32_t>(written_.labels.size());
    written_.labels.push_back(where);
    if (step.after) action.after.push_back(awaited(block, number));
    if (step.receives) {
      if (!block.receive) fail("MSCCL: {}: it receives, but its tb has recv = -1", where);
      action.receives = {block.channel, *block.receive, block.rank};
      action.step.owns.push_back(end_of_channel(block, *block.receive, false));
    }
    if (step.sends) {
      if (!block.send) fail("MSCCL: {}: it sends, but its tb has send = -1", where);
      action.sends = {block.channel, block.rank, *block.send};
      action.step.owns.push_back(end_of_channel(block, *block.send, true));
    }
    for (std::uint32_t i = 0; i < step.count; ++i) {
      const auto from = [&] { return p_.at(block.rank, step.from.moved_by(i), where); };
      const auto to = [&] { return p_.at(block.rank, step.to.moved_by(i), where); };
      Move move;
      if (step.reduces) move.from.push_back(step.is_local ? to() : from());
      move.from.push_back(step.receives ? message(block.rank, i) : from());
      if (step.stores) move.to.push_back(to());
      if (step.sends) move.to.push_back(message(*block.send, i));
      action.step.moves.push_back(std::move(move));
    }
    return action;
  }

  static MemoryPiece message(Rank to, std::uint32_t at) {
    return {.rank = to, .at = at, .is_message = true};
  }

  /// One end of a channel is used by one step at a time.
  std::uint32_t end_of_channel(const Block& block, Rank peer, bool sends) {
    const auto [end, is_new] = ends_.try_emplace({block.rank, block.channel, peer, sends},
                                                 static_cast<std::uint32_t>(ends_.size()));
    if (is_new) {
      written_.owned.push_back(
          fmt::format("channel {} {} gpu {}", block.channel, sends ? "to" : "from", peer));
    }
    return end->second;
  }

  const Program p_;
  BlockProgram written_;
  std::map<std::pair<Rank, std::uint32_t>, std::uint32_t> by_id_;  ///< indices in p_.blocks
  std::map<std::tuple<Rank, std::uint32_t, Rank, bool>, std::uint32_t> ends_ = {};
};

}  // namespace

WrittenSchedule schedule_from_msccl(std::string_view xml) {
  return schedule_from_blocks(Writer(program_of(xml)).program());
}

}  // namespace arlab
