#include "experiments/lab/bits/vector_pack.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "experiments/lab/files.h"
#include "experiments/lab/hashes.h"
#include "experiments/lab/points.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/bit_planes.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/formats/codebook.h"
#include "reference/codecs/formats/logfmt.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/formats/mxint8.h"
#include "reference/codecs/formats/shared_integers.h"
#include "reference/codecs/name_parts.h"
#include "reference/codecs/nvfp4.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/wire_chunks.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/named.h"
#include "reference/collectives/sum.h"
#include "reference/error.h"
#include "reference/json.h"
#include "reference/signals.h"
#include "reference/tails/tail.h"
#include "reference/tensors/file.h"
#include "reference/tensors/synthetic.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSchema = "arlab.vector_pack/2";
constexpr const char* kSchemaBefore = "arlab.vector_pack/1";
constexpr const char* kSumFile = "manifest.sha256";
/// Names of the page in the pack, and in the sources.
const std::string kSpecification = fs::path("SPEC").replace_extension("md").string();

// The patterns of fp32 are a part of all in any case.
constexpr std::size_t kFp32Patterns = 8192;

/// Context of messages by codecs whose wires depend on more than a message, but for all-reduces.
constexpr EncodeContext kContext = {
    .seed = 20261129, .call = 2, .rank = 3, .world_size = 4, .step = 1, .position = 4096};

/// How the wire of a codec is made of codes and of entries per block: SPEC.md, "Wire chunks and bit planes".
struct WireFormat {
  struct Array {
    std::string name;
    std::string type;
    std::size_t bytes = 0;  ///< 0: as many as the payload's dtype has
  };
  std::vector<unsigned> planes;  ///< their widths, from the low bits up
  std::size_t block = 0;         ///< 0: the message
  bool in_chunks = true;         ///< else the message is one
  bool pads_last_block = false;  ///< it has the codes of a whole one
  std::size_t header = 0;        ///< bytes before the first chunk
  std::vector<Array> arrays = {};

  unsigned bits() const { return std::accumulate(planes.begin(), planes.end(), 0U); }
  std::size_t blocks(std::size_t elements) const {
    return block == 0 ? 1 : blocks_of(elements, block);
  }
  std::size_t codes(std::size_t elements) const {
    return pads_last_block ? blocks(elements) * block : elements;
  }
  std::size_t bytes_of(const Array& array, DType dtype) const {
    return array.bytes == 0 ? size_of(dtype) : array.bytes;
  }
  std::size_t entry_bytes(DType dtype) const {
    std::size_t bytes = 0;
    for (const Array& array : arrays) bytes += bytes_of(array, dtype);
    return bytes;
  }
  std::size_t code_bytes(std::size_t elements) const {
    std::size_t bytes = 0;
    for (const unsigned width : planes) bytes += plane_bytes(codes(elements), width);
    return bytes;
  }
  /// Calls f(first element, elements) for every chunk.
  template <class F>
  void for_each_chunk(std::size_t elements, F&& f) const {
    const std::size_t chunk = in_chunks && block != 0 ? chunk_elements(block) : elements;
    for (std::size_t begin = 0; begin < elements; begin += chunk) {
      f(begin, std::min(chunk, elements - begin));
    }
  }
  std::size_t wire_bytes(DType dtype, std::size_t elements) const {
    std::size_t bytes = header;
    for_each_chunk(elements, [&](std::size_t, std::size_t n) {
      bytes += code_bytes(n) + blocks(n) * entry_bytes(dtype);
    });
    return bytes;
  }
};

std::vector<unsigned> planes_of(unsigned bits) {
  std::vector<unsigned> widths;
  for_each_plane(bits, [&](unsigned width, unsigned) { widths.push_back(width); });
  return widths;
}

WireFormat wire_format_of(const AnyBitFormat& f) {
  WireFormat format{.planes = planes_of(f.bits), .block = f.group, .pads_last_block = f.hadamard};
  const bool integers = f.metadata == AnyBitFormat::Metadata::integer_spikes;
  if (f.given) {
    format.block = kWireChunk;
    format.arrays = {{"marks", "uint8", 1}};
    return format;
  }
  format.arrays = {integers ? WireFormat::Array{"scales", "int8", 1}
                            : WireFormat::Array{"scales", "bf16", 2}};
  if (!f.symmetric) {
    format.arrays.push_back({"zeros", integers ? "int8" : "bf16", integers ? 1U : 2U});
  }
  if (f.metadata == AnyBitFormat::Metadata::scales) return format;
  const std::size_t index_bytes = integers ? 1 : 2;
  for (const char* name : {"minima", "maxima"}) format.arrays.push_back({name, "payload", 0});
  for (const char* name : {"minimum_indices", "maximum_indices"}) {
    format.arrays.push_back({name, fmt::format("uint{}", 8 * index_bytes), index_bytes});
  }
  return format;
}

/// By the name of a codec. Nothing of wires that are none of codes and entries: plain values, atoms of qr-*, rows of torchft, wires of
/// variable length; and of codecs that a program has registered.
std::optional<WireFormat> format_of_name(std::string_view name) {
  take(name, "ef-");
  if (const auto f = parse_anybit(name)) return wire_format_of(*f);
  if (const auto f = parse_logfmt(name)) {
    return WireFormat{.planes = planes_of(f->bits),
                      .block = f->group,
                      .arrays = {{"lo", "fp16", 2}, {"step", "fp16", 2}}};
  }
  if (const auto f = parse_nvfp4(name)) {
    return WireFormat{.planes = {4},
                      .block = 16,
                      .header = f->tensor_scale ? 0 : sizeof(float),
                      .arrays = {{"scales", "e4m3", 1}}};
  }
  if (const auto f = parse_shared_integers(name)) {
    WireFormat format{.planes = planes_of(f->low_bits()),
                      .block = f->group,
                      .in_chunks = false,
                      .arrays = {{"scales", "bf16", 2}}};
    for (const unsigned width : planes_of(f->high_bits())) format.planes.push_back(width);
    return format;
  }
  if (const auto f = Mx::parse(name)) {
    return WireFormat{
        .planes = planes_of(f->bits()), .block = Mx::kBlock, .arrays = {{"scales", "e8m0", 1}}};
  }
  if (name == "mxint8") {
    return WireFormat{.planes = {8}, .block = MxInt8::kBlock, .arrays = {{"scales", "e8m0", 1}}};
  }
  const std::size_t group_at = name.rfind("-g");
  std::string_view digits = group_at == std::string_view::npos ? "" : name.substr(group_at + 2);
  const auto group = number_of_digits(take_digits(digits));
  if (!group || name.ends_with("-torchft")) return std::nullopt;
  std::vector<WireFormat::Array> scales = {{"scales", "fp32", 4}};
  if (digits == "-ue8m0") scales = {{"scales", "e8m0", 1}};
  const std::string_view family = name.substr(0, group_at);
  if (family == "fp8-e4m3" || family == "int8") {
    const bool of_others = digits == "-flashinfer" || digits == "-vllm";
    return WireFormat{.planes = {8}, .block = *group, .in_chunks = !of_others, .arrays = scales};
  }
  if (const auto levels = find_codebook(name)) {
    return WireFormat{.planes = planes_of(levels->bits), .block = *group, .arrays = scales};
  }
  return std::nullopt;
}

std::optional<WireFormat> wire_format_of(const Codec& c) {
  std::optional<WireFormat> format = format_of_name(c.name());
  if (!format) return std::nullopt;
  for (const DType type : c.info().dtypes) {
    for (const std::size_t n : {1U, 31U, 4096U, 5000U}) {
      if (c.wire_bytes(type, n) == format->wire_bytes(type, n)) continue;
      throw std::logic_error("the form of the wire of codec " + c.name() + " has another length");
    }
  }
  return format;
}

Json json_of(const WireFormat& format) {
  const auto or_null = [](bool is, std::size_t number) {
    return is ? Json(number) : Json(nullptr);
  };
  Json arrays = Json::array();
  for (const auto& array : format.arrays) {
    arrays.push_back({{"name", array.name},
                      {"type", array.type},
                      {"bytes", or_null(array.bytes != 0, array.bytes)}});
  }
  const bool in_chunks = format.in_chunks && format.block != 0;
  return {{"bits", format.bits()},
          {"planes", format.planes},
          {"block", or_null(format.block != 0, format.block)},
          {"chunk", or_null(in_chunks, in_chunks ? chunk_elements(format.block) : 0)},
          {"pads_last_block", format.pads_last_block},
          {"header_bytes", format.header},
          {"arrays", arrays}};
}

Json json_of(const EncodeContext& context) {
  return {{"seed", context.seed}, {"call", context.call},
          {"rank", context.rank}, {"world_size", context.world_size},
          {"step", context.step}, {"position", context.position}};
}

/// Contents of a wire, each code in a byte, each array as its entries follow each other. Codes have up to 8 bits.
struct WireParts {
  std::vector<std::uint8_t> codes;
  std::vector<std::vector<std::byte>> arrays;
};
WireParts taken_apart(const WireFormat& format, DType dtype, std::span<const std::byte> wire,
                      std::size_t elements) {
  WireParts taken{std::vector<std::uint8_t>(elements), {}};
  taken.arrays.resize(format.arrays.size());
  const std::byte* in = wire.data() + format.header;
  format.for_each_chunk(elements, [&](std::size_t begin, std::size_t n) {
    in = unpack_planes(in, format.bits(), std::span(taken.codes).subspan(begin, n));
    for (std::size_t a = 0; a < format.arrays.size(); ++a) {
      const std::size_t bytes = format.blocks(n) * format.bytes_of(format.arrays[a], dtype);
      taken.arrays[a].insert(taken.arrays[a].end(), in, in + bytes);
      in += bytes;
    }
  });
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

constexpr std::uint32_t kTailHidden = 4096;

/// An all-reduce of the pack.
struct PackedReduce {
  std::string algorithm;
  DType dtype;
  Rank ranks;
  std::string sum = "native";
  std::string input = "gaussian";
  AlgorithmOptions options = {};
  std::string like = {};
  std::size_t elements = 9001;  ///< more atoms of 2048 than ranks, and a tail
};

class Packer {
 public:
  Packer(std::string dtype, const TakeFile& take) : dtype_(std::move(dtype)), take_(take) {}

  Json make(const std::vector<std::string>& names) {
    std::vector<CodecPtr> codecs;
    codecs.reserve(names.size());
    for (const std::string& name : names) codecs.push_back(find_codec(name));
    Json listed = Json::array();
    for (const CodecPtr& c : codecs) {
      const std::optional<WireFormat> format = wire_format_of(*c);
      listed.push_back(
          {{"name", c->name()}, {"summary", c->info().summary}, {"source", c->info().source}});
      listed.back()["block"] =
          c->info().block == kWholeTensor ? Json(nullptr) : Json(c->info().block);
      listed.back()["wire_format"] = format ? json_of(*format) : Json(nullptr);
      add_cases(*c);
      if (format && format->bits() <= 8 && format->block != 0 && format->block < kWireChunk) {
        add_layout(*c, *format);
      }
    }
    for (const CodecPtr& c : codecs) add_all_reduces(*c);
    add_tails(codecs);
    add_text(kSpecification, text_of_specification());
    add_text("README.md", read_text_file(data_path("vector_pack/README.md"), "a page"));
    add_text("read_pack.py", read_text_file(data_path("vector_pack/read_pack.py"), "a program"));
    Json manifest = {{"schema", kSchema},
                     {"program", "arlab " ARLAB_VERSION},
                     {"dtype", dtype_.empty() ? Json(nullptr) : Json(dtype_)},
                     {"codecs", listed},
                     {"cases", cases_},
                     {"layouts", layouts_},
                     {"all_reduces", all_reduces_},
                     {"tails", tails_},
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
        std::vector<float> state(c.info().has_state ? elements : 0);
        add_case(c, type, input.name, name, payload, state, false);
        // The second call shows the carried state.
        if (!state.empty() && input.name == std::string_view("gaussian")) {
          add_case(c, type, "gaussian_again", name, payload, state, true);
        }
      }
    }
  }

  void add_case(const Codec& c, DType type, const char* input, const std::string& payload_name,
                const Tensor& payload, std::vector<float>& state, bool is_carried) {
    const std::size_t elements = payload.data.size() / size_of(type);
    const std::string stem = fmt::format("codecs/{}/{}_{}", c.name(), name_of(type), input);
    Json states = nullptr;
    if (!state.empty()) {
      states = {{"before", nullptr}};
      if (is_carried) {
        states["before"] = add(stem + ".state_before.bin", std::as_bytes(std::span(state)));
      }
    }
    EncodeContext context = c.info().needs_context() ? kContext : EncodeContext();
    context.state = state;
    std::vector<std::byte> wire(c.wire_bytes(type, elements));
    c.encode(type, payload.bytes(), wire, nullptr, context);
    std::vector<std::byte> decoded(payload.data.size());
    c.decode(type, wire, decoded);
    if (!state.empty()) {
      states["after"] = add(stem + ".state_after.bin", std::as_bytes(std::span(state)));
    }
    cases_.push_back({{"codec", c.name()},
                      {"dtype", name_of(type)},
                      {"input", input},
                      {"elements", elements},
                      {"context", c.info().needs_context() ? json_of(kContext) : Json(nullptr)},
                      {"state", states},
                      {"payload", add(fmt::format("inputs/{}.bin", payload_name), payload.bytes())},
                      {"wire", add(stem + ".wire.bin", c.sent_of(wire))},
                      {"decoded", add(stem + ".decoded.bin", decoded)}});
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
    c.encode(type, payload.bytes(), wire, nullptr,
             c.info().needs_context() ? kContext : EncodeContext());
    const WireParts taken = taken_apart(format, type, wire, elements);
    const std::string stem = fmt::format("layouts/{}/", c.name());
    Json files = {{"payload",
                   add(fmt::format("inputs/{}_matrix_{}.bin", name_of(type), blocks * format.block),
                       payload.bytes())},
                  {"wire", add(stem + "wire.bin", wire)},
                  {"codes", add(stem + "rows.codes.bin", std::as_bytes(std::span(taken.codes)))}};
    if (format.bits() == 4) {
      std::vector<std::byte> packed(elements / 2);
      pack_planes(taken.codes, 4, packed.data());
      files["codes_packed"] = add(stem + "rows.codes_packed.bin", packed);
    }
    for (std::size_t a = 0; a < format.arrays.size(); ++a) {
      const std::string name = format.arrays[a].name;
      files[name] = add(fmt::format("{}rows.{}.bin", stem, name), taken.arrays[a]);
      if (format.arrays[a].name == "scales" && format.arrays[a].bytes == 1) {
        files[name + "_128x4"] = add(fmt::format("{}128x4.{}.bin", stem, name),
                                     swizzled_128x4(taken.arrays[a], rows, blocks));
      }
    }
    files["interleaved"] =
        add(stem + "interleaved.bin", interleaved(format, type, taken, rows * blocks));
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
  static std::vector<std::byte> interleaved(const WireFormat& format, DType type,
                                            const WireParts& taken, std::size_t blocks) {
    const std::size_t code_bytes = format.code_bytes(format.block);
    std::vector<std::byte> out(blocks * (format.entry_bytes(type) + code_bytes));
    std::byte* to = out.data();
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t a = 0; a < format.arrays.size(); ++a) {
        const std::size_t bytes = format.bytes_of(format.arrays[a], type);
        to = std::ranges::copy(std::span(taken.arrays[a]).subspan(b * bytes, bytes), to).out;
      }
      to = pack_planes(std::span(taken.codes).subspan(b * format.block, format.block),
                       format.bits(), to);
    }
    return out;
  }

  /// Adds all algorithms for a few codecs, one for others: all-reduces do the same for all. Sums in fp32 where there are more
  /// than two values.
  void add_all_reduces(const Codec& c) {
    const auto is_of = [&](std::initializer_list<std::string_view> names) {
      return std::ranges::find(names, c.name()) != names.end();
    };
    if (is_of({"bf16", "fp16", "qr-q4", "int4-g32", "mxfp4", "fp8-e4m3-g128"})) {
      for (const DType type : dtypes_of(c)) {
        if (type == DType::fp32) continue;
        for (const auto& [algorithm, ranks, input] :
             points_of(std::array{"one_shot", "two_shot", "ring"}, std::array{2U, 4U},
                       std::array{"gaussian", "adversarial"})) {
          add_all_reduce(c, {algorithm, type, ranks, "native", input});
          if (ranks == 4 && algorithm != std::string_view("ring")) {
            add_all_reduce(c, {algorithm, type, ranks, "fp32", input});
          }
        }
      }
    } else if (is_of({"int4-g32-sr", "int2-g32-sr-is", "had-int4-g32", "int8-gtensor",
                      "logfmt4-g32", "nvfp4", "nf4-g64", "int4-g32-stoch", "shared-int8-g32",
                      "lossless-e3-g32", "rans-int4-g32"})) {
      add_all_reduce_of(c, {"two_shot", DType::bf16, 4});
    }
    if (is_of({"fp32", "int4-g32", "mxfp4", "fp8-e4m3-g128"})) {
      for (const char* algorithm : {"two_shot", "ring"}) {
        add_all_reduce_of(c, {algorithm, DType::fp32, 4});
      }
    }
    // Each of the records that a codec can have.
    std::vector<const char*> sums;
    if (is_of({"int4-g32", "fp8-e4m3-g128", "logfmt4-g32", "nvfp4", "int4-g32-sr"})) {
      sums = {"decode=fp32", "decode=fp32,add=fp32", "order=own", "own=exact", "result=sum"};
    }
    if (is_of({"int4-g32", "fp8-e4m3-g128", "logfmt4-g32"})) sums.push_back("add=fp32,round=none");
    if (is_of({"fp8-e4m3-g128", "nvfp4"})) sums.push_back("add=fma");
    if (is_of({"qr-q4"})) sums.push_back("cast=fp16");
    for (const char* sum : sums) add_all_reduce_of(c, {"two_shot", DType::bf16, 4, sum});
    for (const NamedAllReduce& named : named_all_reduces()) add_named(c, named);
  }

  /// One of other people, if the codec is its own.
  void add_named(const Codec& c, const NamedAllReduce& named) {
    NamedRequest request{.ranks = 4, .elements = 16384, .dtype = named.dtype, .row = 256};
    if (named.has_codecs) request.codec = "qr-q4";
    const NamedParts parts = named.parts_of(request);
    if (parts.codec != c.name()) return;
    add_all_reduce_of(c, {.algorithm = parts.algorithm,
                          .dtype = request.dtype,
                          .ranks = request.ranks,
                          .sum = name_of(parts.sum),
                          .options = parts.options,
                          .like = named.name,
                          .elements = request.elements});
  }

  /// Unless the pack is of another dtype.
  void add_all_reduce_of(const Codec& c, const PackedReduce& what) {
    const std::vector<DType> dtypes = dtypes_of(c);
    if (std::ranges::find(dtypes, what.dtype) != dtypes.end()) add_all_reduce(c, what);
  }

  void add_all_reduce(const Codec& c, const PackedReduce& what) {
    const Codecs codecs(c);
    const Sum sum = parse_sum(what.sum);
    AlgorithmOptions algorithm_options = what.options;
    if (!sum.own.empty()) algorithm_options.set("own", sum.own);
    const Schedule s = make_schedule(what.algorithm, {.world_size = what.ranks,
                                                      .elements = what.elements,
                                                      .alignment = codecs.alignment(),
                                                      .options = algorithm_options});
    const Tensor inputs = make_synthetic(
        what.input == "gaussian" ? "gaussian:sigma=1,seed=12" : "adversarial:seed=13", what.dtype,
        what.ranks, what.elements);
    // With cast=fp16 wires are of fp16 payloads.
    const DType encoded = sum.casts_to_fp16 ? DType::fp16 : what.dtype;
    std::vector<std::byte> outputs(inputs.data.size());
    std::map<ValueId, std::vector<std::byte>> wires;
    ExecuteOptions options;
    options.threads = 1;
    options.sum = sum;
    options.seed = kContext.seed;
    options.tile_elements = SIZE_MAX;  // a tile is a whole chunk
    options.encoded = [&](ValueId id, std::span<const std::byte> wire) {
      const Chunk& chunk = s.chunks[s.ops[id].chunk];
      const bool is_whole = wire.size() == c.wire_bytes(encoded, chunk.size());
      if (!is_whole || !wires.try_emplace(id, wire.begin(), wire.end()).second) {
        throw std::logic_error("a chunk is not encoded as a whole");
      }
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
        const std::span<const std::byte> wire = c.sent_of(wires.at(root[id]));
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
    const std::string stem = fmt::format(
        "all_reduces/{}_{}_{}_{}_{}_{}", what.like.empty() ? what.algorithm : "like-" + what.like,
        c.name(), name_of(what.dtype), what.ranks, what.sum, what.input);
    Json given = Json::object();
    for (const auto& [name, value] : algorithm_options) given[name] = words_of(value);
    all_reduces_.push_back(
        {{"algorithm", what.algorithm},
         {"options", given},
         {"like", what.like.empty() ? Json(nullptr) : Json(what.like)},
         {"codec", c.name()},
         {"ranks", what.ranks},
         {"dtype", name_of(what.dtype)},
         {"sum", what.sum},
         {"rounding_seed", c.info().uses_context ? Json(kContext.seed) : Json(nullptr)},
         {"input", what.input},
         {"elements", what.elements},
         {"inputs", add(fmt::format("inputs/{}_{}_ranks_{}_{}.bin", name_of(what.dtype), what.ranks,
                                    what.input, what.elements),
                        inputs.bytes())},
         {"sent", add(stem + ".sent.bin", sent)},
         {"outputs", add(stem + ".outputs.bin", outputs)},
         {"messages", listed}});
  }

  /// Every rounding that has a name; with the default, what codecs make of what comes out. Rows that all codecs' blocks divide.
  void add_tails(const std::vector<CodecPtr>& codecs) {
    for (const DType type : {DType::fp16, DType::bf16}) {
      if (!dtype_.empty() && type != parse_dtype(dtype_)) continue;
      for (const NamedRounding& each : named_roundings()) add_tail(type, each, "");
      for (const CodecPtr& c : codecs) {
        const bool fits =
            c->takes(type) && !c->info().needs_context() && kTailHidden % c->info().alignment == 0;
        if (fits) add_tail(type, named_roundings().front(), c->name());
      }
    }
  }

  void add_tail(DType type, const NamedRounding& rounding, const std::string& output) {
    const Tail tail{.hidden = kTailHidden,
                    .adds_residual = true,
                    .normalizes = true,
                    .eps = 1e-5F,
                    .output = output,
                    .rounding = rounding.rounding};
    const std::size_t elements = 2 * kTailHidden;
    const Tensor sums = make_synthetic("gaussian:sigma=1,seed=12", DType::fp32, 1, elements);
    const Tensor residual = make_synthetic("gaussian:sigma=2,seed=13", type, 1, elements);
    const Tensor weight = make_synthetic("uniform:low=0.5,high=1.5,seed=14", type, 1, kTailHidden);
    const TailResult made = run_tail(tail, type, to_floats(sums), residual.bytes(), weight.bytes());
    const std::string stem = fmt::format("tails/{}_{}", name_of(type), rounding.name);
    const std::string input = fmt::format("inputs/{}_tail_", name_of(type));
    const auto of_output = [&](const char* what, std::span<const std::byte> bytes) {
      return output.empty() ? Json()
                            : Json(add(fmt::format("{}_{}.{}.bin", stem, output, what), bytes));
    };
    tails_.push_back({{"dtype", name_of(type)},
                      {"rounding", rounding.name},
                      {"output", output.empty() ? Json() : Json(output)},
                      {"tail", name_of(tail)},
                      {"rows", elements / kTailHidden},
                      {"hidden", kTailHidden},
                      {"eps", tail.eps},
                      {"sums", add("inputs/fp32_tail_sums.bin", sums.bytes())},
                      {"residual", add(input + "residual.bin", residual.bytes())},
                      {"weight", add(input + "weight.bin", weight.bytes())},
                      {"residual_out", add(stem + ".residual_out.bin", made.residual)},
                      {"normalized", add(stem + ".normalized.bin", made.normalized)},
                      {"wire", of_output("wire", made.wire)},
                      {"quantized", of_output("quantized", made.quantized)}});
  }

  static std::string text_of_specification() {
    const fs::path installed = data_path(fs::path("vector_pack") / kSpecification);
    std::error_code error;
    const bool is_there = fs::exists(installed, error);
    return read_text_file(
        is_there ? installed : fs::path(ARLAB_SOURCE_DIR) / "reference/codecs" / kSpecification,
        "a page");
  }

  std::string dtype_;
  const TakeFile& take_;
  Json cases_ = Json::array();
  Json layouts_ = Json::array();
  Json all_reduces_ = Json::array();
  Json tails_ = Json::array();
  Json files_ = Json::object();
};

std::string text_of(const fs::path& path) {
  InputFile file(path);
  return file.read_rest();
}

/// Nothing on the way to a file of the pack leads out of it.
void require_no_link(const fs::path& root, const std::string& name) {
  fs::path here = root;
  for (const fs::path& part : fs::path(name)) {
    here /= part;
    std::error_code error;
    if (fs::is_symlink(here, error)) {
      fail("{}: {} is a link; allowed are files", root.string(), quote(name));
    }
  }
}

/// Checks that a manifest with the right sum, which says that it is one, has the parts of one. Throws InvalidInput.
void require_form(const fs::path& root, const Json& manifest) {
  const auto require = [&](bool is, std::string_view what) {
    if (!is) fail("{}: manifest.json is not of the form of {}: {}", root.string(), kSchema, what);
  };
  const auto text_in = [](const Json& object, const char* key) {
    return object.is_object() && object.contains(key) && object.at(key).is_string();
  };
  for (const char* part : {"codecs", "cases", "layouts", "all_reduces"}) {
    require(manifest.value(part, Json()).is_array(), fmt::format("{} is no list", part));
  }
  for (const Json& codec : manifest.at("codecs")) {
    require(text_in(codec, "name"), "one of its codecs has no name");
  }
  const Json dtype = manifest.value("dtype", Json());
  require(dtype.is_null() || dtype.is_string(), "dtype is neither null nor a name");
  const Json files = manifest.value("files", Json());
  require(files.is_object(), "files is no object");
  for (const auto& [name, said] : files.items()) {
    require(text_in(said, "sha256"), fmt::format("file {} has no sha256", quote(name)));
    const fs::path path(name);
    const auto leads_out = [](const fs::path& part) { return part == ".." || part == "."; };
    if (name.empty() || path.is_absolute() || std::ranges::any_of(path, leads_out)) {
      fail("{}: manifest.json names a file outside of it, {}", root.string(), quote(name));
    }
    require_no_link(root, name);
  }
}

/// Returns the first difference from a manifest that has that form.
std::string difference_of(const fs::path& root, const Json& manifest) {
  std::vector<std::string> codecs;
  for (const Json& codec : manifest.at("codecs"))
    codecs.push_back(codec.at("name").get<std::string>());
  const Json type = manifest.value("dtype", Json());
  const std::string dtype = type.is_null() ? "" : type.get<std::string>();
  for (const auto& [name, said] : manifest.at("files").items()) {
    std::error_code error;
    if (!fs::is_regular_file(root / name, error))
      return fmt::format("{} is not there", quote(name));
    const std::string bytes = text_of(root / name);
    if (sha256(std::as_bytes(std::span(bytes))) != said.at("sha256").get<std::string>()) {
      return fmt::format("{} is damaged: its SHA-256 is not the manifest's", quote(name));
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
  // The program's version may be another; the manifest's other parts must be equal.
  for (const char* part : {"codecs", "cases", "layouts", "all_reduces", "tails"}) {
    if (first.empty() && made.at(part) != manifest.value(part, Json())) {
      first = fmt::format("manifest.json: arlab " ARLAB_VERSION " says otherwise under {}", part);
    }
  }
  return first;
}

}  // namespace

std::vector<std::string> codecs_of_pack() {
  std::vector<std::string> names = listed_codecs();
  for (const std::string& name :
       words_in("int4-g128 int4-g32-sym int6-g64 int7-g32 int8-gtensor-sym-static0.05 "
                "logfmt8-g128 mxfp4-ceil mxfp4-even mxfp4-rceil fp8-e4m3-g256 fp8-e4m3-g64-torch "
                "fp8-e4m3-g128-ue8m0 "
                "nvfp4-ts0.75 nvfp4-vllm nvfp4-te nvfp4-te-4over6 nvfp4-vllm-ts0.75 "
                "int8-g128-vllm int8-g256-vllm fp8-e4m3-g256-flashinfer fp8-e4m3-g256-torchft "
                "fp8-e4m3-g256-vllm int4-g32-stoch had-int4-g32-sym fp8-e4m3-g128-stoch nf4-g64 "
                "e4m3b15-g32 shared-int8-g32 shared-int12-g64 lossless-e3-g32 rans-int4-g32 "
                "rans-logfmt4-g32 ef-int4-g32")) {
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
  for (const char* name : {"manifest.json", kSumFile}) require_no_link(root, name);
  const std::string text = text_of(root / "manifest.json");
  if (text_of(root / kSumFile) != sha256(std::as_bytes(std::span(text))) + "  manifest.json\n") {
    return fmt::format("manifest.json is not what {} says", kSumFile);
  }
  const Json manifest = parse_json<Json>(text);
  const Json schema = manifest.is_object() ? manifest.value("schema", Json()) : Json();
  if (schema == kSchemaBefore) {
    return fmt::format("a pack of {}, whose wires of all-reduces are cut off: make it anew",
                       kSchemaBefore);
  }
  if (schema != kSchema) {
    fail("{}: not a vector pack, whose manifest.json says {}", folder, kSchema);
  }
  require_form(root, manifest);
  return difference_of(root, manifest);
}

}  // namespace arlab::lab
