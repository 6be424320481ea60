#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "kernels/compile/compiler.h"
#include "kernels/compile/runtime_compiler.h"
#include "kernels/compile/trusted.h"
#include "kernels/platform/shared_library.h"
#include "reference/tensors/file.h"

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestVersion = 12080;  // which has atomics with scopes
constexpr int kMajors[] = {13, 12};    // the newest first
constexpr const char* kWhere =
    "the PyPI package nvidia-cuda-nvrtc has it (of CUDA 12: nvidia-cuda-nvrtc-cu12), or name the "
    "file in ARLAB_NVRTC";

std::string name_of(int version) {
  return fmt::format("NVRTC {}.{}", version / 1000, version % 1000 / 10);
}

/// NVRTC's C interface has been the same since CUDA 11.
constexpr RuntimeCompilerNames kNames = {.create = "nvrtcCreateProgram",
                                         .destroy = "nvrtcDestroyProgram",
                                         .compile = "nvrtcCompileProgram",
                                         .log_size = "nvrtcGetProgramLogSize",
                                         .log = "nvrtcGetProgramLog",
                                         .code_size = "nvrtcGetCUBINSize",
                                         .code = "nvrtcGetCUBIN",
                                         .error_string = "nvrtcGetErrorString"};

class Nvrtc final : public Compiler {
 public:
  static Result<std::unique_ptr<Nvrtc>> open(const std::string& file) {
    ARLAB_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::open(file));
    ARLAB_ASSIGN_OR_RETURN(const RuntimeCompiler compiler, RuntimeCompiler::of(library, kNames));
    auto nvrtc = std::make_unique<Nvrtc>(library, compiler);
    ARLAB_RETURN_IF_ERROR(nvrtc->find_functions());
    nvrtc->open_builtins();
    return nvrtc;
  }
  Nvrtc(SharedLibrary library, RuntimeCompiler compiler) : library_(library), compiler_(compiler) {}

  /// 13000 is 13.0.
  int number() const {
    int major = 0;
    int minor = 0;
    (void)version_(&major, &minor);
    return 1000 * major + 10 * minor;
  }

  /// The library says its third number only in what it compiles.
  std::string version() const override {
    const std::scoped_lock lock(mutex_);
    if (version_text_.empty()) version_text_ = name_of(number()) + patch_level();
    return version_text_;
  }
  std::string identity() const override {
    std::error_code error;
    return fmt::format("{}, {} bytes", name_of(number()), fs::file_size(file(), error));
  }
  std::string file() const override { return library_.path(); }

  std::vector<std::string> architectures() const override {
    int count = 0;
    (void)count_architectures_(&count);
    std::vector<int> numbers(static_cast<std::size_t>(count));
    (void)architectures_(numbers.data());
    std::vector<std::string> names;
    for (const int number : numbers) names.push_back(fmt::format("sm_{}", number));
    return names;
  }
  Status require_compiles(const std::string& architecture) const override {
    const std::vector<std::string> known = architectures();
    if (std::ranges::find(known, architecture) != known.end()) return {};
    return Status::error(fmt::format("architecture {}: {} compiles for {}", printable(architecture),
                                     version(), fmt::join(known, ", ")));
  }

  Result<CodeObject> compile(const Unit& unit) const override {
    // All that a unit includes is in memory: files of the folder that the process is in are not meant.
    return compiler_.compile(unit, {"-arch=" + unit.architecture, "--no-source-include"});
  }

 private:
  Status find_functions() {
    const bool found = library_.find("nvrtcVersion", version_) &&
                       library_.find("nvrtcGetNumSupportedArchs", count_architectures_) &&
                       library_.find("nvrtcGetSupportedArchs", architectures_);
    return found ? Status() : Status::error(fmt::format("{} is no NVRTC", library_.path()));
  }

  /// NVRTC loads its second library by name once it compiles, and the loader does not look beside NVRTC: in the folder of a PyPI
  /// package it would not be found, unless the process has it.
  void open_builtins() const {
    const std::string name =
        fmt::format("libnvrtc-builtins.so.{}.{}", number() / 1000, number() % 1000 / 10);
    (void)SharedLibrary::open(fs::path(file()).replace_filename(name));
  }

  /// ".88" of a PTX text that says V13.0.88; empty where it says nothing.
  std::string patch_level() const {
    const std::vector<std::string> known = architectures();
    if (known.empty()) return "";
    RuntimeCompilerNames names = kNames;
    names.code_size = "nvrtcGetPTXSize";
    names.code = "nvrtcGetPTX";
    const auto compiler = RuntimeCompiler::of(library_, names);
    const auto ptx = compiler.ok()
                         ? compiler.value().compile({}, {"-arch=compute_" + known.back().substr(3)})
                         : Result<CodeObject>(compiler.status());
    if (!ptx.ok()) return "";
    const std::string& text = ptx.value().bytes;
    const std::string before = fmt::format(", V{}.{}", number() / 1000, number() % 1000 / 10);
    const std::size_t at = text.find(before);
    if (at == std::string::npos) return "";
    const std::size_t begin = at + before.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  SharedLibrary library_;
  RuntimeCompiler compiler_;
  int (*version_)(int*, int*) = nullptr;
  int (*count_architectures_)(int*) = nullptr;
  int (*architectures_)(int*) = nullptr;
  mutable std::mutex mutex_;
  mutable std::string version_text_;
};

/// Folders of Python packages, where they may be: beside this one, in the environment that is active, and where what is loaded
/// (PyTorch) comes from.
std::set<fs::path> package_folders() {
  std::set<fs::path> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        for (fs::path at = info->dlpi_name; at.has_relative_path(); at = at.parent_path()) {
          if (at.filename() == "site-packages" || at.filename() == "dist-packages") {
            static_cast<std::set<fs::path>*>(found)->insert(at);
          }
        }
        return 0;
      },
      &folders);
  std::error_code ignored;
  std::vector<fs::path> environments = {environment("VIRTUAL_ENV"), environment("CONDA_PREFIX"),
                                        fs::path(environment("HOME")) / ".local", "/usr/local"};
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    environments.push_back(at);
    environments.push_back(at / ".venv");
  }
  for (const fs::path& each : environments) {
    for (const fs::path& python : paths_in(each / "lib", ignored)) {
      if (!python.filename().string().starts_with("python3")) continue;
      folders.insert({python / "site-packages", python / "dist-packages"});
    }
  }
  return folders;
}

/// The name that the dynamic linker knows, and files of a major version elsewhere which nobody else could have put there.
std::vector<std::string> candidates(int major) {
  const std::string name = fmt::format("libnvrtc.so.{}", major);
  std::vector<std::string> files = {name};
  std::vector<fs::path> folders;
  for (const fs::path& packages : package_folders()) {
    folders.push_back(packages / "nvidia" / fmt::format("cu{}", major) / "lib");
    folders.push_back(packages / "nvidia" / "cuda_nvrtc" / "lib");
  }
  if (const std::string conda = environment("CONDA_PREFIX"); !conda.empty()) {
    folders.push_back(fs::path(conda) / "lib");
  }
  std::error_code ignored;
  for (const fs::path& each : paths_in("/usr/local", ignored)) {
    if (each.filename().string().starts_with("cuda")) folders.push_back(each / "lib64");
  }
  for (const fs::path& folder : folders) {
    if (require_trusted(folder / name).ok()) files.push_back((folder / name).string());
  }
  return files;
}

/// Empty where the driver loads what it compiles; any driver loads code of its own major version, and of earlier ones.
std::string why_unfit(const Nvrtc& nvrtc, int driver) {
  const int version = nvrtc.number();
  if (version < kOldestVersion) {
    return fmt::format("{} ({}) is older than 12.8", name_of(version), nvrtc.file());
  }
  if (driver != 0 && version / 1000 > driver / 1000) {
    return fmt::format("{} ({}) is newer than the driver, which takes code of CUDA {}.{}",
                       name_of(version), nvrtc.file(), driver / 1000, driver % 1000 / 10);
  }
  return "";
}

Result<std::unique_ptr<Nvrtc>> open_named(const std::string& file, int driver) {
  auto opened = Nvrtc::open(file);
  if (!opened.ok()) return Status::error("ARLAB_NVRTC: " + opened.status().message());
  const std::string why = why_unfit(*opened.value(), driver);
  if (!why.empty()) return Status::error("ARLAB_NVRTC: " + why);
  return opened;
}

Result<std::unique_ptr<Nvrtc>> open_newest(int driver) {
  const std::string named = environment("ARLAB_NVRTC");
  if (!named.empty()) return open_named(named, driver);
  std::string why = "libnvrtc.so.13 and libnvrtc.so.12 were not found";
  for (const int major : kMajors) {
    std::unique_ptr<Nvrtc> newest;
    for (const std::string& file : candidates(major)) {
      auto opened = Nvrtc::open(file);
      if (!opened.ok()) continue;
      const std::string unfit = why_unfit(*opened.value(), driver);
      if (!unfit.empty()) {
        why = unfit;
      } else if (newest == nullptr || opened.value()->number() > newest->number()) {
        newest = std::move(opened).value();
      }
    }
    if (newest != nullptr) return newest;
  }
  return Status::error(fmt::format("no compiler for NVIDIA GPUs: {}; {}", why, kWhere));
}

}  // namespace

Result<const Compiler*> nvrtc(int driver) {
  static std::mutex mutex;
  static auto& found = *new std::map<int, Result<std::unique_ptr<Nvrtc>>>;
  const std::scoped_lock lock(mutex);
  auto at = found.find(driver);
  if (at == found.end()) at = found.emplace(driver, open_newest(driver)).first;
  if (!at->second.ok()) return at->second.status();
  return at->second.value().get();
}

}  // namespace arlab::kernels
