// Kernels of AMD GPUs, from a call to a launch, where a hipRTC is that compiles for gfx90a: that of Debian 12 does. The driver is a fake
// one, so that no kernel runs.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "kernels/compile/sources.h"
#include "kernels/runtime/communicator.h"
#include "tests/kernels/all_kernels.h"
#include "tests/kernels/fake_driver.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab::kernels {
namespace {

constexpr const char* kArchitecture = "gfx90a";  // the fake's first device's

/// Skips the test where there is none.
class CompiledForAmd : public testing::Test {
 protected:
  void SetUp() override {
    setenv("ARLAB_LIBAMDHIP64", FAKE_DRIVER, 1);  // which a process keeps from its first call on
    const Result<const Compiler*> found = KernelStore::compiler();
    if (!found.ok()) GTEST_SKIP() << found.status().message();
    const Status compiles = found.value()->require_compiles(kArchitecture);
    if (!compiles.ok()) GTEST_SKIP() << compiles.message();
    compiler_ = found.value();
  }
  const Compiler* compiler_ = nullptr;
};

bool is_code(std::string_view bytes) {
  return bytes.starts_with(
      "\x7F"
      "ELF");
}

// A codec of each family, and forms that differ most.
const Sample kSamples[] = {{"bf16", DType::bf16, "one_shot_lamport/2"},
                           {"bf16", DType::bf16, "one_shot_lamport_tail/8384562"},
                           {"bf16", DType::bf16, "tail_rows/8384564"},
                           {"bf16", DType::bf16, "tail_rows/25161780"},
                           {"int8-g128", DType::bf16, "tail_rows_encoded/8384564"},
                           {"qr-q4", DType::bf16, "one_shot_lamport_tail/8384568"},
                           {"bf16", DType::bf16, "multiply_int8"},
                           {"fp32", DType::fp32, "two_shot"},
                           {"qr-q4", DType::fp16, "two_shot"},
                           {"qr-q8", DType::bf16, "all_to_all"},
                           {"int4-g32", DType::bf16, "two_shot_lamport"},
                           {"int2-g32-sr-is", DType::bf16, "encode"},
                           {"had-int4-g32", DType::fp16, "ring"},
                           {"mxfp4", DType::bf16, "two_shot"},
                           {"fp8-e4m3-g128", DType::bf16, "decode_add"},
                           {"logfmt4-g128", DType::bf16, "encode"},
                           {"nvfp4", DType::bf16, "two_shot_lamport"},
                           {"int8-gtensor", DType::bf16, "measured_program"},
                           {"int3-g24", DType::fp16, "decode_measured/1"},
                           {"nf4-g64", DType::bf16, "program"},
                           {"int4-g32-stoch", DType::bf16, "encode"},
                           {"shared-int8-g32", DType::bf16, "encode_codes"}};

TEST_F(CompiledForAmd, ASampleOfKernels) {
  for (const Sample& sample : kSamples) {
    const WantedKernel kernel = kernel_of(sample);
    const Result<CodeObject> code = compiler_->compile(
        {kernel.name, kernel.unit, embedded_headers(), kArchitecture, KernelStore::options()});
    const std::string why = code.ok() ? "" : code.status().message();
    EXPECT_TRUE(code.ok() && is_code(code.value().bytes)) << kernel.name << ": " << why;
  }
}

TEST_F(CompiledForAmd, ACallOfTwoRanks) {
  const TemporaryDirectory cache;
  setenv("ARLAB_KERNEL_CACHE", (cache / "kernels").c_str(), 1);
  FakeHip& fake = fake_in<FakeHip>(FAKE_DRIVER);
  constexpr std::array<int, 2> kDevices = {0, 0};
  Result<std::vector<Communicator>> team = Communicator::in_process(kDevices);
  ASSERT_TRUE(team.ok()) << team.status().message();
  const CollectiveRequest request = {"two_shot", "qr-q4", DType::fp16, 70000};
  std::vector<std::uint16_t> tensor(request.elements);
  for (Communicator& rank : team.value()) {
    const Status status = rank.run(request, tensor.data(), tensor.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(fake.calls["hipModuleLoadData"], 1);
  EXPECT_EQ(fake.calls["hipModuleLaunchKernel"], 2);
  EXPECT_EQ(fake.threads, static_cast<unsigned>(kThreads));
  EXPECT_TRUE(is_code(fake.module_begin));
  EXPECT_EQ(KernelCache::of_process().value()->list().value().front().architecture, kArchitecture);
}

}  // namespace
}  // namespace arlab::kernels
