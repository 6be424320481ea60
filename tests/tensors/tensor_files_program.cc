// Driven by tensor_files_test.py: tensors through our readers, generators and writers.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "reference/tensors/npy.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/synthetic.h"

namespace {

std::size_t count(std::string_view text) {
  std::size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void run(const std::vector<std::string>& arguments) {
  using namespace arlab;
  const std::string& command = arguments.at(0);
  if (command == "npy") {  // IN DTYPE OUT
    write_npy(arguments.at(3), read_npy(arguments.at(1), parse_dtype(arguments.at(2))));
  } else if (command == "safetensors") {  // IN NAME OUT
    write_npy(arguments.at(3), read_safetensors(arguments.at(1), arguments.at(2)));
  } else if (command == "list-safetensors") {  // IN
    for (const SafetensorsEntry& entry : list_safetensors(arguments.at(1))) {
      fmt::print("{} {} {}\n", entry.name, entry.dtype, shape_text(entry.shape));
    }
  } else if (command == "synthetic") {  // SPEC DTYPE RANKS ELEMENTS OUT
    write_npy(arguments.at(5), make_synthetic(arguments.at(1), parse_dtype(arguments.at(2)),
                                              count(arguments.at(3)), count(arguments.at(4))));
  } else {
    fail("unknown command {}", command);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(std::vector<std::string>(argv + 1, argv + argc));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
