#include "reference/codecs/header_codec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>

#include "reference/codecs/properties.h"
#include "reference/codecs/registry.h"
#include "reference/definitions.h"
#include "reference/error.h"

namespace arlab {
namespace {

/// Returns the result of f. Functions of a header may throw what they like.
template <class F>
auto asked(const CodecHeader& header, F f) {
  try {
    return f();
  } catch (const std::exception& error) {
    fail("{}: it threw: {}", place_of(header), error.what());
  } catch (...) {
    fail("{}: it threw something", place_of(header));
  }
}

using Said = std::multimap<std::string, std::string>;

void remember(void* said, const char* name, const char* value) {
  static_cast<Said*>(said)->emplace(name, value);
}

class HeaderInfo {
 public:
  explicit HeaderInfo(const Said& said) : said_(said) {}

  CodecInfo info() const {
    const auto block = static_cast<std::size_t>(number("block"));
    CodecInfo info{.name = text("name"),
                   .summary = text("summary"),
                   .source = text("source"),
                   .dtypes = {DType::fp16, DType::bf16, DType::fp32},
                   .block = block,
                   .alignment = block,
                   .clamps_fp16_sums = number("clamps_fp16_sums") != 0,
                   .uses_context = number("uses_context") != 0,
                   .is_dtype_independent = true,
                   .fp32_values = Fp32Values::unrounded,
                   .cost = {.encode_ops_per_element = number("encode_ops_per_element"),
                            .decode_ops_per_element = number("decode_ops_per_element"),
                            .store_efficiency = number("store_efficiency"),
                            .packed = number("packed") != 0}};
    const auto [first, end] = said_.equal_range("saturating");
    for (auto each = first; each != end; ++each) {
      info.saturating.push_back(static_cast<DType>(number_in(each->second)));
    }
    return info;
  }

  double number(const std::string& name) const { return number_in(text(name)); }

 private:
  std::string text(const std::string& name) const { return said_.find(name)->second; }
  static double number_in(const std::string& text) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  const Said& said_;
};

class HeaderCodec final : public CodecInContext {
 public:
  using Object = std::shared_ptr<void>;

  HeaderCodec(const HeaderInfo& says, std::shared_ptr<const CodecHeader> header,
              const CompiledCodecs& functions, Object object)
      : CodecInContext(says.info()),
        header_(std::move(header)),
        functions_(functions),
        object_(std::move(object)),
        bits_(static_cast<unsigned>(says.number("bits"))),
        scale_bytes_(static_cast<std::size_t>(says.number("scale_bytes"))) {}

  CodecOfHeader of_header() const {
    const auto* const bytes = static_cast<const char*>(functions_.object(object_.get()));
    return {header_,
            std::string(bytes, functions_.object_bytes),
            bits_,
            info().block,
            scale_bytes_,
            info().uses_context,
            info().clamps_fp16_sums};
  }

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return asked(*header_, [&] { return functions_.wire_bytes(object_.get(), elements); });
  }
  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override {
    const CompiledContext numbers = {context.seed, context.position, context.call, context.rank,
                                     context.step};
    const std::size_t elements = payload.size() / size_of(dtype);
    counts.clamped += asked(*header_, [&] {
      return functions_.encode(object_.get(), static_cast<int>(dtype), payload.data(), elements,
                               wire.data(), wire.size(), &numbers);
    });
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    asked(*header_, [&] {
      functions_.decode(object_.get(), static_cast<int>(dtype), wire.data(), wire.size(),
                        payload.data(), payload.size() / size_of(dtype));
    });
  }
  void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                     std::span<float> sum) const override {
    if (functions_.decode_fma == nullptr) return Codec::do_decode_fma(dtype, wire, sum);
    asked(*header_, [&] {
      functions_.decode_fma(object_.get(), wire.data(), wire.size(), sum.data(), sum.size());
    });
  }

  std::shared_ptr<const CodecHeader> header_;
  const CompiledCodecs& functions_;
  Object object_;
  unsigned bits_;
  std::size_t scale_bytes_;
};

/// Reads a header's statement on one of its codecs. Throws InvalidInput where wires would not be as long as it says.
Said about(const CodecHeader& header, const CompiledCodecs& codecs, const void* codec) {
  Said said;
  asked(header, [&] { codecs.about(codec, remember, &said); });
  if (const auto mistake = said.find("mistake"); mistake != said.end()) {
    fail("{}: {}", place_of(header), mistake->second);
  }
  return said;
}

CodecPtr find_in_header(const std::shared_ptr<const CodecHeader>& header,
                        const CompiledCodecs& codecs, const std::string& name) {
  const HeaderCodec::Object object(asked(*header, [&] { return codecs.find(name.c_str()); }),
                                   codecs.forget);
  if (object == nullptr) return nullptr;
  const Said said = about(*header, codecs, object.get());
  return std::make_shared<HeaderCodec>(HeaderInfo(said), header, codecs, object);
}

/// Checks that a user's code spares other memory, and makes the same bits each time.
void require_properties(const CodecHeader& header, const Codec& codec) {
  for (const std::string_view property : {"sizes", "writes-all", "bounds", "foreign-wires"}) {
    const PropertyResult result = check_property(property, codec, DType::bf16);
    if (result.verdict == Verdict::violated) {
      fail("{}: codec {}: {}: {}", place_of(header), codec.name(), property, result.detail);
    }
  }
}

}  // namespace

std::string place_of(const CodecHeader& header) {
  return fmt::format("{}:{}: struct {}", header.file, header.line, header.structure);
}

std::vector<std::string> register_header_codecs(const CodecHeader& header,
                                                const CompiledCodecs& codecs) {
  const auto kept = std::make_shared<const CodecHeader>(header);
  Said said;
  asked(header, [&] { codecs.listed(remember, &said); });
  CodecFamily family;
  family.replaceable = true;
  family.find = [kept, &codecs](std::string_view name) {
    CodecPtr codec = find_in_header(kept, codecs, std::string(name));
    // A name that is not listed has a fingerprint, too.
    if (codec) keep_fingerprint("codec", codec->name(), [kept] { return kept->hash; });
    return codec;
  };
  for (const auto& [codec, name] : said) {
    family.pattern += (family.pattern.empty() ? "" : ", ") + name;
    family.listed.push_back(name);
    const CodecPtr found = find_in_header(kept, codecs, name);
    if (found) require_properties(header, *found);
  }
  try {
    register_codec_family(family);
  } catch (const InvalidInput& error) {
    fail("{}: {}", place_of(header), error.what());
  }
  for (const std::string& name : family.listed) keep_guess(name, false);
  return family.listed;
}

std::optional<CodecOfHeader> codec_header_of(std::string_view codec) {
  try {
    const CodecPtr found = find_codec(codec);
    const auto* const of_header = dynamic_cast<const HeaderCodec*>(found.get());
    if (of_header != nullptr) return of_header->of_header();
  } catch (const InvalidInput&) {
  }
  return std::nullopt;
}

}  // namespace arlab
