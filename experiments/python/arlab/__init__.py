"""arlab: compressed collectives. Which bits does every rank end with, how long does it take, and do GPU kernels agree?

    arlab.all_reduce(tensors, algorithm="two_shot", codec="qr-q4")    the bit-exact reference, with error figures
    arlab.Ring(own="exact"), arlab.Hierarchical(group_size=4)         algorithms with options: they go wherever an algorithm goes
    arlab.encode(tensor, "qr-q4"), arlab.decode(...)                  a codec by itself; arlab.quantize(tensor, "qr-q4") is both
    arlab.read_tensor("model.gguf", "blk.0.attn_q.weight")            a tensor of .npy, .safetensors, .gguf and PyTorch's files
    @arlab.codec(...), @arlab.algorithm(...)                          codecs and algorithms of your own
    arlab.simulate(topology="mi300x-8", algorithm=..., ...)           how long
    arlab.select(...), arlab.study("study.toml", out=...)             which is best; many at once
    arlab.Group([0, 1, 2, 3]).all_reduce(tensors, codec="qr-q4")      kernels, all ranks in this process
    arlab.Communicator.from_environment().all_reduce(tensor)          kernels, one process per rank, as under torchrun
    arlab.conformance.check(my_all_reduce, world_size=4)              any all-reduce against the reference
    arlab.models.perplexity(text="text.txt", ranks=4, codec="qr-q4")  what compression does to a language model
    arlab.torch.capture(model, "sums.safetensors", ranks=4)           what a PyTorch model would hand to its all-reduces
    arlab.models.time("llama-3-8b", topology="a100-8", codec=...)     time to first token, per output token, of a whole model
    arlab.statistics.summarize(results, "codec", "sqnr_db")           medians, quartiles and bootstrap intervals

Tensors are arrays of NumPy (bf16: ml_dtypes.bfloat16) or whatever speaks DLPack (PyTorch, CuPy, JAX). What cannot be done is
an arlab.Error, an argument that is wrong an arlab.ArgumentError, which is a ValueError, too.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arlab import conformance
    from arlab._errors import ArgumentError, Error
    from arlab._codecs import Codebook, Codecs, Context, codec, codec_from_header, codec_info, codecs, decode, encode, quantize, wire_bytes
    from arlab.collectives import CodecState, Sum, all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
    from arlab._tensors import read_tensor
    from arlab._tails import Tail, TailResult
    from arlab.figures.pages import report
    from arlab.runtime import Communicator, Group, Tailed, devices, platforms
    from arlab.schedules import Algorithm, Schedule, ScheduleBuilder, algorithm, algorithms, schedule
    from arlab.simulation import check_codec, flows, import_topology, select, simulate, study, sweep, topologies, topology, vectors

__all__ = [
    "Algorithm", "ArgumentError", "Codebook", "CodecState", "Codecs", "Communicator", "Context", "Error", "Group", "Schedule", "ScheduleBuilder", "Sum", "Tail", "TailResult", "Tailed", "algorithm", "algorithms", "all_gather",
    "all_reduce", "all_to_all", "broadcast", "check_codec", "codec", "codec_from_header", "codec_info", "codecs", "conformance", "decode",
    "devices", "encode", "flows", "import_topology", "platforms", "quantize", "read_tensor", "reduce_scatter", "report", "schedule", "select", "simulate", "study", "sweep", "topologies",
    "topology", "vectors", "wire_bytes",
]  # fmt: skip

# Where a name is. All but report and arlab.figures needs the compiled part.
_WHERE = {
    "_errors": ("ArgumentError", "Error"),
    "_codecs": ("Codebook", "Codecs", "Context", "codec", "codec_from_header", "codec_info", "codecs", "decode", "encode", "quantize", "wire_bytes"),
    "_tensors": ("read_tensor",),
    "_tails": ("Tail", "TailResult"),
    "collectives": ("CodecState", "Sum", "all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"),
    "figures.pages": ("report",),
    "runtime": ("Communicator", "Group", "Tailed", "devices", "platforms"),
    "schedules": ("Algorithm", "Schedule", "ScheduleBuilder", "algorithm", "algorithms", "schedule"),
    "simulation": ("check_codec", "flows", "import_topology", "select", "simulate", "study", "sweep", "topologies", "topology", "vectors"),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


_SUBMODULES = ("conformance", "fetch", "figures", "models", "statistics", "torch")


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(_importlib.import_module(f"arlab.{_MODULE_OF[name]}"), name)
    if name in _SUBMODULES:
        return _importlib.import_module(f"arlab.{name}")
    if name == "__version__":
        return getattr(_importlib.import_module("arlab._arlab"), name)
    if name[:1].isupper():
        from arlab import schedules

        if name in schedules.class_names():
            return schedules.class_of(name)
    raise AttributeError(f"module 'arlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, "__version__", *(name for name in globals() if name.startswith("__"))})
