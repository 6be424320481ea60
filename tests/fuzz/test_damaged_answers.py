"""Damaged texts that commands read from others while they run: answers to a judge, and results.csv of a study.

    ARLAB_FUZZ_CASES=100000 ARLAB_FUZZ_SEED=2 .venv/bin/python -m pytest tests/fuzz/test_damaged_answers.py      hours
"""

import os
import random
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

from commands import COMMANDS, MOST_SECONDS, answer_judge, contents, make_inputs, run
from program import PROGRAM, error_line

CASES = int(os.environ.get("ARLAB_FUZZ_CASES", "60"))
SEED = int(os.environ.get("ARLAB_FUZZ_SEED", "1"))
TOKENS = [
    b"\0", b"\n", b"\r", b",", b'"', b"#", b"-", b"nan", b"1e400", b"18446744073709551616", b"\xff", b"done\n",
    b"error \n", b"error \xff\x1b[31m\n", b"\n\n", b"x" * 5000,
]  # fmt: skip


def damaged(data, generator):
    """One to three bytes, ranges, lines or tokens changed; always another text."""
    original, data = data, bytearray(data)
    while data == original:
        for _ in range(generator.choice([1, 1, 1, 2, 3])):
            at = generator.randrange(min(len(data), generator.choice([8, 1 << 30])) + 1)
            some = generator.choice([1, 1, 4, 40, 400])
            kind = generator.randrange(7)
            if kind == 0 and at < len(data):
                data[at] ^= 1 << generator.randrange(8)
            elif kind == 1:
                del data[at : at + some]
            elif kind == 2:
                data[at:at] = generator.choice(TOKENS)
            elif kind == 3:
                data[at : at + some] = generator.choice(TOKENS)
            elif kind == 4:
                del data[at:]
            elif kind == 5:
                data[at:at] = data[at : at + some]
            else:
                lines = bytes(data).splitlines(keepends=True)
                if len(lines) > 1:
                    one, other = generator.sample(range(len(lines)), 2)
                    lines[one], lines[other] = lines[other], lines[one] * generator.choice([0, 1, 2])
                    data = bytearray(b"".join(lines))
    return bytes(data)


def cases(name, judge, count=CASES):
    """Runs the cases; what is wrong with them, with their numbers."""

    def one(number):
        try:
            judge(random.Random(f"{SEED} {name} {number}"), number)
        except Exception as problem:
            return f"ARLAB_FUZZ_SEED={SEED}, case {number}: {type(problem).__name__}: {problem}"
        return None

    with ThreadPoolExecutor(2) as threads:
        return [problem for problem in threads.map(one, range(count)) if problem]


def test_answers_to_a_judge(tmp_path):
    """No changed one is taken for right, unless it is as good: a change of unread bits."""

    def judge(generator, number):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("calls", "answers"):
            os.mkfifo(folder / name)
        spoil = generator.randrange(6)  # which answer
        count = iter(range(1 << 30))

        def change(answer):
            return damaged(answer, generator) if next(count) == spoil else answer

        line = COMMANDS["judge"].line.replace("--timeout 10", "--timeout 1")
        process = subprocess.Popen(
            [PROGRAM, *line.split()], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        other = threading.Thread(target=answer_judge, args=(folder, process, change))
        other.start()
        try:
            stdout, stderr = process.communicate(timeout=MOST_SECONDS)
        finally:
            process.kill()
            other.join()
        assert process.returncode in (1, 2), (process.returncode, stdout, stderr)
        error_line(stderr.decode())
        shutil.rmtree(folder)

    problems = cases("judge", judge)
    assert not problems, "\n".join(problems)


def test_results_of_a_study(tmp_path):
    """With --resume, each is refused in one line and left as it is, or completed to what an undisturbed run writes."""
    make_inputs(tmp_path)
    command = COMMANDS["study"].line
    assert run(command, tmp_path).code == 0
    good = contents(tmp_path / "out")

    def resume(generator, number):
        # Damages are cut off, or changed within; a cut at the start of a line is no damage.
        folder = tmp_path / f"out{number}"
        folder.mkdir()
        broken = damaged(good["results.csv"], generator)
        (folder / "results.csv").write_bytes(broken)
        done = run(command.replace("--out out", f"--out {folder.name}") + " --resume", tmp_path)
        if done.code == 2:
            error_line(done.stderr.decode())
            assert contents(folder) == {"results.csv": broken}, "a refused file was changed"
        else:
            assert done.code == 0, done
            written = contents(folder)["results.csv"]
            # The header keeps the command that began the study.
            assert rows(written) == rows(good["results.csv"]), "other rows"
        shutil.rmtree(folder)

    problems = cases("results", resume, 4 * CASES)
    assert not problems, "\n".join(problems)


def rows(results):
    return [line for line in results.splitlines() if not line.startswith((b"# command", b"# check"))]
