#!/usr/bin/env python3
"""Trains the letter model of the study of gradients on 2 servers of 4 ranks whose gradients go through a quantized reduce-scatter.

    make.py [--out FOLDER]    trains by every way, writes two_hops.csv and two_hops.png, prints the table of README.md
    make.py --draw CSV        only the figure and the table

A way is an algorithm with its codecs. Gradients, sums and weights are fp32; all reduce-scatters are arlab's, bit-exact.

Exit code: 0, or 2 for bad usage.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "gradients"))

import arlab  # noqa: E402
import gradients as study  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from arlab import statistics  # noqa: E402
from arlab.figures import style  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

RANKS, GROUP, BATCH = 8, 4, 16
STEPS, SEEDS = 1000, 3
TWO_HOPS = {"algorithm": "hierarchical_reduce_scatter", "group_size": GROUP}
WAYS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "one hop, wire-bf16": {"codec": "wire-bf16"},
    "one hop, int8": {"codec": "int8-g128"},
    "one hop, int4": {"codec": "int4-g128"},
    "two hops, wire-bf16": {"codec": "wire-bf16", **TWO_HOPS},
    "two hops, int8 and int8": {"codec": "int8-g128", **TWO_HOPS},
    "two hops, int8 inside, int4 across": {"codec": "int4-g128", "inner_codec": "int8-g128", **TWO_HOPS},
    "two hops, int4 and int4": {"codec": "int4-g128", **TWO_HOPS},
}


def reduced(gradients: Any, way: str) -> tuple[Any, float]:
    """Returns the ranks' joint result, each with its slot, and its error as a share of its power."""
    outputs = arlab.reduce_scatter(gradients, threads=1, **WAYS[way]).outputs
    total = np.concatenate([each.reshape(RANKS, -1)[rank] for rank, each in enumerate(np.asarray(outputs))])
    exact = gradients.astype(np.float64).sum(0)
    return total, float(np.square(total - exact).sum() / np.square(exact).sum())


def train(optimizer: str, way: str, seed: int, steps: int) -> list[dict[str, object]]:
    """Losses of one run: on average of what was learnt since the last row."""
    text = study.TEXT.read_text("utf-8")
    letters = sorted(set(text))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.array([letters.index(letter) for letter in text]), study.WINDOW + 1
    )
    model = study.Model(len(letters), seed)
    change = study.Optimizer(optimizer, model.weights.size)
    order = np.random.default_rng([seed, 2])
    rows, losses, noise = [], [], []
    for step in range(1, steps + 1):
        batches = windows[order.integers(len(windows), size=(RANKS, BATCH))]
        runs = [model.run(batch[:, :-1], batch[:, -1]) for batch in batches]
        losses.append(np.mean([loss for loss, _ in runs]))
        total, lost = reduced(np.stack([gradient for _, gradient in runs]), way)
        noise.append(lost)
        model.weights += change(total / np.float32(RANKS))
        if step % study.EVERY == 0 or step == steps:
            rows.append({"optimizer": optimizer, "reduce_scatter": way, "seed": seed, "step": step,
                         "training_loss": float(np.mean(losses)), "sqnr_db": float(-10 * np.log10(np.mean(noise)))})  # fmt: skip
            losses, noise = [], []
    return rows


def across(way: str) -> float:
    """Bytes that a rank sends to the other server, in per cent of those of its gradient in fp32."""
    named = {"algorithm": "reduce_scatter", "codec": "fp32", **WAYS[way]}
    codec, elements = named.pop("codec"), RANKS * 4096
    made = arlab.schedule(named.pop("algorithm"), RANKS, elements, **named)
    return 100 * made.volume_of(GROUP).cross_group / GROUP * arlab.wire_bytes(codec, "fp32", elements) / (4 * elements)


def summary(frame: pd.DataFrame) -> str:
    """The table of README.md."""
    named = frame.rename(columns={"reduce_scatter": "codec"}).replace(
        {"codec": {"fp32": "fp16"}}
    )  # the base of excess()
    costs = study.excess(named.assign(error_feedback=False))
    found = statistics.summarize(costs, ["optimizer", "codec"], "excess", unit="seed").set_index(["optimizer", "codec"])
    sqnr = frame.groupby("reduce_scatter")["sqnr_db"].median()
    lines = [
        "|reduce-scatter|sent to the other server|SQNR (dB)|momentum SGD|Adam|",
        "|---|---:|---:|---:|---:|",
    ]
    for way in WAYS:
        cells = []
        for optimizer in study.LEARNING_RATE if way != "fp32" else ():
            median, low, high = (
                f"{round(found.loc[(optimizer, way), name], 3) + 0.0:+.3f}" for name in ("median", "low", "high")
            )
            cells.append(f"{median} ({low} to {high})".replace("+0.000", "0.000").replace("-", "\u2212"))
        lines.append(f"|{way}|{across(way):.1f} %|{sqnr[way]:.1f}|{'|'.join(cells or ['', ''])}|")
    return "\n".join(lines)


@style.drawn
def figure_of(frame: pd.DataFrame) -> Figure:
    shown = {"fp32": (style.INK, "-"), "one hop, int4": (style.BLUE, "-"), "two hops, int8 inside, int4 across": (style.ORANGE, "-"),
             "two hops, int4 and int4": (style.WINE, "--")}  # fmt: skip
    page = style.new_page(
        "The second hop of a quantized reduce-scatter costs training little", "Training loss of a letter model (nats per letter), 2 servers of 4 ranks",
        [f"Line: median of {frame['seed'].nunique()} seeds. Band: interval of that median (95 %, bootstrap over seeds)."],
        "experiments/studies/two_hops/two_hops.csv (computed)",
        [[style.handle(way, linestyle=line, color=colour, marker="") for way, (colour, line) in shown.items()]], body_in=3.2,
    )  # fmt: skip
    curves = statistics.summarize(frame, ["optimizer", "reduce_scatter", "step"], "training_loss", unit="seed")
    for optimizer, axes in zip(study.LEARNING_RATE, page.subplots(1, 2).flat):
        for way, (colour, line) in shown.items():
            curve = curves[(curves["optimizer"] == optimizer) & (curves["reduce_scatter"] == way)]
            axes.plot(curve["step"], curve["median"], linestyle=line, color=colour, linewidth=1.3)
            axes.fill_between(curve["step"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0)
        axes.set(title=optimizer, xlabel="step", ylabel="training loss (nats)", xlim=(0, frame["step"].max()))
        axes.grid(axis="y")
    return page


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make.py", description="Trains with a quantized reduce-scatter of the gradients."
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=FOLDER, help="of the files (default: beside the script)"
    )
    parser.add_argument("--draw", type=Path, metavar="CSV", help="train nothing, draw what this file has")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each run (default: {STEPS})")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of each kind (default: {SEEDS})")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes; the result never depends on it")
    options = parser.parse_args(words)
    if min(options.steps, options.seeds, options.workers) < 1:
        parser.exit(2, "make.py: error: --steps, --seeds and --workers must be at least 1\n")
    results = options.draw or options.out / "two_hops.csv"
    if not options.draw:
        runs = [
            (optimizer, way, seed)
            for optimizer in study.LEARNING_RATE
            for way in WAYS
            for seed in range(1, options.seeds + 1)
        ]
        with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
            done = [row for rows in pool.map(train, *zip(*runs), [options.steps] * len(runs)) for row in rows]
        head = "# arlab.study.two_hops/1: Training on 8 ranks with a quantized reduce-scatter of the gradients\n"
        head += f"# command: make.py --steps {options.steps} --seeds {options.seeds}\n"
        head += "# provenance: computed (NumPy in float32, reduce-scatters bit-exact by arlab)\n"
        style.write_whole(
            results, (head + pd.DataFrame(done).to_csv(index=False, lineterminator="\n", float_format="%.6f")).encode()
        )
    frame = pd.read_csv(results, comment="#")
    style.use_own_fonts()
    style.save(figure_of(frame), options.out / "two_hops.png")
    print(summary(frame))
    return 0


if __name__ == "__main__":
    sys.exit(main())
