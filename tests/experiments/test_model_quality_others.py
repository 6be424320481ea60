"""The mixture of experts and the sentence embeddings of the model_quality study."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scripts import loaded

STUDY = Path(__file__).resolve().parents[2] / "experiments/studies/model_quality"


@pytest.fixture(scope="module")
def others():
    return loaded(STUDY / "others.py")


def test_every_token_comes_back_from_its_experts(others):
    """With experts that all do the same, each token ends as if there were one; so misrouted ones would be seen."""
    generator = np.random.default_rng(1)
    x = generator.standard_normal((64, 96)).astype(np.float16).astype(np.float32)
    router = generator.standard_normal((96, others.EXPERTS)).astype(np.float32)

    def error(dispatch, combine):
        y = others.Exchange(dispatch, combine)(x, router, lambda tokens: 3.7 * tokens + 1)
        return float(np.abs(y - (3.7 * x + 1)).max())

    assert error("fp16", "fp16") < 0.01
    assert 0.01 < error("qr-q8", "fp16") < error("qr-q8", "qr-q8") < error("int4-g32", "int4-g32") < 3
    seen = []
    others.Exchange("fp16", "fp16")(x, router, lambda tokens: seen.append(np.abs(tokens).max(1) > 0) or tokens)
    assert seen[0].sum() == others.CHOSEN * len(x), "each token is sent to so many experts"


def test_without_compression_the_mixture_is_the_model(others):
    rows = {name: rows_of(name) for name in ("experts", "minilm")}
    exact = rows["experts"][0]
    assert (exact["dispatch"], exact["combine"]) == ("fp16", "fp16")
    assert float(exact["mean_kl"]) < 1e-5 and exact["top1_agreement_percent"] == "100"
    pairs = [(codec, combine) for codec in others.EXCHANGED for combine in dict.fromkeys(("fp16", codec))]
    assert [(row["dispatch"], row["combine"]) for row in rows["experts"]] == pairs
    assert [row["codec"] for row in rows["minilm"]] == list(others.CODECS)
    assert float(rows["minilm"][0]["nearest_agreement_percent"]) == 100


def rows_of(name):
    lines = (STUDY / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def test_how_many_sentences_there_are(others):
    count = len(others.sentences())
    assert f" {count} sentences, " in (STUDY / "minilm.csv").read_text(encoding="utf-8")
    assert f"the {count} sentences of the same text" in (STUDY / "others.md").read_text(encoding="utf-8")


def test_bad_usage_is_one_line():
    done = subprocess.run([sys.executable, STUDY / "others.py", "gpt"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr == "others.py: usage: others.py minilm|experts\n"
