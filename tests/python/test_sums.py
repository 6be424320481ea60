"""How sums are made: every record beside a model in NumPy, and all-reduces of other people beside what they gave on an H200."""

import csv
import dataclasses
import fnmatch
import hashlib
import re
import sys
from fractions import Fraction
from pathlib import Path

import arlab
import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "experiments/measured/foreign_all_reduce_h200.csv"

sys.path += [str(ROOT / "experiments/gpu"), str(ROOT / "tests/codecs")]
import anybit_oracle  # noqa: E402
import foreign_all_reduce  # noqa: E402
import microscaling_oracle  # noqa: E402
from wire_oracle import PAYLOADS  # noqa: E402

GROUP = 64
RANKS = 4
PLAIN = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def e4m3(values):
    """Codes as the values they stand for, to the nearest even, limited to 448."""
    return np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


class Fp8Model:
    """two_shot with fp8-e4m3-g64, by the words of SPEC.md. Infinities and NaN are left to other tests."""

    def __init__(self, sum):
        self.sum = sum

    def encode(self, values):
        blocks = values.reshape(-1, GROUP)
        largest = np.maximum(np.abs(blocks).max(1, keepdims=True), np.float32(1e-4))
        return e4m3(blocks * (np.float32(448) / largest)), largest * (np.float32(1) / np.float32(448))

    def round(self, values):
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)

    def decoded(self, codes, scales):
        values = codes * scales
        return values if self.sum.decode == "fp32" else self.round(values)

    def reduce(self, wires, owner, own_values):
        total = np.zeros_like(wires[0][0])
        for turn in range(RANKS):
            rank = (turn + owner) % RANKS if self.sum.order == "own" else turn
            codes, scales = wires[rank]
            if self.sum.own == "exact" and rank == owner:
                total = total + own_values
            elif self.sum.add == "fma":
                # A product of 4 and 24 bits and a sum of 24 are exact in 64 bits, but for sums of very different size.
                total = (codes.astype(np.longdouble) * scales + total).astype(np.float32)
            else:
                total = total + self.decoded(codes, scales)
            if self.sum.add == "native":
                total = self.round(total)
        return total if self.sum.round == "none" else self.round(total)

    def all_reduce(self, payloads):
        outputs = np.zeros(payloads.shape, np.float32)
        length = payloads.shape[1] // RANKS
        for owner in range(RANKS):
            own = slice(owner * length, (owner + 1) * length)
            wires = [self.encode(payloads[rank, own]) for rank in range(RANKS)]
            total = self.reduce(wires, owner, payloads[owner, own].reshape(-1, GROUP))
            codes, scales = self.encode(total)
            outputs[:, own] = self.round(codes * scales).reshape(-1)
            if self.sum.result == "sum":
                outputs[owner, own] = self.round(total).reshape(-1)
        return outputs


SUMS = [
    arlab.Sum(),
    arlab.Sum(add="fp32"),
    arlab.Sum(decode="fp32"),
    arlab.Sum(decode="fp32", add="fp32"),
    arlab.Sum(decode="fp32", add="fp32", round="none"),
    arlab.Sum(add="fma"),
    arlab.Sum(add="fma", order="own", round="none"),
    arlab.Sum(add="fma", round="none", result="sum"),
    arlab.Sum(order="own"),
    arlab.Sum(own="exact", add="fp32"),
    arlab.Sum(result="sum"),
]


def payloads(seed=1, elements=RANKS * GROUP * 400):
    values = np.random.default_rng(seed).standard_normal((RANKS, elements)) * np.exp2(np.arange(RANKS) - 2)[:, None]
    return values.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("how", SUMS, ids=str)
def test_a_sum_is_as_its_record_says(how):
    x = payloads()
    got = arlab.all_reduce(x, codec=f"fp8-e4m3-g{GROUP}", sum=how)
    expected = Fp8Model(how).all_reduce(x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(got.outputs.view(np.uint16), expected.view(np.uint16))
    assert got.ranks_identical == (how.result == "encoded")
    assert got.data["accumulate"] == ("fp32" if str(how) == "add=fp32" else str(how))


def test_every_record_gives_other_bits():
    """So that none of the comparisons above could hold of another record."""
    x = payloads().astype(np.float32)
    results = {Fp8Model(how).all_reduce(x).tobytes() for how in SUMS}
    assert len(results) == len(SUMS)


# Beside the listed codecs one of every other kind.
KINDS = arlab.codecs() + [
    "fp8-e4m3-g256-flashinfer", "fp8-e4m3-g64-torchft", "fp8-e4m3-g256-vllm", "int8-g256-vllm", "fp8-e4m3-g64-torch", "fp8-e4m3-g64-stoch", "int5-g128-sym",
    "int4-g32-sym-sr", "int4-g32-stoch", "had-int4-g32-sym", "int8-gtensor-static0.05:-3", "int8-gtensor-sym-static0.05", "mxfp4-rceil", "mxfp8-e5m2-ceil",
    "logfmt8-g64", "nvfp4-vllm", "nvfp4-te", "nvfp4-te-4over6", "nvfp4-ts448", "nf4-g64", "e4m3b15-g32", "shared-int8-g32", "lossless-e3-g32",
    "rans-int4-g32", "rans-logfmt4-g32", "rans-int4-g32-sr", "rans-qr-q4", "rans-mxfp4", "rans-nf4-g64", "ef-logfmt4-g32", "ef-nvfp4", "ef-int2-g32-sr-is", "ef-fp8-e4m3-g128",
    "fp8-e4m3-g128-ue8m0",
]  # fmt: skip
# Each with what it is compared with: the sum that differs from it in that field alone.
CHANGES = {
    "decode": (arlab.Sum(decode="fp32"), arlab.Sum()),
    "add": (arlab.Sum(add="fp32"), arlab.Sum()),
    "add=fma": (arlab.Sum(add="fma"), arlab.Sum()),
    "order": (arlab.Sum(order="own"), arlab.Sum()),
    "round": (arlab.Sum(add="fp32", round="none"), arlab.Sum(add="fp32")),
    "own": (arlab.Sum(own="exact"), arlab.Sum(own="encoded")),
    "result": (arlab.Sum(result="sum"), arlab.Sum()),
    "cast": (arlab.Sum(cast="fp16"), arlab.Sum()),
}


def nearest(value, dtype):
    """The number of the dtype that is nearest to a Fraction, ties to even: of a guess and its neighbours."""
    words = np.uint32 if np.dtype(dtype).itemsize == 4 else np.uint16
    guess = int(np.asarray(float(abs(value))).astype(dtype).view(words))
    near = [max(guess - 1, 0), guess, guess + 1]
    numbers = [Fraction(float(np.asarray(bits, words).view(dtype))) for bits in near]
    best = min(zip(near, numbers, strict=True), key=lambda each: (abs(each[1] - abs(value)), each[0] % 2))
    return np.copysign(float(best[1]), float(value) if value else 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_exact_sums_are_those_of_fractions(dtype):
    random = np.random.default_rng(7)
    for ranks in (2, 3, 8):
        x = (random.normal(size=(ranks, 300)) * 2.0 ** random.integers(-12, 13, (ranks, 300))).astype(dtype)
        x[0, ::3] = -x[1, ::3]  # cancelling leaves small bits
        expected = [nearest(sum(Fraction(float(v)) for v in column), dtype) for column in x.T]
        for algorithm in ("one_shot", "two_shot"):
            got = arlab.all_reduce(x, algorithm=algorithm, codec=PLAIN[np.dtype(dtype).name], sum="add=exact").outputs
            assert np.array_equal(got[0].astype(np.float64), expected), (ranks, algorithm)
    x = np.float32([[1e8], [1], [-1e8], [1]]).repeat(8, 1)
    assert (arlab.all_reduce(x, algorithm="one_shot", codec="fp32", sum="add=exact").outputs == 2).all()
    like = arlab.all_reduce(x, like="nvls")
    assert (like.outputs == 2).all()


def pairs_that_cannot_differ():
    """(entry, pattern of codecs, whether of fp16 alone) of SPEC.md's table."""
    text = (ROOT / "reference/codecs/SPEC.md").read_text()
    rows = text.split("| field | codecs | why |\n| --- | --- | --- |\n")[1].split("\n\n")[0].splitlines()
    cells = [row.strip("|").split("|")[:2] for row in rows]
    return [(field.strip().strip("`"), pattern, " in fp16 " in codecs) for field, codecs in cells for pattern in re.findall("`([^`]+)`", codecs)]


def gaussian(ranks, dtype, elements=10240, spread=False):
    """Normal numbers; with `spread`, each 64 of them of a magnitude of their own, so that sums of values of a few bits are rounded."""
    random = np.random.default_rng(ranks)
    values = random.standard_normal((ranks, elements))
    if spread:
        values *= np.exp2(-random.integers(0, 12, (ranks, elements // 64))).repeat(64, axis=1)
    return values.astype(ml_dtypes.bfloat16 if dtype == "bf16" else np.float16)


def outputs_of(x, codec, how, algorithm):
    """Bits, or None and why not."""
    try:
        return arlab.all_reduce(x, codec=codec, sum=how, algorithm=algorithm, count=False).outputs.view(np.uint16), ""
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("codec", KINDS)
def test_every_field_changes_bits_is_refused_or_is_in_the_table(codec):
    assert {name.partition("=")[0] for name in CHANGES} == {field.name for field in dataclasses.fields(arlab.Sum)}
    pairs = [(field, fp16) for field, pattern, fp16 in pairs_that_cannot_differ() if fnmatch.fnmatchcase(codec, pattern)]
    never = {field for field, fp16 in pairs if not fp16}
    for dtype in arlab.codec_info(codec)["dtypes"]:
        if dtype == "fp32":
            continue
        for ranks in (3, 5):
            inputs = [gaussian(ranks, dtype), gaussian(ranks, dtype, spread=True)]
            for name, (how, without) in CHANGES.items():
                entry = f"{name}={getattr(how, name)}" if name in vars(how) else name
                results = []  # by algorithm and input, whether bits are the same; None: refused
                for x in inputs:
                    for algorithm in ("one_shot", "two_shot"):
                        got, refusal = outputs_of(x, codec, how, algorithm)
                        assert got is not None or ("\n" not in refusal and ("sum" in refusal or codec.split("-", 1)[-1] in refusal)), refusal
                        results.append(None if got is None else np.array_equal(got, outputs_of(x, codec, without, algorithm)[0]))
                    if False in results or True not in results or entry in never:
                        break
                what = f"{codec} {dtype}, {ranks} ranks: {entry}"
                if entry in never:
                    assert False not in results and True in results, f"{what} changes bits, and is in the table"
                elif not ((entry, True) in pairs and dtype == "fp16"):
                    assert False in results or True not in results, f"{what} changes nothing"


def test_the_table_is_of_codecs_that_there_are():
    for field, pattern, _ in pairs_that_cannot_differ():
        assert field in ("decode=fp32", "round=none", "own=exact") and (pattern.startswith(("rans-", "ef-")) or fnmatch.filter(KINDS, pattern)), (field, pattern)


def spiked_values(codec, dtype, wire, elements):
    """Returns the values of int<b>-g<G>-sr and -sr-is, before a rounding to the dtype: by SPEC.md, from the wire's
    arrays."""
    oracle = anybit_oracle.find(codec)
    kind = np.float16 if dtype == "fp16" else ml_dtypes.bfloat16
    codes, metadata = oracle.layout(dtype, elements).split(np.asarray(wire))
    codes = codes.reshape(-1, oracle.group).astype(np.float32)
    if oracle.integer_scale:
        scale = anybit_oracle.integer_scales()[metadata[0].view(np.int8)[:, 0].astype(int) + 128]
        x = (codes - metadata[1].view(np.int8).astype(np.float32)) * scale[:, None]
    else:
        scale, zero = (array.view(ml_dtypes.bfloat16).astype(np.float32) for array in metadata[:2])
        x = zero + codes * scale
    for spike, place in ((-4, -2), (-3, -1)):
        rows = np.arange(len(x))
        x[rows, metadata[place].view(f"u{metadata[place].shape[1]}")[:, 0]] = metadata[spike].view(kind)[:, 0].astype(np.float32)
    return x.reshape(-1)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize(
    "codec",
    ["int4-g32-sr", "int2-g32-sr", "int2-g32-sr-is", "logfmt4-g32", "logfmt8-g64", "nvfp4", "nvfp4-te", "nvfp4-te-4over6", "int4-g32", "fp8-e4m3-g128", "nf4-g64", "qr-q4", "rans-logfmt3-g32", "rans-int4-g32-sr", "ef-nvfp4-vllm"],
)  # fmt: skip
def test_addends_are_fp32_numbers_before_any_rounding(codec, dtype):
    """one_shot by hand: what the codec decodes to in an fp32 payload, and of spikes what the wire's arrays say, is added in fp32."""
    ranks, elements = 3, 4096
    x = gaussian(ranks, dtype, elements)
    kind = x.dtype
    x[:, ::7] *= kind.type(100)
    inner = codec.removeprefix("rans-").removeprefix("ef-")
    parts = []
    for row in x:
        wire = arlab.encode(row, inner)
        if "-sr" in codec:
            parts.append(spiked_values(inner, dtype, wire, elements))
        elif codec.startswith("qr-"):
            parts.append(arlab.decode(wire, inner, dtype, elements).astype(np.float32))
        else:
            parts.append(arlab.decode(wire, inner, "fp32", elements))
    for add in ("native", "fp32"):
        total = np.full(elements, -0.0, np.float32)
        for part in parts:
            total = total + part
            total = total.astype(kind).astype(np.float32) if add == "native" else total
        got = arlab.all_reduce(x, codec=codec, algorithm="one_shot", sum=arlab.Sum(decode="fp32", add=add)).outputs
        expected = total.astype(kind).view(np.uint16)
        assert (got.view(np.uint16) == expected).all(), f"{(got.view(np.uint16) != expected).sum()} of {got.size} differ"


def test_a_codec_of_python_says_that_it_has_no_fp32_values():
    @arlab.codec("halves-python", block=64, encode_ops=1, decode_ops=1)
    class Halves:
        def encode(self, chunks):
            return (chunks.astype(np.float32) / 2).astype(np.float16).view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float16).astype(np.float32) * 2

    x = payloads()
    for sum, says in (("decode=fp32", "says nothing of values before that rounding"), ("add=fp32,round=none", "it says only what a wire is of bf16"), ("add=fma", "a code times a scale")):
        with pytest.raises(arlab.ArgumentError, match=says):
            arlab.all_reduce(x, codec="halves-python", sum=sum)
    arlab.all_reduce(x, codec="halves-python", sum="fp32")


@pytest.mark.parametrize("ranks, clamped", [(7, 0), (8, 1), (64, 57)])
def test_sums_of_codes_without_room_are_counted(ranks, clamped):
    """Codes of 4 bits have room for the sum of 7 ranks' largest."""
    result = arlab.all_reduce(np.ones((ranks, 96), np.float32), codec="shared-int4-g32", algorithm="one_shot")
    assert (result.outputs == min(ranks, 7)).all()
    assert result.clamped == clamped * 96 * ranks


def test_a_cast_goes_by_fp16():
    x = payloads()
    x[0, :3] = [1e6, -1e6, np.inf]
    x[1:, :3] = 0
    got = arlab.all_reduce(x, codec="qr-q8", sum=arlab.Sum(cast="fp16"))
    cast = np.where(np.isinf(x.astype(np.float32)), np.inf, np.clip(x.astype(np.float32), -65504, 65504)).astype(np.float16)
    expected = arlab.all_reduce(cast, codec="qr-q8").outputs.astype(np.float32).astype(ml_dtypes.bfloat16)
    assert np.array_equal(got.outputs.view(np.uint16), expected.view(np.uint16))
    assert np.array_equal(arlab.all_reduce(x, like="quickreduce-vllm", codec="qr-q8").outputs.view(np.uint16), expected.view(np.uint16))
    expected = arlab.all_reduce(cast).outputs.astype(np.float32).astype(ml_dtypes.bfloat16)
    for how in ({"sum": "cast=fp16"}, {"like": "quickreduce-vllm", "codec": "bf16"}):
        assert np.array_equal(arlab.all_reduce(x, **how).outputs.view(np.uint16), expected.view(np.uint16))


def rows():
    lines = [line for line in MEASURED.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def hash_of(like, bits, block):
    outputs = arlab.all_reduce(bits.view(ml_dtypes.bfloat16), like=like, block=block, count=False).outputs
    return hashlib.sha256(np.ascontiguousarray(outputs).tobytes()).hexdigest()


@pytest.mark.parametrize("kind", foreign_all_reduce.KINDS)
@pytest.mark.parametrize("like", ["flashinfer-fp8", "torchft-fp8", "vllm-fp8", "vllm-int8"])
def test_other_peoples_all_reduces_have_their_bits(like, kind):
    mine = [row for row in rows() if row["like"] == like and row["inputs"] == kind]
    assert len(mine) == 7
    for row in mine:
        if like.startswith("vllm") and (row["ranks"], row["block"]) in (("8", "128"), ("4", "32")):
            continue  # refused: a compiler adds in another way there
        bits = foreign_all_reduce.inputs_of(kind, int(row["ranks"]), int(row["elements"]), int(row["seed"]))
        assert hash_of(like, bits, int(row["block"])) == row["sha256"], row


@pytest.mark.parametrize("ranks", [2, 4])
def test_flashinfer_fp4_is_what_its_sources_say(ranks):
    """Records of rows by the oracle, added in rank order by fused multiply-adds; four ranks encode the sums again."""
    row = 48
    x = np.random.default_rng(7).normal(size=(ranks, 9, row)).astype(ml_dtypes.bfloat16)
    x[0, 2], x[:, 3], x[1, 4, 5] = 0, 0, -0.0
    codec = microscaling_oracle.find(f"nvfp4-g{row}-flashinfer")

    def decoded(values):  # products of a code and a scale are exact in float64
        wire = codec.encode("fp32", values.astype(np.float32).view(np.uint32).reshape(-1)).reshape(9, -1)
        codes = np.stack([wire[:, : row // 2] & 15, wire[:, : row // 2] >> 4], axis=2).reshape(9, -1, 16)
        scale = wire[:, row // 2 : -4].copy().view(ml_dtypes.float8_e4m3fn).astype(np.float32) * wire[:, -4:].copy().view("<f4")
        return (microscaling_oracle.E2M1.values(codes).astype(np.float64) * scale[:, :, None]).reshape(9, row)

    total = np.zeros((9, row), np.float32)
    for each in x:
        total = (total + decoded(each)).astype(np.float32)
    if ranks == 4:
        total = decoded(total).astype(np.float32)
    result = arlab.all_reduce(x, like="flashinfer-fp4")
    expected = PAYLOADS["bf16"].from_fp32(total)
    assert all(np.array_equal(each.view(np.uint16), expected) for each in result.outputs)
    halved = arlab.all_reduce(x, like="flashinfer-fp4", block=row // 3).outputs.view(np.uint16)
    assert not np.array_equal(halved[0], expected)


# Each is wrong in one thing: the division, the order, a rounding, who keeps the sum, whose stripe it is.
@pytest.mark.parametrize(
    "like, codec, sum, stripe",
    [
        ("flashinfer-fp8", "fp8-e4m3-g256", "add=fma,round=none,result=sum", 4096),
        ("flashinfer-fp8", "fp8-e4m3-g256-flashinfer", "decode=fp32,add=fp32,round=none,result=sum", 4096),
        ("flashinfer-fp8", "fp8-e4m3-g256-flashinfer", "add=fma,result=sum", 4096),
        ("flashinfer-fp8", "fp8-e4m3-g256-flashinfer", "add=fma,round=none", 4096),
        ("flashinfer-fp8", "fp8-e4m3-g256-flashinfer", "add=fma,round=none,result=sum", 16384),
        ("vllm-int8", "int8-g256-vllm", "decode=fp32,add=fp32,round=none,result=sum", 4096),
        ("vllm-int8", "int8-g256-sym", "add=fp32,result=sum", 4096),
        ("vllm-fp8", "fp8-e4m3-g256-flashinfer", "add=fma,round=none,result=sum", 4096),
        ("torchft-fp8", "fp8-e4m3-g64-torchft", "add=fma,round=none", 9600),
        ("torchft-fp8", "fp8-e4m3-g64-torchft", "add=fma,order=own", 9600),
        ("torchft-fp8", "fp8-e4m3-g64-torchft", "decode=fp32,add=fp32,order=own,round=none", 9600),
        ("torchft-fp8", "fp8-e4m3-g64-flashinfer", "add=fma,order=own,round=none", 9600),
    ],
)
def test_no_variant_has_the_bits_of_another(like, codec, sum, stripe):
    row = next(row for row in rows() if row["like"] == like and row["inputs"] == "gaussian" and row["ranks"] == "2")
    bits = foreign_all_reduce.inputs_of("gaussian", 2, int(row["elements"]), int(row["seed"])).view(ml_dtypes.bfloat16)
    outputs = arlab.all_reduce(bits, codec=codec, sum=sum, stripe=stripe).outputs
    assert hashlib.sha256(np.ascontiguousarray(outputs).tobytes()).hexdigest() != row["sha256"]


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"like": "flash"}, "like 'flash': did you mean 'flashinfer-fp8' or 'flashinfer-fp4'?"),
        ({"like": "flashinfer-fp8", "block": 48}, "groups of 48"),
        ({"like": "torchft-fp8", "block": 7}, "whole rows: 102400 elements are no multiple of 7"),
        ({"like": "torchft-fp8", "codec": "qr-q4"}, "has its own codec"),
        ({"like": "flashinfer-fp8", "sum": "fp32"}, "has its own algorithm and sum"),
        ({"like": "flashinfer-fp8", "algorithm": "ring"}, "has its own algorithm"),
        ({"like": "vllm-fp8", "own": "exact"}, "like 'vllm-fp8': it has its own own; leave it out"),
        ({"like": "torchft-fp8", "block": 64, "stripe": 128}, "it has its own stripe"),
        ({"like": "vllm-int8", "stripe": 25616}, "blocks of 25616: how its compiler adds"),
        ({"like": "vllm-fp8", "ranks": 8}, "8 ranks, groups of 256, blocks of 4096: how its compiler adds"),
        ({"like": "vllm-int8", "block": 64}, "4 ranks, groups of 64, blocks of 4096: how its compiler adds"),
        ({"like": "quickreduce", "codec": "int4-g32"}, "QuickReduce has none"),
        ({"like": "quickreduce", "block": 32}, "no block to choose"),
        ({"sum": "add=fp64"}, "sum 'add=fp64': add is 'fp64': allowed are native, fp32, fma"),
        ({"sum": "add=fp32,add=fma"}, "add stands twice"),
        ({"sum": "add"}, "'add' is not of a sum"),
        ({"sum": "round=none"}, "round=none needs fp32 sums"),
        ({"sum": "own=exact", "own": "encoded"}, "the algorithm's own is encoded"),
        ({"sum": "fp32", "accumulate": "fp32"}, "give one of them; in sum it is add="),
        ({"sum": "order=own", "codec": "shared-int8-g128"}, "adds codes"),
        ({"sum": "add=fp32,round=none", "codec": "int4-g32-sr"}, "its wire holds numbers of bf16, so round=none is not possible"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(arguments, says):
    x = np.concatenate([payloads()] * (arguments.pop("ranks", RANKS) // RANKS))
    with pytest.raises(arlab.ArgumentError) as raised:
        arlab.all_reduce(x, **arguments)
    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_a_tensor_that_one_rank_adds_is_no_reason_to_refuse():
    x = payloads()[:, :256]
    outputs = arlab.all_reduce(x, like="torchft-fp8", block=256).outputs.view(np.uint16)
    assert np.array_equal(outputs, arlab.all_reduce(x, codec="fp8-e4m3-g256-torchft", sum="add=fma,order=own,round=none").outputs.view(np.uint16))


def test_a_schedule_says_itself_what_is_encoded():
    x = payloads()
    schedule = arlab.schedule("two_shot", ranks=RANKS, elements=x.shape[1])
    with pytest.raises(arlab.ArgumentError, match="a schedule says itself what is encoded"):
        arlab.all_reduce(x, algorithm=schedule, codec="fp8-e4m3-g64", sum="own=exact")
    arlab.all_reduce(x, algorithm=schedule, codec="fp8-e4m3-g64", sum="add=fma")
