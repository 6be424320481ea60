// A codec in C++ to begin with, as a header of its own, or with its test and their lines in the source tree. It is the worked
// example of CONTRIBUTING.md, under another name.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "experiments/lab/codecs/codec_header.h"
#include "experiments/lab/files.h"
#include "experiments/lab/grids/grid.h"
#include "experiments/lab/questions.h"
#include "kernels/runtime/bootstrap.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/file.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPage = "CONTRIBUTING.md";
constexpr const char* kTest = "tests/contributing/example_codec_test.cc";
constexpr const char* kFormats = "reference/codecs/formats/formats.h";
constexpr const char* kTests = "tests/codecs/CMakeLists.txt";
// The example's name.
constexpr const char* kExample = "absmax8-g64";
constexpr const char* kExampleFile = "absmax8_g64";
constexpr const char* kExampleClass = "AbsMax8";

std::string read_text(const fs::path& path) { return InputFile(path).read_rest(); }

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

/// Only one at a time adds its lines to files of the tree; others wait, for a moment.
kernels::FileDescriptor lock_of(const fs::path& tree) {
  kernels::FileDescriptor locked(::open(tree.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (::flock(locked.number(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return locked;
}

struct File {
  fs::path path;
  std::string text;
};

/// Writes all or none of the new files, which stand first, before the others.
void write_all(const std::vector<File>& files, std::size_t new_ones) {
  std::size_t written = 0;
  try {
    for (; written < files.size(); ++written) {
      write_file(files[written].path, files[written].text);
    }
  } catch (...) {
    std::error_code none;
    for (std::size_t i = 0; i < std::min(written, new_ones); ++i) fs::remove(files[i].path, none);
    throw;
  }
}

struct NewCodecRequest {
  std::string name;
  std::string tree;
  std::string header;
  std::optional<std::uint32_t> block;

  Result answer() const {
    require_name();
    if (block && (!std::has_single_bit(*block) || *block < 8 || *block > 256)) {
      fail("--block {}: allowed are 8, 16, 32, 64, 128 and 256", *block);
    }
    return header.empty() ? written_into_tree() : written_to_header();
  }

 private:
  Result written_to_header() const {
    require_output_name("--header", header, {".h", ".hpp"});
    std::error_code error;
    if (fs::exists(header, error)) fail("{} is there already", header);
    write_file(header, renamed(example_codec()));
    Result report{"arlab.new/1"};
    report.figures = {
        {"codec", name},
        {"header", header, "what the codec is: change scale, quantize, dequantize"},
        {"then", fmt::format("arlab check-codec {} --codec-header {}", name, shell_quote(header))}};
    return report;
  }

  Result written_into_tree() const {
    const fs::path root = tree.empty() ? tree_around_here() : absolute_tree();
    const kernels::FileDescriptor lock = lock_of(root);
    const fs::path format = fs::path("reference/codecs/formats") / (file_name() + ".h");
    const fs::path test = fs::path("tests/codecs") / (file_name() + "_test.cc");
    for (const fs::path& each : {format, test}) {
      std::error_code error;
      if (fs::exists(root / each, error)) fail("{} is there already", (root / each).string());
    }
    write_all({{root / format, renamed(example_codec())},
               {root / test, renamed(read_text(root / kTest))},
               {root / kFormats, with_format(read_text(root / kFormats))},
               {root / kTests, with_test(read_text(root / kTests))}},
              2);

    Result report{"arlab.new/1"};
    report.figures = {
        {"codec", name},
        {"header", (root / format).string(),
         "what the codec is: change scale, quantize, dequantize"},
        {"test", (root / test).string(), "reference, kernels, every algorithm and property"},
        {"lines_in", fmt::format("{}, {}", (root / kFormats).string(), (root / kTests).string())},
        {"build",
         "cmake --preset release -DARLAB_BUILD_TESTS=ON && cmake --build --preset release"},
        {"then",
         fmt::format("ctest --preset release -R {}; arlab check-codec {}", class_name(), name)}};
    return report;
  }

  /// The first file of the sources that a folder lacks, or null.
  static const char* lacking(const fs::path& root) {
    for (const char* needed : {kPage, kTest, kFormats, kTests}) {
      std::error_code error;
      if (!fs::exists(root / needed, error)) return needed;
    }
    return nullptr;
  }

  fs::path absolute_tree() const {
    if (const char* needed = lacking(tree)) {
      fail("--tree {}: there is no {}; allowed is a folder of arlab's sources", quote(tree),
           needed);
    }
    return fs::path(located_path(tree));
  }

  /// The sources that one works in: the program may have been built from others.
  static fs::path tree_around_here() {
    const fs::path here = fs::current_path();
    for (fs::path folder = here;; folder = folder.parent_path()) {
      if (lacking(folder) == nullptr) return folder;
      if (folder == folder.parent_path()) break;
    }
    fail("the current folder {} is not in a tree of arlab's sources; name one with --tree",
         quote(here.string()));
  }

  void require_name() const {
    const auto fits = [](char c) {
      return std::islower(static_cast<unsigned char>(c)) != 0 ||
             std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '-';
    };
    constexpr std::size_t kMost = 40;
    const bool named = std::islower(static_cast<unsigned char>(name.front())) != 0 &&
                       std::all_of(name.begin(), name.end(), fits) && !name.ends_with('-') &&
                       name.find("--") == std::string::npos && name.size() <= kMost;
    if (!named) {
      fail(
          "NAME is {}: allowed are lower-case letters, digits and single hyphens, a letter first, "
          "{} characters at most",
          quote(name), kMost);
    }
    bool known = true;
    try {
      (void)find_codec(name);
    } catch (const InvalidInput&) {
      known = false;
    }
    if (known) fail("codec {} is there already; choose another name", name);
  }

  std::string file_name() const {
    std::string text = name;
    std::replace(text.begin(), text.end(), '-', '_');
    return text;
  }

  /// my-codec-g32 is MyCodecG32.
  std::string class_name() const {
    std::string text;
    bool begins = true;
    for (const char c : name) {
      if (c != '-')
        text += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      begins = c == '-';
    }
    return text;
  }

  std::string renamed(std::string text) const {
    // The example's words about itself are not true of a codec that is still to be written.
    replace_all(
        text, fmt::format("// {}: ", kExample),
        fmt::format("// {}: say here what it is. It begins as a copy of the example in {}:\n// ",
                    name, kPage));
    replace_all(text, "\"8-bit symmetric integers, fp32 scale\"", "\"what it is, in one line\"");
    replace_all(text, kExample, name);
    replace_all(text, kExampleFile, file_name());
    replace_all(text, kExampleClass, class_name());
    const std::string elements = std::to_string(block.value_or(64));
    replace_all(text, "kBlock = 64", "kBlock = " + elements);
    replace_all(text, "blocks of 64", "blocks of " + elements);
    replace_all(text, "\"CONTRIBUTING.md\"", "\"where it is from\"");
    return text;
  }

  std::string with_format(std::string text) const {
    const std::string include =
        fmt::format("#include \"reference/codecs/formats/{}.h\"\n", file_name());
    // Includes are in order.
    std::size_t at = text.find("#include \"reference/codecs/formats/");
    while (at != std::string::npos && text.compare(at, 9, "#include ") == 0 &&
           text.compare(at, include.size(), include) < 0) {
      at = text.find('\n', at) + 1;
    }
    const std::size_t list = text.find("using ScaledFormats =");
    if (at == std::string::npos || list == std::string::npos) {
      fail("{}/{}: there is no list ScaledFormats", tree, kFormats);
    }
    text.insert(text.find(">;", list), ", " + class_name());
    text.insert(at, include);
    return text;
  }

  std::string with_test(const std::string& text) const {
    return text +
           fmt::format(
               "arlab_test({0}_test {0}_test.cc LIBRARIES arlab::kernels arlab_host_platform)\n",
               file_name());
  }
};

std::vector<BoundField> fields(NewCodecRequest& r) {
  return {field("name", &r.name, "Name the codec, such as absmax6-g32").by_place("NAME"),
          field("block", &r.block, "Share a scale among N elements", "64").from(8, 256),
          field("tree", &r.tree, "Write into this folder of arlab's sources",
                "the one around the current folder"),
          field("header", &r.header, "Write only this header, FILE.h, for --codec-header")
              .excludes("tree")};
}

}  // namespace

Question new_codec_question() {
  return question<NewCodecRequest>(
      "new codec",
      "Write a codec in C++: a header of its own, or its file, test and lines in the tree",
      &NewCodecRequest::answer);
}

}  // namespace arlab::lab
