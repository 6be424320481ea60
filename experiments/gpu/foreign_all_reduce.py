#!/usr/bin/env python3
"""All-reduces of other people on one GPU, all ranks on it: hashes of what they give, and what arlab says that they compute.

    python3 experiments/gpu/foreign_all_reduce.py --out foreign_all_reduce_h200.csv
    python3 experiments/gpu/foreign_all_reduce.py --check --ranks 2

FlashInfer's fp8 all-reduce (flashinfer/comm/quantized_allreduce.py), torchft's (torchft/quantization.py) and that of vLLM's pull request 39783
(two_shot_quantized_allreduce.py, its barrier beside it) are kernels in Triton. Files are taken from the packages where they are installed, or from
--flashinfer FILE, --torchft FILE and --vllm FILE, without which vLLM's is left out; of the packages nothing else is needed. FlashInfer's and vLLM's ranks
run at the same time, each in a stream of its own, and find each other's buffers as they would over NVLink.

A row of OUT is one call: the inputs, which inputs_of() makes anew anywhere, and the SHA-256 of all ranks' outputs, one after the other.
`arlab reduce --like` must give the same (tests/python/test_sums.py). --check applies arlab.conformance to FlashInfer's kernel and prints which
all-reduce it is; it needs the Python package arlab.
"""

import argparse
import hashlib
import importlib.util
import sys
import types
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402

COLUMNS = ("like", "inputs", "ranks", "elements", "block", "seed", "sha256")
KINDS = ("gaussian", "outliers", "wide", "raw", "special", "tiny", "huge")
# Ranks, elements and block: odd tails, rows shorter and longer than a vector, groups above and below the default.
FLASHINFER = [(2, 17384, 256), (4, 33272, 256), (8, 40000, 128), (4, 4096, 32), (2, 20000, 1024), (2, 16384, 16), (1, 5000, 8)]
VLLM = [(2, 17384, 256), (4, 33272, 256), (8, 40000, 128), (4, 16400, 32), (2, 20000, 1024), (2, 16384, 16), (1, 5000, 8)]
TORCHFT = [(2, 19200, 64), (3, 19264, 64), (4, 25000, 5), (8, 6400, 64), (5, 6500, 130), (2, 24576, 4096), (7, 1000, 1)]


def to_bf16(values):
    """Bits of bf16, as uint16, rounded to the nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def inputs_of(kind, ranks, elements, seed):
    """Payloads of all ranks as bits of bf16, uint16 [ranks, elements]. `raw` are any bits; `special` has, of 64 elements each, zeros of both
    signs, subnormals, infinities, NaN of both kinds and huge values."""
    random = np.random.default_rng(seed)
    shape = (ranks, elements)

    def of_blocks(make, size):
        return make((ranks, elements // size + 1)).repeat(size, 1)[:, :elements]

    if kind == "raw":
        return random.integers(0, 65536, shape).astype(np.uint16)
    if kind in ("tiny", "huge"):
        low, high = (0, 0x1000) if kind == "tiny" else (0x7E00, 0x7F80)
        return (random.integers(low, high, shape) | random.integers(0, 2, shape) << 15).astype(np.uint16)
    values = random.standard_normal(shape)
    if kind == "outliers":
        values[random.random(shape) < 0.002] *= 1000
    if kind == "wide":
        values *= np.exp2(of_blocks(lambda count: random.uniform(-40, 40, count), 8))
    bits = to_bf16(values)
    if kind != "special":
        return bits
    block = of_blocks(lambda count: random.integers(0, 12, count), 64)
    few = random.random(shape) < 0.05
    for which, value in enumerate((0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x7F7F, 0xFF7F)):
        bits = np.where((block == which) & few, value, bits)
    for which, value in ((6, 0), (7, 0x8000), (8, 0x7FC0)):
        bits = np.where(block == which, value, bits)
    bits = np.where(block == 9, random.integers(0, 128, shape), bits)
    return np.where(block == 10, random.integers(0x7F00, 0x7F80, shape), bits).astype(np.uint16)


def load_file(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def file_of(package, path):
    """The file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"error: there is no package {package}: pip install it, or name its file with --{package} FILE")
    return Path(list(spec.submodule_search_locations)[0], path)


def stand_in(name, **attributes):
    """A module of that name in place of a package's, with what a file asks of it that does not matter to its kernel."""
    module = types.ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
    for attribute, value in attributes.items():
        setattr(module, attribute, value)


class TwoShot:
    """A two-shot kernel, with buffers and signals of all ranks on one GPU."""

    def run(self, kernel, tensors, group, block, layout, constants):
        torch = self.torch
        ranks, elements = len(tensors), tensors[0].numel()
        if block % group or block % ranks:
            raise ValueError(f"blocks of {block} elements leave a rest of groups of {group}, or of {ranks} ranks")
        groups, offset, size = layout
        buffers = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in tensors]
        signals = [torch.zeros(8192, dtype=torch.int32, device="cuda") for _ in tensors]
        buffer_table = torch.tensor([each.data_ptr() for each in buffers], dtype=torch.int64, device="cuda")
        signal_table = torch.tensor([each.data_ptr() for each in signals], dtype=torch.int64, device="cuda")
        # Blocks of all ranks wait for each other, so all must have room at once.
        blocks = min(-(-elements // (block * ranks)), max(1, 96 // ranks))
        outputs = [torch.empty_like(each) for each in tensors]

        def arguments(rank):
            return (buffer_table.data_ptr(), signal_table.data_ptr(), tensors[rank], outputs[rank]), dict(
                numel=elements, num_groups_total=groups, data_offset=offset, stride_per_program=block * ranks, rank=rank, world_size=ranks,
                BLOCK_SIZE=block, GROUPS_PER_BLOCK=block // group, num_warps=16, **constants,
            )  # fmt: skip

        # A driver loads a kernel when it is launched first, and may wait for running ones, which wait for it.
        for rank in range(ranks):
            values, named = arguments(rank)
            kernel.warmup(*values, grid=(blocks,), **named)._init_handles()
        torch.cuda.synchronize()
        for rank in range(ranks):
            values, named = arguments(rank)
            with torch.cuda.stream(torch.cuda.Stream()):
                kernel[(blocks,)](*values, **named)
        torch.cuda.synchronize()
        return outputs


def flashinfer_module(path):
    """FlashInfer's comm/quantized_allreduce.py, out of its file alone."""
    stand_in("flashinfer")
    stand_in("flashinfer.comm")
    stand_in("flashinfer.api_logging", flashinfer_api=lambda function: function)
    stand_in("flashinfer.utils", register_custom_op=lambda *_, **__: lambda function: function)
    # From PyTorch 2.11 on there is nothing to enable.
    stand_in("flashinfer.comm.torch_symmetric_memory", _enable_symm_mem_for_group=lambda name: None)
    return load_file("flashinfer.comm.quantized_allreduce", path)


class FlashInfer(TwoShot):
    def __init__(self, path):
        import torch

        self.torch = torch
        self.module = flashinfer_module(path)

    def __call__(self, tensors, group=256):
        ranks, elements = len(tensors), tensors[0].numel()
        chosen = self.module._select_params(elements, ranks)
        group = min(group, elements)
        block = max(min(chosen["block_size"], elements), group)
        layout = self.module._compute_layout(elements, group, ranks)
        constants = dict(SCALE_GROUP=group, FP8_MAX=448.0, P2P_PHASE3=chosen["p2p_phase3"])
        return self.run(self.module._fp8_blockscale_2shot_kernel, tensors, group, block, layout, constants)


class Vllm(TwoShot):
    BLOCK = 4096  # without a table for the machine

    def __init__(self, path, fp8):
        import torch
        import triton
        import triton.language

        self.torch, self.fp8 = torch, fp8
        stand_in("vllm")
        stand_in("vllm.triton_utils", tl=triton.language, triton=triton)
        stand_in("vllm.quantized_allreduce")
        stand_in("vllm.quantized_allreduce.config_loading", load_config=None)
        barrier = load_file("vllm.quantized_allreduce.symm_mem_barrier", Path(path).with_name("symm_mem_barrier.py"))
        sys.modules["vllm.quantized_allreduce"].symm_mem_barrier = barrier
        self.module = load_file("vllm.quantized_allreduce.two_shot_quantized_allreduce", path)

    def __call__(self, tensors, group=256):
        layout = self.module.compute_layout(tensors[0].numel(), group)
        constants = dict(GROUP_SIZE=group, QMAX=448.0 if self.fp8 else 127.0, USE_FP8=self.fp8, USE_P2P=False)
        return self.run(self.module._two_shot_quantized_allreduce_kernel, tensors, group, self.BLOCK, layout, constants)


class Torchft:
    """torchft's three kernels; what its collectives send between them are copies."""

    def __init__(self, path):
        import torch

        self.torch = torch
        self.module = load_file("torchft_quantization", path)

    def __call__(self, tensors, row=64):
        torch, module, ranks = self.torch, self.module, len(tensors)
        tensors = [each.view(-1, row) for each in tensors]
        wires = [module.fused_quantize_into_fp8([each], ranks) for each in tensors]
        reduced = []
        for rank in range(ranks):
            arrived = torch.cat([wire.view(ranks, -1)[rank] for wire in wires])
            module.fused_reduce_fp8([tensors[rank]], arrived, ranks, rank, module.ReduceOp.SUM)
            reduced.append(arrived.view(ranks, -1)[rank].clone())
        outputs = [torch.empty_like(each) for each in tensors]
        for output in outputs:
            module.fused_dequantize_from_fp8([output], torch.cat(reduced), ranks)
        return [each.view(-1) for each in outputs]


def on_gpu(torch, bits):
    return [torch.from_numpy(rank.view(np.int16).copy()).cuda().view(torch.bfloat16) for rank in bits]


def measure(options):
    import torch

    rows, seed = [], 0
    reduces = [("flashinfer-fp8", FlashInfer(options.flashinfer), FLASHINFER), ("torchft-fp8", Torchft(options.torchft), TORCHFT)]
    if options.vllm:
        reduces += [("vllm-fp8", Vllm(options.vllm, True), VLLM), ("vllm-int8", Vllm(options.vllm, False), VLLM)]
    for like, function, shapes in reduces:
        for kind in KINDS:
            for ranks, elements, block in shapes:
                seed += 1
                outputs = function(on_gpu(torch, inputs_of(kind, ranks, elements, seed)), block)
                digest = hashlib.sha256()
                for output in outputs:
                    digest.update(output.view(torch.int16).cpu().numpy().tobytes())
                rows.append(dict(zip(COLUMNS, (like, kind, ranks, elements, block, seed, digest.hexdigest()))))
    versions = f"FlashInfer {options.flashinfer_version}, torchft {options.torchft_version}, PyTorch {torch.__version__}, NumPy {np.__version__}"
    provenance = [
        measurement.command_line(), f"{torch.cuda.get_device_name()}, {measurement.today()}; {versions}",
        "SHA-256 of all ranks' outputs, one after the other; inputs_of() of the script makes the inputs",
    ]  # fmt: skip
    measurement.write_whole(options.out, measurement.csv_text(rows, provenance, COLUMNS))
    print(f"{len(rows)} calls: {options.out}")


def check(options):
    from arlab import conformance

    kernel = FlashInfer(options.flashinfer)
    report = conformance.check(
        kernel, world_size=options.ranks, dtype="bf16", lengths=[4096 * options.ranks, 32768, 40960], tensors=conformance.TorchTensors("cuda:0")
    )
    print(report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="foreign_all_reduce.csv", help="[%(default)s]")
    parser.add_argument("--check", action="store_true", help="say which all-reduce FlashInfer's kernel is, and stop")
    parser.add_argument("--ranks", type=int, default=2, help="with --check [%(default)s]")
    parser.add_argument("--flashinfer", metavar="FILE", help="quantized_allreduce.py [the installed package's]")
    parser.add_argument("--torchft", metavar="FILE", help="quantization.py [the installed package's]")
    parser.add_argument("--vllm", metavar="FILE", help="two_shot_quantized_allreduce.py [left out]")
    parser.add_argument("--flashinfer-version", default="0.7.2", help="for the provenance [%(default)s]")
    parser.add_argument("--torchft-version", default="2026.10.26", help="for the provenance [%(default)s]")
    options = parser.parse_args()
    options.flashinfer = options.flashinfer or file_of("flashinfer", "comm/quantized_allreduce.py")
    if options.check:
        return check(options)
    options.torchft = options.torchft or file_of("torchft", "quantization.py")
    return measure(options)


if __name__ == "__main__":
    main()
