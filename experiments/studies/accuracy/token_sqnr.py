#!/usr/bin/env python3
"""SQNR token by token: `token_sqnr.py STUDY.toml FOLDER` adds FOLDER/tokens.csv to its results.csv.

The SQNR of a whole tensor weighs by energy: where one element holds most of it, that figure says
how well this element is encoded. The network does not look at a tensor so: it normalizes every
token (row) by itself. So this script runs every point of the study that has a file again, with
`arlab reduce --out`, and takes the SQNR of each token:

    all-reduce    token t of the sum, the same on every rank
    all-to-all    token t of rank r, put together again from the slots that the ranks received

Both against float64 sums or values, which are exact. tokens.csv has their median and the worst. As
a check, the SQNR of the whole tensor is taken too and must be the one in results.csv.

Exit code: 0; 1 when that check fails; 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[3]
COLUMNS = ("input", "tensor", "ranks", "algorithm", "codec", "tokens")
FIGURES = ("median_token_sqnr_db", "worst_token_sqnr_db", "sqnr_db")


class InputError(Exception):
    """Something that the user gave cannot be used; the message is one line."""


class CheckFailed(Exception):
    """The figures are not those of the study."""


@dataclass(frozen=True)
class Point:
    """A row of results.csv whose input is a file."""

    file: Path
    input: str
    tensor: str
    ranks: int
    algorithm: str
    codec: str
    sqnr_db: float


def points_of(study_path: Path, folder: Path) -> list[Point]:
    """The points of the study that have a file, with the SQNR that results.csv gives them."""
    try:
        with study_path.open("rb") as file:
            study = tomllib.load(file)
        with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(str(error)) from error
    files = {i["name"]: i["file"] for i in study["input"] if "file" in i}
    return [
        Point(
            study_path.parent / files[row["input"]].replace("{ranks}", row["ranks"]),
            row["input"],
            row["tensor"],
            int(row["ranks"]),
            row["algorithm"],
            row["codec"],
            math.inf if row["exact"] == "true" else float(row["sqnr_db"] or "nan"),
        )
        for row in rows
        if row["input"] in files
    ]


def read_tensor(path: Path, name: str) -> NDArray[np.float64]:
    """A float16 tensor [ranks, tokens, hidden] of a .safetensors file."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:end])[name]
    if entry["dtype"] != "F16" or len(entry["shape"]) != 3:
        raise InputError(f"{path}: {name} is {entry['dtype']} {entry['shape']}, not F16 of 3 axes")
    start, stop = (end + offset for offset in entry["data_offsets"])
    return np.frombuffer(data[start:stop], "<f2").reshape(entry["shape"]).astype(np.float64)


def reduce(arlab: Path, point: Point) -> NDArray[np.float64]:
    """What the ranks end with."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.npy"
        words: list[str | Path] = [arlab, "reduce", "--threads", "1", "--out", out]
        words += ["--algorithm", point.algorithm, "--codec", point.codec]
        words += ["--input", point.file, "--tensor", point.tensor]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise InputError(done.stderr.strip() or f"{arlab} failed")
        outputs: NDArray[np.float64] = np.load(out).astype(np.float64)
        return outputs


def in_place(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The outputs of an all-to-all, every slot back where it came from."""
    ranks = outputs.shape[0]
    slots = outputs.reshape(ranks, ranks, -1)
    return slots.transpose(1, 0, 2).reshape(outputs.shape)


def decibels(signal: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """SQNR of each row; infinite without an error, NaN without a signal and with one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sum(signal**2, axis=-1) / np.sum(error**2, axis=-1)
        return np.where(np.any(error, axis=-1), 10 * np.log10(ratio), np.inf)


def figures_of(
    algorithm: str, inputs: NDArray[np.float64], outputs: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """SQNR of every token, and of the whole tensor."""
    if algorithm == "all_to_all":
        exact, result = inputs, in_place(outputs)
    else:
        exact, result = inputs.sum(axis=0), outputs[0]
    error = result - exact
    tokens = decibels(exact, error).reshape(-1)
    return tokens, float(decibels(exact.reshape(-1), error.reshape(-1)))


def measure(arlab: Path, point: Point) -> list[str]:
    """The row of a point in tokens.csv."""
    inputs = read_tensor(point.file, point.tensor)
    tokens, whole = figures_of(point.algorithm, inputs, reduce(arlab, point))
    if not math.isclose(whole, point.sqnr_db, rel_tol=1e-9, abs_tol=1e-9):
        raise CheckFailed(
            f"{point.tensor}, {point.ranks} ranks, {point.algorithm}, {point.codec}: {whole} dB,"
            f" but results.csv says {point.sqnr_db} dB; is it of this study and of this {arlab}?"
        )
    key = [point.input, point.tensor, point.ranks, point.algorithm, point.codec, len(tokens)]
    return [str(k) for k in key] + [repr(float(f)) for f in (np.median(tokens), min(tokens), whole)]


def write(path: Path, command: str, rows: list[list[str]]) -> None:
    """tokens.csv, in the manner of results.csv."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# arlab.study.tokens/1: SQNR token by token\n# command: {command}\n")
        file.write("# provenance: all columns exact (computed from bits that arlab reduce wrote)\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *FIGURES])
        writer.writerows(rows)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="SQNR token by token of a study's file inputs.")
    parser.add_argument("study", metavar="STUDY.toml", type=Path)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where its results.csv is")
    parser.add_argument("--arlab", type=Path, default=ROOT / "build" / "bin" / "arlab")
    options = parser.parse_args()
    command = f"token_sqnr.py {options.study} {options.folder}"
    try:
        points = points_of(options.study, options.folder)
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            rows = list(workers.map(lambda point: measure(options.arlab, point), points))
        write(options.folder / "tokens.csv", command, rows)
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except CheckFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(options.folder / "tokens.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
