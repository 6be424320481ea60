// Any program (program.h) with a codec whose groups other kernels have measured.
#pragma once

#include "kernels/codecs/sums.h"
#include "kernels/codecs/two_pass_tile.h"
#include "kernels/schedule/runner.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A tile of a message in this block's slots. Tiles of a unit lie side by side.
struct MessageTile {
  std::size_t begin;       ///< the tile's, in the message
  std::size_t unit_begin;  ///< its unit's
  std::size_t unit_at;     ///< the unit's wire's, in a slot

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

template <class Codec, class Element>
ARLAB_DEVICE void run_two_pass(const ProgramCall& call, const Codec& codec) {
  using Bits = typename Element::Bits;
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
            step, [&](std::uint8_t* slot) { copy_wire(from, slot + at, call.tile_bytes); });
        return;
      }
      if (step.encodes) {
        const MessageElements<Codec, Element> message{elements_of(operands[0]), chunk.size()};
        const auto encoded = encode_tile(codec, message, statistics, tile.begin, shared);
        runner.for_each_receiver(step, [&](std::uint8_t* slot) {
          std::uint8_t* wire = slot + tile.offset(call, tile.begin);
          store_encoded(codec, encoded, TileWire<Codec>{codec, wire, chunk.size(), tile.begin},
                        tile.begin + mine);
        });
        return;
      }
      const Position at{chunk.size(), tile.begin + mine};
      const auto value_of = [&](const Operand& operand) {
        if (operand.source() != Operand::wire) {
          return load_elements<Element>(elements_of(operand) + at.first, at.count());
        }
        auto* slot = const_cast<std::uint8_t*>(runner.incoming(operand));
        return decode_tile<Element>(
            codec, chunk.size(), tile.begin, shared, [&](std::size_t begin) {
              return TileWire<Codec>{codec, slot + tile.offset(call, begin), chunk.size(), begin};
            });
      };
      with_sums<Element, Codec::kClampsFp16Sums, kMaxOperands>(
          call.fp32_sums && step.operands > 2, [&]<class Sum>(std::type_identity<Sum>) {
            Sum sum;
            int i = 0;
            if (!step.from_zero) sum.begin_with(value_of(operands[i++]));
#pragma unroll 1
            for (; i < step.operands; ++i) sum.template take<true>(value_of(operands[i]));
            auto* output =
                global_pointer(static_cast<Bits*>(call.output)) + call.chunk[step.place].begin;
            store_elements<Element>(output + at.first, sum.template rounded<true>(), at.count());
          });
    });
  });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
