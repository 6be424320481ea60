#!/usr/bin/env python3
"""A first run on a machine with AMD GPUs, in one command: do the kernels give the reference's bits, and how fast are they?

    python3 experiments/gpu/first_run_rocm.py --out first_run

Steps, one after the other; first_run_rocm.md says what each is for. The output of each goes to a file of its name in
the folder. A step that fails, or takes longer than --limit, is said so in SUMMARY.md, and those that need nothing of it
go on. A folder that has results already is refused.
"""

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measurement  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
CODECS = "bf16,qr-q8,qr-q6,qr-q4,qr-fp8,int8-g128,int5-g128,int4-g32,int2-g32-sr"


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path, help="folder of the results, to be made")
    parser.add_argument("--program", default=REPOSITORY / "build" / "bin" / "arlab", type=Path, help="arlab [build/bin/arlab]")
    parser.add_argument("--platform", default="rocm", help="of arlab; host tries the script out [%(default)s]")
    parser.add_argument("--ranks", default="all", help="world sizes to measure, as in 2,8 [2, 4 and 8 that there are GPUs for]")
    parser.add_argument("--codecs", default=CODECS, help="to measure [%(default)s]")
    parser.add_argument("--bytes", default="16K,64K,256K,1M,4M,16M,64M,256M", help="to measure [%(default)s]")
    parser.add_argument("--conform", default="", help="more options of arlab conform, as in '--ranks 2'; with some of them it leaves no record")
    parser.add_argument("--bench", default="", help="more options of arlab bench")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a step may take [%(default)s]")
    options = parser.parse_args(arguments)
    if not options.program.is_file():
        parser.error(f"--program {options.program}: there is no such file; build arlab first")
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"--out {options.out}: the folder is not empty")
    return options


class Run:
    """The steps, and how they ended."""

    def __init__(self, options):
        self.options = options
        self.steps = []  # name, command, how it ended, seconds
        options.out.mkdir(parents=True, exist_ok=True)

    def step(self, name, *command):
        """True when it ended well."""
        shown = " ".join(map(str, command))
        print(f"{name}: {shown}", flush=True)
        began = time.monotonic()
        with open(self.options.out / name, "w") as output, open(self.options.out / f"{name}.log", "w") as log:
            try:
                done = subprocess.run([*map(str, command)], stdout=output, stderr=log, timeout=self.options.limit)
                ended = "done" if done.returncode == 0 else f"exit code {done.returncode}"
            except subprocess.TimeoutExpired:
                ended = f"ended after {self.options.limit:g} s"
            except OSError as error:
                ended = f"could not be started: {error.strerror}"
        log = self.options.out / f"{name}.log"
        if ended == "done" and not log.read_text().strip():
            log.unlink()
        self.steps.append((name, shown, ended, time.monotonic() - began))
        print(f"  {ended}", flush=True)
        return ended == "done"

    def skip(self, name, why):
        self.steps.append((name, "", why, 0.0))
        print(f"{name}: {why}", flush=True)

    def write_summary(self):
        lines = [f"# First run, {measurement.today()}", "", f"Command: `{measurement.command_line()}`", ""]
        lines += ["| result | how it ended | seconds | command |", "| --- | --- | --- | --- |"]
        lines += [f"| {name} | {ended} | {seconds:.0f} | {f'`{shown}`' if shown else ''} |" for name, shown, ended, seconds in self.steps]
        for name, _, ended, _ in self.steps:
            log = self.options.out / f"{name}.log"
            if ended != "done" and log.exists() and log.read_text().strip():
                lines += ["", f"{name}: {log.read_text().strip().splitlines()[-1]}"]
        measurement.write_whole(self.options.out / "SUMMARY.md", "\n".join(lines) + "\n")


def devices_of(doctor, platform):
    """How many, and what they are called, from what arlab doctor says of the platform; (0, "") where it cannot be used."""
    for finding in json.loads(doctor.read_text())["findings"]:
        if finding["what"] == f"platform {platform}" and finding["state"] == "here":
            count, _, name = finding["detail"].partition(", ")
            return int(count.split()[0]), name
    return 0, ""


def has_quick_reduce():
    return importlib.util.find_spec("torch") is not None and importlib.util.find_spec("vllm") is not None


def all_steps(run):
    options, arlab = run.options, run.options.program
    on = ("--platform", options.platform)
    if not run.step("doctor.json", arlab, "doctor", "--format", "json"):
        return False
    devices, device = devices_of(options.out / "doctor.json", options.platform)
    if devices == 0:
        run.skip("conform", f"no device of platform {options.platform} can be used")
        return False
    for tool, *arguments in (("rocminfo",), ("rocm-smi", "--showtopo", "--showdriverversion")):
        if options.platform == "rocm" and shutil.which(tool):
            run.step(f"{tool}.txt", tool, *arguments)
    # Flags first: they ask less of memory. Sentinels leave a record when they pass, so that calls take them.
    passed = {
        protocol: run.step(
            f"conform_{protocol}.csv", arlab, "conform", *on, "--protocol", protocol, "--format", "csv", *options.conform.split()
        )
        for protocol in ("flags", "sentinels")
    }
    world_sizes = [size for size in (2, 4, 8) if size <= devices] if options.ranks == "all" else options.ranks.split(",")
    measured = []
    for ranks in world_sizes:
        for protocol in ("flags", "sentinels"):
            name = f"bench_{protocol}_{ranks}.csv"
            if not passed[protocol]:
                run.skip(name, f"left out: conform has not passed with {protocol}")
                continue
            vendor = ("--vendor",) if options.platform != "host" else ()
            out = options.out / f"times_{protocol}_{ranks}.csv"
            machine = measurement.machine_name(device, ranks)
            if run.step(
                name, arlab, "bench", *on, "--ranks", ranks, "--protocol", protocol, "--codec", options.codecs, "--bytes", options.bytes,
                "--machine", machine, "--format", "csv", "--out", out, *vendor, *options.bench.split(),
            ):  # fmt: skip
                measured.append((ranks, protocol, out))
        if options.platform != "host" and has_quick_reduce():
            script = REPOSITORY / "experiments" / "gpu" / "bench_torch_allreduce.py"
            run.step(
                f"bench_quick_reduce_{ranks}.txt", sys.executable, script, "--ranks", ranks, "--algorithms", "nccl,quick_reduce",
                "--dtypes", "bf16,fp16", "--out", options.out / f"times_quick_reduce_{ranks}.csv",
            )  # fmt: skip
        else:
            run.skip(f"bench_quick_reduce_{ranks}.txt", "left out: PyTorch and vLLM, which has QuickReduce, are not both installed")
    for ranks, protocol, out in measured:
        name = f"calibrate_{protocol}_{ranks}.txt"
        if options.platform == "host":
            run.skip(name, "left out: emulated GPUs have no times")
            continue
        machines = options.out / f"machines_{protocol}_{ranks}"
        machines.mkdir()
        run.step(name, arlab, "calibrate", "--file", out, "--out", machines)
    return all(ended == "done" or ended.startswith(("left out: PyTorch", "left out: emulated")) for _, _, ended, _ in run.steps)


def main(arguments=None):
    run = Run(parse_arguments(arguments))
    try:
        well = all_steps(run)
    finally:
        run.write_summary()
    print(f"{run.options.out / 'SUMMARY.md'} says how each step ended")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
