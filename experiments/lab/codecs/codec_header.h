// Codecs of a user's own header, `--codec-header my_codec.h`: the system's C++ compiler makes a library of it, which the cache of
// compiled kernels keeps.
#pragma once

#include <string>
#include <vector>

#include "reference/codecs/header_codec.h"

namespace arlab::lab {

/// A header and what was made of it: all that another process needs.
struct CompiledHeader {
  CodecHeader header;
  std::string library;  ///< the bytes of the shared library
};

/// Throws InvalidInput, in one line with the header's file and line: for what cannot be read or compiled; where the library is
/// not in the cache and there is no compiler.
CompiledHeader compiled_header(const std::string& file);

/// Makes its codecs known and returns their names. Throws InvalidInput as register_header_codecs() does.
std::vector<std::string> register_compiled_header(const CompiledHeader& compiled);

/// The header to begin with: the worked example of CONTRIBUTING.md.
std::string example_codec();

/// Help of the option --codec-header.
inline constexpr const char* kCodecHeaderHelp =
    "Load a codec from this C++ header (arlab new codec NAME --header FILE.h writes one)";

}  // namespace arlab::lab
