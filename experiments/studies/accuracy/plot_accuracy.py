#!/usr/bin/env python3
"""Draws the accuracy study and judges its findings: `plot_accuracy.py FOLDER`.

Reads FOLDER/results.csv (arlab study), FOLDER/tokens.csv (token_sqnr.py) and the published
perplexities in experiments/published, all at the study's largest world size, and writes

    methods_g32.png     four methods at 4, 3 and 2 bits, all-reduce beside all-to-all (table 3, 8)
    methods_g128.png    the same in groups of 128 (table 1, 8)
    collectives.png     round to nearest from INT8 to INT2 in both collectives (table 1, 2)
    perplexity.png      published perplexity against our SQNR of the same codec
    wire_bits.png       SQNR against the bits that travel
    inputs.png          the methods on every input of the study
    tensors.png         layer by layer: whole tensor against median token
    accuracy.csv        median SQNR by input, ranks, algorithm and codec
    findings.txt        what is printed: SQNR and perplexity by codec, and every finding of the
                        paper judged by the data: holds or does not hold, with figures

An SQNR is exact and ours, a perplexity is published and of other models; they share no column and
no axis. Exit code: 0, or 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments" / "studies"))

import plot_study  # noqa: E402
from plot_study import GREY, INK, PALETTE, InputError, Page, Row, Study, median  # noqa: E402

# ---------------------------------------------------------------- what is compared

ALL_REDUCE, ALL_TO_ALL = "two_shot", "all_to_all"
COLLECTIVES = {ALL_REDUCE: "all-reduce", ALL_TO_ALL: "all-to-all"}
SHORT = {ALL_REDUCE: "AR", ALL_TO_ALL: "A2A"}
BITS, GROUPS = (4, 3, 2), (32, 128)
BASE = "int8-g128"  # what a perplexity is compared with: BF16's is not published for all models


class Method(NamedTuple):
    """One way to quantize, as in the paper's table 3."""

    label: str
    codec: str
    published: str
    colour: str
    marker: str

    def at(self, bits: int, group: int) -> str:
        """The codec's name."""
        return self.codec.format(b=bits, g=group)


RTN = Method("round to nearest", "int{b}-g{g}", "rtn", PALETTE[0], "o")
HADAMARD = Method("Hadamard", "had-int{b}-g{g}", "hadamard", PALETTE[4], "s")
LOGFMT = Method("LogFMT", "logfmt{b}-g{g}", "logfmt", PALETTE[3], "D")
SPIKES = Method("spike reserving", "int{b}-g{g}-sr", "spike_reserving", PALETTE[2], "^")
METHODS = (RTN, HADAMARD, LOGFMT, SPIKES)

Values = dict[tuple[str, str], dict[str, float]]  # by (collective, codec): by tensor or model


@dataclass(frozen=True)
class Unit:
    """SQNR or perplexity: which is better, how it is written, and where the paper's words begin."""

    each: str  # what the values are of
    sign: int  # 1: more is better
    collapsed: float  # as bad as this, or worse
    close: float  # two values no farther apart are close
    text: Callable[[float], str]
    said_collapsed: str
    said_close: str


def percent(value: float) -> str:
    """An increase, with two digits."""
    rounded = float(f"{value:.1e}")
    digits = max(0, 1 - math.floor(math.log10(abs(rounded)))) if rounded else 0
    return f"{rounded:+,.{min(digits, 2)}f} %".replace(",", " ")


def tenth(value: float) -> str:
    """An SQNR in a table, where the unit stands above."""
    return f"{value:.1f}"


DECIBELS = Unit(
    each="tensor",
    sign=1,
    collapsed=0.0,
    close=3.0,
    text=tenth,
    said_collapsed="at 0 dB or less (the error is as large as the signal)",
    said_close="at most 3 dB apart: the error at most doubles",
)
PERPLEXITY = Unit(
    each="model",
    sign=-1,
    collapsed=900.0,
    close=5.0,
    text=percent,
    said_collapsed="at ten times the perplexity of INT8 or more",
    said_close="at most 5 % more",
)


@dataclass(frozen=True)
class View:
    """One way to look at accuracy: an input and its SQNR, or the published perplexities."""

    name: str
    unit: Unit
    values: Values

    def of(self, collective: str, codec: str) -> float:
        """The median over tensors or models; NaN where there is none."""
        return float(median(self.values.get((collective, codec), {}).values()))

    def text(self, collective: str, codec: str) -> str:
        """That median for a reader."""
        return self.unit.text(self.of(collective, codec))


# ---------------------------------------------------------------- our figures


class Token(NamedTuple):
    """Two figures of one point in tokens.csv."""

    median_db: float
    whole_db: float


MEDIAN_TOKEN, WHOLE_TENSOR = "median token", "whole tensor"
Key = tuple[str, str, int, str, str]  # input, tensor, ranks, algorithm, codec


def key_of(row: Row) -> Key:
    """What names a point in both files."""
    return (row.input, row.tensor, row.ranks, row.algorithm, row.codec)


def read_tokens(path: Path) -> dict[Key, Token]:
    """tokens.csv; a study without files has none."""
    if not path.exists():
        return {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {
                (r["input"], r["tensor"], int(r["ranks"]), r["algorithm"], r["codec"]): Token(
                    float(r["median_token_sqnr_db"]), float(r["sqnr_db"])
                )
                for r in csv.DictReader(line for line in file if not line.startswith("#"))
            }
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not written by token_sqnr.py ({error!r})") from error


@dataclass(frozen=True)
class Accuracy:
    """Everything that is drawn and judged."""

    study: Study
    tokens: dict[Key, Token]
    published: View
    ranks: int  # the largest world size
    bits: dict[str, float] = field(default_factory=dict)  # on the wire, by codec

    def inputs(self, tokens: bool) -> list[str]:
        """The inputs with (or without) tokens."""
        with_tokens = {key[0] for key in self.tokens}
        names = plot_study.unique(row.input for row in self.study.rows)
        return [name for name in names if (name in with_tokens) == tokens]

    def view(self, name: str, ranks: int, tokens: bool, only: Iterable[str] = ()) -> View:
        """An input at a world size; with `only`, those of its tensors."""
        values: Values = {}
        allowed = set(only)
        for row in self.study.rows:
            if (row.input, row.ranks) != (name, ranks) or (allowed and row.tensor not in allowed):
                continue
            sqnr = self.tokens[key_of(row)].median_db if tokens else row.sqnr_db
            values.setdefault((row.algorithm, row.codec), {})[row.tensor] = sqnr
        if not self.inputs(tokens=True).count(name):
            return View(name, DECIBELS, values)
        return View(f"{name}, {MEDIAN_TOKEN if tokens else WHOLE_TENSOR}", DECIBELS, values)

    def main(self) -> View:
        """What the pictures of one input show: real activations, token by token."""
        real = self.inputs(tokens=True)
        name = real[0] if real else self.inputs(tokens=False)[0]
        return self.view(name, self.ranks, tokens=bool(real))

    def views(self) -> list[View]:
        """All inputs of the study: real ones token by token, and as whole tensors."""
        real = self.inputs(tokens=True)
        found = [self.view(name, self.ranks, tokens=True) for name in real]
        found += [self.view(name, self.ranks, tokens=False) for name in real]
        return found + [self.view(n, self.ranks, tokens=False) for n in self.inputs(tokens=False)]


def read_accuracy(folder: Path, published: Path) -> Accuracy:
    """Reads the three sources, and refuses tokens of another run."""
    study = plot_study.read_study(folder / "results.csv")
    tokens = read_tokens(folder / "tokens.csv")
    for row in study.rows:
        token = tokens.get(key_of(row))
        stale = token is not None and not math.isclose(token.whole_db, row.sqnr_db, rel_tol=1e-9)
        if stale or (token is None and row.input in {key[0] for key in tokens}):
            raise InputError(f"{folder}: tokens.csv is of another results.csv; run token_sqnr.py")
    bits: dict[str, list[float]] = {}
    for row in study.rows:
        bits.setdefault(row.codec, []).append(row.wire_bits)
    return Accuracy(
        study,
        tokens,
        read_published(published),
        max(row.ranks for row in study.rows),
        {codec: statistics.median_low(values) for codec, values in bits.items()},
    )


# ---------------------------------------------------------------- published figures


def published_table(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of a published table."""
    path = folder / name
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(line for line in file if not line.startswith("#")))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def read_published(folder: Path) -> View:
    """C4 perplexity, as its increase over INT8 of the same model in percent; tables 1, 3 and 8."""
    methods = {method.published: method for method in METHODS}
    perplexity: Values = {}

    def put(collective: str, method: str, row: dict[str, str], group: int) -> None:
        for column, cell in row.items():
            if not column.startswith("int"):
                continue
            bits, _, size = column.removeprefix("int").partition("_gs")
            codec = methods[method].at(int(bits), int(size or group))
            models = perplexity.setdefault((collective, codec), {})
            if models.setdefault(row["model"], float(cell)) != float(cell):
                raise InputError(f"{folder}: two perplexities of {row['model']} with {codec}")

    for row in published_table(folder, "flashcomm2_table1_allreduce_perplexity_rtn.csv"):
        put(ALL_REDUCE, "rtn", row, 128)
    for row in published_table(folder, "flashcomm2_table3_allreduce_perplexity_methods.csv"):
        put(ALL_REDUCE, row["method"], row, 32)
    for row in published_table(folder, "flashcomm2_table2_all2all_perplexity_rtn.csv"):
        put(ALL_TO_ALL, "rtn", row, 128)
    for row in published_table(folder, "flashcomm2_table8_all2all_perplexity_methods.csv"):
        put(ALL_TO_ALL, row["method"], row, 128)
    increase = {
        (collective, codec): {
            model: 100 * (value / perplexity[(collective, BASE)][model] - 1)
            for model, value in models.items()
        }
        for (collective, codec), models in perplexity.items()
    }
    return View("published", PERPLEXITY, increase)


# ---------------------------------------------------------------- findings


class Judged(NamedTuple):
    """Whether a claim holds, by the medians; None without the figures for it."""

    holds: bool | None
    cells: dict[str, str]  # the figures, by the heading of their column


NOTHING = Judged(None, {})


@dataclass(frozen=True)
class Finding:
    """A claim, where the paper makes it, and what it means in figures."""

    claim: str
    source: str
    means: str
    judge: Callable[[View, Accuracy], Judged]


def together(parts: Sequence[Judged]) -> Judged:
    """Claims that are made in one breath; those without figures take no part."""
    known = [part for part in parts if part.holds is not None]
    cells = {heading: cell for part in known for heading, cell in part.cells.items()}
    return Judged(all(part.holds for part in known) if known else None, cells)


def is_better(view: View, one: float, other: float) -> bool:
    """Strictly better in the view's unit."""
    return view.unit.sign * one > view.unit.sign * other


def counted(flags: Sequence[bool], holds: bool) -> str:
    """` 4/6`: so many tensors or models say so; nothing where all agree with the median."""
    return "" if all(flag == holds for flag in flags) else f" {sum(flags)}/{len(flags)}"


Candidate = tuple[str, str, str]  # collective, codec, what to call it


def beats(view: View, heading: str, winner: Candidate, others: Sequence[Candidate]) -> Judged:
    """The winner is better than the best of the others, which is named where there are several."""
    known = [c for c in others if not math.isnan(view.of(c[0], c[1]))]
    mine = view.of(winner[0], winner[1])
    if math.isnan(mine) or not known:
        return NOTHING
    best = max(known, key=lambda c: view.unit.sign * view.of(c[0], c[1]))
    theirs = [view.values[(c[0], c[1])] for c in known]
    own = view.values[(winner[0], winner[1])]
    shared = [name for name in own if all(name in values for values in theirs)]
    flags = [all(is_better(view, own[n], values[n]) for values in theirs) for n in shared]
    holds = is_better(view, mine, view.of(best[0], best[1]))
    name = f" {best[2]}" if len(others) > 1 else ""
    figures = f"{view.unit.text(mine)} | {view.text(best[0], best[1])}{name}"
    return Judged(holds, {heading: figures + counted(flags, holds)})


def best_method(view: View, _: Accuracy) -> Judged:
    """Spike reserving against the other three, at 3 and 2 bits."""
    return together(
        [
            beats(
                view,
                f"INT{b}: SR | best other",
                (ALL_REDUCE, SPIKES.at(b, 32), "SR"),
                [(ALL_REDUCE, m.at(b, 32), m.label) for m in METHODS if m != SPIKES],
            )
            for b in (3, 2)
        ]
    )


def loses_to_rtn(method: Method) -> Callable[[View, Accuracy], Judged]:
    """A method against round to nearest at 2 bits."""

    def judge(view: View, _: Accuracy) -> Judged:
        rtn = (ALL_REDUCE, RTN.at(2, 32), "RTN")
        other = (ALL_REDUCE, method.at(2, 32), method.label)
        return beats(view, f"INT2: RTN | {method.label}", rtn, [other])

    return judge


def collapse(view: View, _: Accuracy) -> Judged:
    """INT2 in groups of 128: unusable in the all-reduce, usable in the all-to-all."""
    codec, limit = RTN.at(2, 128), view.unit.collapsed
    parts = []
    for collective, wanted in ((ALL_REDUCE, True), (ALL_TO_ALL, False)):
        values = view.values.get((collective, codec), {})
        if not values:
            return NOTHING
        flags = [is_better(view, value, limit) != wanted for value in values.values()]
        holds = is_better(view, view.of(collective, codec), limit) != wanted
        text = view.text(collective, codec) + counted(flags, holds)
        parts.append(Judged(holds, {f"INT2 {COLLECTIVES[collective]}": text}))
    return together(parts)


def tolerant(view: View, _: Accuracy) -> Judged:
    """The all-to-all loses less than the all-reduce, bit width by bit width."""
    return together(
        [
            beats(
                view,
                f"INT{b}: all-to-all | all-reduce",
                (ALL_TO_ALL, RTN.at(b, 128), "all-to-all"),
                [(ALL_REDUCE, RTN.at(b, 128), "all-reduce")],
            )
            for b in BITS
        ]
    )


def five_is_close(view: View, _: Accuracy) -> Judged:
    """INT5 against INT8, groups of 128; for an SQNR also the error's share of the energy."""
    parts = []
    for collective, name in COLLECTIVES.items():
        five, eight = view.of(collective, RTN.at(5, 128)), view.of(collective, RTN.at(8, 128))
        if math.isnan(five) or math.isnan(eight):
            continue
        unit = view.unit
        cells = {f"{name}: INT5 | INT8": f"{unit.text(five)} | {unit.text(eight)}"}
        if unit.sign > 0:
            cells[f"INT5's error, {name}"] = f"{100 * 10 ** (-five / 10):.2g} % of energy"
        parts.append(Judged(abs(five - eight) <= unit.close, cells))
    return together(parts)


def spikes_in_all_to_all(view: View, _: Accuracy) -> Judged:
    """Spike reserving against round to nearest in the all-to-all."""
    return together(
        [
            beats(
                view,
                f"INT{b} g{g}: SR | RTN",
                (ALL_TO_ALL, SPIKES.at(b, g), "SR"),
                [(ALL_TO_ALL, RTN.at(b, g), "RTN")],
            )
            for g in GROUPS
            for b in BITS
        ]
    )


def small_groups(view: View, _: Accuracy) -> Judged:
    """Groups of 32 against groups of 128, round to nearest."""
    return together(
        [
            beats(
                view,
                f"INT{b} {SHORT[collective]}: g32 | g128",
                (collective, RTN.at(b, 32), "g32"),
                [(collective, RTN.at(b, 128), "g128")],
            )
            for collective in COLLECTIVES
            for b in BITS
        ]
    )


def at_equal_bits(collective: str, group: int) -> Callable[[View, Accuracy], Judged]:
    """Spike reserving against every codec without it that sends no more bits."""

    def judge(view: View, accuracy: Accuracy) -> Judged:
        parts = []
        for b in BITS:
            codec = SPIKES.at(b, group)
            if codec not in accuracy.bits:
                continue
            bits = accuracy.bits[codec]
            others = [
                (collective, name, name)
                for name in accuracy.bits
                if "-sr" not in name and accuracy.bits[name] <= bits + 1e-9
            ]
            heading = f"INT{b} SR ({bits:.4g} bit) | best other"
            parts.append(beats(view, heading, (collective, codec, codec), others))
        return together(parts)

    return judge


FINDINGS = (
    Finding(
        "Spike reserving is the best of four methods at 3 and 2 bits",
        "table 3; all-reduce, groups of 32",
        "better than each of the three others",
        best_method,
    ),
    Finding(
        "Hadamard is worse than round to nearest at 2 bits",
        "table 3; all-reduce, groups of 32",
        "round to nearest is better",
        loses_to_rtn(HADAMARD),
    ),
    Finding(
        "LogFMT is worse than round to nearest at 2 bits",
        "table 3; all-reduce, groups of 32",
        "round to nearest is better",
        loses_to_rtn(LOGFMT),
    ),
    Finding(
        "Round to nearest collapses at 2 bits in the all-reduce, not in the all-to-all",
        "tables 1 and 2; groups of 128",
        f"the first is {DECIBELS.said_collapsed}, the second is not; published: "
        f"{PERPLEXITY.said_collapsed}",
        collapse,
    ),
    Finding(
        "The all-to-all tolerates each low bit width better than the all-reduce",
        "tables 1 and 2; round to nearest, groups of 128",
        "better at 4, 3 and 2 bits; published: of other models",
        tolerant,
    ),
    Finding(
        "INT5 is close to INT8",
        "tables 1 and 2; round to nearest, groups of 128",
        f"{DECIBELS.said_close}; published: {PERPLEXITY.said_close}",
        five_is_close,
    ),
    Finding(
        "Spike reserving beats round to nearest in the all-to-all too",
        "table 8; groups of 32 and 128",
        "better at 4, 3 and 2 bits",
        spikes_in_all_to_all,
    ),
    Finding(
        "Groups of 32 beat groups of 128",
        "tables 1 and 3, 8; round to nearest",
        "better at 4, 3 and 2 bits",
        small_groups,
    ),
    *(
        Finding(
            f"At equal wire bits, spike reserving wins: groups of {group}, "
            f"{COLLECTIVES[collective]}",
            "not in the paper",
            "better than every other codec that sends no more bits",
            at_equal_bits(collective, group),
        )
        for group, collective in ((32, ALL_REDUCE), (128, ALL_REDUCE), (128, ALL_TO_ALL))
    ),
)


def verdict(judged: Judged) -> str:
    """Two words for a table."""
    if judged.holds is None:
        return "no figures"
    return "holds" if judged.holds else "DOES NOT HOLD"


def in_short(judged: Judged) -> str:
    """One word for a table."""
    return {True: "yes", False: "NO", None: "-"}[judged.holds]


# ---------------------------------------------------------------- perplexity against SQNR


class Pair(NamedTuple):
    """A codec with both figures."""

    method: Method
    collective: str
    bits: int
    sqnr_db: float
    increase: float
    models: list[float]


def pairs_of(accuracy: Accuracy) -> list[Pair]:
    """Codecs that have our SQNR and a published increase above 0, which a logarithm needs."""
    view, published = accuracy.main(), accuracy.published
    pairs = []
    for collective in COLLECTIVES:
        for method in METHODS:
            for bits in (8, 6, 5, 4, 3, 2):
                for group in GROUPS:
                    codec = method.at(bits, group)
                    ours, theirs = view.of(collective, codec), published.of(collective, codec)
                    if math.isfinite(ours) and theirs > 0:
                        models = published.values[(collective, codec)].values()
                        positive = [value for value in models if value > 0]
                        pairs.append(Pair(method, collective, bits, ours, theirs, positive))
    return pairs


def rank_correlation(pairs: Sequence[Pair]) -> float:
    """Spearman's rho of SQNR and perplexity, 1 for the same order; NaN below three points."""
    points = [(pair.sqnr_db, -pair.increase) for pair in pairs]
    if len(points) < 3:
        return math.nan

    def ranked(values: list[float]) -> list[float]:
        order = sorted(values)
        return [(order.index(v) + len(order) - 1 - order[::-1].index(v)) / 2 for v in values]

    try:
        return statistics.correlation(*(ranked([p[i] for p in points]) for i in (0, 1)))
    except statistics.StatisticsError:
        return math.nan


def same_curve(pairs: Sequence[Pair]) -> list[float]:
    """How many times the increase that the all-reduce has at the same SQNR, by all-to-all codec.

    Between codecs of the all-reduce by interpolation of the logarithm; none outside their range.
    """
    curve = sorted((p.sqnr_db, math.log(p.increase)) for p in pairs if p.collective == ALL_REDUCE)
    if len(curve) < 2:
        return []
    xs, ys = zip(*curve)
    inside = [p for p in pairs if p.collective == ALL_TO_ALL and xs[0] <= p.sqnr_db <= xs[-1]]
    return [p.increase / math.exp(float(np.interp(p.sqnr_db, xs, ys))) for p in inside]


def smooth(pairs: Sequence[Pair]) -> list[Pair]:
    """The codecs with uniform steps in the values themselves."""
    return [pair for pair in pairs if pair.method in (RTN, SPIKES)]


def perplexity_lines(accuracy: Accuracy) -> list[str]:
    """How well SQNR and perplexity agree in the order of codecs."""
    pairs = pairs_of(accuracy)
    rows = [["Spearman's rank correlation (1: the same order)", "codecs", ""]]
    for name, chosen in (
        ("all-reduce, all methods", [p for p in pairs if p.collective == ALL_REDUCE]),
        ("all-to-all, all methods", [p for p in pairs if p.collective == ALL_TO_ALL]),
        ("both, all methods", pairs),
        ("both, round to nearest and spike reserving", smooth(pairs)),
    ):
        rows.append([name, str(len(chosen)), number(rank_correlation(chosen), "{:.3f}".format)])
    factors = same_curve(smooth(pairs))
    said = (
        f"none: {len(factors)} codecs"
        if not factors
        else (
            f"{median(factors):.2f} times in the median of {len(factors)} codecs, "
            f"{min(factors):.2f} to {max(factors):.2f}"
        )
    )
    return [
        *aligned(rows, 1),
        f"Perplexity increase in the all-to-all over that in the all-reduce at equal SQNR: {said}.",
    ]


# ---------------------------------------------------------------- text


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Columns two spaces apart, the first `left` of them flush left, the others flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def number(value: float, text: Callable[[float], str]) -> str:
    """A cell; a dash without a value."""
    return "-" if math.isnan(value) else "exact" if value == math.inf else text(value)


def codec_table(accuracy: Accuracy) -> list[str]:
    """SQNR of the main view and published perplexity, by codec, in columns of their own."""
    views = {"token": accuracy.main()}
    whole = [view for view in accuracy.views() if view.name.endswith(WHOLE_TENSOR)]
    if whole:
        views["tensor"] = whole[0]
    rows = [["codec", "wire bits"]]
    rows[0] += [f"{SHORT[c]} {n}" for c in COLLECTIVES for n in (*views, "published")]
    for codec, bits in accuracy.bits.items():
        row = [codec, f"{bits:.4g}"]
        for collective in COLLECTIVES:
            row += [number(view.of(collective, codec), tenth) for view in views.values()]
            row.append(number(accuracy.published.of(collective, codec), percent))
        rows.append(row)
    said = accuracy.study.exact_provenance or "the file does not say where they come from"
    return [
        f"AR: all-reduce, A2A: all-to-all. Token, tensor: SQNR in dB of {views['token'].name}, and"
        f" of the whole tensor, median over the tensors ({said}).",
        f"Published: perplexity increase as above ({PAPER}, tables 1, 2, 3, 8).",
        "",
        *aligned(rows, 1),
    ]


def findings_text(accuracy: Accuracy) -> str:
    """Everything that is printed."""
    views = [accuracy.published, *accuracy.views()]
    judged = [[finding.judge(view, accuracy) for view in views] for finding in FINDINGS]
    short = [
        [f"{i}.", finding.claim, *map(in_short, row)]
        for i, (finding, row) in enumerate(zip(FINDINGS, judged), 1)
    ]
    lines = [
        f"# arlab.study.findings/1: {accuracy.study.title}",
        f"# from: {accuracy.study.file}, and its tokens.csv",
        "",
        "== Findings in short: what the data say, by the medians",
        "",
        *aligned([["", "", *(view.name for view in views)], *short], 2),
        "",
        "== Findings",
        "",
        "SQNR in dB, exact. Published: increase of C4 perplexity over INT8 (groups of 128) of the",
        f"same model, {PAPER}, experiments/published; other models than ours. Medians over tensors",
        "or models; 4/6: only so many of them say so. RTN: round to nearest. SR: spike reserving.",
    ]
    for i, (finding, row) in enumerate(zip(FINDINGS, judged), 1):
        lines += ["", f"{i}. {finding.claim}", f"   {finding.source}. Holds if: {finding.means}."]
        headings = plot_study.unique(heading for each in row for heading in each.cells)
        table = [["", "", *headings]]
        for view, each in zip(views, row):
            cells = [each.cells.get(heading, "") for heading in headings]
            table.append([view.name, verdict(each), *cells])
        lines += [f"   {line}" for line in aligned(table, len(table[0]))]
    lines += ["", "== Published perplexity against our SQNR", "", *perplexity_lines(accuracy)]
    lines += ["", f"== Accuracy by codec, {plot_study.plural(accuracy.ranks, 'rank')}", ""]
    lines += [*codec_table(accuracy)]
    return "\n".join(lines) + "\n"


def accuracy_csv(accuracy: Accuracy, folder: Path) -> str:
    """Median SQNR by input, ranks, algorithm and codec."""
    text = io.StringIO()
    text.write(f"# arlab.study.accuracy/1: {accuracy.study.title}\n")
    text.write(f"# command: plot_accuracy.py {folder}\n")
    text.write(f"# provenance: {accuracy.study.exact_provenance}; from {accuracy.study.file}\n")
    writer = csv.writer(text, lineterminator="\n")
    columns = ["input", "ranks", "algorithm", "codec", "wire_bits_per_element", "tensors"]
    writer.writerow([*columns, "median_sqnr_db", "median_token_sqnr_db"])
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in accuracy.study.rows:
        groups.setdefault((row.input, row.ranks, row.algorithm, row.codec), []).append(row)
    for group, rows in groups.items():
        tokens = [accuracy.tokens[key_of(r)] for r in rows if key_of(r) in accuracy.tokens]
        cells = [median(r.sqnr_db for r in rows), median(token.median_db for token in tokens)]
        shown = ["" if math.isnan(cell) else f"{cell:.2f}" for cell in cells]
        writer.writerow([*group, f"{accuracy.bits[group[3]]:.6g}", len(rows), *shown])
    return text.getvalue()


# ---------------------------------------------------------------- pictures

PAPER = "Flash Communication V2"
FLOOR = "At 0 dB the error is as large as the signal."
SQNR_LABEL = "SQNR (dB), higher is better"
PPL_LABEL = "perplexity increase (log), higher is better"
PPL_TICKS = {0.1: "+0.1 %", 1.0: "+1 %", 10.0: "+10 %", 100.0: "+100 %"}
PPL_TICKS |= {10.0**n: f"+10{superscript} %" for n, superscript in zip(range(3, 8), "³⁴⁵⁶⁷")}


def ink(colour: str) -> str:
    """A method's colour for text."""
    return str(plot_study.Style({"": colour}, {}).ink(""))


def handles(methods: Iterable[Method]) -> list[Line2D]:
    """Legend entries."""
    return [plot_study.handle(m.colour, m.marker, m.label) for m in methods]


def where(accuracy: Accuracy, view: View, *parts: str) -> str:
    """The subtitle: what was measured, on what."""
    count = max(len(values) for values in view.values.values())
    of = f"median over {count} tensors" if count > 1 else ""
    dtypes = ", ".join(plot_study.unique(row.dtype for row in accuracy.study.rows))
    text = [f"SQNR: {view.name}", of, plot_study.plural(accuracy.ranks, "rank"), dtypes, *parts]
    return ", ".join(part for part in text if part)


def paper(tables: str, thin: str = "Thin lines: its models; thick: their median. ") -> str:
    """Where a published number comes from."""
    return (
        f"Published: C4 perplexity of {PAPER}, {tables}, as increase over INT8 (groups of 128) of "
        f"the same model; other models than ours. {thin}".strip()
    )


def perplexity_axis(axes: Axes, values: Iterable[float]) -> None:
    """A log axis in percent, the least increase at the top."""
    known = [value for value in values if value > 0]
    axes.set_yscale("log")
    axes.set_ylim(max(known, default=100) * 1.6, min(known, default=1) / 1.6)
    low, high = axes.get_ylim()[1], axes.get_ylim()[0]
    ticks = [tick for tick in PPL_TICKS if low <= tick <= high]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticks(ticks, [PPL_TICKS[tick] for tick in ticks])


def end_labels(page: Page, axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Texts right of the axes at the heights of the last points, moved apart."""
    frame = axes.get_window_extent()
    order = sorted(ends, key=lambda end: axes.transData.transform((0, end[0]))[1])
    wanted = [float(axes.transData.transform((0, end[0]))[1]) for end in order]
    gap = 1.3 * plot_study.TICK_PT * plot_study.DPI / 72
    heights = plot_study.apart(wanted, gap, frame.y0, frame.y1)
    for (_, text, colour), height in zip(order, heights):
        x, y = axes.transAxes.inverted().transform((frame.x1 + 4, height))
        label = axes.text(x, y, text, transform=axes.transAxes, va="center", zorder=5)
        label.set(size=plot_study.TICK_PT, weight="bold", color=ink(colour))


def sqnr_limits(values: Iterable[float]) -> tuple[float, float]:
    """An axis with room above and below."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    room = 0.07 * max(1.0, max(known) - min(known))
    return min(known) - room, max(known) + room


def noise_floor(axes: Axes) -> None:
    """Where the error is as large as the signal."""
    axes.axhline(0, color=INK, linewidth=1, zorder=1.5)


class Curve(NamedTuple):
    """A line over bit widths: a thick one, and thin ones that it is the median of."""

    codecs: list[str]
    collective: str
    colour: str
    marker: str
    dashed: bool = False


def draw_curves(axes: Axes, view: View, curves: Sequence[Curve], thin: bool) -> list[Any]:
    """Draws lines over bit widths; returns the last point of each with its text."""
    ends = []
    for curve in curves:
        low = 0.0 if view.unit is PERPLEXITY else -math.inf  # there is no zero on a log axis
        points = [(i, view.of(curve.collective, codec)) for i, codec in enumerate(curve.codecs)]
        points = [(x, y) for x, y in points if math.isfinite(y) and y > low]
        if not points:
            continue
        names: list[str] = []
        if thin:
            found = (view.values.get((curve.collective, codec), {}) for codec in curve.codecs)
            names = plot_study.unique(name for values in found for name in values)
        for name in names:
            line = [
                view.values.get((curve.collective, codec), {}).get(name, math.nan)
                for codec in curve.codecs
            ]
            line = [value if value > low else math.nan for value in line]
            axes.plot(line, color=curve.colour, linewidth=0.8, alpha=0.4, zorder=2)
        style = "--" if curve.dashed else "-"
        axes.plot(*zip(*points), style, color=curve.colour, linewidth=2, zorder=3)
        axes.plot(*zip(*points), curve.marker, color=curve.colour, markersize=7, zorder=4)
        axes.lines[-1].set(markeredgecolor="white", markeredgewidth=0.8)
        ends.append((points[-1][1], shown(view.unit, points[-1][1]), curve.colour))
    return ends


def shown(unit: Unit, value: float) -> str:
    """A value in a picture, with its unit."""
    return str(plot_study.decibels(value)) if unit is DECIBELS else unit.text(value)


def bit_axis(axes: Axes, names: Sequence[str]) -> None:
    """Bit widths from left to right."""
    axes.set_xlim(-0.25, len(names) - 0.75)
    axes.set_xticks(range(len(names)), names)
    axes.grid(axis="y")


def methods(group: int) -> Callable[[Accuracy], Page]:
    """The figure of four methods in groups of one size."""
    tables = {ALL_REDUCE: "table 3" if group == 32 else "table 1", ALL_TO_ALL: "table 8"}

    def draw(accuracy: Accuracy) -> Page:
        view, published = accuracy.main(), accuracy.published
        page = Page(
            accuracy.study,
            methods_title(view, group),
            where(accuracy, view, f"groups of {group}"),
            [
                "Numbers beside the axes: 2 bits. SQNR of an all-reduce (two_shot): of the sum, for"
                " which every value is encoded twice; of an all-to-all: of the values, encoded"
                " once.",
                FLOOR,
                paper(" and ".join(tables.values())),
                "Methods do not send equal bits: see wire_bits.png.",
            ],
            [handles(METHODS)],
        )
        codecs = [m.at(b, group) for m in METHODS for b in BITS]
        sqnrs = [view.of(collective, codec) for collective in COLLECTIVES for codec in codecs]
        drawn = [values for key, values in published.values.items() if key[1] in codecs]
        ends = []
        panels = [(source, c) for source in (view, published) for c in COLLECTIVES]
        for axes, (source, collective) in zip(page.figure.subplots(1, 4), panels):
            curves = [
                Curve([m.at(b, group) for b in BITS], collective, m.colour, m.marker)
                for m in METHODS
            ]
            ends.append((axes, draw_curves(axes, source, curves, thin=source is published)))
            bit_axis(axes, [f"INT{b}" for b in BITS])
            first = collective == ALL_REDUCE
            if source is view:
                axes.set_ylim(*sqnr_limits([0, *sqnrs]))
                noise_floor(axes)
                axes.set_title(f"{COLLECTIVES[collective]}\nSQNR, exact")
                axes.set_ylabel(SQNR_LABEL if first else "")
            else:
                perplexity_axis(axes, [v for values in drawn for v in values.values()])
                axes.set_title(f"{COLLECTIVES[collective]}\npublished, {tables[collective]}")
                axes.set_ylabel(PPL_LABEL if first else "")
        leave_room(page, ends)
        return page

    return draw


def leave_room(page: Page, ends: Sequence[tuple[Axes, list[Any]]]) -> None:
    """Settles the page and writes the end labels, for which every panel gives up some width."""
    page.settle()
    for axes, texts in ends:
        widths = [page.text_px(text, plot_study.TICK_PT, "bold")[0] for _, text, _ in texts]
        box = axes.get_position()
        less = (max(widths, default=0) + 8) / (plot_study.WIDTH_IN * plot_study.DPI)
        axes.set_position((box.x0, box.y0, box.width - less, box.height))
        end_labels(page, axes, texts)


def methods_title(view: View, group: int) -> str:
    """Who wins at 2 bits, and by how much."""
    codecs = {m.label: view.of(ALL_REDUCE, m.at(2, group)) for m in METHODS}
    known = {label: value for label, value in codecs.items() if not math.isnan(value)}
    if len(known) < 2:
        return f"Methods in groups of {group}"
    best, second = sorted(known, key=known.__getitem__, reverse=True)[:2]
    lead = plot_study.decibels(known[best] - known[second])
    return (
        f"INT2, groups of {group}, all-reduce: {best} is best, "
        f"{plot_study.decibels(known[best])}, {lead} above {second}"
    )


COLLECTIVE_COLOURS = {ALL_REDUCE: (PALETTE[1], "s"), ALL_TO_ALL: (PALETTE[5], "X")}


def collectives(accuracy: Accuracy) -> Page:
    """Round to nearest from INT8 to INT2, and against the number of ranks."""
    view, published = accuracy.main(), accuracy.published
    widths = (8, 6, 5, 4, 3, 2)
    codecs = [RTN.at(b, 128) for b in widths]
    reduce_db, exchange_db = (view.of(c, codecs[-1]) for c in COLLECTIVES)
    page = Page(
        accuracy.study,
        f"INT2, round to nearest: {plot_study.decibels(reduce_db)} in the all-reduce, "
        f"{plot_study.decibels(exchange_db)} in the all-to-all",
        where(accuracy, view, "round to nearest, groups of 128"),
        [
            "Left: thin lines are the tensors.",
            FLOOR,
            paper("tables 1 (all-reduce, dense models) and 2 (all-to-all, mixtures of experts)"),
            "Right: the tensors that exist at every number of ranks.",
        ],
        [[plot_study.handle(*COLLECTIVE_COLOURS[c], name) for c, name in COLLECTIVES.items()]],
    )
    left, middle, right = page.figure.subplots(1, 3)
    ends = []
    for axes, source, first in ((left, view, 0), (middle, published, 1)):  # INT8 is the base
        curves = [Curve(codecs[first:], c, *COLLECTIVE_COLOURS[c]) for c in COLLECTIVES]
        ends.append((axes, draw_curves(axes, source, curves, thin=True)))
        bit_axis(axes, [f"INT{b}" for b in widths[first:]])
    ours = [values for key, values in view.values.items() if key[1] in codecs]
    left.set_ylim(*sqnr_limits([0, *(value for values in ours for value in values.values())]))
    noise_floor(left)
    left.set_title("SQNR, exact")
    left.set_ylabel(SQNR_LABEL)
    theirs = [values for key, values in published.values.items() if key[1] in codecs]
    perplexity_axis(middle, [value for values in theirs for value in values.values()])
    middle.set_title("Perplexity, published, tables 1 and 2")
    middle.set_ylabel(PPL_LABEL)
    ends.append((right, draw_ranks(accuracy, right, (8, 4, 2))))
    leave_room(page, ends)
    return page


def common_tensors(accuracy: Accuracy, name: str) -> tuple[list[int], list[str]]:
    """The rank counts of an input, and the tensors that it has at each of them."""
    by_ranks: dict[int, set[str]] = {}
    for row in accuracy.study.rows:
        if row.input == name:
            by_ranks.setdefault(row.ranks, set()).add(row.tensor)
    return sorted(by_ranks), sorted(set.intersection(*by_ranks.values()))


def draw_ranks(accuracy: Accuracy, axes: Axes, widths: Sequence[int]) -> list[Any]:
    """SQNR against the number of ranks, a pair of lines per bit width."""
    main = accuracy.main().name.partition(",")[0]
    counts, common = common_tensors(accuracy, main)
    tokens = main in accuracy.inputs(tokens=True)
    views = [accuracy.view(main, count, tokens, common) for count in counts]
    ends, drawn = [], [0.0]
    for b in widths:
        for collective, (colour, marker) in COLLECTIVE_COLOURS.items():
            values = [view.of(collective, RTN.at(b, 128)) for view in views]
            axes.plot(counts, values, "-", color=colour, linewidth=2, zorder=3)
            axes.plot(counts, values, marker, color=colour, markersize=7, zorder=4)
            axes.lines[-1].set(markeredgecolor="white", markeredgewidth=0.8)
            if math.isfinite(values[-1]):
                ends.append((values[-1], f"INT{b}  {shown(DECIBELS, values[-1])}", colour))
                drawn += values
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("ranks")
    axes.set_ylim(*sqnr_limits(drawn))
    axes.grid(axis="y")
    noise_floor(axes)
    axes.set_title("SQNR by ranks, exact")
    return ends


def perplexity(accuracy: Accuracy) -> Page:
    """Published perplexity against our SQNR of the same codec in the same collective."""
    pairs = pairs_of(accuracy)
    reduced = [pair for pair in pairs if pair.collective == ALL_REDUCE]
    page = Page(
        accuracy.study,
        perplexity_title(pairs),
        where(accuracy, accuracy.main()),
        [
            "A point is a codec in a collective, the number in it its bits; twice the same: groups"
            " of 128 (less SQNR) and of 32. Across: ours, exact. Up: published, median over models."
            " Thin lines reach from the best model to the worst, some beyond the axis.",
            paper("tables 1, 3 and 8", thin=""),
        ],
        [
            [
                plot_study.handle(COLLECTIVE_COLOURS[c][0], m.marker, f"{name}, {m.label}")
                for c, name in COLLECTIVES.items()
                for m in (RTN, SPIKES)
            ],
            handles(METHODS),
        ],
    )
    left, right = page.figure.subplots(1, 2, sharex=True, sharey=True)
    for pair in smooth(pairs):
        draw_pair(left, pair, COLLECTIVE_COLOURS[pair.collective][0])
    for pair in reduced:
        draw_pair(right, pair, pair.method.colour)
    for axes, name, chosen in (
        (left, "both collectives, two methods (first line of the legend)", smooth(pairs)),
        (right, "all-reduce, all methods (second line)", reduced),
    ):
        perplexity_axis(axes, [pair.increase for pair in pairs])
        axes.grid()
        axes.set_title(f"{name}\nrank correlation {rank_correlation(chosen):.2f}")
        axes.set_xlabel("our SQNR (dB), exact")
    left.set_ylabel(PPL_LABEL)
    page.settle()
    return page


def draw_pair(axes: Axes, pair: Pair, colour: str) -> None:
    """One codec of the scatter plot, its bits inside."""
    x, y = pair.sqnr_db, pair.increase
    axes.plot([x, x], [min(pair.models), max(pair.models)], color=colour, linewidth=1, alpha=0.5)
    axes.plot([x], [y], pair.method.marker, color=colour, markersize=11, zorder=4)
    axes.lines[-1].set(markeredgecolor="white", markeredgewidth=0.8)
    lower = -2 if pair.method is SPIKES else -0.5  # the middle of a triangle is not its centre
    note = axes.annotate(str(pair.bits), (x, y), (0, lower), textcoords="offset points")
    note.set(ha="center", va="center", color="white", zorder=5)
    note.set(size=plot_study.SMALL_PT, weight="bold")


def perplexity_title(pairs: Sequence[Pair]) -> str:
    """Whether one curve serves both collectives."""
    factors = same_curve(smooth(pairs))
    if not factors:
        return "Published perplexity against our SQNR"
    return (
        "Round to nearest, spike reserving: at equal SQNR, the published perplexity increase in "
        f"the all-to-all is {median(factors):.1f} times that in the all-reduce (median)"
    )


LEAST_DRAWN_BITS, MOST_DRAWN_BITS = 2.0, 7.3  # INT8 is far off


def wire_bits(accuracy: Accuracy) -> Page:
    """SQNR against wire bits."""
    view = accuracy.main()
    others = [c for c in accuracy.bits if c.startswith(("qr-", "mxfp", "nvfp"))]
    page = Page(
        accuracy.study,
        wire_title(accuracy, view),
        where(accuracy, view),
        [
            "Wire bits: codes, scales, zeros, spikes and their indices. Lines join 2, 3, 4 (round"
            " to nearest also 5 and 6) bits; filled markers, solid lines: groups of 32; open markers,"
            " dashed lines: groups of 128. SR: spike reserving. Wide grey line: the best of all for"
            " so many bits or fewer.",
            FLOOR,
        ],
        [handles(METHODS) + [plot_study.handle(GREY, "P", "other formats")]],
    )
    grid = page.figure.subplots(1, 2, sharex=True, sharey=True)
    drawn: list[float] = [0.0]
    names: list[list[tuple[float, float, str, str]]] = []
    for axes, (collective, title) in zip(grid, COLLECTIVES.items()):
        points: list[tuple[float, float, str, str]] = []
        for method in METHODS:
            for group in GROUPS:
                points += draw_method(axes, accuracy, view, collective, method, group)
        for codec in others:
            point = (accuracy.bits[codec], view.of(collective, codec))
            if math.isfinite(point[1]):
                points.append((*point, codec, GREY))
                axes.plot(*point, "P", color=GREY, markersize=8, zorder=4)
                axes.lines[-1].set(markeredgecolor="white", markeredgewidth=0.8)
        drawn += [y for _, y, _, _ in points]
        draw_front(axes, [(x, y) for x, y, _, _ in points])
        axes.set_title(title)
        axes.grid()
        axes.set_xlabel("wire bits per element, exact")
        axes.set_xlim(LEAST_DRAWN_BITS, MOST_DRAWN_BITS)
        names.append(points)
    grid[0].set_ylabel(SQNR_LABEL)
    for axes in grid:
        axes.set_ylim(*sqnr_limits(drawn))
        noise_floor(axes)
    page.settle()
    for axes, points in zip(grid, names):
        name_points(page, axes, points)
    return page


def draw_method(
    axes: Axes, accuracy: Accuracy, view: View, collective: str, method: Method, group: int
) -> list[tuple[float, float, str, str]]:
    """A line over the bit widths of a method; its points, with the names that they are to have."""
    points = []
    for b in (6, 5, 4, 3, 2):
        codec = method.at(b, group)
        value = view.of(collective, codec)
        if codec in accuracy.bits and math.isfinite(value):
            name = f"INT{b} SR" if method is SPIKES else ""
            points.append((accuracy.bits[codec], value, name, method.colour))
    if points:
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        axes.plot(xs, ys, "-" if group == 32 else "--", color=method.colour, linewidth=1, zorder=3)
        axes.plot(xs, ys, method.marker, color=method.colour, markersize=8, zorder=4)
        axes.lines[-1].set_markerfacecolor(method.colour if group == 32 else "white")
    return points


def name_points(page: Page, axes: Axes, points: Sequence[tuple[float, float, str, str]]) -> None:
    """The names of points where there is room for them."""
    frame = plot_study.Box(*axes.get_window_extent().extents)
    pixels = [tuple(map(float, axes.transData.transform(p[:2]))) for p in points]
    half = plot_study.MARKER_PX
    taken = [plot_study.Box(x - half, y - half, x + half, y + half) for x, y in pixels]
    lines: list[plot_study.Box] = []
    for one in axes.lines:  # names keep off the lines of methods and of the front
        path = axes.transData.transform(one.get_path().vertices)
        if one.get_linestyle() != "None" and one.get_transform() == axes.transData:
            for start, end in zip(path, path[1:]):
                lines += plot_study.along(tuple(start), tuple(end))
    for (_, _, name, colour), pixel in zip(points, pixels):
        if not name:
            continue
        extent = page.text_px(name, plot_study.CAPTION_PT, "bold")
        box = plot_study.free_place(pixel, extent, taken, lines, frame)
        if box is None:
            continue
        taken.append(box)
        near = plot_study.nearest(box, pixel)
        inverse = axes.transData.inverted()
        if math.dist(near, pixel) > 2 * plot_study.MARKER_PX:
            ends = inverse.transform([pixel, near])
            axes.plot(ends[:, 0], ends[:, 1], color=ink(colour), linewidth=0.7, zorder=2.5)
        x, y = inverse.transform(((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2))
        text = axes.text(x, y, name, ha="center", va="center", color=ink(colour), zorder=5)
        text.set(size=plot_study.CAPTION_PT, weight="bold", path_effects=[plot_study.HALO])


def draw_front(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """The best value for so many bits or fewer, as stairs."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda p: (p[0], -p[1])):
        if not best or y > best[-1][1]:
            best.append((x, y))
    if best:
        best.append((MOST_DRAWN_BITS, best[-1][1]))
        axes.step(*zip(*best), where="post", color="#CCCCCC", linewidth=4, zorder=2)


def wire_title(accuracy: Accuracy, view: View) -> str:
    """Which groups make spike reserving worth its bits."""
    words = []
    for group in GROUPS:
        holds = at_equal_bits(ALL_REDUCE, group)(view, accuracy).holds
        if holds is not None:
            words.append(f"{'pays' if holds else 'does not pay'} in groups of {group}")
    return f"At equal wire bits (all-reduce), spike reserving {', '.join(words)}"


def inputs(accuracy: Accuracy) -> Page:
    """All methods on all inputs, all-reduce."""
    views = accuracy.views()
    best = {view.name: best_method(view, accuracy).holds for view in views}
    known = [holds for holds in best.values() if holds is not None]
    page = Page(
        accuracy.study,
        f"Spike reserving is the best of four methods at 3 and 2 bits in {sum(known)} of "
        f"{len(known)} panels",
        f"SQNR of the all-reduce, groups of 32, {plot_study.plural(accuracy.ranks, 'rank')}",
        [
            "Numbers at the right: 2 bits. A median token says how well most tokens are encoded, a "
            "whole tensor how well its largest elements are.",
            FLOOR,
        ],
        [handles(METHODS)],
    )
    grid = page.figure.subplots(1, len(views), sharey=True, squeeze=False)[0]
    codecs = [m.at(b, 32) for m in METHODS for b in BITS]
    limits = sqnr_limits([0, *(view.of(ALL_REDUCE, codec) for view in views for codec in codecs)])
    ends = []
    for axes, view in zip(grid, views):
        curves = [
            Curve([m.at(b, 32) for b in BITS], ALL_REDUCE, m.colour, m.marker) for m in METHODS
        ]
        texts = draw_curves(axes, view, curves, thin=False)
        ends.append((axes, [(y, tenth(y).replace("-", "−"), colour) for y, _, colour in texts]))
        bit_axis(axes, [str(b) for b in BITS])
        axes.set_xlabel("bits")
        axes.set_ylim(*limits)
        noise_floor(axes)
        axes.set_title(view.name.replace(", ", ",\n"))
    grid[0].set_ylabel(SQNR_LABEL)
    leave_room(page, ends)
    return page


def tensors(accuracy: Accuracy) -> Page:
    """Whole tensor against median token, tensor by tensor, INT2 in groups of 32."""
    main = accuracy.main().name.partition(",")[0]
    real = main in accuracy.inputs(tokens=True)
    views = [accuracy.view(main, accuracy.ranks, tokens=False)]
    if real:
        views.append(accuracy.view(main, accuracy.ranks, tokens=True))
    codecs = [m.at(2, 32) for m in METHODS]
    page = Page(
        accuracy.study,
        tensors_title(views),
        f"SQNR of the all-reduce, INT2, groups of 32, {plot_study.plural(accuracy.ranks, 'rank')}",
        [
            "SQNR weighs by energy: where one element holds most of a tensor's, the whole tensor's "
            "SQNR is that of this element. experiments/activations/README.md says where it is.",
            FLOOR,
        ],
        [handles(METHODS)],
    )
    grid = page.figure.subplots(1, len(views), sharey=True, squeeze=False)[0]
    drawn = [0.0]
    names: list[str] = []
    for axes, view in zip(grid, views):
        for method, codec in zip(METHODS, codecs):
            values = view.values.get((ALL_REDUCE, codec), {})
            names = names or list(values)
            line = [values.get(name, math.nan) for name in names]
            axes.plot(line, "-", color=method.colour, linewidth=1.5, zorder=3)
            axes.plot(line, method.marker, color=method.colour, markersize=7, zorder=4)
            axes.lines[-1].set(markeredgecolor="white", markeredgewidth=0.8)
            drawn += line
        axes.set_title(view.name)
        axes.grid(axis="y")
        sections = plot_study.sections_of(view.name, names)
        if len(sections) == 1:
            axes.set_xticks(range(len(names)), sections[0].ticks)
            axes.set_xlabel(f"{sections[0].heading}, N =")
        else:
            axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    for axes in grid:
        axes.set_ylim(*sqnr_limits(drawn))
        noise_floor(axes)
    grid[0].set_ylabel(SQNR_LABEL)
    page.settle()
    return page


def tensors_title(views: Sequence[View]) -> str:
    """How far the two ways of looking are apart."""
    codec = RTN.at(2, 32)
    pairs = [view.values.get((ALL_REDUCE, codec), {}) for view in views]
    if len(pairs) < 2 or not pairs[0]:
        return "INT2, tensor by tensor"
    name = max(pairs[0], key=lambda n: pairs[0][n] - pairs[1].get(n, math.nan))
    whole, token = (plot_study.decibels(pair[name]) for pair in pairs)
    return (
        f"INT2, round to nearest, {name}: {whole} as a whole tensor, {token} for its median token"
    )


DRAWN: dict[str, Callable[[Accuracy], Page]] = {
    "methods_g32.png": methods(32),
    "methods_g128.png": methods(128),
    "collectives.png": collectives,
    "perplexity.png": perplexity,
    "wire_bits.png": wire_bits,
    "inputs.png": inputs,
    "tensors.png": tensors,
}


# ---------------------------------------------------------------- the command


def make(folder: Path, published: Path) -> str:
    """Makes everything, then writes it; returns the findings."""
    accuracy = read_accuracy(folder, published)
    text = findings_text(accuracy)
    files = {
        "findings.txt": text.encode(),
        "accuracy.csv": accuracy_csv(accuracy, folder).encode(),
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # equal files give equal pictures, whatever the user's matplotlibrc
        matplotlib.rcParams.update(plot_study.STYLE)
        files |= {name: draw(accuracy).png() for name, draw in DRAWN.items()}
    for name, data in files.items():
        plot_study.write_whole(folder / name, data)
    return text + "\nWritten: " + ", ".join(str(folder / name) for name in files) + "\n"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Draws the accuracy study, judges its findings.")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where results.csv is")
    parser.add_argument(
        "--published", type=Path, default=ROOT / "experiments" / "published", metavar="FOLDER"
    )
    options = parser.parse_args()
    try:
        print(make(options.folder, options.published), end="")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
