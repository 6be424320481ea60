#include "kernels/runtime/platforms.h"

namespace arlab::kernels {

#ifdef ARLAB_HAS_HOST
namespace host {
const Platform& device_platform();
}
#endif
namespace cuda {
const Platform& device_platform();
}
namespace rocm {
const Platform& device_platform();
}

Result<CompiledAhead> Platform::compile_ahead(const AheadRequest&, const CompileProgress&) const {
  return Status::error("its kernels are in the program, and are not compiled on demand");
}

Status Platform::add_kernel_folder(const std::filesystem::path&) const {
  return Status::error(
      "its kernels are in the program; a folder of compiled ones is for cuda and rocm");
}

std::vector<int> Platform::devices_of_group(int ranks) const {
  const Result<int> count = devices();
  std::vector<int> of_rank;
  for (int rank = 0; count.ok() && rank < ranks; ++rank) of_rank.push_back(rank % count.value());
  return of_rank;
}

const std::vector<const Platform*>& built_platforms() {
  static const std::vector<const Platform*> platforms = {
#ifdef ARLAB_HAS_HOST
      &host::device_platform(),
#endif
      &cuda::device_platform(),
      &rocm::device_platform(),
  };
  return platforms;
}

const Platform& usual_platform() {
  for (const char* name : {"cuda", "rocm", "host"}) {
    const Result<const Platform*> found = find_platform(name);
    if (found.ok() && found.value()->devices().ok()) return *found.value();
  }
  return *built_platforms().front();
}

Result<const Platform*> find_platform(std::string_view name) {
  std::string built;
  for (const Platform* platform : built_platforms()) {
    if (platform->name() == name) return platform;
    if (!built.empty()) built += ", ";
    built += platform->name();
  }
  const char* const remedy =
      name == "host" ? " (for Python: pip install . -C cmake.define.ARLAB_HOST_PLATFORM=ON)" : "";
  return Status::refusal("platform " + std::string(name) + " is not in this build; built are " +
                         built + remedy);
}

Status run_together(const CollectiveRequest& request, std::span<const RankCall> ranks) {
  Status status;
  {
    const std::shared_ptr<void> others_wait = ranks.front().rank->hold_other_threads();
    for (const RankCall& call : ranks) {
      if (status.ok())
        status = call.rank->run(request, call.input, call.output, call.stream, call.tail);
    }
  }
  // Kernels that have started use the tensors until they end.
  for (const RankCall& call : ranks) {
    const Status ended = call.rank->wait(call.stream);
    if (status.ok()) status = ended;
  }
  for (const RankCall& call : ranks) {
    const Status checked = call.rank->check();
    if (status.ok()) status = checked;
  }
  return status;
}

}  // namespace arlab::kernels
