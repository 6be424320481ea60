// The questions that there are, each in a file of its own.
#pragma once

#include "experiments/lab/question.h"

namespace arlab::lab {

Question list_question();
Question encode_question();
Question decode_question();
Question reduce_question();
Question schedule_question();
Question simulate_question();
Question topology_show_question();
Question topology_compare_question();
Question topology_import_question();
Question select_question();
Question vectors_question();
Question check_codec_question();
Question conform_question();
Question judge_question();
Question bench_question();
Question study_question();
Question sweep_question();
Question model_perplexity_question();
Question model_layers_question();
Question model_assign_question();
Question model_time_question();
Question model_validate_question();
Question report_question();
Question new_codec_question();

}  // namespace arlab::lab
