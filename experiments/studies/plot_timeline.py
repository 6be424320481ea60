#!/usr/bin/env python3
"""Draws a timeline of `arlab simulate --trace`: `plot_timeline.py TRACE.json PICTURE.png`.

A lane per rank, coloured by what the rank does, and a lane per link, filled as high as its
bandwidth is in use; behind it a box for every step of the schedule that has messages on the link.
What is not filled is a bubble: bandwidth that nobody uses. Of many ranks some are shown, evenly
spread; of many links those of every class that carry most.

Equal files give equal bytes. Exit code: 0, or 2 for bad usage or input.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import picture
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from plot_study import GREY, INK, InputError

BAND = "#F4F4F4"
# Okabe and Ito's palette: told apart with any colour vision.
COLOURS = {
    "launch": "#CC79A7",
    "flags": "#E69F00",
    "encode": "#0072B2",
    "reduce": "#009E73",
    "decode": "#56B4E9",
    "forward": "#999933",
    "send": "#C9D5E3",
    "wait": "#FFFFFF",
}
MEANING = {
    "launch": "launch",
    "flags": "flags",
    "encode": "encode",
    "reduce": "decode, sum, encode",
    "decode": "decode",
    "forward": "forward",
    "send": "own messages on their way",
    "wait": "wait for others",
}
LOAD = "#D55E00"
ON_THE_WAY = "#F6D5BF"
MOST_RANKS = 16
MOST_LINKS = 12
ROUNDING_US = 2e-6  # times are whole picoseconds
DPI = 150
WIDTH_IN = 1600 / DPI
LANE_IN = 0.27
STYLE: dict[str, Any] = {
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.linewidth": 0.6,
    "hatch.color": "#999999",
}


@dataclass(frozen=True)
class Span:
    """One event of a track, in microseconds."""

    name: str
    begin: float
    end: float
    step: int
    lane: int
    link_class: str = ""


@dataclass
class Track:
    """All spans of a rank or link; lanes count the tracks of the file that it fills."""

    name: str
    spans: list[Span] = field(default_factory=list)
    lanes: int = 1
    loads: list[tuple[float, float]] = field(default_factory=list)  # from when, share


@dataclass(frozen=True)
class Trace:
    """What the file says."""

    about: dict[str, Any]
    ranks: list[Track]
    links: list[Track]


def read_trace(path: Path) -> Trace:
    """Raises InputError when the file is not a trace of arlab."""
    try:
        content = json.loads(path.read_text("utf-8"))
        about = content["otherData"]
        if not about["schema"].startswith("arlab.trace/"):
            raise InputError(f"{path}: not a trace of arlab simulate")
        places: dict[tuple[int, int], tuple[str, int]] = {}
        tracks: dict[int, dict[str, Track]] = {1: {}, 2: {}}
        for event in content["traceEvents"]:
            if event["ph"] == "M" and event["name"] == "thread_name":
                match = re.fullmatch(r"(.*?)(?: \((\d+)\))?", event["args"]["name"])
                assert match is not None
                name, lane = match[1], int(match[2] or 1) - 1
                places[event["pid"], event["tid"]] = (name, lane)
                track = tracks[event["pid"]].setdefault(name, Track(name))
                track.lanes = max(track.lanes, lane + 1)
            elif event["ph"] == "X":
                name, lane = places[event["pid"], event["tid"]]
                arguments = event["args"]
                begin = float(event["ts"])
                span = Span(
                    event["name"],
                    begin,
                    begin + float(event["dur"]),
                    int(arguments.get("step", -1)),
                    lane,
                    arguments.get("link_class", ""),
                )
                tracks[event["pid"]][name].spans.append(span)
            elif event["ph"] == "C":
                load = (float(event["ts"]), float(event["args"]["percent"]) / 100)
                tracks[event["pid"]][event["name"].removeprefix("load of ")].loads.append(load)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a trace of arlab simulate ({error})") from error
    return Trace(about, list(tracks[1].values()), list(tracks[2].values()))


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Disjoint intervals that cover the same time."""
    result: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1] + ROUNDING_US:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((begin, end))
    return result


def load_boxes(track: Track) -> list[tuple[float, float, float]]:
    """(begin, end, share): how much of the link is in use when; all of it where nothing is said."""
    if not track.loads:
        return [(begin, end, 1.0) for begin, end in merged((s.begin, s.end) for s in track.spans)]
    ends = [at for at, _ in track.loads[1:]] + [track.loads[-1][0]]
    return [(at, end, share) for (at, share), end in zip(track.loads, ends) if share > 0]


def used_us(track: Track) -> float:
    """How long the link would be full with what it carries."""
    return sum((end - begin) * share for begin, end, share in load_boxes(track))


def chosen_ranks(tracks: Sequence[Track]) -> list[Track]:
    """All, or some from the first to the last."""
    if len(tracks) <= MOST_RANKS:
        return list(tracks)
    last = len(tracks) - 1
    return [tracks[round(i * last / (MOST_RANKS - 1))] for i in range(MOST_RANKS)]


def chosen_links(tracks: Sequence[Track]) -> list[Track]:
    """The fullest of every class, class by class."""
    by_class: dict[str, list[Track]] = {}
    for track in tracks:
        by_class.setdefault(track.spans[0].link_class, []).append(track)
    for members in by_class.values():
        members.sort(key=lambda each: round(used_us(each), 6), reverse=True)  # stable: ties in the order of the file
    taken = dict.fromkeys(by_class, 0)
    while sum(taken.values()) < min(MOST_LINKS, len(tracks)):
        for name, members in by_class.items():
            if taken[name] < len(members) and sum(taken.values()) < MOST_LINKS:
                taken[name] += 1
    order = {track.name: i for i, track in enumerate(tracks)}
    return [
        track
        for name, members in by_class.items()
        for track in sorted(members[: taken[name]], key=lambda each: order[each.name])
    ]


def size_text(count: int) -> str:
    """64 MiB."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count / (1 << shift):g} {unit}"
    return f"{count} bytes"


def draw_rank(axes: Axes, track: Track, top: float) -> None:
    """One box per span; spans that overlap share the height of the lane."""
    crowded = [merged((s.begin, s.end) for s in track.spans if s.lane == i) for i in range(1, 9)]
    for span in track.spans:
        if span.lane > 7:
            continue
        # A span has the whole height where nothing happens beside it.
        beside = any(
            begin < span.end and end > span.begin for lane in crowded for begin, end in lane
        )
        height = 0.8 / min(track.lanes, 8) if beside else 0.8
        bottom = top + 0.1 + (span.lane * height if beside else 0)
        idle = span.name == "wait"
        axes.broken_barh(
            [(span.begin, span.end - span.begin)],
            (bottom, height),
            facecolors=COLOURS.get(span.name, GREY),
            hatch="////" if idle else None,
            edgecolor="#999999" if idle else "none",
            linewidth=0,
        )


def draw_link(axes: Axes, track: Track, top: float, us_per_character: float) -> None:
    """Boxes of steps, side by side where they overlap in time, and over them the load."""
    by_step: dict[int, list[tuple[float, float]]] = {}
    for span in track.spans:
        by_step.setdefault(span.step, []).append((span.begin, span.end))
    boxes = [(begin, end, step) for step, spans in by_step.items() for begin, end in merged(spans)]
    rows: list[float] = []
    placed: list[tuple[float, float, int, int]] = []
    for begin, end, step in sorted(boxes):
        row = next((i for i, until in enumerate(rows) if until <= begin + 1e-9), len(rows))
        rows[row : row + 1] = [end]
        placed.append((begin, end, step, row))
    axes.broken_barh(
        [(b, e - b) for b, e in merged((b, e) for b, e, _ in boxes)],
        (top + 0.08, 0.84),
        facecolors=ON_THE_WAY,
        zorder=1,
    )
    for begin, end, share in load_boxes(track):
        height = 0.84 * min(share, 1)
        bar = axes.broken_barh([(begin, end - begin)], (top + 0.92 - height, height), zorder=2)
        bar.set(facecolor=LOAD, edgecolor="none")
    for begin, end, step, row in placed:
        for edge in (begin, end):
            axes.plot([edge, edge], [top + 0.08, top + 0.92], color="white", linewidth=0.6)
        beside = any(b < end and e > begin for b, e, _, other in placed if other != row)
        height = 0.84 / len(rows) if beside else 0.84
        at = top + 0.08 + (row * height if beside else 0) + height / 2
        label = str(step)
        if len(rows) <= 3 and end - begin > us_per_character * (len(label) + 0.5):
            axes.text((begin + end) / 2, at, label, size=7 if height > 0.5 else 5.5).set(
                ha="center",
                va="center_baseline",
                color=INK,
                path_effects=[withStroke(linewidth=1.6, foreground="white")],
                zorder=4,
            )


def draw(trace: Trace) -> Figure:
    """The whole picture."""
    about = trace.about
    ranks, links = chosen_ranks(trace.ranks), chosen_links(trace.links)
    latency = float(about["latency_us"])
    gap = 0.9 if links else 0.0
    lanes = len(ranks) + gap + len(links)
    legend_in, title_in, axis_in = 0.6, 0.75, 0.55
    height_in = title_in + lanes * LANE_IN + axis_in + legend_in
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI)
    longest = max((len(track.name) for track in [*ranks, *links]), default=6)
    left = (0.35 + 0.075 * longest) / WIDTH_IN
    right = 1 - 0.85 / WIDTH_IN
    bottom = (axis_in + legend_in) / height_in
    axes = figure.add_axes((left, bottom, right - left, lanes * LANE_IN / height_in))
    axes.set_xlim(0, latency)
    axes.set_ylim(lanes, 0)
    us_per_character = latency / ((right - left) * WIDTH_IN) * 0.065
    ticks: list[tuple[float, str]] = []
    place = 0.0
    for track in ranks:
        axes.axhspan(place + 0.05, place + 0.95, color=BAND, linewidth=0, zorder=0)
        draw_rank(axes, track, place)
        ticks.append((place + 0.5, track.name))
        place += 1
    place += gap
    for track in links:
        axes.axhspan(place + 0.05, place + 0.95, color=BAND, linewidth=0, zorder=0)
        draw_link(axes, track, place, us_per_character)
        axes.text(
            1.005,
            place + 0.5,
            f"{100 * used_us(track) / latency:.0f} % used",
            transform=axes.get_yaxis_transform(),
            va="center",
            size=8,
            color=GREY,
        )
        ticks.append((place + 0.5, track.name))
        place += 1
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks], size=9)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time since the call, µs", size=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    title(figure, trace, height_in)
    hidden = []
    if len(ranks) < len(trace.ranks):
        hidden.append(f"{len(ranks)} of {len(trace.ranks)} ranks shown")
    if len(links) < len(trace.links):
        hidden.append(f"links: the fullest {len(links)} of {len(trace.links)}")
    if hidden:
        note = f"({'; '.join(hidden)})"
        figure.text(1 - 0.2 / WIDTH_IN, bottom - 0.38 / height_in, note, ha="right", size=8).set(
            color=GREY
        )
    add_legend(figure, ranks, links, left, height_in)
    return figure


def title(figure: Figure, trace: Trace, height_in: float) -> None:
    """What was simulated, and that it was."""
    about = trace.about
    left = 0.2 / WIDTH_IN
    figure.text(
        left,
        1 - 0.3 / height_in,
        f"{about['algorithm']} of {size_text(int(about['bytes']))} {about['dtype']} as "
        f"{about['codec']} on {about['topology']}: {float(about['latency_us']):.5g} µs, simulated",
        size=13,
        weight="bold",
    )
    figure.text(
        left, 1 - 0.55 / height_in, f"Bottleneck: {about['bottleneck']}", size=9, color=GREY
    )


def add_legend(
    figure: Figure, ranks: Sequence[Track], links: Sequence[Track], left: float, height_in: float
) -> None:
    """A row for what ranks do, in the order of their work, and one for links."""
    there = {span.name for track in ranks for span in track.spans}
    handles = [
        Patch(
            facecolor=COLOURS[name],
            hatch="////" if name == "wait" else None,
            edgecolor="#999999" if name == "wait" else "none",
            linewidth=0,
            label=MEANING[name],
        )
        for name in COLOURS
        if name in there
    ]
    of_links = [
        Patch(facecolor=LOAD, label="bandwidth of the link in use"),
        Patch(facecolor=ON_THE_WAY, label="not used: messages of the step (number) wait elsewhere"),
        Patch(facecolor=BAND, label="not used: no messages, a bubble"),
    ]
    for row, entries in ((0, handles), (1, of_links if links else [])):
        if not entries:
            continue
        legend = figure.legend(
            handles=entries,
            loc="lower left",
            bbox_to_anchor=(left, (0.32 - 0.22 * row) / height_in),
            ncols=len(entries),
            frameon=False,
            fontsize=8,
            handlelength=1.3,
            columnspacing=1.3,
            handletextpad=0.4,
            borderpad=0,
            borderaxespad=0,
        )
        figure.add_artist(legend)


def plot(source: Path, path: Path) -> None:
    """Reads, draws, writes."""
    trace = read_trace(source)
    picture.write_picture(path, STYLE, lambda: draw(trace))


def main() -> int:
    """The command line."""
    return picture.run(
        "Draws a trace of `arlab simulate` as a PNG.", "TRACE.json", "PICTURE.png", plot
    )



if __name__ == "__main__":
    sys.exit(main())
