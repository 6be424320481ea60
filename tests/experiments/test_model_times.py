"""The studies about times of models: where a codec stops to pay, and pages that say what their CSV files say."""

import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from arlab import figures
from arlab.figures.tables import InputError
from scripts import loaded

STUDIES = Path(__file__).resolve().parents[2] / "experiments/studies"
sys.path.append(str(STUDIES.parent / "site"))
from page_tables import csv_text, rows_in, rows_of  # noqa: E402


def frame(times):
    """Rows of one model from {codec: {GB/s: us}}."""
    rows = [("m", "prefill", codec, link, us, 0.5) for codec, of in times.items() for link, us in of.items()]
    return pd.DataFrame(rows, columns=["model", "phase", "codec", "link_gb_per_s", "time_us", "communication_share"])


PLAIN = {10: 100.0, 100: 20.0, 1000: 10.0}


def test_where_a_codec_pays_is_interpolated_on_log_scales():
    times = {"bf16": PLAIN, "a": {10: 50.0, 100: 10.0, 1000: 20.0}, "b": {10: 90.0, 100: 19.0, 1000: 9.0}, "c": {10: 101.0, 100: 21.0, 1000: 10.5}}
    pays = figures.pays_below(frame(times)).loc[("m", "prefill")]
    # Twice as fast at 100 GB/s and half as fast at 1000: the middle.
    assert pays["a"] == pytest.approx(10**2.5)
    assert pays["b"] == math.inf and pays["c"] == 0
    assert figures.pays_below(frame(times), 2.1).loc[("m", "prefill")]["a"] == 0
    with pytest.raises(InputError, match="no row has one of the codecs"):
        figures.pays_below(frame({"a": PLAIN}))


def test_figures_have_a_panel_each(tmp_path):
    times = frame({"bf16": PLAIN, "a": {10: 50.0, 100: 10.0, 1000: 20.0}})
    both = pd.concat([times, times.assign(phase="decode")])
    figure = figures.speedup_over_link(both)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["m, prefill", "m, decode"]
    assert list(figure.axes[0].lines[1].get_ydata()) == [2, 2, 0.5]
    both.to_csv(tmp_path / "t.csv", index=False)
    assert len(figures.read_model_times(tmp_path / "t.csv")) == 12
    (tmp_path / "t.csv").write_text("model\nm\n")
    with pytest.raises(InputError, match="no column phase"):
        figures.read_model_times(tmp_path / "t.csv")
    points = pd.DataFrame({"machine": ["x", "x", "y"], "codec": ["a", "b", "a"], "speedup": [1.5, 2, 1.1], "mean_kl": [0.01, 0.1, 0.01]})
    assert len(figures.divergence_over_speedup(points, width="page").axes) == 2
    with pytest.raises(InputError, match="nothing to draw"):
        figures.divergence_over_speedup(points.assign(mean_kl=0))


def test_the_page_says_what_its_files_say():
    make = loaded(STUDIES / "model_time" / "make.py")
    pages = [(make.HERE / name).read_text() for name in make.PAGES]
    assert [make.page_of(page, make.HERE) for page in pages] == pages and "crossings(" in pages[1]
    page = pages[0]
    changed = page.replace("|A100|1.24|", "|A100|1.25|")
    assert changed != page and make.page_of(changed, make.HERE) == page


def test_the_table_of_codecs_is_that_of_its_files():
    make = loaded(STUDIES / "which_codec" / "make.py")
    page = (STUDIES / "which_codec/README.md").read_text()
    assert make.page_of(page, make.committed()) == page


def test_quality_needs_its_columns(tmp_path):
    make = loaded(STUDIES / "which_codec" / "make.py")
    (tmp_path / "q.csv").write_text("codec,ranks\nqr-q8,8\n")
    with pytest.raises(SystemExit, match="no column algorithm"):
        make.quality(tmp_path / "q.csv")
    rows = ["8,two_shot,qr-q8,fp16,32,0.2", "4,two_shot,qr-q8,fp16,31,0.1", "4,two_shot,qr-q4,fp16,40,0.5", "4,ring,qr-q8,fp16,9,9"]
    (tmp_path / "q.csv").write_text("\n".join(["ranks,algorithm,codec,dtype,perplexity,mean_kl", *rows]))
    found = make.quality(tmp_path / "q.csv")  # 4 ranks have more codecs than 8
    assert {codec: row["perplexity"] for codec, row in found.items()} == {"qr-q8": "31", "qr-q4": "40"}


def test_what_if_answers_each_question_with_a_command_and_a_picture():
    make = loaded(STUDIES / "what_if" / "make.py")
    page = (make.HERE / "README.md").read_text()
    names = [name for _, name, _ in make.questions()]
    assert len(names) == page.count("\n## ") - 1 == 7  # the last heading is no question
    for name in names:
        lines = (make.HERE / f"{name}.csv").read_text().splitlines()
        words = next(words for words, each, _ in make.questions() if each == name)
        assert lines[0] == f"# command: build/bin/arlab {' '.join(words)}" and (make.HERE / f"{name}.png").is_file()


# ---------------------------------------------------------------- tables are what the program of today says


def as_in_a_file(rows):
    return rows_in(csv_text(rows))


def test_what_if_has_the_times_of_today():
    subprocess.run([sys.executable, STUDIES / "what_if/make.py", "--check"], check=True)


def test_which_codec_has_the_times_of_today():
    make = loaded(STUDIES / "which_codec" / "make.py")
    known = rows_of(make.HERE / "choice.csv")
    assert as_in_a_file(make.simulated(make.MODEL)) == [{name: row[name] for name in make.TIMES} for row in known]


@pytest.mark.parametrize("machine", ["h200-8", "a100-flashcomm-8"])
def test_model_times_are_those_of_today(machine, tmp_path):
    """Every 37th row: of all models, phases, codecs and links some."""
    make = loaded(STUDIES / "model_time" / "make.py")
    for row in rows_of(make.HERE / f"times_{machine}.csv")[::37]:
        file = make.machine_with(tmp_path, machine, row["link_gb_per_s"])
        asked = (file, row["model"], row["phase"], row["codec"])
        us, share, algorithm = min(make.time_of(*asked, each) for each in make.ALGORITHMS)
        (made,) = as_in_a_file([{**row, "algorithm": algorithm, "time_us": us, "communication_share": f"{share:.4f}"}])
        assert made == row


def test_model_times_beside_others_are_those_of_today(tmp_path):
    make = loaded(STUDIES / "model_time" / "make.py")
    make.validate(tmp_path)
    assert (tmp_path / "validation.csv").read_text() == (make.HERE / "validation.csv").read_text()
