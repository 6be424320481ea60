"""arlab in PyTorch: a backend of torch.distributed, operators, DDP and FSDP2, on emulated GPUs with a process per rank.

`./test.sh torch` runs them, in an environment of its own. All bits are compared with those of the reference, and mistakes that
somebody might make (MISTAKES) must be seen by the same comparisons.
"""

import functools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import arlab
import arlab.torch
from arlab.torch import Options, _backend, _teams, _training

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "experiments/site/pages/pytorch.md"
SOON_S = 60
BLOCKS = 2  # of kernels: emulated ones are threads


def bits(tensor):
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


def inputs_of(rank, elements, dtype, kind="gaussian", seed=1):
    """Other numbers on every rank; `extremes` are those that codecs stumble over."""
    values = torch.randn(elements, generator=torch.Generator().manual_seed(100 * seed + rank), dtype=torch.float32)
    if kind == "extremes":
        limits = torch.finfo(dtype)
        for at, value in enumerate([0.0, -0.0, limits.max, -limits.max, limits.tiny, float("inf"), float("nan"), 1e-30]):
            values[at + rank :: 97] = value
        values[elements // 2 : elements // 2 + 256] = rank + 1.0  # blocks of equal numbers
    return values.to(dtype)


# ---------------------------------------------------------------- processes


def of_rank(function, rank, ranks, folder, group, results, arguments):
    torch.set_num_threads(1)
    os.environ["ARLAB_BOOTSTRAP_DIR"] = f"{folder}/private"
    try:
        arlab.torch.register()
        backend, seconds, options = group
        distributed.init_process_group(
            backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks, timeout=timedelta(seconds=seconds),
            pg_options=options,
        )  # fmt: skip
        results.put((rank, function(rank, ranks, *arguments)))
        distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001
        results.put((rank, error if isinstance(error, arlab.Error) else RuntimeError(f"{type(error).__name__}: {error}")))


@pytest.fixture(scope="session")
def server():
    """Processes begin with PyTorch imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_torch_distributed"])
    return context


@pytest.fixture
def run(server, tmp_path):
    """Calls function(rank, ranks, ...) in a process per rank of a group; the results of the ranks, which may be errors."""
    (tmp_path / "private").mkdir(mode=0o700)

    def run(function, ranks, *arguments, backend="cpu:arlab", timeout_s=SOON_S, options=None, silent=()):
        (tmp_path / "meeting").unlink(missing_ok=True)
        results = server.Queue()
        options = Options(blocks=BLOCKS) if options is None else options
        group = (backend, timeout_s, options if "arlab" in backend else None)
        started = [
            server.Process(target=of_rank, args=(function, rank, ranks, str(tmp_path), group, results, arguments), daemon=True)
            for rank in range(ranks)
        ]
        for process in started:
            process.start()
        got = dict(results.get(timeout=3 * SOON_S) for rank in range(ranks) if rank not in silent)
        for process in started:
            process.join(SOON_S)
            assert not process.is_alive()
        return [got.get(rank) for rank in range(ranks)]

    return run


def all_well(results):
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


# ---------------------------------------------------------------- collectives of a group


def collectives(rank, ranks, codec, gather_codec, dtype, elements, kind):
    """What differs from the reference, of all collectives that arlab does."""
    wrong = []
    inputs = [inputs_of(each, elements * ranks, dtype, kind) for each in range(ranks)]
    plain = str(dtype).removeprefix("torch.").replace("float", "fp").replace("bfp", "bf")
    codec = codec if codec and plain in arlab.codec_info(codec)["dtypes"] else None

    def compare(name, got, expected):
        if bits(got) != bits(expected):
            wrong.append(f"{name} of {elements} {dtype}, {kind}, {codec}, {gather_codec}")

    def own():
        return inputs[rank].clone()

    def slot(tensor, each=rank):
        return tensor.view(ranks, -1)[each]

    total = arlab.all_reduce(inputs, codec=codec).outputs[rank]
    scattered = slot(arlab.reduce_scatter(inputs, codec=codec).outputs[rank])
    slots = [torch.cat([slot(each, at) if at == who else torch.zeros(elements, dtype=dtype) for at in range(ranks)])
             for who, each in enumerate(inputs)]  # fmt: skip
    gathered = arlab.all_gather(slots, codec=gather_codec).outputs[rank]

    tensor = own()
    distributed.all_reduce(tensor)
    compare("all_reduce", tensor, total)
    tensor = own()
    distributed.all_reduce(tensor, op=distributed.ReduceOp.AVG, async_op=True).wait()
    compare("average", tensor, total / ranks)
    tensor = torch.stack([own(), own()]).t()
    distributed.all_reduce(tensor)
    compare("strided", tensor, arlab.all_reduce([torch.stack([each, each]).t().contiguous() for each in inputs], codec=codec).outputs[rank])

    out = torch.empty(elements, dtype=dtype)
    distributed.reduce_scatter_tensor(out, own())
    compare("reduce_scatter_tensor", out, scattered)
    tensor, out = own(), torch.empty(elements, dtype=dtype)
    distributed.reduce_scatter(out, list(tensor.view(ranks, -1)), op=distributed.ReduceOp.AVG)
    compare("reduce_scatter", out, scattered / ranks)
    compare("input of reduce_scatter", tensor, inputs[rank])

    out = torch.empty(elements * ranks, dtype=dtype)
    distributed.all_gather_into_tensor(out, slot(own()))
    compare("all_gather_into_tensor", out, gathered)
    parts = [torch.empty(elements, dtype=dtype) for _ in range(ranks)]
    distributed.all_gather(parts, slot(own()))
    compare("all_gather", torch.cat(parts), gathered)
    out = torch.empty(elements * ranks, dtype=dtype)
    distributed.all_to_all_single(out, own())
    compare("all_to_all_single", out, arlab.all_to_all(inputs, codec=gather_codec).outputs[rank])
    tensor = own()
    distributed.broadcast(tensor, src=0)
    compare("broadcast", tensor, inputs[0])
    return wrong


PER_ROUND = {"all_reduce": 3, "reduce_scatter": 2, "all_gather": 2, "all_to_all": 1, "broadcast": 1}
SIZES = [(1, "gaussian"), (301, "gaussian"), (1024, "extremes")]


def rounds(rank, ranks, codec, gather_codec, dtypes):
    wrong = []
    for dtype in dtypes:
        for elements, kind in SIZES:
            wrong += collectives(rank, ranks, codec, gather_codec, dtype, elements, kind)
    return wrong, arlab.torch.statistics()


@pytest.mark.parametrize(
    "ranks, codec, gather_codec, dtypes",
    [
        (2, None, None, [torch.float16, torch.bfloat16, torch.float32]),
        (3, "int4-g32", "int8-g128", [torch.float16, torch.bfloat16, torch.float32]),
        (3, "qr-q4", None, [torch.bfloat16, torch.float32]),
    ],
)
def test_collectives_have_the_references_bits(run, ranks, codec, gather_codec, dtypes):
    options = Options(codec=codec, gather_codec=gather_codec, blocks=BLOCKS)
    for wrong, counts in all_well(run(rounds, ranks, codec, gather_codec, dtypes, options=options)):
        assert wrong == []
        assert all(" by arlab" in name for name in counts)
        for collective, times in PER_ROUND.items():
            expected = times * len(SIZES) * len(dtypes)
            assert sum(count for name, count in counts.items() if name.startswith(collective)) == expected
        with_codec = sum(count for name, count in counts.items() if name == f"all_reduce by arlab as {codec}")
        of_these = sum(codec is not None and (codec != "qr-q4" or dtype != torch.float32) for dtype in dtypes)
        assert with_codec == 3 * len(SIZES) * of_these


