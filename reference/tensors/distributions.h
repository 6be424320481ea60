// The distributions behind make_synthetic: each is a function from (rank, element) to a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <variant>

#include "reference/dtype.h"
#include "reference/tensors/synthetic.h"

namespace arlab {

/// The parameters of a spec, checked against the ranges of their distribution.
class SyntheticParameters {
 public:
  explicit SyntheticParameters(std::map<std::string_view, double> values)
      : values_(std::move(values)) {}

  double number(std::string_view name) const { return values_.at(name); }
  std::uint64_t integer(std::string_view name) const {
    return static_cast<std::uint64_t>(values_.at(name));
  }

 private:
  std::map<std::string_view, double> values_;
};

/// The buffer to fill: the dtype and the elements of one rank.
struct Payload {
  DType dtype;
  std::size_t elements;
};

/// Writes elements [first, first + out.size()) of a rank, before they are clamped and rounded.
using ValueFill = std::function<void(std::size_t rank, std::size_t first, std::span<double> out)>;

/// The same as bit patterns of the dtype, in the low bits of each word.
using PatternFill =
    std::function<void(std::size_t rank, std::size_t first, std::span<std::uint32_t> out)>;

using Fill = std::variant<ValueFill, PatternFill>;

struct Distribution {
  SyntheticDistribution about;
  Fill (*make)(const SyntheticParameters& parameters, const Payload& payload);
};

/// Every distribution, in the order of the documentation.
std::span<const Distribution> distributions();

/// Blocks of edge cases; see adversarial.cc.
Fill adversarial(const SyntheticParameters& parameters, const Payload& payload);

}  // namespace arlab
