#include "reference/tensors/npy.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/refusal.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab {
namespace {

using std::string_literals::operator""s;

/// A version 1.0 file with this header text and this many bytes of data (0, 1, 2, ...).
std::string npy(const std::string& header, std::size_t data_bytes) {
  std::string file = "\x93NUMPY\x01\x00"s + static_cast<char>(header.size() & 0xff) +
                     static_cast<char>(header.size() >> 8) + header;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

std::string header(const std::string& descr, const std::string& shape,
                   const std::string& fortran_order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran_order + ", 'shape': " + shape +
         ", }\n";
}

Tensor read(const std::string& bytes, DType dtype) {
  const TemporaryDirectory directory;
  return read_npy(directory.write("in.npy", bytes), dtype);
}

/// The message for a file of these bytes, from behind the file's name on.
std::string refusal(const std::string& bytes, DType dtype) {
  const TemporaryDirectory directory;
  const auto path = directory.write("in.npy", bytes);
  const std::string message = message_of([&] { read_npy(path, dtype); });
  EXPECT_TRUE(message.starts_with(path.string() + ": ")) << message;
  return message.substr(std::min(message.size(), path.string().size() + 2));
}

TEST(Npy, ReadsScalarsEmptyArraysAndOneAxisInFortranOrder) {
  EXPECT_EQ(read(npy(header("<f4", "()"), 4), DType::fp32).element_count(), 1u);
  EXPECT_EQ(read(npy(header("<f4", "(3, 0, 2)"), 0), DType::fp32).element_count(), 0u);
  EXPECT_EQ(read(npy(header("<f4", "(2,)", "True"), 8), DType::fp32).element_count(), 2u);
}

TEST(Npy, ReadsVersions2And3AndAnyOrderOfKeys) {
  const std::string text = "{\"shape\":(2,),'fortran_order':False,'descr':\"<f2\"}   ";
  for (const char version : {'\x02', '\x03'}) {
    const std::string bytes =
        "\x93NUMPY"s + version + '\0' + static_cast<char>(text.size()) + "\0\0\0"s + text + "abcd";
    EXPECT_EQ(read(bytes, DType::fp16).element_count(), 2u);
  }
}

TEST(Npy, AnotherElementTypeIsNotCastButExplained) {
  EXPECT_EQ(refusal(npy(header("<f4", "(2,)"), 8), DType::fp16),
            "holds float32 ('<f4'), but dtype fp16 needs float16 ('<f2') or uint16 with raw "
            "patterns ('<u2'): convert it in Python: numpy.load(file).astype('<f2')");
  EXPECT_EQ(refusal(npy(header("<f2", "(2,)"), 4), DType::bf16),
            "holds float16 ('<f2'), but dtype bf16 needs uint16 with raw patterns ('<u2'): convert "
            "it in Python: numpy.load(file).astype(ml_dtypes.bfloat16).view('<u2')");
  EXPECT_EQ(refusal(npy(header("<V2", "(2,)"), 4), DType::bf16),
            "holds raw bytes ('<V2'), but dtype bf16 needs uint16 with raw patterns ('<u2'): "
            "convert it in Python: numpy.load(file).view('<u2')");
  EXPECT_EQ(refusal(npy(header("<u2", "(2,)"), 4), DType::fp32),
            "holds uint16 ('<u2'), but dtype fp32 needs float32 ('<f4'): raw 16-bit patterns are "
            "fp16 or bf16");
  EXPECT_EQ(refusal(npy(header(">f4", "(2,)"), 8), DType::fp32),
            "holds big-endian float32 ('>f4'), but dtype fp32 needs float32 ('<f4'): convert it in "
            "Python: numpy.load(file).astype('<f4')");
  EXPECT_EQ(refusal(npy(header("|O", "(2,)"), 8), DType::fp32),
            "holds Python objects ('|O'), but dtype fp32 needs float32 ('<f4'): numbers are "
            "expected");
  EXPECT_EQ(refusal(npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8),
                    DType::fp32),
            ".npy header: the element type (structured types are not allowed) expected as a "
            "string, found '[('x', '<f4')], 'fortran_order': False, 'shape': (2,)}'");
}

TEST(Npy, WithoutADTypeTheFileDecidesUnlessItHoldsPatterns) {
  const TemporaryDirectory directory;
  const auto read_any = [&](const std::string& descr, std::size_t bytes) {
    return read_npy(directory.write("in.npy", npy(header(descr, "(2,)"), bytes)), std::nullopt);
  };
  EXPECT_EQ(read_any("<f2", 4).dtype, DType::fp16);
  EXPECT_EQ(read_any("<f4", 8).dtype, DType::fp32);
  EXPECT_EQ(message_of([&] { read_any("<u2", 4); }),
            (directory / "in.npy").string() +
                ": holds uint16 ('<u2') patterns: name their dtype, fp16 or bf16");
}

TEST(Npy, FortranOrderIsRefused) {
  EXPECT_EQ(refusal(npy(header("<f4", "(1, 2)", "True"), 8), DType::fp32),
            "the array is in Fortran order, allowed is C order: convert it in Python: "
            "numpy.ascontiguousarray(numpy.load(file))");
}

TEST(Npy, TheFileMustBeAsLongAsTheHeaderSays) {
  EXPECT_EQ(refusal(npy(header("<f4", "(2,)"), 7), DType::fp32),
            "shape '(2,)' of fp32 needs 8 bytes after the header, 7 are there");
  EXPECT_EQ(refusal(npy(header("<f4", "(2,)"), 9), DType::fp32),
            "shape '(2,)' of fp32 needs 8 bytes after the header, 9 are there");
  EXPECT_EQ(
      refusal(npy(header("<f4", "(1000000000, 1000000)"), 8), DType::fp32),
      "shape '(1000000000, 1000000)' of fp32 needs 4000000000000000 bytes after the header, 8 "
      "are there");
  EXPECT_EQ(refusal(npy(header("<f4", "(4294967296, 4294967296)"), 0), DType::fp32),
            "shape '(4294967296, 4294967296)' of fp32 needs more than 2^63 bytes after the header, "
            "0 are there");
}

TEST(Npy, MalformedShapesAreRefused) {
  EXPECT_EQ(refusal(npy(header("<f4", "(2, -1)"), 8), DType::fp32),
            ".npy header: 'shape' has a negative length");
  EXPECT_EQ(refusal(npy(header("<f4", "(18446744073709551616,)"), 8), DType::fp32),
            ".npy header: 'shape' has a length beyond 64 bits");
  EXPECT_EQ(refusal(npy(header("<f4", "(2)"), 8), DType::fp32),
            ".npy header: 'shape' is not a tuple");
  EXPECT_EQ(refusal(npy(header("<f4", "(,)"), 8), DType::fp32),
            ".npy header: a length expected, found ',), }\\x0a'");
  EXPECT_EQ(refusal(npy(header("<f4", "(2 3)"), 8), DType::fp32),
            ".npy header: 'shape' is not a tuple");
}

TEST(Npy, MalformedHeadersAreRefused) {
  const std::string good = header("<f4", "(2,)");
  EXPECT_EQ(refusal("", DType::fp32),
            "not a .npy file: it does not start with \\x93NUMPY and a version");
  EXPECT_EQ(refusal("PK\x03\x04 a zip file, as .npz is", DType::fp32),
            "not a .npy file: it does not start with \\x93NUMPY and a version");
  EXPECT_EQ(refusal("\x93NUMPY\x04\x00\x00\x00"s, DType::fp32),
            ".npy version 4.0: allowed are 1.0, 2.0 and 3.0");
  EXPECT_EQ(refusal("\x93NUMPY\x01\x00\x10"s, DType::fp32),
            "the file ends early: 2 more bytes expected, 1 found");
  EXPECT_EQ(refusal("\x93NUMPY\x01\x00\x10\x00{"s, DType::fp32),
            "the .npy header claims 16 bytes: allowed are at most 65535, and 1 follow");
  EXPECT_EQ(refusal("\x93NUMPY\x02\x00\x00\x00\x01\x00"s.append(70000, ' '), DType::fp32),
            "the .npy header claims 65536 bytes: allowed are at most 65535, and 70000 follow");
  EXPECT_EQ(refusal(npy("{'descr': '<f4', 'shape': (2,)}", 8), DType::fp32),
            ".npy header: 'descr', 'fortran_order' and 'shape' are not all there");
  EXPECT_EQ(refusal(npy("{'descr': '<f4', 'descr': '<f4'}", 8), DType::fp32),
            ".npy header: 'descr' is there twice");
  EXPECT_EQ(refusal(npy("{'order': 1}", 8), DType::fp32), ".npy header: unknown key 'order'");
  EXPECT_EQ(refusal(npy("{'fortran_order': 0}", 8), DType::fp32),
            ".npy header: 'fortran_order' is not True or False but '0}'");
  EXPECT_EQ(refusal(npy(good + "x", 8), DType::fp32),
            ".npy header: text after the dictionary: 'x'");
  EXPECT_EQ(refusal(npy("{'descr' '<f4'}", 8), DType::fp32),
            ".npy header: ':' expected, found ''<f4'}'");
  EXPECT_EQ(refusal(npy("{'descr", 8), DType::fp32),
            ".npy header: a key expected as a string, found ''descr'");
  EXPECT_EQ(refusal(npy("", 8), DType::fp32), ".npy header: '{' expected, found ''");
}

TEST(Npy, EveryTruncationIsRefused) {
  const std::string whole = npy(header("<f2", "(3, 4)"), 24);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    refusal(whole.substr(0, size), DType::fp16);
  }
}

TEST(Npy, WritingIsRefusedWhereThereIsNoDirectory) {
  EXPECT_EQ(message_of([] { write_npy("/nowhere/out.npy", Tensor()); }),
            "cannot write /nowhere/out.npy: No such file or directory");
}

}  // namespace
}  // namespace arlab
