// The check of foreign all-reduces: right ones pass under the right name, and every way to be wrong
// that it knows of is caught. An all-reduce that is broken on purpose is the mutant here.

#include "kernels/conformance/all_reduce_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "reference/error.h"
#include "reference/formats/payload_arithmetic.h"

namespace arlab::kernels {
namespace {

const std::vector<std::size_t> kLengths = {1, 100, 2050, 4099};

/// arlab's own reference as the all-reduce under test.
Status reference(const AllReduceCall& call, const char* algorithm, const char* codec,
                 Accumulate accumulate = Accumulate::native) {
  std::vector<std::byte> inputs;
  for (std::size_t rank = 0; rank < call.regions.size(); ++rank) {
    const auto input = call.input(rank);
    inputs.insert(inputs.end(), input.begin(), input.end());
  }
  std::vector<std::byte> outputs(inputs.size());
  const CodecPtr found = find_codec(codec);
  execute(make_schedule(algorithm, {.world_size = static_cast<Rank>(call.regions.size()),
                                    .elements = call.elements,
                                    .alignment = found->info().alignment}),
          *found, call.dtype, inputs, outputs, {.sum = {.add = accumulate}});
  for (std::size_t rank = 0; rank < call.regions.size(); ++rank) {
    std::copy_n(&outputs[rank * call.tensor_bytes()], call.tensor_bytes(),
                call.output(rank).begin());
  }
  return {};
}

AllReduceCheckRequest request_of(int ranks, DType dtype = DType::fp16) {
  return {.ranks = ranks, .dtype = dtype, .lengths = kLengths};
}

AllReduceCheckReport checked(const AllReduce& all_reduce, const AllReduceCheckRequest& request) {
  auto report = check_all_reduce(all_reduce, request);
  EXPECT_TRUE(report.ok()) << report.status().message();
  if (!report.ok()) return {};
  static const std::regex kOneOfMany("([^f] |\\()1 (\\w+ )?(rank|run|byte|element)s");
  const std::string text = to_text(report.value());
  EXPECT_FALSE(std::regex_search(text, kOneOfMany)) << text;
  return report.value();
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string all_findings(const AllReduceCheckReport& report) {
  std::string all;
  for (const std::string& finding : report.findings) all += finding + "\n";
  return all;
}

void expect_found(const AllReduceCheckReport& report, const std::string& words) {
  const std::string all = all_findings(report);
  EXPECT_NE(all.find(words), std::string::npos) << words << "; found: " << all;
}

/// Runs the reference, then breaks what it did; expects that finding.
void expect_caught(const char* finding, AllReduceCheckRequest request,
                   const std::function<void(const AllReduceCall&)>& break_it) {
  const AllReduceCheckReport report = checked(
      [&](const AllReduceCall& call) {
        Status status = reference(call, "two_shot", name_of(call.dtype).data());
        break_it(call);
        return status;
      },
      request);
  expect_found(report, finding);
  EXPECT_FALSE(to_json(report)["passed"].get<bool>());
  EXPECT_NE(to_text(report).find("\nfailed: "), std::string::npos);
}

// ---------------------------------------------------------------- right ones

TEST(AllReduceCheck, KnowsTheReferencesAlgorithms) {
  struct Row {
    const char* algorithm;
    const char* codec;
    Accumulate accumulate;
    const char* name;
  };
  for (const Row& row : {Row{"one_shot", "fp16", Accumulate::native, "one_shot/fp16/native"},
                         Row{"two_shot", "fp16", Accumulate::fp32, "two_shot/fp16/fp32"},
                         Row{"ring", "fp16", Accumulate::native, "ring/fp16/native"},
                         Row{"one_shot", "fp16", Accumulate::exact, "nvls"},
                         Row{"two_shot", "fp16", Accumulate::exact, "two_shot/fp16/add=exact"},
                         Row{"two_shot", "qr-q4", Accumulate::native, "two_shot/qr-q4/native"}}) {
    for (const bool in_place : {false, true}) {
      AllReduceCheckRequest request = request_of(4);
      request.codec = row.codec;
      request.claim = row.name;
      request.in_place = in_place;
      const AllReduceCheckReport report = checked(
          [&](const AllReduceCall& call) {
            EXPECT_EQ(call.in_place(), in_place);
            return reference(call, row.algorithm, row.codec, row.accumulate);
          },
          request);
      EXPECT_TRUE(report.findings.empty()) << row.name << ": " << all_findings(report);
      EXPECT_TRUE(contains(report.exact_as(), row.name)) << to_text(report);
      EXPECT_TRUE(report.deterministic && report.ranks_identical);
      const std::string parts = row.name[0] == 'n' ? "" : " (algorithm/codec/sum)";
      EXPECT_EQ(verdict_of(report),
                std::string("passed: 4 ranks, fp16, claim ") + row.name + parts);
      EXPECT_EQ(report.calls, 3U * 3U * kLengths.size());
    }
  }
}

TEST(AllReduceCheck, OrdersOfSummation) {
  // A ring whose chunks are not arlab's, in bf16.
  const AllReduceCheckReport ring = checked(
      [](const AllReduceCall& call) {
        const std::size_t ranks = call.regions.size();
        for (std::size_t i = 0; i < call.elements; ++i) {
          float sum = 0;
          for (std::size_t k = 0; k < ranks; ++k) {
            std::uint16_t bits = 0;
            std::memcpy(&bits, &call.input((i / 7 + k) % ranks)[2 * i], 2);
            const float x = bfloat16_to_float(bits);
            sum = k == 0 ? x : bfloat16_to_float(bfloat16_from_float(sum + x));
          }
          const std::uint16_t bits = bfloat16_from_float(sum);
          for (std::size_t r = 0; r < ranks; ++r) std::memcpy(&call.output(r)[2 * i], &bits, 2);
        }
        return Status();
      },
      request_of(4, DType::bf16));
  EXPECT_TRUE(ring.findings.empty()) << all_findings(ring);
  EXPECT_EQ(ring.exact_as(), std::vector<std::string>{"ring_order/native"});

  // One addition: all orders are one, and the sum is exact.
  AllReduceCheckRequest two = request_of(2);
  two.claim = "exact_sum";
  const AllReduceCheckReport pair =
      checked([](const AllReduceCall& call) { return reference(call, "one_shot", "fp16"); }, two);
  EXPECT_TRUE(pair.findings.empty()) << all_findings(pair);
  EXPECT_TRUE(contains(pair.exact_as(), "tree_order/native")) << to_text(pair);
}

// ---------------------------------------------------------------- wrong ones

TEST(AllReduceCheck, AllZeroOutputs) {
  expect_caught("the output is all zero: rank 0", request_of(3), [](const AllReduceCall& call) {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      std::fill(call.output(rank).begin(), call.output(rank).end(), std::byte{0});
    }
  });
}

TEST(AllReduceCheck, OutputsThatAreNotWritten) {
  // Rank 1 writes all but its last element.
  std::byte before[2];
  auto report = checked(
      [&](const AllReduceCall& call) {
        std::copy_n(call.output(1).end() - 2, 2, before);
        Status status = reference(call, "two_shot", "fp16");
        std::copy_n(before, 2, call.output(1).end() - 2);
        return status;
      },
      request_of(2));
  expect_found(report, "the output is not written: rank 1, 1 of 1 elements");
  EXPECT_TRUE(report.deterministic);  // noise that was there is no result

  AllReduceCheckRequest request = request_of(2);
  request.in_place = true;
  report = checked([](const AllReduceCall&) { return Status(); }, request);
  expect_found(report, "the tensor is left as it was: rank 0");
}

TEST(AllReduceCheck, OneRankWrong) {
  expect_caught("on rank 2, and something else on 3 of 4 ranks", request_of(4),
                [](const AllReduceCall& call) { call.output(2)[0] ^= std::byte{1}; });
}

TEST(AllReduceCheck, NotDeterministic) {
  int calls = 0;
  expect_caught("not deterministic: run 2", request_of(2), [&](const AllReduceCall& call) {
    // The same on all ranks, and right to a bit.
    const auto noise = static_cast<std::byte>(calls++ >= 12);
    for (std::size_t rank = 0; rank < 2; ++rank) call.output(rank)[0] ^= noise;
  });
}

TEST(AllReduceCheck, WritesBehindTheEnd) {
  for (const bool in_place : {false, true}) {
    AllReduceCheckRequest request = request_of(2);
    request.in_place = in_place;
    expect_caught("writes behind the end of the output: rank 1", request,
                  [](const AllReduceCall& call) {
                    call.regions[1][call.output_at + call.tensor_bytes()] ^= std::byte{1};
                  });
  }
  expect_caught("writes to its input: rank 0", request_of(2),
                [](const AllReduceCall& call) { call.regions[0][call.input_at] ^= std::byte{1}; });
  expect_caught(
      "writes outside of the output: rank 0, 1 byte before it", request_of(2),
      [](const AllReduceCall& call) { call.regions[0][call.output_at - 1] ^= std::byte{1}; });
}

TEST(AllReduceCheck, WrongSums) {
  const auto all_outputs = [](const AllReduceCall& call, auto change) {
    for (std::size_t rank = 0; rank < call.regions.size(); ++rank) change(call.output(rank));
  };
  // A copy of rank 1's tensor instead of a sum.
  expect_caught("rank 0's contribution is missing", request_of(2), [&](const AllReduceCall& call) {
    all_outputs(call,
                [&](auto out) { std::copy_n(call.input(1).begin(), out.size(), out.begin()); });
  });
  // The wrong sign.
  expect_caught("the result is not the sum", request_of(2), [&](const AllReduceCall& call) {
    all_outputs(call, [](auto out) {
      for (std::size_t at = 1; at < out.size(); at += 2) out[at] ^= std::byte{0x80};
    });
  });
  // NaN and infinities become zero.
  expect_caught("NaN and infinities are lost", request_of(2), [&](const AllReduceCall& call) {
    all_outputs(call, [](auto out) {
      for (std::size_t at = 0; at < out.size(); at += 2) {
        if ((out[at + 1] & std::byte{0x7C}) == std::byte{0x7C})
          out[at] = out[at + 1] = std::byte{0};
      }
    });
  });
  // One element, one bit: only the claim tells.
  AllReduceCheckRequest request = request_of(2);
  request.claim = "two_shot/fp16/native";
  expect_caught("not two_shot/fp16/native as claimed: ", request, [&](const AllReduceCall& call) {
    if (call.elements == 100) all_outputs(call, [](auto out) { out[50] ^= std::byte{1}; });
  });
}

/// Sums in fp32 of how often each rank's contribution counts in an element.
template <class Weight>
Status weighted(const AllReduceCall& call, const Weight& weight) {
  const std::size_t ranks = call.regions.size();
  for (std::size_t reader = 0; reader < ranks; ++reader) {
    for (std::size_t i = 0; i < call.elements; ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, &call.input(r)[2 * i], 2);
        const float times = weight(i, r, reader);
        if (times != 0) sum += times * bfloat16_to_float(bits);
      }
      const std::uint16_t bits = bfloat16_from_float(sum);
      std::memcpy(&call.output(reader)[2 * i], &bits, 2);
    }
  }
  return {};
}

TEST(AllReduceCheck, ContributionsThatAreWrongInThePartsOfTheirOwnersOnly) {
  struct Layout {
    std::size_t tile;  // 0: an N-th each
    bool by_reader;
  };
  struct Mistake {
    float own, next;
    const char* words;
  };
  for (const std::size_t ranks : {2U, 4U, 8U}) {
    for (const Layout layout : {Layout{0, false}, Layout{1, false}, Layout{32, false},
                                Layout{256, false}, Layout{0, true}}) {
      if (ranks == 8 && layout.tile != 0) continue;
      for (const Mistake mistake :
           {Mistake{0, 1, "its own contribution is missing"},
            Mistake{2, 1, "its own contribution counts twice"}, Mistake{0, 2, "counts twice"}}) {
        AllReduceCheckRequest request = request_of(static_cast<int>(ranks), DType::bf16);
        request.lengths = {2048};
        const auto weight = [&](std::size_t i, std::size_t r, std::size_t reader) {
          const std::size_t owner = layout.by_reader   ? reader
                                    : layout.tile == 0 ? i * ranks / 2048 % ranks
                                                       : i / layout.tile % ranks;
          return r == owner ? mistake.own : r == (owner + 1) % ranks ? mistake.next : 1.0F;
        };
        SCOPED_TRACE(fmt::format("{} ranks, tiles of {}", ranks, layout.tile));
        expect_found(
            checked([&](const AllReduceCall& call) { return weighted(call, weight); }, request),
            mistake.words);
      }
    }
  }
}

TEST(AllReduceCheck, ListedCodecsAreNoMistakes) {
  for (const std::string& codec : listed_codecs(false)) {
    const CodecPtr found = find_codec(codec);
    if (!found->takes(DType::fp16) || found->info().needs_context()) continue;
    for (const Algorithm& algorithm : all_algorithms()) {
      for (const int ranks : {2, 8}) {
        if (algorithm.collective != Collective::all_reduce) continue;
        if (ranks == 2 && !algorithm.name.ends_with("_shot")) continue;
        AllReduceCheckRequest request = request_of(ranks);
        request.lengths = {520};
        request.runs = 2;
        // Two are found among all.
        if (codec != "logfmt2-g32" && codec != "int4-g32") request.codec = codec;
        const auto report = check_all_reduce(
            [&](const AllReduceCall& call) -> Status {
              try {
                return reference(call, algorithm.name.c_str(), codec.c_str());
              } catch (const InvalidInput& error) {
                return Status::error(error.what());
              }
            },
            request);
        if (!report.ok()) continue;  // it is not for so many ranks
        EXPECT_TRUE(report.value().findings.empty())
            << algorithm.name << ", " << codec << ", " << ranks
            << " ranks: " << all_findings(report.value());
      }
    }
  }
}

TEST(AllReduceCheck, AnSqnrBelowThatOfAllListedCodecs) {
  // A rank adds noise of its own, as large as the contribution.
  AllReduceCheckRequest request = request_of(2, DType::bf16);
  request.lengths = {2050};
  const AllReduceCheckReport report = checked(
      [](const AllReduceCall& call) {
        return weighted(call, [](std::size_t i, std::size_t, std::size_t) {
          return (i * 2654435761U >> 7 & 1) != 0 ? 1.9F : 0.1F;
        });
      },
      request);
  expect_found(report, "is below that of every listed codec on 2 ranks");
}

TEST(AllReduceCheck, SaysWhichOrdersTheInputsDoNotTellApart) {
  AllReduceCheckRequest request = request_of(4);
  request.claim = "two_shot/int4-g32/native";
  request.lengths = {1};
  const auto all_reduce = [](const AllReduceCall& call) {
    return reference(call, "two_shot", "int4-g32");
  };
  AllReduceCheckReport report = checked(all_reduce, request);
  EXPECT_FALSE(report.not_told_apart.empty());
  EXPECT_NE(to_text(report).find("not told apart   these inputs give the same bits, if "),
            std::string::npos);
  EXPECT_EQ(to_json(report)["not_told_apart"].size(), report.not_told_apart.size());
  // Many elements tell all of them apart.
  request.lengths = {65541};
  report = checked(all_reduce, request);
  EXPECT_TRUE(report.findings.empty() && report.not_told_apart.empty()) << to_text(report);
}

/// one_shot begins with a contribution, two_shot with 0: of two ranks only a -0 tells them apart.
TEST(AllReduceCheck, SaysWhatOnlySignsOfZeroTellApart) {
  const auto one_shot = [](const AllReduceCall& c) { return reference(c, "one_shot", "fp16"); };
  const std::string zeros = "20 of 37500 elements differ, only in the sign of zero";
  AllReduceCheckRequest request = request_of(2);
  for (const std::string sum : {"native", "order=own"}) {
    request.claim = "one_shot/fp16/" + sum;
    const auto same = checked(one_shot, request).not_told_apart;
    EXPECT_FALSE(contains(same, "it is " + request.claim));
    EXPECT_TRUE(contains(same, "it is tree_order/native") &&
                contains(same, "it is two_shot/fp16/" + sum + " (but " + zeros + ")"));
  }
  request.claim = "two_shot/fp16/native";
  expect_found(checked(one_shot, request), "as claimed: " + zeros + "; with 4099 ");
}

TEST(AllReduceCheck, CountPlaceAndExampleAreOfTheSameTensor) {
  AllReduceCheckRequest request = request_of(2);
  request.claim = "two_shot/fp16/native";
  const auto break_it = [](const AllReduceCall& call) {
    if (call.elements == 1) call.output(0)[0] ^= std::byte{1};
    for (std::size_t rank = 0; rank < 2 && call.elements == 2050; ++rank) {
      call.output(rank)[4092] ^= std::byte{1};
    }
  };
  expect_caught("; with 2050 gaussian elements per rank: 2 of 4100, first at rank 0, index 2046: ",
                request, break_it);
  expect_caught(", only in element 2046", request, break_it);
}

TEST(AllReduceCheck, InOneShotEachRankAddsAllContributionsItself) {
  AllReduceCheckRequest request = request_of(3, DType::bf16);
  request.claim = "one_shot/bf16/fp32";
  const auto of_others = [](auto, auto r, auto reader) { return r == reader ? 0.0F : 1.0F; };
  const auto report =
      checked([&](const AllReduceCall& call) { return weighted(call, of_others); }, request);
  expect_found(report, "each rank adds all contributions itself, and its own is missing");
  expect_found(report, "in what each rank adds, its own contribution is missing");
  EXPECT_EQ(all_findings(report).find("owner"), std::string::npos);
}

TEST(AllReduceCheck, AWrongClaim) {
  AllReduceCheckRequest request = request_of(4);
  request.claim = "ring/fp16/native";
  const AllReduceCheckReport report = checked(
      [](const AllReduceCall& call) { return reference(call, "two_shot", "fp16"); }, request);
  expect_found(report, "not ring/fp16/native as claimed");
  EXPECT_TRUE(contains(report.exact_as(), "two_shot/fp16/native"));
}

// ---------------------------------------------------------------- requests and reports

TEST(AllReduceCheck, BadRequests) {
  const AllReduce none = [](const AllReduceCall&) { return Status(); };
  const auto message_of = [&](const AllReduceCheckRequest& request) {
    const auto report = check_all_reduce(none, request);
    return report.ok() ? std::string() : report.status().message();
  };
  EXPECT_EQ(message_of({.ranks = 1}), "1 rank: allowed are 2 to 64");
  EXPECT_NE(message_of({.runs = 1}).find("1 run: allowed are 2 to 100"), std::string::npos);
  EXPECT_NE(message_of({.lengths = {0}}).find("a length is 0"), std::string::npos);
  EXPECT_NE(message_of({.codec = "qr-q5"}).find("unknown codec"), std::string::npos);
  EXPECT_EQ(message_of({.codec = "bf16"}), "codec bf16 does not take fp16");
  EXPECT_NE(message_of({.claim = "ring"}).find("unknown claim 'ring': did you mean 'ring/fp16/"),
            std::string::npos);
}

TEST(AllReduceCheck, AnErrorOfTheAllReduceEndsTheCheck) {
  const auto report = check_all_reduce(
      [](const AllReduceCall&) { return Status::error("no such device"); }, request_of(2));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().message(),
            "the all-reduce failed (1 gaussian element per rank): no such device");
}

TEST(AllReduceCheck, Json) {
  const auto json =
      to_json(checked([](const AllReduceCall& call) { return reference(call, "one_shot", "fp16"); },
                      request_of(2)));
  EXPECT_EQ(json["schema"], "arlab.judge/1");
  EXPECT_TRUE(json["passed"].get<bool>());
  EXPECT_TRUE(json["claim"].is_null());
  EXPECT_EQ(json["errors"].size(), 3U);
  EXPECT_EQ(json["contributions"].size(), 2U);
  EXPECT_GT(json["candidates"].size(), 8U);
}

}  // namespace
}  // namespace arlab::kernels
