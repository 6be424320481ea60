#include "experiments/models/compressed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "reference/formats/with_arithmetic.h"
#include "reference/parallel.h"

namespace arlab::models {
namespace {

/// Elements of a loop that are one piece of work.
constexpr std::size_t kTile = 16384;

template <class Arithmetic>
void round_to(std::span<const float> values, std::byte* to) {
  using Bits = typename Arithmetic::Bits;
  std::vector<Bits> bits(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) bits[i] = Arithmetic::from_float(values[i]);
  std::memcpy(to, bits.data(), bits.size() * sizeof(Bits));
}

template <class Arithmetic>
void floats_of(const std::byte* from, std::span<float> values) {
  using Bits = typename Arithmetic::Bits;
  std::vector<Bits> bits(values.size());
  std::memcpy(bits.data(), from, bits.size() * sizeof(Bits));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = Arithmetic::to_float(bits[i]);
}

}  // namespace

RunCollective in_reference(MakeSchedule make, CodecPtr outer, CodecPtr inner, DType dtype,
                           const ExecuteOptions& options, std::shared_ptr<SentBytes> bytes) {
  auto schedules = std::make_shared<std::map<std::uint64_t, Schedule>>();
  auto calls = std::make_shared<std::uint32_t>(options.call);
  return [=, make = std::move(make)](std::uint64_t elements, std::span<const std::byte> inputs,
                                     std::span<std::byte> outputs) {
    auto found = schedules->find(elements);
    if (found == schedules->end()) found = schedules->emplace(elements, make(elements)).first;
    ExecuteOptions of_call = options;
    of_call.call = (*calls)++;
    const Codecs codecs(*outer, *inner);
    const ExecuteCounts counts = execute(found->second, codecs, dtype, inputs, outputs, of_call);
    if (bytes == nullptr) return;
    bytes->sent += counts.sent_bytes;
    bytes->most += wire_volume(found->second, codecs, dtype).bytes;
  };
}

std::optional<double> median_token_sqnr_db(std::vector<float> of_tokens) {
  if (of_tokens.empty()) return std::nullopt;
  for (float& value : of_tokens) {
    if (std::isnan(value)) value = -std::numeric_limits<float>::infinity();
  }
  const auto middle = of_tokens.begin() + static_cast<std::ptrdiff_t>((of_tokens.size() - 1) / 2);
  std::nth_element(of_tokens.begin(), middle, of_tokens.end());
  return double{*middle};
}

CompressedAllReduce::CompressedAllReduce(std::size_t ranks, std::size_t hidden, DType dtype,
                                         std::vector<std::shared_ptr<const RunCollective>> of_layer,
                                         unsigned threads, std::optional<DType> rounded_to)
    : ranks_(ranks),
      hidden_(hidden),
      dtype_(dtype),
      rounded_to_(rounded_to.value_or(dtype)),
      of_layer_(std::move(of_layer)),
      threads_(threads),
      figures_(2 * of_layer_.size()) {}

void CompressedAllReduce::all_reduce(std::size_t layer, Projection projection,
                                     std::span<const float> partial_sums, std::span<float> sum) {
  const std::size_t bytes = size_of(dtype_);
  const std::size_t elements = sum.size();
  inputs_.resize(partial_sums.size() * bytes);
  outputs_.resize(inputs_.size());
  parallel_for((partial_sums.size() + kTile - 1) / kTile, threads_, [&](unsigned, std::size_t i) {
    const std::size_t begin = i * kTile;
    const std::size_t count = std::min(kTile, partial_sums.size() - begin);
    std::vector<float> part(&partial_sums[begin], &partial_sums[begin] + count);
    if (rounded_to_ != dtype_) {
      with_arithmetic(rounded_to_, false, [&]<class A>(A) {
        for (float& each : part) each = A::to_float(A::from_float(each));
      });
    }
    with_arithmetic(dtype_, false, [&]<class A>(A) { round_to<A>(part, &inputs_[begin * bytes]); });
  });
  (*of_layer_[layer])(elements, inputs_, outputs_);

  SumFigures& figures = figures_[2 * layer + static_cast<std::size_t>(projection)];
  for (std::size_t rank = 1; rank < ranks_; ++rank) {
    figures.ranks_identical &=
        std::memcmp(outputs_.data(), &outputs_[rank * elements * bytes], elements * bytes) == 0;
  }
  const std::size_t width = hidden_;
  const std::size_t tokens = elements / width;
  std::vector<double> signal(tokens);
  std::vector<double> error(tokens);
  parallel_for(tokens, threads_, [&](unsigned, std::size_t token) {
    const std::size_t begin = token * width;
    std::vector<float> values(width);
    std::vector<double> exact(width);
    with_arithmetic(dtype_, false, [&]<class A>(A) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        floats_of<A>(&inputs_[(rank * elements + begin) * bytes], values);
        for (std::size_t i = 0; i < width; ++i) exact[i] += double{values[i]};
      }
      floats_of<A>(&outputs_[begin * bytes], sum.subspan(begin, width));
    });
    for (std::size_t i = 0; i < width; ++i) {
      const double difference = double{sum[begin + i]} - exact[i];
      signal[token] += exact[i] * exact[i];
      error[token] += difference * difference;
    }
  });
  for (std::size_t token = 0; token < tokens; ++token) {
    figures.signal += signal[token];
    figures.error += error[token];
    figures.token_sqnr_db.push_back(
        static_cast<float>(10 * std::log10(signal[token] / error[token])));
  }
}

std::optional<double> CompressedAllReduce::median_token_sqnr_db() const {
  std::vector<float> all;
  for (const SumFigures& figures : figures_) {
    all.insert(all.end(), figures.token_sqnr_db.begin(), figures.token_sqnr_db.end());
  }
  return models::median_token_sqnr_db(std::move(all));
}

bool CompressedAllReduce::ranks_identical() const {
  return std::all_of(figures_.begin(), figures_.end(),
                     [](const SumFigures& figures) { return figures.ranks_identical; });
}

}  // namespace arlab::models
