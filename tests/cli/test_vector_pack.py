"""arlab vectors --pack and --check, and the reader in the pack, which knows nothing of arlab."""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys

import arlab
import ml_dtypes
import numpy as np
import pytest
from program import ok, ok_json, refused, run

CODECS = "int4-g128,int6-g64,mxfp4,nvfp4,qr-q4"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    ok(f"vectors --pack pack --codec {CODECS}", folder)
    return folder / "pack"


def reader_of(folder):
    spec = importlib.util.spec_from_file_location("read_pack", folder / "read_pack.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(folder):
    return run(f"vectors --check {folder.name}", folder.parent)


def encode_int4_g128(payload, dtype):
    """Written from the pack's page and SPEC.md."""
    wires, bf16 = [], ml_dtypes.bfloat16
    x = payload.view(bf16).astype(np.float32) if dtype == "bf16" else payload.astype(np.float32)
    with np.errstate(all="ignore"):
        for begin in range(0, len(x), 4096):
            codes, scales, zeros = [], [], []
            for block in np.split(x[begin : begin + 4096], range(128, min(4096, len(x) - begin), 128)):
                scale = ((block.max() - block.min()) / np.float32(15)).astype(bf16) + bf16(0)
                zero = block.min().astype(bf16) + bf16(0)
                finite = np.isfinite(block).all() and np.isfinite(np.float32(scale)) and np.isfinite(np.float32(zero))
                inverse = np.float32(1) / np.float32(scale)
                q = np.clip(np.rint((block - np.float32(zero)) * inverse), 0, 15) if finite and np.isfinite(inverse) else np.zeros(len(block))
                codes.append(q.astype(np.uint8))
                scales.append(scale.view(np.uint16) if finite else np.uint16(0x7FC0))
                zeros.append(zero.view(np.uint16) if finite else np.uint16(0))
            q = np.concatenate(codes)
            q = np.append(q, np.zeros(len(q) % 2, np.uint8))
            wires += [q[::2] | q[1::2] << 4, np.array(scales, np.uint16).view(np.uint8), np.array(zeros, np.uint16).view(np.uint8)]
    return np.concatenate(wires)


def test_the_pack_is_whole_and_what_this_program_makes(made):
    assert checked(made).code == 0
    assert ok_json("vectors --check pack", made.parent)["passed"] is True
    done = subprocess.run([sys.executable, made / "read_pack.py", made], capture_output=True, text=True)
    assert done.returncode == 0 and "files are whole" in done.stdout
    assert len((made / "read_pack.py").read_text().splitlines()) <= 100 and "import arlab" not in (made / "read_pack.py").read_text()
    assert {path.name for path in made.parent.iterdir()} == {"pack"}


def test_an_encoder_of_ones_own_and_one_that_is_wrong(made):
    reader = reader_of(made)
    pack = reader.load(made)
    assert list(reader.compare(pack, "int4-g128", encode=encode_int4_g128)) == []

    def wrong(payload, dtype):
        wire = encode_int4_g128(payload, dtype).copy()
        wire[2] ^= 0x10  # element 5
        return wire

    (line,) = [line for line in reader.compare(pack, "int4-g128", encode=wrong, dtype="bf16") if "gaussian:" in line]
    assert line.startswith("int4-g128 bf16 gaussian: encode: element 5: code 0x")


@pytest.mark.parametrize("codec", ["int6-g64", "mxfp4", "nvfp4"])
def test_layouts_are_the_wire_at_other_places(made, codec):
    reader = reader_of(made)
    pack = reader.load(made)
    (layout,) = [each for each in pack["layouts"] if each["codec"] == codec]
    form = {each["name"]: each["wire_format"] for each in pack["codecs"]}[codec]
    files, rows, blocks = layout["files"], layout["rows"], layout["blocks_per_row"]
    codes, arrays = reader.unpack(form, reader.array(pack, files["wire"]), rows * layout["columns"])
    assert np.array_equal(codes, reader.array(pack, files["codes"]))
    assert np.array_equal(arrays["scales"].view(np.uint8), reader.array(pack, files["scales"]))
    inter = reader.array(pack, files["interleaved"]).reshape(rows * blocks, -1)
    width = form["arrays"][0]["bytes"]
    assert np.array_equal(inter[:, :width].reshape(-1), arrays["scales"].view(np.uint8))
    if width == 1:
        swizzled = reader.array(pack, files["scales_128x4"])
        assert np.array_equal(reader.unswizzle(swizzled, rows, blocks).reshape(-1), arrays["scales"])
        assert np.count_nonzero(swizzled) == np.count_nonzero(arrays["scales"])


def test_what_one_shot_sends_decodes_to_its_input(made):
    reader = reader_of(made)
    pack = reader.load(made)
    for case in pack["all_reduces"]:
        sent = reader.array(pack, case["sent"])
        at = 0
        for message in case["messages"]:
            assert message["at"] == at and message["bytes"] == sum(chunk["bytes"] for chunk in message["chunks"])
            at += message["bytes"]
        assert at == sent.size
        outputs = reader.array(pack, case["outputs"], np.uint16).reshape(case["ranks"], case["elements"])
        assert (outputs == outputs[0]).all()
    of = {(case["algorithm"], case["dtype"], case["sum"], case["ranks"]) for case in pack["all_reduces"]}
    assert of == {(a, d, "native", r) for a in ("one_shot", "two_shot", "ring") for d in ("fp16", "bf16") for r in (2, 4)} | {
        (a, d, "fp32", 4) for a in ("one_shot", "two_shot") for d in ("fp16", "bf16")
    }


def test_outputs_of_one_shot_are_sums_of_what_is_sent(made):
    """By hand: contributions decoded to the dtype, added as the case says."""
    reader = reader_of(made)
    pack = reader.load(made)
    numbers = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
    for case in pack["all_reduces"]:
        if case["algorithm"] != "one_shot" or case["input"] != "gaussian":
            continue
        t = numbers[case["dtype"]]
        x = reader.array(pack, case["inputs"], np.uint16).reshape(case["ranks"], -1).view(t)
        parts = [arlab.decode(arlab.encode(part, case["codec"]), case["codec"], case["dtype"], part.size) for part in x]
        total = parts[0].astype(np.float32)
        for part in parts[1:]:
            total = total + part.astype(np.float32)
            if case["sum"] == "native":
                total = total.astype(t).astype(np.float32)
        outputs = reader.array(pack, case["outputs"], np.uint16).reshape(case["ranks"], -1)
        assert np.array_equal(outputs[0], total.astype(t).view(np.uint16)), case["outputs"]


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sha256", "codecs/mxfp4/bf16_gaussian.wire.bin", "inputs/bf16_tail_1.bin", "README.md"])
def test_a_flipped_byte_is_found(made, tmp_path, name):
    shutil.copytree(made, tmp_path / "pack")
    content = bytearray((tmp_path / "pack" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "pack" / name).write_bytes(content)
    result = checked(tmp_path / "pack")
    assert result.code == 1 and name in result.stderr
    with pytest.raises(ValueError, match=name):
        reader_of(made).load(tmp_path / "pack")


def write_manifest(pack, manifest):
    text = json.dumps(manifest).encode()
    (pack / "manifest.json").write_bytes(text)
    (pack / "manifest.sha256").write_text(f"{hashlib.sha256(text).hexdigest()}  manifest.json\n")


def test_a_wrong_wire_with_right_sums_is_found(made, tmp_path):
    shutil.copytree(made, tmp_path / "pack")
    name = "codecs/mxfp4/bf16_gaussian.wire.bin"
    wire = bytearray((tmp_path / "pack" / name).read_bytes())
    wire[7] ^= 1
    (tmp_path / "pack" / name).write_bytes(wire)
    manifest = json.loads((tmp_path / "pack/manifest.json").read_text())
    manifest["files"][name]["sha256"] = hashlib.sha256(wire).hexdigest()
    write_manifest(tmp_path / "pack", manifest)
    reader_of(made).load(tmp_path / "pack")
    result = checked(tmp_path / "pack")
    assert result.code == 1 and f"{name}: " in result.stderr and "from byte 7 on" in result.stderr


@pytest.mark.parametrize("change, message", [
    ({"codecs": 3}, "is not of the form of arlab.vector_pack/1"), ({"codecs": [{"name": 1}]}, "is not of the form"), ({"files": {"../secret": {"sha256": ""}}}, "outside"),
    ({"files": []}, ""), ({"files": {"README.md": 1}}, "is not of the form"), ({"dtype": 5}, "is not of the form"),
])  # fmt: skip
def test_a_manifest_of_another_form_is_refused(made, tmp_path, change, message):
    shutil.copytree(made, tmp_path / "pack")
    (tmp_path / "secret").write_text("")
    write_manifest(tmp_path / "pack", json.loads((made / "manifest.json").read_text()) | change)
    result = checked(tmp_path / "pack")
    assert result.code in (1, 2) and message in result.stderr and result.stderr.count("\n") <= 2, result


def test_bad_input(tmp_path):
    (tmp_path / "empty").mkdir()
    refused("vectors --pack pack --codec int4-g12", tmp_path, "int4-g12")
    refused("vectors --pack pack --check", tmp_path, "--check", "--pack")
    refused("vectors --check empty", tmp_path, "manifest.json")
    refused("vectors --check empty --codec mxfp4", tmp_path, "--codec")
    assert {path.name for path in tmp_path.iterdir()} == {"empty"}
