// probe SEEDS LEAST_RANKS MOST_RANKS ELEMENTS CODEC ALGORITHM [INNER_CODEC]: runs the algorithm in so many random
// orders of lanes, and compares with the reference; then one rank makes another call. Exit code 1
// when bits differ, or when a rank does not name those two calls; the emulator and ThreadSanitizer
// end the program when they find a mistake.

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "kernels/platform/host/emulator.h"
#include "kernels/runtime/communicator.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/tensors/synthetic.h"
#include "tests/kernels/absent_words.h"
#include "tests/kernels/differing_calls.h"

namespace arlab::kernels {
namespace {

/// Calls in a row on fresh inputs; true when every rank has the reference's bits.
bool conforms(const char* codec_name, const char* algorithm, const AlgorithmOptions& options,
              std::uint64_t seed, std::size_t ranks, std::size_t elements) {
  emulator::configure({.wave_size = seed % 2 == 0 ? 64 : 32, .seed = seed});
  const std::array<int, 5> devices = {0, 1, 2, 3, 4};
  auto team =
      Communicator::in_process(std::span(devices).first(ranks), {.blocks = 2, .slot_bytes = 4608});
  if (!team.ok()) return false;
  const CodecPtr codec = find_codec(codec_name);
  const CodecPtr inner = find_inner_codec(options, codec);
  const Codecs codecs(*codec, *inner);
  const Schedule schedule = make_schedule(algorithm, {.world_size = static_cast<Rank>(ranks),
                                                      .elements = elements,
                                                      .alignment = codecs.alignment(),
                                                      .options = options});
  // Only with places, and so with this codec, do words look absent.
  const std::size_t calls = codec->name() == "qr-q4" ? 3 : 2;
  for (std::size_t call = 0; call < calls; ++call) {
    // Of adversarial inputs, every chunk has the same extremes.
    const char* kind = call == 0 ? "adversarial:non_finite=0,seed={}" : "gaussian:seed={}";
    Tensor inputs = make_synthetic(fmt::format(fmt::runtime(kind), 10 * seed + call), DType::fp16,
                                   ranks, elements);
    if (call == 2) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        put_tiles_like_absent(*codec, inputs.rank_bytes(rank));
      }
    }
    std::vector<std::byte> expected(inputs.bytes().size());
    std::vector<std::byte> got(expected.size());
    execute(schedule, codecs, DType::fp16, inputs.bytes(), expected, {.threads = 1});
    const CollectiveRequest request{algorithm, codec_name, DType::fp16, elements, options};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      (void)hipSetDevice(static_cast<int>(rank));
      if (!team.value()[rank]
               .run(request, inputs.rank_bytes(rank).data(), got.data() + rank * elements * 2,
                    nullptr)
               .ok()) {
        return false;
      }
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      (void)hipSetDevice(static_cast<int>(rank));
      (void)hipStreamSynchronize(nullptr);
      if (!team.value()[rank].check().ok()) return false;
    }
    if (expected != got) return false;
  }
  return true;
}

/// The last of the ranks reduces one element less.
bool notices_differing_calls(const char* codec, const char* algorithm,
                             const AlgorithmOptions& options, std::uint64_t seed, std::size_t ranks,
                             std::size_t elements) {
  emulator::configure({.wave_size = seed % 2 == 0 ? 64 : 32, .seed = seed});
  const std::array<int, 5> devices = {0, 1, 2, 3, 4};
  auto team =
      Communicator::in_process(std::span(devices).first(ranks), {.blocks = 2, .slot_bytes = 4608});
  if (!team.ok()) return false;
  const CollectiveRequest call{algorithm, codec, DType::fp16, elements, options};
  const CollectiveRequest shorter{algorithm, codec, DType::fp16, elements - 1, options};
  const CollectiveRequest later{algorithm, codec, DType::fp16, elements - 2, options};
  std::vector<std::byte> memory(ranks * elements * 2);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    (void)hipSetDevice(static_cast<int>(rank));
    std::byte* const tensor = memory.data() + rank * elements * 2;
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
  AlgorithmOptions options;
  if (arguments.size() == 7) options.inner_codec = arguments[6];
  for (std::uint64_t seed = 0; seed < number(arguments[0]); ++seed) {
    for (std::size_t ranks = number(arguments[1]); ranks <= number(arguments[2]); ++ranks) {
      const auto said = static_cast<unsigned>(seed);
      if (!conforms(arguments[4], arguments[5], options, seed, ranks, number(arguments[3]))) {
        std::fprintf(stderr, "probe: %zu ranks differ from the reference, seed %u\n", ranks, said);
        return 1;
      }
      if (notices_differing_calls(arguments[4], arguments[5], options, seed, ranks,
                                  number(arguments[3]))) {
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
