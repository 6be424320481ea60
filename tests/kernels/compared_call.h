// A collective of a rank in a process of its own, compared with the reference.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "kernels/platform/platform.h"
#include "kernels/runtime/communicator.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/synthetic.h"

namespace arlab::kernels {

/// A call with inputs that all ranks can make; says what is wrong with this rank's result.
inline std::string compared_call(Communicator& communicator, const CollectiveRequest& request,
                                 int seed) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto ranks = static_cast<std::size_t>(communicator.ranks());
  const Tensor inputs = make_synthetic("gaussian:seed=" + std::to_string(seed), request.dtype,
                                       ranks, request.elements);
  const std::size_t bytes = inputs.rank_bytes(0).size();
  std::vector<std::byte> output(bytes);
  Status status = communicator.run(request, inputs.rank_bytes(rank).data(), output.data(), nullptr);
  (void)hipDeviceSynchronize();
  if (status.ok()) status = communicator.check();
  if (!status.ok()) return status.message();

  const CodecPtr codec = find_codec(request.codec);
  std::vector<std::byte> expected(bytes * ranks);
  execute(make_schedule(request.algorithm, {.world_size = static_cast<Rank>(ranks),
                                            .elements = request.elements,
                                            .alignment = codec->info().alignment}),
          *codec, request.dtype, inputs.bytes(), expected, {.threads = 1});
  if (std::memcmp(output.data(), &expected[rank * bytes], bytes) == 0) return {};
  return request.algorithm + " " + request.codec + " has other bits than the reference";
}

inline CollectiveRequest request_of(const char* algorithm, const char* codec,
                                    std::size_t elements) {
  return {.algorithm = algorithm, .codec = codec, .dtype = DType::fp16, .elements = elements};
}

}  // namespace arlab::kernels
