// <hip/hip_runtime.h> for NVIDIA GPUs: what the kernels here use of HIP, on the CUDA runtime. (The
// headers that HIP itself ships for CUDA do not compile with CUDA 13.)
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __HIP_PLATFORM_NVIDIA__ 1

// ---- types and constants

using hipError_t = cudaError_t;
using hipStream_t = cudaStream_t;
using hipEvent_t = cudaEvent_t;
using hipGraph_t = cudaGraph_t;
using hipGraphExec_t = cudaGraphExec_t;
using hipMemcpyKind = cudaMemcpyKind;
using hipStreamCaptureMode = cudaStreamCaptureMode;
using hipStreamCaptureStatus = cudaStreamCaptureStatus;
using hipIpcMemHandle_t = cudaIpcMemHandle_t;
using hipFuncAttributes = cudaFuncAttributes;

inline constexpr hipError_t hipSuccess = cudaSuccess;
inline constexpr hipError_t hipErrorInvalidValue = cudaErrorInvalidValue;
inline constexpr hipError_t hipErrorPeerAccessAlreadyEnabled = cudaErrorPeerAccessAlreadyEnabled;
inline constexpr hipMemcpyKind hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
inline constexpr hipMemcpyKind hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
inline constexpr hipMemcpyKind hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;
inline constexpr hipMemcpyKind hipMemcpyDefault = cudaMemcpyDefault;
inline constexpr hipStreamCaptureMode hipStreamCaptureModeThreadLocal =
    cudaStreamCaptureModeThreadLocal;
inline constexpr hipStreamCaptureMode hipStreamCaptureModeRelaxed = cudaStreamCaptureModeRelaxed;
inline constexpr hipStreamCaptureStatus hipStreamCaptureStatusNone = cudaStreamCaptureStatusNone;
inline constexpr unsigned hipStreamNonBlocking = cudaStreamNonBlocking;
inline constexpr cudaDeviceAttr hipDeviceAttributeMultiprocessorCount =
    cudaDevAttrMultiProcessorCount;
inline constexpr unsigned hipEventDefault = cudaEventDefault;
inline constexpr unsigned hipEventDisableTiming = cudaEventDisableTiming;
inline constexpr unsigned hipIpcMemLazyEnablePeerAccess = cudaIpcMemLazyEnablePeerAccess;
inline constexpr unsigned hipDeviceMallocFinegrained = 1;

// ---- host API

#define ARLAB_HIP_IS_CUDA(hip_name, cuda_name)               \
  template <class... Arguments>                              \
  auto hip_name(Arguments&&... arguments) {                  \
    return cuda_name(std::forward<Arguments>(arguments)...); \
  }
ARLAB_HIP_IS_CUDA(hipGetDeviceCount, cudaGetDeviceCount)
ARLAB_HIP_IS_CUDA(hipDeviceGetAttribute, cudaDeviceGetAttribute)
ARLAB_HIP_IS_CUDA(hipSetDevice, cudaSetDevice)
ARLAB_HIP_IS_CUDA(hipGetDevice, cudaGetDevice)
ARLAB_HIP_IS_CUDA(hipDeviceGetPCIBusId, cudaDeviceGetPCIBusId)
ARLAB_HIP_IS_CUDA(hipDeviceSynchronize, cudaDeviceSynchronize)
ARLAB_HIP_IS_CUDA(hipDeviceCanAccessPeer, cudaDeviceCanAccessPeer)
ARLAB_HIP_IS_CUDA(hipDeviceEnablePeerAccess, cudaDeviceEnablePeerAccess)
ARLAB_HIP_IS_CUDA(hipMalloc, cudaMalloc)
ARLAB_HIP_IS_CUDA(hipFree, cudaFree)
ARLAB_HIP_IS_CUDA(hipIpcGetMemHandle, cudaIpcGetMemHandle)
ARLAB_HIP_IS_CUDA(hipIpcOpenMemHandle, cudaIpcOpenMemHandle)
ARLAB_HIP_IS_CUDA(hipIpcCloseMemHandle, cudaIpcCloseMemHandle)
ARLAB_HIP_IS_CUDA(hipMemset, cudaMemset)
ARLAB_HIP_IS_CUDA(hipMemcpy, cudaMemcpy)
ARLAB_HIP_IS_CUDA(hipMemcpyAsync, cudaMemcpyAsync)
ARLAB_HIP_IS_CUDA(hipStreamCreateWithFlags, cudaStreamCreateWithFlags)
ARLAB_HIP_IS_CUDA(hipStreamDestroy, cudaStreamDestroy)
ARLAB_HIP_IS_CUDA(hipStreamSynchronize, cudaStreamSynchronize)
ARLAB_HIP_IS_CUDA(hipStreamWaitEvent, cudaStreamWaitEvent)
ARLAB_HIP_IS_CUDA(hipStreamIsCapturing, cudaStreamIsCapturing)
ARLAB_HIP_IS_CUDA(hipThreadExchangeStreamCaptureMode, cudaThreadExchangeStreamCaptureMode)
ARLAB_HIP_IS_CUDA(hipStreamBeginCapture, cudaStreamBeginCapture)
ARLAB_HIP_IS_CUDA(hipStreamEndCapture, cudaStreamEndCapture)
ARLAB_HIP_IS_CUDA(hipEventCreateWithFlags, cudaEventCreateWithFlags)
ARLAB_HIP_IS_CUDA(hipEventRecord, cudaEventRecord)
ARLAB_HIP_IS_CUDA(hipEventElapsedTime, cudaEventElapsedTime)
ARLAB_HIP_IS_CUDA(hipEventDestroy, cudaEventDestroy)
ARLAB_HIP_IS_CUDA(hipGraphInstantiateWithFlags, cudaGraphInstantiateWithFlags)
ARLAB_HIP_IS_CUDA(hipGraphLaunch, cudaGraphLaunch)
ARLAB_HIP_IS_CUDA(hipGraphExecDestroy, cudaGraphExecDestroy)
ARLAB_HIP_IS_CUDA(hipGraphDestroy, cudaGraphDestroy)
ARLAB_HIP_IS_CUDA(hipFuncGetAttributes, cudaFuncGetAttributes)
ARLAB_HIP_IS_CUDA(hipGetLastError, cudaGetLastError)
#undef ARLAB_HIP_IS_CUDA

inline const char* hipGetErrorString(hipError_t error) {
  // CUDA's text speaks of the driver's version, also where there is no driver.
  if (error == cudaErrorInsufficientDriver) {
    return "there is no NVIDIA driver, or it is older than the CUDA of this build";
  }
  return cudaGetErrorString(error);
}

// Memory of NVIDIA GPUs is coherent for accesses at system scope; there is no flag to ask for it.
inline hipError_t hipExtMallocWithFlags(void** pointer, std::size_t bytes, unsigned) {
  return cudaMalloc(pointer, bytes);
}

/// As HIP has it, but that only the number of bits counts: the driver picks the multiprocessors, the same ones for the
/// same number. By a green context, which stays until the process ends, like the primary one that it belongs to.
inline hipError_t hipExtStreamCreateWithCUMask(hipStream_t* stream, std::uint32_t words,
                                               const std::uint32_t* mask) {
  unsigned count = 0;
  for (std::uint32_t i = 0; i < words; ++i) count += static_cast<unsigned>(std::popcount(mask[i]));
  int device = 0;
  hipError_t error = cudaGetDevice(&device);
  if (error == hipSuccess) error = cudaFree(nullptr);  // makes the primary context
  const auto find = [&]<class Function>(const char* name, Function*& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    if (error == hipSuccess) {
      error =
          cudaGetDriverEntryPointByVersion(name, &found, CUDA_VERSION, cudaEnableDefault, &result);
    }
    if (error == hipSuccess && result != cudaDriverEntryPointSuccess) error = cudaErrorNotSupported;
    function = reinterpret_cast<Function*>(found);
  };
  decltype(cuDeviceGetDevResource)* get_resource = nullptr;
  decltype(cuDevSmResourceSplitByCount)* split = nullptr;
  decltype(cuDevResourceGenerateDesc)* describe = nullptr;
  decltype(cuGreenCtxCreate)* create = nullptr;
  decltype(cuGreenCtxStreamCreate)* create_stream = nullptr;
  find("cuDeviceGetDevResource", get_resource);
  find("cuDevSmResourceSplitByCount", split);
  find("cuDevResourceGenerateDesc", describe);
  find("cuGreenCtxCreate", create);
  find("cuGreenCtxStreamCreate", create_stream);
  if (error != hipSuccess) return error;
  CUdevResource all{};
  CUdevResource part{};
  CUdevResource rest{};
  CUdevResourceDesc description{};
  CUgreenCtx context{};
  unsigned parts = 1;
  if (get_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
      split(&part, &parts, &all, &rest, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, count) !=
          CUDA_SUCCESS ||
      part.sm.smCount != count) {
    return cudaErrorInvalidValue;
  }
  if (describe(&description, &part, 1) != CUDA_SUCCESS ||
      create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS ||
      create_stream(stream, context, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) {
    return cudaErrorNotSupported;
  }
  return hipSuccess;
}

inline hipError_t hipDeviceGetName(char* name, int bytes, int device) {
  cudaDeviceProp properties;
  const hipError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != hipSuccess) return error;
  std::strncpy(name, properties.name, static_cast<std::size_t>(bytes) - 1);
  name[bytes - 1] = 0;
  return hipSuccess;
}

#if defined(__CUDACC__)

// ---- launch

#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define hipLaunchKernelGGL(kernel, grid, block, shared_bytes, stream, ...) \
  kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

#endif
