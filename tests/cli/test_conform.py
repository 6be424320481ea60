"""arlab conform: kernels on emulated GPUs against the reference."""

import json
import re

import pytest
from program import WITH_MISTAKES, error_line, ok_json, refused, run

FAST = "conform --platform host --codec qr-q4 --ranks 2 --elements 2100"


def test_all_bits_agree(tmp_path):
    report = ok_json(FAST, tmp_path)
    assert report["schema"] == "arlab.conform/1"
    assert report["platform"] == "host"
    assert report["mismatches"] == 0
    checks = report["checks"]
    assert report["compared_elements"] == sum(check["compared_elements"] for check in checks) > 10000
    algorithms = {row["name"] for row in ok_json("list algorithms", tmp_path)["algorithms"]}
    subjects = {"encode", "decode", "decode_add"} | algorithms
    assert {check["subject"] for check in checks} == subjects
    assert {check["dtype"] for check in checks} == {"fp16", "bf16"}
    assert all(check["mismatches"] == 0 and check["codec"] == "qr-q4" for check in checks)


def test_sums_in_fp32(tmp_path):
    of = "conform --platform host --ranks 3 --elements 2100 --codec qr-q4"
    report = ok_json(f"{of} --algorithm two_shot --accumulate fp32", tmp_path)
    assert report["mismatches"] == 0 and report["sum"] == "fp32"
    refused(f"{of} --sum own=exact", tmp_path, "own is an option of an algorithm")
    subjects = {check["subject"] for check in ok_json(f"{of} --accumulate fp32", tmp_path)["checks"]}
    assert {"ring", "reduce_scatter"} <= subjects and "all_gather" not in subjects  # all that add
    assert ok_json(f"{of} --algorithm two_shot --sum add=fp32,own=exact", tmp_path)["mismatches"] == 0


MISTAKEN = "conform --platform host --codec fp16 --algorithm one_shot --ranks 2 --elements 2100"


def test_mismatches_are_shown_with_values(tmp_path):
    result = run(MISTAKEN, tmp_path, program=WITH_MISTAKES)
    assert result.code == 1, result
    shown = result.stdout[result.stdout.index("\n\nencode of") :].strip().splitlines()
    number = r"(?:nan|[-+]?(?:inf|[0-9.]+(?:e[-+][0-9]+)?))"
    element = rf"{number} \(0x[0-9a-f]{{4}}\)"
    lines = {
        "encode": r"wire byte \d+: expected 0x[0-9a-f]{2}, got 0x[0-9a-f]{2}",
        "decode_add": rf"index 0: expected {element}, got {element}; added to {element}",
        "one_shot": rf"rank 1, index \d+: expected {element}, got {element}; inputs of ranks {element}, {element}",
    }
    assert len(shown) == 4 * len(lines), shown
    for line in shown:
        subject = line.split()[0]
        assert re.fullmatch(rf"{subject} of fp16 fp16[^:]*, \d+ [^:]*elements?[^:]*: {lines[subject]}", line), line
    assert error_line(result.stderr) == f"arlab: kernels and reference differ: {shown[0]}"


def test_mismatches_in_json(tmp_path):
    result = run(MISTAKEN + " --format json", tmp_path, program=WITH_MISTAKES)
    assert result.code == 1
    report = json.loads(result.stdout)
    shown = report["first_mismatches"]
    assert report["mismatches"] == sum(check["mismatches"] for check in report["checks"]) > len(shown) == 12
    for one in shown:
        assert (one["codec"], one["dtype"]) == ("fp16", "fp16")
        if one["subject"] == "encode":
            assert int(one["expected"], 16) ^ int(one["got"], 16) == 1 and one["wire_byte"] > 0
        else:
            assert int(one["expected"]["bits"], 16) ^ int(one["got"]["bits"], 16) == 1
    first = next(one for one in shown if one["subject"] == "one_shot")
    assert first["ranks"] == len(first["inputs"]) == 2 and first["rank"] == 1
    a, b, expected = (float(x["value"]) for x in [*first["inputs"], first["expected"]])
    assert abs(expected - a - b) <= abs(expected) / 1024
    assert ok_json(MISTAKEN, tmp_path)["first_mismatches"] == []


def test_quantized_layers(tmp_path):
    report = ok_json("conform --platform host --linear", tmp_path)
    assert report["mismatches"] == 0 < report["compared_elements"]
    checks = {(check["subject"], check["codec"], check["dtype"]) for check in report["checks"]}
    formats = ["int8", "int8-asym", "int8-tensor", "int8-tensor-asym", "int8-tensor-static", "int8-tensor-asym-static"]
    products = [f"int8{x} x int8{w}" for x in ("", "-asym") for w in ("", "-asym")]
    subjects = [("quantize", name) for name in formats] + [("linear", name) for name in products]
    assert checks == {(*subject, dtype) for subject in subjects for dtype in ("fp16", "bf16", "fp32")}

    result = run("conform --platform host --linear --seed 3", tmp_path, program=WITH_MISTAKES)
    assert result.code == 1, result
    shown = result.stdout[result.stdout.index("\n\nquantize of") :].strip().splitlines()
    element = r"[-+]?(?:nan|inf|[0-9.]+(?:e[-+][0-9]+)?) \(0x[0-9a-f]+\)"
    quantize = r"quantize of int8[a-z-]* (fp16|bf16|fp32), \d+ x \d+ \w+, codes: index \d+: expected 0x[0-9a-f]{2}, got 0x[0-9a-f]{2}"
    linear = rf"linear of int8(-asym)? x int8(-asym)? (fp16|bf16|fp32), \d+ tokens, \d+ outputs, \d+ inputs: index \d+: expected {element}, got {element}"
    assert not [line for line in shown if not re.fullmatch(f"{quantize}|{linear}", line)]
    assert {line.split()[0] for line in shown} == {"quantize", "linear"}
    assert error_line(result.stderr) == f"arlab: kernels and reference differ: {shown[0]}"


@pytest.mark.parametrize(
    "command, message",
    [
        ("conform", "--platform is required"),
        ("conform --platform tpu", "platform tpu is not in this build; built are host"),
        ("conform --platform host --codec qr-q4 --schedule mine.json", "mine.json"),
        ("conform --platform host --ranks 9", "allowed is an integer from 2 to 8"),
        ("conform --platform host --linear --codec qr-q4", "--codec excludes --linear"),
        ("conform --platform host --linear --micro-chunks 3", "--micro-chunks excludes --linear"),
        ("conform --platform host --codec qr-q4 --stripe 8", "--stripe 8: name the --algorithm"),
        ("conform --platform host --codec qr-q4 --algorithm broadcast --sum add=fp32", "broadcast sums nothing"),
    ],
)
def test_bad_input(tmp_path, command, message):
    refused(command, tmp_path, message)


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
@pytest.mark.parametrize("command", ["conform --elements 1000", "bench --bytes 4K --calls 2 --replays 2"])
def test_a_platform_without_devices_is_one_line(platform, command, tmp_path):
    result = run(f"{command} --platform {platform} --codec qr-q4 --ranks 2 --algorithm two_shot", tmp_path)
    if result.code == 0:
        return  # there are devices, and they agree with the reference
    assert result.code == 2 and result.stdout == "", result
    no_device = rf"arlab: platform {platform}: (no device can be used: .+|there is no device)\n"
    assert re.fullmatch(no_device, result.stderr), result


# ---------------------------------------------------------------- what is recorded where sentinels have to prove themselves


def kernels_of_small_calls(folder, options=""):
    rows = ok_json(f"bench --platform host --ranks 2 --bytes 16K --codec qr-q4 --explain {options}", folder)["choices"]
    return [row["kernel"].split(":")[0] for row in rows]


def test_sentinels_are_taken_once_they_have_passed(tmp_path, monkeypatch):
    flags, sentinels = ["one_shot", "two_shot"], ["one_shot_lamport", "two_shot_lamport"]
    assert kernels_of_small_calls(tmp_path) == sentinels
    monkeypatch.setenv("ARLAB_SENTINELS_NEED_RECORD", "1")
    monkeypatch.setenv("ARLAB_CACHE", str(tmp_path / "cache"))
    record = tmp_path / "cache" / "sentinels.tsv"
    assert kernels_of_small_calls(tmp_path) == flags
    assert kernels_of_small_calls(tmp_path, "--protocol sentinels") == sentinels
    conform = "conform --platform host --ranks 2 --elements 8"
    # Neither with flags nor of one codec.
    for options in ("--algorithm one_shot", "--algorithm one_shot --protocol flags", "--algorithm one_shot --protocol sentinels --codec qr-q4"):
        assert "sentinels_recorded_in" not in ok_json(f"{conform} {options}", tmp_path)
    assert not record.exists()
    for algorithm, taken in (("one_shot", flags), ("two_shot", sentinels)):
        report = ok_json(f"{conform} --protocol sentinels --algorithm {algorithm}", tmp_path)
        assert report["sentinels_recorded_in"] == str(record)
        assert kernels_of_small_calls(tmp_path) == taken
    assert kernels_of_small_calls(tmp_path, "--protocol flags") == flags
    before = record.read_text()
    assert [line.split("\t")[1:] for line in before.splitlines()] == [["one_shot", "2"], ["two_shot", "2"]]
    # A pass on another machine says nothing.
    record.write_text(before.replace("emulated GPU", "other GPU"))
    assert kernels_of_small_calls(tmp_path) == flags
    record.write_text(before)
    assert kernels_of_small_calls(tmp_path) == sentinels
    failed = run(f"{conform} --protocol sentinels --algorithm two_shot --codec qr-q4", tmp_path, WITH_MISTAKES)
    assert failed.code == 1
    assert [line.split("\t")[1] for line in record.read_text().splitlines()] == ["one_shot"]
    assert kernels_of_small_calls(tmp_path) == flags


def test_a_record_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("ARLAB_SENTINELS_NEED_RECORD", "1")
    (tmp_path / "file").touch()
    monkeypatch.setenv("ARLAB_CACHE", str(tmp_path / "file"))
    conform = "conform --platform host --ranks 2 --elements 8 --algorithm one_shot --protocol sentinels"
    refused(conform, tmp_path, "the record of what has passed", "cannot write", "file/sentinels.tsv: Not a directory")


def test_tails_have_the_bits_of_the_reference(tmp_path):
    few = "conform --platform host --ranks 2 --elements 1000 --codec bf16"
    report = ok_json(few + " --tail hidden=576,residual=add,norm=rms,out=int8-g64,rounding=vllm", tmp_path)
    assert report["mismatches"] == 0
    assert [(row["subject"], row["codec"].split(",")[0]) for row in report["checks"]] == [("one_shot", "bf16"), ("two_shot", "bf16")]
    at_owners = few + " --tail hidden=576,residual=add,norm=rms,out=int8-g64 --tail-place owner"
    report = ok_json(at_owners, tmp_path)
    assert report["mismatches"] == 0 and [row["subject"] for row in report["checks"]] == ["two_shot"]
    refused(at_owners + " --algorithm one_shot", tmp_path, "allowed is the tail after it")
    refused(few + " --tail-place owner", tmp_path, "--tail")
    refused(few + " --tail norm=rms", tmp_path, "hidden= is needed")
    refused(few + " --tail hidden=8,norm=rms --algorithm ring_of_none", tmp_path, "ring_of_none")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (",rounding=aiter-before-2586 --codec bf16", "kernels round sums to bf16: allowed is sum=native"),
        (",rounding=aiter-before-2586 --codec fp32", "kernels round sums to fp32: allowed is sum=native"),
        (",rounding=flashinfer-fp4", "kernels round sums to fp16: allowed is sum=native"),
        (
            ",out=wire-bf16 --codec bf16",
            "nothing to compare: no dtype of codec bf16 is one that the inner codec or the tail's output takes",
        ),
        (" --codec qr-q4 --inner-codec fp32 --algorithm two_shot", "nothing to compare: no dtype of codec qr-q4"),
        (" --codec qr-q4 --inner-codec fp32", "name the --algorithm that has it"),
    ],
)
def test_a_comparison_of_nothing_is_an_error(tmp_path, more, said):
    refused(f"conform --platform host --ranks 2 --elements 1000 --tail hidden=576,residual=add,norm=rms{more}", tmp_path, said)


def test_all_tails_say_what_is_left_out(tmp_path):
    report = ok_json("conform --platform host --ranks 2 --elements 1 --tail all --codec bf16 --algorithm one_shot", tmp_path)
    assert report["mismatches"] == 0 and report["left_out"].startswith("rounding=aiter-before-2586; rounding=flashinfer-fp4")
    compared = " ".join(row["codec"] for row in report["checks"])
    assert "rounding=aiter-two-stage" in compared and "add=squares" in compared and "out=int8-g128" in compared
