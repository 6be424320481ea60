#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "kernels/conformance/all_reduce_models.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/accumulate.h"
#include "reference/words.h"

namespace arlab::kernels {
namespace {

using Bytes = std::vector<std::byte>;
using Values = std::vector<float>;

/// A contribution to a sum.
struct Addend {
  std::size_t rank = 0;
  int age = 0;       ///< 0: of this call; 1: of the call before; 2: of the one before that
  bool raw = false;  ///< not encoded
  int part = 0;      ///< the owner's of the tensor, or the one so many behind it
  auto operator<=>(const Addend&) const = default;
};
using Addends = std::vector<Addend>;

enum class Pairs { none, neighbours, halves };
enum class Arithmetic {
  own,
  cut_off,          // after every addition, or at the end where sums are fp32 numbers
  fp64,             // rounded once
  other_dtype,      // partial sums in the other 16-bit dtype
  flushed,          // subnormals
  clamps,           // or does not, where the codec does
  begins_with_zero  // or does not, where the algorithm does
};
/// Where the part of a rank begins.
enum class Division { own, even, ceiling, rest_last, eights, sixty_fours };

constexpr std::size_t kOwn = SIZE_MAX;

/// A row: what is different from the way that is claimed.
struct SumMistake {
  std::string name;  ///< {own} stands for the owner's contribution
  /// Addends for the part of its owner (one_shot: on that rank), in this order; null: the way's.
  std::function<Addends(std::size_t owner, std::size_t ranks)> addends = {};
  bool is_by_owner = false;  ///< addends differ from owner to owner
  bool is_weak = false;      ///< only roundings differ, so that most elements are right by chance
  Pairs pairs = Pairs::none;
  Arithmetic arithmetic = Arithmetic::own;
  bool raw_addends = false;
  bool raw_sums = false;
  std::size_t raw_sum_of = SIZE_MAX;
  Division parts = Division::own;
  /// The owner whose part of the result stands in the place of the owner's; null: its own.
  std::function<std::size_t(std::size_t owner, std::size_t ranks)> part_of = {};
  std::ptrdiff_t shift = 0;  ///< elements by which results come late
  bool is_zero = false;
  std::optional<std::size_t> copy_of =
      {};  ///< the result is this rank's tensor; kOwn: everyone's own
  bool loses_zero_sign = false;
};

Addends by_rank(std::size_t ranks) {
  Addends all(ranks);
  for (std::size_t r = 0; r < ranks; ++r) all[r].rank = r;
  return all;
}
Addends others(std::size_t owner, std::size_t ranks) {
  Addends all = by_rank(ranks);
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(owner));
  return all;
}

/// Orders in which a sum may be made, all of them right but for the last bits.
std::vector<SumMistake> orders() {
  const auto rotated = [](std::size_t first, std::size_t step, std::size_t ranks) {
    Addends all(ranks);
    for (std::size_t i = 0; i < ranks; ++i) all[i].rank = (first + i * step) % ranks;
    return all;
  };
  std::vector<SumMistake> rows;
  const auto add = [&](const char* name, bool by_owner, auto addends) {
    rows.push_back({.name = name, .addends = addends, .is_by_owner = by_owner, .is_weak = true});
  };
  add("{own} comes first, then the others in the order of ranks", true,
      [](std::size_t owner, std::size_t ranks) {
        Addends all = others(owner, ranks);
        all.insert(all.begin(), {.rank = owner});
        return all;
      });
  add("{own} comes last, after the others in the order of ranks", true,
      [](std::size_t owner, std::size_t ranks) {
        Addends all = others(owner, ranks);
        all.push_back({.rank = owner});
        return all;
      });
  add("{own} comes first, then the others up the ring of ranks", true,
      [=](std::size_t owner, std::size_t ranks) { return rotated(owner, 1, ranks); });
  add("{own} comes last, after the others up the ring of ranks", true,
      [=](std::size_t owner, std::size_t ranks) { return rotated(owner + 1, 1, ranks); });
  add("{own} comes first, then the others down the ring of ranks", true,
      [=](std::size_t owner, std::size_t ranks) { return rotated(owner, ranks - 1, ranks); });
  add("{own} comes last, after the others down the ring of ranks", true,
      [=](std::size_t owner, std::size_t ranks) {
        return rotated(owner + ranks - 1, ranks - 1, ranks);
      });
  add("contributions are added from the last rank to the first", false,
      [=](std::size_t, std::size_t ranks) { return rotated(ranks - 1, ranks - 1, ranks); });
  add("contributions of even ranks are added before those of odd ones", false,
      [](std::size_t, std::size_t ranks) {
        Addends all = by_rank(ranks);
        std::ranges::stable_sort(all, {}, [](const Addend& a) { return a.rank % 2; });
        return all;
      });
  rows.push_back({.name = "neighbours are added first, then pairs of pairs",
                  .is_weak = true,
                  .pairs = Pairs::neighbours});
  rows.push_back({.name = "ranks half the world apart are added first, then halves of halves",
                  .is_weak = true,
                  .pairs = Pairs::halves});
  return rows;
}

std::vector<SumMistake> roundings() {
  std::vector<SumMistake> rows;
  for (const auto& [arithmetic, name] :
       {std::pair(Arithmetic::cut_off, "sums are cut off to the dtype (truncation), not rounded"),
        std::pair(Arithmetic::fp64, "sums are made in fp64 and rounded once"),
        std::pair(Arithmetic::other_dtype, "partial sums are rounded to another 16-bit dtype"),
        std::pair(Arithmetic::flushed, "subnormal sums are flushed to 0"),
        std::pair(Arithmetic::clamps,
                  "sums that overflow are treated another way (made the "
                  "largest finite number, or infinite)"),
        std::pair(Arithmetic::begins_with_zero,
                  "the sum begins with another zero, so that the sign of a zero is another")}) {
    rows.push_back({.name = name, .is_weak = true, .arithmetic = arithmetic});
  }
  return rows;
}

/// Mistakes in the choice and number of addends.
std::vector<SumMistake> contributions(std::size_t ranks) {
  std::vector<SumMistake> rows;
  const auto add = [&](std::string name, bool by_owner, auto addends) {
    rows.push_back({.name = std::move(name), .addends = addends, .is_by_owner = by_owner});
  };
  add("{own} is missing", true, [](std::size_t owner, std::size_t n) { return others(owner, n); });
  const std::string twice = "{own} counts twice";
  add(twice, true, [](std::size_t owner, std::size_t n) {
    Addends all = by_rank(n);
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(owner), {.rank = owner});
    return all;
  });
  add(twice + " (at the beginning)", true, [](std::size_t owner, std::size_t n) {
    Addends all = by_rank(n);
    all.insert(all.begin(), {.rank = owner});
    return all;
  });
  add(twice + " (at the end)", true, [](std::size_t owner, std::size_t n) {
    Addends all = by_rank(n);
    all.push_back({.rank = owner});
    return all;
  });
  add("{own} alone is the result", true,
      [](std::size_t owner, std::size_t) { return Addends{{.rank = owner}}; });
  add("{own} stands in the place of all others", true,
      [](std::size_t owner, std::size_t n) { return Addends(n, {.rank = owner}); });
  for (const std::size_t step : {std::size_t{1}, ranks - 1}) {
    if (step == ranks - 1 && ranks == 2) continue;
    add(fmt::format("{{own}} is replaced by that of the {} rank", step == 1 ? "next" : "previous"),
        true, [step](std::size_t owner, std::size_t n) {
          Addends all = by_rank(n);
          all[owner].rank = (owner + step) % n;
          return all;
        });
  }
  const auto one_of = [&](std::string name, std::size_t rank, Addend instead) {
    add(std::move(name), false, [=](std::size_t, std::size_t n) {
      Addends all = by_rank(n);
      all[rank] = instead;
      return all;
    });
  };
  for (std::size_t r = 0; r < ranks; ++r) {
    add(fmt::format("rank {}'s contribution is missing", r), false,
        [r](std::size_t, std::size_t n) { return others(r, n); });
    add(fmt::format("rank {}'s contribution counts twice", r), false,
        [r](std::size_t, std::size_t n) {
          Addends all = by_rank(n);
          all.insert(all.begin() + static_cast<std::ptrdiff_t>(r), {.rank = r});
          return all;
        });
    one_of(fmt::format("data of the call before, rank {}", r), r, {.rank = r, .age = 1});
    one_of(fmt::format("data of two calls before, rank {}", r), r, {.rank = r, .age = 2});
    one_of(fmt::format("rank {}'s contribution is not encoded", r), r, {.rank = r, .raw = true});
    for (const int part : {1, -1}) {
      one_of(
          fmt::format("rank {}'s data of the part {} the owner's stand in the place of that part's",
                      r, part > 0 ? "behind" : "before"),
          r, {.rank = r, .part = part});
    }
    rows.push_back({.name = fmt::format("the sum of rank {}'s part is not encoded again", r),
                    .raw_sum_of = r});
    for (std::size_t q = 0; q < ranks; ++q) {
      constexpr std::size_t kFew = 5;  // for more ranks only neighbours: pairs would be too many
      const bool are_near = q + 1 == r || r + 1 == q;
      if (q == r || (ranks > kFew && !are_near)) continue;
      one_of(fmt::format("rank {}'s data stand in the place of rank {}'s", q, r), r, {.rank = q});
    }
  }
  for (const int age : {1, 2}) {
    const char* const of = age == 1 ? "the call before" : "two calls before";
    add(fmt::format("data of {}, of all ranks but the one that adds", of), true,
        [age](std::size_t owner, std::size_t n) {
          Addends all = by_rank(n);
          for (Addend& each : all) each.age = each.rank == owner ? 0 : age;
          return all;
        });
    add(fmt::format("data of {}, of all ranks", of), false, [age](std::size_t, std::size_t n) {
      Addends all = by_rank(n);
      for (Addend& each : all) each.age = age;
      return all;
    });
    add(fmt::format("data of {}, of the rank that adds", of), true,
        [age](std::size_t owner, std::size_t n) {
          Addends all = by_rank(n);
          all[owner].age = age;
          return all;
        });
    for (const std::size_t step : {std::size_t{1}, ranks - 1}) {
      add(fmt::format("data of {}, of the rank {} the one that adds", of,
                      step == 1 ? "behind" : "before"),
          true, [age, step](std::size_t owner, std::size_t n) {
            Addends all = by_rank(n);
            all[(owner + step) % n].age = age;
            return all;
          });
    }
  }
  return rows;
}

/// Mistakes made with a sum that was right.
std::vector<SumMistake> results(std::size_t block, std::size_t ranks) {
  std::vector<SumMistake> rows = {
      {.name = "nothing is encoded", .raw_addends = true, .raw_sums = true},
      {.name = "sums are not encoded again", .raw_sums = true},
      {.name = "contributions are not encoded", .raw_addends = true},
      {.name = "the sign of results that are 0 is lost (-0 becomes 0)", .loses_zero_sign = true},
      {.name = "results are 0", .is_zero = true},
      {.name = "a rank has the part of the next one",
       .part_of = [](std::size_t o, std::size_t n) { return (o + 1) % n; }},
      {.name = "a rank has the part of the one before",
       .part_of = [](std::size_t o, std::size_t n) { return (o + n - 1) % n; }},
      {.name = "parts of neighbouring ranks are exchanged",
       .part_of = [](std::size_t o, std::size_t n) { return (o ^ 1) < n ? o ^ 1 : o; }},
      {.name = "parts stand in the reverse order of ranks",
       .part_of = [](std::size_t o, std::size_t n) { return n - 1 - o; }},
  };
  rows.push_back({.name = "every rank keeps its own tensor, without a sum", .copy_of = kOwn});
  for (std::size_t r = 0; r < ranks; ++r) {
    rows.push_back(
        {.name = fmt::format("the result is the tensor of rank {}, no sum", r), .copy_of = r});
  }
  std::vector<std::ptrdiff_t> shifts = {1, -1};
  if (block > 1 && block < 65536) {
    shifts.push_back(static_cast<std::ptrdiff_t>(block));
    shifts.push_back(-static_cast<std::ptrdiff_t>(block));
  }
  for (const std::ptrdiff_t shift : shifts) {
    rows.push_back({.name = fmt::format("results are {} {}", counted(std::abs(shift), "element"),
                                        shift > 0 ? "late" : "early"),
                    .shift = shift});
  }
  for (const auto& [parts, name] :
       {std::pair(Division::even, "parts begin at n r / ranks"),
        std::pair(Division::ceiling, "parts (stripes) have n / ranks elements, rounded up"),
        std::pair(Division::rest_last,
                  "parts (stripes) have n / ranks elements, the last one the rest"),
        std::pair(Division::eights, "parts (stripes) are multiples of 8 elements"),
        std::pair(Division::sixty_fours, "parts (stripes) are multiples of 64 elements")}) {
    std::string words = name;
    if (parts == Division::even) words = "stripes begin at n r / ranks";
    rows.push_back({.name = words + ", not at whole blocks", .parts = parts});
  }
  return rows;
}

// ---------------------------------------------------------------- one of them, calculated

/// Contents of a buffer that keeps the tensors of earlier calls, of which shorter ones replace the beginning only.
Bytes held(const AllReduceCase& c, std::size_t rank, int age, std::size_t unit) {
  const auto own = c.inputs.rank_bytes(rank);
  Bytes tensor(own.begin(), own.end());
  if (age == 0) return tensor;
  const AllReduceCase* at = c.before;
  for (int k = 1; k < age && at != nullptr; ++k) at = at->before;
  if (at == nullptr) return tensor;  // there was none
  std::size_t filled = 0;
  for (; at != nullptr && filled < c.elements; at = at->before) {
    if (at->elements <= filled) continue;
    const std::size_t end = std::min(at->elements, c.elements);
    const auto old = at->inputs.rank_bytes(rank);
    std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(filled * unit), (end - filled) * unit,
                tensor.begin() + static_cast<std::ptrdiff_t>(filled * unit));
    filled = end;
  }
  std::fill(tensor.begin() + static_cast<std::ptrdiff_t>(filled * unit), tensor.end(),
            std::byte{0});
  return tensor;
}

class MistakenSum {
 public:
  MistakenSum(const AllReduceWay& way, DType dtype, const AllReduceCase& c, const SumMistake& row)
      : way_(way),
        dtype_(dtype),
        c_(c),
        row_(row),
        ranks_(c.inputs.ranks()),
        unit_(size_of(dtype)),
        is_two_shot_(way.parts.algorithm == "two_shot") {}

  Bytes run() {
    Bytes out(ranks_ * c_.elements * unit_);
    if (row_.is_zero) return out;
    if (row_.copy_of) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const auto tensor = c_.inputs.rank_bytes(*row_.copy_of == kOwn ? rank : *row_.copy_of);
        std::ranges::copy(tensor, out.begin() + static_cast<std::ptrdiff_t>(rank * tensor.size()));
      }
      return out;
    }
    is_two_shot_ ? two_shot(out) : one_shot(out);
    if (row_.shift != 0) shift(out);
    for (std::size_t i = 0; row_.loses_zero_sign && i < ranks_ * c_.elements; ++i) {
      if (load_value(dtype_, out, i) == 0) store_value(dtype_, 0, out, i);
    }
    return out;
  }

 private:
  struct Part {
    Bytes sum, result;
  };

  void paste(Bytes& out, std::size_t rank, std::size_t begin, std::size_t most, const Bytes& part) {
    std::copy_n(part.begin(), std::min(part.size(), most * unit_),
                out.begin() + static_cast<std::ptrdiff_t>((rank * c_.elements + begin) * unit_));
  }

  void two_shot(Bytes& out) {
    bounds_ = part_bounds();
    for (std::size_t owner = 0; owner < ranks_; ++owner) {
      const std::size_t begin = bounds_[owner];
      const std::size_t count = bounds_[owner + 1] - begin;
      if (count == 0) continue;
      const std::size_t from = row_.part_of ? row_.part_of(owner, ranks_) : owner;
      if (bounds_[from + 1] == bounds_[from]) continue;
      const Part part = part_for(from, bounds_[from], bounds_[from + 1]);
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const bool keeps = rank == owner && way_.parts.sum.owner_keeps_sum;
        paste(out, rank, begin, count, keeps ? part.sum : part.result);
      }
      values_.clear();
    }
  }

  void one_shot(Bytes& out) {
    const bool differs = row_.is_by_owner || row_.raw_sum_of != SIZE_MAX ||
                         way_.parts.sum.begins_with_own || way_.parts.sum.own == "exact";
    Part part;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (rank == 0 || differs) part = part_for(rank, 0, c_.elements);
      paste(out, rank, 0, c_.elements, part.sum);
    }
  }

  std::vector<std::size_t> part_bounds() const {
    const std::size_t n = c_.elements;
    std::vector<std::size_t> bounds(ranks_ + 1, n);
    bounds[0] = 0;
    std::size_t alignment = way_.codec->info().alignment;
    if (row_.parts == Division::eights) alignment = 8;
    if (row_.parts == Division::sixty_fours) alignment = 64;
    if (alignment > n) alignment = n;
    const std::size_t blocks = (n + alignment - 1) / alignment;
    for (std::size_t r = 1; r < ranks_; ++r) {
      switch (row_.parts) {
        case Division::own:
        case Division::eights:
        case Division::sixty_fours:
          bounds[r] =
              bounds[r - 1] + (blocks / ranks_ + (r - 1 < blocks % ranks_ ? 1 : 0)) * alignment;
          break;
        case Division::even:
          bounds[r] = n * r / ranks_;
          break;
        case Division::ceiling:
          bounds[r] = bounds[r - 1] + (n + ranks_ - 1) / ranks_;
          break;
        case Division::rest_last:
          bounds[r] = bounds[r - 1] + n / ranks_;
          break;
      }
      bounds[r] = std::min(bounds[r], n);
    }
    return bounds;
  }

  /// The values of a contribution as they are added.
  const Values& values_of(const Addend& addend, std::size_t begin, std::size_t end) {
    Values& values = values_[addend];
    if (!values.empty()) return values;
    values.resize(end - begin);
    auto& tensor = tensors_[{addend.rank, addend.age}];
    if (tensor.empty()) tensor = held(c_, addend.rank, addend.age, unit_);
    const auto slice =
        std::span(tensor).subspan(moved(addend.part, begin, end) * unit_, values.size() * unit_);
    Bytes decoded;
    std::span<const std::byte> as = slice;
    if (!addend.raw) {
      Bytes wire(way_.codec->wire_bytes(dtype_, values.size()));
      way_.codec->encode(dtype_, slice, wire);
      if (way_.parts.sum.decodes_to_fp32) {
        way_.codec->decode_fp32(dtype_, wire, values);
        return values;
      }
      decoded.resize(slice.size());
      way_.codec->decode(dtype_, wire, decoded);
      as = decoded;
    }
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_value(dtype_, as, i);
    return values;
  }

  /// Where a part begins, or that which is so many ranks behind it, if it is as long.
  std::size_t moved(int by, std::size_t begin, std::size_t end) const {
    if (by == 0 || !is_two_shot_) return begin;
    const auto at =
        std::ranges::find(bounds_, end) - bounds_.begin() - 1;  // the last that ends there
    const auto ranks = static_cast<std::ptrdiff_t>(ranks_);
    const auto other = static_cast<std::size_t>((at + by + ranks) % ranks);
    return bounds_[other + 1] - bounds_[other] == end - begin ? bounds_[other] : begin;
  }

  bool clamps() const {
    return way_.codec->info().clamps_fp16_sums != (row_.arithmetic == Arithmetic::clamps);
  }

  /// Rounded to the dtype.
  void round(Values& sum) const {
    for (float& each : sum) each = rounded(each);
  }
  float rounded(float x) const {
    float nearest = x;
    if (dtype_ == DType::bf16) {
      nearest = bfloat16_to_float(Bf16Arithmetic::from_float(x));
      if (row_.arithmetic == Arithmetic::cut_off && std::abs(nearest) > std::abs(x)) {
        nearest = bfloat16_to_float(static_cast<std::uint16_t>(Bf16Arithmetic::from_float(x) - 1));
      }
    } else if (dtype_ == DType::fp16) {
      const std::uint16_t bits =
          clamps() ? Fp16Arithmetic::from_float_clamped(x) : Fp16Arithmetic::from_float(x);
      nearest = half_to_float(bits);
      if (row_.arithmetic == Arithmetic::cut_off && std::abs(nearest) > std::abs(x)) {
        nearest = half_to_float(static_cast<std::uint16_t>(bits - 1));
      }
    }
    if (row_.arithmetic == Arithmetic::flushed) {
      const float least = dtype_ == DType::fp16 ? 0x1p-14f : 0x1p-126f;
      if (std::abs(nearest) < least) nearest = std::copysign(0.0f, nearest);
    }
    return nearest;
  }
  float partial(float x) const {
    if (row_.arithmetic == Arithmetic::other_dtype) {
      return dtype_ == DType::bf16 ? half_to_float(Fp16Arithmetic::from_float(x))
                                   : bfloat16_to_float(Bf16Arithmetic::from_float(x));
    }
    return way_.parts.sum.add == Accumulate::native ? rounded(x) : x;
  }

  Values sum_of(const Addends& addends, std::size_t begin, std::size_t end) {
    const std::size_t count = end - begin;
    if (row_.arithmetic == Arithmetic::fp64) {
      std::vector<double> sum(count);
      for (const Addend& each : addends) {
        const Values& values = values_of(each, begin, end);
        for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
      }
      Values out(count);
      for (std::size_t i = 0; i < count; ++i) out[i] = rounded(rounded_for(dtype_, sum[i]));
      return out;
    }
    if (row_.pairs != Pairs::none) return sum_in_pairs(addends, begin, end);
    const bool from_zero = is_two_shot_ != (row_.arithmetic == Arithmetic::begins_with_zero);
    Values sum(count, from_zero ? 0.0f : -0.0f);
    for (const Addend& each : addends) {
      const Values& values = values_of(each, begin, end);
      for (std::size_t i = 0; i < count; ++i) sum[i] = partial(sum[i] + values[i]);
    }
    return sum;
  }

  Values sum_in_pairs(const Addends& addends, std::size_t begin, std::size_t end) {
    std::vector<Values> parts;
    parts.reserve(addends.size());
    for (const Addend& each : addends) parts.push_back(values_of(each, begin, end));
    const auto add = [&](std::size_t to, std::size_t from) {
      for (std::size_t i = 0; i < end - begin; ++i) {
        parts[to][i] = partial(parts[to][i] + parts[from][i]);
      }
    };
    if (row_.pairs == Pairs::neighbours) {
      for (std::size_t gap = 1; gap < parts.size(); gap *= 2) {
        for (std::size_t r = 0; r + gap < parts.size(); r += 2 * gap) add(r, r + gap);
      }
    } else {
      std::size_t left = parts.size();
      while (left > 1) {
        const std::size_t half = (left + 1) / 2;
        for (std::size_t r = 0; r + half < left; ++r) add(r, r + half);
        left = half;
      }
    }
    if (is_two_shot_) {
      for (float& each : parts[0]) each += 0.0f;
    }
    return parts[0];
  }

  Part part_for(std::size_t owner, std::size_t begin, std::size_t end) {
    const Sum& how = way_.parts.sum;
    Addends addends = by_rank(ranks_);
    if (row_.addends) {
      addends = row_.addends(owner, ranks_);
    } else if (how.begins_with_own) {
      std::ranges::rotate(addends, addends.begin() + static_cast<std::ptrdiff_t>(owner));
    }
    for (Addend& each : addends) {
      each.raw |= row_.raw_addends || (how.own == "exact" && each.rank == owner);
    }
    Values sum = sum_of(addends, begin, end);
    Part part;
    Bytes wire(way_.codec->wire_bytes(dtype_, sum.size()));
    const bool raw = !is_two_shot_ || row_.raw_sums || row_.raw_sum_of == owner;
    if (!how.rounds && !raw) way_.codec->encode_fp32(dtype_, sum, wire);
    round(sum);
    part.sum.resize(sum.size() * unit_);
    for (std::size_t i = 0; i < sum.size(); ++i) store_value(dtype_, sum[i], part.sum, i);
    part.result = part.sum;
    if (raw) return part;
    if (how.rounds) way_.codec->encode(dtype_, part.sum, wire);
    way_.codec->decode(dtype_, wire, part.result);
    return part;
  }

  void shift(Bytes& out) const {
    const auto bytes = static_cast<std::ptrdiff_t>(c_.elements * unit_);
    const auto by = (row_.shift * static_cast<std::ptrdiff_t>(unit_) % bytes + bytes) % bytes;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const auto first = out.begin() + static_cast<std::ptrdiff_t>(rank) * bytes;
      std::rotate(first, first + bytes - by, first + bytes);
    }
  }

  const AllReduceWay& way_;
  const DType dtype_;
  const AllReduceCase& c_;
  const SumMistake& row_;
  const std::size_t ranks_;
  const std::size_t unit_;
  const bool is_two_shot_;
  std::map<Addend, Values> values_;  // one part's
  std::vector<std::size_t> bounds_;  // all parts'
  std::map<std::pair<std::size_t, int>, Bytes> tensors_;
};

bool can_be_varied(const AllReduceWay& way) {
  const std::string& algorithm = way.parts.algorithm;
  return way.named == nullptr && way.uncompressed.empty() && !way.reversed &&
         (algorithm == "one_shot" || algorithm == "two_shot") &&
         way.parts.sum.add < Accumulate::fma && !way.parts.sum.casts_to_fp16 &&
         !way.codec->info().needs_context() && !way.codec->info().shares_scales &&
         !way.codec->info().has_variable_wire;
}

AllReduceModel model_of(const AllReduceWay& way, DType dtype, const SumMistake& row,
                        bool only_in_a_part) {
  AllReduceWay with = way;
  const char* const own = way.parts.algorithm == "one_shot"
                              ? "each rank adds all contributions itself, and its own"
                              : "the owner's contribution";
  with.mistake = fmt::format(fmt::runtime(row.name), fmt::arg("own", own)) +
                 (only_in_a_part ? ", in a part of the elements" : "");
  AllReduceModel model;
  model.way = std::make_shared<const AllReduceWay>(std::move(with));
  model.candidate.name = way.name();
  model.candidate.mistake = model.way->mistake;
  model.must_be_exact = row.is_weak || only_in_a_part;
  model.run = [way = model.way, dtype, row, only_in_a_part](const AllReduceCase& c,
                                                            std::vector<Bytes>& allowed) {
    try {
      if (only_in_a_part) run_way(*way, dtype, c, allowed);
      allowed.push_back(MistakenSum(*way, dtype, c, row).run());
    } catch (const InvalidInput&) {
      allowed.clear();  // this sum is not made so, or not of such a tensor
    }
  };
  return model;
}

}  // namespace

std::vector<AllReduceModel> other_orders(const AllReduceWay& way, DType dtype, std::size_t ranks) {
  std::vector<AllReduceModel> models;
  // Two numbers have one sum.
  if (!can_be_varied(way) || ranks < 3) return models;
  for (const SumMistake& row : orders()) models.push_back(model_of(way, dtype, row, false));
  return models;
}

std::vector<AllReduceModel> mistaken_sums(const AllReduceWay& way, DType dtype, std::size_t ranks,
                                          bool only_in_a_part) {
  std::vector<AllReduceModel> models;
  if (!can_be_varied(way)) return models;
  std::vector<SumMistake> rows;
  const auto take = [&](std::vector<SumMistake> more) {
    for (SumMistake& row : more) rows.push_back(std::move(row));
  };
  if (ranks > 2) take(orders());
  take(roundings());
  take(contributions(ranks));
  take(results(way.codec->info().block, ranks));
  for (const SumMistake& row : rows) {
    // Rows that differ in last bits only would fit a part of anything.
    const bool is_fine = row.is_weak || row.parts != Division::own || row.loses_zero_sign;
    if (!only_in_a_part || !is_fine) models.push_back(model_of(way, dtype, row, only_in_a_part));
  }
  return models;
}

std::optional<AllReduceModel> any_order(const AllReduceWay& way, DType dtype, std::size_t ranks) {
  constexpr std::size_t kMost = 5;  // 120 orders
  if (!can_be_varied(way) || ranks < 3 || ranks > kMost) return std::nullopt;
  AllReduceWay with = way;
  with.mistake =
      "contributions are added in an order that differs from place to place or call to call, as "
      "the "
      "order of arrival does";
  AllReduceModel model;
  model.way = std::make_shared<const AllReduceWay>(std::move(with));
  model.candidate.name = way.name();
  model.candidate.mistake = model.way->mistake;
  model.must_be_exact = true;
  model.run = [way = model.way, dtype](const AllReduceCase& c, std::vector<Bytes>& allowed) {
    try {
      Addends order = by_rank(c.inputs.ranks());
      do {
        const SumMistake row = {.name = {},
                                .addends = [&](std::size_t, std::size_t) { return order; },
                                .is_by_owner = false};
        allowed.push_back(MistakenSum(*way, dtype, c, row).run());
      } while (std::ranges::next_permutation(order).found);
    } catch (const InvalidInput&) {
      allowed.clear();
    }
  };
  return model;
}

}  // namespace arlab::kernels
