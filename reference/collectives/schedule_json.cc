#include "reference/collectives/schedule_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

// ---------------------------------------------------------------- writing

Json value_to_json(ValueId id) { return id == kOwnInput ? Json("input") : Json(id); }

Json op_to_json(const Schedule& schedule, const Op& op) {
  Json json;
  switch (op.kind) {
    case OpKind::encode:
      json = {{"op", "encode"}, {"step", op.step}, {"rank", op.rank}, {"chunk", op.chunk}};
      json["from"] = value_to_json(op.source);
      break;
    case OpKind::send:
      json = {{"op", "send"}, {"step", op.step}, {"rank", op.rank}, {"to", op.peer}, {"chunk", op.chunk}};
      json["from"] = value_to_json(op.source);
      break;
    case OpKind::reduce:
      json = {{"op", "reduce"}, {"step", op.step}, {"rank", op.rank}, {"chunk", op.chunk}};
      json["start"] = op.start == Start::zero ? "zero" : "first";
      json["from"] = Json::array();
      for (const ValueId addend : schedule.operands(op)) json["from"].push_back(value_to_json(addend));
      break;
  }
  return json;
}

// ---------------------------------------------------------------- reading

const Json& member(const Json& object, const std::string& where, const char* key) {
  if (!object.is_object()) fail("schedule: {} is not an object", where.empty() ? "the file" : where);
  const auto found = object.find(key);
  if (found == object.end()) {
    fail("schedule: {}{}{} is missing", where, where.empty() ? "" : ".", key);
  }
  return *found;
}

template <class Integer>
Integer to_integer(const Json& json, const std::string& where) {
  constexpr std::uint64_t kMax = std::numeric_limits<Integer>::max();
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kMax) {
    fail("schedule: {} is {}, not an integer from 0 to {}", where, json.dump(), kMax);
  }
  return json.get<Integer>();
}

template <class Integer>
Integer integer(const Json& object, const std::string& where, const char* key) {
  return to_integer<Integer>(member(object, where, key),
                             where.empty() ? key : fmt::format("{}.{}", where, key));
}

std::string text(const Json& object, const std::string& where, const char* key,
                 std::initializer_list<std::string_view> allowed) {
  const Json& json = member(object, where, key);
  const std::string value = json.is_string() ? json.get<std::string>() : std::string();
  std::string list;
  for (const std::string_view candidate : allowed) {
    if (json.is_string() && value == candidate) return value;
    if (!list.empty()) list += ", ";
    list += candidate;
  }
  if (json.is_string() && allowed.size() == 0) return value;
  fail("schedule: {}{}{} is {}; allowed: {}", where, where.empty() ? "" : ".", key, json.dump(),
       allowed.size() == 0 ? "a string" : list);
}

const Json& array(const Json& object, const std::string& where, const char* key) {
  const Json& json = member(object, where, key);
  if (!json.is_array()) fail("schedule: {}{}{} is not an array", where, where.empty() ? "" : ".", key);
  return json;
}

ValueId value_from_json(const Json& json, const std::string& where) {
  if (json.is_string() && json.get<std::string>() == "input") return kOwnInput;
  if (json.is_string()) {
    fail("schedule: {} is {}; allowed: \"input\" or the index of an earlier op", where, json.dump());
  }
  const auto id = to_integer<ValueId>(json, where);
  if (id == kOwnInput) fail("schedule: {} is {}, which no op can have", where, id);
  return id;
}

Op op_from_json(const Json& json, const std::string& where, std::vector<ValueId>& addends) {
  const std::string kind = text(json, where, "op", {"encode", "send", "reduce"});
  Op op;
  op.step = integer<std::uint32_t>(json, where, "step");
  op.rank = integer<Rank>(json, where, "rank");
  op.chunk = integer<ChunkId>(json, where, "chunk");
  if (kind == "reduce") {
    op.kind = OpKind::reduce;
    op.start = text(json, where, "start", {"zero", "first"}) == "zero" ? Start::zero : Start::first;
    op.first_addend = static_cast<std::uint32_t>(addends.size());
    for (const Json& addend : array(json, where, "from")) {
      const std::string place = fmt::format("{}.from[{}]", where, addends.size() - op.first_addend);
      addends.push_back(value_from_json(addend, place));
    }
    op.addend_count = static_cast<std::uint32_t>(addends.size() - op.first_addend);
    return op;
  }
  op.kind = kind == "send" ? OpKind::send : OpKind::encode;
  if (op.kind == OpKind::send) op.peer = integer<Rank>(json, where, "to");
  op.source = value_from_json(member(json, where, "from"), where + ".from");
  return op;
}

}  // namespace

Json schedule_to_json(const Schedule& schedule) {
  Json json = {{"schema", kScheduleSchema},
               {"collective", "all_reduce"},
               {"algorithm", schedule.algorithm},
               {"world_size", schedule.world_size},
               {"elements", schedule.elements},
               {"alignment", schedule.alignment}};
  json["chunks"] = Json::array();
  for (const Chunk& chunk : schedule.chunks) {
    json["chunks"].push_back({{"begin", chunk.begin}, {"end", chunk.end}});
  }
  json["ops"] = Json::array();
  for (const Op& op : schedule.ops) json["ops"].push_back(op_to_json(schedule, op));
  json["outputs"] = Json::array();
  for (const Output& output : schedule.outputs) {
    json["outputs"].push_back({{"rank", output.rank},
                               {"chunk", output.chunk},
                               {"from", value_to_json(output.value)},
                               {"begin", output.begin}});
  }
  return json;
}

Schedule schedule_from_json(const Json& json) {
  text(json, "", "schema", {kScheduleSchema});
  text(json, "", "collective", {"all_reduce"});
  Schedule schedule;
  schedule.algorithm = text(json, "", "algorithm", {});
  schedule.world_size = integer<Rank>(json, "", "world_size");
  schedule.elements = integer<std::uint64_t>(json, "", "elements");
  schedule.alignment = integer<std::uint64_t>(json, "", "alignment");
  for (const Json& chunk : array(json, "", "chunks")) {
    const std::string where = fmt::format("chunks[{}]", schedule.chunks.size());
    schedule.chunks.push_back({integer<std::uint64_t>(chunk, where, "begin"),
                               integer<std::uint64_t>(chunk, where, "end")});
  }
  for (const Json& op : array(json, "", "ops")) {
    const std::string where = fmt::format("ops[{}]", schedule.ops.size());
    schedule.ops.push_back(op_from_json(op, where, schedule.addends));
  }
  for (const Json& output : array(json, "", "outputs")) {
    const std::string where = fmt::format("outputs[{}]", schedule.outputs.size());
    schedule.outputs.push_back({integer<Rank>(output, where, "rank"),
                                integer<ChunkId>(output, where, "chunk"),
                                value_from_json(member(output, where, "from"), where + ".from"),
                                integer<std::uint64_t>(output, where, "begin")});
  }
  return schedule;
}

}  // namespace arlab
