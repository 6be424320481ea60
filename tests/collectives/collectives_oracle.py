"""A second definition of every collective's result: one plain function per algorithm, from the comment at the head of
its file and from reference/codecs/SPEC.md, "Accumulation", not from the executor. There are no schedules here, no steps
and no tiles.

Elements are NumPy arrays of the dtype, one for each rank. A sum adds float64 values and rounds here, by its own rounding. In
float64 the sum of two elements of any dtype is exact, or precise enough that a second rounding is one correct rounding
(53 >= 2 p + 2 bits). The codec is a black box: what was encoded, sent and decoded is through(x).
"""

import functools
import math
from typing import NamedTuple, Optional

import ml_dtypes
import numpy as np

import arlab

TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
WORDS = {"fp16": np.uint16, "bf16": np.uint16, "fp32": np.uint32}
NAN = {"fp16": 0x7E00, "bf16": 0x7FC0, "fp32": 0x7FC00000}
FORMATS = {"fp16": (10, -14, 16), "bf16": (7, -126, 128), "fp32": (23, -126, 128)}  # mantissa bits, smallest and first too large exponent


def values_of(x):
    with np.errstate(invalid="ignore"):  # signaling NaNs
        return x.astype(np.float64)


def elements_of(dtype, values):
    """The elements that have exactly these values; any NaN is the canonical one."""
    with np.errstate(all="ignore"):
        elements = values.astype(np.float32).astype(TYPES[dtype])
    elements.view(WORDS[dtype])[np.isnan(values)] = NAN[dtype]
    return elements


@np.errstate(all="ignore")
def nearest(dtype, values):
    """The nearest value of a dtype, ties to even: a whole number of units in the last place."""
    mantissa, smallest, too_large = FORMATS[dtype]
    unit = np.ldexp(1.0, np.maximum(np.frexp(values)[1] - 1, smallest) - mantissa)
    rounded = np.rint(values / unit) * unit
    rounded = np.where(np.abs(rounded) < 2.0**too_large, rounded, np.copysign(np.inf, values))
    return np.where(np.isfinite(values), rounded, values)


@functools.lru_cache(1 << 14)  # the same is sent under many options
def arrived(codec, dtype, sent):
    x = np.frombuffer(sent, TYPES[dtype])
    return arlab.decode(arlab.encode(x, codec), codec, dtype, len(x))


class Oracle(NamedTuple):
    """How one rank reduces: the codec, the dtype and the rule of the sum."""

    codec: str
    dtype: str = "fp16"
    accumulate: str = "native"
    inner: Optional[str] = None  # codec of messages inside groups, where they have one of their own

    @property
    def inside(self):
        return self._replace(codec=self.inner or self.codec)

    @property
    def alignment(self):
        return math.lcm(*(arlab.codec_info(codec)["alignment"] for codec in (self.codec, self.inner or self.codec)))

    def through(self, x):
        """Returns the values that arrive where x was sent. (That plain codecs change nothing,
        test_quickreduce_oracle.py says.)"""
        return x if self.codec == self.dtype else arrived(self.codec, self.dtype, x.tobytes())

    def rounded(self, to, total):
        """The RN of a sum to a type; a finite fp16 sum that overflows clamps with qr-*."""
        result = nearest(to, total)
        if not self.codec.startswith("qr-") or to != "fp16":
            return result
        return np.where(np.isinf(result) & ~np.isinf(total), np.copysign(65504.0, total), result)

    @np.errstate(invalid="ignore")
    def sum(self, addends, start):
        """From "zero", or from the "first" addend."""
        to = "fp32" if self.accumulate == "fp32" else self.dtype
        if start == "first" and len(addends) == 1 and to == self.dtype:
            return addends[0]  # without any addition there is nothing to round, not even a NaN
        addends = [values_of(x) for x in addends]
        total = np.zeros(len(addends[0])) if start == "zero" else addends.pop(0)
        for x in addends:
            total = self.rounded(to, total + x)
        return elements_of(self.dtype, total if to == self.dtype else self.rounded(self.dtype, total))

    def contribution(self, x, is_own, own):
        """The contribution of a rank where it is reduced: by itself, or by another rank."""
        return x if is_own and own == "exact" else self.through(x)


def parts_of(elements, parts, alignment):
    """A tensor that is cut into parts of nearly equal size at multiples of the alignment, longer parts first."""
    units = -(-elements // alignment)
    ends = [min((part * (units // parts) + min(part, units % parts)) * alignment, elements) for part in range(parts + 1)]
    return [slice(begin, end) for begin, end in zip(ends, ends[1:])]


def chunk_by_chunk(x, parts, alignment, reduce_chunk):
    """Cuts all payloads into parts, calls reduce_chunk(owner, inputs of the chunk) for each, and puts the outputs together."""
    chunks = [(owner, part) for owner, part in enumerate(parts_of(len(x[0]), parts, alignment)) if part.start < part.stop]
    results = [reduce_chunk(owner, [rank[part] for rank in x]) for owner, part in chunks]
    return [np.concatenate(pieces) for pieces in zip(*results)]


# ---------------------------------------------------------------- all-reduces


def one_shot(o, x, own):
    """Every rank sums what all sent, in ascending rank order, from the first addend."""
    arrived = [o.through(rank) for rank in x]
    if own == "encoded":
        return [o.sum(arrived, "first")] * len(x)
    return [o.sum([x[me] if rank == me else arrived[rank] for rank in range(len(x))], "first") for me in range(len(x))]


def two_shot(o, x, own):
    """The owner of a chunk sums in ascending rank order from +0; everybody decodes its one message."""

    def of_chunk(owner, x):
        addends = [o.contribution(each, rank == owner, own) for rank, each in enumerate(x)]
        return [o.through(o.sum(addends, "zero"))] * len(x)

    return chunk_by_chunk(x, len(x), o.alignment, of_chunk)


def ring_order(ring, rings, n):
    """Ring `ring` of several enters every server of as many ranks at its rank `ring`, and visits 0, +1, -1, +2, -2, ... from
    there; in every second server it does all that backwards."""
    if rings == 1:
        return list(range(n))
    away = [0] + [sign * distance for distance in range(1, rings) for sign in (1, -1)]
    walk = [(ring + each) % rings for each in away[:rings]]
    return [server * rings + member for server in range(n // rings) for member in (walk[::-1] if server % 2 else walk)]


def ring(o, x, own, forward, rings):
    """Chunk c starts at rank c + 1; every next rank adds what arrives to its own; rank c owns the sum."""
    n = len(x)

    def of_chunk(part, x):
        order, owner = ring_order(part // n, rings, n), part % n
        partial = x[order[(owner + 1) % n]]
        for hop in range(1, n):
            mine = x[order[(owner + 1 + hop) % n]]
            partial = o.sum([o.contribution(mine, True, own), o.through(partial)], "first")
        outputs = [None] * n
        result = o.through(partial)
        for hop in range(n):
            # The owner sends what it encoded; ranks that pass it on may encode it again.
            result = o.through(result) if forward == "reencoded" and hop > 1 else result
            outputs[order[(owner + hop) % n]] = result
        return outputs

    return chunk_by_chunk(x, n * rings, o.alignment, of_chunk)


def halving_doubling(o, x, own):
    """All decode what the owner encoded of its sum, which it has when distance 1 is done."""
    p = 1 << (len(x).bit_length() - 1)

    def halved(x, rank, distance):
        """The partial sum of a rank after it has folded and halved down to `distance`."""
        if distance == p:
            if p + rank >= len(x):
                return x[rank]
            mine, other = x[rank], x[p + rank]
        else:
            mine, other = halved(x, rank, 2 * distance), halved(x, rank ^ distance, 2 * distance)
        return o.sum([o.contribution(mine, True, own), o.through(other)], "first")

    return chunk_by_chunk(x, p, o.alignment, lambda owner, x: [o.through(halved(x, owner, 1))] * len(x))


def hierarchical(o, x, own, group_size, micro_chunks=1):
    """In each group the owner sums the members from +0; the owners of a chunk sum the groups' partial sums from +0, each for its
    own group. Micro-chunks make no difference where the codec may be cut."""
    groups = len(x) // group_size

    def of_chunk(owner, x):
        partials = []
        for group in range(groups):
            members = x[group * group_size :][:group_size]
            addends = [o.inside.contribution(each, member == owner, own) for member, each in enumerate(members)]
            partials.append(o.inside.sum(addends, "zero"))
        outputs = []
        for group in range(groups):
            addends = [o.contribution(each, other == group, own) for other, each in enumerate(partials)]
            # With one group there is nothing to exchange: the partial sum is the sum.
            total = partials[0] if groups == 1 else o.sum(addends, "zero")
            outputs += [o.inside.through(total)] * group_size
        return outputs

    return chunk_by_chunk(x, group_size, o.alignment, of_chunk)


def tree(o, x, own, micro_chunks=1):
    """All decode what the root encoded; the second half of the tensor climbs the mirrored tree."""

    def climbed(x, position):
        """The sum at a position of the heap-like tree and all below it; the own value comes first."""
        below = [child for child in (2 * position + 1, 2 * position + 2) if child < len(x)]
        if not below:
            return x[position]
        addends = [o.contribution(x[position], True, own), *(o.through(climbed(x, child)) for child in below)]
        return o.sum(addends, "first")

    return chunk_by_chunk(x, 2, o.alignment, lambda half, x: [o.through(climbed(x[::-1] if half else x, 0))] * len(x))


# ---------------------------------------------------------------- other collectives


def reduce_scatter(o, x, own):
    def of_slot(owner, x):
        total = o.sum([o.contribution(each, rank == owner, own) for rank, each in enumerate(x)], "zero")
        return [total if rank == owner else each for rank, each in enumerate(x)]

    return chunk_by_chunk(x, len(x), 1, of_slot)


def hierarchical_reduce_scatter(o, x, own, group_size):
    """In each group, the member with the owner's place sums the members; the owner sums what these have."""
    groups = len(x) // group_size

    def of_slot(owner, x):
        partials = []
        for group in range(groups):
            members = enumerate(x[group * group_size :][:group_size])
            mine = owner % group_size
            addends = [o.inside.contribution(each, member == mine, own) for member, each in members]
            partials.append(o.inside.sum(addends, "zero"))
        addends = [o.contribution(each, group == owner // group_size, own) for group, each in enumerate(partials)]
        total = partials[0] if groups == 1 else o.sum(addends, "zero")
        return [total if rank == owner else each for rank, each in enumerate(x)]

    return chunk_by_chunk(x, len(x), 1, of_slot)


def all_gather(o, x, own):
    return chunk_by_chunk(x, len(x), 1, lambda owner, x: [o.contribution(x[owner], rank == owner, own) for rank in range(len(x))])


def broadcast(o, x, own):
    """A codec's blocks are not cut."""
    return chunk_by_chunk(x, len(x), o.alignment, lambda _, x: [o.contribution(x[0], rank == 0, own) for rank in range(len(x))])


def all_to_all(o, x, own, combine):
    """Returns the ranks' results of an exchange, slot by slot; with its combine, every slot comes back to where it came
    from."""
    slots = np.reshape(x, (len(x), len(x), -1)).copy()
    for source, target in np.ndindex(slots.shape[:2]):
        slots[source, target] = o.contribution(slots[source, target], source == target, own)
        if combine == "quantized":
            slots[source, target] = o.inside.contribution(slots[source, target], source == target, own)
    return list((slots if combine == "quantized" else slots.swapaxes(0, 1)).reshape(len(x), -1))


ALGORITHMS = {"hierarchical_pipelined": hierarchical}
ALGORITHMS |= {f.__name__: f for f in (one_shot, two_shot, ring, halving_doubling, hierarchical, tree)}
ALGORITHMS |= {f.__name__: f for f in (reduce_scatter, hierarchical_reduce_scatter, all_gather, broadcast, all_to_all)}
