// The questions that there are, each in a file of its own, which its name here makes known.
#pragma once

#include "experiments/lab/question.h"

namespace arlab::lab {

/// In the order of --help and of the pages. Those whose names have a group in front stand together.
// clang-format off
#define ARLAB_QUESTIONS(one)                                                       \
  one(list) one(encode) one(decode) one(reduce) one(schedule) one(simulate)        \
  one(topology_show) one(topology_flows) one(topology_compare) one(topology_import) \
  one(select)                                                                      \
  one(vectors) one(check_codec) one(conform) one(judge) one(bench)                 \
  one(kernels_list) one(kernels_build) one(kernels_clear)                          \
  one(study) one(sweep)                                                            \
  one(model_perplexity) one(model_layers) one(model_assign) one(model_capture) one(model_time) \
  one(model_experts) one(model_validate) one(report) one(new_codec) one(doctor)
// clang-format on

#define ARLAB_DECLARE(name) Question name##_question();
ARLAB_QUESTIONS(ARLAB_DECLARE)
#undef ARLAB_DECLARE

}  // namespace arlab::lab
