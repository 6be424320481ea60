"""The codecs logfmt<n>-g<G> in NumPy, from reference/codecs/SPEC.md alone: the C++ reference's oracle."""

import re
from typing import NamedTuple

import numpy as np

from wire_oracle import PAYLOADS, Layout, chunk_of, in_blocks, repeat_first

F = np.float32
FP16 = PAYLOADS["fp16"]


def log2(x):
    """float32 > 0 and finite, any shape: an exponent and an odd series around 1, each operation rounded."""
    x = np.asarray(x, np.float32)
    subnormal = x < F(2.0**-126)
    bits = (x * np.where(subnormal, F(2.0**24), F(1))).view(np.uint32)
    above = bits - np.uint32(0x3F3504F3)  # sqrt(1/2): m lies in [sqrt(1/2), sqrt(2))
    exponent = np.where(subnormal, -24, 0).astype(np.int32) + (above.view(np.int32) >> 23)
    m = ((above & np.uint32(0x007FFFFF)) + np.uint32(0x3F3504F3)).view(np.float32)
    t = (m - F(1)) / (m + F(1))
    t2 = t * t
    series = t * (F(2.885390082) + t2 * (F(0.961796694) + t2 * (F(0.577078016) + t2 * F(0.412198583))))
    return exponent.astype(np.float32) + series


def exp2(y):
    """float32, any shape: 0 below -150 and for a NaN, infinite from 128."""
    y = np.asarray(y, np.float32)
    inside = (y >= F(-150)) & (y < F(128))
    inner = np.where(inside, y, F(0))
    whole = (inner + F(12582912)) - F(12582912)
    f = (inner - whole) * F(0.693147181)
    e = F(0.0416666667) + f * (F(0.00833333333) + f * F(0.00138888889))
    e = F(1) + f * (F(1) + f * (F(0.5) + f * (F(0.166666667) + f * e)))
    n = whole.astype(np.int32)
    half = np.trunc(n / 2).astype(np.int32)
    result = (e * np.ldexp(F(1), half)) * np.ldexp(F(1), n - half)  # powers of two, none subnormal
    return np.where(inside, result, np.where(y >= F(128), F(np.inf), F(0)))


def block_values(low, step, bits):
    """[blocks] lo and step as [blocks, 2^(bits-1)] float32: v(0) = 0, v(K) = exp2(lo + (K-1) * step)."""
    k = np.arange((1 << (bits - 1)) - 1, dtype=np.float32)
    v = exp2(low[:, None] + k * step[:, None])
    return np.concatenate([np.zeros((len(v), 1), np.float32), v], 1)


def smallest_reaching(values, x):
    """[blocks, M + 1] values and [blocks, G] x: the smallest K >= 1 with v(K) >= x, at most M + 1.

    By bisection in the running maximum, which reaches x where the values first do, rising or not.
    """
    last = values.shape[1] - 1
    peaks = np.maximum.accumulate(values[:, 1:], 1).reshape(-1)
    row = np.arange(len(x))[:, None] * last
    below = np.zeros(x.shape, np.int64)  # how many of the first values are known to be < x
    step = 1 << (last.bit_length() - 1)
    while step:
        more = below + step
        below = np.where((more <= last) & (peaks[row + np.minimum(more, last) - 1] < x), more, below)
        step //= 2
    return below + 1


class LogFMT(NamedTuple):
    name: str
    bits: int
    group: int

    def layout(self, elements):
        return Layout(self.bits, self.group, chunk_of(self.group), elements, (2, 2))

    def wire_bytes(self, dtype, elements):
        del dtype
        return self.layout(elements).bytes

    def encode(self, dtype, payload):
        """Bit patterns to wire bytes, as a uint8 array."""
        elements = len(payload)
        if not elements:
            return np.zeros(0, np.uint8)
        x = PAYLOADS[dtype].to_fp32(in_blocks(payload, min(self.group, elements)))
        with np.errstate(all="ignore"):
            codes, metadata = self.quantize(repeat_first(x, elements))
        return self.layout(elements).join(codes.reshape(-1)[:elements], metadata)

    def encode_and_count(self, dtype, payload):
        """The wire, and a count of clamped elements: none, the format has no range to leave."""
        return self.encode(dtype, payload), 0

    def quantize(self, x):
        """[blocks, G] float32 to codes and the arrays lo and step."""
        finite = np.isfinite(x).all(1)
        size = np.where(finite[:, None], np.abs(x), F(0))
        largest = size.max(1)
        empty = largest == 0
        smallest = np.where(size == 0, F(np.inf), size).min(1)

        high = log2(np.where(empty, F(1), largest))
        low = np.maximum(log2(np.where(empty, F(1), smallest)), high - F(32))
        if self.bits == 2:
            low, step = high, np.zeros_like(high)
        else:
            step = (high - low) / F((1 << (self.bits - 1)) - 2)
        low_bits = np.where(empty, np.uint16(0), FP16.from_fp32(low))
        step_bits = np.where(empty, np.uint16(0), FP16.from_fp32(step))

        v = block_values(FP16.to_fp32(low_bits), FP16.to_fp32(step_bits), self.bits)
        top = v.max(1, keepdims=True)
        k = smallest_reaching(v, np.minimum(size, top))
        row = np.arange(len(x))[:, None] * v.shape[1]
        here, under = v.reshape(-1)[row + k], v.reshape(-1)[row + k - 1]
        k -= (size <= top) & (size - under < here - size)  # the middle goes to the larger
        k[size == 0] = 0
        sign = np.signbit(x) & (k > 0)
        codes = (k | sign.astype(np.int64) << (self.bits - 1)).astype(np.uint8)
        codes[~finite] = 0
        return codes, [
            np.where(finite, low_bits, np.uint16(FP16.nan)),
            np.where(finite, step_bits, np.uint16(0)),
        ]

    def decode(self, dtype, wire, elements):
        """Wire bytes to bit patterns."""
        t = PAYLOADS[dtype]
        if not elements:
            return np.zeros(0, t.word)
        codes, metadata = self.layout(elements).split(np.frombuffer(wire, np.uint8))
        codes = in_blocks(codes, min(self.group, elements)).astype(np.int64)
        low, step = (FP16.to_fp32(array.view(np.uint16)[:, 0]) for array in metadata)
        with np.errstate(all="ignore"):
            v = block_values(low, step, self.bits)
        k = codes & ((1 << (self.bits - 1)) - 1)
        x = v.reshape(-1)[np.arange(len(codes))[:, None] * v.shape[1] + k]
        x = np.where(codes >> (self.bits - 1) > 0, -x, x)
        finite = np.isfinite(low) & np.isfinite(step)
        patterns = t.saturated(x, finite)
        patterns[~finite] = t.nan
        return patterns.reshape(-1)[:elements]


def find(name):
    """The codec of a name."""
    part = re.fullmatch(r"logfmt([2-8])-g(\d+)", name)
    assert part, name
    return LogFMT(name, int(part[1]), int(part[2]))
