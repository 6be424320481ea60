#include "kernels/compile/unit.h"

namespace arlab::kernels {

std::string_view element_text(DType dtype) {
  return dtype == DType::fp16 ? "Fp16" : dtype == DType::bf16 ? "Bf16" : "Fp32";
}

std::string unit_text(const KernelForm& form, const CodecText& codec, std::string_view element,
                      int number) {
  std::string text;
  const auto line = [&](const auto&... parts) { (text.append(parts), ...).append("\n"); };
  if (!codec.type.empty()) line("#include \"kernels/codecs/device_codecs.h\"");
  line("#include \"", form.header, "\"");
  // The hash makes units of other texts of the header other units.
  if (codec.header) {
    line("#include \"", codec.header->files.front().first, "\"  // ", codec.header->hash);
  }
  line("namespace arlab::kernels {\ninline namespace ARLAB_PLATFORM {");
  if (!element.empty()) line("using Element = ", element, ";");
  if (!codec.type.empty()) line("using Codec = ", codec.type, ";");
  line("[[maybe_unused]] constexpr int kNumber = ", std::to_string(number), ";");
  const bool is_argument = !codec.type.empty() && codec.value.empty();
  line("extern \"C\" __global__ void __launch_bounds__(kThreads", form.blocks.empty() ? "" : ", ",
       form.blocks, ")");
  line(kKernelName, "(", form.parameters, is_argument ? ", ARLAB_KERNEL_PARAMETER Codec codec" : "",
       ") {");
  if (!codec.value.empty()) {
    line("[[maybe_unused]] ", codec.has_table ? "static constexpr" : "const", " Codec codec",
         codec.value, ";");
  }
  line(form.body, ";\n}\n}\n}");
  return text;
}

}  // namespace arlab::kernels
