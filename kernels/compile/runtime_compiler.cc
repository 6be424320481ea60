#include "kernels/compile/runtime_compiler.h"

#include <fmt/format.h>

#include <memory>

namespace arlab::kernels {

Result<RuntimeCompiler> RuntimeCompiler::of(const SharedLibrary& library,
                                            const RuntimeCompilerNames& names) {
  RuntimeCompiler found;
  const bool whole =
      library.find(names.create, found.create_) && library.find(names.destroy, found.destroy_) &&
      library.find(names.compile, found.compile_) &&
      library.find(names.log_size, found.log_size_) && library.find(names.log, found.log_) &&
      library.find(names.code_size, found.code_size_) && library.find(names.code, found.code_) &&
      library.find(names.error_string, found.error_string_);
  if (!whole) {
    return Status::error(
        fmt::format("{} lacks {} or another of its functions", library.path(), names.create));
  }
  return found;
}

Result<std::string> RuntimeCompiler::text_of(Program program, int (*size_of)(Program, std::size_t*),
                                             int (*get)(Program, char*)) const {
  std::size_t bytes = 0;
  ARLAB_RETURN_IF_ERROR(status_of(size_of(program, &bytes)));
  std::string text(bytes, '\0');
  if (bytes != 0) ARLAB_RETURN_IF_ERROR(status_of(get(program, text.data())));
  return text;
}

Status RuntimeCompiler::status_of(int error) const {
  if (error == 0) return {};
  return Status::error(fmt::format("the compiler failed: {}", error_string_(error)));
}

Result<CodeObject> RuntimeCompiler::compile(const Unit& unit,
                                            std::vector<std::string> options) const {
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const Header& header : unit.headers) {
    texts.push_back(header.text.empty() ? "\n" : header.text.c_str());  // hipRTC takes no empty one
    names.push_back(header.name.c_str());
  }
  options.insert(options.end(), unit.options.begin(), unit.options.end());
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());

  Program program = nullptr;
  ARLAB_RETURN_IF_ERROR(
      status_of(create_(&program, unit.text.c_str(), unit.name.c_str(),
                        static_cast<int>(texts.size()), texts.data(), names.data())));
  const auto destroy = [this](void* made) { (void)destroy_(&made); };
  const std::unique_ptr<void, decltype(destroy)> destroyed(program, destroy);
  const Status compiled =
      status_of(compile_(program, static_cast<int>(words.size()), words.data()));
  ARLAB_ASSIGN_OR_RETURN(std::string log, text_of(program, log_size_, log_));
  log.resize(log.find_last_not_of(std::string_view("\0\n", 2)) + 1);
  if (!compiled.ok()) return log.empty() ? compiled : Status::error(first_error(log));
  ARLAB_ASSIGN_OR_RETURN(std::string code, text_of(program, code_size_, code_));
  return CodeObject{std::move(code), std::move(log)};
}

std::string first_error(std::string_view log) {
  std::size_t marked = log.find("error:");
  if (marked == std::string_view::npos) marked = log.find("error ");  // "ptxas error   : ..."
  const std::size_t end = log.find('\n', marked == std::string_view::npos ? 0 : marked);
  const std::string_view lines = log.substr(0, end);
  return std::string(lines.substr(lines.rfind('\n') + 1));  // the whole line for npos
}

}  // namespace arlab::kernels
