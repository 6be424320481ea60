// Kernels of NVIDIA GPUs compile without a GPU, and take the registers that a golden table says. Where NVRTC is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <sstream>

#include "kernels/compile/sources.h"
#include "kernels/compile/store.h"
#include "reference/codecs/registry.h"
#include "reference/parallel.h"
#include "tests/kernels/all_kernels.h"

namespace arlab::kernels {
namespace {

/// ./test.sh has put the one of the golden table into the project's environment, if it can be had.
const Compiler* compiler() {
  (void)setenv("VIRTUAL_ENV", ARLAB_SOURCE_DIR "/.venv", 0);  // NOLINT(concurrency-mt-unsafe)
  const Result<const Compiler*> found = nvrtc(0);
  return found.ok() ? found.value() : nullptr;
}

Result<CodeObject> compiled(const WantedKernel& kernel, const std::string& architecture) {
  std::vector<std::string> options = KernelStore::options();
  options.emplace_back("--ptxas-options=-v");
  return compiler()->compile({kernel.name, kernel.unit, embedded_headers(), architecture, options});
}

/// Registers of a thread, and bytes that it stores elsewhere and loads again for want of them.
std::string registers_in(const std::string& log) {
  std::smatch used;
  std::smatch spilled;
  if (!std::regex_search(log, used, std::regex("Used ([0-9]+) registers")) ||
      !std::regex_search(log, spilled,
                         std::regex("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads"))) {
    return "not said";
  }
  return fmt::format("{} {} {}", used[1].str(), spilled[1].str(), spilled[2].str());
}

// One codec of each family in the kernels that matter most for it, and every form with some codec.
const Sample kSamples[] = {{"bf16", DType::bf16, "one_shot_lamport/2"},
                           {"bf16", DType::bf16, "one_shot_lamport_tail/8384562"},
                           {"bf16", DType::bf16, "tail_rows/8384564"},
                           {"bf16", DType::bf16, "tail_rows/25161780"},
                           {"int8-g128", DType::bf16, "tail_rows_encoded/8384564"},
                           {"qr-q4", DType::bf16, "one_shot_lamport_tail/8384568"},
                           {"bf16", DType::bf16, "two_shot"},
                           {"bf16", DType::bf16, "all_to_all"},
                           {"bf16", DType::bf16, "count_call"},
                           {"bf16", DType::bf16, "find_extremes"},
                           {"bf16", DType::bf16, "quantize_rows"},
                           {"bf16", DType::bf16, "multiply_int8"},
                           {"bf16", DType::bf16, "multiply_matrices"},
                           {"bf16", DType::bf16, "overwrite"},
                           {"fp32", DType::fp32, "two_shot"},
                           {"qr-q4", DType::fp16, "two_shot_sentinel/4"},
                           {"qr-q4", DType::bf16, "one_shot_lamport/8"},
                           {"qr-q8", DType::bf16, "one_shot_sentinel"},
                           {"int4-g32", DType::bf16, "two_shot_sentinel/2"},
                           {"int4-g32", DType::bf16, "two_shot_lamport"},
                           {"int4-g32", DType::bf16, "encode"},
                           {"int4-g32", DType::bf16, "decode"},
                           {"int4-g32", DType::bf16, "decode_add"},
                           {"int8-g128", DType::bf16, "two_shot_sentinel/3"},
                           {"int5-g64-sym", DType::fp16, "ring"},
                           {"int2-g32-sr-is", DType::bf16, "two_shot_lamport"},
                           {"had-int4-g32", DType::bf16, "one_shot_lamport/8"},
                           {"mxfp4", DType::bf16, "two_shot_sentinel/2"},
                           {"mxfp8-e4m3-rceil", DType::fp16, "one_shot_lamport/8"},
                           {"mxint8", DType::bf16, "one_shot"},
                           {"fp8-e4m3-g128", DType::bf16, "two_shot_lamport"},
                           {"fp8-e4m3-g128-ue8m0", DType::bf16, "two_shot_sentinel/2"},
                           {"wire-fp16", DType::fp32, "two_shot"},
                           {"wire-bf16-stoch", DType::fp32, "two_shot"},
                           {"logfmt4-g128", DType::bf16, "two_shot_lamport"},
                           {"nvfp4", DType::bf16, "two_shot_lamport"},
                           {"int8-gtensor", DType::bf16, "measured_program"},
                           {"int8-gtensor", DType::fp16, "statistics"},
                           {"int8-gtensor", DType::fp16, "merge_statistics"},
                           {"int4-g1024", DType::bf16, "two_shot_sentinel/2"},
                           {"int8-gtensor-static0.02:-2.5", DType::bf16, "two_shot_sentinel/2"},
                           {"int8-gtensor-static0.02:-2.5", DType::bf16, "spread_nans"},
                           {"int3-g24", DType::fp16, "encode_measured"},
                           {"int3-g24", DType::fp16, "decode_measured"},
                           {"int3-g24", DType::fp16, "decode_measured/1"},
                           {"had-int4-g512", DType::bf16, "two_pass_program"},
                           {"nf4-g64", DType::bf16, "two_shot_sentinel/2"},
                           {"nf4-g64", DType::bf16, "program"},
                           {"int4-g32-stoch", DType::bf16, "two_shot_sentinel/2"},
                           {"int4-g32-stoch", DType::bf16, "encode"},
                           {"fp8-e4m3-g128-stoch", DType::bf16, "program"},
                           {"shared-int8-g32", DType::bf16, "measure_largest"},
                           {"shared-int8-g32", DType::bf16, "encode_codes"},
                           {"shared-int8-g32", DType::bf16, "decode_codes"},
                           {"shared-int8-g32", DType::bf16, "program"}};

/// The golden table: the compiler that it is of, and a line for each sample.
constexpr const char* kGolden = "tests/kernels/registers_sm_90.txt";

// ARLAB_WRITE_REGISTERS=1 writes the table anew.
TEST(CompiledKernels, TakeTheRegistersOfTheTable) {
  if (compiler() == nullptr) GTEST_SKIP() << "no NVRTC";
  std::vector<std::string> lines(std::size(kSamples));
  std::mutex mutex;
  parallel_for(std::size(kSamples), 0, [&](unsigned, std::size_t i) {
    const Sample& sample = kSamples[i];
    const Result<CodeObject> code = compiled(kernel_of(sample), "sm_90");
    const std::scoped_lock lock(mutex);
    EXPECT_TRUE(code.ok()) << sample.codec << " " << sample.kernel << ": "
                           << (code.ok() ? "" : code.status().message());
    if (!code.ok()) return;
    lines[i] = fmt::format("{} {} {} {}", sample.codec, name_of(sample.dtype), sample.kernel,
                           registers_in(code.value().log));
  });
  std::string table = fmt::format(
      "# {}, sm_90: codec, dtype, kernel; registers, bytes of spill stores and of spill loads\n",
      compiler()->version());
  for (const std::string& line : lines) table += line + "\n";
  const std::string file = std::string(ARLAB_SOURCE_DIR) + "/" + kGolden;
  if (std::getenv("ARLAB_WRITE_REGISTERS") != nullptr)
    std::ofstream(file) << table;  // NOLINT(concurrency-mt-unsafe)
  std::stringstream golden;
  golden << std::ifstream(file).rdbuf();
  const std::string of = golden.str().substr(2, golden.str().find(',') - 2);
  if (of != compiler()->version()) {
    GTEST_SKIP() << kGolden << " is of " << of << ", this is another NVRTC";
  }
  EXPECT_EQ(table, golden.str());
}

TEST(CompiledKernels, AllCompileForNewAndForNewerGpus) {
#if ARLAB_FULL_TESTS
  if (compiler() == nullptr) GTEST_SKIP() << "no NVRTC";
  std::map<std::string, WantedKernel> kernels;  // by unit
  for (const std::string& name : listed_codecs()) {
    if (!choose_codec(name).ok()) continue;
    const std::vector<DType> dtypes = find_codec(name)->info().dtypes;
    for (const WantedKernel& kernel : kernels_of(name, dtypes.front())) {
      kernels.emplace(kernel.unit, kernel);
    }
  }
  std::vector<WantedKernel> all;
  for (const auto& [unit, kernel] : kernels) all.push_back(kernel);
  std::mutex mutex;
  parallel_for(2 * all.size(), 0, [&](unsigned, std::size_t i) {
    const Result<CodeObject> code = compiled(all[i / 2], i % 2 == 0 ? "sm_90" : "sm_100");
    const std::scoped_lock lock(mutex);
    EXPECT_TRUE(code.ok()) << all[i / 2].name << ": " << (code.ok() ? "" : code.status().message());
  });
#else
  GTEST_SKIP() << "every codec's kernels are compiled by ./test.sh full";
#endif
}

TEST(CompiledKernels, AnErrorNamesTheKernel) {
  if (compiler() == nullptr) GTEST_SKIP() << "no NVRTC";
  const Result<CodeObject> code =
      compiled({"a kernel", "extern \"C\" __global__ void f() { x; }"}, "sm_90");
  ASSERT_FALSE(code.ok());
  EXPECT_NE(code.status().message().find("a kernel"), std::string::npos) << code.status().message();
  EXPECT_EQ(code.status().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace arlab::kernels
