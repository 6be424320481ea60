#include "reference/collectives/mscclpp_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "reference/collectives/block_program.h"

namespace arlab {
namespace {

using Json = nlohmann::json;

/// How often the loop of a pipeline is run over a chunk.
constexpr std::uint32_t kIterations = 2;
/// Pieces that all operations read and write.
constexpr std::size_t kMostAccesses = std::size_t{1} << 20;
constexpr std::size_t kMostSteps = std::size_t{1} << 20;

// ---------------------------------------------------------------- what the file says

/// By number: what GPUs and thread blocks have of each kind is in arrays.
enum Channel : std::uint8_t { kMemory, kPort, kSwitch };
constexpr std::pair<const char*, Channel> kChannels[] = {
    {"memory", kMemory}, {"port", kPort}, {"switch", kSwitch}};
/// Those to one other GPU.
constexpr Names<Channel> kToPeers = Names<Channel>(kChannels).first(2);

enum class Kind : std::uint8_t { nop, barrier, channels, semaphores, pipeline, copy, put, sum };

enum : unsigned {
  kReadsFlags = 1,    ///< its reads, but of the first addend of a sum
  kWritesFlags = 2,   ///< its writes; a sum is also kept without
  kKeepsPackets = 4,  ///< a sum is kept as packets, too
  kSignals = 8,
  kWaits = 16,
  kFlushes = 32,
  kIsRelaxed = 64,
};

/// The effect of an operation.
struct Operation {
  Kind kind = Kind::nop;
  unsigned does = 0;

  bool is(unsigned what) const { return (does & what) != 0; }
};

constexpr std::pair<const char*, Operation> kOperations[] = {
    {"nop", {Kind::nop}},
    {"barrier", {Kind::barrier}},
    {"signal", {Kind::channels, kSignals}},
    {"rlxsignal", {Kind::channels, kSignals | kIsRelaxed}},
    {"wait", {Kind::channels, kWaits}},
    {"rlxwait", {Kind::channels, kWaits | kIsRelaxed}},
    {"flush", {Kind::channels, kFlushes}},
    {"sem_acquire", {Kind::semaphores, kWaits}},
    {"sem_release", {Kind::semaphores, kSignals}},
    {"pipeline", {Kind::pipeline}},
    {"copy", {Kind::copy}},
    {"cpkt", {Kind::copy, kWritesFlags}},
    {"upkt", {Kind::copy, kReadsFlags}},
    {"get", {Kind::copy}},
    {"glres", {Kind::copy}},  // the sum of all that a switch joins
    {"gstore", {Kind::copy}},
    {"gstorepkt", {Kind::copy, kReadsFlags | kWritesFlags}},
    {"put", {Kind::put}},
    {"pws", {Kind::put, kSignals}},
    {"pwsf", {Kind::put, kSignals | kFlushes}},
    {"ppkt", {Kind::put, kWritesFlags}},
    {"rppkt", {Kind::put, kReadsFlags | kWritesFlags}},
    {"re", {Kind::sum}},
    {"res", {Kind::sum}},
    {"rre", {Kind::sum}},
    {"rres", {Kind::sum}},
    {"repkt", {Kind::sum, kReadsFlags}},
    {"respkt", {Kind::sum, kReadsFlags | kWritesFlags}},
    {"recpkt", {Kind::sum, kReadsFlags | kKeepsPackets}},
    {"recspkt", {Kind::sum, kReadsFlags | kWritesFlags | kKeepsPackets}},
};

/// Reads values; `where_` is the place that messages name.
class FileReader {
 protected:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail("MSCCL++: {}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
  }

  const Json& member(const Json& object, const char* key) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) refuse("{} is missing", key);
    return *found;
  }

  static std::string shown(const Json& json) {
    return json.is_primitive() ? json.dump() : json.type_name();
  }

  std::uint32_t to_count(const Json& json, const char* key, std::uint32_t most) const {
    if (json.is_number_integer() && json >= 0 && json.get<std::uint64_t>() <= most) {
      return json.get<std::uint32_t>();
    }
    refuse("{} is {}; allowed is an integer from 0 to {}", key, shown(json), most);
  }

  std::uint32_t count(const Json& object, const char* key, std::uint32_t most = kMostPieces) const {
    return to_count(member(object, key), key, most);
  }

  std::string text(const Json& object, const char* key) const {
    const Json& json = member(object, key);
    if (!json.is_string()) refuse("{} is {}; allowed is a text", key, shown(json));
    return json.get<std::string>();
  }

  /// An array; empty if there is none.
  const Json& array(const Json& object, const char* key) const {
    static const Json none = Json::array();
    const Json& json = object.is_object() && object.contains(key) ? object[key] : none;
    if (!json.is_array()) refuse("{} is {}; allowed is a list", key, shown(json));
    return json;
  }

  std::vector<std::uint32_t> counts(const Json& object, const char* key) const {
    std::vector<std::uint32_t> result;
    for (const Json& each : array(object, key)) result.push_back(to_count(each, key, kMostPieces));
    return result;
  }

  /// The value whose name stands there.
  template <class Value>
  Value named(Names<Value> known, const Json& object, const char* key) const {
    return value_named(known, text(object, key), fmt::format("MSCCL++: {}: {}", where_, key));
  }

  template <class Values>
  const auto& at(const Values& values, std::uint32_t index, const char* what) const {
    if (index < values.size()) return values[index];
    refuse("there is no {} {}; there are {}", what, index, values.size());
  }

  std::string where_ = "the plan";
};

// ---------------------------------------------------------------- what each thread block does

/// Pieces of a buffer of one GPU, or of all that a switch joins.
struct Range {
  std::vector<Rank> ranks;
  Buffer buffer = Buffer::input;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  bool has_flags = false;
  bool is_waited_for = true;
};

struct Gpu {
  /// [memory, port]: the peer of each channel, and which of the channels between the two it is.
  std::vector<std::pair<Rank, std::uint32_t>> channels[2];
  std::vector<Range> switches;
  std::vector<Range> remotes;
  std::vector<std::uint32_t> semaphores;
};

class PlanReader : FileReader {
 public:
  explicit PlanReader(const Json& file) {
    if (file.contains("version")) {
      fail("MSCCL++: an execution plan, version {}: not read", shown(file["version"]));
    }
    memory_.collective = named<Collective>(kCollectivesOfPrograms, file, "collective");
    const Json& in_place = member(file, "inplace");
    if (!in_place.is_boolean()) refuse("inplace is not true or false");
    memory_.in_place = in_place.get<bool>();
    program_.format = "MSCCL++";
    program_.what_orders = "signal, wait, semaphore, barrier, nop";
    program_.name = text(file, "name");
    const Json& gpus = array(file, "gpus");
    if (gpus.empty() || gpus.size() > kMaxWorldSize) {
      refuse("there are {} gpus; allowed are 1 to {}", gpus.size(), kMaxWorldSize);
    }
    memory_.ranks = static_cast<Rank>(gpus.size());
    cut_chunks(gpus);
    for (Rank rank = 0; rank < memory_.ranks; ++rank) read_gpu(gpus[rank], rank);
    where_ = "the plan";
    require_known(file, {"name", "collective", "protocol", "inplace", "reuse_resources", "gpus",
                         "num_threads_per_block", "use_double_scratch_buffer", "buffer_alignment",
                         "min_message_size", "max_message_size"});
    memory_.settle_outputs("MSCCL++", "pieces of the input");
    for (Rank rank = 0; rank < memory_.ranks; ++rank) read_blocks(gpus[rank], rank);
  }

  BlockProgram program() { return std::move(program_); }

 private:
  /// So that each thread block of a group, and each run of a loop, has whole pieces.
  void cut_chunks(const Json& json) {
    for (const auto& [key, value] : json.items()) {
      if (value.is_structured()) cut_chunks(value);
      std::uint32_t parts = key == "iter_context" ? kIterations : 1;
      if (key == "tbg_size") parts = std::max(1U, count(json, "tbg_size"));
      const std::uint64_t pieces = std::lcm(std::uint64_t{memory_.per_chunk}, parts);
      if (pieces > kMostPieces) refuse("tbg_size cuts chunks in more than {}", kMostPieces);
      memory_.per_chunk = static_cast<std::uint32_t>(pieces);
    }
  }

  /// So many chunks, in pieces.
  std::uint32_t chunks(const Json& gpu, const char* key) const {
    return count(gpu, key, kMostPieces / memory_.per_chunk) * memory_.per_chunk;
  }

  void read_gpu(const Json& file, Rank rank) {
    where_ = fmt::format("gpu {}", rank);
    if (file.is_object() && file.contains("inputChunks")) {
      fail(
          "MSCCL++: an execution plan of the first version ('inputChunks'): not read; allowed are "
          "those that MSCCL++'s DSL writes since ('input_chunks')");
    }
    if (const std::uint32_t id = count(file, "id"); id != rank) {
      refuse("its id is {}; gpus must stand in their order", id);
    }
    require_known(file, {"id", "input_chunks", "output_chunks", "scratch_chunks", "channels",
                         "remote_buffers", "semaphores", "threadblocks"});
    const std::uint32_t inputs = chunks(file, "input_chunks");
    if (rank > 0 && inputs != memory_.inputs) refuse("input_chunks is not that of the others");
    memory_.inputs = inputs;
    memory_.scratch.push_back(chunks(file, "scratch_chunks"));
    Gpu& gpu = gpus_.emplace_back();
    std::map<std::pair<Channel, Rank>, std::uint32_t> seen;
    for (const Json& channel : array(file, "channels")) {
      const Channel type = named<Channel>(kChannels, channel, "channel_type");
      if (type == kSwitch) {
        read_switch(channel, gpu);
        continue;
      }
      for (const std::uint32_t peer : counts(channel, "connected_to")) {
        gpu.channels[type].emplace_back(require_peer(peer, rank), seen[{type, peer}]++);
      }
    }
    for (const Json& remote : array(file, "remote_buffers")) {
      gpu.remotes.push_back(
          {{require_peer(count(remote, "rank"), rank)}, named<Buffer>(kBuffers, remote, "type")});
    }
    for (const Json& semaphore : array(file, "semaphores")) {
      gpu.semaphores.push_back(count(semaphore, "init_value"));
    }
  }

  Rank require_peer(Rank peer, Rank rank) const {
    if (peer < memory_.ranks && peer != rank) return peer;
    refuse("a peer is {}; allowed are other gpus of 0 to {}", peer, memory_.ranks - 1);
  }

  void read_switch(const Json& channel, Gpu& gpu) const {
    const char* key = channel.contains("buff") ? "buff" : "buffer_type";
    for (const Json& group : array(channel, "rank_groups")) {
      gpu.switches.push_back({counts(group, "ranks"), named<Buffer>(kBuffers, channel, key)});
      for (const Rank rank : gpu.switches.back().ranks) {
        if (rank >= memory_.ranks) refuse("a switch has a gpu {}", rank);
      }
    }
  }

  // ---- thread blocks

  /// The thread block that is read.
  struct Block {
    Rank rank = 0;
    std::uint32_t index = 0;
    std::uint32_t phase = 0;
    std::uint32_t label = 0;
    std::vector<std::uint32_t> channels[3] = {};
    std::vector<std::uint32_t> remotes[3] = {};
    std::optional<std::uint32_t> iteration = {};
    std::uint32_t loop_chunks = 0;
    std::map<std::uint32_t, std::uint32_t> barriers = {};  ///< how often it has passed each
  };

  std::uint32_t add_block(Rank rank) {
    program_.rank_of_block.push_back(rank);
    program_.blocks.emplace_back();
    return static_cast<std::uint32_t>(program_.blocks.size() - 1);
  }

  std::uint32_t actions_of(std::uint32_t block) const {
    return static_cast<std::uint32_t>(program_.blocks[block].size());
  }

  BlockAction& append(std::uint32_t block, BlockAction action) {
    action.step.block = block;
    action.step.label = block_.label;
    if (++actions_ > kMostSteps) fail("MSCCL++: more than {} operations run", kMostSteps);
    return program_.blocks[block].emplace_back(std::move(action));
  }

  BlockAction& add(BlockAction action) {
    action.step.phase = action.step.over = block_.phase;
    return append(block_.index, std::move(action));
  }

  /// Adds it to what does one thing after the other, when it comes to it.
  BlockAction& add_in_turn(std::uint32_t block, BlockAction action) {
    action.step.phase = actions_of(block);
    action.step.over = action.step.phase + 1;
    action.knows_at_once = true;
    return append(block, std::move(action));
  }

  void set_label(std::string text) {
    block_.label = static_cast<std::uint32_t>(program_.labels.size());
    program_.labels.push_back(std::move(text));
  }

  void read_blocks(const Json& gpu, Rank rank) {
    where_ = fmt::format("gpu {}", rank);
    const std::uint32_t outputs = chunks(gpu, "output_chunks");
    if (outputs != 0 && outputs != memory_.outputs) {
      refuse("output_chunks is {}; allowed is {}", outputs / memory_.per_chunk,
             memory_.outputs / memory_.per_chunk);
    }
    // The kernels before and after it may use all that is not scratch.
    const std::uint32_t kernels = add_block(rank);
    Move used;
    for (std::uint32_t i = 0; i < memory_.begin(Buffer::scratch, rank); ++i) {
      used.to.push_back({rank, i});
    }
    set_label(fmt::format("the kernel before, on gpu {},", rank));
    add_in_turn(kernels, {.step = {.moves = {used}, .is_kernel_border = true}});
    BlockAction end{.step = {.moves = {used}, .is_kernel_border = true}};
    std::set<std::uint32_t> ids;
    for (const Json& file : array(gpu, "threadblocks")) {
      const std::uint32_t id = count(file, "id");
      where_ = fmt::format("gpu {}, tb {}", rank, id);
      if (!ids.insert(id).second) fail("MSCCL++: {} stands twice", where_);
      require_known(file, {"id", "ops", "channels", "remote_buffer_refs"});
      block_ = {.rank = rank, .index = add_block(rank), .label = block_.label};
      read_references(file);
      add({.after = {{kernels, 1}}, .knows_at_once = true});
      read_ops(file);
      ++block_.phase;
      add({});
      end.after.emplace_back(block_.index, actions_of(block_.index));
    }
    set_label(fmt::format("the kernel after, on gpu {},", rank));
    add_in_turn(kernels, std::move(end));
  }

  void read_references(const Json& file) {
    for (const Json& channel : array(file, "channels")) {
      std::ranges::copy(
          counts(channel, "channel_ids"),
          std::back_inserter(block_.channels[named<Channel>(kChannels, channel, "channel_type")]));
    }
    for (const Json& remote : array(file, "remote_buffer_refs")) {
      std::ranges::copy(
          counts(remote, "remote_buffer_ids"),
          std::back_inserter(block_.remotes[named(kToPeers, remote, "access_channel_type")]));
    }
  }

  void read_ops(const Json& file) {
    const std::string of = where_;
    const Json& ops = array(file, "ops");
    for (std::size_t i = 0; i < ops.size(); ++i) {
      where_ = fmt::format("{}, op {}", of, i);
      require_keys(ops[i]);
      set_label(where_);
      read_op(ops[i], named<Operation>(kOperations, ops[i], "name"));
    }
    where_ = of;
  }

  using Keys = std::set<std::string>;
  void require_known(const Json& object, const Keys& keys) const {
    for (const auto& [key, value] : object.items()) {
      if (!keys.contains(key)) refuse("key {} is not read", quote(key));
    }
  }

  void require_keys(const Json& op) const {
    static const Keys kKeys = {"name",         "src_buff",  "dst_buff",      "channel_type",
                               "channel_ids",  "reduce_op", "barrier_id",    "num_threadblocks",
                               "iter_context", "ops",       "semaphore_ids", "tbg_info"};
    require_known(op, kKeys);
    static constexpr std::pair<const char*, bool> kSum[] = {{"sum", true}};
    if (op.contains("reduce_op")) named<bool>(kSum, op, "reduce_op");
  }

  void read_op(const Json& op, Operation operation) {
    switch (operation.kind) {
      case Kind::nop:
        ++block_.phase;
        return;
      case Kind::barrier:
        return read_barrier(op);
      case Kind::channels:
        return read_channels(op, operation);
      case Kind::semaphores:
        return read_semaphores(op, operation);
      case Kind::pipeline:
        return read_pipeline(op);
      default:
        return read_moves(op, operation);
    }
  }

  void read_pipeline(const Json& op) {
    if (block_.iteration) refuse("a pipeline in a pipeline");
    block_.loop_chunks = count(member(op, "iter_context"), "num_chunks");
    for (std::uint32_t i = 0; i < kIterations; ++i) {
      block_.iteration = i;
      read_ops(op);
    }
    block_.iteration.reset();
  }

  /// Who leaves a barrier has waited for all that arrive, each for the same time.
  void read_barrier(const Json& op) {
    const std::uint32_t id = count(op, "barrier_id");
    const std::uint32_t blocks = count(op, "num_threadblocks");
    const std::uint32_t arrivals =
        counter_of(block_.rank, fmt::format("barrier {}, {} times", id, ++block_.barriers[id]));
    ++block_.phase;
    raise(add({}), {arrivals});
    ++block_.phase;
    add({.takes = {{.counter = arrivals, .all = blocks}}, .knows_at_once = true});
  }

  /// The counter that `rank` waits for, by name.
  std::uint32_t counter_of(Rank rank, const std::string& name, std::uint32_t initial = 0) {
    const auto [found, is_new] = counters_.try_emplace({rank, name}, program_.counters.size());
    if (is_new) {
      program_.counters.push_back({initial});
      program_.owned.push_back(name);
    }
    return static_cast<std::uint32_t>(found->second);
  }

  /// Signals of `from` to `to`, through one of the channels between them.
  std::uint32_t signals_of(Channel type, Rank from, Rank to, std::uint32_t number) {
    return counter_of(
        to, fmt::format("{} channel {} from gpu {}", kChannels[type].first, number, from));
  }

  void raise(BlockAction& action, BlockAction::Change change) {
    action.raises.push_back(change);
    ++program_.counters[change.counter].total;
    ++program_.counters[change.counter].raised_by[action.step.block];
  }

  void change(std::uint32_t counter, Operation operation) {
    BlockAction& action = add({});
    const BlockAction::Change change{counter, operation.is(kIsRelaxed)};
    if (operation.is(kWaits)) {
      action.takes.push_back(change);
      action.step.owns.push_back(counter);
    } else {
      raise(action, change);
    }
  }

  /// Channels of the block, as its GPU counts them.
  std::vector<std::uint32_t> channels_of(const Json& op, Channel type) const {
    std::vector<std::uint32_t> ids = counts(op, "channel_ids");
    for (std::uint32_t& id : ids) {
      id = at(block_.channels[type], id, "channel");
      at(gpus_[block_.rank].channels[type], id, "channel");
    }
    return ids;
  }

  void read_channels(const Json& op, Operation operation) {
    const Channel type = named(kToPeers, op, "channel_type");
    for (const std::uint32_t id : channels_of(op, type)) {
      const auto& [peer, number] = gpus_[block_.rank].channels[type][id];
      if (operation.is(kWaits)) {
        change(signals_of(type, peer, block_.rank, number), operation);
      } else if (type == kPort) {
        ask_proxy(id, operation, {});
      } else if (operation.is(kSignals)) {
        change(signals_of(type, block_.rank, peer, number), operation);
      }
    }
  }

  void read_semaphores(const Json& op, Operation operation) {
    for (const std::uint32_t id : counts(op, "semaphore_ids")) {
      const std::uint32_t initial = at(gpus_[block_.rank].semaphores, id, "semaphore");
      change(counter_of(block_.rank, fmt::format("semaphore {}", id), initial), operation);
    }
  }

  /// Asks the proxy of a port channel to move, then to signal, and waits until it has done all.
  void ask_proxy(std::uint32_t id, Operation operation, std::vector<Move> moves) {
    const auto [found, is_new] = proxies_.try_emplace({block_.rank, id}, 0);
    if (is_new) found->second = add_block(block_.rank);
    const std::uint32_t proxy = found->second;
    if (operation.kind == Kind::put || operation.is(kSignals)) {
      add({});  // it asks
      BlockAction& action =
          add_in_turn(proxy, {.step = {.moves = std::move(moves)},
                              .after = {{block_.index, actions_of(block_.index)}}});
      const auto& [peer, number] = gpus_[block_.rank].channels[kPort][id];
      if (operation.is(kSignals)) raise(action, {signals_of(kPort, block_.rank, peer, number)});
    }
    if (operation.is(kFlushes)) add({.after = {{proxy, actions_of(proxy)}}});
  }

  // ---- what moves

  /// Threads go on with each packet as it comes: what orders it, orders no other piece.
  void add_moves(std::vector<Move> moves, Operation operation) {
    if (!operation.is(kReadsFlags | kWritesFlags)) {
      add({.step = {.moves = std::move(moves)}});
      return;
    }
    add({});
    const std::uint32_t before = actions_of(block_.index);
    for (Move& move : moves) {
      const std::uint32_t threads = add_block(block_.rank);
      add_in_turn(threads,
                  {.step = {.moves = {std::move(move)}}, .after = {{block_.index, before}}});
      add({.after = {{threads, 1}}});
    }
  }

  /// The buffer that a reference names.
  Range buffer_of(const Json& reference, Channel type) const {
    const Gpu& gpu = gpus_[block_.rank];
    if (reference.contains("buffer_id")) {
      const std::uint32_t id = count(reference, "buffer_id");
      return at(gpu.remotes, at(block_.remotes[type], id, "buffer_id"), "remote buffer");
    }
    if (reference.contains("switch_channel_id")) {
      const std::uint32_t id = count(reference, "switch_channel_id");
      return at(gpu.switches, at(block_.channels[kSwitch], id, "channel"), "switch channel");
    }
    return {{block_.rank}, named<Buffer>(kBuffers, reference, "type")};
  }

  Range range_of(const Json& op, const Json& reference, Channel type) const {
    Range range = buffer_of(reference, type);
    const std::uint32_t index = count(reference, "index");
    const std::uint32_t size = count(reference, "size");
    for (const Rank rank : range.ranks) {
      const std::uint32_t has = memory_.size(range.buffer, rank) / memory_.per_chunk;
      if (index + size <= has) continue;
      refuse("there are no chunks {} to {} of the {} of gpu {}, which has {}", index, index + size,
             kBufferNames[static_cast<std::size_t>(range.buffer)], rank, has);
    }
    range.begin = index * memory_.per_chunk;
    range.count = size * memory_.per_chunk;
    if (op.contains("tbg_info")) share(range, op["tbg_info"]);
    if (block_.iteration) {
      // One run of the loop has a part of it.
      if (size < block_.loop_chunks || op.contains("tbg_info")) {
        refuse("it moves {} chunks; the loop that it stands in runs over {}, without tbg_info",
               size, block_.loop_chunks);
      }
      range.count = block_.loop_chunks * memory_.per_chunk / kIterations;
      range.begin += *block_.iteration * range.count;
    }
    return range;
  }

  /// One thread block of a group has a part of it.
  void share(Range& range, const Json& group) const {
    const std::uint32_t blocks = count(group, "tbg_size");
    const std::uint32_t part = count(group, "tb_id");
    if (part >= blocks) refuse("tb_id is {}; allowed is less than tbg_size", part);
    range.count /= blocks;
    range.begin += part * range.count;
  }

  std::vector<Range> ranges_of(const Json& op, const char* key, Channel type, std::size_t least) {
    std::vector<Range> ranges;
    for (const Json& each : array(op, key)) {
      ranges.push_back(range_of(op, each, type));
      accesses_ += std::size_t{ranges.back().count} * ranges.back().ranks.size();
    }
    if (accesses_ > kMostAccesses) fail("MSCCL++: more than {} pieces move", kMostAccesses);
    if (ranges.size() < least) refuse("{} has {} entries; it needs {}", key, ranges.size(), least);
    return ranges;
  }

  /// Moves of all pieces of ranges: [from] is added, and goes to all of [to].
  std::vector<Move> moves_of(std::span<const Range> from, std::span<const Range> to) {
    std::vector<Move> moves(from.front().count);
    const auto append = [&](const Range& range, std::vector<MemoryPiece> Move::* pieces) {
      if (range.count != moves.size()) refuse("sizes in src_buff and dst_buff differ");
      require_kind(range);
      for (const Rank rank : range.ranks) {
        std::uint32_t piece = memory_.begin(range.buffer, rank) + range.begin;
        for (Move& move : moves) {
          (move.*pieces).push_back({rank, piece++, range.has_flags, range.is_waited_for});
        }
      }
    };
    for (const Range& range : from) append(range, &Move::from);
    for (const Range& range : to) append(range, &Move::to);
    return moves;
  }

  /// A packet takes twice the room of what it holds, so that other chunks lie there than plain ones.
  void require_kind(const Range& range) {
    const bool in_scratch = range.buffer == Buffer::scratch;
    if (in_scratch && !scratch_has_packets_) scratch_has_packets_ = range.has_flags;
    if (range.has_flags == (in_scratch && *scratch_has_packets_)) return;
    refuse("packets stand in scratch, and there nothing else does");
  }

  /// Copies and puts are one to one (a put may have one source for all); in a switch, the sum of all
  /// goes to all.
  void read_moves(const Json& op, Operation operation) {
    const bool is_put = operation.kind == Kind::put;
    if (block_.iteration && operation.is(kReadsFlags | kWritesFlags)) {
      refuse("packets in a pipeline are not read");
    }
    Names<Channel> allowed = is_put ? kToPeers : Names<Channel>(kChannels);
    if (operation.is(kSignals)) allowed = kToPeers.last(1);
    const Channel type = op.contains("channel_type") ? named(allowed, op, "channel_type") : kMemory;
    std::vector<Range> from = ranges_of(op, "src_buff", type, 1);
    std::vector<Range> to = ranges_of(op, "dst_buff", type, operation.is(kKeepsPackets) ? 2 : 1);
    if (operation.kind == Kind::sum) return add_sums(operation, from, to);
    if (is_put && from.size() == 1) from.resize(to.size(), from.front());
    if (from.size() != to.size()) {
      refuse("src_buff has {} entries, dst_buff {}", from.size(), to.size());
    }
    const bool is_by_proxy = is_put && type == kPort;
    const auto ports = is_by_proxy ? channels_of(op, kPort) : std::vector<std::uint32_t>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      // A proxy sends packets as they stand.
      from[i].has_flags = operation.is(is_by_proxy ? kReadsFlags | kWritesFlags : kReadsFlags);
      from[i].is_waited_for = !is_by_proxy || operation.is(kReadsFlags);
      to[i].has_flags = operation.is(kWritesFlags);
      std::vector<Move> moves = moves_of({&from[i], 1}, {&to[i], 1});
      if (!is_by_proxy) {
        add_moves(std::move(moves), operation);
        continue;
      }
      const Rank peer = to[i].ranks.front();
      if (i >= ports.size() || gpus_[block_.rank].channels[kPort][ports[i]].first != peer) {
        refuse("it puts to gpu {}, but has no port channel there", peer);
      }
      ask_proxy(ports[i], operation, std::move(moves));
    }
  }

  /// Plain addends begin with the first; packets are added to zero, and the first behind them.
  void add_sums(Operation operation, std::vector<Range>& from, std::vector<Range>& to) {
    for (Range& range : std::span(from).subspan(1)) range.has_flags = operation.is(kReadsFlags);
    for (Range& range : std::span(to).subspan(1)) range.has_flags = operation.is(kWritesFlags);
    if (operation.is(kKeepsPackets)) to[1].has_flags = true;
    if (operation.is(kReadsFlags)) std::ranges::rotate(from, from.begin() + 1);
    std::vector<Move> moves = moves_of(from, to);
    for (Move& move : moves) move.starts_from_zero = operation.is(kReadsFlags);
    add_moves(std::move(moves), operation);
  }

  BlockProgram program_;
  BlockMemory& memory_ = program_.memory;
  std::vector<Gpu> gpus_;
  Block block_;
  std::optional<bool> scratch_has_packets_ = {};
  std::size_t actions_ = 0;
  std::size_t accesses_ = 0;
  std::map<std::pair<Rank, std::uint32_t>, std::uint32_t> proxies_;
  std::map<std::pair<Rank, std::string>, std::size_t> counters_;
};

}  // namespace

WrittenSchedule schedule_from_plan(const nlohmann::json& plan) {
  return schedule_from_blocks(PlanReader(plan).program());
}

}  // namespace arlab
