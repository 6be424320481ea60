// Sections of a machine file that all kinds share, in its order; every optional one is there.
#pragma once

#include <string>

namespace arlab {

inline const std::string kDeviceSections = R"([overhead]
launch_us = { value = 5.0, source = "assumed", note = "n" }
step_us = { value = 2.0, source = "assumed", note = "n" }
message_us = { value = 0.5, source = "assumed", note = "n" }
[device]
name = "accelerator"
hbm_gb_per_s = { value = 900.0, source = "datasheet", note = "n" }
codec_gops_per_s = { value = 40.0, source = "assumed", note = "n" }
decode_cost = { value = 0.5, source = "assumed", note = "n" }
codec_tile_us_per_op = { value = 0.25, source = "assumed", note = "n" }
codec_tile_fixed_ops = { value = 7.0, source = "assumed", note = "n" }
latency_overlap = { value = 1.25, source = "assumed", note = "n" }
codec_overlap = { value = 100.0, source = "assumed", note = "n" }
all_to_all_efficiency = { value = 0.75, source = "assumed", note = "n" }
)";

inline const std::string kStoresSection = R"([stores]
tile_bytes = { value = 32768, source = "assumed", note = "n" }
resident_tiles = { value = 1216, source = "assumed", note = "n" }
release_us = { value = 0.125, source = "assumed", note = "n" }
release_coalescing_tiles = { value = 107, source = "assumed", note = "n" }
contention_codec = { value = 5.5, source = "assumed", note = "n" }
contention_plain = { value = 1.125, source = "assumed", note = "n" }
free_packets_codec = { value = 2140, source = "assumed", note = "n" }
free_packets_plain = { value = 6500, source = "assumed", note = "n" }
decorrelation_packets = { value = 3200, source = "assumed", note = "n" }
)";

/// Instead of [stores].
inline const std::string kBlocksSection = R"([blocks]
resident = { value = 528, source = "assumed", note = "n" }
tile_elements = { value = 2048, source = "assumed", note = "n" }
slot_bytes = { value = 18432, source = "assumed", note = "n" }
load_us = { value = 0.5, source = "assumed", note = "n" }
release_us = { value = 0.0625, source = "assumed", note = "n" }
phase_us = { value = 0.75, source = "assumed", note = "n" }
meet_us = { value = 9, source = "assumed", note = "n" }
)";

inline const std::string kLibrarySection = R"([library]
channels = { value = 4, source = "assumed", note = "n" }
low_latency_us = { value = 17.5, source = "assumed", note = "n" }
low_latency_efficiency = { value = 0.68, source = "assumed", note = "n" }
low_latency_max_bytes = { value = 16384, source = "assumed", note = "n" }
low_latency_channel_gb_per_s = { value = 0, source = "assumed", note = "n" }
simple_us = { value = 2.98, source = "assumed", note = "n" }
simple_hop_us = { value = 3.05, source = "assumed", note = "n" }
drift_us = { value = 0, source = "assumed", note = "n" }
exchange_low_latency_us = { value = 9, source = "assumed", note = "n" }
exchange_low_latency_gb_per_s = { value = 20, source = "assumed", note = "n" }
exchange_us = { value = 12, source = "assumed", note = "n" }
exchange_drift_us = { value = 0, source = "assumed", note = "n" }
)";

inline const std::string kConditions = R"([[faults]]
from = "switch0"
to = "switch1"
bandwidth_factor = 0.5
note = "cable"
[[stragglers]]
rank = 3
delay_us = { value = 12.5, source = "measured", note = "n" }
)";

}  // namespace arlab
