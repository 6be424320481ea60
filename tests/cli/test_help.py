"""Help, version, and the program's answers to those who have not read it."""

import re

import numpy as np
import pytest
from test_golden import COMMANDS
from program import PROGRAM, REPOSITORY, error_line, ok, refused, run

# Texts of help are in help.txt, see test_golden.py.


def test_program_is_there():
    assert PROGRAM.is_file()


def test_version(tmp_path):
    assert re.search(r"\b\d+\.\d+\.\d+\n$", ok("--version", tmp_path))


def test_help_wins_over_missing_options(tmp_path):
    for command in filter(None, COMMANDS):
        assert ok(f"{command} --help --format table", tmp_path) == ok(f"{command} -h", tmp_path)


#: Words with which help of an option begins: it says what the option does.
VERBS = set(
    "Add Align Ask Assume Begin Calibrate Capture Check Choose Compare Compile Complete Compress Compute "
    "Connect Convert Cut Decode Delay Display Draw Encode End Expect Fit Generate Give Highlight Judge "
    "Keep Launch Leave Let Limit List Load Look Measure Move Multiply Name Overlap Pass Plot Print Put "
    "Quantize Rank Read Reduce Report Reproduce Require Round Route Run Say Seed Select Send Set Share "
    "Show Simulate Skew Skip Solve Split Spread Synchronize Take Time Use Write".split()
)
GROUPS = {"topology", "kernels", "model", "new"}
#: Examples that need GPUs, a network, a file of others, or minutes.
NOT_RUN = tuple("topology import,study,model,report,judge,bench,kernels,doctor,validate,calibrate".split(","))


def options_of(help_text):
    """Returns the help of each option, which may begin below it; options of algorithms name these before a colon."""
    options = help_text.partition("Options:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^(?:  -\S+.*? {2,}| {20,})(\S.*)$", options, re.MULTILINE)
    return [re.sub(r"^[a-z_, ]+: ", "", words) for words in found]


def test_help_of_options_begins_with_what_they_do(tmp_path):
    helps = {words for command in COMMANDS for words in options_of(ok(f"{command} --help", tmp_path))}
    assert len(helps) > 200
    assert sorted(words for words in helps if words.split()[0].capitalize() not in VERBS) == []


def test_examples_of_help_run(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(64, np.float16))
    for command in filter(None, COMMANDS):
        examples = re.findall("^Example: arlab (.*)$", ok(f"{command} --help", tmp_path), re.MULTILINE)
        assert len(examples) == (command not in GROUPS), command
        for example in examples:
            assert example.startswith(command)
            ok(example if not example.startswith(NOT_RUN) else f"{example} --help", tmp_path)


def test_no_arguments(tmp_path):
    refused("", tmp_path, "arlab --help")


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"", "doctor", "kernels list", "kernels clear", "validate", "model validate"}))
def test_a_command_without_arguments_says_what_is_missing(tmp_path, command):
    refused(command, tmp_path)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("reduc", "'reduce'"),
        ("topology shw l40-8", "'show'"),
        ("list codec", "'codecs'"),
        ("reduce --codecs qr-q4", "'--codecs' is not an option of arlab reduce: did you mean '--codec'? (see arlab reduce --help)"),
        ("simulate --algorthm=ring --topology h200-8", "'--algorithm'"),
        ("reduce --algorithm twoshot --codec qr-q4 --ranks 2 --synthetic gaussian --elements 8", "'two_shot'"),
        ("reduce --algorithm ring --codec int4 --ranks 2 --synthetic gaussian --elements 8", "'int4-g32' or 'int4-g32-sr'"),
        ("check-codec qr-q5", "'qr-q5': did you mean 'qr-q8' or 'qr-q6' or 'qr-q4'? `arlab list codecs` has all"),
        ("reduce --algorithm ring --codec QR-Q4 --ranks 2 --synthetic gaussian --elements 8", "'qr-q4'"),
        ("reduce --algorithm ring --codec qr-q4 --ranks 2 --synthetic gausian --elements 8", "'gaussian'"),
        ("topology show h200", "'h200-2' or 'h200-2x8' or 'h200-4'"),
        ("model time --model llama3-8b --topology h200-8", "'llama-3-8b'"),
    ],
)  # fmt: skip
def test_what_was_meant(tmp_path, command, hint):
    refused(command, tmp_path, "did you mean", hint)


def test_no_hint_where_nothing_is_near(tmp_path):
    line = error_line(run("topology show nothing-like-it", tmp_path).stderr)
    assert "known are" in line and "did you mean" not in line
    own = "; `arlab list codecs` has all; your own: --setup FILE (Python) or --codec-header FILE (C++)"
    refused("check-codec my-codec", tmp_path, ", int*, ", own)
    # The word behind an option is its value, whatever it looks like.
    refused("reduce --algorithm ring --codec --dtype", tmp_path, "--dtype")


def test_a_file_may_be_meant(tmp_path):
    schedule, model = "schedule --ranks 2 --elements 8 --algorithm", "model time --topology h200-8 --model"
    for command, file in (("topology show", "mine.toml"), (model, "own.json"), (schedule, "its.xml")):
        (tmp_path / file).write_text("")
        refused(f"{command} {file.split('.')[0]}", tmp_path, f": did you mean the file '{file}'?")


def test_the_slots_of_bench_are_those_of_the_communicator(tmp_path):
    header = (REPOSITORY / "kernels/runtime/collective_request.h").read_text()
    kibibytes = re.search(r"slot_bytes = std::size_t{(\d+)} \* 1024;", header)[1]
    assert re.search(rf"--slot-bytes .*\[{kibibytes}K\]", ok("bench --help", tmp_path))


@pytest.mark.parametrize("option", ["--help", "--version", "study --help"])
def test_help_that_nobody_can_read(tmp_path, option):
    with open("/dev/full", "w") as full:
        result = run(option, tmp_path, stdout=full)
    assert result.code == 2 and "standard output" in error_line(result.stderr)
