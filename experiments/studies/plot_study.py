#!/usr/bin/env python3
"""Draws the results of a study: `plot_study.py FOLDER` reads FOLDER/results.csv and writes PNGs there.

    error_by_codec.png    SQNR by codec and algorithm at the largest world size, a panel per input
    error_by_ranks.png    SQNR against the number of ranks, a panel per codec and input
    pareto.png            SQNR against wire bits, and against simulated latency where there is one
    error_by_tensor.png   SQNR of every tensor under every codec, one algorithm, one world size

Two things stay the same in all of them: a codec has one colour and an algorithm one marker. Where
a study has too many codecs for that, lines and dots give way to heat maps, and the Pareto plot
colours by family of codecs. Titles are computed from the rows. Every figure ends with a line that
says which of its numbers are exact, which are simulated, and from which file they come.

All figures are drawn before the first is written, and each is moved into place complete. Equal
files give equal bytes. Prints one line per file. Exit code: 0, or 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox, blended_transform_factory

# ---------------------------------------------------------------- the rows


class InputError(Exception):
    """The results cannot be drawn; the message is one line for the user."""


@dataclass(frozen=True)
class Row:
    """One point of the sweep. An SQNR of infinity means no error, NaN means that there is none."""

    input: str
    tensor: str
    dtype: str
    ranks: int
    algorithm: str
    codec: str
    wire_bits: float
    sqnr_db: float
    latency_us: float  # NaN when not simulated
    error_cells: tuple[str, ...]  # as written, to find algorithms that give the same bits


@dataclass(frozen=True)
class Study:
    """The rows of a results file and what its comment lines say about them."""

    title: str
    exact_provenance: str
    simulated_provenance: str
    file: str
    rows: tuple[Row, ...]


NEEDED = ("input", "tensor", "ranks", "algorithm", "codec", "wire_bits_per_element", "sqnr_db")
ERROR_COLUMNS = ("sqnr_db", "max_abs_error", "rmse", "cosine")
LATENCY = "simulated_latency_us"


def read_study(path: Path) -> Study:
    """Reads results.csv; raises InputError for a file that is not there or not a table of results."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error

    comments: dict[str, str] = {}
    table: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            comments.setdefault(key.strip(), value.strip())
        elif line.strip():
            table.append((number, line))
    if not table:
        raise InputError(f"{path}: there is no header line and there are no rows")

    header = next(csv.reader([table[0][1]]))
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise InputError(f"{path}: line {table[0][0]}: missing column {', '.join(missing)}")
    if len(table) == 1:
        raise InputError(f"{path}: there are no rows below the header")

    rows = [parse_row(header, line, f"{path}: line {number}") for number, line in table[1:]]
    seen: dict[tuple[object, ...], int] = {}
    for row, (number, _) in zip(rows, table[1:]):
        key = (row.input, row.tensor, row.dtype, row.ranks, row.algorithm, row.codec)
        if key in seen:
            raise InputError(f"{path}: line {number} is a second result for the point of line {seen[key]}")
        seen[key] = number

    parts = [part.strip() for part in comments.get("provenance", "").split(";")]
    exact = "; ".join(part for part in parts if part and not part.startswith(LATENCY))
    simulated = "; ".join(part for part in parts if part.startswith(LATENCY))
    title = next((v for k, v in comments.items() if k.startswith("arlab.study/")), "")
    digest = hashlib.sha256(data).hexdigest()[:12]
    source = f"{path.name}, {len(rows)} rows, SHA-256 {digest}"
    return Study(title, exact, simulated, source, tuple(rows))


def parse_row(header: list[str], line: str, where: str) -> Row:
    """One line of the table."""
    cells = next(csv.reader([line]))
    if len(cells) != len(header):
        raise InputError(f"{where}: {len(cells)} cells, but the header has {len(header)}")
    cell = dict(zip(header, cells))

    def number(name: str, valid: Callable[[float], bool], otherwise: str) -> float:
        """The cell as a number; NaN for an empty cell or a missing column."""
        text = cell.get(name, "").strip()
        if not text:
            return math.nan
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"{where}: {name} is '{text}', which is not a number") from None
        if not valid(value):
            raise InputError(f"{where}: {name} is '{text}'; it must be {otherwise}")
        return value

    positive: Callable[[float], bool] = lambda value: 0 < value < math.inf  # noqa: E731
    for name in ("input", "ranks", "algorithm", "codec", "wire_bits_per_element"):
        if not cell[name].strip():
            raise InputError(f"{where}: {name} is empty")
    whole = "a whole number, at least 1"
    ranks = number("ranks", lambda value: 1 <= value < 1e9 and value == int(value), whole)
    sqnr_db = number("sqnr_db", lambda value: True, "")
    if cell.get("exact", "").strip().lower() == "true":
        sqnr_db = math.inf
    return Row(
        input=cell["input"],
        tensor=cell["tensor"],
        dtype=cell.get("dtype", ""),
        ranks=int(ranks),
        algorithm=cell["algorithm"],
        codec=cell["codec"],
        wire_bits=number("wire_bits_per_element", positive, "above 0"),
        sqnr_db=math.nan if sqnr_db == -math.inf else sqnr_db,
        latency_us=number(LATENCY, positive, "above 0"),
        error_cells=tuple(cell.get(name, "") for name in ERROR_COLUMNS),
    )


# ---------------------------------------------------------------- questions to the rows


@dataclass(frozen=True)
class Spread:
    """What several tensors say about one (input, ranks, algorithm, codec)."""

    median: float
    low: float
    high: float
    undefined: int  # results without an SQNR, left out of the other figures


def median(values: Iterable[float]) -> float:
    """The median; infinities take part, NaN is left out."""
    known = sorted(value for value in values if not math.isnan(value))
    if not known:
        return math.nan
    low, high = known[(len(known) - 1) // 2], known[len(known) // 2]
    return low if low == high else (low + high) / 2


def spread(values: Sequence[float]) -> Spread:
    """Median and range of the values that are defined."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Spread(math.nan, math.nan, math.nan, len(values))
    return Spread(median(known), min(known), max(known), len(values) - len(known))


def unique(values: Iterable[str]) -> list[str]:
    """The values without repetition, in the order of their first appearance."""
    return list(dict.fromkeys(values))


@dataclass(frozen=True)
class Series:
    """Algorithms that have the same error in every row; one line in the error plots."""

    algorithms: tuple[str, ...]

    @property
    def name(self) -> str:
        """The algorithm that stands for all."""
        return self.algorithms[0]

    @property
    def label(self) -> str:
        """All names where they are few: `hierarchical = …_pipelined`."""
        first, rest = self.algorithms[0], self.algorithms[1:]
        if len(rest) > 2:
            return f"{first} = {len(rest)} others"
        short = [f"…{n[len(first):]}" if n.startswith(first) else n for n in rest]
        return " = ".join([first, *short])


class Results:
    """The rows of a study, indexed, and the order in which its names are drawn."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.rows = study.rows
        self.inputs = unique(row.input for row in self.rows)
        self.algorithms = unique(row.algorithm for row in self.rows)
        bits = {name: self.wire_bits(name) for name in unique(row.codec for row in self.rows)}
        self.codecs = sorted(bits, key=bits.__getitem__)  # stable: ties keep the order of the file
        self.series = self._series()
        self._cells: dict[tuple[str, int, str, str], dict[str, Row]] = {}
        for row in self.rows:
            key = (row.input, row.ranks, row.algorithm, row.codec)
            tensor = row.tensor if not self._several_dtypes(row) else f"{row.tensor} {row.dtype}".strip()
            self._cells.setdefault(key, {})[tensor] = row

    def _several_dtypes(self, row: Row) -> bool:
        if not hasattr(self, "_dtypes"):
            self._dtypes: dict[tuple[str, str], set[str]] = {}
            for other in self.rows:
                self._dtypes.setdefault((other.input, other.tensor), set()).add(other.dtype)
        return len(self._dtypes[(row.input, row.tensor)]) > 1

    def _series(self) -> list[Series]:
        seen: dict[frozenset[tuple[object, ...]], list[str]] = {}
        for algorithm in self.algorithms:
            finger_print = frozenset(
                (row.input, row.tensor, row.dtype, row.ranks, row.codec, row.error_cells)
                for row in self.rows
                if row.algorithm == algorithm
            )
            seen.setdefault(finger_print, []).append(algorithm)
        return [Series(tuple(names)) for names in seen.values()]

    def wire_bits(self, codec: str) -> float:
        """Wire bits per element of a codec: the median over its rows, which differ only by padding."""
        return median(row.wire_bits for row in self.rows if row.codec == codec)

    def tensors(self, input_name: str, ranks: int) -> list[str]:
        """The tensors of an input at a rank count."""
        return unique(
            tensor
            for (name, count, _, _), rows in self._cells.items()
            if name == input_name and count == ranks
            for tensor in rows
        )

    def ranks(self, input_name: str | None = None) -> list[int]:
        """The rank counts, ascending, of one input or of all."""
        return sorted({row.ranks for row in self.rows if input_name in (None, row.input)})

    def sqnr(self, input_name: str, ranks: int, algorithm: str, codec: str) -> dict[str, float]:
        """SQNR by tensor."""
        rows = self._cells.get((input_name, ranks, algorithm, codec), {})
        return {tensor: row.sqnr_db for tensor, row in rows.items()}

    def latency_us(self, input_name: str, ranks: int, algorithm: str, codec: str) -> float:
        """Simulated latency, NaN without one."""
        rows = self._cells.get((input_name, ranks, algorithm, codec), {})
        return median(row.latency_us for row in rows.values())

    @property
    def main_input(self) -> str:
        """The input that the study is about: the first with named tensors, or the first."""
        return next((row.input for row in self.rows if row.tensor), self.inputs[0])

    @property
    def main_algorithm(self) -> str:
        """The algorithm for comparing codecs: two_shot, the common choice, or the first."""
        return "two_shot" if "two_shot" in self.algorithms else self.algorithms[0]

    @property
    def world_size(self) -> int:
        """The largest rank count of the main input."""
        return self.ranks(self.main_input)[-1]

    def dtypes(self) -> str:
        """The payload's dtypes, for captions."""
        return ", ".join(unique(row.dtype for row in self.rows if row.dtype))


# ---------------------------------------------------------------- colours and markers

INK = "#222222"
GREY = "#666666"
GRID = "#DDDDDD"
UNCOMPRESSED = ("fp16", "bf16", "fp32")
# Okabe and Ito's palette, less its yellow (too faint on white), with two of Paul Tol's.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933")
MARKERS = {
    "one_shot": "o",
    "two_shot": "s",
    "ring": "D",
    "hierarchical": "^",
    "hierarchical_pipelined": "v",
    "halving_doubling": "P",
    "all_to_all": "X",
}
MORE_MARKERS = ("<", ">", "p", "h", "*", "d", "8", "H")
MAX_COLOURED_CODECS = 10


def family(codec: str) -> str:
    """What a codec's name shares with its relatives: qr, int, int-sr, had-int, mxfp, ..."""
    if codec in UNCOMPRESSED:
        return "uncompressed"
    parts = codec.split("-")
    names = [re.sub(r"\d.*", "", parts[0])]
    if len(parts) > 2 or names == ["had"]:
        names += [re.sub(r"\d.*", "", p) for p in parts[1:] if not re.fullmatch(r"g\d+|e\dm\d", p)]
    return "-".join(name for name in names if name) or codec


@dataclass
class Style:
    """Colour per codec (or per family, when there are many) and marker per algorithm."""

    colours: dict[str, str]
    markers: dict[str, str]
    families: dict[str, str] = field(default_factory=dict)  # colours, when codecs are coloured so

    @staticmethod
    def of(results: Results) -> Style:
        """Assigns by order of appearance, so that all figures of a study agree."""
        codecs = unique(row.codec for row in results.rows)
        by_family = len(codecs) > MAX_COLOURED_CODECS
        groups = {codec: family(codec) if by_family else codec for codec in codecs}
        compressed = unique(groups[c] for c in codecs if c not in UNCOMPRESSED)
        colours = {name: PALETTE[i] if i < len(PALETTE) else GREY for i, name in enumerate(compressed)}
        plain = unique(groups[c] for c in codecs if c in UNCOMPRESSED)
        colours.update({name: (INK, GREY, "#999999")[i % 3] for i, name in enumerate(plain)})
        others = [name for name in results.algorithms if name not in MARKERS]
        markers = {name: MARKERS[name] for name in results.algorithms if name in MARKERS}
        markers.update({n: MORE_MARKERS[i % len(MORE_MARKERS)] for i, n in enumerate(others)})
        families = {g: colours[g] for g in unique(groups.values())} if by_family else {}
        return Style({codec: colours[groups[codec]] for codec in codecs}, markers, families)

    def algorithm_handle(self, algorithm: str, label: str) -> Line2D:
        """A legend entry for a marker."""
        marker = self.markers[algorithm]
        return Line2D([], [], color=GREY, marker=marker, linestyle="", markersize=7, label=label)

    def family_handles(self) -> list[Line2D]:
        """Legend entries for colours; none where codecs are labelled directly."""
        return [
            Line2D([], [], color=colour, marker="s", linestyle="", markersize=8, label=name)
            for name, colour in self.families.items()
        ]


# ---------------------------------------------------------------- the page

DPI = 150
WIDTH_IN = 1600 / DPI
HEIGHT_IN = 900 / DPI
MARGIN_IN = 0.2
TITLE_PT, SUBTITLE_PT, LABEL_PT, TICK_PT, CAPTION_PT, PROVENANCE_PT = 15, 10, 10, 9, 8, 7


def shortened(text: str, limit: int) -> str:
    """A long name with its middle left out."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head):]}"


def some(names: Sequence[str], limit: int = 8) -> str:
    """A list of names for a caption."""
    shown = [shortened(name, 40) for name in names[:limit]]
    return ", ".join(shown) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def plural(count: int, noun: str) -> str:
    """`1 tensor`, `6 tensors`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def decibels(value: float) -> str:
    """An SQNR for a sentence."""
    return "exact" if value == math.inf else f"{value:.1f} dB".replace("-", "−")


class Page:
    """A figure with a title above, what the marks mean, and where the numbers come from below."""

    def __init__(
        self,
        title: str,
        subtitle: str,
        caption: str,
        provenance: str,
        handles: Sequence[Line2D] = (),
        body_in: float = 0,
    ) -> None:
        self.figure = Figure(dpi=DPI)
        self.canvas = FigureCanvasAgg(self.figure)
        self.figure.set_size_inches(WIDTH_IN, HEIGHT_IN)
        head = [
            (self.wrapped(title, TITLE_PT, "bold"), TITLE_PT, INK, "bold"),
            (self.wrapped(subtitle, SUBTITLE_PT), SUBTITLE_PT, GREY, "normal"),
        ]
        foot = [
            (self.wrapped(provenance, PROVENANCE_PT), PROVENANCE_PT, GREY, "normal"),
            (self.wrapped(caption, CAPTION_PT), CAPTION_PT, INK, "normal"),
        ]
        legend_in = self._legend(handles)
        head_in = MARGIN_IN + sum(self._height_in(lines, size) for lines, size, _, _ in head)
        foot_in = MARGIN_IN / 2 + sum(self._height_in(lines, size) for lines, size, _, _ in foot)
        height_in = max(HEIGHT_IN, head_in + legend_in + body_in + foot_in)
        self.figure.set_size_inches(WIDTH_IN, height_in)

        y_in = height_in - MARGIN_IN
        for lines, size, colour, weight in head:
            self._text(lines, y_in / height_in, size, colour, weight, "top")
            y_in -= self._height_in(lines, size)
        if self.legend is not None:
            corner = (MARGIN_IN / WIDTH_IN, y_in / height_in)
            self.legend.set_bbox_to_anchor(corner, transform=self.figure.transFigure)
            y_in -= legend_in
        foot_y_in = MARGIN_IN / 2
        for lines, size, colour, weight in foot:
            self._text(lines, foot_y_in / height_in, size, colour, weight, "bottom")
            foot_y_in += self._height_in(lines, size)

        left = MARGIN_IN / WIDTH_IN
        body = (left, foot_y_in / height_in, 1 - 2 * left, (y_in - foot_y_in) / height_in)
        self.figure.set_layout_engine("constrained", rect=body, w_pad=0.05, h_pad=0.05)

    def _text(
        self, lines: list[str], y: float, size: float, colour: str, weight: str, align: str
    ) -> None:
        self.figure.text(
            MARGIN_IN / WIDTH_IN,
            y,
            "\n".join(lines),
            fontsize=size,
            color=colour,
            fontweight=weight,
            va=align,
            linespacing=1.25,
        )

    @staticmethod
    def _height_in(lines: list[str], size: float) -> float:
        return len(lines) * size * 1.4 / 72 + 0.06 if lines else 0

    def _legend(self, handles: Sequence[Line2D]) -> float:
        """Makes the legend, as many columns as fit; returns its height."""
        self.legend = None
        for columns in range(len(handles), 0, -1):
            legend = self.figure.legend(
                handles=handles,
                loc="upper left",
                ncols=columns,
                fontsize=SUBTITLE_PT,
                frameon=False,
                borderpad=0,
                borderaxespad=0,
                handletextpad=0.2,
                columnspacing=1.6,
                labelcolor=INK,
            )
            box = legend.get_window_extent(self.canvas.get_renderer())
            if box.width <= (WIDTH_IN - 2 * MARGIN_IN) * DPI or columns == 1:
                self.legend = legend
                return box.height / DPI + 0.12
            legend.remove()
        return 0

    def text_px(self, text: str, size: float, weight: str = "normal") -> tuple[float, float]:
        """Width and height that a line of text takes."""
        probe = self.figure.text(0, 0, text, fontsize=size, fontweight=weight)
        box = probe.get_window_extent(self.canvas.get_renderer())
        probe.remove()
        return box.width, box.height

    def wrapped(self, text: str, size: float, weight: str = "normal") -> list[str]:
        """The text in lines that fit the page."""
        limit = (WIDTH_IN - 2 * MARGIN_IN) * DPI
        lines: list[str] = []
        for word in text.split():
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.text_px(longer, size, weight)[0] <= limit:
                lines[-1] = longer
            else:
                lines.append(shortened(word, 120))
        return lines

    def settle(self) -> None:
        """Fixes the layout, so that labels can be placed by pixel."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    def png(self) -> bytes:
        """The page as a PNG file, without a date or a version in it."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        return buffer.getvalue()


def provenance(study: Study, latency: bool = False) -> str:
    """Where the numbers of a figure come from, in the words of the file."""
    error = study.exact_provenance or "the file does not say where its numbers come from"
    parts = [f"Error and wire bits: {error}."]
    if latency:
        said = study.simulated_provenance or f"column {LATENCY}; the file names no model"
        parts.append(f"Latency: {said}.")
    if study.title:
        parts.append(f"Study: {study.title}.")
    parts.append(f"File: {study.file}.")
    return " ".join(parts)


def kind_of_error(study: Study) -> str:
    """`exact` where the file says that its error figures are."""
    return "exact" if "exact" in study.exact_provenance else ""


def joined_note(results: Results) -> str:
    """Explains the = in the names of algorithms."""
    if all(len(series.algorithms) == 1 for series in results.series):
        return ""
    return "Algorithms joined by = have the same error in every row."


# ---------------------------------------------------------------- axes in dB


@dataclass(frozen=True)
class DecibelScale:
    """Limits of an SQNR axis. An infinite SQNR is drawn on a line of its own above the others."""

    low: float
    high: float
    exact_at: float | None

    @staticmethod
    def of(values: Iterable[float], span: float = 0) -> DecibelScale:
        """Limits around the values, at least `span` apart."""
        known = [value for value in values if not math.isnan(value)]
        finite = [value for value in known if value != math.inf]
        low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
        grow = max(0.0, span - (high - low), 2 - (high - low)) / 2
        low, high = low - grow, high + grow
        pad = 0.07 * (high - low)
        if len(finite) == len(known):
            return DecibelScale(low - pad, high + pad, None)
        return DecibelScale(low - pad, high + 4 * pad, high + 2.5 * pad)

    def at(self, value: float) -> float:
        """Where a value is drawn."""
        return self.exact_at if value == math.inf and self.exact_at is not None else value

    def apply(self, axes: Axes, ticks: int = 8) -> None:
        """Sets limits and ticks."""
        axes.set_ylim(self.low, self.high)
        if self.exact_at is None:
            axes.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
            return
        below = self.exact_at - 0.05 * (self.high - self.low)
        places = MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, below)
        places = [place for place in places if self.low <= place <= below]
        axes.set_yticks([*places, self.exact_at], [*(f"{p:g}" for p in places), "exact"])
        axes.axhline(self.exact_at, color=GREY, linewidth=0.8, linestyle=":", zorder=1)


def clean(axes: Axes, grid: str = "y") -> None:
    """A light frame and grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=TICK_PT, length=3, color=GREY)
    axes.grid(axis=grid, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)


# ---------------------------------------------------------------- heat maps


@dataclass(frozen=True)
class HeatPanel:
    """One table of a heat map: rows are codecs."""

    title: str
    columns: list[str]
    values: list[list[float]]


HEAT_ROW_IN = 0.185


def heat_map(
    page: Page,
    results: Results,
    panels: Sequence[HeatPanel],
    bar_label: str,
    signed: bool = False,
) -> None:
    """Panels side by side, one row per codec, with the numbers written where they fit."""
    known = [v for p in panels for row in p.values for v in row if math.isfinite(v)] or [0.0]
    if signed:
        bound = max(0.1, max(abs(v) for v in known))
        norm, colours = matplotlib.colors.Normalize(-bound, bound), matplotlib.colormaps["PuOr"]
    else:
        norm, colours = matplotlib.colors.Normalize(min(known), max(known)), matplotlib.colormaps["cividis"]
    all_axes = page.figure.subplots(
        1,
        len(panels),
        sharey=True,
        squeeze=False,
        gridspec_kw={"width_ratios": [max(2, len(panel.columns)) for panel in panels]},
    )[0]
    for axes, panel in zip(all_axes, panels):
        shown = np.ma.masked_invalid(np.array(panel.values, dtype=float))
        image = axes.imshow(shown, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
        axes.set_title(shortened(panel.title, 60), fontsize=LABEL_PT, color=INK, loc="left")
        names = [shortened(column, 26) for column in panel.columns]
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
        labels = [f"{shortened(c, 24)}  {results.wire_bits(c):.4g} bit" for c in results.codecs]
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(labelsize=CAPTION_PT, length=0, colors=INK)
        for spine in axes.spines.values():
            spine.set_visible(False)
    bar = page.figure.colorbar(image, ax=list(all_axes), pad=0.01, aspect=40)
    bar.set_label(bar_label, fontsize=LABEL_PT, color=INK)
    bar.ax.tick_params(labelsize=TICK_PT)
    page.settle()
    for axes, panel in zip(all_axes, panels):
        write_numbers(page, axes, panel, lambda v: colours(norm(v)), signed)


def write_numbers(
    page: Page,
    axes: Axes,
    panel: HeatPanel,
    colour_at: Callable[[float], tuple[float, float, float, float]],
    signed: bool,
) -> None:
    """Writes the values into the cells, unless a cell is too small to read them."""
    form = "{:+.1f}" if signed else "{:.1f}"
    box = axes.get_window_extent()
    width, height = box.width / len(panel.columns), box.height / len(panel.values)
    texts = [[cell_text(form, value) for value in row] for row in panel.values]
    longest = max((text for row in texts for text in row), key=len)
    fits = [size for size in (8.5, 8, 7.5, 7, 6.5, 6) if fits_cell(page, longest, size, width, height)]
    if not fits:
        return
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            value = panel.values[y][x]
            red, green, blue = colour_at(value)[:3] if math.isfinite(value) else (1.0, 1.0, 1.0)
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
            ink = "white" if dark else INK
            axes.text(x, y, text, ha="center", va="center_baseline", fontsize=fits[0], color=ink)


def cell_text(form: str, value: float) -> str:
    """A value of a heat map: `exact` for no error, a dash for no value."""
    if math.isnan(value):
        return "–"
    return "exact" if math.isinf(value) else form.format(value).replace("-", "−")


def fits_cell(page: Page, text: str, size: float, width: float, height: float) -> bool:
    """Whether a text fits a cell with some air around it."""
    text_width, text_height = page.text_px(text, size)
    return text_width * 1.12 <= width and text_height * 1.1 <= height


def heat_body_in(results: Results, labels: Iterable[str]) -> float:
    """The height that a heat map wants."""
    longest = max((min(26, len(label)) for label in labels), default=0)
    return len(results.codecs) * HEAT_ROW_IN + 0.5 + 0.055 * longest


# ---------------------------------------------------------------- error_by_codec

MAX_DOTS = 72


def error_by_codec(results: Results, style: Style) -> Page:
    """SQNR by codec and algorithm at the largest world size, a panel per input."""
    ranks = results.world_size
    inputs = [name for name in results.inputs if ranks in results.ranks(name)]
    spreads = {
        (name, series.name, codec): spread(values)
        for name in inputs
        for series in results.series
        for codec in results.codecs
        if (values := list(results.sqnr(name, ranks, series.name, codec).values()))
    }
    counts = {name: len(results.tensors(name, ranks)) for name in inputs}
    undefined = sum(s.undefined for s in spreads.values())
    notes = [
        "Marker: median over the tensors of the input; bar: smallest to largest."
        if max(counts.values()) > 1
        else "",
        f"{results.main_input}: {some(results.tensors(results.main_input, ranks), 6)}."
        if counts[results.main_input] > 1
        else "",
        joined_note(results),
        f"{undefined} results without an SQNR (a finite sum became non-finite) are left out; n/a: none is left."
        if undefined
        else "",
    ]
    title = codec_title(results, spreads, ranks)
    subtitle = sentence(
        f"SQNR of the all-reduce against the exact sum, {ranks} ranks",
        results.dtypes(),
        kind_of_error(results.study),
    )
    many = len(results.codecs) * len(results.series) > MAX_DOTS
    if many:
        notes[0] = "Median over the tensors of the input." if max(counts.values()) > 1 else ""
        columns = [series.label for series in results.series]
        page = Page(
            title,
            subtitle,
            " ".join(filter(None, notes)),
            provenance(results.study),
            body_in=heat_body_in(results, columns),
        )
        none = spread([])
        panels = [
            HeatPanel(
                f"{name}, {plural(counts[name], 'tensor')}",
                columns,
                [[spreads.get((name, s.name, c), none).median for s in results.series] for c in results.codecs],
            )
            for name in inputs
        ]
        heat_map(page, results, panels, "SQNR (dB), higher is better")
        return page

    page = Page(
        title,
        subtitle,
        " ".join(filter(None, notes)),
        provenance(results.study),
        [style.algorithm_handle(series.name, series.label) for series in results.series],
        body_in=max(1, len(inputs)) * 2.0,
    )
    all_axes = page.figure.subplots(len(inputs), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(all_axes, inputs):
        mine = {(s, c): value for (n, s, c), value in spreads.items() if n == name}
        scale = DecibelScale.of(v for s in mine.values() for v in (s.median, s.low, s.high))
        draw_dots(axes, results, style, mine, scale)
        scale.apply(axes, ticks=7)
        tensors = plural(counts[name], "tensor") if results.tensors(name, ranks) != [""] else ""
        axes.set_title(sentence(shortened(name, 60), tensors), fontsize=LABEL_PT, color=INK, loc="left")
        axes.set_ylabel("SQNR (dB)", fontsize=LABEL_PT, color=INK)
    labels = [f"{shortened(c, 16)}\n{results.wire_bits(c):.4g} bit" for c in results.codecs]
    all_axes[-1].set_xticks(range(len(labels)), labels, fontsize=LABEL_PT)
    all_axes[-1].set_xlabel("Codec and its wire bits per element", fontsize=LABEL_PT, color=INK)
    return page


def draw_dots(
    axes: Axes,
    results: Results,
    style: Style,
    spreads: dict[tuple[str, str], Spread],
    scale: DecibelScale,
) -> None:
    """A dot and a range for every algorithm of every codec, codecs side by side."""
    clean(axes)
    count = len(results.series)
    step = min(0.2, 0.76 / count)
    size = 7.5 if count * len(results.codecs) <= 48 else 6
    for x, codec in enumerate(results.codecs):
        if x % 2 == 0:
            axes.axvspan(x - 0.5, x + 0.5, color="#F5F5F5", linewidth=0, zorder=0)
        for i, series in enumerate(results.series):
            here = spreads.get((series.name, codec))
            if here is None:
                continue
            at = x + (i - (count - 1) / 2) * step
            colour = style.colours[codec]
            if math.isnan(here.median):
                place = blended_transform_factory(axes.transData, axes.transAxes)
                axes.text(at, 0.03, "n/a", transform=place, fontsize=7, color=colour, ha="center", rotation=90)
                continue
            if here.high > here.low:
                ends = [scale.at(here.low), scale.at(here.high)]
                axes.plot([at, at], ends, color=colour, alpha=0.4, linewidth=2.5, solid_capstyle="butt")
            marker = style.markers[series.name]
            axes.plot(
                [at],
                [scale.at(here.median)],
                marker=marker,
                color=colour,
                markersize=size,
                markeredgecolor="white",
                markeredgewidth=0.7,
                zorder=3,
            )
    axes.set_xlim(-0.5, len(results.codecs) - 0.5)
    axes.tick_params(axis="x", length=0)


def codec_title(results: Results, spreads: dict[tuple[str, str, str], Spread], ranks: int) -> str:
    """How much the choice of an algorithm moves the error, and how much the tensor does."""
    name = results.main_input
    by_algorithm, by_tensor = (0.0, ""), (0.0, "")
    medians: dict[str, float] = {}
    for codec in results.codecs:
        mine = [s for (n, _, c), s in spreads.items() if n == name and c == codec]
        finite = [s.median for s in mine if math.isfinite(s.median)]
        if not finite:
            continue
        medians[codec] = max(finite)
        by_algorithm = max(by_algorithm, (max(finite) - min(finite), codec), key=lambda pair: pair[0])
        ranges = [s.high - s.low for s in mine if math.isfinite(s.high - s.low)]
        by_tensor = max(by_tensor, (max(ranges, default=0.0), codec), key=lambda pair: pair[0])
    at = f"At {plural(ranks, 'rank')}"
    moved = [
        f"the algorithm moves the median SQNR by up to {by_algorithm[0]:.1f} dB ({by_algorithm[1]})"
        if by_algorithm[0] >= 0.05
        else "",
        f"the tensor moves it by up to {by_tensor[0]:.1f} dB ({by_tensor[1]})" if by_tensor[0] >= 0.05 else "",
    ]
    if moved[0] and moved[1]:
        return f"{at} {moved[0]}, the tensor by up to {by_tensor[0]:.1f} dB ({by_tensor[1]})"
    if moved[0]:
        return f"{at} {moved[0]}"
    if len(medians) > 1:
        low, high = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
        return f"{at} the median SQNR goes from {decibels(medians[low])} ({low}) to {decibels(medians[high])} ({high})"
    if medians:
        codec, value = next(iter(medians.items()))
        return f"{at} {codec} has a median SQNR of {decibels(value)}"
    return f"SQNR by codec and algorithm at {plural(ranks, 'rank')}"


def sentence(*parts: str) -> str:
    """The parts that are not empty, with commas."""
    return ", ".join(part for part in parts if part)


# ---------------------------------------------------------------- error_by_ranks

MAX_RANK_PANELS = 10


@dataclass(frozen=True)
class RankCurves:
    """SQNR against ranks for one input, over tensors that exist at every rank count."""

    ranks: list[int]
    tensors: list[str]
    left_out: list[str]
    curves: dict[tuple[str, str], dict[int, float]]  # by (algorithm, codec)
    dropped: int  # curves that had to leave out a tensor without an SQNR somewhere

    def change(self, algorithm: str, codec: str) -> float:
        """From the fewest ranks to the most; NaN when one of them is missing."""
        curve = self.curves.get((algorithm, codec), {})
        ends = [curve.get(self.ranks[0], math.nan), curve.get(self.ranks[-1], math.nan)]
        return 0.0 if ends[0] == ends[1] else ends[1] - ends[0]


def rank_curves(results: Results, name: str) -> RankCurves:
    """The curves of an input."""
    ranks = results.ranks(name)
    by_count = [results.tensors(name, count) for count in ranks]
    every = unique(tensor for tensors in by_count for tensor in tensors)
    common = [tensor for tensor in every if all(tensor in tensors for tensors in by_count)]
    curves: dict[tuple[str, str], dict[int, float]] = {}
    dropped = 0
    for series in results.series:
        for codec in results.codecs:
            points = {count: results.sqnr(name, count, series.name, codec) for count in ranks}
            points = {count: values for count, values in points.items() if values}
            mine = [
                t for t in common if all(not math.isnan(v.get(t, math.nan)) for v in points.values())
            ]
            dropped += bool(points) and len(mine) < len(common)
            if mine:
                curves[(series.name, codec)] = {
                    count: median(values[t] for t in mine) for count, values in points.items()
                }
    return RankCurves(ranks, common, [t for t in every if t not in common], curves, dropped)


def error_by_ranks(results: Results, style: Style) -> Page:
    """SQNR against the number of ranks: panels by codec and input, a line per algorithm."""
    curves = {name: rank_curves(results, name) for name in results.inputs}
    title = ranks_title(results, curves[results.main_input])
    notes = []
    for name, mine in curves.items():
        if not mine.tensors:
            notes.append(f"{name}: no tensor exists at every rank count, so nothing can be compared.")
        elif mine.left_out:
            notes.append(
                f"{name}: median over the {plural(len(mine.tensors), 'tensor')} that exist at every rank "
                f"count ({some(mine.tensors, 6)}); {some(mine.left_out, 3)} do not and are left out."
                if len(mine.tensors) > 1
                else f"{name}: {mine.tensors[0]}, the only tensor that exists at every rank count."
            )
        elif len(mine.tensors) > 1:
            notes.append(f"{name}: median over the same {plural(len(mine.tensors), 'tensor')} everywhere.")
    dropped = sum(mine.dropped for mine in curves.values())
    if dropped:
        notes.append(f"{plural(dropped, 'curve')} without the tensors that lack an SQNR at some rank count.")
    notes.append(joined_note(results))
    subtitle = sentence(
        "SQNR of the all-reduce against the exact sum", results.dtypes(), kind_of_error(results.study)
    )
    if len(results.codecs) > MAX_RANK_PANELS:
        return ranks_heat_map(results, curves, title, subtitle, notes)
    notes.insert(0, "All panels span the same number of dB, each from its own level, so slopes compare.")
    page = Page(
        title,
        subtitle,
        " ".join(filter(None, notes)),
        provenance(results.study),
        [style.algorithm_handle(series.name, series.label) for series in results.series],
        body_in=len(results.inputs) * 2.0,
    )
    grid = page.figure.subplots(len(results.inputs), len(results.codecs), squeeze=False, sharex=True)
    values = {
        (name, codec): [
            v for (_, c), curve in mine.curves.items() if c == codec for v in curve.values()
        ]
        for name, mine in curves.items()
        for codec in results.codecs
    }
    finite = {key: [v for v in all_v if math.isfinite(v)] for key, all_v in values.items()}
    span = max((max(v) - min(v) for v in finite.values() if v), default=1.0)
    everywhere = results.ranks()
    for y, (name, mine) in enumerate(curves.items()):
        for x, codec in enumerate(results.codecs):
            axes = grid[y][x]
            clean(axes, "both")
            scale = DecibelScale.of(values[(name, codec)], span)
            draw_curves(axes, results, style, mine, codec, scale)
            scale.apply(axes, ticks=6)
            axes.set_xscale("log", base=2)
            axes.set_xlim(everywhere[0] / 2**0.35, everywhere[-1] * 2**0.35)
            shown = everywhere if len(everywhere) <= 5 else everywhere[:: math.ceil(len(everywhere) / 5)]
            axes.xaxis.set_major_locator(FixedLocator(shown))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticks(shown, [str(count) for count in shown])
            if y == 0:
                bits = f"{results.wire_bits(codec):.4g} bit"
                heading = f"{shortened(codec, 16)}\n{bits}"
                axes.set_title(heading, fontsize=LABEL_PT, color=style.colours[codec], fontweight="bold")
        grid[y][0].set_ylabel(f"{shortened(name, 28)}\nSQNR (dB)", fontsize=LABEL_PT, color=INK)
    page.figure.supxlabel("Number of ranks (log scale)", fontsize=LABEL_PT, color=INK)
    return page


def draw_curves(
    axes: Axes, results: Results, style: Style, mine: RankCurves, codec: str, scale: DecibelScale
) -> None:
    """The lines of one panel."""
    drawn = False
    for series in results.series:
        curve = mine.curves.get((series.name, codec))
        if not curve:
            continue
        drawn = True
        counts = sorted(curve)
        axes.plot(
            counts,
            [scale.at(curve[count]) for count in counts],
            color=style.colours[codec],
            marker=style.markers[series.name],
            markersize=6,
            markeredgecolor="white",
            markeredgewidth=0.6,
            linewidth=1.3,
        )
    if not drawn:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, color=GREY, ha="center", fontsize=TICK_PT)


def ranks_heat_map(
    results: Results, curves: dict[str, RankCurves], title: str, subtitle: str, notes: list[str]
) -> Page:
    """The change of SQNR from the fewest ranks to the most; the SQNR itself where there is one count."""
    compared = any(len(mine.ranks) > 1 for mine in curves.values())
    columns = [series.label for series in results.series]
    page = Page(
        title,
        subtitle,
        " ".join(filter(None, notes)),
        provenance(results.study),
        body_in=heat_body_in(results, columns),
    )
    panels = []
    for name, mine in curves.items():
        values = [
            [
                mine.change(series.name, codec)
                if compared
                else mine.curves.get((series.name, codec), {}).get(mine.ranks[0], math.nan)
                for series in results.series
            ]
            for codec in results.codecs
        ]
        heading = f"{name}, {mine.ranks[0]} to {mine.ranks[-1]} ranks" if compared else name
        panels.append(HeatPanel(heading, columns, values))
    label = "Change of SQNR (dB), higher is better" if compared else "SQNR (dB), higher is better"
    heat_map(page, results, panels, label, signed=compared)
    return page


def ranks_title(results: Results, mine: RankCurves) -> str:
    """What more ranks cost, for the algorithm that suffers most and the one that suffers least."""
    if len(mine.ranks) == 1:
        return f"SQNR at {plural(mine.ranks[0], 'rank')}, the only rank count of the study"
    changes: dict[str, float] = {}
    for series in results.series:
        each = [mine.change(series.name, codec) for codec in results.codecs]
        each = [value for value in each if math.isfinite(value)]
        if each:
            changes[series.label] = median(each)
    path = f"From {mine.ranks[0]} to {mine.ranks[-1]} ranks"
    if not changes:
        return f"{path}: nothing to compare"
    over = f"(median over {plural(len(results.codecs), 'codec')})" if len(results.codecs) > 1 else ""
    worst, best = min(changes, key=changes.__getitem__), max(changes, key=changes.__getitem__)

    def said(name: str) -> str:
        return f"{changes[name]:+.1f} dB with {name}".replace("-", "−")

    if len(changes) == 1:
        return f"{path} SQNR changes by {said(worst)} {over}".strip()
    return f"{path} SQNR changes by {said(worst)}, but {said(best)} {over}".strip()


# ---------------------------------------------------------------- pareto


@dataclass(frozen=True)
class Choice:
    """A (codec, algorithm) on the Pareto plot: smaller cost and higher SQNR are better."""

    codec: str
    algorithm: str
    cost: float
    sqnr_db: float


def front(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that no other beats on one axis without losing on the other, by rising cost."""
    best: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (c.cost, -c.sqnr_db)):
        if not best or choice.sqnr_db > best[-1].sqnr_db:
            best.append(choice)
    return best


def pareto(results: Results, style: Style) -> Page:
    """SQNR against wire bits and, where the study simulated, against latency."""
    name, ranks, algorithm = results.main_input, results.world_size, results.main_algorithm
    by_bits: list[Choice] = []
    by_latency: list[Choice] = []
    for codec in results.codecs:
        for candidate in results.algorithms:
            sqnr = median(results.sqnr(name, ranks, candidate, codec).values())
            if math.isnan(sqnr):
                continue
            if candidate == algorithm:
                by_bits.append(Choice(codec, candidate, results.wire_bits(codec), sqnr))
            latency = results.latency_us(name, ranks, candidate, codec)
            if not math.isnan(latency):
                by_latency.append(Choice(codec, candidate, latency, sqnr))
    if not by_bits:
        best = unique(row.algorithm for row in results.rows if row.input == name and row.ranks == ranks)
        algorithm = best[0]
        by_bits = [
            Choice(codec, algorithm, results.wire_bits(codec), sqnr)
            for codec in results.codecs
            if not math.isnan(sqnr := median(results.sqnr(name, ranks, algorithm, codec).values()))
        ]

    tensors = results.tensors(name, ranks)
    simulated = bool(by_latency)
    notes = [
        f"SQNR: median over {plural(len(tensors), 'tensor')} ({some(tensors, 6)})." if len(tensors) > 1 else "",
        "Grey line: the Pareto front, what can be had for at most that cost.",
        f"Wire bits are those of one transfer; how often an algorithm transfers and encodes shows in the latency."
        if simulated and len(results.algorithms) > 1
        else "",
    ]
    subtitle = sentence(f"{name}, {plural(ranks, 'rank')}", results.dtypes())
    shown = unique(choice.algorithm for choice in by_latency) if simulated else [algorithm]
    handles = [style.algorithm_handle(a, a) for a in results.algorithms if a in shown or a == algorithm]
    page = Page(
        pareto_title(by_bits, by_latency, ranks, algorithm),
        subtitle,
        " ".join(filter(None, notes)),
        provenance(results.study, latency=simulated),
        [*handles, *style.family_handles()],
        body_in=6.0 if style.families else 0,
    )
    scale = DecibelScale.of(choice.sqnr_db for choice in [*by_bits, *by_latency])
    all_axes = page.figure.subplots(1, 2 if simulated else 1, sharey=True, squeeze=False)[0]
    exact = kind_of_error(results.study)
    scale.apply(all_axes[0])
    all_axes[0].set_ylabel("Median SQNR (dB), higher is better", fontsize=LABEL_PT, color=INK)
    draw_choices(all_axes[0], style, by_bits, scale, BITS_TICKS)
    all_axes[0].set_title(sentence(f"{algorithm}", exact), fontsize=LABEL_PT, color=INK, loc="left")
    all_axes[0].set_xlabel("Wire bits per element (log scale), fewer is better", fontsize=LABEL_PT, color=INK)
    if simulated:
        right = all_axes[1]
        draw_choices(right, style, by_latency, scale, ONE_TWO_FIVE)
        if scale.exact_at is not None:
            right.axhline(scale.exact_at, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        size = payload(results.study)
        heading = sentence("all algorithms", f"{exact} error against simulated latency".strip())
        right.set_title(heading, fontsize=LABEL_PT, color=INK, loc="left")
        label = f"Simulated latency (µs{f', {size} per rank' if size else ''}, log scale), lower is better"
        right.set_xlabel(label, fontsize=LABEL_PT, color=INK)
    page.settle()
    label_choices(page, all_axes[0], style, by_bits, scale, [(c, c.codec) for c in by_bits])
    if simulated:
        on_front = front(by_latency)
        wanted = [(c, f"{c.codec}, {c.algorithm}") for c in on_front]
        if not style.families:
            for codec in results.codecs:
                mine = [c for c in by_latency if c.codec == codec]
                if mine and not any(c.codec == codec for c in on_front):
                    fastest = min(mine, key=lambda c: c.cost)
                    wanted.append((fastest, f"{codec}, {fastest.algorithm}"))
        label_choices(page, all_axes[1], style, by_latency, scale, wanted)
    return page


BITS_TICKS = (0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64)
ONE_TWO_FIVE = tuple(m * 10.0**e for e in range(-3, 10) for m in (1, 2, 5))
FINER = tuple(m * 10.0**e for e in range(-3, 10) for m in (1, 1.5, 2, 3, 4, 5, 7))


def payload(study: Study) -> str:
    """The payload that was simulated, as `64 MiB`, where the file says it."""
    found = re.search(r"(\d+) bytes per rank", study.simulated_provenance)
    if found is None:
        return ""
    count = int(found[1])
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count % 2**power == 0 and count:
            return f"{count >> power} {unit}"
    return f"{count} bytes"


def draw_choices(
    axes: Axes, style: Style, choices: Sequence[Choice], scale: DecibelScale, ticks: Sequence[float]
) -> None:
    """Points and the front behind them, costs on a log axis."""
    clean(axes, "both")
    on_front = front(choices)
    costs = [choice.cost for choice in choices] or [1.0]
    ratio = max(1.5, max(costs) / min(costs))
    low, high = min(costs) / ratio**0.09, max(costs) * ratio**0.12
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) < 4:
        inside = [tick for tick in FINER if low <= tick <= high]
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(inside, [f"{tick:g}" for tick in inside])
    if on_front:
        xs = [choice.cost for choice in on_front]
        ys = [scale.at(choice.sqnr_db) for choice in on_front]
        axes.plot(
            [xs[0], *xs, high],
            [scale.low, *ys, ys[-1]],
            drawstyle="steps-post",
            color="#BBBBBB",
            linewidth=2.5,
            zorder=2,
            solid_joinstyle="miter",
        )
    for choice in choices:
        best = choice in on_front
        axes.plot(
            [choice.cost],
            [scale.at(choice.sqnr_db)],
            marker=style.markers[choice.algorithm],
            markersize=9 if best else 6.5,
            color=style.colours[choice.codec],
            markeredgecolor=INK if best else "white",
            markeredgewidth=1.1 if best else 0.6,
            linestyle="",
            zorder=4 if best else 3,
        )


def pareto_title(
    by_bits: Sequence[Choice], by_latency: Sequence[Choice], ranks: int, algorithm: str
) -> str:
    """The fastest choice and what it is compared with, or the size of the front."""
    if by_latency:
        fastest = min(by_latency, key=lambda c: (c.cost, -c.sqnr_db))
        plain = [c for c in by_latency if c.codec in UNCOMPRESSED]
        text = (
            f"Fastest of the simulated choices at {plural(ranks, 'rank')}: {fastest.codec} with "
            f"{fastest.algorithm}, {fastest.cost:.4g} µs, SQNR {decibels(fastest.sqnr_db)}"
        )
        if plain and fastest.codec not in UNCOMPRESSED:
            text += f"; uncompressed {min(c.cost for c in plain):.4g} µs"
        return text
    if not by_bits:
        return f"No SQNR to draw at {plural(ranks, 'rank')}"
    names = [choice.codec for choice in front(by_bits)]
    return (
        f"{len(names)} of {plural(len(by_bits), 'codec')} on the Pareto front of SQNR and wire bits "
        f"({algorithm}, {plural(ranks, 'rank')})"
    )


def label_choices(
    page: Page,
    axes: Axes,
    style: Style,
    choices: Sequence[Choice],
    scale: DecibelScale,
    wanted: Sequence[tuple[Choice, str]],
) -> None:
    """Names the points beside them where there is room; points of the front go first."""
    on_front = front(choices)

    def place(choice: Choice) -> tuple[float, float]:
        x, y = axes.transData.transform((choice.cost, scale.at(choice.sqnr_db)))
        return float(x), float(y)

    half = 4.5 * DPI / 72
    taken = [Bbox([[x - half, y - half], [x + half, y + half]]) for x, y in map(place, choices)]
    corners = stairs([place(choice) for choice in on_front], axes)
    frame = axes.get_window_extent()
    for choice, text in sorted(wanted, key=lambda pair: pair[0] not in on_front):
        weight = "bold" if choice in on_front else "normal"
        size = TICK_PT if len(wanted) <= 20 else CAPTION_PT
        width, height = page.text_px(text, size, weight)
        box = free_place(place(choice), width, height, taken, corners, frame)
        if box is None:
            continue
        taken.append(box)
        x, y = place(choice)
        centre = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
        near = (min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1))
        if math.hypot(near[0] - x, near[1] - y) > 2.2 * half:
            ends = axes.transData.inverted().transform([(x, y), near])
            axes.plot(ends[:, 0], ends[:, 1], color=style.colours[choice.codec], linewidth=0.7, zorder=2.5)
        at = axes.transData.inverted().transform(centre)
        axes.text(
            at[0],
            at[1],
            text,
            fontsize=size,
            fontweight=weight,
            color=style.colours[choice.codec],
            ha="center",
            va="center",
            zorder=5,
        )


def stairs(points: Sequence[tuple[float, float]], axes: Axes) -> list[Bbox]:
    """The segments of the front as thin boxes, for labels to keep off."""
    frame = axes.get_window_extent()
    boxes: list[Bbox] = []
    for i, (x, y) in enumerate(points):
        below = points[i - 1][1] if i else frame.y0
        right = points[i + 1][0] if i + 1 < len(points) else frame.x1
        boxes.append(Bbox([[x - 2, below], [x + 2, y]]))
        boxes.append(Bbox([[x, y - 2], [right, y + 2]]))
    return boxes


def free_place(
    point: tuple[float, float],
    width: float,
    height: float,
    taken: Sequence[Bbox],
    lines: Sequence[Bbox],
    frame: Bbox,
) -> Bbox | None:
    """The nearest box for a label that touches nothing, tried on growing circles around the point."""
    for away in (12, 18, 26, 36, 48, 62, 78):
        for degrees in (0, 180, 90, 270, 30, 330, 150, 210, 60, 120, 240, 300):
            dx, dy = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            x = point[0] + dx * (away + width / 2)
            y = point[1] + dy * (away + height / 2)
            box = Bbox([[x - width / 2, y - height / 2], [x + width / 2, y + height / 2]])
            inside = (
                box.x0 >= frame.x0 + 3
                and box.x1 <= frame.x1
                and box.y0 >= frame.y0 + 3
                and box.y1 <= frame.y1
            )
            if inside and not any(overlap(box, other) for other in [*taken, *lines]):
                return box
    return None


def overlap(one: Bbox, other: Bbox, air: float = 2) -> bool:
    """Whether two boxes come closer than `air` pixels."""
    return (
        one.x0 - air < other.x1
        and other.x0 - air < one.x1
        and one.y0 - air < other.y1
        and other.y0 - air < one.y1
    )


# ---------------------------------------------------------------- error_by_tensor

MAX_LINES = 10


@dataclass(frozen=True)
class Section:
    """Tensors that stand together on the axis: the layers of one kind, or a single tensor."""

    input: str
    heading: str
    tensors: list[str]
    ticks: list[str]


def sections_of(name: str, tensors: Sequence[str]) -> list[Section]:
    """Cuts the tensors of an input into kinds, by what their names are apart from the first number."""
    kinds: dict[str, list[tuple[int, str]]] = {}
    for tensor in tensors:
        found = re.search(r"\d+", tensor)
        if found is None:
            kinds.setdefault(tensor, []).append((0, tensor))
        else:
            kind = f"{tensor[:found.start()]}N{tensor[found.end():]}"
            kinds.setdefault(kind, []).append((int(found[0]), tensor))
    sections: list[Section] = []
    for kind, numbered in kinds.items():
        if len(numbered) == 1:
            tensor = numbered[0][1]
            sections.append(Section(name, tensor or name, [tensor], [""]))
        else:
            numbered.sort()
            sections.append(Section(name, kind, [t for _, t in numbered], [str(n) for n, _ in numbered]))
    return sections


def error_by_tensor(results: Results, style: Style) -> Page:
    """SQNR of every tensor under every codec, at the rank count that has the most tensors."""
    name, algorithm = results.main_input, results.main_algorithm
    ranks = max(results.ranks(name), key=lambda count: (len(results.tensors(name, count)), count))
    if not any(results.sqnr(name, ranks, algorithm, codec) for codec in results.codecs):
        algorithm = next(r.algorithm for r in results.rows if r.input == name and r.ranks == ranks)
    order = [name, *(other for other in results.inputs if other != name)]
    sections = [s for i in order for s in sections_of(i, results.tensors(i, ranks))]
    values = {
        (section.input, tensor, codec): results.sqnr(section.input, ranks, algorithm, codec).get(tensor, math.nan)
        for section in sections
        for tensor in section.tensors
        for codec in results.codecs
    }
    reason = ", the rank count with the most tensors" if len(results.ranks(name)) > 1 else ""
    notes = [
        f"{plural(ranks, 'rank')}{reason}.",
        "SQNR weighs by energy: in a tensor that one huge element dominates it says how well that element is encoded.",
    ]
    lost = [key for key, value in values.items() if math.isnan(value)]
    if lost:
        notes.append(f"{plural(len(lost), 'point')} without an SQNR left out.")
    title = tensor_title(results, name, values, algorithm)
    subtitle = sentence(
        f"SQNR of the all-reduce against the exact sum, tensor by tensor: {algorithm}, {plural(ranks, 'rank')}",
        results.dtypes(),
        kind_of_error(results.study),
    )
    if len(results.codecs) > MAX_LINES:
        columns = [s.heading if tick == "" else heading_at(s, i) for s in sections for i, tick in enumerate(s.ticks)]
        page = Page(
            title,
            subtitle,
            " ".join(notes),
            provenance(results.study),
            body_in=heat_body_in(results, columns),
        )
        cells = [
            [values[(s.input, tensor, codec)] for s in sections for tensor in s.tensors]
            for codec in results.codecs
        ]
        heat_map(page, results, [HeatPanel(", ".join(order), columns, cells)], "SQNR (dB), higher is better")
        return page

    page = Page(title, subtitle, " ".join(notes), provenance(results.study))
    axes = page.figure.subplots()
    clean(axes)
    scale = DecibelScale.of(values.values())
    scale.apply(axes, ticks=9)
    axes.set_ylabel("SQNR (dB), higher is better", fontsize=LABEL_PT, color=INK)
    last = draw_sections(page, axes, results, style, sections, values, scale, style.markers[algorithm])
    page.settle()
    label_ends(page, axes, style, last)
    return page


def heading_at(section: Section, index: int) -> str:
    """A column's name in the heat map; a synthetic input has only its own name."""
    return section.tensors[index] or section.input


def draw_sections(
    page: Page,
    axes: Axes,
    results: Results,
    style: Style,
    sections: Sequence[Section],
    values: dict[tuple[str, str, str], float],
    scale: DecibelScale,
    marker: str,
) -> dict[str, tuple[float, float]]:
    """Lines through the layers of each kind; returns the last point of every codec."""
    x = 0.0
    ticks: list[tuple[float, str]] = []
    last: dict[str, tuple[float, float]] = {}
    total = sum(len(section.tensors) for section in sections)
    for number, section in enumerate(sections):
        places = [x + i for i in range(len(section.tensors))]
        for codec in results.codecs:
            points = [
                (at, scale.at(values[(section.input, tensor, codec)]))
                for at, tensor in zip(places, section.tensors)
                if not math.isnan(values[(section.input, tensor, codec)])
            ]
            if points:
                axes.plot(
                    [at for at, _ in points],
                    [y for _, y in points],
                    color=style.colours[codec],
                    marker=marker,
                    markersize=7 if total <= 30 else 4,
                    markeredgecolor="white",
                    markeredgewidth=0.7,
                    linewidth=1.6,
                    zorder=3,
                )
                last[codec] = points[-1]
        middle = (places[0] + places[-1]) / 2
        ticks += [(at, tick) for at, tick in zip(places, section.ticks) if tick]
        room = (len(places) + 0.6) / (total + len(sections)) * 1250
        heading = section.heading
        width = page.text_px(heading, LABEL_PT)[0]
        if width > room:
            heading = shortened(heading, max(6, int(len(heading) * room / width)))
        where = blended_transform_factory(axes.transData, axes.transAxes)
        axes.text(middle, 1.01, heading, transform=where, ha="center", va="bottom", fontsize=LABEL_PT, color=INK)
        if number % 2 == 0:
            axes.axvspan(places[0] - 0.8, places[-1] + 0.8, color="#F5F5F5", linewidth=0, zorder=0)
        x = places[-1] + 1.6
    every = max(1, math.ceil(len(ticks) / 40))
    axes.set_xticks([at for at, _ in ticks[::every]], [tick for _, tick in ticks[::every]])
    axes.tick_params(axis="x", length=0)
    if ticks:
        axes.set_xlabel("N, the number in the tensor's name (its layer)", fontsize=LABEL_PT, color=INK)
    axes.set_xlim(-0.8, x - 1.6 + 0.8)
    return last


def label_ends(
    page: Page, axes: Axes, style: Style, last: dict[str, tuple[float, float]]
) -> None:
    """The codecs' names right of the axes, at the height of their last point, moved apart."""
    box = axes.get_position()
    labels = {codec: shortened(codec, 20) for codec in last}
    widest = max((page.text_px(text, LABEL_PT, "bold")[0] for text in labels.values()), default=0)
    needed = (widest + 45) / (WIDTH_IN * DPI)
    axes.set_position([box.x0, box.y0, box.width - needed, box.height])
    frame = axes.get_window_extent()
    order = sorted(last, key=lambda codec: last[codec][1])
    line = 1.25 * LABEL_PT * DPI / 72
    wanted = [float(axes.transData.transform(last[codec])[1]) for codec in order]
    heights = apart(wanted, line, frame.y0, frame.y1)
    for codec, wish, height in zip(order, wanted, heights):
        colour = style.colours[codec]
        inverse = axes.transAxes.inverted()
        start, bend, end = inverse.transform([(frame.x1 + 3, wish), (frame.x1 + 18, height), (frame.x1 + 26, height)])
        axes.plot(
            [start[0], bend[0], end[0]],
            [start[1], bend[1], end[1]],
            transform=axes.transAxes,
            color=colour,
            linewidth=0.9,
            clip_on=False,
        )
        at = inverse.transform((frame.x1 + 32, height))
        axes.text(
            at[0],
            at[1],
            labels[codec],
            transform=axes.transAxes,
            fontsize=LABEL_PT,
            fontweight="bold",
            color=colour,
            va="center",
        )


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Ascending heights as near as possible to the wanted ones, at least `gap` from each other."""
    groups: list[list[float]] = []  # [sum of what the members want for the first of them, members]
    for i, height in enumerate(wanted):
        groups.append([height, 1])
        while len(groups) > 1:
            (sum_a, count_a), (sum_b, count_b) = groups[-2], groups[-1]
            if sum_a / count_a + gap * count_a <= sum_b / count_b:
                break
            groups[-2:] = [[sum_a + sum_b - gap * count_a * count_b, count_a + count_b]]
    placed: list[float] = []
    for total, count in groups:
        first = min(max(total / count, low), high - gap * (count - 1))
        placed += [first + gap * i for i in range(int(count))]
    return placed


def tensor_title(
    results: Results, name: str, values: dict[tuple[str, str, str], float], algorithm: str
) -> str:
    """The codec whose SQNR differs most from tensor to tensor."""
    ranges: dict[str, tuple[tuple[float, str], tuple[float, str]]] = {}
    for codec in results.codecs:
        mine = [(v, t) for (i, t, c), v in values.items() if i == name and c == codec and math.isfinite(v)]
        if len(mine) > 1:
            ranges[codec] = (min(mine), max(mine))
    if not ranges:
        return f"SQNR of {name} by codec ({algorithm})"
    widest = max(ranges, key=lambda codec: ranges[codec][1][0] - ranges[codec][0][0])
    (low, low_tensor), (high, high_tensor) = ranges[widest]
    return (
        f"One codec, {high - low:.1f} dB apart: {widest} has {decibels(low)} on {shortened(low_tensor, 40)}, "
        f"{decibels(high)} on {shortened(high_tensor, 40)}"
    )


# ---------------------------------------------------------------- the command

FIGURES: dict[str, Callable[[Results, Style], Page]] = {
    "error_by_codec.png": error_by_codec,
    "error_by_ranks.png": error_by_ranks,
    "pareto.png": pareto,
    "error_by_tensor.png": error_by_tensor,
}


def plot(folder: Path) -> list[Path]:
    """Draws all figures of a folder, then writes them; returns the files."""
    results = Results(read_study(folder / "results.csv"))
    style = Style.of(results)
    matplotlib.rcdefaults()  # whatever the user's matplotlibrc says: equal files give equal pictures
    matplotlib.rcParams.update({"text.parse_math": False, "axes.unicode_minus": True})
    drawn = {folder / name: draw(results, style).png() for name, draw in FIGURES.items()}
    for path, data in drawn.items():
        write_whole(path, data)
    return list(drawn)


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file beside its place and moves it there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Draws FOLDER/results.csv of `arlab study` as PNGs.")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where results.csv is and the PNGs go")
    try:
        for path in plot(parser.parse_args().folder):
            print(path)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
