// A user's program with kernels, on emulated GPUs: do they have the reference's bits, and two ranks
// that reduce.

#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "kernels/conformance/conform.h"
#include "kernels/runtime/communicator.h"

using namespace arlab::kernels;

namespace {

bool conforms() {
  std::uint64_t compared = 0;
  std::uint64_t mismatches = 0;
  const auto host = find_platform("host");
  if (!host.ok()) return false;
  const Status status = run_conformance(
      *host.value(),
      {.codecs = {"qr-q4"}, .algorithms = {"two_shot"}, .ranks = {2}, .lengths = {3000}},
      [&](const ConformanceRow& row) {
        compared += row.compared_elements;
        mismatches += row.mismatches;
      });
  return status.ok() && compared > 0 && mismatches == 0;
}

/// 1 + 2 on every rank, as fp32.
bool reduces() {
  const std::vector<int> devices = {0, 1};
  auto made = Communicator::in_process(devices);
  if (!made.ok()) return false;
  std::vector<Communicator> ranks = std::move(made.value());
  constexpr std::size_t kElements = 5000;
  const CollectiveRequest request{
      .algorithm = "one_shot", .codec = "fp32", .dtype = arlab::DType::fp32, .elements = kElements};
  float* tensors[2] = {};
  hipStream_t streams[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    if (hipSetDevice(devices[rank]) != hipSuccess ||
        hipStreamCreateWithFlags(&streams[rank], hipStreamNonBlocking) != hipSuccess ||
        hipMalloc(reinterpret_cast<void**>(&tensors[rank]), kElements * sizeof(float)) !=
            hipSuccess)
      return false;
    const std::vector<float> values(kElements, static_cast<float>(rank + 1));
    if (hipMemcpy(tensors[rank], values.data(), kElements * sizeof(float), hipMemcpyDefault) !=
        hipSuccess)
      return false;
  }
  for (int rank = 0; rank < 2; ++rank) {
    if (!ranks[rank].run(request, tensors[rank], tensors[rank], streams[rank]).ok()) return false;
  }
  bool right = true;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<float> sums(kElements);
    right = hipStreamSynchronize(streams[rank]) == hipSuccess && ranks[rank].check().ok() &&
            hipMemcpy(sums.data(), tensors[rank], kElements * sizeof(float), hipMemcpyDefault) ==
                hipSuccess &&
            right;
    for (const float sum : sums) right = right && sum == 3.0f;
    (void)hipStreamDestroy(streams[rank]);
    (void)hipFree(tensors[rank]);
  }
  return right;
}

}  // namespace

int main() {
  if (!conforms()) return std::puts("the kernels do not conform"), 1;
  if (!reduces()) return std::puts("the ranks do not reduce"), 1;
  return 0;
}
