"""The commands of quickstart.sh run as they are written, on short studies; README.md is short. Its console blocks run in
tests/experiments/test_site.py, as those of the pages do."""

import os
import re
import shutil
import subprocess

import pytest
from program import PROGRAM, REPOSITORY

README = REPOSITORY / "README.md"
QUICKSTART = REPOSITORY / "quickstart.sh"
MOST_SECONDS = 60


def commands_of(text):
    """Lines that start with build/bin/arlab, joined where they end with a backslash."""
    joined = text.replace("\\\n", " ")
    return re.findall(r"^[ $]*(build/bin/arlab .*)$", joined, re.MULTILINE)


def documented():
    return list(dict.fromkeys(commands_of(QUICKSTART.read_text())))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The repository after building, with a results folder of its own, and with short studies."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "build").mkdir()
    (folder / "build/bin").symlink_to(PROGRAM.parent)
    (folder / "experiments").mkdir()
    experiments = REPOSITORY / "experiments"
    for path in [*REPOSITORY.iterdir(), *experiments.iterdir()]:
        link = folder / path.relative_to(REPOSITORY)
        if path.name not in ("build", "results", "experiments", "studies") and path.name[0] != ".":
            link.symlink_to(path)
    shutil.copytree(experiments / "studies", folder / "experiments/studies")
    for study in folder.glob("experiments/studies/**/*.toml"):
        text = re.sub(r"^ranks = \[.*\]$", "ranks = [2]", study.read_text(), flags=re.MULTILINE)
        study.write_text(text.replace('algorithms = "all"', 'algorithms = ["two_shot", "ring"]'))
    return folder


def test_commands_are_found():
    assert len(documented()) >= 3


@pytest.mark.parametrize("command", documented(), ids=lambda command: command[:60])
def test_command_runs(checkout, command):
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        env={**os.environ, "ARLAB_PYTHON": "true"},  # plots have a test of their own
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "arlab:" not in done.stderr


def test_readme_is_short():
    assert len(re.sub(r"<!--.*?-->", "", README.read_text(), flags=re.DOTALL).split()) <= 700


def test_every_command_of_the_program_is_on_the_page_how_to():
    text = (REPOSITORY / "experiments/site/pages/howto.md").read_text()
    listed = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    for command in re.findall(r"^  (\w+)  +\S", listed.split("For researchers:")[1], re.MULTILINE):
        assert re.search(rf"`{command}\b", text), command
