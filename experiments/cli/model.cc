// arlab model: what compressed all-reduces do to a network.

#include "experiments/cli/model.h"

#include "experiments/cli/commands.h"

namespace arlab::cli {

void add_model(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("model", "What compressed all-reduces do to a language model");
  sub->require_subcommand(1);
  add_model_perplexity(*sub);
}

}  // namespace arlab::cli
