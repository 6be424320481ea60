#include "sim/workload/layer.h"

#include <algorithm>
#include <cmath>

#include "reference/error.h"
#include "sim/workload/tiled_product.h"

namespace arlab {
namespace {

/// Writes the operations of one layer down; widths are of one rank.
class LayerWriter {
 public:
  LayerWriter(const ModelShape& model, const LayerKind& kind, const InferenceStep& step)
      : model_(model),
        kind_(kind),
        step_(step),
        element_bytes_(static_cast<double>(size_of(step.dtype))),
        ranks_(step.ranks),
        rows_(static_cast<double>(step.rows())) {}

  std::vector<Operation> take() { return std::move(operations_); }

  void attention_part() {
    norm("attention norm");
    const double out = model_.is_latent() ? latent_attention() : grouped_attention();
    gemm(WeightKind::attention, "attention out", rows_, out, model_.hidden);
    communication("attention all-reduce", Collective::all_reduce, rows_ * model_.hidden);
    residual("attention residual");
  }

  void dense_part() {
    const double ffn = double(model_.dense_layers > 0 ? model_.dense_ffn : model_.ffn) / ranks_;
    norm("ffn norm");
    gemm(WeightKind::dense, "gate and up", rows_, model_.hidden, 2 * ffn);
    activation("silu", rows_, ffn);
    gemm(WeightKind::dense, "down", rows_, ffn, model_.hidden);
    communication("ffn all-reduce", Collective::all_reduce, rows_ * model_.hidden);
    residual("ffn residual");
  }

  void experts_part() {
    const double own = std::ceil(rows_ / ranks_);
    const double routed = rows_ * model_.experts_per_token / ranks_;
    // How many of its experts a rank reads: those that at least one token has chosen.
    const double chosen = 1.0 - double(model_.experts_per_token) / model_.experts;
    const double active = model_.experts / ranks_ * (1 - std::pow(chosen, rows_));
    const double sent = own * model_.experts_per_token * model_.hidden;
    const double slots = std::ceil(sent / ranks_) * ranks_;
    norm("ffn norm");
    gemm(WeightKind::router, "router", own, model_.hidden, model_.experts);
    elementwise("choice of experts", own * model_.experts);
    communication("dispatch", Collective::all_to_all, slots);
    gemm(WeightKind::experts, "experts: gate and up", routed, model_.hidden, 2.0 * model_.ffn,
         active);
    activation("experts: silu", routed, model_.ffn);
    gemm(WeightKind::experts, "experts: down", routed, model_.ffn, model_.hidden, active);
    communication("combine", Collective::all_to_all, slots, step_.quantized_combine);
    elementwise("weighted sum", own * model_.hidden * (model_.experts_per_token + 1.0));
    if (model_.shared_ffn > 0) {
      gemm(WeightKind::shared, "shared: gate and up", own, model_.hidden, 2.0 * model_.shared_ffn);
      activation("shared: silu", own, model_.shared_ffn);
      gemm(WeightKind::shared, "shared: down", own, model_.shared_ffn, model_.hidden);
    }
    communication("all-gather", Collective::all_gather, own * ranks_ * model_.hidden);
    residual("ffn residual");
  }

  /// Logits of the last token of every sequence.
  void head() {
    norm("final norm");
    gemm(WeightKind::head, "logits", static_cast<double>(step_.batch), model_.hidden,
         static_cast<double>(model_.vocabulary) / ranks_);
  }

 private:
  /// Width of what comes out of it on a rank.
  double grouped_attention() {
    const double q = static_cast<double>(model_.attention_width()) / ranks_;
    // With more ranks than heads of keys, ranks hold copies.
    const double kv =
        std::max(static_cast<double>(model_.kv_width()) / ranks_, double(model_.head_size));
    gemm(WeightKind::attention, "qkv", rows_, model_.hidden, q + 2 * kv);
    if (step_.attention) {
      elementwise("rope", 2 * rows_ * (q + 2 * kv));
      attention(q, q, 2 * kv);
    } else {
      elementwise("copy of q", 2 * rows_ * q);
    }
    return q;
  }

  double latent_attention() {
    const LatentAttention& latent = model_.latent;
    const double heads = model_.heads / ranks_;
    const double q = heads * model_.head_size;
    const double without_rope = model_.head_size - latent.rope_size;
    const double kept = double(latent.kv_rank) + latent.rope_size;
    const bool small_q = latent.q_rank > 0;
    gemm(WeightKind::attention, small_q ? "q and kv down" : "q and kv", rows_, model_.hidden,
         (small_q ? latent.q_rank : q) + kept);
    elementwise("latent norm", 2 * rows_ * (double(latent.q_rank) + latent.kv_rank));
    if (small_q) gemm(WeightKind::attention, "q up", rows_, latent.q_rank, q);
    const double out = heads * latent.value_size;
    if (!step_.attention) {
      elementwise("copy of q", 2 * rows_ * out);
      return out;
    }
    elementwise("rope", 2 * rows_ * (heads + 1) * latent.rope_size);
    if (step_.phase == Phase::prefill) {
      gemm(WeightKind::attention, "kv up", rows_, latent.kv_rank,
           heads * (without_rope + latent.value_size));
      attention(q, out, q + out);
    } else {
      gemm(WeightKind::attention, "q to latent", rows_ * heads, without_rope, latent.kv_rank,
           heads);
      attention(heads * kept, heads * latent.kv_rank, kept);
      gemm(WeightKind::attention, "latent to v", rows_ * heads, latent.kv_rank, latent.value_size,
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
  void gemm(WeightKind kind, const char* name, double rows, double inner, double outer,
            double matrices = 1) {
    Operation& op = add(name, OperationKind::gemm);
    op.flop = 2 * rows * inner * outer;
    const double weight_bytes = model_.weights.of(kind) / 8;
    op.bytes = weight_bytes * matrices * inner * outer + element_bytes_ * rows * (inner + outer);
    op.tiles = matrices * tiles_of_product(rows / matrices, outer);
  }

  void elementwise(const char* name, double elements, std::uint32_t kernels = 1) {
    Operation& op = add(name, OperationKind::elementwise);
    op.bytes = element_bytes_ * elements;
    op.kernels = kernels;
  }

  void norm(const char* name) {
    const double tensor = rows_ * model_.hidden;
    // Fused with the residual: what the layer adds and what it adds to are read, both results are
    // written.
    elementwise(name, (step_.kernels == Kernels::fused ? 4 : 2) * tensor);
  }

  void residual(const char* name) {
    if (step_.kernels == Kernels::separate) elementwise(name, 3 * rows_ * model_.hidden);
  }

  void activation(const char* name, double rows, double width) {
    const bool fused = step_.kernels == Kernels::fused;
    elementwise(name, (fused ? 3 : 5) * rows * width, fused ? 1 : 2);
  }

  /// `q`, `out`: elements of a token's queries and of what they find; `kept`: of keys and values.
  void attention(double q, double out, double kept) {
    Operation& op = add("attention", OperationKind::attention);
    const bool prefill = step_.phase == Phase::prefill;
    double pairs_of_all = 0;
    double keys_of_all = 0;
    const auto look = [&](std::uint64_t length, double times) {
      const auto tokens = static_cast<double>(length);
      // A token of a prompt looks at itself and at those before it; a new one at all and at itself.
      const double longest = prefill ? tokens : tokens + 1;
      const double seen = kind_.window > 0 ? std::min<double>(kind_.window, longest) : longest;
      const double pairs = prefill ? seen * (seen + 1) / 2 + (tokens - seen) * seen : seen;
      pairs_of_all += times * pairs;
      keys_of_all += times * (prefill ? longest : seen);
    };
    for (const std::uint64_t length : step_.lengths) look(length, 1);
    if (step_.lengths.empty()) look(step_.tokens, static_cast<double>(step_.batch));
    op.flop = 2 * pairs_of_all * (q + out);
    op.bytes = element_bytes_ * (rows_ * (q + out) + keys_of_all * kept);
  }

  /// Counts below the limit are exact as doubles.
  void communication(const char* name, Collective collective, double elements,
                     bool encoded = true) {
    if (step_.ranks == 1) return;
    if (elements > static_cast<double>(kMaxElements)) {
      fail("model {}: {} of {:.3g} elements: allowed are at most {}", quote(model_.name), name,
           elements, kMaxElements);
    }
    Operation& op = add(name, OperationKind::communication);
    op.collective = collective;
    op.elements = static_cast<std::uint64_t>(elements);
    op.encoded = encoded;
  }

  const ModelShape& model_;
  const LayerKind kind_;
  const InferenceStep& step_;
  double element_bytes_;
  double ranks_;
  double rows_;
  std::vector<Operation> operations_;
};

void require_divides(const ModelShape& model, Rank ranks, std::uint64_t width, const char* what) {
  if (width % ranks != 0) {
    fail("model {}: {} ranks do not divide its {} {}", quote(model.name), ranks, width, what);
  }
}

}  // namespace

std::string_view name_of(Phase phase) { return phase == Phase::prefill ? "prefill" : "decode"; }

std::string_view name_of(Kernels kernels) {
  return kernels == Kernels::fused ? "fused" : "separate";
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
  if (model.is_latent()) {
    require_divides(model, step.ranks, model.heads, "heads");
  } else {
    require_divides(model, step.ranks, model.attention_width(), "elements of all heads");
  }
  if (kind.has_experts) {
    require_divides(model, step.ranks, model.experts, "experts");
  } else {
    require_divides(model, step.ranks, model.dense_layers > 0 ? model.dense_ffn : model.ffn,
                    "elements of the feed-forward part");
  }
  LayerWriter layer(model, kind, step);
  layer.attention_part();
  if (kind.has_experts) {
    layer.experts_part();
  } else {
    layer.dense_part();
  }
  return layer.take();
}

MemoryNeed memory_of(const ModelShape& model, const InferenceStep& step) {
  const double ranks = step.ranks;
  const double h = model.hidden;
  const LatentAttention& latent = model.latent;
  const double kv =
      model.is_latent()
          ? double(latent.kv_rank) + latent.rope_size
          : std::max(2.0 * static_cast<double>(model.kv_width()) / ranks, 2.0 * model.head_size);
  MemoryNeed need;
  for (const WeightMatrix& matrix : model.matrices()) {
    // Routers, shared experts and what makes latent vectors are whole on every rank.
    const bool is_whole = matrix.kind == WeightKind::router || matrix.kind == WeightKind::shared ||
                          (model.is_latent() && matrix.name.find("_a_proj") != std::string::npos);
    const bool is_kv = !model.is_latent() &&
                       (matrix.name.ends_with(".k_proj") || matrix.name.ends_with(".v_proj"));
    const double weights = is_whole ? matrix.weights()
                           : is_kv  ? h * kv / 2
                                    : matrix.weights() / ranks;
    need.weights += weights * model.weights.of(matrix.kind) / 8;
  }
  for (const LayerKind& kind : model.kinds()) {
    const auto keep = [&](std::uint64_t length, double times) {
      double tokens = static_cast<double>(length) + (step.phase == Phase::decode ? 1 : 0);
      if (kind.window > 0) tokens = std::min<double>(tokens, kind.window);
      need.kept += kind.count * times * tokens * kv * static_cast<double>(size_of(step.dtype));
    };
    for (const std::uint64_t length : step.lengths) keep(length, 1);
    if (step.lengths.empty()) keep(step.tokens, static_cast<double>(step.batch));
  }
  return need;
}

std::vector<Operation> operations_of_head(const ModelShape& model, const InferenceStep& step) {
  LayerWriter head(model, {}, step);
  head.head();
  return head.take();
}

}  // namespace arlab
