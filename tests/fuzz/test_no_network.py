"""No command touches the network, nor does the Python package: sockets are Unix sockets, of ranks that meet."""

import os

import pytest
from commands import COMMANDS, make_inputs, python, run

INJECTOR = os.environ["ARLAB_FAULT_INJECTOR"]
NEEDS_PACKAGE = pytest.mark.skipif("ARLAB_EXTENSION" not in os.environ, reason="this build has no Python package")
# Drawing pictures starts other programs.
MORE = {
    "picture of a topology": "topology show full:2 --out picture.png",
    "picture of a selection": "select --topology full:2 --synthetic gaussian --algorithms ring --codecs fp16 --plot p.png",
    "timeline": "simulate --topology full:2 --algorithm ring --codec fp16 --bytes 64K --trace timeline.json",
    "study with plots": "study tiny.toml --out plotted",
}
LINES = {**{name: command.line for name, command in COMMANDS.items()}, **MORE}


@pytest.fixture
def forbidden(tmp_path):
    """Environment in which the network fails and every use of it is noted; and where."""
    return {"LD_PRELOAD": INJECTOR, "FORBIDDEN_CALLS": str(tmp_path / "forbidden")}, tmp_path / "forbidden"


@pytest.mark.parametrize("name", LINES)
def test_of_a_command(name, forbidden, tmp_path):
    environment, notes = forbidden
    (tmp_path / "work").mkdir()
    make_inputs(tmp_path / "work")
    done = run(LINES[name], tmp_path / "work", environment)
    assert done.code == 0, done
    assert not notes.exists(), notes.read_text()


@NEEDS_PACKAGE
def test_of_the_package(forbidden, tmp_path):
    environment, notes = forbidden
    script = """
import numpy as np, arlab
print(arlab.platforms(), arlab.devices(), len(arlab.codecs()))
arlab.decode(arlab.encode(np.ones(64, np.float16), "qr-q4"), "qr-q4", np.float16, 64)
print(arlab.Group([0, 1]).all_reduce([np.ones(64, np.float16)] * 1 + [np.ones(64, np.float16)])[0][0])
"""
    process = python(script, tmp_path, environment)
    assert (process.communicate(timeout=60)[1], process.returncode) == (b"", 0)
    assert not notes.exists(), notes.read_text()


@NEEDS_PACKAGE
def test_of_ranks_that_meet(forbidden, tmp_path):
    environment, notes = forbidden
    (tmp_path / "meeting").mkdir(mode=0o700)
    script = """
import numpy as np, arlab
arlab.Communicator.from_environment(bootstrap_timeout_s=30).all_reduce(np.ones(64, np.float16))
"""
    ranks = [
        python(script, tmp_path, {
            **environment, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "node7", "MASTER_PORT": "29500",
            "ARLAB_BOOTSTRAP_DIR": str(tmp_path / "meeting"),
        })
        for rank in range(2)
    ]  # fmt: skip
    assert [(rank.communicate(timeout=60)[1], rank.returncode) for rank in ranks] == [(b"", 0)] * 2
    assert not notes.exists(), notes.read_text()


@pytest.mark.parametrize("use", ["socket.socket()", "socket.socket(socket.AF_INET6)", "socket.getaddrinfo('node7', 80)"])
def test_the_guard_itself(use, forbidden, tmp_path):
    environment, notes = forbidden
    process = python(f"import socket\n{use}", tmp_path, environment)
    process.communicate(timeout=60)
    assert process.returncode == 1 and "by python" in notes.read_text()
