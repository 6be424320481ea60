"""arlab select: the fastest pair at every size, under an error budget."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from program import ACTIVATIONS, REPOSITORY, contents, ok, ok_csv, ok_json, on_terminal, refused, same

FEW = "--algorithms one_shot,two_shot,ring --codecs fp16,qr-q8,qr-q4"


def select(options, folder):
    """Without a budget where none is named."""
    if not any(budget in options for budget in ("--min-sqnr", "--max-", "--no-budget")):
        options += " --no-budget"
    return ok_json(f"select {options}", folder)


def simulated(topology, row, payload, folder, more=""):
    more += " --library" if row["implementation"] == "library" else ""
    for option, name in (("--group-size", "group_size"), ("--micro-chunks", "micro_chunks")):
        more += f" {option} {row[name]}" if row.get(name) else ""
    pair = f"--algorithm {row['algorithm']} --codec {row['codec']}"
    return ok_json(f"simulate --topology {topology} {pair} --bytes {payload}{more}", folder)


def simulated_us(topology, row, payload, folder):
    return simulated(topology, row, payload, folder)["latency_us"]


@pytest.mark.parametrize(
    "machine, more",
    [("h200-8", "--max-wire-bits 9"), ("mi300x-8", "--bytes 64K"), ("l40-8", "--max-wire-bits 5"),
     ("rtx-4090-no-p2p-4", ""), ("h200-2x8", "--bytes 16M"), ("mine.toml", "--bytes 1M"),
     ("mine.toml", "--bytes 1000 --collective all_to_all --ranks 3"),
     ("mine.toml", "--bytes 10M --collective all_to_all --ranks 3 --codecs rans-qr-q4")],
)  # fmt: skip
def test_the_choice_is_as_sure_as_simulate_says(tmp_path, machine, more):
    link = 'bandwidth_gb_per_s = { value = 300, interval = [200, 400], source = "assumed", note = "n" }'
    (tmp_path / "mine.toml").write_text(f'base = "h100-8"\nname = "mine"\n[link]\n{link}\n')
    report = select(f"--topology {machine} {more}", tmp_path)
    whole = report["bytes"] + -report["bytes"] % (2 * report["ranks"] if "all_to_all" in more else 2)
    more = f" --ranks {report['ranks']}"
    more += f" --wire-bits {report['wire_bits_per_element']}" * report["codec"].startswith("rans-")
    said = simulated(machine, report, whole, tmp_path, more)
    names = ("latency_us", "latency_us_low", "latency_us_high", "extrapolated")
    assert {name: report[name] for name in names} == {name: said[name] for name in names}
    assert set(said.get("assumed", [])) <= set(report.get("assumed", []))


@pytest.mark.parametrize(
    "options",
    [
        "--topology l40-8",
        "--topology mi300x-8 --min-sqnr 25",
        "--topology mi300x-4 --max-wire-bits 5",
        "--topology h200-2 --min-sqnr 15 --max-wire-bits 9",
        "--topology full:3",
        "--topology full:1",
        "--topology full:128 --max-wire-bits 6 --algorithms two_shot --codecs qr-q4,mxfp4",
    ],
)
def test_every_size_is_covered_once(tmp_path, options):
    report = select(options, tmp_path)
    ranges = report["ranges"]
    assert ranges[0]["from_bytes"] == 1 and ranges[-1]["to_bytes"] is None
    for before, after in zip(ranges, ranges[1:]):
        assert before["to_bytes"] == after["from_bytes"] > before["from_bytes"]
        names = ("algorithm", "codec", "implementation", "group_size", "micro_chunks")
        assert [before[n] for n in names] != [after[n] for n in names]
    for each in ranges:
        assert each["latency_us_from"] > 0
        if report["min_sqnr_db"] is not None:
            assert each[report["metric"]] >= report["min_sqnr_db"]
        if report["max_wire_bits"] is not None:
            assert each["wire_bits_per_element"] <= report["max_wire_bits"]


def test_group_sizes_and_micro_chunks_are_searched(tmp_path):
    """The choice agrees with simulate, and is no slower than simulate's own choices and their neighbours."""
    for machine, algorithms in (("fat_tree:32", "hierarchical,hierarchical_pipelined"), ("h200-8", "tree,hierarchical")):
        report = select(f"--topology {machine} --algorithms {algorithms} --codecs fp16,qr-q4 --bytes 64M", tmp_path)
        best = {name: report[name] for name in ("algorithm", "codec", "implementation", "group_size", "micro_chunks")}
        if report["algorithm"] == "tree":
            del best["group_size"]
        assert report["latency_us"] == simulated_us(machine, best, "64M", tmp_path)
        for algorithm in algorithms.split(","):
            for more in ({}, {"group_size": 2}, {"group_size": 4}) if "hier" in algorithm else ({}, {"micro_chunks": 16}):
                row = {"algorithm": algorithm, "codec": "qr-q4", "implementation": "kernel", **more}
                assert report["latency_us"] <= 1.02 * simulated_us(machine, row, "64M", tmp_path)
        for each in report["ranges"]:
            at = each["from_bytes"] + each["from_bytes"] % 2
            assert simulated_us(machine, each, at, tmp_path) == pytest.approx(each["latency_us_from"], rel=0.01)


@pytest.mark.parametrize("machine, whole", [("l40-8", 1024), ("h200-8", 8 * 2048 * 2)])
def test_crossovers_are_exact(tmp_path, machine, whole):
    """At a crossover the new pair is the faster one; 1 KiB, or one tile a rank, below the old one still is."""
    report = select(f"--topology {machine} --min-sqnr 10 {FEW}", tmp_path)
    ranges = report["ranges"]
    assert len(ranges) > 1 and report["whole_tiles_bytes"] == whole
    for old, new in zip(ranges, ranges[1:]):
        at = new["from_bytes"]
        grain = whole if at > whole else 1024
        assert at % grain == 0
        new_us = simulated_us(machine, new, at, tmp_path)
        assert new_us == pytest.approx(new["latency_us_from"])
        assert new_us <= simulated_us(machine, old, at, tmp_path)
        if at > grain:
            below = at - grain
            old_us = simulated_us(machine, old, below, tmp_path)
            assert old_us <= simulated_us(machine, new, below, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        "--topology l40-8 --bytes 16M --synthetic gaussian --codecs fp16,int8-g32,int4-g32,int4-g32-sr,qr-q4",
        "--topology h200-2 --bytes 1M --synthetic gaussian --min-sqnr 20 --codecs int4-g32,qr-q4,nvfp4,mxfp6-e2m3,mxfp4,int5-g32,int6-g32",
        "--topology h200-8 --bytes 1M --synthetic gaussian --codecs int4-g32,qr-q4,int5-g32 --algorithms one_shot,two_shot",
        "--topology fat_tree:32 --bytes 64M --synthetic gaussian --codecs fp16,qr-q4 --algorithms tree,ring,hierarchical",
        "--topology torus:4x4 --bytes 256M --synthetic gaussian --codecs fp16,int4-g32,qr-fp8",
        "--topology h200-8 --bytes 1000000 --min-sqnr 20",  # int5-g128 takes longer for 1 KiB than for 64
        "--topology h200-2 --bytes 512K --dtype bf16 --min-sqnr 20",
    ],
)
def test_what_is_not_simulated_would_have_changed_nothing(tmp_path, options):
    """Candidates that cannot win, by bytes or smaller sizes, are left out: with all, for all bytes, it is the same."""
    report = select(options, tmp_path)
    assert report == select(f"{options} --exhaustive", tmp_path)
    assert report["ranges"] == select(re.sub("--bytes [0-9KM]+", "--bytes 3M", options), tmp_path)["ranges"]


def test_times_are_of_the_machine_and_say_where_they_end(tmp_path):
    text = "platform,machine,ranks,algorithm,codec,dtype,bytes,time_us,library\n"
    for machine, codec, us in (("h200-2", "qr-q4", 10), ("rtx-4090-2", "qr-q4", 99), ("rtx-4090-2", "qr-q6", 5)):
        text += f"cuda,{machine},2,two_shot,{codec},bf16,65536,{us},arlab\n"
    (tmp_path / "t.csv").write_text(text)
    timed = "--topology h200-2 --dtype bf16 --times t.csv"
    report = select(f"{timed} --bytes 64K", tmp_path)
    assert (report["codec"], report["latency_us"], report["extrapolated"]) == ("qr-q4", 10, [])
    assert "above 65536" in str(select(f"{timed} --bytes 1G", tmp_path)["extrapolated"])
    refused("select --topology mi300x-2 --dtype bf16 --no-budget --times t.csv", tmp_path, "no times of bf16", "MI300X")


def test_what_nobody_timed_is_ranked_when_asked_for(tmp_path):
    """A machine's file says what was timed: kernels of two algorithms, with the codecs of its table."""
    few = "--topology h100-2 --bytes 1M --synthetic gaussian --dtype bf16"
    report = select(few, tmp_path)
    rows = report["ranges"] + report["pareto"] + [report]
    assert {row["measured"] for row in rows} == {True}
    assert {row["measured_on"] for row in rows if row["implementation"] == "kernel"} == {"2 ranks"}
    assert {row["algorithm"] for row in rows if row["implementation"] == "kernel"} <= {"one_shot", "two_shot"}
    more = select(f"{few} --unmeasured", tmp_path)
    assert more["candidate_count"] == report["candidate_count"] + report["left_out"] > 2 * report["candidate_count"]
    assert more["left_out"] == 0 and more["left_out_codec"] is None
    for row in more["ranges"] + more["pareto"]:
        if row["implementation"] == "kernel" and row["algorithm"] not in ("one_shot", "two_shot"):
            assert row["measured"] is False
    named = select(f"{few} --algorithms hierarchical --codecs qr-q4,int7-g64", tmp_path)
    assert named["candidate_count"] == 2 + 2  # and NCCL's two
    kernels = [row for row in named["ranges"] + named["pareto"] if row["implementation"] == "kernel"]
    assert kernels and {row["measured"] for row in kernels} == {False}


def published():
    """By machine, what published tables have times of: kernels as (algorithm, codec), and whether there are some of a library."""
    kernels, library = {}, set()
    for table in tomllib.loads((REPOSITORY / "experiments/published/validation.toml").read_text())["tables"]:
        for row in table.get("rows", {"": {}}).values():
            for column in table.get("columns", {}).values():
                run = {"topology": table.get("topology"), **row, **column}
                if run.get("library"):
                    library.add(run["topology"])
                else:
                    kernels.setdefault(run["topology"], set()).add((run["algorithm"], run["codec"]))
    return kernels, library


MACHINES = sorted(path.stem for path in (REPOSITORY / "sim/topology/machines").glob("*.toml"))
HOPPER = {"h100-2", "h100-4", "h100-8", "p5-2x8", "h200-2", "h200-4", "h200-8"}  # arlab's kernels were timed on these chips


@pytest.mark.parametrize("machine", MACHINES)
def test_no_machine_ranks_what_nobody_timed_above_what_somebody_did(tmp_path, machine):
    kernels, library = published()
    command = f"--topology {machine} --ranks 2 --bytes 1M --synthetic gaussian --max-wire-bits 32"
    report = select(command, tmp_path)
    rows = report["ranges"] + report["pareto"] + [report]
    ours = [row for row in rows if row["implementation"] == "kernel"]
    if machine in kernels:
        assert {(row["algorithm"], row["codec"]) for row in ours} <= kernels[machine]
    if machine in kernels or machine in library or machine in HOPPER:
        reaches = "no-p2p" not in machine  # else none of arlab's kernels is a candidate
        assert report["ranked"] == "timed" and (report["left_out"] > 0) == reaches
    if report["ranked"] == "timed":
        assert all(row["measured"] is True and re.fullmatch(r"\d+(, \d+)* ranks", row["measured_on"]) for row in ours)
        assert any(row["measured"] for row in rows)
    else:
        assert report["ranked"] == "all" and report["left_out"] == 0
        assert {row["measured"] for row in rows} == {False}


@pytest.mark.parametrize(
    ("machine", "options"),
    [("p5-2x8", "--dtype bf16 --min-sqnr 15"), ("b200-2", "--min-sqnr 30"), ("mi300x-2", ""), ("h200-2", "--max-wire-bits 7"), ("l40s-2", "--max-kl 0.02")],
)
def test_what_is_left_out_is_said(tmp_path, machine, options):
    """The line has the time that the best of them has when all are ranked."""
    report = select(f"--topology {machine} {options}", tmp_path)
    every = select(f"--topology {machine} {options} --unmeasured", tmp_path)
    assert every["candidate_count"] == report["candidate_count"] + report["left_out"]
    best = [report["left_out_" + name] for name in ("algorithm", "codec", "latency_us")]
    if not every["measured"]:
        assert best == [every[name] for name in ("algorithm", "codec", "latency_us")]
    assert every["latency_us"] == min(report["latency_us"], best[2])
    said = f"{report['left_out']} candidates that nobody has timed are left out (--unmeasured); the best of them, {best[0]} with {best[1]}, takes {best[2]:.4g} us"
    assert said in ok(f"select --topology {machine} {options or '--no-budget'}", tmp_path)


def test_of_a_machine_of_ones_own_nothing_was_measured(tmp_path):
    """Also where it is made of one of which something was; and the first line says that all are ranked."""
    (tmp_path / "mine.toml").write_text('base = "h100-8"\nname = "h100-8"\n')
    for machine in ("mine.toml", "full:8", "vr200-72 --ranks 8"):
        command = f"--topology {machine} --bytes 1M --synthetic gaussian"
        report = select(f"{command} --algorithms two_shot,hierarchical --codecs qr-q4,int7-g64", tmp_path)
        rows = report["ranges"] + report["pareto"] + [report]
        assert {(row["measured"], row["measured_on"]) for row in rows} == {(False, None)}
        text = ok(f"select {command} --max-wire-bits 4.6 --algorithms two_shot", tmp_path)
        assert re.match(r"ranked +all candidates: nobody has timed any of them on this machine\n", text), text[:200]
        assert re.search(r"\nmeasured +no +", text) and "--unmeasured" not in text
    assert "nobody has timed" not in ok("select --topology mi300x-2 --max-wire-bits 4.6", tmp_path).splitlines()[0]


def test_the_library_is_a_candidate_whatever_is_named(tmp_path):
    """256 MiB uncompressed on 8 H100: NCCL is faster than the kernels that are named."""
    for named in ("--codecs fp16", "--codecs fp16 --algorithms two_shot"):
        report = select(f"--topology h100-8 --bytes 256M {named} --synthetic gaussian", tmp_path)
        assert report["implementation"] == "library" and report["measured_on"] == "2, 4, 8 ranks"
    report = select("--topology b300-8 --bytes 256M --codecs fp16 --synthetic gaussian", tmp_path)
    libraries = [row for row in report["ranges"] + report["pareto"] if row["implementation"] == "library"]
    assert libraries and {row["measured"] for row in libraries} == {False}
    gathered = select("--topology h100-2 --collective all_gather --codecs fp16 --synthetic gaussian", tmp_path)
    assert gathered["candidate_count"] == 2


def test_a_codec_that_is_named_has_no_default_budget(tmp_path):
    report = ok_json("select --topology full:4 --codecs int2-g32", tmp_path)
    assert report["codec"] == "int2-g32" and report["max_kl"] is None
    assert report == ok_json("select --topology full:4 --codec int2-g32 --no-budget", tmp_path)
    refused("select --topology full:4 --codecs int2-g32 --max-kl 0.05", tmp_path, "--max-kl 0.05: no candidate")


def test_a_wire_that_data_decide_has_the_time_of_its_length(tmp_path):
    """Values that need few bits have a short wire; simulate gives the same for such bits, and at most for the longest."""
    np.save(tmp_path / "few.npy", np.ones((4, 16384), np.float16))
    command = "--topology full:4 --algorithms two_shot --codecs lossless-e3-g64,bf16 --dtype bf16 --bytes 64M"
    rows = {}
    for data in ("--input few.npy", "--synthetic gaussian:sigma=1,seed=3"):
        report = select(f"{command} {data}", tmp_path)
        found = [row for row in report["pareto"] + [report] if row["codec"] == "lossless-e3-g64"]
        rows[data] = found[0]
    few, gaussian = rows.values()
    assert few["wire_bits_per_element"] < gaussian["wire_bits_per_element"] < 16
    assert few["latency_us"] < gaussian["latency_us"]
    simulated = "simulate --topology full:4 --algorithm two_shot --codec lossless-e3-g64 --dtype bf16 --bytes 64M"
    assert gaussian["latency_us"] == ok_json(f"{simulated} --wire-bits {gaussian['wire_bits_per_element']!r}", tmp_path)["latency_us"]
    assert "at most" in ok(simulated, tmp_path)
    longest = "wires of variable length are as long as they can be"
    layers = "model time --model llama-3-8b --topology h200-4 --codec"
    for command in (simulated, f"{layers} lossless-e3-g64"):
        assert longest in ok_json(command, tmp_path)["extrapolated"]
    for command in (f"{simulated} --wire-bits 12", f"{layers} qr-q4"):
        assert longest not in ok_json(command, tmp_path)["extrapolated"]
    reduced = ok_json("reduce --algorithm two_shot --codec lossless-e3-g64 --dtype bf16 --ranks 4 --elements 12288 --synthetic gaussian:sigma=1,seed=3", tmp_path)
    assert gaussian["wire_bits_per_element"] == pytest.approx(reduced["wire_bits_per_element"], rel=0.01)


@pytest.mark.parametrize("width", [80, 120])
def test_the_head_fits_a_terminal(tmp_path, width):
    """A value of two hundred characters does not push what stands beside the others to the right."""
    text = on_terminal("select --topology h200-4 --min-sqnr 15 --synthetic gaussian", tmp_path, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    head = lines[: lines.index("")]
    notes = {line.index("payload of one rank") for line in head if "payload of one rank" in line}
    assert notes and max(notes) < width / 2 + 20
    assert "int5-g128 (21.7 dB, KL 0.33)" in " ".join(" ".join(head).split())


def test_many_ranks_take_seconds(tmp_path):
    """Within the time limit of any one call, though 128 ranks have many uneven sizes."""
    few = "--algorithms two_shot,ring,tree --codecs fp16,qr-q8,qr-q4,int4-g32"
    assert select(f"--topology full:128 {few}", tmp_path)["ranges"]


def test_error_is_that_of_reduce(tmp_path):
    report = select(f"--topology mi300x-8 {FEW} --min-sqnr 25", tmp_path)
    tensors = [f"layer{i}.ffn_down" for i in range(6)]
    assert "worst of 6" in report["error_measured_on"]
    assert report["metric"] == "token_sqnr_db" and report["token_sqnr_db"] >= 25
    errors = [
        ok_json(
            f"reduce --algorithm {report['algorithm']} --codec {report['codec']} --input"
            f" {ACTIVATIONS / 'minilm_tp8.safetensors'} --tensor {tensor}",
            tmp_path,
        )
        for tensor in tensors
    ]
    for figure in ("sqnr_db", "token_sqnr_db"):
        assert report[figure] == min(each[figure] for each in errors)


def test_the_metric_decides(tmp_path):
    """One element of a token holds most of the energy: by tensor, what keeps it wins."""
    command = "--topology mi300x-8 --codecs int4-g32-sr,qr-q6 --algorithms two_shot"
    by_token = select(command, tmp_path)
    by_tensor = select(f"{command} --metric tensor", tmp_path)
    assert by_tensor["metric"] == "sqnr_db" and by_token["metric"] == "token_sqnr_db"
    only = "--topology full:8 --codecs int4-g32-sr --algorithms two_shot"
    assert select(f"{only} --metric tensor --min-sqnr 25", tmp_path)["codec"] == "int4-g32-sr"
    refused(f"select {only} --min-sqnr 25", tmp_path, "no candidate reaches it")
    refused(f"select {only} --metric channel", tmp_path, "channel", "token, tensor")
    refused(f"select {only} --metric token --synthetic gaussian", tmp_path, "has no tokens")


def test_pareto(tmp_path):
    report = select("--topology l40-8 --bytes 16M", tmp_path)
    front = report["pareto"]
    assert len(front) > 3
    for faster, better in zip(front, front[1:]):
        assert faster["latency_us"] < better["latency_us"]
        assert faster["token_sqnr_db"] < better["token_sqnr_db"]
    assert front[0]["latency_us"] == report["latency_us"]  # no budget: the fastest of all


def test_where_the_error_is_measured(tmp_path):
    few = f"--topology mi300x-4 {FEW}"
    gaussian = select(f"{few} --synthetic gaussian:sigma=2,seed=3", tmp_path)
    assert "gaussian:sigma=2,seed=3" in gaussian["error_measured_on"]
    path = ACTIVATIONS / "minilm_tp4.safetensors"
    one = select(f"{few} --input {path} --tensor layer1.ffn_down", tmp_path)
    assert "layer1.ffn_down" in one["error_measured_on"]
    assert "12 tensors" in select(f"{few} --input {path}", tmp_path)["error_measured_on"]
    rounded = select("--topology mi300x-4 --codecs bf16,qr-q4 --dtype bf16", tmp_path)
    assert "rounded to bf16" in rounded["error_measured_on"]
    data = np.random.default_rng(1).standard_normal((4, 4096)).astype(np.float32)
    np.save(tmp_path / "patterns.npy", (data.view(np.uint32) >> 16).astype(np.uint16))
    np.save(tmp_path / "floats.npy", data)
    for name in ("patterns.npy", "floats.npy"):
        options = f"--topology mi300x-4 --codecs bf16,qr-q4 --dtype bf16 --input {name}"
        assert name in select(options, tmp_path)["error_measured_on"]
    assert "no activations" in select(f"--topology full:3 {FEW}", tmp_path)["error_measured_on"]


def test_files(tmp_path):
    command = f"select --topology l40-8 --min-sqnr 10 {FEW} --out s.json --plot p.png"
    ok(command, tmp_path)
    assert set(contents(tmp_path)) == {"s.json", "p.png"}
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / "s.json").read_text())
    assert stored == select(f"--topology l40-8 --min-sqnr 10 {FEW}", tmp_path)
    assert stored["schema"] == "arlab.select/1"
    for row, each in zip(ok_csv(command, tmp_path), stored["ranges"]):
        assert same(row, each)
    drawn = "select --topology full:128 --algorithms two_shot --codecs fp16,qr-q4 --plot q.svg"
    ok(drawn, tmp_path)
    plain = (tmp_path / "q.svg").read_bytes()
    ok(f"{drawn} --highlight qr-q4", tmp_path)
    assert (tmp_path / "q.svg").read_bytes() != plain
    refused(f"{drawn} --highlight qr-q5", tmp_path, "--highlight names 'qr-q5'")


def test_the_figure_wants_candidates(tmp_path):
    ok(f"select --topology mi300x-8 {FEW} --out s.json", tmp_path)
    package = Path(__file__).parents[2] / "experiments/python"
    command = [sys.executable, "-m", "arlab.figures", "select", "s.json", "p.png"]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1 and "select --plot" in run.stderr
    assert set(contents(tmp_path)) == {"s.json"}


def test_refused(tmp_path):
    select_few = f"select --topology mi300x-8 {FEW}"
    refused(f"{select_few} --min-sqnr 200", tmp_path, "200", "best is", "dB", "fp16")
    refused(f"{select_few} --max-wire-bits 2", tmp_path, "smallest is", "qr-q4", "4.5")
    refused(f"{select_few} --min-sqnr 60 --max-wire-bits 9", tmp_path, "best is", "qr-q8")
    refused(f"{select_few} --min-sqnr many", tmp_path, "many", "number")
    refused(f"{select_few} --bytes 1", tmp_path, "--bytes")
    refused(f"{select_few} --out s.txt", tmp_path, ".json")
    refused(f"{select_few} --plot p.pdf", tmp_path, ".png or .svg")
    refused(f"{select_few} --ranks 9", tmp_path, "9", "8")
    refused(f"{select_few} --input none.npy", tmp_path, "none.npy")
    refused(
        f"{select_few} --input {ACTIVATIONS / 'minilm_tp4.safetensors'}", tmp_path, "(4, 32, 384)"
    )
    refused("select --topology mi300x-8 --codecs qr-q4,,fp16", tmp_path, "empty name")
    refused("select --topology mi300x-8 --codecs qr-q4,qr-q4", tmp_path, "twice")
    refused("select --topology mi300x-8 --codecs none", tmp_path, "none")
    refused("select --topology mi300x-8 --algorithms all_to_all", tmp_path, "all_to_all")
    refused("select --topology full:128 --min-sqnr 20", tmp_path, "64 ranks", "--max-wire-bits")


# ---------------------------------------------------------------- budgets of a language model

RESULTS = Path(__file__).resolve().parents[2] / "experiments/data/model_quality.csv"


def quality():
    """Returns every computed pair from the file that the program reads."""
    lines = [line for line in RESULTS.read_text().splitlines() if not line.startswith("#")]
    names = lines[0].split(",")
    return [dict(zip(names, line.split(","))) for line in lines[1:]]


def test_without_a_budget_it_is_what_models_survive(tmp_path):
    usual = ok_json("select --topology h200-4 --bytes 1M", tmp_path)
    assert usual["max_kl"] == 0.05 and usual["min_sqnr_db"] is None
    assert "as none is named" in ok("select --topology h200-4 --bytes 1M", tmp_path)
    assert {k: v for k, v in ok_json("select --topology h200-4 --bytes 1M --max-kl 0.05", tmp_path).items()} == usual
    assert all(row["mean_kl"] <= 0.05 for row in usual["ranges"])
    everything = ok_json("select --topology h200-4 --bytes 1M --no-budget", tmp_path)
    assert everything["max_kl"] is None and everything["within_budget"] > usual["within_budget"]
    assert everything["latency_us"] <= usual["latency_us"]


def test_figures_are_those_of_the_file_and_say_whose_they_are(tmp_path):
    rows = quality()
    report = ok_json("select --topology h200-4 --bytes 1M --no-budget", tmp_path)
    own = {(r["algorithm"], r["codec"]): float(r["mean_kl"]) for r in rows if r["ranks"] == "4" and r["dtype"] == "fp16"}
    seen = set()
    for row in report["ranges"] + report["pareto"]:
        pair = row["algorithm"], row["codec"]
        if pair in own:
            assert row["mean_kl"] == pytest.approx(own[pair]) and row["mean_kl_of"] is None
        elif row["mean_kl"] is not None:
            algorithm, ranks, dtype = row["mean_kl_of"].split(", ")
            found = [r for r in rows if (r["algorithm"], f"{r['ranks']} ranks", r["dtype"], r["codec"]) == (algorithm, ranks, dtype, row["codec"])]
            assert row["mean_kl"] == pytest.approx(float(found[0]["mean_kl"]))
        seen.add(row["mean_kl_of"] is None)
    assert seen == {True, False}
    strict = ok_json("select --topology h200-4 --bytes 1M --strict", tmp_path)
    assert all((row["algorithm"], row["codec"]) in own for row in strict["ranges"])


def test_a_budget_of_perplexity(tmp_path):
    rows = {(r["algorithm"], r["codec"]): r for r in quality() if r["ranks"] == "4" and r["dtype"] == "fp16"}
    report = ok_json("select --topology h200-4 --strict --max-perplexity-ratio 1.01", tmp_path)
    assert report["max_perplexity_ratio"] == 1.01
    for row in report["ranges"]:
        assert float(rows[row["algorithm"], row["codec"]]["perplexity_ratio"]) <= 1.01


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "all_to_all", "broadcast"])
def test_other_collectives(tmp_path, collective):
    """Time and error are those of simulate and reduce."""
    data = f"--input {ACTIVATIONS / 'minilm_tp4.safetensors'} --tensor layer1.ffn_down"
    what = f"--algorithms {collective} --codecs int8-g128"
    report = select(f"--topology mi300x-4 --collective {collective} {what} --max-wire-bits 9 --bytes 1M {data}", tmp_path)
    assert (report["collective"], report["algorithm"]) == (collective, collective)
    call = f"--algorithm {collective} --codec int8-g128"
    reduced = ok_json(f"reduce {call} {data}", tmp_path)
    assert [report[each] for each in ("sqnr_db", "token_sqnr_db")] == [reduced[each] for each in ("sqnr_db", "token_sqnr_db")]
    assert report["latency_us"] == ok_json(f"simulate --topology mi300x-4 {call} --bytes 1M", tmp_path)["latency_us"]


def test_other_collectives_that_cannot_be(tmp_path):
    of = "select --topology h200-2 --collective"
    refused(f"{of} all_gather", tmp_path, "with all-reduces only", "--no-budget")
    refused(f"{of} all_gather --max-kl 1", tmp_path, "with all-reduces only")
    refused(f"{of} broadcast --no-budget", tmp_path, "broadcast: nobody has timed", "--unmeasured")
    refused(f"{of} all_gather --no-budget --algorithms two_shot", tmp_path, "two_shot is not an all-gather")
    refused(f"{of} scatter", tmp_path, "scatter", "all_to_all")
    refused("select --topology full:5 --collective all_gather --no-budget", tmp_path, "12288 elements", "5 equal slots")


def test_a_budget_of_sqnr_says_what_it_misjudges(tmp_path):
    said = ok_json("select --topology h200-4 --min-sqnr 15", tmp_path)["sqnr_misjudges"]
    rows = {r["codec"]: r for r in quality() if (r["ranks"], r["algorithm"], r["dtype"]) == ("4", "two_shot", "fp16")}
    for case in said.split("; "):
        worse, better = (rows[part.split(" (")[0]] for part in case.split(" beside "))
        assert float(worse["token_sqnr_db"]) > float(better["token_sqnr_db"])
        assert float(worse["mean_kl"]) > float(better["mean_kl"])
    assert said.startswith("int5-g128 (21.7 dB, KL 0.33)")


@pytest.mark.parametrize(
    "options, message",
    [
        ("--codecs int2-g32 --max-kl 0.05", "--max-kl 0.05: no candidate that a language model was computed with reaches it; --no-budget"),
        ("--codecs bits=4.5 --max-kl 0.05", "--max-kl 0.05: no language model was computed with any of the candidates; --no-budget"),
        ("--max-perplexity-ratio 0.5", "--max-perplexity-ratio 0.5: no candidate that a language model"),
        ("--no-budget --min-sqnr 5", "--no-budget and a budget: allowed is one of the two"),
        ("--max-kl small", "--max-kl"),
    ],
)
def test_budgets_that_cannot_be(tmp_path, options, message):
    refused(f"select --topology full:4 {options}", tmp_path, message)
