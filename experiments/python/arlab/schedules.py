"""Schedules: algorithms as plain data, proved without values; and algorithms of one's own."""

from __future__ import annotations

import functools
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, ClassVar, NamedTuple, TypeVar

from arlab import _arlab
from arlab._arlab import ScheduleBuilder
from arlab._errors import ArgumentError
from arlab._files import read_whole
from arlab._fingerprint import fingerprint
from arlab._tables import Names, checked, first_line, frame, name_of_own, listed

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["algorithm", "algorithms", "schedule", "ScheduleBuilder", "Schedule", "Algorithm", "Check", "Volume"]


class Check(NamedTuple):
    """Proofs about a schedule without values."""

    correct: bool  #: every rank ends with what the collective says, for every element
    violation: str  #: the first one, in words; empty when correct
    ranks_identical: bool  #: all ranks compute the same expressions, so they end with the same bits
    divergence: str  #: where they first differ, in words; else empty


class Volume(NamedTuple):
    """The sent bytes, in multiples of one rank's payload."""

    total: float  #: over all links
    cross_group: float  #: between groups, one direction


class Schedule(_arlab.Schedule):
    """Who encodes, sends and reduces which chunk, in which order. It holds no values; see arlab.schedule().

    algorithm     its name, for people
    collective    what it does: all_reduce, all_to_all, dispatch_combine, reduce_scatter, all_gather, broadcast
    ranks, elements    elements are per rank
    chunks        ranges [begin, end) of elements
    steps, ops    how many; ops are encodes, sends and reduces of all ranks
    """

    #: The algorithm and the request, if arlab.schedule() has made it.
    _asked: tuple[str, int, int, str, dict[str, Any]] | None = None

    @property
    def table(self) -> DataFrame:
        """The ops as a pandas.DataFrame: op, step, rank, to, chunk, from (an op's row, "input", or of a reduce several), start."""
        return frame(json.loads(self.to_json())["ops"])

    @property
    def volume(self) -> Volume:  # type: ignore[override]
        """Returns the volume with the fewest groups of equal size, at least two."""
        return self.volume_of(_arlab.default_group_size(self.ranks))

    @checked
    def volume_of(self, group_size: int) -> Volume:
        """Returns the volume with groups of so many consecutive ranks; it divides their number."""
        return Volume(*super().volume(group_size))

    def check(self) -> Check:  # type: ignore[override]
        """Proves the schedule correct, or describes its error."""
        return Check(**super().check())

    def to_json(self, path: str | Path | None = None, *, fractions: bool = False) -> str:  # type: ignore[override]
        """Returns the schedule as JSON (reference/collectives/schedule.schema.json); also written to `path`.

        Args:
            fractions: chunks as fractions of the tensor, so that it is an algorithm for tensors of any size. Messages that an inner
                codec may have are marked, so that it takes one, as the algorithm does.
        """
        text = super().to_json(fractions)
        if fractions and self._asked is not None:
            text = _arlab.make_marked_schedule(*self._asked).to_json(fractions)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    @checked
    def from_json(cls, text: str | Path, *, elements: int | None = None, alignment: int = 1) -> Schedule:
        """Reads a schedule from JSON text, or from a file (a Path, or a name that ends with .json).

        Args:
            elements: per rank, where chunks are fractions of the tensor.
            alignment: of the codec, likewise.

        Raises ArgumentError (a ValueError) that names the place; whether it is correct is for check() to say.
        """
        if isinstance(text, Path) or text.endswith(".json"):
            try:
                text = read_whole(text).decode()
            except (OSError, UnicodeDecodeError) as error:
                raise ArgumentError(f"{text} cannot be read: {error}") from None
        return cls(_arlab.schedule_from_json(text, elements, alignment))

    def __repr__(self) -> str:
        return (
            f"<Schedule {self.algorithm}: {self.collective} of {self.ranks} ranks x {self.elements} elements,"
            f" {self.steps} steps, {self.ops} ops>"
        )

    def __reduce__(self) -> Any:
        return Schedule.from_json, (self.to_json(),)


class Algorithm:
    """An algorithm with its options, which goes wherever an algorithm goes: arlab.Ring(own="exact"),
    arlab.Hierarchical(group_size=4). There is a class for every algorithm that is built in; its signature has the defaults."""

    #: As strings have it.
    name: ClassVar[str] = ""

    def __init__(self, **options: Any):
        """Raises ArgumentError for an option that the algorithm does not have, and for a value that is not allowed."""
        self.options = {name: value for name, value in options.items() if value is not None}
        _arlab.check_options(self.name, self.options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Algorithm) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((self.name, *sorted(self.options.items())))


def class_names() -> dict[str, str]:
    """Returns the algorithms that have a class, by the class's name; nvls can be simulated only."""
    names = [name for name, _ in _arlab.algorithms() if name not in OWN]
    return {name.title().replace("_", ""): name for name in (*names, "nvls")}


@functools.cache
def class_of(class_name: str) -> type[Algorithm]:
    """Returns the class of a built-in algorithm, made from the descriptions of its options."""
    name = class_names()[class_name]
    options = _arlab.algorithm_options(name)
    words = "\n".join(f"    {each['name']}: {each['help']} [{each['default_words']}]" for each in options)
    parameters = [inspect.Parameter(each["name"], inspect.Parameter.KEYWORD_ONLY, default=each["default"]) for each in options]
    body = {
        "name": name, "__doc__": f"The algorithm {name} with its options.\n\n{words}\n", "__module__": "arlab",
        "__signature__": inspect.Signature(parameters),
    }  # fmt: skip
    return type(class_name, (Algorithm,), body)


def asked(algorithm: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns the name of an algorithm or a schedule, and the algorithm's options, as the compiled part takes both."""
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(algorithm, Algorithm):
        twice = given.keys() & algorithm.options.keys()
        if twice:
            raise ArgumentError(f"{', '.join(twice)}: given twice, in {algorithm!r} and beside it")
        return algorithm.name, {**algorithm.options, **given}
    if isinstance(algorithm, Schedule):
        fixed = given.keys() - {"inner_codec"}
        if fixed:
            raise ArgumentError(f"{', '.join(sorted(fixed))}: a schedule has its options already")
        return algorithm, given
    return (None if algorithm is None else str(algorithm)), given


def of_collective(algorithm: Any, collective: str) -> Any:
    """Returns the algorithm. Raises ArgumentError for one of another collective; a file's is known when it is read."""
    if algorithm is None or algorithm == collective:
        return algorithm
    known = dict(_arlab.algorithms())
    named = algorithm.name if isinstance(algorithm, Algorithm) else algorithm
    what = algorithm.collective if isinstance(algorithm, Schedule) else known.get(named, collective)
    if what != collective:
        allowed = ", ".join(name for name, each in known.items() if each == collective)
        raise ArgumentError(f"algorithm {algorithm!r} makes {what}, not {collective}: allowed are {allowed}")
    return algorithm


def algorithms() -> Names:
    """Names of the algorithms, own ones last. The list has a `table`, a pandas.DataFrame with their options."""
    names = [name for name, _ in _arlab.algorithms()]
    return Names(names, lambda: listed("algorithms"))


@checked
def schedule(algorithm: str | Algorithm, ranks: int, elements: int, *, codec: str | None = None, **options: Any) -> Schedule:
    """The schedule of an algorithm (arlab.algorithms(), or the path of a schedule.json of any size), proved correct.

    Args:
        ranks: how many.
        elements: per rank.
        codec: chunks are cut at multiples of its alignment and the inner codec's, so that their blocks stay whole.
        options: as for all_reduce. A schedule says which messages have an inner codec, not which one: give inner_codec
            where it runs, too, as with a file. Without it, all messages have the codec.
    """
    what, given = asked(algorithm, options)
    made = Schedule(_arlab.make_schedule(what, ranks, elements, codec or "", given))
    if not isinstance(what, Schedule):
        made._asked = what, ranks, elements, codec or "", given
    return made


Function = TypeVar("Function", bound=Callable[[ScheduleBuilder], Any])

#: By name, the function and the arguments of each that is defined: to define it in another process, too.
OWN: dict[str, tuple[Any, dict[str, Any]]] = {}


def algorithm(
    name: str, *, collective: str = "all_reduce", inner_codec: bool = False, summary: str = "", source: str = "Python"
) -> Callable[[Function], Function]:
    """Makes a function that writes a schedule an algorithm of this process: with every codec, in all_reduce, simulations,
    selections, studies, and on platforms.

        @arlab.algorithm("reduce_broadcast")
        def reduce_broadcast(s):
            tensor = s.chunk(0, s.elements)
            s.at_step(0)
            parts = [s.send(s.encode(s.input(rank, tensor)), 0) for rank in range(s.ranks)]
            s.at_step(1)
            total = s.encode(s.reduce(parts))
            for rank in range(s.ranks):
                s.output(s.send(total, rank))

    Args:
        name: how it is called from then on: a to z, 0 to 9, and _ - . Defining it again replaces it.
        collective: what it does: all_reduce, all_to_all, dispatch_combine, reduce_scatter, all_gather or broadcast.
        inner_codec: whether it encodes anything with s.encode(value, inner=True).

    Whenever it is used, its schedule is proved (Schedule.check); what is wrong is an ArgumentError that says where.
    """

    def define(write: Function) -> Function:
        def called(builder: ScheduleBuilder) -> None:
            try:
                write(builder)
            except ArgumentError as error:
                raise ArgumentError(f"algorithm {name}: {first_line(error)}") from error
            except Exception as error:
                what = f"algorithm {name} for {builder.ranks} ranks and {builder.elements} elements"
                raise ArgumentError(f"{what} raised {type(error).__name__}: {first_line(error)}") from error

        text = summary or ((write.__doc__ or "").strip() or name or "?").splitlines()[0]
        told = fingerprint("algorithm", name, write, collective, inner_codec)
        _arlab.register_algorithm(name, text, source, collective, inner_codec, called, told)
        OWN[name] = write, {"collective": collective, "inner_codec": inner_codec, "summary": summary, "source": source}
        return write

    name_of_own(name, "an algorithm")
    return define
