#include <mutex>
#include <utility>
#include <vector>

#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/kernels_of_format.h"

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

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

FormatChoice find_format_kernels(std::string_view name) {
  FormatChoice found;
  Registry& known = registry();
  const std::scoped_lock lock(known.mutex);
  for (const auto& find : known.find) {
    if (found == nullptr) found = find(name);
  }
  return found;
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
