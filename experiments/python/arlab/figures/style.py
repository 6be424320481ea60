"""How all figures look: one palette, one page with title, notes and provenance, axes in dB, heat maps, labels, files.

The colours of PALETTE can be told apart with any colour vision, and the first six in grey too, by their lightness; what
has a colour has a marker or a line style of its own as well. HIGHLIGHT is strong and nothing else has it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from arlab import _files
from arlab.figures.tables import InputError

INK, GREY, PALE, GRID, BAND = "#222222", "#666666", "#BBBBBB", "#DDDDDD", "#F4F4F4"
HIGHLIGHT = "#D55E00"
BLUE, ORANGE, WINE, GREEN = "#0072B2", "#E69F00", "#882255", "#009E73"
INDIGO, SKY, PINK = "#332288", "#88CCEE", "#CC79A7"
PALETTE = (BLUE, ORANGE, WINE, SKY, INDIGO, GREEN, PINK)
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8", "H")
LINES = ("-", (0, (5, 1)), (0, (1, 0.8)), (0, (5, 1, 1, 1)))
# An algorithm has the same colour and marker in all figures.
ALGORITHMS = {
    "one_shot": (BLUE, "o"), "two_shot": (ORANGE, "s"), "ring": (GREEN, "D"), "hierarchical": (WINE, "^"),
    "hierarchical_pipelined": (PINK, "v"), "halving_doubling": (SKY, "P"), "tree": (INDIGO, "<"),
    "all_to_all": (BLUE, "X"), "reduce_scatter": (ORANGE, "p"), "all_gather": (GREEN, "h"), "broadcast": (WINE, "*"),
}  # fmt: skip
UNCOMPRESSED = ("fp16", "bf16", "fp32")
NO_BREAK = "\u00a0"
HALO = [withStroke(linewidth=2, foreground="white")]
# By width: inches across and at least down, points of a label and a title, sizes of markers and lines, dots per inch.
SIZES = ("figure.figsize", "font.size", "figure.titlesize", "lines.markersize", "lines.linewidth", "figure.dpi")
WIDTHS = {
    "screen": ((1600 / 150, 6.0), 10.0, 14.0, 7.0, 1.6, 150),
    "page": ((7.0, 3.6), 8.0, 9.5, 4.5, 1.1, 300),
    "column": ((3.3, 2.4), 7.0, 8.0, 3.5, 0.9, 300),
}

def use_own_fonts() -> None:
    """For programs: only matplotlib's own fonts, so that equal data give equal files on every machine."""
    fontManager.ttflist = [font for font in fontManager.ttflist if font.fname.startswith(matplotlib.get_data_path())]


@contextlib.contextmanager
def looks(width: str = "screen") -> Iterator[None]:
    """matplotlib's defaults and the style of this package for a width, whatever the user's settings."""
    if width not in WIDTHS:
        raise InputError(f"width is '{width}'; it must be one of {', '.join(WIDTHS)}")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc_file(Path(__file__).with_name("arlab.mplstyle"), use_default_template=False)
        matplotlib.rcParams.update(zip(SIZES, WIDTHS[width]))
        yield


class Picture(Figure):
    """A Figure that a notebook shows, whole, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()

    def get_tightbbox(self, *arguments: Any, **keywords: Any) -> Bbox:
        """All of it: Jupyter cuts figures to this box, and titles are outside of the axes' layout."""
        return Bbox.from_bounds(0, 0, *self.get_size_inches())


def drawn(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Gives a function that draws a Figure the keyword `width` (screen, page, column), and this package's style."""

    @functools.wraps(draw)
    def inside(*arguments: Any, width: str = "screen", **keywords: Any) -> Figure:
        with looks(width):
            figure = draw(*arguments, **keywords)
            settle(figure)
        return figure

    return inside


def sizes(*names: str) -> list[Any]:
    """Settings of the width: font.size (points), lines.markersize, ..."""
    return [matplotlib.rcParams[name] for name in names]


def shortened(text: str, limit: int) -> str:
    """A long name with its middle left out."""
    head = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[:head]}…{text[len(text) + head + 1 - limit :]}"


def sentence(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def number(value: float, form: str = ".1f") -> str:
    """A value for people: with a minus, not a hyphen, and without a sign where it rounds to nothing."""
    text = f"{value:{form}}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def decibels(value: float, form: str = ".1f") -> str:
    """An SQNR for a sentence."""
    return "exact" if value == math.inf else f"{number(value, form)}{NO_BREAK}dB"


def decibel_text(value: float, change: bool = False) -> str:
    """A cell: `exact` for no error, a dash for no value."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "exact"
    return number(value, "+.1f" if change else ".1f")


def microseconds(value: float) -> str:
    """A latency for a sentence."""
    return f"{value:.4g}{NO_BREAK}µs" if value < 1e4 else f"{value / 1000:.4g}{NO_BREAK}ms"


def size_text(count: float) -> str:
    """A number of bytes: 64 MiB."""
    power = min(max(int(count).bit_length() - 1, 0) // 10, 3)
    return f"{count / (1 << 10 * power):.4g}{NO_BREAK}{('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def fits(size: float, room_in: float) -> int:
    """How many characters of a size (points) fit a width (inches), in the average of the font's."""
    return max(4, int(room_in * 72 / (0.54 * size)))


def wrapped(text: str, size: float, room_in: float, balanced: bool = False) -> list[str]:
    """The text in lines that fit a width, or about equally long ones; no break is at a hyphen or a no-break space."""
    wrap = functools.partial(textwrap.wrap, text, break_on_hyphens=False)
    width = fits(size, room_in)
    while balanced and len(wrap(width)) > 1 and len(wrap(width - 1)) == len(wrap(width)):
        width -= 1
    return wrap(width)


def fitted(text: str, size: float, room_in: float) -> str:
    """The text, shortened to fit a width."""
    return shortened(text, fits(size, room_in))


def luminance(rgb: Any) -> float:
    """Relative luminance of an sRGB colour, as WCAG defines it."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def ink_on(background: Any) -> str:
    """Black or white, whichever is easier to read on a colour."""
    return INK if luminance(np.array(matplotlib.colors.to_rgb(background))) > 0.22 else "white"


def readable(colour: str) -> str:
    """A colour for text: darker where it would be hard to read on white (a contrast below 4.5)."""
    rgb = np.array(matplotlib.colors.to_rgb(colour))
    while 1.05 / (0.05 + luminance(rgb)) < 4.5:
        rgb = rgb * 0.96
    return matplotlib.colors.to_hex((rgb[0], rgb[1], rgb[2]))


def handle(label: str, **look: Any) -> Line2D:
    """A legend entry: a marker, unless `look` has a line style."""
    return Line2D([], [], **{"linestyle": "", "label": label, **look})


def algorithm_look(name: str, among: Sequence[str] = (), highlight: Sequence[str] = ()) -> dict[str, str]:
    """Colour and marker of an algorithm; one that is not known has those of its place among the unknown."""
    unknown = [other for other in among if other not in ALGORITHMS]
    place = unknown.index(name) if name in unknown else 0
    colour, marker = ALGORITHMS.get(name, (GREY, MARKERS[8 + place % (len(MARKERS) - 8)]))
    return {"color": HIGHLIGHT if name in highlight else colour, "marker": marker}


def codec_lines(codecs: Sequence[str], highlight: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """A colour per codec, black and grey for uncompressed ones, the palette for others while it lasts, and a line
    style, since colours are not enough in grey; a highlighted line is solid."""
    plain, others = itertools.cycle((INK, GREY, "#999999")), itertools.chain(PALETTE, itertools.repeat(GREY))
    looks = {}
    for name, line in zip(codecs, itertools.cycle(LINES)):
        strong = name in highlight
        colour = next(plain) if name in UNCOMPRESSED else HIGHLIGHT if strong else next(others)
        looks[name] = {"color": HIGHLIGHT if strong else colour, "linestyle": "-" if strong else line}
    return looks


def provenance(frame: Any, *keys: str) -> str:
    """Where the numbers of a figure come from, as the attrs of a DataFrame say under these keys."""
    return " ".join(f"{key.capitalize()}: {frame.attrs[key]}." for key in ("provenance", *keys) if frame.attrs.get(key))


def is_column() -> bool:
    """Whether the page is as narrow as a column, so that panels stand below each other."""
    return bool(matplotlib.rcParams["figure.figsize"][0] < 5)


def new_page(
    title: str, subtitle: str = "", notes: Iterable[str] = (), source: str = "",
    legends: Sequence[Sequence[Any]] = (), body_in: float = 0.0,
) -> Figure:  # fmt: skip
    """A figure with a title, what marks mean, notes and provenance around the room for axes, at least `body_in` high.

    A layout engine fits axes into it, until settle().
    """
    (across, down), label, heading = sizes("figure.figsize", "font.size", "figure.titlesize")
    margin = 0.2 if across > 5 else 0.08
    room = across - 2 * margin
    # Bold letters are a tenth wider.
    texts = [  # (above the axes, or else below, lines, size, look)
        (True, wrapped(title, heading, room / 1.1, balanced=True), heading, {"weight": "bold"}),
        (True, wrapped(subtitle, label, room), label, {"color": GREY}),
        (False, wrapped(source, 0.7 * label, room), 0.7 * label, {"color": GREY}),
        (False, wrapped(" ".join(filter(None, notes)), 0.8 * label, room), 0.8 * label, {}),
    ]
    heights = [len(lines) * size * 1.4 / 72 + 0.06 if lines else 0.0 for _, lines, size, _ in texts]
    letters = fits(label, room)
    tables = []  # (handles, columns, height)
    for handles in filter(None, legends):
        lengths = [len(handle.get_label()) + 7 for handle in handles]
        columns = len(handles) if sum(lengths) <= letters else max(1, letters // max(lengths))
        tables.append((handles, columns, math.ceil(len(handles) / columns) * label * 1.5 / 72 + 0.1))
    down = max(down, 1.5 * margin + sum(heights) + sum(height for *_, height in tables) + body_in)
    figure = Picture(layout="constrained", figsize=(across, down))
    top, bottom = down - margin, margin / 2
    for (above, lines, size, look), height in zip(texts, heights):
        y, side = (top, "top") if above else (bottom, "bottom")
        text = figure.text(margin / across, y / down, "\n".join(lines), va=side, size=size, linespacing=1.25, **look)
        text.set_in_layout(False)
        top, bottom = (top - height, bottom) if above else (top, bottom + height)
    for handles, columns, height in tables:
        place = {"loc": "upper left", "bbox_to_anchor": (margin / across, top / down)}
        figure.legend(handles=handles, ncols=columns, **place).set_in_layout(False)
        top -= height
    rect = (margin / across, bottom / down, room / across, (top - bottom) / down)
    figure.get_layout_engine().set(rect=rect, w_pad=0.05, h_pad=0.05)
    return figure


def panels(figure: Figure, count: int, **keywords: Any) -> list[Axes]:
    """Axes side by side, in a narrow figure below each other."""
    if is_column():
        keywords.pop("width_ratios", None)
    shape = (count, 1) if is_column() else (1, count)
    return list(figure.subplots(*shape, squeeze=False, **keywords).flat)


def head(axes: Axes, text: str, share: float) -> None:
    """A title above axes that have this share of the page, in as many lines as it needs."""
    (across, _), size = sizes("figure.figsize", "font.size")
    axes.set_title("\n".join(wrapped(text, size, 0.9 * share * across, balanced=True)))


def settle(figure: Figure) -> None:
    """Fixes the layout, so that labels can be placed by pixel.

    The solver of constrained layouts adds in the order of addresses in memory: the last bits differ from run to run,
    and with them what is drawn on half a pixel. Hence whole pixels, and an offset, since half pixels are frequent.
    """
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        size = np.array([figure.bbox.width, figure.bbox.height])
        for axes in figure.axes:
            axes.set_position(Bbox(np.floor(axes.get_position().get_points() * size + 0.27) / size))


def decibel_axis(axes: Axes, values: Iterable[float]) -> float:
    """An SQNR axis around values, its ends at least 2 dB apart.

    Returns where an infinite SQNR is drawn, on a line of its own above the others, or NaN where there is none.
    """
    known = np.array([value for value in values if not math.isnan(value)])
    finite = known[np.isfinite(known)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    grow = max(0.0, 2 - (high - low)) / 2
    low, high = low - grow, high + grow
    pad = 0.13 * (high - low)
    exact_at = high + 0.17 * (high - low) if math.inf in known else math.nan
    bottom, top = low - pad, high + 1.3 * pad if math.isnan(exact_at) else exact_at + pad
    axes.set_ylim(bottom, top)
    most = top if math.isnan(exact_at) else exact_at - 0.06 * (top - bottom)
    places = MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]).tick_values(bottom, top) if len(finite) else ()
    ticks = {place: number(place, "g") for place in places if bottom <= place <= most}
    if not math.isnan(exact_at):
        ticks[exact_at] = "exact"
        axes.axhline(exact_at, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    axes.set_yticks(list(ticks), list(ticks.values()))
    return exact_at


def log_axis(axis: Any, values: Iterable[float], most: int = 0) -> None:
    """A log scale with about `most` round ticks at most: 1, 2, 5 of each decade, or more or fewer."""
    known = [value for value in values if 0 < value < math.inf] or [1.0]
    decades = math.log10(max(known) / min(known))
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    most = most or (9 if matplotlib.rcParams["figure.figsize"][0] > 8 else 7)
    subs = next((s for s in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5)) if decades * len(s) < most), (1,))
    axis.set(major_locator=LogLocator(subs=subs, numticks=99), minor_locator=NullLocator())
    axis.set_major_formatter("{x:.6g}")


def cost_axis(
    axes: Axes, costs: Iterable[float], front: Sequence[tuple[float, float, str]], share: float, most: int = 0
) -> None:
    """Makes a log axis of costs, with room on the left for the first names of a Pareto front (cost, quality, name), both
    rising. It draws the front as a staircase from below; `share`: of the page, for the axes."""
    xs, ys, names = zip(*front) if front else ((), (), ())
    log_axis(axes.xaxis, costs, most)
    (across, _), size = sizes("figure.figsize", "font.size")
    left = min(0.6, (max(map(len, names[:4]), default=0) + 3) / fits(0.833 * size, 0.8 * share * across))
    low, high = math.log(min(costs)), math.log(max(costs))
    high += 0.08 * max(high - low, 0.4)
    axes.set_xlim(math.exp((low - 0.02 - left * high) / (1 - left)), math.exp(high))
    if names:
        bottom, right = axes.get_ylim()[0], axes.get_xlim()[1]
        axes.step([xs[0], *xs, right], [bottom, *ys, ys[-1]], where="post", color=PALE, linewidth=2.5, zorder=2)
        axes.set(ylim=(bottom, None), xlim=(None, right))


def adjust(texts: Sequence[Text], axes: Axes, **keywords: Any) -> None:
    """Moves texts apart, up or down; adjustText begins with a fixed seed and here ends after a number of steps."""
    from adjustText import adjust_text

    only = dict.fromkeys(("text", "static", "explode", "pull"), "y")
    look = {"only_move": only, "iter_lim": 300, "avoid_self": False, "force_text": (0.1, 0.4), "expand": (1.0, 1.05)}
    if len(texts) > 1:
        adjust_text(list(texts), ax=axes, **look, **keywords)


def label_points(
    axes: Axes, labels: Sequence[tuple[float, float, str, str, str]], others: Sequence[tuple[float, float]] = ()
) -> None:
    """Names beside points: (x, y, name, colour, side), side is left or right; settles the figure first.

    Names keep off `others`, further points (x, y), and a line leads to a name that is far from its point. Left of a
    front that rises to the right, and above it, there is room: there a name begins above the one before it. Lines begin
    at the end of a name that is nearer to its point: right of a name on the left there are only names of points further
    right.
    """
    settle(axes.figure)
    pixels, back = axes.transData.transform, axes.transData.inverted().transform
    gap, texts, tops = 0.07 * axes.figure.dpi, [], [(math.inf, 0.0)]
    labels = sorted(labels, key=lambda label: label[1])
    size = "small" if len(labels) <= 20 else "x-small"
    for x, y, name, colour, side in labels:
        across, up = pixels((x, y))
        weight = "bold" if colour == HIGHLIGHT else "normal"
        look = {"color": readable(colour), "weight": weight, "size": size, "path_effects": HALO}
        text = axes.text(*back((across + gap, up)), name, va="center", zorder=6, **look)
        if side == "left":
            box = text.get_window_extent()
            place = max(across - gap, axes.bbox.x0 + box.width)
            height = max([up, *(top + 0.6 * box.height for left, top in tops if place > left)])
            # Neither that name nor its point is for the next to stand on.
            tops += [(place - box.width, height + 0.6 * box.height), (across - gap, up + 0.8 * box.height)]
            text.set(ha="right", position=back((place, height)))
        texts.append(text)
    xs, ys = [label[0] for label in labels], [label[1] for label in labels]
    adjust(texts, axes, force_pull=(0, 0), target_x=xs, target_y=ys, **dict(zip(("x", "y"), zip(*others))))
    for text, (x, y, _, _, side) in zip(texts, labels):
        box = text.get_window_extent()
        end, middle = box.x1 + 0.2 * gap if side == "left" else box.x0 - 0.2 * gap, (box.y0 + box.y1) / 2
        if abs(middle - pixels((x, y))[1]) > box.height / 2:
            axes.plot(*zip(back((end, middle)), (x, y)), color=GREY, linewidth=0.6, marker="", zorder=2.5)


def embolden(labels: Iterable[Text], names: Sequence[str]) -> None:
    """Makes labels stand out whose first words are one of these names; two spaces end it."""
    for label in labels:
        if label.get_text().split("  ")[0] in names:
            label.set(color=readable(HIGHLIGHT), weight="bold")


def heat_map(
    figure: Figure, tables: Mapping[str, Any], label: str, text: Callable[[float], str], change: bool = False,
    colour_of: Any = (), log: bool = False, bold: Sequence[str] = (),
) -> None:  # fmt: skip
    """Tables (title: DataFrame) side by side, with the numbers where they fit; rows named in `bold` stand out.

    Colours span the finite values, or those of `colour_of`; with `change` they diverge from 0.
    """
    values = np.concatenate([np.ravel(t.to_numpy(dtype=float)) for t in tables.values()])
    values = values[np.isfinite(values)] if np.isfinite(values).any() else np.array([1.0])
    ends = np.asarray(colour_of) if len(colour_of) else values
    low, high = float(ends.min()), float(ends.max())
    low, high = (-max(0.1, -low, high), max(0.1, -low, high)) if change else (low, high)
    norm = (matplotlib.colors.LogNorm if log else matplotlib.colors.Normalize)(low, high, clip=True)
    colours = matplotlib.colormaps["PuOr" if change else "viridis_r" if log else "viridis"]
    widths = [max(2, table.shape[1]) for table in tables.values()]
    axes_of = panels(figure, len(tables), sharey=not is_column(), width_ratios=widths)
    for axes, table in zip(axes_of, tables.values()):
        shown = np.ma.masked_invalid(table.to_numpy(dtype=float))
        image = axes.imshow(shown, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
        names = [shortened(str(name), 26) for name in table.columns]
        long = max(map(len, names)) > 3
        step = 1 if long else math.ceil(sum(widths) / 40)
        slant = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axes.set_xticks(range(0, len(names), step), names[::step], **slant)
        axes.set_xlabel(table.columns.name or "", size="small")
        axes.set_yticks(range(len(table)), [shortened(str(name), 40) for name in table.index])
        embolden(axes.get_yticklabels(), bold)
        axes.tick_params(labelsize="small", length=0)
        axes.spines[:].set_visible(False)
        axes.set_title("Title")
    reach = "max" if values.max() > high else "neither"
    where = {"location": "bottom", "pad": 0.02} if is_column() else {"pad": 0.01}
    bar = figure.colorbar(image, ax=axes_of, aspect=40, extend=reach, label=label, **where)
    if log:
        log_axis(bar.long_axis, [low, high])
    settle(figure)
    (size,) = sizes("font.size")
    for axes, (title, table) in zip(axes_of, tables.items()):  # titles again, now that the room for them is known
        wide, tall = np.array(axes.get_window_extent().size) / figure.dpi
        axes.set_title(fitted(title, size, wide))
        cells = table.map(text)
        longest = cells.map(len).to_numpy().max()
        points = min(0.85 * size, wide / table.shape[1] * 72 / (0.66 * longest), tall / table.shape[0] * 72 / 1.05)
        for (y, x), value in np.ndenumerate(table.to_numpy(dtype=float)) if points >= 5 else ():
            colour = ink_on(colours(norm(value))) if math.isfinite(value) else INK
            axes.text(x, y, cells.iloc[y, x], ha="center", va="center_baseline", size=points, color=colour)


def encoded(figure: Figure, kind: str) -> bytes:
    """The figure as a file of this kind (png, svg, pdf), without a date or a version in it."""
    metadata = {"png": {"Software": None}, "svg": {"Date": None}}
    nothing = {"CreationDate": None, "Creator": None, "Producer": None}
    buffer = io.BytesIO()
    with looks():
        settle(figure)
        figure.savefig(buffer, format=kind, dpi="figure", metadata=metadata.get(kind, nothing))
    return buffer.getvalue()


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file, all of it or none."""
    try:
        _files.write_whole(path, data)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def save(figure: Figure, path: Path | str) -> None:
    """Writes a figure to a .png, .svg or .pdf, complete or not at all; equal figures give equal bytes."""
    path = Path(path)
    write_whole(path, encoded(figure, path.suffix.removeprefix(".")))
