// Compiled kernels on disk: nothing is believed that somebody else could have written, nothing waits for ever, and whatever
// happens to the disk, kernels are compiled.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <thread>

#include "kernels/compile/cache.h"
#include "kernels/compile/trusted.h"
#include "tests/kernels/in_processes.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr unsigned kNobody = 65534;

KernelKey key_of(const std::string& unit) {
  return {.kernel = "two_shot int4-g32 bf16",
          .sources = "5af3",
          .unit = unit,
          .options = {"-std=c++20", "-fmad=false"},
          .architecture = "sm_90",
          .compiler = "NVRTC 13.0, 5 bytes"};
}

const CodeObject kCode = {.bytes = std::string("\x7F"
                                               "ELF\0\n\0code",
                                               12),
                          .log = "64 registers\n"};

/// How often a kernel was made.
class Maker {
 public:
  explicit Maker(CodeObject code = kCode) : code_(std::move(code)) {}
  KernelCache::Make make() {
    return [this]() -> Result<CodeObject> {
      ++count_;
      return code_;
    };
  }
  int count() const { return count_; }

 private:
  CodeObject code_;
  std::atomic<int> count_ = 0;
};

Result<CodeObject> no_compiler() { return Status::error("no compiler"); }

/// Words of a cache on stderr while it is made and asked for a kernel; "made" or "found" first.
std::string asked(const CachePlaces& places, const KernelKey& key = key_of("unit")) {
  testing::internal::CaptureStderr();
  Maker maker;
  KernelCache cache(places);
  const auto code = cache.get(key, maker.make());
  const bool right =
      code.ok() && code.value().bytes == kCode.bytes && code.value().log == kCode.log;
  const std::string said = testing::internal::GetCapturedStderr();
  return (right ? maker.count() == 0 ? "found " : "made " : "wrong ") + said;
}

class KernelCacheTest : public testing::Test {
 protected:
  CachePlaces places() const { return {.folder = folder_ / "kernels"}; }
  /// The one kernel that is there.
  fs::path kernel() const {
    std::vector<fs::path> kernels;
    for (const auto& entry : fs::directory_iterator(folder_ / "kernels")) {
      if (entry.path().extension() == ".kernel") kernels.push_back(entry.path());
    }
    EXPECT_EQ(kernels.size(), 1U);
    return kernels.empty() ? fs::path() : kernels.front();
  }
  TemporaryDirectory folder_;
};

TEST_F(KernelCacheTest, KeepsWhatIsMade) {
  EXPECT_EQ(asked(places()), "made ");
  EXPECT_EQ(asked(places()), "found ");
  KernelCache cache(places());
  EXPECT_TRUE(cache.has(key_of("unit")));
  EXPECT_FALSE(cache.has(key_of("another")));
  EXPECT_EQ(cache.folder(), folder_ / "kernels");
  EXPECT_EQ(cache.why_not_used(), "");
  struct stat status = {};
  ASSERT_EQ(stat((folder_ / "kernels").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0700U);
  ASSERT_EQ(stat(kernel().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0644U);
  EXPECT_EQ(status.st_uid, geteuid());
}

TEST_F(KernelCacheTest, MakesFoldersThatAreMissing) {
  EXPECT_EQ(asked({.folder = folder_ / "a/b/kernels"}), "made ");
  EXPECT_EQ(asked({.folder = folder_ / "a/b/kernels"}), "found ");
}

TEST_F(KernelCacheTest, EveryPartOfAKeyCountsButItsName) {
  ASSERT_EQ(asked(places()), "made ");
  const auto with = [&](auto change) {
    KernelKey key = key_of("unit");
    change(key);
    return asked(places(), key);
  };
  EXPECT_EQ(with([](KernelKey& key) { key.kernel = "ring int8-g32 fp16"; }), "found ");
  EXPECT_EQ(with([](KernelKey& key) { key.sources = "5af4"; }), "made ");
  EXPECT_EQ(with([](KernelKey& key) { key.unit = "unit\n"; }), "made ");
  EXPECT_EQ(with([](KernelKey& key) { key.architecture = "sm_100"; }), "made ");
  EXPECT_EQ(with([](KernelKey& key) { key.compiler = "NVRTC 13.1, 5 bytes"; }), "made ");
  EXPECT_EQ(with([](KernelKey& key) { key.options = {"-std=c++20"}; }), "made ");
  EXPECT_EQ(with([](KernelKey& key) { key.options = {"-fmad=false", "-std=c++20"}; }), "made ");
  // No part runs into the next one.
  EXPECT_EQ(with([](KernelKey& key) { key.options = {"-std=c++20-fmad=false"}; }), "made ");
  EXPECT_EQ(with([](KernelKey& key) {
              key.sources = "5af3u";
              key.unit = "nit";
            }),
            "made ");
}

TEST_F(KernelCacheTest, WithoutACompilerCodeOfAnyWillDo) {
  KernelKey key = key_of("unit");
  key.compiler = "";
  {
    KernelCache cache(places());
    EXPECT_FALSE(cache.has(key));
    EXPECT_EQ(cache.get(key, no_compiler).status().message(), "no compiler");
  }
  ASSERT_EQ(asked(places()), "made ");
  EXPECT_EQ(asked(places(), key), "found ");
  EXPECT_TRUE(KernelCache(places()).has(key));
}

TEST_F(KernelCacheTest, AnErrorIsNotKept) {
  KernelCache cache(places());
  const auto fails = [] { return Result<CodeObject>(Status::error("bad.h(3): error")); };
  EXPECT_EQ(cache.get(key_of("unit"), fails).status().message(), "bad.h(3): error");
  EXPECT_EQ(asked(places()), "made ");
}

TEST_F(KernelCacheTest, DamagedFilesAreMadeAgain) {
  ASSERT_EQ(asked(places()), "made ");
  const std::string whole = bytes_of(kernel());
  const auto with = [&](const std::string& bytes) {
    std::ofstream(kernel(), std::ios::binary) << bytes;
    const std::string said = asked(places());
    EXPECT_EQ(bytes_of(kernel()), whole);  // it is mended
    return said;
  };
  for (std::size_t at = 0; at < whole.size(); at += 3) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    ASSERT_EQ(with(flipped), "made ") << at;
  }
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    ASSERT_EQ(with(whole.substr(0, size)), "made ") << size;
  }
  EXPECT_EQ(with(whole + "x"), "made ");
  EXPECT_EQ(with(whole + whole), "made ");
  EXPECT_EQ(with(whole), "found ");
}

TEST_F(KernelCacheTest, AFileOfAnotherKernelIsNotTaken) {
  ASSERT_EQ(asked(places(), key_of("another")), "made ");
  const fs::path another = kernel();
  ASSERT_EQ(asked(places()), "made ");
  for (const auto& entry : fs::directory_iterator(folder_ / "kernels")) {
    if (entry.path().extension() == ".kernel" && entry.path() != another) {
      fs::copy_file(another, entry.path(), fs::copy_options::overwrite_existing);
    }
  }
  EXPECT_EQ(asked(places()), "made ");
}

TEST_F(KernelCacheTest, OnlyRegularFilesOfThisUserAreRead) {
  ASSERT_EQ(asked(places()), "made ");
  const fs::path file = kernel();
  const fs::path elsewhere = folder_ / "elsewhere";
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  // Nor where files of any compiler are looked through.
  KernelKey of_any = key_of("unit");
  of_any.compiler = "";
  EXPECT_EQ(KernelCache(places()).get(of_any, no_compiler).status().message(), "no compiler");
  EXPECT_EQ(asked(places()), "made ");  // and the link's target is written anew
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(KernelCache(places()).get(of_any, no_compiler).status().message(), "no compiler");
  const std::string line = "made arlab: compiled kernels are not kept in " +
                           (folder_ / "kernels").string() + ": not a regular file\n";
  EXPECT_EQ(asked(places()), line);
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(asked(places()), line);
  fs::remove(file);
  fs::copy_file(elsewhere, file);
  ASSERT_EQ(chmod(file.c_str(), 0666), 0);
  EXPECT_EQ(asked(places()), "made ");
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(file.c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(asked(places()), "made ");
  ASSERT_EQ(mknod((folder_ / "null").c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
  fs::rename(folder_ / "null", file);
  EXPECT_EQ(asked(places()), line);
}

TEST_F(KernelCacheTest, AFolderThatOthersCanEnterIsNotUsed) {
  const std::string path = (folder_ / "kernels").string();
  const std::string before = "made arlab: the kernel cache " + path + " is not used: ";
  fs::create_directory(path);
  for (const mode_t mode : {0755U, 0770U, 01777U, 0701U, 0500U}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    char octal[8] = {};
    (void)std::snprintf(octal, sizeof(octal), "%o", mode);
    EXPECT_EQ(asked(places()), before + "it has mode " + octal + ", and must have 700\n");
  }
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  EXPECT_EQ(asked(places()), "made ");
  fs::create_directory_symlink(path, folder_ / "link");
  EXPECT_EQ(asked({.folder = folder_ / "link"}), "made arlab: the kernel cache " +
                                                     (folder_ / "link").string() +
                                                     " is not used: Not a directory\n");
  EXPECT_EQ(asked({.folder = folder_.write("file", "x")}), "made arlab: the kernel cache " +
                                                               (folder_ / "file").string() +
                                                               " is not used: Not a directory\n");
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(asked(places()), before + "it belongs to user 65534, not to 0\n");
}

TEST_F(KernelCacheTest, WithoutAFolderKernelsStayInMemoryAndItIsSaidOnce) {
  CachePlaces nowhere;
  nowhere.why_no_folder = "there is no place";
  testing::internal::CaptureStderr();
  KernelCache cache(nowhere);
  Maker maker;
  for (int i = 0; i < 2; ++i) {
    for (const char* unit : {"a", "b"}) ASSERT_TRUE(cache.get(key_of(unit), maker.make()).ok());
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "arlab: there is no place\n");
  EXPECT_EQ(maker.count(), 2);
  EXPECT_TRUE(cache.has(key_of("a")));
  EXPECT_EQ(cache.why_not_used(), "there is no place");
  EXPECT_EQ(cache.list().status().message(), "there is no place");
  EXPECT_EQ(cache.clear().status().message(), "there is no place");
}

TEST_F(KernelCacheTest, AReadOnlyHomeIsSaid) {
  if (geteuid() == 0) {
    // Root may write anywhere, but in /proc there are no folders to be made.
    EXPECT_EQ(asked({.folder = "/proc/arlab/kernels"}),
              "made arlab: the kernel cache /proc/arlab/kernels is not used: No such file or "
              "directory\n");
    return;
  }
  ASSERT_EQ(chmod((folder_ / "").c_str(), 0500), 0);
  EXPECT_EQ(asked(places()), "made arlab: the kernel cache " + (folder_ / "kernels").string() +
                                 " is not used: Permission denied\n");
  ASSERT_EQ(chmod((folder_ / "").c_str(), 0700), 0);
}

TEST_F(KernelCacheTest, AFullDiskIsSaidOnce) {
  const std::string said = in_processes({0}, [&](int) {
    testing::internal::CaptureStderr();
    KernelCache cache(places());
    const rlimit little = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    (void)setrlimit(RLIMIT_FSIZE, &little);  // beyond it, SIGXFSZ would end the process
    Maker maker;
    for (const char* unit : {"a", "b", "a"}) (void)cache.get(key_of(unit), maker.make());
    const rlimit none = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    (void)setrlimit(RLIMIT_FSIZE, &none);
    return std::to_string(maker.count()) + " " + testing::internal::GetCapturedStderr();
  })[0];
  EXPECT_EQ(said, "3 arlab: compiled kernels are not kept in " + (folder_ / "kernels").string() +
                      ": File too large\n");
  EXPECT_EQ(KernelCache(places()).list().value().size(), 0U);
}

TEST_F(KernelCacheTest, AFullFileSystemIsSaidAndNothingIsLeftBehind) {
  const std::string path = (folder_ / "small").string();
  fs::create_directory(path);
  if (mount("tmpfs", path.c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0) {
    GTEST_SKIP() << "no small file system can be mounted here";
  }
  Maker maker({.bytes = std::string(100'000, 'x')});
  testing::internal::CaptureStderr();
  {
    KernelCache cache({.folder = path});
    const auto code = cache.get(key_of("large"), maker.make());
    ASSERT_TRUE(code.ok());
    EXPECT_EQ(code.value().bytes.size(), 100'000U);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said,
            "arlab: compiled kernels are not kept in " + path + ": No space left on device\n");
  for (const auto& entry : fs::directory_iterator(path)) EXPECT_EQ(entry.path().filename(), "lock");
  EXPECT_EQ(asked({.folder = path}), "made ");  // a small one has room
  EXPECT_EQ(umount(path.c_str()), 0);
}

// ---- several at once

TEST_F(KernelCacheTest, ThreadsMakeAKernelOnce) {
  for (const bool kept : {true, false}) {
    KernelCache cache(kept ? places() : CachePlaces());
    std::atomic<int> count = 0;
    const auto slow = [&]() -> Result<CodeObject> {
      ++count;
      std::this_thread::sleep_for(50ms);
      return kCode;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back(
          [&] { EXPECT_EQ(cache.get(key_of("unit"), slow).value().bytes, kCode.bytes); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(count, 1) << kept;
  }
}

TEST_F(KernelCacheTest, DifferentKernelsAreMadeAtTheSameTime) {
  KernelCache cache(places());
  std::atomic<int> at_once = 0;
  const auto waits_for_the_other = [&]() -> Result<CodeObject> {
    ++at_once;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (at_once < 2 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(1ms);
    return kCode;
  };
  std::thread other([&] { (void)cache.get(key_of("b"), waits_for_the_other); });
  (void)cache.get(key_of("a"), waits_for_the_other);
  EXPECT_EQ(at_once, 2);
  other.join();
}

TEST_F(KernelCacheTest, ProcessesMakeAKernelOnce) {
  const auto said = in_processes({0, 1, 2, 3}, [&](int) -> std::string {
    KernelCache cache(places());
    bool made = false;
    const auto code = cache.get(key_of("unit"), [&]() -> Result<CodeObject> {
      made = true;
      std::this_thread::sleep_for(300ms);
      return kCode;
    });
    if (!code.ok() || code.value().bytes != kCode.bytes) return "wrong";
    return made ? "made" : "found";
  });
  EXPECT_EQ(std::count(said.begin(), said.end(), "made"), 1);
  EXPECT_EQ(std::count(said.begin(), said.end(), "found"), 3);
}

TEST_F(KernelCacheTest, AProcessThatIsKilledHoldsNobodyUp) {
  std::array<int, 2> started{};
  ASSERT_EQ(pipe(started.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    KernelCache cache(places());
    (void)cache.get(key_of("unit"), [&]() -> Result<CodeObject> {
      (void)!write(started[1], "x", 1);
      for (;;) pause();
    });
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(started[0], &byte, 1), 1);
  std::future<std::string> said = std::async(std::launch::async, [&] { return asked(places()); });
  EXPECT_EQ(said.wait_for(100ms), std::future_status::timeout);  // the other has the lock
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_EQ(said.get(), "made ");
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 10s);
  close(started[0]);
  close(started[1]);
}

TEST_F(KernelCacheTest, WhatAKilledProcessHasLeftIsRemoved) {
  ASSERT_EQ(asked(places()), "made ");
  const fs::path left = folder_ / "kernels/.arlab-99999999-0.part";
  std::ofstream(left) << "half a kernel";
  EXPECT_EQ(asked(places()), "found ");
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(KernelCacheTest, APipeInPlaceOfTheLockHoldsNobodyUp) {
  ASSERT_EQ(asked(places(), key_of("another")), "made ");
  fs::remove(folder_ / "kernels/lock");
  ASSERT_EQ(mkfifo((folder_ / "kernels/lock").c_str(), 0600), 0);
  EXPECT_EQ(asked(places()), "made ");
  EXPECT_EQ(asked(places()), "found ");
}

// ---- how much is kept

TEST_F(KernelCacheTest, WhatWasNotUsedForLongestGoesFirst) {
  Maker maker({.bytes = std::string(10'000, 'x')});
  CachePlaces few = places();
  few.most_bytes = 35'000;  // three of them
  KernelCache cache(few);
  const auto age = [&](const char* unit, int seconds) {
    const std::vector<CachedKernel> kernels = cache.list().value();
    for (const CachedKernel& each : kernels) {
      if (each.kernel != unit) continue;
      const auto now = fs::file_time_type::clock::now();
      fs::last_write_time(each.file, now - std::chrono::seconds(seconds));
    }
  };
  const auto get = [&](const char* unit) {
    KernelKey key = key_of(unit);
    key.kernel = unit;
    return cache.get(key, maker.make()).ok();
  };
  for (const char* unit : {"a", "b", "c"}) ASSERT_TRUE(get(unit));
  age("a", 300);
  age("b", 200);
  age("c", 100);
  ASSERT_TRUE(get("a"));  // now it was used last
  EXPECT_EQ(maker.count(), 3);
  ASSERT_TRUE(get("d"));
  EXPECT_TRUE(cache.has(key_of("a")));
  EXPECT_FALSE(cache.has(key_of("b")));
  EXPECT_TRUE(cache.has(key_of("c")));
  EXPECT_TRUE(cache.has(key_of("d")));
  const auto list = cache.list().value();
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list.back().kernel, "c");
  EXPECT_GE(list.back().seconds_unused, 100);
  EXPECT_EQ(list.front().architecture, "sm_90");
  EXPECT_EQ(list.front().compiler, "NVRTC 13.0, 5 bytes");
  EXPECT_GT(list.front().bytes, 10'000U);
  EXPECT_EQ(cache.clear().value(), 3U);
  EXPECT_EQ(cache.list().value().size(), 0U);
}

TEST_F(KernelCacheTest, AListNamesWhatIsDamaged) {
  ASSERT_EQ(asked(places()), "made ");
  std::ofstream(folder_ / "kernels/x.kernel") << "no kernel";
  const auto list = KernelCache(places()).list().value();
  ASSERT_EQ(list.size(), 2U);
  const bool first = list[0].file.filename() == "x.kernel";
  EXPECT_EQ(list[first ? 0 : 1].kernel, "a damaged file");
  EXPECT_EQ(list[first ? 1 : 0].kernel, "two_shot int4-g32 bf16");
}

// ---- folders that are only read

/// A folder to which nobody else may write, nor to any above it: beside the tests, unlike /tmp.
class ReadOnlyFolder : public KernelCacheTest {
 protected:
  void SetUp() override {
    std::string name = (fs::current_path() / "kernels-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    given_ = name;
    const Status trusted = require_trusted(given_);
    if (!trusted.ok()) GTEST_SKIP() << "no folder is safe here: " << trusted.message();
    ASSERT_EQ(asked({.folder = given_}), "made ");
  }
  void TearDown() override { fs::remove_all(given_); }

  /// With `given_` read only, and a cache that is empty.
  std::string asked_with_given(const KernelKey& key = key_of("unit")) const {
    const TemporaryDirectory empty;
    return asked({.folder = empty / "kernels", .read_only = {given_}}, key);
  }
  std::string refused(const std::string& why) const {
    return "made arlab: the kernels in " + given_.string() + " are not used: " + why + "\n";
  }
  fs::path given_;
};

TEST_F(ReadOnlyFolder, IsBelievedIfNobodyElseMayWriteThere) {
  EXPECT_EQ(asked_with_given(), "found ");
  EXPECT_EQ(asked_with_given(key_of("another")), "made ");
  ASSERT_EQ(chmod(given_.c_str(), 0755), 0);
  EXPECT_EQ(asked_with_given(), "found ");
  EXPECT_EQ(KernelCache({.folder = {}, .read_only = {given_}}).has(key_of("unit")), true);
  // A link leads to it.
  fs::create_directory_symlink(given_, folder_ / "link");
  EXPECT_EQ(asked({.folder = places().folder, .read_only = {folder_ / "link"}}), "found ");
}

TEST_F(ReadOnlyFolder, IsNeverWrittenTo) {
  const auto files = [&] {
    return std::distance(fs::directory_iterator(given_), fs::directory_iterator());
  };
  const auto before = files();
  EXPECT_EQ(asked_with_given(key_of("another")), "made ");
  EXPECT_EQ(files(), before);
}

TEST_F(ReadOnlyFolder, IsRefusedWhereOthersMayWrite) {
  for (const auto& [mode, text] :
       {std::pair(0777U, "777"), std::pair(0770U, "770"), std::pair(01777U, "1777")}) {
    ASSERT_EQ(chmod(given_.c_str(), mode), 0);
    EXPECT_EQ(asked_with_given(),
              refused("others may write to " + given_.string() + " (mode " + text + ")"));
  }
  ASSERT_EQ(chmod(given_.c_str(), 0700), 0);
  // Above it counts as well: here below /tmp, whose sticky bit does not help.
  fs::copy(given_, folder_ / "copy");
  KernelCache cache(places());
  const std::string why = cache.add_read_only(folder_ / "copy").message();
  EXPECT_EQ(why, "the kernels in " + (folder_ / "copy").string() +
                     " are not used: others may write to " + fs::temp_directory_path().string() +
                     " (mode 1777)");
  EXPECT_TRUE(cache.add_read_only(given_).ok());
  EXPECT_EQ(cache.add_read_only(given_ / "none").message(),
            "the kernels in " + (given_ / "none").string() +
                " are not used: " + (given_ / "none").string() + ": No such file or directory");
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(given_.c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(asked_with_given(),
            refused(given_.string() + " belongs to user 65534: it must be yours or root's"));
}

TEST_F(ReadOnlyFolder, FilesInItThatOthersMayWriteAreNotBelieved) {
  for (const auto& entry : fs::directory_iterator(given_))
    ASSERT_EQ(chmod(entry.path().c_str(), 0664), 0);
  EXPECT_EQ(asked_with_given(), "made ");
}

// ---- the environment

std::string environment_says(const std::vector<std::pair<const char*, const char*>>& variables) {
  return in_processes({0}, [&](int) -> std::string {
    for (const char* name : {"ARLAB_KERNEL_CACHE", "ARLAB_KERNEL_CACHE_BYTES",
                             "ARLAB_KERNEL_FOLDER", "XDG_CACHE_HOME", "HOME"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    const auto places = cache_places();
    if (!places.ok()) {
      return places.status().message() + (KernelCache::of_process().ok() ? " but" : "");
    }
    std::string said =
        places.value().folder.string() + " " + std::to_string(places.value().most_bytes);
    for (const fs::path& each : places.value().read_only) said += " " + each.string();
    return said + places.value().why_no_folder;
  })[0];
}

TEST(KernelCacheOfTheEnvironment, IsWhereItSays) {
  EXPECT_EQ(environment_says({{"HOME", "/home/a"}}), "/home/a/.cache/arlab/kernels 1073741824");
  EXPECT_EQ(environment_says({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "/c"}}),
            "/c/arlab/kernels 1073741824");
  EXPECT_EQ(
      environment_says(
          {{"HOME", "/home/a"}, {"ARLAB_KERNEL_CACHE", "/k"}, {"ARLAB_KERNEL_CACHE_BYTES", "5"}}),
      "/k 5");
  EXPECT_EQ(
      environment_says(
          {{"HOME", "/h"}, {"ARLAB_KERNEL_CACHE", ""}, {"ARLAB_KERNEL_FOLDER", "/a:/b::/c:"}}),
      "/h/.cache/arlab/kernels 1073741824 /a /b /c");
  EXPECT_EQ(environment_says({}),
            " 1073741824compiled kernels are not kept: set ARLAB_KERNEL_CACHE, XDG_CACHE_HOME or "
            "HOME to a folder");
  for (const char* bytes : {"1GiB", "-1", " 5", "99999999999999999999"}) {
    EXPECT_EQ(
        environment_says({{"HOME", "/h"}, {"ARLAB_KERNEL_CACHE_BYTES", bytes}}),
        "ARLAB_KERNEL_CACHE_BYTES is '" + std::string(bytes) + "': allowed is a number of bytes");
  }
}

}  // namespace
}  // namespace arlab::kernels
