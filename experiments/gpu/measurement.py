"""Common parts of the scripts of this folder: sizes, provenance, and results files."""

import argparse
import csv
import io
import math
import os
import re
import shlex
import statistics
import sys
from datetime import date
from pathlib import Path

COLUMNS = ("platform", "machine", "ranks", "algorithm", "codec", "dtype", "bytes", "time_us", "library")


def parse_size(text):
    """Bytes: 32K, 16M or 16MiB, 1G, or a number; 64MB are 64 * 10^6. As reference/words.h has it."""
    match = re.fullmatch(r"([1-9]\d*)([KMG]?)(I?B)?", text.upper())
    if not match or (match[3] and not match[2]):
        raise ValueError(f"size {text!r}: allowed are a positive integer, or one with K, M or G (KiB, ...; KB, ... are decimal), as in 64M")
    return int(match[1]) * (1000 if match[3] == "B" else 1024) ** " KMG".index(match[2] or " ")


def sizes_between(least, most):
    """least, 2 least, 4 least, ... up to most."""
    sizes = []
    while least <= most:
        sizes.append(least)
        least *= 2
    return sizes


def time_of(times_by_rank):
    """One figure out of [rank][replay]: a replay takes as long as its slowest rank; the median of replays."""
    return statistics.median(max(replay) for replay in zip(*times_by_rank, strict=True))


def median_interval(values):
    """(low, median, high): between two of the values, by their order alone, the true median is in 95 of 100 samples.
    With fewer than six values, low and high are the extremes. NaN where a value is NaN."""
    if any(math.isnan(value) for value in values):
        return (math.nan,) * 3
    ordered, count = sorted(values), len(values)
    below, rank = 0.0, 0
    while below + math.comb(count, rank) / 2**count <= 0.025:
        below += math.comb(count, rank) / 2**count
        rank += 1
    at = max(rank - 1, 0)
    return ordered[at], statistics.median(ordered), ordered[count - 1 - at]


def shown(value, form):
    """A figure as text; nothing for a NaN."""
    return "" if math.isnan(value) else format(value, form)


def machine_name(device_name, ranks):
    """As arlab names machines: "NVIDIA H200" with 4 ranks is h200-4."""
    makers = ("", "nvidia", "amd", "instinct", "tesla")
    words = [word for word in re.split(r"[\s_-]+", device_name) if word.lower() not in makers]
    return f"{words[0].lower() if words else 'gpu'}-{ranks}"


def command_line():
    """The command, with this file's path as in the repository."""
    script = Path(sys.argv[0]).resolve()
    repository = Path(__file__).resolve().parents[2]
    shown = script.relative_to(repository) if script.is_relative_to(repository) else Path(script.name)
    return shlex.join([str(shown), *sys.argv[1:]])


def comments(lines):
    """Lines of provenance, as comments of a CSV file."""
    return "".join(f"# {line}\n" for text in lines for line in text.splitlines())


def write_whole(path, text):
    """Writes a file, or nothing: a reader never sees half of it."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def csv_text(rows, provenance, columns=COLUMNS):
    """Rows (dicts) under comment lines of provenance."""
    out = io.StringIO()
    out.write(comments(provenance))
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def today():
    return date.today().isoformat()


class Parser(argparse.ArgumentParser):
    """Has the options of every script of this folder. What is named in `counts` must be positive, in `sizes` are numbers with commas
    between, in `names` words."""

    def __init__(self, about, counts=(), sizes=(), names=()):
        super().__init__(description=about.splitlines()[0])
        self.counts, self.sizes, self.names = counts, sizes, names
        self.add_argument("--ranks", type=int, help="GPUs to use, when not under torchrun [all]")
        self.add_argument("--machine", help="name for the rows [h200-4, from the device and the ranks]")
        self.add_argument("--out", required=True, help="the file that is written")

    def parse(self, arguments):
        options = self.parse_args(arguments)
        for each in self.sizes:
            setattr(options, each, [parse_size(one) for one in getattr(options, each).split(",")])
        for each in self.names:
            setattr(options, each, getattr(options, each).split(","))
        if any(getattr(options, each) < 1 for each in self.counts):
            self.error(f"{' and '.join(f'--{each}' for each in self.counts)}: allowed are positive integers")
        if options.ranks is not None and options.ranks < 1:
            self.error(f"--ranks {options.ranks}: allowed are positive integers")
        if not Path(options.out).absolute().parent.is_dir():
            self.error(f"--out {options.out}: there is no such folder")
        return options


def require_choices(parser, options, algorithms=("nccl", "one_shot", "two_shot")):
    for option, allowed in (("algorithms", algorithms), ("dtypes", ("fp16", "bf16", "fp32"))):
        for name in getattr(options, option):
            if name not in allowed:
                parser.error(f"--{option} {name}: allowed are {', '.join(allowed)}")
