// The codecs of a call: what the encode ops of a Schedule mean by `outer` and `inner`.
#pragma once

#include <cstdint>

#include "reference/codecs/codec.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/schedule.h"

namespace arlab {

/// They must outlive it.
class Codecs {
 public:
  /// One codec for all messages. The conversion is implicit because most calls have one codec.
  Codecs(const Codec& codec) : Codecs(codec, codec) {}
  Codecs(const Codec& outer, const Codec& inner) : outer_(&outer), inner_(&inner) {}

  const Codec& outer() const { return *outer_; }
  const Codec& inner() const { return *inner_; }
  const Codec& of(CodecRole role) const { return role == CodecRole::inner ? *inner_ : *outer_; }

  /// Whether the roles make a difference.
  bool differ() const { return outer_->name() != inner_->name(); }

  /// Chunk boundaries that are multiples of it cut no block of either. kWholeTensor where one must
  /// not be cut, or there is no smaller number.
  std::uint64_t alignment() const;

 private:
  const Codec* outer_;
  const Codec* inner_;
};

/// The inner codec that the options name, else the outer one. Throws InvalidInput for an unknown
/// name.
CodecPtr find_inner_codec(const AlgorithmOptions& options, const CodecPtr& outer);

/// Throws InvalidInput unless the schedule encodes something with the inner codec.
void require_inner_codec(const Schedule& schedule);

}  // namespace arlab
