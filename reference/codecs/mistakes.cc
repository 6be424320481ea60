#include "reference/codecs/mistakes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <regex>
#include <span>
#include <utility>

#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/variations.h"
#include "reference/error.h"
#include "reference/tensors/counter_random.h"
#include "reference/tensors/synthetic.h"

namespace arlab {
namespace {

using Bytes = std::vector<std::byte>;

bool bit_of(std::span<const std::byte> wire, std::size_t bit) {
  return (std::to_integer<unsigned>(wire[bit / 8]) >> bit % 8 & 1) != 0;
}
void turn(std::span<std::byte> wire, std::size_t bit) { wire[bit / 8] ^= std::byte(1 << bit % 8); }
void set_bit(std::span<std::byte> wire, std::size_t bit, bool value) {
  if (bit_of(wire, bit) != value) turn(wire, bit);
}

Bytes encoded(const Codec& codec, DType dtype, std::span<const std::byte> payload) {
  Bytes wire(codec.wire_bytes(dtype, payload.size() / size_of(dtype)));
  codec.encode(dtype, payload, wire);
  return wire;
}
std::vector<float> decoded(const Codec& codec, DType dtype, std::size_t elements,
                           std::span<const std::byte> wire) {
  std::vector<float> values(elements);
  if (codec.info().fp32_values != Fp32Values::unknown) {
    codec.decode_fp32(dtype, wire, values);
    return values;
  }
  Bytes payload(elements * size_of(dtype));
  codec.decode(dtype, wire, payload);
  for (std::size_t i = 0; i < elements; ++i) values[i] = load_value(dtype, payload, i);
  return values;
}

/// Returns the elements that a bit changes, and whether by the same.
std::optional<WireMap::Shared> effect_of(const Codec& codec, DType dtype,
                                         std::span<const float> values, Bytes& wire,
                                         std::size_t bit) {
  turn(wire, bit);
  const std::vector<float> other = decoded(codec, dtype, values.size(), wire);
  turn(wire, bit);
  WireMap::Shared effect{.first = values.size(), .bit = bit, .shifts = true};
  float shift = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::memcmp(&other[i], &values[i], sizeof(float)) == 0) continue;
    const float by = other[i] - values[i];
    if (effect.first == values.size()) {
      effect.first = i;
      shift = by;
    }
    effect.last = i;
    effect.shifts &= std::abs(by - shift) <= std::abs(shift) / 4;
  }
  if (effect.first == values.size()) return std::nullopt;
  return effect;
}

/// Returns the union of two changes.
WireMap::Shared together(const WireMap::Shared& a, const WireMap::Shared& b) {
  return {.first = std::min(a.first, b.first),
          .last = std::max(a.last, b.last),
          .bit = a.bit,
          .shifts = a.shifts && b.shifts};
}

// ---------------------------------------------------------------- mistakes

enum class Codes {
  kept,
  toward_zero,
  down,
  half_away,
  half_up,
  lowest_unused,
  one_higher,
  one_lower,
  exchanged
};
enum class Scales {
  kept,
  before,          // codes are made with the scales of the block before, and these are written
  written_before,  // only these are written
  used_before,     // only codes are made with them
  positive
};
enum class Nan { kept, zero, lowest };                        // `lowest` of its block
enum class Infinity { kept, largest, largest_finite, zero };  // `largest` of its block
struct Mistake {
  std::string name;
  Codes codes = Codes::kept;
  Scales scales = Scales::kept;
  bool scales_wrap = false;  ///< before the first block stands the last one
  Nan nan = Nan::kept;
  Infinity infinity = Infinity::kept;
  bool flushes = false;  ///< subnormals
  bool fills_up = false;
  bool decodes_through_another = false;
  int decodes_off = 0;  ///< codes are decoded as the next higher (1) or lower (-1)
};

constexpr const char* kExchanged = "the codes of neighbours stand in each other's place";
constexpr const char* kThroughAnother =
    "decoded values are rounded to a dtype that is not the payload's";

/// Rounded to the other 16-bit dtype: fp16 for bf16 payloads, bf16 for others.
float through_another(DType dtype, float value) {
  return dtype == DType::bf16 ? half_to_float(Fp16Arithmetic::from_float(value))
                              : bfloat16_to_float(Bf16Arithmetic::from_float(value));
}

std::vector<Mistake> all_mistakes() {
  std::vector<Mistake> all = {
      {.name = "codes are cut off toward zero (truncation)", .codes = Codes::toward_zero},
      {.name = "codes are rounded down (floor)", .codes = Codes::down},
      {.name = "ties are rounded half away from zero", .codes = Codes::half_away},
      {.name = "ties are rounded up (as half away from zero does with codes from 0 on)",
       .codes = Codes::half_up},
      {.name = "the lowest code is not used", .codes = Codes::lowest_unused},
      {.name = "codes are one too high", .codes = Codes::one_higher},
      {.name = "codes are one too low", .codes = Codes::one_lower},
      {.name = kExchanged, .codes = Codes::exchanged},
      {.name = "scales do not know negative values", .scales = Scales::positive},
      {.name = "subnormals are flushed to 0", .flushes = true},
      {.name = "the last block is filled up with zeros, which its scale knows", .fills_up = true},
      {.name = kThroughAnother, .decodes_through_another = true},
      {.name = "codes are decoded a step too high (counted from another zero than they are made)",
       .decodes_off = 1},
      {.name = "codes are decoded a step too low (counted from another zero than they are made)",
       .decodes_off = -1},
  };
  for (const auto& [name, scales] :
       {std::pair("scales are of the block before", Scales::before),
        std::pair("scales are of the block before, which codes do not know",
                  Scales::written_before),
        std::pair("codes are made with the scales of the block before", Scales::used_before)}) {
    for (const bool wraps : {false, true}) {
      all.push_back({.name = name, .scales = scales, .scales_wrap = wraps});
    }
  }
  for (const Nan nan : {Nan::kept, Nan::zero, Nan::lowest}) {
    for (const Infinity infinity :
         {Infinity::kept, Infinity::largest, Infinity::largest_finite, Infinity::zero}) {
      if (nan == Nan::kept && infinity == Infinity::kept) continue;
      all.push_back({.name = infinity == Infinity::kept ? "NaN is lost"
                             : nan == Nan::kept         ? "infinity is lost"
                                                        : "NaN and infinity are lost",
                     .nan = nan,
                     .infinity = infinity});
    }
  }
  return all;
}

/// Codes of more bits have too many values to try them all.
constexpr std::size_t kMostBits = 8;

/// Maps of one codec's messages, found once for all of its mistakes.
class Maps {
 public:
  const WireMap& of(const Codec& codec, DType dtype, std::size_t elements) {
    const std::scoped_lock one_at_a_time(mutex_);
    auto& map = maps_[{dtype, elements}];
    if (!map) map = std::make_unique<WireMap>(map_wire(codec, dtype, elements));
    return *map;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<DType, std::size_t>, std::unique_ptr<WireMap>> maps_;
};

/// Carries pieces of a message by themselves, so that what is found out of one piece's wire holds for all.
class Mistaken final : public Codec {
 public:
  Mistaken(CodecPtr codec, Mistake mistake, std::shared_ptr<Maps> maps)
      : Codec(info_with(*codec, mistake.name)),
        codec_(std::move(codec)),
        mistake_(std::move(mistake)),
        maps_(std::move(maps)) {}

 private:
  /// A few blocks; of codecs that cannot be cut the message.
  std::size_t piece_of(std::size_t elements) const {
    constexpr std::size_t kAbout = 256;
    if (!codec_->info().splits_at_alignment) return elements;
    return (kAbout + info().alignment - 1) / info().alignment * info().alignment;
  }

  template <class Function>
  void for_each_piece(DType dtype, std::size_t elements, const Function& function) const {
    const std::size_t most = piece_of(elements);
    std::size_t at = 0;
    for (std::size_t first = 0; first < elements; first += most) {
      const std::size_t count = std::min(most, elements - first);
      const std::size_t bytes = codec_->wire_bytes(dtype, count);
      function(first, count, at, bytes);
      at += bytes;
    }
  }

  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    std::size_t bytes = 0;
    for_each_piece(dtype, elements,
                   [&](std::size_t, std::size_t, std::size_t, std::size_t more) { bytes += more; });
    return bytes;
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& /*counts*/) const override {
    const std::size_t unit = size_of(dtype);
    const std::size_t elements = payload.size() / unit;
    Bytes scales;  // the last block's so far, as the bits that its elements share
    if (mistake_.scales_wrap) {
      const std::size_t most = piece_of(elements);
      const std::size_t first = (elements - 1) / most * most;
      const std::size_t count = elements - first;
      const Bytes last = encoded(*codec_, dtype, payload.subspan(first * unit));
      scales = scales_of(map_of(dtype, count), last, (count - 1) / info().block);
    }
    for_each_piece(dtype, elements,
                   [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
                     encode_piece(dtype, payload.subspan(first * unit, count * unit),
                                  wire.subspan(at, bytes), scales);
                   });
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    const std::size_t unit = size_of(dtype);
    for_each_piece(dtype, payload.size() / unit,
                   [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
                     const auto piece = payload.subspan(first * unit, count * unit);
                     codec_->decode(dtype, wire.subspan(at, bytes), piece);
                     if (mistake_.decodes_off != 0)
                       move_values(dtype, wire.subspan(at, bytes), piece);
                   });
    if (!mistake_.decodes_through_another) return;
    for (std::size_t i = 0; i < payload.size() / unit; ++i) {
      const float value = load_value(dtype, payload, i);
      store_value(dtype, through_another(dtype, value), payload, i);
    }
  }

  void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                     std::span<float> sum) const override {
    for_each_piece(dtype, sum.size(),
                   [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
                     codec_->decode_fma(dtype, wire.subspan(at, bytes), sum.subspan(first, count));
                   });
  }

  // Where wires are not the same in all dtypes, mistakes in decoding are left to do_decode().
  void do_decode_fp32(DType dtype, std::span<const std::byte> wire,
                      std::span<float> values) const override {
    if (info().is_dtype_independent) return Codec::do_decode_fp32(dtype, wire, values);
    for_each_piece(dtype, values.size(),
                   [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
                     codec_->decode_fp32(dtype, wire.subspan(at, bytes),
                                         values.subspan(first, count));
                   });
  }

  const WireMap& map_of(DType dtype, std::size_t elements) const {
    return maps_->of(*codec_, dtype, elements);
  }

  std::vector<std::size_t> shared_by(const WireMap& map, std::size_t block) const {
    std::vector<std::size_t> bits;
    for (const WireMap::Shared& shared : map.shared) {
      if (shared.first / info().block == block && shared.last / info().block == block) {
        bits.push_back(shared.bit);
      }
    }
    return bits;
  }
  Bytes scales_of(const WireMap& map, std::span<const std::byte> wire, std::size_t block) const {
    Bytes scales;
    for (const std::size_t bit : shared_by(map, block))
      scales.push_back(std::byte(bit_of(wire, bit)));
    return scales;
  }
  void give_scales(const WireMap& map, std::span<std::byte> wire, std::size_t block,
                   const Bytes& scales) const {
    const std::vector<std::size_t> bits = shared_by(map, block);
    if (bits.size() != scales.size()) return;  // there is no block before
    for (std::size_t k = 0; k < bits.size(); ++k) set_bit(wire, bits[k], scales[k] != std::byte{0});
  }

  void encode_piece(DType dtype, std::span<const std::byte> given, std::span<std::byte> wire,
                    Bytes& before) const {
    const std::size_t count = given.size() / size_of(dtype);
    Bytes payload(given.begin(), given.end());
    change_values(dtype, payload);
    codec_->encode(dtype, payload, wire);
    const std::size_t block = info().block;
    const bool has_blocks = block != kWholeTensor && block > 1;
    if (mistake_.fills_up && has_blocks && count % block != 0) {
      Bytes padded = payload;
      padded.resize((count + block - 1) / block * block * size_of(dtype));
      take_scales_of(dtype, padded, count, wire, (count - 1) / block);
      choose_codes(dtype, payload, wire);
    }
    if (mistake_.scales == Scales::positive) {
      Bytes positive = payload;
      for (std::size_t i = 0; i < count; ++i) {
        if (load_value(dtype, positive, i) < 0) store_value(dtype, 0, positive, i);
      }
      for (std::size_t b = 0; has_blocks && b * block < count; ++b) {
        take_scales_of(dtype, positive, count, wire, b);
      }
      choose_codes(dtype, payload, wire);
    } else if (mistake_.scales != Scales::kept && has_blocks) {
      const WireMap& map = map_of(dtype, count);
      std::vector<Bytes> own;
      for (std::size_t b = 0; b * block < count; ++b) {
        own.push_back(scales_of(map, wire, b));
        give_scales(map, wire, b, before);
        before = own.back();
      }
      if (mistake_.scales != Scales::written_before) choose_codes(dtype, payload, wire);
      if (mistake_.scales == Scales::used_before) {
        for (std::size_t b = 0; b < own.size(); ++b) give_scales(map, wire, b, own[b]);
      }
    }
    if (mistake_.codes == Codes::exchanged) {
      const WireMap& map = map_of(dtype, count);
      for (std::size_t i = 0; i + 1 < map.codes.size(); i += 2) {
        if (map.codes[i].size() != map.codes[i + 1].size()) continue;
        for (std::size_t k = 0; k < map.codes[i].size(); ++k) {
          const bool first = bit_of(wire, map.codes[i][k]);
          set_bit(wire, map.codes[i][k], bit_of(wire, map.codes[i + 1][k]));
          set_bit(wire, map.codes[i + 1][k], first);
        }
      }
    } else if (mistake_.codes == Codes::one_higher || mistake_.codes == Codes::one_lower) {
      move_codes(map_of(dtype, count), wire, mistake_.codes == Codes::one_higher);
    } else if (mistake_.codes != Codes::kept) {
      choose_codes(dtype, payload, wire);
    }
  }

  /// The block's scales as the codec finds them for other values, of which there may be more.
  void take_scales_of(DType dtype, const Bytes& values, std::size_t count,
                      std::span<std::byte> wire, std::size_t block) const {
    const std::size_t elements = values.size() / size_of(dtype);
    Bytes other(codec_->wire_bytes(dtype, elements));
    codec_->encode(dtype, values, other);
    give_scales(map_of(dtype, count), wire, block,
                scales_of(map_of(dtype, elements), other, block));
  }

  void change_values(DType dtype, Bytes& payload) const {
    if (mistake_.nan == Nan::kept && mistake_.infinity == Infinity::kept && !mistake_.flushes)
      return;
    const std::size_t count = payload.size() / size_of(dtype);
    const std::size_t block = std::min(info().block, count);
    for (std::size_t first = 0; first < count; first += block) {
      const std::size_t end = std::min(first + block, count);
      float lowest = 0;
      float largest = 0;
      for (std::size_t i = first; i < end; ++i) {
        const float value = load_value(dtype, payload, i);
        if (!std::isfinite(value)) continue;
        lowest = std::min(lowest, value);
        largest = std::max(largest, value);
      }
      for (std::size_t i = first; i < end; ++i) {
        const float value = load_value(dtype, payload, i);
        float changed = value;
        if (std::isnan(value) && mistake_.nan != Nan::kept) {
          changed = mistake_.nan == Nan::zero ? 0.0f : lowest;
        }
        if (std::isinf(value)) changed = changed_infinity(dtype, value, lowest, largest);
        const float least = dtype == DType::fp16 ? 0x1p-14f : 0x1p-126f;
        if (mistake_.flushes && std::abs(value) < least) changed = std::copysign(0.0f, value);
        if (std::memcmp(&changed, &value, sizeof(float)) != 0)
          store_value(dtype, changed, payload, i);
      }
    }
  }

  float changed_infinity(DType dtype, float value, float lowest, float largest) const {
    switch (mistake_.infinity) {
      case Infinity::kept:
        break;
      case Infinity::largest:
        return value > 0 ? largest : lowest;
      case Infinity::largest_finite:
        return std::copysign(largest_finite(dtype), value);
      case Infinity::zero:
        return 0;
    }
    return value;
  }

  /// A code as a number, its bits in the order of the wire.
  static std::size_t code_at(std::span<const std::byte> wire,
                             const std::vector<std::size_t>& bits) {
    std::size_t code = 0;
    for (std::size_t k = 0; k < bits.size(); ++k) code |= std::size_t{bit_of(wire, bits[k])} << k;
    return code;
  }
  static void give_code(std::span<std::byte> wire, const std::vector<std::size_t>& bits,
                        std::size_t code) {
    for (std::size_t k = 0; k < bits.size(); ++k) set_bit(wire, bits[k], (code >> k & 1) != 0);
  }

  /// Every code one higher or lower, as far as there is one.
  static void move_codes(const WireMap& map, std::span<std::byte> wire, bool up) {
    for (const auto& bits : map.codes) {
      if (bits.empty() || bits.size() > kMostBits) continue;
      const std::size_t code = code_at(wire, bits);
      const std::size_t last = (std::size_t{1} << bits.size()) - 1;
      give_code(wire, bits, up ? std::min(code + 1, last) : std::max<std::size_t>(code, 1) - 1);
    }
  }

  /// Values of the codes beside those of the wire. Beyond the last code goes on what is between it and its neighbour.
  void move_values(DType dtype, std::span<const std::byte> wire,
                   std::span<std::byte> payload) const {
    const std::size_t count = payload.size() / size_of(dtype);
    const WireMap& map = map_of(dtype, count);
    const bool up = mistake_.decodes_off > 0;
    const auto beside = [&](bool higher) {
      Bytes moved(wire.begin(), wire.end());
      move_codes(map, moved, higher);
      Bytes values(payload.size());
      codec_->decode(dtype, moved, values);
      return values;
    };
    const Bytes next = beside(up);
    const Bytes back = beside(!up);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& bits = map.codes[i];
      const float here = load_value(dtype, payload, i);
      if (bits.empty() || bits.size() > kMostBits || std::isnan(here)) continue;
      const std::size_t end = up ? (std::size_t{1} << bits.size()) - 1 : 0;
      store_value(dtype,
                  code_at(wire, bits) == end ? here + (here - load_value(dtype, back, i))
                                             : load_value(dtype, next, i),
                  payload, i);
    }
  }

  /// Chooses for every element the code with the right value under the mistaken rule, with the scales that the wire has.
  void choose_codes(DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire) const {
    const std::size_t count = payload.size() / size_of(dtype);
    const WireMap& map = map_of(dtype, count);
    std::size_t width = 0;
    for (const auto& bits : map.codes) {
      if (bits.size() <= kMostBits) width = std::max(width, bits.size());
    }
    if (width == 0) return;
    const std::size_t codes = std::size_t{1} << width;
    const auto is_coded = [&](std::size_t i) { return map.codes[i].size() == width; };
    Bytes trial(wire.begin(), wire.end());
    std::vector<std::vector<float>> values;
    for (std::size_t code = 0; code < codes; ++code) {
      for (std::size_t i = 0; i < count; ++i) {
        if (is_coded(i)) give_code(trial, map.codes[i], code);
      }
      values.push_back(decoded(*codec_, dtype, count, trial));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const float x = load_value(dtype, payload, i);
      if (!is_coded(i) || !std::isfinite(x)) continue;
      float lowest = 0;
      for (std::size_t code = 0; code < codes; ++code) lowest = std::min(lowest, values[code][i]);
      std::optional<std::size_t> best;
      for (std::size_t code = 0; code < codes; ++code) {
        const float v = values[code][i];
        if (!std::isfinite(v) || (mistake_.codes == Codes::lowest_unused && v == lowest)) continue;
        if (!best || is_better(x, v, values[*best][i])) best = code;
      }
      // Among codes of one value, as those of zeros, the codec's own stays.
      const std::size_t own = code_at(wire, map.codes[i]);
      if (best && values[*best][i] != values[own][i]) give_code(wire, map.codes[i], *best);
    }
  }

  /// Whether v is a better value for x than `other` is; what a rule does not allow is worse than anything that it does.
  bool is_better(float x, float v, float other) const {
    const auto allowed = [&](float value) {
      if (mistake_.codes == Codes::toward_zero) {
        return value == 0 ||
               (std::abs(value) <= std::abs(x) && std::signbit(value) == std::signbit(x));
      }
      return mistake_.codes != Codes::down || value <= x;
    };
    if (allowed(v) != allowed(other)) return allowed(v);
    const double distance = std::abs(static_cast<double>(x) - v);
    const double others = std::abs(static_cast<double>(x) - other);
    // The rounded number is a quotient, which may have been rounded itself: to a tie, say.
    constexpr double kTie = 0x1p-18;
    if (std::abs(distance - others) > kTie * std::abs(v - other)) return distance < others;
    return mistake_.codes == Codes::half_up ? v > other : std::abs(v) > std::abs(other);
  }

  CodecPtr codec_;
  Mistake mistake_;
  std::shared_ptr<Maps> maps_;
};

}  // namespace

WireMap map_wire(const Codec& codec, DType dtype, std::size_t elements) {
  const Tensor payload = make_synthetic("gaussian:sigma=1,seed=1", dtype, 1, elements);
  Bytes wire(codec.wire_bytes(dtype, elements));
  codec.encode(dtype, payload.bytes(), wire);
  WireMap map;
  map.codes.resize(elements);
  std::vector<std::optional<WireMap::Shared>> effects(wire.size() * 8);
  const auto look = [&] {
    const std::vector<float> values = decoded(codec, dtype, elements, wire);
    for (std::size_t bit = 0; bit < effects.size(); ++bit) {
      const auto effect = effect_of(codec, dtype, values, wire, bit);
      if (effect) effects[bit] = effects[bit] ? together(*effects[bit], *effect) : *effect;
    }
  };
  look();
  // In a short last block most values are the smallest or the largest one, and the scale of what is coded as 0 does not show: other
  // wires show which bits are whose. With one element, the bits behind the code's are the shared ones, if with nobody.
  constexpr std::size_t kShort = 32;
  constexpr std::uint64_t kWires = 8;
  const std::size_t block = codec.info().block;
  const std::size_t rest = block == kWholeTensor || block == 1 ? 0 : elements % block;
  for (std::uint64_t k = 0; rest != 0 && rest < kShort && k < kWires; ++k) {
    const RandomStream noise(k, 0, 0);
    for (std::size_t at = 0; at < wire.size(); ++at) wire[at] = std::byte(noise.word(at) & 0xFF);
    look();
  }
  const bool ends_with_one = rest == 1;
  const std::size_t width =
      ends_with_one ? map_wire(codec, dtype, block).codes[0].size() : std::size_t{0};
  for (const auto& effect : effects) {
    if (!effect) continue;
    const bool is_behind =
        ends_with_one && effect->first == elements - 1 && map.codes.back().size() == width;
    if (effect->first == effect->last && !is_behind) {
      map.codes[effect->first].push_back(effect->bit);
    } else {
      map.shared.push_back(*effect);
    }
  }
  return map;
}

std::string place_in_wire(const Codec& codec, DType dtype, std::size_t elements,
                          std::span<const std::byte> wire, std::size_t byte) {
  Bytes copy(wire.begin(), wire.end());
  const std::vector<float> values = decoded(codec, dtype, elements, copy);
  std::optional<WireMap::Shared> widest;
  for (std::size_t bit = byte * 8; bit < byte * 8 + 8; ++bit) {
    const auto effect = effect_of(codec, dtype, values, copy, bit);
    if (!effect) continue;
    widest = widest ? together(*widest, *effect) : *effect;
  }
  if (!widest) return {};
  constexpr std::size_t kCodesOfAByte = 8;
  if (widest->first == widest->last) return fmt::format("the code of element {}", widest->first);
  if (widest->last - widest->first < kCodesOfAByte) {
    return fmt::format("codes of elements {} to {}", widest->first, widest->last);
  }
  const bool has_blocks = codec.info().block != kWholeTensor && codec.info().block > 1;
  if (has_blocks && widest->first / codec.info().block == widest->last / codec.info().block) {
    return fmt::format("the {} of block {}", widest->shifts ? "zero" : "scale",
                       widest->first / codec.info().block);
  }
  return fmt::format("what elements {} to {} share", widest->first, widest->last);
}

CodecInfo info_with(const Codec& codec, const std::string& mistake) {
  CodecInfo info = codec.info();
  info.name += fmt::format(" ({})", mistake);
  info.splits_at_alignment = false;
  return info;
}

std::vector<MistakenCodec> mistaken(const CodecPtr& codec) {
  const CodecInfo& info = codec->info();
  std::vector<MistakenCodec> all;
  if (info.needs_context() || info.has_variable_wire || info.shares_scales) return all;
  const auto maps = std::make_shared<Maps>();
  for (Mistake& mistake : all_mistakes()) {
    const std::string name = mistake.name;
    all.push_back({name, std::make_shared<Mistaken>(codec, std::move(mistake), maps)});
  }
  for (MistakenCodec& other : variations(codec)) all.push_back(std::move(other));
  return all;
}

std::vector<CodecPtr> neighbours(const CodecPtr& codec) {
  const std::string& name = codec->name();
  std::vector<std::string> names;
  static const std::regex group("-g([0-9]+|tensor)");
  for (const char* const other : {"-g16", "-g32", "-g64", "-g128", "-g256", "-gtensor", ""}) {
    if (std::regex_search(name, group)) names.push_back(std::regex_replace(name, group, other));
  }
  static const std::regex width("^([a-z-]+)([0-9]+)");
  std::smatch parts;
  if (std::regex_search(name, parts, width)) {
    for (int bits = 2; bits <= 8; ++bits) {
      names.push_back(fmt::format("{}{}{}", parts.str(1), bits, parts.suffix().str()));
    }
  }
  // Rules of rounding and of scales that a family has for one wire.
  static const std::vector<std::vector<std::string>> rules = {
      {"", "-ceil", "-even", "-rceil"}, {"", "-torch"}, {"", "-vllm", "-te", "-te-4over6"}};
  for (const auto& endings : rules) {
    for (const std::string& ending : endings) {
      if (!name.ends_with(ending)) continue;
      for (const std::string& other : endings) {
        names.push_back(name.substr(0, name.size() - ending.size()) + other);
      }
    }
  }
  for (const auto& [one, other] : {std::pair("e4m3", "e5m2"), std::pair("e2m3", "e3m2")}) {
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
      const std::size_t at = name.find(from);
      if (at == name.npos) continue;
      names.push_back(std::string(name).replace(at, std::strlen(from), to));
    }
  }
  names.push_back(name.starts_with("had-") ? name.substr(4) : "had-" + name);
  for (const std::string suffix : {"-sym", "-is", "-sr"}) {
    const std::size_t at = name.find(suffix);
    names.push_back(at == name.npos ? name + suffix
                                    : name.substr(0, at) + name.substr(at + suffix.size()));
  }
  std::vector<CodecPtr> found;
  for (const std::string& each : names) {
    if (each == name) continue;
    try {
      found.push_back(find_codec(each));
    } catch (const InvalidInput&) {
      continue;  // it has no such neighbour
    }
  }
  return found;
}

namespace {

Bytes payload_of(const Codec& codec, DType dtype, std::size_t elements,
                 std::span<const std::byte> wire) {
  Bytes values(elements * size_of(dtype));
  codec.decode(dtype, wire, values);
  return values;
}

/// Elements whose bits differ.
std::size_t differing(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::size_t unit = size_of(dtype);
  std::size_t count = 0;
  for (std::size_t at = 0; at < a.size(); at += unit)
    count += std::memcmp(&a[at], &b[at], unit) != 0;
  return count;
}

/// How the values lie that differ, where a mistake has no name.
std::string signs_of(DType dtype, std::span<const std::byte> expected,
                     std::span<const std::byte> got) {
  const std::size_t elements = expected.size() / size_of(dtype);
  std::size_t differ = 0, smaller = 0, larger = 0, lower = 0, opposite = 0, lost = 0;
  std::size_t zeroed = 0, became_zero = 0;
  std::optional<float> factor;
  bool is_factor = true;
  for (std::size_t i = 0; i < elements; ++i) {
    const float e = load_value(dtype, expected, i);
    const float g = load_value(dtype, got, i);
    if (std::memcmp(&e, &g, sizeof(float)) == 0) continue;
    ++differ;
    smaller += std::abs(g) < std::abs(e);
    larger += std::abs(g) > std::abs(e);
    lower += g < e;
    opposite += g == -e;
    lost += !std::isfinite(e) && std::isfinite(g);
    zeroed += g == 0;
    became_zero += e == 0;
    is_factor &= e == 0 || g != 0;
    if (e == 0 || g == 0 || !std::isfinite(g / e)) continue;
    if (!factor) factor = g / e;
    is_factor &= std::abs(g / e - *factor) <= std::abs(*factor) / 64;
  }
  if (differ == 0) return {};
  std::string text = fmt::format("{} of {} values differ", differ, elements);
  if (lost == differ) return text + ": NaN and infinities became finite";
  if (zeroed == differ && became_zero == differ) return text + ": zeros have the other sign";
  if (zeroed == differ) return text + ": all became 0";
  if (opposite == differ) return text + ": all have the other sign";
  if (factor && is_factor && differ > 1)
    return text + fmt::format(": all are {:.4g} times as large", *factor);
  if (smaller == differ) return text + ": all are nearer to 0";
  if (larger == differ) return text + ": all are farther from 0";
  if (lower == differ) return text + ": all are lower";
  if (lower == 0) return text + ": all are higher";
  return text;
}

/// Returns the mistake that makes of a payload the values that were got: one after which few elements differ still.
std::string mistake_of(const CodecPtr& codec, DType dtype, std::span<const std::byte> payload,
                       std::span<const std::byte> expected, std::span<const std::byte> got) {
  // A part of a long message is enough, from where it differs first.
  constexpr std::size_t kEnough = 8192;
  if (codec->info().splits_at_alignment && payload.size() > kEnough * size_of(dtype)) {
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(expected, got).in1 - expected.begin());
    const std::size_t alignment = codec->info().alignment;
    const std::size_t step =
        std::max<std::size_t>(kEnough / 2 / alignment, 1) * alignment * size_of(dtype);
    const std::size_t first = at / step * step;
    const std::size_t size = std::min(payload.size() - first, kEnough * size_of(dtype));
    if (size < payload.size()) {
      return mistake_of(codec, dtype, payload.subspan(first, size), expected.subspan(first, size),
                        got.subspan(first, size));
    }
  }
  const std::size_t before = differing(dtype, expected, got);
  std::size_t least = before;
  std::string name;
  for (const MistakenCodec& with : mistaken(codec)) {
    const Bytes wire = encoded(*with.codec, dtype, payload);
    const Bytes values = payload_of(*with.codec, dtype, payload.size() / size_of(dtype), wire);
    const std::size_t left = differing(dtype, values, got);
    if (left >= least) continue;
    least = left;
    name = with.mistake;
  }
  // Some effects of other mistakes fit one of these by chance.
  constexpr std::size_t kFar = 10;
  if (least == 0) return before == 0 ? std::string() : name;
  if (least * kFar > before) return {};
  return fmt::format("consistent with: {} ({} of {} values differ still)", name, least,
                     expected.size() / size_of(dtype));
}

/// Whether the 16-bit scales of a wire are numbers of the other 16-bit dtype, which brings the values back.
std::string scales_of_another_dtype(const CodecPtr& codec, DType dtype, std::size_t elements,
                                    std::span<const std::byte> expected,
                                    std::span<const std::byte> got,
                                    std::span<const std::byte> wire) {
  const auto error_of = [&](std::span<const std::byte> values) {
    double error = 0;
    double signal = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      const double e = load_value(dtype, expected, i);
      const double v = load_value(dtype, values, i);
      if (!std::isfinite(e)) continue;
      error += std::isfinite(v) ? (v - e) * (v - e) : e * e;
      signal += e * e;
    }
    return signal > 0 ? error / signal : 0.0;
  };
  constexpr double kNear = 0.02;
  const double before = error_of(got);
  for (const DType of : {DType::fp16, DType::bf16}) {
    const Bytes read = with_scales_of(codec, dtype, elements, wire, of);
    if (read.empty()) continue;
    const double after = error_of(payload_of(*codec, dtype, elements, read));
    if (after < kNear && after * 10 < before) {
      return fmt::format("consistent with: scales are stored in {}", name_of(of));
    }
  }
  return {};
}

}  // namespace

std::string explain_wire(const CodecPtr& codec, DType dtype, std::span<const std::byte> payload,
                         std::span<const std::byte> wire) {
  const Bytes expected = encoded(*codec, dtype, payload);
  const std::size_t elements = payload.size() / size_of(dtype);
  if (std::ranges::equal(expected, wire)) return {};
  std::string as_long;
  for (const CodecPtr& other : neighbours(codec)) {
    if (!other->takes(dtype) || other->info().needs_context()) continue;
    if (other->wire_bytes(dtype, elements) != wire.size()) continue;
    if (std::ranges::equal(encoded(*other, dtype, payload), wire)) {
      return fmt::format("it is the wire of {}", other->name());
    }
    if (as_long.empty()) as_long = other->name();
  }
  if (wire.size() != expected.size()) {
    if (!as_long.empty()) return fmt::format("it is as long as a wire of {}", as_long);
    return fmt::format("it has {} bytes, the reference's {}", wire.size(), expected.size());
  }
  if (codec->info().has_variable_wire) return {};
  for (const WireLayout& other : other_layouts(codec, dtype, elements, expected)) {
    if (std::ranges::equal(other.wire, wire)) {
      return fmt::format("its bits are the reference's in another place: {}", other.name);
    }
  }
  const auto byte =
      static_cast<std::size_t>(std::ranges::mismatch(expected, wire).in1 - expected.begin());
  const Bytes values = payload_of(*codec, dtype, elements, expected);
  const Bytes got = payload_of(*codec, dtype, elements, wire);
  std::vector<std::string> words;
  const std::string place = place_in_wire(*codec, dtype, elements, expected, byte);
  if (!place.empty()) words.push_back("that is " + place);
  for (std::size_t i = 0; i < elements; ++i) {
    const float e = load_value(dtype, values, i);
    const float g = load_value(dtype, got, i);
    if (std::memcmp(&e, &g, sizeof(float)) == 0) continue;
    words.push_back(fmt::format("element {}, {}, is decoded to {} in place of {}", i,
                                load_value(dtype, payload, i), g, e));
    break;
  }
  std::string mistake = mistake_of(codec, dtype, payload, values, got);
  if (mistake.empty()) mistake = scales_of_another_dtype(codec, dtype, elements, values, got, wire);
  words.push_back(mistake.empty() ? signs_of(dtype, values, got) : mistake);
  if (words.back().empty()) words.back() = "all values are the same";
  return fmt::format("{}", fmt::join(words, "; "));
}

std::string explain_values(const CodecPtr& codec, DType dtype, std::span<const std::byte> wire,
                           std::span<const std::byte> values) {
  const std::size_t elements = values.size() / size_of(dtype);
  const Bytes expected = payload_of(*codec, dtype, elements, wire);
  const std::size_t before = differing(dtype, expected, values);
  if (before == 0) return {};
  const std::size_t unit = size_of(dtype);
  std::size_t exchanged = 0;
  std::size_t through = 0;
  Bytes other = expected;
  for (std::size_t i = 0; i < elements; ++i) {
    const float value = load_value(dtype, expected, i);
    store_value(dtype, through_another(dtype, value), other, i);
    const std::size_t neighbour = std::min(i ^ 1, elements - 1);
    exchanged += std::memcmp(&values[i * unit], &expected[neighbour * unit], unit) == 0;
  }
  through = differing(dtype, other, values);
  if (exchanged == elements) return kExchanged;
  if (through == 0) return kThroughAnother;
  return signs_of(dtype, expected, values);
}

}  // namespace arlab
