#include "reference/tails/tail.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "reference/codecs/anybit.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/error.h"
#include "reference/parallel.h"
#include "reference/tails/gpu_rsqrt.h"
#include "reference/words.h"

namespace arlab {
namespace {

using Root = TailRounding::Root;
using Weight = TailRounding::Weight;

constexpr std::size_t kVector = 8;  // elements of a thread
constexpr std::size_t kWarp = 32;
constexpr std::uint32_t kMostHidden = 1U << 20;

constexpr std::array<const char*, 3> kAdds = {"native", "fp32", "squares"};
constexpr std::array<const char*, 3> kRoots = {"divide", "reciprocal", "rsqrt"};
constexpr std::array<const char*, 3> kWeights = {"twice", "once", "first"};

std::vector<std::string> rounding_names() {
  std::vector<std::string> names;
  for (const NamedRounding& each : named_roundings()) names.push_back(each.name);
  return names;
}

/// Entries of a rounding, by the names of the fields.
FieldValues values_of(const TailRounding& r) {
  FieldValues values;
  values.set("sum", r.keeps_sum ? "fp32" : "native");
  values.set("add", kAdds.at((r.keeps_residual ? 1U : 0U) + (r.rounds_scaled ? 1U : 0U)));
  values.set("root", kRoots.at(static_cast<std::size_t>(r.root)));
  values.set("weight", kWeights.at(static_cast<std::size_t>(r.weight)));
  values.set("threads", std::uint64_t{r.threads});
  return values;
}

/// Where a value stands among those that are allowed.
std::size_t place_of(std::span<const char* const> allowed, const FieldValue& value) {
  return static_cast<std::size_t>(std::ranges::find(allowed, words_of(value)) - allowed.begin());
}

TailRounding rounding_of(const FieldValues& values) {
  TailRounding r;
  for (const NamedRounding& each : named_roundings()) {
    if (values.is("rounding", each.name)) r = each.rounding;
  }
  if (values.has("sum")) r.keeps_sum = values.is("sum", "fp32");
  if (values.has("add")) {
    r.rounds_scaled = values.is("add", "squares");
    r.keeps_residual = r.rounds_scaled || values.is("add", "fp32");
  }
  if (values.has("root")) r.root = static_cast<Root>(place_of(kRoots, values.get("root")));
  if (values.has("weight")) {
    r.weight = static_cast<Weight>(place_of(kWeights, values.get("weight")));
  }
  if (values.has("threads")) {
    r.threads = static_cast<std::uint32_t>(std::get<std::uint64_t>(values.get("threads")));
  }
  return r;
}

float number_of(const std::string& text, std::string_view called) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > 1) {
    fail("{}: eps is {}: allowed are 0 and numbers from 1.4e-45 (fp32's least) to 1", called,
         quote(text));
  }
  return value;
}

/// Refuses what is named and changes nothing.
void require_effect(const Tail& tail, const FieldValues& values, std::string_view called) {
  if (!tail.adds_residual && !tail.normalizes && tail.output.empty()) {
    fail("{}: it does nothing: needed is one of residual=add, norm=rms, out=CODEC", called);
  }
  for (const char* key : {"eps", "offset", "add", "root", "weight", "threads"}) {
    if (values.has(key) && !tail.normalizes) {
      fail("{}: {} is of a norm: allowed is it with norm=rms", called, key);
    }
  }
  const bool has_place = tail.adds_residual || tail.normalizes;
  if (values.has("sum") && !has_place) {
    fail("{}: sum is of what is added or normalized: allowed is it with residual=add or norm=rms",
         called);
  }
  if (values.has("rounding") && !tail.normalizes &&
      !(tail.adds_residual && tail.rounding.keeps_sum)) {
    fail("{}: rounding={} changes nothing here: allowed is it with norm=rms", called,
         words_of(values.get("rounding")));
  }
  if (values.has("out") && tail.output.empty())
    fail("{}: out is empty: allowed is a codec", called);
  if (values.has("add") && !values.is("add", "native") && !tail.adds_residual &&
      !tail.rounding.keeps_sum) {
    fail("{}: add={} rounds nothing where there is no residual: allowed with it is residual=add",
         called, words_of(values.get("add")));
  }
}

/// RN(value, dtype) as fp32.
float rounded(DType dtype, float value) {
  alignas(float) std::array<std::byte, sizeof(float)> room{};
  store_value(dtype, value, room, 0);
  return load_value(dtype, room, 0);
}

/// A row as it goes through the tail.
class RowTail {
 public:
  RowTail(const Tail& tail, DType dtype, std::span<const float> weight)
      : tail_(tail), dtype_(dtype), weight_(weight), row_(tail.hidden) {}

  void run(std::span<const float> sums, std::span<const std::byte> residual, std::size_t row,
           TailResult& to) {
    const std::size_t first = row * row_.size();
    for (std::size_t i = 0; i < row_.size(); ++i) {
      const float sum = sums[first + i];
      row_[i] = tail_.rounding.keeps_sum ? sum : rounded(dtype_, sum);
      if (!tail_.adds_residual) continue;
      row_[i] += load_value(dtype_, residual, first + i);
      store_value(dtype_, row_[i], to.residual, first + i);
    }
    if (!tail_.rounding.keeps_residual) {
      for (float& each : row_) each = rounded(dtype_, each);
    }
    if (tail_.normalizes) normalize();
    for (std::size_t i = 0; i < row_.size(); ++i) {
      store_value(dtype_, row_[i], to.normalized, first + i);
    }
  }

 private:
  void normalize() {
    const float squares = sum_of_squares(row_, tail_.rounding.threads);
    const float mean = squares / static_cast<float>(row_.size()) + tail_.eps;
    const float root = root_of(tail_.rounding, mean);
    for (std::size_t i = 0; i < row_.size(); ++i) {
      const float* weight = weight_.empty() ? nullptr : &weight_[i];
      const float z = tail_.rounding.rounds_scaled ? rounded(dtype_, row_[i]) : row_[i];
      row_[i] = normalized_of(tail_.rounding, dtype_, z, weight, root);
    }
  }

  const Tail& tail_;
  DType dtype_;
  std::span<const float> weight_;
  std::vector<float> row_;
};

/// A row of weights in fp32, with 1 added where they are stored without.
std::vector<float> weights_of(const Tail& tail, DType dtype, std::span<const std::byte> weight) {
  std::vector<float> values(weight.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_value(dtype, weight, i);
    if (tail.has_offset) values[i] += 1.0F;  // + 0 would change -0
  }
  return values;
}

void require_sizes(const Tail& tail, DType dtype, std::size_t elements, std::size_t residual,
                   std::size_t weight) {
  if (tail.hidden == 0 || elements % tail.hidden != 0) {
    fail("tail: {} elements are not whole rows of {}", elements, tail.hidden);
  }
  const std::size_t of_residual = tail.adds_residual ? elements * size_of(dtype) : 0;
  if (residual == 0 && of_residual != 0)
    fail("tail: residual=add adds a residual, and none is given");
  if (residual != 0 && of_residual == 0)
    fail("tail: a residual is given: allowed is it with residual=add");
  if (residual != of_residual) {
    fail("tail: the residual has {} bytes: {} elements of {} have {}", residual, elements,
         name_of(dtype), of_residual);
  }
  const std::size_t of_row = tail.hidden * size_of(dtype);
  if (weight != 0 && !tail.normalizes) fail("tail: a weight is given: allowed is it with norm=rms");
  if (weight != 0 && weight != of_row) {
    fail("tail: the weight has {} bytes: allowed is a row of {} {} elements, {} bytes", weight,
         tail.hidden, name_of(dtype), of_row);
  }
  if (weight == 0 && tail.has_offset)
    fail("tail: offset=1 is added to a weight, and there is none");
}

/// The sum by pairs that lie half of the rest apart, until one is left.
float tree_of(std::span<float> values) {
  for (std::size_t half = values.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

}  // namespace

const std::vector<NamedRounding>& named_roundings() {
  static const std::vector<NamedRounding> roundings = {
      {"unfused", {}},
      {"torch-llama", {.root = Root::reciprocal}},
      {"vllm", {.root = Root::reciprocal, .weight = Weight::once}},
      {"aiter", {.keeps_residual = true, .root = Root::reciprocal, .weight = Weight::once}},
      {"aiter-before-2586",
       {.keeps_sum = true,
        .keeps_residual = true,
        .root = Root::reciprocal,
        .weight = Weight::once}},
      {"aiter-two-stage",
       {.keeps_residual = true, .root = Root::reciprocal, .weight = Weight::first}},
      {"mnnvl-two-shot", {.root = Root::reciprocal, .weight = Weight::first}},
      {"flashinfer-fp4",
       {.keeps_sum = true,
        .keeps_residual = true,
        .rounds_scaled = true,
        .root = Root::reciprocal,
        .weight = Weight::once}},
  };
  return roundings;
}

const std::vector<Field>& tail_fields() {
  static const std::vector<Field> fields = {
      {.name = "hidden",
       .kind = Integer{1, kMostHidden},
       .otherwise_words = "the tensor's last axis",
       .help = "elements of a row: of a token"},
      one_of("residual", {"none", "add"}, "whether a residual is added to the sum"),
      one_of("norm", {"none", "rms"}, "RMSNorm of rows"),
      {.name = "eps", .otherwise = std::string("1e-6"), .help = "added to the mean of squares"},
      {.name = "offset",
       .kind = Integer{0, 1},
       .otherwise = std::uint64_t{0},
       .help = "added to the weight, which Gemma stores without"},
      {.name = "out",
       .otherwise_words = "the payload's dtype",
       .help = "the codec that what comes out is encoded with"},
      one_of("rounding", rounding_names(), "by name, where it is rounded"),
      one_of("sum", {"native", "fp32"},
             "the sum before the residual: of the payload's dtype, or fp32"),
      one_of("add", {kAdds.begin(), kAdds.end()},
             "what is normalized: of the payload's dtype, or fp32; or only its squares of fp32"),
      one_of("root", {kRoots.begin(), kRoots.end()},
             "x / sqrt(m), x * (1 / sqrt(m)), or x * rsqrt(m) as an H200 approximates it"),
      one_of("weight", {kWeights.begin(), kWeights.end()},
             "rounded before and after the weight; once, behind it; once, with the weight first"),
      {.name = "threads",
       .kind = Integer{32, 1024},
       .otherwise = std::uint64_t{1024},
       .help = "of a block that adds up squares"},
  };
  return fields;
}

Tail parse_tail(std::string_view text) {
  const std::string called = fmt::format("tail {}", quote(text));
  const FieldValues values =
      parsed_entries(tail_fields(), text, called, "is not of a tail: allowed are");
  Tail tail;
  if (values.has("hidden")) {
    tail.hidden = static_cast<std::uint32_t>(std::get<std::uint64_t>(values.get("hidden")));
  }
  tail.adds_residual = values.is("residual", "add");
  tail.normalizes = values.is("norm", "rms");
  if (values.has("eps")) tail.eps = number_of(words_of(values.get("eps")), called);
  tail.has_offset = values.has("offset") && std::get<std::uint64_t>(values.get("offset")) == 1;
  if (values.has("out")) tail.output = words_of(values.get("out"));
  tail.rounding = rounding_of(values);
  require_effect(tail, values, called);
  return tail;
}

std::string name_of(const Tail& tail) {
  std::vector<std::string> parts;
  if (tail.hidden != 0) parts.push_back(fmt::format("hidden={}", tail.hidden));
  if (tail.adds_residual) parts.emplace_back("residual=add");
  if (tail.normalizes) parts.emplace_back("norm=rms");
  if (tail.normalizes && tail.eps != Tail{}.eps) parts.push_back(fmt::format("eps={}", tail.eps));
  if (tail.has_offset) parts.emplace_back("offset=1");
  if (!tail.output.empty()) parts.push_back("out=" + tail.output);
  TailRounding rounding = tail.rounding;
  // Kernels of a name have 1 / sqrt of their GPU.
  const bool is_rsqrt = rounding.root == Root::rsqrt;
  if (is_rsqrt) rounding.root = Root::reciprocal;
  const auto named = std::ranges::find(named_roundings(), rounding, &NamedRounding::rounding);
  if (named != named_roundings().end()) {
    if (named->name != "unfused") parts.push_back("rounding=" + named->name);
    if (is_rsqrt) parts.emplace_back("root=rsqrt");
  } else {
    const FieldValues standard = values_of(TailRounding{});
    for (const auto& [name, value] : values_of(tail.rounding)) {
      if (value != standard.get(name)) parts.push_back(name + "=" + words_of(value));
    }
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

float root_of(const TailRounding& rounding, float mean) {
  if (rounding.root == Root::rsqrt) return gpu_rsqrt(mean);
  return rounding.root == Root::divide ? std::sqrt(mean) : 1.0F / std::sqrt(mean);
}

float normalized_of(const TailRounding& rounding, DType dtype, float z, const float* weight,
                    float root) {
  const auto scaled = [&](float x) { return rounding.root == Root::divide ? x / root : x * root; };
  if (weight == nullptr) return scaled(z);
  if (rounding.weight == Weight::first) return scaled(z * *weight);
  if (rounding.weight == Weight::once) return scaled(z) * *weight;
  return rounded(dtype, scaled(z)) * *weight;
}

float sum_of_squares(std::span<const float> row, std::uint32_t threads) {
  const std::size_t warps = (threads + kWarp - 1) / kWarp;
  float sum = 0;
  for (std::size_t block = 0; block < row.size(); block += threads * kVector) {
    std::array<float, kWarp> of_warps{};
    for (std::size_t warp = 0; warp < warps; ++warp) {
      std::array<float, kWarp> of_threads{};
      for (std::size_t i = 0; i < kWarp * kVector; ++i) {
        const std::size_t thread = warp * kWarp + i / kVector;
        const std::size_t at = block + thread * kVector + i % kVector;
        if (thread >= threads || at >= row.size()) break;
        of_threads[i / kVector] = std::fma(row[at], row[at], of_threads[i / kVector]);
      }
      of_warps[warp] = tree_of(of_threads);
    }
    sum += tree_of(of_warps);
  }
  return sum;
}

CodecPtr find_output_codec(const Tail& tail) {
  if (tail.output.empty()) return nullptr;
  CodecPtr codec = find_codec(with_row_length(tail.output, tail.hidden));
  const std::size_t alignment = codec->info().alignment;
  if (tail.hidden % alignment != 0) {
    fail("tail {}: rows of {} elements end within a block of {}: allowed are multiples of {}",
         name_of(tail), tail.hidden, codec->name(), alignment);
  }
  return codec;
}

TailResult run_tail(const Tail& tail, DType dtype, std::span<const float> sums,
                    std::span<const std::byte> residual, std::span<const std::byte> weight,
                    unsigned threads) {
  require_sizes(tail, dtype, sums.size(), residual.size(), weight.size());
  const std::vector<float> weights = weights_of(tail, dtype, weight);
  TailResult result;
  result.normalized.resize(sums.size() * size_of(dtype));
  if (tail.adds_residual) result.residual.resize(result.normalized.size());
  const unsigned workers = threads != 0 ? threads : hardware_threads();
  std::vector<RowTail> tails(workers, RowTail(tail, dtype, weights));
  parallel_for(sums.size() / tail.hidden, workers, [&](unsigned worker, std::size_t row) {
    tails[worker].run(sums, residual, row, result);
  });
  const CodecPtr codec = find_output_codec(tail);
  if (codec == nullptr) return result;
  result.wire.resize(codec->wire_bytes(dtype, sums.size()));
  result.quantized.resize(result.normalized.size());
  codec->encode(dtype, result.normalized, result.wire);
  codec->decode(dtype, result.wire, result.quantized);
  result.wire.resize(codec->sent_of(result.wire).size());  // wires may be of variable length
  return result;
}

ExactTail exact_tail(const Tail& tail, DType dtype, std::span<const double> sums,
                     std::span<const std::byte> residual, std::span<const std::byte> weight) {
  ExactTail exact;
  exact.residual.assign(sums.begin(), sums.end());
  for (std::size_t i = 0; i < sums.size() && tail.adds_residual; ++i) {
    exact.residual[i] += double{load_value(dtype, residual, i)};
  }
  exact.normalized = exact.residual;
  if (!tail.normalizes) return exact;
  for (std::size_t row = 0; row < sums.size(); row += tail.hidden) {
    const std::span<double> values(&exact.normalized[row], tail.hidden);
    double squares = 0;
    for (const double each : values) squares += each * each;
    const double root = std::sqrt(squares / tail.hidden + double{tail.eps});
    for (std::size_t i = 0; i < values.size(); ++i) {
      double factor = weight.empty() ? 1.0 : double{load_value(dtype, weight, i)};
      if (tail.has_offset) factor += 1;
      values[i] *= factor / root;
    }
  }
  return exact;
}

}  // namespace arlab
