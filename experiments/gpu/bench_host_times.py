#!/usr/bin/env python3
"""Host time of a call, by every way in which programs make calls: torch.distributed, arlab's, QuickReduce's and NCCL's.

    python3 experiments/gpu/bench_host_times.py --ranks 2 --nccl build-cuda/lib/libarlab_nccl.so --out host_h200-2.csv
    torchrun --nproc-per-node 2 experiments/gpu/bench_host_times.py --out host_h200-2.csv

All-reduces of one tensor, --calls of them one behind the other and then a wait, which is not timed; the ways take turns, and
the figures are medians of --turns, on the slowest rank. Ways of NCCL's interface are called by ctypes: `ctypes alone` is a call that
does nothing but ask for a version.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402
from bench_torch_allreduce import write_measurements  # noqa: E402

COLUMNS = ("platform", "machine", "ranks", "dtype", "bytes", "way", "codec", "host_us", "low_us", "high_us")
LEVEL_INT4 = 3
NCCL_BF16, NCCL_SUM = 9, 0


def parse_arguments(arguments=None):
    parser = measurement.Parser(__doc__, counts=("calls", "turns"), sizes=("sizes",))
    parser.add_argument("--sizes", default="16K", help="bytes of a tensor, several separated by commas [%(default)s]")
    parser.add_argument("--calls", type=int, default=200, help="between two waits [%(default)s]")
    parser.add_argument("--turns", type=int, default=21, help="of all ways, after one other [%(default)s]")
    parser.add_argument("--nccl", type=Path, help="libarlab_nccl.so, to time NCCL's interface, too")
    return parser.parse(arguments)


class Interface:
    """NCCL's, of a library, with a communicator whose calls are two_shot's with qr-q4."""

    def __init__(self, ranks, path):
        self._library = ctypes.CDLL(str(path.resolve()))
        self._ranks, ident = ranks, (ctypes.c_char * 128)()
        if ranks.rank == 0:
            self._check(self._library.ncclGetUniqueId(ident))
        ident.raw = ranks.gather(ident.raw)[0]

        class Id(ctypes.Structure):
            _fields_ = [("internal", ctypes.c_char * 128)]

        self._communicator = ctypes.c_void_p()
        init = self._library.ncclCommInitRank
        init.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
        os.environ["ARLAB_ALL_REDUCE"] = "0-:two_shot/qr-q4"
        try:
            self._check(init(ctypes.byref(self._communicator), ranks.size, Id.from_buffer_copy(ident.raw), ranks.rank))
        finally:
            del os.environ["ARLAB_ALL_REDUCE"]

    def _check(self, result):
        if result:
            self._library.ncclGetLastError.restype = ctypes.c_char_p
            raise RuntimeError(f"NCCL's interface: {self._library.ncclGetLastError(None).decode()}")

    def call_of(self, tensor):
        where, stream = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_void_p(self._ranks.torch.cuda.current_stream().cuda_stream)
        arguments = (
            where, where, ctypes.c_size_t(tensor.numel()), NCCL_BF16, NCCL_SUM, self._communicator, stream,
        )  # fmt: skip
        function = self._library.ncclAllReduce
        return lambda: self._check(function(*arguments))

    def nothing(self):
        function, version = self._library.ncclGetVersion, ctypes.c_int()
        return lambda: self._check(function(ctypes.byref(version)))


def ways_of(ranks, tensor, groups, interface):
    """(name, codec): what makes a call."""
    communicator, number, arlab_group = groups
    from arlab import quickreduce

    out = ranks.torch.empty_like(tensor)
    ways = {
        ("torch.distributed, NCCL", "bf16"): lambda: ranks.dist.all_reduce(tensor),
        ("torch.distributed, arlab", "qr-q4"): lambda: ranks.dist.all_reduce(tensor, group=arlab_group),
        ("Communicator", "qr-q4"): lambda: communicator.all_reduce(tensor, algorithm="two_shot", codec="qr-q4"),
        ("Communicator, into another tensor", "qr-q4"): lambda: communicator.all_reduce(
            tensor, algorithm="two_shot", codec="qr-q4", out=out
        ),
        ("QuickReduce's qr_all_reduce", "qr-q4"): lambda: quickreduce.qr_all_reduce(number, tensor, out, LEVEL_INT4),
    }
    if interface is not None:
        ways["NCCL's interface, by ctypes", "qr-q4"] = interface.call_of(tensor)
        ways["ctypes alone", ""] = interface.nothing()
    return ways


def made_groups(ranks):
    import arlab
    import arlab.torch
    from arlab import quickreduce

    arlab.torch.register()
    arlab_group = ranks.dist.new_group(backend="arlab", pg_options=arlab.torch.Options(codec="qr-q4"))
    communicator = arlab.Communicator.from_gather(
        ranks.gather, ranks.rank, ranks.size, ranks.device.index, platform=ranks.platform()
    )
    number = quickreduce.init_custom_qr(ranks.rank, ranks.size, platform=ranks.platform())
    handles = ranks.gather(quickreduce.qr_get_handle(number).numpy().tobytes())
    quickreduce.qr_open_handles(number, handles)
    return communicator, number, arlab_group


def turns(ranks, ways, calls, count):
    """By way, microseconds of a call on the slowest rank, of every turn."""
    times = {way: [] for way in ways}
    for turn in range(1 + count):
        for way, call in ways.items():
            ranks.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            time_us = (time.perf_counter() - begin) / calls * 1e6
            if turn:
                times[way].append(time_us)
    ranks.barrier()
    by_rank = ranks.gather(times)
    return {way: [max(each[way][i] for each in by_rank) for i in range(count)] for way in ways}


def rows_of(ranks, options, about):
    groups = made_groups(ranks)
    interface = Interface(ranks, options.nccl) if options.nccl else None
    for size in options.sizes:
        # Zeros stay what they are, however often they are summed in place.
        tensor = ranks.torch.zeros(size // 2, dtype=ranks.dtype("bf16"), device=ranks.device)
        for (way, codec), times in turns(ranks, ways_of(ranks, tensor, groups, interface), options.calls, options.turns).items():
            low, middle, high = measurement.median_interval(times)
            yield {
                **about, "bytes": size, "way": way, "codec": codec,
                "host_us": f"{middle:.2f}", "low_us": f"{low:.2f}", "high_us": f"{high:.2f}",
            }  # fmt: skip


def main():
    options = parse_arguments()
    what = (
        f"Time of the host's thread for a call of an all-reduce, in place where nothing is said; {options.calls} calls outside of graphs"
        f" one behind the other, medians of {options.turns} turns on the slowest rank, with intervals of 95 %."
    )
    write_measurements(options, rows_of, what, COLUMNS, dtype="bf16")


if __name__ == "__main__":
    main()
