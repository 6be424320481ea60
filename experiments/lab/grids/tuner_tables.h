// A selection as files that others read in place of arlab's table: tuner tables of NCCL, RCCL and torchcomms, which name the
// library's algorithm and protocol by size, and thresholds of QuickReduce in vLLM and SGLang as environment variables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/collectives/schedule.h"
#include "reference/dtype.h"

namespace arlab::lab {

/// The choice for payloads from `from` bytes to below `to`.
struct TableRange {
  std::uint64_t from = 0;
  std::uint64_t to = 0;  ///< 0: no end
  std::string algorithm;
  std::string codec;
  bool library = false;
  std::string protocol = {};  ///< the library's: ll, ll128, simple
};

/// The reader of a table, where it is called, and by whom.
struct TableOf {
  std::string format;  ///< one of kTableFormats
  Collective collective = Collective::all_reduce;
  DType dtype = DType::fp16;
  Rank ranks = 0;
  Rank nodes = 1;  ///< 0: not known, as of a rack whose hosts share NVLink
  bool is_amd = false;
  std::string provenance;  ///< lines of a comment

  bool is_of_library() const;
  /// Whether the format can name it.
  bool can_say(const TableRange& what) const;
};
inline const std::vector<std::string> kTableFormats = {
    "toml", "nccl", "rccl", "torchcomms-csv", "torchcomms-json", "vllm", "sglang"};
/// How files of a format may end.
std::vector<std::string> endings_of(const std::string& format);

/// The same ranges, cut where the library takes another protocol. `protocol_of` says which for an algorithm and bytes.
std::vector<TableRange> by_protocol(
    const std::vector<TableRange>& ranges,
    const std::function<std::string(const std::string& algorithm, std::uint64_t bytes)>&
        protocol_of);

/// The file, of `sayable`, the best that the format can say; what it cannot is added to `unsaid`, in words. Throws InvalidInput
/// for a collective that the format has no name for.
std::string write_tuner_table(const TableOf& of, const std::vector<TableRange>& sayable,
                              std::vector<std::string>& unsaid);

/// "4096 to 8191 bytes two_shot qr-q4".
std::string in_words(const TableRange& range);

}  // namespace arlab::lab
