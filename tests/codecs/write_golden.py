"""Writes golden/*.bin from the oracles: fixed inputs, their wires, and what the wires decode to."""

from pathlib import Path

import numpy as np

import anybit_oracle
import logfmt_oracle
import microscaling_oracle
import narrow_oracle
from quickreduce_oracle import ATOM, CODECS, ELEMENTS, GROUP

ELEMENT_COUNT = ATOM + 37
DTYPES = ("fp32", "fp16", "bf16")

ANYBIT = ["int8-g128", "int7-g32", "int6-g64", "int5-g128", "int4-g32", "int3-g32", "int2-g32"]
ANYBIT += ["int4-g32-sym", "int3-g32-sr", "int2-g32-sr", "int2-g32-sr-is", "had-int4-g32"]
ANYBIT += ["int8-gtensor", "int8-gtensor-sym-static0.05"]
LOGFMT = ["logfmt4-g32", "logfmt3-g32", "logfmt8-g128"]
MICROSCALING = ["mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp4", "mxfp4-ceil", "mxfp4-even", "nvfp4"]
MICROSCALING += ["mxfp4-rceil", "mxint8", "fp8-e4m3-g128", "fp8-e4m3-g64-torch", "fp8-e4m3-g256", "fp8-e4m3-g128-ue8m0"]
MICROSCALING += ["nvfp4-vllm", "nvfp4-te", "nvfp4-te-4over6", "nvfp4-ts0.75", "nvfp4-vllm-ts0.75"]

NARROW = ["wire-bf16", "wire-fp16", "wire-bf16-stoch", "wire-fp16-stoch"]


def random_words():
    """SplitMix64 from state 0, one word per element."""
    with np.errstate(over="ignore"):
        word = np.arange(1, ELEMENT_COUNT + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))


def payload(dtype):
    """Groups of 64 elements in eight kinds, from ordinary numbers to a NaN."""
    exponent_bits, mantissa_bits = {"fp16": (5, 10), "bf16": (8, 7), "fp32": (8, 23)}[dtype]
    top = (1 << exponent_bits) - 1
    one = top // 2
    word = random_words()
    sign = word & np.uint64(1)
    mantissa = (word >> np.uint64(8)) & np.uint64((1 << mantissa_bits) - 1)
    spread = (word >> np.uint64(40)).astype(np.int64)

    group = np.arange(ELEMENT_COUNT) // GROUP
    place = np.arange(ELEMENT_COUNT) % GROUP
    kind = group % 8
    exponent = np.select(
        [kind == 0, kind == 1, kind == 2, kind == 3, kind == 4],
        [
            one - spread % 6,  # ordinary
            spread % top,  # any finite
            one - 9 - spread % 6,  # low amplitude
            spread % 2,  # subnormals and the smallest normals
            top - 1 - spread % 3,  # near the largest
        ],
        one - spread % 4,
    )
    tie = kind == 5  # multiples of 1/16 that reach -1
    mantissa[tie] &= np.uint64(0x7 << (mantissa_bits - 3))
    zero = (kind == 6) & (spread % 3 > 0)  # mostly zeros, of both signs
    exponent[zero], mantissa[zero] = 0, 0
    infinite = (kind == 7) & (place == group % GROUP)  # one infinity or NaN, in one of the two blocks
    exponent[infinite] = top
    mantissa[infinite & (group % 16 == 7)] = 0
    mantissa[infinite & (group % 16 == 15)] = 1

    pattern = (sign << np.uint64(exponent_bits) | exponent.astype(np.uint64)) << np.uint64(mantissa_bits) | mantissa
    if dtype in ELEMENTS:
        pattern[24 * GROUP : 28 * GROUP] = extremes_at_epsilon(ELEMENTS[dtype])
    return pattern.astype("<u4" if dtype == "fp32" else "<u2")


def extremes_at_epsilon(element):
    """Four groups, one for each L: an even block below +L * eps and an odd one above -L * eps."""
    groups = np.zeros((4, GROUP // 2, 2), np.uint16)
    shares = np.array([1, *np.linspace(0.9, 0.1, 8)], np.float32)[:, None]  # shares of the extreme; the rest is +-0
    for group, levels in zip(groups, (4, 8, 32, 128)):
        extreme = np.float32(element.from_bits(element.eps)) * np.float32([levels, -levels])
        group[3:21:2] = (extreme * shares).astype(element.type).view(np.uint16)
        group[4:22:2] = 0x8000
    return groups.reshape(-1)


def element_count(name):
    """One NaN spoils all of a codec whose block is the tensor: it gets the first group only."""
    return GROUP if "gtensor" in name else ELEMENT_COUNT


def files():
    """Name and content of every golden file."""
    content = {}
    for dtype in DTYPES:
        x = payload(dtype)
        content[f"{dtype}.input.bin"] = x.tobytes()
        content[f"{dtype}.{dtype}.wire.bin"] = x.tobytes()
        content[f"{dtype}.{dtype}.decoded.bin"] = x.tobytes()
    families = ((anybit_oracle, ANYBIT), (logfmt_oracle, LOGFMT), (microscaling_oracle, MICROSCALING))
    others = [oracle.find(name) for oracle, names in families for name in names]
    narrow = [narrow_oracle.find(name) for name in NARROW]
    known = [*((codec, ELEMENTS) for codec in CODECS.values()), *((codec, DTYPES) for codec in others)]
    for codec, dtypes in [*known, *((codec, ["fp32"]) for codec in narrow)]:
        for dtype in dtypes:
            x = payload(dtype)[: element_count(codec.name)]
            wire = codec.encode(dtype, x)
            content[f"{codec.name}.{dtype}.wire.bin"] = wire.tobytes()
            content[f"{codec.name}.{dtype}.decoded.bin"] = codec.decode(dtype, wire, len(x)).astype(x.dtype).tobytes()
    return content


if __name__ == "__main__":
    for name, content in files().items():
        (Path(__file__).parent / "golden" / name).write_bytes(content)
