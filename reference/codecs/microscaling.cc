// The names of microscaling: SPEC.md, "Microscaling (mx*)". What they mean is in formats/mx.h.

#include "reference/codecs/microscaling.h"

#include <utility>

#include "reference/codecs/formats/mx.h"

namespace arlab {

std::optional<MicroscalingKind> parse_microscaling(std::string_view name) {
  if (name == "nvfp4") return MicroscalingKind{BlockFormat::nvfp4, ExponentRule::floor};
  constexpr std::pair<std::string_view, BlockFormat> kFormats[] = {
      {"mxfp8-e4m3", BlockFormat::mx_e4m3},
      {"mxfp8-e5m2", BlockFormat::mx_e5m2},
      {"mxfp6-e2m3", BlockFormat::mx_e2m3},
      {"mxfp6-e3m2", BlockFormat::mx_e3m2},
      {"mxfp4", BlockFormat::mx_e2m1}};
  constexpr std::pair<std::string_view, ExponentRule> kRules[] = {{"", ExponentRule::floor},
                                                                  {"-floor", ExponentRule::floor},
                                                                  {"-ceil", ExponentRule::ceil},
                                                                  {"-even", ExponentRule::even},
                                                                  {"-rceil", ExponentRule::rceil}};
  for (const auto& [base, format] : kFormats) {
    if (!name.starts_with(base)) continue;
    for (const auto& [suffix, rule] : kRules) {
      if (name.substr(base.size()) == suffix) return MicroscalingKind{format, rule};
    }
  }
  return std::nullopt;
}

CodecFamily microscaling_codecs() {
  CodecFamily family = scaled_codecs<Mx>();
  family.pattern += " (each also -ceil, -even, -rceil)";
  return family;
}

}  // namespace arlab
