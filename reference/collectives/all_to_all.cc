// all_to_all: every rank has a slot for every rank, and sends it there directly.
//
//   step 0   rank i: encode every slot once, send slot j to rank j                    (dispatch)
//   then     rank j: decode what came from rank i into slot i of the output
//
// With combine = quantized, slots make the round trip of a mixture of experts, past experts that
// change nothing; every element is then encoded twice:
//
//   step 1   rank j: decode what came from rank i, encode it again, send it back      (combine)
//   then     rank i: decode what came back from rank j into slot j of the output
//
// What goes back may have a codec of its own, the inner one: fp8 there, bf16 back (DeepEP).
//
// A slot is one message, encoded as it would be alone. The slot that a rank has for itself stays
// where it is, encoded as often as the others or, with own = exact, never.
//
// Source: MPI_Alltoall, NCCL; Flash Communication V2 quantizes the dispatch. Volume N - 1 payloads:
// (N - 1) / N of a payload leave and reach every rank; with combine twice that.

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kAllToAllOwn = own_option("encoded");
/// Whether it ends where slots arrive, or encodes them again there and sends them back
/// (Collective::dispatch_combine).
const Field kCombine = {.name = "combine",
                        .kind = OneOf{{"none", "quantized"}},
                        .otherwise = "none",
                        .help = "encode slots again where they arrive, and send them back"};

Schedule all_to_all(const ScheduleRequest& request) {
  const bool own_exact = text_of(kAllToAllOwn, request.options) == "exact";
  const bool combine = text_of(kCombine, request.options) == "quantized";
  if (request.options.inner_codec() && !combine) {
    fail("algorithm all_to_all: inner-codec is for what combine = quantized sends back");
  }
  ScheduleBuilder s("all_to_all", request,
                    combine ? Collective::dispatch_combine : Collective::all_to_all);
  const std::uint64_t slot_elements = s.slot_elements();

  for (Rank to = 0; to < s.world_size(); ++to) {
    const ChunkId slot = s.add_chunk({to * slot_elements, (to + 1) * slot_elements});
    for (const Rank from : s.partners_of(to)) {
      const bool exact = from == to && own_exact;
      s.at_step(0);
      const Value input = s.input(from, slot);
      const Value arrived = exact ? input : s.send(s.encode(input), to);
      if (!combine) {
        s.output(arrived, from * slot_elements);
        continue;
      }
      s.at_step(1);
      s.output(exact ? input : s.send(s.encode(arrived, inner_role(request.options)), from));
    }
  }
  return s.finish();
}

}  // namespace

Algorithm all_to_all_algorithm() {
  return {.name = "all_to_all",
          .summary = "a slot from every rank to every rank, directly; with combine also back",
          .source = "MPI; NCCL; Flash Communication V2",
          .collective = Collective::all_to_all,
          .options = {kAllToAllOwn, kCombine, inner_codec_option()},
          .write = all_to_all,
          .symmetry = [](const ScheduleRequest&) { return RankSymmetry{RankSymmetry::any}; }};
}

}  // namespace arlab
