#include "kernels/runtime/prepared_tail.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/codecs/codec_kernels.h"
#include "kernels/collectives/fused_tail.h"
#include "kernels/collectives/tail_rows.h"
#include "reference/codecs/anybit.h"
#include "reference/error.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// Whether all rows and chunks begin and end at multiples of so many elements.
bool are_multiples(std::size_t elements, const Tail& tail, const Schedule& schedule) {
  return tail.hidden % elements == 0 && std::ranges::all_of(schedule.chunks, [&](const Chunk& c) {
           return c.begin % elements == 0 && c.end % elements == 0;
         });
}

std::optional<Fp8RowsFormat> fp8_of(const Tail& tail) {
  return parse_fp8_rows(with_row_length(tail.output, tail.hidden));
}

TailSteps steps_of(const Tail& tail, const Schedule& schedule) {
  TailSteps steps;
  steps.adds_residual = tail.adds_residual;
  steps.normalizes = tail.normalizes;
  steps.has_offset = tail.has_offset;
  steps.keeps_residual = tail.rounding.keeps_residual;
  steps.rounds_scaled = tail.rounding.rounds_scaled;
  steps.root = static_cast<TailSteps::Root>(tail.rounding.root);
  steps.weight = static_cast<TailSteps::Weight>(tail.rounding.weight);
  steps.threads = tail.rounding.threads;
  steps.has_whole_trees = are_multiples(kTreeElements, tail, schedule);
  if (const auto fp8 = fp8_of(tail)) {
    steps.fp8 = fp8->row == 0 ? TailSteps::Fp8::given : TailSteps::Fp8::of_row;
  }
  return steps;
}

/// Emulated GPUs have an H200's approximation of 1 / sqrt; others may have one of their own.
void require_root([[maybe_unused]] const Tail& tail) {
#if !defined(__HIP_PLATFORM_HOST__)
  if (tail.rounding.root != TailRounding::Root::rsqrt) return;
  int device = 0;
  char architecture[64] = "not known";
  (void)hipGetDevice(&device);
  (void)arlab_driver::architecture_of(device, architecture, sizeof(architecture));
  if (std::string_view(architecture) == "sm_90") return;
  fail("tail {}: root=rsqrt is an H200's, sm_90; this device is {}: allowed are divide, reciprocal",
       name_of(tail), architecture);
#endif
}

}  // namespace

PreparedTail::PreparedTail(const CollectiveRequest& request, const Schedule& schedule)
    : tail_(*request.tail), dtype_(request.dtype), elements_(request.elements) {
  require_tail(request, schedule.collective);
  require_root(tail_);
  steps_ = steps_of(tail_, schedule);
  has_whole_packs_ = are_multiples(kPerThread, tail_, schedule);
  if (const auto fp8 = fp8_of(tail_); fp8 && fp8->row == 0) inverse_ = 1 / fp8->given;
}

std::string PreparedTail::why_not_fused(std::string_view kernel, const TeamResources& resources,
                                        const CodecChoice& codec) const {
  if (!resources.options.fuses_tails) return "as asked";
  if (kernel != forms::kOneShotLamport.name) return fmt::format("{} has none", kernel);
  if (has_given_scale(codec)) return "NaNs are spread behind it";
  if (steps_.fp8 == TailSteps::Fp8::of_row) return "a scale of a whole row is found behind it";
  if (!has_whole_packs_ || !has_row_sums(steps_, tail_.hidden)) {
    return fmt::format("not for rows of {} elements", tail_.hidden);
  }
  const std::size_t most =
      RowSumsLayout{resources.team.layout.blocks}.words() * elements_of_word(steps_);
  return elements_ <= most ? "" : fmt::format("sums of squares of more than {} elements", most);
}

TailCall PreparedTail::on(const Tensors& tensors) const {
  return {.residual = tensors.tail.residual,
          .weight = tensors.tail.weight,
          .residual_out = tensors.tail.residual_out,
          .normalized = tensors.output,
          .sums = tensors.output,
          .wire = static_cast<std::uint8_t*>(tensors.tail.wire),
          .elements = elements_,
          .hidden = tail_.hidden,
          .eps = tail_.eps,
          .inverse = inverse_};
}

Launch PreparedTail::fused(std::function<Call(const Tensors&)> call,
                           const CodecChoice& codec) const {
  return [*this, call = std::move(call), codec](const Tensors& tensors, hipStream_t stream) {
    return launch_with_tail(call(tensors), on(tensors), steps_, codec, dtype_, stream);
  };
}

Status PreparedTail::add_behind(bool fused, const TeamResources& resources,
                                CallLaunches& to) const {
  const bool makes_rows = !fused && (tail_.adds_residual || tail_.normalizes);
  if (steps_.fp8 != TailSteps::Fp8::none || tail_.output.empty()) {
    if (fused || !(makes_rows || steps_.fp8 != TailSteps::Fp8::none)) return {};
    return add_rows(std::nullopt, to);
  }
  const CodecPtr codec = find_output_codec(tail_);
  ARLAB_ASSIGN_OR_RETURN(const CodecChoice choice, choose_codec(codec));
  to.codecs.push_back(choice);
  if (makes_rows && !needs_statistics(choice) && format_kernels(choice) == nullptr &&
      encodes_rows(steps_, on({}))) {
    return add_rows(choice, to);
  }
  if (makes_rows) ARLAB_RETURN_IF_ERROR(add_rows(std::nullopt, to));
  return add_encoding(choice, resources, to);
}

void PreparedTail::add_rows_of(const Chunk& chunk, CallLaunches& to) const {
  if (!tail_.adds_residual && !tail_.normalizes) return;
  const Launch launch = [*this, chunk](const Tensors& tensors, hipStream_t stream) {
    const auto at_chunk = [&](auto* tensor) -> decltype(tensor) {
      using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(tensor)>>,
                                      const std::byte, std::byte>;
      if (tensor == nullptr) return nullptr;
      return static_cast<Byte*>(tensor) + chunk.begin * size_of(dtype_);
    };
    TailCall call = on({tensors.output,
                        at_chunk(tensors.output),
                        {at_chunk(tensors.tail.residual), tensors.tail.weight,
                         at_chunk(tensors.tail.residual_out)}});
    call.elements = chunk.size();
    return launch_tail(call, steps_, dtype_, stream);
  };
  (chunk.size() == 0 ? to.of_other_ranks : to.launches).push_back(launch);
}

Status PreparedTail::add_rows(const std::optional<CodecChoice>& codec, CallLaunches& to) const {
  const bool encodes = codec || steps_.fp8 != TailSteps::Fp8::none;
  to.explanation += fmt::format("; then tail_rows, a block for each row{}",
                                encodes ? ", which it encodes by " + tail_.output : "");
  to.launches.push_back([*this, codec](const Tensors& tensors, hipStream_t stream) {
    const TailCall call = on(tensors);
    return codec ? launch_tail(call, steps_, *codec, dtype_, stream)
                 : launch_tail(call, steps_, dtype_, stream);
  });
  return {};
}

Status PreparedTail::add_encoding(const CodecChoice& choice, const TeamResources& resources,
                                  CallLaunches& to) const {
  const std::size_t needed = statistics_of(choice, elements_, groups_of_message(choice, elements_));
  if (needed > resources.options.two_pass_groups) {
    return Status::refusal(fmt::format("{} two-pass groups are too few: codec {} takes {}",
                                       resources.options.two_pass_groups, tail_.output, needed));
  }
  to.explanation += fmt::format("; then {} encodes the rows", tail_.output);
  to.launches.push_back(
      [choice, dtype = dtype_, elements = elements_, statistics = resources.statistics](
          const Tensors& tensors, hipStream_t stream) {
        return launch_encode(choice, dtype, tensors.output, elements,
                             static_cast<std::uint8_t*>(tensors.tail.wire), {}, statistics, stream);
      });
  return {};
}

Status require_tail_tensors(const CollectiveRequest& request, const TailTensors& tensors) {
  const bool has_tail = request.tail.has_value();
  const auto require = [&](const char* what, bool is_there, bool is_needed) -> Status {
    if (is_there == is_needed) return {};
    return Status::refusal(fmt::format("the call's tail has {} {}, and {} is given",
                                       is_needed ? "a" : "no", what, is_there ? "one" : "none"));
  };
  const bool adds = has_tail && request.tail->adds_residual;
  ARLAB_RETURN_IF_ERROR(require("residual", tensors.residual != nullptr, adds));
  ARLAB_RETURN_IF_ERROR(require("output of the residual", tensors.residual_out != nullptr, adds));
  ARLAB_RETURN_IF_ERROR(
      require("wire", tensors.wire != nullptr,
              has_tail && !request.tail->output.empty() && !request.tail_at_owners));
  const bool has_weight = tensors.weight != nullptr;
  const bool may_have_weight = has_tail && request.tail->normalizes;
  if (has_weight && !may_have_weight) return require("weight", true, false);
  return require("weight", has_weight, has_weight || (has_tail && request.tail->has_offset));
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
