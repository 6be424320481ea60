"""The codecs mxfp*, mxint8, fp8-e4m3-g<G>[-stoch], codebooks and nvfp4 in NumPy, from reference/codecs/SPEC.md alone: the C++ reference's oracle.

Element formats are ml_dtypes' (RN, ties to even), which have NaNs or infinities where SPEC.md saturates:
values are brought into range before they are rounded.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np

from wire_oracle import CHUNK, Context, Layout, PAYLOADS, in_blocks, random_bits

F = np.float32
E4M3 = ml_dtypes.float8_e4m3fn
NAN_E8M0, NAN_E4M3 = 0xFF, 0x7F
MX_BLOCK, NV_BLOCK = 32, 16


class Element(NamedTuple):
    type: type
    bits: int
    mantissa: int  # bits
    largest: float
    next: float  # number that would follow the largest if the format went on
    tie_stays: bool  # whether their middle rounds to the largest: its last bit is 0

    @property
    def emax(self):
        return int(np.frexp(self.largest)[1]) - 1

    def round(self, w):
        """float32 to codes, saturating, and which ones would have become `next` or more."""
        inside = np.clip(w, F(-self.largest), F(self.largest))
        middle = F((self.largest + self.next) / 2)
        outside = np.abs(w) > middle if self.tie_stays else np.abs(w) >= middle
        return inside.astype(self.type).view(np.uint8), outside

    def values(self, codes):
        return codes.view(self.type).astype(np.float32)


ELEMENTS = {
    "mxfp8-e4m3": Element(E4M3, 8, 3, 448, 480, True),
    "mxfp8-e5m2": Element(ml_dtypes.float8_e5m2, 8, 2, 57344, 65536, False),
    "mxfp6-e2m3": Element(ml_dtypes.float6_e2m3fn, 6, 3, 7.5, 8, False),
    "mxfp6-e3m2": Element(ml_dtypes.float6_e3m2fn, 6, 2, 28, 32, False),
    "mxfp4": Element(ml_dtypes.float4_e2m1fn, 4, 1, 6, 8, False),
}
E2M1 = ELEMENTS["mxfp4"]


def floor_log2(x):
    """[any] float32 > 0 to int32, subnormals too."""
    return np.frexp(x)[1] - 1


def scale_exponent(largest, rule, element):
    """[blocks] float32 > 0 and finite: the exponents of the scales, -127..127."""
    exponent = floor_log2(largest)
    if rule == "rceil":
        fraction, exponent = np.frexp(largest / F(element.largest))  # the fraction is from 0.5, or 0
        ceiling = np.where(fraction > F(0.5), exponent, exponent - 1)
        return np.clip(np.where(fraction == 0, -127, ceiling), -127, 127)
    if rule == "ceil":
        exponent = exponent + (np.frexp(largest)[0] != F(0.5))
    elif rule == "even":
        half = np.uint32(1 << (22 - element.mantissa))  # a carry reaches the exponent field
        rounded = ((largest.view(np.uint32) + half) >> np.uint32(23)).astype(np.int32) - 127
        exponent = np.where(largest < F(2.0**-126), exponent, rounded)
    return np.clip(exponent - element.emax, -127, 127)


class Blocks:
    """Common parts of the formats: codes of `bits` bits, and a scale of `width` bytes per block of `block` elements."""

    width = 1

    def layout(self, elements):
        return Layout(self.bits, self.block, CHUNK, elements, (self.width,))

    def wire_bytes(self, dtype, elements):
        del dtype
        return self.layout(elements).bytes

    def encode(self, dtype, payload):
        """Bit patterns to wire bytes, as a uint8 array."""
        return self.encode_and_count(dtype, payload)[0]

    def encode_and_count(self, dtype, payload):
        """The wire, and how many elements a format without a largest number would round to more than that."""
        elements = len(payload)
        if not elements:
            return np.zeros(0, np.uint8), 0
        x = PAYLOADS[dtype].to_fp32(in_blocks(payload, self.block))
        with np.errstate(all="ignore"):
            codes, outside, scales = self.quantize(x, np.isfinite(x).all(1), np.abs(x).max(1))
        wire = self.layout(elements).join(codes.reshape(-1)[:elements], [scales])
        return wire, int(outside.reshape(-1)[:elements].sum())

    def decode(self, dtype, wire, elements):
        """Wire bytes to bit patterns."""
        t = PAYLOADS[dtype]
        if not elements:
            return np.zeros(0, t.word)
        codes, metadata = self.layout(elements).split(np.frombuffer(wire, np.uint8))
        with np.errstate(all="ignore"):
            x = self.values(in_blocks(codes, self.block)) * self.scales(metadata[0])[:, None]
        return t.from_fp32(x).reshape(-1)[:elements]


class PowersOfTwo(Blocks):
    """With an E8M0 scale per block of 32."""

    block = MX_BLOCK

    def quantize(self, x, finite, largest):
        usable = finite & (largest > 0)
        exponent = self.exponent(np.where(usable, largest, F(1)))
        # The quotient is exact, or so small that it rounds to zero in both.
        codes, outside = self.round(np.where(usable[:, None], np.ldexp(x, -exponent[:, None]), F(0)))
        codes = np.where(usable[:, None], codes, np.uint8(0))  # also for -0
        return codes, outside, np.where(finite, np.where(usable, exponent + 127, 0), NAN_E8M0).astype(np.uint8)

    def scales(self, metadata):
        codes = metadata[:, 0]
        return np.where(codes == NAN_E8M0, F(np.nan), np.ldexp(F(1), codes.astype(np.int32) - 127))


@dataclass(frozen=True)
class MX(PowersOfTwo):
    name: str
    element: Element
    rule: str

    @property
    def bits(self):
        return self.element.bits

    def exponent(self, largest):
        return scale_exponent(largest, self.rule, self.element)

    def round(self, x):
        return self.element.round(x)

    def values(self, codes):
        return self.element.values(codes)


@dataclass(frozen=True)
class MXINT8(PowersOfTwo):
    name: str
    bits = 8

    def exponent(self, largest):
        return np.clip(floor_log2(largest), -127, 127)

    def round(self, x):
        rounded = np.rint(x * F(64))
        return np.clip(rounded, -127, 127).astype(np.int8).view(np.uint8), np.abs(rounded) > 127

    def values(self, codes):
        return codes.view(np.int8).astype(np.float32) / F(64)


@dataclass(frozen=True)
class FP8Blocks(Blocks):
    name: str
    block: int
    torch: bool  # rounded as torch does
    stochastic: bool = False
    context: Context = Context()
    bits, width = 8, 4

    def quantize(self, x, finite, largest):
        a = np.maximum(np.where(finite, largest, F(1)), F(1e-4))
        factor = F(1) / a * F(448) if self.torch else F(448) / a
        scale = a / F(448) if self.torch else a * (F(1) / F(448))
        scaled = x * factor[:, None]
        outside = np.zeros(x.shape, bool)
        if self.stochastic:
            scaled, outside = self.rounded(np.where(finite[:, None], scaled, F(0)))
        scaled = np.clip(scaled, F(-448), F(448))
        codes = np.where(finite[:, None], scaled.astype(E4M3).view(np.uint8), np.uint8(0))
        scales = np.where(finite, scale.astype("<f4").view("<u4"), np.uint32(0x7FC00000))
        return codes, outside, scales.astype("<u4").view(np.uint8).reshape(-1, 4)

    def rounded(self, x):
        """To one of the two neighbours by magnitude, which go on beyond 448, and which lie there."""
        magnitude = np.abs(x).astype(np.float64)
        step = np.exp2(np.maximum(np.frexp(magnitude)[1] - 1, -6) - 3.0)  # between neighbours
        below = np.floor(magnitude / step)
        bits = random_bits(self.context, x.size).reshape(x.shape)
        neighbour = (below + (bits < (magnitude / step - below) * 2**24)) * step
        return np.copysign(neighbour, x).astype(np.float32), neighbour > 448

    def scales(self, metadata):
        return np.ascontiguousarray(metadata).view("<f4")[:, 0]

    def values(self, codes):
        return codes.view(E4M3).astype(np.float32)


@dataclass(frozen=True)
class PowerBlocks(Blocks):
    """fp8-e4m3-g128-ue8m0, by ml_dtypes' two formats and the logarithm of a double."""

    name: str
    bits, width, block = 8, 1, 128

    def quantize(self, x, finite, largest):
        quotient = np.where(finite, largest, F(0)) / F(448)
        exponent = np.clip(np.ceil(np.log2(np.maximum(quotient.astype(np.float64), 2.0**-127))), -127, 127)
        scaled = (x.astype(np.float64) / np.exp2(exponent)[:, None]).astype(np.float32)
        coded = finite & (largest > 0)
        codes = np.where(coded[:, None], np.clip(scaled, -448, 448).astype(E4M3).view(np.uint8), np.uint8(0))
        scales = np.where(finite, np.exp2(exponent), np.nan).astype(ml_dtypes.float8_e8m0fnu)
        return codes, np.zeros(x.shape, bool), scales.view(np.uint8)[:, None]

    def scales(self, metadata):
        return np.ascontiguousarray(metadata).view(ml_dtypes.float8_e8m0fnu)[:, 0].astype(np.float32)

    def values(self, codes):
        return codes.view(E4M3).astype(np.float32)


@dataclass(frozen=True)
class FP8Rows:
    """fp8-e4m3-token<row>, fp8-e4m3-static<scale>: what NumPy's division and ml_dtypes make of vLLM's kernels."""

    name: str
    row: int | None
    given: np.float32 | None

    def wire_bytes(self, dtype, elements):
        return elements + (4 * -(-elements // self.row) if self.row else 0)

    def encode_and_count(self, dtype, payload):
        x = PAYLOADS[dtype].to_fp32(payload)
        with np.errstate(all="ignore"):
            if self.row is None:
                scales, quotients = np.zeros(0, "<f4"), x * (F(1) / self.given)
            else:
                magnitudes = np.where(np.isnan(x), F(0), np.abs(x))
                largest = np.array([magnitudes[i : i + self.row].max() for i in range(0, len(x), self.row)], "<f4")
                scales = np.maximum(largest / F(448), F(1) / F(448 * 512))
                quotients = x / np.repeat(scales, self.row)[: len(x)]
        codes = np.where(np.isnan(quotients), F(448), np.clip(quotients, F(-448), F(448))).astype(E4M3)
        return np.concatenate([codes.view(np.uint8), scales.view(np.uint8)]), int((np.abs(quotients) > 464).sum())

    def encode(self, dtype, payload):
        return self.encode_and_count(dtype, payload)[0]

    def decode(self, dtype, wire, elements):
        wire = np.frombuffer(wire, np.uint8)
        scale = self.given if self.row is None else np.repeat(wire[elements:].copy().view("<f4"), self.row)[:elements]
        with np.errstate(all="ignore"):
            return PAYLOADS[dtype].from_fp32(wire[:elements].view(E4M3).astype(F) * scale)


@dataclass(frozen=True)
class FP4Records:
    """nvfp4-g<row>-flashinfer, from FlashInfer's kernels."""

    name: str
    row: int

    def wire_bytes(self, dtype, elements):
        return -(-elements // self.row) * (self.row // 2 + self.row // 16 + 4)

    def encode_and_count(self, dtype, payload):
        x = PAYLOADS[dtype].to_fp32(in_blocks(payload, self.row)).reshape(-1, self.row // 16, 16)
        with np.errstate(all="ignore"):
            amax = np.nan_to_num(np.abs(x), nan=0, posinf=np.inf).max((1, 2))
            inverse = np.where(amax > 0, F(2688) / amax, F(0))[:, None]
            s = (np.nan_to_num(np.abs(x), nan=0, posinf=np.inf).max(2) * inverse / F(6)).clip(None, F(448)).astype(E4M3)
            value = s.astype(np.float32)
            factor = np.where(value > 0, inverse / value, F(0))
            scaled = x * factor[:, :, None]
            codes, outside = E2M1.round(np.where(np.isnan(scaled), F(6), scaled))
        codes = np.where(codes & 7 == 0, np.uint8(0), codes).reshape(len(x), -1)
        packed = codes[:, ::2] | codes[:, 1::2] << 4
        parts = [packed, s.view(np.uint8) & 0x7F, (amax / F(2688)).astype("<f4").view(np.uint8).reshape(-1, 4)]
        return np.concatenate(parts, axis=1).reshape(-1), int(outside.sum())

    def encode(self, dtype, payload):
        return self.encode_and_count(dtype, payload)[0]

    def decode(self, dtype, wire, elements):
        wire = np.frombuffer(wire, np.uint8).reshape(-1, self.row // 2 + self.row // 16 + 4)
        packed, s, scale = np.split(wire, [self.row // 2, self.row // 2 + self.row // 16], axis=1)
        codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(len(wire), -1, 16)
        with np.errstate(all="ignore"):
            scales = s.copy().view(E4M3).astype(np.float32) * np.ascontiguousarray(scale).view("<f4")
            return PAYLOADS[dtype].from_fp32(E2M1.values(codes) * scales[:, :, None]).reshape(-1)[:elements]


def e4m3b15():
    """The numbers of 4 exponent bits, 3 mantissa bits and bias 15, up to 1.75."""
    magnitudes = [(m if e == 0 else 8 + m) * 2.0 ** (max(e, 1) - 18) for e in range(16) for m in range(8)][:-1]
    return sorted({sign * x for x in magnitudes for sign in (1.0, -1.0)})


NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip
CODEBOOKS = {"nf4": NF4, "e4m3b15": e4m3b15()}


@dataclass(frozen=True)
class CodebookBlocks(Blocks):
    name: str
    block: int
    levels: tuple
    width = 4

    @property
    def bits(self):
        return (len(self.levels) - 1).bit_length()

    @property
    def table(self):
        return np.array(self.levels, np.float32)

    def quantize(self, x, finite, largest):
        scale = np.where(finite, largest, F(1)) / np.abs(self.table).max()
        factor = F(1) / scale
        usable = finite & np.isfinite(factor)
        middles = (self.table[1:] + self.table[:-1]) * F(0.5)
        codes = np.searchsorted(middles, np.where(usable[:, None], x * factor[:, None], F(0)), side="left")
        codes = np.where(usable[:, None], codes, 0).astype(np.uint8)
        bits = np.where(usable, scale, F(0)).astype("<f4").view("<u4")
        bits = np.where(finite, bits, np.uint32(0x7FC00000)).astype("<u4")
        return codes, np.zeros(codes.shape, bool), bits.view(np.uint8).reshape(-1, 4)

    def scales(self, metadata):
        return np.ascontiguousarray(metadata).view("<f4")[:, 0]

    def values(self, codes):
        return self.table[np.minimum(codes, len(self.levels) - 1)]


@dataclass(frozen=True)
class NVFP4(Blocks):
    name: str
    rounding: str = ""  # vllm, te, te-4over6
    given: np.float32 | None = None  # tensor scale
    bits, block = 4, NV_BLOCK

    def wire_bytes(self, dtype, elements):
        return super().wire_bytes(dtype, elements) + (self.header_bytes if elements else 0)

    @property
    def header_bytes(self):
        return 4 if self.given is None else 0

    @property
    def is_te(self):
        return self.rounding.startswith("te")

    @property
    def most(self):
        """The largest value: that of an element times that of a block's scale."""
        return F(6 * 256 if self.rounding == "te-4over6" else 6 * 448)

    def scales(self, wanted, g):
        """Codes of the blocks' scales, and what elements are multiplied by."""
        s = np.minimum(wanted, F(448)).astype(E4M3)
        scale = s.astype(np.float32)
        if self.is_te:
            return s, np.minimum(F(1) / (scale * (F(1) / g)), np.finfo(F).max)
        factor = F(1) / (scale * (F(1) / g)) if self.rounding == "vllm" else g / scale
        return s, np.where(scale > 0, factor, F(0))

    def encode_and_count(self, dtype, payload):
        """The wire, and how many elements a format without a largest number would round to more than that."""
        elements = len(payload)
        if not elements:
            return np.zeros(0, np.uint8), 0
        x = PAYLOADS[dtype].to_fp32(in_blocks(payload, NV_BLOCK))
        with np.errstate(all="ignore"):
            amax = np.abs(x[np.isfinite(x)]).max(initial=F(0))
            g = min(self.most / amax, np.finfo(F).max if self.is_te else F(2.0**118)) if amax > 0 else F(1)
            if self.given is not None:
                g = self.given
            finite = np.isfinite(x).all(1)
            x = np.where(finite[:, None], x, F(0))
            largest = np.abs(x).max(1)
            sixth = F(1) / F(6)
            # A product, then a quotient; others have a product with a sixth, of this or of that.
            wanted = {"": g * largest / F(6), "vllm": g * (largest * sixth), "te": largest * (g * sixth), "te-4over6": largest / F(6) * g}
            s, factor = self.scales(wanted[self.rounding], g)
            codes, outside = E2M1.round(x * factor[:, None])
            if self.rounding == "te-4over6":
                s4, factor4 = self.scales(wanted[self.rounding] * F(1.5), g)
                codes4, outside4 = E2M1.round(x * factor4[:, None])
                better = self.errors(codes4, s4, amax, x) < self.errors(codes, s, amax, x)
                s = np.where(better, s4, s)
                codes = np.where(better[:, None], codes4, codes)
                outside = np.where(better[:, None], outside4, outside)
        usable = finite if self.is_te else finite & (s.astype(np.float32) > 0)
        codes = np.where(usable[:, None], codes, np.uint8(0))
        outside &= usable[:, None]
        scales = np.where(finite, s.view(np.uint8), np.uint8(NAN_E4M3))
        wire = self.layout(elements).join(codes.reshape(-1)[:elements], [scales])
        number = np.array([amax if self.is_te else g] if self.given is None else [], "<f4").view(np.uint8)
        return np.concatenate([number, wire]), int(outside.reshape(-1)[:elements].sum())

    def errors(self, codes, s, amax, x):
        """Sums of absolute differences, element after element."""
        differences = np.abs(E2M1.values(codes) * s.astype(np.float32)[:, None] * amax / self.most - x)
        error = np.zeros(len(x), np.float32)
        for column in differences.T:
            error = error + column
        return error

    def decode(self, dtype, wire, elements):
        """Wire bytes to bit patterns."""
        t = PAYLOADS[dtype]
        if not elements:
            return np.zeros(0, t.word)
        wire = np.frombuffer(wire, np.uint8)
        number = wire[:4].copy().view("<f4")[0] if self.given is None else self.given
        codes, (scales,) = self.layout(elements).split(wire[self.header_bytes :])
        with np.errstate(all="ignore"):
            s = scales.view(E4M3).astype(np.float32)
            x = E2M1.values(in_blocks(codes, NV_BLOCK)) * (s * number * (F(1) / self.most) if self.is_te else s / number)
        return t.from_fp32(x).reshape(-1)[:elements]


def find(name):
    """The codec of a name."""
    part = re.fullmatch(r"nvfp4(?:-(vllm|te-4over6|te))?(?:-ts(.+))?", name)
    if part:
        return NVFP4(name, part[1] or "", None if part[2] is None else F(part[2]))
    if name == "mxint8":
        return MXINT8(name)
    part = re.fullmatch(r"(nf4|e4m3b15)-g(32|64|128)", name)
    if part:
        return CodebookBlocks(name, int(part[2]), tuple(CODEBOOKS[part[1]]))
    part = re.fullmatch(r"fp8-e4m3-g(64|128|256)(-torch)?(-stoch)?", name)
    if part:
        return FP8Blocks(name, int(part[1]), part[2] is not None, part[3] is not None)
    part = re.fullmatch(r"fp8-e4m3-(?:token(\d+)|static(.+))", name)
    if part:
        return FP8Rows(name, part[1] and int(part[1]), part[2] and F(part[2]))
    part = re.fullmatch(r"nvfp4-g(\d+)-flashinfer", name)
    if part:
        return FP4Records(name, int(part[1]))
    if name == "fp8-e4m3-g128-ue8m0":
        return PowerBlocks(name)
    part = re.fullmatch(r"(mxfp\d(?:-e\dm\d)?)(?:-(floor|ceil|even|rceil))?", name)
    assert part, name
    return MX(name, ELEMENTS[part[1]], part[2] or "floor")
