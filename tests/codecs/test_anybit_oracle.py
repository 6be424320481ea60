"""The C++ any-bit codecs against the oracle: every wire byte, decoded bit and count. No tolerance."""

import csv
from decimal import ROUND_HALF_EVEN, Decimal, getcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import anybit_oracle
from oracle_testing import check, check_any_wire, check_every_length, patterns, payload
from wire_oracle import PAYLOADS

BLOCKS = {
    "int": [f"int{b}-g{g}" for b in range(2, 9) for g in (32, 64, 128)]
    + ["int8-g8", "int7-g16", "int6-g24", "int5-g40", "int4-g256", "int3-g1000", "int7-g2048", "int3-g4096"]
    + ["int5-g5000", "int4-g8192", "int2-g65536", "int6-g16777216"],
    "sym": [f"int{b}-g{g}-sym" for b, g in zip(range(2, 9), (32, 64, 128, 8, 40, 8192, 256))],
    "sr": [
        f"int{b}-g{g}-sr"
        for b, g in zip((2, 2, 3, 3, 4, 5, 6, 7, 8), (32, 128, 32, 64, 32, 8, 4096, 1000, 65536))
    ]
    + ["int2-g32-sym-sr", "int4-g64-sym-sr", "int8-g136-sym-sr"],
    "sr-is": [
        f"int{b}-g{g}-sr-is" for b, g in zip((2, 2, 3, 4, 5, 6, 7, 8), (32, 256, 32, 64, 128, 8, 40, 32))
    ],
    "had": [
        f"had-int{b}-g{g}" for b, g in zip((2, 3, 4, 4, 5, 6, 7, 8), (32, 64, 32, 128, 8, 512, 4096, 65536))
    ]
    + ["had-int2-g16-sym", "had-int4-g128-sym", "had-int8-g8192-sym"],
    "stoch": ["int8-g128-stoch", "int4-g32-stoch", "int3-g40-sym-stoch", "int2-g32-sr-stoch", "int2-g32-sr-is-stoch"]
    + ["had-int4-g32-stoch", "int5-g8192-stoch", "int6-gtensor-stoch-static0.05:-1.25", "int4-gtensor-sym-stoch-static0.5"],
    "static": ["int8-gtensor-sym-static0.05", "int8-gtensor-static0.01:-1.25", "int4-gtensor-static3:1e-3"]
    + ["int3-gtensor-sym-static1e-38", "int2-gtensor-sym-static1e30", "int5-gtensor-static1e-3:3e38"],
}
NAMES = [name for names in BLOCKS.values() for name in names]
MESSAGES = [
    "int8-gtensor",
    "int3-gtensor",
    "int7-gtensor-sym",
    "int2-gtensor-sym",
    "int8-gtensor-stoch",
]  # one block: many short ones
SHORT = [
    "int8-g128",
    "int7-g32",
    "int5-g40",
    "int3-g32-sym",
    "int2-g32-sr",
    "int4-g16-sym-sr",
    "int3-g32-sr-is",
]
SHORT += ["int4-g32-stoch", "had-int3-g32", "had-int7-g64-sym", "int6-gtensor", "int5-gtensor-static0.1:-3", "int4-g8192-sr"]

each_dtype = pytest.mark.parametrize("dtype", PAYLOADS)


@each_dtype
@pytest.mark.parametrize("name", NAMES)
def test_wires_values_and_counts(name, dtype):
    check(anybit_oracle.find(name), dtype, payload(dtype), name)


@each_dtype
@pytest.mark.parametrize("name", MESSAGES)
def test_whole_messages(name, dtype):
    """A NaN spoils a message, so each kind of payload is one."""
    for start in range(0, len(payload(dtype)), 1 << 16):
        check(
            anybit_oracle.find(name), dtype, payload(dtype)[start : start + (1 << 16)], f"{name} from {start}"
        )


@pytest.mark.parametrize("name", SHORT)
def test_every_length(name):
    check_every_length(anybit_oracle.find(name))


@each_dtype
@pytest.mark.parametrize("name", SHORT + MESSAGES + ["int8-g32-sr-is", "int8-g64-sr", "int2-g8"])
def test_any_wire_decodes(name, dtype):
    """Infinite and NaN metadata, indices behind the block, overflows."""
    codec = anybit_oracle.find(name)
    check_any_wire(codec, dtype, lambda elements: codec.layout(dtype, elements))


# The oracle itself, against numbers from elsewhere.


def encode_values(name, dtype, values):
    return anybit_oracle.encode(name, dtype, patterns(dtype, values)).tobytes()


def decode_values(name, dtype, wire, elements):
    return PAYLOADS[dtype].to_fp32(anybit_oracle.find(name).decode(dtype, wire, elements)).tolist()


@pytest.mark.parametrize("row", ["scale", "scale_int"])
def test_footprints_of_table_4(row):
    """Flash Communication V2, table 4: 4096 16-bit numbers, INT2 with spikes, groups of 32."""
    table = Path(__file__).parents[2] / "experiments/published/flashcomm2_table4_int2_footprint_bytes.csv"
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    published = next(line for line in csv.DictReader(lines) if line["scheme"] == row)
    published = {key: int(value) for key, value in published.items() if key != "scheme"}

    codec = anybit_oracle.find("int2-g32-sr" + {"scale": "", "scale_int": "-is"}[row])
    for dtype in ("fp16", "bf16"):
        layout = codec.layout(dtype, 4096)
        scales = sum(layout.widths[:2]) * 128
        spikes = sum(layout.widths[2:]) * 128
        assert (scales, spikes) == (published["scale_and_zero"], published["spikes"])
        assert (layout.bytes - scales - spikes, layout.bytes) == (published["quantized"], published["total"])
        assert len(codec.encode(dtype, patterns(dtype, np.arange(4096)))) == published["total"]


def test_integer_scales_are_correctly_rounded():
    getcontext().prec = 60
    for s, value in zip(range(-128, 128), anybit_oracle.integer_scales()):
        exact = Decimal(2) ** (Decimal(s) / 10)
        exponent = s // 10
        significand = (exact * Decimal(2) ** (23 - exponent)).to_integral_value(ROUND_HALF_EVEN)
        assert Fraction(float(value)) == Fraction(int(significand)) * Fraction(2) ** (exponent - 23), s


def test_hadamard_normalization_is_correctly_rounded():
    for log_size in range(3, 17):
        size = 1 << log_size
        scale = Fraction(float(anybit_oracle.hadamard(np.ones((1, size), np.float32))[0, 0])) / size
        ulp = Fraction(2) ** (-((log_size + 1) // 2) - 23)
        assert (scale - ulp / 2) ** 2 < Fraction(1, size) < (scale + ulp / 2) ** 2


def test_hadamard_is_sylvesters():
    signs = np.array([[1]])
    while len(signs) < 8:
        signs = np.block([[signs, signs], [signs, -signs]])
    transformed = anybit_oracle.hadamard(np.eye(8, dtype=np.float32))
    assert (transformed == signs * np.float32(0.35355339)).all()


def test_ties_round_to_even_codes():
    wire = encode_values("int4-g8", "fp16", [0, 0.5, 1.5, 2.5, 15, 13.5, 14.5, 7.5])
    assert wire[:4] == bytes([0x00, 0x22, 0xEF, 0x8E])
    assert wire[4:] == bytes([0x80, 0x3F, 0, 0])


@pytest.mark.parametrize(
    "bits, planes",
    [
        (3, [0b11100100, 0b11100100, 0b11110000]),
        (7, [0x10, 0x32, 0x54, 0xF6, 0x00, 0xC0, 0b10000000]),
        (8, [0, 1, 2, 3, 4, 5, 6, 255]),
    ],
)
def test_planes_by_hand(bits, planes):
    """0, 1, ..., 6 and the top code: scale 1 and zero 0."""
    wire = encode_values(f"int{bits}-g8", "fp32", [*range(7), (1 << bits) - 1])
    assert wire == bytes(planes + [0x80, 0x3F, 0, 0])


def test_symmetric_by_hand():
    """max 7 at 4 bits: scale 1; code = q + 8."""
    wire = encode_values("int4-g8-sym", "fp32", [7, -7, 0, -0.0, 2.5, -2.5, 1, -1])
    assert wire == bytes([0x1F, 0x88, 0x6A, 0x79, 0x80, 0x3F])
    assert encode_values("int4-g8-sym", "fp32", [0] * 8) == bytes([0x88] * 4 + [0, 0])


def test_zeros_are_positive():
    for values in ([-0.0, 0.0], [-(2.0**-149), 2.0**-149]):
        assert encode_values("int2-g8", "fp32", values) == bytes(5)


def test_spikes_of_a_constant_block_are_one_element():
    wire = encode_values("int2-g8-sr", "bf16", [-2] * 3)
    assert wire[5:] == bytes([0x00, 0xC0, 0x00, 0xC0, 0, 0, 0, 0])
    assert decode_values("int2-g8-sr", "bf16", wire, 3)[0] == -2


def test_non_finite_blocks_by_hand():
    nan_bf16 = bytes([0xC0, 0x7F])
    assert encode_values("int2-g8", "fp32", [1, np.inf]) == bytes([0]) + nan_bf16 + bytes(2)
    assert encode_values("int2-g8", "fp32", [3e38, -3e38]) == bytes([0]) + nan_bf16 + bytes(
        2
    )  # the range overflows
    assert encode_values("int2-g8-sym", "fp32", [3.402e38]) == bytes([0]) + nan_bf16  # the scale does
    assert encode_values("int2-g8-sr-is", "fp16", [1, np.nan]) == bytes([0, 0, 0, 0x00, 0x7E, 0, 0, 0, 0])
    assert encode_values("int8-gtensor-sym-static1", "fp32", [np.nan, 1]) == bytes([0, 0, 0xFF])
    for name in ("int2-g8", "int2-g8-sym", "int2-g8-sr-is", "int8-gtensor-sym-static1", "had-int4-g8"):
        wire = encode_values(name, "fp16", [1, np.inf, 2])
        assert anybit_oracle.find(name).decode("fp16", wire, 3).tolist() == [0x7E00] * 3


def test_padding_is_not_counted_as_clamped():
    codec = anybit_oracle.find("int2-gtensor-sym-static1")
    assert codec.encode_and_count("fp32", patterns("fp32", [1, 1.5, 1.51, -2.5, -2.6, 100]))[1] == 4


def test_hadamard_round_trip_is_close():
    x = np.random.default_rng(4).normal(size=1000)
    for name in ("had-int8-g64", "had-int8-g8192-sym"):
        wire = encode_values(name, "fp32", x)
        assert np.abs(np.array(decode_values(name, "fp32", wire, 1000)) - x).max() < 0.06
