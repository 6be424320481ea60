// write_units FOLDER [all]: translation units of AMD GPUs' kernels, a file each, for inspect_code_objects.py: of codecs that differ
// most, or of one codec of every family. The first line is the kernel's name.
#include <fstream>
#include <map>

#include "tests/kernels/all_kernels.h"

namespace arlab::kernels {
namespace {

struct CodecOfUnits {
  const char* name;
  DType dtype;
  bool always;
};
constexpr CodecOfUnits kCodecs[] = {{"fp16", DType::fp16, true},
                                    {"qr-q4", DType::fp16, true},
                                    {"int8-gtensor", DType::fp16, true},
                                    {"int4-g32", DType::bf16, true},
                                    {"bf16", DType::bf16, false},
                                    {"fp32", DType::fp32, false},
                                    {"qr-q8", DType::bf16, false},
                                    {"qr-q4", DType::bf16, false},
                                    {"qr-q3", DType::fp16, false},
                                    {"qr-q6", DType::fp16, false},
                                    {"qr-fp8", DType::fp16, false},
                                    {"qr-fp4", DType::bf16, false},
                                    {"int8-g128", DType::fp16, false},
                                    {"int5-g64-sym", DType::fp16, false},
                                    {"int4-g8", DType::bf16, false},
                                    {"int2-g32-sr", DType::bf16, false},
                                    {"int2-g32-sr-is", DType::bf16, false},
                                    {"had-int4-g32", DType::bf16, false},
                                    {"int4-g32-stoch", DType::bf16, false},
                                    {"int8-g32", DType::fp32, false},
                                    {"mxfp4", DType::bf16, false},
                                    {"mxfp8-e4m3", DType::fp16, false},
                                    {"mxint8", DType::bf16, false},
                                    {"fp8-e4m3-g128", DType::bf16, false},
                                    {"nf4-g64", DType::bf16, false},
                                    {"logfmt4-g128", DType::bf16, false},
                                    {"nvfp4", DType::bf16, false},
                                    {"int8-gtensor-static0.02:-2.5", DType::bf16, false},
                                    {"int3-g24", DType::fp16, false},
                                    {"had-int4-g512", DType::bf16, false},
                                    {"shared-int8-g32", DType::bf16, false}};

void write_units(const std::string& folder, bool all) {
  std::map<std::string, std::string> names;  // by unit
  for (const CodecOfUnits& codec : kCodecs) {
    if (!all && !codec.always) continue;
    for (const WantedKernel& kernel : kernels_of(codec.name, codec.dtype)) {
      names.emplace(kernel.unit, kernel.name);
    }
  }
  std::size_t number = 0;
  for (const auto& [unit, name] : names) {
    std::ofstream(fmt::format("{}/{:03}.hip", folder, number++)) << "// " << name << "\n" << unit;
  }
}

}  // namespace
}  // namespace arlab::kernels

int main(int count, char** arguments) {
  if (count < 2) return 2;
  arlab::kernels::write_units(arguments[1], count > 2);
}
