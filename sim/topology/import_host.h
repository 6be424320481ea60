// A server as a text describes it, in a form common to all texts. import_nvidia_smi.cc, import_amd_smi.cc and
// import_nccl_xml.cc read it; import.cc makes a topology of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/topology/topology.h"

namespace arlab {

inline constexpr Rank kMostGpus = 128;             // most GPUs of a text
inline constexpr Rank kMostCards = 2 * kMostGpus;  // network cards, likewise
inline constexpr std::uint32_t kMostLinks = 1024;  // NVLinks of one line of a text
inline constexpr std::uint32_t kLinksOfAGpu = 18;  // NVLinks: more pairs than that need a switch

Quantity number(double value, Source source, std::string note);

/// How far two devices are from each other, the nearest first.
enum class Distance : std::uint8_t {
  self,
  nvlink,
  one_bridge,   ///< PIX
  bridges,      ///< PXB
  host_bridge,  ///< PHB
  node,         ///< NODE
  system,       ///< SYS
  elsewhere,    ///< on no PCIe
};
/// As nvidia-smi calls it.
std::string_view name_of(Distance distance);

struct PcieLink {
  Quantity gb_per_s;
  std::string name = "assumed";  ///< gen4_x16
};
/// Three quarters of the nominal rate, as NCCL counts; nothing where there is no such link.
std::optional<PcieLink> pcie_link(double giga_transfers, unsigned lanes, const std::string& of);
/// PCIe 4.0 x16.
PcieLink assumed_pcie(const std::string& why);

struct NetworkCard {
  std::string name;
  Distance distance = Distance::elsewhere;  ///< to the nearest GPU
  Quantity gb_per_s;
};

struct Host {
  static constexpr Rank kNone = UINT32_MAX;

  std::string tool;
  std::string link = "NVLink";  ///< name of the links; xGMI for AMD's GPUs
  std::string kernels_of =
      "h100-8";    ///< without a base: the nearest machine whose kernels were measured
  Rank hosts = 1;  ///< hosts that share NVSwitches
  Rank gpus = 0;
  std::vector<std::vector<std::uint32_t>> direct;  ///< NVLinks between two GPUs
  std::vector<std::uint32_t> to_switch;            ///< NVLinks of a GPU to NVSwitches
  std::vector<Rank> hub;                           ///< PCIe switch by GPU, or kNone
  std::vector<Rank> cpu;                           ///< NUMA node by GPU
  Rank hubs = 0;                                   ///< PCIe switches with GPUs
  Rank cpus = 0;
  std::vector<Rank> complex;         ///< root complex by GPU
  std::vector<Rank> complex_of_hub;  ///< root complex
  std::vector<Rank> cpu_of_complex;
  std::vector<NetworkCard> cards;
  Quantity nvlink;                 ///< one link in one direction
  std::vector<PcieLink> pcie;      ///< by GPU
  std::vector<PcieLink> upstream;  ///< by PCIe switch
  Quantity socket;                 ///< between NUMA nodes
  /// Reason why it is unknown whether GPUs have NVLink; empty where the text says it.
  std::string unknown_nvlink;
  /// Facts of the text that the topology leaves out.
  std::vector<std::string> remarks;

  bool has_nvlink(Rank a, Rank b) const {
    return direct[a][b] > 0 || (to_switch[a] > 0 && to_switch[b] > 0);
  }
  bool has_any_nvlink() const;
};

Host read_nvidia_smi(std::string_view text, std::string_view origin);
Host read_amd_smi(std::string_view text, std::string_view origin);
Host read_nccl_xml(std::string_view text, std::string_view origin);

/// A network card by ibstat or ibv_devinfo -v.
struct CardPort {
  Quantity gb_per_s;  ///< 0: the text does not say
  bool is_down = false;
};
/// By name, such as mlx5_0; none where the text has nothing of these.
std::map<std::string, CardPort> ports_in(std::string_view text);

}  // namespace arlab
