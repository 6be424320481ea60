"""Communicators on a platform: arlab's kernels from Python."""

from __future__ import annotations

import operator
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

from arlab import _arlab
from arlab._errors import ArgumentError, Error
from arlab._arlab import Communicator as _Rank
from arlab._arrays import SIZES, Memory, memory_of
from arlab._tables import checked
from arlab._tailed import TailArguments, Tailed, check_apart, memory_of_tail
from arlab.schedules import Algorithm, asked, of_collective

if TYPE_CHECKING:
    from arlab._tails import Tail
    from arlab.collectives import Sum

__all__ = ["Group", "Communicator", "Tailed", "platforms", "devices"]


def _stream_of(tensor: Any, stream: int | None) -> int:
    """The stream to use: the one named, PyTorch's current one for its tensors, or the default."""
    if stream is not None:
        return stream
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor) and tensor.is_cuda:
        # The stream itself: to make an object of it takes longer than the checks of a call.
        return int(torch._C._cuda_getCurrentRawStream(tensor.device.index))
    return 0


def platforms() -> list[str]:
    """The platforms that this build has kernels for: "host" (GPUs emulated on the CPU), "cuda", "rocm"."""
    return _arlab.platforms()


def usual_platform() -> str:
    """The platform of programs that name none: that of this machine's GPUs, else "host"."""
    return _arlab.usual_platform()


@checked
def devices(platform: str = "host") -> int:
    """How many devices a platform has here."""
    return _arlab.devices(platform)


def _memories(rank: int, device: int, platform: str, tensor: Any, output: Any) -> tuple[Memory, Memory]:
    """Where a rank's tensor is, and where its result goes: one and the same in place."""
    memory = target = memory_of(tensor, "rank {}'s {}", writable=output is tensor, of=(rank, "tensor"))
    if memory.platform != platform:
        raise ArgumentError(f"rank {rank}'s tensor is on platform {memory.platform}, the communicator on {platform}")
    if platform != "host" and memory.device != device:
        raise ArgumentError(f"rank {rank}'s tensor is on device {memory.device}, the communicator on {device}")
    if output is not tensor:
        target = memory_of(output, "rank {}'s {}", writable=True, of=(rank, "output"))
        if (memory.elements, *memory[2:5]) != (target.elements, *target[2:5]):
            raise ArgumentError(
                f"rank {rank}'s output has {target.elements} elements of {target.dtype}, its tensor {memory.elements} of"
                f" {memory.dtype}; both must be on one device"
            )
    return memory, target


def _check_overlaps(memories: dict[int, Memory], outputs: dict[int, Memory]) -> None:
    """By rank. What a rank writes, nobody else may read or write, nor itself read somewhere else."""
    for rank, output in outputs.items():
        for other, memory in memories.items():
            if output.overlaps(memory) and (rank != other or output.address != memory.address):
                raise ArgumentError(
                    f"rank {rank}'s output overlaps rank {other}'s tensor: allowed is rank {rank}'s own tensor, all of it"
                )
        for other, another in outputs.items():
            if other < rank and output.overlaps(another):
                raise ArgumentError(f"rank {rank}'s output overlaps rank {other}'s output")


#: The algorithm of calls that name none; of other collectives it has their name.
_USUAL = {"all_reduce": "two_shot"}

#: Most calls that are kept: reading their words again would take longer than a small call.
_MOST_KNOWN_CALLS = 4096


class _Method(NamedTuple):
    """How a call is to be made: what it names, and where that is nothing at all, as the table says."""

    collective: str
    algorithm: str | Algorithm | None = None
    codec: str | None = None
    sum: Sum | str | None = None
    options: dict[str, Any] | None = None
    tail: str = ""

    def of(self, memory: Memory, table: _arlab.CallTable, seed: int) -> _arlab.Request:
        """As the compiled part takes it."""
        algorithm, codec, options = self.algorithm, self.codec, self.options or {}
        if algorithm is None and codec is None and not options:
            chosen = table.choice(self.collective, memory.dtype, memory.bytes)
            algorithm, codec, options = chosen or (None, None, {})
        what, given = asked(algorithm or _USUAL.get(self.collective, self.collective), options)
        how = "native" if self.sum is None else str(self.sum)
        return _arlab.Request(what, codec or memory.dtype, given, memory.dtype, memory.elements, seed, how, self.tail)


class _Calls:
    """The calls of a team, by what they name and what their tensors are."""

    def __init__(self, table: _arlab.CallTable):
        self.table, self.seed = table, 0
        self._known: dict[tuple[Any, ...], _arlab.Request] = {}

    def request(self, method: _Method, memory: Memory) -> _arlab.Request:
        if method.options or not (method.algorithm is None or type(method.algorithm) is str):
            return method.of(memory, self.table, self.seed)
        # A record of a sum has no hash; its text has.
        how = method.sum if method.sum is None else str(method.sum)
        key = (method.collective, method.algorithm, method.codec, how, memory.dtype, memory.elements, self.seed, method.tail)
        request = self._known.get(key)
        if request is None:
            request = method.of(memory, self.table, self.seed)
            if len(self._known) >= _MOST_KNOWN_CALLS:
                self._known.clear()
            self._known[key] = request
        return request


def _table(table: str | os.PathLike[str] | None) -> _arlab.CallTable:
    if table is None:
        return _arlab.CallTable.from_environment()
    text = os.fspath(table)
    return _arlab.CallTable.read(text) if text.endswith(".toml") else _arlab.CallTable.of_words(text)


def _look_in(kernel_folder: str | os.PathLike[str] | None, platform: str) -> None:
    if kernel_folder is not None:
        _arlab.add_kernel_folder(platform, os.fspath(kernel_folder))


def _explained(rank: _Rank, platform: str, method: _Method, tensor: Any, calls: _Calls) -> str:
    memory = memory_of(tensor, "the tensor")
    named = method.algorithm is not None or method.codec is not None or method.options
    why = "named by the call" if named else calls.table.explain(method.collective, memory.dtype, memory.bytes)
    try:
        compiler = _arlab.compiler(platform)
    except Error as missing:
        compiler = str(missing)
    return "\n".join(filter(None, [why, rank.explain(calls.request(method, memory)), compiler]))


def _text_of(tail: Tail | None, tensor: Any) -> str:
    """In words, with the tensor's rows."""
    return "" if tail is None else TailArguments(tail, *[None] * 5).text(memory_of(tensor, "the tensor").shape)


def _of_ranks(tail: TailArguments, ranks: int) -> list[TailArguments]:
    """Returns a group's arguments, for each of its ranks."""
    of_each = {}
    for what in ("residual", "weight", "residual_out"):
        given = getattr(tail, what)
        if given is not None and len(given) != ranks:
            raise ArgumentError(f"{len(given)} tensors as {what} for {ranks} ranks")
        of_each[what] = [None] * ranks if given is None else list(given)
    return [tail._replace(**{what: given[rank] for what, given in of_each.items()}) for rank in range(ranks)]


def _set_rounding(ranks: Sequence[_Rank], seed: int, call: int) -> int:
    try:
        if not (0 <= operator.index(seed) < 2**64 and 0 <= operator.index(call) < 2**32):
            raise TypeError
    except TypeError:
        raise ArgumentError(
            f"seed is {ascii(seed)}, call {ascii(call)}: allowed are integers from 0 on, of 64 and of 32 bits"
        ) from None
    for rank in ranks:
        rank.set_random_calls(call)
    return seed


class Communicator:
    """This process's rank of a team of 2 to 8 with one process per rank, all on one machine.

    Of one team, all ranks make the same calls in the same order. On GPUs calls are enqueued, on PyTorch's current stream
    for its tensors; on platform "host" they have ended when they return.
    """

    def __init__(self, rank: _Rank, platform: str, table: _arlab.CallTable | None = None):
        self._rank, self._platform, self._place = rank, platform, (rank.rank, rank.device)
        self._calls = _Calls(_arlab.CallTable.from_environment() if table is None else table)

    @classmethod
    @checked
    def from_environment(
        cls,
        device: int | None = None,
        *,
        platform: str = "host",
        blocks: int = 0,
        sms: int = 0,
        slot_bytes: int = 0,
        timeout_s: float = 10,
        bootstrap_timeout_s: float = 60,
        table: str | os.PathLike[str] | None = None,
        kernel_folder: str | os.PathLike[str] | None = None,
    ) -> "Communicator":
        """As torchrun and similar launchers say: RANK, WORLD_SIZE, and MASTER_PORT, which names the socket at which the
        ranks meet; or Open MPI's mpirun. It is in the folder ARLAB_BOOTSTRAP_DIR, of mode 700 [/tmp/arlab-UID]. `device` [LOCAL_RANK, else
        RANK, modulo the number of devices].

        `sms`: multiprocessors for kernels, each full of blocks, which leaves the others to matrix products (of NVIDIA's an
        even number; ranks then share no device) [all]; `blocks`: most blocks of a kernel, for authors of kernels [all that
        fit]. `timeout_s`: how long a rank waits for another inside a collective before the team is given up;
        `bootstrap_timeout_s`: before there is one. `table`: what calls take that name no algorithm and no codec: a .toml as
        `arlab select --table` writes it, or for all-reduces words such as "16K-1M:one_shot/bf16,1M-:two_shot/qr-q4" [the
        file ARLAB_TABLE and the words ARLAB_ALL_REDUCE]. All ranks have the same. `kernel_folder`: compiled kernels, of
        `arlab kernels build --out`, where this process looks from now on before it compiles any; only of platforms "cuda" and
        "rocm" [the folders of ARLAB_KERNEL_FOLDER].

        Raises ValueError for a table that cannot be read, and Error for a folder that others may write. Raises Error
        on all ranks when one does not come or cannot take part; the message names it.
        """
        if device is None:
            variables = ("LOCAL_RANK", "RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
            name = next((each for each in variables if each in os.environ), "RANK")
            text = os.environ.get(name, "0")
            if not re.fullmatch("[0-9]{1,9}", text):
                raise Error(f"{name}={text!r}: allowed is an integer from 0 on")
            device = int(text) % max(devices(platform), 1)
        calls = _table(table)
        _look_in(kernel_folder, platform)
        made = _arlab.from_environment(platform, device, blocks, sms, slot_bytes, timeout_s, bootstrap_timeout_s)
        return cls(made, platform, calls)

    @classmethod
    @checked
    def from_gather(
        cls,
        gather: Callable[[bytes], Sequence[bytes]],
        rank: int,
        world_size: int,
        device: int,
        *,
        platform: str = "host",
        blocks: int = 0,
        sms: int = 0,
        slot_bytes: int = 0,
        timeout_s: float = 10,
        table: str | os.PathLike[str] | None = None,
        kernel_folder: str | os.PathLike[str] | None = None,
    ) -> "Communicator":
        """With an all-gather that is there already: `gather` turns the bytes of this rank into those of all ranks."""
        calls = _table(table)
        _look_in(kernel_folder, platform)
        made = _arlab.from_gather(platform, device, blocks, sms, slot_bytes, timeout_s, rank, world_size, gather)
        return cls(made, platform, calls)

    @property
    def rank(self) -> int:
        return self._rank.rank

    @property
    def world_size(self) -> int:
        return self._rank.ranks

    @property
    def device(self) -> int:
        return self._rank.device

    def all_reduce(
        self,
        tensor: Any,
        *,
        algorithm: str | Algorithm | None = None,
        codec: str | None = None,
        sum: Sum | str | None = None,
        out: Any = None,
        stream: int | None = None,
        tail: Tail | None = None,
        residual: Any = None,
        weight: Any = None,
        eps: float | None = None,
        out_quant: str | None = None,
        rounding: str | None = None,
        residual_out: Any = None,
        tail_place: str | None = None,
        **options: Any,
    ) -> Any:
        """The sum over ranks into `out` [in place], which is returned. `codec`: how values travel [as they are]. `sum`: how
        sums are made, in the tensor's dtype ["native"], or in "fp32", rounded once. Where neither an algorithm nor a codec is
        named, the table says both; without one it is two_shot, and values travel as they are.

        Memory of `out` is no other rank's tensor or output; it is all of `tensor`, or none of it.

        `algorithm` and `options`: as for arlab.all_reduce, such as arlab.Hierarchical(inner_codec="fp16"). `stream`: a raw stream, instead of PyTorch's current one.

        `tail` or the arguments behind it add a tail, which returns an arlab.Tailed: rows are the tensor's last axis.
        `residual` (the tensor's shape and dtype, alike on all ranks) is added to the sum, into `residual_out` [in
        place]; `weight` [hidden] is RMSNorm's, whose `eps` is added to the mean of squares [1e-6]. Results go into
        `out`, and with `out_quant`, a codec, also into a new tensor, as its wire; "fp8-e4m3-token" is one byte per
        element, then an fp32 scale per row. `rounding`: as in arlab.Tail. `tail_place`: every rank makes all rows
        ["after"], or the "owner" of rows, who sends what comes out. Raises ArgumentError (a ValueError) for tensors of
        other shapes and dtypes, and for rows that are not whole blocks of `out_quant`.
        """
        given = TailArguments(tail, residual, weight, eps, out_quant, rounding, residual_out, tail_place)
        method = _Method("all_reduce", algorithm, codec, sum, options)
        return self._call_with_tail(tensor, method, out, stream, given) if given.is_given() else self._call(tensor, method, out, stream)

    def all_to_all(
        self, tensor: Any, *, codec: str | None = None, out: Any = None, stream: int | None = None
    ) -> Any:
        """Slot j of rank i becomes slot i of rank j; a tensor is world_size slots of equal size."""
        return self._call(tensor, _Method("all_to_all", None, codec), out, stream)

    def reduce_scatter(
        self, tensor: Any, *, algorithm: str | Algorithm | None = None, codec: str | None = None,
        sum: Sum | str | None = None, out: Any = None, stream: int | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Slot i of rank i becomes the sum of all slots i; the others stay. Slots are as in all_to_all. `algorithm` and
        `options`: arlab.HierarchicalReduceScatter(group_size=4), for one, which with two codecs needs another tensor as
        `out`."""
        method = _Method("reduce_scatter", of_collective(algorithm, "reduce_scatter"), codec, sum, options)
        return self._call(tensor, method, out, stream)

    def all_gather(
        self, tensor: Any, *, codec: str | None = None, out: Any = None, stream: int | None = None
    ) -> Any:
        """Every slot i becomes slot i of rank i. Slots are as in all_to_all."""
        return self._call(tensor, _Method("all_gather", None, codec), out, stream)

    def broadcast(
        self, tensor: Any, *, codec: str | None = None, out: Any = None, stream: int | None = None
    ) -> Any:
        """The tensor of rank 0."""
        return self._call(tensor, _Method("broadcast", None, codec), out, stream)

    def explain(
        self, tensor: Any, *, collective: str = "all_reduce", algorithm: str | Algorithm | None = None, codec: str | None = None,
        sum: Sum | str | None = None, tail: Tail | None = None, **options: Any,
    ) -> str:  # fmt: skip
        """Why a call with this tensor goes as it goes, in two lines: the rule of the table that takes it, and the kernel; on GPUs a
        third says what compiles kernels."""
        method = _Method(collective, algorithm, codec, sum, options, _text_of(tail, tensor))
        return _explained(self._rank, self._platform, method, tensor, self._calls)

    def prepare(
        self, tensor: Any, *, collective: str = "all_reduce", algorithm: str | Algorithm | None = None, codec: str | None = None,
        sum: Sum | str | None = None, tail: Tail | None = None, **options: Any,
    ) -> None:  # fmt: skip
        """Compiles and loads the kernels of a call with such a tensor, which may then be captured into a graph. All ranks of the
        team prepare the same calls in the same order, as they make them. A call outside of captures does so by itself."""
        method = _Method(collective, algorithm, codec, sum, options, _text_of(tail, tensor))
        self._rank.prepare(self._calls.request(method, memory_of(tensor, "the tensor")))

    def _call(self, tensor: Any, method: _Method, out: Any, stream: int | None) -> Any:
        stream, output = _stream_of(tensor, stream), tensor if out is None else out
        rank, device = self._place
        memory, target = _memories(rank, device, self._platform, tensor, output)
        if target is not memory:
            _check_overlaps({rank: memory}, {rank: target})
        self._rank.run(self._calls.request(method, memory), memory.address, target.address, stream)
        if self._platform == "host":
            self._rank.synchronize(stream)
        return output

    def _call_with_tail(self, tensor: Any, method: _Method, out: Any, stream: int | None, given: TailArguments) -> Tailed:
        stream, output = _stream_of(tensor, stream), tensor if out is None else out
        rank, device = self._place
        memory, target = _memories(rank, device, self._platform, tensor, output)
        request = self._calls.request(method._replace(tail=given.text(memory.shape)), memory)
        rows = memory_of_tail(given, request, rank, memory, target)
        check_apart([rows])
        self._rank.run(request, memory.address, target.address, stream, rows.addresses)
        if self._platform == "host":
            self._rank.synchronize(stream)
        return rows.made

    def _as_sent(self, tensor: Any, codec: str) -> Any:
        """Returns what the other ranks decode of a tensor of PyTorch, enqueued as calls are."""
        memory, stream, output = memory_of(tensor, "the tensor"), _stream_of(tensor, None), tensor.new_empty(tensor.shape)
        # In elements of the tensor, since only its own kind can be made without PyTorch.
        room = tensor.new_empty(-(-self._rank.room_of_as_sent(codec, memory.dtype, memory.elements) // SIZES[memory.dtype]))
        self._rank.as_sent(
            codec, memory.dtype, memory.elements, memory.address, room.data_ptr(), output.data_ptr(), stream
        )  # fmt: skip
        if self._platform == "host":
            self._rank.synchronize(stream)
        return output

    def set_rounding(self, seed: int = 0, call: int = 0) -> None:
        """The seed of codecs with random numbers (`-stoch`), and how many calls of such codecs were before the next one: they are
        counted from there on the device, so that each replay of a graph has its own number. All ranks set the same."""
        self._calls.seed = _set_rounding([self._rank], seed, call)

    def synchronize(self, stream: int = 0) -> None:
        """Waits for a stream's work. Raises Error when a rank did not arrive, or was in another call, which is then
        named: then the team can only be thrown away."""
        self._rank.synchronize(stream)


class Group:
    """A team of 2 to 8 ranks in this process: rank r on devices[r]. Several ranks may share a device, without `sms`. Options
    are Communicator.from_environment's.

    Threads may use groups at the same time, each its own.
    """

    @checked
    def __init__(
        self,
        devices: Sequence[int],
        *,
        platform: str = "host",
        blocks: int = 0,
        sms: int = 0,
        slot_bytes: int = 0,
        timeout_s: float = 10,
        table: str | os.PathLike[str] | None = None,
        kernel_folder: str | os.PathLike[str] | None = None,
    ):
        self._calls = _Calls(_table(table))
        _look_in(kernel_folder, platform)
        try:
            numbers = [operator.index(device) for device in devices]
        except TypeError:
            raise ArgumentError(f"devices is {ascii(devices)}: allowed are integers, one for each rank") from None
        self._ranks = _arlab.in_process(platform, numbers, blocks, sms, slot_bytes, timeout_s)
        self._platform = platform

    @property
    def world_size(self) -> int:
        return len(self._ranks)

    def set_rounding(self, seed: int = 0, call: int = 0) -> None:
        """As Communicator.set_rounding, for all ranks."""
        self._calls.seed = _set_rounding(self._ranks, seed, call)

    def all_reduce(
        self,
        tensors: Sequence[Any],
        *,
        algorithm: str | Algorithm | None = None,
        codec: str | None = None,
        sum: Sum | str | None = None,
        out: Sequence[Any] | None = None,
        tail: Tail | None = None,
        residual: Sequence[Any] | None = None,
        weight: Sequence[Any] | None = None,
        eps: float | None = None,
        out_quant: str | None = None,
        rounding: str | None = None,
        residual_out: Sequence[Any] | None = None,
        tail_place: str | None = None,
        **options: Any,
    ) -> list[Any]:
        """As Communicator.all_reduce, for all ranks, each with tensors of its own; has ended when it returns. Raises Error as
        synchronize() does."""
        given = TailArguments(tail, residual, weight, eps, out_quant, rounding, residual_out, tail_place)
        return self._call(tensors, _Method("all_reduce", algorithm, codec, sum, options), out, given if given.is_given() else None)

    def all_to_all(self, tensors: Sequence[Any], *, codec: str | None = None, out: Sequence[Any] | None = None) -> list[Any]:
        """As Communicator.all_to_all, for all ranks."""
        return self._call(tensors, _Method("all_to_all", None, codec), out)

    def reduce_scatter(
        self, tensors: Sequence[Any], *, algorithm: str | Algorithm | None = None, codec: str | None = None,
        sum: Sum | str | None = None, out: Sequence[Any] | None = None, **options: Any,
    ) -> list[Any]:  # fmt: skip
        """As Communicator.reduce_scatter, for all ranks."""
        method = _Method("reduce_scatter", of_collective(algorithm, "reduce_scatter"), codec, sum, options)
        return self._call(tensors, method, out)

    def all_gather(self, tensors: Sequence[Any], *, codec: str | None = None, out: Sequence[Any] | None = None) -> list[Any]:
        """As Communicator.all_gather, for all ranks."""
        return self._call(tensors, _Method("all_gather", None, codec), out)

    def broadcast(self, tensors: Sequence[Any], *, codec: str | None = None, out: Sequence[Any] | None = None) -> list[Any]:
        """As Communicator.broadcast, for all ranks."""
        return self._call(tensors, _Method("broadcast", None, codec), out)

    def explain(self, tensor: Any, **call: Any) -> str:
        """As Communicator.explain, of one of the tensors; what `call` names are its arguments."""
        return Communicator(self._ranks[0], self._platform, self._calls.table).explain(tensor, **call)

    def prepare(
        self, tensor: Any, *, collective: str = "all_reduce", algorithm: str | Algorithm | None = None, codec: str | None = None,
        sum: Sum | str | None = None, tail: Tail | None = None, **options: Any,
    ) -> None:  # fmt: skip
        """As Communicator.prepare, for all ranks; `tensor` is one of theirs."""
        method = _Method(collective, algorithm, codec, sum, options, _text_of(tail, tensor))
        for rank in self._ranks:
            rank.prepare(self._calls.request(method, memory_of(tensor, "the tensor")))

    def _call(
        self, tensors: Sequence[Any], method: _Method, out: Sequence[Any] | None, tail: TailArguments | None = None
    ) -> list[Any]:
        outputs = list(tensors if out is None else out)
        if len(tensors) != self.world_size or len(outputs) != self.world_size:
            raise ArgumentError(f"{len(tensors)} tensors and {len(outputs)} outputs for {self.world_size} ranks")
        # A mistake in one tensor must not leave the other ranks' kernels waiting, so all are checked before any is used.
        memories, targets = {}, {}
        for rank, (each, tensor, output) in enumerate(zip(self._ranks, tensors, outputs)):
            memories[rank], targets[rank] = memory, _ = _memories(rank, each.device, self._platform, tensor, output)
            first = memories[0]
            if (memory.elements, memory.dtype) != (first.elements, first.dtype):
                raise ArgumentError(
                    f"rank {rank}'s tensor has {memory.elements} elements of {memory.dtype}, rank 0's {first.elements} of {first.dtype}"
                )
        _check_overlaps(memories, targets)
        where = [[each.address for each in ranks.values()] for ranks in (memories, targets)]
        streams = [_stream_of(tensor, None) for tensor in tensors]
        if tail is None:
            _arlab.run_together(self._ranks, self._calls.request(method, first), *where, streams, [])
            return outputs
        request = self._calls.request(method._replace(tail=tail.text(first.shape)), first)
        rows = [
            memory_of_tail(given, request, rank, memories[rank], targets[rank])
            for rank, given in enumerate(_of_ranks(tail, self.world_size))
        ]
        check_apart(rows)
        _arlab.run_together(self._ranks, request, *where, streams, [each.addresses for each in rows])
        return [each.made for each in rows]
