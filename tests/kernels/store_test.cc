// When kernels are compiled and loaded, with a compiler and a driver of tests in the places of NVIDIA's or AMD's (fake_compiler.cc,
// fake_libcuda.cc, fake_libamdhip64.cc).
#include "kernels/compile/store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "kernels/compile/ahead.h"
#include "kernels/conformance/conform.h"
#include "kernels/runtime/communicator.h"
#include "kernels/runtime/platforms.h"
#include "reference/collectives/algorithm.h"
#include "tests/kernels/fake_driver.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab::kernels {
namespace {

#if defined(__HIP_PLATFORM_AMD__)
constexpr bool kIsAmd = true;
constexpr const char* kArchitecture = "gfx90a";
constexpr const char* kLoad = "hipModuleLoadData";
constexpr const char* kLaunch = "hipModuleLaunchKernel";
#else
constexpr bool kIsAmd = false;
constexpr const char* kArchitecture = "sm_90";
constexpr const char* kLoad = "cuModuleLoadData";
constexpr const char* kLaunch = "cuLaunchKernelEx";
#endif

/// The fakes that this process uses from its first call on; nothing is in the cache.
FakeCalls& fake() {
  static FakeCalls& driver = [&]() -> FakeCalls& {
    static const TemporaryDirectory cache;
    setenv(kIsAmd ? "ARLAB_LIBAMDHIP64" : "ARLAB_LIBCUDA", FAKE_DRIVER, 1);
    setenv(kIsAmd ? "ARLAB_HIPRTC" : "ARLAB_NVRTC", FAKE_COMPILER_FILE, 1);
    setenv("FAKE_COMPILER_VERSION", "12080", 1);
    setenv("ARLAB_KERNEL_CACHE", (cache / "kernels").c_str(), 1);
    return fake_in<FakeCalls>(FAKE_DRIVER);
  }();
  return driver;
}

class KernelsOnDemand : public testing::Test {
 protected:
  void SetUp() override {
    fake().failures.clear();
    fake().calls.clear();
  }
  static constexpr std::array<int, 2> kDevices = {0, 1};
};

TEST_F(KernelsOnDemand, AreLoadedOnceOntoEachDevice) {
  KernelStore& store = KernelStore::of_process();
  const std::vector<WantedKernel> kernels = {{"one", "text of one"}, {"two", "text of two"}};
  std::size_t compiled = 0;
  const auto progress = [&](std::size_t done, std::size_t all) {
    EXPECT_LE(done, all);
    ++compiled;
  };
  EXPECT_FALSE(store.has(kernels, 0));
  ASSERT_TRUE(store.load(kernels, kDevices, progress).ok());
  EXPECT_EQ(compiled, 4);  // the devices have architectures of their own
  EXPECT_EQ(fake().calls[kLoad], 4);
  EXPECT_EQ(fake().calls["cuFuncLoad"], kIsAmd ? 0 : 4);
  EXPECT_TRUE(store.has(kernels, 0) && store.has(kernels, 1));
  ASSERT_TRUE(store.load(kernels, kDevices, progress).ok());
  EXPECT_EQ(compiled, 4);
  EXPECT_EQ(fake().calls[kLoad], 4);
}

TEST_F(KernelsOnDemand, SayWhichOfThemFailed) {
  KernelStore& store = KernelStore::of_process();
  fake().failures[kLoad] = 2;
  const Status unloaded = store.load(std::vector<WantedKernel>{{"a kernel", "text"}}, kDevices);
  ASSERT_FALSE(unloaded.ok());
  EXPECT_TRUE(unloaded.message().starts_with("kernel a kernel cannot be loaded: "))
      << unloaded.message();
  const Status uncompiled = store.load(std::vector<WantedKernel>{{"another", "bad"}}, kDevices);
  EXPECT_FALSE(uncompiled.ok());
}

TEST_F(KernelsOnDemand, AreNotedInPlaceOfALaunch) {
  const NotesKernels notes;
  const auto codec = [] { return CodecText{"Plain<Element>", "{}"}; };
  LoadedKernels loaded;
  for (const int ranks : {2, 4, 2}) {
    EXPECT_EQ(start({forms::kTwoShotSentinel, "Bf16", ranks}, loaded, codec, dim3(1), nullptr, 1),
              hipSuccess);
  }
  EXPECT_EQ(notes.kernels().size(), 2);
  EXPECT_EQ(notes.kernels().front().name, "two_shot_sentinel/2 Bf16 Plain<Element>");
  EXPECT_EQ(fake().calls[kLaunch], 0);
}

/// A call of both ranks, on streams that are captured.
Status captured(std::vector<Communicator>& team, const CollectiveRequest& request) {
  std::vector<std::uint16_t> tensor(request.elements);
  Status status;
  for (Communicator& rank : team) {
    hipStream_t stream = nullptr;
    hipGraph_t graph = nullptr;
    (void)hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
    (void)hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal);
    if (status.ok()) status = rank.run(request, tensor.data(), tensor.data(), stream);
    (void)hipStreamEndCapture(stream, &graph);
    (void)hipStreamDestroy(stream);
  }
  return status;
}

TEST_F(KernelsOnDemand, OfACaptureAreLoadedAheadOfIt) {
  Result<std::vector<Communicator>> team = Communicator::in_process(kDevices);
  ASSERT_TRUE(team.ok()) << team.status().message();
  const CollectiveRequest request = {"two_shot", "qr-q4", DType::bf16, 70000};
  const Status refused = captured(team.value(), request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("Communicator.prepare(...)"), std::string::npos);
  EXPECT_EQ(refused.message().find('\n'), std::string::npos);
  EXPECT_EQ(fake().calls[kLoad], 0);

  ASSERT_TRUE(team.value().front().prepare(request).ok());
  EXPECT_EQ(fake().calls[kLoad], 2);  // for the other rank, too
  const Status taken = captured(team.value(), request);
  EXPECT_TRUE(taken.ok()) << taken.message();
  EXPECT_EQ(fake().calls[kLoad], 2);
  EXPECT_EQ(fake().calls[kLaunch], 2);
}

TEST_F(KernelsOnDemand, OfSeveralCallsAreLoadedTogether) {
  Result<std::vector<Communicator>> team = Communicator::in_process(kDevices);
  ASSERT_TRUE(team.ok()) << team.status().message();
  std::vector<CollectiveRequest> requests;
  for (const char* codec : {"qr-q8", "int4-g32", "no such codec"}) {
    for (const std::size_t elements : {std::size_t{1000}, std::size_t{1} << 22}) {
      requests.push_back({"two_shot", codec, DType::fp16, elements});
    }
  }
  const Status status = team.value().front().prepare(requests, {});
  ASSERT_TRUE(status.ok()) << status.message();
  // qr-q8 in Lamport slots and with sentinels, int4-g32 with these; on AMD's GPUs both with flags.
  constexpr int kLoads = 2 * (kIsAmd ? 2 : 3);
  EXPECT_EQ(fake().calls[kLoad], kLoads);
  std::vector<std::uint16_t> tensor(1000);
  EXPECT_TRUE(
      team.value().front().run(requests.front(), tensor.data(), tensor.data(), nullptr).ok());
  EXPECT_EQ(fake().calls[kLoad], kLoads);
}

/// How many modules the driver has loaded.
int loads() { return fake().calls[kLoad]; }

TEST_F(KernelsOnDemand, NoneIsLoadedOnceARankHasLaunched) {
  const std::vector<int> devices = {0, 1, 0};
  Result<std::vector<Communicator>> team = Communicator::in_process(devices);
  ASSERT_TRUE(team.ok()) << team.status().message();
  std::vector<std::uint16_t> tensor(std::size_t{3} << 14);
  hipStream_t stream = nullptr;  // the fake takes the default one for one that is captured
  (void)hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
  int calls = 0;
  for (const Algorithm& algorithm : all_algorithms()) {
    for (const char* codec : {"bf16", "qr-q4", "nvfp4", "int8-gtensor", "int8-gtensor-stoch",
                              "int4-g24", "shared-int8-g128", "int4-g32-sr"}) {
      for (const int root : {0, 1, 2}) {
        if (root != 0 && algorithm.collective != Collective::broadcast) continue;
        SCOPED_TRACE(fmt::format("{} {} from rank {}", algorithm.name, codec, root));
        CollectiveRequest request = {algorithm.name, codec, DType::bf16, tensor.size()};
        request.root = root;
        if (!team.value().front().run(request, tensor.data(), tensor.data(), stream).ok()) continue;
        ++calls;
        const int loaded = loads();
        for (std::size_t rank = 1; rank < devices.size(); ++rank) {
          const Status status =
              team.value()[rank].run(request, tensor.data(), tensor.data(), stream);
          EXPECT_TRUE(status.ok()) << status.message();
        }
        EXPECT_EQ(loads(), loaded);
      }
    }
  }
  EXPECT_GT(calls, 40);
  (void)hipStreamDestroy(stream);
}

TEST_F(KernelsOnDemand, OfACodecByItselfAreLoadedForAllRanks) {
  const Platform& gpus = *find_platform(kIsAmd ? "rocm" : "cuda").value();
  auto team = gpus.make_communicators(kDevices, {});
  ASSERT_TRUE(team.ok()) << team.status().message();
  std::vector<std::uint16_t> tensor(4096);
  hipStream_t stream = nullptr;
  (void)hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
  for (const char* codec : {"int8-g64", "nvfp4-ts64"}) {
    const int before = loads();
    int after = 0;
    for (const auto& rank : team.value()) {
      const auto bytes = rank->room_of_as_sent(codec, DType::bf16, tensor.size());
      ASSERT_TRUE(bytes.ok()) << bytes.status().message();
      std::vector<std::byte> room(bytes.value());
      const Status status = rank->as_sent(codec, DType::bf16, tensor.size(), tensor.data(),
                                          room.data(), tensor.data(), stream);
      ASSERT_TRUE(status.ok()) << status.message();
      if (after == 0) after = loads();
    }
    EXPECT_GT(after, before);
    EXPECT_EQ(loads(), after);
  }
  (void)hipStreamDestroy(stream);
}

TEST_F(KernelsOnDemand, BetweenTimedCallsAreLoadedAheadOfThese) {
  const Platform& gpus = *find_platform(kIsAmd ? "rocm" : "cuda").value();
  const auto group = gpus.make_group(2, {}, nullptr);
  ASSERT_TRUE(group.ok()) << group.status().message();
  const CollectiveRequest request = {"two_shot", "qr-q6", DType::fp16, 4096};
  ASSERT_TRUE(group.value()->prepare({&request, 1}, {}).ok());
  const int before = loads();
  fake().failures[kLaunch] = 719;
  const std::array<std::byte, 16> pattern = {};
  EXPECT_FALSE(group.value()->time({request}, pattern, {.gemm = true, .cold = true}).ok());
  EXPECT_EQ(loads() - before, 2 * 2);  // both are there on both devices as the first call fails
}

TEST_F(KernelsOnDemand, OfLayersAreLoadedAhead) {
  const Platform& gpus = *find_platform(kIsAmd ? "rocm" : "cuda").value();
  ASSERT_TRUE(gpus.prepare_layers({}).ok());
  const int before = loads();
  EXPECT_GE(before, 3 * 3);
  const std::vector<std::byte> values(256);
  Int8Matrix matrix;
  const OperandFormat format = parse_operand(Operand::activations, "int8");
  (void)gpus.quantize_int8(DType::bf16, values, 4, format, std::nullopt, matrix);
  EXPECT_EQ(loads(), before);
}

/// Calls of all algorithms, as conform makes them.
std::vector<CollectiveRequest> calls_of(const AheadRequest& ahead, std::size_t ranks) {
  std::vector<CollectiveRequest> calls;
  for (const std::string& algorithm : ahead.algorithms) {
    for (const std::string& codec : ahead.codecs) {
      for (const std::size_t length : lengths_up_to((std::size_t{1} << 20) + 1)) {
        const std::size_t slots = has_slots(find_algorithm(algorithm).collective) ? ranks : 1;
        calls.push_back({algorithm, codec, DType::bf16, length * slots});
      }
    }
  }
  return calls;
}

TEST_F(KernelsOnDemand, CompiledAheadAreAllThatCallsTake) {
  AheadRequest request{.codecs = {"bf16", "qr-q8", "nf4-g64", "int8-gtensor", "int4-g32-sr"},
                       .dtypes = {DType::bf16},
                       .ranks = {2, 3},
                       .architectures = {kArchitecture}};
  for (const Algorithm& known : all_algorithms()) request.algorithms.push_back(known.name);
  const Result<CompiledAhead> made = compile_kernels_ahead(request, {});
  ASSERT_TRUE(made.ok()) << made.status().message();
  const KernelCache& cache = *KernelCache::of_process().value();
  const std::size_t compiled = cache.list().value().size();
  EXPECT_GE(compiled, made.value().kernels);
  for (const std::size_t ranks : {std::size_t{2}, std::size_t{3}}) {
    const std::vector<int> devices(ranks, 0);
    Result<std::vector<Communicator>> team = Communicator::in_process(devices);
    ASSERT_TRUE(team.ok()) << team.status().message();
    ASSERT_TRUE(team.value().front().prepare(calls_of(request, ranks), {}).ok());
    EXPECT_EQ(cache.list().value().size(), compiled);
  }
}

}  // namespace
}  // namespace arlab::kernels
