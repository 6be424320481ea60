// Compiled kernels: what the cache has, and those of GPUs that are not here.

#include <algorithm>
#include <map>
#include <set>

#include "experiments/lab/bits/tailed.h"
#include "experiments/lab/gpus/conform.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/sizes.h"
#include "kernels/compile/cache.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"

namespace arlab::lab {
namespace {

template <class T>
T value_of(kernels::Result<T> result) {
  if (!result.ok()) fail("{}", result.status().message());
  return std::move(result).value();
}

// ---------------------------------------------------------------- the cache

struct NoFields {};
std::vector<BoundField> fields(NoFields&) { return {}; }

Result list_kernels(const NoFields&) {
  const kernels::KernelCache& cache = *value_of(kernels::KernelCache::of_process());
  Result report{"arlab.kernels.list/1", {}, "kernels"};
  report.rows.columns = words_in("kernel architecture compiler bytes unused_s file");
  report.shown = words_in("kernel architecture compiler bytes unused_s");
  std::uint64_t bytes = 0;
  for (const kernels::CachedKernel& kernel : value_of(cache.list())) {
    report.rows.rows.push_back({kernel.kernel, kernel.architecture, kernel.compiler, kernel.bytes,
                                kernel.seconds_unused, kernel.file.string()});
    bytes += kernel.bytes;
  }
  report.figures = {{"folder", cache.folder().string()},
                    {"compiled_kernels", report.rows.rows.size()},
                    {"compiled_bytes", bytes}};
  return report;
}

Result clear_kernels(const NoFields&) {
  kernels::KernelCache& cache = *value_of(kernels::KernelCache::of_process());
  Result report{"arlab.kernels.clear/1"};
  report.figures = {{"folder", cache.folder().string()},
                    {"removed", value_of(cache.clear()), "compiled kernels"}};
  return report;
}

// ---------------------------------------------------------------- kernels of GPUs that are not here

struct BuildRequest {
  std::vector<std::string> codecs;
  std::vector<std::string> dtypes = {"bf16"};
  std::vector<std::string> ranks = {"2-8"};
  std::vector<std::string> architectures;
  std::vector<std::string> algorithms;
  std::string tail;
  std::optional<std::uint32_t> jobs;
  std::string out;

  /// Named ones must have kernels, and take a dtype that is named.
  std::vector<std::string> codecs_on(const kernels::Platform& on,
                                     const std::vector<DType>& types) const {
    std::vector<std::string> named = codecs;
    const bool all = named == std::vector<std::string>{"all"};
    if (all) named = listed_codecs();
    const auto takes_one = [&](const std::string& name) {
      return std::ranges::any_of(types, [&](DType type) { return find_codec(name)->takes(type); });
    };
    std::vector<std::string> chosen;
    for (const std::string& name : named) {
      const std::string codec = find_codec(name)->name();
      if (on.has_codec(codec) && takes_one(codec)) {
        chosen.push_back(codec);
      } else if (!all) {
        fail("codec {} {}", name,
             on.has_codec(codec) ? "takes none of these --dtype" : "has no kernels");
      }
    }
    return chosen;
  }

  kernels::AheadRequest request(const kernels::Platform& on,
                                const std::set<std::string>& for_gpus) const {
    kernels::AheadRequest request{.folder = out, .jobs = jobs.value_or(0)};
    request.architectures = {for_gpus.begin(), for_gpus.end()};
    for (const std::string& dtype : dtypes) request.dtypes.push_back(parse_dtype(dtype));
    for (const Rank count : integers_in(words_of(ranks), "--ranks", 2, 8)) {
      request.ranks.push_back(static_cast<int>(count));
    }
    request.codecs = codecs_on(on, request.dtypes);
    request.tail = TailPlaceOptions{tail, {}, {}}.parse();
    for (const std::string& name : algorithms)
      request.algorithms.push_back(find_algorithm(name).name);
    if (algorithms.empty()) {
      for (const Algorithm& known : all_algorithms()) request.algorithms.push_back(known.name);
    }
    return request;
  }

  Result answer() const {
    std::map<std::string_view, std::set<std::string>> on_platform;  // each once
    for (const std::string& name : architectures) {
      on_platform[name.starts_with("gfx") ? "rocm" : "cuda"].insert(name);
    }
    kernels::CompiledAhead made;
    for (const auto& [platform, for_gpus] : on_platform) {
      const kernels::Platform& on = *value_of(kernels::find_platform(platform));
      const auto part = value_of(on.compile_ahead(request(on, for_gpus), compile_progress()));
      made = {part.folder, made.kernels + part.kernels, made.compiled + part.compiled};
    }
    Result report{"arlab.kernels.build/1"};
    report.figures = {{"folder", made.folder.string()},
                      {"kernels", made.kernels, "of all architectures"},
                      {"compiled", made.compiled, "the others were there"}};
    return report;
  }
};

std::vector<BoundField> fields(BuildRequest& r) {
  return {
      field("codec", &r.codecs, "Compile for these codecs, separated by commas, or all").required(),
      field("dtype", &r.dtypes,
            "Compile for these element types, separated by commas: bf16, fp16 or fp32", "bf16"),
      field("ranks", &r.ranks, "Compile for these world sizes, separated by commas, and FIRST-LAST",
            "2-8"),
      field("arch", &r.architectures,
            "Compile for these GPU architectures, separated by commas: sm_90 (H100), sm_100 "
            "(B200), gfx942 (MI300), ...")
          .required(),
      field("algorithm", &r.algorithms, "Compile these algorithms, separated by commas",
            "all that have kernels"),
      field("tail", &r.tail,
            "Compile all-reduces with this tail, as of reduce --tail, and with the elements of a "
            "row: hidden=8192,..."),
      field("jobs", &r.jobs, "Compile N kernels at once", "as many as there are cores")
          .from(1, 1024),
      field("out", &r.out, "Write to this folder, which other machines take as --kernel-folder",
            "the cache")};
}

}  // namespace

Question kernels_list_question() {
  return question<NoFields>(
      "kernels list", "List the compiled kernels in the cache, latest used first", list_kernels);
}
Question kernels_build_question() {
  return question<BuildRequest>("kernels build",
                                "Compile kernels ahead of time, for GPUs that need not be present",
                                &BuildRequest::answer);
}
Question kernels_clear_question() {
  return question<NoFields>("kernels clear", "Remove all compiled kernels from the cache",
                            clear_kernels);
}

}  // namespace arlab::lab
