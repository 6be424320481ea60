// Tails of kernels give the bits of the reference (reference/tails/SPEC.md, "What is computed"), in and behind the
// collective's kernel.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/conformance/conform.h"
#include "kernels/platform/host/emulator.h"

namespace arlab::kernels {
namespace {

const Platform& host() { return *find_platform("host").value(); }

std::vector<Tail> tails_of(const std::vector<std::string>& texts) {
  std::vector<Tail> tails;
  for (const std::string& text : texts) tails.push_back(parse_tail(text));
  return tails;
}

/// Everything agrees; how many elements that was.
std::uint64_t expect_conformance(ConformanceRequest request) {
  std::uint64_t compared = 0;
  const Status status = run_conformance(host(), request, [&](const ConformanceRow& row) {
    EXPECT_EQ(row.mismatches, 0u) << mismatches_text(row);
    if (row.ranks > 1) compared += row.compared_elements;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return compared;
}

/// A kernel behind the collective: rows of any length, also of blocks of threads that end within a tree.
TEST(Tails, BehindAllReduces) {
  emulator::configure({.wave_size = 32, .seed = 1});
  const auto expect_rows = [](const std::vector<std::string>& tails, std::size_t length) {
    return expect_conformance({.codecs = {"fp32", "bf16"},
                               .algorithms = {"two_shot"},
                               .tails = tails_of(tails),
                               .ranks = {3},
                               .lengths = {length},
                               .group = {.blocks = 3, .protocol = Protocol::flags}});
  };
  EXPECT_GT(expect_rows({"hidden=1,residual=add,norm=rms", "hidden=9,norm=rms,offset=1"}, 20), 0u);
  EXPECT_GT(expect_rows({"hidden=576,residual=add,norm=rms,rounding=torch-llama",
                         "hidden=2880,residual=add,norm=rms,rounding=aiter,threads=33",
                         "hidden=3000,residual=add,norm=rms,rounding=vllm,threads=32",
                         "hidden=577,residual=add"},
                        3001),
            0u);
  EXPECT_GT(expect_rows({"hidden=20000,residual=add,norm=rms,rounding=aiter-two-stage"}, 1), 0u);
}

/// In Lamport slots, or behind them: rows of whole trees and of packs, which end within tiles.
TEST(Tails, InOneShotAndTwoShot) {
  for (const int wave_size : {32, 64}) {
    emulator::configure({.wave_size = wave_size, .seed = 1});
    for (const int ranks : {2, 3}) {
      expect_conformance({.codecs = {"bf16", "qr-q4"},
                          .algorithms = {"one_shot", "two_shot"},
                          .tails = tails_of({"hidden=5120,residual=add,norm=rms,rounding=vllm",
                                             "hidden=2880,residual=add,norm=rms,rounding=aiter",
                                             "hidden=576,norm=rms,offset=1,threads=64"}),
                          .ranks = {ranks},
                          .lengths = {1, 6000}});
    }
  }
}

/// Every named rounding, and outputs of codecs that kernels have in each way: by tile, by groups of a row, by measured groups.
TEST(Tails, WithEveryRoundingAndWithOutputs) {
  emulator::configure({.wave_size = 32, .seed = 1});
  expect_conformance({.codecs = {"fp16", "fp32"},
                      .algorithms = {"one_shot"},
                      .tails = tails_of_roundings(),
                      .ranks = {2},
                      .lengths = {1}});
  expect_conformance({.codecs = {"bf16"},
                      .algorithms = {"two_shot"},
                      .tails = tails_of_outputs({"qr-q4", "int8-g32", "int8-grow", "fp8-e4m3-g128",
                                                 "mxfp4", "nvfp4", "int3-g24", "bf16"}),
                      .ranks = {2},
                      .lengths = {1}});
}

/// E4m3 with a scale of each row or a given one: of rows in registers, of rows that are read again, of rows that end within a
/// thread's elements, and in Lamport slots. Other codecs where a message is one tile of two rows.
TEST(Tails, AreQuantizedInTheirKernel) {
  for (const int wave_size : {32, 64}) {
    emulator::configure({.wave_size = wave_size, .seed = 1});
    expect_conformance(
        {.codecs = {"bf16", "fp32"},
         .algorithms = {"one_shot", "two_shot"},
         .tails = tails_of(
             {"hidden=2880,residual=add,norm=rms,out=fp8-e4m3-token",
              "hidden=2880,norm=rms,out=fp8-e4m3-static0.05",
              "hidden=577,residual=add,out=fp8-e4m3-token", "hidden=577,out=fp8-e4m3-static0.5",
              "hidden=20000,norm=rms,out=fp8-e4m3-token", "hidden=1024,norm=rms,out=int8-g32",
              "hidden=1024,norm=rms,out=had-int4-g32", "hidden=6144,norm=rms,out=qr-q4"}),
         .ranks = {2},
         .lengths = {1, 2048}});
  }
}

/// The sum's codec and the output's may be those of programs, with scales of the message or without.
TEST(Tails, AtOwnersOfRows) {
  emulator::configure({.wave_size = 32, .seed = 1});
  for (const int ranks : {2, 3}) {
    const auto expect_owners = [&](std::vector<std::string> codecs,
                                   std::vector<std::string> algorithms,
                                   std::vector<std::string> tails) {
      expect_conformance({.codecs = std::move(codecs),
                          .algorithms = std::move(algorithms),
                          .tails = tails_of(tails),
                          .tails_at_owners = true,
                          .ranks = {ranks},
                          .lengths = {1, 6000}});
    };
    expect_owners({"bf16", "qr-q4"}, {"two_shot", "ring"},
                  {"hidden=576,residual=add,norm=rms,out=int8-g64",
                   "hidden=2880,residual=add,norm=rms,rounding=vllm"});
    expect_owners({"fp16"}, {"two_shot", "tree"},
                  {"hidden=577,residual=add", "hidden=576,norm=rms,offset=1,out=mxfp8-e4m3",
                   "hidden=576,out=nvfp4"});
  }
}

CollectiveRequest request_of(const char* algorithm, const char* tail) {
  const Tail parsed = parse_tail(tail);
  CollectiveRequest request{algorithm, "bf16", DType::bf16, std::size_t{2} * parsed.hidden};
  request.tail = parsed;
  return request;
}

std::string explained(const CollectiveRequest& request, const CommunicatorOptions& options = {}) {
  const auto group = host().make_group(2, options);
  const Result<std::string> why = group.value()->explain(request);
  return why.ok() ? why.value() : why.status().message();
}

TEST(Tails, SayWhichKernelHasThem) {
  const auto expect = [](const std::string& said, const std::string& part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  const CollectiveRequest norm = request_of("one_shot", "hidden=2048,residual=add,norm=rms");
  expect(explained(norm), "with the tail in it");
  expect(explained(norm, {.fuses_tails = false}), "without the tail in it: as asked");
  expect(explained(request_of("two_shot", "hidden=2048,norm=rms")),
         "without the tail in it: two_shot_lamport has none");
  expect(explained(request_of("one_shot", "hidden=504,norm=rms")), "not for rows of 504 elements");
  expect(explained(request_of("ring", "hidden=2048,norm=rms,out=int8-g32")),
         "then tail_rows, a block for each row, which it encodes by int8-g32");
  expect(explained(request_of("ring", "hidden=2040,norm=rms,out=int3-g24")),
         "then tail_rows, a block for each row; then int3-g24 encodes the rows");
  expect(explained(request_of("one_shot", "hidden=2048,norm=rms,out=fp8-e4m3-token")),
         "a scale of a whole row is found behind it");
  const auto at_owners = [](const char* algorithm, const char* tail) {
    CollectiveRequest request = request_of(algorithm, tail);
    request.tail_at_owners = true;
    return explained(request);
  };
  expect(at_owners("two_shot", "hidden=2048,norm=rms,out=int8-g32"),
         "program of bf16; then owners make their rows; then program of int8-g32");
  expect(at_owners("one_shot", "hidden=2048,norm=rms"), "allowed is the tail after it");
  expect(at_owners("two_shot", "hidden=2048,norm=rms,out=fp8-e4m3-token"), "has no kernels");
  expect(at_owners("two_shot", "hidden=2040,norm=rms,out=int3-g24"),
         "codec int3-g24 measures in kernels of its own");
  expect(at_owners("two_shot", "hidden=2048,norm=rms,out=int4-g32-stoch"),
         "kernels have none with codec int4-g32-stoch there");
  expect(explained(request_of("one_shot", "hidden=2048,norm=rms,sum=fp32")),
         "kernels round sums to bf16: allowed is sum=native");
  expect(explained(request_of("all_gather", "hidden=2048,norm=rms")), "allowed is an all-reduce");
  expect(explained(request_of("one_shot", "hidden=2060,norm=rms,out=qr-q4")),
         "rows of 2060 elements end within a block of qr-q4");
  CollectiveRequest part = norm;
  part.elements = 2049;
  expect(explained(part), "2049 elements are not whole rows of 2048");
}

/// A rank that does not come ends the waits of all blocks, also those for rows.
TEST(Tails, ARankThatDoesNotArriveIsNamed) {
  emulator::configure({.wave_size = 32, .seed = 1});
  const std::vector<int> devices = {0, 1};
  for (const char* algorithm : {"one_shot", "two_shot"}) {
    auto team = host().make_communicators(devices, {.timeout_nanoseconds = 50'000'000});
    const CollectiveRequest request = request_of(algorithm, "hidden=8192,residual=add,norm=rms");
    std::vector<std::uint16_t> x(request.elements);
    std::vector<std::uint16_t> residual(request.elements);
    RankCommunicator& rank = *team.value()[0];
    EXPECT_FALSE(rank.run(request, x.data(), x.data(), nullptr).ok());  // without its residual
    const TailTensors tail = {residual.data(), nullptr, residual.data(), nullptr};
    ASSERT_TRUE(rank.run(request, x.data(), x.data(), nullptr, tail).ok());
    const Status status = rank.synchronize(nullptr);
    EXPECT_NE(status.message().find("rank 1 did not arrive"), std::string::npos)
        << status.message();
  }
}

}  // namespace
}  // namespace arlab::kernels
