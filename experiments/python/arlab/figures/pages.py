"""One page about folders of results: `arlab report results/main results/sweep`, or arlab.report(["results/main"]).

report.html is one file that needs no network: figures lie in it, tables sort by a click on a heading and can be filtered,
figures open in full and zoom. Without JavaScript all of it can still be read. report.md says the same for GitHub and the
like, with its figures and tables as files beside it. Equal folders give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from urllib.parse import quote

import pandas as pd

from arlab._files import read_whole
from arlab.figures.style import write_whole
from arlab.figures.tables import InputError, plural, read_table, read_text

FIGURES = {".svg": "image/svg+xml", ".png": "image/png"}  # of one figure in both, the first
FIRST = ("summary.csv", "accuracy.csv", "sweep.csv")  # the tables to begin with; the others by name
HEADINGS = ("command", "provenance", "device", "date", "library")  # of comments; others are notes
MACHINE_ONLY = ("definition", "check")  # comments that only `arlab study --resume` reads
MOST_BYTES = 64 << 20  # of a file that lies in the page or is copied
LONG, MOST_IN_MARKDOWN = 100, 60  # rows: of a table that begins closed, and of one that Markdown shows whole
TEMPLATE = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Folder:
    """What lies in a folder of results."""

    path: Path
    title: str
    about: dict[str, dict[str, list[str]]]  # by table and heading, what its comments say; only where there are any
    figures: list[Path]
    tables: dict[str, pd.DataFrame]
    texts: dict[str, str]

    def of_all(self) -> dict[str, list[str]]:
        """What is said about the folder: by the only table that says something, as results.csv of a study does."""
        return next(iter(self.about.values())) if len(self.about) == 1 else {}

    def of(self, table: str) -> dict[str, list[str]]:
        """What is said about one of several tables."""
        return self.about.get(table, {}) if len(self.about) > 1 else {}


def named(stem: str) -> str:
    """The name of a file for people."""
    return stem.replace("_", " ")


def read_folder(path: Path) -> Folder:
    """Reads tables (.csv), figures (.png, .svg) and texts (.txt); raises InputError where there are none."""
    try:
        kinds = (".csv", ".txt", *FIGURES)
        files = sorted(f for f in path.iterdir() if f.suffix in kinds and f.is_file() and not f.name.startswith("."))
        # Whoever has made the folder must not get the reader of the page to publish files of his own.
        outside = [f for f in files if not f.resolve().is_relative_to(path.resolve())]
    except OSError as error:
        raise InputError(f"cannot read the folder {path}: {error.strerror}") from error
    if outside:
        raise InputError(f"{outside[0]} is a link to a file outside of the folder: copy that file to there, or remove the link")
    by_stem = {f.stem: f for kind in reversed(FIGURES) for f in files if f.suffix == kind}
    tables = {f.name: with_heads(read_table(f)) for f in files if f.suffix == ".csv"}
    texts = {f.name: read_text(f)[0] for f in files if f.suffix == ".txt"}
    if not tables and not by_stem:
        raise InputError(f"{path}: there is no table (.csv) and no figure (.png, .svg) to report")
    about = {name: said for name, table in tables.items() if (said := about_of(table))}
    title = next((said.pop("Title")[0] for said in about.values() if "Title" in said), path.resolve().name)
    order = sorted(tables, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    figures = [by_stem[stem] for stem in sorted(by_stem)]
    return Folder(path, title, about, figures, {name: tables[name] for name in order}, texts)


def with_heads(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose columns that say the same in every row of where it comes from are comments, as other tables have them."""
    for key in HEADINGS[:2]:
        if key in table and table[key].nunique() == 1:
            table.attrs["head"].append(f"{key}: {table[key].iloc[0]}")
            table = table.drop(columns=key)
    return table


def about_of(table: pd.DataFrame) -> dict[str, list[str]]:
    """What the comments of a table say, by heading."""
    about: dict[str, list[str]] = {}
    notes = []
    for line in table.attrs["head"]:
        key, colon, value = (part.strip() for part in line.partition(":"))
        if re.match(r"arlab\.[a-z.]+/\d", line):
            about["Title"] = [value]
        elif line.startswith("arlab "):
            about.setdefault("Command", []).append(line)
        elif colon and key.lower() in HEADINGS:
            about.setdefault(key.capitalize(), []).append(value)
        elif key not in MACHINE_ONLY:
            notes.append(line)
    return about | ({"Notes": [" ".join(notes)]} if notes else {})


def number_of(text: str) -> float | None:
    """The number that a cell holds, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def short(text: str) -> str:
    """A number of many digits with six and a zero without its sign, anything else as it is."""
    value = number_of(text)
    if value == 0:
        return text.lstrip("-")
    if value is None or not math.isfinite(value) or value == int(value) or len(re.sub(r"\D", "", text)) <= 6:
        return text
    return f"{value:.6g}"


def numeric(table: pd.DataFrame) -> list[bool]:
    """Which columns hold numbers and nothing else."""
    known = [[cell for cell in column if cell] for column in zip(*table.to_numpy())]
    return [bool(cells) and all(number_of(cell) is not None for cell in cells) for cells in known]


def row_of(cells: Sequence[str], right: Sequence[bool]) -> str:
    """A row of HTML; a number that is shown with fewer digits keeps all of them for sorting and copying."""
    parts = []
    for cell, number in zip(cells, right):
        shown = short(cell) if number else cell
        exact = f' data-value="{html.escape(cell)}"' if shown != cell else ""
        parts.append(f"<td{' class=n' if number else ''}{exact}>{html.escape(shown)}</td>")
    return f"<tr>{''.join(parts)}</tr>"


def html_about(about: dict[str, list[str]]) -> str:
    """Where something comes from."""
    said = []
    for key, lines in about.items():
        shown = [html.escape(line) for line in lines]
        shown = [f"<code>{line}</code>" for line in shown] if key in ("Command", "Folder") else shown
        said.append(f"<dt>{html.escape(key)}</dt>{''.join(f'<dd>{line}</dd>' for line in shown)}")
    return f"<dl>{''.join(said)}</dl>" if said else ""


def html_table(key: str, name: str, table: pd.DataFrame, about: str) -> str:
    """A table, and what is said about it, under a heading that opens and closes it."""
    right = numeric(table)
    head = "".join(
        f'<th scope="col"{" class=n" if number else ""}>{html.escape(str(column))}</th>' for column, number in zip(table, right)
    )
    rows = "\n".join(row_of(cells, right) for cells in table.itertuples(index=False, name=None))
    return (
        f'<details{" open" * (len(table) <= LONG)}>\n<summary><h4>{html.escape(name)}</h4> {plural(len(table), "row")},'
        f' {plural(table.shape[1], "column")}</summary>\n{about}\n<div class="scroll" tabindex="0">\n<table id="{key}">'
        f"\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div></details>"
    )


def html_figure(key: str, path: Path, of: str) -> str:
    """A figure as part of the page. An SVG is an image too, so that no script in it runs."""
    data = base64.b64encode(read_bytes(path)).decode()
    name = html.escape(named(path.stem))
    return (
        f'<figure id="{key}"><img alt="{name} of {html.escape(of)}" src="data:{FIGURES[path.suffix]};base64,{data}">'
        f"<figcaption>{name}</figcaption></figure>"
    )


def read_bytes(path: Path) -> bytes:
    """The bytes of a file."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise InputError(f"{path} has {size} bytes: allowed for a figure or a table are {MOST_BYTES}")
        return read_whole(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def html_section(number: int, folder: Folder) -> str:
    """All of a folder: where it comes from, figures, tables, texts."""
    parts = [f'<section id="part{number}">\n<h2>{html.escape(folder.title)}</h2>\n{html_about({"Folder": [str(folder.path)], **folder.of_all()})}']
    if folder.figures:
        figures = "\n".join(
            html_figure(f"part{number}-figure{i}", path, folder.title) for i, path in enumerate(folder.figures, 1)
        )
        parts.append(f'<h3>Figures</h3>\n<div class="figures">\n{figures}\n</div>')
    tables = [
        html_table(f"part{number}-table{i}", name, table, html_about(folder.of(name)))
        for i, (name, table) in enumerate(folder.tables.items(), 1)
    ]
    parts += ["<h3>Tables</h3>", *tables] if tables else []
    for name, text in folder.texts.items():
        parts.append(
            f"<details open><summary><h4>{html.escape(name)}</h4></summary>\n"
            f'<pre class="scroll" tabindex="0">{html.escape(text)}</pre></details>'
        )
    return "\n".join(parts) + "\n</section>"


def html_page(folders: Sequence[Folder], title: str, command: str) -> str:
    """report.html; its policy lets it load nothing but what is in it and run no script but its own."""
    style, script = ((TEMPLATE / name).read_text("utf-8") for name in ("report.css", "report.js"))
    digest = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in (("style_hash", style), ("script_hash", script))
    }
    links = "\n".join(
        f'<li><a href="#part{number}">{html.escape(folder.title)}</a>: {content_of(folder)}</li>'
        for number, folder in enumerate(folders, 1)
    )
    return Template((TEMPLATE / "report.html").read_text("utf-8")).substitute(
        digest, title=html.escape(title), command=html.escape(command), style=style, script=script, links=links,
        sections="\n".join(html_section(number, folder) for number, folder in enumerate(folders, 1)),
    )  # fmt: skip


def content_of(folder: Folder) -> str:
    """How much there is of what."""
    return f"{plural(len(folder.figures), 'figure')}, {plural(len(folder.tables), 'table')}"


def markdown_text(text: str) -> str:
    """Text in which Markdown and HTML find nothing of theirs."""
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", text)


def code(text: str) -> str:
    """A command in Markdown, whatever marks are in it."""
    marks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{marks} {text} {marks}" if len(marks) > 1 else f"`{text}`"


def markdown_table(table: pd.DataFrame) -> list[str]:
    """A table as GitHub has them, numbers to the right."""
    right = numeric(table)
    rows = [list(map(str, table.columns)), *(map(short, cells) for cells in table.itertuples(index=False, name=None))]
    lines = [f"| {' | '.join(markdown_text(cell) for cell in row)} |" for row in rows]
    return [lines[0], f"|{'|'.join(' ---: ' if number else ' --- ' for number in right)}|", *lines[1:]]


def markdown_about(about: dict[str, list[str]]) -> list[str]:
    """Where something comes from."""
    return [
        f"- {key}: {code(line) if key == 'Command' else markdown_text(line)}" for key, lines in about.items() for line in lines
    ]


def markdown_page(folders: Sequence[Folder], places: Sequence[str], title: str, command: str) -> str:
    """report.md; `places`: where the files of each folder are, from there."""
    lines = [f"# {markdown_text(title)}", "", f"Made by {code(command)}.", ""]
    for folder, place in zip(folders, places):
        lines += [f"## {markdown_text(folder.title)}", "", f"- Folder: {code(str(folder.path))}"]
        lines += markdown_about(folder.of_all())
        for path in folder.figures:
            name = named(path.stem)
            lines += ["", f"![{markdown_text(f'{name} of {folder.title}')}]({quote(place + path.name)})"]
        for name, table in folder.tables.items():
            lines += ["", f"### {markdown_text(name)}", "", *markdown_about(folder.of(name)), ""]
            link = f"{plural(len(table), 'row')}: [{markdown_text(name)}]({quote(place + name)})"
            lines += markdown_table(table) if len(table) <= MOST_IN_MARKDOWN else [link]
        for name, text in folder.texts.items():
            lines += ["", f"### {markdown_text(name)}", "", *(f"    {line}" for line in text.rstrip("\n").split("\n"))]
        lines.append("")
    return "\n".join(lines)


def report(folders: Sequence[Path | str] | Path | str, out: Path | str | None = None, title: str | None = None) -> Path:
    """Writes report.html and report.md about folders of results; returns the path of report.html.

    Args:
        folders: of `arlab study`, `arlab sweep` and the like: all tables (.csv), figures (.png, .svg) and texts (.txt) in
            them are in the report.
        out: the folder for the report, which is made; figures and tables are copied into it, for report.md. By default
            the folder of results itself, where there is one.
        title: by default that of the first results.

    Raises InputError (a ValueError), with one line, for a folder without results or a file that is no table, before anything is written.
    """
    paths = [Path(each) for each in ([folders] if isinstance(folders, (str, Path)) else folders)]
    if not paths or (out is None and len(paths) > 1):
        raise InputError("several folders: name one for the report, with --out (in Python: out=)" if paths else "no folder")
    for i, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:i]]:
            raise InputError(f"the folder {path} is named twice")
    read = [read_folder(path) for path in paths]
    to = paths[0] if out is None else Path(out)
    command = shlex.join(["arlab", "report", *map(str, paths), *(["--out", str(out)] if out else [])])
    command += f" --title {shlex.quote(title)}" if title else ""
    heading = title or (read[0].title if len(read) == 1 else f"{read[0].title}, and {len(read) - 1} more")
    names = [path.resolve().name for path in paths]
    places = [f"{name}-{i}/" if names.count(name) > 1 else f"{name}/" for i, name in enumerate(names, 1)]
    places = ["" if path.resolve() == to.resolve() else place for path, place in zip(paths, places)]
    files: dict[Path, bytes] = {
        to / place / name: read_bytes(folder.path / name)
        for folder, place in zip(read, places) if place
        for name in (*(path.name for path in folder.figures), *folder.tables)
    }  # fmt: skip
    files[to / "report.md"] = markdown_page(read, places, heading, command).encode()
    files[to / "report.html"] = html_page(read, heading, command).encode()
    for path, data in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {path.parent}: {error.strerror}") from error
        write_whole(path, data)
    return to / "report.html"
