"""The QuickReduce codecs in NumPy, from reference/codecs/SPEC.md alone: the oracle of the C++ reference.

Works on whole arrays; every arithmetic operation is one NumPy ufunc on float16 or bfloat16, which
computes in fp32 and rounds once to the type. An fp32 sum, product or quotient of two such numbers,
rounded again to 11 or fewer bits, is the correctly rounded one (24 >= 2 * 11 + 2).
"""

from typing import Callable, NamedTuple

import ml_dtypes
import numpy as np

ATOM = 2048  # elements
GROUP = 64  # elements: two interleaved blocks
LARGEST_FP16 = np.float16(65504)


class Element(NamedTuple):
    """The dtype T of the payload, and the arithmetic in it."""

    type: type
    eps: int  # bit pattern
    nan: int  # bit pattern
    overflow_clamps: bool

    def from_bits(self, bits):
        return np.asarray(bits, np.uint16).view(self.type)

    def clamped(self, result, *operands):
        """An overflow of finite operands, and 1/0, become +-65504 in fp16."""
        if not self.overflow_clamps:
            return result
        overflowed = np.isinf(result)
        for operand in operands:
            overflowed &= np.isfinite(operand)
        return np.where(overflowed, np.copysign(LARGEST_FP16, result), result)

    def multiply(self, a, b):
        return self.clamped(a * b, a, b)

    def add(self, a, b):
        return self.clamped(a + b, a, b)

    def reciprocal(self, a):
        return self.clamped(self.type(1) / a, a)


FP16 = Element(np.float16, eps=0x0001, nan=0x7E00, overflow_clamps=True)
BF16 = Element(ml_dtypes.bfloat16, eps=0x33D7, nan=0x7FC0, overflow_clamps=False)
ELEMENTS = {"fp16": FP16, "bf16": BF16}


def little_endian(array, code):
    """[atoms, n] unsigned numbers as [atoms, bytes]."""
    return np.ascontiguousarray(array.astype(code)).view(np.uint8).reshape(len(array), -1)


def pack(codes, shifts, code):
    """One word per thread: [atoms, 256, 8] codes, element j shifted left by shifts[j]."""
    return little_endian((codes.astype(np.uint32) << np.array(shifts, np.uint32)).sum(-1, dtype=np.uint32), code)


def unpack(wire, shifts, mask, code):
    words = np.ascontiguousarray(wire).view(code).astype(np.uint32)
    return (words[..., None] >> np.array(shifts, np.uint32) & np.uint32(mask)).astype(np.uint8)


PAIRS_APART = [0, 16, 4, 20, 8, 24, 12, 28]  # element 2i at 4i, element 2i+1 at 16+4i
NIBBLES = [4 * j for j in range(8)]
CRUMBS = [2 * j for j in range(8)]
BITS = list(range(8))
Q8_ORDER = [0, 2, 1, 3, 4, 6, 5, 7]  # its own inverse


def pack_q8(codes):
    return codes[..., Q8_ORDER].reshape(len(codes), -1)


def unpack_q8(wire):
    return wire.reshape(len(wire), -1, 8)[..., Q8_ORDER]


def pack_q6(codes):
    return np.concatenate([pack(codes & 15, PAIRS_APART, "<u4"), pack(codes >> 4, CRUMBS, "<u2")], 1)


def unpack_q6(wire):
    low, high = wire[:, :1024], wire[:, 1024:]
    return unpack(low, PAIRS_APART, 15, "<u4") | unpack(high, CRUMBS, 3, "<u2") << 4


def pack_q3(codes):
    return np.concatenate([pack(codes & 3, CRUMBS, "<u2"), pack(codes >> 2, BITS, "<u1")], 1)


def unpack_q3(wire):
    low, high = wire[:, :512], wire[:, 512:]
    return unpack(low, CRUMBS, 3, "<u2") | unpack(high, BITS, 1, "<u1") << 2


class QuickReduce(NamedTuple):
    name: str
    scales_at: int  # bytes in an atom, behind the codes
    pack: Callable
    unpack: Callable
    levels: int = 0  # L: codes are integers, -L .. L-1
    minifloat: type = None  # or floats of this type
    largest: float = 0  # the minifloat's
    rounds_outside: float = 0  # half way to what would follow the largest, where ties go
    k_bits: dict = {}  # for minifloats: the spec's fp16 constant, and that constant rounded to bf16
    magnitude: bool = False  # m is the largest magnitude, without its sign
    nan_code: int = 0  # for minifloats: the result of 0 * (1/0)

    @property
    def atom_bytes(self):
        return self.scales_at + 4 * (ATOM // GROUP)

    def wire_bytes(self, dtype, elements):
        del dtype
        return -(-elements // ATOM) * self.atom_bytes

    def k(self, element):
        if self.minifloat:
            return element.from_bits(self.k_bits[element])
        return element.type(-1 / self.levels)

    def encode(self, dtype, payload):
        """uint16 patterns to wire bytes, as a uint8 array."""
        wire, _ = self.encode_and_count(dtype, payload)
        return wire

    def encode_and_count(self, dtype, payload):
        """The wire, and how many elements had a rounded code outside of the code range."""
        t = ELEMENTS[dtype]
        atoms = -(-len(payload) // ATOM)
        bits = np.zeros(atoms * ATOM, np.uint16)
        bits[: len(payload)] = payload
        groups = bits.reshape(-1, GROUP // 2, 2)
        x = t.from_bits(groups.swapaxes(0, 1).copy())  # [place in the block, group, block]

        with np.errstate(all="ignore"):
            finite = np.isfinite(x).all(0)
            d = t.multiply(self.extreme(x), self.k(t))
            e = t.reciprocal(t.add(d, t.from_bits(t.eps)))
            w = t.multiply(x, e).astype(np.float32)
            codes, outside = self.quantize(w)
        codes = (codes * finite).swapaxes(0, 1)
        outside = (outside & finite).swapaxes(0, 1)
        scales = np.where(finite, d.view(np.uint16), np.uint16(t.nan))

        wire = [self.pack(codes.reshape(atoms, ATOM // 8, 8)), little_endian(scales.reshape(atoms, -1), "<u2")]
        return np.concatenate(wire, 1).reshape(-1), int(outside.reshape(-1)[: len(payload)].sum())

    def extreme(self, x):
        """The m of each block."""
        wide = x.astype(np.float32)
        if self.magnitude:
            return np.abs(wide).max(0).astype(x.dtype)
        largest, smallest = wide.max(0), wide.min(0)
        # -0 is smaller than +0.
        smallest = np.where((smallest == 0) & np.signbit(wide).any(0), np.float32(-0.0), smallest)
        return np.where(np.abs(largest) > np.abs(smallest), largest, smallest).astype(x.dtype)

    def quantize(self, w):
        """w (exact in fp32) to codes on the wire, and which ones had no code of their own."""
        if self.minifloat:
            inside = np.clip(w, -self.largest, self.largest)
            codes = np.where(np.isnan(w), self.nan_code, inside.astype(self.minifloat).view(np.uint8))
            return codes.astype(np.uint8), ~(np.abs(w) < self.rounds_outside)
        inside = np.fmin(np.fmax(w, np.float32(-self.levels)), np.float32(self.levels - 1))  # NaN: -L
        rounded = np.rint(inside)
        return (rounded + np.float32(self.levels)).astype(np.uint8), rounded != np.rint(w)

    def decode(self, dtype, wire, elements):
        """Wire bytes to uint16 patterns."""
        t = ELEMENTS[dtype]
        atoms = np.frombuffer(wire, np.uint8).reshape(-1, self.atom_bytes)
        codes = self.unpack(atoms[:, : self.scales_at])
        scales = np.ascontiguousarray(atoms[:, self.scales_at :]).view("<u2")

        codes = codes.reshape(-1, GROUP // 2, 2)
        if self.minifloat:
            values = codes.view(self.minifloat).astype(np.float32).astype(t.type)
        else:
            values = (codes.astype(np.float32) - self.levels).astype(t.type)
        with np.errstate(all="ignore"):
            x = t.multiply(values, t.from_bits(scales).reshape(-1, 1, 2))
        return np.where(np.isnan(x), np.uint16(t.nan), x.view(np.uint16)).reshape(-1)[:elements]


CODECS = {
    codec.name: codec
    for codec in [
        QuickReduce(
            "qr-fp8", 2048,
            pack=lambda codes: codes.reshape(len(codes), -1),
            unpack=lambda wire: np.ascontiguousarray(wire),
            minifloat=ml_dtypes.float8_e4m3fnuz, largest=240, rounds_outside=248,
            k_bits={FP16: 0x1C44, BF16: 0x3B88}, magnitude=True,
        ),
        QuickReduce("qr-q8", 2048, pack_q8, unpack_q8, levels=128),
        QuickReduce("qr-q6", 1536, pack_q6, unpack_q6, levels=32),
        QuickReduce(
            "qr-q4", 1024,
            pack=lambda codes: pack(codes, PAIRS_APART, "<u4"),
            unpack=lambda wire: unpack(wire, PAIRS_APART, 15, "<u4"),
            levels=8,
        ),
        QuickReduce("qr-q3", 768, pack_q3, unpack_q3, levels=4),
        QuickReduce(
            "qr-fp4", 1024,
            pack=lambda codes: pack(codes, NIBBLES, "<u4"),
            unpack=lambda wire: unpack(wire, NIBBLES, 15, "<u4"),
            minifloat=ml_dtypes.float4_e2m1fn, largest=6, rounds_outside=7,
            k_bits={FP16: 0x3155, BF16: 0x3E2B}, nan_code=0x8,
        ),
    ]
}  # fmt: skip
