#!/usr/bin/env python3
"""Two more models: sentence embeddings (retrieval as the task), and a mixture of experts (all-to-all).

    others.py minilm    writes minilm.csv
    others.py experts   writes experts.csv

Both run networks in NumPy, so requirements.txt of experiments/activations is needed, and the models in the cache
(python -m arlab.fetch minilm, python -m arlab.fetch smollm2). A few minutes each.

minilm: all-MiniLM-L6-v2 over 4 ranks, every all-reduce through two_shot in fp16. The sentences of prose.txt are embedded; for
each, which of the others is the nearest?

experts: SmolLM2-135M in which every FFN is a mixture of 8 experts on 8 ranks. No such model is in a package, so it is made up: the
router is random (seeded), two experts per token, and each expert is a copy of the layer's own FFN. So without compression it is
SmolLM2, and what compressing the all-to-alls does to it can be measured; but real experts differ from each other, and a real router
may not like what real experts are sent. Tokens lie on the ranks in equal parts; a slot holds a rank's tokens for one expert, filled up
with zeros.

Exit code: 0; 2 for bad usage.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path[:0] = [str(REPOSITORY / "experiments/activations"), str(REPOSITORY / "experiments/site")]

import arlab  # noqa: E402
import capture  # noqa: E402
import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from page_tables import csv_text  # noqa: E402

Float32 = NDArray[np.float32]
TEXT = REPOSITORY / "experiments/activations/texts/prose.txt"
CODECS = ("fp16", "qr-q8", "int8-g128", "qr-q6", "int5-g128", "qr-q4", "int4-g32", "int3-g32", "int2-g32-sr", "int2-g32")


def write(name: str, about: str, rows: list[dict[str, Any]]) -> None:
    text = csv_text(
        rows, f"arlab.model_quality.{name}/1: {about}", f"command: experiments/studies/model_quality/others.py {name}",
        "provenance: exact: computed by a network in NumPy, every collective bit for bit",
    )  # fmt: skip
    (HERE / f"{name}.csv").write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------ embeddings


def sentences() -> list[str]:
    found = re.split(r"(?<=[.!?])\s+", " ".join(TEXT.read_text("utf-8").split()))
    return [each[:300] for each in found if len(each) > 40]


def minilm() -> None:
    folder = capture.fetch("minilm")
    model = capture.model_from_files(folder / "model.safetensors", None)
    texts = sentences()

    def similarities(reduce: Callable[[Float32], Float32]) -> NDArray[np.float64]:
        embedded = np.stack([capture.sentence_embedding(model, text, 4, reduce) for text in texts])
        cosines: NDArray[np.float64] = embedded @ embedded.T
        return cosines

    others = ~np.eye(len(texts), dtype=bool)
    exact = similarities(capture.all_reduce)
    nearest = np.where(others, exact, -2).argmax(1)
    rows = []
    for codec in CODECS:
        print(codec, file=sys.stderr)

        def reduce(partial: Float32, codec: str = codec) -> Float32:
            result = arlab.all_reduce(partial.astype(np.float16), algorithm="two_shot", codec=codec, count=False)
            return np.asarray(result.outputs[0], np.float32)

        found = similarities(reduce)
        same = np.where(others, found, -2).argmax(1) == nearest
        apart = (found - exact)[others]
        rows.append({
            "codec": codec, "nearest_agreement_percent": 100 * float(same.mean()), "cosine_rmse": float(np.sqrt((apart**2).mean())),
            "cosine_correlation": float(np.corrcoef(found[others], exact[others])[0, 1]),
        })  # fmt: skip
    write("minilm", f"all-MiniLM-L6-v2, {len(texts)} sentences, two_shot over 4 ranks, fp16", rows)


# --------------------------------------------------------------------------------------- experts

EXPERTS, CHOSEN, TOKENS = 8, 2, 256
LAYERS, HEAD_SIZE = 30, 64  # SmolLM2's
EXCHANGED = ("fp16", "qr-q8", "int5-g128", "qr-q4", "int4-g32", "int2-g32-sr", "int2-g32")


class Exchange:
    """Tokens to the ranks of their experts and back, in fp16."""

    def __init__(self, dispatch: str, combine: str):
        self.codecs = (dispatch, combine)

    def send(self, slots: Float32, back: bool) -> Float32:
        """slots [from, to, places, width] arrive as [to, from, places, width]."""
        ranks = slots.shape[0]
        tensors = slots.astype(np.float16).reshape(ranks, -1)
        arrived = arlab.all_to_all(tensors, codec=self.codecs[back]).outputs
        return np.asarray(arrived, np.float32).reshape(slots.shape)

    def __call__(self, x: Float32, router: Float32, expert: Callable[[Float32], Float32]) -> Float32:
        """x [tokens, width]: the chosen experts' outputs, weighted."""
        tokens, width = x.shape
        logits = x @ router
        chosen = np.argsort(-logits, axis=1, kind="stable")[:, :CHOSEN]
        weights = np.exp(np.take_along_axis(logits, chosen, 1).astype(np.float64))
        weights /= weights.sum(1, keepdims=True)
        owner = np.arange(tokens) * EXPERTS // tokens
        count = np.zeros((EXPERTS, EXPERTS), int)
        places = np.zeros_like(chosen)
        for token in range(tokens):
            for k, at in enumerate(chosen[token]):
                places[token, k] = count[owner[token], at]
                count[owner[token], at] += 1
        slots = np.zeros((EXPERTS, EXPERTS, int(count.max()), width), np.float32)
        slots[owner[:, None], chosen, places] = x[:, None]
        arrived = self.send(slots, back=False)
        answered = self.send(expert(arrived.reshape(-1, width)).reshape(arrived.shape), back=True)
        mine = answered[owner[:, None], chosen, places].astype(np.float64)
        return (mine * weights[..., None]).sum(1).astype(np.float32)


def read_gguf(path: Path) -> dict[str, Float32]:
    import gguf

    return {each.name: gguf.dequantize(each.data, each.tensor_type) for each in gguf.GGUFReader(path).tensors}


def rms_norm(x: Float32, weight: Float32) -> Float32:
    wide = x.astype(np.float64)
    mean_square = np.square(wide).mean(axis=-1, keepdims=True)
    return (wide / np.sqrt(mean_square + float(np.float32(1e-5))) * weight).astype(np.float32)


def rotated(x: Float32) -> Float32:
    """Rotary positions of all heads: GGUF stores the two numbers of each rotation side by side."""
    angle = np.arange(len(x))[:, None] * 100000.0 ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    pairs = x.astype(np.float64).reshape(len(x), -1, HEAD_SIZE).view(np.complex128)
    return (pairs * np.exp(1j * angle)[:, None]).view(np.float64).reshape(x.shape).astype(np.float32)


def swiglu(gate: Float32, up: Float32) -> Float32:
    wide = gate.astype(np.float64)
    return (wide / (1 + np.exp(-wide)) * up).astype(np.float32)


def logits_of(w: dict[str, Float32], ids: list[int], exchange: Exchange | None) -> tuple[NDArray[np.float64], list[Float32]]:
    """Returns the logits of SmolLM2 with its FFNs as mixtures, and the output of each of them."""
    generator = np.random.default_rng(20)
    hidden, outputs = w["token_embd.weight"][ids], []
    width = hidden.shape[1]
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        normal = rms_norm(hidden, w[at + "attn_norm.weight"])
        query, key, value = (capture.linear(normal, w[f"{at}attn_{name}.weight"]) for name in "qkv")
        attended = capture.attention(rotated(query), rotated(key), value, HEAD_SIZE, causal=True)
        hidden = hidden + capture.linear(attended, w[at + "attn_output.weight"])
        normal = rms_norm(hidden, w[at + "ffn_norm.weight"])

        def expert(x: Float32, at: str = at) -> Float32:
            gate, up = (capture.linear(x, w[f"{at}ffn_{name}.weight"]) for name in ("gate", "up"))
            return capture.linear(swiglu(gate, up), w[at + "ffn_down.weight"])

        router = (generator.standard_normal((width, EXPERTS)) / np.sqrt(width)).astype(np.float32)
        outputs.append(expert(normal) if exchange is None else exchange(normal, router, expert))
        hidden = hidden + outputs[-1]
    final = rms_norm(hidden, w["output_norm.weight"])
    logits = final.astype(np.float64) @ w["token_embd.weight"].T.astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True)), outputs


def experts() -> None:
    ids = arlab.models.Model("smollm2").tokens(TEXT.read_text("utf-8"))[:TOKENS]
    weights = read_gguf(next(capture.fetch("smollm2").glob("*.gguf")))
    exact, plain = logits_of(weights, ids, None)
    rows = []
    for codec in EXCHANGED:
        for combine in dict.fromkeys(("fp16", codec)):
            print(codec, combine, file=sys.stderr)
            found, outputs = logits_of(weights, ids, Exchange(codec, combine))
            first = 10 * np.log10((plain[0].astype(np.float64) ** 2).sum(1) / ((outputs[0] - plain[0]).astype(np.float64) ** 2).sum(1))
            p, q = exact[:-1], found[:-1]
            rows.append({
                "dispatch": codec, "combine": combine,
                "perplexity": float(np.exp(-q[np.arange(TOKENS - 1), ids[1:]].mean())),
                "mean_kl": float((np.exp(p) * (p - q)).sum(1).mean()),
                "top1_agreement_percent": 100 * float((p.argmax(1) == q.argmax(1)).mean()),
                "first_layer_token_sqnr_db": float(np.median(first)),
            })  # fmt: skip
    about = f"SmolLM2-135M, FFNs as {EXPERTS} like experts on {EXPERTS} ranks, random router, {CHOSEN} per token; {TOKENS} tokens of prose"
    write("experts", about, rows)


def main() -> int:
    work = {"minilm": minilm, "experts": experts}
    if len(sys.argv) != 2 or sys.argv[1] not in work:
        print(f"others.py: usage: others.py {'|'.join(work)}", file=sys.stderr)
        return 2
    work[sys.argv[1]]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
