// The real library (NCCL, RCCL), which makes the calls that are not ours: loaded when it is first needed.
#pragma once

#include <string>
#include <utility>

#include "kernels/nccl/abi.h"

namespace arlab::nccl {

/// Whether this thread is in a call of the real library. What that calls by its public names reaches us, where we are preloaded,
/// and is meant for the real library.
bool is_inside_real();

class InsideReal {
 public:
  InsideReal();
  ~InsideReal();
  InsideReal(const InsideReal&) = delete;
  InsideReal& operator=(const InsideReal&) = delete;
};

/// Throws a Failure that names the function of the real library, unless the call went well, or is still in progress.
int require(const char* function, int code);

/// A function of it.
template <class Signature>
class RealFunction;
template <class... Arguments>
class RealFunction<int(Arguments...)> {
 public:
  explicit RealFunction(const char* name) : name_(name) {}
  void set(void* function) { function_ = reinterpret_cast<int (*)(Arguments...)>(function); }
  const char* name() const { return name_; }

  /// Returns its result; a Failure when it has no such function.
  int operator()(Arguments... arguments) const {
    if (function_ == nullptr) {
      throw Failure(kInvalidUsage, std::string("the real library has no ") + name_);
    }
    const InsideReal inside;
    return function_(std::move(arguments)...);
  }
  /// The same; a Failure, too, when it fails.
  int checked(Arguments... arguments) const {
    return require(name_, (*this)(std::move(arguments)...));
  }

 private:
  const char* name_;
  int (*function_)(Arguments...) = nullptr;
};

class RealLibrary {
 public:
  /// Where none is found: null, and missing() says why. ARLAB_NCCL_LIBRARY names a file; otherwise it is the usual name, which
  /// emulated GPUs do not have: no other library knows them.
  static const RealLibrary* find();
  /// Throws a Failure where ARLAB_NCCL_LIBRARY names something that is no such library, rather than go on without.
  static void require_named();
  /// The same, if somebody has looked for it already.
  static const RealLibrary* found();
  static const std::string& missing();
  /// Before find(): how it is called, empty if there is none by default.
  static void set_name(const char* name);

  /// Null if it has none of this name.
  void* symbol(const char* name) const;
  std::string error_string(int code) const;

#define ARLAB_REAL_FUNCTIONS(X)                                                   \
  X(GetVersion, int(int*))                                                        \
  X(GetUniqueId, int(UniqueId*))                                                  \
  X(CommInitRank, int(Handle*, int, UniqueId, int))                               \
  X(CommInitRankConfig, int(Handle*, int, UniqueId, int, void*))                  \
  X(CommFinalize, int(Handle))                                                    \
  X(CommDestroy, int(Handle))                                                     \
  X(CommAbort, int(Handle))                                                       \
  X(CommSplit, int(Handle, int, int, Handle*, void*))                             \
  X(CommCount, int(Handle, int*))                                                 \
  X(CommCuDevice, int(Handle, int*))                                              \
  X(CommUserRank, int(Handle, int*))                                              \
  X(CommGetAsyncError, int(Handle, int*))                                         \
  X(CommRegister, int(Handle, void*, std::size_t, void**))                        \
  X(CommDeregister, int(Handle, void*))                                           \
  X(MemAlloc, int(void**, std::size_t))                                           \
  X(MemFree, int(void*))                                                          \
  X(RedOpCreatePreMulSum, int(int*, void*, int, int, Handle))                     \
  X(RedOpDestroy, int(int, Handle))                                               \
  X(AllReduce, int(const void*, void*, std::size_t, int, int, Handle, void*))     \
  X(Reduce, int(const void*, void*, std::size_t, int, int, int, Handle, void*))   \
  X(ReduceScatter, int(const void*, void*, std::size_t, int, int, Handle, void*)) \
  X(AllGather, int(const void*, void*, std::size_t, int, Handle, void*))          \
  X(Broadcast, int(const void*, void*, std::size_t, int, int, Handle, void*))     \
  X(Send, int(const void*, std::size_t, int, int, Handle, void*))                 \
  X(Recv, int(void*, std::size_t, int, int, Handle, void*))                       \
  X(GroupStart, int())                                                            \
  X(GroupEnd, int())

#define ARLAB_REAL_FUNCTION(Name, ...) RealFunction<__VA_ARGS__> Name{"nccl" #Name};
  ARLAB_REAL_FUNCTIONS(ARLAB_REAL_FUNCTION)
#undef ARLAB_REAL_FUNCTION

 private:
  RealLibrary() = default;
  void* library_ = nullptr;
};

}  // namespace arlab::nccl
