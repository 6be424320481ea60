#include "experiments/lab/grids/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "experiments/lab/files.h"
#include "experiments/lab/hashes.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/result.h"
#include "reference/csv.h"
#include "reference/error.h"
#include "reference/json.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTitleMark = "# arlab.study/1: ";
constexpr std::string_view kCommandMark = "# command: ";
constexpr std::string_view kProvenanceMark = "# provenance: ";
constexpr std::string_view kDefinitionMark = "# definition: ";
constexpr std::string_view kCheckMark = "# check: ";
constexpr const char* kHowToStartAnew = "leave out --resume to start anew, or name another --out";

std::string system_text(int error_number) { return std::generic_category().message(error_number); }

/// Begins with a letter, so that no spreadsheet takes it for a number.
std::string check_of(std::string_view text) {
  const std::uint64_t hash = quick_hash(text);
  return fmt::format("x{:08x}", static_cast<std::uint32_t>(hash ^ (hash >> 32)));
}

/// Returns the rest of the line that begins with the mark.
std::string marked(const std::string& comments, std::string_view mark) {
  const std::size_t at = ("\n" + comments).find(fmt::format("\n{}", mark));
  if (at == std::string::npos) return {};
  const std::size_t begin = at + mark.size();
  return comments.substr(begin, comments.find('\n', begin) - begin);
}

kernels::FileDescriptor locked(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  kernels::FileDescriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.is_open()) {
    fail("cannot make the folder {}: {}", folder.string(),
         error ? error.message() : system_text(errno));
  }
  if (::flock(lock.number(), LOCK_EX | LOCK_NB) == 0) return lock;
  const int why = errno;
  if (why == EWOULDBLOCK) {
    fail("another study is writing to the folder {}: wait for its end, or name another --out",
         folder.string());
  }
  // Not every network file system has locks; then the user has to see to it.
  write_progress(
      fmt::format("the folder {} cannot be locked ({}): let no other study write to it\n",
                  one_line(folder.string()), system_text(why)));
  return lock;
}

}  // namespace

std::string differences(const std::string& a, const std::string& b) {
  using Json = nlohmann::json;  // without an order of its own
  const Json first = parse_json<Json>(a);
  const Json second = parse_json<Json>(b);
  if (!first.is_object() || !second.is_object()) return "everything";
  Json all = first;
  all.update(second);
  std::string names;
  for (const auto& [key, value] : all.items()) {
    if (first.contains(key) && second.contains(key) && first[key] == second[key]) continue;
    names += (names.empty() ? "" : ", ") + key;
  }
  return names;
}

ResultsFile::ResultsFile(const fs::path& folder, ResultsHeader header, Cells columns,
                         std::vector<Cells> points)
    : path_(folder / "results.csv"),
      header_(std::move(header)),
      columns_(std::move(columns)),
      points_(std::move(points)),
      rows_(points_.size()),
      lock_(locked(folder)) {
  for (std::size_t i = 0; i < points_.size(); ++i) numbers_[points_[i]] = i;
}

std::string ResultsFile::header_text() const {
  std::string text;
  text += fmt::format("{}{}\n", kTitleMark, one_line(header_.title));
  text += fmt::format("{}{}\n", kCommandMark, header_.command);
  text += fmt::format("{}{}\n", kProvenanceMark, one_line(header_.provenance));
  text += fmt::format("{}{}\n", kDefinitionMark, header_.definition);
  text += fmt::format("{}{}\n", kCheckMark, check_of(text));
  for (const std::string& column : columns_) text += column + ',';
  return text + "check\n";
}

std::string ResultsFile::check_of_row(std::string_view row) const {
  return check_of(fmt::format("{}\n{}", header_.definition, row));
}

std::string ResultsFile::text_of_row(std::size_t point) const {
  return fmt::format("{},{}\n", rows_[point], check_of_row(rows_[point]));
}

void ResultsFile::open(bool resume) {
  std::error_code error;
  const bool is_there = fs::status(path_, error).type() != fs::file_type::not_found;
  bytes_ = resume && is_there ? read() : 0;
  if (bytes_ == 0) {
    const std::string text = header_text();
    write_file(path_, text, Durable::yes);
    bytes_ = text.size();
  }
  // Not to wait for the other end of a pipe that has taken the name.
  file_ =
      kernels::FileDescriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC));
  struct ::stat status = {};
  if (!file_.is_open() || ::fstat(file_.number(), &status) != 0) {
    fail("cannot write {}: {}", path_.string(), system_text(errno));
  }
  if (!S_ISREG(status.st_mode)) fail("cannot write {}: not a regular file", path_.string());
  if (static_cast<std::size_t>(status.st_size) != bytes_ &&
      ::ftruncate(file_.number(), static_cast<off_t>(bytes_)) != 0) {
    fail("cannot write {}: {}", path_.string(), system_text(errno));
  }
}

/// Bytes of the lines that are kept: none where a study was ended right at its start, and has left no rows.
std::size_t ResultsFile::read() {
  InputFile file(path_);
  require_memory(file.remaining(), path_.string());
  const std::string text = file.read_rest();
  const std::string header = header_text();
  const std::string columns = header.substr(header.rfind('\n', header.size() - 2) + 1);
  bool in_rows = false;
  std::size_t number = 0;
  std::size_t at = 0;
  for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view line = std::string_view(text).substr(at, end + 1 - at);
    ++number;
    if (in_rows) {
      read_row(line.substr(0, line.size() - 1), number);
    } else if (line == columns) {
      read_header(text.substr(0, at), number - 1);
      in_rows = true;
    } else if (!line.starts_with("# ")) {
      fail("{} line {}: neither a comment nor the columns of arlab study; {}", path_.string(),
           number, kHowToStartAnew);
    }
  }
  if (in_rows) return at;
  const std::string_view rest = std::string_view(text).substr(at);
  const bool is_ours = text.starts_with(kTitleMark) || kTitleMark.starts_with(text);
  const bool is_cut = rest.starts_with('#') || columns.starts_with(rest);
  if (is_ours && is_cut) return 0;
  fail("{}: there is no line with the columns of arlab study; {}", path_.string(), kHowToStartAnew);
}

void ResultsFile::read_header(const std::string& comments, std::size_t lines) {
  const std::size_t last = comments.rfind(kCheckMark);
  const std::string above = comments.substr(0, std::min(last, comments.size()));
  if (comments.substr(above.size()) != fmt::format("{}{}\n", kCheckMark, check_of(above))) {
    fail("{}: lines 1 to {} are not as arlab study writes them; {}", path_.string(),
         std::max<std::size_t>(lines, 1), kHowToStartAnew);
  }
  if (const std::string theirs = marked(above, kDefinitionMark); theirs != header_.definition) {
    fail("{} is of another study, other data or another program (it differs in: {}); {}",
         path_.string(), differences(theirs, header_.definition), kHowToStartAnew);
  }
  header_.command = marked(above, kCommandMark);
}

void ResultsFile::read_row(std::string_view line, std::size_t number) {
  const auto refuse = [&](const std::string& what) {
    fail("{} line {}: {}", path_.string(), number, what);
  };
  const std::size_t comma = line.rfind(',');
  const std::string_view row = line.substr(0, std::min(comma, line.size()));
  if (comma == std::string_view::npos || line.substr(comma + 1) != check_of_row(row)) {
    refuse(
        fmt::format("not as this study has written it; delete the line to have the point "
                    "computed again, or {}",
                    kHowToStartAnew));
  }
  Cells key = cut_csv_line(row);
  key.resize(std::min(key.size(), points_.empty() ? 0 : points_[0].size()));
  const auto point = numbers_.find(key);
  if (point == numbers_.end()) {
    refuse(fmt::format("no point of this study; {}", kHowToStartAnew));
  }
  const auto [first, is_new] = lines_.emplace(point->second, number);
  if (!is_new) {
    refuse(fmt::format("the point of line {} once more; delete one of them, or {}", first->second,
                       kHowToStartAnew));
  }
  rows_[point->second] = row;
  ++count_;
}

void ResultsFile::append(std::span<const std::size_t> points, std::span<const std::string> rows) {
  std::string text;
  for (std::size_t i = 0; i < points.size(); ++i) {
    rows_[points[i]] = rows[i];
    text += text_of_row(points[i]);
  }
  std::size_t written = 0;
  int why = 0;
  while (written < text.size() && why == 0) {
    const ssize_t more = ::write(file_.number(), text.data() + written, text.size() - written);
    if (more < 0 && errno != EINTR) why = errno;
    if (more > 0) written += static_cast<std::size_t>(more);
  }
  if (why == 0 && ::fdatasync(file_.number()) != 0) why = errno;
  // Half a row is not left behind; if it is, read() leaves it out.
  text.resize(written);
  text.resize(text.rfind('\n') + 1);
  bytes_ += text.size();
  count_ += static_cast<std::size_t>(std::ranges::count(text, '\n'));
  if (why == 0) return;
  const bool cut = ::ftruncate(file_.number(), static_cast<off_t>(bytes_)) == 0;
  fail("cannot write {}: {}; {} of {} points are {}: --resume goes on from there", path_.string(),
       system_text(why), count_, points_.size(), cut ? "there" : "there, and a part");
}

std::vector<ResultsFile::Cells> ResultsFile::finish() {
  std::string text = header_text();
  std::vector<Cells> rows;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (!has(i)) continue;
    text += text_of_row(i);
    rows.push_back(cut_csv_line(rows_[i]));
  }
  write_file(path_, text, Durable::yes);
  return rows;
}

}  // namespace arlab::lab
