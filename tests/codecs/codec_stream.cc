// codec_stream: answers requests of stdin on stdout, one after the other. A request is a line, and behind it BYTES bytes:
//
//   CODEC DTYPE encode|clamped|decode N BYTES   a raw tensor or wire of N elements, encoded or decoded; `clamped`: how many elements
//                                               were clamped, 8 bytes
//   synthetic DTYPE SPEC N 0                    N elements of make_synthetic(SPEC)
//
// An answer is a line with its number of bytes, then these. For a test that has another implementation to compare with: one
// process for thousands of messages.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/tensors/synthetic.h"

static_assert(std::endian::native == std::endian::little, "the streams are little-endian");

namespace {

using Bytes = std::vector<std::byte>;

Bytes copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

Bytes answer(const std::string& codec_name, arlab::DType dtype, const std::string& action,
             std::size_t elements, const Bytes& in) {
  if (codec_name == "synthetic") {
    return copy_of(arlab::make_synthetic(action, dtype, 1, elements).bytes());
  }
  const arlab::CodecPtr codec = arlab::find_codec(codec_name);
  Bytes wire(codec->wire_bytes(dtype, elements));
  Bytes payload(elements * arlab::size_of(dtype));
  if (action == "decode") {
    codec->decode(dtype, in, payload);
    return payload;
  }
  arlab::EncodeCounts counts;
  codec->encode(dtype, in, wire, action == "clamped" ? &counts : nullptr);
  if (action == "clamped") return copy_of(std::as_bytes(std::span(&counts.clamped, 1)));
  if (action == "encode") return wire;
  arlab::fail("unknown action '{}': allowed are encode, decode, clamped", action);
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  std::string codec, dtype, action;
  std::size_t elements = 0, bytes = 0;
  try {
    while (std::cin >> codec >> dtype >> action >> elements >> bytes) {
      std::cin.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
      Bytes in(bytes);
      std::cin.read(reinterpret_cast<char*>(in.data()), static_cast<std::streamsize>(bytes));
      const Bytes out = answer(codec, arlab::parse_dtype(dtype), action, elements, in);
      std::cout << out.size() << '\n';
      std::cout.write(reinterpret_cast<const char*>(out.data()),
                      static_cast<std::streamsize>(out.size()));
      std::cout.flush();
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "codec_stream: %s\n", error.what());
    return 2;
  }
}
