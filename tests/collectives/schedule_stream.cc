// Schedules for the Python test, through our JSON code.
//
//   schedule_stream write   prints the schedule of every variant, one JSON object per line
//   schedule_stream read    reads one schedule per line; answers "ok", "violation: ..." or the
//                           refusal
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "reference/collectives/check.h"
#include "reference/collectives/schedule_json.h"
#include "reference/collectives/tailed.h"
#include "tests/collectives/variants.h"

namespace {

void write() {
  const arlab::AlgorithmOptions two_codecs = {{"group_size", 2}, {"inner_codec", "another"}};
  const auto inside = arlab::testing::schedule_of({"hierarchical", two_codecs}, 4, 135, 32);
  std::cout << arlab::schedule_to_json(inside).dump() << '\n';
  arlab::Tail tail = arlab::parse_tail("hidden=32,residual=add,norm=rms,out=int8-g32");
  const auto rows = arlab::testing::schedule_of({"two_shot", {}}, 2, 96, 32);
  for (const bool at_owner : {false, true}) {
    std::cout
        << arlab::schedule_to_json(arlab::with_tail(rows, tail, {.at_owner = at_owner})).dump()
        << '\n';
  }
  for (const arlab::Rank n : {1, 2, 3, 6}) {
    for (const auto& variant : arlab::testing::all_variants(n)) {
      const auto schedule = arlab::testing::schedule_of(variant, n, 32 * n + 7, 32);
      std::cout << arlab::schedule_to_json(schedule).dump() << '\n';
    }
    for (const auto& variant : arlab::testing::moving_variants(n)) {
      const auto schedule = arlab::testing::schedule_of(variant, n, 37 * n, 32);
      std::cout << arlab::schedule_to_json(schedule).dump() << '\n';
    }
  }
}

void read() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const auto schedule = arlab::schedule_from_json(line);
      const std::string violation = arlab::check(schedule).violation;
      std::cout << (violation.empty() ? "ok" : "violation: " + violation) << '\n';
    } catch (const arlab::InvalidInput& error) {
      std::cout << error.what() << '\n';
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode != "write" && mode != "read") {
    std::cerr << "usage: schedule_stream write|read\n";
    return 2;
  }
  mode == "write" ? write() : read();
}
