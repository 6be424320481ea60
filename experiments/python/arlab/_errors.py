"""What goes wrong: one base of all errors, which needs no compiled part."""

__all__ = ["ArgumentError", "Error"]


class Error(RuntimeError):
    """What arlab could not do, in one line."""


class ArgumentError(Error, ValueError):
    """An argument that is wrong, in one line: what, where, what is allowed. Nothing has been done."""


for _each in (Error, ArgumentError):
    _each.__module__ = "arlab"
