#include "kernels/compile/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "kernels/compile/trusted.h"
#include "kernels/platform/shared_library.h"
#include "kernels/runtime/file_descriptor.h"
#include "reference/error.h"
#include "reference/tensors/file.h"
#include "reference/tensors/sha256.h"

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "arlab kernel 1 ";
constexpr std::string_view kSuffix = ".kernel";
constexpr std::size_t kHashDigits = 64;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{64} << 20;

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
  return name_start(key) + hash_of_text(key.compiler).substr(0, 16) + std::string(kSuffix);
}

// ---- what a file holds: the hash of all behind its first line, then lines that say what it is, then the compiler's log and the code

std::string contents_of(const std::string& name, const KernelKey& key, const CodeObject& code) {
  const std::string body =
      fmt::format("{}\n{}\n{}\n{}\n{} {}\n", name, printable(key.kernel), key.architecture,
                  key.compiler, code.log.size(), code.bytes.size()) +
      code.log + code.bytes;
  return fmt::format("{}{}\n", kMagic, hash_of_text(body)) + body;
}

/// Takes the part of a text before the next end of a line.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

struct FileHead {
  std::string_view hash;
  std::string_view name;
  std::string_view kernel;
  std::string_view architecture;
  std::string_view compiler;
  std::string_view sizes;
};

/// Of a whole file, or of the beginning of one. Takes it off the text.
std::optional<FileHead> take_head(std::string_view& text) {
  if (!text.starts_with(kMagic)) return std::nullopt;
  text.remove_prefix(kMagic.size());
  FileHead head;
  for (std::string_view* line :
       {&head.hash, &head.name, &head.kernel, &head.architecture, &head.compiler, &head.sizes}) {
    *line = take_line(text);
  }
  return head;
}

/// What a whole file holds, if it is whole and is the one that its name says.
std::optional<CodeObject> code_of(std::string_view text, std::string_view name) {
  const std::size_t body_at = kMagic.size() + kHashDigits + 1;
  const std::string_view body = text.substr(std::min(body_at, text.size()));
  const std::optional<FileHead> head = take_head(text);
  if (!head || head->name != name || head->hash != hash_of_text(body)) return std::nullopt;
  std::size_t log_bytes = 0;
  (void)std::from_chars(head->sizes.begin(), head->sizes.end(), log_bytes);
  if (log_bytes > text.size()) return std::nullopt;
  return CodeObject{std::string(text.substr(log_bytes)), std::string(text.substr(0, log_bytes))};
}

std::string reason_of_system() { return std::strerror(errno); }

/// As mkdir -p, for this user only.
bool make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return true;
  if (errno != ENOENT || !path.has_parent_path() || path.parent_path() == path) return false;
  return make_folder(path.parent_path()) &&
         (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST);
}

/// Beyond this limit the system does not fail the call but ends the program.
bool is_beyond_limit(std::size_t bytes) {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         bytes > limit.rlim_cur;
}

}  // namespace

// ---------------------------------------------------------------- a folder

/// It is held open, so that it stays the one that was looked at.
class KernelCache::Folder {
 public:
  /// A folder that nobody else can enter; made if it is missing.
  static Result<std::unique_ptr<Folder>> open_own(const fs::path& path) {
    const auto refuse = [&](const std::string& why) {
      return Status::error(fmt::format("the kernel cache {} is not used: {}", path.string(), why));
    };
    if (!make_folder(path)) return refuse(reason_of_system());
    auto folder = std::make_unique<Folder>(path, O_NOFOLLOW);
    struct stat status = {};
    if (!folder->descriptor_.is_open() || ::fstat(folder->descriptor_.number(), &status) != 0) {
      return refuse(reason_of_system());
    }
    if (status.st_uid != ::geteuid()) {
      return refuse(fmt::format("it belongs to user {}, not to {}", status.st_uid, ::geteuid()));
    }
    if ((status.st_mode & 07777U) != S_IRWXU) {
      return refuse(fmt::format("it has mode {:o}, and must have 700", status.st_mode & 07777U));
    }
    remove_left_behind(folder->path_of(""), ".arlab-#-#.part");
    return folder;
  }
  /// A folder that nobody else may write to.
  static Result<std::unique_ptr<Folder>> open_read_only(const fs::path& path) {
    const Status trusted = require_trusted(path);
    if (!trusted.ok()) {
      return Status::error(
          fmt::format("the kernels in {} are not used: {}", path.string(), trusted.message()));
    }
    auto folder = std::make_unique<Folder>(path, 0);
    if (folder->descriptor_.is_open()) return folder;
    return Status::error(
        fmt::format("the kernels in {} are not used: {}", path.string(), reason_of_system()));
  }
  Folder(fs::path path, int flags)
      : name_(std::move(path)),
        descriptor_(::open(name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags)) {}

  const fs::path& name() const { return name_; }

  bool has(const std::string& name) const {
    struct stat status = {};
    return ::fstatat(descriptor_.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(status.st_mode);
  }

  /// Names of kernels that begin so.
  std::vector<std::string> names(std::string_view start) const {
    std::error_code ignored;
    std::vector<std::string> found;
    for (const fs::path& path : paths_in(path_of(""), ignored)) {
      const std::string name = path.filename().string();
      if (name.starts_with(start) && name.ends_with(kSuffix)) found.push_back(name);
    }
    return found;
  }

  /// The code of a file that only this user or root could have written, if it is whole. Says that it was used.
  std::optional<CodeObject> read(const std::string& name) const {
    const FileDescriptor file = open_file(name, O_RDONLY);
    if (!file.is_open() || status_of(file).st_size > static_cast<off_t>(kMostFileBytes)) {
      return std::nullopt;
    }
    try {
      std::optional<CodeObject> code = code_of(text_of(file), name);
      if (code) (void)::futimens(file.number(), nullptr);
      return code;
    } catch (const InvalidInput&) {  // of a file that grows shorter
      return std::nullopt;
    }
  }

  /// Empty, or why it could not be written.
  std::string write(const std::string& name, const std::string& contents) const {
    if (is_beyond_limit(contents.size())) return std::strerror(EFBIG);
    try {
      write_file(path_of(name), contents);
    } catch (const InvalidInput& error) {
      const std::string_view why = error.what();
      return std::string(why.substr(why.rfind(": ") + 2));
    }
    (void)::fchmodat(descriptor_.number(), name.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH, 0);
    return "";
  }

  void remove(const std::string& name) const {
    (void)::unlinkat(descriptor_.number(), name.c_str(), 0);
  }

  CachedKernel describe(const std::string& name) const {
    CachedKernel found = {.file = name_ / name, .kernel = "a damaged file"};
    const FileDescriptor file = open_file(name, O_RDONLY);
    if (!file.is_open()) return found;
    const struct stat status = status_of(file);
    found.bytes = static_cast<std::uint64_t>(status.st_size);
    found.seconds_unused = std::max<std::int64_t>(0, ::time(nullptr) - status.st_mtime);
    try {
      InputFile input(descriptor_path(file));
      std::string beginning(std::min<std::size_t>(input.remaining(), 4096), '\0');
      input.read(std::span<char>(beginning));
      std::string_view text = beginning;
      if (const auto head = take_head(text)) {
        found.kernel = head->kernel;
        found.architecture = head->architecture;
        found.compiler = head->compiler;
      }
    } catch (const InvalidInput&) {  // it stays a damaged file
    }
    return found;
  }

  /// Removes what was not used for longest, until no more than so many bytes are left.
  void keep_at_most(std::uint64_t most_bytes) const {
    struct Kernel {
      std::int64_t seconds;
      long nanoseconds;
      std::uint64_t bytes;
      std::string name;
      auto operator<=>(const Kernel&) const = default;
    };
    std::set<Kernel> kernels;
    std::uint64_t bytes = 0;
    for (const std::string& name : names("")) {
      struct stat status = {};
      if (::fstatat(descriptor_.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
        continue;
      const auto size = static_cast<std::uint64_t>(status.st_size);
      kernels.insert({status.st_mtim.tv_sec, status.st_mtim.tv_nsec, size, name});
      bytes += size;
    }
    for (const Kernel& oldest : kernels) {
      if (bytes <= most_bytes) break;
      remove(oldest.name);
      bytes -= oldest.bytes;
    }
  }

  /// A lock of a name for all processes, which ends with the descriptor, and with a process that is killed; none where there are no
  /// locks, or where somebody who has stopped keeps it.
  FileDescriptor lock(const std::string& name) const {
    constexpr auto kLongest = std::chrono::seconds(120);
    constexpr auto kPause = std::chrono::milliseconds(5);
    FileDescriptor file = open_file("lock", O_RDWR | O_CREAT);
    // A byte for each name, so that no file for each is left behind.
    struct flock range = {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_len = 1;
    (void)std::from_chars(name.data(), name.data() + 15, range.l_start, 16);
    const auto deadline = std::chrono::steady_clock::now() + kLongest;
    while (file.is_open() && ::fcntl(file.number(), F_OFD_SETLK, &range) != 0) {
      const bool is_taken = errno == EAGAIN || errno == EACCES || errno == EINTR;
      if (!is_taken || std::chrono::steady_clock::now() > deadline) break;
      std::this_thread::sleep_for(kPause);
    }
    return file;
  }

 private:
  static fs::path descriptor_path(const FileDescriptor& file) {
    return fmt::format("/proc/self/fd/{}", file.number());
  }
  fs::path path_of(const std::string& name) const { return descriptor_path(descriptor_) / name; }

  static struct stat status_of(const FileDescriptor& file) {
    struct stat status = {};
    (void)::fstat(file.number(), &status);
    return status;
  }
  static std::string text_of(const FileDescriptor& file) {
    return InputFile(descriptor_path(file)).read_rest();
  }

  /// A regular file of this user or root, to which nobody else may write. No link is followed, and no pipe waited for.
  FileDescriptor open_file(const std::string& name, int mode) const {
    FileDescriptor file(::openat(descriptor_.number(), name.c_str(),
                                 mode | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                                 S_IRUSR | S_IWUSR));
    if (!file.is_open()) return file;
    const struct stat status = status_of(file);
    const bool is_ours = status.st_uid == ::geteuid() || status.st_uid == 0;
    const bool is_safe =
        S_ISREG(status.st_mode) && is_ours && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
    return is_safe ? std::move(file) : FileDescriptor();
  }

  fs::path name_;
  FileDescriptor descriptor_;
};

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
  std::string_view folders = environment("ARLAB_KERNEL_FOLDER");
  const std::string all(folders);
  for (folders = all; !folders.empty();) {
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
    auto opened = Folder::open_own(places.folder);
    if (opened.ok()) {
      folder_ = std::move(opened).value();
    } else {
      why_not_used_ = opened.status().message();
    }
  }

  Status add_read_only(const fs::path& path) {
    ARLAB_ASSIGN_OR_RETURN(std::unique_ptr<Folder> folder, Folder::open_read_only(path));
    const std::scoped_lock lock(mutex_);
    read_only_.push_back(std::move(folder));
    return {};
  }

  Result<CodeObject> get(const KernelKey& key, const Make& make) {
    const Turn turn(*this, name_of(key));
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
    const auto is_in = [&](const Folder& folder) { return !names_in(folder, key).empty(); };
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
  class Turn {
   public:
    Turn(Kept& kept, std::string name) : kept_(kept), name_(std::move(name)) {
      std::unique_lock lock(kept_.mutex_);
      kept_.free_.wait(lock, [&] { return kept_.busy_.insert(name_).second; });
    }
    ~Turn() {
      const std::scoped_lock lock(kept_.mutex_);
      kept_.busy_.erase(name_);
      kept_.free_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Kept& kept_;
    std::string name_;
  };

  /// Of its own compiler; of any where the key names none.
  static std::vector<std::string> names_in(const Folder& folder, const KernelKey& key) {
    if (key.compiler.empty()) return folder.names(name_start(key));
    const std::string name = name_of(key);
    return folder.has(name) ? std::vector{name} : std::vector<std::string>();
  }

  std::optional<CodeObject> find(const KernelKey& key) {
    std::vector<const Folder*> folders;
    {
      const std::scoped_lock lock(mutex_);
      const auto at = memory_.find(name_of(key));
      if (at != memory_.end()) return at->second;
      for (const auto& each : read_only_) folders.push_back(each.get());
    }
    if (folder_ != nullptr) folders.push_back(folder_.get());
    for (const Folder* folder : folders) {
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
    const std::string why = folder_->write(name, contents_of(name, key, code));
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
  std::unique_ptr<Folder> folder_;
  std::string why_not_used_;
  std::once_flag said_;
  mutable std::mutex mutex_;  // of all below
  std::vector<std::unique_ptr<Folder>> read_only_;
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
