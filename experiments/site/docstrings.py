"""Docstrings of the package as Markdown: columns of names and meanings, which are aligned for readers of the source, become lists,
what stands behind an attribute after #: its docstring, and functions with @asks have the signature and the arguments that the fields
of their question make."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from typing import Any

from griffe import Docstring, Extension, Function, Object, Parameter, ParameterKind, Parameters

sys.path.insert(0, os.environ["ARLAB_PACKAGE"])

ENTRY = re.compile(r"^(\w[\w, ]*?|\w+\(.*?\)) {2,}(\S.*)$")


def as_markdown(text: str) -> str:
    """`name   what it is`, continued on lines that are indented further, becomes an item of a list."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if found := ENTRY.match(line):
            if not inside and lines and lines[-1]:
                lines.append("")
            names = ", ".join(f"`{name.strip()}`" for name in found[1].split(","))
            lines.append(f"* {names}: {found[2]}")
            inside = True
        elif inside and re.fullmatch(r"\w+(, \w+)*", line):
            lines.append("* " + ", ".join(f"`{name}`" for name in line.split(", ")))
        elif inside and re.match(r" {6,}\S", line):
            lines[-1] += " " + line.strip()
        else:
            if inside and line.strip():
                lines.append("")
            inside = False
            lines.append(line)
    return "\n".join(lines)


def take_over(function: Function) -> None:
    """Takes over signature and docstring of a decorated function, which is imported for that."""
    made = getattr(importlib.import_module(function.module.path), function.name)
    function.parameters = Parameters(*(
        Parameter(
            each.name, annotation=str(each.annotation), kind=ParameterKind[each.kind.name.lower()],
            default=None if each.default is inspect.Parameter.empty else repr(each.default),
        )
        for each in inspect.signature(made).parameters.values()
    ))  # fmt: skip
    text, mark, arguments = made.__doc__.partition("\n\nArgs:\n")
    plain = re.sub(r"([\\*\[\]])", r"\\\1", arguments).replace("<", "&lt;")  # a field's text is no Markdown
    assert function.docstring
    function.docstring.value = text + mark + plain


class Columns(Extension):
    """The extension that mkdocstrings calls for every object that it finds."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.is_attribute and not obj.docstring and "  #: " in obj.source:
            obj.docstring = Docstring(obj.source.partition("  #: ")[2].strip(), parent=obj)
        if obj.is_function and any(str(each.value).startswith("asks(") for each in obj.decorators):
            take_over(obj)
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
