"""Studies of single ideas for codecs: their pages agree with their tables, and the learnt levels are right."""

import os
import subprocess
import sys
from pathlib import Path

import arlab
import numpy as np
from scripts import loaded

STUDIES = Path(__file__).resolve().parents[2] / "experiments" / "studies"


def test_sums_of_codes_are_as_the_program_says():
    done = subprocess.run([sys.executable, STUDIES / "sums_of_codes/make.py", "--check"], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr


def test_a_rotation_that_was_learnt():
    study = loaded(STUDIES / "learnt/learnt.py")
    blocks = study.captured()
    rotation = study.rotation_of(blocks, steps=100, batch=1024)
    assert np.allclose(rotation @ rotation.T, np.eye(study.BLOCK), atol=1e-10)

    def largest(matrix):
        turned = blocks @ matrix
        return np.mean(np.max(turned**2, 1) / np.mean(turned**2, 1))

    assert largest(rotation) < 0.95 * largest(study.hadamard()) < 0.95 * largest(np.eye(study.BLOCK))
    levels = study.levels_of(blocks, rotation, rounds=20)
    assert levels[0] == -1 and levels[-1] == 1 and (np.diff(levels) > 0).all()
    arlab.codec("turned-test", block=study.BLOCK, dtypes=("fp16",))(study.Rotated(rotation, levels))
    assert arlab.check_codec("turned-test").passed


def test_the_page_has_the_table():
    study = loaded(STUDIES / "learnt/learnt.py")
    rows = study.rows_of(STUDIES / "learnt/learnt.csv")
    assert len(rows) == 6
    assert study.table(rows) in (STUDIES / "learnt/README.md").read_text(encoding="utf-8")
