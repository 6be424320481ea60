"""Draws figures from the command line: `python -m arlab.figures KIND ...`; the program arlab calls it, too.

Prints one line per file. Exit code: 0; 2 for bad usage or input, said in one line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from arlab.figures import model_times, selections, spreads, study, style, sweep, timelines, topologies, validations
from arlab.figures.tables import InputError, read_results, read_sweep

PROGRAM = "python -m arlab.figures"
# Pictures of one file each: about, place, how it is read and drawn.
PICTURES: dict[str, tuple[str, str, Callable[..., Any], Callable[..., Any]]] = {
    "select": ("what `arlab select` has found", "SELECTION.json", selections.read_selection, selections.selection),
    "model_times": (
        "times of models over links", "TIMES.csv", model_times.read_model_times, model_times.speedup_over_link,
    ),
    "timeline": ("a trace of `arlab simulate`", "TRACE.json", timelines.read_trace, timelines.timeline),
    "validation": (
        "the simulator beside tables", "VALIDATION.json", validations.read_validation, validations.validation,
    ),
    "topology": ("a topology of `arlab topology show`", "TOPOLOGY.json", topologies.read_topology, topologies.topology),
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} ({self.prog} --help)\n")


def names_in(frame: Any, names: Sequence[str], option: str, columns: Sequence[str]) -> None:
    """Refuses names that no row has."""
    known = [name for column in columns for name in frame[column].unique()]
    for name in names:
        if name not in known:
            raise InputError(f"{option} names '{name}'; there are {', '.join(known)}")


def write_all(figures: dict[str, Callable[..., Any]], frame: Any, options: argparse.Namespace, folder: Path) -> None:
    """Draws all figures, then writes them, so that a figure that fails leaves no others behind."""
    names_in(frame, options.highlight, "--highlight", ("codec", "algorithm"))
    drawn = {name: draw(frame, highlight=options.highlight, width=options.width) for name, draw in figures.items()}
    encoded = {folder / f"{name}.{options.format}": style.encoded(each, options.format) for name, each in drawn.items()}
    for path, data in encoded.items():
        style.write_whole(path, data)
        print(path)


def draw_study(options: argparse.Namespace) -> None:
    """All figures of a study."""
    path = options.results if options.results.suffix == ".csv" else options.results / "results.csv"
    frame = read_results(path, options.metric)
    if options.codecs:
        names_in(frame, options.codecs, "--codecs", ("codec",))
        frame = frame[frame["codec"].isin(options.codecs)]
    write_all(study.FIGURES, frame, options, options.out or path.parent)


def draw_sweep(options: argparse.Namespace) -> None:
    """All figures of a sweep; without rows of a library there is no speed-up over it."""
    frame = read_sweep(options.sweep)
    write_all(sweep.figures_of(frame), frame, options, options.out)


def draw_picture(options: argparse.Namespace) -> None:
    """The one figure of a file."""
    if options.picture.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"{options.picture}: allowed is a name that ends in .png, .svg or .pdf")
    read, draw = options.functions
    style.save(draw(read(options.source), width=options.width), options.picture)


def draw_error_bars(options: argparse.Namespace) -> None:
    """The figure, and its table on standard output."""
    frame = read_results(options.results)
    which = {"ranks": options.ranks, "algorithm": options.algorithm}
    names_in(frame, options.highlight, "--highlight", ("codec",))
    figure = spreads.error_bars(frame, width=options.width, highlight=options.highlight, **which)
    style.save(figure, (options.out or options.results.parent) / "error_bars.png")
    print(spreads.spread_table(frame, **which))


def write_report(options: argparse.Namespace) -> None:
    """One page about folders of results."""
    from arlab.figures.pages import report  # which needs a library that figures do not

    page = report(options.folders, options.out, options.title)
    print(page, page.with_suffix(".md"), sep="\n")


def parser() -> Parser:
    """All kinds and their options; `run` of what is parsed draws it."""
    parser = Parser(prog=PROGRAM, description="Figures of arlab's results.")
    kinds = parser.add_subparsers(metavar="KIND", required=True)

    def kind(name: str, about: str, run: Callable[[Any], None], **places: str) -> argparse.ArgumentParser:
        one = kinds.add_parser(name, help=about, description=f"Draws {about}.")
        for place, metavar in places.items():
            one.add_argument(place, metavar=metavar, type=Path)
        one.add_argument("--width", choices=list(style.WIDTHS), default="screen", help="column: 3.3 in, page: 7 in")
        one.set_defaults(run=run)
        return one

    listed = lambda text: [name for name in text.split(",") if name]  # noqa: E731
    of_study = kind("study", "results.csv of `arlab study`", draw_study, results="RESULTS.csv|FOLDER")
    of_study.add_argument("--codecs", metavar="NAME[,NAME]", type=listed, default=[], help="only these")
    about = "SQNR of what, where both are there"
    of_study.add_argument("--metric", choices=["token", "tensor"], default="token", help=about)
    about = "a sweep of `arlab simulate --format csv` over sizes and machines"
    of_sweep = kind("sweep", about, draw_sweep, sweep="SWEEP.csv")
    about = "how far the SQNR of each codec spreads in results.csv of `arlab study`"
    bars = kind("error_bars", about, draw_error_bars, results="RESULTS.csv")
    bars.add_argument("--ranks", type=int, help="only this number (default: all together)")
    bars.add_argument("--algorithm", help="only this one (default: all together)")
    bars.add_argument("--out", metavar="FOLDER", type=Path, help="of error_bars.png (default: that of the results)")
    for one in (of_study, of_sweep, bars):
        one.add_argument("--highlight", metavar="NAME[,NAME]", type=listed, default=[], help="codecs or algorithms")
    for one in (of_study, of_sweep):
        one.add_argument("--out", metavar="FOLDER", type=Path, required=one is of_sweep)
        one.add_argument("--format", choices=["png", "svg", "pdf"], default="png")
    for name, (about, place, *functions) in PICTURES.items():
        kind(name, about, draw_picture, source=place, picture="PICTURE.png|.svg|.pdf").set_defaults(functions=functions)
    pages = kinds.add_parser("report", help="no figure, but a page about folders of results: report.html and report.md")
    pages.add_argument("folders", metavar="FOLDER", type=Path, nargs="+")
    pages.add_argument("--out", metavar="FOLDER", type=Path, help="by default FOLDER itself, where there is one")
    pages.add_argument("--title", metavar="TEXT", help="by default that of the first results")
    pages.set_defaults(run=write_report)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = parser().parse_args(words)
    style.use_own_fonts()
    try:
        options.run(options)
    except (InputError, MemoryError) as error:
        why = str(error) if isinstance(error, InputError) else "not enough memory for what is to be drawn"
        print("error:", " ".join(why.split("\n")), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
