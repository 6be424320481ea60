// Bits of weights: what every method of public checkpoints says, worked out by hand for each kind of
// matrix; and what is wrong in a file.

#include "sim/workload/weight_bits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/workload/model_shape.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

/// Four layers with rows of 1024 inputs, but `down` with 2048 and o_proj with 1024.
constexpr const char* kDense =
    R"("model_type": "llama", "num_hidden_layers": 4, "hidden_size": 1024,
  "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2048, "vocab_size": 4096)";
/// One dense layer, three with experts; all rows have 1024 inputs.
constexpr const char* kExperts = R"("model_type": "deepseek_v3", "num_hidden_layers": 4,
  "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 1024, "vocab_size": 4096,
  "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1,
  "moe_intermediate_size": 1024)";

ModelShape model_with(const std::string& quantization, const char* model = kDense) {
  return parse_model(fmt::format("{{{}, {}}}", model, quantization), false, "c.json");
}

WeightBits bits_with(const std::string& quantization, const char* model = kDense) {
  return model_with(R"("quantization_config": {)" + quantization + "}", model).weights;
}

struct Expected {
  double attention = 16;
  double dense = 16;
  double head = 16;
  double embedding = 16;
};

void expect_bits(const std::string& quantization, const Expected& expected) {
  const WeightBits found = bits_with(quantization);
  EXPECT_DOUBLE_EQ(found.of(WeightKind::attention), expected.attention) << quantization;
  EXPECT_DOUBLE_EQ(found.of(WeightKind::dense), expected.dense) << quantization;
  EXPECT_DOUBLE_EQ(found.of(WeightKind::head), expected.head) << quantization;
  EXPECT_DOUBLE_EQ(found.of(WeightKind::embedding), expected.embedding) << quantization;
  EXPECT_NE(found.source.find("quantization_config: "), std::string::npos) << found.source;
}

/// A row's share: gate and up have 1024 inputs, down 2048.
double by_rows(double bits, double inputs_1024 = 1024) {
  return (2 * bits / inputs_1024 + bits / (2 * inputs_1024)) / 3;
}

TEST(WeightBits, WithoutQuantizationTheyHave16) {
  EXPECT_EQ(model_with(R"("torch_dtype": "bfloat16")").weights, WeightBits());
  EXPECT_EQ(model_with(R"("quantization_config": null)").weights, WeightBits());
  const WeightBits narrow = model_with(R"("torch_dtype": "float8_e4m3fn")").weights;
  EXPECT_EQ(narrow.of(WeightKind::attention), 8);
  EXPECT_EQ(narrow.of(WeightKind::embedding), 8);
}

TEST(WeightBits, OfEveryMethodAreThoseByHand) {
  const double block = 8 + 32.0 / (128 * 128);
  const auto both = [](double bits, double head = 16, double embedding = 16) {
    return Expected{bits, bits, head, embedding};
  };
  expect_bits(R"("quant_method": "fp8", "weight_block_size": [128, 128])", both(block));
  expect_bits(R"("quant_method": "fp8", "activation_scheme": "static")", both(8));
  expect_bits(R"("quant_method": "fbgemm_fp8")", {8 + 32.0 / 1024, 8 + by_rows(32)});
  expect_bits(R"("quant_method": "gptq", "bits": 4, "group_size": 128)", both(4 + 20.0 / 128));
  expect_bits(R"("quant_method": "gptq", "bits": 8, "group_size": -1)",
              {8 + 24.0 / 1024, 8 + by_rows(24)});
  expect_bits(R"("quant_method": "gptq", "bits": 4, "group_size": 32, "lm_head": true)",
              both(4 + 20.0 / 32, 4 + 20.0 / 32));
  expect_bits(R"("quant_method": "awq", "bits": 4, "group_size": 64)", both(4 + 20.0 / 64));
  expect_bits(R"("quant_method": "awq", "w_bit": 4, "q_group_size": 128)", both(4 + 20.0 / 128));
  expect_bits(R"("quant_method": "auto-round", "bits": 2, "group_size": 32)", both(2 + 18.0 / 32));
  expect_bits(R"("quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp")",
              both(4.25));
  expect_bits(R"("quant_method": "bitsandbytes", "load_in_4bit": true)", both(4.5));
  expect_bits(
      R"("quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true)",
      both(4 + 8.0 / 64 + 32.0 / (64 * 256)));
  expect_bits(R"("quant_method": "bitsandbytes", "load_in_8bit": true)",
              {8 + 32.0 / 1024, 8 + by_rows(32)});
  expect_bits(R"("quant_method": "mxfp4")", both(4.25));
  expect_bits(R"("quant_method": "mxfp8")", both(8.25));
  expect_bits(R"("quant_method": "modelopt", "quant_algo": "NVFP4")", both(4.5));
  expect_bits(
      R"("quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8})",
      both(8));
  expect_bits(R"("quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 64)",
              both(4.25));
  expect_bits(R"("quant_algo": "NVFP4", "producer": {"name": "modelopt"})", both(4.5));
  expect_bits(R"("quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
      "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}}, "ignore": [])",
              {16 - 8.0 * 1024 / (1024 + 512 + 1024) / 4, 16});
  expect_bits(R"("quant_method": "torchao", "quant_type": {"default": {
      "_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}})",
              both(4.25));
  expect_bits(R"("quant_method": "torchao", "quant_type": "int8_weight_only")",
              {8 + 32.0 / 1024, 8 + by_rows(32)});
  expect_bits(R"("quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4",
      "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}}, "exclude": ["lm_head"])",
              both(4.25));
  expect_bits(R"("quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3",
      "qscheme": "per_tensor"}})",
              both(8));
  expect_bits(R"("quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4,
      "group_size": 64}}, "skip_modules": ["lm_head"])",
              both(4.5));
  expect_bits(R"("quant_method": "quanto", "weights": "int4")", both(4.25));
  expect_bits(R"("quant_method": "bitnet")", both(2));
  expect_bits(R"("quant_method": "eetq")", {8 + 32.0 / 1024, 8 + by_rows(32)});
  expect_bits(R"("quant_method": "exl2", "bits": 3.5, "head_bits": 6)", both(3.5, 6));
  expect_bits(R"("quant_method": "fp_quant", "forward_dtype": "nvfp4")", both(4.5));
  expect_bits(R"("group_size": 64, "bits": 4)", both(4.5, 4.5, 4.5));  // MLX
  expect_bits(R"("group_size": 64, "bits": 4, "lm_head": false)", both(4.5, 16, 4.5));
  // Codes of 16 bits for 8 weights, and 65536 entries of 8 in 16 bits for a matrix.
  const double q = 2 + 16.0 / 1024 + 8.0 * 65536 * 16 / (1024 * 1024);
  const double kv = 2 + 16.0 / 1024 + 8.0 * 65536 * 16 / (1024 * 256);
  const WeightBits aqlm = bits_with(
      R"("quant_method": "aqlm", "num_codebooks": 1, "nbits_per_codebook": 16, "in_group_size": 8)");
  EXPECT_DOUBLE_EQ(aqlm.of(WeightKind::attention),
                   (2 * q * 1024 + 2 * kv * 256) / (2 * 1024 + 512));
}

TEST(WeightBits, CompressedTensorsAreThoseOfTheirGroups) {
  const auto group = [](const std::string& weights, const std::string& more = "") {
    return R"("quant_method": "compressed-tensors", "format": "x", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {)" +
           weights + "}}}" + more;
  };
  const std::string head = R"(, "ignore": ["lm_head"])";
  expect_bits(group(R"("num_bits": 8, "type": "float", "strategy": "tensor")", head), {8, 8});
  expect_bits(group(R"("num_bits": 8, "type": "float", "strategy": "channel")", head),
              {8 + 16.0 / 1024, 8 + by_rows(16)});
  expect_bits(
      group(R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 128)", head),
      {4.125, 4.125});
  expect_bits(group(R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
                       "symmetric": false)",
                    head),
              {4 + 20.0 / 128, 4 + 20.0 / 128});
  expect_bits(
      group(R"("num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16)",
            head),
      {4.5, 4.5});
  expect_bits(
      group(R"("num_bits": 4, "type": "float", "strategy": "group", "group_size": 32)", head),
      {4.25, 4.25});
  expect_bits(group(R"("num_bits": 8, "type": "float", "strategy": "block",
                       "block_structure": [128, 128])",
                    head),
              {8 + 16.0 / 16384, 8 + 16.0 / 16384});
  // The head is a linear layer, too.
  expect_bits(group(R"("num_bits": 8, "type": "float", "strategy": "tensor")"), {8, 8, 8});
  // Targets by name; weights of another group stay as they are.
  expect_bits(R"("quant_method": "compressed-tensors", "config_groups": {
      "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}},
      "group_1": {"targets": ["re:.*(gate|up)_proj$"], "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}},
      "group_2": {"targets": ["re:.*down_proj$"], "weights": null}})",
              {8, (4.5 + 4.5 + 16) / 3});
}

TEST(WeightBits, CompressedTensorsHaveTheBitsOfTheirFormat) {
  const auto format = [](const std::string& name, int bits) {
    return fmt::format(
        R"("quant_method": "compressed-tensors", "format": "{}", "ignore": ["lm_head"], "config_groups": {{
           "group_0": {{"targets": ["Linear"], "weights": {{"num_bits": {}, "type": "int", "strategy": "tensor"}}}}}})",
        name, bits);
  };
  // Weights that are only calculated with as if they were quantized.
  for (const char* const name : {"dense", "fakequant"}) expect_bits(format(name, 4), {});
  // A byte for each.
  for (const char* const name : {"naive-quantized", "int-quantized", "float-quantized"}) {
    expect_bits(format(name, 4), {8, 8});
    expect_bits(format(name, 8), {8, 8});
  }
  expect_bits(format("pack-quantized", 4), {4, 4});
  expect_bits(format("marlin-24", 4), {4, 4});
  expect_contains(bits_with(format("marlin-24", 4)).source, "sparsity is not modelled");
  // A group's own format counts, where it has one.
  expect_bits(
      R"("quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head"], "config_groups": {
      "group_0": {"targets": ["re:.*mlp.*"], "format": "dense", "weights": {"num_bits": 4, "type": "int", "strategy": "tensor"}},
      "group_1": {"targets": ["re:.*self_attn.*"], "format": "float-quantized", "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}})",
      {8, 16});
}

TEST(WeightBits, MethodsAreKnownAsReadersKnowThem) {
  expect_bits(R"("load_in_4bit": true)", {4.5, 4.5});
  expect_bits(R"("quant_method": "bitsandbytes_4bit", "load_in_4bit": true)", {4.5, 4.5});
  expect_bits(R"("quant_method": "AWQ", "bits": 4, "group_size": 128)",
              {4 + 20.0 / 128, 4 + 20.0 / 128});
  expect_bits(R"("quant_method": "mxfp4", "dequantize": true)", {});
  expect_contains(bits_with(R"("quant_method": "mxfp4", "dequantize": true)").source,
                  "dequantized when it is read");
}

TEST(WeightBits, QuarkKnowsTypesOfLayersAndLayersAlone) {
  const std::string fp4 =
      R"({"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}})";
  const std::string fp8 = R"({"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}})";
  expect_bits(R"("quant_method": "quark", "exclude": ["lm_head"], "global_quant_config": )" + fp8 +
                  R"(, "layer_type_quant_config": {"Linear": )" + fp4 + "}",
              {4.25, 4.25});
  expect_bits(
      R"("quant_method": "quark", "global_quant_config": {}, "layer_quant_config": {"*mlp*": )" +
          fp4 + "}",
      {16, 4.25});
  expect_contains(bits_with(R"("quant_method": "quark", "global_quant_config": {})").source,
                  "'quark' is not modelled");
  expect_contains(bits_with(R"("quant_method": "quark", "global_quant_config": )" + fp8 +
                            R"(, "layer_type_quant_config": {"Conv1d": )" + fp4 + "}")
                      .source,
                  "what it says of Conv1d is not modelled");
}

TEST(WeightBits, WhatIsIgnoredStays) {
  const auto fp8 = [](const std::string& ignored) {
    return R"("quant_method": "fp8", )" + ignored;
  };
  // By the module, a part of it, one of a layer, a glob, a regular expression.
  expect_bits(fp8(R"("modules_to_not_convert": ["lm_head", "self_attn"])"), {16, 8});
  expect_bits(fp8(R"("modules_to_not_convert": ["model.layers.1.mlp", "model.layers.11"])"),
              {8, 10});
  expect_bits(fp8(R"("ignored_layers": ["model.layers.1.mlp.down_proj"])"), {8, 8 + 8.0 / 12});
  expect_bits(R"("quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["model.layers.0*"])",
              {10, 10});
  expect_bits(
      R"("quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["*self_attn*"])",
      {16, 8});
  expect_bits(fp8(R"("ignore": ["re:.*mlp\\.(gate|down)_proj"])"), {8, 8 + 8.0 * 2 / 3});
  expect_bits(fp8(R"("modules_to_not_convert": ["model.language_model.layers.2.mlp"])"), {8, 10});
  expect_bits(fp8(R"("modules_to_not_convert": null)"), {8, 8});
  // A name is not a part of a longer one.
  expect_bits(fp8(R"("modules_to_not_convert": ["model.layers.1"])"), {10, 10});
  expect_bits(R"("quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {
      "-:.*self_attn.*": {}, "+:.*layers\\.0\\..*": {"bits": 8}})",
              {16, (3 * (4 + 20.0 / 128) + 8 + 24.0 / 128) / 4});
  expect_bits(R"("quant_method": "gptq", "bits": 4, "group_size": 128,
      "modules_in_block_to_quantize": [["mlp.gate_proj", "mlp.up_proj"]])",
              {16, (2 * (4 + 20.0 / 128) + 16) / 3});
  const double four = 4 + 20.0 / 128;
  expect_bits(R"("quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": {
      "model.layers.3.self_attn": {"bits": 16}})",
              {(3 * four + 16) / 4, four});
}

TEST(WeightBits, ExpertsAreAKindOfTheirOwn) {
  const WeightBits mx = bits_with(R"("quant_method": "mxfp4")", kExperts);
  EXPECT_EQ(mx.of(WeightKind::experts), 4.25);
  for (const WeightKind kind : {WeightKind::attention, WeightKind::dense, WeightKind::shared,
                                WeightKind::router, WeightKind::head, WeightKind::embedding}) {
    EXPECT_EQ(mx.of(kind), 16) << name_of(kind);
  }
  // Kimi K2's way: int4 of the experts alone.
  const WeightBits groups = bits_with(
      R"("quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}},
      "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                 "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"])",
      kExperts);
  EXPECT_EQ(groups.of(WeightKind::experts), 4.5);
  for (const WeightKind kind : {WeightKind::attention, WeightKind::dense, WeightKind::shared,
                                WeightKind::router, WeightKind::head, WeightKind::embedding}) {
    EXPECT_EQ(groups.of(kind), 16) << name_of(kind);
  }
  const WeightBits mixed = bits_with(R"("quant_method": "w4afp8", "group_size": 128)", kExperts);
  EXPECT_EQ(mixed.of(WeightKind::experts), 4.125);
  EXPECT_NEAR(mixed.of(WeightKind::attention), 8, 0.01);
  EXPECT_EQ(mixed.of(WeightKind::router), 16);
}

TEST(WeightBits, ModeloptLeavesRouterAndHeadAsTheyAre) {
  const std::string groups = R"("quant_method": "modelopt", "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
      "ignore": ["language_model.model.layers.*.self_attn", "language_model.lm_head"])";
  const WeightBits found = bits_with(groups, kExperts);
  EXPECT_EQ(found.of(WeightKind::experts), 4.5);
  for (const WeightKind kind : {WeightKind::attention, WeightKind::router, WeightKind::head}) {
    EXPECT_EQ(found.of(kind), 16) << name_of(kind);
  }
  // The quantization stands in a file beside config.json.
  const ModelShape beside = parse_model(fmt::format("{{{}}}", kDense), false, "c.json", R"({
      "producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16,
      "exclude_modules": ["lm_head", "model.layers.0*"]}})");
  EXPECT_EQ(beside.weights.of(WeightKind::dense), (3 * 4.5 + 16) / 4);
  EXPECT_EQ(beside.weights.of(WeightKind::head), 16);
}

TEST(WeightBits, WhatIsNotModelledIsSaid) {
  const WeightBits unknown = bits_with(R"("quant_method": "spqr", "bits": 3)");
  EXPECT_EQ(unknown.bits, WeightBits().bits);
  expect_contains(unknown.source, "'spqr' is not modelled: 16-bit weights");
  expect_contains(bits_with(R"("group": 3)").source, "without quant_method is not modelled");
  expect_contains(bits_with(R"("quant_method": "modelopt", "quant_algo": "NVFP9")").source,
                  "'modelopt NVFP9' is not modelled");
  expect_contains(bits_with(R"("quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8})").source,
                  "keys and values are not modelled as quantized");
  expect_contains(bits_with(R"("quant_method": "compressed-tensors", "config_groups": {"group_0": {
      "targets": ["LlamaMLP"], "weights": {"num_bits": 4, "type": "int", "strategy": "tensor"}}})")
                      .source,
                  "what it says of LlamaMLP is not modelled");
  const auto refused = [](const std::string& quantization, const std::string& part) {
    expect_contains(message_of([&] { bits_with(quantization); }), part);
  };
  refused(R"("quant_method": 3)", "key 'quantization_config.quant_method': it must be a text");
  refused(R"("quant_method": "gptq")",
          "key 'quantization_config.bits': it must be a number of bits");
  refused(R"("quant_method": "gptq", "bits": 99)", "it must be a number from 1 to 32");
  refused(R"("quant_method": "fp8", "weight_block_size": [128])", "two integers, as [128, 128]");
  refused(R"("quant_method": "fp8", "ignore": [3])", "names of modules");
  refused(R"("quant_method": "fp8", "ignore": ["re:("])", "no regular expression");
  expect_contains(message_of([] { model_with(R"("quantization_config": [1])"); }),
                  "key 'quantization_config': it must be an object");
  // Backtracking would take years.
  EXPECT_EQ(bits_with(R"("quant_method": "fp8", "ignore": ["re:(.*)*(.*)*(.*)*x"])").bits[0], 8);
}

TEST(WeightBits, AreChangedByAText) {
  const ModelShape dense = model_with(R"("dtype": "bfloat16")");
  const auto matrices = dense.matrices();
  const WeightBits all = changed(dense.weights, "4.25", matrices);
  EXPECT_EQ(all.of(WeightKind::attention), 4.25);
  EXPECT_EQ(all.of(WeightKind::dense), 4.25);
  EXPECT_EQ(all.of(WeightKind::head), 16);
  EXPECT_EQ(all.source, "--weight-bits");
  const WeightBits some = changed(dense.weights, "8,head=6,dense=4", matrices);
  EXPECT_EQ(some.of(WeightKind::attention), 8);
  EXPECT_EQ(some.of(WeightKind::dense), 4);
  EXPECT_EQ(some.of(WeightKind::head), 6);
  EXPECT_EQ(describe(some, matrices), "attention 8; dense 4; head 6; embedding 16");
  EXPECT_EQ(describe(changed(some, "dense=8", matrices), matrices),
            "attention, dense 8; head 6; embedding 16");
  // In 2^20 weights: attention 10, dense 24, head and embedding 4 each.
  EXPECT_DOUBLE_EQ(mean_bits(some, matrices), (10 * 8 + 24 * 4 + 4 * 6 + 4 * 16) / 42.0);
  for (const auto& [text, part] :
       {std::pair("16", "changes nothing"),
        {"head=16", "changes nothing"},
        {"experts=4", "of this model: attention, dense, head, embedding"},
        {"0.5", "numbers from 1 to 32"},
        {"8x", "numbers from 1 to 32"},
        {"", "numbers from 1 to 32"},
        {"8,", "numbers from 1 to 32"},
        {"nan", "numbers from 1 to 32"}}) {
    expect_contains(message_of([&] { changed(dense.weights, text, matrices); }), part);
  }
}

}  // namespace
}  // namespace arlab
