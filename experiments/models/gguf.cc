#include "experiments/models/gguf.h"

#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "experiments/models/gguf_types.h"
#include "reference/error.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"

namespace arlab::models {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little);

// Other types of values than numbers, which stand in kNumbers.
constexpr std::uint32_t kString = 8;
constexpr std::uint32_t kArray = 9;

constexpr std::size_t kMostAxes = 4;
/// A key and an empty text, or a name, an axis, a type and an offset: what an entry takes at least.
constexpr std::size_t kLeastEntry = 12;

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : file_(path), size_(file_.remaining()) {}

  template <class T>
  T read() {
    T value;
    file_.read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  std::string text(std::string_view what) {
    const auto length = read<std::uint64_t>();
    require_left(length, what);
    std::string text(length, '\0');
    file_.read(std::span(text));
    return text;
  }

  /// Throws unless so many bytes are left.
  void require_left(std::uint64_t bytes, std::string_view what) const {
    if (bytes > file_.remaining()) {
      fail("{}: {} claims {} bytes: only {} follow", name(), what, bytes, file_.remaining());
    }
  }
  /// Throws unless so many entries of at least so many bytes can follow.
  void require_entries(std::uint64_t count, std::size_t least, std::string_view what) const {
    if (count > file_.remaining() / least) {
      fail("{}: {} claims {} entries: only {} bytes follow", name(), what, count,
           file_.remaining());
    }
  }

  void skip(std::uint64_t bytes, std::string_view what) {
    require_left(bytes, what);
    file_.skip(bytes);
  }

  std::string name() const { return file_.name(); }
  std::uint64_t position() const { return size_ - file_.remaining(); }
  std::uint64_t size() const { return size_; }

 private:
  InputFile file_;
  std::uint64_t size_;
};

/// A type of numbers, by the number that the format has for it.
struct NumberType {
  std::size_t bytes = 0;  ///< 0: there is none
  Json (*read)(Reader& in) = nullptr;
};

template <class T>
constexpr NumberType kOf = {sizeof(T), [](Reader& in) -> Json { return in.read<T>(); }};

constexpr NumberType kBool = {1, [](Reader& in) -> Json { return in.read<std::uint8_t>() != 0; }};
constexpr NumberType kNumbers[] = {kOf<std::uint8_t>,
                                   kOf<std::int8_t>,
                                   kOf<std::uint16_t>,
                                   kOf<std::int16_t>,
                                   kOf<std::uint32_t>,
                                   kOf<std::int32_t>,
                                   kOf<float>,
                                   kBool,
                                   {},
                                   {},
                                   kOf<std::uint64_t>,
                                   kOf<std::int64_t>,
                                   kOf<double>};

NumberType number_type(std::uint32_t type) {
  return type < std::size(kNumbers) ? kNumbers[type] : NumberType{};
}

Json read_array(Reader& in, const std::string& what) {
  const auto type = in.read<std::uint32_t>();
  const auto count = in.read<std::uint64_t>();
  if (type == kString) {
    in.require_entries(count, sizeof(std::uint64_t), what);
    std::vector<std::string> texts;
    texts.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) texts.push_back(in.text(what));
    return texts;
  }
  const std::size_t each = number_type(type).bytes;
  if (each == 0)
    fail("{}: {} is an array of type {}, which is not supported", in.name(), what, type);
  in.require_entries(count, each, what);
  in.skip(count * each, what);
  return Json::array();
}

Json read_value(Reader& in, std::uint32_t type, const std::string& what) {
  if (type == kString) return in.text(what);
  if (type == kArray) return read_array(in, what);
  const NumberType number = number_type(type);
  if (number.bytes == 0)
    fail("{}: {} is of type {}, which is not supported", in.name(), what, type);
  return number.read(in);
}

/// Nothing when it cannot be counted in 63 bits.
std::optional<std::uint64_t> element_count(const std::vector<std::size_t>& shape) {
  std::uint64_t count = 1;
  for (const std::size_t extent : shape) {
    if (extent != 0 && count > (std::uint64_t{1} << 62) / extent) return std::nullopt;
    count *= extent;
  }
  return count;
}

}  // namespace

GgufFile::GgufFile(std::filesystem::path path) : path_(std::move(path)) {
  Reader in(path_);
  if (in.size() < 24) fail("{}: not a .gguf file: shorter than 24 bytes", in.name());
  if (in.read<std::uint32_t>() != 0x46554747) {
    fail("{}: not a .gguf file: it does not begin with GGUF", in.name());
  }
  const auto version = in.read<std::uint32_t>();
  if (version != 2 && version != 3) {
    fail("{}: GGUF version {}: allowed are 2 and 3, little endian", in.name(), version);
  }
  const auto tensors = in.read<std::uint64_t>();
  const auto values = in.read<std::uint64_t>();
  in.require_entries(values, kLeastEntry, "the metadata");
  Json all = Json::object();
  for (std::uint64_t i = 0; i < values; ++i) {
    std::string key = in.text("a key");
    const auto type = in.read<std::uint32_t>();
    Json value = read_value(in, type, quote(key));
    if (all.contains(key)) fail("{}: the key {} is there twice", in.name(), quote(key));
    all.emplace(std::move(key), std::move(value));
  }
  in.require_entries(tensors, kLeastEntry, "the list of tensors");
  for (std::uint64_t i = 0; i < tensors; ++i) {
    std::string name = in.text("the name of a tensor");
    GgufTensor tensor;
    const auto axes = in.read<std::uint32_t>();
    if (axes > kMostAxes) {
      fail("{}: tensor {} has {} axes: allowed are at most {}", in.name(), quote(name), axes,
           kMostAxes);
    }
    tensor.shape.resize(axes);
    for (std::size_t axis = axes; axis-- > 0;) tensor.shape[axis] = in.read<std::uint64_t>();
    tensor.type = in.read<std::uint32_t>();
    tensor.offset = in.read<std::uint64_t>();
    if (tensors_.contains(name)) {
      fail("{}: the tensor {} is there twice", in.name(), quote(name));
    }
    tensors_.emplace(std::move(name), std::move(tensor));
  }

  const Json alignment = all.value("general.alignment", Json(32U));
  const auto step = alignment.is_number_integer() ? alignment.get<std::uint64_t>() : 0;
  if (step < 1 || step > (1U << 20)) {
    fail("{}: general.alignment is {}: allowed is 1 to 2^20", in.name(), alignment.dump());
  }
  const std::uint64_t start = (in.position() + step - 1) / step * step;
  for (auto& [name, tensor] : tensors_) {
    const auto count = element_count(tensor.shape);
    const GgufType* type = find_gguf_type(tensor.type);
    const std::size_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (!count || (type != nullptr && row % type->elements != 0)) {
      fail("{}: tensor {} has a shape that its type cannot have", in.name(), quote(name));
    }
    const std::uint64_t bytes = type == nullptr ? 0 : *count / type->elements * type->bytes;
    if (start > in.size() || tensor.offset > in.size() - start ||
        bytes > in.size() - start - tensor.offset) {
      fail("{}: tensor {}: its {} bytes from {} on do not lie in the file", in.name(), quote(name),
           bytes, tensor.offset);
    }
    tensor.offset += start;
  }
  values_ = std::make_shared<const Json>(std::move(all));
}

std::vector<float> GgufFile::read(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail("{}: the tensor {} is missing", path_.string(), quote(name));
  const GgufTensor& tensor = found->second;
  const GgufType* type = find_gguf_type(tensor.type);
  if (type == nullptr || type->decode == nullptr) {
    fail("{}: tensor {} is of type {}: allowed are {}", path_.string(), quote(name),
         type == nullptr ? fmt::format("number {}", tensor.type) : std::string(type->name),
         decoded_gguf_types());
  }
  const std::uint64_t blocks = *element_count(tensor.shape) / type->elements;
  require_memory(blocks * (type->bytes + type->elements * sizeof(float)), quote(name));
  InputFile file(path_);
  file.skip(tensor.offset);
  std::vector<std::byte> bytes(blocks * type->bytes);
  file.read(bytes);
  std::vector<float> values(blocks * type->elements);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    type->decode(&bytes[i * type->bytes], &values[i * type->elements]);
  }
  return values;
}

Tensor GgufFile::tensor(std::string_view name) const {
  if (name.empty() && tensors_.size() != 1) {
    fail("{}: name one of its {} tensors{}", path_.string(), tensors_.size(),
         tensors_.empty() ? "" : ", as " + quote(tensors_.begin()->first));
  }
  const std::string_view wanted = name.empty() ? tensors_.begin()->first : name;
  const std::vector<float> values = read(wanted);
  return tensor_from_floats(DType::fp32, tensors_.find(wanted)->second.shape, values);
}

}  // namespace arlab::models
