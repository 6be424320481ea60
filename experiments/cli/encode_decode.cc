// arlab encode, arlab decode: exact wire bytes of one rank's tensor, and back.

#include <nlohmann/json.hpp>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/tensor_source.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/file.h"
#include "reference/tensors/npy.h"

namespace arlab::cli {
namespace {

struct CodecFiles {
  std::string codec;
  std::string dtype;
  std::string in;
  std::string out;
  Format format = Format::table;

  void add_to(CLI::App& command, const char* in_help, const char* out_help) {
    command.add_option("--codec", codec, "Codec (see arlab list codecs)")->required();
    command.add_option("--dtype", dtype,
                       "fp16, bf16 or fp32 [the file's, else fp16 if the codec takes it]");
    command.add_option("IN", in, in_help)->required();
    command.add_option("OUT", out, out_help)->required();
    add_format(command, format);
  }

  Result report(const char* schema, const Codec& c, DType type, std::size_t elements,
                std::size_t wire_bytes) const {
    nlohmann::ordered_json bits = nullptr;
    if (elements != 0) bits = 8.0 * static_cast<double>(wire_bytes) / static_cast<double>(elements);
    return {schema,
            {{"codec", c.name()},
             {"dtype", std::string(name_of(type))},
             {"elements", elements},
             {"wire_bytes", wire_bytes},
             {"wire_bits_per_element", bits},
             {"out", out}}};
  }
};

struct EncodeCommand : CodecFiles {
  std::string tensor;

  void run() const {
    find_codec(with_row_length(codec, kAnyRow));  // a wrong name is said before a file is read
    std::optional<DType> named;
    if (!dtype.empty()) named = parse_dtype(dtype);
    require_output_file(out);
    const Tensor input = read_tensor(in, tensor, named);
    const CodecPtr c = codec_for(codec, input);
    const DType type = input.dtype;
    require_takes(*c, type, in);
    std::vector<std::byte> wire(c->wire_bytes(type, input.element_count()));
    EncodeCounts counts;
    c->encode(type, input.bytes(), wire, &counts);
    write_file(out, {wire});
    Result result = report("arlab.encode/1", *c, type, input.element_count(), wire.size());
    result.figures.push_back({"clamped", counts.clamped, "elements beyond the code range"});
    print(result, format);
  }
};

struct DecodeCommand : CodecFiles {
  std::string elements;

  void run() const {
    const CodecPtr c = find_codec(codec);
    const DType type = dtype.empty() ? default_dtype(*c) : parse_dtype(dtype);
    require_output_file(out);
    InputFile file{std::filesystem::path(in)};
    require_memory(file.remaining(), in);
    std::vector<std::byte> wire(file.remaining());
    file.read(std::span<std::byte>(wire));
    const std::size_t most = largest_count(*c, type, wire.size());
    const std::size_t count = elements.empty()  ? most
                              : elements == "0" ? 0
                                                : parse_count(elements, "--elements");
    if (count > most || c->wire_bytes(type, count) != wire.size()) {
      fail("{}: {} bytes are not the wire of {} elements by {}: that would be {} bytes", in,
           wire.size(), count, codec, c->wire_bytes(type, count));
    }
    Tensor output = make_tensor(type, {count});
    c->decode(type, wire, output.bytes());
    write_npy(out, output);
    print(report("arlab.decode/1", *c, type, count, wire.size()), format);
  }

  std::size_t largest_count(const Codec& c, DType type, std::size_t wire_bytes) const {
    try {
      return c.elements_of_wire(type, wire_bytes);
    } catch (const InvalidInput& error) {
      fail("{}: {}", in, error.what());
    }
  }
};

}  // namespace

void add_encode(CLI::App& app) {
  auto command = std::make_shared<EncodeCommand>();
  CLI::App* sub = app.add_subcommand("encode", "Write the wire bytes of a tensor");
  command->add_to(*sub, "Tensor of any shape, taken as flat (.npy or .safetensors)", "Wire bytes");
  sub->add_option("--tensor", command->tensor, "Which tensor of a .safetensors file");
  sub->callback([command] { command->run(); });
}

void add_decode(CLI::App& app) {
  auto command = std::make_shared<DecodeCommand>();
  CLI::App* sub = app.add_subcommand("decode", "Turn wire bytes into a tensor");
  command->add_to(*sub, "Wire bytes", "Flat tensor (.npy)");
  sub->add_option("--elements", command->elements,
                  "Elements to decode [the largest count that the wire size allows]");
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
