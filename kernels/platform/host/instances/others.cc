#include "kernels/codecs/sums_of_codes.h"
#include "kernels/collectives/spread_nans.h"
#include "kernels/layers/int8_kernels.h"
#include "kernels/platform/host/instances/instance.h"
#include "kernels/runtime/between_kernels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void spread_nans_instance(const HostLaunch& launch) {
  with_element(launch, [&]<class Element>(Element) {
    if constexpr (kHasPairs<Element>) run(launch, spread_nans<Element>);
  });
}

// ---- sums of codes

void measure_largest_instance(const HostLaunch& launch) {
  with_element(launch, [&]<class Element>(Element) { run(launch, measure_largest<Element>); });
}
void encode_codes_instance(const HostLaunch& launch) {
  with_element(launch, [&]<class Element>(Element) { run(launch, encode_codes<Element>); });
}
void decode_codes_instance(const HostLaunch& launch) {
  with_element(launch, [&]<class Element>(Element) { run(launch, decode_codes<Element>); });
}

// ---- layers of int8

void find_extremes_instance(const HostLaunch& launch) {
  with_element(launch, [&]<class Element>(Element) { run(launch, find_extremes<Element>); });
}
void quantize_rows_instance(const HostLaunch& launch) {
  with_element(launch, [&]<class Element>(Element) { run(launch, quantize_rows<Element>); });
}
void multiply_int8_instance(const HostLaunch& launch) {
  with_element(launch, [&]<class Element>(Element) { run(launch, multiply_int8<Element>); });
}

// ---- between calls

void multiply_matrices_instance(const HostLaunch& launch) { run(launch, multiply_matrices); }
void overwrite_instance(const HostLaunch& launch) { run(launch, overwrite); }

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
