"""Draws the site's pictures from what the program says: schedules of small groups, wires of small tensors.

The build of the site (hooks.py) puts them beside the pages that show them, as pictures/NAME.svg; no copy is kept. To look at them alone:

    python experiments/site/pictures.py DIR      ARLAB_BIN: folder of the program, by default build/bin
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from repository import arlab

INK, GREY, RULE = "#222222", "#666666", "#BBBBBB"
SUMS = ("#FFFFFF", "#CFE3F1", "#88BBDD", "#3D85BB", "#0A4A7A")  # by contributions, 0 to 4: darker is more
CHUNKS = ("#0072B2", "#D55E00", "#009E73", "#882255")  # arrows, by chunk
PARTS = {"codes": "#88BBDD", "scale": "#E69F00", "zero": "#F5D28A", "spikes": "#CC79A7"}
RANKS = 4


# ---------------------------------------------------------------- algorithms


def schedule_of(algorithm: str, *options: str) -> dict[str, Any]:
    return json.loads(arlab("schedule", "--algorithm", algorithm, "--ranks", str(RANKS), "--elements", "64", *options))


def contributions(schedule: dict[str, Any]) -> list[set[int]]:
    """Returns, by value, the ranks that contribute to it."""
    sets: list[set[int]] = []
    for op in schedule["ops"]:
        sources = op["from"] if isinstance(op["from"], list) else [op["from"]]
        sets.append(set().union(*({op["rank"]} if source == "input" else sets[source] for source in sources)))
    return sets


def states(schedule: dict[str, Any]) -> np.ndarray:
    """[column, rank, chunk]: how many ranks' data are in the fullest value there, at first and after every step."""
    sets = contributions(schedule)
    steps = 1 + max(op["step"] for op in schedule["ops"] if op["op"] == "send")
    count = np.ones((steps + 1, schedule["world_size"], len(schedule["chunks"])), int)
    for op, ranks in zip(schedule["ops"], sets):
        # Arrivals of a step are added up when the next begins.
        first = op["step"] + (op["op"] != "reduce")
        where = count[first:, op.get("to", op["rank"]), op["chunk"]]
        np.maximum(where, len(ranks), out=where)
    return count


def draw_algorithm(schedule: dict[str, Any]) -> Figure:
    """Ranks are rows, time goes to the right: a strip of chunks per rank, arrows for messages."""
    count = states(schedule)
    columns, ranks, chunks = count.shape
    width, height, gap = 1.0, 0.42, 1.15 if columns <= 5 else 0.7
    figure = Figure(figsize=(1.25 + (columns * width + (columns - 1) * gap) * 0.92, 0.62 * ranks + 0.3))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-0.75, columns * width + (columns - 1) * gap + 0.15)
    axes.set_ylim(ranks - 0.55, -0.7)
    axes.axis("off")
    for column in range(columns):
        x = column * (width + gap)
        label = "before" if column == 0 else f"after step {column - 1}"
        axes.text(x + width / 2, -0.45, label, ha="center", va="center", fontsize=8.5, color=GREY)
        for rank in range(ranks):
            if column == 0:
                axes.text(-0.1, rank, f"rank {rank}", ha="right", va="center", fontsize=9, color=INK)
            for chunk in range(chunks):
                number = count[column, rank, chunk]
                cell = width / chunks
                axes.add_patch(
                    Rectangle((x + chunk * cell, rank - height / 2), cell, height, fc=SUMS[number], ec=INK, lw=0.7)
                )
                if chunks <= 4:
                    axes.text(
                        x + (chunk + 0.5) * cell, rank, str(number), ha="center", va="center", fontsize=8,
                        color="white" if number >= 3 else INK,
                    )  # fmt: skip
    for op in schedule["ops"]:
        if op["op"] != "send":
            continue
        x = op["step"] * (width + gap) + width
        nudge = 0 if chunks == 1 else (op["chunk"] - (chunks - 1) / 2) * height * 0.7 / chunks
        arrow = FancyArrowPatch(
            (x + 0.03, op["rank"] + nudge), (x + gap - 0.03, op["to"] + nudge), arrowstyle="-|>,head_width=2,head_length=3.5",
            lw=1.1, color=CHUNKS[op["chunk"] * len(CHUNKS) // chunks], shrinkA=0, shrinkB=0,
        )  # fmt: skip
        axes.add_patch(arrow)
    return figure


def draw_all_to_all(schedule: dict[str, Any]) -> Figure:
    """As above, with the rank that a slot comes from as its letter."""
    ranks = schedule["world_size"]
    slot = schedule["elements"] // ranks
    sets = contributions(schedule)
    after = np.zeros((ranks, ranks), int)
    where = np.zeros((ranks, ranks), int)
    for output in schedule["outputs"]:
        source = output["rank"] if output["from"] == "input" else next(iter(sets[output["from"]]))
        after[output["rank"], output["begin"] // slot] = source
        where[output["rank"], output["begin"] // slot] = output["chunk"]
    figure = Figure(figsize=(5.2, 0.62 * ranks + 0.3))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-0.75, 4.15)
    axes.set_ylim(ranks - 0.55, -0.7)
    axes.axis("off")
    fills = ("#CFE3F1", "#F7DCC4", "#CDEBDF", "#E7CFDA")
    for column, x in enumerate((0.0, 2.5)):
        axes.text(x + 0.75, -0.45, ("before", "after step 0")[column], ha="center", va="center", fontsize=8.5, color=GREY)
        for rank in range(ranks):
            if column == 0:
                axes.text(-0.1, rank, f"rank {rank}", ha="right", va="center", fontsize=9, color=INK)
            for at in range(ranks):
                source, chunk = (rank, at) if column == 0 else (after[rank, at], where[rank, at])
                axes.add_patch(Rectangle((x + at * 0.375, rank - 0.21), 0.375, 0.42, fc=fills[source], ec=INK, lw=0.7))
                text = f"{'ABCD'[source]}{chunk}"
                axes.text(x + (at + 0.5) * 0.375, rank, text, ha="center", va="center", fontsize=8, color=INK)
    for op in schedule["ops"]:
        if op["op"] == "send":
            arrow = FancyArrowPatch(
                (1.53, op["rank"]), (2.47, op["to"]), arrowstyle="-|>,head_width=2,head_length=3.5", lw=1.1,
                color=CHUNKS[op["rank"]], shrinkA=0, shrinkB=0,
            )  # fmt: skip
            axes.add_patch(arrow)
    return figure


# ---------------------------------------------------------------- codecs


def encoded(codec: str, values: np.ndarray) -> bytes:
    with tempfile.TemporaryDirectory(prefix="arlab-") as folder:
        tensor, wire = Path(folder) / "in.npy", Path(folder) / "out.bin"
        np.save(tensor, values)
        arlab("encode", "--codec", codec, str(tensor), str(wire))
        return wire.read_bytes()


def draw_block() -> Figure:
    """A block of int4-g32: 32 values, their codes, and the 20 bytes that travel."""
    x = np.random.default_rng(3).normal(size=32).astype(np.float16)
    wire = encoded("int4-g32", x)
    assert len(wire) == 20
    codes = [(byte >> shift) & 15 for byte in wire[:16] for shift in (0, 4)]
    scale, zero = (float((np.frombuffer(wire[at : at + 2], "<u2").astype(np.uint32) << 16).view(np.float32)[0]) for at in (16, 18))
    figure = Figure(figsize=(8.6, 4.9))
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.96))
    axes.set_xlim(-0.3, 40.3)
    axes.set_ylim(-3.6, 9.4)
    axes.axis("off")

    def centre(of: float) -> float:
        return of * 1.25 + 0.625

    low = 2.1
    for code in range(16):
        y = low + code * 0.43
        axes.plot((0, 40), (y, y), lw=0.5, color="#DDDDDD", zorder=0)
    for i, (value, code) in enumerate(zip(x, codes)):
        exact = low + (float(value) - zero) / scale * 0.43
        level = low + code * 0.43
        axes.plot((centre(i), centre(i)), (exact, level), lw=1.6, color="#D55E00")
        axes.plot((centre(i) - 0.4, centre(i) + 0.4), (level, level), lw=1.6, color="#D55E00")
        axes.plot(centre(i), exact, "o", ms=3.2, color=INK, mew=0)
        axes.add_patch(Rectangle((i * 1.25, 0.6), 1.25, 0.8, fc=PARTS["codes"], ec=INK, lw=0.6))
        axes.text(centre(i), 1.0, str(code), ha="center", va="center", fontsize=7.5, color=INK)
    axes.text(0, 9.1, "32 values of a block (dots), and the nearest of the 16 levels between its least and its greatest (orange)", fontsize=9, color=INK)
    axes.text(0, 1.55, "4-bit codes: which level", fontsize=9, color=INK)
    for i, byte in enumerate(wire):
        left = i * 2.0
        part = "codes" if i < 16 else "scale" if i < 18 else "zero"
        axes.add_patch(Rectangle((left, -1.6), 2.0, 0.9, fc=PARTS[part], ec=INK, lw=0.6))
        axes.text(left + 1, -1.15, f"{byte:02X}", ha="center", va="center", fontsize=8.5, color=INK, family="monospace")
    axes.text(0, -0.5, "20 bytes on the wire", fontsize=9, color=INK)
    for begin, end, text in (
        (0, 32, "codes: two per byte, the first in the low half"), (32, 36, f"scale\n{scale:.4g}"), (36, 40, f"zero\n{zero:.4g}"),
    ):  # fmt: skip
        axes.plot((begin + 0.15, end - 0.15), (-1.8, -1.8), lw=1, color=GREY)
        axes.text((begin + end) / 2, -1.95, text, ha="center", va="top", fontsize=8.5, color=INK)
    axes.text(0, -3.4, "decoded: zero + code * scale. 32 values of fp16 are 64 bytes.", fontsize=9, color=INK)
    return figure


def draw_sizes() -> Figure:
    """Bytes of 128 elements on the wire, by what they are."""
    # Bytes per block of metadata, as SPEC.md defines them; their sum is what the program's wires have.
    codecs = {
        "fp16": (128, {}),
        "qr-q8": (32, {"scale": 2}),
        "int8-g128": (128, {"scale": 2, "zero": 2}),
        "fp8-e4m3-g128": (128, {"scale": 4}),
        "qr-q6": (32, {"scale": 2}),
        "int5-g128": (128, {"scale": 2, "zero": 2}),
        "int4-g32": (32, {"scale": 2, "zero": 2}),
        "int2-g32-sr": (32, {"scale": 2, "zero": 2, "spikes": 8}),
        "qr-q4": (32, {"scale": 2}),
        "mxfp4": (32, {"scale": 1}),
        "int2-g32": (32, {"scale": 2, "zero": 2}),
    }
    elements = 2048
    figure = Figure(figsize=(8.6, 3.7))
    axes = figure.add_axes((0.16, 0.15, 0.73, 0.75))
    for row, (codec, (block, metadata)) in enumerate(codecs.items()):
        total = len(encoded(codec, np.zeros(elements, np.float16))) * 8 / elements
        parts = {part: size * 8 / block for part, size in metadata.items()}
        parts = {"codes": total - sum(parts.values()), **parts}
        assert parts["codes"] == round(parts["codes"]) and parts["codes"] > 0, (codec, parts)
        left = 0.0
        for part, bits in parts.items():
            axes.barh(row, bits, left=left, color=PARTS[part], edgecolor=INK, linewidth=0.6, height=0.7)
            left += bits
        axes.text(left + 0.12, row, f"{total:g}", va="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(codecs)), codecs, family="monospace", fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 17)
    axes.set_xticks(range(0, 17, 2))
    axes.set_xlabel("bits on the wire per element", fontsize=9)
    axes.tick_params(axis="x", labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    handles = [Rectangle((0, 0), 1, 1, fc=colour, ec=INK, lw=0.6) for colour in PARTS.values()]
    names = ["codes of elements", "scales", "zeros (least values)", "spikes and where they are"]
    axes.legend(handles, names, loc="lower right", frameon=False, fontsize=9)
    return figure


# ---------------------------------------------------------------- files


PICTURES: dict[str, Callable[[], Figure]] = {
    "one_shot": lambda: draw_algorithm(schedule_of("one_shot")),
    "two_shot": lambda: draw_algorithm(schedule_of("two_shot")),
    "ring": lambda: draw_algorithm(schedule_of("ring")),
    "tree": lambda: draw_algorithm(schedule_of("tree", "--micro-chunks", "1")),
    "hierarchical": lambda: draw_algorithm(schedule_of("hierarchical", "--group-size", "2")),
    "all_to_all": lambda: draw_all_to_all(schedule_of("all_to_all")),
    "block": draw_block,
    "wire_bits": draw_sizes,
}


def svg(name: str) -> bytes:
    """The picture as a file; equal programs and matplotlibs give equal bytes."""
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "arlab", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):
        PICTURES[name]().savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="DIR", help="folder for the pictures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        (out / f"{name}.svg").write_bytes(svg(name))


if __name__ == "__main__":
    main()
