"""Errors of arlab: one base of all, which needs no compiled part."""

__all__ = ["ArgumentError", "Error"]


class Error(RuntimeError):
    """A failure of arlab, in one line."""


class ArgumentError(Error, ValueError):
    """An argument that is wrong, in one line: what, where, what is allowed. Nothing has been done."""


for _each in (Error, ArgumentError):
    _each.__module__ = "arlab"
