// Requests and answers of the lab as Python has them.
#pragma once

#include <functional>
#include <string_view>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/result.h"
#include "experiments/python/module/binding.h"

namespace arlab::python {

/// Sets the fields that a dict names; None is not set. Lists of numbers are taken where a text is expected: 0,2,4. Throws
/// InvalidInput for other names, and for values that are not allowed.
void set_fields(const std::vector<BoundField>& fields, const nb::dict& values);

/// A field's name, kind, help and default, which is None where it is calculated: then `default_words` say how.
nb::dict description(const Field& field, const FieldValue& otherwise);

/// An algorithm by name or a schedule, with the algorithm's options.
lab::CollectiveSpec collective_spec(const nb::object& algorithm, const nb::dict& options);

/// Figures by name, rows as a list of dicts; an SQNR that JSON writes as "inf" is a float.
nb::dict to_python(const lab::Result& result);
nb::list rows_of(const lab::Table& table);
nb::dict to_python(const std::vector<lab::Figure>& figures);
nb::object to_python(const lab::Cell& value);

/// Calls `progress`, unless that is None, and raises what a signal does.
std::function<void(std::string_view)> listener_of(const nb::object& progress);

}  // namespace arlab::python
