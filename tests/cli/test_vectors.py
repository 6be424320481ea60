"""arlab vectors: what a stranger's kernel is tested with."""

import hashlib
import fcntl
import json
import os
import signal
import subprocess
import time

import ml_dtypes
import numpy as np
import pytest
from program import PROGRAM, contents, ok, ok_json, parse_json, refused

KIND = {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32}
PARTS = [".payload.npy", ".wire.bin", ".decoded.npy"]


@pytest.mark.parametrize(
    "codec, dtypes",
    [
        ("qr-q4", ["fp16", "bf16"]),
        ("qr-fp8", ["fp16", "bf16"]),
        ("fp32", ["fp32"]),
        ("bf16", ["bf16"]),
    ],
)
def test_vectors_are_what_encode_and_decode_do(tmp_path, codec, dtypes):
    report = ok_json(f"vectors --codec {codec} golden", tmp_path)
    manifest = parse_json((tmp_path / "golden/manifest.json").read_text())
    for case in manifest["cases"]:
        for part, described in case.pop("files").items():
            path = tmp_path / "golden" / described["file"]
            assert path.name.startswith(f"{case['name']}.{part}.")
            assert hashlib.sha256(path.read_bytes()).hexdigest() == described["sha256"]
    assert "folder" not in manifest  # it may be moved
    assert manifest | {"folder": "golden"} == report
    assert report["codec"] == codec
    assert {case["dtype"] for case in report["cases"]} == set(dtypes)
    names = [case["name"] for case in report["cases"]]
    expected = {"manifest.json", "README.txt"} | {name + part for name in names for part in PARTS}
    assert set(contents(tmp_path / "golden")) == expected
    assert set(contents(tmp_path)) == {"golden"} | {f"golden/{name}" for name in expected}

    for case in report["cases"]:
        stem = f"golden/{case['name']}"
        payload, decoded = (np.load(tmp_path / (stem + part)) for part in (PARTS[0], PARTS[2]))
        wire = (tmp_path / (stem + PARTS[1])).read_bytes()
        assert payload.dtype == decoded.dtype == KIND[case["dtype"]]
        assert payload.shape == decoded.shape == (case["elements"],)
        assert len(wire) == case["wire_bytes"]
        options = f"--codec {codec} --dtype {case['dtype']}"
        encoded = ok_json(f"encode {options} {stem}.payload.npy wire.bin", tmp_path)
        assert (tmp_path / "wire.bin").read_bytes() == wire, case
        assert encoded["clamped"] == case["clamped"]
        ok(f"decode {options} --elements {case['elements']} {stem}.wire.bin decoded.npy", tmp_path)
        assert np.load(tmp_path / "decoded.npy").tobytes() == decoded.tobytes(), case


def test_every_pattern_and_what_breaks_kernels_is_there(tmp_path):
    report = ok_json("vectors --codec bf16 golden", tmp_path)
    payloads = [
        np.load(tmp_path / f"golden/{case['name']}.payload.npy") for case in report["cases"]
    ]
    patterns = np.concatenate(payloads)
    assert len(np.unique(patterns)) == 65536
    assert any(len(payload) % 2048 == 1 for payload in payloads)
    assert any(
        np.isnan(payload.view(ml_dtypes.bfloat16).astype(np.float32)).any() for payload in payloads
    )


def test_two_runs_give_the_same_bytes(tmp_path):
    for folder in ["a", "b"]:
        report = ok_json(f"vectors --codec qr-q6 --dtype bf16 {folder}", tmp_path)
        assert {case["dtype"] for case in report["cases"]} == {"bf16"}
    for name in contents(tmp_path / "a"):
        first, second = (tmp_path / folder / name for folder in "ab")
        if name == "manifest.json":
            first, second = (json.loads(path.read_text())["cases"] for path in (first, second))
            assert first == second
        else:
            assert first.read_bytes() == second.read_bytes(), name


@pytest.mark.parametrize("outdir", ["empty", "empty/", "new/", "./new", "link"])
def test_a_new_or_empty_folder(tmp_path, outdir):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    ok(f"vectors --codec fp32 {outdir}", tmp_path)
    assert (tmp_path / outdir / "manifest.json").is_file()


def test_the_current_folder(tmp_path):
    (tmp_path / "here").mkdir()
    ok("vectors --codec fp32 .", tmp_path / "here")
    assert (tmp_path / "here/manifest.json").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"here"}


def test_what_a_killed_run_has_left_goes_with_the_next(tmp_path):
    """And nothing else: not what belongs to a process that lives, nor what only has such a name."""
    (tmp_path / ".arlab-vectors-abcdef").mkdir()
    (tmp_path / ".arlab-vectors-abcdef/fp32_sweep.wire.bin").write_text("half")
    (tmp_path / "golden.partial").mkdir()
    (tmp_path / "others").mkdir()
    stay = {".arlab-vectors-locked", ".arlab-vectors-links0", ".arlab-vectors-toolong", ".arlab-1-x.part", "golden.partial", "others"}
    (tmp_path / ".arlab-vectors-locked").mkdir()
    (tmp_path / ".arlab-vectors-links0").symlink_to("others")
    (tmp_path / ".arlab-vectors-toolong").mkdir()
    (tmp_path / ".arlab-1-x.part").touch()
    locked = os.open(tmp_path / ".arlab-vectors-locked", os.O_RDONLY)
    fcntl.flock(locked, fcntl.LOCK_EX)
    ok("vectors --codec fp32 golden", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"golden", *stay}

    (tmp_path / ".arlab-4711-0.part").write_text("half")
    (tmp_path / ".arlab-4711-1.part").write_text("being written")
    with (tmp_path / ".arlab-4711-1.part").open() as written:
        fcntl.flock(written, fcntl.LOCK_EX)
        ok("encode --codec fp32 golden/fp32_tail_31.payload.npy wire.bin", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"golden", "wire.bin", ".arlab-4711-1.part", *stay}
    os.close(locked)


def test_what_is_in_the_way_is_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")
    for outdir, fragment in [
        ("full", "not an empty folder"),
        ("full/file", "not an empty folder"),
        ("full/file/below", "full/file"),
        ("missing/golden", "missing"),
        ("''", "OUTDIR"),
    ]:
        refused(f"vectors --codec fp32 {outdir}", tmp_path, fragment)


def test_the_readme_says_where_the_bytes_are_defined(tmp_path):
    ok("vectors --codec fp32 golden", tmp_path)
    assert "reference/codecs/SPEC.md" in (tmp_path / "golden/README.txt").read_text()


@pytest.mark.parametrize("command", ["vectors --codec int4-g32 golden", "vectors --pack golden"])
def test_nothing_is_left_after_an_interrupt(tmp_path, command):
    """Whenever it comes: all of the vectors, or none and no other folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for wait in (0, 0.02, 0.05, 0.1):
            folder = tmp_path / f"{number}-{wait}"
            folder.mkdir()
            with subprocess.Popen(
                [PROGRAM, *command.split()], cwd=folder, stdout=subprocess.DEVNULL
            ) as running:
                while running.poll() is None and not list(folder.iterdir()):
                    time.sleep(0.001)
                time.sleep(wait)
                running.send_signal(number)
            assert running.returncode in (0, -number)
            assert {path.name for path in folder.iterdir()} <= {"golden"}
            if (folder / "golden").exists():
                assert (folder / "golden/manifest.json").is_file()
            else:
                assert running.returncode == -number
