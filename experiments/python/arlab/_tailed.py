"""All-reduces with a tail, of kernels: what a call is given besides its tensor, and what it makes."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from arlab import _arlab
from arlab._arrays import Memory, memory_of
from arlab._errors import ArgumentError
from arlab._tails import Tail

__all__ = ["Tailed"]


class Tailed(NamedTuple):
    """A rank's results of an all-reduce with a tail; None where the tail has no such thing.

    residual      the sum with the residual, which the next layer adds to; with tail_place="owner" only rows of which
                  this rank is the owner are written
    normalized    what comes out, before it is quantized
    wire          uint8 [bytes], of the output's codec, all rows as one message; None with tail_place="owner", where
                  `normalized` is what owners' wires decode to
    """

    residual: Any
    normalized: Any
    wire: Any


class TailArguments(NamedTuple):
    """As callers give them, of one rank."""

    tail: Tail | None
    residual: Any
    weight: Any
    eps: float | None
    out_quant: str | None
    rounding: str | None
    residual_out: Any = None
    tail_place: str | None = None

    def is_given(self) -> bool:
        return any(each is not None for each in self)

    def text(self, shape: Sequence[int]) -> str:
        """The tail in words; a row is the tensor's last axis, unless the tail says so itself."""
        named = {"eps": self.eps, "out": self.out_quant, "rounding": self.rounding}
        tail = self.tail
        if tail is None:
            adds, norms = self.residual is not None, self.weight is not None or self.eps is not None
            tail = Tail(residual="add" if adds else "none", norm="rms" if norms else "none", **named)
        elif any(value is not None for value in named.values()):
            raise ArgumentError("eps, out_quant and rounding are of a tail: allowed are these, or tail=arlab.Tail(...)")
        if tail.hidden is None and not shape:
            raise ArgumentError("the tensor has no axis: needed is [..., hidden]")
        if self.tail_place not in (None, "after", "owner"):
            raise ArgumentError(f"tail_place is {self.tail_place!r}: allowed are 'after' and 'owner'")
        place = "owners:" if self.tail_place == "owner" else ""
        return place + (str(tail) if tail.hidden is not None else f"{tail},hidden={shape[-1]}")


class TailMemory(NamedTuple):
    """Where the tensors of a rank's tail are; 0 and None stand for none."""

    addresses: tuple[int, int, int, int]
    made: Tailed
    uses: list[tuple[str, Memory, bool, str]]


def _beside(given: Any, what: str, memory: Memory, shape: Sequence[int], writable: bool = False) -> Memory:
    found = memory_of(given, what, writable=writable)
    if (tuple(found.shape), found.dtype) != (tuple(shape), memory.dtype):
        raise ArgumentError(
            f"{what} is {found.dtype} of shape {tuple(found.shape)}: needed is {memory.dtype} of shape {tuple(shape)}"
        )
    if (found.platform, found.device) != (memory.platform, memory.device):
        raise ArgumentError(
            f"{what} is on device {found.device} of {found.platform}, the tensor on {memory.device} of {memory.platform}"
        )
    return found


def _wire_beside(tensor: Any, size: int) -> tuple[Any, int]:
    if isinstance(tensor, np.ndarray):
        wire = np.empty(size, np.uint8)
        return wire, wire.__array_interface__["data"][0]
    if type(tensor).__module__.partition(".")[0] != "torch":
        raise ArgumentError(f"the tensor is {type(tensor).__name__}: a tail with a codec makes wires of NumPy and PyTorch")
    import torch

    wire = tensor.new_empty(size, dtype=torch.uint8)
    return wire, wire.data_ptr()


def memory_of_tail(
    given: TailArguments, request: _arlab.Request, rank: int, tensor: Memory, output: Memory
) -> TailMemory:
    """Checks what a rank gives its tail. Raises ArgumentError for what is missing, of another shape or dtype, or
    elsewhere."""
    adds, norms, hidden = request.tail
    for what, each, needed in (("residual", given.residual, adds), ("weight", given.weight, norms)):
        if (each is not None) != needed:
            found = "missing: the tail has one" if needed else "given: the tail has none"
            raise ArgumentError(f"rank {rank}'s {what} is {found}")
    if given.residual_out is not None and not adds:
        raise ArgumentError(f"rank {rank}'s residual_out is given: the tail has none")
    uses = [("tensor", tensor, False, "tensor"), ("output", output, True, "tensor")]
    residual = weight = target = None
    made_residual = given.residual if given.residual_out is None else given.residual_out
    if adds:
        residual = _beside(given.residual, f"rank {rank}'s residual", tensor, tensor.shape)
        target = _beside(made_residual, f"rank {rank}'s residual_out", tensor, tensor.shape, writable=True)
        uses += [("residual", residual, False, "residual"), ("residual_out", target, True, "residual")]
    if norms:
        weight = _beside(given.weight, f"rank {rank}'s weight", tensor, (hidden,))
        uses.append(("weight", weight, False, "weight"))
    wire, at = _wire_beside(output.keep, request.wire_bytes) if request.wire_bytes else (None, 0)
    addresses = tuple(0 if each is None else each.address for each in (residual, weight, target))
    return TailMemory((*addresses, at), Tailed(made_residual if adds else None, output.keep, wire), uses)


def check_apart(tails: Sequence[TailMemory]) -> None:
    """By rank. What a tail writes nobody else may read or write; in place it is all of the same memory."""
    uses = [
        (f"rank {rank}'s {what}", memory, writes, (rank, pair))
        for rank, tail in enumerate(tails)
        for what, memory, writes, pair in tail.uses
    ]
    for what, memory, writes, pair in uses:
        for other, another, _, other_pair in uses:
            if not writes or what == other or not memory.overlaps(another):
                continue
            if pair != other_pair or memory.address != another.address:
                raise ArgumentError(f"{what} overlaps {other}: allowed are memory of its own, and all of what it replaces")
