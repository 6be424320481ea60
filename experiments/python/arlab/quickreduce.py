"""QuickReduce's interface on arlab's kernels: a communicator in two steps, with handles as values that anything may carry.

    import arlab.quickreduce as qr

    qr.init(world_size, rank)
    handles = ray.get([...])              # qr.get_comm_handle() of all ranks, in their order, by whatever there is
    qr.set_comm_handles(handles)
    result = qr.allreduce(5, tensor)      # 1: as it is, 2: FP8, 3: Q8, 4: Q6, 5: Q4

and the operators of vLLM, `init_custom_qr` to `qr_destroy`, with `QuickAllReduce`, which reads vLLM's and SGLang's
variables. A tensor is PyTorch's, or on emulated GPUs an array of NumPy, of fp16 or bf16. The bits are those of arlab.all_reduce(like="quickreduce") and, with bf16 cast to fp16,
"quickreduce-vllm".

`python -m arlab.quickreduce [RANKS]` runs QuickReduce's own demonstration: Ray's actors where Ray is installed, else processes.

Sources: README of mk1-project/quickreduce; vllm/distributed/device_communicators/quick_all_reduce.py and
csrc/quickreduce of vLLM;
srt/distributed/device_communicators/quick_all_reduce.py of SGLang.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import numbers
import os
import re
import secrets
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterable, NamedTuple, Sequence

import numpy as np

from arlab import _arlab, runtime
from arlab._arrays import memory_of, numpy_dtype
from arlab._errors import ArgumentError
from arlab._files import parsed_json

__all__ = [
    "LEVELS", "PROFILES", "QuickAllReduce", "QuickReduce", "Settings", "allreduce", "get_comm_handle", "get_rank", "get_world_size", "init",
    "init_custom_qr", "qr_all_reduce", "qr_destroy", "qr_get_handle", "qr_max_size", "qr_open_handles", "set_comm_handles", "settings",
]  # fmt: skip

#: QuickReduce's profiles, and the codec of each; None: values as they are.
PROFILES = {1: None, 2: "qr-fp8", 3: "qr-q8", 4: "qr-q6", 5: "qr-q4"}

#: vLLM's levels, by the name that its variable has; their numbers are their places.
LEVELS = {"FP": None, "INT8": "qr-q8", "INT6": "qr-q6", "INT4": "qr-q4", "INT3": "qr-q3"}
_CODECS = tuple(LEVELS.values())
_OPERATOR_LEVELS = ", ".join(f"{number} ({level})" for number, level in enumerate(LEVELS))

_MAX_BYTES = 1 << 31
_MAX_SECONDS = 86400
_MIB = 1 << 20
#: From which size on vLLM takes QuickReduce, MiB, by dtype and ranks, in the order of LEVELS.
_MIN_MIB = {
    ("fp16", 2): (1, 2, 2, 1, 1), ("fp16", 4): (1, 16, 4, 2, 2), ("fp16", 8): (16, 4, 4, 2, 2),
    ("bf16", 2): (2, 8, 8, 8, 8), ("bf16", 4): (8, 64, 64, 16, 16), ("bf16", 8): (16, 2048, 2048, 2048, 2048),
}  # fmt: skip


class QuickReduce:
    """A rank of 2 to 8, a process each, on one machine.

    Args:
        rank, world_size: this one, and how many.
        device: of the platform; PyTorch's current one, else the rank modulo the number of devices.
        platform: "cuda", "rocm" or "host" (emulated); the first of these that was built.
        timeout_s: how long a rank waits for another in a call; meeting_timeout_s: and in open().
        max_bytes: most bytes of a tensor; buffers do not grow with it.

    Raises ValueError for other arguments.
    """

    def __init__(
        self, rank: int, world_size: int, *, device: int | None = None, platform: str | None = None, timeout_s: float = 10,
        meeting_timeout_s: float = 60, max_bytes: int = _MAX_BYTES,
    ):  # fmt: skip
        if not (_is_integer(world_size, 2, 8) and _is_integer(rank, 0, world_size - 1)):
            raise ArgumentError(f"rank {_said(rank)} of {_said(world_size)}: allowed are 2 to 8 ranks, counted from 0")
        if not _is_integer(max_bytes, 1, _MAX_BYTES):
            raise ArgumentError(f"max_bytes {_said(max_bytes)}: allowed are 1 to {_MAX_BYTES} bytes")
        for name, seconds in (("timeout_s", timeout_s), ("meeting_timeout_s", meeting_timeout_s)):
            if not (isinstance(seconds, numbers.Real) and 0 < seconds <= _MAX_SECONDS):
                raise ArgumentError(f"{name} {_said(seconds)}: allowed are seconds above 0, up to {_MAX_SECONDS}")
        built = runtime.platforms()
        self.platform = runtime.usual_platform() if platform is None else platform
        if self.platform not in list(built):
            raise ArgumentError(f"platform {_said(platform)}: allowed are {', '.join(built)}")
        self.device = self._usual_device(rank) if device is None else device
        if not _is_integer(self.device, 0, runtime.devices(self.platform) - 1):
            raise ArgumentError(f"device {_said(device)}: allowed are 0 to {runtime.devices(self.platform) - 1}")
        self.rank, self.world_size, self.max_bytes = int(rank), int(world_size), int(max_bytes)
        self._timeouts = float(timeout_s), float(meeting_timeout_s)
        self._communicator: runtime.Communicator | None = None
        about = {"arlab": 1, "rank": self.rank, "ranks": self.world_size, "boot": _boot(), "meeting": secrets.token_hex(16)}
        self.handle = json.dumps(about).encode()

    def _usual_device(self, rank: int) -> int:
        torch = sys.modules.get("torch")
        if self.platform != "host" and torch is not None:
            return int(torch.cuda.current_device())
        return rank % max(runtime.devices(self.platform), 1)

    def open(self, handles: Sequence[Any]) -> None:
        """Meets the other ranks, whose handles (bytes, or arrays of bytes) are given in their order, this one's among them.

        Raises ValueError for what is no such list, Error on all ranks when one does not come, cannot take part, or was given other handles.
        """
        if self._communicator is not None:
            raise ArgumentError("the handles were given already")
        if not isinstance(handles, Iterable):
            raise ArgumentError(f"the handles are {type(handles).__name__}: allowed is a list of them, a rank's after the other's")
        given = [_bytes(handle, rank) for rank, handle in enumerate(itertools.islice(handles, self.world_size + 1))]
        if len(given) != self.world_size:
            raise ArgumentError(f"{'more' if len(given) > self.world_size else len(given)} handles: allowed are those of the {self.world_size} ranks, in their order")
        abouts = [_about(handle, rank, self.world_size) for rank, handle in enumerate(given)]
        if given[self.rank] != self.handle:
            raise ArgumentError(f"the handle of rank {self.rank} is not the one that this process has")
        timeout_s, meeting_timeout_s = self._timeouts
        made = _arlab.from_meeting(
            self.platform, self.device, 0, 0, 0, timeout_s, meeting_timeout_s, self.rank, self.world_size, abouts[0]["meeting"],
            hashlib.sha256(b"".join(given)).digest(),
        )  # fmt: skip
        self._communicator = runtime.Communicator(made, self.platform)

    def all_reduce(self, tensor: Any, codec: str | None, *, out: Any = None, cast_to_fp16: bool = False) -> Any:
        """The sum over ranks, by two_shot, into `out` [in place], which is returned. `codec`: None sends values as they are;
        `cast_to_fp16`: a bf16 tensor is fp16 from end to end, what is too large for that the largest."""
        if self._communicator is None:
            raise ArgumentError("the handles of the other ranks have not been given yet")
        output = tensor if out is None else out
        memory = memory_of(tensor, "the tensor")
        if memory.bytes > self.max_bytes:
            raise ArgumentError(f"the tensor has {memory.bytes} bytes: allowed are {self.max_bytes}")
        if not cast_to_fp16 or memory.dtype != "bf16":
            return self._communicator.all_reduce(tensor, algorithm="two_shot", codec=codec, out=out)
        target = memory_of(output, "the output", writable=True)
        if (tuple(target.shape), target.dtype, target.platform) != (tuple(memory.shape), memory.dtype, memory.platform):
            raise ArgumentError(
                f"the output is {target.dtype} of shape {list(target.shape)} on {target.platform}: needed is"
                f" {memory.dtype} of shape {list(memory.shape)} on {memory.platform}, as the tensor is"
            )
        half = _as_fp16(tensor)
        self._communicator.all_reduce(half, algorithm="two_shot", codec=codec)
        if isinstance(output, np.ndarray):
            output[...] = half.astype(np.float32).astype(numpy_dtype("bf16"))
        else:
            output.copy_(half)
        return output


def _is_integer(value: Any, low: int, high: int) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and low <= value <= high


def _said(value: Any) -> str:
    """A value as it may stand in a line."""
    text = ascii(value) if isinstance(value, (str, int, float, np.generic, type(None))) and not _is_huge(value) else f"of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_huge(value: Any) -> bool:
    """An integer of more digits than Python makes text of."""
    return isinstance(value, int) and value.bit_length() > 1000


def _boot() -> str:
    """Returns the id that all processes of one machine share since it started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _bytes(handle: Any, rank: int) -> bytes:
    if isinstance(handle, (bytes, bytearray)):
        return bytes(handle)
    array = None
    with suppress(TypeError, ValueError, RecursionError):  # lists of other things than numbers
        array = np.asarray(handle.cpu() if hasattr(handle, "cpu") else handle)
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        raise ArgumentError(f"the handle of rank {rank} is {type(handle).__name__}: allowed are bytes, or arrays of bytes")
    return array.tobytes()


def _about(handle: bytes, rank: int, ranks: int) -> dict[str, Any]:
    """Returns the contents of a handle. It comes from outside: nothing of it is believed before it is looked at."""
    where = f"the handle at place {rank}"
    about = None
    with suppress(ValueError):
        about = parsed_json(handle) if len(handle) <= 1000 else None
    kinds = {"arlab": int, "rank": int, "ranks": int, "boot": str, "meeting": str}
    is_one = isinstance(about, dict) and all(type(about.get(name)) is kind for name, kind in kinds.items())
    if not is_one or about["arlab"] != 1 or not re.fullmatch("[0-9a-f]{32}", about["meeting"]):
        raise ArgumentError(f"{where} is none: allowed is what get_comm_handle() of that rank has returned")
    if (about["rank"], about["ranks"]) != (rank, ranks):
        raise ArgumentError(f"{where} is of rank {_said(about['rank'])} of {_said(about['ranks'])}: allowed is that of rank {rank} of {ranks}")
    if about["boot"] != _boot():
        raise ArgumentError(f"{where} is of another machine: all ranks must be on one")
    return dict(about)


def _as_fp16(tensor: Any) -> Any:
    if isinstance(tensor, np.ndarray):
        wide = tensor.astype(np.float32)
        return np.where(np.isinf(wide), wide, np.clip(wide, -65504, 65504)).astype(np.float16)
    wide = tensor.float()
    infinite = wide.isinf()
    return wide.clamp(-65504, 65504).masked_fill_(infinite & (wide > 0), float("inf")).masked_fill_(infinite & (wide < 0), -float("inf")).half()


# ---------------------------------------------------------------- QuickReduce's functions: a communicator per process

_own: QuickReduce | None = None


def _of_process() -> QuickReduce:
    if _own is None:
        raise ArgumentError("init(world_size, rank) comes first")
    return _own


def init(world_size: int, rank: int, **options: Any) -> None:
    """Makes this process rank `rank` of `world_size`; `options` are QuickReduce's. Raises ValueError for other
    numbers."""
    global _own
    _own = QuickReduce(rank, world_size, **options)


def get_world_size() -> int:
    return _of_process().world_size


def get_rank() -> int:
    return _of_process().rank


def get_comm_handle() -> bytes:
    """Returns the bytes that the other ranks need of this one."""
    return _of_process().handle


def set_comm_handles(comm_handles: Sequence[Any]) -> None:
    """Takes the handles of all ranks, in their order. All ranks call it; see QuickReduce.open()."""
    _of_process().open(comm_handles)


def allreduce(profile: int, tensor: Any) -> Any:
    """The sum over ranks, in place, which is returned. `profile`: one of PROFILES."""
    if not _is_integer(profile, min(PROFILES), max(PROFILES)):
        raise ArgumentError(f"profile {_said(profile)}: allowed are 1 (as it is), 2 (FP8), 3 (Q8), 4 (Q6), 5 (Q4)")
    return _of_process().all_reduce(tensor, PROFILES[profile])


# ---------------------------------------------------------------- vLLM's operators: communicators by number

_known: dict[int, QuickReduce] = {}
_numbers = itertools.count(1)


def _numbered(fa: int) -> QuickReduce:
    if not _is_integer(fa, 1, sys.maxsize) or fa not in _known:
        raise ArgumentError(f"{_said(fa)} is no communicator: allowed is what init_custom_qr() has returned, until qr_destroy()")
    return _known[fa]


def init_custom_qr(rank: int, world_size: int, qr_max_size: int | None = None, **options: Any) -> int:
    """Returns the number of a new communicator. `qr_max_size`: most bytes of a tensor [2 GiB]; larger ones are
    refused."""
    if qr_max_size is not None and not _is_integer(qr_max_size, 1, _MAX_BYTES):
        raise ArgumentError(f"qr_max_size {_said(qr_max_size)}: allowed are 1 to {_MAX_BYTES} bytes")
    made = QuickReduce(rank, world_size, **({} if qr_max_size is None else {"max_bytes": qr_max_size}), **options)
    number = next(_numbers)
    _known[number] = made
    return number


def qr_get_handle(fa: int) -> Any:
    """Returns the handle as a tensor of bytes, PyTorch's, or NumPy's without it."""
    handle = np.frombuffer(_numbered(fa).handle, np.uint8).copy()
    torch = sys.modules.get("torch")
    return handle if torch is None else torch.from_numpy(handle)


def qr_open_handles(fa: int, handles: Sequence[Any]) -> None:
    """As set_comm_handles."""
    _numbered(fa).open(handles)


def qr_all_reduce(fa: int, inp: Any, out: Any, quant_level: int, cast_bf2half: bool = False) -> None:
    """The sum over ranks of `inp` into `out`. `quant_level`: 0 (as it is), 1 (INT8), 2 (INT6), 3 (INT4), 4 (INT3, on 2
    ranks only)."""
    if not _is_integer(quant_level, 0, len(_CODECS) - 1):
        raise ArgumentError(f"quant_level {_said(quant_level)}: allowed are {_OPERATOR_LEVELS}")
    if cast_bf2half not in (True, False):
        raise ArgumentError(f"cast_bf2half {_said(cast_bf2half)}: allowed are True and False")
    reduce, codec = _numbered(fa), _CODECS[quant_level]
    if codec == "qr-q3" and reduce.world_size != 2:
        raise ArgumentError(f"quant_level 4 (INT3) on {reduce.world_size} ranks: allowed are 2 ranks")
    reduce.all_reduce(inp, codec, out=out, cast_to_fp16=cast_bf2half)


def qr_max_size() -> int:
    """Most bytes of a tensor."""
    return _MAX_BYTES


def qr_destroy(fa: int) -> None:
    _numbered(fa)
    del _known[fa]


# ---------------------------------------------------------------- vLLM's and SGLang's variables


class Settings(NamedTuple):
    """The settings by the variables."""

    level: str | None  # one of LEVELS; None: QuickReduce is not to be used
    cast_bf16_to_fp16: bool
    max_bytes: int
    min_bytes: int | None  # least size of a tensor for QuickReduce; None: as vLLM's table has it
    quantization_min_bytes: int  # a smaller tensor is sent as level FP

    def codec_of(self, tensor_bytes: int) -> str | None:
        """Returns the codec for a tensor of so many bytes; None: uncompressed."""
        return None if self.level is None or tensor_bytes < self.quantization_min_bytes else LEVELS[self.level]


class _Variable(NamedTuple):
    """How a variable is read: None where its text is not allowed."""

    read: Callable[[str], Any]
    allowed: str


def _level(*levels: str) -> _Variable:
    return _Variable(lambda text: text if text in levels else None, ", ".join(levels))


def _size(low: int, high: int, unit: int, of_zero: int = 0) -> _Variable:
    def read(text: str) -> int | None:
        digits = text.lstrip("0") or "0"
        is_short = re.fullmatch("[0-9]+", text) is not None and len(digits) <= len(str(high))
        return (int(digits) * unit or of_zero) if is_short and low <= int(digits) <= high else None

    return _Variable(read, f"{low} to {high}")


_BOOLEANS = {"0": False, "false": False, "1": True, "true": True}
_CAST = _Variable(lambda text: _BOOLEANS.get(text.lower()), "0, 1, True, False")
_VLLM = "VLLM_ROCM_QUICK_REDUCE_"
_VARIABLES = {
    _VLLM: {
        "QUANTIZATION": _level(*LEVELS, "NONE"), "CAST_BF16_TO_FP16": _CAST, "MAX_SIZE_BYTES_MB": _size(1, 2048, _MIB),
        "MIN_SIZE_BYTES_MB": _size(0, 2048, _MIB), "QUANTIZATION_MIN_SIZE_KB": _size(0, 2048 << 10, 1 << 10),
    },
    "ROCM_QUICK_REDUCE_": {
        "QUANTIZATION": _level("FP", "INT8", "INT6", "INT4", "NONE"), "CAST_BF16_TO_FP16": _CAST,
        "MAX_SIZE_BYTES_MB": _size(0, 2048, _MIB, of_zero=_MAX_BYTES),
    },
}  # fmt: skip


def _read(environment: Any, prefix: str, known: dict[str, _Variable]) -> dict[str, Any]:
    """The values of the variables with a prefix, by the rest of their names. An empty variable counts as unset."""
    values = {}
    for variable in sorted(each for each in environment if isinstance(each, str) and each.startswith(prefix)):
        name, text = variable.removeprefix(prefix), environment[variable]
        if not text:
            continue
        if name not in known:
            names = ", ".join(prefix + each for each in known)
            raise ArgumentError(f"unknown variable {_said(variable)}: known are {names}")
        values[name] = known[name].read(text) if isinstance(text, str) else None
        if values[name] is None:
            raise ArgumentError(f"{variable} is {_said(text)}: allowed are {known[name].allowed}")
    return values


def settings(environment: Any = os.environ) -> Settings:
    """vLLM's VLLM_ROCM_QUICK_REDUCE_QUANTIZATION [NONE], ..._CAST_BF16_TO_FP16 [1], ..._MAX_SIZE_BYTES_MB [2048],
    ..._MIN_SIZE_BYTES_MB [vLLM's table] and ..._QUANTIZATION_MIN_SIZE_KB [0]; the first three are SGLang's, too, as
    ROCM_QUICK_REDUCE_..., where a largest size of 0 is 2048. Raises ValueError for other values, for an unknown variable
    of either prefix, and for two that contradict each other."""
    vllm, sglang = (_read(environment, prefix, known) for prefix, known in _VARIABLES.items())
    for name in vllm.keys() & sglang.keys():
        if vllm[name] != sglang[name]:
            both = f"{_VLLM}{name} and ROCM_QUICK_REDUCE_{name}"
            raise ArgumentError(f"{both} contradict each other: allowed is one of them, or the same value")
    said = {**sglang, **vllm}
    level, cast = said.get("QUANTIZATION", "NONE"), said.get("CAST_BF16_TO_FP16", True)
    largest, smallest = said.get("MAX_SIZE_BYTES_MB", _MAX_BYTES), said.get("MIN_SIZE_BYTES_MB")
    if smallest is not None and smallest > largest:
        sizes = f"{smallest // _MIB}: allowed are 0 to {largest // _MIB}, the largest size"
        raise ArgumentError(f"{_VLLM}MIN_SIZE_BYTES_MB is {sizes}")
    quantized = said.get("QUANTIZATION_MIN_SIZE_KB", 0)
    return Settings(None if level == "NONE" else level, cast, largest, smallest, quantized)


class QuickAllReduce:
    """vLLM's choice of when to use QuickReduce, on arlab's kernels. `gather` turns bytes of this rank into those of all
    ranks; the other arguments are QuickReduce's. `disabled` where the variables say NONE, and with a warning where they
    say INT3 on more than 2 ranks."""

    def __init__(self, gather: Callable[[bytes], Sequence[bytes]], rank: int, world_size: int, **options: Any):
        self.settings = settings()
        self._reduce = QuickReduce(rank, world_size, **options)
        if self.settings.level == "INT3" and world_size != 2:
            said = f"QuickReduce's level INT3 is for 2 ranks, not {world_size}: QuickReduce is not used"
            warnings.warn(said, stacklevel=2)
            self.settings = self.settings._replace(level=None)
        self.disabled = self.settings.level is None
        if not self.disabled:
            self._reduce.open(gather(self._reduce.handle))

    def should_quick_allreduce(self, inp: Any) -> bool:
        """Returns whether vLLM would take QuickReduce for the tensor: fp16 or bf16, on 2, 4 or 8 ranks, a multiple of
        16 bytes, and neither too small nor too large."""
        if self.settings.level is None:
            return False
        memory = memory_of(inp, "inp")
        # Kernels see fp16 after a cast.
        dtype = "fp16" if memory.dtype == "bf16" and self.settings.cast_bf16_to_fp16 else memory.dtype
        table = _MIN_MIB.get((dtype, self._reduce.world_size))
        if table is None or memory.bytes % 16 != 0:
            return False
        smallest = self.settings.min_bytes
        if smallest is None:
            smallest = table[list(LEVELS).index(self.settings.level)] * _MIB
        return smallest <= memory.bytes <= self.settings.max_bytes

    def quick_all_reduce(self, inp: Any, *, out: Any = None) -> Any:
        """The sum over ranks into `out` [a new tensor], which is returned. A tensor smaller than quantization_min_bytes
        is sent as it is."""
        if self.settings.level is None:
            raise ArgumentError("QuickReduce is not to be used: its level is NONE, or INT3 on more than 2 ranks")
        memory = memory_of(inp, "inp")
        if out is None:
            out = np.empty_like(inp) if isinstance(inp, np.ndarray) else inp.new_empty(inp.shape)
        codec, cast = self.settings.codec_of(memory.bytes), self.settings.cast_bf16_to_fp16
        return self._reduce.all_reduce(inp, codec, out=out, cast_to_fp16=cast)


# ---------------------------------------------------------------- QuickReduce's demonstration


class Demo:
    """A rank of the demonstration in QuickReduce's README."""

    def __init__(self, world_size: int, rank: int):
        init(world_size, rank)

    def get_comm_handle(self) -> bytes:
        return get_comm_handle()

    def set_comm_handles(self, comm_handles: Sequence[bytes]) -> None:
        set_comm_handles(comm_handles)

    def allreduce_demo(self) -> str:
        tensor: Any = np.ones(1024, np.float16)
        if _of_process().platform != "host":
            import torch

            tensor = torch.ones(1024, dtype=torch.float16, device="cuda")
        result = allreduce(1, tensor)
        if not (result == get_world_size()).all():
            raise RuntimeError(f"rank {get_rank()} has {result}")
        return f"Demo {get_rank()} got result {result.tolist()[:4]} ..."


def _served(pipe: Any, world_size: int, rank: int) -> None:
    """A Demo in a process of its own: calls come, results go."""
    demo = Demo(world_size, rank)
    while (call := pipe.recv()) is not None:
        pipe.send(getattr(demo, call[0])(*call[1:]))


def main(ranks: int) -> None:
    """The demonstration: Ray's actors where Ray is installed, else processes."""
    try:
        import ray
    except ImportError:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        pipes = []
        for rank in range(ranks):
            here, there = context.Pipe()
            context.Process(target=_served, args=(there, ranks, rank), daemon=True).start()
            pipes.append(here)

        def of_all(*call: Any) -> list[Any]:
            for pipe in pipes:
                pipe.send(call)
            return [pipe.recv() for pipe in pipes]
    else:
        on_gpu = runtime.usual_platform() != "host"
        ray.init(num_gpus=ranks if on_gpu else 0, num_cpus=ranks, log_to_driver=False)
        actors = [ray.remote(num_gpus=int(on_gpu))(Demo).remote(ranks, rank) for rank in range(ranks)]

        def of_all(*call: Any) -> list[Any]:
            return list(ray.get([getattr(actor, call[0]).remote(*call[1:]) for actor in actors]))

    of_all("set_comm_handles", of_all("get_comm_handle"))
    print("\n".join(of_all("allreduce_demo")))


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) > 1 or not re.fullmatch("[2-8]", "".join(words) or "4"):
        print("arlab.quickreduce: usage: python -m arlab.quickreduce [RANKS], which are 2 to 8", file=sys.stderr)
        sys.exit(2)
    main(int(words[0]) if words else 4)
