// The machine files of sim/topology/machines/, embedded when the library is built.
#pragma once

#include <span>
#include <string_view>

namespace arlab {

struct MachineFile {
  std::string_view name;  ///< the file's name without .toml
  std::string_view toml;  ///< its text
};

/// The machines that the library carries, in alphabetical order.
std::span<const MachineFile> machine_files();

}  // namespace arlab
