#!/usr/bin/env python3
"""Kernels between GPUs: a soak of random calls that ends with a rank killed, and all-reduces of arlab and of others in
turns.

    python3 experiments/gpu/two_gpus.py soak --ranks 2 --platform cuda --seconds 60 --out soak.csv
    python3 experiments/gpu/two_gpus.py turns --ranks 2 --flashinfer quantized_allreduce.py --out turns.csv
    python3 experiments/gpu/two_gpus.py programs --lamport bench_0.6.7 --bench "build/bin/arlab bench ..." --out x.csv

`soak` starts a process per rank. Each call has an algorithm, a codec, a dtype, a length and inputs of its own, the
same choice on all ranks by one seed, other inputs on each; every bit is compared with the reference's. When the time
is over the last rank kills itself, and the others must name it. On platform host (emulated GPUs) it needs no GPU and
no PyTorch.

`turns` captures calls into CUDA graphs, one for each all-reduce and size, and replays them in turns, in an order that
changes: NCCL, NCCL with registered windows (its symmetric kernels), FlashInfer's fp8 all-reduce out of its file,
arlab. A figure is the median of turns of the slowest rank, with an interval that has the true median in 95 of 100
measurements.

`programs` runs programs in turns: FlashInfer's Lamport kernels (each prints rows
gpus,bytes,tokens,hidden,kernel,pdl,fused,time_us), and commands `arlab bench`, of which `env NCCL_MAX_CTAS=8 arlab
bench --sms 8 ...` is one. Each has rows of its own.
"""

import argparse
import csv
import functools
import io
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402
from bench_torch_allreduce import capture, replay_timer, try_on_all  # noqa: E402
from foreign_all_reduce import flashinfer_module, inputs_of  # noqa: E402
from torch_ranks import Ranks, start_ranks  # noqa: E402

SOAK_CODECS = (
    "plain,qr-q8,qr-q6,qr-q4,qr-fp8,int8-g32,int5-g128,int4-g32,int2-g32-sr,had-int4-g32,fp8-e4m3-g128,mxfp4,nvfp4,"
    "logfmt4-g32"
)
ALGORITHMS = ("one_shot", "two_shot", "ring", "halving_doubling", "tree")
FLASHINFER_TAIL = "hidden={},residual=add,norm=rms,rounding=vllm"  # kARResidualRMSNorm
TAIL_ROWS = (64, 576, 2880, 4096)  # elements; whole blocks of all output codecs below
TAIL_OUTPUTS = (None, "fp8-e4m3-g64", "int8-g32", "mxfp8-e4m3")
TAIL_ROUNDINGS = ("unfused", "vllm", "torch-llama", "mnnvl-two-shot")
INPUTS = ("gaussian", "outliers", "wide", "raw", "special", "tiny", "huge")
TURN_CODECS = "plain,qr-q8,fp8-e4m3-g128,qr-q4,int4-g32,mxfp4"
SOAK_COLUMNS = tuple("platform ranks seconds calls compared differ killed named_by named_after_s seed".split())
TURN_COLUMNS = ("library", "algorithm", "codec", "tail", "sms", "bytes", "time_us", "time_low_us", "time_high_us", "turns")


# ---- soak


def random_call(choose, codecs, ranks, most):
    """(kind of inputs, seed, elements, dtype, algorithm, codec, tail), as all ranks draw it. `codecs`: dtypes by name.
    Every third call has a tail (hidden, output, rounding) and whole rows; the others have None."""
    codec = choose.choice(list(codecs))
    dtype = choose.choice(codecs[codec])
    tiles = choose.randrange(1, most // 2048 + 1)
    elements = choose.choice((choose.randrange(1, 300), choose.randrange(1, most), 2048 * tiles))
    algorithm = choose.choice([each for each in ALGORITHMS if each != "halving_doubling" or ranks & (ranks - 1) == 0])
    name = dtype if codec == "plain" else codec
    tail = None
    if choose.randrange(3) == 0:
        # Chunks end between rows: only in these two are sums the same wherever chunks end.
        algorithm = choose.choice(("one_shot", "two_shot"))
        tail = choose.choice(TAIL_ROWS), choose.choice(TAIL_OUTPUTS), choose.choice(TAIL_ROUNDINGS)
        elements = -(-elements // tail[0]) * tail[0]
    return choose.choice(INPUTS), choose.randrange(1 << 30), elements, dtype, algorithm, name, tail


def tensors_of(kind, seed, elements, dtype, ranks):
    """[ranks, elements] of NumPy. Inputs of fp16 and fp32 have the bits of bf16's, which are other numbers there."""
    bits = inputs_of(kind, ranks, elements * (2 if dtype == "fp32" else 1), seed)
    if dtype == "bf16":
        import ml_dtypes

        return bits.view(ml_dtypes.bfloat16)
    return bits.view(np.float16 if dtype == "fp16" else np.float32)


class Device:
    """Where a rank's tensors are: in memory of the host, or on its GPU by PyTorch."""

    def __init__(self, platform, index):
        self.platform, self.index = platform, index
        if platform != "host":
            import torch

            torch.cuda.set_device(index)
            self.torch = torch

    def put(self, values):
        if self.platform == "host":
            return values.copy()
        integers = np.ascontiguousarray(values).view(np.int16 if values.itemsize == 2 else np.int32)
        return self.torch.from_numpy(integers.copy()).cuda().view(getattr(self.torch, values.dtype.name))

    def bits(self, tensor):
        if tensor.itemsize == 1:
            return np.asarray(tensor if self.platform == "host" else tensor.cpu())
        if self.platform == "host":
            return tensor.view(np.uint16 if tensor.itemsize == 2 else np.uint32)
        integers = tensor.view(self.torch.int16 if tensor.element_size() == 2 else self.torch.int32)
        return integers.cpu().numpy().view(np.uint16 if tensor.element_size() == 2 else np.uint32)


def soak_rank(options):
    """One rank of the soak; prints a JSON line of what it found."""
    import arlab

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    index = rank % max(arlab.devices(options.platform), 1)
    device = Device(options.platform, index)
    communicator = arlab.Communicator.from_environment(index, platform=options.platform, timeout_s=options.timeout)
    choose = random.Random(options.seed)
    codecs = {name: arlab.codec_info(name)["dtypes"] for name in options.codecs if name != "plain"}
    if "plain" in options.codecs:
        codecs["plain"] = ("bf16", "fp16", "fp32")
    found = {"rank": rank, "calls": 0, "compared": 0, "differ": 0, "worst": "", "named": "", "after_s": 0.0}
    end = time.monotonic() + options.seconds

    def call():
        kind, seed, elements, dtype, algorithm, codec, tail = drawn = random_call(choose, codecs, ranks, options.most)
        inputs = tensors_of(kind, seed, elements, dtype, ranks)
        method = {"algorithm": algorithm, "codec": codec}
        tensor = device.put(inputs[rank] if tail is None else inputs[rank].reshape(-1, tail[0]))
        made, wanted = [tensor], [arlab.all_reduce(inputs, **method).outputs[rank]]
        if tail is None:
            communicator.all_reduce(tensor, **method)
        else:
            residual, weight = (tensors_of("gaussian", seed + 1, size, dtype, 1)[0] for size in (elements, tail[0]))
            method |= {"tail": arlab.Tail(residual="add", norm="rms", out=tail[1], rounding=tail[2])}
            operands = {"residual": residual.reshape(-1, tail[0]), "weight": weight}
            wanted = method["tail"](wanted[0].reshape(-1, tail[0]), **operands)
            made = communicator.all_reduce(tensor, **method, **{name: device.put(each) for name, each in operands.items()})
            made, wanted = ([each.residual, each.normalized, each.wire][: 2 + (tail[1] is not None)] for each in (made, wanted))
        communicator.synchronize()
        differ = sum(
            int((device.bits(one) != Device("host", 0).bits(np.asarray(other))).sum())
            for one, other in zip(made, wanted, strict=True)
        )
        found["calls"] += 1
        found["compared"] += sum(np.asarray(each).size for each in wanted)
        found["differ"] += differ
        if differ and not found["worst"]:
            found["worst"] = str(drawn)

    # All ranks make the same number of calls: the first rank's clock decides, through a sum of one element.
    while True:
        over = np.array([float(rank == 0 and time.monotonic() >= end)] * 8, np.float32)
        flag = device.put(over)
        communicator.all_reduce(flag, algorithm="one_shot")
        communicator.synchronize()
        if device.bits(flag)[0]:
            break
        call()
    if rank == ranks - 1:
        print(json.dumps(found), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    try:
        while time.monotonic() - started < 3 * options.timeout + 5:
            call()
    except arlab.Error as error:
        found["named"], found["after_s"] = str(error), time.monotonic() - started
    print(json.dumps(found), flush=True)


def soak(options):
    port = random.Random().randrange(20000, 60000)
    command = [sys.executable, __file__, *sys.argv[1:]]
    processes = []
    for rank in range(options.ranks):
        own = {"RANK": str(rank), "WORLD_SIZE": str(options.ranks), "MASTER_PORT": str(port), "TWO_GPUS_RANK": "1"}
        processes.append(subprocess.Popen(command, env=os.environ | own, stdout=subprocess.PIPE, text=True))
    answers = [process.communicate()[0].strip().splitlines() for process in processes]
    if not all(answers):
        sys.exit(f"error: rank {answers.index([])} ended before it answered")
    found = [json.loads(lines[-1]) for lines in answers]
    killed = options.ranks - 1
    named = [each for each in found[:killed] if f"rank {killed}" in each["named"]]
    row = dict(
        platform=options.platform, ranks=options.ranks, seconds=options.seconds, calls=found[0]["calls"],
        compared=sum(each["compared"] for each in found), differ=sum(each["differ"] for each in found), killed=killed,
        named_by=len(named), named_after_s=f"{max((each['after_s'] for each in named), default=0):.2f}",
        seed=options.seed,
    )  # fmt: skip
    notes = [each["worst"] for each in found if each["worst"]] + [each["named"] for each in found if each["named"]]
    write(options, [row], ["random calls beside the reference; then a rank is killed", *notes], SOAK_COLUMNS)
    sys.exit(0 if row["differ"] == 0 and len(named) == killed else 1)


# ---- turns


def nccl_symmetric(ranks, elements):
    """A tensor in a window that NCCL has registered on all ranks."""
    torch = ranks.torch
    backend = ranks.dist.group.WORLD._get_backend(ranks.device)
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.zeros(elements, dtype=torch.bfloat16, device=ranks.device)
    backend.register_mem_pool(pool, symm=True)
    ranks.kept = [*getattr(ranks, "kept", ()), pool]
    return tensor


def contenders(ranks, options):
    """(library, algorithm, codec, function that makes a call of so many bytes)."""
    torch, elements = ranks.torch, options.max_bytes // 2

    def in_tensor(make, run):
        make = functools.cache(make)  # when the first size is asked for, on all ranks at once
        return lambda size: lambda: run(make()[: size // 2])

    def plain():
        return torch.zeros(elements, dtype=torch.bfloat16, device=ranks.device)

    yield "nccl", "auto", "bf16", in_tensor(plain, ranks.nccl)
    yield "nccl", "symmetric", "bf16", in_tensor(lambda: nccl_symmetric(ranks, elements), ranks.nccl)
    if options.flashinfer:
        function, group = flashinfer_module(options.flashinfer).quantized_all_reduce, ranks.dist.group.WORLD
        run = in_tensor(plain, lambda part: function(part, group, output=part))
        yield "flashinfer", "two_shot", "fp8-e4m3-g256", run
    from arlab import Communicator

    communicator = Communicator.from_environment(platform=ranks.platform())
    for codec in options.codecs:
        name = "bf16" if codec == "plain" else codec
        for algorithm in ("one_shot", "two_shot"):

            def run(part, algorithm=algorithm, name=name):
                return communicator.all_reduce(part, algorithm=algorithm, codec=name)

            yield "arlab", algorithm, name, in_tensor(plain, run)


def rows_of_turns(ranks, options, notes):
    choices = list(contenders(ranks, options))
    for size in measurement.sizes_between(options.min_bytes, options.max_bytes):
        calls = max(4, min(50, (64 << 20) // size))
        graphs = {}
        for library, algorithm, codec, of_size in choices:
            if algorithm == "one_shot" and size > 4 << 20:
                continue
            graph, failure = try_on_all(ranks, lambda: capture(ranks, of_size(size), calls))
            if failure:
                notes.append(f"not measured: {library} {algorithm} {codec} of {size} bytes: {failure}")
            else:
                graphs[library, algorithm, codec] = graph
        replay, times = replay_timer(ranks), {name: [] for name in graphs}
        for turn in range(2 + options.turns):
            names = list(graphs) if turn % 2 else list(graphs)[::-1]
            for name in names:
                took = replay(graphs[name]) / calls
                if turn >= 2:
                    times[name].append(took)
        of_ranks = ranks.gather(times)
        for name in times:
            yield turn_row(*name, "", "", size, [max(each) for each in zip(*(times[name] for times in of_ranks), strict=True)])


def turn_row(library, algorithm, codec, tail, sms, size, values):
    low, middle, high = measurement.median_interval(values)
    figures = (f"{middle:.3f}", f"{low:.3f}", f"{high:.3f}", len(values))
    return dict(zip(TURN_COLUMNS, (library, algorithm, codec, tail, sms, size, *figures), strict=True))


def turns(options):
    start_ranks(options.ranks)
    ranks, rows, notes = Ranks(), [], []
    for row in rows_of_turns(ranks, options, notes):
        rows.append(row)
        if ranks.rank == 0:
            print(",".join(map(str, row.values())), flush=True)
    if ranks.rank == 0:
        device = ranks.torch.cuda.get_device_name(ranks.device)
        about = f"{ranks.size} x {device}, {ranks.library_versions()}; bf16, CUDA graphs"
        write(options, rows, [about, *notes], TURN_COLUMNS)
    # PyTorch 2.11 aborts where a process group is taken down whose windows are still registered.
    ranks.barrier()
    os._exit(0)


# ---- programs


def rows_printed(command):
    """Rows of a CSV table that a command prints, without its comments."""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0 or "# wrong" in run.stdout:
        sys.exit(f"{shlex.join(command)}: {run.stdout[-200:]}{run.stderr[-200:]}")
    return csv.DictReader(line for line in io.StringIO(run.stdout) if not line.startswith("#"))


def lamport_times(program):
    """{(library, algorithm, codec, tail, sms, bytes): microseconds} of one run of FlashInfer's kernels, plain and
    fused."""
    times = {}
    for row in rows_printed([program, "2"]):
        kernel = row["kernel"] + (" pdl" if row["pdl"] == "1" else "")
        tail = FLASHINFER_TAIL.format(row["hidden"]) if row["fused"] == "1" else ""
        times[Path(program).name, kernel, "bf16", tail, "", int(row["bytes"])] = float(row["time_us"])
    return times


def bench_times(command):
    """Likewise of one run of `arlab bench`."""
    words = shlex.split(command)
    tail, sms = (words[words.index(each) + 1] if each in words else "" for each in ("--tail", "--sms"))
    rows = rows_printed([*words, "--format", "csv"])
    names = ("library", "algorithm", "codec")
    return {(*(row[name] for name in names), tail, sms, int(row["bytes"])): float(row["time_us"]) for row in rows}


def programs(options):
    makers = [(lamport_times, each) for each in options.lamport] + [(bench_times, each) for each in options.bench]
    times = {}
    for turn in range(options.turns):
        for of, command in makers if turn % 2 else makers[::-1]:
            for point, took in of(command).items():
                times.setdefault(point, []).append(took)
        # After every turn, so that a run that is stopped leaves what it has.
        rows = [turn_row(*point, values) for point, values in sorted(times.items())]
        write(options, rows, ["programs in turns; bf16, CUDA graphs", *options.about], TURN_COLUMNS)


def write(options, rows, notes, columns):
    provenance = [f"measured {datetime.now(timezone.utc):%F %T} UTC", f"Command: {measurement.command_line()}", *notes]
    measurement.write_whole(options.out, measurement.csv_text(rows, provenance, columns))
    shown = [" ".join(map(str, row.values())) for row in rows if columns is SOAK_COLUMNS]
    print("\n".join([*notes, *shown]), flush=True)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("soak", "turns", "programs"))
    parser.add_argument("--out", required=True, help="the file that is written")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs to use [%(default)s]")
    parser.add_argument("--turns", type=int, default=9, help="of turns and programs [%(default)s]")
    parser.add_argument("--codecs", help=f"plain is the dtype itself [{SOAK_CODECS}; turns: {TURN_CODECS}]")
    parser.add_argument("--platform", default="cuda", choices=("host", "cuda", "rocm"), help="soak [%(default)s]")
    parser.add_argument("--seconds", type=float, default=60, help="soak [%(default)s]")
    parser.add_argument("--most", type=int, default=200_000, help="soak: elements of a tensor [%(default)s]")
    parser.add_argument("--timeout", type=float, default=10, help="soak: ranks wait so long, in s [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="soak [%(default)s]")
    parser.add_argument("--min-bytes", default="16K", help="turns [%(default)s]")
    parser.add_argument("--max-bytes", default="128M", help="turns [%(default)s]")
    parser.add_argument("--flashinfer", metavar="FILE", help="turns: FlashInfer's quantized_allreduce.py [left out]")
    parser.add_argument("--lamport", metavar="PROGRAM", action="append", default=[], help="programs: several may be given")
    parser.add_argument("--bench", metavar="COMMAND", action="append", default=[], help="likewise; without --format")
    parser.add_argument("--about", metavar="LINE", action="append", default=[], help="programs: a comment of the file")
    options = parser.parse_args(arguments)
    if min(options.ranks - 1, options.turns, options.seconds, options.timeout, options.most - 2047) <= 0:
        parser.error("allowed are 2 ranks or more, 2048 elements or more, and positive turns and seconds")
    options.codecs = (options.codecs or (SOAK_CODECS if options.part == "soak" else TURN_CODECS)).split(",")
    try:
        options.min_bytes = measurement.parse_size(options.min_bytes)
        options.max_bytes = measurement.parse_size(options.max_bytes)
    except ValueError as error:
        parser.error(str(error))
    if options.part == "programs" and not options.lamport and not options.bench:
        parser.error("programs: nothing to run: allowed are --lamport PROGRAM and --bench COMMAND")
    return options


def main():
    options = parse_arguments()
    if options.part == "soak" and "TWO_GPUS_RANK" in os.environ:
        return soak_rank(options)
    return {"soak": soak, "turns": turns, "programs": programs}[options.part](options)


if __name__ == "__main__":
    main()
