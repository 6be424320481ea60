"""Tables of studies and of pages: rows of result files, Markdown, and pages that are filled in."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MARK = re.compile(r"<!-- ((\w+)\([^\n]*?\)) -->\n(?:.*?\n)??<!-- end -->", re.DOTALL)


def rows_in(text: str) -> list[dict[str, str]]:
    """Returns the rows of a CSV text, in which lines that begin with # are comments."""
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def rows_of(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file."""
    return rows_in(path.read_text(encoding="utf-8"))


def csv_text(rows: Sequence[Mapping[str, Any]], *comments: str) -> str:
    """CSV below comments, with six digits of each float."""
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in comments)
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: f"{each:.6g}" if isinstance(each, float) else each for key, each in row.items()} for row in rows)
    return text.getvalue()


def markdown(heads: Sequence[str], rows: Iterable[Sequence[Any]], align: str = "") -> str:
    """A table of a page. `align` has l or r for each column; by default all are l."""
    kinds = ["---:" if each == "r" else "---" for each in align or "l" * len(heads)]
    return "\n".join(f"|{'|'.join(map(str, cells))}|" for cells in (heads, kinds, *rows))


def filled(page: str, functions: Mapping[str, Callable[..., str]]) -> str:
    """The page with the value of `<!-- expression -->` between that and `<!-- end -->`, where there is such a function."""

    def value(mark: re.Match[str]) -> str:
        if mark[2] not in functions:
            return mark[0]
        return f"<!-- {mark[1]} -->\n\n{eval(mark[1], {'__builtins__': {}}, dict(functions))}\n\n<!-- end -->"  # noqa: S307  (our own page)

    return MARK.sub(value, page)
