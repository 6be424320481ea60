// Machines out of what other tools say of them.
//
//   nvidia-smi   the matrix of `nvidia-smi topo -m`
//   amd-smi      the tables of `rocm-smi --showtopo` and of `amd-smi topology`, also as JSON or CSV
//   nccl-xml     what NCCL and RCCL write into NCCL_TOPO_DUMP_FILE, and read from NCCL_TOPO_FILE
//   astra-sim    the network file of ASTRA-sim's analytical backend, YAML or TOML
//
// The first three describe one server: GPUs that hang on NVSwitches become a switch, GPUs that are all
// linked to each other a full_mesh, others a graph of NVLink and PCIe. A number is `published` where
// the text states it; what it does not say is `assumed`, and the note says so. A text that does not
// tell whether GPUs have NVLink is refused without a base. ASTRA-sim's first dimension has
// neighbouring ranks.
//
// Without a base the kernels are those of the nearest machine where some were measured, and small
// messages a guess (Topology::guessed_below_bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/topology/topology.h"

namespace arlab {

enum class ImportFormat : std::uint8_t { nvidia_smi, amd_smi, nccl_xml, astra_sim };
inline constexpr ImportFormat kImportFormats[] = {ImportFormat::nvidia_smi, ImportFormat::amd_smi,
                                                  ImportFormat::nccl_xml, ImportFormat::astra_sim};
std::string_view name_of(ImportFormat format);

/// Topology::guessed_below_bytes of a machine with kernels of another one.
inline constexpr std::uint64_t kGuessedBelowBytes = 128 << 10;

struct ImportOptions {
  std::optional<ImportFormat> format = {};  ///< else as the text looks
  std::string name = "imported";
  /// The machine that gives device and software, and, where it is of the same kind, links.
  std::optional<Topology> base = {};
  /// So many of these servers, each with the network cards that the text lists: a fat_tree.
  std::optional<Rank> servers = {};
  /// GPUs whose NVLinks the text does not tell (listed by PCI class only) have none.
  bool no_nvlink = false;
};

/// `origin` names the text in messages. Throws InvalidInput with the place and what is allowed.
Topology import_topology(std::string_view text, std::string_view origin,
                         const ImportOptions& options);

}  // namespace arlab
