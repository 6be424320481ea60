"""Tensors of files that others write: .gguf by gguf's own decoder, quantized .safetensors by NumPy, files of PyTorch."""

import json
import os
import struct
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab

try:
    import gguf
except ImportError:  # as in the environment of PyTorch
    gguf = None

RANDOM = np.random.default_rng(7)
DECODED = [
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "TQ1_0",
    "TQ2_0", "MXFP4", "NVFP4",
]  # fmt: skip
BY_GGUF = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M"]


def gguf_file(path, type_name, blocks):
    """One tensor of 3 rows of random bytes, but for scales that would not be finite."""
    kind = gguf.GGMLQuantizationType[type_name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = RANDOM.integers(0, 256, (3, blocks * size), dtype=np.uint8)
    data[:] &= 0xBF if type_name in ("F16", "BF16", "F32") else 0xFF
    if type_name not in ("MXFP4", "NVFP4", "F32", "F16", "BF16"):
        pairs = data.reshape(-1, size)
        for at in range(0, size - 1):  # wherever a scale of 16 bits may be: exponents below the largest
            pairs[:, at] &= 0xFB if at % 2 else 0xFF
        pairs[:, -1] &= 0xFB
    name = b"blk.0.ffn_down.weight"
    head = struct.pack("<IIQQ", 0x46554747, 3, 1, 0) + struct.pack("<Q", len(name)) + name
    head += struct.pack("<IQQIQ", 2, blocks * elements, 3, int(kind), 0)
    path.write_bytes(head + bytes(-len(head) % 32) + data.tobytes())
    return gguf.dequantize(data, kind).astype(np.float32).reshape(3, blocks * elements)


@pytest.mark.skipif(gguf is None, reason="needs the package gguf")
@pytest.mark.parametrize("type_name", DECODED + BY_GGUF)
def test_every_type_of_gguf_has_the_bits_of_ggufs_decoder(tmp_path, type_name):
    wanted = gguf_file(tmp_path / "m.gguf", type_name, 5)
    found = arlab.read_tensor(tmp_path / "m.gguf", "blk.0.ffn_down.weight")
    assert found.dtype == np.float32 and found.shape == wanted.shape
    both_nan = np.isnan(found) & np.isnan(wanted)
    assert np.array_equal(np.where(both_nan, 0, found.view(np.uint32)), np.where(both_nan, 0, wanted.view(np.uint32)))
    assert np.array_equal(arlab.read_tensor(tmp_path / "m.gguf"), found, equal_nan=True), (
        "the only tensor needs no name"
    )


def test_types_of_gguf_that_nothing_decodes_are_named(tmp_path):
    name = b"t"
    for number, said in ((41, "Q1_0"), (77, "number 77")):
        head = struct.pack("<IIQQQ", 0x46554747, 3, 1, 0, 1) + name + struct.pack("<IQIQ", 1, 128, number, 0)
        (tmp_path / "m.gguf").write_bytes(head + bytes(-len(head) % 32 + 18))
        with pytest.raises(arlab.ArgumentError, match=f"'t' is of type {said}: allowed are F32, .*NVFP4"):
            arlab.read_tensor(tmp_path / "m.gguf")


def test_what_a_header_claims_is_not_believed(tmp_path):
    """An array of arrays of 2^40 entries: gguf's own reader would count them all."""
    head = struct.pack("<IIQQ", 0x46554747, 3, 0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<IIQIQ", 9, 9, 1, 9, 1 << 40)
    (tmp_path / "m.gguf").write_bytes(head + bytes(64))
    with pytest.raises(arlab.ArgumentError, match="'a' is an array of type 9, which is not supported"):
        arlab.read_tensor(tmp_path / "m.gguf")


# ---------------------------------------------------------------- quantized weights


def safetensors(path, tensors):
    """`tensors`: by name, the dtype as the format spells it, the shape and the array."""
    header, data = {}, b""
    for name, (dtype, shape, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += np.ascontiguousarray(array).tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def codes_of(dtype, shape):
    codes = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    return np.where(np.isnan(codes.view(dtype).astype(np.float32)), 1, codes).astype(np.uint8)


def pairs_of(codes):
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    return values[np.stack([codes & 15, codes >> 4], -1)].reshape(*codes.shape[:-1], -1)


def fp8_blocks(rows, columns, size=(128, 128)):
    codes = codes_of(ml_dtypes.float8_e4m3fn, (rows, columns))
    scales = RANDOM.random((-(-rows // size[0]), -(-columns // size[1])), dtype=np.float32)
    spread = np.repeat(np.repeat(scales, size[0], 0), size[1], 1)[:rows, :columns]
    return codes, scales, codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * spread


def deepseek():
    codes, scales, wanted = fp8_blocks(200, 300)
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    return config, {"w": ("F8_E4M3", codes.shape, codes), "w_scale_inv": ("F32", scales.shape, scales)}, wanted


def per_row():
    codes = codes_of(ml_dtypes.float8_e5m2, (6, 64))
    codes = np.where(np.isfinite(codes.view(ml_dtypes.float8_e5m2).astype(np.float32)), codes, 1).astype(np.uint8)
    scales = RANDOM.random((6, 1)).astype(ml_dtypes.bfloat16)
    wanted = codes.view(ml_dtypes.float8_e5m2).astype(np.float32) * scales.astype(np.float32)
    return (
        {"quant_method": "fbgemm_fp8"},
        {"w": ("F8_E5M2", codes.shape, codes), "w_scale": ("BF16", (6, 1), scales)},
        wanted,
    )


def of_tensor():
    codes = RANDOM.integers(-128, 128, (5, 48), dtype=np.int8)
    scale = np.float32([0.037])
    return (
        {"quant_method": "compressed-tensors"},
        {"w": ("I8", codes.shape, codes), "w_scale": ("F32", (1,), scale)},
        codes * scale[0],
    )


def nvfp4(method, factor_name, of_global):
    codes = RANDOM.integers(0, 256, (6, 32), dtype=np.uint8)
    scales = codes_of(ml_dtypes.float8_e4m3fn, (6, 4)) & 0x7F
    second = np.float32([0.3])
    of_block = of_global(scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32), second[0])
    name = "w" if method == "modelopt" else "w_packed"
    tensors = {
        name: ("U8", codes.shape, codes),
        "w_scale": ("F8_E4M3", scales.shape, scales),
        factor_name: ("F32", (1,), second),
    }
    return {"quant_method": method}, tensors, pairs_of(codes) * np.repeat(of_block, 16, 1)


def mxfp4():
    codes = RANDOM.integers(0, 256, (2, 3, 4, 16), dtype=np.uint8)
    scales = RANDOM.integers(90, 140, (2, 3, 4), dtype=np.uint8)
    wanted = pairs_of(codes) * np.exp2(scales.astype(np.float32) - 127)[..., None]
    tensors = {"w_blocks": ("U8", codes.shape, codes), "w_scales": ("U8", scales.shape, scales)}
    return {"quant_method": "mxfp4"}, tensors, wanted.reshape(2, 3, 128)


CHECKPOINTS = {
    "deepseek": deepseek,
    "per row": per_row,
    "of the tensor": of_tensor,
    "modelopt nvfp4": lambda: nvfp4("modelopt", "w_scale_2", np.multiply),
    "compressed-tensors nvfp4": lambda: nvfp4("compressed-tensors", "w_global_scale", np.divide),
    "gpt-oss": mxfp4,
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_quantized_weights_are_what_their_configuration_says(tmp_path, kind):
    config, tensors, wanted = CHECKPOINTS[kind]()
    safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    for place in (tmp_path / "model.safetensors", tmp_path):
        found = arlab.read_tensor(place, "w")
        assert found.dtype == np.float32 and found.shape == wanted.shape
        assert np.array_equal(found.view(np.uint32), wanted.astype(np.float32).view(np.uint32)), kind


def test_weights_of_a_way_that_is_not_known_are_refused(tmp_path):
    config, tensors, _ = deepseek()
    path = tmp_path / "model.safetensors"
    changed = {
        "needs a tensor of scales beside it, and a config.json .* fp8, fbgemm_fp8": (tensors, {}),
        "mxfp4: it has 'quark'": (tensors, {"quantization_config": {"quant_method": "quark"}}),
        r"scales of shape \(7, 3\) do not fit to F8_E4M3 \(200, 300\), 60000 bytes, with a weight_block_size of 128 x 128": (
            tensors | {"w_scale_inv": ("F32", (7, 3), np.ones((7, 3), np.float32))}, {"quantization_config": config}),
        "'w' is of dtype 'I32': allowed are F16, BF16, F32, and quantized F8_E4M3": (
            {"w": ("I32", (2, 2), np.ones((2, 2), np.int32)), "w_scale_inv": tensors["w_scale_inv"]}, {"quantization_config": config}),
        "a weight_block_size of 128 x 128": (
            tensors | {"w_scale_inv": ("F32", (1, 1), np.ones((1, 1), np.float32))}, {"quantization_config": config}),
        "its scales are not all finite": (
            tensors | {"w_scale_inv": ("F32", (2, 3), np.full((2, 3), np.nan, np.float32))}, {"quantization_config": config}),
        "no tensor 'x': there are w": None,
    }  # fmt: skip
    for said, given in changed.items():
        if given is not None:
            safetensors(path, given[0])
            (tmp_path / "config.json").write_text(json.dumps(given[1]))
        with pytest.raises(arlab.ArgumentError, match=said):
            arlab.read_tensor(path, "w" if given is not None else "x")


def test_plain_tensors_keep_their_dtype(tmp_path):
    array = RANDOM.standard_normal((4, 6)).astype(ml_dtypes.bfloat16)
    safetensors(tmp_path / "m.safetensors", {"a": ("BF16", (4, 6), array), "b": ("I64", (1,), np.int64([3]))})
    found = arlab.read_tensor(tmp_path / "m.safetensors", "a")
    assert found.dtype == array.dtype and np.array_equal(found.view(np.uint16), array.view(np.uint16))
    np.save(tmp_path / "a.npy", array.astype(np.float16))
    assert np.array_equal(arlab.read_tensor(tmp_path / "a.npy"), array.astype(np.float16))


# ---------------------------------------------------------------- PyTorch


def test_files_of_pytorch_are_read_without_running_code(tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.randn(3, 5).to(torch.bfloat16)
    torch.save({"model": {"a.weight": weight, "b": torch.ones(2)}, "step": 7}, tmp_path / "all.pt")
    found = arlab.read_tensor(tmp_path / "all.pt", "model.a.weight")
    assert found.shape == (3, 5) and np.array_equal(
        found.view(np.uint16), weight.view(torch.int16).numpy().view(np.uint16)
    )
    with pytest.raises(arlab.ArgumentError, match="no tensor 'c': there are model.a.weight, model.b"):
        arlab.read_tensor(tmp_path / "all.pt", "c")

    class Runs:
        def __reduce__(self):
            return (tmp_path / "ran").touch, ()

    torch.save(Runs(), tmp_path / "evil.pt")
    with pytest.raises(arlab.ArgumentError, match="cannot be read as tensors"):
        arlab.read_tensor(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


def test_a_program_says_where_files_of_pytorch_are_read(tmp_path):
    (tmp_path / "a.pt").write_bytes(b"PK")
    command = [Path(os.environ["ARLAB_BIN"]).resolve() / "arlab", "encode", "a.pt", "w", "--codec", "qr-q4"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (
        run.returncode == 2
        and "a.pt: PyTorch's file, which arlab.read_tensor() in Python reads; allowed are .npy" in run.stderr
    )


# ---------------------------------------------------------------- in one call


@pytest.mark.parametrize("codec", ["qr-q4", "int4-g32", "mxfp8-e4m3", "fp8-e4m3-g128"])
def test_quantize_is_encode_and_decode(codec):
    x = RANDOM.standard_normal((7, 96)).astype(np.float16)
    wanted = arlab.decode(arlab.encode(x, codec), codec, "fp16", x.shape)
    assert np.array_equal(arlab.quantize(x, codec), wanted) and np.array_equal(
        arlab.quantize(x[:, ::1], codec, platform="host"), wanted
    )
    assert not np.array_equal(wanted, x), "the codec changes something"
    torch = pytest.importorskip("torch")
    given = torch.from_numpy(x.copy()).requires_grad_(False)
    found = arlab.quantize(given, codec)
    assert found.dtype == torch.float16 and np.array_equal(found.numpy(), wanted) and np.array_equal(given.numpy(), x)
