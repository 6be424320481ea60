"""The study of what compression does to a language model: its page says what its files say, and its judgements can fail."""

from pathlib import Path

import pandas as pd
import pytest
from arlab import figures
from arlab.figures.tables import InputError
from scripts import loaded

STUDY = Path(__file__).resolve().parents[2] / "experiments/studies/model_quality"


@pytest.fixture(scope="module")
def make():
    return loaded(STUDY / "make.py")


def test_the_pages_say_what_their_files_say(make):
    frame = make.committed()
    pages = [(STUDY / name).read_text(encoding="utf-8") for name in make.PAGES]
    assert [make.page_of(page, frame) for page in pages] == pages
    assert all(f"<!-- {name}() -->" in "".join(pages) for name in make.PARTS)
    page = pages[make.PAGES.index("findings.md")]
    changed = page.replace("*holds*", "*does not hold*", 1)
    assert changed != page and make.page_of(changed, make.committed()) == page


def test_every_run_is_there_once(make):
    expected = [
        (int(n), algorithm, codec, dtype)
        for algorithms, ranks, dtype, codecs in make.RUNS
        for n in ranks.split(",")
        for algorithm in algorithms.split(",")
        for codec in codecs.split(",")
    ]
    frame = make.committed()
    assert list(zip(frame.ranks, frame.algorithm, frame.codec, frame.dtype)) == expected and len(set(expected)) == len(expected)
    assert frame.ranks_identical.all() and frame.baseline_perplexity.nunique() == 1


def test_sums_are_there_once(make):
    frame = make.committed("sums.csv")
    expected = [(how, int(n), codec) for how in make.SUMS for n in make.SUM_RANKS.split(",") for codec in make.SUM_CODECS.split(",")]
    assert list(zip(frame["sum"], frame.ranks, frame.codec)) == expected and len(set(expected)) == len(expected)
    assert frame.ranks_identical.all() and set(frame.dtype) == {"bf16"}


def test_quantized_layers_are_there_once(make):
    frame = make.committed("quantized.csv")
    expected = [
        (weights, activations, codec)
        for weight_list, activation_list in make.QUANTIZED
        for weights in weight_list.split(",")
        for activations in activation_list.split(",")
        for codec in make.QUANTIZED_CODECS.split(",")
    ]
    assert list(zip(frame.weights, frame.activations, frame.codec)) == expected and len(set(expected)) == len(expected)
    plain = frame[(frame.weights == "none") & (frame.activations == "none")].set_index("codec").mean_kl
    alone = make.committed()
    alone = alone[(alone.ranks == 4) & (alone.algorithm == "two_shot") & (alone.dtype == "fp16")].set_index("codec").mean_kl
    assert (plain == alone[plain.index]).all(), "the same figures as in model_quality.csv"
    shares = [float(line.split("|")[-2]) for line in make.quantized_table(None).splitlines()[2:]]
    assert len(shares) == 13 and all(0.85 <= share <= 1.15 for share in shares), "the page says: within 15 %"


def test_judgements_follow_the_figures(make):
    frame = make.committed()
    judged = {claim: holds for claim, _, holds, _ in make.findings(make.Results(frame))}

    def judged_with(where, column, value):
        changed = frame.copy()
        changed.loc[where(changed), column] = value
        now = {claim: holds for claim, _, holds, _ in make.findings(make.Results(changed))}
        return [claim for claim in judged if now[claim] != judged[claim]]

    (ring,) = judged_with(lambda f: (f.algorithm == "ring") & (f.ranks == 4) & (f.codec == "qr-q4"), "mean_kl", 0.15)
    assert ring.startswith("A ring accumulates")
    (spikes,) = judged_with(lambda f: f.codec == "int3-g32-sr", "perplexity", 60.0)
    assert spikes.startswith("Spike reserving is the best")
    changed = judged_with(lambda f: (f.codec == "int5-g128") & (f.ranks == 4) & (f.algorithm == "two_shot"), "perplexity", 36.0)
    assert any(claim.startswith("5 bits cost at most") for claim in changed)
    (eight,) = judged_with(lambda f: (f.codec == "int8-g128") & (f.ranks == 4) & (f.algorithm == "two_shot"), "ln_ratio_standard_error", 0.005)
    assert eight == "8 bits cost below 1 %"
    exact = judged_with(lambda f: f.codec != "", "mean_kl_standard_error", 0.0)
    assert [claim.split(" ")[0] for claim in exact] == ["A", "...", "Encoding", "With"], "those that are within the error"


def test_a_finding_is_one_by_two_standard_errors(make):
    def judged(*values):
        return make.below(*(make.Value(*value) for value in values))

    assert judged((-0.3, 0.1)) == make.HOLDS and judged((-0.1, 0.1)) == judged((0.1, 0.1)) == make.OPEN
    assert judged((0.3, 0.1)) == judged((-0.3, 0.1), (0.3, 0.1), (-0.1, 0.1)) == make.FAILS
    assert judged((-0.1, float("nan"))) == make.HOLDS and judged((0.1, float("nan"))) == make.FAILS
    apart = make.Value(1, 0.3) - make.Value(3, 0.4)
    assert apart == (-2, 0.5)


def test_errors_are_those_of_the_comparison(make):
    frame = make.committed()
    errors = frame[[name for name in frame.columns if name.endswith("_standard_error")]]
    assert errors.shape == (80, 4) and (errors > 0).all(axis=None)
    small = frame[frame.ln_ratio < 0.1]
    assert len(small) > 30 and (small.ln_ratio_standard_error < small.perplexity_standard_error / small.perplexity / 3).all()


def test_the_figure_needs_its_columns():
    rows = pd.DataFrame(
        [(4, "ring", "a", "fp16", 10.0, 0.5), (4, "two_shot", "b", "fp16", 20.0, 0.05), (4, "two_shot", "c", "fp16", 30.0, 0.01)],
        columns=["ranks", "algorithm", "codec", "dtype", "token_sqnr_db", "mean_kl"],
    )
    figure = figures.divergence_over_sqnr(rows, width="page")
    assert [text.get_text() for text in figure.axes[0].texts] == ["c", "b", "a"]
    assert sum(len(line.get_xdata()) for line in figure.axes[0].lines) == 3
    with pytest.raises(InputError, match="mean_kl is missing"):
        figures.divergence_over_sqnr(rows.drop(columns="mean_kl"))
    with pytest.raises(InputError, match="no row"):
        figures.divergence_over_sqnr(rows.assign(mean_kl=0.0))
