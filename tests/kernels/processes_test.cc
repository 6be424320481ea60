// One process per rank: collectives among them on emulated GPUs; ranks that die or never come, and
// memory that is not what a rank says.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <fstream>
#include <thread>

#include "kernels/platform/host/emulator.h"
#include "kernels/runtime/bootstrap.h"
#include "kernels/runtime/communicator.h"
#include "reference/codecs/formats/codebook.h"
#include "tests/kernels/compared_call.h"
#include "tests/kernels/differing_calls.h"
#include "tests/kernels/in_processes.h"

namespace arlab::kernels {
namespace {

using namespace std::chrono_literals;

// ---------------------------------------------------------------- communicators

CommunicatorOptions options_of(std::uint64_t timeout_ms) {
  return {.blocks = 2, .slot_bytes = 16384, .timeout_nanoseconds = timeout_ms * 1'000'000};
}

TEST(Processes, CollectivesHaveTheReferencesBits) {
  for (const int ranks : {2, 3, 4}) {
    const Meeting meeting;
    const auto said = in_processes(all_of(ranks), [&](int rank) -> std::string {
      auto bootstrap =
          ranks == 3 ? meeting.join_with_function(rank, ranks) : meeting.join(rank, ranks);
      if (!bootstrap.ok()) return bootstrap.status().message();
      // All ranks on one device, or each on its own.
      auto communicator =
          Communicator::create(ranks == 2 ? 0 : rank, *bootstrap.value(), options_of(kPatientMs));
      if (!communicator.ok()) return communicator.status().message();
      bootstrap.value().reset();
      int seed = 0;
      for (const CollectiveRequest& request :
           {request_of("two_shot", "qr-q4", 1000), request_of("two_shot", "qr-q4", 9000),
            request_of("one_shot", "fp16", 3000), request_of("ring", "qr-q8", 5001),
            request_of("all_to_all", "int5-g128", 3072), request_of("two_shot", "fp16", 1)}) {
        if (seed % ranks == rank) std::this_thread::sleep_for(20ms);  // late, in turn
        const std::string wrong = compared_call(communicator.value(), request, ++seed);
        if (!wrong.empty()) return wrong;
      }
      // Destroyed in any order.
      std::this_thread::sleep_for(20ms * ((rank + 1) % ranks));
      return "right";
    });
    EXPECT_EQ(said, std::vector<std::string>(static_cast<std::size_t>(ranks), "right"));
  }
}

TEST(Processes, ARankWithOtherInputsIsNoticed) {
  // The comparison above can fail.
  const Meeting meeting;
  const auto said = in_processes(all_of(2), [&](int rank) -> std::string {
    auto bootstrap = meeting.join(rank, 2);
    if (!bootstrap.ok()) return bootstrap.status().message();
    auto communicator = Communicator::create(rank, *bootstrap.value(), options_of(kPatientMs));
    if (!communicator.ok()) return communicator.status().message();
    return compared_call(communicator.value(), request_of("one_shot", "fp16", 100), rank);
  });
  EXPECT_EQ(said, std::vector<std::string>(2, "one_shot fp16 has other bits than the reference"));
}

TEST(Processes, ARankThatDiesOrNeverCallsIsNamedOnAllOthers) {
  // Real time: a call that is right must be over by then, on a slow build and a busy machine.
  constexpr std::uint64_t kTimeoutMs = ARLAB_SHORT_TESTS ? 15'000 : 3'000;
  constexpr auto kTimeout = std::chrono::milliseconds(kTimeoutMs);
  for (const bool dies : {true, false}) {
    const Meeting meeting;
    const auto begin = std::chrono::steady_clock::now();
    const auto said = in_processes(all_of(3), [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 3);
      if (!bootstrap.ok()) return bootstrap.status().message();
      auto communicator = Communicator::create(rank, *bootstrap.value(), options_of(kTimeoutMs));
      if (!communicator.ok()) return communicator.status().message();
      const std::string wrong =
          compared_call(communicator.value(), request_of("two_shot", "qr-q4", 3000), 1);
      if (!wrong.empty()) return wrong;
      if (!bootstrap.value()->barrier().ok()) return "no barrier";
      if (rank == 1) {
        if (dies) _exit(0);
        std::this_thread::sleep_for(2 * kTimeout);
        return communicator.value().check().message();
      }
      const std::string first =
          compared_call(communicator.value(), request_of("two_shot", "qr-q4", 3000), 2);
      // From then on nothing waits.
      const auto now = std::chrono::steady_clock::now();
      const std::string second =
          compared_call(communicator.value(), request_of("ring", "fp16", 3000), 3);
      if (first != second) return first + " then " + second;
      return std::chrono::steady_clock::now() - now > 1s ? "waits again" : first;
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == 1 && dies) continue;
      EXPECT_EQ(said[static_cast<std::size_t>(rank)],
                "rank 1 did not arrive within " + std::to_string(kTimeoutMs) +
                    " ms (seen by rank " + std::to_string(rank) + ")");
    }
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kTimeout);
  }
}

TEST(Processes, RanksInDifferentCallsAreNamedOnBoth) {
  const auto pairs = differing_pairs();
  const Meeting meeting;
  const auto said = in_processes(all_of(2), [&](int rank) -> std::string {
    auto bootstrap = meeting.join(rank, 2);
    if (!bootstrap.ok()) return bootstrap.status().message();
    std::string wrong;
    for (const auto& [call_of_0, call_of_1] : pairs) {
      auto communicator = Communicator::create(rank, *bootstrap.value(), options_of(kPatientMs));
      if (!communicator.ok()) return communicator.status().message();
      const std::string error =
          compared_call(communicator.value(), rank == 0 ? call_of_0 : call_of_1, 1);
      if (error != differing_calls_error(0, call_of_0, 1, call_of_1)) wrong += error + "\n";
      // Neither has gone before the other knows.
      if (!bootstrap.value()->barrier().ok()) return "no barrier";
    }
    return wrong;
  });
  EXPECT_EQ(said, std::vector<std::string>(2));
}

TEST(Processes, RanksWhoseCodecsOfANameDifferAreNamedOnBoth) {
  const Meeting meeting;
  const auto said = in_processes(all_of(2), [&](int rank) -> std::string {
    auto bootstrap = meeting.join(rank, 2);
    if (!bootstrap.ok()) return bootstrap.status().message();
    const CollectiveRequest request = request_of("two_shot", "thirds-g32", 3000);
    register_codebook("thirds", 32, std::array{-1.0F, -0.3F, 0.3F, 1.0F});
    auto communicator = Communicator::create(rank, *bootstrap.value(), options_of(kPatientMs));
    if (!communicator.ok()) return communicator.status().message();
    const std::string alike = compared_call(communicator.value(), request, 1);
    if (!alike.empty()) return alike;
    if (rank == 1) register_codebook("thirds", 32, std::array{-1.0F, -0.4F, 0.4F, 1.0F});
    const std::string error = compared_call(communicator.value(), request, 2);
    return bootstrap.value()->barrier().ok() ? error : "no barrier";
  });
  const CollectiveRequest call = request_of("two_shot", "thirds-g32", 3000);
  EXPECT_EQ(said, std::vector<std::string>(2, differing_calls_error(0, call, 1, call)));
}

TEST(Processes, WhatOneRankCannotDoIsTheErrorOfAll) {
  const auto errors = [](const std::function<CommunicatorOptions(int)>& options,
                         const std::function<int(int)>& device) {
    const Meeting meeting;
    return in_processes(all_of(2), [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 2);
      if (!bootstrap.ok()) return bootstrap.status().message();
      return Communicator::create(device(rank), *bootstrap.value(), options(rank))
          .status()
          .message();
    });
  };
  const auto usual = [](int) { return options_of(1000); };
  const auto own = [](int rank) { return rank; };
  EXPECT_EQ(errors(usual, [](int rank) { return rank == 1 ? 99 : 0; }),
            std::vector<std::string>(2, "rank 1: its device cannot be used: no such device"));
  EXPECT_EQ(errors([](int rank) { return options_of(1000 + static_cast<unsigned>(rank)); }, own),
            std::vector<std::string>(2, "rank 1 has other options than rank 0"));
  EXPECT_EQ(errors([](int) { return CommunicatorOptions{.blocks = -1}; }, own),
            std::vector<std::string>(2, "rank 0: -1 blocks: allowed are 0 to 1024"));
  EXPECT_EQ(errors([](int rank) { return CommunicatorOptions{.multiprocessors = rank}; }, own),
            std::vector<std::string>(2, "rank 1 has other options than rank 0"));
  EXPECT_EQ(errors([](int) { return CommunicatorOptions{.multiprocessors = 17}; }, own),
            std::vector<std::string>(2, "17 multiprocessors: a device has 16"));
}

/// Bytes of some rank's, changed by who gathers them.
Status status_with(const std::function<void(std::string& other)>& change) {
  const auto bootstrap = function_bootstrap(0, 2, [&](std::string_view mine) {
    std::string other(mine);
    change(other);
    return Result<std::vector<std::string>>(std::vector<std::string>{std::string(mine), other});
  });
  return Communicator::create(0, *bootstrap.value(), options_of(1000)).status();
}

TEST(Processes, OneHostAndSeveralProcessesAreNeeded) {
  // A second rank that says the same as the first, or the same from another machine: text of host
  // and boot follow the error's, 248 bytes each.
  const auto error_with = [](bool elsewhere) {
    return status_with([=](std::string& other) {
             for (const std::size_t at : {248U, 496U}) {
               if (elsewhere) other.replace(at, 5, "other");
             }
           })
        .message();
  };
  EXPECT_EQ(error_with(false),
            "ranks 0 and 1 are in one process: make such a team with in_process");
  EXPECT_NE(error_with(true).find("a communicator needs all ranks on one host"), std::string::npos)
      << error_with(true);
}

TEST(Processes, WhatAnotherRankSaysIsOneLineOfText) {
  EXPECT_EQ(status_with([](std::string& other) { other.replace(0, 5, "no\xff\n!"); }).message(),
            "rank 1: 'no\\xff\\x0a!'");
  EXPECT_EQ(status_with([](std::string& other) { other.replace(0, 248, 248, 'x'); }).message(),
            "rank 1: " + std::string(248, 'x'));
  for (const std::size_t size : {0U, 1U, 100'000U}) {
    EXPECT_EQ(status_with([&](std::string& other) { other.resize(size); }).message(),
              "rank 1 runs another version of arlab");
  }
}

/// Another rank's buffer is what this says.
class FalseFiles final : public Bootstrap {
 public:
  FalseFiles(std::unique_ptr<Bootstrap> inner, int file)
      : Bootstrap(inner->rank(), inner->ranks(), inner->timeout_ms()),
        inner_(std::move(inner)),
        file_(file) {}

 protected:
  Result<std::vector<std::string>> do_all_gather(std::string_view mine) override {
    return inner_->all_gather(mine);
  }
  Result<std::vector<FileDescriptor>> do_all_gather_files(int) override {
    return inner_->all_gather_files(file_);
  }

 private:
  std::unique_ptr<Bootstrap> inner_;
  int file_;
};

TEST(Processes, ABufferThatIsSomethingElseIsNotTouched) {
  const Meeting folder;
  const std::string diary = folder.folder() + "/diary";
  std::ofstream(diary) << std::string(1 << 20, 'S');
  for (const bool in_memory : {false, true}) {
    const Meeting meeting;
    const auto said = in_processes({0, 1}, [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 2);
      if (!bootstrap.ok()) return bootstrap.status().message();
      if (rank == 0) {
        return Communicator::create(0, *bootstrap.value(), options_of(1000)).status().message();
      }
      const FileDescriptor file(in_memory ? memfd_create("one byte", MFD_CLOEXEC)
                                          : open(diary.c_str(), O_RDWR | O_CLOEXEC));
      if (in_memory && ftruncate(file.number(), 1) != 0) return "cannot make a file";
      FalseFiles false_files(std::move(bootstrap.value()), file.number());
      return Communicator::create(1, false_files, options_of(1000)).status().message();
    });
    for (const std::string& line : said) {
      EXPECT_EQ(line.find("rank 0: the buffer of rank 1 cannot be opened: it is not "), 0U) << line;
    }
  }
  std::ifstream in(diary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), std::string(1 << 20, 'S'));
}

/// How much memory for other processes is mapped here.
std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:arlab-emulator") != std::string::npos;
  }
  return count;
}

TEST(Processes, MemoryThatOthersMayWriteToStays) {
  for (const bool others_stay : {false, true}) {
    const Meeting meeting;
    const auto said = in_processes({0, 1}, [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 2);
      if (!bootstrap.ok()) return bootstrap.status().message();
      std::optional<Communicator> communicator;
      {
        auto made = Communicator::create(rank, *bootstrap.value(),
                                         options_of(others_stay ? 300 : kPatientMs));
        if (!made.ok()) return made.status().message();
        communicator.emplace(std::move(made.value()));
      }
      if (rank == 0 || !others_stay) communicator.reset();
      const std::size_t left = shared_mappings();
      if (!bootstrap.value()->barrier().ok()) return "no barrier";
      return rank == 0 ? (left == 0 ? "freed" : "stays") : "";
    });
    EXPECT_EQ(said[0], others_stay ? "stays" : "freed");
  }
}

}  // namespace
}  // namespace arlab::kernels
