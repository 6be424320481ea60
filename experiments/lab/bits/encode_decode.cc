// What are the wire bytes of one rank's tensor, and what do they stand for?

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/bits/tensor_source.h"
#include "experiments/lab/files.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/sizes.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/registry.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"
#include "reference/tensors/npy.h"

namespace arlab::lab {
namespace {

struct CodecFiles {
  std::string codec;
  std::string dtype;
  std::string in;
  std::string out;

  Result report(const char* schema, const Codec& c, DType type, std::size_t elements,
                std::size_t wire_bytes) const {
    std::optional<double> bits;
    if (elements != 0) bits = 8.0 * static_cast<double>(wire_bytes) / static_cast<double>(elements);
    return {schema,
            {{"codec", c.name()},
             {"dtype", name_of(type)},
             {"elements", elements},
             {"wire_bytes", wire_bytes},
             {"wire_bits_per_element", bits},
             {"out", out}}};
  }
};

std::vector<BoundField> fields(CodecFiles& f, const char* dtype, const char* in_help,
                               const char* out_help) {
  return {field("codec", &f.codec, "Use this codec (see arlab list codecs)").required(),
          field("dtype", &f.dtype, "Set the element type: fp16, bf16 or fp32", dtype),
          field("in", &f.in, in_help).by_place("IN"),
          field("out", &f.out, out_help).by_place("OUT")};
}

struct EncodeRequest : CodecFiles {
  std::string tensor;

  Result answer() const {
    find_codec(with_row_length(codec, kAnyRow));  // a wrong name is said before a file is read
    std::optional<DType> named;
    if (!dtype.empty()) named = parse_dtype(dtype);
    require_output_file(out, {in});
    const Tensor input = read_tensor(in, tensor, named);
    const CodecPtr c = codec_for(codec, input);
    const DType type = input.dtype;
    require_takes(*c, type, in);
    std::vector<std::byte> wire(c->wire_bytes(type, input.element_count()));
    EncodeCounts counts;
    c->encode(type, input.bytes(), wire, &counts);
    const std::span<const std::byte> sent = c->sent_of(wire);
    write_file(out, {sent});
    Result result = report("arlab.encode/1", *c, type, input.element_count(), sent.size());
    result.figures.push_back({"clamped", counts.clamped, "elements beyond the code range"});
    return result;
  }
};

struct DecodeRequest : CodecFiles {
  std::string elements;

  Result answer() const {
    const CodecPtr c = find_codec(codec);
    const DType type = dtype.empty() ? default_dtype(*c) : parse_dtype(dtype);
    require_npy_output("the output", out);
    InputFile file{std::filesystem::path(in)};
    require_memory(file.remaining(), in);
    std::vector<std::byte> wire(file.remaining());
    file.read(std::span<std::byte>(wire));
    const bool is_variable = c->info().has_variable_wire && !elements.empty();
    const std::size_t most = is_variable ? SIZE_MAX : largest_count(*c, type, wire.size());
    const std::size_t count = elements.empty()  ? most
                              : elements == "0" ? 0
                                                : parse_count(elements, "--elements");
    const std::size_t sent = wire.size();
    if (is_variable) {
      if (sent > c->wire_bytes(type, count)) {
        fail("{}: {} bytes are more than the wire of {} elements by {} has: at most {}", in, sent,
             count, codec, c->wire_bytes(type, count));
      }
      wire.resize(c->wire_bytes(type, count));
      if (c->sent_of(wire).size() != sent) {
        fail("{}: {} bytes are not what the wire says it has", in, sent);
      }
    } else if (count > most || c->wire_bytes(type, count) != wire.size()) {
      fail("{}: {} bytes are not the wire of {} elements by {}: that would be {} bytes", in,
           wire.size(), count, codec, c->wire_bytes(type, count));
    }
    Tensor output = make_tensor(type, {count});
    c->decode(type, wire, output.bytes());
    write_npy(out, output);
    return report("arlab.decode/1", *c, type, count, sent);
  }

  std::size_t largest_count(const Codec& c, DType type, std::size_t wire_bytes) const {
    try {
      return c.elements_of_wire(type, wire_bytes);
    } catch (const InvalidInput& error) {
      fail("{}: {}", in, error.what());
    }
  }
};

std::vector<BoundField> fields(EncodeRequest& r) {
  return together(fields(r, "the file's, else fp16 if the codec takes it",
                         "Read this tensor, of any shape, as flat (.npy, .safetensors or .gguf)",
                         "Write the wire bytes here"),
                  {field("tensor", &r.tensor, "Select a tensor of a .safetensors or .gguf file")});
}

std::vector<BoundField> fields(DecodeRequest& r) {
  return together(fields(r, "fp16 if the codec takes it", "Read the wire bytes from here",
                         "Write the flat tensor here (.npy)"),
                  {field("elements", &r.elements, "Decode N elements",
                         "the most that the wire's size allows")});
}

}  // namespace

Question encode_question() {
  return question<EncodeRequest>("encode", "Write the wire bytes of a tensor",
                                 &EncodeRequest::answer);
}

Question decode_question() {
  return question<DecodeRequest>("decode", "Turn wire bytes into a tensor", &DecodeRequest::answer);
}

}  // namespace arlab::lab
