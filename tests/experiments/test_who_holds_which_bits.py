"""The page of other libraries' formats says what its results say, and the comparison finds a planted mistake."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scripts import loaded

STUDY = Path(__file__).resolve().parents[2] / "experiments/studies/who_holds_which_bits"


@pytest.fixture(scope="module")
def make():
    return loaded(STUDY / "make.py")


def fake(make, mistake):
    """A library that has arlab's bits, but for a mistake."""

    def call(blocks, dtype):
        parts = make.of_arlab(make.Form("mxfp4"), blocks, dtype)
        mistake(parts)
        return {name: parts[name] for name in ("codes", "scales")}

    return make.Answer("numpy", "mxfp4", call)


def test_the_page_says_what_the_results_say():
    done = subprocess.run([sys.executable, STUDY / "make.py", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_difference_has_a_sentence_and_twelve_libraries_ran(make):
    found = make.pairs(make.rows_of(STUDY / "results.csv"))
    verdicts = {pair: make.verdict(rows) for pair, rows in found.items()}
    assert len({library for (library, _), verdict in verdicts.items() if verdict != "not run"}) >= 12
    assert not [pair for pair, verdict in verdicts.items() if verdict != "equal" and not make.why(*pair)]


def test_a_library_with_the_same_bits_is_equal(make):
    rows = list(make.asked(fake(make, lambda parts: None)))
    assert len(rows) == 2 * len(make.CHUNKS)
    assert all(row["first"] == "" and row["scales_differ"] == row["elements_differ"] == 0 for row in rows)


def test_a_planted_mistake_is_found_where_it_is(make):
    def one_code(parts):
        parts["codes"][2, 5] ^= 1

    rows = list(make.asked(fake(make, one_code)))
    assert all(row["elements_differ"] == 1 and row["scales_differ"] == 0 and f"element {2 * 32 + 5} = " in row["first"] for row in rows)

    def one_scale(parts):
        parts["scales"][3] ^= 1

    rows = list(make.asked(fake(make, one_scale)))
    assert all(row["scales_differ"] == 1 and row["elements_differ"] == 0 and row["first"].startswith("block 3, ") for row in rows)


def test_signs_of_zeros_are_told_apart(make):
    def no_sign(parts):
        parts["codes"][parts["codes"] == 8] = 0

    rows = list(make.asked(fake(make, no_sign)))
    assert make.verdict([{name: str(value) for name, value in row.items()} for row in rows]) == "equal but signs of zeros"


def test_a_missing_library_is_a_row_that_says_so(make):
    (row,) = make.asked(make.Answer("no-such-library", "mxfp4", None))
    assert row["first"] == "not run: no-such-library is not installed"


def test_bad_usage():
    done = subprocess.run([sys.executable, STUDY / "make.py", "--pge"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--pge" in done.stderr


def test_wires_are_cut_as_the_specification_says(make):
    x = np.arange(make.CHUNK, dtype=np.float32) % 32
    parts = make.of_arlab(make.Form("mxfp6-e2m3"), x.reshape(-1, 32), "fp32")
    assert (parts["scales"] == 127 + 4 - 2).all() and (parts["codes"][0, :8] == [0, 2, 4, 6, 8, 10, 12, 14]).all()
