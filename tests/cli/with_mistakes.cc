// Makes arlab a program with mistakes: the kernels of its host platform get bits wrong, and it has a codec that is wrong. The
// linker is told to take host::device_platform() from here (CMakeLists.txt).

#include <algorithm>

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

/// int4-g32 that decodes NaN to 0.
CodecPtr laundering_codec() {
  return std::make_shared<testing::MistakenCodec>(
      find_codec("int4-g32"), testing::MistakenCodec::Mistakes{
                                  .info = [](CodecInfo& info) { info.name = "laundering"; },
                                  .decode =
                                      [](const Codec& right, DType dtype,
                                         std::span<const std::byte> wire, std::span<std::byte> x) {
                                        right.decode(dtype, wire, x);
                                        for (std::size_t i = 0; i < x.size() / size_of(dtype);
                                             ++i) {
                                          const float v = load_value(dtype, x, i);
                                          if (v != v) store_value(dtype, 0, x, i);
                                        }
                                      }});
}

[[maybe_unused]] const bool kIsRegistered =
    (register_codec_family(family_of({laundering_codec()})), true);

}  // namespace
}  // namespace arlab
