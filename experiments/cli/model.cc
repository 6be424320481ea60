// arlab model: what compressed all-reduces do to a network.

#include "experiments/cli/model.h"

#include "experiments/cli/commands.h"

namespace arlab::cli {

void add_model(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "model", "What compressed collectives do to a language model: quality and time");
  sub->require_subcommand(1);
  add_model_perplexity(*sub);
  add_model_layers(*sub);
  add_model_assign(*sub);
  add_model_time(*sub);
  add_model_validate(*sub);
}

}  // namespace arlab::cli
