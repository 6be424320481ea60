"""Latencies and bandwidths of the sources beside simulated ones: QuickReduce's tables, the blog's figures, the paper's tables
9 and 10 and its figure 8."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
from arlab.figures import style, timelines
from arlab.figures.style import BLUE, GREEN, GREY, INK, ORANGE, SKY, WINE, handle
from common import (
    BLOG, PAPER, PUBLISHED, README, Claim, Report, Study, Tables, by_error, in_cases, made, markdown, near, number, of_cases,
    published_table, size,
)  # fmt: skip
from matplotlib.figure import Figure

LOOKS = {
    "rccl": (INK, "o", "RCCL"), "fp16": (GREY, "s", "QR-FP16"), "fp8": (SKY, "D", "QR-FP8"), "q8": (ORANGE, "^", "QR-Q8"),
    "q6": (GREEN, "v", "QR-Q6"), "q4": (WINE, "P", "QR-Q4"),
}  # fmt: skip


@cache
def fits() -> dict[str, str]:
    """Of every published table: which fit its cells are part of."""
    with open(PUBLISHED / "validation.toml", "rb") as file:
        return {table: fit["name"] for fit in tomllib.load(file)["fits"] for table in fit["tables"]}


@cache
def cells_of_all() -> tuple[pd.DataFrame, str]:
    """Every cell of the published tables beside the simulated one, and by which model."""
    program = [os.environ["ARLAB_PROGRAM"], "validate", "--skip-hold-outs", "--format", "json"]
    # With a verdict of its own in the exit code, the program prints all the same.
    data = json.loads(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
    return pd.DataFrame(data["measurements"]), data["provenance"].split(";")[0]


def beside(tables: Sequence[str]) -> pd.DataFrame:
    """The cells of some published tables."""
    cells, model = cells_of_all()
    cells = cells[cells["table"].isin(tables)]
    names = ["table", "topology", "row", "column", "algorithm", "codec", "library", "bytes", "value", "simulated", "error_percent"]
    table = cells[names].rename(columns={"value": "published"})
    fit = " and ".join(sorted({fits()[name] for name in tables}))
    table.attrs["provenance"] = f"published: experiments/published/; {model}, constants of fit {fit}, which saw these cells"
    return table


def simulated(fit: str) -> str:
    return f"simulated, fit {fit}, which saw these cells"


def mean_error(cells: pd.DataFrame) -> float:
    """Of the latency or the bandwidth, in percent."""
    return float((100 * (cells["simulated"] / cells["published"] - 1)).abs().mean())


# ---------------------------------------------------------------- QuickReduce README


def run_quickreduce(plan: dict[str, Any]) -> Tables:
    import arlab

    cells = beside(plan["tables"])
    sweep = arlab.sweep(**plan["sweep"]).table
    columns = ["topology", "ranks", "algorithm", "codec", "bytes", "latency_us"]
    shown = sweep[columns].rename(columns={"latency_us": "simulated_us"})
    return {"cells": cells, "algorithms": made(shown.to_dict("records"), provenance=sweep.attrs["provenance"])}


def times_of(cells: pd.DataFrame, topology: str, kind: str) -> pd.DataFrame:
    """A table of times by size and column."""
    return cells[cells["topology"] == topology].pivot(index="bytes", columns="column", values=kind)[list(LOOKS)]


def gains(cells: pd.DataFrame, topology: str, kind: str) -> pd.DataFrame:
    """How many times as fast as RCCL."""
    times = times_of(cells, topology, kind)
    return times.drop(columns="rccl").rdiv(times["rccl"], axis=0)


def draw_quickreduce(cells: pd.DataFrame, speedup: bool) -> Figure:
    topologies = list(cells["topology"].unique())
    looks = {name: look for name, look in LOOKS.items() if not (speedup and name == "rccl")}
    legends = [
        [handle(text, color=colour, marker=marker) for colour, marker, text in looks.values()],
        [handle("published", color=GREY, marker="o"), handle("simulated", color=GREY, linewidth=1.6, linestyle="-")],
    ]
    errors = ", ".join(f"{mean_error(cells[cells['topology'] == each]):.1f} %" for each in topologies)
    title = "How many times as fast as RCCL" if speedup else "Latency of an all-reduce of FP16"
    figure = style.new_page(
        f"{title}: QuickReduce's README beside the simulator", f"Mean absolute error of the latency: {errors}", [],
        "Published: MK1 QuickReduce README. Simulated: arlab validate, constants of fit mi300x.", legends, 3.4,
    )  # fmt: skip
    for axes, topology in zip(style.panels(figure, len(topologies), sharey=True), topologies):
        for kind in ("simulated", "published"):
            values = gains(cells, topology, kind) if speedup else times_of(cells, topology, kind)
            for name, (colour, marker, _) in looks.items():
                look = {"marker": marker, "linestyle": ""} if kind == "published" else {"linestyle": "-"}
                axes.plot(values.index, values[name], color=colour, markersize=5, **look)
        axes.set_xscale("log", base=2)
        ticks = list(values.index)[::4] + [values.index[-1]]
        axes.set_xticks(ticks, [size(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.grid()
        axes.set_title(topology)
        if speedup:
            axes.axhline(1, color=INK, linewidth=0.9)
        else:
            style.log_axis(axes.yaxis, cells["published"], most=8)
    figure.axes[0].set_ylabel("times as fast as RCCL" if speedup else "latency (µs)")
    return figure


def report_quickreduce(tables: Tables, plan: dict[str, Any]) -> Report:
    cells, by = tables["cells"], tables["algorithms"]
    how, claims, rows = simulated("mi300x"), [], []
    topologies = list(cells["topology"].unique())
    for topology in topologies:
        mine = cells[cells["topology"] == topology]
        error = mean_error(mine)
        claims.append(Claim(
            README, f"latencies on {topology}, {len(mine)} cells", "table", f"{error:.1f} % off on average", how, by_error(error),
        ))  # fmt: skip
        old, new = gains(cells, topology, "published"), gains(cells, topology, "simulated")
        rows += [
            (topology, LOOKS[codec][2], float(old[codec].max()), size(old[codec].idxmax()), float(new[codec].max()),
             size(new[codec].idxmax()), mean_error(mine[mine["column"] == codec]))
            for codec in old
        ]  # fmt: skip
    best = pd.DataFrame(rows, columns=["machine", "codec", "published", "at", "simulated", "at ", "error of the latency, %"])
    q6 = {kind: gains(cells, topologies[0], kind)["q6"].max() for kind in ("published", "simulated")}
    claims.append(Claim(
        README, 'up to 2.25 times as fast as RCCL "on 2 and 4 x MI300X" (in its tables: QR-Q6 on 2)',
        number(q6["published"]), number(float(q6["simulated"])), how, near(q6["published"], q6["simulated"]),
    ))  # fmt: skip
    wins = {k: pd.concat([gains(cells, each, k).max(axis=1) > 1 for each in topologies]) for k in ("published", "simulated")}
    claims.append(Claim(
        README, "faster than RCCL for all numbers of GPUs when tuned", f"{of_cases(wins['published'], 'sizes')} (its tables)",
        of_cases(wins["simulated"], "sizes"), how, in_cases(wins["simulated"]),
    ))  # fmt: skip
    two = {k: gains(cells, topologies[0], k)[["fp16", "q6"]].max(axis=1) > 1 for k in ("published", "simulated")}
    claims.append(Claim(
        README, "its figure: on 2 GPUs the better of QR-FP16 and QR-Q6 beats RCCL at every size",
        of_cases(two["published"], "sizes"), of_cases(two["simulated"], "sizes"), how, in_cases(two["simulated"]),
    ))  # fmt: skip
    starts = {}
    for kind in ("published", "simulated"):
        starts[kind] = []
        for topology in topologies:
            times = times_of(cells, topology, kind)
            slower = times.index[times["q6"] > times["fp16"]].max()
            starts[kind].append(int(2 * slower))
    steps = [max(a, b) // min(a, b) for a, b in zip(starts["published"], starts["simulated"])]
    claims.append(Claim(
        README, "QR-FP16 is best for small messages, QR-Q6 for large: from which size on, by machine",
        ", ".join(map(size, starts["published"])), ", ".join(map(size, starts["simulated"])), how,
        in_cases([step == 1 for step in steps]),
    ))  # fmt: skip
    time = by.set_index(["ranks", "algorithm", "codec", "bytes"])["simulated_us"]
    smallest = by["bytes"].min()
    ratio = {n: time[n, "one_shot", "fp16", smallest] / time[n, "two_shot", "fp16", smallest] for n in sorted(by["ranks"].unique())}
    claims.append(Claim(
        README, "one_shot is on par with two_shot at smaller workloads", "(no figures)",
        f"{', '.join(f'{each:.2f}' for each in ratio.values())} times the latency at {size(smallest)} on "
        f"{', '.join(map(str, ratio))} GPUs", "simulated, fit mi300x; no one_shot was fitted",
        in_cases([0.9 <= each <= 1.1 for each in ratio.values()]),
    ))  # fmt: skip
    large = by[(by["ranks"] == by["ranks"].max()) & (by["bytes"] >= 1 << 20)].pivot(
        index=["codec", "bytes"], columns="algorithm", values="simulated_us"
    )
    faster = large["two_shot"] < large["one_shot"]
    claims.append(Claim(
        README, f"two_shot is faster at larger world sizes (here: {by['ranks'].max()} GPUs, from 1 MiB on)", "(no figures)",
        of_cases(faster), "simulated, fit mi300x; no one_shot was fitted", in_cases(faster),
    ))  # fmt: skip
    worst = cells.loc[cells["error_percent"].abs().idxmax()]
    words = {
        "best": markdown(best),
        "error": f"{mean_error(cells):.1f} %", "cells": len(cells),
        "worst": f"{worst['error_percent']:+.0f} % ({LOOKS[worst['column']][2]}, {size(worst['bytes'])}, {worst['topology']})",
    }  # fmt: skip
    figures = {name: partial(style.drawn(draw_quickreduce), cells, name == "speedup") for name in ("latency", "speedup")}
    return Report(claims, figures, words)


# ---------------------------------------------------------------- the blog's figures 3 to 5

BLOG_LOOKS = {
    "library": (INK, (0, (2, 2)), "RCCL"), "custom": (BLUE, (0, (5, 1)), "custom all-reduce (modelled)"),
    "fp16": (GREY, "-", "QuickReduce fp16"), "qr-q8": (ORANGE, "-", "fp16 to int8"), "qr-q6": (GREEN, "-", "to int6"),
    "qr-q4": (WINE, "-", "to int4"),
}  # fmt: skip


def run_blog(plan: dict[str, Any]) -> Tables:
    import arlab

    sweep = arlab.sweep(**plan["sweep"], library=True).table
    rows = []
    for (ranks, count), each in sweep.groupby(["ranks", "bytes"]):
        library = each["implementation"].str.startswith("library")
        fused, plain = each[~library], ~library & (each["codec"] == "fp16")
        times = {"library": each.loc[library, "latency_us"].min()}
        if count < plan["custom_below_bytes"]:
            times["custom"] = each.loc[plain, "latency_us"].min()
        two = fused[fused["algorithm"] == "two_shot"].set_index("codec")["latency_us"]
        rows += [(ranks, count, name, time) for name, time in {**times, **two}.items()]
    table = made(rows, ["tp", "bytes", "method", "simulated_us"], provenance=f"{sweep.attrs['provenance']}; constants of fit mi300x")
    baseline = table[table["method"].isin(["library", "custom"])].groupby(["tp", "bytes"])["simulated_us"].min()
    table["speedup"] = [baseline[tp, count] / time for tp, count, time in zip(table["tp"], table["bytes"], table["simulated_us"])]
    return {"speedup": table}


def winners(table: pd.DataFrame) -> pd.DataFrame:
    """The fastest method of every size; of equals the baseline, then less compression."""
    ordered = table.assign(place=table["method"].map(list(BLOG_LOOKS).index)).sort_values(["tp", "bytes", "place"])
    return ordered.loc[ordered.groupby(["tp", "bytes"])["speedup"].idxmax()]


def draw_blog(table: pd.DataFrame) -> Figure:
    best, degrees = winners(table), sorted(table["tp"].unique())
    legends = [[handle(text, color=colour, linewidth=2, linestyle=line) for colour, line, text in BLOG_LOOKS.values()]]
    tops = ", ".join(f"{best[best['tp'] == tp]['speedup'].max():.2g} times with TP {tp}" for tp in degrees)
    figure = style.new_page(
        f"The best all-reduce is at most {tops} as fast as the baseline",
        "Speed-up over the faster of RCCL and vLLM's custom all-reduce, simulated; the band below says which method is fastest",
        ["Custom all-reduce: the faster of one_shot and two_shot, uncompressed, below 16 MiB. QuickReduce: two_shot."],
        "Simulated: model event-driven, mi300x-2, -4, -8, constants of fit mi300x. To compare with figures 3 to 5 of the ROCm blog.",
        legends, 3.4,
    )  # fmt: skip
    for axes, tp in zip(style.panels(figure, len(degrees), sharey=True), degrees):
        mine, top = table[table["tp"] == tp], best[best["tp"] == tp]
        for name, (colour, line, _) in BLOG_LOOKS.items():
            each = mine[mine["method"] == name]
            axes.plot(each["bytes"], each["speedup"], color=colour, linestyle=line)
        axes.plot(top["bytes"], top["speedup"], color=INK, linewidth=5, alpha=0.15)
        for count, name in zip(top["bytes"], top["method"]):
            axes.axvspan(count / 2**0.5, count * 2**0.5, 0, 0.05, color=BLOG_LOOKS[name][0], linewidth=0)
        axes.set_xscale("log", base=2)
        ticks = sorted(mine["bytes"].unique())[::5]
        axes.set_xticks(ticks, [size(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=-0.1)
        axes.grid()
        axes.set_title(f"TP {tp}")
    figure.axes[0].set_ylabel("times as fast as the baseline")
    return figure


def report_blog(tables: Tables, plan: dict[str, Any]) -> Report:
    table, how = tables["speedup"], "simulated, fit mi300x; custom all-reduce modelled, not fitted"
    best = winners(table)
    degrees, tops = sorted(table["tp"].unique()), best.groupby("tp")["speedup"].max()
    small = best[best["bytes"] < 2 << 20]
    loses = small["method"].isin(["library", "custom"])
    names = {name: text for name, (_, _, text) in BLOG_LOOKS.items()}
    bands = []
    for tp in degrees:
        mine = best[best["tp"] == tp]
        blocks = mine.groupby((mine["method"] != mine["method"].shift()).cumsum())
        bands += [(tp, f"{size(b['bytes'].min())} to {size(b['bytes'].max())}", names[b["method"].iloc[0]], b["speedup"].max()) for _, b in blocks]
    claims = [
        Claim(BLOG, "title, figures 3 to 5: up to 3 times as fast", "3", number(float(tops.max())), how, near(3, tops.max())),
        Claim(
            BLOG, "figures 3 to 5: the less parallelism, the greater the acceleration (TP 2 > 4 > 8)", "2 > 4 > 8",
            ", ".join(f"TP {tp}: {tops[tp]:.2f}" for tp in degrees), how,
            in_cases([tops[a] > tops[b] for a, b in zip(degrees, degrees[1:])]),
        ),
        Claim(
            BLOG, "below 2 MB QuickReduce is not the fastest option", "(no figures)",
            f"the baseline is fastest in {of_cases(loses, 'sizes')}", how, in_cases(loses),
        ),
    ]  # fmt: skip
    words = {"bands": markdown(pd.DataFrame(bands, columns=["TP", "payload", "fastest", "largest speed-up"]))}
    return Report(claims, {"speedup": partial(style.drawn(draw_blog), table)}, words)


# ---------------------------------------------------------------- the paper's tables 9 and 10


def run_bandwidth(plan: dict[str, Any]) -> Tables:
    return {"cells": beside([plan["table"]])}


def draw_bandwidth(cells: pd.DataFrame, title: str) -> Figure:
    rows, codecs = list(cells["row"].unique()), list(cells["column"].unique())
    colours = dict(zip(codecs, (INK, *style.PALETTE)))
    legends = [[handle(name, color=colours[name], marker="s") for name in codecs] + [handle("published", color=INK, marker="_", markersize=14)]]
    figure = style.new_page(
        title, f"Bars: simulated; marks: published. Mean absolute error {mean_error(cells):.1f} %", [],
        "Published: Flash Communication V2. Simulated: arlab validate, constants of fit flashcomm2.", legends, 3.2,
    )  # fmt: skip
    axes = figure.subplots()
    for i, row in enumerate(rows):
        mine = cells[cells["row"] == row].set_index("column")
        width = 0.84 / len(codecs)
        for codec in mine.index:
            x = i - 0.42 + (codecs.index(codec) + 0.5) * width
            axes.bar(x, mine.loc[codec, "simulated"], 0.9 * width, color=colours[codec])
            axes.hlines(mine.loc[codec, "published"], x - 0.5 * width, x + 0.5 * width, color="white", linewidth=4)
            axes.hlines(mine.loc[codec, "published"], x - 0.5 * width, x + 0.5 * width, color=INK, linewidth=1.8)
    axes.set_xticks(range(len(rows)), [row.replace(" ", "\n", 1) for row in rows])
    style.log_axis(axes.yaxis, cells["published"], most=9)
    axes.grid(axis="y")
    axes.set_ylabel("algorithmic bandwidth (GB/s)")
    return figure


def ratios(cells: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Bandwidths over that of NCCL on the same machine (the first word of a row), a row per row, a column per codec."""
    table = cells.pivot(index="row", columns="column", values=kind).loc[list(cells["row"].unique())]
    machines = [row.split()[0] for row in table.index]
    base = {machine: value for machine, value in zip(machines, table["bf16_nccl"]) if value == value}
    return table.drop(columns="bf16_nccl").div([base[machine] for machine in machines], axis=0)


def common_claims(cells: pd.DataFrame, plan: dict[str, Any]) -> tuple[list[Claim], dict[str, Any]]:
    """Of both tables: how far off, and the speed-ups that the text names."""
    how, error = simulated("flashcomm2"), mean_error(cells)
    where = f"table {plan['number']}"
    claims = [Claim(PAPER, f"{where}: {len(cells)} bandwidths", "table", f"{error:.1f} % off on average", how, by_error(error))]
    old, new = ratios(cells, "published"), ratios(cells, "simulated")
    for row, stated in plan["largest_gain"].items():
        claims.append(Claim(
            PAPER, f"{where}: up to {stated} times NCCL on {row}", str(stated), number(float(new.loc[row].max())), how,
            near(stated, new.loc[row].max()),
        ))  # fmt: skip
    best = [(row, old.loc[row].idxmax(), float(old.loc[row].max()), new.loc[row].idxmax(), float(new.loc[row].max())) for row in old.index]
    heads = ["machine", "best, published", "times NCCL", "best, simulated", "times NCCL "]
    each = cells.assign(error=(100 * (cells["simulated"] / cells["published"] - 1)).abs()).groupby("row", sort=False)["error"]
    frame = pd.DataFrame(best, columns=heads)
    frame["mean error, %"] = [each.mean()[row] for row in frame["machine"]]
    worst = cells.loc[(cells["simulated"] / cells["published"] - 1).abs().idxmax()]
    words = {
        "best": markdown(frame), "error": f"{error:.1f} %",
        "worst": f"{100 * (worst['simulated'] / worst['published'] - 1):+.0f} % ({worst['row']}, {worst['column']})",
        "grid": markdown(cells.assign(cell=[f"{p:g} / {s:.4g}" for p, s in zip(cells["published"], cells["simulated"])])
                         .pivot(index="row", columns="column", values="cell").loc[list(old.index), list(cells["column"].unique())]
                         .fillna("").reset_index()),
    }  # fmt: skip
    return claims, words


def report_allreduce(tables: Tables, plan: dict[str, Any]) -> Report:
    cells, how = tables["cells"], simulated("flashcomm2")
    claims, words = common_claims(cells, plan)
    old, new = ratios(cells, "published"), ratios(cells, "simulated")
    claims.append(Claim(
        PAPER, "table 9: on L40, two-step INT8 is no faster than NCCL in BF16", f"{old.loc['L40 two_step', 'int8']:.2f} times",
        f"{new.loc['L40 two_step', 'int8']:.2f} times", how, in_cases([new.loc["L40 two_step", "int8"] <= 1]),
    ))  # fmt: skip
    fast = [row for row in new.index if not row.startswith("L40")]
    holds = [new.loc[row].idxmax() != "int2_sr" for row in fast]
    claims.append(Claim(
        PAPER, "table 9: with NVLink, INT2 is not the fastest", of_cases([old.loc[r].idxmax() != "int2_sr" for r in fast], "machines"),
        of_cases(holds, "machines"), how, in_cases(holds),
    ))  # fmt: skip
    least = new.loc[fast].max(axis=1).idxmin()
    claims.append(Claim(PAPER, "table 9: H20 gains least of the machines with NVLink", "H20", least, how, in_cases([least == "H20"])))
    gains = new.max(axis=1).groupby(lambda row: row.split()[0], sort=False).max()
    order = published_table("flashcomm2_ttft_speedups").set_index("gpu")["ttft_speedup"].rename(lambda name: name.split()[0])
    from common import by_rank, spearman

    rank = spearman(order, [gains[name] for name in order.index])
    claims.append(Claim(
        PAPER, "figure 2 in kind: speed-ups of the first token are consistent with the bandwidths (order of machines)",
        ", ".join(f"{name} {value:g}" for name, value in order.items()),
        ", ".join(f"{name} {gains[name]:.2f}" for name in order.index) + f"; rank correlation {rank:.2f}", how, by_rank(rank),
    ))  # fmt: skip
    return Report(claims, {"bandwidth": partial(style.drawn(draw_bandwidth), cells, "All-reduce of 8 GPUs: table 9 beside the simulator")}, words)


def report_all2all(tables: Tables, plan: dict[str, Any]) -> Report:
    cells, how = tables["cells"], simulated("flashcomm2")
    claims, words = common_claims(cells, plan)
    old, new = ratios(cells, "published"), ratios(cells, "simulated")
    machines = ["A100", "H800"]
    holds = [new.loc[row].idxmax() == "int4" for row in machines]
    claims.append(Claim(
        PAPER, "table 10: INT4 is the fastest on A100 and H800", of_cases([old.loc[r].idxmax() == "int4" for r in machines], "machines"),
        of_cases(holds, "machines") + f" ({', '.join(new.loc[r].idxmax() for r in machines)})", how, in_cases(holds),
    ))  # fmt: skip
    claims.append(Claim(
        PAPER, "table 10: no benefit on H20", f"at most {old.loc['H20'].max():.2f} times", f"at most {new.loc['H20'].max():.2f} times",
        how, in_cases([new.loc["H20"].max() <= 1]),
    ))  # fmt: skip
    return Report(claims, {"bandwidth": partial(style.drawn(draw_bandwidth), cells, "All-to-all of 8 GPUs: table 10 beside the simulator")}, words)


# ---------------------------------------------------------------- the paper's figure 8


def spans_of(plan: dict[str, Any], algorithm: str, **more: Any) -> tuple[Any, pd.DataFrame, pd.DataFrame]:
    """A simulation and what its trace holds."""
    import arlab

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        run = arlab.simulate(topology=plan["topology"], dtype=plan["dtype"], algorithm=algorithm, trace=path, **more)
        return run, *timelines.spans_of(timelines.read_trace(path))


def run_pipeline(plan: dict[str, Any]) -> Tables:
    import arlab

    rows, spans, model = [], [], ""
    for codec in plan["codecs"]:
        for count in plan["bytes"]:
            common = {"topology": plan["topology"], "dtype": plan["dtype"], "codec": codec, "bytes": count}
            serial = arlab.simulate(algorithm="hierarchical", **common)
            model = serial.provenance
            runs = [("hierarchical", 1, serial)]
            runs += [("hierarchical_pipelined", n, arlab.simulate(algorithm="hierarchical_pipelined", micro_chunks=n, **common)) for n in plan["micro_chunks"]]
            for name, n, each in runs:
                used = dict(zip(each.links["link_class"], each.links["utilisation"]))
                rows.append((codec, count, name, n, each.latency_us, 1 - each.latency_us / serial.latency_us, used["port_out"], used["bridge"]))
    for name in ("hierarchical", "hierarchical_pipelined"):
        _, events, loads = spans_of(plan, name, **plan["shown"])
        for track in plan["tracks"]:
            mine = events[events["track"] == track]
            boxes = timelines.load_boxes(mine, loads[loads["track"] == track])
            steps = [(b, e, int(s)) for s, each in mine.groupby("step") for b, e in timelines.merged(zip(each["begin"], each["end"]))]
            spans += [(name, track, "load", begin, end, share, -1) for begin, end, share in boxes]
            spans += [(name, track, "messages", begin, end, 1.0, step) for begin, end, step in steps]
    heads = ["codec", "bytes", "algorithm", "micro_chunks", "simulated_us", "saving", "ports_used", "bridge_used"]
    how = f"{model}; constants of fit flashcomm2"
    return {
        "latency": made(rows, heads, provenance=how),
        "timeline": made(spans, ["algorithm", "link", "what", "begin_us", "end_us", "share", "step"], provenance=how),
    }


def draw_pipeline(spans: pd.DataFrame, plan: dict[str, Any]) -> Figure:
    ends = spans.groupby("algorithm")["end_us"].max()
    saving = 1 - ends["hierarchical_pipelined"] / ends["hierarchical"]
    legends = [[
        timelines.patch(timelines.LOAD, "bandwidth of the link in use"),
        timelines.patch(timelines.ON_THE_WAY, "messages of a step under way, bandwidth not used"),
        timelines.patch(style.BAND, "a bubble: no messages"),
    ]]  # fmt: skip
    shown = plan["shown"]
    figure = style.new_page(
        f"Micro-chunks fill the bubbles: {100 * saving:.0f} % of the time saved on {plan['topology']}",
        f"All-reduce of {size(int(shown['bytes'][:-1]) << 20)} {plan['dtype']} as {shown['codec']}; above serial, below pipelined; numbers: steps", [],
        f"Simulated: model event-driven, topology {plan['topology']}, constants of fit flashcomm2. To compare with figure 8 of Flash Communication V2.",
        legends, 3.6,
    )  # fmt: skip
    for axes, name in zip(figure.subplots(2, 1, sharex=True), ("hierarchical", "hierarchical_pipelined")):
        mine = spans[spans["algorithm"] == name]
        for place, track in enumerate(plan["tracks"]):
            each = mine[mine["link"] == track].rename(columns={"begin_us": "begin", "end_us": "end"})
            axes.axhspan(place + 0.08, place + 0.92, color=style.BAND, linewidth=0, zorder=0)
            boxes = each[each["what"] == "load"]
            loads = list(zip(boxes["begin"], boxes["end"], boxes["share"]))
            timelines.draw_link(axes, each[each["what"] == "messages"], loads, place, ends.max() / 120)
            used = sum((e - b) * s for b, e, s in loads) / ends[name]
            text = axes.text(1.005, place + 0.5, f"{100 * used:.0f} % used", color=GREY, size="small", va="center")
            text.set_transform(axes.get_yaxis_transform())
        axes.axvline(ends[name], color=INK, linewidth=1)
        axes.set(xlim=(0, ends.max() * 1.001), ylim=(len(plan["tracks"]), 0), title=f"{name}: {style.microseconds(ends[name])}")
        axes.set_yticks([i + 0.5 for i in range(len(plan["tracks"]))], plan["tracks"])
        axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time since the call, µs")
    return figure


def report_pipeline(tables: Tables, plan: dict[str, Any]) -> Report:
    times, spans = tables["latency"], tables["timeline"]
    how = "simulated, fit flashcomm2, which saw table 9"
    piped = times[times["algorithm"] == "hierarchical_pipelined"]
    top = piped.loc[piped["saving"].idxmax()]
    nine = published_table("flashcomm2_table9_allreduce_algbw_gb_per_s").set_index("gpu")
    serial, parallel = nine.loc["L40 hierarchical"], nine.loc["L40 hierarchical_pipelined"]
    stated = (1 - serial.drop("bf16_nccl") / parallel.drop("bf16_nccl")).max()
    mine = spans[(spans["algorithm"] == "hierarchical") & (spans["what"] == "messages")]
    bridge, port = (mine[mine["link"] == track] for track in plan["tracks"][1::-1])
    steps = sorted(port["step"].unique())
    idle = bridge["begin_us"].min() >= port[port["step"] == steps[0]]["end_us"].max() * 0.999
    loads = spans[(spans["algorithm"] == "hierarchical") & (spans["what"] == "load") & (spans["link"] == plan["tracks"][0])]
    begin, end = bridge["begin_us"].min(), bridge["end_us"].max()
    during = sum(max(0.0, min(e, end) - max(b, begin)) * s for b, e, s in zip(loads["begin_us"], loads["end_us"], loads["share"])) / (end - begin)
    used = times[(times["codec"] == plan["shown"]["codec"])]
    large = used[used["bytes"] == used["bytes"].max()].groupby("algorithm")[["ports_used", "bridge_used"]].max()
    more = (large.loc["hierarchical_pipelined"] > large.loc["hierarchical"]).tolist()
    claims = [
        Claim(PAPER, "figure 8: pipelining saves up to 20 % of the time", f"20 % (its table 9: up to {100 * stated:.0f} %)", f"up to {100 * top['saving']:.0f} % ({top['codec']}, {size(top['bytes'])}, {top['micro_chunks']} micro-chunks)", how, near(0.20, top["saving"])),
        Claim(PAPER, "figure 8: serially, the NUMA bridge is idle during the partial reduce-scatter", "bubble", "idle" if idle else "in use", how, in_cases([idle])),
        Claim(PAPER, "figure 8: serially, PCIe is under-utilised during the reduction across", "bubble", f"a port is used to {100 * during:.0f} % then", how, in_cases([during < 0.9])),
        Claim(PAPER, "figure 8: pipelined, the links are used better", "(no figures)", ", ".join(f"{link} {100 * large.loc['hierarchical', column]:.0f} to {100 * large.loc['hierarchical_pipelined', column]:.0f} %" for link, column in (("ports", "ports_used"), ("bridge", "bridge_used"))), how, in_cases(more)),
    ]  # fmt: skip
    shown = piped.pivot_table(index=["codec", "bytes"], columns="micro_chunks", values="saving").mul(100).reset_index()
    shown["bytes"] = shown["bytes"].map(size)
    shown.columns = [f"{c} micro-chunks" if isinstance(c, int) else c for c in shown.columns]
    words = {"savings": markdown(shown, 2)}
    return Report(claims, {"timeline": partial(style.drawn(draw_pipeline), spans, plan)}, words)


STUDIES = {
    "quickreduce_latency": Study(run_quickreduce, report_quickreduce),
    "blog_speedup": Study(run_blog, report_blog),
    "allreduce_bandwidth": Study(run_bandwidth, report_allreduce),
    "all2all_bandwidth": Study(run_bandwidth, report_all2all),
    "pipeline": Study(run_pipeline, report_pipeline),
}
