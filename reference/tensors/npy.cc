#include "reference/tensors/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "reference/tensors/file.h"

namespace arlab {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// No header of a plain array needs more, and version 1.0 cannot hold more.
constexpr std::size_t kMostHeaderBytes = 65535;

/// The dictionary that every .npy file starts with.
struct Header {
  std::string descr;  // element type as NumPy spells it, e.g. "<f2"
  bool fortran_order = false;
  std::vector<std::size_t> shape;
};

/// Reads the header's text: a Python dictionary literal with exactly the three keys
/// 'descr' (a string), 'fortran_order' (a bool) and 'shape' (a tuple of integers).
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string file) : rest_(text), file_(std::move(file)) {}

  Header parse() {
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key");
      expect(':');
      if (key == "descr") {
        once(descr_, key) = string("the element type (structured types are not allowed)");
      } else if (key == "fortran_order") {
        once(fortran_order_, key) = boolean();
      } else if (key == "shape") {
        once(shape_, key) = tuple();
      } else {
        bad(fmt::format("unknown key {}", quote(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (!rest_.empty()) bad(fmt::format("text after the dictionary: {}", quote(rest_)));
    if (!descr_ || !fortran_order_ || !shape_) {
      bad("'descr', 'fortran_order' and 'shape' are not all there");
    }
    return {*std::move(descr_), *fortran_order_, *std::move(shape_)};
  }

 private:
  [[noreturn]] void bad(std::string_view what) const { fail("{}: .npy header: {}", file_, what); }

  void skip_spaces() {
    const std::size_t start = rest_.find_first_not_of(" \t\r\n\f\v");
    rest_.remove_prefix(start == std::string_view::npos ? rest_.size() : start);
  }

  bool accept(char c) {
    skip_spaces();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c)) bad(fmt::format("'{}' expected, found {}", c, quote(rest_)));
  }

  template <typename T>
  std::optional<T>& once(std::optional<T>& value, std::string_view key) const {
    if (value) bad(fmt::format("'{}' is there twice", key));
    return value;
  }

  std::string string(std::string_view what) {
    skip_spaces();
    const char delimiter = rest_.empty() ? '\0' : rest_.front();
    const std::size_t end = rest_.find(delimiter, 1);
    if ((delimiter != '\'' && delimiter != '"') || end == std::string_view::npos) {
      bad(fmt::format("{} expected as a string, found {}", what, quote(rest_)));
    }
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool boolean() {
    skip_spaces();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return value;
      }
    }
    bad(fmt::format("'fortran_order' is not True or False but {}", quote(rest_)));
  }

  std::vector<std::size_t> tuple() {
    std::vector<std::size_t> lengths;
    expect('(');
    while (!accept(')')) {
      lengths.push_back(length());
      if (accept(',')) continue;
      if (lengths.size() == 1) bad("'shape' is not a tuple");
      expect(')');
      break;
    }
    return lengths;
  }

  std::size_t length() {
    skip_spaces();
    if (rest_.starts_with('-')) bad("'shape' has a negative length");
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc::result_out_of_range) bad("'shape' has a length beyond 64 bits");
    if (error != std::errc()) bad(fmt::format("a length expected, found {}", quote(rest_)));
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  std::string_view rest_;
  std::string file_;
  std::optional<std::string> descr_;
  std::optional<bool> fortran_order_;
  std::optional<std::vector<std::size_t>> shape_;
};

Header read_header(InputFile& file) {
  std::array<char, 8> start{};  // the magic, then one byte each of major and minor version
  if (file.remaining() >= start.size()) file.read(start);
  if (!std::string_view(start.data(), start.size()).starts_with(kMagic)) {
    fail("{}: not a .npy file: it does not start with \\x93NUMPY and a version", file.name());
  }
  const int major = static_cast<unsigned char>(start[6]);
  const int minor = static_cast<unsigned char>(start[7]);
  if (major < 1 || major > 3 || minor != 0) {
    fail("{}: .npy version {}.{}: allowed are 1.0, 2.0 and 3.0", file.name(), major, minor);
  }
  std::array<std::byte, 4> length{};  // little endian; two bytes in version 1.0
  file.read(std::span(length).first(major == 1 ? 2 : 4));
  std::size_t header_bytes = 0;
  for (std::size_t i = 0; i < length.size(); ++i) {
    header_bytes |= std::to_integer<std::size_t>(length[i]) << (8 * i);
  }
  if (header_bytes > std::min(kMostHeaderBytes, file.remaining())) {
    fail("{}: the .npy header claims {} bytes: allowed are at most {}, and {} follow", file.name(),
         header_bytes, kMostHeaderBytes, file.remaining());
  }
  std::string text(header_bytes, '\0');
  file.read(std::span(text));
  return HeaderParser(text, file.name()).parse();
}

/// NumPy's name of an element type, e.g. "float32 ('<f4')".
std::string element_type_name(std::string_view descr) {
  constexpr std::array<std::pair<char, std::string_view>, 6> kKinds = {{{'f', "float"},
                                                                        {'i', "int"},
                                                                        {'u', "uint"},
                                                                        {'c', "complex"},
                                                                        {'V', "raw bytes"},
                                                                        {'O', "Python objects"}}};
  std::string name = descr.starts_with('>') ? "big-endian " : "";
  for (const auto& [kind, kind_name] : kKinds) {
    if (descr.size() < 2 || descr[1] != kind) continue;
    name += kind_name;
    if (descr.size() == 3 && descr[2] >= '1' && descr[2] <= '9' && kind != 'V' && kind != 'O') {
      name += std::to_string(8 * (descr[2] - '0'));
    }
  }
  return name.empty() ? quote(descr) : fmt::format("{} ({})", name, quote(descr));
}

/// How to make a file that is allowed, for the end of an error message.
std::string conversion(std::string_view descr, DType dtype) {
  if (descr == "<u2") return "raw 16-bit patterns are fp16 or bf16";
  if (descr.size() < 2 || std::string_view("fiucbV").find(descr[1]) == std::string_view::npos) {
    return "numbers are expected";
  }
  if (descr[1] == 'V') {
    return descr.substr(2) == "2" ? "convert it in Python: numpy.load(file).view('<u2')"
                                  : "numbers are expected";
  }
  switch (dtype) {
    case DType::fp16:
      return "convert it in Python: numpy.load(file).astype('<f2')";
    case DType::bf16:
      return "convert it in Python: numpy.load(file).astype(ml_dtypes.bfloat16).view('<u2')";
    case DType::fp32:
      return "convert it in Python: numpy.load(file).astype('<f4')";
  }
  return "";
}

void check_element_type(const std::string& file, std::string_view descr, DType dtype) {
  std::string_view allowed;
  bool fits = false;
  switch (dtype) {
    case DType::fp16:
      allowed = "float16 ('<f2') or uint16 with raw patterns ('<u2')";
      fits = descr == "<f2" || descr == "<u2";
      break;
    case DType::bf16:
      allowed = "uint16 with raw patterns ('<u2')";
      fits = descr == "<u2";
      break;
    case DType::fp32:
      allowed = "float32 ('<f4')";
      fits = descr == "<f4";
      break;
  }
  if (!fits) {
    fail("{}: holds {}, but dtype {} needs {}: {}", file, element_type_name(descr), name_of(dtype),
         allowed, conversion(descr, dtype));
  }
}

std::string_view descr_of(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return "<f2";
    case DType::bf16:
      return "<u2";
    case DType::fp32:
      return "<f4";
  }
  return "";
}

/// Magic, version, header length and header as numpy.save writes them: room for the first length to
/// grow to 21 digits, then spaces and a newline up to a multiple of 64 bytes.
std::string header_text(const Tensor& tensor) {
  constexpr std::size_t kFirstLengthDigits = 21;
  constexpr std::size_t kAlignment = 64;
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                       descr_of(tensor.dtype), shape_text(tensor.shape));
  if (!tensor.shape.empty()) {
    dictionary.append(kFirstLengthDigits - std::to_string(tensor.shape[0]).size(), ' ');
  }
  const std::size_t prefix_bytes = kMagic.size() + 4;  // version and 16-bit header length
  const std::size_t used = prefix_bytes + dictionary.size() + 1;
  dictionary.append(kAlignment - used % kAlignment, ' ');
  dictionary += '\n';
  if (dictionary.size() > kMostHeaderBytes) {
    fail("a tensor of {} axes does not fit the header of a .npy file", tensor.shape.size());
  }
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(dictionary.size() & 0xff),
           static_cast<char>(dictionary.size() >> 8)};
  return text + dictionary;
}

}  // namespace

Tensor read_npy(const std::filesystem::path& path, std::optional<DType> named_dtype) {
  InputFile file(path);
  Header header = read_header(file);
  if (!named_dtype && header.descr == "<u2") {
    fail("{}: holds uint16 ('<u2') patterns: name their dtype, fp16 or bf16", file.name());
  }
  const DType dtype = named_dtype.value_or(header.descr == "<f4" ? DType::fp32 : DType::fp16);
  check_element_type(file.name(), header.descr, dtype);
  if (header.fortran_order && header.shape.size() > 1) {
    fail("{}: the array is in Fortran order, allowed is C order: {}", file.name(),
         "convert it in Python: numpy.ascontiguousarray(numpy.load(file))");
  }
  const std::optional<std::size_t> bytes = byte_count(dtype, header.shape);
  if (!bytes || *bytes != file.remaining()) {
    fail("{}: shape {} of {} needs {} bytes after the header, {} are there", file.name(),
         quote(shape_text(header.shape)), name_of(dtype),
         bytes ? std::to_string(*bytes) : "more than 2^63", file.remaining());
  }
  Tensor tensor = make_tensor(dtype, std::move(header.shape));
  file.read(tensor.bytes());
  return tensor;
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  const std::string header = header_text(tensor);
  write_file(path, {std::as_bytes(std::span(header)), tensor.bytes()});
}

}  // namespace arlab
