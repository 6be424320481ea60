"""The collectives of the reference against the oracle, bit for bit: all algorithms with all options, all dtypes, both
accumulations, with chunks for some or all ranks, tails, NaNs and infinities; and sums that are formed otherwise would be seen."""

import functools
import itertools
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

import arlab
from collectives_oracle import ALGORITHMS, NAN, TYPES, WORDS, Oracle, elements_of, nearest, values_of

LONG = "ARLAB_LONG_TESTS" in os.environ  # every world size everywhere, which takes three times as long
PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "tensor_files_program"
QUICKREDUCE = ["qr-fp8", "qr-q8", "qr-q6", "qr-q4", "qr-q3", "qr-fp4"]
CODECS = [(dtype, dtype) for dtype in TYPES] + [(codec, dtype) for codec in QUICKREDUCE for dtype in ("fp16", "bf16")]
ALL_REDUCES = [name for name in arlab.algorithms() if arlab.schedule(name, 1, 1).collective == "all_reduce"]
OTHERS = [name for name in arlab.algorithms() if name not in ALL_REDUCES]


@functools.cache
def synthetic(spec, ranks, elements, dtype):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PROGRAM, "synthetic", spec, dtype, str(ranks), str(elements), f"{folder}/x.npy"], check=True)
        return np.load(f"{folder}/x.npy").view(TYPES[dtype])


def divisors(n):
    return [divisor for divisor in range(1, n + 1) if n % divisor == 0]


def variants_of(name, n):
    """All combinations of options; one that is not known here is no variant."""
    values = {
        "own": ["encoded", "exact"], "forward": ["unchanged", "reencoded"], "combine": ["none", "quantized"],
        "rings": divisors(n), "group-size": divisors(n), "micro-chunks": [3],
        "stripe": [], "inner-codec": [],  # they change nothing here: test_sums.py, and below
    }  # fmt: skip
    named = arlab.algorithms().table.set_index("name").loc[name, "options_and_defaults"].split("--")[1:]
    options = {each.split()[0].replace("-", "_"): values[each.split()[0]] for each in named}
    options = {option: each for option, each in options.items() if each}
    products = [dict(zip(options, each)) for each in itertools.product(*options.values())]
    # Rings that pass on what they have encoded again are no others when there are several.
    return [each for each in products if each.get("rings", 1) == 1 or each["forward"] == "unchanged"]


def same(oracle, name, options, x, schedule=None):
    """`schedule`: of another alignment than the codec's."""
    scatters = name.endswith("reduce_scatter")
    run = functools.partial(arlab.reduce_scatter if scatters else arlab.all_reduce, algorithm=schedule or name)
    if name in OTHERS and not scatters:
        run = getattr(arlab, name)
    more = {"threads": 1} if schedule else {"threads": 1, **options}
    if oracle.inner:
        more["inner_codec"] = oracle.inner
    if name in ALL_REDUCES or scatters:
        more["accumulate"] = oracle.accumulate
    word = WORDS[oracle.dtype]
    if name in ALL_REDUCES:
        more["count"] = False
    found = np.asarray(run(x, codec=oracle.codec, **more).outputs)
    expected = np.stack(ALGORITHMS[name](oracle, list(x), **options))
    differ = np.argwhere(found.view(word) != expected.view(word))
    assert not len(differ), (name, options, oracle, x.shape, [(at.tolist(), hex(found.view(word)[tuple(at)])) for at in differ[:3]])


class Unaligned(Oracle):
    """Chunks are cut as another codec wants them."""

    alignment = 32


@pytest.mark.parametrize("accumulate", ["native", "fp32"])
@pytest.mark.parametrize("codec, dtype", CODECS)
def test_all_reduces(codec, dtype, accumulate):
    """Plain codecs cost little: chunks for every rank, micro-chunks. The others encode whole atoms, and get few; which rank owns
    what does not depend on the codec."""
    worlds = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16) if LONG or accumulate == "native" else (1, 3, 6, 8)
    for n, name in itertools.product(worlds, ALL_REDUCES):
        oracle = Oracle(codec, dtype, accumulate)
        if codec != dtype:
            # Signs of zeros; less than an atom, whose fp16 sums overflow; three owners, one with a tail.
            inputs = [(65, "constant:value=-0"), (99, "laplace:b=9000,seed=5")] + [(2 * 2048 + 333, "adversarial:seed=6")] * (n <= 8)
            for options, (elements, spec) in itertools.product(variants_of(name, n), inputs):
                if "micro_chunks" not in options:
                    same(oracle, name, options, synthetic(spec, n, elements, dtype))
            continue
        large = "low=30000,high=65504" if dtype == "fp16" else "low=1e38,high=3e38"
        for options in variants_of(name, n):
            for elements, spec in (
                (1, "gaussian:seed=2"), (n * 16 + 5, "adversarial:seed=3"),
                # The signs of zeros show where a sum starts; subnormals; sums that overflow.
                (n + 1, "constant:value=-0"), (n + 9, "uniform:low=-3e-6,high=3e-6,seed=9"), (n + 9, f"uniform:{large}"),
            ):  # fmt: skip
                same(oracle, name, options, synthetic(spec, n, elements, dtype))
            x = synthetic("adversarial:non_finite=0,seed=4", n, n * 64 + 19, dtype)
            cut = arlab.schedule(name, n, n * 64 + 19, codec="int4-g32", **options)
            same(Unaligned(*oracle), name, options, x, schedule=cut)


def test_all_ranks_at_work_on_atoms_of_their_own():
    for n, name in itertools.product(range(2, 9), ALL_REDUCES):
        for options in variants_of(name, n):
            if options.get("rings", 1) == 1 and (n <= 4 or "micro_chunks" not in options):
                same(Oracle("qr-q6", "bf16"), name, options, synthetic("adversarial:non_finite=0,seed=7", n, n * 2048 - 1, "bf16"))
    x = synthetic("gaussian:seed=8", 16, 2048 * 18 + 7, "fp16")
    for name in set(ALL_REDUCES) - {"one_shot"}:
        for options in variants_of(name, 16):
            if options["own"] == "exact" and options.get("rings", 1) == 1 and "micro_chunks" not in options:
                same(Oracle("qr-q4"), name, options, x)


@pytest.mark.parametrize("codec, elements", [("fp16", 8), ("qr-q6", 7 * 2048 + 1025)])
def test_micro_chunks_change_nothing(codec, elements):
    for n, micro_chunks in itertools.product((1, 4, 6), (1, 2, 5, 8, 100, 4096)):
        for options in variants_of("hierarchical_pipelined", n):
            x = synthetic("adversarial:seed=12", n, elements, "fp16")
            same(Oracle(codec), "hierarchical_pipelined", options | {"micro_chunks": micro_chunks}, x)


def test_other_collectives_on_every_world_size():
    for n, name in itertools.product([*range(1, 18), 64] if LONG else [*range(1, 10), 12, 16, 17, 64], OTHERS):
        for options in variants_of(name, n):
            if n == 64 and name == "all_to_all" and (options["own"] == "exact" or options["combine"] == "quantized"):
                continue  # 4096 slots take seconds
            slots = 1 if name == "broadcast" else n
            for dtype, size in itertools.product(TYPES, (1, 5, 64)):
                same(Oracle(dtype, dtype), name, options, synthetic("adversarial:seed=4", n, slots * size, dtype))
            for codec in ("int4-g32", "qr-q4"):
                same(Oracle(codec), name, options, synthetic("adversarial:seed=4", n, slots * 37, "fp16"))


@pytest.mark.parametrize("name", OTHERS)
def test_other_collectives(name):
    """Slots of less than an atom; and of atoms and a tail, so that most begin inside an atom of the tensor."""
    cases = list(itertools.product([*QUICKREDUCE, "int5-g128", "int2-g32-sr", "int8-gtensor"], ("fp16", "bf16"), [3], (1, 37, 2048, 2 * 2048 + 77)))
    cases += itertools.product(("mxfp8-e4m3", "nvfp4", "qr-q6"), ["bf16"], [4], (5, 3000))
    for codec, dtype, n, size in cases:
        for options in variants_of(name, n):
            same(Oracle(codec, dtype), name, options, synthetic("adversarial:seed=4", n, size * (1 if name == "broadcast" else n), dtype))
    for options in variants_of(name, 4):
        same(Oracle("qr-q4", "fp16", "fp32"), name, options, synthetic("adversarial:seed=4", 4, 3000 * (1 if name == "broadcast" else 4), "fp16"))


@pytest.mark.parametrize("outer, inner, dtype", [
    ("int4-g32", "fp16", "fp16"), ("int4-g32", "int8-g128", "bf16"), ("fp16", "int5-g24", "fp16"), ("qr-q4", "fp16", "fp16"),
    ("fp16", "qr-q8", "fp16"), ("mxfp4", "int8-gtensor", "fp32"), ("int6-gtensor", "bf16", "bf16"), ("mxfp8-e4m3", "bf16", "bf16"),
])  # fmt: skip
def test_another_codec_inside(outer, inner, dtype):
    oracle = Oracle(outer, dtype, inner=inner)
    cut = all(arlab.codec_info(codec)["splits_at_alignment"] for codec in (outer, inner))
    # The second makes sums overflow in fp16.
    for n, spec in itertools.product((2, 4, 6), ("gaussian:sigma=1,seed=9", "adversarial:non_finite=0,seed=4")):
        for name in ["hierarchical"] + ["hierarchical_pipelined"] * cut:
            for options in variants_of(name, n):
                same(oracle, name, options, synthetic(spec, n, 5003, dtype))
        for options in variants_of("hierarchical_reduce_scatter", n):
            same(oracle, "hierarchical_reduce_scatter", options, synthetic(spec, n, n * 835, dtype))
    for own in ("encoded", "exact"):
        same(oracle, "all_to_all", {"own": own, "combine": "quantized"}, synthetic("gaussian:sigma=1,seed=5", 4, 4 * 333, dtype))


@pytest.mark.parametrize("codec, dtype", [("fp16", "fp16"), ("fp32", "fp32"), ("qr-q4", "fp16"), ("qr-fp8", "bf16")])
def test_a_tree_in_a_file_gives_the_bits_of_its_formula(codec, dtype):
    x = synthetic("adversarial:seed=31", 4, 5000, dtype)
    tree, o = arlab.Schedule.from_json(Path(__file__).parent / "tree.json"), Oracle(codec, dtype)
    left, right = o.sum([x[0], o.through(x[1])], "first"), o.sum([x[2], o.through(x[3])], "first")
    expected = o.through(o.sum([left, o.through(right)], "zero")).view(WORDS[dtype])
    assert (np.asarray(arlab.all_reduce(x, algorithm=tree, codec=codec).outputs).view(WORDS[dtype]) == expected).all()


def test_integers_whose_sums_are_exact_leave_no_choice():
    for dtype, n in itertools.product(TYPES, range(1, 34) if LONG else (*range(1, 10), 12, 16, 17, 24, 33)):
        elements = 3 * n + 2
        x = ((np.arange(n * elements) * 7 + np.arange(n * elements) // elements) % 15 - 7).reshape(n, elements)  # sums within 256
        for name in ALL_REDUCES:
            for options, accumulate in itertools.product(variants_of(name, n), ("native", "fp32")):
                if options.get("rings", 1) == 1:
                    found = arlab.all_reduce(x.astype(TYPES[dtype]), algorithm=name, codec=dtype, accumulate=accumulate, count=False, **options)
                    assert (np.asarray(found.outputs).astype(np.float64) == x.sum(0)).all(), (dtype, n, name, options)


# ---------------------------------------------------------------- mistakes that must be seen


def added(add):
    """Another addition of two values, from zero."""

    def total(o, x):
        with np.errstate(all="ignore"):
            return elements_of(o.dtype, functools.reduce(lambda sums, each: add(o, sums, values_of(each)), x, np.zeros(len(x[0]))))

    return total


def truncated(o, total, addend):
    rounded = nearest(o.dtype, total + addend)
    below = (elements_of(o.dtype, rounded).view(WORDS[o.dtype]) - WORDS[o.dtype](1)).view(TYPES[o.dtype])
    return np.where(np.abs(rounded) <= np.abs(total + addend), rounded, values_of(below))


def flushed(o, total, addend):
    rounded = nearest(o.dtype, total + addend)
    return np.where(np.abs(rounded) < 2.0**-14, np.copysign(0.0, rounded), rounded)


MISTAKES = {  # codec, input, the sum
    "none": ("qr-q4", "adversarial:seed=3", lambda o, x: o.sum(x, "zero")),
    "a rank is missing": ("fp16", "gaussian", lambda o, x: o.sum(x[:-1], "zero")),
    "a rank counts twice": ("fp16", "gaussian", lambda o, x: o.sum([*x, x[0]], "zero")),
    "descending order": ("qr-q4", "gaussian", lambda o, x: o.sum(x[::-1], "zero")),
    "from the first addend": ("fp16", "constant:value=-0", lambda o, x: o.sum(x, "first")),
    "from the first addend, which a codec has made": ("qr-q4", "constant:value=0", lambda o, x: o.sum(x, "first")),
    "in fp32": ("fp16", "gaussian", lambda o, x: o._replace(accumulate="fp32").sum(x, "zero")),
    "truncated": ("fp16", "gaussian", added(truncated)),
    "not clamped": ("qr-q4", "uniform:low=30000,high=65504", added(lambda o, total, x: nearest(o.dtype, total + x))),
    "subnormals flushed": ("fp16", "uniform:low=-3e-6,high=3e-6,seed=9", added(flushed)),
    "NaNs ignored": ("fp16", "adversarial:non_finite=0.5,seed=23",
                     added(lambda o, total, x: np.where(np.isnan(x), total, nearest(o.dtype, total + x)))),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_sums_that_are_formed_otherwise_are_seen(mistake):
    codec, spec, total = MISTAKES[mistake]
    o, x = Oracle(codec), synthetic(spec, 5, 1500, "fp16")
    expected = o.through(total(o, [o.through(rank) for rank in x]))
    schedule = arlab.schedule("two_shot", 5, 1500, codec="qr-q4")  # one owner
    found = np.asarray(arlab.all_reduce(x, algorithm=schedule, codec=codec).outputs)
    assert (found.view(np.uint16) == expected.view(np.uint16)).all() == (mistake == "none")
