#!/usr/bin/env python3
"""Runs SmolLM2 with fused tails behind its all-reduces, by every named rounding and output, on 2, 4 and 8 ranks.

    make.py [--out FOLDER]    runs the model, writes fused_tails.csv and fused_tails.png, prints the table of README.md
    make.py --draw CSV        only the figure and the table

Results of single runs are kept in results/fused_tails, so that an interrupted study goes on where it stopped.

Exit code: 0, or 2 for bad usage.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
from arlab.figures import style
from matplotlib.figure import Figure

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAM = Path(os.environ.get("ARLAB_BIN", REPOSITORY / "build/bin")).resolve() / "arlab"
ROUNDINGS = ("torch-llama", "vllm", "mnnvl-two-shot", "aiter", "aiter-before-2586", "aiter-two-stage")
OUTPUTS = {
    "bf16": "",
    "fp8, a scale per token": "fp8-e4m3-grow-vllm",
    "fp8, groups of 64": "fp8-e4m3-g64",
    "int8, a scale per tensor": "int8-gtensor-sym",
    "mxfp8": "mxfp8-e4m3",
    "nvfp4": "nvfp4",
}
RANKS = (2, 4, 8)
TOKENS = 512
KEPT = ["ranks", "tail", "perplexity", "perplexity_standard_error", "mean_kl", "mean_kl_standard_error",
        "kl_from_unfused", "kl_from_unfused_standard_error"]  # fmt: skip


def command(tokens: int, ranks: tuple[int, ...], outputs: dict[str, str], roundings: tuple[str, ...]) -> list[str]:
    words = "model perplexity --model smollm2 --text experiments/activations/texts/prose.txt --algorithm two_shot"
    words += f" --codec bf16 --dtype bf16 --tokens {tokens} --ranks {','.join(map(str, ranks))}"
    for codec in outputs.values():
        for rounding in ("unfused", *roundings):
            words += f" --tail rounding={rounding}" + f",out={codec}" * bool(codec)
    return words.split()


def run(words: list[str], cache: Path | None = None) -> pd.DataFrame:
    """Returns a row per tail and number of ranks of command(), with its rounding and output by name."""
    kept = [] if cache is None else ["--cache", cache]
    words = [PROGRAM, *words, *kept, "--format", "csv"]
    made = subprocess.run(words, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:  # the program has said why
        sys.exit(2)
    frame = pd.read_csv(io.StringIO(made.stdout), comment="#")[KEPT]
    entries = [dict(entry.split("=", 1) for entry in tail.split(",")) for tail in frame.pop("tail")]
    of_codec = {codec: name for name, codec in OUTPUTS.items()}
    frame.insert(0, "output", [of_codec[each.get("out", "")] for each in entries])
    frame.insert(0, "rounding", [each.get("rounding", "unfused") for each in entries])
    return frame


def cell(row: pd.Series, figure: str) -> str:
    error = float(f"{1e3 * row[f'{figure}_standard_error']:.1g}")
    return f"{1e3 * row[figure]:.3g} ± {error:g}"


def summary(frame: pd.DataFrame) -> str:
    """Returns the table of README.md: KL divergences from fp32, and in brackets from unfused, in thousandths of a nat."""
    names = ("unfused", *ROUNDINGS)
    lines = ["|output|ranks|" + "|".join(f"`{each}`" for each in names) + "|",
             "|---|---:|" + "---:|" * len(names)]  # fmt: skip
    found = frame.set_index(["output", "ranks", "rounding"])
    for output in OUTPUTS:
        for ranks in sorted(frame["ranks"].unique()):
            rows = [found.loc[(output, ranks, each)] for each in names]
            cells = [
                cell(row, "mean_kl") + f" ({1e3 * row['kl_from_unfused']:.3g})" * (row.name[2] != "unfused")
                for row in rows
            ]
            lines.append(f"|{output}|{ranks}|" + "|".join(cells) + "|")
    return "\n".join(lines)


@style.drawn
def figure_of(frame: pd.DataFrame) -> Figure:
    colours = dict(zip(sorted(frame["ranks"].unique()), (style.BLUE, style.ORANGE, style.WINE)))
    names = ("unfused", *ROUNDINGS)
    page = style.new_page(
        "Where a fused tail rounds costs no accuracy; its output's format does",
        "KL divergence (nats) of SmolLM2 with bf16 all-reduces, by the tail's output",
        ["Points: from the network in fp32, with standard errors. Crosses: from the network with an unfused tail."],
        "experiments/studies/fused_tails/fused_tails.csv (computed)",
        [[style.handle(f"{ranks} ranks", linestyle="", marker="o", markeredgewidth=0, color=colour) for ranks, colour in colours.items()]], body_in=4.6,
    )  # fmt: skip
    for output, axes in zip(OUTPUTS, page.subplots(2, 3, sharey=True, sharex=True).flat):
        for i, (ranks, colour) in enumerate(colours.items()):
            rows = frame[(frame["output"] == output) & (frame["ranks"] == ranks)].set_index("rounding").loc[list(names)]
            at = [place + 0.22 * (i - 1) for place in range(len(names))]
            axes.errorbar(
                at, rows["mean_kl"], rows["mean_kl_standard_error"], fmt="o", color=colour, markersize=4, mew=0, elinewidth=1
            )
            axes.plot(at[1:], rows["kl_from_unfused"].iloc[1:], "x", color=colour, markersize=5, mec=colour, mew=1)
        axes.set(title=output, yscale="log", ylim=(1e-4, 1))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
        axes.grid(axis="y")
    return page


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make.py", description="Runs SmolLM2 with fused tails, by rounding and output."
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", default=Path(__file__).resolve().parent,
                        help="of the files (default: beside the script)")  # fmt: skip
    parser.add_argument("--draw", type=Path, metavar="CSV", help="run nothing, draw what this file has")
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"of the text, the first (default: {TOKENS})")
    options = parser.parse_args(words)
    results = options.draw or options.out / "fused_tails.csv"
    if not options.draw:
        head = (
            "# arlab.study.fused_tails/1: KL divergences of a language model with fused tails behind its all-reduces\n"
        )
        words = command(options.tokens, RANKS, OUTPUTS, ROUNDINGS)
        head += f"# command: arlab {' '.join(words)}\n# provenance: exact\n"
        cache = REPOSITORY / "results/fused_tails"
        cache.mkdir(parents=True, exist_ok=True)
        style.write_whole(results, (head + run(words, cache).to_csv(index=False, lineterminator="\n")).encode())
    frame = pd.read_csv(results, comment="#")
    style.use_own_fonts()
    style.save(figure_of(frame), options.out / "fused_tails.png")
    print(summary(frame))
    return 0


if __name__ == "__main__":
    sys.exit(main())
