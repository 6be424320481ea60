// The commands of `arlab model`, each in a file of its own.
#pragma once

#include <CLI/CLI.hpp>

namespace arlab::cli {

void add_model_perplexity(CLI::App& model);
void add_model_layers(CLI::App& model);
void add_model_assign(CLI::App& model);
void add_model_time(CLI::App& model);
void add_model_validate(CLI::App& model);

}  // namespace arlab::cli
