"""arlab reduce: outputs against NumPy, figures against float64, files in and out."""

import json
import re

import ml_dtypes
import numpy as np
import pytest
from program import ACTIVATIONS, ok, ok_csv, ok_json, parse_table, refused, run, same
from safetensors import safe_open
from safetensors import numpy as safetensors_numpy

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
KIND = {"fp16": np.dtype(np.float16), "bf16": BFLOAT16, "fp32": np.dtype(np.float32)}


def gaussian(shape, dtype="fp16", seed=1, sigma=1.0):
    return (sigma * np.random.default_rng(seed).standard_normal(shape)).astype(KIND[dtype])


def save(path, tensor):
    """bf16 as its patterns."""
    np.save(path, tensor.view(np.uint16) if tensor.dtype == BFLOAT16 else tensor)


def load(path, dtype):
    return np.load(path).view(KIND[dtype])


def bits(tensor):
    return np.ascontiguousarray(tensor).view(np.uint8).tobytes()


def reduce(options, inputs, folder, dtype="fp16"):
    """(report, output of every rank)."""
    save(folder / "in.npy", inputs)
    report = ok_json(f"reduce {options} --dtype {dtype} --input in.npy --out out.npy", folder)
    outputs = load(folder / "out.npy", dtype)
    assert outputs.shape == inputs.shape
    return report, outputs


# ---------------------------------------------------------------- bits: test_reference.py and test_collectives_oracle.py, and these


def test_shape_does_not_matter(tmp_path):
    inputs = gaussian((4, 6144))
    report, outputs = reduce("--algorithm ring --codec qr-q4", inputs, tmp_path)
    report_3d, outputs_3d = reduce("--algorithm ring --codec qr-q4", inputs.reshape(4, 48, 128), tmp_path)
    # A last axis makes tokens and channels, which have figures of their own; nothing else changes.
    figures = {f"{of}_sqnr_{part}db" for of in ("token", "channel") for part in ("", "p1_")}
    assert all(report[figure] is None and report_3d[figure] > 10 for figure in figures)
    assert {**report_3d, **dict.fromkeys(figures)} == report
    assert outputs_3d.shape == (4, 48, 128) and bits(outputs_3d) == bits(outputs)


@pytest.mark.parametrize("codec", ["fp16", "qr-fp8"])
@pytest.mark.parametrize("forward", ["unchanged", "reencoded"])
def test_ranks_identical_says_what_the_outputs_are(tmp_path, forward, codec):
    inputs = gaussian((8, 20_000), sigma=0.01)
    report, outputs = reduce(f"--algorithm ring --codec {codec} --forward {forward}", inputs, tmp_path)
    identical = all(bits(output) == bits(outputs[0]) for output in outputs)
    # Decoding fp8 and encoding it again does not give the same bytes.
    assert report["ranks_identical"] is identical is (forward == "unchanged" or codec == "fp16")
    assert report["forward"] == forward


# ---------------------------------------------------------------- figures


def figures(inputs, output):
    """Error of one rank's output, in float64, by the names of the report."""
    target = inputs.astype(np.float64).sum(axis=0).reshape(-1)
    result = output.astype(np.float64).reshape(-1)
    error = result - target
    return {
        "sqnr_db": 10 * np.log10((target**2).sum() / (error**2).sum()),
        "max_abs_error": np.abs(error).max(),
        "rmse": np.sqrt((error**2).mean()),
        "cosine": result @ target / np.linalg.norm(result) / np.linalg.norm(target),
    }


def test_error_against_the_uncompressed_run(tmp_path):
    inputs = gaussian((4, 50_000))
    _, plain = reduce("--algorithm two_shot --codec fp16", inputs, tmp_path)
    report, outputs = reduce("--algorithm two_shot --codec qr-q6", inputs, tmp_path)
    expected = figures(plain[:1], outputs[0])
    for name in ["sqnr_db", "max_abs_error", "rmse"]:
        field = "sqnr_vs_uncompressed_db" if name == "sqnr_db" else f"{name}_vs_uncompressed"
        assert report[field] == pytest.approx(expected[name], rel=1e-9), field


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        ("nvfp4-ts1e+06", "are clamped: the range of {} is too small"),
        ("nvfp4-ts1e-06", "become zero: steps of {} are too large"),
        ("nvfp4-vllm-ts1e+06", "are clamped: the range of {} is too small"),
        ("nvfp4-vllm-ts1e-06", "become zero: steps of {} are too large"),
        ("int8-gtensor-sym-static1e-05", "are clamped: the range of {} is too small"),
        ("int8-gtensor-static1e-05:0", "are clamped: the range of {} is too small"),
        ("int4-gtensor-sym-static100", "become zero: steps of {} are too large"),
        ("nvfp4-ts64", None), ("int8-gtensor-sym-static0.04", None), ("int2-g32", None), ("nvfp4", None),
    ],
)  # fmt: skip
def test_a_given_scale_that_does_not_fit_is_said(tmp_path, codec, says):
    """An SQNR of 0 dB and a count do not say why; one line does, in reduce and check-codec."""
    commands = [f"reduce --algorithm two_shot --codec {codec} --ranks 2 --synthetic gaussian --elements 8K"]
    if run(f"check-codec {codec}", tmp_path).code == 0:  # else what it violates is its line
        commands.append(f"check-codec {codec}")
    for command in commands:
        lines = [line for line in ok(command, tmp_path).splitlines() if line.startswith("out_of_range")]
        said = rf"\d+ % of the encoded elements {re.escape(str(says).format(codec))} for them by a factor of [0-9.e+]+"
        told = ok_json(command, tmp_path).get("out_of_range")
        assert len(lines) == (says is not None) and all(re.search(f" {said}", line) for line in lines)
        assert told is None if says is None else re.search(said, told)


# ---------------------------------------------------------------- reference/codecs/SPEC.md, "What must not happen"


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("codec", ["plain", "qr-q8", "qr-q4", "qr-fp8"])
def test_nan_and_infinity_are_seen(tmp_path, dtype, codec):
    inputs = gaussian((4, 8192), dtype)
    inputs[1, 5000], inputs[2, 7000] = np.nan, np.inf
    codec = dtype if codec == "plain" else codec
    report, outputs = reduce(f"--algorithm two_shot --codec {codec}", inputs, tmp_path, dtype)
    wide = outputs.astype(np.float32)
    assert not np.isfinite(wide[:, [5000, 7000]]).any()
    assert report["non_finite"] == (~np.isfinite(wide[0])).sum() == (2 if codec == dtype else 64)
    assert report["non_finite_exact"] == 2
    if codec != dtype:  # the blocks' other elements were finite
        assert report["sqnr_db"] == "-inf" and report["max_abs_error"] is report["rmse"] is None
        assert report["lost"] == 62


# ---------------------------------------------------------------- inputs and formats


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_activations(tmp_path, ranks):
    file, tensor = ACTIVATIONS / f"minilm_tp{ranks}.safetensors", "layer3.ffn_down"
    command = (f"reduce --algorithm two_shot --codec fp16 --input '{file}' --tensor {tensor} --out out.npy")
    report = ok_json(command, tmp_path)
    with safe_open(file, framework="numpy") as opened:
        inputs = opened.get_tensor(tensor)
    outputs = np.load(tmp_path / "out.npy")
    assert (report["ranks"], report["elements"], report["dtype"]) == (ranks, inputs[0].size, "fp16")
    assert report["input"] == f"{file}:{tensor}"
    assert outputs.shape == inputs.shape
    assert bits(outputs[0]) == bits(sum(inputs, np.zeros_like(inputs[0])))
    assert report["sqnr_db"] == pytest.approx(figures(inputs, outputs[0])["sqnr_db"], rel=1e-9)


@pytest.mark.parametrize("dtype", KIND)
def test_safetensors_bring_their_dtype(tmp_path, dtype):
    inputs = gaussian((2, 30, 10), dtype)
    safetensors_numpy.save_file({"only": inputs}, tmp_path / "in.safetensors")
    report = ok_json(f"reduce --algorithm ring --codec {dtype} --input in.safetensors --out out.npy", tmp_path)
    assert report["dtype"] == dtype
    assert bits(load(tmp_path / "out.npy", dtype)[1]) == bits(inputs[1] + inputs[0])


def test_ranks_of_a_file_may_be_said(tmp_path):
    inputs = gaussian((3, 10))
    assert reduce("--algorithm ring --codec fp16 --ranks 3", inputs, tmp_path)[0]["ranks"] == 3


def test_formats_agree(tmp_path):
    command = ("reduce --algorithm two_shot --codec qr-q4 --ranks 2 --synthetic gaussian --elements 4K")
    report = ok_json(command, tmp_path)
    (row,) = ok_csv(command, tmp_path)
    del report["schema"]
    assert same(row, report)
    figures_, columns, rows = parse_table(ok(command + " --all", tmp_path))
    assert list(figures_) == list(row) and (columns, rows) == ([], [])
    few = parse_table(ok(command, tmp_path))[0]
    assert set(few) <= set(figures_) and len(few) <= 9 and {"sqnr_db", "ranks_identical", "provenance"} <= set(few)
    assert figures_["ranks_identical"].startswith("yes ") and figures_["token_sqnr_db"].split()[0] == "-"  # there is no axis of tokens
    assert float(figures_["sqnr_db"].split()[0]) == pytest.approx(report["sqnr_db"], rel=1e-5)


@pytest.mark.parametrize("name", ["with, comma.npy", 'with "quotes".npy', "ünï 数.npy", "a b.npy"])
def test_names_of_files_survive_every_format(tmp_path, name):
    save(tmp_path / name, gaussian((2, 10)))
    command = f"reduce --algorithm ring --codec fp16 --input {json.dumps(name, ensure_ascii=False)}"
    assert ok_json(command, tmp_path)["input"] == name
    assert ok_csv(command, tmp_path)[0]["input"] == name
    assert parse_table(ok(command + " --all", tmp_path))[0]["input"] == name


@pytest.mark.parametrize("format_", ["table", "json", "csv"])
def test_a_name_that_is_not_utf_8(tmp_path, format_):
    name = b"caf\xe9.npy".decode("utf-8", "surrogateescape")  # Latin-1
    save(tmp_path / name, gaussian((2, 10)))
    ok(f"reduce --algorithm ring --codec fp16 --input '{name}' --format {format_}", tmp_path)


@pytest.mark.parametrize("wire", ["bf16", "fp16"])
def test_fp32_over_sixteen_bits(tmp_path, wire):
    """Each contribution is rounded once, sums are fp32 in the order of ranks, and the sum is rounded once more."""
    x = gaussian((8, 4096), "fp32", sigma=3)
    narrow = x.astype(KIND[wire]).astype(np.float32)
    total = np.zeros(4096, np.float32)
    for rank in narrow:
        total += rank
    report, outputs = reduce(f"--algorithm two_shot --codec wire-{wire}", x, tmp_path, "fp32")
    assert report["wire_bits_per_element"] == 16 and report["ranks_identical"]
    assert (outputs == total.astype(KIND[wire]).astype(np.float32)).all()
    stochastic, _ = reduce(f"--algorithm two_shot --codec wire-{wire}-stoch", x, tmp_path, "fp32")
    assert 2 < report["sqnr_db"] - stochastic["sqnr_db"] < 4, "twice the squared error"
    refused("reduce --algorithm ring --codec fp16 --input in.npy --out y.safetensors", tmp_path, "--out is", ".npy")
    refused(f"reduce --algorithm two_shot --codec {wire} --input in.npy", tmp_path, f"wire-{wire} sends it as {wire}")
