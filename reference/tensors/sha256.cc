// OpenSSL's libcrypto is not used. A wheel that carries a libcrypto.so.3 breaks `import ssl` where the system's libssl.so.3 is
// newer; one that does not fails where there is none (a slim image). libarlab_nccl.so would also load it into every program
// that is run with it.
#include "reference/tensors/sha256.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "reference/error.h"
#include "reference/tensors/file.h"

namespace arlab {
namespace {

/// The first 32 bits of the fractional part of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::size_t kShaBlock = 64;
using ShaState = std::array<std::uint32_t, 8>;

void add_block(ShaState& state, std::span<const std::byte, kShaBlock> block) {
  std::array<std::uint32_t, 64> w = {};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t b = 0; b < 4; ++b) {
      w[i] = w[i] << 8 | std::to_integer<std::uint32_t>(block[4 * i + b]);
    }
  }
  for (std::size_t i = 16; i < w.size(); ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const ShaState after = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += after[i];
}

/// The hash of what follows so many bytes that `state` has taken, whole blocks.
std::string with_last(ShaState state, std::span<const std::byte> bytes, std::uint64_t before) {
  const std::uint64_t bits = 8 * (before + bytes.size());
  while (bytes.size() >= kShaBlock) {
    add_block(state, bytes.first<kShaBlock>());
    bytes = bytes.subspan(kShaBlock);
  }
  // The rest, a bit that is set, zeros, and the length in the last 8 bytes of a block.
  std::array<std::byte, 2 * kShaBlock> last = {};
  std::copy(bytes.begin(), bytes.end(), last.begin());
  last[bytes.size()] = std::byte{0x80};
  const std::size_t end = bytes.size() + 1 + sizeof(bits) <= kShaBlock ? kShaBlock : last.size();
  for (std::size_t i = 0; i < sizeof(bits); ++i) {
    last[end - 1 - i] = static_cast<std::byte>(bits >> (8 * i));
  }
  for (std::size_t at = 0; at < end; at += kShaBlock) {
    add_block(state, std::span(last).subspan(at).first<kShaBlock>());
  }
  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

constexpr ShaState kFirstState = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

}  // namespace

std::string sha256(std::span<const std::byte> bytes) { return with_last(kFirstState, bytes, 0); }

std::string sha256_of_file(const std::filesystem::path& path) {
  InputFile file(path);
  ShaState state = kFirstState;
  std::uint64_t before = 0;
  std::vector<std::byte> part(1024 * kShaBlock);
  while (file.remaining() >= part.size()) {
    file.read(std::span<std::byte>(part));
    for (std::size_t at = 0; at < part.size(); at += kShaBlock) {
      add_block(state, std::span<const std::byte>(part).subspan(at).first<kShaBlock>());
    }
    before += part.size();
  }
  part.resize(file.remaining());
  file.read(std::span<std::byte>(part));
  return with_last(state, part, before);
}

}  // namespace arlab
