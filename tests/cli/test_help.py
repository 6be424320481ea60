"""Help, version, and what the program says to somebody who has not read it."""

import re
import tomllib

import pytest
from program import PROGRAM, REPOSITORY, error_line, ok, refused, run

# The contract's commands that exist, with the options that scripts use.
COMMANDS = {
    "list": [],
    "encode": ["--codec", "--dtype"],
    "decode": ["--codec", "--dtype", "--elements"],
    "reduce": [
        "--algorithm", "--schedule", "--codec", "--ranks", "--dtype", "--input", "--tensor",
        "--synthetic", "--elements", "--out", "--accumulate", "--own", "--forward",
        "--combine", "--group-size", "--micro-chunks", "--inner-codec", "--threads",
    ],
    "schedule": ["--algorithm", "--schedule", "--ranks", "--elements", "--group-size"],
    "simulate": [
        "--topology", "--algorithm", "--schedule", "--codec", "--inner-codec", "--bytes", "--ranks", "--library",
        "--sharing", "--trace", "--no-plots",
    ],
    "topology show": ["--out"],
    "topology compare": [],
    "topology import": ["--out", "--from", "--base", "--servers"],
    "select": [
        "--topology", "--bytes", "--min-sqnr", "--max-wire-bits", "--input", "--synthetic",
        "--dtype", "--algorithms", "--codecs", "--out", "--plot",
    ],
    "check-codec": ["--platform"],
    "conform": ["--platform", "--codec", "--algorithm", "--ranks", "--elements"],
    "bench": [
        "--platform", "--algorithm", "--codec", "--dtype", "--bytes", "--ranks", "--calls", "--replays",
        "--blocks", "--slot-bytes", "--vendor", "--machine", "--out",
    ],
    "judge": [
        "--calls", "--answers", "--ranks", "--dtype", "--lengths", "--runs", "--seed", "--timeout",
        "--in-place", "--codec", "--claim",
    ],
    "vectors": ["--codec", "--dtype"],
    "study": ["--out", "--resume", "--no-plots"],
    "sweep": ["--topology", "--algorithm", "--codec", "--bytes", "--ranks", "--out", "--highlight"],
    "new codec": ["--block", "--tree"],
    "doctor": [],
}  # fmt: skip


def test_program_is_there():
    assert PROGRAM.is_file()


def test_version(tmp_path):
    assert re.search(r"\b\d+\.\d+\.\d+\n$", ok("--version", tmp_path))


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_command(tmp_path, option):
    text = ok(option, tmp_path)
    for command in {command.split()[0] for command in COMMANDS}:
        assert re.search(rf"^  {command}  +\S", text, re.MULTILINE), command


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_explains_every_option(tmp_path, command):
    text = ok(f"{command} --help", tmp_path)
    assert f"arlab {command}" in text
    for option in [*COMMANDS[command], "--format", "--all"]:
        assert re.search(rf"^  {option}\b.*\s\S", text, re.MULTILINE), option
    assert "table, json or csv" in text


def test_help_wins_over_missing_options(tmp_path):
    for command in COMMANDS:
        assert ok(f"{command} --help --format table", tmp_path) == ok(f"{command} -h", tmp_path)


def test_no_arguments(tmp_path):
    refused("", tmp_path, "arlab --help")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"doctor"}))
def test_a_command_without_arguments_says_what_is_missing(tmp_path, command):
    refused(command, tmp_path)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("reduc", "'reduce'"),
        ("topology shw l40-8", "'show'"),
        ("list codec", "'codecs'"),
        ("reduce --codecs qr-q4", "'--codecs' is not an option of arlab reduce (see arlab reduce --help); did you mean '--codec'?"),
        ("simulate --algorthm=ring --topology h200-8", "'--algorithm'"),
        ("reduce --algorithm twoshot --codec qr-q4 --ranks 2 --synthetic gaussian --elements 8", "'two_shot'"),
        ("reduce --algorithm ring --codec int4 --ranks 2 --synthetic gaussian --elements 8", "'int4-g32' or 'int4-g32-sr'"),
        ("reduce --algorithm ring --codec QR-Q4 --ranks 2 --synthetic gaussian --elements 8", "'qr-q4'"),
        ("reduce --algorithm ring --codec qr-q4 --ranks 2 --synthetic gausian --elements 8", "'gaussian'"),
        ("topology show h200", "'h200-2' or 'h200-4' or 'h200-8'"),
        ("model time --model llama3-8b --topology h200-8", "'llama-3-8b'"),
    ],
)  # fmt: skip
def test_what_was_meant(tmp_path, command, hint):
    refused(command, tmp_path, "did you mean", hint)


def test_no_hint_where_nothing_is_near(tmp_path):
    line = error_line(run("topology show nothing-like-it", tmp_path).stderr)
    assert "known are" in line and "did you mean" not in line


def test_an_option_may_have_the_value_of_another_name(tmp_path):
    """What follows an option is its value, whatever it looks like."""
    refused("reduce --algorithm ring --codec --dtype", tmp_path, "--dtype")


def test_the_slots_of_bench_are_those_of_the_communicator(tmp_path):
    header = (REPOSITORY / "kernels/runtime/collective_request.h").read_text()
    kibibytes = re.search(r"slot_bytes = std::size_t{(\d+)} \* 1024;", header)[1]
    assert re.search(rf"--slot-bytes .*\[{kibibytes}K\]", ok("bench --help", tmp_path))


def test_the_keys_of_a_study_are_documented(tmp_path):
    """The only page about them is a comment: it is TOML, and has the keys that the program takes."""
    comment = (REPOSITORY / "experiments/lab/study_file.h").read_text().split("#pragma")[0]
    line_of_toml = r'^//   (\[+\w+\]+|\w+ += (?:"[^"]*"|\[[^]]*\]))(?:  .*)?$'
    lines = re.findall(line_of_toml, comment, re.MULTILINE)
    documented = tomllib.loads("\n".join(lines))
    by_file, synthetic = documented["input"]
    root = "title = 't'\nranks = [2]\nalgorithms = 'all'\ncodecs = 'all'"
    generated = "[[input]]\nname = 'x'\nsynthetic = 'gaussian'\nelements = 8"
    for study, keys in [
        (f"none = 1\n{root}", documented),
        (f"{root}\n[[input]]\nname = 'x'\nfile = 'x.npy'\nnone = 1", by_file),
        (f"{root}\n{generated}\nnone = 1", synthetic),
        (f"{root}\n{generated}\n[simulate]\nnone = 1", documented["simulate"]),
    ]:
        (tmp_path / "x.toml").write_text(study)
        line = run("study x.toml", tmp_path).stderr.strip()
        assert set(re.search(r"unknown key 'none'; allowed are (.*)", line)[1].split(", ")) == set(keys), line


@pytest.mark.parametrize("option", ["--help", "--version", "study --help"])
def test_help_that_nobody_can_read(tmp_path, option):
    with open("/dev/full", "w") as full:
        result = run(option, tmp_path, stdout=full)
    assert result.code == 2 and "standard output" in error_line(result.stderr)
