#!/usr/bin/env python3
"""Draws a topology of `arlab topology show`: `plot_topology.py TOPOLOGY.json PICTURE.png|.svg`.

Devices are circles with their rank, switches squares. Links of one class share a colour; a link and
the one back are one line. Faults and stragglers stand out. The layout follows the kind: meshes,
switches and rings on a circle, tori on grids, NUMA groups and dragonfly groups side by side, fat
trees in layers, and graphs by springs.

Equal files give equal bytes. Exit code: 0, or 2 for bad usage or input.
"""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import picture
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from plot_study import GREY, INK

DEVICE = "#0072B2"
STRAGGLER = "#CC79A7"
FAULT = "#D55E00"
# Okabe and Ito's palette, less what devices and faults use.
LINK_COLOURS = ("#777777", "#009E73", "#E69F00", "#56B4E9", "#882255", "#999933")
DPI = 150
STYLE: dict[str, Any] = {
    "text.parse_math": False,
    "text.color": INK,
    "svg.hashsalt": "arlab",
    "svg.fonttype": "path",
}
# Classes whose two directions make one link.
OTHER_WAY = {"port_in": "port_out", "nic_in": "nic_out", "downlink": "uplink"}
NAMES = {"port_out": "port", "nic_out": "network card"}

Points = NDArray[np.float64]


# ---------------------------------------------------------------- layouts: a point per node


def circle(count: int, radius: float = 1.0) -> Points:
    """From the top, clockwise."""
    angles = math.pi / 2 - 2 * math.pi * np.arange(count) / max(count, 1)
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def line(count: int, width: float, y: float) -> Points:
    """Evenly spread from -width/2 to width/2."""
    x = np.linspace(-width / 2, width / 2, count) if count > 1 else np.zeros(1)
    return np.stack([x, np.full(count, y)], axis=1)


def layout_star(ranks: int, switches: int) -> Points:
    """Devices on a circle, switches in the middle."""
    middle = np.zeros((1, 2)) if switches == 1 else circle(switches, 0.4)
    return np.concatenate([circle(ranks), middle[:switches]])


def layout_torus(shape: Sequence[int]) -> Points:
    """Rows and columns are the two last dimensions; planes of further ones stand behind."""
    extents = [extent for extent in shape if extent > 1] or [1]
    if len(extents) == 1:
        return circle(extents[0])
    rows, columns = extents[-2], extents[-1]
    planes = math.prod(extents[:-2])
    return np.array(
        [
            (column + plane / planes, -row + plane / planes)
            for plane in range(planes)
            for row in range(rows)
            for column in range(columns)
        ]
    )


def way_round(shape: Sequence[int], begin: int, end: int) -> int | None:
    """How far apart in number the neighbours of that dimension are, when a link closes a row of a
    torus of several dimensions; else None."""
    if sum(extent > 1 for extent in shape) < 2:
        return None
    stride = math.prod(shape)
    for extent in shape:
        stride //= extent
        if extent > 2 and abs(end - begin) == stride * (extent - 1):
            return stride
    return None


def layout_groups(ranks: int, group_size: int) -> Points:
    """Every group is a switch with its devices below or above, whichever has more room."""
    groups = ranks // group_size
    width = max(1.0, 0.55 * group_size)
    devices, switches = [], []
    if groups <= 2:
        for group in range(groups):
            x = (group - (groups - 1) / 2) * (width + 1.2)
            switches.append((x, 0.0))
            for i in range(group_size):
                offset = (i - (group_size - 1) / 2) * width / max(group_size - 1, 1)
                devices.append((x + offset, -1.1))
    else:
        for group, (x, y) in enumerate(circle(groups, 1.0)):
            switches.append((x, y))
            outwards = math.atan2(y, x)
            spread = min(0.8 * 2 * math.pi / groups, math.pi)
            for i in range(group_size):
                angle = outwards - (i / max(group_size - 1, 1) - 0.5) * spread
                devices.append((1.8 * math.cos(angle), 1.8 * math.sin(angle)))
    return np.array(devices + switches)


def layout_fat_tree(ranks: int, group_size: int, switches: int) -> Points:
    """From the bottom: switches of servers, devices, leaves, the core."""
    servers = ranks // group_size
    x, place = [], 0.0
    for rank in range(ranks):
        if rank and rank % group_size == 0:
            place += 0.8
        x.append(place)
        place += 1.0
    across = np.array(x) - np.mean(x)
    height = max(2.0, (across[-1] - across[0]) / 7)
    devices = np.stack([across, np.zeros(ranks)], axis=1)
    inside = np.array(
        [(np.mean(across[s * group_size : (s + 1) * group_size]), -height) for s in range(servers)]
    )
    leaves = switches - servers - 1
    if leaves <= 0:
        return np.concatenate([devices, inside])
    above = line(leaves, float(across[-1] - across[0]) * 0.9, 1.6 * height)
    return np.concatenate([devices, inside, above, [(0.0, 2.6 * height)]])


def layout_dragonfly(ranks: int, routers: int, per_router: int, switches: int) -> Points:
    """Groups on a circle, routers of a group on a small one, devices outside of it."""
    groups = switches // routers
    centres = circle(groups, 1.0) if groups > 1 else np.zeros((1, 2))
    near = 0.55 * math.sin(math.pi / max(groups, 2)) + 0.02
    router_points, device_points = [], []
    for centre in centres:
        begin = math.atan2(centre[1], centre[0]) if groups > 1 else math.pi / 2
        for router in range(routers):
            angle = begin - 2 * math.pi * router / routers
            router_points.append(centre + 0.5 * near * np.array([math.cos(angle), math.sin(angle)]))
            wide = 2 * math.pi / routers * 0.7
            for i in range(per_router):
                turn = angle - ((i + 0.5) / per_router - 0.5) * wide
                device_points.append(centre + near * np.array([math.cos(turn), math.sin(turn)]))
    return np.concatenate([np.array(device_points)[:ranks], np.array(router_points)])


def layout_springs(nodes: int, edges: Sequence[dict[str, Any]]) -> Points:
    """Fruchterman and Reingold, from a circle: links pull, nodes push. Always the same."""
    points = circle(nodes) + 0.01 * np.stack(
        [np.sin(np.arange(nodes) * 12.9898), np.cos(np.arange(nodes) * 78.233)], axis=1
    )
    pulls = np.zeros((nodes, nodes))
    for edge in edges:
        pulls[edge["from"], edge["to"]] = pulls[edge["to"], edge["from"]] = 1
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


def layout(topology: dict[str, Any]) -> Points:
    """By kind."""
    ranks, switches = topology["ranks"], topology["switches"]
    kind, group_size = topology["kind"], topology["group_size"]
    if kind == "torus":
        return layout_torus(topology["shape"])
    if kind == "numa":
        return layout_groups(ranks, group_size)
    if kind == "fat_tree":
        return layout_fat_tree(ranks, group_size, switches)
    if kind == "dragonfly":
        return layout_dragonfly(ranks, group_size, topology["ranks_per_router"], switches)
    if kind == "graph" and ranks + switches > 2:
        return layout_springs(ranks + switches, topology["edges"])
    return layout_star(ranks, switches)


# ---------------------------------------------------------------- the picture


def node_of(name: str, ranks: int) -> int:
    """rank3 or switch0, as a number."""
    if name.startswith("switch"):
        return ranks + int(name.removeprefix("switch"))
    return int(name.removeprefix("rank"))


def draw_links(
    axes: Axes, topology: dict[str, Any], points: Points
) -> list[tuple[str, str]]:
    """Lines, by class; returns (class, colour) in the order of the file."""
    ranks = topology["ranks"]
    faults = {
        (node_of(f["from"], ranks), node_of(f["to"], ranks)): f["bandwidth_factor"]
        for f in topology["faults"]
    }
    classes: dict[str, str] = {}
    drawn: set[tuple[int, int, str]] = set()
    wide = max((edge["gb_per_s"] for edge in topology["edges"]), default=1.0)
    thin = 0.5 if len(topology["edges"]) > 600 else 1.0
    shape = topology["shape"] if topology["kind"] == "torus" else []
    for edge in topology["edges"]:
        name = OTHER_WAY.get(edge["class"], edge["class"])
        colour = classes.setdefault(name, LINK_COLOURS[len(classes) % len(LINK_COLOURS)])
        ends = (edge["from"], edge["to"])
        key = (min(ends), max(ends), name)
        if key in drawn or faults.get(ends, faults.get(ends[::-1])) is not None:
            continue
        drawn.add(key)
        begin, end = points[ends[0]], points[ends[1]]
        width = thin * (0.8 + 2.2 * math.sqrt(edge["gb_per_s"] / wide))
        stride = way_round(shape, *ends)
        if stride is None:
            lines = [(begin, end)]
        else:  # it leaves on one side and comes back on the other
            low, high = min(ends), max(ends)
            out = 0.55 * (points[low] - points[low + stride])
            back = 0.55 * (points[high] - points[high - stride])
            lines = [(points[low], points[low] + out), (points[high], points[high] + back)]
        for one, other in lines:
            axes.plot(
                *np.stack([one, other]).T,
                color=colour,
                linewidth=width,
                linestyle="-" if stride is None else (0, (2, 1.5)),
                alpha=0.55 if thin < 1 else 0.9,
                zorder=1,
                solid_capstyle="butt",
            )
    for index, ((begin_node, end_node), factor) in enumerate(faults.items()):
        begin, end = points[begin_node], points[end_node]
        axes.plot(*np.stack([begin, end]).T, color=FAULT, linewidth=2, linestyle=(0, (3, 2)))
        at = begin + (0.5 + 0.12 * (index % 3 - 1)) * (end - begin)
        label = "failed" if factor == 0 else f"{100 * factor:g} %"
        axes.text(
            *at,
            label,
            size=8,
            color=FAULT,
            ha="center",
            va="center",
            zorder=5,
            bbox={"boxstyle": "square,pad=0.15", "color": "white"},
        )
    return list(classes.items())


def draw_nodes(axes: Axes, topology: dict[str, Any], points: Points, radius: float) -> None:
    """Devices, switches, and which of them are late."""
    late = {each["rank"]: each["delay_us"] for each in topology["stragglers"]}
    ranks = topology["ranks"]
    size = 9 if ranks <= 16 else 7 if ranks <= 32 else 5.5
    for node, (x, y) in enumerate(points):
        if node < ranks:
            colour = STRAGGLER if node in late else DEVICE
            axes.add_patch(Circle((x, y), radius, color=colour, zorder=3, linewidth=0))
            axes.text(x, y, str(node), size=size, color="white", zorder=4, weight="bold").set(
                ha="center", va="center_baseline"
            )
            if node in late:
                note = axes.text(x, y - 1.35 * radius, f"+{late[node]:g} µs", size=8, zorder=5)
                note.set(ha="center", va="top", color="#9A3F74")
                note.set_path_effects([withStroke(linewidth=3, foreground="white")])
        else:
            side = 1.5 * radius
            axes.add_patch(
                FancyBboxPatch(
                    (x - side / 2, y - side / 2),
                    side,
                    side,
                    boxstyle=f"round,pad={0.12 * radius}",
                    facecolor="white",
                    edgecolor=INK,
                    linewidth=1.2,
                    zorder=3,
                )
            )
            axes.text(x, y, str(node - ranks), size=size - 1, color=INK, zorder=4).set(
                ha="center", va="center_baseline"
            )


def nearest(points: Points) -> float:
    """The least distance between two nodes."""
    if len(points) < 2:
        return 1.0
    apart = np.linalg.norm(points[:, None, :] - points[None, :, :], axis=2)
    np.fill_diagonal(apart, np.inf)
    return float(apart.min())


def legend_entries(topology: dict[str, Any], classes: list[tuple[str, str]]) -> list[Line2D]:
    """Classes of links with their figures, then what nodes and marks mean."""
    figures = {each["link_class"]: each for each in topology["link_classes"]}
    entries = []
    for name, colour in classes:
        each = figures[name]
        label = (
            f"{NAMES.get(name, name)}: {each['bandwidth_gb_per_s']:g} GB/s each way, "
            f"{each['latency_us']:g} µs ({each['bandwidth_source']})"
        )
        entries.append(Line2D([], [], color=colour, linewidth=2.5, label=label))
    if topology["kind"] == "torus" and sum(extent > 2 for extent in topology["shape"]) > 0:
        dashed = Line2D([], [], color=LINK_COLOURS[0], linewidth=2.5, linestyle=(0, (2, 1.5)))
        dashed.set_label("the same, goes on at the other side")
        if sum(extent > 1 for extent in topology["shape"]) > 1:
            entries.append(dashed)
    entries.append(mark(DEVICE, "o", f"device: {topology['device']}"))
    if topology["switches"]:
        switch = mark("white", "s", "switch")
        switch.set(markeredgecolor=INK)
        entries.append(switch)
    if topology["stragglers"]:
        entries.append(mark(STRAGGLER, "o", "straggler"))
    if topology["faults"]:
        entries.append(
            Line2D([], [], color=FAULT, linewidth=2, linestyle=(0, (3, 2)), label="fault")
        )
    return entries


def mark(colour: str, marker: str, label: str) -> Line2D:
    """A legend entry."""
    return Line2D([], [], color=colour, marker=marker, linestyle="", markersize=8, label=label)


def draw(topology: dict[str, Any]) -> Figure:
    """The whole picture."""
    points = layout(topology)
    unit = nearest(points)
    extent = np.ptp(points, axis=0) if len(points) > 1 else np.ones(2)
    largest = float(max(extent.max(), 1e-6))
    radius = min(0.33 * unit, 0.06 * largest) if len(points) > 1 else 0.2
    width_in = 9.0
    aspect = float(np.clip((extent[1] + 6 * radius) / (extent[0] + 6 * radius), 0.35, 1.0))
    bottom_in = 0.28 * (len(topology["link_classes"]) + 4) + 0.2
    title_in = 0.9
    height_in = (width_in - 0.6) * aspect + title_in + bottom_in
    figure = Figure(figsize=(width_in, height_in), dpi=DPI)
    axes = figure.add_axes(
        (0.03, bottom_in / height_in, 0.94, (height_in - title_in - bottom_in) / height_in)
    )
    margin = max(2.2 * radius + 0.02 * largest, 0.6 * (topology["kind"] == "torus"))
    low, high = points.min(axis=0) - margin, points.max(axis=0) + margin
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal")
    axes.set_axis_off()
    classes = draw_links(axes, topology, points)
    draw_nodes(axes, topology, points, radius)
    left = 0.25 / width_in
    figure.text(
        left,
        1 - 0.32 / height_in,
        "\n".join(textwrap.wrap(f"{topology['topology']}: {topology['summary']}", 78)[:1]),
        size=13,
        weight="bold",
    )
    qualifier = "" if topology["bisection_exact"] else "at most "
    figure.text(
        left,
        1 - 0.6 / height_in,
        f"{topology['ranks']} devices, {topology['switches']} switches; bisection "
        f"{qualifier}{topology['bisection_gb_per_s']:g} GB/s",
        size=9,
        color=GREY,
    )
    figure.legend(
        handles=legend_entries(topology, classes),
        loc="lower left",
        bbox_to_anchor=(left, 0.12 / height_in),
        frameon=False,
        fontsize=9,
        borderpad=0,
        borderaxespad=0,
    )
    return figure


def plot(source: Path, path: Path) -> None:
    """Reads, draws, writes."""
    topology = picture.read_report(source, "arlab.topology", "topology show")
    picture.write_picture(path, STYLE, lambda: draw(topology))


def main() -> int:
    """The command line."""
    return picture.run(
        "Draws a topology of `arlab topology show`.", "TOPOLOGY.json", "PICTURE.png|.svg", plot
    )



if __name__ == "__main__":
    sys.exit(main())
