"""`--help` of every command and JSON of some, as files that are read when they change: they are made of fields, so that a change far
from here may show.

ARLAB_WRITE_GOLDEN=1 writes help.txt and answers.txt anew.
"""

import os
import re
from pathlib import Path

from program import ok

COMMANDS = [
    "", "list", "encode", "decode", "reduce", "schedule", "simulate", "topology", "topology show",
    "topology flows", "topology compare", "topology import", "select", "vectors", "check-codec", "conform",
    "judge", "bench", "kernels", "kernels list", "kernels build", "kernels clear", "study", "sweep", "model",
    "model perplexity", "model layers", "model assign", "model capture", "model time", "model experts",
    "model validate", "report", "new", "new codec", "doctor", "completion", "validate", "calibrate",
]  # fmt: skip


# Answers that depend on a machine's fitted constants are left out: those change with every fit.
ANSWERS = [
    "list algorithms", "list all-reduces", "list inputs", "topology show full:2", "schedule --algorithm hierarchical --ranks 4 --group-size 2 --elements 64",
    "reduce --algorithm two_shot --codec qr-q4 --ranks 4 --synthetic gaussian:sigma=1,seed=1 --elements 8192",
    "reduce --algorithm ring --own exact --codec int5-g128 --ranks 3 --dtype bf16 --synthetic outliers:seed=1 --elements 1000",
    "simulate --topology full:8 --algorithm two_shot --codec int4-g32 --bytes 1M",
    "simulate --topology torus:2x2x2 --algorithm ring --codec fp16 --dtype fp16 --bytes 64K,1M", "simulate --topology ring:4 --algorithm tree --codec qr-q8 --bytes 1M --sensitivity",
    "sweep --topology full:4 --bytes 64K,1M --codec qr-q4,fp16 --algorithm ring,two_shot", "select --topology full:4 --bytes 1M --min-sqnr 20",
]  # fmt: skip


def is_what_it_was(name, text):
    golden = Path(__file__).with_name(name)
    if os.environ.get("ARLAB_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_help_is_what_it_was(tmp_path):
    # Versions of CLI11 end it with one empty line or with none.
    helps = (f"$ arlab {command} --help\n{ok(f'{command} --help', tmp_path).rstrip()}" for command in COMMANDS)
    is_what_it_was("help.txt", "\n\n".join(helps) + "\n")


def test_json_is_what_it_was(tmp_path):
    # The last digits of logarithms and powers are the C library's.
    text = "\n".join(f"$ arlab {command} --format json\n{ok(f'{command} --format json', tmp_path)}" for command in ANSWERS)
    is_what_it_was("answers.txt", re.sub(r"\d+\.\d+(e[+-]?\d+)?", lambda number: f"{float(number[0]):.10g}", text))
