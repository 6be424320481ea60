"""How long a whole model takes: arlab.models.time()."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arlab._tables import Result, ask, frame

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["ModelTime", "time"]


class ModelTime(Result):
    """How long a model takes for a prompt (ttft_us) or one more token per sequence (tpot_us); microseconds.

    compute_us, communication_us   they add up to it: the device calculates, or waits for communication
    communication_share            communication_us over the time, 0 to 1
    speedup_over_library           over the same with NCCL or RCCL, uncompressed; None where the topology does not know it
    operations                     a pandas.DataFrame: FLOP, bytes and time of each operation of one rank
    """

    SHOWN = (
        "model", "topology", "ranks", "phase", "batch", "tokens", "dtype", "algorithm", "codec", "overlap", "ttft_us", "tpot_us",
        "compute_us", "communication_us", "communication_share", "speedup_over_library", "provenance",
    )  # fmt: skip

    ttft_us: float | None
    tpot_us: float | None
    compute_us: float
    communication_us: float
    communication_share: float
    speedup_over_library: float | None

    @property
    def operations(self) -> DataFrame:
        return frame(self.data["operations"])


def time(
    model: str | Path,
    *,
    topology: str | Path,
    codec: str | None = None,
    algorithm: str | None = None,
    tokens: int | None = None,
    batch: int | None = None,
    ranks: int | None = None,
    phase: str | None = None,
    dtype: str | None = None,
    library: bool = False,
    overlap: str | None = None,
    combine: str | None = None,
    kernels: str | None = None,
    attention: bool = True,
    trace: str | Path | None = None,
) -> ModelTime:
    """Time to first token or per output token, by a roofline of the layers and simulated collectives.

    Args:
        model: a name (`arlab model time --help` lists them), the path of a config.json, or of a .toml with its keys.
        topology: as for simulate(); its file needs a section [compute].
        codec, algorithm: of all-reduces; by default the dtype itself, by two_shot.
        tokens: of each prompt; in decode those that are there already. Default 1024.
        batch: sequences; default 1. ranks: that share each layer; default all of the topology.
        phase: "prefill" or "decode".
        library: as NCCL or RCCL run the collectives; codecs fp16 and bf16 only.
        overlap: "none", or "batches": half of the batch calculates while the other communicates.
        combine: of a mixture of experts: "quantized" uses the codec on the way back, too.
        kernels: "fused" as in engines for inference, or "separate" as in PyTorch.
        attention: False leaves it out, as experiments/gpu/bench_torch_layers.py does.
        trace: write the timeline of a layer to this .json, for ui.perfetto.dev.
    """
    given = dict(locals())
    return ModelTime(ask("model time", {"no_attention": not given.pop("attention")} | given))
