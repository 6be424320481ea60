// <codebook>-g<G>: elements are the nearest of up to 256 levels, which are data: NF4, levels of k-means, what training has found.
// SPEC.md, "Codebooks (nf4-g, e4m3b15-g)".
//
//   nf4-g64       4.5 bits per element, 36 bytes per block
//   e4m3b15-g64   8.5 bits per element, 68 bytes
#pragma once

#include <array>
#include <limits>
#include <span>

#include "reference/codecs/scaled_format.h"

namespace arlab {

/// Levels in ascending order, and what follows from them.
struct CodebookLevels {
  unsigned count = 0;
  unsigned bits = 0;  ///< a code has so many: it is a level's place
  float largest = 0;  ///< magnitude
  std::array<float, 256> level = {};
};

/// Throws InvalidInput unless there are 2 to 256 levels, finite and ascending, of magnitudes up to 2^100, and one is not 0.
CodebookLevels codebook_levels(std::string_view name, std::span<const float> levels);

/// Makes a codebook known at run time as the codec NAME-g<GROUP>, in place of the one of that name and group that was made known
/// so. For another group, the same name may have other levels. Throws InvalidInput for levels as above, for a group that is not
/// allowed, and for a name that is none or makes that of another codec. Thread-safe.
void register_codebook(const std::string& name, std::size_t group, std::span<const float> levels);

/// The levels of a codec NAME-g<GROUP>; those of nf4 and e4m3b15 are always there, with every group.
std::optional<CodebookLevels> find_codebook(std::string_view codec);

/// The same, also of a NAME without its group. Throws InvalidInput where there is none, or where groups have different ones.
CodebookLevels codebook_named(std::string_view name);

template <std::size_t kElements>
struct Codebook {
  static constexpr std::size_t kBlock = kElements;
  using Scale = float;

  CodebookLevels levels = {};

  constexpr unsigned bits() const { return levels.bits; }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    const float scale = largest / levels.largest;
    const float factor = 1.0f / scale;
    if (factor <= std::numeric_limits<float>::max()) return {scale, factor};
    return {};
  }
  constexpr Scale nan_scale() const { return std::bit_cast<float>(0x7FC00000u); }

  /// The number of middles between levels that are below the value: a tie is the lower level's.
  constexpr ScaledCode quantize(float x, float factor) const {
    const float value = x * factor;
    unsigned code = 0;
    for (unsigned step = 128; step > 0; step /= 2) {
      const unsigned next = code + step;
      if (next < levels.count && value > (levels.level[next - 1] + levels.level[next]) * 0.5f) {
        code = next;
      }
    }
    return {code, false};
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    return levels.level[code < levels.count ? code : levels.count - 1] * scale;
  }
  constexpr ScaledProduct product_of(std::uint32_t code, Scale scale) const {
    return {levels.level[code < levels.count ? code : levels.count - 1], scale};
  }

  static CodecInfo info(const std::string& name);
  static std::vector<std::string> listed();
  static std::string pattern();
  static std::optional<Codebook> parse(std::string_view name);
};

static_assert(block_bytes(Codebook<64>{{.count = 16, .bits = 4}}) == 36);
static_assert(block_bytes(Codebook<64>{{.count = 253, .bits = 8}}) == 68);

}  // namespace arlab
