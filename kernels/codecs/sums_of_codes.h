// Between the programs of a sum of codes (shared_scale.h): largest magnitudes of groups are measured, and elements become codes and
// codes elements. A block per tile of the tensor.
#pragma once

#include "kernels/codecs/codec_alone.h"
#include "kernels/codecs/shared_scale.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Element>
ARLAB_DEVICE void measure_largest(const SharedIntegers& format, const typename Element::Bits* input,
                                  std::size_t elements, std::uint32_t* largest) {
  const Position at = position_in(elements);
  const Pack8<Element> x = load_elements<Element>(input + at.first, at.count());
  const std::uint32_t found =
      largest_magnitude(x, at.count(), static_cast<int>(format.group / kPerThread));
  if (at.count() != 0 && at.first % format.group == 0) largest[at.first / format.group] = found;
}

ARLAB_DEVICE float scale_at(const SharedIntegers& format, std::int32_t limit, const float* largest,
                            Position at) {
  if (at.count() == 0) return 0;
  return Bf16::to_float(SharedIntegers::scale_bits(largest[at.first / format.group], limit));
}

template <class Element>
ARLAB_DEVICE void encode_codes(const SharedIntegers& format, std::int32_t limit,
                               const typename Element::Bits* input, std::size_t elements,
                               const float* largest, typename CodesOf<Element>::Bits* codes) {
  const Position at = position_in(elements);
  const Pack8<Element> x = load_elements<Element>(input + at.first, at.count());
  store_elements<CodesOf<Element>>(
      codes + at.first, codes_of_elements(x, scale_at(format, limit, largest, at)), at.count());
}

/// In place.
template <class Element>
ARLAB_DEVICE void decode_codes(const SharedIntegers& format, std::int32_t limit, void* tensor,
                               std::size_t elements, const float* largest) {
  const Position at = position_in(elements);
  const auto* codes = static_cast<const typename CodesOf<Element>::Bits*>(tensor) + at.first;
  const auto x = load_elements<CodesOf<Element>>(codes, at.count());
  store_elements<Element>(static_cast<typename Element::Bits*>(tensor) + at.first,
                          elements_of_codes<Element>(x, scale_at(format, limit, largest, at)),
                          at.count());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
