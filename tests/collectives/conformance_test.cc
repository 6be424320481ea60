// The conformance check passes the reference, and sees every mutant below: plausible mistakes of a
// kernel, each with the inputs that show it and those that do not.
#include "tests/collectives/conformance.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "reference/codecs/registry.h"

namespace arlab::testing {
namespace {

constexpr Rank kRanks = 5;

Claim two_shot_of(const char* codec, DType dtype) {
  Variant variant{"two_shot", {}};
  variant.options.set("own", "encoded");
  const CodecPtr found = find_codec(codec);
  const std::size_t elements = found->info().alignment == 1 ? 1003 : 2 * 2048 + 77;
  return {variant, found, dtype, kRanks, elements};
}

/// A candidate on payloads instead of bytes.
AllReduce on_payloads(const Claim& claim,
                      const std::function<Payloads(const Payloads& inputs)>& all_reduce) {
  return [claim, all_reduce](std::span<const std::byte> inputs, std::span<std::byte> outputs) {
    const std::size_t bytes = inputs.size() / claim.world_size;
    Payloads payloads;
    for (std::size_t rank = 0; rank < claim.world_size; ++rank) {
      payloads.push_back(patterns_of(claim.dtype, inputs.subspan(rank * bytes, bytes)));
    }
    const Payloads results = all_reduce(payloads);
    for (std::size_t rank = 0; rank < claim.world_size; ++rank) {
      std::ranges::copy(bytes_of(claim.dtype, results[rank]),
                        outputs.begin() + static_cast<std::ptrdiff_t>(rank * bytes));
    }
  };
}

Oracle oracle_of(const Claim& claim) { return {*claim.codec, claim.dtype, claim.accumulate}; }

/// two_shot, but for the way in which the owner sums what arrived.
AllReduce two_shot_with_sum(const Claim& claim,
                            const std::function<Patterns(const Payloads& contributions)>& sum) {
  return on_payloads(claim, [claim, sum](const Payloads& inputs) {
    const Oracle oracle = oracle_of(claim);
    Payloads contributions;
    for (const Patterns& x : inputs) contributions.push_back(oracle.through(x));
    return Payloads(inputs.size(), oracle.through(sum(contributions)));
  });
}

/// two_shot whose sum is formed by another addition of two values.
AllReduce two_shot_with_addition(const Claim& claim,
                                 const std::function<double(double sum, double addend)>& add) {
  return two_shot_with_sum(claim, [claim, add](const Payloads& contributions) {
    Patterns sums(contributions.front().size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      double sum = 0;
      for (const Patterns& x : contributions) sum = add(sum, value_of(claim.dtype, x[i]));
      sums[i] = pattern_of(claim.dtype, sum);
    }
    return sums;
  });
}

double nearest_towards_zero(DType dtype, double exact) {
  const double rounded = nearest(dtype, exact);
  if (!(std::abs(rounded) > std::abs(exact))) return rounded;
  return value_of(dtype, pattern_of(dtype, rounded) - 1);
}

// ---------------------------------------------------------------- the mutants

AllReduce reference(const Claim& claim) {
  return [claim](std::span<const std::byte> inputs, std::span<std::byte> outputs) {
    execute(
        schedule_of(claim.variant, claim.world_size, claim.elements, claim.codec->info().alignment),
        *claim.codec, claim.dtype, inputs, outputs, {.accumulate = claim.accumulate});
  };
}

AllReduce all_zero(const Claim&) {
  return [](std::span<const std::byte>, std::span<std::byte> outputs) {
    std::ranges::fill(outputs, std::byte{0});
  };
}

AllReduce nothing_written(const Claim&) {
  return [](std::span<const std::byte>, std::span<std::byte>) {};
}

AllReduce previous_result(const Claim& claim) {
  const auto previous = std::make_shared<std::vector<std::byte>>();
  return [claim, previous](std::span<const std::byte> inputs, std::span<std::byte> outputs) {
    previous->resize(outputs.size());
    std::ranges::copy(*previous, outputs.begin());
    reference(claim)(inputs, *previous);
  };
}

AllReduce input_of_rank_0(const Claim& claim) {
  return on_payloads(claim, [](const Payloads& x) { return Payloads(x.size(), x[0]); });
}

AllReduce last_element_not_written(const Claim& claim) {
  return [claim](std::span<const std::byte> inputs, std::span<std::byte> outputs) {
    const std::vector<std::byte> before(outputs.end() - 2, outputs.end());
    reference(claim)(inputs, outputs);
    std::ranges::copy(before, outputs.end() - 2);
  };
}

AllReduce last_rank_missing(const Claim& claim) {
  return two_shot_with_sum(claim, [claim](const Payloads& contributions) {
    return oracle_of(claim).sum({contributions.begin(), contributions.end() - 1}, Start::zero);
  });
}

AllReduce first_rank_twice(const Claim& claim) {
  return two_shot_with_sum(claim, [claim](Payloads contributions) {
    contributions.push_back(contributions[0]);
    return oracle_of(claim).sum(contributions, Start::zero);
  });
}

AllReduce descending_order(const Claim& claim) {
  return two_shot_with_sum(claim, [claim](Payloads contributions) {
    std::ranges::reverse(contributions);
    return oracle_of(claim).sum(contributions, Start::zero);
  });
}

AllReduce sum_from_first_addend(const Claim& claim) {
  return two_shot_with_sum(claim, [claim](const Payloads& contributions) {
    return oracle_of(claim).sum(contributions, Start::first);
  });
}

AllReduce fp32_sum(const Claim& claim) {
  return two_shot_with_sum(claim, [claim](const Payloads& contributions) {
    return Oracle{*claim.codec, claim.dtype, Accumulate::fp32}.sum(contributions, Start::zero);
  });
}

AllReduce truncating_sum(const Claim& claim) {
  return two_shot_with_addition(claim, [claim](double sum, double addend) {
    const double truncated = nearest_towards_zero(claim.dtype, sum + addend);
    return oracle_of(claim).rounded(claim.dtype, truncated);
  });
}

AllReduce sum_without_clamp(const Claim& claim) {
  return two_shot_with_addition(
      claim, [claim](double sum, double addend) { return nearest(claim.dtype, sum + addend); });
}

AllReduce sum_that_flushes_subnormals(const Claim& claim) {
  return two_shot_with_addition(claim, [claim](double sum, double addend) {
    const double rounded = oracle_of(claim).rounded(claim.dtype, sum + addend);
    return std::abs(rounded) < 0x1p-14 ? std::copysign(0.0, rounded) : rounded;
  });
}

AllReduce sum_that_ignores_nan(const Claim& claim) {
  return two_shot_with_addition(claim, [claim](double sum, double addend) {
    return std::isnan(addend) ? sum : oracle_of(claim).rounded(claim.dtype, sum + addend);
  });
}

AllReduce owner_keeps_its_sum(const Claim& claim) {
  return on_payloads(claim, [claim](const Payloads& inputs) {
    const Oracle oracle = oracle_of(claim);
    return chunk_by_chunk(inputs, inputs.size(), claim.codec->info().alignment,
                          [&](std::size_t owner, const Payloads& x) {
                            Payloads contributions;
                            for (const Patterns& payload : x)
                              contributions.push_back(oracle.through(payload));
                            const Patterns sum = oracle.sum(contributions, Start::zero);
                            Payloads outputs(x.size(), oracle.through(sum));
                            outputs[owner] = sum;
                            return outputs;
                          });
  });
}

AllReduce own_contribution_not_encoded(const Claim& claim) {
  Claim exact = claim;
  exact.variant.options.set("own", "exact");
  return reference(exact);
}

// ---------------------------------------------------------------- who is seen by what

std::string inputs_that_show(const Claim& claim, const AllReduce& candidate) {
  std::string names;
  for (const Mismatch& mismatch : mismatches(claim, candidate)) names += mismatch.input + " ";
  return names;
}

TEST(Conformance, TheReferenceAndTheOracleConform) {
  for (const auto& [codec, dtype] : {std::pair{"fp16", DType::fp16},
                                     {"bf16", DType::bf16},
                                     {"fp32", DType::fp32},
                                     {"qr-q4", DType::fp16},
                                     {"qr-fp8", DType::bf16}}) {
    Claim claim = two_shot_of(codec, dtype);
    const bool cheap = claim.codec->info().alignment == 1;
    for (const Variant& variant : cheap ? all_variants(kRanks, {2}) : std::vector{claim.variant}) {
      claim.variant = variant;
      for (const Accumulate accumulate : {Accumulate::native, Accumulate::fp32}) {
        claim.accumulate = accumulate;
        EXPECT_EQ(inputs_that_show(claim, reference(claim)), "");
        const AllReduce of_oracle = on_payloads(claim, [&](const Payloads& inputs) {
          return all_reduce(oracle_of(claim), variant, claim.codec->info().alignment, inputs);
        });
        EXPECT_EQ(inputs_that_show(claim, of_oracle), "") << label(variant) << ", " << codec;
      }
    }
  }
}

TEST(Conformance, InputsDifferOnEveryRank) {
  for (const Claim& claim : {two_shot_of("fp16", DType::fp16), two_shot_of("fp32", DType::fp32)}) {
    std::set<std::vector<std::byte>> payloads;
    std::size_t count = 0;
    for (const auto& [name, tensor] : conformance_inputs(claim)) {
      for (std::size_t rank = 0; rank < tensor.ranks(); ++rank, ++count) {
        payloads.emplace(tensor.rank_bytes(rank).begin(), tensor.rank_bytes(rank).end());
      }
    }
    EXPECT_EQ(payloads.size(), count);
  }
}

const char* const kAll = "gaussian adversarial non-finite integers zeros huge uneven tiny ";

TEST(ConformanceMutants, OfPlainFp16) {
  const Claim claim = two_shot_of("fp16", DType::fp16);
  const auto shown_by = [&](auto mutant) { return inputs_that_show(claim, mutant(claim)); };
  EXPECT_EQ(shown_by(all_zero), kAll);
  EXPECT_EQ(shown_by(nothing_written), kAll);
  EXPECT_EQ(shown_by(previous_result), kAll);
  EXPECT_EQ(shown_by(input_of_rank_0), kAll);
  EXPECT_EQ(shown_by(last_element_not_written), kAll);
  // Without a clamp, huge sums are infinite with and without a rank.
  const char* const all_but_huge = "gaussian adversarial non-finite integers zeros uneven tiny ";
  EXPECT_EQ(shown_by(last_rank_missing), all_but_huge);
  EXPECT_EQ(shown_by(first_rank_twice), all_but_huge);
  const char* const rounded_sums = "gaussian adversarial non-finite zeros uneven ";
  EXPECT_EQ(shown_by(descending_order), rounded_sums);
  EXPECT_EQ(shown_by(fp32_sum), rounded_sums);
  EXPECT_EQ(shown_by(truncating_sum), "gaussian adversarial non-finite zeros huge uneven ");
  EXPECT_EQ(shown_by(sum_from_first_addend), "zeros ");
  EXPECT_EQ(shown_by(sum_that_flushes_subnormals), "adversarial tiny ");
  EXPECT_EQ(shown_by(sum_that_ignores_nan), "non-finite ");
}

TEST(ConformanceMutants, OfQrQ4OnFp16) {
  const Claim claim = two_shot_of("qr-q4", DType::fp16);
  const auto shown_by = [&](auto mutant) { return inputs_that_show(claim, mutant(claim)); };
  EXPECT_EQ(shown_by(all_zero), kAll);
  EXPECT_EQ(shown_by(nothing_written), kAll);
  EXPECT_EQ(shown_by(previous_result), kAll);
  EXPECT_EQ(shown_by(input_of_rank_0), kAll);
  EXPECT_EQ(shown_by(last_element_not_written), kAll);
  EXPECT_EQ(shown_by(owner_keeps_its_sum), kAll);
  // What is tiny arrives as zeros, whoever sends it.
  const char* const all_but_tiny = "gaussian adversarial non-finite integers zeros huge uneven ";
  EXPECT_EQ(shown_by(last_rank_missing), all_but_tiny);
  EXPECT_EQ(shown_by(first_rank_twice), all_but_tiny);
  // The message of the result hides the rounding of its sum, but for a code that flips.
  const char* const rounded_sums = "gaussian adversarial non-finite zeros huge ";
  EXPECT_EQ(shown_by(descending_order), rounded_sums);
  EXPECT_EQ(shown_by(fp32_sum), rounded_sums);
  EXPECT_EQ(shown_by(truncating_sum), rounded_sums);
  EXPECT_EQ(shown_by(sum_without_clamp), "adversarial non-finite huge ");
  // A block of zeros arrives as -0, and a sum of -0 would be sent as another scale.
  EXPECT_EQ(shown_by(sum_from_first_addend), "zeros tiny ");
  EXPECT_EQ(shown_by(sum_that_flushes_subnormals), "adversarial ");
  EXPECT_EQ(shown_by(sum_that_ignores_nan), "non-finite ");
  // Huge sums clamp, with and without the error of a contribution.
  EXPECT_EQ(shown_by(own_contribution_not_encoded),
            "gaussian adversarial non-finite integers zeros uneven tiny ");
}

TEST(ConformanceMutants, AreNamedWithTheFirstElementThatDiffers) {
  const Claim claim = two_shot_of("fp16", DType::fp16);
  const std::vector<Mismatch> found = mismatches(claim, last_element_not_written(claim));
  ASSERT_EQ(found.size(), 8u);
  EXPECT_TRUE(found[3].where.starts_with("integers: rank 4, element 1002: 0xa5a5, not 0x"))
      << found[3].where;
}

}  // namespace
}  // namespace arlab::testing
