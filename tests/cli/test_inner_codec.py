"""--inner-codec: a codec for messages inside groups, or for the way back, beside that of all others."""

import json

import numpy as np
import pytest
from program import ok, ok_csv, ok_json, refused, run

DATA = "--synthetic gaussian:sigma=1,seed=3 --elements 8192"
INSIDE = "--algorithm hierarchical --group-size 2"
def reduced(options, folder):
    """The figures, and what every rank ends with."""
    figures = ok_json(f"reduce {DATA} --ranks 4 {options} --out out.npy", folder)
    return figures, np.load(folder / "out.npy").tobytes()


def test_a_saved_schedule_says_what_is_inner(tmp_path):
    command = f"schedule {INSIDE} --ranks 4 --elements 8192 --codec int4-g32 --inner-codec int5-g128"
    written = json.loads(ok(command, tmp_path))
    assert written["alignment"] == 128
    encodes = [op for op in written["ops"] if op["op"] == "encode"]
    assert {(op["step"], op.get("codec", "outer")) for op in encodes} == {(0, "inner"), (1, "outer"), (2, "inner")}
    assert all("codec" not in op for op in written["ops"] if op["op"] != "encode")
    assert {row["op"] for row in ok_csv(command, tmp_path)} == {"encode", "encode inner", "send", "reduce"}
    assert "encode inner" in ok(command + " --format table", tmp_path)

    (tmp_path / "mine.json").write_text(json.dumps(written))
    for inner in ("", " --inner-codec int5-g128"):
        _, of_file = reduced(f"--schedule mine.json --codec int4-g32{inner}", tmp_path)
        _, of_algorithm = reduced(f"{INSIDE} --codec int4-g32{inner}", tmp_path)
        assert of_file == of_algorithm
    simulated = "simulate --topology h200-4 --codec int4-g32 --inner-codec int5-g128"
    of_file = ok_json(f"{simulated} --schedule mine.json", tmp_path)
    of_algorithm = ok_json(f"{simulated} {INSIDE} --bytes 16K", tmp_path)
    assert of_file["latency_us"] == of_algorithm["latency_us"]
    report = ok_json("conform --platform host --codec int4-g32 --inner-codec int5-g128 --schedule mine.json", tmp_path)
    assert report["mismatches"] == 0 and report["compared_elements"] > 0


def test_the_dtype_is_one_that_all_codecs_take(tmp_path):
    codecs = "--algorithm two_shot --codec qr-q4 --inner-codec ag:bf16"
    tail = "--tail hidden=576,residual=add,norm=rms,out=int8-g64 --tail-place owner --tail-residual travels"
    written = ok_json(f"schedule {codecs} --ranks 2 --elements 36K {tail}", tmp_path)
    assert 0 < written["volume"]["wire_bytes"] < written["volume"]["wire_bytes_of_plain"]
    assert ok_json(f"reduce {codecs} {DATA} --ranks 2", tmp_path)["dtype"] == "bf16"
    assert ok_json(f"simulate --topology full:4 --bytes 16K {codecs}", tmp_path)["dtype"] == "bf16"
    missing = "--tail residual=add: --residual is missing"
    refused(f"reduce {codecs} {DATA} --ranks 2 --tail hidden=64,residual=add", tmp_path, missing)


def test_simulated_wire_is_that_of_reduce(tmp_path):
    options = f"{INSIDE} --codec qr-q4 --inner-codec fp16"
    simulated = ok_json(f"simulate --topology full:4 --bytes 16K {options}", tmp_path)
    figures, _ = reduced(options, tmp_path)
    assert simulated["wire_bytes"] == figures["wire_bytes"] == sum(link["bytes"] for link in simulated["links"])
    assert simulated["wire_bits_per_element"] == pytest.approx(figures["wire_bits_per_element"])
    assert simulated["inner_codec"] == "fp16"
    table = ok(f"simulate --topology full:4 --bytes 16K {options}", tmp_path)
    assert "inner_codec" in table


def test_few_bits_across_the_slow_link(tmp_path):
    """Where only the bridge is slow, fp16 inside costs little."""
    simulate = "simulate --topology l40-8 --bytes 16M --algorithm hierarchical"
    us = {
        options: ok_json(f"{simulate} --codec {options}", tmp_path)["latency_us"]
        for options in ("fp16", "int4-g32 --inner-codec fp16", "fp16 --inner-codec int4-g32", "int4-g32")
    }
    assert us["int4-g32"] < us["int4-g32 --inner-codec fp16"] < us["fp16"]


def test_bench(tmp_path):
    bench = "bench --platform host --dtype fp16 --algorithm hierarchical --codec qr-q4 --inner-codec fp16 --ranks 4 --bytes 16K"
    report = ok_json(f"{bench} --calls 1 --replays 1", tmp_path)
    assert report["inner_codec"] == "fp16" and len(report["times"]) == 1
    (choice,) = ok_json(f"{bench} --explain", tmp_path)["choices"]
    assert choice["kernel"] == "program in kernels of one codec each; 3 kernels"


STUDY = """
title = "inside"
ranks = [4]
algorithms = "all"
codecs = ["int4-g32"]
inner_codec = "fp16"
[[input]]
name = "ours"
synthetic = "gaussian:sigma=1,seed=3"
elements = 8192
[simulate]
topology = "full:4"
bytes = "64K"
"""


def test_a_study_with_one(tmp_path):
    (tmp_path / "s.toml").write_text(STUDY)
    assert run("study s.toml --no-plots", tmp_path).code == 0
    lines = (tmp_path / "results/s/results.csv").read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert any("inside groups codec fp16" in line for line in comments)
    header, *rows = [line.split(",") for line in lines if not line.startswith("#")]
    rows = [dict(zip(header, row)) for row in rows]
    assert [row["algorithm"] for row in rows] == ["hierarchical", "hierarchical_pipelined"]
    options = "--algorithm hierarchical --codec int4-g32 --inner-codec fp16"
    figures, _ = reduced(options, tmp_path)
    assert float(rows[0]["sqnr_db"]) == pytest.approx(figures["sqnr_db"], rel=1e-6)
    latency = ok_json(f"simulate --topology full:4 --bytes 64K {options}", tmp_path)["latency_us"]
    assert float(rows[0]["simulated_latency_us"]) == pytest.approx(latency, rel=1e-6)


@pytest.mark.parametrize(
    "before, after, fragments",
    [
        ('"fp16"', '"fp17"', ["inner_codec", "fp17"]),
        ('"fp16"', '"bf16"', ["ours", "bf16"]),
        ('"fp16"', "4", ["s.toml: key 'inner_codec': it is an integer, but must be a string"]),
        ('"all"', '["ring"]', ["algorithms", "ring has no groups, which inner_codec is for"]),
        ('"all"', '["all_to_all"]', ["algorithms", "all_to_all has no groups"]),
    ],
)
def test_a_wrong_study_is_refused(tmp_path, before, after, fragments):
    (tmp_path / "s.toml").write_text(STUDY.replace(before, after, 1))
    refused("study s.toml --no-plots", tmp_path, "s.toml", *fragments)


@pytest.mark.parametrize(
    "command, fragments",
    [
        (f"reduce {DATA} --ranks 4 --codec fp16 --algorithm all_to_all", ["inner-codec is for what combine = quantized"]),
        ("conform --platform host --codec fp16", ["--inner-codec", "name the --algorithm"]),
        ("bench --platform host --dtype fp16 --codec fp16 --algorithm hierarchical --vendor", ["--inner-codec", "--vendor"]),
        ("bench --platform host --dtype fp16 --codec fp16 --algorithm hierarchical --out a.csv", ["--inner-codec", "--out"]),
    ],
)
def test_where_nothing_is_inner(tmp_path, command, fragments):
    refused(f"{command} --inner-codec fp16", tmp_path, *fragments)


def test_a_schedule_without_an_inner_codec(tmp_path):
    (tmp_path / "s.json").write_text(ok("schedule --algorithm ring --ranks 4 --elements 8192", tmp_path))
    message = "schedule 'ring' encodes nothing with an inner codec"
    refused(f"reduce {DATA} --ranks 4 --schedule s.json --codec fp16 --inner-codec fp16", tmp_path, message)
    refused("schedule --schedule s.json --inner-codec fp16", tmp_path, "--inner-codec", "s.json")


def test_a_library_has_no_codecs(tmp_path):
    command = f"simulate --topology h200-4 --bytes 64K --library {INSIDE} --codec fp16 --inner-codec int4-g32"
    refused(command, tmp_path, "a library sends values as they are", "int4-g32")
