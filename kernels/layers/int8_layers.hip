#include "kernels/layers/int8_layers.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Element>
__global__ void __launch_bounds__(kThreads)
    extremes_kernel(const typename Element::Bits* values, std::size_t columns, Extremes* extremes) {
  find_extremes<Element>(values, columns, extremes);
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const typename Element::Bits* values, std::size_t rows, std::size_t columns,
                    Int8Rule rule, const Extremes* extremes, std::int8_t* codes, Int8Scale* scales,
                    std::int32_t* sums) {
  quantize_rows<Element>(values, rows, columns, rule, extremes, codes, scales, sums);
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    linear_int8_kernel(const std::int8_t* x, const Int8Scale* x_scales, const std::int32_t* x_sums,
                       std::size_t tokens, const std::int8_t* w, const Int8Scale* w_scales,
                       const std::int32_t* w_sums, std::size_t outputs, std::size_t inputs,
                       typename Element::Bits* y) {
  multiply_int8<Element>(x, x_scales, x_sums, tokens, w, w_scales, w_sums, outputs, inputs, y);
}

/// Calls body with the number type of the dtype.
template <class Body>
hipError_t with_number(DType dtype, Body body) {
  if (dtype == DType::fp16) {
    body(Fp16());
  } else if (dtype == DType::bf16) {
    body(Bf16());
  } else {
    body(Fp32());
  }
  return hipGetLastError();
}

}  // namespace

hipError_t launch_quantize_int8(DType dtype, const void* values, std::size_t rows,
                                std::size_t columns, const Int8Rule& rule, Extremes* extremes,
                                const DeviceInt8& to, hipStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(rows));
  return with_number(dtype, [&]<class Element>(Element) {
    const auto* const of_number = static_cast<const typename Element::Bits*>(values);
    hipLaunchKernelGGL(extremes_kernel<Element>, blocks, dim3(kThreads), 0, stream, of_number,
                       columns, extremes);
    hipLaunchKernelGGL(quantize_kernel<Element>, blocks, dim3(kThreads), 0, stream, of_number, rows,
                       columns, rule, extremes, to.codes, to.scales, to.sums);
  });
}

hipError_t launch_linear_int8(const DeviceInt8& x, std::size_t tokens, const DeviceInt8& w,
                              std::size_t outputs, std::size_t inputs, DType dtype, void* y,
                              hipStream_t stream) {
  const dim3 blocks(static_cast<unsigned>((tokens + kSide - 1) / kSide),
                    static_cast<unsigned>((outputs + kSide - 1) / kSide));
  return with_number(dtype, [&]<class Element>(Element) {
    hipLaunchKernelGGL(linear_int8_kernel<Element>, blocks, dim3(kThreads), 0, stream, x.codes,
                       x.scales, x.sums, tokens, w.codes, w.scales, w.sums, outputs, inputs,
                       static_cast<typename Element::Bits*>(y));
  });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
