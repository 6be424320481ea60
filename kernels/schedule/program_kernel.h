// The kernel that runs any program (program.h) with a codec that encodes a tile as soon as it is
// there: to be included where it is compiled.
#pragma once

#include "kernels/collectives/launch.h"
#include "kernels/schedule/runner.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    program_kernel(ARLAB_KERNEL_PARAMETER ProgramCall call, ARLAB_KERNEL_PARAMETER Codec codec) {
  wait_for_kernel_before();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ProgramRunner runner(call, failed[0]);

  runner.run([&](int number, int round) ARLAB_INLINED_LAMBDA {
    const Step& step = call.program.step[number];
    const Operand* operands = call.program.operand + step.first_operand;
    const ElementRange& chunk = call.chunk[step.chunk];
    const auto tile_in = [&](unsigned place, const Tile& tile) ARLAB_INLINED_LAMBDA {
      Tile there = tile;
      there.begin = tile.begin - chunk.begin + call.chunk[place].begin;
      there.whole = tile.elements == kTile && call.aligned && there.begin % kPerThread == 0;
      return there;
    };
    const auto load = [&](Operand operand, const Tile& tile) ARLAB_INLINED_LAMBDA {
      if (operand.source() == Operand::wire) {
        return receive<Number>(codec, tile, runner.incoming(operand));
      }
      if (operand.source() == Operand::input) return tile.load<Number>(call.input);
      // What this kernel has written is not for loads that may go past what it has written.
      const Tile there = tile_in(operand.index(), tile);
      const auto* from =
          global_pointer(static_cast<const typename Number::Bits*>(call.output)) + there.begin;
      return load_elements<Number>(from + thread_index() * kPerThread, there.at().count());
    };
    for_each_tile(call, chunk, round, [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
      if (step.passes_on) {
        const std::uint8_t* from = runner.incoming(operands[0]) + tile.slot_offset;
        runner.for_each_receiver(step, [&](std::uint8_t* slot) ARLAB_INLINED_LAMBDA {
          runner.copy(from, slot + tile.slot_offset, codec.wire_bytes(tile.elements));
        });
        return;
      }
      Eight<Number> sum;
      int i = 0;
      if (!step.from_zero) sum = load(operands[i++], tile);
#pragma unroll 1
      for (; i < step.operands; ++i) {
        sum = add<Number, Codec::kClampsFp16Sums>(sum, load(operands[i], tile));
      }
      if (step.stores_sum) tile_in(step.place, tile).template store<Number>(call.output, sum);
      if (!step.encodes) return;
      const auto encoded = codec.encode(sum, tile.at());
      runner.for_each_receiver(step, [&](std::uint8_t* slot) ARLAB_INLINED_LAMBDA {
        codec.store(encoded, slot + tile.slot_offset, tile.at());
      });
      if (step.stores_decoded) {
        tile_in(step.place, tile)
            .template store<Number>(call.output, codec.decode(encoded, tile.at()));
      }
    });
  });
}

template <class Codec, class Number>
void launch_program_of(const Codec& codec, Number, const ProgramCall& call, hipStream_t stream) {
  launch_behind(program_kernel<Codec, Number>, static_cast<unsigned>(call.blocks), stream, call,
                codec);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
