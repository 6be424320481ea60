// How an instance starts its kernel.
#pragma once

#include "kernels/platform/host/instances.h"
#include "kernels/platform/host/start.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

using Instance = void(const HostLaunch& launch);

/// Calls f with the device codec of one that needs no statistics, or that has a scale of the message.
template <class F>
void with_any_instance(const CodecChoice& codec, DType dtype, F&& f) {
  if (needs_statistics(codec)) return with_instance_of_message_scale(codec, dtype, f);
  with_instance(codec, dtype, f);
}
/// The same for kernels that measure nothing.
template <class F>
void with_instance_of_tiles(const CodecChoice& codec, DType dtype, F&& f) {
  with_any_instance(codec, dtype, [&]<class Codec>(const Codec& device_codec, auto element) {
    if constexpr (!kMeasures<Codec>) f(device_codec, element);
  });
}

// By the names of the kernels' forms (compile/unit.h).
Instance one_shot_instance, one_shot_lamport_instance, one_shot_sentinel_instance,
    two_shot_instance, two_shot_lamport_instance, two_shot_sentinel_instance, ring_instance,
    all_to_all_instance, one_shot_lamport_tail_instance, tail_rows_instance,
    tail_rows_encoded_instance, spread_nans_instance, program_instance, measured_program_instance,
    two_pass_program_instance, count_call_instance, statistics_instance, merge_statistics_instance,
    encode_instance, decode_instance, decode_add_instance, encode_measured_instance,
    decode_measured_instance, measure_largest_instance, encode_codes_instance,
    decode_codes_instance, find_extremes_instance, quantize_rows_instance, multiply_int8_instance,
    multiply_matrices_instance, overwrite_instance;

/// Starts a kernel with the launch's arguments, and with the codec as its last one if there is one.
template <class... Parameters, class... Codec>
void run(const HostLaunch& launch, void (*kernel)(Parameters...), const Codec&... codec) {
  using All = std::tuple<std::decay_t<Parameters>...>;
  [&]<std::size_t... kAt>(std::index_sequence<kAt...>) {
    emulator::launch(kernel, launch.blocks, dim3(kThreads), launch.stream,
                     *static_cast<const std::tuple_element_t<kAt, All>*>(launch.arguments[kAt])...,
                     codec...);
  }(std::make_index_sequence<sizeof...(Parameters) - sizeof...(Codec)>());
}
/// The same with the codec as the first one.
template <class Codec, class... Parameters>
void run_of(const Codec& codec, const HostLaunch& launch,
            void (*kernel)(const Codec&, Parameters...)) {
  [&]<std::size_t... kAt>(std::index_sequence<kAt...>) {
    emulator::launch(kernel, launch.blocks, dim3(kThreads), launch.stream, codec,
                     *static_cast<const std::decay_t<Parameters>*>(launch.arguments[kAt])...);
  }(std::index_sequence_for<Parameters...>());
}

/// Calls f with the arithmetic that the kernel's element names.
template <class F>
void with_element(const HostLaunch& launch, F&& f) {
  if (launch.kernel.element == element_text(DType::fp16)) return f(Fp16());
  if (launch.kernel.element == element_text(DType::bf16)) return f(Bf16());
  f(Fp32());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
