"""A selection of `arlab select`: error against latency of all candidates at one size, the Pareto front, the budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.style import GREY, INK
from arlab.figures.tables import InputError, read_report

EXCLUDED = "#C8C8C8"
RING = {"linestyle": "", "marker": "o", "markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 1.4}
ERRORS = {
    "token_sqnr_db": "SQNR of the median token, worst tensor, dB (exact)",
    "sqnr_db": "SQNR of the worst tensor, dB (exact)",
    "wire_bits_per_element": "wire bits per element (exact)",
}


def read_selection(path: str | Path) -> dict[str, Any]:
    """The JSON object of a selection with its candidates."""
    data = read_report(path, "arlab.select", "of arlab select")
    if not isinstance(data.get("candidates"), list):
        raise InputError(
            f"{path}: holds the selection without its candidates, as `select --out` writes it; "
            "`select --plot` draws the picture"
        )
    return data


def table_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Candidates. Infinite values have no place on an axis; JSON has them as text."""
    return pd.DataFrame(rows).replace([np.inf, -np.inf, "inf", "-inf"], np.nan)


@style.drawn
def selection(data: dict[str, Any], highlight: Sequence[str] = ()) -> Figure:
    """A dot per candidate: SQNR of the worst tensor (dB), by `metric`, against latency (µs); wire bits without one.

    `data` is the JSON object of `arlab select` with `candidates`. The front is a line, what is on it has a name; the
    budget is a line, what it excludes is grey, what it leaves as the fastest has a ring. Codecs and algorithms that
    `highlight` names have names and a colour of their own.
    """
    highlight = [*highlight, *data.get("highlight", [])]
    every, metric = table_of(data["candidates"]), data.get("metric") or "sqnr_db"
    quality = metric if every[metric].notna().any() else "wire_bits_per_element"
    shown = every.dropna(subset=[quality]).astype({quality: float})
    least, most_bits = data["min_sqnr_db"], data["max_wire_bits"]
    fits = pd.Series(True, shown.index)
    if least is not None:
        fits &= (shown[metric].astype(float) >= least) & (quality == metric)
    if most_bits is not None:
        fits &= shown["wire_bits_per_element"] <= most_bits
    algorithms = list(shown["algorithm"].unique())

    def look_of(algorithm: str, kind: str) -> dict[str, Any]:
        return {"color": INK, "marker": "X"} if kind == "library" else style.algorithm_look(algorithm, algorithms)

    method = ["algorithm", "codec", "implementation"]
    best = shown[(shown[method] == [data[name] for name in method]).all(axis=1)].head(1)
    bounded = least is not None or most_bits is not None
    looks = {  # looks by the legend's text
        **{f"{name}, library" if kind == "library" else name: look_of(name, kind)
           for name, kind in zip(shown["algorithm"], shown["implementation"])},
        "Pareto front": {"color": style.PALE, "linewidth": 2.5, "linestyle": "-"},
        **({"fastest" + " within the budget" * bounded: {"markersize": 13, **RING}} if len(best) else {}),
        **({f"budget: {least:g} dB": {"color": GREY, "linestyle": "--"}} if least is not None else {}),
        **({"outside of the budget": {"color": EXCLUDED, "marker": "o"}} if bounded else {}),
    }  # fmt: skip
    size = style.size_text(data["bytes"])
    figure = style.new_page(
        title(data, every), f"{about(data, size)}. Error: {data['error_measured_on']}", [], data.get("provenance", ""),
        [[style.handle(name, **look) for name, look in looks.items()]], 4.4,
    )  # fmt: skip
    axes = figure.subplots()
    axes.grid()
    for (name, kind, inside), dots in shown.groupby(["algorithm", "implementation", fits], sort=False):
        look = look_of(name, kind) | ({} if inside else {"color": EXCLUDED})
        axes.plot(dots["latency_us"], dots[quality], linestyle="", zorder=4 if inside else 2, **look)
    axes.plot(best["latency_us"], best[quality], markersize=15, zorder=5, **RING)
    if least is not None:
        axes.axhline(least, color=GREY, linewidth=1, linestyle="--")
    front = table_of(data["pareto"]).dropna(subset=[quality]).astype({quality: float})
    places = list(zip(front["latency_us"], front[quality], front["codec"]))
    mine = shown[shown["codec"].isin(highlight) | shown["algorithm"].isin(highlight)]
    for x, y in zip(mine["latency_us"], mine[quality]):
        axes.plot(x, y, linestyle="", zorder=6, color=style.HIGHLIGHT, marker="o")
    axes.margins(y=0.08)
    style.cost_axis(axes, shown["latency_us"], places, 1.0)
    axes.set(xlabel=f"latency at {size}, µs (simulated)", ylabel=ERRORS[quality])
    own = [(x, y, name, style.HIGHLIGHT, "left") for x, y, name in mine[["latency_us", quality, "codec"]].to_numpy()]
    style.label_points(axes, [*((x, y, name, INK, "left") for x, y, name in places if name not in highlight), *own])
    return figure


def about(data: dict[str, Any], size: str) -> str:
    """The case, and its budget."""
    bounds = {"{:g} dB and more": data["min_sqnr_db"], "up to {:g} bits": data["max_wire_bits"]}
    within = " and ".join(form.format(bound) for form, bound in bounds.items() if bound is not None)
    return style.sentence(data["topology"], size, "simulated", within)


def title(data: dict[str, Any], candidates: pd.DataFrame) -> str:
    """Returns the fastest candidate, and how much it gains over the fastest that is not compressed."""
    said = f"{data['algorithm']} with {data['codec']} is fastest, {style.microseconds(data['latency_us'])}"
    plain = candidates[candidates["codec"].isin(style.UNCOMPRESSED)]
    if plain.empty or data["codec"] in style.UNCOMPRESSED:
        return said
    fastest = plain.loc[plain["latency_us"].astype(float).idxmin()]
    return f"{said}: {float(fastest['latency_us']) / data['latency_us']:.2g} times as fast as {fastest['codec']}"
