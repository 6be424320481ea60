"""reduce_scatter, all_gather and broadcast in every command, against NumPy."""

import json

import jsonschema
import ml_dtypes
import numpy as np
import pytest
from program import REPOSITORY, ok, ok_json, parse_json, parse_table, refused, run

SCHEMA = json.loads((REPOSITORY / "reference/collectives/schedule.schema.json").read_text())
KIND = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
COLLECTIVES = ["reduce_scatter", "all_gather", "broadcast"]
MOVES = ["all_gather", "broadcast"]


def whole_numbers(ranks, slot, dtype="fp16"):
    """[rank, slot, element]: their sums are exact."""
    return np.random.default_rng(7).integers(-9, 10, (ranks, ranks, slot)).astype(KIND[dtype])


def result_of(collective, inputs):
    """What ranks must end with when nothing is lost."""
    outputs = inputs.copy()
    for rank in range(len(inputs)):
        if collective == "broadcast":
            outputs[rank] = inputs[0]
        elif collective == "all_gather":
            outputs[:, rank] = inputs[rank, rank]
        else:
            outputs[rank, rank] = inputs[:, rank].astype(np.float64).sum(0).astype(inputs.dtype)
    return outputs


def reduce(options, inputs, folder, dtype="fp16"):
    """(report, outputs as [rank, slot, element])."""
    np.save(folder / "in.npy", inputs.view(np.uint16) if dtype == "bf16" else inputs)
    report = ok_json(f"reduce {options} --dtype {dtype} --input in.npy --out out.npy", folder)
    return report, np.load(folder / "out.npy").view(inputs.dtype)


def bits(tensor):
    return np.ascontiguousarray(tensor).view(np.uint8).tobytes()


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks, slot, dtype", [(1, 5, "fp16"), (2, 1, "fp32"), (3, 100, "bf16"), (8, 7, "fp16")])
def test_plain_values_are_exact(tmp_path, collective, ranks, slot, dtype):
    inputs = whole_numbers(ranks, slot, dtype)
    report, outputs = reduce(f"--algorithm {collective} --codec {dtype}", inputs, tmp_path, dtype)
    assert bits(outputs + 0) == bits(result_of(collective, inputs) + 0)
    assert report["exact"] is True and report["sqnr_db"] == "inf" and report["max_abs_error"] == 0
    assert report["ranks_identical"] is (None if collective == "reduce_scatter" else True)
    assert report["accumulate"] == ("native" if collective == "reduce_scatter" else None)
    assert report["volume_total"] == ranks - 1
    assert report["wire_bytes"] == (ranks - 1) * ranks * slot * inputs.itemsize


@pytest.mark.parametrize("own", ["encoded", "exact"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_figures_are_of_what_should_be_there(tmp_path, collective, own):
    inputs = np.random.default_rng(8).standard_normal((4, 4, 160)).astype(np.float16)
    report, outputs = reduce(f"--algorithm {collective} --codec int4-g32 --own {own}", inputs, tmp_path)
    exact = result_of(collective, inputs.astype(np.float64))
    result = outputs.astype(np.float64)
    if collective == "reduce_scatter":  # what ranks leave as it was is no result
        untouched = ~np.eye(4, dtype=bool)
        assert bits(outputs[untouched]) == bits(inputs[untouched])
        exact, result = exact[~untouched], result[~untouched]
    error = result - exact
    assert report["max_abs_error"] == np.max(np.abs(error)) > 0
    assert report["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert report["sqnr_db"] == pytest.approx(10 * np.log10(np.sum(exact**2) / np.sum(error**2)))
    agree = all(bits(rank) == bits(outputs[0]) for rank in outputs)
    if collective == "reduce_scatter":
        assert report["ranks_identical"] is None
    else:
        assert report["ranks_identical"] is agree is (own == "encoded")


def test_reduce_scatter_then_all_gather_is_two_shot(tmp_path):
    inputs = np.random.default_rng(9).standard_normal((3, 3, 320)).astype(np.float16)
    _, scattered = reduce("--algorithm reduce_scatter --codec int5-g32", inputs, tmp_path)
    _, gathered = reduce("--algorithm all_gather --codec int5-g32", scattered, tmp_path)
    _, reduced = reduce("--algorithm two_shot --codec int5-g32", inputs, tmp_path)
    assert bits(gathered) == bits(reduced)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks", [1, 2, 6])
def test_schedule_is_proved_and_read_back(tmp_path, collective, ranks):
    command = f"schedule --algorithm {collective} --ranks {ranks} --elements 600"
    text = ok(command, tmp_path)
    made = parse_json(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(made)
    identical = None if collective == "reduce_scatter" else True
    assert made["collective"] == collective
    assert made["check"] == {
        "correct": True, "violation": "", "ranks_identical": identical, "divergence": "",
    }  # fmt: skip
    assert made["volume"]["total"] == ranks - 1
    (tmp_path / "own.json").write_text(text)
    assert ok("schedule --schedule own.json", tmp_path) == text
    figures, _, ops = parse_table(ok(f"{command} --format table", tmp_path))
    assert "proved" in figures["correct"] and len(ops) == len(made["ops"])

    data = f"--codec int4-g32 --ranks {ranks} --synthetic gaussian --elements {ranks * 192}"
    made = ok(f"schedule --algorithm {collective} --ranks {ranks} --elements {ranks * 192} --codec int4-g32", tmp_path)
    (tmp_path / "own.json").write_text(made)
    by_file = ok_json(f"reduce --schedule own.json {data}", tmp_path)
    assert by_file == ok_json(f"reduce --algorithm {collective} {data}", tmp_path)


@pytest.mark.parametrize("collective, words", [
    ("reduce_scatter", ["not a reduce-scatter", "lacks the contribution of rank 1"]),
    ("all_gather", ["not an all-gather", "is elements [0, 10) of rank 2, not elements [0, 10) of rank 0"]),
    ("broadcast", ["not a broadcast", "is elements [0, 10) of rank 2, not elements [0, 10) of rank 0"]),
])  # fmt: skip
def test_a_wrong_schedule_fails_with_the_violation(tmp_path, collective, words):
    made = ok_json(f"schedule --algorithm {collective} --ranks 3 --elements 30", tmp_path)
    rank = 0 if collective == "reduce_scatter" else 2
    [wrong] = [o for o in made["outputs"] if o["rank"] == rank and o["begin"] == 0]
    wrong["from"] = "input"
    (tmp_path / "own.json").write_text(json.dumps(made))
    refused("schedule --schedule own.json", tmp_path, "own.json", *words, code=1)
    data = "--codec fp16 --ranks 3 --synthetic gaussian --elements 30"
    refused(f"reduce --schedule own.json {data}", tmp_path, "own.json", *words)


def test_what_does_not_apply_is_refused(tmp_path):
    data = "--codec fp16 --ranks 3 --synthetic gaussian"
    for collective in MOVES:
        refused(
            f"reduce --algorithm {collective} --accumulate fp32 {data} --elements 30", tmp_path, "sums nothing"
        )
    ok(f"reduce --algorithm reduce_scatter --accumulate fp32 {data} --elements 30", tmp_path)
    for collective in ["reduce_scatter", "all_gather"]:
        refused(f"reduce --algorithm {collective} {data} --elements 31", tmp_path, collective, "3 equal slots")
    ok(f"reduce --algorithm broadcast {data} --elements 31", tmp_path)
    refused("select --topology mi300x-8 --algorithms broadcast --bytes 1M", tmp_path, "broadcast")


@pytest.mark.parametrize("collective, factor", [("reduce_scatter", 7 / 8), ("all_gather", 7 / 8), ("broadcast", 1)])
def test_bus_bandwidth_is_that_of_nccl_tests(tmp_path, collective, factor):
    command = f"simulate --topology h800-8 --algorithm {collective} --codec qr-q4 --bytes 64M"
    report = ok_json(command, tmp_path)
    assert report["latency_us"] > 0
    assert report["algbw_gb_per_s"] == pytest.approx(2**26 / (report["latency_us"] * 1e3))
    assert report["busbw_gb_per_s"] == pytest.approx(report["algbw_gb_per_s"] * factor)
    assert report["wire_bytes"] == 7 * 2**25 * 4.5 / 8
    assert ("(n - 1) / n" in ok(command, tmp_path)) is (factor != 1)


STUDY = """
title = "collectives"
ranks = [2, 3]
algorithms = ["reduce_scatter", "all_gather", "broadcast"]
codecs = ["int4-g32"]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=1"
elements = ELEMENTS

[simulate]
topology = "full:4"
bytes = "768K"
"""


def test_study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.replace("ELEMENTS", "600"))
    result = run("study study.toml --out out --no-plots --format csv", tmp_path)
    assert result.code == 0, result
    rows = [line for line in (tmp_path / "out/results.csv").open() if line[0] != "#"]
    assert len(rows) == 1 + 6
    (tmp_path / "study.toml").write_text(STUDY.replace("ELEMENTS", "700"))
    refused("study study.toml --out other", tmp_path, "700 elements", "3 equal slots", "reduce_scatter")


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_emulated_gpus_conform(tmp_path, collective):
    report = ok_json(
        f"conform --platform host --algorithm {collective} --codec int4-g32 --ranks 3 --elements 2049", tmp_path
    )
    assert report["mismatches"] == 0
    assert collective in {row["subject"] for row in report["checks"]}
