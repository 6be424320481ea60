// Kernels of platforms with a driver: compiled when they are called for, loaded onto the devices that run them, and started.
#pragma once

#include <hip/hip_runtime.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/compile/cache.h"
#include "kernels/compile/compiler.h"
#include "kernels/compile/unit.h"
#include "kernels/runtime/collective_request.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A kernel that a call launches.
struct WantedKernel {
  std::string name;  ///< for people: two_shot_sentinel, Bf16, QuickReduce<Q4, Element>
  std::string unit;  ///< text of its translation unit
  std::shared_ptr<const CodecHeader> header = {};  ///< a user's, which it includes

  bool operator==(const WantedKernel& other) const { return unit == other.unit; }
};

/// A kernel for an architecture.
using KernelOn = std::pair<const WantedKernel*, std::string>;

/// For several threads at once.
class KernelStore {
 public:
  static KernelStore& of_process();

  /// The compiler, or why there is none.
  static Result<const Compiler*> compiler();
  /// The compiler's options.
  static const std::vector<std::string>& options();
  /// Which compiler and driver there are, or why there is no compiler, in a line.
  static std::string compiler_text();

  static KernelKey key_of(const WantedKernel& kernel, const std::string& architecture);
  /// From the cache, or compiled and then kept there.
  static Result<CodeObject> from(KernelCache& cache, const WantedKernel& kernel,
                                 const std::string& architecture);
  /// Calls `compile` with each kernel, on so many threads (0: all cores).
  static Status for_each(std::span<const KernelOn> kernels, unsigned threads,
                         const CompileProgress& progress,
                         const std::function<Status(const KernelOn&)>& compile);

  /// Compiles what is not in the cache, on all cores, and loads it onto the devices.
  Status load(std::span<const WantedKernel> kernels, std::span<const int> devices,
              const CompileProgress& progress = {});
  bool has(std::span<const WantedKernel> kernels, int device) const;

  /// The kernel on the thread's device.
  Result<hipFunction_t> function(const WantedKernel& kernel);

 private:
  Result<CodeObject> compiled(const WantedKernel& kernel, const std::string& architecture);
  Result<hipFunction_t> loaded(const WantedKernel& kernel, int device);

  mutable std::mutex mutex_;
  /// By device and text of the unit. They stay until the process ends, as the primary contexts do.
  std::map<std::pair<int, std::string>, hipFunction_t> functions_;
  /// By architecture and text of the unit, where no cache keeps them.
  std::map<std::pair<std::string, std::string>, CodeObject> code_;
};

/// While there is one, launches of this thread start nothing: their kernels are noted.
class NotesKernels {
 public:
  NotesKernels() { noted_ = &kernels_; }
  ~NotesKernels() { noted_ = nullptr; }
  NotesKernels(const NotesKernels&) = delete;
  NotesKernels& operator=(const NotesKernels&) = delete;

  /// Each once.
  const std::vector<WantedKernel>& kernels() const { return kernels_; }
  /// Notes a kernel, if there is one; whether that is all.
  static bool take(const std::function<WantedKernel()>& kernel);

 private:
  static inline thread_local std::vector<WantedKernel>* noted_ = nullptr;
  std::vector<WantedKernel> kernels_;
};

/// Functions that launches of one codec have found, so that the next ones need no text.
class LoadedKernels {
 public:
  hipFunction_t find(int device, const Kernel& kernel) const;
  void add(int device, const Kernel& kernel, hipFunction_t function);

 private:
  struct Entry {
    int device;
    const KernelForm* form;
    std::string_view element;  ///< its text stays
    int number;
    hipFunction_t function;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

/// Why the thread's last launch found no kernel, which is forgotten then; else empty.
std::string take_kernel_failure();

hipError_t start_kernel(const Kernel& kernel, LoadedKernels& loaded,
                        const std::function<CodecText()>& codec, dim3 blocks, hipStream_t stream,
                        void** arguments);

/// Starts a kernel with blocks of kThreads. Arguments have the types of its parameters.
template <class... Arguments>
hipError_t start(const Kernel& kernel, LoadedKernels& loaded,
                 const std::function<CodecText()>& codec, dim3 blocks, hipStream_t stream,
                 const Arguments&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return start_kernel(kernel, loaded, codec, blocks, stream, pointers);
}

/// Starts a kernel without a codec.
template <class... Arguments>
hipError_t start(const Kernel& kernel, dim3 blocks, hipStream_t stream,
                 const Arguments&... arguments) {
  static LoadedKernels loaded;
  return start(kernel, loaded, [] { return CodecText(); }, blocks, stream, arguments...);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
