"""The C++ logarithmic codecs against the oracle: every wire byte, every decoded bit. No tolerance."""

import math

import numpy as np
import pytest

import logfmt_oracle
import oracle_testing
from oracle_testing import check, check_any_wire, check_every_length, patterns, payload
from wire_oracle import PAYLOADS

NAMES = [f"logfmt{n}-g{g}" for n, g in zip((2, 3, 4, 5, 6, 7, 8), (32, 32, 64, 128, 40, 64, 128))]
NAMES += ["logfmt2-g8", "logfmt4-g32", "logfmt3-g1000", "logfmt5-g8192", "logfmt7-g65536", "logfmt8-g4096"]
SHORT = ["logfmt2-g32", "logfmt3-g32", "logfmt4-g40", "logfmt7-g64", "logfmt8-g8192"]

each_dtype = pytest.mark.parametrize("dtype", PAYLOADS)


@each_dtype
@pytest.mark.parametrize("name", NAMES)
def test_wires_values_and_counts(name, dtype):
    check(logfmt_oracle.find(name), dtype, payload(dtype), name, count=name == "logfmt4-g32")


@each_dtype
@pytest.mark.parametrize("name", ["logfmt3-g32", "logfmt5-g8"])
def test_neighbours(name, dtype):
    """Blocks of numbers that lie next to each other: ranges of a rounding error's size, of either sign."""
    starts = oracle_testing.finite(
        dtype, np.random.default_rng(5).integers(0, 1 << 15, 1000).astype(PAYLOADS[dtype].word)
    )
    starts = starts << 16 if dtype == "fp32" else starts
    x = (starts[:, None] + np.arange(32, dtype=starts.dtype) % 3).reshape(-1)
    check(logfmt_oracle.find(name), dtype, x, name)


@each_dtype
@pytest.mark.parametrize("name", ["logfmt3-g32", "logfmt4-g32", "logfmt6-g32"])
def test_elements_around_the_rounding_points(name, dtype):
    """Decoded values, the middles between, and the patterns beside, in a block with the same extremes."""
    codec = logfmt_oracle.find(name)
    random = np.random.default_rng(6)
    base = np.exp2(random.uniform(-10, 10, (300, 1)) + random.uniform(-8, 0, (300, 32)))
    base[:, 0] = base.max(1)
    base[:, 1] = base.min(1)
    wire = codec.encode("fp32", patterns("fp32", base).reshape(-1))
    decoded = (
        PAYLOADS["fp32"].to_fp32(codec.decode("fp32", wire, base.size)).reshape(base.shape).astype(np.float64)
    )
    decoded.sort(1)
    middles = (decoded[:, 1:] + decoded[:, :-1]) / 2
    x = patterns(dtype, np.concatenate([base[:, :2], middles[:, :30]], 1))
    x[:, 12:22] += x.dtype.type(1)
    x[:, 22:] -= x.dtype.type(1)
    check(codec, dtype, x.reshape(-1), name)


@pytest.mark.parametrize("name", SHORT)
def test_every_length(name):
    check_every_length(logfmt_oracle.find(name), count=False)


@each_dtype
@pytest.mark.parametrize("name", SHORT + ["logfmt4-g8", "logfmt6-g8"])
def test_any_wire_decodes(name, dtype):
    """Signs of zeros, infinite and NaN metadata, values that overflow."""
    codec = logfmt_oracle.find(name)
    check_any_wire(codec, dtype, codec.layout)


# The oracle itself, against numbers from elsewhere.


def test_log2_is_close_and_exact_at_powers():
    assert (logfmt_oracle.log2(np.ldexp(np.float32(1), np.arange(-149, 128))) == np.arange(-149, 128)).all()
    x = np.random.default_rng(7).integers(1, 0x7F800000, 1 << 18).astype(np.uint32).view(np.float32)
    exact = np.log2(x.astype(np.float64))
    assert np.abs(logfmt_oracle.log2(x) - exact).max() < 8e-6
    near = np.random.default_rng(8).uniform(0.75, 1.3, 1 << 16).astype(np.float32)
    assert np.abs(logfmt_oracle.log2(near) - np.log2(near.astype(np.float64))).max() < 4e-7


def test_exp2_is_close_and_exact_at_integers():
    with np.errstate(all="ignore"):
        assert (
            logfmt_oracle.exp2(np.arange(-149, 128)) == np.ldexp(np.float32(1), np.arange(-149, 128))
        ).all()
        y = np.random.default_rng(9).uniform(-126, 127.9, 1 << 18).astype(np.float32)
        assert np.abs(logfmt_oracle.exp2(y) / np.exp2(y.astype(np.float64)) - 1).max() < 4e-7
        ends = logfmt_oracle.exp2(np.float32([-150, -150.1, -np.inf, np.nan, 128, np.inf, 127.99999]))
    assert ends[:6].tolist() == [0, 0, 0, 0, math.inf, math.inf] and 3.4e38 < ends[6] < math.inf


def test_the_smallest_magnitude_is_kept_within_32_octaves():
    """lo = hi - 32: what lies below its middle to zero becomes zero, without a sign."""
    x = patterns("fp32", [1, -(2.0**-100), 2.0**-33, -(2.0**-34)])
    wire = logfmt_oracle.find("logfmt3-g8").encode("fp32", x)
    assert wire.tolist() == [0b00_01_00_11, 0b0000, 0x00, 0xD0, 0x00, 0x4C]


def test_two_bits_have_one_value():
    x = patterns("fp16", [4, -4, 2, -1.99, 0, 1])
    wire = logfmt_oracle.find("logfmt2-g8").encode("fp16", x)
    assert wire.tolist() == [0b00_01_11_01, 0, 0x00, 0x40, 0, 0]


def test_zeros_and_non_finite_blocks_by_hand():
    assert logfmt_oracle.find("logfmt4-g8").encode("bf16", patterns("bf16", [0, -0.0])).tolist() == [0] * 5
    wire = logfmt_oracle.find("logfmt4-g8").encode("bf16", patterns("bf16", [1, np.nan]))
    assert wire.tolist() == [0, 0x00, 0x7E, 0, 0]
    assert logfmt_oracle.find("logfmt4-g8").decode("bf16", wire, 2).tolist() == [0x7FC0] * 2


def test_bisection_finds_what_a_scan_finds():
    """Also in values that do not rise."""
    random = np.random.default_rng(10)
    for last in (1, 3, 7, 15, 127):
        values = np.concatenate([np.zeros((50, 1)), random.integers(1, 20, (50, last))], 1).astype(np.float32)
        values[::2].sort(1)
        x = random.integers(0, 22, (50, 40)).astype(np.float32)
        reached = values[:, None, 1:] >= x[:, :, None]
        scan = np.where(reached.any(2), reached.argmax(2) + 1, last + 1)
        assert (logfmt_oracle.smallest_reaching(values, x) == scan).all()
