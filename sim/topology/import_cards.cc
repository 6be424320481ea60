// Rates of network cards, as `ibstat` and `ibv_devinfo -v` say them; in a text that has something else as well.

#include <cstdlib>
#include <sstream>

#include "reference/field.h"
#include "sim/topology/import_host.h"
#include "sim/topology/toml_section.h"

namespace arlab {

std::map<std::string, CardPort> ports_in(std::string_view text) {
  constexpr double kGbitPerGigabyte = 8;
  std::istringstream lines{std::string(text)};
  std::map<std::string, CardPort> ports;
  CardPort* port = nullptr;
  double lanes = 0;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> words = words_in(line);
    if (words.size() < 2) continue;
    const std::string& key = words[0];
    std::string value = printable(words[1]);
    const double number_in = std::strtod(value.c_str(), nullptr);
    if (key == "hca_id:" || (key == "CA" && value.starts_with('\''))) {
      if (ports.size() == kMostCards) break;
      std::erase(value, '\'');
      port = &ports[value];
      lanes = 0;
    } else if (port == nullptr) {
      continue;
    } else if (key == "State:" || key == "state:") {
      const bool is_up = value == "Active" || value == "PORT_ACTIVE";
      port->is_down = !is_up && port->gb_per_s.value == 0;
    } else if (key == "active_width:") {
      lanes = number_in;
    } else if (key == "Rate:" || key == "active_speed:") {
      const double gbit = number_in * (key == "Rate:" ? 1 : lanes);
      // The first working port of a card counts.
      if (gbit > 0 && gbit < 1e5 && (port->gb_per_s.value == 0 || port->is_down))
        port->gb_per_s = number(gbit / kGbitPerGigabyte, Source::published,
                                fmt::format("ibstat, ibv_devinfo: {:g} Gbit/s", gbit));
    }
  }
  return ports;
}

}  // namespace arlab
