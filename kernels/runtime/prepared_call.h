// A collective that has been checked, cut and given its kernels: once for all calls like it.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/runtime/collective_request.h"
#include "kernels/runtime/select.h"
#include "kernels/runtime/status.h"
#include "kernels/schedule/lower.h"
#include "kernels/schedule/run.h"
#include "reference/collectives/codecs.h"
#if defined(ARLAB_KERNELS_ON_DEMAND)
#include "kernels/compile/store.h"
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// What a communicator knows of its team.
struct TeamResources {
  Team team;
  CommunicatorOptions options;
  int multiprocessors = 0;           ///< for this rank, at least; the same on all ranks
  Statistics* statistics = nullptr;  ///< options.two_pass_groups of them
};

class PreparedCall {
 public:
  /// The error says what is wrong with the request, or what has no kernels.
  static Result<std::shared_ptr<const PreparedCall>> prepare(const CollectiveRequest& request,
                                                             const TeamResources& resources);

  /// The kernel that was chosen, and why, in a line.
  std::string explanation() const;

  /// Whether a codec has random numbers, so that the call is to be counted (launch_count_call()).
  bool is_counted() const { return is_counted_; }

  /// Once kernels have ended: what a codec that works on the host has thrown (FormatKernels::failure()).
  std::string failure() const;

#if defined(ARLAB_KERNELS_ON_DEMAND)
  /// Those of launch() and of launch_count_call(). All must be loaded before any of them waits for other ranks.
  Result<std::vector<WantedKernel>> kernels() const;
#endif

  /// The same on all ranks that make the same call.
  std::uint64_t hash() const { return hash_; }

  /// Enqueues this rank's part.
  Status launch(const void* input, void* output, hipStream_t stream) const;

 private:
  /// A kernel that was written for an algorithm.
  struct Tuned {
    const KernelRule* rule;
    LaunchCollective launch;
    CodecChoice codec;
    Call call;
  };
  /// Programs that one kernel runs each: of a codec that encodes tile by tile, or whose messages the kernel measures.
  struct OnePass {
    CodecChoice codec;
    std::vector<ProgramCall> calls;
    bool in_place = true;  ///< the output may be the input
  };
  /// Programs in kernels of one codec each; where it measures what it encodes, with kernels in
  /// between that do.
  struct TwoPass {
    struct Kernel {
      ProgramCall call;
      CodecRole codec = CodecRole::outer;
      StatisticsPass statistics_pass = {};  ///< of what its first phase encodes
      std::vector<bool> of_input = {};      ///< what is measured; else of the output
    };
    std::vector<CodecChoice> codecs;            ///< by role
    std::vector<std::vector<Kernel>> programs;  ///< kernels of each
    std::size_t part_elements;                  ///< of a chunk that are worked through at a time
    bool in_place = true;

    bool measures(const Kernel& kernel) const {
      return needs_statistics(codecs[static_cast<unsigned>(kernel.codec)]);
    }
  };

  /// An all-reduce whose sums are sums of codes (codecs/shared_scale.h). All programs work in place.
  struct OfCodes {
    CodecChoice codec;
    std::string algorithm;               ///< by which ranks agree on scales
    std::vector<ProgramCall> agreement;  ///< programs of it
    std::vector<ProgramCall> sums;       ///< programs of the all-reduce
    std::size_t elements;
    float* largest;  ///< of every group
    int ranks;
  };

  PreparedCall(DType dtype, bool is_counted, std::uint64_t hash)
      : dtype_(dtype), is_counted_(is_counted), hash_(hash) {}

  static Result<Tuned> tuned(const CollectiveRequest&, const Schedule&, const KernelRule&,
                             const KernelCall&, const Tuning&, const CodecChoice&,
                             const TeamResources&);
  /// Without calls: these kernels cannot measure what the schedule encodes.
  static Result<OnePass> one_pass(const CollectiveRequest&, const Schedule&, const CodecChoice&,
                                  const Tuning&, const TeamResources&);
  static Result<TwoPass> two_pass(const CollectiveRequest&, const Schedule&, const Codecs&,
                                  std::vector<CodecChoice>, const TeamResources&);

  static Result<OfCodes> of_codes(const CollectiveRequest&, const Schedule&, const Codecs&,
                                  const CodecChoice&, const TeamResources&);
  Status launch_of_codes(const OfCodes&, const void* input, void* output, hipStream_t stream) const;

  DType dtype_;
  bool is_counted_;
  std::uint64_t hash_;
  std::variant<Tuned, OnePass, TwoPass, OfCodes> kernels_;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
