"""Folders include what lies below them: the reference stands alone, simulator and kernels stand on it beside each other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHERS = {"hwy"}  # of libraries that are included in quotes
ALLOWED = {"reference": {"reference"}, "sim": {"reference", "sim"}, "kernels": {"reference", "kernels"}}


@pytest.mark.parametrize("folder", ALLOWED)
def test_folders_include_only_what_is_below_them(folder):
    files = [file for file in (ROOT / folder).rglob("*") if file.suffix in {".h", ".cc", ".hip", ".cu", ".in"}]
    included = [(file, path) for file in files for path in re.findall(r'^\s*#\s*include "(.+)"', file.read_text(), re.M)]
    assert len(included) > 50
    wrong = [f"{file.relative_to(ROOT)}: {path}" for file, path in included if path.split("/")[0] not in ALLOWED[folder] | OTHERS]
    assert not wrong


def test_questions_know_neither_command_line_nor_python():
    """And their headers cost nobody CLI11 or all of nlohmann's JSON."""
    for file in (ROOT / "experiments/lab").iterdir():
        included = re.findall(r'^\s*#\s*include [<"](.+)[">]', file.read_text(), re.M)
        refused = ("experiments/cli/", "experiments/python/", "CLI/", "nanobind/", *(["nlohmann/json.hpp"] if file.suffix == ".h" else []))
        assert not [path for path in included if path.startswith(refused)], file.name
