"""The study of gradients: equal bytes when run again, and error feedback does what its page says."""

import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in gradients.py, which comes later here

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pytest  # noqa: E402
from scripts import loaded  # noqa: E402

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "studies" / "gradients"
SCRIPT = FOLDER / "gradients.py"
gradients = loaded(SCRIPT)


def run(folder, *options):
    folder.mkdir()
    words = [sys.executable, SCRIPT, "--out", folder, "--seeds", "1", *options]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_again_gives_equal_bytes(tmp_path):
    options = ("--codecs", "fp16,int2-g32-stoch", "--steps", "4")
    said = [run(tmp_path / name, *options, "--workers", str(workers)) for name, workers in (("a", 1), ("b", 2))]
    assert said[0] == said[1] and "|`int2-g32-stoch`|3|" in said[0]
    for name in ("gradients.csv", "gradients.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_error_feedback_mends_two_bits():
    """Under momentum SGD; without compression the loss is that of fp16."""
    loss = {
        (codec, feedback): gradients.train("momentum SGD", codec, feedback, 1, 60)[-1]["training_loss"]
        for codec, feedback in (("fp16", False), ("int2-g32", False), ("int2-g32", True))
    }
    plain = loss["fp16", False]
    assert loss["int2-g32", True] < loss["int2-g32", False] - 0.005
    assert abs(loss["int2-g32", True] - plain) < 0.5 * abs(loss["int2-g32", False] - plain)


def test_drift_is_bounded_with_feedback_and_grows_slowly_without_bias():
    """The same gradient every time: nearest rounding errs by the same at every step, stochastic by its root, and
    feedback makes up for all but the last step's loss."""
    gradient = np.random.default_rng(9).normal(size=(4, 4 * 2048)).astype(np.float32)
    drift = {}
    for codec, feedback in (("int2-g32", False), ("int2-g32-stoch", False), ("int2-g32", True)):
        reduce = gradients.CompressedSum(codec, 4 * 2048, feedback, seed=1)
        drift[codec, feedback] = []
        for _ in range(64):
            reduce(gradient)
            drift[codec, feedback].append(reduce.drift())
    nearest, stochastic, fed_back = drift.values()
    assert np.isclose(nearest[63], 64 * nearest[0], rtol=1e-3)
    assert np.isclose(stochastic[63], 8 * stochastic[0], rtol=0.1)
    assert fed_back[63] < 3 * fed_back[0]


def test_the_gradient_is_that_of_the_loss():
    model = gradients.Model(12, 1)
    generator = np.random.default_rng(11)
    windows, targets = generator.integers(12, size=(6, 8)), generator.integers(12, size=6)
    _, gradient = model.run(windows, targets)
    for part in model.slices:
        i = part.start + int(np.abs(gradient[part]).argmax())
        weight, losses = model.weights[i], []
        for step in (1e-2, -1e-2):
            model.weights[i] = weight + np.float32(step)
            losses.append(model.run(windows, targets)[0])
        model.weights[i] = weight
        assert (losses[0] - losses[1]) / 2e-2 == pytest.approx(gradient[i], rel=0.02)


def test_page_has_the_table_of_the_results():
    frame = pd.read_csv(FOLDER / "gradients.csv", comment="#")
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert gradients.summary(frame) in page, "run gradients.py --draw gradients.csv"


@pytest.mark.parametrize(
    "options, reason",
    [(["--codecs", "qr-q4"], "fp16 is needed"), (["--steps", "0"], "at least 1"), (["--draw", "missing.csv"], "cannot read")],
)
def test_bad_arguments(options, reason, capsys):
    with pytest.raises(SystemExit) as exit_:
        gradients.main(options)
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and reason in error and error.count("\n") == 1
