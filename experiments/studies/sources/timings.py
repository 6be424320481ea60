"""Latencies and bandwidths of the sources beside simulated ones: QuickReduce's tables, the blog's figures 3 to 5, the paper's
tables 9 and 10 and its figure 8."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import tomllib
from functools import cache, partial
from pathlib import Path

import pandas as pd
from arlab.figures import style, timelines
from arlab.figures.style import BLUE, GREEN, GREY, INK, ORANGE, SKY, WINE, handle
from common import (
    PUBLISHED, ROOT, Found, Plan, Report, Study, Tables, by_error, cases, count, line, made, markdown, near, ordered, published_table, size,
    size_axis, spearman, square, stop,
)  # fmt: skip
from matplotlib.figure import Figure

LOOKS = {
    "rccl": (INK, "o", "RCCL"), "fp16": (GREY, "s", "QR-FP16"), "fp8": (SKY, "D", "QR-FP8"), "q8": (ORANGE, "^", "QR-Q8"),
    "q6": (GREEN, "v", "QR-Q6"), "q4": (WINE, "P", "QR-Q4"),
}  # fmt: skip
KINDS = ("published", "simulated")


def model_times(table: str) -> pd.DataFrame:
    """Published and simulated speed-ups of whole models, of the study of model times, by row."""
    cells = pd.read_csv(ROOT / "experiments/studies/model_time/validation.csv", comment="#")
    return cells[(cells["table"] == table) & (cells["quantity"] == "speedup")].set_index("row")


@cache
def all_cells() -> tuple[pd.DataFrame, str]:
    """Every cell of the published tables beside the simulated one, and the model."""
    program = [os.environ["ARLAB_PROGRAM"], "validate", "--skip-hold-outs", "--format", "json"]
    try:
        ended = subprocess.run(program, capture_output=True, text=True)
    except OSError as error:
        stop(f"arlab's program cannot be run: {error}")
    if ended.returncode:
        stop(f"{' '.join(program)} ended with {ended.returncode}: {ended.stderr.strip()}")
    data = json.loads(ended.stdout)
    return pd.DataFrame(data["measurements"]), data["provenance"].split(";")[0]


def run_tables(plan: Plan) -> Tables:
    fits = tomllib.loads((PUBLISHED / "validation.toml").read_text(encoding="utf-8"))["fits"]
    seen = next((fit["tables"] for fit in fits if fit["name"] == plan["fit"]), [])
    if missing := set(plan["tables"]) - set(seen):
        stop(f"study.toml says that fit {plan['fit']} saw {', '.join(missing)}; validation.toml does not")
    cells, model = all_cells()
    cells = cells[cells["table"].isin(plan["tables"])].rename(columns={"value": "published"})
    columns = "table topology row column algorithm codec library bytes published simulated error_percent"
    how = f"published: experiments/published; {model}, constants of fit {plan['fit']}, which saw these cells"
    return {"cells": made(cells[columns.split()].itertuples(index=False), columns, how)}


def errors_of(cells: pd.DataFrame) -> pd.Series:
    """Returns the error of every cell's latency in percent, as arlab validate has it."""
    return cells["error_percent"]


def worst_of(cells: pd.DataFrame) -> str:
    error = errors_of(cells)
    row = cells.loc[error.abs().idxmax()]
    return f"{error.loc[error.abs().idxmax()]:+.0f} % ({row['topology']}, row {row['row']}, {row['column']})"


def off_by(cells: pd.DataFrame) -> Found:
    """A whole table beside a published one."""
    error = errors_of(cells).abs().mean()
    return Found(f"latency {error:.1f} % off on average, {len(cells)} cells", by_error(error))


# ---------------------------------------------------------------- QuickReduce README


def run_quickreduce(plan: Plan) -> Tables:
    import arlab

    point = ["ranks", "algorithm", "codec", "bytes"]
    sweep = arlab.sweep(**plan["sweep"]).table
    timed = pd.read_csv(ROOT / plan["measured"], comment="#")
    timed = timed[(timed["library"] == "arlab") & timed["algorithm"].isin(["one_shot", "two_shot"])]
    how = f"{sweep.attrs['provenance']}; constants of fit {plan['fit']}, without one_shot"
    return run_tables(plan) | {
        "algorithms": made(sweep[[*point, "latency_us"]].itertuples(index=False), [*point, "simulated_us"], how),
        "h200": made(timed[[*point, "time_us"]].itertuples(index=False), [*point, "measured_us"], f"measured: {plan['measured']}"),
    }


def one_and_two_shot(table: pd.DataFrame) -> tuple[Found, Found]:
    """Are they on par for the smallest messages? Is two_shot faster on most GPUs, from 1 MiB on?"""
    times = table.set_index(["ranks", "codec", "bytes", "algorithm"]).iloc[:, 0].unstack()
    ratio = times["one_shot"] / times["two_shot"]
    small = ratio.xs("fp16", level="codec").xs(table["bytes"].min(), level="bytes")
    text = f"{', '.join(f'{each:.2f}' for each in small)} times the latency of two_shot at {size(table['bytes'].min())}"
    text += f" on {', '.join(map(str, small.index))} GPUs (on par: 0.9 to 1.1)"
    large = ratio.loc[table["ranks"].max()].loc[(slice(None), slice(1 << 20, None))]
    return cases(small.between(0.9, 1.1), text), cases(large > 1, f"{{}} codecs and sizes, {table['ranks'].max()} GPUs")


def times_of(cells: pd.DataFrame, topology: str, kind: str, gains: bool = False) -> pd.DataFrame:
    """Latencies by size and column, or how many times as fast as RCCL."""
    times = cells[cells["topology"] == topology].pivot(index="bytes", columns="column", values=kind)[list(LOOKS)]
    return times.drop(columns="rccl").rdiv(times["rccl"], axis=0) if gains else times


@style.drawn
def draw_quickreduce(cells: pd.DataFrame, gains: bool) -> Figure:
    topologies = list(cells["topology"].unique())
    shown = {name: look for name, look in LOOKS.items() if not (gains and name == "rccl")}
    error = ", ".join(f"{each} {errors_of(cells[cells['topology'] == each]).abs().mean():.1f} %" for each in topologies)
    what = "times as fast as RCCL" if gains else "latency (µs)"
    figure = style.new_page(
        f"QuickReduce, simulated: {errors_of(cells).abs().mean():.1f} % off on average",
        f"{what.capitalize()}, FP16; mean absolute error of the latency: {error}", [],
        "Published: MK1 QuickReduce README. Simulated: arlab validate, constants of fit mi300x.",
        [[handle(text, color=colour, marker=marker) for colour, marker, text in shown.values()],
         [handle("published", color=GREY, marker="o"), line("simulated", GREY)]], 3.4,
    )  # fmt: skip
    for axes, topology in zip(style.panels(figure, len(topologies), sharey=True), topologies):
        for name, (colour, marker, _) in shown.items():
            old, new = (times_of(cells, topology, kind, gains)[name] for kind in KINDS)
            axes.plot(new.index, new, color=colour)
            axes.plot(old.index, old, color=colour, marker=marker, linestyle="", markersize=5)
        size_axis(axes, old.index, 4)
        axes.set_title(topology)
        if gains:
            axes.axhline(1, color=INK, linewidth=0.9)
        else:
            style.log_axis(axes.yaxis, cells["published"], most=8)
    figure.axes[0].set_ylabel(what)
    return figure


def on_a_small_model(codec: str) -> Found:
    """Perplexity over that of the uncompressed model, where "negligible" claims 1."""
    runs = pd.read_csv(ROOT / "experiments/data/model_quality.csv", comment="#")
    (run,) = runs[(runs["codec"] == codec) & (runs["algorithm"] == "two_shot") & (runs["ranks"] == 4)].itertuples()
    more = f" ± {run.perplexity_ratio_standard_error:.3f} times; mean KL {run.mean_kl:.3f}"
    return near(1, run.perplexity_ratio, "perplexity {:.3f}", more)


def report_quickreduce(tables: Tables, plan: Plan) -> Report:
    cells = tables["cells"]
    topologies = list(cells["topology"].unique())
    times = {kind: {each: times_of(cells, each, kind) for each in topologies} for kind in KINDS}
    gains = {kind: {each: times_of(cells, each, kind, True) for each in topologies} for kind in KINDS}
    claims = {each: off_by(cells[cells["topology"] == each]) for each in topologies}
    first = topologies[0]
    claims["largest"] = near(gains["published"][first]["q6"].max(), gains["simulated"][first]["q6"].max())
    faster = {kind: pd.concat([each.max(axis=1) > 1 for each in gains[kind].values()]) for kind in KINDS}
    claims["tuned"] = cases(faster["simulated"], "{} sizes", f"{count(faster['published'])} sizes")
    two = {kind: gains[kind][first][["fp16", "q6"]].max(axis=1) > 1 for kind in KINDS}
    claims["figure"] = cases(two["simulated"], "{} sizes", f"{count(two['published'])} sizes")
    # From which size on QR-Q6 is faster for good.
    start = {kind: [2 * t.index[t["q6"] > t["fp16"]].max() for t in times[kind].values()] for kind in KINDS}
    texts = {kind: ", ".join(map(size, each)) for kind, each in start.items()}
    claims["crossover"] = cases([a == b for a, b in zip(*start.values())], texts["simulated"], texts["published"])
    claims["one_shot"], claims["two_shot"] = one_and_two_shot(tables["algorithms"])
    claims["one_shot_h200"], claims["two_shot_h200"] = one_and_two_shot(tables["h200"])
    claims["fidelity"] = on_a_small_model("qr-q6")
    rows = []
    for topology in topologies:
        for codec in list(LOOKS)[1:]:
            old, new = (gains[kind][topology][codec] for kind in KINDS)
            error = errors_of(cells[(cells["topology"] == topology) & (cells["column"] == codec)]).abs().mean()
            rows.append((topology, LOOKS[codec][2], old.max(), size(old.idxmax()), new.max(), size(new.idxmax()), error))
    heads = ["machine", "codec", "times RCCL, published", "at", "simulated", "at ", "mean error of latency, %"]
    figures = {name: partial(draw_quickreduce, cells, name == "speedup") for name in ("latency", "speedup")}
    return Report(claims, figures, {"best": markdown(pd.DataFrame(rows, columns=heads)), "worst": worst_of(cells)})


# ---------------------------------------------------------------- the blog's figures 3 to 5

METHODS = {
    "custom": (BLUE, (0, (5, 1)), "custom all-reduce (modelled)"), "library": (INK, (0, (2, 2)), "RCCL"),
    "fp16": (GREY, "-", "QuickReduce FP16"), "qr-q8": (ORANGE, "-", "Q8"), "qr-q6": (GREEN, "-", "Q6"), "qr-q4": (WINE, "-", "Q4"),
}  # fmt: skip


def run_blog(plan: Plan) -> Tables:
    import arlab

    sweep, rows = arlab.sweep(**plan["sweep"], library=True).table, []
    for (ranks, number), each in sweep.groupby(["ranks", "bytes"]):
        library = each["implementation"].str.startswith("library")
        times = each[~library & (each["algorithm"] == "two_shot")].set_index("codec")["latency_us"].to_dict()
        times["library"] = each.loc[library, "latency_us"].min()
        if number < plan["custom_below_bytes"]:
            times["custom"] = each.loc[~library & (each["codec"] == "fp16"), "latency_us"].min()
        baseline = min(times[name] for name in ("library", "custom") if name in times)
        # Among equals the first of METHODS counts: the baseline, then less compression.
        rows += [(ranks, number, name, times[name], baseline / times[name]) for name in METHODS if name in times]
    how = f"{sweep.attrs['provenance']}; constants of fit {plan['fit']}"
    return {"speedup": made(rows, "tp bytes method simulated_us speedup", how)}


@style.drawn
def draw_blog(table: pd.DataFrame, best: pd.DataFrame) -> Figure:
    tops = ", ".join(f"{top:.1f} with TP {tp}" for tp, top in best.groupby("tp")["speedup"].max().items())
    figure = style.new_page(
        f"Up to {best['speedup'].max():.1f} times as fast as the baseline",
        "Speed-up over the faster of RCCL and vLLM's custom all-reduce; the band at the bottom says which method is fastest",
        [f"At most: {tops}.", "Custom all-reduce: the faster of one_shot and two_shot, uncompressed, below 16 MiB. QuickReduce: two_shot."],
        "Simulated: model event-driven, mi300x-2, -4 and -8, constants of fit mi300x. To compare with figures 3 to 5 of the ROCm blog.",
        [[line(text, colour, linestyle=dash) for colour, dash, text in METHODS.values()] + [line("best", INK, linewidth=6, alpha=0.15)]],
        3.4,
    )  # fmt: skip
    degrees = list(table["tp"].unique())
    for axes, tp in zip(style.panels(figure, len(degrees), sharey=True), degrees):
        mine, top = table[table["tp"] == tp], best[best["tp"] == tp]
        for name, each in mine.groupby("method"):
            axes.plot(each["bytes"], each["speedup"], color=METHODS[name][0], linestyle=METHODS[name][1])
        axes.plot(top["bytes"], top["speedup"], color=INK, linewidth=6, alpha=0.15)
        for number, name in zip(top["bytes"], top["method"]):
            axes.axvspan(number / 2**0.5, number * 2**0.5, 0, 0.05, color=METHODS[name][0], linewidth=0)
        size_axis(axes, mine["bytes"], 5)
        axes.set_title(f"TP {tp}")
    figure.axes[0].set(ylabel="times as fast as the baseline", ylim=(0, None))
    return figure


def report_blog(tables: Tables, plan: Plan) -> Report:
    table = tables["speedup"]
    best = table.loc[table.groupby(["tp", "bytes"])["speedup"].idxmax()]
    tops = best.groupby("tp")["speedup"].max()
    small = best[best["bytes"] < 2 << 20]
    claims = {
        "largest": near(3, tops.max()),
        "order": cases(tops.diff().dropna() < 0, ", ".join(f"TP {tp}: {top:.2f}" for tp, top in tops.items())),
        "small": cases(small["method"].isin(["library", "custom"]), "the baseline is fastest at {} sizes"),
    }
    ours = model_times("sglang_quickreduce_ttft")["simulated"].filter(regex="Q4$")
    prompts = "2 models with SGLang's prompts; the blog's are not stated"
    claims["first_token"] = cases(ours > 1.2, f"{ours.min():.2f} to {ours.max():.2f} times, in {{}} cases ({prompts})")
    claims["first_token_tp2"] = near(3, ours.filter(like="tp2").max(), "at most {:.2f} times", f" ({prompts})")
    bands = []
    for tp, mine in best.groupby("tp"):
        for _, each in mine.groupby((mine["method"] != mine["method"].shift()).cumsum()):
            ends = f"{size(each['bytes'].min())} to {size(each['bytes'].max())}"
            bands.append((tp, ends, METHODS[each["method"].iloc[0]][2], each["speedup"].max()))
    words = {"bands": markdown(pd.DataFrame(bands, columns=["TP", "payload", "fastest", "largest speed-up"]))}
    return Report(claims, {"speedup": partial(draw_blog, table, best)}, words)


# ---------------------------------------------------------------- the paper's tables 9 and 10


@style.drawn
def draw_bandwidth(cells: pd.DataFrame, title: str) -> Figure:
    rows, codecs = list(cells["row"].unique()), list(cells["column"].unique())
    colours = dict(zip(codecs, (INK, *style.PALETTE)))
    figure = style.new_page(
        f"Simulated latencies are {errors_of(cells).abs().mean():.1f} % off on average", title, [],
        "Published: Flash Communication V2. Simulated: arlab validate, constants of fit flashcomm2.",
        [[square(name, colours[name]) for name in codecs], [square("simulated", GREY), line("published", INK)]], 3.2,
    )  # fmt: skip
    axes, width = figure.subplots(), 0.84 / len(codecs)
    for row, column, old, new in zip(cells["row"], cells["column"], cells["published"], cells["simulated"]):
        x = rows.index(row) - 0.42 + (codecs.index(column) + 0.5) * width
        axes.vlines(x, *sorted((old, new)), color=colours[column])
        axes.plot(x, new, marker="s", color=colours[column])
        axes.hlines(old, x - 0.5 * width, x + 0.5 * width, color=INK, linewidth=1.8, zorder=4)
    axes.set_xticks(range(len(rows)), [row.replace(" ", "\n", 1) for row in rows])
    style.log_axis(axes.yaxis, cells["published"], most=9)
    axes.grid(axis="y")
    axes.set_ylabel("algorithmic bandwidth (GB/s)")
    return figure


def ratios(cells: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Bandwidths over that of NCCL on the same machine, the first word of a row; a row per row, a column per codec."""
    table = cells.pivot(index="row", columns="column", values=kind).loc[list(cells["row"].unique()), list(cells["column"].unique())]
    machine = table.index.str.split().str[0]
    return table.drop(columns="bf16_nccl").div(table["bf16_nccl"].groupby(machine).transform("max"), axis=0)


def report_bandwidth(tables: Tables, plan: Plan) -> Report:
    cells = tables["cells"]
    old, new = (ratios(cells, kind) for kind in KINDS)
    tops, best = new.max(axis=1), new.idxmax(axis=1)
    claims = {"table": off_by(cells)}
    for key, row in plan["largest"].items():
        claims[key] = near(float(plan["claims"][key]["published"]), tops[row])
    if "L40 two_step" in new.index:
        value = {kind: ratios(cells, kind).loc["L40 two_step", "int8"] for kind in KINDS}
        claims["no_faster"] = cases([value["simulated"] <= 1], f"{value['simulated']:.2f} times", f"{value['published']:.2f} times")
        fast = [row for row in new.index if not row.startswith("L40")]
        holds = {kind: ratios(cells, kind).loc[fast].idxmax(axis=1) != "int2_sr" for kind in KINDS}
        claims["int2"] = cases(holds["simulated"], "{} machines", f"{count(holds['published'])} machines")
        claims["h20"] = cases([tops[fast].idxmin() == "H20"], tops[fast].idxmin())
        gains = tops.groupby(lambda row: row.split()[0]).max()
        stated = published_table("flashcomm2_ttft_speedups")["ttft_speedup"].rename(lambda name: name.split()[0])
        rank = spearman(stated, gains[stated.index])
        text = ", ".join(f"{name} {gains[name]:.2f}" for name in stated.index)
        claims["first_token"] = ordered(rank, f"bandwidth: {text}; rank correlation {rank:.2f} of {len(stated)} machines")
        whole = model_times("flashcomm2_ttft")
        error = whole["error_percent"].abs().mean()
        text = ", ".join(f"{each:.2f}" for each in whole["simulated"])
        claims["first_token_itself"] = Found(f"{text} times: {error:.1f} % off on average", by_error(error))
    else:
        holds = best[["A100", "H800"]] == "int4"
        claims["int4"] = cases(holds, f"{{}} machines (fastest: {', '.join(best[holds.index])})")
        claims["h20"] = cases([tops["H20"] <= 1], f"at most {tops['H20']:.2f} times", f"at most {old.loc['H20'].max():.2f} times")
    error = errors_of(cells).abs().groupby(cells["row"]).mean()
    rows = [(row, old.loc[row].idxmax(), old.loc[row].max(), best[row], tops[row], error[row]) for row in new.index]
    heads = ["machine", "fastest, published", "times NCCL", "fastest, simulated", "times NCCL ", "mean error of latency, %"]
    grid = cells.assign(text=[f"{a:g} / {b:.4g}" for a, b in zip(cells["published"], cells["simulated"])])
    grid = grid.pivot(index="row", columns="column", values="text").loc[new.index, list(cells["column"].unique())]
    words = {"best": markdown(pd.DataFrame(rows, columns=heads)), "grid": markdown(grid.fillna("").reset_index()), "worst": worst_of(cells)}
    return Report(claims, {"bandwidth": partial(draw_bandwidth, cells, plan["picture"])}, words)


# ---------------------------------------------------------------- the paper's figure 8

SERIAL, PIPED = "hierarchical", "hierarchical_pipelined"


def run_pipeline(plan: Plan) -> Tables:
    import arlab

    rows, spans, common = [], [], {"topology": plan["topology"], "dtype": plan["dtype"]}
    for codec in plan["codecs"]:
        for number in plan["bytes"]:
            runs = {1: arlab.simulate(algorithm=SERIAL, codec=codec, bytes=number, **common)}
            for n in plan["micro_chunks"]:
                runs[n] = arlab.simulate(algorithm=PIPED, codec=codec, bytes=number, micro_chunks=n, **common)
            for n, run in runs.items():
                used = dict(zip(run.links["link_class"], run.links["utilisation"]))
                saving = 1 - run.latency_us / runs[1].latency_us
                rows.append((codec, number, run.algorithm, n, run.latency_us, saving, used["port_out"], used["bridge"]))
    for name in (SERIAL, PIPED):
        with tempfile.TemporaryDirectory() as folder:
            arlab.simulate(algorithm=name, trace=f"{folder}/trace.json", **common, **plan["shown"])
            events, loads = timelines.spans_of(timelines.read_trace(Path(folder) / "trace.json"))
        for track in plan["tracks"]:
            mine = events[events["track"] == track]
            boxes = loads.loc[loads["track"] == track, ["begin", "end", "share"]]
            spans += [(name, track, -1, *box) for box in boxes.itertuples(index=False)]
            for step, each in mine.groupby("step"):
                spans += [(name, track, step, *ends, 1.0) for ends in timelines.merged(each)]
    how = f"{runs[1].provenance}; constants of fit {plan['fit']}"
    return {
        "latency": made(rows, "codec bytes algorithm micro_chunks simulated_us saving ports_used bridge_used", how),
        "timeline": made(spans, "algorithm link step begin end share", f"{how}; step -1: how full the link is, else messages of a step"),
    }


@style.drawn
def draw_pipeline(spans: pd.DataFrame, plan: Plan) -> Figure:
    ends, shown, tracks = spans.groupby("algorithm")["end"].max(), plan["shown"], plan["tracks"]
    legend = [
        timelines.patch(timelines.LOAD, "bandwidth of the link in use"),
        timelines.patch(timelines.ON_THE_WAY, "messages of a step (number), bandwidth not used"),
        timelines.patch(style.BAND, "a bubble: no messages"),
    ]
    figure = style.new_page(
        f"Micro-chunks fill the bubbles: {100 * (1 - ends[PIPED] / ends[SERIAL]):.0f} % of the time saved on {plan['topology']}",
        f"All-reduce of {shown['bytes'][:-1]} MiB {plan['dtype']} as {shown['codec']}; above serial, below pipelined", [],
        f"Simulated: model event-driven, topology {plan['topology']}, constants of fit {plan['fit']}. "
        "To compare with figure 8 of Flash Communication V2.", [legend], 3.6,
    )  # fmt: skip
    for axes, name in zip(figure.subplots(2, 1, sharex=True), (SERIAL, PIPED)):
        for place, track in enumerate(tracks):
            mine = spans[(spans["algorithm"] == name) & (spans["link"] == track)]
            loads = mine[mine["step"] < 0]
            axes.axhspan(place + 0.08, place + 0.92, color=style.BAND, linewidth=0, zorder=0)
            timelines.draw_link(axes, mine[mine["step"] >= 0], loads, place, ends.max() / 120)
            used = ((loads["end"] - loads["begin"]) * loads["share"]).sum() / ends[name]
            look = {"transform": axes.get_yaxis_transform(), "color": GREY, "size": "small", "va": "center"}
            axes.text(1.005, place + 0.5, f"{100 * used:.0f} % used", **look)
        axes.axvline(ends[name], color=INK, linewidth=1)
        title = f"{name}: {style.microseconds(ends[name])}"
        axes.set(xlim=(0, ends.max() * 1.001), ylim=(len(tracks), 0), title=title)
        axes.set_yticks([i + 0.5 for i in range(len(tracks))], tracks)
        axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time since the call, µs")
    return figure


def report_pipeline(tables: Tables, plan: Plan) -> Report:
    times, spans = tables["latency"], tables["timeline"]
    piped = times[times["algorithm"] == PIPED]
    top = piped.loc[piped[piped["micro_chunks"] == plan["default_micro_chunks"]]["saving"].idxmax()]
    nine = published_table("flashcomm2_table9_allreduce_algbw_gb_per_s").drop(columns="bf16_nccl")
    stated = 1 - nine.loc["L40 hierarchical"] / nine.loc["L40 hierarchical_pipelined"]
    port, bridge = (spans[(spans["algorithm"] == SERIAL) & (spans["link"] == track)] for track in plan["tracks"][:2])
    begin, end = (bridge.loc[bridge["step"] >= 0, name] for name in ("begin", "end"))
    begin, end = begin.min(), end.max()
    loads = port[port["step"] < 0]
    inside = loads["end"].clip(upper=end) - loads["begin"].clip(lower=begin)
    during = float((inside.clip(lower=0) * loads["share"]).sum() / (end - begin))
    idle = begin >= port.loc[port["step"] == 0, "end"].max() - 0.01
    large = times[(times["codec"] == plan["shown"]["codec"]) & (times["bytes"] == times["bytes"].max())]
    used = large[large["micro_chunks"].isin([1, plan["default_micro_chunks"]])].set_index("algorithm")[["ports_used", "bridge_used"]]
    text = ", ".join(f"{name.split('_')[0]} {100 * each[SERIAL]:.0f} to {100 * each[PIPED]:.0f} %" for name, each in used.items())
    claims = {
        "saving": near(20, 100 * top["saving"], "up to {:.0f} %", f" ({top['codec']}, {size(top['bytes'])})"),
        "idle": cases([idle], "idle" if idle else "in use"),
        "under_used": cases([during < 0.9], f"a port is used to {100 * during:.0f} % then"),
        "better": cases(used.loc[PIPED] > used.loc[SERIAL], text),
    }
    shown = piped.assign(saving=100 * piped["saving"]).pivot_table(index=["codec", "bytes"], columns="micro_chunks", values="saving")
    shown = shown.rename(columns="{} micro-chunks: saving, %".format).reset_index()
    shown["bytes"] = shown["bytes"].map(size)
    words = {"savings": markdown(shown, 2), "stated": f"{100 * stated.max():.0f} % ({stated.idxmax()})"}
    return Report(claims, {"timeline": partial(draw_pipeline, spans, plan)}, words)


STUDIES = {
    "quickreduce_latency": Study(run_quickreduce, report_quickreduce),
    "blog_speedup": Study(run_blog, report_blog),
    "allreduce_bandwidth": Study(run_tables, report_bandwidth),
    "all2all_bandwidth": Study(run_tables, report_bandwidth),
    "pipeline": Study(run_pipeline, report_pipeline),
}
