// Every registered algorithm with every combination of its options, by collective.
//
// The list is made from the registry, and of what options say of themselves: an algorithm or an option that is added is tested
// with no more code.
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
  std::string text = variant.algorithm;
  for (const auto& [name, value] : variant.options) {
    text += fmt::format(" {}={}", Field{name}.option(), words_of(value));
  }
  return text;
}

/// Returns the text of an option that is set.
inline std::string text_of(const Variant& variant, std::string_view option) {
  return std::get<std::string>(variant.options.get(option));
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

/// The values of an option to try; `numbers` are those of one that takes integers.
inline std::vector<FieldValue> values_of(const Field& option, Rank world_size,
                                         const std::vector<std::uint32_t>& numbers) {
  std::vector<FieldValue> values;
  if (const auto* kind = std::get_if<OneOf>(&option.kind)) {
    values.assign(kind->names.begin(), kind->names.end());
  } else if (std::holds_alternative<Integer>(option.kind)) {
    // The owner of a stripe matters only where owners are exact: sum_test.cc, tests/python/test_sums.py.
    if (option.name == "stripe") return {std::uint64_t{0}};
    // Several rings: algorithms_test.cc, test_collectives_oracle.py.
    if (option.name == "rings") return {std::uint64_t{1}};
    for (const std::uint64_t n : option.name == "group_size" ? divisors(world_size) : numbers) {
      values.emplace_back(n);
    }
  } else if (option.name == "inner_codec") {
    // It says with which codec ops encode, and changes nothing else: inner_codec_test.cc.
    values.emplace_back();
  } else {
    throw std::logic_error("variants.h does not know values of the option " + option.name);
  }
  return values;
}

inline std::vector<Variant> variants_of(const Algorithm& algorithm, Rank world_size,
                                        const std::vector<std::uint32_t>& numbers) {
  std::vector<Variant> variants = {{algorithm.name, {}}};
  for (const Field& option : algorithm.options) {
    std::vector<Variant> product;
    for (Variant variant : variants) {
      for (const FieldValue& value : values_of(option, world_size, numbers)) {
        variant.options.set(option.name, value);
        product.push_back(variant);
      }
    }
    variants = std::move(product);
  }
  return variants;
}

/// Returns variants of some collectives with default options.
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

/// Returns variants of every all-reduce.
inline std::vector<Variant> all_variants(Rank world_size,
                                         const std::vector<std::uint32_t>& micro_chunks = {1, 3}) {
  return variants_of({Collective::all_reduce}, world_size, micro_chunks);
}

/// Returns variants of every other collective. Those with slots take a multiple of the world size.
inline std::vector<Variant> moving_variants(Rank world_size) {
  return variants_of({Collective::all_to_all, Collective::reduce_scatter, Collective::all_gather,
                      Collective::broadcast},
                     world_size);
}

}  // namespace arlab::testing
