"""arlab judge: an all-reduce of another process, over two named pipes or by files."""

import json
import os
import shlex
import subprocess
import threading

import numpy as np
import pytest
from program import HANGS_AFTER, PROGRAM, error_line, ok, ok_csv, ok_json, parse_csv, parse_json, refused, run


def answer_calls(folder, answer):
    """The other process: pipes or files, it reads and writes the same."""
    with open(folder / "calls", "rb") as calls, open(folder / "answers", "wb") as answers:
        while line := calls.readline():
            call = json.loads(line)
            assert call["schema"] == "arlab.judge.call/1"
            content = calls.read(call["ranks"] * call["region_bytes"])
            reply = answer(call, np.frombuffer(bytearray(content), np.uint8).reshape(call["ranks"], -1))
            if reply is None:
                break
            answers.write(reply)
            answers.flush()


def judge(folder, options, answer):
    """Runs `arlab judge`; `answer` gets (call, regions) and returns the bytes of its answer, or None to hang up."""
    for name in ("calls", "answers"):
        os.mkfifo(folder / name)
    process = subprocess.Popen(
        [PROGRAM, *shlex.split(f"judge --calls calls --answers answers {options}")],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    timer = threading.Timer(HANGS_AFTER, process.kill)
    timer.start()
    answer_calls(folder, answer)
    stdout, stderr = process.communicate()
    timer.cancel()
    return process.returncode, stdout, stderr


def add(call, regions):
    tensors = [row[call["input_at"] :][: 2 * call["elements"]].view(np.float16) for row in regions]
    with np.errstate(all="ignore"):
        total = tensors[0] + tensors[1]
    for row in regions:
        row[call["output_at"] :][: 2 * call["elements"]] = total.view(np.uint8)
    return b"done\n" + regions.tobytes()


FAST = "--ranks 2 --dtype fp16 --lengths 1,2049"


def test_a_right_one(tmp_path):
    code, stdout, stderr = judge(tmp_path, f"{FAST} --claim one_shot/fp16/native --format json", add)
    assert (code, stderr) == (0, "")
    report = parse_json(stdout)
    assert report["passed"] and report["calls"] == 2 * 3 * 3


def test_csv_and_table(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rows = parse_csv(judge(tmp_path / "a", f"{FAST} --format csv", add)[1])
    assert {row["candidate"]: row["mismatches"] for row in rows}["exact_sum"] == "0"
    assert judge(tmp_path / "b", FAST, add)[1].endswith("\npassed: 2 ranks, fp16, no claim\n")


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (2.0**-112, "the result is 1.93e-34 times the sum"), (-(2.0**-112), "the result is -1.93e-34 times the sum"),
        (2.0**-14, "the result is 6.1e-05 times the sum"), (-0.04, "the result is -0.04 times the sum"),
        (0.2, "the result is 0.20 times the sum"), (3, "the result is 3.00 times the sum"), (100, "the result is 100.00 times the sum"),
    ],
)  # fmt: skip
def test_one_factor_of_all_sums_is_told_as_it_is(tmp_path, ranks, factor, says):
    """However small: inputs of ranks are not quite orthogonal, and what that adds to a weight is no weight."""

    def scaled(call, regions):
        tensors = [row[call["input_at"] :][: 4 * call["elements"]].view(np.float32) for row in regions]
        with np.errstate(all="ignore"):
            total = (sum(tensor.astype(np.float64) for tensor in tensors) * factor).astype(np.float32)
        for row in regions:
            row[call["output_at"] :][: 4 * call["elements"]] = total.view(np.uint8)
        return b"done\n" + regions.tobytes()

    code, stdout, _ = judge(tmp_path, f"--ranks {ranks} --dtype fp32 --lengths 1,2049 --format json", scaled)
    report = parse_json(stdout)
    assert code == 1 and says in report["findings"], report["findings"]
    assert not any("counts" in finding or "is missing" in finding or "-0.0 " in finding for finding in report["findings"])
    assert report["contributions"] == pytest.approx([factor] * ranks, rel=1e-5, abs=1e-6)


def test_noise_in_place_of_sums_is_no_small_weight(tmp_path):
    """Data that are no sum miss contributions; they do not have them 0.02 times."""
    rng = np.random.default_rng(3)

    def noise(call, regions):
        made = rng.standard_normal(call["elements"]).astype(np.float16)
        for row in regions:
            row[call["output_at"] :][: 2 * call["elements"]] = made.view(np.uint8)
        return b"done\n" + regions.tobytes()

    findings = parse_json(judge(tmp_path, f"{FAST} --format json", noise)[1])["findings"]
    assert {f"rank {rank}'s contribution is missing" for rank in (0, 1)} <= set(findings)
    assert not any("times" in finding for finding in findings)


def test_a_wrong_one(tmp_path):
    def wrong(call, regions):
        add(call, regions)
        regions[1, call["output_at"]] ^= 1
        return b"done\n" + regions.tobytes()

    code, stdout, stderr = judge(tmp_path, f"{FAST} --in-place --format json", wrong)
    assert code == 1 and stderr.startswith("arlab: the all-reduce is wrong: ranks differ")
    assert not parse_json(stdout)["passed"]


@pytest.mark.parametrize(
    "reply, message",
    [
        (b"error no such device\n", "the all-reduce failed (1 gaussian element per rank): no such device"),
        (b"what?\n", "an answer begins with 'what?': allowed are done and error WHY"),
        (b"x" * 5000 + b"\n", "first line is too long"),
        (None, "the other process has closed 'answers'"),
    ],
)
def test_other_answers(tmp_path, reply, message):
    code, stdout, stderr = judge(tmp_path, FAST, lambda call, regions: reply)
    assert code == 2 and stdout == "" and message in stderr and stderr.count("\n") == 1


def test_files_say_what_pipes_say(tmp_path):
    """The process may run between two runs of the program, which say the same; --answers reads a file, too."""
    (tmp_path / "pipes").mkdir()
    by_pipes = judge(tmp_path / "pipes", f"{FAST} --claim one_shot/fp16/native --format json", add)[1]
    written = parse_json(ok(f"judge --write-calls d {FAST} --format json", tmp_path))
    assert written["schema"] == "arlab.judge.calls/1" and written["file"] == "d/calls" and written["calls"] == 128
    answer_calls(tmp_path / "d", add)
    for way in ("--answers-in d", "--calls again --answers d/answers"):
        (tmp_path / "again").touch()
        assert ok(f"judge {way} {FAST} --claim one_shot/fp16/native --format json", tmp_path) == by_pipes
    assert (tmp_path / "again").read_bytes() == (tmp_path / "d/calls").read_bytes()


def test_files_that_do_not_fit(tmp_path):
    judged = f"judge --answers-in d {FAST}"
    refused(judged, tmp_path, "--answers-in: 'd/answers' cannot be opened: No such file")
    assert "mkfifo" not in run(judged, tmp_path).stderr
    ok(f"judge --write-calls d {FAST}", tmp_path)
    answer_calls(tmp_path / "d", add)
    refused(f"{judged} --seed 2", tmp_path, "calls were written with other options: give the same as with --write-calls")
    refused(f"{judged} --in-place", tmp_path, "calls were written with other options")
    answers = (tmp_path / "d/answers").read_bytes()
    for damaged, words in ((answers[:-1], "ends, and calls are left"), (answers + b"d", "goes on behind the last")):
        (tmp_path / "d/answers").write_bytes(damaged)
        refused(judged, tmp_path, f"'d/answers' {words}")
    refused(f"judge --write-calls d/answers {FAST}", tmp_path, "d/answers/calls")
    refused(f"judge --write-calls d {FAST}", tmp_path, "--write-calls: d/answers has answers to older calls")


NEITHER = "cannot be opened: it is neither a pipe nor a file"


@pytest.mark.parametrize(
    "options, message",
    [
        ("--ranks 2 --dtype fp16", "one of these is required: --calls and --answers, --write-calls, or --answers-in"),
        ("--calls c --ranks 2 --dtype fp16", "one of these is required: --calls and --answers"),
        ("--answers a --answers-in d --ranks 2 --dtype fp16", "one of these is required: --calls and --answers"),
        ("--write-calls d --answers-in d --ranks 2 --dtype fp16", "one of these is required: --calls and --answers"),
        ("--write-calls d --timeout 3 --ranks 2 --dtype fp16", "--write-calls excludes --timeout"),
        ("--calls c --answers a --ranks 1 --dtype fp16", "allowed is an integer from 2 to 64"),
        ("--calls c --answers a --ranks 2 --dtype fp8", "unknown dtype 'fp8'"),
        ("--calls c --answers a --ranks 2 --dtype fp16 --lengths 0", "allowed"),
        ("--calls c --answers a --ranks 2 --dtype fp16 --codec qr-q5", "unknown codec"),
        ("--calls . --answers pipe --ranks 2 --dtype fp16", f"--calls: '.' {NEITHER}"),
        ("--calls pipe --answers . --ranks 2 --dtype fp16", f"--answers: '.' {NEITHER}"),
        ("--calls nope --answers pipe --ranks 2 --dtype fp16", "--calls: 'nope' cannot be opened: No such file"),
        ("--calls pipe --answers nope --ranks 2 --dtype fp16", "--answers: 'nope' cannot be opened: No such file"),
        ("--calls pipe --answers pipe --ranks 2 --dtype fp16 --timeout 0", "allowed is an integer from 1 to 86400"),
    ],
)
def test_bad_input(tmp_path, options, message):
    os.mkfifo(tmp_path / "pipe")
    refused(f"judge {options}", tmp_path, message)


# ---------------------------------------------------------------- every wait has a bound


@pytest.fixture
def pipes(tmp_path):
    for name in ("calls", "answers"):
        os.mkfifo(tmp_path / name)
    return tmp_path


SHORT = f"judge --calls calls --answers answers {FAST} --timeout 1"


def given_up(command, folder, fragment):
    result = run(command, folder)
    assert (result.code, result.stdout) == (2, ""), result
    assert fragment in error_line(result.stderr)


def test_nobody_comes(pipes):
    given_up(SHORT, pipes, "nobody has opened 'calls' for reading within 1 s (--timeout)")


def test_the_other_reads_nothing(pipes):
    """More than a pipe holds."""
    reader = os.open(pipes / "calls", os.O_RDONLY | os.O_NONBLOCK)
    options = SHORT.replace("1,2049", "100000")
    given_up(options, pipes, "the other process has read nothing from 'calls' for 1 s (--timeout)")
    os.close(reader)


@pytest.mark.parametrize("opened", [False, True])
def test_the_other_answers_nothing(pipes, opened):
    ends = [os.open(pipes / "calls", os.O_RDONLY | os.O_NONBLOCK)]
    if opened:
        ends.append(os.open(pipes / "answers", os.O_RDWR))
    options = SHORT.replace("1,2049", "1")
    given_up(options, pipes, "the other process has written nothing to 'answers' for 1 s (--timeout)")
    for end in ends:
        os.close(end)


def test_the_other_may_open_its_pipes_in_any_order(pipes):
    command = [PROGRAM, *shlex.split(SHORT.replace("--timeout 1", "--timeout 10"))]
    with subprocess.Popen(command, cwd=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        with open(pipes / "answers", "wb") as answers, open(pipes / "calls", "rb") as calls:
            call = json.loads(calls.readline())
            calls.read(call["ranks"] * call["region_bytes"])
            answers.write(b"error enough\n")
        assert b"enough" in process.communicate(timeout=HANGS_AFTER)[1]
    assert process.returncode == 2


def test_help_is_enough_to_write_the_other_side(tmp_path):
    text = ok("judge --help", tmp_path)
    for words in ["arlab.judge.call/1", "region_bytes", "input_at", "output_at", "done", "error WHY", "mkfifo"]:
        assert words in text


TAIL = "--ranks 2 --dtype fp16 --tail residual=add,norm=rms,eps=1e-5 --hidden 96 --rows 3 --runs 2"


def mean_of_squares(rows):
    """Rows of up to 256 elements of fp16, whose squares are exact in fp32: 8 by a thread, and a tree of 32 threads."""
    lanes = np.zeros((len(rows), 32, 8), np.float32)
    lanes[:, : rows.shape[1] // 8] = rows.reshape(len(rows), -1, 8)
    sums = np.zeros(lanes.shape[:2], np.float32)
    for i in range(8):
        sums += lanes[:, :, i] * lanes[:, :, i]
    while sums.shape[1] > 1:
        sums = sums[:, : sums.shape[1] // 2] + sums[:, sums.shape[1] // 2 :]
    return sums / np.float32(rows.shape[1])


def fused(call, regions, twice=False):
    """Residual and RMSNorm behind a sum, rounded as separate kernels round it."""
    rows, hidden = call["rows"], call["hidden"]

    def tensor(row, where, count=rows):
        return row[call[where] :][: 2 * count * hidden].view(np.float16).reshape(count, hidden)

    sums = sum(tensor(row, "input_at").astype(np.float32) for row in regions).astype(np.float16)
    for row in regions:
        residual = tensor(row, "residual_at") * np.float16(2 if twice else 1)
        z = sums + residual
        root = np.sqrt(mean_of_squares(z) + np.float32(call["eps"]))
        tensor(row, "normalized_at")[:] = (z / root).astype(np.float16) * tensor(row, "weight_at", 1)
        tensor(row, "residual_out_at")[:] = z
    return b"done\n" + regions.tobytes()


def answer_tails(folder, twice):
    """As answer_calls does, with calls of tails."""
    with open(folder / "calls", "rb") as calls, open(folder / "answers", "wb") as answers:
        while line := calls.readline():
            call = json.loads(line)
            assert call["schema"] == "arlab.judge.tail_call/1" and abs(call["eps"] - 1e-5) < 1e-9
            content = np.frombuffer(bytearray(calls.read(call["ranks"] * call["region_bytes"])), np.uint8)
            answers.write(fused(call, content.reshape(call["ranks"], -1), twice))


def test_a_fused_tail_by_files(tmp_path):
    of_tail = TAIL.replace("--tail ", "--tail hidden=96,").replace("--hidden 96", "")
    wrote = ok_json(f"judge {of_tail} --write-calls .", tmp_path)
    assert wrote["calls"] == 2
    answer_tails(tmp_path, twice=False)
    report = ok_json(f"judge {TAIL} --answers-in . --claim unfused", tmp_path)
    assert report["schema"] == "arlab.judge.tail/1" and report["passed"] and "unfused" in str(report["exact_as"])
    assert report["verdict"] == "passed: 2 ranks, fp16, claim unfused"
    rows = ok_csv(f"judge {TAIL} --answers-in .", tmp_path)
    assert "unfused" in [row["name"] for row in rows]
    answer_tails(tmp_path, twice=True)
    wrong = run(f"judge {TAIL} --answers-in .", tmp_path)
    assert wrong.code == 1 and "WRONG: the residual is added twice" in wrong.stdout, wrong


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("judge --ranks 2 --dtype fp16 --rows 3 --write-calls .", "--hidden, --rows and --only-normalized: allowed only with --tail"),
        (f"judge {TAIL} --in-place --write-calls .", "--in-place, --codec and --lengths: not allowed with --tail"),
        (f"judge {TAIL} --claim mine --write-calls .", "allowed are unfused, torch-llama, vllm"),
    ],
)
def test_options_that_do_not_belong_to_a_tail_are_one_line(tmp_path, line, said):
    refused(line, tmp_path, said)
