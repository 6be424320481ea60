// A compiler for tests, in the place of NVRTC and hipRTC, with the functions of both. Its version is in FAKE_COMPILER_VERSION (12060
// is 12.6). It ends the process where it compiles for gfx942, as hipRTC of ROCm 5.2 does.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct Program {
  std::string text;
  std::string log;
  std::string code;
};

int version_number() {
  const char* const number = std::getenv("FAKE_COMPILER_VERSION");
  return number != nullptr ? std::atoi(number) : 13000;
}
int version(int* major, int* minor) {
  *major = version_number() / 1000;
  *minor = version_number() % 1000 / 10;
  return 0;
}
int create(void** program, const char* text) {
  *program = new Program{text, "", ""};
  return 0;
}
int destroy(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}
int compile(void* given, int count, const char* const* options) {
  auto* const program = static_cast<Program*>(given);
  for (int i = 0; i < count; ++i) {
    if (std::strstr(options[i], "gfx942") != nullptr) std::abort();
    program->log += std::string(options[i]) + " ";
  }
  program->code = "code of " + program->text;
  return program->text == "bad" ? 6 : 0;
}
int size_of(const std::string& text, std::size_t* size) {
  *size = text.size();
  return 0;
}
int copy(const std::string& text, char* to) {
  std::memcpy(to, text.data(), text.size());
  return 0;
}
Program& at(void* program) { return *static_cast<Program*>(program); }

}  // namespace

#define FAKE_COMPILER(prefix, CodeSize, Code)                                                \
  int prefix##Version(int* major, int* minor) { return version(major, minor); }              \
  int prefix##CreateProgram(void** program, const char* text, const char*, int,              \
                            const char* const*, const char* const*) {                        \
    return create(program, text);                                                            \
  }                                                                                          \
  int prefix##DestroyProgram(void** program) { return destroy(program); }                    \
  int prefix##CompileProgram(void* program, int count, const char* const* options) {         \
    return compile(program, count, options);                                                 \
  }                                                                                          \
  int prefix##GetProgramLogSize(void* program, std::size_t* size) {                          \
    return size_of(at(program).log, size);                                                   \
  }                                                                                          \
  int prefix##GetProgramLog(void* program, char* log) { return copy(at(program).log, log); } \
  int CodeSize(void* program, std::size_t* size) { return size_of(at(program).code, size); } \
  int Code(void* program, char* code) { return copy(at(program).code, code); }               \
  const char* prefix##GetErrorString(int) { return "a fake failure"; }

extern "C" {
FAKE_COMPILER(nvrtc, nvrtcGetCUBINSize, nvrtcGetCUBIN)
FAKE_COMPILER(hiprtc, hiprtcGetCodeSize, hiprtcGetCode)
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
int nvrtcGetSupportedArchs(int* architectures) {
  *architectures = 90;
  return 0;
}
int nvrtcGetPTXSize(void*, std::size_t* size) {
  return size_of("// release 13.0, V13.0.7\n", size);
}
int nvrtcGetPTX(void*, char* ptx) { return copy("// release 13.0, V13.0.7\n", ptx); }
}
