#include "experiments/cli/plots.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/report.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;

std::string python() {
  if (const char* chosen = std::getenv("ARLAB_PYTHON"); chosen != nullptr && *chosen != '\0')
    return chosen;
  const fs::path of_project = fs::path(ARLAB_SOURCE_DIR) / ".venv/bin/python";
  return fs::exists(of_project) ? of_project.string() : "python3";
}

std::string path_of(const std::string& script) {
  const fs::path of_project = fs::path(ARLAB_SOURCE_DIR) / "experiments/studies" / script;
  if (fs::exists(of_project)) return of_project.string();
  return (fs::path(ARLAB_DATA_DIR) / script).string();
}

/// A file in the folder for temporary ones, gone with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_((fs::temp_directory_path() / "arlab.XXXXXX").string()) {
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) fail("cannot write {}", path_);
    std::FILE* file = fdopen(descriptor, "wb");
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !written) {
      unlink(path_.c_str());
      fail("cannot write {}", path_);
    }
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void draw(const std::string& script, const std::vector<std::string>& arguments,
          const std::string& kept) {
  std::vector<std::string> words = {python(), path_of(script)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  pid_t child = 0;
  int status = 1;
  const int error = posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ);
  if (error == 0) waitpid(child, &status, 0);
  if (error != 0 || status != 0) {
    throw CheckFailed(fmt::format(
        "{}, but the plots failed; ./quickstart.sh installs what they need, ARLAB_PYTHON names "
        "another Python",
        kept));
  }
}

void draw(const std::string& script, const nlohmann::ordered_json& data, const std::string& picture,
          const std::string& kept) {
  const TemporaryFile file(json_line(data));
  draw(script, {file.path(), picture}, kept);
}

void require_picture_name(const std::string& option, const std::string& path,
                          const std::vector<std::string>& endings) {
  const bool fits = std::any_of(endings.begin(), endings.end(), [&path](const std::string& ending) {
    return path.size() > ending.size() && path.ends_with(ending);
  });
  if (!fits) {
    fail("{} is {}: allowed is a name that ends in {}", option, quote(path),
         fmt::join(endings, " or "));
  }
  require_folder_of(path);
}

}  // namespace arlab::cli
