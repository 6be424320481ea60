// Short runs of consecutive elements in one flat array, reused by length.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/network/growing_array.h"

namespace arlab {

/// Few lengths occur (hops of a route), so a list of free runs per length leaves no holes that
/// matter. Indices stay valid, addresses do not.
template <class T>
class BlockPool {
 public:
  std::uint32_t allocate(std::uint32_t length) {
    if (length < free_.size() && !free_[length].empty()) {
      const std::uint32_t first = free_[length].back();
      free_[length].pop_back();
      return first;
    }
    return static_cast<std::uint32_t>(elements_.append(length));
  }
  void release(std::uint32_t first, std::uint32_t length) {
    if (length >= free_.size()) free_.resize(length + 1);
    free_[length].push_back(first);
  }
  T& operator[](std::uint32_t index) { return elements_[index]; }
  const T& operator[](std::uint32_t index) const { return elements_[index]; }

 private:
  GrowingArray<T> elements_;
  std::vector<std::vector<std::uint32_t>> free_;  ///< by length: first indices
};

}  // namespace arlab
