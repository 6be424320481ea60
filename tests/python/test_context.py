"""Codecs whose bits depend on where a message stands, and codecs by place: random numbers, what is carried from call to call, two
codecs of one call."""

import copy
import json
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import arlab

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codecs"))
import anybit_oracle  # noqa: E402
import microscaling_oracle  # noqa: E402
import wire_oracle  # noqa: E402

CONTEXTS = [
    arlab.Context(),
    arlab.Context(seed=1),
    arlab.Context(seed=2**63 + 5, call=2**32 - 1, rank=7, world_size=8, step=3, chunk=2, position=4096),
    arlab.Context(rank=3, position=2**32 - 64),  # goes on behind 2^32
    arlab.Context(rank=65535, position=2**40 + 32),
]


def of_oracle(context):
    return wire_oracle.Context(context.seed, context.call, context.rank, context.step, context.position)


def tensors(ranks, elements, dtype=np.float32, seed=1):
    return np.random.default_rng(seed).normal(size=(ranks, elements)).astype(dtype)


def test_the_specifications_numbers_are_philox():
    page = (Path(__file__).resolve().parents[2] / "reference/codecs/SPEC.md").read_text()
    word = "[0-9A-F]{8}"
    rows = re.findall(rf"^\| ({word}(?: {word}){{3}}) \| ({word} {word}) \| ({word}(?: {word}){{3}}) \|$", page, re.M)
    assert len(rows) == 3
    for counter, key, words in rows:
        low, high = (int(part, 16) for part in key.split())
        counter = np.array([int(part, 16) for part in counter.split()], np.uint32)
        assert wire_oracle.philox4x32(counter, high << 32 | low).tolist() == [int(part, 16) for part in words.split()]


@pytest.mark.parametrize("context", CONTEXTS)
def test_random_numbers_are_those_of_the_oracle(context):
    expected = wire_oracle.random_bits(of_oracle(context), 200).reshape(4, 50) / np.float32(2**24)
    assert np.array_equal(context.random((4, 50)), expected)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("codec", ["int4-g32-stoch", "int8-g128-sym-stoch", "had-int3-g64-stoch", "fp8-e4m3-g128-stoch"])
def test_a_wire_depends_on_its_context_as_the_oracle_says(codec, context):
    x = tensors(1, 1000, np.float16)[0]
    oracle = (microscaling_oracle if codec.startswith("fp8") else anybit_oracle).find(codec)
    if codec.startswith("fp8"):
        oracle = type(oracle)(oracle.name, oracle.block, oracle.torch, True, of_oracle(context))
    else:
        oracle = oracle._replace(context=of_oracle(context))
    assert np.array_equal(arlab.encode(x, codec, context=context), oracle.encode("fp16", x.view(np.uint16)))


def two_shot_by_hand(x, codec, seed, call):
    """As the specification has it: inputs in step 0, sums in step 1, each with its rank and its place in the tensor."""
    ranks, elements = x.shape
    size = elements // ranks
    result = np.empty(elements, x.dtype)
    for owner in range(ranks):
        begin = owner * size
        sums = np.zeros(size, x.dtype)
        for rank in range(ranks):
            context = wire_oracle.Context(seed, call, rank, 0, begin)
            wire = anybit_oracle.encode(codec, "fp32", x[rank, begin : begin + size].view(np.uint32), context)
            sums = sums + anybit_oracle.find(codec).decode("fp32", wire, size).view(np.float32)
        wire = anybit_oracle.encode(codec, "fp32", sums.view(np.uint32), wire_oracle.Context(seed, call, owner, 1, begin))
        result[begin : begin + size] = anybit_oracle.find(codec).decode("fp32", wire, size).view(np.float32)
    return result


def test_an_all_reduce_tells_each_message_where_it_stands():
    x = tensors(3, 3 * 20480)  # several tiles of each chunk
    for seed, call in ((0, 0), (5, 0), (5, 7)):
        for threads in (1, 3):
            outputs = arlab.all_reduce(x, codec="int4-g32-stoch", rounding_seed=seed, call=call, threads=threads).outputs
            assert np.array_equal(outputs, np.tile(two_shot_by_hand(x, "int4-g32-stoch", seed, call), (3, 1)))


def test_steps_count_encodings():
    steps = {}

    @arlab.codec("steps-g32", block=32, dtypes=("fp32",))
    class Steps:
        def encode(self, blocks, context):
            assert context.state is None
            if context.world_size == 4:  # not when it is defined
                steps.setdefault((context.rank, context.chunk), set()).add(context.step)
            return blocks.view(np.uint8)

        def decode(self, wire):
            return wire.view(np.float32)

    arlab.all_reduce(tensors(4, 256), codec="steps-g32", algorithm="ring", threads=1)
    # A ring of 4: chunk 0's sums travel three hops, and what all end with a fourth.
    assert sorted(step for (_, chunk), of_rank in steps.items() if chunk == 0 for step in of_rank) == [0, 1, 2, 3]


def test_stochastic_rounding_has_no_bias():
    x = tensors(4, 4096) * np.float32(1e-3)
    exact = x.astype(np.float64).sum(0)
    mean = {}
    for codec in ("int4-g32", "int4-g32-stoch"):
        outputs = [arlab.all_reduce(x, codec=codec, call=call, count=False).outputs[0] for call in range(64)]
        mean[codec] = np.mean(np.float64(outputs), 0) - exact
    assert np.sqrt(np.mean(mean["int4-g32-stoch"] ** 2)) < 0.3 * np.sqrt(np.mean(mean["int4-g32"] ** 2))


@pytest.mark.parametrize("algorithm", ["two_shot", "ring", "one_shot"])
def test_error_feedback_makes_up_for_what_was_lost(algorithm):
    x = tensors(4, 1024)
    exact = x.astype(np.float64).sum(0)
    state, sums, errors = arlab.CodecState(), np.zeros(1024), []
    for call in range(32):
        sums += arlab.all_reduce(x, codec="ef-int3-g32", algorithm=algorithm, state=state).outputs[0]
        errors.append(np.sqrt(np.mean((sums / (call + 1) - exact) ** 2)))
    assert errors[31] < errors[0] / 10
    assert algorithm in state.of and 0 < state.largest < 10


def test_a_first_call_is_that_of_the_codec_itself():
    x = tensors(4, 1024)
    plain = arlab.all_reduce(x, codec="int4-g32").outputs
    assert np.array_equal(arlab.all_reduce(x, codec="ef-int4-g32").outputs, plain)
    assert np.array_equal(arlab.all_reduce(x, codec="ef-int4-g32", state=arlab.CodecState()).outputs, plain)


def test_error_feedback_is_its_definition():
    x = tensors(1, 1000, np.float16)[0]
    state = np.linspace(-0.1, 0.1, 1000, dtype=np.float32)
    v = x.astype(np.float32) + state
    wire = arlab.encode(v.astype(np.float16), "int4-g32")
    lost = v - arlab.decode(wire, "int4-g32", "fp16", 1000).astype(np.float32)
    assert np.array_equal(arlab.encode(x, "ef-int4-g32", context=arlab.Context(state=state)), wire)
    assert np.array_equal(state, lost)


def test_a_lost_block_is_forgotten():
    x = tensors(1, 64, np.float32)[0]
    x[3] = np.inf
    state = np.zeros(64, np.float32)
    arlab.encode(x, "ef-int4-g32", context=arlab.Context(state=state))
    assert not state[:32].any() and state[32:].any()


def test_a_state_belongs_to_one_collective_and_changes_only_by_success():
    state = arlab.CodecState()
    x = tensors(4, 1024)
    arlab.all_reduce(x, codec="ef-int4-g32", state=state)
    kept = copy.deepcopy(state)
    assert pickle.loads(pickle.dumps(state)).largest == state.largest
    for wrong in (
        dict(tensors=tensors(2, 1024), codec="ef-int4-g32"),
        dict(tensors=tensors(4, 2048), codec="ef-int4-g32"),
        dict(tensors=x, codec="ef-int3-g32"),
        dict(tensors=x, codec="ef-int4-g32", algorithm="ring"),
        dict(tensors=x, codec="ef-int4-g32", micro_chunks=2, algorithm="hierarchical_pipelined", group_size=2),
    ):
        with pytest.raises(arlab.ArgumentError, match="^the codec's state is of two_shot of 1024 fp32 elements on 4 ranks.*a new one$"):
            arlab.all_reduce(**wrong, state=state)

    fails = []

    @arlab.codec("fails-g32", block=32, dtypes=("fp32",), state=True)
    class Fails:
        def encode(self, blocks, context):
            if fails:
                raise RuntimeError("no")
            if context.state is not None:
                context.state += 1
            return blocks.view(np.uint8)

        def decode(self, wire):
            return wire.view(np.float32)

    own = arlab.CodecState()
    arlab.all_reduce(x, codec="fails-g32", state=own)
    fails.append(True)
    with pytest.raises(arlab.ArgumentError, match="RuntimeError: no"):
        arlab.all_reduce(x, codec="fails-g32", state=own)
    assert own.largest == 1 and kept.largest == state.largest


def test_codecs_of_ones_own_in_context():
    """The first cell of the notebook: stochastic rounding and error feedback, in Python."""

    @arlab.codec("own-stoch-g32", block=32, dtypes=("fp32",), state=True)
    class Own:
        def encode(self, blocks, context):
            x = blocks.astype(np.float32) + (0 if context.state is None else context.state)
            scale = np.maximum(np.abs(x).max(1, keepdims=True), np.float32(1e-30)) / np.float32(7)
            below = np.floor(x / scale)
            codes = (below + (context.random(x.shape) < x / scale - below)).astype(np.int8)
            if context.state is not None:
                context.state[...] = x - codes * scale
            bad = ~np.isfinite(x).all(1)
            scale[bad] = np.nan
            return np.concatenate([codes.view(np.uint8), scale.view(np.uint8)], 1)

        def decode(self, wire):
            return wire[:, :32].view(np.int8) * wire[:, 32:].copy().view(np.float32)

    x = tensors(4, 2048)
    state = arlab.CodecState()
    exact = x.astype(np.float64).sum(0)
    sums = sum(arlab.all_reduce(x, codec="own-stoch-g32", state=state, call=call).outputs[0].astype(np.float64) for call in range(16))
    once = arlab.all_reduce(x, codec="own-stoch-g32").outputs[0]
    assert np.abs(sums / 16 - exact).mean() < np.abs(once - exact).mean() / 8
    info = arlab.codec_info("own-stoch-g32")
    assert info["uses_context"] and info["has_state"]


OF_CONTEXT = ["int4-g32-stoch", "fp8-e4m3-g128-stoch", "ef-int4-g32", "ef-int4-g32-stoch", "int8-gtensor-stoch"]


@pytest.mark.parametrize("codec", [*OF_CONTEXT, "lossless-e3-g64", "rans-int4-g32", "rans-int4-g32-stoch"])
def test_properties_hold_given_the_context(codec):
    found = {row["property"]: row["verdict"] for row in arlab.check_codec(codec).frame.to_dict("records")}
    assert (found["context"] == "holds" or codec not in OF_CONTEXT) and "violated" not in found.values()


@pytest.mark.parametrize("codec", ["int4-g32-stoch", "had-int3-g64-stoch", "fp8-e4m3-g128-stoch"])
def test_kernels_have_the_same_random_numbers(codec):
    """tests/kernels/ has all algorithms, and replays of graphs."""
    x = tensors(3, 20000, np.float16)
    here = arlab.Context(seed=9, call=2, rank=1, step=1, position=12345)
    assert np.array_equal(arlab.encode(x[0], codec, platform="host", context=here), arlab.encode(x[0], codec, context=here))
    group = arlab.Group([0, 1, 2])
    for seed, calls in ((0, [0, 1]), (7, [40, 41])):
        if seed:
            group.set_rounding(seed=seed, call=40)
        for call in calls:
            outputs = group.all_reduce(list(x), codec=codec, out=[np.empty_like(each) for each in x])
            assert np.array_equal(outputs, arlab.all_reduce(x, codec=codec, rounding_seed=seed, call=call).outputs)
    for wrong in (dict(seed=-1), dict(seed=2**64), dict(call=2**32), dict(call="one")):
        with pytest.raises(arlab.ArgumentError, match="allowed are integers from 0 on, of 64 and of 32 bits"):
            group.set_rounding(**wrong)


@pytest.mark.parametrize("codec", ["ef-int4-g32", "ef-int4-g32-stoch", "int8-gtensor-stoch"])
def test_kernels_say_what_they_have_not(codec):
    with pytest.raises(arlab.Error, match=f"^codec {codec} has no kernels$"):
        arlab.encode(tensors(1, 64, np.float16)[0], codec, platform="host")
    assert codec not in arlab.codecs("host")


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(codec="ef-ef-int4-g32"), "codec 'ef-ef-int4-g32': 'ef-int4-g32' has error feedback already"),
        (dict(codec="ef-nothing"), "unknown codec 'nothing'"),
        (dict(codec="int4-g32-stoch-sr"), "unknown codec 'int4-g32-stoch-sr'"),
        (dict(codec="ef-int4-g32", context=arlab.Context(state=np.zeros(63, np.float32))), "state: needed is an array of float32 with 64"),
        (dict(codec="ef-int4-g32", context=arlab.Context(state=np.zeros(64))), "state: needed is an array of float32 with 64"),
        (dict(codec="ef-int4-g32", context=arlab.Context(state=np.zeros(128, np.float32)[::2])), "state: needed is an array that is contig"),
        (dict(codec="int4-g32-stoch", context=arlab.Context(rank=-1)), "Context.*allowed are integers from 0 on"),
        (dict(codec="int4-g32-stoch", context=arlab.Context(seed="a")), "Context.*allowed are integers from 0 on"),
    ],
)
def test_bad_contexts(wrong, message):
    with pytest.raises(ValueError, match=message):
        arlab.encode(tensors(1, 64)[0], **wrong)


def test_a_state_needs_a_context():
    with pytest.raises(ValueError, match=r"state=True: needed is an encode\(blocks, context\)"):

        @arlab.codec("none-g32", block=32, state=True)
        class Wrong:
            def encode(self, blocks):
                return blocks.view(np.uint8)

            def decode(self, wire):
                return wire.view(np.float32)


# ---------------------------------------------------------------- two codecs of one call

HALVES = arlab.Codecs(reduce_scatter="bf16", all_gather="fp8-e4m3-g128")


def test_codecs_by_place_are_texts():
    assert HALVES == "rs=bf16,ag=fp8-e4m3-g128" and pickle.loads(pickle.dumps(HALVES)) == HALVES
    assert arlab.Codecs("qr-q4", step={0: "bf16"}) == "else=qr-q4,step0=bf16"
    assert arlab.Codecs("qr-q4", below={65536: "bf16"}) == "else=qr-q4,below65536=bf16"
    assert arlab.Codecs(outer="qr-q4", inner="fp16") == "outer=qr-q4,inner=fp16"
    for wrong in ({}, {"reduce_scatter": "bf16"}, {"reduce_scatter": "bf16", "inner": "bf16"}, {"step": {0: "bf16"}}):
        with pytest.raises(arlab.ArgumentError, match="^codec '.*': allowed are two codecs, rs=...,ag=... or "):
            arlab.Codecs(**wrong)
    with pytest.raises(arlab.ArgumentError, match="^unknown codec 'bf17'"):
        arlab.Codecs(reduce_scatter="bf17", all_gather="bf16")


def test_halves_in_the_reference_the_simulator_and_kernels():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = tensors(4, 8192).astype(ml_dtypes.bfloat16)
    found = arlab.all_reduce(x, codec=HALVES)
    assert found.codec == "bf16" and found.inner_codec == "ag:fp8-e4m3-g128"
    assert found.wire_bits_per_element == (16 + 8.25) / 2
    assert (found.wire_bits_per_element_of_step_0, found.wire_bits_per_element_of_step_1) == (16, 8.25)
    plain, coded = (arlab.all_reduce(x, codec=codec).sqnr_db for codec in ("bf16", "fp8-e4m3-g128"))
    assert coded < found.sqnr_db < plain

    group = arlab.Group([0, 1, 2, 3])
    for codec in (HALVES, arlab.Codecs(reduce_scatter="fp8-e4m3-g128", all_gather="bf16")):
        outputs = [tensor.copy() for tensor in x]
        group.all_reduce(outputs, codec=codec)
        assert np.array_equal(np.stack(outputs).view(np.uint16), arlab.all_reduce(x, codec=codec).outputs.view(np.uint16))

    times = {codec: arlab.simulate(topology="full:4", algorithm="two_shot", codec=codec, bytes="64M", dtype="bf16").latency_us
             for codec in ("bf16", HALVES, "fp8-e4m3-g128")}  # fmt: skip
    assert times["bf16"] > times[HALVES] > times["fp8-e4m3-g128"]

    with pytest.raises(arlab.ArgumentError, match="an inner codec is named, too: allowed is one of the two$"):
        arlab.all_reduce(x, codec=HALVES, algorithm="hierarchical", inner_codec="fp16")


# ---------------------------------------------------------------- codebooks


def test_nf4_is_that_of_the_levels():
    x = tensors(1, 1000)[0]
    own = arlab.Codebook(arlab.Codebook.of("nf4"), group=64, name="nf4again")
    assert own == "nf4again-g64" and own.group == 64
    assert np.array_equal(arlab.encode(x, own), arlab.encode(x, "nf4-g64"))
    assert pickle.loads(pickle.dumps(own)) == own
    # bitsandbytes: the nearest of the normalized values, by the middles of its levels.
    blocks = np.pad(x, (0, 24)).reshape(-1, 64)
    scales = np.abs(blocks).max(1, keepdims=True)
    nearest = np.abs(blocks / scales - own.levels[:, None, None]).argmin(0)
    decoded = (own.levels[nearest] * scales).reshape(-1)[:1000]
    assert np.array_equal(arlab.decode(arlab.encode(x, own), own, "fp32", 1000), decoded)


def test_a_codebook_goes_through_everything(tmp_path):
    levels = np.sign(np.linspace(-1, 1, 15)) * np.linspace(-1, 1, 15) ** 2
    own = arlab.Codebook(levels, group=32)
    x = tensors(4, 8192, np.float16)
    found = arlab.all_reduce(x, codec=own)
    assert found.wire_bits_per_element == 5 and 10 < found.sqnr_db < 30
    assert arlab.simulate(topology="full:4", algorithm="two_shot", codec=own, bytes="1M").latency_us > 0
    assert "violated" not in set(arlab.check_codec(own).frame["verdict"])
    group = arlab.Group([0, 1, 2, 3])
    for algorithm in ("two_shot", "one_shot", "ring"):
        outputs = [tensor.copy() for tensor in x]
        group.all_reduce(outputs, codec=own, algorithm=algorithm)
        expected = arlab.all_reduce(x, codec=own, algorithm=algorithm).outputs
        assert np.array_equal(np.stack(outputs).view(np.uint16), expected.view(np.uint16))
    for dtype in (np.float16, np.float32):
        y = tensors(1, 5000, dtype)[0]
        for codec in (own, "nf4-g64", "nf4-g128", "e4m3b15-g64"):
            wire = arlab.encode(y, codec)
            assert np.array_equal(arlab.encode(y, codec, platform="host"), wire)
            decoded = arlab.decode(wire, codec, dtype, 5000)
            assert np.array_equal(arlab.decode(wire, codec, dtype, 5000, platform="host"), decoded)


def test_a_codebook_is_replaced():
    x = tensors(1, 64)[0]
    first = arlab.encode(x, arlab.Codebook([-1, 1], name="mine"))
    assert len(first) == 64 // 8 + 4
    assert len(arlab.encode(x, arlab.Codebook([-1, 0, 0.5, 1], name="mine"))) == 64 // 4 + 4


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(levels=[1]), "1 levels; allowed are 2 to 256"),
        (dict(levels=range(257)), "257 levels; allowed are 2 to 256"),
        (dict(levels=[0, np.nan]), "level 1 is nan; allowed are numbers"),
        (dict(levels=[0, np.inf]), "level 1 is inf; allowed are numbers"),
        (dict(levels=[1, 1]), "level 1 is 1, behind 1; needed are ascending levels"),
        (dict(levels=[0, 1e-45]), "the largest magnitude is 1e-45; allowed is 2\\^-100 and more"),
        (dict(levels=["a", 1]), "levels: needed are numbers"),
        (dict(levels=[0, 1], group=48), "group is 48: allowed are the integers 32, 64 and 128"),
        (dict(levels=[0, 1], name="nf4"), "codebook 'nf4' is built in"),
        (dict(levels=[0, 1], name="A b"), "codebook 'A b'|a codebook"),
        (dict(levels=[0, 1], name="fp8-e4m3"), "there is a codec fp8-e4m3-g64 already"),
    ],
)
def test_bad_codebooks(wrong, message):
    with pytest.raises(arlab.ArgumentError, match=message) as error:
        arlab.Codebook(**wrong)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- wires whose length depends on the data

ml_dtypes = pytest.importorskip("ml_dtypes")


def activations():
    """Like those of a network: most of a size, some channels large, and all that is not a number."""
    x = tensors(1, 40000)[0] * np.exp(np.linspace(-3, 3, 40000, dtype=np.float32))
    x[::997], x[1::997], x[2::997], x[3::997] = 0, np.inf, -0.0, np.nan
    return x


def lossless_by_hand(x, bits, group):
    """The specification in NumPy: the wire of bf16 or fp32 words."""
    size = x.dtype.itemsize
    words = x.view(f"u{size}").astype(np.uint32) << np.uint32(32 - 8 * size)
    exponents = (words >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64)
    rest = (words >> np.uint32(31) << np.uint32(23)) | (words & np.uint32(0x7FFFFF))
    rests = rest.astype("<u4").view(np.uint8).reshape(-1, 4)[:, 4 - size : 3]
    blocks = np.pad(exponents, (0, -len(x) % group)).reshape(-1, group)
    bases = blocks.max(1)
    below = (bases[:, None] - blocks).reshape(-1)[: len(x)]
    escape = (1 << bits) - 1
    codes = np.minimum(below, escape).astype(np.uint8)
    body = rests.tobytes() + wire_oracle.pack_codes(codes[None], bits).tobytes()
    body += bases.astype(np.uint8).tobytes() + exponents[below >= escape].astype(np.uint8).tobytes()
    return (len(body) + 8).to_bytes(8, "little") + body


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("codec", ["lossless-e2-g8", "lossless-e3-g64", "lossless-e4-g4096"])
def test_lossless_keeps_every_bit(codec, dtype):
    with np.errstate(all="ignore"):
        x = activations().astype(dtype)
    words = x.view(f"u{x.dtype.itemsize}")
    for count in (1, 7, 64, 1000, 40000):
        wire = arlab.encode(x[:count], codec)
        assert wire.tobytes() == lossless_by_hand(x[:count], int(codec[10]), int(codec.split("-g")[1]))
        assert np.array_equal(arlab.decode(wire, codec, dtype, count).view(words.dtype), words[:count])
        assert len(wire) <= arlab.wire_bytes(codec, dtype, count)


def rans_by_hand(inner):
    """The specification in NumPy and integers: the wire of another codec's wire."""
    counts = np.bincount(inner, minlength=256)
    frequencies = np.where(counts > 0, np.maximum(1, counts * 4096 // len(inner)), 0)
    while frequencies.sum() > 4096:
        frequencies[frequencies.argmax()] -= 1
    while frequencies.sum() < 4096:
        frequencies[frequencies.argmax()] += 1
    starts = np.concatenate([[0], frequencies.cumsum()[:-1]])
    state, out = 1 << 23, bytearray()
    for symbol in inner[::-1].tolist():
        frequency = int(frequencies[symbol])
        while state >= (1 << 19) * frequency:
            out.append(state & 0xFF)
            state >>= 8
        state = (state // frequency << 12) + state % frequency + int(starts[symbol])
    body = frequencies.astype("<u2").tobytes() + state.to_bytes(4, "little") + bytes(out[::-1])
    body = b"\x01" + body if len(body) < len(inner) else b"\x00" + inner.tobytes()
    return (len(body) + 8).to_bytes(8, "little") + body


@pytest.mark.parametrize("inner", ["int8-g128", "int4-g32", "int8-gtensor-sym", "bf16"])
def test_rans_is_its_definition_and_decodes_like_the_codec(inner):
    x = tensors(1, 20000)[0].astype(ml_dtypes.bfloat16)
    x[:2000] = 0
    for count in (1, 100, 20000):
        plain = arlab.encode(x[:count], inner)
        wire = arlab.encode(x[:count], f"rans-{inner}")
        assert wire.tobytes() == rans_by_hand(plain)
        decoded = arlab.decode(wire, f"rans-{inner}", "bf16", count)
        assert np.array_equal(decoded.view(np.uint16), arlab.decode(plain, inner, "bf16", count).view(np.uint16))
    assert len(wire) < len(plain)


def test_lengths_as_sent_in_a_collective():
    x = tensors(4, 8192).astype(ml_dtypes.bfloat16)
    found = arlab.all_reduce(x, codec="lossless-e3-g64")
    assert found.exact or found.sqnr_vs_uncompressed_db == float("inf")
    assert 10 < found.wire_bits_per_element < 13 < found.max_wire_bits_per_element < 20
    # Every rank sends three chunks of its input, and three times its sum.
    sent = sum(len(arlab.encode(x[rank, owner * 2048 :][:2048], "lossless-e3-g64")) for rank in range(4) for owner in range(4) if rank != owner)
    sums = arlab.all_reduce(x, codec="bf16").outputs[0]
    sent += 3 * sum(len(arlab.encode(sums[owner * 2048 :][:2048], "lossless-e3-g64")) for owner in range(4))
    assert found.wire_bytes == sent
    assert "max_wire_bits_per_element" not in arlab.all_reduce(x, codec="int4-g32").data


def test_wires_that_cannot_be():
    x = tensors(1, 1000)[0].astype(ml_dtypes.bfloat16)
    for codec in ("lossless-e3-g64", "rans-int8-g128"):
        wire = arlab.encode(x, codec)
        for wrong in (wire[:-1], wire[:4], np.concatenate([wire, wire]), np.r_[wire[:8] + 1, wire[8:]]):
            with pytest.raises(arlab.ArgumentError, match="bytes of wire|a wire that says it has|ends early"):
                arlab.decode(wrong, codec, "bf16", 1000)
        with pytest.raises(arlab.ArgumentError, match="does not say how many elements it holds: name them$"):
            arlab.decode(wire, codec, "bf16")
        with pytest.raises(arlab.Error, match=f"^codec {codec} has no kernels$"):
            arlab.encode(x, codec, platform="host")
    for name, message in {
        "lossless-e5-g64": "5 bits; allowed is 2 to 4",
        "lossless-e3-g12": "group of 12; allowed is a multiple of 8 from 8 to 4096",
        "rans-rans-int4-g32": "the wire of 'rans-int4-g32' is of variable length already",
    }.items():
        with pytest.raises(arlab.ArgumentError, match=message):
            arlab.codec_info(name)


# ---------------------------------------------------------------- codecs of whole messages in Python


def test_a_scale_of_the_whole_message():
    """int8-gtensor-sym, by statistics that a first pass finds."""

    @arlab.codec("own-gtensor", block=None, wire_bytes=lambda elements: elements + 2, dtypes=("bf16", "fp32"))
    class Own:
        def measure(self, message):
            largest = np.abs(message.astype(np.float32)).max()
            return (largest / np.float32(127)).astype(ml_dtypes.bfloat16).astype(np.float32)

        def encode(self, message, scale):
            inverse = np.float32(1) / scale
            codes = np.rint(message.astype(np.float32) * inverse) if np.isfinite(inverse) else np.zeros(len(message))
            codes = np.clip(codes + 128, 0, 255) if np.isfinite(scale) else np.zeros(len(message))
            bits = scale.astype(ml_dtypes.bfloat16).view(np.uint16) if np.isfinite(scale) else np.uint16(0x7FC0)
            return np.concatenate([codes.astype(np.uint8), np.array([bits]).view(np.uint8)])

        def decode(self, wire, elements):
            scale = wire[elements:].copy().view(ml_dtypes.bfloat16).astype(np.float32)
            return (wire[:elements].astype(np.float32) - 128) * scale

    for dtype in (ml_dtypes.bfloat16, np.float32):
        x = tensors(4, 8000).astype(dtype)
        for elements in (1, 100, 8000):
            wire = arlab.encode(x[0, :elements], "own-gtensor")
            assert np.array_equal(wire, arlab.encode(x[0, :elements], "int8-gtensor-sym"))
        for algorithm in ("two_shot", "ring", "one_shot"):
            own, built_in = (arlab.all_reduce(x, codec=codec, algorithm=algorithm) for codec in ("own-gtensor", "int8-gtensor-sym"))
            assert np.array_equal(own.outputs, built_in.outputs) and own.wire_bytes == built_in.wire_bytes
    assert arlab.codec_info("own-gtensor")["block"] is None
    assert "violated" not in {row["verdict"] for row in arlab.check_codec("own-gtensor").frame.to_dict("records") if row["property"] != "saturation"}
    assert arlab.simulate(topology="full:4", algorithm="two_shot", codec="own-gtensor", bytes="1M", dtype="bf16").latency_us > 0


def test_a_wire_of_variable_length():
    """Runs of zeros: a bit per element, and the values that are not zero."""

    @arlab.codec("own-sparse", block=8, wire_bytes=lambda elements: (elements + 7) // 8 + 4 * elements, variable=True, dtypes=("fp32",))
    class Own:
        def encode(self, message):
            words = message.view(np.uint32)
            return np.concatenate([np.packbits(words != 0), words[words != 0].view(np.uint8)])

        def decode(self, wire, elements):
            there = np.unpackbits(wire[: (elements + 7) // 8])[:elements].astype(bool)
            words = np.zeros(elements, np.uint32)
            words[there] = wire[(elements + 7) // 8 :].copy().view(np.uint32)
            return words.view(np.float32)

    x = np.where(np.arange(4096) % 8 == 0, tensors(4, 4096), np.float32(0))
    found = arlab.all_reduce(x, codec="own-sparse")
    assert np.array_equal(found.outputs, arlab.all_reduce(x, codec="fp32").outputs)
    assert found.wire_bytes == 24 * (8 + 1024 // 8 + 4 * 128)  # 12 messages each way, of 1024 elements
    assert found.max_wire_bits_per_element == 8 * (8 + 1024 // 8 + 4096) / 1024
    assert arlab.wire_bytes("own-sparse", "fp32", 1024) == 8 + 1024 // 8 + 4096
    wire = arlab.encode(x[0], "own-sparse")
    assert len(wire) == 8 + 512 + 4 * 512
    assert np.array_equal(arlab.decode(wire, "own-sparse", "fp32", 4096), x[0])
    with pytest.raises(arlab.ArgumentError, match="^codec own-sparse: decode of 4096 fp32 raised ValueError: "):
        arlab.decode(np.concatenate([np.frombuffer((520).to_bytes(8, "little"), np.uint8), np.full(512, 255, np.uint8)]), "own-sparse", "fp32", 4096)


def test_a_wire_of_variable_length_says_how_much_of_it_there_is():
    """Whatever was in the memory before, and whatever a foreign wire says."""

    class Own:
        def encode(self, message):
            return np.full(len(message) // 2, 7, np.uint8)

        def decode(self, wire, elements):
            return np.full(elements, len(wire), np.float32)

    adapter = arlab._codecs._MessageAdapter(lambda elements: elements, True, "half", Own(), 1, ["fp32"], False, False, False)
    wire = np.full(8 + 64, 0xAA, np.uint8)
    adapter.encode("fp32", np.zeros(4 * 64, np.uint8), wire)
    assert int.from_bytes(wire[:8].tobytes(), "little") == 8 + 32
    assert (wire[8 : 8 + 32] == 7).all() and not wire[8 + 32 :].any()
    values = np.zeros(4 * 64, np.uint8)
    for used, length in ((8 + 32, 32), (8, 0), (8 + 64, 64)):
        wire[:8] = np.frombuffer(used.to_bytes(8, "little"), np.uint8)
        adapter.decode("fp32", wire, values)
        assert (values.view(np.float32) == length).all()
    for used in (0, 7, 8 + 65, 2**63):
        wire[:8] = np.frombuffer(used.to_bytes(8, "little"), np.uint8)
        with pytest.raises(arlab.ArgumentError, match=f"^codec half: a wire that says it has {used} bytes; allowed are 8 to 72$"):
            adapter.decode("fp32", wire, values)


@pytest.mark.parametrize("shape", [(2, 32), (3, 31), (96,), (4, 32), ()])
def test_a_state_keeps_its_shape(shape):
    @arlab.codec("reshapes", block=32, state=True, dtypes=("fp32",), encode_ops=1, decode_ops=1)
    class Reshapes:
        def encode(self, blocks, context):
            if context.state is not None and blocks.any():  # else it is being defined
                context.state = np.ones(shape, np.float32)
            return blocks.copy().view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float32)

    context = arlab.Context(state=np.zeros(96, np.float32))
    wrong = re.escape(f"codec reshapes: encode left float32 of shape {shape} as its state: needed is (3, 32)")
    with pytest.raises(arlab.ArgumentError, match=f"^{wrong}$"):
        arlab.encode(np.ones(96, np.float32), "reshapes", context=context)
    assert not context.state.any()


def own_message_codec(encode=lambda message: np.zeros(8, np.uint8), **options):
    @arlab.codec("wrong-message", **{"block": None, "wire_bytes": lambda elements: 8, "dtypes": ("fp32",)} | options)
    class Wrong:
        def encode(self, message):
            return encode(message)

        def decode(self, wire, elements):
            return np.zeros(elements, np.float32)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(encode=lambda message: np.zeros(9, np.uint8)), r"encode of 1 fp32 gave uint8 of shape \(9,\): needed is uint8 of shape \(8,\)"),
        (dict(encode=lambda message: np.zeros(9, np.uint8), variable=True), r"needed is uint8 of shape \(at most 8,\)"),
        (dict(encode=lambda message: np.zeros(8)), r"gave float64 of shape \(8,\): needed is uint8"),
        (dict(encode=lambda message: 1 / 0), "encode of 1 fp32 raised ZeroDivisionError"),
        (dict(wire_bytes=lambda elements: 0), r"wire_bytes\(1\) is 0: allowed are 1 to"),
        (dict(wire_bytes=lambda elements: "a"), r"wire_bytes\(1\) raised ValueError"),
        (dict(wire_bytes=None), "block is None: allowed is an integer from 1 on; or None, with wire_bytes="),
        (dict(wire_bytes=None, block=8, variable=True), "variable=True: needed is wire_bytes="),
        (dict(block=0), "block is 0: allowed is an integer from 1 on"),
    ],
)
def test_bad_codecs_of_messages(options, message):
    with pytest.raises(arlab.ArgumentError, match=message) as error:
        own_message_codec(**options)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- scales that ranks share, sums of codes


def ceil_bfloat16(x):
    bits = np.float32(x).view(np.uint32)
    return (((bits >> 16) + ((bits & 0xFFFF) != 0)).astype(np.uint32) << 16).view(np.float32)


def sum_of_codes(x, bits, group):
    """SPEC.md, "Shared scales (shared-int)", of finite [ranks, elements] in float32."""
    ranks, elements = x.shape
    most = 2 ** (bits - 1) - 1
    blocks = np.pad(x, ((0, 0), (0, -elements % group))).reshape(ranks, -1, group)
    scale = ceil_bfloat16(abs(blocks).max((0, 2), keepdims=True) / np.float32(most // ranks))
    codes = np.clip(np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0)), -most, most)
    return (codes.sum(0).astype(np.float32) * scale[0]).reshape(-1)[:elements]


@pytest.mark.parametrize("bits, group", [(8, 32), (5, 8), (12, 128), (16, 4096)])
def test_sums_of_codes_have_one_rounding_and_no_order(bits, group):
    for ranks in (2, 3, 8):
        x = tensors(ranks, 20011)
        x[:, 64:128] = 0
        x[0, 7] = 3e30
        expected = sum_of_codes(x, bits, group)
        for algorithm in ("one_shot", "two_shot", "ring", "hierarchical", "tree", arlab.Ring(own="encoded", forward="reencoded")):
            if ranks == 3 and algorithm == "hierarchical":
                continue
            for threads in (1, 2):
                answer = arlab.all_reduce(x, algorithm=algorithm, codec=f"shared-int{bits}-g{group}", threads=threads)
                assert np.array_equal(answer.outputs, np.tile(expected, (ranks, 1))), algorithm


def test_the_same_codec_twice_is_one_in_sums_of_codes():
    x = tensors(8, 65536, np.float16)
    for algorithm in ("hierarchical", "hierarchical_pipelined"):
        once = arlab.all_reduce(x, algorithm=algorithm, codec="shared-int14-g32").outputs
        twice = arlab.all_reduce(x, algorithm=algorithm, codec="shared-int14-g32", inner_codec="shared-int14-g32").outputs
        assert np.array_equal(once, twice)


def test_shared_scales_of_messages_and_of_what_is_not_finite():
    x = tensors(4, 4096)
    assert np.array_equal(arlab.all_reduce(x, algorithm="one_shot", codec="shared-int16-gtensor").outputs[3], sum_of_codes(x, 16, 4096))
    x[2, 100] = np.inf
    x[1, 300] = np.nan
    outputs = arlab.all_reduce(x, codec="shared-int8-g32").outputs
    assert np.isnan(outputs[:, 96:128]).all() and np.isnan(outputs[:, 288:320]).all()
    assert np.isfinite(np.delete(outputs, np.r_[96:128, 288:320], axis=1)).all()


def test_what_ranks_agree_on_travels_too():
    sent = arlab.all_reduce(tensors(4, 65536), codec="shared-int8-g128")
    plain = arlab.all_reduce(tensors(4, 65536), codec="int8-g128-sym")
    assert sent.wire_bytes - plain.wire_bytes == 4 * 3 * 512 * 4  # fp32 of 512 blocks, from each of 4 ranks to 3 others
    how = dict(topology="h200-4", bytes="64M", algorithm="ring")
    took, without = (arlab.simulate(codec=codec, **how) for codec in ("shared-int8-g128", "int8-g128-sym"))
    agreement = took.breakdown["agreement"]
    assert agreement > 0 and "agreement" not in without.breakdown and np.isclose(sum(took.breakdown.values()), took.latency_us)
    assert took.latency_us - agreement < without.latency_us  # no codec at a hop
    with pytest.raises(arlab.ArgumentError, match="share scales agree on them first, which is simulated for a collective by itself only"):
        arlab.simulate(codec="shared-int8-g128", placement="1,0,3,2", **how)


def test_the_agreement_is_a_step_of_the_schedule():
    schedule = json.loads(arlab.schedule("ring", 4, 4096, codec="shared-int8-g128").to_json())
    x = tensors(4, 4096)
    for agreement, volume in ((None, 12), ("one_shot", 12), ("ring", 6)):
        own = {**schedule, **({"agreement": agreement} if agreement else {})}
        read = arlab.Schedule.from_json(json.dumps(own))
        assert json.loads(read.to_json()) == own
        answer = arlab.all_reduce(x, algorithm=read, codec="shared-int8-g128")
        assert np.array_equal(answer.outputs[0], sum_of_codes(x, 8, 128))
        assert answer.wire_bytes == 6 * 4096 + 6 * 32 * 2 + volume * 32 * 4
    for wrong, message in (("two_shots", "unknown algorithm 'two_shots'"), ("all_gather", "ranks do not agree")):
        with pytest.raises(arlab.ArgumentError, match=message):
            arlab.all_reduce(x, algorithm=arlab.Schedule.from_json(json.dumps({**schedule, "agreement": wrong})), codec="shared-int8-g128")


def test_kernels_add_codes():
    """tests/kernels/ has the bits; a call that draws no random numbers is not counted."""
    x = tensors(3, 5000)
    drawn = arlab.Group([0, 1, 2])
    for call in (0, 1):
        outputs = drawn.all_reduce(list(x), codec="int4-g32-stoch", out=[np.empty_like(each) for each in x])
        assert np.array_equal(outputs, arlab.all_reduce(x, codec="int4-g32-stoch", call=call).outputs)
        drawn.all_reduce(list(x), codec="shared-int9-g64", out=[np.empty_like(each) for each in x])


def test_a_codec_of_shared_scales_in_python():
    """The cell of the notebook: what shared-int16-g32 is, in Python."""

    @arlab.codec("own-shared-g32", block=32, dtypes=("fp32",), shared=True)
    class Shared:
        def measure(self, blocks):
            return abs(blocks).max(1)

        def encode(self, blocks, largest, context):
            scale = ceil_bfloat16(largest[:, None] / np.float32(32767 // context.world_size))
            codes = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0)).astype(np.int16)
            return np.concatenate([codes.view(np.uint8), scale.view(np.uint8)], 1)

        def decode(self, wire):
            return wire[:, :64].copy().view(np.int16) * wire[:, 64:].copy().view(np.float32)

        def add(self, wire, other):
            codes = wire[:, :64].copy().view(np.int16) + other[:, :64].copy().view(np.int16)
            return np.concatenate([codes.view(np.uint8), wire[:, 64:]], 1)

    x = tensors(4, 5000)
    for algorithm in ("ring", "two_shot"):
        assert np.array_equal(arlab.all_reduce(x, algorithm=algorithm, codec="own-shared-g32").outputs[1], sum_of_codes(x, 16, 32))
    info = arlab.codec_info("own-shared-g32")
    assert info["shares_scales"] and info["adds_codes"] and info["ops_are_estimates"]
    # np.float32(scales) is a plain array, of which the count sees no more.
    assert info["ops_are_guesses"] and info["encode_ops_per_element"] == 10 and 1 <= info["decode_ops_per_element"] < 4
    del Shared.add
    arlab.codec("own-shared-g32", block=32, dtypes=("fp32",), shared=True)(Shared)
    assert not arlab.codec_info("own-shared-g32")["adds_codes"]
    decoded = arlab.all_reduce(x, algorithm="two_shot", codec="own-shared-g32").outputs[1]
    assert np.array_equal(decoded, sum_of_codes(x, 16, 32))  # sums in fp32 are exact, and codes by the same scale


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(block=32), r"shared=True: needed is a measure\(blocks\)"),
        (dict(block=32, wire_bytes=lambda n: n), "needed is block=None"),
    ],
)
def test_mistakes_of_shared_codecs(wrong, message):
    class Wrong:
        if "wire_bytes" in wrong:
            measure = max

        def encode(self, blocks, statistics):
            return blocks.view(np.uint8)

        def decode(self, wire):
            return wire

    with pytest.raises(arlab.ArgumentError, match=message):
        arlab.codec("wrong-shared", shared=True, **wrong)(Wrong)


# ---------------------------------------------------------------- codecs in Python on emulated GPUs


def absmax(block, fails=lambda: None):
    class AbsMax:
        def encode(self, blocks):
            fails()
            x = blocks.astype(np.float32)
            scale = np.maximum(abs(x).max(1, keepdims=True), 1e-30) / 127
            return np.concatenate([np.rint(x / scale).astype(np.int8).view(np.uint8), scale.view(np.uint8)], 1)

        def decode(self, wire):
            return wire[:, :block].view(np.int8) * wire[:, block:].copy().view(np.float32)

    return AbsMax


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring", "tree"])
def test_a_codec_in_python_runs_on_emulated_gpus(algorithm):
    arlab.codec("own-absmax-g64", block=64, dtypes=("fp16", "fp32"))(absmax(64))
    assert "own-absmax-g64" in arlab.codecs("host")
    for dtype, elements in ((np.float16, 5003), (np.float32, 4096)):
        x = tensors(3, elements, dtype)
        assert np.array_equal(arlab.encode(x[0], "own-absmax-g64", platform="host"), arlab.encode(x[0], "own-absmax-g64"))
        group = arlab.Group([0, 1, 2])
        outputs = group.all_reduce(list(x), algorithm=algorithm, codec="own-absmax-g64", out=[np.empty_like(each) for each in x])
        assert np.array_equal(outputs, arlab.all_reduce(x, algorithm=algorithm, codec="own-absmax-g64").outputs)


def test_random_numbers_of_a_codec_in_python_on_emulated_gpus():
    @arlab.codec("own-dither-g8", block=8, dtypes=("fp32",))
    class Dither:
        def encode(self, blocks, context):
            return np.floor(blocks * 16 + context.random(blocks.shape)).astype(np.int8).view(np.uint8)

        def decode(self, wire):
            return wire.view(np.int8) / np.float32(16)

    x = tensors(2, 6000)
    group = arlab.Group([0, 1])
    group.set_rounding(seed=3, call=5)
    outputs = group.all_reduce(list(x), codec="own-dither-g8", out=[np.empty_like(each) for each in x])
    assert np.array_equal(outputs, arlab.all_reduce(x, codec="own-dither-g8", rounding_seed=3, call=5).outputs)


def test_what_a_codec_in_python_raises_on_an_emulated_gpu_is_said():
    broken = []

    def fails():
        if broken:
            raise RuntimeError("out of luck")

    arlab.codec("own-broken-g64", block=64, dtypes=("fp32",))(absmax(64, fails))
    x = tensors(2, 4096)
    group = arlab.Group([0, 1])
    broken.append(True)
    said = "codec own-broken-g64: encode of .* raised RuntimeError: out of luck"
    for call in (lambda: group.all_reduce(list(x), codec="own-broken-g64"), lambda: arlab.encode(x[0], "own-broken-g64", platform="host")):
        with pytest.raises(arlab.Error, match=said):
            call()
    broken.clear()
    group.all_reduce(list(tensors(2, 4096)), codec="own-broken-g64")
    arlab.codec("own-g24", block=24, dtypes=("fp32",))(absmax(24))
    with pytest.raises(arlab.Error, match="codec own-g24 has no kernels"):  # its blocks do not fill a tile
        group.all_reduce(list(tensors(2, 4096)), codec="own-g24")
