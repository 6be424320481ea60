"""Lines of code in every room, as CONTRIBUTING.md lists them: of sources, without TOML, CMake, data, pages and notebooks.

    python tests/code_lines.py            is the table true, to a per cent?
    python tests/code_lines.py --write    put today's lines into it
"""

import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "CONTRIBUTING.md"
ROOMS = ("reference", "sim", "kernels", "experiments", "tests")
SUFFIXES = (".cc", ".h", ".hip", ".py", ".pyi", ".sh", ".js", ".css", ".html", ".pml")
ROW = re.compile(r"^\| (\S+) \| ([\d,]+) \|$", re.MULTILINE)


def lines_of(room: str) -> int:
    sources = (path for path in (REPOSITORY / room).rglob("*") if path.suffix in SUFFIXES)
    return sum(source.read_bytes().count(b"\n") for source in sources)


lines = {f"`{room}/`": lines_of(room) for room in ROOMS}
lines["together"] = sum(lines.values())
page = PAGE.read_text()
written = {name: int(count.replace(",", "")) for name, count in ROW.findall(page)}
if sys.argv[1:] == ["--write"]:
    PAGE.write_text(ROW.sub(lambda row: f"| {row[1]} | {lines.get(row[1], written[row[1]]):,} |", page))
elif wrong := [f"{name} has {count:,}" for name, count in lines.items() if abs(written.get(name, 0) - count) > 0.01 * count]:
    sys.exit(f"error: the lines of code in CONTRIBUTING.md are more than 1 % off: {', '.join(wrong)}; {Path(__file__).name} --write puts them right")
