// Results as nccl-tests prints them, for people and scripts that read its columns or its JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/lab/result.h"
#include "reference/collectives/schedule.h"
#include "reference/dtype.h"

namespace arlab::lab {

struct NcclTime {
  double us = 0;
  /// Elements with other bits than the reference's, over all ranks; nothing where they were not compared.
  std::optional<std::uint64_t> wrong = {};
};

/// A collective of one size.
struct NcclLine {
  std::uint64_t bytes = 0;  ///< in a rank's tensor
  int iterations = 1;       ///< calls that a time is the average of
  NcclTime out_of_place;
  std::optional<NcclTime> in_place = {};  ///< nothing where the output cannot be the input
};

/// One run of a program of nccl-tests: all sizes of one collective.
struct NcclRun {
  std::string experiment;  ///< such as "two_shot qr-q4"
  Collective collective = Collective::all_reduce;
  std::vector<NcclLine> lines;
};

struct NcclReport {
  Rank ranks = 0;
  DType dtype = DType::fp16;
  int graph_launches = 0;     ///< a time is the median of so many; 0: there are no graphs
  bool checked = false;       ///< the lines say how many elements are wrong
  std::string device;         ///< the same at each rank
  std::string provenance;     ///< one line: measured by whom, or simulated
  std::vector<NcclRun> runs;  ///< one after the other

  /// Its columns, where lines that begin with # hold everything else; or the layout of its option -J, version 2, with all runs in
  /// `results`, without the environment.
  Result answer(Format format) const;

 private:
  std::string text() const;
  Json json() const;
};

}  // namespace arlab::lab
