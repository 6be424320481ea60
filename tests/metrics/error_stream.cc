// The metrics for NumPy and Python's fractions to check.
//
//   error_stream sum DTYPE RANKS       stdin: the inputs; stdout: one float64 per element, then the
//                                      count of inexact elements as uint64
//   error_stream compare DTYPE COUNT   stdin: COUNT float64 targets, then COUNT elements;
//                                      stdout: JSON
#include <fmt/format.h>

#include <cstring>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "reference/metrics/error.h"

namespace {

std::vector<std::byte> read_all(std::istream& in) {
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::string json(const std::optional<double>& figure) {
  return figure ? fmt::format("{}", *figure) : "null";
}

void print_sum(arlab::DType dtype, std::size_t ranks) {
  const arlab::ExactSum sum = arlab::exact_sum(dtype, ranks, read_all(std::cin));
  std::cout.write(reinterpret_cast<const char*>(sum.values.data()),
                  static_cast<std::streamsize>(sum.values.size() * sizeof(double)));
  std::cout.write(reinterpret_cast<const char*>(&sum.inexact), sizeof(sum.inexact));
}

void print_comparison(arlab::DType dtype, std::size_t count) {
  const std::vector<std::byte> bytes = read_all(std::cin);
  std::vector<double> target(count);
  std::memcpy(target.data(), bytes.data(), count * sizeof(double));
  const arlab::ErrorMetrics m =
      arlab::compare(target, dtype, std::span(bytes).subspan(count * sizeof(double)));
  fmt::print(
      R"({{"elements": {}, "non_finite_target": {}, "non_finite_result": {}, "lost": {}, )"
      R"("exact": {}, "max_abs_error": {}, "rmse": {}, "sqnr_db": {}, "finite_sqnr_db": {}, )"
      R"("cosine": {}}})",
      m.elements, m.non_finite_target, m.non_finite_result, m.lost, m.exact, json(m.max_abs_error),
      json(m.rmse), json(m.sqnr_db), json(m.finite_sqnr_db), json(m.cosine));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: error_stream sum DTYPE RANKS | compare DTYPE COUNT\n";
    return 2;
  }
  const arlab::DType dtype = arlab::parse_dtype(argv[2]);
  const std::size_t number = std::stoul(argv[3]);
  std::string(argv[1]) == "sum" ? print_sum(dtype, number) : print_comparison(dtype, number);
}
