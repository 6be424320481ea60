"""Help, version, and what the program says to somebody who has not read it."""

import re

import pytest
from program import PROGRAM, error_line, ok, refused, run

# The contract's commands that exist, with the options that scripts use.
COMMANDS = {
    "list": [],
    "encode": ["--codec", "--dtype"],
    "decode": ["--codec", "--dtype", "--elements"],
    "reduce": [
        "--algorithm", "--schedule", "--codec", "--ranks", "--dtype", "--input", "--tensor",
        "--synthetic", "--elements", "--out", "--accumulate", "--own", "--forward",
        "--combine", "--group-size", "--micro-chunks", "--threads",
    ],
    "schedule": ["--algorithm", "--schedule", "--ranks", "--elements", "--group-size"],
    "simulate": [
        "--topology", "--algorithm", "--schedule", "--codec", "--bytes", "--ranks", "--library",
        "--sharing", "--trace", "--no-plots",
    ],
    "topology": ["--out"],
    "select": [
        "--topology", "--bytes", "--min-sqnr", "--max-wire-bits", "--input", "--synthetic",
        "--dtype", "--algorithms", "--codecs", "--out", "--plot",
    ],
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
}  # fmt: skip


def test_program_is_there():
    assert PROGRAM.is_file()


def test_version(tmp_path):
    assert re.search(r"\b\d+\.\d+\.\d+\n$", ok("--version", tmp_path))


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_command(tmp_path, option):
    text = ok(option, tmp_path)
    for command in COMMANDS:
        assert re.search(rf"^  {command}  +\S", text, re.MULTILINE), command


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_explains_every_option(tmp_path, command):
    text = ok(f"{command} --help", tmp_path)
    assert f"arlab {command}" in text
    for option in [*COMMANDS[command], "--format"]:
        assert re.search(rf"^  {option}\b.*\s\S", text, re.MULTILINE), option
    assert "table, json or csv" in text


def test_help_wins_over_missing_options(tmp_path):
    for command in COMMANDS:
        assert ok(f"{command} --help --format table", tmp_path) == ok(f"{command} -h", tmp_path)


def test_no_arguments(tmp_path):
    refused("", tmp_path, "arlab --help")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_arguments_says_what_is_missing(tmp_path, command):
    refused(command, tmp_path)


@pytest.mark.parametrize("option", ["--help", "--version", "study --help"])
def test_help_that_nobody_can_read(tmp_path, option):
    with open("/dev/full", "w") as full:
        result = run(option, tmp_path, stdout=full)
    assert result.code == 2 and "standard output" in error_line(result.stderr)
