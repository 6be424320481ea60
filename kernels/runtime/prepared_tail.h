// The tail of a call, checked, and how kernels make it: in the collective's own where that can, else behind it.
#pragma once

#include <optional>
#include <string>

#include "kernels/collectives/launch.h"
#include "kernels/runtime/prepared_call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

class PreparedTail {
 public:
  /// Throws InvalidInput for a tail that is not of the request's rows, and for one that kernels do not make.
  PreparedTail(const CollectiveRequest& request, const Schedule& schedule);

  /// Why the collective's kernel of this name has no such tail; empty where it has.
  std::string why_not_fused(std::string_view kernel, const TeamResources& resources,
                            const CodecChoice& codec) const;
  /// The collective with the tail in its kernel, of this name.
  Launch fused(std::function<Call(const Tensors&)> call, const CodecChoice& codec) const;
  /// Adds kernels behind the collective: rows, unless they are `fused`, and what encodes them.
  Status add_behind(bool fused, const TeamResources& resources, CallLaunches& to) const;
  /// Adds a kernel that makes the rows of some elements.
  void add_rows_of(const Chunk& elements, CallLaunches& to) const;

 private:
  TailCall on(const Tensors& tensors) const;
  Status add_rows(const std::optional<CodecChoice>& codec, CallLaunches& to) const;
  Status add_encoding(const CodecChoice& choice, const TeamResources& resources,
                      CallLaunches& to) const;

  Tail tail_;
  DType dtype_;
  std::size_t elements_;
  TailSteps steps_;
  float inverse_ = 0;     ///< inverse of the output's given scale
  bool has_whole_packs_;  ///< no thread has elements of two rows or chunks
};

/// Checks the tensors that kernels of a rank need, before any is started.
Status require_tail_tensors(const CollectiveRequest& request, const TailTensors& tensors);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
