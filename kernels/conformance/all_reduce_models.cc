#include "kernels/conformance/all_reduce_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "kernels/conformance/element_bits.h"
#include "reference/codecs/mistakes.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/formats/with_arithmetic.h"
#include "reference/metrics/error.h"
#include "reference/words.h"

namespace arlab::kernels {
namespace {

using Bytes = std::vector<std::byte>;

// ---------------------------------------------------------------- schedules

AllReduceModel model_of(AllReduceWay way, DType dtype) {
  AllReduceModel model;
  model.way = std::make_shared<const AllReduceWay>(std::move(way));
  const AllReduceWay& w = *model.way;
  model.candidate.name = w.name();
  model.candidate.mistake = w.mistake;
  model.candidate.summary = w.named != nullptr
                                ? fmt::format("{}, {}", w.named->summary, w.named->source)
                                : fmt::format("arlab's {}, codec {}, sums {}", w.parts.algorithm,
                                              w.parts.codec, name_of(w.parts.sum));
  model.run = [way = model.way, dtype](const AllReduceCase& c, std::vector<Bytes>& allowed) {
    run_way(*way, dtype, c, allowed);
  };
  return model;
}

AllReduceWay way_of(const std::string& algorithm, const CodecPtr& codec, const Sum& sum = {}) {
  // Member by member: of an aggregate GCC 12 frees texts twice where memory runs out.
  AllReduceWay way;
  way.parts.algorithm = algorithm;
  way.parts.codec = codec->name();
  way.parts.sum = sum;
  way.codec = codec;
  return way;
}

AllReduceWay way_of(const NamedAllReduce& named, const AllReduceCheckRequest& request) {
  AllReduceWay way;
  way.named = &named;
  way.request.ranks = static_cast<Rank>(request.ranks);
  way.request.dtype = request.dtype;
  return way;
}

/// Not every algorithm has every world size.
bool takes(const std::string& algorithm, const CodecPtr& codec, int ranks) {
  try {
    (void)make_schedule(algorithm, {.world_size = static_cast<Rank>(ranks),
                                    .elements = 4096,
                                    .alignment = codec->info().alignment});
    return true;
  } catch (const InvalidInput&) {
    return false;
  }
}

std::vector<std::string> algorithms_of(const CodecPtr& codec, int ranks) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == Collective::all_reduce && takes(algorithm.name, codec, ranks)) {
      names.push_back(algorithm.name);
    }
  }
  return names;
}

// ---------------------------------------------------------------- claims

/// ALGORITHM/CODEC/SUM, or a name with what may be chosen of it: flashinfer-fp8/block=128.
AllReduceWay parse_claim(const AllReduceCheckRequest& request) {
  const std::string& claim = request.claim;
  const std::size_t first = claim.find('/');
  const std::string head = claim.substr(0, first);
  const auto& all = named_all_reduces();
  const auto named = std::ranges::find(all, head, &NamedAllReduce::name);
  if (named != all.end()) {
    AllReduceWay way = way_of(*named, request);
    if (first == claim.npos) return way;
    const std::string option = claim.substr(first + 1);
    const std::size_t equals = option.find('=');
    const std::string key = option.substr(0, equals);
    const std::string value = equals == option.npos ? "" : option.substr(equals + 1);
    if (key == "block" && named->has_block) {
      const bool is_number = !value.empty() && value.size() < 10 &&
                             value.find_first_not_of("0123456789") == value.npos;
      if (!is_number || std::stoull(value) == 0) {
        fail("claim {}: block {}: allowed are positive numbers", quote(claim), quote(value));
      }
      way.request.block = std::stoull(value);
      return way;
    }
    if (key == "codec" && named->has_codecs) {
      way.request.codec = find_codec(value)->name();
      return way;
    }
    fail("claim {}: {} is nothing to choose of {}: allowed are {}", quote(claim), quote(option),
         head,
         named->has_block    ? "block=N"
         : named->has_codecs ? "codec=NAME"
                             : "no more");
  }
  const std::size_t second = claim.find('/', first + 1);
  if (first == claim.npos || second == claim.npos) fail("it is no ALGORITHM/CODEC/SUM");
  const CodecPtr codec = find_codec(claim.substr(first + 1, second - first - 1));
  if (!takes(head, codec, request.ranks)) fail("{} ranks", request.ranks);
  return way_of(head, codec, parse_sum(claim.substr(second + 1)));
}

// ---------------------------------------------------------------- orders of summation

/// Orders of addition, the same on every rank and for every element.
using Orders = std::vector<std::vector<std::size_t>>;

/// Around a ring of ranks 0, 1, ..., from every rank and in both directions: libraries cut tensors
/// for it in ways of their own.
Orders ring_orders(std::size_t ranks) {
  Orders orders;
  for (std::size_t first = 0; first < ranks; ++first) {
    for (const std::size_t step : {std::size_t{1}, ranks - 1}) {
      std::vector<std::size_t> order(ranks);
      for (std::size_t i = 0; i < ranks; ++i) order[i] = (first + i * step) % ranks;
      orders.push_back(order);
    }
  }
  return orders;
}

template <class Arithmetic>
void sum_in_order(const AllReduceCase& c, const std::vector<std::size_t>& order, bool native,
                  Bytes& sums) {
  using Bits = typename Arithmetic::Bits;
  const auto out = elements_of<Bits>(std::span(sums));
  for (std::size_t i = 0; i < c.elements; ++i) {
    float sum = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const float x = Arithmetic::to_float(elements_of<Bits>(c.inputs.rank_bytes(order[k]))[i]);
      sum = k == 0 ? x : sum + x;
      if (native) sum = Arithmetic::to_float(Arithmetic::from_float(sum));
    }
    out[i] = Arithmetic::from_float(sum);
  }
}

/// Neighbours first, then pairs of pairs.
template <class Arithmetic>
void sum_as_tree(const AllReduceCase& c, std::size_t ranks, bool native, Bytes& sums) {
  using Bits = typename Arithmetic::Bits;
  const auto out = elements_of<Bits>(std::span(sums));
  std::vector<float> part(ranks);
  for (std::size_t i = 0; i < c.elements; ++i) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      part[rank] = Arithmetic::to_float(elements_of<Bits>(c.inputs.rank_bytes(rank))[i]);
    }
    for (std::size_t gap = 1; gap < ranks; gap *= 2) {
      for (std::size_t rank = 0; rank + gap < ranks; rank += 2 * gap) {
        part[rank] += part[rank + gap];
        if (native) part[rank] = Arithmetic::to_float(Arithmetic::from_float(part[rank]));
      }
    }
    out[i] = Arithmetic::from_float(part[0]);
  }
}

/// The tensor of one rank, for all of them.
void repeat_for_ranks(Bytes& tensor, std::size_t ranks) {
  const std::size_t bytes = tensor.size();
  tensor.resize(bytes * ranks);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    std::copy_n(tensor.begin(), bytes, tensor.begin() + static_cast<std::ptrdiff_t>(rank * bytes));
  }
}

void add_orders_of_summation(const AllReduceCheckRequest& request,
                             std::vector<AllReduceModel>& models) {
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const DType dtype = request.dtype;
  // Member by member, as way_of() does it.
  const auto add = [&](std::string name, std::string summary, auto run) {
    AllReduceModel& model = models.emplace_back();
    model.candidate.name = std::move(name);
    model.candidate.summary = std::move(summary);
    model.run = std::move(run);
  };
  for (const bool native : {true, false}) {
    const char* const how = native ? "rounded after every addition" : "kept in fp32";
    const char* const suffix = native ? "native" : "fp32";
    add(fmt::format("ring_order/{}", suffix),
        fmt::format("every element summed around the ring of ranks from some rank, {}", how),
        [=](const AllReduceCase& c, std::vector<Bytes>& allowed) {
          const Orders orders = ring_orders(ranks);
          allowed.resize(orders.size());
          for (std::size_t k = 0; k < orders.size(); ++k) {
            allowed[k].resize(c.elements * size_of(dtype));
            with_arithmetic(dtype, false,
                            [&]<class A>(A) { sum_in_order<A>(c, orders[k], native, allowed[k]); });
            repeat_for_ranks(allowed[k], ranks);
          }
        });
    models.back().is_loose = true;
    add(fmt::format("tree_order/{}", suffix),
        fmt::format("neighbours first, then pairs of pairs, {}", how),
        [=](const AllReduceCase& c, std::vector<Bytes>& allowed) {
          allowed.assign(1, Bytes(c.elements * size_of(dtype)));
          with_arithmetic(dtype, false,
                          [&]<class A>(A) { sum_as_tree<A>(c, ranks, native, allowed[0]); });
          repeat_for_ranks(allowed[0], ranks);
        });
  }
  add("exact_sum", "the sum in float64, rounded once; zeros of any sign",
      [=](const AllReduceCase& c, std::vector<Bytes>& allowed) {
        const ExactSum sum = exact_sum(dtype, ranks, c.inputs.bytes());
        allowed.assign(1, Bytes(c.elements * size_of(dtype)));
        with_arithmetic(dtype, false, [&]<class A>(A) {
          const auto out = elements_of<typename A::Bits>(std::span(allowed[0]));
          for (std::size_t i = 0; i < c.elements; ++i) {
            out[i] = A::from_float(rounded_for(dtype, sum.values[i]));
          }
        });
        repeat_for_ranks(allowed[0], ranks);
        allowed.push_back(allowed[0]);
        const std::size_t unit = size_of(dtype);
        for (std::size_t at = 0; at < allowed[1].size(); at += unit) {
          std::byte* const element = &allowed[1][at];
          if (std::all_of(element, element + unit, [](std::byte b) { return b == std::byte{0}; })) {
            element[unit - 1] = std::byte{0x80};
          }
        }
      });
}

// ---------------------------------------------------------------- the search

/// Records that the codec and the algorithm may or may not take.
std::vector<Sum> all_sums() {
  std::vector<Sum> sums;
  for (const Accumulate add :
       {Accumulate::native, Accumulate::fp32, Accumulate::fma, Accumulate::exact}) {
    for (const char* own : {"", "encoded", "exact"}) {
      for (unsigned k = 0; k < 16; ++k) {
        Sum sum;
        sum.add = add;
        sum.own = own;
        sum.decodes_to_fp32 = (k & 1) != 0;
        sum.begins_with_own = (k & 2) != 0;
        sum.rounds = (k & 4) == 0;
        sum.owner_keeps_sum = (k & 8) != 0;
        if (sum.rounds || add != Accumulate::native) sums.push_back(sum);
      }
    }
  }
  return sums;
}

/// Codecs that an all-reduce may use: those that were named and their neighbours, or of which nothing is known all.
std::vector<CodecPtr> codecs_to_try(const AllReduceCheckRequest& request,
                                    const std::vector<AllReduceModel>& models) {
  std::vector<CodecPtr> named;
  const std::string plain(name_of(request.dtype));
  for (const AllReduceModel& model : models) {
    const bool says = model.way && model.way->codec && model.way->codec->name() != plain;
    if (says) named.push_back(model.way->codec);
  }
  if (named.empty()) {
    for (const std::string& name : listed_codecs(false)) named.push_back(find_codec(name));
  }
  named.push_back(find_codec(plain));
  std::vector<CodecPtr> codecs;
  const auto add = [&](const CodecPtr& codec) {
    const bool is_new = std::ranges::none_of(
        codecs, [&](const CodecPtr& known) { return known->name() == codec->name(); });
    if (is_new && codec->takes(request.dtype) && !codec->info().needs_context()) {
      codecs.push_back(codec);
    }
  };
  for (const CodecPtr& codec : named) add(codec);
  for (const CodecPtr& codec : named) {
    for (const CodecPtr& neighbour : neighbours(codec)) add(neighbour);
  }
  return codecs;
}

/// Codecs that leave most of a result as it is, as the one does by which it was encoded, whatever mistake was made before. Where several
/// do, those of fewest bits.
std::vector<CodecPtr> codecs_of_result(std::vector<CodecPtr> codecs, DType dtype,
                                       std::span<const std::byte> result, std::size_t most) {
  const std::size_t elements = result.size() / size_of(dtype);
  std::erase_if(codecs, [&](const CodecPtr& codec) {
    return codec->wire_bytes(dtype, elements) >= result.size();
  });
  const auto changed = [&](const CodecPtr& codec) {
    Bytes wire(codec->wire_bytes(dtype, elements));
    Bytes again(result.size());
    codec->encode(dtype, result, wire);
    codec->decode(dtype, wire, again);
    std::size_t count = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      count += bits_at(dtype, again, i) != bits_at(dtype, result, i) ? 1 : 0;
    }
    // Some are lost where no element has the largest code any more.
    return std::pair(count * 8 / elements, wire.size());
  };
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, CodecPtr>> by_change;
  by_change.reserve(codecs.size());
  for (const CodecPtr& codec : codecs) by_change.emplace_back(changed(codec), codec);
  std::ranges::stable_sort(by_change, {}, [](const auto& entry) { return entry.first; });
  by_change.resize(std::min(by_change.size(), most));
  std::vector<CodecPtr> found;
  found.reserve(by_change.size());
  for (const auto& entry : by_change) found.push_back(entry.second);
  return found;
}

/// The few that are nearest.
class Nearest {
 public:
  Nearest(const Distance& distance, std::size_t most) : distance_(distance), most_(most) {}

  void consider(AllReduceModel model) {
    const bool is_full = found_.size() == most_;
    const std::uint64_t limit = is_full ? found_.back().distance : UINT64_MAX;
    const std::uint64_t count = distance_(model, limit);
    if (count >= limit || (model.must_be_exact && count != 0)) return;
    const auto place = std::ranges::upper_bound(found_, count, {}, &Found::distance);
    found_.insert(place, {std::move(model), count});
    if (is_full) found_.pop_back();
  }
  bool is_exact() const { return !found_.empty() && found_[0].distance == 0; }
  std::vector<AllReduceModel> models() const {
    std::vector<AllReduceModel> all;
    all.reserve(found_.size());
    for (const Found& found : found_) all.push_back(found.model);
    return all;
  }

 private:
  struct Found {
    AllReduceModel model;
    std::uint64_t distance;
  };
  const Distance& distance_;
  std::size_t most_;
  std::vector<Found> found_;
};

}  // namespace

void run_way(const AllReduceWay& given, DType dtype, const AllReduceCase& c,
             std::vector<Bytes>& allowed) {
  AllReduceWay way = given;
  const std::size_t ranks = c.inputs.ranks();
  try {
    if (way.named != nullptr) {
      way.request.elements = c.elements;
      way.parts = way.named->parts_of(way.request);
      way.codec = find_codec(way.parts.codec);
    }
    const CodecPtr plain = find_codec(name_of(dtype));
    AlgorithmOptions options = way.parts.options;
    if (!way.parts.sum.own.empty()) options.set("own", way.parts.sum.own);
    Schedule schedule =
        make_schedule(way.parts.algorithm, {.world_size = static_cast<Rank>(ranks),
                                            .elements = c.elements,
                                            .alignment = way.codec->info().alignment,
                                            .options = options});
    if (!way.uncompressed.empty()) place_inner_codec(schedule, way.uncompressed);
    const Codecs codecs(*way.codec, way.uncompressed.empty() ? *way.codec : *plain);
    Bytes inputs(c.inputs.bytes().begin(), c.inputs.bytes().end());
    const auto reverse_ranks = [&](Bytes& tensors) {
      const auto bytes = static_cast<std::ptrdiff_t>(tensors.size() / ranks);
      for (std::size_t rank = 0; rank < ranks / 2; ++rank) {
        const auto one = tensors.begin() + static_cast<std::ptrdiff_t>(rank) * bytes;
        const auto other = tensors.end() - static_cast<std::ptrdiff_t>(rank + 1) * bytes;
        std::swap_ranges(one, one + bytes, other);
      }
    };
    if (way.reversed) reverse_ranks(inputs);
    allowed.assign(1, Bytes(inputs.size()));
    execute(schedule, codecs, dtype, inputs, allowed[0], {.sum = way.parts.sum});
    if (way.reversed) reverse_ranks(allowed[0]);
    if (way.parts.has_nvidia_nan) set_nvidia_nan(dtype, allowed[0]);
  } catch (const InvalidInput&) {
    allowed.clear();
  }
}

float rounded_for(DType dtype, double value) {
  const auto nearest = static_cast<float>(value);
  if (dtype == DType::fp32 || !std::isfinite(nearest) || static_cast<double>(nearest) == value) {
    return nearest;
  }
  // Cut off, and its last bit set when something was lost: it rounds to a shorter format as the double does.
  const bool too_large = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const float below = too_large ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(below) | 1u);
}

std::string AllReduceWay::name() const {
  if (named != nullptr) {
    if (request.block != 0) return fmt::format("{}/block={}", named->name, request.block);
    return request.codec.empty() ? named->name
                                 : fmt::format("{}/codec={}", named->name, request.codec);
  }
  return fmt::format(
      "{}/{}/{}{}{}", parts.algorithm, parts.codec, name_of(parts.sum),
      reversed ? " from the last rank on" : "",
      uncompressed.empty() ? "" : fmt::format(" with {} uncompressed", uncompressed));
}

std::string AllReduceWay::difference_from(const AllReduceWay& other, DType dtype) const {
  std::vector<std::string> words;
  if (!mistake.empty()) words.push_back(mistake);
  if (reversed) words.emplace_back("contributions are added from the last rank to the first");
  if (uncompressed == "rs") words.emplace_back("what is summed is sent as it is, not encoded");
  if (uncompressed == "ag") words.emplace_back("sums are sent as they are, not encoded again");
  if (named == nullptr && other.named == nullptr) {
    const std::string type(name_of(dtype));
    if (parts.algorithm == "one_shot" && other.parts.algorithm == "two_shot") {
      words.emplace_back("sums are sent as they are, not encoded again");
    } else if (parts.algorithm != other.parts.algorithm) {
      words.push_back(fmt::format("contributions are added in the order of {}", parts.algorithm));
    }
    if (parts.codec != other.parts.codec) {
      words.push_back(fmt::format("the codec is {}", parts.codec));
    }
    const Sum& a = parts.sum;
    const Sum& b = other.parts.sum;
    const auto say = [&](bool differs, bool which, const std::string& yes, const std::string& no) {
      if (differs) words.push_back(which ? yes : no);
    };
    say(a.decodes_to_fp32 != b.decodes_to_fp32, a.decodes_to_fp32,
        "values are not rounded to " + type + " before the sum",
        "decoded to " + type + " before the sum");
    if (a.add != b.add) {
      words.push_back(a.add == Accumulate::native ? "partial sums are rounded to " + type
                      : a.add == Accumulate::fp32 ? "partial sums are kept in fp32"
                      : a.add == Accumulate::exact
                          ? "sums are rounded once, and have all bits before"
                          : "code times scale is added in one step");
    }
    const std::string own =
        parts.algorithm == "one_shot" ? "each rank's own contribution" : "the owner's contribution";
    say(a.begins_with_own != b.begins_with_own, a.begins_with_own, "the sum begins with " + own,
        "contributions are added in the order of ranks");
    say(a.rounds != b.rounds, a.rounds,
        "sums are rounded to " + type + " before they are encoded again",
        "sums are not rounded before they are encoded again");
    say(a.own != b.own, a.own == "exact", own + " is not encoded", own + " is encoded, too");
    say(a.owner_keeps_sum != b.owner_keeps_sum, a.owner_keeps_sum,
        "the owner kept its stripe: it has the sum, which others decode",
        "the owner has what others decode");
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

std::vector<AllReduceModel> models_of(const AllReduceCheckRequest& request) {
  std::vector<AllReduceModel> models;
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(models, [&](const auto& m) { return m.candidate.name == name; });
  };
  std::vector<Sum> sums(2);
  sums[1].add = Accumulate::fp32;
  const auto add_codec = [&](const CodecPtr& codec) {
    if (!codec->takes(request.dtype)) {
      fail("codec {} does not take {}", codec->name(), name_of(request.dtype));
    }
    for (const std::string& algorithm : algorithms_of(codec, request.ranks)) {
      for (const Sum& sum : sums) {
        AllReduceModel model = model_of(way_of(algorithm, codec, sum), request.dtype);
        if (!has(model.candidate.name)) models.push_back(std::move(model));
      }
    }
  };
  add_codec(find_codec(name_of(request.dtype)));
  if (!request.codec.empty()) add_codec(find_codec(request.codec));
  for (const NamedAllReduce& named : named_all_reduces()) {
    if (named.name == "quickreduce") continue;  // it is arlab's two_shot
    models.push_back(model_of(way_of(named, request), request.dtype));
  }
  add_orders_of_summation(request, models);
  if (request.claim.empty() || has(request.claim)) return models;
  std::optional<AllReduceWay> claimed;
  try {
    claimed = parse_claim(request);
  } catch (const InvalidInput& error) {
    std::vector<std::string> known;
    known.reserve(models.size());
    for (const AllReduceModel& model : models) known.push_back(model.candidate.name);
    fail("unknown claim {}: {} ({})", quote(request.claim),
         instead_of(request.claim, {known, "allowed are", "others have another codec or sum"}),
         error.what());
  }
  if (claimed->codec) {
    sums.push_back(claimed->parts.sum);  // other algorithms with it may have the same bits
    add_codec(claimed->codec);
  }
  if (has(request.claim)) return models;
  // The same may be there, spelt in another way.
  std::erase_if(models, [&](const auto& m) { return m.candidate.name == claimed->name(); });
  models.push_back(model_of(*claimed, request.dtype));
  models.back().candidate.name = request.claim;
  return models;
}

std::optional<AllReduceModel> nearest_model(const AllReduceCheckRequest& request,
                                            const std::vector<AllReduceModel>& models,
                                            const AllReduceCase& example,
                                            const Distance& coarse_distance,
                                            const Distance& distance) {
  const auto model = [&](AllReduceWay way) { return model_of(std::move(way), request.dtype); };
  constexpr std::size_t kFew = 3;
  const std::vector<CodecPtr> all = codecs_to_try(request, models);
  Nearest codecs(coarse_distance, kFew);
  for (const CodecPtr& codec : all) {
    for (const char* algorithm : {"two_shot", "one_shot"}) {
      codecs.consider(model(way_of(algorithm, codec)));
    }
  }
  const std::span outputs(example.outputs);
  const std::span result = outputs.first(outputs.size() / example.inputs.ranks());
  std::vector<CodecPtr> likely = codecs_of_result(all, request.dtype, result, kFew);
  for (const AllReduceModel& found : codecs.models()) likely.push_back(found.way->codec);
  Nearest algorithms(coarse_distance, kFew);
  for (const CodecPtr& codec : likely) {
    for (const std::string& algorithm : algorithms_of(codec, request.ranks)) {
      algorithms.consider(model(way_of(algorithm, codec)));
    }
  }
  std::vector<AllReduceModel> bases;
  const auto add_base = [&](const AllReduceModel& each) {
    const bool is_new = std::ranges::none_of(bases, [&](const AllReduceModel& known) {
      return known.candidate.name == each.candidate.name;
    });
    if (is_new && each.way->named == nullptr) bases.push_back(each);
  };
  if (!request.claim.empty()) {
    const auto claimed = std::ranges::find_if(
        models, [&](const AllReduceModel& each) { return each.candidate.name == request.claim; });
    if (claimed->way) add_base(*claimed);
  }
  for (const AllReduceModel& each : algorithms.models()) add_base(each);
  const std::vector<AllReduceModel> of_sums = bases;
  add_base(model(way_of("two_shot", likely.front())));
  Nearest best(distance, kFew);
  for (const AllReduceModel& each : models) {
    if (each.way && each.way->named != nullptr) best.consider(each);
  }
  for (const AllReduceModel& found : of_sums) {
    best.consider(found);
    if (best.is_exact()) break;
    for (const Sum& sum : all_sums()) {
      AllReduceWay way = *found.way;
      way.parts.sum = sum;
      best.consider(model(std::move(way)));
    }
    for (const char* place : {"rs", "ag", ""}) {
      AllReduceWay way = *found.way;
      way.uncompressed = place;
      way.reversed = way.uncompressed.empty();
      best.consider(model(std::move(way)));
    }
  }
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const auto consider_sums = [&](bool only_in_a_part) {
    for (const AllReduceModel& found : of_sums) {
      for (AllReduceModel& wrong :
           mistaken_sums(*found.way, request.dtype, ranks, only_in_a_part)) {
        if (best.is_exact()) return;
        best.consider(std::move(wrong));
      }
      // The claim is made with a mistake; other models that are near may only seem so.
      if (!request.claim.empty()) return;
    }
  };
  consider_sums(false);
  // A mistake in the codec hides how the sum is made: it is tried in the default's, too.
  for (const AllReduceModel& each : best.models()) {
    if (!each.candidate.mistake.empty()) continue;
    add_base(each);
    break;
  }
  std::map<std::string, std::vector<MistakenCodec>> with_mistakes;
  for (const AllReduceModel& found : bases) {
    if (best.is_exact()) break;
    auto& wrong_codecs = with_mistakes[found.way->codec->name()];
    if (wrong_codecs.empty()) wrong_codecs = mistaken(found.way->codec);
    for (const MistakenCodec& with : wrong_codecs) {
      AllReduceWay wrong = *found.way;
      wrong.codec = with.codec;
      wrong.mistake = with.mistake;
      best.consider(model(std::move(wrong)));
    }
  }
  consider_sums(true);
  for (const AllReduceModel& found : of_sums) {
    if (best.is_exact()) break;
    if (auto any = any_order(*found.way, request.dtype, ranks)) best.consider(std::move(*any));
    if (!request.claim.empty()) break;
  }
  if (best.models().empty()) return std::nullopt;
  return best.models().front();
}

std::vector<AllReduceModel> listed_models(const AllReduceCheckRequest& request) {
  std::vector<std::string> names = listed_codecs(false);
  if (!request.codec.empty()) names.push_back(request.codec);
  std::vector<AllReduceModel> models;
  for (const std::string& name : names) {
    const CodecPtr codec = find_codec(name);
    if (!codec->takes(request.dtype) || codec->info().needs_context()) continue;
    for (const std::string& algorithm : algorithms_of(codec, request.ranks)) {
      for (const Accumulate add : {Accumulate::native, Accumulate::fp32}) {
        Sum sum;
        sum.add = add;
        models.push_back(model_of(way_of(algorithm, codec, sum), request.dtype));
      }
    }
  }
  return models;
}

std::vector<AllReduceModel> plain_models(const AllReduceCheckRequest& request) {
  const CodecPtr plain = find_codec(name_of(request.dtype));
  std::vector<AllReduceModel> models;
  for (const char* algorithm : {"one_shot", "two_shot"}) {
    for (const Accumulate add : {Accumulate::native, Accumulate::fp32}) {
      Sum sum;
      sum.add = add;
      models.push_back(model_of(way_of(algorithm, plain, sum), request.dtype));
    }
  }
  return models;
}

std::optional<AllReduceModel> nearest_mistaken_sum(const AllReduceCheckRequest& request,
                                                   const Distance& distance) {
  Nearest best(distance, 1);
  const auto ranks = static_cast<std::size_t>(request.ranks);
  for (const bool only_in_a_part : {false, true}) {
    for (const AllReduceModel& plain : plain_models(request)) {
      for (AllReduceModel& wrong :
           mistaken_sums(*plain.way, request.dtype, ranks, only_in_a_part)) {
        if (best.is_exact()) return best.models().front();
        best.consider(std::move(wrong));
      }
    }
  }
  if (best.models().empty()) return std::nullopt;
  return best.models().front();
}

}  // namespace arlab::kernels
