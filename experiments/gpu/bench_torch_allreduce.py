#!/usr/bin/env python3
"""How long PyTorch's all-reduces take: NCCL, and the one-shot and two-shot of symmetric memory; and QuickReduce, where vLLM has it.

    python3 experiments/gpu/bench_torch_allreduce.py --ranks 4 --out torch_h200-4.csv
    torchrun --nproc-per-node 4 experiments/gpu/bench_torch_allreduce.py --out torch_h200-4.csv

A CUDA graph holds --calls calls, one after the other, so that launches cost nothing; it is replayed, with all ranks
starting together. The time of a call is that of a replay by GPU events over the number of calls, on the slowest rank;
the figure is the median of replays. Every call works on the buffer of the call before. Rows come out as they are
measured; OUT is written at the end, comment lines with machine, date and command first.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402
from torch_ranks import Ranks, start_ranks  # noqa: E402


LIBRARIES = {"nccl": "nccl", "quick_reduce": "vllm_quick_reduce"}  # others are of symmetric memory
QUICK_REDUCE_LEVELS = {"qr-q8": 1, "qr-q6": 2, "qr-q4": 3}  # 0 for the dtype itself


def parse_arguments(arguments=None):
    parser = measurement.Parser(__doc__, counts=("calls", "replays"), names=("algorithms", "dtypes"))
    parser.add_argument("--min-bytes", default="32K", type=measurement.parse_size, help="per rank [%(default)s]")
    parser.add_argument("--max-bytes", default="256M", type=measurement.parse_size, help="per rank [%(default)s]")
    parser.add_argument("--dtypes", default="bf16,fp16", help="symmetric memory has no fp16 [%(default)s]")
    parser.add_argument("--algorithms", default="nccl,one_shot,two_shot", help="or quick_reduce [%(default)s]")
    parser.add_argument("--calls", type=int, default=20, help="in a graph [%(default)s]")
    parser.add_argument("--replays", type=int, default=21, help="measured, after 3 others [%(default)s]")
    options = parser.parse(arguments)
    measurement.require_choices(parser, options, ("nccl", "one_shot", "two_shot", "quick_reduce"))
    return options


def capture(ranks, function, calls):
    """A graph of so many calls. First calls, which set up communicators and ask for memory, happen before the capture,
    on the stream that is captured."""
    torch = ranks.torch
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    ranks.barrier()
    graph = torch.cuda.CUDAGraph()
    # Other threads (NCCL has one that watches) may go on with what a capture forbids.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            function()
    ranks.barrier()
    return graph


def replay_timer(ranks):
    """Makes what replays a graph, with all ranks starting together: microseconds on this rank by GPU events."""
    torch = ranks.torch
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def replay(graph):
        ranks.barrier()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1000

    return replay


def measure(ranks, function, calls, replays):
    """Microseconds of a call, on the slowest rank."""
    graph = capture(ranks, function, calls)
    replay = replay_timer(ranks)
    times = [replay(graph) / calls for _ in range(3 + replays)]
    del graph
    return measurement.time_of(ranks.gather(times[3:]))


def codecs_of(algorithm, dtype):
    return [dtype, *QUICK_REDUCE_LEVELS] if algorithm == "quick_reduce" else [dtype]


def functions_of(ranks, algorithm, dtype, bytes_most, codec):
    """Makes the tensor; returns what turns a size in bytes into the call that is measured."""
    kind = ranks.dtype(dtype)
    elements = bytes_most // kind.itemsize
    if algorithm in LIBRARIES:
        tensor = ranks.torch.zeros(elements, dtype=kind, device=ranks.device)
    else:
        # Symmetric memory may be used for the first time below by a rank that is ahead.
        tensor = ranks.symmetric_buffer(kind, elements).fill_(0)
        ranks.barrier()
    if algorithm == "quick_reduce":

        def run(part):
            return ranks.quick_reduce(part, QUICK_REDUCE_LEVELS.get(codec, 0))

    else:
        run = getattr(ranks, algorithm)

    def of_size(size):
        part = tensor[: size // kind.itemsize]
        return lambda: run(part)

    return of_size


def try_on_all(ranks, action):
    """(result, ""), or (None, why not) on all ranks when it raised on one: before a kernel starts, all raise alike."""
    result, failure = None, ""
    try:
        result = action()
    except (RuntimeError, NotImplementedError, ImportError, AttributeError) as error:
        failure = " ".join(str(error).split())[:300]
    return result, next((f for f in ranks.gather(failure) if f), "")


def rows_of(ranks, options, about):
    """Yields rows, and comments on what cannot be run."""
    for algorithm in options.algorithms:
        library = LIBRARIES.get(algorithm, "torch_symm_mem")
        for dtype, codec in ((dtype, codec) for dtype in options.dtypes for codec in codecs_of(algorithm, dtype)):

            def prepare(algorithm=algorithm, dtype=dtype, codec=codec):
                of_size = functions_of(ranks, algorithm, dtype, options.max_bytes, codec)
                of_size(options.min_bytes)()  # combinations that the dtype or the device forbids fail here
                ranks.torch.cuda.synchronize()
                return of_size

            of_size, failure = try_on_all(ranks, prepare)
            if failure:
                yield f"not measured: {library} {algorithm} {codec}: {failure}"
                continue
            for size in measurement.sizes_between(options.min_bytes, options.max_bytes):
                yield {
                    **about,
                    "algorithm": {"nccl": "auto", "quick_reduce": "two_shot"}.get(algorithm, algorithm),
                    "codec": codec,
                    "dtype": dtype,
                    "bytes": size,
                    "time_us": f"{measure(ranks, of_size(size), options.calls, options.replays):.2f}",
                    "library": library,
                }
            del of_size
            ranks.torch.cuda.empty_cache()


def write_measurements(options, rows_of, what, columns=measurement.COLUMNS, **about):
    """Starts the ranks; prints rows as rows_of(ranks, options, about) yields them, writes all under lines of provenance."""
    start_ranks(options.ranks)
    ranks = Ranks()
    device = ranks.torch.cuda.get_device_name(ranks.device)
    about = {
        "platform": ranks.platform(),
        "machine": options.machine or measurement.machine_name(device, ranks.size),
        "ranks": ranks.size,
        **about,
    }
    rows, notes = [], []
    for row in rows_of(ranks, options, about):
        (notes if isinstance(row, str) else rows).append(row)
        if ranks.rank == 0:
            print(row if isinstance(row, str) else ",".join(map(str, row.values())), flush=True)
    if ranks.rank == 0:
        provenance = [
            what,
            f"Measured {measurement.today()}: {ranks.size} x {device}, {ranks.library_versions()}.",
            f"Command: {measurement.command_line()}",
            *notes,
        ]
        measurement.write_whole(options.out, measurement.csv_text(rows, provenance, columns))
    ranks.close()


def main():
    options = parse_arguments()
    what = (
        f"PyTorch's all-reduces in CUDA graphs of {options.calls} calls, median of {options.replays} replays, time of a"
        " call on the slowest rank."
    )
    write_measurements(options, rows_of, what)


if __name__ == "__main__":
    main()
