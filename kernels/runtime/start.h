// Starting a kernel: on GPUs one that is compiled when it is called for, on emulated ones one of the program's. Arguments of
//
//   start(kernel, blocks, stream, arguments...)                          a kernel without a codec
//   start_of_codec(kernel, codec, dtype, blocks, stream, arguments...)
//   start_of_message_scale(...)                                          the same in kernels that measure (codecs/message_scale.h)
//   launch_encode_of(codec, element, ...), launch_decode_of(), launch_decode_add_of(), launch_program_of()
//                                                                        a device codec that the host knows as a type
//
// have the types of the kernel's parameters (compile/unit.h).
#pragma once

#if defined(ARLAB_KERNELS_ON_DEMAND)
#include "kernels/compile/start.h"
#else
#include "kernels/platform/host/start.h"
#endif
