"""One page about folders of results: `arlab report results/main results/sweep`, or arlab.report(["results/main"]).

report.html is one file that needs no network: figures lie in it, tables sort by a click on a heading and can be
filtered, figures open in full and zoom. Without JavaScript all of it can still be read. report.md says the same for
GitHub and the like, with its figures and tables as files beside it. Equal folders give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from arlab._files import read_whole
from arlab.figures.style import write_whole
from arlab.figures.tables import InputError, plural, read_table, read_text

FIGURES = {".svg": "image/svg+xml", ".png": "image/png"}  # the first of one figure in both
FIRST = ("summary.csv", "accuracy.csv", "sweep.csv")  # the tables to begin with; the others by name
HEADINGS = ("command", "provenance", "device", "date", "library")  # in comments; others are notes
MACHINE_ONLY = ("definition", "check")  # comments that only `arlab study --resume` reads
MOST_BYTES = 64 << 20  # largest file that lies in the page or is copied
TEMPLATE = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Folder:
    """The contents of a folder of results."""

    path: Path
    title: str
    about: dict[str, list[str]]  # by heading, of the only table that says something, as results.csv of a study does
    of: dict[str, dict[str, list[str]]]  # by table and heading, what the comments of several tables say
    figures: list[Path]
    tables: dict[str, pd.DataFrame]
    texts: dict[str, str]


def read_folder(path: Path) -> Folder:
    """Reads tables (.csv), figures (.png, .svg) and texts (.txt); raises InputError where there are none."""
    try:
        kinds = (".csv", ".txt", *FIGURES)
        files = sorted(f for f in path.iterdir() if f.suffix in kinds and f.is_file() and not f.name.startswith("."))
        # The maker of a folder must not trick a reader of the page into publishing the reader's files.
        outside = [f for f in files if not f.resolve().is_relative_to(path.resolve())]
    except OSError as error:
        raise InputError(f"cannot read the folder {path}: {error.strerror}") from error
    if outside:
        what = "is a link to a file outside of the folder: copy that file to there, or remove the link"
        raise InputError(f"{outside[0]} {what}")
    by_stem = {f.stem: f for kind in reversed(FIGURES) for f in files if f.suffix == kind}
    tables = {f.name: with_heads(read_table(f)) for f in files if f.suffix == ".csv"}
    texts = {f.name: read_text(f)[0] for f in files if f.suffix == ".txt"}
    if not tables and not by_stem:
        raise InputError(f"{path}: there is no table (.csv) and no figure (.png, .svg) to report")
    of = {name: said for name, table in tables.items() if (said := about_of(table))}
    title = next((said.pop("Title")[0] for said in of.values() if "Title" in said), path.resolve().name)
    about = of.popitem()[1] if len(of) == 1 else {}
    order = sorted(tables, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    figures = [by_stem[stem] for stem in sorted(by_stem)]
    return Folder(path, title, about, of, figures, {name: tables[name] for name in order}, texts)


def with_heads(table: pd.DataFrame) -> pd.DataFrame:
    """A table in whose comments its columns are that say the same of where it comes from in every row."""
    for key in HEADINGS[:2]:
        if key in table and table[key].nunique() == 1:
            table.attrs["head"].append(f"{key}: {table[key].iloc[0]}")
            table = table.drop(columns=key)
    return table


def about_of(table: pd.DataFrame) -> dict[str, list[str]]:
    """Returns the comments of a table, by heading."""
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
    """Returns, by column, whether it holds numbers and nothing else."""
    known = [[cell for cell in column if cell] for column in zip(*table.to_numpy())]
    return [bool(cells) and all(number_of(cell) is not None for cell in cells) for cells in known]


def read_bytes(path: Path) -> bytes:
    """The bytes of a file."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise InputError(f"{path} has {size} bytes: allowed for a figure or a table are {MOST_BYTES}")
        return read_whole(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_of(path: Path) -> str:
    """A figure as part of the page. An SVG is an image too, so that no script in it runs."""
    return f"data:{FIGURES[path.suffix]};base64,{base64_of(read_bytes(path))}"


def markdown_text(text: str) -> str:
    """Text in which Markdown and HTML find nothing of theirs."""
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", text)


def code(text: object) -> Markup:
    """A command in Markdown, whatever marks are in it."""
    marks = "`" * (max(map(len, re.findall("`+", str(text))), default=0) + 1)
    return Markup(f"{marks} {text} {marks}" if len(marks) > 1 else f"`{text}`")


def filled(template: str, escape: Callable[[str], str], **words: Any) -> str:
    """A template with its words; all that is not Markup is escaped."""
    finalize = lambda value: value if isinstance(value, Markup) else Markup(escape(str(value)))  # noqa: E731
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE), autoescape=True, finalize=finalize, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template(template).render(plural=plural, short=short, numeric=numeric, **words)


def html_page(words: dict[str, Any]) -> str:
    """report.html; its policy lets it load nothing but what is in it and run no script but its own."""
    own = {kind: (TEMPLATE / f"report.{kind}").read_text("utf-8") for kind in ("css", "js")}
    hashes = {f"{kind}_hash": Markup(base64_of(hashlib.sha256(text.encode()).digest())) for kind, text in own.items()}
    parts = {kind: Markup(text) for kind, text in own.items()}
    return filled("report.html", html.escape, data=data_of, **parts, **hashes, **words)


def report(folders: Sequence[Path | str] | Path | str, out: Path | str | None = None, title: str | None = None) -> Path:
    """Writes report.html and report.md about folders of results; returns the path of report.html.

    Args:
        folders: of `arlab study`, `arlab sweep` and the like: all tables (.csv), figures (.png, .svg) and texts (.txt)
            in them are in the report.
        out: the folder for the report, which is made; figures and tables are copied into it, for report.md. By default
            the folder of results itself, where there is one.
        title: by default that of the first results.

    Raises InputError (a ValueError), with one line, for a folder without results or a file that is no table, before
    anything is written.
    """
    paths = [Path(each) for each in ([folders] if isinstance(folders, (str, Path)) else folders)]
    if not paths or (out is None and len(paths) > 1):
        why = "several folders: name one for the report, with --out (in Python: out=)" if paths else "no folder"
        raise InputError(why)
    resolved = pd.Index([path.resolve() for path in paths])
    for again in resolved.duplicated().nonzero()[0][:1]:
        raise InputError(f"the folder {paths[again]} is named twice")
    read = [read_folder(path) for path in paths]
    to = paths[0] if out is None else Path(out)
    command = shlex.join(["arlab", "report", *map(str, paths), *(["--out", str(out)] if out else [])])
    command += f" --title {shlex.quote(title)}" if title else ""
    heading = title or (read[0].title if len(read) == 1 else f"{read[0].title}, and {len(read) - 1} more")
    names = [path.name for path in resolved]
    places = [f"{name}-{i}/" if names.count(name) > 1 else f"{name}/" for i, name in enumerate(names, 1)]
    places = ["" if path == to.resolve() else place for path, place in zip(resolved, places)]
    files: dict[Path, bytes] = {
        to / place / name: read_bytes(folder.path / name)
        for folder, place in zip(read, places) if place
        for name in (*(path.name for path in folder.figures), *folder.tables)
    }  # fmt: skip
    words = {"title": heading, "command": command, "folders": list(zip(read, places))}
    link = lambda place: Markup(quote(place))  # noqa: E731
    files[to / "report.md"] = filled("report.md.jinja", markdown_text, code=code, link=link, **words).encode()
    files[to / "report.html"] = html_page(words).encode()
    for path, data in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {path.parent}: {error.strerror}") from error
        write_whole(path, data)
    return to / "report.html"
