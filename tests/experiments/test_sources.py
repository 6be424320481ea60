"""The studies of the sources: committed files are those of make.py, and nothing is missing.

Exact results are made again and compared byte for byte. Simulated ones change with the simulator; of those the
pages are compared with the committed CSV files.
"""

import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "experiments" / "studies" / "sources"
sys.path.insert(0, str(SOURCES))

import common  # noqa: E402
import make  # noqa: E402

FAST = ["footprint", "volumes", "bit_splitting", "spike_reserving", "perplexity_order"]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["make.py", *arguments])
    return make.main()


def test_exact_results_are_up_to_date(monkeypatch, capsys):
    assert run(monkeypatch, "--check", *FAST) == 0, capsys.readouterr().out
    assert all(make.STUDIES[name].exact for name in FAST)


def test_pages_are_those_of_the_csv_files(monkeypatch, capsys):
    assert run(monkeypatch, "--check", "--pages") == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "file, old, new, found",
    [
        ("volumes/volumes.csv", "ring,nccl_ring,14,1.75", "ring,nccl_ring,14,1.5", "volumes/volumes.csv differs"),
        ("volumes/README.md", "1.75 M", "1.5 M", "volumes/README.md differs"),
        ("README.md", "|agrees|", "|partly|", "README.md differs"),
        ("volumes/volumes.png", None, None, "volumes/volumes.png is missing"),
    ],
)
def test_what_is_not_up_to_date_is_named(tmp_path, monkeypatch, capsys, file, old, new, found):
    folder = tmp_path / "sources"
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(make, "HERE", folder)
    if old is None:
        (folder / file).unlink()
    else:
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    assert run(monkeypatch, "--check", "volumes") == 1
    assert f"not up to date: {found}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, file, old, new, claim",
    [
        ("volumes", "volumes.csv", "hierarchical_two_step,14,1,", "hierarchical_two_step,14,2,", "hierarchical two-step"),
        ("footprint", "int2_spikes.csv", "1536,2560,True", "1536,2560,False", "every part"),
        ("bit_splitting", "widths.csv", "3072,6,True", "3072,6,False", "extra bits"),
        ("spike_reserving", "ranges.csv", "layer0.ffn_down,193.625,0.", "layer0.ffn_down,193.625,100.", "numerical range"),
    ],
)
def test_verdicts_follow_from_the_csv_files(tmp_path, name, file, old, new, claim):
    def verdict():
        claims = make.report(name, tmp_path)[1].set_index("claim")["verdict"]
        return claims[claims.index.str.contains(claim)].item()

    shutil.copytree(SOURCES / name, tmp_path / name)
    assert verdict() == "agrees"
    text = (tmp_path / name / file).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / name / file).write_text(text.replace(old, new), encoding="utf-8")
    assert verdict() != "agrees"


@pytest.mark.parametrize("name", make.STUDIES)
def test_a_study_has_its_parts(name):
    folder = SOURCES / name
    plan = make.plan_of(name)
    page = (folder / "README.md").read_text(encoding="utf-8")
    summary = (SOURCES / "README.md").read_text(encoding="utf-8")
    assert f"[{name}]({name}/README.md)" in summary
    tables, pictures = sorted(folder.glob("*.csv")), sorted(folder.glob("*.png"))
    assert tables and pictures
    for table in tables:
        lines = table.read_text(encoding="utf-8").splitlines()
        assert lines[0] == f"# arlab.sources/1: {plan['title']}"
        assert lines[1].endswith(f"make.py {name}") and lines[2].startswith("# provenance: ")
        assert f"({table.name})" in page
    for picture in pictures:
        assert f"({picture.name})" in page
    for claim in plan["claims"].values():
        assert f"|{claim['claim']}|" in page and f"|{claim['source']}|{claim['claim']}|" in summary


def test_every_folder_is_a_study():
    folders = {path.name for path in SOURCES.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))}
    assert folders == set(make.STUDIES)


def test_every_table_and_figure_of_the_paper_has_a_row():
    summary = (SOURCES / "README.md").read_text(encoding="utf-8").lower()
    for what, numbers in (("tables?", range(1, 11)), ("figures?", range(1, 9))):
        for number in numbers:
            assert re.search(rf"\b{what} (\d+, )*(\d+ and )?{number}\b", summary), f"{what} {number}"


def test_rules_of_verdicts():
    assert [common.near(100, ours).verdict for ours in (104, 96, 106, 119, 121)] == [
        "agrees", "agrees", "partly", "partly", "**not**",
    ]  # fmt: skip
    holds = {(1, 1, 1): "agrees", (1, 1, 0): "partly", (1, 0): "partly", (1, 0, 0): "**not**"}
    assert {each: common.cases(each, "{}").verdict for each in holds} == holds
    assert common.cases([1, 0, 0], "in {} cases").ours == "in 1 of 3 cases"
    assert [common.equal(same, "").verdict for same in (True, False)] == ["agrees", "**not**"]
    assert [common.ordered(rank, "").verdict for rank in (0.9, 0.5, 0.49)] == ["agrees", "partly", "**not**"]
    assert common.spearman([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx(0.8)


def test_an_unknown_study_is_one_line(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "nonsense")
    assert ended.value.code == 2
    assert "there is no study nonsense; there are quickreduce_latency" in capsys.readouterr().err
