// Codecs of a user's header on NVIDIA GPUs: the kernels that they have, and what the author of the header is told. Without a GPU;
// what is compiled, where NVRTC is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "kernels/codecs/codec_kernels.h"
#include "kernels/codecs/of_header.h"
#include "kernels/collectives/slots_of_codec.h"
#include "kernels/compile/ahead.h"
#include "kernels/compile/sources.h"
#include "kernels/compile/store.h"
#include "kernels/runtime/prepared_call.h"
#include "kernels/runtime/select.h"
#include "kernels/runtime/team_memory.h"
#include "mini_codec.h"
#include "reference/codecs/compiled_codec.h"
#include "reference/codecs/formats/absmax8_g32.h"
#include "reference/codecs/formats/codebook.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "tests/tensors/temporary_directory.h"
#include "wide_codec.h"

namespace arlab::kernels {
namespace {

/// As what makes a library of a header does, with the struct that this program has.
template <class Struct>
void know(const std::filesystem::path& file, const std::string& structure) {
  const std::vector<Header> read = read_header(file).value();
  CodecHeader header{file.string(), structure, 1, {}, hash_of(read)};
  for (const Header& each : read) header.files.emplace_back(each.name, each.text);
  register_header_codecs(header, CompiledFormat<Struct>::kCodecs);
}

class KernelsOfHeaders : public testing::Test {
 protected:
  void SetUp() override {
    setenv("VIRTUAL_ENV", ARLAB_SOURCE_DIR "/.venv", 0);  // NOLINT(concurrency-mt-unsafe)
    for (const char* file : {"mini_codec.h", "mini_element.h", "wide_codec.h"}) {
      folder_.write(
          file, bytes_of(std::filesystem::path(ARLAB_SOURCE_DIR) / "tests/contributing" / file));
    }
    folder_.write("absmax.h", bytes_of(ARLAB_ABSMAX8_HEADER));
    know_all();
  }
  void know_all() const {
    know<Absmax8G32>(folder_ / "absmax.h", "arlab::Absmax8G32");
    know<tests::MiniCodec>(folder_ / "mini_codec.h", "arlab::tests::MiniCodec");
    know<tests::WideCodec>(folder_ / "wide_codec.h", "arlab::tests::WideCodec");
  }
  /// In one of the files; all are known anew.
  void replace(const char* file, const std::string& old, const std::string& by) const {
    std::string text = bytes_of(folder_ / file);
    ASSERT_NE(text.find(old), text.npos) << old;
    folder_.write(file, text.replace(text.find(old), old.size(), by));
    know_all();
  }
  const TemporaryDirectory folder_;
};

std::vector<WantedKernel> kernels_of(const std::string& codec, DType dtype, int ranks = 2) {
  const TeamResources team = [&] {
    const CommunicatorOptions options;
    TeamResources made = {{}, options, 128, nullptr};
    set_layout(0, layout_of(options, ranks, 128), options, made.team);
    return made;
  }();
  std::vector<WantedKernel> kernels = kernels_of_codecs(std::vector<CodecAndDType>{{codec, dtype}});
  for (const char* algorithm : {"one_shot", "two_shot", "ring", "all_to_all", "tree"}) {
    for (const std::size_t elements :
         {std::size_t{4096}, std::size_t{24576}, std::size_t{1} << 24}) {
      const auto call = PreparedCall::prepare({algorithm, codec, dtype, elements}, team);
      EXPECT_TRUE(call.ok()) << call.status().message();
      const std::vector<WantedKernel> of_call = call.value()->kernels().value();
      kernels.insert(kernels.end(), of_call.begin(), of_call.end());
    }
  }
  return kernels;
}
std::set<std::string> forms_of(const std::vector<WantedKernel>& kernels) {
  std::set<std::string> forms;
  for (const WantedKernel& each : kernels) forms.insert(each.name.substr(0, each.name.find(' ')));
  return forms;
}
WantedKernel kernel_of(const std::string& codec, DType dtype, const std::string& form) {
  for (WantedKernel& kernel : kernels_of(codec, dtype)) {
    if (kernel.name.starts_with(form + " ")) return kernel;
  }
  throw std::runtime_error(codec + " has no kernel " + form);
}

template <class Codec, class Element>
void expect_traits(const std::string& name) {
  const CodecTraits traits = traits_of(choose_codec(name).value(), Element::kDType);
  EXPECT_EQ(traits.tuning.resident_blocks, Codec::kTuning.resident_blocks) << name;
  EXPECT_EQ(traits.tuning.batch, Codec::kTuning.batch) << name;
  EXPECT_EQ(traits.is_tuned, Codec::kTuning.tuned) << name;
  EXPECT_FALSE(traits.programs_only || traits.pads_tiles || traits.has_message_scale) << name;
  EXPECT_EQ(traits.one_shot_sentinel, (kOneShotWorksWithSentinels<Codec, Element>)) << name;
  EXPECT_EQ(traits.two_shot_sentinel, (kTwoShotWorksWithSentinels<Codec, Element>)) << name;
  if constexpr (kWorksInLamportSlots<Codec, Element>) {
    EXPECT_EQ(traits.lamport_blocks, kLamportBlocks<Codec>) << name;
    EXPECT_EQ(traits.most_sentinel_tile_bytes, kSentinelTileBytes<Codec>) << name;
  }
}

TEST_F(KernelsOfHeaders, AreChosenAsTheirTypesWouldBe) {
  using Absmax = FormatOfHeader<Absmax8G32, 8, false>;
  using Mini = FormatOfHeader<tests::MiniCodec, 4, false>;
  using Wide = FormatOfHeader<tests::WideCodec, 8, true>;
  expect_traits<Scaled<Absmax, Bf16>, Bf16>("absmax8-g32");
  expect_traits<Scaled<Absmax, Fp32>, Fp32>("absmax8-g32");
  expect_traits<Scaled<Mini, Fp16>, Fp16>("mini-g16");
  expect_traits<StochasticScaled<Mini, Bf16>, Bf16>("mini-g16-stoch");
  expect_traits<Scaled<Wide, Fp16>, Fp16>("wide8-g256");
  EXPECT_TRUE((Scaled<Wide, Fp16>::kClampsFp16Sums));
  EXPECT_FALSE((Scaled<Mini, Fp16>::kClampsFp16Sums));
  EXPECT_EQ((Scaled<Wide, Fp16>::kTileBytes),
            2064);  // 2048 codes and 8 scales, in words of 16 bytes
}

TEST_F(KernelsOfHeaders, AreTheOnesThatTheSimulatorTakes) {
  for (const char* name : {"absmax8-g32", "mini-g16-stoch", "wide8-g256"}) {
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
      const CodecTraits code = traits_of(choose_codec(name).value(), dtype);
      const CodecInKernels known = codec_in_kernels(name, dtype);
      EXPECT_EQ(known.is_tuned, code.is_tuned) << name;
      EXPECT_EQ(known.lamport_blocks, code.lamport_blocks) << name;
      EXPECT_EQ(known.one_shot_sentinel, code.one_shot_sentinel) << name;
      EXPECT_EQ(known.two_shot_sentinel, code.two_shot_sentinel) << name;
      EXPECT_GE(known.most_sentinel_tile_bytes, code.most_sentinel_tile_bytes) << name;
    }
  }
}

TEST_F(KernelsOfHeaders, AreThoseOfABuiltInCodecOfTheShape) {
  // nf4-g64 is e2m1's neighbour: four bits, a scale for each group.
  EXPECT_EQ(forms_of(kernels_of("mini-g16", DType::bf16)),
            forms_of(kernels_of("nf4-g64", DType::bf16)));
  EXPECT_EQ(forms_of(kernels_of("absmax8-g32", DType::bf16)),
            (std::set<std::string>{"all_to_all", "decode", "decode_add", "encode",
                                   "one_shot_lamport/8", "one_shot_sentinel", "program", "ring",
                                   "two_shot", "two_shot_lamport"}));
  EXPECT_TRUE(forms_of(kernels_of("wide8-g256", DType::fp16)).contains("two_shot_sentinel/2"));
  EXPECT_EQ(forms_of(kernels_of("absmax8-g32", DType::fp32)),
            forms_of(kernels_of("nf4-g64", DType::fp32)));
}

TEST_F(KernelsOfHeaders, Compile) {
  const Result<const Compiler*> compiler = nvrtc(0);
  if (!compiler.ok()) GTEST_SKIP() << "no NVRTC";
  const TemporaryDirectory cache;
  KernelCache kept({.folder = cache / "kernels"});
  for (const auto& [codec, dtype, form] :
       {std::tuple{"wide8-g256", DType::bf16, "two_shot_sentinel/2"},
        {"absmax8-g32", DType::bf16, "one_shot_sentinel"},
        {"absmax8-g32", DType::fp16, "program"},
        {"absmax8-g32", DType::fp32, "encode"},
        {"mini-g16-stoch", DType::bf16, "two_shot_lamport"},
        {"wide5-g256-away", DType::fp16, "all_to_all"}}) {
    const auto code = KernelStore::from(kept, kernel_of(codec, dtype, form), "sm_90");
    EXPECT_TRUE(code.ok()) << codec << ' ' << form << ": " << code.status().message();
  }
}

std::string key_text(const WantedKernel& kernel) {
  return KernelStore::key_of(kernel, "sm_90").unit;
}

TEST_F(KernelsOfHeaders, AreOthersOfAnotherHeader) {
  const std::string before = key_text(kernel_of("mini-g16", DType::bf16, "encode"));
  know_all();
  EXPECT_EQ(key_text(kernel_of("mini-g16", DType::bf16, "encode")), before);
  EXPECT_NE(key_text(kernel_of("mini-g16-stoch", DType::bf16, "encode")), before);
  replace("mini_element.h", "#pragma once", "#pragma once  // edited");
  const std::string after = key_text(kernel_of("mini-g16", DType::bf16, "encode"));
  EXPECT_NE(after, before);
  replace("mini_codec.h", "e2m1 elements", "elements");
  EXPECT_NE(key_text(kernel_of("mini-g16", DType::bf16, "encode")), after);
}

std::string error_of(const std::string& codec) {
  const TemporaryDirectory cache;
  KernelCache kept({.folder = cache / "kernels"});
  return KernelStore::from(kept, kernel_of(codec, DType::bf16, "encode"), "sm_90")
      .status()
      .message();
}

TEST_F(KernelsOfHeaders, ThatDoNotCompileAreShownWhereTheyStand) {
  if (!nvrtc(0).ok()) GTEST_SKIP() << "no NVRTC";
  const auto expect_error = [&](const std::string& codec, const std::string& begin) {
    const std::string error = error_of(codec);
    EXPECT_TRUE(error.starts_with((folder_ / "").string() + begin)) << error;
    EXPECT_NE(error.find("(compiled by NVRTC"), error.npos) << error;
    EXPECT_EQ(error.find('\n'), error.npos) << error;
  };
  const auto expect_error_at = [&](const std::string& text, const std::string& error) {
    const std::string header = bytes_of(folder_ / "absmax.h");
    const std::string before = header.substr(0, header.find(text));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    expect_error("absmax8-g32", fmt::format("absmax.h:{}: {}", line, error));
  };
  replace("absmax.h", "round_to_even(", "std::nearbyint(");
  expect_error_at("std::nearbyint", "namespace \"std\" has no member \"nearbyint\"");
  replace("absmax.h", "#pragma once", "#pragma once\n#include <cstdio>");
  expect_error_at("#include <cstdio>", "could not open source file \"cstdio\"");
  replace("wide_codec.h", "bool away", "const char* text = nullptr;\n  bool away");
  expect_error("wide5-g256", "wide_codec.h:1: struct arlab::tests::WideCodec: ");
  folder_.write("mini_element.h", "#pragma once\nint x = ;\n");
  know_all();
  EXPECT_TRUE(error_of("mini-g16").starts_with("mini_element.h:2: ")) << error_of("mini-g16");
}

/// Returns the part of a call that ranks compare.
std::uint64_t call_of(const std::string& codec) {
  TeamResources team = {{}, {}, 128, nullptr};
  set_layout(0, layout_of({}, 2, 128), {}, team.team);
  return PreparedCall::prepare({"two_shot", codec, DType::bf16, 4096}, team).value()->hash();
}

TEST_F(KernelsOfHeaders, AreAgreedOnAnewOnceTheCodecIsAnother) {
  const std::uint64_t first = call_of("absmax8-g32");
  know_all();
  EXPECT_EQ(call_of("absmax8-g32"), first);
  replace("absmax.h", "#pragma once", "#pragma once  // edited");
  EXPECT_NE(call_of("absmax8-g32"), first);
  const std::uint64_t other = call_of("mini-g16");
  replace("absmax.h", "// edited", "// edited again");
  EXPECT_EQ(call_of("mini-g16"), other);
  register_codebook("thirds", 32, std::array{-1.0F, -0.3F, 0.3F, 1.0F});
  const std::uint64_t thirds = call_of("thirds-g32");
  register_codebook("thirds", 32, std::array{-1.0F, -0.4F, 0.4F, 1.0F});
  EXPECT_NE(call_of("thirds-g32"), thirds);
}

}  // namespace
}  // namespace arlab::kernels
