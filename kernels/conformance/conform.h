// Do kernels agree with the reference, bit for bit? Wire bytes of a codec, what it decodes, and
// what every rank holds after a collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/runtime/platforms.h"

namespace arlab::kernels {

/// Inputs of a case. `conform` (not `judge`) also has blocks as wide and as narrow as a dtype can be, or, in tensors of a few
/// elements, none that is finite.
struct InputKind {
  enum class Rare { nothing, ranges, few_not_finite };

  const char* name;
  const char* spec;
  Rare rare = Rare::nothing;
};
inline constexpr InputKind kInputs[] = {
    {"gaussian", "gaussian:sigma=1,seed={}"},
    {"adversarial", "adversarial:non_finite=0,seed={}", InputKind::Rare::ranges},
    {"adversarial with NaN and infinities", "adversarial:non_finite=0.1,seed={}",
     InputKind::Rare::few_not_finite}};
/// "100 adversarial elements per rank with NaN and infinities".
std::string inputs_text(const InputKind& kind, std::size_t elements, const char* per = " per rank");

struct ConformanceRequest {
  std::vector<std::string> codecs = {};
  std::vector<std::string> algorithms = {};
  AlgorithmOptions options = {};  ///< options of the algorithms
  Sum sum = {};                   ///< for collectives
  std::vector<Tail> tails = {};   ///< all-reduces' tails, in place of none
  bool tails_at_owners = false;   ///< CollectiveRequest's
  /// A schedule in place of algorithms; it says world size and length.
  std::shared_ptr<const Schedule> schedule = nullptr;
  std::vector<int> ranks = {};  ///< world sizes
  /// Element counts: per message of a codec, and per rank of a collective. An all-to-all takes the
  /// next multiple of the world size.
  std::vector<std::size_t> lengths = {};
  std::uint64_t seed = 1;  ///< seed of the inputs
  CommunicatorOptions group =
      {};  ///< few blocks and small slots make several rounds of short tensors
  std::shared_ptr<Bootstrap> processes =
      nullptr;                    ///< each process is a rank (Platform::make_group)
  CompileProgress compiles = {};  ///< hears how far compiling is, ahead of the comparisons
};

/// An element whose bits differ, or a byte of a wire.
struct Mismatch {
  int ranks = 1;               ///< ranks of the collective
  std::string input;           ///< the case's inputs
  int rank = 0;                ///< the tensor's
  std::size_t index = 0;       ///< index of the element in that tensor, or of the byte in the wire
  std::uint32_t expected = 0;  ///< bits of the reference
  std::uint32_t got = 0;       ///< bits of the kernel
  /// Bits of the elements that it is made of: in a collective those of all ranks, in decode_add the
  /// element that was added to.
  std::vector<std::uint32_t> inputs = {};
};

/// The comparisons of one codec with one dtype, by itself or in one algorithm with one world size; or
/// of quantized layers.
struct ConformanceRow {
  std::string subject;  ///< encode, decode, decode_add, an algorithm, quantize, or linear
  std::string codec;    ///< codec; of layers the formats
  DType dtype = DType::fp16;
  int ranks = 1;
  std::uint64_t compared_elements = 0;          ///< encode: elements whose wire was compared
  std::uint64_t mismatches = 0;                 ///< elements, or wire bytes, whose bits differ
  std::vector<Mismatch> first_mismatches = {};  ///< kShownMismatches of them at most

  static constexpr std::size_t kShownMismatches = 4;
};

/// The mismatches that the row shows, a line each, with the values that bits stand for.
std::string mismatches_text(const ConformanceRow& row);
/// The same, an array of objects.
nlohmann::ordered_json mismatches_json(const ConformanceRow& row);

/// Compares on inputs that differ on every rank: Gaussian values, and adversarial ones (zeros of
/// both signs, ties, subnormals, huge values, infinities, NaNs); in place and not, from aligned and
/// unaligned addresses; decoding also of random bytes. Calls `row_done` after every row. The error
/// says what could not be run at all, or that nothing was compared.
Status run_conformance(const Platform& platform, const ConformanceRequest& request,
                       const std::function<void(const ConformanceRow&)>& row_done);

/// Compares the kernels of int8 layers, of every format: codes, scales and sums of what is quantized,
/// also of adversarial values; products of such, and of any codes and zero points. Tokens, outputs
/// and inputs are up to `longest` and around the sides of a block's tile.
Status run_layer_conformance(const Platform& platform, std::size_t longest, std::uint64_t seed,
                             const std::function<void(const ConformanceRow&)>& row_done);

/// Members of families that no list has, but that kernels treat in their own way: groups that are
/// not whole lanes of one wave, one scale for the message, given scales, long transforms.
std::vector<std::string> unusual_codecs();

/// Tails by named rounding that kernels make, of rows of several lengths: their sums are of the payload's dtype.
std::vector<Tail> tails_of_roundings();
/// Tails that end in codecs, each of rows that its blocks keep.
std::vector<Tail> tails_of_outputs(const std::vector<std::string>& codecs);

/// Around the sizes at which kernels change what they do, up to `longest`: one thread, one tile,
/// a wire chunk, several rounds, and odd tails.
std::vector<std::size_t> lengths_up_to(std::size_t longest);

}  // namespace arlab::kernels
