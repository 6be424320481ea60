#!/usr/bin/env python3
"""Draws what `arlab select --plot` has found: `plot_select.py SELECTION.json PICTURE.png|.svg`.

A dot per candidate: error (SQNR, or wire bits where nothing was measured) against simulated
latency at one size, a marker per algorithm; the Pareto front is a line, its dots have names. The
budget is a line, what it excludes is grey.

Equal files give equal bytes. Exit code: 0, or 2 for bad usage or input.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.ticker
import picture
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from plot_study import GREY, INK, InputError
from plot_timeline import size_text

EXCLUDED = "#C8C8C8"
# Okabe and Ito's palette; an algorithm has a colour and a marker.
STYLES = {
    "one_shot": ("#0072B2", "o"),
    "two_shot": ("#D55E00", "s"),
    "ring": ("#009E73", "D"),
    "hierarchical": ("#CC79A7", "^"),
    "hierarchical_pipelined": ("#E69F00", "v"),
    "halving_doubling": ("#56B4E9", "P"),
}
OTHER_STYLE = ("#882255", "*")
DPI = 150
STYLE: dict[str, Any] = {
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "svg.hashsalt": "arlab",
}


def label_front(axes: Axes, front: list[tuple[float, float, str]]) -> None:
    """Names beside the dots, left out where they would cover the name before."""
    axes.figure.canvas.draw()
    last_y = -1e9
    for x, y, name in sorted(front, key=lambda point: point[1]):
        pixel_y = float(axes.transData.transform((x, y))[1])
        if pixel_y - last_y < 17:
            continue
        last_y = pixel_y
        text = axes.annotate(name, (x, y), xytext=(-7, 3), textcoords="offset points", size=8)
        text.set(ha="right", va="bottom", zorder=6)
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def draw(selection: dict[str, Any]) -> Figure:
    """The whole picture."""
    measured = any(each["sqnr_db"] is not None for each in selection["candidates"])
    quality = "sqnr_db" if measured else "wire_bits_per_element"
    shown = [each for each in selection["candidates"] if each[quality] is not None]
    least, most_bits = selection["min_sqnr_db"], selection["max_wire_bits"]
    figure = Figure(figsize=(1600 / DPI, 1000 / DPI), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.075, 0.11, 0.7, 0.75))
    axes.set_xscale("log")
    labelled: set[str] = set()
    for each in shown:
        colour, marker = STYLES.get(each["algorithm"], OTHER_STYLE)
        library = each["implementation"] == "library"
        name = f"{each['algorithm']}, library" if library else each["algorithm"]
        allowed = (least is None or (measured and each["sqnr_db"] >= least)) and (
            most_bits is None or each["wire_bits_per_element"] <= most_bits
        )
        axes.plot(
            [each["latency_us"]],
            [each[quality]],
            marker="X" if library else marker,
            color=INK if library else colour if allowed else EXCLUDED,
            markersize=9 if library else 6.5,
            linestyle="",
            markeredgecolor="white",
            markeredgewidth=0.5,
            zorder=4 if allowed else 2,
        )
        if name not in labelled:
            labelled.add(name)
            axes.plot(
                [], [], marker="X" if library else marker, color=INK if library else colour,
                linestyle="", markersize=7, label=name,
            )  # fmt: skip
    front = [
        (each["latency_us"], each[quality], each["codec"])
        for each in selection["pareto"]
        if each[quality] is not None
    ]
    axes.plot(
        [x for x, _, _ in front], [y for _, y, _ in front], color=INK, linewidth=1, zorder=3,
        label="Pareto front",
    )  # fmt: skip
    names = ("algorithm", "codec", "implementation")
    best_dot = next(
        (e for e in shown if all(e[name] == selection[name] for name in names)), None
    )
    if best_dot is not None:
        axes.plot(
            [best_dot["latency_us"]], [best_dot[quality]], marker="o", markersize=15,
            markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.4, linestyle="",
            zorder=5, label="fastest within the budget",
        )  # fmt: skip
    if least is not None:
        axes.axhline(least, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot([], [], color=GREY, linestyle=(0, (4, 3)), label=f"budget: {least:g} dB")
    if least is not None or most_bits is not None:
        axes.plot(
            [], [], marker="o", color=EXCLUDED, linestyle="", label="outside of the budget"
        )
    slowest = max(each["latency_us"] for each in shown)
    fastest = min(each["latency_us"] for each in shown)
    room = max(slowest / fastest, 2) ** 0.12  # for the names at the left
    axes.set_xlim(fastest / room, slowest * room**0.4)
    label_front(axes, front)
    axes.set_xlabel(f"latency at {size_text(selection['bytes'])}, µs (simulated)")
    axes.set_ylabel(
        "SQNR of the worst tensor, dB (exact)" if measured else "wire bits per element (exact)"
    )
    axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    best = f"{selection['algorithm']} with {selection['codec']}"
    figure.text(
        0.02,
        0.94,
        f"{selection['topology']}, {size_text(selection['bytes'])}: {best} takes "
        f"{selection['latency_us']:.4g} µs, simulated",
        size=13,
        weight="bold",
    )
    figure.text(
        0.02, 0.905, f"Error: {selection['error_measured_on']}", size=9, color=GREY
    )
    figure.legend(loc="upper left", bbox_to_anchor=(0.785, 0.87), frameon=False, fontsize=9)
    return figure


def plot(source: Path, path: Path) -> None:
    """Reads, draws, writes."""
    selection = picture.read_report(source, "arlab.select", "select")
    if not isinstance(selection.get("candidates"), list):
        raise InputError(
            f"{source}: holds the selection without its candidates, as `select --out` writes it; "
            "`select --plot` draws the picture"
        )
    picture.write_picture(path, STYLE, lambda: draw(selection))


def main() -> int:
    """The command line."""
    return picture.run(
        "Draws a selection of `arlab select`.", "SELECTION.json", "PICTURE.png|.svg", plot
    )


if __name__ == "__main__":
    sys.exit(main())
