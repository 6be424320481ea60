"""Figures of a study (results.csv of `arlab study`): error by codec, by ranks, by tensor, and what the error costs.

    error_by_codec     SQNR by codec and algorithm at the largest world size, a panel per input
    error_by_ranks     SQNR against the number of ranks, a panel per codec and input
    error_by_tensor    SQNR of every tensor under every codec, one algorithm, one world size
    pareto             SQNR against wire bits, and against simulated latency where there is one

Each takes a DataFrame with the columns input, tensor, ranks, algorithm, codec, wire_bits_per_element, sqnr_db (dB) and,
as far as they are there, dtype, exact, rmse, max_abs_error, cosine and simulated_latency_us: what tables.read_results()
gives, or any other frame of such rows. `highlight` names codecs or algorithms that stand out. Titles are computed from
the rows. With many codecs, lines and dots give way to heat maps. All return a matplotlib Figure.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from arlab.figures import style
from arlab.figures.style import GREY, HIGHLIGHT, INK, NO_BREAK, DecibelScale, decibels, sentence, shortened
from arlab.figures.tables import LATENCY, as_results, plural

ERRORS = ("sqnr_db", "max_abs_error", "rmse", "cosine")
MAX_CODECS, MAX_DOTS, MAX_RANK_PANELS = 10, 72, 9
PANEL_IN = 1.75
# What algorithms do that are no all-reduces.
OTHER_COLLECTIVES = {
    name: name.replace("_", "-") for name in ("all_to_all", "reduce_scatter", "all_gather", "broadcast")
}


class Study:
    """The rows of a study, and the order in which its names are drawn."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.about = dict(frame.attrs)
        self.by_token = self.about.get("metric") == "token"
        self.rows = rows = as_results(frame)
        several = rows.groupby(["input", "tensor"])["dtype"].transform("nunique") > 1  # then they are different tensors
        rows["tensor"] = rows["tensor"].where(~several, (rows["tensor"] + " " + rows["dtype"]).str.strip())
        self.inputs = list(rows["input"].unique())
        self.algorithms = list(rows["algorithm"].unique())
        # The median, because rows of a codec differ by padding; ties stay in the order of the file.
        bits = rows.groupby("codec", sort=False)["wire_bits_per_element"].median().sort_values(kind="stable")
        self.wire_bits: dict[str, float] = bits.to_dict()
        self.codecs = list(bits.index)
        named = {OTHER_COLLECTIVES.get(name, "all-reduce") for name in self.algorithms}
        self.collective = named.pop() if len(named) == 1 else "collective"
        self.dtypes = ", ".join(name for name in rows["dtype"].unique() if name)
        # Algorithms that have the same error in every row are one series, which the first of them stands for.
        columns = ["input", "tensor", "ranks", "codec", *(name for name in ERRORS if name in rows)]
        points = pd.Series(list(zip(*(rows[name].astype(str) for name in columns))), rows.index)
        same = points.groupby(rows["algorithm"], sort=False).agg(frozenset)
        together = [list(each) for each in same.groupby(same, sort=False).groups.values()]
        self.series = {names[0]: series_label(names) for names in together}
        self.errors = rows[rows["algorithm"].isin(self.series)]
        # What the study is about: the first input with named tensors, at its largest rank count.
        named = rows.loc[rows["tensor"] != "", "input"]
        self.main_input = named.iloc[0] if len(named) else self.inputs[0]
        self.world_size = self.ranks(self.main_input)[-1]

    def ranks(self, name: str) -> list[int]:
        """The rank counts of an input, ascending."""
        return sorted(int(count) for count in self.rows.loc[self.rows["input"] == name, "ranks"].unique())

    def at(self, name: str, ranks: int) -> pd.DataFrame:
        """The rows of an input at a rank count."""
        return self.rows[(self.rows["input"] == name) & (self.rows["ranks"] == ranks)]

    def tensors(self, name: str, ranks: int) -> list[str]:
        """The tensors of an input at a rank count."""
        return list(self.at(name, ranks)["tensor"].unique())

    def main_algorithm(self, name: str, ranks: int) -> str:
        """The algorithm for comparing codecs: two_shot, the common choice, or the first."""
        there = list(self.at(name, ranks)["algorithm"].unique())
        return "two_shot" if "two_shot" in there else there[0]

    def source(self, latency: bool = False) -> str:
        """Where the numbers of a figure come from, in the words of the file."""
        about = self.about
        error = about.get("exact_provenance") or "the file does not say where its numbers come from"
        said = about.get("simulated_provenance") or f"column {LATENCY}; the file names no model"
        parts = [f"Error and wire bits: {error}.", f"Latency: {said}." if latency else ""]
        parts += [f"{key.capitalize()}: {about[key]}." for key in ("title", "file") if about.get(key)]
        return " ".join(part for part in parts if part).replace("Title: ", "Study: ")

    def exact(self, noun: str) -> str:
        """`exact error` for `error`, where the file says that its figures are."""
        return f"exact {noun}" if "exact" in self.about.get("exact_provenance", "") else noun

    def subtitle(self, *parts: str) -> str:
        """What the SQNR is, and for what."""
        target = "sum" if self.collective in ("all-reduce", "reduce-scatter") else "result"
        of = "median token of the " * self.by_token + self.collective
        text = sentence(self.exact(f"SQNR of the {of} against the exact {target}"), *parts, self.dtypes)
        return text[0].upper() + text[1:]

    def joined_note(self) -> str:
        """Explains the = in the names of algorithms."""
        return "Algorithms joined by = have the same error in every row." * (len(self.series) < len(self.algorithms))

    def heat_rows(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table by codec in the order of wire bits, with these beside the names."""
        table = table.reindex(self.codecs)
        return table.rename(index={c: f"{shortened(c, 24)}  {bits:.4g} bit" for c, bits in self.wire_bits.items()})

    def legend(self, highlight: Sequence[str]) -> list[Any]:
        """Colour and marker of every series."""
        return [style.handle(label, **self.look(name, highlight)) for name, label in self.series.items()]

    def look(self, algorithm: str, highlight: Sequence[str]) -> dict[str, str]:
        """Colour and marker of an algorithm."""
        look = style.algorithm_look(algorithm, self.algorithms)
        return look | {"color": HIGHLIGHT} if algorithm in highlight else look


def series_label(names: Sequence[str]) -> str:
    """All names of a series where they are few: `hierarchical = …_pipelined`."""
    first, *rest = names
    shown = [f"…{n[len(first) :]}" if n.startswith(first) else n for n in rest]
    return " = ".join([first, *(shown if len(rest) <= 2 else [f"{len(rest)} others"])])


def kinds_of(tensors: Iterable[str]) -> dict[str, dict[str, str]]:
    """Tensors by kind, their names apart from the first number: {layerN.up: {"0": layer0.up, ...}}, numbers ascending.

    A tensor that is alone keeps its name: {head: {"": head}}.
    """
    kinds: dict[str, dict[int, str]] = {}
    for tensor in tensors:
        found = re.search(r"\d+", tensor)
        kind = f"{tensor[: found.start()]}N{tensor[found.end() :]}" if found else tensor
        kinds.setdefault(kind, {})[int(found[0]) if found else 0] = tensor
    several = {kind: {str(n): numbered[n] for n in sorted(numbered)} for kind, numbered in kinds.items()}
    return dict((k, s) if len(s) > 1 else (t := next(iter(s.values())), {"": t}) for k, s in several.items())


def listing(tensors: Iterable[str]) -> str:
    """Tensors for a caption, those of one kind together: `layerN.ffn_down, N = 0 to 5`."""
    parts = []
    for kind, numbered in kinds_of(tensors).items():
        numbers = [int(n) for n in numbered if n]
        whole = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
        few = ", ".join(map(str, numbers[:8])) + " …" * (len(numbers) > 8)
        shown = f"{numbers[0]} to {numbers[-1]}" if whole else few
        parts.append(f"{kind}, N = {shown}".replace(" ", NO_BREAK) if numbers else kind)
    return "; ".join(parts[:4]) + (" …" if len(parts) > 4 else "")


@style.drawn
def error_by_codec(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """SQNR (dB) by codec and algorithm at the largest world size, a panel per input; median and range over tensors."""
    study = Study(frame)
    ranks = study.world_size
    rows = study.errors[study.errors["ranks"] == ranks]
    spreads = rows.groupby(["input", "algorithm", "codec"], sort=False)["sqnr_db"].agg(["median", "min", "max"])
    lost = int(rows["sqnr_db"].isna().sum())
    tensors = rows.groupby("input", sort=False)["tensor"].unique()
    many = len(study.codecs) > MAX_CODECS or len(study.codecs) * len(study.series) > MAX_DOTS or style.is_column()
    over = "Median over the tensors of the input." if many else (
        "Marker: median over the tensors of the input; bar: smallest to largest.")  # fmt: skip
    main = list(tensors[study.main_input])
    notes = [
        over if tensors.map(len).max() > 1 else "", f"{study.main_input}: {listing(main)}." if len(main) > 1 else "",
        study.joined_note(), f"{plural(lost, 'result')} without an SQNR left out." if lost else "",
    ]  # fmt: skip
    words = codec_title(study, spreads), study.subtitle(plural(ranks, "rank"))
    headings = {n: sentence(shortened(n, 60), plural(len(t), "tensor") * (list(t) != [""])) for n, t in tensors.items()}
    if many:
        medians = {heading: spreads["median"][name].unstack(0) for name, heading in headings.items()}
        tables = {heading: each[list(study.series)].rename(columns=study.series) for heading, each in medians.items()}
        bound = spreads["median"][~spreads.index.get_level_values("codec").isin(style.UNCOMPRESSED)]
        return heat_page(study, words, notes, tables, study.series.values(), bound, highlight)
    scale = DecibelScale.of(spreads.to_numpy().ravel())
    legend = [study.legend(highlight)]
    figure = style.new_page(*words, notes, study.source(), legend, len(tensors) * PANEL_IN)
    grid = figure.subplots(len(tensors), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (name, heading) in zip(grid, headings.items()):
        draw_dots(axes, study, spreads.loc[name], scale, highlight)
        scale.apply(axes, ticks=9)
        axes.set_title(heading)
        axes.set_ylabel("SQNR (dB)")
    labels = [f"{shortened(c, 16)}\n{study.wire_bits[c]:.4g} bit" for c in study.codecs]
    grid[-1].set_xticks(range(len(labels)), labels, size="medium")
    for tick, codec in zip(grid[-1].get_xticklabels(), study.codecs):
        tick.set(**{"color": style.readable(HIGHLIGHT), "weight": "bold"} if codec in highlight else {})
    grid[-1].set_xlabel("Codec and its wire bits per element")
    return figure


def heat_page(
    study: Study, words: tuple[str, str], notes: Sequence[str], tables: dict[str, pd.DataFrame], columns: Iterable[str],
    bound: Any, highlight: Sequence[str], change: bool = False, label: str = "SQNR",
) -> Figure:  # fmt: skip
    """A page with heat maps of a row per codec, below each other in a column; `columns` are names that are slanted.

    Colours tell compressed codecs apart (`bound`): uncompressed ones lie far above their range.
    """
    longest = max((min(26, len(name)) for name in columns if len(name) > 3), default=0)
    size = style.matplotlib.rcParams["font.size"]
    height = len(study.codecs) * 0.0168 * size + 0.5 + 0.0055 * size * longest
    height *= len(tables) if style.is_column() else 1
    figure = style.new_page(*words, notes, study.source(), body_in=height)
    shown = {heading: study.heat_rows(table) for heading, table in tables.items()}
    text = functools.partial(style.decibel_text, change=change)
    known = bound[np.isfinite(bound)]
    style.heat_map(figure, shown, f"{label} (dB), higher is better", text, change, known, bold=highlight)
    return figure


def draw_dots(axes: Axes, study: Study, spreads: pd.DataFrame, scale: DecibelScale, highlight: Sequence[str]) -> None:
    """A dot and a range for every algorithm of every codec, codecs side by side."""
    axes.grid(axis="y")
    count = len(study.series)
    for x in range(0, len(study.codecs), 2):
        axes.axvspan(x - 0.5, x + 0.5, color=style.BAND, linewidth=0, zorder=0)
    for i, name in enumerate(study.series):
        if name not in spreads.index:
            continue
        here = spreads.loc[name].reindex(study.codecs)
        look = study.look(name, highlight)
        at = np.arange(len(study.codecs)) + (i - (count - 1) / 2) * min(0.2, 0.76 / count)
        axes.vlines(at, scale.at(here["min"]), scale.at(here["max"]), color=look["color"], alpha=0.5, linewidth=3)
        axes.plot(at, scale.at(here["median"]), linestyle="", **look)
        for x in at[here["median"].isna() & here.index.isin(spreads.loc[name].index)]:
            note = {"size": "x-small", "ha": "center", "rotation": 90, "color": style.readable(look["color"])}
            axes.text(x, 0.03, "n/a", transform=axes.get_xaxis_transform(), **note)
    axes.set_xlim(-0.5, len(study.codecs) - 0.5)
    axes.tick_params(axis="x", length=0)


def codec_title(study: Study, spreads: pd.DataFrame) -> str:
    """How much the choice of an algorithm moves the error, and how much the tensor does."""
    at = f"{shortened(study.main_input, 40)}, {plural(study.world_size, 'rank')}:"
    mine = spreads.loc[study.main_input]
    mine = mine[np.isfinite(mine["median"])]
    # Among equals, the codec with the fewest bits.
    mine = mine.sort_index(level="codec", key=lambda names: names.map(study.codecs.index))
    if mine.empty:
        return f"{at} no SQNR is finite"
    by_codec = mine["median"].groupby("codec", sort=False)
    ranges = (mine["max"] - mine["min"]).where(np.isfinite(mine["max"]), 0.0).groupby("codec", sort=False).max()
    moved = {"algorithm": by_codec.max() - by_codec.min(), "tensor": ranges}
    said = [f"{decibels(v.max())} with the {by} ({v.idxmax()})" for by, v in moved.items() if v.max() >= 0.05]
    if said:
        return f"{at} SQNR changes by up to {', '.join(said)}"
    best = by_codec.max()
    return f"{at} " + " to ".join(f"{decibels(best[c])} ({c})" for c in dict.fromkeys([best.idxmin(), best.idxmax()]))


@dataclass(frozen=True)
class RankCurves:
    """SQNR against ranks for one input, over tensors that exist at every rank count."""

    ranks: list[int]
    tensors: list[str]
    left_out: list[str]
    curves: pd.DataFrame  # a row per (algorithm, codec), a column per rank count
    dropped: int  # curves that had to leave out a tensor without an SQNR somewhere

    def changes(self) -> pd.Series:
        """From the fewest ranks to the most; NaN when one of them is missing."""
        first, last = self.curves[self.ranks[0]], self.curves[self.ranks[-1]]
        return (last - first).where(first != last, 0.0)


def rank_curves(study: Study, name: str) -> RankCurves:
    """The curves of an input."""
    rows = study.errors[study.errors["input"] == name]
    ranks = study.ranks(name)
    counts = rows.groupby("tensor", sort=False)["ranks"].nunique()
    common = list(counts.index[counts == len(ranks)])
    table = rows.pivot(index=["algorithm", "codec", "tensor"], columns="ranks", values="sqnr_db")
    there = rows.groupby(["algorithm", "codec", "ranks"]).size().unstack().notna()
    curves, dropped = {}, 0
    for key in ((a, c) for a in study.series for c in study.codecs if (a, c) in there.index):
        mine = table.loc[key].loc[lambda each: each.index.isin(common), there.columns[there.loc[key]]].dropna()
        dropped += len(mine) < len(common)
        if len(mine):
            curves[key] = mine.median()
    index = pd.MultiIndex.from_arrays(list(zip(*curves)) or [[], []], names=["algorithm", "codec"])
    frame = pd.DataFrame(curves.values(), index, columns=ranks).astype(float)
    return RankCurves(ranks, common, list(counts.index[counts < len(ranks)]), frame, dropped)


@style.drawn
def error_by_ranks(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """SQNR (dB) against the number of ranks: panels by codec and input, a line per algorithm."""
    study = Study(frame)
    curves = {name: rank_curves(study, name) for name in study.inputs}
    dropped = sum(mine.dropped for mine in curves.values())
    notes = [curves_note(name, mine) for name, mine in curves.items()]
    notes.append(f"{plural(dropped, 'curve')} without tensors that lack an SQNR somewhere." if dropped else "")
    words = ranks_title(study, curves[study.main_input]), study.subtitle()
    if len(study.codecs) > MAX_RANK_PANELS or style.is_column():
        change = any(len(mine.ranks) > 1 for mine in curves.values())
        tables = {}
        for name, mine in curves.items():
            values = mine.changes() if change else mine.curves[mine.ranks[0]]
            table = values.unstack("algorithm").reindex(columns=list(study.series)).rename(columns=study.series)
            tables[f"{name}, {mine.ranks[0]} to {mine.ranks[-1]} ranks" if change else name] = table
        bound = np.concatenate([np.ravel(table) for table in tables.values()])
        label = "Change of SQNR" if change else "SQNR"
        notes.append(study.joined_note())
        return heat_page(study, words, notes, tables, study.series.values(), bound, highlight, change, label)
    if len(study.codecs) * len(study.inputs) > 1:
        notes.insert(0, "All panels span the same number of dB, each from its own level, so slopes compare.")
    notes.append(study.joined_note())
    figure = style.new_page(*words, notes, study.source(), [study.legend(highlight)], len(curves) * PANEL_IN)
    grid = figure.subplots(len(curves), len(study.codecs), squeeze=False, sharex=True)
    ranks = sorted({count for mine in curves.values() for count in mine.ranks})
    parts = {
        (name, codec): mine.curves[mine.curves.index.get_level_values("codec") == codec].droplevel("codec")
        for name, mine in curves.items() for codec in study.codecs
    }  # fmt: skip
    finite = [part.to_numpy()[np.isfinite(part.to_numpy())] for part in parts.values()]
    span = max((float(np.ptp(each)) for each in finite if len(each)), default=1.0)
    for part, axes in zip(parts.values(), grid.flat):
        scale = DecibelScale.of(part.to_numpy().ravel(), span)
        axes.grid()
        for name, curve in part.iterrows():
            curve = curve.dropna()
            axes.plot(curve.index, scale.at(curve), **study.look(name, highlight))
        if not part.notna().to_numpy().any():
            axes.text(0.5, 0.5, "no data", transform=axes.transAxes, color=GREY, ha="center")
        scale.apply(axes, ticks=6)
        axes.set_xscale("log", base=2)
        axes.set_xlim(ranks[0] / 2**0.35, ranks[-1] * 2**0.35)
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = ranks[:: math.ceil(len(ranks) / 5)]
        axes.set_xticks(ticks, [str(count) for count in ticks])
    for axes, codec in zip(grid[0], study.codecs):
        colour = style.readable(HIGHLIGHT) if codec in highlight else INK
        text = f"{shortened(codec, 16)}\n{study.wire_bits[codec]:.4g} bit"
        axes.set_title(text, color=colour, weight="bold", loc="center")
    for axes, name in zip(grid[:, 0], curves):
        axes.set_ylabel(f"{shortened(name, 28)}\nSQNR (dB)")
    for axes in grid[-1]:
        axes.set_xlabel("ranks (log scale)" if len(study.codecs) < 8 and len(ranks) > 1 else "ranks", size="small")
    return figure


def curves_note(name: str, mine: RankCurves) -> str:
    """Which tensors the curves of an input are about."""
    if not mine.tensors:
        return f"{name}: no tensor exists at every rank count, so nothing can be compared."
    if mine.left_out:
        kept = f"{plural(len(mine.tensors), 'tensor')} that exist at every rank count"
        return f"{name}: median over the {kept} ({listing(mine.tensors)}); left out: {listing(mine.left_out)}."
    if len(mine.tensors) > 1:
        return f"{name}: median over the same {plural(len(mine.tensors), 'tensor')} everywhere."
    return ""


def ranks_title(study: Study, mine: RankCurves) -> str:
    """What more ranks cost, for the algorithm that suffers most and the one that suffers least."""
    if len(mine.ranks) == 1:
        return f"SQNR at {plural(mine.ranks[0], 'rank')}, the only rank count of the study"
    path = f"{shortened(study.main_input, 40)}, from {mine.ranks[0]} to {mine.ranks[-1]} ranks:"
    changes = mine.changes()[np.isfinite].groupby("algorithm", sort=False).median()
    if changes.empty:
        return f"{path} nothing to compare"
    over = f", median over {plural(len(study.codecs), 'codec')}" if len(study.codecs) > 1 else ""
    worst, best = changes.idxmin(), changes.idxmax()
    low, high = (f"{style.signed(changes[name])}{NO_BREAK}dB" for name in (worst, best))
    said = f"{low} with {study.series[worst] if len(changes) == 1 else 'every algorithm'}"
    if low != high:
        said = f"{low} ({study.series[worst]}) to {high} ({study.series[best]})"
    return f"{path} SQNR changes by {said}{over}"


@style.drawn
def error_by_tensor(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """SQNR (dB) of every tensor under every codec, one algorithm, at the rank count that has the most tensors."""
    study = Study(frame)
    name = study.main_input
    counts = study.ranks(name)
    ranks = max(counts, key=lambda count: (len(study.tensors(name, count)), count))
    algorithm = study.main_algorithm(name, ranks)
    rows = study.rows[(study.rows["ranks"] == ranks) & (study.rows["algorithm"] == algorithm)]
    table = rows.pivot(index="codec", columns=["input", "tensor"], values="sqnr_db").reindex(study.codecs)
    kinds = [  # (input, heading, {tick: tensor}), the main input first
        (each, f"{each}: {kind}" if kind else each, numbered)
        for each in [name, *(other for other in study.inputs if other != name)]
        for kind, numbered in kinds_of(rows.loc[rows["input"] == each, "tensor"].unique()).items()
    ]
    lost = int(table.isna().to_numpy().sum())
    notes = [
        f"{plural(ranks, 'rank')}{', the rank count with the most tensors' if len(counts) > 1 else ''}.",
        "" if study.by_token else
        "SQNR weighs by energy: in a tensor that one huge element dominates it says how well that element is encoded.",
        f"{plural(lost, 'point')} without an SQNR left out." if lost else "",
    ]
    title = tensor_title(table.xs(name, axis=1, level=0), name, algorithm)
    words = title, study.subtitle("tensor by tensor", algorithm, plural(ranks, "rank"))
    tables = {
        heading: table[[(each, t) for t in numbered.values()]].set_axis(pd.Index(numbered, name="N"), axis=1)
        for each, heading, numbered in kinds if len(numbered) > 1
    }  # fmt: skip
    alone = {heading: table[each, t] for each, heading, numbered in kinds for n, t in numbered.items() if not n}
    tables |= {"": pd.DataFrame(alone)} if alone else {}
    bound = table[~table.index.isin(style.UNCOMPRESSED)].to_numpy().ravel()
    return heat_page(study, words, notes, tables, alone, bound, highlight)


def tensor_title(table: pd.DataFrame, name: str, algorithm: str) -> str:
    """The codec whose SQNR differs most from tensor to tensor."""
    finite = table.where(np.isfinite(table))
    ranges = (finite.max(axis=1) - finite.min(axis=1))[finite.notna().sum(axis=1) > 1]
    if ranges.empty:
        return f"SQNR of {name} by codec ({algorithm})"
    widest = finite.loc[ranges.idxmax()]
    worst, best = (f"{decibels(widest[at])} on {shortened(at, 40)}" for at in (widest.idxmin(), widest.idxmax()))
    return f"One codec, {decibels(ranges.max())} apart: {ranges.idxmax()} has {worst}, {best}"


def front(choices: pd.DataFrame) -> pd.DataFrame:
    """The choices (columns cost, sqnr_db) that no other beats in one without losing in the other, by rising cost."""
    rising = choices.sort_values(["cost", "sqnr_db"], ascending=[True, False], kind="stable")
    best = rising["sqnr_db"].astype(float).cummax().shift(fill_value=-np.inf)
    return rising[rising["sqnr_db"] > best]


def choices_of(study: Study, algorithms: Sequence[str], cost: str) -> pd.DataFrame:
    """What the main input offers at the largest world size, where it has both cost and SQNR: medians over tensors."""
    rows = study.at(study.main_input, study.world_size)
    groups = rows[rows["algorithm"].isin(algorithms)].groupby(["codec", "algorithm"], sort=False)
    choices = groups.agg(sqnr_db=("sqnr_db", "median"), cost=(cost, "median")).reset_index()
    if cost == "wire_bits_per_element":
        choices["cost"] = choices["codec"].map(study.wire_bits)
    return choices.dropna()


@style.drawn
def pareto(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Median SQNR (dB) against wire bits per element and, where the study simulated, against latency (µs, log scale).

    What is on the Pareto front has a name, and so has what `highlight` names; the rest is pale.
    """
    study = Study(frame)
    name, ranks = study.main_input, study.world_size
    algorithm = study.main_algorithm(name, ranks)
    by_bits = choices_of(study, [algorithm], "wire_bits_per_element")
    by_latency = choices_of(study, study.algorithms, LATENCY)
    simulated = not by_latency.empty
    tensors = study.tensors(name, ranks)
    scale = DecibelScale.of([*by_bits["sqnr_db"], *by_latency["sqnr_db"]], margin=0.13)
    notes = [
        f"SQNR: {'that of the median token, ' * study.by_token}median over {plural(len(tensors), 'tensor')}"
        f" ({listing(tensors)})." if len(tensors) > 1 else "SQNR: that of the median token." * study.by_token,
        "Grey line: Pareto front; what is on it has the name of its codec.",
        f"Highlighted: {', '.join(highlight)}." if highlight else "",
        "Wire bits are those of one transfer; how often an algorithm transfers and encodes shows in its latency."
        if by_latency["algorithm"].nunique() > 1 else "",
    ]  # fmt: skip
    shown = [each for each in study.algorithms if each == algorithm or each in set(by_latency["algorithm"])]
    left_out = [each for each in study.algorithms if each not in shown]
    why = "they have no simulated latency" if simulated else "errors beside wire bits are of one algorithm"
    notes.append(f"Not drawn: {', '.join(left_out)}: {why}." if left_out else "")
    legend = [style.handle(each, **study.look(each, highlight)) for each in shown]
    figure = style.new_page(
        pareto_title(by_bits, by_latency, ranks, algorithm, highlight),
        sentence(name, f"{study.collective} over {plural(ranks, 'rank')}", study.dtypes),
        notes, study.source(simulated), [legend], 5.2 if style.is_column() and simulated else 4.2,
    )  # fmt: skip
    left, *right = style.panels(figure, 2 if simulated else 1, sharey=True)
    panels = [(left, by_bits), *((axes, by_latency) for axes in right)]
    error = study.exact("error")
    share = 0.5 if right and not style.is_column() else 1.0
    style.head(left, f"{algorithm}: {error}, {study.exact('wire bits')}", share)
    left.set_ylabel("Median SQNR (dB), higher is better")
    left.set_xlabel("Wire bits per element (log scale), fewer is better")
    for axes in right:
        which = "all algorithms" if by_latency["algorithm"].nunique() > 1 else by_latency["algorithm"].iloc[0]
        payload = re.search(r"([1-9]\d*) bytes per rank", study.about.get("simulated_provenance", ""))
        of = f" of {style.size_text(int(payload[1]))}" if payload else ""
        style.head(axes, f"{which}: {error}, simulated latency{of}", share)
        axes.set_xlabel("Simulated latency (µs, log scale), lower is better")
        if style.is_column():
            axes.set_ylabel("Median SQNR (dB)")
    for axes, choices in panels:
        frame_choices(axes, choices, scale, share)
        scale.apply(axes)
    style.settle(figure)
    for axes, choices in panels:
        draw_choices(axes, study, choices, scale, highlight)
    return figure


def frame_choices(axes: Axes, choices: pd.DataFrame, scale: DecibelScale, share: float) -> None:
    """A log axis for the costs with room for names at the left, and the front as a staircase."""
    axes.grid()
    if choices.empty:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no SQNR", transform=axes.transAxes, color=GREY, ha="center")
        return
    best = front(choices)
    style.log_axis(axes.xaxis, choices["cost"], most=9 if share == 1 else 6)
    style.room_for_names(axes, choices["cost"], list(best["codec"].head(4)), share)
    high = axes.get_xlim()[1]
    xs, ys = list(best["cost"]), list(scale.at(best["sqnr_db"]))
    style.draw_front(axes, xs, ys, scale.low, high)


def draw_choices(
    axes: Axes, study: Study, choices: pd.DataFrame, scale: DecibelScale, highlight: Sequence[str]
) -> None:
    """The markers, which say the algorithm, with the codecs of the front and of the fastest highlighted."""
    on_front = set(front(choices).index)
    size, line = (style.matplotlib.rcParams[f"lines.{name}"] for name in ("markersize", "linewidth"))
    mine = [choices[(choices["codec"] == name) | (choices["algorithm"] == name)] for name in highlight]
    strong = {index for each in mine for index in each.index}
    named = on_front | {each["cost"].idxmin() for each in mine if len(each)}
    labels = []
    for index, choice in choices.iterrows():
        y = float(scale.at(choice["sqnr_db"]))
        look = study.look(choice["algorithm"], highlight) | ({"color": HIGHLIGHT} if index in strong else {})
        faint = {} if index in strong | on_front else {"alpha": 0.45, "markersize": 0.75 * size}
        edge = {"markeredgecolor": INK, "markeredgewidth": 0.7 * line} if index in on_front else {}
        axes.plot(choice["cost"], y, linestyle="", zorder=4 if index in strong | on_front else 3, **look | faint | edge)
        if index in named:
            colour, side = HIGHLIGHT if index in strong else INK, "left" if index in on_front else "right"
            labels.append((choice["cost"], y, choice["codec"], colour, side))
    style.label_points(axes, labels)


def pareto_title(
    by_bits: pd.DataFrame, by_latency: pd.DataFrame, ranks: int, algorithm: str, highlight: Sequence[str]
) -> str:
    """How many are on the front and from where to where it goes; with a highlight, how far that is from the front."""
    choices = by_latency if len(by_latency) else by_bits
    if choices.empty:
        return f"No SQNR to draw at {plural(ranks, 'rank')}"
    cost = style.microseconds if len(by_latency) else lambda bits: f"{bits:.4g}{NO_BREAK}bits"
    best = front(choices)
    said = [f"{row['codec']}{f' with {row.algorithm}' if len(by_latency) else ''} ({cost(row['cost'])}, "
            f"{decibels(row['sqnr_db'])})".replace(" ", NO_BREAK) for _, row in best.iterrows()]  # fmt: skip
    mine = choices[choices["codec"].isin(highlight) | choices["algorithm"].isin(highlight)]
    at = f"{'Simulated, ' if len(by_latency) else ''}{plural(ranks, 'rank')}"
    if len(mine):
        fastest = mine.loc[mine["cost"].idxmin()]
        better = best[(best["cost"] <= fastest["cost"]) & (best["sqnr_db"] >= fastest["sqnr_db"])]
        ours = f"{fastest['codec']} with {fastest['algorithm']} has {cost(fastest['cost'])}, {decibels(fastest['sqnr_db'])}"
        if fastest.name in best.index:
            return f"{at}: {ours}; nothing is better in both"
        place = better["cost"].idxmin()
        other = best.loc[place]
        cheaper = cost(other["cost"]) != cost(fastest["cost"])
        clearer = decibels(other["sqnr_db"]) != decibels(fastest["sqnr_db"])
        verdicts = {(True, True): "is better in both", (True, False): "takes less for the same SQNR",
                    (False, True): "has more SQNR for the same", (False, False): "is as good"}  # fmt: skip
        return f"{at}: {ours}; {said[best.index.get_loc(place)]} {verdicts[cheaper, clearer]}"
    if len(choices) == 1:
        only = choices.iloc[0]
        method = f"{only['codec']}, {only['algorithm']}, {plural(ranks, 'rank')}"
        return f"{method}: {decibels(only['sqnr_db'])} at {cost(only['cost'])}"
    if len(best) == 1:
        return f"{at}: nothing is better than {said[0]} in anything"
    ends = f"from {said[0]} to {said[-1]}"
    if choices["algorithm"].nunique() == 1:
        kind = f"codecs with {choices['algorithm'].iloc[0]}"
        return f"{at}: {len(best)} of {len(choices)} {kind} are on the Pareto front, {ends}"
    counts = best["algorithm"].value_counts()
    share = "all" if len(counts) == 1 else counts.iloc[0]
    return f"{at}: {counts.index[0]} makes {share} of the {len(best)} best trade-offs, {ends}"


FIGURES = {draw.__name__: draw for draw in (error_by_codec, error_by_ranks, pareto, error_by_tensor)}
