// A list of words, as one text: a line for each is most of a list.
#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace arlab::testing {

inline std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

}  // namespace arlab::testing
