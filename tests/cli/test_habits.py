"""Habits of people of the field: nccl-tests' columns and sizes, completion in a shell, a doctor."""

import json
import os
import re
import shutil
import subprocess

import pytest
from program import PROGRAM, REPOSITORY, contents, ok, ok_csv, ok_json, on_terminal, refused, run, without_privileges

SIMULATE = "simulate --topology h200-8 --algorithm two_shot --codec qr-q4"
BENCH = "bench --platform host --dtype fp16 --ranks 3 --calls 2 --replays 2 --algorithm two_shot --codec qr-q4,fp16"
SHELLS = ("bash", "zsh", "fish")


def nccl_lines(text):
    """Returns the lines that scripts for nccl-tests keep: those that begin with a number, split at spaces."""
    return [line.split() for line in text.splitlines() if re.match(r"\s+\d+\s", line)]


# ---------------------------------------------------------------- nccl-tests


def test_sizes_as_nccl_tests_has_them(tmp_path):
    rows = ok_csv(SIMULATE + " -b 8 -e 128M -f 4", tmp_path)
    assert [int(row["bytes"]) for row in rows] == [8 * 4**i for i in range(13)]
    for row in rows:
        one = ok_json(f"{SIMULATE} --bytes {row['bytes']}", tmp_path)
        assert float(row["latency_us"]) == one["latency_us"]
        assert float(row["busbw_gb_per_s"]) == one["busbw_gb_per_s"]
    assert ok_csv(SIMULATE + " --bytes 1K..4K,64K", tmp_path) == ok_csv(
        SIMULATE + " --bytes 64K,4K,2K,1K,1K", tmp_path
    )


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("64M", 1 << 26, "64 MiB"), ("64MiB", 1 << 26, "64 MiB"), ("64mib", 1 << 26, "64 MiB"), ("64MB", 64 * 10**6, "64 MB"),
        ("64mb", 64 * 10**6, "64 MB"), ("96KB", 96000, "96 KB"), ("3GB", 3 * 10**9, "3 GB"), ("1536K", 1536 << 10, "1.5 MiB"),
        ("67112960", 67112960, None), ("2K", 2048, "2 KiB"),
    ],
)  # fmt: skip
def test_sizes_with_their_units(tmp_path, text, size, shown):
    """KB, MB and GB are decimal; the table says both the digits and the unit, JSON and CSV the digits."""
    command = f"simulate --topology full:4 --algorithm ring --codec fp16 --bytes {text}"
    assert ok_json(command, tmp_path)["bytes"] == size and ok_csv(command, tmp_path)[0]["bytes"] == str(size)
    line = next(line for line in ok(command, tmp_path).splitlines() if line.startswith("bytes "))
    assert line.split()[1] == str(size) and (f"({shown})" in line if shown else "(" not in line)
    rows = ok(f"{command},64K", tmp_path).splitlines()
    assert any(line.strip().startswith(shown or str(size)) for line in rows)
    for wrong in ("64MBs", "64B", "64 MB", "18446744073709551615KB"):
        refused(f"simulate --topology full:4 --algorithm ring --codec fp16 --bytes '{wrong}'", tmp_path, "MB")


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ("-e 1M", "--maxbytes requires --minbytes"),
        ("-b 1K --bytes 2K", "excludes"),
        ("-b 1K -e 512", "the last size is less than the first"),
        ("-b 1K -e 2K -f 1", "from 2 to 1024"),
        ("-b 1 -e 4", "1 bytes are not whole elements of 2 bytes"),
        ("--bytes 4K..1K", "the last size is less than the first"),
        ("-b 1K -e 2K --trace t.json", "one size"),
        ("-b 1K --format nccl --trace t.json", "one size"),
        ("-b 1K --format nccl --format2 x", "'--format2' is not an option"),
        ("", "--bytes"),
    ],
)
def test_sizes_that_cannot_be(tmp_path, arguments, fragment):
    refused(f"{SIMULATE} {arguments}", tmp_path, fragment)


def test_simulated_times_in_the_columns_of_nccl_tests(tmp_path):
    text = ok(SIMULATE + " -b 32K -e 64M -f 2 --format nccl", tmp_path)
    rows = nccl_lines(text)
    assert "# Collective test starting: all_reduce_perf" in text and "simulated: model" in text
    assert len(rows) == 12
    for row in rows:
        size = int(row[0])
        one = ok_json(f"{SIMULATE} --bytes {size}", tmp_path)
        assert row[1:5] == [str(size // 2), "half", "sum", "-1"]
        assert row[5:9] == row[9:13] and row[8] == "N/A" and len(row) == 13
        for cell, name in zip(row[5:8], ("latency_us", "algbw_gb_per_s", "busbw_gb_per_s")):
            decimals = len(cell.partition(".")[2])
            assert cell == f"{one[name]:.{decimals}f}" and decimals >= (2 if one[name] < 100 else 1 if one[name] < 1000 else 0)


@pytest.mark.parametrize(
    ("algorithm", "program", "redop", "slots", "factor"),
    [
        ("all_to_all", "alltoall_perf", "none", 8, 7 / 8),
        ("reduce_scatter", "reduce_scatter_perf", "sum", 8, 7 / 8),
        ("all_gather", "all_gather_perf", "none", 8, 7 / 8),
        ("broadcast", "broadcast_perf", "none", 1, 1),
    ],
)
def test_every_collective_is_that_of_nccl_tests(tmp_path, algorithm, program, redop, slots, factor):
    command = f"simulate --topology h200-8 --algorithm {algorithm} --codec bf16 --bytes 1M --format "
    text = ok(command + "nccl", tmp_path)
    assert f"# Collective test starting: {program}\n" in text
    report = json.loads(ok(command + "nccl-json", tmp_path))
    line = report["results"][0]
    assert line["type"] == "bfloat16" and line["redop"] == redop
    assert line["count"] == (1 << 20) // 2 // slots
    assert line["out_of_place"]["bus_bw"] == pytest.approx(factor * line["out_of_place"]["alg_bw"])


def test_bench_compares_every_bit_when_asked_to(tmp_path):
    rows = nccl_lines(ok(BENCH + " -b 6K -e 24K --format nccl --check", tmp_path))
    assert [row[0] for row in rows] == ["6144", "12288", "24576"] * 2
    assert all(row[8] == row[12] == "0" for row in rows)
    report = json.loads(ok(BENCH + " -b 6K --format nccl-json", tmp_path))
    assert report["version"] == 2 and report["config"]["ngpus"] == 3 and report["config"]["validation"] == 0
    assert [each["experiment_name"] for each in report["results"]] == ["two_shot qr-q4", "two_shot fp16"]
    assert all(each["in_place"]["nwrong"] is None for each in report["results"])
    assert "emulated time, not a measurement" in report["provenance"]


def test_wrong_kernels_are_counted(tmp_path):
    """The program with mistakes gets a bit of qr-q4 wrong; nccl-tests says FAILED then."""
    mistaken = PROGRAM.with_name("arlab_with_mistakes")
    text = ok(BENCH + " -b 24K --format nccl --check", tmp_path, program=mistaken)
    wrong = [int(row[8]) + int(row[12]) for row in nccl_lines(text)]
    assert any(wrong) and "FAILED" in text


def test_check_is_for_nccl(tmp_path):
    refused(BENCH + " -b 6K --check", tmp_path, "--format nccl", "arlab conform")
    refused("list codecs --format nccl", tmp_path, "allowed are table, json, csv")


# ---------------------------------------------------------------- completion


def words(line, folder):
    return ok(f"completion words -- '{line}'", folder).split()


def test_completion_knows_commands_options_and_values(tmp_path):
    assert words("arlab sel", tmp_path) == ["select"]
    assert set(words("arlab ", tmp_path)) >= {"list", "simulate", "doctor", "new", "--help"}
    assert words("arlab simulate --topo", tmp_path) == ["--topology"]
    of_h200 = ["h200-2", "h200-2x8", "h200-4", "h200-8", "h200-symmetric-2", "h200-symmetric-8"]
    assert words("arlab simulate --topology h200-", tmp_path) == of_h200
    assert "two_shot" in words("arlab reduce --codec qr-q4 --algorithm t", tmp_path)
    assert "fp16,qr-q4" in words("arlab sweep --codec fp16,qr-q", tmp_path)
    assert "mi300x-8" in words("arlab topology show mi300", tmp_path)
    assert words("arlab nonsense --x", tmp_path) == []
    assert words("arlab encode some_fi", tmp_path) == []  # the shell's own: files


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_are_valid(tmp_path, shell):
    script = ok(f"completion {shell}", tmp_path)
    assert "arlab completion words" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_bash_completes(tmp_path):
    script = ok("completion bash", tmp_path)
    ask = 'COMP_LINE="arlab simulate --topology mi300x-"; COMP_POINT=${#COMP_LINE}; _arlab; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], env={"PATH": f"{PROGRAM.parent}:/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["mi300x-2", "mi300x-4", "mi300x-8"] and done.stderr == ""


def test_completion_for_another_shell(tmp_path):
    refused("completion tcsh", tmp_path, "tcsh", "bash, zsh, fish")


# ---------------------------------------------------------------- doctor


def test_doctor_says_what_is_here_and_how_to_get_the_rest(tmp_path):
    report = ok_json("doctor", tmp_path)
    findings = {each["what"]: each for each in report["findings"]}
    assert findings["platform host"]["state"] == "here"
    assert findings["CMake"]["state"] == "here"
    for each in report["findings"]:
        assert each["detail"]
        if each["state"] in ("missing", "not built", "not installed") and each["what"] != "vectors":
            assert each["how_to_get_it"], each
    narrow = on_terminal("doctor", tmp_path, 120)
    assert max(len(line) for line in narrow.splitlines() if "/" not in line) <= 120


def test_doctor_where_nothing_is(tmp_path):
    bare = {"PATH": "/nowhere", "ARLAB_PYTHON": "/nowhere/python"}
    report = json.loads(ok("doctor --format json", tmp_path, env=bare))
    findings = {each["what"]: each for each in report["findings"]}
    assert report["missing"] is True
    assert findings["Ninja"]["state"] == "missing" and "ninja-build" in findings["Ninja"]["how_to_get_it"]
    assert findings["Python"]["state"] == "missing"


# ---------------------------------------------------------------- new

READ = (
    "CONTRIBUTING.md", "tests/contributing/example_codec_test.cc", "reference/codecs/formats/formats.h",
    "tests/codecs/CMakeLists.txt",
)  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    """Returns a copy of the sources that the command reads; tests/contributing checks that its output compiles and
    works."""
    for file in READ:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, tmp_path / file)
    return tmp_path


def test_new_codec_is_a_file_a_test_and_two_lines(tree):
    report = ok_json("new codec zebra5-g16 --block 16 --tree .", tree)
    header = (tree / report["header"]).read_text()
    assert report["header"] == str(tree / "reference/codecs/formats/zebra5_g16.h")
    assert "8-bit symmetric" not in header.partition("\n// ")[2].partition("\n")[2]
    assert "struct Zebra5G16 {" in header and "kBlock = 16;" in header and "absmax" not in header.lower()
    assert "TEST(Zebra5G16, HasEveryProperty)" in (tree / report["test"]).read_text()
    before = (REPOSITORY / READ[2]).read_text().splitlines()
    after = (tree / READ[2]).read_text().splitlines()
    added = [line for line in after if line not in before]
    assert added[0] == '#include "reference/codecs/formats/zebra5_g16.h"' and ", Zebra5G16>;" in added[1]
    includes = [line for line in after if line.startswith('#include "')]
    assert includes == sorted(includes) and len(added) == 2
    assert (tree / READ[3]).read_text().startswith((REPOSITORY / READ[3]).read_text())
    refused("new codec zebra5-g16 --tree .", tree, "is there already")


def test_new_codecs_at_once_all_have_their_lines(tree):
    words = [PROGRAM, "new", "codec"]
    started = [subprocess.Popen([*words, f"z{i}-g16", "--tree", "."], cwd=tree, stdout=subprocess.DEVNULL) for i in range(8)]
    assert [process.wait(60) for process in started] == [0] * 8
    tests = (tree / "tests/codecs/CMakeLists.txt").read_text()
    formats = (tree / "reference/codecs/formats/formats.h").read_text()
    for i in range(8):
        assert f"z{i}_g16_test.cc" in tests and f"Z{i}G16" in formats and f"z{i}_g16.h" in formats


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ("codec qr-q4", "there already"),
        ("codec int5-g96", "there already"),
        ("codec Name", "lower-case"),
        ("codec ../name", "lower-case"),
        ("codec a--b", "lower-case"),
        ("codec my-codec --block 0", "from 8 to 256"),
        ("codec my-codec --block 24", "8, 16, 32, 64, 128 and 256"),
        ("algorithm mine", "known are codec"),
    ],
)
def test_new_codecs_that_cannot_be(tree, arguments, fragment):
    refused(f"new {arguments} --tree .", tree, fragment)


def test_new_wants_sources(tmp_path):
    refused("new codec my-codec --tree .", tmp_path, "CONTRIBUTING.md", "arlab's sources")
    refused("new codec my-codec", tmp_path, str(tmp_path), "not in a tree of arlab's sources", "--tree")


def test_new_writes_into_the_tree_that_one_stands_in(tree):
    """Not into the one that the program was built from."""
    inside = tree / "reference" / "codecs"
    assert ok_json("new codec zebra5-g16", inside)["test"] == str(tree / "tests/codecs/zebra5_g16_test.cc")
    assert (tree / "tests/codecs/zebra5_g16_test.cc").exists()


def test_new_leaves_nothing_half_written(tree):
    (tree / "tests/codecs/CMakeLists.txt").chmod(0o444)
    (tree / "reference/codecs/formats").chmod(0o555)
    before = contents(tree)
    result = run("new codec my-codec --tree .", tree, preexec_fn=without_privileges)
    assert result.code == 2 and contents(tree) == before


@pytest.mark.parametrize("threads", ["0", "-1", "x", ""])
def test_a_number_of_threads_that_is_none_is_not_talked_about(tmp_path, threads):
    """The solver of `validate` brings OpenMP's library along, which complains to every command."""
    result = run("list codecs", tmp_path, env={**os.environ, "OMP_NUM_THREADS": threads})
    assert (result.code, result.stderr) == (0, "")
