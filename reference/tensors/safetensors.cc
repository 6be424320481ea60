#include "reference/tensors/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "reference/memory.h"
#include "reference/tensors/file.h"
#include "reference/words.h"

namespace arlab {

namespace {

using nlohmann::json;

// The format's own limit.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

using Written = std::pair<DType, const char*>;
constexpr Written kDTypes[] = {{DType::fp16, "F16"}, {DType::bf16, "BF16"}, {DType::fp32, "F32"}};

std::optional<DType> dtype_of(std::string_view written) {
  for (const auto& [dtype, name] : kDTypes) {
    if (written == name) return dtype;
  }
  return std::nullopt;
}

/// Parses the header's JSON. Tensors are objects of arrays, so nothing nests deeper than that, and
/// no name may be there twice.
json parse_header(std::string_view text, const std::string& file) {
  std::set<std::string, std::less<>> names;
  const auto check = [&](int depth, json::parse_event_t event, const json& parsed) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth > 2) fail("{}: the .safetensors header nests too deep", file);
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.insert(name).second) {
        fail("{}: the .safetensors header names {} twice", file, quote(name));
      }
    }
    return true;
  };
  json header = json::parse(text, check, /*allow_exceptions=*/false);
  if (!header.is_object()) fail("{}: the .safetensors header is not a JSON object", file);
  return header;
}

/// An array of non-negative integers, or nothing.
std::optional<std::vector<std::uint64_t>> integers(const json& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end() || !found->is_array()) return std::nullopt;
  std::vector<std::uint64_t> values;
  for (const json& value : *found) {
    if (!value.is_number_unsigned()) return std::nullopt;
    values.push_back(value.get<std::uint64_t>());
  }
  return values;
}

SafetensorsEntry entry_of(const std::string& name, const json& tensor, const std::string& file) {
  const auto bad = [&](std::string_view what) {
    fail("{}: tensor {}: {}", file, quote(name), what);
  };
  if (!tensor.is_object()) bad("its entry is not a JSON object");
  const auto dtype = tensor.find("dtype");
  if (dtype == tensor.end() || !dtype->is_string()) bad("'dtype' is missing or not a string");
  auto shape = integers(tensor, "shape");
  if (!shape) bad("'shape' is missing or not an array of non-negative integers");
  const auto offsets = integers(tensor, "data_offsets");
  if (!offsets || offsets->size() != 2) bad("'data_offsets' is missing or not two integers");
  return {name, dtype->get<std::string>(), *std::move(shape), (*offsets)[0], (*offsets)[1]};
}

/// Checks that the byte ranges, in order, cover the data_bytes after the header exactly once. Their lengths must match shape
/// and dtype where the dtype is one that we read.
void check_ranges(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes,
                  const std::string& file) {
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered || entry.end < entry.begin || entry.end > data_bytes) {
      fail("{}: tensor {}: its bytes are {} to {}: allowed is from {}, and at most to {}", file,
           quote(entry.name), entry.begin, entry.end, covered, data_bytes);
    }
    covered = entry.end;
    const std::optional<DType> dtype = dtype_of(entry.dtype);
    if (!dtype) continue;
    if (byte_count(*dtype, entry.shape) != entry.end - entry.begin) {
      fail("{}: tensor {}: {} bytes are not what {} {} needs", file, quote(entry.name),
           entry.end - entry.begin, entry.dtype, quote(shape_text(entry.shape)));
    }
  }
  if (covered != data_bytes) {
    fail("{}: the tensors end at byte {} of {} bytes of data", file, covered, data_bytes);
  }
}

/// Reads and checks the header; the file then stands at the first byte of data.
std::vector<SafetensorsEntry> read_header(InputFile& file) {
  std::uint64_t header_bytes = 0;
  if (file.remaining() < sizeof header_bytes) {
    fail("{}: not a .safetensors file: shorter than 8 bytes", file.name());
  }
  file.read(std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMostHeaderBytes || header_bytes > file.remaining()) {
    fail("{}: the .safetensors header claims {} bytes: allowed are at most {}, and {} follow",
         file.name(), header_bytes, kMostHeaderBytes, file.remaining());
  }
  std::string text(header_bytes, '\0');
  file.read(std::span(text));

  const json header = parse_header(text, file.name());
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : header.items()) {
    if (name != "__metadata__") entries.push_back(entry_of(name, tensor, file.name()));
  }
  std::ranges::sort(entries, {}, [](const SafetensorsEntry& entry) {
    return std::tuple(entry.begin, entry.end, std::string_view(entry.name));
  });
  check_ranges(entries, file.remaining(), file.name());
  return entries;
}

const SafetensorsEntry& find_entry(const std::vector<SafetensorsEntry>& entries,
                                   std::string_view name, std::string_view file) {
  if (name.empty() && entries.size() == 1) return entries.front();
  const auto found = std::ranges::find(entries, name, &SafetensorsEntry::name);
  if (found != entries.end() && !name.empty()) return *found;
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  if (!name.empty()) {
    fail("{}: no tensor {}: {}", file, quote(name), instead_of(name, {names, "there are"}));
  }
  fail("{}: name one of its {} tensors: {}", file, entries.size(), names_beside("", names));
}

}  // namespace

std::vector<SafetensorsEntry> list_safetensors(const std::filesystem::path& path) {
  InputFile file(path);
  return read_header(file);
}

Tensor read_safetensors(const std::filesystem::path& path, std::string_view name) {
  InputFile file(path);
  const std::vector<SafetensorsEntry> entries = read_header(file);
  const SafetensorsEntry& entry = find_entry(entries, name, file.name());
  const std::optional<DType> dtype = dtype_of(entry.dtype);
  if (!dtype) {
    fail("{}: tensor {} is of dtype {}: allowed are F16, BF16 and F32", file.name(),
         quote(entry.name), quote(entry.dtype));
  }
  Tensor tensor = make_tensor(*dtype, entry.shape);
  file.skip(entry.begin);
  file.read(tensor.bytes());
  return tensor;
}

std::vector<std::byte> read_safetensors_bytes(const std::filesystem::path& path,
                                              const SafetensorsEntry& entry) {
  InputFile file(path);
  read_header(file);
  file.skip(entry.begin);
  require_memory(entry.end - entry.begin, file.name());
  std::vector<std::byte> bytes(entry.end - entry.begin);
  file.read(bytes);
  return bytes;
}

void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  json header = {{"__metadata__", metadata}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    const auto* dtype = std::ranges::find(kDTypes, tensor.dtype, &Written::first);
    header[name] = {
        {"dtype", dtype->second}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = text.size();
  write_file(path, {std::as_bytes(std::span(&header_bytes, 1)), std::as_bytes(std::span(text)),
                    std::as_bytes(std::span(data))});
}

}  // namespace arlab
