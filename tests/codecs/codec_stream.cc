// codec_stream CODEC DTYPE encode|clamped|decode N: encodes or decodes raw tensors of N elements,
// as many as stdin holds, to stdout; `clamped` writes the count of clamped elements of each, 8
// bytes. codec_stream synthetic DTYPE SPEC N: writes N elements of make_synthetic(SPEC).
//
// For a test that has another implementation to compare with.
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/tensors/synthetic.h"

static_assert(std::endian::native == std::endian::little, "the streams are little-endian");

namespace {

using Bytes = std::vector<std::byte>;

void write_all(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) {
    arlab::fail("cannot write to stdout");
  }
}

/// Calls convert(in, out) for every in.size() bytes of stdin and writes out.
void convert_stdin(Bytes in, Bytes out, const std::function<void(const Bytes&, Bytes&)>& convert) {
  for (;;) {
    const std::size_t count = std::fread(in.data(), 1, in.size(), stdin);
    if (count == 0) return;
    if (count != in.size()) arlab::fail("stdin ends within a tensor");
    convert(in, out);
    write_all(out);
  }
}

void run(std::string_view codec_name, std::string_view dtype_name, std::string_view action,
         std::size_t elements) {
  if (codec_name == "synthetic") {
    write_all(arlab::make_synthetic(action, arlab::parse_dtype(dtype_name), 1, elements).bytes());
    return;
  }
  const arlab::CodecPtr codec = arlab::find_codec(codec_name);
  const arlab::DType dtype = arlab::parse_dtype(dtype_name);
  const Bytes payload(elements * arlab::size_of(dtype));
  const Bytes wire(codec->wire_bytes(dtype, elements));
  if (action == "encode") {
    convert_stdin(payload, wire,
                  [&](const Bytes& in, Bytes& out) { codec->encode(dtype, in, out); });
  } else if (action == "decode") {
    convert_stdin(wire, payload,
                  [&](const Bytes& in, Bytes& out) { codec->decode(dtype, in, out); });
  } else if (action == "clamped") {
    convert_stdin(payload, Bytes(8), [&, ignored = wire](const Bytes& in, Bytes& out) mutable {
      arlab::EncodeCounts counts;
      codec->encode(dtype, in, ignored, &counts);
      const auto bytes = std::as_bytes(std::span(&counts.clamped, 1));
      out.assign(bytes.begin(), bytes.end());
    });
  } else {
    arlab::fail("unknown action '{}': allowed are encode, decode, clamped", action);
  }
}

std::optional<std::size_t> parse_count(std::string_view text) {
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count == 0) return std::nullopt;
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<std::size_t> elements = parse_count(argc == 5 ? argv[4] : "");
  if (!elements) {
    std::fputs(
        "usage: codec_stream CODEC DTYPE encode|clamped|decode N, or codec_stream synthetic DTYPE "
        "SPEC N\n",
        stderr);
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], *elements);
    return std::fflush(stdout) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "codec_stream: %s\n", error.what());
    return 2;
  }
}
