"""Figures of whole models: at which speed of the links a codec pays, and what it does to what the model says.

Each takes a DataFrame with a row per run. For times, as the study model_time writes them, the columns are model, phase
(prefill, decode), codec, link_gb_per_s (of a rank, one direction, 10^9 bytes/s), time_us and communication_share.
Speed-ups are over the uncompressed codec of the same model, phase and link. All return a matplotlib Figure.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.tables import InputError, read_text

COLUMNS = ("model", "phase", "codec", "link_gb_per_s", "time_us", "communication_share")
QUALITY = ("ranks", "algorithm", "codec", "dtype", "token_sqnr_db", "mean_kl")
MODERATE_KL = 0.1  # nats: what titles call a codec that can be used


def read_model_times(path: Path | str) -> pd.DataFrame:
    """A CSV of such rows; `#` begins a comment, of which `# provenance:` goes into attrs. Raises InputError."""
    text = read_text(path)[0]
    frame = pd.read_csv(io.StringIO(text), comment="#")
    for name in COLUMNS:
        if name not in frame:
            raise InputError(f"{path} has no column {name}; needed are {', '.join(COLUMNS)}")
    notes = [line.removeprefix("# provenance: ") for line in text.splitlines() if line.startswith("# provenance: ")]
    frame.attrs["provenance"] = " ".join(notes)
    return frame


def speedups(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows, with the speedup over the uncompressed one of the same model, phase and link. Raises InputError."""
    keys = ["model", "phase", "link_gb_per_s"]
    plain = frame[frame["codec"].isin(style.UNCOMPRESSED)].groupby(keys)["time_us"].min()
    if plain.empty:
        names = ", ".join(style.UNCOMPRESSED)
        raise InputError(f"no row has one of the codecs {names}, over which a speed-up could be")
    rows = frame.join(plain.rename("plain_us"), on=keys, how="inner").reset_index(drop=True)
    return rows.assign(speedup=rows["plain_us"] / rows["time_us"])


def pays_below(frame: pd.DataFrame, least: float = 1.0) -> pd.DataFrame:
    """The fastest link (GB/s) at which speed-ups are above `least`: a row per model and phase, a column per codec.

    Between two links of the sweep it is interpolated, both on log scales; inf where the codec pays on the fastest, 0
    where it pays on none.
    """
    rows = speedups(frame)
    rows = rows[~rows["codec"].isin(style.UNCOMPRESSED)]

    def last_link(runs: pd.DataFrame) -> float:
        runs = runs.sort_values("link_gb_per_s")
        links, logs = runs["link_gb_per_s"].to_numpy(), np.log(runs["speedup"].to_numpy() / least)
        paying = np.flatnonzero(logs > 0)
        if not len(paying):
            return 0.0
        i = paying[-1]
        if i == len(logs) - 1:
            return math.inf
        return links[i] * (links[i + 1] / links[i]) ** (logs[i] / (logs[i] - logs[i + 1]))

    found = {names: last_link(runs) for names, runs in rows.groupby(["model", "phase", "codec"], sort=False)}
    places = list(dict.fromkeys((model, phase) for model, phase, _ in found))
    return pd.Series(found).unstack().reindex(index=places, columns=rows["codec"].unique())


@style.drawn
def speedup_over_link(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Speed-up of each codec over the uncompressed one, over the bandwidth of links; a panel per model and phase."""
    rows = speedups(frame)
    compressed = rows[~rows["codec"].isin(style.UNCOMPRESSED)]
    looks = style.codec_lines(list(compressed["codec"].unique()), highlight)
    places = rows.groupby(["phase", "model"], sort=False)
    top = rows.loc[rows["speedup"].idxmax()]
    title = f"Up to {top['speedup']:.2g} times as fast on links of {top['link_gb_per_s']:.3g}{style.NO_BREAK}GB/s"
    title += f": {top['codec']}"
    notes = [
        f"The most is that of {top['model']}, {top['phase']}.",
        "Below 1 the codec takes longer than the uncompressed values.", "Of every codec the fastest algorithm.",
    ]  # fmt: skip
    legend = [style.handle(name, linewidth=2, **look) for name, look in looks.items()]
    across = 1 if style.is_column() else rows["model"].nunique()
    down = math.ceil(len(places) / across)
    subtitle = "speed-up over uncompressed values, over the bandwidth of a rank's links"
    figure = style.new_page(title, subtitle, notes, style.provenance(frame), [legend], down * 2.3)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey="row")
    for axes, ((phase, model), runs) in zip(grid.flat, places):
        axes.axhline(1, color=style.INK, linewidth=0.8)
        axes.grid()
        style.head(axes, f"{model}, {phase}", 1 / across)
        for name, look in looks.items():
            line = runs[runs["codec"] == name].sort_values("link_gb_per_s")
            axes.plot(line["link_gb_per_s"], line["speedup"], **look)
        style.log_axis(axes.xaxis, list(rows["link_gb_per_s"]), 5)
    for axes in grid.flat[len(places) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("link (GB/s)")
    for axes in grid[:, 0]:
        axes.set_ylabel("speed-up")
    return figure


@style.drawn
def divergence_over_speedup(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Draws a codec's effect on a model over the model's speed-up; a panel per machine, a point per codec.

    Needs the columns machine, codec, speedup (of the first token, over the library) and mean_kl (nats, over tokens).
    """
    rows = frame[frame["mean_kl"] > 0]
    if rows.empty:
        raise InputError("no row has a mean_kl above 0, so there is nothing to draw")
    machines = rows.groupby("machine", sort=False)
    looks = style.codec_lines(list(rows["codec"].unique()), highlight)
    colours = {name: look["color"] for name, look in looks.items()}
    good = rows[rows["mean_kl"] <= MODERATE_KL]
    title = f"No codec keeps the KL divergence below {MODERATE_KL:g} nats"
    if len(good):
        best = good.loc[good["speedup"].idxmax()]
        title = f"With KL below {MODERATE_KL:g} nats, {best['codec']} is {best['speedup']:.2g} times as fast"
    down = 2.6 * len(machines) if style.is_column() else 4.2
    subtitle = "mean KL divergence from the uncompressed model, over the speed-up of the first token"
    page = style.new_page(title, subtitle, ["Lower and further right is better."], style.provenance(frame), [], down)
    panels = style.panels(page, len(machines), sharey=True)
    for axes, (machine, runs) in zip(panels, machines):
        axes.grid()
        style.log_axis(axes.yaxis, list(rows["mean_kl"]))
        axes.axvline(1, color=style.INK, linewidth=0.8)
        style.head(axes, machine, 1 / len(machines))
        axes.set_xlabel("speed-up of the first token")
        low, high = min(1.0, runs["speedup"].min()), max(1.0, runs["speedup"].max())
        axes.set_xlim(low - 0.1 * (high - low), high + 0.55 * (high - low))
        for run in runs.itertuples():
            axes.plot(run.speedup, run.mean_kl, marker="o", linestyle="", color=colours[run.codec])
    panels[0].set_ylabel("mean KL divergence (nats)")
    for axes, (_, runs) in zip(panels, machines):
        points = [(run.speedup, run.mean_kl, run.codec, colours[run.codec], "right") for run in runs.itertuples()]
        style.label_points(axes, points, [point[:2] for point in points])
    return page


@style.drawn
def divergence_over_sqnr(
    frame: pd.DataFrame, named: pd.DataFrame | None = None, highlight: Sequence[str] = ()
) -> Figure:
    """KL divergence of a model over the SQNR of its sums: a point per compressed run of `arlab model perplexity`.

    Args:
        frame: with the columns ranks, algorithm, codec, dtype, token_sqnr_db (of the median token) and mean_kl (nats).
        named: the rows whose codec is written beside the point; by default all.

    Raises InputError where a column is missing or there is nothing to draw.
    """
    for name in QUALITY:
        if name not in frame:
            raise InputError(f"a column {name} is missing; needed are {', '.join(QUALITY)}")
    rows = frame[(frame["mean_kl"] > 0) & frame["token_sqnr_db"].notna() & ~frame["codec"].isin(style.UNCOMPRESSED)]
    if rows.empty:
        raise InputError("no row has a mean_kl above 0 and a token_sqnr_db")
    algorithms = list(rows["algorithm"].unique())
    looks = {name: style.algorithm_look(name, algorithms) for name in algorithms}
    x, y = rows["token_sqnr_db"], rows["mean_kl"]
    page = style.new_page(
        "SQNR tells how far off a model is, not which codec wins",
        "KL divergence from the uncompressed model, over the SQNR of the median token of all sums; "
        f"rank correlation {style.number(x.rank().corr(y.rank()), '.2f')}",
        ["Right: little noise in the sums. Down: little change of the model. Uncompressed codecs are left out."],
        style.provenance(frame), [[style.handle(name, **look) for name, look in looks.items()]], 5.6,
    )  # fmt: skip
    axes = page.subplots()
    axes.grid()
    style.log_axis(axes.yaxis, list(y))
    axes.set(xlabel="SQNR of the median token of all sums (dB)", ylabel="mean KL divergence (nats)")
    for name, mine in rows.groupby("algorithm", sort=False):
        axes.plot(mine["token_sqnr_db"], mine["mean_kl"], linestyle="", alpha=0.8, **looks[name])
    axes.set_xlim(x.min() - 0.05 * (x.max() - x.min()), x.max() + 0.15 * (x.max() - x.min()))
    points = [
        (row.token_sqnr_db, row.mean_kl, row.codec, style.HIGHLIGHT if row.codec in highlight else style.INK, "right")
        for row in (rows if named is None else named).drop_duplicates("codec").itertuples()
    ]
    style.label_points(axes, points, list(zip(x, y)))
    return page
