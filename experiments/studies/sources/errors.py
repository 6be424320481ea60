"""Errors: how they grow with ranks and algorithm, and whether their order is that of Flash Communication V2's perplexities."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from arlab.figures import style
from common import (
    ACTIVATIONS, EXACT, ROOT, Found, Plan, Report, Study, Tables, cases, count, made, markdown, ordered, published_table, spearman, tensors,
)  # fmt: skip
from matplotlib.figure import Figure

# ---------------------------------------------------------------- by ranks and algorithm


def inputs_of(plan: Plan, ranks: int) -> list[tuple[str, Any]]:
    """Names of inputs and their tensors, [ranks, tokens, channels] of float16."""
    shape = (ranks, plan["gaussian"]["tokens"], plan["gaussian"]["channels"])
    randoms = map(np.random.default_rng, range(plan["gaussian"]["seeds"]))
    found = [("gaussian", random.normal(size=shape).astype(np.float16)) for random in randoms]
    for each in plan["files"]:
        file = each["file"].format(ranks=ranks)
        if (ACTIVATIONS / file).exists():
            found += [(each["name"], values) for name, values in tensors(file).items() if name.endswith(each["tensors"])]
    return found


def run_growth(plan: Plan) -> Tables:
    import arlab

    rows = []
    for ranks in plan["ranks"]:
        for name, values in inputs_of(plan, ranks):
            for algorithm in plan["algorithms"]:
                for codec in plan["codecs"] if ranks >= 4 or algorithm != "hierarchical" else ():  # groups have two or more
                    run = arlab.all_reduce(values, algorithm=algorithm, codec=codec, count=False)
                    rows.append((name, ranks, algorithm, codec, run.token_sqnr_db))
    point = ["input", "ranks", "algorithm", "codec"]
    groups = pd.DataFrame(rows, columns=[*point, "db"]).groupby(point, sort=False)["db"]
    table = groups.agg(["count", "median", "min", "max"]).reset_index()
    how = f"{EXACT}; SQNR of the median token in dB; median, least and largest over tensors or seeds"
    return {"error": made(table.itertuples(index=False), "input ranks algorithm codec tensors sqnr_db least_db largest_db", how)}


@style.drawn
def draw_growth(table: pd.DataFrame, codec: str) -> Figure:
    inputs, algorithms, ranks = (list(table[name].unique()) for name in ("input", "algorithm", "ranks"))
    top = table[table["ranks"] == 8].set_index(["input", "algorithm"])["sqnr_db"]
    lost = " and ".join(f"{top[name, 'two_shot'] - top[name, 'ring']:.1f} dB on {name}" for name in inputs)
    figure = style.new_page(
        f"A ring accumulates error: behind two_shot by {lost}, 8 ranks",
        f"Error of an all-reduce with {codec}, by ranks and algorithm",
        ["Bars: from the worst tensor or seed to the best."], "Exact: computed from bits by arlab.",
        [[style.handle(name, linestyle="-", **style.algorithm_look(name)) for name in algorithms]], 3.4,
    )  # fmt: skip
    for axes, name in zip(style.panels(figure, len(inputs), sharey=True), inputs):
        for place, algorithm in enumerate(algorithms):
            mine = table[(table["input"] == name) & (table["algorithm"] == algorithm)]
            look = style.algorithm_look(algorithm)
            x = mine["ranks"] * 2 ** (0.05 * (place - len(algorithms) / 2))  # side by side
            axes.vlines(x, mine["least_db"], mine["largest_db"], color=look["color"], linewidth=1)
            axes.plot(x, mine["sqnr_db"], linestyle="-", **look)
        axes.set_xscale("log", base=2)
        axes.set_xticks(ranks, ranks)
        axes.set(title=name, xlabel="ranks", xlim=(ranks[0] / 1.3, ranks[-1] * 1.3))
        axes.grid()
    figure.axes[0].set_ylabel("SQNR of the median token (dB)")
    return figure


def report_growth(tables: Tables, plan: Plan) -> Report:
    table = tables["error"]
    sqnr = table.set_index(["input", "codec", "ranks", "algorithm"])["sqnr_db"].unstack()
    behind = sqnr["two_shot"] - sqnr["ring"]
    several = behind[behind.index.get_level_values("ranks") > 2]
    growing = [bool((each.diff().dropna() > 0).all()) for _, each in behind.groupby(level=["input", "codec"])]
    claims = {
        "ring": cases(several > 0, f"from 4 ranks on {several.min():.1f} to {several.max():.1f} dB behind two_shot, in {{}} cases"),
        "growth": cases(growing, "the distance grows with every doubling of ranks, for {} inputs with codecs"),
    }
    mine = table[table["codec"] == plan["shown_codec"]]
    by_ranks = mine.pivot_table(index=["input", "algorithm"], columns="ranks", values="sqnr_db", sort=False)
    ends = by_ranks.apply(lambda row: row.dropna().iloc[[0, -1]].tolist() + row.dropna().index[[0, -1]].tolist(), axis=1)
    by_ranks["lost per doubling"] = [round((first - last) / np.log2(most / least), 2) for first, last, least, most in ends]
    known = set(zip(table["input"], table["ranks"]))
    missing = [f"{name} with {n} ranks" for name in table["input"].unique() for n in plan["ranks"] if (name, n) not in known]
    words = {
        "table": markdown(by_ranks.rename(columns=lambda n: f"{n} ranks" if isinstance(n, int) else n).reset_index()),
        "last": count(sqnr.loc[several.index].idxmin(axis=1) == "ring"), "first": count(sqnr.idxmax(axis=1) == "one_shot"),
        "missing": ", ".join(missing) or "nothing",
    }  # fmt: skip
    return Report(claims, {"error": partial(draw_growth, mine, plan["shown_codec"])}, words)


# ---------------------------------------------------------------- perplexity in kind


def run_order(plan: Plan) -> Tables:
    """Every perplexity and accuracy of the paper beside our SQNR of its codec."""
    rows = []
    for number, source in plan["sources"].items():
        table = published_table(source["table"]).reset_index()
        table["model"] = table["model"].str.replace("Llama-3", "Llama3").str.replace("Qwen-3", "Qwen3")  # the paper has both
        if "comm" in table:  # accuracies: a row per codec
            for row in table.dropna(subset="group").itertuples():
                bits, _, spikes = row.comm.lower().partition("_")
                rows.append((number, row.model, f"{bits}-g{row.group:.0f}" + ("-sr" if spikes else ""), "accuracy", row.avg))
            continue
        for _, row in table.iterrows():
            for column in [name for name in table.columns if name.startswith("int")]:
                bits, _, group = column.removeprefix("int").partition("_gs")
                codec = plan["methods"][row.get("method", "rtn")].format(bits=bits, group=group or source["group"])
                rows.append((number, row["model"], codec, "perplexity", float(row[column])))
    ours = pd.read_csv(ROOT / plan["accuracy"], comment="#")
    ours = ours[(ours["input"] == plan["input"]) & (ours["ranks"] == plan["ranks"])].set_index(["algorithm", "codec"])
    rows = [(*row, ours["median_token_sqnr_db"].get((plan["sources"][row[0]]["algorithm"], row[2]))) for row in rows]
    how = f"published: experiments/published; our_sqnr_db: exact, from {plan['accuracy']}"
    return {"order": made(rows, "table model codec published_is published our_sqnr_db", how)}


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """By table of the paper and model; codecs that our study lacks are left out."""
    rows = []
    for (number, model), each in table.dropna().groupby(["table", "model"], sort=False):
        better = each["published"].where(each["published_is"] == "accuracy", -each["published"])
        rows.append((number, model, len(each), spearman(better, each["our_sqnr_db"])))
    return pd.DataFrame(rows, columns=["table", "model", "codecs", "rank correlation"])


@style.drawn
def draw_order(found: pd.DataFrame) -> Figure:
    figure = style.new_page(
        f"Our order of codecs is the paper's: rank correlation {found['rank correlation'].median():.2f}",
        "Rank correlation (Spearman) by table and model, in the title their median; 1: the same order", [],
        "Published: Flash Communication V2, C4 perplexity (tables 1, 2, 3, 8), average accuracy (table 7). "
        "Ours: exact, SQNR of the median token, MiniLM, 8 ranks.", [], 3.0,
    )  # fmt: skip
    grid = found.pivot(index="table", columns="model", values="rank correlation")
    grid.index, grid.columns.name = [f"table {number}" for number in grid.index], ""
    style.heat_map(figure, {"": grid}, "rank correlation", lambda value: f"{value:.2f}" if value == value else "", colour_of=[0.5, 1])
    return figure


def on_a_small_model(number: int) -> Found:
    """The findings of a table of the paper, as the study of SmolLM2 judges them."""
    study = ROOT / "experiments/studies/model_quality/make.py"
    spec = importlib.util.spec_from_file_location("make_model_quality", study)
    assert spec and spec.loader
    quality = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(quality)
    sys.path[:] = before
    found = quality.findings(quality.Results(quality.committed()))
    judged = {claim: verdict for claim, source, verdict, _ in found if re.search(rf"\btables? (\d and )?{number}\b", source)}
    others = [f"{claim} ({verdict.strip('*')})" for claim, verdict in judged.items() if verdict != quality.HOLDS]
    text = "{} findings hold" + ("; others: " + "; ".join(others) if others else "")
    return cases([verdict == quality.HOLDS for verdict in judged.values()], text)


def report_order(tables: Tables, plan: Plan) -> Report:
    found, claims = correlations(tables["order"]), {}
    for number, each in found.groupby("table"):
        rank = each["rank correlation"]
        text = f"rank correlation {rank.median():.2f} (median of {len(each)} models, least {rank.min():.2f}; {each['codecs'].iloc[0]} codecs)"
        claims[f"table_{number}"] = ordered(rank.median(), text)
    claims |= {f"table_{number}_model": on_a_small_model(number) for number in (1, 3)}
    missing = sorted(tables["order"].loc[tables["order"]["our_sqnr_db"].isna(), "codec"].unique())
    return Report(claims, {"order": partial(draw_order, found)}, {"found": markdown(found), "missing": ", ".join(missing) or "none"})


STUDIES = {"error_growth": Study(run_growth, report_growth, exact=True), "perplexity_order": Study(run_order, report_order, exact=True)}
