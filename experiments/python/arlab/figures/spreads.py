"""How far the SQNR of each codec spreads over tensors, texts and seeds: a figure and a table of a study's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.tables import InputError
from arlab.statistics import summarize

FAMILY_LOOKS = tuple(zip(style.PALETTE, style.MARKERS))


def spread(frame: pd.DataFrame, ranks: int | None = None, algorithm: str | None = None) -> pd.DataFrame:
    """Figures of each family of inputs and codec, over its tensors.

    A family is an input of the study, or several whose names differ by ", seed 1" at their ends. Results of one tensor, at
    several numbers of ranks, are drawn together by the bootstrap. Columns: family, codec, and those of
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
    families = list(dict.fromkeys(found["family"]))
    codecs = list(found.groupby("codec", sort=False)["median"].median().sort_values(ascending=False, kind="stable").index)
    looks = {family: FAMILY_LOOKS[i % len(FAMILY_LOOKS)] for i, family in enumerate(families)}
    counts = found.groupby("family", sort=False)["units"].max()
    handles = [
        style.handle(f"{family} ({counts[family]} tensors)", color=colour, marker=marker)
        for family, (colour, marker) in looks.items()
    ]
    size = matplotlib.rcParams["font.size"]
    by_token = frame.attrs.get("metric") == "token"
    where = style.sentence(
        f"{ranks} ranks" if ranks else "all numbers of ranks together",
        algorithm or ", ".join(frame["algorithm"].unique()),
        "median token where tensors have tokens" if by_token else "whole tensors",
    )
    page = style.new_page(
        "How far the SQNR of a codec spreads over tensors, texts and seeds",
        where,
        [
            "Mark: median. Bar with ends: where that median lies (95 %, bootstrap over tensors and seeds).",
            "Pale bar: half of the tensors (quartiles). Tensors whose result is exact, or has no signal, are left out.",
        ],
        frame.attrs.get("file", ""),
        [handles],
        body_in=0.011 * size * (1 + len(families)) * len(codecs),
    )
    axes = page.subplots()
    finite = found[np.isfinite(found["median"])]
    for i, family in enumerate(families):
        colour, marker = looks[family]
        rows = finite[finite["family"] == family]
        shift = 0.7 * ((i + 0.5) / len(families) - 0.5)
        y = np.array([codecs.index(codec) for codec in rows["codec"]]) + shift
        axes.hlines(y, rows["lower_quartile"], rows["upper_quartile"], color=colour, alpha=0.3, linewidth=0.6 * size)
        ends = [rows["median"] - rows["low"], rows["high"] - rows["median"]]
        look: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": "", "capsize": 0.25 * size}
        axes.errorbar(rows["median"], y, xerr=ends, **look)
    axes.set(yticks=range(len(codecs)), yticklabels=codecs, xlabel="SQNR (dB)", ylim=(len(codecs) - 0.5, -0.5))
    for label in axes.get_yticklabels():
        if label.get_text() in highlight:
            label.set(color=style.readable(style.HIGHLIGHT), weight="bold")
    for line in range(1, len(codecs)):
        axes.axhline(line - 0.5, color=style.GRID, linewidth=0.7)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    return page


def spread_table(frame: pd.DataFrame, ranks: int | None = None, algorithm: str | None = None) -> str:
    """The same as a Markdown table: median (interval) in dB, a column for each family."""
    found = spread(frame, ranks, algorithm)
    families = list(dict.fromkeys(found["family"]))
    cells = {
        (row.codec, row.family): f"{style.number(row.median)} ({style.number(row.low)} to {style.number(row.high)})"
        for row in found.itertuples()
    }
    bits = frame.groupby("codec", sort=False)["wire_bits_per_element"].median()
    lines = [f"| codec | bits | {' | '.join(families)} |", "| --- | ---: |" + " ---: |" * len(families)]
    for codec in dict.fromkeys(found["codec"]):
        row = " | ".join(cells.get((codec, family), "") for family in families)
        lines.append(f"| `{codec}` | {bits[codec]:.4g} | {row} |")
    return "\n".join(lines)
