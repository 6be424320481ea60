"""Every command of the program, small: what it is called with, and what it may leave behind."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from program import PROGRAM, REPOSITORY

import numpy as np

MOST_SECONDS = 120  # for any one run: a longer one hangs

STUDY = """
title = "tiny"
ranks = [2, 3]
algorithms = ["two_shot", "ring"]
codecs = ["fp16", "qr-q4"]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=1"
elements = 300

[[input]]
name = "mine"
file = "in{ranks}.npy"

[simulate]
topology = "own.toml"
bytes = "64K"
"""
TABLES = """
[[tables]]
name = "mine"
file = "table.csv"
source = "measured"
quantity = "latency_us"
dtype = "fp16"
topology = "mi300x-2"
rows_are = "bytes"
[tables.columns]
fp16 = { algorithm = "two_shot", codec = "fp16" }

[[fits]]
name = "mine"
tables = ["mine"]
shared = ["overhead.launch_us"]
own = []
"""
BENCH = "platform,machine,ranks,algorithm,codec,dtype,bytes,time_us,library\n" + "".join(
    f"cuda,h200,2,{algorithm},{codec},fp16,{1 << power},{9 + power},arlab\n"
    for algorithm in ("two_shot", "one_shot")
    for codec in ("fp16", "qr-q4")
    for power in (15, 20)
)


class Command(NamedTuple):
    line: str
    outputs: tuple = ()  # files and folders that it writes, whole or not at all
    same: bool = True  # whether two runs print and write the same


COMMANDS = {
    "list": Command("list codecs"),
    "encode": Command("encode --codec qr-q4 in2.npy out", ("out",)),
    "decode": Command("decode --codec qr-q4 in.wire out.npy", ("out.npy",)),
    "reduce": Command(
        "reduce --algorithm two_shot --codec int4-g32 --input in2.npy --out out.npy --threads 2", ("out.npy",)
    ),
    "schedule": Command("schedule --algorithm hierarchical --ranks 4 --elements 96 --group-size 2"),
    "schedule of a file": Command("schedule --schedule in.json --format table"),
    "simulate": Command(
        "simulate --topology own.toml --algorithm two_shot --codec qr-q4 --bytes 64K --trace out.json --no-plots",
        ("out.json",),
    ),
    "topology": Command("topology show torus:2x2"),
    "topology import": Command("topology import nccl.xml --out out.toml", ("out.toml",)),
    "schedule of MSCCL": Command("schedule --schedule allpairs.xml --elements 96 --format table"),
    "select": Command(
        "select --topology full:2 --synthetic gaussian --algorithms ring,two_shot --codecs fp16,qr-q4 --out out.json",
        ("out.json",),
    ),
    "validate": Command("validate --tables tables.toml"),
    "validate of a bench": Command("validate --against measured --file bench.csv --skip-hold-outs"),
    "calibrate": Command("calibrate --tables tables.toml --fit mine --out fitted", ("fitted",)),
    "vectors": Command("vectors --codec fp32 out", ("out",)),
    "check-codec": Command("check-codec qr-q4"),
    "conform": Command("conform --platform host --codec qr-q4 --algorithm one_shot --ranks 2 --elements 300"),
    "bench": Command(
        "bench --platform host --ranks 2 --calls 1 --replays 1 --bytes 256 --codec bf16 --algorithm one_shot --out out",
        ("out",),
        same=False,
    ),
    "judge": Command("judge --ranks 2 --dtype fp16 --lengths 1,33 --calls calls --answers answers --timeout 10"),
    "study": Command("study tiny.toml --no-plots --out out", ("out",)),
}


def make_inputs(folder):
    """Writes the files that the commands read."""
    folder = Path(folder)
    random = np.random.default_rng(1)
    for ranks in (2, 3):
        np.save(folder / f"in{ranks}.npy", random.standard_normal((ranks, 100)).astype(np.float16))
    (folder / "tiny.toml").write_text(STUDY)
    (folder / "tables.toml").write_text(TABLES)
    (folder / "bench.csv").write_text(BENCH)
    (folder / "fitted").mkdir()
    shutil.copy(REPOSITORY / "sim/topology/machines/l40-8.toml", folder / "own.toml")
    shutil.copy(REPOSITORY / "tests/sim/imports/nccl.xml", folder)
    shutil.copy(REPOSITORY / "tests/collectives/msccl/allpairs.xml", folder)
    shutil.copy(REPOSITORY / "experiments/published/quickreduce_mi300x_2gpu_latency_us.csv", folder / "table.csv")
    for command, output in [
        ("encode --codec qr-q4 in2.npy in.wire", None),
        ("schedule --algorithm ring --ranks 3 --elements 24", "in.json"),
    ]:
        done = subprocess.run([PROGRAM, *command.split()], cwd=folder, check=True, capture_output=True)
        if output:
            (folder / output).write_bytes(done.stdout)
    for name in ("calls", "answers"):
        os.mkfifo(folder / name)


class Done(NamedTuple):
    code: int
    stdout: bytes
    stderr: bytes


def run(line, folder, environment=None):
    """Runs `arlab LINE`; a judge gets a partner to talk to."""
    process = subprocess.Popen(
        [PROGRAM, *line.split()],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    other = threading.Thread(target=answer_judge, args=(folder, process)) if line.startswith("judge") else None
    if other:
        other.start()
    try:
        stdout, stderr = process.communicate(timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    finally:
        if other:
            other.join()
    return Done(process.returncode, stdout, stderr)


def answer_judge(folder, process, change=lambda answer: answer):
    """Sums what a judge asks for, until it has ended; `change` spoils the answers."""
    # Opened for both directions, neither end waits for the other; what is read ends when the judge has.
    calls = os.open(folder / "calls", os.O_RDWR | os.O_NONBLOCK)
    answers = os.open(folder / "answers", os.O_RDWR | os.O_NONBLOCK)
    try:
        judge_loop(calls, answers, process, change)
    finally:
        os.close(calls)
        os.close(answers)


def judge_loop(calls, answers, process, change):
    import json
    import select

    pending = b""
    while True:
        readable, _, _ = select.select([calls], [], [], 0.01)
        if not readable:
            if process.poll() is not None:
                return
            continue
        pending += os.read(calls, 1 << 16)
        line, found, rest = pending.partition(b"\n")
        if not found:
            continue
        call = json.loads(line)
        size = call["ranks"] * call["region_bytes"]
        if len(rest) < size:
            continue
        regions = np.frombuffer(bytearray(rest[:size]), np.uint8).reshape(call["ranks"], -1)
        pending = rest[size:]
        tensors = [row[call["input_at"] :][: 2 * call["elements"]].view(np.float16) for row in regions]
        with np.errstate(all="ignore"):
            total = sum(tensors[1:], tensors[0])
        for row in regions:
            row[call["output_at"] :][: 2 * call["elements"]] = total.view(np.uint8)
        reply = change(b"done\n" + regions.tobytes())
        while reply and process.poll() is None:
            _, writable, _ = select.select([], [answers], [], 0.01)
            if writable:
                reply = reply[os.write(answers, reply) :]


def contents(path):
    """Bytes of a file, of all files of a folder by name, or None."""
    path = Path(path)
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
    return path.read_bytes() if path.exists() else None


def python(script, folder, environment=None, arguments=()):
    """A Python program that uses the package."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
