#!/usr/bin/env python3
"""left_out.py BUILD: one line on what the last run of BUILD's tests did not see, or nothing: parts that were not built, tests that were skipped.

Parts come from CMake (`arlab_left_out`), skipped tests from CTest's log: programs of GoogleTest and pytest say why.
"""

import re
import sys
from collections import Counter
from pathlib import Path


def left_out(build):
    parts = (build / "left_out.txt").read_text().split("\n")[:-1]
    log = (build / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    skipped = Counter()
    for count, reason in re.findall(r"^SKIPPED \[(\d+)\] [^ ]+ (.*)$", log, re.MULTILINE):  # pytest -rs
        skipped[reason.removeprefix("Skipped: ")] += int(count)
    # GoogleTest says the reason, if there is one, in the line behind the place.
    for reason in re.findall(r"^\S+:\d+: Skipped\n(.*)\n", log, re.MULTILINE):
        skipped[reason or "no reason is given"] += 1
    tests = [f"{sum(skipped.values())} tests ({'; '.join(f'{n} x {why}' for why, n in sorted(skipped.items()))})"] if skipped else []
    return "; ".join(parts + tests)


if __name__ == "__main__":
    print(left_out(Path(sys.argv[1])))
