#include "kernels/platform/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdlib>

namespace arlab::kernels {
namespace {

/// The loader's reason begins with the file's name, which our line says already.
std::string reason_for(const std::string& file) {
  const char* const said = dlerror();
  std::string reason = said != nullptr ? said : "no reason given";
  if (reason.find("No such file or directory") != std::string::npos) return "it is not here";
  if (reason.starts_with(file + ": ")) reason.erase(0, file.size() + 2);
  return reason;
}

}  // namespace

Result<SharedLibrary> SharedLibrary::open(const std::string& file) {
  // The loader would wait for the other end of a pipe.
  struct stat status = {};
  if (file.find('/') != std::string::npos && stat(file.c_str(), &status) == 0 &&
      !S_ISREG(status.st_mode)) {
    return Status::error(fmt::format("{} cannot be loaded: it is not a regular file", file));
  }
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::error(fmt::format("{} cannot be loaded: {}", file, reason_for(file)));
  }
  return SharedLibrary(library);
}

std::optional<SharedLibrary> SharedLibrary::loaded(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return std::nullopt;
  return SharedLibrary(library);
}

std::string SharedLibrary::path() const {
  link_map* loaded = nullptr;
  return dlinfo(library_, RTLD_DI_LINKMAP, &loaded) == 0 ? loaded->l_name : "";
}

void* SharedLibrary::symbol(const char* name) const { return dlsym(library_, name); }

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace arlab::kernels
