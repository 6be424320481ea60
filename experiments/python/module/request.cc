#include "experiments/python/module/request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reference/words.h"

namespace arlab::python {
namespace {

using Json = nlohmann::ordered_json;

/// A number that is whole, such as 64e6 or one of NumPy's, as an integer; nothing for others.
std::optional<nb::object> whole_number(nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return std::nullopt;
  const bool is_index = PyIndex_Check(value.ptr()) != 0;
  if (!is_index && !nb::isinstance<nb::float_>(value)) return std::nullopt;
  if (!is_index && !nb::cast<bool>(value.attr("is_integer")())) return std::nullopt;
  PyObject* const number = is_index ? PyNumber_Index(value.ptr()) : PyNumber_Long(value.ptr());
  if (number != nullptr) return nb::steal(number);
  PyErr_Clear();  // an array of several
  return std::nullopt;
}

/// A whole number or a text as a text; nothing for others.
std::optional<std::string> text_of(nb::handle value) {
  std::string text;
  if (nb::isinstance<nb::bool_>(value)) return std::nullopt;
  if (nb::try_cast(value, text)) return text;
  if (const auto number = whole_number(value)) return nb::cast<std::string>(nb::str(*number));
  const bool is_text = nb::isinstance<nb::float_>(value) || nb::hasattr(value, "__fspath__");
  if (!is_text) return std::nullopt;
  return nb::cast<std::string>(nb::str(value));
}

/// Those of a list or of one.
std::optional<std::vector<std::string>> texts_of(nb::handle value) {
  if (const auto one = text_of(value)) return std::vector<std::string>{*one};
  if (!nb::isinstance<nb::sequence>(value)) return std::nullopt;
  std::vector<std::string> texts;
  for (const nb::handle each : nb::borrow<nb::sequence>(value)) {
    const auto text = text_of(each);
    if (!text) return std::nullopt;
    texts.push_back(*text);
  }
  return texts;
}

/// As the field's kind has it, a list as the command line takes it, too; what it does not allow is for require_allowed() to say.
FieldValue value_of(const BoundField& bound, nb::handle value) {
  const Field& field = bound.field;
  bool flag = false;
  std::int64_t count = 0;
  double number = 0;
  if (value.is_none()) return {};
  if (std::holds_alternative<Text>(field.kind) || std::holds_alternative<Texts>(field.kind)) {
    const auto texts = texts_of(value);
    if (!texts) fail("{}: allowed is a text or a whole number, or several", field.name);
    const std::string text = fmt::format("{}", fmt::join(*texts, ","));
    if (text.find('\0') != text.npos) fail("{}: it has a character NUL", field.name);
    if (std::holds_alternative<Texts>(field.kind)) {
      if (!nb::isinstance<nb::str>(value) || bound.relations.is_one_by_one) return *texts;
      return nb::cast<std::vector<std::string>>(value.attr("split")(","));
    }
    return text;
  }
  if (nb::isinstance<nb::bool_>(value) && nb::try_cast(value, flag)) return flag;
  const std::optional<nb::object> whole = whole_number(value);
  if (whole && nb::try_cast(*whole, count)) {
    if (count < 0) return static_cast<double>(count);
    return static_cast<std::uint64_t>(count);
  }
  if (nb::try_cast(value, number)) return number;
  if (const auto text = text_of(value)) return *text;
  fail("{}: allowed is a number or a text", field.name);
}

nb::object of_json(const Json& json, bool is_decibels) {
  if (json.is_null()) return nb::none();
  if (json.is_boolean()) return nb::bool_(json.get<bool>());
  if (json.is_number_unsigned()) return nb::int_(json.get<std::uint64_t>());
  if (json.is_number_integer()) return nb::int_(json.get<std::int64_t>());
  if (json.is_number_float()) return nb::float_(json.get<double>());
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    if (is_decibels && text == "inf") return nb::float_(HUGE_VAL);
    if (is_decibels && text == "-inf") return nb::float_(-HUGE_VAL);
    return nb::steal(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  }
  if (json.is_array()) {
    nb::list list;
    for (const Json& each : json) list.append(of_json(each, is_decibels));
    return list;
  }
  nb::dict dict;
  for (const auto& [name, value] : json.items()) {
    dict[nb::str(name.c_str())] = of_json(value, name.ends_with("_db"));
  }
  return dict;
}

}  // namespace

void set_fields(const std::vector<BoundField>& fields, const nb::dict& values) {
  for (const auto& [key, value] : values) {
    const auto name = nb::cast<std::string>(key);
    const BoundField* const bound = find(fields, name);
    if (bound == nullptr) {
      std::vector<std::string> known;
      for (const BoundField& each : fields) known.push_back(each.field.name);
      fail("unknown option {}: {}", quote(name), instead_of(name, {known}));
    }
    bound->set(value_of(*bound, value), name);
  }
}

nb::dict description(const Field& field, const FieldValue& otherwise) {
  constexpr const char* kKinds[] = {"flag", "integer", "number", "one_of", "text", "texts"};
  nb::dict about;
  about["name"] = field.name;
  about["kind"] = kKinds[field.kind.index()];
  about["help"] = field.help;
  about["default"] = to_python(lab::Cell(otherwise));
  about["default_words"] = field.default_words();
  return about;
}

lab::CollectiveSpec collective_spec(const nb::object& algorithm, const nb::dict& options) {
  lab::CollectiveSpec spec;
  const Schedule* given = nullptr;
  if (nb::try_cast(algorithm, given) && given != nullptr) {
    spec.given = std::make_shared<const Schedule>(*given);
  } else {
    spec.algorithm = nb::cast<std::string>(algorithm);
  }
  std::vector<BoundField> known;
  for (Field& option : all_options()) known.push_back({std::move(option), &spec.options});
  set_fields(known, options);
  return spec;
}

nb::dict to_python(const std::vector<lab::Figure>& figures) {
  nb::dict dict;
  for (const lab::Figure& figure : figures) {
    dict[nb::str(figure.name.c_str())] = of_json(figure.value, figure.name.ends_with("_db"));
  }
  return dict;
}

nb::list rows_of(const lab::Table& table) {
  nb::list rows;
  for (const auto& row : table.rows) {
    nb::dict dict;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string& name = table.columns[c];
      dict[nb::str(name.c_str())] = of_json(row[c], name.ends_with("_db"));
    }
    rows.append(dict);
  }
  return rows;
}

nb::dict to_python(const lab::Result& result) {
  std::vector<lab::Figure> figures = {{"schema", result.schema}};
  figures.insert(figures.end(), result.figures.begin(), result.figures.end());
  figures.insert(figures.end(), result.details.begin(), result.details.end());
  nb::dict dict = to_python(figures);
  if (!result.rows_name.empty()) dict[nb::str(result.rows_name.c_str())] = rows_of(result.rows);
  dict.update(to_python(result.appendix));
  return dict;
}

nb::object to_python(const lab::Cell& value) { return of_json(value, false); }

std::function<void(std::string_view)> listener_of(const nb::object& progress) {
  return [&progress](std::string_view text) {
    const nb::gil_scoped_acquire python;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!progress.is_none()) progress(nb::str(text.data(), text.size()));
  };
}

}  // namespace arlab::python
