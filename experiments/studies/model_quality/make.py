#!/usr/bin/env python3
"""Effects of compression on a language model: runs `arlab model perplexity`, judges findings, fills in its pages.

    make.py                 runs what the .csv files need (60 minutes of processor time; SmolLM2 must be in the cache), then the rest
    make.py --page          only the pictures and pages, from the files as they are

Results are kept in results/model_quality, so that a run that was interrupted goes on. It needs the build of
./quickstart.sh, and `python -m arlab.fetch smollm2`.

Exit code: 0; 2 where a run fails.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path[:0] = [str(REPOSITORY / "experiments/site"), str(REPOSITORY / "experiments/python")]

import pandas as pd  # noqa: E402
from repository import arlab  # noqa: E402
from page_tables import csv_text, filled, markdown, rows_in  # noqa: E402

RESULTS = REPOSITORY / "experiments/data/model_quality.csv"  # which arlab select reads, too
COMMAND = ".venv/bin/python experiments/studies/model_quality/make.py"
TEXT = "experiments/activations/texts/prose.txt"
TOKENS = 2048
ROUNDED = (
    "int8-g128,int6-g128,int5-g128,int4-g128,int3-g128,int2-g128,int8-g32,int6-g32,int5-g32,int4-g32,int3-g32,int2-g32"
)
METHODS = (
    "int2-g32-sr,int3-g32-sr,int4-g32-sr,had-int4-g32,had-int3-g32,had-int2-g32,logfmt4-g32,logfmt3-g32,logfmt2-g32,"
    "qr-q8,qr-q6,qr-q4,qr-q3,qr-fp8,qr-fp4,mxfp8-e4m3,mxfp6-e2m3,mxfp4,mxint8,nvfp4,fp8-e4m3-g128"
)
COMMON = "qr-q8,qr-q4,int5-g128,int4-g32"
# (algorithms, ranks, dtype, codecs)
RUNS = (
    ("two_shot", "4", "fp16", f"fp16,{ROUNDED},{METHODS}"),
    ("one_shot,ring,hierarchical", "4", "fp16", f"{COMMON},qr-q6,int8-g128,int2-g32-sr"),
    ("two_shot,ring", "2,8", "fp16", COMMON),
    ("one_shot,hierarchical", "8", "fp16", "qr-q4,int4-g32"),
    ("two_shot", "4", "bf16", "bf16,qr-q8,qr-q4,int4-g32,nvfp4"),
)
# (weights, activations), each with every codec, two_shot on 4 ranks.
QUANTIZED = (
    ("none", "none"),
    ("int8", "none,int8,int8-asym,int8-tensor,int8-tensor-static"),
    ("int8-tensor", "int8"),
    ("int8-asym", "int8-asym"),
    ("fp8", "fp8,fp8-tensor"),
    ("int4-g128,int4-g32,int4-g32-asym", "fp16"),
)
QUANTIZED_CODECS = "fp16,qr-q8,int5-g128,qr-q4"
CALIBRATION = "experiments/activations/texts/code.txt"
# How sums are made: bf16, two_shot, of the first tokens of the text.
SUMS = ("native", "decode=fp32,add=fp32")
SUM_CODECS = "bf16,qr-q8,qr-q4,int4-g32"
SUM_RANKS = "2,4,8,16"
SUM_TOKENS = "1024"
# Codecs with their names in the picture.
NAMED = (
    "int2-g32", "int2-g32-sr", "int3-g32-sr", "int4-g32-sr", "int3-g128", "int4-g128", "int5-g128", "int6-g128", "int8-g128", "int3-g32",
    "int5-g32", "int6-g32", "int8-g32", "had-int2-g32", "had-int4-g32", "logfmt3-g32", "logfmt4-g32", "qr-q8", "qr-q6", "qr-q4",
    "qr-fp8", "mxfp4", "mxfp8-e4m3", "mxint8", "nvfp4",
)  # fmt: skip
# Layer by layer: two_shot on 4 ranks, of the first tokens of the text.
LAYERS = ("--tokens", "1024", "--codec", "qr-q4")
ASSIGN = ("--tokens", "512", "--codec", "qr-q8,qr-q6,qr-q4", "--max-kl", "0.05", "--points", "3")


# ---------------------------------------------------------------------------------------- results


def asked(command: str, *options: str, algorithm: str = "two_shot", ranks: str = "4", dtype: str = "fp16") -> list[dict[str, str]]:
    """The rows of the answer."""
    words = ["--model", "smollm2", "--text", str(REPOSITORY / TEXT), "--algorithm", algorithm, "--ranks", ranks, "--dtype", dtype]
    return rows_in(arlab("model", command, *words, *options, "--format", "csv").decode())


def perplexities(*options: str, **collective: str) -> list[dict[str, str]]:
    cache = REPOSITORY / "results/model_quality"
    cache.mkdir(parents=True, exist_ok=True)
    return asked("perplexity", "--tokens", str(TOKENS), "--cache", str(cache), *options, **collective)


def run() -> list[dict[str, str]]:
    rows = []
    for algorithm, ranks, dtype, codecs in RUNS:
        rows += perplexities("--codec", codecs, algorithm=algorithm, ranks=ranks, dtype=dtype)
    return [{key: value for key, value in row.items() if key not in ("weights", "activations")} for row in rows]


def run_quantized() -> list[dict[str, str]]:
    rows = []
    for weights, activations in QUANTIZED:
        calibration = ("--calibration", str(REPOSITORY / CALIBRATION)) if "static" in activations else ()
        rows += perplexities("--codec", QUANTIZED_CODECS, "--weights", weights, "--activations", activations, *calibration)
    return rows


def run_sums() -> list[dict[str, str]]:
    rows = []
    for how in SUMS:
        options = ("--tokens", SUM_TOKENS, "--codec", SUM_CODECS, "--sum", how)
        rows += [{"sum": how, **row} for row in asked("perplexity", *options, ranks=SUM_RANKS, dtype="bf16")]
    return [{key: value for key, value in row.items() if key not in ("weights", "activations")} for row in rows]


def write(rows: list[dict[str, str]], path: Path, what: str = f"the first {TOKENS} tokens of {TEXT}, context 1024") -> None:
    provenance = "provenance: exact: computed by the network of arlab model perplexity, every all-reduce bit for bit"
    path.write_text(csv_text(rows, f"arlab.model_quality/1: SmolLM2-135M, {what}", f"command: {COMMAND}", provenance), encoding="utf-8")


def of_layers(command: str, options: tuple[str, ...]) -> str:
    return f"arlab model {command} --text {TEXT} --ranks 4 --algorithm two_shot --dtype fp16 {' '.join(options)}"


def committed(file: str | Path = RESULTS) -> pd.DataFrame:
    frame = pd.read_csv(HERE / file, comment="#")
    frame.attrs["provenance"] = f"exact, SmolLM2-135M on {TOKENS} tokens of prose, by arlab model perplexity"
    return frame


class Value(NamedTuple):
    """With its standard error; NaN where there is none, and then judged as it is."""

    value: float
    error: float = 0.0

    def __sub__(self, other: Value) -> Value:
        """The common part of the two errors (they are of the same tokens) is not taken out; the error is an upper
        bound."""
        return Value(self.value - other.value, math.hypot(self.error, other.error))


HOLDS, FAILS, OPEN = "*holds*", "*does not hold*", "*within the error*"
SURE = 2  # standard errors


def below(*differences: Value) -> str:
    """Whether all are below 0: yes where they are by two standard errors, no where one is above by as many."""
    margins = [(each.value, 0.0 if math.isnan(each.error) else SURE * each.error) for each in differences]
    if all(value + margin < 0 for value, margin in margins):
        return HOLDS
    return FAILS if any(value - margin >= 0 for value, margin in margins) else OPEN


def within_the_error(differences: dict[str, Value]) -> str:
    """Returns those that are neither below 0 nor above it, to be added to figures; nothing where none is."""
    names = [name for name, difference in differences.items() if below(difference) == OPEN]
    return f"; within the error: {', '.join(names)}" if names else ""


class Results:
    def __init__(self, frame: pd.DataFrame):
        self.frame = frame

    def __call__(self, codec: str, ranks: int = 4, algorithm: str = "two_shot", dtype: str = "fp16") -> Any:
        f = self.frame
        (row,) = f[(f.codec == codec) & (f.ranks == ranks) & (f.algorithm == algorithm) & (f.dtype == dtype)].itertuples()
        return row

    def by_algorithm(self, codec: str, ranks: int) -> dict[str, float]:
        f = self.frame
        return f[(f.codec == codec) & (f.ranks == ranks) & (f.dtype == "fp16")].set_index("algorithm")["mean_kl"].to_dict()

    def kl(self, codec: str, **where: Any) -> float:
        return float(self(codec, **where).mean_kl)

    def perplexity(self, codec: str, **where: Any) -> float:
        return float(self(codec, **where).perplexity)

    def ln(self, codec: str) -> Value:
        """ln(perplexity / uncompressed), two_shot on 4 ranks, fp16."""
        row = self(codec)
        return Value(math.log(row.perplexity / row.baseline_perplexity), row.ln_ratio_standard_error)

    def divergence(self, codec: str, **where: Any) -> Value:
        row = self(codec, **where)
        return Value(row.mean_kl, row.mean_kl_standard_error)

    def ln_divergence(self, codec: str, **where: Any) -> Value:
        value, error = self.divergence(codec, **where)
        return Value(math.log(value), error / value)


def shown(value: float) -> str:
    """Three or four digits; large ones as powers of ten."""
    if value >= 1000:
        exponent = len(str(int(value))) - 1
        return f"{value / 10**exponent:.1f}e{exponent}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


# ---------------------------------------------------------------------------------------- findings

BITS = (8, 6, 5, 4, 3, 2)
WIDTHS = (4, 3, 2)
CODECS = tuple(COMMON.split(","))


def percent(value: Value) -> str:
    """Returns a logarithm as a percentage: `+1.6 ± 0.4 %`."""
    more = math.exp(value.value)
    return f"{round(100 * (more - 1), 1) + 0.0:+.1f} ± {100 * more * value.error:.1f} %"


def log_text(value: Value) -> str:
    return f"{value.value:+.2f} ± {value.error:.2f}"


def said(holds: bool) -> str:
    return HOLDS if holds else FAILS


def findings(r: Results) -> Iterator[tuple[str, str, str, str]]:
    """(claim, where it is from, whether it holds here, figures)."""
    plain = r.perplexity("fp16")
    paper = "Flash Communication V2"

    wide = {bits: r.perplexity(f"int{bits}-g128") for bits in BITS}
    ln = {bits: r.ln(f"int{bits}-g128") for bits in BITS}
    figures = ", ".join(f"int{bits} {shown(value)}" for bits, value in wide.items())
    steps = list(ln.values())
    yield (
        "Rounding to nearest, groups of 128: every bit less costs perplexity", f"{paper}, table 1",
        below(*(a - b for a, b in zip(steps, steps[1:]))), f"fp16 {shown(plain)}; {figures}",
    )  # fmt: skip
    yield (
        "8 bits cost below 1 %", f"{paper}, table 1", below(ln[8] - Value(math.log(1.01))), percent(ln[8]),
    )  # fmt: skip
    yield (
        "5 bits cost at most 3 % more than 8 (2.0 % for Llama 3 8B)", f"{paper}, table 1",
        below(ln[5] - ln[8] - Value(math.log(1.03))), percent(ln[5] - ln[8]),
    )  # fmt: skip
    yield ("2 bits are of no use (perplexity more than ten times)", f"{paper}, table 1", below(Value(math.log(10)) - ln[2]), shown(wide[2]))

    fine = {bits: r.perplexity(f"int{bits}-g32") for bits in BITS}
    yield (
        "Groups of 32 are better than groups of 128 at the same width", f"{paper}, tables 1 and 3",
        below(*(r.divergence(f"int{bits}-g32") - r.divergence(f"int{bits}-g128") for bits in BITS)),
        ", ".join(f"int{bits} {shown(wide[bits])} to {shown(fine[bits])}" for bits in (5, 4, 3)),
    )  # fmt: skip

    methods = {
        "rounding to nearest": "int{}-g32", "spike reserving": "int{}-g32-sr", "Hadamard": "had-int{}-g32", "LogFMT": "logfmt{}-g32"
    }  # fmt: skip
    table = {bits: {name: r.perplexity(form.format(bits)) for name, form in methods.items()} for bits in WIDTHS}
    yield (
        "Spike reserving is the best of four methods at 4, 3 and 2 bits", f"{paper}, table 3",
        below(*(r.ln(methods["spike reserving"].format(bits)) - r.ln(form.format(bits)) for bits in WIDTHS
                for name, form in methods.items() if name != "spike reserving")),
        "; ".join(f"{bits} bits: {shown(table[bits]['spike reserving'])}, not {shown(table[bits]['rounding to nearest'])}" for bits in WIDTHS),
    )  # fmt: skip
    yield (
        "LogFMT is the worst of them at 2 bits", f"{paper}, table 3",
        below(*(r.ln(form.format(2)) - r.ln("logfmt2-g32") for name, form in methods.items() if name != "LogFMT")),
        ", ".join(f"{name} {shown(value)}" for name, value in table[2].items())
        + f"; ln of rounding to nearest over LogFMT {log_text(r.ln('int2-g32') - r.ln('logfmt2-g32'))}",
    )  # fmt: skip
    yield (
        "Hadamard transforms make 2 bits worse than rounding to nearest", f"{paper}, table 3 (all four models)",
        below(r.ln("int2-g32") - r.ln("had-int2-g32")),
        f"{shown(table[2]['Hadamard'])}, not {shown(table[2]['rounding to nearest'])}",
    )  # fmt: skip

    runs = {(codec, ranks): r.by_algorithm(codec, ranks) for codec in CODECS for ranks in (2, 4, 8)}

    def compared(less: str, more: str, ranks: tuple[int, ...], told: int) -> tuple[str, str]:
        """Whether the KL of `less` is below that of `more`; beside two_shot, the figures of the other on `told` ranks."""
        differences = {
            f"{c} on {n} ranks": r.divergence(c, ranks=n, algorithm=less) - r.divergence(c, ranks=n, algorithm=more)
            for (c, n), run in runs.items() if n in ranks and less in run and more in run
        }  # fmt: skip
        other = less if more == "two_shot" else more
        figures = ", ".join(f"{c} {shown(runs[c, told][other])}, not {shown(runs[c, told]['two_shot'])}" for c in CODECS)
        return below(*differences.values()), f"KL on {told} ranks: {figures}{within_the_error(differences)}"

    yield (
        "A ring accumulates the error of every hop: worse than two_shot with 4 and 8 ranks", "QuickReduce",
        *compared("two_shot", "ring", (4, 8), told=8),
    )  # fmt: skip

    def over_two_shot(codec: str, ranks: int) -> Value:
        return r.ln_divergence(codec, ranks=ranks, algorithm="ring") - r.ln_divergence(codec, ranks=ranks)

    more = {c: over_two_shot(c, 4) - over_two_shot(c, 8) for c in CODECS}
    yield (
        "... and more so with more ranks", "QuickReduce", below(*more.values()),
        "KL of the ring over that of two_shot, 4 and 8 ranks: "
        + ", ".join(f"{c} {runs[c, 4]['ring'] / runs[c, 4]['two_shot']:.2f}, {runs[c, 8]['ring'] / runs[c, 8]['two_shot']:.2f}" for c in CODECS)
        + within_the_error(more),
    )  # fmt: skip
    yield (
        "Encoding once (one_shot) is better than twice (two_shot)", "ours",
        *compared("one_shot", "two_shot", (2, 4, 8), told=4),
    )  # fmt: skip
    yield (
        "Encoding three times (hierarchical) is worse than twice", "ours",
        *compared("two_shot", "hierarchical", (2, 4, 8), told=4),
    )  # fmt: skip

    both = [(r.kl(codec), r.kl(codec, dtype="bf16")) for codec in ("qr-q8", "qr-q4", "int4-g32", "nvfp4")]
    change = {codec: r.ln_divergence(codec, dtype="bf16") - r.ln_divergence(codec) for codec in ("qr-q4", "int4-g32", "nvfp4")}
    bounds = [sides for each in change.values() for sides in (each - Value(math.log(1.15)), Value(math.log(0.85)) - each)]
    yield (
        "With codecs of 4 bits it makes no difference of more than 15 % whether payloads are fp16 or bf16", "ours",
        below(*bounds),
        f"KL: qr-q4 {shown(both[1][0])} and {shown(both[1][1])}, int4-g32 {shown(both[2][0])} and {shown(both[2][1])}; "
        f"qr-q8 {shown(both[0][0])} and {shown(both[0][1])}; uncompressed {shown(r.kl('fp16'))} and {shown(r.kl('bf16', dtype='bf16'))}; bf16 over fp16: "
        + ", ".join(f"{codec} {math.exp(value):.2f} ± {math.exp(value) * error:.2f}" for codec, (value, error) in change.items()),
    )  # fmt: skip

    residuals, correlation = relation(r.frame)
    yield (
        "SQNR predicts KL: rank correlation over all runs below -0.9", "ours", said(correlation < -0.9), f"{correlation:.3f}"
    )  # fmt: skip
    worst = residuals[residuals.abs() > 1]
    told = ", ".join(f"{codec} {factor_text(factor)}" for codec, factor in worst.sort_values(key=abs, ascending=False).items())
    yield (
        "No codec is off that relation by more than a factor of 2", "ours", said(worst.empty), told or "none is",
    )  # fmt: skip


def relation(frame: pd.DataFrame) -> tuple[pd.Series, float]:
    """log2 of each codec's KL (two_shot, 4 ranks, fp16) over that of a line through all runs, in log KL over dB (1e-4 to 1 nats); rank correlation."""
    import numpy as np

    runs = frame[(frame.mean_kl > 1e-4) & (frame.mean_kl < 1) & frame.token_sqnr_db.notna()]
    slope, start = np.polyfit(runs.token_sqnr_db, np.log2(runs.mean_kl), 1)
    chosen = runs[(runs.algorithm == "two_shot") & (runs.ranks == 4) & (runs.dtype == "fp16")].set_index("codec")
    residuals = np.log2(chosen.mean_kl) - (slope * chosen.token_sqnr_db + start)
    every = frame[frame.token_sqnr_db.notna()]
    return residuals, float(every.token_sqnr_db.rank().corr(every.mean_kl.rank()))


def factor_text(log2: float) -> str:
    return f"{2 ** abs(log2):.1f} times {'more' if log2 > 0 else 'less'}"


def findings_table(r: Results) -> str:
    return markdown(("finding", "from", "here", "figures"), findings(r))


def codecs_table(r: Results) -> str:
    f, lines = r.frame, []
    for row in f[(f.ranks == 4) & (f.algorithm == "two_shot") & (f.dtype == "fp16")].sort_values("mean_kl").itertuples():
        change = r.ln(row.codec)
        over = percent(change) if change.value < math.log(10) else f"{shown(math.exp(change.value))} times"
        perplexity = f"{shown(row.perplexity)} ± {shown(row.perplexity_standard_error)}"
        figures = shown(row.mean_kl), shown(row.p99_kl), f"{row.top1_agreement_percent:.1f}", f"{row.token_sqnr_db:.1f}"
        lines.append((f"`{row.codec}`", f"{row.wire_bits_per_element:.4g}", perplexity, over, *figures))
    heads = ("codec", "wire bits", "perplexity", "over uncompressed", "mean KL", "p99 KL", "top-1, %", "SQNR, dB")
    return markdown(heads, lines, "lrrrrrrr")


def algorithms_table(r: Results) -> str:
    names, lines = ("one_shot", "two_shot", "ring", "hierarchical"), []
    for codec in CODECS:
        for ranks in (2, 4, 8):
            runs = r.by_algorithm(codec, ranks)
            lines.append((f"`{codec}`", ranks, *(shown(runs[name]) if name in runs else "" for name in names)))
    return markdown(("codec", "ranks", *names), lines, "lrrrrr")


def quantized_table(_: Results) -> str:
    """Returns, by pair: the perplexity with fp16, the KL with each codec, and that with qr-q4 over the sum of its
    parts' costs."""
    frame = committed("quantized.csv")
    codecs = QUANTIZED_CODECS.split(",")
    kl = frame.set_index(["weights", "activations", "codec"]).mean_kl.sort_index()
    heads = ("weights", "activations", "perplexity, `fp16`", *(f"KL, `{codec}`" for codec in codecs), "`qr-q4`: of the sum")
    lines = []
    for (weights, activations), rows in frame.groupby(["weights", "activations"], sort=False):
        own = kl[weights, activations]
        share = own["qr-q4"] / (own["fp16"] + kl["none", "none", "qr-q4"])
        figures = (shown(rows.perplexity.iloc[0]), *(shown(own[codec]) for codec in codecs), f"{share:.2f}")
        lines.append((f"`{weights}`", f"`{activations}`", *figures))
    return markdown(heads, lines, "ll" + "r" * (len(heads) - 2))


def layers_table(_: Results) -> str:
    """Returns every layer whose compression alone costs more than 3 times the median layer's, and the others' costs."""
    frame = committed("layers.csv")
    alone = frame["alone_mean_kl"]
    heavy = frame[alone > 3 * alone.median()]
    light = frame.drop(heavy.index)
    lines = [(row.layer, shown(row.alone_mean_kl), f"{row.state_token_sqnr_db:.1f}") for row in heavy.itertuples()]
    kl = f"{shown(light.alone_mean_kl.min())} to {shown(light.alone_mean_kl.max())}"
    lines.append((f"the other {len(light)}, each", kl, f"{light.state_token_sqnr_db.min():.1f} to {light.state_token_sqnr_db.max():.1f}"))
    return markdown(("layer", "KL of it alone", "SQNR of its output, median token, all compressed, dB"), lines, "lrr")


def assignments_table(_: Results) -> str:
    lines = []
    for row in committed("assignments.csv").itertuples():
        front = "yes" if str(row.on_front).lower() == "true" else "no"
        lines.append((f"{row.wire_bits_per_element:.4g}", shown(row.mean_kl), shown(row.predicted_kl), front, f"`{row.assignment}`"))
    return markdown(("wire bits", "mean KL", "predicted", "on the front", "codecs of the layers"), lines, "rrrll")


def experts_table(_: Results) -> str:
    lines = []
    for row in committed("experts.csv").itertuples():
        figures = shown(row.mean_kl), f"{row.top1_agreement_percent:.1f}", f"{row.first_layer_token_sqnr_db:.1f}"
        lines.append((f"`{row.dispatch}`", f"`{row.combine}`", shown(row.perplexity), *figures))
    heads = ("dispatch", "sent back as", "perplexity", "mean KL", "top-1, %", "SQNR of the first layer's output, dB")
    return markdown(heads, lines, "llrrrr")


def minilm_table(_: Results) -> str:
    lines = [
        (f"`{row.codec}`", f"{row.nearest_agreement_percent:.0f}", f"{row.cosine_rmse:.2g}", f"{row.cosine_correlation:.4f}")
        for row in committed("minilm.csv").itertuples()
    ]
    return markdown(("codec", "same nearest sentence, %", "RMS error of the cosines", "correlation of the cosines"), lines, "lrrr")


def sums_table(_: Results) -> str:
    frame = committed("sums.csv")
    native, fp32 = (frame[frame["sum"] == how].set_index(["codec", "ranks"]) for how in SUMS)
    lines = []
    for codec, ranks in native.index:
        a, b = native.loc[(codec, ranks)], fp32.loc[(codec, ranks)]
        kl = (f"{row.mean_kl:.2g} ± {row.mean_kl_standard_error:.1g}" for row in (a, b))
        lines.append((f"`{codec}`", str(ranks), *kl, f"{b.mean_kl / a.mean_kl:.2f}", f"{a.token_sqnr_db:.1f}", f"{b.token_sqnr_db:.1f}"))
    return markdown(("codec", "ranks", "mean KL, bf16 sums", "mean KL, fp32 sums", "ratio", "SQNR, bf16 sums", "SQNR, fp32 sums"), lines, "lrrrrrr")


PARTS = {
    "findings": findings_table, "codecs": codecs_table, "algorithms": algorithms_table, "quantized": quantized_table, "layers": layers_table,
    "assignments": assignments_table, "experts": experts_table, "minilm": minilm_table, "sums": sums_table,
}  # fmt: skip


PAGES = ("README.md", "findings.md", "layers.md", "others.md", "sums.md")


def page_of(text: str, frame: pd.DataFrame) -> str:
    """A page with its tables."""
    r = Results(frame)
    return filled(text, {name: partial(part, r) for name, part in PARTS.items()})


def draw(frame: pd.DataFrame) -> None:
    from arlab.figures import divergence_over_sqnr, save, style

    style.use_own_fonts()
    named = frame[(frame.ranks == 4) & (frame.algorithm == "two_shot") & (frame.dtype == "fp16") & frame.codec.isin(NAMED)]
    save(divergence_over_sqnr(frame, named=named), HERE / "kl_over_sqnr.png")


def draw_sums(frame: pd.DataFrame) -> None:
    """KL divergence with its standard error, and SQNR, over the number of ranks: a line per codec and kind of sum."""
    from arlab.figures import save, style

    names = {"native": "sums in bf16", "decode=fp32,add=fp32": "sums in fp32, rounded once"}
    looks = {how: {"linestyle": line, "marker": marker} for how, line, marker in zip(SUMS, ("--", "-"), ("o", "s"))}

    @style.drawn
    def picture() -> Any:
        legend = [style.handle(names[how], color="black", **look) for how, look in looks.items()]
        provenance = f"exact, SmolLM2-135M on {SUM_TOKENS} tokens of prose, two_shot, by arlab model perplexity"
        page = style.new_page(
            "Sums in fp32 pay off without a codec, more with more ranks",
            "KL divergence from the uncompressed model, with its standard error, and SQNR of the median token of all sums, over the number of ranks",
            ["Payloads are bf16."], provenance, [legend], 5.0,
        )  # fmt: skip
        divergence, sqnr = page.subplots(1, 2)
        ticks = SUM_RANKS.split(",")
        for axes, label in ((divergence, "mean KL divergence (nats)"), (sqnr, "SQNR of the median token (dB)")):
            axes.grid()
            axes.set(xlabel="ranks", ylabel=label)
            axes.set_xticks(range(len(ticks)), ticks)
        style.log_axis(divergence.yaxis, list(frame.mean_kl))
        for number, codec in enumerate(SUM_CODECS.split(",")):
            for how, look in looks.items():
                mine = frame[(frame.codec == codec) & (frame["sum"] == how)]
                places = [ticks.index(str(ranks)) for ranks in mine.ranks]
                divergence.errorbar(places, mine.mean_kl, yerr=mine.mean_kl_standard_error, color=f"C{number}", capsize=3, **look)
                sqnr.plot(places, mine.token_sqnr_db, color=f"C{number}", **look)
            for axes, value in ((divergence, mine.mean_kl), (sqnr, mine.token_sqnr_db)):
                axes.annotate(codec, (0, value.iloc[0]), xytext=(4, 6), textcoords="offset points", color=f"C{number}")
        return page

    style.use_own_fonts()
    save(picture(), HERE / "sums.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="only the pictures and pages, from the files as they are")
    options = parser.parse_args()
    if not options.page:
        write(run(), RESULTS)
        write(run_quantized(), HERE / "quantized.csv")
        write(run_sums(), HERE / "sums.csv", f"the first {SUM_TOKENS} tokens of {TEXT}, context 1024")
        write(asked("layers", *LAYERS), HERE / "layers.csv", of_layers("layers", LAYERS))
        write(asked("assign", *ASSIGN), HERE / "assignments.csv", of_layers("assign", ASSIGN))
    frame = committed()
    draw(frame)
    draw_sums(committed("sums.csv"))
    for name in PAGES:
        page = HERE / name
        page.write_text(page_of(page.read_text(encoding="utf-8"), frame), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
