// Common parts of the questions about models: the network, the text, and how its all-reduces travel.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/result.h"
#include "experiments/models/compressed.h"
#include "experiments/models/model_files.h"
#include "experiments/models/perplexity.h"
#include "experiments/models/quantized.h"
#include "reference/tails/tail.h"

namespace arlab::lab {

/// --model, --text, --context, --tokens: a network and the chunks of a text, with what the network
/// makes of these uncompressed.
struct ModelText {
  std::string model;
  std::string text;
  std::optional<std::uint32_t> context;
  std::optional<std::uint32_t> most_tokens;

  /// Reads both, the network once. Throws InvalidInput for a text that is too short, and a context that is too long.
  void load();
  /// Returns the chunks of another text for the same network. Throws InvalidInput for one that is too short.
  std::vector<std::vector<models::TokenId>> chunks_of_file(const std::string& path) const;

  const models::Llama& network() const { return loaded_->network; }
  const std::vector<std::vector<models::TokenId>>& chunks() const { return chunks_; }
  std::size_t tokens() const;
  std::size_t context_tokens() const;
  /// Return the hashes of the bytes that were read: the model's files, and the text.
  std::string hash_of_model() const;
  std::string hash_of_text() const;
  std::vector<Figure> figures() const;

 private:
  void load_network();
  std::vector<std::vector<models::TokenId>> chunks_in(const std::string& bytes,
                                                      const std::string& path,
                                                      std::optional<std::uint32_t> most) const;

  std::optional<models::LoadedModel> loaded_;
  std::string text_bytes_;
  std::vector<std::vector<models::TokenId>> chunks_;
};

std::vector<BoundField> fields(ModelText& text);

/// --algorithm with its options, --ranks, --dtype, --platform, --kernel-folder, --accumulate, --threads.
struct ModelCollective {
  CollectiveSpec schedule;
  ExecutionOptions execution;
  std::string platform;
  std::string kernel_folder;

  unsigned threads() const { return execution.threads.value_or(0); }

  /// How the all-reduces of a network travel with this codec. Throws InvalidInput for what does not
  /// go together, and for what is no all-reduce.
  struct Wire {
    std::shared_ptr<const models::RunCollective> run;
    /// Average over all sends, of the first chunk; of wires of variable length the most.
    double bits_per_element = 0;
    std::shared_ptr<const models::SentBytes> bytes = {};  ///< for wires of variable length
    std::string codec;
    DType dtype = DType::fp16;

    /// As they were sent, once they have run.
    double sent_bits_per_element() const;
  };
  /// `tokens`: of the chunks that will come.
  Wire wire(const std::string& codec, const std::string& dtype, Rank ranks,
            const models::Llama& network, std::span<const std::size_t> tokens) const;
  Wire wire(const std::string& codec, const std::string& dtype, Rank ranks,
            const ModelText& text) const;

  /// The sum, and the options of the algorithm.
  std::vector<Figure> figures() const;
};

std::vector<BoundField> fields(ModelCollective& collective);

/// --weights, --activations, --calibration: how the layers of a network multiply.
struct ModelFormats {
  std::vector<std::string> weights;
  std::vector<std::string> activations;
  std::string calibration;

  struct Pair {
    OperandFormat weights;
    OperandFormat activations;
  };
  /// Every combination. Throws InvalidInput.
  std::vector<Pair> pairs() const;

  /// null where both are as they come. Reads the --calibration text where scales are static.
  std::unique_ptr<models::QuantizedLayers> layers(const Pair& pair, const ModelText& text,
                                                  unsigned threads) const;
};

std::vector<BoundField> fields(ModelFormats& formats);

/// How layers multiply in these formats; null where both are as they come. `calibration`: tokens that static scales are from.
std::unique_ptr<models::QuantizedLayers> quantized_layers(
    const models::Llama& network, const ModelFormats::Pair& pair,
    const std::vector<std::vector<models::TokenId>>& calibration, unsigned threads);

/// --ranks: 2 or more. Throws InvalidInput.
Rank parse_ranks(const std::string& text);

/// "0,3-5" as a flag for each layer; empty: all. Throws InvalidInput.
std::vector<bool> layers_named(const std::string& list, std::size_t layers);

/// States of the network after each chunk, with compression. `linears` may be null; with `tail`, sums are added and normalized as it
/// says, in the dtype.
struct NetworkTail {
  Tail tail;
  DType dtype = DType::fp16;
};
std::vector<std::vector<float>> states_of(const ModelText& text, models::CompressedAllReduce& split,
                                          unsigned threads, models::LinearLayers* linears = nullptr,
                                          const std::optional<NetworkTail>& tail = std::nullopt);

/// These beside what it makes of them without.
models::PerplexitySummary summary_of(const ModelText& text,
                                     const std::vector<std::vector<float>>& baseline,
                                     const std::vector<std::vector<float>>& states,
                                     unsigned threads);

/// Returns the network's states for each chunk without compression.
std::vector<std::vector<float>> baseline_of(const ModelText& text, unsigned threads);

/// The figures of one run, with the names of the command line's contract.
std::vector<Figure> run_fields(const models::PerplexitySummary& summary,
                               const models::CompressedAllReduce& split, double wire_bits);

}  // namespace arlab::lab
