#!/usr/bin/env python3
"""Time that an all-reduce adds to a layer of a tensor-parallel transformer: NCCL, symmetric memory, FlashInfer, arlab.

    python3 experiments/gpu/bench_torch_layers.py --ranks 4 --out layers_h200-4.csv
    torchrun --nproc-per-node 4 experiments/gpu/bench_torch_layers.py --out layers_h200-4.csv

Layers have the shapes of Llama 3 70B: hidden size 8192, 64 heads of 128 with 8 for keys and values, FFN 28672, split over
the ranks as Megatron splits them. A layer is RMSNorm, QKV, O, all-reduce, residual, RMSNorm, gate and up, SiLU, down,
all-reduce, residual; attention itself is left out, since it costs the same with every all-reduce. --layers of them are
one CUDA graph, and all ranks start a replay together. The time of a layer is that of a replay over the layers, on the
slowest rank; the figure is the median of replays.

The all-reduces take turns, and each replay has one with NCCL beside it, before it or, in every other turn, behind it:
matrix products throttle a GPU's clock, communication lets it recover, so only neighbours meet the same clocks. The
figure to compare by is a layer's time over that of its neighbour with NCCL: the median of replays, and an interval that
holds the true median in 95 of 100 measurements. NCCL's own row, a replay beside another of the same, shows the noise.
What an all-reduce adds, half of what a layer takes more than without any, is said of up to 8 MiB only: of more, the
difference of two layers at different clocks depends on their order.
"""

import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402
from bench_torch_allreduce import capture, replay_timer, try_on_all, write_measurements  # noqa: E402

HIDDEN, HEADS, KV_HEADS, HEAD, FFN = 8192, 64, 8, 128, 28672
TOKENS = "1,8,32,128,512,2048,8192"
CODECS = "plain,qr-q8,qr-q4,int5-g128,int4-g32"
COLUMNS = (
    "platform", "machine", "ranks", "dtype", "tokens", "bytes", "all_reduce",
    "layer_us", "over_nccl", "over_nccl_low", "over_nccl_high", "sm_mhz", "added_us",
)  # fmt: skip
MOST_ADDED = 8 << 20  # bytes


def parse_arguments(arguments=None):
    parser = measurement.Parser(__doc__, counts=("layers", "replays"), sizes=("tokens",), names=("codecs",))
    parser.add_argument("--tokens", default=TOKENS, help="in a batch, several separated by commas [%(default)s]")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"), help="[%(default)s]")
    parser.add_argument("--codecs", default=CODECS, help="of arlab; plain is the dtype itself [%(default)s]")
    parser.add_argument("--layers", type=int, default=4, help="in a graph [%(default)s]")
    parser.add_argument("--replays", type=int, default=15, help="of every graph, after 3 others [%(default)s]")
    parser.add_argument("--sms", type=int, default=0, help="multiprocessors of arlab's kernels [all]")
    return parser.parse(arguments)


class Layers:
    """This rank's share of the weights, and a batch on its way through the layers."""

    def __init__(self, ranks, dtype, tokens, layers, buffer):
        torch, size = ranks.torch, ranks.size
        self.torch, self.tokens, self.buffer = torch, tokens, buffer[: tokens * HIDDEN].view(tokens, HIDDEN)
        kind = ranks.dtype(dtype)

        def weights(inputs, outputs):
            return torch.randn(inputs, outputs, dtype=kind, device=ranks.device) * inputs**-0.5

        heads = HEADS // size * HEAD
        self.heads = heads
        self.layers = [
            {
                "qkv": weights(HIDDEN, heads + 2 * max(KV_HEADS // size, 1) * HEAD),
                "o": weights(heads, HIDDEN),
                "gate_up": weights(HIDDEN, 2 * FFN // size),
                "down": weights(FFN // size, HIDDEN),
            }
            for _ in range(layers)
        ]
        self.norm = torch.ones(HIDDEN, dtype=kind, device=ranks.device)
        self.start = torch.randn(tokens, HIDDEN, dtype=kind, device=ranks.device)

    def run(self, all_reduce):
        """`all_reduce` takes the tensor that a GEMM has written, and returns the one that holds the sum."""
        functional = self.torch.nn.functional
        hidden = self.start
        for layer in self.layers:
            qkv = functional.rms_norm(hidden, (HIDDEN,), self.norm) @ layer["qkv"]
            self.torch.mm(qkv[:, : self.heads].contiguous(), layer["o"], out=self.buffer)
            hidden = hidden + all_reduce(self.buffer)
            gate, up = (functional.rms_norm(hidden, (HIDDEN,), self.norm) @ layer["gate_up"]).chunk(2, dim=1)
            self.torch.mm(functional.silu(gate) * up, layer["down"], out=self.buffer)
            hidden = hidden + all_reduce(self.buffer)
        return hidden


def all_reduces(ranks, options):
    """Name and function of each; a function takes the tensor of a rank and returns the sum."""

    def in_place(run):
        def all_reduce(tensor):
            run(tensor)
            return tensor

        return all_reduce

    yield "none", lambda tensor: tensor
    yield "nccl", in_place(ranks.nccl)
    yield "symmetric memory one_shot", ranks.one_shot
    yield "symmetric memory two_shot", in_place(ranks.two_shot)
    from arlab import Communicator

    communicator = Communicator.from_environment(platform=ranks.platform(), sms=options.sms)
    for codec in options.codecs:
        name = options.dtype if codec == "plain" else codec
        for algorithm in ("one_shot", "two_shot"):
            yield f"arlab {algorithm} {name}", lambda tensor, a=algorithm, c=name: communicator.all_reduce(tensor, algorithm=a, codec=c)


def clock_of(torch):
    """MHz of this rank's multiprocessors at the moment; NaN where the driver does not tell."""
    try:
        return float(torch.cuda.clock_rate())
    except (AttributeError, ImportError, ModuleNotFoundError, RuntimeError):
        return math.nan


def turns(ranks, graphs, layers, replays):
    """By name, of every replay on the slowest rank: microseconds of a layer, those of its neighbour with NCCL (NaN where
    that cannot be run), and the clock behind it."""
    timed = replay_timer(ranks)

    def replay(graph):
        return timed(graph) / layers, clock_of(ranks.torch)

    measured = {name: [] for name in graphs}
    for turn in range(3 + replays):
        for name, graph in graphs.items():
            neighbour = math.nan
            if "nccl" in graphs and turn % 2 == 0:
                neighbour, _ = replay(graphs["nccl"])
            layer_us, clock = replay(graph)
            if "nccl" in graphs and turn % 2 == 1:
                neighbour, _ = replay(graphs["nccl"])
            if turn >= 3:
                measured[name].append((layer_us, neighbour, clock))
    by_rank = ranks.gather(measured)

    def slowest(name, what, of_ranks=max):
        return [of_ranks(each[name][i][what] for each in by_rank) for i in range(replays)]

    return {name: (slowest(name, 0), slowest(name, 1), slowest(name, 2, min)) for name in graphs}


def figures_of(layer_us, neighbours, clocks):
    """The columns of a row that are measured, but for added_us."""
    low, middle, high = measurement.median_interval([own / nccl for own, nccl in zip(layer_us, neighbours, strict=True)])
    return {
        "layer_us": f"{statistics.median(layer_us):.1f}",
        "over_nccl": measurement.shown(middle, ".4f"),
        "over_nccl_low": measurement.shown(low, ".4f"),
        "over_nccl_high": measurement.shown(high, ".4f"),
        "sm_mhz": measurement.shown(statistics.median(clocks), ".0f"),
    }


def rows_of(ranks, options, about):
    """Yields rows, and comments on what cannot be run."""
    kind = ranks.dtype(options.dtype)
    most = max(options.tokens) * HIDDEN
    # Symmetric memory takes tensors of its own only; the others take any.
    buffer, failure = try_on_all(ranks, lambda: ranks.symmetric_buffer(kind, most))
    if failure:
        yield f"not measured: symmetric memory: {failure}"
        buffer = ranks.torch.zeros(most, dtype=kind, device=ranks.device)
    ranks.barrier()
    choices = list(all_reduces(ranks, options))
    for tokens in options.tokens:
        layers = Layers(ranks, options.dtype, tokens, options.layers, buffer)
        size = tokens * HIDDEN * kind.itemsize
        graphs = {}
        for name, function in choices:
            if "one_shot" in name and size > 32 << 20:
                continue  # every rank reads all of every other one's: nobody would take it there
            graph, failure = try_on_all(ranks, lambda: capture(ranks, lambda: layers.run(function), 1))
            if failure:
                yield f"not measured: {name} of {tokens} tokens: {failure}"
            else:
                graphs[name] = graph
        measured = turns(ranks, graphs, options.layers, options.replays)
        for name, (layer_us, neighbours, clocks) in measured.items():
            more = statistics.median(layer_us) - statistics.median(measured["none"][0])
            yield {
                **about,
                "tokens": tokens,
                "bytes": size,
                "all_reduce": name,
                **figures_of(layer_us, neighbours, clocks),
                "added_us": f"{more / 2:.2f}" if size <= MOST_ADDED else "",
            }
        del layers, graphs
        ranks.torch.cuda.empty_cache()


def main():
    options = parse_arguments()
    what = (
        f"Layers of Llama 3 70B's shapes without attention in PyTorch, {options.layers} in a CUDA graph, median of"
        f" {options.replays} replays in turns, time of a layer on the slowest rank. over_nccl: median of a replay's time over"
        " that of a neighbouring one with NCCL, low and high an interval of 95 %. sm_mhz: clock behind a replay, of the slowest"
        " rank. added_us: (layer - layer of none) / 2, of up to 8 MiB."
    )
    write_measurements(options, rows_of, what, COLUMNS, dtype=options.dtype)


if __name__ == "__main__":
    main()
