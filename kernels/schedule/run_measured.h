// Any program (program.h) with a codec whose messages have a scale each (codecs/message_scale.h): the blocks of a rank measure,
// together, what a phase encodes, and go on.
#pragma once

#include "kernels/collectives/measuring.h"
#include "kernels/schedule/run_program.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Measures what the steps from `first` on encode, each its message. False when the team has given up.
template <class Codec, class Element>
ARLAB_DEVICE bool measure(const ProgramCall& call, Measuring<Codec, Element>& measuring, int first,
                          int end) {
  const Program& program = call.program;
  int messages = 0;
#pragma unroll 1
  for (; first + messages < end && program.step[first + messages].encodes; ++messages) {
    const Step& step = program.step[first + messages];
    const Operand operand = program.operand[step.first_operand];
    const bool is_input = operand.source() == Operand::input;
    measuring.found(
        messages,
        measuring.range_of(is_input ? call.input : call.output,
                           call.chunk[is_input ? step.chunk : operand.index()], call.aligned));
  }
  return messages == 0 || measuring.measure(messages);
}

template <class Codec, class Element>
ARLAB_DEVICE void run_measured(const ProgramCall& call, const Codec& codec_of_call) {
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(StagingMemory, memory, 1);
  ARLAB_SHARED_ARRAY(MeasuringMemory, measuring_memory, 1);
  const Program& program = call.program;
  Codec codec = codec_of_call;
  Measuring<Codec, Element> measuring(call.team, call.blocks, measuring_memory[0]);
  measuring.begin();
  ProgramRunner runner(call, failed[0]);
  StepRunner<Codec, Element> steps(call, codec, runner, memory[0]);
  int first_measured = 0;
  const auto run_step = [&](int number, int round) ARLAB_INLINED_LAMBDA {
    const Step& step = program.step[number];
    const int message = number - first_measured;
    if (step.encodes) codec = measuring.codec_of(codec_of_call, message);
    steps.run(step, round);
  };
  // Data have to be stored before they are measured.
  if (program.first_send[0] != 0) (void)runner.run_phases({0, 0, false}, run_step);
#pragma unroll 1
  for (int phase = 0; phase < call.last_phase;) {
    int next = phase + 1;
    while (next < call.last_phase && (call.encoding_phases >> next & 1) == 0) ++next;
    first_measured = program.first_send[phase];
    if (!measure(call, measuring, first_measured, program.first_step[phase + 1])) return;
    if (!runner.run_phases({phase, next, true}, run_step)) return;
    phase = next;
  }
  measuring.end();
  runner.end();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
