"""Two commands `arlab bench`, in turns on one machine: by what factor the second one's times are those of the first.

    bench_in_turns.py --out FILE.csv --before "build/bin/arlab bench --platform cuda ..." --after "build/bin/arlab bench ... --sum fp32"

Every turn runs both, in an order that changes; the factor is the median over turns, and its interval that in which the true median is
in 95 of 100 samples. Rows are those of the tables, by bytes, algorithm and codec, which both commands must have.
"""

import argparse
import csv
import io
import shlex
import statistics
import subprocess
import sys
from datetime import datetime, timezone

from measurement import command_line, csv_text, median_interval, write_whole

COLUMNS = ("algorithm", "codec", "bytes", "before_us", "after_us", "ratio", "ratio_low", "ratio_high", "turns")


def times_of(command):
    """{(algorithm, codec, bytes): microseconds} of one run."""
    run = subprocess.run([*shlex.split(command), "--format", "csv"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{command}: {run.stderr.strip()}")
    lines = (line for line in io.StringIO(run.stdout) if not line.startswith("#"))
    return {(row["algorithm"], row["codec"], int(row["bytes"])): float(row["time_us"]) for row in csv.DictReader(lines)}


def rows_of(before, after):
    """Yields a row for each point of the turns' times."""
    for point in before[0]:
        pairs = [(old[point], new[point]) for old, new in zip(before, after, strict=True)]
        low, ratio, high = median_interval([new / old for old, new in pairs])
        old, new = (statistics.median(times) for times in zip(*pairs, strict=True))
        figures = (f"{old:.3f}", f"{new:.3f}", f"{ratio:.4f}", f"{low:.4f}", f"{high:.4f}", len(pairs))
        yield dict(zip(COLUMNS, (*point, *figures), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True, help="a command; without --format")
    parser.add_argument("--after", required=True, help="likewise")
    parser.add_argument("--turns", type=int, default=9, help="runs of each [9]")
    parser.add_argument("--device", default="", help="what it ran on, for the file [not said]")
    parser.add_argument("--out", required=True, help="the file that is written")
    options = parser.parse_args()
    if options.turns < 1:
        parser.error(f"--turns {options.turns}: allowed are positive integers")
    started = datetime.now(timezone.utc)
    times = {options.before: [], options.after: []}
    if len(times) == 1:
        parser.error("--before and --after are the same command")
    for turn in range(options.turns):
        for command in (options.before, options.after) if turn % 2 == 0 else (options.after, options.before):
            times[command].append(times_of(command))
    before, after = times[options.before], times[options.after]
    if any(each.keys() != before[0].keys() for each in (*before, *after)):
        parser.error("--before and --after have rows of different bytes, algorithms or codecs")
    provenance = [f"command: {command_line()}", f"measured from {started:%F %T} UTC on, in {options.turns} turns"]
    if options.device:
        provenance.append(f"device: {options.device}")
    write_whole(options.out, csv_text(rows_of(before, after), provenance, COLUMNS))


if __name__ == "__main__":
    main()
