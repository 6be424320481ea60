"""Names of the version before: they work for one version more, and warn."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, TypeVar

from arlab._errors import ArgumentError

__all__ = ["renamed"]

Function = TypeVar("Function", bound=Callable[..., Any])


def renamed(**names: str) -> Callable[[Function], Function]:
    """Accepts keyword arguments by their former names: renamed(codecs="codec")."""

    def define(function: Function) -> Function:
        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            for old in names.keys() & given.keys():
                new = names[old]
                if new in given:
                    raise ArgumentError(f"{function.__name__}: {new} is given twice, once as {old}")
                warnings.warn(f"{function.__name__}: {old}= is called {new}= now", DeprecationWarning, stacklevel=2)
                given[new] = given.pop(old)
            return function(*args, **given)

        return called  # type: ignore[return-value]

    return define
