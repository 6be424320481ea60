// An array of zeros of fixed length, of which only what is used takes memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace arlab {

/// Like std::vector<T>(size) for plain data whose initial value is all zero bits: pages of a large
/// one are the system's until they are first written. A network may have a billion links, most of
/// which nobody uses.
template <class T>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>);

 public:
  explicit ZeroedArray(std::size_t size)
      : data_(static_cast<T*>(std::calloc(size == 0 ? 1 : size, sizeof(T)))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }

  T& operator[](std::size_t index) { return data_[index]; }
  const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T[], Free> data_;
};

}  // namespace arlab
