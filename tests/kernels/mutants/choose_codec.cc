// Instead of kernels/codecs/choice.cc: the codecs that probes have instances of.
#include "kernels/codecs/choice.h"
#include "kernels/codecs/shared_scale_kernels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

Result<CodecChoice> choose_codec(const CodecPtr& codec) {
  const std::string& name = codec->name();
  if (name == "fp16") return CodecChoice(PlainChoice());
  if (const auto format = parse_narrow(name)) return CodecChoice(*format);
  if (name == "qr-q4") return CodecChoice(QuickReduceChoice::q4);
  AnyBitParameters p = {.bits = 8, .group = {7}};
  if (name == "int8-gtensor") return CodecChoice(TwoPassAnyBitParameters{p, kWholeMessage});
  if (name == "int8-gtensor-static0.02:-2") {
    return CodecChoice(TwoPassAnyBitParameters{p, WireChunk::kElements, true, 0.02f, -2.0f});
  }
  if (name == "int8-g3000") return CodecChoice(TwoPassAnyBitParameters{p, 3000});
  p.spikes = Spikes::exact;
  if (name == "int8-g128-sr") return CodecChoice(p);
  if (name == "int4-g1024") return CodecChoice(AnyBitParameters{.bits = 4, .group = {10}});
  p = {.bits = 4, .group = {5}, .stochastic = true};
  if (name == "int4-g32-stoch") return CodecChoice(p);
  if (const auto codebook = Codebook<64>::parse(name)) return CodecChoice(*codebook);
  if (FormatChoice kernels = shared_scale_kernels(name)) return CodecChoice(kernels);
  const bool is_wide = name.starts_with("wide5");
  CodecOfHeader of_header = {.object = name, .bits = is_wide ? 5u : 4u};
  of_header.block = is_wide ? 256 : 16;
  of_header.scale_bytes = 1;
  return CodecChoice(of_header);  // its instances take the name
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
