// Where sentinels have been seen to work. They ask of memory that every word which another GPU stores
// is seen whole, and soon. On AMD GPUs nobody has seen that yet, so calls take flags there until
// `arlab conform --protocol sentinels` has passed on the very machine, which leaves a record.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "kernels/runtime/status.h"

namespace arlab::kernels {

/// A file of lines, each a machine, an algorithm and a number of ranks, with tabs between them:
/// sentinels.tsv in the folder that ARLAB_CACHE names, else arlab in XDG_CACHE_HOME, else
/// ~/.cache/arlab.
class ConformanceRecord {
 public:
  /// `devices`: how many, and what their maker calls them. Another host, kernel of the system, or
  /// version of arlab is another machine.
  explicit ConformanceRecord(const std::string& devices);

  /// Both algorithms that have sentinels have passed with so many ranks. A file that cannot be read
  /// says nothing.
  bool has(int ranks) const;
  /// Passed or not: what was said of them before goes.
  Status set(const std::set<std::string>& algorithms, const std::set<int>& ranks,
             bool passed) const;
  Result<std::filesystem::path> file() const;

 private:
  std::string line(const std::string& algorithm, int ranks) const;

  std::string machine_;
};

}  // namespace arlab::kernels
