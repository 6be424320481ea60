#include "experiments/lab/vector_pack.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "experiments/lab/files.h"
#include "experiments/lab/hashes.h"
#include "reference/codecs/bit_planes.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/sum.h"
#include "reference/error.h"
#include "reference/json.h"
#include "reference/signals.h"
#include "reference/tensors/file.h"
#include "reference/tensors/synthetic.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSchema = "arlab.vector_pack/1";
constexpr const char* kSumFile = "manifest.sha256";

// Of fp32, patterns are a part of all there are in any case.
constexpr std::size_t kFp32Patterns = 8192;

/// How the wire of a codec is made of codes and of entries per block: SPEC.md, "Wire chunks and bit planes".
struct WireFormat {
  struct Array {
    const char* name;
    const char* type;
    std::size_t bytes;
  };
  unsigned bits = 0;
  std::size_t block = 0;
  std::size_t header = 0;  ///< bytes before the first chunk
  std::vector<Array> arrays;

  std::size_t entry_bytes() const {
    std::size_t bytes = 0;
    for (const Array& array : arrays) bytes += array.bytes;
    return bytes;
  }
  std::size_t wire_bytes(std::size_t elements) const {
    std::size_t bytes = header;
    const std::size_t chunk = chunk_elements(block);
    for (std::size_t begin = 0; begin < elements; begin += chunk) {
      const std::size_t n = std::min(chunk, elements - begin);
      bytes += planes_bytes(n, bits) + blocks_of(n, block) * entry_bytes();
    }
    return bytes;
  }
};

/// Nothing of codecs whose wire is another, as qr-* and those with spikes.
std::optional<WireFormat> wire_format_of(const Codec& c) {
  const std::string& name = c.name();
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  WireFormat format;
  format.block = c.info().block;
  if (format.block < 8 || format.block > 4096 || c.info().has_variable_wire) return std::nullopt;
  if (has("-sr") || has("static") || has("shared") || has("ef-") || has("flashinfer") ||
      has("torchft") || (has("vllm") && !has("nvfp4"))) {
    return std::nullopt;
  }
  if (name.starts_with("mx")) {
    format.arrays = {{"scales", "e8m0", 1}};
  } else if (name.starts_with("nvfp4")) {
    format.arrays = {{"scales", "e4m3", 1}};
    format.header = has("-ts") ? 0 : sizeof(float);
  } else if (name.starts_with("fp8-e4m3-g")) {
    format.arrays = {{"scales", "fp32", 4}};
  } else if (name.starts_with("int") || name.starts_with("had-int")) {
    format.arrays = {{"scales", "bf16", 2}};
    if (!has("-sym")) format.arrays.push_back({"zeros", "bf16", 2});
  } else {
    return std::nullopt;
  }
  for (format.bits = 2; format.bits <= 8; ++format.bits) {
    const auto fits = [&](std::size_t n) {
      return c.wire_bytes(c.info().dtypes.front(), n) == format.wire_bytes(n);
    };
    if (fits(4096) && fits(5000) && fits(31)) return format;
  }
  return std::nullopt;
}

Json json_of(const WireFormat& format) {
  Json arrays = Json::array();
  for (const auto& array : format.arrays) {
    arrays.push_back({{"name", array.name}, {"type", array.type}, {"bytes", array.bytes}});
  }
  return {{"bits", format.bits},
          {"block", format.block},
          {"chunk", chunk_elements(format.block)},
          {"header_bytes", format.header},
          {"arrays", arrays}};
}

/// What a wire holds, each code in a byte, each array as its entries follow each other.
struct Taken {
  std::vector<std::uint8_t> codes;
  std::vector<std::vector<std::byte>> arrays;
};
Taken taken_apart(const WireFormat& format, std::span<const std::byte> wire, std::size_t elements) {
  Taken taken{std::vector<std::uint8_t>(elements), {}};
  taken.arrays.resize(format.arrays.size());
  const std::byte* in = wire.data() + format.header;
  const std::size_t chunk = chunk_elements(format.block);
  for (std::size_t begin = 0; begin < elements; begin += chunk) {
    const std::size_t n = std::min(chunk, elements - begin);
    in = unpack_planes(in, format.bits, std::span(taken.codes).subspan(begin, n));
    for (std::size_t a = 0; a < format.arrays.size(); ++a) {
      const std::size_t bytes = blocks_of(n, format.block) * format.arrays[a].bytes;
      taken.arrays[a].insert(taken.arrays[a].end(), in, in + bytes);
      in += bytes;
    }
  }
  return taken;
}

/// Scales of one byte as block-scaled matrix products of cuBLAS take them: tiles of 128 rows and 4 columns, of 512 bytes each,
/// tile by tile along a row; the rest of the last tiles is 0.
std::vector<std::byte> swizzled_128x4(std::span<const std::byte> scales, std::size_t rows,
                                      std::size_t columns) {
  const std::size_t tile_columns = blocks_of(columns, 4);
  std::vector<std::byte> out(blocks_of(rows, 128) * tile_columns * 512);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t tile = r / 128 * tile_columns + c / 4;
      out[tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4] = scales[r * columns + c];
    }
  }
  return out;
}

class Packer {
 public:
  Packer(std::string dtype, const TakeFile& take) : dtype_(std::move(dtype)), take_(take) {}

  Json make(const std::vector<std::string>& names) {
    std::vector<CodecPtr> codecs;
    codecs.reserve(names.size());
    for (const std::string& name : names) codecs.push_back(find_codec(name));
    Json listed = Json::array();
    for (const CodecPtr& c : codecs) {
      if (c->info().needs_context()) {
        fail("codec {}: its wires depend on more than a message; leave it out of a pack",
             c->name());
      }
      const std::optional<WireFormat> format = wire_format_of(*c);
      listed.push_back(
          {{"name", c->name()}, {"summary", c->info().summary}, {"source", c->info().source}});
      listed.back()["block"] =
          c->info().block == kWholeTensor ? Json(nullptr) : Json(c->info().block);
      listed.back()["wire_format"] = format ? json_of(*format) : Json(nullptr);
      add_cases(*c);
      if (format) add_layout(*c, *format);
    }
    for (const CodecPtr& c : codecs) add_all_reduces(*c);
    add_text("README.md", read_text_file(data_path("vector_pack/README.md"), "a page"));
    add_text("read_pack.py", read_text_file(data_path("vector_pack/read_pack.py"), "a program"));
    Json manifest = {
        {"schema", kSchema},   {"program", "arlab " ARLAB_VERSION},
        {"format", 1},         {"dtype", dtype_.empty() ? Json(nullptr) : Json(dtype_)},
        {"codecs", listed},    {"cases", cases_},
        {"layouts", layouts_}, {"all_reduces", all_reduces_},
        {"files", files_}};
    const std::string text = manifest.dump(1) + '\n';
    const auto bytes = std::as_bytes(std::span(text));
    take_("manifest.json", bytes);
    const std::string sum = sha256(bytes) + "  manifest.json\n";  // as sha256sum -c takes it
    take_(kSumFile, std::as_bytes(std::span(sum)));
    return manifest;
  }

 private:
  std::string add(const std::string& name, std::span<const std::byte> bytes) {
    if (SignalsWait::one_came()) fail("interrupted");
    if (files_.contains(name)) return name;  // a payload, of all codecs
    take_(name, bytes);
    files_[name] = {{"bytes", bytes.size()}, {"sha256", sha256(bytes)}};
    return name;
  }
  std::string add_text(const std::string& name, const std::string& text) {
    return add(name, std::as_bytes(std::span(text)));
  }

  std::vector<DType> dtypes_of(const Codec& c) const {
    std::vector<DType> dtypes = c.info().dtypes;
    if (!dtype_.empty())
      std::erase_if(dtypes, [&](DType type) { return type != parse_dtype(dtype_); });
    return dtypes;
  }

  void add_cases(const Codec& c) {
    for (const DType type : dtypes_of(c)) {
      for (const VectorInput& input : kVectorInputs) {
        const std::size_t elements = type == DType::fp32
                                         ? std::min(input.elements_in_pack, kFp32Patterns)
                                         : input.elements_in_pack;
        const std::string name = fmt::format("{}_{}", name_of(type), input.name);
        const Tensor payload = make_synthetic(input.synthetic, type, 1, elements);
        std::vector<std::byte> wire(c.wire_bytes(type, elements));
        c.encode(type, payload.bytes(), wire);
        std::vector<std::byte> decoded(payload.data.size());
        c.decode(type, wire, decoded);
        const std::string stem = fmt::format("codecs/{}/{}", c.name(), name);
        cases_.push_back({{"codec", c.name()},
                          {"dtype", name_of(type)},
                          {"input", input.name},
                          {"elements", elements},
                          {"payload", add(fmt::format("inputs/{}.bin", name), payload.bytes())},
                          {"wire", add(stem + ".wire.bin", c.sent_of(wire))},
                          {"decoded", add(stem + ".decoded.bin", decoded)}});
      }
    }
  }

  /// A matrix, of one dtype: where codes and scales stand does not depend on it. Its sides are such that the last tiles are not
  /// full.
  void add_layout(const Codec& c, const WireFormat& format) {
    const std::vector<DType> dtypes = dtypes_of(c);
    if (dtypes.empty()) return;
    const DType type = std::ranges::count(dtypes, DType::bf16) > 0 ? DType::bf16 : dtypes.front();
    const std::size_t rows = 136;
    const std::size_t blocks = 5;
    const std::size_t elements = rows * blocks * format.block;
    const Tensor payload = make_synthetic("gaussian:sigma=1,seed=11", type, 1, elements);
    std::vector<std::byte> wire(c.wire_bytes(type, elements));
    c.encode(type, payload.bytes(), wire);
    const Taken taken = taken_apart(format, wire, elements);
    const std::string stem = fmt::format("layouts/{}/", c.name());
    Json files = {{"payload",
                   add(fmt::format("inputs/{}_matrix_{}.bin", name_of(type), blocks * format.block),
                       payload.bytes())},
                  {"wire", add(stem + "wire.bin", wire)},
                  {"codes", add(stem + "rows.codes.bin", std::as_bytes(std::span(taken.codes)))}};
    if (format.bits == 4) {
      std::vector<std::byte> packed(elements / 2);
      pack_planes(taken.codes, 4, packed.data());
      files["codes_packed"] = add(stem + "rows.codes_packed.bin", packed);
    }
    for (std::size_t a = 0; a < format.arrays.size(); ++a) {
      const std::string name = format.arrays[a].name;
      files[name] = add(fmt::format("{}rows.{}.bin", stem, name), taken.arrays[a]);
      if (format.arrays[a].bytes == 1) {
        files[name + "_128x4"] = add(fmt::format("{}128x4.{}.bin", stem, name),
                                     swizzled_128x4(taken.arrays[a], rows, blocks));
      }
    }
    files["interleaved"] = add(stem + "interleaved.bin", interleaved(format, taken, rows * blocks));
    Json layout = {{"codec", c.name()},
                   {"dtype", name_of(type)},
                   {"rows", rows},
                   {"columns", blocks * format.block},
                   {"blocks_per_row", blocks},
                   {"files", files}};
    if (format.header != 0) add_header(layout, wire);
    layouts_.push_back(std::move(layout));
  }

  /// NVFP4's scale of the message, which is in front of its wire.
  static void add_header(Json& layout, std::span<const std::byte> wire) {
    std::string hex;
    for (const std::byte byte : wire.first(sizeof(float)))
      hex += fmt::format("{:02X}", std::to_integer<unsigned>(byte));
    layout["header"] = hex;
  }

  /// Per block its entries of all arrays, then the planes of its codes.
  static std::vector<std::byte> interleaved(const WireFormat& format, const Taken& taken,
                                            std::size_t blocks) {
    const std::size_t code_bytes = planes_bytes(format.block, format.bits);
    std::vector<std::byte> out(blocks * (format.entry_bytes() + code_bytes));
    std::byte* to = out.data();
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t a = 0; a < format.arrays.size(); ++a) {
        const std::size_t bytes = format.arrays[a].bytes;
        to = std::ranges::copy(std::span(taken.arrays[a]).subspan(b * bytes, bytes), to).out;
      }
      to = pack_planes(std::span(taken.codes).subspan(b * format.block, format.block), format.bits,
                       to);
    }
    return out;
  }

  /// Of a few codecs: what all-reduces do is the same for all. Sums in fp32 where there are more than two values.
  void add_all_reduces(const Codec& c) {
    constexpr std::string_view kCodecs[] = {"bf16",     "fp16",  "qr-q4",
                                            "int4-g32", "mxfp4", "fp8-e4m3-g128"};
    if (std::ranges::find(kCodecs, c.name()) == std::end(kCodecs)) return;
    for (const DType type : dtypes_of(c)) {
      if (type == DType::fp32) continue;
      for (const char* algorithm : {"one_shot", "two_shot", "ring"}) {
        for (const Rank ranks : {2U, 4U}) {
          for (const char* sum : {"native", "fp32"}) {
            if (sum == std::string_view("fp32") &&
                (ranks == 2 || algorithm == std::string_view("ring"))) {
              continue;
            }
            for (const char* input : {"gaussian", "adversarial"}) {
              add_all_reduce(c, type, algorithm, ranks, sum, input);
            }
          }
        }
      }
    }
  }

  void add_all_reduce(const Codec& c, DType type, const char* algorithm, Rank ranks,
                      const char* sum, const std::string& input) {
    constexpr std::size_t kElements = 9001;  // more atoms of 2048 than ranks, and a tail
    const Codecs codecs(c);
    const Schedule s = make_schedule(
        algorithm, {.world_size = ranks, .elements = kElements, .alignment = codecs.alignment()});
    const Tensor inputs =
        make_synthetic(input == "gaussian" ? "gaussian:sigma=1,seed=12" : "adversarial:seed=13",
                       type, ranks, kElements);
    std::vector<std::byte> outputs(inputs.data.size());
    std::map<ValueId, std::vector<std::byte>> wires;
    ExecuteOptions options;
    options.threads = 1;
    options.sum = parse_sum(sum);
    options.tile_elements = kElements;  // a tile is a whole chunk
    options.encoded = [&](ValueId id, std::span<const std::byte> wire) {
      wires[id].assign(wire.begin(), wire.end());
    };
    execute(s, codecs, inputs, outputs, options);
    // A send of what was sent is of the same wire.
    std::vector<ValueId> root(s.ops.size());
    std::map<std::tuple<std::uint32_t, Rank, Rank>, std::vector<ValueId>> messages;
    for (ValueId id = 0; id < s.ops.size(); ++id) {
      const Op& op = s.ops[id];
      root[id] = op.kind == OpKind::send ? root[op.source] : id;
      if (op.kind == OpKind::send) messages[{op.step, op.rank, op.peer}].push_back(id);
    }
    std::vector<std::byte> sent;
    Json listed = Json::array();
    for (const auto& [key, sends] : messages) {
      const std::size_t begin = sent.size();
      Json chunks = Json::array();
      for (const ValueId id : sends) {
        const std::vector<std::byte>& wire = wires.at(root[id]);
        const Chunk& chunk = s.chunks[s.ops[id].chunk];
        chunks.push_back({{"begin", chunk.begin}, {"end", chunk.end}, {"bytes", wire.size()}});
        sent.insert(sent.end(), wire.begin(), wire.end());
      }
      const auto& [step, from, to] = key;
      listed.push_back({{"step", step},
                        {"from", from},
                        {"to", to},
                        {"at", begin},
                        {"bytes", sent.size() - begin},
                        {"chunks", chunks}});
    }
    const std::string stem = fmt::format("all_reduces/{}_{}_{}_{}_{}_{}", algorithm, c.name(),
                                         name_of(type), ranks, sum, input);
    all_reduces_.push_back(
        {{"algorithm", algorithm},
         {"codec", c.name()},
         {"ranks", ranks},
         {"dtype", name_of(type)},
         {"sum", sum},
         {"input", input},
         {"elements", kElements},
         {"inputs", add(fmt::format("inputs/{}_{}_ranks_{}.bin", name_of(type), ranks, input),
                        inputs.bytes())},
         {"sent", add(stem + ".sent.bin", sent)},
         {"outputs", add(stem + ".outputs.bin", outputs)},
         {"messages", listed}});
  }

  std::string dtype_;
  const TakeFile& take_;
  Json cases_ = Json::array();
  Json layouts_ = Json::array();
  Json all_reduces_ = Json::array();
  Json files_ = Json::object();
};

std::string text_of(const fs::path& path) {
  InputFile file(path);
  return file.read_rest();
}

/// Of a manifest whose sum is right, which says that it is one.
std::string difference_of(const fs::path& root, const Json& manifest) {
  std::vector<std::string> codecs;
  for (const Json& codec : manifest.at("codecs"))
    codecs.push_back(codec.at("name").get<std::string>());
  const std::string dtype =
      manifest.at("dtype").is_null() ? "" : manifest.at("dtype").get<std::string>();
  for (const auto& [name, said] : manifest.at("files").items()) {
    const fs::path path(name);
    if (path.is_absolute() || std::ranges::find(path, fs::path("..")) != path.end()) {
      fail("{}: manifest.json names a file outside of it, {}", root.string(), quote(name));
    }
    std::error_code error;
    if (!fs::is_regular_file(root / name, error)) return fmt::format("{} is not there", name);
    const std::string bytes = text_of(root / name);
    if (sha256(std::as_bytes(std::span(bytes))) != said.at("sha256").get<std::string>()) {
      return fmt::format("{} is damaged: its SHA-256 is not the manifest's", name);
    }
  }
  std::string first;
  Json made = make_vector_pack(
      codecs, dtype, [&](const std::string& name, std::span<const std::byte> bytes) {
        if (!first.empty() || name == "manifest.json" || name == kSumFile) return;
        if (!manifest.at("files").contains(name)) {
          first = fmt::format("{} is not in the pack, and arlab " ARLAB_VERSION " makes it", name);
          return;
        }
        const std::string there = text_of(root / name);
        const auto had = std::as_bytes(std::span(there));
        if (std::ranges::equal(had, bytes)) return;
        const auto at = std::ranges::mismatch(had, bytes).in1 - had.begin();
        first =
            fmt::format("{}: arlab " ARLAB_VERSION " makes other bytes, from byte {} on", name, at);
      });
  // What the manifest says besides the program's version, which may be another.
  for (const char* part : {"codecs", "cases", "layouts", "all_reduces"}) {
    if (first.empty() && made.at(part) != manifest.value(part, Json())) {
      first = fmt::format("manifest.json: arlab " ARLAB_VERSION " says otherwise under {}", part);
    }
  }
  return first;
}

}  // namespace

std::vector<std::string> codecs_of_pack() {
  std::vector<std::string> names = listed_codecs();
  for (const std::string& name : words_in(
           "int4-g128 int4-g32-sym int6-g64 int7-g32 int8-gtensor-sym-static0.05 "
           "logfmt8-g128 mxfp4-ceil mxfp4-even mxfp4-rceil fp8-e4m3-g256 fp8-e4m3-g64-torch "
           "nvfp4-ts0.75 nvfp4-vllm nvfp4-te nvfp4-te-4over6 nvfp4-vllm-ts0.75 "
           "int8-g128-vllm fp8-e4m3-g256-flashinfer fp8-e4m3-g256-torchft fp8-e4m3-g256-vllm")) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

Json make_vector_pack(const std::vector<std::string>& codecs, const std::string& dtype,
                      const TakeFile& take) {
  return Packer(dtype, take).make(codecs);
}

std::string difference_of_vector_pack(const std::string& folder) {
  const fs::path root(folder);
  const std::string text = text_of(root / "manifest.json");
  if (text_of(root / kSumFile) != sha256(std::as_bytes(std::span(text))) + "  manifest.json\n") {
    return fmt::format("manifest.json is not what {} says", kSumFile);
  }
  const Json manifest = parse_json<Json>(text);
  if (!manifest.is_object() || manifest.value("schema", Json()) != kSchema) {
    fail("{}: not a vector pack, whose manifest.json says {}", folder, kSchema);
  }
  try {
    return difference_of(root, manifest);
  } catch (const Json::exception& error) {
    fail("{}: manifest.json is not of the form of {}: {}", folder, kSchema, error.what());
  }
}

}  // namespace arlab::lab
