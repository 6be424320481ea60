"""Figures of a sweep over sizes and machines: latency, bandwidth, speed-up, which method wins where.

Each takes a DataFrame as from tables.read_sweep(), with a row per run, of `arlab simulate` or measured. Its columns:
topology, ranks, algorithm, codec, dtype, bytes (payload per rank), latency_us, algbw_gb_per_s, busbw_gb_per_s;
implementation ("kernel", or "library ..." for a vendor's); optional: inner_codec, sqnr_db (dB), wire_bits_per_element,
latency_us_low and latency_us_high (between which 90 % of measured times should lie).
`highlight` names codecs or algorithms that stand out. All return a matplotlib Figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.style import GREY, HIGHLIGHT, INK, NO_BREAK, handle, microseconds, size_text
from arlab.figures.tables import InputError, plural

LIBRARY = "library"
MOST_TIMES = 2.0  # largest ratio in a panel


def best_of(rows: pd.DataFrame, *by: str) -> pd.DataFrame:
    """The row with the least latency of every group."""
    return rows.loc[rows.groupby(list(by), sort=False)["latency_us"].idxmin()]


def has_interval(rows: pd.DataFrame, column: str) -> bool:
    """Whether it is known between which values most of a column should lie."""
    return {f"{column}_low", f"{column}_high"} <= set(rows) and bool(rows[f"{column}_low"].notna().any())


class Sweep:
    """The rows of a sweep, a name for each machine and series, and how they are drawn."""

    def __init__(self, frame: pd.DataFrame, highlight: Sequence[str] = ()) -> None:
        rows = frame.reset_index(drop=True)
        if "inner_codec" in rows:  # a codec with another one inside groups is a codec of its own
            inner = rows["inner_codec"].fillna("").astype(str)
            rows["codec"] = rows["codec"] + ("+" + inner).where(inner != "", "")
        library = rows["implementation"].astype(str).str.startswith(LIBRARY)
        # A topology with several rank counts stands for several machines.
        several = rows.groupby("topology")["ranks"].transform("nunique") > 1
        with_ranks = rows["topology"] + ", " + rows["ranks"].map("{:g} ranks".format)
        rows["machine"] = rows["topology"].where(~several, with_ranks)
        rows["series"] = rows["codec"].where(~library, LIBRARY)
        methods = rows["algorithm"] + " with " + rows["codec"]
        rows["method"] = methods.where(~library, LIBRARY + ", " + rows["algorithm"])
        self.rows, self.ours, self.library = rows, rows[~library], rows[library]
        self.machines, self.algorithms = list(rows["machine"].unique()), list(rows["algorithm"].unique())
        self.sizes = sorted(rows["bytes"].unique())
        codecs = list(self.ours["codec"].unique())
        self.looks = style.codec_lines(codecs, [name for name in codecs if name in highlight])
        self.looks |= {name: {"color": HIGHLIGHT, "linestyle": "-."} for name in highlight if name in self.algorithms}
        self.looks |= {LIBRARY: {"color": INK, "linestyle": (0, (2, 2))}} if library.any() else {}

    def curves(self, machine: str) -> dict[str, pd.DataFrame]:
        """The fastest run of every series at every size: codecs, highlighted algorithms, the library."""
        picked = {name: self.ours[self.ours[["codec", "algorithm"]].eq(name).any(axis=1)] for name in self.looks}
        picked |= {LIBRARY: self.library} if LIBRARY in picked else {}
        here = {name: each[each["machine"] == machine] for name, each in picked.items()}
        return {name: best_of(each, "bytes").sort_values("bytes") for name, each in here.items() if len(each)}

    def page(
        self, title: str, subtitle: str, notes: Sequence[str], body_in: float, legends: Sequence[Any] = ()
    ) -> Figure:
        """A page with what all figures of a sweep say: series and algorithms (or other legends), provenance."""
        ranks = ", ".join(str(each) for each in sorted(self.rows["ranks"].astype(int).unique()))
        dtypes = self.rows["dtype"].astype(str).unique() if "dtype" in self.rows else ()
        lines = [handle(name, linewidth=2, **look) for name, look in self.looks.items()]
        dots = [handle(n, **style.algorithm_look(n, self.algorithms) | {"color": GREY}) for n in self.algorithms]
        subtitle, source = style.sentence(subtitle, f"{ranks} ranks", *dtypes), style.provenance(self.rows, "file")
        return style.new_page(title, subtitle, notes, source, legends or [lines, dots], body_in)


def draw_sizes(
    sweep: Sweep, title: str, what: str, notes: Sequence[str], column: str, log: bool = True, missing: str = "no data"
) -> Figure:
    """A panel per machine; a line per series through a column of its fastest runs, markers say the algorithm, a band
    lies between its columns _low and _high.

    On a log axis all panels have the same limits, and where lines are compared, a panel below each says how many times
    the least value each has: on an axis of decades lines that are 10 % apart are one. Else each has its own limits,
    from 0. A panel without values says what is `missing`.
    """
    machines = len(sweep.machines)
    across = 1 if style.is_column() else min(machines, 2 if machines in (2, 4) else 3)
    down = math.ceil(machines / across)
    compared = log and len(sweep.looks) > 1
    notes = [
        "Of every codec the fastest algorithm at each size; the marker says which.", *notes,
        f"Below: how many times the least, up to {MOST_TIMES:g}." if compared else "",
    ]  # fmt: skip
    tall = 1.7 if style.is_column() else 2.4
    heights_in = [tall, 0.75 * tall][: 1 + compared]
    figure = sweep.page(title, f"{what} over the payload per rank", notes, down * sum(heights_in))
    grid = figure.subplots(down * len(heights_in), across, squeeze=False, sharex=True, height_ratios=heights_in * down)
    rows = [grid[first :: len(heights_in)] for first in range(len(heights_in))]
    curves = {machine: sweep.curves(machine) for machine in sweep.machines}
    for axes, machine in zip(rows[0].flat, sweep.machines):
        axes.grid()
        axes.set_title(machine)
        draw_series(sweep, axes, curves[machine], column)
        if not any(np.isfinite(line.get_ydata()).any() for line in axes.lines):
            axes.text(0.5, 0.5, missing, transform=axes.transAxes, color=GREY, ha="center", va="center")
        axes.set_xscale("log", base=2)
        ticks = list(sweep.sizes)[:: max(1, math.ceil(len(sweep.sizes) / 4))]
        axes.set_xticks(ticks, [size_text(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
    for axes, machine in zip(rows[-1].flat, sweep.machines) if compared else ():
        axes.grid()
        draw_times(sweep, axes, curves[machine], column)
    for index in range(machines, down * across):
        for panels in rows:
            panels.flat[index].set_axis_off()
        rows[-1].flat[index - across].tick_params(labelbottom=True)
    share_heights(list(rows[0].flat[:machines]), across, log)
    for panels, label in zip(rows, (what, "times the least")):
        for axes in panels[:, 0]:
            axes.set_ylabel(label)
    return figure


def draw_series(sweep: Sweep, axes: Axes, curves: dict[str, pd.DataFrame], column: str) -> None:
    """A machine's lines with their markers and bands."""
    for name, runs in curves.items():
        look = sweep.looks[name]
        heights = runs[column].astype(float)
        strong = look["color"] == HIGHLIGHT
        if has_interval(runs, column):
            low, high = (pd.to_numeric(runs[f"{column}_{edge}"]).astype(float) for edge in ("low", "high"))
            axes.fill_between(runs["bytes"], low, high, color=look["color"], alpha=0.12, linewidth=0, zorder=1)
        axes.plot(runs["bytes"], heights, zorder=4 if strong else 2, **look)
        for algorithm, size, height in zip(runs["algorithm"], runs["bytes"], heights):
            marker = style.algorithm_look(algorithm, sweep.algorithms)["marker"]
            axes.plot(size, height, marker=marker, color=look["color"], zorder=5 if strong else 3)


def draw_times(sweep: Sweep, axes: Axes, curves: dict[str, pd.DataFrame], column: str) -> None:
    """A machine's lines over the least of them at each size."""
    times = pd.DataFrame({name: runs.set_index("bytes")[column].astype(float) for name, runs in curves.items()})
    times = times.div(times.min(axis=1), axis=0)
    for name in curves:
        known = times[name].dropna()
        axes.plot(known.index, known, zorder=4 if sweep.looks[name]["color"] == HIGHLIGHT else 2, **sweep.looks[name])
    high = min(MOST_TIMES, max(1.1, times.max().max()))
    axes.set_ylim(1 - 0.06 * (high - 1), high + 0.06 * (high - 1))


def share_heights(panels: Sequence[Axes], across: int, log: bool) -> None:
    """On a log axis one scale for all, with numbers at the left only; else each panel begins at 0."""
    drawn = [height for axes in panels for line in axes.lines for height in line.get_ydata()]
    for axes in panels[1:] if log else ():
        axes.sharey(panels[0])
    for number, axes in enumerate(panels):
        if log:
            style.log_axis(axes.yaxis, drawn)
            axes.tick_params(labelleft=number % across == 0)
        else:
            axes.set_ylim(bottom=0)


@style.drawn
def latency_over_size(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Latency (µs) against the payload per rank (bytes), both on log scales, a panel per topology."""
    sweep = Sweep(frame, highlight)
    small = sweep.rows[sweep.rows["bytes"] == sweep.sizes[0]]
    low = small.loc[small["latency_us"].idxmin()]
    best = best_of(sweep.rows[sweep.rows["bytes"] == sweep.sizes[-1]], "machine")
    first, last = best.loc[best["latency_us"].idxmin()], best.loc[best["latency_us"].idxmax()]
    title = f"{size_text(sweep.sizes[-1])} takes {microseconds(first['latency_us'])} on {first['machine']}"
    title += f", {microseconds(last['latency_us'])} on {last['machine']}" if len(best) > 1 else f": {first['method']}"
    at_best = f"{size_text(low['bytes'])} takes {microseconds(low['latency_us'])} at best"
    notes = [f"{at_best} ({low['method']}, {low['machine']})."] * (len(sweep.sizes) > 1)
    notes += ["In a band 90 % of measured times should lie."] * has_interval(sweep.rows, "latency_us")
    return draw_sizes(sweep, title, "latency (µs)", notes, "latency_us")


@style.drawn
def bandwidth_over_size(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Bus bandwidth (GB/s) of the uncompressed payload against the payload per rank, a panel per topology."""
    sweep = Sweep(frame, highlight)
    top = sweep.rows.loc[sweep.rows["busbw_gb_per_s"].idxmax()]
    title = f"Up to {top['busbw_gb_per_s']:.4g}{NO_BREAK}GB/s bus bandwidth: {top['method']} on {top['machine']}"
    notes = [
        f"The highest is that of {size_text(top['bytes'])}.",
        "Bus bandwidth counts the payload before compression, so it can exceed that of the links.",
    ]
    return draw_sizes(sweep, title, "bus bandwidth (GB/s)", notes, "busbw_gb_per_s", log=False)


@style.drawn
def speedup_over_library(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """How many times as fast as the vendor's library each codec is, at its best, against the payload per rank.

    The library is its fastest row at each size: rows whose implementation begins with "library".
    """
    sweep = Sweep(frame, highlight)
    if sweep.library.empty:
        raise InputError("no row has an implementation that begins with 'library', so there is nothing to compare with")
    case = ["machine", "bytes"]
    plain = sweep.library.groupby(case)["latency_us"].min().rename("plain")
    sweep.library, sweep.ours = (
        rows.assign(speedup=rows.join(plain, on=case)["plain"] / rows["latency_us"])
        for rows in (sweep.library, sweep.ours)
    )
    kernels = best_of(sweep.ours, *case, "codec").dropna(subset="speedup")
    if kernels.empty:
        raise InputError("the rows of the library have no topology and size in common with the others")
    top = kernels.loc[kernels["speedup"].idxmax()]
    faster = kernels.groupby(case)["speedup"].max() > 1
    title = f"Up to {top['speedup']:.2g} times as fast as the library: {top['method']}"
    notes = [
        f"The most is on {top['machine']}, {size_text(top['bytes'])}.", "Above 1: faster than the library.",
        f"A kernel is faster in {faster.sum()} of {plural(len(faster), 'case')}.",
    ]  # fmt: skip
    return draw_sizes(sweep, title, "times as fast as the library", notes, "speedup",
                      missing="no library is modelled on this machine")


@style.drawn
def best_method_by_size(
    frame: pd.DataFrame, highlight: Sequence[str] = (), least_sqnr_db: float | None = None
) -> Figure:
    """Draws the fastest algorithm and codec at each size on each topology, as bands coloured by codec.

    With `least_sqnr_db` only rows with at least this SQNR (dB) take part; rows without an SQNR do not.
    """
    sweep = Sweep(frame, highlight)
    allowed, limit = sweep.rows, "No limit on the error"
    if least_sqnr_db is not None:
        limit = f"SQNR at least {least_sqnr_db:g} dB"
        allowed = allowed[allowed["sqnr_db"].astype(float) >= least_sqnr_db]
        if allowed.empty:
            raise InputError(f"no row has an SQNR of at least {least_sqnr_db:g} dB")
    best = best_of(allowed, "machine", "bytes")
    wins = best["method"].value_counts()
    title = f"{wins.index[0]} is fastest in {wins.iloc[0]} of {plural(len(best), 'case')}"
    notes = ["A band is a method that stays the fastest; its colour is that of the codec."]
    there = {name: look["color"] for name, look in sweep.looks.items() if name in set(best["series"])}
    winners = [handle(name, color=colour, marker="s") for name, colour in there.items()]
    height = 0.55 * len(sweep.machines) + 0.6
    figure = sweep.page(title, f"Fastest method by size of the payload. {limit}", notes, height, [winners])
    axes = figure.subplots()
    axes.set(xlim=(-0.5, len(sweep.sizes) - 0.5), ylim=(len(sweep.machines) - 0.5, -0.5))
    axes.set_yticks(range(len(sweep.machines)), sweep.machines)
    step = math.ceil(len(sweep.sizes) / (4 if style.is_column() else 12))
    axes.set_xticks(range(0, len(sweep.sizes), step), [size_text(size) for size in sweep.sizes[::step]])
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    style.settle(figure)
    cell_in = axes.get_window_extent().width / figure.dpi / len(sweep.sizes)
    size = style.sizes("font.size")[0] * 0.833
    for y, machine in enumerate(sweep.machines):
        runs = best[best["machine"] == machine].sort_values("bytes")
        place = runs["bytes"].map(sweep.sizes.index)
        changes = (runs["method"] != runs["method"].shift()) | (place.diff() != 1)
        for _, band in runs.assign(place=place).groupby(changes.cumsum()):
            first = band.iloc[0]
            colour = HIGHLIGHT if first["algorithm"] in highlight else sweep.looks[first["series"]]["color"]
            look = {"height": 0.8, "color": colour, "edgecolor": "white", "linewidth": 1.5}
            axes.barh(y, len(band), left=first["place"] - 0.5, **look)
            words = [style.fitted(first[name], size, len(band) * cell_in - 0.06) for name in ("series", "algorithm")]
            if min(map(len, words)) >= 3:
                text = axes.text(band["place"].mean(), y, "\n".join(words), ha="center", va="center", size=size)
                text.set(color=style.ink_on(colour), linespacing=1.1)
    return figure


@style.drawn
def machines_heat_map(
    frame: pd.DataFrame, highlight: Sequence[str] = (), method: tuple[str, str] | None = None
) -> Figure:
    """Topologies by sizes, colour and number: the least latency (µs) of all rows, or of method (algorithm, codec)."""
    sweep = Sweep(frame, highlight)
    rows, what = sweep.rows, "the fastest method"
    if method is not None:
        rows = sweep.ours[(sweep.ours[["algorithm", "codec"]] == list(method)).all(axis=1)]
        what = " with ".join(method)
        if rows.empty:
            raise InputError(f"no row has algorithm {method[0]} with codec {method[1]}")
    table = rows.pivot_table(index="machine", columns="bytes", values="latency_us", aggfunc="min", sort=True)
    table = table.reindex(index=rows["machine"].unique())
    order = table.iloc[:, -1].dropna().sort_values()
    said = f"{size_text(order.name)}: {order.index[0]} takes {microseconds(order.iloc[0])}"
    if len(order) > 1:
        said += f", {order.index[-1]} {order.iloc[-1] / order.iloc[0]:.2g} times as long"
    figure = sweep.page(said, f"Latency (µs) of {what}", [], 0.4 * len(table) + 0.8, [[]])
    table.columns = pd.Index([size_text(size) for size in table.columns], name="payload per rank")
    text = lambda us: "–" if math.isnan(us) else f"{us:.3g}" if us < 1000 else f"{us:.0f}"  # noqa: E731
    style.heat_map(figure, {"": table}, "latency (µs), lower is better", text, log=True)
    return figure


DRAWN = (latency_over_size, bandwidth_over_size, speedup_over_library, best_method_by_size, machines_heat_map)
FIGURES = {each.__name__: each for each in DRAWN}


def figures_of(frame: pd.DataFrame) -> dict[str, Callable[..., Figure]]:
    """The figures that a sweep has; without rows of a library there is no speed-up over it."""
    library = frame["implementation"].str.startswith(LIBRARY).any()
    return {name: draw for name, draw in FIGURES.items() if library or draw is not speedup_over_library}
