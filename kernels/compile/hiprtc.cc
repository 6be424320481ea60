#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/compile/compiler.h"
#include "kernels/compile/runtime_compiler.h"
#include "kernels/platform/shared_library.h"
#include "reference/tensors/file.h"

namespace arlab::kernels {
namespace {

constexpr RuntimeCompilerNames kNames = {.create = "hiprtcCreateProgram",
                                         .destroy = "hiprtcDestroyProgram",
                                         .compile = "hiprtcCompileProgram",
                                         .log_size = "hiprtcGetProgramLogSize",
                                         .log = "hiprtcGetProgramLog",
                                         .code_size = "hiprtcGetCodeSize",
                                         .code = "hiprtcGetCode",
                                         .error_string = "hiprtcGetErrorString"};
/// The newest first. Those of ROCm 5 have hipRTC inside the runtime.
constexpr const char* kFiles[] = {
    "libhiprtc.so.7",   "libhiprtc.so.6",   "libhiprtc.so",     "/opt/rocm/lib/libhiprtc.so",
    "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
constexpr const char* kCodeObjectManagers[] = {"libamd_comgr.so.3", "libamd_comgr.so.2",
                                               "libamd_comgr.so"};

/// Architectures that the code object manager below hipRTC knows; none where it cannot be asked. Where hipRTC of ROCm 5 gets one
/// that it does not know, it ends the process.
std::vector<std::string> known_architectures() {
  std::vector<std::string> known;
  for (const char* const file : kCodeObjectManagers) {
    const auto library = SharedLibrary::open(file);
    int (*count_of)(std::size_t*) = nullptr;
    int (*name_of)(std::size_t, const char**) = nullptr;
    if (!library.ok() || !library.value().find("amd_comgr_get_isa_count", count_of) ||
        !library.value().find("amd_comgr_get_isa_name", name_of)) {
      continue;
    }
    std::size_t count = 0;
    (void)count_of(&count);
    for (std::size_t i = 0; i < count; ++i) {
      const char* name = "";  // amdgcn-amd-amdhsa--gfx90a
      if (name_of(i, &name) == 0)
        known.emplace_back(std::string_view(name).substr(std::string_view(name).rfind('-') + 1));
    }
    break;
  }
  return known;
}

/// hipRTC writes what it compiles to files, and names these: /tmp/comgr-1f/input/CompileSource:1:9, /tmp/comgr-1f/include/a.h:2:3.
std::string with_names_of(const Unit& unit, const std::string& error) {
  constexpr std::string_view kUnit = "/input/CompileSource";
  constexpr std::string_view kHeader = "/include/";
  if (!error.starts_with("/tmp/comgr-")) return error;
  const std::size_t at = error.find(kUnit);
  if (at != std::string::npos) return unit.name + error.substr(at + kUnit.size());
  return error.substr(error.find(kHeader) + kHeader.size());
}

class Hiprtc final : public Compiler {
 public:
  static Result<std::unique_ptr<Hiprtc>> open(const std::string& file) {
    ARLAB_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open(file));
    ARLAB_ASSIGN_OR_RETURN(const RuntimeCompiler compiler, RuntimeCompiler::of(library, kNames));
    auto hiprtc = std::make_unique<Hiprtc>(library, compiler);
    if (!library.find("hiprtcVersion", hiprtc->version_)) {
      return Status::error(fmt::format("{} lacks hiprtcVersion", library.path()));
    }
    return hiprtc;
  }
  Hiprtc(SharedLibrary library, RuntimeCompiler compiler)
      : library_(library), compiler_(compiler), architectures_(known_architectures()) {}

  std::string version() const override {
    int major = 0;
    int minor = 0;
    (void)version_(&major, &minor);
    return fmt::format("hipRTC {}.{}", major, minor);
  }
  std::string identity() const override {
    std::error_code error;
    return fmt::format("{}, {} bytes", version(), std::filesystem::file_size(file(), error));
  }
  std::string file() const override { return library_.path(); }
  std::vector<std::string> architectures() const override { return architectures_; }

  /// Asked of the code object manager, then tried once in another process.
  Status require_compiles(const std::string& architecture) const override {
    const std::string base = architecture.substr(0, architecture.find(':'));  // without features
    const bool is_known =
        architectures_.empty() ||
        std::find(architectures_.begin(), architectures_.end(), base) != architectures_.end();
    if (is_known && compiles(architecture)) return {};
    return Status::error(
        fmt::format("architecture {}: {} ({}) does not compile for it, newer ones may",
                    printable(architecture), version(), file()));
  }

  Result<CodeObject> compile(const Unit& unit) const override {
    ARLAB_RETURN_IF_ERROR(require_compiles(unit.architecture));
    const std::scoped_lock lock(one_at_a_time_);
    Result<CodeObject> compiled = compiler_.compile(unit, {option_of(unit.architecture)});
    if (compiled.ok()) return compiled;
    return Status::error(with_names_of(unit, compiled.status().message()));
  }

 private:
  static std::string option_of(const std::string& architecture) {
    return "--offload-arch=" + architecture;
  }

  bool compiles(const std::string& architecture) const {
    const std::scoped_lock lock(mutex_);
    const auto at = tried_.find(architecture);
    if (at != tried_.end()) return at->second;
    return tried_[architecture] = compiles_in_child(architecture);
  }

  bool compiles_in_child(const std::string& architecture) const {
    constexpr unsigned kMostSeconds = 60;
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(kMostSeconds);
      ::close(STDERR_FILENO);  // its messages on failure are ours to give
      const Unit unit = {.name = "tried.hip", .text = "\n", .architecture = architecture};
      ::_exit(compiler_.compile(unit, {option_of(architecture)}).ok() ? 0 : 1);
    }
    int status = 0;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  SharedLibrary library_;
  RuntimeCompiler compiler_;
  std::vector<std::string> architectures_;
  int (*version_)(int*, int*) = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<std::string, bool> tried_;
  mutable std::mutex one_at_a_time_;  // hipRTC 5.2 crashes where threads compile at once
};

Result<std::unique_ptr<Hiprtc>> open_first() {
  const std::string named = environment("ARLAB_HIPRTC");
  if (!named.empty()) {
    auto opened = Hiprtc::open(named);
    if (!opened.ok()) return Status::error("ARLAB_HIPRTC: " + opened.status().message());
    return opened;
  }
  for (const char* const file : kFiles) {
    auto opened = Hiprtc::open(file);
    if (opened.ok()) return opened;
  }
  return Status::error(
      "no compiler for AMD GPUs: libhiprtc and libamdhip64 were not found; ROCm's package "
      "hip-runtime-amd has "
      "them (Debian: libamdhip64-5), or name the file in ARLAB_HIPRTC");
}

}  // namespace

Result<const Compiler*> hiprtc() {
  static const auto& found = *new Result<std::unique_ptr<Hiprtc>>(open_first());
  if (!found.ok()) return found.status();
  return found.value().get();
}

}  // namespace arlab::kernels
