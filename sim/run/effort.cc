#include "sim/run/effort.h"

namespace arlab {
namespace {

// Whether messages end one by one, with all rates to be solved for again each time, or by the
// thousands, nobody knows before. So there are looks at how far it is.

constexpr std::uint64_t kFirstLook = 128;  ///< at most_solved / this
/// A guess from the beginning may be wrong by 256, since where all start at once, many are under
/// way; half way to the end, only by 4.
constexpr double kFarTooMuch = 2;
/// Whoever starts first is a bad sample.
constexpr std::uint64_t kFewestDelivered = 64;

}  // namespace

Effort::Effort(const Copies& copies, const Topology& topology, const Fabric& fabric,
               const SimulateOptions& options)
    : copies_(copies),
      topology_(topology),
      most_solved_(options.most_solved),
      next_look_(options.most_solved / kFirstLook) {
  const Plan& plan = copies.plan();
  for (const PlannedMessage& message : plan.messages) {
    const std::uint64_t links = message.reach == Reach::one
                                    ? fabric.hops_between(message.from, message.to)
                                    : plan.world_size + std::uint64_t{1};
    crossings_ += links * copies.copies();
    if (crossings_ > options.most_crossings) {
      fail(
          "{} of {} ranks on topology '{}': its messages cross more than {} links together, which "
          "would take minutes and gigabytes; allowed are fewer ranks, or an algorithm whose "
          "messages go to near ranks",
          plan.algorithm, plan.world_size, topology_.name, options.most_crossings);
    }
  }
}

void Effort::look_at_progress(std::uint64_t solved, std::uint64_t delivered) {
  next_look_ = solved + most_solved_ / kFirstLook;
  const double at_the_end = static_cast<double>(solved) * static_cast<double>(copies_.messages()) /
                            static_cast<double>(delivered);
  const bool too_much = solved > most_solved_;
  const double way = static_cast<double>(solved) / static_cast<double>(most_solved_);
  const bool far_too_much = delivered >= kFewestDelivered &&
                            at_the_end > kFarTooMuch / way * static_cast<double>(most_solved_);
  if (!too_much && !far_too_much) return;
  fail(
      "{} of {} ranks on topology '{}': its messages share links in so many ways that it would "
      "take minutes{}; allowed are fewer ranks or micro-chunks, or --sharing fifo",
      copies_.plan().algorithm, copies_.plan().world_size, topology_.name,
      far_too_much ? " or hours" : "");
}

}  // namespace arlab
