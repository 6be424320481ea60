"""Collectives in the bit-exact reference: which bits every rank ends with, and how far they are from the exact result."""

from __future__ import annotations

from typing import Any, Sequence

from arlab import _arlab
from arlab._arlab import ArgumentError
from arlab._arrays import as_given, tensors_of_ranks
from arlab._tables import Figures, parsed
from arlab.schedules import Schedule

__all__ = ["Reduction", "all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]


class Reduction(Figures):
    """What a collective gave. Figures in dB and in units of the values, against the exact (float64) result.

    outputs                   the output of every rank, stacked: [ranks, ...], of the inputs' kind and dtype
    sqnr_db                   10 log10(signal / error) of the whole tensor; inf without error, -inf where finite values became
                              NaN or infinite (`lost` of them); None where there is nothing to compare. So are those below
    token_sqnr_db             the median over tokens (rows of the last axis), and token_sqnr_p1_db, that 1 % of the tokens are
                              below: what counts for models. None for tensors of one axis
    channel_sqnr_db           likewise over channels (columns of the last axis), channel_sqnr_p1_db
    max_abs_error, rmse, cosine
    ranks_identical           whether all ranks hold the same bits; None where they are not meant to
    clamped, flushed          encoded elements beyond the code range, and those that became zero
    non_finite                elements of the result that are NaN or infinite
    wire_bytes                of all sends of all ranks; wire_bits_per_element, their average
    """

    SHOWN = (
        "collective", "algorithm", "codec", "inner_codec", "ranks", "dtype", "elements", "sqnr_db", "token_sqnr_db",
        "token_sqnr_p1_db", "channel_sqnr_db", "max_abs_error", "rmse", "exact", "ranks_identical", "clamped", "flushed",
        "non_finite", "wire_bits_per_element", "wire_bytes",
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


def _run(
    tensors: Any,
    algorithm: str | Schedule,
    codec: str | None,
    inner_codec: str | None,
    options: dict[str, Any],
    accumulate: str = "native",
    threads: int = 0,
    count: bool = True,
) -> Reduction:
    ranks = tensors_of_ranks(tensors)
    first = ranks[0]
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(algorithm, Schedule) and options:
        raise ArgumentError(f"{', '.join(options)}: a schedule has its options already")
    channels = first.shape[-1] if len(first.shape) >= 2 else 0
    data, figures = _arlab.run_collective(
        algorithm=algorithm._schedule if isinstance(algorithm, Schedule) else str(algorithm),
        codec=first.dtype if codec is None else codec,
        inner_codec=inner_codec,
        options=options,
        dtype=first.dtype,
        elements=first.elements,
        inputs=[memory.address for memory in ranks],
        channels=channels if channels > 1 else 0,
        accumulate=accumulate,
        threads=threads,
        count=count,
    )
    like = tensors[0] if isinstance(tensors, Sequence) else tensors
    return Reduction(parsed(figures), as_given(data, first.dtype, (len(ranks), *first.shape), like))


def all_reduce(
    tensors: Any,
    *,
    algorithm: str | Schedule = "two_shot",
    codec: str | None = None,
    inner_codec: str | None = None,
    own: str | None = None,
    forward: str | None = None,
    group_size: int | None = None,
    micro_chunks: int | None = None,
    accumulate: str = "native",
    threads: int = 0,
    count: bool = True,
) -> Reduction:
    """The sum of all ranks' tensors, as the algorithm and the codec make it, bit for bit.

    Args:
        tensors: [ranks, ...], or a sequence of a tensor for each rank, of float16, bfloat16 or float32: NumPy, or in host
            memory and speaking DLPack (PyTorch). They are read where they are.
        algorithm: a name (arlab.algorithms()), the path of a schedule.json, or a Schedule.
        codec: how values travel; by default as they are.
        inner_codec: of messages inside groups, for hierarchical algorithms; by default `codec`.
        own: "encoded" or "exact", a rank's own contribution. forward: "unchanged" or "reencoded" (ring).
        group_size, micro_chunks: of hierarchical algorithms.
        accumulate: sums in the payload's dtype ("native") or in "fp32", rounded once.
        threads: 0 for all; the result never depends on it.
        count: also clamped and flushed elements, which takes one more decode per encode.

    Raises ArgumentError (a ValueError) for everything that does not fit, before anything is done.
    """
    options = {"own": own, "forward": forward, "group_size": group_size, "micro_chunks": micro_chunks}
    return _run(tensors, algorithm, codec, inner_codec, options, accumulate, threads, count)


def reduce_scatter(
    tensors: Any, *, codec: str | None = None, own: str | None = None, accumulate: str = "native", threads: int = 0
) -> Reduction:
    """Slot i of rank i becomes the sum of all ranks' slots i; the others stay. A tensor is as many equal slots as ranks.

    Arguments as for all_reduce.
    """
    return _run(tensors, "reduce_scatter", codec, None, {"own": own}, accumulate, threads)


def all_gather(tensors: Any, *, codec: str | None = None, own: str | None = None, threads: int = 0) -> Reduction:
    """Every rank's slot i becomes slot i of rank i. Slots as for reduce_scatter, arguments as for all_reduce."""
    return _run(tensors, "all_gather", codec, None, {"own": own}, threads=threads)


def broadcast(tensors: Any, *, codec: str | None = None, own: str | None = None, threads: int = 0) -> Reduction:
    """Every rank ends with the tensor of rank 0. Arguments as for all_reduce."""
    return _run(tensors, "broadcast", codec, None, {"own": own}, threads=threads)


def all_to_all(
    tensors: Any,
    *,
    codec: str | None = None,
    inner_codec: str | None = None,
    own: str | None = None,
    combine: str | None = None,
    threads: int = 0,
) -> Reduction:
    """Slot j of rank i becomes slot i of rank j. Slots as for reduce_scatter, arguments as for all_reduce.

    Args:
        combine: "quantized": every slot is encoded again where it arrives and sent back, as by a mixture of experts;
            `inner_codec` is the codec of that way.
    """
    return _run(tensors, "all_to_all", codec, inner_codec, {"own": own, "combine": combine}, threads=threads)
