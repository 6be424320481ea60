#include <mutex>
#include <utility>
#include <vector>

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/kernels_of_format.h"
#include "reference/codecs/formats/formats.h"

#if defined(__HIP_PLATFORM_HOST__)
#include "kernels/codecs/host_codec.h"
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::function<FormatChoice(std::string_view)>> find;
};

/// choice.h has them.
template <class Format>
inline constexpr bool kIsInChoice = false;
template <>
inline constexpr bool kIsInChoice<MxInt8> = true;
template <>
inline constexpr bool kIsInChoice<Fp8Blocks<128>> = true;
template <std::size_t kGroup>
inline constexpr bool kIsInChoice<Codebook<kGroup>> = true;

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

FormatChoice find_format_kernels(std::string_view name) {
  FormatChoice found;
  for_each_scaled_format([&]<class Format>() {
    if constexpr (!kIsInChoice<Format>) {
      if (found == nullptr) found = kernels_of_format<Format>(name);
    } else if (found == nullptr) {
      found = stochastic_kernels_of_format<Format>(name);
    }
  });
  Registry& known = registry();
  const std::scoped_lock lock(known.mutex);
  for (const auto& find : known.find) {
    if (found == nullptr) found = find(name);
  }
  return found;
}

FormatChoice stochastic_anybit_kernels(const AnyBitParameters& parameters) {
  return std::make_shared<ProgramKernels<StochasticAnyBit, AnyBitParameters>>(parameters);
}

FormatChoice kernels_on_host([[maybe_unused]] const CodecPtr& codec) {
#if defined(__HIP_PLATFORM_HOST__)
  if (HostCodec::can(*codec)) return std::make_shared<HostCodecKernels>(codec);
#endif
  return nullptr;
}

void register_format_kernels(std::function<FormatChoice(std::string_view name)> find) {
  Registry& known = registry();
  const std::scoped_lock lock(known.mutex);
  known.find.push_back(std::move(find));
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
