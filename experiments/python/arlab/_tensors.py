"""Tensors of files that others have written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from arlab import _arlab
from arlab._arrays import as_given
from arlab._errors import ArgumentError
from arlab._files import read_whole
from arlab._tables import first_line

__all__ = ["read_tensor"]


def read_tensor(file: str | os.PathLike[str], tensor: str = "") -> Any:
    """A tensor of a file, as an array of NumPy.

        arlab.read_tensor("model.safetensors", "model.layers.0.mlp.down_proj.weight")
        arlab.quantize(arlab.read_tensor("model.gguf", "blk.0.ffn_down.weight"), "int4-g128")

    Args:
        file: .npy; .safetensors, of which fp8, fp4 and int8 weights are dequantized as the config.json beside it says; a folder of
            such files; .gguf of any type; .pt, .pth or .bin of PyTorch, where that is installed (weights only: no code is run).
        tensor: its name, in files that have names. By default the only one.

    Returns an array of the file's shape: float16, bfloat16 (of ml_dtypes) or float32 as it is, float32 where it was quantized.
    Raises ArgumentError (a ValueError) for what cannot be read: the file, what is wrong, what is allowed.
    """
    path = os.fspath(file)
    if Path(path).suffix in (".pt", ".pth", ".bin"):
        return _of_torch(path, tensor)
    try:
        return as_given(*_arlab.read_tensor(path, tensor), like=None)
    except ArgumentError as error:
        # gguf's reader believes what a file claims, so it gets only files that were read but for the type of a tensor.
        if " is of type IQ" not in str(error) or (found := _of_gguf(path, tensor)) is None:
            raise
        return found


def _of_gguf(path: str, name: str) -> np.ndarray | None:
    """A tensor of a type that gguf decodes and the compiled part does not; None where gguf cannot, either."""
    try:
        import gguf

        found = [each for each in gguf.GGUFReader(path).tensors if each.name == name or not name]
        if len(found) != 1:
            return None
        values = gguf.dequantize(found[0].data, found[0].tensor_type)
        return np.array(values, np.float32).reshape([int(extent) for extent in reversed(found[0].shape)])
    except Exception:  # the compiled part has said what is wrong
        return None


def _of_torch(path: str, name: str) -> np.ndarray:
    try:
        import torch
    except ImportError:
        raise ArgumentError(f"{path}: files of PyTorch need the package torch") from None
    import io

    try:
        loaded = torch.load(io.BytesIO(read_whole(path)), map_location="cpu", weights_only=True)
    except Exception as error:  # from files, archives, pickles and tensors
        raise ArgumentError(f"{path}: it cannot be read as tensors of PyTorch: {first_line(error)}") from None
    tensors = {"": loaded} if isinstance(loaded, torch.Tensor) else _named(loaded, "")
    if not name and len(tensors) == 1:
        name = next(iter(tensors))
    if name not in tensors:
        raise ArgumentError(f"{path}: no tensor {name!r}: {_arlab.instead_of(name, list(tensors))}")
    value = tensors[name].detach().contiguous()
    kinds = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    if value.dtype not in kinds:
        raise ArgumentError(f"{path}: tensor {name!r} is of {value.dtype}: allowed are float16, bfloat16 and float32")
    return as_given(value.view(-1).view(torch.uint8).numpy(), kinds[value.dtype], tuple(value.shape), None)


def _named(loaded: Any, before: str) -> dict[str, Any]:
    """The tensors of dictionaries in dictionaries, as a checkpoint of a training has them: {"model": {"a.weight": ...}}."""
    found: dict[str, Any] = {}
    for key, value in loaded.items() if isinstance(loaded, dict) else ():
        if isinstance(value, dict):
            found |= _named(value, f"{before}{key}.")
        elif hasattr(value, "is_contiguous"):
            found[f"{before}{key}"] = value
    return found
