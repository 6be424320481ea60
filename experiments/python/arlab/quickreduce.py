"""QuickReduce's interface on arlab's kernels: a communicator in two steps, with handles as values that anything may carry.

    import arlab.quickreduce as qr

    qr.init(world_size, rank)
    handles = ray.get([...])              # qr.get_comm_handle() of all ranks, in their order, by whatever there is
    qr.set_comm_handles(handles)
    result = qr.allreduce(5, tensor)      # 1: as it is, 2: FP8, 3: Q8, 4: Q6, 5: Q4

and the operators of vLLM, `init_custom_qr` to `qr_destroy`, with `QuickAllReduce`, which reads vLLM's variables. A tensor is PyTorch's, or
on emulated GPUs an array of NumPy, of fp16 or bf16. The bits are those of arlab.all_reduce(like="quickreduce") and, with bf16 cast to fp16,
"quickreduce-vllm".

`python -m arlab.quickreduce [RANKS]` runs QuickReduce's own demonstration: Ray's actors where Ray is installed, else processes.

Sources: README of mk1-project/quickreduce; vllm/distributed/device_communicators/quick_all_reduce.py and csrc/quickreduce of vLLM.
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
LEVELS = {"FP": None, "INT8": "qr-q8", "INT6": "qr-q6", "INT4": "qr-q4"}
_CODECS = tuple(LEVELS.values())

_MAX_BYTES = 1 << 31
_MAX_SECONDS = 86400
_MIB = 1 << 20
#: From which size on vLLM takes QuickReduce, MiB, by dtype and ranks, in the order of LEVELS.
_MIN_MIB = {
    ("fp16", 2): (1, 2, 2, 1), ("fp16", 4): (1, 16, 4, 2), ("fp16", 8): (16, 4, 4, 2),
    ("bf16", 2): (2, 8, 8, 8), ("bf16", 4): (8, 64, 64, 16), ("bf16", 8): (16, 2048, 2048, 2048),
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
    """What all processes of one machine share since it started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _bytes(handle: Any, rank: int) -> bytes:
    if isinstance(handle, (bytes, bytearray)):
        return bytes(handle)
    array = None
    with suppress(TypeError, ValueError, RecursionError):  # of lists that are none of numbers
        array = np.asarray(handle.cpu() if hasattr(handle, "cpu") else handle)
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        raise ArgumentError(f"the handle of rank {rank} is {type(handle).__name__}: allowed are bytes, or arrays of bytes")
    return array.tobytes()


def _about(handle: bytes, rank: int, ranks: int) -> dict[str, Any]:
    """What a handle says. It comes from outside: nothing of it is believed before it is looked at."""
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
    """This process is rank `rank` of `world_size`; `options` are QuickReduce's. Raises ValueError for other numbers."""
    global _own
    _own = QuickReduce(rank, world_size, **options)


def get_world_size() -> int:
    return _of_process().world_size


def get_rank() -> int:
    return _of_process().rank


def get_comm_handle() -> bytes:
    """What the other ranks need of this one."""
    return _of_process().handle


def set_comm_handles(comm_handles: Sequence[Any]) -> None:
    """The handles of all ranks, in their order. All ranks call it; see QuickReduce.open()."""
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
    """The number of a new communicator. `qr_max_size`: most bytes of a tensor [2 GiB]; larger ones are refused."""
    if qr_max_size is not None and not _is_integer(qr_max_size, 1, _MAX_BYTES):
        raise ArgumentError(f"qr_max_size {_said(qr_max_size)}: allowed are 1 to {_MAX_BYTES} bytes")
    made = QuickReduce(rank, world_size, **({} if qr_max_size is None else {"max_bytes": qr_max_size}), **options)
    number = next(_numbers)
    _known[number] = made
    return number


def qr_get_handle(fa: int) -> Any:
    """The handle as bytes of a tensor of PyTorch's, or of NumPy's without it."""
    handle = np.frombuffer(_numbered(fa).handle, np.uint8).copy()
    torch = sys.modules.get("torch")
    return handle if torch is None else torch.from_numpy(handle)


def qr_open_handles(fa: int, handles: Sequence[Any]) -> None:
    """As set_comm_handles."""
    _numbered(fa).open(handles)


def qr_all_reduce(fa: int, inp: Any, out: Any, quant_level: int, cast_bf2half: bool = False) -> None:
    """The sum over ranks of `inp` into `out`. `quant_level`: 0 (as it is), 1 (INT8), 2 (INT6), 3 (INT4)."""
    if not _is_integer(quant_level, 0, len(_CODECS) - 1):
        raise ArgumentError(f"quant_level {_said(quant_level)}: allowed are 0 (FP), 1 (INT8), 2 (INT6), 3 (INT4)")
    if cast_bf2half not in (True, False):
        raise ArgumentError(f"cast_bf2half {_said(cast_bf2half)}: allowed are True and False")
    _numbered(fa).all_reduce(inp, _CODECS[quant_level], out=out, cast_to_fp16=cast_bf2half)


def qr_max_size() -> int:
    """Most bytes of a tensor."""
    return _MAX_BYTES


def qr_destroy(fa: int) -> None:
    _numbered(fa)
    del _known[fa]


# ---------------------------------------------------------------- vLLM's variables


class Settings(NamedTuple):
    """What vLLM's variables say."""

    level: str | None  # of LEVELS; None: QuickReduce is not to be used
    cast_bf16_to_fp16: bool
    max_bytes: int


def settings(environment: Any = os.environ) -> Settings:
    """VLLM_ROCM_QUICK_REDUCE_QUANTIZATION [NONE], VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16 [1] and
    VLLM_ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB [2048]. Raises ValueError for other values than they may have."""
    prefix = "VLLM_ROCM_QUICK_REDUCE_"

    def said(name: str, otherwise: str, allowed: Callable[[str], bool], words: str) -> str:
        text = environment.get(prefix + name) or otherwise
        if not isinstance(text, str) or not allowed(text):
            raise ArgumentError(f"{prefix}{name} is {_said(text)}: allowed are {words}")
        return text

    level = said("QUANTIZATION", "NONE", lambda text: text == "NONE" or text in LEVELS, "FP, INT8, INT6, INT4, NONE")
    cast = said("CAST_BF16_TO_FP16", "1", lambda text: text.lower() in ("0", "1", "true", "false"), "0, 1, True, False")
    mib = said("MAX_SIZE_BYTES_MB", "2048", lambda text: re.fullmatch("0*[1-9][0-9]{0,3}", text) is not None and int(text.lstrip("0")) <= 2048, "1 to 2048")
    return Settings(None if level == "NONE" else level, cast.lower() in ("1", "true"), int(mib.lstrip("0")) * _MIB)


class QuickAllReduce:
    """vLLM's choice of when to use QuickReduce, on arlab's kernels. `gather` turns bytes of this rank into those of all ranks; the other
    arguments are QuickReduce's. `disabled` where the variables say NONE."""

    def __init__(self, gather: Callable[[bytes], Sequence[bytes]], rank: int, world_size: int, **options: Any):
        self.settings = settings()
        self.disabled = self.settings.level is None
        self._reduce = QuickReduce(rank, world_size, **options)
        if not self.disabled:
            self._reduce.open(gather(self._reduce.handle))

    def should_quick_allreduce(self, inp: Any) -> bool:
        """Whether vLLM would take QuickReduce for the tensor: fp16 or bf16, on 2, 4 or 8 ranks, a multiple of 16 bytes, and neither
        too small nor too large."""
        if self.disabled or self.settings.level is None:
            return False
        memory = memory_of(inp, "inp")
        # What is cast is fp16 to the kernels.
        dtype = "fp16" if memory.dtype == "bf16" and self.settings.cast_bf16_to_fp16 else memory.dtype
        smallest = _MIN_MIB.get((dtype, self._reduce.world_size))
        if smallest is None or memory.bytes % 16 != 0:
            return False
        return smallest[list(LEVELS).index(self.settings.level)] * _MIB <= memory.bytes <= self.settings.max_bytes

    def quick_all_reduce(self, inp: Any, *, out: Any = None) -> Any:
        """The sum over ranks into `out` [a new tensor], which is returned."""
        if self.settings.level is None:
            raise ArgumentError("VLLM_ROCM_QUICK_REDUCE_QUANTIZATION is NONE: QuickReduce is not to be used")
        memory_of(inp, "inp")
        if out is None:
            out = np.empty_like(inp) if isinstance(inp, np.ndarray) else inp.new_empty(inp.shape)
        return self._reduce.all_reduce(inp, LEVELS[self.settings.level], out=out, cast_to_fp16=self.settings.cast_bf16_to_fp16)


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
