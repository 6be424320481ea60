// The formats that quickreduce_simd.cc knows.
#pragma once

#include <cstddef>

namespace arlab {

enum class QuickReduceFormat { q3, q4, q6, q8, fp4, fp8 };

inline constexpr std::size_t kQuickReduceAtom = 2048;  // elements

/// Bytes on the wire of the codes of an atom; its 128 bytes of scales follow.
constexpr std::size_t quickreduce_code_bytes(QuickReduceFormat format) {
  switch (format) {
    case QuickReduceFormat::q3:
      return 768;
    case QuickReduceFormat::q4:
    case QuickReduceFormat::fp4:
      return 1024;
    case QuickReduceFormat::q6:
      return 1536;
    case QuickReduceFormat::q8:
    case QuickReduceFormat::fp8:
      return 2048;
  }
  return 0;
}

}  // namespace arlab
