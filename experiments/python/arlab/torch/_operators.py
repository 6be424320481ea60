"""Collectives as operators of PyTorch: torch.compile traces them whole, and on GPUs CUDA graphs capture them.

A group is its name, `group.group_name`; "" is the default group. It may be of any backend.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from arlab.torch import _teams as teams
from arlab.torch._teams import team_of

_SUM = 'str group="", str? codec=None, str? algorithm=None, str? sum=None'


def _contiguous(like: Tensor, elements: int | None = None) -> Tensor:
    if elements is None:
        return torch.empty_like(like, memory_format=torch.contiguous_format)
    return like.new_empty(elements)


def _all_reduce(tensor: Tensor, group: str = "", codec: str | None = None, algorithm: str | None = None, sum: str | None = None) -> Tensor:
    out = tensor.clone(memory_format=torch.contiguous_format)
    teams.all_reduce(team_of(group), out, codec=codec, algorithm=algorithm, sum=sum)
    return out


def _all_reduce_(tensor: Tensor, group: str = "", codec: str | None = None, algorithm: str | None = None, sum: str | None = None) -> None:
    teams.all_reduce(team_of(group), tensor, codec=codec, algorithm=algorithm, sum=sum)


_TAIL = "Tensor? residual=None, Tensor? weight=None, float? eps=None, str? out_quant=None, str? rounding=None"


def _all_reduce_tail(
    tensor: Tensor, residual: Tensor | None = None, weight: Tensor | None = None, eps: float | None = None,
    out_quant: str | None = None, rounding: str | None = None, group: str = "", codec: str | None = None,
    algorithm: str | None = None, sum: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    out, residual_out = tensor.clone(memory_format=torch.contiguous_format), None
    if residual is not None:
        residual_out = residual.clone(memory_format=torch.contiguous_format)
    tail = {"residual": residual_out, "weight": weight, "eps": eps, "out_quant": out_quant, "rounding": rounding}
    made = teams.all_reduce_tail(team_of(group), out, tail, codec=codec, algorithm=algorithm, sum=sum)
    nothing = tensor.new_empty(0)
    wire = nothing.to(torch.uint8) if made.wire is None else made.wire
    return out, nothing if residual_out is None else residual_out, wire


def _fake_tail(tensor: Tensor, residual: Tensor | None = None, weight: Tensor | None = None, eps: float | None = None,
               out_quant: str | None = None, *how: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    bytes_of_wire = teams.wire_bytes(tensor, out_quant) if out_quant is not None else 0
    wire = tensor.new_empty(bytes_of_wire, dtype=torch.uint8)
    return _contiguous(tensor), tensor.new_empty(0) if residual is None else _contiguous(residual), wire


def _reduce_scatter(tensor: Tensor, group: str = "", codec: str | None = None, sum: str | None = None) -> Tensor:
    team = team_of(group)
    out = _contiguous(tensor, tensor.numel() // team.ranks)
    teams.reduce_scatter(team, out, tensor, codec=codec, sum=sum)
    return out


def _all_gather(tensor: Tensor, group: str = "", codec: str | None = None) -> Tensor:
    team = team_of(group)
    out = _contiguous(tensor, tensor.numel() * team.ranks)
    teams.all_gather(team, out, tensor, codec=codec)
    return out


def _all_to_all(tensor: Tensor, group: str = "", codec: str | None = None) -> Tensor:
    out = _contiguous(tensor)
    teams.all_to_all(team_of(group), out, tensor, codec=codec)
    return out


# The schemas are written out, since annotations of this file are text.
all_reduce = torch.library.custom_op("arlab::all_reduce", _all_reduce, mutates_args=(), schema=f"(Tensor tensor, {_SUM}) -> Tensor")
all_reduce_ = torch.library.custom_op(
    "arlab::all_reduce_", _all_reduce_, mutates_args=("tensor",), schema=f"(Tensor(a!) tensor, {_SUM}) -> ()"
)
all_reduce_tail = torch.library.custom_op(
    "arlab::all_reduce_tail", _all_reduce_tail, mutates_args=(), schema=f"(Tensor tensor, {_TAIL}, {_SUM}) -> (Tensor, Tensor, Tensor)"
)
reduce_scatter = torch.library.custom_op(
    "arlab::reduce_scatter", _reduce_scatter, mutates_args=(),
    schema='(Tensor tensor, str group="", str? codec=None, str? sum=None) -> Tensor',
)  # fmt: skip
all_gather = torch.library.custom_op(
    "arlab::all_gather", _all_gather, mutates_args=(), schema='(Tensor tensor, str group="", str? codec=None) -> Tensor'
)
all_to_all = torch.library.custom_op(
    "arlab::all_to_all", _all_to_all, mutates_args=(), schema='(Tensor tensor, str group="", str? codec=None) -> Tensor'
)

all_reduce.register_fake(lambda tensor, *how, **named: _contiguous(tensor))
all_reduce_tail.register_fake(_fake_tail)
all_reduce_.register_fake(lambda tensor, *how, **named: None)
all_to_all.register_fake(lambda tensor, *how, **named: _contiguous(tensor))
reduce_scatter.register_fake(lambda tensor, group="", *how, **named: _contiguous(tensor, tensor.numel() // team_of(group).ranks))
all_gather.register_fake(lambda tensor, group="", *how, **named: _contiguous(tensor, tensor.numel() * team_of(group).ranks))
