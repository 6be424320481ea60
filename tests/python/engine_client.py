"""NCCL as serving engines call it: by ctypes, with the types that vLLM's and SGLang's pynccl_wrapper.py give. Two ranks, a process each.

ENGINES     what their wrappers look up (vLLM 0.33.0 and SGLang 0.5.23); a library without one of them is refused there
"""

import ctypes
import multiprocessing

import numpy as np

BOTH = (
    "ncclGetErrorString ncclGetVersion ncclGetUniqueId ncclCommInitRank ncclAllReduce ncclReduce ncclAllGather ncclReduceScatter ncclSend"
    " ncclRecv ncclBroadcast ncclCommDestroy ncclGroupStart ncclGroupEnd ncclCommWindowRegister ncclCommWindowDeregister"
).split()
ENGINES = {
    "vllm": [
        *BOTH,
        "ncclGetLastError",
        "ncclCommAbort",
        "ncclCommSuspend",
        "ncclCommResume",
        "ncclCommQueryProperties",
    ],
    "sglang": [*BOTH, "ncclCommInitRankConfig", "ncclMemAlloc", "ncclMemFree"],
}
HALF, SUM = 6, 0


def some_tensors():
    """1 MiB of float16 for either rank."""
    return [np.sin(np.arange(1 << 19) * (1.25 + rank)) for rank in range(2)]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def library(file):
    lib = ctypes.CDLL(str(file))
    lib.ncclGetErrorString.restype = ctypes.c_char_p
    lib.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
    lib.ncclAllReduce.argtypes = (
        [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_int, ctypes.c_int] + [ctypes.c_void_p] * 2
    )
    lib.ncclCommDestroy.argtypes = [ctypes.c_void_p]
    return lib


def check(lib, result):
    if result != 0:
        raise RuntimeError(f"NCCL error: {lib.ncclGetErrorString(result).decode()}")


def _run(file, identity, rank, given, results):
    lib = library(file)
    comm = ctypes.c_void_p()
    check(lib, lib.ncclCommInitRank(ctypes.byref(comm), 2, UniqueId.from_buffer_copy(identity), rank))
    values = given.copy()
    check(lib, lib.ncclAllReduce(values.ctypes.data, values.ctypes.data, values.size, HALF, SUM, comm, None))
    check(lib, lib.ncclCommDestroy(comm))
    results.put((rank, values))


def all_reduce(file, tensors):
    """Returns the results of ranks 0 and 1, for tensors that become float16."""
    lib, identity = library(file), UniqueId()
    check(lib, lib.ncclGetUniqueId(ctypes.byref(identity)))
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    ranks = [
        fork.Process(target=_run, args=(file, bytes(identity), rank, np.float16(given), results))
        for rank, given in enumerate(tensors)
    ]
    for rank in ranks:
        rank.start()
    found = dict(results.get(timeout=60) for _ in ranks)
    for rank in ranks:
        rank.join(60)
    return [found[rank] for rank in range(2)]
