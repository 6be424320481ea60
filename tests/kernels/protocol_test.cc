// The protocol between ranks: what QuickReduce's own does not survive, and ranks that are late or
// dead.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/platform/host/emulator.h"
#include "kernels/platform/platform.h"
#include "kernels/runtime/communicator.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/synthetic.h"
#include "tests/kernels/differing_calls.h"
#include "tests/kernels/empty_words.h"

namespace arlab::kernels {
namespace {

using Bytes = std::vector<std::byte>;

/// A team, and calls of it whose results are compared with the reference.
class Team {
 public:
  explicit Team(int ranks, const CommunicatorOptions& options = {})
      : Team(a_device_each(ranks), options) {}
  explicit Team(const std::vector<int>& devices, const CommunicatorOptions& options = {}) {
    auto made = Communicator::in_process(devices, options);
    EXPECT_TRUE(made.ok());
    communicators_ = std::move(made.value());
    streams_.resize(2, std::vector<hipStream_t>(communicators_.size()));
    for (auto& streams : streams_) {
      for (std::size_t rank = 0; rank < streams.size(); ++rank) {
        (void)hipSetDevice(communicators_[rank].device());
        (void)hipStreamCreateWithFlags(&streams[rank], hipStreamNonBlocking);
      }
    }
  }
  ~Team() {
    for (auto& streams : streams_) {
      for (const hipStream_t stream : streams) (void)hipStreamDestroy(stream);
    }
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  std::size_t ranks() const { return communicators_.size(); }
  Communicator& rank(std::size_t rank) { return communicators_[rank]; }
  hipStream_t stream(std::size_t rank, std::size_t which = 0) { return streams_[which][rank]; }

  /// A call and its tensors. The emulated GPUs share the host's memory.
  struct Pending {
    CollectiveRequest request;
    Tensor inputs;
    Bytes outputs;
  };

  Pending prepare(const CollectiveRequest& request) {
    Pending pending{request,
                    make_synthetic(fmt::format("gaussian:seed={}", ++seed_), request.dtype, ranks(),
                                   request.elements),
                    {}};
    pending.outputs.resize(pending.inputs.bytes().size());
    return pending;
  }

  Status enqueue(Pending& pending, std::size_t rank, std::size_t stream_index = 0) {
    const std::size_t bytes = pending.outputs.size() / ranks();
    return communicators_[rank].run(pending.request, pending.inputs.rank_bytes(rank).data(),
                                    pending.outputs.data() + rank * bytes,
                                    stream(rank, stream_index));
  }
  void enqueue_all(Pending& pending, std::size_t stream_index = 0) {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const Status status = enqueue(pending, rank, stream_index);
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }

  void synchronize() {
    for (const auto& streams : streams_) {
      for (const hipStream_t stream : streams) (void)hipStreamSynchronize(stream);
    }
  }

  /// `calls`: with random numbers before this one.
  void expect_result(const Pending& pending, std::uint32_t calls = 0) {
    const CodecPtr codec = find_codec(pending.request.codec);
    const Schedule schedule =
        make_schedule(pending.request.algorithm, {.world_size = static_cast<Rank>(ranks()),
                                                  .elements = pending.request.elements,
                                                  .alignment = codec->info().alignment});
    Bytes expected(pending.outputs.size());
    execute(schedule, *codec, pending.request.dtype, pending.inputs.bytes(), expected,
            {.threads = 1, .seed = pending.request.seed, .call = calls});
    EXPECT_TRUE(expected == pending.outputs)
        << pending.request.algorithm << " " << pending.request.codec << " "
        << pending.request.elements;
  }

  /// Calls that follow each other without waiting in between.
  void expect_results(const std::vector<CollectiveRequest>& requests) {
    std::vector<Pending> calls;
    for (const CollectiveRequest& request : requests) calls.push_back(prepare(request));
    for (Pending& call : calls) enqueue_all(call);
    synchronize();
    for (const Pending& call : calls) expect_result(call);
  }

 private:
  static std::vector<int> a_device_each(int ranks) {
    std::vector<int> devices(static_cast<std::size_t>(ranks));
    std::iota(devices.begin(), devices.end(), 0);
    return devices;
  }

  std::vector<Communicator> communicators_;
  std::vector<std::vector<hipStream_t>> streams_;
  std::uint64_t seed_ = 0;
};

/// Keeps a stream busy for so long.
__global__ void delay_kernel(std::uint64_t nanoseconds, const std::uint32_t* never) {
  const std::uint64_t start = clock_nanoseconds();
  while (clock_nanoseconds() - start < nanoseconds) (void)load_relaxed(never);
}

void delay(hipStream_t stream, std::uint64_t nanoseconds) {
  static const std::uint32_t never = 0;
  hipLaunchKernelGGL(delay_kernel, dim3(1), dim3(1), 0, stream, nanoseconds, &never);
}

CollectiveRequest request_of(const char* algorithm, const char* codec, std::size_t elements) {
  return {.algorithm = algorithm, .codec = codec, .dtype = DType::fp16, .elements = elements};
}

/// two_shot with sentinel slots, of which there are 16 for each block: it uses each twice and more.
CollectiveRequest large_request(int ranks, int blocks, std::size_t more_elements = 0) {
  constexpr std::size_t kTileElements = 2048;
  const std::size_t tiles_of_each = (ranks == 2 ? 80 : 40) * static_cast<std::size_t>(blocks);
  return request_of(
      "two_shot", "qr-q4",
      static_cast<std::size_t>(ranks) * tiles_of_each * kTileElements + more_elements);
}

/// one_shot with sentinel slots, for two ranks of two blocks, which have 64: likewise.
CollectiveRequest pair_request(const char* codec, std::size_t more_elements = 0) {
  return request_of("one_shot", codec, std::size_t{280} * 2048 + more_elements);
}

/// All blocks of a call with sentinel slots have to run at once.
int blocks_for_large() { return emulator::settings().resident_blocks == 1 ? 1 : 2; }
/// And those of a kernel that measures what it encodes; the other is measured by kernels of its own.
const char* measured_codec(const char* codec) {
  return blocks_for_large() == 1 ? "int3-g24" : codec;
}

/// Requests of a run of calls, changed between one call and the next.
std::vector<CollectiveRequest> changing_requests() {
  return {request_of("two_shot", "qr-q4", 1000),
          request_of("two_shot", "qr-q4", 20000),
          request_of("two_shot", "qr-q4", 3000),
          request_of("two_shot", "qr-q8", 3000),
          request_of("two_shot", "fp16", 3000),
          request_of("one_shot", "fp16", 3000),
          request_of("one_shot", "qr-q4", 9000),
          request_of("one_shot", "qr-q4", 1),
          request_of("ring", "qr-q8", 9001),
          request_of("ring", "int5-g128", 100),
          request_of("hierarchical", "fp16", 5),
          request_of("two_shot", "int2-g32-sr", 12000),
          request_of("two_shot", measured_codec("nvfp4"), 9000),
          request_of("ring", measured_codec("int8-gtensor"), 5000),
          request_of("one_shot", "int3-g24", 9000),
          request_of("all_to_all", "qr-q4", 9000),
          request_of("two_shot", "qr-q4", 40000)};
}

void expect_error(const Status& status, const char* part) {
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

class AnySchedule : public testing::TestWithParam<emulator::Settings> {
 protected:
  void SetUp() override { emulator::configure(GetParam()); }
  void TearDown() override { emulator::configure({}); }
};
INSTANTIATE_TEST_SUITE_P(Protocol, AnySchedule,
                         testing::Values(emulator::Settings{}, emulator::Settings{.seed = 5},
                                         emulator::Settings{.wave_size = 32, .seed = 6},
                                         emulator::Settings{.seed = 7, .resident_blocks = 1}),
                         [](const auto& info) {
                           return fmt::format("wave{}_seed{}_resident{}", info.param.wave_size,
                                              info.param.seed, info.param.resident_blocks);
                         });

TEST_P(AnySchedule, CallsThatFollowEachOtherMayDifferInEverything) {
  // Slots for two tiles, so that the larger tensors take several rounds.
  Team team(3, {.blocks = 3, .slot_bytes = 2 * 4096, .any_slot_bytes = true});
  team.expect_results(changing_requests());
}

/// Calls in turns on two streams, of kernels that may run anywhere or on so many multiprocessors, which have a stream of
/// their own.
void expect_results_on_two_streams(int multiprocessors) {
  Team team(2, {.blocks = 2, .multiprocessors = multiprocessors});
  std::vector<Team::Pending> calls;
  for (int i = 0; i < 6; ++i) {
    calls.push_back(team.prepare(request_of(i % 3 == 0 ? "one_shot" : "two_shot", "qr-q4", 3000)));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) team.enqueue_all(calls[i], i % 2);
  team.synchronize();
  for (const Team::Pending& call : calls) team.expect_result(call);
}

TEST_P(AnySchedule, StreamsMayChangeFromCallToCall) {
  for (const int multiprocessors : {0, 1}) expect_results_on_two_streams(multiprocessors);
}

TEST_P(AnySchedule, EpochsWrapAround) {
  Team team(3, {.blocks = 2, .first_epoch = 0xFFFFFFFBu});
  for (int i = 0; i < 6; ++i) {
    Team::Pending call = team.prepare(request_of("two_shot", "qr-q4", 5000));
    team.enqueue_all(call);
    team.synchronize();
    team.expect_result(call);
  }
}

TEST_P(AnySchedule, RanksMayBeLate) {
  Team team(3, {.timeout_nanoseconds = 1'000'000'000});
  for (std::size_t late = 0; late < 3; ++late) {
    Team::Pending first = team.prepare(request_of("two_shot", "qr-q4", 5000));
    Team::Pending second = team.prepare(request_of("one_shot", "qr-q8", 2500));
    delay(team.stream(late), 500'000'000);
    team.enqueue_all(first);
    team.enqueue_all(second);
    team.synchronize();
    team.expect_result(first);
    team.expect_result(second);
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(team.rank(rank).check().ok());
  }
}

TEST_P(AnySchedule, LargeCallsAmongOthers) {
  const int blocks = blocks_for_large();
  for (const int ranks : {2, 3, 4}) {
    // Numbers of items and epochs wrap around.
    Team team(ranks, {.blocks = blocks, .first_epoch = 0xFFFFFFFBu});
    team.expect_results({large_request(ranks, blocks), request_of("two_shot", "qr-q4", 20000),
                         large_request(ranks, blocks, 3001), request_of("two_shot", "qr-q8", 1),
                         large_request(ranks, blocks), request_of("one_shot", "fp16", 3000)});
  }
}

TEST_P(AnySchedule, RanksOfALargeCallMayDifferInAlignment) {
  const int blocks = blocks_for_large();
  for (const CollectiveRequest& request : {large_request(2, blocks), pair_request("qr-q4", 3)}) {
    Team team(2, {.blocks = blocks});
    Team::Pending call = team.prepare(request);
    EXPECT_TRUE(team.enqueue(call, 0).ok());
    // Rank 1 works in place, two bytes behind where 16 bytes may be accessed at once.
    const std::span<const std::byte> input = call.inputs.rank_bytes(1);
    Bytes memory(input.size() + 16);
    std::byte* tensor = memory.data() + 2;
    std::memcpy(tensor, input.data(), input.size());
    EXPECT_TRUE(team.rank(1).run(call.request, tensor, tensor, team.stream(1)).ok());
    team.synchronize();
    std::memcpy(call.outputs.data() + input.size(), tensor, input.size());
    team.expect_result(call);
  }
}

TEST_P(AnySchedule, PairCallsAmongOthers) {
  const int blocks = blocks_for_large();
  Team team(2, {.blocks = blocks, .first_epoch = 0xFFFFFF00u});  // numbers of items wrap around
  team.expect_results({pair_request("qr-q4"), request_of("two_shot", "qr-q4", 20000),
                       pair_request("fp16", 77), request_of("one_shot", "qr-q8", 1),
                       request_of("one_shot", "qr-q4", 9000), pair_request("int2-g32-sr", 2048),
                       request_of("one_shot", "int3-g24", 9000), pair_request("qr-q4", 5)});
}

/// Then the same with other inputs.
void expect_result_of_empty_words(int ranks, const CollectiveRequest& request) {
  Team team(ranks, {.blocks = blocks_for_large()});
  Team::Pending call = team.prepare(request);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    put_tiles_like_empty(*find_codec(request.codec), call.inputs.rank_bytes(rank));
  }
  Team::Pending next = team.prepare(request);
  team.enqueue_all(call);
  team.enqueue_all(next);
  team.synchronize();
  team.expect_result(call);
  team.expect_result(next);
}
/// Lamport slots: at most a tile of each chunk for every block.
CollectiveRequest small_request(int ranks, const std::string& algorithm, const char* codec) {
  const int tiles = blocks_for_large() * (algorithm == "two_shot" ? ranks : 1);
  return request_of(algorithm.c_str(), codec, std::size_t{2048} * static_cast<unsigned>(tiles));
}
TEST_P(AnySchedule, WordsOfAWireMayLookEmpty) {
  for (const int ranks : {2, 3, 8}) {
    for (const char* algorithm : {"one_shot", "two_shot"}) {
      expect_result_of_empty_words(ranks,
                                   small_request(ranks, algorithm, ranks == 3 ? "fp16" : "qr-q4"));
    }
  }
  for (const char* codec : {"fp16", "qr-q4"}) {
    expect_result_of_empty_words(2, pair_request(codec));
  }
  for (const int ranks : {2, 3, 4}) {
    expect_result_of_empty_words(ranks, large_request(ranks, blocks_for_large()));
  }
}

/// And everything ends at once from then on.
void expect_dead_rank_is_named(int team_size, const CollectiveRequest& request,
                               CommunicatorOptions options = {}) {
  options.timeout_nanoseconds = 50'000'000;
  const auto ranks = static_cast<std::size_t>(team_size);
  for (std::size_t dead = 0; dead < ranks; ++dead) {
    Team team(team_size, options);
    Team::Pending good = team.prepare(request);
    team.enqueue_all(good);
    team.synchronize();
    team.expect_result(good);

    Team::Pending call = team.prepare(request);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (rank == dead) continue;
      EXPECT_TRUE(team.enqueue(call, rank).ok());
    }
    team.synchronize();  // ends, though a rank never came
    const std::string error = fmt::format("rank {} did not arrive", dead);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      expect_error(team.rank(rank).check(), error.c_str());
    }
    // When it comes after all, its kernel ends at once; so does every later call.
    EXPECT_TRUE(team.enqueue(call, dead).ok());
    Team::Pending later = team.prepare(request_of("ring", "fp16", 100));
    team.enqueue_all(later);
    team.synchronize();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(team.rank(rank).check().ok());
    }
  }
}
TEST_P(AnySchedule, ADeadRankIsNamedInACallWithSentinels) {
  const int blocks = blocks_for_large();
  expect_dead_rank_is_named(3, small_request(3, "one_shot", "fp16"), {.blocks = blocks});
  expect_dead_rank_is_named(3, small_request(3, "two_shot", "qr-q4"), {.blocks = blocks});
  expect_dead_rank_is_named(2, pair_request("qr-q4"), {.blocks = blocks});
  expect_dead_rank_is_named(3, large_request(3, blocks), {.blocks = blocks});
}

// ---------------------------------------------------------------- ranks in different calls

/// `odd` makes one call and all other ranks another, after calls that are the same. Everybody's
/// error names both.
void expect_difference_is_named(int team_size, int odd, const CollectiveRequest& call,
                                const CollectiveRequest& odd_call,
                                const std::vector<CollectiveRequest>& before = {}) {
  SCOPED_TRACE(fmt::format("rank {} of {}: {} {} {}, others: {} {} {}", odd, team_size,
                           odd_call.algorithm, odd_call.codec, odd_call.elements, call.algorithm,
                           call.codec, call.elements));
  Team team(team_size, {.blocks = blocks_for_large()});
  team.expect_results(before);
  Team::Pending of_others = team.prepare(call);
  Team::Pending of_odd = team.prepare(odd_call);
  Team::Pending later = team.prepare(request_of("ring", "fp16", 100));
  const auto make_call = [&](int rank) {
    return team.enqueue(rank == odd ? of_odd : of_others, static_cast<std::size_t>(rank));
  };
  for (int rank = 0; rank < team_size; ++rank) EXPECT_TRUE(make_call(rank).ok());
  // A call behind makes no difference.
  team.enqueue_all(later);
  for (int rank = 0; rank < team_size; ++rank) {
    (void)hipStreamSynchronize(team.stream(static_cast<std::size_t>(rank)));
    const Status status = team.rank(static_cast<std::size_t>(rank)).check();
    ASSERT_FALSE(status.ok()) << "on rank " << rank;
    std::vector<std::string> allowed;
    for (int other = 0; other < team_size; ++other) {
      if (other < odd) allowed.push_back(differing_calls_error(other, call, odd, odd_call));
      if (other > odd) allowed.push_back(differing_calls_error(odd, odd_call, other, call));
    }
    EXPECT_NE(std::find(allowed.begin(), allowed.end(), status.message()), allowed.end())
        << status.message() << " on rank " << rank;
  }
  team.synchronize();
}

TEST_P(AnySchedule, RanksInDifferentCallsAreNamed) {
  int odd = 0;
  for (const auto& [call, odd_call] : differing_pairs()) {
    expect_difference_is_named(2, odd, call, odd_call);
    odd = 1 - odd;
  }
}

TEST_P(AnySchedule, RanksInDifferentCallsAreNamedInLargerTeams) {
  const std::vector<CollectiveRequest> requests = differing_requests();
  for (const int ranks : {3, 4}) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      expect_difference_is_named(ranks, static_cast<int>(i) % ranks, requests[i],
                                 requests[(i + 1) % requests.size()],
                                 {request_of("two_shot", "qr-q4", 3000)});
    }
  }
}

TEST_P(AnySchedule, RanksWhoseSchedulesDifferInCodecsOfOpsAreNamed) {
  // The same messages between the same ranks, with one codec and then the other, or the other way
  // round.
  CollectiveRequest requests[] = {
      {"two_shot", "qr-q4", DType::fp16, 5000, {{"inner_codec", "qr-q8"}}},
      {"two_shot", "qr-q4", DType::fp16, 5000, {{"inner_codec", "qr-q8"}}}};
  const CodecPtr outer = find_codec("qr-q4");
  const CodecPtr inner = find_codec("qr-q8");
  for (const std::uint32_t steps_of_inner : {0U, 1U}) {
    Schedule schedule = make_schedule(
        "two_shot",
        {.world_size = 2, .elements = 5000, .alignment = Codecs(*outer, *inner).alignment()});
    for (Op& op : schedule.ops) {
      if (op.kind != OpKind::reduce && op.step % 2 == steps_of_inner) op.codec = CodecRole::inner;
    }
    requests[steps_of_inner].schedule = std::make_shared<const Schedule>(schedule);
  }
  ASSERT_NE(*requests[0].schedule, *requests[1].schedule);
  expect_difference_is_named(2, 1, requests[0], requests[1]);
}

TEST_P(AnySchedule, RanksThatWaitForEachOthersSlotsInDifferentCallsAreNamed) {
  const int blocks = blocks_for_large();
  // Slots of both kinds are full of what the calls before have sent.
  expect_difference_is_named(2, 1, large_request(2, blocks), pair_request("qr-q4"),
                             {large_request(2, blocks), pair_request("qr-q4")});
}

TEST_P(AnySchedule, OfManyCallsTheOneThatDiffersIsNamed) {
  Team team(2, {.blocks = blocks_for_large(), .first_epoch = 0xFFFFFFFEu});
  // The same work and the same number of exchanges, but for the third call.
  const auto call_of = [](int rank, int number) {
    return request_of(number % 2 == 0 ? "two_shot" : "one_shot",
                      number == 3 && rank == 1 ? "qr-q8" : "qr-q4", 3000);
  };
  std::vector<Team::Pending> calls;
  for (int number = 0; number < 6; ++number) {
    for (int rank = 0; rank < 2; ++rank) calls.push_back(team.prepare(call_of(rank, number)));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_TRUE(team.enqueue(calls[i], i % 2).ok());
  team.synchronize();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(team.rank(rank).check().message(),
              differing_calls_error(0, call_of(0, 3), 1, call_of(1, 3)));
  }
}

TEST_P(AnySchedule, ALateRankInAnotherCallIsNamedAndOneThatNeverComesIsNotTakenForIt) {
  // In time.
  Team late(2, {.timeout_nanoseconds = 1'000'000'000});
  Team::Pending call = late.prepare(request_of("two_shot", "qr-q4", 3000));
  Team::Pending other = late.prepare(request_of("two_shot", "qr-q8", 3000));
  delay(late.stream(1), 500'000'000);
  EXPECT_TRUE(late.enqueue(call, 0).ok());
  EXPECT_TRUE(late.enqueue(other, 1).ok());
  late.synchronize();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(late.rank(rank).check().message(),
              differing_calls_error(0, call.request, 1, other.request));
  }
  // A call less.
  Team team(2, {.timeout_nanoseconds = 50'000'000});
  Team::Pending first = team.prepare(request_of("two_shot", "qr-q4", 3000));
  team.enqueue_all(first);
  EXPECT_TRUE(team.enqueue(first, 0).ok());
  team.synchronize();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    expect_error(team.rank(rank).check(), "rank 1 did not arrive within 50 ms");
  }
}

TEST_P(AnySchedule, RanksMayShareDevices) {
  if (emulator::settings().resident_blocks == 1) GTEST_SKIP() << "there is room for one of them";
  for (const auto& [algorithm, codec] :
       {std::pair{"two_shot", "qr-q4"}, {"one_shot", "fp16"}, {"ring", "int5-g128"}}) {
    Team team(std::vector<int>{0, 1, 0, 0});
    team.expect_results({request_of(algorithm, codec, 9000), request_of(algorithm, codec, 70000)});
  }
}

// The second can only begin when the first has ended, which waits for it.
TEST_P(AnySchedule, ARankBehindAnotherOnOneStreamDoesNotArrive) {
  Team team(std::vector<int>{0, 0});
  Team::Pending call = team.prepare(request_of("two_shot", "qr-q4", 5000));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(team.rank(rank)
                    .run(call.request, call.inputs.rank_bytes(rank).data(),
                         call.outputs.data() + rank * call.outputs.size() / 2, team.stream(0))
                    .ok());
  }
  team.synchronize();
  expect_error(team.rank(0).check(), "rank 1 did not arrive within 10000 ms");
}

/// Captures a call, and replays it with other calls in between.
void expect_replay(const CollectiveRequest& request, int blocks = 2) {
  Team team(2, {.blocks = blocks});
  Team::Pending captured = team.prepare(request);
  std::vector<hipGraphExec_t> graphs(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    hipGraph_t graph = nullptr;
    ASSERT_EQ(hipStreamBeginCapture(team.stream(rank), hipStreamCaptureModeThreadLocal),
              hipSuccess);
    ASSERT_TRUE(team.enqueue(captured, rank).ok());
    ASSERT_EQ(hipStreamEndCapture(team.stream(rank), &graph), hipSuccess);
    ASSERT_EQ(hipGraphInstantiateWithFlags(&graphs[rank], graph, 0), hipSuccess);
    ASSERT_EQ(hipGraphDestroy(graph), hipSuccess);
  }
  for (std::uint64_t replay = 0; replay < 4; ++replay) {
    const Tensor fresh = make_synthetic(fmt::format("gaussian:seed={}", 100 + replay), DType::fp16,
                                        2, request.elements);
    std::memcpy(captured.inputs.data.data(), fresh.data.data(), fresh.data.size());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(hipGraphLaunch(graphs[rank], team.stream(rank)), hipSuccess);
    }
    team.synchronize();
    team.expect_result(captured, static_cast<std::uint32_t>(replay));
    // A call outside of the graph, in between.
    Team::Pending other = team.prepare(request_of("one_shot", "fp16", 700));
    team.enqueue_all(other);
    team.synchronize();
    team.expect_result(other);
  }
  for (const hipGraphExec_t graph : graphs) (void)hipGraphExecDestroy(graph);
}

TEST_P(AnySchedule, GraphsMayBeReplayed) { expect_replay(request_of("two_shot", "qr-q4", 6000)); }
TEST_P(AnySchedule, GraphsOfManyKernelsMayBeReplayed) {
  expect_replay(request_of("two_shot", "int3-g24", 6000));
}
TEST_P(AnySchedule, GraphsOfKernelsThatMeasureMayBeReplayed) {
  expect_replay(request_of("two_shot", "nvfp4", 6000), blocks_for_large());
}
TEST_P(AnySchedule, EveryReplayHasItsOwnRandomNumbers) {
  CollectiveRequest request = request_of("two_shot", "int4-g32-stoch", 6000);
  request.seed = 5;
  expect_replay(request);
}
TEST_P(AnySchedule, GraphsOfLargeCallsMayBeReplayed) {
  expect_replay(large_request(2, blocks_for_large()), blocks_for_large());
  expect_replay(pair_request("qr-q4"), blocks_for_large());
}

TEST_P(AnySchedule, GroupsThatAreTooManyAreMeasuredInTurn) {
  // 200 groups per chunk, of which 13 are measured at a time.
  Team team(3, {.blocks = 2, .two_pass_groups = 40});
  for (const char* algorithm : {"ring", "two_shot"}) {
    Team::Pending call = team.prepare(request_of(algorithm, "int4-g24-sr", 14401));
    team.enqueue_all(call);
    team.synchronize();
    team.expect_result(call);
  }
}

TEST_P(AnySchedule, ADeadRankIsNamedBetweenStages) {
  Team team(3, {.timeout_nanoseconds = 50'000'000});
  Team::Pending call =
      team.prepare(request_of("hierarchical", measured_codec("int8-gtensor"), 5000));
  for (const std::size_t rank : {0, 2}) EXPECT_TRUE(team.enqueue(call, rank).ok());
  team.synchronize();
  for (std::size_t rank = 0; rank < 3; ++rank) {
    expect_error(team.rank(rank).check(), "rank 1 did not arrive");
  }
}

TEST_P(AnySchedule, ADeadRankIsNamedOnAllOthers) {
  expect_dead_rank_is_named(3, request_of("two_shot", "qr-q4", 5000));
  // Rank 2 has no chunk: it waits for ranks that wait themselves.
  expect_dead_rank_is_named(3, request_of("two_shot", "qr-q4", 64));
}

// ---------------------------------------------------------------- errors are values

TEST(Errors, OfATeam) {
  const std::vector<int> devices = {0, 1, 2, 3, 4, 5, 6, 7, 0};
  expect_error(Communicator::in_process(std::span(devices).first(1)).status(),
               "1 ranks: allowed are 2 to 8");
  expect_error(Communicator::in_process(devices).status(), "9 ranks: allowed are 2 to 8");
  expect_error(Communicator::in_process(std::span(devices).first(2), {.blocks = -1}).status(),
               "-1 blocks: allowed are 0 to 1024");
  expect_error(
      Communicator::in_process(std::span(devices).first(2), {.multiprocessors = -1}).status(),
      "-1 multiprocessors: allowed are 0 to 1024");
  expect_error(
      Communicator::in_process(std::span(devices).first(2), {.multiprocessors = 17}).status(),
      "17 multiprocessors: a device has 16");
  expect_error(Communicator::in_process(std::vector<int>{0, 1, 0}, {.multiprocessors = 8}).status(),
               "8 multiprocessors for each rank: ranks that share a device cannot be kept apart");
  // Sizes of teams, which are multiples of it, would start again at 0 for the largest.
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{16368}, std::size_t{16392},
                                  std::size_t{1} << 58, std::size_t{1} << 63}) {
    expect_error(
        Communicator::in_process(std::span(devices).first(2), {.slot_bytes = bytes}).status(),
        fmt::format("slots of {} bytes: allowed are multiples of 16 from 16384 to 2^40", bytes)
            .c_str());
  }
  const std::vector<int> missing = {0, 99};
  EXPECT_FALSE(Communicator::in_process(missing).ok());
}

TEST(Errors, OfACall) {
  Team team(2, {.slot_bytes = 1024, .any_slot_bytes = true});
  const auto error_of = [&](const char* algorithm, const char* codec, std::size_t elements) {
    return team.rank(0).run(request_of(algorithm, codec, elements), nullptr, nullptr,
                            team.stream(0));
  };
  expect_error(error_of("two_shots", "qr-q4", 8), "unknown algorithm 'two_shots'");
  expect_error(error_of("two_shot", "qr-q5", 8), "unknown codec");
  expect_error(error_of("two_shot", "int4-g20", 8), "allowed is a multiple of 8");
  expect_error(error_of("two_shot", "int8-grow", 8), "how long is a row?");
  expect_error(error_of("two_shot", "bf16", 8), "codec bf16 takes bf16, not fp16");
  expect_error(error_of("two_shot", "qr-q4", 0), "0 elements per rank is out of range");
  expect_error(error_of("all_to_all", "qr-q4", 9), "equal slots");
  expect_error(error_of("two_shot", "qr-q4", 8),
               "slots of 1024 bytes cannot hold two tiles of codec qr-q4: 2304 bytes");
  expect_error(error_of("two_shot", "nvfp4", 8),
               "slots of 1024 bytes cannot hold two tiles of codec nvfp4: 2336");
  expect_error(error_of("all_to_all", "nvfp4", 9), "equal slots");
  expect_error(error_of("two_shot", "nvfp4", 0), "0 elements per rank is out of range");
}

TEST(Errors, OfATwoPassCodec) {
  expect_error(Communicator::in_process(std::vector<int>{0, 1}, {.two_pass_groups = 0}).status(),
               "0 two-pass groups");
  Team team(2, {.slot_bytes = 16384, .two_pass_groups = 3});
  const auto error_of = [&](const char* codec, DType dtype, std::size_t elements) {
    CollectiveRequest request = request_of("two_shot", codec, elements);
    request.dtype = dtype;
    return team.rank(0).run(request, nullptr, nullptr, team.stream(0));
  };
  // A message of many tiles is measured in parts.
  expect_error(error_of("int8-gtensor", DType::fp32, 200'000),
               "3 two-pass groups are too few: codec int8-gtensor takes");
  expect_error(error_of("had-int8-g65536", DType::fp16, 100), "too few");
  Team roomy(2, {.slot_bytes = 16384});
  expect_error(roomy.rank(0).run(request_of("two_shot", "had-int8-g65536", 100), nullptr, nullptr,
                                 roomy.stream(0)),
               "slots of 16384 bytes cannot hold a group of codec had-int8-g65536: ");
}

}  // namespace
}  // namespace arlab::kernels
