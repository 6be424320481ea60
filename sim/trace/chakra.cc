#include "sim/trace/chakra.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "reference/tensors/file.h"
#include "sim/trace/perfetto.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

constexpr Picoseconds kPicosecondsPerMicrosecond = 1'000'000;

std::uint64_t micros(Picoseconds time) {
  return static_cast<std::uint64_t>((time + kPicosecondsPerMicrosecond / 2) /
                                    kPicosecondsPerMicrosecond);
}

Json attribute(const char* name, const char* kind, const Json& value) {
  return {{"name", name}, {kind, value}};
}

Json node_json(std::uint64_t id, const std::string& name, const char* type, Picoseconds begin,
               Picoseconds end) {
  return {{"id", id},
          {"name", name},
          {"type", type},
          {"ctrl_deps", Json::array()},
          {"data_deps", Json::array()},
          {"start_time_micros", micros(begin)},
          {"duration_micros", micros(end) - micros(begin)},
          {"attr",
           {attribute("is_cpu_op", "bool_val", false),
            attribute("duration_ps", "uint64_val", end - begin)}}};
}

}  // namespace

void ChakraTrace::add(Rank rank, Node node) {
  if (rank >= kMostTracedRanks || ++events_ > kMostTraceEvents) {
    fail("the trace would be too large: allowed are {} ranks and {} events", kMostTracedRanks,
         kMostTraceEvents);
  }
  if (rank >= ranks_.size()) ranks_.resize(rank + 1);
  ranks_[rank].push_back(std::move(node));
}

void ChakraTrace::on_work(Rank rank, Work work, std::uint32_t step, Picoseconds begin,
                          Picoseconds end) {
  if (end <= begin) return;
  constexpr std::array kNames = {"flags", "encode", "decode", "reduce", "forward"};
  add(rank, {Type::compute,
             fmt::format("{}, step {}", kNames[static_cast<std::size_t>(work)], step), begin, end});
}

void ChakraTrace::on_message(const PlannedMessage& message, std::uint32_t step,
                             std::span<const LinkId> /*route*/, Picoseconds begin,
                             Picoseconds delivered) {
  const std::string way = fmt::format("{} to {}, step {}", message.from, message.to, step);
  // A receiver is ready from the start; its node ends when all has come.
  add(message.from, {Type::send, "send " + way, begin, delivered, message.to, step, message.bytes});
  add(message.to,
      {Type::receive, "receive " + way, begin, delivered, message.from, step, message.bytes});
}

std::string ChakraTrace::json(const SimulationResult& r) const {
  Json ranks = Json::array();
  Json collective = Json::array();
  for (Rank rank = 0; rank < r.world_size; ++rank) {
    std::vector<Node> nodes;
    if (rank < ranks_.size()) nodes = ranks_[rank];
    std::stable_sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    // Others may depend on those that have ended, in the order of time.
    std::vector<std::size_t> by_end(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) by_end[i] = i;
    std::stable_sort(by_end.begin(), by_end.end(),
                     [&](std::size_t a, std::size_t b) { return nodes[a].end < nodes[b].end; });
    std::size_t ended = 0;
    std::vector<std::size_t> arrived;  // since the last node that depends on arrivals
    const Json* last = nullptr;
    Json last_id;
    Json list = Json::array();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      const char* type = node.type == Type::compute ? "COMP_NODE"
                         : node.type == Type::send  ? "COMM_SEND_NODE"
                                                    : "COMM_RECV_NODE";
      Json json = node_json(i, node.name, type, node.begin, node.end);
      for (; ended < by_end.size() && nodes[by_end[ended]].end <= node.begin; ++ended) {
        const std::size_t done = by_end[ended];
        if (nodes[done].type == Type::receive) {
          arrived.push_back(done);
        } else {
          last_id = done;
          last = &last_id;
        }
      }
      if (node.type != Type::receive) {
        if (last != nullptr) json["ctrl_deps"].push_back(*last);
        for (const std::size_t id : arrived) json["data_deps"].push_back(id);
        if (node.type == Type::compute) arrived.clear();
      }
      if (node.type != Type::compute) {
        const bool sends = node.type == Type::send;
        json["attr"].push_back(attribute("comm_size", "int64_val", node.bytes));
        json["attr"].push_back(attribute("comm_src", "int32_val", sends ? rank : node.peer));
        json["attr"].push_back(attribute("comm_dst", "int32_val", sends ? node.peer : rank));
        json["attr"].push_back(attribute("comm_tag", "int32_val", node.tag));
      }
      list.push_back(std::move(json));
    }
    ranks.push_back(std::move(list));
    Json whole = node_json(0, fmt::format("{} {} {}", name_of(r.collective), r.algorithm, r.codec),
                           "COMM_COLL_NODE", 0, r.latency);
    whole["attr"].push_back(attribute("comm_type", "int64_val", facts_of(r.collective).chakra));
    whole["attr"].push_back(attribute("comm_size", "int64_val", r.payload_bytes));
    collective.push_back(std::move(whole));
  }
  const Json file = {
      {"schema", "arlab.chakra/1"},
      {"chakra_version", "0.0.4"},
      {"provenance", fmt::format("simulated: model {}, topology {}", r.model, r.topology)},
      {"collective", std::move(collective)},
      {"ranks", std::move(ranks)}};
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

void ChakraTrace::write(const std::filesystem::path& path, const SimulationResult& result) const {
  const std::string text = json(result);
  write_file(path, {std::as_bytes(std::span(text))});
}

}  // namespace arlab
