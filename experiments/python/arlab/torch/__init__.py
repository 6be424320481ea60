"""arlab in PyTorch.

    torch.distributed.init_process_group("cuda:arlab")                        a backend of torch.distributed
    torch.ops.arlab.all_reduce(x, codec="qr-q4")                              operators for torch.compile and CUDA graphs
    model.register_comm_hook(arlab.torch.HookState(codec="int4-g32"), arlab.torch.ddp_hook)    DistributedDataParallel
    arlab.torch.shard_with(model, codec="int8-g128")                          FSDP2
    arlab.torch.capture(model, "partial_sums.safetensors", ranks=4)           what a model would hand to its all-reduces

PyTorch is imported where it is needed; arlab's compiled part is not needed before the first collective.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arlab.torch._capture import ROW_PARALLEL, Capture, capture, partial_sums
    from arlab.torch._operators import all_gather, all_reduce, all_reduce_, all_reduce_tail, all_to_all, reduce_scatter
    from arlab.torch._teams import Options, statistics
    from arlab.torch._training import AllGather, HookState, ReduceScatter, ddp_hook, shard_with

__all__ = [
    "ROW_PARALLEL", "AllGather", "Capture", "HookState", "Options", "ReduceScatter", "all_gather", "all_reduce", "all_reduce_",
    "all_reduce_tail", "all_to_all", "capture", "ddp_hook", "partial_sums", "reduce_scatter", "register", "shard_with", "statistics",
]  # fmt: skip

_WHERE = {
    "_capture": ("ROW_PARALLEL", "Capture", "capture", "partial_sums"),
    "_operators": ("all_gather", "all_reduce", "all_reduce_", "all_reduce_tail", "all_to_all", "reduce_scatter"),
    "_teams": ("Options", "statistics"),
    "_training": ("AllGather", "HookState", "ReduceScatter", "ddp_hook", "shard_with"),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(_importlib.import_module(f"arlab.torch.{_MODULE_OF[name]}"), name)
        globals()[name] = value  # where torch.compile finds it, too
        return value
    raise AttributeError(f"module 'arlab.torch' has no attribute {name!r}")


def _create(about: Any, options: Any) -> Any:
    from arlab.torch import _backend, _operators  # noqa: F401  (torch.ops.arlab is there with the first group)

    return _backend.create(about, options)


def register() -> None:
    """Makes "arlab" a backend of torch.distributed. PyTorch calls it where arlab is installed (the entry point `torch.backends`);
    elsewhere, as with PYTHONPATH, it is called before init_process_group."""
    from torch import distributed

    if distributed.is_available() and not hasattr(distributed.Backend, "ARLAB"):
        distributed.Backend.register_backend("arlab", _create, extended_api=True, devices=["cpu", "cuda"])
