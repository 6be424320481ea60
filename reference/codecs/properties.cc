#include "reference/codecs/properties.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "reference/codecs/native_sum.h"
#include "reference/codecs/payload_values.h"
#include "reference/parallel.h"
#include "reference/tensors/counter_random.h"
#include "reference/tensors/synthetic.h"

namespace arlab {
namespace {

using Bytes = std::vector<std::byte>;

/// Filling of memory before a codec writes to it: never the same, so that gaps show.
constexpr std::byte kOneFilling{0x00};
constexpr std::byte kOtherFilling{0xFF};
/// Around what a codec may write.
constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0x77};

/// Thrown where a property does not hold.
struct Violation {
  std::string detail;
};

template <typename... Args>
[[noreturn]] void violated(fmt::format_string<Args...> format, Args&&... args) {
  throw Violation{fmt::format(format, std::forward<Args>(args)...)};
}

std::size_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

class Check {
 public:
  Check(const Codec& codec, DType dtype) : codec_(codec), dtype_(dtype) {}

  std::uint64_t cases() const { return cases_; }

  // ---- the properties

  void sizes() {
    const std::size_t longest = std::max<std::size_t>(5000, 2 * unit() + 1);
    std::size_t last = 0;
    for (std::size_t elements = 1; elements <= longest; ++elements) {
      const std::size_t bytes = codec_.wire_bytes(dtype_, elements);
      if (bytes == 0) violated("{} elements have a wire of 0 bytes", elements);
      if (bytes < last) {
        violated("the wire of {} elements is {} bytes, that of {} is {}", elements, bytes,
                 elements - 1, last);
      }
      last = bytes;
      if (codec_.info().has_variable_wire) {
        ++cases_;
        continue;
      }
      const std::size_t most = codec_.elements_of_wire(dtype_, bytes);
      if (most < elements || codec_.wire_bytes(dtype_, most) != bytes ||
          codec_.wire_bytes(dtype_, most + 1) <= bytes) {
        violated("{} elements have a wire of {} bytes, of which elements_of_wire() makes {}",
                 elements, bytes, most);
      }
      ++cases_;
    }
  }

  void writes_all() {
    for (const std::size_t elements : lengths()) {
      const Bytes x = payload(elements);
      const Bytes wire = encoded_over(x, kOneFilling);
      if (const Bytes again = encoded_over(x, kOneFilling); again != wire) {
        violated(
            "{} elements: the codec is not deterministic: wire byte {} is another when the same "
            "values are encoded again",
            elements, first_difference(wire, again));
      }
      const Bytes other_wire = encoded_over(x, kOtherFilling);
      if (wire != other_wire) {
        violated("{} elements: wire byte {} is another when encoded again over other memory",
                 elements, first_difference(wire, other_wire));
      }
      require_decoded_again(wire, elements, "");
      ++cases_;
    }
  }

  void bounds() {
    for (const std::size_t elements : lengths()) {
      const Bytes x = payload(elements);
      const std::size_t bytes = codec_.wire_bytes(dtype_, elements);
      Bytes wire(bytes + 2 * kGuard, kGuardByte);
      codec_.encode(dtype_, x, std::span(wire).subspan(kGuard, bytes));
      require_guards(wire, "encode", elements);
      Bytes back(x.size() + 2 * kGuard, kGuardByte);
      const auto inner = std::span(back).subspan(kGuard, x.size());
      codec_.decode(dtype_, std::span(wire).subspan(kGuard, bytes), inner);
      require_guards(back, "decode", elements);
      codec_.decode_add(dtype_, std::span(wire).subspan(kGuard, bytes), inner);
      require_guards(back, "decode_add", elements);
      ++cases_;
    }
  }

  void addresses() {
    const std::size_t elements = std::min<std::size_t>(4097, 2 * unit() + 1);
    const Bytes x = payload(elements);
    const Bytes expected = encoded(x);
    const Bytes values = decoded(expected, elements);
    Bytes memory(expected.size() + 8);
    for (std::size_t offset = 1; offset < 8; ++offset) {
      const auto wire = std::span(memory).subspan(offset, expected.size());
      codec_.encode(dtype_, x, wire);
      if (!std::ranges::equal(wire, expected)) {
        violated("{} elements: wire byte {} is another {} bytes behind an aligned address",
                 elements, first_difference(wire, expected), offset);
      }
      Bytes back(x.size());
      codec_.decode(dtype_, wire, back);
      if (back != values) {
        violated("{} elements: element {} decodes to other bits {} bytes behind an aligned address",
                 elements, first_difference(back, values) / size(), offset);
      }
      ++cases_;
    }
  }

  /// Finds a magnitude that whole blocks carry: about 1, but for scales that are given.
  void values() {
    const std::size_t elements = std::max<std::size_t>(2 * unit(), 64);
    for (const int exponent : {0, 4, -4, 8, -8, 12, -12, -16, -20}) {
      for (const float sign : {1.0f, -1.0f}) {
        magnitude_ = sign * std::ldexp(1.0f, exponent);
        const Bytes x = moderate(elements, magnitude_);
        ++cases_;
        if (is_better_than_zeros(x, decoded(encoded(x), elements))) return;
      }
    }
    violated("{} elements of magnitudes from 2^-20 to 2^12 come back no better than zeros",
             elements);
  }

  void tails() {
    values();
    const std::vector<std::size_t> all = tail_lengths();
    const Bytes longest = moderate(all.back() + 1, magnitude_);
    for (const std::size_t elements : all) {
      const auto x = std::span(longest).first(elements * size());
      const Bytes wire = encoded(x);
      // The same elements with a NaN in memory behind their end.
      Bytes followed(x.begin(), x.end());
      followed.resize(x.size() + size());
      store_value(dtype_, std::numeric_limits<float>::quiet_NaN(), followed, elements);
      const Bytes again = encoded(std::span(followed).first(x.size()));
      if (again != wire) {
        violated("{} elements: wire byte {} depends on what lies behind the payload", elements,
                 first_difference(again, wire));
      }
      require_decoded_again(wire, elements, "");
      if (!is_better_than_zeros(x, decoded(wire, elements))) {
        violated("{} elements of about {:g} come back no better than zeros, but whole blocks do",
                 elements, magnitude_);
      }
      ++cases_;
    }
  }

  void splits() {
    const std::size_t alignment = codec_.info().alignment;
    const std::size_t most = alignment <= kLongUnit ? 4 : 1;
    const std::size_t elements = most * alignment + std::min(alignment / 2, kLongUnit) + 1;
    const Bytes x = payload(elements);
    const Bytes whole = decoded(encoded(x), elements);
    for (std::size_t units = 1; units <= most; ++units) {
      const std::size_t cut = units * alignment;
      Bytes parts = decoded(encoded(std::span(x).first(cut * size())), cut);
      const Bytes rest = decoded(
          encoded(std::span(x).subspan(cut * size()), nullptr, {.position = cut}), elements - cut);
      parts.insert(parts.end(), rest.begin(), rest.end());
      if (parts != whole) {
        violated("{} elements, cut at {}: element {} decodes to other bits", elements, cut,
                 first_difference(parts, whole) / size());
      }
      ++cases_;
    }
  }

  void context() {
    const RandomStream random(1, 9);
    for (const std::size_t elements : {std::size_t{1}, unit() + 1, std::size_t{4097}}) {
      const Bytes x = payload(elements);
      std::vector<float> before(codec_.info().has_state ? elements : 0);
      for (std::size_t i = 0; i < before.size(); ++i) {
        before[i] = static_cast<float>(unit_interval(random.word(i))) - 0.5f;
      }
      std::vector<float> after[2] = {before, before};
      Bytes wires[2];
      for (const std::size_t turn : {std::size_t{0}, std::size_t{1}}) {
        wires[turn].assign(codec_.wire_bytes(dtype_, elements),
                           turn == 0 ? kOneFilling : kOtherFilling);
        codec_.encode(dtype_, x, wires[turn], nullptr,
                      {.seed = 7,
                       .call = 3,
                       .rank = 1,
                       .world_size = 2,
                       .step = 1,
                       .position = 4096,
                       .state = after[turn]});
      }
      if (wires[0] != wires[1]) {
        violated("{} elements: wire byte {} is another when encoded again in the same context",
                 elements, first_difference(wires[0], wires[1]));
      }
      if (!std::ranges::equal(std::as_bytes(std::span(after[0])),
                              std::as_bytes(std::span(after[1])))) {
        violated("{} elements: the state is another when encoded again in the same context",
                 elements);
      }
      if (!std::ranges::all_of(after[0], [](float number) { return std::isfinite(number); })) {
        violated("{} elements: the state is not finite behind an encoding", elements);
      }
      ++cases_;
    }
  }

  void non_finite() {
    constexpr std::size_t kElements = 5000;
    require_non_finite_kept(payload(kElements, "adversarial:non_finite=0.3"));
    // A lone one, which a scale for the whole message may hide.
    const RandomStream random(1, 7);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      for (std::uint64_t i = 0; i < 8; ++i) {
        Bytes x = payload(kElements, "gaussian");
        store_value(dtype_, bad, x, static_cast<std::size_t>(random.word(i) % kElements));
        require_non_finite_kept(x);
      }
    }
    // A lone NaN at the end, which may be the only element of its block.
    for (const std::size_t elements : tail_lengths()) {
      Bytes x = moderate(elements, 1);
      store_value(dtype_, std::numeric_limits<float>::quiet_NaN(), x, elements - 1);
      require_non_finite_kept(x);
    }
  }

  void saturation() {
    constexpr std::size_t kElements = 3 * 4096 + 37;
    const double largest = largest_finite(dtype_);
    std::vector<Bytes> payloads = {payload(kElements, "adversarial:non_finite=0"),
                                   payload(kElements, "adversarial:seed=2,non_finite=0"),
                                   payload(kElements, fmt::format("constant:value={}", largest)),
                                   payload(kElements, fmt::format("constant:value={}", -largest))};
    // Magnitudes from some share of the largest on; of one sign, or of both.
    const RandomStream random(1, 0);
    for (const double least : {0.0, 0.4, 0.9, 0.999}) {
      for (const int signs : {1, -1, 2}) {
        Bytes& x = payloads.emplace_back(kElements * size());
        for (std::size_t i = 0; i < kElements; ++i) {
          const std::uint64_t word = random.word(i);
          const double magnitude =
              word % 31 == 0 ? largest : largest * (least + (1 - least) * unit_interval(word));
          const double sign = signs == 2 ? random_sign(mix_bits(word)) : signs;
          // Values that rounding would make infinite become the largest number.
          store_value(dtype_, limited(static_cast<float>(sign * magnitude), largest_finite(dtype_)),
                      x, i);
          if (std::isinf(load_value(dtype_, x, i))) {
            store_value(dtype_, static_cast<float>(sign * largest), x, i);
          }
        }
      }
    }
    for (const Bytes& x : payloads) {
      const Bytes back = decoded(encoded(x), kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        const float v = load_value(dtype_, back, i);
        // In fp16 nothing overflows fp32 on the way, so nothing is a NaN either.
        if (std::isinf(v) || (dtype_ == DType::fp16 && std::isnan(v))) {
          violated("element {} of {} finite ones is {:g} and decodes to {:g}", i, kElements,
                   load_value(dtype_, x, i), v);
        }
      }
      ++cases_;
    }
  }

  void foreign_wires() {
    const RandomStream random(1, 1);
    for (const std::size_t elements : lengths()) {
      Bytes wire(codec_.wire_bytes(dtype_, elements));
      for (const int filling : {0x00, 0xFF, -1}) {
        for (std::size_t i = 0; i < wire.size(); ++i) {
          wire[i] = filling < 0 ? static_cast<std::byte>(random.word(i))
                                : static_cast<std::byte>(filling);
        }
        const std::string of =
            filling < 0 ? " of random bytes" : fmt::format(" of bytes 0x{:02x}", filling);
        require_foreign(wire, elements, of);
        if (!codec_.info().has_variable_wire) continue;
        // Such a wire hardly ever has an allowed length.
        for (const std::size_t length : foreign_lengths(wire.size(), random.word(elements))) {
          set_length(wire, length);
          require_foreign(wire, elements, fmt::format("{}, {} in use", of, length));
        }
      }
      if (codec_.info().has_variable_wire) damaged_wires(elements);
    }
  }

  /// Right wires of which a little is not: most of what decoders look at is behind what random bytes get to.
  void damaged_wires(std::size_t elements) {
    constexpr std::uint64_t kTimes = 24;
    const RandomStream random(1, 3);
    for (const char* input : {"gaussian", "adversarial:non_finite=0.05", "constant:value=0"}) {
      const Bytes right = encoded(payload(elements, input));
      const std::size_t used = length_of(right);
      if (used < kWireLengthBytes || used > right.size()) {
        violated("{} elements: a wire of {} bytes that says it has {}", elements, right.size(),
                 used);
      }
      for (std::uint64_t i = 0; i < kTimes; ++i) {
        Bytes wire = right;
        const std::size_t at = std::min(kWireLengthBytes + i / 4, used - 1);  // headers first
        std::size_t length = used;
        switch (i % 4) {
          case 0:  // cut
            length = kWireLengthBytes + random.word(i) % (used - kWireLengthBytes + 1);
            break;
          case 1:
            wire[at] = static_cast<std::byte>(random.word(i));
            break;
          case 2:
            wire[std::min(kWireLengthBytes + random.word(i) % (used - kWireLengthBytes + 1),
                          used - 1)] ^= std::byte{0x80};
            break;
          default:  // longer, by what was not in use
            length = used + random.word(i) % (wire.size() - used + 1);
            break;
        }
        set_length(wire, length);
        require_foreign(wire, elements,
                        fmt::format(", damaged, {} of {} bytes in use", length, used));
      }
    }
  }

  void decode_add() {
    const RandomStream random(1, 2);
    for (const std::size_t elements : lengths()) {
      for (const bool foreign : {false, true}) {
        Bytes wire = encoded(payload(elements, "adversarial:non_finite=0.05"));
        for (std::size_t i = 0; foreign && i < wire.size(); ++i) {
          wire[i] = static_cast<std::byte>(random.word(i));
        }
        Bytes room(elements * size());
        if (foreign && is_refused(wire, room)) continue;
        Bytes expected = payload(elements, "adversarial:seed=3,non_finite=0.05");
        Bytes sum = expected;
        add_native(dtype_, codec_.info().clamps_fp16_sums, expected, decoded(wire, elements));
        codec_.decode_add(dtype_, wire, sum);
        if (sum != expected) {
          const std::size_t at = first_difference(sum, expected) / size();
          violated("{} elements: element {} becomes {:g}, and {:g} when decoded and then added",
                   elements, at, load_value(dtype_, sum, at), load_value(dtype_, expected, at));
        }
        ++cases_;
      }
    }
  }

  void threads() {
    constexpr unsigned kThreads = 6;
    constexpr std::size_t kTimes = 3 * std::size_t{kThreads};
    const std::size_t elements = 3 * 4096 + 17;
    const Bytes x = payload(elements);
    EncodeCounts counts;
    const Bytes wire = encoded(x, &counts);
    const Bytes back = decoded(wire, elements);
    std::mutex mutex;
    std::string found;
    std::atomic<bool> others_work = false;
    parallel_for(kTimes, kThreads, [&](unsigned worker, std::size_t) {
      // On a busy machine the first would be through with it all before another one runs.
      if (worker != 0) others_work = true;
      for (int i = 0; i < 1000 && !others_work; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EncodeCounts own;
      const Bytes own_wire = encoded(x, &own);
      const bool same_counts = own.clamped == counts.clamped;
      if (own_wire == wire && same_counts && decoded(wire, elements) == back) return;
      const std::scoped_lock lock(mutex);
      found = own_wire != wire ? fmt::format("{} elements: wire byte {} is another", elements,
                                             first_difference(own_wire, wire))
              : same_counts    ? fmt::format("{} elements decode to other bits", elements)
                               : fmt::format("{} clamped elements are counted, not {}", own.clamped,
                                             counts.clamped);
    });
    if (!found.empty()) violated("{}, while other threads encode and decode", found);
    cases_ += kTimes;
  }

  void counts() {
    for (const std::size_t elements : lengths()) {
      const Bytes x = payload(elements);
      EncodeCounts counts{.clamped = 1};
      const Bytes counted = encoded(x, &counts);
      const Bytes uncounted = encoded(x);
      if (counted != uncounted) {
        violated("{} elements: wire byte {} is another when clamped elements are counted", elements,
                 first_difference(counted, uncounted));
      }
      if (counts.clamped == 0 || counts.clamped - 1 > elements) {
        violated("{} elements: {} clamped ones were added to a count of 1", elements,
                 counts.clamped - 1);
      }
      ++cases_;
    }
  }

  void cost() {
    const CodecCost& cost = codec_.info().cost;
    const auto require = [&](std::string_view what, double value, bool right,
                             std::string_view allowed) {
      if (!right) violated("{} is {}; allowed is {}", what, value, allowed);
      ++cases_;
    };
    // Bytes that only move take no arithmetic.
    const bool computes = codec_.wire_bytes(dtype_, 4096) != 4096 * size();
    const auto is_count = [&](double ops) {
      return std::isfinite(ops) && ops >= 0 && (ops > 0 || !computes);
    };
    require("encode_ops_per_element", cost.encode_ops_per_element,
            is_count(cost.encode_ops_per_element), "a number above 0");
    require("decode_ops_per_element", cost.decode_ops_per_element,
            is_count(cost.decode_ops_per_element), "a number above 0");
    require("store_efficiency", cost.store_efficiency,
            cost.store_efficiency > 0 && cost.store_efficiency <= 1, "a share above 0, at most 1");
  }

 private:
  std::size_t size() const { return size_of(dtype_); }

  /// Elements that share a scale, or of a message that may be cut.
  std::size_t unit() const {
    const CodecInfo& info = codec_.info();
    const std::size_t unit = info.block != kWholeTensor ? info.block : info.alignment;
    return std::min(unit, kLongUnit);
  }

  std::vector<std::size_t> lengths() const {
    std::vector<std::size_t> lengths = {1,  2,  3,   31,   32,   33,   63,
                                        64, 65, 127, 1000, 4095, 4096, 4097};
    if (unit() > 65) lengths.insert(lengths.end(), {unit() - 1, unit(), unit() + 1});
    return lengths;
  }

  /// Up to two blocks and an element; of long blocks the ends.
  std::vector<std::size_t> tail_lengths() const {
    constexpr std::size_t kEvery = 512;
    std::vector<std::size_t> lengths;
    for (std::size_t n = 1; n <= 2 * unit() + 1; ++n) {
      const std::size_t in_unit = n % unit();
      if (unit() <= kEvery || n <= 65 || in_unit <= 1 || in_unit == unit() - 1) {
        lengths.push_back(n);
      }
    }
    return lengths;
  }

  Bytes payload(std::size_t elements, std::string_view spec = "adversarial") const {
    return make_synthetic(spec, dtype_, 1, elements).data;
  }

  Bytes encoded(std::span<const std::byte> x, EncodeCounts* counts = nullptr,
                const EncodeContext& context = {}) const {
    Bytes wire(codec_.wire_bytes(dtype_, x.size() / size()), kOneFilling);
    codec_.encode(dtype_, x, wire, counts, context);
    return wire;
  }
  Bytes encoded_over(std::span<const std::byte> x, std::byte filling) const {
    Bytes wire(codec_.wire_bytes(dtype_, x.size() / size()), filling);
    codec_.encode(dtype_, x, wire);
    return wire;
  }
  Bytes decoded(const Bytes& wire, std::size_t elements) const {
    Bytes x(elements * size(), kOneFilling);
    codec_.decode(dtype_, wire, x);
    return x;
  }

  /// Decodes. Wires of variable length may be refused: not any bytes are one.
  bool is_refused(std::span<const std::byte> wire, std::span<std::byte> payload) const {
    if (!codec_.info().has_variable_wire) {
      codec_.decode(dtype_, wire, payload);
      return false;
    }
    try {
      codec_.decode(dtype_, wire, payload);
    } catch (const InvalidInput&) {
      return true;
    }
    return false;
  }

  static void set_length(std::span<std::byte> wire, std::uint64_t length) {
    std::memcpy(wire.data(), &length, std::min(sizeof(length), wire.size()));
  }
  static std::uint64_t length_of(std::span<const std::byte> wire) {
    std::uint64_t length = 0;
    std::memcpy(&length, wire.data(), std::min(sizeof(length), wire.size()));
    return length;
  }
  /// The least, the largest, one between, and ones that are not allowed.
  static std::vector<std::size_t> foreign_lengths(std::size_t most, std::uint64_t random) {
    if (most < kWireLengthBytes) return {};
    const std::size_t between = kWireLengthBytes + random % (most - kWireLengthBytes + 1);
    return {kWireLengthBytes, most, between, kWireLengthBytes - 1, most + 1, most + 8, SIZE_MAX};
  }

  /// Checks that foreign bytes are refused, where wires have no fixed length, or decode; and that memory around them, or the
  /// wire behind its length, has no part in that.
  void require_foreign(const Bytes& wire, std::size_t elements, const std::string& of) {
    Bytes results[2];
    bool refused[2] = {};
    for (const std::size_t turn : {std::size_t{0}, std::size_t{1}}) {
      const std::byte filling = turn == 0 ? kOneFilling : kOtherFilling;
      Bytes around(wire.size() + 2 * kGuard, filling);
      const auto given = std::span(around).subspan(kGuard, wire.size());
      std::ranges::copy(wire, given.begin());
      if (codec_.info().has_variable_wire) {
        const std::uint64_t used = length_of(wire);
        if (used >= kWireLengthBytes && used < wire.size())
          std::ranges::fill(given.subspan(used), filling);
      }
      Bytes memory(elements * size() + 2 * kGuard, kGuardByte);
      const auto payload = std::span(memory).subspan(kGuard, elements * size());
      std::ranges::fill(payload, filling);
      refused[turn] = is_refused(given, payload);
      require_guards(memory, "decode", elements);
      results[turn].assign(memory.begin() + kGuard, memory.end() - kGuard);
    }
    if (refused[0] != refused[1]) {
      violated("{} elements{}: refused once and decoded once, over other memory", elements, of);
    }
    if (!refused[0] && results[0] != results[1]) {
      violated("{} elements{}: element {} is another when decoded again over other memory",
               elements, of, first_difference(results[0], results[1]) / size());
    }
    ++cases_;
  }

  void require_decoded_again(const Bytes& wire, std::size_t elements, const std::string& of) const {
    const Bytes x = decoded(wire, elements);
    Bytes again(x.size(), kOtherFilling);
    codec_.decode(dtype_, wire, again);
    if (x != again) {
      violated("{} elements{}: element {} is another when decoded again over other memory",
               elements, of, first_difference(x, again) / size());
    }
  }

  static void require_guards(const Bytes& memory, std::string_view function, std::size_t elements) {
    const auto is_touched = [](std::byte byte) { return byte != kGuardByte; };
    if (std::any_of(memory.begin(), memory.begin() + kGuard, is_touched)) {
      violated("{} of {} elements writes in front of its span", function, elements);
    }
    if (std::any_of(memory.end() - kGuard, memory.end(), is_touched)) {
      violated("{} of {} elements writes behind the end of its span", function, elements);
    }
  }

  void require_non_finite_kept(const Bytes& x) {
    const std::size_t elements = x.size() / size();
    const Bytes back = decoded(encoded(x), elements);
    for (std::size_t i = 0; i < elements; ++i) {
      const float before = load_value(dtype_, x, i);
      const float after = load_value(dtype_, back, i);
      if (std::isfinite(before)) continue;
      if (std::isfinite(after) || (std::isnan(before) && !std::isnan(after))) {
        violated("{} elements: element {} is {:g} and decodes to {:g}", elements, i, before, after);
      }
      ++cases_;
    }
  }

  /// Numbers of one sign and of magnitude |m| / 2 to 3 |m| / 2.
  Bytes moderate(std::size_t elements, float m) const {
    const RandomStream random(1, 4);
    Bytes x(elements * size());
    for (std::size_t i = 0; i < elements; ++i) {
      store_value(dtype_, m * (0.5f + static_cast<float>(unit_interval(random.word(i)))), x, i);
    }
    return x;
  }

  bool is_better_than_zeros(std::span<const std::byte> x, const Bytes& back) const {
    double error = 0;
    double signal = 0;
    for (std::size_t i = 0; i < back.size() / size(); ++i) {
      const double before = load_value(dtype_, x, i);
      const double difference = load_value(dtype_, back, i) - before;
      error += difference * difference;
      signal += before * before;
    }
    return error < signal;  // false for a NaN
  }

  static constexpr std::size_t kLongUnit = 65536;

  const Codec& codec_;
  DType dtype_;
  std::uint64_t cases_ = 0;
  float magnitude_ = 1;
};

/// Returns why the codec does not promise the property, if so.
using NotPromised = std::optional<std::string> (*)(const CodecInfo&, DType);

std::optional<std::string> always(const CodecInfo&, DType) { return std::nullopt; }

std::optional<std::string> when_split(const CodecInfo& info, DType) {
  if (!info.splits_at_alignment) return "something is found of the whole message";
  if (info.alignment == kWholeTensor) return "messages are never cut";
  return std::nullopt;
}

std::optional<std::string> when_in_context(const CodecInfo& info, DType) {
  if (info.needs_context()) return std::nullopt;
  return "its wire depends on the elements alone";
}

std::optional<std::string> when_saturating(const CodecInfo& info, DType dtype) {
  if (std::ranges::find(info.saturating, dtype) != info.saturating.end()) return std::nullopt;
  return fmt::format("CodecInfo::saturating does not name {}", name_of(dtype));
}

struct CheckedProperty {
  NotPromised not_promised;
  void (Check::*check)();
};

constexpr auto kProperties = std::to_array<CodecProperty>({
    {"sizes", "wires never shrink with the element count, and elements_of_wire() inverts them"},
    {"writes-all", "every byte and element is written, the same each time"},
    {"bounds", "nothing outside of the spans is written"},
    {"addresses", "a wire may lie at any address"},
    {"values", "numbers of some magnitude come back better than as zeros"},
    {"tails", "every length comes back; nothing behind the end is read or missing"},
    {"splits", "a message cut at a multiple of the alignment decodes to the same bits"},
    {"context", "in the same context, the same bits and the same finite state"},
    {"non-finite", "a NaN decodes to a NaN, an infinity to nothing finite"},
    {"saturation", "no finite tensor decodes to an infinity"},
    {"foreign-wires", "any bytes decode, the same each time, inside the span"},
    {"decode-add", "decode_add is decode, then one rounded addition"},
    {"threads", "many threads get the same bits at once"},
    {"counts", "counting clamped elements changes no bit, and adds to the count"},
    {"cost", "operations are counted, so that the simulator can take its time"},
});
constexpr CheckedProperty kChecks[] = {
    {always, &Check::sizes},         {always, &Check::writes_all},
    {always, &Check::bounds},        {always, &Check::addresses},
    {always, &Check::values},        {always, &Check::tails},
    {when_split, &Check::splits},    {when_in_context, &Check::context},
    {always, &Check::non_finite},    {when_saturating, &Check::saturation},
    {always, &Check::foreign_wires}, {always, &Check::decode_add},
    {always, &Check::threads},       {always, &Check::counts},
    {always, &Check::cost},
};
static_assert(kProperties.size() == std::size(kChecks));

}  // namespace

std::span<const CodecProperty> codec_properties() { return kProperties; }

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds:
      return "holds";
    case Verdict::violated:
      return "violated";
    case Verdict::not_promised:
      break;
  }
  return "not promised";
}

PropertyResult check_property(std::string_view property, const Codec& codec, DType dtype) {
  const auto* const found = std::ranges::find(kProperties, property, &CodecProperty::name);
  if (found == kProperties.end()) fail("there is no property {} of codecs", quote(property));
  const CheckedProperty& checked = kChecks[found - kProperties.begin()];
  if (auto why = checked.not_promised(codec.info(), dtype)) {
    return {.verdict = Verdict::not_promised, .detail = *why};
  }
  Check check(codec, dtype);
  try {
    (check.*checked.check)();
  } catch (const Violation& violation) {
    return {.verdict = Verdict::violated, .cases = check.cases(), .detail = violation.detail};
  } catch (const InvalidInput& error) {  // thrown by the codec for valid arguments
    return {.verdict = Verdict::violated, .cases = check.cases(), .detail = error.what()};
  }
  return {.verdict = Verdict::holds, .cases = check.cases()};
}

}  // namespace arlab
