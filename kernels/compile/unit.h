// The text of a kernel's translation unit. Device code stands in headers, as templates on a codec and on the arithmetic of a
// dtype; a unit names both, with all that is known of the codec as constants, and makes one kernel of them.
#pragma once

#include <string>
#include <string_view>

namespace arlab::kernels {

/// What units call their kernel.
inline constexpr const char* kKernelName = "arlab_kernel";

/// A codec as device code spells it.
struct CodecText {
  std::string header;
  std::string type;   ///< Element is the dtype's arithmetic
  std::string value;  ///< its initializer; empty: the codec is the kernel's last argument
};

/// A kernel, whatever its codec and dtype.
struct KernelForm {
  std::string_view name;
  std::string_view header;
  std::string_view parameters;
  std::string_view body;  ///< may use Codec, Element, codec, the parameters, and kNumber
  /// Blocks that must fit on a multiprocessor; empty: any number.
  std::string_view blocks = {};
  /// It calls pdl_wait() first, and may be started while the kernel before it still runs.
  bool overlaps_previous = false;
};

/// `element`: Fp16, Bf16, Fp32. `number`: what the form takes as a constant besides.
std::string unit_text(const KernelForm& form, const CodecText& codec, std::string_view element,
                      int number = 0);

namespace forms {

/// A collective with kernels of its own is called by the name of its rule (reference/codecs/kernel_rules.h).
constexpr KernelForm collective(std::string_view name, std::string_view header,
                                std::string_view body,
                                std::string_view blocks = "Codec::kTuning.resident_blocks") {
  return {name, header, "ARLAB_KERNEL_PARAMETER Call call", body, blocks, true};
}
inline constexpr KernelForm kOneShot = collective(
    "one_shot", "kernels/collectives/one_shot.h", "one_shot<Codec, Element>(call, codec)");
inline constexpr KernelForm kOneShotLamport =
    collective("one_shot_lamport", "kernels/collectives/one_shot_lamport.h",
               "one_shot_lamport<Codec, Element>(call, codec)", "kLamportBlocks<Codec>");
/// Of uncompressed elements; kNumber: ranks, at most.
inline constexpr KernelForm kOneShotDirect =
    collective("one_shot_direct", "kernels/collectives/one_shot_lamport.h",
               "one_shot_direct<Codec, Element, kNumber>(call)", "kLamportBlocks<Codec>");
inline constexpr KernelForm kOneShotSentinel =
    collective("one_shot_sentinel", "kernels/collectives/one_shot_sentinel.h",
               "one_shot_sentinel<Codec, Element>(call, codec)");
inline constexpr KernelForm kTwoShot = collective(
    "two_shot", "kernels/collectives/two_shot.h", "two_shot<Codec, Element>(call, codec)");
inline constexpr KernelForm kTwoShotLamport =
    collective("two_shot_lamport", "kernels/collectives/two_shot_lamport.h",
               "two_shot_lamport<Codec, Element>(call, codec)", "kLamportBlocks<Codec>");
/// kNumber: ranks.
inline constexpr KernelForm kTwoShotSentinel =
    collective("two_shot_sentinel", "kernels/collectives/two_shot_sentinel.h",
               "two_shot_sentinel<Codec, Element, kNumber>(call, codec)", "kPipelineBlocks<Codec>");
inline constexpr KernelForm kRing =
    collective("ring", "kernels/collectives/ring.h", "ring<Codec, Element>(call, codec)");
inline constexpr KernelForm kAllToAll = collective(
    "all_to_all", "kernels/collectives/all_to_all.h", "all_to_all<Codec, Element>(call, codec)");

inline constexpr std::string_view kProgramCall = "ARLAB_KERNEL_PARAMETER ProgramCall call";
inline constexpr KernelForm kProgram = {"program",
                                        "kernels/schedule/run_program.h",
                                        kProgramCall,
                                        "run_program<Codec, Element>(call, codec)",
                                        "Codec::kTuning.resident_blocks",
                                        true};
inline constexpr KernelForm kMeasuredProgram = {"measured_program",
                                                "kernels/schedule/run_measured.h",
                                                kProgramCall,
                                                "run_measured<Codec, Element>(call, codec)",
                                                "Codec::kTuning.resident_blocks",
                                                true};
inline constexpr KernelForm kTwoPassProgram = {"two_pass_program", "kernels/schedule/run_two_pass.h",
                                               kProgramCall,
                                               "run_two_pass<Codec, Element>(call, codec)"};
inline constexpr KernelForm kCountCall = {"count_call", "kernels/schedule/run_program.h",
                                          "std::uint32_t* calls", "count_call(calls)"};

}  // namespace forms

}  // namespace arlab::kernels
