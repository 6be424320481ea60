"""Figures of times of whole models: at which speed of the links a codec pays.

Each takes a DataFrame with a row per run and the columns model, phase (prefill, decode), codec, link_gb_per_s (of a rank, one
direction, 10^9 bytes/s), time_us and communication_share, as the study model_time writes them. Speed-ups are
over the uncompressed codec of the same model, phase and link. All return a matplotlib Figure.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.tables import InputError, read_text

COLUMNS = ("model", "phase", "codec", "link_gb_per_s", "time_us", "communication_share")
MODERATE_KL = 0.1  # nats: what titles call a codec that can be used


def read_model_times(path: Path | str) -> pd.DataFrame:
    """A CSV of such rows; `#` begins a comment, of which `# provenance:` goes into attrs. Raises InputError."""
    text = read_text(Path(path))[0].splitlines()
    frame = pd.read_csv(io.StringIO("\n".join(text)), comment="#")
    missing = [name for name in COLUMNS if name not in frame]
    if missing:
        raise InputError(f"{path} has no column {missing[0]}; needed are {', '.join(COLUMNS)}")
    notes = [line.removeprefix("# provenance: ") for line in text if line.startswith("# provenance: ")]
    frame.attrs["provenance"] = " ".join(notes)
    return frame


def speedups(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column speedup, over the uncompressed codec at the same model, phase and link. Raises InputError."""
    keys = ["model", "phase", "link_gb_per_s"]
    plain = frame[frame["codec"].isin(style.UNCOMPRESSED)].set_index(keys)["time_us"]
    if plain.empty:
        raise InputError(f"no row has one of the codecs {', '.join(style.UNCOMPRESSED)}, over which a speed-up could be")
    plain = plain.groupby(keys).min().rename("plain_us").reset_index()
    rows = frame.merge(plain, on=keys)
    return rows.assign(speedup=rows["plain_us"] / rows["time_us"])


def pays_below(frame: pd.DataFrame, least: float = 1.0) -> pd.DataFrame:
    """The fastest link (GB/s) at which a codec's speed-up is still more than `least`: a row per model and phase, a column per codec.

    Between two links of the sweep it is interpolated, both on log scales; inf where the codec pays on the fastest, 0 where it
    pays on none.
    """
    found = {}
    rows = speedups(frame)
    rows = rows[~rows["codec"].isin(style.UNCOMPRESSED)]
    for (model, phase, codec), runs in rows.groupby(["model", "phase", "codec"], sort=False):
        runs = runs.sort_values("link_gb_per_s")
        links, logs = list(runs["link_gb_per_s"]), [math.log(each / least) for each in runs["speedup"]]
        last = max((i for i, each in enumerate(logs) if each > 0), default=-1)
        if last < 0:
            found[model, phase, codec] = 0.0
        elif last == len(logs) - 1:
            found[model, phase, codec] = math.inf
        else:
            share = logs[last] / (logs[last] - logs[last + 1])
            found[model, phase, codec] = links[last] * (links[last + 1] / links[last]) ** share
    table = pd.Series(found).unstack()
    order = list(dict.fromkeys(rows["codec"]))
    return table.reindex(index=list(dict.fromkeys((m, p) for m, p, _ in found)), columns=order)


@style.drawn
def speedup_over_link(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Speed-up of each codec over the uncompressed one, over the bandwidth of the links; a panel per model and phase."""
    rows = speedups(frame)
    codecs = [name for name in dict.fromkeys(rows["codec"]) if name not in style.UNCOMPRESSED]
    looks = style.codec_lines(codecs, highlight)
    places = list(dict.fromkeys(zip(rows["phase"], rows["model"], strict=True)))
    top = rows.loc[rows["speedup"].idxmax()]
    slow = rows[(rows["speedup"] < 1) & ~rows["codec"].isin(style.UNCOMPRESSED)]
    title = f"Up to {top['speedup']:.2g} times as fast on links of {top['link_gb_per_s']:.3g}{style.NO_BREAK}GB/s"
    title += f" ({top['codec']}, {top['model']}, {top['phase']})"
    title += "; faster links make some codecs a loss" if len(slow) else ""
    notes = ["Below 1 the codec takes longer than the uncompressed values.", "Of every codec the fastest algorithm."]
    legend = [style.handle(name, linewidth=2, **look) for name, look in looks.items()]
    across = 1 if style.is_column() else len({model for _, model in places})
    down = math.ceil(len(places) / across)
    figure = style.new_page(
        title, "speed-up over uncompressed values, over the bandwidth of a rank's links", notes, style.provenance(frame), [legend], down * 2.3
    )
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey="row")
    for axes, (phase, model) in zip(grid.flat, places, strict=False):
        runs = rows[(rows["phase"] == phase) & (rows["model"] == model)]
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
    """What a codec does to a model over how much faster it makes one; a panel per machine, a point per codec.

    Needs the columns machine, codec, speedup (of the time to first token, over the library) and mean_kl (nats, over tokens).
    """
    rows = frame[frame["mean_kl"] > 0]
    if rows.empty:
        raise InputError("no row has a mean_kl above 0, so there is nothing to draw")
    machines = list(dict.fromkeys(rows["machine"]))
    codecs = list(dict.fromkeys(rows["codec"]))
    colours = style.codec_colours(codecs, highlight)
    good = rows[rows["mean_kl"] <= MODERATE_KL]
    best = good.loc[good["speedup"].idxmax()] if len(good) else None
    title = f"No codec keeps the KL divergence below {MODERATE_KL:g} nats"
    if best is not None:
        title = f"With a KL divergence below {MODERATE_KL:g} nats the first token comes up to {best['speedup']:.2g} times as early"
        title += f" ({best['codec']} on {best['machine']})"
    notes = ["Lower and further right is better."]
    down = 2.6 * len(machines) if style.is_column() else 4.2
    page = style.new_page(title, "mean KL divergence from the uncompressed model, over the speed-up", notes, style.provenance(frame), [], down)
    for axes, machine in zip(style.panels(page, len(machines), sharey=True), machines, strict=True):
        of_machine = rows[rows["machine"] == machine]
        axes.grid()
        style.log_axis(axes.yaxis, list(rows["mean_kl"]))
        axes.axvline(1, color=style.INK, linewidth=0.8)
        style.head(axes, machine, 1 / len(machines))
        axes.set_xlabel("speed-up of the first token")
        low, high = min(1.0, of_machine["speedup"].min()), max(1.0, of_machine["speedup"].max())
        axes.set_xlim(low - 0.1 * (high - low), high + 0.55 * (high - low))
        for row in of_machine.itertuples():
            axes.plot(row.speedup, row.mean_kl, marker="o", linestyle="", color=colours[row.codec])
    page.axes[0].set_ylabel("mean KL divergence (nats)")
    for axes, machine in zip(page.axes, machines, strict=True):
        of_machine = rows[rows["machine"] == machine]
        points = [(r.speedup, r.mean_kl, r.codec, colours[r.codec], "right") for r in of_machine.itertuples()]
        style.label_points(axes, points, [point[:2] for point in points])
    return page
