#include "kernels/compile/store.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/codecs/payload.h"
#include "kernels/compile/cache.h"
#include "kernels/compile/compile_error.h"
#include "kernels/compile/sources.h"
#include "kernels/runtime/hip_status.h"
#include "reference/parallel.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

Result<std::string> architecture_of(int device) {
  char text[32] = {};
  ARLAB_RETURN_IF_ERROR(status_of(arlab_driver::architecture_of(device, text, sizeof(text)),
                                  "a device cannot be used"));
  return std::string(text);
}

thread_local std::string kernel_failure;

WantedKernel wanted(const Kernel& kernel, const CodecText& codec) {
  std::string name(kernel.form.name);
  if (kernel.number != 0) name += fmt::format("/{}", kernel.number);
  for (const std::string_view part : {kernel.element, std::string_view(codec.type)}) {
    if (!part.empty()) name.append(" ").append(part);
  }
  return {name, unit_text(kernel.form, codec, kernel.element, kernel.number), codec.header};
}

/// Headers of device code, and the user's own in front.
std::vector<Header> headers_with(const CodecHeader& own) {
  std::vector<Header> all;
  for (const auto& [name, text] : own.files) all.push_back({name, text});
  all.insert(all.end(), embedded_headers().begin(), embedded_headers().end());
  return all;
}

/// The kernel's code, or the compiler's first error as the author of its header has to know it.
Result<CodeObject> compile(const Compiler& compiler, const WantedKernel& kernel,
                           const std::string& architecture) {
  Unit unit = {kernel.name, kernel.unit, embedded_headers(), architecture, KernelStore::options()};
  if (!kernel.header) return compiler.compile(unit);
  const std::vector<Header> headers = headers_with(*kernel.header);
  unit.headers = headers;
  Result<CodeObject> code = compiler.compile(unit);
  if (code.ok()) return code;
  return Status::error(fmt::format(
      "{} (compiled by {})", text_of(compile_error_in(code.status().message()), *kernel.header),
      compiler.version()));
}

}  // namespace

// ---------------------------------------------------------------- compiled and loaded

KernelStore& KernelStore::of_process() {
  static auto& store = *new KernelStore;  // kernels may be launched until the process ends
  return store;
}

#if defined(__HIP_PLATFORM_AMD__)
namespace {
std::string driver_text() { return "any driver"; }
}  // namespace

Result<const Compiler*> KernelStore::compiler() { return hiprtc(); }

// All is inlined, as hipcc has it: a call passes its arguments by way of scratch memory.
const std::vector<std::string>& KernelStore::options() {
  static const auto& options = *new std::vector<std::string>{"-std=c++20",
                                                             "-O3",
                                                             "-ffp-contract=off",
                                                             "-mllvm",
                                                             "-amdgpu-early-inline-all=true",
                                                             "-mllvm",
                                                             "-amdgpu-function-calls=false",
                                                             "-DARLAB_PLATFORM=rocm",
                                                             "-DARLAB_COMPILES_ON_DEMAND"};
  return options;
}
#else
namespace {
std::string driver_text() {
  const int driver = arlab_driver::driver_version();
  if (driver == 0) return "any driver";
  return fmt::format("a driver of CUDA {}.{}", driver / 1000, driver % 1000 / 10);
}
}  // namespace

Result<const Compiler*> KernelStore::compiler() { return nvrtc(arlab_driver::driver_version()); }

// -fmad=false: nothing may be fused. -default-device: constexpr functions are for kernels, too.
const std::vector<std::string>& KernelStore::options() {
  static const auto& options = *new std::vector<std::string>{
      "-std=c++20",          "-fmad=false",           "-default-device",
      "-diag-suppress=2810", "-DARLAB_PLATFORM=cuda", "-DARLAB_COMPILES_ON_DEMAND"};
  return options;
}
#endif

std::string KernelStore::compiler_text() {
  const Result<const Compiler*> found = compiler();
  if (!found.ok()) return found.status().message();
  return fmt::format("kernels are compiled by {} ({}), for {}", found.value()->version(),
                     found.value()->file(), driver_text());
}

KernelKey KernelStore::key_of(const WantedKernel& kernel, const std::string& architecture) {
  const Result<const Compiler*> found = compiler();
  return {kernel.name,  embedded_headers_hash(),
          kernel.unit,  options(),
          architecture, found.ok() ? found.value()->identity() : ""};
}

Result<CodeObject> KernelStore::from(KernelCache& cache, const WantedKernel& kernel,
                                     const std::string& architecture) {
  return cache.get(key_of(kernel, architecture), [&]() -> Result<CodeObject> {
    ARLAB_ASSIGN_OR_RETURN(const Compiler* const found, compiler());
    return compile(*found, kernel, architecture);
  });
}

Status KernelStore::for_each(std::span<const KernelOn> kernels, unsigned threads,
                             const CompileProgress& progress,
                             const std::function<Status(const KernelOn&)>& compile) {
  std::vector<Status> outcomes(kernels.size());
  std::mutex progress_mutex;
  std::size_t done = 0;
  parallel_for(kernels.size(), threads, [&](unsigned, std::size_t i) {
    outcomes[i] = compile(kernels[i]);
    const std::scoped_lock lock(progress_mutex);
    if (progress) progress(++done, kernels.size());
  });
  for (const Status& outcome : outcomes) ARLAB_RETURN_IF_ERROR(outcome);
  return {};
}

Result<CodeObject> KernelStore::compiled(const WantedKernel& kernel,
                                         const std::string& architecture) {
  {
    const std::scoped_lock lock(mutex_);
    const auto known = code_.find({architecture, kernel.unit});
    if (known != code_.end()) return known->second;
  }
  ARLAB_ASSIGN_OR_RETURN(KernelCache* const cache, KernelCache::of_process());
  Result<CodeObject> code = from(*cache, kernel, architecture);
  if (code.ok() && !cache->why_not_used().empty()) {
    const std::scoped_lock lock(mutex_);
    code_.emplace(std::pair(architecture, kernel.unit), code.value());
  }
  return code;
}

Result<hipFunction_t> KernelStore::loaded(const WantedKernel& kernel, int device) {
  {
    const std::scoped_lock lock(mutex_);
    const auto known = functions_.find({device, kernel.unit});
    if (known != functions_.end()) return known->second;
  }
  ARLAB_ASSIGN_OR_RETURN(const std::string architecture, architecture_of(device));
  ARLAB_ASSIGN_OR_RETURN(const CodeObject code, compiled(kernel, architecture));
  const std::string what = fmt::format("kernel {} cannot be loaded", kernel.name);
  hipModule_t module = nullptr;
  hipFunction_t function = nullptr;
  ARLAB_RETURN_IF_ERROR(status_of(hipSetDevice(device), "a device cannot be used"));
  ARLAB_RETURN_IF_ERROR(status_of(hipModuleLoadData(&module, code.bytes.data()), what.c_str()));
  ARLAB_RETURN_IF_ERROR(
      status_of(hipModuleGetFunction(&function, module, kKernelName), what.c_str()));
  ARLAB_RETURN_IF_ERROR(status_of(arlab_driver::load(function), what.c_str()));
  const std::scoped_lock lock(mutex_);
  functions_[{device, kernel.unit}] = function;
  return function;
}

Result<hipFunction_t> KernelStore::function(const WantedKernel& kernel) {
  int device = 0;
  ARLAB_RETURN_IF_ERROR(status_of(hipGetDevice(&device), "no device can be used"));
  return loaded(kernel, device);
}

bool KernelStore::has(std::span<const WantedKernel> kernels, int device) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::all_of(kernels, [&](const WantedKernel& kernel) {
    return functions_.contains({device, kernel.unit});
  });
}

Status KernelStore::load(std::span<const WantedKernel> kernels, std::span<const int> devices,
                         const CompileProgress& progress) {
  std::vector<KernelOn> missing;
  for (const int device : devices) {
    ARLAB_ASSIGN_OR_RETURN(const std::string architecture, architecture_of(device));
    for (const WantedKernel& kernel : kernels) {
      const KernelOn each(&kernel, architecture);
      if (!has({&kernel, 1}, device) && std::ranges::find(missing, each) == missing.end()) {
        missing.push_back(each);
      }
    }
  }
  ARLAB_RETURN_IF_ERROR(for_each(missing, 0, progress, [this](const KernelOn& each) {
    return compiled(*each.first, each.second).status();
  }));
  for (const int device : devices) {
    for (const WantedKernel& kernel : kernels) {
      ARLAB_RETURN_IF_ERROR(loaded(kernel, device).status());
    }
  }
  return {};
}

// ---------------------------------------------------------------- started

bool NotesKernels::take(const std::function<WantedKernel()>& kernel) {
  if (noted_ == nullptr) return false;
  WantedKernel one = kernel();
  if (std::ranges::find(*noted_, one) == noted_->end()) noted_->push_back(std::move(one));
  return true;
}

hipFunction_t LoadedKernels::find(int device, const Kernel& kernel) const {
  const std::scoped_lock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.device == device && entry.form == &kernel.form && entry.element == kernel.element &&
        entry.number == kernel.number) {
      return entry.function;
    }
  }
  return nullptr;
}

void LoadedKernels::add(int device, const Kernel& kernel, hipFunction_t function) {
  const std::scoped_lock lock(mutex_);
  entries_.push_back({device, &kernel.form, kernel.element, kernel.number, function});
}

std::string take_kernel_failure() { return std::exchange(kernel_failure, {}); }

hipError_t start_kernel(const Kernel& kernel, LoadedKernels& loaded,
                        const std::function<CodecText()>& codec, dim3 blocks, hipStream_t stream,
                        void** arguments) {
  if (NotesKernels::take([&] { return wanted(kernel, codec()); })) return hipSuccess;
  int device = 0;
  const hipError_t error = hipGetDevice(&device);
  if (error != hipSuccess) return error;
  hipFunction_t function = loaded.find(device, kernel);
  if (function == nullptr) {
    const Result<hipFunction_t> found = KernelStore::of_process().function(wanted(kernel, codec()));
    if (found.ok()) {
      function = found.value();
      loaded.add(device, kernel, function);
    } else {
      kernel_failure = found.status().message();
    }
  }
  // Without a function this fails, as launches do.
  return arlab_driver::launch(
      function, {blocks, dim3(kThreads), 0, stream, kernel.form.overlaps_previous}, arguments);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
