// Makes arlab a program with mistakes: the kernels of its host platform get bits wrong, and it has a codec that is wrong. The
// linker is told to take host::device_platform() from here (CMakeLists.txt).

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/codecs/registry.h"
#include "tests/codecs/mistaken_codec.h"
#include "tests/kernels/mistaken_platform.h"

namespace arlab::kernels::host {

const Platform& right_device_platform() asm("__real__ZN5arlab7kernels4host15device_platformEv");
const Platform& wrong_device_platform() asm("__wrap__ZN5arlab7kernels4host15device_platformEv");

const Platform& wrong_device_platform() {
  static const testing::MistakenPlatform wrong(right_device_platform());
  return wrong;
}

}  // namespace arlab::kernels::host

namespace arlab {
namespace {

/// int4-g32 that decodes a value to another one.
CodecPtr decoding_to(const std::string& name, float (*other)(DType, float)) {
  const auto decode = [other](const Codec& right, DType dtype, std::span<const std::byte> wire,
                              std::span<std::byte> x) {
    right.decode(dtype, wire, x);
    for (std::size_t i = 0; i < x.size() / size_of(dtype); ++i) {
      store_value(dtype, other(dtype, load_value(dtype, x, i)), x, i);
    }
  };
  const testing::MistakenCodec::Mistakes all{.info = [name](CodecInfo& info) { info.name = name; },
                                             .decode = decode};
  return std::make_shared<testing::MistakenCodec>(find_codec("int4-g32"), all);
}

float laundered(DType, float v) { return v == v ? v : 0; }

/// Keeps all rules, with numbers that nobody has.
float of_fp16(DType dtype, float v) {
  if (dtype == DType::fp16 || !(std::abs(v) < 256)) return v;
  return dtype == DType::bf16 ? 0 : std::nanf("");
}

[[maybe_unused]] const bool kAreRegistered =
    (register_codec_family(
         family_of({decoding_to("laundering", laundered), decoding_to("of-fp16", of_fp16)})),
     true);

}  // namespace
}  // namespace arlab
