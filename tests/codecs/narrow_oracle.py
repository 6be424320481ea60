"""The codecs wire-bf16[-stoch] and wire-fp16[-stoch] in NumPy, from SPEC.md alone: the C++ reference's oracle."""

import re
from dataclasses import dataclass

import numpy as np

from wire_oracle import Context, PAYLOADS, random_bits


@dataclass(frozen=True)
class Narrow:
    name: str
    wire: str  # dtype
    stochastic: bool
    context: Context = Context()

    def wire_bytes(self, dtype, elements):
        del dtype
        return 2 * elements

    def encode(self, dtype, payload):
        return self.encode_and_count(dtype, payload)[0]

    def encode_and_count(self, dtype, payload):
        x = PAYLOADS[dtype].to_fp32(payload)
        return PAYLOADS[self.wire].from_fp32(self.neighbours(x) if self.stochastic else x).view(np.uint8), 0

    def neighbours(self, x):
        """One of the two by magnitude, as if exponents had no end; exact as a double."""
        least, mantissa = {"bf16": (-126, 7), "fp16": (-14, 10)}[self.wire]
        magnitude = np.abs(np.where(np.isfinite(x), x, 0)).astype(np.float64)
        step = np.exp2(np.maximum(np.frexp(magnitude)[1] - 1, least) - mantissa)
        below = np.floor(magnitude / step)
        up = random_bits(self.context, len(x)) < (magnitude / step - below) * 2**24
        rounded = (below + up) * step
        # Magnitudes beyond the largest number become infinite, as by a cast of 2^128 or 65536.
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(np.isfinite(x), np.copysign(rounded, x).astype(np.float32), x)

    def decode(self, dtype, wire, elements):
        patterns = np.frombuffer(np.asarray(wire).tobytes(), PAYLOADS[self.wire].word)
        assert len(patterns) == elements
        return PAYLOADS[dtype].from_fp32(PAYLOADS[self.wire].to_fp32(patterns))


def find(name):
    """The codec of a name."""
    part = re.fullmatch(r"wire-(bf16|fp16)(-stoch)?", name)
    return Narrow(name, part[1], part[2] is not None)
