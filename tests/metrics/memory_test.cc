// How much memory there is: of the machine, of cgroups of both versions, of the address space.

#include "reference/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "reference/error.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// A tree of files that look like the system's.
class Memory : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "arlab-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    write("proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:          1024 kB\nMemAvailable:    8388608 kB\n"
          "SwapFree:        1048576 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::uint64_t available_mib() const { return available_memory(root_) / kMiB; }

  std::filesystem::path root_;
};

TEST_F(Memory, OfTheMachineWhatIsFreeOrCanBe) { EXPECT_EQ(available_mib(), 8192U + 1024); }

TEST_F(Memory, OfACgroupWhatItsLimitLeaves) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/step/memory.current", "104857600\n");
  EXPECT_EQ(available_mib(), 8192U + 1024);
  write("sys/fs/cgroup/job/memory.max", "1073741824\n");
  write("sys/fs/cgroup/job/memory.current", "524288000\n");
  EXPECT_EQ(available_mib(), 524U);
  write("sys/fs/cgroup/job/memory.stat", "anon 1\nfile 2\ninactive_file 104857600\n");
  EXPECT_EQ(available_mib(), 624U);
  write("sys/fs/cgroup/job/step/memory.max", "104857600\n");
  EXPECT_EQ(available_mib(), 0U);
}

// A container sees the path that its cgroup has on the host, and only its own cgroup's files.
TEST_F(Memory, OfAContainersCgroup) {
  write("proc/self/cgroup", "0::/system.slice/of-the-host.scope\n");
  write("sys/fs/cgroup/memory.max", "209715200\n");
  write("sys/fs/cgroup/memory.current", "104857600\n");
  EXPECT_EQ(available_mib(), 100U);
}

TEST_F(Memory, OfACgroupOfVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 52428800\n");
  EXPECT_EQ(available_mib(), 50U);
}

TEST_F(Memory, OfTheAddressSpaceWhatItsLimitLeaves) {
  write("proc/self/statm", "25600 1 1 1 0 1 0\n");  // pages
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit low = {std::uint64_t{4096} * kMiB, before.rlim_max};
  if (setrlimit(RLIMIT_AS, &low) != 0) GTEST_SKIP() << "a lower limit is set already";
  const std::uint64_t left = available_mib();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(left, 4096 - 25600 * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE)) / kMiB);
}

TEST(RequireMemory, SaysWhatIsNeededAndWhatWouldFit) {
  constexpr std::uint64_t kALot = std::uint64_t{1} << 60;
  EXPECT_NO_THROW(require_memory(1, "one byte"));
  expect_contains(message_of([] { require_memory(kALot, "a lot"); }),
                  "not enough memory: a lot needs about 1073741824.0 GiB, ");
  EXPECT_NO_THROW(require_memory_for(1, "--elements", 1000, 2, "little"));
  expect_contains(message_of([] { require_memory_for(kALot, "--elements", 1000, 2, "a lot"); }),
                  "; --elements up to ");
  expect_contains(message_of([] { require_memory_for(1, "--elements", 0x1p62, 2, "a lot"); }),
                  "; no --elements fits");
}

}  // namespace
}  // namespace arlab
