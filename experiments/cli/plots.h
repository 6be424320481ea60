// Work of the Python package for the program: pictures, by arlab.figures as a child process, and whole commands.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/lab/result.h"

namespace arlab::cli {

/// Runs `python -m arlab.figures KIND` with these arguments. Throws InvalidInput when that says in one line what is wrong (a
/// picture cannot be written), else CheckFailed with what to do, where its output went to stderr; both name `kept`, the
/// results without the picture.
void draw(const std::string& kind, const std::vector<std::string>& arguments,
          const std::string& kept);

/// Likewise. Data is its standard input, so that no temporary file can be left behind.
void draw(const lab::Picture& picture);

/// Goes on as Python: as the function main() of a module of the package, with one argument. It has this process's stdin,
/// stdout, stderr and signals, and its exit code is ours. Where the module, or what it needs, is not there, one line says
/// what `purpose` needs, and what installs it. Throws InvalidInput when Python cannot be started.
[[noreturn]] void become_python(const std::string& module, const std::string& argument,
                                const std::string& purpose);

/// Prints a result after its pictures are there, so that they are written even if the reader stops; and prints it, too, where
/// they fail.
void print_last(const std::function<void()>& draw, const std::function<void()>& print);

}  // namespace arlab::cli
