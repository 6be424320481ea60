#include "kernels/runtime/vendor_library.h"

#include <fmt/format.h>

#if !defined(__HIP_PLATFORM_HOST__)
#include <dlfcn.h>
#endif

#include <string>
#include <vector>

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

#if defined(__HIP_PLATFORM_HOST__)

Result<std::unique_ptr<VendorLibrary>> VendorLibrary::open(std::span<const int>) {
  return Status::error("emulated GPUs have no vendor's library");
}

#else

namespace {

#if defined(__HIP_PLATFORM_NVIDIA__)
constexpr const char* kName = "nccl";
constexpr const char* kFile = "libnccl.so.2";
#else
constexpr const char* kName = "rccl";
constexpr const char* kFile = "librccl.so.1";
#endif

// The part of NCCL's C interface that is used here. It has been the same since NCCL 2, in RCCL too.
using Communication = void*;
constexpr int kSum = 0;
constexpr int kFloat16 = 6;
constexpr int kFloat32 = 7;
constexpr int kBfloat16 = 9;

class LoadedLibrary final : public VendorLibrary {
 public:
  explicit LoadedLibrary(void* library) : library_(library) {}
  ~LoadedLibrary() override {
    for (const Communication c : communications_) (void)destroy_(c);
    // The library stays: its threads may still run.
  }

  Status open_for(std::span<const int> devices) {
    const bool found = find("ncclGetVersion", get_version_) &&
                       find("ncclGetErrorString", error_string_) &&
                       find("ncclCommInitAll", init_all_) && find("ncclCommDestroy", destroy_) &&
                       find("ncclGroupStart", group_start_) && find("ncclGroupEnd", group_end_) &&
                       find("ncclAllReduce", all_reduce_);
    if (!found) return Status::error(fmt::format("{} lacks functions of NCCL 2", kFile));
    communications_.resize(devices.size());
    return status_of(
        init_all_(communications_.data(), static_cast<int>(devices.size()), devices.data()));
  }

  std::string name() const override {
    int version = 0;
    (void)get_version_(&version);
    return fmt::format("{} {}.{}.{}", kName, version / 10000, version / 100 % 100, version % 100);
  }

  Status all_reduce(std::span<const void* const> inputs, std::span<void* const> outputs,
                    std::size_t elements, DType dtype,
                    std::span<const hipStream_t> streams) override {
    const int type = dtype == DType::fp16 ? kFloat16 : dtype == DType::bf16 ? kBfloat16 : kFloat32;
    Status status = status_of(group_start_());
    for (std::size_t rank = 0; rank < communications_.size() && status.ok(); ++rank) {
      status = status_of(all_reduce_(inputs[rank], outputs[rank], elements, type, kSum,
                                     communications_[rank], streams[rank]));
    }
    const Status ended = status_of(group_end_());
    return status.ok() ? ended : status;
  }

 private:
  template <class Function>
  bool find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }
  Status status_of(int error) const {
    if (error == 0) return {};
    return Status::error(fmt::format("{}: {}", kName, error_string_(error)));
  }

  void* library_;
  std::vector<Communication> communications_;
  int (*get_version_)(int*) = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*init_all_)(Communication*, int, const int*) = nullptr;
  int (*destroy_)(Communication) = nullptr;
  int (*group_start_)() = nullptr;
  int (*group_end_)() = nullptr;
  int (*all_reduce_)(const void*, void*, std::size_t, int, int, Communication,
                     hipStream_t) = nullptr;
};

}  // namespace

Result<std::unique_ptr<VendorLibrary>> VendorLibrary::open(std::span<const int> devices) {
  void* library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return Status::error(fmt::format("{} cannot be loaded ({}); set LD_LIBRARY_PATH", kFile,
                                     reason != nullptr ? reason : "no reason given"));
  }
  auto loaded = std::make_unique<LoadedLibrary>(library);
  ARLAB_RETURN_IF_ERROR(loaded->open_for(devices));
  return std::unique_ptr<VendorLibrary>(std::move(loaded));
}

#endif

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
