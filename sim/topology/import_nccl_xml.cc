// The topology that NCCL and RCCL write into NCCL_TOPO_DUMP_FILE and read from NCCL_TOPO_FILE. Clouds
// ship files for the latter that list GPUs by PCI class only: there NCCL looks for NVLinks itself.

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <pugixml.hpp>
#include <utility>

#include "sim/topology/import_host.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

std::string text_of(const pugi::xml_node& node, const char* key) {
  return node.attribute(key).value();
}

/// As Linux writes it.
std::string bus_of(const pugi::xml_node& node, const char* key) {
  std::string bus = text_of(node, key);
  std::transform(bus.begin(), bus.end(), bus.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return bus;
}

double giga_transfers_of(const pugi::xml_node& pci) {
  return std::strtod(pci.attribute("link_speed").value(), nullptr);
}

/// GPUs lower the speed of their link while they have nothing to do.
constexpr double kAsleep = 2.5;  // GT/s

/// Between NUMA nodes, as NCCL's topo.h has it by the processor.
Quantity socket_of(const pugi::xml_node& cpu) {
  const std::string vendor = text_of(cpu, "vendor");
  const unsigned model = cpu.attribute("modelid").as_uint();
  // With the extended family above it: 0xaf is 25.
  unsigned family = cpu.attribute("familyid").as_uint();
  if (family > 0x1f && (family & 0xf) == 0xf) family = 0xf + (family >> 4);
  const bool arm = text_of(cpu, "arch") == "arm64";
  const bool intel = vendor == "GenuineIntel" && family == 6;
  const bool amd = vendor == "AuthenticAMD";
  const bool zhaoxin = vendor == "CentaurHauls" || vendor == "  Shanghai  ";
  const bool power = text_of(cpu, "arch") == "ppc64";
  if (!arm && !intel && !amd && !zhaoxin && !power) {
    return number(
        16, Source::assumed,
        "between NUMA nodes, as NCCL takes for AMD; the file does not say which processor");
  }
  const double of_intel = model >= 207 ? 40 : model >= 143 ? 22 : model >= 85 ? 10 : 6;
  const double of_amd = family >= 26 ? 32 : family == 25 ? 24 : 16;
  const std::string which = arm     ? "ARM"
                            : power ? "POWER"
                                    : fmt::format("{}, family {}, model {}", vendor, family, model);
  return number(arm       ? 6
                : power   ? 32
                : zhaoxin ? (family == 7 && model == 91 ? 9 : 6)
                : intel   ? of_intel
                          : of_amd,
                Source::assumed,
                fmt::format("between NUMA nodes, NCCL's topo.h has this for {}", which));
}

class NcclTopology {
 public:
  explicit NcclTopology(std::string_view origin) : origin_(origin) { host_.tool = "NCCL"; }

  Host read(std::string_view text) {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed =
        document.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed) fail("{}: not XML, at byte {}: {}", origin_, parsed.offset, parsed.description());
    const pugi::xml_node system = document.child("system");
    if (!system) fail("{}: there is no <system>", origin_);
    first_cpu_ = system.child("cpu");
    for (const pugi::xml_node& cpu : system.children("cpu")) {
      const auto host = hosts_.try_emplace(cpu.attribute("host_hash").value(), hosts_.size()).first;
      visit(cpu, {.host = static_cast<Rank>(host->second), .cpu = host_.cpus}, 0);
      host_.cpu_of_complex.push_back(
          host_.cpus);  // which root complexes it has the file does not say
      ++host_.cpus;
    }
    if (gpus_.empty()) {
      fail("{}: there is no <gpu>, nor a GPU's PCI class, below <system><cpu><pci>", origin_);
    }
    host_.gpus = static_cast<Rank>(gpus_.size());
    std::stable_sort(gpus_.begin(), gpus_.end(), [](const Gpu& a, const Gpu& b) {
      return std::pair(a.place.host, a.device) < std::pair(b.place.host, b.device);
    });
    place_gpus();
    link_gpus();
    require_one_domain();
    host_.hosts = static_cast<Rank>(std::max<std::size_t>(hosts_.size(), 1));
    if (hosts_.size() > 1) {
      host_.remarks.push_back(fmt::format("{} hosts that share NVSwitches", hosts_.size()));
    }
    rate_links();
    for (const Card& card : cards_) {
      host_.cards.push_back({card.name, distance_of(card), card.gb_per_s});
    }
    return std::move(host_);
  }

 private:
  /// Where in the tree a device is.
  struct Place {
    Rank host = 0;
    Rank cpu = 0;
    Rank bridge = Host::kNone;  ///< the outermost one; those below it count as one switch with it
    std::vector<pugi::xml_node> inner = {};  ///< bridges below that
    pugi::xml_node parent = {};
  };
  struct Gpu {
    pugi::xml_node pci;
    pugi::xml_node gpu;  ///< missing where the file has the PCI class only
    std::uint32_t device = 0;
    Place place;
  };
  struct Card {
    std::string name;
    Place place;
    bool on_pcie = false;
    Quantity gb_per_s;
  };

  static bool is_gpu(const pugi::xml_node& pci) {
    if (pci.child("gpu")) return true;
    const std::string device_class = text_of(pci, "class");
    if (!device_class.starts_with("0x03") && !device_class.starts_with("0x12")) return false;
    // A server's console is a display, too.
    const std::string vendor = text_of(pci, "vendor");
    return vendor.empty() || vendor == "0x10de" || vendor == "0x1002" || vendor == "0xffff" ||
           vendor == "0x0000";
  }

  void visit(const pugi::xml_node& node, const Place& place, int depth) {
    constexpr int kMostDepth = 32;
    if (depth > kMostDepth) fail("{}: <pci> nest deeper than {}", origin_, kMostDepth);
    for (const pugi::xml_node& nic : node.children("nic")) {
      for (const pugi::xml_node& net : nic.children("net")) add_card(net, place, depth > 0);
    }
    for (const pugi::xml_node& pci : node.children("pci")) {
      if (is_gpu(pci)) {
        if (gpus_.size() == kMostGpus) fail("{}: more than {} GPUs", origin_, kMostGpus);
        const pugi::xml_node gpu = pci.child("gpu");
        const auto index = static_cast<std::uint32_t>(gpus_.size());
        gpus_.push_back({pci, gpu, gpu.attribute("dev").as_uint(index), place});
        continue;
      }
      Place below = place;
      if (pci.child("pci")) {
        if (place.bridge == Host::kNone) {
          below.bridge = static_cast<Rank>(bridges_.size());
          bridges_.push_back(pci);
        } else {
          below.inner.push_back(pci);
        }
        below.parent = pci;
      } else if (!pci.child("nic") && text_of(pci, "class").starts_with("0x02")) {
        add_card_of_class(pci, place);
      }
      visit(pci, below, depth + 1);
    }
  }

  void add_card(const pugi::xml_node& net, const Place& place, bool on_pcie) {
    constexpr double kMegabitsPerGigabyte = 8000;
    constexpr double kUnknown = 10000;     // as NCCL assumes
    constexpr double kFastest = 10000000;  // Mbit/s: beyond that a driver has said kbit/s
    const double megabits = net.attribute("speed").as_double();
    Quantity rate = number(megabits / kMegabitsPerGigabyte, Source::published,
                           fmt::format("the file: {:g} Mbit/s", megabits));
    if (!(megabits > 0 && megabits <= 1e12)) {
      rate = number(kUnknown / kMegabitsPerGigabyte, Source::assumed,
                    "10000 Mbit/s, as NCCL takes a card whose speed the file does not say");
    } else if (megabits > kFastest) {
      rate = number(
          megabits / 1000 / kMegabitsPerGigabyte, Source::assumed,
          fmt::format("the file: {:g} Mbit/s, which no card has; taken as kbit/s", megabits));
    }
    add_card({printable(text_of(net, "name")), place, on_pcie, std::move(rate)});
  }

  /// A card is about as fast as its slot.
  void add_card_of_class(const pugi::xml_node& pci, const Place& place) {
    const auto link = pcie_link(giga_transfers_of(pci), pci.attribute("link_width").as_uint(), "");
    add_card({printable(text_of(pci, "busid")), place, true,
              number(link ? link->gb_per_s.value : 25, Source::assumed,
                     link ? "what its PCIe link carries; the file has its PCI class only"
                          : "200 Gbit/s; the file has its PCI class only")});
  }

  void add_card(Card card) {
    if (cards_.size() == kMostCards) fail("{}: more than {} cards", origin_, kMostCards);
    cards_.push_back(std::move(card));
  }

  Distance distance_of(const Card& card) const {
    Distance nearest = Distance::elsewhere;
    if (!card.on_pcie) return nearest;
    for (const Gpu& gpu : gpus_) {
      const Place& place = gpu.place;
      const bool same_bridge = place.bridge == card.place.bridge && place.bridge != Host::kNone;
      nearest =
          std::min(nearest, same_bridge && place.parent == card.place.parent ? Distance::one_bridge
                            : same_bridge                                    ? Distance::bridges
                            : place.cpu == card.place.cpu                    ? Distance::host_bridge
                                                                             : Distance::system);
    }
    return nearest;
  }

  /// PCIe switches are those bridges that have GPUs.
  void place_gpus() {
    std::map<Rank, Rank> numbers;
    for (const Gpu& gpu : gpus_) {
      Rank hub = Host::kNone;
      if (gpu.place.bridge != Host::kNone) {
        hub =
            numbers.try_emplace(gpu.place.bridge, static_cast<Rank>(numbers.size())).first->second;
        if (hub == hub_nodes_.size()) {
          hub_nodes_.push_back(bridges_[gpu.place.bridge]);
          host_.complex_of_hub.push_back(gpu.place.cpu);
        }
      }
      host_.hub.push_back(hub);
      host_.cpu.push_back(gpu.place.cpu);
      host_.complex.push_back(gpu.place.cpu);
    }
    host_.hubs = static_cast<Rank>(hub_nodes_.size());
  }

  void link_gpus() {
    std::map<std::pair<Rank, std::string>, Rank> by_bus;
    Rank by_class = 0;
    for (Rank i = 0; i < host_.gpus; ++i) {
      const std::string bus = bus_of(gpus_[i].pci, "busid");
      if (!by_bus.try_emplace({gpus_[i].place.host, bus}, i).second && gpus_[i].gpu) {
        fail("{}: two GPUs have busid {}", origin_, quote(bus));
      }
      if (!gpus_[i].gpu) ++by_class;
    }
    if (by_class > 0) {
      host_.unknown_nvlink = by_class == host_.gpus
                                 ? "it lists GPUs by PCI class only, without <gpu>"
                                 : fmt::format("{} of its {} GPUs have a PCI class only, no <gpu>",
                                               by_class, host_.gpus);
    }
    host_.to_switch.assign(host_.gpus, 0);
    host_.direct.assign(host_.gpus, std::vector<std::uint32_t>(host_.gpus));
    std::uint32_t to_unlisted = 0;
    std::uint32_t to_processor = 0;
    for (Rank i = 0; i < host_.gpus; ++i) {
      for (const pugi::xml_node& link : gpus_[i].gpu.children()) {
        const std::string_view kind = link.name();
        if (kind != "nvlink" && kind != "xgmi") continue;
        if (kind == "xgmi") {
          host_.link = "xGMI";
          host_.kernels_of = "mi300x-8";
        }
        for (const char* const key : {"count", "target"}) {
          if (!link.attribute(key)) fail("{}: GPU {}: {} has no {}", origin_, i, kind, key);
        }
        const std::uint32_t count = link.attribute("count").as_uint();
        if (count < 1 || count > kMostLinks) {
          fail("{}: GPU {}: {} count is {}; allowed are 1 to {}", origin_, i, kind,
               quote(link.attribute("count").value()), kMostLinks);
        }
        const std::string far_class = text_of(link, "tclass");
        const auto other = by_bus.find({gpus_[i].place.host, bus_of(link, "target")});
        if (other != by_bus.end() && other->second == i) {
          host_.unknown_nvlink = fmt::format("the links of GPU {} lead to itself", i);
        } else if (other != by_bus.end()) {
          host_.direct[i][other->second] += count;
        } else if (far_class == "0x068001") {
          to_processor += count;
        } else if (kind == "xgmi" || far_class.starts_with("0x03") ||
                   far_class.starts_with("0x12")) {
          to_unlisted += count;
        } else {
          host_.to_switch[i] += count;
        }
      }
    }
    for (Rank a = 0; a < host_.gpus; ++a) {
      for (Rank b = 0; b < a; ++b) {
        if (host_.direct[a][b] == host_.direct[b][a]) continue;
        fail("{}: GPU {} has {} {} links to GPU {}, but {} come back", origin_, a,
             host_.direct[a][b], host_.link, b, host_.direct[b][a]);
      }
    }
    if (to_unlisted > 0) {
      host_.remarks.push_back(
          fmt::format("without {} links to GPUs that the file does not list", to_unlisted));
    }
    if (to_processor > 0) {
      host_.remarks.push_back(fmt::format("without {} NVLinks to processors", to_processor));
    }
    if (!host_.has_any_nvlink() && host_.unknown_nvlink.empty() && to_unlisted == 0) {
      host_.remarks.emplace_back("the file lists no NVLink");
    }
  }

  /// Several hosts in one file have NVSwitches that they share.
  void require_one_domain() const {
    const bool shared = std::all_of(host_.to_switch.begin(), host_.to_switch.end(),
                                    [](std::uint32_t links) { return links > 0; });
    if (hosts_.size() < 2 || shared) return;
    fail("{}: it describes {} hosts (host_hash); allowed is one, or several that share NVSwitches",
         origin_, hosts_.size());
  }

  void rate_links() {
    host_.nvlink = rate_of_a_link();
    host_.socket = socket_of(first_cpu_);
    double awake = kAsleep;
    for (const Gpu& gpu : gpus_) awake = std::max(awake, giga_transfers_of(gpu.pci));
    if (!(awake > kAsleep && awake <= 1000)) awake = 16;  // PCIe 4.0
    for (const Gpu& gpu : gpus_) {
      PcieLink link = pcie_of(gpu.pci, "of a GPU", awake);
      for (const pugi::xml_node& bridge : gpu.place.inner) {
        const PcieLink above = pcie_of(bridge, "of a bridge above a GPU", awake);
        const bool stated = above.gb_per_s.source == Source::published;
        if (stated && above.gb_per_s.value < link.gb_per_s.value) link = above;
      }
      if (const pugi::xml_node c2c = gpu.gpu.child("c2c")) {
        link.gb_per_s.note +=
            fmt::format("; C2C to the processor ({} x {:g} GB/s) is not modelled",
                        c2c.attribute("count").as_uint(1), c2c.attribute("bw").as_double() / 1000);
      }
      host_.pcie.push_back(std::move(link));
    }
    for (const pugi::xml_node& hub : hub_nodes_) {
      host_.upstream.push_back(pcie_of(hub, "of a PCIe switch", awake));
    }
  }

  /// One link and direction, as NCCL and RCCL count it (topo.h).
  Quantity rate_of_a_link() const {
    double slowest = 0;
    std::string note;
    for (const Gpu& gpu : gpus_) {
      double gb_per_s = 0;
      std::string of;
      if (const std::string gcn = text_of(gpu.gpu, "gcn"); !gcn.empty()) {
        // Files of RCCL say 910 for gfx90a, 940 for gfx940.
        const bool mi300 = gcn.starts_with("gfx94") || gcn.starts_with("94") ||
                           gcn.starts_with("gfx95") || gcn.starts_with("95");
        const bool mi200 = gcn.starts_with("gfx90a") || gcn.starts_with("910");
        gb_per_s = mi300 ? 48 : mi200 ? 36 : 24;
        of = fmt::format("RCCL's topo.h: one xGMI link of gcn {}", printable(gcn));
      } else {
        const unsigned sm = gpu.gpu.attribute("sm").as_uint(90);
        gb_per_s = sm >= 100 ? 40.1 : sm >= 90 ? 20.6 : sm == 86 ? 12 : sm >= 70 ? 20 : 18;
        of = fmt::format("NCCL's topo.h: one NVLink of sm {}", sm);
      }
      if (!note.empty() && gb_per_s >= slowest) continue;
      slowest = gb_per_s;
      note = of + "; the file only counts them";
    }
    return number(slowest, Source::assumed, note);
  }

  PcieLink pcie_of(const pugi::xml_node& pci, const char* of, double awake) const {
    const double giga_transfers = giga_transfers_of(pci);
    const unsigned stated = pci.attribute("link_width").as_uint();
    // In virtual machines; NCCL takes it so, too.
    const unsigned lanes = stated == 0 ? 16 : stated;
    std::optional<PcieLink> link =
        pcie_link(giga_transfers, lanes, fmt::format("in the file, {}", of));
    if (link && stated == 0) {
      link->gb_per_s.source = Source::assumed;
      link->gb_per_s.note += "; the file does not say how many lanes: 16, as NCCL takes it";
    }
    if (!link) return assumed_pcie(fmt::format("the file has no rate {}", of));
    if (giga_transfers > kAsleep) return *link;
    PcieLink guess = *pcie_link(awake, lanes, "");
    guess.gb_per_s = number(
        guess.gb_per_s.value, Source::assumed,
        fmt::format("{:g} GT/s x {}, three quarters of it, as NCCL counts; the file has {:g} GT/s "
                    "{}, which is that of a link asleep",
                    awake, lanes, giga_transfers, of));
    return guess;
  }

  std::string_view origin_;
  Host host_;
  std::map<std::string, std::size_t> hosts_;
  pugi::xml_node first_cpu_;
  std::vector<Gpu> gpus_;
  std::vector<Card> cards_;
  std::vector<pugi::xml_node> bridges_;    ///< the outermost ones
  std::vector<pugi::xml_node> hub_nodes_;  ///< those of them that have GPUs
};

}  // namespace

Host read_nccl_xml(std::string_view text, std::string_view origin) {
  return NcclTopology(origin).read(text);
}

}  // namespace arlab
