"""Figures of a study (results.csv of `arlab study`): error by codec, by ranks, by tensor, and what the error costs.

Each takes a DataFrame with the columns input, tensor, ranks, algorithm, codec, wire_bits_per_element, sqnr_db (dB) and,
as far as they are there, dtype, exact, rmse, max_abs_error, cosine and simulated_latency_us: what tables.read_results()
gives, or any other frame of such rows. `highlight` names codecs or algorithms that stand out. Titles are computed from
the rows. All return a matplotlib Figure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arlab.figures import style
from arlab.figures.style import GREY, HIGHLIGHT, INK, NO_BREAK, decibels, sentence, shortened
from arlab.figures.tables import LATENCY, as_results, plural

ERRORS = ("sqnr_db", "max_abs_error", "rmse", "cosine")
OTHER_COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "broadcast")  # their algorithms have these names


class Study:
    """The rows of a study, and the order in which its names are drawn."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.about = dict(frame.attrs)
        self.by_token = self.about.get("metric") == "token"
        self.rows = rows = as_results(frame)
        several = rows.groupby(["input", "tensor"])["dtype"].transform("nunique") > 1  # then they are different tensors
        rows["tensor"] = rows["tensor"].where(~several, (rows["tensor"] + " " + rows["dtype"]).str.strip())
        self.inputs, self.algorithms = list(rows["input"].unique()), list(rows["algorithm"].unique())
        # The median, because rows of a codec differ by padding; ties stay in the order of the file.
        bits = rows.groupby("codec", sort=False)["wire_bits_per_element"].median().sort_values(kind="stable")
        self.wire_bits: dict[str, float] = bits.to_dict()
        self.codecs = list(bits.index)
        kinds = {name.replace("_", "-") if name in OTHER_COLLECTIVES else "all-reduce" for name in self.algorithms}
        self.collective = kinds.pop() if len(kinds) == 1 else "collective"
        self.dtypes = sentence(*rows["dtype"].unique())
        # Algorithms that have the same error in every row are one series, which the first of them stands for.
        columns = ["input", "tensor", "ranks", "codec", *(name for name in ERRORS if name in rows)]
        points = pd.Series(list(zip(*(rows[name].astype(str) for name in columns))), rows.index)
        same = points.groupby(rows["algorithm"], sort=False).agg(frozenset)
        self.series = {names[0]: series_label(names) for names in same.groupby(same, sort=False).groups.values()}
        self.errors = rows[rows["algorithm"].isin(self.series)]
        # The study's main input: the first with named tensors, at its largest rank count.
        self.main_input = next(iter(rows.loc[rows["tensor"] != "", "input"]), self.inputs[0])
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
        exact = self.about.get("exact_provenance") or "the file does not say where its numbers come from"
        simulated = self.about.get("simulated_provenance") or f"column {LATENCY}; the file names no model"
        said = {"Error and wire bits": exact, "Latency": simulated * latency}
        said |= {"Study": self.about.get("title"), "File": self.about.get("file")}
        return " ".join(f"{key}: {text}." for key, text in said.items() if text)

    def exact(self, noun: str) -> str:
        """`exact error` for `error`, where the file says that its figures are."""
        return f"exact {noun}" if "exact" in self.about.get("exact_provenance", "") else noun

    def subtitle(self, *parts: str) -> str:
        """Returns the meaning of the SQNR, and the parts."""
        target = "sum" if self.collective in ("all-reduce", "reduce-scatter") else "result"
        of = "median token of the " * self.by_token + self.collective
        text = sentence(self.exact(f"SQNR of the {of} against the exact {target}"), *parts, self.dtypes)
        return text[0].upper() + text[1:]

    def joined_note(self) -> str:
        """Explains the = in the names of algorithms."""
        return "Algorithms joined by = have the same error in every row." * (len(self.series) < len(self.algorithms))

    def heat_page(
        self, words: tuple[str, str], notes: Sequence[str], tables: Mapping[str, pd.DataFrame], columns: Iterable[str],
        bound: Any, highlight: Sequence[str], change: bool = False, label: str = "SQNR",
    ) -> Figure:  # fmt: skip
        """A page with heat maps of a row per codec, below each other in a column; `columns` are names that are slanted.

        Colours tell compressed codecs apart (`bound`): uncompressed ones lie far above their range.
        """
        longest = max((min(26, len(name)) for name in columns if len(name) > 3), default=0)
        (size,) = style.sizes("font.size")
        height = len(self.codecs) * 0.0168 * size + 0.5 + 0.0055 * size * longest
        height *= len(tables) if style.is_column() else 1
        figure = style.new_page(*words, notes, self.source(), body_in=height)
        names = {codec: f"{shortened(codec, 24)}  {bits:.4g} bit" for codec, bits in self.wire_bits.items()}
        shown = {heading: table.reindex(self.codecs).rename(index=names) for heading, table in tables.items()}
        text = functools.partial(style.decibel_text, change=change)
        known = bound[np.isfinite(bound)]
        style.heat_map(figure, shown, f"{label} (dB), higher is better", text, change, known, bold=highlight)
        return figure


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
        before, number, after = re.fullmatch(r"(\D*)(\d*)(.*)", tensor, re.DOTALL).groups()  # type: ignore[union-attr]
        kinds.setdefault(f"{before}N{after}" if number else tensor, {})[int(number or 0)] = tensor
    return {
        kind if len(of) > 1 else next(iter(of.values())): {str(n) * (len(of) > 1): of[n] for n in sorted(of)}
        for kind, of in kinds.items()
    }


def listing(tensors: Iterable[str]) -> str:
    """Tensors for a caption, those of one kind together: `layerN.ffn_down, N = 0 to 5`."""
    parts = []
    for kind, numbered in kinds_of(tensors).items():
        numbers = [int(n) for n in numbered if n]
        whole = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
        few = ", ".join(map(str, numbers[:8])) + " …" * (len(numbers) > 8)
        shown = f"{numbers[0]} to {numbers[-1]}" if whole else few
        parts.append(f"{kind}, N = {shown}".replace(" ", NO_BREAK) if numbers else kind)
    return "; ".join(parts[:4]) + " …" * (len(parts) > 4)


@style.drawn
def error_by_codec(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """SQNR (dB) by codec and algorithm at the largest world size, a heat map per input; the median over tensors."""
    study = Study(frame)
    rows = study.errors[study.errors["ranks"] == study.world_size]
    spreads = rows.groupby(["input", "algorithm", "codec"], sort=False)["sqnr_db"].agg(["median", "min", "max"])
    lost = int(rows["sqnr_db"].isna().sum())
    tensors = rows.groupby("input", sort=False)["tensor"].unique()
    main = list(tensors[study.main_input])
    notes = [
        "Median over the tensors of the input." if tensors.map(len).max() > 1 else "",
        f"{study.main_input}: {listing(main)}." if len(main) > 1 else "",
        study.joined_note(), f"{plural(lost, 'result')} without an SQNR left out." if lost else "",
    ]  # fmt: skip
    title, note = codec_title(study, spreads)
    words = title, study.subtitle(plural(study.world_size, "rank"))
    notes.append(note)
    tables = {}
    for name, of in tensors.items():
        heading = sentence(shortened(name, 60), plural(len(of), "tensor") * (list(of) != [""]))
        tables[heading] = spreads["median"][name].unstack(0)[list(study.series)].rename(columns=study.series)
    bound = spreads["median"][~spreads.index.get_level_values("codec").isin(style.UNCOMPRESSED)]
    return study.heat_page(words, notes, tables, study.series.values(), bound, highlight)


def codec_title(study: Study, spreads: pd.DataFrame) -> tuple[str, str]:
    """How much the choice of an algorithm moves the error, and how much the tensor does; and of which codecs."""
    mine = spreads.loc[study.main_input]
    # Among equals, the codec with the fewest bits.
    mine = mine[np.isfinite(mine["median"])].sort_index(level="codec", key=lambda names: names.map(study.codecs.index))
    if mine.empty:
        return "No SQNR is finite", ""
    by_codec = mine["median"].groupby("codec", sort=False)
    ranges = (mine["max"] - mine["min"]).where(np.isfinite(mine["max"]), 0.0).groupby("codec", sort=False).max()
    moved = {"algorithm": by_codec.max() - by_codec.min(), "tensor": ranges}
    most = {by: v for by, v in moved.items() if v.max() >= 0.05}
    if most:
        said = ", ".join(f"{by}s {decibels(v.max())}" for by, v in most.items())
        changed = " and ".join(f"{v.idxmax()} with the {by}" for by, v in most.items())
        return f"SQNR changes by up to: {said}", f"In {shortened(study.main_input, 40)}, {changed} changes most."
    best = by_codec.max()
    ends = dict.fromkeys([best.idxmin(), best.idxmax()])
    return "SQNR: " + " to ".join(f"{decibels(best[c])} ({c})" for c in ends), ""


def rank_medians(study: Study, name: str) -> pd.DataFrame:
    """Returns an input's median SQNR at the fewest ranks and at the most, a row per (algorithm, codec), and `change`.

    Only tensors with an SQNR at both count; attrs: the `tensors`, and those that are `left_out`.
    """
    rows = study.errors[study.errors["input"] == name]
    ends = sorted({study.ranks(name)[0], study.ranks(name)[-1]})
    table = rows.pivot(index=["algorithm", "codec", "tensor"], columns="ranks", values="sqnr_db")[ends].dropna()
    medians = table.groupby(["algorithm", "codec"], sort=False).median()
    first, last = medians[ends[0]], medians[ends[-1]]
    medians["change"] = (last - first).where(first != last, 0.0)
    kept, there = table.index.unique("tensor"), rows["tensor"].unique()
    medians.attrs = {"tensors": [t for t in there if t in kept], "left_out": [t for t in there if t not in kept]}
    return medians


@style.drawn
def error_by_ranks(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Change of the SQNR (dB) from the fewest ranks to the most by codec and algorithm, a heat map per input."""
    study = Study(frame)
    medians = {name: rank_medians(study, name) for name in study.inputs}
    over = "In the title, the median over all codecs." if len(study.codecs) > 1 else ""
    notes = [*(medians_note(name, mine) for name, mine in medians.items()), study.joined_note(), over]
    words = ranks_title(study, medians[study.main_input]["change"]), study.subtitle()
    change = any(len(study.ranks(name)) > 1 for name in study.inputs)
    tables = {}
    for name, mine in medians.items():
        ranks = study.ranks(name)
        table = mine["change" if change else ranks[0]].unstack("algorithm").reindex(columns=list(study.series))
        tables[f"{name}, {ranks[0]} to {ranks[-1]} ranks" if change else name] = table.rename(columns=study.series)
    bound = np.concatenate([np.ravel(table) for table in tables.values()])
    label = "Change of SQNR" if change else "SQNR"
    return study.heat_page(words, notes, tables, study.series.values(), bound, highlight, change, label)


def medians_note(name: str, mine: pd.DataFrame) -> str:
    """Names the tensors that the medians of an input cover."""
    tensors, left_out = mine.attrs["tensors"], mine.attrs["left_out"]
    if not tensors:
        return f"{name}: no tensor exists at every rank count, so nothing can be compared."
    if left_out:
        kept = f"{plural(len(tensors), 'tensor')} that exist at every rank count"
        return f"{name}: median over the {kept} ({listing(tensors)}); left out: {listing(left_out)}."
    return f"{name}: median over the same {plural(len(tensors), 'tensor')} everywhere." * (len(tensors) > 1)


def ranks_title(study: Study, changes: pd.Series) -> str:
    """Returns the cost of more ranks, for the algorithm that suffers most and the one that suffers least."""
    ranks = study.ranks(study.main_input)
    if len(ranks) == 1:
        return f"SQNR at {plural(ranks[0], 'rank')}, the only rank count of the study"
    path = f"{ranks[0]} to {ranks[-1]} ranks:"
    changes = changes[np.isfinite].groupby("algorithm", sort=False).median()
    if changes.empty:
        return f"{path} nothing to compare"
    worst, best = changes.idxmin(), changes.idxmax()
    low, high = (decibels(changes[name], "+.1f") for name in (worst, best))
    said = f"{low} with {study.series[worst] if len(changes) == 1 else 'every algorithm'}"
    if low != high:
        said = f"{low} ({study.series[worst]}) to {high} ({study.series[best]})"
    return f"{path} {said}"


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
    lost = int(table.isna().to_numpy().sum())
    notes = [
        f"{plural(ranks, 'rank')}{', the rank count with the most tensors' if len(counts) > 1 else ''}.",
        "" if study.by_token else
        "SQNR weighs by energy: in a tensor that one huge element dominates it says how well that element is encoded.",
        f"{plural(lost, 'point')} without an SQNR left out." if lost else "",
    ]
    title = tensor_title(table.xs(name, axis=1, level=0), name, algorithm)
    words = title, study.subtitle("tensor by tensor", algorithm, plural(ranks, "rank"))
    tables, alone = {}, {}
    for each in [name, *(other for other in study.inputs if other != name)]:
        for kind, numbered in kinds_of(rows.loc[rows["input"] == each, "tensor"].unique()).items():
            heading = f"{each}: {kind}" if kind else each
            places = [(each, tensor) for tensor in numbered.values()]
            columns = table[places].set_axis(pd.Index(numbered, name="N"), axis=1)
            if "" in numbered:
                alone[heading] = columns[""]
            else:
                tables[heading] = columns
    tables |= {"": pd.DataFrame(alone)} if alone else {}
    bound = table[~table.index.isin(style.UNCOMPRESSED)].to_numpy().ravel()
    return study.heat_page(words, notes, tables, alone, bound, highlight)


def tensor_title(table: pd.DataFrame, name: str, algorithm: str) -> str:
    """The codec whose SQNR differs most from tensor to tensor."""
    finite = table.where(np.isfinite(table))
    ranges = (finite.max(axis=1) - finite.min(axis=1))[finite.notna().sum(axis=1) > 1]
    if ranges.empty:
        return f"SQNR of {name} by codec ({algorithm})"
    widest = finite.loc[ranges.idxmax()]
    worst, best = (f"{decibels(widest[at])} on {shortened(at, 40)}" for at in (widest.idxmin(), widest.idxmax()))
    return f"{ranges.idxmax()}: {worst}, {best}"


def front(choices: pd.DataFrame) -> pd.DataFrame:
    """The choices (columns cost, sqnr_db) that no other beats in one without losing in the other, by rising cost."""
    rising = choices.sort_values(["cost", "sqnr_db"], ascending=[True, False], kind="stable")
    best = rising["sqnr_db"].astype(float).cummax().shift(fill_value=-np.inf)
    return rising[rising["sqnr_db"] > best]


def choices_of(study: Study, algorithms: Sequence[str], cost: str) -> pd.DataFrame:
    """Returns the choices with the main input at the largest world size, where it has both cost and SQNR: medians over
    tensors."""
    rows = study.at(study.main_input, study.world_size)
    groups = rows[rows["algorithm"].isin(algorithms)].groupby(["codec", "algorithm"], sort=False)
    choices = groups.agg(sqnr_db=("sqnr_db", "median"), cost=(cost, "median")).reset_index()
    if cost == "wire_bits_per_element":
        choices["cost"] = choices["codec"].map(study.wire_bits)
    return choices.dropna()


@style.drawn
def pareto(frame: pd.DataFrame, highlight: Sequence[str] = ()) -> Figure:
    """Median SQNR (dB) against wire bits per element and, where the study simulated, against latency (µs, log scale).

    Points on the Pareto front and those that `highlight` names are labelled; the rest is pale.
    """
    study = Study(frame)
    name, ranks = study.main_input, study.world_size
    algorithm = study.main_algorithm(name, ranks)
    by_bits = choices_of(study, [algorithm], "wire_bits_per_element")
    by_latency = choices_of(study, study.algorithms, LATENCY)
    simulated, timed = not by_latency.empty, by_latency["algorithm"].unique()
    tensors = study.tensors(name, ranks)
    of = "that of the median token" * study.by_token
    over = f"median over {plural(len(tensors), 'tensor')} ({listing(tensors)})" * (len(tensors) > 1)
    shown = [each for each in study.algorithms if each == algorithm or each in timed]
    left_out = [each for each in study.algorithms if each not in shown]
    why = "they have no simulated latency" if simulated else "errors beside wire bits are of one algorithm"
    notes = [
        f"SQNR: {sentence(of, over)}." if of or over else "",
        "Grey line: Pareto front; what is on it has the name of its codec.",
        f"Highlighted: {', '.join(highlight)}." if highlight else "",
        "Wire bits are those of one transfer; how often an algorithm transfers and encodes shows in its latency."
        if len(timed) > 1 else "",
        f"Not drawn: {', '.join(left_out)}: {why}." if left_out else "",
    ]  # fmt: skip
    legend = [style.handle(each, **style.algorithm_look(each, study.algorithms, highlight)) for each in shown]
    column = style.is_column()
    title, ends = pareto_title(by_bits, by_latency)
    notes.insert(2, ends)
    figure = style.new_page(
        title,
        sentence(name, f"{study.collective} over {plural(ranks, 'rank')}", study.dtypes),
        notes, study.source(simulated), [legend], 5.2 if column and simulated else 4.2,
    )  # fmt: skip
    payload = re.search(r"([1-9]\d*) bytes per rank", study.about.get("simulated_provenance", ""))
    size = f" of {style.size_text(int(payload[1]))}" if payload else ""
    error, which = study.exact("error"), timed[0] if len(timed) == 1 else "all algorithms"
    parts = [
        (by_bits, f"{algorithm}: {error}, {study.exact('wire bits')}", "Median SQNR (dB), higher is better",
         "Wire bits per element (log scale), fewer is better"),
        (by_latency, f"{which}: {error}, simulated latency{size}", "Median SQNR (dB)" * column,
         "Simulated latency (µs, log scale), lower is better"),
    ][: 1 + simulated]  # fmt: skip
    share = 0.5 if simulated and not column else 1.0
    panels = []
    for axes, (choices, heading, ylabel, xlabel) in zip(style.panels(figure, len(parts), sharey=True), parts):
        style.head(axes, heading, share)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        exact_at = style.decibel_axis(axes, [*by_bits["sqnr_db"], *by_latency["sqnr_db"]])
        panels.append((axes, choices.assign(y=choices["sqnr_db"].replace(np.inf, exact_at))))
        frame_choices(*panels[-1], share)
    style.settle(figure)
    for axes, choices in panels:
        draw_choices(axes, study, choices, highlight)
    return figure


def frame_choices(axes: Axes, choices: pd.DataFrame, share: float) -> None:
    """A log axis for the costs with room for names at the left, and the front as a staircase."""
    axes.grid()
    if choices.empty:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no SQNR", transform=axes.transAxes, color=GREY, ha="center")
        return
    best = front(choices)
    places = list(best[["cost", "y", "codec"]].itertuples(index=False))
    style.cost_axis(axes, choices["cost"], places, share, 9 if share == 1 else 6)


def draw_choices(axes: Axes, study: Study, choices: pd.DataFrame, highlight: Sequence[str]) -> None:
    """The markers, which say the algorithm, with the codecs of the front and of the fastest highlighted."""
    on_front = set(front(choices).index)
    size, line = style.sizes("lines.markersize", "lines.linewidth")
    mine = [choices[(choices["codec"] == name) | (choices["algorithm"] == name)] for name in highlight]
    strong = {index for each in mine for index in each.index}
    named = on_front | {each["cost"].idxmin() for each in mine if len(each)}
    labels = []
    for index, choice in choices.iterrows():
        look: dict[str, Any] = dict(style.algorithm_look(choice["algorithm"], study.algorithms, highlight))
        look |= {"color": HIGHLIGHT} if index in strong else {}
        look |= {} if index in strong | on_front else {"alpha": 0.45, "markersize": 0.75 * size}
        look |= {"markeredgecolor": INK, "markeredgewidth": 0.7 * line} if index in on_front else {}
        axes.plot(choice["cost"], choice["y"], linestyle="", zorder=4 if index in strong | on_front else 3, **look)
        if index in named:
            colour, side = HIGHLIGHT if index in strong else INK, "left" if index in on_front else "right"
            labels.append((choice["cost"], choice["y"], choice["codec"], colour, side))
    style.label_points(axes, labels)


def pareto_title(by_bits: pd.DataFrame, by_latency: pd.DataFrame) -> tuple[str, str]:
    """How many are on the front; and from where to where it goes."""
    simulated = len(by_latency) > 0
    choices = by_latency if simulated else by_bits
    if choices.empty:
        return "No SQNR to draw", ""
    cost = style.microseconds if simulated else lambda bits: f"{bits:.4g}{NO_BREAK}bits"
    best = front(choices)
    said = [f"{row.codec}{f' with {row.algorithm}' * simulated} ({cost(row.cost)}, {decibels(row.sqnr_db)})"
            .replace(" ", NO_BREAK) for row in best.itertuples()]  # fmt: skip
    if len(choices) == 1:
        only = choices.iloc[0]
        return f"{only['codec']}, {only['algorithm']}: {decibels(only['sqnr_db'])} at {cost(only['cost'])}", ""
    if len(best) == 1:
        return f"{said[0]} is best in everything", ""
    ends = f"It goes from {said[0]} to {said[-1]}."
    if choices["algorithm"].nunique() == 1:
        return f"{len(best)} of {len(choices)} codecs with {choices['algorithm'].iloc[0]} are on the Pareto front", ends
    counts = best["algorithm"].value_counts()
    share = "all" if len(counts) == 1 else counts.iloc[0]
    return f"{counts.index[0]} makes {share} of the {len(best)} best trade-offs", ends


FIGURES = {draw.__name__: draw for draw in (error_by_codec, error_by_ranks, pareto, error_by_tensor)}
