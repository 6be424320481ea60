// A test's view of the driver that stands in the place of a GPU's.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <map>
#include <string>

struct FakeCalls {
  std::map<std::string, int> calls;
  std::map<std::string, int> failures;  ///< a function's name, and what it returns
  std::size_t handles = 100;
  /// The last launch's first parameter.
  int parameter = 0;

  int said(const char* name) {
    ++calls[name];
    const auto failure = failures.find(name);
    return failure == failures.end() ? 0 : failure->second;
  }
  /// A number from 101 on.
  template <class Handle>
  void make(Handle* handle) {
    *handle = reinterpret_cast<Handle>(++handles);
  }
};

/// Fake of AMD's GPUs, with the last launch.
struct FakeHip : FakeCalls {
  std::array<unsigned, 3> blocks{};
  unsigned threads = 0;
  unsigned shared_bytes = 0;
  std::string module_begin;  ///< the last one's
};

/// The fake in a library that the process uses, or will use.
template <class Fake>
Fake& fake_in(const char* library) {
  void* const at = dlsym(dlopen(library, RTLD_NOW), "fake_driver");
  return *reinterpret_cast<Fake* (*)()>(at)();
}
