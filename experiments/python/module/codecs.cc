// Codecs of the reference, codecs that are written in Python, and those of a C++ header.

#include "reference/collectives/codecs.h"

#include <optional>
#include <utility>

#include "experiments/lab/bits/tensor_source.h"
#include "experiments/lab/codecs/codec_header.h"
#include "experiments/python/module/binding.h"
#include "reference/codecs/formats/codebook.h"
#include "reference/codecs/registry.h"

namespace arlab::python {
namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
using Numbers = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

/// A codec that is written in Python: blocks that know nothing of each other, or whole messages. A message of blocks is their
/// wires one after the other, the last block filled up with zeros.
class PythonCodec final : public Codec {
 public:
  /// `wire_bytes`: of a block, by dtype; or `of_message`, of so many elements of a dtype. The functions take a dtype's name, and two arrays of bytes: what is there and what is to
  /// be written; `encode`, where the codec needs a context, also its numbers and its state.
  PythonCodec(CodecInfo info, std::vector<std::size_t> wire_bytes,
              std::optional<nb::callable> of_message, std::optional<nb::callable> measure,
              std::optional<nb::callable> add, nb::callable encode, nb::callable decode)
      : Codec(std::move(info)),
        wire_bytes_(std::move(wire_bytes)),
        encode_(std::move(encode)),
        decode_(std::move(decode)) {
    if (of_message) of_message_.emplace(std::move(*of_message));
    if (measure) measure_.emplace(std::move(*measure));
    if (add) add_.emplace(std::move(*add));
  }

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    if (of_message_) {
      std::size_t bytes = 0;
      call_python(*of_message_, [&](nb::handle python) {
        bytes =
            nb::cast<std::size_t>(python(nb::str(std::string(name_of(dtype)).c_str()), elements));
      });
      return bytes;
    }
    const std::size_t blocks = (elements + info().block - 1) / info().block;
    return blocks * wire_bytes_[static_cast<std::size_t>(dtype)];
  }
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& /*unknown*/) const override {
    call(encode_, dtype, payload, wire);
  }
  void do_encode_in(const EncodeContext& c, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& /*unknown*/) const override {
    const ContextNumbers numbers(c.seed, c.call, c.rank, c.world_size, c.step, c.chunk, c.position);
    std::vector<float> statistics(c.shared.begin(), c.shared.end());
    if (statistics.empty() && info().shares_scales) {
      statistics.resize(statistics_of(payload.size() / size_of(dtype)));
      do_measure(dtype, payload, statistics);
    }
    call_python(encode_, [&](nb::handle python) {
      python(nb::str(std::string(name_of(dtype)).c_str()), given(payload), written(wire),
             nb::cast(numbers), numbers_or_none(c.state), numbers_or_none(statistics));
    });
  }
  void do_measure(DType dtype, std::span<const std::byte> payload,
                  std::span<float> statistics) const override {
    call_python(*measure_, [&](nb::handle python) {
      python(nb::str(std::string(name_of(dtype)).c_str()), given(payload),
             numbers_or_none(statistics));
    });
  }
  void do_add_codes(DType dtype, std::size_t, std::span<const std::byte> wire,
                    std::span<std::byte> sum) const override {
    call(*add_, dtype, wire, sum);
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    call(decode_, dtype, wire, payload);
  }

  static void call(const KeptFunction& function, DType dtype, std::span<const std::byte> from,
                   std::span<std::byte> to) {
    call_python(function, [&](nb::handle python) {
      python(nb::str(std::string(name_of(dtype)).c_str()), given(from), written(to));
    });
  }
  static nb::object numbers_or_none(std::span<float> numbers) {
    if (numbers.empty()) return nb::none();
    return nb::cast(Numbers(numbers.data(), {numbers.size()}, nb::handle()),
                    nb::rv_policy::reference);
  }
  static nb::object given(std::span<const std::byte> bytes) {
    const nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>> array(
        reinterpret_cast<const std::uint8_t*>(bytes.data()), {bytes.size()}, nb::handle());
    return nb::cast(array, nb::rv_policy::reference);
  }
  static nb::object written(std::span<std::byte> bytes) {
    const Bytes array(reinterpret_cast<std::uint8_t*>(bytes.data()), {bytes.size()}, nb::handle());
    return nb::cast(array, nb::rv_policy::reference);
  }

  std::vector<std::size_t> wire_bytes_;
  std::optional<KeptFunction> of_message_;
  std::optional<KeptFunction> measure_;
  std::optional<KeptFunction> add_;
  KeptFunction encode_;
  KeptFunction decode_;
};

void register_python_codec(const std::string& name, const std::string& summary,
                           const std::string& source, std::optional<std::size_t> block,
                           const std::vector<std::pair<std::string, std::size_t>>& wire_bytes,
                           const std::vector<std::string>& saturating, double encode_ops,
                           double decode_ops, bool uses_context, bool has_state, bool is_variable,
                           const std::optional<nb::callable>& of_message,
                           const std::optional<nb::callable>& measure,
                           const std::optional<nb::callable>& add, const nb::callable& encode,
                           const nb::callable& decode, const nb::callable& fingerprint,
                           bool is_guess) {
  // A call of Python and NumPy costs little beside the work on so many elements.
  constexpr std::size_t kElementsOfACall = std::size_t{1} << 18;
  CodecInfo info{.name = name,
                 .summary = summary,
                 .source = source,
                 .dtypes = {},
                 .block = block.value_or(kWholeTensor),
                 .alignment = block.value_or(1),
                 .splits_at_alignment = block.has_value(),
                 .uses_context = uses_context,
                 .has_state = has_state,
                 .has_variable_wire = is_variable,
                 .shares_scales = measure.has_value(),
                 .adds_codes = add.has_value(),
                 .cost = {.encode_ops_per_element = encode_ops,
                          .decode_ops_per_element = decode_ops,
                          .scale_elements = block ? 0 : kWholeTensor},
                 .least_call_elements = kElementsOfACall};
  for (const std::string& dtype : saturating) info.saturating.push_back(parse_dtype(dtype));
  std::vector<std::size_t> by_dtype(3, 0);
  for (const auto& [dtype, bytes] : wire_bytes) {
    info.dtypes.push_back(parse_dtype(dtype));
    by_dtype.at(static_cast<std::size_t>(info.dtypes.back())) = bytes;
  }
  register_codec(std::make_shared<PythonCodec>(std::move(info), std::move(by_dtype), of_message,
                                               measure, add, encode, decode));
  keep_python_fingerprint("codec", name, fingerprint);
  keep_guess(name, is_guess);
}

nb::dict info_of(const std::string& codec) {
  const CodecPtr found = find_codec(codec);
  const CodecInfo& info = found->info();
  nb::list dtypes;
  for (const DType dtype : info.dtypes) dtypes.append(std::string(name_of(dtype)));
  const auto count = [](std::size_t elements) {
    return elements == kWholeTensor ? nb::object(nb::none()) : nb::object(nb::int_(elements));
  };
  nb::dict about;
  about["name"] = info.name;
  about["summary"] = info.summary;
  about["source"] = info.source;
  about["dtypes"] = dtypes;
  about["block"] = count(info.block);
  about["alignment"] = count(info.alignment);
  about["splits_at_alignment"] = info.splits_at_alignment;
  about["has_variable_wire"] = info.has_variable_wire;
  about["uses_context"] = info.uses_context;
  about["has_state"] = info.has_state;
  about["shares_scales"] = info.shares_scales;
  about["adds_codes"] = info.adds_codes;
  about["encode_ops_per_element"] = info.cost.encode_ops_per_element;
  about["decode_ops_per_element"] = info.cost.decode_ops_per_element;
  return about;
}

/// 24 random bits of each of the elements from the context's position on.
Numbers random_numbers(const ContextNumbers& numbers, std::size_t elements) {
  const EncodeContext context = context_of(numbers);
  auto drawn = std::make_unique<std::vector<float>>(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    (*drawn)[i] = static_cast<float>(random_bits(context, i)) * 0x1p-24f;
  }
  float* const data = drawn->data();
  const nb::capsule owner(drawn.release(), [](void* pointer) noexcept {
    delete static_cast<std::vector<float>*>(pointer);
  });
  return {data, {elements}, owner};
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }
std::string text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

/// All that another process needs to have the same codecs. Comments of a header may be in any encoding.
using HeaderState =
    std::tuple<std::string, std::string, std::size_t,
               std::vector<std::pair<std::string, nb::bytes>>, std::string, nb::bytes>;

HeaderState state_of(const lab::CompiledHeader& compiled) {
  const auto& [file, structure, line, files, hash] = compiled.header;
  std::vector<std::pair<std::string, nb::bytes>> texts;
  for (const auto& [name, text] : files) texts.emplace_back(name, bytes_of(text));
  return {file, structure, line, texts, hash, bytes_of(compiled.library)};
}
lab::CompiledHeader header_of(const HeaderState& state) {
  const auto& [file, structure, line, texts, hash, library] = state;
  lab::CompiledHeader compiled{{file, structure, line, {}, hash}, text_of(library)};
  for (const auto& [name, text] : texts) compiled.header.files.emplace_back(name, text_of(text));
  return compiled;
}

void define_headers(nb::module_& module) {
  nb::class_<lab::CompiledHeader>(module, "CompiledHeader",
                                  "A C++ header with codecs, and the library that was made of it.")
      .def(
          "__init__",
          [](lab::CompiledHeader* self, const std::string& file) {
            new (self)
                lab::CompiledHeader(without_python([&] { return lab::compiled_header(file); }));
          },
          nb::arg("file"))
      .def_prop_ro("hash", [](const lab::CompiledHeader& compiled) { return compiled.header.hash; })
      .def(
          "register",
          [](const lab::CompiledHeader& compiled) {
            return lab::register_compiled_header(compiled);
          },
          "Makes its codecs known, and returns their names.")
      .def("__getstate__", state_of)
      .def("__setstate__", [](lab::CompiledHeader& compiled, const HeaderState& state) {
        new (&compiled) lab::CompiledHeader(header_of(state));
      });
}

}  // namespace

void define_codecs(nb::module_& module) {
  define_headers(module);
  module.def("codecs", [] { return listed_codecs(); });
  module.def("codec_info", info_of);
  module.def("wire_bytes",
             [](const std::string& codec, const std::string& dtype, std::size_t elements) {
               return find_codec(codec)->wire_bytes(parse_dtype(dtype), elements);
             });
  module.def("elements_of_wire",
             [](const std::string& codec, const std::string& dtype, std::size_t bytes) {
               return find_codec(codec)->elements_of_wire(parse_dtype(dtype), bytes);
             });
  module.def("register_codec", register_python_codec, nb::arg("name"), nb::arg("summary"),
             nb::arg("source"), nb::arg("block").none(), nb::arg("wire_bytes"),
             nb::arg("saturating"), nb::arg("encode_ops"), nb::arg("decode_ops"),
             nb::arg("uses_context"), nb::arg("has_state"), nb::arg("is_variable"),
             nb::arg("of_message").none(), nb::arg("measure").none(), nb::arg("add").none(),
             nb::arg("encode"), nb::arg("decode"), nb::arg("fingerprint"), nb::arg("is_guess"));
  module.def("guessed_codecs", guessed_codecs);
  module.def("random_numbers", random_numbers);
  module.def("register_codebook",
             [](const std::string& name, std::size_t group, const std::vector<float>& levels) {
               register_codebook(name, group, levels);
             });
  module.def("codebook", [](const std::string& name) {
    const CodebookLevels levels = codebook_named(name);
    return std::vector<float>(levels.level.begin(), levels.level.begin() + levels.count);
  });
  module.def(
      "read_tensor",
      [](const std::string& file, const std::string& name) {
        Tensor tensor = without_python([&] { return lab::read_tensor(file, name, std::nullopt); });
        return std::tuple(array_of(std::move(tensor.data)), std::string(name_of(tensor.dtype)),
                          tensor.shape);
      },
      nb::arg("file"), nb::arg("tensor"));
  module.def("split_codecs", [](const std::string& codecs) {
    AlgorithmOptions options;
    const std::string outer = split_codecs(codecs, options);
    for (const std::string& codec : {outer, options.inner_codec().value_or(outer)})
      find_codec(codec);
  });
}

}  // namespace arlab::python
