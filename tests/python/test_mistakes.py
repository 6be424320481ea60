"""Mistakes planted in a kernel author's codec and all-reduce, written from SPEC.md in NumPy: each is found, and called by its name."""

import ml_dtypes
import numpy as np
import pytest

import arlab
from arlab import conformance

BF16 = ml_dtypes.bfloat16
CHUNK = 4096
#: Without a codec, whose errors hide in which order sums are made.
PLAIN = ("owner first", "changes with size", "fp32 sums of bf16")


def blocks_of(x, group):
    filled = np.zeros((-(-len(x) // group), group), np.float32)
    filled.reshape(-1)[: len(x)] = x
    inside = np.arange(filled.size).reshape(filled.shape) < len(x)
    return filled, inside


def quantized(x, mistake="", group=128):
    """int4-g128 of one chunk: codes by block, scales and zeros (SPEC.md, "Any-bit integers (int*)")."""
    if mistake == "group of 64":
        group = 64
    x = x.astype(np.float32)
    if mistake == "subnormals":
        x = np.where(np.abs(x) < 2.0**-14, np.float32(0), x)
    blocks, inside = blocks_of(x, group)
    if mistake == "tail":
        inside = np.ones_like(inside)
    finite = np.isfinite(blocks)
    lost = mistake == "nan"
    counted = inside & finite if lost else inside
    low = np.where(counted, blocks, np.inf).min(axis=1)
    high = np.where(counted, blocks, -np.inf).max(axis=1)
    scale = ((high - low) / np.float32(15)).astype(BF16).astype(np.float32) + np.float32(0)
    zero = low.astype(BF16).astype(np.float32) + np.float32(0)
    broken = (~finite & inside).any(axis=1) & (not lost) | ~np.isfinite(scale) | ~np.isfinite(zero)
    right = scale, zero
    if mistake in ("stale scale", "stale scale for codes"):
        scale, zero = np.roll(scale, 1), np.roll(zero, 1)
    if mistake == "stale scale for codes":
        scale_sent, zero_sent = right
    elif mistake == "scale written for the block before":
        scale_sent, zero_sent = np.roll(scale, 1), np.roll(zero, 1)
    else:
        scale_sent, zero_sent = scale, zero
    inverse = np.float32(1) / scale
    usable = np.isfinite(inverse)[:, None]
    products = np.where(usable, (np.where(finite, blocks, 0) - zero[:, None]) * np.where(usable, inverse[:, None], 0), 0)
    if mistake == "truncation":
        codes = np.floor(products)
    elif mistake == "half away":
        codes = np.floor(products + np.float32(0.5))
    else:
        codes = np.rint(products)
    codes = np.clip(codes, 0, 14 if mistake == "top" else 15)
    if lost:  # NaN is converted to 0, infinities are clamped
        codes = np.where(np.isnan(blocks), 0, np.where(np.isinf(blocks), np.where(blocks > 0, 15, 0), codes))
    codes[broken], scale_sent[broken], zero_sent[broken] = 0, np.nan, 0
    return codes.astype(np.uint8), scale_sent.astype(BF16), zero_sent.astype(BF16)


def encode(x, mistake=""):
    wire = []
    for begin in range(0, len(x), CHUNK):
        part = x[begin : begin + CHUNK]
        codes, scales, zeros = quantized(part, mistake)
        flat = np.zeros(-(-len(part) // 2) * 2, np.uint8)
        flat[: len(part)] = codes.reshape(-1)[: len(part)]
        pairs = flat.reshape(-1, 2)[:, :: -1 if mistake == "nibbles" else 1]
        scales.view(np.uint16)[np.isnan(scales)] = 0x7FC0
        wire += [pairs[:, 0] | pairs[:, 1] << 4, scales.view(np.uint8), zeros.view(np.uint8)]
    return np.concatenate(wire)


def round_trip(x, mistake="", to=None):
    """Returns x after a trip over the wire, in its dtype, or in fp32."""
    if mistake in PLAIN:
        return x
    values = []
    for begin in range(0, len(x), CHUNK):
        part = x[begin : begin + CHUNK]
        codes, scales, zeros = quantized(part, mistake)
        if mistake == "nibbles":
            codes = codes.reshape(-1, 2)[:, ::-1].reshape(codes.shape)
        if mistake == "decoded a step too high":
            codes = codes + 1
        product = codes.astype(np.float32) * scales.astype(np.float32)[:, None]
        values.append((zeros.astype(np.float32)[:, None] + product).reshape(-1)[: len(part)])
    values = np.concatenate(values)
    if to is None:
        largest = np.float32(ml_dtypes.finfo(x.dtype).max)
        values = np.where(np.isnan(values), values, np.clip(values, -largest, largest)).astype(x.dtype)
        if mistake == "through bf16":
            values = values.astype(BF16).astype(x.dtype)
    return values


def two_shot(tensors, mistake=""):
    """two_shot/int4-g128/native: a rank owns a stripe, of whole blocks; sums are rounded to the dtype."""
    with np.errstate(all="ignore"):
        return _two_shot(tensors, mistake)


def _two_shot(tensors, mistake):
    ranks, count, dtype = len(tensors), len(tensors[0]), tensors[0].dtype
    block = 1 if mistake in PLAIN else 128
    blocks = -(-count // block)
    owned = [blocks // ranks + (r < blocks % ranks) for r in range(ranks)]
    bounds = [min(count, sum(owned[:r]) * block) for r in range(ranks)] + [count]
    outputs = [np.empty_like(t) for t in tensors]
    for owner in range(ranks):
        own = slice(bounds[owner], bounds[owner + 1])
        if own.start == own.stop:
            continue
        order = list(range(ranks))
        if mistake == "owner first":
            order = order[owner:] + order[:owner]
        if mistake == "changes with size" and count > 1000:
            order.reverse()
        parts = [round_trip(tensors[r][own], mistake, np.float32 if mistake == "values in fp32" else None) for r in order]
        if mistake == "exact own":
            parts[owner] = tensors[owner][own]
        total = parts[0].astype(np.float32)
        for part in parts[1:]:
            total = total + part.astype(np.float32)
            if mistake not in ("fp32 sums", "fp32 sums of bf16", "values in fp32"):
                total = total.astype(dtype).astype(np.float32)
        total = total.astype(dtype)
        result = total if mistake == "not encoded again" else round_trip(total, mistake)
        if mistake == "tail left" and own.stop == count:
            result[-5:] = total[-5:]
        for rank, output in enumerate(outputs):
            output[own] = total if mistake == "owner keeps" and rank == owner else result
    if mistake == "average":
        return [(o.astype(np.float32) / ranks).astype(dtype) for o in outputs]
    return outputs


def check(mistake, **request):
    dtype = "bf16" if mistake in PLAIN else "fp16"
    request = {"lengths": [1, 100, 2050, 4099], "dtype": dtype, "world_size": 4, **request}
    return conformance.check(lambda tensors: two_shot(tensors, mistake), **request)


def test_the_right_one():
    report = check("", claim="two_shot/int4-g128/native")
    assert report.passed and "two_shot/int4-g128/native" in report.exact_as, report
    # Without a claim it is found among all codecs, and what has fewer bits than was agreed is called by its name.
    report = check("")
    assert report.passed and report.exact_as == ["two_shot/int4-g128/native"], report
    report = check("", claim="two_shot/int8-g128/native")
    assert not report.passed and "it is two_shot/int4-g128/native: the codec is int4-g128" in report.findings[-1], report


CODEC_MISTAKES = {
    "truncation": "codes are rounded down",
    "half away": "half away from zero",
    "stale scale": "scales are of the block before",
    "stale scale for codes": "codes are made with the scales of the block before",
    "scale written for the block before": "scales are of the block before, which codes do not know",
    "group of 64": "int4-g64",
    "tail": "the last block is filled up with zeros",
    "nan": "NaN and infinity are lost",
    "subnormals": "subnormals are flushed to 0",
    "nibbles": "the codes of neighbours stand in each other's place",
}
SUM_MISTAKES = {
    "owner keeps": "the owner kept its stripe",
    "exact own": "the owner's contribution is not encoded",
    "owner first": "the sum begins with the owner's contribution",
    "fp32 sums": "partial sums are kept in fp32",
    "fp32 sums of bf16": "partial sums are kept in fp32",
    "values in fp32": "values are not rounded to fp16 before the sum",
    "not encoded again": "sums are sent as they are, not encoded again",
    "decoded a step too high": "codes are decoded a step too high",
    "through bf16": "decoded values are rounded to a dtype that is not the payload's",
    "changes with size": "the order of ranks changes with the size",
    "average": "the result is the average of the ranks",
    "tail left": "only in elements",
}
#: All-reduces that there are: without a claim it is said which it is.
EXIST = ("exact own", "owner first", "fp32 sums", "fp32 sums of bf16", "values in fp32", "not encoded again", "owner keeps", "group of 64")
#: Subnormals are coded as 0 in any case, and codes that are exchanged twice stand where they belong; what is left of a sum whose codes
#: know another zero is no sum, and is called that.
NOT_SEEN = ("subnormals", "nibbles", "stale scale for codes")


@pytest.mark.parametrize("mistake", CODEC_MISTAKES)
def test_codecs(mistake):
    report = conformance.check_codec(lambda x: encode(x, mistake), None, "int4-g128", dtype="fp16")
    assert not report.passed
    named = [finding for finding in report.findings if CODEC_MISTAKES[mistake] in finding]
    assert named, report


def test_a_codec_without_a_mistake():
    report = conformance.check_codec(encode, None, "int4-g128", dtype="fp16")
    assert report.passed, report


#: So far off that without a claim nothing says of what.
FAR = ("decoded a step too high",)


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize("mistake", [m for m in CODEC_MISTAKES | SUM_MISTAKES if m not in NOT_SEEN])
def test_all_reduces(mistake, claimed):
    claim = f"two_shot/{'bf16' if mistake in PLAIN else 'int4-g128'}/native"
    report = check(mistake, claim=claim if claimed else None)
    if not claimed and mistake in EXIST:
        assert report.passed and report.exact_as and claim not in report.exact_as, report
    else:
        words = "results are too high in the mean" if mistake in FAR and not claimed else (CODEC_MISTAKES | SUM_MISTAKES)[mistake]
        assert not report.passed and words in "\n".join(report.findings), str(report)


# ---------------------------------------------------------------- other people's


def test_other_peoples_by_name():
    def made(**how):
        return lambda tensors: list(arlab.all_reduce(np.stack(tensors), **how).outputs)

    request = {"world_size": 4, "dtype": "bf16", "lengths": [1024, 8192, 20480]}
    report = conformance.check(made(like="flashinfer-fp8", block=128), claim="flashinfer-fp8/block=128", **request)
    assert report.passed and not report.ranks_identical and "flashinfer-fp8/block=128" in report.exact_as, report
    # Without a claim its ranks differ, as of one that is known they may; groups of 128 are none that is known by itself.
    report = conformance.check(made(like="flashinfer-fp8"), **request)
    assert report.passed and report.exact_as == ["flashinfer-fp8"], report
    assert conformance.check(made(like="flashinfer-fp4", block=256), claim="flashinfer-fp4/block=256", **request).passed


@pytest.mark.parametrize(
    "claim, message",
    [
        ("flashinfer-fp8/block=0", "block '0': allowed are positive numbers"),
        ("flashinfer-fp8/rows=3", "'rows=3' is nothing to choose of flashinfer-fp8: allowed are block=N"),
        ("two_shot/int4-g128/add=half", "add is 'half': allowed are native, fp32, fma"),
        ("two_shot/int9-g128/native", "int9-g128"),
    ],
)
def test_claims_that_are_none(claim, message):
    with pytest.raises(conformance.CheckError, match=message) as caught:
        check("", claim=claim)
    assert "\n" not in str(caught.value)


def test_a_claim_with_a_record_of_its_sum():
    assert check("values in fp32", claim="two_shot/int4-g128/decode=fp32,add=fp32").passed
    report = check("", claim="two_shot/int4-g128/decode=fp32,add=fp32")
    assert not report.passed and "decoded to fp16 before the sum; partial sums are rounded to fp16" in report.findings[0]
