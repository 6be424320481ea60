#include "sim/workload/layer.h"

#include <algorithm>
#include <cmath>

#include "reference/error.h"
#include "sim/workload/tiled_product.h"

namespace arlab {
namespace {

/// Elements of a token's keys and values on a rank: with more ranks than heads of keys, these hold copies.
double kept_elements(const Mixer& mixer, double ranks) {
  if (mixer.is_latent()) return double(mixer.latent.kv_rank) + mixer.latent.rope_size;
  const double keys =
      std::max(static_cast<double>(mixer.key_width()) / ranks, double(mixer.head_size));
  const double values =
      std::max(static_cast<double>(mixer.value_width()) / ranks, double(mixer.value_size));
  return keys + (mixer.has_values ? values : 0);
}

/// Writes the operations of one layer down; widths are of one rank.
class LayerWriter {
 public:
  LayerWriter(const ModelShape& model, const LayerKind& kind, const InferenceStep& step)
      : model_(model),
        mixer_(kind.layer.mixer),
        part_(kind.layer.feed_forward),
        step_(step),
        element_bytes_(static_cast<double>(size_of(step.dtype))),
        ranks_(step.ranks),
        world_(step.world()),
        rows_(static_cast<double>(step.rows())) {}

  std::vector<Operation> take() { return std::move(operations_); }

  void mixer_part() {
    // The layer before is taken to be of the same kind; the first one's norm is counted as the head's.
    if (!has_tail(ends_with_all_reduce())) norm("attention norm");
    const double out = mixer_.heads == 0    ? 0
                       : mixer_.is_latent() ? latent_attention()
                                            : grouped_attention();
    for (const Product& each : mixer_.products) {
      // Each rank has its share of what a state's products make; the last one puts them together.
      const bool gathers = !each.is_whole && each.outputs == model_.hidden;
      const double share = each.is_whole ? 1 : ranks_;
      gemm(WeightKind::attention, each.name.c_str(), rows_,
           gathers ? each.inputs / share : each.inputs,
           gathers ? each.outputs : each.outputs / share);
    }
    if (mixer_.state > 0) scan();
    if (out > 0 && mixer_.out_rank > 0) {
      const double rank = double(mixer_.out_rank) / ranks_;
      gemm(WeightKind::attention, "attention out down", rows_, out / mixer_.out_groups * ranks_,
           rank);
      gemm(WeightKind::attention, "attention out", rows_, rank, model_.hidden);
    } else if (out > 0) {
      gemm(WeightKind::attention, "attention out", rows_, out, model_.hidden);
    }
    communication("attention all-reduce", Collective::all_reduce, rows_ * model_.hidden);
    if (has_tail(true)) operations_.back().has_tail = true;
    residual("attention residual");
  }

  void feed_forward_part() {
    if (!has_tail(true)) norm("ffn norm");
    if (part_.width > 0) dense(part_.width, WeightKind::dense, "");
    const bool cuts = part_.experts > 0 && step_.expert_ranks() < step_.world();
    if (cuts) {
      cut_experts();
    } else {
      if (part_.experts > 0) exchanged_experts();
      if (part_.width > 0) {
        communication("ffn all-reduce", Collective::all_reduce, rows_ * model_.hidden);
      }
    }
    if (has_tail(ends_with_all_reduce())) operations_.back().has_tail = true;
    residual("ffn residual");
  }

  /// Logits of the last token of every sequence.
  void head() {
    norm("final norm");
    gemm(WeightKind::head, "logits", static_cast<double>(step_.batch), model_.hidden,
         static_cast<double>(model_.vocabulary) / ranks_);
  }

 private:
  bool has_tail(bool after_all_reduce) const {
    return step_.kernels == Kernels::tails && ranks_ > 1 && after_all_reduce;
  }
  bool ends_with_all_reduce() const {
    return part_.width > 0 && (part_.experts == 0 || step_.expert_ranks() == step_.world());
  }

  // ---- feed-forward parts

  /// A rank's share of a part that all tokens go through.
  void dense(double width, WeightKind kind, const std::string& of) {
    const double own = width / ranks_;
    gemm(kind, of + up_name(), rows_, model_.hidden, ups() * own);
    activation(of + "silu", rows_, own);
    gemm(kind, of + "down", rows_, own, model_.hidden);
  }

  double ups() const { return part_.is_gated ? 2 : 1; }
  const char* up_name() const { return part_.is_gated ? "gate and up" : "up"; }
  double sent_width() const {
    return part_.expert_inputs > 0 ? part_.expert_inputs : model_.hidden;
  }

  /// To and from the smaller vectors that experts take.
  void smaller_vectors(const char* name, double rows, bool back) {
    if (part_.expert_inputs == 0) return;
    const double narrow = part_.expert_inputs;
    gemm(WeightKind::shared, name, rows, back ? narrow : model_.hidden,
         back ? model_.hidden : narrow);
  }

  /// A rank's experts, of which it reads those that at least one of all tokens has chosen.
  void experts(double routed, double on_rank, double cut, double all_rows) {
    const double chosen = 1.0 - double(part_.experts_per_token) / part_.experts;
    const double active = on_rank * (1 - std::pow(chosen, all_rows));
    const double width = part_.expert_width / cut;
    gemm(WeightKind::experts, std::string("experts: ") + up_name(), routed, sent_width(),
         ups() * width, active);
    activation("experts: silu", routed, width);
    gemm(WeightKind::experts, "experts: down", routed, width, sent_width(), active);
  }

  /// Every rank has whole experts: tokens go to them and back.
  void exchanged_experts() {
    const double own = std::ceil(rows_ / ranks_);
    const double all_rows = rows_ * step_.groups;
    const double sent = own * part_.experts_per_token * sent_width();
    const double slots = std::ceil(sent / world_) * world_;
    gemm(WeightKind::router, "router", own, model_.hidden, part_.experts);
    elementwise("choice of experts", own * part_.experts);
    smaller_vectors("to experts", own, false);
    communication("dispatch", Collective::all_to_all, slots, true, step_.world());
    experts(all_rows * part_.experts_per_token / world_, part_.experts / world_, 1, all_rows);
    communication("combine", Collective::all_to_all, slots, step_.quantized_combine, step_.world());
    elementwise("weighted sum", own * sent_width() * (part_.experts_per_token + 1.0));
    smaller_vectors("from experts", own, true);
    if (part_.shared_width > 0) {
      gemm(WeightKind::shared, std::string("shared: ") + up_name(), own, model_.hidden,
           ups() * part_.shared_width);
      activation("shared: silu", own, part_.shared_width);
      gemm(WeightKind::shared, "shared: down", own, part_.shared_width, model_.hidden);
    }
    communication("all-gather", Collective::all_gather, own * ranks_ * model_.hidden);
  }

  /// Every expert is cut over several ranks, which all have all tokens; their sums are added.
  void cut_experts() {
    const double expert_ranks = step_.expert_ranks();
    const double all_rows = rows_ * step_.groups;
    const bool gathers = step_.groups > 1;
    const double tokens = std::ceil(rows_ / ranks_) * world_ * model_.hidden;
    if (gathers)
      communication("tokens all-gather", Collective::all_gather, tokens, true, step_.world());
    gemm(WeightKind::router, "router", all_rows, model_.hidden, part_.experts);
    elementwise("choice of experts", all_rows * part_.experts);
    smaller_vectors("to experts", all_rows, false);
    experts(all_rows * part_.experts_per_token / expert_ranks, part_.experts / expert_ranks,
            world_ / expert_ranks, all_rows);
    elementwise("weighted sum",
                all_rows * sent_width() * (part_.experts_per_token / expert_ranks + 1.0));
    smaller_vectors("from experts", all_rows, true);
    if (part_.shared_width > 0) dense(part_.shared_width, WeightKind::shared, "shared: ");
    communication("ffn all-reduce", Collective::all_reduce,
                  gathers ? tokens : rows_ * model_.hidden, true, step_.world());
  }

  // ---- attention and states

  /// Width of what comes out of it on a rank.
  double grouped_attention() {
    const double q = static_cast<double>(mixer_.attention_width()) / ranks_;
    const double gate = mixer_.is_gated ? q : 0;
    const double out = static_cast<double>(mixer_.out_width()) / ranks_;
    const double kept = kept_elements(mixer_, ranks_);
    const double kv = mixer_.has_keys ? kept : 0;
    const double rank = mixer_.latent.q_rank;
    gemm(WeightKind::attention, rank > 0 ? "q down and kv" : "qkv", rows_, model_.hidden,
         (rank > 0 ? rank : q + gate) + kv);
    if (rank > 0) gemm(WeightKind::attention, "q up", rows_, rank, q + gate);
    if (step_.attention) {
      elementwise("rope", 2 * rows_ * (q + kv));
      index();
      attention("attention", q, out, kept);
    } else {
      elementwise("copy of q", 2 * rows_ * q);
    }
    if (gate > 0) elementwise("attention gate", 3 * rows_ * out);
    return out;
  }

  /// Scores of all tokens that are kept, of each head of the index.
  void index() {
    const AttentionIndex& of = mixer_.index;
    if (of.tokens == 0) return;
    attention("index", double(of.heads) * of.size, 0, of.size, true);
  }

  /// A new token reads and writes the state of its sequence; of a prompt it is written once.
  void scan() {
    Operation& op = add("scan", OperationKind::elementwise);
    const double state = mixer_.state / ranks_ * kStateBytes;
    double widths = 0;
    for (const Product& each : mixer_.products) widths += each.outputs / ranks_;
    const double times = step_.phase == Phase::decode ? 2 : 1;
    op.bytes = element_bytes_ * rows_ * widths + times * static_cast<double>(step_.batch) * state;
  }

  double latent_attention() {
    const LatentAttention& latent = mixer_.latent;
    const double heads = mixer_.heads / ranks_;
    const double q = heads * mixer_.head_size;
    const double without_rope = mixer_.head_size - latent.rope_size;
    const double kept = kept_elements(mixer_, ranks_);
    const bool small_q = latent.q_rank > 0;
    gemm(WeightKind::attention, small_q ? "q and kv down" : "q and kv", rows_, model_.hidden,
         (small_q ? latent.q_rank : q) + kept);
    elementwise("latent norm", 2 * rows_ * (double(latent.q_rank) + latent.kv_rank));
    if (small_q) gemm(WeightKind::attention, "q up", rows_, latent.q_rank, q);
    const double out = heads * mixer_.value_size;
    if (!step_.attention) {
      elementwise("copy of q", 2 * rows_ * out);
      return out;
    }
    elementwise("rope", 2 * rows_ * (heads + 1) * latent.rope_size);
    index();
    if (step_.phase == Phase::prefill) {
      gemm(WeightKind::attention, "kv up", rows_, latent.kv_rank,
           heads * (without_rope + mixer_.value_size));
      attention("attention", q, out, q + out);
    } else {
      gemm(WeightKind::attention, "q to latent", rows_ * heads, without_rope, latent.kv_rank,
           heads);
      attention("attention", heads * kept, heads * latent.kv_rank, kept);
      gemm(WeightKind::attention, "latent to v", rows_ * heads, latent.kv_rank, mixer_.value_size,
           heads);
    }
    return out;
  }

  Operation& add(std::string name, OperationKind kind) {
    operations_.push_back({.name = std::move(name), .kind = kind});
    return operations_.back();
  }

  /// [rows, inner] by [inner, outer], which are weights of a kind; `matrices` of that shape share the
  /// rows.
  void gemm(WeightKind kind, std::string name, double rows, double inner, double outer,
            double matrices = 1) {
    Operation& op = add(std::move(name), OperationKind::gemm);
    op.flop = 2 * rows * inner * outer;
    const double weight_bytes = model_.weights.of(kind) / 8;
    op.activation_bytes = element_bytes_ * rows * (inner + outer);
    op.bytes = weight_bytes * matrices * inner * outer + element_bytes_ * rows * (inner + outer);
    op.tiles = matrices * tiles_of_product(rows / matrices, outer);
  }

  void elementwise(std::string name, double elements, std::uint32_t kernels = 1) {
    Operation& op = add(std::move(name), OperationKind::elementwise);
    op.bytes = element_bytes_ * elements;
    op.kernels = kernels;
  }

  void norm(const char* name) {
    const double tensor = rows_ * model_.hidden;
    // Fused with the residual: what the layer adds and what it adds to are read, both results are
    // written.
    elementwise(name, (step_.kernels == Kernels::separate ? 2 : 4) * tensor);
  }

  void residual(const char* name) {
    if (step_.kernels == Kernels::separate) elementwise(name, 3 * rows_ * model_.hidden);
  }

  void activation(const std::string& name, double rows, double width) {
    const bool fused = step_.kernels != Kernels::separate;
    // Without a gate there is one operand less, and no product after it.
    const double operands = part_.is_gated ? (fused ? 3 : 5) : 2;
    elementwise(name, operands * rows * width, fused || !part_.is_gated ? 1 : 2);
  }

  /// `q`, `out`: elements of a token's queries and of what they find; `kept`: of keys and values. An
  /// index looks at all that attention chooses from.
  void attention(const char* name, double q, double out, double kept, bool is_index = false) {
    Operation& op = add(name, OperationKind::attention);
    const bool prefill = step_.phase == Phase::prefill;
    double pairs_of_all = 0;
    double keys_of_all = 0;
    const auto look = [&](std::uint64_t length, double times) {
      const auto tokens = static_cast<double>(length);
      // A token of a prompt looks at itself and at those before it; a new one at all and at itself.
      const double longest = prefill ? tokens : tokens + 1;
      const double seen = is_index ? chosen_from(longest) : seen_of(longest);
      const double pairs = prefill ? seen * (seen + 1) / 2 + (tokens - seen) * seen : seen;
      pairs_of_all += times * pairs;
      keys_of_all += times * (prefill ? longest : seen);
    };
    for (const std::uint64_t length : step_.lengths) look(length, 1);
    if (step_.lengths.empty()) look(step_.tokens, static_cast<double>(step_.batch));
    op.flop = 2 * pairs_of_all * (q + out);
    op.bytes = element_bytes_ * (rows_ * (q + out) + keys_of_all * kept);
  }

  /// Returns the tokens that attention has to choose from, beyond its window, with so many before a token.
  double chosen_from(double longest) const {
    return mixer_.compression > 0 ? std::floor(longest / mixer_.compression) : longest;
  }
  /// Those that it looks at.
  double seen_of(double longest) const {
    const double seen = mixer_.window > 0 ? std::min<double>(mixer_.window, longest) : longest;
    if (mixer_.compression == 0) return limited(seen);
    return std::min(longest, seen + limited(chosen_from(longest)));
  }
  double limited(double tokens) const {
    return mixer_.index.tokens > 0 ? std::min<double>(mixer_.index.tokens, tokens) : tokens;
  }

  /// Counts below the limit are exact as doubles.
  void communication(const char* name, Collective collective, double elements, bool encoded = true,
                     Rank ranks = 0) {
    if (ranks == 0) ranks = step_.ranks;
    if (ranks == 1) return;
    if (elements > static_cast<double>(kMaxElements)) {
      fail("model {}: {} of {:.3g} elements: allowed are at most {}", quote(model_.name), name,
           elements, kMaxElements);
    }
    Operation& op = add(name, OperationKind::communication);
    op.collective = collective;
    op.elements = static_cast<std::uint64_t>(elements);
    op.encoded = encoded;
    op.ranks = ranks;
  }

  const ModelShape& model_;
  const Mixer mixer_;
  const FeedForward part_;
  const InferenceStep& step_;
  double element_bytes_;
  double ranks_;  ///< ranks that share a layer
  double world_;  ///< all of them
  double rows_;
  std::vector<Operation> operations_;
};

/// Bytes of one sequence of so many tokens that a rank keeps in a layer.
double kept_bytes(const Mixer& mixer, const InferenceStep& step, double tokens) {
  const double state = mixer.state / step.ranks * kStateBytes;
  if (mixer.heads == 0 || !mixer.has_keys) return state;
  const double element_bytes = static_cast<double>(size_of(step.dtype));
  const double compressed = mixer.compression > 0 ? std::floor(tokens / mixer.compression) : 0;
  const double indexed = mixer.compression > 0 ? compressed : tokens;
  if (mixer.window > 0) tokens = std::min<double>(tokens, mixer.window);
  // The index has 8 bits.
  return state + (tokens + compressed) * kept_elements(mixer, step.ranks) * element_bytes +
         indexed * mixer.index.size;
}

/// The operands of the operation that has most of them, and what the largest collective sends and
/// receives.
double buffer_bytes(const std::vector<Operation>& operations, const InferenceStep& step) {
  double operands = 0;
  double sent = 0;
  for (const Operation& each : operations) {
    operands = std::max(operands, each.activation_bytes);
    sent = std::max(sent, static_cast<double>(each.elements * size_of(step.dtype)));
  }
  return operands + 2 * sent;
}

void require_divides(const ModelShape& model, Rank ranks, std::uint64_t width, const char* what) {
  if (width % ranks != 0) {
    fail("model {}: {} ranks do not divide its {} {}", quote(model.name), ranks, width, what);
  }
}

void require_possible(const ModelShape& model, const Layer& layer, const InferenceStep& step) {
  const Mixer& mixer = layer.mixer;
  const FeedForward& part = layer.feed_forward;
  if (mixer.heads > 0 && mixer.is_latent()) {
    require_divides(model, step.ranks, mixer.heads, "heads");
  } else if (mixer.heads > 0) {
    require_divides(model, step.ranks, mixer.attention_width(), "elements of all heads");
  }
  if (part.width > 0) {
    require_divides(model, step.ranks, part.width, "elements of the feed-forward part");
  }
  if (part.experts == 0) return;
  require_divides(model, step.expert_ranks(), part.experts,
                  "experts; --ep sets how many ranks share them");
  require_divides(model, step.world() / step.expert_ranks(), part.expert_width,
                  "elements of an expert");
}

}  // namespace

std::string_view name_of(Phase phase) { return phase == Phase::prefill ? "prefill" : "decode"; }

std::string_view name_of(Kernels kernels) {
  return kernels == Kernels::fused ? "fused" : kernels == Kernels::separate ? "separate" : "tails";
}

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::gemm:
      return "gemm";
    case OperationKind::attention:
      return "attention";
    case OperationKind::elementwise:
      return "elementwise";
    case OperationKind::communication:
      return "communication";
  }
  return "";
}

std::vector<Operation> operations_of_layer(const ModelShape& model, const LayerKind& kind,
                                           const InferenceStep& step) {
  require_possible(model, kind.layer, step);
  LayerWriter layer(model, kind, step);
  const Mixer& mixer = kind.layer.mixer;
  const FeedForward& part = kind.layer.feed_forward;
  if (mixer.heads > 0 || !mixer.products.empty()) layer.mixer_part();
  if (part.width > 0 || part.experts > 0) layer.feed_forward_part();
  return layer.take();
}

MemoryNeed memory_of(const ModelShape& model, const InferenceStep& step) {
  MemoryNeed need;
  for (const WeightMatrix& matrix : model.matrices()) {
    const bool exchanges = step.expert_ranks() == step.world();
    // Where tokens are exchanged, each rank has the shared experts for its own.
    const bool is_whole = matrix.is_whole && (exchanges || matrix.kind != WeightKind::shared);
    const bool is_expert = matrix.kind == WeightKind::experts;
    const double parts = is_expert ? step.world() : step.ranks;
    double weights = matrix.weights() / (is_whole ? 1 : parts);
    if (matrix.parts > 0) weights = std::max(weights, matrix.weights() / matrix.parts);
    need.weights += weights * model.weights.of(matrix.kind) / 8;
  }
  for (const LayerKind& kind : model.kinds()) {
    const auto keep = [&](std::uint64_t length, double times) {
      const double tokens = static_cast<double>(length) + (step.phase == Phase::decode ? 1 : 0);
      need.kept += kind.count * times * kept_bytes(kind.layer.mixer, step, tokens);
    };
    for (const std::uint64_t length : step.lengths) keep(length, 1);
    if (step.lengths.empty()) keep(step.tokens, static_cast<double>(step.batch));
    need.buffers =
        std::max(need.buffers, buffer_bytes(operations_of_layer(model, kind, step), step));
  }
  need.buffers = std::max(need.buffers, buffer_bytes(operations_of_head(model, step), step));
  // A layer's input and the sum that it adds to need a buffer each.
  need.buffers += 2.0 * static_cast<double>(step.rows()) * model.hidden *
                  static_cast<double>(size_of(step.dtype));
  return need;
}

std::vector<Operation> operations_of_head(const ModelShape& model, const InferenceStep& step) {
  LayerWriter head(model, {}, step);
  head.head();
  return head.take();
}

}  // namespace arlab
