#include "reference/tensors/tensor.h"

#include <gtest/gtest.h>

#include <limits>

#include "reference/tensors/file.h"
#include "tests/refusal.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab {
namespace {

TEST(Tensor, HoldsZerosOfItsShape) {
  const Tensor tensor = make_tensor(DType::bf16, {2, 3, 4});
  EXPECT_EQ(tensor.element_count(), 24u);
  EXPECT_EQ(tensor.bytes().size(), 48u);
  EXPECT_EQ(tensor.ranks(), 2u);
  EXPECT_EQ(tensor.elements_per_rank(), 12u);
  for (const std::uint16_t bits : tensor.bits16()) EXPECT_EQ(bits, 0);
}

TEST(Tensor, ShapeWithoutAxesIsOneElementWithoutRanks) {
  const Tensor tensor = make_tensor(DType::fp32, {});
  EXPECT_EQ(tensor.element_count(), 1u);
  EXPECT_EQ(message_of([&] { tensor.ranks(); }),
            "a tensor of shape () has no axis of ranks: allowed is [ranks, ...]");
}

TEST(Tensor, EmptyShapesHaveNoElements) {
  EXPECT_EQ(Tensor().element_count(), 0u);
  EXPECT_EQ(Tensor().elements_per_rank(), 0u);
  EXPECT_EQ(make_tensor(DType::fp16, {4, 0}).elements_per_rank(), 0u);
  EXPECT_TRUE(make_tensor(DType::fp16, {4, 0}).rank_bytes(3).empty());
}

TEST(Tensor, RankBytesAreThePayloadsInOrder) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  Tensor tensor = tensor_from_floats(DType::fp32, {3, 2}, values);
  EXPECT_EQ(tensor.rank_bytes(2).data(), tensor.bytes().data() + 16);
  EXPECT_EQ(tensor.rank_bytes(2).size(), 8u);
  EXPECT_EQ(message_of([&] { tensor.rank_bytes(3); }), "rank 3 of a tensor of 3 ranks");
}

TEST(Tensor, FloatsAreRoundedToNearestEven) {
  const std::vector<float> values = {1.0f, 2049.0f, 65520.0f, -0.0f, 257.0f};
  const Tensor half = tensor_from_floats(DType::fp16, {5}, values);
  EXPECT_EQ(to_floats(half), (std::vector<float>{1, 2048, INFINITY, -0.0f, 257}));
  EXPECT_EQ(half.bits16()[3], 0x8000);
  const Tensor brain = tensor_from_floats(DType::bf16, {5}, values);
  EXPECT_EQ(to_floats(brain), (std::vector<float>{1, 2048, 65536, -0.0f, 256}));
  EXPECT_EQ(to_float(brain, 4), 256);
  EXPECT_EQ(to_floats(tensor_from_floats(DType::fp32, {5}, values)), values);
}

TEST(Tensor, EveryPatternSurvivesTheWayThroughFloat) {
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    Tensor tensor = make_tensor(dtype, {65536});
    for (std::size_t i = 0; i < 65536; ++i) tensor.bits16()[i] = static_cast<std::uint16_t>(i);
    const std::vector<float> values = to_floats(tensor);
    const Tensor back = tensor_from_floats(dtype, {65536}, values);
    for (std::size_t i = 0; i < 65536; ++i) {
      EXPECT_TRUE(std::isnan(values[i]) || back.bits16()[i] == i) << i;
      EXPECT_TRUE(std::isnan(values[i]) || to_float(tensor, i) == values[i]) << i;
    }
  }
}

TEST(Tensor, AccessAsAnotherTypeIsRefused) {
  Tensor tensor = make_tensor(DType::fp16, {1});
  EXPECT_EQ(message_of([&] { tensor.floats(); }), "a tensor of dtype fp16 has no fp32 elements");
  tensor = make_tensor(DType::fp32, {1});
  EXPECT_EQ(message_of([&] { tensor.bits16(); }), "a tensor of dtype fp32 has no 16-bit patterns");
}

TEST(Tensor, ImpossibleSizesAreRefused) {
  constexpr std::size_t kHalf = std::size_t{1} << 62;
  EXPECT_EQ(byte_count(DType::fp16, std::vector<std::size_t>{kHalf}), std::nullopt);
  EXPECT_EQ(byte_count(DType::fp16, std::vector<std::size_t>{0, kHalf, kHalf}), std::nullopt);
  EXPECT_EQ(byte_count(DType::fp32, std::vector<std::size_t>{0, kHalf / 4}), 0u);
  EXPECT_EQ(message_of([&] { make_tensor(DType::fp16, {kHalf, 4}); }),
            "a tensor of shape (4611686018427387904, 4) is too large to address");
  EXPECT_EQ(message_of([&] { tensor_from_floats(DType::fp16, {3}, std::vector<float>{1, 2}); }),
            "2 values do not fill the shape (3,)");
}

TEST(File, IsReplacedAsAWhole) {
  const TemporaryDirectory directory;
  const auto path = directory.write("out.bin", "what was there before");
  const std::string text = "new";
  write_file(path, {std::as_bytes(std::span(text)), std::as_bytes(std::span(text))});
  EXPECT_EQ(bytes_of(path), "newnew");
  EXPECT_EQ(directory.file_count(), 1u);
}

TEST(File, WritesThroughASymbolicLink) {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("target.bin", directory / "link.bin");
  write_file(directory / "link.bin", {});
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link.bin"));
  EXPECT_TRUE(std::filesystem::is_regular_file(directory / "target.bin"));
}

TEST(File, FailuresLeaveNothingBehind) {
  const TemporaryDirectory directory;
  const std::string missing = (directory / "missing" / "out.bin").string();
  EXPECT_EQ(message_of([&] { write_file(missing, {}); }),
            "cannot write " + missing + ": No such file or directory");
  EXPECT_EQ(message_of([&] { write_file("/dev/null", {}); }),
            "cannot write /dev/null: not a regular file");
  EXPECT_EQ(directory.file_count(), 0u);
}

TEST(File, OnlyRegularFilesAreRead) {
  const TemporaryDirectory directory;
  const std::string missing = (directory / "missing").string();
  EXPECT_EQ(message_of([&] { const InputFile file(missing); }),
            "cannot read " + missing + ": No such file or directory");
  EXPECT_EQ(message_of([&] { const InputFile file("/dev/zero"); }),
            "cannot read /dev/zero: not a regular file");
  InputFile file(directory.write("short", "abc"));
  std::string text(4, ' ');
  EXPECT_NE(message_of([&] {
              file.read(std::span(text));
            }).find("the file ends early: 4 more bytes expected, 3 found"),
            std::string::npos);
}

TEST(File, QuotedTextStaysOnOneLine) {
  EXPECT_EQ(quote("plain"), "'plain'");
  EXPECT_EQ(quote("a\nb\x1b\xff"), "'a\\x0ab\\x1b\\xff'");
  EXPECT_EQ(quote(std::string(61, 'x')), "'" + std::string(60, 'x') + "'...");
}

}  // namespace
}  // namespace arlab
