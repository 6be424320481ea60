// Codecs of the reference, and codecs that are written in Python.

#include <optional>
#include <utility>

#include "experiments/python/module/binding.h"
#include "reference/codecs/registry.h"

namespace arlab::python {
namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

/// A codec that is written in Python: blocks that know nothing of each other. A message is its
/// blocks' wires one after the other, the last block filled up with zeros.
class PythonCodec final : public Codec {
 public:
  /// `wire_bytes`: of a block, by dtype. The functions take a dtype's name, and two arrays of bytes:
  /// what is there and what is to be written.
  PythonCodec(CodecInfo info, std::vector<std::size_t> wire_bytes, nb::callable encode,
              nb::callable decode)
      : Codec(std::move(info)),
        wire_bytes_(std::move(wire_bytes)),
        encode_(std::move(encode)),
        decode_(std::move(decode)) {}

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    const std::size_t blocks = (elements + info().block - 1) / info().block;
    return blocks * wire_bytes_[static_cast<std::size_t>(dtype)];
  }
  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& /*unknown*/) const override {
    call(encode_, dtype, payload, wire);
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    call(decode_, dtype, wire, payload);
  }

  static void call(const KeptFunction& function, DType dtype, std::span<const std::byte> from,
                   std::span<std::byte> to) {
    call_python(function, [&](nb::handle python) {
      const nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>> there(
          reinterpret_cast<const std::uint8_t*>(from.data()), {from.size()}, nb::handle());
      const Bytes written(reinterpret_cast<std::uint8_t*>(to.data()), {to.size()}, nb::handle());
      python(nb::str(std::string(name_of(dtype)).c_str()),
             nb::cast(there, nb::rv_policy::reference),
             nb::cast(written, nb::rv_policy::reference));
    });
  }

  std::vector<std::size_t> wire_bytes_;
  KeptFunction encode_;
  KeptFunction decode_;
};

void register_python_codec(const std::string& name, const std::string& summary,
                           const std::string& source, std::size_t block,
                           const std::vector<std::pair<std::string, std::size_t>>& wire_bytes,
                           const std::vector<std::string>& saturating, double encode_ops,
                           double decode_ops, const nb::callable& encode,
                           const nb::callable& decode) {
  // What a call of Python and NumPy costs is little beside what they do with so many elements.
  constexpr std::size_t kElementsOfACall = std::size_t{1} << 18;
  CodecInfo info{
      .name = name,
      .summary = summary,
      .source = source,
      .dtypes = {},
      .block = block,
      .alignment = block,
      .cost = {.encode_ops_per_element = encode_ops, .decode_ops_per_element = decode_ops},
      .least_call_elements = kElementsOfACall};
  for (const std::string& dtype : saturating) info.saturating.push_back(parse_dtype(dtype));
  std::vector<std::size_t> by_dtype(3, 0);
  for (const auto& [dtype, bytes] : wire_bytes) {
    info.dtypes.push_back(parse_dtype(dtype));
    by_dtype.at(static_cast<std::size_t>(info.dtypes.back())) = bytes;
  }
  register_codec(
      std::make_shared<PythonCodec>(std::move(info), std::move(by_dtype), encode, decode));
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
  about["encode_ops_per_element"] = info.cost.encode_ops_per_element;
  about["decode_ops_per_element"] = info.cost.decode_ops_per_element;
  return about;
}

}  // namespace

void define_codecs(nb::module_& module) {
  module.def("codecs", listed_codecs);
  module.def("codec_info", info_of);
  module.def("wire_bytes",
             [](const std::string& codec, const std::string& dtype, std::size_t elements) {
               return find_codec(codec)->wire_bytes(parse_dtype(dtype), elements);
             });
  module.def("elements_of_wire",
             [](const std::string& codec, const std::string& dtype, std::size_t bytes) {
               return find_codec(codec)->elements_of_wire(parse_dtype(dtype), bytes);
             });
  module.def("register_codec", register_python_codec);
}

}  // namespace arlab::python
