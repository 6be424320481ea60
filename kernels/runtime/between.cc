#include "kernels/runtime/between.h"

#include "kernels/runtime/hip_status.h"
#if defined(ARLAB_KERNELS_ON_DEMAND)
#include "kernels/compile/store.h"
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

#if defined(__HIP_PLATFORM_HOST__)
constexpr int kMatrixSide = 64;  // emulated: time means nothing
constexpr std::size_t kFlushedBytes = std::size_t{1} << 16;
constexpr unsigned kOverwritingBlocks = 4;
#else
constexpr int kMatrixSide = 1024;  // some tens of microseconds on all multiprocessors
constexpr std::size_t kFlushedBytes = std::size_t{512} << 20;  // more than any cache holds
constexpr unsigned kOverwritingBlocks = 1024;
#endif
constexpr std::size_t kMatrixBytes = std::size_t{kMatrixSide} * kMatrixSide * sizeof(float);

}  // namespace

#if defined(ARLAB_KERNELS_ON_DEMAND)
Status load_kernels_between(std::span<const int> devices, const TimingRequest& request) {
  std::vector<WantedKernel> kernels;
  {
    const NotesKernels notes;
    if (request.gemm) (void)launch_matrix_product(nullptr, nullptr, nullptr, kMatrixSide, nullptr);
    if (request.cold) (void)launch_overwrite(nullptr, kFlushedBytes, 0, 1, nullptr);
    kernels = notes.kernels();
  }
  return KernelStore::of_process().load(kernels, devices);
}
#else
Status load_kernels_between(std::span<const int>, const TimingRequest&) { return {}; }
#endif

Between::~Between() {
  for (const Rank& rank : ranks_) {
    (void)hipSetDevice(rank.on.device);
    (void)hipFree(rank.memory);
  }
}

Status Between::open(std::span<const RankStream> ranks, const TimingRequest& request) {
  request_ = request;
  const std::size_t bytes =
      (request.gemm ? 3 * kMatrixBytes : 0) + (request.cold ? kFlushedBytes : 0);
  for (const RankStream& rank : ranks) {
    if (bytes == 0) break;
    void* memory = nullptr;
    (void)hipSetDevice(rank.device);
    ARLAB_RETURN_IF_ERROR(
        status_of(hipMalloc(&memory, bytes), "no memory for the work between calls"));
    ranks_.push_back({rank, static_cast<std::uint8_t*>(memory)});
    ARLAB_RETURN_IF_ERROR(status_of(hipMemset(memory, 0, bytes), "the work between calls"));
  }
  return {};
}

Status Between::enqueue() const {
  Status status;
  for (const Rank& rank : ranks_) {
    (void)hipSetDevice(rank.on.device);
    if (request_.gemm && status.ok()) {
      auto* matrix = reinterpret_cast<float*>(rank.memory);
      constexpr std::size_t kElements = kMatrixBytes / sizeof(float);
      status = status_of(launch_matrix_product(matrix, matrix + kElements, matrix + 2 * kElements,
                                               kMatrixSide, rank.on.stream),
                         "the work between calls");
    }
    if (request_.cold && status.ok()) {
      status = status_of(
          launch_overwrite(rank.memory + (request_.gemm ? 3 * kMatrixBytes : 0), kFlushedBytes,
                           std::uint32_t{0}, kOverwritingBlocks, rank.on.stream),
          "the work between calls");
    }
  }
  return status;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
