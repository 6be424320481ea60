"""All-reduces with tails from Python, on emulated GPUs: the bits of arlab.Tail behind arlab.all_reduce."""

import ml_dtypes
import numpy as np
import pytest

import arlab

HIDDEN = 576
BF16 = ml_dtypes.bfloat16


def rows_of(seed, dtype=BF16, tokens=5, hidden=HIDDEN):
    return np.random.default_rng(seed).normal(size=(tokens, hidden)).astype(dtype)


def same_bits(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.fixture(scope="module")
def group():
    return arlab.Group([0, 1, 2], blocks=3)


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring"])
@pytest.mark.parametrize(
    "tail, dtype",
    [
        (arlab.Tail(residual="add", norm="rms", eps=1e-5, out="fp8-e4m3-g64", rounding="vllm"), BF16),
        (arlab.Tail(residual="add", norm="rms", out="int8-grow"), np.float16),
        (arlab.Tail(norm="rms", offset=1, rounding="torch-llama"), np.float32),
        (arlab.Tail(residual="add", norm="rms", out="fp8-e4m3-token"), BF16),
        (arlab.Tail(norm="rms", out="fp8-e4m3-static0.02"), np.float16),
        (arlab.Tail(residual="add"), BF16),
        (arlab.Tail(out="mxfp8-e4m3"), BF16),
    ],
)
def test_bits_are_those_of_the_reference(group, algorithm, tail, dtype):
    inputs, weight = [rows_of(rank, dtype) for rank in range(3)], rows_of(8, dtype, 1)[0]
    residual = rows_of(9, dtype) if tail.residual == "add" else None
    given = {"weight": weight} if tail.norm == "rms" else {}
    # Chunks end between rows, as they do at multiples of such a codec's groups.
    between_rows = arlab.schedule(algorithm, 3, inputs[0].size, codec=f"int8-g{inputs[0].shape[-1]}")
    expected = tail(arlab.all_reduce(inputs, algorithm=between_rows).outputs[1], residual=residual, **given)
    copies = None if residual is None else [residual.copy() for _ in range(3)]
    how = {name: [each] * 3 for name, each in given.items()}
    outputs = [np.empty_like(each) for each in inputs]
    made = group.all_reduce(inputs, algorithm=algorithm, tail=tail, residual=copies, out=outputs, **how)
    for rank, of_rank in enumerate(made):
        assert of_rank.normalized is outputs[rank] and same_bits(of_rank.normalized, expected.normalized)
        assert (of_rank.residual is None) == (residual is None)
        assert residual is None or (of_rank.residual is copies[rank] and same_bits(of_rank.residual, expected.residual))
        assert (of_rank.wire is None) == (tail.out is None)
        assert tail.out is None or same_bits(of_rank.wire, expected.wire)
    assert "tail" in group.explain(inputs[0], algorithm=algorithm, tail=tail) or tail.norm == "none"
    group.prepare(inputs[0], algorithm=algorithm, tail=tail)


@pytest.mark.parametrize("out", [None, "int8-g64"])
def test_owners_of_rows_make_them(group, out):
    """An owner has the residual of its rows, and all have what comes out: 5 rows of 3 ranks."""
    inputs, weight, residual = [rows_of(rank) for rank in range(3)], rows_of(8, tokens=1)[0], rows_of(9)
    between_rows = arlab.schedule("two_shot", 3, inputs[0].size, codec=f"int8-g{HIDDEN}")
    tail = arlab.Tail(residual="add", norm="rms")
    expected = tail(arlab.all_reduce(inputs, algorithm=between_rows).outputs[0], residual=residual, weight=weight)
    normalized = expected.normalized if out is None else arlab.quantize(expected.normalized, out)
    untouched = [np.full_like(residual, 7) for _ in range(3)]
    how = {"weight": [weight] * 3, "residual_out": untouched, "tail_place": "owner"}
    made = group.all_reduce(inputs, residual=[residual] * 3, out_quant=out, **how)
    owned = [[row for row in range(5) if not same_bits(each.residual[row], np.full(HIDDEN, 7, BF16))] for each in made]
    assert sorted(sum(owned, [])) == list(range(5)) and all(owned)
    for rows, each in zip(owned, made):
        assert same_bits(each.residual[rows], expected.residual[rows])
        assert same_bits(each.normalized, normalized) and each.wire is None
    with pytest.raises(ValueError, match="tail_place is 'mine': allowed are 'after' and 'owner'"):
        group.all_reduce(inputs, weight=[weight] * 3, tail_place="mine")


def test_arguments_make_a_tail(group):
    inputs, weight, residual = [rows_of(rank) for rank in range(3)], [rows_of(8, tokens=1)[0]] * 3, [rows_of(9)] * 3
    out = [np.empty_like(residual[0]) for _ in range(3)]
    tail = arlab.Tail(residual="add", norm="rms", eps=1e-4, out="int8-g64", rounding="aiter")
    how = {"residual": residual, "weight": weight, "residual_out": out}
    named = group.all_reduce([x.copy() for x in inputs], tail=tail, **how)
    again = group.all_reduce([x.copy() for x in inputs], eps=1e-4, out_quant="int8-g64", rounding="aiter", **how)
    for one, other in zip(named, again):
        assert all(same_bits(*pair) for pair in zip(one, other)) and one.residual.base is None


@pytest.mark.parametrize(
    "given, message",
    [
        ({"residual": rows_of(1)[:3]}, r"residual is bf16 of shape \(3, 576\): needed is bf16 of shape \(5, 576\)"),
        ({"residual": rows_of(1, np.float16)}, "residual is fp16 of shape"),
        ({"eps": 1e-5}, "rank 0's weight is missing: the tail has one"),
        ({"weight": rows_of(1)[0][:9]}, r"weight is bf16 of shape \(9,\): needed is bf16 of shape \(576,\)"),
        ({"out_quant": "qr-q4"}, "rows of 576 elements end within a block of qr-q4: allowed are multiples of"),
        ({"residual": rows_of(1), "rounding": "aiter-before-2586", "weight": rows_of(1)[0]}, "kernels round sums to bf16"),
        ({"tail": arlab.Tail(residual="add"), "eps": 1e-5}, "eps, out_quant and rounding are of a tail"),
        ({"tail": arlab.Tail(hidden=7, residual="add"), "residual": rows_of(1)}, "2880 elements are not whole rows of 7"),
        ({"residual_out": rows_of(1), "out_quant": "int8-g64"}, "residual_out is given: the tail has none"),
        ({"residual": "x"}, "rank 0's residual is str"),
    ],
)
def test_bad_input_is_one_line(group, given, message):
    lists = {name: [each] * 3 if name in ("residual", "weight", "residual_out") else each for name, each in given.items()}
    with pytest.raises(ValueError, match=message) as raised:
        group.all_reduce([rows_of(rank) for rank in range(3)], **lists)
    assert "\n" not in str(raised.value)


def test_memory_is_kept_apart(group):
    inputs, shared = [rows_of(rank) for rank in range(3)], rows_of(4)
    with pytest.raises(ValueError, match="rank 0's residual_out overlaps rank 1's residual"):
        group.all_reduce(inputs, residual=[shared] * 3)
    with pytest.raises(ValueError, match="2 tensors as residual for 3 ranks"):
        group.all_reduce(inputs, residual=[shared] * 2)
    with pytest.raises(ValueError, match="rank 0's output overlaps rank 0's residual"):
        group.all_reduce(inputs, residual=inputs, residual_out=[rows_of(rank) for rank in range(3)])


def test_of_other_collectives_there_is_none(group):
    with pytest.raises(ValueError, match="all_gather is an all-gather: allowed is an all-reduce"):
        group.explain(rows_of(1), collective="all_gather", tail=arlab.Tail(residual="add"))
