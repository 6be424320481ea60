"""Common parts of the NumPy oracles of the newer codec families: payload types, blocks, bit planes, wire chunks.

From reference/codecs/SPEC.md, "Wire chunks and bit planes", alone. Payloads are bit patterns
(uint16 or uint32), wires uint8 arrays. Arithmetic is NumPy ufuncs on float32 arrays: one rounding each,
never fused.
"""

from typing import NamedTuple

import ml_dtypes
import numpy as np

CHUNK = 4096  # elements
PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 7: (4, 2, 1), 8: (8,)}  # widths, low bits first


class Payload(NamedTuple):
    """A payload's dtype."""

    type: type
    word: type  # holds its bit patterns
    nan: int  # the bit pattern that a decoder writes
    largest: float  # the largest finite number

    @property
    def bytes(self):
        return np.dtype(self.word).itemsize

    def to_fp32(self, patterns):
        """Any shape of bit patterns to float32, exact."""
        with np.errstate(invalid="ignore"):
            return np.asarray(patterns, self.word).view(self.type).astype(np.float32)

    def from_fp32(self, values):
        """RN to the dtype, as bit patterns, with the canonical NaN."""
        with np.errstate(all="ignore"):
            patterns = np.asarray(values, np.float32).astype(self.type).view(self.word)
        return np.where(np.isnan(values), self.word(self.nan), patterns)

    def saturated(self, values, finite_metadata):
        """The same, with what is beyond the largest number as that number, in rows whose metadata is finite."""
        limit = np.where(finite_metadata, np.float32(self.largest), np.float32(np.inf))[:, None]
        return self.from_fp32(np.clip(values, -limit, limit))  # a NaN stays

    def canonical(self, patterns):
        """The same patterns, every NaN the canonical one."""
        return np.where(np.isnan(self.to_fp32(patterns)), self.word(self.nan), patterns)


PAYLOADS = {
    "fp16": Payload(np.float16, np.uint16, 0x7E00, 65504.0),
    "bf16": Payload(ml_dtypes.bfloat16, np.uint16, 0x7FC0, 2.0**128 - 2.0**120),
    "fp32": Payload(np.float32, np.uint32, 0x7FC00000, 2.0**128 - 2.0**104),
}


# Random numbers, and stochastic rounding.


class Context(NamedTuple):
    """Inputs of a stochastic codec's random bits, beside an element's place in the message."""

    seed: int = 0
    call: int = 0
    rank: int = 0
    step: int = 0
    position: int = 0


def philox4x32(counters, key):
    """[..., 4] uint32 to the four words of Philox4x32-10."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    x = [counters[..., i].astype(np.uint64) for i in range(4)]
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [b >> high ^ x[1] ^ np.uint64(keys[0]), b & low, a >> high ^ x[3] ^ np.uint64(keys[1]), a & low]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(x, -1).astype(np.uint32)


def random_bits(context, elements):
    """24 random bits of each of the elements from the context's position on."""
    position = context.position + np.arange(elements, dtype=np.uint64)
    counters = np.empty((elements, 4), np.uint32)
    counters[:, 0] = position & np.uint64(0xFFFFFFFF)
    counters[:, 1] = np.uint32(context.rank) ^ (position >> np.uint64(32) << np.uint64(16)).astype(np.uint32)
    counters[:, 2:] = context.step, context.call
    return philox4x32(counters, context.seed)[:, 0] >> np.uint32(8)


def stochastic(x, bits):
    """float32 to integers: up if and only if the 24 random bits are below the fraction."""
    x = np.where(np.abs(x) < 2**22, x, np.rint(x)).astype(np.float64)  # NaN: no block of numbers
    below = np.floor(x)
    return (below + (bits < (x - below) * 2**24)).astype(np.float32)


# Blocks: [blocks, group] arrays of which the last row may be short.


def repeat_first(blocks, elements):
    """Fills the last row behind the real elements with its first one, in place.

    A copy of the first element changes no extreme, no place of a first extreme, and no finiteness.
    """
    real = elements - (len(blocks) - 1) * blocks.shape[1]
    blocks[-1, real:] = blocks[-1, 0]
    return blocks


def in_blocks(patterns, group):
    """[elements] as [blocks, group], filled up with zeros."""
    blocks = -(-len(patterns) // group)
    padded = np.zeros(blocks * group, patterns.dtype)
    padded[: len(patterns)] = patterns
    return padded.reshape(blocks, group)


def block_lengths(elements, group):
    """[blocks]: the real elements of each."""
    return np.minimum(elements - np.arange(0, elements, group), group)


# Bit planes.


def plane_bytes(bits, elements):
    return sum(-(-elements * width // 8) for width in PLANES[bits])


def pack_plane(codes, width):
    """[chunks, n] codes below 2^width: element i in bits (i * width) mod 8 of byte i * width / 8."""
    if width == 8:
        return codes
    if width == 1:
        return np.packbits(codes, axis=1, bitorder="little")
    per_byte = 8 // width
    short = -codes.shape[1] % per_byte
    codes = np.pad(codes, ((0, 0), (0, short))) if short else codes
    packed = codes[:, ::per_byte].copy()
    for place in range(1, per_byte):
        packed |= codes[:, place::per_byte] << np.uint8(place * width)
    return packed


def unpack_plane(packed, width, elements):
    if width == 8:
        return packed
    if width == 1:
        return np.unpackbits(packed, axis=1, bitorder="little", count=elements)
    per_byte = 8 // width
    codes = np.empty((*packed.shape, per_byte), np.uint8)
    for place in range(per_byte):
        codes[..., place] = packed >> np.uint8(place * width) & np.uint8((1 << width) - 1)
    return codes.reshape(len(packed), -1)[:, :elements]


def pack_codes(codes, bits):
    """[chunks, n] uint8 codes as [chunks, bytes]."""
    planes, low = [], 0
    for width in PLANES[bits]:
        planes.append(pack_plane(codes >> np.uint8(low) & np.uint8((1 << width) - 1), width))
        low += width
    return np.concatenate(planes, 1)


def unpack_codes(packed, bits, elements):
    codes, low, start = np.zeros((len(packed), elements), np.uint8), 0, 0
    for width in PLANES[bits]:
        end = start + -(-elements * width // 8)
        codes |= unpack_plane(packed[:, start:end], width, elements) << np.uint8(low)
        low, start = low + width, end
    return codes


# Wire chunks: the planes of their codes, then one array per kind of metadata.


class Layout(NamedTuple):
    """How codes and metadata of a message of `elements` codes lie on the wire."""

    bits: int
    group: int
    chunk: int  # elements, a multiple of the group
    elements: int
    widths: tuple  # bytes of one block's entry in each array of metadata

    @property
    def runs(self):
        """(chunks, elements in each) of the full ones and of the rest."""
        full, rest = divmod(self.elements, self.chunk)
        return [(count, length) for count, length in ((full, self.chunk), (1, rest)) if count and length]

    def chunk_bytes(self, length):
        return plane_bytes(self.bits, length) + -(-length // self.group) * sum(self.widths)

    @property
    def bytes(self):
        return sum(count * self.chunk_bytes(length) for count, length in self.runs)

    def join(self, codes, metadata):
        """[elements] codes and a [blocks] array of little-endian numbers per width, as wire bytes."""
        columns = [np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1) for array in metadata]
        assert tuple(column.shape[1] for column in columns) == self.widths
        wire, element, block = [np.zeros(0, np.uint8)], 0, 0
        for count, length in self.runs:
            blocks = -(-length // self.group)
            parts = [pack_codes(codes[element : element + count * length].reshape(count, length), self.bits)]
            parts += [column[block : block + count * blocks].reshape(count, -1) for column in columns]
            wire.append(np.concatenate(parts, 1).reshape(-1))
            element, block = element + count * length, block + count * blocks
        return np.concatenate(wire)

    def split(self, wire):
        """Wire bytes to [elements] codes and the [blocks, width] uint8 arrays of metadata."""
        assert len(wire) == self.bytes
        codes, columns, start = [], [[] for _ in self.widths], 0
        for count, length in self.runs:
            end = start + count * self.chunk_bytes(length)
            chunks = wire[start:end].reshape(count, -1)
            place = plane_bytes(self.bits, length)
            codes.append(unpack_codes(chunks[:, :place], self.bits, length).reshape(-1))
            for column, width in zip(columns, self.widths):
                size = -(-length // self.group) * width
                column.append(chunks[:, place : place + size].reshape(-1, width))
                place += size
            start = end
        return np.concatenate(codes), [np.ascontiguousarray(np.concatenate(column)) for column in columns]


def chunk_of(group):
    """4096, or the largest multiple of the group up to it, or the group when that is larger."""
    return max(group, CHUNK // group * group)
