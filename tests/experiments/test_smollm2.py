"""The shipped partial sums of SmolLM2 are what experiments/activations/smollm2.md says, and capture_smollm2.py is right.

No network and no weights are needed. Where the model is in the cache (python -m arlab.fetch smollm2), or ARLAB_REQUIRE_MODELS=1
says that it must be, the sample is captured again and compared with the shipped files, bit for bit where this machine's BLAS
allows, and otherwise within one float16 step.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "activations"
sys.path.insert(0, str(FOLDER))

import capture  # noqa: E402
import capture_smollm2 as smollm2  # noqa: E402
from arlab.fetch import cache_folder  # noqa: E402

WEIGHTS = cache_folder() / "models" / "smollm2" / smollm2.MODEL_FILE
TOKENS = 6


def read_sample(path):
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


@pytest.fixture(scope="module")
def sample():
    return {ranks: read_sample(smollm2.sample_path(capture.DATA, ranks)) for ranks in smollm2.WAYS}


def test_names_shapes_values_and_metadata(sample):
    for ranks, (tensors, metadata) in sample.items():
        assert set(tensors) == {f"{text}.{name}" for text in smollm2.TEXTS for name in smollm2.SAMPLE[ranks]}
        for name, tensor in tensors.items():
            assert tensor.shape == (ranks, TOKENS, smollm2.HIDDEN) and tensor.dtype == np.float16, name
            assert np.isfinite(tensor).all() and np.unique(tensor).size > 1000, name
        assert metadata["model_sha256"] == smollm2.MODEL_SHA256
        assert metadata["source_wheel_sha256"] == smollm2.SOURCE.wheel_sha256
        assert (metadata["model_licence"], metadata["package_licence"]) == ("Apache-2.0", "Apache-2.0")
        for text in smollm2.TEXTS:
            digest = capture.sha256(smollm2.text_path(text).read_bytes())
            assert metadata[f"{text}.text_sha256"] == digest, f"{text}.txt is not the one that was captured"
            assert len(metadata[f"{text}.tokens"].split(" ")) == TOKENS
        path = smollm2.sample_path(capture.DATA, ranks)
        assert capture.serialize(tensors, metadata) == path.read_bytes()


@pytest.mark.parametrize("first, second", [(2, 4), (4, 8), (8, 16)])
def test_splits_add_up_to_the_same_projection(sample, first, second):
    for text in smollm2.TEXTS:
        name = f"{text}.layer15.ffn_down"
        few, many = (sample[ranks][0][name].astype(np.float64) for ranks in (first, second))
        # Rank r of few holds what ranks 2r and 2r + 1 of many hold. A rounding is half a step of float16 at most.
        pairs = many.reshape(first, 2, TOKENS, -1)
        bound = (np.abs(few) + np.abs(pairs).sum(1)) * 2.0**-11 * 1.01 + 2.0**-23
        assert (np.abs(pairs.sum(1) - few) <= bound).all(), name
        swapped = np.roll(many, 1, axis=0).reshape(first, 2, TOKENS, -1).sum(1)
        assert np.mean(np.abs(swapped - few) <= bound) < 0.1, "negative control: the parts in another order"


def test_page_has_the_statistics_of_the_files():
    page = (FOLDER / "smollm2.md").read_text(encoding="utf-8")
    paths = {ranks: smollm2.sample_path(capture.DATA, ranks) for ranks in smollm2.WAYS}
    assert capture.statistics_table(paths) in page, "run capture_smollm2.py --statistics"


@pytest.fixture(scope="module")
def random_model():
    """Two layers of SmolLM2's shapes with random weights."""
    generator = np.random.default_rng(6)

    def normal(*shape, scale=0.05):
        return (scale * generator.standard_normal(shape)).astype(np.float32)

    width, narrow = smollm2.HIDDEN, smollm2.KEY_VALUE_HEADS * smollm2.HEAD_SIZE
    weights = {"token_embd.weight": normal(50, width, scale=1), "output_norm.weight": 1 + normal(width)}
    shapes = {"attn_q": (width, width), "attn_k": (narrow, width), "attn_v": (narrow, width), "attn_output": (width, width)}
    shapes |= {"ffn_gate": (smollm2.FFN, width), "ffn_up": (smollm2.FFN, width), "ffn_down": (width, smollm2.FFN)}
    for layer in range(2):
        weights |= {f"blk.{layer}.{name}.weight": normal(*shape) for name, shape in shapes.items()}
        weights |= {f"blk.{layer}.{name}_norm.weight": 1 + normal(width) for name in ("attn", "ffn")}
    return smollm2.Model(weights, tokenizer=None)


def test_split_network_computes_what_the_whole_one_does(random_model):
    ids = [3, 1, 4, 1, 5, 9]
    whole = smollm2.forward(random_model, ids, layers=2)
    assert set(whole.inputs) == {f"layer{i}.{name}" for i in range(2) for name in smollm2.PROJECTIONS}
    for ranks in (2, 16):
        split = smollm2.forward(
            random_model, ids, lambda x, w: capture.all_reduce(smollm2.partial_sums(x, w, ranks)), layers=2
        )
        assert np.abs(split.hidden - whole.hidden).max() < 2e-5


def test_no_token_sees_a_later_one(random_model):
    first, second = (smollm2.forward(random_model, [3, 1, 4, last], layers=2).hidden for last in (1, 7))
    assert np.array_equal(first[:3], second[:3]) and not np.array_equal(first[3], second[3])


def test_positions_are_relative():
    """A query's product with a key depends on their distance only, and numbers that GGUF has side by side turn together."""
    turned = smollm2.rotated(np.tile(np.eye(64, dtype=np.float32)[0], (3, 1)))
    assert turned[2, :2] == pytest.approx([np.cos(2), np.sin(2)]) and not turned[:, 2:].any()
    generator = np.random.default_rng(7)
    query, key = (np.tile(x, (9, 1)) for x in generator.standard_normal((2, 1, 64)).astype(np.float32))
    products = smollm2.rotated(query).astype(np.float64) @ smollm2.rotated(key).astype(np.float64).T
    for distance in range(-8, 9):
        assert np.ptp(np.diagonal(products, distance)) < 1e-4
    assert products[0, 0] == pytest.approx(query[0] @ key[0], abs=1e-4) and np.ptp(products) > 0.1


def test_query_heads_share_keys_and_values_in_groups(random_model):
    generator = np.random.default_rng(8)
    query = generator.standard_normal((5, smollm2.HIDDEN)).astype(np.float32)
    key, value = generator.standard_normal((2, 5, 192)).astype(np.float32)
    whole = smollm2.attention(query, key, value).reshape(5, 9, 64)
    changed = value.copy()
    changed[:, 64:128] += 1  # the second of three
    moved = np.abs(smollm2.attention(query, key, changed).reshape(5, 9, 64) - whole).max(axis=(0, 2))
    assert list(moved > 0.5) == [False] * 3 + [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--tokens", "1"], "not a number of 2 to 1024"),
        (["--layers", "0,30"], "'30' is not a number of 0 to 29"),
        (["--weights", "missing.gguf"], "cannot read missing.gguf"),
        (["--weights", str(FOLDER / "text.txt")], "expected " + smollm2.MODEL_SHA256),
        (["--statistics", "--out", "missing"], "does not exist"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(capsys, arguments, reason):
    try:
        code = smollm2.main(arguments)
    except SystemExit as exit_:  # argparse
        code = exit_.code
    error = capsys.readouterr().err
    assert code == 2 and reason in error and error.count("\n") == 1


@pytest.mark.skipif(
    not WEIGHTS.exists() and not os.environ.get("ARLAB_REQUIRE_MODELS"),
    reason="SmolLM2 is not in the cache: python -m arlab.fetch smollm2",
)
def test_captured_again(sample, tmp_path):
    assert smollm2.main(["--weights", str(WEIGHTS), "--out", str(tmp_path)]) == 0
    for ranks, (tensors, metadata) in sample.items():
        again, said = read_sample(smollm2.sample_path(tmp_path, ranks))
        assert said == metadata and again.keys() == tensors.keys()
        for name, tensor in tensors.items():
            step = np.spacing(np.abs(tensor)).astype(np.float64)
            assert (np.abs(again[name].astype(np.float64) - tensor) <= step + 1e-5).all(), name
