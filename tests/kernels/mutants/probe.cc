// probe SEEDS LEAST_RANKS MOST_RANKS ELEMENTS CODEC ALGORITHM[/flags|/skewed|/fp32|/TAIL] [INNER_CODEC]: runs the
// algorithm in so many random orders of lanes, and compares with the reference; then one rank makes
// another call. With fp32 sums; with a tail; with flags even where there are sentinels; or with ranks that get far ahead of each
// other. Exit code 1 when bits differ, or when a rank does not name those two calls; the emulator and
// ThreadSanitizer end the program when they find a mistake.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>

#include "kernels/platform/host/emulator.h"
#include "kernels/runtime/communicator.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/tailed.h"
#include "reference/tensors/synthetic.h"
#include "tests/kernels/differing_calls.h"
#include "tests/kernels/empty_words.h"

namespace arlab::kernels {
namespace {

DType dtype_of(const Codec& codec) { return codec.takes(DType::fp16) ? DType::fp16 : DType::fp32; }

/// The subject of a run of the probe.
struct Subject {
  const char* codec;
  std::string algorithm;
  CommunicatorOptions options = {.blocks = 2, .slot_bytes = 4608, .any_slot_bytes = true};
  int most_rounds_still = 0;
  Sum sum = {};
  std::optional<Tail> tail = {};
  bool at_owners = false;

  Subject(const char* codec_name, std::string text) : codec(codec_name), algorithm(text) {
    // Scales travel as tiles of fp32; a slot holds two tiles of 16 bits.
    const bool is_wide = std::string_view(codec).starts_with("wire-");
    if (is_wide || std::string_view(codec).starts_with("shared-")) options.slot_bytes = 8192;
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) return;
    algorithm.resize(slash);
    if (text.substr(slash) == "/skewed") most_rounds_still = 32;
    if (text.substr(slash) == "/flags") options.protocol = Protocol::flags;
    if (text.substr(slash) == "/fp32") sum.add = Accumulate::fp32;
    const std::size_t hidden = text.find("/hidden=");
    if (hidden != std::string::npos) tail = parse_tail(text.substr(hidden + 1));
    at_owners = text.substr(slash).starts_with("/owners");
  }
};

/// Runs the reference with owners of rows.
void execute_at_owners(const Subject& subject, const Schedule& schedule, const Codecs& codecs,
                       const Tensor& inputs, const Tensor& residual, const Tensor& weight,
                       std::span<std::byte> outputs, ExecuteOptions how) {
  TailOperands tensors{.tail = *subject.tail, .dtype = inputs.dtype, .weight = weight.bytes()};
  std::vector<std::byte> next(outputs.size());
  tensors.residuals = {residual.bytes()};
  tensors.next_residual = next;
  how.tails = &tensors;
  execute(with_tail(schedule, *subject.tail, {.at_owner = true}), codecs, inputs.dtype,
          inputs.bytes(), outputs, how);
}

/// Calls in a row on fresh inputs; true when every rank has the reference's bits.
bool conforms(const Subject& subject, const AlgorithmOptions& options, std::uint64_t seed,
              std::size_t ranks, std::size_t elements) {
  emulator::configure({.wave_size = seed % 2 == 0 ? 64 : 32,
                       .seed = seed,
                       .most_rounds_still = subject.most_rounds_still});
  const std::array<int, 8> devices = {0, 1, 2, 3, 4, 5, 6, 7};
  auto team = Communicator::in_process(std::span(devices).first(ranks), subject.options);
  if (!team.ok()) return false;
  const CodecPtr codec = find_codec(subject.codec);
  const DType dtype = dtype_of(*codec);
  const CodecPtr inner = find_inner_codec(options, codec);
  const Codecs codecs(*codec, *inner);
  const Schedule schedule = make_schedule(
      subject.algorithm, {.world_size = static_cast<Rank>(ranks),
                          .elements = elements,
                          .alignment = codecs.alignment(subject.tail ? subject.tail->hidden : 1),
                          .options = options});
  // Only with sentinels, and so with these codecs, do words look empty: in the first call, so that
  // the others find what it leaves behind.
  const std::size_t first = codec->name() == "qr-q4" || codec->name() == "fp16" ? 0 : 1;
  std::vector<Tensor> inputs;
  std::vector<std::vector<std::byte>> outputs;
  for (std::size_t call = first; call < 3; ++call) {
    // Every chunk of adversarial inputs has the same extremes.
    // With a given scale, some blocks have a NaN.
    const double non_finite = codec->name().find("-static") != std::string::npos ? 0.004 : 0;
    const std::string kind =
        call == 1 ? fmt::format("adversarial:non_finite={},seed=", non_finite) : "gaussian:seed=";
    inputs.push_back(
        make_synthetic(kind + std::to_string(10 * seed + call), dtype, ranks, elements));
    outputs.emplace_back(inputs.back().bytes().size());
    for (std::size_t rank = 0; call == 0 && rank < ranks; ++rank) {
      put_tiles_like_empty(*codec, inputs.back().rank_bytes(rank));
    }
  }
  // Behind each other: a rank may be ahead of others.
  CollectiveRequest request{subject.algorithm, subject.codec, dtype, elements, options};
  request.sum = subject.sum;
  request.tail = subject.tail;
  request.tail_at_owners = subject.at_owners;
  const std::size_t hidden = subject.tail ? subject.tail->hidden : 1;
  const Tensor residual = make_synthetic("gaussian:seed=77", dtype, 1, elements);
  Tensor weight = make_synthetic("gaussian:seed=78", dtype, 1, hidden);
  store_value(dtype, -0.0F, weight.bytes(), 0);
  std::vector<std::vector<std::byte>> residuals(inputs.size() * ranks,
                                                std::vector<std::byte>(residual.bytes().size()));
  std::vector wires(residuals.size(),
                    std::vector<std::byte>(subject.tail ? wire_bytes_of(request) : 0));
  for (std::size_t call = 0; call < inputs.size(); ++call) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      (void)hipSetDevice(static_cast<int>(rank));
      TailTensors tail = {residual.bytes().data(), weight.bytes().data(),
                          residuals[call * ranks + rank].data(), wires[call * ranks + rank].data()};
      if (!subject.tail) tail = {};
      if (!team.value()[rank]
               .run(request, inputs[call].rank_bytes(rank).data(),
                    outputs[call].data() + rank * elements * size_of(dtype), nullptr, tail)
               .ok()) {
        return false;
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    (void)hipSetDevice(static_cast<int>(rank));
    (void)hipStreamSynchronize(nullptr);
    if (!team.value()[rank].check().ok()) return false;
  }
  for (std::size_t call = 0; call < inputs.size(); ++call) {
    std::vector<std::byte> expected(outputs[call].size());
    const ExecuteOptions how = {
        .sum = subject.sum, .threads = 1, .call = static_cast<std::uint32_t>(call)};
    if (subject.at_owners) {
      execute_at_owners(subject, schedule, codecs, inputs[call], residual, weight, expected, how);
    } else {
      execute(schedule, codecs, dtype, inputs[call].bytes(), expected, how);
    }
    for (std::size_t rank = 0; subject.tail && !subject.at_owners && rank < ranks; ++rank) {
      const std::size_t bytes = expected.size() / ranks;
      const auto sums = std::span(expected).subspan(rank * bytes, bytes);
      std::vector<float> values(elements);
      for (std::size_t i = 0; i < elements; ++i) values[i] = load_value(dtype, sums, i);
      const TailResult made =
          run_tail(*subject.tail, dtype, values, residual.bytes(), weight.bytes(), 1);
      std::ranges::copy(made.normalized, sums.begin());
      if (residuals[call * ranks + rank] != made.residual) return false;
      if (wires[call * ranks + rank] != made.wire) return false;
    }
    if (expected != outputs[call]) return false;
  }
  return true;
}

/// The last of the ranks reduces an element less, or one of each slot.
bool notices_differing_calls(const Subject& subject, const AlgorithmOptions& options,
                             std::uint64_t seed, std::size_t ranks, std::size_t elements) {
  emulator::configure({.wave_size = seed % 2 == 0 ? 64 : 32,
                       .seed = seed,
                       .most_rounds_still = subject.most_rounds_still});
  const std::array<int, 8> devices = {0, 1, 2, 3, 4, 5, 6, 7};
  auto team = Communicator::in_process(std::span(devices).first(ranks), subject.options);
  if (!team.ok()) return false;
  const DType dtype = dtype_of(*find_codec(subject.codec));
  const CollectiveRequest call{subject.algorithm, subject.codec, dtype, elements, options};
  const std::size_t less = has_slots(find_algorithm(subject.algorithm).collective) ? ranks : 1;
  const CollectiveRequest shorter{subject.algorithm, subject.codec, dtype, elements - less,
                                  options};
  const CollectiveRequest later{subject.algorithm, subject.codec, dtype, elements - 2 * less,
                                options};
  std::vector<std::byte> memory(ranks * elements * size_of(dtype));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    (void)hipSetDevice(static_cast<int>(rank));
    std::byte* const tensor = memory.data() + rank * elements * size_of(dtype);
    const CollectiveRequest& own = rank + 1 == ranks ? shorter : call;
    if (!team.value()[rank].run(own, tensor, tensor, nullptr).ok()) return false;
    // A call behind, which is not what went wrong.
    if (!team.value()[rank].run(later, tensor, tensor, nullptr).ok()) return false;
  }
  const int last = static_cast<int>(ranks) - 1;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    (void)hipSetDevice(static_cast<int>(rank));
    (void)hipStreamSynchronize(nullptr);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Status status = team.value()[rank].check();
    bool is_named = false;
    for (int other = 0; other < last && !status.ok(); ++other) {
      is_named = is_named || status.message() == differing_calls_error(other, call, last, shorter);
    }
    if (!is_named) return false;
  }
  return true;
}

std::size_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

int run(std::span<char*> arguments) {
  const Subject subject(arguments[4], arguments[5]);
  AlgorithmOptions options;
  if (arguments.size() == 7) options.set("inner_codec", arguments[6]);
  for (std::uint64_t seed = 0; seed < number(arguments[0]); ++seed) {
    for (std::size_t ranks = number(arguments[1]); ranks <= number(arguments[2]); ++ranks) {
      const auto said = static_cast<unsigned>(seed);
      if (!conforms(subject, options, seed, ranks, number(arguments[3]))) {
        std::fprintf(stderr, "probe: %zu ranks differ from the reference, seed %u\n", ranks, said);
        return 1;
      }
      if (notices_differing_calls(subject, options, seed, ranks, number(arguments[3]))) {
        continue;
      }
      std::fprintf(stderr, "probe: %zu ranks do not name calls that differ, seed %u\n", ranks,
                   said);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace arlab::kernels

int main(int argc, char** argv) {
  if (argc != 7 && argc != 8) return 2;
  return arlab::kernels::run(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
}
