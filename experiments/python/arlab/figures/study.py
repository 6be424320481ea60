"""Figures of a study (results.csv of `arlab study`): error by codec, by ranks, by tensor, and what the error costs.

    error_by_codec     SQNR by codec and algorithm at the largest world size, a heat map per input
    error_by_ranks     its change from the fewest ranks to the most, by codec and algorithm, a heat map per input
    error_by_tensor    SQNR of every tensor under every codec, one algorithm, one world size
    pareto             SQNR against wire bits, and against simulated latency where there is one

Each takes a DataFrame with the columns input, tensor, ranks, algorithm, codec, wire_bits_per_element, sqnr_db (dB) and,
as far as they are there, dtype, exact, rmse, max_abs_error, cosine and simulated_latency_us: what tables.read_results()
gives, or any other frame of such rows. `highlight` names codecs or algorithms that stand out. Titles are computed from
the rows. All return a matplotlib Figure.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.style import GREY, HIGHLIGHT, INK, NO_BREAK, DecibelScale, decibels, sentence, shortened
from arlab.figures.tables import LATENCY, as_results, plural

ERRORS = ("sqnr_db", "max_abs_error", "rmse", "cosine")
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
    """SQNR (dB) by codec and algorithm at the largest world size, a heat map per input; the median over tensors."""
    study = Study(frame)
    ranks = study.world_size
    rows = study.errors[study.errors["ranks"] == ranks]
    spreads = rows.groupby(["input", "algorithm", "codec"], sort=False)["sqnr_db"].agg(["median", "min", "max"])
    lost = int(rows["sqnr_db"].isna().sum())
    tensors = rows.groupby("input", sort=False)["tensor"].unique()
    main = list(tensors[study.main_input])
    notes = [
        "Median over the tensors of the input." if tensors.map(len).max() > 1 else "",
        f"{study.main_input}: {listing(main)}." if len(main) > 1 else "",
        study.joined_note(), f"{plural(lost, 'result')} without an SQNR left out." if lost else "",
    ]  # fmt: skip
    words = codec_title(study, spreads), study.subtitle(plural(ranks, "rank"))
    headings = {n: sentence(shortened(n, 60), plural(len(t), "tensor") * (list(t) != [""])) for n, t in tensors.items()}
    medians = {heading: spreads["median"][name].unstack(0) for name, heading in headings.items()}
    tables = {heading: each[list(study.series)].rename(columns=study.series) for heading, each in medians.items()}
    bound = spreads["median"][~spreads.index.get_level_values("codec").isin(style.UNCOMPRESSED)]
    return heat_page(study, words, notes, tables, study.series.values(), bound, highlight)


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


def rank_medians(study: Study, name: str) -> pd.DataFrame:
    """Of an input, the median SQNR at the fewest ranks and at the most, a row per (algorithm, codec), and `change`.

    Only tensors with an SQNR at both count; attrs: the `tensors`, and those that are `left_out`.
    """
    rows = study.errors[study.errors["input"] == name]
    ends = sorted({study.ranks(name)[0], study.ranks(name)[-1]})
    table = rows.pivot(index=["algorithm", "codec", "tensor"], columns="ranks", values="sqnr_db")[ends].dropna()
    kept = table.index.unique("tensor")
    medians = table.groupby(["algorithm", "codec"], sort=False).median()
    first, last = medians[ends[0]], medians[ends[-1]]
    medians["change"] = (last - first).where(first != last, 0.0)
    everywhere = [tensor for tensor in rows["tensor"].unique() if tensor in kept]
    medians.attrs = {"tensors": everywhere, "left_out": [t for t in rows["tensor"].unique() if t not in kept]}
    return medians


@style.drawn
def error_by_ranks(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Change of the SQNR (dB) from the fewest ranks to the most by codec and algorithm, a heat map per input."""
    study = Study(frame)
    medians = {name: rank_medians(study, name) for name in study.inputs}
    notes = [*(medians_note(name, mine) for name, mine in medians.items()), study.joined_note()]
    words = ranks_title(study, medians[study.main_input]["change"]), study.subtitle()
    change = any(len(study.ranks(name)) > 1 for name in study.inputs)
    tables = {}
    for name, mine in medians.items():
        ranks = study.ranks(name)
        table = mine["change" if change else ranks[0]].unstack("algorithm").reindex(columns=list(study.series))
        heading = f"{name}, {ranks[0]} to {ranks[-1]} ranks" if change else name
        tables[heading] = table.rename(columns=study.series)
    bound = np.concatenate([np.ravel(table) for table in tables.values()])
    label = "Change of SQNR" if change else "SQNR"
    return heat_page(study, words, notes, tables, study.series.values(), bound, highlight, change, label)


def medians_note(name: str, mine: pd.DataFrame) -> str:
    """Which tensors the medians of an input are about."""
    tensors, left_out = mine.attrs["tensors"], mine.attrs["left_out"]
    if not tensors:
        return f"{name}: no tensor exists at every rank count, so nothing can be compared."
    if left_out:
        kept = f"{plural(len(tensors), 'tensor')} that exist at every rank count"
        return f"{name}: median over the {kept} ({listing(tensors)}); left out: {listing(left_out)}."
    return f"{name}: median over the same {plural(len(tensors), 'tensor')} everywhere." * (len(tensors) > 1)


def ranks_title(study: Study, changes: pd.Series) -> str:
    """What more ranks cost, for the algorithm that suffers most and the one that suffers least."""
    ranks = study.ranks(study.main_input)
    if len(ranks) == 1:
        return f"SQNR at {plural(ranks[0], 'rank')}, the only rank count of the study"
    path = f"{shortened(study.main_input, 40)}, from {ranks[0]} to {ranks[-1]} ranks:"
    changes = changes[np.isfinite].groupby("algorithm", sort=False).median()
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
    scale = DecibelScale.of([*by_bits["sqnr_db"], *by_latency["sqnr_db"]])
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
        pareto_title(by_bits, by_latency, ranks),
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


def pareto_title(by_bits: pd.DataFrame, by_latency: pd.DataFrame, ranks: int) -> str:
    """How many are on the front, and from where to where it goes."""
    choices = by_latency if len(by_latency) else by_bits
    if choices.empty:
        return f"No SQNR to draw at {plural(ranks, 'rank')}"
    cost = style.microseconds if len(by_latency) else lambda bits: f"{bits:.4g}{NO_BREAK}bits"
    best = front(choices)
    said = [f"{row['codec']}{f' with {row.algorithm}' if len(by_latency) else ''} ({cost(row['cost'])}, "
            f"{decibels(row['sqnr_db'])})".replace(" ", NO_BREAK) for _, row in best.iterrows()]  # fmt: skip
    at = f"{'Simulated, ' if len(by_latency) else ''}{plural(ranks, 'rank')}"
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
