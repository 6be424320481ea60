"""Codecs, codebooks and algorithms that are defined again: nothing that was made of the old definition is taken for the new one.

Of results that are kept (a study's rows, a perplexity), of workers, and of Groups that live. And what a codec in Python does with each
element, which times follow from: nothing that it calculates is left out without a word.
"""

import csv
import io
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab
from arlab import _arlab, _codecs, _files, _fingerprint, schedules

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
STUDY = """
title = "own"
ranks = [2]
algorithms = [ALGORITHMS]
codecs = [CODECS]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=3"
elements = 2048
"""

#: A codec whose error its parts decide: a helper's function, a constant of its module, a default argument, and a table in a file.
SETUP = """
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import arlab
import helping

STEP = 0.125
TABLE = np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "table.npy"))

def define(name, shift):
    @arlab.codec(name, block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)
    class Own:
        def encode(self, blocks, more=0.0):
            x = np.clip(np.rint(blocks.astype(np.float32) / (STEP * TABLE[0])), -100, 100)
            return np.where(np.isfinite(x), x, 127).astype(np.int8).view(np.uint8)
        def decode(self, wire):
            q = wire.view(np.int8).astype(np.float32)
            return np.where(q == 127, np.nan, helping.moved(q * (STEP * TABLE[0]), shift)).astype(np.float16)

for number in range(2):
    define(f"own{number}", number / 64)

arlab.Codebook([-1, -0.25, 0.25, 1], 32, "book")

@arlab.algorithm("mine")
def mine(s):
    whole = s.chunk(0, s.elements)
    s.at_step(0)
    parts = [s.send(s.encode(s.input(rank, whole)), 0) for rank in ORDER(range(s.ranks))]
    s.at_step(1)
    total = s.encode(s.reduce(parts))
    for rank in range(s.ranks):
        s.output(s.send(total, rank))

def ORDER(ranks):
    return list(ranks)
"""
HELPING = "import numpy as np\ndef moved(x, by):\n    return x + np.float32(by) * FACTOR\nFACTOR = 1\n"


@pytest.fixture(autouse=True)
def definitions_of_a_test():
    """Workers are sent those of this test alone."""
    tables = (_codecs.OWN, _codecs.CODEBOOKS, schedules.OWN, _fingerprint.TOLD)
    before = [dict(table) for table in tables]
    yield
    for table, was in zip(tables, before):
        table.clear()
        table.update(was)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "helping.py").write_text(HELPING)
    np.save("table.npy", np.ones(1, np.float32))
    write_study()
    return tmp_path


def write_study(codecs=("own1",), algorithms=("one_shot", "two_shot")):
    text = STUDY.replace("CODECS", json.dumps(codecs)[1:-1]).replace("ALGORITHMS", json.dumps(algorithms)[1:-1])
    Path("own.toml").write_text(text)


def run(*words, code=0):
    environment = {**os.environ, "ARLAB_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == code, done
    return done


STUDIES = ("study", "own.toml", "--out", "out", "--no-plots", "--setup", "setup.py")


def rows(folder="out"):
    lines = [line for line in Path(folder, "results.csv").read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def comments(folder="out"):
    return [line for line in Path(folder, "results.csv").read_text().splitlines() if line.startswith("#")]


def change(file, old, new):
    text = Path(file).read_text()
    assert text.count(old) == 1
    Path(file).write_text(text.replace(old, new))


# ---------------------------------------------------------------- studies


def other_table(_):
    np.save("table.npy", np.full(1, 2, np.float32))


CHANGES = {
    "the codec": lambda _: change("setup.py", "np.rint(blocks", "np.floor(blocks"),
    "a constant": lambda _: change("setup.py", "STEP = 0.125", "STEP = 0.25"),
    "a value of a loop": lambda _: change("setup.py", "number / 64", "number / 32"),
    "a default": lambda _: change("setup.py", "more=0.0", "more=1.0"),
    "a function of a helper": lambda _: change("helping.py", "x + np", "x - np"),
    "a constant of a helper": lambda _: change("helping.py", "FACTOR = 1", "FACTOR = 3"),
    "a table": other_table,
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_study_goes_on_only_with_the_same_definitions(folder, what):
    run(*STUDIES)
    before = rows()
    run(*STUDIES, "--resume")
    assert rows() == before
    CHANGES[what](folder)
    line = run(*STUDIES, "--resume", code=2).stderr
    assert line.count("\n") == 1 and "it differs in: codec own1" in line and "leave out --resume" in line
    assert rows() == before
    run(*STUDIES)
    assert what == "a default" or rows() != before


@pytest.mark.parametrize(
    "codecs, algorithms, old, new, differs",
    [
        (["book-g32"], ["one_shot"], "0.25, 1]", "0.5, 1]", "codebook book-g32"),
        (["ef-own1"], ["one_shot"], "STEP = 0.125", "STEP = 0.25", "codec own1"),
        (["qr-q4"], ["mine"], "return list(ranks)", "return list(ranks)[::-1]", "algorithm mine"),
        (["qr-q4"], ["one_shot"], "return list(ranks)", "return list(ranks)[::-1]", "setup"),
    ],
)
def test_codebooks_algorithms_and_the_file_count(folder, codecs, algorithms, old, new, differs):
    write_study(codecs, algorithms)
    run(*STUDIES)
    change("setup.py", old, new)
    line = run(*STUDIES, "--resume", code=2).stderr
    assert differs in re.search(r"it differs in: ([^)]*)\)", line)[1].split(", "), line


def test_the_command_has_every_option(folder):
    run(*STUDIES)
    assert comments()[1] == "# command: arlab study own.toml --out out --setup setup.py"
    run("study", "own.toml", "--setup=setup.py", "--out", "out", "--no-plots", "--workers", "1")
    assert comments()[1] == "# command: arlab study own.toml --setup=setup.py --out out --workers 1"
    run("report", "out", "--out", "page")
    assert "--setup=setup.py" in Path("page/report.md").read_text()
    run("sweep", "--topology", "full:2", "--codec", "own0", "--bytes", "1M", "--setup", "setup.py", "--out", "swept", "--no-plots")
    assert Path("swept/sweep.csv").read_text().splitlines()[1].endswith("--out swept --setup setup.py")
    write_study(["qr-q4"])
    arlab.study("own.toml", out=Path("python"), resume=True)
    # Flags that change no result are left out: the same call without `resume` computes everything again.
    assert comments("python")[1] == "# command: arlab.study(file='own.toml', out='python')"


def halving(factor):
    """A codec that is defined in this process, as in a notebook."""

    @arlab.codec("halving", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)
    class Halving:
        def encode(self, blocks):
            return (blocks * np.float16(factor)).view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float16)


def test_a_notebook_that_improves_its_codec(folder):
    write_study(["halving"])
    halving(1)
    arlab.study("own.toml", out="out")
    before = rows()
    halving(1)
    arlab.study("own.toml", out="out", resume=True)
    halving(0.5)
    with pytest.raises(arlab.ArgumentError, match=r"it differs in: codec halving\)"):
        arlab.study("own.toml", out="out", resume=True)
    assert rows() == before

    @arlab.codec("another", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)  # unknown to the study
    class Another:
        def encode(self, blocks):
            return blocks.copy().view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float16)

    halving(1)
    arlab.study("own.toml", out="out", resume=True)


def test_what_cannot_be_compared_is_refused(folder):
    write_study(["locked"])
    stream = open(os.devnull)

    @arlab.codec("locked", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)
    class Locked:
        def encode(self, blocks):
            stream.fileno()
            return blocks.copy().view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float16)

    arlab.study("own.toml", out="out")
    with pytest.raises(arlab.ArgumentError, match="^--resume: codec locked may have changed: it uses an object of type _io.TextIOWrapper") as raised:
        arlab.study("own.toml", out="out", resume=True)
    assert "\n" not in str(raised.value)


# ---------------------------------------------------------------- fingerprints


def told(*parts):
    return _fingerprint.fingerprint("codec", "told", *parts)()


CONSTANT = 4
TABLE = np.arange(3)


class Told:
    LEVELS = {"a": (1, 2.0), "b": {3, 4}}

    def __init__(self, size=3):
        self.size = size
        self.inner = np.arange(size)

    def encode(self, x):
        return [self.scaled(x * CONSTANT) for _ in range(2)] + [TABLE.sum()]

    @staticmethod
    def scaled(x, by=2):
        return x * by


def test_fingerprints_tell_what_runs(monkeypatch):
    first = told(Told())
    assert first == told(Told()) and not first.startswith("untold")
    others = {first, told(Told(4))}
    for owner, name, value in (
        (sys.modules[__name__], "CONSTANT", 5),
        (sys.modules[__name__], "TABLE", np.arange(4)),
        (Told, "LEVELS", {"a": (1, 2.5), "b": {3, 4}}),
        (Told, "scaled", staticmethod(lambda x, by=3: x * by)),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, value)
            assert told(Told()) not in others, name
            others.add(told(Told()))
    assert told(Told()) == first


def test_fingerprints_need_no_source():
    """Code by exec(), closures, and a codec that calls another one by its name."""

    def made(text):
        space = {}
        exec(text, space)
        return told(space["A"]())

    texts = [f"class A:\n    def encode(self, x):\n        return x * {factor}\n" for factor in (1, 2)]
    assert made(texts[0]) == made("\n# a comment\n" + texts[0]) != made(texts[1])
    in_loop = {told(lambda x, factor=factor: x * factor) for factor in range(4)}
    assert len(in_loop) == 4
    closed = {told((lambda factor: lambda x: x * factor)(factor)) for factor in range(4)}
    assert len(closed) == 4

    def calls():
        return arlab.encode([], "halving")

    halving(1)
    first = told(calls)
    halving(0.5)
    assert told(calls) != first
    halving(1)
    assert told(calls) == first


def test_fingerprints_are_the_same_in_every_process(tmp_path):
    script = tmp_path / "it.py"
    script.write_text(
        "import dataclasses, enum, functools, re, sys\nimport numpy as np\nfrom arlab import _fingerprint\n"
        "class Kind(enum.Enum):\n    A = 1\n    B = 2\n"
        "@dataclasses.dataclass\nclass Options:\n    width: int = 3\n    kinds: frozenset = frozenset('abcdef')\n"
        "class It:\n    NAMES = {'x', 'y', 'z'}\n    def __init__(self):\n        self.options, self.kind = Options(), Kind.B\n"
        "        self.random, self.pattern = np.random.default_rng(7), re.compile('a+')\n"
        "    @functools.lru_cache\n    def encode(self, x):\n        return x in {'p', 'q', 'r'} and np.where(x, 1, 2)\n"
        "print(_fingerprint.fingerprint('codec', 'it', It())())\n"
    )
    said = set()
    for seed in "123":
        done = subprocess.run([sys.executable, script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        said.add(done.stdout)
    assert len(said) == 1 and re.fullmatch("[0-9a-f]{64}\n", said.pop())


# ---------------------------------------------------------------- codebooks


COARSE, FINE = np.array([-1, -0.01, 0.01, 1], np.float32), np.linspace(-1, 1, 15, dtype=np.float32)


def test_a_codebook_is_known_by_name_and_group():
    x = np.random.default_rng(0).standard_normal(256).astype(np.float32)
    fine = arlab.Codebook(FINE, 32, "both")
    wire = arlab.encode(x, fine)
    coarse = arlab.Codebook(COARSE, 64, "both")
    assert np.array_equal(arlab.encode(x, fine), wire) and len(arlab.encode(x, coarse)) == 256 // 4 + 4 * 4
    assert np.array_equal(fine.levels, FINE) and np.array_equal(coarse.levels, COARSE)
    assert np.array_equal(arlab.Codebook.of("both-g32"), FINE) and np.array_equal(arlab.Codebook.of("both-g64"), COARSE)
    with pytest.raises(arlab.ArgumentError, match="codebook 'both' has other levels with another group: name both, as both-g64$"):
        arlab.Codebook.of("both")
    with pytest.raises(arlab.ArgumentError, match="unknown codec 'both-g128'"):
        arlab.encode(x, "both-g128")
    # Defined again, it says what it encodes with.
    arlab.Codebook(COARSE, 32, "both")
    assert np.array_equal(fine.levels, COARSE) and np.array_equal(arlab.encode(x, fine), arlab.encode(x, arlab.Codebook(COARSE, 32, "same")))


@pytest.mark.parametrize("group", [32, 64, 128])
def test_a_pickled_codebook_keeps_its_group(group):
    book = pickle.loads(pickle.dumps(arlab.Codebook(FINE, group, "pickled-g")))
    assert book == f"pickled-g-g{group}" and book.group == group and np.array_equal(book.levels, FINE)
    script = (
        "import pickle, sys, numpy as np, arlab\n"
        "book = pickle.loads(sys.stdin.buffer.read())\n"
        "print(book, book.group, book.levels.size, len(arlab.encode(np.ones(256, np.float32), str(book))))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(book), capture_output=True, check=True)
    assert done.stdout.decode().split() == [f"pickled-g-g{group}", str(group), "15", str(128 + 4 * 256 // group)]


@pytest.mark.parametrize("group", [32.0, True, "32", 48, None, np.float32(64)])
def test_a_group_is_an_integer(group):
    with pytest.raises(arlab.ArgumentError, match=r"^group is .*: allowed are the integers 32, 64 and 128$"):
        arlab.Codebook(FINE, group)
    assert arlab.Codebook(FINE, np.int64(32)).group == 32


def test_workers_have_the_codebooks_of_this_process(folder):
    pytest.importorskip("distributed")
    arlab.Codebook(FINE, 32, "sent")
    arlab.Codebook(COARSE, 64, "sent")
    arlab.Codebook(COARSE, 32, "sent")
    arlab.Codebook(FINE, 32, "sent")
    write_study(["sent-g32", "sent-g64"])
    arlab.study("own.toml", out="out")
    here = rows()
    arlab.study("own.toml", out="out", workers=1)
    assert rows() == here
    assert [row["wire_bits_per_element"] for row in here] == ["5.0", "2.5"] * 2


def test_a_cluster_that_stays_gets_what_is_defined_now(folder, monkeypatch):
    """Also modules that the codec uses, of which a worker may have an older one."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.syspath_prepend(str(folder))
    write_study(["uses"], ["one_shot"])

    def define(factor):
        (folder / "factors.py").write_text(f"FACTOR = {factor}\n")
        sys.modules.pop("factors", None)
        import factors

        @arlab.codec("uses", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)
        class Uses:
            def encode(self, blocks):
                return (blocks * np.float16(factors.FACTOR)).view(np.uint8)

            def decode(self, wire):
                return wire.copy().view(np.float16)

    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, distributed.Client(cluster) as client:
        for factor in (1.0, 0.25):
            define(factor)
            arlab.study("own.toml", out="out")
            here = rows()
            arlab.study("own.toml", out="out", client=client)
            assert rows() == here
    assert float(here[0]["sqnr_db"]) < 5


# ---------------------------------------------------------------- Groups and Communicators that live


def test_a_group_that_lives_takes_the_new_codec():
    x = [np.random.default_rng(rank).standard_normal(4096).astype(np.float16) for rank in range(2)]
    group = arlab.Group([0, 1])

    def same(codec, algorithm):
        kernels = [tensor.copy() for tensor in x]
        group.all_reduce(kernels, codec=codec, algorithm=algorithm)
        expected = arlab.all_reduce(x, codec=codec, algorithm=algorithm).outputs[0]
        assert np.array_equal(kernels[0].view(np.uint16), np.asarray(expected).view(np.uint16)), (codec, algorithm)
        return expected[0]

    for algorithm in ("one_shot", "two_shot", "ring"):
        sums = set()
        for factor in (1, 0.5, 2, 1):
            halving(factor)
            sums.add(float(same("halving", algorithm)))
        assert len(sums) == 3
    for levels in (FINE, COARSE, FINE):
        same(arlab.Codebook(levels, 64, "living"), "two_shot")
    for turned in (False, True, False):

        @arlab.algorithm("living")
        def living(s):
            whole = s.chunk(0, s.elements)
            s.at_step(0)
            parts = [s.input(0, whole) if turned and rank == 0 else s.send(s.encode(s.input(rank, whole)), 0) for rank in range(s.ranks)]
            s.at_step(1)
            total = s.encode(s.reduce(parts))
            for rank in range(s.ranks):
                s.output(s.send(total, rank))

        same("qr-q4", "living")


def test_the_same_levels_are_no_new_definition():
    """Else a call that makes its codebook on the way would be prepared each time."""
    arlab.Codebook(FINE, 32, "again")
    before = _arlab.definitions_made()
    arlab.Codebook(FINE.tolist(), 32, "again")
    assert _arlab.definitions_made() == before
    arlab.Codebook(FINE, 64, "again")
    halving(1)
    assert _arlab.definitions_made() == before + 2


def test_a_schedule_file_that_is_written_again(tmp_path):
    """With as many bytes, at once, and with the old times: none of which says that it is the same."""
    x = [np.random.default_rng(rank).standard_normal(4096).astype(np.float16) for rank in range(2)]
    group, path, ways = arlab.Group([0, 1]), tmp_path / "own.json", {}
    for algorithm in ("one_shot", "two_shot"):
        ways[algorithm] = arlab.schedule(algorithm, 2, 4096).to_json(fractions=True)
    length = max(map(len, ways.values()))
    for algorithm in ("one_shot", "two_shot", "one_shot"):
        path.write_text(ways[algorithm].ljust(length))
        os.utime(path, (1e9, 1e9))
        kernels = [tensor.copy() for tensor in x]
        group.all_reduce(kernels, codec="qr-q4", algorithm=str(path))
        for outputs in (kernels, arlab.all_reduce(x, codec="qr-q4", algorithm=str(path)).outputs):
            expected = arlab.all_reduce(x, codec="qr-q4", algorithm=algorithm).outputs
            assert np.array_equal(np.stack(outputs).view(np.uint16), expected.view(np.uint16)), algorithm


# ---------------------------------------------------------------- operations


def chain(x, length=50):
    """So many products and sums."""
    for _ in range(length):
        x = x * np.float32(1.01) + np.float32(0.1)
    return x


GUARDS = {
    "where": lambda x: np.where(np.isnan(x), np.float32(0), x),
    "where, of two": lambda x: x * np.where(np.isfinite(x), np.float32(1), np.float32(0)),
    "nan_to_num": lambda x: np.nan_to_num(x, nan=0, posinf=0, neginf=0),
    "clip": lambda x: np.clip(x, -3, 3),
    "x.clip": lambda x: x.clip(-3, 3),
    "a mask": lambda x: masked(x.copy()),
    "divide(out, where)": lambda x: np.divide(x, 2, out=np.zeros_like(x), where=np.isfinite(x)),
    "select": lambda x: np.select([x > 0, x < 0], [x, -x], 0),
    "choose": lambda x: np.choose((x > 0).astype(np.int64), [x, -x]),
    "fancy": lambda x: x[:, np.arange(32)[::-1]],
    "take": lambda x: np.take(x, np.arange(32), axis=1),
    "take_along_axis": lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
    "copyto": lambda x: copied(x + 0),
    "putmask": lambda x: put(x + 0),
    "matmul": lambda x: x @ np.eye(32, dtype=np.float32),
    "dot": lambda x: np.dot(x, np.eye(32, dtype=np.float32)),
    "einsum": lambda x: np.einsum("ij,jk->ik", x, np.eye(32, dtype=np.float32)),
    "fmax": lambda x: np.fmax(x, 0),
    "concatenate": lambda x: np.concatenate([x[:, :16], x[:, 16:]], axis=1),
    "sort": lambda x: np.sort(x, axis=1),
    "median": lambda x: x - np.median(x, axis=1, keepdims=True),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "round": lambda x: np.round(x, 2),
    "interp": lambda x: np.interp(x, [-1, 1], [-1, 1]).astype(np.float32),
    "frexp, ldexp": lambda x: np.ldexp(*np.frexp(x)),
    "views": lambda x: (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32),
    "rows": lambda x: np.stack([row * 2 for row in x]),
}
#: Operations that leave NumPy, or work on plain arrays.
LEAVING = {
    "asarray": lambda x: np.asarray(x, np.float32),
    "ascontiguousarray": lambda x: np.ascontiguousarray(x),
    "divide(out of zeros)": lambda x: np.divide(x, 2, out=np.zeros(x.shape, np.float32), where=np.isfinite(x)),
    "random numbers": lambda x: x + np.random.default_rng(0).random(x.shape, np.float32) * np.asarray(x),
    "a table": lambda x: LEVELS[np.clip(np.rint(x), 0, 15).astype(np.int64)],
    "bytes": lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
    "a loop": lambda x: np.array([[float(each) for each in row] for row in x], np.float32),
    "vectorize": lambda x: np.vectorize(lambda each: each * 2)(x).astype(np.float32),
    "apply_along_axis": lambda x: np.apply_along_axis(lambda row: row * 2, 1, x),
    "an out that is there": lambda x: np.multiply(x, 2, out=ROOM[: len(x)]),
    "memoryview": lambda x: np.array(memoryview(np.ascontiguousarray(x))),
}
LEVELS = np.linspace(-1, 1, 16, dtype=np.float32)
ROOM = np.zeros((1024, 32), np.float32)


def masked(x):
    x[~np.isfinite(x)] = 0
    return x


def copied(x):
    np.copyto(x, 0, where=np.isnan(x))
    return x


def put(x):
    np.putmask(x, np.isnan(x), 0)
    return x


def counted(name, guard):
    @arlab.codec(name, block=32, dtypes=("fp32",))
    class Guarded:
        def encode(self, blocks):
            return chain(guard(blocks)).astype(np.float32).copy().view(np.uint8)

        def decode(self, wire):
            return chain(guard(wire.copy().view(np.float32)), 10).astype(np.float32)

    return arlab.codec_info(name)


@pytest.mark.parametrize("guard", GUARDS)
def test_operations_are_counted_behind_a_guard(guard):
    plain = counted("plain", lambda x: x)
    assert plain["encode_ops_per_element"] == 101 and plain["decode_ops_per_element"] == 21 and plain["ops_are_estimates"]
    about = counted("guarded", GUARDS[guard])
    assert not about["ops_are_guesses"]
    for half in ("encode", "decode"):
        assert about[f"{half}_ops_per_element"] >= plain[f"{half}_ops_per_element"], half


@pytest.mark.parametrize("guard", LEAVING)
def test_what_is_not_counted_is_a_guess_that_is_said(guard, folder):
    about = counted("leaving", LEAVING[guard])
    assert about["ops_are_guesses"] and about["encode_ops_per_element"] >= 10 and about["decode_ops_per_element"] >= 3
    found = arlab.simulate(topology="full:4", algorithm="two_shot", codec="leaving", bytes="1M", dtype="fp32")
    assert found.guessed_codecs == "leaving" and "guessed_codecs" in json.dumps(found.to_dict())

    @arlab.codec("leaving", block=32, dtypes=("fp32",), encode_ops=100, decode_ops=20)
    class Named:
        def encode(self, blocks):
            return np.ascontiguousarray(LEAVING[guard](blocks), np.float32).view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float32)

    assert not arlab.codec_info("leaving")["ops_are_guesses"]
    assert "guessed_codecs" not in arlab.simulate(topology="full:4", algorithm="two_shot", codec="leaving", bytes="1M", dtype="fp32").to_dict()


def test_a_guess_is_marked_in_every_table(folder):
    counted("leaving", LEAVING["a table"])
    swept = arlab.sweep(topology=["full:4"], codec=["leaving", "fp32"], bytes="1M", dtype="fp32").table
    assert dict(zip(swept["codec"], swept["latency_is_guess"])) == {"leaving": True, "fp32": False}
    selected = arlab.select(topology="full:4", codec=["leaving", "fp32"], dtype="fp32", min_sqnr_db=-100, synthetic="gaussian", bytes="1M")
    marks = dict(zip(selected.candidates["codec"], selected.candidates["latency_is_guess"]))
    assert marks["leaving"] and not marks["fp32"]
    write_study(["leaving", "fp32"], ["one_shot"])
    Path("own.toml").write_text(
        Path("own.toml").read_text().replace("ranks = [2]", 'ranks = [2]\ndtype = "fp32"') + '\n[simulate]\ntopology = "full:4"\nbytes = "1M"\n'
    )
    study = arlab.study("own.toml", out="out")
    assert "a guess with leaving" in comments()[2]
    assert dict(zip(study.summary["codec"], study.summary["latency_is_guess"])) == {"leaving": True, "fp32": False}
    own = "import numpy as np, arlab\nLEVELS = np.linspace(-1, 1, 16, dtype=np.float32)\n" + (
        "@arlab.codec('leaving', block=32, dtypes=('fp32',))\nclass Leaving:\n"
        "    def encode(self, x):\n        return LEVELS[np.clip(np.rint(x), 0, 15).astype(np.int64)].view(np.uint8)\n"
        "    def decode(self, wire):\n        return wire.copy().view(np.float32)\n"
    )
    Path("setup.py").write_text("raise SystemExit(3)")
    refused = run("list", "codecs", "--setup", "setup.py", code=2)
    assert refused.stderr == "arlab: --setup setup.py: SystemExit: 3\n"
    Path("setup.py").write_text(own)
    words = ["simulate", "--topology", "full:4", "--algorithm", "two_shot", "--codec", "leaving", "--dtype", "fp32", "--setup", "setup.py"]
    table = run(*words, "--bytes", "1M").stdout
    assert re.search(r"guessed_codecs +leaving +not all of their operations", table)
    sizes = list(csv.DictReader(io.StringIO(run(*words, "--bytes", "1M,2M", "--format", "csv").stdout)))
    assert len(sizes) == 2


def test_a_codec_that_cannot_be_counted_is_a_guess():
    @arlab.codec("fails", block=32, dtypes=("fp32",))
    class Fails:
        def encode(self, blocks):
            if blocks.any():
                raise KeyError
            return blocks.view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float32)

    assert arlab.codec_info("fails")["ops_are_guesses"]


# ---------------------------------------------------------------- names, dtypes, and other things that are written in Python


@pytest.mark.parametrize(
    "dtype, name",
    [
        ("fp16", "fp16"), ("float16", "fp16"), (np.float16, "fp16"), (np.dtype("float16"), "fp16"), ("half", "fp16"),
        ("bf16", "bf16"), ("bfloat16", "bf16"), (ml_dtypes.bfloat16, "bf16"), (np.dtype(ml_dtypes.bfloat16), "bf16"),
        ("fp32", "fp32"), ("float32", "fp32"), (np.float32, "fp32"), (np.dtype("<f4"), "fp32"),
    ],
)  # fmt: skip
def test_dtypes_mean_what_they_say(dtype, name):
    kind = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}[name]
    assert arlab._arrays.numpy_dtype(dtype) == kind
    seen = set()

    @arlab.codec("typed", block=32, dtypes=(dtype,), saturating=(dtype,), encode_ops=1, decode_ops=1)
    class Typed:
        def encode(self, blocks):
            seen.add(blocks.dtype)
            return blocks.copy().view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(kind)

    assert arlab.codec_info("typed")["dtypes"] == [name] and seen == {kind}
    x = np.random.default_rng(0).standard_normal((2, 96)).astype(kind)
    assert arlab.all_reduce(x, codec="typed").outputs.dtype == kind and seen == {kind}


@pytest.mark.parametrize("name", ["ef-mine", "rans-mine", "ef-", "rans-ef-mine"])
def test_names_of_codecs_around_codecs_are_reserved(name):
    with pytest.raises(arlab.ArgumentError, match=rf"codec '{name}': names that begin with (ef|rans)- are those of (ef|rans)-<codec>: choose another"):

        @arlab.codec(name, block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)
        class Mine:
            def encode(self, blocks):
                return blocks.copy().view(np.uint8)

            def decode(self, wire):
                return wire.copy().view(np.float16)

    if not name.endswith("-"):
        with pytest.raises(arlab.ArgumentError, match="names that begin with"):
            arlab.Codebook(FINE, 32, name)


def test_what_was_meant_comes_first():
    x = np.zeros((2, 64), np.float16)
    for call, said in (
        (lambda: arlab.all_reduce(x, codec="int4g32"), "unknown codec 'int4g32': did you mean 'int4-g32' or 'int4-g32-sr'? `arlab"),
        (lambda: arlab.all_reduce(x, codec="mine"), "; your own: @arlab.codec, or arlab.codec_from_header() for C++"),
        (lambda: arlab.all_reduce(x, algorithm="twoshot"), "unknown algorithm 'twoshot': did you mean 'two_shot'?"),
        (lambda: arlab.Ring(forwrd="x"), "unknown option 'forwrd': did you mean 'forward'?"),
        (
            lambda: arlab.select(topology="h200-8", min_sqnr=20),
            "unknown option 'min_sqnr': did you mean 'min_sqnr_db'? `help(arlab.select)` has all",
        ),
        (lambda: arlab.Ring(own="exakt"), "did you mean 'exact'?"),
        (lambda: arlab.simulate(topology="h200_9", algorithm="ring", codec="fp16", bytes="1M"), "unknown topology 'h200_9': did you mean 'h200-"),
        (
            lambda: arlab.models.time("llama3-8b", topology="h200-8"),
            "unknown model 'llama3-8b': did you mean 'llama-3-8b'? `arlab model time --help` has all",
        ),
    ):
        with pytest.raises(arlab.ArgumentError) as raised:
            call()
        assert said in str(raised.value), raised.value


def test_json_of_an_algorithm_keeps_the_messages_of_an_inner_codec(tmp_path):
    @arlab.algorithm("halves", inner_codec=True)
    def halves(s):
        for owner, (begin, end) in enumerate(s.split(s.ranks)):
            if begin == end:
                continue
            chunk = s.chunk(begin, end)
            s.at_step(0)
            parts = [s.send(s.encode(s.input(rank, chunk), inner=True), owner) for rank in range(s.ranks)]
            s.at_step(1)
            total = s.encode(s.reduce(parts))
            for rank in range(s.ranks):
                s.output(s.send(total, rank))

    x = np.random.default_rng(1).standard_normal((4, 4096)).astype(np.float16)
    for algorithm, options in (("halves", {}), ("hierarchical", {"group_size": 2}), ("all_to_all", {}), ("ring", {})):
        made = arlab.schedule(algorithm, 4, 4096, **options)
        path = tmp_path / f"{algorithm}.json"
        text = made.to_json(path, fractions=True)
        has_inner = algorithm in ("halves", "hierarchical")
        assert ('"inner"' in text) == has_inner and path.read_text() == text
        assert pickle.loads(pickle.dumps(made)).to_json() == made.to_json()
        if not has_inner:
            continue
        made = arlab.schedule(algorithm, 4, 4096, codec="qr-q4", inner_codec="fp16", **options)
        for inner in ({}, {"inner_codec": "fp16"}):
            itself = arlab.all_reduce(x, algorithm=algorithm, codec="qr-q4", **options, **inner)
            for way in (str(path), made):  # a file and a schedule
                found = arlab.all_reduce(x, algorithm=way, codec="qr-q4", **inner)
                assert np.array_equal(found.outputs.view(np.uint16), itself.outputs.view(np.uint16)), (algorithm, inner)
        told = json.loads(run("schedule", "--algorithm", "hierarchical", "--ranks", "4", "--elements", "4096", "--fractions").stdout)
        assert "inner" in {op.get("codec") for op in told["ops"]}
    with pytest.raises(arlab.ArgumentError, match="has no option inner-codec, nor any other$"):
        arlab.all_reduce(x, algorithm=str(tmp_path / "ring.json"), inner_codec="fp16")
    whole = arlab.schedule("hierarchical", 4, 8, codec="wire-bf16", inner_codec="logfmt4-g8")
    assert whole.chunks == [(0, 8)] and '"alignment": 8' in whole.to_json()


def test_one_encoder_serves_the_pack_and_the_check():
    def encode(x, dtype):
        assert dtype in ("fp16", "bf16", "fp32")
        return arlab.encode(x, "int4-g32", dtype)

    def decode(wire, dtype, elements):
        assert dtype in ("fp16", "bf16", "fp32")
        return arlab.decode(wire, "int4-g32", dtype, elements)

    assert arlab.conformance.check_codec(encode, decode, "int4-g32").passed
    assert arlab.conformance.check_codec(lambda x: arlab.encode(x, "int4-g32"), decode_by_type, "int4-g32", dtype="fp16").passed
    assert not arlab.conformance.check_codec(lambda x, dtype: arlab.encode(-x, "int4-g32"), decode, "int4-g32", dtype="fp16").passed


def decode_by_type(wire, dtype, elements):
    assert dtype == np.float16
    return arlab.decode(wire, "int4-g32", dtype, elements)


def test_whole_numbers_may_be_floats():
    common = dict(topology="full:4", algorithm="ring", codec="fp16")
    expected = arlab.simulate(**common, bytes=64000000).latency_us
    for size in (64e6, np.int64(64000000), np.float64(64e6), "64000000"):
        assert arlab.simulate(**common, bytes=size).latency_us == expected
    assert arlab.simulate(**common, bytes=1e6, ranks=4.0).latency_us == arlab.simulate(**common, bytes=1000000, ranks=4).latency_us
    for size in (64.5, float("nan"), float("inf")):
        with pytest.raises(arlab.ArgumentError, match=f"bytes is '{size}': allowed is a positive integer"):
            arlab.simulate(**common, bytes=size)


@pytest.mark.parametrize(
    "wrong, said",
    [
        (lambda x: arlab.all_reduce(x, state=5), "^state is 5: allowed is an arlab.CodecState\\(\\)$"),
        (lambda x: arlab.all_reduce(x, block="x"), "^block: allowed is an integer from 1 to 16777216$"),
        (lambda x: arlab.all_reduce(x, block=3), "^block requires like$"),
        (lambda x: arlab.all_to_all(x, like="nvls"), "^like='nvls' has its own algorithm"),
        (lambda x: arlab.broadcast(x, accumulate="fp32"), "^sum fp32: broadcast sums nothing"),
        (
            lambda x: arlab.all_reduce(x, codec="int4-g8", inner_codec="rs:shared-int8-g8", sum="add=fma"),
            "^codec shared-int8-g8 adds codes",
        ),
        (lambda x: arlab.all_to_all(x, sum="cast=fp16"), "^sum cast=fp16: all_to_all sums nothing"),
        (lambda x: arlab.all_reduce(x, threads=-1), "^threads: allowed is an integer from 0 to 1024$"),
        (lambda x: arlab.all_reduce(x, codec=5), "^codec is 5: allowed is the name of a codec$"),
        (lambda x: arlab.Group("ab"), "^devices is 'ab': allowed are integers, one for each rank$"),
        (lambda x: arlab.Group(5), "^devices is 5: allowed are integers"),
        (lambda x: arlab.Group([0, 99]), "device 99 is not there: allowed are 0 to "),
        (lambda x: arlab.Group([-1, 0]), "device -1 is not there: allowed are 0 to "),
    ],
)
def test_other_types_are_said_in_words(wrong, said):
    with pytest.raises(arlab.Error, match=said) as raised:
        wrong(np.zeros((2, 64), np.float16))
    assert "\n" not in str(raised.value)


# ---------------------------------------------------------------- files


def test_what_another_user_left_behind_stays(tmp_path, monkeypatch):
    (tmp_path / ".arlab-1-2.part").write_bytes(b"ours")
    _files.write_whole(tmp_path / "first", b"1")
    assert {path.name for path in tmp_path.iterdir()} == {"first"}
    (tmp_path / ".arlab-1-2.part").write_bytes(b"somebody else's")
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    _files.write_whole(tmp_path / "second", b"2")
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second", ".arlab-1-2.part"}


#: A cell, and whether spreadsheets may have it as it is.
CELLS = {
    "-1": True, "-1.5e-3": True, "-.5": True, "-5.": True, "-inf": True, "-nan": True, "1": True, "abc": True, "": True, "-": True, "@": True,
    "-1_000": False, "- 1": False, "-1 ": False, "+1": False, "-1e999": False, "-٣": False, "-0x10": False, "-1e": False, "=1": False,
    "@SUM(1)": False, "+cmd": False, "\tx": False, "\rx": False, "'=1": False, "''@x": False, "-1,5": False, "-infin": False,
}  # fmt: skip


@pytest.mark.parametrize("cell", CELLS)
def test_cells_are_guarded_as_the_program_does(cell, folder):
    assert _files.guarded(cell) == (cell if CELLS[cell] else f"'{cell}")
    assert _files.unguarded(_files.guarded(cell)) == cell
    if not cell or not cell.isprintable() or not cell.isascii():
        return
    Path("own.toml").write_text(STUDY.replace("CODECS", '"fp16"').replace("ALGORITHMS", '"one_shot"').replace('"gaussian"', json.dumps(cell), 1))
    run("study", "own.toml", "--out", "out", "--no-plots")
    lines = [line for line in Path("out/results.csv").read_text().splitlines() if not line.startswith("#")]
    assert next(csv.reader([lines[1]]))[0] == _files.guarded(cell)
