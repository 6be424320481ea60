#!/usr/bin/env python3
"""Runs the commands of the page "What if?" and keeps a table and a picture of each beside it.

    python experiments/studies/what_if/make.py           then: python experiments/site/quoted.py --write
    python experiments/studies/what_if/make.py --check   says which tables the program would write differently (exit code 1)

A command is a block of README.md that begins with arlab sweep and ends with --out results/what_if/NAME; the picture that the page shows below it
is NAME.png, and its text in brackets names the figure of the sweep. It needs the build of ./quickstart.sh; ARLAB_BIN
names another folder than build/bin.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path.insert(0, str(REPOSITORY / "experiments/site"))

from repository import arlab  # noqa: E402
from page_tables import csv_text, rows_of  # noqa: E402

QUESTION = re.compile(r"^    build/bin/arlab (sweep [^`]*? --out results/what_if/(\w+))\n.*?^!\[[^]]*\]\(\2\.png \"(\w+)\"\)", re.MULTILINE | re.DOTALL)
COLUMNS = ("topology", "algorithm", "codec", "implementation", "bytes", "latency_us")


def questions() -> list[tuple[list[str], str, str]]:
    """The words of each command, its name, and its figure."""
    return [(m[1].replace("\\\n", " ").split(), m[2], m[3]) for m in QUESTION.finditer((HERE / "README.md").read_text(encoding="utf-8"))]


def table_of(sweep: Path, words: list[str]) -> str:
    rows = [{name: row[name] for name in COLUMNS} | {"latency_us": float(row["latency_us"])} for row in rows_of(sweep)]
    return csv_text(rows, f"command: build/bin/arlab {' '.join(words)}", "provenance: simulated")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the tables that are there")
    check = parser.parse_args().check
    differ = []
    for words, name, figure in questions():
        with tempfile.TemporaryDirectory(prefix="arlab-") as folder:
            options = " ".join([*words[:-1], folder])
            if check:  # no figures, in which something could stand out
                options = re.sub(r" --highlight \S+", "", options) + " --no-plots"
            arlab(*options.split(), cwd=REPOSITORY)
            table = table_of(Path(folder) / "sweep.csv", words)
            if not check:
                (HERE / f"{name}.csv").write_text(table, encoding="utf-8")
                shutil.copyfile(Path(folder) / f"{figure}.png", HERE / f"{name}.png")
            elif (HERE / f"{name}.csv").read_text(encoding="utf-8") != table:
                differ.append(name)
    if differ:
        sys.exit(f"error: {', '.join(differ)}: the program says something else now; run make.py and quoted.py --write")


if __name__ == "__main__":
    main()
