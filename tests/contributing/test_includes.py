"""Folders include what lies below them: the reference stands alone, simulator and kernels stand on it beside each other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHERS = {"hwy"}  # libraries that are included in quotes
ALLOWED = {"reference": {"reference"}, "sim": {"reference", "sim"}, "kernels": {"reference", "kernels"}}


@pytest.mark.parametrize("folder", ALLOWED)
def test_folders_include_only_what_is_below_them(folder):
    files = [file for file in (ROOT / folder).rglob("*") if file.suffix in {".h", ".cc", ".hip", ".cu", ".in"}]
    include = re.compile(r'^\s*#\s*include "(.+)"', re.M)
    included = [(file, path) for file in files for path in include.findall(file.read_text())]
    assert len(included) > 50
    allowed = ALLOWED[folder] | OTHERS
    assert not [f"{file.relative_to(ROOT)}: {path}" for file, path in included if path.split("/")[0] not in allowed]


def test_questions_know_neither_command_line_nor_python():
    """And their headers include neither CLI11 nor all of nlohmann's JSON."""
    for file in (ROOT / "experiments/lab").rglob("*.[ch]*"):
        included = re.findall(r'^\s*#\s*include [<"](.+)[">]', file.read_text(), re.M)
        refused = ("experiments/cli/", "experiments/python/", "CLI/", "nanobind/")
        refused += ("nlohmann/json.hpp",) if file.suffix == ".h" else ()
        assert not [path for path in included if path.startswith(refused)], file.name


def test_what_is_known_of_devices_is_not_for_the_rest_of_the_reference():
    facts = ROOT / "reference/device_facts"
    others = [file for file in (ROOT / "reference").rglob("*.[ch]*") if facts not in file.parents]
    assert len(others) > 50 and len(list(facts.glob("*.h"))) > 1
    assert not [str(file) for file in others if "device_facts/" in file.read_text()]


EVIDENCE = ("activations", "benchmarks", "gpu", "site", "studies")
ROOMS = "|".join(EVIDENCE)
INTO_EVIDENCE = re.compile(
    rf"""experiments["'\s]*/["'\s]*({ROOMS})\b     # a path, also of parts that Python joins
       | ["(/]({ROOMS})/\w                       # below experiments/
       | add_subdirectory\(({ROOMS})\)""",
    re.VERBOSE,
)
MODULES = {file.stem for room in EVIDENCE for file in (ROOT / "experiments" / room).rglob("*.py")} - {"make"}
IMPORT = re.compile(rf"^\s*(import|from) ({'|'.join(MODULES)})\b")


def leads_into_evidence(text):
    return [line for line in text.splitlines() if INTO_EVIDENCE.search(line) or IMPORT.search(line)]


def test_the_product_needs_no_evidence():
    rooms = [ROOT / room for room in ("reference", "sim", "kernels")]
    others = (*EVIDENCE, "measured", "published")
    rooms += [room for room in (ROOT / "experiments").iterdir() if room.name not in others]
    suffixes = {".cc", ".h", ".hip", ".in", ".py", ".pyi", ".js", ".html", ".cmake", ".sh", ".txt"}
    files = [file for room in rooms for file in (room, *room.rglob("*")) if file.suffix in suffixes]
    assert len(files) > 400
    assert not [(file, found) for file in files if (found := leads_into_evidence(file.read_text()))]


@pytest.mark.parametrize(
    "line",
    [
        '#include "experiments/gpu/timing.h"', 'data_path("studies/model_quality/results.csv")', "import capture",
        'ROOT / "experiments" / "activations"', 'Path("../site/quoted.py")', "from page_tables import filled",
        "add_subdirectory(benchmarks)",
    ],
)  # fmt: skip
def test_what_leads_into_evidence_is_found(line):
    assert leads_into_evidence(line)
