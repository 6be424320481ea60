"""Somebody's all-reduce or codec, checked, bit for bit.

Any all-reduce: exact as what, deterministic, the same on all ranks, how far off?

    report = arlab.conformance.check(my_all_reduce, world_size=4, dtype="bf16")
    print(report)
    assert report.passed, report.findings

The all-reduce is a Python function on tensors. It is called many times, with Gaussian and adversarial values (zeros of
both signs, ties, subnormals, huge values, infinities, NaN) that differ on every rank. Its results are compared, bit for
bit, with the algorithms of arlab's reference and with orders of summation that libraries use, and with themselves: from
run to run, and between ranks. Zeros, outputs that are not written, writes behind the end, and ranks whose contribution
is missing are found and named.

Of a process in another language, `arlab judge` does the same over two pipes or by files, with the same report.

An all-reduce with a residual and an RMSNorm behind it: where does it round, and what does it do wrong?

    tail = arlab.Tail(residual="add", norm="rms", eps=1e-5)
    report = arlab.conformance.check_tail(my_fused_all_reduce, world_size=2, tail=tail)
    print([match["name"] for match in report.exact_as])     # ["vllm,root=rsqrt"]

A codec in NumPy, PyTorch or Triton against the reference's:

    report = arlab.conformance.check_codec(my_encode, my_decode, "qr-q4", dtype="fp16")
    assert report.passed, report.findings
"""

from __future__ import annotations

import io
import inspect
import json
import os
from functools import partial
from pathlib import Path
from typing import Any, Callable, Protocol, Sequence

import numpy as np

from arlab import _arlab
from arlab._deprecated import renamed
from arlab._errors import Error
from arlab._files import parsed_json, read_whole, temporary_folder
from arlab._tables import Result, ask
from arlab._tails import Tail

__all__ = [
    "check", "check_codec", "check_tail", "Report", "CodecReport", "TailReport", "Tensors", "NumpyTensors", "TorchTensors", "CheckError",
]  # fmt: skip

_MODES = ("returns", "in_place", "out")
_DTYPES = ("fp16", "bf16", "fp32")


class CheckError(Error):
    """The check could not be done: the all-reduce raised an exception, or an argument is wrong."""


class _Judged(Result):
    """A report that says itself what people read."""

    def __init__(self, data: dict[str, Any], text: str):
        super().__init__(data)
        self._text = text

    def __str__(self) -> str:
        return self._text.rstrip()


class Report(_Judged):
    """Behaviour of an all-reduce. `data` holds everything, schema arlab.judge/1.

    passed            True when there are no findings
    verdict           one line: passed or failed, ranks, dtype and the claim
    findings          what an all-reduce must not do, one line each
    deterministic     repeated calls gave the same bits
    ranks_identical   all ranks got the same bits
    exact_as          the candidates that have every bit of every result, for example `one_shot/bf16/native`
    not_told_apart    candidates and orders of additions that would have given the same bits for these inputs, or all but zeros of
                      another sign, NaN and infinities: longer tensors, more ranks or another dtype may tell them apart
    ranges            the same by ranges of lengths, where it depends on them: a dict each, `from`, `to`, `exact_as`
    """

    SHOWN = ("verdict", "deterministic", "ranks_identical", "calls", "compared_elements")

    passed: bool
    verdict: str
    findings: list[str]
    deterministic: bool
    ranks_identical: bool
    exact_as: list[str]
    not_told_apart: list[str]
    ranges: list[dict[str, Any]]

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(signal / error) in dB against the float64 sum, on Gaussian inputs; None without error."""
        return self.data["errors"][0]["sqnr_db"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.data == other.data


class Tensors(Protocol):
    """Where an all-reduce's tensors are: makes regions of memory out of bytes, and tensors in them."""

    def region(self, rank: int, content: np.ndarray) -> Any:
        """Memory of the rank that holds these bytes (uint8, one dimension)."""

    def tensor(self, region: Any, dtype: str, begin: int, elements: int) -> Any:
        """The tensor in a region, from byte `begin` (a multiple of 256) on."""

    def store(self, region: Any, dtype: str, begin: int, elements: int, result: Any) -> None:
        """Copies a tensor that the all-reduce returned into a region; raises unless shape and dtype fit."""

    def read(self, region: Any) -> np.ndarray:
        """The bytes of a region, once all work on it is done."""


class _Typed:
    """Tensors in regions of bytes, by types of a library."""

    _types: dict[str, Any]

    def type_of(self, dtype: str) -> Any:
        if dtype not in self._types:
            raise CheckError("bf16 arrays need the package ml_dtypes; or pass NumpyTensors(raw_bf16=True)")
        return self._types[dtype]

    def tensor(self, region: Any, dtype: str, begin: int, elements: int) -> Any:
        kind = self.type_of(dtype)
        return region[begin : begin + elements * kind.itemsize].view(kind)


class NumpyTensors(_Typed):
    """Arrays of NumPy. bf16 is ml_dtypes.bfloat16, or raw bit patterns (uint16) with raw_bf16=True."""

    def __init__(self, raw_bf16: bool = False):
        self._types = {"fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32), "bf16": np.dtype(np.uint16)}
        if not raw_bf16:
            try:
                import ml_dtypes
            except ImportError:
                del self._types["bf16"]
            else:
                self._types["bf16"] = np.dtype(ml_dtypes.bfloat16)

    def region(self, rank: int, content: np.ndarray) -> np.ndarray:
        return content.copy()

    def store(self, region: np.ndarray, dtype: str, begin: int, elements: int, result: Any) -> None:
        result = np.asarray(result)
        _require_fit(result.dtype == self.type_of(dtype), result.size == elements, dtype, elements, result)
        region[begin : begin + result.nbytes] = np.ascontiguousarray(result).view(np.uint8).reshape(-1)

    def read(self, region: np.ndarray) -> np.ndarray:
        return region


class TorchTensors(_Typed):
    """Tensors of PyTorch. `device` is one device, or one per rank; synchronizes the device before it reads."""

    def __init__(self, device: Any):
        import torch

        self._torch = torch
        self._devices = list(device) if isinstance(device, (list, tuple)) else [device]
        self._types = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}

    def region(self, rank: int, content: np.ndarray) -> Any:
        device = self._devices[rank % len(self._devices)]
        return self._torch.from_numpy(content.copy()).to(device)

    def store(self, region: Any, dtype: str, begin: int, elements: int, result: Any) -> None:
        _require_fit(result.dtype == self._types[dtype], result.numel() == elements, dtype, elements, result)
        self.tensor(region, dtype, begin, elements).copy_(result.reshape(-1))

    def read(self, region: Any) -> np.ndarray:
        if region.is_cuda:  # also on ROCm
            self._torch.cuda.synchronize(region.device)
        return region.cpu().numpy()


def _require_fit(
    type_fits: bool, size_fits: bool, dtype: str, elements: int, result: Any, who: str = "the all-reduce"
) -> None:
    if not type_fits or not size_fits:
        raise CheckError(
            f"{who} returned {getattr(result, 'dtype', type(result))} of shape"
            f" {tuple(getattr(result, 'shape', ()))}: expected is {dtype} of shape ({elements},)"
        )


def check(
    all_reduce: Callable[..., Any],
    *,
    world_size: int,
    dtype: str = "fp16",
    lengths: Sequence[int] | None = None,
    runs: int = 3,
    seed: int = 1,
    mode: str = "returns",
    codec: str | None = None,
    claim: str | None = None,
    rank: int | None = None,
    gather: Callable[[bytes], Sequence[bytes]] | None = None,
    tensors: Tensors | None = None,
) -> Report:
    """Checks an all-reduce.

    In one process that drives all ranks (`rank` is None), `all_reduce` is given the list of all ranks' tensors. With
    one process per rank, every process calls check() with the same arguments but for `rank`; `all_reduce` is given this
    rank's tensor, and `gather` turns the bytes of this rank into those of all ranks, in rank order.

    Args:
        all_reduce: mode "returns": takes the tensor (the list), returns a new one. "in_place": changes what it is given.
            "out": takes the tensor and an output (two lists), writes the output.
        world_size: 2 to 64.
        dtype: "fp16", "bf16" or "fp32".
        lengths: elements per rank, of every tensor tried; default: 1 to 65541.
        runs: how often every case runs, at least 2.
        codec: compare with algorithms that use this codec, too.
        claim: what the all-reduce says it is; then every bit must be right. ALGORITHM/CODEC/SUM, for example "two_shot/qr-q4/native"
            or "two_shot/int4-g128/decode=fp32,add=fp32", or somebody's by name: "flashinfer-fp8", "torchft-fp8/block=64".
        tensors: where tensors are; default NumpyTensors(). TorchTensors("cuda:0") for PyTorch.

    Raises:
        CheckError: an argument is wrong, or the all-reduce raised an exception (on any rank).
    """
    if mode not in _MODES:
        raise CheckError(f"mode {mode!r}: allowed are {', '.join(_MODES)}")
    session = _Session(all_reduce, dtype, mode, rank, gather, tensors, world_size)
    data, text = session.report(
        _arlab.check_all_reduce, lengths=list(lengths or []), runs=runs, seed=seed, in_place=mode == "in_place",
        codec=codec or "", claim=claim or "",
    )  # fmt: skip
    return Report(json.loads(data), text)


class TailReport(_Judged):
    """Behaviour of a fused tail. `data` holds everything, schema arlab.judge.tail/1.

    passed            True when there are no findings
    verdict           one line: passed or failed, ranks, dtype and the claim
    findings          what a tail must not do, one line each: "the residual is added twice"
    deterministic     repeated calls gave the same bits
    ranks_identical   all ranks got the same bits
    exact_as          the roundings that have every bit: a dict each, `name` ("vllm,root=rsqrt", "weight=first"),
                      `threads` whose order of squares has every bit, empty where the order is not known; `widest`,
                      how many means of squares have a row's bits at most, and `widest_relative`, their span
    rows_by_unknown   rows that were decided so, of `compared_rows`
    """

    SHOWN = ("verdict", "deterministic", "ranks_identical", "calls", "compared_rows", "rows_by_unknown")


def check_tail(
    fused: Callable[..., Any],
    *,
    world_size: int,
    tail: Tail | str = Tail(residual="add", norm="rms"),
    dtype: str = "fp16",
    hidden: Sequence[int] | None = None,
    rows: int = 8,
    runs: int = 3,
    seed: int = 1,
    returns: str = "both",
    claim: str | None = None,
    rank: int | None = None,
    gather: Callable[[bytes], Sequence[bytes]] | None = None,
    tensors: Tensors | None = None,
) -> TailReport:
    """Checks an all-reduce with a residual and an RMSNorm behind it: which rounding it has, or what it does wrong.

    Two ranks contribute to every element, the others 0: the sum does not depend on the order of additions.

    Args:
        fused: takes (inputs, residual, weight, eps): lists of all ranks' tensors, [rows, hidden], [rows, hidden] and
            [hidden], the residual None where the tail has none. Returns a list with (normalized, residual) of every
            rank, the residual with the sum in it. With one process per rank, `rank` and `gather` as in check(), it
            takes and returns this rank's.
        world_size: 1 to 64; of one rank the inputs are the sums.
        tail: what it is to do: residual, norm="rms", eps, offset.
        hidden: elements of rows, of all tensors tried; default: the tail's, else 576 and 4096.
        rows: of every tensor: tokens, 1 to 256.
        runs: how often every case runs, 2 to 100.
        returns: "normalized": what it returns is that alone.
        claim: its claimed rounding: "vllm,root=rsqrt", "add=fp32,weight=first"; threads= is an order of squares.
        tensors: where tensors are, as in check().

    Raises:
        CheckError: an argument is wrong, or the function raised an exception (on any rank).
    """
    if returns not in ("both", "normalized"):
        raise CheckError(f"returns {returns!r}: allowed are both, normalized")
    session = _TailSession(fused, dtype, returns, rank, gather, tensors, world_size)
    data, text = session.report(
        _arlab.check_tail, tail=str(tail), hidden=list(hidden or []), rows=rows, runs=runs, seed=seed,
        claim=claim or "", has_residual_out=returns == "both",
    )  # fmt: skip
    return TailReport(json.loads(data), text)


class _Session:
    """Answers the calls of one check."""

    def __init__(self, function, dtype, mode, rank, gather, tensors, world_size):
        if dtype not in _DTYPES:
            raise CheckError(f"dtype {dtype!r}: allowed are {', '.join(_DTYPES)}")
        if (rank is None) != (gather is None):
            raise CheckError("rank and gather belong together: both with one process per rank, none in one process")
        if rank is not None and not 0 <= rank < world_size:
            raise CheckError(f"rank {rank}: allowed are 0 to {world_size - 1}")
        self.function, self.dtype, self.mode, self.ranks = function, dtype, mode, world_size
        self.rank, self.gather, self.tensors = rank, gather, tensors if tensors is not None else NumpyTensors()
        self.raised: Exception | None = None  #: by a call

    def report(self, check: Callable[..., Any], **asked: Any) -> Any:
        """Returns the C++ check's report of the function."""
        try:
            return check(self.called, ranks=self.ranks, dtype=self.dtype, **asked)
        except Error as error:
            raise CheckError(str(error)) from self.raised

    def called(self, call: dict[str, int], regions: np.ndarray) -> str:
        """Why the all-reduce failed; empty when it did not."""
        try:
            self.answer(call, regions)
        except Exception as error:  # noqa: BLE001
            self.raised = self.raised or error
            return _line(error)
        return ""

    def answer(self, call: dict[str, int], regions: np.ndarray) -> None:
        """`regions` holds a row of bytes per rank; what came out of the all-reduce replaces it."""
        if self.rank is None:
            for row, out in zip(regions, self._run(call, list(enumerate(regions)))):
                row[:] = out
            return
        # A rank that failed still takes part, so that all ranks hear of it.
        try:
            mine = b"\0" + self._run(call, [(self.rank, regions[self.rank])])[0].tobytes()
        except Exception as error:  # noqa: BLE001
            self.raised = error
            mine = b"\1" + f"rank {self.rank}: {_line(error)}".encode()
        parts = list(self.gather(mine))
        if len(parts) != len(regions):
            raise CheckError(f"gather must give a part of each of {len(regions)} ranks, in a list: its length is {len(parts)}")
        for part in map(bytes, parts):
            if part[:1] != b"\0":
                raise CheckError(part[1:].decode(errors="replace"))
        for row, part in zip(regions, parts):
            row[:] = np.frombuffer(part, np.uint8, offset=1)

    def _run(self, call, ranks) -> list[np.ndarray]:
        elements, dtype = call["elements"], self.dtype
        memory = [self.tensors.region(rank, content) for rank, content in ranks]
        inputs = [self.tensors.tensor(region, dtype, call["input_at"], elements) for region in memory]
        alone = self.rank is not None
        arguments = [inputs[0] if alone else inputs]
        if self.mode == "out":
            outputs = [self.tensors.tensor(region, dtype, call["output_at"], elements) for region in memory]
            arguments.append(outputs[0] if alone else outputs)
        results = self.function(*arguments)
        if self.mode == "returns":
            for region, result in zip(memory, self._of_ranks(results, memory, "tensors")):
                self.tensors.store(region, dtype, call["output_at"], elements, result)
        return [self.tensors.read(region) for region in memory]

    def _of_ranks(self, results: Any, memory: list[Any], what: str) -> Sequence[Any]:
        results = results if self.rank is None else [results]
        if not isinstance(results, (list, tuple)) or len(results) != len(memory):
            raise CheckError(f"the all-reduce must return a list of {len(memory)} {what}, one per rank")
        return results


class _TailSession(_Session):
    """The same of a fused tail, whose mode says what it returns."""

    def _run(self, call, ranks) -> list[np.ndarray]:
        hidden, elements, alone = call["hidden"], call["rows"] * call["hidden"], self.rank is not None
        memory = [self.tensors.region(rank, content) for rank, content in ranks]

        def tensors_at(where: str, count: int, *shape: int) -> Any:
            found = [self.tensors.tensor(region, self.dtype, call[where], count).reshape(shape) for region in memory]
            return found[0] if alone else found

        residual = tensors_at("residual_at", elements, -1, hidden) if call["has_residual"] else None
        eps = float(np.uint32(call["eps_bits"]).view(np.float32))
        results = self.function(
            tensors_at("input_at", elements, -1, hidden), residual, tensors_at("weight_at", hidden, hidden), eps
        )
        places = ("normalized_at", "residual_out_at") if self.mode == "both" else ("normalized_at",)
        for region, made in zip(memory, self._of_ranks(results, memory, "results")):
            made = made if self.mode == "both" else (made,)
            if not isinstance(made, (list, tuple)) or len(made) != len(places):
                raise CheckError('the tail must return (normalized, residual) of a rank, or returns="normalized"')
            for where, tensor in zip(places, made):
                self.tensors.store(region, self.dtype, call[where], elements, tensor)
        return [self.tensors.read(region) for region in memory]


def _line(error: Exception) -> str:
    """An exception on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  (its own text is an error, too)
        text = "(it has no text)"
    return text[:500] if isinstance(error, CheckError) else f"{type(error).__name__}: {text}"[:500]


# ---------------------------------------------------------------- codecs


class CodecReport(Result):
    """How a codec compares with the reference. `cases`: a dict each, with the numbers of bytes and elements that were
    compared and that differ; `findings`: a line for each case in which something differs, with the first place."""

    SHOWN = ("codec", "passed")

    codec: str
    cases: list[dict[str, Any]]
    findings: list[str]

    @property
    def passed(self) -> bool:
        """True when every byte of every wire and every bit of every decoded element is the reference's."""
        return not self.findings

    def __str__(self) -> str:
        wire = sum(case["wire_bytes"] for case in self.cases)
        decoded = sum(case["elements"] for case in self.cases)
        lines = [f"{len(self.cases)} cases, {wire} wire bytes and {decoded} decoded elements compared"]
        lines += [f"WRONG: {finding}" for finding in self.findings]
        return "\n".join([*lines, f"{'passed' if self.passed else 'failed'}: codec {self.codec}"])


@renamed(dtypes="dtype")
def check_codec(
    encode: Callable[[Any], Any] | None,
    decode: Callable[..., Any] | None,
    codec: str | os.PathLike[str],
    *,
    dtype: str | Sequence[str] | None = None,
    block: int | None = None,
    device: Any = None,
) -> CodecReport:
    """Compares somebody's codec with the reference: every wire byte, and every bit of what wires decode to.

    The inputs are those of `arlab vectors`: Gaussian values, outliers, every bit pattern, zeros of both signs, ties,
    subnormals, huge values, infinities and NaN, and lengths that are no whole blocks. decode is given the reference's wires.

    Args:
        encode: takes a tensor of one dimension, returns its wire bytes, uint8 of one dimension. None: is not checked. One that takes
            (tensor, dtype), as the vector pack calls it, is given the dtype's name, "fp16", and so is decode.
        decode: takes (wire, dtype, elements), returns the tensor. None: is not checked.
        codec: a name (see arlab.codecs()), or a folder that `arlab vectors` has written.
        dtype: "fp16", "bf16" or "fp32", or several; by default all that the codec takes.
        block: encode and decode are those of a class for @arlab.codec: [n, block] to [n, wire bytes] and back, the last block
            filled up with zeros. Where the reference's last block is shorter, its bytes are not compared.
        device: PyTorch's device that tensors are on ("cuda:0", "cpu"); by default they are NumPy's, bf16 of ml_dtypes.

    Returns a CodecReport.
    Raises CheckError when a function raises, or what it returns has another shape or dtype; ArgumentError (a ValueError) for an
    unknown codec, and for a dtype that it does not take.
    """
    if encode is None and decode is None:
        raise CheckError("there is nothing to check: encode and decode are both None")
    wanted = [dtype] if isinstance(dtype, str) else dtype and list(dtype)
    for each in wanted or []:
        if each not in _DTYPES:
            raise CheckError(f"dtype {each!r}: allowed are {', '.join(_DTYPES)}")
    folder = Path(codec)
    if (folder / "manifest.json").is_file():
        return _compare_codec(_Functions(encode, decode, block, device), folder, wanted)
    with temporary_folder() as made:
        into = Path(made) / "vectors"
        # One dtype is a matter of a third of the time.
        ask("vectors", {"folder": into, "codec": str(codec), "dtype": wanted[0] if wanted and len(wanted) == 1 else None})
        return _compare_codec(_Functions(encode, decode, block, device), into, wanted)


def _takes_two(encode: Any) -> bool:
    """Whether it needs a second argument, or calls it dtype."""
    try:
        of = inspect.signature(encode).parameters.values()
    except (TypeError, ValueError):  # a function without a signature is called with a tensor
        return False
    places = [each for each in of if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return len(places) > 1 and (places[1].default is places[1].empty or places[1].name == "dtype")


class _Functions:
    """Two functions of a codec, called with bytes."""

    def __init__(self, encode: Any, decode: Any, block: int | None, device: Any):
        self.encode, self.decode, self.block = encode, decode, block
        self._named = block is None and encode is not None and _takes_two(encode)
        self._tensors: Any = NumpyTensors() if device is None else TorchTensors(device)

    def encoded(self, payload: np.ndarray, dtype: str, elements: int) -> np.ndarray:
        if self.block is not None:
            payload = self._filled(payload, elements)
        tensor = self._tensor(payload, dtype)
        more = [dtype] if self._named else []
        wire = self._called("encode", self.encode, tensor if self.block is None else tensor.reshape(-1, self.block), *more)
        kind = str(getattr(wire, "dtype", type(wire).__name__)).removeprefix("torch.")
        if kind != "uint8" or (self.block is None and wire.ndim != 1):
            raise CheckError(f"encode gave {kind} of shape {tuple(getattr(wire, 'shape', ()))}: needed are bytes (uint8)")
        return self._bytes(wire)

    def decoded(self, wire: np.ndarray, dtype: str, elements: int) -> np.ndarray:
        """The bytes of the elements; `wire` is a row per block where there are blocks."""
        kind = self._tensors.type_of(dtype)
        given = self._tensors.region(0, wire.reshape(-1))
        if self.block is None:
            values = self._called("decode", self.decode, given, dtype if self._named else kind, elements)
            _require_fit(values.dtype == kind, values.reshape(-1).shape[0] == elements, dtype, elements, values, "decode")
        else:
            values = self._called("decode", self.decode, given.reshape(wire.shape))
            if isinstance(values, np.ndarray):
                with np.errstate(all="ignore"):
                    values = values.astype(kind, copy=False)
            values = values.reshape(-1)[:elements]
        return self._bytes(values)

    def _filled(self, payload: np.ndarray, elements: int) -> np.ndarray:
        size = payload.size // elements
        filled = np.zeros(-(-elements // self.block) * self.block * size, np.uint8)
        filled[: payload.size] = payload
        return filled

    def _tensor(self, payload: np.ndarray, dtype: str) -> Any:
        size = 4 if dtype == "fp32" else 2
        return self._tensors.tensor(self._tensors.region(0, payload), dtype, 0, payload.size // size)

    def _bytes(self, tensor: Any) -> np.ndarray:
        if isinstance(tensor, np.ndarray):
            return np.ascontiguousarray(tensor).view(np.uint8).reshape(-1)
        return self._tensors.read(tensor.contiguous().view(self._tensors._torch.uint8)).reshape(-1)

    @staticmethod
    def _called(name: str, function: Any, *arguments: Any) -> Any:
        try:
            with np.errstate(all="ignore"):  # overflow and the like are what codecs are tested with
                return function(*arguments)
        except Exception as error:
            raise CheckError(f"{name}: {_line(error)}") from error


def _compare_codec(functions: _Functions, folder: Path, dtypes: list[str] | None) -> CodecReport:
    try:
        manifest = parsed_json(read_whole(folder / "manifest.json"))
        report = CodecReport({"codec": manifest["codec"], "cases": [], "findings": []})
        cases = [(case, case["dtype"], case["elements"], case["name"]) for case in manifest["cases"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckError(f"{folder}: not a folder of vectors as arlab writes it ({_line(error)})") from error
    for case, dtype, elements, _ in cases:
        if dtypes is not None and dtype not in dtypes:
            continue
        try:
            payload, decoded, wire = (_file(folder, case, part) for part in ("payload", "decoded", "wire"))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckError(f"{folder}: not a folder of vectors as arlab writes it ({_line(error)})") from error
        row = {"name": case["name"], "dtype": dtype, "elements": 0, "wire_bytes": 0, "wire_differs": 0, "elements_differ": 0}
        whole = functions.block is None or elements % functions.block == 0
        own = functions.encoded(payload, dtype, elements) if functions.encode else None
        if own is not None and whole:
            row["wire_bytes"] = wire.size
            explain = partial(_arlab.explain_wire, report.codec, dtype)
            row["wire_differs"] = _differing(report, f"{case['name']}: wire byte", own, wire, 1, explain, payload)
        if functions.decode is not None:
            given = wire
            if functions.block is not None:
                if own is None and not whole:
                    continue  # a block that is not filled up is nothing that decode has to know
                blocks = -(-elements // functions.block)
                given = (wire if whole else own).reshape(blocks, -1)
            row["elements"] = elements
            got = functions.decoded(given, dtype, elements)
            # Values are explained by the reference's wire: of a wire of one's own they may be right.
            explain = partial(_arlab.explain_values, report.codec, dtype)
            size = payload.size // elements
            row["elements_differ"] = _differing(report, f"{case['name']}: decoded element", got, decoded, size, explain, wire if whole else None)
        report.cases.append(row)
    if not report.cases:
        raise CheckError(f"none of the vectors is of {', '.join(dtypes or [])}")
    if not any(row["wire_bytes"] + row["elements"] for row in report.cases):
        lengths = ", ".join(map(str, sorted({elements for _, _, elements, _ in cases})))
        why = f"no vector is whole blocks of {functions.block} elements (they have {lengths}), and decode is None"
        raise CheckError(f"nothing was compared: {why}")
    return report


def _file(folder: Path, case: dict[str, Any], part: str) -> np.ndarray:
    path = folder / case["files"][part]["file"]
    if path.suffix == ".npy":
        return np.load(io.BytesIO(read_whole(path))).reshape(-1).view(np.uint8)
    return np.frombuffer(read_whole(path), np.uint8)


def _differing(
    report: CodecReport, what: str, got: np.ndarray, expected: np.ndarray, size: int, explain: Callable[[bytes, bytes], str],
    source: np.ndarray | None,
) -> int:  # fmt: skip
    """How many items of `size` bytes differ; the first goes to the findings, with what `explain` says of what was made of the source, if
    there is one."""
    if np.array_equal(got, expected):
        return 0
    try:
        why = "" if source is None else explain(source.tobytes(), got.tobytes())
    except Error:  # vectors of a codec that this version does not have
        why = ""
    why = why and f"; {why}"
    if got.size != expected.size:
        report.findings.append(f"{what}s: {got.size // size}, the reference has {expected.size // size}{why}")
        return expected.size // size
    rows = (got.reshape(-1, size) != expected.reshape(-1, size)).any(axis=1)
    count, at = int(rows.sum()), int(rows.argmax())
    values = [int.from_bytes(side.reshape(-1, size)[at].tobytes(), "little") for side in (got, expected)]
    report.findings.append(
        f"{what} {at} is 0x{values[0]:0{2 * size}x}, the reference's 0x{values[1]:0{2 * size}x}; {count} of {rows.size} differ{why}"
    )
    return count
