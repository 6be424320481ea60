#include "reference/tensors/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "tests/refusal.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab {
namespace {

constexpr std::array<DType, 3> kDTypes = {DType::fp16, DType::bf16, DType::fp32};

std::uint64_t fnv1a(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

std::string refusal(std::string_view spec, DType dtype = DType::fp16) {
  return message_of([&] { make_synthetic(spec, dtype, 2, 10); });
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const SyntheticDistribution& about : list_synthetic()) names.emplace_back(about.name);
  return names;
}

// FNV-1a of the bytes as fp16, bf16 and fp32. A change of these hashes changes every published
// number that was made from a synthetic input.
TEST(Synthetic, BitsArePinned) {
  const std::map<std::string, std::array<std::uint64_t, 3>> golden = {
      {"gaussian", {0x14286a904d2e1a35, 0x3c98e986822c8cb3, 0xddc17b2d2605a353}},
      {"gaussian:sigma=0.02,seed=7", {0xf653b33106598164, 0xffc99a5b062067a7, 0xb699facce59d97f8}},
      {"laplace", {0x6d9f7369af40a206, 0x1fea831caf03d669, 0x260fddc7b1e6f263}},
      {"laplace:b=3,seed=7", {0x7f4508247dd6a2ba, 0xf64242adfbee992e, 0xb44b942f133fbf04}},
      {"student-t", {0x39ed3f066ac8b455, 0xd079a44d835b8977, 0x92dc18919c820923}},
      {"student-t:nu=4,scale=0.1", {0x2c629f6b73246b15, 0x3dd42c48229c3e00, 0xbfdedb7ed4d65049}},
      {"uniform", {0x8604aa48d635c1d7, 0x9b760f0bad0a6b22, 0x331331f29256ad0d}},
      {"uniform:low=0,high=1e-3", {0x4e8a3ace0b3bc999, 0x9270b9b824e28a1e, 0xee74130597d3d845}},
      {"outliers", {0x0c9ad2aedfe888d3, 0x5c111540991c727f, 0x81f65e4eb50100b5}},
      {"outliers:row=384,count=7,magnitude=2000",
       {0x8b7185f6d4b31cfa, 0xa7e5af226c393fc1, 0x749e402fe2fa71fd}},
      {"sweep", {0x1513a98da9262fd9, 0x561a9b4d8318a664, 0x28812eeafc3c77a5}},
      {"sweep:low=1e-3,high=10,seed=7",
       {0x5ce86d66010bb816, 0x0c7eaf0edf96b262, 0x2cac9bb9ffe7ab26}},
      {"constant", {0xd5a8ab485d300165, 0xd5a8ab485d300165, 0x21e90d42eeffafa5}},
      {"constant:value=3.14159", {0x696b5e275b9349a5, 0x12950f08f7883e45, 0xc5177ed97a34dc25}},
      {"adversarial", {0x2bfca7eba14f3e58, 0xd30290e279680a3c, 0x90f603862087ce5f}},
      {"adversarial:non_finite=1,seed=7",
       {0x167537db498f6784, 0x1506124165f8cb5f, 0xc98c0845b620f791}},
      {"patterns", {0x99707371a63d83c1, 0x99707371a63d83c1, 0x8d90dd40b96dd671}},
      {"patterns:seed=60000", {0x204ea3f42411e0e5, 0x204ea3f42411e0e5, 0x6b9a53005cb04e45}},
  };
  for (const auto& [spec, hashes] : golden) {
    for (std::size_t i = 0; i < kDTypes.size(); ++i) {
      EXPECT_EQ(fnv1a(make_synthetic(spec, kDTypes[i], 3, 3000).bytes()), hashes[i])
          << spec << " " << name_of(kDTypes[i]);
    }
  }
  for (const std::string& name : all_names()) EXPECT_TRUE(golden.contains(name)) << name;
}

TEST(Synthetic, ListedDefaultsAreTheDefaults) {
  EXPECT_EQ(all_names(),
            (std::vector<std::string>{"gaussian", "laplace", "student-t", "uniform", "outliers",
                                      "sweep", "constant", "adversarial", "patterns"}));
  for (const SyntheticDistribution& about : list_synthetic()) {
    EXPECT_EQ(about.description.find('\n'), std::string_view::npos);
    std::string spec(about.name);
    for (const SyntheticParameter& parameter : about.parameters) {
      spec += fmt::format("{}{}={}", spec == about.name ? ":" : ",", parameter.name,
                          parameter.default_value);
    }
    EXPECT_EQ(make_synthetic(spec, DType::fp16, 2, 500).data,
              make_synthetic(about.name, DType::fp16, 2, 500).data)
        << spec;
  }
}

// The larger tensor is filled by several threads, the smaller one by one.
TEST(Synthetic, ElementsDependOnNeitherSizeNorRanksNorThreads) {
  for (const std::string& name : all_names()) {
    if (name == "sweep") continue;
    const Tensor small = make_synthetic(name, DType::fp16, 2, 5000);
    const Tensor large = make_synthetic(name, DType::fp16, 5, 100001);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(std::ranges::equal(small.rank_bytes(rank),
                                     large.rank_bytes(rank).first(small.rank_bytes(rank).size())))
          << name;
    }
  }
}

TEST(Synthetic, RanksAndSeedsDiffer) {
  for (const std::string& name : all_names()) {
    if (name == "constant") continue;
    const Tensor one = make_synthetic(name, DType::fp16, 2, 1000);
    const Tensor two = make_synthetic(name + ":seed=2", DType::fp16, 2, 1000);
    EXPECT_FALSE(std::ranges::equal(one.rank_bytes(0), one.rank_bytes(1))) << name;
    EXPECT_FALSE(std::ranges::equal(one.rank_bytes(0), two.rank_bytes(0))) << name;
    EXPECT_FALSE(std::ranges::equal(one.rank_bytes(1), two.rank_bytes(0))) << name;
  }
}

TEST(Synthetic, ValuesAreClampedToTheFiniteRange) {
  for (const char* spec :
       {"gaussian:sigma=65504", "laplace:b=65504", "student-t:nu=1,scale=65504",
        "outliers:sigma=65504,magnitude=65504", "uniform:low=-65504,high=65504"}) {
    const std::vector<float> values = to_floats(make_synthetic(spec, DType::fp16, 2, 5000));
    EXPECT_LE(*std::ranges::max_element(values), 65504) << spec;
    EXPECT_GE(*std::ranges::min_element(values), -65504) << spec;
  }
  const Tensor wide = make_synthetic("gaussian:sigma=3e38", DType::fp32, 2, 5000);
  EXPECT_EQ(*std::ranges::max_element(wide.floats()), 0x1.fffffep127f);
}

TEST(Synthetic, MistakesInASpecAreExplained) {
  EXPECT_EQ(refusal("normal"),
            "unknown synthetic input 'normal': allowed are gaussian, laplace, student-t, uniform, "
            "outliers, sweep, constant, adversarial, patterns; `arlab list inputs` has all");
  EXPECT_EQ(refusal("").substr(0, 26), "unknown synthetic input ''");
  EXPECT_EQ(refusal("gaussian:mu=1"),
            "gaussian: unknown parameter 'mu': allowed are (with defaults) sigma=1, seed=1");
  EXPECT_EQ(refusal("gaussian:sigma"),
            "gaussian: 'sigma' is not of the form name=value: allowed are (with defaults) sigma=1, "
            "seed=1");
  EXPECT_EQ(refusal("gaussian:sigma=1,"), "gaussian: a parameter is missing after the last comma");
  EXPECT_EQ(refusal("gaussian:seed=1,seed=1"), "gaussian: seed is given twice");
}

TEST(Synthetic, ValuesOutOfRangeAreExplained) {
  EXPECT_EQ(refusal("gaussian:sigma=x"),
            "gaussian: sigma=x is not allowed for fp16: allowed is a number from 0 to 65504");
  for (const char* value : {"-1", "1e6", "nan", "inf", "1x", "", " 1", "0x1", "1e999", "+1"}) {
    EXPECT_EQ(
        refusal(fmt::format("gaussian:sigma={}", value)),
        fmt::format("gaussian: sigma={} is not allowed for fp16: allowed is a number from 0 to "
                    "65504",
                    value));
  }
  EXPECT_EQ(refusal("constant:value=-1e39", DType::fp32),
            "constant: value=-1e39 is not allowed for fp32: allowed is a number from "
            "-3.4028234663852886e+38 to 3.4028234663852886e+38");
  for (const char* value : {"0", "101", "1.5", "-1", "1e1"}) {
    EXPECT_EQ(
        refusal(fmt::format("student-t:nu={}", value)),
        fmt::format("student-t: nu={} is not allowed: allowed is an integer from 1 to 100", value));
  }
  EXPECT_EQ(refusal("gaussian:seed=4294967296"),
            "gaussian: seed=4294967296 is not allowed: allowed is an integer from 0 to 4294967295");
  EXPECT_EQ(refusal("adversarial:non_finite=2"),
            "adversarial: non_finite=2 is not allowed: allowed is a number from 0 to 1");
  EXPECT_EQ(refusal("uniform:low=2"), "uniform: low=2 must not be above high=1");
  EXPECT_EQ(refusal("sweep:low=2,high=1"), "sweep: low=2 must not be above high=1");
  EXPECT_EQ(refusal("outliers:row=4,count=5"), "outliers: count=5 must not be above row=4");
}

TEST(Synthetic, SizesThatCannotBeAreExplained) {
  EXPECT_EQ(message_of([] { make_synthetic("gaussian", DType::fp16, 0, 1); }),
            "a synthetic input of 0 ranks with 1 elements: allowed is at least 1 of each");
  EXPECT_EQ(message_of([] { make_synthetic("gaussian", DType::fp16, 1, 0); }),
            "a synthetic input of 1 ranks with 0 elements: allowed is at least 1 of each");
  EXPECT_EQ(message_of([] { make_synthetic("gaussian", DType::fp16, 8, std::size_t{1} << 62); }),
            "a tensor of shape (8, 4611686018427387904) is too large to address");
}

}  // namespace
}  // namespace arlab
