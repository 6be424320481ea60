"""Studies and sweeps on a Dask cluster: the rows of one process, whatever dies or fails."""

import json
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest

import arlab
from arlab import _arlab
from arlab.distributed import compute, connected

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
STUDY = """
title = "tiny"
ranks = [2, 4]
algorithms = ["two_shot", "ring"]
codecs = [CODECS]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=1"
elements = "4K"

[[input]]
name = "ours"
file = "data{ranks}.npy"

[simulate]
topology = "full:4"
bytes = "1M"
"""

# Codecs that do what files tell them to, since workers have processes of their own.
SETUP = """
import os
import signal
import time
from pathlib import Path

import numpy as np

import arlab

FOLDER = Path(__FOLDER__)


class Copy:
    def encode(self, blocks):
        if blocks.any():  # else it is being defined
            self.act()
        return np.ascontiguousarray(blocks).view(np.uint8)

    def decode(self, wire):
        return wire.view(np.float16)


@arlab.codec("slow", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)  # not tried with numbers when it is defined
class Slow(Copy):
    def act(self):
        time.sleep(float((FOLDER / "slow").read_text()))


@arlab.codec("raises", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)  # not tried with numbers when it is defined
class Raises(Copy):
    def act(self):
        if (FOLDER / "raises").exists():
            raise RuntimeError("as it was told")


@arlab.codec("dies", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)  # not tried with numbers when it is defined
class Dies(Copy):
    def act(self):
        if (FOLDER / "dies").exists():
            os.kill(os.getpid(), signal.SIGKILL)


@arlab.codec("dies_once", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)  # not tried with numbers when it is defined
class DiesOnce(Copy):
    def act(self):
        try:
            (FOLDER / "dies_once").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def cluster():
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):
        with distributed.LocalCluster(n_workers=4, threads_per_worker=1, **quiet) as four:
            yield four


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ranks in (2, 4):
        np.save(f"data{ranks}.npy", np.random.default_rng(ranks).normal(size=(ranks, 3000)).astype(np.float16))
    (tmp_path / "setup.py").write_text(SETUP.replace("__FOLDER__", repr(str(tmp_path))))
    (tmp_path / "slow").write_text("0")
    return tmp_path


@pytest.fixture
def own_codecs(folder):
    """Those of SETUP, in this process until the test ends."""
    known = dict(arlab._codecs.OWN)
    exec(compile((folder / "setup.py").read_text(), "setup.py", "exec"), {"__name__": "__main__"})
    yield
    arlab._codecs.OWN.clear()
    arlab._codecs.OWN.update(known)


def write_study(*codecs):
    Path("tiny.toml").write_text(STUDY.replace("CODECS", json.dumps(codecs)[1:-1]))


def local_results():
    """results.csv and summary.csv as this process makes them, under the same name."""
    arlab.study("tiny.toml", out="out")
    return results()


def results():
    """Without how they were asked for, and the check of that."""
    lines = Path("out/results.csv").read_bytes().splitlines(True)
    asked = (b"# command: ", b"# check: ")
    return b"".join(line for line in lines if not line.startswith(asked)), Path("out/summary.csv").read_bytes()


def without_definition(found):
    """Rows, and not what else this process has defined than a file of --setup."""
    lines = [line.rpartition(b",")[0] for line in found[0].splitlines() if not line.startswith(b"#")]
    return lines, found[1]


def program(words, code, **options):
    environment = {**os.environ, "ARLAB_PYTHON": sys.executable, **options.pop("env", {})}
    done = subprocess.run(
        [PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=60, check=False, **options
    )
    assert done.returncode == code, done
    return done


def test_rows_are_those_of_one_process(folder, client):
    write_study("fp16", "qr-q4", "int4-g32-sr")
    heard = []
    study = arlab.study("tiny.toml", out="out", client=client, progress=heard.append)
    there = results()
    assert there == local_results()
    assert study.points == len(study.table) == 24
    assert "100% of 24 points" in heard[-1] and "points/s" in heard[-1]


def test_a_worker_dies_and_points_fail(folder, client, own_codecs):
    write_study("fp16", "dies_once", "raises")
    Path("raises").touch()
    Path("dies_once").touch()
    before = set(client.scheduler_info(n_workers=-1)["workers"])
    with pytest.raises(arlab.Error) as raised:
        arlab.study("tiny.toml", out="out", client=client)
    assert not Path("dies_once").exists() and set(client.scheduler_info(n_workers=-1)["workers"]) != before
    line = str(raised.value)
    assert line.startswith("8 of 24 points failed: ") and "\n" not in line and "--resume" in line
    assert "codec raises: encode of" in line and "RuntimeError: as it was told" in line
    partial = Path("out/results.csv").read_text().splitlines()
    rows = [row.split(",")[:6] for row in partial if not row.startswith("#")][1:]
    assert [row[5] for row in rows] == ["fp16", "dies_once"] * 8
    assert not Path("out/summary.csv").exists()

    Path("raises").unlink()
    heard = []
    arlab.study("tiny.toml", out="out", client=client, resume=True, progress=heard.append)
    assert heard[0] == "resuming after 16 points\n"
    there = results()
    assert there == local_results()
    kept = [line for line in partial if not line.startswith(("# command: ", "# check: "))]
    assert [row for row in there[0].decode().splitlines() if row in kept] == kept


def test_every_death_is_blamed_on_its_point(folder, client, own_codecs):
    write_study("fp16", "dies")
    Path("dies").touch()
    text = Path("tiny.toml").read_text().replace('"two_shot", ', "").replace("[2, 4]", "[2]").replace('"4K"', '"1K"')
    Path("tiny.toml").write_text(text.replace('\n[[input]]\nname = "ours"\nfile = "data{ranks}.npy"\n', ""))
    heard = []
    with pytest.raises(arlab.Error, match="1 of 2 points failed"):
        arlab.study("tiny.toml", out="out", client=client, progress=heard.append)
    failed = [line for line in heard if line.startswith("failed: ")]
    assert len(failed) == 1 and all("codec dies: every worker that computed it died" in line for line in failed)


def test_a_killed_driver_is_resumed(folder, cluster, own_codecs):
    write_study("fp16", "slow")
    Path("slow").write_text("0.03")
    command = ["study", "tiny.toml", "--out", "out", "--no-plots", "--setup", "setup.py", "--dask", cluster.scheduler_address]
    driver = subprocess.Popen(
        [PROGRAM, *command], env={**os.environ, "ARLAB_PYTHON": sys.executable}, stderr=subprocess.DEVNULL
    )
    file = Path("out/results.csv")
    until = time.monotonic() + 30
    while not file.exists() or sum(not line.startswith(b"#") for line in file.read_bytes().splitlines()) < 4:
        assert time.monotonic() < until and driver.poll() is None
        time.sleep(0.01)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert len(file.read_bytes().splitlines()) < 6 + 16
    Path("slow").write_text("0")
    done = program([*command, "--resume", "--format", "json"], 0)
    assert json.loads(done.stdout)["points"] == 16 and done.stderr.startswith("resuming after ")
    assert without_definition(results()) == without_definition(local_results())


def test_another_version_or_other_files_are_refused(folder, client):
    write_study("fp16", "qr-q4")
    run = _arlab.Grid("study", {"file": "tiny.toml", "out": "out"}, None)
    try:
        run.open()
        task = json.loads(run.task(run.missing()[:4]))
        task["definition"]["program"] = "arlab 0.0"
        with pytest.raises(ValueError, match=r"another version of arlab.*differ in: program"):
            _arlab.values_of(json.dumps(task))
        np.save("data4.npy", np.ones((4, 3000), np.float16))
        # Hashes are of the time when tasks are first written.
        task = json.loads(run.task(run.missing()[:4]))
        assert task["points"][0]["source"]["synthetic"].startswith("gaussian")
        with pytest.raises(ValueError, match=r"worker tcp://.* is refused: .*differ in: files.*; \d+ of 16 points are there"):
            compute(run, client, lambda _: None)
        with pytest.raises(ValueError, match="another study is writing"):
            _arlab.Grid("study", {"file": "tiny.toml", "out": "out", "resume": True}, None)
    finally:
        run.close()


def test_sweeps(client):
    what = {"topology": ["mi300x-8", "full:4"], "codec": ["fp16", "qr-q4"], "bytes": "64K..1M", "ranks": [3, 4]}
    what |= {"group_size": [2], "algorithm": ["hierarchical", "ring"]}
    left_out = []
    shared = arlab.sweep(**what, client=client, progress=left_out.append)
    assert shared.to_dict() == arlab.sweep(**what).to_dict()
    assert len(shared.table) == 60 and any(line.startswith("left out: ") for line in left_out)


def test_processes_of_this_machine(folder):
    """The program with processes, codecs of one's own, a table."""
    write_study("fp16", "slow")
    done = program(["study", "tiny.toml", "--out", "out", "--workers", "1", "--setup", "setup.py", "--no-plots"], 0)
    assert "gaussian" in done.stdout and "100% of 16 points" in done.stderr
    assert len(done.stderr.splitlines()) <= 16


def test_other_users_have_no_way_into_processes_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    known = tmp_path / "dask-scratch-space"  # Dask's name for its folder: another program has made it
    known.mkdir()
    known.chmod(0o777)
    # Files of a killed process go with the next one; others with such a name stay.
    (tmp_path / ".arlab-abcdefgh.tmp" / "dask-scratch-space").mkdir(parents=True)
    (tmp_path / ".arlab-ijklmnop.tmp").symlink_to(known)
    with connected(None, 2) as client:
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        places = [*client.run(lambda dask_worker: (dask_worker.local_directory, list(sys.path))).values()]
        places.append(client.run_on_scheduler(lambda dask_scheduler: (dask_scheduler.local_directory, list(sys.path))))
        (own,) = {Path(folder).relative_to(tmp_path).parts[0] for folder, _ in places}
        status = (tmp_path / own).stat()
        assert stat.S_IMODE(status.st_mode) == 0o700 and status.st_uid == os.geteuid()
        assert own != ".arlab-abcdefgh.tmp" and not (tmp_path / ".arlab-abcdefgh.tmp").exists()
        for _, path in places:
            assert not any(Path(each).is_relative_to(known) for each in path)
        assert list(known.iterdir()) == []
        ports = client.run(lambda dask_worker: dask_worker.http_server.port)
        ports = [*ports.values(), client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.http_server.port)]
        assert len(places) == len(ports) >= 2  # a busy machine may lose a worker as it starts
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
        # One that dies is replaced before its point is given up.
        assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"dask-scratch-space", ".arlab-ijklmnop.tmp"}


def test_what_is_wrong_is_one_line(folder):
    write_study("fp16")
    (folder / "bare").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    (folder / "bare").chmod(0o755)
    study = ["study", "tiny.toml", "--out", "out"]
    for words, env, said in (
        (["--workers", "2", "--dask", "x"], {}, "allowed is one of them"),
        (["--workers", "0"], {}, "from 1 to"),
        (["--dask", "nowhere"], {}, "no Dask scheduler answers at nowhere"),
        (["--workers", "1", "--setup", "none.py"], {}, "--setup none.py: No such file"),
        (["--workers", "1"], {"ARLAB_PYTHON": str(folder / "bare")}, "pip install '.[distributed]'"),
        (["--workers", "1"], {"ARLAB_PYTHON": "/none"}, "cannot run /none"),
    ):
        done = program([*study, *words], 2, env=env)
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("arlab: ") and said in done.stderr, done
        assert not Path("out/results.csv").exists()
    with pytest.raises(ValueError, match="workers is 0"):
        arlab.study("tiny.toml", out="out", workers=0)
    with pytest.raises(ValueError, match="unknown option 'workers'"):  # an option of the program
        _arlab.ask("study", {"file": "tiny.toml", "workers": 2}, None)
