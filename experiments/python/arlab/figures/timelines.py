"""A timeline of `arlab simulate --trace`.

A lane per rank, coloured by what the rank does, and a lane per link, filled as high as its bandwidth is in use; behind
it a box for every step of the schedule that has messages on the link. The unfilled part is unused bandwidth. Among many
ranks some are shown, evenly spread; among many links the fullest of every class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from arlab.figures import style
from arlab.figures.style import BAND, GREY, INK
from arlab.figures.tables import read_report

# Kinds of a rank's work: colour and legend.
WORK = {
    "launch": (style.INDIGO, "launch"), "flags": (style.ORANGE, "flags"), "encode": (style.BLUE, "encode"),
    "reduce": (style.GREEN, "decode, sum, encode"), "decode": (style.SKY, "decode"), "forward": (style.WINE, "forward"),
    "send": ("#D5DCE6", "own messages on their way"), "wait": ("#FFFFFF", "wait for others"),
}  # fmt: skip
LOAD, ON_THE_WAY = "#B34A00", "#F6D5BF"
MOST_RANKS, MOST_LINKS, MOST_LANES = 16, 12, 8
TRACK = re.compile(r"(.*?)(?: \((\d+)\))?")
ROUNDING_US = 2e-6  # times are whole picoseconds
LANE_IN = 0.27


def read_trace(path: str | Path) -> dict[str, Any]:
    """The JSON object of a trace; raises InputError when the file is not one of arlab."""

    def head(trace: dict[str, Any]) -> dict[str, Any]:
        spans_of(trace)
        about: dict[str, Any] = trace["otherData"]
        return about

    return read_report(path, "arlab.trace", "a trace of arlab simulate", head)


def spans_of(trace: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the events, a row each, and how full links are, a row per change; times in µs.

    A track of the file is a lane of what its name says: `rank 0`, and `rank 0 (2)` where two things happen at a time.
    """
    places: dict[tuple[int, int], tuple[str, int]] = {}
    spans, loads = [], []
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "thread_name":
            track, lane = TRACK.fullmatch(event["args"]["name"]).groups()  # type: ignore[union-attr]
            places[event["pid"], event["tid"]] = (track, int(lane or 1) - 1)
        elif event["ph"] == "X":
            begin, arguments = float(event["ts"]), event["args"]
            row = (event["pid"], *places[event["pid"], event["tid"]], event["name"], begin, begin + float(event["dur"]))
            spans.append((*row, int(arguments.get("step", -1)), arguments.get("link_class", "")))
        elif event["ph"] == "C":
            share = float(event["args"]["percent"]) / 100
            loads.append((event["name"].removeprefix("load of "), float(event["ts"]), share))
    columns = ["kind", "track", "lane", "name", "begin", "end", "step", "link_class"]
    changes = pd.DataFrame(loads, columns=["track", "begin", "share"])
    changes["end"] = changes.groupby("track")["begin"].shift(-1).fillna(changes["begin"])
    return pd.DataFrame(spans, columns=columns), changes[changes["share"] > 0]


def merged(spans: pd.DataFrame) -> list[tuple[float, float]]:
    """Disjoint intervals that cover the same time as the rows, from begin to end."""
    spans = spans.sort_values(["begin", "end"])
    apart = spans["begin"] > spans["end"].cummax().shift() + ROUNDING_US
    return list(spans.groupby(apart.cumsum()).agg({"begin": "min", "end": "max"}).itertuples(index=False, name=None))


def chosen_links(links: pd.DataFrame) -> list[str]:
    """The fullest links (index) of every class, class by class, as many of each as fit; ties as in the file."""
    place = links["used"].round(6).groupby(links["link_class"]).rank(method="first", ascending=False)
    best = links.loc[links.index.isin(place.sort_values(kind="stable").index[:MOST_LINKS])]
    order = list(links["link_class"].unique())
    return list(best["link_class"].map(order.index).sort_values(kind="stable").index)


@style.drawn
def timeline(trace: dict[str, Any]) -> Figure:
    """The timeline of a trace, the JSON object that `arlab simulate --trace` writes."""
    about = trace["otherData"]
    spans, loads = spans_of(trace)
    by_track = dict(tuple(spans.groupby("track", sort=False)))
    latency = float(about["latency_us"])
    all_ranks = list(spans.loc[spans["kind"] == 1, "track"].unique())
    shown = np.linspace(0, len(all_ranks) - 1, min(len(all_ranks), MOST_RANKS)).round().astype(int)
    ranks = [all_ranks[i] for i in shown]
    all_links = spans[spans["kind"] == 2].groupby("track", sort=False)[["link_class"]].first()
    used = ((loads["end"] - loads["begin"]) * loads["share"]).groupby(loads["track"]).sum()
    all_links["used"] = used.reindex(all_links.index, fill_value=0.0)
    links = chosen_links(all_links)
    lanes = len(ranks) + len(links) + (0.9 if links else 0.0)
    work = {name for track in ranks for name in by_track[track]["name"]}
    legends = [[patch(*look, idle=name == "wait") for name, look in WORK.items() if name in work]]
    legends += [[
        patch(LOAD, "bandwidth of the link in use"),
        patch(ON_THE_WAY, "idle: messages of this step (its number) are on their way, held up at another link"),
        patch(BAND, "idle: there are no messages for it"),
    ]] if links else []  # fmt: skip
    notes = [
        f"{len(ranks)} of {len(all_ranks)} ranks shown." * (len(ranks) < len(all_ranks)),
        f"Links: the fullest {len(links)} of {len(all_links)}." * (len(links) < len(all_links)),
    ]
    figure = style.new_page(
        f"{about['algorithm']} of {style.size_text(int(about['bytes']))} {about['dtype']} as {about['codec']} on "
        f"{about['topology']}: {latency:.5g}{style.NO_BREAK}µs, simulated",
        f"Bottleneck: {about['bottleneck']}", notes, about.get("provenance", ""), legends, lanes * LANE_IN + 0.5,
    )  # fmt: skip
    axes = figure.subplots()
    axes.set(xlim=(0, latency), ylim=(lanes, 0))
    axes.set_xlabel("time since the call, µs")
    axes.spines["left"].set_visible(False)
    per_character = latency / (0.8 * figure.get_figwidth()) * 0.065
    tops = [*range(len(ranks)), *(len(ranks) + 0.9 + place for place in range(len(links)))]
    for top, track in zip(tops, [*ranks, *links]):
        axes.axhspan(top + 0.05, top + 0.95, color=BAND, linewidth=0, zorder=0)
        if top < len(ranks):
            draw_rank(axes, by_track[track], top)
        else:
            draw_link(axes, by_track[track], loads[loads["track"] == track], top, per_character)
            text = f"{100 * all_links.loc[track, 'used'] / latency:.0f} % used"
            place = {"va": "center", "transform": axes.get_yaxis_transform()}
            axes.text(1.005, top + 0.5, text, color=GREY, size="small", **place)
    axes.set_yticks([top + 0.5 for top in tops], [*ranks, *links])
    axes.tick_params(axis="y", length=0)
    return figure


def hatch(idle: bool) -> dict[str, str]:
    """Waiting is hatched."""
    return {"hatch": "////", "edgecolor": "#999999"} if idle else {"edgecolor": "none"}


def patch(colour: str, label: str, idle: bool = False) -> Patch:
    """A legend entry."""
    return Patch(facecolor=colour, label=label, linewidth=0, **hatch(idle))


def beside(begin: float, end: float, others: Iterable[tuple[float, float]]) -> bool:
    """Whether something else happens at the same time; then they share the height of the lane."""
    return any(b < end and e > begin for b, e in others)


def draw_rank(axes: Axes, spans: pd.DataFrame, top: float) -> None:
    """One box per span; spans that overlap share the height of the lane."""
    spans = spans[spans["lane"] < MOST_LANES]
    crowded = [span for lane, each in spans.groupby("lane") if lane > 0 for span in merged(each)]
    narrow = 0.8 / (spans["lane"].max() + 1)
    for span in spans.itertuples():
        shared = beside(span.begin, span.end, crowded)
        where = (top + 0.1 + span.lane * narrow, narrow) if shared else (top + 0.1, 0.8)
        look = {"facecolors": WORK.get(span.name, (GREY, ""))[0], "linewidth": 0, **hatch(span.name == "wait")}
        axes.broken_barh([(span.begin, span.end - span.begin)], where, **look)


def draw_link(axes: Axes, spans: pd.DataFrame, loads: pd.DataFrame, top: float, per_character: float) -> None:
    """Boxes of steps, side by side where they overlap in time, and over them the load."""
    steps = [(b, e, int(s)) for s, each in spans.groupby("step", sort=False) for b, e in merged(each)]
    boxes = pd.DataFrame(sorted(steps), columns=["begin", "end", "step"])
    there = [(begin, end - begin) for begin, end in merged(boxes)]
    axes.broken_barh(there, (top + 0.08, 0.84), facecolors=ON_THE_WAY, zorder=1)
    for load in loads.itertuples():
        height = 0.84 * min(load.share, 1)
        where = (top + 0.92 - height, height)
        axes.broken_barh([(load.begin, load.end - load.begin)], where, zorder=2, facecolors=LOAD, edgecolor="none")
    rows: list[list[tuple[float, float]]] = []  # boxes in a row do not overlap
    places = []
    for box in boxes.itertuples():
        place = next((i for i, row in enumerate(rows) if row[-1][1] <= box.begin + 1e-9), len(rows))
        rows[place : place + 1] = [[*(rows[place] if place < len(rows) else ()), (box.begin, box.end)]]
        places.append(place)
    for box, place in zip(boxes.itertuples(), places):
        axes.vlines([box.begin, box.end], top + 0.08, top + 0.92, color="white", linewidth=0.6, zorder=2.5)
        others = (span for i, row in enumerate(rows) if i != place for span in row)
        shared = beside(box.begin, box.end, others)
        height = 0.84 / len(rows) if shared else 0.84
        if len(rows) <= 3 and box.end - box.begin > per_character * (len(str(box.step)) + 0.5):
            at = top + 0.08 + (place * height if shared else 0) + height / 2
            look = {"ha": "center", "va": "center_baseline", "color": INK, "zorder": 4, "path_effects": style.HALO}
            axes.text((box.begin + box.end) / 2, at, str(box.step), size=7 if height > 0.5 else 5.5, **look)
