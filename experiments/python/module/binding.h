// Common parts of the sources of the Python package's compiled part.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/codecs/context.h"
#include "reference/definitions.h"
#include "reference/dtype.h"
#include "reference/error.h"

namespace arlab::python {

namespace nb = nanobind;

/// A failure that is not an argument's fault: arlab.Error in Python.
class CallFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Functions that add each source's part to the module.
void define_codecs(nb::module_& module);       // the reference's, and codecs in Python
void define_collectives(nb::module_& module);  // the reference's executor; commands
void define_schedules(nb::module_& module);    // schedules, their builder, algorithms in Python
void define_questions(nb::module_& module);    // the lab's
void define_distributed(nb::module_& module);  // studies and sweeps, shared by processes
void define_models(nb::module_& module);       // language models
void define_kernels(nb::module_& module);      // platforms and the check of all-reduces

/// Returns the result of `call`; other threads of Python go on meanwhile.
template <class Call>
auto without_python(Call call) {
  const nb::gil_scoped_release others_may_run;
  return call();
}

/// Python hands tensors over as integers.
inline const void* address(std::uintptr_t pointer) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<const void*>(pointer);
}
inline std::span<const std::byte> bytes_at(std::uintptr_t pointer, std::size_t bytes) {
  return {static_cast<const std::byte*>(address(pointer)), bytes};
}

/// EncodeContext but for its state: seed, call, rank, world_size, step, chunk, position.
using ContextNumbers = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t,
                                  std::uint32_t, std::uint32_t, std::uint64_t>;
inline EncodeContext context_of(const ContextNumbers& numbers) {
  const auto& [seed, call, rank, world_size, step, chunk, position] = numbers;
  return {seed, call, rank, world_size, step, chunk, position, {}};
}

/// An array of uint8 that owns the bytes.
inline nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> array_of(std::vector<std::byte> bytes) {
  auto owned = std::make_unique<std::vector<std::byte>>(std::move(bytes));
  auto* const data = reinterpret_cast<std::uint8_t*>(owned->data());
  const std::size_t size = owned->size();
  const nb::capsule owner(owned.release(), [](void* pointer) noexcept {
    delete static_cast<std::vector<std::byte>*>(pointer);
  });
  return {data, {size}, owner};
}

/// A function of Python that C++ keeps for ever: when the program ends, there is no Python any more to
/// give it back to.
class KeptFunction {
 public:
  explicit KeptFunction(nb::callable function) : function_(function.release().ptr()) {}
  nb::handle get() const { return function_; }

 private:
  PyObject* function_;
};

/// Returns the text of an exception of Python for a message, whatever its own functions for that do.
inline std::string said_by(const nb::python_error& error) {
  const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));
  const nb::object bytes =
      nb::steal(text.is_valid() ? PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace")
                                : nullptr);
  if (bytes.is_valid()) return PyBytes_AsString(bytes.ptr());
  PyErr_Clear();
  return "an exception without a text";
}

/// Wrong input that Python has found: where it gets back to Python, it is the very exception that was
/// raised, with its traceback and its cause.
class RaisedInPython : public RaisedByCaller {
 public:
  explicit RaisedInPython(nb::python_error&& error)
      : RaisedByCaller(said_by(error)),
        raised_(std::make_shared<nb::python_error>(std::move(error))) {}

  void restore() const { raised_->restore(); }

 private:
  std::shared_ptr<nb::python_error> raised_;
};

/// Calls a function of Python, from a thread that does not hold its lock; `call` makes the call. The
/// functions are those of arlab/*.py: their exceptions say in one line what went wrong, and are thrown as InvalidInput.
/// KeyboardInterrupt and SystemExit are no errors: nobody on the way is to catch them.
template <class Call>
void call_python(const KeptFunction& function, Call call) {
  const nb::gil_scoped_acquire python;
  try {
    call(function.get());
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    throw RaisedInPython(std::move(error));
  }
}

/// Keeps a definition's fingerprint: a function of Python without arguments, which returns it when asked.
inline void keep_python_fingerprint(const std::string& kind, const std::string& name,
                                    const nb::callable& fingerprint) {
  keep_fingerprint(kind, name, [function = KeptFunction(fingerprint)] {
    std::string text;
    call_python(function, [&](nb::handle python) { text = nb::cast<std::string>(python()); });
    return text;
  });
}

}  // namespace arlab::python
