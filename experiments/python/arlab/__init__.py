"""arlab: compressed collectives. Which bits does every rank end with, and do GPU kernels agree?

    arlab.Group([0, 1, 2, 3]).all_reduce(tensors, codec="qr-q4")      all ranks in this process
    arlab.Communicator.from_environment().all_reduce(tensor)          one process per rank, as under torchrun
    arlab.encode(tensor, "qr-q4"), arlab.decode(...)                  a codec by itself
    arlab.conformance.check(my_all_reduce, world_size=4)              any all-reduce against the reference

Tensors are arrays of NumPy on platform "host" (GPUs emulated on the CPU), and whatever speaks DLPack (PyTorch, CuPy, JAX)
on "cuda" and "rocm", where this build has them: arlab.platforms().
"""

from arlab import conformance

# The rest needs the compiled part; arlab.conformance can do without (with the program instead).
_COMPILED = ("ArgumentError", "Communicator", "Error", "Group", "codecs", "decode", "devices", "encode", "platforms", "wire_bytes")

__all__ = ["conformance", *_COMPILED]


def __getattr__(name):
    if name in _COMPILED:
        from arlab import runtime

        return getattr(runtime, name)
    raise AttributeError(f"module 'arlab' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_COMPILED])
