#!/usr/bin/env python3
"""At which link speed does which codec pay for which model? Times of models over the bandwidth of the links.

    python experiments/studies/model_time/make.py            simulates, draws, and puts figures and tables into its pages
    python experiments/studies/model_time/make.py --pages    the same from the CSV files that are there
    python experiments/studies/model_time/make.py --check    simulates into a temporary folder; says what differs (exit code 1)

Machines are h200-8 and a100-flashcomm-8 with other links; everything else of them stays. It needs the build of
./quickstart.sh; ARLAB_BIN names another folder than build/bin.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path[:0] = [str(REPOSITORY / "experiments/site"), str(REPOSITORY / "experiments/python")]

from repository import arlab  # noqa: E402
from page_tables import csv_text, filled, markdown, rows_of  # noqa: E402

COMMAND = ".venv/bin/python experiments/studies/model_time/make.py"
MACHINES = ("h200-8", "a100-flashcomm-8")
MODELS = ("llama-3-8b", "llama-3-70b", "qwen3-30b-a3b")
WITH_EXPERTS = ("qwen3-30b-a3b",)
PHASES = {"prefill": ("--batch", "8", "--tokens", "1024"), "decode": ("--batch", "32", "--tokens", "1024")}
CODECS = ("bf16", "qr-q8", "qr-q6", "int5-g128", "qr-q4", "int2-g32-sr-is")
ALGORITHMS = ("one_shot", "two_shot")
LINKS = tuple(round(5 * 10 ** (i / 6), 1) for i in range(15))  # GB/s: 5 to 1077
SEEN = ("model", "phase", "codec", "link_gb_per_s", "algorithm", "time_us", "communication_share")


def machine_with(folder: Path, machine: str, gb_per_s: float) -> Path:
    """A machine with other links, as a file."""
    text = (REPOSITORY / f"sim/topology/machines/{machine}.toml").read_text(encoding="utf-8")
    link = f'[link]\nbandwidth_gb_per_s = {{ value = {gb_per_s}, source = "assumed", note = "swept" }}'
    text, count = re.subn(r"\[link\]\nbandwidth_gb_per_s = \{.*\}", link, text)
    if count != 1:
        sys.exit(f"error: {machine}.toml has no [link] with a bandwidth to replace")
    path = folder / f"{machine}-{gb_per_s}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def time_of(machine: Path, model: str, phase: str, codec: str, algorithm: str) -> tuple[float, float, str]:
    words = ["--model", model, "--topology", str(machine), "--phase", phase, *PHASES[phase], "--codec", codec, "--algorithm", algorithm]
    words += ["--combine", "quantized"] * (model in WITH_EXPERTS)
    found = json.loads(arlab("model", "time", *words, "--format", "json"))
    return found["ttft_us"] or found["tpot_us"], found["communication_share"], algorithm


def simulate(out: Path, machine: str) -> None:
    """Writes the times of a machine: of every codec the faster algorithm."""

    def row(place: tuple[str, str, str, float]) -> dict[str, object]:
        model, phase, codec, link = place
        us, share, algorithm = min(time_of(files[link], model, phase, codec, each) for each in ALGORITHMS)
        return dict(zip(SEEN, (model, phase, codec, str(link), algorithm, us, f"{share:.4f}"), strict=True))

    with tempfile.TemporaryDirectory(prefix="arlab-") as folder, ThreadPoolExecutor() as threads:
        files = {link: machine_with(Path(folder), machine, link) for link in LINKS}
        rows = list(threads.map(row, [(m, p, c, link) for p in PHASES for m in MODELS for c in CODECS for link in LINKS]))
    comments = (
        f"arlab.model_time/1: times of models over the bandwidth of the links of {machine}, bf16", f"command: {COMMAND}",
        f"provenance: simulated by arlab model time: {machine} with other links",
    )  # fmt: skip
    (out / f"times_{machine}.csv").write_text(csv_text(rows, *comments), encoding="utf-8")


def validate(out: Path) -> None:
    """Writes validation.csv: every published and measured number beside ours."""
    cells = arlab("model", "validate", "--cells", "--format", "csv").decode()
    head = "# arlab model validate --cells --format csv\n# published and measured numbers, and ours (simulated)\n"
    (out / "validation.csv").write_text(head + cells.replace("\r\n", "\n"), encoding="utf-8")


def make_tables(out: Path) -> None:
    for machine in MACHINES:
        simulate(out, machine)
    validate(out)


# ---------------------------------------------------------------- the page


def gb_per_s(value: float) -> str:
    if value == 0:
        return "never"
    return "always" if math.isinf(value) else f"{value:.0f}"


class Page:
    """Texts for the page's marks; all from the CSV files of a folder."""

    def __init__(self, folder: Path) -> None:
        from arlab.figures import model_times

        self.pays = lambda machine, least: model_times.pays_below(model_times.read_model_times(folder / f"times_{machine}.csv"), least)
        self.cells = rows_of(folder / "validation.csv")

    def crossings(self, machine: str, least: float) -> str:
        table = self.pays(machine, least)
        lines = [(*names, *map(gb_per_s, row)) for names, row in table.iterrows()]
        return markdown(["model", "", *(f"`{name}`" for name in table.columns)], lines)

    def speedups(self, table: str) -> str:
        lines = []
        for cell in self.cells:
            if cell["table"] == table:
                value, ours = float(cell["value"]), float(cell["simulated"])
                lines.append((cell["row"], f"{value:.2f}", f"{ours:.2f}", f"{100 * (ours / value - 1):+.1f}"))
        return markdown(("what", "published", "ours", "error, %"), lines, "lrrr")

    def summary(self) -> str:
        groups: dict[tuple[str, str, str], list[float]] = {}
        for cell in self.cells:
            groups.setdefault((cell["table"], cell["quantity"], cell["fitted"]), []).append(float(cell["error_percent"]))
        lines = []
        for (table, quantity, fitted), errors in groups.items():
            what = {"layer_us": "time of a layer", "speedup": "speed-up over the library"}[quantity]
            sizes = [abs(each) for each in errors]
            what += ", fitted" if fitted in ("true", "True", "1") else ", not fitted to"
            lines.append((table, what, len(errors), f"{sum(sizes) / len(sizes):.1f}", f"{max(sizes):.1f}"))
        return markdown(("table", "what", "cells", "mean error, %", "largest"), lines, "llrrr")


def page_of(text: str, folder: Path) -> str:
    """The page with its tables."""
    said = Page(folder)
    return filled(text, {name: getattr(said, name) for name in ("crossings", "speedups", "summary")})


def draw(folder: Path) -> None:
    from arlab.figures import model_times, save, style

    style.use_own_fonts()
    for machine in MACHINES:
        times = model_times.read_model_times(folder / f"times_{machine}.csv")
        save(model_times.speedup_over_link(times), folder / f"speedup_over_link_{machine}.png")


PAGES = ("README.md", "links.md")


def write_pages(folder: Path) -> None:
    draw(folder)
    for page in (folder / name for name in PAGES):
        page.write_text(page_of(page.read_text(encoding="utf-8"), folder), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--pages", action="store_true", help="nothing is simulated")
    only.add_argument("--check", action="store_true", help="say which files differ")
    options = parser.parse_args()
    if options.check:
        with tempfile.TemporaryDirectory(prefix="arlab-") as name:
            folder = Path(name)
            for page in PAGES:
                shutil.copy(HERE / page, folder)
            make_tables(folder)
            write_pages(folder)
            made = [path.name for path in sorted(folder.iterdir()) if path.suffix in (".csv", ".md")]
            differ = [each for each in made if (folder / each).read_bytes() != (HERE / each).read_bytes()]
        for each in differ:
            print(f"{each} differs: {COMMAND}")
        return 1 if differ else 0
    if not options.pages:
        make_tables(HERE)
    write_pages(HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
