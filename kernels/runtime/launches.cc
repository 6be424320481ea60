// Launches of all kernels: each names its form and its codec (start.h finds the kernel).
#include <algorithm>

#include "kernels/codecs/codec_kernels.h"
#include "kernels/codecs/kernels_of_format.h"
#include "kernels/codecs/shared_scale.h"
#include "kernels/codecs/shared_scale_kernels.h"
#include "kernels/collectives/launch.h"
#include "kernels/collectives/spread_nans.h"
#include "kernels/collectives/tail_rows.h"
#include "kernels/layers/int8_layers.h"
#include "kernels/runtime/between.h"
#include "kernels/runtime/between_kernels.h"
#include "kernels/runtime/select.h"
#include "kernels/runtime/start.h"
#include "kernels/schedule/run.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Call>
dim3 blocks_of(const Call& call) {
  return dim3(static_cast<unsigned>(call.blocks));
}
/// The constant that the form takes besides the codec.
int number_of(const KernelForm& form, const Call& call, const CodecChoice& codec) {
  const int ranks = call.team.layout.ranks;
  if (&form == &forms::kTwoShotSentinel) return ranks;
  if (&form != &forms::kOneShotLamport && &form != &forms::kOneShotLamportTail) return 0;
  return std::holds_alternative<PlainChoice>(codec) && ranks == 2 ? 2 : kMaxRanks;
}

}  // namespace

hipError_t launch_collective(const KernelForm& form, const Call& call, const CodecChoice& codec,
                             DType dtype, hipStream_t stream) {
  const Kernel kernel = {form, element_text(dtype), number_of(form, call, codec)};
  if (needs_statistics(codec)) {  // it has a scale of the message
    return start_of_message_scale(kernel, codec, dtype, blocks_of(call), stream, call);
  }
  return start_of_codec(kernel, codec, dtype, blocks_of(call), stream, call);
}

hipError_t launch_with_tail(const Call& call, const TailCall& tail, const TailSteps& steps,
                            const CodecChoice& codec, DType dtype, hipStream_t stream) {
  const KernelForm& form = forms::kOneShotLamportTail;
  const Kernel kernel = {form, element_text(dtype), steps.number() | number_of(form, call, codec)};
  return start_of_codec(kernel, codec, dtype, blocks_of(call), stream, call, tail);
}

namespace {

/// TailSteps, and packs of a thread.
int number_of(const TailCall& tail, const TailSteps& steps) {
  const unsigned lanes = lanes_of_row(steps, tail.hidden);
  int packs = 1;
  while (packs <= kMostPacks && static_cast<unsigned>(packs * kThreads) < lanes) packs *= 2;
  return steps.number() | (packs <= kMostPacks ? packs : 0);
}
dim3 rows_of(const TailCall& tail) {
  return dim3(static_cast<unsigned>(tail.elements / tail.hidden));
}

}  // namespace

hipError_t launch_tail(const TailCall& tail, const TailSteps& steps, DType dtype,
                       hipStream_t stream) {
  return start({forms::kTailRows, element_text(dtype), number_of(tail, steps)}, rows_of(tail),
               stream, tail);
}

hipError_t launch_tail(const TailCall& tail, const TailSteps& steps, const CodecChoice& codec,
                       DType dtype, hipStream_t stream) {
  return start_of_codec({forms::kTailRowsEncoded, element_text(dtype), number_of(tail, steps)},
                        codec, dtype, rows_of(tail), stream, tail);
}

hipError_t launch_spread_nans(const Call& call, std::size_t chunks, DType dtype,
                              hipStream_t stream) {
  const std::size_t blocks = (call.chunk_tiles * kTile + kSpreadElements - 1) / kSpreadElements;
  return start({forms::kSpreadNans, element_text(dtype)},
               dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(chunks)), stream, call);
}

// ---------------------------------------------------------------- programs

hipError_t launch_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                          hipStream_t stream) {
  if (const FormatKernels* format = format_kernels(codec)) return format->run(call, dtype, stream);
  const KernelForm& form = needs_statistics(codec) ? forms::kTwoPassProgram : forms::kProgram;
  return start_of_codec({form, element_text(dtype)}, codec, dtype, blocks_of(call), stream, call);
}

hipError_t launch_measured_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                                   hipStream_t stream) {
  return start_of_message_scale({forms::kMeasuredProgram, element_text(dtype)}, codec, dtype,
                                blocks_of(call), stream, call);
}

std::optional<Tuning> measured_tuning(const CodecChoice& codec, DType dtype) {
  if (!traits_of(codec, dtype).has_message_scale) return std::nullopt;
  return kTuningOfMessages;
}

hipError_t launch_count_call(std::uint32_t* calls, hipStream_t stream) {
  return start({forms::kCountCall}, dim3(1), stream, calls);
}

// ---------------------------------------------------------------- codecs by themselves

hipError_t launch_statistics(const StatisticsPass& m, const CodecChoice& codec, DType dtype,
                             hipStream_t stream) {
  std::size_t elements = 0;
  for (int i = 0; i < m.messages; ++i) elements = std::max(elements, m.message[i].size());
  if (elements == 0) return hipSuccess;
  const auto messages = static_cast<unsigned>(m.messages);
  const GroupParts parts = parts_of(codec, elements);
  const std::size_t units = m.groups * parts.count;
  const std::size_t blocks = parts.by_thread ? (units + kThreads - 1) / kThreads : units;
  const unsigned lanes = parts.by_thread ? 1 : kThreads;
  Statistics* const results = parts.count == 1 ? m.statistics : m.statistics + m.groups * messages;
  const hipError_t error = start_of_codec({forms::kStatistics, element_text(dtype)}, codec, dtype,
                                          dim3(static_cast<unsigned>(blocks), messages), stream, m,
                                          results, parts.count, parts.elements, lanes);
  if (error != hipSuccess || parts.count == 1) return error;
  return start({forms::kMergeStatistics}, dim3(static_cast<unsigned>(m.groups), messages), stream,
               m, results, parts.count);
}

hipError_t launch_encode(const CodecChoice& codec, DType dtype, const void* payload,
                         std::size_t elements, std::uint8_t* wire, const EncodeContext& context,
                         Statistics* statistics, hipStream_t stream) {
  if (const FormatKernels* format = format_kernels(codec)) {
    return format->encode(dtype, payload, elements, wire, context, stream);
  }
  if (!needs_statistics(codec)) {
    return start_of_codec({forms::kEncode, element_text(dtype)}, codec, dtype, blocks_for(elements),
                          stream, payload, elements, wire, context);
  }
  if (elements == 0) return hipSuccess;
  StatisticsPass m;
  m.tensor[0] = payload;
  m.message[0] = {0, elements};
  m.messages = 1;
  m.statistics = statistics;
  m.groups = groups_of_message(codec, elements);
  const hipError_t error = launch_statistics(m, codec, dtype, stream);
  if (error != hipSuccess) return error;
  return start_of_codec({forms::kEncodeMeasured, element_text(dtype)}, codec, dtype,
                        blocks_for(codes_of_message(codec, elements)), stream, payload, elements,
                        statistics, wire);
}

namespace {

hipError_t decode(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                  std::size_t elements, void* payload, bool adds, hipStream_t stream) {
  const bool measured = needs_statistics(codec);
  if (measured && elements == 0) return hipSuccess;
  const KernelForm& alone = adds ? forms::kDecodeAdd : forms::kDecode;
  return start_of_codec(
      {measured ? forms::kDecodeMeasured : alone, element_text(dtype), measured && adds ? 1 : 0},
      codec, dtype, blocks_for(measured ? codes_of_message(codec, elements) : elements), stream,
      wire, elements, payload);
}

}  // namespace

hipError_t launch_decode(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                         std::size_t elements, void* payload, hipStream_t stream) {
  if (const FormatKernels* format = format_kernels(codec)) {
    return format->decode(dtype, wire, elements, payload, stream);
  }
  return decode(codec, dtype, wire, elements, payload, false, stream);
}

hipError_t launch_decode_add(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                             std::size_t elements, void* sum, hipStream_t stream) {
  if (const FormatKernels* format = format_kernels(codec)) {
    return format->decode_add(dtype, wire, elements, sum, stream);
  }
  return decode(codec, dtype, wire, elements, sum, true, stream);
}

// ---------------------------------------------------------------- sums of codes

namespace {

class SharedScaleKernels final : public ProgramKernels<SharedAlone, SharedIntegers>,
                                 public SumsOfCodes {
 public:
  explicit SharedScaleKernels(const SharedIntegers& format)
      : ProgramKernels<SharedAlone, SharedIntegers>(format), format_(format) {}

  const SumsOfCodes* sums_of_codes() const override { return this; }
  SharedIntegers format() const override { return format_; }

  hipError_t measure(DType dtype, const void* input, std::size_t elements, float* largest,
                     hipStream_t stream) const override {
    return start({forms::kMeasureLargest, element_text(dtype)}, blocks_for(elements), stream,
                 format_, input, elements, largest);
  }
  Tuning tuning_of_agreement() const override { return Plain<Maximum>::kTuning; }
  hipError_t agree(const ProgramCall& call, hipStream_t stream) const override {
    return launch_program_of(Plain<Maximum>(), Maximum(), call, stream), hipGetLastError();
  }
  hipError_t encode_tensor(DType dtype, const void* input, std::size_t elements,
                           const float* largest, int ranks, void* codes,
                           hipStream_t stream) const override {
    return start({forms::kEncodeCodes, element_text(dtype)}, blocks_for(elements), stream, format_,
                 limit(ranks), input, elements, largest, codes);
  }
  hipError_t add(const ProgramCall& call, DType dtype, hipStream_t stream) const override {
    if (size_of(dtype) == 2) {
      launch_program_of(SharedCodes<Codes16>(format_), Codes16(), call, stream);
    } else {
      launch_program_of(SharedCodes<Codes32>(format_), Codes32(), call, stream);
    }
    return hipGetLastError();
  }
  hipError_t decode_tensor(DType dtype, void* codes, std::size_t elements, const float* largest,
                           int ranks, hipStream_t stream) const override {
    return start({forms::kDecodeCodes, element_text(dtype)}, blocks_for(elements), stream, format_,
                 limit(ranks), codes, elements, largest);
  }

 private:
  std::int32_t limit(int ranks) const { return format_.limit(static_cast<std::uint32_t>(ranks)); }

  SharedIntegers format_;
};

}  // namespace

FormatChoice shared_scale_kernels(std::string_view name) {
  const std::optional<SharedIntegers> format = parse_shared_integers(name);
  if (!format || format->group == 0 || format->group > 256) return nullptr;
  return std::make_shared<SharedScaleKernels>(*format);
}

// ---------------------------------------------------------------- layers of int8, and work between calls

hipError_t launch_quantize_int8(DType dtype, const void* values, std::size_t rows,
                                std::size_t columns, const Int8Rule& rule, Extremes* extremes,
                                const DeviceInt8& to, hipStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(rows));
  const hipError_t error =
      start({forms::kFindExtremes, element_text(dtype)}, blocks, stream, values, columns, extremes);
  if (error != hipSuccess) return error;
  return start({forms::kQuantizeRows, element_text(dtype)}, blocks, stream, values, rows, columns,
               rule, extremes, to.codes, to.scales, to.sums);
}

hipError_t launch_linear_int8(const DeviceInt8& x, std::size_t tokens, const DeviceInt8& w,
                              std::size_t outputs, std::size_t inputs, DType dtype, void* y,
                              hipStream_t stream) {
  const dim3 blocks(static_cast<unsigned>((tokens + kSide - 1) / kSide),
                    static_cast<unsigned>((outputs + kSide - 1) / kSide));
  return start({forms::kMultiplyInt8, element_text(dtype)}, blocks, stream, x.codes, x.scales,
               x.sums, tokens, w.codes, w.scales, w.sums, outputs, inputs, y);
}

hipError_t launch_matrix_product(const float* a, const float* b, float* c, int side,
                                 hipStream_t stream) {
  const int blocks = side / kBlockSide;
  return start({forms::kMultiplyMatrices}, dim3(static_cast<unsigned>(blocks * blocks)), stream, a,
               b, c, side);
}

hipError_t launch_overwrite(std::uint8_t* memory, std::size_t bytes, std::uint32_t word,
                            unsigned blocks, hipStream_t stream) {
  return start({forms::kOverwrite}, dim3(blocks), stream, memory, bytes, word);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
