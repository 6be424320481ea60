"""Collectives in the bit-exact reference: which bits every rank ends with, and how far they are from the exact result."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Sequence

from arlab import _arlab
from arlab._arlab import CodecState
from arlab._arrays import as_given, tensors_of_ranks
from arlab._errors import ArgumentError
from arlab._tables import Result, call_with, is_count
from arlab.schedules import Algorithm, Schedule, asked, of_collective

__all__ = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "Reduction", "Sum", "CodecState"]  # as the reference page lists them


@dataclass(frozen=True)
class Sum:
    """How a sum is made, beside the codec: what decides an all-reduce's bits with it.

    decode    decoded values: of the payload's dtype ("native"), or "fp32"
    add       partial sums: of the payload's dtype ("native"), "fp32", fp32 with code times scale in one
              step ("fma"), or with all bits until they are rounded, once ("exact")
    order     contributions by "rank", or beginning with one's "own"
    round     the sum before it is encoded again: to the payload's dtype ("native"), or "none"
    own       the owner's contribution: "encoded" or "exact"; None: what the algorithm has
    result    the owner's part of its output: as others decode it ("encoded"), or the "sum" itself: then ranks differ
    cast      bf16 payloads as they are ("none"), or as "fp16" from end to end
    """

    decode: str = "native"
    add: str = "native"
    order: str = "rank"
    round: str = "native"
    own: str | None = None
    result: str = "encoded"
    cast: str = "none"

    def __str__(self) -> str:
        """As the program has it: decode=fp32,add=fp32; "native" where nothing differs from the default."""
        given = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return ",".join(f"{name}={value}" for name, value, default in given if value != default) or "native"


class Reduction(Result):
    """The result of a collective. Figures in dB and in units of the values, against the exact (float64) result.

    outputs                   the output of every rank, stacked: [ranks, ...], of the inputs' kind and dtype
    sqnr_db                   10 log10(signal / error) of the whole tensor; inf without error, -inf where finite values became
                              NaN or infinite (`lost` of them); None where there is nothing to compare. So are those below
    token_sqnr_db             the median over tokens (rows of the last axis), and token_sqnr_p1_db, that 1 % of the tokens are
                              below: what counts for models. None for tensors of one axis
    channel_sqnr_db           likewise over channels (columns of the last axis), channel_sqnr_p1_db
    max_abs_error, rmse, cosine
    ranks_identical           whether all ranks hold the same bits; None where they are not meant to
    clamped, flushed          encoded elements beyond the code range, and those that became zero
    out_of_range              only where most of them were, words that say so
    non_finite                elements of the result that are NaN or infinite
    wire_bytes                of all sends of all ranks; wire_bits_per_element, their average
    """

    SHOWN = (
        "collective", "like", "algorithm", "codec", "inner_codec", "ranks", "dtype", "elements", "sqnr_db", "token_sqnr_db",
        "token_sqnr_p1_db", "channel_sqnr_db", "max_abs_error", "rmse", "exact", "ranks_identical", "clamped", "flushed",
        "out_of_range", "non_finite", "wire_bits_per_element", "wire_bytes",
    )  # fmt: skip

    outputs: Any
    sqnr_db: float | None
    token_sqnr_db: float | None
    token_sqnr_p1_db: float | None
    channel_sqnr_db: float | None
    channel_sqnr_p1_db: float | None
    max_abs_error: float | None
    rmse: float | None
    ranks_identical: bool | None
    clamped: int | None
    flushed: int | None
    non_finite: int
    wire_bytes: int
    wire_bits_per_element: float

    def __init__(self, data: dict[str, Any], outputs: Any):
        super().__init__(data)
        self.outputs = outputs


_ALLOWED = {
    "codec": (lambda value: isinstance(value, str), "the name of a codec"),
    "count": (lambda value: isinstance(value, bool), "True or False"),
    "rounding_seed": (is_count(64), "an integer from 0 on, of 64 bits"),
    "state": (lambda value: value is None or isinstance(value, CodecState), "an arlab.CodecState()"),
}


#: Fields of `arlab reduce`; seeds have 64 bits here.
_EXECUTION = set(_arlab.execution_options()) - {"rounding_seed"}


def _run(
    tensors: Any, algorithm: str | Algorithm | Schedule, options: dict[str, Any], codec: str | None, *,
    count: bool = True, rounding_seed: int = 0, state: CodecState | None = None, **how: Any,
) -> Reduction:  # fmt: skip
    """`how`: the rest of what all_reduce takes. `options` that belong to no algorithm are fields of `arlab reduce`."""
    ranks = tensors_of_ranks(tensors)
    first = ranks[0]
    how |= {name: options.pop(name) for name in _EXECUTION & options.keys()}
    if how.get("like") is not None and algorithm != "two_shot":
        raise ArgumentError(f"like={how['like']!r} has its own algorithm: allowed is no other")
    what, given = asked(algorithm, options)
    channels = first.shape[-1] if len(first.shape) >= 2 else 0
    named = {
        "algorithm": what,
        "options": given,
        "codec": "" if how.get("like") and codec is None else first.dtype if codec is None else codec,
        "dtype": first.dtype,
        "elements": first.elements,
        "inputs": [memory.address for memory in ranks],
        "channels": channels if channels > 1 else 0,
        "execution": {name: value for name, value in how.items() if value is not None},
        "count": count,
        "rounding_seed": rounding_seed,
        "state": state,
    }
    data, figures = call_with(_arlab.run_collective, named, _ALLOWED)
    like = tensors[0] if isinstance(tensors, Sequence) else tensors
    return Reduction(figures, as_given(data, first.dtype, (len(ranks), *first.shape), like))


def all_reduce(
    tensors: Any,
    *,
    algorithm: str | Algorithm | Schedule = "two_shot",
    codec: str | None = None,
    accumulate: str = "native",
    sum: Sum | str | None = None,
    like: str | None = None,
    block: int | None = None,
    threads: int = 0,
    count: bool = True,
    rounding_seed: int = 0,
    call: int = 0,
    state: CodecState | None = None,
    **options: Any,
) -> Reduction:
    """The sum of all ranks' tensors, as the algorithm and the codec make it, bit for bit.

    Args:
        tensors: [ranks, ...], or a sequence of a tensor for each rank, of float16, bfloat16 or float32: NumPy, or in host
            memory and speaking DLPack (PyTorch). They are read where they are.
        algorithm: a value such as arlab.Ring(own="exact"); a name (arlab.algorithms()) or the path of a schedule.json, which
            `options` may follow; or a Schedule.
        codec: how values travel; by default as they are.
        accumulate: sums in the payload's dtype ("native") or in "fp32", rounded once.
        sum: more of how sums are made, an arlab.Sum or its text, "decode=fp32,add=fp32"; `accumulate` is one field of it.
        like: in place of algorithm, codec and sum the name of an all-reduce of other people, whose bits the outputs have:
            "flashinfer-fp8", "torchft-fp8", "vllm-fp8" and "vllm-int8" as their Triton kernels make them on an H200,
            "quickreduce", and "quickreduce-vllm", which casts bf16 to fp16; of the last two, `codec` says the profile;
            "ddp-bf16" and "ddp-fp16" as DistributedDataParallel's compression hooks make them on a ring, without their
            division by the ranks; "nvls" as NVLink's switch sums, rounded once. Of FlashInfer's and vLLM's, stripe= is
            a kernel's block. "flashinfer-fp4" is as the sources of FlashInfer's cake_fp4_allreduce say, not compared
            with a device.
        block: with `like`, elements that share a scale: groups (256), or rows (torchft's, flashinfer-fp4's: the last
            axis).
        threads: 0 for all; the result never depends on it.
        count: also clamped and flushed elements, which takes one more decode per encode.
        rounding_seed, call: what codecs' random numbers depend on: a seed, and how many calls were before this one.
        state: of codecs that carry something from call to call (error feedback): a new arlab.CodecState() for the first call,
            and the same one for those that follow. Without it every call is the first.
        options: of an algorithm that is named, as the value would have them: group_size=4, inner_codec="fp16".

    Raises ArgumentError (a ValueError) for everything that does not fit, before anything is done.
    """
    how = {"accumulate": accumulate, "sum": sum and str(sum), "like": like, "block": block, "threads": threads, "call": call}
    return _run(tensors, algorithm, options, codec, count=count, rounding_seed=rounding_seed, state=state, **how)


def reduce_scatter(
    tensors: Any,
    *,
    algorithm: str | Algorithm | Schedule = "reduce_scatter",
    codec: str | None = None,
    accumulate: str = "native",
    sum: Sum | str | None = None,
    threads: int = 0,
    **options: Any,
) -> Reduction:
    """Slot i of rank i becomes the sum of all ranks' slots i; the others stay. A tensor is as many equal slots as ranks.

    Arguments as for all_reduce; `options` are those of arlab.ReduceScatter, or of an algorithm that is named: with
    algorithm="hierarchical_reduce_scatter", group_size=4 and inner_codec="int8-g128", for one, in two hops.
    """
    algorithm = of_collective(algorithm, "reduce_scatter")
    return _run(tensors, algorithm, options, codec, accumulate=accumulate, sum=sum and str(sum), threads=threads)


def all_gather(tensors: Any, *, codec: str | None = None, threads: int = 0, **options: Any) -> Reduction:
    """Every rank's slot i becomes slot i of rank i. Slots as for reduce_scatter; `options` are those of arlab.AllGather."""
    return _run(tensors, "all_gather", options, codec, threads=threads)


def broadcast(tensors: Any, *, codec: str | None = None, threads: int = 0, **options: Any) -> Reduction:
    """Every rank ends with the tensor of rank 0. `options` are those of arlab.Broadcast."""
    return _run(tensors, "broadcast", options, codec, threads=threads)


def all_to_all(tensors: Any, *, codec: str | None = None, threads: int = 0, **options: Any) -> Reduction:
    """Slot j of rank i becomes slot i of rank j. Slots as for reduce_scatter; `options` are those of arlab.AllToAll: with
    combine="quantized", as in a mixture of experts, slots are encoded again where they arrive and sent back."""
    return _run(tensors, "all_to_all", options, codec, threads=threads)
