#include "reference/codecs/abstract.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "reference/error.h"

namespace arlab {
namespace {

struct AbstractFormat {
  double bits = 0;
  CodecCost cost;
};

class AbstractCodec final : public Codec {
 public:
  AbstractCodec(std::string name, const AbstractFormat& format)
      : Codec({.name = std::move(name),
               .summary = "not there: a size and a cost to simulate",
               .source = "the user",
               .dtypes = {DType::fp16, DType::bf16, DType::fp32},
               .cost = format.cost}),
        bits_(format.bits) {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return static_cast<std::size_t>(std::ceil(static_cast<double>(elements) * bits_ / 8));
  }
  void do_encode(DType, std::span<const std::byte>, std::span<std::byte>,
                 EncodeCounts&) const override {
    refuse();
  }
  void do_decode(DType, std::span<const std::byte>, std::span<std::byte>) const override {
    refuse();
  }
  [[noreturn]] void refuse() const {
    fail(
        "codec '{}' has a size and a cost but no values; it is allowed where times are simulated: "
        "simulate, sweep, select",
        name());
  }

  double bits_;
};

class MeasuredWires final : public Codec {
 public:
  MeasuredWires(CodecPtr codec, double bits)
      : Codec(codec->info()), codec_(std::move(codec)), bits_(bits) {}

 private:
  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    const double bytes = std::ceil(static_cast<double>(elements) * bits_ / 8);
    return std::min(codec_->wire_bytes(dtype, elements), static_cast<std::size_t>(bytes));
  }
  void do_encode(DType, std::span<const std::byte>, std::span<std::byte>,
                 EncodeCounts&) const override {
    refuse();
  }
  void do_decode(DType, std::span<const std::byte>, std::span<std::byte>) const override {
    refuse();
  }
  [[noreturn]] void refuse() const {
    fail("codec '{}' of measured wires is for simulations", name());
  }

  CodecPtr codec_;
  double bits_;
};

double number_of(std::string_view name, std::string_view key, std::string_view text, double least,
                 double most) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value >= least && value <= most)) {
    fail("codec '{}': {} is '{}'; allowed is a number from {} to {}", name, key, text, least, most);
  }
  return value;
}

}  // namespace

CodecPtr find_abstract_codec(std::string_view name) {
  if (!is_abstract(name)) return nullptr;
  constexpr double kMostOps = 1e6;
  AbstractFormat format;
  std::map<std::string_view, std::string_view> given;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find(',', begin), name.size());
    const std::string_view item = name.substr(begin, end - begin);
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view key = item.substr(0, equals);
    const std::string_view text = item.substr(std::min(equals + 1, item.size()));
    if (!given.try_emplace(key, text).second) fail("codec '{}': {} is given twice", name, key);
    const auto number = [&](double least, double most) {
      return number_of(name, key, text, least, most);
    };
    if (key == "bits") {
      format.bits = number(0.01, 32);
    } else if (key == "encode_ops") {
      format.cost.encode_ops_per_element = number(0, kMostOps);
    } else if (key == "decode_ops") {
      format.cost.decode_ops_per_element = number(0, kMostOps);
    } else if (key == "store_efficiency") {
      format.cost.store_efficiency = number(0.01, 1);
    } else if (key == "packed" || key == "measures") {
      if (text != "0" && text != "1") {
        fail("codec '{}': {} is '{}'; allowed is 0 or 1", name, key, text);
      }
      if (key == "packed") format.cost.packed = text == "1";
      if (key == "measures") format.cost.scale_elements = text == "1" ? kWholeTensor : 0;
    } else {
      fail("codec '{}': '{}' is not known; allowed is {}", name, key, kAbstractCodecPattern);
    }
    begin = end + 1;
  }
  return std::make_shared<AbstractCodec>(std::string(name), format);
}

CodecPtr with_measured_wires(const CodecPtr& codec, double bits_per_element) {
  constexpr std::size_t kMany = std::size_t{1} << 20;
  for (const DType dtype : codec->info().dtypes) {
    const double most = 8.0 * static_cast<double>(codec->wire_bytes(dtype, kMany)) / kMany;
    if (bits_per_element > 0 && bits_per_element <= most) {
      return std::make_shared<MeasuredWires>(codec, bits_per_element);
    }
  }
  fail(
      "codec '{}' with wires of {:g} bits per element: allowed is a number above 0, up to what its "
      "wires may have",
      codec->name(), bits_per_element);
}

void join_codecs(std::vector<std::string>& names) {
  std::vector<std::string> joined;
  for (std::string& name : names) {
    // The key of the part, with its equals sign: what has it already begins anew.
    const std::string key = name.substr(0, std::min(name.find('='), name.size()) + 1);
    const bool goes_on = !joined.empty() && key.ends_with('=') && !is_abstract(name) &&
                         joined.back().find('=') != std::string::npos &&
                         !joined.back().starts_with(key) &&
                         joined.back().find("," + key) == std::string::npos;
    if (goes_on) {
      joined.back() += "," + name;
    } else {
      joined.push_back(std::move(name));
    }
  }
  names = std::move(joined);
}

}  // namespace arlab
