"""arlab.codec_from_header: a codec of a C++ header in this process, and in workers."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import arlab
from arlab import _codecs

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
STUDY = """
title = "own"
ranks = [2, 4]
algorithms = ["one_shot", "two_shot"]
codecs = ["mine-g64", "qr-q4"]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=3"
elements = 2048
"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """One for all tests of this file; what they define ends with them."""
    folder = tmp_path_factory.getbasetemp() / "kernels"
    monkeypatch.setenv("ARLAB_KERNEL_CACHE", str(folder))
    before = dict(_codecs.HEADERS)
    yield folder
    _codecs.HEADERS.clear()
    _codecs.HEADERS.update(before)


@pytest.fixture
def header(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run([PROGRAM, "new", "codec", "mine-g64", "--header", "mine.h"], check=True, capture_output=True)
    return Path("mine.h")


def change(header, old, new):
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))


def values(shape=(4, 8192)):
    return np.random.default_rng(1).normal(size=shape).astype(np.float16)


def test_it_is_a_codec_as_others_are(header):
    assert arlab.codec_from_header(header) == arlab.codec_from_header("mine.h") == "mine-g64"
    assert "mine-g64" in arlab.codecs() and "mine-g64" in arlab.codecs("host")
    about = arlab.codec_info("mine-g64")
    assert (about["block"], about["encode_ops_per_element"], about["ops_are_estimates"]) == (64, 5, False)
    x = values()
    reduced = arlab.all_reduce(x, codec="mine-g64")
    assert 40 < reduced.sqnr_db < 60 and reduced.wire_bits_per_element == 8.5
    assert arlab.check_codec("mine-g64").violation is None
    assert arlab.simulate(topology="full:4", algorithm="two_shot", codec="mine-g64", bytes="1M").latency_us > 0
    tensors = [each.copy() for each in x]
    arlab.Group(range(4)).all_reduce(tensors, codec="mine-g64")
    assert np.array_equal(tensors, reduced.outputs)


def test_a_changed_header_takes_its_place(header):
    arlab.codec_from_header(header)
    x = values()
    before, group = arlab.all_reduce(x, codec="mine-g64").outputs, arlab.Group([0, 1, 2, 3])
    change(header, "largest / 127", "largest / 64")
    arlab.codec_from_header(header)
    after = arlab.all_reduce(x, codec="mine-g64").outputs
    assert not np.array_equal(before, after)
    tensors = [each.copy() for each in x]
    group.all_reduce(tensors, codec="mine-g64")
    assert np.array_equal(tensors, after)

    @arlab.codec("mine-g64", block=64, dtypes=("fp16",), encode_ops=1, decode_ops=1)
    class Plain:
        def encode(self, blocks):
            return blocks.view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float16)

    assert "mine-g64" not in _codecs.HEADERS and arlab.wire_bytes("mine-g64", "fp16", 64) == 128
    arlab.codec_from_header(header)
    assert "mine-g64" not in _codecs.OWN and arlab.wire_bytes("mine-g64", "fp16", 64) == 68


def test_what_is_wrong_is_a_value_error_with_file_and_line(header):
    change(header, "return 8;", "return 12;")
    with pytest.raises(ValueError, match=r"^mine\.h:\d+: .*bits\(\) is 12: allowed are 1 to 8"):
        arlab.codec_from_header(header)
    with pytest.raises(TypeError):
        arlab.codec_from_header(7)


def test_another_process_needs_no_compiler(header):
    arlab.codec_from_header(header)
    sent = pickle.dumps(_codecs.HEADERS["mine-g64"])
    header.unlink()
    code = "import pickle, sys, arlab; print(pickle.load(sys.stdin.buffer).register(), arlab.codec_info('mine-g64')['block'])"
    environment = {**os.environ, "PATH": "/nowhere", "ARLAB_KERNEL_CACHE": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, env=environment, check=True)
    assert done.stdout.decode().split() == ["['mine-g64']", "64"] and done.stderr == b""


def rows(folder):
    """Without their checks, which are of how the run was defined."""
    lines = Path(folder, "results.csv").read_text().splitlines()
    return [line.rpartition(",")[0] for line in lines if not line.startswith("#")]


def test_workers_know_it(header):
    Path("own.toml").write_text(STUDY)
    arlab.codec_from_header(header)
    here = arlab.study("own.toml", out="here").points
    assert arlab.study("own.toml", out="there", workers=1).points == here == 8
    assert rows("here") == rows("there")


def test_workers_of_the_program_know_it(header):
    Path("own.toml").write_text(STUDY)

    def run(*words):
        environment = {**os.environ, "ARLAB_PYTHON": sys.executable}
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done

    words = ("study", "own.toml", "--no-plots", "--codec-header", "mine.h", "--out")
    run(*words, "alone")
    run(*words, "shared", "--workers", "1")
    assert rows("alone") == rows("shared")
    assert "--codec-header mine.h" in Path("shared/results.csv").read_text()
    Path("setup.py").write_text("import arlab\narlab.codec_from_header('mine.h')\n")
    run("study", "own.toml", "--no-plots", "--out", "set", "--setup", "setup.py")
    assert rows("set") == rows("alone")
