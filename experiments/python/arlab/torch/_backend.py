"""The backend "arlab" of torch.distributed."""

# Methods have one signature each, that of torch.distributed's own calls; stubs have overloads for others.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import Tensor, distributed
from torch._C import _distributed_c10d as c10d_options
from torch.distributed import PrefixStore, ProcessGroup
from torch.distributed import distributed_c10d as c10d
from torch.futures import Future

from arlab._errors import ArgumentError
from arlab.torch import _teams as teams
from arlab.torch._teams import DTYPES, MOST_RANKS, Options, Team

# PyTorch's backends call them so, in all versions.
ALL_GATHER, REDUCE_SCATTER = "_allgather_base", "_reduce_scatter_base"
SUM, AVG = distributed.ReduceOp.SUM, distributed.ReduceOp.AVG
#: Names of methods, for people.
NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all", "alltoall_base": "all_to_all",
    ALL_GATHER: "all_gather", REDUCE_SCATTER: "reduce_scatter",
}  # fmt: skip


class Work(distributed.Work):
    """A collective that has been enqueued, and on a CPU has ended."""

    def __init__(self, result: Any, device: torch.device, event: Any = None):
        super().__init__()
        self._result, self._device, self._event = result, device, event

    def wait(self, timeout: Any = None) -> bool:
        if self._event is not None:
            torch.cuda.current_stream(self._device).wait_event(self._event)
        return True

    def is_completed(self) -> bool:
        return self._event is None or bool(self._event.query())

    def is_success(self) -> bool:
        return self.is_completed()

    def result(self) -> Any:
        return self._result

    def get_future(self) -> Future[Any]:
        future: Future[Any] = Future(devices=[] if self._event is None else [self._device])
        if self._event is None:
            future.set_result(self._result)
        else:  # the future takes the event of the stream on which it is set
            with torch.cuda.stream(torch.cuda.Stream(self._device)):
                torch.cuda.current_stream(self._device).wait_event(self._event)
                future.set_result(self._result)
        return future


def enqueue(
    team: Team, device: torch.device, result: Any, tensors: Sequence[Tensor], call: Callable[[], None], opts: Any = None
) -> Any:
    """Calls it behind the current stream's work, and beside what comes after it unless `opts` say that nobody wants that: then there
    is nothing to wait for. On a CPU it has ended."""
    if not getattr(opts, "asyncOp", True):
        call()
        return None
    if device.type == "cpu":
        call()
        return Work(result, device)
    stream = team.stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        call()
        event = torch.cuda.Event()
        event.record(stream)
    for tensor in tensors:
        tensor.record_stream(stream)
    return Work(result, device, event)


class Group(ProcessGroup):
    """A process group whose collectives on fp16, bf16 and fp32 are arlab's, of 2 to 8 ranks on one host.

    All others go to PyTorch's own backend of the device, gloo or NCCL, which is there beside it; arlab.torch.statistics() counts.
    Which of them it is depends on nothing that may differ between ranks.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, options: Options, name: str = ""):
        super().__init__(rank, size)  # the constructor that PyTorch before 2.15 lets classes in Python have
        self.team = Team(store, rank, size, timeout.total_seconds(), options, name)
        self._others: dict[str, Any] = {}
        kinds = ProcessGroup.BackendType
        self._add("cpu", kinds.GLOO, c10d.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout))
        if torch.cuda.is_available() and distributed.is_nccl_available():
            nccl = c10d.ProcessGroupNCCL.Options()
            nccl._timeout = timeout
            self._add("cuda", kinds.NCCL, c10d.ProcessGroupNCCL(PrefixStore("nccl", store), rank, size, nccl))

    def _add(self, device: str, kind: Any, backend: Any) -> None:
        self._others[device] = backend
        self._register_backend(torch.device(device), kind, backend)
        self._set_default_backend(kind)

    def getBackendName(self) -> str:
        return "arlab"

    def shutdown(self) -> None:
        self.team.leave()
        for each in self._others.values():
            each.shutdown()

    # ---- who does what

    def _ours(self, *tensors: Tensor, op: Any = SUM) -> bool:
        first = tensors[0]
        return (
            2 <= self.team.ranks <= MOST_RANKS
            and first.dtype in DTYPES
            and first.device.type in self._devices
            and first.layout is torch.strided
            and (op == SUM or op == AVG)
            and all((each.dtype, each.device, each.layout) == (first.dtype, first.device, torch.strided) for each in tensors[1:])
        )

    @functools.cached_property
    def _devices(self) -> list[str]:
        """Kinds of devices whose collectives are arlab's."""
        config = distributed.get_backend_config(self)
        return [kind for kind in ("cpu", "cuda") if f"{kind}:arlab" in config]

    def _passed(self, method: str, *arguments: Any) -> Any:
        """To PyTorch's backend."""
        device = next(_tensors(arguments), torch.empty(0)).device
        other = self._others.get(device.type)
        if other is None:
            raise ArgumentError(f"{method} of a tensor on {device}: allowed are {', '.join(self._others)}")
        self.team.counts[f"{NAMES.get(method, method)} by {other.name()}"] += 1
        return getattr(other, method)(*arguments)

    def _enqueue(self, result: Any, tensors: Sequence[Tensor], call: Callable[[], None], opts: Any = None) -> Any:
        return enqueue(self.team, tensors[0].device, result, tensors, call, opts)

    def _sum(self, dtype: torch.dtype, op: Any) -> dict[str, Any]:
        """How sums are made: as the group's options say, and as they are where the codec does not take the dtype."""
        options = self.team.options
        codec = options.codec if teams.takes(options.codec, dtype) else None
        return {"codec": codec, "sum": options.sum, "average": op == AVG}

    def _moved(self, dtype: torch.dtype) -> str | None:
        codec = self.team.options.gather_codec
        return codec if teams.takes(codec, dtype) else None

    # ---- sums

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or c10d_options.AllreduceOptions()
        if not self._ours(*tensors, op=opts.reduceOp):
            return self._passed("allreduce", tensors, opts)

        def call() -> None:
            for tensor in tensors:
                how = self._sum(tensor.dtype, opts.reduceOp)
                teams.all_reduce(self.team, tensor, algorithm=self.team.options.algorithm, **how)

        return self._enqueue(tensors, tensors, call, opts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        single = c10d_options.AllreduceOptions()
        single.reduceOp = opts.reduceOp if opts else single.reduceOp
        return _last([self.allreduce([tensor], single) for tensor in tensors])

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        opts = opts or c10d_options.ReduceScatterOptions()
        if not self._ours(output, tensor, op=opts.reduceOp):
            return self._passed(REDUCE_SCATTER, output, tensor, opts)
        how = self._sum(tensor.dtype, opts.reduceOp)
        return self._enqueue([output], [output, tensor], lambda: teams.reduce_scatter(self.team, output, tensor, **how), opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return _last([self.reduce_scatter_single(output, tensor, opts) for output, tensor in zip(outputs, inputs)])

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        opts = opts or c10d_options.ReduceScatterOptions()
        if not _equal(*inputs) or not self._ours(*outputs, *inputs[0], op=opts.reduceOp):
            return self._passed("reduce_scatter", outputs, inputs, opts)
        whole = torch.cat([each.detach().reshape(-1) for each in inputs[0]])
        return self.reduce_scatter_single(outputs[0], whole, opts)

    # ---- moves

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        if not self._ours(output, tensor):
            return self._passed(ALL_GATHER, output, tensor, opts or c10d_options.AllgatherOptions())
        codec = self._moved(tensor.dtype)
        return self._enqueue([output], [output, tensor], lambda: teams.all_gather(self.team, output, tensor, codec=codec), opts)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return _last([self.all_gather_single(output, tensor, opts) for output, tensor in zip(outputs, inputs)])

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        if not _equal(*outputs) or not self._ours(*inputs, *outputs[0]):
            return self._passed("allgather", outputs, inputs, opts or c10d_options.AllgatherOptions())
        tensor = inputs[0]

        def call() -> None:
            whole = tensor.new_empty(self.team.ranks * tensor.numel())
            teams.all_gather(self.team, whole, tensor, codec=self._moved(tensor.dtype))
            for slot, part in zip(outputs[0], whole.view(self.team.ranks, -1)):
                slot.detach().copy_(part.view(slot.shape))

        return self._enqueue(outputs, [*outputs[0], tensor], call, opts)

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> Any:
        opts = opts or c10d_options.AllToAllOptions()
        # A rank sees its own splits only: were they equal here, those of another rank might not be.
        if output_splits or input_splits or not self._ours(tensor, output):
            return self._passed("alltoall_base", output, tensor, output_splits, input_splits, opts)
        codec = self._moved(tensor.dtype)
        return self._enqueue([output], [output, tensor], lambda: teams.all_to_all(self.team, output, tensor, codec=codec), opts)

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:
        opts = opts or c10d_options.BroadcastOptions()
        if opts.rootRank != 0 or not self._ours(*tensors):
            return self._passed("broadcast", tensors, opts)

        def call() -> None:
            for tensor in tensors:
                teams.broadcast(self.team, tensor)

        return self._enqueue(tensors, tensors, call, opts)

    # ---- what arlab has not

    def barrier(self, opts: Any = None) -> Any:
        self.team.synchronize()  # so that it says what has gone wrong before it
        device = "cuda" if "cuda" in self._devices and "cuda" in self._others else "cpu"
        self.team.counts[f"barrier by {self._others[device].name()}"] += 1
        return self._others[device].barrier(opts or c10d_options.BarrierOptions())

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], *rest: Any) -> Any:
        return self._passed("alltoall", outputs, inputs, *rest)

    def reduce(self, tensors: list[Tensor], *rest: Any) -> Any:
        return self._passed("reduce", tensors, *rest)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], *rest: Any) -> Any:
        return self._passed("gather", outputs, inputs, *rest)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], *rest: Any) -> Any:
        return self._passed("scatter", outputs, inputs, *rest)

    def send(self, tensors: list[Tensor], *rest: Any) -> Any:
        return self._passed("send", tensors, *rest)

    def recv(self, tensors: list[Tensor], *rest: Any) -> Any:
        return self._passed("recv", tensors, *rest)

    def recv_anysource(self, tensors: list[Tensor], *rest: Any) -> Any:
        return self._passed("recv_anysource", tensors, *rest)

    # As PyTorch before 2.15 calls them.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _tensors(what: Any) -> Iterator[Tensor]:
    if isinstance(what, Tensor):
        yield what
    elif isinstance(what, (list, tuple)):
        for each in what:
            yield from _tensors(each)


def _last(works: list[Any]) -> Any:
    """The work that ends with the last of them."""
    for each in works[:-1]:
        if each is not None:
            each.wait()
    return works[-1]


def _equal(*lists: list[Tensor]) -> bool:
    """One list, of tensors of one size."""
    return len(lists) == 1 and len({each.numel() for each in lists[0]}) == 1


def create(about: Any, options: Options | None) -> Group:
    """Creates each new group, for torch.distributed."""
    if options is None:
        default = c10d._get_default_group() if distributed.is_initialized() else None
        options = default.team.options if isinstance(default, Group) else Options()
    if not isinstance(options, Options):
        raise ArgumentError(f"pg_options is {type(options).__name__}: needed is an arlab.torch.Options")
    return Group(about.store, about.group_rank, about.group_size, about.timeout, options, str(about.group_id))
