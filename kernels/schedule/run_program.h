// Any program (program.h) with a codec that encodes a tile as soon as it is there.
#pragma once

#include "kernels/collectives/staging_buffer.h"
#include "kernels/schedule/runner.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// f(first, results) for parts of a batch of so many tiles as there is room for sums of.
template <class Sum, class Element, int kBatch, class F>
ARLAB_DEVICE void for_each_part(int count, Pack8<Element> (&result)[kBatch], F f) {
  constexpr int kAtOnce = kBatch < Sum::kAtOnce ? kBatch : Sum::kAtOnce;
  static_assert(kBatch % kAtOnce == 0);
#pragma unroll
  for (int first = 0; first < kBatch; first += kAtOnce) {
    if (first >= count) continue;
    Pack8<Element> part[kAtOnce];
    f(first, part);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) result[first + i] = part[i];
  }
}

/// Work of a block on its tiles of a step's chunk: with whole ones several at a time, where the
/// codec has batches, and with the others one by one.
template <class Codec, class Element>
class StepRunner {
 public:
  ARLAB_DEVICE StepRunner(const ProgramCall& call, const Codec& codec, const ProgramRunner& runner,
                          StagingMemory& memory)
      : call_(call), codec_(codec), runner_(runner), staging_(codec, call, memory) {}

  ARLAB_DEVICE void run(const Step& step, int round) {
    for_each_batch<Codec, kLeastBatch>(
        call_, call_.chunk[step.chunk], round,
        [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
          if (step.passes_on) {
            pass_on(step, 0, static_cast<unsigned>(batch.count) * tile_bytes_of<Codec>(call_));
          } else {
            work_on(step, batch);
          }
        },
        [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
          if (step.passes_on) {
            pass_on(step, tile.slot_offset,
                    static_cast<unsigned>(codec_.wire_bytes(tile.elements)));
          } else {
            work_on(step, tile);
          }
        });
  }

 private:
  using Encoded = typename Codec::Encoded;
  static constexpr int kBatch = Codec::kTuning.batch;
  /// Sharing in a batch costs a single tile more than it saves.
  static constexpr int kLeastBatch = 2;

  ARLAB_DEVICE const Operand& operand(const Step& step, int number) const {
    return call_.program.operand[step.first_operand + number];
  }
  /// The same tile, or batch, of another chunk.
  template <class Tiles>
  ARLAB_DEVICE Tiles in_chunk(const Step& step, unsigned chunk, const Tiles& tiles) const {
    Tiles there = tiles;
    there.begin += call_.chunk[chunk].begin - call_.chunk[step.chunk].begin;
    return there;
  }
  /// Data that this kernel has written are not for loads that may go past its stores.
  ARLAB_DEVICE Pack8<Element> load_sum(std::size_t begin, std::size_t count) const {
    const auto* output = global_pointer(static_cast<const typename Element::Bits*>(call_.output));
    return load_elements<Element>(output + begin + thread_index() * kPerThread, count);
  }

  ARLAB_DEVICE void pass_on(const Step& step, unsigned offset, unsigned bytes) const {
    const std::uint8_t* from = runner_.incoming(operand(step, 0)) + offset;
    runner_.for_each_receiver(step, [&](std::uint8_t* slot) ARLAB_INLINED_LAMBDA {
      copy_wire(from, slot + offset, bytes);
    });
  }

  /// A part of a batch: tiles from `first` on.
  template <int kTiles>
  ARLAB_DEVICE void load(const Step& step, Operand from, const Batch& part, int first,
                         Pack8<Element> (&x)[kTiles]) const {
    if (from.source() == Operand::wire) {
      Encoded encoded[kTiles];
      const unsigned offset = static_cast<unsigned>(first) * tile_bytes_of<Codec>(call_);
      load_batch(codec_, call_, runner_.incoming(from) + offset, part.count, encoded);
      decode_batch(codec_, encoded, part.count, x);
      return;
    }
    const bool is_input = from.source() == Operand::input;
    const Batch there = in_chunk(step, is_input ? step.chunk : from.index(), part);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i >= part.count) continue;
      x[i] = is_input ? part.load<Element>(call_.input, i)
                      : load_sum(there.begin + static_cast<unsigned>(i) * there.stride, kPerThread);
    }
  }

  /// Calls f with the kind of sum that the step makes.
  template <class F>
  ARLAB_DEVICE void with_sums_of(const Step& step, F f) const {
    with_sums<Element, Codec::kClampsFp16Sums, kMaxOperands>(call_.fp32_sums && step.operands > 2,
                                                             f);
  }

  template <class Sum, int kTiles>
  ARLAB_DEVICE void add_up(const Step& step, const Batch& part, int first,
                           Pack8<Element> (&result)[kTiles]) const {
    Sum sum[kTiles];
    int number = 0;
    bool begins = !step.from_zero;
    if (begins && operand(step, 0).source() == Operand::input) {
      // Nothing waits for it before the other operands are on their way, too.
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i < part.count) sum[i].begin_with(part.load<Element>(call_.input, i));
      }
      begins = false;
      ++number;
    }
#pragma unroll 1
    for (; number < step.operands; ++number) {
      Pack8<Element> x[kTiles];
      load(step, operand(step, number), part, first, x);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i >= part.count) continue;
        if (begins) {
          sum[i].begin_with(x[i]);
        } else {
          sum[i].template take<true>(x[i]);
        }
      }
      begins = false;
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i < part.count) result[i] = sum[i].template rounded<true>();
    }
  }
  ARLAB_DEVICE void work_on(const Step& step, const Batch& batch) {
    Pack8<Element> sum[kBatch];
    with_sums_of(step, [&]<class Sum>(std::type_identity<Sum>) ARLAB_INLINED_LAMBDA {
      for_each_part<Sum>(batch.count, sum, [&](int first, auto& part) ARLAB_INLINED_LAMBDA {
        add_up<Sum>(step, batch.from(first), first, part);
      });
    });
    const Batch there = in_chunk(step, step.place, batch);
    if (step.stores_sum) store(there, sum);
    if (!step.encodes) return;
    Encoded wires[kBatch];
    encode_batch(codec_, call_, step.encodings, batch, sum, wires);
    staging_.put(wires, batch.count);
    staging_.fill();
    runner_.for_each_receiver(
        step, [&](std::uint8_t* slot) ARLAB_INLINED_LAMBDA { staging_.send(wires, batch, slot); });
    staging_.next();
    if (!step.stores_decoded) return;
    decode_batch(codec_, wires, batch.count, sum);
    store(there, sum);
  }
  ARLAB_DEVICE void store(const Batch& batch, const Pack8<Element> (&x)[kBatch]) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < batch.count) batch.store(call_.output, i, x[i]);
    }
  }

  ARLAB_DEVICE Pack8<Element> load(const Step& step, Operand from, const Tile& tile) const {
    if (from.source() == Operand::wire) {
      return receive<Element>(codec_, tile, runner_.incoming(from));
    }
    if (from.source() == Operand::input) return tile.load<Element>(call_.input);
    return load_sum(in_chunk(step, from.index(), tile).begin, tile.at().count());
  }
  ARLAB_DEVICE void work_on(const Step& step, const Tile& tile) {
    Pack8<Element> sum;
    with_sums_of(step, [&]<class Sum>(std::type_identity<Sum>) ARLAB_INLINED_LAMBDA {
      Sum partial;
      int number = 0;
      if (!step.from_zero) partial.begin_with(load(step, operand(step, number++), tile));
#pragma unroll 1
      for (; number < step.operands; ++number) {
        partial.template take<true>(load(step, operand(step, number), tile));
      }
      sum = partial.template rounded<true>();
    });
    const Tile there = in_chunk(step, step.place, tile);
    if (step.stores_sum) there.store<Element>(call_.output, sum);
    if (!step.encodes) return;
    const Encoded wire = encode(codec_, call_, step.encodings, tile, sum);
    runner_.for_each_receiver(step, [&](std::uint8_t* slot) ARLAB_INLINED_LAMBDA {
      codec_.store(wire, slot + tile.slot_offset, tile.at());
    });
    if (step.stores_decoded) {
      there.store<Element>(call_.output, codec_.decode(wire, tile.at()));
    }
  }

  const ProgramCall& call_;
  const Codec& codec_;
  const ProgramRunner& runner_;
  StagingBuffer<Codec, ProgramCall> staging_;
};

/// Runs a program with a codec that encodes a tile as soon as it is there.
template <class Codec, class Element>
ARLAB_DEVICE void run_program(const ProgramCall& call, const Codec& codec) {
  begin_codec(codec);
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(StagingMemory, memory, 1);
  ProgramRunner runner(call, failed[0]);
  StepRunner<Codec, Element> steps(call, codec, runner, memory[0]);
  runner.run([&](int number, int round)
                 ARLAB_INLINED_LAMBDA { steps.run(call.program.step[number], round); });
}

/// One more call of codecs with random numbers.
ARLAB_DEVICE void count_call(std::uint32_t* calls) {
  if (threadIdx.x == 0) ++*calls;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
