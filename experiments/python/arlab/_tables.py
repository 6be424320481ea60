"""Answers to questions of the lab, and their tables."""

from __future__ import annotations

import functools
import html
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence, TypeVar

from arlab import _arlab
from arlab._errors import ArgumentError

if TYPE_CHECKING:
    from pandas import DataFrame

# Files that commands read, where the package is installed.
if (_DATA := Path(__file__).parent / "share").is_dir():
    _arlab.set_data_folder(str(_DATA))

__all__ = [
    "Names", "Result", "ask", "call_of", "call_with", "checked", "first_line", "frame", "is_count", "listed", "name_of_own",
    "pandas",
]  # fmt: skip


Function = TypeVar("Function", bound=Callable[..., Any])

#: Meaning of annotations to compiled code: whether a value is that, and in words.
KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda value: isinstance(value, str), "a text"),
    "float": (lambda value: isinstance(value, (int, float)), "a number"),
}


def ask(question: str, given: dict[str, Any], progress: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Returns the lab's answer as figures; arguments that are None are left out."""
    return _arlab.ask(question, given, progress, call_of(question, given))[0]


def call_of(question: str, given: dict[str, Any], *more: str) -> str:
    """Returns the call in Python on one line, for files of results."""
    said = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    silent = {field["name"] for field in _arlab.fields(question) if field["changes_no_result"]}
    words = [f"{name}={value!r}" for name, value in said.items() if value is not None and name not in silent]
    return f"arlab.{question.replace('model ', 'models.')}({', '.join([*words, *more])})"


def pandas() -> Any:
    """Returns the package pandas, which only tables need."""
    try:
        import pandas
    except ImportError:
        raise ArgumentError("tables need the package pandas: pip install pandas") from None
    return pandas


def frame(rows: Iterable[dict[str, Any]]) -> DataFrame:
    """A pandas.DataFrame of rows."""
    return pandas().DataFrame(list(rows))


def listed(what: str, keep: Sequence[str] | None = None) -> DataFrame:
    """Returns a row for each of the "codecs", "algorithms" or "topologies"; only those with these names."""
    return frame(row for row in ask("list", {"what": what})[what] if keep is None or row["name"] in keep)


class Names(list[str]):
    """A list of names that knows more about them: `table`, a pandas.DataFrame."""

    def __init__(self, names: Iterable[str], table: Callable[[], Any]):
        super().__init__(names)
        self._table = table

    @property
    def table(self) -> DataFrame:
        return self._table()

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))


class Result:
    """The answer to a question: named figures, which are attributes, too. `to_dict()` has all of them, `frame` the rows."""

    #: Figures that are shown, a line each.
    SHOWN: tuple[str, ...] = ()
    #: Attributes that are a pandas.DataFrame, and the figure whose rows it has.
    TABLES: dict[str, str] = {}

    def __init__(self, data: dict[str, Any]):
        self.data = data

    def to_dict(self) -> dict[str, Any]:
        """All figures, as `--format json` prints them."""
        return dict(self.data)

    @property
    def frame(self) -> DataFrame:
        """A pandas.DataFrame of the rows; where there are none, of the figures as one row."""
        tables = [value for value in self.data.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
        return frame(tables[0] if tables else [self.data])

    @property
    def table(self) -> DataFrame:
        """Alias of `frame`."""
        return self.frame

    def _figures_for(self, name: str) -> dict[str, Any]:
        """Those among which an attribute is."""
        return self.__dict__.get("data", {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        data = self._figures_for(name)
        if self.TABLES.get(name) in data:
            return frame(data[self.TABLES[name]])
        if name in data:
            return data[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}: {_arlab.instead_of(name, [*self.TABLES, *data])}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.TABLES, *self.data})

    def _lines(self) -> list[tuple[str, str]]:
        return [(name, _text(self.data[name])) for name in self.SHOWN if self.data.get(name) not in (None, [])]

    def __repr__(self) -> str:
        lines = self._lines()
        width = max((len(name) for name, _ in lines), default=0)
        return "\n".join([type(self).__name__, *(f"  {name:<{width}}  {value}" for name, value in lines)])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(v)}</td></tr>" for n, v in self._lines())
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def name_of_own(name: Any, what: str) -> str:
    """Returns the name of a user's codec or algorithm, if C++ can be given it: it says what else is wrong with it."""
    if not isinstance(name, str) or not name.isascii():
        raise ArgumentError(f"{what}'s name is {ascii(name)}: allowed is a text of a to z, 0 to 9, and _ - .")
    return name


def call_with(function: Callable[..., Any], given: dict[str, Any], allowed: dict[str, tuple[Callable[[Any], bool], str]]) -> Any:
    """Calls compiled code with named arguments; where it does not take them, says which is not as `allowed`, with what is in words."""
    try:
        return function(**given)
    except TypeError:
        for name, (is_allowed, words) in allowed.items():
            if name in given and not is_allowed(given[name]):
                raise ArgumentError(f"{name} is {ascii(given[name])}: allowed is {words}") from None
        raise


def checked(function: Function) -> Function:
    """Where compiled code does not take the arguments, says in one line which is not as its annotation has it."""
    signature = inspect.signature(function)
    called = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except TypeError as error:
            if "incompatible function arguments" not in str(error):
                raise
        for bits in (64, 31):
            for name, value in signature.bind(*args, **given).arguments.items():
                kind = str(signature.parameters[name].annotation).removesuffix(" | None")
                is_allowed, words = KINDS.get(kind, (lambda _: True, ""))
                if re.search(r"\bint\b", kind):
                    is_allowed, words = is_count(bits), f"an integer from 0 to 2^{bits} - 1"
                each = value if isinstance(value, (list, tuple)) else [value]
                if value is not None and not all(map(is_allowed, each)):
                    raise ArgumentError(f"{called}: {name} is {ascii(value)}: allowed is {words}")
        raise ArgumentError(f"{called}: an argument is of another type than `help` says")

    return call  # type: ignore[return-value]


def is_count(bits: int) -> Callable[[Any], bool]:
    """Whether a value is an integer from 0 on, of so many bits."""
    return lambda value: hasattr(value, "__index__") and not isinstance(value, bool) and 0 <= value.__index__() < 2**bits


def first_line(error: BaseException, most: int = 300) -> str:
    """Returns an exception's text as it may stand in a message of one line."""
    try:
        line = (str(error).splitlines() or [""])[0]
    except Exception:  # its own text is an error, too
        return "(it has no text)"
    return line if len(line) <= most else line[: most - 3] + "..."


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
