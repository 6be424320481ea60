"""The collectives that are no all-reduce, in every command, against NumPy: all_to_all and its combine, reduce_scatter, all_gather, broadcast."""

import re

import numpy as np
import pytest
from program import ok, ok_json, parse_csv, refused, run, same

WAYS = {  # trips of a slot over the wire
    "all_to_all": 1, "all_to_all --combine quantized": 2, "reduce_scatter": 1, "all_gather": 1, "broadcast": 1,
}  # fmt: skip
each_way = pytest.mark.parametrize("way", WAYS)


def exchanges(way):
    return way.startswith("all_to_all")


def ends_alike(way):
    """Returns whether ranks are meant to end with the same results."""
    return True if way in ("all_gather", "broadcast") else None


def result_of(way, inputs):
    """Returns the results of ranks when nothing is lost; tensors are [rank, slot, element]."""
    if exchanges(way):
        return inputs.copy() if "combine" in way else inputs.swapaxes(0, 1)
    outputs = inputs.copy()
    for rank in range(len(inputs)):
        if way == "broadcast":
            outputs[rank] = inputs[0]
        elif way == "all_gather":
            outputs[:, rank] = inputs[rank, rank]
        else:
            outputs[rank, rank] = inputs[:, rank].astype(np.float64).sum(0).astype(inputs.dtype)
    return outputs


def reduce(options, inputs, folder):
    """(report, outputs as [rank, slot, element])."""
    np.save(folder / "in.npy", inputs)
    report = ok_json(f"reduce --algorithm {options} --input in.npy --out out.npy", folder)
    return report, np.load(folder / "out.npy")


def bits(tensor):
    return np.ascontiguousarray(tensor).view(np.uint8).tobytes()


@pytest.mark.parametrize("own", ["encoded", "exact"])
@each_way
def test_figures_are_of_what_should_be_there(tmp_path, way, own):
    inputs = np.random.default_rng(8).standard_normal((4, 4, 160)).astype(np.float16)
    report, outputs = reduce(f"{way} --codec int4-g32 --own {own}", inputs, tmp_path)
    exact = result_of(way, inputs.astype(np.float64))
    result = outputs.astype(np.float64)
    if way == "reduce_scatter":  # Slots that ranks leave as they were are no result
        untouched = ~np.eye(4, dtype=bool)
        assert bits(outputs[untouched]) == bits(inputs[untouched])
        exact, result = exact[~untouched], result[~untouched]
    error = result - exact
    assert report["max_abs_error"] == np.max(np.abs(error)) > 0 and not report["exact"]
    assert report["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert report["sqnr_db"] == pytest.approx(10 * np.log10(np.sum(exact**2) / np.sum(error**2)))
    agree = all(bits(rank) == bits(outputs[0]) for rank in outputs)
    if ends_alike(way) is None:
        assert report["ranks_identical"] is None
    else:
        assert report["ranks_identical"] is agree is (own == "encoded")


def test_what_does_not_apply_is_refused(tmp_path):
    data = "--codec fp16 --ranks 3 --synthetic gaussian"
    for way in ["all_to_all", "all_gather", "broadcast"]:
        refused(f"reduce --algorithm {way} --accumulate fp32 {data} --elements 30", tmp_path, "sums nothing")
    table = ok(f"reduce --algorithm all_to_all --accumulate native {data} --elements 30", tmp_path)
    assert re.search("^ranks_identical +- .*not applicable", table, re.MULTILINE)
    ok(f"reduce --algorithm reduce_scatter --accumulate fp32 {data} --elements 30", tmp_path)
    for way in ["reduce_scatter", "all_gather"]:
        refused(f"reduce --algorithm {way} {data} --elements 31", tmp_path, way, "3 equal slots")
    ok(f"reduce --algorithm broadcast {data} --elements 31", tmp_path)
    refused("select --topology mi300x-8 --algorithms broadcast --bytes 1M", tmp_path, "broadcast")


@each_way
def test_bus_bandwidth_is_that_of_nccl_tests(tmp_path, way):
    factor = 1 if way == "broadcast" else WAYS[way] * 7 / 8
    command = f"simulate --topology h800-8 --algorithm {way} --codec qr-q4 --bytes 64M"
    report = ok_json(command, tmp_path)
    assert report["latency_us"] > 0
    assert report["algbw_gb_per_s"] == pytest.approx(2**26 / (report["latency_us"] * 1e3))
    assert report["busbw_gb_per_s"] == pytest.approx(report["algbw_gb_per_s"] * factor)
    assert report["wire_bytes"] == WAYS[way] * 7 * 2**25 * 4.5 / 8
    assert ("(n - 1) / n" in ok(command, tmp_path)) is (factor != 1)


STUDY = """
title = "slots"
ranks = [2, 4]
algorithms = ["all_to_all", "reduce_scatter", "broadcast", "ring"]
codecs = ["fp16", "qr-q4"]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=1"
elements = "4K"

[simulate]
topology = "full:4"
bytes = "1M"
"""


def test_study_of_several_collectives(tmp_path):
    (tmp_path / "slots.toml").write_text(STUDY)
    result = run("study slots.toml --out out --no-plots --format csv", tmp_path)
    assert result.code == 0, result
    results = [line for line in (tmp_path / "out/results.csv").open() if line[0] != "#"]
    rows = parse_csv("".join(results))
    assert len(rows) == 16
    identical = {"all_to_all": "", "reduce_scatter": "", "broadcast": "true", "ring": "true"}
    for row in rows:
        options = f"--algorithm {row['algorithm']} --codec {row['codec']} --ranks {row['ranks']}"
        report = ok_json(f"reduce {options} --synthetic gaussian:sigma=1,seed=1 --elements 4K", tmp_path)
        for name in ["sqnr_db", "rmse", "wire_bits_per_element", "ranks_identical", "encoded"]:
            assert same({name: row[name]}, {name: report[name]}), name
    for row in [*rows, *parse_csv(result.stdout)]:
        assert row["ranks_identical"] == identical[row["algorithm"]]


def test_all_algorithms_of_a_study_are_the_all_reduces(tmp_path):
    study = STUDY.replace('["all_to_all", "reduce_scatter", "broadcast", "ring"]', '"all"')
    (tmp_path / "slots.toml").write_text(study)
    result = run("study slots.toml --out out --no-plots --format csv", tmp_path)
    assert result.code == 0, result
    listed = ok_json("list algorithms", tmp_path)["algorithms"]
    assert {row["algorithm"] for row in parse_csv(result.stdout)} == {
        entry["name"] for entry in listed if entry["collective"] == "all_reduce"
    }


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("[2, 4]", "[2, 3]", ["input 'gaussian'", "4096 elements", "3 equal slots"]),
        ('"4K"', "4095", ["input 'gaussian'", "4095 elements", "2 equal slots"]),
        ('"1M"', "6", ["simulate", "3 elements", "2 equal slots"]),
    ],
)
def test_a_study_whose_slots_are_not_equal_does_not_start(tmp_path, old, new, words):
    (tmp_path / "slots.toml").write_text(STUDY.replace(old, new))
    refused("study slots.toml --out out", tmp_path, "slots.toml", "all_to_all", *words)
