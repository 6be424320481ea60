// Other programs, which are run to their end.
#pragma once

#include <string>
#include <vector>

namespace arlab::lab {

/// How a process ended, and what it said on stderr.
struct Ended {
  bool started = false;
  int status = 0;
  std::string said;
};

/// Runs a program, of PATH, to its end, with these variables as its environment; `input` is its standard input, or -1 for ours.
Ended run_program(std::vector<std::string> words, std::vector<std::string> variables,
                  int input = -1);

/// Pointers to the words and a null pointer, as C functions take them.
std::vector<char*> pointers(std::vector<std::string>& words);

}  // namespace arlab::lab
