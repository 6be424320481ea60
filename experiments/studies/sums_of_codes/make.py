#!/usr/bin/env python3
"""Sums of codes beside sums of decoded values: their error, and what they take.

    python experiments/studies/sums_of_codes/make.py            makes sums_of_codes.csv, .png and the table of README.md
    python experiments/studies/sums_of_codes/make.py --check    says whether the program would write another table (exit code 1)

It needs the build of ./quickstart.sh; ARLAB_BIN names another folder than build/bin.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path[:0] = [str(REPOSITORY / "experiments/site"), str(REPOSITORY / "experiments/python")]

from arlab.figures import style  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from repository import arlab  # noqa: E402
from page_tables import csv_text, filled, markdown, rows_of  # noqa: E402

STUDY = "experiments/studies/sums_of_codes/study.toml"
COLUMNS = ("input", "ranks", "algorithm", "codec", "wire_bits", "median_sqnr_db", "simulated_latency_us")
SHOWN = "MiniLM activations"
WAYS = {("shared-", "ring"): "ring of codes", ("shared-", "two_shot"): "two_shot of codes", ("int", "two_shot"): "two_shot of values", ("int", "ring"): "ring of values"}


def made() -> str:
    """The table of the study."""
    with tempfile.TemporaryDirectory(prefix="arlab-") as folder:
        arlab("study", STUDY, "--no-plots", "--out", folder, cwd=REPOSITORY)
        rows = [{name: row[name] for name in COLUMNS} for row in rows_of(Path(folder) / "summary.csv")]
    return csv_text(rows, f"command: build/bin/arlab study {STUDY}", "provenance: errors computed; simulated_latency_us simulated (h200-8, 64 MiB)")


def of_way(rows: list[dict[str, str]], begin: str, algorithm: str, ranks: int) -> list[dict[str, str]]:
    return [
        row for row in rows
        if row["codec"].startswith(begin) and row["algorithm"] == algorithm and row["ranks"] == str(ranks) and row["input"] == SHOWN
    ]  # fmt: skip


def table(rows: list[dict[str, str]]) -> str:
    """Ring of codes, and two_shot of values, on 2 and on 8 ranks."""
    lines = []
    for begin, algorithm in (("shared-", "ring"), ("int", "two_shot")):
        for two, eight in zip(of_way(rows, begin, algorithm, 2), of_way(rows, begin, algorithm, 8), strict=True):
            cells = [f"{float(row[name]):.{digits}f}" for row in (two, eight) for name, digits in (("median_sqnr_db", 1), ("simulated_latency_us", 0))]
            lines.append((f"`{two['codec']}`", f"`{algorithm}`", *cells))
    return markdown(("codec", "algorithm", "dB, 2 ranks", "µs", "dB, 8 ranks", "µs"), lines, "llrrrr")


@style.drawn
def figure_of(rows: list[dict[str, str]]) -> Figure:
    looks = dict(zip(WAYS.values(), ((style.ORANGE, "o"), (style.WINE, "s"), (style.BLUE, "s"), (style.INK, "o"))))
    page = style.new_page(
        "Sums of codes need more bits, and do not pay on NVLink",
        "Error and time of all-reduces of 64 MiB: every mark a codec, of more bits to the right",
        ["Error: SQNR of the sum, median over the activations of MiniLM. Time: simulated on 8 H200, of which 2, 4 or 8 take part; with sums of codes",
         "ranks agree on scales first, which is in it."],
        "experiments/studies/sums_of_codes/sums_of_codes.csv (errors computed, times simulated)",
        [[style.handle(way, linestyle="-", color=colour, marker=marker) for way, (colour, marker) in looks.items()]],
        body_in=3.2,
    )  # fmt: skip
    panels = page.subplots(1, 3, sharey=True)
    for axes, ranks in zip(panels, (2, 4, 8)):
        for (begin, algorithm), way in WAYS.items():
            mine = of_way(rows, begin, algorithm, ranks)
            colour, marker = looks[way]
            x, y = ([float(row[name]) for row in mine] for name in ("simulated_latency_us", "median_sqnr_db"))
            axes.plot(x, y, color=colour, marker=marker, linewidth=1.2, markersize=4)
        axes.set(title=f"{ranks} ranks", xlabel="time (µs)", xlim=0)
        axes.grid()
    panels[0].set_ylabel("SQNR (dB)")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the table that is there")
    check = parser.parse_args().check
    text = made()
    kept, page = HERE / "sums_of_codes.csv", HERE / "README.md"
    if check:
        if not kept.exists() or kept.read_text(encoding="utf-8") != text:
            sys.exit("error: the program says something else than sums_of_codes.csv; run make.py")
        rows = rows_of(kept)
        if filled(page.read_text(encoding="utf-8"), {"table": lambda: table(rows)}) != page.read_text(encoding="utf-8"):
            sys.exit("error: README.md has another table; run make.py")
        return
    kept.write_text(text, encoding="utf-8")
    rows = rows_of(kept)
    page.write_text(filled(page.read_text(encoding="utf-8"), {"table": lambda: table(rows)}), encoding="utf-8")
    style.use_own_fonts()
    style.save(figure_of(rows), HERE / "sums_of_codes.png")


if __name__ == "__main__":
    main()
