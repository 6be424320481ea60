"""Codecs: payload elements to wire bytes and back, by the reference or by a platform's kernels; codecs of one's own."""

from __future__ import annotations

import inspect
import os
import sys
import zlib
from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, NoReturn, Protocol, Sequence, TypeVar

import numpy as np

from arlab import _arlab
from arlab._errors import ArgumentError
from arlab._arrays import as_given, dtype_name, host_memory_of, numpy_dtype
from arlab._counting import Count, Counted
from arlab._fingerprint import fingerprint
from arlab._tables import Names, checked, first_line, is_count, listed, name_of_own

__all__ = ["codec", "codec_from_header", "codecs", "codec_info", "encode", "decode", "quantize", "wire_bytes", "Codebook", "Codecs", "Context"]


@checked
def codecs(platform: str | None = None) -> Names:
    """Names of the codecs; parametrised families (`int<b>-g<G>`) have more members than are listed.

    Args:
        platform: only those that this platform ("host", "cuda", "rocm") has kernels for.

    The list has a `table`, a pandas.DataFrame with wire bits per element, block, dtypes and source of each.
    """
    names = _arlab.codecs() if platform is None else _arlab.kernel_codecs(platform)
    return Names(names, lambda: listed("codecs", names))


@checked
def codec_info(name: str) -> dict[str, Any]:
    """Returns facts of a codec that need no run of it: block and alignment in elements (None: the whole message),
    dtypes, source, and operations per element (estimates for some codecs in Python, guesses where not all could be
    counted)."""
    about = _arlab.codec_info(name)
    own = OWN.get(name, (None, {}))[1]
    about["ops_are_estimates"] = any(key in own and own[key] is None for key in ("encode_ops", "decode_ops"))
    about["ops_are_guesses"] = bool(_arlab.guessed_codecs([name]))
    return about


@checked
def wire_bytes(codec: str, dtype: Any, elements: int) -> int:
    """Returns the bytes on the wire of so many elements of a dtype: "fp16", "bf16", "fp32", or NumPy's or PyTorch's
    name for it."""
    return _arlab.wire_bytes(codec, dtype_name(dtype, "dtype"), elements)


@dataclass
class Context:
    """The place of an encoded message: all that a codec may know beyond its elements.

    seed        of random numbers
    call        calls of the collective before this one
    rank        that encodes, of `world_size`
    step        encodings that the values have behind them: 0 for a rank's own input
    chunk       of the schedule
    position    of the first element in the rank's tensor
    state       float32, a number per element, 0 before the first call: what a codec with a state carries from call to call, and
                changes or sets anew. None where it is not kept: it is then as before the first call
    """

    seed: int = 0
    call: int = 0
    rank: int = 0
    world_size: int = 1
    step: int = 0
    chunk: int = 0
    position: int = 0
    state: np.ndarray | None = None

    @checked
    def random(self, shape: int | Sequence[int]) -> np.ndarray:
        """Random numbers of the elements from `position` on, float32 in [0, 1): Philox4x32-10, the same bits in every order."""
        count = int(np.prod(shape, dtype=np.int64))
        return _arlab.random_numbers(self._numbers(), count).reshape(shape)

    def _numbers(self) -> tuple[int, ...]:
        short = self.call, self.rank, self.world_size, self.step, self.chunk
        if not (all(map(is_count(32), short)) and all(map(is_count(64), (self.seed, self.position)))):
            raise ArgumentError(f"{self}: allowed are integers from 0 on, of 32 bits, seed and position of 64")
        return self.seed, *short, self.position


@checked
def encode(
    tensor: Any, codec: str, dtype: Any = None, *, platform: str | None = None, context: Context | None = None
) -> np.ndarray:
    """The wire bytes of a tensor, as one flat message.

    Args:
        tensor: of float16, bfloat16 or float32 and any shape; NumPy, or in host memory and speaking DLPack.
        codec: a name; see codecs().
        dtype: of the tensor; for an array of uint16 the dtype whose bit patterns it holds. Nothing is cast.
        platform: encode with this platform's kernel ("host": emulated GPUs) instead of the reference. The bits are equal.
        context: where the message stands, for codecs whose bits depend on it. A state is float32, of as many elements.

    Returns uint8 of shape [wire_bytes(codec, dtype, elements)].
    Raises ArgumentError (a ValueError) for unknown codecs, and for dtypes that the codec does not take.
    """
    name = None if dtype is None else dtype_name(dtype, "dtype")
    if name in ("fp16", "bf16") and getattr(tensor, "dtype", None) == np.uint16:
        tensor = tensor.view(numpy_dtype(name))
    memory = host_memory_of(tensor, "the tensor")
    if name not in (None, memory.dtype):
        raise ArgumentError(f"the tensor is {memory.dtype}, not {name}; nothing is cast")
    context = context or Context()
    state = context.state
    if state is not None and not isinstance(state, np.ndarray) and hasattr(state, "__array__"):
        state = np.asarray(state)  # a tensor of PyTorch, in the same memory
    if state is not None:
        if not isinstance(state, np.ndarray) or state.dtype != np.float32 or state.size != memory.elements:
            raise ArgumentError(f"state: needed is an array of float32 with {memory.elements} elements, as the tensor has")
        if not state.flags.c_contiguous or not state.flags.writeable:
            raise ArgumentError("state: needed is an array that is contiguous and can be written to")
    address = 0 if state is None else state.ctypes.data
    numbers = context._numbers()
    return _arlab.encode(platform or "", codec, memory.dtype, memory.address, memory.elements, numbers, address)


@checked
def decode(
    wire: Any, codec: str, dtype: Any, elements: int | Sequence[int] | None = None, *, platform: str | None = None
) -> Any:
    """The values that wire bytes stand for.

    Args:
        wire: uint8, one dimension; NumPy or PyTorch.
        codec: a name; see codecs().
        dtype: of the values: "fp16", "bf16", "fp32", or NumPy's or PyTorch's name for it.
        elements: how many, or their shape; by default the largest number whose wire has this length.
        platform: decode with this platform's kernel instead of the reference. The bits are equal.

    Returns a tensor of that dtype: NumPy's (bf16: ml_dtypes.bfloat16), or PyTorch's where `wire` is.
    Raises ArgumentError (a ValueError) when the length of the wire does not fit.
    """
    name = dtype_name(dtype, "dtype")
    given = np.asarray(wire)
    if given.dtype != np.uint8:
        raise ArgumentError(f"the wire is {given.dtype}: needed is uint8")
    given = np.ascontiguousarray(given).reshape(-1)
    if elements is None:
        elements = _arlab.elements_of_wire(codec, name, given.size)
    shape = (elements,) if isinstance(elements, (int, np.integer)) else tuple(elements)
    count = int(np.prod(shape, dtype=np.int64))
    payload = _arlab.decode(platform or "", codec, name, given.ctypes.data, given.size, count)
    return as_given(payload, name, shape, wire)


@checked
def quantize(tensor: Any, codec: str, *, platform: str | None = None, context: Context | None = None) -> Any:
    """Encodes and decodes a tensor, as decode(encode(tensor, codec), codec, ...) in one call.

    Args:
        tensor, codec, platform, context: as encode() takes them; the whole tensor is one message.

    Returns a new tensor of the same shape and dtype: of PyTorch, on the same device's memory, if `tensor` is one, else of NumPy.
    Raises ArgumentError (a ValueError) as encode() does.
    """
    memory = host_memory_of(tensor, "the tensor")
    wire = encode(memory.keep, codec, platform=platform, context=context)
    payload = _arlab.decode(platform or "", codec, memory.dtype, wire.ctypes.data, wire.size, memory.elements)
    return as_given(payload, memory.dtype, memory.shape, tensor)


class Codecs(str):
    """Two codecs of one call, by where they are: goes wherever the name of a codec goes, and is a text that `--codec` takes, too.

        arlab.Codecs(reduce_scatter="bf16", all_gather="fp8-e4m3-g128")   rs=bf16,ag=fp8-e4m3-g128
        arlab.Codecs(outer="qr-q4", inner="fp16")                         between groups, and inside of them
        arlab.Codecs("qr-q4", step={0: "bf16"})                           messages with no encoding behind them: the inputs
        arlab.Codecs("qr-q4", below={65536: "bf16"})                      messages of fewer elements

    A message that is added up belongs to the half of the reduce-scatter, all others to that of the all-gather.
    Raises ArgumentError (a ValueError) when it is not two codecs by one of these ways.
    """

    def __new__(
        cls,
        otherwise: str | None = None,
        *,
        reduce_scatter: str | None = None,
        all_gather: str | None = None,
        outer: str | None = None,
        inner: str | None = None,
        step: dict[int, str] | None = None,
        below: dict[int, str] | None = None,
    ) -> Codecs:
        named = {"rs": reduce_scatter, "ag": all_gather, "outer": outer, "inner": inner, "else": otherwise}
        named |= {f"step{number}": codec for number, codec in (step or {}).items()}
        named |= {f"below{elements}": codec for elements, codec in (below or {}).items()}
        text = ",".join(f"{place}={codec}" for place, codec in named.items() if codec is not None)
        _arlab.split_codecs(text or "=")  # says what is wrong
        return super().__new__(cls, text)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


#: By name, each that is defined: to define it in another process, too.
CODEBOOKS: dict[str, Codebook] = {}


class Codebook(str):
    """A codec whose elements are the nearest of some levels, as data: goes wherever the name of a codec goes, kernels included.

        arlab.Codebook(np.linspace(-1, 1, 15), group=64)
        arlab.Codebook(arlab.Codebook.of("nf4") ** 3, group=32, name="cubic")

    Args:
        levels: 2 to 256 numbers, finite, ascending. A block is scaled so that its largest magnitude is theirs.
        group: elements that share a scale (fp32): 32, 64 or 128.
        name: the codec is called <name>-g<group>; by default what the levels are. Defining the same name and group again replaces
            it, also where the old object is used; another group of the name stays.

    Raises ArgumentError (a ValueError) for levels, groups and names that cannot be.
    """

    group: int

    def __new__(cls, levels: Any, group: int = 64, name: str | None = None) -> Codebook:
        try:
            given = np.array(levels, np.float32).reshape(-1)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"levels: needed are numbers: {first_line(error)}") from None
        if isinstance(group, bool) or not isinstance(group, (int, np.integer)) or group not in (32, 64, 128):
            raise ArgumentError(f"group is {ascii(group)}: allowed are the integers 32, 64 and 128")
        called = name or f"codebook{given.size}.{zlib.crc32(given.tobytes()):08x}"
        name_of_own(called, "a codebook")
        _arlab.register_codebook(called, int(group), given.tolist())
        self = super().__new__(cls, f"{called}-g{group}")
        self.group = int(group)
        CODEBOOKS[str(self)] = self
        return self

    @property
    def levels(self) -> np.ndarray:
        """float32 [levels]: what the codec of this name has now, as all that is called so encodes with."""
        return Codebook.of(self)

    @staticmethod
    def of(name: str) -> np.ndarray:
        """The levels of a codebook: nf4, e4m3b15, or one of your own; with its group where groups differ, as "mine-g32"."""
        return np.array(_arlab.codebook(str(name)), np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        return Codebook, (self.levels, self.group, self.rsplit("-g", 1)[0])


# ---------------------------------------------------------------- codecs of one's own


class OwnCodec(Protocol):
    """Classes for `arlab.codec`: two functions, which know nothing of each other's calls."""

    def encode(self, blocks: np.ndarray) -> np.ndarray:
        """[n, block] of the payload's dtype to [n, wire bytes of a block] uint8. It may take a Context as its second argument."""

    def decode(self, wire: np.ndarray) -> np.ndarray:
        """And back: [n, block] of the payload's dtype, or of float32, which is rounded to it."""


class OwnMessageCodec(Protocol):
    """Classes for `arlab.codec` with `wire_bytes`: functions of a whole message, [elements]."""

    def measure(self, message: np.ndarray) -> Any:
        """Statistics of the message, which encode then has as its second argument. Optional."""

    def encode(self, message: np.ndarray, statistics: Any) -> np.ndarray:
        """[elements] of the payload's dtype to uint8 [wire bytes]. Without measure() there are no statistics; a Context may follow."""

    def decode(self, wire: np.ndarray, elements: int) -> np.ndarray:
        """And back: [elements] of the payload's dtype, or of float32, which is rounded to it."""


Class = TypeVar("Class")  # a class of OwnCodec's, or an object

#: By name, the class and the arguments of each that is defined: to define it in another process, too.
OWN: dict[str, tuple[Any, dict[str, Any]]] = {}

#: By name, the header of each that is of one.
HEADERS: dict[str, _arlab.CompiledHeader] = {}


def codec(
    name: str,
    *,
    block: int | None,
    dtypes: Sequence[Any] = ("fp16", "bf16", "fp32"),
    encode_ops: float | None = None,
    decode_ops: float | None = None,
    saturating: Sequence[Any] = (),
    state: bool = False,
    wire_bytes: Callable[[int], int] | None = None,
    variable: bool = False,
    shared: bool = False,
    summary: str = "",
    source: str = "Python",
) -> Callable[[Class], Class]:
    """Makes a class a codec of this process: in every algorithm, metric, study, simulation, selection and check.

        @arlab.codec("absmax-g32", block=32, dtypes=("fp16", "bf16"), encode_ops=5, decode_ops=2)
        class AbsMax:
            def encode(self, blocks):  # [n, 32] of the payload's dtype
                x = blocks.astype(np.float32)
                scale = np.maximum(abs(x).max(1, keepdims=True), 1e-30) / 127
                return np.concatenate([np.rint(x / scale).astype(np.int8).view(np.uint8), scale.view(np.uint8)], 1)

            def decode(self, wire):  # [n, 36] uint8
                return wire[:, :32].view(np.int8) * wire[:, 32:].copy().view(np.float32)

    Args:
        name: how it is called from then on. Defining it again replaces it.
        block: elements that are encoded together. A message is blocks one after the other, the last filled up with zeros. With
            `wire_bytes`: where a message may be cut; None if nowhere, as something is found of the whole of it.
        dtypes: of the payloads that it takes: "fp16", "bf16", "fp32", or NumPy's or PyTorch's names and types for them.
        encode_ops, decode_ops: operations per element, which simulations turn into time: multiply, add, compare, shift and
            convert count one each. By default an estimate: what NumPy's functions do with random numbers (codec_info() says so). Where
            the codec leaves them (loops over numbers, tables, libraries of others), not all can be counted: simulate, select, sweep and
            study then mark its time as a guess.
        state: whether something is carried from call to call: the `state` of encode's Context, float32 of the blocks' shape.
        wire_bytes: bytes of a message of so many elements. The functions then get whole messages: encode(message) of shape
            [elements], decode(wire, elements); with measure(message), encode(message, statistics).
        variable: whether the data decide how long a wire is; wire_bytes is then the most, encode returns what is needed, and decode
            gets that. Bytes and times of the reference and of `reduce` are those that were sent.
        shared: whether all ranks encode by the same numbers, the largest that any of them has measured: measure(blocks) is
            float32 [n], one for each block (of a whole message: one number), and encode(blocks, statistics) has what was agreed.
            With add(wire, other) of the shape of the wires, sums are made of codes, without decoding: context.world_size says
            for how many ranks there must be room.
        saturating: dtypes in which it promises that no finite tensor decodes to an infinity; `arlab.check_codec` holds it to that.
        summary, source: for `arlab.codecs().table`.

    An `encode(self, blocks, context)` is told where its blocks stand (`Context`): context.random(blocks.shape) are random numbers
    that are the same in every order; rank, step, chunk and call say what is encoded.

    On emulated GPUs (platform "host") it runs where device code would, if its blocks divide 2048 elements.

    Every block is encoded by itself, all in one call: bits must not depend on which blocks share a call. Of a block with a
    NaN or an infinity, a NaN or an infinity must remain. `arlab.check_codec(name)` checks that, and more.

    Raises ArgumentError (a ValueError) when the class does not do what it should with a block of zeros.
    """

    def define(own: Class) -> Class:
        made = own() if isinstance(own, type) else own
        uses_context = _takes_context(made, 2 if shared or (wire_bytes is not None and hasattr(made, "measure")) else 1)
        if state and not uses_context:
            raise ArgumentError(f"codec {name}: state=True: needed is an encode(blocks, context), whose context has the state")
        if shared and not hasattr(made, "measure"):
            raise ArgumentError(f"codec {name}: shared=True: needed is a measure(blocks), float32 [n]")
        common = (name, made, block or 1, list(dtypes), uses_context, state, shared)
        adapter = _Adapter(*common) if wire_bytes is None else _MessageAdapter(wire_bytes, variable, *common)
        unknown = {dtype_name(dtype, f"codec {name}: saturating") for dtype in saturating} - set(adapter.types)
        if unknown:
            raise ArgumentError(f"codec {name}: saturating has {min(unknown)}, which it does not take")
        decisive = {
            "block": block, "dtypes": list(adapter.types), "encode_ops": encode_ops, "decode_ops": decode_ops, "saturating": [dtype_name(dtype, f"codec {name}: saturating") for dtype in saturating],
            "state": state, "wire_bytes": wire_bytes, "variable": variable, "shared": shared,
        }  # fmt: skip
        named = (encode_ops, decode_ops)
        # Another object, as a codec may keep what it is given, and these arrays are for once.
        counted = adapter.operations(own() if isinstance(own, type) else own) if None in named else ((0.0, False), (0.0, False))
        ops = [estimate if given is None else given for given, (estimate, _) in zip(named, counted)]
        guessed = any(given is None and is_guess for given, (_, is_guess) in zip(named, counted))
        _arlab.register_codec(
            name, summary or ((own.__doc__ or "").strip() or name or "?").splitlines()[0], source, block,
            list(adapter.wire_bytes.items()), decisive["saturating"],
            *ops, uses_context or shared, state, variable, adapter.of_message if wire_bytes is not None else None,
            adapter.measure if shared else None, adapter.add if shared and hasattr(made, "add") else None,
            adapter.encode, adapter.decode, fingerprint("codec", name, made, decisive), guessed,
        )  # fmt: skip
        HEADERS.pop(name, None)
        OWN[name] = own, {**decisive, "summary": summary, "source": source}
        return own

    name_of_own(name, "a codec")
    for what, ops in (("encode_ops", encode_ops), ("decode_ops", decode_ops)):
        if ops is None:
            continue
        if not isinstance(ops, (int, float, np.integer, np.floating)) or not 0 <= ops <= sys.float_info.max:
            raise ArgumentError(f"codec {name}: {what} is {ascii(ops)}: allowed is a number from 0 on")
    if (block is not None or wire_bytes is None) and (not isinstance(block, int) or isinstance(block, bool) or block < 1):
        of_message = "; or None, with wire_bytes=, for a codec of whole messages" if block is None else ""
        raise ArgumentError(f"codec {name}: block is {ascii(block)}: allowed is an integer from 1 on{of_message}")
    if shared and wire_bytes is not None and block is not None:
        raise ArgumentError(f"codec {name}: shared=True: whole messages have one number that is shared: needed is block=None")
    if variable and wire_bytes is None:
        raise ArgumentError(f"codec {name}: variable=True: needed is wire_bytes=, the most that a message of so many elements takes")
    for what, named in (("dtypes", dtypes), ("saturating", saturating)):
        if isinstance(named, str) or not isinstance(named, Iterable):
            raise ArgumentError(f"codec {name}: {what} is {ascii(named)}: allowed is a list of dtypes")
    return define


def codec_from_header(file: str | os.PathLike[str]) -> str:
    """Makes the codec of a C++ header one of this process, as `--codec-header` does for a command, and returns its name.

        arlab.codec_from_header("my_codec.h")    # arlab new codec NAME --header my_codec.h writes one to begin with

    The system's C++ compiler (CXX, or c++, g++, clang++) makes a library of it, once: the cache of compiled kernels keeps it. Where the
    header lists several names, all are known, and the first is returned. Calling it again, once the header has changed, replaces them.
    GPUs compile the header into the kernels of their calls, as they do with built-in codecs; emulated GPUs call the library.

    Raises ArgumentError (a ValueError), with file and line, where the header does not compile, lacks a function, or says wrong sizes;
    and where there is no compiler.
    """
    return define_from_header(_arlab.CompiledHeader(os.fspath(file)))


def define_from_header(header: _arlab.CompiledHeader) -> str:
    names = header.register()
    for name in names:
        OWN.pop(name, None)
        HEADERS[name] = header
        fingerprint("codec", name, header.hash)  # for definitions that call it by name
    return names[0]


def _takes_context(own: Any, others: int) -> bool:
    """Whether encode takes a Context behind so many others: the blocks, and maybe statistics."""
    try:
        kinds = [each.kind for each in inspect.signature(own.encode).parameters.values()]
    except (TypeError, ValueError, AttributeError):  # functions without a signature are called with blocks
        return False
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds) > others


class _Adapter:
    """A codec in Python as C++ calls it: with bytes that are there, and bytes that are to be written."""

    block_wires = True  # [blocks, bytes]; else a wire is one row
    count: Count | None = None  # while operations are counted

    def __init__(
        self, name: str, own: OwnCodec, block: int, dtypes: list[Any], uses_context: bool, has_state: bool, shared: bool
    ):  # fmt: skip
        self.name, self.own, self.block, self.uses_context, self.shared = name, own, block, uses_context, shared
        self.has_state = has_state
        if not dtypes:
            raise ArgumentError(f"codec {name}: it takes no dtype")
        names = [dtype_name(dtype, f"codec {name}: dtype") for dtype in dtypes]
        self.types = {each: numpy_dtype(each) for each in names}
        self.wire_bytes: dict[str, int] = {}
        self._try(has_state)

    def _try(self, has_state: bool) -> None:
        """Calls both functions with zeros."""
        name, block = self.name, self.block
        for dtype, kind in self.types.items():
            # Two sizes, so that a function that only works for one block is found here.
            for blocks in (1, 3):
                state = np.zeros((blocks, block), np.float32) if has_state else None
                zeros = self._zeros(blocks, kind)
                statistics = self._measured(zeros, dtype) if self.shared else None
                wire = self._called("encode", zeros, dtype, Context(state=state), statistics)
                if wire.dtype != np.uint8 or wire.ndim != 2 or len(wire) != blocks or wire.shape[1] == 0:
                    self._refuse(f"encode of {blocks} x {block} {dtype}", wire, f"uint8 of shape ({blocks}, wire bytes of a block)")
                if self.wire_bytes.setdefault(dtype, wire.shape[1]) != wire.shape[1]:
                    raise ArgumentError(
                        f"codec {name}: encode gave {wire.shape[1]} bytes for a block of {dtype} and {self.wire_bytes[dtype]}"
                        " for another: needed is the same number always"
                    )
                self._decoded(wire, dtype)
                if self.shared and hasattr(self.own, "add"):
                    self.add(dtype, wire.reshape(-1), wire.reshape(-1).copy())

    def operations(self, own: Any) -> tuple[tuple[float, bool], tuple[float, bool]]:
        """Operations per element of encode and of decode, counted on random numbers, and whether that is a guess: where some are not
        seen, or the codec does not take arrays that count, they are at least those of usual codecs."""
        dtype, kind = next(iter(self.types.items()))
        elements = self.block * max(1, 1024 // self.block)
        numbers = np.random.default_rng(0).standard_normal(elements).astype(kind).view(np.uint8)
        size = -(-elements // self.block) * self.wire_bytes[dtype] if self.block_wires else self.of_message(dtype, elements)
        wire = np.zeros(size, np.uint8)
        statistics = self._measured(self._blocks(dtype, numbers), dtype) if self.shared else None
        carried = np.zeros(elements, np.float32) if self.has_state else None
        counts: list[tuple[float, bool]] = []
        kept, self.own = self.own, own
        try:
            for function, usual in (
                (lambda: self.encode(dtype, numbers, wire.copy(), (), carried, statistics), 10.0),
                (lambda: self.decode(dtype, wire, numbers.copy()), 3.0),
            ):  # fmt: skip
                of_each, is_guess = 0.0, True
                try:
                    if not counts:  # decode gets a wire, whatever can be counted
                        self.encode(dtype, numbers, wire, (), carried, statistics)
                    self.count = Count()
                    function()
                    of_each, is_guess = self.count.operations / elements, self.count.is_guess
                except ArgumentError:
                    pass
                finally:
                    self.count = None
                counts.append((max(of_each, usual) if is_guess else of_each, is_guess))
        finally:
            self.own = kept
        return counts[0], counts[1]

    def of_message(self, dtype: str, elements: int) -> int:
        raise NotImplementedError

    def _refuse(self, what: str, made: np.ndarray, needed: str) -> NoReturn:
        raise ArgumentError(f"codec {self.name}: {what} gave {_kind(made)}: needed is {needed}")

    def _zeros(self, blocks: int, kind: np.dtype) -> np.ndarray:
        try:
            return np.zeros((blocks, self.block), kind)
        except (MemoryError, ValueError):  # the latter where they cannot be addressed
            raise ArgumentError(f"codec {self.name}: block is {self.block}: not enough memory for {blocks} of them") from None

    def _measured(self, blocks: np.ndarray, dtype: str) -> np.ndarray:
        measured = self._called("measure", blocks, dtype)
        count = len(blocks) if blocks.ndim == 2 else 1
        if measured.size != count or measured.dtype.kind not in "fiu":
            self._refuse(f"measure of {count} blocks of {dtype}", measured, f"float32 ({count},)")
        return measured.astype(np.float32).reshape(count)

    def _called(
        self, function: str, argument: np.ndarray, dtype: str, context: Context | None = None, statistics: np.ndarray | None = None
    ) -> np.ndarray:
        arguments = [argument, *([] if statistics is None else [statistics]), *([context] if self.uses_context and context else [])]
        # Codecs are tested with overflow and the like.
        with np.errstate(all="ignore"):
            return np.asarray(self._answer(function, f"{len(argument)} blocks of {dtype}", *arguments))

    def _answer(self, function: str, of: str, *arguments: Any) -> Any:
        count = self.count
        if count is not None:
            arguments = tuple(_counted(each, count) for each in arguments)
        try:
            made = getattr(self.own, function)(*arguments)
            return made.plain if isinstance(made, Counted) else made
        except Exception as error:
            where = f"codec {self.name}: {function} of {of}"
            raise ArgumentError(f"{where} raised {type(error).__name__}: {first_line(error)}") from error

    def _decoded(self, wire: np.ndarray, dtype: str) -> np.ndarray:
        values = self._called("decode", wire, dtype)
        return self._of_payload(values, dtype, (len(wire), self.block), f"{len(wire)} blocks of {dtype}")

    def _of_payload(self, values: np.ndarray, dtype: str, shape: tuple[int, ...], of: str) -> np.ndarray:
        """Returns the decoded values in the payload's dtype."""
        kind = self.types[dtype]
        if values.shape != shape or values.dtype not in (kind, np.dtype(np.float32)):
            self._refuse(f"decode of {of}", values, f"{kind} (or float32) of shape {shape}")
        with np.errstate(all="ignore"):
            return values.astype(kind, copy=False)

    def _keep_state(self, context: Context, shape: tuple[int, ...], carried: np.ndarray) -> None:
        state = np.asarray(context.state)
        if state.shape != shape:
            raise ArgumentError(f"codec {self.name}: encode left {_kind(state)} as its state: needed is {shape}")
        carried[...] = state.reshape(-1)[: carried.size]

    # Arrays that C++ made are copied: a codec may keep what it is given.
    def _blocks(self, dtype: str, payload: np.ndarray) -> np.ndarray:
        elements = payload.view(self.types[dtype])
        blocks = np.zeros((-(-elements.size // self.block), self.block), self.types[dtype])
        blocks.reshape(-1)[: elements.size] = elements
        return blocks

    def measure(self, dtype: str, payload: np.ndarray, statistics: np.ndarray) -> None:
        statistics[...] = self._measured(self._blocks(dtype, payload), dtype)

    def add(self, dtype: str, wire: np.ndarray, total: np.ndarray) -> None:
        shape = (-1, self.wire_bytes[dtype]) if self.block_wires else (-1,)
        given = [each.reshape(shape).copy() for each in (wire, total)]
        with np.errstate(all="ignore"):
            made = np.asarray(self._answer("add", f"wires of {dtype}", *given))
        if made.dtype != np.uint8 or made.shape != given[0].shape:
            self._refuse("add", made, f"uint8 of shape {given[0].shape}")
        total[...] = made.reshape(-1)

    def encode(
        self, dtype: str, payload: np.ndarray, wire: np.ndarray, numbers: tuple[int, ...] = (), carried: np.ndarray | None = None,
        statistics: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        elements = payload.view(self.types[dtype])
        blocks = self._blocks(dtype, payload)
        context = Context(*numbers)
        if carried is not None:
            state = np.zeros(blocks.shape, np.float32)
            state.reshape(-1)[: elements.size] = carried
            context = replace(context, state=state)
        made = self._called("encode", blocks, dtype, context, None if statistics is None else statistics.copy())
        expected = (len(blocks), self.wire_bytes[dtype])
        if made.dtype != np.uint8 or made.shape != expected:
            self._refuse(f"encode of {len(blocks)} blocks of {dtype}", made, f"uint8 of shape {expected}")
        wire.reshape(expected)[...] = made
        if carried is not None:
            self._keep_state(context, blocks.shape, carried)

    def decode(self, dtype: str, wire: np.ndarray, payload: np.ndarray) -> None:
        values = self._decoded(wire.reshape(-1, self.wire_bytes[dtype]).copy(), dtype)
        elements = payload.view(self.types[dtype])
        elements[...] = values.reshape(-1)[: elements.size]


class _MessageAdapter(_Adapter):
    """A codec of whole messages."""

    block_wires = False
    LENGTH = 8  # bytes, with which a wire of variable length begins

    def __init__(self, wire_bytes: Callable[[int], int], variable: bool, *common: Any):
        self.bytes_of, self.variable = wire_bytes, variable
        super().__init__(*common)

    def _try(self, has_state: bool) -> None:
        for dtype, kind in self.types.items():
            for elements in (1, 3 * self.block):  # found here: a function that only works for some
                self.wire_bytes[dtype] = 1  # not of a block
                wire = np.zeros(self.of_message(dtype, elements), np.uint8)
                payload = np.zeros(elements, kind)
                carried = np.zeros(elements, np.float32) if has_state else None
                statistics = self._measured(payload, dtype) if self.shared else None
                self.encode(dtype, payload.view(np.uint8), wire, (), carried, statistics)
                self.decode(dtype, wire, payload.view(np.uint8))

    def of_message(self, dtype: str, elements: int) -> int:
        try:
            count = int(self.bytes_of(elements))
        except Exception as error:
            raise ArgumentError(f"codec {self.name}: wire_bytes({elements}) raised {type(error).__name__}: {first_line(error)}") from error
        if not 1 <= count <= 64 * elements + (1 << 20):
            raise ArgumentError(f"codec {self.name}: wire_bytes({elements}) is {count}: allowed are 1 to {64 * elements + (1 << 20)}")
        return count + (self.LENGTH if self.variable else 0)

    def _blocks(self, dtype: str, payload: np.ndarray) -> np.ndarray:
        return payload.view(self.types[dtype]).copy()

    def encode(
        self, dtype: str, payload: np.ndarray, wire: np.ndarray, numbers: tuple[int, ...] = (), carried: np.ndarray | None = None,
        statistics: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        message = self._blocks(dtype, payload)
        context = Context(*numbers) if carried is None else Context(*numbers, state=carried.copy())
        arguments, of = [message], f"{len(message)} {dtype}"
        with np.errstate(all="ignore"):
            if statistics is not None:
                arguments.append(statistics.copy())
            elif hasattr(self.own, "measure"):
                arguments.append(self._answer("measure", of, message))
            made = np.asarray(self._answer("encode", of, *arguments, *([context] if self.uses_context else [])))
        room = len(wire) - (self.LENGTH if self.variable else 0)
        if made.dtype != np.uint8 or made.ndim != 1 or (len(made) > room if self.variable else len(made) != room):
            self._refuse(f"encode of {of}", made, f"uint8 of shape ({'at most ' if self.variable else ''}{room},)")
        if self.variable:
            wire[: self.LENGTH] = np.frombuffer((self.LENGTH + len(made)).to_bytes(self.LENGTH, "little"), np.uint8)
            wire[self.LENGTH + len(made) :] = 0
            wire = wire[self.LENGTH : self.LENGTH + len(made)]
        wire[...] = made
        if carried is not None:
            self._keep_state(context, carried.shape, carried)

    def decode(self, dtype: str, wire: np.ndarray, payload: np.ndarray) -> None:
        elements = payload.view(self.types[dtype])
        if self.variable:
            used = int.from_bytes(wire[: self.LENGTH].tobytes(), "little")
            if not self.LENGTH <= used <= len(wire):
                raise ArgumentError(f"codec {self.name}: a wire that says it has {used} bytes; allowed are {self.LENGTH} to {len(wire)}")
            wire = wire[self.LENGTH : used]
        of = f"{len(elements)} {dtype}"
        with np.errstate(all="ignore"):
            values = np.asarray(self._answer("decode", of, wire.copy(), len(elements)))
        elements[...] = self._of_payload(values, dtype, elements.shape, of)


def _counted(argument: Any, count: Count) -> Any:
    """As a codec gets it that is counted."""
    if isinstance(argument, np.ndarray):
        return Counted(argument, count)
    if isinstance(argument, Context):
        return _CountedContext(count, argument)
    return argument


class _CountedContext:
    """A context whose arrays count."""

    def __init__(self, count: Count, context: Context):
        self.__dict__.update(vars(context), _count=count, _context=context)
        if context.state is not None:
            self.state = Counted(context.state, count)

    def random(self, shape: int | Sequence[int]) -> Counted:
        return Counted(self._context.random(shape), self._count)


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
