// Golden vectors for a user's kernel. For every input a payload, the wire bytes that the reference encodes it to, and the
// payload that these decode to.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "experiments/lab/bits/vector_pack.h"
#include "experiments/lab/files.h"
#include "experiments/lab/hashes.h"
#include "experiments/lab/questions.h"
#include "reference/codecs/registry.h"
#include "reference/signals.h"
#include "reference/tensors/file.h"
#include "reference/tensors/npy.h"
#include "reference/tensors/synthetic.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReadme =
    "Golden vectors, made by `arlab vectors`.\n"
    "\n"
    "manifest.json lists the cases. For each, with the SHA-256 of every file: what goes in\n"
    "(NAME.payload.npy; bf16 as raw uint16 patterns), the exact wire bytes (NAME.wire.bin) and "
    "what\n"
    "these decode to (NAME.decoded.npy). A kernel conforms when its encode gives the wire bytes "
    "and\n"
    "its decode the decoded bits: all of them, no tolerance.\n"
    "\n"
    R"(What the bytes mean: reference/codecs/SPEC.md, "Names", of arlab's sources.)"
    "\n";

/// A new folder beside the target, whose files move there together. Its rest goes with this object, which takes no memory:
/// there may be none.
class PartialFolder final : CleanedUpAtLast {
 public:
  explicit PartialFolder(const fs::path& target)
      : target_(target.string()), path_((target.parent_path() / ".arlab-vectors-XXXXXX").string()) {
    remove_left_behind(target.parent_path(), ".arlab-vectors-XXXXXX");
    const std::string pattern = path_;
    do {
      path_ = pattern;
      if (::mkdtemp(path_.data()) == nullptr) {
        fail("cannot make a folder beside {}: {}", target_, reason(errno));
      }
      if (lock_ >= 0) ::close(lock_);
      lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (lock_ >= 0 ? !lock_temporary(lock_) : errno == ENOENT);
  }
  ~PartialFolder() override {
    clean_up();
    if (lock_ >= 0) ::close(lock_);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  /// Where to write the file that is to have this name.
  fs::path file(const std::string& name) {
    files_.push_back({path_ + "/" + name, target_ + "/" + name});
    return files_.back().here;
  }

  /// The same of a file whose folders, which / separates, are made with it.
  fs::path file_below(const std::string& name) {
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
      std::string folder = path_ + "/" + name.substr(0, at);
      if (::mkdir(folder.c_str(), 0777) == 0) {
        folders_.push_back(std::move(folder));
      } else if (errno != EEXIST) {
        fail("{}", reason(errno));
      }
    }
    return file(name);
  }

  /// In place of move_all(), of a new or empty target: the folder itself becomes it.
  void become_target() {
    const ::mode_t mask = ::umask(0);
    ::umask(mask);
    if (::chmod(path_.c_str(), 0777 & ~mask) != 0 ||
        std::rename(path_.c_str(), target_.c_str()) != 0) {
      fail("{}", reason(errno));
    }
    files_.clear();
    folders_.clear();
  }

  /// Throws InvalidInput, and leaves the target as it was, when it cannot be done.
  void move_all() {
    const bool made = ::mkdir(target_.c_str(), 0777) == 0;
    int why = made || errno == EEXIST ? 0 : errno;
    std::size_t moved = 0;
    while (why == 0 && moved < files_.size()) {
      const File& file = files_[moved];
      if (std::rename(file.here.c_str(), file.there.c_str()) == 0) {
        ++moved;
      } else {
        why = errno;
      }
    }
    if (why == 0) return;
    for (std::size_t i = 0; i < moved; ++i) ::unlink(files_[i].there.c_str());
    if (made) ::rmdir(target_.c_str());
    fail("{}", reason(why));
  }

 private:
  void clean_up() noexcept override {
    for (const File& file : files_) ::unlink(file.here.c_str());
    for (std::size_t i = folders_.size(); i-- > 0;) ::rmdir(folders_[i].c_str());
    ::rmdir(path_.c_str());
  }

  struct File {
    std::string here;
    std::string there;
  };
  static std::string reason(int error_number) {
    return std::generic_category().message(error_number);
  }

  std::string target_;
  std::string path_;
  std::vector<File> files_;
  std::vector<std::string> folders_;  ///< inner ones after those around them
  int lock_ = -1;
};

struct VectorsRequest {
  std::string codec;
  std::string folder;
  std::string dtype;
  bool pack = false;
  bool check = false;

  Result answer() const {
    if (check) return checked();
    if (pack) return packed();
    if (codec.empty()) fail("--codec is required (see arlab list codecs), or --pack, or --check");
    const CodecPtr c = find_codec(codec);
    std::vector<DType> dtypes = c->info().dtypes;
    if (!dtype.empty()) dtypes = {parse_dtype(dtype)};
    for (const DType type : dtypes)
      c->wire_bytes(type, 1);  // throws when the codec does not take it

    const fs::path target = new_folder();
    // All or nothing: the files move to their place when all are written, and a signal that would
    // end the program waits for that, or for the files to be gone.
    const SignalsWait wait;
    PartialFolder partial(target);
    try {
      Result report = write_all(*c, dtypes, partial);
      partial.move_all();
      return report;
    } catch (const InvalidInput& problem) {
      fail("{}: {}", folder, problem.what());
    }
  }

  /// The folder that is to be written, which is new or empty.
  fs::path new_folder() const {
    std::error_code error;
    fs::path target = fs::absolute(folder, error).lexically_normal();
    if (error) fail("{}: {}", folder, error.message());
    if (!target.has_filename()) target = target.parent_path();  // "vectors/" is "vectors"
    const fs::file_status status = fs::status(target, error);
    if (!fs::status_known(status)) fail("cannot write {}: {}", folder, error.message());
    if (fs::exists(status) && !(fs::is_directory(target, error) && fs::is_empty(target, error))) {
      fail("{} exists and is not an empty folder; name a new one", folder);
    }
    require_folder_of(target.string());
    return target;
  }

  Result packed() const {
    std::vector<std::string> codecs = codecs_of_pack();
    if (!codec.empty()) {
      codecs.clear();
      for (std::istringstream names(codec); std::getline(names, codecs.emplace_back(), ',');) {
      }
      codecs.pop_back();
    }
    if (!dtype.empty()) parse_dtype(dtype);
    fs::path target = new_folder();
    std::error_code error;
    if (fs::is_symlink(target, error)) target = fs::canonical(target, error);
    const SignalsWait wait;
    PartialFolder partial(target);
    std::size_t bytes = 0;
    try {
      const Json manifest = make_vector_pack(
          codecs, dtype, [&](const std::string& name, std::span<const std::byte> content) {
            write_file(partial.file_below(name), {content});
            bytes += content.size();
          });
      partial.become_target();
      return {"arlab.vectors.pack/1",
              {{"folder", folder},
               {"pack", "written"},
               {"codecs", manifest.at("codecs").size()},
               {"files", manifest.at("files").size()},
               {"bytes", bytes},
               {"program", "arlab " ARLAB_VERSION}}};
    } catch (const InvalidInput& problem) {
      fail("{}: {}", folder, problem.what());
    }
  }

  Result checked() const {
    if (!codec.empty() || !dtype.empty())
      fail("--check: --codec and --dtype are the pack's; leave them out");
    const std::string difference = difference_of_vector_pack(folder);
    Result report{"arlab.vectors.check/1",
                  {{"folder", folder},
                   {"passed", difference.empty()},
                   {"difference", difference.empty() ? Cell() : Cell(difference)},
                   {"program", "arlab " ARLAB_VERSION}}};
    if (!difference.empty()) report.verdict = fmt::format("{}: {}", folder, difference);
    return report;
  }

  /// Name and hash of a file, as it is on the disk.
  static Json described(const fs::path& path) {
    InputFile file(path);
    const std::string text = file.read_rest();
    return {{"file", path.filename().string()}, {"sha256", sha256(std::as_bytes(std::span(text)))}};
  }

  Result write_all(const Codec& c, const std::vector<DType>& dtypes, PartialFolder& into) const {
    Result report{"arlab.vectors/1",
                  {{"codec", c.name()}, {"folder", folder}, {"program", "arlab " ARLAB_VERSION}},
                  "cases",
                  {{"name", "dtype", "input", "elements", "wire_bytes", "clamped"}, {}}};
    std::vector<Json> files;
    for (const DType type : dtypes) {
      for (const VectorInput& input : kVectorInputs) {
        if (SignalsWait::one_came()) fail("interrupted");
        const std::string name = fmt::format("{}_{}", name_of(type), input.name);
        const Tensor made = make_synthetic(input.synthetic, type, 1, input.elements);
        const Tensor payload{type, {input.elements}, made.data};
        std::vector<std::byte> wire(c.wire_bytes(type, input.elements));
        EncodeCounts counts;
        c.encode(type, payload.bytes(), wire, &counts);
        Tensor decoded = make_tensor(type, {input.elements});
        c.decode(type, wire, decoded.bytes());
        const fs::path payload_file = into.file(name + ".payload.npy");
        const fs::path wire_file = into.file(name + ".wire.bin");
        const fs::path decoded_file = into.file(name + ".decoded.npy");
        write_npy(payload_file, payload);
        write_file(wire_file, {wire});
        write_npy(decoded_file, decoded);
        report.rows.rows.push_back(
            {name, name_of(type), input.synthetic, input.elements, wire.size(), counts.clamped});
        files.push_back({{"payload", described(payload_file)},
                         {"wire", described(wire_file)},
                         {"decoded", described(decoded_file)}});
      }
    }
    write_file(into.file("manifest.json"), manifest(report, files));
    write_file(into.file("README.txt"), kReadme);
    return report;
  }

  /// Returns the printed report without the folder, which may be another tomorrow, and with the files of every case.
  static std::string manifest(Result report, const std::vector<Json>& files) {
    std::erase_if(report.figures, [](const Figure& field) { return field.name == "folder"; });
    Json json = to_json(report);
    for (std::size_t i = 0; i < files.size(); ++i) json["cases"][i]["files"] = files[i];
    return json.dump(2) + '\n';
  }
};

std::vector<BoundField> fields(VectorsRequest& r) {
  return {
      field("codec", &r.codec,
            "Use this codec (see arlab list codecs), or with --pack several, separated by commas",
            "with --pack: all that are listed, and more"),
      field("dtype", &r.dtype, "Write vectors of one dtype only", "all that the codec takes"),
      field("pack", &r.pack,
            "Write a pack for an author of kernels: vectors of many codecs, with layouts, "
            "all-reduces and a reader")
          .excludes("check"),
      field("check", &r.check,
            "Check a folder of --pack: its checksums, and that this program makes the same bytes"),
      field("folder", &r.folder,
            "Write to this new or empty folder, or with --check read this pack")
          .by_place("OUTDIR")};
}

}  // namespace

Question vectors_question() {
  return question<VectorsRequest>("vectors", "Write golden vectors to test a kernel of your own",
                                  &VectorsRequest::answer);
}

}  // namespace arlab::lab
