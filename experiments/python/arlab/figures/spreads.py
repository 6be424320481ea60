"""How far the SQNR of each codec spreads over tensors, texts and seeds: a figure and a table of a study's results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.style import number
from arlab.figures.tables import InputError
from arlab.statistics import summarize

FAMILY_LOOKS = [{"color": colour, "marker": marker} for colour, marker in zip(style.PALETTE, style.MARKERS)]


def spread(frame: pd.DataFrame, ranks: int | None = None, algorithm: str | None = None) -> pd.DataFrame:
    """Figures of each family of inputs and codec, over its tensors.

    A family is an input of the study, or several whose names differ by ", seed 1" at their ends. Results of one tensor,
    at several numbers of ranks, are drawn together by the bootstrap. Columns: family, codec, and those of
    arlab.statistics.summarize(), in dB.
    """
    for name, wanted in (("ranks", ranks), ("algorithm", algorithm)):
        if wanted is not None:
            there = frame[name].unique()
            if wanted not in there:
                raise InputError(f"{name} is {wanted}; the results have {', '.join(map(str, there))}")
            frame = frame[frame[name] == wanted]
    family = frame["input"].str.replace(r",? seed \d+$", "", regex=True)
    return summarize(frame.assign(family=family), ["family", "codec"], "sqnr_db", unit=["input", "tensor"])


@style.drawn
def error_bars(
    frame: pd.DataFrame, highlight: Sequence[str] = (), ranks: int | None = None, algorithm: str | None = None,
) -> Figure:  # fmt: skip
    """Median SQNR of each codec, its bootstrap interval and its quartiles, a mark for each family of inputs.

    Args:
        frame: rows as read_results() gives them. ranks, algorithm: only these; by default all together.
    """
    found = spread(frame, ranks, algorithm)
    counts = found.groupby("family", sort=False)["units"].max()
    medians = found.groupby("codec", sort=False)["median"].median()
    codecs = list(medians.sort_values(ascending=False, kind="stable").index)
    looks: dict[str, dict[str, Any]] = dict(zip(counts.index, itertools.cycle(FAMILY_LOOKS)))
    legend = [style.handle(f"{name} ({counts[name]} tensors)", **look) for name, look in looks.items()]
    (size,) = style.sizes("font.size")
    widths = (found["upper_quartile"] - found["lower_quartile"]).groupby(found["codec"]).max()
    page = style.new_page(
        f"{widths.idxmax()} spreads most: {style.decibels(widths.max())} between quartiles",
        style.sentence(
            f"{ranks} ranks" if ranks else "all numbers of ranks together",
            algorithm or ", ".join(frame["algorithm"].unique()),
            "median token where tensors have tokens" if frame.attrs.get("metric") == "token" else "whole tensors",
        ),
        [
            "Mark: median. Bar with ends: where that median lies (95 %, bootstrap over tensors and seeds).",
            "Pale bar: half of the tensors (quartiles). Tensors whose result is exact, or has no signal, are left out.",
        ],
        frame.attrs.get("file", ""),
        [legend],
        body_in=0.011 * size * (1 + len(looks)) * len(codecs),
    )
    axes = page.subplots()
    finite = found[np.isfinite(found["median"])]
    for i, (name, look) in enumerate(looks.items()):
        rows = finite[finite["family"] == name]
        y = rows["codec"].map(codecs.index).to_numpy(dtype=float) + 0.7 * ((i + 0.5) / len(looks) - 0.5)
        quartiles = {"color": look["color"], "alpha": 0.3, "linewidth": 0.6 * size}
        axes.hlines(y, rows["lower_quartile"], rows["upper_quartile"], **quartiles)
        ends = [rows["median"] - rows["low"], rows["high"] - rows["median"]]
        axes.errorbar(rows["median"], y, xerr=ends, linestyle="", capsize=0.25 * size, **look)
    axes.set(yticks=range(len(codecs)), yticklabels=codecs, xlabel="SQNR (dB)", ylim=(len(codecs) - 0.5, -0.5))
    style.embolden(axes.get_yticklabels(), highlight)
    for line in range(1, len(codecs)):
        axes.axhline(line - 0.5, color=style.GRID, linewidth=0.7)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    return page


def spread_table(frame: pd.DataFrame, ranks: int | None = None, algorithm: str | None = None) -> str:
    """The same as a Markdown table: median (interval) in dB, a column for each family."""
    found = spread(frame, ranks, algorithm)
    cells = found["median"].map(number) + " (" + found["low"].map(number) + " to " + found["high"].map(number) + ")"
    table = found.assign(cell=cells).pivot(index="codec", columns="family", values="cell").fillna("")
    table = table.reindex(index=found["codec"].unique(), columns=found["family"].unique())
    bits = frame.groupby("codec", sort=False)["wire_bits_per_element"].median()
    lines = [f"|codec|bits|{'|'.join(table.columns)}|", "|---|---:|" + "---:|" * table.shape[1]]
    lines += [f"|`{codec}`|{bits[codec]:.4g}|{'|'.join(row)}|" for codec, *row in table.itertuples()]
    return "\n".join(lines)
