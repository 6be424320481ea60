#include "experiments/lab/codecs/codec_header.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "experiments/lab/codecs/struct_in_header.h"
#include "experiments/lab/run_program.h"
#include "kernels/compile/cache.h"
#include "kernels/compile/compile_error.h"
#include "kernels/compile/sources.h"
#include "kernels/runtime/file_descriptor.h"
#include "reference/definitions.h"
#include "reference/error.h"
#include "reference/field.h"
#include "reference/tensors/file.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFunction = "arlab_compiled_codecs";

/// Requirements of a codec's struct (compiled_codec.h), in the order in which one misses them.
constexpr std::pair<const char*, const char*> kNeeds[] = {
    {"HasBlock", "static constexpr std::size_t kBlock, a power of two from 8 to 256"},
    {"HasScale", "using Scale, float or std::uint8_t"},
    {"HasBits", "unsigned bits() const"},
    {"HasScaleOf", "ScaledBlock<Scale> scale_of(float) const"},
    {"HasNanScale", "Scale nan_scale() const"},
    {"HasQuantize", "ScaledCode quantize(float, float) const"},
    {"HasDequantize", "float dequantize(std::uint32_t, Scale) const"},
    {"HasInfo", "static CodecInfo info(const std::string&)"},
    {"HasListed", "static std::vector<std::string> listed()"},
    {"HasParse", "static std::optional<...> parse(std::string_view)"},
    {"HasPlainMembers", "members that are numbers: no pointers, and nothing that owns memory"}};

/// A text as a literal of C++.
std::string literal(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

/// The source of the library, behind the user's header. Missing members are errors in that header's lines.
std::string unit_of(const CodecHeader& header) {
  const std::string here =
      fmt::format("#line {} {}\n", header.line, literal(header.files.front().first));
  std::string text = "#include \"reference/codecs/compiled_codec.h\"\n";
  for (const auto& [need, words] : kNeeds) {
    text += here + fmt::format("static_assert(arlab::{}<{}>, \"struct {} needs {}\");\n", need,
                               header.structure, header.structure, words);
  }
  return text + here +
         fmt::format(
             "extern \"C\" __attribute__((visibility(\"default\"))) const arlab::CompiledCodecs* "
             "{}() "
             "{{ return &arlab::CompiledFormat<{}>::kCodecs; }}\n",
             kFunction, header.structure);
}

// ---------------------------------------------------------------- the compiler

/// The file of a program, as a shell would find it.
std::optional<fs::path> program_named(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return ::access(name.c_str(), X_OK) == 0 ? std::optional<fs::path>(name) : std::nullopt;
  }
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const fs::path file = fs::path(rest.substr(0, end)) / name;
    std::error_code error;
    if (fs::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0) return file;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::nullopt;
}

/// A C++ compiler, as it is called; no words where there is none.
struct HostCompiler {
  std::vector<std::string> words;
  std::string identity;  ///< differs between any two
};

HostCompiler host_compiler() {
  std::vector<std::vector<std::string>> candidates = {{"c++"}, {"g++"}, {"clang++"}};
  if (const char* chosen = std::getenv("CXX"); chosen != nullptr && *chosen != '\0') {
    candidates = {words_in(chosen)};
    if (candidates[0].empty() || !program_named(candidates[0][0])) {
      fail("CXX is {}: there is no such program", quote(chosen));
    }
  }
  for (const std::vector<std::string>& words : candidates) {
    if (!program_named(words[0])) continue;
    HostCompiler compiler{words, {}};
    for (const std::string& word : words) {
      compiler.identity += word + " ";
      if (const auto file = program_named(word)) {
        std::error_code error;
        compiler.identity += version_of_file(fs::canonical(*file, error).string()).stamp + " ";
      }
    }
    return compiler;
  }
  return {};
}

const std::vector<std::string>& compiler_options() {
  static const std::vector<std::string> all = {"-std=c++20",
                                               "-O2",
                                               "-fPIC",
                                               "-shared",
                                               "-w",
                                               "-ffp-contract=off",
                                               "-fno-fast-math",
                                               "-fvisibility=hidden",
                                               "-fdiagnostics-color=never"};
  return all;
}

// ---------------------------------------------------------------- what it says

/// Returns the text of a failed static_assert, without the compiler's words about it.
std::string_view assertion_of(std::string_view text) {
  if (!text.starts_with("static assertion failed") && !text.starts_with("static_assert failed")) {
    return text;
  }
  const std::size_t begin = std::min(text.find("struct "), text.size());
  return text.substr(begin, text.find_last_not_of('"') + 1 - begin);
}

/// A folder for one compilation.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* const named = std::getenv("TMPDIR");
    const fs::path above = named == nullptr || *named == '\0' ? "/tmp" : named;
    remove_left_behind(above, ".arlab-codec-XXXXXX");
    std::string name = (above / ".arlab-codec-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      fail("cannot make a folder in {}: {}", above.string(),
           std::generic_category().message(errno));
    }
    path_ = name;
    lock_ = kernels::FileDescriptor(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock_.is_open()) lock_temporary(lock_.number());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  std::string name() const { return path_.string(); }

 private:
  fs::path path_;
  kernels::FileDescriptor lock_;
};

/// The headers of the reference, under their names.
void write_reference(const TemporaryFolder& folder) {
  for (const kernels::Header& header : kernels::embedded_headers()) {
    if (!header.name.starts_with("reference/")) continue;
    const fs::path file = folder / header.name;
    fs::create_directories(file.parent_path());
    write_file(file, header.text);
  }
}

std::string absolute(const std::string& file) {
  return fs::absolute(file).lexically_normal().string();
}

/// Where copies of the user's files are: behind it follow their own paths.
std::string copies_in(const TemporaryFolder& folder) { return (folder / "copies").string(); }

/// Copies the header and what it includes. Compilers look beside a file first: a checkout of arlab there has other headers
/// of the reference than this program.
void write_copies(const CodecHeader& header, const TemporaryFolder& folder) {
  const fs::path beside = fs::path(copies_in(folder) + absolute(header.file)).parent_path();
  for (const auto& [name, text] : header.files) {
    const fs::path file = (beside / name).lexically_normal();
    if (!file.string().starts_with(folder.name() + "/")) continue;  // an absolute path
    fs::create_directories(file.parent_path());
    write_file(file, text);
  }
}

/// The first error as a user of the header has to know it.
std::string refusal(const CodecHeader& header, const std::string& log,
                    const TemporaryFolder& folder, const std::string& compiler) {
  kernels::CompileError error = kernels::compile_error_in(log);
  error.text = std::string(assertion_of(error.text));
  if (error.text.empty()) error.text = "it said nothing";
  if (error.file.empty()) error.text = fmt::format("{}: {}", compiler, error.text);
  if (error.file.starts_with(copies_in(folder))) error.file.erase(0, copies_in(folder).size());
  const bool is_ours = error.file.starts_with(folder.name());
  if (is_ours) error.file.erase(0, folder.name().size() + 1);
  if (error.file == absolute(header.file)) error.file = header.files.front().first;
  return kernels::text_of(error, header, is_ours);
}

/// Errors are read, and shown, as the compiler's authors have written them.
std::vector<std::string> english_environment() {
  std::vector<std::string> variables = {"LC_ALL=C"};
  for (char** each = environ; *each != nullptr; ++each) {
    if (!std::string_view(*each).starts_with("LC_ALL=")) variables.emplace_back(*each);
  }
  return variables;
}

std::vector<std::string> command_of(const HostCompiler& compiler, const CodecHeader& header,
                                    const TemporaryFolder& folder) {
  std::vector<std::string> words = compiler.words;
  words.insert(words.end(), compiler_options().begin(), compiler_options().end());
  const std::string copy = copies_in(folder) + absolute(header.file);
  words.insert(words.end(),
               {"-iquote", fs::path(copy).parent_path().string(), "-I", folder.name(), "-include",
                copy, (folder / "unit.cc").string(), "-o", (folder / "codec.so").string(), "-MMD",
                "-MF", (folder / "files").string()});
  return words;
}

/// Returns the names behind the target in a list for make, "codec.so: a.h b\ c.h \".
std::vector<std::string> files_in(std::string_view list) {
  list.remove_prefix(std::min(list.find(": "), list.size()));
  std::vector<std::string> files(1);
  for (std::size_t i = std::min<std::size_t>(2, list.size()); i < list.size(); ++i) {
    const std::string_view rest = list.substr(i);
    const bool is_quoted =
        rest.starts_with("\\ ") || rest.starts_with("\\#") || rest.starts_with("$$");
    if (is_quoted) {
      files.back() += list[++i];
    } else if (rest.front() == ' ' || rest.front() == '\n' || rest.starts_with("\\\n")) {
      if (!files.back().empty()) files.emplace_back();
    } else {
      files.back() += rest.front();
    }
  }
  if (files.back().empty()) files.pop_back();
  return files;
}

/// Checks that the hash covers all that the compiler has read, but for the system's and arlab's headers.
void require_known(const CodecHeader& header, const TemporaryFolder& folder) {
  if (!fs::exists(folder / "files")) return;  // compilers that make no such list
  for (const std::string& file : files_in(read_text_file(folder / "files", "the list of files"))) {
    if (file.starts_with(folder.name())) continue;
    const std::string text = read_text_file(file, "the header");
    if (std::ranges::none_of(header.files,
                             [&](const auto& known) { return known.second == text; })) {
      fail("{}: it includes {} by another way than #include \"...\" of a file beside it",
           header.file, file);
    }
  }
}

/// Throws InvalidInput.
kernels::CodeObject compile(const CodecHeader& header, const std::string& unit,
                            const HostCompiler& compiler) {
  if (compiler.words.empty()) {
    fail("{}: {}", header.file,
         "a C++ compiler makes a codec of it, and there is none (c++, g++, clang++): install one, "
         "for example by apt install g++, or name one by CXX");
  }
  const TemporaryFolder folder;
  write_reference(folder);
  write_copies(header, folder);
  write_file(folder / "unit.cc", unit);
  const Ended ended = run_program(command_of(compiler, header, folder), english_environment());
  if (!ended.started || ended.status != 0) {
    fail("{}", refusal(header, ended.said, folder, compiler.words[0]));
  }
  require_known(header, folder);
  return {InputFile((folder / "codec.so").string()).read_rest(), ended.said};
}

/// The library, made now or before.
std::string library_of(const CodecHeader& header) {
  const HostCompiler compiler = host_compiler();
  utsname system = {};
  ::uname(&system);
  const std::string unit = unit_of(header);
  const kernels::KernelKey key = {.kernel = "codec of " + header.files.front().first,
                                  .sources = kernels::embedded_headers_hash() + " " + header.hash,
                                  .unit = unit,
                                  .options = compiler_options(),
                                  .architecture = system.machine,
                                  .compiler = compiler.identity};
  const auto make = [&]() -> kernels::Result<kernels::CodeObject> {
    try {
      return compile(header, unit, compiler);
    } catch (const InvalidInput& error) {
      return kernels::Status::error(error.what());
    } catch (const fs::filesystem_error& error) {
      return kernels::Status::error(error.what());
    }
  };
  const kernels::Result<kernels::KernelCache*> cache = kernels::KernelCache::of_process();
  if (!cache.ok()) fail("{}", cache.status().message());
  kernels::Result<kernels::CodeObject> made = cache.value()->get(key, make);
  if (!made.ok()) fail("{}", made.status().message());
  return std::move(made.value().bytes);
}

// ---------------------------------------------------------------- the library

/// A file without a name.
kernels::FileDescriptor in_memory(std::string_view bytes) {
  kernels::FileDescriptor file(::memfd_create("arlab-codec", MFD_CLOEXEC));
  if (!file.is_open()) fail("{}", std::generic_category().message(errno));
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail("{}", std::generic_category().message(errno));
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return file;
}

/// The functions of a library, which stays until the process ends. It is loaded from memory, so that the loaded bytes are the
/// checked ones.
const CompiledCodecs* loaded(const std::string& library) {
  kernels::FileDescriptor file = in_memory(library);
  const std::string path = fmt::format("/proc/self/fd/{}", file.number());
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail("{}", ::dlerror());
  // The linker knows it by its path, which no other library may have.
  static std::vector<kernels::FileDescriptor>& open = *new std::vector<kernels::FileDescriptor>;
  open.push_back(std::move(file));
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  const auto function = reinterpret_cast<const CompiledCodecs* (*)()>(::dlsym(handle, kFunction));
  return function();
}

const CompiledCodecs& functions_of(const CompiledHeader& compiled) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, const CompiledCodecs*>;
  const std::scoped_lock lock(mutex);
  const CompiledCodecs*& functions = known[compiled.library];
  try {
    if (functions == nullptr) functions = loaded(compiled.library);
  } catch (const InvalidInput& error) {
    fail("{}: {}", place_of(compiled.header), error.what());
  }
  return *functions;
}

}  // namespace

CompiledHeader compiled_header(const std::string& file) {
  kernels::Result<std::vector<kernels::Header>> read = kernels::read_header(file);
  if (!read.ok()) fail("{}", read.status().message());
  const FoundStruct found = struct_in_header(read.value().front().text, file);
  CodecHeader header{file, found.name, found.line, {}, kernels::hash_of(read.value())};
  for (kernels::Header& each : read.value()) {
    header.files.emplace_back(std::move(each.name), std::move(each.text));
  }
  std::string library = library_of(header);
  return {std::move(header), std::move(library)};
}

std::vector<std::string> register_compiled_header(const CompiledHeader& compiled) {
  return register_header_codecs(compiled.header, functions_of(compiled));
}

}  // namespace arlab::lab
