"""arlab in PyTorch: a backend of torch.distributed, operators, DDP and FSDP2, on emulated GPUs with a process per rank.

`./test.sh torch` runs them, in an environment of its own. All bits are compared with those of the reference, and likely
mistakes (MISTAKES) must be seen by the same comparisons.
"""

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
from arlab.torch import Options, _teams, _training

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "experiments/site/pages/pytorch.md"
SOON_S = 60
BLOCKS = 2  # for kernels: emulated ones are threads


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
    """Returns differences from the reference in all collectives that arlab does."""
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
    if bits(functional.all_reduce(inputs[rank].clone(), "sum", distributed.group.WORLD).wait()) != bits(total):
        wrong.append("functional all_reduce")
    for got in functional.all_reduce_coalesced([inputs[rank].clone()] * 2, "sum", distributed.group.WORLD):
        if bits(got) != bits(total):
            wrong.append("all_reduce_coalesced")
    out = functional.reduce_scatter_tensor(inputs[rank].clone(), "sum", 0, distributed.group.WORLD)
    scattered = arlab.reduce_scatter(inputs, codec="int4-g32").outputs[rank].view(ranks, -1)[rank]
    if bits(out.wait()) != bits(scattered):
        wrong.append("functional reduce_scatter")
    together = functional.all_gather_into_tensor_coalesced([inputs[rank].clone()] * 2, distributed.group.WORLD)
    together += functional.reduce_scatter_tensor_coalesced([inputs[rank].clone()] * 2, "sum", [0] * 2, distributed.group.WORLD)
    for got, expected in zip(together, [torch.cat(inputs)] * 2 + [scattered] * 2, strict=True):
        if bits(got) != bits(expected):
            wrong.append("coalesced all_gather and reduce_scatter")
    counted = functional.all_reduce_coalesced([torch.tensor([rank]), torch.tensor([2])], "sum", distributed.group.WORLD)
    if [int(each) for each in counted] != [3, 6]:
        wrong.append("coalesced integers")
    empty = torch.empty(0)
    distributed.all_reduce(empty)
    return wrong, arlab.torch.statistics(), arlab.torch.statistics(some) if rank != 1 else None


def test_groups_of_some_ranks_and_functional_collectives(run):
    for wrong, counts, of_some in all_well(run(in_groups, 3, options=Options(codec="int4-g32", blocks=BLOCKS))):
        assert wrong == []
        assert counts["all_reduce by arlab as int4-g32"] == 4
        assert of_some in (None, {"all_reduce by arlab as int8-g128": 1})


def by_a_table(rank, ranks, variable):
    os.environ["ARLAB_ALL_REDUCE"] = variable
    inputs = {elements: [inputs_of(each, elements, torch.float32) for each in range(ranks)] for elements in (100, 2000)}
    wrong = []
    for elements, codec in ((100, None), (2000, "int4-g32")):
        tensor = inputs[elements][rank].clone()
        distributed.all_reduce(tensor)
        if bits(tensor) != bits(arlab.all_reduce(inputs[elements], codec=codec).outputs[rank]):
            wrong.append(elements)
    return wrong


WORDS = "0-1K:one_shot/fp32,1K-:two_shot/int4-g32"


@pytest.mark.parametrize("table, variable", [(WORDS, "0-:one_shot/fp32"), (None, WORDS)], ids=["option", "variable"])
def test_a_table_says_what_calls_take(run, table, variable):
    assert all_well(run(by_a_table, 2, variable, options=Options(table=table, blocks=BLOCKS))) == [[], []]


def others(rank, ranks):
    """Calls that arlab does not do go to PyTorch's own backend."""
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

    assert arlab.torch.all_reduce  # without a group of arlab's, operators are there when one is named

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
    rows, weight = [x.view(-1, 64) for x in inputs], torch.linspace(0.5, 2, 64, dtype=torch.float16)
    tail = arlab.Tail(residual="add", norm="rms", eps=1e-5, out="int8-g32", rounding="vllm")
    made = tail(arlab.all_reduce(rows, algorithm="two_shot").outputs[rank], residual=rows[0], weight=weight)
    with_tail = (rows[0], weight, 1e-5, "int8-g32", "vllm")
    normed = torch.compile(lambda x: torch.ops.arlab.all_reduce_tail(x, *with_tail), fullgraph=True, backend="aot_eager")
    for what, got, wanted in zip(("normalized", "residual", "wire"), normed(rows[rank]), (made.normalized, made.residual, made.wire)):
        compare(what, got, torch.as_tensor(wanted))
    torch.library.opcheck(torch.ops.arlab.all_reduce_tail.default, (rows[rank].clone(), *with_tail))
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
        {"codec": "wire-bf16", "error_feedback": False},
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


# ---------------------------------------------------------------- mistakes


def mistaken(name):
    """Makes a likely mistake in this process."""
    all_reduce, reduce_scatter, all_gather, all_to_all = _teams.all_reduce, _teams.reduce_scatter, _teams.all_gather, _teams.all_to_all
    meet = _teams.Team._meet

    def another_codec(team, tensor, *, codec=None, **how):
        all_reduce(team, tensor, codec="int4-g64" if codec else codec, **how)

    def forgotten_codec(team, tensor, *, codec=None, **how):
        all_reduce(team, tensor, **how)

    def forgotten_average(team, tensor, *, average=False, **how):
        all_reduce(team, tensor, **how)

    def average_before(team, tensor, *, average=False, **how):
        if average:
            tensor.div_(team.ranks)
        all_reduce(team, tensor, **how)

    def another_slot(team, output, tensor, **how):
        whole = tensor.view(team.ranks, -1).flip(0).reshape(-1)
        reduce_scatter(team, output, whole, **how)

    def own_slot_only(team, output, tensor, **how):
        all_gather(team, output, tensor, **how)
        output.view(team.ranks, -1)[(team.rank + 1) % team.ranks].zero_()

    def slots_as_they_were(team, output, tensor, **how):
        output.copy_(tensor)

    def own_exact(team, output, tensor, **how):
        all_gather(team, output, tensor, **how)
        output.view(team.ranks, -1)[team.rank].copy_(tensor.view(-1))

    def ranks_in_another_order(team, device):
        team.rank = (team.rank + 1) % team.ranks
        return meet(team, device)

    def error_with_its_sign_lost(team, tensor, error, codec, dtype):
        sent = (tensor.float() - error).to(dtype)
        error.copy_(sent.float() - _teams.as_sent(team, sent, codec).float())
        return sent

    def error_of_the_gradient_alone(team, tensor, error, codec, dtype):
        sent = (tensor.float() + error).to(dtype)
        error.copy_(tensor.float() - _teams.as_sent(team, sent, codec).float())
        return sent

    owner, attribute = MISTAKES[name]
    setattr(owner, attribute, locals()[name])


MISTAKES = {
    "another_codec": (_teams, "all_reduce"), "forgotten_codec": (_teams, "all_reduce"),
    "forgotten_average": (_teams, "all_reduce"), "average_before": (_teams, "all_reduce"),
    "another_slot": (_teams, "reduce_scatter"), "own_slot_only": (_teams, "all_gather"), "own_exact": (_teams, "all_gather"),
    "slots_as_they_were": (_teams, "all_to_all"), "ranks_in_another_order": (_teams.Team, "_meet"),
    "error_with_its_sign_lost": (_training, "_with_error"), "error_of_the_gradient_alone": (_training, "_with_error"),
}  # fmt: skip


def with_a_mistake(rank, ranks, name, function, *arguments):
    mistaken(name)
    return function(rank, ranks, *arguments)


@pytest.mark.parametrize("name", [name for name, (_, what) in MISTAKES.items() if what != "_with_error"])
def test_a_mistake_is_seen(run, name):
    options = Options(codec="int4-g32", gather_codec="int8-g128", blocks=BLOCKS)
    arguments = (name, rounds, "int4-g32", "int8-g128", [torch.float16])
    assert any(wrong for wrong, _ in all_well(run(with_a_mistake, 3, *arguments, options=options)))


@pytest.mark.parametrize("name", [name for name, (_, what) in MISTAKES.items() if what == "_with_error"])
def test_a_mistake_of_the_error_is_seen(run, name):
    options = {"codec": "int4-g32"}
    (trained, buckets, *_), _ = all_well(run(with_a_mistake, 2, name, replicated, options))
    expected = by_the_reference(2, buckets, **options)
    assert trained[0] == expected[0] and trained[-1] != expected[-1]


# ---------------------------------------------------------------- who must not come in, and who does not come


def with_a_stranger(rank, ranks):
    """Rank 1 does not come; another process has written its message (more of it in test_meeting.py)."""
    if rank == 1:
        distributed.group.WORLD.team._store.set("arlab/0/0/1", b"=of a stranger" * 300)
        time.sleep(3)
        return None
    time.sleep(1)
    began = time.monotonic()
    try:
        distributed.all_reduce(torch.ones(10))
    except arlab.Error as error:
        return str(error), time.monotonic() - began


def test_a_stranger_in_the_store_is_an_error_on_all_ranks(run):
    results = all_well(run(with_a_stranger, 3, timeout_s=5))
    for said, seconds in (results[0], results[2]):
        assert "rank 1: what the store has from it was not written by this user on this host" in said and seconds < 6


def with_a_killed_rank(rank, ranks, calls):
    tensor = torch.ones(10)
    for _ in range(calls):
        distributed.all_reduce(tensor)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        distributed.all_reduce(tensor)
    except arlab.Error as error:
        return str(error), time.monotonic() - began


@pytest.mark.parametrize("calls", [0, 2])
def test_a_killed_rank_is_named_on_all_others(run, calls):
    results = run(with_a_killed_rank, 3, calls, timeout_s=4, silent=(1,))
    for said, seconds in (results[0], results[2]):
        assert "rank 1 did not" in said and seconds < 8, said


def with_another_size(rank, ranks):
    try:
        distributed.all_reduce(torch.ones(10 + rank // 2))
    except arlab.Error as error:
        return str(error)


def test_a_wrong_size_is_an_error_on_all_ranks(run):
    for said in all_well(run(with_another_size, 3, timeout_s=4)):
        assert "rank" in said and "10" in said and "11" in said, said


def with_bad_arguments(rank, ranks):
    said = []
    for call in (
        lambda: distributed.reduce_scatter_tensor(torch.empty(3), torch.empty(8)),
        lambda: distributed.all_gather_into_tensor(torch.empty(9), torch.empty(4)),
        lambda: distributed.all_to_all_single(torch.empty(5), torch.empty(5)),
        lambda: distributed.all_reduce(torch.ones(4, device="meta")),
        lambda: arlab.torch.all_reduce(torch.ones(4), codec="qr-q4"),
        lambda: arlab.torch.all_reduce(torch.ones(4, dtype=torch.int64)),
        lambda: distributed.new_group(backend="cpu:arlab", pg_options=SimpleNamespace()),
    ):
        try:
            call()
            said.append("nothing")
        except ValueError as error:
            said.append(str(error))
    tensor = torch.ones(4)
    distributed.all_reduce(tensor)  # nothing of that did harm
    return said, tensor.tolist()


def test_bad_arguments_are_one_line(run):
    for said, total in all_well(run(with_bad_arguments, 2)):
        for line, expected in zip(said, [
            "reduce_scatter: 8 elements of float32 beside 3 elements of float32: needed are 2 slots of equal size",
            "all_gather: 9 elements of float32 beside 4", "all_to_all: 5 elements of float32 into 5", "on meta: allowed are cpu",
            "all_reduce: codec qr-q4 does not take 4 elements of float32", "not fp16, bf16 or fp32", "pg_options is SimpleNamespace: needed is an arlab.torch.Options",
        ], strict=True):  # fmt: skip
            assert expected in line and "\n" not in line
        assert total == [2.0] * 4
    with pytest.raises(ValueError, match="unknown codec 'int9'"):
        Options(codec="int9")


def ends_early(rank, ranks):
    distributed.all_reduce(torch.ones(4))
    if rank == 0:
        raise ValueError("of the program's own")
    return time.monotonic()


def test_a_program_that_fails_ends_at_once(run):
    began = time.monotonic()
    failed, _ = run(ends_early, 2, timeout_s=10 * SOON_S)
    assert "of the program's own" in str(failed) and time.monotonic() - began < SOON_S / 2


# ---------------------------------------------------------------- as an installed package, and as the page says


@pytest.fixture
def installed(tmp_path):
    """A folder with what pip writes about the package's entry points; the environment of programs that see it."""
    about = tmp_path / "site/arlab-0.dist-info"
    about.mkdir(parents=True)
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: arlab\nVersion: 0\n")
    (about / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in each.items()) for group, each in groups.items())
    )
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ["PYTHONPATH"]])
    return {**os.environ, "PYTHONPATH": path, "ARLAB_BOOTSTRAP_DIR": str(folder)}


def test_pytorch_finds_the_backend_and_loads_nothing_else(installed):
    program = "import sys, torch; print(torch.distributed.Backend.ARLAB, [n for n in sys.modules if n.startswith('arlab')])"
    done = subprocess.run([sys.executable, "-c", program], env=installed, check=True, capture_output=True, text=True)
    assert done.stdout == "arlab ['arlab', 'arlab.torch']\n" and done.stderr == ""


def test_without_torch_distributed_nothing_is_registered(monkeypatch):
    monkeypatch.setattr(distributed, "is_available", lambda: False)
    monkeypatch.setattr(distributed.Backend, "register_backend", lambda *_, **__: pytest.fail("it was registered"))
    monkeypatch.delattr(distributed.Backend, "ARLAB", raising=False)
    arlab.torch.register()


BLOCKS_OF_PAGE = re.findall(r"^## ([^\n]*)\n\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
END = """
print({name: count for name, count in arlab.torch.statistics().items() if "arlab" in name})
dist.destroy_process_group()
"""


@pytest.mark.parametrize("title, lines", BLOCKS_OF_PAGE, ids=[title for title, _ in BLOCKS_OF_PAGE])
def test_the_lines_of_the_page_run(installed, tmp_path, title, lines):
    assert len(lines.splitlines()) == 5
    preface = "" if title == "A backend" else "".join(BLOCKS_OF_PAGE[0][1].splitlines(keepends=True)[:3])
    (tmp_path / "lines.py").write_text((preface + lines).replace("cuda", "cpu") + END)
    environment = {**installed, "OMP_NUM_THREADS": "1"}
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "lines.py")]
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=5 * SOON_S, check=False)
    assert done.returncode == 0, done.stderr
    counted = {
        "A backend": "all_reduce by arlab as int8-g128", "Operators": "all_reduce by arlab as qr-q4", "Tails": "all_reduce by arlab as qr-q4",
        "DistributedDataParallel": "all_reduce by arlab as int4-g32", "FSDP2": "reduce_scatter by arlab as int8-g128",
    }[title]  # fmt: skip
    assert done.stdout.count(f"'{counted}': ") == 2, done.stdout


def test_every_way_has_its_five_lines():
    assert [title for title, _ in BLOCKS_OF_PAGE] == ["A backend", "Operators", "Tails", "DistributedDataParallel", "FSDP2"]
