#include "reference/collectives/schedule_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "reference/collectives/msccl_xml.h"
#include "reference/collectives/mscclpp_plan.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"
#include "reference/words.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

// ---------------------------------------------------------------- writing

Json head_to_json(const Schedule& schedule, ChunksAs chunks = ChunksAs::elements) {
  Json head = {{"schema", kScheduleSchema},
               {"collective", name_of(schedule.collective)},
               {"algorithm", schedule.algorithm},
               {"world_size", schedule.world_size}};
  if (!schedule.agreement.empty()) head["agreement"] = schedule.agreement;
  if (schedule.row != 0) head["row"] = schedule.row;
  if (chunks == ChunksAs::fractions) return head;
  head["elements"] = schedule.elements;
  head["alignment"] = schedule.alignment;
  return head;
}

/// So many elements as a fraction of a tensor.
std::string fraction_text(std::uint64_t elements, const Schedule& schedule) {
  const std::uint64_t common = std::gcd(elements, schedule.elements);
  return fmt::format("{}/{}", elements / common, schedule.elements / common);
}

// ---------------------------------------------------------------- reading

using Input = nlohmann::json;  // objects with logarithmic lookup, for files from anywhere

/// Nothing in a schedule nests deeper than an addend: file, ops, op, from. In a plan of MSCCL++ a
/// buffer in a pipeline does: file, gpus, gpu, threadblocks, threadblock, ops, op, ops, op, src_buff.
constexpr int kMaxDepth = 4;
constexpr int kMaxDepthOfPlan = 11;

/// Refuses JSON of other programs, told by a key of its first level that no schedule has.
void refuse_foreign(const std::string& key) {
  static constexpr std::pair<const char*, const char*> kForeign[] = {
      {"nodes", "an execution trace of PyTorch or Chakra"},
      {"traceEvents", "a timeline of Chrome's or PyTorch's profiler"},
      {"deviceProperties", "a timeline of PyTorch's profiler"},
      {"model_type", "a model's config.json"},
      {"weight_map", "an index of safetensors"}};
  for (const auto& [known, what] : kForeign) {
    if (key != known) continue;
    fail(
        "schedule: it is {} (its key '{}'), which is not read; allowed are arlab's schedules "
        "(arlab schedule prints them), MSCCL++'s execution plans and MSCCL's programs (.xml)",
        what, known);
  }
}

Input parse(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // seen so far, of each object that is open
  int most = kMaxDepth;
  const auto check = [&](int depth, Input::parse_event_t event, const Input& parsed) {
    switch (event) {
      case Input::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case Input::parse_event_t::array_start:
        if (depth >= most) fail("schedule: it nests deeper than {} levels", most);
        break;
      case Input::parse_event_t::key:
        if (keys.size() == 1) {
          refuse_foreign(parsed.get_ref<const std::string&>());
          if (parsed == "gpus") most = kMaxDepthOfPlan;
        }
        if (!keys.back().insert(parsed.get<std::string>()).second) {
          fail("schedule: the key {} stands twice in one object", quote(parsed.get<std::string>()));
        }
        break;
      case Input::parse_event_t::object_end:
        keys.pop_back();
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return Input::parse(text, check);
  } catch (const Input::parse_error& error) {
    fail("schedule: not JSON, at byte {}", error.byte);
  } catch (const Input::out_of_range&) {
    fail("schedule: a number is larger than any number can be");
  }
}

/// A value as it may stand in a message.
std::string shown(const Input& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return "an array";
  if (json.is_string()) return quote(json.get_ref<const std::string&>());
  return json.dump();
}

void allow(const Input& object, const std::string& where,
           std::initializer_list<std::string_view> keys) {
  if (!object.is_object())
    fail("schedule: {} is {}, not an object", where.empty() ? "the file" : where, shown(object));
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      fail("schedule: {}{}unknown key {}: {}", where, where.empty() ? "" : ": ", quote(key),
           instead_of(key, {{keys.begin(), keys.end()}, "allowed are"}));
    }
  }
}

// `where` is a view: from a std::string that is made for the call, GCC 13 and 14 fear that the result refers to it.
const Input& member(const Input& object, std::string_view where, const char* key) {
  const auto found = object.find(key);
  if (found == object.end())
    fail("schedule: {}{}{} is missing", where, where.empty() ? "" : ".", key);
  return *found;
}

template <class Integer>
Integer to_integer(const Input& json, const std::string& where) {
  constexpr std::uint64_t kMax = std::numeric_limits<Integer>::max();
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kMax) {
    fail("schedule: {} is {}, not an integer from 0 to {}", where, shown(json), kMax);
  }
  return json.get<Integer>();
}

template <class Integer>
Integer integer(const Input& object, const std::string& where, const char* key) {
  return to_integer<Integer>(member(object, where, key),
                             where.empty() ? key : fmt::format("{}.{}", where, key));
}

std::string text(const Input& object, const std::string& where, const char* key) {
  const Input& json = member(object, where, key);
  if (!json.is_string())
    fail("schedule: {}{}{} is {}, not a text", where, where.empty() ? "" : ".", key, shown(json));
  return json.get<std::string>();
}

std::string one_of(const Input& object, const std::string& where, const char* key,
                   const std::vector<std::string_view>& allowed) {
  const Input& json = member(object, where, key);
  const std::string name = json.is_string() ? json.get<std::string>() : std::string();
  if (std::ranges::find(allowed, name) != allowed.end()) return name;
  fail("schedule: {}{}{} is {}; allowed: {}", where, where.empty() ? "" : ".", key, shown(json),
       fmt::join(allowed, ", "));
}

const Input& array(const Input& object, std::string_view where, const char* key) {
  const Input& json = member(object, where, key);
  if (!json.is_array())
    fail("schedule: {}{}{} is {}, not an array", where, where.empty() ? "" : ".", key, shown(json));
  return json;
}

Collective collective_from_json(const Input& file) {
  std::vector<std::string_view> names;
  for (const CollectiveFacts& each : kCollectiveFacts) names.push_back(each.name);
  const std::string name = one_of(file, "", "collective", names);
  return *std::ranges::find(kCollectives, name, [](Collective c) { return name_of(c); });
}

OutputKind output_kind_from_json(const Input& output, const std::string& where) {
  const std::vector<std::string_view> names(std::begin(kOutputKindNames),
                                            std::end(kOutputKindNames));
  const std::string name = one_of(output, where, "tensor", names);
  return static_cast<OutputKind>(std::ranges::find(names, name) - names.begin());
}

ValueId value_from_json(const Input& json, const std::string& where) {
  if (json.is_string()) {
    if (json.get_ref<const std::string&>() == "input") return kOwnInput;
    fail("schedule: {} is {}; allowed: \"input\" or the index of an earlier op", where,
         shown(json));
  }
  const auto id = to_integer<ValueId>(json, where);
  if (id == kOwnInput) fail("schedule: {} is {}, which no op can have", where, id);
  return id;
}

Op op_from_json(const Input& json, const std::string& where, std::vector<ValueId>& addends) {
  if (!json.is_object()) fail("schedule: {} is {}, not an object", where, shown(json));
  const std::string kind = one_of(json, where, "op", {"encode", "send", "reduce", "tail"});
  Op op;
  op.step = integer<std::uint32_t>(json, where, "step");
  op.rank = integer<Rank>(json, where, "rank");
  op.chunk = integer<ChunkId>(json, where, "chunk");
  if (kind == "reduce") {
    allow(json, where, {"op", "step", "rank", "chunk", "start", "from"});
    op.kind = OpKind::reduce;
    op.start =
        one_of(json, where, "start", {"zero", "first"}) == "zero" ? Start::zero : Start::first;
    op.first_addend = static_cast<std::uint32_t>(addends.size());
    for (const Input& addend : array(json, where, "from")) {
      const std::string place = fmt::format("{}.from[{}]", where, addends.size() - op.first_addend);
      addends.push_back(value_from_json(addend, place));
    }
    op.addend_count = static_cast<std::uint32_t>(addends.size() - op.first_addend);
    return op;
  }
  op.kind = kind == "send" ? OpKind::send : kind == "tail" ? OpKind::tail : OpKind::encode;
  if (op.kind == OpKind::tail) {
    allow(json, where, {"op", "step", "rank", "chunk", "makes", "from"});
    const bool adds = one_of(json, where, "makes", {"residual", "normalized"}) == "residual";
    op.makes = adds ? OutputKind::residual : OutputKind::normalized;
  } else if (op.kind == OpKind::send) {
    allow(json, where, {"op", "step", "rank", "to", "chunk", "from"});
    op.peer = integer<Rank>(json, where, "to");
  } else {
    allow(json, where, {"op", "step", "rank", "chunk", "codec", "from"});
    if (json.contains("codec")) {
      const std::string codec = one_of(json, where, "codec", {"outer", "inner", "output"});
      op.codec = *std::ranges::find(kCodecRoles, codec, [](CodecRole r) { return name_of(r); });
    }
  }
  op.source = value_from_json(member(json, where, "from"), where + ".from");
  return op;
}

/// Text of a list of objects, as nlohmann::json writes it with an indent of one.
class ListWriter {
 public:
  struct OfValue {
    ValueId id;
  };
  static OfValue of_value(ValueId id) { return {id}; }

  explicit ListWriter(const std::function<void(std::string_view)>& write) : write_(write) {}
  ListWriter(const ListWriter&) = delete;
  ListWriter& operator=(const ListWriter&) = delete;
  ~ListWriter() = default;

  void begin(const char* name) {
    append(",\n \"{}\": [", name);
    is_first_ = true;
  }
  void end() {
    append("{}", is_first_ ? "]" : "\n ]");
    flush();
  }

  /// An object of numbers, and of texts that need no escapes.
  template <class... Values>
  void object(const Values&... values) {
    append("{}\n  {{", is_first_ ? "" : ",");
    is_first_ = false;
    is_first_member_ = true;
    (member(values.first, values.second), ...);
    append("\n  }}");
    constexpr std::size_t kMany = std::size_t{1} << 16;
    if (text_.size() > kMany) flush();
  }

 private:
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void begin_member(const char* name) {
    append("{}\n   \"{}\": ", is_first_member_ ? "" : ",", name);
    is_first_member_ = false;
  }
  void member(const char* name, std::uint64_t value) {
    begin_member(name);
    append("{}", value);
  }
  void member(const char* name, std::string_view value) {
    begin_member(name);
    append("\"{}\"", value);
  }
  void member(const char* name, std::span<const ValueId> values) {
    begin_member(name);
    append("[");
    for (std::size_t i = 0; i < values.size(); ++i) {
      append("{}\n    ", i == 0 ? "" : ",");
      append_value(values[i]);
    }
    append("{}", values.empty() ? "]" : "\n   ]");
  }
  void member(const char* name, OfValue value) {
    begin_member(name);
    append_value(value.id);
  }
  void append_value(ValueId id) {
    if (id == kOwnInput) {
      append("\"input\"");
    } else {
      append("{}", id);
    }
  }
  void flush() {
    write_({text_.data(), text_.size()});
    text_.clear();
  }

  const std::function<void(std::string_view)>& write_;
  fmt::memory_buffer text_;
  bool is_first_ = true;
  bool is_first_member_ = true;
};

template <class Value>
std::pair<const char*, Value> named(const char* name, Value value) {
  return {name, value};
}

void write_op(ListWriter& list, const Schedule& schedule, const Op& op) {
  const auto step = named("step", op.step);
  const auto rank = named("rank", op.rank);
  const auto chunk = named("chunk", op.chunk);
  switch (op.kind) {
    case OpKind::encode: {
      const auto from = named("from", ListWriter::of_value(op.source));
      if (op.codec == CodecRole::outer) {
        list.object(named("op", "encode"), step, rank, chunk, from);
      } else {
        list.object(named("op", "encode"), step, rank, chunk, named("codec", name_of(op.codec)),
                    from);
      }
      break;
    }
    case OpKind::send:
      list.object(named("op", "send"), step, rank, named("to", op.peer), chunk,
                  named("from", ListWriter::of_value(op.source)));
      break;
    case OpKind::reduce:
      list.object(named("op", "reduce"), step, rank, chunk,
                  named("start", op.start == Start::zero ? "zero" : "first"),
                  named("from", schedule.operands(op)));
      break;
    case OpKind::tail:
      list.object(named("op", "tail"), step, rank, chunk, named("makes", name_of(op.makes)),
                  named("from", ListWriter::of_value(op.source)));
      break;
  }
}

std::string dumped(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void write_schedule_json(const Schedule& schedule, const Json& more,
                         const std::function<void(std::string_view)>& write, ChunksAs chunks) {
  constexpr std::string_view kEnd = "\n}";
  const bool fractions = chunks == ChunksAs::fractions;
  const std::string head = dumped(head_to_json(schedule, chunks));
  write(std::string_view(head).substr(0, head.size() - kEnd.size()));
  ListWriter list(write);
  list.begin("chunks");
  for (const Chunk& chunk : schedule.chunks) {
    if (fractions) {
      list.object(named("begin", fraction_text(chunk.begin, schedule)),
                  named("end", fraction_text(chunk.end, schedule)));
    } else {
      list.object(named("begin", chunk.begin), named("end", chunk.end));
    }
  }
  list.end();
  list.begin("ops");
  for (const Op& op : schedule.ops) write_op(list, schedule, op);
  list.end();
  list.begin("outputs");
  for (const Output& output : schedule.outputs) {
    const auto rank = named("rank", output.rank);
    const auto chunk = named("chunk", output.chunk);
    const auto from = named("from", ListWriter::of_value(output.value));
    const auto write_output = [&](auto begin) {
      if (output.kind == OutputKind::sum) return list.object(rank, chunk, from, begin);
      list.object(rank, chunk, from, begin, named("tensor", name_of(output.kind)));
    };
    if (fractions) {
      const std::string begin = fraction_text(output.begin, schedule);
      write_output(named("begin", std::string_view(begin)));
    } else {
      write_output(named("begin", output.begin));
    }
  }
  list.end();
  if (more.empty()) {
    write(kEnd);
  } else {
    write(",");
    write(std::string_view(dumped(more)).substr(1));
  }
}

Json schedule_to_json(const Schedule& schedule) {
  std::string text;
  write_schedule_json(schedule, {}, [&](std::string_view more) { text += more; });
  return Json::parse(text);
}

namespace {

/// "p/q", at most 1.
WrittenSchedule::Fraction fraction_from_json(const Input& object, const std::string& where,
                                             const char* key) {
  constexpr std::uint64_t kMost = 1 << 20;  // times the elements of a tensor, it fits 64 bits
  const Input& json = member(object, where, key);
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    const char* const end = text.data() + text.size();
    std::uint64_t numerator = 0;
    std::uint64_t denominator = 0;
    const auto first = std::from_chars(text.data(), end, numerator);
    if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/') {
      const auto second = std::from_chars(first.ptr + 1, end, denominator);
      const bool is_fraction = second.ec == std::errc() && second.ptr == end;
      if (is_fraction && denominator != 0 && denominator <= kMost && numerator <= denominator) {
        return {numerator, denominator};
      }
    }
  }
  fail(
      "schedule: {}.{} is {}, not a fraction from \"0/1\" to \"1/1\" with a denominator of at most "
      "{}, which a schedule without elements needs",
      where, key, shown(json), kMost);
}

}  // namespace

WrittenSchedule written_schedule_from_json(std::string_view json_text) {
  const Input json = parse(json_text);
  if (json.is_object() && json.contains("gpus")) return schedule_from_plan(json);
  allow(json, "",
        {"schema", "collective", "algorithm", "world_size", "elements", "alignment", "agreement",
         "row", "chunks", "ops", "outputs", "group_size", "volume", "check"});
  one_of(json, "", "schema", {kScheduleSchema});
  WrittenSchedule written;
  Schedule& schedule = written.schedule_;
  schedule.collective = collective_from_json(json);
  schedule.algorithm = text(json, "", "algorithm");
  schedule.world_size = integer<Rank>(json, "", "world_size");
  if (json.contains("agreement")) schedule.agreement = text(json, "", "agreement");
  if (json.contains("row")) {
    schedule.row = integer<std::uint32_t>(json, "", "row");
    if (schedule.row == 0) fail("schedule: row is 0; allowed are 1 and more, or no row");
  }
  const Input& chunks = array(json, "", "chunks");
  const bool any_size =
      !json.contains("elements") && !json.contains("alignment") && !chunks.empty();
  if (!any_size) {
    schedule.elements = integer<std::uint64_t>(json, "", "elements");
    schedule.alignment = integer<std::uint64_t>(json, "", "alignment");
  }
  for (const Input& chunk : chunks) {
    const std::string where = fmt::format("chunks[{}]", schedule.chunks.size());
    allow(chunk, where, {"begin", "end"});
    if (any_size) {
      written.fractions_.emplace_back(fraction_from_json(chunk, where, "begin"),
                                      fraction_from_json(chunk, where, "end"));
      schedule.chunks.emplace_back();
    } else {
      schedule.chunks.push_back({integer<std::uint64_t>(chunk, where, "begin"),
                                 integer<std::uint64_t>(chunk, where, "end")});
    }
  }
  for (const Input& op : array(json, "", "ops")) {
    const std::string where = fmt::format("ops[{}]", schedule.ops.size());
    Op& read = schedule.ops.emplace_back(op_from_json(op, where, schedule.addends));
    const bool sends = read.kind == OpKind::send && read.source < schedule.ops.size();
    if (sends) read.codec = schedule.ops[read.source].codec;
  }
  for (const Input& output : array(json, "", "outputs")) {
    const std::string where = fmt::format("outputs[{}]", schedule.outputs.size());
    allow(output, where, {"rank", "chunk", "from", "begin", "tensor"});
    schedule.outputs.push_back({integer<Rank>(output, where, "rank"),
                                integer<ChunkId>(output, where, "chunk"),
                                value_from_json(member(output, where, "from"), where + ".from")});
    if (any_size) {
      written.begins_.push_back(fraction_from_json(output, where, "begin"));
    } else {
      schedule.outputs.back().begin = integer<std::uint64_t>(output, where, "begin");
    }
    if (output.contains("tensor")) {
      schedule.outputs.back().kind = output_kind_from_json(output, where);
    }
  }
  return written;
}

Schedule schedule_from_json(std::string_view json_text) {
  WrittenSchedule written = written_schedule_from_json(json_text);
  if (!written.has_size()) fail("schedule: elements is missing");
  return written.as_written();
}

namespace {

/// A Chakra trace begins with a message of its metadata, whose first field is its version: "0.0.4".
bool is_chakra(std::string_view text) {
  constexpr char kTextOfField1 = 10;
  if (text.size() < 4 || text[1] != kTextOfField1) return false;
  const auto length = static_cast<unsigned char>(text[2]);
  const std::string_view version = text.substr(3, length);
  return !version.empty() && static_cast<unsigned char>(text[0]) >= length + 2 &&
         version.find_first_not_of("0123456789.") == std::string_view::npos;
}

WrittenSchedule schedule_from_text(std::string_view text, const std::string& path) {
  if (is_chakra(text) || path.ends_with(".et")) {
    fail(
        "it is an execution trace of Chakra (.et), which is not read; allowed are arlab's "
        "schedules, "
        "MSCCL++'s execution plans (.json) and MSCCL's programs (.xml)");
  }
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_xml = first != std::string_view::npos && text[first] == '<';
  return is_xml ? schedule_from_msccl(text) : written_schedule_from_json(text);
}

}  // namespace

WrittenSchedule read_schedule(const std::string& path) {
  InputFile input{std::filesystem::path(path)};
  constexpr std::uint64_t kBytesPerCharacter = 10;  // JSON that has been read takes about as much
  require_memory(kBytesPerCharacter * input.remaining(), path);
  try {
    return schedule_from_text(input.read_rest(), path);
  } catch (const InvalidInput& error) {
    fail("{}: {}", path, error.what());
  }
}

std::uint64_t WrittenSchedule::boundary(const Fraction& fraction, std::uint64_t elements,
                                        std::uint64_t alignment) const {
  const std::uint64_t slots = has_slots(schedule_.collective) ? schedule_.world_size : 1;
  const std::uint64_t slot_elements = elements / slots;
  const std::uint64_t slot = fraction.numerator * slots / fraction.denominator;
  const std::uint64_t rest = fraction.numerator * slots % fraction.denominator;
  const std::uint64_t units = slot_elements / alignment + (slot_elements % alignment != 0 ? 1 : 0);
  const std::uint64_t count = (units * rest + fraction.denominator - 1) / fraction.denominator;
  const std::uint64_t inside =
      count > slot_elements / alignment ? slot_elements : count * alignment;
  return slot * slot_elements + inside;
}

Schedule WrittenSchedule::at(std::uint64_t elements, std::uint64_t alignment) const {
  if (has_size()) {
    if (elements != schedule_.elements) {
      fail("schedule '{}' is for {} elements per rank, not {}", schedule_.algorithm,
           schedule_.elements, elements);
    }
    return schedule_;
  }
  if (elements < 1 || elements > kMaxElements) {
    fail("{} elements per rank is out of range: allowed is 1 to {}", elements, kMaxElements);
  }
  if (alignment < 1) fail("an alignment is at least 1 element, not {}", alignment);
  if (schedule_.row != 0 && alignment <= UINT32_MAX) {
    alignment = std::lcm(alignment, schedule_.row);
  }
  if (has_slots(schedule_.collective) &&
      (schedule_.world_size == 0 || elements % schedule_.world_size != 0)) {
    fail("{}: {} elements per rank do not make {} equal slots: allowed are multiples of {}",
         schedule_.algorithm, elements, schedule_.world_size, schedule_.world_size);
  }
  Schedule result;
  result.collective = schedule_.collective;
  result.algorithm = schedule_.algorithm;
  result.world_size = schedule_.world_size;
  result.elements = elements;
  result.alignment = alignment;
  result.agreement = schedule_.agreement;
  result.row = schedule_.row;
  // References to an op that is left out are left out, too, or wrong, as check() will say.
  constexpr ChunkId kLeftOut = std::numeric_limits<ChunkId>::max();
  std::vector<ChunkId> chunk_id(fractions_.size(), kLeftOut);
  for (std::size_t i = 0; i < fractions_.size(); ++i) {
    const Chunk chunk = {boundary(fractions_[i].first, elements, alignment),
                         boundary(fractions_[i].second, elements, alignment)};
    // Empty for this size; one that is wrong for every size stays.
    const auto& [begin, end] = fractions_[i];
    const bool is_range = begin.numerator * end.denominator < end.numerator * begin.denominator;
    if (is_range && chunk.size() == 0) continue;
    chunk_id[i] = static_cast<ChunkId>(result.chunks.size());
    result.chunks.push_back(chunk);
  }
  const auto renamed = [](const std::vector<std::uint32_t>& ids, std::uint32_t id) {
    return id < ids.size() ? ids[id] : id;
  };
  const auto is_left_out = [&](ChunkId chunk) {
    return chunk < chunk_id.size() && chunk_id[chunk] == kLeftOut;
  };
  std::vector<ValueId> value_id;
  for (const Op& op : schedule_.ops) {
    if (is_left_out(op.chunk)) {
      value_id.push_back(kElsewhere);
      continue;
    }
    value_id.push_back(static_cast<ValueId>(result.ops.size()));
    Op kept = op;
    kept.chunk = renamed(chunk_id, op.chunk);
    if (op.kind == OpKind::reduce) {
      kept.first_addend = static_cast<std::uint32_t>(result.addends.size());
      for (const ValueId addend : schedule_.operands(op)) {
        result.addends.push_back(renamed(value_id, addend));
      }
    } else {
      kept.source = renamed(value_id, op.source);
    }
    result.ops.push_back(kept);
  }
  for (std::size_t i = 0; i < schedule_.outputs.size(); ++i) {
    if (is_left_out(schedule_.outputs[i].chunk)) continue;
    Output output = schedule_.outputs[i];
    output.chunk = renamed(chunk_id, output.chunk);
    output.value = renamed(value_id, output.value);
    output.begin = boundary(begins_[i], elements, alignment);
    result.outputs.push_back(output);
  }
  return result;
}

}  // namespace arlab
