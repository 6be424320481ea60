"""An element has the same bits whatever surrounds it: of codecs and algorithms that `arlab list` calls position invariant, in the reference
and on emulated GPUs. (On real ones, `arlab conform` compares with the reference, which is then what holds for them.)"""

import functools

import numpy as np
import pytest

import arlab

RANKS = 4
ALGORITHMS = arlab.algorithms().table.query("collective == 'all_reduce'").set_index("name")["position_invariant"]
CODECS = arlab.codecs().table.set_index("name").query("position_invariant and dtypes.str.contains('fp16')")
LONGEST = 20000


@functools.cache
def values(elements, seed):
    """Returns values for every rank, from tiny to large, so that each sum and each scale is rounded."""
    rng = np.random.default_rng([seed, elements])
    x = rng.normal(size=(RANKS, elements)) * np.exp2(rng.integers(-8, 5, (RANKS, elements)))
    return x.astype(np.float16)


def unaligned(x):
    """The same in memory that begins in the middle of a word."""
    room = np.empty(x.size + 1, x.dtype)
    room[1:] = x
    return room[1:]


def differing(all_reduce, alignment, most=LONGEST):
    """In what surroundings a piece comes out otherwise than alone. all_reduce(tensors, number): outputs; `number` is that of the call."""
    piece = values(max(1, 2500 // alignment) * alignment, 1)
    length = piece.shape[1]
    alone = all_reduce([x.copy() for x in piece], 0)
    found = []
    for number, (before, behind) in enumerate([(0, 0), (0, 1), (1, 0), (1, 777), (3, 5000), (most // 2 // alignment, 31)]):
        begin = before * alignment
        around = values(begin + length + behind, 2).copy()
        around[:, begin : begin + length] = piece
        outputs = all_reduce([unaligned(x) if number % 2 else x.copy() for x in around], number)
        # A piece shorter than a block at the end has a scale of its own, behind the piece.
        same = all(np.array_equal(out[begin : begin + length].view(np.uint16), one.view(np.uint16)) for out, one in zip(outputs, alone))
        if not same:
            found.append((before, behind))
    return found


def of_reference(**options):
    return lambda tensors, number: arlab.all_reduce(tensors, count=False, **options).outputs


def of_kernels(**options):
    """Groups with other numbers of blocks and other slots, each used more than once."""
    groups = [arlab.Group(range(RANKS), blocks=blocks, slot_bytes=slot) for blocks, slot in ((1, 16384), (2, 65536), (5, 1 << 20))]

    def call(tensors, number):
        for _ in range(2):  # Slots are those of the call before.
            outputs = [np.empty_like(x) for x in tensors]
            groups[number % 3].all_reduce(tensors, out=outputs, **options)
        return outputs

    return call


@pytest.mark.parametrize("codec", CODECS.index)
def test_codecs(codec):
    assert not differing(of_reference(algorithm="two_shot", codec=codec), int(CODECS.loc[codec, "alignment"]))


@pytest.mark.parametrize("codec", ["fp16", "int4-g32", "qr-q4"])
@pytest.mark.parametrize("algorithm", ALGORITHMS[ALGORITHMS].index)
def test_algorithms(algorithm, codec):
    options = {"group_size": 2} if algorithm.startswith("hierarchical") else {}
    assert not differing(of_reference(algorithm=algorithm, codec=codec, **options), int(CODECS.loc[codec, "alignment"]))


@pytest.mark.parametrize("sum", ["native", "fp32"])
@pytest.mark.parametrize("codec", ["fp16", "int4-g32", "int3-g32-sr", "qr-q4", "mxfp4", "fp8-e4m3-g128"])
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "hierarchical"])
def test_kernels(algorithm, codec, sum):
    assert not differing(of_kernels(algorithm=algorithm, codec=codec, sum=sum), int(CODECS.loc[codec, "alignment"]))


@pytest.mark.parametrize("algorithm", ALGORITHMS[~ALGORITHMS].index)
def test_others_depend_on_the_place(algorithm):
    # In which order, or whose part is exact.
    assert differing(of_reference(algorithm=algorithm, codec="int4-g32"), 32)


def test_a_scale_of_the_message_depends_on_the_rest():
    assert "nvfp4" not in CODECS.index and "int8-gtensor" not in CODECS.index
    assert differing(of_reference(algorithm="one_shot", codec="nvfp4"), 16)


@pytest.mark.parametrize("mistake", ["size", "place", "alignment", "call"])
def test_what_depends_on_something_is_seen(mistake):
    """All-reduces that are wrong in one way only."""

    def call(tensors, number):
        elements = tensors[0].size
        turned = np.arange(elements) // 4096 % 2 == 1
        reverse = {
            "size": np.full(elements, elements > 3000), "place": turned,
            "alignment": np.full(elements, tensors[0].ctypes.data % 4 != 0), "call": np.full(elements, number > 3),
        }[mistake]  # fmt: skip
        up, down = (functools.reduce(np.add, order) for order in (tensors, tensors[::-1]))
        return [np.where(reverse, down, up)] * RANKS

    assert differing(call, 1)
