// The text of a kernel's translation unit. Device code stands in headers, as templates on a codec and on the arithmetic of a
// dtype; a unit names both, with all that is known of the codec as constants, and makes one kernel of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "reference/codecs/header_codec.h"
#include "reference/dtype.h"

namespace arlab::kernels {

/// The kernel's name in units.
inline constexpr const char* kKernelName = "arlab_kernel";

/// A codec as device code spells it.
struct CodecText {
  std::string type;   ///< Element is the dtype's arithmetic
  std::string value;  ///< its initializer; empty: the codec is the kernel's last argument
  bool has_table =
      false;  ///< which threads index: the codec stands in memory, and not in registers
  std::shared_ptr<const CodecHeader> header = {};  ///< a user's, which has its type
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

/// The name of a dtype's arithmetic in units.
std::string_view element_text(DType dtype);

/// A kernel that is launched, but for its codec.
struct Kernel {
  const KernelForm& form;
  std::string_view element = {};
  int number = 0;
};

/// `element`: what stands for the dtype, Fp16, Bf16 or Fp32; empty where kernels have none, as the codec's type. `number`: what
/// the form takes as a constant besides.
std::string unit_text(const KernelForm& form, const CodecText& codec, std::string_view element,
                      int number = 0);

// ---------------------------------------------------------------- the forms

namespace forms {

/// A collective with a kernel of its own, which has the name of its rule (reference/device_facts/kernel_rules.h).
constexpr KernelForm collective(std::string_view name, std::string_view header,
                                std::string_view body,
                                std::string_view blocks = "Codec::kTuning.resident_blocks") {
  return {name, header, "ARLAB_KERNEL_PARAMETER Call call", body, blocks, true};
}
inline constexpr KernelForm kOneShot = collective("one_shot", "kernels/collectives/one_shot.h",
                                                  "one_shot<Codec, Element>(call, codec)");
/// kNumber: ranks at most, of elements that are sent as they are.
inline constexpr KernelForm kOneShotLamport =
    collective("one_shot_lamport", "kernels/collectives/one_shot_lamport.h",
               "one_shot_lamport<Codec, Element, kNumber>(call, codec)", "kLamportBlocks<Codec>");
/// The same with a tail. kNumber: TailSteps besides.
constexpr KernelForm with_tail(std::string_view name, std::string_view header,
                               std::string_view body,
                               std::string_view blocks = "kLamportBlocks<Codec>") {
  return {name, header, "ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER TailCall tail",
          body, blocks, true};
}
inline constexpr KernelForm kOneShotLamportTail =
    with_tail("one_shot_lamport_tail", "kernels/collectives/one_shot_lamport.h",
              "one_shot_lamport<Codec, Element, kNumber % 16>(call, codec, "
              "WithTail{tail, TailSteps::of(kNumber)})");
inline constexpr KernelForm kOneShotSentinel =
    collective("one_shot_sentinel", "kernels/collectives/one_shot_sentinel.h",
               "one_shot_sentinel<Codec, Element>(call, codec)");
inline constexpr KernelForm kTwoShot = collective("two_shot", "kernels/collectives/two_shot.h",
                                                  "two_shot<Codec, Element>(call, codec)");
inline constexpr KernelForm kTwoShotLamport =
    collective("two_shot_lamport", "kernels/collectives/two_shot_lamport.h",
               "two_shot_lamport<Codec, Element>(call, codec)", "kLamportBlocks<Codec>");
/// kNumber: ranks.
inline constexpr KernelForm kTwoShotSentinel =
    collective("two_shot_sentinel", "kernels/collectives/two_shot_sentinel.h",
               "two_shot_sentinel<Codec, Element, kNumber>(call, codec)", "kPipelineBlocks<Codec>");
inline constexpr KernelForm kRing =
    collective("ring", "kernels/collectives/ring.h", "ring<Codec, Element>(call, codec)");
inline constexpr KernelForm kAllToAll = collective("all_to_all", "kernels/collectives/all_to_all.h",
                                                   "all_to_all<Codec, Element>(call, codec)");

/// Behind a collective. kNumber: TailSteps, and packs of a thread.
inline constexpr KernelForm kTailRows = {
    "tail_rows",
    "kernels/collectives/tail_rows.h",
    "ARLAB_KERNEL_PARAMETER TailCall tail",
    "tail_rows<Element, kNumber % 16>(tail, TailSteps::of(kNumber))",
    "",
    true};
/// The same, with a codec that encodes what comes out.
inline constexpr KernelForm kTailRowsEncoded = {
    "tail_rows_encoded",
    "kernels/collectives/tail_rows.h",
    "ARLAB_KERNEL_PARAMETER TailCall tail",
    "tail_rows<Element, kNumber % 16>(tail, TailSteps::of(kNumber), codec)",
    "",
    true};
/// Behind a collective whose codec has a given scale.
inline constexpr KernelForm kSpreadNans = collective(
    "spread_nans", "kernels/collectives/spread_nans.h", "spread_nans<Element>(call)", "");

constexpr KernelForm program(std::string_view name, std::string_view header, std::string_view body,
                             std::string_view blocks, bool overlaps_previous) {
  return {name, header, "ARLAB_KERNEL_PARAMETER ProgramCall call", body, blocks, overlaps_previous};
}
inline constexpr KernelForm kProgram =
    program("program", "kernels/schedule/run_program.h", "run_program<Codec, Element>(call, codec)",
            "Codec::kTuning.resident_blocks", true);
inline constexpr KernelForm kMeasuredProgram =
    program("measured_program", "kernels/schedule/run_measured.h",
            "run_measured<Codec, Element>(call, codec)", "Codec::kTuning.resident_blocks", true);
inline constexpr KernelForm kTwoPassProgram =
    program("two_pass_program", "kernels/schedule/run_two_pass.h",
            "run_two_pass<Codec, Element>(call, codec)", "", false);
inline constexpr KernelForm kCountCall = {"count_call", "kernels/schedule/run_program.h",
                                          "std::uint32_t* calls", "count_call(calls)"};

inline constexpr KernelForm kStatistics = {
    "statistics", "kernels/codecs/statistics_pass.h",
    "ARLAB_KERNEL_PARAMETER StatisticsPass m, Statistics* results, std::size_t parts, "
    "std::size_t part_elements, unsigned lanes",
    "measure_groups<Codec, Element>(codec, m, results, parts, part_elements, lanes)"};
inline constexpr KernelForm kMergeStatistics = {
    "merge_statistics", "kernels/codecs/statistics_pass.h",
    "ARLAB_KERNEL_PARAMETER StatisticsPass m, const Statistics* parts_at, std::size_t parts",
    "merge_parts(m, parts_at, parts)"};

// A codec by itself.
inline constexpr KernelForm kEncode = {
    "encode",
    "kernels/codecs/codec_alone.h",
    "const Element::Bits* payload, std::size_t elements, std::uint8_t* wire, "
    "ARLAB_KERNEL_PARAMETER EncodeContext context",
    "encode_alone<Codec, Element>(codec, payload, elements, wire, context)",
    "",
    true};
inline constexpr std::string_view kDecodeParameters =
    "const std::uint8_t* wire, std::size_t elements, Element::Bits* payload";
inline constexpr KernelForm kDecode = {
    "decode", "kernels/codecs/codec_alone.h", kDecodeParameters,
    "decode_alone<Codec, Element>(codec, wire, elements, payload)"};
inline constexpr KernelForm kDecodeAdd = {
    "decode_add", "kernels/codecs/codec_alone.h", kDecodeParameters,
    "decode_add_alone<Codec, Element>(codec, wire, elements, payload)"};
inline constexpr KernelForm kEncodeMeasured = {
    "encode_measured", "kernels/codecs/two_pass_tile.h",
    "const Element::Bits* payload, std::size_t elements, const Statistics* statistics, "
    "std::uint8_t* wire",
    "encode_measured<Codec, Element>(codec, payload, elements, statistics, wire)"};
/// kNumber: whether it adds.
inline constexpr KernelForm kDecodeMeasured = {
    "decode_measured", "kernels/codecs/two_pass_tile.h", kDecodeParameters,
    "decode_measured<Codec, Element, kNumber != 0>(codec, wire, elements, payload)"};

// Between the programs of a sum of codes.
inline constexpr KernelForm kMeasureLargest = {
    "measure_largest", "kernels/codecs/sums_of_codes.h",
    "SharedIntegers format, const Element::Bits* input, std::size_t elements, "
    "std::uint32_t* largest",
    "measure_largest<Element>(format, input, elements, largest)"};
inline constexpr KernelForm kEncodeCodes = {
    "encode_codes", "kernels/codecs/sums_of_codes.h",
    "SharedIntegers format, std::int32_t limit, const Element::Bits* input, std::size_t elements, "
    "const float* largest, CodesOf<Element>::Bits* codes",
    "encode_codes<Element>(format, limit, input, elements, largest, codes)"};
inline constexpr KernelForm kDecodeCodes = {
    "decode_codes", "kernels/codecs/sums_of_codes.h",
    "SharedIntegers format, std::int32_t limit, void* tensor, std::size_t elements, "
    "const float* largest",
    "decode_codes<Element>(format, limit, tensor, elements, largest)"};

// Layers of int8.
inline constexpr KernelForm kFindExtremes = {
    "find_extremes", "kernels/layers/int8_kernels.h",
    "const Element::Bits* values, std::size_t columns, Extremes* extremes",
    "find_extremes<Element>(values, columns, extremes)"};
inline constexpr KernelForm kQuantizeRows = {
    "quantize_rows", "kernels/layers/int8_kernels.h",
    "const Element::Bits* values, std::size_t rows, std::size_t columns, Int8Rule rule, "
    "const Extremes* extremes, std::int8_t* codes, Int8Scale* scales, std::int32_t* sums",
    "quantize_rows<Element>(values, rows, columns, rule, extremes, codes, scales, sums)"};
inline constexpr KernelForm kMultiplyInt8 = {
    "multiply_int8", "kernels/layers/int8_kernels.h",
    "const std::int8_t* x, const Int8Scale* x_scales, const std::int32_t* x_sums, "
    "std::size_t tokens, const std::int8_t* w, const Int8Scale* w_scales, "
    "const std::int32_t* w_sums, std::size_t outputs, std::size_t inputs, Element::Bits* y",
    "multiply_int8<Element>(x, x_scales, x_sums, tokens, w, w_scales, w_sums, outputs, inputs, y)"};

// Work of a model between two calls, for timing.
inline constexpr KernelForm kMultiplyMatrices = {
    "multiply_matrices", "kernels/runtime/between_kernels.h",
    "const float* a, const float* b, float* c, int side", "multiply_matrices(a, b, c, side)"};
inline constexpr KernelForm kOverwrite = {
    "overwrite", "kernels/runtime/between_kernels.h",
    "std::uint8_t* memory, std::size_t bytes, std::uint32_t word",
    "overwrite(memory, bytes, word)"};

}  // namespace forms

}  // namespace arlab::kernels
