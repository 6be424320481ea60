"""Our .npy and .safetensors files against NumPy's and Hugging Face's own code."""

import os
import pathlib
import resource
import statistics
import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

PROGRAM = pathlib.Path(os.environ["ARLAB_BIN"]).resolve() / "tensor_files_program"
SHAPES = [(), (0,), (1,), (7,), (8, 16), (2, 3, 4), (5, 0, 2), (123456,), (1,) * 14]
NUMPY_TYPE = {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32}


def run(*arguments, **options):
    """Runs the program; returns (exit code, stdout, stderr)."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60, **options
    )
    return done.returncode, done.stdout, done.stderr


def ok(*arguments):
    code, stdout, stderr = run(*arguments)
    assert code == 0, stderr
    return stdout


def random_array(shape, numpy_type):
    """Random bits, so NaNs of every kind are among them."""
    size = int(np.prod(shape)) * np.dtype(numpy_type).itemsize
    return np.frombuffer(np.random.default_rng(1).bytes(size), numpy_type).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", NUMPY_TYPE)
def test_npy_round_trip_is_byte_for_byte(tmp_path, dtype, shape):
    np.save(tmp_path / "in.npy", random_array(shape, NUMPY_TYPE[dtype]))
    ok("npy", tmp_path / "in.npy", dtype, tmp_path / "out.npy")
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "in.npy").read_bytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(tmp_path, version):
    array = random_array((4, 5), np.float16)
    with open(tmp_path / "in.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    ok("npy", tmp_path / "in.npy", "fp16", tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").tobytes() == array.tobytes()


def test_uint16_patterns_become_float16(tmp_path):
    patterns = np.arange(65536, dtype=np.uint16)
    np.save(tmp_path / "in.npy", patterns)
    ok("npy", tmp_path / "in.npy", "fp16", tmp_path / "out.npy")
    out = np.load(tmp_path / "out.npy")
    assert out.dtype == np.float16
    assert (out.view(np.uint16) == patterns).all()


@pytest.mark.parametrize(
    "array, dtype, found",
    [
        (np.zeros(3, np.float32), "fp16", "float32"),
        (np.zeros(3, np.float64), "fp32", "float64"),
        (np.zeros(3, ">f2"), "fp16", "big-endian float16"),
        (np.zeros(3, np.int16), "bf16", "int16"),
        (np.zeros(3, bool), "fp16", "'|b1'"),
        (np.zeros(3, np.complex64), "fp32", "complex64"),
        (np.zeros(3, ml_dtypes.bfloat16), "bf16", "raw bytes"),
        (np.array([1, "a", None], dtype=object), "fp32", "Python objects"),
        (np.array(["text"]), "fp32", "'<U4'"),
        (np.zeros(3, [("x", "<f4")]), "fp32", "structured"),
        (np.asfortranarray(np.zeros((2, 3), np.float32)), "fp32", "Fortran"),
    ],
)
def test_other_arrays_are_refused(tmp_path, array, dtype, found):
    np.save(tmp_path / "in.npy", array)
    code, _, stderr = run("npy", tmp_path / "in.npy", dtype, tmp_path / "out.npy")
    assert code == 2
    assert stderr.count("\n") == 1 and "in.npy" in stderr and found in stderr
    assert not (tmp_path / "out.npy").exists()


def test_the_advice_of_a_refusal_helps(tmp_path):
    file = tmp_path / "in.npy"
    np.save(file, np.linspace(-1, 1, 9, dtype=np.float32))
    for dtype in ("fp16", "bf16"):
        _, _, stderr = run("npy", file, dtype, tmp_path / "out.npy")
        advice = stderr.strip().split("convert it in Python: ")[1]
        converted = eval(advice, {"numpy": np, "ml_dtypes": ml_dtypes, "file": file})
        np.save(tmp_path / "converted.npy", converted)
        ok("npy", tmp_path / "converted.npy", dtype, tmp_path / "out.npy")


def test_a_full_disk_leaves_the_old_file(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros(100_000, np.float32))
    (tmp_path / "out.npy").write_text("old")
    limit = 65536
    code, _, stderr = run(
        "npy", tmp_path / "in.npy", "fp32", tmp_path / "out.npy",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        restore_signals=False,  # Python ignores SIGXFSZ, and so shall the program
    )
    assert code == 2
    assert stderr == f"cannot write {tmp_path}/out.npy: File too large\n"
    assert (tmp_path / "out.npy").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "out.npy"]


def test_safetensors(tmp_path):
    tensors = {
        "model.layers.0.weight": random_array((4, 6), np.uint16).view(ml_dtypes.bfloat16),
        "half": random_array((2, 3, 4), np.float16),
        "single": random_array((), np.float32),
        "empty": random_array((3, 0), np.float32),
        "ids": np.arange(5, dtype=np.int64),
        "näme with ünicode": random_array((1,), np.float32),
    }
    file = tmp_path / "in.safetensors"
    safetensors_numpy.save_file(tensors, file, metadata={"made by": "a test"})
    listed = ok("list-safetensors", file)
    for name, array in tensors.items():
        letters = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "int64": "I64"}
        assert f"{name} {letters[array.dtype.name]} {array.shape}\n" in listed
        if name == "ids":
            continue
        ok("safetensors", file, name, tmp_path / "out.npy")
        out = np.load(tmp_path / "out.npy")
        assert out.shape == array.shape
        assert out.tobytes() == array.tobytes()
    code, _, stderr = run("safetensors", file, "", tmp_path / "out.npy")
    assert code == 2 and "name one of its 6 tensors" in stderr


def test_the_only_tensor_of_a_safetensors_file_needs_no_name(tmp_path):
    array = random_array((4, 5), np.float16)
    safetensors_numpy.save_file({"x": array}, tmp_path / "in.safetensors")
    ok("safetensors", tmp_path / "in.safetensors", "", tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").tobytes() == array.tobytes()


def splitmix64(word):
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def random_words(seed, rank, count):
    """The generator's definition, a second time: words 0, 1, ... of a rank."""
    step = 0x9E3779B97F4A7C15
    start = splitmix64(splitmix64(splitmix64((seed + step) % 2**64) + rank))
    return [splitmix64((start + (i + 1) * step) % 2**64) for i in range(count)]


def test_synthetic_values_from_their_definition(tmp_path):
    seed, ranks, elements = 12, 3, 2000
    words = [random_words(seed, rank, elements) for rank in range(ranks)]

    spec = f"uniform:low=-3,high=5,seed={seed}"
    ok("synthetic", spec, "fp32", ranks, elements, tmp_path / "u.npy")
    expected = [[-3 + 8 * (((w >> 12) + 0.5) / 2**52) for w in rank] for rank in words]
    assert np.load(tmp_path / "u.npy").tobytes() == np.float32(expected).tobytes()

    ok("synthetic", f"gaussian:seed={seed}", "fp32", ranks, elements, tmp_path / "g.npy")
    signed = [[(w - 2**64 if w >= 2**63 else w) >> 11 for w in rank] for rank in words]
    quantile = statistics.NormalDist().inv_cdf
    expected = [[quantile(0.5 + (n + 0.5) / 2**53) for n in rank] for rank in signed]
    # The standard library's log may differ in its last bit, and with it one fp32 in many millions.
    np.testing.assert_array_max_ulp(np.load(tmp_path / "g.npy"), np.float32(expected), maxulp=1)


@pytest.mark.parametrize(
    "spec", ["gaussian", "laplace", "student-t:nu=2", "uniform", "outliers", "sweep:low=1e-9", "constant:value=0.1"]
)
def test_narrow_synthetic_payloads_round_as_numpy_rounds(tmp_path, spec):
    for dtype in NUMPY_TYPE:
        ok("synthetic", spec, dtype, 2, 20000, tmp_path / f"{dtype}.npy")
    exact = np.load(tmp_path / "fp32.npy")
    assert exact.shape == (2, 20000)
    half = np.load(tmp_path / "fp16.npy")
    brain = np.load(tmp_path / "bf16.npy").view(ml_dtypes.bfloat16)
    assert half.tobytes() == exact.astype(np.float16).tobytes()
    assert brain.tobytes() == exact.astype(ml_dtypes.bfloat16).tobytes()
