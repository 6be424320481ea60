"""The figures in README.md and on "What we found", each from the result file that the page names.

    python experiments/site/quoted.py            are all figures what the files say?
    python experiments/site/quoted.py --write    put what the files say into the pages
    python experiments/site/quoted.py --validate --write    the same, once arlab validate has written its file anew

In the page, a figure is followed by a comment with the expression that it is the value of: 3.9<!-- over_rccl(2, "q4", "64M") -->.
A table stands below its comment.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from page_tables import markdown, rows_in, rows_of
from repository import REPOSITORY, SITE, arlab

EXPERIMENTS = REPOSITORY / "experiments"
PAGES = (SITE / "pages/found.md", SITE / "pages/pytorch.md", REPOSITORY / "README.md", REPOSITORY / "kernels/README.md", REPOSITORY / "kernels/AMD.md", EXPERIMENTS / "measured/README.md", EXPERIMENTS / "measured/BOUNDS.md", REPOSITORY / "sim/README.md", REPOSITORY / "sim/ACCURACY.md", REPOSITORY / "sim/KERNELS.md", REPOSITORY / "experiments/studies/what_if/README.md")
FIGURE = re.compile(r"([-\w.,?]+)<!-- (\w+\([^\n]*?\)) -->")
TABLE = re.compile(r"^<!-- (\w+\([^\n]*?\)) -->\n(?:\n\|.*?\n(?=\n|\Z))?", re.DOTALL | re.MULTILINE)
SPEEDS = {2: ("bf16", "measured/h200_two_gpus_2026-11-30.csv"), 4: ("fp16", "measured/h200_places_2026-11-22.csv")}  # the latest of each
INSTRUCTIONS = "measured/codec_instructions_2026-11-26.csv"
TWO_GPUS = "measured/h200_two_gpus_2026-11-30.csv"
BUDGETS = "measured/h200_budgets_2026-11-30.csv"
TWO_GPUS_ALLOW = "measured/h200_link_and_memory_bound_2026-11-21.csv"
CODE_OBJECTS = "measured/gfx942_kernels_2026-11-23.csv"
H200_ISSUES_PER_US = 132 * 4 * 1980  # an instruction of a warp per cycle on each scheduler of its multiprocessors, at their highest clock
HOST_TIMES = "measured/h200_host_times_2026-11-28.csv"
OVERLAP = "measured/h200_overlap_2026-11-26.csv"
SMALL = "measured/h200_small_messages_2026-11-30.csv"
IN_TURNS = "measured/h200_all_reduces_2026-11-30.csv"
LAYERS = "measured/h200_layers_2026-11-30.csv"
FP32_SUMS = {ranks: f"measured/h200_fp32_sums_{ranks}_2026-11-28.csv" for ranks in (4, 8)}
TAILS = "measured/h200_tails_2026-11-30.csv"
CONFORMANCE = "measured/h200_conformance_2026-11-30.csv"
ACCURACY = "studies/accuracy/accuracy.csv"
TUNED = ("qr-q8", "qr-q6", "qr-q4", "qr-fp8", "int8-g128", "int5-g128", "int4-g32", "int2-g32-sr")


@functools.cache
def _table_in(name: str) -> list[dict[str, str]]:
    return rows_of(EXPERIMENTS / name)


def rows(name: str, **cells: Any) -> list[dict[str, str]]:
    """Returns the rows of a result file with these cells in their columns."""
    return [row for row in _table_in(name) if all(row[column] == str(cell) for column, cell in cells.items())]


def number(text: str) -> int:
    """64M is 64 * 2^20."""
    factors = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * factors[text[-1]] if text[-1] in factors else int(text)


# ---------------------------------------------------------------- measured: kernels on H200


def _microseconds(ranks: int, codec: str, size: str, library: str = "arlab") -> float:
    found = (row for row in rows(SPEEDS[ranks][1], codec=codec, bytes=number(size)) if int(row.get("ranks", ranks)) == ranks)
    found = (row for row in found if row["library"].split()[0] == library)
    return min(float(row["time_us"]) for row in found if row["algorithm"] in ("one_shot", "two_shot", "all_reduce"))


def shown(time: float) -> str:
    return f"{time:.3g}" if time < 100 else f"{time:.0f}"


def _table(heads: Sequence[str], lines: Iterable[Sequence[Any]], align: str = "") -> str:
    return markdown(heads, lines, align) + "\n"


def _size(size: str) -> str:
    """1 MiB of 1M."""
    return f"{size[:-1]} {size[-1]}iB"


def _codec_titles(codecs: Sequence[str]) -> list[str]:
    """Returns titles of columns; "" is no codec."""
    return [f"`{codec}`" if codec else "uncompressed" for codec in codecs]


def speeds() -> str:
    """Microseconds, and in brackets NCCL's time over them; the better of one_shot and two_shot."""
    codecs, lines = ("", "qr-q8", "int5-g128", "qr-q4"), []
    for ranks, sizes in ((2, ("64K", "1M", "8M", "64M")), (4, ("128K", "1M", "16M", "256M"))):
        dtype = SPEEDS[ranks][0]
        for size in sizes:
            nccl = _microseconds(ranks, dtype, size, "nccl")
            ours = [_microseconds(ranks, codec or dtype, size) for codec in codecs]
            lines.append((ranks, dtype, _size(size), shown(nccl), *(f"{shown(time)} ({nccl / time:.1f})" for time in ours)))
    return _table(["GPUs", "dtype", "size", "NCCL", *_codec_titles(codecs)], lines)


def pays_from(ranks: int, codec: str) -> str:
    """KiB: the smallest size from which on the codec is faster than the dtype without one."""
    dtype, file = SPEEDS[ranks]
    sizes = sorted({int(row["bytes"]) for row in rows(file, codec=codec) if int(row.get("ranks", ranks)) == ranks})
    faster = [_microseconds(ranks, codec, str(size)) < _microseconds(ranks, dtype, str(size)) for size in sizes]
    first = max((i + 1 for i, one in enumerate(faster) if not one), default=0)
    return str(sizes[first] // 1024)


def layers(of_tokens: Sequence[int] = (), of_choices: Sequence[str] = ()) -> str:
    """Microseconds that an all-reduce adds to a layer, the best of each library and codec; all, or some of them. Up to 8 MiB:
    with more, layers run at clocks that depend on the order in which they were measured, and their difference says little."""
    choices = {
        "NCCL": "nccl", "symmetric memory": "symmetric memory ", "arlab `bf16`": " bf16", "`qr-q8`": " qr-q8",
        "`qr-q4`": " qr-q4",
    }  # fmt: skip
    choices = {title: choices[title] for title in of_choices or choices}
    lines = []
    for tokens in of_tokens or sorted({int(row["tokens"]) for row in rows(LAYERS)}):
        of_size = rows(LAYERS, tokens=tokens)
        size = int(of_size[0]["bytes"])
        if size > 8 << 20:
            continue
        best = [min(float(row["added_us"]) for row in of_size if name in row["all_reduce"]) for name in choices.values()]
        unit, text = (1 << 20, "MiB") if size >= 1 << 20 else (1 << 10, "KiB")
        lines.append((tokens, f"{size // unit} {text}", *map(shown, best)))
    return _table(["tokens", "size", *choices], lines)


def _small(library: str, size: str, codec: str = "bf16") -> float:
    """The fastest one_shot of a library."""
    sized = rows(SMALL, codec=codec, tail="", bytes=number(size))
    found = (row for row in sized if row["library"].split()[0] == library)
    return min(float(row["time_us"]) for row in found if row["algorithm"].startswith("one_shot"))


def small_messages() -> str:
    """Microseconds of bf16 tensors on 2 GPUs, in turns; in brackets over FlashInfer's."""
    lines = []
    for size in ("16K", "64K", "256K", "1M"):
        theirs, ours = _small("flashinfer", size), [_small("arlab", size, codec) for codec in ("bf16", "qr-q8", "qr-q4")]
        lines.append((_size(size), shown(theirs), *(f"{shown(time)} ({time / theirs:.2f})" for time in ours)))
    return _table(["size", "FlashInfer", *_codec_titles(("bf16", "qr-q8", "qr-q4"))], lines)


def tails_two_gpus() -> str:
    """Microseconds of all-reduces with a tail on 2 GPUs, in turns, of the fastest algorithm; in brackets over FlashInfer's."""
    tail = "hidden=8192,residual=add,norm=rms"

    def best(size: str, tail: str, codec: str, ours: bool) -> float:
        found = rows(SMALL, bytes=number(size), tail=tail, codec=codec)
        return min(float(row["time_us"]) for row in found if (row["library"] == "arlab") == ours)

    names = ("bf16", "unfused"), ("bf16", "vllm"), ("qr-q4", "unfused"), ("qr-q4", "vllm")
    lines = []
    for size in ("16K", "64K", "256K", "1M", "2M", "4M", "8M", "16M"):
        theirs = best(size, f"{tail},rounding=vllm", "bf16", False)
        ours = [best(size, tail if name == "unfused" else f"{tail},rounding={name}", codec, True) for codec, name in names]
        lines.append((_size(size), shown(theirs), *(f"{shown(time)} ({time / theirs:.2f})" for time in ours)))
    return _table(["size", "FlashInfer", *(f"`{codec}`, `{name}`" for codec, name in names)], lines)


def in_turns() -> str:
    """Microseconds of all-reduces of bf16 tensors on 2 GPUs, each in a process per GPU, in turns."""
    columns = [("nccl", "auto", "bf16"), ("nccl", "symmetric", "bf16"), ("flashinfer", "two_shot", "fp8-e4m3-g256")]
    columns += [("arlab", "two_shot", codec) for codec in ("bf16", "fp8-e4m3-g128", "qr-q8", "qr-q4")]
    times = {(row["library"], row["algorithm"], row["codec"], row["bytes"]): float(row["time_us"]) for row in rows(IN_TURNS)}
    sizes = ("64K", "1M", "8M", "32M", "128M")
    lines = [(_size(size), *(shown(times[(*column, str(number(size)))]) for column in columns)) for size in sizes]
    return _table(["size", "NCCL", "NCCL, windows", "FlashInfer fp8", *_codec_titles([each[2] for each in columns[3:]])], lines)


def _instructions(architecture: str, codec: str, dtype: str, work: str) -> dict[str, str]:
    return rows(INSTRUCTIONS, architecture=architecture, codec=codec, dtype=dtype, work=work)[0]


def instructions() -> str:
    """Returns a thread's instructions for eight elements; in brackets those of AMD's vector units."""
    codecs, lines = ("", *TUNED), []
    for architecture in ("sm_90", "gfx942"):
        for dtype in ("fp16", "bf16"):
            for work, name in (("encode", "encode"), ("decode_add", "decode and add")):
                found = [_instructions(architecture, codec or dtype, dtype, work) for codec in codecs]
                cells = [row["instructions"] + (f" ({row['vector']})" if row["vector"] else "") for row in found]
                lines.append((f"{architecture}, {dtype}, {name}", *cells))
    return _table(["", *_codec_titles(codecs)], lines)


def _two_gpus(codec: str, size: str, sms: str = "", library: str = "arlab") -> dict[str, str]:
    algorithm = "two_shot" if library == "arlab" else "all_reduce"
    cells = {"algorithm": algorithm, "codec": codec, "bytes": number(size)}
    found = rows(BUDGETS, sms=sms, **cells) if sms else rows(TWO_GPUS, **cells)
    return next(row for row in found if row["library"].split()[0] == library)


def _of_two_shot(codec: str) -> float:
    """Instructions of a thread for its eight elements, on two ranks: all are encoded, and the sums of half of them; each is decoded
    twice."""
    encode, decode = (float(_instructions("sm_90", codec, "bf16", work)["instructions"]) for work in ("encode", "decode_add"))
    return 1.5 * encode + 2 * decode


def codec_bounds() -> str:
    """Returns times in microseconds by codec of one pass: the bound of two_shot of 64 MiB of bf16 on 2 H200, and the
    measured one."""
    allowed = {what: rows(TWO_GPUS_ALLOW, gpus=2, bytes=number("64M"), what=what) for what in ("links", "memory")}
    links = sorted((float(row["wire_bits"]), float(row["time_us"])) for row in allowed["links"])
    memory = min(float(row["time_us"]) for row in allowed["memory"])
    counted = {row["codec"] for row in rows(INSTRUCTIONS, architecture="sm_90")}
    found = []
    for codec in counted - {"fp16"}:
        row = _two_gpus(codec, "64M")
        bits, time = float(row["wire_bits"]), float(row["time_us"])
        (low, low_us), (high, high_us) = next(pair for pair in zip(links, links[1:]) if bits <= pair[1][0])
        of = {
            "links": low_us + (bits - low) * (high_us - low_us) / (high - low),
            "memory": memory,
            "instructions": _of_two_shot(codec) * number("64M") / 2 / (8 * 32) / H200_ISSUES_PER_US,
        }
        what, most = max(of.items(), key=lambda one: one[1])
        found.append((time / most, (f"`{codec}`", f"{bits:g}", *map(shown, of.values()), what, shown(time), f"{time / most:.2f}")))
    heads = ("codec", "bits", "links", "memory", "instructions", "bound by", "measured", "over the bound")
    return _table(heads, (line for _, line in sorted(found)))


def fp32_sums() -> str:
    """Returns the times of sums in fp32 relative to those in bf16, for ranks on one H200."""
    sizes, lines = ("64K", "256K", "1M", "4M", "16M", "64M"), []
    for algorithm in ("two_shot", "one_shot"):
        for ranks, file in FP32_SUMS.items():
            for codec in ("bf16", "qr-q8", "qr-q4", "int4-g32"):
                of = {row["bytes"]: row["ratio"] for row in rows(file, algorithm=algorithm, codec=codec)}
                lines.append((algorithm, ranks, f"`{codec}`", *(f"{float(of[str(number(size))]):.2f}" for size in sizes)))
    return _table(("algorithm", "ranks", "codec", *map(_size, sizes)), lines)


def tails() -> str:
    """Returns what tails of bf16 add to one_shot on an H200, in its kernel and behind it, in microseconds."""
    sizes, lines = ("16K", "64K", "256K", "1M"), []
    for rounding in ("unfused", "vllm"):
        for codec in ("bf16", "qr-q4"):
            for where in ("in the kernel", "behind it"):
                of = {row["bytes"]: row for row in rows(TAILS, rounding=rounding, codec=codec, tail=where, algorithm="one_shot")}
                added = [float(row["with_us"]) - float(row["alone_us"]) for row in (of[str(number(size))] for size in sizes)]
                lines.append((f"`{rounding}`", f"`{codec}`", where, *(f"{each:.2f}" for each in added)))
    return _table(("rounding", "codec", "tail", *map(_size, sizes)), lines)


def decode_and_add(codec: str) -> str:
    """Instructions of a thread that decodes eight elements of bf16 and adds them, on sm_90."""
    return _instructions("sm_90", codec, "bf16", "decode_add")["instructions"]


def fp32_over_native(codec: str) -> str:
    """Returns the same with fp32 sums: 16 conversions and additions in place of 4 packed additions."""
    native = float(decode_and_add(codec))
    return f"{(native - 4 + 16) / native:.2f}"


def all_equal(what: str) -> str:
    """Elements and wire bytes that conform compared, all of which must be equal."""
    found = rows(f"measured/h200_conformance_{what}.csv")
    assert not any(int(row["mismatches"]) for row in found)
    return f"{sum(int(row['compared_elements']) for row in found):,}"


def budget() -> str:
    """Microseconds of 64 MiB of bf16 on 2 H200 by N multiprocessors, beside NCCL with N channels; in brackets over NCCL's."""
    codecs = ("bf16", "qr-q8", "int4-g32", "qr-q4")
    lines = []
    for sms in ("8", "16", "32", ""):
        nccl = float(_two_gpus("bf16", "64M", sms, "nccl")["time_us"])
        times = [float(_two_gpus(codec, "64M", sms)["time_us"]) for codec in codecs]
        lines.append((sms or "all", shown(nccl), *(f"{shown(time)} ({time / nccl:.2f})" for time in times)))
    return _table(["N", "NCCL", *_codec_titles(codecs)], lines)


def host_times() -> str:
    """Microseconds of the host's thread for a call, by every way to make it and every size."""
    times = {(row["way"], row["bytes"]): f"{float(row['host_us']):.1f}" for row in rows(HOST_TIMES)}
    sizes = list(dict.fromkeys(size for _, size in times))
    ways = dict.fromkeys(way for way, _ in times)
    heads = ["host, us per call", *(f"{int(size) >> 10} KiB" for size in sizes)]
    return _table(heads, [(way, *(times[way, size] for size in sizes)) for way in ways])


def overlap(choice: str, column: str, tokens: int = 4096) -> str:
    """The least time of a matrix product with an all-reduce, over the multiprocessors that the all-reduce was given."""
    return f"{min(float(row[column]) for row in rows(OVERLAP, all_reduce=choice, tokens=tokens)):.0f}"


def code_objects() -> str:
    """Returns figures of collectives with three codecs on bf16."""
    kernels = ("one_shot_lamport", "two_shot_lamport", "one_shot", "two_shot")
    codecs = {"bf16": "Plain<Bf16>", "qr-q4": "QuickReduce<Q4, Bf16>", "int4-g32": "AnyBit<Bf16, FixedAnyBit<4u, 5u, (Spikes)0>>"}
    columns = {
        "vector registers": "vector_registers", "scalar registers": "scalar_registers", "shared memory": "local_bytes",
        "waves per SIMD": "waves", "instructions": "instructions", "packed": "packed_share", "waits": "waits",
        "scalar registers kept in lanes": "scalar_spills",
    }  # fmt: skip
    lines = []
    for kernel in kernels:
        for codec, name in codecs.items():
            row = rows(CODE_OBJECTS, kernel=f"{kernel}_kernel<{name}, Bf16>")[0]
            lines.append((f"`{kernel}`", f"`{codec}`", *(row[column] for column in columns.values())))
    return _table(["kernel", "codec", *columns], lines)


# Compute units, and GHz at most: datasheets. A vector instruction of a wave, 64 lanes, takes one of a unit's four SIMDs for four cycles.
AMD_GPUS = {"MI300X": (304, 2.1), "MI355X": (256, 2.4)}


def _vector_rate(gpu: str) -> float:
    """Vector instructions of a lane that a GPU begins in a second at most, times 10^9."""
    units, ghz = AMD_GPUS[gpu]
    return units * 64 * ghz


def estimated_rates() -> str:
    """Returns rates that vector instructions allow on AMD GPUs, 10^9 elements per second, fp16 / bf16."""
    lines = []
    for gpu in AMD_GPUS:
        for work, name in (("encode", "encode"), ("decode_add", "decode and add")):
            cells = []
            for codec in TUNED:
                taken = [float(_instructions("gfx942", codec, dtype, work)["vector"]) / 8 for dtype in ("fp16", "bf16")]
                cells.append(" / ".join(f"{_vector_rate(gpu) / one:,.0f}" for one in taken))
            lines.append((gpu, name, *cells))
    return _table(["GPU", "work", *_codec_titles(TUNED)], lines)


def estimated_gops(gpu: str) -> str:
    """codec_gops_per_s of a machine file: the counted operations that these kernels do in fp16, the geometric mean of the codecs; three digits."""
    counted = {row["name"]: row for row in rows_in(arlab("list", "codecs", "--format", "csv").decode())}
    shares = []
    for codec in TUNED:
        for work, operations in (("encode", "encode_ops_per_element"), ("decode_add", "decode_ops_per_element")):
            shares.append(float(counted[codec][operations]) * 8 / float(_instructions("gfx942", codec, "fp16", work)["vector"]))
    return f"{float(f'{_vector_rate(gpu) * statistics.geometric_mean(shares):.3g}'):.0f}"


def estimated_bf16_cost() -> str:
    """bf16_cost of a machine file: instructions for bf16 over those for fp16, the geometric mean of the codecs and both works."""
    ratios = []
    for codec in TUNED:
        for work in ("encode", "decode_add"):
            bf16, fp16 = (float(_instructions("gfx942", codec, dtype, work)["vector"]) for dtype in ("bf16", "fp16"))
            ratios.append(bf16 / fp16)
    return f"{statistics.geometric_mean(ratios):.2f}"


def codecs_compared() -> str:
    return str(len({row["codec"] for row in rows(CONFORMANCE)}))


def compared() -> str:
    return f"{sum(int(row['compared_elements']) for row in rows(CONFORMANCE)):,}"


def mismatches() -> str:
    return str(sum(int(row["mismatches"]) for row in rows(CONFORMANCE)))


# ---------------------------------------------------------------- published: QuickReduce on MI300X


def over_rccl(gpus: int, codec: str, size: str) -> str:
    """RCCL's time over QuickReduce's."""
    row = rows(f"published/quickreduce_mi300x_{gpus}gpu_latency_us.csv", bytes=number(size))[0]
    return f"{float(row['rccl']) / float(row[codec]):.1f}"


# ---------------------------------------------------------------- exact: errors


def sqnr(codec: str, algorithm: str = "two_shot", of: str = "token", input: str = "MiniLM", ranks: int = 8) -> str:
    """dB; median over tensors, of the median token or of whole tensors."""
    column = {"token": "median_token_sqnr_db", "tensor": "median_sqnr_db"}[of]
    return f"{float(rows(ACCURACY, input=input, ranks=ranks, algorithm=algorithm, codec=codec)[0][column]):.1f}"


def bits(codec: str) -> str:
    return f"{float(rows(ACCURACY, codec=codec)[0]['wire_bits_per_element']):g}"


@functools.cache
def token_sqnr(algorithm: str, codec: str, tensor: str, ranks: int = 8) -> str:
    """dB, of the median token of a tensor, by the reference."""
    activations = EXPERIMENTS / f"data/minilm_tp{ranks}.safetensors"
    command = ["reduce", "--algorithm", algorithm, "--codec", codec, "--input", str(activations), "--tensor", tensor]
    return f"{json.loads(arlab(*command, '--format', 'json'))['token_sqnr_db']:.1f}"


# ---------------------------------------------------------------- simulated


ERRORS = EXPERIMENTS / "published/errors.json"


@functools.cache
def errors(against: str) -> dict[str, Any]:
    """Returns the results of `arlab validate`; tests/cli/test_validate.py compares the file with the program."""
    return json.loads(ERRORS.read_text())[against]


def _tables_of(against: str, held_out: bool) -> list[dict[str, Any]]:
    return [table for table in errors(against)["tables"] if table["held_out"] == held_out]


def write_errors() -> None:
    found = {}
    for against in ("published", "measured"):
        report = json.loads(arlab("validate", "--against", against, "--format", "json", cwd=REPOSITORY))
        cells = ("measurements", "predictions")
        found[against] = {"command": f"arlab validate --against {against}"} | {name: value for name, value in report.items() if name not in cells}
    ERRORS.write_text(json.dumps(found, indent=1) + "\n")


def validation(figure: str, against: str = "published") -> str:
    value = errors(against)[figure]
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def kernels(figure: str) -> str:
    """Returns an error of the simulator against our kernels as they are."""
    return validation(figure, "measured")


def largest(but: str = "", of: str = "") -> str:
    """Per cent: of all tables of the published times, held out or not, or of those named."""
    tables = [table for table in errors("published")["tables"] if table["name"] != but and table["name"].startswith(of)]
    return f"{max(table['max_ape_percent'] for table in tables):.0f}"


def fitted() -> str:
    """A row per published table, as `arlab validate` has them."""
    columns = {
        "mape_percent": "mean error, %", "max_ape_percent": "largest", "below_512k_percent": "below 512 KiB", "below_16m_percent": "to 16 MiB",
        "from_16m_percent": "from 16 MiB", "best_codec_ok": "best codec within 5 % of the fastest",
    }  # fmt: skip
    lines = []
    for table in _tables_of("published", held_out=False):
        values = ["" if table[key] is None else f"{table[key]:.1f}" if isinstance(table[key], float) else table[key] for key in columns]
        lines.append((table["name"], table["cells"], *values))
    return _table(["table", "cells", *columns.values()], lines, "lr" + "r" * len(columns))


def measured() -> str:
    """A row per table of our own kernels' times."""
    columns = {"cells": "cells", "mape_percent": "mean error, %", "max_ape_percent": "largest", "best_codec_ok": "best codec within 5 % of the fastest"}
    found = _tables_of("measured", held_out=False)
    lines = [(table["name"].split(": ")[1], *(f"{v:.1f}" if isinstance(v := table[key], float) else v for key in columns)) for table in found]
    return _table(["machine", *columns.values()], lines, "l" + "r" * len(columns))


def measured_by_algorithm(machine: str = "h200-2") -> str:
    """A row per algorithm, beside our own kernels' times."""
    report = json.loads(arlab("validate", "--against", "measured", "--skip-hold-outs", "--format", "json", cwd=REPOSITORY))
    of: dict[str, list[float]] = {}
    for cell in report["measurements"]:
        if cell["topology"] == machine:
            of.setdefault("NCCL" if cell["library"] else f"`{cell['algorithm']}`", []).append(cell["error_percent"])
    lines = [(name, len(e), f"{sum(map(abs, e)) / len(e):.1f}", f"{sum(e) / len(e):+.1f}", f"{max(map(abs, e)):.1f}") for name, e in of.items()]
    return _table(("algorithm", "cells", "mean error, %", "mean of errors with their sign", "largest"), lines, "lrrrr")


def held_out() -> str:
    """A row per machine: all cells that fits of it did not see."""
    names, lines = {"mi300x": "2, 4 and 8 MI300X", "flashcomm2": "L40, A100, H800, H20"}, []
    names |= {"nccl_servers": "NCCL on two servers of A100, H100 and H200", "nccl_l40s_8": "NCCL on 8 L40S"}
    names |= {"nccl_gb200": "NCCL on 72 GB200", "nccl_rtx_5090": "NCCL on 4 RTX 5090"}
    of_machine: dict[str, list[dict[str, Any]]] = {}
    for against in ("published", "measured"):
        for table in _tables_of(against, held_out=True):
            machine = table["name"].split(":")[0]
            if against == "measured":
                names[machine] = f"kernels of arlab on {machine.upper()}"
            of_machine.setdefault(machine, []).append(table)
    for machine, tables in of_machine.items():
        cells = sum(table["cells"] for table in tables)
        mean, within = (sum(table[key] * table["cells"] for table in tables) / cells for key in ("mape_percent", "in_interval_percent"))
        name = names.get(machine, f"NCCL on {machine.removeprefix('nccl_').upper()}")
        most = max(table["max_ape_percent"] for table in tables)
        lines.append((name, len(tables), cells, f"{mean:.1f}", f"{most:.1f}", f"{within:.1f}"))
    return _table(("tables of", "fits", "cells not seen", "mean error, %", "largest", "in the interval, %"), lines, "lrrrrr")


def _simulated(question: str, machine: str, size: str, codec: str, algorithm: str = "", implementation: str = "kernel") -> float:
    """Microseconds of the fastest algorithm, or of this one, in a table of "What if?"."""
    found = rows(f"studies/what_if/{question}.csv", topology=machine, bytes=number(size), codec=codec, implementation=implementation)
    return min(float(row["latency_us"]) for row in found if algorithm in ("", row["algorithm"]))


def slower(question: str, machine: str, size: str, codec: str, than: str = "h200-8") -> str:
    return f"{_simulated(question, machine, size, codec) / _simulated(question, than, size, codec):.1f}"


def faster(question: str, machine: str, size: str, codec: str, than: str) -> str:
    """The fastest algorithm than this one."""
    return f"{_simulated(question, machine, size, codec, than) / _simulated(question, machine, size, codec):.1f}"


def ratio(question: str, machine: str, size: str, codec: str, to: str) -> str:
    return f"{_simulated(question, machine, size, codec) / _simulated(question, machine, size, to):.1f}"


def over_library(question: str, size: str, codec: str) -> str:
    return f"{_simulated(question, 'h200-8', size, 'bf16', implementation='library') / _simulated(question, 'h200-8', size, codec):.1f}"


def what_if(question: str, by: str = "") -> str:
    """Microseconds by machine, codec, and `by`, the column algorithm; of what is left the fastest."""
    sizes = ("64K", "1M", "16M", "64M", "256M")
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows(f"studies/what_if/{question}.csv"):
        codec = "NCCL" if row["implementation"] == "library" else f"`{row['codec']}`"
        times = found.setdefault((row["topology"], codec, *([f"`{row[by]}`"] if by else [])), {})
        times[int(row["bytes"])] = min(float(row["latency_us"]), times.get(int(row["bytes"]), math.inf))
    heads = ["machine", "codec", *([by] if by else [])]
    lines = [(*names, *(shown(times[number(size)]) for size in sizes)) for names, times in found.items()]
    return _table([*heads, *map(_size, sizes)], lines, "l" * len(heads) + "r" * len(sizes))


def quoted(page: str) -> str:
    """The page with what the files say."""
    functions = {name: value for name, value in globals().items() if callable(value)}

    def value(match: re.Match[str]) -> str:
        return f"{eval(match[2], functions)}<!-- {match[2]} -->"  # our own page

    page = TABLE.sub(lambda match: f"<!-- {match[1]} -->\n\n{eval(match[1], functions)}", page)
    return FIGURE.sub(value, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put what the files say into the pages")
    parser.add_argument("--validate", action="store_true", help="write what arlab validate says into its file first (two minutes)")
    options = parser.parse_args()
    write = options.write
    if options.validate:
        write_errors()
    for page in PAGES:
        before = page.read_text()
        after = quoted(before)
        if write:
            page.write_text(after)
        elif after != before:
            sys.exit("error: {} has figures that are not those of the files; quoted.py --write puts them right:\n{}".format(
                page.relative_to(REPOSITORY), "\n".join(difference(before, after))
            ))


def difference(before: str, after: str) -> list[str]:
    """The lines of the page that differ."""
    return [line for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="") if line[:1] in "+-"]


if __name__ == "__main__":
    main()
