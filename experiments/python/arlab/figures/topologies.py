"""A topology of `arlab topology show`.

Devices are circles with their rank, switches squares. Links of one class share a colour; a link and the one back are
one line. Faults and stragglers stand out. The layout follows the kind: meshes, switches and rings on a circle, tori on
grids, fat trees in layers, and all others by springs.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch
from numpy.typing import NDArray

from arlab.figures import style
from arlab.figures.style import INK, handle
from arlab.figures.tables import read_report

DEVICE, STRAGGLER, FAULT = style.BLUE, style.PINK, style.HIGHLIGHT
LINK_COLOURS = ("#777777", style.GREEN, style.ORANGE, style.SKY, style.WINE, style.INDIGO)
DASHED = (0, (2, 1.5))
# Classes whose two directions make one link, and what classes are called.
OTHER_WAY = {f"{name}_in": f"{name}_out" for name in ("port", "nic", "pcie", "root")} | {"downlink": "uplink"}
NAMES = {"port_out": "port", "nic_out": "network card", "pcie_out": "PCIe", "root_out": "PCIe switch to root"}

Points = NDArray[np.float64]


def read_topology(path: str | Path) -> dict[str, Any]:
    """The JSON object of a topology with its edges."""
    return read_report(path, "arlab.topology", "of arlab topology show")


def circle(count: int, radius: float = 1.0) -> Points:
    """From the top, clockwise."""
    angles = math.pi / 2 - 2 * math.pi * np.arange(count) / max(count, 1)
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def layout_torus(shape: Sequence[int]) -> Points:
    """Rows and columns are the two last dimensions; planes of further ones stand behind."""
    extents = [extent for extent in shape if extent > 1] or [1]
    if len(extents) == 1:
        return circle(extents[0])
    planes = math.prod(extents[:-2])
    plane, row, column = np.indices((planes, *extents[-2:])).reshape(3, -1)
    return np.stack([column + plane / planes, -row + plane / planes], axis=1)


def layout_fat_tree(ranks: int, group_size: int, sorts: Sequence[int], inside: bool) -> Points:
    """From the bottom: switches of servers, devices, PCIe switches, root complexes, leaves, the core."""
    servers = ranks // group_size
    across = np.arange(ranks) + 0.8 * (np.arange(ranks) // group_size)
    across = across - across.mean()
    wide = float(across[-1] - across[0])
    height = max(2.0, wide / 7)
    layers = [(across, 0.0)]
    above = height
    for place, count in enumerate(sorts):
        below = inside and place == 0
        if count % servers == 0 and ranks % count == 0 and place < len(sorts) - 2 * (servers > 1):
            xs = across.reshape(count, ranks // count).mean(axis=1)
        else:
            xs = np.linspace(-0.45 * wide, 0.45 * wide, count) if count > 1 else np.zeros(1)
        layers.append((xs, -height if below else above))
        above += 0 if below else height
    return np.concatenate([np.stack([xs, np.full(len(xs), y)], axis=1) for xs, y in layers])


def layout_springs(nodes: int, edges: Sequence[dict[str, Any]]) -> Points:
    """Fruchterman and Reingold, from a circle: links pull, nodes push. Always the same."""
    order = np.arange(nodes)
    points = circle(nodes) + 0.01 * np.stack([np.sin(order * 12.9898), np.cos(order * 78.233)], axis=1)
    begins, ends = ([edge[name] for edge in edges] for name in ("from", "to"))
    pulls = np.zeros((nodes, nodes))
    pulls[begins, ends] = pulls[ends, begins] = 1
    ideal = 2.0 / math.sqrt(max(nodes, 1))
    for step in range(600):
        apart = points[:, None, :] - points[None, :, :]
        distance = np.maximum(np.linalg.norm(apart, axis=2), 1e-3)
        force = ideal**2 / distance**2 - pulls * distance / ideal
        np.fill_diagonal(force, 0)
        move = (apart * force[:, :, None]).sum(axis=1)
        length = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        points = points + move / length * np.minimum(length, 0.1 * (1 - step / 600))
    return points - points.mean(axis=0)


def layout(data: dict[str, Any]) -> Points:
    """A point per device, then one per switch, by kind."""
    ranks, switches, kind, group_size = (data[name] for name in ("ranks", "switches", "kind", "group_size"))
    if kind == "torus":
        return layout_torus(data["shape"])
    if kind == "fat_tree":
        plain = [ranks // group_size, switches - ranks // group_size - 1, 1]
        sorts = data.get("switch_sorts", plain if switches > plain[0] else plain[:1])
        return layout_fat_tree(ranks, group_size, sorts, data.get("inside", "switch") == "switch")
    if kind in ("numa", "dragonfly", "graph") and ranks + switches > 2:
        return layout_springs(ranks + switches, data["edges"])
    middle = np.zeros((1, 2)) if switches == 1 else circle(switches, 0.4)
    return np.concatenate([circle(ranks), middle[:switches]])


def several_rows(data: dict[str, Any]) -> bool:
    """Whether this is a torus on a grid, in which links go on at the other side."""
    return data["kind"] == "torus" and sum(extent > 1 for extent in data["shape"]) > 1


def links_of(data: dict[str, Any]) -> pd.DataFrame:
    """A row per link and class, whatever its direction: low, high, name, colour, share of the widest; as in the file.

    stride: how far apart in number neighbours are, for a link that closes a row of a torus; else 0.
    """
    links = pd.DataFrame(data["edges"], columns=["from", "to", "class", "gb_per_s"])
    low, high = np.sort(links[["from", "to"]].to_numpy(dtype=int), axis=1).T
    name, share = links["class"].replace(OTHER_WAY), links["gb_per_s"] / links["gb_per_s"].max()
    colours = dict(zip(name.unique(), itertools.cycle(LINK_COLOURS)))
    links = links.assign(low=low, high=high, name=name, colour=name.map(colours), share=share, stride=0)
    for place, extent in enumerate(data["shape"]) if several_rows(data) else ():
        stride = math.prod(data["shape"][place + 1 :])
        links.loc[(extent > 2) & (high - low == stride * (extent - 1)), "stride"] = stride
    return links.drop_duplicates(["low", "high", "name"])


def draw_links(axes: Axes, data: dict[str, Any], links: pd.DataFrame, points: Points) -> None:
    """Lines, and in place of those with faults what is left of them."""
    node = {f"rank{i}": i for i in range(data["ranks"])}
    node |= {f"switch{i}": data["ranks"] + i for i in range(data["switches"])}
    faults = {(node[f["from"]], node[f["to"]]): f["bandwidth_factor"] for f in data["faults"]}
    thin, alpha = (0.5, 0.55) if len(data["edges"]) > 600 else (1, 0.9)
    for link in links.itertuples():
        low, high, stride = link.low, link.high, link.stride
        if (low, high) in faults or (high, low) in faults:
            continue
        lines = [(points[low], points[high])]
        if stride:  # it leaves on one side and comes back on the other
            ends = ((low, low + stride), (high, high - stride))
            lines = [(points[end], points[end] + 0.55 * (points[end] - points[other])) for end, other in ends]
        look = {"color": link.colour, "alpha": alpha, "zorder": 1, "solid_capstyle": "butt"}
        look |= {"linewidth": thin * (0.8 + 2.2 * math.sqrt(link.share)), "linestyle": DASHED if stride else "-"}
        for line in lines:
            axes.plot(*np.stack(line).T, **look)
    for index, ((begin, end), factor) in enumerate(faults.items()):
        axes.plot(*points[[begin, end]].T, color=FAULT, linewidth=2, linestyle=(0, (3, 2)))
        at = points[begin] + (0.5 + 0.12 * (index % 3 - 1)) * (points[end] - points[begin])
        text = axes.text(*at, f"{100 * factor:g} %" if factor else "failed", ha="center", va="center", size="small")
        text.set(color=style.readable(FAULT), zorder=5, bbox={"boxstyle": "square,pad=0.15", "color": "white"})


def draw_nodes(axes: Axes, data: dict[str, Any], points: Points, radius: float) -> None:
    """Devices, switches, and which of them are late."""
    late = {each["rank"]: each["delay_us"] for each in data["stragglers"]}
    ranks = data["ranks"]
    size = 9 if ranks <= 16 else 7 if ranks <= 32 else 5.5
    for node, (x, y) in enumerate(points):
        if node < ranks:
            colour = STRAGGLER if node in late else DEVICE
            axes.add_patch(Circle((x, y), radius, color=colour, zorder=3, linewidth=0))
            text = axes.text(x, y, str(node), size=size, color=style.ink_on(colour), weight="bold")
        else:
            corner, box = (x - 0.75 * radius, y - 0.75 * radius), f"round,pad={0.12 * radius}"
            look = {"facecolor": "white", "edgecolor": INK, "linewidth": 1.2, "zorder": 3}
            axes.add_patch(FancyBboxPatch(corner, 1.5 * radius, 1.5 * radius, boxstyle=box, **look))
            text = axes.text(x, y, str(node - ranks), size=size - 1)
        text.set(ha="center", va="center_baseline", zorder=4)
        if node in late:
            note = axes.text(x, y - 1.35 * radius, f"+{late[node]:g} µs", size="small", ha="center", va="top", zorder=5)
            note.set(color=style.readable(STRAGGLER), path_effects=style.HALO)


def switch_words(data: dict[str, Any]) -> list[str]:
    """Returns the numbers of switches by sort: `switch 0 to 7: inside the servers`."""
    sorts = re.findall(r"switch(\d+)(?: to switch(\d+))?(?: \(([^)]*)\))?", data.get("nodes", ""))
    words = [f"switch {first}{last and f' to {last}'}{what and f': {what}'}" for first, last, what in sorts]
    return (words or ["switch"]) if data["switches"] else []


def legend_of(data: dict[str, Any], links: pd.DataFrame) -> list[Any]:
    """Classes of links with their figures, then what nodes and marks mean."""
    figures = {each["link_class"]: each for each in data["link_classes"]}
    entries = []
    for name, colour in links.drop_duplicates("name")[["name", "colour"]].itertuples(index=False):
        each = figures[name]
        label = f"{NAMES.get(name, name)}: {each['bandwidth_gb_per_s']:g} GB/s each way, {each['latency_us']:g} µs"
        entries.append(handle(f"{label} ({each['bandwidth_source']})", color=colour, linewidth=2.5, linestyle="-"))
    if several_rows(data) and max(data["shape"]) > 2:
        look = {"color": LINK_COLOURS[0], "linestyle": DASHED, "linewidth": 2.5}
        entries.append(handle("the same, goes on at the other side", **look))
    entries.append(handle(f"device: {data['device']}", color=DEVICE, marker="o"))
    entries += [handle(words, color="white", marker="s", markeredgecolor=INK) for words in switch_words(data)]
    entries += [handle("straggler", color=STRAGGLER, marker="o")] if data["stragglers"] else []
    return entries + ([handle("fault", color=FAULT, linestyle=(0, (3, 2)), linewidth=2)] if data["faults"] else [])


@style.drawn
def topology(data: dict[str, Any]) -> Figure:
    """The picture of a topology (JSON of `arlab topology show` with edges): devices, switches, links by class."""
    points, links = layout(data), links_of(data)
    apart = np.linalg.norm(points[:, None, :] - points[None, :, :], axis=2) + np.diag(np.full(len(points), np.inf))
    extent = np.ptp(points, axis=0) if len(points) > 1 else np.ones(2)
    largest = float(max(extent.max(), 1e-6))
    radius = min(0.33 * float(apart.min()), 0.06 * largest) if len(points) > 1 else 0.2
    margin = max(2.2 * radius + 0.02 * largest, 0.6 * (data["kind"] == "torus"))
    low, high = points.min(axis=0) - margin, points.max(axis=0) + margin
    at_most = "" if data["bisection_exact"] else "at most "
    ((width, _),) = style.sizes("figure.figsize")
    figure = style.new_page(
        f"{data['topology']}: {data['ranks']} devices, bisection {at_most}{data['bisection_gb_per_s']:g} GB/s",
        f"{data['summary']}; {data['switches']} switches",
        legends=[legend_of(data, links)],
        body_in=min(1.0, (high - low)[1] / (high - low)[0]) * min(width, 8.0),
    )
    axes = figure.subplots()
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    axes.set_axis_off()
    draw_links(axes, data, links, points)
    draw_nodes(axes, data, points, radius)
    return figure
