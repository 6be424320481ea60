// A run as a Chakra execution trace (MLCommons), in the JSON form of its schema: every node has the
// field names of ChakraProtoMsg.Node, so that google.protobuf.json_format.ParseDict reads it.
//
// "ranks" has the nodes of each rank: COMP_NODE (flags, encode, decode, reduce, forward),
// COMM_SEND_NODE and COMM_RECV_NODE, as ASTRA-sim takes a collective of one's own. "collective" has
// for each rank the one COMM_COLL_NODE that stands for all of these in the trace of a program. A
// node depends on what ended on its rank last before it began (ctrl_deps), and on what had arrived
// there until then (data_deps). Times are whole microseconds, as the schema has them; the attribute
// duration_ps is exact.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/simulator.h"

namespace arlab {

class ChakraTrace final : public SimulationTrace {
 public:
  void on_work(Rank rank, Work work, std::uint32_t step, Picoseconds begin,
               Picoseconds end) override;
  void on_message(const PlannedMessage& message, std::uint32_t step, std::span<const LinkId> route,
                  Picoseconds begin, Picoseconds delivered) override;

  std::string json(const SimulationResult& result) const;
  void write(const std::filesystem::path& path, const SimulationResult& result) const;

 private:
  enum class Type : std::uint8_t { compute, send, receive };
  struct Node {
    Type type = Type::compute;
    std::string name;
    Picoseconds begin = 0;
    Picoseconds end = 0;
    Rank peer = 0;
    std::uint32_t tag = 0;
    std::uint64_t bytes = 0;
  };
  void add(Rank rank, Node node);

  std::vector<std::vector<Node>> ranks_;
  std::size_t events_ = 0;
};

}  // namespace arlab
