// Models of many makers, by what their config.json says: weights against published counts, layers of
// every kind by hand, and what is refused.
//
// models/published.json holds the keys of each that matter. "exact": transformers 5.24 builds a model
// of so many parameters, biases and norms included, from such a config (its class on PyTorch's meta
// device); else the count is that of the model's page. "file_gb": what its page says its files have.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reference/json.h"
#include "reference/tensors/file.h"
#include "sim/workload/layer.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

ModelShape read(const Json& config) { return parse_model(config.dump(), false, "c.json"); }

/// Four layers; `more` are further keys, or others in their place.
Json with(const Json& more) {
  Json config = {{"num_hidden_layers", 4},   {"hidden_size", 64},        {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}, {"intermediate_size", 128}, {"vocab_size", 256}};
  config.update(more);
  return config;
}

std::vector<std::string> kinds_of(const Json& config) {
  std::vector<std::string> kinds;
  for (const LayerKind& kind : read(config).kinds()) {
    kinds.push_back(fmt::format("{} {}", kind.count, describe(kind.layer)));
  }
  return kinds;
}

TEST(ModelConfig, EveryPublishedModelIsReadWithItsWeights) {
  const std::filesystem::path path = std::string(ARLAB_MODELS) + "/published.json";
  const Json published = parse_json<Json>(read_text_file(path, "models"));
  ASSERT_GE(published.size(), 60u);
  for (const Json& each : published) {
    const std::string name = each["name"];
    const ModelShape model = read(each["config"]);
    const double expected = each["parameters"];
    EXPECT_NEAR(model.parameters() / expected, 1, each["exact"] == true ? 0.006 : 0.01) << name;
    double of_kinds = 0;
    for (const LayerKind& kind : model.kinds()) {
      of_kinds += kind.count * parameters_of(model, kind.layer);
    }
    EXPECT_LT(of_kinds, model.parameters()) << name;
    if (!each.contains("file_gb")) continue;
    double bits = 0;
    for (const WeightMatrix& matrix : model.matrices()) {
      bits += matrix.weights() * model.weights.of(matrix.kind);
    }
    bits += model.predicting * model.weights.of(WeightKind::experts);
    EXPECT_NEAR(bits / 8e9 / each["file_gb"].get<double>(), 1, 0.02) << name;
  }
}

TEST(ModelConfig, LayersAreOfTheKindsThatTheirKeysSay) {
  using Kinds = std::vector<std::string>;
  const std::string dense = "dense feed-forward";
  const std::string window = "attention in a window of 8, " + dense;
  EXPECT_EQ(kinds_of(with({{"model_type", "llama"}})), Kinds{"4 attention, " + dense});
  // All, none, every second, a pattern of letters, those behind some.
  EXPECT_EQ(kinds_of(with({{"model_type", "mistral"}, {"sliding_window", 8}})),
            Kinds{"4 " + window});
  EXPECT_EQ(kinds_of(with(
                {{"model_type", "qwen2"}, {"sliding_window", 8}, {"use_sliding_window", false}})),
            Kinds{"4 attention, " + dense});
  EXPECT_EQ(kinds_of(with({{"model_type", "gemma2"}, {"sliding_window", 8}})),
            (Kinds{"2 " + window, "2 attention, " + dense}));
  EXPECT_EQ(
      kinds_of(with(
          {{"model_type", "exaone4"}, {"sliding_window", 8}, {"sliding_window_pattern", "LLLG"}})),
      (Kinds{"3 " + window, "1 attention, " + dense}));
  EXPECT_EQ(kinds_of(with({{"model_type", "qwen2"},
                           {"sliding_window", 8},
                           {"use_sliding_window", true},
                           {"max_window_layers", 3}})),
            (Kinds{"3 attention, " + dense, "1 " + window}));
  // Experts in every second layer, from one on, in layers by number, with a shared one.
  const Json experts = {
      {"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 32}};
  const auto mixed = [&](const Json& more) {
    Json config = with(experts);
    config.update(more);
    return kinds_of(config);
  };
  const Kinds halves = {"2 attention, " + dense, "2 attention, 8 experts"};
  EXPECT_EQ(mixed({{"model_type", "qwen3_moe"}, {"decoder_sparse_step", 2}}), halves);
  EXPECT_EQ(mixed({{"model_type", "qwen3_moe"}, {"mlp_only_layers", {0, 2}}}), halves);
  EXPECT_EQ(mixed({{"model_type", "deepseek_v3"}, {"moe_layer_freq", {0, 1, 0, 1}}}), halves);
  EXPECT_EQ(
      mixed({{"model_type", "glm4_moe"}, {"first_k_dense_replace", 2}, {"n_shared_experts", 0}}),
      halves);
  EXPECT_EQ(
      mixed({{"model_type", "glm4_moe"}, {"first_k_dense_replace", 1}, {"n_shared_experts", 1}}),
      (Kinds{"1 attention, " + dense, "3 attention, 8 experts, shared expert"}));
  EXPECT_EQ(mixed({{"model_type", "step3_text"}, {"moe_layers_enum", "1,3"}}), halves);
  // States in three of four layers; layers that are one part only; both at once.
  const Json linear = {{"linear_num_value_heads", 4},
                       {"linear_num_key_heads", 2},
                       {"linear_value_head_dim", 16},
                       {"linear_key_head_dim", 16}};
  Json next = linear;
  next["model_type"] = "qwen3_next";
  EXPECT_EQ(mixed(next), (Kinds{"3 linear attention, 8 experts", "1 attention, 8 experts"}));
  Json hybrid = {
      {"model_type", "nemotron_h"}, {"mamba_num_heads", 8}, {"mamba_head_dim", 16},
      {"ssm_state_size", 32},       {"n_groups", 2},        {"hybrid_override_pattern", "M-*E"}};
  EXPECT_EQ(mixed(hybrid), (Kinds{"1 Mamba", "1 " + dense, "1 attention", "1 8 experts"}));
  hybrid["model_type"] = "falcon_h1";
  hybrid.erase("hybrid_override_pattern");
  EXPECT_EQ(kinds_of(with(hybrid)), Kinds{"4 attention, Mamba, " + dense});
}

// A layer of each kind, with 64 elements of a token.
TEST(ModelConfig, WeightsOfOddLayersAreThoseByHand) {
  const auto first = [](const Json& more) {
    const ModelShape model = read(with(more));
    return parameters_of(model, model.layers.front());
  };
  const double ffn = 3 * 64 * 128;
  EXPECT_EQ(first({{"model_type", "llama"}}), ffn + 64 * (64 + 32 + 32 + 64));
  EXPECT_EQ(first({{"model_type", "nemotron"}}), 2 * 64 * 128 + 64 * (64 + 32 + 32 + 64));
  // Values of another size; a gate of the queries' size; keys that are the values.
  EXPECT_EQ(first({{"model_type", "mimo_v2_flash"}, {"head_dim", 24}, {"v_head_dim", 16}}),
            ffn + 64 * (96 + 48 + 32 + 64));
  EXPECT_EQ(first({{"model_type", "qwen3_5_text"},
                   {"attn_output_gate", true},
                   {"full_attention_interval", 1}}),
            ffn + 64 * (128 + 32 + 32 + 64));
  EXPECT_EQ(first({{"model_type", "gemma4_text"},
                   {"attention_k_eq_v", true},
                   {"global_head_dim", 32},
                   {"num_global_key_value_heads", 1},
                   {"sliding_window_pattern", 1}}),
            ffn + 64 * (128 + 32 + 128));
  // q, k, v and a gate of 2 x 16 and 4 x 16; two numbers for each of 4 heads; the way back.
  EXPECT_EQ(first({{"model_type", "olmo_hybrid"},
                   {"linear_num_value_heads", 4},
                   {"linear_num_key_heads", 2},
                   {"linear_value_head_dim", 16},
                   {"linear_key_head_dim", 16}}),
            ffn + 64 * (32 + 32 + 64 + 64 + 8 + 64));
  // Mamba 2: twice 8 x 16, twice 2 groups of 32, 8 heads; the way back.
  EXPECT_EQ(first({{"model_type", "bamba"},
                   {"mamba_n_heads", 8},
                   {"mamba_d_head", 16},
                   {"mamba_d_state", 32},
                   {"mamba_n_groups", 2}}),
            ffn + 64 * (256 + 128 + 8 + 128));
  // Latent attention with an index of 4 heads of 8 elements.
  EXPECT_EQ(first({{"model_type", "deepseek_v32"},
                   {"kv_lora_rank", 16},
                   {"q_lora_rank", 32},
                   {"qk_nope_head_dim", 8},
                   {"qk_rope_head_dim", 4},
                   {"v_head_dim", 8},
                   {"index_n_heads", 4},
                   {"index_head_dim", 8},
                   {"index_topk", 16}}),
            ffn + 32 * (64 + 48) + 64 * 20 + 16 * 64 + 32 * 64 + 32 * 32 + 64 * (8 + 4));
  // Experts take 16 elements of a token.
  EXPECT_EQ(first({{"model_type", "nemotron_h"},
                   {"hybrid_override_pattern", "EEEE"},
                   {"num_experts", 4},
                   {"num_experts_per_tok", 1},
                   {"moe_intermediate_size", 32},
                   {"moe_latent_size", 16}}),
            4 * 2 * 16 * 32 + 2 * 64 * 16 + 64 * 4);
}

TEST(ModelConfig, EachKindKeepsWhatItLooksAt) {
  const InferenceStep step{.batch = 1, .tokens = 100, .ranks = 1};
  const auto kept = [&](const Json& more) { return memory_of(read(with(more)), step).kept; };
  // 4 layers, keys and values of 2 x 16 elements in 2 bytes.
  EXPECT_EQ(kept({{"model_type", "llama"}}), 4 * 100 * 64 * 2);
  EXPECT_EQ(kept({{"model_type", "mistral"}, {"sliding_window", 8}}), 4 * 8 * 64 * 2);
  EXPECT_EQ(kept({{"model_type", "gemma4_text"},
                  {"attention_k_eq_v", true},
                  {"sliding_window_pattern", 1}}),
            4 * 100 * 32 * 2);
  // The last two layers look at keys of others.
  EXPECT_EQ(kept({{"model_type", "llama"}, {"num_kv_shared_layers", 2}}), 2 * 100 * 64 * 2);
  // A state of 8 x 16 x 32 in fp32 for all tokens; an index of 8 elements of a byte.
  EXPECT_EQ(kept({{"model_type", "bamba"},
                  {"mamba_n_heads", 8},
                  {"mamba_d_head", 16},
                  {"mamba_d_state", 32}}),
            4 * 8 * 16 * 32 * 4);
  EXPECT_EQ(kept({{"model_type", "deepseek_v32"},
                  {"kv_lora_rank", 16},
                  {"qk_nope_head_dim", 8},
                  {"qk_rope_head_dim", 4},
                  {"v_head_dim", 8},
                  {"index_n_heads", 4},
                  {"index_head_dim", 8},
                  {"index_topk", 16}}),
            4 * 100 * (20 * 2 + 8));
  // A window of 8, and one vector for 4 or 128 tokens behind it.
  EXPECT_EQ(kept({{"model_type", "deepseek_v4"},
                  {"sliding_window", 8},
                  {"num_key_value_heads", 1},
                  {"compress_ratios", {0, 4, 128, 4}},
                  {"index_n_heads", 4},
                  {"index_head_dim", 8},
                  {"index_topk", 16}}),
            (8 + 2 * (8 + 25) + 8) * 16 * 2 + 2 * 25 * 8);
}

TEST(ModelConfig, WhatIsLeftOutIsSaid) {
  const auto said = [](const Json& more, const std::string& part) {
    expect_contains(read(with(more)).left_out, part);
  };
  EXPECT_EQ(read(with({{"model_type", "llama"}})).left_out, "");
  said({{"model_type", "mimo"}, {"num_nextn_predict_layers", 1}},
       "multi-token prediction, of about 4.51e+04 weights");
  said({{"model_type", "lfm2"}, {"conv_L_cache", 3}, {"full_attn_idxs", {2}}},
       "arithmetic of the scans");
  said(
      {{"model_type", "llama"}, {"vision_config", {{"hidden_size", 32}, {"num_hidden_layers", 2}}}},
      "vision tower");
  said({{"model_type", "llama"}, {"hc_mult", 4}}, "hyper-connections");
  said({{"model_type", "llama"}, {"zero_expert_num", 256}}, "experts that do nothing");
  said({{"model_type", "llama"}, {"num_extra_heads", 3}},
       "keys that are not known: num_extra_heads");
  said({{"model_type", "new_llm"}, {"hidden_act", "silu"}},
       "model_type 'new_llm' is not in the table");
}

TEST(ModelConfig, APartOfAnotherModelHasTheValuesOfItsClass) {
  // transformers writes no value of a text_config that its class has already.
  const Json whole = {{"model_type", "gemma3"},
                      {"text_config",
                       {{"model_type", "gemma3_text"},
                        {"num_hidden_layers", 34},
                        {"hidden_size", 2560},
                        {"intermediate_size", 10240}}}};
  const ModelShape model = read(whole);
  EXPECT_EQ(model.layers[0].mixer.heads, 8u);
  EXPECT_EQ(model.layers[0].mixer.window, 4096u);
  EXPECT_EQ(model.layers[5].mixer.window, 0u);
  EXPECT_EQ(model.vocabulary, 262208u);
  Json alone = whole["text_config"];
  expect_contains(message_of([&] { read(alone); }), "missing key 'vocab_size'");
}

TEST(ModelConfig, WhatIsNotKnownIsRefusedWithItsKey) {
  const auto refused = [](const Json& more, const std::string& part) {
    expect_contains(message_of([&] { read(with(more)); }), part);
  };
  refused({{"model_type", "new_llm"}}, "key 'model_type': 'new_llm' is not modelled");
  refused({{"model_type", "new_llm"}, {"hidden_act", "gelu"}}, "key 'model_type'");
  // Its attention has experts, too, and no key says so.
  refused({{"model_type", "jetmoe"}, {"hidden_act", "silu"}}, "'jetmoe' is not modelled");
  refused({{"model_type", "new_llm"}, {"hidden_act", "silu"}, {"num_memory_heads", 8}},
          "key 'num_memory_heads' of model_type 'new_llm' is not known");
  refused(
      {{"model_type", "llama"},
       {"layer_types", {"full_attention", "new_attention", "full_attention", "full_attention"}}},
      "key 'layer_types': it must be an array with one of");
  refused({{"model_type", "nemotron_h"}}, "missing key 'layers_block_type'");
  refused({{"model_type", "llama"}, {"layer_types", {"mamba", "mamba", "mamba", "mamba"}}},
          "layers with a state are not known of 'llama'");
  refused({{"model_type", "gpt_oss"}}, "missing key 'sliding_window'");
  refused({{"model_type", "deepseek_v4"}, {"sliding_window", 8}, {"compress_ratios", {4}}},
          "key 'compress_ratios': it must be an array of integers");
  refused({{"model_type", "nemotron-nas"}, {"block_configs", {1, 2}}}, "key 'block_configs'");
  refused({{"model_type", "nemotron-nas"}, {"block_configs", {1, 2, 3, 4}}}, "key 'block_configs'");
}

}  // namespace
}  // namespace arlab
