"""Tells definitions of a codec or an algorithm in Python apart: a hash of the code and of every value that it uses.

Results that are kept (`study(..., resume=True)`, `perplexity(..., cache=)`) are kept under it. It is of what runs, not of what a
file says by now: of byte code with its constants, defaults, closures, and the globals that the code names, followed into other
modules of the user's. Packages that are installed count by their version. Values that cannot be followed (a lock, a
handle of C) are not guessed: such a definition equals no other.
"""

from __future__ import annotations

import copyreg
import ctypes
import dis
import functools
import hashlib
import os
import re
import secrets
import site
import struct
import sys
import sysconfig
import threading
import types
from pathlib import Path
from typing import Any, Callable, Iterable

import numpy as np

from arlab._files import read_whole

__all__ = ["fingerprint", "hash_of_setup", "users_modules"]

#: Fingerprints of another process's definitions, as it says them: by kind and name, while they are made.
SENT: dict[tuple[str, str], str] = {}

#: By kind and name, how to tell the last definition from others.
TOLD: dict[tuple[str, str], Callable[[], str]] = {}

#: By name, what decides what a codec or an algorithm of one's own does.
_PARTS: dict[str, Any] = {}

#: Python's own entries of a class, which say nothing of what its objects do.
_OF_PYTHON = {
    "__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__annotate_func__", "__annotations_cache__",
    "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl",
}  # fmt: skip


class _Untold(Exception):
    """It cannot be said whether a value is the same as in another process; the text says which."""


def fingerprint(kind: str, name: str, *parts: Any) -> Callable[[], str]:
    """A function that says what `parts`, which decide what `name` does, are at the time when it is called: a hash, or "untold: "
    and why there is none."""
    _PARTS[name] = parts
    sent = SENT.get((kind, name))
    only_here = secrets.token_hex(8)

    def told() -> str:
        if sent is not None:
            return sent
        try:
            return _Walk().hash_of(parts)
        except _Untold as untold:
            return f"untold: {untold} #{only_here}"
        except RecursionError:
            return f"untold: values that are nested too deeply #{only_here}"

    TOLD[kind, name] = told
    return told


def users_modules(*parts: Any) -> list[types.ModuleType]:
    """Returns the modules that parts use and that are not installed."""
    walk = _Walk()
    try:
        walk.hash_of(parts)
    except (_Untold, RecursionError):  # those that were found until there
        pass
    return list(walk.modules.values())


def hash_of_setup(file: str) -> str:
    """Returns the hash of a file that has just been run, or of a folder's, and of all the user's modules that are there
    by now."""
    said = hashlib.sha256()
    path = Path(file)
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.suffix != ".pyc") if path.is_dir() else [path]
    modules = {name: module.__file__ for name, module in sorted(sys.modules.items()) if _is_users(module) and _file_of(module)}
    modules.pop("__main__", None)
    for name, each in [*((each.name, each) for each in files), *modules.items()]:
        said.update(f"\0{name}\0".encode() + hashlib.sha256(read_whole(each)).digest())  # type: ignore[arg-type]
    return said.hexdigest()[:16]


# ---------------------------------------------------------------- whose code it is


@functools.cache
def _installed() -> tuple[str, ...]:
    """The folders of Python and of packages that are installed."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= set(getattr(site, "getsitepackages", list)()) | {site.getusersitepackages()}
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


def _file_of(module: Any) -> str:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else ""


def _is_users(module: Any) -> bool:
    """Whether a module may change while its version stays."""
    name = getattr(module, "__name__", "")
    if name == "__main__":
        return True
    if name.partition(".")[0] == "arlab" or name.startswith("_cython_") or not isinstance(module, types.ModuleType):
        return False
    if file := _file_of(module):
        return not os.path.realpath(file).startswith(_installed())
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    return loader is None and name.partition(".")[0] not in sys.stdlib_module_names  # made by hand, as by exec


def _is_of_user(thing: Any) -> bool:
    """Whether a function or a class is from such a module, or only says that it is from another: what exec() makes may say so."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if module is None or _is_users(module):
        return True
    if isinstance(thing, types.FunctionType):
        return thing.__globals__ is not vars(module)
    if not thing.__flags__ & 1 << 9:  # not made at run time
        return False
    found: Any = module
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not thing and thing.__module__ == "builtins"


def _version_of(name: str) -> str:
    version = getattr(sys.modules.get(name.partition(".")[0]), "__dict__", {}).get("__version__")
    return version if isinstance(version, str) else ""


def _names_in(code: types.CodeType) -> tuple[set[str], set[str]]:
    """A code's names of globals; and of attributes, which may also stand in its texts: getattr(module, "name")."""
    loads = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    names = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            more_loads, more_names = _names_in(each)
            loads |= more_loads
            names |= more_names
        elif isinstance(each, str):
            names.update(re.findall(r"\w+", each))
    return (loads | names if loads & {"globals", "eval", "exec", "__import__"} else loads), names


# ---------------------------------------------------------------- the walk

_LOCKS = (type(threading.Lock()), type(threading.RLock()))  # they carry nothing
_DESCRIPTORS = (
    types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.MethodWrapperType,
)  # fmt: skip
_PLAIN = (bool, int, str, bytes, bytearray, complex, type(None), type(...), type(NotImplemented), range, slice)


class _Walk:
    """Hashes a value with all that hangs on it, in an order that is the same in every process."""

    def __init__(self) -> None:
        self._said = hashlib.sha256()
        self._numbers: dict[Any, int] = {}
        self._alive: list[Any] = []  # an id belongs to one object only while that lives
        self.modules: dict[str, types.ModuleType] = {}

    def hash_of(self, value: Any) -> str:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 10_000))  # functions that call functions
        try:
            self._add(value)
        finally:
            sys.setrecursionlimit(limit)
        return self._said.hexdigest()

    def _say(self, *words: str | bytes) -> None:
        for word in words:
            text = word if isinstance(word, bytes) else word.encode("utf-8", "surrogatepass")
            self._said.update(len(text).to_bytes(8, "little") + text)

    def _is_known(self, value: Any, *how: Any) -> bool:
        """Whether it was said before; then its number is said."""
        key = (id(value), *how)
        if key in self._numbers:
            self._say("again", str(self._numbers[key]))
            return True
        self._numbers[key] = len(self._numbers)
        self._alive.append(value)
        return False

    def _all(self, what: str, values: Iterable[Any]) -> None:
        values = list(values)
        self._say(what, str(len(values)))
        for each in values:
            self._add(each)

    def _any_order(self, what: str, values: Iterable[Any]) -> None:
        self._say(what, *sorted(self._apart(each) for each in values))

    def _apart(self, value: Any) -> str:
        walk = _Walk()
        walk.modules = self.modules
        return walk.hash_of(value)

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind is float:
            self._say("float", struct.pack("<d", value))
        elif kind in _PLAIN:
            self._say(kind.__name__, repr(value))
            if kind is str and len(value) < 100:  # a codec that calls another by its name
                for name in sorted(_PARTS):
                    if name in value and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", value):
                        self._add(_PARTS[name])
        elif isinstance(value, _LOCKS):
            self._say("lock")
        elif isinstance(value, _DESCRIPTORS):
            self._say("descriptor", value.__name__)
        elif isinstance(value, np.dtype):
            self._say("dtype", str(value), value.byteorder)
        elif kind is tuple:  # constants: which of them are one object, is not said by what they are
            self._all("tuple", value)
        elif kind is types.CodeType:
            self._add_code(value)
        elif not self._is_known(value):
            self._add_new(value, kind)

    def _add_new(self, value: Any, kind: type) -> None:
        if kind is list:
            self._all("list", value)
        elif kind is dict or kind is types.MappingProxyType:
            self._all("dict", (part for item in value.items() for part in item))
        elif kind is set or kind is frozenset:
            self._any_order(kind.__name__, value)
        elif isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            self._say("array", str(array.dtype), repr(array.shape))
            self._add(array.tolist()) if array.dtype.hasobject else self._say(array.tobytes())
            if kind is not np.ndarray and not isinstance(value, np.generic):
                self._all("subclass", (kind, getattr(value, "__dict__", {})))
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.MethodType):
            self._all("method", (value.__func__, value.__self__))
        elif isinstance(value, types.CellType):
            try:
                self._all("cell", (value.cell_contents,))
            except ValueError:
                self._say("empty cell")
        elif isinstance(value, types.ModuleType):
            self._add_module(value, {name for name in vars(value) if not name.startswith("__")})
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, (staticmethod, classmethod)):
            self._all(kind.__name__, (value.__func__,))
        elif isinstance(value, property):
            self._all("property", (value.fget, value.fset, value.fdel))
        elif isinstance(value, functools.cached_property):
            self._all("cached_property", (value.func,))
        elif isinstance(value, types.BuiltinFunctionType):
            of = value.__self__
            self._say("builtin", value.__module__ or "", value.__qualname__)
            if of is not None and not isinstance(of, types.ModuleType):
                self._add(of)
        elif isinstance(value, np.ufunc):
            self._say("ufunc", value.__name__)
        elif isinstance(value, ctypes.CDLL):
            self._say("library", hashlib.sha256(read_whole(value._name)).digest() if os.path.exists(value._name or "") else "")
        elif _is_of_user(kind):
            self._add_object(value, kind)
            if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
                self._add_reduced(value, kind)  # the part that a base in C holds
        elif callable(inner := getattr(value, "py_func", None) or getattr(value, "__wrapped__", None)):
            self._all(kind.__name__, (inner,))  # wrappers of numba and functools.cache
        else:
            self._add_reduced(value, kind)

    def _add_code(self, code: types.CodeType) -> None:
        """Without where it stands in a file."""
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._say("code", repr(counts), code.co_code, getattr(code, "co_exceptiontable", b""))
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self._say(*names, "")
        self._all("constants", code.co_consts)

    def _add_function(self, function: types.FunctionType) -> None:
        if not _is_of_user(function):
            return self._say("function", function.__module__, function.__qualname__, _version_of(function.__module__))
        self._say("function")
        module = sys.modules.get(function.__module__ or "")
        if module is not None and vars(module) is function.__globals__:
            self._note(module)
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__, function.__closure__, function.__dict__)
        self._all("parts", parts)
        loads, names = _names_in(function.__code__)
        for name in sorted(loads & function.__globals__.keys()):
            if name.startswith("__"):
                continue
            self._say("global", name)
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType):
                self._add_module(value, names)
            else:
                self._add(value)

    def _note(self, module: types.ModuleType) -> None:
        if module.__name__ != "__main__" and _is_users(module) and sys.modules.get(module.__name__) is module and _file_of(module):
            self.modules[module.__name__] = module

    def _add_module(self, module: types.ModuleType, names: set[str]) -> None:
        """Adds the values with these names in a module of the user's."""
        if not _is_users(module):
            return self._say("module", module.__name__, _version_of(module.__name__))
        self._note(module)
        self._say("module")
        for name in sorted(names & vars(module).keys()):
            if name.startswith("__") or self._is_known(module, name):
                continue
            self._say("of module", name)
            value = vars(module)[name]
            if isinstance(value, types.ModuleType):
                self._add_module(value, names)
            else:
                self._add(value)

    def _add_class(self, made: type) -> None:
        if not _is_of_user(made):
            return self._say("class", made.__module__, made.__qualname__, _version_of(made.__module__))
        self._all("class", (type(made), *made.__bases__))
        if made.__module__ in sys.modules:
            self._note(sys.modules[made.__module__])
        for name, value in vars(made).items():
            if name not in _OF_PYTHON:
                self._say("of class", name)
                self._add(value)

    def _add_object(self, value: Any, kind: type) -> None:
        self._all("object", (kind, getattr(value, "__dict__", {})))
        for each in kind.__mro__:
            for name in _slots_of(each):
                if hasattr(value, name):
                    self._say("slot", name)
                    self._add(getattr(value, name))
        for plain in (str, bytes, int, float, complex, tuple, list, dict, set, frozenset):
            if isinstance(value, plain):  # a subclass: what its base holds
                self._add(plain(value))

    def _add_reduced(self, value: Any, kind: type) -> None:
        """Adds the value as pickle would reduce it."""
        try:
            parts = copyreg.dispatch_table[kind](value) if kind in copyreg.dispatch_table else value.__reduce_ex__(4)
        except RecursionError:
            raise
        except Exception:
            what = f"an object of type {kind.__module__}.{kind.__qualname__}"
            raise _Untold(f"{what}, which cannot be compared with that of another run") from None
        if isinstance(parts, str):
            return self._say("global", str(getattr(value, "__module__", "")), parts)
        self._say("reduced")
        self._all("parts", parts[:3])
        for more in parts[3:5]:
            self._all("items", () if more is None else more)


def _slots_of(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    private = f"_{kind.__name__.lstrip('_')}"
    return [private + name if name[:2] == "__" != name[-2:] else name for name in names if name not in ("__dict__", "__weakref__")]
