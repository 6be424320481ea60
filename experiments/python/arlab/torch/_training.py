"""Gradients with a codec: a hook for DistributedDataParallel, and the collectives of FSDP2."""

# Annotations are no text here: DistributedDataParallel looks at those of a hook.
from typing import TYPE_CHECKING, Any, Sequence

import torch
from torch import Tensor, distributed
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather as _AllGather
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter as _ReduceScatter
from torch.futures import Future

from arlab._errors import ArgumentError
from arlab.torch import _teams as teams
from arlab.torch._backend import enqueue
from arlab.torch._teams import DTYPES, team_of

if TYPE_CHECKING:
    from arlab.collectives import Sum
    from arlab.schedules import Algorithm


class HookState:
    """State that ddp_hook is registered with: how gradients travel, and what each bucket is owed.

    group            a process group of any backend [the default one]
    codec            how gradients travel [as they are]
    dtype            to which a bucket is cast before, for codecs that do not take the bucket's own
    algorithm, sum   as for arlab.all_reduce
    error_feedback   what the codec loses of this rank's gradients is added to its next ones
    errors           of each bucket, by its index: float32, as many elements as it has

    Raises ValueError for a name that is no codec.
    """

    def __init__(
        self, group: Any = None, *, codec: str | None = None, dtype: torch.dtype | None = None,
        algorithm: "str | Algorithm | None" = None, sum: "Sum | str | None" = None, error_feedback: bool = True,
    ):  # fmt: skip
        teams.takes(codec, None)
        self.group, self.codec, self.dtype, self.algorithm, self.sum = group, codec, dtype, algorithm, sum
        self.error_feedback = error_feedback
        self.errors: dict[int, Tensor] = {}
        self._parameters: dict[int, list[int]] = {}

    def error_of(self, bucket: Any) -> Tensor:
        """Zeros at first, and once more where DDP has made other buckets, as it does after the first step."""
        index, parameters = bucket.index(), [id(each) for each in bucket.parameters()]
        if self._parameters.get(index) != parameters:
            self._parameters[index] = parameters
            self.errors[index] = torch.zeros_like(bucket.buffer(), dtype=torch.float32)
        return self.errors[index]


def _with_error(team: Any, tensor: Tensor, error: Tensor, codec: str, dtype: torch.dtype) -> Tensor:
    """The tensor with what it is owed, as the codecs `ef-` have it (reference/codecs/SPEC.md): v = RN(x + e), which travels as
    RN(v, dtype), saturating where x is finite; then e is v less what is decoded, or 0 where that is not finite."""
    wide = tensor.float() + error
    largest = torch.finfo(dtype).max
    sent = torch.where(tensor.isfinite(), wide.clamp(-largest, largest), wide).to(dtype)
    lost = wide - teams.as_sent(team, sent, codec).float()
    error.copy_(torch.where(lost.isfinite(), lost, 0))
    return sent


def ddp_hook(state: HookState, bucket: distributed.GradBucket) -> Future[Tensor]:
    """For DistributedDataParallel: `model.register_comm_hook(arlab.torch.HookState(codec="int4-g32"), arlab.torch.ddp_hook)`.

    Each rank divides its gradients by the number of ranks, adds what earlier ones have lost, and takes part in an all-reduce
    with the codec: the bits are those of arlab.all_reduce of these tensors.

    Raises ValueError where the codec does not take the dtype, on all ranks.
    """
    team, buffer = team_of(state.group), bucket.buffer()
    dtype, codec = state.dtype or buffer.dtype, state.codec
    if not teams.takes(codec, dtype):
        took = [name for name, short in DTYPES.items() if teams.takes(codec, name)]
        raise ArgumentError(f"codec {codec} does not take {dtype}: name one as dtype, {' or '.join(map(str, took))}")
    buffer.div_(team.ranks)

    def call() -> None:
        if codec is not None and state.error_feedback:
            sent = _with_error(team, buffer, state.error_of(bucket), codec, dtype)
        else:
            sent = buffer.to(dtype)
        teams.all_reduce(team, sent, codec=codec, algorithm=state.algorithm, sum=state.sum)
        if sent is not buffer:
            buffer.copy_(sent)

    return enqueue(team, buffer.device, buffer, [buffer], call).get_future()


class _Memory:
    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class ReduceScatter(_Memory, _ReduceScatter):
    """FSDP2's reduce-scatter of gradients with a codec, for `set_custom_reduce_scatter`; see arlab.torch.shard_with."""

    def __init__(self, codec: str | None = None, *, sum: "Sum | str | None" = None):
        teams.takes(codec, None)
        self.codec, self.sum = codec, sum

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        average = op == distributed.ReduceOp.AVG
        if not average and op != distributed.ReduceOp.SUM:
            raise ArgumentError(f"reduce_scatter with {op}: call set_force_sum_reduction_for_comms(True) of the model")
        team = team_of(group)

        def call() -> None:
            teams.reduce_scatter(team, output_tensor, input_tensor, codec=self.codec, sum=self.sum, average=average)

        return _called(team, output_tensor, [output_tensor, input_tensor], call, async_op)


class AllGather(_Memory, _AllGather):
    """FSDP2's all-gather of parameters with a codec, for `set_custom_all_gather`; see arlab.torch.shard_with."""

    def __init__(self, codec: str | None = None):
        teams.takes(codec, None)
        self.codec = codec

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        if output_tensor.dtype not in DTYPES:  # parameters of several dtypes, as bytes
            return distributed.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
        team = team_of(group)

        def call() -> None:
            teams.all_gather(team, output_tensor, input_tensor, codec=self.codec)

        return _called(team, output_tensor, [output_tensor, input_tensor], call, async_op)


def _called(team: Any, result: Tensor, tensors: list[Tensor], call: Any, async_op: bool) -> Any:
    """FSDP calls on a stream of its own, which waits where it is not asynchronous."""
    if async_op:
        return enqueue(team, result.device, result, tensors, call)
    call()
    return None


def shard_with(model: Any, *, codec: str | None = None, gather_codec: str | None = None, sum: "Sum | str | None" = None) -> Any:
    """Has a model under fully_shard scatter its gradients and gather its parameters by arlab, in all of its sharded modules.

    Args:
        model: on which torch.distributed.fsdp.fully_shard was called, over 2 to 8 ranks on one host, of any backend.
        codec: how gradients travel, in the reduce dtype of FSDP; by default as they are.
        gather_codec: how parameters travel. Each rank then computes with parameters that have been through the codec.
        sum: how sums are made, as for arlab.reduce_scatter.

    Returns the model. Raises ValueError where it has no sharded module, or a name is no codec.
    """
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise ArgumentError("no module of the model is sharded: call torch.distributed.fsdp.fully_shard first")
    for module in sharded:
        module.set_custom_reduce_scatter(ReduceScatter(codec, sum=sum))
        module.set_custom_all_gather(AllGather(gather_codec))
    return model
