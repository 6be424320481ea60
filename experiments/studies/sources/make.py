"""Every table and figure of the sources as a study: runs it, draws it, writes its page and the summary of all claims.

    make.py                 all studies: CSV, PNG, README.md of each, and the summary
    make.py NAME...         only these, and the summary
    make.py --pages         pages and pictures from the CSV files that are there; nothing runs
    make.py --check ...     likewise, into a temporary folder; says which committed CSV files and pages differ (exit code 1)

Each study is a folder: study.toml says what is run, page.md.in is its page without the numbers. Needed is what
./quickstart.sh makes; ARLAB_BIN names another folder than build/bin.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import tomllib
from pathlib import Path

import pandas as pd

HERE = Path(__file__).resolve().parent
BIN = Path(os.environ.get("ARLAB_BIN", HERE.parents[2] / "build" / "bin"))
sys.path.append(str(BIN / "python"))  # behind PYTHONPATH
os.environ.setdefault("ARLAB_PROGRAM", str(BIN / "arlab"))

import errors  # noqa: E402
import exact  # noqa: E402
import timings  # noqa: E402
import tolerances  # noqa: E402
from arlab.figures import save, style  # noqa: E402
from common import RULES, Report, Study, claims_table  # noqa: E402

STUDIES: dict[str, Study] = {**timings.STUDIES, **exact.STUDIES, **errors.STUDIES, **tolerances.STUDIES}
COMMAND = ".venv/bin/python experiments/studies/sources/make.py"


def plan_of(name: str) -> dict:
    with open(HERE / name / "study.toml", "rb") as file:
        return tomllib.load(file)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run(name: str, out: Path) -> None:
    """The CSV files of a study."""
    plan = plan_of(name)
    for each, table in STUDIES[name].run(plan).items():
        head = [f"arlab.sources/1: {plan['title']}", f"command: {COMMAND} {name}"]
        head += [f"provenance: {table.attrs['provenance']}"]
        rows = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        write(out / name / f"{each}.csv", "".join(f"# {line}\n" for line in head) + rows)


def provenance_of(path: Path) -> str:
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return next(line for line in comments if line.startswith("# provenance: ")).removeprefix("# provenance: ")


def report(name: str, folder: Path) -> Report:
    """What the CSV files in a folder say."""
    tables = {path.stem: pd.read_csv(path, comment="#") for path in sorted((folder / name).glob("*.csv"))}
    if not tables:
        raise SystemExit(f"make.py: {name} has no CSV files yet; run make.py {name}")
    return STUDIES[name].report(tables, plan_of(name))


def page(name: str, folder: Path, out: Path, pictures: bool) -> Report:
    """The page of a study, and its pictures."""
    made, plan = report(name, folder), plan_of(name)
    made_from = [f"* [{path.name}]({path.name}): {provenance_of(path)}" for path in sorted((folder / name).glob("*.csv"))]
    end = ["", "## Made by", "", "```sh", f"{COMMAND} {name}", "```", ""]
    end += ["from [study.toml](study.toml), which says what is run:", "", *made_from, ""]
    end += ["[All claims of the sources](../README.md), with the rules of the verdicts.", ""]
    template = (HERE / name / "page.md.in").read_text(encoding="utf-8")
    text = template.format_map({**plan, **made.words, "claims": claims_table(made.claims)})
    write(out / name / "README.md", f"<!-- Made by make.py out of page.md.in and the CSV files. -->\n\n{text.rstrip()}\n" + "\n".join(end))
    for each, draw in made.figures.items() if pictures else ():
        save(draw(), out / name / f"{each}.png")
    return made


def summary(reports: dict[str, Report], out: Path) -> None:
    """The page with a row per claim."""
    rows = []
    for name, made in reports.items():
        for c in made.claims:
            rows.append(f"| [{name}]({name}/README.md) | {c.source} | {c.claim} | {c.published} | {c.ours} | {c.provenance} | {c.verdict} |")
    verdicts = pd.Series([c.verdict.strip("*") for made in reports.values() for c in made.claims]).value_counts()
    counts = ", ".join(f"{verdicts.get(each, 0)} {each}" for each in ("agrees", "partly", "not", "not yet"))
    table = ["| study | source | claim | published | ours | ours is | verdict |", "| --- | --- | --- | --- | --- | --- | --- |", *rows]
    template = (HERE / "page.md.in").read_text(encoding="utf-8")
    text = template.format(claims="\n".join(table), counts=counts, rules=RULES, command=COMMAND)
    write(out / "README.md", f"<!-- Made by make.py out of page.md.in and the CSV files of the studies. -->\n\n{text}")


def differences(out: Path, names: list[str]) -> list[str]:
    """Which committed files differ from those made, or are missing."""
    files = [path for path in sorted(out.rglob("*")) if path.suffix in (".csv", ".md")]
    found = []
    for path in files:
        committed = HERE / path.relative_to(out)
        if not committed.exists():
            found.append(f"{path.relative_to(out)} is missing")
        elif committed.read_bytes() != path.read_bytes():
            pairs = zip(committed.read_text("utf-8").splitlines(), path.read_text("utf-8").splitlines())
            line = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), "at the end")
            found.append(f"{path.relative_to(out)} differs from line {line} on" if line != "at the end" else f"{path.relative_to(out)} differs at the end")
    pictures = [HERE / name / f"{each}.png" for name in names for each in report(name, HERE).figures]
    return found + [f"{path.relative_to(HERE)} is missing" for path in pictures if not path.exists()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Every table and figure of the sources as a study.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(STUDIES)} (default: all)")
    parser.add_argument("--pages", action="store_true", help="only pages and pictures, from the CSV files that are there")
    parser.add_argument("--check", action="store_true", help="into a temporary folder; says which committed files differ")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in STUDIES]
    if unknown:
        parser.error(f"there is no study {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    names = arguments.names or list(STUDIES)
    style.use_own_fonts()
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) if arguments.check else HERE
        for name in names if not arguments.pages else ():
            print(f"running {name}", flush=True)
            run(name, out)
        made = {}
        for name in STUDIES:
            ran = name in names and not arguments.pages
            if name in names:
                made[name] = page(name, out if ran else HERE, out, pictures=not arguments.check)
            else:
                made[name] = report(name, HERE)
        summary(made, out)
        found = differences(out, names) if arguments.check else []
    for line in found:
        print(f"not up to date: {line}")
    if arguments.check:
        print("all up to date" if not found else f"make it again: {COMMAND} {' '.join(arguments.names)}".rstrip())
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
