// A folder of compiled kernels, whose files are machine code: who may come to it, and which files in it are believed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/compile/cache.h"
#include "kernels/runtime/file_descriptor.h"

namespace arlab::kernels {

/// It is held open, so that it stays the one that was looked at.
class KernelFolder {
 public:
  /// Names of kernels end so.
  static constexpr std::string_view kSuffix = ".kernel";

  /// A folder that nobody else can enter; made if it is missing.
  static Result<std::unique_ptr<KernelFolder>> open_own(const std::filesystem::path& path);
  /// A folder to which nobody else may write, nor to one above it.
  static Result<std::unique_ptr<KernelFolder>> open_read_only(const std::filesystem::path& path);

  const std::filesystem::path& name() const { return name_; }
  bool has(const std::string& name) const;
  /// Names of kernels that begin so.
  std::vector<std::string> names(std::string_view start) const;

  /// The code of a file that only this user or root could have written, if it is whole. Says that it was used.
  std::optional<CodeObject> read(const std::string& name) const;
  /// A file's description of itself.
  CachedKernel describe(const std::string& name) const;
  /// Empty, or why it could not be written.
  std::string write(const std::string& name, const KernelKey& key, const CodeObject& code) const;
  void remove(const std::string& name) const;
  /// Removes what was not used for longest, until no more than so many bytes are left.
  void keep_at_most(std::uint64_t most_bytes) const;

  /// A lock of a kernel for all processes, which ends with the descriptor, and with a process that is killed; none where there
  /// are no locks, or where somebody who has stopped keeps it.
  FileDescriptor lock(const std::string& name) const;

 private:
  KernelFolder(std::filesystem::path path, int flags);

  std::filesystem::path path_of(const std::string& name) const;
  FileDescriptor open_file(const std::string& name, int mode) const;

  std::filesystem::path name_;
  FileDescriptor descriptor_;
};

}  // namespace arlab::kernels
