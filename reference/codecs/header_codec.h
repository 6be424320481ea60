// Codecs of a user's header: the struct of scaled_format.h in a file of its own, compiled by itself (compiled_codec.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/codecs/compiled_codec.h"

namespace arlab {

/// A header that defines codecs, as it was when it was compiled.
struct CodecHeader {
  std::string file;       ///< as the user named it
  std::string structure;  ///< the struct, such as arlab::AbsMax8
  std::size_t line = 0;   ///< where it begins
  /// Names and texts of the header, which is the first, and of those that it includes, but for the system's and arlab's.
  std::vector<std::pair<std::string, std::string>> files;
  std::string hash;  ///< over all of them
};

/// Where a struct begins, and what it is called: "my_codec.h:12: struct AbsMax8".
std::string place_of(const CodecHeader& header);

/// Makes the codecs of a header known, in place of those that a header or register_codec() made known under their names. Returns the
/// names. `codecs` stay for as long as the process. Throws InvalidInput, with the place in the header, where one cannot be: a name is
/// taken, or wires are not what wire_bytes() says.
std::vector<std::string> register_header_codecs(const CodecHeader& header,
                                                const CompiledCodecs& codecs);

/// Parts of a kernel for a codec of a header.
struct CodecOfHeader {
  std::shared_ptr<const CodecHeader> header;
  std::string object;  ///< bytes of the struct that parse() gives for the name
  unsigned bits = 0;
  std::size_t block = 0;
  std::size_t scale_bytes = 0;
  bool stochastic = false;
  bool clamps_fp16_sums = false;
};

/// Nothing for a codec without a header, and for an unknown name.
std::optional<CodecOfHeader> codec_header_of(std::string_view codec);

}  // namespace arlab
