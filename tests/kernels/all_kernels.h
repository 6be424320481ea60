// The kernels that there are on a platform with a driver, by codec and dtype, as their launches name them.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/codecs/codec_kernels.h"
#include "kernels/codecs/shared_scale_kernels.h"
#include "kernels/collectives/launch.h"
#include "kernels/compile/store.h"
#include "kernels/layers/int8_layers.h"
#include "kernels/runtime/between.h"
#include "kernels/runtime/select.h"
#include "kernels/schedule/run.h"

namespace arlab::kernels {

inline void launch_codec_alone(const CodecChoice& codec, DType dtype) {
  constexpr std::size_t kLong = std::size_t{1} << 30;  // long messages are measured in parts
  (void)launch_encode(codec, dtype, nullptr, kLong, nullptr, {}, nullptr, nullptr);
  (void)launch_decode(codec, dtype, nullptr, kLong, nullptr, nullptr);
  (void)launch_decode_add(codec, dtype, nullptr, kLong, nullptr, nullptr);
}

/// A residual and a norm of rows of whole trees; in names of kernels it is 8384560, and the kernel's own besides.
inline constexpr TailSteps kTail = {
    .adds_residual = true, .normalizes = true, .has_whole_trees = true};

inline TailCall one_row() {
  TailCall tail{};
  tail.elements = tail.hidden = 8192;
  return tail;
}
/// With a scale of e4m3 for a row; in names of kernels it is 25161776.
inline constexpr TailSteps kTailOfFp8 = {.adds_residual = true,
                                         .normalizes = true,
                                         .has_whole_trees = true,
                                         .fp8 = TailSteps::Fp8::of_row};

inline void launch_collectives(const CodecChoice& codec, DType dtype) {
  const CodecTraits traits = traits_of(codec, dtype);
  if (traits.programs_only) return;
  Call call{};
  call.team.layout.ranks = 2;
  const auto launch = [&](const KernelForm& form) {
    (void)launch_collective(form, call, codec, dtype, nullptr);
  };
  if (!traits.has_message_scale) {
    for (const KernelForm* form :
         {&forms::kOneShot, &forms::kTwoShot, &forms::kRing, &forms::kAllToAll}) {
      launch(*form);
    }
  }
  if (!traits.is_tuned || size_of(dtype) != 2) return;
  launch(forms::kTwoShotLamport);
  if (!traits.has_message_scale) {
    launch(forms::kOneShotLamport);
    (void)launch_with_tail(call, {}, kTail, codec, dtype, nullptr);
    (void)launch_tail(one_row(), kTail, codec, dtype, nullptr);
  }
  if (traits.one_shot_sentinel) launch(forms::kOneShotSentinel);
  for (call.team.layout.ranks = 2; traits.two_shot_sentinel && call.team.layout.ranks <= 4;
       ++call.team.layout.ranks) {
    launch(forms::kTwoShotSentinel);
  }
  if (has_given_scale(codec)) (void)launch_spread_nans(call, 2, dtype, nullptr);
}

inline void launch_programs(const CodecChoice& codec, DType dtype) {
  const ProgramCall call{};
  (void)launch_program(call, codec, dtype, nullptr);
  if (measured_tuning(codec, dtype)) (void)launch_measured_program(call, codec, dtype, nullptr);
  const FormatKernels* const format = format_kernels(codec);
  if (format == nullptr || format->sums_of_codes() == nullptr) return;
  const SumsOfCodes& sums = *format->sums_of_codes();
  (void)sums.measure(dtype, nullptr, 64, nullptr, nullptr);
  (void)sums.agree(call, nullptr);
  (void)sums.encode_tensor(dtype, nullptr, 64, nullptr, 2, nullptr, nullptr);
  (void)sums.add(call, dtype, nullptr);
  (void)sums.decode_tensor(dtype, nullptr, 64, nullptr, 2, nullptr);
}

/// Kernels without a codec.
inline void launch_others(DType dtype) {
  (void)launch_count_call(nullptr, nullptr);
  (void)launch_quantize_int8(dtype, nullptr, 1, 1, {}, nullptr, {}, nullptr);
  (void)launch_linear_int8({}, 1, {}, 1, 1, dtype, nullptr, nullptr);
  (void)launch_matrix_product(nullptr, nullptr, nullptr, 64, nullptr);
  (void)launch_overwrite(nullptr, 1, 0, 1, nullptr);
  (void)launch_tail(one_row(), kTail, dtype, nullptr);
  (void)launch_tail(one_row(), kTailOfFp8, dtype, nullptr);
}

/// All kernels that there are with a codec and a dtype.
inline std::vector<WantedKernel> kernels_of(const std::string& name, DType dtype) {
  const CodecChoice codec = choose_codec(name).value();
  const NotesKernels notes;
  launch_codec_alone(codec, dtype);
  launch_collectives(codec, dtype);
  launch_programs(codec, dtype);
  if (name == name_of(dtype)) launch_others(dtype);
  return notes.kernels();
}

struct Sample {
  std::string codec;
  DType dtype;
  std::string kernel;  ///< the first word of its name
};

inline WantedKernel kernel_of(const Sample& sample) {
  for (const WantedKernel& kernel : kernels_of(sample.codec, sample.dtype)) {
    if (kernel.name.substr(0, kernel.name.find(' ')) == sample.kernel) return kernel;
  }
  throw std::runtime_error(fmt::format("{} has no kernel {}", sample.codec, sample.kernel));
}

}  // namespace arlab::kernels
