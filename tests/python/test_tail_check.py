"""arlab.conformance.check_tail: the roundings of fused tails are found, and their mistakes are named."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab
from arlab.conformance import CheckError, check_tail

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_tails import F32, NAMES, TYPES, squares  # noqa: E402

TAIL = arlab.Tail(residual="add", norm="rms", eps=1e-5)


class Fused:
    """A fused tail in NumPy. Attributes are what mutants change."""

    rounding = NAMES["unfused"]
    offset = 0

    def __call__(self, inputs, residual, weight, eps):
        self.kind, self.ranks = inputs[0].dtype, len(inputs)
        made = []
        for rank in range(self.ranks):
            self.rank = rank
            r = None if residual is None else residual[rank].astype(F32)
            z, out = self.added(self.sum(inputs, residual), r)
            y = self.normalized(z, self.weight(weight[rank]), F32(eps))
            made.append((y.astype(self.kind), out.astype(self.kind)))
        return made

    def rounded(self, values):
        return values.astype(self.kind).astype(F32)

    def sum(self, inputs, residual):
        return sum(each.astype(F32) for each in inputs)

    def added(self, sums, residual):
        z = sums if self.rounding[0] == "fp32" else self.rounded(sums)
        z = z if residual is None else self.plus(z, residual)
        return self.rounded(z) if self.rounding[1] == "native" else z, z

    def plus(self, z, residual):
        return z + residual

    def weight(self, weight):
        return weight.astype(F32) + F32(1) if self.offset else weight.astype(F32)

    def mean(self, z):
        return (squares(z, 1024) / F32(z.shape[-1]))[..., None]

    def root(self, z, eps):
        return np.sqrt(self.mean(z) + eps)

    def normalized(self, z, weight, eps):
        root = self.root(z, eps)
        z = self.rounded(z) if self.rounding[1] == "squares" else z
        scaled = (lambda x: x * (F32(1) / root)) if self.rounding[2] else (lambda x: x / root)
        if self.rounding[3] == "first":
            return scaled(z * weight)
        return (scaled(z) if self.rounding[3] == "once" else self.rounded(scaled(z))) * weight


class Pairwise(Fused):
    """Squares in an order that the check does not know."""

    def mean(self, z):
        return (np.cumsum((z * z)[..., ::-1], -1, F32)[..., -1:] / F32(z.shape[-1])).astype(F32)


def made(kind, **attributes):
    return type("Made", (kind,), attributes)()


def checked(fused, tail=TAIL, **options):
    return check_tail(fused, **{"world_size": 2, "tail": tail, "hidden": [576], "runs": 2, **options})


def on_rank_1(right, wrong):
    return lambda self, *given: (wrong if self.rank == 1 else right)(self, *given)


@pytest.mark.parametrize("ranks, dtype", [(2, "fp16"), (3, "bf16"), (8, "fp16"), (1, "bf16"), (2, "fp32")])
@pytest.mark.parametrize("name", NAMES)
def test_right_ones_have_their_name(name, ranks, dtype):
    report = check_tail(made(Fused, rounding=NAMES[name]), world_size=ranks, dtype=dtype, tail=TAIL, claim=name)
    assert report.passed and report.deterministic and report.ranks_identical, str(report)
    names = [match["name"] for match in report.exact_as]
    # Sums of one rank have the dtype, fp32 has nothing to round, and bf16 seldom shows the last bit of fp32.
    assert name in names and (names == [name] or dtype != "fp16"), names
    assert 1024 in report.exact_as[0]["threads"] and report.rows_by_unknown == 0


def test_an_order_of_squares_that_is_not_known_is_one_unknown_of_a_row():
    report = checked(made(Pairwise, rounding=NAMES["vllm"]), hidden=[2880], claim="vllm")
    names = {match["name"]: match for match in report.exact_as}
    assert report.passed and report.rows_by_unknown == report.compared_rows == 8, str(report)
    assert names["vllm"]["threads"] == [] and 1 <= names["vllm"]["widest"] < 2880
    assert 0 <= names["vllm"]["widest_relative"] < 2880 * 2**-24 * 2
    assert "in an order that is not known" in str(report)


def test_a_claim_passes_though_another_rounding_fits_by_chance():
    """In two rows of this seed, another root fits with an order that is known."""
    fused, few = made(Pairwise, rounding=NAMES["vllm"]), {"rows": 2, "seed": 3}
    for claim, passes in ((None, True), ("vllm", True), ("vllm,root=rsqrt", True), ("vllm,threads=64", False), ("aiter", False)):
        report = checked(fused, claim=claim, **few)
        names = {match["name"]: match["threads"] for match in report.exact_as}
        assert report.passed == passes and report.exact_as[0]["name"] == "vllm,root=rsqrt" and names["vllm,root=rsqrt"], str(report)
        assert ("vllm" in names) == (claim != "vllm,root=rsqrt") and not names.get("vllm")
    assert report.findings == ["it is not aiter, as claimed, but vllm,root=rsqrt"]


def test_an_order_is_told_by_its_threads():
    fused = made(Fused, mean=lambda self, z: (squares(z, 64) / F32(z.shape[-1]))[..., None])
    report = checked(fused, hidden=[4096], claim="unfused,threads=64")
    assert report.passed and 64 in report.exact_as[0]["threads"] and 1024 not in report.exact_as[0]["threads"]
    assert checked(fused, hidden=[4096], claim="unfused,threads=1024").findings == [
        "it is not unfused,threads=1024, as claimed, but unfused"
    ]


@pytest.mark.parametrize("places", ["add=fp32,weight=first", "root=rsqrt", "sum=fp32,weight=once", "rounding=vllm,root=rsqrt"])
def test_other_places_and_an_h200s_root_are_found(places):
    """The tail is arlab's own, which test_tails.py compares with NumPy."""
    tail = arlab.Tail(residual="add", norm="rms", eps=1e-5, **dict(each.split("=") for each in places.split(",")))

    def fused(inputs, residual, weight, eps):
        sums = sum(each.astype(F32) for each in inputs)
        result = tail(sums, residual=residual[0], weight=weight[0], dtype="fp16")
        return [(result.normalized, result.residual)] * len(inputs)

    report = checked(fused, claim=places, hidden=[4096])
    assert not [each for each in report.findings if "aiter#2586" not in each], str(report)
    assert [match["name"] for match in report.exact_as] == [{"root=rsqrt": "torch-llama,root=rsqrt"}.get(places, places.removeprefix("rounding="))]


def padded_mean(self, z):
    return Fused.mean(self, z) * F32(z.shape[-1] / 1024)


def other_token(self, z, residual):
    return z + np.roll(residual, 1, 0)


def with_memory(self, z, residual):
    """The memory is unwritten: here numbers of another generator."""
    return z + np.random.default_rng(7).standard_normal(z.shape).astype(F32)


def added_before(self, inputs, residual):
    """On every rank, before the all-reduce, and once more behind it."""
    return sum(self.rounded(each.astype(F32) + r.astype(F32)) for each, r in zip(inputs, residual))


#: Implementations with a mistake, and what is said of them: the tail's options, what is changed, words.
MISTAKES = {
    "twice": ({}, {"plus": lambda self, z, r: z + r + r}, "the residual is added twice"),
    "twice on one rank": ({}, {"plus": on_rank_1(Fused.plus, lambda self, z, r: z + r + r)}, "rank 1: the residual is added twice"),
    "on every rank": ({}, {"sum": added_before}, "the residual is added 3 times"),
    "not at all": ({}, {"plus": lambda self, z, r: z}, "the residual is not added"),
    "uninitialised": ({}, {"plus": with_memory}, "the residual is none of the inputs, memory that is not initialised (vllm#41972)?"),
    "another token": ({}, {"plus": other_token}, "the residual is that of another token: row 1 has row 0's"),
    "eps outside": ({}, {"root": lambda self, z, eps: np.sqrt(self.mean(z)) + eps}, "eps is added outside of the root"),
    "eps missing": ({}, {"root": lambda self, z, eps: np.sqrt(self.mean(z)) + F32(1e-30)}, "eps is not added"),
    "sum not rounded": ({}, {"rounding": NAMES["aiter-before-2586"]}, "the sum is not rounded to fp16 before the residual is added (aiter#2586)"),
    "offset missing": ({"offset": 1}, {}, "the weight's offset of 1 is missing"),
    "offset too many": ({}, {"offset": 1}, "1 is added to the weight, which has no offset"),
    "no weight": ({}, {"weight": lambda self, w: w.astype(F32) * 0 + 1}, "no weight is multiplied with"),
    "padded row": ({}, {"mean": padded_mean}, "the mean of squares is over 1024 elements, not the row's 576: of a padded row"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake, dtype):
    options, changed, said = MISTAKES[mistake]
    tail = arlab.Tail(residual="add", norm="rms", eps=1e-5, **options)
    with np.errstate(all="ignore"):
        report = checked(made(Fused, **changed), tail, dtype=dtype)
    assert not report.passed and said.replace("fp16", dtype) in report.findings, str(report)


@pytest.mark.parametrize("rows, eps", [(1, 1e-6), (2, 1e-5), (8, 1e-6), (8, 1e-5)])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_where_eps_is_added_is_told_by_few_rows_and_with_defaults(dtype, rows, eps):
    tail = arlab.Tail(residual="add", norm="rms", eps=eps)

    def of(root):
        return check_tail(made(Fused, root=root), world_size=2, dtype=dtype, tail=tail, rows=rows, runs=2)

    assert of(Fused.root).passed
    assert of(lambda self, z, eps: np.sqrt(self.mean(z)) + eps).findings == ["eps is added outside of the root"]
    assert of(lambda self, z, eps: np.sqrt(self.mean(z))).findings == ["eps is not added"]
    assert not of(lambda self, z, eps: np.sqrt(self.mean(z) + F32(2) * eps)).passed


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_bit_of_one_row_says_nothing_of_the_others(dtype):
    def flipped(*given):
        made = Fused()(*given)
        for y, _ in made:
            y.view(np.uint16)[5, 7] ^= 1
        return made

    nearest = "no combination of roundings has every bit, with any mean of squares; the nearest, unfused, has 14 of 16 rows"
    assert checked(flipped, dtype=dtype, hidden=[576, 4096]).findings == [nearest]


class InMemory(arlab.conformance.NumpyTensors):
    """Keeps regions, so that a mutant may read what lies beside a tensor."""

    def region(self, rank, content):
        self.memory = super().region(rank, content)
        return self.memory


@pytest.mark.parametrize("rows, said", [(-1, "before the given one"), (1, "1 behind the given one")])
def test_the_weight_of_another_row_is_named(rows, said):
    tensors = InMemory()

    def other_row(self, weight):
        at = weight.__array_interface__["data"][0] - tensors.memory.__array_interface__["data"][0] + rows * weight.nbytes
        return tensors.memory[at : at + weight.nbytes].view(weight.dtype).astype(F32)

    report = checked(made(Fused, weight=other_row), world_size=1, tensors=tensors)
    assert report.findings == [f"the weight is that {said} in memory"]


@pytest.mark.parametrize("residual", ["add", "none"])
def test_a_residual_output_that_is_not_initialised_is_named(residual):
    """vllm#41972: what the memory of the output held is added. Numbers that the check put there are known."""
    tensors = InMemory()
    tail = arlab.Tail(residual=residual, norm="rms", eps=1e-5)

    class Wrong(Fused):
        def plus(self, z, r):
            return z + tensors.memory[-256 - 2 * z.size :][: 2 * z.size].view(self.kind).astype(F32).reshape(z.shape)

        def added(self, sums, r):
            return super().added(sums, sums if r is None else r)

    report = checked(Wrong(), tail, world_size=1, tensors=tensors)
    said = "the residual is what its output's memory held before: it is not initialised (vllm#41972)"
    assert said in report.findings and not report.deterministic, str(report)


def test_what_a_call_writes_leaves_out_or_changes_is_said():
    def writes(inputs, residual, weight, eps):
        residual[0][0, 0] = 7
        return Fused()(inputs, residual, weight, eps)

    class Noise(Fused):
        calls = 0

        def plus(self, z, r):
            self.calls += 1
            return z + r + F32(self.calls % 3 == 0)

    assert "writes to the residual: rank 0, 8 rows of 576 elements" in checked(writes).findings
    assert not checked(Noise()).deterministic
    right = checked(lambda *given: [y for y, _ in Fused()(*given)], returns="normalized", claim="unfused")
    assert right.passed, str(right)
    other = checked(lambda *given: [(y, x) for (y, _), x in zip(Fused()(*given), given[0])], world_size=1)
    assert other.findings == ["the residual output is not the sum with the residual, rounded"]


@pytest.mark.parametrize("name", ["vllm", "torch-llama"])
def test_pytorchs_norms_have_a_name(name):
    """PyTorch's rms_norm and transformers' LlamaRMSNorm, on a CPU; PyTorch adds squares in an order of its own."""
    torch = pytest.importorskip("torch")

    def llama(x, weight, eps):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return weight * (x.float() * torch.rsqrt(variance + eps)).to(x.dtype)

    def fused(inputs, residual, weight, eps):
        out = sum(each.float() for each in inputs).to(inputs[0].dtype) + residual[0]
        norm = llama(out, weight[0], eps) if name == "torch-llama" else torch.nn.functional.rms_norm(out, weight[0].shape, weight[0], eps)
        return [(norm, out)] * len(inputs)

    report = checked(fused, tensors=arlab.conformance.TorchTensors("cpu"), hidden=[2880], rows=4, claim=name)
    assert report.passed, str(report)


REFUSED = {
    "a check needs norm=rms": {"tail": "residual=add"},
    "where it is rounded is found out": {"tail": "norm=rms,rounding=vllm"},
    "ranks: 65: allowed are 1 to 64": {"world_size": 65},
    "rows: 0: allowed are 1 to 256": {"rows": 0},
    "hidden: 1: allowed are 2 to 1048576": {"hidden": [1]},
    "allowed are unfused, torch-llama, vllm": {"claim": "mine"},
    "claim 'vllm,eps=1': eps is no rounding: allowed are a name, sum=": {"claim": "vllm,eps=1"},
    "claim 'hidden=5,out=nvfp4': hidden is no rounding": {"claim": "hidden=5,out=nvfp4"},
    "hidden: 576: the tail has hidden=99": {"tail": "hidden=99,norm=rms"},
    "returns 'two': allowed are both, normalized": {"returns": "two"},
    "ValueError: invalid literal": {"fused": lambda *given: int("not today")},
    "the tail must return \\(normalized, residual\\) of a rank": {"fused": lambda inputs, *rest: inputs},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_checked_is_one_line(said):
    options = {"fused": Fused(), **REFUSED[said]}
    with pytest.raises(CheckError, match=said):
        checked(options.pop("fused"), **options)
