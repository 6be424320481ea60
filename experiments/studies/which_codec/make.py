#!/usr/bin/env python3
"""Which codec for my model? What each costs in quality, and what it gains on three machines.

    python experiments/studies/which_codec/make.py                          makes choice.csv, choice.png and README.md
    python experiments/studies/which_codec/make.py --model my/config.json   prints the table for that model; writes nothing
    ... --quality my.csv                                                    with the perplexity and KL of a CSV of
                                                                            `arlab model perplexity --format csv`

Without --quality it is that of the study model_quality. It needs the build of ./quickstart.sh.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path[:0] = [str(REPOSITORY / "experiments/site"), str(REPOSITORY / "experiments/python")]

from repository import arlab  # noqa: E402
from page_tables import csv_text, filled, markdown, rows_of  # noqa: E402

COMMAND = ".venv/bin/python experiments/studies/which_codec/make.py"
MODEL = "llama-3-8b"
WORK = ("--batch", "8", "--tokens", "1024")
# Machines, and the all-reduces that make sense there.
MACHINES = {"l40-8": ("two_shot", "hierarchical_pipelined"), "h200-8": ("two_shot",), "mi300x-8": ("two_shot",)}
CODECS = (
    "bf16", "int8-g128", "qr-q8", "mxfp8-e4m3", "int6-g128", "qr-q6", "int5-g128", "int4-g32", "qr-q4", "mxfp4", "int3-g32",
    "int2-g32-sr", "int2-g32",
)  # fmt: skip
TIMES = ("machine", "codec", "wire_bits_per_element", "algorithm", "ttft_us", "communication_share", "speedup")
LOSSES = ("mean_kl", "perplexity")
QUALITY = REPOSITORY / "experiments/data/model_quality.csv"


def simulated(model: str) -> list[dict[str, object]]:
    """A row per machine and codec, by the fastest algorithm."""
    listed = json.loads(arlab("list", "codecs", "--format", "json"))["codecs"]
    bits = {row["name"]: row["wire_bits_per_element"] for row in listed}

    def row(place: tuple[str, str]) -> dict[str, object]:
        machine, codec = place
        runs = []
        for algorithm in MACHINES[machine]:
            words = ["--model", model, "--topology", machine, *WORK, "--codec", codec, "--algorithm", algorithm]
            runs.append(json.loads(arlab("model", "time", *words, "--format", "json")))
        best = min(runs, key=lambda run: run["ttft_us"])
        values = (best["ttft_us"], best["communication_share"], best["speedup_over_library"])
        return dict(zip(TIMES, (machine, codec, bits[codec], best["algorithm"], *values), strict=True))

    with ThreadPoolExecutor() as threads:
        return list(threads.map(row, [(machine, codec) for machine in MACHINES for codec in CODECS]))


def committed() -> list[dict[str, object]]:
    """The rows of choice.csv."""
    return [{**row, "wire_bits_per_element": float(row["wire_bits_per_element"])} for row in rows_of(HERE / "choice.csv")]


def quality(path: Path) -> dict[str, dict[str, str]]:
    """Rows of `arlab model perplexity` by codec: of two_shot, with the ranks and dtype that most of CODECS have."""
    if not path.exists():
        return {}
    rows = rows_of(path)
    needed = ("ranks", "algorithm", "codec", "dtype", "perplexity", "mean_kl")
    if missing := [name for name in needed if rows and name not in rows[0]]:
        sys.exit(f"error: {path} has no column {missing[0]}; needed are {', '.join(needed)}")
    groups: dict[tuple[int, str], dict[str, dict[str, str]]] = {}
    for row in rows:
        if row["algorithm"] == "two_shot" and row["codec"] in CODECS:
            groups.setdefault((int(row["ranks"]), row["dtype"]), {})[row["codec"]] = row
    if not groups:
        return {}
    ranks, dtype = max(groups, key=lambda group: len(groups[group]))
    # The uncompressed codec of the times is of its own dtype.
    return {**groups.get((ranks, "bf16"), {}), **groups[ranks, dtype]}


def table(rows: list[dict[str, object]]) -> str:
    heads, lines = ("codec", "wire bits", "mean KL", "perplexity", *(f"{machine}, ms" for machine in MACHINES)), []
    for codec in CODECS:
        mine = [row for row in rows if row["codec"] == codec]
        lost = [f"{float(mine[0]['mean_kl']):.2g}", f"{float(mine[0]['perplexity']):.4g}"] if mine[0]["mean_kl"] else ["", ""]
        times = [f"{float(row['ttft_us']) / 1000:.1f} ({float(row['speedup']):.2f})" for row in mine]
        lines.append((f"`{codec}`", f"{mine[0]['wire_bits_per_element']:.4g}", *lost, *times))
    return markdown(heads, lines, "l" + "r" * (len(heads) - 1))


def page_of(text: str, rows: list[dict[str, object]]) -> str:
    """The page with its table."""
    return filled(text, {"table": lambda: table(rows)})


def draw(rows: list[dict[str, object]], path: Path) -> None:
    import pandas as pd
    from arlab.figures import model_times, save, style

    known = [row for row in rows if row["mean_kl"]]
    frame = pd.DataFrame([{**row, "speedup": float(row["speedup"]), "mean_kl": float(row["mean_kl"])} for row in known])
    frame.attrs["provenance"] = f"times of {MODEL} simulated by arlab model time; KL of SmolLM2-135M computed by arlab model perplexity"
    style.use_own_fonts()
    save(model_times.divergence_over_speedup(frame), path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help=f"a name or a config.json; prints its table [{MODEL}: fills in the page]")
    parser.add_argument("--quality", type=Path, default=QUALITY, metavar="FILE.csv")
    options = parser.parse_args()
    found = quality(options.quality)
    rows = simulated(options.model or MODEL)
    for row in rows:
        row.update({name: found.get(row["codec"], {}).get(name, "") for name in LOSSES})
    if options.model:
        print(table(rows))
        return 0
    comments = [
        f"arlab.which_codec/1: time to first token of {MODEL}, 8 prompts of 1024 tokens, 8 ranks, bf16", f"command: {COMMAND}",
        "provenance: times simulated by arlab model time; speedup: over the machine's NCCL or RCCL, uncompressed",
    ]  # fmt: skip
    for ranks, dtype in sorted({(row["ranks"], row["dtype"]) for row in found.values()}):
        comments.append(f"provenance: mean_kl, perplexity: exact, SmolLM2-135M by arlab model perplexity, two_shot, {ranks} ranks, {dtype}")
    (HERE / "choice.csv").write_text(csv_text(rows, *comments), encoding="utf-8")
    rows = committed()  # the digits that are in the file
    if found:
        draw(rows, HERE / "choice.png")
    page = HERE / "README.md"
    page.write_text(page_of(page.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
