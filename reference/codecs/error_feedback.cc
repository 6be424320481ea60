// ef-<codec>: what a codec loses of a message is added to the next one. SPEC.md, "Error feedback (ef-*)".
// Source: 1-bit SGD (Seide et al. 2014); Karimireddy et al. 2019.

#include <cmath>
#include <utility>
#include <vector>

#include "reference/codecs/name_parts.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"

namespace arlab {
namespace {

class ErrorFeedback final : public CodecInContext {
 public:
  explicit ErrorFeedback(CodecPtr inner)
      : CodecInContext(info_of(*inner)), inner_(accelerated(inner)) {}

 private:
  static CodecInfo info_of(const Codec& inner) {
    CodecInfo info = inner.info();
    info.name.insert(0, "ef-");
    info.summary += ", error feedback";
    info.has_state = true;
    info.shares_scales = info.adds_codes = false;
    // It decodes what it has encoded; one addition before, one subtraction behind.
    info.cost.encode_ops_per_element += info.cost.decode_ops_per_element + 2;
    return info;
  }

  std::size_t do_wire_bytes(DType dtype, std::size_t elements) const override {
    return inner_->wire_bytes(dtype, elements);
  }
  void do_encode_in(const EncodeContext& context, DType dtype, std::span<const std::byte> payload,
                    std::span<std::byte> wire, EncodeCounts& counts) const override {
    EncodeContext of_inner = context;
    of_inner.state = {};
    const std::span<float> carried = context.state;
    std::vector<std::byte> sums(payload.begin(), payload.end());
    for (std::size_t i = 0; i < carried.size(); ++i) {
      const float own = load_value(dtype, payload, i);
      // No finite message becomes infinite.
      const float limit = std::isfinite(own) ? largest_finite(dtype) : INFINITY;
      store_value(dtype, limited(own + carried[i], limit), sums, i);
    }
    inner_->encode(dtype, sums, wire, &counts, of_inner);
    if (carried.empty()) return;
    std::vector<std::byte> decoded(payload.size());
    inner_->decode(dtype, wire, decoded);
    for (std::size_t i = 0; i < carried.size(); ++i) {
      const float lost = load_value(dtype, payload, i) + carried[i] - load_value(dtype, decoded, i);
      carried[i] = std::isfinite(lost) ? lost : 0.0f;
    }
  }
  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    inner_->decode(dtype, wire, payload);
  }
  void do_decode_add(DType dtype, std::span<const std::byte> wire,
                     std::span<std::byte> sum) const override {
    inner_->decode_add(dtype, wire, sum);
  }
  void do_decode_fp32(DType dtype, std::span<const std::byte> wire,
                      std::span<float> values) const override {
    inner_->decode_fp32(dtype, wire, values);
  }
  void do_decode_fma(DType dtype, std::span<const std::byte> wire,
                     std::span<float> sum) const override {
    inner_->decode_fma(dtype, wire, sum);
  }

  CodecPtr inner_;
};

CodecPtr find_error_feedback(std::string_view name) {
  std::string_view inner = name;
  if (!take(inner, "ef-")) return nullptr;
  CodecPtr codec = find_codec(inner);
  if (codec->info().has_state) fail("codec '{}': '{}' has error feedback already", name, inner);
  return std::make_shared<ErrorFeedback>(std::move(codec));
}

}  // namespace

CodecFamily error_feedback_codecs() {
  return {.pattern = "ef-<codec>", .listed = {}, .find = find_error_feedback};
}

}  // namespace arlab
