// The struct of a codec in the text of a C++ header.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace arlab::lab {

struct FoundStruct {
  std::string name;  ///< with its namespaces: arlab::AbsMax8
  std::size_t line = 0;
};

/// The struct, outside of others, that speaks of kBlock or quantize. Throws InvalidInput where there is none or several; `file`
/// names the text in it.
FoundStruct struct_in_header(std::string_view text, std::string_view file);

}  // namespace arlab::lab
