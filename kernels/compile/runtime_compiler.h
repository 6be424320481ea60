// Common parts of NVRTC and hipRTC: a C interface that differs in the names of its functions only.
#pragma once

#include <string>

#include "kernels/compile/compiler.h"
#include "kernels/platform/shared_library.h"

namespace arlab::kernels {

struct RuntimeCompilerNames {
  const char* create;
  const char* destroy;
  const char* compile;
  const char* log_size;
  const char* log;
  const char* code_size;
  const char* code;
  const char* error_string;
};

class RuntimeCompiler {
 public:
  static Result<RuntimeCompiler> of(const SharedLibrary& library,
                                    const RuntimeCompilerNames& names);

  /// With these options and the unit's.
  Result<CodeObject> compile(const Unit& unit, std::vector<std::string> options) const;

 private:
  using Program = void*;

  Result<std::string> text_of(Program program, int (*size_of)(Program, std::size_t*),
                              int (*get)(Program, char*)) const;
  Status status_of(int error) const;

  int (*create_)(Program*, const char*, const char*, int, const char* const*,
                 const char* const*) = nullptr;
  int (*destroy_)(Program*) = nullptr;
  int (*compile_)(Program, int, const char* const*) = nullptr;
  int (*log_size_)(Program, std::size_t*) = nullptr;
  int (*log_)(Program, char*) = nullptr;
  int (*code_size_)(Program, std::size_t*) = nullptr;
  int (*code_)(Program, char*) = nullptr;
  const char* (*error_string_)(int) = nullptr;
};

}  // namespace arlab::kernels
