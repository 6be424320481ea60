// Codecs that the reference knows and kernels do not, in Python or of a user's header, on emulated GPUs: where the device code of
// other codecs would run, a block puts its tile together and has the codec itself encode it. So schedules and protocols are
// checked with it; to be included by the kernels of emulated GPUs only.
#pragma once

#include <exception>
#include <mutex>
#include <thread>

#include "kernels/codecs/kernels_of_format.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/header_codec.h"
#include "reference/codecs/wire_chunks.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The codec, and what it threw when a kernel asked it last.
class HostCodec {
 public:
  /// A thread's part of a tile's wire: 64 bits per element.
  static constexpr std::size_t kBytesPerThread = 8 * kPerThread;

  explicit HostCodec(CodecPtr codec)
      : codec_(std::move(codec)), of_header_(codec_header_of(codec_->name())) {}

  /// Whether it works on tiles: blocks that fill them, and wires that follow each other as those of tiles do, or are those of
  /// scaled_format.h.
  static bool can(const Codec& codec) {
    const CodecInfo& info = codec.info();
    const bool is_users = info.least_call_elements != 0 || codec_header_of(codec.name());
    return is_users && !info.is_of_reference_only() && !info.shares_scales &&
           !info.clamps_fp16_sums && info.splits_at_alignment && kTile % info.alignment == 0 &&
           std::ranges::all_of(info.dtypes, [&](DType dtype) {
             return codec.wire_bytes(dtype, kTile) <= kBytesPerThread * kThreads;
           });
  }

  const Codec& codec() const { return *codec_; }
  /// Set for a codec whose wire is that of scaled_format.h.
  const std::optional<CodecOfHeader>& of_header() const { return of_header_; }

  /// Calls f on a thread of its own: it may need more stack than an emulated thread has.
  template <class F>
  void call(F f) const {
    std::thread([&] {
      try {
        f(*codec_);
      } catch (const std::exception& error) {
        const std::scoped_lock lock(mutex_);
        if (failure_.empty()) failure_ = error.what();
      }
    }).join();
  }

  /// Its exception since this was asked last; empty if nothing.
  std::string failure() const {
    const std::scoped_lock lock(mutex_);
    return std::exchange(failure_, {});
  }

 private:
  CodecPtr codec_;
  std::optional<CodecOfHeader> of_header_;
  mutable std::mutex mutex_;
  mutable std::string failure_;
};

template <class Element>
struct OnHost {
  using Bits = typename Element::Bits;
  static constexpr Tuning kTuning = {};
  static constexpr bool kClampsFp16Sums = false;

  const HostCodec* host;

  explicit OnHost(const HostCodec* codec) : host(codec) {}

  /// A thread's part of a tile's wire.
  struct Encoded {
    std::uint8_t bytes[HostCodec::kBytesPerThread];
  };

  std::size_t wire_bytes(std::size_t elements) const {
    return host->codec().wire_bytes(Element::kDType, elements);
  }

  Encoded encode(const Pack8<Element>& x, Position at, const EncodeContext& context) const {
    ARLAB_SHARED_ARRAY(Memory, memory, 1);
    const Part part(*this, at);
    store_elements<Element>(memory[0].elements + thread_index() * kPerThread, x, at.count());
    __syncthreads();
    if (thread_index() == 0) {
      host->call([&](const Codec& codec) {
        codec.encode(Element::kDType, elements_in(memory[0], part), wire_in(memory[0], part),
                     nullptr, context.at(part.first));
      });
    }
    __syncthreads();
    Encoded encoded;
    std::copy_n(memory[0].wire + part.begin, part.size(), encoded.bytes);
    __syncthreads();
    return encoded;
  }

  Pack8<Element> decode(const Encoded& encoded, Position at) const {
    ARLAB_SHARED_ARRAY(Memory, memory, 1);
    const Part part(*this, at);
    std::copy_n(encoded.bytes, part.size(), memory[0].wire + part.begin);
    __syncthreads();
    if (thread_index() == 0) {
      host->call([&](const Codec& codec) {
        codec.decode(Element::kDType, wire_in(memory[0], part), elements_in(memory[0], part));
      });
    }
    __syncthreads();
    const Pack8<Element> x =
        load_elements<Element>(memory[0].elements + thread_index() * kPerThread, at.count());
    __syncthreads();
    return x;
  }

  void store(const Encoded& encoded, std::uint8_t* wire, Position at) const {
    const Part part(*this, at);
    for_each_piece(part, at.elements, [&](std::size_t from, std::size_t bytes, std::size_t to) {
      std::copy_n(encoded.bytes + from, bytes, wire + to);
    });
  }
  Encoded load(const std::uint8_t* wire, Position at) const {
    const Part part(*this, at);
    Encoded encoded;
    for_each_piece(part, at.elements, [&](std::size_t to, std::size_t bytes, std::size_t from) {
      std::copy_n(wire + from, bytes, encoded.bytes + to);
    });
    return encoded;
  }

 private:
  struct Memory {
    Bits elements[kTile];
    alignas(16) std::uint8_t wire[HostCodec::kBytesPerThread * kThreads];
  };

  /// Where the block's tile is in the message, and the thread's part in its wire.
  struct Part {
    std::size_t first;       ///< element of the message where the tile begins
    std::size_t elements;    ///< the tile's
    std::size_t wire_begin;  ///< where its wire begins
    std::size_t wire_size;
    std::size_t begin;  ///< start of the thread's part
    std::size_t end;

    Part(const OnHost& codec, Position at)
        : first(at.first - thread_index() * kPerThread),
          elements(at.elements <= first ? 0 : std::min(at.elements - first, kTile)),
          wire_begin(codec.wire_bytes(first)),
          wire_size(codec.wire_bytes(elements)),
          begin(std::min(wire_size, thread_index() * HostCodec::kBytesPerThread)),
          end(std::min(wire_size, begin + HostCodec::kBytesPerThread)) {}
    std::size_t size() const { return end - begin; }
  };

  /// Calls f(begin, bytes, begin in the message's wire) for what lies together of the thread's part.
  template <class F>
  void for_each_piece(const Part& part, std::size_t elements, F f) const {
    for_each_piece_of_tile(part, elements,
                           [&](std::size_t first, std::size_t bytes, std::size_t to) {
                             const std::size_t begin = std::max(first, part.begin);
                             const std::size_t end = std::min(first + bytes, part.end);
                             if (begin < end)
                               f(begin - part.begin, end - begin, to + (begin - first));
                           });
  }
  /// The same of the whole tile.
  template <class F>
  void for_each_piece_of_tile(const Part& part, std::size_t elements, F f) const {
    const std::optional<CodecOfHeader>& header = host->of_header();
    if (!header) return f(0, part.wire_size, part.wire_begin);
    const std::size_t chunk = part.first / kWireChunk * kWireChunk;
    const std::size_t of_chunk = std::min(kWireChunk, elements - chunk);
    const std::size_t before = part.first - chunk;
    std::size_t from = 0;
    std::size_t to = wire_bytes(chunk);
    for_each_plane(header->bits, [&](unsigned width, unsigned) {
      const std::size_t bytes = plane_bytes(part.elements, width);
      f(from, bytes, to + plane_bytes(before, width));
      from += bytes;
      to += plane_bytes(of_chunk, width);
    });
    f(from, part.wire_size - from, to + before / host->codec().info().block * header->scale_bytes);
  }

  static std::span<std::byte> elements_in(Memory& memory, const Part& part) {
    return {reinterpret_cast<std::byte*>(memory.elements), part.elements * sizeof(Bits)};
  }
  static std::span<std::byte> wire_in(Memory& memory, const Part& part) {
    return {reinterpret_cast<std::byte*>(memory.wire), part.wire_size};
  }
};

class HostCodecKernels final : public ProgramKernels<OnHost, const HostCodec*> {
 public:
  explicit HostCodecKernels(CodecPtr codec)
      : ProgramKernels<OnHost, const HostCodec*>(&codec_), codec_(std::move(codec)) {}
  std::string failure() const override { return codec_.failure(); }

 private:
  HostCodec codec_;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
