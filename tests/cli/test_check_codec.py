"""arlab check-codec: what must hold of every codec, on one; then its kernels."""

import json
import re

from program import WITH_MISTAKES, error_line, ok, ok_json, refused, run


def properties(tmp_path):
    text = ok("check-codec --help", tmp_path)
    return re.findall(r"^  ([a-z-]+) +\S", text[text.index("\nProperties\n") :], re.MULTILINE)


def test_a_codec_that_is_right(tmp_path):
    report = ok_json("check-codec int4-g32", tmp_path)
    assert report["schema"] == "arlab.check.codec/1"
    assert (report["codec"], report["platform"], report["violations"]) == ("int4-g32", None, 0)
    named = properties(tmp_path)
    assert len(named) >= 13 and {"tails", "splits", "non-finite", "decode-add"} <= set(named)
    assert [(c["property"], c["dtype"]) for c in report["checks"]] == [
        (name, dtype) for name in named for dtype in ("fp16", "bf16", "fp32")
    ]
    of_context = [c for c in report["checks"] if c["property"] == "context"]
    assert {c["detail"] for c in of_context} == {"its wire depends on the elements alone"}
    others = [c for c in report["checks"] if c not in of_context]
    assert all(c["verdict"] == "holds" and c["cases"] > 0 and c["detail"] == "" for c in others)


def test_what_is_not_promised_says_why(tmp_path):
    checks = {(c["property"], c["dtype"]): c for c in ok_json("check-codec nvfp4", tmp_path)["checks"]}
    assert checks["splits", "fp16"]["verdict"] == checks["saturation", "fp32"]["verdict"] == "not promised"
    assert "whole message" in checks["splits", "fp16"]["detail"]
    assert checks["tails", "bf16"]["verdict"] == "holds"


def test_kernels_are_compared(tmp_path):
    report = ok_json("check-codec qr-q4 --platform host", tmp_path)
    assert report["platform"] == "host" and report["first_mismatches"] == []
    checked = {c["property"] for c in report["checks"] if c["verdict"] == "holds"}
    algorithms = {row["name"] for row in ok_json("list algorithms", tmp_path)["algorithms"]}
    assert checked >= {f"{subject} on host" for subject in {"encode", "decode", "decode_add"} | algorithms}


def test_a_codec_that_is_wrong(tmp_path):
    result = run("check-codec laundering --format json", tmp_path, program=WITH_MISTAKES)
    assert result.code == 1, result
    report = json.loads(result.stdout)
    violated = {c["property"] for c in report["checks"] if c["verdict"] == "violated"}
    assert violated == {"non-finite"}
    assert report["violations"] == 3
    line = error_line(result.stderr)
    said = r"element \d+ is (nan|-?inf) and decodes to -?0; allowed: a NaN decodes to a NaN, "
    assert re.match(rf"arlab: codec laundering violates non-finite in fp16: \d+ elements: {said}", line)
    assert run("check-codec laundering", tmp_path).code == 2, "only the program with mistakes has it"


def test_a_codec_that_is_useless_in_some_of_its_dtypes(tmp_path):
    report = ok_json("check-codec of-fp16", tmp_path, program=WITH_MISTAKES)
    zeros, nans = report["out_of_range"].split("; ")
    assert re.fullmatch(r"bf16: 100 % .* become zero: steps of of-fp16 are too large for them by a factor of (256|512)", zeros)
    assert re.fullmatch(r"fp32: \d+ of \d+ elements become NaN or infinite, others have .* dB", nans)
    assert report["violations"] == 0 and "\nout_of_range " in ok("check-codec of-fp16", tmp_path, program=WITH_MISTAKES)


def test_kernels_that_are_wrong(tmp_path):
    result = run("check-codec fp16 --platform host", tmp_path, program=WITH_MISTAKES)
    assert result.code == 1, result
    assert "arlab: codec fp16 violates encode on host in fp16: " in result.stderr
    assert re.search(r"wire byte \d+: expected 0x", error_line(result.stderr))
    assert re.search(r"^two_shot on host +fp16 +violated ", result.stdout, re.MULTILINE)
    assert re.search(r"^decode on host +fp16 +holds ", result.stdout, re.MULTILINE)
    assert re.search(r"^two_shot of fp16 fp16 on 2 ranks, .*; inputs of ranks", result.stdout, re.MULTILINE)


def test_without_a_codec_or_kernels(tmp_path):
    refused("check-codec", tmp_path, "codec is required")
    refused("check-codec laundering --platform host", tmp_path, "no kernels for codec laundering", program=WITH_MISTAKES)
