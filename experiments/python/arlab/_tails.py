"""Tails behind all-reduces in a model: residual, RMSNorm, quantization, bit for bit (reference/tails/SPEC.md)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from arlab import _arlab
from arlab._arrays import as_given, dtype_name, host_memory_of
from arlab._errors import ArgumentError

__all__ = ["Tail", "TailResult"]


@dataclass(frozen=True)
class TailResult:
    """Rows as a tail makes them, each of the sums' shape, of NumPy or PyTorch as they are; None where the tail has no such thing.

    residual      the sum with the residual, which the next layer adds to
    normalized    what comes out, before it is quantized
    wire          uint8 [bytes], of the output's codec, all rows as one message
    quantized     what the wire stands for
    """

    residual: Any
    normalized: Any
    wire: np.ndarray | None
    quantized: Any


@dataclass(frozen=True)
class Tail:
    """A tail as data: what is done with the sums of rows (tokens), and where that is rounded.

        tail = arlab.Tail(residual="add", norm="rms", eps=1e-5, out="int8-g128", rounding="vllm")
        made = tail(arlab.all_reduce(x, codec="qr-q4").outputs[0], residual=r, weight=w)

    hidden      elements of a row; None: the last axis of what it is called with
    residual    whether a residual is added: "none", "add"
    norm        "none", "rms": x / sqrt(mean of squares + eps) * weight
    eps         fp32
    offset      1 where weights are stored without 1, as Gemma's
    out         the codec that what comes out is encoded with; None: none
    rounding    by name: "unfused", "torch-llama", "vllm", "aiter", "aiter-before-2586", "aiter-two-stage",
                "mnnvl-two-shot", "flashinfer-fp4"

    One by one, in place of what the name says: sum ("native", "fp32": whether the sum has the dtype), add ("native",
    "fp32", or "squares": whether the norm's input has, or all but its squares), root ("divide", "reciprocal", "rsqrt":
    an H200's approximation), weight ("twice", "once", "first"), threads (32 to 1024).
    """

    hidden: int | None = None
    residual: str = "none"
    norm: str = "none"
    eps: float | None = None
    offset: int | None = None
    out: str | None = None
    rounding: str | None = None
    sum: str | None = None
    add: str | None = None
    root: str | None = None
    weight: str | None = None
    threads: int | None = None

    def __str__(self) -> str:
        """As the program has it: residual=add,norm=rms."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ",".join(f"{name}={value}" for name, value in given if value is not None and value != "none")

    def __call__(
        self, sums: Any, *, residual: Any = None, weight: Any = None, dtype: Any = None, threads: int = 0
    ) -> TailResult:
        """Applies the tail to sums.

        Args:
            sums: [..., hidden] of float16, bfloat16 or float32: what a rank has after the all-reduce. For sum="fp32" float32, and `dtype`
                says what the tail rounds to.
            residual: of the sums' shape and of the dtype, for residual="add".
            weight: [hidden] of the dtype, for norm="rms". By default 1.
            dtype: of residual, weight and what comes out. By default the sums'.
            threads: 0 for all. The result does not depend on it.

        Raises ArgumentError (a ValueError) for a tail that cannot be or does nothing, and for other shapes and dtypes.
        """
        if weight is None and self.weight is not None:
            raise ArgumentError(f"weight={self.weight} says how a weight is multiplied, and none is given")
        memory = host_memory_of(sums, "the sums")
        name = memory.dtype if dtype is None else dtype_name(dtype, "dtype")
        if name != memory.dtype and memory.dtype != "fp32":
            raise ArgumentError(f"the sums are {memory.dtype}, not {name}: allowed are these, and float32")
        if not memory.shape:
            raise ArgumentError("the sums have no axis: needed is [..., hidden]")
        addresses, kept = [], []
        row = (self.hidden or memory.shape[-1],)
        for what, given, shape in (("residual", residual, memory.shape), ("weight", weight, row)):
            if given is None:
                addresses.append(0)
                continue
            found = host_memory_of(given, f"the {what}")
            if (found.shape, found.dtype) != (shape, name):
                raise ArgumentError(
                    f"the {what} is {found.dtype} of shape {found.shape}: needed is {name} of shape {shape}"
                )
            addresses.append(found.address)
            kept.append(found)
        made = _arlab.run_tail(str(self), name, memory.dtype, memory.address, list(memory.shape), *addresses, threads)
        has = {"residual": self.residual == "add", "normalized": True, "quantized": self.out is not None}
        shaped = {key: as_given(made[key], name, memory.shape, sums) if there else None for key, there in has.items()}
        return TailResult(**shaped, wire=made["wire"] if self.out is not None else None)
