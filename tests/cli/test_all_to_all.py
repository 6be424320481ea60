"""all_to_all in every command: slots that change places, against NumPy."""

import json

import jsonschema
import ml_dtypes
import numpy as np
import pytest
from program import (
    REPOSITORY, ok, ok_csv, ok_json, parse_csv, parse_json, parse_table, refused, run, same,
)  # fmt: skip

SCHEMA = json.loads((REPOSITORY / "reference/collectives/schedule.schema.json").read_text())
KIND = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
WAYS = {"none": 1, "quantized": 2}  # of a slot


def gaussian(ranks, slot, dtype="fp16"):
    """[from, to, elements of a slot]"""
    return np.random.default_rng(7).standard_normal((ranks, ranks, slot)).astype(KIND[dtype])


def reduce(options, inputs, folder, dtype="fp16"):
    """(report, outputs as [rank, slot, element])."""
    np.save(folder / "in.npy", inputs.view(np.uint16) if dtype == "bf16" else inputs)
    report = ok_json(
        f"reduce --algorithm all_to_all {options} --dtype {dtype} --input in.npy --out out.npy",
        folder,
    )
    return report, np.load(folder / "out.npy").view(inputs.dtype)


def bits(tensor):
    return np.ascontiguousarray(tensor).view(np.uint8).tobytes()


@pytest.mark.parametrize("combine", WAYS)
@pytest.mark.parametrize("dtype", KIND)
@pytest.mark.parametrize("ranks, slot", [(1, 5), (2, 1), (3, 100), (8, 7)])
def test_plain_slots_change_places_exactly(tmp_path, ranks, slot, dtype, combine):
    inputs = gaussian(ranks, slot, dtype)
    inputs.reshape(-1)[::3] *= -0.0  # zeros of both signs
    report, outputs = reduce(f"--codec {dtype} --combine {combine}", inputs, tmp_path, dtype)
    expected = inputs if combine == "quantized" else inputs.swapaxes(0, 1)
    assert bits(outputs) == bits(expected)
    assert report["exact"] is True and report["max_abs_error"] == 0 and report["sqnr_db"] == "inf"
    assert report["ranks_identical"] is None and report["accumulate"] is None
    assert report["volume_total"] == WAYS[combine] * (ranks - 1)
    assert report["encoded"] == WAYS[combine] * inputs.size
    assert report["wire_bytes"] == WAYS[combine] * ranks * (ranks - 1) * slot * inputs.itemsize


def through(codec, slot, folder):
    """A slot on its own, encoded and decoded by the program."""
    np.save(folder / "slot.npy", slot)
    ok(f"encode --codec {codec} --dtype fp16 slot.npy slot.bin", folder)
    ok(f"decode --codec {codec} --dtype fp16 --elements {slot.size} slot.bin back.npy", folder)
    return np.load(folder / "back.npy")


@pytest.mark.parametrize("own", ["encoded", "exact"])
@pytest.mark.parametrize("combine", WAYS)
def test_slots_are_encoded_as_they_would_be_alone(tmp_path, combine, own):
    inputs = gaussian(3, 2048 + 77)
    options = f"--codec qr-q4 --own {own} --combine {combine}"
    report, outputs = reduce(options, inputs, tmp_path)
    target = inputs if combine == "quantized" else inputs.swapaxes(0, 1)
    expected = target.copy()
    for rank in range(3):
        for slot in range(3):
            for _ in range(0 if rank == slot and own == "exact" else WAYS[combine]):
                expected[rank, slot] = through("qr-q4", expected[rank, slot], tmp_path)
    assert bits(outputs) == bits(expected)

    error = outputs.astype(np.float64) - target.astype(np.float64)
    sqnr_db = 10 * np.log10(np.sum(target.astype(np.float64) ** 2) / np.sum(error**2))
    assert report["sqnr_db"] == pytest.approx(sqnr_db)  # of all ranks
    assert report["max_abs_error"] == np.max(np.abs(error))
    assert report["sqnr_vs_uncompressed_db"] == report["sqnr_db"]
    assert report["wire_bits_per_element"] == 8 * 2 * 1152 / (2048 + 77)
    assert not report["exact"] and report["ranks_identical"] is None


def test_formats_agree_and_say_what_does_not_apply(tmp_path):
    command = (
        "reduce --algorithm all_to_all --codec qr-q6 --ranks 4 --synthetic gaussian --elements 4K"
    )
    report = ok_json(command, tmp_path)
    (row,) = ok_csv(command, tmp_path)
    assert same(row, {key: report[key] for key in report if key != "schema"})
    figures, _, _ = parse_table(ok(command, tmp_path))
    assert figures["ranks_identical"].startswith("- ")
    assert "not applicable" in figures["ranks_identical"]


@pytest.mark.parametrize("combine", WAYS)
@pytest.mark.parametrize("ranks", [1, 2, 6])
def test_schedule_is_proved_and_read_back(tmp_path, ranks, combine):
    command = f"schedule --algorithm all_to_all --combine {combine} --ranks {ranks} --elements 600"
    text = ok(command, tmp_path)
    made = parse_json(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(made)
    assert made["collective"] == {"none": "all_to_all", "quantized": "dispatch_combine"}[combine]
    proved = {"correct": True, "violation": "", "ranks_identical": None, "divergence": ""}
    assert made["check"] == proved
    assert made["volume"]["total"] == WAYS[combine] * (ranks - 1)
    (tmp_path / "own.json").write_text(text)
    assert ok("schedule --schedule own.json", tmp_path) == text
    figures, _, ops = parse_table(ok(f"{command} --format table", tmp_path))
    assert "not applicable" in figures["ranks_identical"] and len(ops) == len(made["ops"])

    data = f"--codec qr-q4 --ranks {ranks} --synthetic gaussian --elements 600"
    by_file = ok_json(f"reduce --schedule own.json {data}", tmp_path)
    by_name = ok_json(f"reduce --algorithm all_to_all --combine {combine} {data}", tmp_path)
    assert by_file == by_name


def test_a_wrong_schedule_fails_with_the_violation(tmp_path):
    made = ok_json("schedule --algorithm all_to_all --ranks 3 --elements 30", tmp_path)
    first, second = [output for output in made["outputs"] if output["rank"] == 0][:2]
    first["begin"], second["begin"] = second["begin"], first["begin"]
    (tmp_path / "own.json").write_text(json.dumps(made))
    words = ["own.json", "not an all-to-all", "rank 0, elements [0, 10)", "of rank 1, not"]
    refused("schedule --schedule own.json", tmp_path, *words, code=1)
    data = "--codec fp16 --ranks 3 --synthetic gaussian --elements 30"
    refused(f"reduce --schedule own.json {data}", tmp_path, *words)
    refused(
        f"reduce --algorithm all_to_all --accumulate fp32 {data}", tmp_path, "sums nothing"
    )
    ok(f"reduce --algorithm all_to_all --accumulate native {data}", tmp_path)


@pytest.mark.parametrize("combine", WAYS)
def test_bus_bandwidth_is_that_of_nccl_tests(tmp_path, combine):
    report = ok_json(
        f"simulate --topology h800-8 --algorithm all_to_all --combine {combine} --codec qr-q4 "
        "--bytes 64M",
        tmp_path,
    )
    assert report["latency_us"] > 0
    assert report["algbw_gb_per_s"] == pytest.approx(2**26 / (report["latency_us"] * 1e3))
    assert report["busbw_gb_per_s"] == pytest.approx(
        report["algbw_gb_per_s"] * WAYS[combine] * 7 / 8
    )
    assert report["wire_bytes"] == WAYS[combine] * 7 * 2**25 * 4.5 / 8


STUDY = """
title = "slots"
ranks = [2, 4]
algorithms = ALGORITHMS
codecs = ["fp16", "qr-q4"]

[[input]]
name = "gaussian"
synthetic = "gaussian:sigma=1,seed=1"
elements = "4K"

[simulate]
topology = "full:4"
bytes = "1M"
"""


def test_study_of_both_collectives(tmp_path):
    (tmp_path / "slots.toml").write_text(STUDY.replace("ALGORITHMS", '["all_to_all", "ring"]'))
    result = run("study slots.toml --out out --no-plots --format csv", tmp_path)
    assert result.code == 0, result
    results = [line for line in (tmp_path / "out/results.csv").open() if line[0] != "#"]
    rows = parse_csv("".join(results))
    assert len(rows) == 8
    for row in rows:
        options = f"--algorithm {row['algorithm']} --codec {row['codec']}"
        report = ok_json(
            f"reduce {options} --ranks {row['ranks']} --synthetic gaussian:sigma=1,seed=1 "
            "--elements 4K",
            tmp_path,
        )
        for name in ["sqnr_db", "rmse", "wire_bits_per_element", "ranks_identical", "encoded"]:
            assert same({name: row[name]}, {name: report[name]}), name
        assert row["ranks_identical"] == ("" if row["algorithm"] == "all_to_all" else "true")
    for row in parse_csv(result.stdout):
        assert row["ranks_identical"] == ("" if row["algorithm"] == "all_to_all" else "true")


def test_all_algorithms_of_a_study_are_the_all_reduces(tmp_path):
    (tmp_path / "slots.toml").write_text(STUDY.replace("ALGORITHMS", '"all"'))
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
    study = STUDY.replace("ALGORITHMS", '["two_shot", "all_to_all"]').replace(old, new)
    (tmp_path / "slots.toml").write_text(study)
    refused("study slots.toml --out out", tmp_path, "slots.toml", "all_to_all", *words)
