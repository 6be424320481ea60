#!/usr/bin/env python3
"""Draws the results of a study: `plot_study.py FOLDER` reads FOLDER/results.csv, writes PNGs there.

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
import contextlib
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
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox, blended_transform_factory
from numpy.typing import NDArray

# Only the fonts that come with matplotlib, so that equal files give equal pictures everywhere: of
# a font that the system has too, matplotlib takes either one, by the order of its list of fonts.
FONTS = matplotlib.get_data_path()
fontManager.ttflist = [font for font in fontManager.ttflist if font.fname.startswith(FONTS)]

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
    """Reads results.csv; raises InputError when it is not there or not a table of results."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error

    comments: dict[str, str] = {}
    table: list[tuple[int, str]] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            comments.setdefault(key.strip(), value.strip())
        elif line.strip():
            table.append((number, line))
    if not table:
        raise InputError(f"{path}: there is no header line and there are no rows")

    header = cells_of(table[0][1], f"{path}: line {table[0][0]}")
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise InputError(f"{path}: line {table[0][0]}: missing column {', '.join(missing)}")
    if len(table) == 1:
        raise InputError(f"{path}: there are no rows below the header")

    rows: dict[tuple[object, ...], Row] = {}
    lines: dict[tuple[object, ...], int] = {}
    for number, line in table[1:]:
        row = parse_row(header, line, f"{path}: line {number}")
        point = (row.input, row.tensor, row.dtype, row.ranks, row.algorithm, row.codec)
        if point in rows:
            raise InputError(f"{path}: line {number} repeats the point of line {lines[point]}")
        rows[point], lines[point] = row, number

    said = [part.strip() for part in comments.get("provenance", "").split(";")]
    digest = hashlib.sha256(data).hexdigest()[:12]
    return Study(
        title=next((v for k, v in comments.items() if k.startswith("arlab.study/")), ""),
        exact_provenance="; ".join(p for p in said if p and not p.startswith(LATENCY)),
        simulated_provenance="; ".join(p for p in said if p.startswith(LATENCY)),
        file=f"{path.name}, {plural(len(rows), 'row')}, SHA-256 {digest}",
        rows=tuple(rows.values()),
    )


def cells_of(line: str, where: str) -> list[str]:
    """A line of CSV, cut at its commas."""
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise InputError(f"{where}: {error}") from error


def parse_row(header: list[str], line: str, where: str) -> Row:
    """One line of the table."""
    cells = cells_of(line, where)
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


def spread(values: Iterable[float]) -> Spread:
    """Median and range of the values that are defined."""
    values = list(values)
    known = [value for value in values if not math.isnan(value)] or [math.nan]
    undefined = sum(math.isnan(value) for value in values)
    return Spread(median(known), min(known), max(known), undefined)


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
        short = [f"…{n[len(first) :]}" if n.startswith(first) else n for n in rest]
        return " = ".join([first, *short])


class Results:
    """The rows of a study, indexed, and the order in which its names are drawn."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.rows = study.rows
        self.inputs = unique(row.input for row in self.rows)
        self.algorithms = unique(row.algorithm for row in self.rows)
        bits: dict[str, list[float]] = {}
        for row in self.rows:
            bits.setdefault(row.codec, []).append(row.wire_bits)
        # Wire bits per element by codec: the median, because rows differ by padding.
        self.wire_bits = {codec: median(values) for codec, values in bits.items()}
        self.codecs = sorted(bits, key=self.wire_bits.__getitem__)  # ties in the order of the file
        self.series = self._series()
        dtypes: dict[tuple[str, str], set[str]] = {}
        for row in self.rows:
            dtypes.setdefault((row.input, row.tensor), set()).add(row.dtype)
        self._cells: dict[tuple[str, int, str, str], dict[str, Row]] = {}
        for row in self.rows:
            key = (row.input, row.ranks, row.algorithm, row.codec)
            several = len(dtypes[(row.input, row.tensor)]) > 1  # then they are different tensors
            tensor = f"{row.tensor} {row.dtype}".strip() if several else row.tensor
            self._cells.setdefault(key, {})[tensor] = row
        # What the study is about: the first input with named tensors, at its largest rank count.
        self.main_input = next((row.input for row in self.rows if row.tensor), self.inputs[0])
        self.world_size = self.ranks(self.main_input)[-1]

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
        return sorted({count for name, count, _, _ in self._cells if input_name in (None, name)})

    def sqnr(self, input_name: str, ranks: int, algorithm: str, codec: str) -> dict[str, float]:
        """SQNR by tensor."""
        rows = self._cells.get((input_name, ranks, algorithm, codec), {})
        return {tensor: row.sqnr_db for tensor, row in rows.items()}

    def latency_us(self, input_name: str, ranks: int, algorithm: str, codec: str) -> float:
        """Simulated latency, NaN without one."""
        rows = self._cells.get((input_name, ranks, algorithm, codec), {})
        return median(row.latency_us for row in rows.values())

    def main_algorithm_at(self, input_name: str, ranks: int) -> str:
        """The algorithm for comparing codecs: two_shot, the common choice, or the first."""
        there = [a for i, count, a, _ in self._cells if i == input_name and count == ranks]
        return "two_shot" if "two_shot" in there else there[0]

    def dtypes(self) -> str:
        """The payload's dtypes, for captions."""
        return ", ".join(unique(row.dtype for row in self.rows if row.dtype))


# ---------------------------------------------------------------- colours and markers

INK = "#222222"
GREY = "#666666"
GRID = "#DDDDDD"
BAND = "#F5F5F5"
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
    "tree": "<",
    "all_to_all": "X",
}
# What algorithms do that are no all-reduces.
OTHER_COLLECTIVES = {
    "all_to_all": "all-to-all",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "broadcast": "broadcast",
}
MORE_MARKERS = (">", "p", "h", "*", "d", "8", "H")


def family(codec: str) -> str:
    """What a codec's name shares with its relatives: qr, int, int-sr, had-int, mxfp, ..."""
    if codec in UNCOMPRESSED:
        return "uncompressed"
    parts = codec.split("-")
    names = [re.sub(r"\d.*", "", parts[0])]
    if len(parts) > 2 or names == ["had"]:
        names += [re.sub(r"\d.*", "", p) for p in parts[1:] if not re.fullmatch(r"g\d+|e\dm\d", p)]
    return "-".join(name for name in names if name) or codec


def luminance(rgb: NDArray[np.float64]) -> float:
    """Relative luminance of an sRGB colour, as WCAG defines it."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


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
        by_family = len([c for c in codecs if c not in UNCOMPRESSED]) > len(PALETTE)
        groups = {codec: family(codec) if by_family else codec for codec in codecs}
        compressed = unique(groups[c] for c in codecs if c not in UNCOMPRESSED)
        colours = {
            name: PALETTE[i] if i < len(PALETTE) else GREY for i, name in enumerate(compressed)
        }
        plain = unique(groups[c] for c in codecs if c in UNCOMPRESSED)
        colours.update({name: (INK, GREY, "#999999")[i % 3] for i, name in enumerate(plain)})
        others = [name for name in results.algorithms if name not in MARKERS]
        markers = {name: MARKERS[name] for name in results.algorithms if name in MARKERS}
        markers.update({n: MORE_MARKERS[i % len(MORE_MARKERS)] for i, n in enumerate(others)})
        families = {g: colours[g] for g in unique(groups.values())} if by_family else {}
        return Style({codec: colours[groups[codec]] for codec in codecs}, markers, families)

    def ink(self, codec: str) -> str:
        """The codec's colour for text: darker where it would be hard to read on white."""
        rgb = np.array(matplotlib.colors.to_rgb(self.colours[codec]))
        while 1.05 / (0.05 + luminance(rgb)) < 4.5:
            rgb = rgb * 0.96
        return matplotlib.colors.to_hex((rgb[0], rgb[1], rgb[2]))

    def algorithm_handles(self, series: Iterable[Series]) -> list[Line2D]:
        """Legend entries for markers."""
        return [handle(GREY, self.markers[each.name], each.label) for each in series]

    def family_handles(self) -> list[Line2D]:
        """Legend entries for colours; none where codecs are labelled directly."""
        return [handle(colour, "s", name) for name, colour in self.families.items()]


def handle(colour: str, marker: str, label: str) -> Line2D:
    """A legend entry."""
    return Line2D([], [], color=colour, marker=marker, linestyle="", markersize=7, label=label)


def dot(
    axes: Axes, x: float, y: float, colour: str, marker: str, size: float, edged: bool = False
) -> None:
    """A marker with a white edge, or a dark one that stands out."""
    axes.plot(
        [x],
        [y],
        marker,
        color=colour,
        markersize=size,
        zorder=4 if edged else 3,
        markeredgecolor=INK if edged else "white",
        markeredgewidth=1.2 if edged else 0.6,
    )


# ---------------------------------------------------------------- the page

DPI = 150
WIDTH_IN = 1600 / DPI
HEIGHT_IN = 900 / DPI
MARGIN_IN = 0.2
BODY_PX = (WIDTH_IN - 2 * MARGIN_IN) * DPI
TITLE_PT, LABEL_PT, TICK_PT, CAPTION_PT, SMALL_PT = 14, 10, 9, 8, 7
NO_BREAK = "\u00a0"
LINE_SPACING = 1.05  # of names beside points
HALO = withStroke(linewidth=2, foreground="white")
STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # names hold dollars and underscores
    "text.color": INK,
    "axes.titlesize": LABEL_PT,
    "axes.titlelocation": "left",
    "axes.labelsize": LABEL_PT,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": TICK_PT,
    "ytick.labelsize": TICK_PT,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "legend.fontsize": LABEL_PT,
    "legend.frameon": False,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0,
    "legend.handletextpad": 0.2,
    "legend.columnspacing": 1.6,
}


def shortened(text: str, limit: int) -> str:
    """A long name with its middle left out."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def some(names: Sequence[str], limit: int = 8) -> str:
    """A list of names for a caption."""
    shown = [shortened(name, 40) for name in names[:limit]]
    return ", ".join(shown) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def listing(tensors: Sequence[str]) -> str:
    """Tensors for a caption, those of one kind together: `layerN.ffn_down, N = 0 to 5`."""
    parts = []
    for section in sections_of("", tensors):
        if len(section.tensors) == 1:
            parts.append(section.heading)
            continue
        numbers = [int(tick) for tick in section.ticks]
        whole = numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2
        shown = f"{numbers[0]} to {numbers[-1]}" if whole else some(section.ticks)
        parts.append(f"{section.heading}, N = {shown}".replace(" ", NO_BREAK))
    return "; ".join(parts[:4]) + (" …" if len(parts) > 4 else "")


def when(condition: bool, text: str) -> str:
    """The text, or nothing."""
    return text if condition else ""


def sentence(*parts: str) -> str:
    """The parts that are not empty, with commas."""
    return ", ".join(part for part in parts if part)


def plural(count: int, noun: str) -> str:
    """`1 tensor`, `6 tensors`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def signed(value: float) -> str:
    """A change, with its sign unless it rounds to nothing."""
    text = f"{value:+.1f}".replace("-", "−")
    return text[1:] if text in ("+0.0", "−0.0") else text


def decibels(value: float) -> str:
    """An SQNR for a sentence."""
    return "exact" if value == math.inf else f"{value:.1f}{NO_BREAK}dB".replace("-", "−")


Block = tuple[list[str], float, dict[str, Any]]  # lines, their size in points, how they look


class Page:
    """A figure with a title above, what the marks mean, and where the numbers come from below."""

    def __init__(
        self,
        study: Study,
        title: str,
        subtitle: str,
        notes: Sequence[str],
        legends: Sequence[Sequence[Line2D]] = (),
        body_in: float = 0,
        latency: bool = False,
    ) -> None:
        self.figure = Figure(dpi=DPI, figsize=(WIDTH_IN, HEIGHT_IN))
        self.canvas = FigureCanvasAgg(self.figure)
        self._measured: dict[tuple[str, float, str], tuple[float, float]] = {}
        caption = " ".join(note for note in notes if note)
        source = provenance(study, latency)
        head: list[Block] = [
            (self._balanced(title, TITLE_PT, "bold"), TITLE_PT, {"weight": "bold"}),
            (self.wrapped(subtitle, LABEL_PT, BODY_PX), LABEL_PT, {"color": GREY}),
        ]
        foot: list[Block] = [
            (self.wrapped(source, SMALL_PT, BODY_PX), SMALL_PT, {"color": GREY}),
            (self.wrapped(caption, CAPTION_PT, BODY_PX), CAPTION_PT, {}),
        ]
        made = [self._legend(handles) for handles in legends if handles]
        texts_in = sum(self._height_in(lines, size) for lines, size, _ in (*head, *foot))
        legends_in = sum(height for _, height in made)
        height_in = max(HEIGHT_IN, 1.5 * MARGIN_IN + texts_in + legends_in + body_in)
        self.figure.set_size_inches(WIDTH_IN, height_in)

        left, top_in, bottom_in = MARGIN_IN / WIDTH_IN, height_in - MARGIN_IN, MARGIN_IN / 2
        for lines, size, look in head:
            text = self.figure.text(left, top_in / height_in, "\n".join(lines), va="top", **look)
            text.set(size=size, linespacing=1.25)
            top_in -= self._height_in(lines, size)
        for legend, legend_in in made:
            legend.set_bbox_to_anchor((left, top_in / height_in), transform=self.figure.transFigure)
            top_in -= legend_in
        for lines, size, look in foot:
            text = self.figure.text(
                left, bottom_in / height_in, "\n".join(lines), va="bottom", **look
            )
            text.set(size=size, linespacing=1.25)
            bottom_in += self._height_in(lines, size)
        body = (left, bottom_in / height_in, 1 - 2 * left, (top_in - bottom_in) / height_in)
        self.figure.set_layout_engine("constrained", rect=body, w_pad=0.05, h_pad=0.05)

    @staticmethod
    def _height_in(lines: list[str], size: float) -> float:
        return len(lines) * size * 1.4 / 72 + 0.06 if lines else 0

    def _legend(self, handles: Sequence[Line2D]) -> tuple[Legend, float]:
        """A legend with as many columns as fit, and its height in inches."""
        columns = len(handles)
        while True:
            legend = self.figure.legend(handles=handles, loc="upper left", ncols=columns)
            box = legend.get_window_extent(self.canvas.get_renderer())
            if box.width <= BODY_PX or columns == 1:
                return legend, box.height / DPI + 0.1
            legend.remove()
            columns -= 1

    def text_px(self, text: str, size: float, weight: str = "normal") -> tuple[float, float]:
        """Width and height that a text takes."""
        key = (text, size, weight)
        if key not in self._measured:
            font = FontProperties(size=size, weight=weight)
            measure = self.canvas.get_renderer().get_text_width_height_descent
            widths = [measure(line, font, False)[0] for line in text.split("\n")]
            height = measure("lp", font, False)[1] * (1 + LINE_SPACING * (len(widths) - 1))
            self._measured[key] = (max(widths), height)
        return self._measured[key]

    def _balanced(self, text: str, size: float, weight: str) -> list[str]:
        """The text in as few lines as fit the page, about equally long."""
        lines = self.wrapped(text, size, BODY_PX, weight)
        for share in (0.6, 0.7, 0.8, 0.9):
            narrower = self.wrapped(text, size, share * BODY_PX, weight)
            if len(narrower) == len(lines):
                return narrower
        return lines

    def fitted(self, text: str, size: float, width: float) -> str:
        """The text, shortened until it fits a width in pixels."""
        limit = len(text)
        while limit > 3 and self.text_px(shortened(text, limit), size)[0] > width:
            limit -= 1
        return shortened(text, limit)

    def wrapped(self, text: str, size: float, limit: float, weight: str = "normal") -> list[str]:
        """The text in lines that fit a width in pixels."""
        space = self.text_px("a a", size, weight)[0] - self.text_px("aa", size, weight)[0]
        lines: list[str] = []
        used = 0.0
        for word in text.split(" "):  # not at no-break spaces
            width = self.text_px(word, size, weight)[0]
            if lines and used + space + width <= limit:
                lines[-1] += f" {word}"
                used += space + width
            else:
                lines.append(shortened(word, 120))
                used = width
        return lines

    def settle(self) -> None:
        """Fixes the layout, so that labels can be placed by pixel."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")
        # The solver of constrained layouts adds in the order of addresses in memory: the last bits
        # differ from run to run, and with them what is drawn on half a pixel. Hence whole pixels,
        # and an offset, since half pixels are frequent.
        size = np.array([self.figure.bbox.width, self.figure.bbox.height])
        for axes in self.figure.axes:
            corners = np.floor(axes.get_position().get_points() * size + 0.27) / size
            axes.set_position(Bbox(corners))

    def png(self) -> bytes:
        """The page as a PNG file, without a date or a version in it."""
        if isinstance(self.figure.get_layout_engine(), ConstrainedLayoutEngine):
            self.settle()
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


def exact(study: Study, noun: str) -> str:
    """`exact error` for `error`, where the file says that its figures are."""
    return f"exact {noun}" if "exact" in study.exact_provenance else noun


def collective_of(results: Results) -> str:
    """What the algorithms do."""
    named = {OTHER_COLLECTIVES.get(name, "all-reduce") for name in results.algorithms}
    return named.pop() if len(named) == 1 else "collective"


def subtitle_of(results: Results, *parts: str) -> str:
    """What the SQNR is, and for what."""
    target = "sum" if collective_of(results) in ("all-reduce", "reduce-scatter") else "result"
    text = sentence(
        exact(results.study, f"SQNR of the {collective_of(results)} against the exact {target}"),
        *parts,
        results.dtypes(),
    )
    return text[0].upper() + text[1:]


def joined_note(results: Results) -> str:
    """Explains the = in the names of algorithms."""
    joined = any(len(series.algorithms) > 1 for series in results.series)
    return "Algorithms joined by = have the same error in every row." if joined else ""


# ---------------------------------------------------------------- axes in dB


@dataclass(frozen=True)
class DecibelScale:
    """An SQNR axis. An infinite SQNR stands on a line of its own above the others.

    Uncompressed codecs are far above the rest. Where a wide range has no values, the axis leaves it
    out (`cut`), shows that it does, and `note` says so.
    """

    low: float
    high: float
    exact_at: float | None = None
    cut: tuple[float, float] | None = None
    empty: bool = False  # there is no finite value, so numbers on the axis would mean nothing

    @staticmethod
    def of(
        values: Iterable[float], span: float = 0, margin: float = 0.07, may_cut: bool = True
    ) -> DecibelScale:
        """Limits around the values, at least `span` apart, with a margin as a share of that."""
        known = [value for value in values if not math.isnan(value)]
        finite = sorted(value for value in known if value != math.inf) or [0.0]
        empty = all(value == math.inf for value in known)
        low, high = finite[0], finite[-1]
        grow = max(0.0, span - (high - low), 2 - (high - low)) / 2
        low, high = low - grow, high + grow
        gap = max(zip(finite, finite[1:]), key=lambda pair: pair[1] - pair[0], default=(low, low))
        shown = (high - low) - (gap[1] - gap[0])
        start, end = math.ceil(gap[0] + 0.06 * shown), math.floor(gap[1] - 0.06 * shown)
        wide = end - start > max(4, 0.15 * (high - low)) and shown > 0.1 * (high - low)
        cut = (start, end) if may_cut and wide else None
        shown = shown if cut else high - low
        pad = margin * shown
        if math.inf not in known:
            return DecibelScale(low - pad, high + 1.3 * pad, None, cut, empty)
        exact_at = high + 0.17 * shown
        return DecibelScale(low - pad, exact_at + pad, exact_at, cut, empty)

    @property
    def note(self) -> str:
        """What a caption must say about the axis."""
        return f"The SQNR axis leaves out {self.cut[0]} to {self.cut[1]} dB." if self.cut else ""

    def at(self, value: float) -> float:
        """Where a value is drawn."""
        return self.exact_at if value == math.inf and self.exact_at is not None else value

    def apply(self, axes: Axes, ticks: int = 8) -> None:
        """Sets scale, limits and ticks."""
        shown = self.high - self.low
        if self.cut:
            start, end = self.cut
            shown -= end - start
            left = 0.06 * shown  # of the cut
            where = ([start, end], [start, start + left])
            axes.set_yscale("function", functions=(bent(*where), bent(*reversed(where))))
        axes.set_ylim(self.low, self.high)
        steps = MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.low + shown)
        step = steps[1] - steps[0]
        places = [
            i * step for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ]
        if self.cut:
            away = 0.02 * shown
            places = [p for p in places if p < self.cut[0] - away or p > self.cut[1] + away]
        if self.exact_at is not None:
            places = [p for p in places if p < self.exact_at - 0.06 * shown]
        names = [f"{place:g}".replace("-", "−") for place in places]
        if self.empty:
            places, names = [], []
        if self.exact_at is not None:
            places, names = [*places, self.exact_at], [*names, "exact"]
        axes.yaxis.set_major_locator(FixedLocator(places))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_yticks(places, names)

    def mark(self, axes: Axes) -> None:
        """The line of the exact points, and the cut."""
        if self.exact_at is not None:
            axes.axhline(self.exact_at, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        if self.cut:
            axes.axhspan(*self.cut, facecolor="white", edgecolor="none", zorder=2.1)
            where = blended_transform_factory(axes.transAxes, axes.transData)
            for place in self.cut:
                slanted = Line2D([0], [place], transform=where, color=GREY, clip_on=False, zorder=6)
                slanted.set(marker=[(-1, -0.5), (1, 0.5)], markersize=11)
                axes.add_artist(slanted)


Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def bent(xs: Sequence[float], ys: Sequence[float]) -> Curve:
    """Slope 1 everywhere but between two x, where it goes from the first y to the second."""
    slope = (ys[1] - ys[0]) / (xs[1] - xs[0])

    def curve(x: NDArray[np.float64]) -> NDArray[np.float64]:
        inside = ys[0] + slope * (np.clip(x, xs[0], xs[1]) - xs[0])
        return inside + np.minimum(x - xs[0], 0) + np.maximum(x - xs[1], 0)

    return curve


# ---------------------------------------------------------------- heat maps


@dataclass(frozen=True)
class HeatPanel:
    """One table of a heat map: rows are codecs."""

    title: str
    columns: list[str]
    values: list[list[float]]


HEAT_ROW_IN = 0.168
MAX_COLUMN = 26  # characters


def heat_map(
    results: Results,
    title: str,
    subtitle: str,
    notes: Sequence[str],
    panels: Sequence[HeatPanel],
    change: bool = False,
) -> Page:
    """Panels side by side, one row per codec, with the numbers written where they fit."""
    columns = [column for panel in panels for column in panel.columns]
    longest = max((min(MAX_COLUMN, len(name)) for name in columns if len(name) > 3), default=0)
    body_in = len(results.codecs) * HEAT_ROW_IN + 0.5 + 0.055 * longest
    page = Page(results.study, title, subtitle, notes, body_in=body_in)
    widths = [max(2, len(panel.columns)) for panel in panels]
    grid = page.figure.subplots(1, len(panels), sharey=True, squeeze=False, width_ratios=widths)[0]
    norm, colours, beyond = heat_colours(results, panels, change)
    for axes, panel in zip(grid, panels):
        shown = np.ma.masked_invalid(np.array(panel.values, dtype=float))
        image = axes.imshow(shown, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
        axes.set_title("Title")
        names = [shortened(column, MAX_COLUMN) for column in panel.columns]
        if max(map(len, names)) > 3:
            axes.set_xticks(
                range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor"
            )
        else:
            step = math.ceil(len(columns) / 40)
            axes.set_xticks(range(0, len(names), step), names[::step])
            axes.set_xlabel("N", fontsize=TICK_PT)
        labels = [f"{shortened(c, 24)}  {results.wire_bits[c]:.4g} bit" for c in results.codecs]
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(labelsize=CAPTION_PT, length=0)
        axes.spines[:].set_visible(False)
    reach = "max" if beyond else "neither"
    bar = page.figure.colorbar(image, ax=list(grid), pad=0.01, aspect=40, extend=reach)
    bar.set_label(f"{'Change of SQNR' if change else 'SQNR'} (dB), higher is better")
    page.settle()
    for axes, panel in zip(grid, panels):  # titles again, now that the room for them is known
        axes.set_title(page.fitted(panel.title, LABEL_PT, axes.get_window_extent().width - 4))
        write_numbers(page, axes, panel, lambda v: colours(norm(v)), change)
    return page


def heat_colours(
    results: Results, panels: Sequence[HeatPanel], change: bool
) -> tuple[matplotlib.colors.Normalize, matplotlib.colors.Colormap, bool]:
    """Colours that tell compressed codecs apart; whether others lie above their range."""
    rows = [
        (c, row[i])
        for p in panels
        for c, row in zip(results.codecs, p.values)
        for i in range(len(row))
    ]
    every = [value for _, value in rows if math.isfinite(value)] or [0.0]
    if change:
        bound = max(0.1, max(abs(value) for value in every))
        return matplotlib.colors.Normalize(-bound, bound), matplotlib.colormaps["PuOr"], False
    compressed = [v for codec, v in rows if math.isfinite(v) and codec not in UNCOMPRESSED] or every
    norm = matplotlib.colors.Normalize(min(compressed), max(compressed), clip=True)
    return norm, matplotlib.colormaps["viridis"], max(every) > max(compressed)


def write_numbers(
    page: Page,
    axes: Axes,
    panel: HeatPanel,
    colour_at: Callable[[float], tuple[float, float, float, float]],
    change: bool,
) -> None:
    """Writes the values into the cells, unless a cell is too small to read them."""
    box = axes.get_window_extent()
    width, height = box.width / len(panel.columns), box.height / len(panel.values)
    texts = [[cell_text(value, change) for value in row] for row in panel.values]
    longest = max((text for row in texts for text in row), key=len)
    sizes = (8.5, 8, 7.5, 7, 6.5, 6)
    fits = [size for size in sizes if fits_cell(page, longest, size, width, height)]
    if not fits:
        return
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            value = panel.values[y][x]
            background = np.array(colour_at(value)[:3] if math.isfinite(value) else (1.0, 1.0, 1.0))
            ink = INK if luminance(background) > 0.22 else "white"
            axes.text(x, y, text, ha="center", va="center_baseline", fontsize=fits[0], color=ink)


def cell_text(value: float, change: bool) -> str:
    """A value of a heat map: `exact` for no error, a dash for no value."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "exact"
    return signed(value) if change else f"{value:.1f}".replace("-", "−")


def fits_cell(page: Page, text: str, size: float, width: float, height: float) -> bool:
    """Whether a text fits a cell with some air around it."""
    text_width, text_height = page.text_px(text, size)
    return text_width * 1.12 <= width and text_height * 1.1 <= height


# ---------------------------------------------------------------- error_by_codec

MAX_CODECS, MAX_DOTS = 10, 72
PANEL_IN = 1.75


def error_by_codec(results: Results, style: Style) -> Page:
    """SQNR by codec and algorithm at the largest world size, a panel per input."""
    ranks = results.world_size
    tensors = {name: results.tensors(name, ranks) for name in results.inputs}
    tensors = {name: there for name, there in tensors.items() if there}
    spreads = {
        (name, series.name, codec): spread(results.sqnr(name, ranks, series.name, codec).values())
        for name in tensors
        for series in results.series
        for codec in results.codecs
    }
    many = len(results.codecs) > MAX_CODECS or len(results.codecs) * len(results.series) > MAX_DOTS
    several = max(len(there) for there in tensors.values()) > 1
    main = tensors[results.main_input]
    undefined = sum(each.undefined for each in spreads.values())
    notes = [
        when(several and many, "Median over the tensors of the input."),
        when(
            several and not many,
            "Marker: median over the tensors of the input; bar: smallest to largest.",
        ),
        when(len(main) > 1, f"{results.main_input}: {listing(main)}."),
        joined_note(results),
        when(undefined > 0, f"{plural(undefined, 'result')} without an SQNR left out."),
    ]
    title = codec_title(results, spreads)
    subtitle = subtitle_of(results, plural(ranks, "rank"))
    headings = {
        name: sentence(shortened(name, 60), plural(len(there), "tensor") if there != [""] else "")
        for name, there in tensors.items()
    }
    if many:
        columns = [series.label for series in results.series]
        panels = [
            HeatPanel(
                headings[name],
                columns,
                [
                    [spreads[name, s.name, codec].median for s in results.series]
                    for codec in results.codecs
                ],
            )
            for name in tensors
        ]
        return heat_map(results, title, subtitle, notes, panels)

    scale = DecibelScale.of(v for s in spreads.values() for v in (s.median, s.low, s.high))
    legend = style.algorithm_handles(results.series)
    height_in = len(tensors) * PANEL_IN
    page = Page(results.study, title, subtitle, [*notes, scale.note], [legend], height_in)
    grid = page.figure.subplots(len(tensors), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, name in zip(grid, tensors):
        draw_dots(axes, results, style, name, spreads, scale)
        scale.apply(axes, ticks=9)
        scale.mark(axes)
        axes.set_title(headings[name])
        axes.set_ylabel("SQNR (dB)")
    labels = [f"{shortened(c, 16)}\n{results.wire_bits[c]:.4g} bit" for c in results.codecs]
    grid[-1].set_xticks(range(len(labels)), labels, fontsize=LABEL_PT)
    grid[-1].set_xlabel("Codec and its wire bits per element")
    return page


def draw_dots(
    axes: Axes,
    results: Results,
    style: Style,
    name: str,
    spreads: dict[tuple[str, str, str], Spread],
    scale: DecibelScale,
) -> None:
    """A dot and a range for every algorithm of every codec, codecs side by side."""
    axes.grid(axis="y")
    count = len(results.series)
    step = min(0.2, 0.76 / count)
    size = 7 if count * len(results.codecs) <= 48 else 6
    for x, codec in enumerate(results.codecs):
        colour = style.colours[codec]
        if x % 2 == 0:
            axes.axvspan(x - 0.5, x + 0.5, color=BAND, linewidth=0, zorder=0)
        for i, series in enumerate(results.series):
            here = spreads[name, series.name, codec]
            at = x + (i - (count - 1) / 2) * step
            if here.undefined and math.isnan(here.median):
                place = blended_transform_factory(axes.transData, axes.transAxes)
                axes.text(
                    at, 0.03, "n/a", transform=place, size=7, color=colour, ha="center", rotation=90
                )
            if here.high > here.low:
                ends = [scale.at(here.low), scale.at(here.high)]
                axes.plot(
                    [at, at], ends, color=colour, alpha=0.5, linewidth=3, solid_capstyle="butt"
                )
            dot(axes, at, scale.at(here.median), colour, style.markers[series.name], size)
    axes.set_xlim(-0.5, len(results.codecs) - 0.5)
    axes.tick_params(axis="x", length=0)


def codec_title(results: Results, spreads: dict[tuple[str, str, str], Spread]) -> str:
    """How much the choice of an algorithm moves the error, and how much the tensor does."""
    medians: dict[str, list[float]] = {}
    ranges: dict[str, float] = {}
    for (name, _, codec), here in spreads.items():
        if name == results.main_input and math.isfinite(here.median):
            medians.setdefault(codec, []).append(here.median)
            if here.high < math.inf:
                ranges[codec] = max(ranges.get(codec, 0.0), here.high - here.low)
    at = f"{shortened(results.main_input, 40)}, {plural(results.world_size, 'rank')}:"
    if not medians:
        return f"{at} no SQNR is finite"
    moves = {codec: max(values) - min(values) for codec, values in medians.items()}
    moved, torn = max(moves, key=moves.__getitem__), max(ranges, key=ranges.__getitem__, default="")
    by_tensor = f"the tensor by up to {decibels(ranges.get(torn, 0.0))} ({torn})"
    if moves[moved] >= 0.05:
        text = (
            f"{at} the algorithm moves the median SQNR by up to {decibels(moves[moved])} ({moved})"
        )
        return sentence(text, by_tensor if torn and ranges[torn] >= 0.05 else "")
    best = {codec: max(values) for codec, values in medians.items()}
    low, high = min(best, key=best.__getitem__), max(best, key=best.__getitem__)
    if low == high:
        return f"{at} {low} has a median SQNR of {decibels(best[low])}"
    ends = f"{decibels(best[low])} ({low}) to {decibels(best[high])} ({high})"
    return f"{at} the median SQNR goes from {ends}"


# ---------------------------------------------------------------- error_by_ranks

MAX_RANK_PANELS = 9


@dataclass(frozen=True)
class RankCurves:
    """SQNR against ranks for one input, over tensors that exist at every rank count."""

    ranks: list[int]
    tensors: list[str]
    left_out: list[str]
    curves: dict[tuple[str, str], dict[int, float]]  # by (algorithm, codec)
    dropped: int  # curves that had to leave out a tensor without an SQNR somewhere

    def values(self, codec: str) -> list[float]:
        """All points of a codec."""
        return [v for (_, c), curve in self.curves.items() if c == codec for v in curve.values()]

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
                t
                for t in common
                if all(not math.isnan(v.get(t, math.nan)) for v in points.values())
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
    dropped = sum(mine.dropped for mine in curves.values())
    notes = [curves_note(name, mine) for name, mine in curves.items()]
    if dropped:
        notes.append(f"{plural(dropped, 'curve')} without tensors that lack an SQNR somewhere.")
    notes.append(joined_note(results))
    if style.families or len(results.codecs) > MAX_RANK_PANELS:
        change = any(len(mine.ranks) > 1 for mine in curves.values())
        panels = [rank_panel(results, name, mine, change) for name, mine in curves.items()]
        return heat_map(results, title, subtitle_of(results), notes, panels, change)

    if len(results.codecs) * len(results.inputs) > 1:
        same = "All panels span the same number of dB, each from its own level, so slopes compare."
        notes.insert(0, same)
    legend = style.algorithm_handles(results.series)
    height_in = len(curves) * PANEL_IN
    page = Page(results.study, title, subtitle_of(results), notes, [legend], height_in)
    grid = page.figure.subplots(len(curves), len(results.codecs), squeeze=False, sharex=True)
    ranks = results.ranks()
    ticks = ranks[:: math.ceil(len(ranks) / 5)]
    values = {
        (name, codec): mine.values(codec)
        for name, mine in curves.items()
        for codec in results.codecs
    }
    finite = [[value for value in each if math.isfinite(value)] for each in values.values()]
    span = max((max(each) - min(each) for each in finite if each), default=1.0)
    for (name, codec), axes in zip(values, grid.flat):
        scale = DecibelScale.of(values[name, codec], span, may_cut=False)
        draw_curves(axes, results, style, curves[name], codec, scale)
        scale.apply(axes, ticks=6)
        scale.mark(axes)
        axes.set_xscale("log", base=2)
        axes.set_xlim(ranks[0] / 2**0.35, ranks[-1] * 2**0.35)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(ticks, [str(count) for count in ticks])
    for axes, codec in zip(grid[0], results.codecs):
        heading = f"{shortened(codec, 16)}\n{results.wire_bits[codec]:.4g} bit"
        axes.set_title(heading, color=style.ink(codec), fontweight="bold", loc="center")
    for axes, name in zip(grid[:, 0], curves):
        axes.set_ylabel(f"{shortened(name, 28)}\nSQNR (dB)")
    for axes in grid[-1]:
        wide = len(results.codecs) < 8 and len(ranks) > 1
        axes.set_xlabel("ranks (log scale)" if wide else "ranks", fontsize=TICK_PT)
    return page


def curves_note(name: str, mine: RankCurves) -> str:
    """Which tensors the curves of an input are about."""
    if not mine.tensors:
        return f"{name}: no tensor exists at every rank count, so nothing can be compared."
    if mine.left_out:
        kept = f"{plural(len(mine.tensors), 'tensor')} that exist at every rank count"
        left_out = f"left out: {listing(mine.left_out)}"
        return f"{name}: median over the {kept} ({listing(mine.tensors)}); {left_out}."
    if len(mine.tensors) > 1:
        return f"{name}: median over the same {plural(len(mine.tensors), 'tensor')} everywhere."
    return ""


def draw_curves(
    axes: Axes, results: Results, style: Style, mine: RankCurves, codec: str, scale: DecibelScale
) -> None:
    """The lines of one panel."""
    axes.grid()
    for series in results.series:
        curve = mine.curves.get((series.name, codec), {})
        counts = sorted(curve)
        axes.plot(
            counts,
            [scale.at(curve[count]) for count in counts],
            color=style.colours[codec],
            marker=style.markers[series.name],
            markersize=6.5 if len(counts) <= 4 else 5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            linewidth=1.3,
        )
    if not mine.values(codec):
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, color=GREY, ha="center")


def rank_panel(results: Results, name: str, mine: RankCurves, change: bool) -> HeatPanel:
    """The change from the fewest ranks to the most; the SQNR itself where there is one count."""
    only = mine.ranks[0]

    def value(algorithm: str, codec: str) -> float:
        if change:
            return mine.change(algorithm, codec)
        return mine.curves.get((algorithm, codec), {}).get(only, math.nan)

    return HeatPanel(
        f"{name}, {only} to {mine.ranks[-1]} ranks" if change else name,
        [series.label for series in results.series],
        [[value(series.name, codec) for series in results.series] for codec in results.codecs],
    )


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
    path = f"{shortened(results.main_input, 40)}, from {mine.ranks[0]} to {mine.ranks[-1]} ranks:"
    if not changes:
        return f"{path} nothing to compare"
    over = (
        f", median over {plural(len(results.codecs), 'codec')}" if len(results.codecs) > 1 else ""
    )
    worst, best = min(changes, key=changes.__getitem__), max(changes, key=changes.__getitem__)
    low, high = (f"{signed(changes[name])}{NO_BREAK}dB" for name in (worst, best))
    if low == high:
        which = worst if len(changes) == 1 else "every algorithm"
        return f"{path} SQNR changes by {low} with {which}{over}"
    return f"{path} SQNR changes by {low} ({worst}) to {high} ({best}){over}"


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


def choices_of(
    results: Results, algorithms: Sequence[str], cost: Callable[[str, str], float]
) -> list[Choice]:
    """What the main input offers at the largest world size, where it has both cost and SQNR."""
    found = []
    for codec in results.codecs:
        for algorithm in algorithms:
            tensors = results.sqnr(results.main_input, results.world_size, algorithm, codec)
            choice = Choice(codec, algorithm, cost(codec, algorithm), median(tensors.values()))
            if not math.isnan(choice.cost) and not math.isnan(choice.sqnr_db):
                found.append(choice)
    return found


def pareto(results: Results, style: Style) -> Page:
    """SQNR against wire bits and, where the study simulated, against latency."""
    name, ranks = results.main_input, results.world_size
    algorithm = results.main_algorithm_at(name, ranks)
    by_bits = choices_of(results, [algorithm], lambda codec, _: results.wire_bits[codec])
    by_latency = choices_of(
        results,
        results.algorithms,
        lambda codec, other: results.latency_us(name, ranks, other, codec),
    )
    simulated = bool(by_latency)
    tensors = results.tensors(name, ranks)
    several = len({choice.algorithm for choice in by_latency}) > 1
    scale = DecibelScale.of((choice.sqnr_db for choice in [*by_bits, *by_latency]), margin=0.13)
    notes = [
        when(
            len(tensors) > 1,
            f"SQNR: median over {plural(len(tensors), 'tensor')} ({listing(tensors)}).",
        ),
        "Grey line: Pareto front; markers on it have a dark edge.",
        when(
            len(by_bits) > 1 and not style.families,
            "A marker that would hide another is moved right.",
        ),
        when(
            several,
            "Wire bits are those of one transfer; how often an algorithm transfers and encodes "
            "shows in its latency.",
        ),
        scale.note,
    ]
    shown = {algorithm, *(choice.algorithm for choice in by_latency)}
    page = Page(
        results.study,
        pareto_title(by_bits, by_latency, ranks, algorithm),
        sentence(
            f"{name}, {collective_of(results)} over {plural(ranks, 'rank')}", results.dtypes()
        ),
        notes,
        [
            style.algorithm_handles(
                Series((name,)) for name in results.algorithms if name in shown
            ),
            style.family_handles(),
        ],
        body_in=6.0 if style.families else 0,
        latency=simulated,
    )
    left, *right = page.figure.subplots(1, 2 if simulated else 1, sharey=True, squeeze=False)[0]
    error = exact(results.study, "error")
    frame_choices(left, by_bits, scale, bits_ticks(by_bits))
    left.set_title(f"{algorithm}: {error}, {exact(results.study, 'wire bits')}")
    left.set_xlabel("Wire bits per element (log scale), fewer is better")
    left.set_ylabel("Median SQNR (dB), higher is better")
    for axes in right:
        frame_choices(axes, by_latency, scale, ONE_TWO_FIVE)
        which = "all algorithms" if several else by_latency[0].algorithm
        heading = f"{which}: {error}, simulated latency"
        full = heading + payload(results.study)
        fits = page.text_px(full, LABEL_PT)[0] < BODY_PX / 2 - 50
        axes.set_title(full if fits else heading)
        axes.set_xlabel("Simulated latency (µs, log scale), lower is better")
    scale.apply(left)
    for axes in (left, *right):
        scale.mark(axes)
    page.settle()
    draw_choices(page, left, style, by_bits, scale, {choice: choice.codec for choice in by_bits})
    for axes in right:
        draw_choices(
            page, axes, style, by_latency, scale, latency_names(results, style, by_latency)
        )
    return page


def latency_names(results: Results, style: Style, choices: Sequence[Choice]) -> dict[Choice, str]:
    """Names for the front and, where codecs have their own colours, for the fastest of each."""
    names = {choice: f"{choice.codec}\n{choice.algorithm}" for choice in front(choices)}
    if len(names) > 5 or len({choice.algorithm for choice in choices}) == 1:
        names = {choice: choice.codec for choice in names}  # the markers tell the algorithm
    for codec in [] if style.families else results.codecs:
        mine = [choice for choice in choices if choice.codec == codec]
        if mine:
            names.setdefault(min(mine, key=lambda choice: choice.cost), codec)
    return names


ONE_TWO_FIVE = tuple(m * 10.0**e for e in range(-3, 10) for m in (1, 2, 5))
FINER = tuple(m * 10.0**e for e in range(-3, 10) for m in (1, 1.5, 2, 3, 4, 5, 7))


def bits_ticks(choices: Sequence[Choice]) -> Sequence[float]:
    """The wire bits that occur, where they are few and far enough apart; else round numbers."""
    bits = sorted({choice.cost for choice in choices})
    if len(bits) <= 9 and all(high / low > 1.07 for low, high in zip(bits, bits[1:])):
        return bits
    return (0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64)


def payload(study: Study) -> str:
    """The payload that was simulated, as ` of 64 MiB per rank`, where the file says it."""
    found = re.search(r"([1-9]\d*) bytes per rank", study.simulated_provenance)
    if found is None:
        return ""
    count = int(found[1])
    units = ((2**30, "GiB"), (2**20, "MiB"), (10**9, "GB"), (10**6, "MB"), (2**10, "KiB"), (1, "B"))
    size, unit = next((size, unit) for size, unit in units if count % size == 0)
    return f" of {count // size} {unit} per rank"


TITLE_SQNR_DB = 30.0


def pareto_title(
    by_bits: Sequence[Choice], by_latency: Sequence[Choice], ranks: int, algorithm: str
) -> str:
    """The fastest choice with a decent SQNR and what it competes with, or the size of the front."""
    if by_latency:
        decent = [choice for choice in by_latency if choice.sqnr_db >= TITLE_SQNR_DB]
        fastest = min(decent or by_latency, key=lambda c: (c.cost, -c.sqnr_db))
        plain = fastest.codec in UNCOMPRESSED
        others = [c.cost for c in decent or by_latency if (c.codec in UNCOMPRESSED) != plain]
        condition = f" with at least {TITLE_SQNR_DB:g}{NO_BREAK}dB" if decent else ""
        name = f"{fastest.codec} with {fastest.algorithm}".replace(" ", NO_BREAK)
        text = (
            f"Simulated fastest{condition} at {plural(ranks, 'rank')}: {name}, "
            f"{fastest.cost:.4g}{NO_BREAK}µs, {decibels(fastest.sqnr_db)}"
        )
        if others:
            kind = "compressed" if plain else "uncompressed"
            text += f"; best {kind} {min(others):.4g}{NO_BREAK}µs"
        return text
    if not by_bits:
        return f"No SQNR to draw at {plural(ranks, 'rank')}"
    if len(by_bits) == 1:
        only = by_bits[0]
        value = f"{decibels(only.sqnr_db)} at {only.cost:.4g} wire bits per element"
        return f"{only.codec}, {only.algorithm}, {plural(ranks, 'rank')}: {value}"
    return (
        f"{len(front(by_bits))} of {len(by_bits)} codecs on the Pareto front of SQNR and wire bits "
        f"({algorithm}, {plural(ranks, 'rank')})"
    )


def frame_choices(
    axes: Axes, choices: Sequence[Choice], scale: DecibelScale, ticks: Sequence[float]
) -> None:
    """A log axis for the costs, and the front as a staircase."""
    axes.grid()
    if not choices:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no SQNR", transform=axes.transAxes, color=GREY, ha="center")
        return
    costs = [choice.cost for choice in choices]
    ratio = max(1.5, max(costs) / min(costs))
    low, high = min(costs) / ratio**0.15, max(costs) * ratio**0.12
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) < 4 and set(inside) != set(costs):
        inside = [tick for tick in FINER if low <= tick <= high] or sorted(set(costs))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(inside, [f"{tick:.4g}" for tick in inside])
    on_front = front(choices)
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


Point = tuple[float, float]


class Box(NamedTuple):
    """A rectangle in pixels."""

    x0: float
    y0: float
    x1: float
    y1: float


MARKER_PX = 4 * DPI / 72


def side_by_side(
    points: dict[Choice, Point], stay: Sequence[Choice], near: float, step: float
) -> dict[Choice, Point]:
    """The points, those that would hide another moved right, the ones of `stay` never."""
    moved: dict[Choice, Point] = {choice: points[choice] for choice in stay}
    for choice, (x, y) in points.items():
        if choice not in moved:
            hidden = [points[c] for c in moved if math.dist(points[c], (x, y)) < near]
            moved[choice] = (x + step * len(hidden), y)
    return moved


def draw_choices(
    page: Page,
    axes: Axes,
    style: Style,
    choices: Sequence[Choice],
    scale: DecibelScale,
    names: dict[Choice, str],
) -> None:
    """The markers, and names beside them where there is room, the front first."""
    on_front = front(choices)
    true = [axes.transData.transform((c.cost, scale.at(c.sqnr_db))) for c in choices]
    points = {c: (float(x), float(y)) for c, (x, y) in zip(choices, true)}
    frame = Box(*axes.get_window_extent().extents)
    corners = stairs([points[c] for c in on_front], frame)
    if not style.families:
        points = side_by_side(points, on_front, near=12, step=15)
    inverse = axes.transData.inverted()
    small = 5 if style.families else 6.5
    for choice, point in points.items():
        best = choice in on_front
        colour, marker = style.colours[choice.codec], style.markers[choice.algorithm]
        x, y = inverse.transform(point)
        dot(axes, x, y, colour, marker, 8 if best else small, best)

    size = TICK_PT if len(names) <= 20 else 7.5
    weights = {choice: "bold" if choice in on_front else "normal" for choice in names}
    extents = {choice: page.text_px(text, size, weights[choice]) for choice, text in names.items()}
    led = [choice for choice in on_front if choice in names]
    boxes = place_names(points, led, extents, corners, frame)
    for choice, box in boxes.items():
        ink = style.ink(choice.codec)
        near = nearest(box, points[choice])
        if math.dist(near, points[choice]) > 2 * MARKER_PX:
            ends = inverse.transform([points[choice], near])
            axes.plot(ends[:, 0], ends[:, 1], color=ink, linewidth=0.7, zorder=2.5)
        x, y = inverse.transform(((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2))
        text = axes.text(
            x, y, names[choice], size=size, weight=weights[choice], color=ink, zorder=5
        )
        text.set(ha="center", va="center", linespacing=LINE_SPACING, path_effects=[HALO])
    if len(boxes) < len(names):
        note = f"{len(names) - len(boxes)} without\na name"
        axes.annotate(note, (6, 6), xycoords="axes pixels", size=SMALL_PT, color=GREY)


def place_names(
    points: dict[Choice, Point],
    on_front: Sequence[Choice],
    extents: dict[Choice, tuple[float, float]],
    corners: Sequence[Box],
    frame: Box,
) -> dict[Choice, Box]:
    """Where the names go; a name that finds no room is missing."""
    half = MARKER_PX
    taken = [Box(x - half, y - half, x + half, y + half) for x, y in points.values()]
    led = front_places([points[c] for c in on_front], [extents[c] for c in on_front], frame)
    boxes = {choice: box for choice, box in zip(on_front, led) if box is not None}
    taken += boxes.values()
    for choice, extent in extents.items():
        if choice in boxes:
            continue
        box = free_place(points[choice], extent, taken, corners, frame)
        if box is not None:
            boxes[choice] = box
            taken += [
                Box(box.x0 - 4, box.y0, box.x1 + 4, box.y1),
                *along(points[choice], nearest(box, points[choice])),
            ]
    return boxes


def front_places(
    points: Sequence[Point], extents: Sequence[tuple[float, float]], frame: Box
) -> list[Box | None]:
    """Boxes for the names of a front, which rises to the right: each left of its point or above.

    Left of a front and above it there are no points. A name goes up until it is clear of the point
    and of the name before it, so that the order stays and no leader crosses another.
    """
    boxes: list[Box | None] = []
    for i, ((x, y), (width, height)) in enumerate(zip(points, extents)):
        right = max(x - 13, frame.x0 + 4 + width)  # not beyond the left end of the axes
        before = points[:i] if right == x - 13 else points
        low = y - height / 2
        for other_x, other_y in before:
            if right - width - 4 < other_x + 10 and other_x - 10 < right:
                low = max(low, other_y + 12)
        for box in boxes:
            if box is not None and right - width - 4 < box.x1:
                low = max(low, box.y1 + 7)
        fits = low + height <= frame.y1 and right <= frame.x1
        boxes.append(Box(right - width, low, right, low + height) if fits else None)
    return boxes


def stairs(points: Sequence[Point], frame: Box) -> list[Box]:
    """The segments of the front as thin boxes, for names to keep off."""
    boxes: list[Box] = []
    for i, (x, y) in enumerate(points):
        below = points[i - 1][1] if i else frame.y0
        right = points[i + 1][0] if i + 1 < len(points) else frame.x1
        boxes += [Box(x - 2, below, x + 2, y), Box(x, y - 2, right, y + 2)]
    return boxes


def along(start: Point, end: Point) -> list[Box]:
    """Small boxes along a line."""
    count = max(2, int(math.dist(start, end) / 6))
    steps = [i / count for i in range(1, count + 1)]
    at = [(start[0] + t * (end[0] - start[0]), start[1] + t * (end[1] - start[1])) for t in steps]
    return [Box(x - 1, y - 1, x + 1, y + 1) for x, y in at]


def nearest(box: Box, point: Point) -> Point:
    """The point of a box that is nearest to another point."""
    return min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1)


def free_place(
    point: Point,
    extent: tuple[float, float],
    taken: Sequence[Box],
    lines: Sequence[Box],
    frame: Box,
) -> Box | None:
    """The nearest box for a name that touches nothing, tried at growing distances."""
    width, height = extent
    sides = [(1.0, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)]
    sides += [(0.5, 1), (-0.5, 1), (0.5, -1), (-0.5, -1)]
    near, far = (13, 18, 25, 34, 45, 58, 72, 88), range(100, 400, 12)
    tries: list[tuple[int, float, float]] = [(away, *side) for away in near for side in sides]
    tries += [(away, 1, up) for away in far for up in (0, -0.25, -0.5, -0.75, -1, 0.25)]
    for away, right, up in tries:
        gap = away if 0 in (right, up) else away * 0.75
        x = point[0] + right * (gap * (abs(right) == 1) + width / 2)
        y = point[1] + up * (gap + height / 2)
        box = Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        if box.x0 < frame.x0 + 3 or box.x1 > frame.x1 or box.y0 < frame.y0 + 3 or box.y1 > frame.y1:
            continue
        if any(overlap(box, other) for other in (*taken, *lines)):
            continue
        leader = along(point, nearest(box, point))[3:]
        if away > 18 and any(overlap(a, b, air=0) for a in leader for b in taken):
            continue
        return box
    return None


def overlap(one: Box, other: Box, air: float = 2) -> bool:
    """Whether two boxes come closer than `air` pixels."""
    across = one.x0 - air < other.x1 and other.x0 - air < one.x1
    return bool(across and one.y0 - air < other.y1 and other.y0 - air < one.y1)


# ---------------------------------------------------------------- error_by_tensor


Values = dict[tuple[str, str, str], float]  # SQNR by (input, tensor, codec)


@dataclass(frozen=True)
class Section:
    """Tensors that stand together on the axis: the layers of one kind, or a single tensor."""

    input: str
    heading: str
    tensors: list[str]
    ticks: list[str]


def sections_of(name: str, tensors: Sequence[str]) -> list[Section]:
    """Cuts the tensors of an input into kinds: their names apart from the first number."""
    kinds: dict[str, list[tuple[int, str]]] = {}
    for tensor in tensors:
        found = re.search(r"\d+", tensor)
        if found is None:
            kinds.setdefault(tensor, []).append((0, tensor))
        else:
            kind = f"{tensor[: found.start()]}N{tensor[found.end() :]}"
            kinds.setdefault(kind, []).append((int(found[0]), tensor))
    sections: list[Section] = []
    for kind, numbered in kinds.items():
        if len(numbered) == 1:
            tensor = numbered[0][1]
            sections.append(Section(name, tensor or name, [tensor], [""]))
        else:
            numbered.sort()
            sections.append(
                Section(name, kind, [t for _, t in numbered], [str(n) for n, _ in numbered])
            )
    return sections


def error_by_tensor(results: Results, style: Style) -> Page:
    """SQNR of every tensor under every codec, at the rank count that has the most tensors."""
    name = results.main_input
    ranks = max(results.ranks(name), key=lambda count: (len(results.tensors(name, count)), count))
    algorithm = results.main_algorithm_at(name, ranks)
    order = [name, *(other for other in results.inputs if other != name)]
    sections = [s for i in order for s in sections_of(i, results.tensors(i, ranks))]
    values: Values = {}
    for section in sections:
        for codec in results.codecs:
            here = results.sqnr(section.input, ranks, algorithm, codec)
            values.update(
                {(section.input, t, codec): here.get(t, math.nan) for t in section.tensors}
            )
    lost = sum(math.isnan(value) for value in values.values())
    reason = ", the rank count with the most tensors" if len(results.ranks(name)) > 1 else ""
    notes = [
        f"{plural(ranks, 'rank')}{reason}.",
        "SQNR weighs by energy: in a tensor that one huge element dominates it says how well that "
        "element is encoded.",
        when(lost > 0, f"{plural(lost, 'point')} without an SQNR left out."),
    ]
    title = tensor_title(results, name, values, algorithm)
    subtitle = subtitle_of(results, "tensor by tensor", algorithm, plural(ranks, "rank"))
    if style.families:
        return heat_map(results, title, subtitle, notes, tensor_panels(results, sections, values))

    scale = DecibelScale.of(values.values())
    page = Page(results.study, title, subtitle, [*notes, scale.note])
    axes = page.figure.subplots()
    scale.apply(axes, ticks=9)
    scale.mark(axes)
    axes.set_ylabel("SQNR (dB), higher is better")
    last = draw_sections(
        page, axes, results, style, sections, values, scale, style.markers[algorithm]
    )
    page.settle()
    label_ends(page, axes, style, last)
    return page


def tensor_panels(results: Results, sections: Sequence[Section], values: Values) -> list[HeatPanel]:
    """A panel for every kind of tensor, and one for all that stand alone."""
    kinds = [section for section in sections if len(section.tensors) > 1]
    alone = [section for section in sections if len(section.tensors) == 1]
    named = [(k.heading, k.ticks, [(k.input, tensor) for tensor in k.tensors]) for k in kinds]
    if alone:
        named.append(("", [s.heading for s in alone], [(s.input, s.tensors[0]) for s in alone]))
    return [
        HeatPanel(
            title,
            columns,
            [[values[(*place, codec)] for place in places] for codec in results.codecs],
        )
        for title, columns, places in named
    ]


def draw_sections(
    page: Page,
    axes: Axes,
    results: Results,
    style: Style,
    sections: Sequence[Section],
    values: Values,
    scale: DecibelScale,
    marker: str,
) -> dict[str, Point]:
    """Lines through the layers of each kind; returns the last point of every codec."""
    axes.grid(axis="y")
    start = 0.0
    ticks: list[tuple[float, str]] = []
    last: dict[str, Point] = {}
    total = sum(len(section.tensors) for section in sections)
    size = 7 if total <= 30 else 4
    across = total + 0.6 * len(sections)
    for number, section in enumerate(sections):
        places = [start + i + 0.6 * number for i in range(len(section.tensors))]
        start += len(places)
        ticks += [(at, tick) for at, tick in zip(places, section.ticks) if tick]
        for codec in results.codecs:
            heights = [scale.at(values[section.input, tensor, codec]) for tensor in section.tensors]
            line = axes.plot(
                places, heights, marker=marker, markersize=size, linewidth=1.6, zorder=3
            )[0]
            line.set(color=style.colours[codec], markeredgecolor="white", markeredgewidth=0.7)
            known = [(x, y) for x, y in zip(places, heights) if not math.isnan(y)]
            if known:
                last[codec] = known[-1]
        if number % 2 == 0:
            axes.axvspan(places[0] - 0.8, places[-1] + 0.8, color=BAND, linewidth=0, zorder=0)
        room = (len(places) + 0.6) / across * 1250
        where = ((places[0] + places[-1]) / 2, 1.01)
        heading = section_heading(page, section, room)
        axes.annotate(
            heading,
            where,
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            size=LABEL_PT,
        )
    step = max(1, math.ceil(len(ticks) / 40))
    axes.set_xticks([at for at, _ in ticks[::step]], [tick for _, tick in ticks[::step]])
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("N in the tensor's name" if ticks else "")
    axes.set_xlim(-0.8, across - 0.6 - 1 + 0.8)
    return last


def section_heading(page: Page, section: Section, room: float) -> str:
    """What stands above a section, with the input's name where that fits, in up to three lines."""
    full = f"{section.input}: {section.heading}"
    fits = section.heading != section.input and page.text_px(full, LABEL_PT)[0] <= room
    lines = page.wrapped(full if fits else section.heading, LABEL_PT, room)
    return "\n".join(page.fitted(line, LABEL_PT, room) for line in lines[:3])


def label_ends(page: Page, axes: Axes, style: Style, last: dict[str, Point]) -> None:
    """The codecs' names right of the axes, at the height of their last point, moved apart."""
    box = axes.get_position()
    widest = max((page.text_px(shortened(c, 20), LABEL_PT, "bold")[0] for c in last), default=0)
    axes.set_position((box.x0, box.y0, box.width - (widest + 45) / (WIDTH_IN * DPI), box.height))
    frame = axes.get_window_extent()
    order = sorted(last, key=lambda codec: last[codec][1])
    wanted = [float(axes.transData.transform(last[codec])[1]) for codec in order]
    heights = apart(wanted, 1.25 * LABEL_PT * DPI / 72, frame.y0, frame.y1)
    for codec, wish, height in zip(order, wanted, heights):
        bends = [(frame.x1 + 3, wish), (frame.x1 + 18, height), (frame.x1 + 26, height)]
        xs, ys = axes.transAxes.inverted().transform([*bends, (frame.x1 + 32, height)]).T
        line = axes.plot(xs[:3], ys[:3], transform=axes.transAxes, clip_on=False)[0]
        line.set(color=style.colours[codec], linewidth=0.9)
        text = axes.text(xs[3], ys[3], shortened(codec, 20), transform=axes.transAxes, va="center")
        text.set(size=LABEL_PT, weight="bold", color=style.ink(codec))


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Ascending heights as near as possible to the wanted ones, at least `gap` from each other."""
    groups: list[tuple[float, int]] = []  # the height of the first of a group, and its size
    for height in wanted:
        first, size = height, 1
        while groups and groups[-1][0] + gap * groups[-1][1] > first:
            before, count = groups.pop()
            first = (before * count + (first - gap * count) * size) / (count + size)
            size += count
        groups.append((first, size))
    placed = [first + gap * i for first, size in groups for i in range(size)]
    for i, height in enumerate(placed):
        placed[i] = max(height, low + gap * i)
    for i, height in enumerate(placed):
        placed[i] = min(height, high - gap * (len(placed) - 1 - i))
    return placed


def tensor_title(results: Results, name: str, values: Values, algorithm: str) -> str:
    """The codec whose SQNR differs most from tensor to tensor."""
    mine: dict[str, list[tuple[float, str]]] = {}
    for (input_name, tensor, codec), value in values.items():
        if input_name == name and math.isfinite(value):
            mine.setdefault(codec, []).append((value, tensor))
    ranges = {codec: (min(each), max(each)) for codec, each in mine.items() if len(each) > 1}
    if not ranges:
        return f"SQNR of {name} by codec ({algorithm})"
    widest = max(ranges, key=lambda codec: ranges[codec][1][0] - ranges[codec][0][0])
    (low, low_tensor), (high, high_tensor) = ranges[widest]
    return (
        f"One codec, {decibels(high - low)} apart: {widest} has {decibels(low)} on "
        f"{shortened(low_tensor, 40)}, {decibels(high)} on {shortened(high_tensor, 40)}"
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
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # equal files give equal pictures, whatever the user's matplotlibrc
        matplotlib.rcParams.update(STYLE)
        drawn = {folder / name: draw(results, style).png() for name, draw in FIGURES.items()}
    for path, data in drawn.items():
        write_whole(path, data)
    return list(drawn)


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file beside its place and moves it there; nothing else stays, even when interrupted."""
    beside = path.with_name(f".arlab-{os.getpid()}.part")  # the name of `path` may be as long as can be
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Draws FOLDER/results.csv of `arlab study` as PNGs."
    )
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, help="where results.csv is and the PNGs go"
    )
    try:
        for path in plot(parser.parse_args().folder):
            print(path)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
