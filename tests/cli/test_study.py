"""arlab study: sweeps, and sweeps that were interrupted."""

import contextlib
import csv
import fcntl
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from program import (
    ACTIVATIONS, HANGS_AFTER, PROGRAM, REPOSITORY, contents, error_line, ok_json, parse_csv, parse_json,
    parse_table, refused, run, same,
)  # fmt: skip

STUDY = """
title = "tiny"
ranks = [2, 4]
algorithms = ["two_shot", "ring"]
codecs = ["fp16", "qr-q4"]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=1"
elements = "4K"

[[input]]
name = "ours"
file = "data{ranks}.npy"

[simulate]
topology = "full:4"
bytes = "1M"
"""
POINTS = 16


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.toml").write_text(STUDY)
    for ranks in (2, 4):
        data = np.random.default_rng(ranks).standard_normal((ranks, 3000)).astype(np.float16)
        np.save(tmp_path / f"data{ranks}.npy", data)
    return tmp_path


def study(options, folder):
    """stdout of a study that succeeds; stderr is for its progress."""
    result = run(f"study {options} --no-plots", folder)
    assert result.code == 0, result
    assert "arlab:" not in result.stderr and "100% of" in result.stderr, result
    return result.stdout


def rows_of(results):
    """The comment lines, and the rows under the header."""
    lines = results.read_text().splitlines(keepends=True)
    comments = [line for line in lines if line.startswith("#")]
    return comments, lines[len(comments) :]


def table_of(results):
    return parse_csv("".join(rows_of(results)[1]))


def test_results_are_those_of_reduce_and_simulate(folder):
    study("tiny.toml --out out", folder)
    assert set(contents(folder / "out")) == {"results.csv", "summary.csv"}
    rows = table_of(folder / "out/results.csv")
    assert len(rows) == POINTS
    inputs = {
        ("gaussian", "2"): "--ranks 2 --synthetic gaussian:sigma=1,seed=1 --elements 4K",
        ("gaussian", "4"): "--ranks 4 --synthetic gaussian:sigma=1,seed=1 --elements 4K",
        ("ours", "2"): "--input data2.npy",
        ("ours", "4"): "--input data4.npy",
    }
    assert {(row["input"], row["ranks"]) for row in rows} == set(inputs)
    for row in rows:
        options = f"--algorithm {row['algorithm']} --codec {row['codec']}"
        report = ok_json(f"reduce {options} {inputs[row['input'], row['ranks']]}", folder)
        timed = ok_json(f"simulate {options} --ranks {row['ranks']} --topology full:4 --bytes 1M", folder)
        expected = {**report, "simulated_latency_us": timed["latency_us"]}
        expected |= {"input": row["input"], "tensor": ""}
        assert re.fullmatch("x[0-9a-f]{8}", row.pop("check"))
        assert same(row, {name: expected[name] for name in row})


def test_provenance_is_in_the_file(folder):
    study("tiny.toml --out out", folder)
    comments, _ = rows_of(folder / "out/results.csv")
    text = "".join(comments)
    for fragment in [
        "tiny",
        "arlab study tiny.toml",
        "exact",
        "simulated_latency_us is simulated",
        "full:4",
    ]:
        assert fragment in text


def test_formats_agree(folder):
    report = parse_json(study("tiny.toml --out a --format json", folder))
    assert (report["title"], report["points"]) == ("tiny", POINTS)
    summary = (folder / "a/summary.csv").read_text()
    assert (
        study("tiny.toml --out b --format csv", folder)
        == summary
        == (folder / "b/summary.csv").read_text()
    )
    rows = parse_csv(summary)
    assert len(rows) == len(report["summary_rows"]) == POINTS  # no two points share a line here
    assert all(same(row, line) for row, line in zip(rows, report["summary_rows"]))
    figures, columns, cells = parse_table(study("tiny.toml --out c --all", folder))
    assert figures["points"] == str(POINTS) and columns == list(rows[0])
    few = parse_table(study("tiny.toml --out d", folder))[1]
    assert set(few) < set(columns) and few[:5] == columns[:5]
    assert [row[:4] for row in cells] == [list(row.values())[:4] for row in rows]


def test_summary_is_the_median_and_the_worst(folder):
    text = STUDY.replace(
        'file = "data{ranks}.npy"',
        f'file = "{ACTIVATIONS}/minilm_tp{{ranks}}.safetensors"\ntensors = "all"',
    )
    (folder / "tiny.toml").write_text(text.replace("[2, 4]", "[2]"))
    assert "worst_sqnr_db of the whole worst tensor" in study("tiny.toml --out out", folder)
    rows = [row for row in table_of(folder / "out/results.csv") if row["input"] == "ours"]
    assert len({row["tensor"] for row in rows}) == 12
    for line in parse_csv((folder / "out/summary.csv").read_text()):
        if line["input"] != "ours":
            continue
        key = (line["algorithm"], line["codec"])
        mine = [row for row in rows if (row["algorithm"], row["codec"]) == key]
        sqnr = [float(row["sqnr_db"]) for row in mine]
        tokens = [float(row["token_sqnr_db"]) for row in mine if row["token_sqnr_db"]]
        assert not tokens or float(line["median_token_sqnr_db"]) == pytest.approx(np.median(tokens), abs=0.0051)
        assert float(line["median_sqnr_db"]) == pytest.approx(np.median(sqnr), abs=0.0051)
        assert float(line["worst_sqnr_db"]) == pytest.approx(min(sqnr), abs=0.0051)
        assert float(line["max_abs_error"]) == max(float(row["max_abs_error"]) for row in mine)
        flushed, encoded = (sum(int(row[name]) for row in mine) for name in ("flushed", "encoded"))
        assert float(line["flushed_percent"]) == pytest.approx(100 * flushed / encoded, abs=0.0051)


def test_a_wire_that_data_decide_has_the_time_of_its_length(folder):
    """In results, summary and so in pareto.png: what simulate says of the bits that were sent."""
    text = STUDY.replace('["fp16", "qr-q4"]', '["rans-qr-q4", "qr-q4"]').replace('["two_shot", "ring"]', '["two_shot"]').replace("[2, 4]", "[4]")
    (folder / "tiny.toml").write_text(text.replace('name = "ours"\nfile = "data{ranks}.npy"', 'name = "zeros"\nsynthetic = "constant:value=0"\nelements = "4K"').replace("4K", "256K"))
    study("tiny.toml --out out", folder)
    rows = [row for row in table_of(folder / "out/results.csv") if row["codec"] == "rans-qr-q4"]
    short, long = sorted(float(row["wire_bits_per_element"]) for row in rows)
    assert short < 2 < long
    command = "simulate --topology full:4 --algorithm two_shot --codec rans-qr-q4 --bytes 1M"
    most = ok_json(command, folder)["latency_us"]
    for row in rows:
        bits = row["wire_bits_per_element"]
        assert float(row["simulated_latency_us"]) == ok_json(f"{command} --wire-bits {bits}", folder)["latency_us"] < most
    for line in parse_csv((folder / "out/summary.csv").read_text()):
        if line["codec"] == "rans-qr-q4":
            row = next(row for row in rows if row["input"] == line["input"])
            assert line["wire_bits"] == row["wire_bits_per_element"]
            assert float(line["simulated_latency_us"]) == pytest.approx(float(row["simulated_latency_us"]), abs=0.051)
    assert "wires of variable length as long as each tensor made them" in "".join(rows_of(folder / "out/results.csv")[0])


def test_short_wires_that_are_longer_than_they_save(folder):
    """Headers make them longer than any long one: that is the most that is simulated."""
    (folder / "tiny.toml").write_text(STUDY.replace('["fp16", "qr-q4"]', '["rans-qr-q4"]'))
    study("tiny.toml --out out", folder)
    assert any(float(row["wire_bits_per_element"]) > 4.5 and float(row["simulated_latency_us"]) > 0 for row in table_of(folder / "out/results.csv"))


def test_what_stands_out_must_be_there(folder):
    refused("study tiny.toml --out new --highlight qr-q6", folder, "--highlight names 'qr-q6'", "codecs and algorithms of the study")
    refused("study tiny.toml --out new --highlight qr-q4 --no-plots", folder, "--no-plots")


def test_summary_rounds_to_short_decimals(folder):
    study("tiny.toml --out out", folder)
    for line in parse_csv((folder / "out/summary.csv").read_text()):
        for name in ["median_sqnr_db", "worst_sqnr_db", "flushed_percent", "simulated_latency_us"]:
            assert len(line[name]) <= 9, f"{name} is {line[name]}"


def test_summary_does_not_hide_sums_that_overflow(folder):
    """A finite sum became infinite: that is not an error of 0."""
    text = STUDY.replace("gaussian:sigma=1,seed=1", "constant:value=40000")
    (folder / "tiny.toml").write_text(text)
    study("tiny.toml --out out", folder)
    rows = [row for row in table_of(folder / "out/results.csv") if row["codec"] == "fp16"]
    lost = [row for row in rows if row["input"] == "gaussian"]
    assert all(row["non_finite"] == row["elements"] and row["max_abs_error"] == "" for row in lost)
    for line in parse_csv((folder / "out/summary.csv").read_text()):
        if line["input"] == "gaussian" and line["codec"] == "fp16":
            assert line["max_abs_error"] == "" or math.isinf(float(line["max_abs_error"]))


def test_default_folder(folder):
    (folder / "named").mkdir()
    for path, name in [("tiny.toml", "tiny"), ("named/study.toml", "named")]:
        (folder / path).write_text(STUDY.replace("data{ranks}", f"{folder}/data{{ranks}}"))
        study(path, folder)
        assert (folder / "results" / name / "summary.csv").is_file()


def test_a_run_without_resume_starts_again(folder):
    study("tiny.toml --out out", folder)
    whole = (folder / "out/results.csv").read_bytes()
    (folder / "out/results.csv").write_bytes(whole[:-100])
    study("tiny.toml --out out", folder)
    assert (folder / "out/results.csv").read_bytes() == whole


def test_plots(folder):
    result = run("study tiny.toml --out out", folder, timeout=60)
    assert result.code == 0, result
    plots = list((folder / "out").glob("*.png"))
    assert plots and all(plot.read_bytes().startswith(b"\x89PNG") for plot in plots)
    study("tiny.toml --out out", folder)
    assert set(contents(folder / "out")) == {"results.csv", "summary.csv"}  # no plots of a run before


def test_plots_that_fail_leave_the_tables(folder):
    for python in ["false", "/no/such/python"]:
        environment = {**os.environ, "ARLAB_PYTHON": python}
        result = run("study tiny.toml --out out --format csv", folder, env=environment)
        assert result.code == 1
        line = error_line(result.stderr.splitlines(True)[-1])
        assert "out" in line and "--no-plots" in line and "ARLAB_PYTHON" in line
        assert result.stdout == (folder / "out/summary.csv").read_text()


# ---------------------------------------------------------------- resume


def test_resume_after_a_cut_anywhere(folder):
    """In the header, as a kill right after the start leaves it, too: then the comments are written again."""
    study("tiny.toml --out whole", folder)
    whole, summary = (folder / "whole" / name for name in ("results.csv", "summary.csv"))
    data = whole.read_bytes()
    header = data.index(b"\ninput,") + 1
    first_row = data.index(b"\n", header) + 1
    last_row = data.rindex(b"\n", 0, -1) + 1
    cuts = [0, 1, 30, header // 2, header - 1, header, header + 10]
    cuts += [first_row, first_row + 1, first_row + 40, last_row - 1, last_row, len(data) - 1, len(data)]
    cuts += [first_row + (len(data) - first_row) * part // 12 for part in range(1, 12)]
    (folder / "cut").mkdir()
    for cut in cuts:
        (folder / "cut/results.csv").write_bytes(data[:cut])
        study("tiny.toml --out cut --resume", folder)
        assert rows_of(folder / "cut/results.csv")[1] == rows_of(whole)[1], f"cut at {cut}"
        assert cut < first_row or (folder / "cut/results.csv").read_bytes() == data, f"cut at {cut}"
        assert (folder / "cut/summary.csv").read_bytes() == summary.read_bytes()


def test_resume_with_nothing_there(folder):
    study("tiny.toml --out out --resume", folder)
    assert len(table_of(folder / "out/results.csv")) == POINTS
    # The command that makes this file again, whatever is there.
    assert "# command: arlab study tiny.toml --out out\n" in (folder / "out/results.csv").read_text()


@pytest.mark.parametrize(
    "before, after",
    [
        ("ranks = [2, 4]", "ranks = [4, 2]"),
        ("ranks = [2, 4]", "ranks = [2]"),
        ('"qr-q4"]', '"qr-q6"]'),
        ('"ring"]', '"one_shot"]'),
        ("seed=1", "seed=2"),
        ('"4K"', '"2K"'),
        ('"1M"', '"2M"'),
        ('"full:4"', '"ring:4"'),
        ('name = "gaussian"', 'name = "normal"'),
        ("[simulate]", 'dtype = "bf16"\n[simulate]'),
    ],
)
def test_resume_refuses_another_study(folder, before, after):
    study("tiny.toml --out out", folder)
    assert STUDY.count(before) == 1
    text = STUDY.replace(before, after)
    if "dtype" in after:
        text = STUDY.replace('title = "tiny"', 'title = "tiny"\ndtype = "bf16"').replace('"fp16", ', '"bf16", ')
        for ranks in (2, 4):
            np.save(folder / f"data{ranks}.npy", np.zeros((ranks, 10), np.uint16))
    (folder / "tiny.toml").write_text(text)
    refused("study tiny.toml --out out --no-plots --resume", folder, "out/results.csv", "another study")


def test_resume_refuses_other_data(folder):
    study("tiny.toml --out out", folder)
    np.save(folder / "data4.npy", np.load(folder / "data4.npy")[:, ::-1].copy())
    refused("study tiny.toml --out out --no-plots --resume", folder, "out/results.csv", "other data")


def test_resume_refuses_another_topology_under_the_same_name(folder):
    """The latencies of a file would be half of the old machine, half of the new one."""
    machine = (REPOSITORY / "sim/topology/machines/mi300x-8.toml").read_text()
    (folder / "mine.toml").write_text(machine)
    (folder / "tiny.toml").write_text(STUDY.replace('"full:4"', '"mine.toml"'))
    study("tiny.toml --out out", folder)
    whole = (folder / "out/results.csv").read_bytes()
    (folder / "out/results.csv").write_bytes(whole[: len(whole) * 3 // 4])
    (folder / "mine.toml").write_text(machine.replace("bandwidth_gb_per_s = { value = ", "bandwidth_gb_per_s = { value = 1"))
    refused("study tiny.toml --out out --no-plots --resume", folder, "out/results.csv")


@pytest.fixture
def long(folder):
    """A study that takes long, whole: (the rows of its results, a function that does something to a run of it with so many lines)."""
    (folder / "long.toml").write_text(STUDY.replace('"4K"', '"100K"'))
    study("long.toml --out whole", folder)
    results = folder / "out/results.csv"

    def meanwhile(lines, disturb):
        command = [PROGRAM, "study", "long.toml", "--out", "out", "--no-plots"]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
            while running.poll() is None and not (results.exists() and len(rows_of(results)[1]) >= lines):
                time.sleep(0.001)
            disturb(running)
        return running.returncode

    return rows_of(folder / "whole/results.csv")[1], meanwhile


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_leaves_nothing_but_results_and_can_be_resumed(folder, long, number):
    expected, meanwhile = long
    results = folder / "out/results.csv"
    for lines in [0, 1, 6] if number == signal.SIGKILL else [2]:  # at once, with the columns, with some rows
        results.unlink(missing_ok=True)
        code = meanwhile(lines, lambda running: running.send_signal(number))
        assert code == 0 or (code == -number and not (folder / "out/summary.csv").exists())  # none of the run before
        left = {path.name for path in (folder / "out").iterdir()} - {"results.csv", "summary.csv"}
        # SIGKILL leaves a file that was being written; the next run removes it.
        assert all(number == signal.SIGKILL and re.fullmatch(r"\.arlab-\d+-\d+\.part", name) for name in left), left
        study("long.toml --out out --resume", folder)
        assert rows_of(results)[1] == expected
        assert {path.name for path in (folder / "out").iterdir()} == {"results.csv", "summary.csv"}


# ---------------------------------------------------------------- a ledger

SMALL = """
title = "small"
ranks = [2]
algorithms = ["two_shot", "ring"]
codecs = ["fp16", "qr-q4"]

[[input]]
name = "a"
synthetic = "gaussian:seed=1"
elements = 96

[[input]]
name = "b"
synthetic = "gaussian:seed=2"
elements = 96
"""
SMALL_POINTS = 8


@pytest.fixture
def small(tmp_path):
    """A study of eight points, whole: (folder, the lines of its results)."""
    (tmp_path / "small.toml").write_text(SMALL)
    study("small.toml --out out", tmp_path)
    return tmp_path, (tmp_path / "out/results.csv").read_bytes().splitlines(keepends=True)


def resume(folder):
    return run("study small.toml --out out --no-plots --resume", folder)


def test_resume_computes_exactly_the_missing_points(small):
    """Whichever rows are gone, and in whatever order the others are."""
    folder, whole = small
    header, rows = whole[:-SMALL_POINTS], whole[-SMALL_POINTS:]
    generator = random.Random(1)
    for kept in [rows[1:], rows[:3] + rows[4:], rows[::-1], rows[5:], [rows[6]], [*generator.sample(rows, 5)]]:
        (folder / "out/results.csv").write_bytes(b"".join(header + kept))
        result = resume(folder)
        assert result.code == 0, result
        assert f"resuming after {len(kept)} points" in result.stderr
        assert (folder / "out/results.csv").read_bytes() == b"".join(whole)


def cells_changed(row, **values):
    """The row with other cells, by column, and its old check."""
    cells = row.decode().rstrip("\n").split(",")
    names = ["input", "tensor", "dtype", "ranks", "algorithm", "codec", "elements", "wire_bits_per_element", "sqnr_db"]
    for name, value in values.items():
        cells[names.index(name)] = value
    return (",".join(cells) + "\n").encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: [rows[0], rows[0], *rows[2:]],  # a point twice, another missing
        lambda rows: [*rows, rows[3]],
        lambda rows: [cells_changed(rows[0], codec="qr-q5"), *rows[1:]],
        lambda rows: [cells_changed(rows[0], ranks="-2"), *rows[1:]],
        lambda rows: [cells_changed(rows[0], ranks=""), *rows[1:]],
        lambda rows: [cells_changed(rows[0], sqnr_db="nan"), *rows[1:]],
        lambda rows: [cells_changed(rows[0], sqnr_db="1e400"), *rows[1:]],
        lambda rows: [cells_changed(rows[0], elements="97"), *rows[1:]],
        lambda rows: [cells_changed(rows[0], algorithm="ring"), *rows[1:]],
        lambda rows: [*rows[:4], bytes(5000) + b"\n", *rows[4:]],
        lambda rows: [*rows[:4], b"\n", *rows[4:]],
        lambda rows: [*rows[:4], b"\xff\xfe\n", *rows[4:]],
        lambda rows: [rows[0][:-30] + rows[1], *rows[2:]],  # two lines run into each other
        lambda rows: [row.replace(b"\n", b"\r\n") for row in rows],
    ],
)
def test_resume_refuses_a_row_that_it_has_not_written(small, damage):
    folder, whole = small
    header, rows = whole[:-SMALL_POINTS], whole[-SMALL_POINTS:]
    (folder / "out/results.csv").write_bytes(b"".join(header + damage(rows)))
    refused("study small.toml --out out --no-plots --resume", folder, "out/results.csv line", "--resume")


def test_resume_refuses_rows_of_another_study(small):
    """With the right columns and the right key."""
    folder, whole = small
    (folder / "small.toml").write_text(SMALL.replace("seed=1", "seed=3"))
    study("small.toml --out other", folder)
    other = (folder / "other/results.csv").read_bytes().splitlines(keepends=True)
    (folder / "small.toml").write_text(SMALL)
    assert other[-1].split(b",")[:9] == whole[-1].split(b",")[:9]  # the input that is the same
    (folder / "out/results.csv").write_bytes(b"".join(whole[:-1] + other[-1:]))
    line = len(whole)
    refused("study small.toml --out out --no-plots --resume", folder, f"results.csv line {line}: ")


def test_resume_refuses_another_program(small):
    folder, _ = small
    other = folder / "arlab"
    shutil.copy(PROGRAM, other)
    with other.open("ab") as file:
        file.write(b"\0")  # another build; this one runs the same
    done = subprocess.run(
        [other, "study", "small.toml", "--out", "out", "--no-plots", "--resume"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    line = error_line(done.stderr)
    assert "another program" in line and "differs in: program" in line and "--resume" in line


def test_a_changed_title_does_not_cost_the_rows(small):
    folder, whole = small
    (folder / "small.toml").write_text(SMALL.replace('"small"', '"smaller"'))
    result = resume(folder)
    assert result.code == 0 and f"resuming after {SMALL_POINTS} points" in result.stderr
    assert rows_of(folder / "out/results.csv")[0][0] == "# arlab.study/1: smaller\n"
    assert (folder / "out/results.csv").read_bytes().splitlines(True)[-SMALL_POINTS:] == whole[-SMALL_POINTS:]


def test_one_study_in_a_folder(small):
    """With and without --resume; the system frees the folder when the first one is gone."""
    folder, whole = small
    lock = os.open(folder / "out", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for option in ["", " --resume"]:
        refused(f"study small.toml --out out --no-plots{option}", folder, "another study", "folder out")
    study("small.toml --out other", folder)
    os.close(lock)
    study("small.toml --out out --resume", folder)
    assert (folder / "out/results.csv").read_bytes() == b"".join(whole)


def test_two_studies_at_once(folder):
    """The one that is later is refused, or begins when the first has ended; nothing is mixed."""
    study("tiny.toml --out alone", folder)
    expected = rows_of(folder / "alone/results.csv")[1]
    for options in [[[], []], [[], ["--resume"]], [["--resume"], ["--resume"]]]:
        both = [
            subprocess.Popen(
                [PROGRAM, "study", "tiny.toml", "--out", "out", "--no-plots", *option],
                cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for option in options
        ]  # fmt: skip
        said = [process.communicate(timeout=HANGS_AFTER)[1] for process in both]
        for process, text in zip(both, said):
            assert process.returncode == 0 or process.returncode == 2 and "another study" in error_line(text)
        assert 0 in [process.returncode for process in both]
        assert rows_of(folder / "out/results.csv")[1] == expected


# ---------------------------------------------------------------- ended and unheard


def closed(*descriptors):
    def close():
        for descriptor in descriptors:
            os.close(descriptor)

    return close


@pytest.mark.parametrize("descriptors", [[2], [0, 2], [0, 1, 2]])
def test_closed_descriptors_are_not_taken_for_files(small, descriptors):
    """Descriptor 2 was results.csv, and progress was written into it."""
    folder, whole = small
    process = subprocess.Popen(
        [PROGRAM, "study", "small.toml", "--out", "closed", "--no-plots"],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=closed(*descriptors),
    )  # fmt: skip
    assert process.wait(HANGS_AFTER) == (2 if 1 in descriptors else 0)
    data = (folder / "closed/results.csv").read_bytes()
    assert data.splitlines(True)[-SMALL_POINTS:] == whole[-SMALL_POINTS:]
    assert len(data.splitlines()) == len(whole) and b"% of" not in data


def test_nobody_hears_of_the_progress(small):
    """A full stderr, and one whose reader has gone, do not end the sweep."""
    folder, whole = small
    for kind in ["full", "gone"]:
        if kind == "full":
            stderr = os.open("/dev/full", os.O_WRONLY)
        else:
            reader, stderr = os.pipe()
            os.close(reader)
        process = subprocess.Popen(
            [PROGRAM, "study", "small.toml", "--out", kind, "--no-plots"],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr,
        )  # fmt: skip
        os.close(stderr)
        assert process.wait(HANGS_AFTER) == 0
        assert (folder / kind / "results.csv").read_bytes().splitlines(True)[-SMALL_POINTS:] == whole[-SMALL_POINTS:]


def test_a_full_disk_keeps_the_rows(folder):
    """The limit on a file's size stands for it: some samples fit, then none."""
    study("tiny.toml --out whole", folder)
    whole = (folder / "whole/results.csv").read_bytes()
    limit = len(whole) * 3 // 4
    result = run(
        "study tiny.toml --out out --no-plots", folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert result.code == 2
    line = error_line(result.stderr.splitlines(True)[-1])
    assert "out/results.csv" in line and "File too large" in line and "--resume" in line
    kept = (folder / "out/results.csv").read_bytes()
    assert 0 < len(rows_of(folder / "out/results.csv")[1]) - 1 < POINTS and kept.endswith(b"\n")
    study("tiny.toml --out out --resume", folder)
    assert rows_of(folder / "out/results.csv")[1] == rows_of(folder / "whole/results.csv")[1]


# ---------------------------------------------------------------- names


def test_names_that_look_like_comments_and_lines(folder):
    """An input "#hash", a study whose path has a line break: the plots see every row."""
    (folder / "new\nline").mkdir()
    for ranks in (2, 4):
        shutil.copy(folder / f"data{ranks}.npy", folder / "new\nline")
    (folder / "new\nline/tiny.toml").write_text(STUDY.replace('"ours"', '"#hash, \\"quoted\\""'))
    result = run("study 'new\nline/tiny.toml' --out out", folder, timeout=60)
    assert result.code == 0, result
    comments, rows = rows_of(folder / "out/results.csv")
    assert len(comments) == 5 and len(rows) == POINTS + 1
    assert comments[1] == "# command: arlab study $'new\\x0aline/tiny.toml' --out out\n"
    assert sum(row["input"] == '#hash, "quoted"' for row in parse_csv("".join(rows))) == POINTS // 2
    assert len(list((folder / "out").glob("*.png"))) >= 3
    study("'new\nline/tiny.toml' --out out --resume", folder)
    assert rows_of(folder / "out/results.csv") == (comments, rows)


def test_a_path_that_is_no_text(folder):
    """Its bytes stand in the comment as a shell takes them, and the file is UTF-8."""
    os.rename(folder / "tiny.toml", os.fsencode(folder) + b"/\xff.toml")
    result = subprocess.run(
        [PROGRAM, "study", b"\xff.toml", "--out", "out", "--no-plots"], cwd=folder, capture_output=True, check=False
    )
    assert result.returncode == 0, result
    comments, _ = rows_of(folder / "out/results.csv")
    assert comments[1] == "# command: arlab study $'\\xff.toml' --out out\n"


def test_unreadable_and_strange_files_are_one_line(folder):
    (folder / "loop").symlink_to("loop")
    (folder / "taken").mkdir()
    os.mkfifo(folder / "taken/results.csv")
    long = "a" * 300
    for arguments, fragments in [
        (f"tiny.toml --out {long}", ["File name too long"]),
        ("tiny.toml --out loop/out", ["loop/out", "Too many levels"]),
        ("tiny.toml --out taken", ["taken/results.csv", "not a regular file"]),
        ("tiny.toml --out taken --resume", ["taken/results.csv", "not a regular file"]),
    ]:
        refused(f"study {arguments} --no-plots", folder, *fragments)


def while_it_stands(running, change):
    """Stops a run, so that it does not end meanwhile, for a change."""
    running.send_signal(signal.SIGSTOP)
    with contextlib.suppress(ChildProcessError):  # it has ended
        os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    change()
    running.send_signal(signal.SIGCONT)


TRIES = 100  # on a busy machine a run may have ended before it is stopped


def test_a_file_whose_rows_are_gone_meanwhile_is_written_again(folder, long):
    """The file that is left is whole, whoever moved it."""
    expected, meanwhile = long
    results = folder / "out/results.csv"
    there = [len(expected)]

    def remove():
        there.append(len(rows_of(results)[1]))
        results.unlink()

    while there[-1] == len(expected) and len(there) < TRIES:
        assert meanwhile(2, lambda running: while_it_stands(running, remove)) == 0
    assert there[-1] < len(expected)
    assert rows_of(results)[1] == expected


def test_an_input_that_changes_meanwhile_ends_the_study(folder, long):
    """No row of another file is kept under the hash of the first."""
    expected, meanwhile = long
    data = np.load(folder / "data4.npy")
    change = lambda: np.save(folder / "data4.npy", data[:, ::-1])  # noqa: E731
    for _ in range(TRIES):
        code = meanwhile(2, lambda running: while_it_stands(running, change))
        np.save(folder / "data4.npy", data)
        if code != 0:
            break
        (folder / "out/results.csv").unlink()
    assert code == 2 and set(rows_of(folder / "out/results.csv")[1]) < set(expected)


# ---------------------------------------------------------------- refused before anything is written


@pytest.mark.parametrize(
    "before, after, fragments",
    [
        ('title = "tiny"', "", ["title"]),
        ('title = "tiny"', "title = 7", ["title"]),
        ('title = "tiny"', 'title = "tiny', ["line 2"]),
        ('title = "tiny"', 'title = "tiny"\ntitle = "again"', ["line 3", "title"]),
        ('title = "tiny"', 'titel = "tiny"', ["titel", "title"]),
        ('title = "tiny"', 'title = "tiny"\ndtype = "fp8"', ["fp8", "fp16, bf16, fp32"]),
        ('title = "tiny"', 'title = "tiny"\ndtype = "bf16"', ["fp16"]),
        ("[2, 4]", "[]", ["ranks", "1 to 65536"]),
        ("[2, 4]", "[2, 0]", ["ranks", "1 to 65536"]),
        ("[2, 4]", "[2, 4.0]", ["ranks", "1 to 65536"]),
        ("[2, 4]", "[2, 8]", ["full:4", "8"]),
        ("[2, 4]", "[2, 3]", ["data3.npy"]),
        ('["two_shot", "ring"]', '["two_shot", "rings"]', ["algorithms", "rings", "did you mean 'ring'?"]),
        ('["two_shot", "ring"]', '"ring"', ["algorithms", "ring", "all"]),
        ('["two_shot", "ring"]', "[]", ["algorithms"]),
        ('["fp16", "qr-q4"]', '["fp16", "q4"]', ["codecs", "q4", "known are bf*, "]),
        ('["fp16", "qr-q4"]', '["fp32"]', ["fp32", "fp16"]),
        ("gaussian:sigma=1,seed=1", "gauss", ["gauss", "gaussian"]),
        ('synthetic = "gaussian:sigma=1,seed=1"\nelements = "4K"', "", ["input 1", "file", "synthetic"]),
        ('elements = "4K"', "", ["input 1", "elements"]),
        ('elements = "4K"', 'elements = "4K"\nseed = 1', ["input 1", "seed"]),
        ('elements = "4K"', 'elements = "4K"\nfile = "x.npy"', ["input 1", "file", "synthetic"]),
        ('name = "gaussian"', "", ["input 1", "name"]),
        ('name = "gaussian"', 'name = "ours"', ["ours"]),
        ('name = "gaussian"', 'name = ["x"]', ["input 1", "name"]),
        ("[[input]]\nname", "[[inputs]]\nname", ["inputs"]),
        ("data{ranks}.npy", "missing{ranks}.npy", ["missing2.npy"]),
        ("data{ranks}.npy", "data2.npy", ["data2.npy", "4"]),
        ("data{ranks}.npy", "tiny.toml", ["tiny.toml", ".npy"]),
        ("data{ranks}.npy", "double.npy", ["double.npy", "float64"]),
        ("data{ranks}.npy", "half.npy", ["half.npy"]),
        ("data{ranks}.npy", "none{ranks}.npy", ["none2.npy", "no elements"]),
        ('"full:4"', '"full:5x"', ["full:5x"]),
        ('"full:4"', '"missing.toml"', ["missing.toml"]),
        ('bytes = "1M"', "", ["simulate", "bytes"]),
        ('bytes = "1M"', 'bytes = "100001"', ["simulate.bytes", "100001 bytes are not whole elements of fp16"]),
        ('bytes = "1M"', 'bytes = "1M"\nranks = 4', ["simulate", "ranks"]),
    ],
)
def test_a_wrong_study_leaves_the_results_of_the_last_one(folder, before, after, fragments):
    np.save(folder / "double.npy", np.zeros((2, 8)))
    (folder / "half.npy").write_bytes((folder / "data2.npy").read_bytes()[:3000])
    for ranks in (2, 4):
        np.save(folder / f"none{ranks}.npy", np.zeros((ranks, 0), np.float16))
    (folder / "out").mkdir()
    (folder / "out/results.csv").write_text("a night's work\n")
    assert before in STUDY
    (folder / "tiny.toml").write_text(STUDY.replace(before, after, 1))
    refused("study tiny.toml --out out --no-plots", folder, *fragments)


@pytest.mark.parametrize(
    "arguments, fragments",
    [
        ("missing.toml", ["missing.toml"]),
        (".", ["."]),
        ("data2.npy", ["data2.npy"]),
        ("tiny.toml other.toml", ["other.toml"]),
        ("tiny.toml --out data2.npy", ["data2.npy"]),
        ("tiny.toml --out data2.npy/below", ["data2.npy/below"]),
        ("tiny.toml --out taken", ["taken/results.csv"]),
        ("tiny.toml --out ''", ["--out"]),
        ("tiny.toml --resume=maybe", ["--resume"]),
    ],
)
def test_wrong_arguments(folder, arguments, fragments):
    (folder / "taken/results.csv").mkdir(parents=True)
    refused(f"study {arguments} --no-plots", folder, *fragments)


def test_a_title_cannot_break_the_file(folder):
    """A title or a name of several lines is refused, or written so that the rows can be read."""
    for before, after in [
        ('"tiny"', '"two\\nlines"'),
        ('name = "gaussian"', 'name = "two\\nlines"'),
    ]:
        (folder / "tiny.toml").write_text(STUDY.replace(before, after))
        result = run("study tiny.toml --out out --no-plots", folder)
        if result.code == 0:
            assert len(table_of(folder / "out/results.csv")) == POINTS
            study("tiny.toml --out out --resume", folder)
            assert len(table_of(folder / "out/results.csv")) == POINTS
        else:
            assert error_line(result.stderr)


def test_names_that_spreadsheets_would_run_are_text(tmp_path):
    """They stand behind an apostrophe in the files, and nowhere else; numbers stay numbers."""
    study = """
title = "t"
ranks = [2]
algorithms = ["ring"]
codecs = ["fp16", "qr-q4"]
"""
    names = ["=cmd|' /C calc'!A0", "@x", "+1+1", "-2+3", "'=1", "plain", "-2.5"]
    for name in names:
        study += f'[[input]]\nname = {json.dumps(name)}\nsynthetic = "gaussian"\nelements = 4096\n'
    (tmp_path / "s.toml").write_text(study)
    assert run("study s.toml --out out --no-plots", tmp_path).code == 0
    for file in ("results.csv", "summary.csv"):
        lines = [line for line in (tmp_path / "out" / file).read_text().splitlines() if not line.startswith("#")]
        first = [next(csv.reader([line])) for line in lines][1:]
        cells = {cell for row in first for cell in row}
        assert {"'" + name for name in names[:5]} | {"plain", "-2.5"} <= cells
        assert not any(cell[0] in "=+-@" for row in first for cell in row if cell and not is_number(cell))
    before = (tmp_path / "out/results.csv").read_bytes()
    assert run("study s.toml --out out --no-plots --resume", tmp_path).code == 0
    assert (tmp_path / "out/results.csv").read_bytes() == before


def is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True
