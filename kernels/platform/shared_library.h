// Libraries of drivers and compilers, loaded by name when they are first needed.
#pragma once

#include <optional>
#include <string>

#include "kernels/runtime/status.h"

namespace arlab::kernels {

/// Stays until the process ends: its threads may still run.
class SharedLibrary {
 public:
  /// By a name that the dynamic linker looks for, or by a path. The error is one line.
  static Result<SharedLibrary> open(const std::string& file);
  /// If the process has it already.
  static std::optional<SharedLibrary> loaded(const std::string& file);

  /// Sets `function`, and says whether the library has it.
  template <class Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(symbol(name));
    return function != nullptr;
  }

  /// The file that was loaded.
  std::string path() const;

 private:
  explicit SharedLibrary(void* library) : library_(library) {}
  void* symbol(const char* name) const;

  void* library_;
};

/// The value of an environment variable; empty where it is not set.
std::string environment(const char* name);

}  // namespace arlab::kernels
