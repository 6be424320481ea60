"""The C++ codecs against the oracle: every wire byte, every decoded bit, every count. No tolerance."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import write_golden
from oracle_testing import check, check_wire, codec_stream
from quickreduce_oracle import ATOM, CODECS, ELEMENTS, GROUP
from wire_oracle import PAYLOADS

BLOCK = GROUP // 2
ENOUGH = 10**7  # elements that each codec and dtype must have been compared on

SYNTHETIC = {  # spec: elements
    "gaussian": 1 << 17,
    "gaussian:sigma=0.0001": 1 << 17,
    "laplace:b=0.01": 1 << 17,
    "student-t:nu=1": 1 << 17,
    "uniform:low=0,high=1000": 1 << 17,
    "outliers": 1 << 18,
    "sweep": 1 << 19,
    "sweep:low=1e-7,high=0.01": 1 << 19,
    "constant:value=-0.3": 1 << 12,
    "constant:value=65504": 1 << 12,
    "adversarial": 1 << 20,
    "adversarial:seed=2,non_finite=0": 1 << 20,
    "adversarial:seed=3,non_finite=0.5": 1 << 18,
    "patterns": 1 << 17,
}


def synthetic(dtype, spec, elements):
    return np.frombuffer(codec_stream("synthetic", dtype, spec, elements), np.uint16)


def bits(dtype, values):
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(ELEMENTS[dtype].type).view(np.uint16)


def values(dtype, patterns):
    with np.errstate(invalid="ignore"):
        return ELEMENTS[dtype].from_bits(patterns).astype(np.float64)


# Payloads.


def interleave(even, odd):
    """Blocks as rows: the payload that has them as its even and its odd blocks."""
    return np.stack([even, odd], -1).reshape(-1).astype(np.uint16)


def finite_patterns(dtype):
    patterns = np.arange(1 << 16, dtype=np.uint16)
    return patterns[np.isfinite(values(dtype, patterns))]


def every_pattern_alone(dtype):
    """Each of the 65,536 patterns in a block of zeros of its own, at every place of a block."""
    del dtype
    patterns = np.arange(1 << 16)
    blocks = np.zeros((1 << 16, BLOCK), np.uint16)
    blocks[patterns, patterns // 2 % BLOCK] = patterns
    return blocks.reshape(-1, 2, BLOCK).swapaxes(1, 2).reshape(-1)


def with_first(first, others):
    """Blocks of `first` and 31 of the others each; the last is filled up with zeros."""
    rows = -(-len(others) // (BLOCK - 1))
    blocks = np.zeros((rows, BLOCK), np.uint16)
    blocks[:, 0] = first
    padded = np.zeros(rows * (BLOCK - 1), np.uint16)
    padded[: len(others)] = others
    blocks[:, 1:] = padded.reshape(rows, BLOCK - 1)
    return blocks


def block_maxima(dtype):
    """Powers of two over the whole range, its ends, and where d + eps is zero or close to it."""
    if dtype == "fp16":
        exponents = np.arange(-24, 16)
        corners = [65504, 65472]
        eps = 2.0**-24
    else:
        exponents = np.arange(-133, 128, 8)
        corners = [3.3895313892515355e38, 65536, 1e5]
        eps = float(values(dtype, np.uint16(0x33D7)))
    at_eps = eps * np.array([4, 8, 32, 128])
    near_eps = np.concatenate([at_eps, at_eps * 1.5, at_eps * 0.75, at_eps * 2])
    return np.unique(bits(dtype, np.concatenate([2.0**exponents, corners, near_eps])))


def every_pattern_below_each_maximum(dtype):
    """Under each maximum, of either sign, all patterns that are not larger, 31 in each block."""
    patterns = finite_patterns(dtype)
    blocks = []
    for maximum in block_maxima(dtype):
        smaller = patterns[np.abs(values(dtype, patterns)) <= values(dtype, maximum)]
        blocks += [with_first(maximum, smaller), with_first(maximum | 0x8000, smaller)]
    blocks = np.concatenate(blocks)
    half = (len(blocks) + 1) // 2
    return interleave(blocks[:half], blocks[-half:])


def every_pattern_beside_non_finite(dtype):
    """All patterns in blocks with a NaN or an infinity, interleaved with blocks that have none."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    finite = finite_patterns(dtype)
    infinity, nan = bits(dtype, [np.inf, np.nan])
    payloads = []
    for odd_one in (infinity, infinity | 0x8000, nan, nan | 0x8000, infinity + 1, 0xFFFF):
        spoilt = with_first(odd_one, patterns)
        clean = np.resize(finite, spoilt.shape)
        payloads += [interleave(spoilt, clean), interleave(clean, spoilt)]
    return np.concatenate(payloads)


def rounding_ties(codec, dtype):
    """The middles between neighbouring codes, and the elements beside them, at many scales."""
    if codec.minifloat:
        steps = np.arange(256 if codec.name == "qr-fp8" else 16, dtype=np.uint8).view(codec.minifloat)
        steps = np.unique(steps.astype(np.float64)[np.isfinite(steps.astype(np.float64))])
        extreme = codec.largest
    else:
        steps = np.arange(-codec.levels, codec.levels, dtype=np.float64)
        extreme = -codec.levels
    middles = (steps[:-1] + steps[1:]) / 2
    blocks = []
    for exponent in range(-12, 5):
        for sign in (1, -1):
            exact = bits(dtype, middles * 2.0**exponent)
            around = np.concatenate([exact, exact + 1, exact - 1, exact ^ 0x8000])
            blocks.append(with_first(bits(dtype, sign * extreme * 2.0**exponent), around))
    blocks = np.concatenate(blocks)
    return interleave(blocks, np.roll(blocks, 1, 0))


def hand_made(dtype):
    """Blocks with a story, each as an even block and as an odd one, beside an ordinary block."""
    largest = 65504 if dtype == "fp16" else 3.3895313892515355e38
    eps = values(dtype, np.uint16(ELEMENTS[dtype].eps))
    ordinary = bits(dtype, np.sin(np.arange(BLOCK) + 0.5))

    def block(*start, fill=0.0):
        return bits(dtype, list(start) + [fill] * (BLOCK - len(start)))

    subnormals = np.arange(1, BLOCK + 1, dtype=np.uint16)
    blocks = {
        "all +0": block(),
        "all -0": block(fill=-0.0),
        "+0, then -0": block(0.0, fill=-0.0),
        "-0, then +0": block(-0.0, fill=0.0),
        "tie, min first": block(-3.0, 3.0, 1.5, -1.5),
        "tie, max first": block(3.0, -3.0, 1.5, -1.5),
        "all +m": block(fill=0.7),
        "all -m": block(fill=-0.7),
        "all +-m": bits(dtype, 0.7 * (-1.0) ** np.arange(BLOCK)),
        "positive only": bits(dtype, np.arange(1, BLOCK + 1)),
        "negative only": bits(dtype, -np.arange(1.0, BLOCK + 1)),
        "subnormals": subnormals,
        "negative subnormals": subnormals | 0x8000,
        "largest subnormals": (0x03FF if dtype == "fp16" else 0x007F) - subnormals,
        "smallest": block(values(dtype, np.uint16(1))),
        "largest": block(fill=largest),
        "largest of both signs": bits(dtype, largest * (-1.0) ** np.arange(BLOCK)),
        "largest and smallest": block(largest, values(dtype, np.uint16(1))),
        "one NaN": block(1.0, np.nan, -2.0),
        "one infinity": block(1.0, np.inf, -2.0),
        "both infinities": block(np.inf, -np.inf),
        "all NaN": block(fill=np.nan),
    }
    for levels in (4, 8, 32, 128, 6, 240):
        for sign in (1, -1):
            m = sign * levels * eps
            blocks[f"d is {-sign} eps at {levels} levels"] = block(m, -m / 2, m / 3, -0.0, eps)
    pairs = [pair for one in blocks.values() for pair in ((one, ordinary), (ordinary, one))]
    return interleave(*(np.stack(side) for side in zip(*pairs)))


@functools.cache
def large_payloads(dtype):
    """Returns the payloads for comparing all codecs; read-only."""
    random = np.random.default_rng(1)
    payloads = {
        "every pattern alone": every_pattern_alone(dtype),
        "every pattern below each maximum": every_pattern_below_each_maximum(dtype),
        "every pattern beside non-finite": every_pattern_beside_non_finite(dtype),
        "hand-made": hand_made(dtype),
        "random finite": random.choice(finite_patterns(dtype), 1 << 19),
        "random": random.integers(0, 1 << 16, 1 << 17, np.uint16),
    }
    for spec, elements in SYNTHETIC.items():
        payloads[spec] = synthetic(dtype, spec, elements)
    return payloads


each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
each_dtype = pytest.mark.parametrize("dtype", ELEMENTS)


@each_dtype
@each_codec
def test_wires_and_values(codec, dtype):
    payloads = {**large_payloads(dtype), "rounding ties": rounding_ties(codec, dtype)}
    for what, payload in payloads.items():
        check(codec, dtype, payload, what)
    assert sum(map(len, payloads.values())) >= ENOUGH


@each_dtype
@each_codec
def test_every_length(codec, dtype):
    payload = synthetic(dtype, "adversarial:seed=4", 3 * ATOM)
    lengths = [*range(1, 71), 127, 128, 129, 1000, ATOM - 1, ATOM, ATOM + 1, ATOM + 37, 2 * ATOM + 17, 3 * ATOM - 1]
    for length in lengths:
        start = 64 * (length % 31)
        check(codec, dtype, payload[start : start + length], f"{length} elements")


@each_dtype
@each_codec
def test_any_wire_decodes(codec, dtype):
    """Bytes that no encoder writes: infinite and NaN scales, products that overflow, fp8's NaN."""
    random = np.random.default_rng(2)
    wire = random.integers(0, 256, 100 * codec.atom_bytes, np.uint8)
    check_wire(codec, dtype, wire, 100 * ATOM, "random")

    with_extreme_scales = wire.reshape(100, -1).copy()
    infinity = bits(dtype, np.inf)
    scales = [infinity, infinity | 0x8000, infinity + 1, infinity - 1, (infinity - 1) | 0x8000, 0, 0x8000, 1, 0xFFFF]
    with_extreme_scales[:, codec.scales_at :] = random.choice(np.array(scales, np.uint16), (100, 64)).view(np.uint8)
    check_wire(codec, dtype, with_extreme_scales.reshape(-1), 100 * ATOM, "extreme scales")


@each_dtype
@each_codec
def test_clamped_counts(codec, dtype):
    """Where eps nearly cancels a scale; and of single elements, whose padding does not count."""
    for spec in ("adversarial:seed=5", "sweep:low=1e-8,high=0.01"):
        check(codec, dtype, synthetic(dtype, spec, 100 * ATOM), spec)
    for maximum in block_maxima(dtype):
        check(codec, dtype, np.array([maximum], np.uint16), f"{maximum:04x} alone")


@pytest.mark.parametrize("dtype, word", [("fp32", np.uint32), ("fp16", np.uint16), ("bf16", np.uint16)])
def test_plain_codecs_are_the_values(dtype, word):
    payload = np.random.default_rng(3).integers(0, np.iinfo(word).max, ENOUGH, word, endpoint=True)
    if word == np.uint16:
        payload[: 1 << 16] = np.arange(1 << 16)
    for length in (len(payload), 1, 37, 2048):
        stdin = payload[:length].tobytes()
        assert codec_stream(dtype, dtype, "encode", length, stdin=stdin) == stdin
        assert codec_stream(dtype, dtype, "decode", length, stdin=stdin) == stdin


def test_every_distribution_is_compared():
    with pytest.raises(ValueError) as refusal:
        codec_stream("synthetic", "fp16", "?", 1)
    known = re.search("allowed are ([^;]*)", str(refusal.value)).group(1).split(", ")
    assert {spec.split(":")[0] for spec in SYNTHETIC} == set(known)


# Properties of the oracle, and so of the codecs, which give its bits.


def trip(codec, dtype, x):
    return codec.decode(dtype, codec.encode(dtype, x), len(x))


@each_dtype
@each_codec
def test_a_block_depends_on_its_own_elements_only_and_not_on_their_order(codec, dtype):
    x, other = (synthetic(dtype, f"adversarial:seed={seed}", ATOM) for seed in (4, 5))
    before = trip(codec, dtype, x)
    in_blocks = np.arange(ATOM).reshape(-1, BLOCK, 2).swapaxes(1, 2).reshape(-1, BLOCK)
    for block in in_blocks:
        changed = x.copy()
        changed[block] = other[block]
        differ = np.flatnonzero(trip(codec, dtype, changed) != before)
        assert set(differ) <= set(block)
    reversed_places = np.empty(ATOM, int)
    reversed_places[in_blocks] = in_blocks[:, ::-1]
    assert (trip(codec, dtype, x[reversed_places]) == before[reversed_places]).all()


@each_dtype
@each_codec
def test_symmetry_and_stable_codes(codec, dtype):
    if codec.minifloat:
        x = synthetic(dtype, "adversarial:seed=7,non_finite=0", ATOM)
        assert (values(dtype, trip(codec, dtype, x ^ 0x8000)) == -values(dtype, trip(codec, dtype, x))).all()
    elif (codec.name, dtype) != ("qr-q8", "bf16"):  # where three roundings may move a code by half a step
        x = synthetic(dtype, "gaussian:sigma=10", 50 * ATOM)
        wire = codec.encode(dtype, x)
        assert (codec.encode(dtype, codec.decode(dtype, wire, len(x))) == wire).all()


@each_dtype
@each_codec
def test_what_is_not_finite_spoils_its_block_and_no_other(codec, dtype):
    x = synthetic(dtype, "gaussian", ATOM)
    before, infinity = trip(codec, dtype, x), int(bits(dtype, np.inf))
    for odd_one in (infinity, infinity | 0x8000, infinity + 1, 0x7FFF, 0xFFFF):
        for place in range(GROUP):
            spoilt, expected = x.copy(), before.copy()
            spoilt[GROUP + place] = odd_one
            expected[GROUP + place % 2 : 2 * GROUP : 2] = bits(dtype, np.nan)
            assert (trip(codec, dtype, spoilt) == expected).all()


@each_dtype
@each_codec
def test_finite_blocks_stay_finite(codec, dtype):
    specs = ["adversarial:seed=8,non_finite=0", "sweep:low=1e-8,high=65504", "uniform:low=-65504,high=65504"]
    specs += ["constant:value=65504", "constant:value=-65504", "gaussian:sigma=30000"]
    # And every number as the extreme of a block.
    finite = np.arange(int(bits(dtype, np.inf)), dtype=np.uint16)
    extremes = np.zeros((len(finite), GROUP), np.uint16)
    extremes[:, 0], extremes[:, 1] = finite, finite | 0x8000
    for x in [*(synthetic(dtype, spec, 20 * ATOM) for spec in specs), extremes.reshape(-1)]:
        assert np.isfinite(values(dtype, trip(codec, dtype, x))).all()


# The wire formats never change silently: golden/README.md.
GOLDEN = Path(__file__).parent / "golden"


def test_golden_files_are_the_oracles():
    expected = write_golden.files()
    assert {path.name for path in GOLDEN.glob("*.bin")} == set(expected)
    for name, content in expected.items():
        assert (GOLDEN / name).read_bytes() == content, name


def test_golden_files_cover_every_family():
    names = {path.name.removesuffix(".wire.bin").rsplit(".", 1)[0] for path in GOLDEN.glob("*.wire.bin")}
    assert names >= set(
        "fp32 fp16 bf16 qr-fp8 qr-q8 qr-q6 qr-q4 qr-q3 qr-fp4 int8-g128 int5-g128 int4-g32 int4-g32-sym int2-g32-sr int2-g32-sr-is"
        " had-int4-g32 int8-gtensor int8-gtensor-sym-static0.05 logfmt4-g32 mxfp8-e4m3 mxfp6-e2m3 mxfp4 mxfp4-ceil mxfp4-even"
        " mxfp4-rceil mxint8 fp8-e4m3-g128 fp8-e4m3-g64-torch fp8-e4m3-g256 fp8-e4m3-g128-ue8m0 nvfp4 nvfp4-vllm nvfp4-te nvfp4-te-4over6"
        " nvfp4-ts0.75 nvfp4-vllm-ts0.75".split()
    )


def test_golden_files_are_the_codecs():
    for path in GOLDEN.glob("*.wire.bin"):
        name, dtype = path.name.removesuffix(".wire.bin").rsplit(".", 1)
        wire, decoded = path.read_bytes(), (GOLDEN / f"{name}.{dtype}.decoded.bin").read_bytes()
        x = (GOLDEN / f"{dtype}.input.bin").read_bytes()[: len(decoded)]
        elements = len(x) // PAYLOADS[dtype].bytes
        assert codec_stream(name, dtype, "encode", elements, stdin=x) == wire, path.name
        assert codec_stream(name, dtype, "decode", elements, stdin=wire) == decoded, path.name
