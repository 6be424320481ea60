"""The simulator beside tables of `arlab validate`: simulated against published or measured times, and errors by size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.style import GREY, INK, PALETTE
from arlab.figures.tables import InputError, read_report

MOST_PERCENT = 30.0
MARKERS = ("o", "s", "^")
SPREAD = 0.8  # of the dots of one size, in powers of two


def read_validation(path: Path) -> dict[str, Any]:
    """The JSON object of `arlab validate --format json`."""
    data = read_report(path, "arlab.validate", "of arlab validate")
    for name in ("measurements", "predictions"):
        if not isinstance(data.get(name), list):
            raise InputError(f"{path}: holds no {name}, as `validate --format json` prints them")
    return data


def latencies(cells: list[dict[str, Any]]) -> pd.DataFrame:
    """A row per cell: machine, bytes, error_percent, and `table` and `simulated` as latencies in µs."""
    frame = pd.DataFrame(cells, columns=["topology", "bytes", "quantity", "value", "simulated", "error_percent"])
    is_rate = frame["quantity"] == "algbw_gb_per_s"
    for name, column in (("table", "value"), ("model", "simulated")):
        frame[name] = frame[column].where(~is_rate, frame["bytes"] / (frame[column] * 1e3)).astype(float)
    frame["machine"] = frame["topology"].str.rsplit("-", n=1).str[0]
    return frame


@style.drawn
def validation(data: dict[str, Any]) -> Figure:
    """Left, a dot per cell: latency of the table against the simulated one (µs), with all cells fitted; right its error (%) over
    the payload, and as rings what fits predict that do not see the cell. Beyond 30 % dots lie on the edge.

    `data` is the JSON object of `arlab validate`.
    """
    fitted, held_out = latencies(data["measurements"]), latencies(data["predictions"])
    machines = list(dict.fromkeys(fitted["machine"]))
    looks = {name: {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i // len(PALETTE) % len(MARKERS)]} for i, name in enumerate(machines)}
    beside = {name: 2 ** (SPREAD * ((i + 0.5) / len(machines) - 0.5)) for i, name in enumerate(machines)}  # those of a size side by side
    legend = [style.handle(name, **looks[name]) for name in machines]
    if len(held_out):
        legend.append(style.handle("held out: not seen by the fit", color=GREY, marker="o", markerfacecolor="none", markeredgecolor=GREY))
    predicted = data.get("held_out_mape_percent")
    elsewhere = "" if predicted is None else f", {predicted:.1f} % where it was not fitted"
    figure = style.new_page(
        f"The simulator is {data['mape_percent']:.1f} % off on average over {data['cells']} cells{elsewhere}",
        "Latencies of tables, simulated with the machine files as they are", [], data.get("provenance", ""), [legend], 4.4,
    )  # fmt: skip
    left, right = figure.subplots(1, 2)
    ends = np.array([fitted[["table", "model"]].min().min() * 0.8, fitted[["table", "model"]].max().max() * 1.25])
    left.plot(ends, ends, color=INK, linewidth=1)
    for factor in (0.9, 1.1):
        left.plot(ends, ends * factor, color=GREY, linewidth=0.7, linestyle="--")
    dots = {"linestyle": "", "markersize": 3, "markeredgewidth": 0.2}
    rings = {"linestyle": "", "markerfacecolor": "none", "markeredgewidth": 0.6, "markersize": 4}
    for name, cells in fitted.groupby("machine", sort=False):
        left.plot(cells["table"], cells["model"], **looks[name], **dots)
        errors = cells["error_percent"].clip(-MOST_PERCENT, MOST_PERCENT)
        right.plot(cells["bytes"] * beside[name], errors, **looks[name], **dots)
    for name, cells in held_out.groupby("machine", sort=False):
        errors = cells["error_percent"].clip(-MOST_PERCENT, MOST_PERCENT)
        look = {"marker": looks[name]["marker"], "markeredgecolor": looks[name]["color"]}
        right.plot(cells["bytes"] * beside[name], errors, zorder=1, **look, **rings)
    for axis in (left.xaxis, left.yaxis):
        style.log_axis(axis, ends)
    left.set(xlim=ends, ylim=ends, xlabel="latency of the table, µs (published, measured)", ylabel="simulated, µs")
    right.set_xscale("log", base=2)
    sizes = sorted({int(size) for size in fitted["bytes"]})
    ticks = [size for size in (1 << power for power in range(10, 40, 3)) if sizes[0] <= size <= sizes[-1]] or sizes[:1]
    right.set_xticks(ticks, [style.size_text(size) for size in ticks])
    right.minorticks_off()
    right.axhline(0, color=INK, linewidth=1)
    right.set(ylim=(-MOST_PERCENT * 1.05, MOST_PERCENT * 1.05), xlabel="payload of a rank", ylabel="simulated beside the table, %")
    for axes in (left, right):
        axes.grid()
    return figure
