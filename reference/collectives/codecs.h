// The codecs of a call: what the encode ops of a Schedule mean by `outer` and `inner`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/codecs/codec.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/schedule.h"

namespace arlab {

/// They must outlive it.
class Codecs {
 public:
  /// One codec for all messages. The conversion is implicit because most calls have one codec.
  Codecs(const Codec& codec) : Codecs(codec, codec) {}
  Codecs(const Codec& outer, const Codec& inner) : Codecs(outer, inner, outer) {}
  Codecs(const Codec& outer, const Codec& inner, const Codec& output)
      : outer_(&outer), inner_(&inner), output_(&output) {}

  const Codec& outer() const { return *outer_; }
  const Codec& inner() const { return *inner_; }
  /// The codec of the tail's output; the outer one where there is none.
  const Codec& output() const { return *output_; }
  const Codec& of(CodecRole role) const {
    return role == CodecRole::inner ? *inner_ : role == CodecRole::output ? *output_ : *outer_;
  }

  /// Whether the roles make a difference.
  bool differ() const { return outer_->name() != inner_->name(); }

  /// Chunk boundaries that are multiples of it cut no block of any, nor a row of `row` elements. kWholeTensor where one must
  /// not be cut, or there is no smaller number.
  std::uint64_t alignment(std::uint64_t row = 1) const;

 private:
  const Codec* outer_;
  const Codec* inner_;
  const Codec* output_;
};

/// The inner codec that the options name, else the outer one. Throws InvalidInput for an unknown
/// name.
CodecPtr find_inner_codec(const AlgorithmOptions& options, const CodecPtr& outer);

/// Throws InvalidInput unless the schedule encodes something with the inner codec.
void require_inner_codec(const Schedule& schedule);

/// Gives some messages of a schedule to the inner codec, and all others to the outer one. A place is
///   rs                 messages that are added up, the half of a reduce-scatter; a message that is encoded again belongs to
///                      what becomes of it
///   ag                 all others, the half of an all-gather
///   step2, step2-5     messages with so many encodings behind them (EncodeContext::step)
///   below65536         of fewer elements
/// Throws InvalidInput where there is no such message, or no other.
void place_inner_codec(Schedule& schedule, std::string_view place);
bool is_place_of_messages(std::string_view place);

/// For a schedule that no algorithm has written for these options: does what they say of its inner codec, as the two above.
void place_codecs(Schedule& schedule, const AlgorithmOptions& options);

/// Where the codecs of a sum share scales: the all-reduce of maxima, of fp32 numbers as they are, by which all ranks agree on what
/// they have measured of the chunks, in their order. It is proved, and comes before step 0. Nothing where there is nothing to
/// agree on. Throws InvalidInput where Schedule::agreement is no all-reduce after which all ranks have the same.
std::optional<Schedule> agreement_of(const Schedule& schedule, const Codecs& codecs);

/// Returns for every op that is a sum made without decoding the codec of its codes. Its addends are wires of one codec that adds
/// codes, or such sums, or the rank's own input; that is then encoded for it whatever the algorithm's `own` says. A value made of
/// such a sum is as a wire of the codec; encoding it changes nothing.
std::vector<std::optional<CodecRole>> sums_of_codes(const Schedule& schedule, const Codecs& codecs);

/// Takes codecs apart that a text names by where they are: "rs=bf16,ag=fp8-e4m3-g128", "outer=qr-q4,inner=fp16",
/// "step0=bf16,else=qr-q4", "below65536=bf16,else=qr-q4". What is returned is the outer codec's name, and the inner codec is
/// set in the options; any other text is returned as it is. Throws InvalidInput when an inner codec is set already.
std::string split_codecs(const std::string& codecs, AlgorithmOptions& options);

}  // namespace arlab
