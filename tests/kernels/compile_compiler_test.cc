// Compilers that are libraries: which one is taken, what it is given, what it says. Most is tested on a fake (fake_compiler.cc); where there
// is an NVRTC, it compiles.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>
#include <thread>

#include "kernels/compile/compiler.h"
#include "kernels/compile/sources.h"
#include "kernels/compile/trusted.h"
#include "tests/kernels/in_processes.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;

/// In a process with these variables, as each takes the first compiler that it finds.
std::string with(const std::vector<std::pair<const char*, std::string>>& variables,
                 const std::function<std::string()>& say) {
  return in_processes({0}, [&](int) {
    for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
    return say();
  })[0];
}

std::string nvrtc_says(const std::string& file, const char* version, int driver) {
  return with({{"ARLAB_NVRTC", file}, {"FAKE_COMPILER_VERSION", version}}, [&] {
    const auto compiler = nvrtc(driver);
    return compiler.ok() ? compiler.value()->version() : compiler.status().message();
  });
}

TEST(Compiler, TheFirstErrorIsOneLine) {
  EXPECT_EQ(
      first_error("bad.h(25): error: identifier \"x\" is undefined\n    x\n    ^\n\n1 error\n"),
      "bad.h(25): error: identifier \"x\" is undefined");
  EXPECT_EQ(
      first_error("k.cu(3): warning #177-D: declared\n\nk.cu(4): catastrophic error: no file\n"),
      "k.cu(4): catastrophic error: no file");
  EXPECT_EQ(first_error(
                "In file included from k.hip:1:\nbad.h:2:10: fatal error: 'x.h' file not found\n"),
            "bad.h:2:10: fatal error: 'x.h' file not found");
  EXPECT_EQ(first_error("ptxas error   : too much shared data\n"),
            "ptxas error   : too much shared data");
  EXPECT_EQ(first_error("it failed\nfor a reason"), "it failed");
  EXPECT_EQ(first_error(""), "");
}

TEST(Compiler, NvrtcIsOneWhoseCodeTheDriverLoads) {
  const std::string fake = FAKE_COMPILER_FILE;
  EXPECT_EQ(nvrtc_says(fake, "13000", 13000), "NVRTC 13.0.7");
  EXPECT_EQ(nvrtc_says(fake, "12080", 13000), "NVRTC 12.8");
  EXPECT_EQ(nvrtc_says(fake, "12090", 12080), "NVRTC 12.9");  // any of one major version
  EXPECT_EQ(nvrtc_says(fake, "13000", 0), "NVRTC 13.0.7");    // where there is no driver
  EXPECT_EQ(nvrtc_says(fake, "13010", 12080),
            "ARLAB_NVRTC: NVRTC 13.1 (" + fake +
                ") is newer than the driver, which takes code of CUDA 12.8");
  EXPECT_EQ(nvrtc_says(fake, "12060", 13000),
            "ARLAB_NVRTC: NVRTC 12.6 (" + fake + ") is older than 12.8");
}

TEST(Compiler, TheNewestNvrtcOfThePackagesIsTaken) {
  std::string environment = (fs::current_path() / "environment-XXXXXX").string();
  ASSERT_NE(mkdtemp(environment.data()), nullptr);
  const fs::path packages = fs::path(environment) / "lib/python3.11/site-packages/nvidia";
  for (const char* folder : {"cu13/lib", "cuda_nvrtc/lib"})
    fs::create_directories(packages / folder);
  fs::copy_file(FAKE_COMPILER_FILE, packages / "cu13/lib/libnvrtc.so.13");
  fs::copy_file(FAKE_BUILTINS_FILE, packages / "cu13/lib/libnvrtc-builtins.so.13.99");
  fs::copy_file(FAKE_COMPILER_FILE, packages / "cuda_nvrtc/lib/libnvrtc.so.12");
  const auto found = [&](const char* version, int driver) {
    return with(
        {{"VIRTUAL_ENV", environment}, {"ARLAB_NVRTC", ""}, {"FAKE_COMPILER_VERSION", version}},
        [&] {
          const auto compiler = nvrtc(driver);
          if (!compiler.ok()) return compiler.status().message();
          const bool has_builtins = dlopen("libnvrtc-builtins.so.13.99", RTLD_NOW) != nullptr;
          return compiler.value()->version() + (has_builtins ? " and its builtins" : "");
        });
  };
  const Status trusted = require_trusted(packages);
  if (trusted.ok()) {
    EXPECT_EQ(found("13990", 0), "NVRTC 13.99 and its builtins");
    EXPECT_EQ(found("12990", 12080), "NVRTC 12.99");
    const std::string none = found("13990", 11080);
    EXPECT_TRUE(none.starts_with("no compiler for NVIDIA GPUs: NVRTC 13.99 (")) << none;
    EXPECT_NE(none.find("the PyPI package nvidia-cuda-nvrtc has it"), std::string::npos) << none;
  }
  // Somebody else could have put it there.
  ASSERT_EQ(chmod((packages / "cu13").c_str(), 0777), 0);
  EXPECT_NE(found("13990", 0), "NVRTC 13.99");
  fs::remove_all(environment);
  if (!trusted.ok()) GTEST_SKIP() << "no folder is safe here: " << trusted.message();
}

TEST(Compiler, NvrtcThatIsNamedAndCannotBeTaken) {
  EXPECT_EQ(nvrtc_says("/none/libnvrtc.so.13", "13000", 0),
            "ARLAB_NVRTC: /none/libnvrtc.so.13 cannot be loaded: it is not here");
  const TemporaryDirectory folder;
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(nvrtc_says(pipe, "13000", 0),
            "ARLAB_NVRTC: " + pipe + " cannot be loaded: it is not a regular file");
  const std::string another = nvrtc_says("libm.so.6", "13000", 0);
  EXPECT_TRUE(another.starts_with("ARLAB_NVRTC: ")) << another;
  EXPECT_TRUE(another.ends_with("libm.so.6 lacks nvrtcCreateProgram or another of its functions"))
      << another;
}

TEST(Compiler, CompilersOfOtherFilesAreOthers) {
  const auto identity = [](const char* version) {
    return with({{"ARLAB_NVRTC", FAKE_COMPILER_FILE}, {"FAKE_COMPILER_VERSION", version}},
                [] { return nvrtc(0).value()->identity(); });
  };
  const auto bytes = std::to_string(fs::file_size(FAKE_COMPILER_FILE));
  EXPECT_EQ(identity("13000"), "NVRTC 13.0, " + bytes + " bytes");
  EXPECT_EQ(identity("12080"), "NVRTC 12.8, " + bytes + " bytes");
}

TEST(Compiler, WhatAUnitSaysIsCompiled) {
  EXPECT_EQ(with({{"ARLAB_NVRTC", FAKE_COMPILER_FILE}},
                 [] {
                   const Unit unit = {
                       .text = "unit", .architecture = "sm_90", .options = {"-a", "-b"}};
                   const auto code = nvrtc(0).value()->compile(unit);
                   return code.value().bytes + "; " + code.value().log;
                 }),
            "code of unit; -arch=sm_90 --no-source-include -a -b ");
}

TEST(Compiler, HiprtcThatEndsTheProcessEndsAnother) {
  const auto compiled = [](const std::string& architecture) {
    return with({{"ARLAB_HIPRTC", FAKE_COMPILER_FILE}, {"FAKE_COMPILER_VERSION", "5020"}},
                [&]() -> std::string {
                  const Unit unit = {.text = "unit", .architecture = architecture};
                  const auto code = hiprtc().value()->compile(unit);
                  return code.ok() ? code.value().bytes + "; " + code.value().log
                                   : code.status().message();
                });
  };
  EXPECT_EQ(compiled("gfx90a"), "code of unit; --offload-arch=gfx90a ");
  EXPECT_EQ(compiled("gfx942"), std::string("architecture gfx942: hipRTC 5.2 (") +
                                    FAKE_COMPILER_FILE +
                                    ") does not compile for it, newer ones may");
  EXPECT_EQ(with({{"ARLAB_HIPRTC", "/none"}}, [] { return hiprtc().status().message(); }),
            "ARLAB_HIPRTC: /none cannot be loaded: it is not here");
}

// ---- the compiler that is here

/// Skips the test where there is none.
class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    const auto found = nvrtc(0);
    if (!found.ok()) GTEST_SKIP() << found.status().message();
    compiler_ = found.value();
  }
  std::string error_of(const Unit& unit) const {
    return compiler_->compile(unit).status().message();
  }
  const Compiler* compiler_ = nullptr;
};

constexpr const char* kToy = R"(#include "toy.h"
extern "C" __global__ void kernel(int* at) { at[threadIdx.x] = kToy; }
)";

TEST_F(Nvrtc, CompilesAUnitWithHeadersInMemory) {
  const std::vector<Header> headers = {
      {"toy.h", "#include <word>\nconstexpr int kToy = Word(7);\n"},
      {"word", "using Word = int;\n"}};
  for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
    const auto code = compiler_->compile({.name = "toy.cu",
                                          .text = kToy,
                                          .headers = headers,
                                          .architecture = architecture,
                                          .options = {"-std=c++20"}});
    ASSERT_TRUE(code.ok()) << code.status().message();
    EXPECT_TRUE(
        code.value().bytes.starts_with("\x7F"
                                       "ELF"));
    EXPECT_NE(code.value().bytes.find("kernel"), std::string::npos);
  }
}

TEST_F(Nvrtc, NamesFileAndLineOfAnError) {
  Unit unit = {.name = "toy.cu", .text = kToy, .architecture = "sm_90"};
  EXPECT_EQ(error_of(unit).substr(0, 30), "toy.cu(1): catastrophic error:");
  const std::vector<Header> headers = {{"toy.h", "\n\nconstexpr int kToy = round_to_evn(7);\n"}};
  unit.headers = headers;
  EXPECT_EQ(error_of(unit), "toy.h(3): error: identifier \"round_to_evn\" is undefined");
  unit.architecture = "sm_1";
  EXPECT_EQ(error_of(unit), "nvrtc: error: invalid value for --gpu-architecture (-arch)");
}

TEST_F(Nvrtc, ReadsNoFilesOfTheFolderThatItIsIn) {
  const TemporaryDirectory folder;
  folder.write("toy.h", "constexpr int kToy = 7;\n");
  EXPECT_EQ(
      in_processes({0},
                   [&](int) {
                     fs::current_path(folder / "");
                     return error_of({.name = "toy.cu", .text = kToy, .architecture = "sm_90"})
                         .substr(0, 30);
                   })[0],
      "toy.cu(1): catastrophic error:");
}

TEST_F(Nvrtc, CompilesInSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<std::string> codes(4);
  for (std::string& code : codes) {
    threads.emplace_back([&] {
      const std::vector<Header> headers = {{"toy.h", "constexpr int kToy = 7;\n"}};
      const auto compiled = compiler_->compile(
          {.name = "toy.cu", .text = kToy, .headers = headers, .architecture = "sm_90"});
      if (compiled.ok()) code = compiled.value().bytes;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& code : codes) EXPECT_FALSE(code.empty());
}

TEST_F(Nvrtc, SaysWhichItIs) {
  EXPECT_TRUE(std::regex_match(compiler_->version(), std::regex(R"(NVRTC 1\d\.\d+\.\d+)")))
      << compiler_->version();
  EXPECT_TRUE(std::regex_match(compiler_->identity(), std::regex(R"(NVRTC 1\d\.\d+, \d+ bytes)")));
  EXPECT_TRUE(fs::is_regular_file(fs::canonical(compiler_->file())));
  const std::vector<std::string> known = compiler_->architectures();
  EXPECT_NE(std::find(known.begin(), known.end(), "sm_90"), known.end());
}

// ---- what is compiled

TEST(DeviceHeaders, AreWhole) {
  std::set<std::string> names;
  for (const Header& header : embedded_headers()) {
    EXPECT_TRUE(names.insert(header.name).second) << header.name << " is there twice";
    EXPECT_FALSE(header.text.empty()) << header.name;
  }
  EXPECT_TRUE(names.contains("kernels/platform/platform.h"));
  const std::regex include("(?:^|\n)[ \t]*#[ \t]*include \"([^\"]+)\"");
  for (const Header& header : embedded_headers()) {
    for (std::sregex_iterator at(header.text.begin(), header.text.end(), include), end; at != end;
         ++at) {
      EXPECT_TRUE(names.contains((*at)[1])) << header.name << " includes " << (*at)[1];
    }
  }
}

TEST(DeviceHeaders, HaveTheHashOfTheirTexts) {
  EXPECT_EQ(embedded_headers_hash(), hash_of(embedded_headers()));
  std::vector<Header> changed(embedded_headers().begin(), embedded_headers().end());
  changed.back().text += "\n";
  EXPECT_NE(embedded_headers_hash(), hash_of(changed));
  changed.back() = {changed.back().name + "x", embedded_headers().back().text};
  EXPECT_NE(embedded_headers_hash(), hash_of(changed));
}

class UsersHeader : public testing::Test {
 protected:
  std::string read(const std::string& name, const std::vector<fs::path>& folders = {}) const {
    const auto headers = read_header(folder_ / name, folders);
    if (!headers.ok()) return headers.status().message();
    std::string names;
    for (const Header& header : headers.value()) names += header.name + " ";
    return names;
  }
  std::string path(const std::string& name) const {
    return fs::weakly_canonical(folder_ / name).string();
  }
  TemporaryDirectory folder_;
};

TEST_F(UsersHeader, IsReadWithWhatItIncludes) {
  fs::create_directories(folder_ / "sub");
  fs::create_directories(folder_ / "more");
  folder_.write("codec.h",
                "#pragma once\n#include <limits>\n#include \"kernels/platform/platform.h\"\n"
                "  #  include  \"sub/b.h\" // b\n#include \"d.h\"\n");
  folder_.write("sub/b.h", "#include \"c.h\"\n#include \"../codec.h\"");
  folder_.write("sub/c.h", "// #include \"none.h\"\n");
  folder_.write("more/d.h", "");
  EXPECT_EQ(read("codec.h", {folder_ / "more"}),
            "codec.h sub/b.h d.h c.h ../codec.h more/d.h sub/c.h ");
  EXPECT_EQ(read("codec.h"),
            path("codec.h") + ":5: 'd.h' is neither beside it nor a header of arlab");
}

TEST_F(UsersHeader, ANameOfTwoFilesIsRefused) {
  fs::create_directories(folder_ / "sub");
  folder_.write("codec.h", "#include \"c.h\"\n#include \"sub/b.h\"\n");
  folder_.write("c.h", "");
  folder_.write("sub/b.h", "\n#include \"c.h\"\n");
  folder_.write("sub/c.h", "");
  const std::string said = read("codec.h");
  EXPECT_TRUE(said.starts_with(path("sub/b.h") + ":2: 'c.h' means ")) << said;
}

TEST_F(UsersHeader, WhatCannotBeReadIsSaid) {
  EXPECT_EQ(read("none.h"), "the header '" + (folder_ / "none.h").string() +
                                "' cannot be read: No such file or directory");
  ASSERT_EQ(mkfifo((folder_ / "pipe.h").c_str(), 0600), 0);
  EXPECT_EQ(read("pipe.h"), "the header '" + (folder_ / "pipe.h").string() +
                                "' cannot be read: not a regular file");
}

}  // namespace
}  // namespace arlab::kernels
