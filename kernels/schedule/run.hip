// The kernel that runs any program (program.h): with a codec that encodes a tile as soon as it is
// there, or with one whose groups other kernels have measured.
#include <algorithm>

#include "kernels/codecs/measured_tile.h"
#include "kernels/collectives/launch.h"
#include "kernels/schedule/run.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// What both kinds of codecs share: the way through the phases, and where wires are.
class ProgramRunner {
 public:
  ARLAB_DEVICE ProgramRunner(const ProgramCall& call, std::uint32_t& failed)
      : call_(call), exchange_(call.team, failed) {}

  /// Calls run_step(number, round) for every step of the phases, in order, and the exchanges in
  /// between.
  template <class RunStep>
  ARLAB_DEVICE void run(RunStep run_step) {
    const Program& program = call_.program;
    const int last_of_all = program.phases - 1;
#pragma unroll 1
    for (int round = 0; round < call_.rounds; ++round) {
#pragma unroll 1
      for (int phase = call_.first_phase; phase <= call_.last_phase; ++phase) {
        const bool sends_only = phase == call_.first_phase && call_.begins_with_sends;
        // The sends of the last phase are another kernel's.
        const bool stores_only = phase == call_.last_phase && phase != last_of_all;
        const int end = stores_only ? program.first_send[phase] : program.first_step[phase + 1];
#pragma unroll 1
        for (int step = sends_only ? program.first_send[phase] : program.first_step[phase];
             step < end; ++step) {
          run_step(step, round);
        }
        if (phase == call_.last_phase) break;
        exchange_.signal();
        if (!exchange_.wait()) return;
        if (round + 1 == call_.rounds && phase + 1 == call_.last_phase) let_next_kernel_start();
      }
    }
    exchange_.end();
  }

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

  ARLAB_DEVICE void copy(const std::uint8_t* from, std::uint8_t* to, std::size_t bytes) const {
    for (std::size_t at = std::size_t{threadIdx.x} * 16; at < bytes;
         at += std::size_t{kThreads} * 16) {
      store_128(to + at, load_128(from + at));
    }
  }

 private:
  /// Of a wire in a slot.
  ARLAB_DEVICE std::size_t offset(unsigned number) const {
    return std::size_t{number} * static_cast<unsigned>(call_.tiles_per_slot) * call_.tile_bytes;
  }

  const ProgramCall& call_;
  Exchange exchange_;
};

}  // namespace

// ---------------------------------------------------------------- one pass

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Codec>)
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

hipError_t launch_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                          hipStream_t stream) {
  return with_codec(codec, dtype,
                    [&]<class Codec, class Number>(const Codec& device_codec, Number) {
                      launch_behind(program_kernel<Codec, Number>,
                                    static_cast<unsigned>(call.blocks), stream, call, device_codec);
                    });
}

// ---------------------------------------------------------------- two passes

namespace {

/// A tile of a message in this block's slots. Tiles of a unit lie side by side.
struct MessageTile {
  std::size_t begin;       ///< of the tile, in the message
  std::size_t unit_begin;  ///< of its unit
  std::size_t unit_at;     ///< of the unit's wire, in a slot

  /// Where the wire of the unit's tile that begins at `tile_begin` is, in a slot.
  ARLAB_DEVICE std::size_t offset(const ProgramCall& call, std::size_t tile_begin) const {
    return unit_at + (tile_begin - unit_begin) / kTile * call.tile_bytes;
  }
};

/// Calls f for every tile of the message that is this block's in this round.
template <class Codec, class F>
ARLAB_DEVICE void for_each_message_tile(const ProgramCall& call, const Codec& codec,
                                        const ElementRange& message, int round, F f) {
  if (message.size() == 0) return;
  const std::size_t codes = codes_of(codec, message.size());
  const auto per_unit = static_cast<std::size_t>(call.tiles_per_unit);
  const int units_per_slot = call.tiles_per_slot / call.tiles_per_unit;
#pragma unroll 1
  for (int k = 0; k < units_per_slot; ++k) {
    const std::size_t unit = static_cast<std::size_t>(round * units_per_slot + k) *
                                 static_cast<std::size_t>(call.blocks) +
                             blockIdx.x;
    const std::size_t unit_begin = unit * per_unit * kTile;
#pragma unroll 1
    for (std::size_t tile = 0; tile < per_unit; ++tile) {
      const std::size_t begin = unit_begin + tile * kTile;
      if (begin >= codes) return;
      f(MessageTile{begin, unit_begin, static_cast<std::size_t>(k) * per_unit * call.tile_bytes});
    }
  }
}

}  // namespace

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads)
    measured_program_kernel(ARLAB_KERNEL_PARAMETER ProgramCall call,
                            ARLAB_KERNEL_PARAMETER Codec codec) {
  using Bits = typename Number::Bits;
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(float, shared, kTile);
  ProgramRunner runner(call, failed[0]);
  const std::size_t mine = threadIdx.x * kPerThread;

  runner.run([&](int number, int round) {
    const Step& step = call.program.step[number];
    const Operand* operands = call.program.operand + step.first_operand;
    const ElementRange& chunk = call.chunk[step.chunk];
    /// Where a message is that is not on a wire.
    const auto elements_of = [&](Operand operand) -> const Bits* {
      if (operand.source() == Operand::input) {
        return global_pointer(static_cast<const Bits*>(call.input)) + chunk.begin;
      }
      return global_pointer(static_cast<const Bits*>(call.output)) +
             call.chunk[operand.index()].begin;
    };
    const Statistics* statistics =
        global_pointer(call.statistics) +
        static_cast<std::size_t>(number - call.program.first_send[call.first_phase]) * call.groups;
    for_each_message_tile(call, codec, chunk, round, [&](const MessageTile& tile) {
      if (step.passes_on) {
        const std::size_t at = tile.offset(call, tile.begin);
        const std::uint8_t* from = runner.incoming(operands[0]) + at;
        runner.for_each_receiver(
            step, [&](std::uint8_t* slot) { runner.copy(from, slot + at, call.tile_bytes); });
        return;
      }
      if (step.encodes) {
        const MessageElements<Codec, Number> message{elements_of(operands[0]), chunk.size()};
        const auto encoded = encode_tile(codec, message, statistics, tile.begin, shared);
        runner.for_each_receiver(step, [&](std::uint8_t* slot) {
          std::uint8_t* wire = slot + tile.offset(call, tile.begin);
          store_encoded(codec, encoded, TileWire<Codec>{codec, wire, chunk.size(), tile.begin},
                        tile.begin + mine);
        });
        return;
      }
      const Position at{chunk.size(), tile.begin + mine};
      Eight<Number> sum;
#pragma unroll 1
      for (int i = 0; i < step.operands; ++i) {
        Eight<Number> x;
        if (operands[i].source() == Operand::wire) {
          auto* slot = const_cast<std::uint8_t*>(runner.incoming(operands[i]));
          x = decode_tile<Number>(codec, chunk.size(), tile.begin, shared, [&](std::size_t begin) {
            return TileWire<Codec>{codec, slot + tile.offset(call, begin), chunk.size(), begin};
          });
        } else {
          x = load_elements<Number>(elements_of(operands[i]) + at.first, at.count());
        }
        sum = i == 0 && !step.from_zero ? x : add<Number, Codec::kClampsFp16Sums>(sum, x);
      }
      auto* output = global_pointer(static_cast<Bits*>(call.output)) + call.chunk[step.place].begin;
      store_elements<Number>(output + at.first, sum, at.count());
    });
  });
}

hipError_t launch_program(const ProgramCall& call, const MeasuredChoice& codec, DType dtype,
                          hipStream_t stream) {
  with_measured(codec, dtype, [&]<class Codec, class Number>(const Codec& c, Number) {
    hipLaunchKernelGGL(HIP_KERNEL_NAME(measured_program_kernel<Codec, Number>),
                       dim3(static_cast<unsigned>(call.blocks)), dim3(kThreads), 0, stream, call,
                       c);
  });
  return hipGetLastError();
}

MessageTiles message_tiles(const MeasuredChoice& codec, DType dtype, std::size_t elements) {
  MessageTiles result{};
  with_measured(codec, dtype, [&]<class Codec, class Number>(const Codec& c, Number) {
    const std::size_t codes = codes_of(c, elements);
    result.per_unit = static_cast<int>(std::max<std::size_t>(c.transform() / kTile, 1));
    result.bytes = TileWire<Codec>::bytes(c, elements);
    result.tiles = (codes + kTile - 1) / kTile;
  });
  return result;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
