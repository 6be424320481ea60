#include "kernels/compile/ahead.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "kernels/codecs/codec_kernels.h"
#include "kernels/layers/int8_layers.h"
#include "kernels/runtime/prepared_call.h"
#include "kernels/runtime/team_memory.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// Kernels, each once.
class KernelSet {
 public:
  void add(std::vector<WantedKernel> kernels) {
    for (WantedKernel& kernel : kernels) by_unit_.emplace(kernel.unit, std::move(kernel));
  }
  void add(const KernelSet& other) {
    by_unit_.insert(other.by_unit_.begin(), other.by_unit_.end());
  }
  std::vector<KernelOn> on(std::span<const std::string> architectures) const {
    std::vector<KernelOn> all;
    for (const std::string& architecture : architectures) {
      for (const auto& [unit, kernel] : by_unit_) all.emplace_back(&kernel, architecture);
    }
    return all;
  }

 private:
  std::map<std::string, WantedKernel> by_unit_;
};

/// Rank 0 of a team on devices of any size: which kernels there are for calls of all lengths does not depend on it. As in one
/// process, rank 0 stands for all.
TeamResources team_without_devices(int ranks) {
  constexpr int kMultiprocessors = 128;
  const CommunicatorOptions options;
  const BufferLayout layout = layout_of(options, ranks, kMultiprocessors);
  TeamResources resources = {{}, options, kMultiprocessors, nullptr};
  set_layout(0, layout, options, resources.team);
  return resources;
}

/// From one element to more than rules have thresholds for: some that end inside a tile, and some of whole tiles on all ranks.
std::vector<std::size_t> lengths_of(Collective collective, int ranks) {
  constexpr std::size_t kMost = std::size_t{1} << 27;
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> lengths;
  for (std::size_t length = 1; length < kMost; length *= 2) {
    const std::size_t elements = length + 1;
    lengths.push_back(has_slots(collective) ? elements * count : elements);
  }
  for (std::size_t tiles = 1; tiles * kTile * count < kMost; tiles *= 2) {
    lengths.push_back(tiles * kTile * count);
  }
  return lengths;
}

/// Kernels of calls of one codec and dtype. A call that cannot be made has none.
KernelSet kernels_of_calls(const AheadRequest& request, const CodecAndDType& codec) {
  KernelSet kernels;
  for (const int ranks : request.ranks) {
    const TeamResources team = team_without_devices(ranks);
    for (const std::string& name : request.algorithms) {
      for (const std::size_t length : lengths_of(find_algorithm(name).collective, ranks)) {
        CollectiveRequest asked{name, codec.first, codec.second, length};
        if (request.tail) {
          asked.tail = request.tail;
          asked.elements = (length / request.tail->hidden + 1) * request.tail->hidden;
        }
        const auto call = PreparedCall::prepare(asked, team);
        if (!call.ok()) continue;
        Result<std::vector<WantedKernel>> wanted = call.value()->kernels();
        if (wanted.ok()) kernels.add(std::move(wanted).value());
      }
    }
  }
  return kernels;
}

KernelSet kernels_of(const AheadRequest& request) {
  std::vector<CodecAndDType> codecs;
  for (const std::string& name : request.codecs) {
    for (const DType dtype : request.dtypes) {
      if (find_codec(name)->takes(dtype)) codecs.emplace_back(name, dtype);
    }
  }
  KernelSet all;
  all.add(kernels_of_codecs(codecs));
  std::vector<KernelSet> of_calls(codecs.size());
  parallel_for(codecs.size(), request.jobs, [&](unsigned, std::size_t i) {
    of_calls[i] = kernels_of_calls(request, codecs[i]);
  });
  for (const KernelSet& each : of_calls) all.add(each);
  return all;
}

/// Nothing where there is no compiler: then what is there already is all.
Status require_known(std::span<const std::string> architectures) {
  const Result<const Compiler*> compiler = KernelStore::compiler();
  if (!compiler.ok()) return {};
  for (const std::string& architecture : architectures) {
    ARLAB_RETURN_IF_ERROR(compiler.value()->require_compiles(architecture));
  }
  return {};
}

/// The user's own, or one for the folder, of any size.
Result<KernelCache*> cache_of(const AheadRequest& request,
                              std::unique_ptr<KernelCache>& of_folder) {
  if (request.folder.empty()) return KernelCache::of_process();
  ARLAB_ASSIGN_OR_RETURN(CachePlaces places, cache_places());
  places.folder = request.folder;
  places.most_bytes = UINT64_MAX;
  of_folder = std::make_unique<KernelCache>(std::move(places));
  return of_folder.get();
}

}  // namespace

std::vector<WantedKernel> kernels_of_codecs(std::span<const CodecAndDType> codecs) {
  const NotesKernels notes;
  // Long messages are measured in parts.
  for (const std::size_t elements : {std::size_t{1}, std::size_t{1} << 30}) {
    for (const auto& [name, dtype] : codecs) {
      const Result<CodecChoice> codec = choose_codec(name);
      if (!codec.ok()) continue;
      (void)launch_encode(codec.value(), dtype, nullptr, elements, nullptr, {}, nullptr, nullptr);
      (void)launch_decode(codec.value(), dtype, nullptr, elements, nullptr, nullptr);
      (void)launch_decode_add(codec.value(), dtype, nullptr, elements, nullptr, nullptr);
    }
  }
  return notes.kernels();
}

std::vector<WantedKernel> kernels_of_layers() {
  const NotesKernels notes;
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    (void)launch_quantize_int8(dtype, nullptr, 1, 1, {}, nullptr, {}, nullptr);
    (void)launch_linear_int8({}, 1, {}, 1, 1, dtype, nullptr, nullptr);
  }
  return notes.kernels();
}

Result<CompiledAhead> compile_kernels_ahead(const AheadRequest& request,
                                            const CompileProgress& progress) {
  ARLAB_RETURN_IF_ERROR(require_known(request.architectures));
  std::unique_ptr<KernelCache> of_folder;
  ARLAB_ASSIGN_OR_RETURN(KernelCache* const cache, cache_of(request, of_folder));
  if (!cache->why_not_used().empty()) return Status::error(cache->why_not_used());
  const KernelSet kernels = kernels_of(request);
  const std::vector<KernelOn> wanted = kernels.on(request.architectures);
  const auto is_there = [&](const KernelOn& each) {
    return cache->has(KernelStore::key_of(*each.first, each.second));
  };
  std::vector<KernelOn> missing = wanted;
  std::erase_if(missing, is_there);
  if (!missing.empty()) ARLAB_RETURN_IF_ERROR(KernelStore::compiler().status());
  ARLAB_RETURN_IF_ERROR(
      KernelStore::for_each(missing, request.jobs, progress, [cache](const KernelOn& each) {
        return KernelStore::from(*cache, *each.first, each.second).status();
      }));
  const auto left_out = std::ranges::count_if(missing, std::not_fn(is_there));
  if (left_out != 0) {
    return Status::error(
        fmt::format("{} of {} kernels could not be kept in {}: it is full, or "
                    "ARLAB_KERNEL_CACHE_BYTES is too small",
                    left_out, wanted.size(), cache->folder().string()));
  }
  return CompiledAhead{cache->folder(), wanted.size(), missing.size()};
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
