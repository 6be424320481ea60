// The questions that there are, each in a file of its own, which a line here and one below make known.
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
Question doctor_question();

/// In the order of --help and of the pages. Those whose names have a group in front stand together.
inline constexpr Question (*kQuestions[])() = {
    list_question,
    encode_question,
    decode_question,
    reduce_question,
    schedule_question,
    simulate_question,
    topology_show_question,
    topology_compare_question,
    topology_import_question,
    select_question,
    vectors_question,
    check_codec_question,
    conform_question,
    judge_question,
    bench_question,
    study_question,
    sweep_question,
    model_perplexity_question,
    model_layers_question,
    model_assign_question,
    model_time_question,
    model_validate_question,
    report_question,
    new_codec_question,
    doctor_question,
};

}  // namespace arlab::lab
