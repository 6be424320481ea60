"""The any-bit integer codecs in NumPy, from reference/codecs/SPEC.md alone: the oracle of the C++ reference.

int<b>-g<G>, -sym, -sr, -sym-sr, -sr-is, had-int<b>-g<G>, had-int<b>-g<G>-sym, int<b>-gtensor, -sym,
-static<s>:<z>, -sym-static<s>; each also -stoch.
"""

import functools
import re
from typing import NamedTuple, Optional

import numpy as np

from wire_oracle import CHUNK, PAYLOADS, Context, Layout, block_lengths, chunk_of, in_blocks, random_bits, repeat_first, stochastic

F = np.float32
BF16 = PAYLOADS["bf16"]


@functools.cache
def integer_scales():
    """[256] float32: 2^(s/10), s = -128..127, correctly rounded.

    With s = 10 * e + r the significand is the 10th root of 2^(230 + r), an integer root and so exact.
    """
    values = []
    for s in range(-128, 128):
        e, r = divmod(s, 10)
        power = 1 << (230 + r)
        m = 1 << 23  # the largest m with m^10 <= power, bit by bit
        for bit in reversed(range(23)):
            if (m | 1 << bit) ** 10 <= power:
                m |= 1 << bit
        m += (2 * m + 1) ** 10 < power << 10  # nearer to the next; a tie would need a rational root
        values.append(np.ldexp(float(m), e - 23))  # exact: 24 bits
    return np.array(values, np.float32)


def hadamard(x):
    """[blocks, G] float32: Sylvester butterflies, strides 1, 2, 4, ..., then times RN(1 / sqrt(G))."""
    blocks, size = x.shape
    x = x.T.copy()
    stride = 1
    while stride < size:
        pairs = x.reshape(size // (2 * stride), 2, stride, blocks)
        x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1)
        stride *= 2
    # fp64 is within an ulp of its own, and 1/sqrt(2) is no tie of fp32: one rounding in effect.
    return (x.reshape(size, blocks) * F(1 / np.sqrt(np.float64(size)))).T.copy()


def bf16_patterns(values):
    """RN to bf16, with -0 as +0, also where a negative number rounds to it."""
    rounded = BF16.from_fp32(values)
    return np.where(rounded == 0x8000, np.uint16(0), rounded)


class AnyBit(NamedTuple):
    name: str
    bits: int
    group: Optional[int]  # None: the message
    symmetric: bool = False
    spikes: bool = False
    integer_scale: bool = False
    rotated: bool = False  # Hadamard
    static_scale: Optional[np.float32] = None
    static_zero: np.float32 = F(0)
    stochastic: bool = False
    context: Context = Context()

    def rounded(self, x):
        """[blocks, G] to integers: the nearest, or stochastically, each element with its own random bits."""
        if not self.stochastic:
            return np.rint(x)
        return stochastic(x, random_bits(self.context, x.size).reshape(x.shape))

    @property
    def offset(self):
        """Returns the difference of a code on the wire and its integer."""
        return 1 << (self.bits - 1) if self.symmetric else 0

    @property
    def top(self):
        return (1 << self.bits) - 1

    def layout(self, dtype, elements):
        payload = PAYLOADS[dtype].bytes
        if self.static_scale is not None:
            widths, group = (1,), CHUNK
        elif self.integer_scale:
            widths, group = (1, 1, payload, payload, 1, 1), self.group
        else:
            widths = (2,) if self.symmetric else (2, 2)
            widths += (payload, payload, 2, 2) if self.spikes else ()
            group = self.group or max(elements, 1)
        if self.rotated:
            elements = -(-elements // group) * group
        return Layout(self.bits, group, group if self.group is None else chunk_of(group), elements, widths)

    def wire_bytes(self, dtype, elements):
        return self.layout(dtype, elements).bytes

    def encode(self, dtype, payload):
        """Bit patterns to wire bytes, as a uint8 array."""
        return self.encode_and_count(dtype, payload)[0]

    def encode_and_count(self, dtype, payload):
        """The wire, and how many elements had a rounded code outside of the code range."""
        elements = len(payload)
        if not elements:
            return np.zeros(0, np.uint8), 0
        layout = self.layout(dtype, elements)
        width = layout.group if self.rotated else min(layout.group, elements)
        with np.errstate(all="ignore"):
            codes, outside, metadata = self.quantize(PAYLOADS[dtype], in_blocks(payload, width), elements)
        wire = layout.join(codes.reshape(-1)[: layout.elements], metadata)
        return wire, int(outside.reshape(-1)[:elements].sum())

    def quantize(self, t, patterns, elements):
        """[blocks, G] patterns to their codes, which ones were clamped, and the metadata arrays."""
        x = t.to_fp32(patterns)
        if self.rotated:
            x = hadamard(np.where(np.isfinite(x).all(1, keepdims=True), x, F(np.nan)))
        else:
            repeat_first(x, elements)
        finite = np.isfinite(x).all(1)
        if self.static_scale is not None:
            inverse = F(1) / self.static_scale
            raw = self.rounded((x - self.static_zero) * inverse if not self.symmetric else x * inverse)
            codes, outside = self.to_codes(raw, finite & np.isfinite(inverse), finite)
            return codes, outside, [np.where(finite, np.uint8(0), np.uint8(0xFF))]

        spikes = []
        if self.spikes:
            rows = np.arange(len(x))
            first, last = x.argmin(1), x.argmax(1)  # IEEE comparison, the first of equals
            spikes = [patterns[rows, first], patterns[rows, last], first, last]
            x[rows, first] = 0
            x[rows, last] = 0
            repeat_first(x, elements)

        low = x.min(1)
        if self.symmetric:
            scale = np.abs(x).max(1) / F((1 << (self.bits - 1)) - 1)
        else:
            scale = (x.max(1) - low) / F(self.top)
        scale_bits = bf16_patterns(scale)
        scale = BF16.to_fp32(scale_bits)
        finite &= np.isfinite(scale)
        if self.integer_scale:
            # Step 1's scale, rounded to bf16. A range that overflows has none.
            table = integer_scales()
            place = np.maximum(np.searchsorted(table, scale, side="right") - 1, 0)  # NaN: any
            step = table[place][:, None]
            zero = np.clip(np.rint(-low[:, None] / step), F(-128), F(127))
            raw = self.rounded(x / step) + zero
            codes, outside = self.to_codes(raw, finite, finite)
            zero = np.where(finite, zero[:, 0], F(0)).astype(np.int8)
            metadata = [np.where(finite, place - 128, 0).astype(np.int8), zero]
            minima = np.where(finite, spikes[0], t.word(t.nan))  # stands for the scale that is not there
            return codes, outside, metadata + [minima] + self.spike_metadata(t, spikes, finite, np.uint8)[1:]

        zero = np.zeros(len(x), np.float32)
        if not self.symmetric:
            zero_bits = bf16_patterns(low)
            zero = BF16.to_fp32(zero_bits)
            finite &= np.isfinite(zero)
        inverse = F(1) / scale
        raw = self.rounded(x * inverse[:, None] if self.symmetric else (x - zero[:, None]) * inverse[:, None])
        codes, outside = self.to_codes(raw, finite & np.isfinite(inverse), finite)
        metadata = [np.where(finite, scale_bits, np.uint16(BF16.nan))]
        if not self.symmetric:
            metadata.append(np.where(finite, zero_bits, np.uint16(0)))
        if self.spikes:
            metadata += self.spike_metadata(t, spikes, finite, np.uint16)
        return codes, outside, metadata

    @staticmethod
    def spike_metadata(t, spikes, finite, index):
        types = (t.word, t.word, index, index)
        return [np.where(finite, spike, 0).astype(kind) for spike, kind in zip(spikes, types)]

    def to_codes(self, raw, usable, finite):
        """Rounded integers to codes: 0 in a block that is not finite, the integer 0 without a scale."""
        usable = np.broadcast_to(usable, finite.shape)[:, None]
        low, high = F(-self.offset), F(self.top - self.offset)
        outside = ((raw < low) | (raw > high)) & usable
        codes = np.where(usable, np.clip(raw, low, high), F(0)) + F(self.offset)
        return np.where(finite[:, None], codes, F(0)).astype(np.uint8), outside

    def decode(self, dtype, wire, elements):
        """Wire bytes to bit patterns."""
        t = PAYLOADS[dtype]
        if not elements:
            return np.zeros(0, t.word)
        layout = self.layout(dtype, elements)
        codes, metadata = layout.split(np.frombuffer(wire, np.uint8))
        width = layout.group if self.rotated else min(layout.group, elements)
        q = in_blocks(codes, width).astype(np.float32) - F(self.offset)

        with np.errstate(all="ignore"):
            finite = np.ones(len(q), bool)  # all metadata of the block
            if self.static_scale is not None:
                x = q * self.static_scale
                x = x if self.symmetric else x + self.static_zero
                spoilt = metadata[0][:, 0] == 0xFF
            elif self.integer_scale:
                scale = integer_scales()[metadata[0].view(np.int8)[:, 0].astype(np.int64) + 128]
                x = (q - metadata[1].view(np.int8).astype(np.float32)) * scale[:, None]
                spoilt = np.isnan(t.to_fp32(metadata[2].view(t.word)[:, 0]))
            else:
                scale = BF16.to_fp32(metadata[0].view(np.uint16))
                x = q * scale
                finite = np.isfinite(scale[:, 0])
                if not self.symmetric:
                    zero = BF16.to_fp32(metadata[1].view(np.uint16))
                    x = zero + x
                    finite &= np.isfinite(zero[:, 0])
                spoilt = np.isnan(scale[:, 0])
            if self.rotated:
                x = hadamard(x)

        for spike in metadata[-4:-2] if self.spikes else []:
            finite &= np.isfinite(t.to_fp32(spike.view(t.word)[:, 0]))
        patterns = t.saturated(x, finite)
        if self.spikes:
            lengths = block_lengths(elements, width)
            minima, maxima = (t.canonical(spike.view(t.word)[:, 0]) for spike in metadata[-4:-2])
            first, last = (place.view(f"u{place.shape[1]}")[:, 0] for place in metadata[-2:])
            for spike, place in ((minima, first), (maxima, last)):
                rows = np.flatnonzero(place < lengths)
                patterns[rows, place[rows]] = spike[rows]
        patterns[spoilt] = t.nan
        return patterns.reshape(-1)[:elements]


NAME = re.compile(
    r"(?P<had>had-)?int(?P<bits>[2-8])-g(?P<group>\d+|tensor)(?P<sym>-sym)?"
    r"(?P<sr>-sr)?(?P<integer>-is)?(?P<stoch>-stoch)?(?:-static(?P<scale>[^:]+)(?::(?P<zero>.+))?)?"
)


def find(name):
    """The codec of a name."""
    part = NAME.fullmatch(name)
    assert part, name
    return AnyBit(
        name,
        bits=int(part["bits"]),
        group=None if part["group"] == "tensor" else int(part["group"]),
        symmetric=bool(part["sym"]),
        spikes=bool(part["sr"]),
        integer_scale=bool(part["integer"]),
        rotated=bool(part["had"]),
        static_scale=F(part["scale"]) if part["scale"] else None,
        static_zero=F(part["zero"] or 0),
        stochastic=bool(part["stoch"]),
    )


def encode(name, dtype, payload, context=Context()):
    return find(name)._replace(context=context).encode(dtype, payload)
