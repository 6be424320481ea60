"""Mistakes of kernel authors, planted one by one: with a claim every one is found, and nearly all are called by their name. Without a
claim, sums that hold a contribution too often or not at all are found, whoever owns which part."""

import ml_dtypes
import numpy as np
import pytest

import arlab
from arlab import conformance

BF16 = ml_dtypes.bfloat16
F32 = np.float32
CHUNK = 4096


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def bf16(x):
    return x.astype(BF16).astype(F32)


def cut_off(x):
    return (np.ascontiguousarray(x, F32).view(np.uint32) & np.uint32(0xFFFF0000)).view(F32)


def rows_of(x, group, fill=0):
    rows = np.full((-(-len(x) // group), group), fill, F32)
    rows.reshape(-1)[: len(x)] = x
    return rows


# ---------------------------------------------------------------- codecs, from SPEC.md


def integers(x, bits, group, mistake="", symmetric=False):
    """(codes, scales, zeros) of one wire chunk."""
    n = len(x)
    rows = rows_of(x, group)
    inside = np.arange(rows.size).reshape(rows.shape) < n
    seen = inside.copy()
    shown = rows
    if mistake == "window":  # from the second element on, as far as there are any
        late = np.append(x[1:].astype(F32), x[-1:].astype(F32))
        shown = rows_of(late, group)
    if mistake == "without last" and group > 1:
        seen[:, -1] &= ~inside[:, 1]
        last = n % group
        if last > 1:
            seen[-1, last - 1] = False
    if mistake == "clamped":
        limit = F32(2.5) * np.array([r[i].std(dtype=np.float64) for r, i in zip(rows, inside)], F32)[:, None]
        shown = np.clip(rows, -limit, limit)
    low = np.where(seen, shown, np.inf).min(1)
    high = np.where(seen, shown, -np.inf).max(1)
    top = 2**bits - 1
    if symmetric:
        exact = np.maximum(abs(low), abs(high)) / F32(2 ** (bits - 1) - (mistake != "2^(b-1)"))
        exact_zero = np.zeros_like(exact)
    else:
        exact, exact_zero = (high - low) / F32(top + (mistake == "a level more")), low
    stored = {"fp16 scale": lambda v: v.astype(np.float16).astype(F32), "scale cut off": cut_off, "fp32 scale": lambda v: v}.get(mistake, bf16)
    scale, zero = stored(exact) + F32(0), bf16(exact_zero) + F32(0)
    used = exact if mistake == "unrounded scale" else scale
    used_zero = exact_zero if mistake == "unrounded zero" else zero
    inverse = F32(1) / used
    if mistake == "an ulp":
        inverse = np.nextafter(inverse, F32(0))
    q = (rows - used_zero[:, None]) * inverse[:, None]
    if mistake == "divided":
        q = (rows - used_zero[:, None]) / used[:, None]
    q = np.where(np.isfinite(inverse)[:, None], q, 0)
    bias = 2 ** (bits - 1) if symmetric else 0
    codes = np.clip(np.rint(q) + bias, 0, top)
    broken = ~np.where(inside, np.isfinite(rows), True).all(1) | ~np.isfinite(scale) | ~np.isfinite(zero)
    codes[broken], scale[broken], zero[broken] = 0, np.nan, 0
    codes = np.nan_to_num(codes).astype(np.uint8)
    if mistake == "last unwritten" and n % group:
        codes.reshape(-1)[n - 1] = 0
    return codes, scale, zero, bias


def planes(codes, bits, mistake=""):
    parts, shift = [], 0
    for width in (8, 4, 2, 1):
        if bits - shift >= width:
            per = 8 // width
            filled = np.zeros(-(-len(codes) // per) * per, np.uint8)
            filled[: len(codes)] = codes >> shift & (1 << width) - 1
            parts.append((filled.reshape(-1, per) << np.arange(per) * width).sum(1).astype(np.uint8))
            shift += width
    return parts[::-1] if mistake == "planes" else parts


def integer_wire(x, bits, group, mistake="", symmetric=False):
    wire = []
    for begin in range(0, len(x), CHUNK):
        part = x[begin : begin + CHUNK].astype(F32)
        codes, scale, zero, _ = integers(part, bits, group, mistake, symmetric)
        words = []
        for values in [scale] if symmetric else [scale, zero]:
            bits16 = values.astype(np.float16 if mistake == "fp16 scale" else BF16).view(np.uint16)
            bits16[np.isnan(values)] = 0x7FC0
            words.append(bits16.view(np.uint8))
        if mistake == "arrays":
            words.reverse()
        parts = [words, planes(codes.reshape(-1)[: len(part)], bits)] if mistake == "scales first" else [planes(codes.reshape(-1)[: len(part)], bits, mistake), words]
        wire += [w for group_of in parts for w in group_of]
    return np.concatenate(wire)


def integer_values(x, bits, group, mistake="", symmetric=False):
    values = []
    for begin in range(0, len(x), CHUNK):
        part = x[begin : begin + CHUNK].astype(F32)
        codes, scale, zero, bias = integers(part, bits, group, mistake, symmetric)
        values.append((zero[:, None] + (codes.astype(F32) - bias) * scale[:, None]).reshape(-1)[: len(part)])
    values = np.concatenate(values)
    largest = F32(ml_dtypes.finfo(x.dtype).max)
    values = np.where(np.isnan(values), values, np.clip(values, -largest, largest))
    return (cut_off(values) if mistake == "truncation" else values).astype(x.dtype)


def micro(x, mistake="", kind=ml_dtypes.float4_e2m1fn, most=2, largest_element=6.0):
    """mxfp4, or mxfp8-e4m3: exponents and elements."""
    rows = rows_of(x.astype(F32), 32)
    seen = rows[:, :-1] if mistake == "without last" else rows
    largest = abs(np.where(np.isfinite(seen), seen, 0)).max(1)
    exponent = np.floor(np.log2(np.where(largest > 0, largest, 1).astype(np.float64)))
    if mistake == "ceil":
        exponent = np.ceil(np.log2(np.where(largest > 0, largest, 1).astype(np.float64)))
    exponent = np.clip(exponent - most, -127, 127) + (mistake == "exponent")
    factor = np.ldexp(1.0, -exponent.astype(int))[:, None]
    scaled = np.clip(rows.astype(np.float64) * factor, -largest_element, largest_element).astype(F32)
    elements = scaled.astype(kind).astype(F32)
    if mistake == "-0":
        elements = np.where(elements == 0, F32(0), elements)
    values = elements * (1 / factor)
    values[(largest == 0) & np.isfinite(rows).all(1)] = 0
    values[~np.isfinite(rows).all(1)] = np.nan
    return values.reshape(-1)[: len(x)].astype(F32).astype(x.dtype)


def mxfp4(x, mistake=""):
    return micro(x, mistake)


def mxfp8(x, mistake=""):
    return micro(x, mistake, ml_dtypes.float8_e4m3fn, 8, 448.0)


def int4(x, mistake=""):
    return integer_values(x, 4, 32, mistake)


def int8_symmetric(x, mistake=""):
    return integer_values(x, 8, 128, mistake, symmetric=True)


def plain(x, mistake=""):
    return x


CODECS = {"int4-g32": (int4, 32), "mxfp4": (mxfp4, 32), "mxfp8-e4m3": (mxfp8, 32), "int8-g128-sym": (int8_symmetric, 128), "bf16": (plain, 1)}

# ---------------------------------------------------------------- all-reduces


class TwoShot:
    """two_shot/CODEC/native in bf16, with one mistake in the codec or in the sum."""

    def __init__(self, codec, mistake="", in_codec=False):
        self.trip, self.block = CODECS[codec]
        self.mistake, self.in_codec = mistake, in_codec
        self.calls, self.kept = 0, None

    def through(self, x):
        return self.trip(x, self.mistake if self.in_codec else "") if len(x) else x

    def bounds(self, n, ranks):
        if self.mistake == "unaligned stripes":
            return [n * r // ranks for r in range(ranks + 1)]
        blocks = -(-n // self.block)
        owned = [blocks // ranks + (r < blocks % ranks) for r in range(ranks)]
        return [min(n, sum(owned[:r]) * self.block) for r in range(ranks)] + [n]

    def order(self, owner, ranks):
        others = [r for r in range(ranks) if r != owner]
        if self.mistake == "own first":
            return [owner, *others]
        if self.mistake == "own last":
            return [*others, owner]
        if self.mistake == "own twice":
            return sorted([*others, owner, owner])
        if self.mistake == "own missing":
            return others
        if self.mistake == "neighbour for own":
            return [(owner + 1) % ranks if r == owner else r for r in range(ranks)]
        if self.mistake == "rank 1 twice":
            return sorted([*range(ranks), 1])
        if self.mistake == "arrival":
            return list(np.random.default_rng(self.calls * 64 + owner).permutation(ranks))
        return list(range(ranks))

    def stale(self, tensors):
        """What buffers hold that keep what was sent before."""
        n, ranks = len(tensors[0]), len(tensors)
        if self.kept is None:
            self.kept = [np.zeros(1 << 17, tensors[0].dtype) for _ in tensors]
        old = [kept[:n].copy() for kept in self.kept]
        for kept, tensor in zip(self.kept, tensors):
            kept[:n] = tensor
        late = self.mistake == "stale rank 1" or self.calls % 40 == 0
        return [old[r] if r == 1 and late and self.calls > 1 else tensors[r] for r in range(ranks)]

    def __call__(self, tensors):
        self.calls += 1
        with np.errstate(all="ignore"):
            return self.run(tensors)

    def run(self, tensors):
        n, ranks, dtype = len(tensors[0]), len(tensors), tensors[0].dtype
        given = self.stale(tensors) if "stale" in self.mistake else tensors
        if self.mistake == "swapped":
            given = [tensors[0], *[tensors[2]] * 2, *tensors[3:]]
        out = np.empty_like(tensors[0])
        bounds = self.bounds(n, ranks)
        for owner in range(ranks):
            own = slice(bounds[owner], bounds[owner + 1])
            if own.start == own.stop:
                continue
            total = np.zeros(own.stop - own.start, F32)
            for r in self.order(owner, ranks):
                raw = self.mistake == "rank 1 not encoded" and r == 1
                part = given[r][own] if raw else self.through(given[r][own])
                total = total + part.astype(F32)
                total = cut_off(total) if self.mistake == "sums cut off" else bf16(total)
            total = total.astype(dtype)
            chunk_raw = self.mistake == "owner 1 not encoded" and owner == 1
            out[own] = total if chunk_raw else self.through(total)
        if self.mistake == "zero tail" and n > 64:
            out[n - n % 64 :] = 0
        if self.mistake == "one element late":
            out = np.roll(out, 1)
        if self.mistake == "parts exchanged" and n >= 8 * self.block:
            a, b = bounds[1] - bounds[0], bounds[2] - bounds[1]
            first = out[:a].copy()
            out[: min(a, b)], out[bounds[1] : bounds[1] + min(a, b)] = out[bounds[1] : bounds[1] + min(a, b)], first[: min(a, b)]
        return [out.copy() for _ in tensors]


def judged(codec, mistake, in_codec, claimed=True, ranks=4, lengths=(100, 2049, 4099)):
    claim = f"two_shot/{codec}/native" if claimed else None
    return conformance.check(TwoShot(codec, mistake, in_codec), world_size=ranks, dtype="bf16", lengths=list(lengths), claim=claim)


#: Codec, mistake, whether it is in the codec, and words that name it.
IN_ALL_REDUCES = [
    ("int4-g32", "window", True, "a window that begins one element late"),
    ("int4-g32", "without last", True, "scales do not know the block's last element"),
    ("mxfp4", "without last", True, "scales do not know the block's last element"),
    ("int4-g32", "fp16 scale", True, "scales are stored in fp16"),
    ("int4-g32", "scale cut off", True, "scales are cut off"),
    ("int4-g32", "unrounded scale", True, "codes are made with the unrounded scale"),
    ("int4-g32", "a level more", True, "divided by one level more"),
    ("int8-g128-sym", "2^(b-1)", True, "divided by one level more"),
    ("int8-g128-sym", "an ulp", True, "one unit in the last place too small"),
    ("mxfp4", "ceil", True, "mxfp4-ceil"),
    ("mxfp8-e4m3", "-0", True, "-0 becomes 0"),
    ("int4-g32", "clamped", True, "values that were clamped before"),
    ("int4-g32", "truncation", True, "cut off to the payload's dtype"),
    ("int4-g32", "sums cut off", False, "sums are cut off"),
    ("int4-g32", "own first", False, "the owner's contribution first, then the others"),
    ("bf16", "own first", False, "the owner's contribution first, then the others"),
    ("int4-g32", "own twice", False, "the owner's contribution counts twice"),
    ("int4-g32", "own missing", False, "the owner's contribution is missing"),
    ("int4-g32", "unaligned stripes", False, "stripes"),
    ("int4-g32", "owner 1 not encoded", False, "not encoded"),
    ("int4-g32", "rank 1 not encoded", False, "not encoded"),
    ("int4-g32", "zero tail", False, "results are 0"),
    ("int4-g32", "stale rank 1", False, "data of the call before, rank 1"),
    ("int4-g32", "stale in 40", False, "data of the call before, rank 1"),
    ("bf16", "swapped", False, "rank 2's data stand in the place of rank 1's"),
    ("bf16", "arrival", False, "order of arrival"),
]
WIRES = [
    ("int6-g128", "planes", "planes stand in the reverse order"),
    ("int4-g32", "scales first", "scales stand before codes"),
    ("int4-g32", "arrays", "the arrays behind the codes stand in the reverse order"),
    ("int4-g32", "fp16 scale", "stored in fp16"),
    ("int4-g32", "last unwritten", "the last element of a block that is not full is not written"),
    ("int4-g32", "unrounded scale", "codes are made with the unrounded scale"),
    ("int4-g32", "unrounded zero", "codes are made with the unrounded zero"),
    ("int4-g32", "a level more", "divided by one level more"),
]


@pytest.mark.parametrize("codec, mistake, in_codec, words", IN_ALL_REDUCES)
def test_all_reduces(codec, mistake, in_codec, words):
    report = judged(codec, mistake, in_codec)
    assert not report.passed, report
    assert words in "\n".join(report.findings), str(report)


@pytest.mark.parametrize("codec, mistake, words", WIRES)
def test_wires(codec, mistake, words):
    bits, group = {"int6-g128": (6, 128), "int4-g32": (4, 32)}[codec]
    report = conformance.check_codec(lambda x: integer_wire(x, bits, group, mistake), None, codec, dtype="fp16")
    assert not report.passed
    assert any(words in finding for finding in report.findings), str(report)


@pytest.mark.parametrize("codec", CODECS)
def test_controls(codec):
    report = judged(codec, "", False)
    assert report.passed and f"two_shot/{codec}/native" in report.exact_as, report


def test_wires_without_a_mistake():
    for codec, bits, group in [("int6-g128", 6, 128), ("int4-g32", 4, 32)]:
        report = conformance.check_codec(lambda x: integer_wire(x, bits, group), None, codec, dtype="fp16")
        assert report.passed, report


if __name__ == "__main__":
    np.seterr(all="ignore")
    found = named = total = 0
    for codec, mistake, in_codec, words in IN_ALL_REDUCES:
        report = judged(codec, mistake, in_codec)
        is_named = words in "\n".join(report.findings)
        found, named, total = found + (not report.passed), named + is_named, total + 1
        print("named" if is_named else "FOUND" if not report.passed else "MISSED", codec, mistake, *[f"\n      {f[:420]}" for f in report.findings])
    for codec, mistake, words in WIRES:
        bits, group = {"int6-g128": (6, 128), "int4-g32": (4, 32)}[codec]
        report = conformance.check_codec(lambda x: integer_wire(x, bits, group, mistake), None, codec, dtype="fp16")
        is_named = any(words in finding for finding in report.findings)
        found, named, total = found + (not report.passed), named + is_named, total + 1
        print("named" if is_named else "FOUND" if not report.passed else "MISSED", codec, mistake, *[f"\n      {f[:300]}" for f in report.findings[:2]])
    print(f"found {found}, named {named} of {total}")
