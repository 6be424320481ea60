#!/usr/bin/env python3
"""times.py BUILD: how long each group of a build folder took to compile and to test, in seconds, as a table in Markdown.

Of what was built and tested last: sums of the times of single steps, which are those of one core where as many ran at once as there are cores.
"""

import re
import sys
from collections import Counter
from pathlib import Path


def group_of_output(path):
    for folder in ("tests/kernels/mutants", "kernels/rocm", "tests/sim", "tests/kernels", "tests/codecs", "reference", "sim", "experiments"):
        if path.startswith(folder + "/"):
            return folder
    if path.startswith("kernels/"):
        return "kernels for emulated GPUs" if "host_kernels" in path else "kernels"
    return "other tests" if path.startswith("tests/") else "other"


def group_of_test(name):
    name = name.split(".")[0]
    for pattern, group in (
        ("kernels_mutants", "tests/kernels/mutants"),
        ("SimulatorMutants", "tests/sim"),
        ("kernels|Conformance$|Processes|Protocol|Emulator|Group", "tests/kernels"),
        (r"codecs|\w*[Cc]odec|AnyBit|QuickReduce|Golden|Formats|formats", "tests/codecs"),
        ("cli_", "tests/cli"),
        ("[Ff]uzz", "tests/fuzz"),
        ("python_|notebooks", "tests/python, notebooks"),
    ):
        if re.match(pattern, name):
            return group
    return "other tests"


def main(build):
    built, run, seconds = Counter(), Counter(), {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        seconds[re.sub(r".*/build/", "", output)] = (int(end) - int(start)) / 1000
    for output, took in seconds.items():
        if output.endswith((".o", ".co", ".gch")):
            built[group_of_output(output)] += took
    for line in (build / "Testing/Temporary/CTestCostData.txt").read_text().splitlines():
        if len(fields := line.split()) == 3:
            run[group_of_test(fields[0])] += float(fields[2])
    print("| group | build, s | run, s |\n| --- | --- | --- |")
    for group in sorted(built.keys() | run.keys(), key=lambda group: -built[group] - run[group]):
        print(f"| {group} | {built[group]:.0f} | {run[group]:.0f} |")
    print(f"| all | {sum(built.values()):.0f} | {sum(run.values()):.0f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
