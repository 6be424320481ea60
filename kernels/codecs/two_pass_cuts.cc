// How messages of codecs of two_pass.h are cut, for the host, which makes room for what is measured and sent.

#include <algorithm>

#include "kernels/codecs/two_pass_kernels.h"
#include "kernels/schedule/run.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// Elements of a group that one block measures, so that a message of one group keeps a device busy.
constexpr std::size_t kPartElements = 16 * kTile;
constexpr std::size_t kMostParts = 256;
/// A group of at most so many elements is measured by one thread.
constexpr std::size_t kMostOfAThread = 256;

}  // namespace

GroupParts parts_of_groups(std::size_t group, std::size_t transform, std::size_t elements) {
  // Transformed elements are measured tile by tile.
  if (transform != 0) return {(transform + kTile - 1) / kTile, kTile, false};
  const std::size_t size = std::min(group, elements);
  const std::size_t wanted = std::clamp<std::size_t>(size / kPartElements, 1, kMostParts);
  const std::size_t part = (size / wanted / kTile + 1) * kTile;
  return {(size + part - 1) / part, part, group <= kMostOfAThread};
}

GroupParts parts_of(const CodecChoice& codec, std::size_t elements) {
  GroupParts parts{};
  with_two_pass(codec, DType::fp32, [&](const auto& c, auto) {
    parts = parts_of_groups(c.group(elements), c.transform(), elements);
  });
  return parts;
}

std::size_t codes_of_message(const CodecChoice& codec, std::size_t elements) {
  std::size_t codes = 0;
  with_two_pass(codec, DType::fp32, [&](const auto& c, auto) { codes = codes_of(c, elements); });
  return codes;
}

std::size_t groups_of_message(const CodecChoice& codec, std::size_t elements) {
  std::size_t groups = 0;
  with_two_pass(codec, DType::fp32, [&](const auto& c, auto) {
    groups = elements == 0 ? 0 : blocks_of(codes_of(c, elements), c.group(elements));
  });
  return groups;
}

std::size_t two_pass_block(const CodecChoice& codec) {
  std::size_t block = 0;
  with_two_pass(codec, DType::fp32, [&](const auto& c, auto) { block = c.group(kWholeMessage); });
  return block;
}

std::size_t statistics_of(const CodecChoice& codec, std::size_t elements, std::size_t groups) {
  const std::size_t parts = parts_of(codec, elements).count;
  return parts == 1 ? groups : groups * (1 + parts);
}

MessageTiles message_tiles(const CodecChoice& codec, DType dtype, std::size_t elements) {
  MessageTiles result{};
  with_two_pass(codec, dtype, [&]<class Codec, class Element>(const Codec& c, Element) {
    const std::size_t codes = codes_of(c, elements);
    result.per_unit = static_cast<int>(std::max<std::size_t>(c.transform() / kTile, 1));
    result.bytes = TileWire<Codec>::bytes(c, elements);
    result.tiles = (codes + kTile - 1) / kTile;
  });
  return result;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
