"""SQNR token by token: adds tokens.csv to the results.csv of an accuracy study.

The SQNR of a whole tensor weighs by energy: where one element holds most of it, that figure says how well this element
is encoded. The network does not look at a tensor so: it normalizes every token (row) by itself. So every point of the
study that has a file is run again, with `arlab reduce --out`, and the SQNR of each token is taken:

    all-reduce    token t of the sum, the same on every rank
    all-to-all    token t of rank r, put together again from the slots that the ranks received

Both against float64 sums or values, which are exact. tokens.csv has their median and the worst. As a check, the SQNR of
the whole tensor is taken too and must be the one in results.csv.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from arlab.figures.style import write_whole
from arlab.figures.tables import CheckFailed, InputError, read_results

Array = NDArray[np.float64]


def points_of(study_path: Path, folder: Path) -> pd.DataFrame:
    """The rows of results.csv whose input is a file, which is in column path."""
    import tomllib  # of Python 3.11; the rest of the package does without

    try:
        files = {each["name"]: each.get("file") for each in tomllib.loads(study_path.read_text("utf-8"))["input"]}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{study_path}: {error}") from error
    rows = read_results(folder / "results.csv", "tensor")
    rows = rows[rows["input"].map(files).notna()]
    paths = [
        study_path.parent / files[name].replace("{ranks}", str(n)) for name, n in zip(rows["input"], rows["ranks"])
    ]
    return rows.assign(path=paths)


def read_tensor(path: Path, name: str) -> Array:
    """A float16 tensor [ranks, tokens, hidden] of a .safetensors file."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:end])[name]
    if entry["dtype"] != "F16" or len(entry["shape"]) != 3:
        raise InputError(f"{path}: {name} is {entry['dtype']} {entry['shape']}, not F16 of 3 axes")
    start, stop = (end + offset for offset in entry["data_offsets"])
    return np.frombuffer(data[start:stop], "<f2").reshape(entry["shape"]).astype(np.float64)


def reduce(arlab: str, point: Any) -> Array:
    """What the ranks end with."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.npy"
        words = [arlab, "reduce", "--threads", "1", "--out", out, "--algorithm", point.algorithm]
        words += ["--codec", point.codec, "--input", point.path, "--tensor", point.tensor]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        except OSError as error:
            raise InputError(
                f"cannot run {arlab}: {error.strerror}; --arlab or ARLAB_PROGRAM names the program"
            ) from error
        if done.returncode != 0:
            raise InputError(done.stderr.strip() or f"{arlab} failed")
        return np.load(out).astype(np.float64)


def in_place(outputs: Array) -> Array:
    """The outputs of an all-to-all, every slot back where it came from."""
    ranks = outputs.shape[0]
    return outputs.reshape(ranks, ranks, -1).transpose(1, 0, 2).reshape(outputs.shape)


def sqnr_of(signal: Array, error: Array) -> Array:
    """SQNR (dB) of each row; infinite without an error, NaN without a signal and with one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sum(signal**2, axis=-1) / np.sum(error**2, axis=-1)
        return np.where(np.any(error, axis=-1), 10 * np.log10(ratio), np.inf)


def figures_of(algorithm: str, inputs: Array, outputs: Array) -> tuple[Array, float]:
    """SQNR of every token, and of the whole tensor."""
    moved = algorithm == "all_to_all"
    exact, result = (inputs, in_place(outputs)) if moved else (inputs.sum(axis=0), outputs[0])
    error = result - exact
    return sqnr_of(exact, error).reshape(-1), float(sqnr_of(exact.reshape(-1), error.reshape(-1)))


def measure(arlab: str, point: Any) -> dict[str, Any]:
    """The row of a point in tokens.csv."""
    tokens, whole = figures_of(point.algorithm, read_tensor(point.path, point.tensor), reduce(arlab, point))
    if not math.isclose(whole, point.sqnr_db, rel_tol=1e-9, abs_tol=1e-9):
        raise CheckFailed(
            f"{point.tensor}, {point.ranks} ranks, {point.algorithm}, {point.codec}: {whole} dB, but results.csv says "
            f"{point.sqnr_db} dB; is it of this study and of this {arlab}?"
        )
    named = {name: getattr(point, name) for name in ("input", "tensor", "ranks", "algorithm", "codec")}
    figures = {"median_token_sqnr_db": float(np.median(tokens)), "worst_token_sqnr_db": float(min(tokens))}
    return named | {"tokens": len(tokens)} | figures | {"sqnr_db": whole}


def write_tokens(study: Path, folder: Path, arlab: str, command: str) -> Path:
    """Writes tokens.csv into the folder of a study's results.csv, by running the program `arlab`; returns its path."""
    points = points_of(study, folder)
    try:
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            rows = list(workers.map(lambda point: measure(arlab, point), points.itertuples()))
    except OSError as error:
        raise InputError(str(error)) from error
    head = f"# arlab.study.tokens/1: SQNR token by token\n# command: {command}\n"
    head += "# provenance: all columns exact (computed from bits that arlab reduce wrote)\n"
    write_whole(folder / "tokens.csv", (head + pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")).encode())
    return folder / "tokens.csv"
