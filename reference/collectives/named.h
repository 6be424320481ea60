// All-reduces of other people, by name: the algorithm, the codec and the sum that give their kernels' bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/collectives/algorithm.h"
#include "reference/collectives/sum.h"
#include "reference/dtype.h"

namespace arlab {

/// A reduction that is asked for by name.
struct NamedRequest {
  Rank ranks = 1;
  std::uint64_t elements = 0;  ///< per rank
  DType dtype = DType::bf16;
  std::string codec = {};    ///< empty: the default of those that have several
  std::uint64_t block = 0;   ///< elements that share a scale; 0: the default
  std::uint64_t row = 1;     ///< elements of the tensor's last axis; 1 where there is one only
  std::uint64_t stripe = 0;  ///< elements of a kernel's block, where it may be chosen; 0: its own
};

/// The reduction in arlab's words.
struct NamedParts {
  std::string algorithm;
  AlgorithmOptions options = {};
  std::string codec;
  Sum sum = {};
  bool has_nvidia_nan = false;  ///< NaN in results have all bits but the sign: set_nvidia_nan()
};

struct NamedAllReduce {
  std::string name;
  std::string summary;
  std::string source;
  DType dtype = DType::bf16;  ///< payloads', where none is named
  bool has_block = false;     ///< whether NamedRequest::block says something
  bool has_codecs = false;    ///< whether NamedRequest::codec does
  bool has_stripe = false;    ///< whether NamedRequest::stripe does
  /// Throws InvalidInput for what the kernels refuse.
  std::function<NamedParts(const NamedRequest&)> parts_of;
};

const std::vector<NamedAllReduce>& named_all_reduces();
/// Throws InvalidInput, with the names there are.
const NamedAllReduce& find_named_all_reduce(std::string_view name);

/// Gives NaN the bits that NVIDIA's conversions to the dtype do.
void set_nvidia_nan(DType dtype, std::span<std::byte> values);

}  // namespace arlab
