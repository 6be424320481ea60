// The kernels of int8 layers: reference/layers/SPEC.md, "Scales and codes of int8" and "Products of int8".
#pragma once

#include "kernels/codecs/payload.h"
#include "reference/layers/int8.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Codes of a row begin at multiples of so many bytes; what is behind the last is 0.
inline constexpr std::size_t kInt8RowBytes = 64;
constexpr std::size_t int8_row_bytes(std::size_t columns) {
  return (columns + kInt8RowBytes - 1) / kInt8RowBytes * kInt8RowBytes;
}

/// How scales are found.
struct Int8Rule {
  bool asymmetric;
  bool per_tensor;
  bool given;
  Int8Scale scale;  ///< where it is given
};

/// sum + the products of four bytes each, as numbers with sign.
ARLAB_DEVICE std::int32_t dot_of_bytes(std::uint32_t a, std::uint32_t b, std::int32_t sum) {
#if defined(__HIP__)
  return __builtin_amdgcn_sdot4(static_cast<int>(a), static_cast<int>(b), sum, false);
#elif !defined(__HIP_PLATFORM_HOST__)
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
#else
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<std::int8_t>(a >> 8 * i) * static_cast<std::int8_t>(b >> 8 * i);
  }
  return sum;
#endif
}

/// Combines all threads' values in any order; every thread gets it. Once with the same memory.
template <class T, class Combine>
ARLAB_DEVICE T combined_in_block(T own, T (&memory)[kThreads], Combine combine) {
  const unsigned thread = thread_index();
  memory[thread] = own;
#pragma unroll 1
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) memory[thread] = combine(memory[thread], memory[thread + half]);
  }
  __syncthreads();
  return memory[0];
}

/// Extremes in the memory that a block shares: as many as it has threads.
struct ExtremesMemory {
  float lowest[kThreads];
  float highest[kThreads];
};

ARLAB_DEVICE Extremes combined_in_block(const Extremes& own, ExtremesMemory& memory) {
  return {
      combined_in_block(own.lowest, memory.lowest, [](float a, float b) { return a < b ? a : b; }),
      combined_in_block(own.highest, memory.highest,
                        [](float a, float b) { return a > b ? a : b; })};
}

template <class Element>
ARLAB_DEVICE float value_at(const typename Element::Bits* values, std::size_t i) {
  if constexpr (sizeof(values[0]) == 4) {
    return values[i];
  } else {
    return Element::to_float(values[i]);
  }
}

/// A block for each row.
template <class Element>
ARLAB_DEVICE void find_extremes(const typename Element::Bits* values, std::size_t columns,
                                Extremes* extremes) {
  ARLAB_SHARED_ARRAY(ExtremesMemory, memory, 1);
  const typename Element::Bits* const row = values + blockIdx.x * columns;
  Extremes own;
#pragma unroll 1
  for (std::size_t i = thread_index(); i < columns; i += kThreads) {
    own.add(value_at<Element>(row, i));
  }
  const Extremes all = combined_in_block(own, memory[0]);
  if (thread_index() == 0) extremes[blockIdx.x] = all;
}

/// Likewise.
template <class Element>
ARLAB_DEVICE void quantize_rows(const typename Element::Bits* values, std::size_t rows,
                                std::size_t columns, const Int8Rule& rule, const Extremes* extremes,
                                std::int8_t* codes, Int8Scale* scales, std::int32_t* sums) {
  ARLAB_SHARED_ARRAY(ExtremesMemory, memory, 1);
  ARLAB_SHARED_ARRAY(std::int32_t, sum_memory, kThreads);
  const std::size_t row = blockIdx.x;
  Extremes of = extremes[row];
  if (rule.per_tensor && !rule.given) {
    Extremes own;
#pragma unroll 1
    for (std::size_t i = thread_index(); i < rows; i += kThreads) own.add(extremes[i]);
    of = combined_in_block(own, memory[0]);
  }
  const Int8Scale scale = rule.given && of.finite() ? rule.scale : int8_scale(of, rule.asymmetric);
  const std::size_t row_bytes = int8_row_bytes(columns);
  std::int32_t own_sum = 0;
#pragma unroll 1
  for (std::size_t i = thread_index(); i < row_bytes; i += kThreads) {
    std::int8_t code = 0;
    if (i < columns) {
      code = int8_code(value_at<Element>(values, row * columns + i), scale, rule.asymmetric);
    }
    codes[row * row_bytes + i] = code;
    own_sum += code;
  }
  const std::int32_t sum =
      combined_in_block(own_sum, sum_memory, [](std::int32_t a, std::int32_t b) { return a + b; });
  if (thread_index() == 0) {
    scales[row] = scale;
    sums[row] = sum;
  }
}

// ---------------------------------------------------------------- product

constexpr unsigned kSide = 64;                  // tokens, and outputs, of a block
constexpr unsigned kWords = kInt8RowBytes / 4;  // words of each row at a time
constexpr unsigned kEach = kSide / 16;          // tokens, and outputs, of a thread: 16 apart

struct TileMemory {
  // A row more than it has words apart, so that threads of a wave find theirs in different banks.
  std::uint32_t x[kSide][kWords + 1];
  std::uint32_t w[kSide][kWords + 1];
};

/// A thread's four words of a tile of rows from `first` on; those behind the last row are 0.
ARLAB_DEVICE void load_tile(const std::int8_t* codes, std::size_t first, std::size_t rows,
                            std::size_t row_bytes, std::size_t at,
                            std::uint32_t (&tile)[kSide][kWords + 1]) {
  const unsigned row = thread_index() / 4;
  const unsigned word = thread_index() % 4 * 4;
  Uint4 words = {};
  if (first + row < rows) words = load_128(codes + (first + row) * row_bytes + at + word * 4);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) tile[row][word + i] = words.word[i];
}

template <class Element>
ARLAB_DEVICE void multiply_int8(const std::int8_t* x, const Int8Scale* x_scales,
                                const std::int32_t* x_sums, std::size_t tokens,
                                const std::int8_t* w, const Int8Scale* w_scales,
                                const std::int32_t* w_sums, std::size_t outputs, std::size_t inputs,
                                typename Element::Bits* y) {
  ARLAB_SHARED_ARRAY(TileMemory, memory, 1);
  const std::size_t first_token = std::size_t{blockIdx.x} * kSide;
  const std::size_t first_output = std::size_t{blockIdx.y} * kSide;
  const std::size_t row_bytes = int8_row_bytes(inputs);
  const unsigned token_of_thread = thread_index() / 16;
  const unsigned output_of_thread = thread_index() % 16;
  std::int32_t products[kEach][kEach] = {};
#pragma unroll 1
  for (std::size_t at = 0; at < row_bytes; at += kInt8RowBytes) {
    load_tile(x, first_token, tokens, row_bytes, at, memory[0].x);
    load_tile(w, first_output, outputs, row_bytes, at, memory[0].w);
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < kWords; ++k) {
      std::uint32_t of_w[kEach];
#pragma unroll
      for (unsigned j = 0; j < kEach; ++j) of_w[j] = memory[0].w[output_of_thread + 16 * j][k];
#pragma unroll
      for (unsigned i = 0; i < kEach; ++i) {
        const std::uint32_t of_x = memory[0].x[token_of_thread + 16 * i][k];
#pragma unroll
        for (unsigned j = 0; j < kEach; ++j) {
          products[i][j] = dot_of_bytes(of_x, of_w[j], products[i][j]);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (unsigned i = 0; i < kEach; ++i) {
    const std::size_t token = first_token + token_of_thread + 16 * i;
    if (token >= tokens) continue;
    const Int8Scale x_scale = x_scales[token];
    const std::int32_t x_sum = x_sums[token];
#pragma unroll
    for (unsigned j = 0; j < kEach; ++j) {
      const std::size_t output = first_output + output_of_thread + 16 * j;
      if (output >= outputs) continue;
      const Int8Scale w_scale = w_scales[output];
      const std::int32_t sum =
          int8_corrected(products[i][j], x_sum, w_sums[output], x_scale.zero, w_scale.zero, inputs);
      const float value = int8_output(sum, x_scale.scale, w_scale.scale);
      if constexpr (sizeof(y[0]) == 4) {
        y[token * outputs + output] = value;
      } else {
        y[token * outputs + output] =
            static_cast<typename Element::Bits>(Element::from_float(value));
      }
    }
  }
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
