// A long array of which only the part in use takes memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace arlab {

/// An array of stages that are numbered in about the order in which they come, with few at work at a time. An element begins as
/// T() when it is first asked for; a page of them is used again, for others, when release() has been called for each. None may
/// be asked for after that.
template <class T>
class PagedArray {
 public:
  explicit PagedArray(std::size_t size) : pages_((size + kElements - 1) / kElements) {}

  T& operator[](std::size_t index) { return page_of(index)->elements[index % kElements]; }
  void release(std::size_t index) {
    std::unique_ptr<Page>& page = page_of(index);
    if (--page->in_use == 0) free_.push_back(std::move(page));
  }

 private:
  static constexpr std::size_t kElements = 512;
  struct Page {
    std::array<T, kElements> elements = {};
    std::size_t in_use = kElements;  ///< or not used yet
  };

  std::unique_ptr<Page>& page_of(std::size_t index) {
    std::unique_ptr<Page>& page = pages_[index / kElements];
    if (page == nullptr) make(page);
    return page;
  }
  void make(std::unique_ptr<Page>& page) {
    if (free_.empty()) {
      page = std::make_unique<Page>();
      return;
    }
    page = std::move(free_.back());
    free_.pop_back();
    *page = Page();
  }

  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<std::unique_ptr<Page>> free_;
};

}  // namespace arlab
