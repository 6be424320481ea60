#!/usr/bin/env python3
"""An all-reduce beside a matrix product: what the two take together, with N multiprocessors for the all-reduce.

    python3 experiments/gpu/bench_torch_overlap.py --ranks 2 --out overlap_h200-2.csv
    torchrun --nproc-per-node 2 experiments/gpu/bench_torch_overlap.py --out overlap_h200-2.csv

The product is that behind which a tensor-parallel Llama 3 70B reduces: [tokens, 28672 / ranks] times [28672 / ranks, 8192],
on one stream; the all-reduce is of another tensor of [tokens, 8192], on a second one, as where a batch is worked through in
two halves. NCCL is given N channels, arlab N multiprocessors. after_us: one after the other on one stream, the all-reduce
with all that it likes; beside_us: both at once. Graphs of --calls pairs take turns, and the figures are medians of
replays, on the slowest rank. The last lines say which N is best.
"""

import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402
from bench_torch_allreduce import capture, replay_timer, try_on_all, write_measurements  # noqa: E402
from bench_torch_layers import FFN, HIDDEN  # noqa: E402

COLUMNS = (
    "platform", "machine", "ranks", "dtype", "tokens", "bytes", "all_reduce", "sms",
    "product_us", "all_reduce_us", "after_us", "beside_us",
)  # fmt: skip


def parse_arguments(arguments=None):
    parser = measurement.Parser(__doc__, counts=("calls", "replays"), sizes=("tokens", "sms"), names=("codecs",))
    parser.add_argument("--tokens", default="1024,4096", help="in a batch, several separated by commas [%(default)s]")
    parser.add_argument("--sms", default="8,16,32", help="multiprocessors for an all-reduce [%(default)s]")
    parser.add_argument("--codecs", default="plain,qr-q8,qr-q4,int4-g32", help="of arlab; plain is bf16 [%(default)s]")
    parser.add_argument("--calls", type=int, default=4, help="pairs in a graph [%(default)s]")
    parser.add_argument("--replays", type=int, default=15, help="of every graph, after 3 others [%(default)s]")
    return parser.parse(arguments)


def nccl(ranks, sms):
    """NCCL's all-reduce, in place where sums go, with at most so many channels, a block each; 0: as many as it likes."""
    group = None
    if sms:
        choices = ranks.dist.ProcessGroupNCCL.Options()
        choices.config.max_ctas = sms
        group = ranks.dist.new_group(pg_options=choices)
    return lambda tensor, out: ranks.dist.all_reduce(out, group=group)


def all_reduces(ranks, options):
    """(name, N, function of a tensor and of where its sum goes) of each; N of 0: no limit."""
    from arlab import Communicator

    for sms in (0, *options.sms):
        yield "nccl", sms, nccl(ranks, sms)
    for sms in (0, *options.sms):
        communicator = Communicator.from_environment(platform=ranks.platform(), sms=sms)
        for codec in options.codecs:
            name = "bf16" if codec == "plain" else codec
            yield f"arlab {name}", sms, lambda tensor, out, c=name, on=communicator: on.all_reduce(tensor, codec=c, out=out)


class Pair:
    """A product and an all-reduce, in every order."""

    def __init__(self, ranks, tokens):
        torch = ranks.torch

        def random(*shape):
            return torch.randn(*shape, dtype=torch.bfloat16, device=ranks.device)

        self.torch, self.side = torch, torch.cuda.Stream()
        self.x, self.weights = random(tokens, FFN // ranks.size), random(FFN // ranks.size, HIDDEN)
        self.y, self.tensor = random(tokens, HIDDEN), random(tokens, HIDDEN)
        # Elsewhere, NCCL's too: summed in place again and again, numbers grow to infinities, which codecs take longer for.
        self.sum = torch.empty_like(self.tensor)

    def product(self):
        self.torch.mm(self.x, self.weights, out=self.y)

    def after(self, all_reduce):
        self.product()
        all_reduce(self.tensor, self.sum)

    def beside(self, all_reduce):
        main = self.torch.cuda.current_stream()
        self.side.wait_stream(main)
        with self.torch.cuda.stream(self.side):
            all_reduce(self.tensor, self.sum)
        self.product()
        main.wait_stream(self.side)


def turns(ranks, graphs, calls, replays):
    """By key, the median over replays of microseconds of a pair, on the slowest rank."""
    replay = replay_timer(ranks)
    times = {key: [] for key in graphs}
    for turn in range(3 + replays):
        for key, graph in graphs.items():
            time_us = replay(graph) / calls
            if turn >= 3:
                times[key].append(time_us)
    by_rank = ranks.gather(times)
    return {key: statistics.median(max(each[key][i] for each in by_rank) for i in range(replays)) for key in graphs}


def rows_of(ranks, options, about):
    """Yields rows, and comments on what cannot be run and on the best N."""
    choices = list(all_reduces(ranks, options))
    for tokens in options.tokens:
        pair = Pair(ranks, tokens)
        graphs = {("product",): capture(ranks, pair.product, options.calls)}
        for name, sms, function in choices:
            ways = {"alone": lambda f=function: f(pair.tensor, pair.sum)}
            if sms:
                ways["beside"] = lambda f=function: pair.beside(f)
            else:
                ways["after"] = lambda f=function: pair.after(f)
            for way, run in ways.items():
                graph, failure = try_on_all(ranks, lambda r=run: capture(ranks, r, options.calls))
                if failure:
                    yield f"not measured: {name} {way} with {sms} multiprocessors, {tokens} tokens: {failure}"
                else:
                    graphs[name, sms, way] = graph
        measured = turns(ranks, graphs, options.calls, options.replays)
        best = {}
        for name, sms, _ in choices:
            beside = measured.get((name, sms, "beside"))
            if beside is None:
                continue
            best[name] = min(best.get(name, (beside, sms)), (beside, sms))
            yield {
                **about,
                "tokens": tokens,
                "bytes": tokens * HIDDEN * 2,
                "all_reduce": name,
                "sms": sms,
                "product_us": f"{measured['product',]:.1f}",
                "all_reduce_us": measurement.shown(measured.get((name, sms, "alone"), math.nan), ".1f"),
                "after_us": measurement.shown(measured.get((name, 0, "after"), math.nan), ".1f"),
                "beside_us": f"{beside:.1f}",
            }
        for name, (beside, sms) in best.items():
            yield f"{tokens} tokens, {name}: best with {sms} multiprocessors, {beside:.1f} us"
        del pair, graphs
        ranks.torch.cuda.empty_cache()


def main():
    options = parse_arguments()
    what = (
        "A matrix product of Llama 3 70B's shapes and an all-reduce in PyTorch, on two streams (beside_us) or one after the"
        f" other (after_us, with all multiprocessors for each); {options.calls} pairs in a CUDA graph, medians of"
        f" {options.replays} replays in turns, on the slowest rank. sms: NCCL's channels, arlab's multiprocessors."
    )
    write_measurements(options, rows_of, what, COLUMNS, dtype="bf16")


if __name__ == "__main__":
    main()
