"""exact_sum() against exact rational arithmetic, compare() against NumPy."""

import json
import math
import os
import subprocess
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
each_dtype = pytest.mark.parametrize("name", DTYPES)


def error_stream(arguments, data):
    program = Path(os.environ["ARLAB_BIN"]).resolve() / "error_stream"
    return subprocess.run([program, *arguments], input=data, stdout=subprocess.PIPE, check=True).stdout


def exact_sum(name, inputs):
    out = error_stream(["sum", name, str(len(inputs))], inputs.tobytes())
    return np.frombuffer(out[:-8], np.float64), int.from_bytes(out[-8:], "little")


def compare(name, target, result):
    data = target.astype(np.float64).tobytes() + result.tobytes()
    return json.loads(error_stream(["compare", name, str(len(target))], data))


def any_patterns(name, shape, rng, finite=False):
    """Bit patterns, each equally likely: all exponents, and NaNs and infinities unless `finite`."""
    dtype = np.dtype(DTYPES[name])
    bits = rng.integers(0, 1 << (8 * dtype.itemsize), shape, dtype=np.uint64)
    values = bits.astype(f"u{dtype.itemsize}").view(dtype)
    bad = ~np.isfinite(values.astype(np.float64))
    return np.where(bad, dtype.type(1), values) if finite else values


def sum_and_whether_it_was_rounded(values):
    """Float64 additions in order, each against exact arithmetic."""
    total, rounded = 0.0, False
    for value in values:
        exact = Fraction(total) + Fraction(value)
        total += value
        rounded |= Fraction(total) != exact
    if not rounded:
        assert Fraction(total) == sum(map(Fraction, values))
    return total, rounded


@each_dtype
@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_exact_sum_is_exact_or_counted(name, ranks):
    inputs = any_patterns(name, (ranks, 1500), np.random.default_rng(ranks), finite=True)
    values, inexact = exact_sum(name, inputs)
    expected = [sum_and_whether_it_was_rounded(column) for column in inputs.astype(np.float64).T.tolist()]
    assert values.tolist() == [total for total, _ in expected]
    assert inexact == sum(rounded for _, rounded in expected)
    if name == "fp16" or ranks == 1:
        assert inexact == 0
    else:
        assert inexact > 0


@each_dtype
def test_exact_sum_keeps_nan_and_infinity(name):
    inputs = any_patterns(name, (4, 20000), np.random.default_rng(9))
    inputs[:, :100] = np.where(np.arange(4)[:, None] % 2 == 0, np.inf, -np.inf)
    inputs[:, 100:200] = np.inf
    values, _ = exact_sum(name, inputs)
    with np.errstate(invalid="ignore"):
        expected = np.zeros(inputs.shape[1])
        for row in inputs.astype(np.float64):
            expected = expected + row
    np.testing.assert_array_equal(values, expected)
    assert np.isnan(values[:100]).all() and np.isposinf(values[100:200]).all()


@each_dtype
@pytest.mark.parametrize("count", [1, 1000, 200_000])
def test_compare_agrees_with_numpy(name, count):
    rng = np.random.default_rng(count)
    target = rng.normal(size=count)
    result = (target + rng.normal(scale=0.05, size=count)).astype(DTYPES[name])
    r = result.astype(np.float64)
    error = r - target
    m = compare(name, target, result)
    assert m["elements"] == count and not m["exact"]
    assert m["non_finite_target"] == m["non_finite_result"] == m["lost"] == 0
    assert m["max_abs_error"] == np.abs(error).max()
    assert m["rmse"] == pytest.approx(math.sqrt(math.fsum(error**2) / count), rel=1e-12)
    sqnr_db = 10 * math.log10(math.fsum(target**2) / math.fsum(error**2))
    assert m["sqnr_db"] == pytest.approx(sqnr_db, rel=1e-12)
    assert m["finite_sqnr_db"] == m["sqnr_db"]
    cosine = math.fsum(target * r) / math.sqrt(math.fsum(target**2) * math.fsum(r**2))
    assert m["cosine"] == pytest.approx(cosine, rel=1e-12)


@each_dtype
def test_compare_leaves_out_what_is_not_finite(name):
    rng = np.random.default_rng(3)
    count = 100_000
    target = rng.normal(size=count)
    result = (target + rng.normal(scale=0.05, size=count)).astype(DTYPES[name])
    target[rng.random(count) < 0.01] = np.nan
    target[rng.random(count) < 0.01] = np.inf
    result[rng.random(count) < 0.01] = np.nan
    result[rng.random(count) < 0.01] = -np.inf
    r = result.astype(np.float64)
    compared, finite = np.isfinite(target), np.isfinite(r)
    both = compared & finite
    m = compare(name, target, result)
    assert m["elements"] == compared.sum()
    assert m["non_finite_target"] == (~compared).sum()
    assert m["non_finite_result"] == (~finite).sum()
    assert m["lost"] == (compared & ~finite).sum() > 0
    assert m["max_abs_error"] is None and m["rmse"] is None and m["sqnr_db"] is None
    t, r = target[both], r[both]
    sqnr_db = 10 * math.log10(math.fsum(t**2) / math.fsum((r - t) ** 2))
    assert m["finite_sqnr_db"] == pytest.approx(sqnr_db, rel=1e-12)
    cosine = math.fsum(t * r) / math.sqrt(math.fsum(t**2) * math.fsum(r**2))
    assert m["cosine"] == pytest.approx(cosine, rel=1e-12)
