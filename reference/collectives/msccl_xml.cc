#include "reference/collectives/msccl_xml.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
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
/// Steps times thread blocks: what the check of their order looks at.
constexpr std::uint64_t kMostPairs = std::uint64_t{1} << 31;
/// Numbers that it keeps, of one GPU.
constexpr std::size_t kMostClocks = std::size_t{1} << 25;
constexpr std::uint32_t kNone = ~std::uint32_t{0};

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
  bool tells = true;  ///< hasdep: that it is done is told to blocks that wait for it

  bool reads_from() const { return count > 0 && (!receives || reduces); }
  bool reads_to() const { return reduces && is_local; }
};

struct Block {
  Rank rank = 0;
  std::uint32_t id = 0;
  std::uint32_t index = 0;  ///< of those of its GPU
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
  Collective collective = Collective::all_reduce;
  bool in_place = false;
  Rank ranks = 0;
  std::uint32_t inputs = 0;   ///< pieces of the input of a rank
  std::uint32_t outputs = 0;  ///< of its output
  std::vector<std::uint32_t> scratch;
  std::vector<std::uint32_t> width;  ///< thread blocks, by rank
  std::vector<Block> blocks;

  /// Where a place is in the memory of a rank, in pieces: its input and output, which in place share
  /// theirs, then scratch. Throws InvalidInput when there is no such piece; `where` names the step.
  std::uint32_t at(Rank rank, Place place, const std::string& where) const;
  std::uint32_t memory(Rank rank) const { return inputs + outputs + scratch[rank]; }
};

constexpr const char* kBufferNames[] = {"input", "output", "scratch"};

std::uint32_t Program::at(Rank rank, Place place, const std::string& where) const {
  const auto buffer = static_cast<std::size_t>(place.buffer);
  const std::uint32_t sizes[] = {inputs, outputs, scratch[rank]};
  if (place.offset >= sizes[buffer]) {
    fail("MSCCL: {}: there is no piece {} of buffer {}, which has {}", where, place.offset,
         kBufferNames[buffer][0], sizes[buffer]);
  }
  const bool gathers = collective == Collective::all_gather;
  const bool scatters = collective == Collective::reduce_scatter;
  const std::uint32_t begins[] = {
      in_place && gathers ? rank * inputs : 0,
      in_place ? (scatters ? rank * outputs : 0) : inputs,
      inputs + outputs,
  };
  return begins[buffer] + place.offset;
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
  std::optional<std::uint32_t> written_outputs;
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
    if (inputs == 0 && program.in_place) {
      const std::uint32_t outputs = count_of(gpu, "o_chunks", where, kMostPieces);
      if (written_outputs.value_or(outputs) != outputs) {
        fail("MSCCL: {}: o_chunks is {}, that of others is {}; they must be the same", where,
             outputs, *written_outputs);
      }
      written_outputs = outputs;
    }
    program.scratch.resize(std::max<std::size_t>(program.scratch.size(), rank + 1));
    program.width.resize(program.scratch.size());
    program.scratch[rank] =
        gpu.attribute("s_chunks") ? count_of(gpu, "s_chunks", where, kMostPieces) : 0;
    for (const pugi::xml_node& tb : gpu.children("tb")) {
      Block block;
      block.rank = rank;
      block.index = program.width[rank]++;
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
  program.ranks = static_cast<Rank>(seen.size());
  if (seen.empty() || *seen.rbegin() + 1 != program.ranks) {
    fail("MSCCL: there are {} <gpu>; their ids must be 0, 1, 2, ...", seen.size());
  }
  if (algo.attribute("ngpus") && algo.attribute("ngpus").as_uint() != program.ranks) {
    fail("MSCCL: algo: ngpus is {}, but there are {} <gpu>", algo.attribute("ngpus").as_uint(),
         program.ranks);
  }
  const bool gathers = program.collective == Collective::all_gather;
  const bool scatters = program.collective == Collective::reduce_scatter;
  // In place, an input may be told by the output that it is a part of.
  if (written_outputs.value_or(0) > 0 && !scatters) {
    const Rank parts = gathers ? program.ranks : 1;
    if (*written_outputs % parts != 0) {
      fail("MSCCL: o_chunks is {}; allowed are multiples of {} where i_chunks is 0",
           *written_outputs, parts);
    }
    program.inputs = *written_outputs / parts;
  }
  const bool by_slot = program.collective == Collective::all_to_all || scatters;
  if (program.inputs == 0 || (by_slot && program.inputs % program.ranks != 0)) {
    fail("MSCCL: i_chunks is {}; allowed are multiples of {}", program.inputs,
         by_slot ? program.ranks : 1);
  }
  if (gathers && std::uint64_t{program.inputs} * program.ranks > kMostPieces) {
    fail("MSCCL: {} ranks of {} i_chunks each are too many; allowed are {} in all", program.ranks,
         program.inputs, kMostPieces);
  }
  program.outputs = gathers    ? program.inputs * program.ranks
                    : scatters ? program.inputs / program.ranks
                               : program.inputs;
  if (std::uint64_t{program.ranks} * (program.inputs + program.outputs) > kMostMoves) {
    fail("MSCCL: {} ranks of {} i_chunks each are too many", program.ranks, program.inputs);
  }
  if (std::accumulate(program.scratch.begin(), program.scratch.end(), std::size_t{0}) >
      kMostMoves) {
    fail("MSCCL: s_chunks of all gpus are more than {}", kMostMoves);
  }
  return program;
}

// ---------------------------------------------------------------- an order of the steps

/// A step that runs, and which of those before it in the order it waits for: by depid, and for the
/// message that it receives.
struct Ran {
  std::uint32_t block = 0;
  std::uint32_t step = 0;
  std::uint32_t waited = kNone;
  std::uint32_t sender = kNone;
};

using Way = std::tuple<std::uint32_t, Rank, Rank>;  ///< channel, from, to

/// Lets every block go on until it has to wait. As messages and steps that are done stay so, other
/// orders come to the same end: if this one gets stuck, all do.
class Scheduler {
 public:
  explicit Scheduler(const Program& program) : p_(program), done_(program.blocks.size()) {
    std::size_t moves = 0;
    std::uint64_t steps = 0;
    for (std::size_t i = 0; i < p_.blocks.size(); ++i) {
      const Block& block = p_.blocks[i];
      if (!by_id_.emplace(std::pair(block.rank, block.id), i).second) {
        fail("MSCCL: gpu {}, tb {} stands twice", block.rank, block.id);
      }
      require_peers(block);
      for (const Step& step : block.steps) moves += step.count;
      steps += block.steps.size();
    }
    if (moves > kMostMoves) fail("MSCCL: more than {} pieces move", kMostMoves);
    if (steps * p_.blocks.size() > kMostPairs) {
      fail("MSCCL: {} steps of {} thread blocks are too many", steps, p_.blocks.size());
    }
  }

  std::vector<Ran> order() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t i = 0; i < p_.blocks.size(); ++i) {
        while (done_[i].size() < p_.blocks[i].steps.size() && runs(i)) moved = true;
      }
    }
    for (std::uint32_t i = 0; i < p_.blocks.size(); ++i) {
      if (done_[i].size() == p_.blocks[i].steps.size()) continue;
      fail("MSCCL: {} waits for ever: for what nobody sends, or a step that waits itself",
           p_.blocks[i].describe(done_[i].size()));
    }
    return std::move(order_);
  }

 private:
  void require_peers(const Block& block) const {
    for (const std::optional<Rank>& peer : {block.send, block.receive}) {
      if (!peer || (*peer < p_.ranks && *peer != block.rank)) continue;
      fail("MSCCL: gpu {}, tb {}: its peer is {}; allowed are other gpus of 0 to {}", block.rank,
           block.id, *peer, p_.ranks - 1);
    }
  }

  /// The block and the step that a step of `block` waits for: if that tells nobody, the first behind
  /// it that does, as each tells of all before it.
  std::pair<std::size_t, std::size_t> awaited(const Block& block, std::uint32_t number) const {
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
    return {other->second, static_cast<std::size_t>(told - steps.begin())};
  }

  /// Runs the next step of a block, if it need not wait.
  bool runs(std::uint32_t index) {
    const Block& block = p_.blocks[index];
    Ran ran{.block = index, .step = static_cast<std::uint32_t>(done_[index].size())};
    const Step& step = block.steps[ran.step];
    const auto where = [&] { return block.describe(ran.step); };
    if (step.after) {
      const auto [other, awaited_step] = awaited(block, ran.step);
      if (done_[other].size() <= awaited_step) return false;
      ran.waited = done_[other][awaited_step];
    }
    if (step.receives) {
      if (!block.receive) fail("MSCCL: {}: it receives, but its tb has recv = -1", where());
      std::deque<std::uint32_t>& way = ways_[{block.channel, *block.receive, block.rank}];
      if (way.empty()) return false;
      ran.sender = way.front();
      const Ran& sender = order_[ran.sender];
      const std::uint32_t sent = p_.blocks[sender.block].steps[sender.step].count;
      if (sent != step.count) {
        fail("MSCCL: {}: it receives {} pieces, but {} were sent", where(), step.count, sent);
      }
      way.pop_front();
    }
    const auto position = static_cast<std::uint32_t>(order_.size());
    if (step.sends) {
      if (!block.send) fail("MSCCL: {}: it sends, but its tb has send = -1", where());
      ways_[{block.channel, block.rank, *block.send}].push_back(position);
    }
    done_[index].push_back(position);
    order_.push_back(ran);
    return true;
  }

  const Program& p_;
  std::map<std::pair<Rank, std::uint32_t>, std::size_t> by_id_;  ///< of p_.blocks
  std::vector<std::vector<std::uint32_t>> done_;                 ///< by block: positions of steps
  std::map<Way, std::deque<std::uint32_t>> ways_;                ///< messages on their way
  std::vector<Ran> order_;
};

// ---------------------------------------------------------------- steps that nothing orders

/// Of each step, which steps of one GPU are over in every order before it begins: of each thread
/// block there, so many (a vector clock).
class Clocks {
 public:
  Clocks(const Program& program, const std::vector<Ran>& order, Rank rank)
      : p_(program), order_(order), rank_(rank), width_(program.width[rank]), clocks_(width_) {
    if (width_ < 2) return;
    row_.resize(order.size());
    std::vector<std::uint32_t> row_of_block(p_.blocks.size());
    std::vector<std::uint32_t> now(width_);
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      std::uint32_t& row = row_of_block[order[i].block];
      row_[i] = row;
      if (order[i].waited == kNone && order[i].sender == kNone) continue;
      now.assign(begin_of(row), begin_of(row) + width_);
      bool is_new = false;
      for (const std::uint32_t before : {order[i].waited, order[i].sender}) {
        if (before != kNone) is_new |= join(now, before);
      }
      if (is_new) {
        row = static_cast<std::uint32_t>(clocks_.size() / width_);
        clocks_.insert(clocks_.end(), now.begin(), now.end());
        if (clocks_.size() > kMostClocks) {
          fail("MSCCL: gpu {}: {} thread blocks are too many for {} steps", rank, width_,
               order.size());
        }
      }
      row_[i] = row;
    }
  }

  /// Whether a step of the GPU is over before another one begins.
  bool is_before(std::uint32_t one, std::uint32_t other) const {
    if (order_[one].block == order_[other].block) return order_[one].step < order_[other].step;
    return begin_of(row_[other])[p_.blocks[order_[one].block].index] > order_[one].step;
  }

 private:
  std::vector<std::uint32_t>::const_iterator begin_of(std::uint32_t row) const {
    return clocks_.begin() + static_cast<std::ptrdiff_t>(std::size_t{row} * width_);
  }

  /// Adds a step and all that was over before it. Whether anything is new.
  bool join(std::vector<std::uint32_t>& now, std::uint32_t step) const {
    bool is_new = false;
    const auto raise = [&](std::uint32_t& count, std::uint32_t to) {
      is_new |= count < to;
      count = std::max(count, to);
    };
    const auto known = begin_of(row_[step]);
    for (std::uint32_t i = 0; i < width_; ++i) raise(now[i], known[i]);
    const Block& block = p_.blocks[order_[step].block];
    if (block.rank == rank_) raise(now[block.index], order_[step].step + 1);
    return is_new;
  }

  const Program& p_;
  const std::vector<Ran>& order_;
  Rank rank_;
  std::uint32_t width_;                ///< thread blocks of the GPU
  std::vector<std::uint32_t> clocks_;  ///< [row][thread block]; steps that know the same share one
  std::vector<std::uint32_t> row_ = {};  ///< by position in the order
};

/// Refuses programs in which two steps of a GPU use the same piece, one of them writes it, and
/// neither is over before the other begins: thread blocks run at the same time. So do two that use
/// one end of a channel.
class RaceCheck {
 public:
  RaceCheck(const Program& program, const std::vector<Ran>& order, Rank rank)
      : p_(program), order_(order), clocks_(program, order, rank) {
    pieces_.resize(p_.memory(rank));
  }

  /// Steps of the GPU come in the order in which they ran.
  void use(std::uint32_t i) {
    const Block& block = block_of(i);
    const Step& step = block.steps[order_[i].step];
    const std::string where = block.describe(order_[i].step);
    const auto each = [&](Place place, const auto& f) {
      for (std::uint32_t k = 0; k < step.count; ++k) {
        const Place piece{place.buffer, place.offset + k};
        f(pieces_[p_.at(block.rank, piece, where)], [piece] { return text_of(piece); });
      }
    };
    const auto reads = [&](Piece& piece, const auto& text) { read(piece, i, text); };
    if (step.reads_from()) each(step.from, reads);
    if (step.stores) {  // also what `re` reads there
      each(step.to, [&](Piece& piece, const auto& text) { write(piece, i, "writes", text); });
      if (step.reads_from()) require_apart(step, block.rank, where);
    }
    if (step.sends) use_way(i, block.send, true);
    if (step.receives) use_way(i, block.receive, false);
  }

 private:
  /// Who has used it: the last that wrote, and those that have read since, one of each thread block.
  struct Piece {
    std::uint32_t written = kNone;
    std::vector<std::uint32_t> read = {};
  };

  const Block& block_of(std::uint32_t i) const { return p_.blocks[order_[i].block]; }

  /// The threads of a block copy all pieces of a step at once.
  void require_apart(const Step& step, Rank rank, const std::string& where) const {
    const std::int64_t apart =
        std::int64_t{p_.at(rank, step.to, where)} - std::int64_t{p_.at(rank, step.from, where)};
    if (apart == 0 || std::abs(apart) >= std::int64_t{step.count}) return;
    fail("MSCCL: {} writes pieces that it has still to read: its {} pieces lie {} apart", where,
         step.count, std::abs(apart));
  }

  void use_way(std::uint32_t i, std::optional<Rank> peer, bool sends) {
    if (!peer) return;
    const std::uint32_t channel = block_of(i).channel;
    write(ways_[{channel, *peer, sends}], i, "uses", [&] {
      return fmt::format("channel {} {} gpu {}", channel, sends ? "to" : "from", *peer);
    });
  }

  template <class Text>
  void read(Piece& piece, std::uint32_t i, const Text& text) {
    if (piece.written != kNone) require_order(piece.written, "writes", i, "reads", text);
    const auto same = std::ranges::find(piece.read, order_[i].block,
                                        [this](std::uint32_t r) { return order_[r].block; });
    if (same == piece.read.end()) {
      piece.read.push_back(i);
    } else {
      *same = i;
    }
  }

  template <class Text>
  void write(Piece& piece, std::uint32_t i, const char* does, const Text& text) {
    if (piece.written != kNone) require_order(piece.written, does, i, does, text);
    for (const std::uint32_t reader : piece.read) require_order(reader, "reads", i, does, text);
    piece.read.clear();
    piece.written = i;
  }

  template <class Text>
  void require_order(std::uint32_t one, const char* one_does, std::uint32_t other,
                     const char* other_does, const Text& text) const {
    if (one == other || clocks_.is_before(one, other)) return;
    fail("MSCCL: {} {} {} and tb {}, step {} {} it; nothing orders them (depid, deps)",
         block_of(other).describe(order_[other].step), other_does, text(), block_of(one).id,
         order_[one].step, one_does);
  }

  static std::string text_of(Place place) {
    return fmt::format("{} {}", kBufferNames[static_cast<std::size_t>(place.buffer)], place.offset);
  }

  const Program& p_;
  const std::vector<Ran>& order_;
  Clocks clocks_;
  std::vector<Piece> pieces_;                                         ///< of the memory of the GPU
  std::map<std::tuple<std::uint32_t, Rank, bool>, Piece> ways_ = {};  ///< channel, peer, sends
};

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
    chunks_ = gathers ? p_.outputs : p_.inputs;
    held_.resize(p_.ranks);
    for (Rank rank = 0; rank < p_.ranks; ++rank) {
      held_[rank].resize(p_.memory(rank));
      for (std::uint32_t i = 0; i < p_.inputs; ++i) {
        const ChunkId chunk = gathers ? rank * p_.inputs + i : i;
        at(rank, {Buffer::input, i}, "") = Held{.chunk = chunk};
      }
    }
  }

  WrittenSchedule run() {
    const std::vector<Ran> order = Scheduler(p_).order();
    std::vector<std::vector<std::uint32_t>> by_rank(p_.ranks);
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      by_rank[p_.blocks[order[i].block].rank].push_back(i);
    }
    for (Rank rank = 0; rank < p_.ranks; ++rank) {
      RaceCheck races(p_, order, rank);
      for (const std::uint32_t i : by_rank[rank]) races.use(i);
    }
    for (const Ran& ran : order) execute(p_.blocks[ran.block], ran.step);
    return written();
  }

 private:
  std::optional<Held>& at(Rank rank, Place place, const std::string& where) {
    return held_[rank][p_.at(rank, place, where)];
  }

  void execute(const Block& block, std::uint32_t number) {
    const Step& step = block.steps[number];
    const std::string where = block.describe(number);
    std::vector<Held> arrived;
    if (step.receives) {
      auto& way = ways_[{block.channel, *block.receive, block.rank}];
      arrived = std::move(way.front());
      way.pop_front();
    }
    std::vector<Held> leaving;
    for (std::uint32_t i = 0; i < step.count; ++i) {
      const Place from = {step.from.buffer, step.from.offset + i};
      const Place to = {step.to.buffer, step.to.offset + i};
      Held value = step.receives ? arrived[i] : holding(block.rank, from, where);
      if (step.reduces) {
        const Held there = holding(block.rank, step.reads_to() ? to : from, where);
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
      const std::uint32_t first = scatters ? rank * p_.outputs : 0;
      for (std::uint32_t i = 0; i < chunks_; ++i) {
        std::optional<Held> held = Held{.chunk = i};  // reduce_scatter: its own tensor
        if (i >= first && i < first + p_.outputs) held = at(rank, {Buffer::output, i - first}, "");
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
  std::uint32_t chunks_ = 0;                            ///< of the tensor
  std::vector<std::vector<std::optional<Held>>> held_;  ///< [rank][piece of its memory]
  std::map<Way, std::deque<std::vector<Held>>> ways_;   ///< on their way
  std::map<std::tuple<Rank, ValueId, ChunkId>, Held> encoded_;
  std::vector<NamedOp> ops_;
};

}  // namespace

WrittenSchedule schedule_from_msccl(std::string_view xml) { return Machine(program_of(xml)).run(); }

}  // namespace arlab
