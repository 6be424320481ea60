#include "kernels/runtime/between.h"
#include "kernels/runtime/between_kernels.h"
#include "kernels/runtime/hip_status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

__global__ void __launch_bounds__(kThreads)
    matrix_product_kernel(const float* a, const float* b, float* c, int side) {
  multiply_matrices(a, b, c, side);
}

__global__ void __launch_bounds__(kThreads)
    overwrite_kernel(std::uint8_t* memory, std::size_t bytes, std::uint32_t word) {
  overwrite(memory, bytes, word);
}

#if defined(__HIP_PLATFORM_HOST__)
constexpr int kSide = 64;  // emulated: time means nothing
constexpr std::size_t kFlushedBytes = std::size_t{1} << 16;
constexpr unsigned kOverwritingBlocks = 4;
#else
constexpr int kSide = 1024;  // some tens of microseconds on all multiprocessors
constexpr std::size_t kFlushedBytes = std::size_t{512} << 20;  // more than any cache holds
constexpr unsigned kOverwritingBlocks = 1024;
#endif
constexpr std::size_t kMatrixBytes = std::size_t{kSide} * kSide * sizeof(float);

}  // namespace

hipError_t launch_matrix_product(const float* a, const float* b, float* c, int side,
                                 hipStream_t stream) {
  const int blocks = side / kBlockSide;
  hipLaunchKernelGGL(matrix_product_kernel, dim3(static_cast<unsigned>(blocks * blocks)),
                     dim3(kThreads), 0, stream, a, b, c, side);
  return hipGetLastError();
}

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
                                               kSide, rank.on.stream),
                         "the work between calls");
    }
    if (request_.cold && status.ok()) {
      hipLaunchKernelGGL(overwrite_kernel, dim3(kOverwritingBlocks), dim3(kThreads), 0,
                         rank.on.stream, rank.memory + (request_.gemm ? 3 * kMatrixBytes : 0),
                         kFlushedBytes, std::uint32_t{0});
      status = status_of(hipGetLastError(), "the work between calls");
    }
  }
  return status;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
