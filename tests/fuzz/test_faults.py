"""Every command, with the n-th call of a kind failing: memory, files, threads, sockets.

Required: no signal of the program's own making; exit code 0, 1 or 2, with one line where it is 2; outputs whole or
absent, and nothing left behind; a study that --resume completes to the file that an undisturbed one writes.

    ARLAB_FAULTS=all .venv/bin/python -m pytest tests/fuzz/test_faults.py      every n; hours
"""

import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from commands import COMMANDS, contents, make_inputs, python, run
from program import MOST_CHARACTERS

INJECTOR = os.environ["ARLAB_FAULT_INJECTOR"]
# How many n of a command are tried, of those that there are. Calls for memory are counted in thousands.
MOST = {
    "malloc": 40, "mmap": 4, "open": 8, "write": 6, "rename": 4, "fsync": 6, "thread": 4,
    "socket": 4, "connect": 4, "accept": 4,
}  # fmt: skip
ALL = os.environ.get("ARLAB_FAULTS") == "all"
SEED = int(os.environ.get("ARLAB_FAULTS_SEED", "1"))


def numbers(kind, count, generator):
    """Returns the calls among `count` that are to fail: the first, the last, and some between."""
    if ALL or count <= MOST[kind]:
        return range(1, count + 1)
    between = generator.sample(range(2, count), MOST[kind] - 2)
    return [1, *sorted(between), count]


def fresh(inputs, folder):
    shutil.copytree(inputs, folder, ignore=shutil.ignore_patterns("calls", "answers"))
    for name in ("calls", "answers"):
        os.mkfifo(folder / name)
    (folder / "tmp").mkdir()
    return folder


def faults(folder, **orders):
    """Environment of a run."""
    return {"LD_PRELOAD": INJECTOR, "FAULT_PROGRAM": "arlab", "TMPDIR": str(folder / "tmp"), **orders}


def one_line(stderr, progress=()):
    """The message; before it, the program's own progress is allowed."""
    lines = [line for line in stderr.decode().splitlines(keepends=True) if not line.startswith(tuple(progress))]
    assert len(lines) == 1 and lines[0].endswith("\n"), f"not one line: {stderr!r}"
    assert lines[0].startswith("arlab: ") and len(lines[0]) <= MOST_CHARACTERS, stderr
    assert "internal error" not in lines[0], stderr


# A study says how far it is.
PROGRESS = {"study": (" ", "resuming", "100%", "the folder")}


def left_behind(folder, before, outputs):
    """New names that were not asked for."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")} - before
    return {name for name in names if name.split("/")[0] not in outputs}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    make_inputs(folder)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_failing_call(name, inputs, tmp_path):
    command = COMMANDS[name]
    whole = fresh(inputs, tmp_path / "whole")
    before = {str(path.relative_to(whole)) for path in whole.rglob("*")}
    old = {output: contents(whole / output) for output in command.outputs}
    good = run(command.line, whole, faults(whole, FAULT_COUNTS=str(tmp_path / "counts")))
    assert good.code == 0, good
    assert not left_behind(whole, before, command.outputs)
    new = {output: contents(whole / output) for output in command.outputs}
    counts = {kind: int(count) for kind, count in map(str.split, (tmp_path / "counts").read_text().splitlines())}

    def disturbed(case):
        kind, number = case
        folder = fresh(inputs, tmp_path / f"{kind}{number}")
        environment = faults(folder, FAULT_CALL=kind, FAULT_NUMBER=str(number))
        try:
            done = run(command.line, folder, environment)
            check(name, folder, done, good, before, old, new)
        except Exception as problem:
            return f"FAULT_CALL={kind} FAULT_NUMBER={number}: {problem}"
        shutil.rmtree(folder)
        return None

    generator = random.Random(f"{SEED} {name}")
    cases = [(kind, number) for kind, count in counts.items() for number in numbers(kind, count, generator)]
    with ThreadPoolExecutor(2) as threads:
        problems = [problem for problem in threads.map(disturbed, cases) if problem]
    assert not problems, f"{len(problems)} of {len(cases)}, arlab {command.line}:\n" + "\n".join(problems)


def check(name, folder, done, good, before, old, new):
    command = COMMANDS[name]
    assert done.code in (0, 1, 2), done
    assert not (odd := left_behind(folder, before, command.outputs)), f"left behind: {odd}, {done}"
    if name == "study":
        again = run(command.line + " --resume", folder)
        assert again.code == 0, again
        assert contents(folder / "out") == new["out"], f"another file after --resume, {done}"
    if done.code == 2:
        one_line(done.stderr, PROGRESS.get(name, ()))
        if name != "study":
            for output in command.outputs:
                assert contents(folder / output) == old[output] or same_output(command, folder, output, new), done
    elif done.code == 0:
        assert done.stdout == good.stdout or not command.same, done
        for output in command.outputs:
            assert same_output(command, folder, output, new), done


def same_output(command, folder, output, new):
    is_there = contents(folder / output)
    return is_there == new[output] or not command.same and is_there is not None


# ---------------------------------------------------------------- ranks that meet

RANK = """
import sys, numpy as np, arlab
try:
    rank = arlab.Communicator.from_environment(timeout_s=5, bootstrap_timeout_s=3, slot_bytes=16384)
    tensor = np.full(64, rank.rank + 1, np.float16)
    rank.all_reduce(tensor)
    assert (tensor == 3).all(), tensor
except arlab.Error as error:
    assert "\\n" not in str(error)
    sys.exit(f"arlab: {error}")
"""


@pytest.mark.skipif("ARLAB_EXTENSION" not in os.environ, reason="this build has no Python package")
def test_a_failing_call_of_a_rank(tmp_path):
    """One of two ranks has the fault; each ends with the sum or with an error of one line."""

    def ranks(folder, **orders):
        folder.mkdir()
        (folder / "meeting").mkdir(mode=0o700)
        environment = {
            "WORLD_SIZE": "2", "OPENBLAS_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
            "ARLAB_BOOTSTRAP_DIR": str(folder / "meeting"),
        }  # fmt: skip
        faulty = {**environment, "LD_PRELOAD": INJECTOR, "FAULT_COUNTS": str(folder / "counts"), **orders}
        both = [
            python(RANK, folder, {**(faulty if rank == faulty_rank else environment), "RANK": str(rank)})
            for rank in range(2)
        ]
        return [(process.communicate(timeout=60), process.returncode) for process in both]

    problems = []
    for faulty_rank in range(2):
        good = ranks(tmp_path / f"good{faulty_rank}")
        assert [code for _, code in good] == [0, 0], good
        counts = dict(map(str.split, (tmp_path / f"good{faulty_rank}/counts").read_text().splitlines()))
        for kind in ("socket", "connect", "accept", "thread", "mmap"):
            count = int(counts[kind])
            for number in numbers(kind, count, random.Random(SEED)):
                ended = ranks(tmp_path / f"{faulty_rank}{kind}{number}", FAULT_CALL=kind, FAULT_NUMBER=str(number))
                for (_, stderr), code in ended:
                    if code < 0 or code and (stderr.count(b"\n") != 1 or not stderr.startswith(b"arlab: ")):
                        problems.append((faulty_rank, kind, number, code, stderr))
    assert not problems
