// The program's commands, with one more codec.

#include <cstdio>
#include <exception>

#include "experiments/cli/program.h"

int main(int argc, char** argv) {
  try {
    arlab::cli::run_command_line(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
