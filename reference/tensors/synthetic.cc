#include "reference/tensors/synthetic.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "reference/codecs/simd/halves.h"
#include "reference/formats/bfloat16.h"
#include "reference/formats/half.h"
#include "reference/parallel.h"
#include "reference/tensors/distributions.h"
#include "reference/wide.h"
#include "reference/words.h"

namespace arlab {

namespace {

using Kind = SyntheticParameter::Kind;

double max_finite(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return half_to_float(0x7bff);
    case DType::bf16:
      return bfloat16_to_float(0x7f7f);
    case DType::fp32:
      return 0x1.fffffep127;
  }
  return 0;
}

// Reading a spec: "name" or "name:key=value,key=value".

/// "sigma=1, seed=1".
std::string defaults_of(const SyntheticDistribution& about) {
  std::vector<std::string> texts;
  for (const auto& parameter : about.parameters) {
    texts.push_back(fmt::format("{}={}", parameter.name, parameter.default_value));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

const Distribution& find_distribution(std::string_view name) {
  std::vector<std::string> names;
  for (const Distribution& distribution : distributions()) {
    if (distribution.about.name == name) return distribution;
    names.emplace_back(distribution.about.name);
  }
  fail("unknown synthetic input '{}': {}", name,
       instead_of(name, {names, "allowed are", "`arlab list inputs` has all"}));
}

const SyntheticParameter& find_parameter(const SyntheticDistribution& about,
                                         std::string_view name) {
  const auto found = std::ranges::find(about.parameters, name, &SyntheticParameter::name);
  if (found == about.parameters.end()) {
    fail("{}: unknown parameter '{}': allowed are (with defaults) {}", about.name, name,
         defaults_of(about));
  }
  return *found;
}

/// The number that all of `text` spells.
template <typename T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

double parse_value(const SyntheticDistribution& about, const SyntheticParameter& parameter,
                   std::string_view text, DType dtype) {
  const bool integer = parameter.kind == Kind::integer;
  const double limit = parameter.kind == Kind::amplitude ? max_finite(dtype) : parameter.high;
  const double low = std::max(parameter.low, -limit);
  const double high = std::min(parameter.high, limit);
  std::optional<double> value = number_in<double>(text);
  if (integer && !number_in<std::uint64_t>(text)) value.reset();
  if (!value || !(low <= *value && *value <= high)) {
    fail("{}: {}={} is not allowed{}: allowed is {} from {} to {}", about.name, parameter.name,
         text, parameter.kind == Kind::amplitude ? fmt::format(" for {}", name_of(dtype)) : "",
         integer ? "an integer" : "a number", low, high);
  }
  return *value;
}

SyntheticParameters parse_parameters(const SyntheticDistribution& about, std::string_view list,
                                     DType dtype) {
  std::map<std::string_view, double> values;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      fail("{}: '{}' is not of the form name=value: allowed are (with defaults) {}", about.name,
           item, defaults_of(about));
    }
    const SyntheticParameter& parameter = find_parameter(about, item.substr(0, equals));
    const double value = parse_value(about, parameter, item.substr(equals + 1), dtype);
    if (!values.emplace(parameter.name, value).second) {
      fail("{}: {} is given twice", about.name, parameter.name);
    }
    if (item.size() == list.size()) break;
    list.remove_prefix(item.size() + 1);
    if (list.empty()) fail("{}: a parameter is missing after the last comma", about.name);
  }
  for (const SyntheticParameter& parameter : about.parameters) {
    if (values.contains(parameter.name)) continue;
    values.emplace(parameter.name, parse_value(about, parameter, parameter.default_value, dtype));
  }
  return SyntheticParameters(std::move(values));
}

Fill parse_spec(std::string_view spec, const Payload& payload) {
  const std::size_t colon = spec.find(':');
  const Distribution& distribution = find_distribution(spec.substr(0, colon));
  const std::string_view list =
      colon == std::string_view::npos ? std::string_view() : spec.substr(colon + 1);
  return distribution.make(parse_parameters(distribution.about, list, payload.dtype), payload);
}

// Filling a tensor, slice by slice.

constexpr std::size_t kSlice = 2048;  // elements; a thread's buffer stays in its first-level cache

/// Clamp, RN to fp32, RN to the dtype, of up to kSlice values.
ARLAB_WIDE void round_into(std::span<const double> values, DType dtype, std::span<std::byte> out) {
  const double limit = max_finite(dtype);
  const auto clamped = [limit](double value) {
    return static_cast<float>(std::min(std::max(value, -limit), limit));
  };
  std::array<float, kSlice> floats;
  switch (dtype) {
    case DType::fp16:
      std::ranges::transform(values, floats.begin(), clamped);
      halves_of_floats(std::span(floats).first(values.size()), false,
                       reinterpret_cast<std::uint16_t*>(out.data()));
      break;
    case DType::bf16:
      std::ranges::transform(values, reinterpret_cast<std::uint16_t*>(out.data()),
                             [&](double value) { return bfloat16_from_float(clamped(value)); });
      break;
    case DType::fp32:
      std::ranges::transform(values, reinterpret_cast<float*>(out.data()), clamped);
      break;
  }
}

void store_patterns(std::span<const std::uint32_t> patterns, DType dtype,
                    std::span<std::byte> out) {
  if (dtype == DType::fp32) {
    std::ranges::copy(std::as_bytes(patterns), out.begin());
  } else {
    std::ranges::transform(
        patterns, reinterpret_cast<std::uint16_t*>(out.data()),
        [](std::uint32_t pattern) { return static_cast<std::uint16_t>(pattern); });
  }
}

/// Fills elements [first, first + kSlice) of a rank, or what there is of them.
void fill_slice(const Fill& fill, Tensor& tensor, std::size_t rank, std::size_t first) {
  const std::size_t size = size_of(tensor.dtype);
  const std::size_t count = std::min(kSlice, tensor.elements_per_rank() - first);
  const auto out = tensor.rank_bytes(rank).subspan(first * size, count * size);
  if (const auto* values = std::get_if<ValueFill>(&fill)) {
    std::array<double, kSlice> buffer;
    (*values)(rank, first, std::span(buffer).first(count));
    round_into(std::span(buffer).first(count), tensor.dtype, out);
  } else {
    std::array<std::uint32_t, kSlice> buffer;
    std::get<PatternFill>(fill)(rank, first, std::span(buffer).first(count));
    store_patterns(std::span(buffer).first(count), tensor.dtype, out);
  }
}

void fill_in_parallel(const Fill& fill, Tensor& tensor) {
  constexpr std::size_t kSlicesPerThread = 32;  // fewer are not worth a thread
  const std::size_t slices_per_rank = (tensor.elements_per_rank() + kSlice - 1) / kSlice;
  const std::size_t slices = slices_per_rank * tensor.ranks();
  const auto threads = static_cast<unsigned>(
      std::clamp<std::size_t>(slices / kSlicesPerThread, 1, hardware_threads()));
  parallel_for(slices, threads, [&](unsigned, std::size_t slice) {
    fill_slice(fill, tensor, slice / slices_per_rank, slice % slices_per_rank * kSlice);
  });
}

}  // namespace

std::vector<SyntheticDistribution> list_synthetic() {
  std::vector<SyntheticDistribution> list;
  for (const Distribution& distribution : distributions()) list.push_back(distribution.about);
  return list;
}

Tensor make_synthetic(std::string_view spec, DType dtype, std::size_t ranks, std::size_t elements) {
  if (ranks == 0 || elements == 0) {
    fail("a synthetic input of {} ranks with {} elements: allowed is at least 1 of each", ranks,
         elements);
  }
  const Fill fill = parse_spec(spec, {dtype, elements});
  Tensor tensor = make_tensor(dtype, {ranks, elements});
  fill_in_parallel(fill, tensor);
  return tensor;
}

}  // namespace arlab
