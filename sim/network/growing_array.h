// An array that grows at its end without being copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

namespace arlab {

/// Like std::vector for plain data, with two differences that count when a million messages are in
/// flight. It grows by realloc, which moves a large block to another address without touching its
/// pages, where a vector would copy, and fault in, everything again. And it begins at a cache line.
template <class T>
class GrowingArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  GrowingArray() = default;
  GrowingArray(const GrowingArray&) = delete;
  GrowingArray& operator=(const GrowingArray&) = delete;
  ~GrowingArray() { std::free(block_); }

  std::size_t size() const { return size_; }
  T& operator[](std::size_t index) { return data_[index]; }
  const T& operator[](std::size_t index) const { return data_[index]; }

  /// Appends `count` default values; returns the index of the first.
  std::size_t append(std::size_t count = 1) {
    const std::size_t first = size_;
    if (size_ + count > capacity_) grow(size_ + count);
    for (std::size_t i = 0; i < count; ++i) new (data_ + first + i) T();
    size_ += count;
    return first;
  }

 private:
  static constexpr std::size_t kLine = 64;

  static std::size_t offset_to_line(const void* block) {
    return (kLine - reinterpret_cast<std::uintptr_t>(block) % kLine) % kLine;
  }

  void grow(std::size_t least) {
    std::size_t capacity = capacity_ == 0 ? kLine : capacity_ * 2;
    while (capacity < least) capacity *= 2;
    const std::size_t offset_before = block_ == nullptr ? 0 : offset_to_line(block_);
    void* block = std::realloc(block_, capacity * sizeof(T) + kLine);
    if (block == nullptr) throw std::bad_alloc();
    const std::size_t offset = offset_to_line(block);
    auto* bytes = static_cast<std::byte*>(block);
    // Blocks that are large enough to matter keep their place within the page.
    if (offset != offset_before) {
      std::memmove(bytes + offset, bytes + offset_before, size_ * sizeof(T));
    }
    block_ = block;
    data_ = reinterpret_cast<T*>(bytes + offset);
    capacity_ = capacity;
  }

  void* block_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace arlab
