"""A selection of `arlab select`: error against latency of all candidates at one size, the Pareto front, the budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.style import GREY, INK
from arlab.figures.tables import InputError, read_report

EXCLUDED = "#C8C8C8"
INFINITE = [np.inf, -np.inf, "inf", "-inf"]  # which have no place on an axis; JSON has them as text
METHOD = ["algorithm", "codec", "implementation"]


def read_selection(path: Path) -> dict[str, Any]:
    """The JSON object of a selection with its candidates."""
    data = read_report(path, "arlab.select", "of arlab select")
    if not isinstance(data.get("candidates"), list):
        raise InputError(
            f"{path}: holds the selection without its candidates, as `select --out` writes it; "
            "`select --plot` draws the picture"
        )
    return data


@style.drawn
def selection(data: dict[str, Any]) -> Figure:
    """A dot per candidate: SQNR of the worst tensor (dB), by `metric`, or wire bits where none was measured, against latency (µs).

    `data` is the JSON object of `arlab select` with `candidates`. The front is a line, what is on it has a name; the
    budget is a line, what it excludes is grey, what it leaves as the fastest has a ring.
    """
    every = pd.DataFrame(data["candidates"]).replace(INFINITE, np.nan)
    metric = data.get("metric") or "sqnr_db"
    measured = bool(every[metric].notna().any())
    quality = metric if measured else "wire_bits_per_element"
    shown = every.dropna(subset=[quality]).astype({quality: float})
    least, most_bits = data["min_sqnr_db"], data["max_wire_bits"]
    fits = pd.Series(True, shown.index)
    if least is not None:
        fits &= (shown[metric].astype(float) >= least) if measured else False
    if most_bits is not None:
        fits &= shown["wire_bits_per_element"] <= most_bits
    legend = []
    size = style.size_text(data["bytes"])
    algorithms = list(shown["algorithm"].unique())
    for name, kind in dict.fromkeys(zip(shown["algorithm"], shown["implementation"])):
        look = look_of(name, kind, algorithms)
        legend.append(style.handle(f"{name}, library" if kind == "library" else name, **look))
    legend.append(style.handle("Pareto front", color=style.PALE, linewidth=2.5, linestyle="-"))
    ring = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 1.4}
    best = shown[(shown[METHOD] == [data[name] for name in METHOD]).all(axis=1)].head(1)
    bounded = least is not None or most_bits is not None
    legend += [style.handle("fastest" + " within the budget" * bounded, markersize=13, **ring)] if len(best) else []
    legend += [style.handle(f"budget: {least:g} dB", color=GREY, linestyle="--")] if least is not None else []
    if bounded:
        legend.append(style.handle("outside of the budget", color=EXCLUDED, marker="o"))
    figure = style.new_page(
        title(data, every, size), f"Error: {data['error_measured_on']}", [], data.get("provenance", ""), [legend], 4.4,
    )  # fmt: skip
    axes = figure.subplots()
    axes.grid()
    for (name, kind, inside), dots in shown.groupby(["algorithm", "implementation", fits], sort=False):
        look = look_of(name, kind, algorithms) | ({} if inside else {"color": EXCLUDED})
        axes.plot(dots["latency_us"], dots[quality], linestyle="", zorder=4 if inside else 2, **look)
    front = pd.DataFrame(data["pareto"]).replace(INFINITE, np.nan).dropna(subset=[quality])
    axes.plot(best["latency_us"], best[quality], linestyle="", markersize=15, zorder=5, **ring)
    if least is not None:
        axes.axhline(least, color=GREY, linewidth=1, linestyle="--")
    names = list(front["codec"])
    style.log_axis(axes.xaxis, shown["latency_us"])
    style.room_for_names(axes, shown["latency_us"], names[:4], 1.0)
    axes.margins(y=0.08)
    if len(front):
        low, high = axes.get_ylim()[0], axes.get_xlim()[1]
        style.draw_front(axes, list(front["latency_us"]), list(front[quality].astype(float)), low, high)
        axes.set(ylim=(low, None), xlim=(None, high))
    axes.set_xlabel(f"latency at {size}, µs (simulated)")
    of_tokens = "SQNR of the median token, worst tensor, dB (exact)"
    of_tensors = "SQNR of the worst tensor, dB (exact)"
    error = of_tokens if metric == "token_sqnr_db" else of_tensors
    axes.set_ylabel(error if measured else "wire bits per element (exact)")
    places = zip(front["latency_us"], front[quality].astype(float), names)
    style.label_points(axes, [(x, y, name, INK, "left") for x, y, name in places])
    return figure


def title(data: dict[str, Any], candidates: pd.DataFrame, size: str) -> str:
    """What is the fastest, within which budget, and how much it gains over the fastest that is not compressed."""
    least, most_bits = data["min_sqnr_db"], data["max_wire_bits"]
    bounds = [f"{least:g} dB and more" if least is not None else "", f"up to {most_bits:g} bits" if most_bits is not None else ""]
    within = " and ".join(bound for bound in bounds if bound)
    plain = candidates[candidates["codec"].isin(style.UNCOMPRESSED)]
    gain = ""
    if len(plain) and data["codec"] not in style.UNCOMPRESSED:
        fastest = plain.loc[plain["latency_us"].astype(float).idxmin()]
        times = float(fastest["latency_us"]) / data["latency_us"]
        gain = f", {times:.2g} times as fast as {fastest['codec']} with {fastest['algorithm']}"
    return (
        f"{data['topology']}, {size}, simulated: {data['algorithm']} with {data['codec']} is the fastest"
        f"{f' of {within}' if within else ''}, {style.microseconds(data['latency_us'])}{gain}"
    )


def look_of(algorithm: str, implementation: str, among: list[str]) -> dict[str, Any]:
    """Colour and marker: of the algorithm, or those of vendors' libraries."""
    return {"color": INK, "marker": "X"} if implementation == "library" else style.algorithm_look(algorithm, among)
