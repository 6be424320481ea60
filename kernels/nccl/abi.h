// NCCL's C interface, as far as programs and libraries pass it to each other: sizes and numbers, which have been the same since
// NCCL 2, in RCCL too.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "reference/dtype.h"

namespace arlab::nccl {

/// Handles that programs hold: the real library's where there is one, so that calls which only that one has need no
/// translation; else a pointer that is ours.
using Handle = void*;

/// ncclResult_t
enum Code : int {
  kSuccess = 0,
  kDeviceError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

/// ncclUniqueId
struct UniqueId {
  char bytes[128];
};

/// ncclRedOp_t; others are the real library's business.
inline constexpr int kSum = 0;

/// ncclDataType_t: bytes of an element, 0 for one that is not known.
constexpr std::size_t element_bytes(int type) {
  constexpr unsigned char kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < static_cast<int>(sizeof(kBytes)) ? kBytes[type] : 0;
}
constexpr bool has_dtype(int type) { return type == 6 || type == 7 || type == 9; }
/// The dtype of a type that has one.
constexpr DType dtype_of(int type) {
  return type == 6 ? DType::fp16 : type == 7 ? DType::fp32 : DType::bf16;
}

/// Ends a call: the result that it has, and a line that says why.
class Failure : public std::runtime_error {
 public:
  Failure(Code code, const std::string& line) : std::runtime_error(line), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

}  // namespace arlab::nccl
