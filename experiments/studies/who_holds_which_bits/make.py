#!/usr/bin/env python3
"""Who holds which bits: formats of other libraries beside arlab's, element by element.

    python experiments/studies/who_holds_which_bits/make.py --venv DIR    makes a Python environment with the libraries, asks them all, writes results.csv and README.md
    python experiments/studies/who_holds_which_bits/make.py               the same with the libraries that this Python has
    python experiments/studies/who_holds_which_bits/make.py --page        writes README.md from the results.csv that is there
    python experiments/studies/who_holds_which_bits/make.py --check       says whether README.md is what results.csv says (exit code 1)

Needed is arlab's package (PYTHONPATH, or build/bin/python); the libraries take some GB from PyPI. Exit code 2: bad usage.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path[:0] = [str(HERE), str(REPOSITORY / "experiments/site")]
sys.path.append(str(REPOSITORY / "build/bin/python"))
os.environ.setdefault("TRITON_INTERPRET", "1")  # Kernels in Triton are run without a GPU, by its interpreter.

import numpy as np  # noqa: E402
from libraries import Answer, Parts, answers  # noqa: E402
from page_tables import csv_text, filled, markdown, rows_of  # noqa: E402

COMMAND = "experiments/studies/who_holds_which_bits/make.py"
REASONS = tomllib.loads((HERE / "reasons.toml").read_text(encoding="utf-8"))
CHUNK = 4096
"""Elements of a message: a wire chunk of every format here, so a wire is all codes, then all scales."""
CHUNKS = {"gaussian": 32, "outliers": 16, "ties": 16, "tiny": 4, "huge": 4, "zeros": 2, "not finite": 2}
"""How many chunks of each kind of input are compared."""


class Form:
    """How the wire of a codec is cut: its group, the bits of a code, and what a scale is."""

    def __init__(self, codec: str) -> None:
        match = re.search(r"-g(\d+)", codec)
        self.codec = codec
        self.group = 16 if codec.startswith("nvfp4") else int(match[1]) if match else 32
        digits = re.match(r"(?:mxfp|mxint|nvfp|nf|int|fp)(\d)", codec)
        assert digits, codec
        self.bits = int(digits[1])
        self.sign = 0 if codec.startswith(("int", "mxint", "nf")) else 1 << (self.bits - 1)
        self.header = 4 if codec.startswith("nvfp4") and "-ts" not in codec else 0
        self.scale: Any = None if "static" in codec else np.uint16 if codec.startswith("int") else np.uint8 if codec[0] == "m" or codec.startswith("nv") else np.uint32

    def parts(self, wire: np.ndarray, values: np.ndarray) -> Parts:
        """Codes, scales and decoded values of a message of arlab's."""
        codes = np.zeros(CHUNK, np.uint8)
        at, low = self.header, 0
        for width in (8, 4, 2, 1):
            if self.bits & width:
                plane = wire[at : at + CHUNK * width // 8]
                split = (plane[:, None] >> np.arange(0, 8, width, dtype=np.uint8)) & (2**width - 1)
                codes |= (split.reshape(-1) << low).astype(np.uint8)
                at, low = at + len(plane), low + width
        found = {"codes": codes.reshape(-1, self.group), "values": values.astype(np.float32).reshape(-1, self.group)}
        if self.scale:
            found["scales"] = wire[at:].view(self.scale)
        return found


def inputs(kind: str, form: Form, dtype: str) -> np.ndarray:
    """Blocks of one kind, as float32 values that the dtype has. The same whenever they are asked for."""
    import ml_dtypes

    random = np.random.default_rng([list(CHUNKS).index(kind), form.group, form.bits])
    shape = (CHUNKS[kind] * CHUNK // form.group, form.group)
    x = random.standard_normal(shape).astype(np.float32)
    sign = np.where(random.random(shape) < 0.5, -1, 1).astype(np.float32)
    if kind == "outliers":
        x *= np.where(random.random(shape) < 0.02, 100, 1).astype(np.float32) * np.exp2(random.integers(-30, 30, (shape[0], 1))).astype(np.float32)
    elif kind == "ties":  # Quarters of a step, below a largest element that makes scales round numbers: 6, 448, 127, 1 times a power of two.
        top = random.choice(np.array([6, 448, 127, 127.5, 1, 7.5, 28, 192], np.float32), (shape[0], 1))
        x = sign * np.minimum(random.integers(0, 256, shape).astype(np.float32) / 4 * random.choice(np.float32([0.0625, 0.25, 1, 4]), (shape[0], 1)), top)
        x[:, :1] = top
        x *= np.exp2(random.integers(-8, 9, (shape[0], 1))).astype(np.float32)
    elif kind == "tiny":  # Down to the subnormals, whole blocks of them, with any bits.
        x = sign * np.exp2(random.integers(-140, -100, (shape[0], 1)) + random.random(shape)).astype(np.float32)
    elif kind == "huge":  # Up to the largest number.
        x = sign * random.integers(0x7E000000, 0x7F7F0000, shape, dtype=np.uint32).view(np.float32)
    elif kind == "zeros":  # Whole blocks of zeros with both signs, and zeros among others.
        x = np.where(random.random((shape[0], 1)) < 0.5, 0 * sign, np.where(random.random(shape) < 0.5, 0 * sign, x)).astype(np.float32)
    elif kind == "not finite":
        x[:, 1] = random.choice(np.float32([np.nan, np.inf, -np.inf]), shape[0])
    return x.astype(ml_dtypes.bfloat16).astype(np.float32) if dtype == "bf16" else x


def of_arlab(form: Form, blocks: np.ndarray, dtype: str) -> Parts:
    """Returns arlab's wires of the blocks."""
    import arlab
    import ml_dtypes

    parts = []
    for message in blocks.reshape(-1, CHUNK):
        wire = arlab.encode(message.astype(ml_dtypes.bfloat16) if dtype == "bf16" else message, form.codec)
        parts.append(form.parts(wire, np.asarray(arlab.decode(wire, form.codec, dtype, CHUNK))))
    return {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}


def patterns(array: np.ndarray) -> np.ndarray:
    """Bits to compare; every NaN of values as one."""
    if array.dtype != np.float32:
        return array
    return np.where(np.isnan(array), np.uint32(0x7FC00000), array.view(np.uint32))


def compared(blocks: np.ndarray, ours: Parts, theirs: Parts, sign: int) -> dict[str, Any]:
    """How many scales and elements differ, and the first that does. Elements count where the scales are equal: below another scale, all would."""

    def zero(part: np.ndarray) -> np.ndarray:
        return part == 0 if part.dtype == np.float32 or not sign else (part & ~np.uint8(sign)) == 0

    same = np.ones(len(blocks), bool)
    scales = -1
    first = ""
    if "scales" in theirs:
        unequal = patterns(ours["scales"]) != patterns(theirs["scales"]).reshape(ours["scales"].shape)
        same, scales = ~unequal, int(unequal.sum())
        if scales:
            block = int(unequal.argmax())
            digits = ours["scales"].itemsize * 2
            first = f"block {block}, largest {largest(blocks[block])}: scale {int(ours['scales'][block]):0{digits}X}, theirs {int(theirs['scales'][block]):0{digits}X}"
    elements, signs = -1, 0
    for part in ("codes", "values"):
        if part in theirs:
            unequal = (patterns(ours[part]) != patterns(theirs[part])) & same[:, None]
            only_sign = unequal & zero(ours[part]) & zero(theirs[part])
            signs, unequal = int(only_sign.sum()), unequal & ~only_sign
            elements = int(unequal.sum())
            if elements:
                block, place = divmod(int(unequal.argmax()), blocks.shape[1])
                mine, other = ours[part][block, place], theirs[part][block, place]
                shown = (f"code {mine:02X}, theirs {other:02X}" if part == "codes" else f"decoded {mine:.9g}, theirs {other:.9g}")  # fmt: skip
                begin = f"element {block * blocks.shape[1] + place} = {blocks[block, place]:.9g}, largest of its block {largest(blocks[block])}: {shown}"
                first = f"{first}; {begin}" if first else begin
    return {"blocks": len(blocks), "elements": blocks.size, "scales_differ": scales, "elements_differ": elements, "zero_signs_differ": signs, "first": first}


def largest(block: np.ndarray) -> str:
    return f"{np.abs(block).max():.9g}"


def asked(answer: Answer) -> Iterable[dict[str, Any]]:
    """The rows of one library and format. A library that is missing is one row that says so."""
    form = Form(answer.codec)
    try:
        version = importlib.metadata.version(answer.library)
    except importlib.metadata.PackageNotFoundError:
        yield row(answer, "", "", first=f"not run: {answer.library} is not installed")
        return
    for dtype in answer.dtypes:
        for kind in CHUNKS:
            blocks = inputs(kind, form, dtype)[: CHUNK // form.group if answer.slow else None]
            ours = of_arlab(form, blocks, dtype)
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    theirs = answer.call(blocks, dtype, ours["scales"]) if answer.given_scales else answer.call(blocks, dtype)  # type: ignore[call-arg]
            except Exception as problem:  # noqa: BLE001  (whatever a library does, the others are asked)
                why = " ".join(str(problem).split()) or type(problem).__name__
                yield row(answer, version, dtype, kind, first=f"not run: {why[:160]}")
                if isinstance(problem, ImportError):
                    return
                continue
            yield row(answer, version, dtype, kind, **compared(blocks, ours, theirs, form.sign))


def row(answer: Answer, version: str, dtype: str, kind: str = "", **found: Any) -> dict[str, Any]:
    empty = {"blocks": 0, "elements": 0, "scales_differ": -1, "elements_differ": -1, "zero_signs_differ": 0, "first": ""}
    return {"library": answer.library, "version": version, "codec": answer.codec, "dtype": dtype, "input": kind, **empty, **found}


def results(which: Sequence[Answer], kept: Sequence[dict[str, Any]], before: str) -> str:
    """results.csv: a row per library, format, dtype and kind of input; -1 where the library has no such part. Libraries
    that are not asked have the kept rows, of the days before."""
    libraries = [answer.library for answer in which]
    rows = [each for each in kept if each["library"] not in libraries]
    for answer in which:
        print(f"{answer.library} {answer.codec}", file=sys.stderr)
        rows += asked(answer)
    today = str(datetime.now(timezone.utc).date())
    for library in dict.fromkeys(libraries) if before else ():
        before = re.sub(rf", {re.escape(library)} [-\d]+", "", before)
        today = f"{before}, {library} {today}"
    return csv_text(rows, "arlab.who_holds_which_bits/1: formats of libraries beside arlab's", f"command: {COMMAND} --venv DIR", f"date: {today}",
                    "provenance: exact: computed by the libraries, on the CPU; a count of -1: it has no such part")  # fmt: skip


# ------------------------------------------------------------------------------------ the page


def verdict(rows: Sequence[dict[str, str]]) -> str:
    """`equal`, `differs`, or which kinds of input do, of one library and format."""
    ran = [each for each in rows if not each["first"].startswith("not run")]
    if not ran:
        return "not run"
    unequal = {each["input"] for each in ran if each["first"]}
    failed = {each["input"] for each in rows} - {each["input"] for each in ran}
    signs = {each["input"] for each in ran if int(each["zero_signs_differ"])} - unequal
    if not unequal and not failed:
        return "equal but signs of zeros" if signs else "equal"
    if unequal & {"gaussian", "outliers"}:
        return "differs"
    return "equal but " + ", ".join([kind for kind in CHUNKS if kind in unequal | failed] + ["signs of zeros"] * bool(signs))


def pairs(rows: Sequence[dict[str, str]]) -> dict[tuple[str, str], list[dict[str, str]]]:
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for each in rows:
        found.setdefault((each["library"], each["codec"]), []).append(each)
    return found


def why(library: str, codec: str) -> str:
    """The sentence of a library and format: the first whose pattern fits."""
    return next((text for pattern, text in REASONS["why"].get(library, {}).items() if re.fullmatch(pattern, codec)), "")


def share(rows: Sequence[dict[str, str]]) -> str:
    """Returns the share of scales and then of elements that differ on ordinary inputs, in percent."""
    ordinary = [each for each in rows if each["input"] in ("gaussian", "outliers")]
    texts = []
    for name, total in (("scales_differ", "blocks"), ("elements_differ", "elements")):
        counts = [(int(each[name]), int(each[total])) for each in ordinary if int(each[name]) >= 0]
        differ, of = sum(each[0] for each in counts), sum(each[1] for each in counts)
        texts.append("" if not counts else "0" if not differ else f"{100 * differ / of:.2g} %")
    return " / ".join(text or "none" for text in texts)


def grouped(lines: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Names that have the same value, in one line."""
    found: dict[Any, list[str]] = {}
    for name, value in lines:
        found.setdefault(value, []).append(name)
    return [(", ".join(names), value) for value, names in found.items()]


def verdicts(rows: list[dict[str, str]]) -> str:
    """The libraries of each format: for which inputs they differ."""
    found = pairs(rows)

    def cells(codec: str) -> tuple[str, str]:
        of = [(library, verdict(mine)) for (library, each), mine in found.items() if each == codec]
        equal = grouped((library, "nothing" if text == "equal" else text.removeprefix("equal but ")) for library, text in of if text != "differs")
        return "; ".join(f"{libraries}: {text}" for libraries, text in equal), ", ".join(library for library, text in of if text == "differs")

    codecs = dict.fromkeys(codec for _, codec in found)
    return markdown(("format", "equal but for", "differs"), [(names, *value) for names, value in grouped((f"`{codec}`", cells(codec)) for codec in codecs)])


def differences(rows: list[dict[str, str]]) -> str:
    """Returns a table of differences; formats of a library that differ for the same reason share a line."""
    reasons: dict[tuple[str, str], dict[str, list[dict[str, str]]]] = {}
    for (library, codec), mine in pairs(rows).items():
        if verdict(mine) != "equal":
            reasons.setdefault((library, why(library, codec)), {})[codec] = mine
    lines = [
        (library, "; ".join(f"{names}: {text}" for names, text in grouped((f"`{codec}`", share(mine)) for codec, mine in formats.items())),
         reason)
        for (library, reason), formats in reasons.items()
    ]  # fmt: skip
    return markdown(("library", "formats: scales / elements that differ", "why"), lines)


def not_run(rows: list[dict[str, str]]) -> str:
    """Returns a table of formats that exist as a kernel alone."""
    return markdown(("library", "format", "what its source says"), [tuple(each.values()) for each in REASONS["not_run"]])


def day_of(results_file: Path) -> str:
    """When libraries were asked; some of them, if they are named, later."""
    day = re.search(r"^# date: (.+)$", results_file.read_text(encoding="utf-8"), re.MULTILINE)
    assert day, results_file
    return day[1]


def page_of(text: str, results_file: Path) -> str:
    rows = rows_of(results_file)
    day = day_of(results_file)
    made = {each.__name__: (lambda each=each: each(rows)) for each in (verdicts, differences, not_run)}
    return filled(text, made | {"day": lambda: f"Run on {day}."})


def with_libraries(folder: Path, library: str | None) -> None:
    """Makes the environment, once, and goes on in its Python."""
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "-r", HERE / "requirements_alone.txt"], check=True)
    os.execv(python, [str(python), __file__, *(["--library", library] if library else [])])


def main() -> None:
    parser = argparse.ArgumentParser(prog="make.py", description=__doc__.splitlines()[0])
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--venv", type=Path, help="a folder for an environment with the libraries, made when it is not there")
    way.add_argument("--page", action="store_true", help="only write the page")
    way.add_argument("--check", action="store_true", help="compare the page that is there")
    parser.add_argument("--library", choices=sorted({each.library for each in answers()}), help="ask this one only, and keep the rows of others [all]")
    arguments = parser.parse_args()
    if arguments.venv:
        with_libraries(arguments.venv.absolute(), arguments.library)
    kept, page = HERE / "results.csv", HERE / "README.md"
    if not (arguments.page or arguments.check):
        which = [each for each in answers() if arguments.library in (None, each.library)]
        old = (rows_of(kept), day_of(kept)) if arguments.library else ((), "")
        kept.write_text(results(which, *old), encoding="utf-8")
    before = page.read_text(encoding="utf-8")
    now = page_of(before, kept)
    if arguments.check:
        if now != before:
            sys.exit("error: README.md is not what results.csv says; run make.py --page")
        return
    page.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()
