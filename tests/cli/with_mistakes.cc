// What makes of arlab a program with mistakes: the kernels of its host platform get bits wrong. The
// linker is told to take host::device_platform() from here (CMakeLists.txt).

#include "tests/kernels/mistaken_platform.h"

namespace arlab::kernels::host {

const Platform& right_device_platform() asm("__real__ZN5arlab7kernels4host15device_platformEv");
const Platform& wrong_device_platform() asm("__wrap__ZN5arlab7kernels4host15device_platformEv");

const Platform& wrong_device_platform() {
  static const testing::MistakenPlatform wrong(right_device_platform());
  return wrong;
}

}  // namespace arlab::kernels::host
