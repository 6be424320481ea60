// What does every rank contribute to the all-reduces of a network on a text?

#include <cmath>
#include <filesystem>
#include <map>

#include "experiments/lab/files.h"
#include "experiments/lab/models/model_run.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/questions.h"
#include "reference/tensors/safetensors.h"
#include "reference/tensors/sha256.h"

namespace arlab::lab {
namespace {

/// Adds partial sums in fp32, and keeps those of every n-th token of a chunk.
class KeptSums : public models::TensorParallel {
 public:
  KeptSums(std::size_t ranks, std::vector<bool> layers, std::size_t hidden, std::size_t every)
      : ranks_(ranks), layers_(std::move(layers)), hidden_(hidden), every_(every) {}
  std::size_t ranks() const override { return ranks_; }
  bool splits(std::size_t) const override { return true; }
  void all_reduce(std::size_t layer, models::Projection projection,
                  std::span<const float> partial_sums, std::span<float> sum) override {
    std::ranges::fill(sum, 0.0F);
    for (std::size_t i = 0; i < partial_sums.size(); ++i) sum[i % sum.size()] += partial_sums[i];
    if (!layers_[layer]) return;
    auto& sums_of_ranks = of_ranks[fmt::format("layer{}.{}", layer, name_of(projection))];
    sums_of_ranks.resize(ranks_);
    for (std::size_t i = 0; i < partial_sums.size(); ++i) {
      const std::size_t token = i % sum.size() / hidden_;
      if (token % every_ == 0) sums_of_ranks[i / sum.size()].push_back(partial_sums[i]);
    }
  }

  std::map<std::string, std::vector<std::vector<float>>> of_ranks;  ///< by layer and projection

 private:
  std::size_t ranks_;
  std::vector<bool> layers_;
  std::size_t hidden_;
  std::size_t every_;
};

std::string stem_of(const std::string& file) { return std::filesystem::path(file).stem().string(); }

struct CaptureRequest {
  ModelText text;
  std::vector<std::string> texts;
  std::optional<std::uint32_t> ranks;
  std::string layers;
  std::string projection = "both";
  std::string dtype = "fp16";
  std::string out;
  std::optional<std::uint32_t> every;
  std::optional<std::uint32_t> threads;

  void load(const std::string& file) {
    text.text = file;
    text.load();
  }

  /// Where the tensors come from and what they are. Throws InvalidInput for texts that cannot be taken together.
  std::map<std::string, std::string> provenance() {
    std::map<std::string, std::string> metadata;
    for (const std::string& file : texts) {
      load(file);
      const bool is_new =
          metadata.emplace(stem_of(file) + ".text_sha256", sha256_of_file(file)).second;
      if (!is_new) fail("--text {}: another text has the same name", file);
    }
    const auto weights = models::find_model(text.model);
    if (std::filesystem::is_regular_file(weights))
      metadata["model_sha256"] = sha256_of_file(weights);
    metadata["model"] = text.model;
    metadata["command"] = command_line();
    metadata["shape"] = "[ranks, tokens, hidden]";
    metadata["split"] = "rank r holds the r-th of N equal parts of the contraction dimension";
    metadata["positions"] = fmt::format("every {}th token of chunks of {}, the first included",
                                        every.value_or(1), text.context_tokens());
    metadata["arithmetic"] =
        fmt::format("fp32; partial sums rounded to {}, to nearest even", dtype);
    return metadata;
  }

  Tensor rounded(const std::string& name, const std::vector<std::vector<float>>& of_ranks) const {
    std::vector<float> all;
    for (const auto& own : of_ranks) all.insert(all.end(), own.begin(), own.end());
    const std::size_t hidden = text.network().shape.hidden;
    const std::size_t tokens = of_ranks[0].size() / hidden;
    Tensor tensor = tensor_from_floats(parse_dtype(dtype), {*ranks, tokens, hidden}, all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (std::isinf(to_float(tensor, i)) && std::isfinite(all[i])) {
        fail("{}: a partial sum is {}, beyond {}: bf16 and fp32 hold it", name, all[i], dtype);
      }
    }
    return tensor;
  }

  Result answer() {
    require_output_name("--out", out, {".safetensors"});
    const auto metadata = provenance();
    const models::Llama& network = text.network();
    KeptSums sums(*ranks, layers_named(layers, network.shape.layers), network.shape.hidden,
                  every.value_or(1));
    network.require_splits(*ranks);
    std::map<std::string, Tensor> tensors;
    for (const std::string& file : texts) {
      load(file);
      for (const auto& chunk : text.chunks()) {
        network.run(chunk, &sums, threads.value_or(0));
        write_progress("");
      }
      for (const auto& [sum, of_ranks] : std::exchange(sums.of_ranks, {})) {
        if (projection != "both" && !sum.ends_with(projection)) continue;
        const std::string name = stem_of(file) + "." + sum;
        tensors[name] = rounded(name, of_ranks);
      }
    }
    write_safetensors(out, tensors, metadata);
    return {"arlab.model.capture/1",
            {{"model", text.model},
             {"texts", texts},
             {"ranks", *ranks},
             {"dtype", dtype},
             {"tensors", tensors.size()},
             {"out", out}}};
  }
};

std::vector<BoundField> fields(CaptureRequest& r) {
  std::vector<BoundField> network = fields(r.text);
  network[1] = field("text", &r.texts, "Read these texts in UTF-8, separated by commas").required();
  return together(
      network,
      {field("every", &r.every, "Keep every N-th token of a chunk, from the first on", "1")
           .from(1, UINT32_MAX),
       field("ranks", &r.ranks, "Set the world size").from(2, kMaxWorldSize).required(),
       field("layers", &r.layers, "Capture sums of these layers only, such as 0,3-5", "all"),
       field("projection", &r.projection, "Capture these sums of a layer")
           .among({"both", "attention_output", "ffn_down"}),
       field("dtype", &r.dtype, "Write tensors of this element type")
           .among({"fp16", "bf16", "fp32"}),
       field("threads", &r.threads, "Run N threads, 0 for all cores; results do not depend on it",
             "0")
           .from(0, 1024),
       field("out", &r.out, "Write this .safetensors file, for arlab reduce --input").required()});
}

}  // namespace

Question model_capture_question() {
  return question<CaptureRequest>(
      "model capture",
      "Capture the partial sums that ranks contribute to all-reduces, as .safetensors",
      &CaptureRequest::answer);
}

}  // namespace arlab::lab
