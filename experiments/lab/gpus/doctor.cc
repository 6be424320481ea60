// What is here, what is missing, and which command brings it?

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "experiments/lab/files.h"
#include "experiments/lab/questions.h"
#include "kernels/runtime/platforms.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/codecs/simd/halves.h"
#include "reference/collectives/algorithm.h"
#include "reference/memory.h"
#include "sim/topology/topology.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

/// The first line that a shell command prints; nothing when it fails.
std::optional<std::string> first_line_of(const std::string& command) {
  std::fflush(stdout);
  std::FILE* pipe = ::popen(("{ " + command + "; } 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 4096> part = {};
  for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), got);
  }
  const int status = ::pclose(pipe);
  if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return one_line(text.substr(0, text.find('\n')));
}

/// Rows of the table.
class Findings {
 public:
  void add(const std::string& what, const std::string& state, const std::string& detail,
           const std::string& remedy = {}) {
    table_.rows.push_back({what, state, detail, remedy.empty() ? Cell() : Cell(remedy)});
  }

  /// A program by its command for the version.
  void add_program(const std::string& what, const std::string& command, const std::string& use,
                   const std::string& remedy) {
    const auto version = first_line_of(command);
    add(what, version ? "here" : "missing", version ? *version : use, version ? "" : remedy);
  }

  bool has(const std::string& state) const {
    return std::any_of(table_.rows.begin(), table_.rows.end(),
                       [&](const auto& row) { return row[1].json() == state; });
  }
  const Table& table() const { return table_; }

 private:
  Table table_{{"what", "state", "detail", "how_to_get_it"}, {}};
};

void look_at_machine(Findings& findings) {
  findings.add("processor", "here",
               fmt::format("{} hardware threads, {} of memory available",
                           std::thread::hardware_concurrency(), memory_text(available_memory())));
  // The codecs themselves are asked: a processor may have vectors that they do not use.
  std::map<std::string, std::size_t> codecs_on;
  const std::vector<std::string> names = listed_codecs();
  for (const std::string& name : names) ++codecs_on[vector_target(*accelerated(find_codec(name)))];
  codecs_on.erase("");
  std::string detail;
  for (const auto& [target, count] : codecs_on) {
    detail += fmt::format("{}: {} of {} listed codecs, ", target, count, names.size());
  }
  const std::string of_sums = target_of_halves();
  findings.add("vectors", codecs_on.empty() || of_sums.empty() ? "missing" : "here",
               fmt::format("{}{} of fp16",
                           codecs_on.empty() ? "no codec has vectors, "
                                               "which are 20 to 90 times faster; "
                                             : detail,
                           of_sums.empty() ? "no sums" : "sums"));
}

/// Checks the compiler of a platform's kernels on demand.
void look_at_compiler(Findings& findings, const kernels::Platform& platform, bool needed,
                      const std::string& remedy) {
  const auto compiler = platform.compiler();
  if (compiler.ok() && compiler.value().empty()) return;
  findings.add(fmt::format("compiler of platform {}", platform.name()),
               compiler.ok() ? "here"
               : needed      ? "missing"
                             : "not installed",
               one_line(compiler.ok() ? compiler.value() : compiler.status().message()),
               compiler.ok() ? "" : remedy);
}

/// A kind of GPUs: whether the machine has them, and whether this program can use them. The remedy brings a compiler of their
/// kernels, or the platform itself.
void look_at_platform(Findings& findings, const std::string& name, const std::string& gpus,
                      const std::vector<std::string>& device_files, const std::string& remedy) {
  const bool present = std::any_of(device_files.begin(), device_files.end(), [](const auto& file) {
    std::error_code error;
    return fs::exists(file, error);
  });
  const auto platform = kernels::find_platform(name);
  if (!platform.ok()) {
    findings.add("platform " + name, "not built", "kernels for " + gpus, remedy);
    return;
  }
  look_at_compiler(findings, *platform.value(), present, remedy);
  const auto devices = platform.value()->devices();
  if (!devices.ok()) {
    findings.add("platform " + name, present ? "broken" : "no devices",
                 one_line(devices.status().message()));
    return;
  }
  const auto device = platform.value()->device_name();
  findings.add("platform " + name, "here",
               fmt::format("{} devices, {}", devices.value(),
                           device.ok() ? one_line(device.value()) : std::string("without a name")));
}

void look_at_python(Findings& findings) {
  const std::string path = python();
  const std::string python = shell_quote(path);
  const auto version = first_line_of(python + " --version");
  if (!version) {
    findings.add("Python", "missing", "figures, notebooks and the package need it",
                 "./quickstart.sh, or ARLAB_PYTHON=/path/to/python");
    return;
  }
  findings.add("Python", "here", fmt::format("{} ({})", *version, one_line(path)));
  const std::pair<const char*, const char*> modules[] = {{"numpy", "the package arlab"},
                                                         {"pandas", "tables and figures"},
                                                         {"matplotlib", "figures"},
                                                         {"adjustText", "figures"},
                                                         {"jinja2", "reports"},
                                                         {"nbclient", "notebooks"},
                                                         {"torch", "tensors of PyTorch, optional"}};
  for (const auto& [module, use] : modules) {
    const auto found = first_line_of(fmt::format(
        "{} -c 'import importlib.metadata as m; print(m.version(\"{}\"))'", python, module));
    const bool optional = std::string_view(module) == "torch";
    findings.add(fmt::format("Python package {}", module),
                 found      ? "here"
                 : optional ? "not installed"
                            : "missing",
                 found ? *found : use,
                 found ? "" : fmt::format("{} -m pip install {}", python, module));
  }
  std::error_code error;
  const fs::path built = fs::path(ARLAB_SOURCE_DIR) / "build/bin/python/arlab";
  const bool package =
      fs::exists(built, error) || first_line_of(python + " -c 'import arlab'").has_value();
  findings.add("Python package arlab", package ? "here" : "missing",
               package ? (fs::exists(built, error) ? built.parent_path().string() : "installed")
                       : "arlab from Python",
               package ? "" : "./quickstart.sh, or pip install .");
}

void look_at_tools(Findings& findings) {
  const std::string apt = "apt-get install ";
  findings.add_program("C++ compiler", "c++ --version", "to build arlab, and for --codec-header",
                       apt + "build-essential");
  findings.add_program("CMake", "cmake --version", "to build arlab", apt + "cmake");
  findings.add_program("Ninja", "ninja --version", "to build arlab", apt + "ninja-build");
  findings.add_program("clang for AMD GPUs", "clang++-19 --version",
                       "to inspect kernels for AMD GPUs in tests", "./test.sh");
}

struct DoctorRequest {};
std::vector<BoundField> fields(DoctorRequest& /*request*/) { return {}; }

Result answer(const DoctorRequest& /*request*/) {
  Findings findings;
  look_at_machine(findings);
  look_at_platform(findings, "host", "emulated GPUs", {},
                   "./quickstart.sh; of the Python package: pip install . "
                   "-C cmake.define.ARLAB_HOST_PLATFORM=ON");
  look_at_platform(findings, "cuda", "NVIDIA GPUs", {"/dev/nvidiactl", "/dev/dxg"},
                   "pip install nvidia-cuda-nvrtc");
  look_at_platform(findings, "rocm", "AMD GPUs", {"/dev/kfd"},
                   "ROCm, or apt-get install libamdhip64-5");
  look_at_tools(findings);
  look_at_python(findings);
  return {"arlab.doctor/1",
          {{"version", ARLAB_VERSION},
           {"codecs", listed_codecs().size(), "arlab list codecs"},
           {"algorithms", all_algorithms().size(), "arlab list algorithms"},
           {"topologies", listed_topologies().size(), "arlab list topologies"},
           {"missing", findings.has("missing") || findings.has("broken")}},
          "findings",
          findings.table()};
}

}  // namespace

Question doctor_question() {
  return question<DoctorRequest>(
      "doctor", "Report what is installed, which GPUs there are, and how to get what is missing",
      answer);
}

}  // namespace arlab::lab
