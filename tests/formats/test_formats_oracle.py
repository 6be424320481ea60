"""The format conversions against NumPy (half) and ml_dtypes (all others), bit for bit."""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

RANDOM_PATTERNS = 1 << 24
IN_RANGE_PATTERNS = 1 << 22


class Format(NamedTuple):
    name: str
    dtype: type
    bits: int
    overflows: tuple = ("ieee", "saturate")

    @property
    def code_type(self):
        return np.uint16 if self.bits == 16 else np.uint8

    def codes(self):
        return np.arange(1 << self.bits, dtype=self.code_type)


FORMATS = [
    Format("half", np.float16, 16),
    Format("bfloat16", ml_dtypes.bfloat16, 16),
    Format("e4m3fn", ml_dtypes.float8_e4m3fn, 8),
    Format("e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 8),
    Format("e5m2", ml_dtypes.float8_e5m2, 8),
    Format("e2m3", ml_dtypes.float6_e2m3fn, 6),
    Format("e3m2", ml_dtypes.float6_e3m2fn, 6),
    Format("e2m1", ml_dtypes.float4_e2m1fn, 4),
    Format("e8m0", ml_dtypes.float8_e8m0fnu, 8, ("ieee",)),
]
each_format = pytest.mark.parametrize("f", FORMATS, ids=lambda f: f.name)


def convert_stream(arguments, array, out_type):
    program = Path(os.environ["ARLAB_BIN"]).resolve() / "convert_stream"
    output = subprocess.run(
        [program, *arguments], input=array.tobytes(), stdout=subprocess.PIPE, check=True
    ).stdout
    return np.frombuffer(output, out_type)


def patterns(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def oracle_values(f):
    """Every code as fp32. NumPy leaves a signaling half signaling, hardware makes it quiet."""
    with np.errstate(all="ignore"):
        values = f.codes().view(f.dtype).astype(np.float32)
    if f.dtype is np.float16:
        bits = values.view(np.uint32)
        values = np.where(np.isnan(values), bits | 0x00400000, bits).view(np.float32)
    return values


def oracle_codes(f, values):
    """Returns the codes of `values` in each overflow variant of the format."""
    with np.errstate(all="ignore"):
        rounded = values.astype(f.dtype)
    codes = rounded.view(f.code_type).copy()
    bits = values.view(np.uint32)
    is_nan = np.isnan(values)
    if f.bits == 16:
        # NumPy does not quiet a NaN, ml_dtypes drops its payload: the rules of VCVTPS2PH and
        # VCVTNEPS2BF16 take their place.
        assert np.isnan(rounded[is_nan]).all()
        nan = bits[is_nan]
        half_nan = (nan >> 16 & 0x8000) | 0x7E00 | (nan >> 13 & 0x3FF)
        codes[is_nan] = half_nan if f.name == "half" else nan >> 16 | 0x40
    if f.name == "e8m0":
        # ml_dtypes 0.6 rounds everything between 2^-127 and 1.5 * 2^-127 up, where it is subnormal
        # in fp32; the nearest is 2^-127, code 0.
        codes[(bits > 0x00400000) & (bits < 0x00600000)] = 0
    if f.overflows == ("ieee",):
        return {"ieee": codes}

    largest = np.asarray(ml_dtypes.finfo(f.dtype).max, f.dtype).view(f.code_type)
    with np.errstate(all="ignore"):
        overflowed = np.flatnonzero(~np.isfinite(rounded) & ~is_nan)
    saturated = codes.copy()
    saturated[overflowed] = (bits[overflowed] >> 31 << (f.bits - 1)) | largest
    return {"ieee": codes, "saturate": saturated}


def neighbourhood(values):
    """Each value, and the fp32 directly below and above it."""
    values = np.asarray(values, np.float32)
    with np.errstate(all="ignore"):
        below = np.nextafter(values, np.float32(-np.inf))
        above = np.nextafter(values, np.float32(np.inf))
    return np.concatenate([values, below, above])


def boundaries(f):
    """Where rounding can go wrong: codes, midpoints, the overflow threshold, fp32's corners."""
    values = oracle_values(f)
    finite = np.unique(values[np.isfinite(values)]).astype(np.float64)
    midpoints = (finite[:-1] + finite[1:]) / 2
    assert (midpoints.astype(np.float32) == midpoints).all()
    spacing = finite[-1] - finite[-2]
    beyond = finite[-1] + spacing * np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0])
    beyond = beyond[beyond <= np.finfo(np.float32).max]
    corners = np.array(
        [
            0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007FFFFF, 0x00800000,  # subnormals
            0x7F7FFFFF, 0x7F800000,  # the largest, infinity
            0x7F800001, 0x7F801FFF, 0x7F802000, 0x7F80FFFF, 0x7F810000, 0x7FA00000,  # signaling NaN
            0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FC12345, 0x7FFFFFFF,  # quiet NaN
        ],
        np.uint32,
    )  # fmt: skip
    inner = neighbourhood(np.concatenate([finite, midpoints, beyond]))
    points = np.concatenate([patterns(inner), corners])
    return np.unique(np.concatenate([points, points ^ 0x80000000])).view(np.float32)


@pytest.fixture(scope="module")
def random_patterns():
    random = np.random.default_rng(1)
    return random.integers(0, 1 << 32, RANDOM_PATTERNS, np.uint32).view(np.float32)


def in_range_patterns(f):
    """Random bits, with exponents for which the format has more than zero and overflow to say."""
    values = np.abs(oracle_values(f))
    used = values[np.isfinite(values) & (values > 0)].astype(np.float64)
    lowest = max(int(np.log2(used.min())) + 127 - 3, 0)
    highest = min(int(np.log2(used.max())) + 127 + 2, 254)
    random = np.random.default_rng(2)
    exponents = random.integers(lowest, highest, IN_RANGE_PATTERNS, np.uint32, endpoint=True)
    others = random.integers(0, 1 << 32, IN_RANGE_PATTERNS, np.uint32)
    return (others & 0x807FFFFF | exponents << 23).view(np.float32)


def every_nan(f):
    """Returns NaNs of both signs; a part where formats keep no payload."""
    positive = np.arange(0x7F800001, 0x80000000, 1 if f.bits == 16 else 31, np.uint32)
    return np.concatenate([positive, positive | 0x80000000]).view(np.float32)


def check_from_float(f, values):
    for overflow, expected in oracle_codes(f, values).items():
        actual = convert_stream([f.name, "from", overflow], values, f.code_type)
        assert len(actual) == len(values)
        wrong = np.flatnonzero(actual != expected)
        bits = patterns(values)
        assert wrong.size == 0, [
            f"{overflow}: 0x{bits[i]:08x} gives 0x{actual[i]:x}, not 0x{expected[i]:x}"
            for i in wrong[:5]
        ]


@each_format
def test_every_code_to_float_and_back(f):
    values = convert_stream([f.name, "to"], f.codes(), np.float32)
    np.testing.assert_array_equal(patterns(values), patterns(oracle_values(f)))
    codes = convert_stream([f.name, "from"], values, f.code_type)
    assert (codes == f.codes())[~np.isnan(values)].all()


@each_format
def test_every_nan(f):
    check_from_float(f, every_nan(f))


@each_format
def test_around_every_boundary(f):
    check_from_float(f, boundaries(f))


@each_format
def test_random_patterns(f, random_patterns):
    check_from_float(f, random_patterns)


@each_format
def test_random_patterns_in_range(f):
    check_from_float(f, in_range_patterns(f))


def test_the_oracle_tells_the_variants_apart():
    """Without this, a convert_stream that ignores its third argument could pass."""
    large = np.array([np.finfo(np.float32).max, np.inf], np.float32)
    for f in FORMATS[:5]:
        codes = oracle_codes(f, large)
        assert (codes["ieee"] != codes["saturate"]).all()


# Mistakes that somebody might make in the codes of some numbers. The values compared above differ.


def value_of(f, codes):
    return codes.astype(f.code_type).view(f.dtype).astype(np.float32)


def smallest_normal(f):
    return np.float32(ml_dtypes.finfo(f.dtype).smallest_normal)


def rounds_towards_zero(f, x, codes):
    return np.where(np.abs(value_of(f, codes["ieee"])) > np.abs(x), codes["ieee"] - 1, codes["ieee"])


def rounds_ties_away(f, x, codes):
    above, below = (np.abs(value_of(f, codes["ieee"] + up).astype(np.float64)) for up in (1, 0))
    tie = (above - np.abs(x) == np.abs(x) - below) & (above > below)
    return np.where(tie, codes["ieee"] + 1, codes["ieee"])


def flushes_subnormals(f, x, codes):
    return oracle_codes(f, np.where(np.abs(x) < smallest_normal(f), np.copysign(np.float32(0), x), x))["ieee"]


def loses_the_carry(f, x, codes):
    value, next_exponent = value_of(f, codes["ieee"]), 1 << ml_dtypes.finfo(f.dtype).nmant
    carried = np.isfinite(value) & (codes["ieee"] % next_exponent == 0) & (np.abs(value) > np.abs(x))
    return np.where(carried, codes["ieee"] - next_exponent, codes["ieee"])


def rounds_twice(f, x, codes):
    excess = 23 - (ml_dtypes.finfo(f.dtype).nmant + 2)
    bits = patterns(x)
    rounded = (bits + np.uint32((1 << (excess - 1)) - 1) + (bits >> excess & 1)) >> excess << excess
    return oracle_codes(f, np.where(np.isfinite(x), rounded, bits).astype(np.uint32).view(np.float32))["ieee"]


def overflows_without_rounding(f, x, codes):
    large = np.abs(x) > np.float32(ml_dtypes.finfo(f.dtype).max)
    return oracle_codes(f, np.where(large, np.copysign(np.float32(np.inf), x), x))["ieee"]


def does_not_saturate_infinity(f, x, codes):
    return np.where(np.isinf(x), codes["ieee"], codes["saturate"])


def saturates_nan(f, x, codes):
    largest = np.asarray(ml_dtypes.finfo(f.dtype).max, f.dtype).view(f.code_type)
    return np.where(np.isnan(x), largest, codes["saturate"])


def cuts_nan_to_infinity(f, x, codes):
    payload = (patterns(x) & 0x7FFFFF) >> (23 - ml_dtypes.finfo(f.dtype).nmant)
    infinity = oracle_codes(f, np.copysign(np.float32(np.inf), x))["ieee"]
    return np.where(np.isnan(x), infinity | payload, codes["ieee"])


def loses_the_sign_of_zero(f, x, codes):
    return np.where(x == 0, 0, codes["ieee"])


def gives_zero_a_sign(f, x, codes):
    return np.where((codes["ieee"] == 0) & np.signbit(x), 0x80, codes["ieee"])


SATURATE_ALWAYS = {"e2m3", "e3m2", "e2m1"}
MISTAKES = {  # and the formats in which it is none
    rounds_towards_zero: set(), rounds_ties_away: set(), flushes_subnormals: set(), loses_the_carry: set(),
    rounds_twice: set(), overflows_without_rounding: SATURATE_ALWAYS, does_not_saturate_infinity: SATURATE_ALWAYS,
    saturates_nan: set(), cuts_nan_to_infinity: {f.name for f in FORMATS if f.bits < 16},
    loses_the_sign_of_zero: {"e4m3fnuz"}, gives_zero_a_sign: {f.name for f in FORMATS} - {"e4m3fnuz"},
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("f", FORMATS[:-1], ids=lambda f: f.name)
def test_mistakes_are_seen(f, mistake):
    x = boundaries(f)
    codes = oracle_codes(f, x)
    saturates = mistake in (does_not_saturate_infinity, saturates_nan)
    with np.errstate(all="ignore"):
        differ = mistake(f, x, codes).astype(f.code_type) != codes["saturate" if saturates else "ieee"]
    assert differ.any() or f.name in MISTAKES[mistake]


def test_usage_error_is_reported():
    program = Path(os.environ["ARLAB_BIN"]).resolve() / "convert_stream"
    for arguments in ([], ["e9m9", "to"], ["half", "sideways"], ["half", "from", "perhaps"]):
        run = subprocess.run([program, *arguments], input=b"", capture_output=True)
        assert run.returncode == 2 and b"usage" in run.stderr
