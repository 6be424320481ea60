// Thousands of random damages to valid files: each must read as a valid tensor or be refused in one
// line, and neither may ask for more memory than the file's size justifies.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>
#include <string>

#include "reference/tensors/npy.h"
#include "reference/tensors/safetensors.h"
#include "tests/tensors/temporary_directory.h"

namespace {

std::size_t allocated_bytes = 0;

}  // namespace

// Counts what is asked for; the array forms of the standard library end here, too. Not inlined, for
// else GCC sees memory of operator new go to free and warns.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocated_bytes += size;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace arlab {
namespace {

constexpr int kRounds = 1500;  // per valid file

/// One to three random changes, most of them within the first `header_bytes` bytes.
std::string damaged(std::string bytes, std::size_t header_bytes, std::mt19937_64& random) {
  const std::string_view alphabet = "0123456789-,:'\"()[]{}<>|fuVOF \n\\eE.";
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  for (std::size_t change = 1 + below(3); change > 0 && !bytes.empty(); --change) {
    const std::size_t at =
        below(below(10) == 0 ? bytes.size() : std::min(header_bytes, bytes.size()));
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes[at] = alphabet[below(alphabet.size())];
        break;
      case 3:
        bytes.insert(at, 1 + below(20), alphabet[below(alphabet.size())]);
        break;
      case 4:
        bytes.erase(at, 1 + below(8));
        break;
      case 5:
        bytes.insert(at, bytes.substr(below(bytes.size()), below(40)));
        break;
      default:
        bytes.resize(at);
        break;
    }
  }
  return bytes;
}

/// What became of the damaged files.
struct Outcome {
  int read = 0;
  int refused = 0;
};

/// Damages `valid` kRounds times; `read` gets the path of each and returns a tensor.
template <typename Read>
Outcome damage_and_read(const std::string& valid, std::size_t header_bytes, Read read) {
  const TemporaryDirectory directory;
  std::mt19937_64 random(valid.size());
  Outcome outcome;
  for (int round = 0; round < kRounds; ++round) {
    const std::string bytes = damaged(valid, header_bytes, random);
    std::filesystem::remove(directory / "damaged");  // faster than to overwrite it
    const auto path = directory.write("damaged", bytes);
    allocated_bytes = 0;
    try {
      const Tensor tensor = read(path);
      EXPECT_EQ(byte_count(tensor.dtype, tensor.shape), tensor.data.size());
      EXPECT_LE(tensor.data.size(), bytes.size());
      ++outcome.read;
    } catch (const InvalidInput& error) {
      const std::string_view message = error.what();
      EXPECT_TRUE(message.find(path.string()) != message.npos) << message;
      EXPECT_TRUE(message.find('\n') == message.npos) << message;
      EXPECT_LT(message.size(), 1000u);
      ++outcome.refused;
    }
    EXPECT_LE(allocated_bytes, 16384 + 40 * bytes.size());
  }
  return outcome;
}

TEST(MalformedFiles, NpyIsReadOrRefused) {
  const TemporaryDirectory directory;
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    for (const auto& shape : std::vector<std::vector<std::size_t>>{{}, {12}, {2, 3, 4}, {8, 128}}) {
      write_npy(directory / "valid.npy", make_tensor(dtype, shape));
      const std::string valid = bytes_of(directory / "valid.npy");
      const Outcome outcome = damage_and_read(
          valid, 90, [dtype](const std::filesystem::path& path) { return read_npy(path, dtype); });
      EXPECT_GT(outcome.read, kRounds / 1000);
      EXPECT_GT(outcome.refused, kRounds / 2);
    }
  }
}

TEST(MalformedFiles, SafetensorsIsReadOrRefused) {
  const std::string one = R"({"x":{"dtype":"F16","shape":[4,8],"data_offsets":[0,64]}}   )";
  const std::string three =
      R"({"__metadata__":{"made by":"a test"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("x":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("b.c":{"dtype":"I64","shape":[6],"data_offsets":[16,64]}})";
  for (const std::string& json : {one, three}) {
    std::string valid(8, '\0');
    valid[0] = static_cast<char>(json.size());
    valid += json + std::string(64, 'd');
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Outcome outcome =
          damage_and_read(valid, json.size() + 8, [](const std::filesystem::path& path) {
            list_safetensors(path);
            return read_safetensors(path, "x");
          });
      EXPECT_GT(outcome.read, kRounds / 1000);
      EXPECT_GT(outcome.refused, kRounds / 2);
    }
  }
}

}  // namespace
}  // namespace arlab
