// How a sum is made, as data: what stands beside the codecs of a collective and decides, with them and the schedule, which bits
// it ends with. reference/codecs/SPEC.md, "Accumulation".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reference/field.h"

namespace arlab {

/// Form of partial sums: rounded to the payload's dtype after every addition, or fp32 numbers; with `fma` a code times its scale
/// is added without a rounding between. `exact` sums have all their bits until they are rounded, once.
enum class Accumulate { native, fp32, fma, exact };

struct Sum {
  Accumulate add = Accumulate::native;
  bool decodes_to_fp32 = false;  ///< else decoded values are rounded to the payload's dtype first
  bool begins_with_own = false;  ///< the reducing rank's contribution first, then the next ranks'
  bool rounds = true;            ///< to the payload's dtype, before the sum is encoded again
  bool owner_keeps_sum = false;  ///< an owner ends with its sum, not with what others decode of it
  bool casts_to_fp16 = false;    ///< bf16 payloads are fp16 from end to end
  std::string own = {};          ///< the algorithm's option `own`, if it is named: encoded, exact

  /// Whether sums are made by codecs' own addition, or of decoded values in fp32 that are rounded once.
  bool is_of_payload_values() const {
    return add < Accumulate::fma && !decodes_to_fp32 && !begins_with_own && rounds &&
           !owner_keeps_sum;
  }
  bool operator==(const Sum&) const = default;
};

/// decode, add, order, round, own, result, cast: the keys of a text, with what each allows.
const std::vector<Field>& sum_fields();

/// "decode=fp32,add=fma,order=own", or for short "native", "fp32" (add=fp32). Throws InvalidInput for anything else.
Sum parse_sum(std::string_view text);

/// The text of a sum: what differs from the default, "native" if nothing does.
std::string name_of(const Sum& sum);

}  // namespace arlab
