#include "kernels/runtime/platforms.h"

namespace arlab::kernels {

namespace host {
const Platform& device_platform();
}
#ifdef ARLAB_HAS_CUDA
namespace cuda {
const Platform& device_platform();
}
#endif
#ifdef ARLAB_HAS_ROCM
namespace rocm {
const Platform& device_platform();
}
#endif

const std::vector<const Platform*>& built_platforms() {
  static const std::vector<const Platform*> platforms = {
      &host::device_platform(),
#ifdef ARLAB_HAS_CUDA
      &cuda::device_platform(),
#endif
#ifdef ARLAB_HAS_ROCM
      &rocm::device_platform(),
#endif
  };
  return platforms;
}

Result<const Platform*> find_platform(std::string_view name) {
  std::string built;
  for (const Platform* platform : built_platforms()) {
    if (platform->name() == name) return platform;
    if (!built.empty()) built += ", ";
    built += platform->name();
  }
  return Status::error("platform " + std::string(name) + " is not in this build; built are " +
                       built);
}

}  // namespace arlab::kernels
