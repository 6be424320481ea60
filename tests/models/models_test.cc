// Parts of experiments/models by themselves: arithmetic, files, tokens, compressed sums.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "experiments/models/compressed.h"
#include "experiments/models/gguf.h"
#include "experiments/models/layers.h"
#include "experiments/models/model_files.h"
#include "experiments/models/perplexity.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/error.h"
#include "tests/models/tiny_model.h"
#include "tests/refusal.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab::models {
namespace {

std::vector<float> normals(std::size_t count, unsigned seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

TEST(Linear, EveryElementIsAChainOfFusedMultiplyAdds) {
  for (const auto& [rows, out, in, begin, end] : {std::array<std::size_t, 5>{1, 1, 1, 0, 1},
                                                  {13, 35, 700, 0, 700},
                                                  {6, 16, 300, 100, 289},
                                                  {97, 200, 40, 0, 40},
                                                  {5, 17, 9, 4, 4}}) {
    const auto x = normals(rows * in, 1);
    const auto w = normals(out * in, 2);
    const Matrix matrix(w, out, in);
    std::vector<float> y(rows * out, -1);
    multiply({x.data(), in}, rows, matrix, {begin, end}, {y.data(), out}, 2);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t o = 0; o < out; ++o) {
        float sum = 0;
        for (std::size_t i = begin; i < end; ++i) sum = std::fma(w[o * in + i], x[r * in + i], sum);
        ASSERT_EQ(y[r * out + o], sum) << r << " " << o;
        ASSERT_EQ(matrix.at(o, 0), w[o * in]);
      }
    }
  }
}

TEST(Linear, DivergenceAndSoftmaxAreThoseOfFloat64) {
  for (const float apart : {1e-4F, 1e-2F, 1.0F, 5.0F}) {
    const auto p = normals(5003, 3, 4);
    auto q = normals(5003, 4, apart);
    for (std::size_t i = 0; i < p.size(); ++i) q[i] += p[i];
    const auto exact_log_sum = [](std::span<const float> x) {
      double sum = 0;
      for (const float value : x) sum += std::exp(double{value});
      return std::log(sum);
    };
    const double of_p = exact_log_sum(p);
    const double of_q = exact_log_sum(q);
    EXPECT_NEAR(log_sum_exp(p), of_p, 1e-6);
    double exact = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      exact += std::exp(p[i] - of_p) * ((p[i] - of_p) - (q[i] - of_q));
    }
    EXPECT_NEAR(divergence(p, log_sum_exp(p), q, log_sum_exp(q)), exact, 2e-4 * exact);
    auto weights = p;
    softmax(weights);
    for (std::size_t i = 0; i < p.size(); i += 101) {
      EXPECT_NEAR(weights[i], std::exp(p[i] - of_p), 1e-5 * weights[i]);
    }
  }
  const auto p = normals(77, 5);
  EXPECT_EQ(divergence(p, log_sum_exp(p), p, log_sum_exp(p)), 0);
}

// ---------------------------------------------------------------- files

class Files : public testing::Test {
 protected:
  std::filesystem::path write(std::string_view name, const std::string& bytes) const {
    return folder_.write(name, bytes);
  }
  std::string refusal(const std::string& bytes) const {
    return refusal_of([&] { load_model(write("bad.gguf", bytes).string()); });
  }
  TemporaryDirectory folder_;
};

TEST_F(Files, BlocksOfEveryType) {
  // A scale of 0.5, where there is one a minimum of -2; codes 0, 1, 2, ... (fifth bits: 1 of element 3).
  std::string nibbles;
  for (int i = 0; i < 16; ++i) nibbles += static_cast<char>(i | (15 - i) << 4);
  const std::string scale("\x00\x38", 2);
  const std::string minimum("\x00\xC0", 2);
  const std::string fifth("\x08\x00\x00\x00", 4);
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(i - 16);
  GgufWriter w;
  w.tensor("q4_0", {32}, 2, scale + nibbles);
  w.tensor("q4_1", {32}, 3, scale + minimum + nibbles);
  w.tensor("q5_0", {32}, 6, scale + fifth + nibbles);
  w.tensor("q5_1", {32}, 7, scale + minimum + fifth + nibbles);
  w.tensor("q8_0", {32}, 8, scale + bytes);
  w.tensor("f16", {2}, 1, scale + minimum);
  w.tensor("bf16", {1}, 30, std::string("\x80\x3F", 2));
  const GgufFile file(write("types.gguf", w.file()));
  for (std::size_t i = 0; i < 32; ++i) {
    const float code = static_cast<float>(i < 16 ? i : 31 - i);
    const float more = i == 3 ? 16 : 0;
    EXPECT_EQ(file.read("q4_0")[i], 0.5F * (code - 8));
    EXPECT_EQ(file.read("q4_1")[i], 0.5F * code - 2);
    EXPECT_EQ(file.read("q5_0")[i], 0.5F * (code + more - 16));
    EXPECT_EQ(file.read("q5_1")[i], 0.5F * (code + more) - 2);
    EXPECT_EQ(file.read("q8_0")[i], 0.5F * (static_cast<float>(i) - 16));
  }
  EXPECT_EQ(file.read("f16"), (std::vector<float>{0.5F, -2}));
  EXPECT_EQ(file.read("bf16"), std::vector<float>{1});
}

TEST_F(Files, ACutFileIsRefusedWhereverItEnds) {
  const std::string whole = tiny_gguf();
  load_model(write("good.gguf", whole).string());
  for (std::size_t size = 0; size < whole.size() - 32; size += size < 300 ? 1 : 37) {
    EXPECT_NE(refusal(whole.substr(0, size)), "accepted") << size;
  }
}

TEST_F(Files, WhatIsNoLlamaIsNamed) {
  const auto replaced = [](const std::string& from, const std::string& to) {
    std::string bytes = tiny_gguf();
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  EXPECT_NE(refusal(replaced("llama", "mamba")).find("'mamba': only llama"), std::string::npos);
  EXPECT_NE(refusal(replaced("gpt2", "bert")).find("'bert': only gpt2"), std::string::npos);
  EXPECT_NE(refusal(replaced("smollm", "falcon")).find("'falcon': allowed are"), std::string::npos);
  EXPECT_NE(refusal(replaced("attn_k", "attn_z")).find("'blk.0.attn_k.weight' is missing"),
            std::string::npos);
  EXPECT_NE(refusal(replaced("ab c", "ab x")).find("merge 1 joins 'ab' and 'x'"),
            std::string::npos);
}

TEST_F(Files, TokensAreMergedTheMostUrgentPairFirst) {
  const LoadedModel model = load_model(write("good.gguf", tiny_gguf()).string());
  const Tokenizer& tokenizer = *model.tokenizer;
  EXPECT_EQ(tokenizer.encode("abcabdcab", "text"), (std::vector<TokenId>{7, 6, 3, 2, 6}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{7, 6, 3}), "abcabd");
  EXPECT_TRUE(tokenizer.encode("", "text").empty());
  expect_contains(message_of([&] { tokenizer.encode("abc a b", "text.txt"); }),
                  "text.txt: byte 3 is 0x20, for which the tokenizer of");
  EXPECT_THROW(tokenizer.encode("a\xff", "text"), InvalidInput);  // not UTF-8
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{8}), InvalidInput);
}

// ---------------------------------------------------------------- compressed sums

RunCollective reference(const std::string& codec, Rank ranks) {
  const CodecPtr found = find_codec(codec);
  return in_reference(
      [found, ranks](std::uint64_t elements) {
        return make_schedule(
            "two_shot",
            {.world_size = ranks, .elements = elements, .alignment = found->info().alignment});
      },
      found, found, DType::fp16, {.threads = 2});
}

TEST_F(Files, LayersThatAreNotSplitTakeNoPart) {
  const LoadedModel model = load_model(write("good.gguf", tiny_gguf()).string());
  const std::vector<TokenId> ids = {1, 2, 3};
  CompressedAllReduce none(2, 8, DType::fp16, {nullptr, nullptr}, 1);
  EXPECT_EQ(model.network.run(ids, &none, 1), model.network.run(ids, nullptr, 1));
  EXPECT_THROW(model.network.require_splits(3), InvalidInput);
  model.network.require_splits(4);
}

TEST(CompressedAllReduce, SumsAreThoseOfTheExecutor) {
  const std::size_t width = 64;
  const auto partial_sums = normals(4 * 3 * width, 6);
  CompressedAllReduce all(4, width, DType::fp16,
                          {std::make_shared<const RunCollective>(reference("int4-g32", 4))}, 1);
  std::vector<float> sum(3 * width);
  all.all_reduce(0, Projection::ffn_down, partial_sums, sum);

  const Tensor inputs = tensor_from_floats(DType::fp16, {4, 3, width}, partial_sums);
  Tensor outputs = make_tensor(DType::fp16, inputs.shape);
  reference("int4-g32", 4)(3 * width, inputs.data, outputs.data);
  double signal = 0;
  double error = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    ASSERT_EQ(sum[i], to_float(outputs, i));
    double exact = 0;
    for (std::size_t rank = 0; rank < 4; ++rank) exact += to_float(inputs, rank * 3 * width + i);
    signal += exact * exact;
    error += (sum[i] - exact) * (sum[i] - exact);
  }
  const SumFigures& figures = all.figures(0, Projection::ffn_down);
  EXPECT_NEAR(10 * std::log10(figures.signal / figures.error), 10 * std::log10(signal / error),
              1e-9);
  EXPECT_EQ(figures.token_sqnr_db.size(), 3U);
  EXPECT_TRUE(all.ranks_identical());
  EXPECT_TRUE(all.figures(0, Projection::attention_output).token_sqnr_db.empty());
}

// ---------------------------------------------------------------- figures

TEST(Perplexity, RestsBelow64TokensAreLeftOut) {
  const auto sizes = [](std::size_t tokens, std::size_t context) {
    std::vector<std::size_t> sizes;
    for (const auto& chunk : chunks_of(std::vector<TokenId>(tokens), context)) {
      sizes.push_back(chunk.size());
    }
    return sizes;
  };
  EXPECT_EQ(sizes(2111, 1024), (std::vector<std::size_t>{1024, 1024}));
  EXPECT_EQ(sizes(2112, 1024), (std::vector<std::size_t>{1024, 1024, 64}));
  EXPECT_EQ(sizes(63, 1024), std::vector<std::size_t>{});
  EXPECT_EQ(sizes(70, 32), (std::vector<std::size_t>{32, 32}));
}

/// Each value for one block of tokens.
std::vector<double> blocks_of_errors(std::initializer_list<double> values) {
  std::vector<double> tokens;
  for (const double value : values) tokens.insert(tokens.end(), kErrorBlock, value);
  return tokens;
}

TEST(Perplexity, Of100TokensThe99thIsTheOneThat1PercentExceed) {
  for (const std::size_t count : {1U, 99U, 100U, 101U, 200U}) {
    TokenFigures figures;
    figures.loss.assign(count, 1);
    figures.baseline_loss.assign(count, 1);
    for (std::size_t i = 0; i < count; ++i) figures.divergence.push_back(static_cast<double>(i));
    const double least = *summary_of(figures).p99_divergence;
    const auto above = [&](double limit) {
      return std::count_if(figures.divergence.begin(), figures.divergence.end(),
                           [&](double each) { return each > limit; });
    };
    EXPECT_LE(100 * above(least), static_cast<std::ptrdiff_t>(count));
    EXPECT_GT(100 * above(least - 1), static_cast<std::ptrdiff_t>(count)) << count;
  }
}

TEST(Perplexity, AShorterLastBlockWeighsLessAndOneBlockHasNoError) {
  TokenFigures figures;
  figures.loss = blocks_of_errors({1, 2});
  figures.loss.resize(kErrorBlock * 3 / 2);
  figures.baseline_loss = figures.divergence = figures.loss;
  const double mean = 4.0 / 3;
  const double first = kErrorBlock * (1 - mean);
  const double last = static_cast<double>(kErrorBlock) / 2 * (2 - mean);
  const double count = static_cast<double>(figures.loss.size());
  const PerplexitySummary s = summary_of(figures);
  EXPECT_NEAR(*s.perplexity_standard_error,
              std::exp(mean) * std::sqrt(2 * (first * first + last * last)) / count, 1e-9);
  EXPECT_EQ(*s.log_ratio_standard_error, 0);
  for (auto* list : {&figures.loss, &figures.baseline_loss, &figures.divergence}) {
    list->resize(kErrorBlock);
  }
  EXPECT_TRUE(summary_of(figures).perplexity);
  EXPECT_FALSE(summary_of(figures).perplexity_standard_error);
  EXPECT_FALSE(summary_of(figures).divergence_standard_error);
}

TEST(GreedyAssignments, TakesTheLeastDivergencePerBitFirst) {
  const double nan = std::nan("");
  // Three codecs of 8, 6 and 4 bits; layer 1 cannot do with 4 at all.
  const auto path =
      greedy_assignments({{0.0, 0.1, 0.3}, {0.0, 0.5, nan}, {0.2, 0.1, 0.1}}, {8, 6, 4});
  std::vector<std::vector<std::size_t>> codecs;
  for (const Assignment& each : path) codecs.push_back(each.codec_of_layer);
  EXPECT_EQ(codecs,
            (std::vector<std::vector<std::size_t>>{{0, 0, 2}, {1, 0, 2}, {2, 0, 2}, {2, 1, 2}}));
  EXPECT_NEAR(path[0].wire_bits, 20.0 / 3, 1e-12);
  EXPECT_NEAR(path[3].predicted_divergence, 0.9, 1e-12);
}

}  // namespace
}  // namespace arlab::models
