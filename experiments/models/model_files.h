// Models out of files: .gguf, or .safetensors with config.json and tokenizer.json beside them, as
// Hugging Face has them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "experiments/models/llama.h"
#include "experiments/models/tokenizer.h"

namespace arlab::models {

struct LoadedModel {
  std::string name;               ///< as it was asked for
  std::filesystem::path weights;  ///< the file, or the folder, that they came from
  Llama network;
  std::optional<Tokenizer> tokenizer;  ///< nothing where a folder has none
};

/// Where models with a name lie, and other things that can be had again: the folder that
/// ARLAB_CACHE names, else arlab in XDG_CACHE_HOME, else ~/.cache/arlab.
std::filesystem::path cache_folder();

/// The file or folder that a name ("smollm2") or a path means. Throws InvalidInput, with the command
/// that fetches it, where a known model is not there.
std::filesystem::path find_model(const std::string& name);

/// Throws InvalidInput (one line) for what is missing, malformed, or no network of the Llama type.
LoadedModel load_model(const std::string& name);

}  // namespace arlab::models
