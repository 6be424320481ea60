// The kernel that runs any program (program.h) with a codec whose messages have a scale each (codecs/message_scale.h): its
// blocks measure, together, what a phase encodes, and go on.
#include "kernels/codecs/two_pass_choice.h"
#include "kernels/schedule/program_kernel.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
constexpr int kWaves = kThreads / 32;  // groups of 32 lanes
static_assert(kMaxMessages <= kWaves);

/// Shared by the block: what its waves have found, and then the ranges of the messages.
struct MeasuringMemory {
  std::uint32_t of_wave[kMaxMessages][kWaves];
  std::uint32_t range[kMaxMessages];
  std::uint32_t failed;
};

/// The ranges of the messages that steps of a phase encode: each block finds those of its own tiles, tells all blocks of
/// the rank, and waits for theirs. All blocks of a launch are on the device at once, since they wait for other ranks' too.
template <class Codec, class Element>
class Measuring {
 public:
  ARLAB_DEVICE Measuring(const ProgramCall& call, MeasuringMemory& memory)
      : call_(call),
        memory_(memory),
        before_(load_relaxed(&global_pointer(call.team.measured)->measurements)) {}

  /// Those of the steps from `first` on that encode. False when the team has given up.
  ARLAB_DEVICE bool measure(int first, int end) {
    const Program& program = call_.program;
    int messages = 0;
#pragma unroll 1
    for (; first + messages < end && program.step[first + messages].encodes; ++messages) {
      const Step& step = program.step[first + messages];
      const std::uint32_t range =
          smallest_of_lanes<5>(range_of(step, program.operand[step.first_operand]), 5, both());
      if (thread_index() % 32 == 0) memory_.of_wave[messages][thread_index() / 32] = range;
    }
    if (messages == 0) return true;
    if (measurements_++ == 0 && thread_index() == 0) memory_.failed = 0;
    __syncthreads();
    tell(messages);
    wait(messages);
    __syncthreads();
    return memory_.failed == 0;
  }
  ARLAB_DEVICE std::uint32_t range_of_message(int number) const { return memory_.range[number]; }

  /// All blocks have begun the last measurement, so that none looks for the number of the first any more.
  ARLAB_DEVICE void end() const {
    if (blockIdx.x == 0 && thread_index() == 0) {
      // mutant: measurements_not_kept
      store_relaxed(&global_pointer(call_.team.measured)->measurements, before_ + measurements_);
    }
  }

 private:
  ARLAB_DEVICE static auto both() {
    return [](std::uint32_t a, std::uint32_t b)
               ARLAB_INLINED_LAMBDA { return Codec::range_of_both(a, b); };
  }

  /// Of this thread's elements of a message.
  ARLAB_DEVICE std::uint32_t range_of(const Step& step, Operand operand) const {
    const bool is_input = operand.source() == Operand::input;
    const ElementRange& chunk = call_.chunk[is_input ? step.chunk : operand.index()];
    const auto* elements = global_pointer(
        static_cast<const typename Element::Bits*>(is_input ? call_.input : call_.output));
    const std::size_t stride = static_cast<std::size_t>(call_.blocks) * kTile;
    std::size_t at = chunk.begin + blockIdx.x * kTile + thread_index() * kPerThread;
    std::uint32_t range = Codec::no_range();
    constexpr unsigned kAtOnce = 4;
    const bool aligned = call_.aligned && chunk.begin % kPerThread == 0;
    while (aligned && at + (kAtOnce - 1) * stride + kPerThread <= chunk.end) {
      Pack8<Element> x[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i)
        x[i] = load_elements<Element>(elements + at + i * stride, kPerThread);
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i)
        range = Codec::range_of_both(range, Codec::range_of(x[i]));
      at += kAtOnce * stride;
    }
#pragma unroll 1
    for (; at < /* mutant: rest_not_measured */ chunk.end; at += stride) {
      const std::size_t count = Position{chunk.end, at}.count();
      Pack8<Element> x = load_elements<Element>(elements + at, count);
      // In place of what is behind the end: the first of these elements again.
#pragma unroll
      for (std::size_t i = 1; i < kPerThread; ++i) {
        const std::uint32_t first = (x.word[0] & 0xFFFF) << (i % 2 * 16);
        if (i >= count) x.word[i / 2] = (x.word[i / 2] & (0xFFFFu << ((i + 1) % 2 * 16))) | first;
      }
      range = Codec::range_of_both(range, Codec::range_of(x));
    }
    return range;
  }

  /// Never 0, which is what words are of blocks that have not measured anything yet.
  ARLAB_DEVICE std::uint32_t number() const { return (before_ + measurements_) | 0x80000000u; }

  ARLAB_DEVICE void tell(int messages) const {
    const auto message = static_cast<int>(thread_index());
    if (message >= messages) return;
    std::uint32_t range = Codec::no_range();
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave)
      range = Codec::range_of_both(range, memory_.of_wave[message][wave]);
    store_relaxed(words_of(message) + blockIdx.x, range | static_cast<std::uint64_t>(number())
                                                              << 32);
  }
  /// A wave for each message.
  ARLAB_DEVICE void wait(int messages) const {
    const auto message = static_cast<int>(thread_index() / 32);
    const unsigned lane = thread_index() % 32;
    std::uint32_t range = Codec::no_range();
    std::uint32_t reason = 0;
    Watchdog watchdog(call_.team, call_.team.rank);
#pragma unroll 1
    for (unsigned block = lane; message < messages && block < static_cast<unsigned>(call_.blocks);
         block += 32) {
      const std::uint64_t* word = words_of(message) + block;
      std::uint64_t seen = load_relaxed(word);
      // mutant: old_range
      while (seen >> 32 != number() && reason == 0) {
        reason = watchdog.expired();
        seen = load_relaxed(word);
      }
      range = Codec::range_of_both(range, static_cast<std::uint32_t>(seen));
    }
    if (reason != 0) give_up(call_.team, reason, memory_.failed);
    range = smallest_of_lanes<5>(range, 5, both());
    if (message < messages && lane == 0) memory_.range[message] = range;
  }
  ARLAB_DEVICE std::uint64_t* words_of(int message) const {
    return global_pointer(call_.team.measured)
        ->of(before_ + measurements_, message, call_.team.layout.blocks);
  }

  const ProgramCall& call_;
  MeasuringMemory& memory_;
  const std::uint32_t before_;  // measurements
  std::uint32_t measurements_ = 0;
};

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    measured_program_kernel(ARLAB_KERNEL_PARAMETER ProgramCall call,
                            ARLAB_KERNEL_PARAMETER Codec codec_of_call) {
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(StagingMemory, memory, 1);
  ARLAB_SHARED_ARRAY(MeasuringMemory, measuring_memory, 1);
  const Program& program = call.program;
  Codec codec = codec_of_call;
  Measuring<Codec, Element> measuring(call, measuring_memory[0]);
  ProgramRunner runner(call, failed[0]);
  StepRunner<Codec, Element> steps(call, codec, runner, memory[0]);
  int first_measured = 0;
  const auto run_step = [&](int number, int round) ARLAB_INLINED_LAMBDA {
    const Step& step = program.step[number];
    const int message = /* mutant: range_of_another_message */ number - first_measured;
    if (step.encodes) codec.set_range(measuring.range_of_message(message));
    steps.run(step, round);
  };
  // What has to be stored before it is measured.
  if (program.first_send[0] != 0) (void)runner.run_phases({0, 0, false}, run_step);
#pragma unroll 1
  for (int phase = 0; phase < call.last_phase;) {
    int next = phase + 1;
    while (next < call.last_phase && (call.encoding_phases >> next & 1) == 0) ++next;
    first_measured = program.first_send[phase];
    if (!measuring.measure(first_measured, program.first_step[phase + 1])) return;
    if (!runner.run_phases({phase, next, true}, run_step)) return;
    phase = next;
  }
  measuring.end();
  runner.end();
}

hipError_t launch_measured_program(const ProgramCall& call, const TwoPassChoice& codec, DType dtype,
                                   hipStream_t stream) {
  (void)with_message_scale(codec, dtype, [&]<class Codec, class Element>(const Codec& c, Element) {
    static_assert(DeviceCodec<Codec, Element>);
    launch_pdl(measured_program_kernel<Codec, Element>, static_cast<unsigned>(call.blocks), stream,
               call, c);
  });
  return hipGetLastError();
}

std::optional<Tuning> measured_tuning(const TwoPassChoice& codec, DType dtype) {
  std::optional<Tuning> tuning;
  (void)with_message_scale(codec, dtype, [&]<class Codec, class Element>(const Codec&, Element) {
    tuning = Codec::kTuning;
  });
  return tuning;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
