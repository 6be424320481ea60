#!/usr/bin/env python3
"""Which codec for my model? What each costs in quality, and what it gains on three machines.

    python experiments/studies/which_codec/make.py                          simulates times.csv, fills in README.md
    python experiments/studies/which_codec/make.py --model my/config.json   prints the table for that model; writes nothing
    ... --quality my.csv                                                    with the perplexity and KL of a CSV of
                                                                            `arlab model perplexity --format csv`

Without --quality it is quality.csv beside this file, as far as it is there. Needed is what ./quickstart.sh makes.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path[:0] = [str(REPOSITORY / "experiments/site"), str(REPOSITORY / "experiments/python")]

from repository import arlab  # noqa: E402

COMMAND = ".venv/bin/python experiments/studies/which_codec/make.py"
MODEL = "llama-3-8b"
WORK = ("--batch", "8", "--tokens", "1024")
# Machines, and the all-reduces that make sense there.
MACHINES = {"l40-8": ("two_shot", "hierarchical_pipelined"), "h200-8": ("two_shot",), "mi300x-8": ("two_shot",)}
CODECS = (
    "bf16", "int8-g128", "qr-q8", "mxfp8-e4m3", "int6-g128", "qr-q6", "int5-g128", "int4-g32", "qr-q4", "mxfp4", "int3-g32",
    "int2-g32-sr", "int2-g32",
)  # fmt: skip
SEEN = ("machine", "codec", "wire_bits_per_element", "algorithm", "ttft_us", "communication_share", "speedup")
MARK = re.compile(r"<!-- table\(\) -->\n.*?\n<!-- end -->", re.DOTALL)


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
        return dict(zip(SEEN, (machine, codec, bits[codec], best["algorithm"], *values), strict=True))

    with ThreadPoolExecutor() as threads:
        return list(threads.map(row, [(machine, codec) for machine in MACHINES for codec in CODECS]))


def committed() -> list[dict[str, object]]:
    """The rows of times.csv."""
    lines = (HERE / "times.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    return [{**row, "wire_bits_per_element": float(row["wire_bits_per_element"])} for row in rows]


def quality(path: Path) -> dict[str, dict[str, str]]:
    """Rows of `arlab model perplexity` by codec: of two_shot, with the ranks and dtype that most of CODECS have."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    needed = ("ranks", "algorithm", "codec", "dtype", "perplexity", "mean_kl")
    if missing := [name for name in needed if rows and name not in rows[0]]:
        sys.exit(f"error: {path} has no column {missing[0]}; needed are {', '.join(needed)}")
    groups: dict[tuple[int, str], dict[str, dict[str, str]]] = {}
    for row in rows:
        if row["algorithm"] == "two_shot" and row["codec"] in CODECS:
            groups.setdefault((int(row["ranks"]), row["dtype"]), {})[row["codec"]] = row
    return max(groups.values(), key=len, default={})


def table(rows: list[dict[str, object]], found: dict[str, dict[str, str]]) -> str:
    names = {"wire bits": "---:", "mean KL": "---:", "perplexity": "---:"} | dict.fromkeys(MACHINES, "---:")
    lines = [f"| codec | {' | '.join(names)} |", f"| --- | {' | '.join(names.values())} |"]
    for codec in CODECS:
        mine = {row["machine"]: row for row in rows if row["codec"] == codec}
        bits = next(iter(mine.values()))["wire_bits_per_element"]
        lost = found.get(codec)
        cells = [f"{bits:.4g}", *((f"{float(lost['mean_kl']):.2g}", f"{float(lost['perplexity']):.4g}") if lost else ("", ""))]
        cells += [f"{float(row['ttft_us']) / 1000:.1f} ms ({float(row['speedup']):.2f})" for row in mine.values()]
        lines.append(f"| `{codec}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def filled(page: str, rows: list[dict[str, object]], found: dict[str, dict[str, str]]) -> str:
    """The page with its table."""
    return MARK.sub(lambda _: f"<!-- table() -->\n\n{table(rows, found)}\n\n<!-- end -->", page)


def draw(rows: list[dict[str, object]], found: dict[str, dict[str, str]], path: Path) -> None:
    import pandas as pd
    from arlab.figures import model_times, save, style

    frame = pd.DataFrame([
            {**row, "speedup": float(row["speedup"]), "mean_kl": float(found[row["codec"]]["mean_kl"])}
            for row in rows
            if row["codec"] in found
        ])
    frame.attrs["provenance"] = f"times of {MODEL} simulated by arlab model time; KL of SmolLM2-135M computed by arlab model perplexity"
    style.use_own_fonts()
    save(model_times.divergence_over_speedup(frame), path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help=f"a name or a config.json; prints its table [{MODEL}: fills in the page]")
    parser.add_argument("--quality", type=Path, default=HERE / "quality.csv", metavar="FILE.csv")
    options = parser.parse_args()
    found = quality(options.quality)
    rows = simulated(options.model or MODEL)
    if options.model:
        print(table(rows, found))
        return 0
    text = io.StringIO()
    text.write(f"# arlab.which_codec/1: time to first token of {MODEL}, 8 prompts of 1024 tokens, 8 ranks, bf16\n# command: {COMMAND}\n")
    text.write("# provenance: simulated by arlab model time; speedup: over the machine's NCCL or RCCL, uncompressed\n")
    writer = csv.DictWriter(text, SEEN, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: f"{each:.6g}" if isinstance(each, float) else each for key, each in row.items()} for row in rows)
    (HERE / "times.csv").write_text(text.getvalue(), encoding="utf-8")
    rows = committed()  # the digits that are in the file
    if found:
        draw(rows, found, HERE / "choice.png")
    page = HERE / "README.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), rows, found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
