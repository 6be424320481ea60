// probe_layers SEEDS TOKENS OUTPUTS: the kernels of int8 layers in so many random orders of lanes,
// against the reference. Exit code 1 when bits differ.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/layers/int8_layers.h"
#include "kernels/platform/host/emulator.h"
#include "reference/layers/linear.h"
#include "reference/tensors/synthetic.h"

namespace arlab::kernels {
namespace {

/// A matrix where kernels have it, in memory that the emulated device shares.
struct OnDevice {
  std::vector<Uint4> codes;  // for their alignment
  std::vector<Int8Scale> scales;
  std::vector<std::int32_t> sums;

  explicit OnDevice(std::size_t rows, std::size_t columns)
      : codes(rows * int8_row_bytes(columns) / sizeof(Uint4)), scales(rows), sums(rows) {}
  DeviceInt8 memory() {
    return {reinterpret_cast<std::int8_t*>(codes.data()), scales.data(), sums.data()};
  }
};

bool same(const void* a, const void* b, std::size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

/// Quantized, it is what the reference makes of it; and stays in `to`.
bool quantizes(const Tensor& values, std::size_t rows, std::size_t columns,
               const OperandFormat& format, OnDevice& to, Int8Matrix& expected) {
  std::vector<float> floats(rows * columns);
  std::memcpy(floats.data(), values.bytes().data(), values.bytes().size());
  std::optional<Int8Scale> given;
  if (format.given) given = Int8Scale{0.02F, format.asymmetric ? 9 : 0};
  expected = quantize_int8_scalar({floats.data(), rows, columns, columns}, format, given);
  std::vector<Extremes> extremes(rows);
  const Int8Rule rule = {format.asymmetric, format.per_tensor, format.given,
                         given.value_or(Int8Scale())};
  (void)launch_quantize_int8(DType::fp32, floats.data(), rows, columns, rule, extremes.data(),
                             to.memory(), nullptr);
  (void)hipStreamSynchronize(nullptr);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int8_t* const codes = to.memory().codes + r * int8_row_bytes(columns);
    if (!same(codes, &expected.codes[r * columns], columns)) return false;
  }
  return same(to.scales.data(), expected.scales.data(), rows * sizeof(Int8Scale)) &&
         same(to.sums.data(), expected.sums.data(), rows * sizeof(std::int32_t));
}

bool conforms(const char* x_name, const char* w_name, std::uint64_t seed, std::size_t tokens,
              std::size_t outputs) {
  // ThreadSanitizer takes 8128 lanes at most.
  emulator::configure({.wave_size = seed % 2 == 0 ? 64 : 32, .seed = seed, .resident_blocks = 8});
  const std::size_t inputs = 133;
  const std::string of_seed = std::to_string(seed);
  OnDevice x(tokens, inputs);
  OnDevice w(outputs, inputs);
  Int8Matrix expected_x;
  Int8Matrix expected_w;
  for (const std::string kind : {"adversarial:non_finite=0.1,seed=", "gaussian:seed="}) {
    const Tensor of_x = make_synthetic(kind + of_seed, DType::fp32, tokens, inputs);
    const Tensor of_w = make_synthetic("gaussian:seed=7" + of_seed, DType::fp32, outputs, inputs);
    const OperandFormat x_format = parse_operand(Operand::activations, x_name);
    const OperandFormat w_format = parse_operand(Operand::weights, w_name);
    if (!quantizes(of_x, tokens, inputs, x_format, x, expected_x)) return false;
    if (!quantizes(of_w, outputs, inputs, w_format, w, expected_w)) return false;
    const std::vector<float> expected = linear_int8_scalar(expected_x, expected_w);
    std::vector<float> y(expected.size());
    (void)launch_linear_int8(x.memory(), tokens, w.memory(), outputs, inputs, DType::fp32, y.data(),
                             nullptr);
    (void)hipStreamSynchronize(nullptr);
    if (!same(y.data(), expected.data(), y.size() * sizeof(float))) return false;
  }
  return true;
}

}  // namespace
}  // namespace arlab::kernels

int main(int, char** arguments) {
  const auto number = [&](int i) { return static_cast<std::size_t>(std::atoi(arguments[i])); };
  for (std::uint64_t seed = 1; seed <= number(1); ++seed) {
    for (const auto& [x, w] : {std::pair("int8-tensor-asym-static", "int8-tensor-asym"),
                               std::pair("int8", "int8-asym")}) {
      if (arlab::kernels::conforms(x, w, seed, number(2), number(3))) continue;
      std::printf("%s x %s, seed %zu: bits differ from the reference\n", x, w, std::size_t{seed});
      return 1;
    }
  }
  return 0;
}
