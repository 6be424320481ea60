"""Codecs and communicators from Python, on emulated GPUs: ranks in one process, and in one each."""

import multiprocessing
import os
import socket
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import arlab

PROGRAM = Path(os.environ["ARLAB_BIN"]) / "arlab"


def gaussian(elements, dtype=np.float16, seed=1):
    return np.random.default_rng(seed).normal(size=elements).astype(dtype)


def reference(tensors, algorithm, codec, dtype, folder):
    """What the program says that every rank ends with."""
    stacked = np.stack(tensors)
    np.save(folder / "in.npy", stacked.view(np.uint16) if dtype == "bf16" else stacked)
    command = f"reduce --algorithm {algorithm} --codec {codec} --ranks {len(tensors)} --dtype {dtype}"
    subprocess.run(
        [PROGRAM, *command.split(), "--input", folder / "in.npy", "--out", folder / "out.npy", "--format", "json"],
        check=True,
        stdout=subprocess.PIPE,
    )
    return np.load(folder / "out.npy")


def same_bits(a, b):
    return a.tobytes() == b.tobytes()


# ---- codecs


def test_codecs(tmp_path):
    assert "host" in arlab.platforms() and arlab.devices() == 8
    assert {"fp16", "qr-q4", "int5-g128"} <= set(arlab.codecs())
    tensor = gaussian(5000)
    np.save(tmp_path / "in.npy", tensor)
    subprocess.run(
        [PROGRAM, *"encode --codec qr-q4 --dtype fp16 in.npy out.bin".split()],
        cwd=tmp_path, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    wire = arlab.encode(tensor, "qr-q4")
    assert wire.dtype == np.uint8 and wire.size == arlab.wire_bytes("qr-q4", "fp16", 5000)
    assert wire.tobytes() == (tmp_path / "out.bin").read_bytes()
    decoded = arlab.decode(wire, "qr-q4", np.float16, 5000)
    assert decoded.dtype == np.float16 and np.abs(decoded - tensor).max() < 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_plain_codecs_keep_every_bit(dtype):
    tensor = gaussian(100, dtype)
    name = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}[tensor.dtype.name]
    assert same_bits(arlab.decode(arlab.encode(tensor, name), name, dtype, 100), tensor)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: arlab.encode(gaussian(8), "qr-q5"), "unknown codec"),
        (lambda: arlab.encode(gaussian(8), "bf16"), "bf16 takes bf16, not fp16"),
        (lambda: arlab.encode(gaussian(8, np.float64), "fp16"), "the tensor is float64: allowed are float16"),
        (lambda: arlab.encode(gaussian(8)[::2], "fp16"), "not contiguous"),
        (lambda: arlab.encode([1.0], "fp16"), "the tensor is list: needed is a contiguous array"),
        (lambda: arlab.encode(gaussian(8), "fp16", platform="tpu"), "platform tpu is not in this build; built are host"),
        (lambda: arlab.decode(np.zeros(3, np.uint8), "fp16", np.float16, 2), "3 bytes of wire: 2 elements of fp16 have 4"),
        (lambda: arlab.decode(np.zeros(4, np.uint8), "fp16", np.int16, 2), "dtype int16: allowed are"),
        (lambda: arlab.wire_bytes("qr-q4", "fp64", 2), "unknown dtype 'fp64'"),
        (lambda: arlab.devices("rocm") if "rocm" not in arlab.platforms() else arlab.devices("tpu"), "not in this build"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(arlab.Error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


# ---- ranks in this process


@pytest.mark.parametrize("algorithm, codec, dtype", [
    ("two_shot", "qr-q4", "fp16"), ("one_shot", "fp16", "fp16"), ("ring", "int5-g128", "bf16"), ("two_shot", "fp32", "fp32"),
])  # fmt: skip
def test_group_has_the_references_bits(tmp_path, algorithm, codec, dtype):
    kind = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}[dtype]
    tensors = [gaussian(3001, kind, seed) for seed in range(3)]
    expected = reference(tensors, algorithm, codec, dtype, tmp_path)
    group = arlab.Group([0, 1, 2], blocks=2, slot_bytes=16384)
    out = [np.empty_like(tensor) for tensor in tensors]
    before = [tensor.copy() for tensor in tensors]
    assert group.all_reduce(tensors, algorithm=algorithm, codec=codec, out=out)[0] is out[0]
    assert all(same_bits(a, b) for a, b in zip(out, expected))
    assert all(same_bits(a, b) for a, b in zip(tensors, before))
    group.all_reduce(tensors, algorithm=algorithm, codec=codec)
    assert all(same_bits(a, b) for a, b in zip(tensors, expected))


def test_all_to_all():
    tensors = [gaussian(6, seed=rank) for rank in range(3)]
    out = [np.empty_like(tensor) for tensor in tensors]
    arlab.Group([0, 1, 2]).all_to_all(tensors, out=out)
    for i in range(3):
        for j in range(3):
            assert same_bits(out[j][2 * i : 2 * i + 2], tensors[i][2 * j : 2 * j + 2])


@pytest.mark.parametrize("in_place", [False, True])
def test_halves_of_an_all_reduce_and_a_broadcast(in_place):
    tensors = [np.arange(6, dtype=np.float16) + 10 * rank for rank in range(3)]
    group = arlab.Group([0, 1, 2])

    def result_of(collective):
        given = [tensor.copy() for tensor in tensors]
        out = given if in_place else [np.empty_like(tensor) for tensor in tensors]
        collective(given, out=None if in_place else out)
        return np.stack(out)

    scattered = np.stack(tensors)
    gathered = np.tile(np.concatenate([tensors[i][2 * i : 2 * i + 2] for i in range(3)]), (3, 1))
    for i in range(3):
        scattered[i, 2 * i : 2 * i + 2] = sum(tensor[2 * i : 2 * i + 2] for tensor in tensors)
    assert same_bits(result_of(group.reduce_scatter), scattered)
    assert same_bits(result_of(group.all_gather), gathered)
    assert same_bits(result_of(group.broadcast), np.tile(tensors[0], (3, 1)))


def test_tensors_that_speak_dlpack():
    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    arrays = [gaussian(100, seed=rank) for rank in range(2)]
    total = arrays[0] + arrays[1]
    arlab.Group([0, 1]).all_reduce([Tensor(array) for array in arrays])
    assert all(same_bits(array, total) for array in arrays)


def test_the_check_of_our_own_kernels():
    group = arlab.Group([0, 1], blocks=1)
    report = arlab.conformance.check(
        lambda tensors: group.all_reduce(tensors, algorithm="ring", codec="qr-q8") and None,
        world_size=2, lengths=[1, 3000], mode="in_place", codec="qr-q8", claim="ring/qr-q8/native",
    )  # fmt: skip
    assert report.passed, report


def test_bad_calls():
    group = arlab.Group([0, 1])
    good = gaussian(8)
    for tensors, message in [
        ([good], "1 tensors and 1 outputs for 2 ranks"),
        ([good, gaussian(9)], "rank 1's tensor has 9 elements of fp16, rank 0's 8 of fp16"),
        ([good, gaussian(8, np.float32)], "rank 1's tensor has 8 elements of fp32"),
        ([good, gaussian(16)[::2]], "rank 1's tensor is not contiguous"),
        ([good, None], "rank 1's tensor is NoneType"),
    ]:
        with pytest.raises(arlab.Error, match=message):
            group.all_reduce(tensors)
    read_only = gaussian(8)
    read_only.flags.writeable = False
    with pytest.raises(arlab.Error, match="rank 1's output is read-only"):
        group.all_reduce([good, read_only])
    with pytest.raises(arlab.Error, match="rank 0's output has 7 elements"):
        group.all_reduce([good, good], out=[gaussian(7), gaussian(7)])
    with pytest.raises(arlab.Error, match="algorithm two_shots has no kernels"):
        group.all_reduce([good, gaussian(8)], algorithm="two_shots")
    with pytest.raises(arlab.Error, match="1 ranks: allowed are 2 to 8"):
        arlab.Group([0])
    with pytest.raises(arlab.Error, match="a timeout of 0 s"):
        arlab.Group([0, 1], timeout_s=0)
    # Nothing of that did harm.
    tensors = [good.copy(), good.copy()]
    group.all_reduce(tensors)
    assert same_bits(tensors[0], good + good)


# ---- a process per rank


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_rank(rank, world_size, environment, behaviour, results):
    os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    try:
        communicator = arlab.Communicator.from_environment(timeout_s=60 if behaviour == "good" else 5)
        tensor = gaussian(3000, seed=rank)
        if behaviour == "good":
            out = communicator.all_reduce(tensor, algorithm="ring", codec="qr-q6", out=np.empty_like(tensor))
            results.put((rank, out.tobytes()))
        elif rank != 1:  # who dies without a call
            communicator.all_reduce(tensor)
            results.put((rank, "came"))
        assert (communicator.rank, communicator.world_size, communicator.device) == (rank, world_size, rank)
    except Exception as error:  # noqa: BLE001
        results.put((rank, str(error)))


def run_processes(world_size, environment, behaviour, answers):
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    ranks = [
        spawn.Process(target=run_rank, args=(rank, world_size, environment, behaviour, results))
        for rank in range(world_size)
    ]
    for process in ranks:
        process.start()
    got = dict(results.get(timeout=90) for _ in range(answers))
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
    return got


@pytest.mark.parametrize("files", [True, False])
def test_communicators_from_the_environment(tmp_path, files):
    (tmp_path / "meeting").mkdir()
    environment = (
        {"ARLAB_BOOTSTRAP_DIR": str(tmp_path / "meeting")}
        if files
        else {"MASTER_ADDR": "127.0.0.1", "ARLAB_PORT": str(free_port())}
    )
    got = run_processes(3, environment, "good", answers=3)
    expected = reference([gaussian(3000, seed=rank) for rank in range(3)], "ring", "qr-q6", "fp16", tmp_path)
    assert got == {rank: expected[rank].tobytes() for rank in range(3)}


def test_a_rank_that_does_not_call_is_named():
    environment = {"MASTER_ADDR": "127.0.0.1", "ARLAB_PORT": str(free_port())}
    got = run_processes(3, environment, "one is missing", answers=2)
    for rank, error in got.items():
        assert error == f"rank 1 did not arrive within 5000 ms (seen by rank {rank})"


def test_gather_errors():
    def broken(mine):
        raise OSError("no route")

    with pytest.raises(arlab.Error, match="gather failed: .*no route"):
        arlab.Communicator.from_gather(broken, 0, 2, 0)
    with pytest.raises(arlab.Error, match="ranks 0 and 1 are in one process"):
        arlab.Communicator.from_gather(lambda mine: [mine, mine], 0, 2, 0)
    with pytest.raises(arlab.Error, match="rank 2: allowed are 0 to 1"):
        arlab.Communicator.from_gather(lambda mine: [mine, mine], 2, 2, 0)


def test_every_name_is_there():
    assert all(getattr(arlab, name) for name in arlab.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'all_reduce'"):
        arlab.all_reduce  # noqa: B018
