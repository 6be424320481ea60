// An example of each command, with which its --help ends. Tests run them in this order.
#pragma once

#include <string>
#include <string_view>

namespace arlab::cli {

constexpr const char* kExamples[] = {
    "list codecs",
    "encode x.npy x.wire --codec qr-q4",
    "decode x.wire y.npy --codec qr-q4 --dtype fp16",
    "reduce --algorithm two_shot --codec qr-q4 --ranks 8 --synthetic gaussian --elements 64K",
    "schedule --algorithm ring --ranks 4 --elements 64K",
    "simulate --topology h200-8 --algorithm two_shot --codec qr-q4 --bytes 64M",
    "topology show h200-8",
    "topology flows l40-8 --flows \"0>1 2>3\"",
    "topology compare h100-8 h200-8",
    "topology import topology.txt --from nvidia-smi --out mine.toml",
    "select --topology h200-8 --bytes 64M --min-sqnr 20",
    "study study.toml --out results",
    "sweep --topology h200-8,mi300x-8 --codec fp16,qr-q4 --bytes 1M..64M",
    "model perplexity --model smollm2 --text text.txt --codec qr-q8,qr-q4 --ranks 8",
    "model layers --model smollm2 --text text.txt --codec qr-q4 --ranks 8",
    "model assign --model smollm2 --text text.txt --codec qr-q8,qr-q4 --max-kl 0.05 --ranks 8",
    "model capture --model smollm2 --text text.txt --ranks 8 --out sums.safetensors",
    "model time --model llama-3-70b --topology h200-8 --codec bf16,qr-q4 --tokens 4096",
    "model experts --topology gb200-72 --ranks 16 --codec nvfp4 --routing zipf:0.5",
    "model validate --cells",
    "report results",
    "vectors golden --codec qr-q4",
    "check-codec int4-g32",
    "conform --platform host --codec qr-q4 --algorithm one_shot --ranks 2",
    "judge --calls calls --answers answers --ranks 8 --dtype bf16",
    "bench --platform cuda --codec bf16,qr-q4 --bytes 1M..256M --vendor",
    "kernels list",
    "kernels build --codec qr-q4 --arch sm_90 --out kernels",
    "kernels clear",
    "new codec absmax6-g32 --header absmax6.h",
    "doctor",
    "completion bash",
    "validate --against measured",
    "calibrate --file times.csv --out machines",
};

/// The last line of a command's help.
inline std::string example_of(std::string_view command) {
  for (const std::string example : kExamples) {
    if (example.starts_with(command)) return "Example: arlab " + example;
  }
  return {};
}

}  // namespace arlab::cli
