// Language models whose all-reduces are compressed.

#include <memory>

#include "experiments/lab/models/model_run.h"
#include "experiments/models/model_files.h"
#include "experiments/models/quantized.h"
#include "experiments/python/module/binding.h"
#include "experiments/python/module/request.h"
#include "reference/codecs/registry.h"
#include "reference/layers/row_parallel.h"
#include "reference/memory.h"

namespace arlab::python {
namespace {

using models::LoadedModel;

/// How a network runs: all of it as one rank would, or split.
struct NetworkRequest {
  lab::ModelCollective collective;
  std::string codec;
  std::string dtype = "fp16";
  std::optional<std::uint32_t> ranks;
  std::string weights = "none";
  std::string activations = "none";

  /// null: not split.
  std::unique_ptr<models::CompressedAllReduce> split(const LoadedModel& model,
                                                     std::size_t tokens) const {
    if (!ranks) return nullptr;
    const auto wire =
        collective.wire(codec.empty() ? dtype : codec, dtype, *ranks, model.network, {&tokens, 1});
    const std::vector<std::shared_ptr<const models::RunCollective>> of_layer(
        model.network.shape.layers, wire.run);
    return std::make_unique<models::CompressedAllReduce>(
        *ranks, model.network.shape.hidden, wire.dtype, of_layer, collective.threads());
  }
};

std::vector<BoundField> fields(NetworkRequest& r) {
  return together(fields(r.collective),
                  {field("codec", &r.codec, "Send values by this codec", "as they are"),
                   field("dtype", &r.dtype, "Reduce values of this type", "fp16"),
                   field("ranks", &r.ranks, "Set the world size", "not split"),
                   field("weights", &r.weights, "Format", "none"),
                   field("activations", &r.activations, "Format", "none")});
}

std::vector<std::byte> bytes_of_floats(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

using FloatArray = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

FloatRows rows_of(const FloatArray& array) {
  return {array.data(), array.shape(0), array.shape(1), array.shape(1)};
}

/// float32 [x's rows, w's rows]: a quantized linear layer.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> linear(const FloatArray& x, const FloatArray& w,
                                                         const std::string& activations,
                                                         const std::string& weights,
                                                         std::optional<float> scale,
                                                         std::int32_t zero) {
  const OperandFormat x_format = parse_operand(Operand::activations, activations);
  const OperandFormat w_format = parse_operand(Operand::weights, weights);
  const FloatRows of_x = rows_of(x);
  const FloatRows of_w = rows_of(w);
  if (zero < -128 || zero > 127) fail("zero {}: allowed are -128 to 127", zero);
  std::optional<Int8Scale> given;
  if (scale) given = Int8Scale{*scale, x_format.asymmetric ? zero : 0};
  return array_of(bytes_of_floats(without_python([&] {
    require_memory(of_x.rows * of_w.rows * sizeof(float), "the layer's outputs");
    return multiplies_codes(x_format, w_format) && x_format.kind == OperandFormat::Kind::int8
               ? linear_int8(quantize_int8(of_x, x_format, given, 0),
                             quantize_int8(of_w, w_format, std::nullopt, 0))
               : linear_scalar(of_x, x_format, of_w, w_format, given);
  })));
}

/// Bytes of the outputs of all ranks: a row-parallel layer with the collective behind it.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> row_parallel(
    const FloatArray& x, const FloatArray& w, std::uint32_t ranks, const nb::object& algorithm,
    const std::string& codec, const std::string& dtype, const std::string& activations,
    const std::string& weights, const nb::dict& options, std::uint32_t threads) {
  const OperandFormat x_format = parse_operand(Operand::activations, activations);
  const OperandFormat w_format = parse_operand(Operand::weights, weights);
  if (!multiplies_codes(x_format, w_format) || x_format.kind != OperandFormat::Kind::int8) {
    fail("{} x {}: allowed are int8 activations and weights", activations, weights);
  }
  const FloatRows of_x = rows_of(x);
  const FloatRows of_w = rows_of(w);
  if (ranks < 2 || of_x.columns % ranks != 0 || of_x.columns != of_w.columns) {
    fail("{} ranks cannot hold equal parts of {} and {} inputs", ranks, of_x.columns, of_w.columns);
  }
  lab::CollectiveSpec schedule_of = collective_spec(algorithm, options);
  const DType type = parse_dtype(dtype);
  const CodecPtr outer = find_codec(split_codecs(codec, schedule_of.options));
  const CodecPtr inner = schedule_of.inner(outer);
  const Codecs codecs(*outer, *inner);
  std::vector<std::byte> outputs;
  {
    const nb::gil_scoped_release others_may_run;
    const std::size_t elements = of_x.rows * of_w.rows;
    require_memory(ranks * elements * size_of(type), "the outputs of all ranks");
    const Schedule schedule = schedule_of.make(ranks, elements, codecs.alignment());
    const Int8Matrix all = quantize_int8(of_w, w_format, std::nullopt, threads);
    std::vector<RowParallelPart> parts;
    const std::size_t part = of_x.columns / ranks;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const FloatRows own = {of_x.data + rank * part, of_x.rows, part, of_x.stride};
      parts.push_back({quantize_int8(own, x_format, std::nullopt, threads),
                       all.part(rank * part, (rank + 1) * part)});
    }
    outputs.resize(ranks * elements * size_of(type));
    execute_row_parallel(schedule, codecs, type, parts, outputs, {.threads = threads});
  }
  return array_of(std::move(outputs));
}

/// float32: "logits" [tokens, vocabulary], or "states" [layers + 1, tokens, hidden], what each layer
/// reads and behind them what the last one makes.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> run_model(
    const LoadedModel& model, const std::vector<models::TokenId>& ids, const std::string& what,
    const nb::dict& given, const std::vector<models::TokenId>& calibration) {
  NetworkRequest request;
  set_fields(fields(request), given);
  const models::Llama& network = model.network;
  if (ids.empty()) fail("there are no tokens: allowed are 1 or more");
  if (ids.size() > network.shape.context) {
    fail("{} tokens: {} was made for at most {}", ids.size(), model.name, network.shape.context);
  }
  const unsigned threads = request.collective.threads();
  std::vector<std::byte> result;
  {
    const nb::gil_scoped_release others_may_run;
    const auto split = request.split(model, ids.size());
    const lab::ModelFormats::Pair formats = {
        parse_operand(Operand::weights, request.weights),
        parse_operand(Operand::activations, request.activations)};
    if (formats.activations.given == calibration.empty()) {
      fail(
          "activations {}: tokens for calibration are needed where they end in -static, and only "
          "there",
          request.activations);
    }
    const auto linears = lab::quantized_layers(network, formats, {calibration}, threads);
    const bool logits = what == "logits";
    require_memory(
        2 * sizeof(float) * ids.size() *
            (logits ? network.head().out() : (network.shape.layers + 1) * network.shape.hidden),
        what);
    std::vector<float> hidden = network.embedded(ids);
    std::vector<float> values = logits ? std::vector<float>() : hidden;
    const std::vector<float> rotations = network.rotations(ids.size());
    for (std::size_t layer = 0; layer < network.layers.size(); ++layer) {
      network.run_layer(layer, hidden, rotations, split.get(), threads, linears.get());
      if (!logits) values.insert(values.end(), hidden.begin(), hidden.end());
    }
    if (logits) {
      hidden = network.normalized(hidden);
      const models::Matrix& head = network.head();
      values.resize(ids.size() * head.out());
      multiply({hidden.data(), head.in()}, ids.size(), head, {0, head.in()},
               {values.data(), head.out()}, threads);
    }
    result = bytes_of_floats(values);
  }
  return array_of(std::move(result));
}

const models::Tokenizer& tokenizer_of(const LoadedModel& model) {
  if (!model.tokenizer) fail("{}: it has no tokenizer.json", model.weights.string());
  return *model.tokenizer;
}

}  // namespace

void define_models(nb::module_& module) {
  nb::class_<LoadedModel>(module, "Model")
      .def(
          "__init__",
          [](LoadedModel* place, const std::string& name) {
            const nb::gil_scoped_release others_may_run;
            new (place) LoadedModel(models::load_model(name));
          },
          nb::arg("name"))
      .def_prop_ro("shape",
                   [](const LoadedModel& model) {
                     const models::LlamaShape& s = model.network.shape;
                     nb::dict shape;
                     shape["layers"] = s.layers;
                     shape["hidden"] = s.hidden;
                     shape["heads"] = s.heads;
                     shape["key_value_heads"] = s.key_value_heads;
                     shape["head_size"] = s.head_size;
                     shape["ffn"] = s.ffn;
                     shape["vocabulary"] = s.vocabulary;
                     shape["context"] = s.context;
                     return shape;
                   })
      .def("tokens",
           [](const LoadedModel& model, const std::string& text) {
             return tokenizer_of(model).encode(text, "the text");
           })
      .def("text",
           [](const LoadedModel& model, const std::vector<models::TokenId>& ids) {
             const std::string text = tokenizer_of(model).decode(ids);
             return nb::bytes(text.data(), text.size());
           })
      .def("run", run_model, nb::arg("ids"), nb::arg("what"), nb::arg("given"),
           nb::arg("calibration"));
  module.def("linear", linear, nb::arg("x"), nb::arg("w"), nb::arg("activations"),
             nb::arg("weights"), nb::arg("scale").none(), nb::arg("zero"));
  module.def("row_parallel", row_parallel, nb::arg("x"), nb::arg("w"), nb::arg("ranks"),
             nb::arg("algorithm"), nb::arg("codec"), nb::arg("dtype"), nb::arg("activations"),
             nb::arg("weights"), nb::arg("options"), nb::arg("threads"));
}

}  // namespace arlab::python
