"""Lines of code in every room, as CONTRIBUTING.md lists them: of sources, without TOML, CMake, data, pages and notebooks.

    python tests/code_lines.py            is the table true, to a per cent, and is nothing above its bound?
    python tests/code_lines.py --write    put today's lines into it

A change may raise a bound in a commit of its own that says why.
"""

import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "CONTRIBUTING.md"
PRODUCT = ("reference", "sim", "kernels", "experiments")
EVIDENCE = tuple(f"experiments/{room}" for room in ("activations", "benchmarks", "gpu", "site", "studies"))
SUFFIXES = (".cc", ".h", ".hip", ".py", ".pyi", ".sh", ".js", ".css", ".html", ".pml")

#: The most lines, and the goal: a figure for commit d95d3cd7, and what was added from there to 8accf110, when it was set.
BOUNDS = {"product": (121_900, 87_500 + 16_910), "evidence": (9_850, 9_500 + 11), "tests": (63_200, 44_500 + 9_965)}
#: Most lines of Python above 120 columns: as many as there were at 8accf110.
MOST_LONG_LINES = 1_506

HEAD = "| room | lines of code | bound | goal | above the goal |\n| --- | ---: | ---: | ---: | ---: |\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)+")
ROW = re.compile(r"^\| (\S+) \| ([\d,]+) \|", re.MULTILINE)


def lines_in(*rooms: str) -> list[bytes]:
    files = (path for room in rooms for path in (REPOSITORY / room).rglob("*") if path.suffix in SUFFIXES)
    return [line for file in files for line in file.read_bytes().splitlines()]


def counted() -> dict[str, int]:
    counts = {f"`{room}/`": len(lines_in(room)) for room in PRODUCT}
    counts["evidence"] = len(lines_in(*EVIDENCE))
    counts["`experiments/`"] -= counts["evidence"]
    return counts | {"product": sum(counts.values()) - counts["evidence"], "tests": len(lines_in("tests"))}


def table_of(counts: dict[str, int]) -> str:
    rows = [f"| {room} | {count:,} | | | |\n" for room, count in counts.items() if room not in BOUNDS]
    for kind, (most, goal) in BOUNDS.items():
        rows.append(f"| {kind} | {counts[kind]:,} | {most:,} | {goal:,} | {max(counts[kind] - goal, 0):,} |\n")
    return HEAD + "".join(rows)


def long_lines() -> int:
    scripts = (path for room in (*PRODUCT, "tests") for path in (REPOSITORY / room).rglob("*.py"))
    return sum(len(line) > 120 for script in scripts for line in script.read_text("utf-8").splitlines())


def wrong_in(page: str, counts: dict[str, int]) -> list[str]:
    written = {name: int(count.replace(",", "")) for name, count in ROW.findall(TABLE.search(page)[0])}
    off = [name for name, count in counts.items() if abs(written.get(name, 0) - count) > 0.01 * count]
    wrong = [f"{name} has {counts[name]:,} lines, which CONTRIBUTING.md tells more than 1 % off" for name in off]
    if not off and table_of(written) not in page:
        wrong = ["CONTRIBUTING.md has another table of lines of code"]
    return [f"{each}; {Path(__file__).name} --write puts it right" for each in wrong]


def above_bounds(counts: dict[str, int], long: int) -> list[str]:
    wrong = [f"{kind} has {counts[kind]:,} lines of code: allowed are {most:,}" for kind, (most, _) in BOUNDS.items() if counts[kind] > most]
    if long > MOST_LONG_LINES:
        wrong.append(f"{long:,} lines of Python have more than 120 columns: allowed are {MOST_LONG_LINES:,}")
    return wrong


if __name__ == "__main__":
    counts, page = counted(), PAGE.read_text()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page := TABLE.sub(table_of(counts), page))
    if wrong := wrong_in(page, counts) + above_bounds(counts, long_lines()):
        sys.exit("\n".join(f"error: {each}" for each in wrong))
