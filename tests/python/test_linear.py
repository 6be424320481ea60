"""Quantized linear layers: reference/layers/SPEC.md, its example, and linear_oracle.py, which shares no code with them."""

import re
from pathlib import Path

import numpy as np
import pytest

import arlab
from arlab import models
from arlab._arrays import numpy_dtype
from linear_oracle import f32, int8, layer

PAGE = Path(__file__).resolve().parents[2] / "reference/layers/SPEC.md"

# ---------------------------------------------------------------- the same


ACTIVATIONS = ["none", "fp16", "bf16", "int8", "int8-asym", "int8-tensor", "int8-tensor-asym", "fp8", "fp8-tensor"]
STATIC = ["int8-tensor-static", "int8-tensor-asym-static", "fp8-tensor-static"]
WEIGHTS = ["none", "int8", "int8-asym", "int8-tensor", "int8-tensor-asym", "fp8", "fp8-tensor", "int4-g32", "int4-g16-asym"]


def bits(y):
    """A NaN of a chain of floats has the bits that the processor gives it; of int8, it is the canonical one."""
    return np.where(np.isnan(y), f32(np.nan), y).view(np.uint32)


def compared(x, w, activations, weights):
    given = (f32(0.02), 17 if "asym" in activations else 0) if activations in STATIC else None
    static = {} if given is None else {"scale": float(given[0]), "zero": given[1]}
    found = models.linear(x, w, activations=activations, weights=weights, **static)
    expected = layer(x, w, activations, weights, given)
    assert expected.dtype == found.dtype == f32
    codes = activations.startswith("int8") and weights.startswith("int8")
    assert np.array_equal(found.view(np.uint32) if codes else bits(found), bits(expected)), weights
    return found


@pytest.mark.parametrize("activations", ACTIVATIONS + STATIC)
def test_layers_are_those_of_numpy(activations):
    generator = np.random.default_rng(7)
    for weights in WEIGHTS:
        for tokens, outputs, inputs in ((1, 1, 1), (5, 33, 48), (9, 20, 301)):
            x = (generator.standard_normal((tokens, inputs)) * generator.lognormal(size=(tokens, 1)) + 0.3).astype(f32)
            w = (generator.standard_normal((outputs, inputs)) - 0.2).astype(f32)
            compared(x, w, activations, weights)


def special_rows(generator, inputs):
    """Zeros, constants, one value among zeros, near the smallest and the largest numbers, and scales that saturate."""
    ramp = generator.standard_normal((8, inputs)).astype(f32)
    ramp[0], ramp[1], ramp[2], ramp[3] = 0, 0.75, -3, 0
    ramp[3, inputs // 2] = -2
    ramp[4] *= f32(1e-44)
    ramp[5] *= f32(1e37)
    ramp[6] *= f32(1e7)  # int4: beyond 65504 times 15
    return ramp


@pytest.mark.parametrize("activations", ACTIVATIONS + STATIC)
def test_special_values_are_those_of_numpy(activations):
    generator = np.random.default_rng(17)
    for weights in WEIGHTS:
        x, w = special_rows(generator, 70), special_rows(generator, 70)
        compared(x[:4], w[:4], activations, weights)
        assert compared(x, w, activations, weights).any()
        for lost in (np.nan, np.inf, -np.inf):
            for spoilt in (x, w):
                y, z = x.copy(), w.copy()
                (y if spoilt is x else z)[2, 33] = lost
                found = compared(y, z, activations, weights)
                whole = np.isfinite(found[[0, 1, 3]][:, [0, 1, 3]])
                tensor = "tensor" in (activations if spoilt is x else weights) and "static" not in (activations if spoilt is x else "")
                assert whole.all() != tensor, "a row that is not finite is seen, and only by what shares its scale"


def test_a_chain_that_is_not_fused_is_found():
    """The control: with a rounding of each product, bits differ."""
    generator = np.random.default_rng(3)
    x, w = generator.standard_normal((9, 301)).astype(f32), generator.standard_normal((20, 301)).astype(f32)
    twice = np.zeros((9, 20), f32)
    for i in range(301):
        twice += x[:, i : i + 1] * w[:, i]
    assert (twice != models.linear(x, w)).mean() > 0.5


@pytest.mark.parametrize("algorithm, codec, dtype", [("reduce_scatter", "qr-q4", "fp16"), ("two_shot", "int4-g32", "bf16")])
def test_a_layer_with_its_collective_has_the_bits_of_one_after_the_other(algorithm, codec, dtype):
    generator = np.random.default_rng(9)
    x, w = generator.standard_normal((40, 96)).astype(f32), generator.standard_normal((132, 96)).astype(f32)
    of_w, scale, _ = int8(w, False, False)
    partial = []
    for rank in range(4):
        part = slice(24 * rank, 24 * (rank + 1))
        p, x_scale, x_zero = int8(x[:, part], True, False)
        partial.append(((p - x_zero) @ of_w[:, part].T).astype(f32) * scale.T * x_scale)
    tensors = np.stack(partial).astype(numpy_dtype(dtype)).reshape(4, -1)
    expected = (arlab.reduce_scatter if algorithm == "reduce_scatter" else arlab.all_reduce)(tensors, codec=codec).outputs
    found = models.row_parallel(x, w, ranks=4, algorithm=algorithm, codec=codec, dtype=dtype, activations="int8-asym")
    assert found.shape == (4, 40, 132) and found.dtype == expected.dtype
    assert np.array_equal(found.reshape(4, -1).view(np.uint16), np.asarray(expected).view(np.uint16))


def test_the_example_of_the_page():
    block = re.search(r"## Example\n.*?\n((?:    .*\n)+)", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    lines = {line[4:13].strip(): line[13:] for line in block.splitlines()}

    def numbers(key):
        rows = re.split(" {2,}", lines[key])[0].split(" / ")
        return np.array([row.split() for row in rows], np.float64)

    x, w = numbers("x").astype(f32), numbers("W").astype(f32)
    y = models.linear(x, w, activations="int8-asym", weights="int8")
    assert [f"{value:.9g}" for value in y[0]] == lines["y"].split(" / ")
    p, x_scale, x_zero = int8(x, True, False)
    q, w_scale, _ = int8(w, False, False)
    assert f"{x_scale[0, 0]:.9g}" == lines["x scale"].split()[0]
    assert f"{x_scale.view(np.uint32)[0, 0]:08X}" == lines["x scale"].split()[1]
    assert (x_zero[0, 0], p.sum()) == (int(lines["x zero"]), int(lines["x codes"].split()[-1]))
    assert np.array_equal(p, numbers("x codes")) and np.array_equal(q, numbers("W codes"))
    assert [f"{value:.9g}" for value in w_scale[:, 0]] == lines["W scales"].split()
    assert ((p - x_zero) @ q.T)[0].tolist() == [int(each) for each in lines["sums"].split(" / ")]


def test_bad_input_is_one_line():
    x, w = np.ones((2, 4), f32), np.ones((3, 4), f32)
    for arguments, fragment in (
        ({"activations": "int4-g32"}, "activations 'int4-g32': allowed are none, fp16"),
        ({"weights": "fp16"}, "weights 'fp16': allowed are none, int8"),
        ({"activations": "int8-tensor-static"}, "a scale is given to the formats that end in -static"),
        ({"activations": "fp8-tensor-static", "weights": "fp8", "scale": -1.0}, "finite and not negative"),
        ({"activations": "int8-tensor-asym-static", "scale": 1.0, "zero": 200}, "zero 200: allowed are -128 to 127"),
    ):
        with pytest.raises(arlab.ArgumentError, match=fragment) as error:
            models.linear(x, w, **arguments)
        assert "\n" not in str(error.value)
    for wrong, fragment in (
        ({"ranks": 3}, "3 ranks cannot hold equal parts of 4 and 4 inputs"),
        ({"ranks": 2, "activations": "fp8"}, "fp8 x int8: allowed are int8"),
        ({"ranks": 2, "algorithm": "ring", "own": "mine"}, "own"),
    ):
        with pytest.raises(arlab.ArgumentError, match=fragment):
            models.row_parallel(x, w, **wrong)
    with pytest.raises(arlab.ArgumentError, match="4 inputs cannot take 5"):
        models.linear(np.ones((2, 5)), w)
    with pytest.raises(arlab.ArgumentError, match="needed are"):
        models.linear(np.ones(5), w)
    with pytest.raises(arlab.ArgumentError, match="at most 133144"):
        models.linear(np.ones((1, 133145)), np.ones((1, 133145)))
