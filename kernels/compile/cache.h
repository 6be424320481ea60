// Compiled kernels on disk, a file for each. They are machine code that will be run, so the cache trusts no folder that
// somebody else may write to, and no file that is not whole (SECURITY.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/compile/compiler.h"

namespace arlab::kernels {

/// Identity of a code object: all that it is made of.
struct KernelKey {
  std::string kernel = {};   ///< for people: "two_shot_sentinel int4-g32 bf16"
  std::string sources = {};  ///< hash of the device headers, and of the user's
  std::string unit = {};     ///< text of the translation unit
  std::vector<std::string> options = {};
  std::string architecture = {};  ///< sm_90, gfx942
  /// Compiler::identity(); empty where there is no compiler: code of any will do then.
  std::string compiler = {};
};

/// One file of a cache.
struct CachedKernel {
  std::filesystem::path file = {};
  std::string kernel = {};
  std::string architecture = {};
  std::string compiler = {};
  std::uint64_t bytes = 0;          ///< the file's
  std::int64_t seconds_unused = 0;  ///< since it was last made or loaded
};

/// Where kernels are kept, and how much of them.
struct CachePlaces {
  std::filesystem::path folder = {};                  ///< empty: nowhere
  std::vector<std::filesystem::path> read_only = {};  ///< looked at first
  std::uint64_t most_bytes = std::uint64_t{1} << 30;
  std::string why_no_folder = {};  ///< where `folder` is empty
};

/// Places that the environment names: ARLAB_KERNEL_CACHE or $XDG_CACHE_HOME/arlab/kernels or
/// ~/.cache/arlab/kernels; ARLAB_KERNEL_FOLDER (folders with colons between them); ARLAB_KERNEL_CACHE_BYTES. The
/// error names a variable with a bad value.
Result<CachePlaces> cache_places();

/// For threads and processes at once. Where its folder cannot be used, it says why, once for each process, in one line on
/// stderr, and kernels are compiled as if there were none.
class KernelCache {
 public:
  using Make = std::function<Result<CodeObject>()>;

  /// The cache of the process, of cache_places().
  static Result<KernelCache*> of_process();

  explicit KernelCache(CachePlaces places);
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;
  ~KernelCache();

  /// Adds a folder that is only read (--kernel-folder), unless somebody else may write to it or to one above it.
  Status add_read_only(const std::filesystem::path& folder);

  /// The code object of the key: from a read-only folder, from the cache, or made and then kept. Of all that ask for the same
  /// one at the same time, one makes it and the others wait.
  Result<CodeObject> get(const KernelKey& key, const Make& make);

  /// Whether it is there, so that get() would not call `make`. It is not loaded.
  bool has(const KernelKey& key) const;

  /// Why kernels are not kept; empty where they are.
  std::string why_not_used() const;
  std::filesystem::path folder() const;

  /// The cached kernels, the one used last first.
  Result<std::vector<CachedKernel>> list() const;
  /// Removes all of it; how many files that were.
  Result<std::size_t> clear();

 private:
  class Kept;
  std::unique_ptr<Kept> kept_;
};

}  // namespace arlab::kernels
