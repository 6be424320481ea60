"""The figure of spreads: planted results have known medians, families are seeds of one name, and the page has its table."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from arlab import figures
from arlab.figures import InputError, read_results, spreads
from arlab.figures.__main__ import main as figures_main

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "studies" / "spread"
NEEDED = ["input", "tensor", "ranks", "algorithm", "codec", "wire_bits_per_element", "sqnr_db"]


@pytest.fixture
def frame(tmp_path):
    rows = []
    for codec, base in (("qr-q4", 15.0), ("fp16", np.inf), ("int2-g32", 3.0)):
        for ranks in (2, 4):
            rows += [("net", f"layer{i}.up", ranks, "two_shot", codec, 4.5, base + i - ranks) for i in range(5)]
            rows += [(f"gaussian, seed {i}", "", ranks, "two_shot", codec, 4.5, base + 0.1 * i) for i in range(3)]
    pd.DataFrame(rows, columns=NEEDED).to_csv(tmp_path / "results.csv", index=False)
    return read_results(tmp_path / "results.csv")


def test_medians_of_families(frame):
    found = spreads.spread(frame, ranks=4).set_index(["family", "codec"])
    assert set(found.index.get_level_values("family")) == {"net", "gaussian"}
    row = found.loc["net", "qr-q4"]
    assert (row["count"], row["median"], row["lower_quartile"], row["upper_quartile"]) == (5, 13, 12, 14)
    assert 11 <= row["low"] <= 13 <= row["high"] <= 15
    assert found.loc["gaussian", "int2-g32"]["median"] == pytest.approx(3.1)
    together = spreads.spread(frame).set_index(["family", "codec"]).loc["net", "qr-q4"]
    assert (together["count"], together["units"]) == (10, 5)
    assert "|`qr-q4`|4.5|13.0 (11.0 to 15.0)|15.1 (15.0 to 15.2)|" in spreads.spread_table(frame, ranks=4)


def test_a_figure_again_has_equal_bytes(frame, tmp_path):
    from arlab.figures import save

    for name in ("a.png", "b.png"):
        save(spreads.error_bars(frame, ranks=4, highlight=["qr-q4"], width="column"), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_what_is_not_there_is_one_line(frame, tmp_path, capsys):
    with pytest.raises(InputError, match="ranks is 3; the results have 2, 4"):
        spreads.error_bars(frame, ranks=3)
    assert figures_main(["error_bars", str(tmp_path / "missing.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_page_has_the_table_of_the_study(tmp_path):
    program = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
    words = [program, "study", STUDY / "study.toml", "--out", tmp_path, "--no-plots"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    page = (STUDY / "README.md").read_text(encoding="utf-8")
    assert spreads.spread_table(read_results(tmp_path / "results.csv"), ranks=4) in page, "run run.sh"


def test_no_module_hides_a_function():
    """Importing arlab.figures.NAME makes that module an attribute, in place of a function of the same name."""
    assert not set(figures._PLACES) & set(figures.__all__)
