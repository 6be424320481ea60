#include "sim/workload/model_shape.h"

#include <algorithm>

#include "reference/error.h"
#include "reference/words.h"

namespace arlab {
namespace {

/// Writes down the matrices of one layer.
class MatrixWriter {
 public:
  MatrixWriter(const ModelShape& model, std::string prefix, std::vector<WeightMatrix>& all)
      : model_(model), prefix_(std::move(prefix)), all_(all) {}

  void mixer(const Mixer& mixer) {
    const double h = model_.hidden;
    const std::string self = prefix_ + model_.names.attention + ".";
    if (mixer.heads > 0 && mixer.is_latent()) {
      latent(mixer, self);
    } else if (mixer.heads > 0) {
      queries(mixer, self);
      const auto keys = [&](const char* name, std::uint64_t width) {
        add(self + name, WeightKind::attention, h, static_cast<double>(width));
        all_.back().parts = mixer.kv_heads;
      };
      if (mixer.has_keys) keys("k_proj", mixer.key_width());
      if (mixer.has_keys && mixer.has_values) keys("v_proj", mixer.value_width());
      out(mixer, self);
    }
    const std::string& state = mixer.state_name.empty() ? model_.names.attention : mixer.state_name;
    for (const Product& each : mixer.products) {
      add(prefix_ + state + "." + each.name, WeightKind::attention, each.inputs, each.outputs);
      all_.back().is_whole = each.is_whole;
    }
  }

  void feed_forward(const FeedForward& part) {
    const std::string name = prefix_ + model_.names.feed_forward + ".";
    const double inputs = part.expert_inputs > 0 ? part.expert_inputs : model_.hidden;
    gated(name, WeightKind::dense, part, model_.hidden, part.width);
    if (part.experts == 0) return;
    add(prefix_ + model_.names.router, WeightKind::router, model_.hidden, part.experts);
    all_.back().is_whole = true;
    if (part.expert_inputs > 0) {
      for (const char* each : {"fc1_latent_proj", "fc2_latent_proj"}) {
        add(name + each, WeightKind::shared, model_.hidden, inputs);
        all_.back().is_whole = true;
      }
    }
    const std::size_t first = all_.size();
    gated(prefix_ + model_.names.experts + ".0.", WeightKind::experts, part, inputs,
          part.expert_width);
    for (std::size_t i = first; i < all_.size(); ++i) {
      all_[i].count = part.experts;
      all_[i].used = part.experts_per_token;
    }
    const std::size_t shared = all_.size();
    gated(prefix_ + model_.names.shared + ".", WeightKind::shared, part, model_.hidden,
          part.shared_width);
    for (std::size_t i = shared; i < all_.size(); ++i) all_[i].is_whole = true;
  }

  void add(std::string name, WeightKind kind, double inputs, double outputs) {
    all_.push_back({std::move(name), kind, inputs, outputs});
  }

 private:
  void queries(const Mixer& mixer, const std::string& self) {
    const double h = model_.hidden;
    const double q = static_cast<double>(mixer.attention_width()) * (mixer.is_gated ? 2 : 1);
    const double rank = mixer.latent.q_rank;
    if (rank > 0) {
      add(self + "q_a_proj", WeightKind::attention, h, rank);
      all_.back().is_whole = true;
    }
    add(self + (rank > 0 ? "q_b_proj" : "q_proj"), WeightKind::attention, rank > 0 ? rank : h, q);
  }

  void latent(const Mixer& mixer, const std::string& self) {
    const LatentAttention& latent = mixer.latent;
    queries(mixer, self);
    const double of_head = mixer.head_size - latent.rope_size + mixer.value_size;
    add(self + "kv_a_proj_with_mqa", WeightKind::attention, model_.hidden,
        double(latent.kv_rank) + latent.rope_size);
    all_.back().is_whole = true;
    add(self + "kv_b_proj", WeightKind::attention, latent.kv_rank, mixer.heads * of_head);
    out(mixer, self);
  }

  void out(const Mixer& mixer, const std::string& self) {
    const auto width = static_cast<double>(mixer.out_width());
    if (mixer.out_rank == 0) {
      add(self + "o_proj", WeightKind::attention, width, model_.hidden);
      return;
    }
    // In groups: each has its share of the inputs, and all the rank's elements are of one of them.
    const double group = std::max(1.0, double(mixer.out_rank) / mixer.out_groups);
    add(self + "o_a_proj", WeightKind::attention, width, group);
    add(self + "o_b_proj", WeightKind::attention, mixer.out_rank, model_.hidden);
  }

  void gated(const std::string& part, WeightKind kind, const FeedForward& shape, double inputs,
             double width) {
    if (width == 0) return;
    for (std::size_t i = shape.is_gated ? 0 : 1; i < 3; ++i) {
      add(part + model_.names.gated[i], kind, i < 2 ? inputs : width, i < 2 ? width : inputs);
    }
  }

  const ModelShape& model_;
  std::string prefix_;
  std::vector<WeightMatrix>& all_;
};

std::vector<WeightMatrix> matrices_of(const ModelShape& model, const Layer& layer,
                                      const std::string& prefix) {
  std::vector<WeightMatrix> all;
  MatrixWriter writer(model, prefix, all);
  writer.mixer(layer.mixer);
  writer.feed_forward(layer.feed_forward);
  return all;
}

}  // namespace

std::vector<LayerKind> ModelShape::kinds() const {
  std::vector<LayerKind> kinds;
  for (const Layer& layer : layers) {
    const auto known = std::ranges::find(kinds, layer, &LayerKind::layer);
    if (known == kinds.end()) {
      kinds.push_back({1, layer});
    } else {
      ++known->count;
    }
  }
  return kinds;
}

double ModelShape::parameters() const {
  double sum = 0;
  for (const WeightMatrix& matrix : matrices()) sum += matrix.weights();
  return sum;
}

double ModelShape::active_parameters() const {
  double sum = 0;
  for (const WeightMatrix& matrix : matrices()) {
    sum += matrix.used * matrix.inputs * matrix.outputs;
  }
  return sum;
}

std::vector<WeightMatrix> ModelShape::matrices() const {
  std::vector<WeightMatrix> all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<WeightMatrix> own =
        matrices_of(*this, layers[i], fmt::format("{}.{}.", names.layers, i));
    std::ranges::move(own, std::back_inserter(all));
  }
  const auto add = [&](const char* name, WeightKind kind, double inputs, double outputs,
                       double used) {
    if (inputs > 0) all.push_back({name, kind, inputs, outputs, 1, used});
  };
  if (!tied) add("model.embed_tokens", WeightKind::embedding, hidden, vocabulary, 0);
  add("model.embed_tokens_per_layer", WeightKind::embedding, more_embedding, 1, 0);
  add("lm_head", WeightKind::head, hidden, vocabulary, 1);
  add("model.visual", WeightKind::vision, vision, 1, 0);
  if (vision > 0) all.back().is_whole = true;
  return all;
}

double parameters_of(const ModelShape& model, const Layer& layer) {
  double sum = 0;
  for (const WeightMatrix& matrix : matrices_of(model, layer, "")) sum += matrix.weights();
  return sum;
}

std::string describe(const Layer& layer) {
  const Mixer& mixer = layer.mixer;
  const FeedForward& part = layer.feed_forward;
  std::vector<std::string> words;
  if (mixer.heads > 0) {
    words.emplace_back(mixer.is_latent() ? "latent attention" : "attention");
    if (mixer.window > 0) words.back() += fmt::format(" in a window of {}", mixer.window);
    if (mixer.compression > 0) words.back() += fmt::format(", 1:{} behind it", mixer.compression);
    if (mixer.index.tokens > 0) words.back() += fmt::format(", {} by an index", mixer.index.tokens);
  }
  if (mixer.state > 0) words.push_back(mixer.state_kind);
  if (part.experts > 0) words.push_back(fmt::format("{} experts", part.experts));
  if (part.shared_width > 0) words.emplace_back("shared expert");
  if (part.width > 0) words.emplace_back("dense feed-forward");
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace arlab
