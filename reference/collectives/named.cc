#include "reference/collectives/named.h"

#include <algorithm>

#include "reference/codecs/codec.h"
#include "reference/error.h"
#include "reference/formats/payload_arithmetic.h"
#include "reference/words.h"

namespace arlab {
namespace {

/// QuickReduce's two-shot; a codec of profiles q8, q6, q4, fp8, or none.
NamedParts quickreduce(const NamedRequest& request) {
  const std::string codec = request.codec.empty() ? "qr-q4" : request.codec;
  if (!codec.starts_with("qr-") && codec != name_of(request.dtype)) {
    fail("codec {}: QuickReduce has none: allowed are qr-q8, qr-q6, qr-q4, qr-fp8, {}",
         quote(codec), name_of(request.dtype));
  }
  if (request.dtype == DType::fp32) {
    fail("QuickReduce's kernels take fp16 and bf16 tensors, not fp32");
  }
  return {.algorithm = "two_shot", .codec = codec};
}

/// vLLM's, which casts bf16 to fp16 (VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16, on by default).
NamedParts quickreduce_vllm(const NamedRequest& request) {
  NamedParts parts = quickreduce(request);
  parts.sum.casts_to_fp16 = request.dtype == DType::bf16;
  return parts;
}

/// The Triton kernel of flashinfer.comm.quantized_all_reduce: blocks of the tensor belong to ranks in turn, all contributions
/// go through the wire, and an owner writes its sum as bf16 where others decode it.
NamedParts flashinfer_fp8(const NamedRequest& request) {
  if (request.dtype != DType::bf16) {
    fail("FlashInfer's kernel takes bf16 tensors, not {}", name_of(request.dtype));
  }
  if (request.elements % 8 != 0) {
    fail("FlashInfer's kernel takes multiples of 8 elements, not {}", request.elements);
  }
  constexpr std::uint64_t kLarge = 33554432;
  const std::uint64_t wanted = request.block == 0 ? 256 : request.block;
  const std::uint64_t group = std::min(wanted, request.elements);
  if (request.stripe != 0 && request.stripe < group) {
    fail("stripe {}: FlashInfer's kernel works in whole groups: allowed is {} and more",
         request.stripe, group);
  }
  const std::uint64_t chosen = request.elements <= kLarge ? 4096 : 16384;
  const std::uint64_t largest = request.stripe == 0 ? chosen : request.stripe;
  const std::uint64_t block = std::max(std::min(largest, request.elements), group);
  if (block % group != 0 || block % request.ranks != 0) {
    fail(
        "FlashInfer's kernel works in blocks of {} elements, which neither groups of {} nor {} "
        "ranks may leave a rest of",
        block, group, request.ranks);
  }
  return {.algorithm = "two_shot",
          .options = AlgorithmOptions{{"stripe", block}},
          .codec = fmt::format("fp8-e4m3-g{}-flashinfer", group),
          .sum = parse_sum("add=fma,round=none,result=sum"),
          .has_nvidia_nan = true};
}

/// The Triton kernel of vLLM's pull request 39783: as FlashInfer's, but values are divided by the factor, and 8-bit integers are
/// truncated. A compiler makes one instruction of a division and its sum, but of more ranks or other groups for some ranks only (of
/// 8 ranks for the last); those are refused. Where the pull request has no table for the machine, blocks have 4096 elements; with
/// one, `stripe` says how many.
NamedParts vllm_two_shot(const NamedRequest& request, std::string_view elements) {
  if (request.dtype != DType::bf16) {
    fail("vLLM's kernel takes bf16 tensors, not {}", name_of(request.dtype));
  }
  const std::uint64_t group = request.block == 0 ? 256 : request.block;
  const std::uint64_t block = request.stripe == 0 ? 4096 : request.stripe;
  if (request.ranks > 4 || (request.ranks > 2 && (group != 256 || block != 4096))) {
    fail(
        "vLLM's kernel, {} ranks, groups of {}, blocks of {}: how its compiler adds there is not "
        "known; allowed are 1 and 2 ranks, and 4 with groups of 256 in blocks of 4096",
        request.ranks, group, block);
  }
  if (request.elements % 8 != 0 || request.elements < block * request.ranks || block % group != 0 ||
      block % request.ranks != 0) {
    fail(
        "vLLM's kernel takes multiples of 8 elements, a block of {} and more per rank, and neither "
        "groups of {} nor {} ranks may leave a rest of it: it does not take {}",
        block, group, request.ranks, request.elements);
  }
  return {.algorithm = "two_shot",
          .options = AlgorithmOptions{{"stripe", block}},
          .codec = fmt::format("{}-g{}-vllm", elements, group),
          .sum = parse_sum("add=fma,round=none,result=sum"),
          .has_nvidia_nan = true};
}

/// torchft.collectives.allreduce_quantized: rows of a matrix, of which each rank owns as many that follow each other.
NamedParts torchft_fp8(const NamedRequest& request) {
  const std::uint64_t row = request.block == 0 ? request.row : request.block;
  if (row == 0 || request.elements % row != 0) {
    fail("torchft's kernels take whole rows: {} elements are no multiple of {}", request.elements,
         row);
  }
  const std::uint64_t rows = request.elements / row;
  const std::uint64_t owned = (rows + request.ranks - 1) / request.ranks;
  return {.algorithm = "two_shot",
          .options = AlgorithmOptions{{"stripe", owned * row}},
          .codec = fmt::format("fp8-e4m3-g{}-torchft", row),
          .sum = parse_sum("add=fma,order=own,round=none"),
          .has_nvidia_nan = true};
}

/// flashinfer.comm.cake_fp4_allreduce: rows, of two ranks to each other, of four to their owners in turn, which encode sums again.
NamedParts flashinfer_fp4(const NamedRequest& request) {
  const std::uint64_t row = request.block == 0 ? request.row : request.block;
  if (request.dtype != DType::bf16 || (request.ranks != 2 && request.ranks != 4)) {
    fail("FlashInfer's fp4 kernels take bf16 tensors of 2 or 4 ranks, not {} of {}",
         name_of(request.dtype), request.ranks);
  }
  if (row % 16 != 0 || request.elements % row != 0) {
    fail("FlashInfer's fp4 kernels take rows of a multiple of 16 elements: {} are no rows of {}",
         request.elements, row);
  }
  const bool is_one_shot = request.ranks == 2;
  return {.algorithm = is_one_shot ? "one_shot" : "two_shot",
          .options = is_one_shot ? AlgorithmOptions{} : AlgorithmOptions{{"stripe", row}},
          .codec = fmt::format("nvfp4-g{}-flashinfer", row),
          .sum = parse_sum(is_one_shot ? "add=fma" : "add=fma,round=none"),
          .has_nvidia_nan = true};
}

/// The compression hooks of DistributedDataParallel, but for their division by the ranks: NCCL's ring of what was cast. A sum of two
/// 16-bit numbers that is rounded when it is sent is that of 16-bit arithmetic.
NamedParts ddp_hook(const NamedRequest& request, std::string_view wire) {
  if (request.dtype != DType::fp32) {
    fail("{}_compress_hook casts fp32 gradients, not {}", wire, name_of(request.dtype));
  }
  return {.algorithm = "ring",
          .options = AlgorithmOptions{{"own", std::string("encoded")}},
          .codec = fmt::format("wire-{}", wire)};
}

/// NCCL's NVLS: each rank asks the switch for the sum of its part, which all ranks then get from the switch.
NamedParts nvls(const NamedRequest& request) {
  return {.algorithm = "two_shot",
          .codec = std::string(name_of(request.dtype)),
          .sum = parse_sum("add=exact"),
          .has_nvidia_nan = true};
}

template <class T>
void replace_nan(std::span<T> bits, T infinity, T nan) {
  const T magnitude = nan;
  for (T& each : bits) {
    if ((each & magnitude) > infinity) each = nan;
  }
}

}  // namespace

const std::vector<NamedAllReduce>& named_all_reduces() {
  static const std::vector<NamedAllReduce> all = {
      {"quickreduce", "two-shot with inline compression", "MK1 QuickReduce", DType::fp16, false,
       true, false, quickreduce},
      {"quickreduce-vllm", "the same, bf16 cast to fp16", "vLLM csrc/quickreduce", DType::bf16,
       false, true, false, quickreduce_vllm},
      {"flashinfer-fp8", "fp8 two-shot in Triton, groups of 256", "FlashInfer 0.7.2", DType::bf16,
       true, false, true, flashinfer_fp8},
      {"vllm-fp8", "fp8 two-shot in Triton, groups of 256", "vLLM#39783", DType::bf16, true, false,
       true, [](const NamedRequest& request) { return vllm_two_shot(request, "fp8-e4m3"); }},
      {"vllm-int8", "the same with 8-bit integers", "vLLM#39783", DType::bf16, true, false, true,
       [](const NamedRequest& request) { return vllm_two_shot(request, "int8"); }},
      {"torchft-fp8", "fp8 all-to-all and all-gather, one scale per row", "torchft 2026.10.26",
       DType::bf16, true, false, false, torchft_fp8},
      {"flashinfer-fp4", "fp4 records of rows, not compared with a device", "FlashInfer 0.7.4",
       DType::bf16, true, false, false, flashinfer_fp4},
      {"ddp-bf16", "ring of what bf16_compress_hook has cast", "PyTorch", DType::fp32, false, false,
       false, [](const NamedRequest& request) { return ddp_hook(request, "bf16"); }},
      {"ddp-fp16", "ring of what fp16_compress_hook has cast", "PyTorch", DType::fp32, false, false,
       false, [](const NamedRequest& request) { return ddp_hook(request, "fp16"); }},
      {"nvls", "sums in NVLink's switch, rounded once", "NCCL 2.28 NVLS", DType::bf16, false, false,
       false, nvls},
  };
  return all;
}

const NamedAllReduce& find_named_all_reduce(std::string_view name) {
  const auto& all = named_all_reduces();
  const auto found = std::ranges::find(all, name, &NamedAllReduce::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const NamedAllReduce& each : all) names.push_back(each.name);
  fail("like {}: {}", quote(name), instead_of(name, {names, "allowed are"}));
}

void set_nvidia_nan(DType dtype, std::span<std::byte> values) {
  if (dtype == DType::fp32) {
    const std::span bits{reinterpret_cast<std::uint32_t*>(values.data()), values.size() / 4};
    return replace_nan<std::uint32_t>(bits, 0x7F800000, 0x7FFFFFFF);
  }
  const bool is_bf16 = dtype == DType::bf16;
  replace_nan<std::uint16_t>(
      as_u16(values), is_bf16 ? Bf16Arithmetic::kInfinity : Fp16Arithmetic::kInfinity, 0x7FFF);
}

}  // namespace arlab
