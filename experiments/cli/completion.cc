// arlab completion: what a shell needs to complete command lines, and the words themselves.

#include <algorithm>
#include <cstdlib>

#include "experiments/cli/commands.h"
#include "experiments/cli/examples.h"
#include "experiments/cli/options.h"
#include "kernels/runtime/platforms.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/tensors/synthetic.h"
#include "sim/topology/topology.h"

namespace arlab::cli {
namespace {

constexpr const char* kBash = R"(# arlab completion bash: for ~/.bashrc, or
#   arlab completion bash > ~/.local/share/bash-completion/completions/arlab
_arlab() {
  local IFS=$'\n'
  COMPREPLY=($(arlab completion words -- "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
}
complete -o default -F _arlab arlab
)";

constexpr const char* kZsh = R"(#compdef arlab
# arlab completion zsh: for ~/.zshrc after compinit, or as the file _arlab in a folder of $fpath
_arlab() {
  local -a found
  found=("${(@f)$(arlab completion words -- "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
  if [[ -n $found[1] ]]; then compadd -- $found; else _files; fi
}
compdef _arlab arlab
)";

constexpr const char* kFish = R"(# arlab completion fish > ~/.config/fish/completions/arlab.fish
complete -c arlab -a '(arlab completion words -- (commandline -cp) 2>/dev/null)'
)";

/// The words of a line; the last one ends at the cursor and may be empty.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  for (const char c : line) {
    if (c != ' ' && c != '\t') {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

/// Returns the allowed values of an option; nothing where only the user knows.
std::vector<std::string> values_of(const std::string& option) {
  if (option == "--codec" || option == "--inner-codec") return listed_codecs();
  if (option == "--algorithm") {
    std::vector<std::string> all;
    for (const Algorithm& algorithm : all_algorithms()) all.push_back(algorithm.name);
    return all;
  }
  if (option == "--topology" || option == "TOPOLOGY") return listed_topologies();
  if (option == "--dtype") return {"fp16", "bf16", "fp32"};
  if (option == "--format") return {"table", "json", "csv"};
  if (option == "--platform") {
    std::vector<std::string> all;
    for (const kernels::Platform* platform : kernels::built_platforms()) {
      all.emplace_back(platform->name());
    }
    return all;
  }
  return {};
}

/// All words that may stand at the end of the line.
std::vector<std::string> candidates(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> all;
  const auto any = [](const CLI::App*) { return true; };
  auto commands = app.get_subcommands(any);  // candidates for the next word; at the end none
  const CLI::App* command = nullptr;
  std::size_t positions = 0;  // values without an option so far
  const CLI::Option* waiting = nullptr;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool last = i + 1 == words.size();
    if (!commands.empty()) {
      if (!last) {
        const auto named =
            std::find_if(commands.begin(), commands.end(),
                         [&](const CLI::App* each) { return each->get_name() == words[i]; });
        if (named == commands.end()) return {};
        command = *named;
        commands = command->get_subcommands(any);
        continue;
      }
      for (const CLI::App* each : commands) all.push_back(each->get_name());
      all.emplace_back("--help");
      if (command == nullptr) all.emplace_back("--version");
      return all;
    }
    if (!last) {
      const bool option = words[i].starts_with('-');
      if (!option && waiting == nullptr) ++positions;
      waiting = option ? command->get_option_no_throw(words[i]) : nullptr;
      if (waiting != nullptr && waiting->get_expected_max() == 0) waiting = nullptr;
      continue;
    }
    if (waiting != nullptr) return values_of(waiting->get_name());
    std::size_t position = 0;
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) {
        if (position++ == positions && !words[i].starts_with('-')) {
          const auto values = values_of(option->get_name(true));
          all.insert(all.end(), values.begin(), values.end());
        }
        continue;
      }
      if (!words[i].starts_with('-')) continue;
      for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
    }
  }
  return all;
}

struct CompletionCommand {
  std::string what;
  std::string line;

  void run(const CLI::App& app) const {
    const std::pair<const char*, const char*> scripts[] = {
        {"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
    for (const auto& [shell, script] : scripts) {
      if (what == shell) return write_stdout(script);
    }
    if (what != "words") {
      fail("there is no completion for {}: allowed are bash, zsh, fish", quote(what));
    }
    const std::vector<std::string> words = words_of(line);
    // The last element of a list separated by commas.
    const std::size_t comma = words.back().rfind(',');
    const std::string before = comma == std::string::npos ? "" : words.back().substr(0, comma + 1);
    const std::string begun = words.back().substr(before.size());
    std::string text;
    for (const std::string& word : candidates(app, words)) {
      if (word.starts_with(begun)) text += before + word + '\n';
    }
    write_stdout(text);
  }
};

}  // namespace

void add_completion(CLI::App& app) {
  auto command = std::make_shared<CompletionCommand>();
  CLI::App* sub =
      app.add_subcommand("completion", "Print the script for shell completion of arlab's commands");
  sub->add_option("SHELL", command->what, "Print the script for bash, zsh or fish")->required();
  sub->add_option("LINE", command->line, "Complete this command line, if SHELL is words");
  sub->footer(example_of("completion"));
  sub->callback([command, &app] { command->run(app); });
}

}  // namespace arlab::cli
