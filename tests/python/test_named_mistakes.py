"""Mistakes of kernel authors, planted one by one: with a claim every one is found, and nearly all are called by their name. Without a
claim, sums that hold a contribution too often or not at all are found, whatever the owners of parts."""

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


def fp8(x, mistake=""):
    rows = rows_of(x.astype(F32), 128)
    bounded = np.maximum(abs(rows).max(1), F32(1e-4))
    products = np.clip(rows * (F32(448) / bounded)[:, None], -448, 448).astype(F32)
    codes = products.astype(ml_dtypes.float8_e4m3fn)
    if mistake == "toward zero":
        above = abs(codes.astype(F32)) > abs(products)
        codes = (codes.view(np.uint8) - above).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    values = codes.astype(F32) * (bounded * (F32(1) / F32(448)))[:, None]
    values[~np.isfinite(rows).all(1)] = np.nan
    return values.reshape(-1)[: len(x)].astype(x.dtype)


def nvfp4(x, mistake=""):
    rows = rows_of(x.astype(F32), 16)
    finite = np.where(np.isfinite(rows), abs(rows), 0)
    number = min(F32(2688) / finite.max(), F32(2.0**118)) if finite.max() > 0 and mistake != "number 1" else F32(1)
    wanted = number * abs(rows).max(1) / F32(6)
    stored = np.clip(wanted, 0, 448).astype(ml_dtypes.float8_e4m3fn)
    if mistake == "scale up":
        below = (stored.astype(F32) < wanted) & (wanted < 448)
        stored = (stored.view(np.uint8) + below).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    scale = stored.astype(F32)
    products = np.where((scale == 0)[:, None], 0, rows * (number / scale)[:, None]).astype(F32)
    values = np.clip(products, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(F32) * (scale / number)[:, None]
    values[~np.isfinite(rows).all(1)] = np.nan
    return values.reshape(-1)[: len(x)].astype(x.dtype)


def spikes(x, mistake=""):
    """int2-g32-sr."""
    n, values = len(x), []
    for begin in range(0, n, CHUNK):
        part = x[begin : begin + CHUNK].astype(F32)
        rows = rows_of(part, 32)
        inside = np.arange(rows.size).reshape(rows.shape) < len(part)
        all_rows = np.arange(len(rows))
        least, most = np.where(inside, rows, np.inf).argmin(1), np.where(inside, rows, -np.inf).argmax(1)
        without = rows.copy()
        without[all_rows, least] = without[all_rows, most] = 0
        seen = without.copy()
        if mistake == "maximum in scale":
            seen[all_rows, most] = rows[all_rows, most]
        low, high = np.where(inside, seen, np.inf).min(1), np.where(inside, seen, -np.inf).max(1)
        scale, zero = bf16((high - low) / F32(3)) + F32(0), bf16(low) + F32(0)
        inverse = F32(1) / scale
        q = np.clip(np.rint((without - zero[:, None]) * inverse[:, None]), 0, 3)
        decoded = zero[:, None] + np.where(np.isfinite(inverse)[:, None], q, 0) * scale[:, None]
        largest = F32(ml_dtypes.finfo(x.dtype).max)
        decoded = np.clip(decoded, -largest, largest).astype(x.dtype).astype(F32)
        if mistake != "minimum lost":
            decoded[all_rows, least] = rows[all_rows, least]
        decoded[all_rows, np.maximum(most - 1, 0) if mistake == "maximum index" else most] = rows[all_rows, most]
        decoded[~np.where(inside, np.isfinite(rows), True).all(1) | ~np.isfinite(scale) | ~np.isfinite(zero)] = np.nan
        values.append(decoded.reshape(-1)[: len(part)])
    return np.concatenate(values).astype(x.dtype)


def quickreduce(x, mistake=""):
    """qr-q4 in bf16."""
    atoms = rows_of(x.astype(F32), 2048).reshape(-1, 32, 2).transpose(0, 2, 1).reshape(-1, 32)
    high, low = atoms.max(1), atoms.min(1)
    extreme = np.where(abs(high) >= abs(low) if mistake == "tie" else abs(high) > abs(low), high, low)
    if mistake == "no sign":
        extreme = abs(extreme)
    extreme = np.where((extreme == 0) & np.signbit(atoms).any(1), F32(-0.0), extreme)  # -0 is below +0
    d = bf16(extreme * F32(-1 / 8))
    inverse = bf16(F32(1) / bf16(d + np.array(0x33D7, np.uint16).view(BF16).astype(F32)))
    w = bf16(atoms * inverse[:, None])
    q = np.where(np.isnan(w), -8, np.rint(np.clip(w, -8, 7))) + F32(0)  # no -0
    values = bf16((np.maximum(q, -7) if mistake == "lowest unused" else q) * d[:, None])
    values[~np.isfinite(atoms).all(1)] = np.nan
    return values.reshape(-1, 2, 32).transpose(0, 2, 1).reshape(-1)[: len(x)].astype(x.dtype)


def int4(x, mistake=""):
    return integer_values(x, 4, 32, mistake)


def int8_symmetric(x, mistake=""):
    return integer_values(x, 8, 128, mistake, symmetric=True)


def plain(x, mistake=""):
    return x


CODECS = {
    "fp8-e4m3-g128": (fp8, 128), "nvfp4": (nvfp4, 16), "int2-g32-sr": (spikes, 32), "qr-q4": (quickreduce, 2048),
    "int4-g32": (int4, 32), "mxfp4": (mxfp4, 32), "mxfp8-e4m3": (mxfp8, 32), "int8-g128-sym": (int8_symmetric, 128), "bf16": (plain, 1),
}  # fmt: skip

# ---------------------------------------------------------------- all-reduces


class TwoShot:
    """two_shot/CODEC/native in bf16, with one mistake in the codec or in the sum."""

    def __init__(self, codec, mistake="", in_codec=False):
        self.trip, self.block = CODECS[codec]
        self.begin = F32(-0.0) if codec.startswith("qr-") else F32(0)  # QuickReduce's sums begin with an addend
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
        """Returns buffers that keep earlier messages."""
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
            total = np.full(own.stop - own.start, self.begin, F32)
            for r in self.order(owner, ranks):
                raw = self.mistake == "rank 1 not encoded" and r == 1
                source = own
                if self.mistake == "next part" and r == 1 and owner + 1 < ranks:
                    behind = slice(bounds[owner + 1], bounds[owner + 2])
                    source = behind if behind.stop - behind.start == own.stop - own.start else own
                part = given[r][own] if raw else self.through(given[r][source])
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
    ("int4-g32", "own first", False, "the owner's contribution comes first, then the others"),
    ("bf16", "own first", False, "the owner's contribution comes first, then the others"),
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
    ("int4-g32", "next part", False, "rank 1's data of the part behind the owner's"),
    ("fp8-e4m3-g128", "toward zero", True, "codes are cut off toward zero"),
    ("nvfp4", "scale up", True, "scales are rounded up"),
    ("nvfp4", "number 1", True, "the message's scale is 1"),
    ("int2-g32-sr", "maximum index", True, "the maximum's index is one too low"),
    ("int2-g32-sr", "minimum lost", True, "the minimum is not put back"),
    ("int2-g32-sr", "maximum in scale", True, "the scale knows the maximum that is reserved"),
    ("qr-q4", "lowest unused", True, "the lowest code is not used"),
    ("qr-q4", "no sign", True, "scales have no sign"),
    ("qr-q4", "tie", True, "of extremes as large as each other the positive one gives the scale"),
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


class StalePart(TwoShot):
    """One rank's data of the call before, in the part of one owner."""

    def run(self, tensors):
        out = super().run(tensors)[0]
        n, ranks = len(out), len(tensors)
        old = self.kept[:n] if self.kept is not None else tensors[3]
        own = slice(*self.bounds(n, ranks)[2:4])
        if own.start < own.stop and len(old) == n:
            given = [old if r == 3 else tensors[r] for r in range(ranks)]
            total = np.zeros(own.stop - own.start, F32)
            for each in given:
                total = bf16(total + self.through(each[own]).astype(F32))
            out[own] = self.through(total.astype(out.dtype))
        self.kept = tensors[3].copy()
        return [out.copy() for _ in tensors]


def test_what_nans_hide_names_no_other_rank():
    report = conformance.check(StalePart("int4-g32"), world_size=8, dtype="bf16", lengths=[100, 2049], claim="two_shot/int4-g32/native")
    said = [finding for finding in report.findings if finding.startswith("data of the call before")]
    assert said and all(finding.startswith("data of the call before, rank 3, ") for finding in said), str(report)


def test_the_order_of_arrival_of_eight_encoded_contributions():
    """Every rank adds itself first, the others as they come."""
    order = np.random.default_rng(5)

    def one_shot(tensors):
        wires, outs = [int4(each) for each in tensors], []
        for me in range(len(tensors)):
            total = np.zeros(len(tensors[0]), F32)
            for r in [me, *order.permutation([r for r in range(len(tensors)) if r != me])]:
                total = bf16(total + wires[r].astype(F32))
            outs.append(total.astype(tensors[0].dtype))
        return outs

    report = conformance.check(one_shot, world_size=8, dtype="bf16", lengths=[100, 515], claim="one_shot/int4-g32/native")
    assert "the order of arrival decides" in "\n".join(report.findings), str(report)


@pytest.mark.parametrize("codec, mistake, words", WIRES)
def test_wires(codec, mistake, words):
    bits, group = {"int6-g128": (6, 128), "int4-g32": (4, 32)}[codec]
    report = conformance.check_codec(lambda x: integer_wire(x, bits, group, mistake), None, codec, dtype="fp16")
    assert not report.passed
    assert any(words in finding for finding in report.findings), str(report)


def moved(codec, move):
    """An encoder whose wires are arlab's with their parts moved: of qr-q4 codes and scales of every atom, else of every chunk the
    codes and the arrays behind them."""
    sizes = {"int2-g32-sr": (2, 32, [2] * 6), "fp8-e4m3-g128": (8, 128, [4])}

    def encode(x):
        wire = np.asarray(arlab.encode(x, codec)).view(np.uint8).copy()
        if codec == "qr-q4":
            atoms = wire.reshape(-1, 1152)
            return np.concatenate([part for atom in atoms for part in move(atom[:1024], atom[1024:].reshape(32, 2, 2))])
        bits, group, widths = sizes[codec]
        out, at = [], 0
        for begin in range(0, len(x), CHUNK):
            count = min(CHUNK, len(x) - begin)
            parts = []
            for size in [-(-count * bits // 8), *(-(-count // group) * width for width in widths)]:
                parts.append(wire[at : at + size])
                at += size
            out += move(*parts)
        return np.concatenate(out)

    return encode


def of_chunk(codes, scales, zeros, low, high, low_at, high_at):
    begins = np.arange(len(low_at) // 2, dtype=np.uint16) * 32
    return [codes, scales, zeros, low, high, *[(at.view(np.uint16) + begins).view(np.uint8) for at in (low_at, high_at)]]


MOVED = [
    ("qr-q4", lambda codes, scales: [codes >> 4 | codes << 4, scales.reshape(-1)], "the nibbles of every byte are exchanged"),
    ("qr-q4", lambda codes, scales: [codes, scales[:, ::-1].reshape(-1)], "scales of even and of odd elements"),
    ("qr-q4", lambda codes, scales: [codes.reshape(-1, 4)[:, ::-1].reshape(-1), scales.reshape(-1)], "a 32-bit word of codes"),
    ("int2-g32-sr", lambda codes, *arrays: [codes, *arrays[2:], *arrays[:2]], "the arrays behind the codes stand in another order"),
    ("int2-g32-sr", of_chunk, "indices count from the beginning of the wire chunk"),
    ("fp8-e4m3-g128", lambda codes, scales: [codes, (1 / scales.view(F32)).view(np.uint8)], "scales are the reciprocals"),
]


@pytest.mark.parametrize("codec, move, words", MOVED)
def test_moved(codec, move, words):
    report = conformance.check_codec(moved(codec, move), None, codec, dtype="fp16")
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
