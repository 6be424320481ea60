"""Reads the tables and reports that arlab writes, and says in one line what is wrong with a file that is not one."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from arlab._errors import ArgumentError
from arlab._files import parsed_json, read_whole, unguarded

POINT = ["input", "tensor", "dtype", "ranks", "algorithm", "codec"]  # key of a study's row
NEEDED = ("input", "tensor", "ranks", "algorithm", "codec", "wire_bits_per_element", "sqnr_db")
TOKENS = "token_sqnr_db"
LATENCY = "simulated_latency_us"
OPTIONAL = {"tensor": "", "dtype": "", LATENCY: np.nan}
SWEEP_TEXTS = ("topology", "algorithm", "codec", "implementation")
SWEEP_NUMBERS = ("ranks", "bytes", "latency_us", "algbw_gb_per_s", "busbw_gb_per_s")
SWEEP_OPTIONAL = ("wire_bits_per_element", "latency_us_low", "latency_us_high")


class InputError(ArgumentError):
    """The input cannot be drawn; the message is one line for the user."""


def plural(count: int, noun: str) -> str:
    """`1 tensor`, `6 tensors`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def read_text(path: str | Path) -> tuple[str, str]:
    """The text of a file, and the beginning of its SHA-256."""
    try:
        data = read_whole(path)
        return data.decode("utf-8-sig"), hashlib.sha256(data).hexdigest()[:12]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


def cells_of(path: str | Path, number: int, line: str) -> list[str]:
    """The cells of a line of CSV, as they were before apostrophes kept spreadsheets from running them."""
    try:
        return [unguarded(cell) for cell in next(csv.reader([line]))]
    except csv.Error as error:
        raise InputError(f"{path}: line {number}: {error}") from error


def read_table(path: str | Path, needed: Sequence[str] = ()) -> pd.DataFrame:
    """A CSV file as text, its index the numbers of the lines; attrs: its comments (by key, and as lines in head), its
    name with rows and SHA-256.

    A line is a comment if it begins with #; cells may hold one. So this is not pandas.read_csv(comment="#").
    """
    text, digest = read_text(path)
    lines = {number: line for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1) if line.strip()}
    head = [line[1:].strip() for line in lines.values() if line.startswith("#")]
    rows = {number: cells_of(path, number, line) for number, line in lines.items() if not line.startswith("#")}
    if not rows:
        raise InputError(f"{path}: there is no header line and there are no rows")
    first, *numbers = rows
    header = rows.pop(first)
    if missing := [name for name in needed if name not in header]:
        raise InputError(f"{path}: line {first}: missing column {', '.join(missing)}")
    if not rows:
        raise InputError(f"{path}: there are no rows below the header")
    for number, cells in rows.items():
        if len(cells) != len(header):
            raise InputError(f"{path}: line {number}: {len(cells)} cells, but the header has {len(header)}")
    table = pd.DataFrame(list(rows.values()), index=numbers, columns=header, dtype=object)
    comments = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(head))}
    file = f"{Path(path).name}, {plural(len(table), 'row')}, SHA-256 {digest}"
    table.attrs = {"comments": comments, "head": head, "file": file}
    return table


def numbers_of(
    path: str | Path, table: pd.DataFrame, name: str, valid: Callable[[pd.Series], Any] = np.isreal, otherwise: str = ""
) -> pd.Series:
    """A column as numbers, NaN where it is empty or missing."""
    if name not in table:
        return pd.Series(np.nan, table.index)
    text = table[name].astype(str).str.strip()
    values = pd.to_numeric(text.where(text != "", "nan"), errors="coerce").astype(float)
    wrong = values.isna() & ~text.str.lower().isin(["", "nan", "-nan"])
    for line in table.index[wrong | values.notna() & ~valid(values)][:1]:
        why = ", which is not a number" if wrong[line] else f"; it must be {otherwise}"
        raise InputError(f"{path}: line {line}: {name} is '{text[line]}'{why}")
    return values


def positive(path: str | Path, table: pd.DataFrame, name: str) -> pd.Series:
    """A column of values that are above 0 and finite."""
    return numbers_of(path, table, name, lambda values: (values > 0) & np.isfinite(values), "above 0")


def refuse_empty(path: str | Path, table: pd.DataFrame, names: Sequence[str]) -> None:
    """Raises InputError for the first empty cell of these columns."""
    for name in names:
        for line in table.index[table[name].astype(str).str.strip() == ""][:1]:
            raise InputError(f"{path}: line {line}: {name} is empty")


def read_results(path: str | Path, metric: str = "token") -> pd.DataFrame:
    """results.csv of `arlab study`, as the figures of a study take it.

    sqnr_db (dB) is that of the median token where tensors have tokens, if `metric` is "token", else ("tensor") of whole
    tensors. It is infinite where the result is exact and NaN where there is none; simulated_latency_us is NaN where
    nothing was simulated. attrs says title, file, and the provenance of exact and of simulated columns.
    """
    table = read_table(path, NEEDED)
    refuse_empty(path, table, ("input", "ranks", "algorithm", "codec", "wire_bits_per_element"))
    whole = lambda values: (values >= 1) & (values < 1e9) & (values % 1 == 0)  # noqa: E731
    table["ranks"] = numbers_of(path, table, "ranks", whole, "a whole number, at least 1").astype(int)
    for name in ("wire_bits_per_element", LATENCY):
        table[name] = positive(path, table, name)
    for name in ("sqnr_db", TOKENS):
        table[name] = numbers_of(path, table, name).replace(-np.inf, np.nan)
    frame = as_results(table)
    by_token = metric == "token" and bool(frame[TOKENS].notna().any())
    if by_token:
        frame["sqnr_db"] = frame["sqnr_db"].where(frame[TOKENS].isna() | np.isinf(frame["sqnr_db"]), frame[TOKENS])
    for line in frame.index[frame.duplicated(POINT)][:1]:
        before = frame.index[(frame[POINT] == frame.loc[line, POINT]).all(axis=1)][0]
        raise InputError(f"{path}: line {line} repeats the point of line {before}")
    said = [part.strip() for part in table.attrs["comments"].get("provenance", "").split(";")]
    titles = [value for key, value in reversed(table.attrs["comments"].items()) if key.startswith("arlab.study/")]
    frame.attrs = {
        "title": next(iter(titles), ""), "file": table.attrs["file"], "metric": "token" if by_token else "tensor",
        "exact_provenance": "; ".join(p for p in said if p and not p.startswith(LATENCY)),
        "simulated_provenance": "; ".join(p for p in said if p.startswith(LATENCY)),
    }  # fmt: skip
    return frame


def as_results(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of results in the form that read_results() gives; frames that were made otherwise are brought into it."""
    if missing := [name for name in NEEDED if name not in frame]:
        raise InputError(f"missing column {', '.join(missing)}")
    frame = frame.assign(**{name: missing for name, missing in OPTIONAL.items() if name not in frame})
    for name in ("tensor", "dtype"):
        frame[name] = frame[name].fillna("").astype(str)
    sqnr = pd.to_numeric(frame["sqnr_db"]).astype(float).replace(-np.inf, np.nan)
    if "exact" in frame:
        sqnr = sqnr.mask(frame["exact"].astype(str).str.strip().str.lower() == "true", np.inf)
    frame["sqnr_db"] = sqnr
    return frame


def read_sweep(path: str | Path) -> pd.DataFrame:
    """A sweep of `arlab simulate` or of measurements, a row per run, as the figures of sweep.py take it."""
    table = read_table(path, SWEEP_TEXTS + SWEEP_NUMBERS)
    refuse_empty(path, table, SWEEP_TEXTS + ("bytes", "latency_us"))
    for name in SWEEP_NUMBERS + SWEEP_OPTIONAL:
        table[name] = positive(path, table, name)
    table["sqnr_db"] = numbers_of(path, table, "sqnr_db")
    said = table["provenance"].str.replace(r", topology .*", "", regex=True).unique() if "provenance" in table else []
    table.attrs["provenance"] = table.attrs["comments"].get("provenance", "") or "; ".join(said)
    return table


def read_report(
    path: str | Path, schema: str, what: str, head: Callable[[dict[str, Any]], dict[str, Any]] = lambda report: report
) -> dict[str, Any]:
    """A JSON object that arlab wrote, `what` it is; the schema in its `head` is named `schema`/version."""
    text = read_text(path)[0]
    try:
        report: dict[str, Any] = parsed_json(text)
        known = head(report)["schema"].startswith(f"{schema}/")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not {what} ({error})") from error
    if not known:
        raise InputError(f"{path}: not {what}")
    return report
