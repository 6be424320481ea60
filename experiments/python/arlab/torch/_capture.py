"""Partial sums of a PyTorch model: what its tensor-parallel inference hands to its all-reduces, as a file for the studies.

    import arlab.torch

    with arlab.torch.capture(model, "partial_sums.safetensors", ranks=4):
        model(tokens)

    arlab reduce --input partial_sums.safetensors --tensor model.layers.0.mlp.down_proj --algorithm two_shot --codec qr-q4

PyTorch is imported where it is needed, and arlab's compiled part is not.
"""

from __future__ import annotations

import fnmatch
import json
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np
from numpy.typing import NDArray

from arlab._errors import ArgumentError
from arlab._files import write_whole

if TYPE_CHECKING:
    import torch

__all__ = ["ROW_PARALLEL", "Capture", "capture", "partial_sums"]

#: The layers that a Megatron-style split cuts along their inputs, as Llama and its kin name them.
ROW_PARALLEL = ("*.o_proj", "*.down_proj")

_DTYPES = {"fp16": "F16", "bf16": "BF16"}


def partial_sums(x: NDArray[Any], weight: NDArray[Any], ranks: int) -> NDArray[np.float32]:
    """Each rank's contribution to a row-parallel linear layer: its part of the inputs times its columns of the weight.

    Args:
        x: [..., inputs], what the layer reads.
        weight: [outputs, inputs], as torch.nn.Linear holds it.
        ranks: N; rank r holds the r-th of N equal parts of the inputs.

    Returns float32 [ranks, ..., outputs]: evaluated in float64 and rounded once. Their sum over ranks is the layer's
    output without its bias, which is added once, after the all-reduce.

    Raises ValueError where the inputs do not divide by the ranks, or shapes do not fit.
    """
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[1]:
        raise ArgumentError(f"an input of shape {x.shape} does not fit a weight of shape {weight.shape} ([outputs, inputs])")
    inputs = weight.shape[1]
    if ranks < 1 or inputs % ranks != 0:
        raise ArgumentError(f"{inputs} inputs do not divide by {ranks} ranks")
    parts = [slice(rank * inputs // ranks, (rank + 1) * inputs // ranks) for rank in range(ranks)]
    wide, matrix = x.astype(np.float64), weight.astype(np.float64)
    with np.errstate(over="ignore"):
        return np.stack([(wide[..., part] @ matrix[:, part].T).astype(np.float32) for part in parts])


def _bits(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint16]:
    """fp16 or bf16, rounded to nearest even, as bits."""
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    import ml_dtypes

    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def _safetensors(tensors: dict[str, NDArray[np.uint16]], dtype: str, metadata: dict[str, str]) -> bytes:
    """A .safetensors file: the length of its header, the header (JSON), the tensors one after the other."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, bits in tensors.items():
        begin, end = end, end + bits.nbytes
        header[name] = {"dtype": _DTYPES[dtype], "shape": list(bits.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(np.ascontiguousarray(b).tobytes() for b in tensors.values())])


def _dtype(dtype: Any) -> str:
    name = {"float16": "fp16", "bfloat16": "bf16"}.get(str(dtype).removeprefix("torch."), dtype)
    if name not in _DTYPES:
        raise ArgumentError(f"dtype is {dtype!r}; it must be fp16 or bf16, as partial sums travel")
    return str(name)


def _local(tensor: Any) -> NDArray[Any]:
    """A tensor's elements in this process, also of those that torch.distributed has split, as float32."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    array: NDArray[Any] = tensor.float().cpu().numpy()
    return array


class Capture:
    """A context in which the model is run; see arlab.torch.capture().

    layers    the names of the layers that are captured, which are those of the tensors in the file
    path      the file, once the context has been left without an error
    """

    def __init__(self, layers: dict[str, Any], path: Path, dtype: str, ranks: int | None, group: Any, max_tokens: int | None):
        self.layers = list(layers)
        self.path = path
        self._modules, self._dtype, self._ranks, self._group, self._max_tokens = layers, dtype, ranks, group, max_tokens
        self._rows: dict[str, list[NDArray[Any]]] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Capture:
        self._rows = {name: [] for name in self.layers}
        self._hooks = [module.register_forward_pre_hook(self._keep(name)) for name, module in self._modules.items()]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for hook in self._hooks:
            hook.remove()
        if kind is None:
            self._write()
        self._rows = {}

    def _keep(self, name: str) -> Any:
        def hook(_: Any, arguments: tuple[Any, ...]) -> None:
            if not arguments:
                raise ArgumentError(f"{name} was called without a positional argument, which would be its input")
            room = None if self._max_tokens is None else self._max_tokens - sum(map(len, self._rows[name]))
            if room is None or room > 0:
                x = _local(arguments[0])
                self._rows[name].append(x.reshape(-1, x.shape[-1])[:room])

        return hook

    def _tensors(self) -> dict[str, NDArray[np.uint16]]:
        """This process's inputs: [ranks, tokens, channels] of each layer, ranks being 1 where it is one of them."""
        tensors = {}
        for name, module in self._modules.items():
            if not self._rows[name]:
                raise ArgumentError(f"{name} was not called inside the context; {self.path} is not written")
            sums = partial_sums(np.concatenate(self._rows[name]), _local(module.weight), self._ranks or 1)
            tensors[name] = _bits(sums, self._dtype)
            if self._dtype == "fp16" and (large := np.isfinite(sums) & (np.abs(sums) >= 65520)).any():
                why = f"{large.sum()} partial sums beyond 65504, the largest of fp16"
                raise ArgumentError(f'{name} has {why}; dtype="bf16" holds them')
        return tensors

    def _write(self) -> None:
        tensors = self._tensors() if self._ranks else self._gathered()
        if tensors is None:
            return
        ranks = next(iter(tensors.values())).shape[0]
        metadata = {
            "title": f"partial sums of tensor-parallel inference, {ranks} ranks",
            "shape": "[ranks, tokens, channels]",
            "split": "rank r holds the r-th of N equal parts of each layer's inputs" if self._ranks else "as it was run",
            "bias": "none: it is added once, after the all-reduce",
            "arithmetic": f"each partial sum in float64, rounded to float32, then to {self._dtype}, to nearest even",
        }
        write_whole(self.path, _safetensors(tensors, self._dtype, metadata))

    def _gathered(self) -> dict[str, NDArray[np.uint16]] | None:
        """All ranks' tensors on the first rank of the group, None on others. One that fails lets none wait."""
        from torch import distributed

        mine: Any
        try:
            mine = self._tensors()
        except ValueError as error:
            mine = error
        all_of_them: list[Any] = [None] * distributed.get_world_size(self._group)
        distributed.all_gather_object(all_of_them, mine, group=self._group)
        for rank, each in enumerate(all_of_them):
            if isinstance(each, ValueError):
                raise ArgumentError(f"rank {rank}: {each}")
        shapes = [{name: bits.shape for name, bits in each.items()} for each in all_of_them]
        for rank, each in enumerate(shapes):
            if each != shapes[0]:
                raise ArgumentError(f"rank {rank} ran other layers, or on other tokens, than rank 0; {self.path} is not written")
        if distributed.get_rank(self._group) != 0:
            return None
        return {name: np.concatenate([each[name] for each in all_of_them]) for name in self.layers}


def capture(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    layers: str | Sequence[str] = ROW_PARALLEL,
    ranks: int | None = None,
    dtype: Any = "fp16",
    max_tokens: int | None = None,
    group: Any = None,
) -> Capture:
    """Records the partial sums of row-parallel layers while the model runs, and writes them when the context is left.

    The file is a .safetensors with a tensor [ranks, tokens, channels] for each layer, under the layer's name: for
    `arlab reduce --input`, study files and `arlab.all_reduce`. Tokens of all calls follow each other. No layer's bias is in a
    partial sum: it is added once, after the all-reduce.

    Args:
        model: in which torch.nn.Linear layers have these names. What it computes does not change.
        path: of the file. An existing one is replaced, and only by a whole one.
        layers: patterns of names, as a shell has them; by default "*.o_proj" and "*.down_proj", of Llama and its kin.
        ranks: N, for a model that is whole in this process: rank r holds the r-th of N equal parts of a layer's inputs.
            Without it the model is a rank's share in a run of torch.distributed: each process gives what its layers have,
            and the first writes the file.
        dtype: fp16 or bf16, in which partial sums travel.
        max_tokens: only the first of each layer; by default all.
        group: of torch.distributed, in which the model is split; by default all processes.

    Raises ImportError without PyTorch; ValueError where no Linear has such a name, inputs do not divide by the ranks, or
    the dtype is another one, before anything runs; and, when the context is left, where a layer was not called or its
    partial sums do not fit in fp16.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"arlab.torch.capture needs PyTorch: pip install torch ({error})") from None
    name_of_dtype = _dtype(dtype)
    patterns = [layers] if isinstance(layers, str) else list(layers)
    named = {name: module for name, module in model.named_modules() if any(fnmatch.fnmatchcase(name, p) for p in patterns)}
    found = {name: module for name, module in named.items() if isinstance(module, torch.nn.Linear)}
    if not found:
        linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
        others = f"; it has {', '.join(linear[:8])}{' ...' if len(linear) > 8 else ''}" if linear else "; it has none at all"
        raise ArgumentError(f"no Linear layer of the model is named {' or '.join(patterns)}{others}")
    if max_tokens is not None and max_tokens < 1:
        raise ArgumentError(f"max_tokens is {max_tokens}; it must be at least 1")
    if ranks is None:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            raise ArgumentError("ranks is missing: it may be left out only where torch.distributed is initialized")
    elif ranks < 1:
        raise ArgumentError(f"ranks is {ranks}; it must be at least 1")
    else:
        for name, module in found.items():
            if module.in_features % ranks != 0:
                raise ArgumentError(f"{name}: {module.in_features} inputs do not divide by {ranks} ranks")
    return Capture(found, Path(path), name_of_dtype, ranks, group, max_tokens)
