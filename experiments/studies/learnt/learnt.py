#!/usr/bin/env python3
"""Levels and a rotation that were learnt from captured activations, up to the perplexity of the model.

    PYTHONPATH=build/bin/python .venv/bin/python experiments/studies/learnt/learnt.py      makes learnt.csv, learnt.png and README's table
    ... learnt.py --draw                                                                  only figure and table, of the CSV that is there

Every codec has 16 levels and a scale in fp16 for each 64 elements (4.25 bits). It turns a block by an orthogonal matrix before it encodes, and back
behind; levels are in equal steps, or k-means' of what was turned. It needs the build of ./quickstart.sh, and the model
(arlab.fetch.smollm2()).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
EXPERIMENTS = HERE.parents[1]
sys.path.insert(0, str(EXPERIMENTS / "site"))

import arlab  # noqa: E402
import pandas as pd  # noqa: E402
from arlab.figures import style  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from page_tables import csv_text, filled, markdown, rows_of  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

BLOCK, LEVELS = 64, 16
RANKS, TOKENS = 4, 2048
TEXT = "experiments/activations/texts/prose.txt"
COLUMNS = ("rotation", "levels", "wire_bits_per_element", "perplexity", "perplexity_standard_error", "mean_kl", "mean_kl_standard_error", "token_sqnr_db")
Matrix = NDArray[np.float64]


def hadamard() -> Matrix:
    matrix = np.ones((1, 1))
    while len(matrix) < BLOCK:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(BLOCK)


def rotation_of(blocks: Matrix, steps: int = 600, batch: int = 4096, power: int = 10) -> Matrix:
    """An orthogonal matrix R for which rows of blocks @ R have small largest magnitudes, in units of the row: from Hadamard's, by
    steps along the gradient of their `power`-norm, each of which a Cayley transform makes orthogonal."""
    random = np.random.default_rng(1)
    rows = blocks / np.maximum(np.sqrt(np.mean(blocks**2, 1, keepdims=True)), 1e-9)
    rotation, identity = hadamard(), np.eye(BLOCK)
    for step in range(steps):
        chosen = rows[random.integers(len(rows), size=batch)]
        turned = chosen @ rotation
        largest = abs(turned).max(1, keepdims=True) + 1e-12
        shares = (abs(turned) / largest) ** power
        total = shares.sum(1, keepdims=True)
        slope = largest * total ** (2 / power - 1) * (abs(turned) / largest) ** (power - 1) * np.sign(turned)
        way = chosen.T @ slope @ rotation.T
        way -= way.T
        way *= 0.05 * (1 - step / steps) / np.linalg.norm(way)
        rotation = np.linalg.solve(identity + way, (identity - way) @ rotation)
    return rotation


def levels_of(blocks: Matrix, rotation: Matrix, rounds: int = 200) -> Matrix:
    """K-means' levels (Lloyd) of turned blocks over their largest magnitude; the ends stay at -1 and 1."""
    turned = blocks @ rotation
    scaled = np.sort((turned / np.maximum(abs(turned).max(1, keepdims=True), 1e-30)).reshape(-1))
    levels = np.linspace(-1, 1, LEVELS)
    for _ in range(rounds):
        cells = np.searchsorted((levels[1:] + levels[:-1]) / 2, scaled)
        inner = [scaled[cells == level].mean() if (cells == level).any() else levels[level] for level in range(1, LEVELS - 1)]
        levels[1:-1] = inner
    return levels


def product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """rows @ matrix, added up in order: a BLAS adds in other orders where there are more rows, and a codec's bits would depend on them."""
    total = rows[:, :1] * matrix[0]
    for i in range(1, BLOCK):
        total += rows[:, i : i + 1] * matrix[i]
    return total


class Rotated:
    """Blocks are turned, scaled to their largest magnitude, and take the nearest of 16 levels."""

    def __init__(self, rotation: Matrix, levels: Matrix):
        self.rotation, self.levels = rotation.astype(np.float32), levels.astype(np.float32)
        self.middles = (self.levels[1:] + self.levels[:-1]) / 2

    def encode(self, blocks: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            turned = product(blocks.astype(np.float32), self.rotation)
            scale = abs(turned).max(1, keepdims=True).astype(np.float16)
            codes = np.searchsorted(self.middles, turned / np.maximum(scale.astype(np.float32), 1e-30)).astype(np.uint8)
        scale[~np.isfinite(turned).all(1)] = np.nan
        return np.concatenate([codes[:, ::2] | codes[:, 1::2] << 4, scale.view(np.uint8)], 1)

    def decode(self, wire: np.ndarray) -> np.ndarray:
        codes = np.stack([wire[:, : BLOCK // 2] & 15, wire[:, : BLOCK // 2] >> 4], 2).reshape(-1, BLOCK)
        scale = wire[:, BLOCK // 2 :].copy().view(np.float16).astype(np.float32)
        with np.errstate(all="ignore"):
            return product(self.levels[codes] * scale, self.rotation.T)


def captured() -> Matrix:
    tensors = load_file(EXPERIMENTS / f"data/smollm2_tp{RANKS}.safetensors")
    return np.concatenate([tensor.astype(np.float64).reshape(-1, BLOCK) for tensor in tensors.values()])


def measured() -> list[dict[str, Any]]:
    blocks, found = captured(), []
    for name, rotation in {"none": np.eye(BLOCK), "Hadamard": hadamard(), "learnt": rotation_of(blocks)}.items():
        for kind, levels in {"equal steps": np.linspace(-1, 1, LEVELS), "learnt": levels_of(blocks, rotation)}.items():
            codec = f"turned-{name}-{kind}".replace(" ", "-").lower()
            arlab.codec(codec, block=BLOCK, dtypes=("fp16",), encode_ops=2 * BLOCK + 8, decode_ops=2 * BLOCK + 2)(Rotated(rotation, levels))
            row = arlab.models.perplexity(model="smollm2", text=TEXT, ranks=RANKS, algorithm="two_shot", codec=codec, tokens=TOKENS).frame.iloc[0]
            found.append({"rotation": name, "levels": kind, **{column: row[column] for column in COLUMNS[2:]}})
    return found


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        (row["rotation"], row["levels"], f"{float(row['token_sqnr_db']):.1f}",
         f"{float(row['mean_kl']):.3f} ± {float(row['mean_kl_standard_error']):.3f}", f"{float(row['perplexity']):.1f}")
        for row in rows
    ]  # fmt: skip
    return markdown(("rotation", "levels", "SQNR, dB", "mean KL, nats", "perplexity"), lines, "llrrr")


@style.drawn
def figure_of(frame: pd.DataFrame) -> Figure:
    looks = {"equal steps": (style.INK, "o", -0.1), "learnt": (style.ORANGE, "s", 0.1)}
    page = style.new_page(
        "Rotations do what levels cannot; learnt ones are no better than Hadamard's",
        "Mean KL divergence from the uncompressed model (nats per token); every codec has 4.25 bits",
        [f"SmolLM2-135M on {RANKS} ranks, two_shot, {TOKENS} tokens of prose; bars: one standard error."],
        "experiments/studies/learnt/learnt.csv (computed)",
        [[style.handle(f"levels: {kind}", linestyle="", color=colour, marker=marker) for kind, (colour, marker, _) in looks.items()]],
        body_in=2.2,
    )  # fmt: skip
    axes = page.subplots()
    names = list(frame["rotation"].unique())
    for kind, (colour, marker, shift) in looks.items():
        rows = frame[frame["levels"] == kind]
        look = {"color": colour, "marker": marker, "linestyle": "", "capsize": 2}
        axes.errorbar(rows["mean_kl"], [names.index(name) + shift for name in rows["rotation"]], xerr=rows["mean_kl_standard_error"], **look)
    axes.set(yticks=range(len(names)), yticklabels=[f"rotation: {name}" for name in names], xlabel="mean KL (nats)", xscale="log", xlim=(0.1, 10))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_yaxis()
    axes.grid(axis="x")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="only draw the table that is there")
    kept, page = HERE / "learnt.csv", HERE / "README.md"
    if not parser.parse_args().draw:
        rows = [{name: row[name] for name in COLUMNS} for row in measured()]
        text = csv_text(rows, "command: .venv/bin/python experiments/studies/learnt/learnt.py", "provenance: computed: the network of arlab model perplexity, all-reduces bit for bit")
        kept.write_text(text, encoding="utf-8")
    rows = rows_of(kept)
    page.write_text(filled(page.read_text(encoding="utf-8"), {"table": lambda: table(rows)}), encoding="utf-8")
    style.use_own_fonts()
    style.save(figure_of(pd.read_csv(kept, comment="#")), HERE / "learnt.png")


if __name__ == "__main__":
    main()
