"""The reference from Python: the bits of the program, figures that NumPy agrees with, codecs and algorithms of one's own."""

import copy
import inspect
import json
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codecs"))
from microscaling_oracle import MXINT8  # noqa: E402

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
ALL_REDUCES = ["one_shot", "two_shot", "ring", "hierarchical", "hierarchical_pipelined", "halving_doubling", "tree"]


def values(shape, dtype=np.float16, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8).tobytes()


def program(folder, command, **files):
    """Returns the program's output, and the folder, where --out may be."""
    for name, array in files.items():
        np.save(folder / f"{name}.npy", array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array)
    done = subprocess.run(
        [PROGRAM, *command.split(), "--format", "json"], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


# ---------------------------------------------------------------- collectives


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("algorithm", ["two_shot", "ring", "hierarchical"])
def test_all_reduce_is_the_programs(dtype, algorithm, tmp_path):
    name = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}[np.dtype(dtype).name]
    x = values((4, 30, 101), dtype)
    command = f"reduce --algorithm {algorithm} --codec int4-g32 --dtype {name} --input x.npy --out out.npy --accumulate fp32"
    expected = program(tmp_path, command, x=x)
    result = arlab.all_reduce(x, algorithm=algorithm, codec="int4-g32", accumulate="fp32")
    assert bits(result.outputs) == bits(np.load(tmp_path / "out.npy"))
    assert result.outputs.dtype == dtype and result.outputs.shape == x.shape
    same = set(expected) & set(result.to_dict())
    assert {"sqnr_db", "token_sqnr_db", "channel_sqnr_p1_db", "rmse", "clamped", "wire_bytes", "ranks_identical"} <= same
    assert {key: expected[key] for key in same} == {key: result.to_dict()[key] for key in same}


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "broadcast", "all_to_all"])
def test_other_collectives_are_the_programs(name, tmp_path):
    x = values((4, 64, 32))
    expected = program(tmp_path, f"reduce --algorithm {name} --codec qr-q6 --input x.npy --out out.npy", x=x)
    result = getattr(arlab, name)(list(x), codec="qr-q6")
    assert bits(result.outputs) == bits(np.load(tmp_path / "out.npy"))
    assert (result.sqnr_db, result.token_sqnr_db) == (expected["sqnr_db"], expected["token_sqnr_db"])
    assert result.collective == name


def test_ranks_may_lie_anywhere():
    x = values((3, 5000))
    apart = [np.array(rank) for rank in x]
    for tensors in (apart, list(x), x):
        result = arlab.all_reduce(tensors, codec="qr-q4")
        assert bits(result.outputs) == bits(arlab.all_reduce(x, codec="qr-q4").outputs)
    assert bits(apart[1]) == bits(x[1])  # read, not written


def test_the_figures_are_those_that_numpy_finds():
    x = values((4, 200, 64)) * np.exp(values((1, 1, 64), np.float32, 2)).astype(np.float16)
    x[0, 7] = 0
    result = arlab.all_reduce(x, codec="int4-g32", algorithm="one_shot")
    exact = x.astype(np.float64).sum(0)
    error2, signal2 = (result.outputs[0].astype(np.float64) - exact) ** 2, exact**2

    def decibels(axis):
        return 10 * np.log10(signal2.sum(axis) / error2.sum(axis))

    assert result.sqnr_db == pytest.approx(decibels(None), rel=1e-12)
    for figure, axis in (("token", 1), ("channel", 0)):
        each = np.sort(decibels(axis))
        assert result.to_dict()[f"{figure}_sqnr_db"] == pytest.approx(np.median(each), rel=1e-12)
        assert result.to_dict()[f"{figure}_sqnr_p1_db"] == pytest.approx(each[(len(each) - 1) // 100], rel=1e-12)
    assert result.rmse == pytest.approx(np.sqrt(error2.mean()), rel=1e-12)


def test_infinite_figures_are_told_apart():
    ramp = np.arange(4 * 8 * 100, dtype=np.float16).reshape(4, 8, 100) % 64
    names = ("sqnr_db", "token_sqnr_db", "token_sqnr_p1_db", "channel_sqnr_db", "channel_sqnr_p1_db")
    for inputs, wanted, lost in (
        (ramp, np.inf, 0),
        (np.full_like(ramp, 40_000), -np.inf, 800),
        (np.full_like(ramp, np.nan), None, 0),
    ):
        result = arlab.all_reduce(inputs)
        assert [getattr(result, name) for name in names] == [wanted] * 5 and result.lost == lost
    result = arlab.all_reduce(np.where(np.arange(8)[:, None] < 2, np.float16(40_000), ramp))
    assert [getattr(result, name) for name in names] == [-np.inf, np.inf, -np.inf, -np.inf, -np.inf]


def test_tokens_need_an_axis():
    result = arlab.all_reduce(values((2, 640)), codec="qr-q4")
    assert result.token_sqnr_db is None and result.channel_sqnr_db is None and result.sqnr_db > 10
    # 4 ranks x 6 tokens of 32 make slots of a token and a half.
    assert arlab.all_to_all(values((4, 6, 32)), codec="qr-q4").token_sqnr_db is None


def test_a_result_shows_itself():
    result = arlab.all_reduce(values((2, 64, 64)), codec="qr-q4")
    assert re.search(r"codec +qr-q4", repr(result)) and "<th>codec</th><td>qr-q4</td>" in result._repr_html_()
    assert "token_sqnr_db" in dir(result) and json.dumps(result.to_dict())
    with pytest.raises(AttributeError, match="Reduction has no 'sqnr': did you mean 'sqnr_db' or "):
        result.sqnr  # noqa: B018


def test_other_threads_go_on():
    started = threading.Event()
    counted = []

    def count():
        started.set()
        while not done:
            counted.append(0)

    done = False
    thread = threading.Thread(target=count)
    thread.start()
    started.wait()
    before = len(counted)
    arlab.all_reduce(values((4, 1 << 20)), codec="qr-q4")
    done = True
    thread.join()
    assert len(counted) > before + 1000


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: arlab.all_reduce([]), "there are no tensors"),
        (lambda x: arlab.all_reduce(x[0, 0]), r"shape \(4,\): allowed is \[ranks, ...\]"),
        (lambda x: arlab.all_reduce([x[0], x[1, :1]]), r"rank 1's tensor is fp16 of shape \(1, 4\), rank 0's fp16 of shape"),
        (lambda x: arlab.all_reduce([x[0], x[1].astype(np.float32)]), "rank 1's tensor is fp32"),
        (lambda x: arlab.all_reduce(x.astype(np.int8)), "is int8: allowed are"),
        (lambda x: arlab.all_reduce(x[:, :0]), "the tensors have no elements"),
        (lambda x: arlab.all_reduce(x, algorithm="none.json"), "none.json"),
        (lambda x: arlab.all_reduce(x, algorithm="hierarchical", group_size=-1), "group_size: allowed is an integer from 1"),
        (lambda x: arlab.all_reduce(x, accumulate="fp64"), "accumulate is 'fp64': allowed are native, fp32"),
        (lambda x: arlab.all_reduce(x, algorithm=arlab.schedule("ring", 2, 4)), "for 2 ranks with 4 elements, not 3 with 8"),
        (lambda x: arlab.all_reduce(x, algorithm=arlab.schedule("ring", 3, 8), own="exact"), "own: a schedule has its options"),
        (lambda x: arlab.simulate(topology="h200-9", algorithm="ring", codec="fp16", bytes="1M"), "h200-9"),
        (lambda x: arlab.simulate(topology="h200-8", algorithm="ring", codec="fp16", bytes="1X"), "--bytes is '1X'"),
        (lambda x: arlab.simulate(topology="h200-8\0", algorithm="ring", codec="fp16", bytes="1M"), "character NUL"),
        (lambda x: arlab.study("none.toml", out="nowhere"), "none.toml"),
        (lambda x: arlab.Schedule.from_json("{}"), "schema"),
        (lambda x: arlab.Schedule.from_json("no/such.json"), "no/such.json cannot be read"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        call(values((3, 2, 4)))
    assert isinstance(caught.value, arlab.ArgumentError) and "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- commands in this process


def test_simulate_of_groups_and_runs(tmp_path):
    what = {"topology": "h800-8", "algorithm": "two_shot", "codec": "qr-q4", "bytes": "1M"}
    group = arlab.simulate(**what, placement=[0, 2, 4, 6], runs=20, seed=1, jitter_launch=2)
    assert group.ranks == 4 and group.min_us < group.p50_us <= group.p99_us
    workload = tmp_path / "w.toml"
    one = '[[collectives]]\nname = "{}"\nranks = [{}]\nalgorithm = "two_shot"\ncodec = "qr-q4"\nbytes = "1M"\n'
    workload.write_text('name = "w"\nsummary = "s"\n' + one.format("a", "0, 1") + one.format("b", "1, 2"))
    both = arlab.simulate(topology="h800-8", workload=workload)
    assert list(both.collectives["name"]) == ["a", "b"] and (both.collectives["slowdown"] > 1).all()
    assert "end_us" in repr(both)


def test_simulate_is_the_programs(tmp_path):
    command = "simulate --topology mi300x-8 --algorithm two_shot --codec qr-q4 --bytes 64M"
    result = arlab.simulate(topology="mi300x-8", algorithm="two_shot", codec="qr-q4", bytes=64 << 20)
    assert result.to_dict() == program(tmp_path, command)
    assert sum(result.breakdown.values()) == pytest.approx(result.latency_us)
    assert list(result.links["link_class"]) and "latency_us" in repr(result)
    schedule = arlab.schedule("two_shot", 8, 32 << 20, codec="qr-q4")
    again = arlab.simulate(topology="mi300x-8", algorithm=schedule, codec="qr-q4")
    assert again.latency_us == result.latency_us
    low, high = result.interval
    assert low < result.latency_us < high
    low, high = arlab.simulate(topology="full:8", algorithm="two_shot", codec="qr-q4", bytes=64 << 20).interval
    assert high > 3 * low  # nobody has timed it
    assert result.sensitivity["constant"][0] == "link.bandwidth_gb_per_s"


def test_algorithms_are_values(tmp_path):
    """An algorithm's class takes its options, and goes wherever an algorithm goes."""
    assert str(inspect.signature(arlab.Ring)) == "(*, own='exact', forward='unchanged', rings=1)"
    for name in arlab.algorithms():
        assert getattr(arlab, name.title().replace("_", ""))().name == name
    ring = arlab.Ring(own="encoded")
    assert repr(ring) == "Ring(own='encoded')" and ring == arlab.Ring(own="encoded") != arlab.Ring() and hash(ring)
    assert pickle.loads(pickle.dumps(ring)) == copy.deepcopy(ring) == ring and type(copy.copy(ring)) is arlab.Ring
    for wrong, message in [
        ({"own": "x"}, "own is 'x': allowed are encoded, exact"),
        ({"micro_chunks": 2}, "unknown option 'micro_chunks': known are own, forward, rings"),
        ({"own": 3}, "own: allowed are encoded, exact"),
    ]:
        with pytest.raises(arlab.ArgumentError, match=re.escape(message)):
            arlab.Ring(**wrong)
    x, options = values((4, 6, 8)), {"group_size": 2, "inner_codec": "fp16"}
    value = arlab.Hierarchical(**options)
    by_value, by_name = (
        arlab.all_reduce(x, algorithm=algorithm, codec="int4-g32", **more)
        for algorithm, more in ((value, {}), ("hierarchical", options))
    )
    assert by_value.to_dict() == by_name.to_dict() and by_value.inner_codec == "fp16"
    assert arlab.schedule(value, 4, 64).to_json() == arlab.schedule("hierarchical", 4, 64, **options).to_json()
    what = {"topology": "full:4", "codec": "int4-g32", "bytes": "1M"}
    assert arlab.simulate(algorithm=value, **what).latency_us == arlab.simulate(algorithm="hierarchical", **options, **what).latency_us
    group = arlab.Group([0, 1, 2, 3], platform="host")
    outputs = group.all_reduce([rank.copy() for rank in x], algorithm=value, codec="int4-g32")
    assert all((output == expected).all() for output, expected in zip(outputs, by_value.outputs))
    with pytest.raises(arlab.ArgumentError, match="group_size: given twice"):
        arlab.all_reduce(x, algorithm=value, group_size=4)


def simulated(bytes):
    return arlab.simulate(topology="h200-4", algorithm=arlab.Ring(own="encoded"), codec="qr-q4", bytes=bytes)


def test_answers_travel(tmp_path):
    """Results and schedules pickle and deep-copy, so that processes share the work."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        times = pool.map(simulated, ["1M", "2M"])
    assert [time.to_dict() for time in times] == [simulated("1M").to_dict(), simulated("2M").to_dict()]
    assert times[0].interval == simulated("1M").interval and copy.deepcopy(times[1]).latency_us == times[1].latency_us
    schedule = arlab.schedule("ring", 4, 64)
    assert pickle.loads(pickle.dumps(schedule)).to_json() == copy.deepcopy(schedule).to_json() == schedule.to_json()
    reduction = arlab.all_reduce(values((2, 4, 8)), codec="int4-g32")
    assert copy.deepcopy(reduction).to_dict() == reduction.to_dict()


def test_views_are_taken_as_numpy_takes_them():
    x = values((4, 8, 64))
    for view in (x[:, :, ::2], x[:, ::-1], x.transpose(0, 2, 1)):
        expected = arlab.all_reduce(np.ascontiguousarray(view), codec="int4-g32")
        assert bits(arlab.all_reduce(view, codec="int4-g32").outputs) == bits(expected.outputs)
        assert bits(arlab.encode(view[0], "int4-g32")) == bits(arlab.encode(np.ascontiguousarray(view[0]), "int4-g32"))
    aside = np.zeros(17, np.uint8)[1:].view(np.float16)  # not at a multiple of its elements' size
    assert bits(arlab.encode(aside, "fp16")) == bytes(16)


def test_codecs_take_codec_dtype_and_elements_in_this_order():
    values = np.linspace(-3, 3, 100, dtype=np.float16)
    wire = arlab.encode(values, "qr-q4", "fp16")
    assert len(wire) == arlab.wire_bytes("qr-q4", "fp16", 100)
    assert (arlab.encode(values.view(np.uint16), "qr-q4", "fp16") == wire).all()
    assert (arlab.encode(values, codec="qr-q4", dtype=np.float16) == wire).all()
    assert arlab.decode(wire, "qr-q4", "fp16", 100).shape == (100,)
    with pytest.raises(ValueError, match="the tensor is fp16, not bf16; nothing is cast"):
        arlab.encode(values, "qr-q4", "bf16")
    with pytest.warns(DeprecationWarning, match="name= is called codec= now"):
        assert arlab.check_codec(name="fp16").passed


def test_names_of_before_warn_and_work():
    what = {"topology": "h200-4", "bytes": "1M"}
    new = arlab.select(**what, codec=["fp16", "qr-q4"], algorithm="ring")
    with pytest.warns(DeprecationWarning, match="select: codecs= is called codec= now"):
        old = arlab.select(**what, codecs=["fp16", "qr-q4"], algorithm="ring")
    assert old.to_dict() == new.to_dict()
    with pytest.raises(arlab.ArgumentError, match="codec is given twice"):
        arlab.select(**what, codec="fp16", codecs=["fp16"])


def test_lists_are_welcome(tmp_path):
    what = {"topology": "h200-4", "algorithm": "ring", "codec": "qr-q4"}
    sizes = arlab.simulate(**what, bytes=["1M", 2 << 20])
    assert list(sizes.frame["latency_us"]) == [arlab.simulate(**what, bytes=bytes).latency_us for bytes in ("1M", "2M")]
    assert len(arlab.simulate(**what, bytes="1M..4M").frame) == 3
    with pytest.raises(arlab.ArgumentError, match="one collective of one size"):
        sizes.plot()


def test_one_base_of_all_errors():
    from arlab import figures

    for error in (arlab.ArgumentError, arlab.conformance.CheckError, figures.InputError):
        assert issubclass(error, arlab.Error)
    assert issubclass(arlab.ArgumentError, ValueError)


def test_a_trace_and_no_picture(tmp_path):
    arlab.simulate(topology="h200-4", algorithm="ring", codec="fp16", bytes="1M", trace=tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) and len(list(tmp_path.iterdir())) == 1


def test_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("matplotlib")
    selection = arlab.select(topology="h200-4", bytes="1M", codec=["fp16", "qr-q4"], algorithm=["one_shot", "two_shot"])
    assert len(selection.candidates) >= 4 and selection.plot(width="column").get_axes()
    simulation = arlab.simulate(topology="h200-4", algorithm="ring", codec="qr-q4", bytes="1M")
    assert simulation.plot().get_axes()
    machine = arlab.topology("l40-8")
    assert machine.ranks == 8 and machine.plot().get_axes()
    assert not list(tmp_path.iterdir())


def test_machines_of_other_tools(tmp_path):
    samples = Path(__file__).parents[1]
    machine = arlab.import_topology(samples / "sim/imports/dgx.txt", base="h200-8", servers=2)
    assert (machine.kind, machine.ranks, machine.device) == ("fat_tree", 16, arlab.topology("h200-8").device)
    (tmp_path / "mine.toml").write_text(machine.toml)
    assert arlab.topology(str(tmp_path / "mine.toml")).toml == machine.toml
    ring = samples / "collectives/msccl/ring.xml"
    times = [arlab.simulate(topology="mi300x-4", algorithm=str(name), codec="qr-q4", bytes="1M").latency_us for name in (ring, "ring")]
    assert times[0] == pytest.approx(times[1], rel=0.02)
    assert arlab.simulate(topology="h200-8", codec="fp16", bytes="64M", library=True).algorithm in ("ring", "nvls")
    with pytest.raises(arlab.ArgumentError, match="--from is 'smi'"):
        arlab.import_topology(samples / "sim/imports/dgx.txt", source="smi")


def test_a_study(tmp_path):
    (tmp_path / "s.toml").write_text("""
title = "Two codecs"
ranks = [2, 4]
algorithms = ["one_shot", "ring"]
codecs = ["fp16", "qr-q4"]
[[input]]
name = "gaussian"
synthetic = "gaussian"
elements = 4096
""")
    heard = []
    study = arlab.study(tmp_path / "s.toml", out=tmp_path / "out", progress=heard.append)
    assert len(study.table) == 8 and set(study.table["codec"]) == {"fp16", "qr-q4"}
    assert "100% of 8 points" in "".join(heard)
    assert study.plot().get_axes() and set(study.plots()) == {"pareto", "error_by_codec", "error_by_ranks", "error_by_tensor"}
    assert arlab.study(tmp_path / "s.toml", out=tmp_path / "out", resume=True).table.equals(study.table)
    with pytest.raises(KeyboardInterrupt):
        arlab.study(tmp_path / "s.toml", out=tmp_path / "other", progress=interrupted)


def interrupted(_):
    raise KeyboardInterrupt


def test_sweep_is_the_programs(tmp_path):
    command = "sweep --topology h200-8,l40-8 --algorithm two_shot,ring --codec fp16,qr-q4 --bytes 64K..256K --library"
    result = arlab.sweep(
        topology="h200-8,l40-8", algorithm=["two_shot", "ring"], codec="fp16,qr-q4", bytes="64K..256K", library=True
    )
    assert result.to_dict() == program(tmp_path, command)
    figures = result.plots(highlight=["qr-q4"], width="column")
    assert len(figures) == 5 and figures["latency_over_size"]._repr_png_().startswith(b"\x89PNG")


def test_vectors(tmp_path):
    cases = arlab.vectors("qr-q4", tmp_path / "v", dtype="fp16")
    manifest = json.loads((tmp_path / "v" / "manifest.json").read_text())
    assert list(cases["name"]) == [case["name"] for case in manifest["cases"]]


def test_lists_are_names_with_tables():
    assert {"qr-q4", "mxfp4", "int4-g32"} <= set(arlab.codecs())
    assert list(arlab.codecs().table["name"]) == list(arlab.codecs())
    assert set(ALL_REDUCES) <= set(arlab.algorithms()) and "h200-8" in arlab.topologies()
    assert "<table" in arlab.topologies()._repr_html_()
    assert arlab.codec_info("qr-q4")["alignment"] == 2048
    assert "fp16_compress_hook" in arlab.codec_info("wire-fp16")["source"]


# ---------------------------------------------------------------- schedules


def test_schedules():
    s = arlab.schedule("ring", 8, 1 << 20)
    assert s.check() == (True, "", True, "") and s.volume.total == 14
    assert (s.algorithm, s.collective, s.ranks, s.elements, s.steps, len(s.chunks)) == ("ring", "all_reduce", 8, 1 << 20, 14, 8)
    again = arlab.Schedule.from_json(s.to_json())
    assert again.to_json() == s.to_json()
    any_size = s.to_json(fractions=True)
    assert arlab.Schedule.from_json(any_size, elements=1 << 12).elements == 1 << 12
    broken = json.loads(s.to_json())
    broken["outputs"].pop()
    check = arlab.Schedule.from_json(json.dumps(broken)).check()
    assert not check.correct and "is never output" in check.violation


def test_the_program_takes_what_is_written_in_python(tmp_path):
    """--setup, of every command that takes a codec or an algorithm."""
    (tmp_path / "mine.py").write_text(
        "import arlab\n"
        "@arlab.algorithm('reduce_broadcast')\n"
        "def reduce_broadcast(s):\n"
        "    tensor = s.chunk(0, s.elements)\n"
        "    s.at_step(0)\n"
        "    parts = [s.send(s.encode(s.input(rank, tensor)), 0) for rank in range(s.ranks)]\n"
        "    s.at_step(1)\n"
        "    total = s.encode(s.reduce(parts))\n"
        "    for rank in range(s.ranks):\n"
        "        s.output(s.send(total, rank))\n"
    )

    def run(command, code=0):
        environment = {**os.environ, "ARLAB_PYTHON": sys.executable}
        done = subprocess.run([PROGRAM, *command.split()], cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    own = "--setup mine.py --algorithm reduce_broadcast --codec qr-q4"
    reduced = json.loads(run(f"reduce {own} --ranks 4 --synthetic gaussian --elements 8K --format json"))
    assert reduced["algorithm"] == "reduce_broadcast" and reduced["ranks_identical"]
    assert json.loads(run(f"simulate {own} --topology full:4 --bytes 1M --format json"))["latency_us"] > 0
    assert "reduce_broadcast" in run("list algorithms --setup=mine.py")
    assert "has no option own" in run(f"simulate {own} --topology full:4 --bytes 1M --own exact", 2)
    for wrong, said in [("none.py", "No such file"), ("bad.py", "ZeroDivisionError")]:
        (tmp_path / "bad.py").write_text("1 / 0")
        line = run(f"list codecs --setup {wrong}", 2)
        assert line.startswith(f"arlab: --setup {wrong}: ") and said in line and line.count("\n") == 1


def test_an_algorithm_in_python_is_one_everywhere(tmp_path):
    @arlab.algorithm("twin_of_two_shot")
    def two_shot(s):
        """two_shot, written again."""
        for owner, (begin, end) in enumerate(s.split(s.ranks)):
            if begin == end:
                continue
            chunk = s.chunk(begin, end)
            s.at_step(0)
            parts = [s.send(s.encode(s.input(rank, chunk)), owner) for rank in range(s.ranks)]
            s.at_step(1)
            total = s.encode(s.reduce(parts))
            for rank in range(s.ranks):
                s.output(s.send(total, rank))

    x = values((4, 50, 64))
    assert bits(arlab.all_reduce(x, algorithm="twin_of_two_shot", codec="qr-q4").outputs) == bits(
        arlab.all_reduce(x, algorithm="two_shot", codec="qr-q4").outputs
    )
    times = [
        # This machine has no kernel for two_shot alone.
        arlab.simulate(topology="h800-8", algorithm=name, codec="qr-q4", bytes="4M").latency_us
        for name in ("two_shot", "twin_of_two_shot")
    ]
    assert times[0] == times[1]
    assert "twin_of_two_shot" in arlab.algorithms()
    chosen = arlab.select(topology="h200-4", bytes="1M", algorithm=["twin_of_two_shot"], codec=["qr-q4"], min_sqnr_db=1)
    assert chosen.algorithm == "twin_of_two_shot"
    if "host" in arlab.platforms():  # kernels run any schedule
        tensors = [np.array(rank) for rank in x]
        arlab.Group(range(4), blocks=2, slot_bytes=16384).all_reduce(tensors, algorithm="twin_of_two_shot", codec="qr-q4")
        assert bits(np.stack(tensors)) == bits(arlab.all_reduce(x, codec="qr-q4").outputs)


def forgets_a_rank(s):
    chunk = s.chunk(0, s.elements)
    s.at_step(0)
    parts = [s.send(s.encode(s.input(rank, chunk)), 0) for rank in range(s.ranks - 1)]
    s.at_step(1)
    total = s.encode(s.reduce(parts))
    for rank in range(s.ranks):
        s.output(s.send(total, rank))


@pytest.mark.parametrize(
    "write, message",
    [
        (forgets_a_rank, "wrong: not an all-reduce: .*rank 2"),
        (lambda s: 1 / 0, "algorithm wrong for 3 ranks and 96 elements raised ZeroDivisionError: division by zero"),
        (lambda s: s.input(3, s.chunk(0, 1)), "algorithm wrong: there is no rank 3: allowed is 0 to 2"),
        (lambda s: s.chunk(5, 5), r"chunk \[5, 5\): allowed is begin < end <= 96"),
        (lambda s: s.send(s.input(0, s.chunk(0, 96)), 1), "algorithm wrong: "),  # a raw value
        (lambda s: s.reduce([]), "reduce of no values"),
        (lambda s: s.encode(7), "raised TypeError"),
    ],
)
def test_a_wrong_algorithm_is_refused(write, message):
    arlab.algorithm("wrong")(write)
    with pytest.raises(arlab.ArgumentError, match=message) as caught:
        arlab.all_reduce(values((3, 96)), algorithm="wrong")
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- codecs in Python


class MxInt8:
    """mxint8 as its oracle has it, a block at a time: what the built-in codec decodes to, with another wire."""

    oracle = MXINT8("mxint8")

    def encode(self, blocks):
        x = blocks.astype(np.float32)
        codes, _, scales = self.oracle.quantize(x, np.isfinite(x).all(1), abs(x).max(1))
        return np.concatenate([codes, scales[:, None]], 1)

    def decode(self, wire):
        return self.oracle.values(wire[:, :32].copy()) * self.oracle.scales(wire[:, 32:])[:, None]


@pytest.fixture
def twin():
    arlab.codec("twin-mxint8", block=32, encode_ops=6, decode_ops=3)(MxInt8)
    return "twin-mxint8"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("algorithm", ALL_REDUCES)
def test_a_codec_in_python_is_one_in_every_algorithm(twin, algorithm, dtype):
    x = values((4, 33, 37), dtype)
    x[1, 3, 5], x[2, 20, 1] = np.inf, np.nan
    own = arlab.all_reduce(x, algorithm=algorithm, codec=twin)
    built_in = arlab.all_reduce(x, algorithm=algorithm, codec="mxint8")
    assert bits(own.outputs) == bits(built_in.outputs)
    assert own.to_dict()["flushed"] == built_in.to_dict()["flushed"]


def test_a_codec_in_python_is_one_elsewhere(twin, tmp_path):
    x = values((5, 77))
    wire = arlab.encode(x, twin)
    assert wire.shape == (arlab.wire_bytes(twin, np.float16, 5 * 77),) == (13 * 33,)
    assert bits(arlab.decode(wire, twin, "fp16", x.shape)) == bits(
        arlab.decode(arlab.encode(x, "mxint8"), "mxint8", np.float16, x.shape)
    )
    assert arlab.check_codec(twin).passed and twin in arlab.codecs()
    own = arlab.simulate(topology="h200-8", algorithm="two_shot", codec=twin, bytes="4M")
    assert own.wire_bits_per_element == 8.25 and own.latency_us > 0
    chosen = arlab.select(topology="h200-8", bytes="64M", min_sqnr_db=30, codec=[twin, "fp16"])
    assert chosen.codec == twin
    (tmp_path / "s.toml").write_text(f"""
title = "Mine"
ranks = [2]
algorithms = ["two_shot"]
codecs = ["mxint8", "{twin}"]
[[input]]
name = "gaussian"
synthetic = "gaussian"
elements = 4096
""")
    table = arlab.study(tmp_path / "s.toml", out=tmp_path / "out").table
    assert table["sqnr_db"].nunique() == 1 and list(table["codec"]) == ["mxint8", twin]
    mixed = arlab.all_reduce(values((4, 640)), algorithm="hierarchical", codec="qr-q4", inner_codec=twin)
    assert mixed.sqnr_db > arlab.all_reduce(values((4, 640)), algorithm="hierarchical", codec="qr-q4").sqnr_db

    def through_the_twin(tensors):
        return list(arlab.all_reduce(tensors, codec=twin).outputs)

    report = arlab.conformance.check(through_the_twin, world_size=2, dtype="fp16", codec=twin, lengths=[100, 1000])
    assert report.passed and f"two_shot/{twin}/native" in report.exact_as
    if "host" in arlab.platforms():
        tensors = [values(10), values(10)]
        expected = arlab.all_reduce(tensors, codec=twin).outputs
        assert np.array_equal(arlab.Group([0, 1]).all_reduce(tensors, codec=twin), expected)


class Wrong:
    """A codec of one byte per element, one function of which is replaced."""

    def __init__(self, encode=None, decode=None):
        self.encode = encode or (lambda blocks: np.zeros(blocks.shape, np.uint8))
        self.decode = decode or (lambda wire: np.zeros(wire.shape, np.float32))


def later(right, wrong):
    """Right for the few blocks that a codec is tried with when it is defined, and wrong after that."""
    return lambda blocks: right(blocks) if len(blocks) < 4 else wrong(blocks)


@pytest.mark.parametrize(
    "own, message",
    [
        (Wrong(encode=lambda b: b), "encode of 1 x 8 fp16 gave float16 of shape .1, 8.: needed is uint8"),
        (Wrong(encode=lambda b: np.zeros(8, np.uint8)), ".*needed is uint8 of shape .1, wire bytes of a block"),
        (Wrong(encode=lambda b: np.zeros((len(b), 7 + len(b)), np.uint8)), "encode gave 10 bytes for a block of fp16 and 8 for"),
        (Wrong(encode=lambda b: None), "encode of 1 x 8 fp16 gave object"),
        (Wrong(decode=lambda w: w), "decode of 1 blocks of fp16 gave uint8 of shape"),
        (Wrong(decode=lambda w: np.zeros((1, 8), np.float32)), r"decode of 3 blocks of fp16 gave float32 of shape \(1, 8\)"),
        (Wrong(encode=lambda b: {}["no"]), "encode of 1 blocks of fp16 raised KeyError: 'no'"),
    ],
)
def test_a_wrong_codec_is_refused_when_it_is_defined(own, message):
    with pytest.raises(arlab.ArgumentError, match="codec wrong: " + message) as caught:
        arlab.codec("wrong", block=8, dtypes=("fp16",))(own)
    assert "\n" not in str(caught.value) and "wrong" not in arlab.codecs()


@pytest.mark.parametrize(
    "own, message",
    [
        (Wrong(encode=later(Wrong().encode, lambda b: 1 / 0)), "encode of 80 blocks of fp16 raised ZeroDivisionError: division"),
        (Wrong(encode=later(Wrong().encode, lambda b: b[:-1].astype(np.uint8))), r"gave uint8 of shape \(79, 8\): needed is"),
        (Wrong(encode=later(Wrong().encode, lambda b: np.zeros(b.shape, np.int8))), r"gave int8 of shape \(80, 8\): needed is"),
        (Wrong(decode=later(Wrong().decode, lambda w: w[0] * 1.0)), r"decode of 80 blocks of fp16 gave float64 of shape \(8,\)"),
    ],
)
def test_a_codec_that_goes_wrong_says_where(own, message):
    arlab.codec("goes-wrong", block=8, dtypes=("fp16",))(own)
    for call in (
        lambda: arlab.all_reduce(values((2, 640)), codec="goes-wrong", algorithm="one_shot"),
        lambda: arlab.decode(arlab.encode(values(640), "goes-wrong"), "goes-wrong", "fp16"),
    ):
        with pytest.raises(arlab.ArgumentError, match="codec goes-wrong: .*" + message) as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_what_callbacks_raise_arrives(kind, tmp_path):
    """Interrupts as they are; errors as the cause of ours, with file and line."""
    raised = []

    def raises(*_):
        raised.append(kind("as it was told"))
        raise raised[-1]

    named = dict(block=8, dtypes=("fp16",), encode_ops=1, decode_ops=1)
    arlab.codec("raises", **named)(Wrong(encode=later(Wrong().encode, raises)))
    arlab.codec("raises-later", **named)(Wrong(decode=later(Wrong().decode, raises)))
    arlab.algorithm("raises")(raises)
    x = values((2, 64000))
    for call in (
        lambda: arlab.encode(x[0], "raises"),
        lambda: arlab.decode(arlab.encode(x[0], "raises-later"), "raises-later", "fp16"),
        lambda: arlab.all_reduce(x, codec="raises"),
        lambda: arlab.all_reduce(x, codec="raises-later", threads=4),
        lambda: arlab.all_reduce(x, algorithm="raises"),
        lambda: arlab.Group([0, 1]).all_reduce(list(x), algorithm="raises"),
        lambda: arlab.schedule("raises", 3, 96),
        lambda: arlab.check_codec("raises"),
        lambda: arlab.conformance.check(raises, world_size=2, dtype="fp16", lengths=[100]),
    ):
        raised.clear()
        if kind is ZeroDivisionError:
            try:
                result = call()
            except arlab.Error as error:
                caught = error
            except arlab.conformance.CheckError as error:
                caught = error
            else:
                assert result.violation is not None  # the answer is check_codec's
                continue
            assert "as it was told" in str(caught) and "\n" not in str(caught)
            caught = caught.__cause__
        else:
            with pytest.raises(kind) as passed:
                call()
            caught = passed.value
        assert caught in raised
        frames = traceback.extract_tb(caught.__traceback__)
        assert (frames[-1].filename, frames[-1].name) == (__file__, "raises")


def test_what_a_gather_raises_arrives():
    if "host" not in arlab.platforms():
        pytest.skip("needs the emulated GPUs")
    for kind in (KeyboardInterrupt, OSError):

        def raises(_, kind=kind):
            raise kind("as it was told")

        with pytest.raises(KeyboardInterrupt if kind is KeyboardInterrupt else arlab.Error) as caught:
            arlab.Communicator.from_gather(raises, rank=0, world_size=2, device=0)
        error = caught.value if kind is KeyboardInterrupt else caught.value.__cause__
        assert type(error) is kind and traceback.extract_tb(error.__traceback__)[-1].name == "raises"


class Unsayable(Exception):
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("error, said", [(Unsayable(), "Unsayable"), (ValueError("x" * 10**6), "xxx..."), (ValueError("\udc80"), "ValueError")])
def test_whatever_a_codec_raises_its_name_is_said(error, said):
    def raises(_):
        raise error

    named = dict(block=8, dtypes=("fp16",), encode_ops=1, decode_ops=1)
    arlab.codec("raises", **named)(Wrong(encode=later(Wrong().encode, raises)))
    with pytest.raises(arlab.ArgumentError) as caught:
        arlab.encode(values(640), "raises")
    assert "codec raises: encode of 80 blocks of fp16" in str(caught.value) and said in str(caught.value)
    assert len(str(caught.value)) < 900 and caught.value.__cause__ is error


def test_a_codec_that_calls_itself_says_so_in_one_line():
    def again(_):
        return arlab.encode(values(640), "itself")

    arlab.codec("itself", block=8, dtypes=("fp16",))(Wrong(encode=later(Wrong().encode, again)))
    with pytest.raises(arlab.ArgumentError, match="codec itself") as caught:
        arlab.encode(values(640), "itself")
    assert len(str(caught.value)) < 900


def test_a_codec_may_change_and_keep_what_it_is_given():
    kept = []

    def decode(wire):
        decoded = wire.astype(np.float32)
        kept.append(wire)
        wire[...] = 255
        return decoded

    arlab.codec("changes", block=8, dtypes=("fp16",))(Wrong(encode=lambda b: b.astype(np.uint8), decode=decode))
    wire = np.arange(80, dtype=np.uint8)
    for _ in range(2):
        assert (arlab.decode(wire, "changes", "fp16") == np.arange(80)).all()
    assert (wire == np.arange(80)).all() and all((each == 255).all() for each in kept)


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("", {}, "a codec needs a name"),
        (5, {}, "a codec's name is 5: allowed is a text"),
        (None, {}, "a codec's name is None"),
        ("\udc80", {}, "a codec's name is"),
        ("all", {}, "'all' stands for all of them"),
        ("-x", {}, "begins with a hyphen"),
        ("mine", {"encode_ops": "x"}, "codec mine: encode_ops is 'x': allowed is a number from 0 on"),
        ("mine", {"encode_ops": float("nan")}, "codec mine: encode_ops is nan"),
        ("mine", {"decode_ops": -1}, "codec mine: decode_ops is -1"),
        ("mine", {"decode_ops": float("inf")}, "codec mine: decode_ops is inf"),
        ("mine", {"encode_ops": 10**400}, "codec mine: encode_ops is 1000"),
        ("mine", {"block": True}, "codec mine: block is True: allowed is an integer from 1 on"),
        ("mine", {"block": 1 << 63}, "codec mine: block is 9223372036854775808: not enough memory for 1 of them"),
        ("mine", {"dtypes": None}, "codec mine: dtypes is None: allowed is a list of dtypes"),
        ("mine", {"dtypes": "fp16"}, "codec mine: dtypes is 'fp16': allowed is a list of dtypes"),
        ("mine", {"dtypes": ["\udc80"]}, r"codec mine: dtype '\\udc80': allowed are fp16"),
        ("mine", {"dtypes": ["fp16"], "saturating": ["fp32"]}, "codec mine: saturating has fp32"),
        ("mine", {"saturating": 5}, "codec mine: saturating is 5: allowed is a list of dtypes"),
    ],
)
def test_arguments_of_codecs(name, options, message):
    with pytest.raises(arlab.ArgumentError, match=message) as caught:
        arlab.codec(name, **{"block": 8, **options})(Wrong())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name, message",
    [
        ("", "allowed in a name are|an algorithm needs a name"),
        (5, "an algorithm's name is 5: allowed is a text"),
        (None, "an algorithm's name is None"),
        ("\udc80", r"an algorithm's name is '\\udc80'"),
        ("all", "'all' stands for all of them"),
        ("-x", "begins with a hyphen"),
        ("ring", "algorithm 'ring' is built in"),
        ("my ring", "allowed in a name are"),
    ],
)
def test_names_of_algorithms(name, message):
    with pytest.raises(arlab.ArgumentError, match=message) as caught:
        arlab.algorithm(name)(lambda s: None)
    assert "\n" not in str(caught.value)
    with pytest.raises(arlab.ArgumentError, match="collective is 'sum': allowed are all_reduce, "):
        arlab.algorithm("mine", collective="sum")(lambda s: None)


def test_a_codec_may_be_an_object_and_is_held_to_its_promises():
    class Halves:
        """The payload's upper bytes."""

        def encode(self, blocks):
            upper = (blocks.view(np.uint16) >> 8).astype(np.uint8)
            return np.where(np.isnan(blocks), 0x7E, upper).astype(np.uint8)

        def decode(self, wire):
            return (wire.astype(np.uint16) << 8).view(np.float16)

    arlab.codec("halves", block=8, dtypes=["fp16"], saturating=["fp16"])(Halves())
    assert arlab.check_codec("halves").violation is None

    class Doubled(Halves):
        def decode(self, wire):
            return super().decode(wire) * np.float16(2)

    arlab.codec("doubled", block=8, dtypes=["fp16"], saturating=["fp16"])(Doubled())
    assert "saturation" in arlab.check_codec("doubled").violation
    with pytest.raises(ValueError, match="saturating"):
        arlab.codec("halves", block=8, dtypes=["fp16"], saturating=["fp8"])(Halves())


def test_the_ops_of_a_schedule_are_a_table():
    schedule = arlab.schedule("two_shot", ranks=2, elements=4)
    assert len(schedule.table) == schedule.ops
    assert list(schedule.table["op"].value_counts()[["encode", "send", "reduce"]]) == [6, 4, 2]


def test_defining_a_codec_again_replaces_it(twin):
    assert arlab.wire_bytes(twin, "fp16", 32) == 33
    arlab.codec(twin, block=8, dtypes=("fp16",))(Wrong())
    assert arlab.wire_bytes(twin, "fp16", 32) == 32
    with pytest.raises(arlab.ArgumentError, match="codec 'qr-q4' is already registered"):
        arlab.codec("qr-q4", block=8)(Wrong())


def test_codecs_in_python_from_many_threads(twin):
    x = values((4, 1 << 16))
    expected = bits(arlab.all_reduce(x, codec="mxint8").outputs)
    same = []
    threads = [
        threading.Thread(target=lambda: same.append(bits(arlab.all_reduce(x, codec=twin).outputs) == expected))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 4


def test_a_program_that_defines_some_ends():
    done = subprocess.run(
        [sys.executable, "-c", """
import numpy as np, arlab
@arlab.codec("mine", block=8)
class Mine:
    def encode(self, blocks): return np.zeros(blocks.shape, np.uint8)
    def decode(self, wire): return wire.astype(np.float32)
@arlab.algorithm("nothing")
def nothing(s): pass
print(arlab.encode(np.ones(9, np.float16), "mine").size)
"""],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.stdout == "16\n"


def test_a_codec_of_chance_is_called_so():
    @arlab.codec("coin-b8", block=8)
    class Coin:
        chance = np.random.default_rng(1)

        def encode(self, blocks):
            return self.chance.integers(0, 256, blocks.shape, np.uint8)

        def decode(self, wire):
            return wire.astype(np.float32)

    assert "the codec is not deterministic: wire byte" in arlab.check_codec("coin-b8").violation


@pytest.mark.parametrize(
    "function, question, own, renamed",
    [
        (arlab.simulate, "simulate", {"algorithm"}, {}),
        (arlab.sweep, "sweep", {"client", "workers", "progress"}, {}),
        (arlab.study, "study", {"file", "out", "client", "workers", "progress"}, {}),
        (arlab.select, "select", set(), {"min_sqnr": "min_sqnr_db", "algorithms": "algorithm", "codecs": "codec"}),
        (arlab.check_codec, "check-codec", {"codec"}, {}),
        (arlab.vectors, "vectors", {"codec", "folder"}, {}),
        (arlab.import_topology, "topology import", {"file"}, {"from": "source"}),
        (arlab.models.time, "model time", {"model", "attention"}, {}),
        (arlab.models.experts, "model experts", {"topology"}, {}),
        (arlab.models.perplexity, "model perplexity", {"model", "algorithm", "progress"}, {"layer_codec": "layer_codecs"}),
        (arlab.models.layers, "model layers", {"model", "algorithm", "progress"}, {}),
        (arlab.models.assign, "model assign", {"model", "algorithm", "progress"}, {}),
        (arlab.models.capture, "model capture", {"model", "out", "progress"}, {}),
    ],
)
def test_arguments_are_the_fields_of_the_question(function, question, own, renamed):
    """With their defaults and what they mean; options of algorithms are not listed."""
    from arlab._questions import OF_THE_PROGRAM

    fields = {renamed.get(each["name"], each["name"]): each for each in arlab._arlab.fields(question)}
    parameters = inspect.signature(function).parameters
    options = {name for name, each in fields.items() if each["of_algorithm"]}
    assert set(parameters) - {"options"} == ({*fields} - OF_THE_PROGRAM - options) | own
    assert ("options" in parameters) == bool(options)
    for name in {*parameters} & {*fields} - own:
        assert (parameters[name].default is inspect.Parameter.empty) == fields[name]["required"], name
        if fields[name]["default"] is not None:
            assert parameters[name].default == fields[name]["default"], name
        words = re.sub(r"--([\w-]+)", lambda option: option[1].replace("-", "_"), fields[name]["help"])
        assert f"    {name}: {words[:18]}" in function.__doc__


def test_defaults_that_words_say():
    assert "rocm-smi --showtopo" in arlab.import_topology.__doc__
    defaults = {name: each.default for name, each in inspect.signature(arlab.models.time).parameters.items()}
    assert (defaults["tokens"], defaults["phase"], defaults["attention"], defaults["codec"]) == (1024, "prefill", True, None)
    with pytest.raises(arlab.ArgumentError, match="topology is required"):
        arlab.sweep()
    with pytest.raises(arlab.ArgumentError, match="unknown option 'topologie': did you mean 'topology'\\?$"):
        arlab.sweep(topologie="h200-8")
    with pytest.raises(arlab.ArgumentError, match="client is 3: needed is a distributed.Client"):
        arlab.sweep(topology="h200-8", bytes="64K", client=3)


def test_the_stub_has_every_name():
    import ast

    from arlab import _arlab

    def names(tree):
        return {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}

    tree = ast.parse((Path(arlab.__file__).parent / "_arlab.pyi").read_text())
    assert names(tree) == {name for name in dir(_arlab) if not name.startswith("_")}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.endswith("Error"):
            members = {name for name in dir(getattr(_arlab, node.name)) if not name.startswith("_")}
            assert {name for name in names(node) if not name.startswith("__")} == members, node.name


def run_python(*words):
    return subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_module_is_the_program(tmp_path):
    """As the command `arlab` of the installed package, which is the same function."""
    command = ["reduce", "--algorithm", "two_shot", "--codec", "qr-q4", "--ranks", "2", "--synthetic", "gaussian", "--elements", "4KiB"]
    program_says = subprocess.run([PROGRAM, *command], stdout=subprocess.PIPE, text=True)
    done = run_python("-m", "arlab", *command)
    assert (done.returncode, done.stdout, done.stderr) == (0, program_says.stdout, "")
    wrong = run_python("-m", "arlab", "reduce", "--codecs", "x")
    assert wrong.returncode == 2 and wrong.stdout == "" and "did you mean '--codec'?" in wrong.stderr
    picture = run_python("-m", "arlab", "topology", "show", "l40-8", "--out", str(tmp_path / "it.png"))
    assert picture.returncode == 0 and (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


def test_the_package_says_its_version_and_names():
    assert f"arlab {arlab.__version__}" == subprocess.run([PROGRAM, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    public = {name for name in dir(arlab) if not name.startswith("_")}
    assert public == {*arlab.__all__, "fetch", "figures", "models", "statistics", "torch"}
    assert arlab.models.perplexity and arlab.ScheduleBuilder.__doc__


def test_fetch_has_help():
    done = run_python("-m", "arlab.fetch", "--help")
    assert done.returncode == 0 and "smollm2" in done.stdout and done.stderr == ""
    assert "usage" in run_python("-m", "arlab.fetch", "--nothing").stderr


def test_dtypes_have_the_names_of_numpy():
    for name, short in (("float16", "fp16"), ("bfloat16", "bf16"), ("float32", "fp32")):
        assert arlab.wire_bytes("int8-g128", name, 640) == arlab.wire_bytes("int8-g128", short, 640)
    assert arlab.simulate(topology="full:2", algorithm="ring", codec="fp16", bytes="64MiB", dtype="float16").latency_us > 0


def test_readme():
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    ((example, output),) = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == output
