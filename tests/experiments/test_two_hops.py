"""The study of two hops: equal bytes when run again, and its page has its table."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in make.py, which comes later here

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from scripts import loaded  # noqa: E402

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "studies" / "two_hops"
sys.path.insert(0, str(FOLDER.parent / "gradients"))
two_hops = loaded(FOLDER / "make.py")


def test_a_run_begins_as_the_table_does():
    frame = pd.read_csv(FOLDER / "two_hops.csv", comment="#")
    for way in ("fp32", "two hops, int8 inside, int4 across"):
        (row,) = two_hops.train("Adam", way, 2, two_hops.study.EVERY)
        known = frame[(frame["optimizer"] == "Adam") & (frame["reduce_scatter"] == way) & (frame["seed"] == 2)].iloc[0]
        assert [f"{row[name]:.6f}" for name in ("training_loss", "sqnr_db")] == [f"{known[name]:.6f}" for name in ("training_loss", "sqnr_db")]


def test_two_hops_send_a_quarter_across_and_round_twice():
    gradients = np.random.default_rng(7).normal(size=(8, 8 * 2048)).astype(np.float32)
    assert two_hops.across("two hops, int4 and int4") * 4 == two_hops.across("one hop, int4")
    noise = {way: two_hops.reduced(gradients, way)[1] for way in two_hops.WAYS}
    assert noise["fp32"] < 1e-12 < noise["one hop, int4"] < noise["two hops, int4 and int4"]
    assert noise["two hops, int8 inside, int4 across"] < noise["two hops, int4 and int4"]


def test_page_has_the_table_of_the_results():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert two_hops.summary(pd.read_csv(FOLDER / "two_hops.csv", comment="#")) in page, "run make.py --draw two_hops.csv"
