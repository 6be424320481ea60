"""Common parts of the tests of the newer codec families: the C++ codecs as a stream, payloads, comparisons."""

import functools
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from wire_oracle import PAYLOADS

LENGTHS = [*range(1, 34), 63, 64, 65, 127, 128, 129, 1000, 4095, 4096, 4097, 8192 + 37]
KIND = 3 << 13  # elements of each kind in a payload


BACKGROUND = ThreadPoolExecutor(2)
streams = threading.local()  # a process for each thread


def codec_stream(codec, dtype, action, elements, stdin=b""):
    """Returns the C++ codec's output for one message; raises ValueError, with its own words, where it refuses."""
    if not hasattr(streams, "process"):
        program = Path(os.environ["ARLAB_BIN"]).resolve() / "codec_stream"
        streams.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    process = streams.process
    process.stdin.write(b"%s\n%s" % (f"{codec} {dtype} {action} {elements} {len(stdin)}".encode(), stdin))
    process.stdin.flush()
    length = process.stdout.readline()
    if not length:
        del streams.process
        raise ValueError(process.communicate()[1].decode())
    answer = process.stdout.read(int(length))
    assert len(answer) == int(length), "codec_stream ended within an answer"
    return answer


# Payloads: bit patterns.


def patterns(dtype, values):
    with np.errstate(all="ignore"):
        return np.asarray(values, np.float64).astype(PAYLOADS[dtype].type).view(PAYLOADS[dtype].word)


def exponents(dtype):
    """Returns the exponents of the smallest subnormal and of the largest number."""
    return {"fp16": (-24, 15), "bf16": (-133, 127), "fp32": (-149, 127)}[dtype]


def largest(dtype):
    return {"fp16": 65504.0, "bf16": 3.3895313892515355e38, "fp32": 3.4028234663852886e38}[dtype]


def every_pattern(dtype, random):
    """All 16-bit patterns; of fp32 all upper halves, half of them with zeros below."""
    upper = np.arange(1 << 16, dtype=PAYLOADS[dtype].word)
    if dtype != "fp32":
        return upper
    return upper << np.uint32(16) | random.integers(0, 1 << 16, 1 << 16, np.uint32) * random.integers(
        0, 2, 1 << 16, np.uint32
    )


def finite(dtype, words):
    return words[np.isfinite(PAYLOADS[dtype].to_fp32(words))]


def blocks_at_scales(dtype, random):
    """Gaussian runs of 64, each at a scale of its own, from the subnormals to overflow."""
    low, high = exponents(dtype)
    scale = 2.0 ** np.linspace(low - 1, high, KIND // 64)
    return patterns(
        dtype, np.clip(random.normal(size=(KIND // 64, 64)) * scale[:, None], -largest(dtype), largest(dtype))
    )


def constants(dtype, random):
    """Runs of 256 equal numbers, now and then with one other."""
    runs = random.choice(finite(dtype, every_pattern(dtype, random)), KIND // 256)
    x = np.repeat(runs[:, None], 256, 1)
    x[::2, random.integers(0, 256)] = random.choice(runs, KIND // 512)
    return x


def zeros(dtype, random):
    """Zeros of both signs, some runs with a few numbers, tiny ones too."""
    low, _ = exponents(dtype)
    x = np.copysign(0.0, random.normal(size=(KIND // 128, 128)))
    numbers = random.normal(size=x.shape) * 2.0 ** random.integers(low, 3, (len(x), 1))
    rate = random.choice([0, 0.02, 0.3], (len(x), 1))
    return patterns(dtype, np.where(random.random(x.shape) < rate, numbers, x))


def ties(dtype, random):
    """Runs of 32 that reach an exact 2^b - 1 (or a power of two) and hold halves and quarters of integers."""
    low, high = exponents(dtype)
    reach = random.choice([3, 7, 15, 31, 63, 127, 255, 4, 6, 8, 28, 448], (KIND // 32, 1))
    x = random.integers(0, 4 * reach + 1, (KIND // 32, 32)) / 4 - random.choice(
        [0, 0, 1, 2, 4], (KIND // 32, 1)
    )
    x[:, 0], x[:, 1] = 0, reach[:, 0]
    scale = 2.0 ** random.integers(max(low, -60), min(high - 9, 60), (KIND // 32, 1))
    return patterns(dtype, x * scale * random.choice([-1, 1], (KIND // 32, 1)))


def at_the_end(dtype, random):
    """Near the largest number, of both signs or of one: ranges that overflow."""
    x = largest(dtype) * (1 - 2.0 ** -random.integers(1, 25, (KIND // 64, 64)))
    sign = random.choice([-1.0, 1.0], x.shape)
    one_sign = random.random((len(x), 1)) < 0.5
    return patterns(
        dtype, x * np.where(one_sign, sign[:, :1], sign) * random.choice([1, 0.5, 0.25], (len(x), 1))
    )


def spoilt(dtype, random):
    """Gaussian with NaNs (any payload) and infinities in some places."""
    x = patterns(dtype, random.normal(size=KIND) * 3)
    infinity = int(patterns(dtype, np.inf))
    sign = 1 << (8 * PAYLOADS[dtype].bytes - 1)
    odd = np.array([infinity, infinity | sign, infinity + 1, PAYLOADS[dtype].nan, sign * 2 - 1], x.dtype)
    at = random.random(KIND) < 0.005
    x[at] = random.choice(odd, at.sum())
    return x


@functools.cache
def payload(dtype):
    """All kinds, one behind the other."""
    random = np.random.default_rng(1)
    word = PAYLOADS[dtype].word
    low, _ = exponents(dtype)
    normal = random.normal(size=KIND)
    outliers = np.where(random.random(KIND) < 0.02, normal * 200, normal)
    subnormals = random.integers(0, {"fp16": 1 << 11, "bf16": 1 << 8, "fp32": 1 << 24}[dtype], KIND, word)
    any_word = finite(dtype, random.integers(0, np.iinfo(word).max, 2 * KIND, word, endpoint=True))[:KIND]
    kinds = [
        every_pattern(dtype, random),
        blocks_at_scales(dtype, random),
        constants(dtype, random),
        zeros(dtype, random),
        ties(dtype, random),
        at_the_end(dtype, random),
        spoilt(dtype, random),
        patterns(dtype, outliers),
        patterns(dtype, normal * 0.01 + 100),
        patterns(dtype, np.abs(normal) * 1e-4),
        subnormals | random.integers(0, 2, KIND, word) << word(8 * PAYLOADS[dtype].bytes - 1),
        any_word,
    ]
    return np.concatenate([kind.reshape(-1) for kind in kinds])


# Comparisons. No tolerance.


def report(expected, actual, what):
    """The first differences, or nothing."""
    assert len(actual) == len(expected), what
    wrong = np.flatnonzero(actual != expected)
    return [f"{what}: [{i}] is 0x{actual[i]:x}, not 0x{expected[i]:x}" for i in wrong[:3]] + (
        [f"{what}: {wrong.size} of {len(expected)} differ"] if wrong.size else []
    )


def cpp_decode(codec, dtype, wire, elements):
    return np.frombuffer(
        codec_stream(codec.name, dtype, "decode", elements, stdin=wire.tobytes()), PAYLOADS[dtype].word
    )


def check(codec, dtype, x, what, count=True):
    """Wire, decoded values and the count of clamped elements of one message, the C++ beside the oracle."""
    cpp = lambda action: BACKGROUND.submit(codec_stream, codec.name, dtype, action, len(x), stdin=x.tobytes())
    actual, actual_count = cpp("encode"), count and cpp("clamped")
    wire, clamped = codec.encode_and_count(dtype, x)
    assert len(wire) == codec.wire_bytes(dtype, len(x)), what
    assert not report(wire, np.frombuffer(actual.result(), np.uint8), f"{what}: wire")
    actual = BACKGROUND.submit(cpp_decode, codec, dtype, wire, len(x))
    assert not report(codec.decode(dtype, wire, len(x)), actual.result(), f"{what}: decoded")
    if count:
        assert int(np.frombuffer(actual_count.result(), np.uint64)[0]) == clamped, f"{what}: clamped"


def check_wire(codec, dtype, wire, elements, what):
    """Bytes that no encoder need have written."""
    assert len(wire) == codec.wire_bytes(dtype, elements), what
    expected = codec.decode(dtype, wire, elements)
    assert not report(expected, cpp_decode(codec, dtype, wire, elements), what)


SPECIAL = {  # special patterns by width in bytes: for bf16, fp16 or fp32; one byte: for e4m3 or E8M0
    1: np.array([0, 1, 2, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x38], np.uint8),
    2: np.array(
        [0, 0x8000, 1, 0x8001, 0x3F80, 0xBF80, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE00, 0x7F7F]
        + [0xFF7F, 0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF, 0x0080, 0x007F, 0x0400, 0x4000],
        np.uint16,
    ),
    4: np.array(
        [0, 1 << 31, 1, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF],
        np.uint32,
    ),
}


def special_wire(layout, seed):
    """Random codes, and metadata of which half is special."""
    random = np.random.default_rng(seed)
    blocks = -(-layout.elements // layout.group)
    metadata = []
    for width in layout.widths:
        special = SPECIAL[width]
        anything = random.integers(0, np.iinfo(special.dtype).max, blocks, special.dtype, endpoint=True)
        metadata.append(np.where(random.random(blocks) < 0.5, random.choice(special, blocks), anything))
    return layout.join(random.integers(0, 1 << layout.bits, layout.elements, np.uint8), metadata)


def random_wire(codec, dtype, elements, seed):
    return np.random.default_rng(seed).integers(0, 256, codec.wire_bytes(dtype, elements), np.uint8)


def check_every_length(codec, count=True):
    for at, length in enumerate(LENGTHS):
        dtype = list(PAYLOADS)[at % 3]
        x = payload(dtype)[4096 * at + 17 :][:length]
        check(codec, dtype, x, f"{length} elements of {dtype}", count=count and length > 32)


def check_any_wire(codec, dtype, layout, headers=(b"",)):
    """Bytes that no encoder writes; layout(elements) has special metadata."""
    for elements in (20000, 4097):
        check_wire(codec, dtype, random_wire(codec, dtype, elements, 2), elements, f"{elements} random")
        for header in headers:
            wire = np.concatenate([np.frombuffer(header, np.uint8), special_wire(layout(elements), 3)])
            check_wire(codec, dtype, wire, elements, f"{elements} special behind '{header.hex()}'")
