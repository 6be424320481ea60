#!/usr/bin/env python3
"""The accuracy study: findings of Flash Communication V2 judged by our data, and figures that show them.

    make.py [FOLDER]         from the results.csv there: prints the findings, writes findings.txt, accuracy.csv and
                             pictures to the folder [results/accuracy]
    make.py [FOLDER] --run   runs the study first (1 to 2 minutes); needed is what ./quickstart.sh makes

Our SQNR is exact (results.csv of `arlab study`); a perplexity is published and of other models: the two share no column
and no axis. No conclusion is written in here: FINDINGS says what each claim means in figures.

    methods_g32.png     four methods at 4, 3 and 2 bits, all-reduce beside all-to-all (table 3, 8)
    wire_bits.png       SQNR against the bits that travel

Exit code: 0; 2 for bad usage or input, said in one line.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
EXPERIMENTS = HERE.parents[1]
sys.path[:0] = [str(EXPERIMENTS / "site"), str(EXPERIMENTS / "python")]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from arlab._files import guarded  # noqa: E402
from arlab.figures import style  # noqa: E402
from arlab.figures.study import Study, front  # noqa: E402
from arlab.figures.style import GREY, INK, decibels, handle  # noqa: E402
from arlab.figures.tables import InputError, plural, read_results, read_table  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import NullLocator  # noqa: E402

AR, A2A = "two_shot", "all_to_all"
COLLECTIVES = {AR: "all-reduce", A2A: "all-to-all"}
SHORT = {AR: "AR", A2A: "A2A"}
BITS, GROUPS = (4, 3, 2), (32, 128)
BASE = "int8-g128"  # base of comparison: BF16's perplexity is not published for all models
PAPER = "Flash Communication V2"
MEDIAN_TOKEN, WHOLE_TENSOR = "median token", "whole tensor"


class Method(NamedTuple):
    """One way to quantize, as in the paper's table 3."""

    label: str
    codec: str
    published: str
    color: str
    marker: str

    def at(self, bits: int, group: int) -> str:
        """The codec's name."""
        return self.codec.format(b=bits, g=group)

    @property
    def look(self) -> dict[str, str]:
        """Colour and marker."""
        return {"color": self.color, "marker": self.marker}


RTN = Method("round to nearest", "int{b}-g{g}", "rtn", style.BLUE, "o")
HADAMARD = Method("Hadamard", "had-int{b}-g{g}", "hadamard", style.ORANGE, "s")
LOGFMT = Method("LogFMT", "logfmt{b}-g{g}", "logfmt", style.WINE, "D")
SPIKES = Method("spike reserving", "int{b}-g{g}-sr", "spike_reserving", style.GREEN, "^")
METHODS = (RTN, HADAMARD, LOGFMT, SPIKES)


class Unit(NamedTuple):
    """SQNR or perplexity: which is better, when it has collapsed, when two values are close, how it is written."""

    sign: int  # 1: more is better
    collapsed: float  # as bad as this, or worse
    close: float  # two values no farther apart are close
    text: Callable[[float], str]


def percent(value: float) -> str:
    """An increase, with two digits."""
    rounded = float(f"{value:.1e}")
    digits = max(0, 1 - math.floor(math.log10(abs(rounded)))) if rounded else 0
    return f"{rounded:+,.{min(digits, 2)}f} %".replace(",", " ")


DECIBELS = Unit(1, 0.0, 3.0, "{:.1f}".format)
PERPLEXITY = Unit(-1, 900.0, 5.0, percent)


@dataclass(frozen=True)
class View:
    """One way to look at accuracy: an input and its SQNR, or the published perplexities.

    `values` has a row per (algorithm, codec) and a column per tensor or model.
    """

    name: str
    unit: Unit
    values: pd.DataFrame

    def each(self, collective: str, codec: str) -> pd.Series:
        """The values of all tensors or models."""
        there = (collective, codec) in self.values.index
        return self.values.loc[(collective, codec)].dropna() if there else pd.Series(dtype=float)

    def of(self, collective: str, codec: str) -> float:
        """The median over tensors or models; NaN where there is none."""
        return float(self.each(collective, codec).median())

    def better(self, one: Any, other: Any) -> Any:
        """Strictly better in the view's unit."""
        return self.unit.sign * one > self.unit.sign * other


@dataclass(frozen=True)
class Accuracy:
    """Everything that is drawn and judged. In `rows`, token_db is NaN for inputs without tokens."""

    study: Study
    rows: pd.DataFrame
    published: View
    ranks: int  # the largest world size
    bits: dict[str, float]  # on the wire, by codec, in the order of the file

    def inputs(self, tokens: bool) -> list[str]:
        """The inputs with (or without) tokens."""
        return list(self.rows.loc[self.rows["token_db"].notna() == tokens, "input"].unique())

    def view(self, name: str, tokens: bool, ranks: int = 0, only: Sequence[str] = ()) -> View:
        """An input at a world size, the largest if none is given; with `only`, those of its tensors."""
        rows = self.rows[(self.rows["input"] == name) & (self.rows["ranks"] == (ranks or self.ranks))]
        rows = rows[rows["tensor"].isin(only)] if only else rows
        column = "token_db" if tokens else "sqnr_db"
        values = rows.pivot(index=["algorithm", "codec"], columns="tensor", values=column)[
            list(rows["tensor"].unique())
        ]
        if name in self.inputs(tokens=True):
            name = f"{name}, {MEDIAN_TOKEN if tokens else WHOLE_TENSOR}"
        return View(name, DECIBELS, values)

    def main_input(self) -> str:
        """Returns the input for pictures of one input: real activations where there are any."""
        return [*self.inputs(tokens=True), *self.inputs(tokens=False)][0]

    def main(self) -> View:
        """The main input, token by token if it has tokens."""
        return self.view(self.main_input(), tokens=bool(self.inputs(tokens=True)))

    def views(self) -> list[View]:
        """All inputs of the study: real ones token by token, and as whole tensors."""
        real = self.inputs(tokens=True)
        found = [self.view(name, tokens) for tokens in (True, False) for name in real]
        return found + [self.view(name, False) for name in self.inputs(tokens=False)]


def read_accuracy(folder: Path, published: Path) -> Accuracy:
    """Reads results.csv and what is published."""
    rows = read_results(folder / "results.csv", "tensor")
    study = Study(rows)
    rows["token_db"] = rows["token_sqnr_db"].where(np.isfinite(rows["sqnr_db"]), rows["sqnr_db"])
    rows.loc[rows.groupby("input")["token_sqnr_db"].transform("count") == 0, "token_db"] = np.nan
    bits = rows.groupby("codec", sort=False)["wire_bits_per_element"].quantile(0.5, interpolation="lower").to_dict()
    return Accuracy(study, rows, read_published(published), int(rows["ranks"].max()), bits)


def read_published(folder: Path) -> View:
    """C4 perplexity, as its increase over INT8 of the same model in percent; tables 1, 2, 3 and 8."""
    labels = {method.published: method for method in METHODS}
    parts = []
    for name, collective, group in (
        ("table1_allreduce_perplexity_rtn", AR, 128),
        ("table3_allreduce_perplexity_methods", AR, 32),
        ("table2_all2all_perplexity_rtn", A2A, 128),
        ("table8_all2all_perplexity_methods", A2A, 128),
    ):
        table = read_table(folder / f"flashcomm2_{name}.csv", ("model",))
        table["method"] = table["method"] if "method" in table else "rtn"
        long = table.melt(["model", "method"], [c for c in table if c.startswith("int")], "column", "perplexity")
        sizes = long["column"].str.extract(r"int(\d+)(?:_gs(\d+))?").astype(float).fillna(group).astype(int)
        long["codec"] = [labels[m].at(bits, size) for m, bits, size in zip(long["method"], sizes[0], sizes[1])]
        parts.append(long.assign(algorithm=collective, perplexity=long["perplexity"].astype(float)))
    every = pd.concat(parts)[["algorithm", "codec", "model", "perplexity"]].drop_duplicates()
    for _, row in every[every.duplicated(["algorithm", "codec", "model"])].head(1).iterrows():
        raise InputError(f"{folder}: two perplexities of {row['model']} with {row['codec']}")
    every["base"] = every["model"].map(every[every["codec"] == BASE].set_index("model")["perplexity"])
    every["increase"] = 100 * (every["perplexity"] / every["base"] - 1)
    return View("published", PERPLEXITY, every.pivot(index=["algorithm", "codec"], columns="model", values="increase"))


class Judged(NamedTuple):
    """Whether a claim holds, by the medians; None without the figures for it."""

    holds: bool | None
    cells: dict[str, str]  # the figures, by the heading of their column


NOTHING = Judged(None, {})
Judge = Callable[[View, Accuracy], Judged]


class Finding(NamedTuple):
    """A claim, where the paper makes it, and what it means in figures."""

    claim: str
    source: str
    means: str
    judge: Judge


def together(parts: Iterable[Judged]) -> Judged:
    """Claims that are made in one breath; those without figures take no part."""
    known = [part for part in parts if part.holds is not None]
    cells = {heading: cell for part in known for heading, cell in part.cells.items()}
    return Judged(all(part.holds for part in known) if known else None, cells)


def counted(flags: Sequence[bool], holds: bool) -> str:
    """` 4/6`: so many tensors or models say so; nothing where all agree with the median."""
    return "" if all(flag == holds for flag in flags) else f" {sum(flags)}/{len(flags)}"


Candidate = tuple[str, str, str]  # collective, codec, what to call it


def beats(view: View, heading: str, winner: Candidate, others: Sequence[Candidate]) -> Judged:
    """The winner is better than the best of the others, which is named where there are several."""
    known = [other for other in others if not math.isnan(view.of(*other[:2]))]
    mine = view.of(*winner[:2])
    if math.isnan(mine) or not known:
        return NOTHING
    best = max(known, key=lambda other: view.unit.sign * view.of(*other[:2]))
    theirs = pd.concat([view.each(*other[:2]) for other in known], axis=1).dropna()
    own = view.each(*winner[:2])
    shared = own.index.intersection(theirs.index, sort=False)
    flags = list(view.better(own[shared], (view.unit.sign * theirs.loc[shared]).max(axis=1) * view.unit.sign))
    holds = bool(view.better(mine, view.of(*best[:2])))
    figures = f"{view.unit.text(mine)} | {view.unit.text(view.of(*best[:2]))}{f' {best[2]}' if len(others) > 1 else ''}"
    return Judged(holds, {heading: figures + counted(flags, holds)})


Case = tuple[str, Candidate, Sequence[Candidate]]  # heading, winner, others


def cases(*each: Case) -> Judge:
    """In every case the winner is better than the best of the others."""
    return lambda view, _: together(beats(view, *case) for case in each)


best_method = cases(*(
    (f"INT{b}: SR | best other", (AR, SPIKES.at(b, 32), "SR"), [(AR, m.at(b, 32), m.label) for m in METHODS if m != SPIKES])
    for b in (3, 2)
))  # fmt: skip
hadamard_loses, logfmt_loses = (
    cases((f"INT2: RTN | {m.label}", (AR, RTN.at(2, 32), "RTN"), [(AR, m.at(2, 32), m.label)]))
    for m in (HADAMARD, LOGFMT)
)
tolerant = cases(*(
    (f"INT{b}: all-to-all | all-reduce", (A2A, RTN.at(b, 128), ""), [(AR, RTN.at(b, 128), "")]) for b in BITS
))  # fmt: skip
spikes_in_all_to_all = cases(*(
    (f"INT{b} g{g}: SR | RTN", (A2A, SPIKES.at(b, g), "SR"), [(A2A, RTN.at(b, g), "RTN")]) for g in GROUPS for b in BITS
))  # fmt: skip
small_groups = cases(*(
    (f"INT{b} {SHORT[c]}: g32 | g128", (c, RTN.at(b, 32), "g32"), [(c, RTN.at(b, 128), "g128")])
    for c in COLLECTIVES for b in BITS
))  # fmt: skip


def collapse(view: View, _: Accuracy) -> Judged:
    """INT2 in groups of 128: unusable in the all-reduce, usable in the all-to-all."""
    parts = []
    for collective, wanted in ((AR, True), (A2A, False)):
        values = view.each(collective, RTN.at(2, 128))
        if values.empty:
            return NOTHING
        flags = list(view.better(values, view.unit.collapsed) != wanted)
        holds = bool(view.better(values.median(), view.unit.collapsed)) != wanted
        text = view.unit.text(values.median()) + counted(flags, holds)
        parts.append(Judged(holds, {f"INT2 {COLLECTIVES[collective]}": text}))
    return together(parts)


def five_is_close(view: View, _: Accuracy) -> Judged:
    """INT5 against INT8, groups of 128; for an SQNR also the error's share of the energy."""
    parts = []
    for collective, name in COLLECTIVES.items():
        five, eight = (view.of(collective, RTN.at(b, 128)) for b in (5, 8))
        if not math.isnan(five + eight):
            cells = {f"{name}: INT5 | INT8": f"{view.unit.text(five)} | {view.unit.text(eight)}"}
            if view.unit is DECIBELS:
                cells[f"INT5's error, {name}"] = f"{100 * 10 ** (-five / 10):.2g} % of energy"
            parts.append(Judged(abs(five - eight) <= view.unit.close, cells))
    return together(parts)


def at_equal_bits(collective: str, group: int) -> Judge:
    """Spike reserving against every codec without it that sends no more bits."""

    def judge(view: View, accuracy: Accuracy) -> Judged:
        parts = []
        for codec, b in ((SPIKES.at(b, group), b) for b in BITS):
            bits = accuracy.bits.get(codec, math.nan)
            others = [
                (collective, n, n) for n, other in accuracy.bits.items() if "-sr" not in n and other <= bits + 1e-9
            ]
            parts.append(beats(view, f"INT{b} SR ({bits:.4g} bit) | best other", (collective, codec, codec), others))
        return together(parts)

    return judge


FINDINGS = (
    Finding("Spike reserving is the best of four methods at 3 and 2 bits", "table 3; all-reduce, groups of 32",
            "better than each of the three others", best_method),
    Finding("Hadamard is worse than round to nearest at 2 bits", "table 3; all-reduce, groups of 32",
            "round to nearest is better", hadamard_loses),
    Finding("LogFMT is worse than round to nearest at 2 bits", "table 3; all-reduce, groups of 32",
            "round to nearest is better", logfmt_loses),
    Finding("Round to nearest collapses at 2 bits in the all-reduce, not in the all-to-all",
            "tables 1 and 2; groups of 128", "the first is at 0 dB or less (the error is as large as the signal), the "
            "second is not; published: at ten times the perplexity of INT8 or more", collapse),
    Finding("The all-to-all tolerates each low bit width better than the all-reduce",
            "tables 1 and 2; round to nearest, groups of 128", "better at 4, 3 and 2 bits; published: of other models",
            tolerant),
    Finding("INT5 is close to INT8", "tables 1 and 2; round to nearest, groups of 128",
            "at most 3 dB apart: the error at most doubles; published: at most 5 % more", five_is_close),
    Finding("Spike reserving beats round to nearest in the all-to-all too", "table 8; groups of 32 and 128",
            "better at 4, 3 and 2 bits", spikes_in_all_to_all),
    Finding("Groups of 32 beat groups of 128", "tables 1 and 3, 8; round to nearest", "better at 4, 3 and 2 bits",
            small_groups),
    *(Finding(f"At equal wire bits, spike reserving wins: groups of {group}, {COLLECTIVES[collective]}",
              "not in the paper", "better than every other codec that sends no more bits", at_equal_bits(collective, group))
      for group, collective in ((32, AR), (128, AR), (128, A2A))),
)  # fmt: skip


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Columns two spaces apart, the first `left` of them flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    pad = lambda i, cell: cell.ljust(widths[i]) if i < left else cell.rjust(widths[i])  # noqa: E731
    return ["  ".join(pad(i, cell) for i, cell in enumerate(row)).rstrip() for row in rows]


def findings_text(accuracy: Accuracy) -> str:
    """Everything that is printed."""
    about = accuracy.study.about
    views = [accuracy.published, *accuracy.views()]
    judged = [[finding.judge(view, accuracy) for view in views] for finding in FINDINGS]
    words = {True: "yes", False: "NO", None: "-"}
    short = [
        [f"{i}.", f.claim, *(words[each.holds] for each in row)] for i, (f, row) in enumerate(zip(FINDINGS, judged), 1)
    ]
    lines = [
        f"# arlab.study.findings/1: {about.get('title', '')}",
        f"# from: {about.get('file', '')}", "",
        "== Findings in short: what the data say, by the medians", "",
        *aligned([["", "", *(view.name for view in views)], *short], 2), "",
        "== Findings", "",
        "SQNR in dB, exact. Published: increase of C4 perplexity over INT8 (groups of 128) of the",
        f"same model, {PAPER}, experiments/published; other models than ours. Medians over tensors",
        "or models; 4/6: only so many of them say so. RTN: round to nearest. SR: spike reserving.",
    ]  # fmt: skip
    verdicts = {True: "holds", False: "DOES NOT HOLD", None: "no figures"}
    for i, (finding, row) in enumerate(zip(FINDINGS, judged), 1):
        lines += ["", f"{i}. {finding.claim}", f"   {finding.source}. Holds if: {finding.means}."]
        headings = list(dict.fromkeys(heading for each in row for heading in each.cells))
        table = [["", "", *headings]]
        table += [
            [v.name, verdicts[each.holds], *(each.cells.get(h, "") for h in headings)] for v, each in zip(views, row)
        ]
        lines += [f"   {line}" for line in aligned(table, len(table[0]))]
    return "\n".join(lines) + "\n"


def accuracy_csv(accuracy: Accuracy, command: str) -> str:
    """Median SQNR by input, ranks, algorithm and codec."""
    about = accuracy.study.about
    groups = accuracy.rows.groupby(["input", "ranks", "algorithm", "codec"], sort=False)
    table = groups.agg(
        wire_bits_per_element=("codec", lambda codecs: f"{accuracy.bits[codecs.iloc[0]]:.6g}"), tensors=("tensor", "size"),
        median_sqnr_db=("sqnr_db", "median"), median_token_sqnr_db=("token_db", "median"),
    )  # fmt: skip
    return (
        f"# arlab.study.accuracy/1: {about.get('title', '')}\n# command: {command}\n"
        f"# provenance: {about.get('exact_provenance', '')}; from {about.get('file', '')}\n"
        + table.reset_index().map(lambda cell: guarded(cell) if isinstance(cell, str) else cell).to_csv(index=False, float_format="%.2f", lineterminator="\n")
    )


FLOOR = "At 0 dB the error is as large as the signal."
SQNR_LABEL = "SQNR (dB), higher is better"
PPL_LABEL = "perplexity increase (log), higher is better"
PPL_TICKS = {0.1: "+0.1 %", 1.0: "+1 %", 10.0: "+10 %", 100.0: "+100 %"}
PPL_TICKS |= {10.0**n: f"+10{superscript} %" for n, superscript in zip(range(3, 8), "³⁴⁵⁶⁷")}
LEGEND = [handle(m.label, **m.look) for m in METHODS]
LEAST_DRAWN_BITS, MOST_DRAWN_BITS = 1.7, 8.0  # INT8 is far off


def page(
    accuracy: Accuracy, count: int, title: str, subtitle: str | Sequence[str], notes: Sequence[str],
    legends: Sequence[Any] = (LEGEND,),
) -> Figure:  # fmt: skip
    """A page for `count` panels; its subtitle, unless it is a text, says what was measured on what, and these parts."""
    if not isinstance(subtitle, str):
        view = accuracy.main()
        most = int(view.values.notna().sum(axis=1).max())
        of = f"median over {most} tensors" if most > 1 else ""
        ranks = plural(accuracy.ranks, "rank")
        subtitle = style.sentence(f"SQNR: {view.name}", of, ranks, accuracy.study.dtypes, *subtitle)
    return style.new_page(
        title, subtitle, notes, accuracy.study.source(), legends, 1.6 * count if style.is_column() else 3.2
    )


def paper(tables: str, thin: str = "Thin lines: its models; thick: their median.") -> str:
    """Where a published number comes from."""
    return (
        f"Published: C4 perplexity of {PAPER}, {tables}, as increase over INT8 (groups of 128) of the same model; other "
        f"models than ours. {thin}".strip()
    )


def short(label: str) -> str:
    """A label of an axis, in a column without what comes after its comma."""
    return label.partition(",")[0] if style.is_column() else label


def perplexity_axis(axes: Axes, values: Iterable[float], label: bool = True) -> None:
    """A log axis in percent, the least increase at the top."""
    known = [value for value in values if value > 0] or [1.0, 100.0]
    axes.set_yscale("log")
    axes.set_ylim(max(known) * 1.6, min(known) / 1.6)
    ticks = [tick for tick in PPL_TICKS if min(known) / 1.6 <= tick <= max(known) * 1.6]
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticks(ticks, [PPL_TICKS[tick] for tick in ticks])
    axes.set_ylabel(short(PPL_LABEL) if label else "")


def sqnr_axis(axes: Axes, values: Any, label: bool = True) -> None:
    """An axis with room above and below, and a line where the error is as large as the signal."""
    known = np.append(np.asarray(values, dtype=float)[np.isfinite(np.asarray(values, dtype=float))], 0.0)
    room = 0.07 * max(1.0, float(np.ptp(known)))
    axes.set_ylim(known.min() - room, known.max() + room)
    axes.axhline(0, color=INK, linewidth=1, zorder=1.5)
    axes.set_ylabel(short(SQNR_LABEL) if label else "")


def draw_curves(
    axes: Axes, view: View, curves: Sequence[tuple[str, list[str], Mapping[str, str]]], names: Sequence[str], thin: bool
) -> list[Any]:
    """Lines over bit widths, each (collective, codecs, look) a thick one and thin ones it is the median of.

    Returns what label_ends() writes at the end of each: (y, text, colour).
    """
    ends = []
    for collective, codecs, look in curves:
        table = view.values.reindex([(collective, codec) for codec in codecs])
        table = table.where(table > 0) if view.unit is PERPLEXITY else table  # there is no zero on a log axis
        values = np.array([view.of(collective, codec) for codec in codecs])
        values[values <= (0 if view.unit is PERPLEXITY else -math.inf)] = math.nan
        if thin:
            axes.plot(range(len(codecs)), table.to_numpy(), color=look["color"], linewidth=0.8, alpha=0.4, zorder=2)
        known = np.flatnonzero(np.isfinite(values))
        if len(known):
            axes.plot(known, values[known], zorder=4, **look)
            text = decibels(values[known[-1]]) if view.unit is DECIBELS else view.unit.text(values[known[-1]])
            ends.append((values[known[-1]], text, look["color"]))
    axes.set_xlim(-0.25, len(names) - 0.75)
    axes.set_xticks(range(len(names)), names)
    axes.grid(axis="y")
    return ends


def label_ends(figure: Figure, ends: Mapping[Axes, Sequence[tuple[float, str, str]]]) -> None:
    """Texts right of the axes at the ends of lines, moved apart; the layout, which this settles, leaves them room."""
    look = {"va": "center", "zorder": 5, "size": "small", "weight": "bold"}
    labels = {
        axes: [axes.text(1.03, y, text, color=style.readable(colour), transform=axes.get_yaxis_transform(), **look)
               for y, text, colour in each]
        for axes, each in ends.items()
    }  # fmt: skip
    style.settle(figure)
    for axes, texts in labels.items():
        for text in texts:
            at = text.get_transform().transform(text.get_position())
            text.set(transform=axes.transData, position=axes.transData.inverted().transform(at))
        style.adjust(texts, axes, ensure_inside_axes=False)


@style.drawn
def methods_g32(accuracy: Accuracy) -> Figure:
    """Four methods in groups of 32: our SQNR and the published perplexity, in both collectives."""
    view, published = accuracy.main(), accuracy.published
    tables = {AR: "table 3", A2A: "table 8"}
    notes = [
        "Numbers beside the axes: 2 bits. SQNR of an all-reduce (two_shot): of the sum, for which every value is encoded "
        "twice; of an all-to-all: of the values, encoded once.", FLOOR, paper(" and ".join(tables.values())),
        "Methods do not send equal bits: see wire_bits.png.",
    ]  # fmt: skip
    known = pd.Series({m.label: view.of(AR, m.at(2, 32)) for m in METHODS}).dropna().sort_values(ascending=False)
    title = "Methods in groups of 32" if len(known) < 2 else (
        f"INT2: {known.index[0]} is best, {decibels(known.iloc[0] - known.iloc[1])} above {known.index[1]}"
    )  # fmt: skip
    figure = page(accuracy, 4, title, ["groups of 32"], notes)
    codecs = [m.at(b, 32) for m in METHODS for b in BITS]
    drawn = published.values[published.values.index.get_level_values("codec").isin(codecs)]
    ends = {}
    for axes, (source, c) in zip(style.panels(figure, 4), [(s, c) for s in (view, published) for c in COLLECTIVES]):
        curves = [(c, [m.at(b, 32) for b in BITS], m.look) for m in METHODS]
        ends[axes] = draw_curves(axes, source, curves, [f"INT{b}" for b in BITS], thin=source is published)
        if source is view:
            sqnr_axis(axes, [view.of(each, codec) for each in COLLECTIVES for codec in codecs], c == AR)
            axes.set_title(f"{COLLECTIVES[c]}\nSQNR, exact")
        else:
            perplexity_axis(axes, drawn.to_numpy().ravel(), c == AR)
            axes.set_title(f"{COLLECTIVES[c]}\npublished, {tables[c]}")
    label_ends(figure, ends)
    return figure


@style.drawn
def wire_bits(accuracy: Accuracy) -> Figure:
    """SQNR against wire bits."""
    view = accuracy.main()
    formats = [codec for codec in accuracy.bits if codec.startswith(("qr-", "mxfp", "nvfp"))]
    holds = {group: at_equal_bits(AR, group)(view, accuracy).holds for group in GROUPS}
    said = ", ".join(f"{'pays' if h else 'loses'} in groups of {g}" for g, h in holds.items() if h is not None)
    notes = [
        "Wire bits: codes, scales, zeros, spikes and their indices. Lines join 2, 3, 4 (round to nearest also 5 and 6) bits;"
        " filled markers, solid lines: groups of 32; open markers, dashed lines: groups of 128. SR: spike reserving. Wide"
        " grey line: the best of all for so many bits or fewer.", FLOOR,
    ]  # fmt: skip
    legend = [*LEGEND, handle("other formats", color=GREY, marker="P")]
    figure = page(accuracy, 2, f"At equal bits, spike reserving {said}", [], notes, [legend])
    grid = style.panels(figure, 2, sharex=True, sharey=True)
    names, others, drawn = {}, {}, []
    for axes, (collective, title) in zip(grid, COLLECTIVES.items()):
        points, names[axes] = [], []
        lines = [([m.at(b, g) for b in (6, 5, 4, 3, 2)], m.look, g) for m in METHODS for g in GROUPS]
        for codecs, look, group in [*lines, *(([codec], {"color": GREY, "marker": "P"}, 0) for codec in formats)]:
            known = [(accuracy.bits[c], view.of(collective, c), c) for c in codecs if c in accuracy.bits]
            known = [point for point in known if math.isfinite(point[1])]
            open_look = {"markerfacecolor": "white", "linestyle": "--"} if group == 128 else {}
            edge = {"markeredgecolor": look["color"] if group else "white", "linewidth": 1, "zorder": 4}
            axes.plot([p[0] for p in known], [p[1] for p in known], **look, **open_look, **edge)
            points += known
            label = {c: f"INT{c[3]} SR" for c in codecs if c.endswith("-sr")} | (
                {} if group else {codecs[0]: codecs[0]}
            )
            side = "right" if group == 32 else "left"
            names[axes] += [(x, y, label[c], look["color"], side) for x, y, c in known if c in label]
        best = front(pd.DataFrame([point[:2] for point in points], columns=["cost", "sqnr_db"]))
        ends = [*best["sqnr_db"], *best["sqnr_db"].tail(1)]
        axes.step(
            [*best["cost"], MOST_DRAWN_BITS][: len(ends)], ends, where="post", color="#CCCCCC", linewidth=4, zorder=2
        )
        others[axes] = [point[:2] for point in points]
        drawn += [point[1] for point in points]
        axes.set_title(title)
        axes.grid()
        axes.set_xlabel("wire bits per element, exact")
        axes.set_xlim(LEAST_DRAWN_BITS, MOST_DRAWN_BITS)
    for axes in grid:
        sqnr_axis(axes, drawn, axes is grid[0])
    for axes in grid:
        style.label_points(axes, names[axes], others[axes])
    return figure


FIGURES: dict[str, Callable[..., Figure]] = {draw.__name__: draw for draw in (methods_g32, wire_bits)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=EXPERIMENTS.parent / "results/accuracy", help="[%(default)s]")
    parser.add_argument("--run", action="store_true", help="run the study first")
    options = parser.parse_args()
    if options.run:
        from repository import arlab

        arlab("study", str(HERE / "study.toml"), "--out", str(options.folder), "--no-plots")
    style.use_own_fonts()
    try:
        data = read_accuracy(options.folder, EXPERIMENTS / "published")
        text = findings_text(data)
        command = "experiments/studies/accuracy/make.py"
        files = {"findings.txt": text.encode(), "accuracy.csv": accuracy_csv(data, command).encode()}
        files |= {f"{name}.png": style.encoded(draw(data), "png") for name, draw in FIGURES.items()}
        for name, content in files.items():
            style.write_whole(options.folder / name, content)
    except InputError as error:
        print("error:", " ".join(str(error).split("\n")), file=sys.stderr)
        return 2
    print(f"{text}\nWritten: {', '.join(str(options.folder / name) for name in files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
