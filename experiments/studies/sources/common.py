"""What the studies of the sources share: claims and the rules of their verdicts, tables in Markdown, folders and CSV files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PUBLISHED = ROOT / "experiments" / "published"
ACTIVATIONS = ROOT / "experiments" / "activations"
README = "QuickReduce README"
BLOG = "ROCm blog"
PAPER = "Flash Communication V2"

AGREES, PARTLY, NOT, LATER = "agrees", "partly", "**not**", "not yet"
RULES = """* **Numbers**: *agrees* within 5 % of the published number, *partly* within 20 %, else *not*. Tables of numbers: the same
  limits for the mean absolute error of their cells.
* **Statements** over cases: *agrees* if it holds in all of them, *partly* if in at least half, else *not*.
* **Exact values**: *agrees* if every one is equal, else *not*.
* **Orders**: rank correlation (Spearman) of at least 0.9 *agrees*, of at least 0.5 *partly*, else *not*."""

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Claim:
    """A row of the summary: what a source says, what we get, how we know it, and whether that is the same."""

    source: str
    claim: str
    published: str
    ours: str
    provenance: str
    verdict: str


@dataclass
class Report:
    """What the CSV files of a study say: its pictures, the words for its page, its claims."""

    claims: list[Claim]
    figures: dict[str, Callable[[], Figure]]
    words: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """`run` makes the tables that study.toml asks for; `report` reads them as they are in the CSV files.

    Exact studies need neither the simulator nor the program.
    """

    run: Callable[[dict[str, Any]], Tables]
    report: Callable[[Tables, dict[str, Any]], Report]
    exact: bool = False


def near(published: float, ours: float) -> str:
    """The verdict on a number."""
    return by_error(100 * abs(ours / published - 1))


def by_error(percent: float) -> str:
    """The verdict on an error in percent."""
    return AGREES if percent <= 5 else PARTLY if percent <= 20 else NOT


def equal(same: bool) -> str:
    """The verdict on exact values."""
    return AGREES if same else NOT


def in_cases(holds: Sequence[bool] | pd.Series) -> str:
    """The verdict on a statement over cases."""
    share = sum(map(bool, holds)) / len(holds)
    return AGREES if share == 1 else PARTLY if share >= 0.5 else NOT


def of_cases(holds: Sequence[bool] | pd.Series, what: str = "cases") -> str:
    """`11 of 12 sizes`."""
    return f"{sum(map(bool, holds))} of {len(holds)} {what}"


def by_rank(correlation: float) -> str:
    """The verdict on an order."""
    return AGREES if correlation >= 0.9 else PARTLY if correlation >= 0.5 else NOT


def spearman(a: Iterable[float], b: Iterable[float]) -> float:
    """Rank correlation; equal values share their ranks."""
    return float(pd.Series(list(a)).rank().corr(pd.Series(list(b)).rank()))


def made(rows: Iterable[Any], columns: Sequence[str] | None = None, *, provenance: str) -> pd.DataFrame:
    """A table that knows where its numbers come from."""
    table = pd.DataFrame(list(rows), columns=list(columns) if columns else None)
    table.attrs["provenance"] = provenance
    return table


def published_table(name: str) -> pd.DataFrame:
    """A table of experiments/published."""
    return pd.read_csv(PUBLISHED / f"{name}.csv", comment="#")


def number(value: Any, digits: int = 3) -> str:
    """A cell of a page: so many significant digits, whole numbers as they are."""
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "exact" if value > 0 else "-inf"
    if value.is_integer() and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def markdown(table: pd.DataFrame, digits: int = 3) -> str:
    """A table of a page; numbers stand right."""
    heads = [str(name) for name in table.columns]
    right = [pd.api.types.is_numeric_dtype(table[name]) for name in table.columns]
    lines = [heads, ["---:" if each else "---" for each in right]]
    lines += [[number(cell, digits) for cell in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def claims_table(claims: Iterable[Claim]) -> str:
    """The claims of one page."""
    rows = [(c.source, c.claim, c.published, c.ours, c.provenance, c.verdict) for c in claims]
    return markdown(pd.DataFrame(rows, columns=["source", "claim", "published", "ours", "ours is", "verdict"]))


def size(count: float) -> str:
    """`64 MiB`."""
    shift, unit = next(((s, u) for s, u in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if count >= 1 << s), (0, "bytes"))
    return f"{count / (1 << shift):g} {unit}"
