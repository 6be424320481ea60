// An engine for inference adds to the steps of a model: launches that no graph holds, attention of few
// queries, sampling, and the scheduler.
//
//   step   step_us + layers * layer_us + sequences * sequence_us
//
// Declared numbers, fitted to a published time between tokens or assumed.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

namespace arlab {

struct EngineOverhead {
  std::string_view name;
  double step_us = 0;            ///< scheduler and the launch of a step
  double layer_us = 0;           ///< launches between kernels, attention of few queries
  double sequence_us = 0;        ///< sampling and bookkeeping
  std::string_view device = {};  ///< on which a time was found; elsewhere the numbers are assumed
  std::string_view source = {};

  double us(std::size_t layers, std::uint64_t sequences) const {
    return step_us + layer_us * static_cast<double>(layers) +
           sequence_us * static_cast<double>(sequences);
  }
};

/// No time of SGLang was found, nor one of vLLM that tells its terms apart: their ratio is assumed.
inline constexpr EngineOverhead kEngines[] = {
    {.name = "none"},
    {"vllm", 3000, 135, 30, "AMD Instinct MI300X",
     "vLLM pull request 19744: Qwen2.5-72B on 8 MI300X, 10 requests a second"},
    {"sglang", 3000, 135, 30, "", "as vLLM's"}};

/// Factor within which 90 of 100 times between tokens should lie: 1.3 where one was fitted, as the roofline beneath is that far
/// off, else 2.5, since without an engine decode is 1.6 to 3 times too fast.
inline double engine_factor(const EngineOverhead& engine, std::string_view device) {
  return engine.device == device ? 1.3 : 2.5;
}

}  // namespace arlab
