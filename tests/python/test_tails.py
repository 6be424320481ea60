"""Tails behind all-reduces: every bit of an implementation in NumPy of reference/tails/SPEC.md, that imports nothing of it."""

import math
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab

sys.path.append(str(Path(__file__).resolve().parents[1] / "collectives"))
from collectives_oracle import ALGORITHMS as sums_of
from collectives_oracle import Oracle as SumOracle
from collectives_oracle import arrived, parts_of

F32, TYPES = np.float32, {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
NAMES = {  # sum, what is normalized, reciprocal root, weight
    "unfused": ("native", "native", False, "twice"),
    "torch-llama": ("native", "native", True, "twice"),
    "vllm": ("native", "native", True, "once"),
    "aiter": ("native", "fp32", True, "once"),
    "aiter-before-2586": ("fp32", "fp32", True, "once"),
    "aiter-two-stage": ("native", "fp32", True, "first"),
    "mnnvl-two-shot": ("native", "native", True, "first"),
    "flashinfer-fp4": ("fp32", "squares", True, "once"),
}


@np.errstate(all="ignore")
def fma(a, b, c):
    """The product is exact in float64; the sum is rounded once, by fractions where float64 would round before."""
    exact = a.astype(np.float64) * b.astype(np.float64)
    total = exact + c.astype(np.float64)
    lost = np.where(
        np.isfinite(total),
        (exact - (total - c.astype(np.float64))) + (c.astype(np.float64) - (total - (total - c.astype(np.float64)))),
        0,
    )
    odd = total.view(np.int64) & 1
    # Round to odd, so that the rounding to float32 is the only one.
    toward = np.where((lost > 0) == (total > 0), 1, -1)
    fixed = np.where((lost != 0) & (odd == 0), (total.view(np.int64) + toward), total.view(np.int64)).view(np.float64)
    return fixed.astype(F32)


def tree(values):
    """Sums of the last axis, whose length is a power of two: pairs half of the rest apart."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def squares(rows, threads):
    per_block = threads * 8
    blocks = -(-rows.shape[-1] // per_block)
    padded = np.zeros((*rows.shape[:-1], blocks * per_block), F32)
    padded[..., : rows.shape[-1]] = rows
    vectors = padded.reshape(*rows.shape[:-1], blocks, threads, 8)
    of_thread = np.zeros(vectors.shape[:-1], F32)
    for i in range(8):
        of_thread = fma(vectors[..., i], vectors[..., i], of_thread)
    lanes = np.zeros((*of_thread.shape[:-1], 1024), F32)
    lanes[..., :threads] = of_thread
    of_block = tree(tree(lanes.reshape(*lanes.shape[:-1], 32, 32)))
    total = np.zeros(rows.shape[:-1], F32)
    for block in range(blocks):
        total = total + of_block[..., block]
    return total


def oracle(sums, residual, weight, kind, rounding, eps, offset, threads):
    keeps_sum, keeps, reciprocal, order = rounding[0] == "fp32", *rounding[1:]

    def rounded(values):
        return values.astype(kind).astype(F32)

    with np.errstate(all="ignore"):
        z = sums if keeps_sum else rounded(sums)
        made = None
        if residual is not None:
            z = z + residual.astype(F32)
            made = z.astype(kind)
        if keeps == "native":
            z = rounded(z)
        root = np.sqrt(squares(z, threads) / F32(z.shape[-1]) + F32(eps))[..., None]
        z = rounded(z) if keeps == "squares" else z
        scaled = (lambda x: x * (F32(1) / root)) if reciprocal else (lambda x: x / root)
        if weight is None:
            out = scaled(z)
        else:
            w = weight.astype(F32) + F32(1) if offset else weight.astype(F32)  # -0 + 0 is 0
            out = scaled(z * w) if order == "first" else scaled(z) * w if order == "once" else rounded(scaled(z)) * w
    return made, out.astype(kind)


def same(found, wanted):
    bits = np.uint32 if wanted.dtype.itemsize == 4 else np.uint16
    nan = np.isnan(np.asarray(wanted, np.float64))
    return (
        np.array_equal(np.where(nan, 0, found.view(bits)), np.where(nan, 0, wanted.view(bits)))
        and np.isnan(np.asarray(found, np.float64))[nan].all()
    )


def tensors(kind, shape, seed=3):
    random = np.random.default_rng(seed)
    x = (random.standard_normal(shape) * np.exp2(random.integers(-3, 4, shape))).astype(kind)
    x[0, :5] = np.array([0, -0.0, np.inf, np.finfo(np.float16).max, 1e-7]).astype(kind)
    x[-1, 3] = np.nan
    residual, weight = (random.standard_normal(shape) * 4).astype(kind), random.uniform(0.25, 2, shape[-1]).astype(kind)
    weight[6] = -0.0
    return x, residual, weight


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "hidden, threads", [(576, 1024), (2880, 1024), (4096, 256), (6144, 1024), (8192, 1024), (16384, 1024), (72, 96)]
)
def test_named_roundings_have_the_bits_of_the_specification(name, dtype, hidden, threads):
    kind = TYPES[dtype]
    x, residual, weight = tensors(kind, (4, hidden))
    keeps_sum = NAMES[name][0] == "fp32"
    if keeps_sum and dtype == "fp32":
        pytest.skip("sums of fp32 are not rounded")
    sums = x.astype(F32) + F32(2**-13) if keeps_sum else x
    tail = arlab.Tail(residual="add", norm="rms", eps=1e-5, rounding=name, threads=threads)
    made = tail(sums, residual=residual, weight=weight, dtype=kind)
    wanted = oracle(sums.astype(F32), residual, weight, kind, NAMES[name], 1e-5, 0, threads)
    assert same(made.residual, wanted[0]) and same(made.normalized, wanted[1]) and made.wire is None


def test_roundings_differ_where_they_say_so():
    x, residual, weight = tensors(np.float16, (64, 4096), seed=5)
    sums = x[1:-1].astype(F32) * F32(1.001)
    made = {
        name: arlab.Tail(residual="add", norm="rms", rounding=name)(
            sums, residual=residual[1:-1], weight=weight, dtype="fp16"
        ).normalized
        for name in NAMES
    }
    for one in NAMES:
        for other in NAMES:
            if one < other:
                assert not same(made[one], made[other]), (one, other)


#: Mistakes of fused kernels, as changes of what the oracle gets or does.
MISTAKES = {
    "residual added twice": lambda x, r, w, f: f(x, r.astype(F32) * 2, w),
    "residual of another token": lambda x, r, w, f: f(x, np.roll(r, 1, 0), w),
    "sum not rounded": lambda x, r, w, f: f(x, r, w, rounding=("fp32", *NAMES["unfused"][1:])),
    "offset missing": lambda x, r, w, f: f(x, r, w, offset=0),
    "eps outside of the root": lambda x, r, w, f: f(x, r, w, eps=0, scale=1 / (1 + 1e-3)),
    "mean over a padded row": lambda x, r, w, f: f(x, r, w, scale=math.sqrt(1024 / 960)),
    "squares in ascending order": lambda x, r, w, f: f(x, r, w, threads=32),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_fused_kernels_are_seen(mistake):
    x, residual, weight = tensors(np.float16, (256, 960), seed=11)
    sums = np.nan_to_num(x.astype(F32) * F32(1.001), nan=1, posinf=2)
    made = arlab.Tail(residual="add", norm="rms", eps=1e-3, offset=1)(
        sums, residual=residual, weight=weight, dtype="fp16"
    )

    def as_oracle(x, r, w, rounding=NAMES["unfused"], eps=1e-3, offset=1, threads=1024, scale=1):
        residual, out = oracle(x, r, w, np.float16, rounding, eps, offset, threads)
        return residual, (out.astype(F32) * F32(scale)).astype(np.float16)

    assert same(made.normalized, as_oracle(sums, residual, weight)[1])
    assert not same(made.normalized, MISTAKES[mistake](sums, residual, weight, as_oracle)[1])


@pytest.mark.parametrize(
    "x, steps", [("0x1.004p+0", 0), ("0x1.012p+0", -1), ("0x1.018p+1", -1), ("0x1.01ep+0", 1), ("0x1.044p-3", 1)]
)
def test_an_h200s_root_is_multiplied_with(x, steps):
    """`steps` from 1 / sqrt rounded once, as measured for the exact square of x, and its product with powers of 4."""
    x = F32(float.fromhex(x))
    made = arlab.Tail(norm="rms", eps=0, root="rsqrt")(np.full((1, 1), x))
    root = np.array([1 / np.float64(x)], F32).view(np.int32) + steps
    assert made.normalized[0, 0] == x * root.astype(np.int32).view(F32)[0]


def test_a_named_rounding_needs_no_residual():
    x, _, weight = tensors(np.float16, (64, 640))
    made = arlab.Tail(norm="rms", rounding="aiter")(x, weight=weight)
    assert same(made.normalized, oracle(x.astype(F32), None, weight, np.float16, NAMES["aiter"], 1e-6, 0, 1024)[1])


def test_offset_weights_and_tails_without_a_residual():
    x, _, weight = tensors(np.float16, (3, 640))
    for offset, given in ((1, weight), (0, weight), (0, None)):
        made = arlab.Tail(norm="rms", offset=offset or None)(x, weight=given)
        wanted = oracle(x.astype(F32), None, given, np.float16, NAMES["unfused"], 1e-6, offset, 1024)[1]
        assert made.residual is None and same(made.normalized, wanted)


def test_a_row_may_be_a_part_of_an_axis():
    x, residual, weight = tensors(np.float16, (4, 576))
    made = arlab.Tail(hidden=288, residual="add", norm="rms")(x, residual=residual, weight=weight[:288]).normalized
    rows = x.reshape(8, 288).astype(F32)
    wanted = oracle(rows, residual.reshape(8, 288), weight[:288], np.float16, NAMES["unfused"], 1e-6, 0, 1024)
    assert same(made, wanted[1].reshape(4, 576))


@pytest.mark.parametrize("codec", ["int8-g64", "mxfp8-e4m3", "nvfp4", "int8-grow"])
def test_the_output_is_what_the_codec_makes_of_what_comes_out(codec):
    x, residual, weight = tensors(np.float16, (6, 2880), seed=9)
    x = np.nan_to_num(x, nan=1, posinf=2)
    made = arlab.Tail(residual="add", norm="rms", out=codec)(x, residual=residual, weight=weight)
    name = "int8-g2880" if codec == "int8-grow" else codec
    wire = arlab.encode(made.normalized, name)
    assert np.array_equal(made.wire, wire) and same(made.quantized, arlab.decode(wire, name, "fp16", x.shape))


def test_pytorchs_llama_norm_is_one_of_them():
    torch = pytest.importorskip("torch")
    x, residual, weight = (
        torch.from_numpy(each.astype(F32)).bfloat16() for each in tensors(ml_dtypes.bfloat16, (32, 4096), seed=1)
    )
    x = torch.nan_to_num(x)
    made = arlab.Tail(residual="add", norm="rms", rounding="torch-llama")(x, residual=residual, weight=weight)
    hidden = x + residual
    assert torch.equal(made.residual, hidden)
    variance = hidden.float().pow(2).mean(-1, keepdim=True)
    wanted = weight * (hidden.float() * torch.rsqrt(variance + 1e-6)).to(torch.bfloat16)
    # PyTorch adds squares in an order of its own: rows in which the sum of squares is the same number are the same in every bit.
    ours = torch.from_numpy(squares(np.asarray(hidden.float()), 1024)) / 4096
    alike = (torch.rsqrt(ours + 1e-6) == torch.rsqrt(variance[:, 0] + 1e-6)) & (
        1 / (ours + 1e-6).sqrt() == torch.rsqrt(variance[:, 0] + 1e-6)
    )
    assert alike.sum() >= 4
    assert torch.equal(made.normalized[alike], wanted[alike])


REFUSED = {
    "residual=add,foo=1": "'foo=1' is not of a tail: allowed are hidden=, residual=",
    "norm=rms,norm=rms": "norm stands twice",
    "norm=layer": "norm is 'layer': allowed are none, rms",
    "norm=rms,eps=-1": "eps is '-1': allowed are 0 and numbers from 1.4e-45 (fp32's least) to 1",
    "hidden=512,norm=rms,weight=first": "--tail weight=: --norm-weight is missing",
    "norm=rms,out=": "out is empty: allowed is a codec",
    "residual=add,rounding=vllm": "rounding=vllm changes nothing here: allowed is it with norm=rms",
    "residual=none": "it does nothing: needed is one of",
    "residual=add,eps=1e-5": "eps is of a norm: allowed is it with norm=rms",
    "norm=rms,add=fp32": "add=fp32 rounds nothing where there is no residual",
    "out=int8-g64,rounding=aiter": "rounding=aiter changes nothing here",
    "norm=rms,rounding=mine": "allowed are unfused, torch-llama, vllm",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_is_one_line(text):
    command = [
        Path(os.environ["ARLAB_BIN"]).resolve() / "arlab",
        *"reduce --algorithm one_shot --codec bf16 --ranks 2 --synthetic gaussian --elements 512".split(),
    ]
    run = subprocess.run(
        [*command, "--tail", text, *(["--residual", "gaussian"] if "residual=add" in text else [])],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2 and REFUSED[text] in run.stderr and run.stderr.count("\n") == 1, run.stderr


def test_shapes_and_dtypes_that_do_not_fit_are_one_line():
    x = np.ones((2, 96), np.float16)
    for said, call in {
        r"the residual is fp16 of shape \(2, 95\): needed is fp16 of shape \(2, 96\)": lambda: arlab.Tail(
            residual="add"
        )(x, residual=x[:, 1:]),
        "the weight is fp32": lambda: arlab.Tail(norm="rms")(x, weight=np.ones(96, F32)),
        "rows of 96 elements end within a block": lambda: arlab.Tail(norm="rms", out="int8-g64")(x),
        "sum=fp32 needs sums of float32": lambda: arlab.Tail(norm="rms", sum="fp32")(x),
        "residual=add adds a residual, and none is given": lambda: arlab.Tail(residual="add")(x),
        "weight=first says how a weight is multiplied": lambda: arlab.Tail(norm="rms", weight="first")(x),
        "a weight is given: allowed is it with norm": lambda: arlab.Tail(residual="add")(x, residual=x, weight=x[0]),
        "a residual is given: allowed is it with residual=add": lambda: arlab.Tail(norm="rms")(x, residual=x),
        r"the weight is fp16 of shape \(96,\): needed is fp16 of shape \(48,\)": lambda: arlab.Tail(hidden=48, norm="rms")(x, weight=x[0]),
    }.items():
        with pytest.raises(arlab.ArgumentError, match=said):
            call()
    assert arlab.Tail(norm="rms")(x[:0]).normalized.shape == (0, 96)


def test_a_program_says_how_far_each_output_is_off(tmp_path):
    command = [Path(os.environ["ARLAB_BIN"]).resolve() / "arlab", *(
        "reduce --algorithm two_shot --codec int8-g128 --dtype bf16 --ranks 4 --synthetic gaussian:seed=2 --elements 16K --format json "
        "--tail hidden=2048,residual=add,norm=rms,out=int8-g128,rounding=vllm --residual gaussian:sigma=2,seed=5 --norm-weight uniform:low=0.5,high=1.5 "
        "--tail-out made.safetensors"
    ).split()]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    import json

    from safetensors import safe_open

    said = json.loads(run.stdout)
    assert (
        30 < said["normalized_sqnr_db"] < 60
        and said["quantized_sqnr_db"] < said["normalized_sqnr_db"]
        and said["differs_from_unfused"] > 100
    )
    with safe_open(tmp_path / "made.safetensors", "np") as file:
        made = {name: file.get_tensor(name) for name in file.keys()}
    assert {name: (each.shape, each.dtype.name) for name, each in made.items()} == dict.fromkeys(
        ("normalized", "quantized", "residual"), ((4, 16384), "bfloat16")
    )
    exact = made["normalized"][0].astype(np.float64)
    noise = exact - made["quantized"][0].astype(np.float64)
    assert math.isclose(10 * math.log10((exact**2).sum() / (noise**2).sum()), 44, abs_tol=3)


# ---------------------------------------------------------------- in schedules: tests/collectives has the oracle of sums


def program(*words, cwd=None):
    command = [Path(os.environ["ARLAB_BIN"]).resolve() / "arlab", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def synthetic(folder, spec, dtype, ranks, elements):
    tool = Path(os.environ["ARLAB_BIN"]).resolve() / "tensor_files_program"
    subprocess.run([tool, "synthetic", spec, dtype, str(ranks), str(elements), f"{folder}/x.npy"], check=True)
    return np.load(f"{folder}/x.npy").view(TYPES[dtype]).reshape(ranks, elements)


def made_by_two_shot(place, o, x, tail):
    """Every rank's results, of its sum or of what the owners of rows send; `tail(sum, rows)` is one of both tensors."""
    if place == "after":
        return tail(sums_of["two_shot"](o, list(x), own="encoded")[0], slice(None))
    parts = [part for part in parts_of(x.shape[1], len(x), o.alignment) if part.start < part.stop]
    pieces = [tail(o.sum([o.through(each[part]) for each in x], "zero"), part) for part in parts]
    return [np.concatenate(each) for each in zip(*pieces)]


RUNS = [
    (n, dtype, codec, out)
    for n in (2, 3, 8)
    for dtype, codec, out in [
        ("fp16", "qr-q4", "int8-g64"), ("bf16", "qr-q4", "fp8-e4m3-g64"), ("bf16", "int8-g128", ""), ("fp32", "fp32", "int8-g64"),
    ]
]  # fmt: skip


@pytest.mark.parametrize("place", ["after", "owner"])
@pytest.mark.parametrize("n, dtype, codec, out", RUNS)
def test_schedules_with_tails_have_the_bits_of_the_specification(place, n, dtype, codec, out, tmp_path):
    from safetensors import safe_open

    hidden, kind = 576, TYPES[dtype]
    codecs = [each for each in (codec, out) if each]
    alignment = math.lcm(hidden, *(arlab.codec_info(each)["alignment"] for each in codecs))
    elements = alignment * (n + 1) + 5 * hidden
    specs = "adversarial:non_finite=0,seed=4", "gaussian:sigma=2,seed=5", "uniform:low=0.5,high=1.5,seed=6"
    x = synthetic(tmp_path, specs[0], dtype, n, elements)
    residual = synthetic(tmp_path, specs[1], dtype, 1, elements)[0]
    weight = synthetic(tmp_path, specs[2], dtype, 1, hidden)[0]
    sends = out or codec if place == "owner" else out

    def tail(sums, rows):
        values = sums.astype(F32).reshape(-1, hidden), residual[rows].reshape(-1, hidden)
        made, normal = oracle(*values, weight, kind, NAMES["vllm"], 1e-5, 0, 1024)
        last = arrived(sends, dtype, normal.tobytes()) if sends and sends != dtype else normal.reshape(-1)
        return made.reshape(-1), last

    o = type("Rows", (SumOracle,), {"alignment": alignment})(codec, dtype)
    wanted = made_by_two_shot(place, o, x, tail)
    words = f"residual=add,norm=rms,eps=1e-5,rounding=vllm,hidden={hidden}" + (f",out={out}" if out else "")
    run = program(
        *f"reduce --algorithm two_shot --codec {codec} --dtype {dtype} --ranks {n} --elements {elements}".split(),
        *("--synthetic", specs[0], "--tail", words, "--residual", specs[1], "--norm-weight", specs[2]),
        *("--tail-place", place, "--tail-out", "made.safetensors", "--threads", str(n)), cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    with safe_open(tmp_path / "made.safetensors", "np") as file:
        made = {name: file.get_tensor(name) for name in file.keys()}
    assert made["residual"].shape == ((elements,) if place == "owner" else (n, elements))
    assert same(np.atleast_2d(made["residual"])[-1], wanted[0])
    for rank in made["quantized" if out else "normalized"]:
        assert same(rank, wanted[1])
    if codec.startswith("qr-"):  # the control: at the other place other bits
        other = made_by_two_shot("after" if place == "owner" else "owner", o, x, tail)
        assert not same(other[1], wanted[1])


def test_what_owners_send_is_told_and_what_cannot_be_placed_is_one_line(tmp_path):
    import json

    asked = "schedule --algorithm two_shot --codec qr-q4 --ranks 2 --elements 36K --tail-place owner --tail".split()
    said = json.loads(program(*asked, "hidden=576,residual=add,norm=rms,out=int8-g64").stdout)
    volume = said["volume"]
    assert said["row"] == 576 and said["alignment"] == 18432 and said["check"]["correct"]
    assert volume["wire_bytes_of_sum"] < volume["wire_bytes"] < volume["wire_bytes_of_plain"]
    # Sums by qr-q4, rows in 8 bits with scale and zero for 64: half of what two bytes take, and a sixteenth of that.
    rows = volume["wire_bytes"] - volume["wire_bytes_of_sum"] / 2
    assert rows == volume["wire_bytes_of_plain"] / 2 * (68 / 64) / 2
    reduce = "reduce --codec qr-q4 --dtype fp16 --ranks 3 --synthetic gaussian --elements 18K --residual gaussian".split()
    tail = "hidden=576,residual=add,norm=rms"
    for words, more in {
        "one_shot: no rank encodes the sum of all ranks for others: allowed is the tail after it": [
            "--algorithm", "one_shot", "--tail", tail, "--tail-place", "owner"],
        "ring: a rank encodes again what owners have sent: allowed is the tail after it": [
            "--algorithm", "ring", "--forward", "reencoded", "--tail", tail, "--tail-place", "owner"],
        "a residual is sent where owners add it": ["--algorithm", "two_shot", "--tail", tail, "--tail-residual", "travels"],
        "rows of 576 elements end within a block of int8-g128": ["--algorithm", "two_shot", "--tail", tail + ",out=int8-g128"],
        "18432 elements of a rank are not whole rows of 640": ["--algorithm", "two_shot", "--tail", tail.replace("576", "640")],
    }.items():  # fmt: skip
        run = program(*reduce, *more)
        assert run.returncode == 2 and words in run.stderr and run.stderr.count("\n") == 1, run.stderr


@pytest.mark.parametrize("hidden", [576, 2880, 4096, 5120, 6144, 7168, 8192, 16384])
def test_every_width_works_with_blocks_that_are_longer(hidden, tmp_path):
    run = program(
        *f"reduce --algorithm two_shot --codec qr-q6 --dtype bf16 --ranks 2 --elements {hidden * 3} --synthetic gaussian".split(),
        *f"--tail hidden={hidden},residual=add,norm=rms,out=int8-g64 --residual gaussian --tail-place owner".split(),
        *"--tail-residual travels --inner-codec ag:bf16 --tail-out made.safetensors".split(), cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    from safetensors import safe_open

    with safe_open(tmp_path / "made.safetensors", "np") as file:
        residual = file.get_tensor("residual")
    assert residual.shape == (2, hidden * 3) and same(residual[0], residual[1])
