"""The scripts of experiments/gpu, as far as they need no GPU: with ranks that are threads and tensors of NumPy."""

import csv
import io
import math
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "experiments" / "gpu"))

import bench_host_times as host_times_script  # noqa: E402
import bench_in_turns as turns_script  # noqa: E402
import bench_torch_allreduce as bench  # noqa: E402
import bench_torch_layers as layers_script  # noqa: E402
import bench_torch_overlap as overlap_script  # noqa: E402
import check_torch_allreduce as check_script  # noqa: E402
import first_run_rocm as first_run_script  # noqa: E402
import measurement  # noqa: E402
import two_gpus as two_gpus_script  # noqa: E402

from arlab import conformance  # noqa: E402

PROGRAM = str(Path(os.environ["ARLAB_BIN"]).resolve() / "arlab")


class Threads:
    """Ranks of PyTorch, played by threads; each thread's `rank` is its own."""

    def __init__(self, size):
        self.size = size
        self._barrier = threading.Barrier(size, timeout=60)
        self._values = [None] * size
        self._local = threading.local()
        self.device = "cpu"
        self.torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None))

    @property
    def rank(self):
        return self._local.rank

    def gather(self, value):
        self._values[self.rank] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        return values

    def nccl(self, tensor):
        """In place; rank order."""
        with np.errstate(all="ignore"):
            total, *others = [np.frombuffer(part, tensor.dtype) for part in self.gather(tensor.tobytes())]
            for other in others:
                total = total + other
        tensor[:] = total

    def run(self, function):
        results = [None] * self.size

        def one(rank):
            self._local.rank = rank
            results[rank] = function()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


def numpy_conformance():
    """arlab.conformance, whose tensors of PyTorch are NumPy's."""
    return SimpleNamespace(
        check=conformance.check,
        CheckError=conformance.CheckError,
        TorchTensors=lambda device: conformance.NumpyTensors(),
    )


def test_check_script():
    arguments = ["--out", "x.json", "--algorithms", "nccl", "--lengths", "2,2050", "--dtypes", "bf16"]
    options = check_script.parse_arguments(arguments)
    ranks = Threads(3)
    results = ranks.run(lambda: list(check_script.check_all(ranks, options, numpy_conformance())))
    assert results[0] == results[1] == results[2]
    ((algorithm, library, dtype, data, failure),) = results[0]
    assert (algorithm, library, dtype, failure) == ("nccl", "nccl", "bf16", "")
    row = check_script.row_of({"platform": "cuda", "machine": "x-3", "ranks": 3}, *results[0][0])
    assert row["passed"] == "true" and "one_shot/bf16/native" in row["exact_as"].split()
    assert row["mismatches"] == 0 and row["findings"] == ""
    text = measurement.csv_text([row], ["a", "b\nc"], check_script.CSV_COLUMNS)
    assert text.startswith("# a\n# b\n# c\nplatform,machine,ranks,")
    (read,) = csv.DictReader(io.StringIO(text.split("# c\n")[1]))
    assert read["sqnr_db"] == str(data["errors"][0]["sqnr_db"])


def test_check_script_says_what_cannot_run():
    options = check_script.parse_arguments(["--out", "x", "--algorithms", "nccl"])
    ranks = Threads(2)

    def broken(tensor):
        raise RuntimeError("not implemented for Half")

    ranks.nccl = broken
    results = ranks.run(lambda: list(check_script.check_all(ranks, options, numpy_conformance())))[0]
    assert len(results) == 3 and all(data is None for _, _, _, data, _ in results)
    row = check_script.row_of({}, *results[0])
    assert row["findings"].startswith("not run: the all-reduce failed") and "not implemented for Half" in row["findings"]


def test_regions_fit():
    # The check's memory is that of check_script.region_bytes().
    seen = []

    def all_reduce(tensors):
        seen.append(tensors[0].base.nbytes if tensors[0].base is not None else 0)
        return tensors

    conformance.check(all_reduce, world_size=2, lengths=[1, 300])
    assert max(seen) == check_script.region_bytes([1, 300], 2)


def test_bench_script(monkeypatch):
    options = bench.parse_arguments(["--out", "x", "--min-bytes", "32K", "--max-bytes", "128K", "--dtypes", "bf16,fp16"])
    assert options.calls == 20
    ranks = Threads(2)

    def functions_of(ranks, algorithm, dtype, most, codec):
        assert most == 128 << 10
        if algorithm != "nccl" and dtype == "fp16" and ranks.rank == 1:
            raise RuntimeError("no Half")
        return lambda size: lambda: size

    monkeypatch.setattr(bench, "functions_of", functions_of)
    monkeypatch.setattr(bench, "measure", lambda ranks, function, calls, replays: function() / 1024)
    rows, other_rows = ranks.run(lambda: list(bench.rows_of(ranks, options, {"platform": "cuda", "machine": "m", "ranks": 2})))
    assert rows == other_rows
    notes = [row for row in rows if isinstance(row, str)]
    assert notes == [f"not measured: torch_symm_mem {name} fp16: no Half" for name in ("one_shot", "two_shot")]
    rows = [row for row in rows if not isinstance(row, str)]
    assert len(rows) == 4 * 3
    text = measurement.csv_text(rows, ["provenance"])
    assert text.splitlines()[1] == "platform,machine,ranks,algorithm,codec,dtype,bytes,time_us,library"
    assert text.splitlines()[2] == "cuda,m,2,auto,bf16,bf16,32768,32.00,nccl"
    assert text.splitlines()[-1] == "cuda,m,2,two_shot,bf16,bf16,131072,128.00,torch_symm_mem"


def test_bench_script_with_quick_reduce(monkeypatch):
    options = bench.parse_arguments(["--out", "x", "--max-bytes", "32K", "--dtypes", "bf16", "--algorithms", "nccl,quick_reduce"])
    ranks = Threads(2)
    calls = []

    def quick_reduce(tensor, level):
        if level == 2:
            raise ImportError("No module named 'vllm'")
        calls.append((ranks.rank, len(tensor), level))

    ranks.quick_reduce = quick_reduce
    ranks.dtype = lambda name: np.dtype(np.uint16)
    ranks.torch.zeros = lambda elements, dtype, device: np.zeros(elements, dtype)
    monkeypatch.setattr(bench, "measure", lambda ranks, function, calls, replays: 1.0)
    rows, _ = ranks.run(lambda: list(bench.rows_of(ranks, options, {})))
    assert [row for row in rows if isinstance(row, str)] == ["not measured: vllm_quick_reduce quick_reduce qr-q6: No module named 'vllm'"]
    rows = [row for row in rows if not isinstance(row, str)]
    assert [(row["library"], row["algorithm"], row["codec"]) for row in rows] == [
        ("nccl", "auto", "bf16"),
        *(("vllm_quick_reduce", "two_shot", codec) for codec in ("bf16", "qr-q8", "qr-q4")),
    ]
    assert sorted(calls) == [(rank, 16384, level) for rank in (0, 1) for level in (0, 1, 3)]


def first_run(tmp_path, *more):
    small = ["--ranks", "2", "--codecs", "bf16", "--bytes", "4K", "--bench", "--calls 1 --replays 1"]
    conform = ["--conform", "--codec qr-q4 --algorithm one_shot --ranks 2 --elements 8"]
    arguments = ["--out", str(tmp_path / "out"), "--platform", "host", "--program", PROGRAM, *small, *conform, *more]
    return first_run_script.main(arguments), tmp_path / "out"


def test_first_run(tmp_path, capsys):
    code, out = first_run(tmp_path)
    assert code == 0
    summary = (out / "SUMMARY.md").read_text()
    steps = dict(re.findall(r"^\| (\S+) \| ([^|]+) \|", summary, re.MULTILINE))
    done = ["doctor.json", "conform_flags.csv", "conform_sentinels.csv", "bench_flags_2.csv", "bench_sentinels_2.csv"]
    assert [name for name, ended in steps.items() if ended == "done"] == done
    assert steps["calibrate_flags_2.txt"].startswith("left out: emulated GPUs")
    times = (out / "times_sentinels_2.csv").read_text()
    assert "one_shot,bf16,bf16,4096," in times
    with pytest.raises(SystemExit):  # the folder has results
        first_run(tmp_path)
    assert "the folder is not empty" in capsys.readouterr().err


def test_first_run_goes_on_without_what_fails(tmp_path):
    # An arlab whose sentinels do not conform.
    program = tmp_path / "arlab"
    program.write_text(f'#!/bin/sh\ncase "$*" in *"conform"*"sentinels"*) echo "arlab: they differ" >&2; exit 1;; esac\nexec "{PROGRAM}" "$@"\n')
    program.chmod(0o755)
    code, out = first_run(tmp_path, "--program", str(program))
    assert code == 1
    summary = (out / "SUMMARY.md").read_text()
    assert "| conform_sentinels.csv | exit code 1 |" in summary and "conform_sentinels.csv: arlab: they differ" in summary
    assert "| bench_sentinels_2.csv | left out: conform has not passed with sentinels |" in summary
    assert "| bench_flags_2.csv | done |" in summary


def test_first_run_without_devices(tmp_path):
    code, out = first_run(tmp_path, "--platform", "rocm")
    assert code == 1
    assert "| conform | no device of platform rocm can be used |" in (out / "SUMMARY.md").read_text()


def test_time_of():
    # Rank 1 is slow in the first replay, rank 0 in the second.
    assert measurement.time_of([[1.0, 9.0, 3.0], [5.0, 2.0, 3.5]]) == 5.0


@pytest.mark.parametrize("text, size", [("1", 1), ("32K", 32768), ("256M", 256 << 20), ("1G", 1 << 30), ("64mib", 64 << 20), ("64MB", 64 * 10**6), ("3kb", 3000)])
def test_parse_size(text, size):
    assert measurement.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5M", "32B", "32 KB", "KB"])
def test_parse_size_refuses(text):
    with pytest.raises(ValueError, match="allowed are"):
        measurement.parse_size(text)


def test_sizes():
    assert measurement.sizes_between(32, 128) == [32, 64, 128]
    assert measurement.sizes_between(32, 100) == [32, 64]


@pytest.mark.parametrize(
    "device, name",
    [("NVIDIA H200", "h200-4"), ("AMD Instinct MI300X", "mi300x-4"), ("NVIDIA A100-SXM4-80GB", "a100-4"), ("", "gpu-4")],
)
def test_machine_name(device, name):
    assert measurement.machine_name(device, 4) == name


def test_write_whole(tmp_path):
    measurement.write_whole(tmp_path / "a.csv", "1")
    measurement.write_whole(tmp_path / "a.csv", "2")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "2"


@pytest.mark.parametrize("module", [bench, check_script])
def test_bad_options(module, capsys):
    for options in (["--algorithms", "ring"], ["--dtypes", "fp8"], []):
        with pytest.raises(SystemExit) as caught:
            module.parse_arguments([*options, *(["--out", "x"] if options else [])])
        assert caught.value.code == 2
    assert "allowed are nccl, one_shot, two_shot" in capsys.readouterr().err


# ---------------------------------------------------------------- layers


def test_rows_of_layers(monkeypatch):
    """A layer's time over its neighbour's with NCCL; what an all-reduce adds, up to 8 MiB; one_shot where it would be
    taken."""

    class Kind:
        itemsize = 2

    ranks = Threads(1)
    ranks._local.rank = 0
    ranks.dtype = lambda name: Kind
    ranks.symmetric_buffer = lambda kind, elements: np.zeros(elements, np.float16)
    ranks.barrier = lambda: None
    monkeypatch.setattr(layers_script, "Layers", lambda *arguments: None)
    monkeypatch.setattr(layers_script, "try_on_all", lambda ranks, make: ("graph", ""))
    monkeypatch.setattr(layers_script, "all_reduces", lambda *arguments: [(name, None) for name in ("none", "nccl", "arlab one_shot qr-q4")])
    monkeypatch.setattr(layers_script, "turns", lambda ranks, graphs, layers, replays: {
        name: ([100.0 + 8 * i] * 7, [108.0, 100.0, 120.0, 108.0, 110.0, 108.0, 108.0], [1755.0] * 7) for i, name in enumerate(graphs)
    })
    options = layers_script.parse_arguments(["--tokens", "1,8K", "--out", "x.csv"])
    rows = list(layers_script.rows_of(ranks, options, {"platform": "cuda", "machine": "m", "ranks": 1, "dtype": "bf16"}))
    assert [(row["tokens"], row["bytes"], row["all_reduce"], row["added_us"]) for row in rows] == [
        (1, 16384, "none", "0.00"), (1, 16384, "nccl", "4.00"), (1, 16384, "arlab one_shot qr-q4", "8.00"),
        (8192, 134217728, "none", ""), (8192, 134217728, "nccl", ""),
    ]  # fmt: skip
    assert [rows[1][name] for name in ("layer_us", "over_nccl", "over_nccl_low", "over_nccl_high", "sm_mhz")] == [
        "108.0", "1.0000", "0.9000", "1.0800", "1755",
    ]  # fmt: skip
    assert all(tuple(row) == layers_script.COLUMNS for row in rows)


def test_rows_of_an_overlap(monkeypatch):
    """Graphs are made of products alone; of all-reduces alone; without a limit behind a product, with one beside it."""
    made = []

    def capture(ranks, run, calls):
        made.append(run())
        return made[-1]

    class Pair:
        tensor, sum = "alone", "sum"

        def __init__(self, ranks, tokens):
            self.tokens = tokens

        def product(self):
            return "product"

        def after(self, all_reduce):
            return f"after {all_reduce('', '')}"

        def beside(self, all_reduce):
            return f"beside {all_reduce('', '')}"

    choices = [("nccl", 0, lambda x, out: f"nccl {x}"), ("nccl", 8, lambda x, out: f"nccl-8 {x}"), ("nccl", 16, lambda x, out: f"nccl-16 {x}"),
               ("arlab qr-q4", 0, lambda x, out: f"q4 {x}"), ("arlab qr-q4", 8, lambda x, out: f"q4-8 {x}")]  # fmt: skip
    times = {("product",): 100.0, ("nccl", 0, "after"): 150.0, ("nccl", 8, "alone"): 80.0, ("nccl", 8, "beside"): 130.0,
             ("nccl", 16, "beside"): 120.0, ("arlab qr-q4", 8, "beside"): 110.0}  # fmt: skip
    monkeypatch.setattr(overlap_script, "Pair", Pair)
    monkeypatch.setattr(overlap_script, "capture", capture)
    monkeypatch.setattr(overlap_script, "try_on_all", lambda ranks, make: (make(), ""))
    monkeypatch.setattr(overlap_script, "all_reduces", lambda *arguments: choices)
    monkeypatch.setattr(overlap_script, "turns", lambda ranks, graphs, calls, replays: {key: times[key] for key in graphs if key in times})
    options = overlap_script.parse_arguments(["--tokens", "1K", "--sms", "8,16", "--out", "x.csv"])
    rows = list(overlap_script.rows_of(Threads(1), options, {"platform": "cuda", "machine": "m", "ranks": 2, "dtype": "bf16"}))
    assert made == [
        "product", "nccl alone", "after nccl ", "nccl-8 alone", "beside nccl-8 ", "nccl-16 alone", "beside nccl-16 ",
        "q4 alone", "after q4 ", "q4-8 alone", "beside q4-8 ",
    ]  # fmt: skip
    figures = [tuple(row[name] for name in overlap_script.COLUMNS[4:]) for row in rows if isinstance(row, dict)]
    assert figures == [
        (1024, 16777216, "nccl", 8, "100.0", "80.0", "150.0", "130.0"),
        (1024, 16777216, "nccl", 16, "100.0", "", "150.0", "120.0"),
        (1024, 16777216, "arlab qr-q4", 8, "100.0", "", "", "110.0"),
    ]
    assert [row for row in rows if isinstance(row, str)] == [
        "1024 tokens, nccl: best with 16 multiprocessors, 120.0 us", "1024 tokens, arlab qr-q4: best with 8 multiprocessors, 110.0 us",
    ]  # fmt: skip


def test_a_layers_neighbours(monkeypatch):
    """Each replay has one with NCCL beside it, before and behind it in turns; of ranks, the slowest counts."""
    clock = iter(range(10**6))
    played = []

    class Event:
        def __init__(self, **kind):
            self.at = 0

        def record(self):
            self.at = next(clock)

        def elapsed_time(self, end):
            return end.at - self.at

    class Graph:
        def __init__(self, name, ticks):
            self.name, self.ticks = name, ticks

        def replay(self):
            played.append(self.name)
            for _ in range(self.ticks):
                next(clock)

    class Cuda:
        Event = staticmethod(lambda enable_timing: Event())
        synchronize = staticmethod(lambda: None)

    class OneRank:
        torch = type("Torch", (), {"cuda": Cuda})
        barrier = staticmethod(lambda: None)
        # A second rank takes twice as long.
        gather = staticmethod(lambda mine: [mine, {name: [(2 * a, 2 * b, c) for a, b, c in each] for name, each in mine.items()}])

    graphs = {"none": Graph("none", 1), "nccl": Graph("nccl", 3)}
    measured = layers_script.turns(OneRank, graphs, layers=4, replays=2)
    assert played == ["nccl", "none", "nccl", "nccl", "none", "nccl", "nccl", "nccl"] * 2 + ["nccl", "none", "nccl", "nccl"]
    layer_us, neighbours, clocks = measured["none"]
    assert layer_us == [2 * 2 * 250, 2 * 2 * 250] and neighbours == [2 * 4 * 250, 2 * 4 * 250] and np.isnan(clocks).all()
    # Without NCCL there is nothing to compare with.
    row = layers_script.figures_of(*layers_script.turns(OneRank, {"none": graphs["none"]}, layers=4, replays=2)["none"])
    assert row["layer_us"] == "1000.0" and row["over_nccl"] == row["over_nccl_high"] == row["sm_mhz"] == ""


def test_host_times(monkeypatch):
    # Rank 1 takes twice as long, and a call of way b twice as long as one of a.
    ranks = Threads(2)
    ranks.barrier = lambda: ranks.gather(None)
    clock = threading.local()
    monkeypatch.setattr(host_times_script, "time", SimpleNamespace(perf_counter=lambda: getattr(clock, "now", 0.0)))

    def takes(us):
        def call():
            clock.now = getattr(clock, "now", 0.0) + us * 1e-6 * (1 + ranks.rank)

        return call

    for times in ranks.run(lambda: host_times_script.turns(ranks, {"a": takes(3), "b": takes(6)}, calls=4, count=3)):
        assert {way: [round(each, 6) for each in of] for way, of in times.items()} == {"a": [6.0] * 3, "b": [12.0] * 3}


# ---------------------------------------------------------------- two GPUs

ONE_WRONG_BIT = """
import arlab
exact = arlab.all_reduce
def wrong(*arguments, **options):
    result = exact(*arguments, **options)
    result.outputs.view("uint8")[0, 0] ^= 1
    return result
arlab.all_reduce = wrong
"""


@pytest.mark.parametrize("mutant", [False, True])
def test_soak(tmp_path, mutant):
    """On emulated GPUs: nothing differs, and the killed rank is named; one wrong bit of the first rank is found."""
    (tmp_path / "sitecustomize.py").write_text(ONE_WRONG_BIT if mutant else "")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    out = tmp_path / "soak.csv"
    command = [sys.executable, two_gpus_script.__file__, "soak", "--out", str(out), "--platform", "host", "--ranks", "3"]
    command += ["--seconds", "0.7", "--timeout", "1", "--most", "3000"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == int(mutant), done.stderr
    (row,) = csv.DictReader(line for line in out.read_text().splitlines() if not line.startswith("#"))
    assert int(row["calls"]) > 5 and int(row["compared"]) > 5 * 3 and (row["killed"], row["named_by"]) == ("2", "2")
    assert (int(row["differ"]) > 0) == mutant and float(row["named_after_s"]) < 3


def test_rows_of_turns(monkeypatch):
    """Every all-reduce in each turn, in an order that changes; the slowest rank counts; what fails is a note."""
    ranks, played = Threads(2), []

    def contenders(ranks, options):
        for name, factor in (("a", 1), ("b", 2), ("broken", 0)):
            yield "arlab", name, "bf16", lambda size, factor=factor: lambda: factor * size

    def capture(ranks, function, calls):
        if function() == 0:
            raise RuntimeError("not here")
        return function() * calls

    def replay_timer(ranks):
        return lambda graph: (played.append((ranks.rank, graph)), graph * (1 + ranks.rank))[1]

    for name, value in (("contenders", contenders), ("capture", capture), ("replay_timer", replay_timer)):
        monkeypatch.setattr(two_gpus_script, name, value)
    sizes = ["--min-bytes", "16M", "--max-bytes", "32M"]
    options = two_gpus_script.parse_arguments(["turns", "--out", "x", "--turns", "3", *sizes])
    notes = [], []
    rows, _ = ranks.run(lambda: list(two_gpus_script.rows_of_turns(ranks, options, notes[ranks.rank])))
    assert [(row["algorithm"], row["bytes"], float(row["time_us"])) for row in rows] == [
        (name, size << 20, factor * (size << 20)) for size in (16, 32) for name, factor in (("a", 2.0), ("b", 4.0))
    ]
    assert all(row["turns"] == 3 and tuple(row) == two_gpus_script.TURN_COLUMNS for row in rows)
    first = [graph // (4 * (16 << 20)) for rank, graph in played if rank == 0][:10]
    assert first == [2, 1, 1, 2] * 2 + [2, 1]
    assert notes[0] == [f"not measured: arlab broken bf16 of {size << 20} bytes: not here" for size in (16, 32)]


def test_programs_in_turns(tmp_path):
    rows = "gpus,bytes,tokens,hidden,kernel,pdl,fused,time_us", *(f"2,16384,1,8192,one_shot_lamport,1,{n},2.5" for n in (0, 1))
    fake = "#!/bin/sh\n" + "".join(f"echo {row}\n" for row in rows)
    for name, more in (("bench_1", ""), ("bench_2", "echo '# wrong 1 want 2'\n")):
        (tmp_path / name).write_text(fake + more)
        (tmp_path / name).chmod(0o755)
    bench = f"{PROGRAM} bench --platform host --ranks 2 --algorithm one_shot --codec qr-q4 --bytes 16K --calls 1"
    out = tmp_path / "x.csv"
    tail = "hidden=512,residual=add"
    command = [sys.executable, two_gpus_script.__file__, "programs", "--out", str(out), "--turns", "2", "--bench", bench]
    command += ["--bench", f"{bench} --tail {tail}"]
    subprocess.run([*command, "--lamport", str(tmp_path / "bench_1")], check=True, capture_output=True)
    rows = list(csv.DictReader(line for line in out.read_text().splitlines() if not line.startswith("#")))
    arlab, other = ("arlab", "one_shot", "qr-q4"), ("bench_1", "one_shot_lamport pdl", "bf16")
    of_other = two_gpus_script.FLASHINFER_TAIL.format(8192)
    columns = "library", "algorithm", "codec", "tail", "bytes", "turns"
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (*each, "16384", "2") for each in ((*arlab, ""), (*arlab, tail), (*other, ""), (*other, of_other))
    ]
    command += ["--lamport", str(tmp_path / "bench_2")]
    failed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert failed.returncode == 1 and "# wrong 1 want 2" in failed.stderr


@pytest.mark.parametrize("count", [1, 5, 6, 15, 20])
def test_interval_of_a_median(count):
    """At least 95 % of samples, or the extremes: by the binomial distribution, which has nothing of the values."""
    values = [float(i) for i in range(count)]
    low, middle, high = measurement.median_interval(values[::-1])
    assert middle == (count - 1) / 2 and low + high == count - 1
    misses = sum(math.comb(count, i) for i in range(int(low) + 1)) / 2**count
    assert misses <= 0.025 or low == 0
    wider = sum(math.comb(count, i) for i in range(int(low) + 2)) / 2**count
    assert wider > 0.025  # no narrower interval would do
    assert np.isnan(measurement.median_interval([1.0, math.nan])).all()


@pytest.mark.parametrize("arguments", ["--layers 0 --out x", "--replays 0 --out x", "--dtype fp32 --out x", "--tokens 1"])
def test_layers_that_cannot_be_measured(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        layers_script.parse_arguments(arguments.split())
    assert ended.value.code == 2 and capsys.readouterr().err


def test_two_commands_in_turns(tmp_path, monkeypatch):
    command = f"{PROGRAM} bench --platform host --ranks 3 --calls 1 --replays 1 --bytes 2K,6K --algorithm one_shot --codec bf16,qr-q4"
    out = tmp_path / "turns.csv"
    arguments = ["bench_in_turns.py", "--turns", "2", "--before", command, "--after", f"{command} --sum fp32", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    turns_script.main()
    comments = [line for line in out.read_text().splitlines() if line.startswith("#")]
    assert "--sum fp32" in comments[0] and "in 2 turns" in comments[1]
    rows = list(csv.DictReader(line for line in out.read_text().splitlines() if not line.startswith("#")))
    assert [(row["codec"], row["bytes"]) for row in rows] == [(c, b) for b in ("2048", "6144") for c in ("bf16", "qr-q4")]
    times = {("one_shot", "fp16", 64): 2.0}
    for row in [*rows, *turns_script.rows_of([times] * 3, [{point: 3 * us for point, us in times.items()}] * 3)]:
        assert float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
    assert row["ratio"] == "3.0000" and row["before_us"] == "2.000" and row["turns"] == 3
    with pytest.raises(SystemExit, match="unknown codec"):
        turns_script.times_of(f"{PROGRAM} bench --platform host --codec int9")
