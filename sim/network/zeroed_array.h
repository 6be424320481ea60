// An array of zeros of fixed length, of which only what is used takes memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace arlab {

/// Like std::vector<T>(size) for plain data whose initial value is all zero bits: pages are the
/// system's until they are first written. A network may have a billion links, most of them unused, so the system is told not to
/// reserve memory for them; calloc fails where they would not all fit.
template <class T>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>);

 public:
  explicit ZeroedArray(std::size_t size) : data_(nullptr, Free{size * sizeof(T)}) {
    if (size == 0) return;
    void* memory = MAP_FAILED;
    if (size <= kSmall / sizeof(T)) {
      memory = std::calloc(size, sizeof(T));
      if (memory == nullptr) memory = MAP_FAILED;
    } else if (size <= SIZE_MAX / sizeof(T)) {
      memory = mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_.reset(static_cast<T*>(memory));
  }

  T& operator[](std::size_t index) { return data_[index]; }
  const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  static constexpr std::size_t kSmall = 64 << 10;
  struct Free {
    std::size_t bytes;
    void operator()(T* data) const {
      if (bytes <= kSmall) {
        std::free(data);
      } else {
        munmap(data, bytes);
      }
    }
  };
  std::unique_ptr<T[], Free> data_;
};

}  // namespace arlab
