"""Errors: how they grow with ranks and algorithm, and whether their order is that of the perplexities of Flash Communication V2."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from arlab.figures import style
from arlab.figures.style import GREY, INK, handle
from common import (
    ACTIVATIONS, LATER, PAPER, README, ROOT, Claim, Report, Study, Tables, by_rank, in_cases, made, markdown, of_cases,
    published_table, spearman,
)  # fmt: skip
from exact import EXACT, tensors
from matplotlib.figure import Figure

# ---------------------------------------------------------------- error by ranks and algorithm


def inputs_of(plan: dict[str, Any], ranks: int) -> dict[tuple[str, str], np.ndarray]:
    """(input, tensor): [ranks, tokens, channels] of float16."""
    found = {}
    for each in plan["input"]:
        if "file" in each:
            name = each["file"].format(ranks=ranks)
            if (ACTIVATIONS / name).exists():
                found |= {(each["name"], t): x for t, x in tensors(name).items() if t.endswith(each["tensors"])}
        else:
            for seed in range(each["seeds"]):
                shape = (ranks, each["tokens"], each["channels"])
                values = np.random.default_rng(seed).normal(size=shape).astype(np.float16)
                found[each["name"], f"seed {seed}"] = values
    return found


def run_growth(plan: dict[str, Any]) -> Tables:
    import arlab

    rows = []
    for ranks in plan["ranks"]:
        for (name, tensor), values in inputs_of(plan, ranks).items():
            for algorithm in plan["algorithms"]:
                for codec in plan["codecs"]:
                    if algorithm == "hierarchical" and ranks < 4:
                        continue  # no two groups of at least two
                    run = arlab.all_reduce(values, algorithm=algorithm, codec=codec, count=False)
                    rows.append((name, ranks, algorithm, codec, tensor, run.token_sqnr_db, run.wire_bytes / values.nbytes))
    table = pd.DataFrame(rows, columns=["input", "ranks", "algorithm", "codec", "tensor", "token_sqnr_db", "sent"])
    by = table.groupby(["input", "ranks", "algorithm", "codec"], sort=False)
    medians = by.agg(tensors=("tensor", "count"), token_sqnr_db=("token_sqnr_db", "median"), least_db=("token_sqnr_db", "min"), largest_db=("token_sqnr_db", "max")).reset_index()
    medians.attrs["provenance"] = f"{EXACT}; SQNR of the median token, median over tensors or seeds"
    return {"error": medians}


def draw_growth(table: pd.DataFrame, plan: dict[str, Any]) -> Figure:
    codec = plan["shown_codec"]
    table = table[table["codec"] == codec]
    inputs, algorithms = list(table["input"].unique()), list(table["algorithm"].unique())
    legend = [handle(name, linestyle="-", **style.algorithm_look(name)) for name in algorithms]
    top = table[table["ranks"] == 8].set_index(["input", "algorithm"])["token_sqnr_db"]
    lost = ", ".join(f"{top[name, 'two_shot'] - top[name, 'ring']:.1f} dB on {name}" for name in inputs)
    figure = style.new_page(
        f"A ring accumulates error: behind two_shot by {lost} (8 ranks)", f"Error of an all-reduce with {codec}, by ranks and algorithm",
        ["Bars: from the worst tensor or seed to the best."], "Exact: computed from bits by arlab.", [legend], 3.4,
    )  # fmt: skip
    for axes, name in zip(style.panels(figure, len(inputs), sharey=True), inputs):
        for place, algorithm in enumerate(algorithms):
            mine = table[(table["input"] == name) & (table["algorithm"] == algorithm)]
            look = style.algorithm_look(algorithm)
            x = mine["ranks"] * 2 ** (0.05 * (place - len(algorithms) / 2))
            axes.vlines(x, mine["least_db"], mine["largest_db"], color=look["color"], linewidth=1)
            axes.plot(x, mine["token_sqnr_db"], linestyle="-", **look)
        axes.set_xscale("log", base=2)
        ranks = sorted(table["ranks"].unique())
        axes.set_xticks(ranks, ranks)
        axes.set_xlim(ranks[0] / 1.3, ranks[-1] * 1.3)
        axes.grid()
        axes.set(title=name, xlabel="ranks")
    figure.axes[0].set_ylabel("SQNR of the median token (dB)")
    return figure


def report_growth(tables: Tables, plan: dict[str, Any]) -> Report:
    table = tables["error"]
    sqnr = table.set_index(["input", "codec", "ranks", "algorithm"])["token_sqnr_db"].unstack()
    behind = (sqnr["two_shot"] - sqnr["ring"]).rename("behind")
    several = behind[behind.index.get_level_values("ranks") > 2]
    worst = sqnr[sqnr.index.get_level_values("ranks") > 2]
    growth = []
    for (name, codec), each in behind.groupby(level=["input", "codec"]):
        by_ranks = each.droplevel(["input", "codec"]).sort_index()
        growth.append(bool((by_ranks.diff().dropna() > 0).all()))
    least, most = several.min(), several.max()
    claims = [
        Claim(README, "a ring accumulates error from compression", "(no figures)", f"in {of_cases(several > 0)} of 4 and more ranks a ring is behind two_shot, by {least:.1f} to {most:.1f} dB", "exact", in_cases(several > 0)),
        Claim(README, "and the more so the more sends there are (ranks)", "(no figures)", f"its distance grows with every doubling of ranks for {of_cases(growth, 'inputs and codecs')}", "exact", in_cases(growth)),
    ]
    shown = table[table["codec"] == plan["shown_codec"]].pivot_table(index=["input", "ranks"], columns="algorithm", values="token_sqnr_db", sort=False).reset_index()
    loss = []
    for (name, algorithm), each in table[table["codec"] == plan["shown_codec"]].groupby(["input", "algorithm"], sort=False):
        by_ranks = each.set_index("ranks")["token_sqnr_db"].sort_index()
        doublings = math.log2(by_ranks.index[-1] / by_ranks.index[0])
        loss.append((name, algorithm, (by_ranks.iloc[0] - by_ranks.iloc[-1]) / doublings))
    slopes = pd.DataFrame(loss, columns=["input", "algorithm", "dB"]).pivot_table(index="algorithm", columns="input", values="dB", sort=False)
    missing = [f"{each['name']} with {n} ranks" for each in plan["input"] if "file" in each for n in plan["ranks"] if not (ACTIVATIONS / each["file"].format(ranks=n)).exists()]
    words = {
        "table": markdown(shown), "slopes": markdown(slopes.reset_index()), "last": of_cases(worst.idxmin(axis=1) == "ring"),
        "first": of_cases(worst.idxmax(axis=1) == "one_shot"), "missing": ", ".join(missing) or "none",
    }  # fmt: skip
    return Report(claims, {"error": partial(style.drawn(draw_growth), table, plan)}, words)


# ---------------------------------------------------------------- perplexity in kind


def published_scores() -> pd.DataFrame:
    """Of every table with perplexities or accuracies: model, codec, algorithm and how good; higher is better."""
    rows = []
    rtn = "int{}-g128"
    for number, algorithm in ((1, "two_shot"), (2, "all_to_all")):
        kind = "allreduce" if number == 1 else "all2all"
        for row in published_table(f"flashcomm2_table{number}_{kind}_perplexity_rtn").itertuples():
            rows += [(number, algorithm, row.model, rtn.format(b), -float(getattr(row, f"int{b}"))) for b in (8, 6, 5, 4, 3, 2)]
    methods = {"rtn": "int{}-g{}", "hadamard": "had-int{}-g{}", "logfmt": "logfmt{}-g{}", "spike_reserving": "int{}-g{}-sr"}
    for row in published_table("flashcomm2_table3_allreduce_perplexity_methods").itertuples():
        rows += [(3, "two_shot", row.model, methods[row.method].format(b, 32), -float(getattr(row, f"int{b}"))) for b in (4, 3, 2)]
    for row in published_table("flashcomm2_table7_task_accuracy").itertuples():
        if row.comm != "FP16":
            name, _, spikes = row.comm.lower().partition("_")
            rows.append((7, "two_shot", row.model, f"{name}-g{row.group:.0f}" + ("-sr" if spikes else ""), row.avg))
    for row in published_table("flashcomm2_table8_all2all_perplexity_methods").itertuples():
        for b, g, column in [*((b, 128, f"int{b}") for b in (8, 6, 5, 4, 3, 2)), *((b, 32, f"int{b}_gs32") for b in (4, 3, 2))]:
            rows.append((8, "all_to_all", row.model, methods[row.method].format(b, g), -float(getattr(row, column))))
    return pd.DataFrame(rows, columns=["table", "algorithm", "model", "codec", "score"])


def run_order(plan: dict[str, Any]) -> Tables:
    ours = pd.read_csv(ROOT / plan["accuracy"], comment="#")
    ours = ours[(ours["input"] == plan["input"]) & (ours["ranks"] == plan["ranks"])]
    scores = published_scores().merge(ours[["algorithm", "codec", "median_token_sqnr_db"]], on=["algorithm", "codec"], how="left")
    scores = scores.rename(columns={"median_token_sqnr_db": "our_token_sqnr_db"})
    scores["score_is"] = np.where(scores["table"] == 7, "average accuracy, percent", "C4 perplexity, negative")
    scores.attrs["provenance"] = f"score: published, experiments/published/; our_token_sqnr_db: exact, {plan['accuracy']}"
    return {"order": scores}


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """A row per table of the paper: how many codecs and models, rank correlation of the worst model and of the median one."""
    rows = []
    for number, each in table.dropna().groupby("table"):
        of_model = [spearman(model["score"], model["our_token_sqnr_db"]) for _, model in each.groupby("model")]
        rows.append((number, each["codec"].nunique(), len(of_model), min(of_model), float(np.median(of_model))))
    return pd.DataFrame(rows, columns=["table", "codecs", "models", "worst model", "median model"])


def draw_order(table: pd.DataFrame) -> Figure:
    found = correlations(table).set_index("table")
    codecs = table.dropna()["codec"].unique()
    families = {"int": ("o", INK), "sr": ("D", style.WINE), "had": ("s", style.BLUE), "logfmt": ("^", style.ORANGE)}

    def family(codec: str) -> str:
        return "sr" if codec.endswith("-sr") else next(name for name in ("had", "logfmt", "int") if codec.startswith(name))

    present = [name for name in families if any(family(codec) == name for codec in codecs)]
    texts = {"int": "round to nearest", "sr": "spike reserving", "had": "Hadamard", "logfmt": "LogFMT"}
    legend = [handle(texts[name], marker=families[name][0], color=families[name][1]) for name in present]
    figure = style.new_page(
        "Codecs in the order of our SQNR and in that of the paper's models", "Rank of every codec within its table and model; on the diagonal both agree",
        ["Grey: the diagonal. A point per codec and model."],
        "Published: Flash Communication V2, C4 perplexity (tables 1, 2, 3, 8) and average accuracy (table 7). Ours: exact, SQNR of the median token on MiniLM, 8 ranks.",
        [legend], 2.8,
    )  # fmt: skip
    for axes, (number, each) in zip(style.panels(figure, len(found)), table.dropna().groupby("table")):
        for _, model in each.groupby("model"):
            x, y = model["our_token_sqnr_db"].rank(ascending=False), model["score"].rank(ascending=False)
            for codec, a, b in zip(model["codec"], x, y):
                marker, colour = families[family(codec)]
                axes.plot(a, b, marker=marker, color=colour, alpha=0.6, markersize=6)
        axes.axline((1, 1), slope=1, color=GREY, linewidth=0.8, zorder=0)
        axes.set_aspect("equal")
        axes.invert_xaxis()
        axes.invert_yaxis()
        axes.set(title=f"table {number}: {found.loc[number, 'median model']:.2f}", xlabel="rank by SQNR")
    figure.axes[0].set_ylabel("rank in the paper")
    return figure


WHAT = {1: "table 1, figure 1: C4 perplexity, all-reduce, RTN", 2: "table 2: C4 perplexity, all-to-all, RTN", 3: "table 3, figure 1: C4 perplexity of four methods at 4, 3, 2 bits", 7: "table 7: accuracy on five tasks", 8: "table 8: C4 perplexity of RTN and spike reserving, all-to-all"}  # fmt: skip


def report_order(tables: Tables, plan: dict[str, Any]) -> Report:
    found = correlations(tables["order"])
    claims = []
    for row in found.itertuples(index=False):
        claims.append(Claim(
            PAPER, f"{WHAT[row.table]}, in kind: order of codecs", f"{row.codecs} codecs, {row.models} models",
            f"rank correlation with our SQNR {row[4]:.2f} (worst model {row[3]:.2f})", "exact, beside published", by_rank(row[4]),
        ))  # fmt: skip
    later = [*(f"{WHAT[number]}: the numbers themselves" for number in WHAT), "figure 2: time to first token of Llama-3-8B (in kind: see allreduce_bandwidth)"]
    claims += [Claim(PAPER, what, "tables of the paper" if "figure 2" not in what else "2.28, 1.24, 1.3, 1 times", "–", "needs models; issue \"Model\"", LATER) for what in later]
    claims.append(Claim("ROCm blog", "vLLM and SGLang: time to first token more than 1.2 times as fast, GSM8K unchanged", "(endnotes)", "–", "needs models; issue \"Model\"", LATER))
    return Report(claims, {"order": partial(style.drawn(draw_order), tables["order"])}, {"found": markdown(found)})


STUDIES = {
    "error_growth": Study(run_growth, report_growth),
    "perplexity_order": Study(run_order, report_order, exact=True),
}
