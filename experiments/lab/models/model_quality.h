// Computed effects of codecs on a language model, which come with the program: by algorithm, ranks, codec and dtype.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/collectives/schedule.h"
#include "reference/dtype.h"

namespace arlab::lab {

/// A row of experiments/data/model_quality.csv.
struct ModelQuality {
  Rank ranks = 0;
  std::string algorithm;
  std::string codec;
  DType dtype = DType::fp16;
  double mean_kl = 0;  ///< nats per token, from the uncompressed model
  double mean_kl_error = 0;
  double perplexity_ratio = 1;
  double perplexity_ratio_error = 0;
  double token_sqnr_db = 0;
};

/// All rows. Throws InvalidInput where the file is missing or damaged.
std::vector<ModelQuality> shipped_model_quality();

struct QualityOf {
  const ModelQuality* row = nullptr;  ///< null: the codec has none
  std::string of = {};  ///< which one's it is, if it is not its own: "two_shot, 4 ranks, fp16"
};
/// The codec's row with the algorithm, ranks and dtype; else the nearest: another dtype before other ranks, before another
/// algorithm. Values as they are have that of fp16.
QualityOf quality_of_pair(const std::vector<ModelQuality>& rows, std::string_view algorithm,
                          Rank ranks, std::string_view codec, DType dtype);

/// Codecs that another one, of less SQNR, beats by KL and beyond the errors of both, in words: at most three, the worst first.
std::string misjudged_by_sqnr(const std::vector<ModelQuality>& rows);

}  // namespace arlab::lab
