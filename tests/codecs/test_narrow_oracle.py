"""The C++ codecs wire-* against the oracle: every wire byte and decoded bit. No tolerance."""

import dataclasses

import numpy as np
import pytest

import narrow_oracle
from oracle_testing import check, check_wire, codec_stream, patterns, payload, random_wire, report
from wire_oracle import PAYLOADS

NAMES = ["wire-bf16", "wire-fp16", "wire-bf16-stoch", "wire-fp16-stoch"]
each_name = pytest.mark.parametrize("name", NAMES)


@each_name
def test_wires_and_values(name):
    codec, x = narrow_oracle.find(name), payload("fp32")
    check(codec, "fp32", x, name)
    for length in (1, 7, 2047, 2049, 5000):
        check(codec, "fp32", x[length:][:length], f"{length} elements")


@each_name
def test_any_wire(name):
    """Every pattern, NaNs of all kinds among them."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    check_wire(narrow_oracle.find(name), "fp32", every, 1 << 16, "every pattern")
    check_wire(narrow_oracle.find(name), "fp32", random_wire(narrow_oracle.find(name), "fp32", 4097, 5), 4097, "random")


@each_name
def test_what_overflows_is_an_infinity_and_nan_stays(name):
    is_fp16 = "fp16" in name
    largest, beyond = (65504, 65520) if is_fp16 else (2.0**128 - 2.0**120, 2.0**128 - 2.0**119)
    beyond = np.inf if "stoch" in name else beyond
    x = patterns("fp32", [largest, -largest, beyond, -np.inf, np.nan, 65536 if is_fp16 else np.inf])
    wire = np.frombuffer(codec_stream(name, "fp32", "encode", len(x), x.tobytes()), np.uint16)
    top = 0x7C00 if is_fp16 else 0x7F80
    assert wire.tolist() == [top - 1, (top - 1) | 0x8000, top, top | 0x8000, 0x7E00 if is_fp16 else 0x7FC0, top]


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@each_name
def test_sixteen_bits_are_refused(name, dtype):
    """Nothing would be narrower."""
    with pytest.raises(ValueError, match=f"codec {name} .*fp32"):
        codec_stream(name, dtype, "encode", 1, b"\0\0")


@pytest.mark.parametrize("wire", ["bf16", "fp16"])
def test_stochastic_rounding_has_no_bias(wire):
    """Between neighbours, the share of the upper one is the fraction."""
    one_and = 1 + 2.0 ** -(8 if wire == "bf16" else 11) * np.repeat([0.25, 1, 1.5], 40000)
    x = patterns("fp32", one_and)
    got = np.frombuffer(codec_stream(f"wire-{wire}-stoch", "fp32", "encode", len(x), x.tobytes()), PAYLOADS[wire].word)
    upper = PAYLOADS[wire].to_fp32(got).reshape(3, -1) > 1
    assert np.abs(upper.mean(1) - [0.125, 0.5, 0.75]).max() < 0.01


def truncated(x, more=0):
    return ((x.view(np.uint32) + np.uint32(more)) & np.uint32(0xFFFF0000)).view(np.float32)


MISTAKES = {
    "cut off": ("wire-bf16", lambda x, right: truncated(x)),
    "ties away from zero": ("wire-bf16", lambda x, right: truncated(x, 0x8000)),
    "saturates": ("wire-fp16", lambda x, right: np.where(np.isnan(x), x, np.clip(x, -65504, 65504))),
    "subnormals are flushed": ("wire-fp16", lambda x, right: np.where(np.abs(x) < 2.0**-14, x * 0, x)),
    "negative numbers are not drawn": ("wire-bf16-stoch", lambda x, right: np.where(x < 0, truncated(x), right(x))),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(mistake):
    name, wrong = MISTAKES[mistake]
    codec, x = narrow_oracle.find(name), payload("fp32")
    values = PAYLOADS["fp32"].to_fp32(x)
    with np.errstate(all="ignore"):
        made = wrong(values, codec.neighbours).astype(np.float32)
    wire = dataclasses.replace(codec, stochastic=False).encode("fp32", made.view(np.uint32))
    assert report(codec.encode("fp32", x), wire, mistake)
