"""arlab, run as a shell would run it, and its three output formats, read as by a script."""

import contextlib
import csv
import ctypes
import fcntl
import io
import json
import os
import pty
import re
import resource
import shlex
import struct
import subprocess
import termios
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
WITH_MISTAKES = PROGRAM.with_name("arlab_with_mistakes")  # with_mistakes.cc
REPOSITORY = Path(__file__).resolve().parents[2]
ACTIVATIONS = REPOSITORY / "experiments" / "data"
MOST_SECONDS = 10  # processor time of one call and its children: other load on the machine does not count
HANGS_AFTER = 60  # seconds of a clock
MOST_CHARACTERS = 1000  # longest error message


class Result(NamedTuple):
    code: int
    stdout: str
    stderr: str

    def __str__(self):
        return f"exit code {self.code}, stdout {self.stdout[:300]!r}, stderr {self.stderr[:1000]!r}"


def processor_seconds():
    """Returns the processor seconds of all processes that we started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command, folder, program=PROGRAM, **options):
    """Runs `arlab COMMAND` in the folder; the command is written as for a shell."""
    before = processor_seconds()
    done = subprocess.run(
        [program, *shlex.split(command)],
        cwd=folder,
        encoding="utf-8",
        errors="surrogateescape",
        **{
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "timeout": HANGS_AFTER,
            **options,
        },
    )
    used = processor_seconds() - before
    assert used < max(MOST_SECONDS, options.get("timeout", 0)), f"arlab {command}: {used:.1f} s of a processor"
    return Result(done.returncode, done.stdout, done.stderr)


def ok(command, folder, **options):
    """stdout of a command that succeeds and says nothing on stderr."""
    result = run(command, folder, **options)
    assert result.code == 0 and result.stderr == "", f"arlab {command}: {result!s}"
    return result.stdout


def on_terminal(command, folder, width):
    """Returns the output in a terminal of this many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    shown = b""
    with subprocess.Popen(
        [PROGRAM, *shlex.split(command)], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs
    ) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the end
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def ok_json(command, folder, **options):
    return parse_json(ok(command + " --format json", folder, **options))


def ok_csv(command, folder, **options):
    return parse_csv(ok(command + " --format csv", folder, **options))


def without_privileges():
    """For preexec_fn: a superuser may read and write everything; this one may not."""
    libc = ctypes.CDLL(None)
    drop_from_bounding_set, override, read_search = 24, 1, 2
    for capability in (override, read_search):
        libc.prctl(drop_from_bounding_set, capability, 0, 0, 0)


def refused(command, folder, *fragments, code=2, **options):
    """A command that fails with a line that has the fragments, and leaves the folder as it was."""
    before = contents(folder)
    result = run(command, folder, **options)
    assert result.code == code, f"arlab {command}: {result!s}"
    assert result.stdout == "", f"arlab {command}: {result!s}"
    line = error_line(result.stderr)
    for fragment in fragments:
        assert fragment in line, f"arlab {command}: {fragment!r} is not in {line!r}"
    assert contents(folder) == before, f"arlab {command} changed the folder"


def error_line(stderr):
    assert stderr.endswith("\n") and stderr.count("\n") == 1, f"not one line: {stderr!r}"
    line = stderr.removesuffix("\n")
    assert line.startswith("arlab: ") and len(line) > len("arlab: "), line
    assert len(line) <= MOST_CHARACTERS, f"{len(line)} characters: {line[:200]}..."
    assert all(c.isprintable() or c > "\x7f" for c in line), f"control characters: {line!r}"
    assert "internal error" not in line, line
    assert all(len(names) <= 200 for names in re.findall(r"(?:[^\s,]+, )+", line)), f"a long list: {line!r}"
    return line


def contents(folder):
    """Everything in a folder: names, sizes, and when it was last written."""
    return {
        str(path.relative_to(folder)): (status.st_mode, status.st_size, status.st_mtime_ns)
        for path in sorted(Path(folder).rglob("*"))
        for status in [path.lstat()]
    }


def parse_json(text):
    """One JSON object with a `schema` field; no NaN, no key twice."""

    def no_constant(name):
        raise AssertionError(f"{name} is not JSON")

    def once(pairs):
        assert len({key for key, _ in pairs}) == len(pairs), f"a key twice: {pairs}"
        return dict(pairs)

    value = json.loads(text, parse_constant=no_constant, object_pairs_hook=once)
    assert isinstance(value, dict)
    assert re.fullmatch(r"arlab\.[a-z.]+/\d+", value["schema"]), value["schema"]
    return value


def parse_csv(text):
    """Rows by column."""
    header, *rows = csv.reader(io.StringIO(text), strict=True)
    assert len(set(header)) == len(header) and all(re.fullmatch(r"\w+", name) for name in header)
    for row in rows:
        assert len(row) == len(header), row
    # An apostrophe stands before text that a spreadsheet would run.
    rows = [[re.sub(r"^'('*[=+@\t\r-].)", r"\1", cell, flags=re.DOTALL) for cell in row] for row in rows]
    return [dict(zip(header, row)) for row in rows]


def same(row, values):
    """A CSV row says what JSON says: nothing for null, true and false, every digit of a number."""

    def same_cell(cell, value):
        if isinstance(value, float):
            return float(cell) == value
        if value is None:
            return cell == ""
        return cell == (value if isinstance(value, str) else json.dumps(value))

    return list(row) == list(values) and all(same_cell(row[name], values[name]) for name in row)


def parse_table(text):
    """(figures by name, columns, rows) of an aligned table; fails where it is not aligned. Its last line may say what --all adds."""
    text, _, _ = text.partition("\n\n(--all adds ")
    lines = text.splitlines()
    assert lines and all(line == line.rstrip() for line in lines), "spaces at the end of a line"
    dashes = next((i for i, line in enumerate(lines) if re.fullmatch(r"-+(  +-+)*", line)), None)
    end_of_figures = len(lines) if dashes is None else max(0, dashes - 2)
    if dashes is not None and end_of_figures > 0:
        assert lines[end_of_figures] == "", "no line between figures and rows"
    figures = parse_figures(lines[:end_of_figures])
    if dashes is None:
        return figures, [], []
    spans = [match.span() for match in re.finditer("-+", lines[dashes])]
    columns, *rows = [cut(line, spans) for line in [lines[dashes - 1], *lines[dashes + 1 :]]]
    return figures, columns, rows


def parse_figures(lines):
    """Figures: name, at least two spaces, value; all values begin in one column."""
    if not lines:
        return {}
    width = max(len(re.match(r"\w+", line)[0]) for line in lines) + 2
    for line in lines:
        assert re.fullmatch(r"\w+ +", line[:width]) and line[width] != " ", f"not aligned: {line!r}"
    return {line[:width].strip(): line[width:] for line in lines}


def cut(line, spans):
    """The cells of a line; text outside of the columns is an error, but the last may be longer."""
    last = len(spans) - 1
    for (_, end), (begin, _) in zip(spans, spans[1:]):
        assert line[end:begin].strip() == "", f"not aligned: {line!r}"
    return [line[begin : None if i == last else end].strip() for i, (begin, end) in enumerate(spans)]
