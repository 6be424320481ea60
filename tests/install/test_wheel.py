"""Checks that `pip install .` would install exactly what it builds: asked of CMake and ninja, since building it takes
minutes."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Configured as scikit-build does."""
    folder = tmp_path_factory.mktemp("wheel")
    defines = [f"-D{name}={value}" for name, value in SETTINGS["cmake"]["define"].items()]
    command = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DSKBUILD=2", f"-DPython_EXECUTABLE={sys.executable}", *defines]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return folder


def not_built(folder, targets):
    """Files of the build's folder that are installed, but that these targets do not make."""
    rules = "".join(re.findall(r"^ *file\(INSTALL .*?\)$", (folder / "experiments/python/cmake_install.cmake").read_text(), re.MULTILINE | re.DOTALL))
    installed = {os.path.relpath(file, folder) for file in re.findall(rf'"({re.escape(str(folder))}/[^"]+)"', rules)}
    assert any(name.endswith(".so") for name in installed)
    made = subprocess.run(["ninja", "-C", folder, "-t", "commands", *targets], check=True, capture_output=True, text=True).stdout
    return {name for name in installed if name not in made}


def test_what_is_installed_is_built(folder):
    assert not_built(folder, SETTINGS["build"]["targets"]) == set()
    assert not_built(folder, ["arlab_python"]) == {"bin/python/arlab/_arlab.pyi"}  # which is how it would be seen
