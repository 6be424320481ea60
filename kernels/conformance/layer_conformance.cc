// The kernels of int8 layers against the reference.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/conformance/compare.h"
#include "kernels/conformance/conform.h"
#include "reference/codecs/payload_values.h"
#include "reference/tensors/counter_random.h"
#include "reference/tensors/synthetic.h"

namespace arlab::kernels {
namespace {

struct LayerShape {
  std::size_t tokens, outputs, inputs;
  std::string text() const {
    return fmt::format("{} tokens, {} outputs, {} inputs", tokens, outputs, inputs);
  }
};

std::vector<LayerShape> shapes_up_to(std::size_t longest) {
  std::vector<LayerShape> shapes;
  for (const LayerShape& shape : {LayerShape{1, 1, 1},
                                  {3, 65, 4},
                                  {64, 63, 64},
                                  {66, 130, 65},
                                  {2, 5, 1027},
                                  {129, 1000, 2049}}) {
    if (std::max({shape.tokens, shape.outputs, shape.inputs}) <= longest) shapes.push_back(shape);
  }
  return shapes;
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// Any codes with any zero points; scales of all sizes, some that are no number.
Int8Matrix any_codes(std::size_t rows, std::size_t columns, bool asymmetric, std::uint64_t seed) {
  const RandomStream random(seed, columns);
  std::uint64_t at = 0;
  const auto next = [&] { return static_cast<std::uint32_t>(random.word(at++)); };
  Int8Matrix m{.rows = rows, .columns = columns, .asymmetric = asymmetric};
  for (std::size_t r = 0; r < rows; ++r) {
    const int size = static_cast<int>(next() % 40) - 20;
    const float scale = static_cast<float>(next() % 1000) * std::ldexp(1.0F, size);
    const bool is_number = next() % 16 != 0;
    const auto code = [&](bool whole) {
      const auto byte = static_cast<std::int8_t>(next() & 0xFF);
      return whole || byte != -128 ? byte : std::int8_t{-127};
    };
    // Rows in which all are as far from zero as they can be.
    const bool extreme = r % 5 == 4;
    m.scales.push_back({is_number ? scale : std::numeric_limits<float>::quiet_NaN(),
                        asymmetric ? (extreme ? 127 : code(true)) : 0});
    for (std::size_t i = 0; i < columns; ++i) {
      m.codes.push_back(extreme ? std::int8_t(asymmetric ? -128 : -127) : code(asymmetric));
    }
  }
  m.sums.resize(rows);
  return m.part(0, columns);  // with sums
}

class LayerConformance {
 public:
  LayerConformance(const Platform& platform, std::uint64_t seed,
                   const std::function<void(const ConformanceRow&)>& row_done)
      : platform_(platform), seed_(seed), row_done_(row_done) {}

  Status run(const std::vector<LayerShape>& shapes) {
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
      for (const char* name : {"int8", "int8-asym", "int8-tensor", "int8-tensor-asym",
                               "int8-tensor-static", "int8-tensor-asym-static"}) {
        ARLAB_RETURN_IF_ERROR(
            check_quantize(parse_operand(Operand::activations, name), dtype, shapes));
      }
      for (const char* x : {"int8", "int8-asym"}) {
        for (const char* w : {"int8", "int8-asym"}) {
          ARLAB_RETURN_IF_ERROR(check_linear(parse_operand(Operand::activations, x),
                                             parse_operand(Operand::weights, w), dtype, shapes));
        }
      }
    }
    return {};
  }

 private:
  Status check_quantize(const OperandFormat& format, DType dtype,
                        const std::vector<LayerShape>& shapes) {
    ConformanceRow row{.subject = "quantize", .codec = format.name(), .dtype = dtype};
    std::optional<Int8Scale> given;
    if (format.given) given = Int8Scale{0.013F, format.asymmetric ? -31 : 0};
    for (const LayerShape& shape : shapes) {
      for (const char* kind : {"gaussian:sigma=1,seed={}", "adversarial:non_finite=0,seed={}",
                               "adversarial:non_finite=0.02,seed={}"}) {
        const Tensor values = make_synthetic(fmt::format(fmt::runtime(kind), seed_), dtype,
                                             shape.tokens, shape.inputs);
        std::vector<float> floats(shape.tokens * shape.inputs);
        for (std::size_t i = 0; i < floats.size(); ++i) {
          floats[i] = load_value(dtype, values.bytes(), i);
        }
        const Int8Matrix expected = quantize_int8_scalar(
            {floats.data(), shape.tokens, shape.inputs, shape.inputs}, format, given);
        Int8Matrix got;
        ARLAB_RETURN_IF_ERROR(
            platform_.quantize_int8(dtype, values.bytes(), shape.tokens, format, given, got));
        const std::string where =
            fmt::format("{} x {} {}", shape.tokens, shape.inputs,
                        std::string_view(kind).substr(0, std::string_view(kind).find(':')));
        compare(bytes_of(expected.codes), bytes_of(got.codes), 1, where + ", codes", row,
                kNothingMore);
        compare(bytes_of(expected.scales), bytes_of(got.scales), 4,
                where + ", scales and zero points", row, kNothingMore);
        compare(bytes_of(expected.sums), bytes_of(got.sums), 4, where + ", sums", row,
                kNothingMore);
        row.compared_elements += expected.codes.size();
      }
    }
    row_done_(row);
    return {};
  }

  Status check_linear(const OperandFormat& x_format, const OperandFormat& w_format, DType dtype,
                      const std::vector<LayerShape>& shapes) {
    ConformanceRow row{.subject = "linear",
                       .codec = fmt::format("{} x {}", x_format.name(), w_format.name()),
                       .dtype = dtype};
    for (const LayerShape& shape : shapes) {
      const Int8Matrix x = any_codes(shape.tokens, shape.inputs, x_format.asymmetric, seed_);
      const Int8Matrix w = any_codes(shape.outputs, shape.inputs, w_format.asymmetric, seed_ + 1);
      const std::vector<float> y = linear_int8_scalar(x, w);
      std::vector<std::byte> expected(y.size() * size_of(dtype));
      for (std::size_t i = 0; i < y.size(); ++i) store_value(dtype, y[i], expected, i);
      std::vector<std::byte> got(expected.size(), std::byte{0xA5});
      ARLAB_RETURN_IF_ERROR(platform_.linear_int8(x, w, dtype, got));
      compare(expected, got, size_of(dtype), shape.text(), row, kNothingMore);
      row.compared_elements += y.size();
    }
    row_done_(row);
    return {};
  }

  const Platform& platform_;
  std::uint64_t seed_;
  const std::function<void(const ConformanceRow&)>& row_done_;
};

}  // namespace

Status run_layer_conformance(const Platform& platform, std::size_t longest, std::uint64_t seed,
                             const std::function<void(const ConformanceRow&)>& row_done) {
  try {
    return LayerConformance(platform, seed, row_done).run(shapes_up_to(longest));
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
}

}  // namespace arlab::kernels
