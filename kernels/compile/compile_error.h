// Messages of a compiler about a user's header, as the header's author needs them.
#pragma once

#include <string>
#include <string_view>

#include "reference/codecs/header_codec.h"

namespace arlab::kernels {

/// "my_codec.h:25:18: error: 'x' was not declared", or "my_codec.h(25): error: identifier "x" is undefined".
struct CompileError {
  std::string file;  ///< empty where it is about none
  std::string line;
  std::string text;
};

/// The first one of a log.
CompileError compile_error_in(std::string_view log);

/// In one line, at its place in the header. `is_ours`: it is in a file of arlab's, and the struct is what is wrong.
std::string text_of(const CompileError& error, const CodecHeader& header, bool is_ours);

/// The same of a compiler that has all files in memory, under the names of `header`.
std::string text_of(const CompileError& error, const CodecHeader& header);

}  // namespace arlab::kernels
