#include "reference/collectives/sum.h"

#include <algorithm>

#include "reference/error.h"
#include "reference/words.h"

namespace arlab {
namespace {

constexpr const char* kAdd[] = {"native", "fp32", "fma", "exact"};  // by Accumulate

/// The entries that a sum has, by the names of the fields; `own` only if it is named.
FieldValues values_of(const Sum& sum) {
  FieldValues values;
  values.set("decode", sum.decodes_to_fp32 ? "fp32" : "native");
  values.set("add", kAdd[static_cast<std::size_t>(sum.add)]);
  values.set("order", sum.begins_with_own ? "own" : "rank");
  values.set("round", sum.rounds ? "native" : "none");
  if (!sum.own.empty()) values.set("own", sum.own);
  values.set("result", sum.owner_keeps_sum ? "sum" : "encoded");
  values.set("cast", sum.casts_to_fp16 ? "fp16" : "none");
  return values;
}

}  // namespace

const std::vector<Field>& sum_fields() {
  static const std::vector<Field> fields = {
      one_of("decode", {"native", "fp32"}, "decoded values: of the payload's dtype, or fp32"),
      one_of("add", {std::begin(kAdd), std::end(kAdd)},
             "partial sums: of the payload's dtype, fp32, fp32 with code times scale in one step, "
             "or exact"),
      one_of("order", {"rank", "own"}, "contributions by rank, or beginning with one's own"),
      one_of("round", {"native", "none"}, "the sum before it is encoded again"),
      {.name = "own",
       .kind = OneOf{{"encoded", "exact"}},
       .otherwise_words = "the algorithm's",
       .help = "the owner's contribution: through the wire, or as it is"},
      one_of(
          "result", {"encoded", "sum"},
          "the owner's part of its output: as others decode it, or the sum, so that ranks differ"),
      one_of("cast", {"none", "fp16"}, "bf16 payloads as they are, or as fp16 from end to end"),
  };
  return fields;
}

Sum parse_sum(std::string_view text) {
  Sum sum;
  if (text == "native") return sum;
  if (text == "fp32") {
    sum.add = Accumulate::fp32;
    return sum;
  }
  const FieldValues values = parsed_entries(sum_fields(), text, fmt::format("sum {}", quote(text)),
                                            "is not of a sum: allowed are native, fp32, or");
  sum.decodes_to_fp32 = values.is("decode", "fp32");
  for (std::size_t i = 0; i < std::size(kAdd); ++i) {
    if (values.is("add", kAdd[i])) sum.add = static_cast<Accumulate>(i);
  }
  sum.begins_with_own = values.is("order", "own");
  sum.rounds = !values.is("round", "none");
  if (values.has("own")) sum.own = words_of(values.get("own"));
  sum.owner_keeps_sum = values.is("result", "sum");
  sum.casts_to_fp16 = values.is("cast", "fp16");
  if (!sum.rounds && sum.add == Accumulate::native) {
    fail("sum {}: round=none needs fp32 sums: allowed with it are add=fp32, add=fma, add=exact",
         quote(text));
  }
  return sum;
}

std::string name_of(const Sum& sum) {
  const FieldValues standard = values_of({});
  const FieldValues values = values_of(sum);
  std::vector<std::string> parts;
  for (const Field& field : sum_fields()) {
    if (values.get(field.name) == standard.get(field.name)) continue;
    parts.push_back(field.name + "=" + words_of(values.get(field.name)));
  }
  if (parts.empty()) return "native";
  return parts == std::vector<std::string>{"add=fp32"} ? "fp32"
                                                       : fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace arlab
