// A block's way through a program: what the kernels of all codecs share.
#pragma once

#include "kernels/schedule/program_call.h"
#include "kernels/transport/flags.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The way through the phases, and where wires are.
class ProgramRunner {
 public:
  ARLAB_DEVICE ProgramRunner(const ProgramCall& call, std::uint32_t& failed)
      : call_(call), exchange_(call.team, failed) {}

  /// Calls run_step(number, round) for every step of the call's phases, in order, and the exchanges in
  /// between.
  template <class RunStep>
  ARLAB_DEVICE void run(RunStep run_step) {
    if (run_phases({call_.first_phase, call_.last_phase, call_.begins_with_sends}, run_step)) end();
  }

  /// Phases that all rounds go through before anything else.
  struct Phases {
    int first;
    int last;
    bool begin_with_sends;  ///< data that arrived in the first have been stored
  };
  /// False when the team has given up; else end() is to follow in the end.
  template <class RunStep>
  ARLAB_DEVICE bool run_phases(Phases phases, RunStep run_step) {
    const Program& program = call_.program;
    const int last_of_all = program.phases - 1;
#pragma unroll 1
    for (int round = 0; round < call_.rounds; ++round) {
#pragma unroll 1
      for (int phase = phases.first; phase <= phases.last; ++phase) {
        const bool sends_only = phase == phases.first && phases.begin_with_sends;
        // The sends of the last phase come later, or are another kernel's.
        const bool stores_only = phase == phases.last && phase != last_of_all;
        const int end = stores_only ? program.first_send[phase] : program.first_step[phase + 1];
#pragma unroll 1
        for (int step = sends_only ? program.first_send[phase] : program.first_step[phase];
             step < end; ++step) {
          if (program.step[step].copies_input && call_.input == call_.output) continue;
          run_step(step, round);
        }
        if (phase == phases.last) break;
        exchange_.signal();
        if (!exchange_.wait()) return false;
        if (round + 1 == call_.rounds && phase + 1 == call_.last_phase) pdl_trigger();
      }
    }
    return true;
  }
  ARLAB_DEVICE void end() { exchange_.end(); }

  ARLAB_DEVICE const std::uint8_t* incoming(Operand wire) const {
    return exchange_.incoming(static_cast<int>(wire.rank()), wire.age()) + offset(wire.index());
  }

  /// f of where the wire of a step goes, for every rank that gets it.
  template <class F>
  ARLAB_DEVICE void for_each_receiver(const Step& step, F f) const {
    std::uint32_t to = step.to;
#pragma unroll 1
    for (int rank = 0; to != Step::kNowhere; ++rank) {
      const std::uint32_t number = to & 15;
      to = to >> 4 | 0xF0000000;
      if (number != 15) f(exchange_.outgoing(rank) + offset(number));
    }
  }

 private:
  /// Where a wire begins in its slot.
  ARLAB_DEVICE std::size_t offset(unsigned number) const {
    return std::size_t{number} * static_cast<unsigned>(call_.tiles_per_slot) * call_.tile_bytes;
  }

  const ProgramCall& call_;
  FlagExchange exchange_;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
