#include "kernels/compile/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "reference/error.h"
#include "reference/tensors/file.h"
#include "reference/tensors/sha256.h"

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;

/// The file that a line includes in quotes; empty where it includes nothing so.
std::string_view included_by(std::string_view line) {
  const auto take = [&line](std::string_view word) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with(word)) return false;
    line.remove_prefix(word.size());
    return true;
  };
  if (!take("#") || !take("include") || !take("\"")) return {};
  return line.substr(0, line.find('"'));
}

bool is_embedded(std::string_view name) {
  const std::span<const Header> headers = embedded_headers();
  return std::any_of(headers.begin(), headers.end(),
                     [&](const Header& header) { return header.name == name; });
}

class HeaderReader {
 public:
  explicit HeaderReader(std::span<const fs::path> folders) : folders_(folders) {}

  /// Throws InvalidInput.
  std::vector<Header> read(const fs::path& file) {
    add(file.filename().string(), file);
    for (std::size_t at = 0; at < headers_.size(); ++at) follow(at);
    add_paths();
    return std::move(headers_);
  }

 private:
  void add(const std::string& name, const fs::path& file) {
    headers_.push_back({name, read_text_file(file, "the header")});
    files_.push_back(fs::weakly_canonical(file));
    at_[name] = headers_.size() - 1;
  }

  /// Adds what a header includes.
  void follow(std::size_t at) {
    const std::string text = headers_[at].text;
    int line = 1;
    for (std::size_t begin = 0; begin < text.size(); ++line) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view included =
          included_by(std::string_view(text).substr(begin, end - begin));
      if (!included.empty()) include(std::string(included), at, line);
      begin = end + 1;
    }
  }

  void include(const std::string& name, std::size_t by, int line) {
    if (is_embedded(name)) return;
    const fs::path by_file = files_[by];
    const std::optional<fs::path> file = find(name, by_file.parent_path());
    if (!file) {
      fail("{}:{}: {} is neither beside it nor a header of arlab", by_file.string(), line,
           quote(name));
    }
    const auto known = at_.find(name);
    if (known == at_.end()) {
      add(name, *file);
    } else if (files_[known->second] != fs::weakly_canonical(*file)) {
      fail("{}:{}: {} means {} here, and {} elsewhere", by_file.string(), line, quote(name),
           file->string(), files_[known->second].string());
    }
  }

  /// A header that its includer finds beside itself stands once more under its path.
  void add_paths() {
    const fs::path folder = files_.front().parent_path();
    for (std::size_t at = 0; at < files_.size(); ++at) {
      const std::string path = files_[at].lexically_relative(folder).string();
      if (path.starts_with("..") || at_.contains(path)) continue;
      headers_.push_back({path, std::string(headers_[at].text)});
    }
  }

  std::optional<fs::path> find(const std::string& name, const fs::path& beside) const {
    std::error_code ignored;
    if (fs::exists(beside / name, ignored)) return beside / name;
    for (const fs::path& folder : folders_) {
      if (fs::exists(folder / name, ignored)) return folder / name;
    }
    return std::nullopt;
  }

  std::span<const fs::path> folders_;
  std::vector<Header> headers_;
  std::vector<fs::path> files_;
  std::map<std::string, std::size_t> at_;
};

}  // namespace

Result<std::vector<Header>> read_header(const fs::path& file, std::span<const fs::path> folders) {
  try {
    return HeaderReader(folders).read(file);
  } catch (const InvalidInput& wrong) {
    return Status::error(wrong.what());
  }
}

std::string hash_of(std::span<const Header> headers) {
  std::string all;
  for (const Header& header : headers) {
    all += fmt::format("{} {}\n", header.name, sha256(std::as_bytes(std::span(header.text))));
  }
  return sha256(std::as_bytes(std::span(all)));
}

}  // namespace arlab::kernels
