"""Functions that ask the lab: their signatures, and what each argument means, are what the question's fields say."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, Callable, TypeVar

from arlab import _arlab
from arlab._errors import ArgumentError

__all__ = ["asks", "options_in"]

Function = TypeVar("Function", bound=Callable[..., Any])

KINDS = {"flag": "bool", "integer": "int", "number": "float", "one_of": "str", "text": "str", "texts": "str | int | Sequence[str | int]"}
#: The program's own: other spellings, files, and pictures that a result draws by itself.
OF_THE_PROGRAM = {"minbytes", "maxbytes", "stepfactor", "schedule", "no_plots", "plot", "highlight", "exhaustive", "sensitivity", "out", "no_attention"}


def default_of(field: dict[str, Any]) -> Any:
    """Returns the default of a field; None where it is calculated, or there is none."""
    words = field["default_words"]
    if field["default"] is not None or field["kind"] == "texts" or words in ("none", "all", "nothing", "one"):
        return field["default"]
    if field["kind"] in ("integer", "number"):
        return int(words) if re.fullmatch("[0-9]+", words) else None
    return words if re.fullmatch(r"\w[\w.-]*", words) else None


def options_in(given: dict[str, Any], question: str) -> dict[str, Any]:
    """Returns the options of algorithms among the arguments."""
    return {field["name"]: given[field["name"]] for field in _arlab.fields(question) if field["of_algorithm"] and field["name"] in given}


def asks(question: str, **fields: str) -> Callable[[Function], Function]:
    """Gives a function that takes what is asked as keyword arguments the signature and the documentation of them all.

    Parameters that the function names itself come first, if they have no default, or last. `fields`: those that are called otherwise here.
    """

    def define(function: Function) -> Function:
        own = [each for each in inspect.signature(function).parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        first = [each for each in own if each.default is inspect.Parameter.empty]
        called = {old: new for new, old in fields.items()}
        asked, lines, has_options, words_of_the_program = [], [], False, set()
        for field in _arlab.fields(question):
            name = called.get(field["name"], field["name"])
            if field["of_algorithm"]:
                has_options = True
                continue
            words_of_the_program.add(field["name"])
            if name in OF_THE_PROGRAM or name in {each.name for each in own}:
                continue
            default = inspect.Parameter.empty if field["required"] else default_of(field)
            kind = KINDS[field["kind"]] + (" | None" if default is None else "")
            asked.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
            words = f" [{field['default_words']}]" if default is None and field["default_words"] else ""
            lines.append(f"    {name}: {field['help']}{words}.")
        asked.sort(key=lambda each: each.default is not inspect.Parameter.empty)  # required ones first
        last = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own if each not in first]
        if has_options:
            last.append(inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD, annotation="Any"))
            lines.append("    options: of an algorithm that is named, as for arlab.all_reduce.")
        returns = inspect.signature(function).return_annotation
        signature = inspect.Signature([*first, *asked, *last], return_annotation=returns)
        words_of_the_program.difference_update(signature.parameters)

        @functools.wraps(function)
        def ask(*positional: Any, **given: Any) -> Any:
            for name in words_of_the_program & given.keys():
                here = f"did you mean '{called[name]}'? " if name in called else ""
                raise ArgumentError(f"unknown option '{name}': {here}`help(arlab.{function.__name__})` has all")
            return function(*positional, **given)

        ask.__signature__ = signature  # type: ignore[attr-defined]
        # Options are called otherwise than on the command line, those of other commands as there.
        known = {field["name"] for field in _arlab.fields(question)}
        name_of = lambda option: name if (name := option[1].replace("-", "_")) in known else option[0]  # noqa: E731
        text = re.sub(r"--([a-z][a-z-]*)", name_of, "\n".join(lines))
        ask.__doc__ = f"{inspect.getdoc(function)}\n\nArgs:\n{text}\n"
        return ask  # type: ignore[return-value]

    return define
