#!/usr/bin/env python3
"""Trains a small language model on 4 data-parallel ranks whose gradients go through a compressed all-reduce.

    gradients.py [--out FOLDER]    trains with every codec, with and without error feedback; writes gradients.csv and
                                   gradients.png, prints the table of README.md
    gradients.py --draw CSV        only the figure and the table

The model predicts a letter of a text from the 8 before it: embedding, one hidden layer (tanh), softmax; 25 000 weights. Each
rank has its own letters. The gradients, times 1024 as mixed precision does it, are fp16 and go through arlab's bit-exact
two_shot; everything else is float32. A run is a function of optimizer, codec, error feedback and seed: the same bytes every
time.

Exit code: 0, or 2 for bad usage.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# The matrices are small, and the order in which threads add must not matter.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import arlab  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from arlab import statistics  # noqa: E402
from arlab.figures import style  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

Float32 = NDArray[np.float32]

FOLDER = Path(__file__).resolve().parent
TEXT = FOLDER.parents[1] / "activations" / "texts" / "prose.txt"
RANKS = 4
BATCH = 32  # letters per rank and step
WINDOW, EMBEDDING, HIDDEN = 8, 16, 128
LEARNING_RATE = {"momentum SGD": 0.3, "Adam": 0.003}
MOMENTUM, SECOND_MOMENT = np.float32(0.9), np.float32(0.999)
LOSS_SCALE = np.float32(1024)
STEPS, EVERY, LAST, SEEDS = 1000, 20, 100, 5
MOST_SHOWN = 1.2  # nats of loss due to compression, in the figure
CODECS = ("fp16", "qr-q8", "qr-q6", "qr-q4", "int4-g32", "int4-g32-stoch", "int2-g32-sr", "int2-g32-stoch", "int2-g32")


# ---------------------------------------------------------------------------------------- the model


def product(a: Float32, b: Float32) -> Float32:
    """A matrix product in float64, rounded once, so that the order in which a BLAS adds hardly ever shows."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


class Model:
    """The network on one flat vector of weights, as an all-reduce wants its gradient."""

    def __init__(self, letters: int, seed: int):
        generator = np.random.default_rng([seed, 1])
        shapes = [(letters, EMBEDDING), (WINDOW * EMBEDDING, HIDDEN), (1, HIDDEN), (HIDDEN, letters), (1, letters)]
        sizes = [rows * columns for rows, columns in shapes]
        # Filled up with zeros, so that each rank's share of the vector is whole blocks of every codec.
        self.weights = np.zeros(-(-sum(sizes) // (RANKS * 2048)) * RANKS * 2048, np.float32)
        self.slices = [slice(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]
        self.shapes = shapes
        for part, (rows, columns) in zip(self.parts(self.weights), shapes):
            part[...] = generator.standard_normal((rows, columns)) / np.sqrt(rows) * (rows > 1)

    def parts(self, vector: Float32) -> list[Float32]:
        return [vector[part].reshape(shape) for part, shape in zip(self.slices, self.shapes)]

    def run(self, windows: np.ndarray, targets: np.ndarray) -> tuple[float, Float32]:
        """Mean cross entropy (nats), and its gradient."""
        embedding, into, into_bias, out, out_bias = self.parts(self.weights)
        count = len(targets)
        x = embedding[windows].reshape(count, -1)
        hidden = np.tanh(product(x, into) + into_bias)
        logits = product(hidden, out) + out_bias
        logits -= logits.max(1, keepdims=True)
        exponentials = np.exp(logits)
        probabilities = exponentials / exponentials.sum(1, keepdims=True)
        loss = -np.log(probabilities[np.arange(count), targets]).mean(dtype=np.float64)

        gradient = np.zeros_like(self.weights)
        of_embedding, of_into, of_into_bias, of_out, of_out_bias = self.parts(gradient)
        error = probabilities
        error[np.arange(count), targets] -= 1
        error /= np.float32(count)
        of_out[...] = product(hidden.T, error)
        of_out_bias[...] = error.sum(0)
        error = product(error, out.T) * (1 - hidden * hidden)
        of_into[...] = product(x.T, error)
        of_into_bias[...] = error.sum(0)
        np.add.at(of_embedding, windows, product(error, into.T).reshape(count, WINDOW, EMBEDDING))
        return float(loss), gradient


# ----------------------------------------------------------------------------------- the all-reduce


class CompressedSum:
    """Sums the ranks' gradients through two_shot. With error feedback, what was lost is added to the next ones: in two_shot a
    rank loses something when it encodes its gradient, and again when it encodes the sum of a quarter of the vector."""

    def __init__(self, codec: str, elements: int, feedback: bool, seed: int):
        self.codec, self.seed, self.call = f"ef-{codec}" if feedback else codec, seed, 0
        self.state = arlab.CodecState() if feedback else None
        self.error, self.squares = np.zeros(elements), 0.0

    def __call__(self, gradients: Float32) -> Float32:
        sent = gradients.astype(np.float16)
        result = arlab.all_reduce(
            sent, algorithm="two_shot", codec=self.codec, accumulate="fp32", count=False, threads=1,
            rounding_seed=self.seed, call=self.call, state=self.state,
        )  # fmt: skip
        total: Float32 = result.outputs[0].astype(np.float32)
        exact = sent.astype(np.float64).sum(0)
        self.error += total - exact
        self.squares += float(exact @ exact)
        self.call += 1
        return total

    def drift(self) -> float:
        """How far the sum of all steps is off, in gradients: its error over the RMS length of one step's sum."""
        return float(np.linalg.norm(self.error) / np.sqrt(self.squares / self.call))


class Optimizer:
    """Momentum SGD, or Adam (Kingma and Ba 2015)."""

    def __init__(self, name: str, elements: int):
        self.adam, self.rate = name == "Adam", np.float32(LEARNING_RATE[name])
        self.mean, self.square = np.zeros(elements, np.float32), np.zeros(elements, np.float32)
        self.step = 0

    def __call__(self, gradient: Float32) -> Float32:
        """By how much the weights change."""
        if not self.adam:
            self.mean = MOMENTUM * self.mean + gradient
            return -self.rate * self.mean
        self.step += 1
        self.mean = MOMENTUM * self.mean + (1 - MOMENTUM) * gradient
        self.square = SECOND_MOMENT * self.square + (1 - SECOND_MOMENT) * gradient * gradient
        mean = self.mean / np.float32(1 - 0.9**self.step)
        square = self.square / np.float32(1 - 0.999**self.step)
        return -self.rate * mean / (np.sqrt(square) + np.float32(1e-8))


def train(optimizer: str, codec: str, feedback: bool, seed: int, steps: int) -> list[dict[str, object]]:
    """Losses of one run: on average of what was learnt since the last row, and of the text held out."""
    text = TEXT.read_text("utf-8")
    letters = sorted(set(text))
    codes = np.array([letters.index(letter) for letter in text])
    windows = np.lib.stride_tricks.sliding_window_view(codes, WINDOW + 1)
    held_out, learnt = windows[-1000:], windows[:-1000]
    model = Model(len(letters), seed)
    reduce = CompressedSum(codec, model.weights.size, feedback, seed)
    change = Optimizer(optimizer, model.weights.size)
    order = np.random.default_rng([seed, 2])
    rows, losses = [], []
    for step in range(1, steps + 1):
        batches = learnt[order.integers(len(learnt), size=(RANKS, BATCH))]
        runs = [model.run(batch[:, :-1], batch[:, -1]) for batch in batches]
        losses.append(np.mean([loss for loss, _ in runs]))
        gradients = np.stack([gradient for _, gradient in runs])
        model.weights += change(reduce(gradients * LOSS_SCALE) / (LOSS_SCALE * np.float32(RANKS)))
        if step % EVERY == 0 or step == steps:
            row = {"optimizer": optimizer, "codec": codec, "error_feedback": feedback, "seed": seed, "step": step}
            held_out_loss, _ = model.run(held_out[:, :-1], held_out[:, -1])
            rows.append(row | {"training_loss": float(np.mean(losses)), "held_out_loss": held_out_loss, "drift": reduce.drift()})
            losses = []
    return rows


# ------------------------------------------------------------------------------------------ results


def table_of(runs: list[tuple[str, str, bool, int]], steps: int, workers: int) -> pd.DataFrame:
    """All rows of all runs."""
    if workers == 1:
        return pd.DataFrame([row for run in runs for row in train(*run, steps)])
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        done = pool.map(train, *zip(*runs), [steps] * len(runs))
        return pd.DataFrame([row for rows in done for row in rows])


def csv_of(frame: pd.DataFrame, command: str) -> str:
    head = "# arlab.study.gradients/1: Training on 4 ranks with a compressed all-reduce of the gradients\n"
    head += f"# command: {command}\n"
    head += "# provenance: computed (NumPy in float32, all-reduces bit-exact by arlab)\n"
    return head + str(frame.to_csv(index=False, lineterminator="\n", float_format="%.6f"))


def excess(frame: pd.DataFrame) -> pd.DataFrame:
    """By run, the training loss of the last 100 steps, and how far it is above that of the uncompressed run of its seed."""
    last = frame[frame["step"] > frame["step"].max() - LAST]
    runs = last.groupby(["optimizer", "codec", "error_feedback", "seed"], sort=False)["training_loss"].mean().reset_index()
    plain = runs[runs["codec"] == "fp16"].set_index(["optimizer", "seed"])["training_loss"]
    runs["excess"] = runs["training_loss"].to_numpy() - plain.loc[list(zip(runs["optimizer"], runs["seed"]))].to_numpy()
    return runs


def summary(frame: pd.DataFrame) -> str:
    """The table of README.md."""
    found = statistics.summarize(excess(frame), ["optimizer", "codec", "error_feedback"], "excess", unit="seed")
    found = found.set_index(["optimizer", "codec", "error_feedback"])
    drift = frame[frame["step"] == frame["step"].max()].groupby(["codec", "error_feedback"])["drift"].median()

    def cell(optimizer: str, codec: str, feedback: bool) -> str:
        if (optimizer, codec, feedback) not in found.index:
            return ""
        row = found.loc[(optimizer, codec, feedback)]
        median, low, high = (f"{round(row[name], 3) + 0.0:+.3f}" for name in ("median", "low", "high"))
        return f"{median} ({low} to {high})".replace("+0.000", "0.000").replace("-", "\u2212")

    lines = ["|codec|bits|momentum SGD|with error feedback|Adam|with error feedback|drift|with error feedback|"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for codec in [codec for codec in CODECS if codec != "fp16"]:
        cells = [cell(optimizer, codec, feedback) for optimizer in LEARNING_RATE for feedback in (False, True)]
        cells += [f"{drift[codec, feedback]:.3g}" if (codec, feedback) in drift else "" for feedback in (False, True)]
        bits = arlab.wire_bytes(codec, "fp16", 4096) * 8 / 4096
        lines.append(f"|`{codec}`|{bits:g}|{'|'.join(cells)}|")
    return "\n".join(lines)


@style.drawn
def figure_of(frame: pd.DataFrame) -> Figure:
    """Above, the loss of training over its steps, and how far the sum of all steps has drifted; below, how much of the loss is
    due to compression, at the end."""
    seeds = frame["seed"].nunique()
    shown = {"fp16": style.INK, "int2-g32-sr": style.BLUE, "int2-g32-stoch": style.ORANGE, "int2-g32": style.WINE}
    page = style.new_page(
        "With momentum SGD, error feedback makes compressed gradients cost nothing",
        "Training loss of a letter model (nats per letter), 4 ranks, two_shot",
        [f"Line and mark: median of {seeds} seeds. Band and bar: interval of that median (95 %, bootstrap over seeds).",
         "Middle: error of the sum of all steps so far, in lengths of one step's gradient.",
         f"Below: training loss of the last {LAST} steps, above that of the uncompressed (fp16) run of the same seed."],
        "experiments/studies/gradients/gradients.csv (computed)",
        [[style.handle(codec, linestyle="-", color=colour, marker="") for codec, colour in shown.items()]
         + [style.handle("with error feedback", linestyle="--", color=style.GREY, marker="")]],
        body_in=10.5 if style.is_column() else 9.0,
    )  # fmt: skip
    shape = (6, 1) if style.is_column() else (3, 2)
    panels = page.subplots(*shape, squeeze=False, height_ratios=[1] * 6 if style.is_column() else [1, 1, 1.1])
    left, middle, right = (dict(zip(LEARNING_RATE, panels.flat[2 * row :])) for row in range(3))
    for panel, column in ((left, "training_loss"), (middle, "drift")):
        curves = statistics.summarize(frame, ["optimizer", "codec", "error_feedback", "step"], column, unit="seed")
        for (optimizer, codec, feedback), curve in curves.groupby(["optimizer", "codec", "error_feedback"], sort=False):
            if codec in shown:
                axes, look = panel[optimizer], {"color": shown[codec], "linewidth": 1.3}
                axes.plot(curve["step"], curve["median"], linestyle="--" if feedback else "-", **look)
                axes.fill_between(curve["step"], curve["low"], curve["high"], color=shown[codec], alpha=0.15, linewidth=0)
        if panel is left:
            limits = np.quantile(curves["median"], [0, 0.93]) + [-0.05, 0]
    for optimizer, axes in left.items():
        axes.set(title=optimizer, xlabel="step", ylabel="training loss (nats)", xlim=(0, frame["step"].max()), ylim=limits)
        axes.grid(axis="y")
        middle[optimizer].set(xlabel="step", ylabel="drift (gradients)", xscale="log", yscale="log")
        for axis in (middle[optimizer].xaxis, middle[optimizer].yaxis):
            axis.set_major_formatter("{x:g}")
        middle[optimizer].grid(axis="y")
    found = statistics.summarize(excess(frame), ["optimizer", "codec", "error_feedback"], "excess", unit="seed")
    names = [codec for codec in CODECS if codec != "fp16"]
    for optimizer, axes in right.items():
        for feedback, marker, shift in ((False, "o", -0.15), (True, "s", 0.15)):
            rows = found[(found["optimizer"] == optimizer) & (found["error_feedback"] == feedback)].set_index("codec")
            rows = rows.reindex(names)
            ends = [rows["median"] - rows["low"], rows["high"] - rows["median"]]
            look = {"color": style.ORANGE if feedback else style.INK, "marker": marker, "linestyle": "", "capsize": 2}
            label = "with error feedback" if feedback else "without"
            axes.errorbar(rows["median"], np.arange(len(names)) + shift, xerr=ends, label=label, **look)
        axes.axvline(0, color=style.GREY, linewidth=0.8)
        axes.set(title=optimizer, yticks=range(len(names)), yticklabels=names, xlabel="loss due to compression (nats)")
        axes.invert_yaxis()
        axes.grid(axis="x")
        beyond = found[(found["optimizer"] == optimizer) & (found["median"] > MOST_SHOWN)]
        for row in beyond.itertuples():
            text = f"{row.median:.1f} \u2192"
            axes.text(MOST_SHOWN, names.index(row.codec), text, ha="right", va="center", fontsize="small")
        if len(beyond):
            axes.set_xlim(right=MOST_SHOWN)
    right["momentum SGD"].legend(loc="upper right")
    return page


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gradients.py", description="Trains with a compressed all-reduce of the gradients.")
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=FOLDER, help="of the files (default: beside the script)")
    parser.add_argument("--draw", type=Path, metavar="CSV", help="train nothing, draw what this file has")
    parser.add_argument("--codecs", default=",".join(CODECS), help="names, with commas; fp16 is what others are compared with")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each run (default: {STEPS})")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of each kind (default: {SEEDS})")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes; the result never depends on it")
    options = parser.parse_args(words)
    codecs = options.codecs.split(",")
    unknown = [codec for codec in codecs if codec not in CODECS]
    if unknown or "fp16" not in codecs:
        allowed = f"allowed are {', '.join(CODECS)}, and fp16 is needed"
        parser.exit(2, f"gradients.py: error: --codecs is {options.codecs}; {allowed}\n")
    if min(options.steps, options.seeds, options.workers) < 1:
        parser.exit(2, "gradients.py: error: --steps, --seeds and --workers must be at least 1\n")
    results = options.draw or options.out / "gradients.csv"
    if not options.draw:
        runs = [
            (optimizer, codec, feedback, seed)
            for optimizer in LEARNING_RATE
            for codec in codecs
            for feedback in (False, True)[: 1 if codec == "fp16" else 2]
            for seed in range(1, options.seeds + 1)
        ]
        command = f"gradients.py --codecs {options.codecs} --steps {options.steps} --seeds {options.seeds}"
        style.write_whole(results, csv_of(table_of(runs, options.steps, options.workers), command).encode())
    try:
        frame = pd.read_csv(results, comment="#")
    except (OSError, ValueError) as error:
        parser.exit(2, f"gradients.py: error: cannot read {results}: {error}\n")
    style.use_own_fonts()
    style.save(figure_of(frame), options.out / "gradients.png")
    print(summary(frame))
    return 0


if __name__ == "__main__":
    sys.exit(main())
