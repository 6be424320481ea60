"""Communicators of PyTorch's process groups: how their ranks meet, and collectives on tensors of PyTorch."""

from __future__ import annotations

import functools
import os
import weakref
from collections import Counter
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

import arlab
from arlab import _arlab
from arlab._errors import ArgumentError, Error
from arlab.torch._meeting import Meeting as _Meeting

if TYPE_CHECKING:
    from arlab.collectives import Sum
    from arlab.runtime import Communicator, Tailed
    from arlab.schedules import Algorithm

MOST_RANKS = 8
LEAVE_S = 5
DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


@dataclass(frozen=True)
class Options:
    """How a process group of arlab works: `pg_options` of init_process_group and new_group. All ranks give the same; a group that
    is given none has those of the default group.

    codec         how values travel in all_reduce and reduce_scatter [as they are, or as the table says]. Tensors of a dtype that
                  it does not take travel as they are
    gather_codec  likewise in all_gather and all_to_all, which only move values; broadcasts are always exact
    algorithm     of all_reduce: a name, a schedule.json, or a value such as arlab.Ring(own="exact")
    sum           how sums are made, an arlab.Sum or its text
    table         what calls take for which no codec and no algorithm is named; as arlab.Communicator has it
    timeout_s     how long a rank waits for another, inside a collective and until it comes [the process group's timeout]
    blocks, sms, slot_bytes, kernel_folder    as arlab.Communicator has them
    """

    codec: str | None = None
    gather_codec: str | None = None
    algorithm: str | Algorithm | None = None
    sum: Sum | str | None = None
    table: str | os.PathLike[str] | None = None
    timeout_s: float | None = None
    blocks: int = 0
    sms: int = 0
    slot_bytes: int = 0
    kernel_folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in (self.codec, self.gather_codec):
            takes(name, None)

    def of_communicator(self) -> dict[str, Any]:
        names = ("table", "blocks", "sms", "slot_bytes", "kernel_folder")
        return {each.name: value for each in fields(self) if each.name in names and (value := getattr(self, each.name))}


def takes(codec: str | None, dtype: torch.dtype | None) -> bool:
    """Whether a codec takes the dtype. Raises ArgumentError for a name that is none."""
    return codec is None or DTYPES.get(dtype) in _dtypes_of(codec, _arlab.definitions_made())  # type: ignore[arg-type]


@functools.lru_cache(256)
def _dtypes_of(codec: str, definitions: int) -> frozenset[str]:
    """`definitions`: how many there have been, as a name may be defined again."""
    return frozenset(arlab.codec_info(codec)["dtypes"])


# ---------------------------------------------------------------- the ranks of a group


class Team:
    """The communicators of a process group, one per device, made by the first calls that need them, and what went where."""

    def __init__(self, store: Any, rank: int, ranks: int, timeout_s: float, options: Options, group: str = ""):
        self.rank, self.ranks, self.options = rank, ranks, options
        self.counts: Counter[str] = Counter()
        self._store, self._group = store, group
        self._timeout_s = timeout_s if options.timeout_s is None else options.timeout_s
        self._communicators: dict[torch.device, Communicator] = {}
        self._meetings = 0
        self._streams: dict[torch.device, Any] = {}

    def on(self, device: torch.device) -> Communicator:
        """All ranks call it in the same order. Raises Error, on all of them, if they cannot work together."""
        found = self._communicators.get(device)
        if found is None:
            found = self._communicators[device] = self._meet(device)
        return found

    def _meet(self, device: torch.device) -> Communicator:
        from arlab.runtime import Communicator, devices

        if not 2 <= self.ranks <= MOST_RANKS:
            raise ArgumentError(f"a process group of {self.ranks} ranks: allowed are 2 to {MOST_RANKS}")
        platform = platform_of(device)
        place = self.rank % devices(platform) if platform == "host" else device.index
        # Messages of a failed meeting are not to be heard again.
        meeting = _Meeting(self._store, f"arlab/{self._meetings}", self.rank, self.ranks, self._timeout_s, self._group)
        self._meetings += 1
        return Communicator.from_gather(
            meeting.gather, self.rank, self.ranks, place, platform=platform, timeout_s=self._timeout_s,
            **self.options.of_communicator(),
        )  # fmt: skip

    def stream(self, device: torch.device) -> Any:
        """The stream of asynchronous collectives on a GPU, so that they run beside what comes after them."""
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def synchronize(self) -> None:
        """Waits for the streams' work. Raises Error where a rank did not arrive, or was in another call."""
        for device, communicator in self._communicators.items():
            streams = [] if device.type == "cpu" else [torch.cuda.current_stream(device), *filter(None, [self._streams.get(device)])]
            for stream in streams:
                communicator.synchronize(stream.cuda_stream)

    def leave(self) -> None:
        """Communicators go when all ranks leave. Where one does not soon, it may still write to their memory, which then stays
        until the process ends."""
        if self._communicators:
            self._store.set(f"arlab/left/{self.rank}", b"")
            try:
                self._store.wait([f"arlab/left/{rank}" for rank in range(self.ranks)], timedelta(seconds=LEAVE_S))
            except RuntimeError:
                _kept.append(self._communicators)
        self._communicators = {}

    def begin(self, collective: str, tensor: Tensor, codec: str | None) -> None:
        if not takes(codec, tensor.dtype):
            raise ArgumentError(f"{collective}: codec {codec} does not take {_kind(tensor)}")
        self.counts[_label(collective, codec)] += 1


@functools.cache
def _label(collective: str, codec: str | None) -> str:
    return f"{collective} by arlab" + (f" as {codec}" if codec else "")


_kept: list[Any] = []
_foreign: weakref.WeakKeyDictionary[Any, Team] = weakref.WeakKeyDictionary()


def team_of(group: Any = None) -> Team:
    """Returns a group's team; None is the default group. Groups of other backends keep their own collectives."""
    if isinstance(group, str):
        group = c10d._resolve_process_group(group) if group else None
    group = c10d._get_default_group() if group is None else group
    team = getattr(group, "team", None) or _foreign.get(group)
    if team is None:
        store, timeout = c10d._get_process_group_store(group), c10d.default_pg_timeout.total_seconds()
        team = _foreign[group] = Team(store, group.rank(), group.size(), timeout, Options(), group.group_name)
        weakref.finalize(group, team.leave).atexit = False
    return team


def statistics(group: Any = None) -> dict[str, int]:
    """How many collectives of a process group (the default one) went where, on this rank: "all_reduce by arlab as qr-q4",
    "all_gather by arlab", "broadcast by gloo"."""
    return dict(team_of(group).counts)


def platform_of(device: torch.device) -> str:
    return "host" if device.type == "cpu" else "rocm" if torch.version.hip else "cuda"


# ---------------------------------------------------------------- collectives on tensors, on the current stream


def _in_place(tensor: Tensor, call: Callable[[Tensor], Any]) -> None:
    """On its memory where that is contiguous, else on a copy."""
    if tensor.is_contiguous() and not tensor.requires_grad and tensor.numel() > 0:
        call(tensor)
        return
    memory = tensor.detach().contiguous()
    if memory.numel() > 0:
        call(memory)
    if memory.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(memory)


def as_sent(team: Team, tensor: Tensor, codec: str) -> Tensor:
    """Returns what the other ranks decode of a contiguous tensor."""
    return team.on(tensor.device)._as_sent(tensor, codec)


def all_reduce(
    team: Team, tensor: Tensor, *, codec: str | None = None, algorithm: str | Algorithm | None = None,
    sum: Sum | str | None = None, average: bool = False,
) -> None:  # fmt: skip
    """In place; `average` divides by the number of ranks afterwards."""
    team.begin("all_reduce", tensor, codec)
    how = {"codec": codec, "algorithm": algorithm, "sum": sum}
    _in_place(tensor, lambda memory: team.on(tensor.device).all_reduce(memory, **how))
    if average:
        tensor.detach().div_(team.ranks)


def all_reduce_tail(team: Team, tensor: Tensor, tail: dict[str, Any], *, codec: str | None = None, **how: Any) -> Tailed:
    """In place, and the residual, too; both are contiguous."""
    team.begin("all_reduce", tensor, codec)
    if all(each is None for each in tail.values()):
        raise ArgumentError(f"all_reduce_tail: there is nothing behind it: needed is one of {', '.join(tail)}")
    return team.on(tensor.device).all_reduce(tensor, codec=codec, **tail, **how)


def wire_bytes(tensor: Tensor, codec: str) -> int:
    """Bytes of a tail's output: rows are the tensor's last axis, whose length a graph has as a number. It may not know
    how many there are: each is whole blocks, and so has as many bytes as the others."""
    hidden, dtype = int(tensor.shape[-1]), DTYPES[tensor.dtype]

    def of_rows(rows: int) -> int:
        how = (dtype, rows * hidden, 0, "native", f"hidden={hidden},out={codec}")
        return _arlab.Request("two_shot", dtype, {}, *how).wire_bytes

    first = of_rows(1)
    return first + (tensor.numel() // hidden - 1) * (of_rows(2) - first)


def reduce_scatter(
    team: Team, output: Tensor, tensor: Tensor, *, codec: str | None = None, sum: Sum | str | None = None, average: bool = False,
) -> None:  # fmt: skip
    """`tensor`: as many slots of the output's size as ranks. It is not changed."""
    _check_slots("reduce_scatter", team, tensor, output)
    team.begin("reduce_scatter", tensor, codec)
    tensor, output = tensor.detach().contiguous(), output.detach()
    if tensor.numel() > 0:
        made = team.on(tensor.device).reduce_scatter(tensor, out=torch.empty_like(tensor), codec=codec, sum=sum)
        output.copy_(made.view(team.ranks, -1)[team.rank].view(output.shape))
    if average:
        output.div_(team.ranks)


def all_gather(team: Team, output: Tensor, tensor: Tensor, *, codec: str | None = None) -> None:
    """`output`: as many slots of the tensor's size as ranks; the tensor may be its own slot there."""
    _check_slots("all_gather", team, output, tensor)
    team.begin("all_gather", tensor, codec)

    def call(memory: Tensor) -> None:
        own = memory.view(team.ranks, -1)[team.rank]
        if own.data_ptr() != tensor.data_ptr():
            own.copy_(tensor.detach().reshape(-1))
        team.on(tensor.device).all_gather(memory, codec=codec)

    _in_place(output, call)


def all_to_all(team: Team, output: Tensor, tensor: Tensor, *, codec: str | None = None) -> None:
    """As many equal slots as ranks, in both."""
    if tensor.numel() % team.ranks or (output.numel(), output.dtype) != (tensor.numel(), tensor.dtype):
        raise ArgumentError(f"all_to_all: {_kind(tensor)} into {_kind(output)}: needed are {team.ranks} equal slots in both")
    team.begin("all_to_all", tensor, codec)
    given = tensor.detach().contiguous()
    _in_place(output, lambda memory: team.on(tensor.device).all_to_all(given, out=memory, codec=codec))


def broadcast(team: Team, tensor: Tensor) -> None:
    """Broadcasts rank 0's tensor, exactly, in place."""
    team.begin("broadcast", tensor, None)
    _in_place(tensor, lambda memory: team.on(tensor.device).broadcast(memory, codec=DTYPES[tensor.dtype]))


def _kind(tensor: Tensor) -> str:
    return f"{tensor.numel()} elements of {str(tensor.dtype).removeprefix('torch.')}"


def _check_slots(collective: str, team: Team, whole: Tensor, slot: Tensor) -> None:
    if whole.numel() != team.ranks * slot.numel() or whole.dtype != slot.dtype:
        raise ArgumentError(
            f"{collective}: {_kind(whole)} beside {_kind(slot)}: needed are {team.ranks} slots of equal size"
        )
