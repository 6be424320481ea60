"""arlab.conformance: right all-reduces pass, broken ones are caught, wherever ranks are."""

import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from arlab import conformance
from arlab.conformance import CheckError, NumpyTensors, check

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codecs"))
from microscaling_oracle import MXINT8  # noqa: E402
from wire_oracle import PAYLOADS  # noqa: E402

LENGTHS = [1, 100, 2049]


def rank_order(tensors):
    """Rank 0, plus rank 1, ...: rounded after every addition."""
    total = tensors[0].copy()
    for tensor in tensors[1:]:
        with np.errstate(all="ignore"):
            total += tensor
    return [total.copy() for _ in tensors]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_right(dtype):
    report = check(rank_order, world_size=3, dtype=dtype, lengths=LENGTHS)
    assert report.passed and report.deterministic and report.ranks_identical, report
    assert f"one_shot/{dtype}/native" in report.exact_as
    assert report.data["schema"] == "arlab.judge/1"
    assert report.data["calls"] == len(LENGTHS) * 3 * 3
    assert str(report).endswith(f"passed: 3 ranks, {dtype}, no claim") and report.verdict in str(report)


def cast(x, wire):
    with np.errstate(all="ignore"):
        return np.asarray(x, np.float32).astype({"bf16": ml_dtypes.bfloat16, "fp16": np.float16}[wire])


def compress_hook(wire):
    """DDP's, of two ranks: what was cast, added in 16 bits, and cast back."""

    def all_reduce(tensors):
        with np.errstate(all="ignore"):
            halves = [cast(tensor, wire).astype(np.float32) for tensor in tensors]
            total = cast(halves[0] + halves[1], wire).astype(np.float32)
        return [total.copy(), total]

    return all_reduce


def owner_exact(tensors):
    """torchcomms#3320's sums, to the nearest: bf16 from the other rank, fp32 from the owner; then bf16 to both."""
    halves = [slice(0, (len(tensors[0]) + 1) // 2), slice((len(tensors[0]) + 1) // 2, None)]
    with np.errstate(all="ignore"):
        wires = [[cast(tensor[half], "bf16").astype(np.float32) for half in halves] for tensor in tensors]
        sums = [tensors[0][halves[0]] + wires[1][0], wires[0][1] + tensors[1][halves[1]]]
        total = np.concatenate([cast(each, "bf16").astype(np.float32) for each in sums])
    return [total.copy(), total]


@pytest.mark.parametrize(
    "claim, right, wrong",
    [
        ("ddp-bf16", compress_hook("bf16"), compress_hook("fp16")), ("ddp-fp16", compress_hook("fp16"), owner_exact),
        ("two_shot/wire-bf16/own=exact", owner_exact, compress_hook("bf16")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_sixteen_bits_on_the_wire_of_fp32(claim, right, wrong):
    request = {"world_size": 2, "dtype": "fp32", "lengths": LENGTHS, "claim": claim}
    report = check(right, **request)
    assert report.passed and claim in report.exact_as, report
    assert not check(wrong, **request).passed


def test_modes():
    def in_place(tensors):
        for tensor, result in zip(tensors, rank_order(tensors)):
            tensor[:] = result

    def out(tensors, outputs):
        for output, result in zip(outputs, rank_order(tensors)):
            output[:] = result

    claim = {"claim": "one_shot/fp16/native", "world_size": 4, "lengths": LENGTHS}
    assert check(in_place, mode="in_place", **claim).passed
    assert check(out, mode="out", **claim).passed
    report = check(lambda tensors: None, mode="in_place", **claim)
    assert any("left as it was" in finding for finding in report.findings)
    report = check(lambda tensors, outputs: None, mode="out", **claim)
    assert any("not written" in finding for finding in report.findings)


def test_broken():
    def findings(all_reduce, mode="returns", world_size=2, **request):
        report = check(all_reduce, world_size=world_size, lengths=LENGTHS, mode=mode, **request)
        assert not report.passed and "WRONG: " in str(report)
        return "\n".join(report.findings)

    def starts_with_its_own(tensors):
        ranks = len(tensors)
        return [sum((tensors[(rank + i) % ranks] for i in range(1, ranks)), start=tensors[rank]) for rank in range(ranks)]

    # It is a ring's order, which a rank may begin anywhere.
    assert "ranks differ" in findings(starts_with_its_own, world_size=4)
    def behind_the_end(tensors):
        for tensor, result in zip(tensors, rank_order(tensors)):
            longer = np.lib.stride_tricks.as_strided(tensor, (tensor.size + 1,))
            longer[:-1] = result
            longer[-1] = 1

    assert "behind the end" in findings(behind_the_end, mode="in_place")


def run_ranks(world_size, one_rank):
    """one_rank(rank, gather) in a thread per rank; their results, or exceptions."""
    barrier = threading.Barrier(world_size, timeout=60)
    parts = [None] * world_size
    results = [None] * world_size

    def run(rank):
        def gather(mine):
            parts[rank] = mine
            barrier.wait()
            everything = list(parts)
            barrier.wait()
            return everything

        try:
            results[rank] = one_rank(rank, gather)
        except Exception as error:  # noqa: BLE001
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_one_process_per_rank():
    def one_rank(rank, gather):
        def all_reduce(tensor):
            tensors = [np.frombuffer(part, np.float16) for part in gather(tensor.tobytes())]
            return rank_order(tensors)[rank]

        return check(all_reduce, world_size=3, lengths=LENGTHS, rank=rank, gather=gather)

    reports = run_ranks(3, one_rank)
    assert all(report.passed and "one_shot/fp16/native" in report.exact_as for report in reports), reports
    assert reports[0] == reports[1] == reports[2]


def test_a_rank_that_fails_ends_the_check_on_all():
    def one_rank(rank, gather):
        def all_reduce(tensor):
            if rank == 1:
                raise ValueError("no such\ndtype")
            return tensor

        return check(all_reduce, world_size=3, lengths=LENGTHS, rank=rank, gather=gather)

    for error in run_ranks(3, one_rank):
        assert isinstance(error, CheckError) and "rank 1: ValueError: no such dtype" in str(error)


def test_bf16_as_bit_patterns():
    def all_reduce(tensors):
        assert tensors[0].dtype == np.uint16
        return [r.view(np.uint16) for r in rank_order([t.view(ml_dtypes.bfloat16) for t in tensors])]

    tensors = NumpyTensors(raw_bf16=True)
    assert check(all_reduce, world_size=2, dtype="bf16", lengths=LENGTHS, tensors=tensors).passed


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"world_size": 2, "dtype": "fp8"}, "dtype 'fp8': allowed are fp16, bf16, fp32"),
        ({"world_size": 2, "mode": "inplace"}, "mode 'inplace': allowed are returns, in_place, out"),
        ({"world_size": 2, "rank": 0}, "rank and gather belong together"),
        ({"world_size": 2, "rank": 2, "gather": lambda b: [b, b]}, "rank 2: allowed are 0 to 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(CheckError, match=message) as caught:
        check(rank_order, **arguments)
    assert "\n" not in str(caught.value)


def test_results_that_do_not_fit():
    for result, message in [
        (lambda tensors: tensors[0], "must return a list of 2 tensors"),
        (lambda tensors: None, "must return a list of 2 tensors"),
        (lambda tensors: [t.astype(np.float32) for t in tensors], "returned float32 of shape"),
        (lambda tensors: [t[:-1] for t in tensors], r"expected is fp16 of shape \(1,\)"),
    ]:
        with pytest.raises(CheckError, match=message):
            check(result, world_size=2, lengths=LENGTHS)


def test_every_name_is_there():
    assert all(hasattr(conformance, name) for name in conformance.__all__)


def test_the_claim_names_its_codec():
    """A claim of a codec is held to that codec's bits, without the codec being named twice."""
    report = check(rank_order, world_size=2, lengths=[64], claim="two_shot/qr-q4/native")
    assert not report.passed and "not two_shot/qr-q4/native as claimed" in " ".join(report.findings)


# ---------------------------------------------------------------- codecs

RIGHT = MXINT8("mxint8")
NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


def mxint8_encode(x, codec=RIGHT):
    dtype = NAMES[x.dtype.name]
    return codec.encode(dtype, x.view(PAYLOADS[dtype].word))


def mxint8_decode(wire, dtype, elements):
    name = NAMES[np.dtype(dtype).name]
    return RIGHT.decode(name, wire, elements).view(PAYLOADS[name].type)


class FlushesSubnormals(MXINT8):
    def exponent(self, largest):
        return np.maximum(super().exponent(largest), -10)


class RoundsTiesAway(MXINT8):
    def round(self, x):
        away = np.sign(x) * np.floor(np.abs(x * np.float32(64)) + np.float32(0.5))
        return np.clip(away, -127, 127).astype(np.int8).view(np.uint8), np.abs(away) > 127


def test_a_codec_in_numpy_is_the_reference(tmp_path):
    report = conformance.check_codec(mxint8_encode, mxint8_decode, "mxint8")
    assert report.passed, str(report)
    assert {case["dtype"] for case in report.cases} == {"fp16", "bf16", "fp32"}
    assert sum(case["wire_bytes"] for case in report.cases) > 900_000 and str(report).endswith("passed: codec mxint8")
    # Only one of the two, one dtype, and vectors from a folder.
    import arlab

    arlab.vectors("mxint8", tmp_path / "vectors", dtype="bf16")
    report = conformance.check_codec(mxint8_encode, None, tmp_path / "vectors")
    assert report.passed and all(case["elements"] == 0 and case["dtype"] == "bf16" for case in report.cases)


def test_codecs_are_checked_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert conformance.check_codec(mxint8_encode, mxint8_decode, "mxint8", dtype="fp16").passed


@pytest.mark.parametrize("mistaken", [FlushesSubnormals("mxint8"), RoundsTiesAway("mxint8")], ids=lambda codec: type(codec).__name__)
def test_a_mistake_in_a_codec_is_named(mistaken):
    report = conformance.check_codec(lambda x: mxint8_encode(x, mistaken), mxint8_decode, "mxint8", dtype="fp16")
    assert not report.passed
    assert all("wire byte" in finding and "the reference's 0x" in finding for finding in report.findings)
    assert sum(case["wire_differs"] for case in report.cases) > 0 == sum(case["elements_differ"] for case in report.cases)


def test_codecs_that_cannot_be_checked():
    good = {"encode": mxint8_encode, "decode": mxint8_decode, "codec": "mxint8", "dtypes": ["fp16"]}
    for change, error, words in [
        ({"encode": None, "decode": None}, CheckError, "nothing to check"),
        ({"dtypes": ["fp8"]}, CheckError, "allowed are fp16, bf16, fp32"),
        ({"codec": "mxint9"}, ValueError, "mxint9"),
        ({"codec": "qr-q4", "dtypes": ["fp32"]}, ValueError, "fp32"),
        ({"encode": lambda x: 1 / 0}, CheckError, "encode: ZeroDivisionError"),
        ({"encode": lambda x: x}, CheckError, "encode gave float16"),
        ({"decode": lambda w, d, n: np.zeros(n + 1, d)}, CheckError, "decode returned float16 of shape"),
        ({"decode": lambda w, d, n: np.zeros(n, np.float64)}, CheckError, "decode returned float64"),
        ({"encode": lambda x: np.zeros((len(x), 8), np.uint8), "decode": None, "block": 7777}, CheckError, "nothing was compared"),
    ]:
        with pytest.raises(error, match=words):
            conformance.check_codec(**{**good, **change})
    short = conformance.check_codec(lambda x: mxint8_encode(x)[:-1], None, "mxint8", dtype="fp16")
    assert not short.passed and "the reference has" in short.findings[0]
