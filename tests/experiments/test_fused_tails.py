"""The study of fused tails: its file is what the program gives, its roundings are all, and its page has its table."""

import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from arlab.fetch import cache_folder
from scripts import loaded

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "studies" / "fused_tails"
study = loaded(FOLDER / "make.py")
frame = pd.read_csv(FOLDER / "fused_tails.csv", comment="#")


def test_the_file_has_every_rounding_output_and_number_of_ranks():
    points = set(zip(frame["rounding"], frame["output"], frame["ranks"]))
    names = ("unfused", *study.ROUNDINGS)
    assert points == {(name, output, ranks) for name in names for output in study.OUTPUTS for ranks in study.RANKS}
    assert len(points) == len(frame)


def test_roundings_are_all_that_the_program_names():
    words = "reduce --algorithm ring --codec bf16 --ranks 2 --synthetic gaussian --elements 8 --tail norm=rms,rounding=?"
    said = subprocess.run([study.PROGRAM, *words.split()], capture_output=True, text=True).stderr
    known = set(said.strip().split("allowed are ")[1].split(", "))
    # flashinfer-fp4 differs from the others in its codec, too.
    assert {"unfused", "flashinfer-fp4", *study.ROUNDINGS} == known


def test_page_has_the_table_of_the_results():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert study.summary(frame) in page, "run make.py --draw fused_tails.csv"


@pytest.mark.skipif(
    not (cache_folder() / "models" / "smollm2").exists() and not os.environ.get("ARLAB_REQUIRE_MODELS"),
    reason="SmolLM2 is not in the cache",
)
def test_runs_give_the_rows_of_the_file():
    made = study.run(study.command(study.TOKENS, (2,), {"bf16": ""}, ("vllm",)))
    known = frame[(frame["ranks"] == 2) & (frame["output"] == "bf16") & frame["rounding"].isin(["unfused", "vllm"])]
    pd.testing.assert_frame_equal(made.reset_index(drop=True), known.reset_index(drop=True), rtol=1e-9)
