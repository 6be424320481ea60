#include "sim/device/device.h"

#include <algorithm>
#include <cmath>

#include "reference/error.h"

namespace arlab {

std::uint32_t multiprocessors_of(const Device& device) {
  if (!device.blocks || device.blocks->multiprocessors.value < 1) {
    fail(
        "device '{}': its topology file does not say how many multiprocessors it has; needed is "
        "blocks.multiprocessors",
        device.name);
  }
  return static_cast<std::uint32_t>(device.blocks->multiprocessors.value);
}

Device with_multiprocessors(Device device, std::uint32_t count) {
  const std::uint32_t all = multiprocessors_of(device);
  if (count < 1 || count > all) {
    fail("{} multiprocessors: device '{}' has 1 to {}", count, device.name, all);
  }
  const double share = static_cast<double>(count) / all;
  Blocks& blocks = *device.blocks;
  blocks.resident.value = std::max(1.0, std::floor(blocks.resident.value * share));
  blocks.multiprocessors.value = count;
  device.codec_gops_per_s.value *= share;
  const double each = blocks.multiprocessor_gb_per_s.value;
  const double most = each > 0 ? each * count : device.hbm_gb_per_s.value * share;
  device.hbm_gb_per_s.value = std::min(device.hbm_gb_per_s.value, most);
  return device;
}

std::string_view name_of(NetFabric fabric) {
  constexpr std::string_view kNames[] = {"roce", "infiniband", "efa", "tcp"};
  return kNames[static_cast<std::size_t>(fabric)];
}

Quantity hop_floor_of(const LibraryNetwork& network) {
  if (is_given(network.hop_floor_us)) return network.hop_floor_us;
  const auto assumed = [](double us, double low, double high, const char* note) {
    return Quantity{us, Source::assumed, note, low, high};
  };
  switch (network.fabric.value_or(NetFabric::roce)) {
    case NetFabric::efa:
      return assumed(28.1, 14, 72, "as p5-2x8; p4de-2x8 takes 71.9, two p6-b200 about 15");
    case NetFabric::infiniband:
      return assumed(14.4, 7, 30, "as RoCE; no times of it were found");
    case NetFabric::tcp:
      return assumed(45, 20, 100, "of the order of sockets; no times of it were found");
    case NetFabric::roce:
      break;
  }
  return assumed(14.4, 10, 21, "as h200-2x8");
}

Device generic_device() {
  const auto assumed = [](double value) {
    return Quantity{value, Source::assumed, "round number of a generated topology"};
  };
  return {.name = "generic",
          .launch_us = assumed(4),
          .step_us = assumed(1),
          .message_us = assumed(0.5),
          .hbm_gb_per_s = assumed(3000),
          .memory_gb = unless_given(0),
          .codec_gops_per_s = assumed(5000),
          .decode_cost = assumed(1),
          .bf16_cost = unless_given(1),
          .bf16_tile_cost = unless_given(0),
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
          .compute = {},
          .tails = {}};
}

}  // namespace arlab
