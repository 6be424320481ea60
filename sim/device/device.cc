#include "sim/device/device.h"

namespace arlab {

Device generic_device() {
  const auto assumed = [](double value) {
    return Quantity{value, Source::assumed, "round number of a generated topology"};
  };
  return {.name = "generic",
          .launch_us = assumed(4),
          .step_us = assumed(1),
          .message_us = assumed(0.5),
          .hbm_gb_per_s = assumed(3000),
          .codec_gops_per_s = assumed(5000),
          .decode_cost = assumed(1),
          .codec_tile_us_per_op = assumed(0.2),
          .codec_tile_fixed_ops = assumed(10),
          .latency_overlap = assumed(1),
          .codec_overlap = assumed(2),
          .all_to_all_efficiency = assumed(1),
          .copy_efficiency = unless_given(1),
          .stores = {},
          .blocks = {},
          .codecs = {},
          .small = {},
          .sentinels = {},
          .library = {},
          .nccl = {},
          .compute = {}};
}

}  // namespace arlab
