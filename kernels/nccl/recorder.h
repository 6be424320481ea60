// What a program calls, written down: calls.csv, and payloads of some all-reduces as .safetensors for `arlab reduce --input`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

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

/// Of one communicator's rank. All ranks write to the same folder: rank 0 its calls, which are those of all, and each its part of
/// a payload, at its place in the file.
class Recorder {
 public:
  /// Throws a Failure when the folder cannot be written to.
  Recorder(const std::string& folder, std::string communicator, int rank, int ranks);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void add(const CallRecord& call);

  /// How many elements of this all-reduce to keep: of the first, second, fourth, eighth, ..., while there is room for them.
  std::size_t sampled(DType dtype, std::size_t elements);
  /// This rank's part of the payload, as many elements as sampled() said. The name of the file.
  std::string keep(DType dtype, const std::string& payload);

 private:
  void flush();

  std::string folder_;
  std::string communicator_;
  int rank_;
  int ranks_;
  kernels::FileDescriptor calls_file_;
  std::string lines_;
  std::uint64_t calls_ = 0;
  std::uint64_t all_reduces_ = 0;
  std::size_t room_;
};

}  // namespace arlab::nccl
