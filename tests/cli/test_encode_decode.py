"""arlab encode and arlab decode: exact wire bytes, and back."""

import numpy as np
import pytest
from program import ok, ok_json, refused
from safetensors import numpy as safetensors_numpy

NUMPY_TYPE = {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32}


def random_bits(shape, numpy_type, seed=1):
    """NaNs of every kind are among them."""
    size = int(np.prod(shape)) * np.dtype(numpy_type).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(size), numpy_type).reshape(shape)


def gaussian(count):
    return np.random.default_rng(1).standard_normal(count).astype(np.float16)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (4096,), (0,), (3, 0)])
@pytest.mark.parametrize("dtype", NUMPY_TYPE)
def test_plain_codecs_write_the_bytes_of_numpy(tmp_path, dtype, shape):
    tensor = random_bits(shape, NUMPY_TYPE[dtype])
    np.save(tmp_path / "in.npy", tensor)
    ok(f"encode --codec {dtype} --dtype {dtype} in.npy out.bin", tmp_path)
    assert (tmp_path / "out.bin").read_bytes() == tensor.tobytes()

    ok(f"decode --codec {dtype} --dtype {dtype} out.bin out.npy", tmp_path)
    np.save(tmp_path / "flat.npy", tensor.reshape(-1))
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "flat.npy").read_bytes()


def test_one_tensor_of_safetensors_can_be_encoded(tmp_path):
    tensor = gaussian(100).reshape(4, 25)
    safetensors_numpy.save_file({"only": tensor}, tmp_path / "in.safetensors")
    ok("encode --codec fp16 in.safetensors out.bin", tmp_path)
    assert (tmp_path / "out.bin").read_bytes() == tensor.tobytes()


def test_output_replaces_a_file_and_follows_a_link(tmp_path):
    tensor = gaussian(10)
    np.save(tmp_path / "in.npy", tensor)
    (tmp_path / "real").write_text("old, and longer than what comes " * 10)
    (tmp_path / "link").symlink_to("real")
    ok("encode --codec fp16 in.npy link", tmp_path)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == tensor.tobytes()


def test_in_place(tmp_path):
    np.save(tmp_path / "x.npy", gaussian(10))
    before = (tmp_path / "x.npy").read_bytes()
    ok("encode --codec fp16 x.npy x.bin", tmp_path)
    ok("decode --codec fp16 x.bin x.npy", tmp_path)
    assert (tmp_path / "x.npy").read_bytes() == before
    refused("decode --codec fp16 x.bin x.gguf", tmp_path, "x.gguf", "ends in .npy")
    ok("decode --codec fp16 x.bin x.bin", tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == before


@pytest.mark.parametrize(
    "codec, wire_bytes, elements, fragments",
    [
        ("qr-q4", 1152, "2049", ["1152 bytes", "2049", "2304 bytes"]),
        ("qr-q4", 1151, None, ["wire.bin", "1151 bytes", "1152"]),
        ("fp16", 3, None, ["wire.bin", "3 bytes", "2 and 4"]),
        ("fp16", 4, "0", []),
    ],
)
def test_wire_that_does_not_fit(tmp_path, codec, wire_bytes, elements, fragments):
    (tmp_path / "wire.bin").write_bytes(bytes(wire_bytes))
    option = "" if elements is None else f"--elements={elements}"
    refused(f"decode --codec {codec} {option} wire.bin out.npy", tmp_path, *fragments)


def test_no_elements_at_all(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros(0, np.float16))
    report = ok_json("encode --codec qr-q4 in.npy out.bin", tmp_path)
    assert (report["wire_bytes"], report["wire_bits_per_element"]) == (0, None)
    ok("decode --codec qr-q4 --elements 0 out.bin out.npy", tmp_path)
    assert np.load(tmp_path / "out.npy").shape == (0,)
