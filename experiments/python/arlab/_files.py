"""Files that are read whole, files that are there whole or not at all, temporary folders, and cells of CSV.

Folders and files are locked for as long as their process lives. So what a killed process has left can be told, and goes with the
next one.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator

__all__ = ["guarded", "parsed_json", "read_whole", "temporary_folder", "unguarded", "write_whole"]

_numbers = itertools.count()


def read_whole(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Returns the bytes of a regular file, which has at most `most`. Raises OSError, also for what is no such file: no
    pipe is waited for; and MemoryError.

    All of arlab reads files of others by it, as all C++ does by InputFile (tests/experiments/test_readers.py).
    """

    def opener(name: str, flags: int) -> int:
        # Looked at before it is opened, since opening a device may do something; and after, since a pipe may have taken the name.
        require_regular(os.stat(name))
        return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)

    def require_regular(there: os.stat_result) -> None:
        if not stat.S_ISREG(there.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if most is not None and there.st_size > most:
            raise OSError(errno.EFBIG, f"it has {there.st_size} bytes: allowed are {most}", os.fspath(path))

    with open(path, "rb", opener=opener) as file:
        require_regular(os.fstat(file.fileno()))
        return file.read(-1 if most is None else most)


def parsed_json(text: str | bytes) -> Any:
    """Parses foreign JSON. Raises ValueError, also for what nests deeper, or has longer numbers, than Python's parser
    goes."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Makes a folder in the temporary folder that only this user can enter, and removes it at the end."""
    _remove_left_behind(tempfile.gettempdir(), r"\.arlab-[a-z0-9_]{8}\.tmp")
    while True:
        folder = tempfile.mkdtemp(prefix=".arlab-", suffix=".tmp")
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            if _is_ours(lock):
                break
            os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file beside its place and moves it there; nothing else stays, even when interrupted. Raises OSError."""
    _remove_left_behind(str(path.parent), r"\.arlab-[0-9]+-[0-9]+\.part")
    while True:
        beside = path.with_name(f".arlab-{os.getpid()}-{next(_numbers)}.part")  # the name of `path` may be as long as can be
        with suppress(FileExistsError), beside.open("xb") as file:
            try:
                if _is_ours(file.fileno()):
                    file.write(data)
                    file.flush()
                    beside.replace(path)
                    return
            finally:
                with suppress(OSError):
                    beside.unlink()


def _is_ours(file: int) -> bool:
    """Locks what was just made; False where another process has taken it for one that was left behind."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # not every file system has locks; there nothing is taken for left behind
        return True
    return os.fstat(file).st_nlink > 0


def _locked(path: str) -> int | None:
    """A descriptor that locks a folder or file of this user's while it is open; None if another process has it, or it is gone."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = os.fstat(lock)
        if os.path.samestat(mine, os.lstat(path)) and mine.st_uid == os.geteuid():
            return lock
    os.close(lock)
    return None


def _remove_left_behind(folder: str, pattern: str) -> None:
    """Removes what has such a name and belongs to no process any more."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if not re.fullmatch(pattern, name) or (lock := _locked(path)) is None:
            continue
        with suppress(OSError):
            if stat.S_ISDIR(os.fstat(lock).st_mode):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
        os.close(lock)


#: Cells that spreadsheets run, and those that would become that without their first apostrophe.
_FORMULA = re.compile("'*[=+\\-@\t\r].", re.DOTALL)


#: Numbers as std::from_chars reads them; float() also takes "-1_000", " -1" and other digits, which spreadsheets do not.
_NUMBER = re.compile(r"-?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan(?:\([a-z0-9_]*\))?)", re.IGNORECASE)


def _is_number(cell: str) -> bool:
    if not _NUMBER.fullmatch(cell):
        return False
    digits = cell.lower().lstrip("-")
    if digits[0] in "in":
        return True
    value = abs(float(cell))  # out of range is no number
    return value <= sys.float_info.max and (value > 0 or not re.search("[1-9]", digits.partition("e")[0]))


def guarded(cell: str) -> str:
    """A cell of CSV that spreadsheets take for text: an apostrophe before what they would run, unless that is a number.

    As the program writes it (guarded_cell in reference/csv.h).
    """
    return f"'{cell}" if _FORMULA.match(cell) and not _is_number(cell) else cell


def unguarded(cell: Any) -> Any:
    """Returns the text of a guarded cell; values that are no text stay as they are."""
    return cell[1:] if isinstance(cell, str) and cell.startswith("'") and _FORMULA.match(cell) else cell
