// Compilers of GPU code that are libraries: NVRTC and hipRTC. Both are loaded by name when they are first needed, so that
// no build needs a toolkit. The rest of arlab sees this interface only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/runtime/status.h"

namespace arlab::kernels {

/// A header in memory, under the name that #include has for it.
struct Header {
  std::string name;
  std::string text;
};

/// A translation unit, and how it is compiled.
struct Unit {
  std::string name = {};  ///< stands before errors, as a file's name
  std::string text = {};
  std::span<const Header> headers = {};
  std::string architecture = {};  ///< sm_90, gfx942
  std::vector<std::string> options = {};
};

/// Machine code of one architecture, as the driver loads it.
struct CodeObject {
  std::string bytes = {};
  std::string log = {};  ///< the compiler's messages: warnings, registers if options ask for them
};

/// Safe to use from several threads at once; NVRTC compiles in parallel then, hipRTC one after the other.
class Compiler {
 public:
  Compiler() = default;
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;
  virtual ~Compiler() = default;

  /// As people and golden tables name it: NVRTC 13.0.88.
  virtual std::string version() const = 0;
  /// Differs between any two compilers, and takes no compilation to find. It is part of the key of cached code.
  virtual std::string identity() const = 0;
  /// The library that was loaded.
  virtual std::string file() const = 0;
  virtual std::vector<std::string> architectures() const = 0;
  /// The error names the architecture, and says what would compile for it.
  virtual Status require_compiles(const std::string& architecture) const = 0;

  /// An error is one line: the compiler's first one, with its file and line.
  virtual Result<CodeObject> compile(const Unit& unit) const = 0;
};

/// The newest NVRTC, from 12.8 on, whose code the driver loads; `driver` as cuDriverGetVersion() has it (13000 is 13.0), 0
/// where there is none and any NVRTC will do. Looked for in ARLAB_NVRTC (a file, which is taken alone), where the
/// dynamic linker looks, beside Python's packages, and in /usr/local/cuda*. The error says what is missing and which
/// package has it.
Result<const Compiler*> nvrtc(int driver);

/// hipRTC: ARLAB_HIPRTC (a file, which is taken alone), libhiprtc, or inside libamdhip64.
Result<const Compiler*> hiprtc();

/// The first error of a compiler's log as one line; all of the first line where none is marked as an error.
std::string first_error(std::string_view log);

}  // namespace arlab::kernels
