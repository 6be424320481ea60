// Time of a model: counts of operations by hand, times by hand on a device of round numbers, what
// must hold of any, and model files that are wrong.

#include "sim/workload/model_time.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reference/codecs/registry.h"
#include "sim/device/kernel_model.h"
#include "sim/simulator.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

/// Three layers; `more`: other keys, each with a comma before it.
ModelShape small_model(const std::string& more = "") {
  return parse_model(
      R"({"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
          "intermediate_size": 16, "vocab_size": 32)" +
          more + "}",
      false, "small");
}
constexpr const char* kWindow =
    R"(, "sliding_window": 2, "layer_types": ["sliding_attention", "full_attention", "full_attention"])";
constexpr const char* kFourExperts = R"(, "num_experts": 4, "num_experts_per_tok": 2)";

/// Returns the last layer's operations.
std::vector<Operation> layer_of(const ModelShape& model, const InferenceStep& step) {
  return operations_of_layer(model, model.kinds().back(), step);
}

/// Two prompts of three tokens on two ranks.
InferenceStep small_step() { return {.batch = 2, .tokens = 3, .ranks = 2}; }

const Operation& operation(const std::vector<Operation>& all, const std::string& name) {
  for (const Operation& each : all) {
    if (each.name == name) return each;
  }
  throw std::out_of_range(name);
}

void expect_counts(const Operation& operation, double flop, double bytes) {
  EXPECT_EQ(operation.flop, flop) << operation.name;
  EXPECT_EQ(operation.bytes, bytes) << operation.name;
}

// ---------------------------------------------------------------- counts by hand

// 6 rows; of a rank: 4 elements of q, 2 of k and of v, 8 of the feed-forward part. bf16: 2 bytes.
TEST(Layer, CountsOfAPromptAreThoseByHand) {
  const auto layer = layer_of(small_model(), small_step());
  ASSERT_EQ(layer.size(), 11u);
  expect_counts(operation(layer, "attention norm"), 0, 2 * 4 * 6 * 8);
  expect_counts(operation(layer, "qkv"), 2 * 6 * 8 * 8, 2 * (8 * 8 + 6 * 8 + 6 * 8));
  expect_counts(operation(layer, "rope"), 0, 2 * 2 * 6 * 8);
  // 1 + 2 + 3 pairs of tokens in each prompt, 4 FLOP per pair and element of q.
  expect_counts(operation(layer, "attention"), 4 * 12 * 4, 2 * (2 * 6 * 4 + 2 * 6 * 2));
  expect_counts(operation(layer, "attention out"), 2 * 6 * 4 * 8, 2 * (4 * 8 + 6 * 4 + 6 * 8));
  expect_counts(operation(layer, "ffn norm"), 0, 2 * 4 * 6 * 8);
  expect_counts(operation(layer, "gate and up"), 2 * 6 * 8 * 16, 2 * (8 * 16 + 6 * 8 + 6 * 16));
  expect_counts(operation(layer, "silu"), 0, 2 * 3 * 6 * 8);
  expect_counts(operation(layer, "down"), 2 * 6 * 8 * 8, 2 * (8 * 8 + 6 * 8 + 6 * 8));
  for (const char* name : {"attention all-reduce", "ffn all-reduce"}) {
    EXPECT_EQ(operation(layer, name).elements, 6u * 8);
    EXPECT_EQ(operation(layer, name).collective, Collective::all_reduce);
    EXPECT_TRUE(operation(layer, name).encoded);
  }
}

TEST(Layer, CountsOfATokenAreThoseByHand) {
  InferenceStep step = small_step();
  step.phase = Phase::decode;
  const auto layer = layer_of(small_model(), step);
  expect_counts(operation(layer, "qkv"), 2 * 2 * 8 * 8, 2 * (8 * 8 + 2 * 8 + 2 * 8));
  // The new token looks at 4, itself among them; all their keys and values are read.
  expect_counts(operation(layer, "attention"), 4 * 8 * 4, 2 * (2 * 2 * 4 + 2 * 8 * 2));
  EXPECT_EQ(operation(layer, "ffn all-reduce").elements, 2u * 8);
}

TEST(Layer, WeightsAreReadWithTheirBits) {
  ModelShape model = small_model();
  model.weights.of(WeightKind::attention) = 8;
  model.weights.of(WeightKind::dense) = 4;
  const auto layer = layer_of(model, small_step());
  expect_counts(operation(layer, "qkv"), 2 * 6 * 8 * 8, 8 * 8 + 2 * (6 * 8 + 6 * 8));
  expect_counts(operation(layer, "gate and up"), 2 * 6 * 8 * 16, 8 * 16 / 2 + 2 * (6 * 8 + 6 * 16));
  model.weights.of(WeightKind::head) = 8;
  expect_counts(operations_of_head(model, small_step()).back(), 2 * 2 * 8 * 16,
                8 * 16 + 2 * (2 * 8 + 2 * 16));
}

// A rank of two has 32 of q, of o, of k and v together, 192 of the feed-forward part in each layer; 128 of the embedding and of
// the head. Two heads of keys and values: one each, of 2 elements.
TEST(Layer, MemoryIsThatByHand) {
  ModelShape model = small_model(kWindow);
  InferenceStep step = small_step();
  EXPECT_EQ(memory_of(model, step).weights, 2 * (3 * 288 + 256));
  // Tokens of two prompts: 2 in the layer with a window, 3 in the others, of 4 elements each.
  EXPECT_EQ(memory_of(model, step).kept, 2 * 4 * 2 * (2 + 3 + 3));
  step.phase = Phase::decode;
  EXPECT_EQ(memory_of(model, step).kept, 2 * 4 * 2 * (2 + 4 + 4));
  step.lengths = {1, 7};
  EXPECT_EQ(memory_of(model, step).kept, 2 * 4 * ((2 + 2 + 2) + (2 + 8 + 8)));
  // Four ranks have copies of the keys.
  step = small_step();
  step.ranks = 4;
  EXPECT_EQ(memory_of(model, step).weights, 2 * (3 * (16 + 16 + 32 + 96) + 128));
  EXPECT_EQ(memory_of(model, step).kept, 2 * 4 * 2 * (2 + 3 + 3));
  model.weights.of(WeightKind::dense) = 4;
  EXPECT_EQ(memory_of(model, step).weights, 2 * (3 * (16 + 16 + 32) + 128) + 3 * 96 / 2);
}

TEST(Layer, OneRankDoesAllAndSendsNothing) {
  InferenceStep step = small_step();
  step.ranks = 1;
  const auto alone = layer_of(small_model(), step);
  const auto shared = layer_of(small_model(), small_step());
  EXPECT_EQ(alone.size() + 2, shared.size());
  for (const char* name : {"qkv", "attention", "attention out", "gate and up", "down"}) {
    EXPECT_EQ(operation(alone, name).flop, 2 * operation(shared, name).flop) << name;
  }
}

TEST(Layer, SeparateKernelsMoveMore) {
  InferenceStep step = small_step();
  step.kernels = Kernels::separate;
  step.attention = false;
  const auto layer = layer_of(small_model(), step);
  ASSERT_EQ(layer.size(), 12u);
  expect_counts(operation(layer, "attention norm"), 0, 2 * 2 * 6 * 8);
  expect_counts(operation(layer, "copy of q"), 0, 2 * 2 * 6 * 4);
  expect_counts(operation(layer, "attention residual"), 0, 2 * 3 * 6 * 8);
  expect_counts(operation(layer, "silu"), 0, 2 * 5 * 6 * 8);
  EXPECT_EQ(operation(layer, "silu").kernels, 2u);
}

// 6 rows are 3 per rank, which go to 2 of 4 experts of width 16; a rank has 2 of these.
TEST(Layer, CountsOfExpertsAreThoseByHand) {
  const auto layer = layer_of(small_model(kFourExperts), small_step());
  expect_counts(operation(layer, "router"), 2 * 3 * 8 * 4, 2 * (8 * 4 + 3 * 8 + 3 * 4));
  EXPECT_EQ(operation(layer, "dispatch").collective, Collective::all_to_all);
  EXPECT_EQ(operation(layer, "dispatch").elements, 3u * 2 * 8);
  EXPECT_TRUE(operation(layer, "dispatch").encoded);
  EXPECT_FALSE(operation(layer, "combine").encoded);
  EXPECT_EQ(operation(layer, "all-gather").elements, 6u * 8);
  // 6 rows at a rank's experts; each expert is chosen by none of 6 tokens with 1/2^6.
  const double read = 2 * (1 - 1.0 / 64);
  expect_counts(operation(layer, "experts: gate and up"), 2 * 6 * 8 * 32,
                2 * (read * 8 * 32 + 6 * 8 + 6 * 32));
  EXPECT_EQ(operation(layer, "experts: down").flop, 2 * 6 * 16 * 8);
}

// Two groups of two ranks with 6 rows each: 3 rows of a rank, which go to 2 of 4 experts on 4 ranks.
TEST(Layer, GroupsExchangeTokensOrAddUpCutExperts) {
  const ModelShape model = small_model(kFourExperts);
  InferenceStep step = small_step();
  step.groups = 2;
  const auto exchanged = layer_of(model, step);
  EXPECT_EQ(operation(exchanged, "attention all-reduce").ranks, 2u);
  EXPECT_EQ(operation(exchanged, "dispatch").ranks, 4u);
  EXPECT_EQ(operation(exchanged, "dispatch").elements, 3u * 2 * 8);
  EXPECT_EQ(operation(exchanged, "all-gather").elements, 6u * 8);
  // Each of 12 rows goes to two experts, 6 to the one of a rank, which none of 12 chooses with 1/2^12.
  const double read = 1 - 1.0 / 4096;
  expect_counts(operation(exchanged, "experts: gate and up"), 2 * 6 * 8 * 32,
                2 * (read * 8 * 32 + 6 * 8 + 6 * 32));
  // Two ranks for each expert: half of its width, of all rows that chose one of two experts.
  step.experts_over = 2;
  const auto cut = layer_of(model, step);
  EXPECT_THROW(operation(cut, "dispatch"), std::out_of_range);
  EXPECT_EQ(operation(cut, "tokens all-gather").elements, 12u * 8);
  EXPECT_EQ(operation(cut, "ffn all-reduce").elements, 12u * 8);
  EXPECT_EQ(operation(cut, "ffn all-reduce").ranks, 4u);
  EXPECT_EQ(operation(cut, "experts: gate and up").flop, 2 * 12 * 8 * 16);
  EXPECT_EQ(operation(cut, "router").flop, 2 * 12 * 8 * 4);
  // Weights of a rank are a quarter of all experts, however these are cut.
  const double of_layer = 16 + 16 + 32 + 32 + 8 * 4 + 4 * 3 * 8 * 16 / 4;
  EXPECT_EQ(memory_of(model, step).weights, 2 * (3 * of_layer + 256));
  // Input and output of 6 rows, the largest product's operands, 12 rows sent and received.
  EXPECT_EQ(memory_of(model, step).buffers, 2 * (2 * 6 * 8 + 12 * (8 + 16) + 2 * 12 * 8));
}

TEST(Layer, AWindowIsAllThatATokenLooksAt) {
  const ModelShape model = small_model(kWindow);
  InferenceStep step = small_step();
  ASSERT_EQ(model.kinds().size(), 2U);
  const LayerKind windowed = model.kinds().front();
  EXPECT_EQ(windowed.count, 1U);
  EXPECT_EQ(model.kinds().back().count, 2U);
  // 1 + 2 + 2 pairs of tokens in each prompt; all keys and values are read.
  expect_counts(operation(operations_of_layer(model, windowed, step), "attention"), 4 * 10 * 4,
                2 * (2 * 6 * 4 + 2 * 6 * 2));
  step.phase = Phase::decode;
  expect_counts(operation(operations_of_layer(model, windowed, step), "attention"), 4 * 4 * 4,
                2 * (2 * 2 * 4 + 2 * 4 * 2));
  expect_counts(operation(layer_of(model, step), "attention"), 4 * 8 * 4,
                2 * (2 * 2 * 4 + 2 * 8 * 2));
}

TEST(Layer, FirstOnesWithoutExpertsHaveAWidthOfTheirOwn) {
  const ModelShape model = small_model(
      R"(, "num_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
          "moe_intermediate_size": 16, "intermediate_size": 32)");
  const auto first = operations_of_layer(model, model.kinds().front(), small_step());
  EXPECT_EQ(operation(first, "down").flop, 2 * 6 * 16 * 8);
  EXPECT_EQ(operation(layer_of(model, small_step()), "experts: down").flop, 2 * 6 * 16 * 8);
}

// 4 heads, 2 of a rank, whose queries and keys have 2 elements without and 1 with positions, values 2;
// vectors of 5 for queries and of 3, with 1 that knows positions, for keys and values.
TEST(Layer, CountsOfLatentAttentionAreThoseByHand) {
  const ModelShape model = small_model(
      R"(, "kv_lora_rank": 3, "q_lora_rank": 5, "qk_nope_head_dim": 2, "qk_rope_head_dim": 1,
          "v_head_dim": 2)");
  InferenceStep step = small_step();
  const auto prompt = layer_of(model, step);
  expect_counts(operation(prompt, "q and kv down"), 2 * 6 * 8 * 9, 2 * (8 * 9 + 6 * 8 + 6 * 9));
  expect_counts(operation(prompt, "latent norm"), 0, 2 * 2 * 6 * 8);
  expect_counts(operation(prompt, "q up"), 2 * 6 * 5 * 6, 2 * (5 * 6 + 6 * 5 + 6 * 6));
  expect_counts(operation(prompt, "rope"), 0, 2 * 2 * 6 * 3);
  expect_counts(operation(prompt, "kv up"), 2 * 6 * 3 * 8, 2 * (3 * 8 + 6 * 3 + 6 * 8));
  // 12 pairs: 3 products and 2 sums for each of 2 heads.
  expect_counts(operation(prompt, "attention"), 2 * 12 * 2 * 5, 2 * (6 * 10 + 6 * 10));
  expect_counts(operation(prompt, "attention out"), 2 * 6 * 4 * 8, 2 * (4 * 8 + 6 * 4 + 6 * 8));
  step.phase = Phase::decode;
  const auto token = layer_of(model, step);
  expect_counts(operation(token, "q to latent"), 2 * 2 * 2 * 2 * 3,
                2 * (2 * 2 * 3 + 4 * 2 + 4 * 3));
  // All heads look at the 4 elements that are kept of each of 4 tokens.
  expect_counts(operation(token, "attention"), 2 * 8 * 2 * (4 + 3), 2 * (2 * 2 * (4 + 3) + 8 * 4));
  expect_counts(operation(token, "latent to v"), 2 * 2 * 2 * 3 * 2,
                2 * (2 * 3 * 2 + 4 * 3 + 4 * 2));
  EXPECT_THROW(operation(token, "kv up"), std::out_of_range);
}

TEST(Model, ParametersAreThoseOfItsName) {
  const auto billions = [](const char* name) { return find_model(name).parameters() / 1e9; };
  EXPECT_NEAR(billions("llama-3-8b"), 8.03, 0.005);
  EXPECT_NEAR(billions("llama-3-70b"), 70.55, 0.01);
  EXPECT_NEAR(billions("llama-2-70b"), 68.98, 0.01);
  EXPECT_NEAR(billions("mistral-7b"), 7.25, 0.005);
  EXPECT_NEAR(billions("mixtral-8x7b"), 46.70, 0.01);
  EXPECT_NEAR(billions("qwen2.5-72b"), 72.71, 0.02);
  EXPECT_NEAR(billions("qwen3-8b"), 8.19, 0.01);
  EXPECT_NEAR(billions("qwen3-32b"), 32.76, 0.01);
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 30.53, 0.01);
  EXPECT_NEAR(billions("smollm2"), 0.1345, 0.0005);
}

/// Published numbers of DeepSeek-V3 are in arXiv 2412.19437, of gpt-oss in arXiv 2508.10925, table 1, of Qwen3 in arXiv
/// 2505.09388 and on its pages on Hugging Face.
TEST(Model, ParametersOfExpertsAreWhatIsPublished) {
  struct Published {
    const char* name;
    double total;
    double active;
    double digit;  ///< the last one that is given
  };
  // gpt-oss counts biases, too, of which there are 0.04 and 0.007 billion.
  for (const auto& [name, total, active, digit] : {Published{"deepseek-v3", 671, 37, 1},
                                                   {"qwen3-235b-a22b", 235, 22, 1},
                                                   {"gpt-oss-120b", 116.83, 5.13, 0.1},
                                                   {"gpt-oss-20b", 20.91, 3.61, 0.1}}) {
    const ModelShape model = find_model(name);
    EXPECT_NEAR(model.parameters() / 1e9, total, digit / 2) << name;
    EXPECT_NEAR(model.active_parameters() / 1e9, active, digit / 2) << name;
  }
  // The published number must have counted the embedding as active, and then lost a digit.
  const ModelShape model = find_model("qwen3-30b-a3b");
  const double embedding = double(model.hidden) * model.vocabulary;
  EXPECT_NEAR(model.parameters() / 1e9, 30.5, 0.05);
  EXPECT_NEAR((model.active_parameters() + embedding) / 1e9, 3.35, 0.005);
}

TEST(Model, IsThatOfItsConfig) {
  for (const char* name :
       {"deepseek-v3", "gpt-oss-20b", "gpt-oss-120b", "qwen3-235b-a22b", "qwen3-30b-a3b"}) {
    ModelShape file = find_model(fmt::format("{}/{}.json", ARLAB_MODELS, name));
    const ModelShape listed = find_model(name);
    file.name = listed.name;
    file.source = listed.source;
    EXPECT_EQ(file, listed) << name;
  }
}

// ---------------------------------------------------------------- times

/// 100 TFLOPS and 1 TB/s, half of which is reached; 1 us per kernel.
Topology round_machine(double gb_per_s = 100) {
  Topology t = machine(TopologyKind::switched, 8);
  t.link_types.front().bandwidth_gb_per_s.value = gb_per_s;
  t.device.hbm_gb_per_s.value = 1000;
  t.device.compute = Compute{};
  t.device.compute->bf16_tflops.value = 100;
  t.device.compute->gemm_efficiency.value = 0.5;
  t.device.compute->attention_efficiency.value = 0.25;
  t.device.compute->memory_efficiency.value = 0.5;
  t.device.compute->kernel_us.value = 1;
  return t;
}

Communication by_codec(const std::string& name) { return {.codec = find_codec(name)}; }

ModelTime time_of(const InferenceStep& step, const Topology& t, const std::string& codec = "bf16",
                  Overlap overlap = Overlap::none, const char* model = "llama-3-8b") {
  return model_time(find_model(model), step, by_codec(codec), t, overlap);
}

TEST(Roofline, TimesAreThoseByHand) {
  const Device device = round_machine().device;
  Operation op{.name = "x", .kind = OperationKind::gemm, .flop = 5e9, .bytes = 5e6, .kernels = 2};
  EXPECT_DOUBLE_EQ(roofline(op, device).us, 2 + 100) << "5e9 / 50e12";
  EXPECT_EQ(roofline(op, device).bound, "compute");
  op.bytes = 1e8;
  EXPECT_DOUBLE_EQ(roofline(op, device).us, 2 + 200) << "1e8 / 500e9";
  EXPECT_EQ(roofline(op, device).bound, "memory");
  op.kind = OperationKind::attention;
  op.bytes = 0;
  EXPECT_DOUBLE_EQ(roofline(op, device).us, 2 + 200) << "5e9 / 25e12";
  op.kind = OperationKind::elementwise;
  op.bytes = 5e6;
  EXPECT_DOUBLE_EQ(roofline(op, device).us, 2 + 10);
}

/// Two norms less in every layer but the first one's, each of which was a kernel; all-reduces take more.
TEST(ModelTime, TailsTakeThePlaceOfNormsBehindAllReduces) {
  InferenceStep step{.phase = Phase::decode, .batch = 4, .ranks = 8};
  const Topology t = round_machine();
  const ModelShape shape = find_model("llama-3-8b");
  const auto count = [&](const ModelTime& time, const char* part) {
    double all = 0;
    for (const TimedOperation& each : time.operations) {
      if (each.operation.name.find(part) != std::string::npos) all += each.count;
    }
    return all;
  };
  const ModelTime fused = time_of(step, t);
  step.kernels = Kernels::tails;
  const ModelTime tails = time_of(step, t);
  const auto layers = static_cast<double>(shape.layers.size());
  EXPECT_EQ(count(fused, "norm"), 2 * layers + 1);
  EXPECT_EQ(count(tails, "norm"), 1);
  EXPECT_EQ(count(tails, "all-reduce"), 2 * layers);
  const TailWork work = tail_work(4 * shape.hidden, DType::bf16, true, nullptr);
  const double added = 2 * layers * fused_tail_us(t.device, DType::bf16, work);
  EXPECT_NEAR(tails.communication_us - fused.communication_us, added, 1e-6 * added);
  EXPECT_NE(refusal_of([&] { time_of(step, t, "bf16", Overlap::batches); }).find("kernels tails"),
            std::string::npos);
  // Where experts are exchanged, a gather ends the layer.
  step.phase = Phase::prefill;
  EXPECT_EQ(count(time_of(step, t, "bf16", Overlap::none, "mixtral-8x7b"), "attention norm"), 32);
}

TEST(ModelTime, IsTheSumOfItsParts) {
  for (const Phase phase : kPhases) {
    for (const Overlap overlap : kOverlaps) {
      for (const char* model : {"llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"}) {
        const InferenceStep step{.phase = phase, .batch = 3, .tokens = 100, .ranks = 8};
        const ModelTime time = time_of(step, round_machine(), "qr-q8", overlap, model);
        double compute = 0;
        double communication = 0;
        for (const TimedOperation& each : time.operations) {
          const bool sent = each.operation.kind == OperationKind::communication;
          (sent ? communication : compute) += each.count * each.us;
        }
        EXPECT_NEAR(time.compute_us, compute, 1e-6 * compute);
        EXPECT_NEAR(time.communication_us + time.hidden_us, communication, 1e-6 * communication);
        EXPECT_NEAR(time.total_us, time.compute_us + time.communication_us, 1e-6 * time.total_us);
        double end = 0;
        for (const OperationSpan& span : time.spans) end = std::max(end, span.end);
        EXPECT_NEAR(end, time.total_us, 1e-6 * end);
        EXPECT_GT(time.communication_us, 0);
        EXPECT_EQ(time.hidden_us > 1e-6 * communication, overlap == Overlap::batches);
      }
    }
  }
}

TEST(ModelTime, CommunicationIsThatOfTheSimulator) {
  const Topology t = round_machine();
  const CodecPtr codec = find_codec("qr-q4");
  const ScheduleRequest request{
      .world_size = 8, .elements = 256 * 4096, .alignment = codec->info().alignment};
  const double once =
      simulate({find_algorithm("two_shot"), request, *codec, DType::bf16, t}).latency_us;
  const ModelTime time = time_of({.tokens = 256, .ranks = 8}, t, "qr-q4");
  EXPECT_NEAR(time.communication_us, 64 * once, 1e-6 * time.communication_us);
}

TEST(ModelTime, FasterMachinesAndFewerTokensAreNeverSlower) {
  for (const Phase phase : kPhases) {
    const InferenceStep step{.phase = phase, .batch = 2, .tokens = 512, .ranks = 8};
    const double base = time_of(step, round_machine()).total_us;
    EXPECT_LT(time_of(step, round_machine(200)).total_us, base);
    Topology faster = round_machine();
    faster.device.compute->bf16_tflops.value *= 2;
    EXPECT_LE(time_of(step, faster).total_us, base);
    faster = round_machine();
    faster.device.hbm_gb_per_s.value *= 2;
    EXPECT_LT(time_of(step, faster).total_us, base);
    for (const std::uint64_t tokens : {1, 100, 511}) {
      InferenceStep less = step;
      less.tokens = tokens;
      EXPECT_LE(time_of(less, round_machine()).total_us, base) << tokens;
    }
    InferenceStep alone = step;
    alone.batch = 1;
    EXPECT_LT(time_of(alone, round_machine()).total_us, base);
    const double overlapped = time_of(step, round_machine(), "bf16", Overlap::batches).total_us;
    EXPECT_GT(overlapped, time_of(step, round_machine(), "bf16", Overlap::batches).compute_us);
  }
}

TEST(ModelTime, ProductsHaveWhatCollectivesLeave) {
  Topology t = find_topology("h200-8");
  const InferenceStep step{.batch = 8, .tokens = 1024, .ranks = 8};
  const auto time = [&](std::uint32_t multiprocessors, Overlap overlap = Overlap::batches) {
    Communication communication = by_codec("qr-q8");
    communication.multiprocessors = multiprocessors;
    return model_time(find_model("llama-3-70b"), step, communication, t, overlap);
  };
  const ModelTime bound = time(0);
  EXPECT_EQ(bound.taken_us, 0);
  for (const std::uint32_t multiprocessors : {16, 32, 64}) {
    const ModelTime found = time(multiprocessors);
    EXPECT_GT(found.taken_us, 0);
    EXPECT_GT(found.total_us, bound.total_us);
    EXPECT_NEAR(found.compute_us - found.taken_us, bound.compute_us, 1e-6 * bound.compute_us);
    double end = 0;
    for (const OperationSpan& span : found.spans) end = std::max(end, span.end);
    EXPECT_NEAR(end, found.total_us, 1e-6 * end);
  }
  // One after the other, nothing is beside a product, and collectives are slower on few.
  EXPECT_EQ(time(32, Overlap::none).taken_us, 0);
  EXPECT_GT(time(32, Overlap::none).communication_us, time(0, Overlap::none).communication_us);
  expect_contains(message_of([&] { time(133); }), "device 'NVIDIA H200 SXM' has 1 to 132");
  t.device.blocks.reset();
  expect_contains(message_of([&] { time(8); }), "needed is blocks.multiprocessors");
}

TEST(ModelTime, TheTraceHasOneLayerWithoutGaps) {
  const ModelTime time = time_of({.tokens = 64, .ranks = 8}, round_machine());
  const auto json = nlohmann::json::parse(layer_trace(time, "t"));
  double now = 0;
  int spans = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_NEAR(event["ts"].get<double>(), now, 1e-6);
    now += event["dur"].get<double>();
    EXPECT_EQ(event["tid"], event["cat"] == "communication" ? 2 : 1);
    ++spans;
  }
  EXPECT_EQ(spans, 11);
}

TEST(ModelTime, WhatCannotBeIsRefused) {
  const InferenceStep step{.tokens = 8, .ranks = 8};
  Topology t = round_machine();
  InferenceStep wrong = step;
  wrong.dtype = DType::fp32;
  expect_contains(message_of([&] { time_of(wrong, t, "fp32"); }), "allowed are fp16, bf16");
  wrong = step;
  wrong.ranks = 16;
  expect_contains(message_of([&] { time_of(wrong, t); }), "16 ranks are more than the 8");
  wrong.ranks = 7;
  expect_contains(message_of([&] { time_of(wrong, t); }), "7 ranks do not divide its 4096");
  expect_contains(message_of([&] { time_of(step, t, "bf16", Overlap::batches); }), "at least 2");
  Communication broadcast = by_codec("bf16");
  broadcast.algorithm = "broadcast";
  expect_contains(message_of([&] { model_time(find_model("llama-3-8b"), step, broadcast, t); }),
                  "algorithm 'broadcast' does no all-reduce");
  t.device.compute.reset();
  expect_contains(message_of([&] { time_of(step, t); }), "has no section [compute]");
}

// ---------------------------------------------------------------- model files

constexpr const char* kConfig = R"({"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 8,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 16, "vocab_size": 32,
  "rope_theta": 10000.0})";

TEST(ModelFile, JsonAndTomlSayTheSame) {
  const ModelShape json = parse_model(kConfig, false, "a.json");
  const ModelShape toml = parse_model(
      "num_hidden_layers = 3\nhidden_size = 8\nnum_attention_heads = 4\nnum_key_value_heads = 2\n"
      "intermediate_size = 16\nvocab_size = 32\n",
      true, "a.toml");
  for (const ModelShape& each : {json, toml}) {
    EXPECT_EQ(each.layers.size(), 3u);
    EXPECT_EQ(each.layers[0].mixer.head_size, 2u);
    EXPECT_EQ(each.layers[0].mixer.kv_heads, 2u);
    EXPECT_EQ(each.parameters(), small_model().parameters());
    EXPECT_EQ(each.layers[0].feed_forward.experts, 0u);
  }
}

TEST(ModelFile, TomlHasFlagsAndLayers) {
  const ModelShape model = parse_model(
      "num_hidden_layers = 2\nhidden_size = 8\nnum_attention_heads = 4\nintermediate_size = 16\n"
      "vocab_size = 32\ntie_word_embeddings = true\nsliding_window = 4\n"
      "layer_types = [\"sliding_attention\", \"full_attention\"]\n",
      true, "a.toml");
  EXPECT_TRUE(model.tied);
  EXPECT_EQ(model.layers[0].mixer.window, 4U);
  EXPECT_EQ(model.layers[1].mixer.window, 0U);
}

/// kConfig with one key of another value.
std::string with(const std::string& key, const std::string& value) {
  auto json = nlohmann::json::parse(kConfig);
  json[key] = nlohmann::json::parse(value);
  return json.dump();
}

TEST(ModelFile, WrongOnesAreRefusedInOneLine) {
  const auto refused = [](const std::string& text, const std::string& part, bool toml = false) {
    const std::string message = message_of([&] { parse_model(text, toml, "m"); });
    expect_contains(message, part);
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  refused("", "it is not JSON");
  refused("[1]", "it is not an object");
  refused("{}", "missing key 'num_hidden_layers'");
  for (const char* value : {"0", "-1", "1.5", "\"8\"", "1e30", "99999999999999999999", "[]"}) {
    refused(with("hidden_size", value), "key 'hidden_size': it must be an integer from 1 to");
  }
  refused(with("num_key_value_heads", "3"), "3 does not divide the 4 heads");
  refused(with("num_attention_heads", "6"), "missing key 'head_dim': 6 heads do not divide");
  refused(with("model_type", "\"gpt2\""),
          "'gpt2' is not modelled: allowed are glm_moe_dsa, gpt_neox, ");
  refused(with("model_type", "3"), "is not modelled");
  refused(with("num_local_experts", "8"), "missing key 'num_experts_per_tok'");
  const auto of_experts = [](const std::string& more) {
    return std::string(kConfig).replace(
        1, 0, R"("num_local_experts": 4, "num_experts_per_tok": 2, )" + more + ", ");
  };
  refused(of_experts(R"("moe_layer_freq": 0)"),
          "'moe_layer_freq': it must be an integer from 1 to");
  refused(of_experts(R"("first_k_dense_replace": 4)"), "it must be an integer from 0 to 3");
  refused(of_experts(R"("n_shared_experts": 65537)"), "it must be an integer from 0 to 65536");
  refused(with("layer_types", R"(["full_attention"])"), "for each of the 3 layers");
  refused(with("layer_types", "3"), "for each of the 3 layers");
  refused(with("tie_word_embeddings", "1"), "it must be true or false");
  refused(with("kv_lora_rank", "2"), "missing key 'qk_rope_head_dim'");
  refused("num_hidden_layer = 3", "unknown key 'num_hidden_layer'", true);
  refused("num_hidden_layers = [", "line 1", true);
  expect_contains(message_of([] { find_model("gpt-5"); }), "a path ends in .json or .toml");
  expect_contains(message_of([] { find_model("none.json"); }), "cannot be read");
}

}  // namespace
}  // namespace arlab
