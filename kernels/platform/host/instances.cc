#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

struct FormAndInstance {
  const KernelForm& form;
  Instance* start;
};
const FormAndInstance kInstances[] = {
    {forms::kOneShot, one_shot_instance},
    {forms::kOneShotLamport, one_shot_lamport_instance},
    {forms::kOneShotSentinel, one_shot_sentinel_instance},
    {forms::kTwoShot, two_shot_instance},
    {forms::kTwoShotLamport, two_shot_lamport_instance},
    {forms::kTwoShotSentinel, two_shot_sentinel_instance},
    {forms::kRing, ring_instance},
    {forms::kAllToAll, all_to_all_instance},
    {forms::kOneShotLamportTail, one_shot_lamport_tail_instance},
    {forms::kTailRows, tail_rows_instance},
    {forms::kTailRowsEncoded, tail_rows_encoded_instance},
    {forms::kSpreadNans, spread_nans_instance},
    {forms::kProgram, program_instance},
    {forms::kMeasuredProgram, measured_program_instance},
    {forms::kTwoPassProgram, two_pass_program_instance},
    {forms::kCountCall, count_call_instance},
    {forms::kStatistics, statistics_instance},
    {forms::kMergeStatistics, merge_statistics_instance},
    {forms::kEncode, encode_instance},
    {forms::kDecode, decode_instance},
    {forms::kDecodeAdd, decode_add_instance},
    {forms::kEncodeMeasured, encode_measured_instance},
    {forms::kDecodeMeasured, decode_measured_instance},
    {forms::kMeasureLargest, measure_largest_instance},
    {forms::kEncodeCodes, encode_codes_instance},
    {forms::kDecodeCodes, decode_codes_instance},
    {forms::kFindExtremes, find_extremes_instance},
    {forms::kQuantizeRows, quantize_rows_instance},
    {forms::kMultiplyInt8, multiply_int8_instance},
    {forms::kMultiplyMatrices, multiply_matrices_instance},
    {forms::kOverwrite, overwrite_instance},
};

}  // namespace

hipError_t start_instance(const HostLaunch& launch) {
  for (const FormAndInstance& each : kInstances) {
    if (&each.form == &launch.kernel.form) each.start(launch);
  }
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
