"""A timeline of `arlab simulate --trace`.

A lane per rank, coloured by what the rank does, and a lane per link, filled as high as its bandwidth is in use; behind
it a box for every step of the schedule that has messages on the link. What is not filled is bandwidth that nobody uses. Of many ranks some are shown, evenly spread; of many links those of every class that carry most.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from arlab.figures import style
from arlab.figures.style import BAND, GREY, INK
from arlab.figures.tables import read_report

# What a rank does: its colour and what the legend says.
WORK = {
    "launch": (style.INDIGO, "launch"), "flags": (style.ORANGE, "flags"), "encode": (style.BLUE, "encode"),
    "reduce": (style.GREEN, "decode, sum, encode"), "decode": (style.SKY, "decode"), "forward": (style.WINE, "forward"),
    "send": ("#D5DCE6", "own messages on their way"), "wait": ("#FFFFFF", "wait for others"),
}  # fmt: skip
LOAD, ON_THE_WAY = "#B34A00", "#F6D5BF"
MOST_RANKS, MOST_LINKS, MOST_LANES = 16, 12, 8
ROUNDING_US = 2e-6  # times are whole picoseconds
LANE_IN = 0.27


def read_trace(path: Path) -> dict[str, Any]:
    """The JSON object of a trace; raises InputError when the file is not one of arlab."""

    def head(trace: dict[str, Any]) -> dict[str, Any]:
        spans_of(trace)
        about: dict[str, Any] = trace["otherData"]
        return about

    return read_report(path, "arlab.trace", "a trace of arlab simulate", head)


def spans_of(trace: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What happens when, a row per event, and how full links are, a row per change; times in µs.

    A track of the file is a lane of what its name says: `rank 0`, and `rank 0 (2)` where two things happen at a time.
    """
    places: dict[tuple[int, int], tuple[str, int]] = {}
    spans, loads = [], []
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "thread_name":
            match = re.fullmatch(r"(.*?)(?: \((\d+)\))?", event["args"]["name"])
            assert match is not None
            places[event["pid"], event["tid"]] = (match[1], int(match[2] or 1) - 1)
        elif event["ph"] == "X":
            begin, arguments = float(event["ts"]), event["args"]
            row = (event["pid"], *places[event["pid"], event["tid"]], event["name"], begin, begin + float(event["dur"]))
            spans.append((*row, int(arguments.get("step", -1)), arguments.get("link_class", "")))
        elif event["ph"] == "C":
            share = float(event["args"]["percent"]) / 100
            loads.append((event["name"].removeprefix("load of "), float(event["ts"]), share))
    columns = ["kind", "track", "lane", "name", "begin", "end", "step", "link_class"]
    return pd.DataFrame(spans, columns=columns), pd.DataFrame(loads, columns=["track", "begin", "share"])


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Disjoint intervals that cover the same time."""
    result: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1] + ROUNDING_US:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((begin, end))
    return result


def load_boxes(loads: pd.DataFrame) -> list[tuple[float, float, float]]:
    """(begin, end, share): how much of a link is in use when."""
    ends = loads["begin"].shift(-1).fillna(loads["begin"])
    return [(begin, end, share) for begin, end, share in zip(loads["begin"], ends, loads["share"]) if share > 0]


def chosen_links(classes: dict[str, str], used: dict[str, float]) -> list[str]:
    """The fullest links of every class, class by class, as many of each as fit; ties in the order of the file."""
    table = pd.DataFrame({"link_class": classes, "used": used}).rename_axis("track").reset_index()
    table["place"] = table["used"].round(6).groupby(table["link_class"]).rank(method="first", ascending=False)
    best = table.sort_values("place", kind="stable").head(MOST_LINKS).index
    order = list(dict.fromkeys(table["link_class"]))
    return list(table.loc[sorted(best, key=lambda i: (order.index(table.loc[i, "link_class"]), i)), "track"])


@style.drawn
def timeline(trace: dict[str, Any]) -> Figure:
    """The timeline of a trace, the JSON object that `arlab simulate --trace` writes."""
    about = trace["otherData"]
    spans, loads = spans_of(trace)
    by_track = dict(tuple(spans.groupby("track", sort=False)))
    all_ranks = list(spans.loc[spans["kind"] == 1, "track"].unique())
    all_links = list(spans.loc[spans["kind"] == 2, "track"].unique())
    boxes = {track: load_boxes(loads[loads["track"] == track]) for track in all_links}
    used = {track: sum((end - begin) * share for begin, end, share in each) for track, each in boxes.items()}
    last = len(all_ranks) - 1
    few = len(all_ranks) <= MOST_RANKS
    ranks = all_ranks if few else [all_ranks[round(i * last / (MOST_RANKS - 1))] for i in range(MOST_RANKS)]
    links = chosen_links({track: by_track[track]["link_class"].iloc[0] for track in all_links}, used)
    latency = float(about["latency_us"])
    lanes = len(ranks) + len(links) + (0.9 if links else 0.0)
    work = {name for track in ranks for name in by_track[track]["name"]}
    legends = [[patch(*look, idle=name == "wait") for name, look in WORK.items() if name in work]]
    legends += [[
        patch(LOAD, "bandwidth of the link in use"),
        patch(ON_THE_WAY, "idle: messages of this step (its number) are on their way, held up at another link"),
        patch(BAND, "idle: there are no messages for it"),
    ]] if links else []  # fmt: skip
    notes = [f"{len(ranks)} of {len(all_ranks)} ranks shown." if len(ranks) < len(all_ranks) else ""]
    notes += [f"Links: the fullest {len(links)} of {len(all_links)}." if len(links) < len(all_links) else ""]
    figure = style.new_page(
        f"{about['algorithm']} of {style.size_text(int(about['bytes']))} {about['dtype']} as {about['codec']} on "
        f"{about['topology']}: {latency:.5g}{style.NO_BREAK}µs, simulated",
        f"Bottleneck: {about['bottleneck']}", notes, about.get("provenance", ""), legends, lanes * LANE_IN + 0.5,
    )  # fmt: skip
    axes = figure.subplots()
    axes.set(xlim=(0, latency), ylim=(lanes, 0))
    axes.set_xlabel("time since the call, µs")
    axes.spines["left"].set_visible(False)
    ticks = []
    per_character = latency / (0.8 * figure.get_figwidth()) * 0.065
    for place, track in enumerate([*ranks, *links]):
        top = place + (0.9 if place >= len(ranks) else 0.0)
        axes.axhspan(top + 0.05, top + 0.95, color=BAND, linewidth=0, zorder=0)
        ticks.append(top + 0.5)
        if place < len(ranks):
            draw_rank(axes, by_track[track], top)
        else:
            draw_link(axes, by_track[track], boxes[track], top, per_character)
            text = axes.text(1.005, top + 0.5, f"{100 * used[track] / latency:.0f} % used", color=GREY, size="small")
            text.set(transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(ticks, [*ranks, *links])
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
    rest = spans[spans["lane"] > 0]
    crowded = [span for _, each in rest.groupby("lane") for span in merged(zip(each["begin"], each["end"]))]
    narrow = 0.8 / (spans["lane"].max() + 1)
    for span in spans.itertuples():
        shared = beside(span.begin, span.end, crowded)
        where = (top + 0.1 + span.lane * narrow, narrow) if shared else (top + 0.1, 0.8)
        colour = WORK.get(span.name, (GREY, ""))[0]
        axes.broken_barh([(span.begin, span.end - span.begin)], where, facecolors=colour, linewidth=0, **hatch(span.name == "wait"))


def draw_link(
    axes: Axes, spans: pd.DataFrame, loads: Sequence[tuple[float, float, float]], top: float, per_character: float
) -> None:
    """Boxes of steps, side by side where they overlap in time, and over them the load."""
    by_step = spans.groupby("step", sort=False)
    boxes = sorted((b, e, int(s)) for s, each in by_step for b, e in merged(zip(each["begin"], each["end"])))
    rows: list[float] = []
    placed: list[tuple[float, float, int, int]] = []
    for begin, end, step in boxes:
        row = next((i for i, until in enumerate(rows) if until <= begin + 1e-9), len(rows))
        rows[row : row + 1] = [end]
        placed.append((begin, end, step, row))
    there = [(b, e - b) for b, e in merged((b, e) for b, e, _ in boxes)]
    axes.broken_barh(there, (top + 0.08, 0.84), facecolors=ON_THE_WAY, zorder=1)
    for begin, end, share in loads:
        height = 0.84 * min(share, 1)
        where = (top + 0.92 - height, height)
        axes.broken_barh([(begin, end - begin)], where, zorder=2, facecolors=LOAD, edgecolor="none")
    for begin, end, step, row in placed:
        axes.vlines([begin, end], top + 0.08, top + 0.92, color="white", linewidth=0.6, zorder=2.5)
        shared = beside(begin, end, [(b, e) for b, e, _, other in placed if other != row])
        height = 0.84 / len(rows) if shared else 0.84
        if len(rows) <= 3 and end - begin > per_character * (len(str(step)) + 0.5):
            at = top + 0.08 + (row * height if shared else 0) + height / 2
            text = axes.text((begin + end) / 2, at, str(step), ha="center", va="center_baseline", color=INK, zorder=4)
            text.set(size=7 if height > 0.5 else 5.5, path_effects=style.HALO)
