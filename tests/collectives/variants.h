// Every registered algorithm with every combination of its options, by collective.
//
// The list is made from the registry: an algorithm that is added is tested with no more code,
// unless it brings a new option, which fails here by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "reference/collectives/algorithm.h"

namespace arlab::testing {

struct Variant {
  std::string algorithm;
  AlgorithmOptions options;
};

inline std::string label(const Variant& variant) {
  const AlgorithmOptions& options = variant.options;
  std::string text = variant.algorithm;
  if (options.own) text += options.own == OwnContribution::exact ? " own=exact" : " own=encoded";
  if (options.forward) {
    text += options.forward == Forward::reencoded ? " forward=reencoded" : " forward=unchanged";
  }
  if (options.combine) {
    text += options.combine == Combine::quantized ? " combine=quantized" : " combine=none";
  }
  if (options.group_size) text += fmt::format(" group-size={}", *options.group_size);
  if (options.micro_chunks) text += fmt::format(" micro-chunks={}", *options.micro_chunks);
  return text;
}

inline Schedule schedule_of(const Variant& variant, Rank world_size, std::uint64_t elements,
                            std::uint64_t alignment) {
  return make_schedule(variant.algorithm, {.world_size = world_size,
                                           .elements = elements,
                                           .alignment = alignment,
                                           .options = variant.options});
}

inline std::vector<Rank> divisors(Rank number) {
  std::vector<Rank> divisors;
  for (Rank divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) divisors.push_back(divisor);
  }
  return divisors;
}

/// The variants, each once for every value of one more option.
template <class Value>
std::vector<Variant> times(const std::vector<Variant>& variants,
                           std::optional<Value> AlgorithmOptions::* option,
                           const std::vector<Value>& values) {
  std::vector<Variant> product;
  for (Variant variant : variants) {
    for (const Value& value : values) {
      variant.options.*option = value;
      product.push_back(variant);
    }
  }
  return product;
}

inline std::vector<Variant> variants_of(const Algorithm& algorithm, Rank world_size,
                                        const std::vector<std::uint32_t>& micro_chunks) {
  std::vector<Variant> variants = {{algorithm.name, {}}};
  for (const AlgorithmOption& option : algorithm.options) {
    if (option.name == "own") {
      variants = times(variants, &AlgorithmOptions::own,
                       {OwnContribution::encoded, OwnContribution::exact});
    } else if (option.name == "forward") {
      variants =
          times(variants, &AlgorithmOptions::forward, {Forward::unchanged, Forward::reencoded});
    } else if (option.name == "combine") {
      variants = times(variants, &AlgorithmOptions::combine, {Combine::none, Combine::quantized});
    } else if (option.name == "group-size") {
      variants = times(variants, &AlgorithmOptions::group_size, divisors(world_size));
    } else if (option.name == "micro-chunks") {
      variants = times(variants, &AlgorithmOptions::micro_chunks, micro_chunks);
    } else if (option.name == "inner-codec") {
      // It says with which codec ops encode, and changes nothing else: inner_codec_test.cc.
    } else {
      throw std::logic_error("variants.h does not know the option " + option.name);
    }
  }
  return variants;
}

/// Of some collectives, as they are with default options.
inline std::vector<Variant> variants_of(std::initializer_list<Collective> collectives,
                                        Rank world_size,
                                        const std::vector<std::uint32_t>& micro_chunks = {1, 3}) {
  std::vector<Variant> all;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (std::ranges::find(collectives, algorithm.collective) == collectives.end()) continue;
    const std::vector<Variant> some = variants_of(algorithm, world_size, micro_chunks);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

/// Of every all-reduce.
inline std::vector<Variant> all_variants(Rank world_size,
                                         const std::vector<std::uint32_t>& micro_chunks = {1, 3}) {
  return variants_of({Collective::all_reduce}, world_size, micro_chunks);
}

/// Of every other collective. Those with slots take a multiple of the world size.
inline std::vector<Variant> moving_variants(Rank world_size) {
  return variants_of({Collective::all_to_all, Collective::reduce_scatter, Collective::all_gather,
                      Collective::broadcast},
                     world_size);
}

}  // namespace arlab::testing
