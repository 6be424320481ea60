#include "kernels/compile/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/compile/kernel_folder.h"
#include "kernels/platform/shared_library.h"
#include "reference/tensors/file.h"
#include "reference/tensors/sha256.h"

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;

std::string hash_of_text(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

/// Files of the same kernel by different compilers begin alike, so that code can be found where there is no compiler.
std::string name_start(const KernelKey& key) {
  std::string all;
  const auto add = [&all](std::string_view part) {
    all += fmt::format("{} {}\n", part.size(), part);
  };
  for (const std::string* part : {&key.sources, &key.unit, &key.architecture}) add(*part);
  for (const std::string& option : key.options) add(option);
  return hash_of_text(all) + ".";
}
std::string name_of(const KernelKey& key) {
  return name_start(key) + hash_of_text(key.compiler).substr(0, 16) +
         std::string(KernelFolder::kSuffix);
}

}  // namespace

// ---------------------------------------------------------------- places

Result<CachePlaces> cache_places() {
  CachePlaces places;
  const std::string own = environment("ARLAB_KERNEL_CACHE");
  const std::string caches = environment("XDG_CACHE_HOME");
  const std::string home = environment("HOME");
  if (!own.empty()) {
    places.folder = own;
  } else if (!caches.empty()) {
    places.folder = fs::path(caches) / "arlab/kernels";
  } else if (!home.empty()) {
    places.folder = fs::path(home) / ".cache/arlab/kernels";
  } else {
    places.why_no_folder =
        "compiled kernels are not kept: set ARLAB_KERNEL_CACHE, XDG_CACHE_HOME or HOME to a folder";
  }
  const std::string named = environment("ARLAB_KERNEL_FOLDER");
  for (std::string_view folders = named; !folders.empty();) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    if (end != 0) places.read_only.emplace_back(folders.substr(0, end));
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  const std::string bytes = environment("ARLAB_KERNEL_CACHE_BYTES");
  const char* const end = bytes.data() + bytes.size();
  const auto [stopped, error] = std::from_chars(bytes.data(), end, places.most_bytes);
  if (!bytes.empty() && (error != std::errc() || stopped != end)) {
    return Status::error(fmt::format(
        "ARLAB_KERNEL_CACHE_BYTES is '{}': allowed is a number of bytes", printable(bytes)));
  }
  return places;
}

// ---------------------------------------------------------------- the cache

class KernelCache::Kept {
 public:
  explicit Kept(CachePlaces places) : most_bytes_(places.most_bytes) {
    for (const fs::path& path : places.read_only) {
      const Status added = add_read_only(path);
      if (!added.ok()) say(added.message());
    }
    why_not_used_ = places.why_no_folder;
    if (places.folder.empty()) return;
    auto opened = KernelFolder::open_own(places.folder);
    if (opened.ok()) {
      folder_ = std::move(opened).value();
    } else {
      why_not_used_ = opened.status().message();
    }
  }

  Status add_read_only(const fs::path& path) {
    ARLAB_ASSIGN_OR_RETURN(std::unique_ptr<KernelFolder> folder,
                           KernelFolder::open_read_only(path));
    const std::scoped_lock lock(mutex_);
    const auto is_known = [&](const auto& known) { return known->name() == path; };
    if (std::ranges::none_of(read_only_, is_known)) read_only_.push_back(std::move(folder));
    return {};
  }

  Result<CodeObject> get(const KernelKey& key, const Make& make) {
    const KernelLock this_kernel(*this, name_of(key));
    if (std::optional<CodeObject> found = find(key)) return *std::move(found);
    if (folder_ == nullptr) return make_and_remember(key, make);
    const FileDescriptor lock = folder_->lock(name_of(key));
    if (std::optional<CodeObject> found = find(key)) return *std::move(found);
    Result<CodeObject> made = make();
    if (made.ok()) keep(key, made.value());
    return made;
  }

  bool has(const KernelKey& key) const {
    const std::scoped_lock lock(mutex_);
    const auto is_in = [&](const KernelFolder& folder) { return !names_in(folder, key).empty(); };
    return memory_.contains(name_of(key)) || (folder_ != nullptr && is_in(*folder_)) ||
           std::any_of(read_only_.begin(), read_only_.end(),
                       [&](const auto& folder) { return is_in(*folder); });
  }

  std::string why_not_used() const { return why_not_used_; }
  fs::path folder() const { return folder_ != nullptr ? folder_->name() : fs::path(); }

  Result<std::vector<CachedKernel>> list() const {
    if (folder_ == nullptr) return Status::error(why_not_used_);
    std::vector<CachedKernel> kernels;
    for (const std::string& name : folder_->names("")) kernels.push_back(folder_->describe(name));
    std::stable_sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) {
      return a.seconds_unused < b.seconds_unused;
    });
    return kernels;
  }
  Result<std::size_t> clear() {
    if (folder_ == nullptr) return Status::error(why_not_used_);
    const std::vector<std::string> names = folder_->names("");
    for (const std::string& name : names) folder_->remove(name);
    return names.size();
  }

 private:
  /// While there is one, no other thread is at the same kernel.
  class KernelLock {
   public:
    KernelLock(Kept& kept, std::string name) : kept_(kept), name_(std::move(name)) {
      std::unique_lock lock(kept_.mutex_);
      kept_.free_.wait(lock, [&] { return kept_.busy_.insert(name_).second; });
    }
    ~KernelLock() {
      const std::scoped_lock lock(kept_.mutex_);
      kept_.busy_.erase(name_);
      kept_.free_.notify_all();
    }
    KernelLock(const KernelLock&) = delete;
    KernelLock& operator=(const KernelLock&) = delete;

   private:
    Kept& kept_;
    std::string name_;
  };

  /// Names for its own compiler; for any where the key names none.
  static std::vector<std::string> names_in(const KernelFolder& folder, const KernelKey& key) {
    if (key.compiler.empty()) return folder.names(name_start(key));
    const std::string name = name_of(key);
    return folder.has(name) ? std::vector{name} : std::vector<std::string>();
  }

  std::optional<CodeObject> find(const KernelKey& key) {
    std::vector<const KernelFolder*> folders;
    {
      const std::scoped_lock lock(mutex_);
      const auto at = memory_.find(name_of(key));
      if (at != memory_.end()) return at->second;
      for (const auto& each : read_only_) folders.push_back(each.get());
    }
    if (folder_ != nullptr) folders.push_back(folder_.get());
    for (const KernelFolder* folder : folders) {
      for (const std::string& name : names_in(*folder, key)) {
        if (std::optional<CodeObject> found = folder->read(name)) return found;
      }
    }
    return std::nullopt;
  }

  /// Without a folder: as long as the process.
  Result<CodeObject> make_and_remember(const KernelKey& key, const Make& make) {
    say_once(why_not_used_);
    Result<CodeObject> made = make();
    const std::scoped_lock lock(mutex_);
    if (made.ok()) memory_.emplace(name_of(key), made.value());
    return made;
  }

  void keep(const KernelKey& key, const CodeObject& code) {
    const std::string name = name_of(key);
    const std::string why = folder_->write(name, key, code);
    if (!why.empty()) {
      say_once(
          fmt::format("compiled kernels are not kept in {}: {}", folder_->name().string(), why));
      return;
    }
    folder_->keep_at_most(most_bytes_);
  }

  static void say(const std::string& line) { fmt::print(stderr, "arlab: {}\n", line); }
  void say_once(const std::string& line) {
    if (!line.empty()) std::call_once(said_, [&] { say(line); });
  }

  std::uint64_t most_bytes_;
  std::unique_ptr<KernelFolder> folder_;
  std::string why_not_used_;
  std::once_flag said_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<KernelFolder>> read_only_;
  std::map<std::string, CodeObject> memory_;
  std::set<std::string> busy_;
  std::condition_variable free_;
};

KernelCache::KernelCache(CachePlaces places) : kept_(std::make_unique<Kept>(std::move(places))) {}
KernelCache::~KernelCache() = default;

Result<KernelCache*> KernelCache::of_process() {
  static const auto& cache = *new Result<KernelCache*>([]() -> Result<KernelCache*> {
    ARLAB_ASSIGN_OR_RETURN(CachePlaces places, cache_places());
    return new KernelCache(std::move(places));
  }());
  return cache;
}

Status KernelCache::add_read_only(const fs::path& folder) { return kept_->add_read_only(folder); }
Result<CodeObject> KernelCache::get(const KernelKey& key, const Make& make) {
  return kept_->get(key, make);
}
bool KernelCache::has(const KernelKey& key) const { return kept_->has(key); }
std::string KernelCache::why_not_used() const { return kept_->why_not_used(); }
fs::path KernelCache::folder() const { return kept_->folder(); }
Result<std::vector<CachedKernel>> KernelCache::list() const { return kept_->list(); }
Result<std::size_t> KernelCache::clear() { return kept_->clear(); }

}  // namespace arlab::kernels
