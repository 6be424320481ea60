"""Tensors as addresses: arrays of NumPy, and whatever speaks DLPack, without copies."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Sequence

import numpy as np

from arlab import _arlab
from arlab._errors import ArgumentError

SIZES = {"fp16": 2, "bf16": 2, "fp32": 4}
_DLPACK_PLATFORMS = {1: "host", 2: "cuda", 10: "rocm"}
_DLPACK_DTYPES = {(2, 16): "fp16", (4, 16): "bf16", (2, 32): "fp32"}
_NUMPY_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


class Memory(NamedTuple):
    """A tensor's place in memory."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    platform: str
    device: int  # number on the platform; 0 for arrays of NumPy
    keep: Any  # the tensor, until the call that uses the address has been made

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * SIZES[self.dtype]

    @property
    def end(self) -> int:
        return self.address + self.bytes

    def overlaps(self, other: Memory) -> bool:
        return self.address < other.end and other.address < self.end


def numpy_dtype(dtype: Any) -> np.dtype:
    """Returns NumPy's type for "fp16", "bf16" (of ml_dtypes) or "fp32", or for another value that dtype_name()
    takes."""
    name = dtype_name(dtype, "dtype")
    if name == "bf16":
        try:
            import ml_dtypes
        except ImportError:
            raise ArgumentError("bf16 needs the package ml_dtypes") from None
        bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(np.float16 if name == "fp16" else np.float32)


def dtype_name(dtype: Any, what: str) -> str:
    """ Returns "fp16", "bf16" or "fp32", for such a name or a type of NumPy or PyTorch."""
    if isinstance(dtype, str) and dtype in SIZES:
        return dtype
    if isinstance(dtype, str) and dtype in _NUMPY_DTYPES:  # NumPy knows "bfloat16" only where ml_dtypes was imported
        return _NUMPY_DTYPES[dtype]
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
        if dtype in _NUMPY_DTYPES:
            return _NUMPY_DTYPES[dtype]
        raise ArgumentError(f"{what} {dtype}: allowed are float16, bfloat16 and float32")
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError):  # the latter of text that is not Unicode's
        raise ArgumentError(
            f"{what} {dtype!r}: allowed are fp16, bf16, fp32, and what NumPy and PyTorch call float16, bfloat16 and float32"
        ) from None
    if kind.name not in _NUMPY_DTYPES:
        raise ArgumentError(f"{what} {kind}: allowed are float16, bfloat16 (of ml_dtypes) and float32")
    if not kind.isnative:
        raise ArgumentError(f"{what} {kind.str}, in another byte order than this machine's")
    return _NUMPY_DTYPES[kind.name]


def _memory_of_torch(tensor: Any, torch: Any) -> Memory | None:
    """Returns the memory of a tensor of PyTorch's own, without DLPack, which takes longer than a small call; None where
    that has to judge it."""
    dtype = _NUMPY_DTYPES.get(str(tensor.dtype)[6:])
    if dtype is None or tensor.requires_grad or tensor.layout is not torch.strided or not tensor.is_contiguous():
        return None
    device = tensor.device
    platform = "host" if device.type == "cpu" else "" if device.type != "cuda" else "rocm" if torch.version.hip else "cuda"
    return Memory(tensor.data_ptr(), tensor.shape, dtype, platform, device.index or 0, tensor) if platform else None


def memory_of(tensor: Any, what: str, writable: bool = False, of: tuple[Any, ...] = ()) -> Memory:
    """Returns the memory of a NumPy array, or of anything that speaks DLPack. Messages call it `what`, with `of` in its
    places.

    Raises ArgumentError for other things, and for what is not contiguous, not aligned, of another dtype or byte order,
    or read-only where it must be writable.
    """
    torch = sys.modules.get("torch")
    if torch is not None and type(tensor) is torch.Tensor:
        memory = _memory_of_torch(tensor, torch)
        if memory is not None and memory.address % SIZES[memory.dtype] == 0:
            return memory
    if of:
        what = what.format(*of)
    if isinstance(tensor, np.ndarray):
        dtype = _NUMPY_DTYPES.get(tensor.dtype.name) if tensor.dtype.isnative else None
        dtype = dtype or dtype_name(tensor.dtype, f"{what} is")
        flags = tensor.flags
        if not flags.c_contiguous:
            raise ArgumentError(f"{what} is not contiguous")
        is_writable = flags.writeable
        memory = Memory(tensor.__array_interface__["data"][0], tensor.shape, dtype, "host", 0, tensor)
    else:
        try:
            address, shape, code, bits, device_type, device, is_writable = _arlab.describe(tensor)
        except TypeError:
            raise ArgumentError(
                f"{what} is {type(tensor).__name__}: needed is a contiguous array of NumPy, or a contiguous tensor that"
                " speaks DLPack"
            ) from None
        found = _DLPACK_DTYPES.get((code, bits))
        if found is None:
            raise ArgumentError(f"{what} has elements that are not fp16, bf16 or fp32")
        if device_type not in _DLPACK_PLATFORMS:
            raise ArgumentError(f"{what} is on a device of a kind that arlab does not know (DLPack {device_type})")
        memory = Memory(address, tuple(shape), found, _DLPACK_PLATFORMS[device_type], device, tensor)
    if writable and not is_writable:
        raise ArgumentError(f"{what} is read-only")
    if memory.address % SIZES[memory.dtype] != 0:
        raise ArgumentError(f"{what} is not at a multiple of its elements' size in memory")
    return memory


def host_memory_of(tensor: Any, what: str) -> Memory:
    """Returns the memory of a tensor in this process, which is only read: a view with strides is copied first."""
    if isinstance(tensor, np.ndarray):
        tensor = np.require(tensor, requirements=("C_CONTIGUOUS", "ALIGNED"))
    elif type(tensor).__module__.partition(".")[0] == "torch":
        tensor = tensor.contiguous()
    memory = memory_of(tensor, what)
    if memory.platform != "host":
        raise ArgumentError(f"{what} is on platform {memory.platform}: the reference takes tensors in host memory")
    return memory


def tensors_of_ranks(tensors: Any) -> list[Memory]:
    """Returns the tensors of all ranks, given a sequence of tensors of one shape, or one of shape [ranks, ...]."""
    if isinstance(tensors, Sequence):
        ranks = [host_memory_of(tensor, f"rank {rank}'s tensor") for rank, tensor in enumerate(tensors)]
        if not ranks:
            raise ArgumentError("there are no tensors: allowed is one for each rank")
        for rank, memory in enumerate(ranks):
            if (memory.shape, memory.dtype) != (ranks[0].shape, ranks[0].dtype):
                raise ArgumentError(
                    f"rank {rank}'s tensor is {memory.dtype} of shape {memory.shape}, rank 0's {ranks[0].dtype} of shape"
                    f" {ranks[0].shape}: allowed are equal ones"
                )
        return ranks
    whole = host_memory_of(tensors, "the tensor of all ranks")
    if len(whole.shape) < 2 or whole.shape[0] == 0:
        raise ArgumentError(
            f"the tensor of all ranks has shape {whole.shape}: allowed is [ranks, ...], or a list of a tensor for each rank"
        )
    bytes_of_rank = whole.elements // whole.shape[0] * SIZES[whole.dtype]
    return [
        whole._replace(address=whole.address + rank * bytes_of_rank, shape=whole.shape[1:])
        for rank in range(whole.shape[0])
    ]


def as_given(data: np.ndarray, dtype: str, shape: Sequence[int], like: Any) -> Any:
    """Returns bytes as a tensor of the caller's kind: of PyTorch, if `like` is one, else of NumPy."""
    if type(like).__module__.partition(".")[0] == "torch":
        import torch

        kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
        return torch.from_numpy(data).view(kinds[dtype]).reshape(tuple(shape))
    return data.view(numpy_dtype(dtype)).reshape(shape)
