// Record of a program's calls: calls.csv, and payloads of some all-reduces as .safetensors for `arlab reduce --input`.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/nccl/abi.h"
#include "kernels/runtime/bootstrap.h"

namespace arlab::nccl {

struct CallRecord {
  std::string_view collective;
  int type = 0;
  std::size_t elements = 0;
  std::size_t bytes = 0;
  std::string_view took;
  double host_us = 0;
  std::string payload = {};  ///< name of its file
};

/// Recorder of one communicator's rank. All ranks write to the same folder: rank 0 its calls, which are those of all, and each
/// its part of a payload, at its place in the file.
///
/// It only watches. What goes wrong here is one line on stderr, and then nothing more is recorded; no call fails or waits for it.
/// A file is whole or not there: a payload has its name once all ranks have written their part, and lines that do not fit are taken
/// back.
class Recorder {
 public:
  /// The folder is made with mode 700; one that is there must be this user's, with that mode.
  Recorder(const std::string& folder, std::string communicator, int rank, int ranks) noexcept;
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void add(const CallRecord& call) noexcept;

  /// How many elements of this all-reduce to keep: of the first, second, fourth, eighth, ..., while there is room for them.
  std::size_t sampled(DType dtype, std::size_t elements) noexcept;
  /// This rank's part of the payload, as many elements as sampled() said, of the call that will be added behind `ahead` others. The
  /// name of the file, empty where it is not kept.
  std::string keep(DType dtype, const std::string& payload, std::size_t ahead) noexcept;

  /// Something else has gone wrong: nothing more is recorded.
  void stop(const std::exception& why) noexcept;

 private:
  struct Line {
    std::string text;     // but for the payload
    std::string payload;  // other ranks may not have completed its file yet
  };

  void open_folder(const std::string& folder);
  void open_calls();
  void write_part(DType dtype, const std::string& payload, const std::string& name);
  /// At the end, a payload that is not complete is none.
  void flush(bool at_end);
  bool is_there(const std::string& payload) const;

  std::string folder_name_;
  std::string communicator_;
  int rank_;
  int ranks_;
  bool stopped_ = false;
  kernels::FileDescriptor folder_;
  kernels::FileDescriptor calls_file_;
  std::vector<Line> lines_;
  std::size_t lines_bytes_ = 0;
  std::vector<std::string> parts_;  // payloads that this rank has written to
  std::uint64_t calls_ = 0;
  std::uint64_t all_reduces_ = 0;
  std::size_t room_;
};

}  // namespace arlab::nccl
