#include "kernels/nccl/real_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

extern "C" int ncclGetVersion(int* version);

namespace arlab::nccl {
namespace {

thread_local int depth = 0;

const char* usual_name = nullptr;
std::string why_missing;
std::once_flag looked;
std::atomic<const RealLibrary*> the_library = nullptr;

/// Where we stand in its place, its name leads to ourselves.
bool is_ours(void* library) {
  return dlsym(library, "ncclGetVersion") == reinterpret_cast<void*>(&ncclGetVersion);
}

void* open_library() {
  const char* const named = std::getenv("ARLAB_NCCL_LIBRARY");  // NOLINT(concurrency-mt-unsafe)
  const bool is_named = named != nullptr && *named != 0;
  const char* const file = is_named ? named : usual_name;
  if (file == nullptr) {
    why_missing = "emulated GPUs have none";
    return nullptr;
  }
  // The loader would wait for the other end of a pipe.
  struct stat status = {};
  if (is_named && std::strchr(named, '/') != nullptr && stat(named, &status) == 0 &&
      !S_ISREG(status.st_mode)) {
    why_missing = fmt::format("{} cannot be loaded (not a regular file)", file);
    return nullptr;
  }
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    why_missing =
        fmt::format("{} cannot be loaded ({})", file, reason ? reason : "no reason given");
    return nullptr;
  }
  if (is_ours(library)) {
    why_missing =
        fmt::format("{} is this library itself; name the real one in ARLAB_NCCL_LIBRARY", file);
    return nullptr;
  }
  if (dlsym(library, "ncclGetVersion") == nullptr) {
    why_missing = fmt::format("{} is no such library", file);
    return nullptr;
  }
  return library;
}

}  // namespace

bool is_inside_real() { return depth != 0; }
InsideReal::InsideReal() { ++depth; }
InsideReal::~InsideReal() { --depth; }

void RealLibrary::set_name(const char* name) { usual_name = name; }

const RealLibrary* RealLibrary::find() {
  std::call_once(looked, [] {
    const InsideReal inside;  // its constructors may call it
    void* const opened = open_library();
    if (opened == nullptr) return;
    auto* const library = new RealLibrary;  // as long as the process: its threads may still run
    library->library_ = opened;
#define ARLAB_SET_FUNCTION(Name, ...) library->Name.set(dlsym(opened, library->Name.name()));
    ARLAB_REAL_FUNCTIONS(ARLAB_SET_FUNCTION)
#undef ARLAB_SET_FUNCTION
    the_library = library;
  });
  return the_library;
}

const RealLibrary* RealLibrary::found() { return the_library; }

void RealLibrary::require_named() {
  const char* const named = std::getenv("ARLAB_NCCL_LIBRARY");  // NOLINT(concurrency-mt-unsafe)
  if (named == nullptr || *named == 0 || find() != nullptr) return;
  throw Failure(kInvalidArgument, fmt::format("ARLAB_NCCL_LIBRARY: {}", why_missing));
}

const std::string& RealLibrary::missing() {
  (void)find();
  return why_missing;
}

void* RealLibrary::symbol(const char* name) const { return dlsym(library_, name); }

std::string RealLibrary::error_string(int code) const {
  const auto text = reinterpret_cast<const char* (*)(int)>(symbol("ncclGetErrorString"));
  const InsideReal inside;
  return text == nullptr ? fmt::format("error {}", code) : std::string(text(code));
}

int require(const char* function, int code) {
  if (code == kSuccess || code == kInProgress) return code;
  throw Failure(static_cast<Code>(code), fmt::format("the real library's {}: {}", function,
                                                     RealLibrary::find()->error_string(code)));
}

}  // namespace arlab::nccl
