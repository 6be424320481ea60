"""Common parts of the sources' studies: the rules of verdicts, tables, Markdown, and axes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pandas as pd
from arlab.figures import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PUBLISHED, ACTIVATIONS = ROOT / "experiments" / "published", ROOT / "experiments" / "data"
EXACT = "exact: computed from bits by arlab"
AGREES, PARTLY, NOT, LATER = "agrees", "partly", "**not**", "not yet"
Tables = dict[str, pd.DataFrame]
Plan = dict[str, Any]


class Found(NamedTuple):
    """Our value for a claim of study.toml; `published` and `how` where they are not those of study.toml."""

    ours: str
    verdict: str
    published: str = ""
    how: str = ""


@dataclass
class Report:
    """Results of a study from its CSV files: on its claims, by their names; pictures; words for its page."""

    claims: dict[str, Found]
    figures: Mapping[str, Callable[[], Figure]]
    words: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """`run` makes the tables that study.toml asks for, `report` reads them as they are in the CSV files.

    Exact values depend on no simulated time.
    """

    run: Callable[[Plan], Tables]
    report: Callable[[Tables, Plan], Report]
    exact: bool = False


def stop(why: str) -> NoReturn:
    """Ends with one line."""
    print(f"make.py: {why}", file=sys.stderr)
    raise SystemExit(2)


def by_error(percent: float) -> str:
    """The verdict on an error in percent."""
    return AGREES if percent <= 5 else PARTLY if percent <= 20 else NOT


def near(published: float, ours: float, text: str = "{:.2f}", more: str = "") -> Found:
    """A number beside a published one."""
    return Found(text.format(ours) + more, by_error(100 * abs(ours / published - 1)))


def equal(same: Any, ours: str) -> Found:
    """Exact values."""
    return Found(ours, AGREES if same else NOT)


def cases(holds: Iterable[Any], ours: str, published: str = "", how: str = "") -> Found:
    """A statement over cases; {} in the texts becomes `11 of 12`."""
    holds = [bool(each) for each in holds]
    share = sum(holds) / len(holds)
    verdict = AGREES if share == 1 else PARTLY if share >= 0.5 else NOT
    return Found(ours.format(count(holds)), verdict, published, how)


def count(holds: Iterable[Any]) -> str:
    """`11 of 12`."""
    holds = [bool(each) for each in holds]
    return f"{sum(holds)} of {len(holds)}"


def ordered(correlation: float, ours: str) -> Found:
    """A rank correlation."""
    return Found(ours, AGREES if correlation >= 0.9 else PARTLY if correlation >= 0.5 else NOT)


def spearman(a: Iterable[float], b: Iterable[float]) -> float:
    """Rank correlation; equal values share their ranks."""
    return float(pd.Series(list(a)).rank().corr(pd.Series(list(b)).rank()))


def made(rows: Iterable[Any], columns: Sequence[str] | str, provenance: str = EXACT) -> pd.DataFrame:
    """A table that knows where its numbers come from."""
    table = pd.DataFrame(list(rows), columns=columns.split() if isinstance(columns, str) else list(columns))
    table.attrs["provenance"] = provenance
    return table


def published_table(name: str) -> pd.DataFrame:
    """A table of experiments/published, its index the first column."""
    return pd.read_csv(PUBLISHED / f"{name}.csv", comment="#", index_col=0)


def tensors(name: str) -> dict[str, Any]:
    """The tensors of a file of experiments/data, [ranks, tokens, channels]."""
    from safetensors.numpy import load_file

    return dict(sorted(load_file(ACTIVATIONS / name).items()))


def cell(value: Any, digits: int = 3) -> str:
    """A cell of a page: so many significant digits, whole numbers as they are."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() else f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def markdown(table: pd.DataFrame, digits: int = 3) -> str:
    """A table of a page; numbers stand right."""
    right = [kind.kind in "if" for kind in table.dtypes]
    lines = [[str(name).strip().replace("_", " ") for name in table.columns], ["---:" if each else "---" for each in right]]
    lines += [[cell(each, digits) for each in row] for row in table.itertuples(index=False)]
    return "\n".join("|" + "|".join(line) + "|" for line in lines)


def size(number: float) -> str:
    """`64 MiB`."""
    return style.size_text(number).replace(style.NO_BREAK, " ")


def size_axis(axes: Axes, sizes: Iterable[float], every: int) -> None:
    """A log axis of payloads."""
    ticks = sorted(set(sizes))[::every]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [size(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.grid()


def line(label: str, colour: str, **look: Any) -> Any:
    """A line of a legend."""
    return style.handle(label, color=colour, **{"linestyle": "-", "linewidth": 2, **look})


def square(label: str, colour: str) -> Any:
    """An area of a legend."""
    return style.handle(label, color=colour, marker="s")
