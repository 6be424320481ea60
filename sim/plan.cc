#include "sim/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "reference/codecs/registry.h"
#include "reference/collectives/executor.h"
#include "reference/wide_count.h"
#include "sim/network/engine.h"

namespace arlab {
namespace {

// ---------------------------------------------------------------- input

void require_well_formed(const Schedule& s) {
  const auto require = [&s](bool condition, const char* what, std::size_t index) {
    if (!condition) fail("schedule '{}': {} {}", s.algorithm, what, index);
  };
  if (s.row != 0) fail("schedule '{}' has tails: simulated is one without", s.algorithm);
  require(s.world_size >= 1 && s.elements >= 1, "it has no ranks or no elements; ranks are",
          s.world_size);
  for (std::size_t i = 0; i < s.chunks.size(); ++i) {
    require(s.chunks[i].begin < s.chunks[i].end && s.chunks[i].end <= s.elements,
            "empty, or reaches beyond the tensor: chunk", i);
  }
  // An operand stands before its user, so nothing waits for itself.
  const auto exists = [](ValueId id, std::size_t before) {
    return id == kOwnInput || id == kElsewhere || id < before;
  };
  for (std::size_t i = 0; i < s.ops.size(); ++i) {
    const Op& op = s.ops[i];
    require(op.rank < s.world_size && op.chunk < s.chunks.size(),
            "refers to a rank or chunk that does not exist: op", i);
    require(i == 0 || s.ops[i - 1].step <= op.step, "its ops are not in the order of steps: op", i);
    if (op.kind == OpKind::send) {
      require(op.peer < s.world_size && op.peer != op.rank, "has no other rank as its peer: op", i);
    }
    if (op.kind == OpKind::reduce) {
      require(op.addend_count >= 1 && op.first_addend <= s.addends.size() &&
                  op.addend_count <= s.addends.size() - op.first_addend,
              "has no addends, or some outside the list of addends: op", i);
    }
    for (const ValueId operand : s.operands(op)) {
      require(exists(operand, i), "uses a value that does not exist yet: op", i);
      if (operand == kOwnInput || operand == kElsewhere) continue;
      const Op& maker = s.ops[operand];
      const bool sent = maker.kind == OpKind::send;
      require((sent ? maker.peer : maker.rank) == op.rank, "uses a value of another rank: op", i);
      require(!sent || maker.step < op.step, "uses what is sent in its own step: op", i);
    }
  }
  for (std::size_t i = 0; i < s.outputs.size(); ++i) {
    const Output& output = s.outputs[i];
    require(output.rank < s.world_size && output.chunk < s.chunks.size() &&
                exists(output.value, s.ops.size()),
            "refers to a rank, chunk or value that does not exist: output", i);
    if (output.value == kOwnInput || output.value == kElsewhere) continue;
    const Op& maker = s.ops[output.value];
    require((maker.kind == OpKind::send ? maker.peer : maker.rank) == output.rank,
            "is a value of another rank: output", i);
  }
}

/// A stage counts elements in 64 bits.
constexpr std::uint64_t kMostWorkedOn = std::uint64_t{1} << 62;

void require_countable(const Schedule& s) {
  WideCount worked_on = 0;
  for (const Op& op : s.ops) {
    worked_on += WideCount{s.chunks[op.chunk].size()} * s.operands(op).size();
  }
  for (const Output& output : s.outputs) worked_on += s.chunks[output.chunk].size();
  if (worked_on > kMostWorkedOn) {
    fail(
        "schedule '{}': its ops work on more than {} elements together, which is all that can be "
        "counted",
        s.algorithm, kMostWorkedOn);
  }
}

constexpr double kMostOpsPerElement = 1e6;
constexpr double kSmallestEfficiency = 1e-3;

void require_fitting(const Schedule& schedule, const Codec& codec, DType dtype) {
  codec.wire_bytes(dtype, schedule.elements);  // throws for a wrong dtype and for too many elements
  for (const double ops :
       {codec.info().cost.encode_ops_per_element, codec.info().cost.decode_ops_per_element}) {
    if (!(ops >= 0 && ops <= kMostOpsPerElement)) {
      fail("codec {}: its cost per element must be a number from 0 to {}", codec.name(),
           kMostOpsPerElement);
    }
  }
  const double efficiency = codec.info().cost.store_efficiency;
  if (!(efficiency >= kSmallestEfficiency && efficiency <= 1)) {
    fail("codec {}: its store efficiency must be a number from {} to 1", codec.name(),
         kSmallestEfficiency);
  }
}

void require_fitting(const Schedule& schedule, const Codecs& codecs, DType dtype) {
  require_fitting(schedule, codecs.outer(), dtype);
  require_fitting(schedule, codecs.inner(), dtype);
  require_whole_blocks(schedule, codecs);
}

// ---------------------------------------------------------------- planning

constexpr std::uint32_t kNone = UINT32_MAX;

/// (maker, stage) pairs become lists by maker, each in the order of stages.
template <class Item, class Assign>
void make_lists(const std::vector<std::pair<std::uint32_t, StageId>>& pairs,
                std::vector<StageId>& list, std::vector<Item>& items, Assign assign) {
  std::vector<std::uint32_t> first(items.size() + 1, 0);
  for (const auto& [maker, stage] : pairs) ++first[maker + 1];
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<std::uint32_t> next = first;
  list.resize(pairs.size());
  for (const auto& [maker, stage] : pairs) list[next[maker]++] = stage;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (first[i + 1] == first[i]) continue;
    std::sort(list.begin() + first[i], list.begin() + first[i + 1]);
    assign(items[i], first[i], first[i + 1] - first[i]);
  }
}

/// Waits for a message or for a stage, as pairs of its number and the waiting stage.
using Waits = std::vector<std::pair<std::uint32_t, StageId>>;

void link(Plan& plan, const Waits& for_messages, const Waits& for_stages) {
  make_lists(for_messages, plan.consumers, plan.messages,
             [](PlannedMessage& m, std::uint32_t first, std::uint32_t count) {
               m.first_consumer = first;
               m.consumers = count;
             });
  make_lists(for_stages, plan.dependents, plan.stages,
             [](Stage& s, std::uint32_t first, std::uint32_t count) {
               s.first_dependent = first;
               s.dependents = count;
             });
}

/// Works through a schedule step by step.
class Planner {
 public:
  Planner(const Schedule& schedule, const Codecs& codecs, DType dtype)
      : s_(schedule), has_inner_(codecs.differ()), sums_of_codes_(sums_of_codes(schedule, codecs)) {
    plan_.collective = s_.collective;
    plan_.algorithm = s_.algorithm;
    plan_.world_size = s_.world_size;
    plan_.elements = s_.elements;
    for (const Chunk& chunk : s_.chunks) {
      plan_.largest_chunk = std::max(plan_.largest_chunk, chunk.size());
    }
    plan_.dtype = dtype;
    plan_.codec = codecs.outer().name();
    plan_.cost = codecs.outer().info().cost;
    const auto wire_bytes = [dtype](const Codec& codec, std::uint64_t elements) {
      return static_cast<std::uint64_t>(codec.wire_bytes(dtype, elements));
    };
    const auto per_element = [&](const Codec& codec) {
      return static_cast<double>(wire_bytes(codec, s_.elements)) / static_cast<double>(s_.elements);
    };
    const auto of_chunks = [&](const Codec& codec, std::vector<std::uint64_t>& list) {
      list.reserve(s_.chunks.size());
      for (const Chunk& chunk : s_.chunks) list.push_back(wire_bytes(codec, chunk.size()));
    };
    plan_.wire_bytes_per_element = per_element(codecs.outer());
    of_chunks(codecs.outer(), wire_bytes_);
    if (has_inner_) {
      plan_.inner_codec = codecs.inner().name();
      plan_.inner_cost = codecs.inner().info().cost;
      plan_.inner_wire_bytes_per_element = per_element(codecs.inner());
      of_chunks(codecs.inner(), inner_wire_bytes_);
    }
    if (const auto agreement = agreement_of(s_, codecs)) {
      const CodecPtr plain = find_codec("fp32");
      plan_.agreement =
          std::make_shared<const Plan>(arlab::plan_of(*agreement, *plain, DType::fp32));
    }
    made_by_.assign(s_.ops.size(), kNone);
    const auto sends = std::count_if(s_.ops.begin(), s_.ops.end(),
                                     [](const Op& op) { return op.kind == OpKind::send; });
    plan_.messages.reserve(static_cast<std::size_t>(sends));
    consumers_.reserve(static_cast<std::size_t>(sends));
  }

  Plan finish() {
    for (std::size_t begin = 0; begin < s_.ops.size();) {
      std::size_t end = begin;
      while (end < s_.ops.size() && s_.ops[end].step == s_.ops[begin].step) ++end;
      plan_step(begin, end);
      begin = end;
    }
    plan_outputs();
    link_consumers();
    return std::move(plan_);
  }

 private:
  /// A stage's wait: for a message, or for an earlier stage of its rank.
  struct Wait {
    std::uint32_t root = 0;  ///< op that stands for its component
    bool is_message = false;
    /// The order among the waits of a rank: messages by step, then by the ascending distance of
    /// their senders, so that no rank comes first at all others.
    std::uint64_t order = 0;
    std::uint32_t id = 0;
    bool operator==(const Wait&) const = default;
    auto operator<=>(const Wait&) const =
        default;  // NOLINT(modernize-use-nullptr): of the compiler
  };

  bool is_send(ValueId id) const { return s_.ops[id].kind == OpKind::send; }
  bool is_encoded(ValueId id) const {
    return id != kOwnInput &&
           (id == kElsewhere || s_.ops[id].kind != OpKind::reduce || sums_of_codes_[id]);
  }
  /// A sum that is made and sent on without a codec's work.
  bool is_sum_of_codes(ValueId id) const { return is_op(id) && sums_of_codes_[id].has_value(); }
  static bool is_op(ValueId id) { return id != kOwnInput && id != kElsewhere; }
  /// Whether the inner codec encodes or has encoded it, where that is another one.
  bool is_inner(ValueId id) const {
    return has_inner_ && is_op(id) && s_.ops[id].codec == CodecRole::inner;
  }

  // ---- components of a step: ops that feed each other or the same message

  std::uint32_t root_of(std::uint32_t op) const {
    while (parent_[op - begin_] != op) {
      parent_[op - begin_] = parent_[parent_[op - begin_] - begin_];
      op = parent_[op - begin_];
    }
    return op;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    a = root_of(a);
    b = root_of(b);
    if (a != b) parent_[std::max(a, b) - begin_] = std::min(a, b);
  }

  void plan_step(std::size_t begin, std::size_t end) {
    begin_ = static_cast<std::uint32_t>(begin);
    parent_.resize(end - begin);
    std::iota(parent_.begin(), parent_.end(), begin_);
    sends_.clear();
    for (std::uint32_t i = begin_; i < end; ++i) {
      const Op& op = s_.ops[i];
      if (op.kind == OpKind::send) sends_.push_back(i);
      for (const ValueId operand : s_.operands(op)) {
        if (is_op(operand) && operand >= begin_) join(i, operand);
      }
    }
    sort_sends();
    for (std::size_t i = 1; i < sends_.size(); ++i) {
      if (same_message(sends_[i - 1], sends_[i])) join(sends_[i - 1], sends_[i]);
    }
    merge_equal_waits(end);
    add_stages(end);
    add_messages();
  }

  /// Sorts by rank, then by `before`. A million items are grouped by rank first, so that what has
  /// to be sorted is small, and often in order already.
  template <class Item, class RankOf, class Before>
  void sort_by_rank(std::vector<Item>& items, RankOf rank_of, Before before) const {
    if (items.size() < s_.world_size) {
      std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
        return rank_of(a) != rank_of(b) ? rank_of(a) < rank_of(b) : before(a, b);
      });
      return;
    }
    std::vector<std::size_t> end(s_.world_size, 0);  // by rank
    for (const Item& item : items) ++end[rank_of(item)];
    std::exclusive_scan(end.begin(), end.end(), end.begin(), std::size_t{0});
    std::vector<Item> grouped(items.size());
    for (const Item& item : items) grouped[end[rank_of(item)]++] = item;
    items = std::move(grouped);
    auto first = items.begin();
    for (const std::size_t last : end) {
      const auto next = items.begin() + static_cast<std::ptrdiff_t>(last);
      if (!std::is_sorted(first, next, before)) std::sort(first, next, before);
      first = next;
    }
  }

  /// By rank, then by the ascending distance of the peer, then by number.
  void sort_sends() {
    struct Send {
      Rank rank;
      Rank distance;
      std::uint32_t op;
    };
    std::vector<Send> sends;
    sends.reserve(sends_.size());
    for (const std::uint32_t send : sends_) {
      const Op& op = s_.ops[send];
      sends.push_back({op.rank, ascending_distance(op.rank, op.peer), send});
    }
    sort_by_rank(
        sends, [](const Send& send) { return send.rank; },
        [](const Send& a, const Send& b) {
          return a.distance != b.distance ? a.distance < b.distance : a.op < b.op;
        });
    for (std::size_t i = 0; i < sends.size(); ++i) sends_[i] = sends[i].op;
  }

  bool same_message(std::uint32_t a, std::uint32_t b) const {
    return s_.ops[a].rank == s_.ops[b].rank && s_.ops[a].peer == s_.ops[b].peer;
  }

  Wait wait_of(std::uint32_t op, ValueId operand) const {
    const std::uint32_t id = made_by_[operand];
    if (!is_send(operand)) return {root_of(op), false, id, id};
    const std::uint64_t step = s_.ops[operand].step;
    return {root_of(op), true,
            step << 32 | ascending_distance(s_.ops[op].rank, s_.ops[operand].rank), id};
  }

  /// How many ranks further `to` is than `from`, past the last one to the first.
  Rank ascending_distance(Rank from, Rank to) const {
    return (to + s_.world_size - from) % s_.world_size;
  }

  /// Components of a rank that wait for the same become one. roots_ then has one op of each, in an
  /// order that does not depend on that of the ops.
  void merge_equal_waits(std::size_t end) {
    waits_.clear();
    for (std::uint32_t i = begin_; i < end; ++i) {
      for (const ValueId operand : s_.operands(s_.ops[i])) {
        if (!is_op(operand) || operand >= begin_) continue;
        waits_.push_back(wait_of(i, operand));
      }
    }
    sort_waits();

    struct Component {
      Rank rank;
      std::uint32_t root;
      std::size_t first;
      std::size_t last;
    };
    std::vector<Component> components;
    std::size_t wait = 0;
    for (std::uint32_t i = begin_; i < end; ++i) {
      if (root_of(i) != i) continue;
      const std::size_t first = wait;
      while (wait < waits_.size() && waits_[wait].root == i) ++wait;
      components.push_back({s_.ops[i].rank, i, first, wait});
    }
    const auto waits_before = [this](const Component& a, const Component& b) {
      return std::lexicographical_compare(
          waits_.begin() + static_cast<std::ptrdiff_t>(a.first),
          waits_.begin() + static_cast<std::ptrdiff_t>(a.last),
          waits_.begin() + static_cast<std::ptrdiff_t>(b.first),
          waits_.begin() + static_cast<std::ptrdiff_t>(b.last), [](const Wait& x, const Wait& y) {
            return std::tuple(x.is_message, x.order) < std::tuple(y.is_message, y.order);
          });
    };
    sort_by_rank(
        components, [](const Component& c) { return c.rank; },
        [&](const Component& a, const Component& b) {
          if (waits_before(a, b)) return true;
          if (waits_before(b, a)) return false;
          return a.root < b.root;
        });
    roots_.clear();
    for (std::size_t i = 0; i < components.size(); ++i) {
      const Component& b = components[i];
      const bool as_before =
          i > 0 && components[i - 1].rank == b.rank && !waits_before(components[i - 1], b);
      if (as_before) {
        join(components[i - 1].root, b.root);
      } else {
        roots_.push_back(b.root);
      }
    }
    for (std::uint32_t& root : roots_) root = root_of(root);
    for (Wait& w : waits_) w.root = root_of(w.root);
    sort_waits();
  }

  void sort_waits() {
    if (!std::is_sorted(waits_.begin(), waits_.end())) std::sort(waits_.begin(), waits_.end());
    waits_.erase(std::unique(waits_.begin(), waits_.end()), waits_.end());
  }

  void add_stages(std::size_t end) {
    stage_of_root_.assign(end - begin_, kNone);
    for (const std::uint32_t root : roots_) {
      const Op& op = s_.ops[root];
      const auto id = static_cast<std::uint32_t>(plan_.stages.size());
      stage_of_root_[root - begin_] = id;
      plan_.stages.push_back({.step = op.step, .rank = op.rank});
      StagesOfRank& stages =
          stages_of_rank_.try_emplace(step_and_rank(op.step, op.rank), StagesOfRank{id, 0})
              .first->second;
      ++stages.count;
    }
    for (std::uint32_t i = begin_; i < end; ++i) {
      const Op& op = s_.ops[i];
      const std::uint32_t id = stage_of_root_[root_of(i) - begin_];
      made_by_[i] = id;  // messages overwrite this
      Stage& stage = plan_.stages[id];
      const std::uint64_t elements = s_.chunks[op.chunk].size();
      if (op.kind == OpKind::send) continue;
      stage.chunk = std::max(stage.chunk, elements);
      for (const ValueId operand : s_.operands(op)) {
        const bool is_own = is_op(operand) && operand >= begin_;  // in registers
        if (!is_own) stage.loaded += elements;
        if (sums_of_codes_[i]) {
          if (operand == kOwnInput) stage.encoded += elements;
          continue;
        }
        if (!is_encoded(operand) || (op.kind == OpKind::encode && is_sum_of_codes(operand)))
          continue;
        stage.decoded += elements;
        if (is_inner(operand)) stage.inner.decoded += elements;
        if (is_own) continue;
        stage.received += elements;
        if (is_inner(operand)) stage.inner.received += elements;
      }
      const bool encodes = op.kind == OpKind::encode && !is_sum_of_codes(op.source);
      if (encodes) stage.encoded += elements;
      if (encodes && is_inner(i)) stage.inner.encoded += elements;
      if (op.kind == OpKind::reduce) {
        stage.added += elements * (op.addend_count - (op.start == Start::first ? 1 : 0));
      }
    }
    for (const Wait& wait : waits_) {
      const StageId stage = stage_of_root_[wait.root - begin_];
      ++plan_.stages[stage].awaited;
      (wait.is_message ? consumers_ : dependents_).emplace_back(wait.id, stage);
    }
  }

  void add_messages() {
    std::vector<std::pair<StageId, std::uint32_t>> firsts;  // by stage, then receiver
    for (std::size_t i = 0; i < sends_.size(); ++i) {
      if (i > 0 && same_message(sends_[i - 1], sends_[i])) continue;
      firsts.emplace_back(stage_of_root_[root_of(sends_[i]) - begin_],
                          static_cast<std::uint32_t>(i));
    }
    if (!std::is_sorted(firsts.begin(), firsts.end())) std::sort(firsts.begin(), firsts.end());
    for (const auto& [stage, first] : firsts) {
      const auto id = static_cast<MessageId>(plan_.messages.size());
      const Op& op = s_.ops[sends_[first]];
      if (plan_.stages[stage].messages++ == 0) plan_.stages[stage].first_message = id;
      PlannedMessage message{.from = op.rank, .to = op.peer, .stage = stage};
      for (std::size_t i = first; i < sends_.size() && same_message(sends_[first], sends_[i]);
           ++i) {
        const ChunkId chunk = s_.ops[sends_[i]].chunk;
        const bool inner = is_inner(sends_[i]);
        message.bytes += inner ? inner_wire_bytes_[chunk] : wire_bytes_[chunk];
        if (inner) message.inner_bytes += inner_wire_bytes_[chunk];
        if (message.bytes > kMaxMessageBytes) {
          fail("schedule '{}': rank {} sends rank {} more than {} bytes in step {}", s_.algorithm,
               op.rank, op.peer, kMaxMessageBytes, op.step);
        }
        message.elements += s_.chunks[chunk].size();
        made_by_[sends_[i]] = id;
      }
      plan_.messages.push_back(message);
    }
    find_what_is_sent_alike(firsts);
  }

  /// Whether a stage sends every other rank the same values.
  void find_what_is_sent_alike(const std::vector<std::pair<StageId, std::uint32_t>>& firsts) {
    const auto source_at = [this](std::size_t first, std::size_t i) {
      const bool is_part = i < sends_.size() && same_message(sends_[first], sends_[i]);
      return is_part ? std::optional(s_.ops[sends_[i]].source) : std::nullopt;
    };
    const auto same_values = [&](std::size_t a, std::size_t b) {
      for (std::size_t i = 0;; ++i) {
        const auto value = source_at(a, a + i);
        if (value != source_at(b, b + i)) return false;
        if (!value) return true;
      }
    };
    for (std::size_t i = 0; i < firsts.size();) {
      const std::size_t begin = i;
      bool alike = true;
      for (; i < firsts.size() && firsts[i].first == firsts[begin].first; ++i) {
        alike = alike && same_values(firsts[begin].second, firsts[i].second);
      }
      Stage& stage = plan_.stages[firsts[begin].first];
      stage.sends_alike = alike && stage.messages + 1 == s_.world_size;
    }
  }

  /// The stage that sends to the rank that an output comes from decodes it: both sides of an
  /// exchange. Only for ranks with several stages in the step.
  using Exchanges = std::map<std::tuple<std::uint32_t, Rank, Rank>, StageId>;
  Exchanges exchanges_of_several_stages() const {
    Exchanges exchanges;
    for (StageId id = 0; id < plan_.stages.size(); ++id) {
      const Stage& stage = plan_.stages[id];
      if (stages_of_rank_.at(step_and_rank(stage.step, stage.rank)).count == 1) continue;
      for (std::uint32_t i = 0; i < stage.messages; ++i) {
        const Rank to = plan_.messages[stage.first_message + i].to;
        exchanges[{stage.step, stage.rank, to}] = id;
      }
    }
    return exchanges;
  }

  void plan_outputs() {
    const Exchanges exchanges = exchanges_of_several_stages();
    std::vector<bool> is_awaited(plan_.messages.size(), false);
    for (const auto& [message, stage] : consumers_) is_awaited[message] = true;
    for (const Output& output : s_.outputs) {
      if (!is_op(output.value)) continue;
      const std::uint64_t elements = s_.chunks[output.chunk].size();
      const std::uint64_t of_inner = is_inner(output.value) ? elements : 0;
      const std::uint32_t maker = made_by_[output.value];
      if (!is_send(output.value)) {
        write_output(plan_.stages[maker], elements, is_encoded(output.value), of_inner);
        continue;
      }
      const Op& op = s_.ops[output.value];
      const auto stages = stages_of_rank_.find(step_and_rank(op.step, op.peer));
      if (stages == stages_of_rank_.end()) {
        plan_.messages[maker].output_elements += elements;
        plan_.messages[maker].inner_output_elements += of_inner;
        continue;
      }
      const auto exchange = exchanges.find({op.step, op.peer, op.rank});
      const StageId stage = exchange == exchanges.end() ? stages->second.first : exchange->second;
      Stage& writer = plan_.stages[stage];
      write_output(writer, elements, true, of_inner);
      if (is_awaited[maker]) {
        writer.received += elements;
        writer.inner.received += of_inner;
        writer.loaded += elements;
      } else {
        writer.gathered += elements;
        writer.inner.gathered += of_inner;
      }
    }
  }

  static void write_output(Stage& stage, std::uint64_t elements, bool encoded,
                           std::uint64_t of_inner) {
    stage.chunk = std::max(stage.chunk, elements);
    if (encoded) stage.decoded += elements;
    stage.inner.decoded += of_inner;
    stage.written += elements;
  }

  void link_consumers() {
    link(plan_, consumers_, dependents_);
    count_extra_flags();
  }

  void count_extra_flags() {
    std::map<std::pair<std::uint32_t, Rank>, Rank> sent;  // by step and rank
    for (const Stage& stage : plan_.stages) {
      if (stage.messages > 0) sent[{stage.step, stage.rank}] += stage.messages;
    }
    // By stage, then step of the message. Nearly all stages wait for one step.
    struct Awaited {
      std::uint32_t step = 0;
      Rank count = 0;
    };
    std::vector<Awaited> first_step(plan_.stages.size());
    std::map<std::pair<StageId, std::uint32_t>, Rank> other_steps;
    for (const PlannedMessage& message : plan_.messages) {
      const std::uint32_t step = plan_.stages[message.stage].step;
      for (std::uint32_t i = 0; i < message.consumers; ++i) {
        const StageId stage = plan_.consumers[message.first_consumer + i];
        Awaited& awaited = first_step[stage];
        if (awaited.count == 0) awaited.step = step;
        ++(awaited.step == step ? awaited.count : other_steps[{stage, step}]);
      }
    }
    const auto add_flags = [&](StageId id, std::uint32_t step, Rank count) {
      Stage& stage = plan_.stages[id];
      const auto own = sent.find({step, stage.rank});
      const Rank paid = own == sent.end() ? 0 : own->second;
      if (count > paid) stage.extra_flags += count - paid;
    };
    for (StageId id = 0; id < plan_.stages.size(); ++id) {
      if (first_step[id].count > 0) add_flags(id, first_step[id].step, first_step[id].count);
    }
    for (const auto& [key, count] : other_steps) add_flags(key.first, key.second, count);
  }

  const Schedule& s_;
  const bool has_inner_;                                       ///< another codec than the outer one
  const std::vector<std::optional<CodecRole>> sums_of_codes_;  ///< by op
  Plan plan_;
  std::vector<std::uint64_t> wire_bytes_;        ///< by chunk
  std::vector<std::uint64_t> inner_wire_bytes_;  ///< likewise
  std::vector<std::uint32_t> made_by_;           ///< by op: message of a send, else stage

  // first op of the current step
  std::uint32_t begin_ = 0;
  mutable std::vector<std::uint32_t> parent_;  ///< shortened by looking
  std::vector<std::uint32_t> sends_;  ///< by rank, then by the ascending distance of the peer
  std::vector<Wait> waits_;           ///< by component
  std::vector<std::uint32_t> roots_;  ///< root of each component, in the order of stages
  std::vector<std::uint32_t> stage_of_root_;

  struct StagesOfRank {
    StageId first;
    std::uint32_t count;
  };
  static std::uint64_t step_and_rank(std::uint32_t step, Rank rank) {
    return std::uint64_t{step} << 32 | rank;
  }
  std::unordered_map<std::uint64_t, StagesOfRank> stages_of_rank_;  ///< only looked up
  Waits consumers_;
  Waits dependents_;
};

}  // namespace

Plan plan_of(const Schedule& schedule, const Codecs& codecs, DType dtype) {
  require_well_formed(schedule);
  require_fitting(schedule, codecs, dtype);
  require_countable(schedule);
  return Planner(schedule, codecs, dtype).finish();
}

// ---------------------------------------------------------------- multicast

Plan with_all_ranks(const Plan& repeated) {
  Plan plan = repeated;
  plan.repeats_rank_0 = false;
  plan.stages.clear();
  plan.messages.clear();
  plan.consumers.clear();
  plan.dependents.clear();
  const Rank n = repeated.world_size;
  const auto messages = static_cast<std::uint32_t>(repeated.messages.size());
  for (const Stage& own : repeated.stages) {
    for (Rank rank = 0; rank < n; ++rank) {
      Stage& stage = plan.stages.emplace_back(own);
      stage.rank = (own.rank + rank) % n;
      stage.first_message += rank * messages;
      stage.first_dependent = static_cast<std::uint32_t>(plan.dependents.size());
      for (std::uint32_t i = 0; i < own.dependents; ++i) {
        plan.dependents.push_back(repeated.dependents[own.first_dependent + i] * n + rank);
      }
    }
  }
  for (Rank rank = 0; rank < n; ++rank) {
    for (const PlannedMessage& own : repeated.messages) {
      PlannedMessage& message = plan.messages.emplace_back(own);
      message.from = (own.from + rank) % n;
      message.to = (own.to + rank) % n;
      message.stage = own.stage * n + rank;
      message.first_consumer = static_cast<std::uint32_t>(plan.consumers.size());
      for (std::uint32_t i = 0; i < own.consumers; ++i) {
        plan.consumers.push_back(repeated.consumers[own.first_consumer + i] * n + message.to);
      }
    }
  }
  return plan;
}

Plan with_multicast(Plan plan) {
  std::vector<PlannedMessage> messages;
  std::vector<StageId> consumers;
  for (Stage& stage : plan.stages) {
    const std::span<const PlannedMessage> own(plan.messages.data() + stage.first_message,
                                              stage.messages);
    const auto consumers_of = [&plan](const PlannedMessage& m) {
      return std::span<const StageId>(plan.consumers).subspan(m.first_consumer, m.consumers);
    };
    const auto add = [&](PlannedMessage message, std::span<const StageId> list) {
      message.first_consumer = static_cast<std::uint32_t>(consumers.size());
      message.consumers = static_cast<std::uint32_t>(list.size());
      consumers.insert(consumers.end(), list.begin(), list.end());
      messages.push_back(message);
    };
    stage.first_message = static_cast<std::uint32_t>(messages.size());
    const auto like_the_first = [&](const PlannedMessage& m) {
      return m.output_elements == own[0].output_elements &&
             (!plan.lists_one_rank() || std::ranges::equal(consumers_of(m), consumers_of(own[0])));
    };
    if (!stage.sends_alike || !std::all_of(own.begin(), own.end(), like_the_first)) {
      for (const PlannedMessage& m : own) add(m, consumers_of(m));
      continue;
    }
    std::vector<StageId> list;
    for (const PlannedMessage& m : own) {
      const auto more = consumers_of(m);
      if (list.empty() || !plan.lists_one_rank()) list.insert(list.end(), more.begin(), more.end());
    }
    PlannedMessage spread = own[0];
    spread.reach = Reach::multicast;
    // Flags go to every peer as before.
    stage.extra_flags += stage.messages - 1;
    stage.messages = 1;
    add(spread, list);
  }
  plan.messages = std::move(messages);
  plan.consumers = std::move(consumers);
  return plan;
}

// ---------------------------------------------------------------- phases

namespace {

void add(CodecWork& sum, const CodecWork& more) {
  sum.encoded += more.encoded;
  sum.decoded += more.decoded;
  sum.gathered += more.gathered;
  sum.received += more.received;
}

/// Adds one rank's work in one phase; its messages come later.
void add(Stage& sum, const Stage& more) {
  sum.sends_alike = more.messages == 0 ? sum.sends_alike : sum.messages == 0 && more.sends_alike;
  sum.messages += more.messages;
  sum.extra_flags += more.extra_flags;
  sum.encoded += more.encoded;
  sum.decoded += more.decoded;
  sum.added += more.added;
  sum.written += more.written;
  sum.gathered += more.gathered;
  sum.received += more.received;
  sum.loaded += more.loaded;
  sum.chunk = std::max(sum.chunk, more.chunk);
  add(sum.inner, more.inner);
}

/// `stage` decodes into the output what another has sent, or has received, in the phase before.
void decode_in(Stage& stage, const Stage& from, std::uint64_t elements, std::uint64_t inner) {
  if (elements > 0) stage.chunk = std::max(stage.chunk, from.chunk);
  for (std::uint64_t* each : {&stage.decoded, &stage.written, &stage.received, &stage.loaded}) {
    *each += elements;
  }
  stage.inner.decoded += inner;
  stage.inner.received += inner;
}

/// The phase of every stage. A phase ends with the sends of a step, and holds all that is done since the sends
/// before; but what a rank has encoded it reads from its own slot, after an exchange more, unless it
/// could be encoded in the phase before.
std::vector<std::uint32_t> phases_of(const Plan& plan) {
  std::vector<std::uint32_t> sending;  // steps, which stages are listed by
  for (const Stage& stage : plan.stages) {
    const bool is_new = sending.empty() || sending.back() != stage.step;
    if (stage.messages > 0 && is_new) sending.push_back(stage.step);
  }
  const auto sends_before = [&sending](std::uint32_t step) {
    return static_cast<std::size_t>(
        std::distance(sending.begin(), std::ranges::lower_bound(sending, step)));
  };
  std::vector<bool> waits_for_the_last(plan.stages.size(), false);  // exchange
  for (const PlannedMessage& message : plan.messages) {
    const std::size_t exchange = sends_before(plan.stages[message.stage].step);
    for (std::uint32_t i = 0; i < message.consumers; ++i) {
      const StageId stage = plan.consumers[message.first_consumer + i];
      if (sends_before(plan.stages[stage].step) == exchange + 1) waits_for_the_last[stage] = true;
    }
  }
  std::vector<std::uint32_t> more(plan.stages.size(), 0);  // exchanges since the sends before
  std::vector<std::uint32_t> most(sending.size() + 1, 0);
  for (StageId id = 0; id < plan.stages.size(); ++id) {
    const Stage& stage = plan.stages[id];
    const std::size_t interval = sends_before(stage.step);
    most[interval] = std::max(most[interval], more[id]);
    const bool is_early = interval > 0 && more[id] == 0 && !waits_for_the_last[id];
    for (std::uint32_t i = 0; i < stage.dependents; ++i) {
      const StageId later = plan.dependents[stage.first_dependent + i];
      if (sends_before(plan.stages[later].step) != interval) continue;
      const bool is_read = stage.encoded > 0 && plan.stages[later].decoded > 0;
      more[later] = std::max(more[later], more[id] + (is_read && !is_early ? 1 : 0));
    }
  }
  std::vector<std::uint32_t> first(sending.size() + 1, 0);  // phase since the sends before
  for (std::size_t i = 0; i < sending.size(); ++i) first[i + 1] = first[i] + most[i] + 1;
  std::vector<std::uint32_t> phases;
  for (StageId id = 0; id < plan.stages.size(); ++id) {
    const Stage& stage = plan.stages[id];
    const std::size_t interval = sends_before(stage.step);
    phases.push_back(first[interval] + (stage.messages > 0 ? most[interval] : more[id]));
  }
  return phases;
}

}  // namespace

Plan in_lock_step(Plan plan) {
  const std::vector<std::uint32_t> phases = phases_of(plan);
  std::vector<StageId> in_order(plan.stages.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  std::ranges::stable_sort(in_order, {}, [&phases](StageId id) { return phases[id]; });
  std::vector<Stage> stages;
  std::vector<StageId> new_id(plan.stages.size());
  std::vector<std::vector<StageId>> of_rank(plan.lists_one_rank() ? 1 : plan.world_size);
  for (const StageId id : in_order) {
    const Stage& stage = plan.stages[id];
    std::vector<StageId>& own = of_rank[stage.rank];
    if (own.empty() || stages[own.back()].step != phases[id]) {
      own.push_back(static_cast<StageId>(stages.size()));
      Stage& phase = stages.emplace_back();
      phase.step = phases[id];
      phase.rank = stage.rank;
      phase.channel = stage.channel;
    }
    add(stages[own.back()], stage);
    new_id[id] = own.back();
  }

  Waits for_messages;
  Waits for_stages;
  for (const std::vector<StageId>& own : of_rank) {
    for (std::size_t i = 0; i + 1 < own.size(); ++i) {
      Stage& stage = stages[own[i]];
      decode_in(stages[own[i + 1]], stage, stage.gathered, stage.inner.gathered);
      stage.decoded -= stage.gathered;
      stage.written -= stage.gathered;
      stage.inner.decoded -= stage.inner.gathered;
      stage.gathered = stage.inner.gathered = 0;
      for_stages.emplace_back(own[i], own[i + 1]);
    }
  }
  for (PlannedMessage& message : plan.messages) {
    message.stage = new_id[message.stage];
    message.consumers = 0;
  }
  std::ranges::stable_sort(plan.messages, {}, &PlannedMessage::stage);
  for (MessageId id = 0; id < plan.messages.size(); ++id) {
    PlannedMessage& message = plan.messages[id];
    if (id == 0 || plan.messages[id - 1].stage != message.stage) {
      stages[message.stage].first_message = id;
    }
    const std::uint32_t step = stages[message.stage].step;
    bool is_decoded_later = false;
    const auto arrives_at = [&](Rank rank) {
      const std::vector<StageId>& own = of_rank[plan.lists_one_rank() ? 0 : rank];
      const auto next = std::ranges::upper_bound(own, step, {},
                                                 [&](StageId stage) { return stages[stage].step; });
      if (next == own.end()) return;
      for_messages.emplace_back(id, *next);
      decode_in(stages[*next], stages[message.stage], message.output_elements,
                message.inner_output_elements);
      is_decoded_later = true;
    };
    if (message.reach == Reach::multicast && !plan.lists_one_rank()) {
      for (Rank up = 1; up < plan.world_size; ++up) {
        arrives_at((message.from + up) % plan.world_size);
      }
    } else {
      arrives_at(message.reach == Reach::reduction ? message.from : message.to);
    }
    if (is_decoded_later) message.output_elements = message.inner_output_elements = 0;
  }
  for (const Waits* waits : {&for_messages, &for_stages}) {
    for (const auto& [awaited, stage] : *waits) ++stages[stage].awaited;
  }
  plan.stages = std::move(stages);
  link(plan, for_messages, for_stages);
  return plan;
}

// ---------------------------------------------------------------- folding

namespace {

/// Extents of shifts under which both the fabric and the algorithm look the same; empty for none.
std::vector<Rank> common_shifts(const RankSymmetry& symmetry, Rank world_size,
                                std::span<const Rank> shifts, bool any) {
  if (any && symmetry.kind != RankSymmetry::none && symmetry.kind != RankSymmetry::grouped) {
    return {world_size};
  }
  const auto product = std::accumulate(shifts.begin(), shifts.end(), std::uint64_t{1},
                                       [](std::uint64_t a, Rank b) { return a * b; });
  if (!any && product != world_size)
    return {};  // the fabric has more devices than the schedule has ranks
  std::vector<Rank> own(shifts.begin(), shifts.end());
  switch (symmetry.kind) {
    case RankSymmetry::none:
      return {};
    case RankSymmetry::any:
      return own;
    case RankSymmetry::cyclic:
      if (std::count_if(own.begin(), own.end(), [](Rank e) { return e > 1; }) <= 1) {
        return {world_size};
      }
      return {};
    case RankSymmetry::grouped: {
      if (any) return {world_size / symmetry.group_size, symmetry.group_size};
      std::uint64_t suffix = 1;
      for (std::size_t i = own.size(); i > 0 && suffix < symmetry.group_size; --i) {
        suffix *= own[i - 1];
      }
      return suffix == symmetry.group_size ? own : std::vector<Rank>{};
    }
  }
  return {};
}

/// Whether rank 0 has several stages in a step that differ only in whom they have to do with. Which
/// of them is first when they can all begin is a matter of their ascending distance, and that no
/// longer looks the same when a shift has several digits.
bool has_like_stages(const Plan& plan) {
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t>;
  std::set<Key> seen;
  return std::any_of(plan.stages.begin(), plan.stages.end(), [&](const Stage& s) {
    return s.rank == 0 && s.uses_codec() &&
           !seen.emplace(s.step, s.awaited, s.encoded, s.decoded, s.added).second;
  });
}

/// Returns the image of 0 under a shift that takes `rank` to 0: digit by digit the negative.
Rank opposite(Rank rank, const std::vector<Rank>& extents) {
  Rank result = 0;
  Rank stride = 1;
  for (std::size_t i = extents.size(); i > 0; --i) {
    const Rank extent = extents[i - 1];
    const Rank digit = rank / stride % extent;
    result += (extent - digit) % extent * stride;
    stride *= extent;
  }
  return result;
}

/// Turns a part's plan around: messages to rank 0 disappear, and their consumers become those of
/// the messages from rank 0 that they are under a shift.
Plan fold(Plan part, const std::vector<Rank>& extents) {
  std::map<std::pair<std::uint32_t, Rank>, MessageId> outgoing;  // by step and receiver
  for (MessageId id = 0; id < part.messages.size(); ++id) {
    const PlannedMessage& message = part.messages[id];
    if (message.from == 0) outgoing[{part.stages[message.stage].step, message.to}] = id;
  }
  for (const PlannedMessage& incoming : part.messages) {
    if (incoming.from == 0) continue;
    const std::uint32_t step = part.stages[incoming.stage].step;
    PlannedMessage& own = part.messages[outgoing.at({step, opposite(incoming.from, extents)})];
    own.first_consumer = incoming.first_consumer;
    own.consumers = incoming.consumers;
    own.output_elements = incoming.output_elements;
    own.inner_output_elements = incoming.inner_output_elements;
  }
  // Stages of other ranks hold nothing but the sends to rank 0.
  Plan folded = part;
  folded.stages.clear();
  folded.messages.clear();
  std::vector<StageId> new_id(part.stages.size(), kNone);
  for (StageId id = 0; id < part.stages.size(); ++id) {
    if (part.stages[id].rank != 0) continue;
    new_id[id] = static_cast<StageId>(folded.stages.size());
    Stage stage = part.stages[id];
    const std::uint32_t first = stage.first_message;
    stage.first_message = static_cast<std::uint32_t>(folded.messages.size());
    for (std::uint32_t i = 0; i < stage.messages; ++i) {
      folded.messages.push_back(part.messages[first + i]);
      folded.messages.back().stage = new_id[id];
    }
    folded.stages.push_back(stage);
  }
  for (StageId& id : folded.consumers) id = new_id[id];
  for (StageId& id : folded.dependents) id = new_id[id];
  folded.ranks_per_rank = part.world_size;
  return folded;
}

}  // namespace

std::optional<Plan> folded_plan_of(const Algorithm& algorithm, const ScheduleRequest& request,
                                   const Codecs& codecs, DType dtype, std::span<const Rank> shifts,
                                   bool any) {
  if (!algorithm.symmetry || request.world_size < 2) return std::nullopt;
  // A message's codec follows from its use on other ranks.
  if (request.options.inner_place()) return std::nullopt;
  const std::vector<Rank> extents =
      common_shifts(algorithm.symmetry(request), request.world_size, shifts, any);
  if (extents.empty()) return std::nullopt;
  ScheduleRequest part = request;
  part.only_rank = 0;
  const Schedule schedule = make_schedule(algorithm.name, part);
  require_well_formed(schedule);
  require_fitting(schedule, codecs, dtype);
  require_countable(schedule);
  Plan plan = Planner(schedule, codecs, dtype).finish();
  const auto digits = std::count_if(extents.begin(), extents.end(), [](Rank e) { return e > 1; });
  if (digits > 1 && has_like_stages(plan)) return std::nullopt;
  return fold(std::move(plan), extents);
}

namespace {

/// Stages or messages of all ranks together. More would take gigabytes to simulate: 4096 ranks of two_shot, 2 GB, are still
/// possible.
constexpr std::size_t kMostCopies = std::size_t{1} << 25;

}  // namespace

std::optional<Plan> repeated_plan_of(const Algorithm& algorithm, const ScheduleRequest& request,
                                     const Codecs& codecs, DType dtype) {
  if (!algorithm.symmetry) return std::nullopt;
  const auto kind = algorithm.symmetry(request).kind;
  if (kind != RankSymmetry::any && kind != RankSymmetry::cyclic) return std::nullopt;
  std::optional<Plan> plan = folded_plan_of(algorithm, request, codecs, dtype, {}, true);
  if (!plan) return std::nullopt;
  const std::size_t most = std::max(plan->stages.size(), plan->messages.size());
  if (most > kMostCopies / request.world_size) return std::nullopt;
  plan->ranks_per_rank = 1;
  plan->repeats_rank_0 = true;
  return plan;
}

}  // namespace arlab
