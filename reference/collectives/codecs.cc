#include "reference/collectives/codecs.h"

#include <algorithm>
#include <numeric>

#include "reference/codecs/registry.h"

namespace arlab {

std::uint64_t Codecs::alignment() const {
  const std::uint64_t a = outer_->info().alignment;
  const std::uint64_t b = inner_->info().alignment;
  if (a == kWholeTensor || b == kWholeTensor) return kWholeTensor;
  const std::uint64_t factor = a / std::gcd(a, b);
  return factor > kWholeTensor / b ? kWholeTensor : factor * b;
}

CodecPtr find_inner_codec(const AlgorithmOptions& options, const CodecPtr& outer) {
  const std::optional<std::string> inner = options.inner_codec();
  return inner ? find_codec(*inner) : outer;
}

void require_inner_codec(const Schedule& schedule) {
  const bool uses = std::any_of(schedule.ops.begin(), schedule.ops.end(),
                                [](const Op& op) { return op.codec == CodecRole::inner; });
  if (!uses) fail("schedule '{}' encodes nothing with an inner codec", schedule.algorithm);
}

}  // namespace arlab
