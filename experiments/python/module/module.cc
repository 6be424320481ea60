// arlab._arlab: what the Python package does in C++. Tensors come as addresses and sizes;
// arlab/*.py checks devices, dtypes and shapes.

#include "experiments/python/module/binding.h"
#include "reference/codecs/registry.h"

namespace nb = nanobind;

namespace {

/// arlab.Error, and arlab.ArgumentError, which is one and a ValueError: the package keeps them alive.
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
  const nb::module_ errors = nb::module_::import_("arlab._errors");
  error_class = errors.attr("Error").ptr();
  argument_error_class = errors.attr("ArgumentError").ptr();
  nb::register_exception_translator(translate);
  module.attr("__version__") = ARLAB_VERSION;
  arlab::way_to_own_codecs = "; your own: @arlab.codec, or arlab.codec_from_header() for C++";

  arlab::python::define_codecs(module);
  arlab::python::define_collectives(module);
  arlab::python::define_schedules(module);
  arlab::python::define_questions(module);
  arlab::python::define_distributed(module);
  arlab::python::define_models(module);
  arlab::python::define_kernels(module);
}
