"""Every table and figure of the sources as a study: runs it, draws it, writes its page and the summary of all claims.

    make.py                 all studies: CSV, PNG, README.md of each, and the summary
    make.py NAME...         only these, and the summary
    make.py --pages         pages and pictures from the CSV files that are there; nothing runs
    make.py --check ...     likewise, into a temporary folder; says which committed CSV files and pages differ (exit code 1)

Each study is a folder: study.toml says what its source claims and what is run, page.md.in is its page without numbers.
It needs the build of ./quickstart.sh; ARLAB_BIN names another folder than build/bin.
"""

from __future__ import annotations

import argparse
import importlib.util
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

if importlib.util.find_spec("arlab") is None:
    print("make.py: the package arlab is not here: run ./quickstart.sh, or name its folder in PYTHONPATH", file=sys.stderr)
    raise SystemExit(2)

import errors  # noqa: E402
import exact  # noqa: E402
import timings  # noqa: E402
import tolerances  # noqa: E402
from arlab.figures import save, style  # noqa: E402
from common import LATER, Found, Plan, Report, Study, markdown, stop  # noqa: E402

STUDIES: dict[str, Study] = {**timings.STUDIES, **exact.STUDIES, **errors.STUDIES, **tolerances.STUDIES}
COMMAND = ".venv/bin/python experiments/studies/sources/make.py"
MADE = "<!-- Made by make.py from page.md.in and the CSV files: change those. -->\n\n"


def plan_of(name: str) -> Plan:
    return tomllib.loads((HERE / name / "study.toml").read_text(encoding="utf-8"))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run(name: str, out: Path) -> None:
    """Writes the CSV files of a study."""
    plan = plan_of(name)
    for each, table in STUDIES[name].run(plan).items():
        head = f"# arlab.sources/1: {plan['title']}\n# command: {COMMAND} {name}\n# provenance: {table.attrs['provenance']}\n"
        write(out / name / f"{each}.csv", head + table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def report(name: str, folder: Path) -> tuple[Report, pd.DataFrame]:
    """Returns the report on the CSV files in a folder, and its claims as a table."""
    plan = plan_of(name)
    files = sorted((folder / name).glob("*.csv"))
    if not files:
        stop(f"{name} has no CSV files yet; make them: {COMMAND} {name}")
    said = STUDIES[name].report({path.stem: pd.read_csv(path, comment="#") for path in files}, plan)
    rows = []
    for key, claim in plan["claims"].items():
        found = Found("–", LATER) if claim.get("later") else said.claims.pop(key)
        published = found.published or claim["published"]
        rows.append((claim["source"], claim["claim"], published, found.ours, found.how or claim.get("how", plan["how"]), found.verdict))
    assert not said.claims, f"{name}/study.toml does not have the claims {', '.join(said.claims)}"
    return said, pd.DataFrame(rows, columns=["source", "claim", "published", "ours", "ours is", "verdict"])


def page(name: str, folder: Path, out: Path, pictures: bool) -> pd.DataFrame:
    """Writes the page of a study, and its pictures; gives its claims."""
    said, claims = report(name, folder)
    tables = ", ".join(f"[{path.name}]({path.name})" for path in sorted((folder / name).glob("*.csv")))
    template = (HERE / name / "page.md.in").read_text(encoding="utf-8")
    text = template.format_map({**said.words, "claims": claims_of(claims)})
    end = f"\n## Made by\n\n```sh\n{COMMAND} {name}\n```\n\nfrom [study.toml](study.toml), with the [rules of verdicts](../README.md). The heads of the data say where they come from: {tables}.\n"
    write(out / name / "README.md", MADE + text + end)
    for each, draw in said.figures.items() if pictures else ():
        save(draw(), out / name / f"{each}.png")
    return claims


def claims_of(claims: pd.DataFrame) -> str:
    """The claims of one study; where all numbers come from the same source, a sentence says it."""
    claims = claims.assign(**{"ours is": claims["ours is"].str.replace("](../", "](../../", regex=False)})
    ways = claims["ours is"].unique()
    if len(ways) > 1:
        return markdown(claims.drop(columns="source"))
    return f"{markdown(claims.drop(columns=['source', 'ours is']))}\n\n*Ours* is {ways[0]}."


def kind(how: str) -> str:
    """`simulated, seen` where the fit saw the very cells."""
    return "–" if how.startswith("needs") else how.split(",")[0].split(" ")[0] + ", seen" * ("which saw" in how)


def summary(claims: dict[str, pd.DataFrame], out: Path) -> None:
    """Writes the page with a row per claim."""
    table = pd.concat([each.assign(study=f"[{name}]({name}/README.md)") for name, each in claims.items()])
    seen = table["ours is"].str.contains("which saw")
    short = table.assign(**{"ours is": table["ours is"].map(kind)}).drop(columns=["published", "ours"])
    words = {"claims": markdown(short), "number": len(table), "command": COMMAND, "number_seen": int(seen.sum())}
    template = (HERE / "page.md.in").read_text(encoding="utf-8")
    write(out / "README.md", MADE + template.format(**words, counts=counts_of(table[~seen]), counts_seen=counts_of(table[seen])))


def counts_of(claims: pd.DataFrame) -> str:
    verdicts = claims["verdict"].str.strip("*").value_counts()
    words = {"agrees": "agree", "partly": "partly", "not": "do not", LATER: LATER}
    return ", ".join(f"{verdicts[each]} {said}" for each, said in words.items() if each in verdicts)


def differences(out: Path, names: list[str]) -> list[str]:
    """Returns the committed files that differ from those made, or are missing."""
    found = []
    for path in sorted(each for each in out.rglob("*") if each.is_file()):
        name, committed = path.relative_to(out), HERE / path.relative_to(out)
        if not committed.exists():
            found.append(f"{name} is missing")
        elif committed.read_bytes() != path.read_bytes():
            old, new = (each.read_text(encoding="utf-8").splitlines() for each in (committed, path))
            place = next((i for i, (a, b) in enumerate(zip(old, new), 1) if a != b), min(len(old), len(new)) + 1)
            found.append(f"{name} differs from line {place} on")
    pictures = [f"{name}/{each}.png" for name in names for each in report(name, HERE)[0].figures]
    return found + [f"{each} is missing" for each in pictures if not (HERE / each).exists()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Every table and figure of the sources as a study.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all, which are {', '.join(STUDIES)}")
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
        for name in () if arguments.pages else names:
            print(f"running {name}", flush=True)
            run(name, out)
        claims = {}
        for name in STUDIES:
            folder = HERE if arguments.pages or name not in names else out
            claims[name] = page(name, folder, out, not arguments.check) if name in names else report(name, folder)[1]
        summary(claims, out)
        found = differences(out, names) if arguments.check else []
    if arguments.check:
        lines = [*(f"not up to date: {each}" for each in found), f"make it again: {' '.join([COMMAND, *arguments.names])}"]
        print("\n".join(lines) if found else "all up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
