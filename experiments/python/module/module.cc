// arlab._arlab: what the Python package does in C++. Tensors come as addresses and sizes;
// arlab/*.py checks devices, dtypes and shapes.

#include "experiments/python/module/binding.h"

namespace nb = nanobind;

namespace {

/// arlab.Error, and arlab.ArgumentError, which is one and a ValueError.
PyObject* error_class = nullptr;
PyObject* argument_error_class = nullptr;

void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const arlab::python::RaisedInPython& error) {
    error.restore();
  } catch (const arlab::InvalidInput& error) {
    PyErr_SetString(argument_error_class, error.what());
  } catch (const arlab::python::CallFailed& error) {
    PyErr_SetString(error_class, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(error_class, "not enough memory for this call");
  }
}

}  // namespace

NB_MODULE(_arlab, module) {
  // A thread may still be in a call when the program ends; what it uses is not lost.
  nb::set_leak_warnings(false);
  error_class = PyErr_NewExceptionWithDoc("arlab.Error", "What arlab could not do, in one line.",
                                          PyExc_RuntimeError, nullptr);
  const nb::tuple bases = nb::make_tuple(nb::handle(error_class), nb::handle(PyExc_ValueError));
  argument_error_class = PyErr_NewExceptionWithDoc("arlab.ArgumentError",
                                                   "An argument that is wrong, in one line: what, "
                                                   "where, what is allowed. Nothing has been done.",
                                                   bases.ptr(), nullptr);
  module.attr("Error") = nb::handle(error_class);
  module.attr("ArgumentError") = nb::handle(argument_error_class);
  nb::register_exception_translator(translate);
  module.attr("__version__") = ARLAB_VERSION;

  arlab::python::define_codecs(module);
  arlab::python::define_collectives(module);
  arlab::python::define_schedules(module);
  arlab::python::define_distributed(module);
  arlab::python::define_models(module);
  arlab::python::define_kernels(module);
}
