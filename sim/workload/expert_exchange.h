// Tokens on their way to experts of other ranks and back, by kernels of a library with a block per peer.
//
// A rank sends each of its tokens once to every rank that has one of the token's experts (dispatch), and gets
// a sum back from each (combine). Experts lie on ranks in consecutive blocks. Blocks of all peers send at once,
// so that a step takes as long as the rank that sends or receives most:
//
//   fixed_us + copies * (copy_us + bytes of a copy / gb_per_s)
//
// where `copies` are those of the slowest rank. As benchmarks do, "uniform" spreads the experts of a token over as
// many ranks as there are. Else a token chooses each expert independently of the others, and goes to a rank unless it
// has chosen none of its experts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "reference/collectives/schedule.h"

namespace arlab {

struct ExpertStep {
  Rank ranks = 2;
  std::uint64_t tokens = 1;  ///< each rank's
  std::uint32_t experts = 2;
  std::uint32_t top_k = 1;  ///< experts of a token
  /// by expert: probability that a token chooses it; empty: uniform
  std::vector<double> chosen = {};
};

/// Copies of tokens that cross the network.
struct ExpertLoad {
  double mean = 0;     ///< a rank receives them
  double slowest = 0;  ///< the slowest rank sends or receives them
  Rank slowest_rank = 0;
};
/// Throws InvalidInput where ranks do not divide the experts, or a token has more than there are.
ExpertLoad load_of(const ExpertStep& step);

/// Kernels of a library on a device. Fitted; see kExchangeKernels.
struct ExchangeKernel {
  double fixed_us;
  double copy_us;
  double gb_per_s;
};
struct ExchangeLibrary {
  std::string_view name;
  std::string_view device;
  std::string_view source;
  Rank ranks;  ///< to which it was fitted
  ExchangeKernel dispatch;
  ExchangeKernel combine;
};
inline constexpr ExchangeLibrary kTensorRtLlm = {
    "tensorrt-llm",
    "NVIDIA GB200",
    "TensorRT-LLM 1.2.0rc6, two-sided kernels, 16 ranks of GB200 NVL72 "
    "(trtllm_alltoall_gb200_ep16_us.csv)",
    16,
    {13.3, 0.00187, 648},
    {13.4, 0.00187, 558}};

double exchange_us(const ExchangeKernel& kernel, const ExpertLoad& load, double copy_bytes);
/// Factor within which 90 of 100 times lie: residuals of the fit, and 8 % for each doubling of its ranks.
double exchange_factor(const ExchangeLibrary& library, Rank ranks);

/// Probabilities of a token that draws its experts in proportion to (e + 1)^-s: 1 - exp(-x (e + 1)^-s), with the x
/// that makes them add up to `top_k`.
std::vector<double> zipf_choices(std::uint32_t experts, std::uint32_t top_k, double s);
/// The same of a CSV file with the columns expert and tokens, a row for each expert. Throws InvalidInput: file, line, what
/// is allowed.
std::vector<double> read_choices(const std::filesystem::path& path, std::uint32_t experts,
                                 std::uint32_t top_k);

}  // namespace arlab
