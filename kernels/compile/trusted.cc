#include "kernels/compile/trusted.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;

Status require_one_trusted(const fs::path& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    return Status::error(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  }
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return Status::error(fmt::format("{} belongs to user {}: it must be yours or root's",
                                     path.string(), status.st_uid));
  }
  if (!S_ISLNK(status.st_mode) && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status::error(
        fmt::format("others may write to {} (mode {:o})", path.string(), status.st_mode & 07777U));
  }
  return {};
}

}  // namespace

Status require_trusted(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return Status::error(fmt::format("{}: {}", path.string(), error.message()));
  for (fs::path at = real;; at = at.parent_path()) {
    ARLAB_RETURN_IF_ERROR(require_one_trusted(at));
    if (at == at.root_path()) return {};
  }
}

}  // namespace arlab::kernels
