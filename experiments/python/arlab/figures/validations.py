"""The simulator beside tables of `arlab validate`: simulated against published or measured times, errors by size."""

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
SPREAD = 0.8  # width of the dots of one size, in powers of two
LOOKS = [{"color": colour, "marker": marker} for marker in ("o", "s", "^") for colour in PALETTE]
DOTS = {"linestyle": "", "markersize": 3, "markeredgewidth": 0.2}
RINGS = {"linestyle": "", "markerfacecolor": "none", "markeredgewidth": 0.6, "markersize": 4, "zorder": 1}


def read_validation(path: str | Path) -> dict[str, Any]:
    """The JSON object of `arlab validate --format json`."""
    data = read_report(path, "arlab.validate", "of arlab validate")
    for name in ("measurements", "predictions"):
        if not isinstance(data.get(name), list):
            raise InputError(f"{path}: holds no {name}, as `validate --format json` prints them")
    return data


def latencies(cells: list[dict[str, Any]]) -> pd.DataFrame:
    """A row per cell: machine, bytes, its error in percent as `shown`, and `table` and `model` as latencies in µs."""
    frame = pd.DataFrame(cells, columns=["topology", "bytes", "quantity", "value", "simulated", "error_percent"])
    is_rate = frame["quantity"] == "algbw_gb_per_s"
    for name, column in (("table", "value"), ("model", "simulated")):
        frame[name] = frame[column].where(~is_rate, frame["bytes"] / (frame[column] * 1e3)).astype(float)
    shown = frame["error_percent"].clip(-MOST_PERCENT, MOST_PERCENT)
    return frame.assign(machine=frame["topology"].str.rsplit("-", n=1).str[0], shown=shown)


@style.drawn
def validation(data: dict[str, Any]) -> Figure:
    """Left, a dot per cell: latency of the table against the simulated one (µs), with all cells fitted; right its error
    (%) over the payload, and as rings what fits predict that do not see the cell. Beyond 30 % dots lie on the edge.

    `data` is the JSON object of `arlab validate`.
    """
    fitted, held_out = latencies(data["measurements"]), latencies(data["predictions"])
    machines = list(fitted["machine"].unique())
    looks = {name: LOOKS[i % len(LOOKS)] for i, name in enumerate(machines)}
    # Those of a size stand side by side.
    beside = {name: 2 ** (SPREAD * ((i + 0.5) / len(machines) - 0.5)) for i, name in enumerate(machines)}
    legend = [style.handle(name, **looks[name]) for name in machines]
    if len(held_out):
        ring = {"color": GREY, "marker": "o", "markerfacecolor": "none", "markeredgecolor": GREY}
        legend.append(style.handle("held out: not seen by the fit", **ring))
    predicted = data.get("held_out_mape_percent")
    elsewhere = "" if predicted is None else f"; {predicted:.1f} % off where it was not fitted"
    figure = style.new_page(
        f"The simulator is {data['mape_percent']:.1f} % off on average over {data['cells']} cells",
        f"Latencies of tables, simulated with the machine files as they are{elsewhere}", [], data.get("provenance", ""),
        [legend], 4.4,
    )  # fmt: skip
    left, right = figure.subplots(1, 2)
    both = fitted[["table", "model"]].to_numpy()
    ends = np.array([np.nanmin(both) * 0.8, np.nanmax(both) * 1.25])
    left.plot(ends, ends, color=INK, linewidth=1)
    for factor in (0.9, 1.1):
        left.plot(ends, ends * factor, color=GREY, linewidth=0.7, linestyle="--")
    for name, cells in fitted.groupby("machine", sort=False):
        left.plot(cells["table"], cells["model"], **looks[name], **DOTS)
        right.plot(cells["bytes"] * beside[name], cells["shown"], **looks[name], **DOTS)
    for name, cells in held_out.groupby("machine", sort=False):
        look = {"marker": looks[name]["marker"], "markeredgecolor": looks[name]["color"]}
        right.plot(cells["bytes"] * beside[name], cells["shown"], **look, **RINGS)
    for axis in (left.xaxis, left.yaxis):
        style.log_axis(axis, ends)
    left.set(xlim=ends, ylim=ends, xlabel="latency of the table, µs (published, measured)", ylabel="simulated, µs")
    right.set_xscale("log", base=2)
    low, high = int(fitted["bytes"].min()), int(fitted["bytes"].max())
    ticks = [size for size in (1 << power for power in range(10, 40, 3)) if low <= size <= high] or [low]
    right.set_xticks(ticks, [style.size_text(size) for size in ticks])
    right.minorticks_off()
    right.axhline(0, color=INK, linewidth=1)
    limits = (-MOST_PERCENT * 1.05, MOST_PERCENT * 1.05)
    right.set(ylim=limits, xlabel="payload of a rank", ylabel="simulated beside the table, %")
    for axes in (left, right):
        axes.grid()
    return figure
