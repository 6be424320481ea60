"""arlab in PyTorch: a backend of torch.distributed, operators, DDP and FSDP2, on emulated GPUs with a process per rank.

`./test.sh torch` runs them, in an environment of its own. All bits are compared with those of the reference, and mistakes that
somebody might make (MISTAKES) must be seen by the same comparisons.
"""

import functools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import arlab
import arlab.torch
from arlab.torch import Options, _backend, _teams, _training

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "experiments/site/pages/pytorch.md"
SOON_S = 60
BLOCKS = 2  # of kernels: emulated ones are threads


def bits(tensor):
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


def inputs_of(rank, elements, dtype, kind="gaussian", seed=1):
    """Other numbers on every rank; `extremes` are those that codecs stumble over."""
    values = torch.randn(elements, generator=torch.Generator().manual_seed(100 * seed + rank), dtype=torch.float32)
    if kind == "extremes":
        limits = torch.finfo(dtype)
        for at, value in enumerate([0.0, -0.0, limits.max, -limits.max, limits.tiny, float("inf"), float("nan"), 1e-30]):
            values[at + rank :: 97] = value
        values[elements // 2 : elements // 2 + 256] = rank + 1.0  # blocks of equal numbers
    return values.to(dtype)


# ---------------------------------------------------------------- processes


def of_rank(function, rank, ranks, folder, group, results, arguments):
    torch.set_num_threads(1)
    os.environ["ARLAB_BOOTSTRAP_DIR"] = f"{folder}/private"
    try:
        arlab.torch.register()
        backend, seconds, options = group
        distributed.init_process_group(
            backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks, timeout=timedelta(seconds=seconds),
            pg_options=options,
        )  # fmt: skip
        results.put((rank, function(rank, ranks, *arguments)))
        distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001
        results.put((rank, error if isinstance(error, arlab.Error) else RuntimeError(f"{type(error).__name__}: {error}")))


@pytest.fixture(scope="session")
def server():
    """Processes begin with PyTorch imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_torch_distributed"])
    return context


@pytest.fixture
def run(server, tmp_path):
    """Calls function(rank, ranks, ...) in a process per rank of a group; the results of the ranks, which may be errors."""
    (tmp_path / "private").mkdir(mode=0o700)

    def run(function, ranks, *arguments, backend="cpu:arlab", timeout_s=SOON_S, options=None, silent=()):
        (tmp_path / "meeting").unlink(missing_ok=True)
        results = server.Queue()
        options = Options(blocks=BLOCKS) if options is None else options
        group = (backend, timeout_s, options if "arlab" in backend else None)
        started = [
            server.Process(target=of_rank, args=(function, rank, ranks, str(tmp_path), group, results, arguments), daemon=True)
            for rank in range(ranks)
        ]
        for process in started:
            process.start()
        got = dict(results.get(timeout=3 * SOON_S) for rank in range(ranks) if rank not in silent)
        for process in started:
            process.join(SOON_S)
            assert not process.is_alive()
        return [got.get(rank) for rank in range(ranks)]

    return run


def all_well(results):
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


# ---------------------------------------------------------------- collectives of a group


def collectives(rank, ranks, codec, gather_codec, dtype, elements, kind):
    """What differs from the reference, of all collectives that arlab does."""
    wrong = []
    inputs = [inputs_of(each, elements * ranks, dtype, kind) for each in range(ranks)]
    plain = str(dtype).removeprefix("torch.").replace("float", "fp").replace("bfp", "bf")
    codec = codec if codec and plain in arlab.codec_info(codec)["dtypes"] else None

    def compare(name, got, expected):
        if bits(got) != bits(expected):
            wrong.append(f"{name} of {elements} {dtype}, {kind}, {codec}, {gather_codec}")

    def own():
        return inputs[rank].clone()

    def slot(tensor, each=rank):
        return tensor.view(ranks, -1)[each]

    total = arlab.all_reduce(inputs, codec=codec).outputs[rank]
    scattered = slot(arlab.reduce_scatter(inputs, codec=codec).outputs[rank])
    slots = [torch.cat([slot(each, at) if at == who else torch.zeros(elements, dtype=dtype) for at in range(ranks)])
             for who, each in enumerate(inputs)]  # fmt: skip
    gathered = arlab.all_gather(slots, codec=gather_codec).outputs[rank]

    tensor = own()
    distributed.all_reduce(tensor)
    compare("all_reduce", tensor, total)
    tensor = own()
    distributed.all_reduce(tensor, op=distributed.ReduceOp.AVG, async_op=True).wait()
    compare("average", tensor, total / ranks)
    tensor = torch.stack([own(), own()]).t()
    distributed.all_reduce(tensor)
    compare("strided", tensor, arlab.all_reduce([torch.stack([each, each]).t().contiguous() for each in inputs], codec=codec).outputs[rank])

    out = torch.empty(elements, dtype=dtype)
    distributed.reduce_scatter_tensor(out, own())
    compare("reduce_scatter_tensor", out, scattered)
    tensor, out = own(), torch.empty(elements, dtype=dtype)
    distributed.reduce_scatter(out, list(tensor.view(ranks, -1)), op=distributed.ReduceOp.AVG)
    compare("reduce_scatter", out, scattered / ranks)
    compare("input of reduce_scatter", tensor, inputs[rank])

    out = torch.empty(elements * ranks, dtype=dtype)
    distributed.all_gather_into_tensor(out, slot(own()))
    compare("all_gather_into_tensor", out, gathered)
    parts = [torch.empty(elements, dtype=dtype) for _ in range(ranks)]
    distributed.all_gather(parts, slot(own()))
    compare("all_gather", torch.cat(parts), gathered)
    out = torch.empty(elements * ranks, dtype=dtype)
    distributed.all_to_all_single(out, own())
    compare("all_to_all_single", out, arlab.all_to_all(inputs, codec=gather_codec).outputs[rank])
    tensor = own()
    distributed.broadcast(tensor, src=0)
    compare("broadcast", tensor, inputs[0])
    return wrong


PER_ROUND = {"all_reduce": 3, "reduce_scatter": 2, "all_gather": 2, "all_to_all": 1, "broadcast": 1}
SIZES = [(1, "gaussian"), (301, "gaussian"), (1024, "extremes")]


def rounds(rank, ranks, codec, gather_codec, dtypes):
    wrong = []
    for dtype in dtypes:
        for elements, kind in SIZES:
            wrong += collectives(rank, ranks, codec, gather_codec, dtype, elements, kind)
    return wrong, arlab.torch.statistics()


@pytest.mark.parametrize(
    "ranks, codec, gather_codec, dtypes",
    [
        (2, None, None, [torch.float16, torch.bfloat16, torch.float32]),
        (3, "int4-g32", "int8-g128", [torch.float16, torch.bfloat16, torch.float32]),
        (3, "qr-q4", None, [torch.bfloat16, torch.float32]),
    ],
)
def test_collectives_have_the_references_bits(run, ranks, codec, gather_codec, dtypes):
    options = Options(codec=codec, gather_codec=gather_codec, blocks=BLOCKS)
    for wrong, counts in all_well(run(rounds, ranks, codec, gather_codec, dtypes, options=options)):
        assert wrong == []
        assert all(" by arlab" in name for name in counts)
        for collective, times in PER_ROUND.items():
            expected = times * len(SIZES) * len(dtypes)
            assert sum(count for name, count in counts.items() if name.startswith(collective)) == expected
        with_codec = sum(count for name, count in counts.items() if name == f"all_reduce by arlab as {codec}")
        of_these = sum(codec is not None and (codec != "qr-q4" or dtype != torch.float32) for dtype in dtypes)
        assert with_codec == 3 * len(SIZES) * of_these


def in_groups(rank, ranks):
    """A part of the ranks, tensors together, PyTorch's functional collectives and its hooks in C++."""
    from torch.distributed import _functional_collectives as functional

    inputs = [inputs_of(each, 300, torch.float32) for each in range(ranks)]
    some = distributed.new_group([0, 2], backend="cpu:arlab", pg_options=Options(codec="int8-g128", sum="fp32", blocks=BLOCKS))
    like_default = distributed.new_group([0, 2], backend="cpu:arlab")
    wrong = []
    for group, codec, sum in ((some, "int8-g128", "fp32"), (like_default, "int4-g32", None)):
        if rank != 1:
            tensor = inputs[rank].clone()
            distributed.all_reduce(tensor, group=group)
            if bits(tensor) != bits(arlab.all_reduce([inputs[0], inputs[2]], codec=codec, sum=sum).outputs[rank // 2]):
                wrong.append(f"all_reduce of some as {codec}")
    total = arlab.all_reduce(inputs, codec="int4-g32").outputs[rank]
    if bits(functional.all_reduce(inputs[rank].clone(), "sum", list(range(ranks))).wait()) != bits(total):
        wrong.append("functional all_reduce")
    for got in functional.all_reduce_coalesced([inputs[rank].clone()] * 2, "sum", list(range(ranks))):
        if bits(got) != bits(total):
            wrong.append("all_reduce_coalesced")
    out = functional.reduce_scatter_tensor(inputs[rank].clone(), "sum", 0, list(range(ranks)))
    scattered = arlab.reduce_scatter(inputs, codec="int4-g32").outputs[rank].view(ranks, -1)[rank]
    if bits(out.wait()) != bits(scattered):
        wrong.append("functional reduce_scatter")
    empty = torch.empty(0)
    distributed.all_reduce(empty)
    return wrong, arlab.torch.statistics(), arlab.torch.statistics(some) if rank != 1 else None


def test_groups_of_some_ranks_and_functional_collectives(run):
    for wrong, counts, of_some in all_well(run(in_groups, 3, options=Options(codec="int4-g32", blocks=BLOCKS))):
        assert wrong == []
        assert counts["all_reduce by arlab as int4-g32"] == 4
        assert of_some in (None, {"all_reduce by arlab as int8-g128": 1})


def others(rank, ranks):
    """What arlab does not do goes to PyTorch's own backend."""
    own = torch.arange(6) + 10 * rank
    numbers = [torch.arange(6) + 10 * each for each in range(ranks)]
    wrong = []

    def compare(name, got, expected):
        if not torch.equal(got, expected):
            wrong.append(f"{name}: {got}, not {expected}")

    tensor = own.clone()
    distributed.all_reduce(tensor)
    compare("integers", tensor, sum(numbers))
    tensor = own.double()
    distributed.all_reduce(tensor)
    compare("float64", tensor, sum(numbers).double())
    tensor = own.float()
    distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
    compare("largest", tensor, numbers[-1].float())
    tensor = own.float()
    distributed.broadcast(tensor, src=1)
    compare("broadcast from rank 1", tensor, numbers[1].float())
    tensor = own.float()
    distributed.reduce(tensor, dst=0)
    compare("reduce", tensor if rank == 0 else sum(numbers).float(), sum(numbers).float())
    objects = [None] * ranks
    distributed.all_gather_object(objects, {"rank": rank})
    wrong += [] if objects == [{"rank": each} for each in range(ranks)] else [f"objects: {objects}"]
    splits = [1, 5] if rank == 0 else [5, 1]
    taken = [1, 5] if rank == 0 else [5, 1]
    out = torch.empty(6)
    distributed.all_to_all_single(out, own.float(), taken, splits)
    compare("all_to_all with splits", out, torch.cat([numbers[0][:1], numbers[1][:5]] if rank == 0 else [numbers[0][1:], numbers[1][5:]]).float())
    if rank == 0:
        distributed.send(own.float(), 1)
    else:
        tensor = torch.empty(6)
        distributed.recv(tensor)
        compare("recv", tensor, numbers[0].float())
    parts = [torch.empty(6) for _ in range(ranks)] if rank == 0 else None
    distributed.gather(own.float(), parts)
    compare("gather", torch.stack(parts or numbers).float(), torch.stack(numbers).float())
    tensor = torch.empty(6)
    distributed.scatter(tensor, [each.float() for each in numbers] if rank == 0 else None)
    compare("scatter", tensor, numbers[rank].float())
    distributed.barrier()
    return wrong, arlab.torch.statistics(), distributed.get_backend_config()


@pytest.mark.parametrize("backend", ["cpu:arlab", "arlab", "cuda:arlab", "cpu:gloo,cuda:arlab"])
def test_what_arlab_does_not_do_goes_to_gloo(run, backend):
    for rank, (wrong, counts, config) in enumerate(all_well(run(others, 2, backend=backend))):
        assert wrong == []
        assert counts == {
            "all_reduce by gloo": 3, "broadcast by gloo": 1, "reduce by gloo": 1, "all_gather by gloo": 2, "all_to_all by gloo": 1,
            "gather by gloo": 1, "scatter by gloo": 1, "barrier by gloo": 1,
        } | ({"send by gloo": 1} if rank == 0 else {"recv_anysource by gloo": 1})  # fmt: skip


def floats(rank, ranks):
    tensor = torch.full((10,), rank + 1.0)
    distributed.all_reduce(tensor)
    return tensor[0].item(), arlab.torch.statistics()


def test_tensors_of_devices_that_are_not_named_and_many_ranks_go_to_gloo(run):
    for total, counts in all_well(run(floats, 2, backend="cuda:arlab")) + all_well(run(floats, 1)):
        assert counts == {"all_reduce by gloo": 1}
    for total, counts in all_well(run(floats, 9)):
        assert total == 45 and counts == {"all_reduce by gloo": 1}


# ---------------------------------------------------------------- operators


def operators(rank, ranks):
    inputs = [inputs_of(each, 256 * ranks, torch.float16) for each in range(ranks)]
    wrong = []

    def compare(name, got, expected):
        if bits(got) != bits(expected):
            wrong.append(name)

    def model(x):
        y = torch.ops.arlab.all_reduce(x * 2, codec="qr-q4", algorithm="ring")
        torch.ops.arlab.all_reduce_(y, codec="int8-g128", sum="fp32")
        return y.relu(), torch.ops.arlab.reduce_scatter(x), torch.ops.arlab.all_gather(x, codec="int4-g32"), torch.ops.arlab.all_to_all(x)

    first = arlab.all_reduce([x * 2 for x in inputs], codec="qr-q4", algorithm="ring").outputs
    second = arlab.all_reduce(list(first), codec="int8-g128", sum="fp32").outputs[rank].relu()
    whole = [torch.cat([x if at == who else torch.zeros_like(x) for at in range(ranks)]) for who, x in enumerate(inputs)]
    expected = {
        "all_reduce": second, "reduce_scatter": arlab.reduce_scatter(inputs).outputs[rank].view(ranks, -1)[rank],
        "all_gather": arlab.all_gather(whole, codec="int4-g32").outputs[rank], "all_to_all": arlab.all_to_all(inputs).outputs[rank],
    }  # fmt: skip
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for how, function in (("eager", model), ("compiled", compiled), ("again", compiled)):
        for (name, wanted), got in zip(expected.items(), function(inputs[rank])):
            compare(f"{name}, {how}", got, wanted)
    group = distributed.group.WORLD
    named = torch.compile(lambda x: arlab.torch.all_reduce(x, group.group_name), fullgraph=True, backend="aot_eager")
    compare("a group by its name", named(inputs[rank]), arlab.all_reduce(inputs).outputs[rank])
    for name in ("all_reduce", "all_reduce_", "reduce_scatter", "all_gather", "all_to_all"):
        torch.library.opcheck(getattr(torch.ops.arlab, name).default, (inputs[rank].clone(),))
    return wrong


@pytest.mark.parametrize("backend", ["cpu:arlab", "gloo"])
def test_operators_are_traced_whole(run, backend):
    assert all_well(run(operators, 2, backend=backend)) == [[], []]


# ---------------------------------------------------------------- DistributedDataParallel


def small_model(dtype=torch.float32):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.Tanh(), torch.nn.Linear(64, 24)).to(dtype)


def gradients(model, rank, step):
    model.zero_grad()
    model(inputs_of(rank, 8 * 40, torch.float32, seed=step + 1).view(8, 40)).square().mean().backward()
    return model


STEPS = 4


def replicated(rank, ranks, options):
    model = DistributedDataParallel(small_model(), bucket_cap_mb=0.005)
    state = arlab.torch.HookState(**options)
    places = {id(each): at for at, each in enumerate(model.parameters())}
    buckets = [[] for _ in range(STEPS)]  # DDP makes others when it knows the order of gradients

    def hook(state, bucket):
        buckets[step].append(tuple(places[id(each)] for each in bucket.parameters()))
        return arlab.torch.ddp_hook(state, bucket)

    model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    trained = []
    for step in range(STEPS):
        gradients(model, rank, step)
        optimizer.step()
        trained.append([bits(each) for each in model.parameters()])
    errors = {index: error.abs().max().item() for index, error in state.errors.items()}
    return trained, buckets, errors, arlab.torch.statistics()


def by_the_reference(ranks, buckets, codec=None, dtype=torch.float32, error_feedback=True, algorithm="two_shot", sum=None):
    """The same steps in one process: encode and the error of the codec `ef-`, as it is specified, and the reference's sums."""
    model, trained = small_model(), []
    parameters = list(model.parameters())
    owed = {}
    for step in range(STEPS):
        given = []
        for rank in range(ranks):
            gradients(model, rank, step)
            given.append([each.grad / ranks for each in parameters])
        for bucket in buckets[step]:
            flat = [torch.cat([given[rank][at].reshape(-1) for at in bucket]) for rank in range(ranks)]
            sent = []
            for rank in range(ranks):
                if codec is None or not error_feedback:
                    sent.append(flat[rank].to(dtype))
                    continue
                error = owed.setdefault((bucket, rank), np.zeros(flat[rank].numel(), np.float32))
                wide = flat[rank] + torch.from_numpy(error)
                sent.append(wide.to(dtype))
                if dtype == torch.float32:
                    arlab.encode(flat[rank], f"ef-{codec}", context=arlab.Context(state=error))
                else:  # `ef-` knows nothing of the cast
                    decoded = arlab.decode(arlab.encode(sent[-1], codec), codec, dtype, wide.numel())
                    error[:] = (wide - torch.as_tensor(np.asarray(decoded).astype(np.float32))).numpy()
            total = arlab.all_reduce(sent, codec=codec, algorithm=algorithm, sum=sum).outputs[0].float()
            begin = 0
            for at in bucket:
                parameters[at].grad = total[begin : begin + parameters[at].numel()].view_as(parameters[at]).clone()
                begin += parameters[at].numel()
        torch.optim.SGD(parameters, 0.1).step()
        trained.append([bits(each) for each in parameters])
    return trained


@pytest.mark.parametrize("backend", ["cpu:arlab", "gloo"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"codec": "int4-g32"},
        {"codec": "int4-g32", "error_feedback": False, "algorithm": "ring"},
        {"codec": "qr-q4", "dtype": torch.bfloat16, "sum": "fp32"},
    ],
    ids=str,
)
def test_gradients_have_the_references_bits(run, backend, options):
    results = all_well(run(replicated, 2, options, backend=backend))
    buckets = results[0][1]
    assert len(buckets[-1]) > 1
    expected = by_the_reference(2, buckets, **options)
    for trained, of_this_rank, errors, counts in results:
        assert trained == expected and of_this_rank == buckets
        assert all(error > 0 for error in errors.values()) and bool(errors) == ("codec" in options and options.get("error_feedback", True))
        codec = options.get("codec")
        assert counts[f"all_reduce by arlab as {codec}" if codec else "all_reduce by arlab"] == sum(map(len, buckets))


def not_of_the_dtype(rank, ranks):
    model = DistributedDataParallel(small_model())
    model.register_comm_hook(arlab.torch.HookState(codec="qr-q4"), arlab.torch.ddp_hook)
    gradients(model, rank, 0)


def test_a_codec_that_does_not_take_the_gradients(run):
    for error in run(not_of_the_dtype, 2):
        assert re.search("codec qr-q4 does not take torch.float32: name one as dtype, torch.float16 or torch.bfloat16", str(error))
    with pytest.raises(ValueError, match="unknown codec 'int9'"):
        arlab.torch.HookState(codec="int9")


# ---------------------------------------------------------------- FSDP2


def sharded(rank, ranks, codec, gather_codec):
    """Gradients and outputs of a layer whose rows the ranks share, over two steps."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 8 * ranks, bias=False))
    weights = [inputs_of(each, 8 * 32, torch.float32, seed=9) for each in range(ranks)]
    model[0].weight.data.copy_(torch.cat(weights).view(8 * ranks, 32))
    fully_shard(model[0])
    fully_shard(model)
    arlab.torch.shard_with(model, codec=codec, gather_codec=gather_codec)
    slots = [torch.cat([w if at == who else torch.zeros_like(w) for at in range(ranks)]) for who, w in enumerate(weights)]
    full = arlab.all_gather(slots, codec=gather_codec).outputs[rank].view(8 * ranks, 32)
    wrong, made = [], []
    for each in range(ranks):
        local = torch.nn.Linear(32, 8 * ranks, bias=False)
        local.weight.data.copy_(full)
        out = local(inputs_of(each, 4 * 32, torch.float32).view(4, 32))
        out.square().sum().backward()
        made.append((out, local.weight.grad.reshape(-1)))
    out = model(inputs_of(rank, 4 * 32, torch.float32).view(4, 32))
    out.square().sum().backward()
    if bits(out) != bits(made[rank][0]):
        wrong.append("output")
    total = arlab.reduce_scatter([gradient / ranks for _, gradient in made], codec=codec)
    if bits(model[0].weight.grad.to_local()) not in (
        bits(total.outputs[rank].view(ranks, -1)[rank]),
        bits(arlab.reduce_scatter([gradient for _, gradient in made], codec=codec).outputs[rank].view(ranks, -1)[rank] / ranks),
    ):
        wrong.append("gradient")
    return wrong, arlab.torch.statistics()


@pytest.mark.parametrize("backend", ["cpu:arlab", "gloo"])
@pytest.mark.parametrize("codec, gather_codec", [(None, None), ("int4-g32", None), ("int8-g128", "int4-g32")])
def test_sharded_models_have_the_references_bits(run, backend, codec, gather_codec):
    for wrong, counts in all_well(run(sharded, 2, codec, gather_codec, backend=backend)):
        assert wrong == []
        assert counts[f"reduce_scatter by arlab{f' as {codec}' if codec else ''}"] == 1
        assert counts[f"all_gather by arlab{f' as {gather_codec}' if gather_codec else ''}"] >= 1


def test_only_sharded_models_can_be_told():
    with pytest.raises(ValueError, match="no module of the model is sharded"):
        arlab.torch.shard_with(small_model())


