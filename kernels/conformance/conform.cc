#include "kernels/conformance/conform.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/conformance/compare.h"
#include "kernels/conformance/element_bits.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/tailed.h"
#include "reference/tensors/counter_random.h"
#include "reference/tensors/synthetic.h"
#include "reference/words.h"

namespace arlab::kernels {
namespace {

using Bytes = std::vector<std::byte>;

/// Makes three in seven blocks of 64 elements what adversarial tensors have once in millions of elements: as wide as the
/// dtype is, from some -a to its largest number less a, so that differences from a rounded smallest element overflow; and
/// as narrow as it can be, up to three units in the last place from some a, which a rounded one is far from; and zeros but
/// for a few of the smallest numbers, which are rounded to -0.
void put_rare_ranges(std::uint64_t seed, Tensor& tensor) {
  const float largest = largest_finite(tensor.dtype);
  const std::size_t bytes = size_of(tensor.dtype);
  for (std::size_t rank = 0; rank < tensor.ranks(); ++rank) {
    const std::span<std::byte> payload = tensor.rank_bytes(rank);
    const RandomStream random(seed, rank, 1);
    for (std::size_t i = 0; i < tensor.elements_per_rank(); ++i) {
      const std::size_t block = i / 64;
      const std::uint64_t own = random.word(2 * i + 1);
      const std::uint64_t shared = random.word(2 * block);
      const std::uint64_t sign = std::uint64_t{1} << (8 * bytes - 1);
      if (block % 7 == 1) {
        const std::uint64_t pattern = own % 8 != 0 ? 0 : (own & sign) | 1;
        std::memcpy(payload.data() + i * bytes, &pattern, bytes);
      } else if (block % 7 == 3) {
        const float a = static_cast<float>(unit_interval(shared)) * largest;
        store_value(tensor.dtype, own % 2 == 0 ? -a : largest - a, payload, i);
      } else if (block % 7 == 5) {
        // All bits but the last two are the block's, and the exponent is not that of infinities.
        const std::uint64_t pattern = (shared & ~(sign >> 1) & ~std::uint64_t{3}) | (own & 3);
        std::memcpy(payload.data() + i * bytes, &pattern, bytes);
      }
    }
  }
}

/// Messages of random tensors hardly ever have no finite element, of which a scale can be made.
constexpr std::size_t kFew = 16;
void put_no_finite(Tensor& tensor) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (std::size_t rank = 0; rank < tensor.ranks(); ++rank) {
    for (std::size_t i = 0; i < tensor.elements_per_rank(); ++i) {
      const float x = std::array{kInfinity - kInfinity, kInfinity, -kInfinity}[(rank + i) % 3];
      store_value(tensor.dtype, x, tensor.rank_bytes(rank), i);
    }
  }
}

Tensor make_inputs(const InputKind& kind, std::uint64_t seed, DType dtype, std::size_t ranks,
                   std::size_t elements) {
  Tensor tensor =
      make_synthetic(fmt::format(fmt::runtime(kind.spec), seed), dtype, ranks, elements);
  if (kind.rare == InputKind::Rare::ranges) put_rare_ranges(seed, tensor);
  if (kind.rare == InputKind::Rare::few_not_finite && elements <= kFew) put_no_finite(tensor);
  return tensor;
}

/// The element of every rank's input that the element of an output is made of.
std::size_t index_of_inputs(const Schedule& schedule, std::size_t rank, std::size_t index) {
  if (schedule.collective != Collective::all_to_all) return index;
  const std::size_t slot = schedule.slot_elements();
  return rank * slot + index % slot;  // slot i of a rank is that rank's slot of rank i
}

/// Whether the output takes the dtype's rows.
bool has_tail(const Tail& tail, DType dtype) {
  return tail.output.empty() || find_codec(with_row_length(tail.output, tail.hidden))->takes(dtype);
}

/// A tail's operands besides sums, its results, and those of kernels.
class TailOperandsCheck {
 public:
  /// Residual and weight are of the input kind behind this one.
  TailOperandsCheck(const Tail& tail, std::size_t kind, std::uint64_t seed, DType dtype,
                    std::size_t elements)
      : tail_(tail), dtype_(dtype) {
    const InputKind& of_tail = kInputs[(kind + seed) % std::size(kInputs)];
    if (tail.adds_residual)
      residual_ = bytes_of(make_inputs(of_tail, seed + 7, dtype, 1, elements));
    const InputKind& of_weight = kInputs[seed % 2];
    if (!tail.normalizes) return;
    weight_ = bytes_of(make_inputs(of_weight, seed + 9, dtype, 1, tail.hidden));
    if (seed % 2 == 1) store_value(dtype, -0.0F, weight_, 0);
  }
  /// Runs the executor for the results of all ranks; after the all-reduce, rows are encoded as one message. At owners, a residual ends with
  /// its owner, and wires nowhere.
  void apply(const Schedule& schedule, const Codecs& codecs, const Tensor& inputs, bool at_owners,
             Bytes& expected, ExecuteOptions options) {
    const CodecPtr output = find_output_codec(tail_);
    Tail in_schedule = tail_;
    if (!at_owners) in_schedule.output.clear();
    tailed_ = with_tail(schedule, in_schedule, {.at_owner = at_owners});
    expected_residual_.assign(tail_.adds_residual ? expected.size() : 0, std::byte{0xA5});
    residual_out_ = expected_residual_;
    TailOperands tensors{.tail = in_schedule, .dtype = dtype_, .weight = weight_};
    if (tail_.adds_residual) tensors.residuals = {residual_};
    tensors.next_residual = expected_residual_;
    options.tails = &tensors;
    execute(tailed_, output == nullptr ? codecs : Codecs(codecs.outer(), codecs.inner(), *output),
            inputs.dtype, inputs.bytes(), expected, options);
    for (std::size_t rank = 0; output != nullptr && !at_owners && rank < inputs.ranks(); ++rank) {
      const std::size_t bytes = expected.size() / inputs.ranks();
      Bytes wire(output->wire_bytes(dtype_, inputs.elements_per_rank()));
      output->encode(dtype_, std::span(expected).subspan(rank * bytes, bytes), wire);
      expected_wire_.insert(expected_wire_.end(), wire.begin(), wire.end());
    }
    wire_.assign(expected_wire_.size(), std::byte{0xA5});
  }
  void give(GroupCall& call) {
    call.residual = residual_;
    call.weight = weight_;
    call.residual_out = residual_out_;
    call.wire = wire_;
  }
  template <class Describe>
  void compare_others(const std::string& where, ConformanceRow& row, Describe describe) {
    leave_own_rows();
    compare(expected_residual_, residual_out_, size_of(dtype_), where + ", residual", row,
            describe);
    compare(expected_wire_, wire_, 1, where + ", wire", row, kNothingMore);
  }

 private:
  static Bytes bytes_of(const Tensor& tensor) {
    return {tensor.bytes().begin(), tensor.bytes().end()};
  }
  /// Blanks rows of other owners, where kernels may leave anything.
  void leave_own_rows() {
    const Bytes all(expected_residual_.size(), std::byte{0xA5});
    const Bytes made = std::exchange(residual_out_, all);
    for (const Output& each : tailed_.outputs) {
      if (each.kind != OutputKind::residual) continue;
      const std::size_t begin = (each.rank * tailed_.elements + each.begin) * size_of(dtype_);
      std::copy_n(&made[begin], tailed_.chunks[each.chunk].size() * size_of(dtype_),
                  &residual_out_[begin]);
    }
  }

  const Tail& tail_;
  DType dtype_;
  Bytes residual_;
  Bytes weight_;
  Bytes expected_residual_;
  Bytes expected_wire_;
  Bytes residual_out_;
  Bytes wire_;
  Schedule tailed_ = {};  ///< says who ends with which residual
};

class Conformance {
 public:
  Conformance(const Platform& platform, const ConformanceRequest& request,
              const std::function<void(const ConformanceRow&)>& row_done)
      : platform_(platform), request_(request), row_done_(row_done) {}

  Status run() {
    if (request_.tails.empty()) ARLAB_RETURN_IF_ERROR(prepare_codecs());
    for (const std::string& name : request_.codecs) {
      const CodecPtr codec = find_codec(name);
      for (const DType dtype : codec->info().dtypes) {
        ARLAB_RETURN_IF_ERROR(check_codec(*codec, dtype));
      }
    }
    std::vector<int> world_sizes = request_.ranks;
    if (request_.schedule) world_sizes = {static_cast<int>(request_.schedule->world_size)};
    for (const int ranks : world_sizes) {
      ARLAB_RETURN_IF_ERROR(check_ranks(ranks));
    }
    return {};
  }

 private:
  // ---- kernels that are compiled when they are called for: all of them ahead, on all cores

  Status prepare_codecs() const {
    std::vector<CodecAndDType> codecs;
    for (const std::string& name : request_.codecs) {
      const CodecPtr codec = find_codec(name);
      for (const DType dtype : codec->info().dtypes) codecs.emplace_back(name, dtype);
    }
    return platform_.prepare(codecs, request_.compiles);
  }

  Status prepare_calls(Group& group, const std::vector<std::string>& algorithms, int ranks) const {
    std::vector<CollectiveRequest> calls;
    for (const std::string& algorithm : algorithms) {
      for (const std::string& name : request_.codecs) {
        const CodecPtr codec = find_codec(name);
        for (const DType dtype : codec->info().dtypes) {
          for (const std::size_t length : lengths()) {
            for (const auto& tail : tails()) {
              const std::size_t elements = elements_of(algorithm, length, ranks, tail);
              calls.push_back(call_of(algorithm, name, dtype, elements, tail));
            }
          }
        }
      }
    }
    return group.prepare(calls, request_.compiles);
  }

  // ---- a codec by itself

  Status check_codec(const Codec& codec, DType dtype) {
    if (request_.lengths.empty() || !request_.tails.empty()) return {};
    ConformanceRow encode{.subject = "encode", .codec = codec.name(), .dtype = dtype};
    ConformanceRow decode{.subject = "decode", .codec = codec.name(), .dtype = dtype};
    ConformanceRow decode_add{.subject = "decode_add", .codec = codec.name(), .dtype = dtype};
    for (const std::size_t length : request_.lengths) {
      for (const InputKind& kind : kInputs) {
        const std::string where = inputs_text(kind, length, "");
        const Tensor input = make_inputs(kind, request_.seed, dtype, 2, length);
        Bytes wire(codec.wire_bytes(dtype, length));
        // Near where positions have more than 32 bits.
        const EncodeContext context{.seed = request_.seed,
                                    .call = 3,
                                    .rank = 5,
                                    .step = 1,
                                    .position = (std::uint64_t{1} << 32) - length / 2};
        codec.encode(dtype, input.rank_bytes(0), wire, nullptr, context);
        Bytes got(wire.size(), std::byte{0xA5});
        ARLAB_RETURN_IF_ERROR(
            platform_.encode(codec.name(), dtype, input.rank_bytes(0), got, context));
        compare(wire, got, 1, where, encode, kNothingMore);
        encode.compared_elements += length;

        ARLAB_RETURN_IF_ERROR(
            check_decoding(codec, dtype, wire, input.rank_bytes(1), where, decode, decode_add));
      }
      Bytes foreign(codec.wire_bytes(dtype, length));
      const RandomStream random(request_.seed, length);
      for (std::size_t i = 0; i < foreign.size(); ++i) foreign[i] = std::byte(random.word(i));
      const Tensor sum = make_inputs(kInputs[0], request_.seed, dtype, 1, length);
      ARLAB_RETURN_IF_ERROR(check_decoding(codec, dtype, foreign, sum.rank_bytes(0),
                                           counted(length, "element") + " of random bytes", decode,
                                           decode_add));
    }
    for (const ConformanceRow* row : {&encode, &decode, &decode_add}) row_done_(*row);
    return {};
  }

  Status check_decoding(const Codec& codec, DType dtype, const Bytes& wire,
                        std::span<const std::byte> addend, const std::string& where,
                        ConformanceRow& decode, ConformanceRow& decode_add) {
    const std::size_t unit = size_of(dtype);
    Bytes expected(addend.size());
    Bytes got(addend.size(), std::byte{0xA5});
    codec.decode(dtype, wire, expected);
    ARLAB_RETURN_IF_ERROR(platform_.decode(codec.name(), dtype, wire, got));
    compare(expected, got, unit, where, decode, kNothingMore);
    decode.compared_elements += addend.size() / unit;

    expected.assign(addend.begin(), addend.end());
    got = expected;
    codec.decode_add(dtype, wire, expected);
    ARLAB_RETURN_IF_ERROR(platform_.decode_add(codec.name(), dtype, wire, got));
    compare(expected, got, unit, where, decode_add, [&](Mismatch& mismatch) {
      mismatch.inputs = {bits_at(dtype, addend, mismatch.index)};
    });
    decode_add.compared_elements += addend.size() / unit;
    return {};
  }

  // ---- collectives

  Status check_ranks(int ranks) {
    // One team for everything: sizes, codecs and algorithms change from call to call.
    ARLAB_ASSIGN_OR_RETURN(std::unique_ptr<Group> group,
                           platform_.make_group(ranks, request_.group, request_.processes));
    std::vector<std::string> algorithms = request_.algorithms;
    if (request_.schedule) algorithms = {request_.schedule->algorithm};
    ARLAB_RETURN_IF_ERROR(prepare_calls(*group, algorithms, ranks));
    for (const std::string& algorithm : algorithms) {
      for (const std::string& name : request_.codecs) {
        const CodecPtr codec = find_codec(name);
        const CodecPtr inner = find_inner_codec(request_.options, codec);
        for (const DType dtype : codec->info().dtypes) {
          if (!inner->takes(dtype)) continue;
          ConformanceRow row{.subject = algorithm, .codec = name, .dtype = dtype, .ranks = ranks};
          for (const auto& tail : tails()) {
            if (tail && !has_tail(*tail, dtype)) continue;
            if (tail) row.codec = fmt::format("{}, tail {}", name, name_of(*tail));
            ARLAB_RETURN_IF_ERROR(check_collective(*group, {*codec, *inner}, tail, row));
            row_done_(std::exchange(row, {algorithm, name, dtype, ranks}));
          }
        }
      }
    }
    return {};
  }

  std::vector<std::size_t> lengths() const {
    if (request_.schedule) return {request_.schedule->elements};
    return request_.lengths;
  }
  /// Those asked for, else none.
  std::vector<std::optional<Tail>> tails() const {
    if (request_.tails.empty()) return {std::nullopt};
    return {request_.tails.begin(), request_.tails.end()};
  }
  /// An all-to-all takes slots of equal length, a tail whole rows.
  std::size_t elements_of(const std::string& algorithm, std::size_t length, int ranks,
                          const std::optional<Tail>& tail) const {
    if (tail && !request_.schedule)
      return (length + tail->hidden - 1) / tail->hidden * tail->hidden;
    if (request_.schedule || !has_slots(find_algorithm(algorithm).collective)) return length;
    const auto slots = static_cast<std::size_t>(ranks);
    return (length + slots - 1) / slots * slots;
  }
  CollectiveRequest call_of(const std::string& algorithm, const std::string& codec, DType dtype,
                            std::size_t elements, const std::optional<Tail>& tail) const {
    return {.algorithm = algorithm,
            .codec = codec,
            .dtype = dtype,
            .elements = elements,
            .options = request_.options,
            .schedule = request_.schedule,
            .sum = request_.sum,
            .tail = tail,
            .tail_at_owners = request_.tails_at_owners};
  }

  Status check_collective(Group& group, const Codecs& codecs, const std::optional<Tail>& tail,
                          ConformanceRow& row) {
    const auto ranks = static_cast<std::size_t>(row.ranks);
    const bool random = codecs.outer().info().uses_context || codecs.inner().info().uses_context;
    for (std::size_t i = 0; i < lengths().size(); ++i) {
      const std::size_t elements = elements_of(row.subject, lengths()[i], row.ranks, tail);
      const Schedule schedule =
          request_.schedule
              ? *request_.schedule
              : make_schedule(row.subject, {.world_size = static_cast<Rank>(ranks),
                                            .elements = elements,
                                            .alignment = codecs.alignment(tail ? tail->hidden : 1),
                                            .options = request_.options});
      // Before the reference runs, which has tails that kernels do not have.
      if (tail) {
        require_tail(call_of(row.subject, codecs.outer().name(), row.dtype, elements, tail),
                     schedule.collective);
      }
      for (std::size_t k = 0; k < std::size(kInputs); ++k) {
        // Inputs change from call to call, so that what a call left behind is not what the next
        // expects. Every combination of in place and offset occurs with every kind of input.
        const std::uint64_t seed = request_.seed + ++cases_;
        const auto calls = static_cast<std::uint32_t>(seed);
        CollectiveRequest collective =
            call_of(row.subject, codecs.outer().name(), row.dtype, elements, tail);
        collective.seed = random ? seed : 0;
        GroupCall call{.collective = std::move(collective),
                       .in_place = (i + k) % 2 == 1,
                       .offset_elements = (i / 2 + k) % 2 == 1 ? 3U : 0U,
                       .random_calls = random ? std::optional(calls) : std::nullopt};
        const Tensor inputs = make_inputs(kInputs[k], seed, row.dtype, ranks, elements);
        Bytes expected(inputs.bytes().size());
        Bytes got(expected.size());
        const ExecuteOptions options = {
            .sum = request_.sum, .scalar = true, .seed = seed, .call = calls};
        std::optional<TailOperandsCheck> of_tail;
        if (tail) {
          of_tail.emplace(*tail, k, seed, row.dtype, elements);
          of_tail->apply(schedule, codecs, inputs, request_.tails_at_owners, expected, options);
          of_tail->give(call);
        } else {
          execute(schedule, codecs, row.dtype, inputs.bytes(), expected, options);
        }
        Status ran = group.run(call, inputs.bytes(), got);
        if (!ran.ok() &&
            ran.message().ends_with(kNeedsAnotherOutput)) {  // processes name a rank first
          call.in_place = false;
          ran = group.run(call, inputs.bytes(), got);
        }
        ARLAB_RETURN_IF_ERROR(ran);
        const std::string where = inputs_text(kInputs[k], elements) +
                                  (call.in_place ? ", in place" : "") +
                                  (call.offset_elements != 0 ? ", unaligned" : "");
        const auto describe = [&](Mismatch& mismatch) {
          const std::size_t rank = mismatch.index / elements;
          mismatch.rank = static_cast<int>(rank);
          mismatch.index %= elements;
          const std::size_t of_inputs = index_of_inputs(schedule, rank, mismatch.index);
          for (std::size_t from = 0; from < ranks; ++from) {
            mismatch.inputs.push_back(bits_at(row.dtype, inputs.rank_bytes(from), of_inputs));
          }
        };
        compare(expected, got, size_of(row.dtype), where, row, describe);
        if (of_tail) of_tail->compare_others(where, row, describe);
        row.compared_elements += elements * ranks;
      }
    }
    return {};
  }

  const Platform& platform_;
  const ConformanceRequest& request_;
  const std::function<void(const ConformanceRow&)>& row_done_;
  std::uint64_t cases_ = 0;
};

}  // namespace

std::string inputs_text(const InputKind& kind, std::size_t elements, const char* per) {
  std::string text = kind.name;
  text.insert(std::min(text.find(' '), text.size()),
              fmt::format(" element{}{}", elements == 1 ? "" : "s", per));
  return fmt::format("{} {}", elements, text);
}

Status run_conformance(const Platform& platform, const ConformanceRequest& request,
                       const std::function<void(const ConformanceRow&)>& row_done) {
  std::uint64_t compared = 0;
  const std::function<void(const ConformanceRow&)> count = [&](const ConformanceRow& row) {
    compared += row.compared_elements;
    row_done(row);
  };
  try {
    ARLAB_RETURN_IF_ERROR(Conformance(platform, request, count).run());
    if (compared != 0) return {};
    return Status::error(fmt::format(
        "nothing to compare: no dtype of codec {} is one that {} takes",
        fmt::join(request.codecs, ", "),
        request.tails.empty() ? "the inner codec" : "the inner codec or the tail's output"));
  } catch (const InvalidInput& error) {
    return Status::error(error.what());
  }
}

namespace {

constexpr std::string_view kEncode = "encode";
constexpr std::string_view kQuantize = "quantize";

/// Whether a row is of a collective, and not of a codec or a layer by itself.
bool is_of_collective(const ConformanceRow& row) {
  return row.subject != kEncode && row.subject != "decode" && row.subject != "decode_add" &&
         row.subject != kQuantize && row.subject != "linear";
}

}  // namespace

std::string mismatches_text(const ConformanceRow& row) {
  std::string text;
  for (const Mismatch& m : row.first_mismatches) {
    text += fmt::format("{} of {} {}", row.subject, row.codec, name_of(row.dtype));
    if (is_of_collective(row)) text += " on " + counted(m.ranks, "rank");
    text += fmt::format(", {}", m.input);
    if (row.subject == kEncode) {
      text += fmt::format(": wire byte {}: expected 0x{:02x}, got 0x{:02x}\n", m.index, m.expected,
                          m.got);
      continue;
    }
    if (row.subject == kQuantize) {
      text +=
          fmt::format(": index {}: expected 0x{:02x}, got 0x{:02x}\n", m.index, m.expected, m.got);
      continue;
    }
    if (is_of_collective(row)) text += fmt::format(": rank {}", m.rank);
    text +=
        fmt::format("{} index {}: expected {}, got {}", is_of_collective(row) ? "," : ":", m.index,
                    element_text(row.dtype, m.expected), element_text(row.dtype, m.got));
    for (std::size_t i = 0; i < m.inputs.size(); ++i) {
      text += i != 0 ? ", " : is_of_collective(row) ? "; inputs of ranks " : "; added to ";
      text += element_text(row.dtype, m.inputs[i]);
    }
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json mismatches_json(const ConformanceRow& row) {
  const auto element = [&](std::uint32_t bits) -> nlohmann::ordered_json {
    return {{"value", value_text(row.dtype, bits)}, {"bits", bits_text(row.dtype, bits)}};
  };
  auto list = nlohmann::ordered_json::array();
  for (const Mismatch& m : row.first_mismatches) {
    nlohmann::ordered_json one = {{"subject", row.subject},
                                  {"codec", row.codec},
                                  {"dtype", name_of(row.dtype)},
                                  {"ranks", m.ranks},
                                  {"input", m.input}};
    if (row.subject == kEncode || row.subject == kQuantize) {
      one[row.subject == kEncode ? "wire_byte" : "index"] = m.index;
      one["expected"] = fmt::format("0x{:02x}", m.expected);
      one["got"] = fmt::format("0x{:02x}", m.got);
    } else {
      one["rank"] = m.rank;
      one["index"] = m.index;
      one["expected"] = element(m.expected);
      one["got"] = element(m.got);
      one["inputs"] = nlohmann::ordered_json::array();
      for (const std::uint32_t bits : m.inputs) one["inputs"].push_back(element(bits));
    }
    list.push_back(std::move(one));
  }
  return list;
}

std::vector<std::string> unusual_codecs() {
  return {"int5-gtensor-sym",
          "int8-gtensor-static0.02:-2.5",
          "int4-gtensor-sym-static0.3",
          "int3-g24",
          "int7-g96-sym",
          "int2-g40-sr",
          "int3-g1000-sym-sr",
          "int4-g200-sr-is",
          "int6-g512",
          "int4-g1024-stoch",
          "logfmt5-g2048",
          "int5-g3000-sr",
          "int4-g4104",
          "had-int4-g512",
          "had-int6-g2048-sym",
          "had-int3-g4096",
          "logfmt4-g56",
          "logfmt5-g2600",
          "nvfp4-vllm",
          "nvfp4-te",
          "nvfp4-ts0.25",
          "int4-g32-stoch",
          "had-int3-g64-stoch",
          "int2-g32-sr-is-stoch",
          "fp8-e4m3-g128-stoch",
          "fp8-e4m3-g64-torch-stoch",
          "fp8-e4m3-g128-ue8m0",
          "wire-bf16-stoch",
          "wire-fp16-stoch",
          "nvfp4-vllm-ts448"};
}

std::vector<Tail> tails_of_roundings() {
  std::vector<Tail> tails;
  for (const NamedRounding& each : named_roundings()) {
    if (each.rounding.keeps_sum && !each.rounding.rounds_scaled) continue;  // with sum=native aiter
    for (const int hidden : {576, 2880, 5120, 8192}) {
      tails.push_back(parse_tail(fmt::format(
          "hidden={},residual=add,norm=rms,eps=1e-5,rounding={},sum=native", hidden, each.name)));
    }
  }
  return tails;
}

std::vector<Tail> tails_of_outputs(const std::vector<std::string>& codecs) {
  constexpr std::size_t kHidden = 2880;
  std::vector<Tail> tails;
  for (const std::string& name : codecs) {
    const std::size_t block = find_codec(with_row_length(name, kHidden))->info().alignment;
    const std::size_t hidden = (kHidden + block - 1) / block * block;
    tails.push_back(
        parse_tail(fmt::format("hidden={},residual=add,norm=rms,out={}", hidden, name)));
  }
  return tails;
}

std::vector<std::size_t> lengths_up_to(std::size_t longest) {
  std::vector<std::size_t> lengths;
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{9}, std::size_t{2047}, std::size_t{2049}, std::size_t{4096},
        std::size_t{20003}, std::size_t{65541}, std::size_t{524295}}) {
    if (length < longest) lengths.push_back(length);
  }
  lengths.push_back(longest);
  return lengths;
}

}  // namespace arlab::kernels
