#include "experiments/models/checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "reference/error.h"
#include "reference/formats/e8m0.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp8.h"
#include "reference/json.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"

namespace arlab::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Suffixes that methods give the tensors of a matrix NAME.
constexpr const char* kData[] = {"", "_packed", "_blocks"};
constexpr const char* kScales[] = {"_scale_inv", "_scale", "_scales"};
constexpr const char* kFactor[] = {"_scale_2"};        // multiplies the scales
constexpr const char* kDivisor[] = {"_global_scale"};  // divides them
constexpr std::array kMethods = {"fp8", "fbgemm_fp8", "compressed-tensors", "modelopt", "mxfp4"};

bool is_plain(const std::string& dtype) {
  return dtype == "F16" || dtype == "BF16" || dtype == "F32";
}
bool is_pair(const std::string& dtype) { return dtype == "U8" || dtype == "F4"; }

float element_of(std::byte code, const std::string& dtype) {
  const auto bits = std::to_integer<std::uint8_t>(code);
  if (dtype == "F8_E4M3") return e4m3fn_to_float(bits);
  if (dtype == "F8_E5M2") return e5m2_to_float(bits);
  return static_cast<float>(static_cast<std::int8_t>(bits));
}

float scale_of(std::byte code, const std::string& dtype) {
  const auto bits = std::to_integer<std::uint8_t>(code);
  return dtype == "F8_E4M3" ? e4m3fn_to_float(bits) : e8m0_to_float(bits);
}

/// The shape of what data stand for, of which pairs lie in a byte; `_blocks` have an axis of blocks.
std::vector<std::size_t> shape_of(const SafetensorsEntry& data) {
  std::vector<std::size_t> shape = data.shape;
  if (shape.empty()) return shape;
  if (data.dtype == "U8") shape.back() *= 2;
  if (data.name.ends_with("_blocks") && shape.size() > 1) {
    const std::size_t last = shape.back();
    shape.pop_back();
    shape.back() *= last;
  }
  return shape;
}

/// A matrix of elements; its rows are all but the last axis.
struct Extent {
  std::size_t rows = 1;
  std::size_t columns = 1;

  explicit Extent(std::span<const std::size_t> shape) {
    if (shape.empty()) return;
    columns = shape.back();
    for (const std::size_t each : shape.first(shape.size() - 1)) rows *= each;
  }
  std::size_t size() const { return rows * columns; }
};

/// Rows, or columns, that share a scale; 0 where so many scales cannot be. Blocks that the configuration does not say are all of
/// them, one, or a power of two from 16 on.
std::size_t block_of(std::size_t extent, std::size_t scales, std::size_t said) {
  if (scales == 0 || extent == 0) return 0;
  if (said != 0) return extent / said + (extent % said == 0 ? 0 : 1) == scales ? said : 0;
  if (scales == 1 || scales == extent) return extent / scales;
  const std::size_t block = extent / scales;
  return extent % scales == 0 && block >= 16 && std::has_single_bit(block) ? block : 0;
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& path) : source_(path.string()) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  std::vector<fs::path> files = {path};
  if (is_folder) {
    files = paths_in(path, error);
    std::erase_if(files, [](const fs::path& each) { return each.extension() != ".safetensors"; });
    if (files.empty()) fail("{}: there are no .safetensors in it", source_);
  }
  for (const fs::path& file : files) {
    for (const SafetensorsEntry& entry : list_safetensors(file)) {
      if (!places_.emplace(entry.name, Place{file, entry}).second) {
        fail("{}: the tensor {} is in two of its files", source_, quote(entry.name));
      }
    }
  }
  for (const auto& [name, place] : places_) {
    std::string whole = name;
    for (const char* suffix : {"_packed", "_blocks"}) {
      if (name.ends_with(suffix)) whole.resize(name.size() - std::string_view(suffix).size());
    }
    const bool is_quantized = !is_plain(place.entry.dtype) && find(whole, kScales) != nullptr;
    shapes_[is_quantized ? whole : name] = is_quantized ? shape_of(place.entry) : place.entry.shape;
  }
  read_config(is_folder ? path : path.parent_path());
}

void Checkpoint::read_config(const fs::path& folder) {
  for (const char* name : {"config.json", "hf_quant_config.json"}) {
    std::error_code error;
    if (!fs::exists(folder / name, error)) continue;
    const Json json = parse_json(read_text_file(folder / name, "the configuration of a model"));
    if (!json.is_object()) continue;
    if (std::string_view(name) == "hf_quant_config.json" && json.contains("quantization")) {
      method_ = "modelopt";
    }
    const auto config = json.find("quantization_config");
    if (config == json.end() || !config->is_object()) continue;
    const Json method = config->value("quant_method", Json(""));
    method_ = method.is_string() ? method.get<std::string>() : "";
    const Json size = config->value("weight_block_size", Json());
    if (!size.is_array() || size.size() != 2) continue;
    for (const Json& each : size) {
      if (each.is_number_unsigned()) block_size_.push_back(each.get<std::size_t>());
    }
  }
  block_size_.resize(2);
}

const Checkpoint::Place* Checkpoint::find(const std::string& name,
                                          std::span<const char* const> suffixes) const {
  for (const char* suffix : suffixes) {
    const auto found = places_.find(name + suffix);
    if (found != places_.end()) return &found->second;
  }
  return nullptr;
}

Tensor Checkpoint::read(const std::string& name) const {
  const bool is_only = name.empty() && shapes_.size() == 1;
  const std::string& wanted = is_only ? shapes_.begin()->first : name;
  const Place* const data = find(wanted, kData);
  if (data == nullptr) {
    if (places_.empty()) fail("{}: there is no tensor in it", source_);
    return read_safetensors(places_.begin()->second.file, name);  // which says what there is
  }
  if (is_plain(data->entry.dtype)) return read_safetensors(data->file, data->entry.name);
  return dequantize(wanted, *data);
}

Tensor Checkpoint::dequantize(const std::string& name, const Place& data) const {
  const std::string& dtype = data.entry.dtype;
  const std::string at = fmt::format("{}: tensor {}", data.file.string(), quote(data.entry.name));
  constexpr std::array kDtypes = {"F8_E4M3", "F8_E5M2", "I8", "U8", "F4"};
  if (std::ranges::find(kDtypes, dtype) == kDtypes.end()) {
    fail("{} is of dtype {}: allowed are F16, BF16, F32, and quantized {}", at, quote(dtype),
         fmt::join(kDtypes, ", "));
  }
  const Place* const scales = find(name, kScales);
  if (scales == nullptr || std::ranges::find(kMethods, method_) == kMethods.end()) {
    fail(
        "{} is of dtype {}, which needs a tensor of scales beside it, and a config.json whose "
        "quantization_config has one of the methods {}{}",
        at, quote(dtype), fmt::join(kMethods, ", "),
        method_.empty() ? "" : ": it has " + quote(method_));
  }

  const std::vector<std::size_t> shape = shape_of(data.entry);
  const Extent extent(shape);
  const Extent blocks(scales->entry.shape.size() == 1 && scales->entry.shape[0] == extent.rows
                          ? std::vector<std::size_t>{extent.rows, 1}
                          : scales->entry.shape);
  const std::size_t rows = block_of(extent.rows, blocks.rows, block_size_[0]);
  const std::size_t columns = block_of(extent.columns, blocks.columns, block_size_[1]);
  const bool pairs = is_pair(dtype);
  const std::uint64_t bytes = data.entry.end - data.entry.begin;
  if (rows == 0 || columns == 0 || !byte_count(DType::fp32, shape) ||
      bytes != extent.size() / (pairs ? 2 : 1)) {
    fail("{}: scales of shape {} do not fit to {} {}, {} bytes{}", at,
         shape_text(scales->entry.shape), dtype, shape_text(shape), bytes,
         block_size_[0] == 0 ? ""
                             : fmt::format(", with a weight_block_size of {} x {}", block_size_[0],
                                           block_size_[1]));
  }

  require_memory(extent.size() * sizeof(float) + bytes, at);
  std::vector<float> factors;
  if (is_plain(scales->entry.dtype)) {
    factors = to_floats(read_safetensors(scales->file, scales->entry.name));
  } else {
    for (const std::byte code : read_safetensors_bytes(scales->file, scales->entry)) {
      factors.push_back(scale_of(code, scales->entry.dtype));
    }
  }
  if (factors.size() != blocks.size()) fail("{}: its scales are of an unsupported dtype", at);
  const Place* const factor = find(name, kFactor);
  const Place* const divisor = find(name, kDivisor);
  for (const Place* const global : {factor, divisor}) {
    if (global == nullptr) continue;
    const std::vector<float> one = to_floats(read_safetensors(global->file, global->entry.name));
    if (one.size() != 1) fail("{}: {} is not one number", at, quote(global->entry.name));
    for (float& each : factors) each = global == factor ? each * one[0] : each / one[0];
  }

  if (!std::ranges::all_of(factors, [](float each) { return std::isfinite(each); })) {
    fail("{}: its scales are not all finite", at);
  }
  const std::vector<std::byte> codes = read_safetensors_bytes(data.file, data.entry);
  std::vector<float> values(extent.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scale =
        factors[i / extent.columns / rows * blocks.columns + i % extent.columns / columns];
    const std::byte code = codes[pairs ? i / 2 : i];
    const auto half = static_cast<std::uint8_t>(std::to_integer<unsigned>(code) >> i % 2 * 4 & 15);
    values[i] = (pairs ? e2m1_to_float(half) : element_of(code, dtype)) * scale;
  }
  return tensor_from_floats(DType::fp32, shape, values);
}

}  // namespace arlab::models
