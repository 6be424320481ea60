// What lies ahead of a codec: wire that it will read, pages that it will write past the caches.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_STREAM_AHEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_STREAM_AHEAD_INL_H_
#undef ARLAB_CODECS_SIMD_STREAM_AHEAD_INL_H_
#else
#define ARLAB_CODECS_SIMD_STREAM_AHEAD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "reference/codecs/simd/lanes-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

/// Where decoded elements or codes go: to the caches, or past them, to an address that 16 divides.
enum class Storing { usual, streamed };

/// Has the processor find the pages of so many bytes that will be stored past the caches later. It
/// would else begin to look with the first store, and everything would wait.
HWY_INLINE void find_pages_ahead(const void* at, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  for (std::size_t i = 0; i < bytes; i += kPage) {
    hwy::Prefetch(static_cast<const std::uint8_t*>(at) + i);
  }
}

/// Fetches wire that is read a while later, evenly while elements are decoded: a core can wait for
/// few lines at once, and behind a burst of fetches everything else waits, too.
class WireAhead {
 public:
  static constexpr std::size_t kUnit = 32;  // elements

  /// `from` is what is to be fetched with unit 0, of so many bytes per unit.
  WireAhead(const void* from, std::size_t bytes_per_unit)
      : from_(static_cast<const std::uint8_t*>(from)), bytes_per_unit_(bytes_per_unit) {}
  HWY_INLINE void fetch(std::size_t unit) const { hwy::Prefetch(from_ + unit * bytes_per_unit_); }

 private:
  const std::uint8_t* from_;
  std::size_t bytes_per_unit_;
};

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard
