"""Reads the tables and reports that arlab writes, and says in one line what is wrong with a file that is not one."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from arlab._errors import ArgumentError
from arlab._files import parsed_json, read_whole, unguarded

POINT = ["input", "tensor", "dtype", "ranks", "algorithm", "codec"]  # what names a row of a study
NEEDED = ("input", "tensor", "ranks", "algorithm", "codec", "wire_bits_per_element", "sqnr_db")
TOKENS = "token_sqnr_db"
LATENCY = "simulated_latency_us"
SWEEP_TEXTS = ("topology", "algorithm", "codec", "implementation")
SWEEP_INTERVAL = ("latency_us_low", "latency_us_high")
SWEEP_NUMBERS = ("ranks", "bytes", "latency_us", "algbw_gb_per_s", "busbw_gb_per_s")


class InputError(ArgumentError):
    """The input cannot be drawn; the message is one line for the user."""


def plural(count: int, noun: str) -> str:
    """`1 tensor`, `6 tensors`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def read_text(path: Path) -> tuple[str, str]:
    """The text of a file, and the beginning of its SHA-256."""
    try:
        data = read_whole(path)
        return data.decode("utf-8-sig"), hashlib.sha256(data).hexdigest()[:12]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


def read_table(path: Path, needed: tuple[str, ...] = ()) -> pd.DataFrame:
    """A CSV file as text, its index the numbers of the lines; attrs: its comments (by key, and as lines in head), its name with
    rows and SHA-256.

    A line is a comment if it begins with #; cells may hold one. So this is not pandas.read_csv(comment="#").
    """
    text, digest = read_text(path)
    comments: dict[str, str] = {}
    head: list[str] = []
    lines: dict[int, list[str]] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            comments.setdefault(key.strip(), value.strip())
            head.append(line[1:].strip())
        elif line.strip():
            try:
                lines[number] = [unguarded(cell) for cell in next(csv.reader([line]))]
            except csv.Error as error:
                raise InputError(f"{path}: line {number}: {error}") from error
    if not lines:
        raise InputError(f"{path}: there is no header line and there are no rows")
    first, *numbers = lines
    header = lines.pop(first)
    missing = [name for name in needed if name not in header]
    if missing:
        raise InputError(f"{path}: line {first}: missing column {', '.join(missing)}")
    if not lines:
        raise InputError(f"{path}: there are no rows below the header")
    for number, cells in lines.items():
        if len(cells) != len(header):
            raise InputError(f"{path}: line {number}: {len(cells)} cells, but the header has {len(header)}")
    table = pd.DataFrame(list(lines.values()), index=numbers, columns=header, dtype=object)
    file = f"{path.name}, {plural(len(table), 'row')}, SHA-256 {digest}"
    table.attrs = {"comments": comments, "head": head, "file": file}
    return table


def numbers_of(
    path: Path, table: pd.DataFrame, name: str, valid: Callable[[pd.Series], pd.Series], otherwise: str
) -> pd.Series:
    """A column as numbers, NaN where it is empty or missing."""
    if name not in table:
        return pd.Series(np.nan, table.index)
    text = table[name].astype(str).str.strip()
    values = pd.to_numeric(text.where(text != "", "nan"), errors="coerce").astype(float)
    wrong = values.isna() & ~text.str.lower().isin(["", "nan", "-nan"])
    for line in table.index[wrong][:1]:
        raise InputError(f"{path}: line {line}: {name} is '{text[line]}', which is not a number")
    for line in table.index[values.notna() & ~valid(values)][:1]:
        raise InputError(f"{path}: line {line}: {name} is '{text[line]}'; it must be {otherwise}")
    return values


def positive(values: pd.Series) -> pd.Series:
    """Which values are above 0 and finite."""
    return (values > 0) & np.isfinite(values)


def refuse_empty(path: Path, table: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Raises InputError for the first empty cell of these columns."""
    for name in names:
        for line in table.index[table[name].astype(str).str.strip() == ""][:1]:
            raise InputError(f"{path}: line {line}: {name} is empty")


def read_results(path: Path, metric: str = "token") -> pd.DataFrame:
    """results.csv of `arlab study`, as the figures of a study take it.

    sqnr_db is that of the median token where tensors have tokens, if `metric` is "token", else ("tensor") of whole tensors.

    sqnr_db (dB) is infinite where the result is exact and NaN where there is none; simulated_latency_us is NaN where
    nothing was simulated. attrs says title, file, and the provenance of exact and of simulated columns.
    """
    table = read_table(path, NEEDED)
    refuse_empty(path, table, ("input", "ranks", "algorithm", "codec", "wire_bits_per_element"))
    whole = "a whole number, at least 1"
    ranks = numbers_of(path, table, "ranks", lambda v: (v >= 1) & (v < 1e9) & (v % 1 == 0), whole)
    table["ranks"] = ranks.astype(int)
    table["wire_bits_per_element"] = numbers_of(path, table, "wire_bits_per_element", positive, "above 0")
    table[LATENCY] = numbers_of(path, table, LATENCY, positive, "above 0")
    table["sqnr_db"] = numbers_of(path, table, "sqnr_db", lambda v: v == v, "")
    table[TOKENS] = numbers_of(path, table, TOKENS, lambda v: v == v, "").replace(-np.inf, np.nan)
    frame = as_results(table)
    by_token = metric == "token" and bool(frame[TOKENS].notna().any())
    if by_token:
        frame["sqnr_db"] = frame["sqnr_db"].where(frame[TOKENS].isna() | np.isinf(frame["sqnr_db"]), frame[TOKENS])
    again = frame.duplicated(POINT)
    for line in frame.index[again][:1]:
        before = frame.index[(frame[POINT] == frame.loc[line, POINT]).all(axis=1)][0]
        raise InputError(f"{path}: line {line} repeats the point of line {before}")
    said = [part.strip() for part in table.attrs["comments"].get("provenance", "").split(";")]
    frame.attrs = {
        "title": next((v for k, v in table.attrs["comments"].items() if k.startswith("arlab.study/")), ""),
        "exact_provenance": "; ".join(p for p in said if p and not p.startswith(LATENCY)),
        "simulated_provenance": "; ".join(p for p in said if p.startswith(LATENCY)), "file": table.attrs["file"],
        "metric": "token" if by_token else "tensor",
    }  # fmt: skip
    return frame


def as_results(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of results in the form that read_results() gives; frames that were made otherwise are brought into it."""
    missing = [name for name in NEEDED if name not in frame]
    if missing:
        raise InputError(f"missing column {', '.join(missing)}")
    frame = frame.copy()
    for name in ("tensor", "dtype"):
        frame[name] = frame[name].fillna("").astype(str) if name in frame else ""
    if LATENCY not in frame:
        frame[LATENCY] = np.nan
    sqnr = pd.to_numeric(frame["sqnr_db"]).astype(float).replace(-np.inf, np.nan)
    if "exact" in frame:
        sqnr = sqnr.mask(frame["exact"].astype(str).str.strip().str.lower() == "true", np.inf)
    frame["sqnr_db"] = sqnr
    return frame


def read_sweep(path: Path) -> pd.DataFrame:
    """A sweep of `arlab simulate` or of measurements, a row per run, as the figures of sweep.py take it."""
    table = read_table(path, SWEEP_TEXTS + SWEEP_NUMBERS)
    refuse_empty(path, table, SWEEP_TEXTS + ("bytes", "latency_us"))
    for name in (*SWEEP_NUMBERS, "wire_bits_per_element", *SWEEP_INTERVAL):
        table[name] = numbers_of(path, table, name, positive, "above 0")
    table["sqnr_db"] = numbers_of(path, table, "sqnr_db", lambda v: v == v, "")
    said = table["provenance"].str.replace(r", topology .*", "", regex=True).unique() if "provenance" in table else []
    table.attrs["provenance"] = table.attrs["comments"].get("provenance", "") or "; ".join(said)
    return table


def read_report(
    path: Path, schema: str, what: str, head: Callable[[dict[str, Any]], dict[str, Any]] = lambda report: report
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
