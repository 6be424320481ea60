// Machines out of what other tools say of them.
//
//   nvidia-smi   the matrix of `nvidia-smi topo -m`
//   nccl-xml     what NCCL and RCCL write into NCCL_TOPO_DUMP_FILE, and read from NCCL_TOPO_FILE
//   astra-sim    the network file of ASTRA-sim's analytical backend, YAML or TOML
//
// The first two describe one server: GPUs that hang on NVSwitches become a switch, GPUs that are all
// linked to each other a full_mesh, others a graph of NVLink and PCIe. A number is `published` where
// the text states it; what it does not say is `assumed`, and the note says so. A text that does not
// tell whether GPUs have NVLink is refused without a base. ASTRA-sim's first dimension has
// neighbouring ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/topology/topology.h"

namespace arlab {

enum class ImportFormat : std::uint8_t { nvidia_smi, nccl_xml, astra_sim };
inline constexpr ImportFormat kImportFormats[] = {ImportFormat::nvidia_smi, ImportFormat::nccl_xml,
                                                  ImportFormat::astra_sim};
std::string_view name_of(ImportFormat format);

struct ImportOptions {
  std::optional<ImportFormat> format = {};  ///< else as the text looks
  std::string name = "imported";
  /// Whose device and software it has, and, where it is of the same kind, whose links.
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
